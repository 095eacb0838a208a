"""What functions for notebooks return: the answer as a screen, a dataset, a table, a derivation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.cli.ask import Asked
from sweeps.errors import refuse
from sweeps.job import Job
from sweeps.pictures import Figures, Text, figures_of, shortened

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from sweeps.search.interface import Plans
    from sweeps.search.request import Execution

_MORE = re.compile(r"^More: --show .*\n(?:  .*\n)*", re.MULTILINE)


class Answer:
    """What a command answers.

    ``print`` gives the whole screen of the command, a prompt its first lines: the answer with its
    band, then what it rests on.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._text = _MORE.sub("", asked.screen).strip("\n")

    @property
    def command(self) -> str:
        """The command line that gives the same."""
        return shlex.join(self._asked.words)

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The result as a labelled dataset, with units, sources and provenance.

        Raises
        ------
        InputError
            If the answer has none: it is text alone.
        """
        result = self._asked.kept.whole()
        if result is None:
            refuse("dataset", self.command, "is answered in words alone", "print tells it")
        return result.dataset()

    @cached_property
    def dataframe(self) -> pd.DataFrame:
        """The rows of ``--csv``: names end in units, ``attrs["units"]`` and ``"long_name"`` tell.

        Raises
        ------
        InputError
            If the answer has none: it is text alone.
        """
        from sweeps.api import frame_of

        kept = self._asked.kept
        result = kept.listed() if kept.listed else kept.records or kept.whole()
        if result is None:
            refuse("dataframe", self.command, "is answered in words alone", "print tells it")
        return frame_of(result.evaluated() if isinstance(result, Job) else result)

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections that `explain` knows."""
        return tuple(self._asked.kept.sections)

    def explain(self, *sections: str) -> Text:
        """Say how the answer comes about: the sections of ``--show``.

        Parameters
        ----------
        *sections : str
            Some of `sections`, such as ``"formulas"``; all by default.

        Returns
        -------
        Text
            The lines.

        Raises
        ------
        InputError
            If a section isn't one of them.
        """
        if not sections and not self.sections:
            return Text(self._text)
        return Text(self._asked.sections(sections))

    def plot(self, *figures: str, style: str = "screen") -> Figures:
        """Draw the figures that ``--plot`` draws.

        Parameters
        ----------
        *figures : str
            Names of some of them; all by default.
        style : {"screen", "slide", "paper"}
            What they are for.

        Returns
        -------
        Figures
            A notebook shows them; `Figures.save` writes them.

        Raises
        ------
        InputError
            If a name or the style is unknown, or there is nothing to draw.
        """
        kept = self._asked.kept
        return figures_of(
            lambda: self.dataset, kept.figures, kept.draw, wanted=figures, style=style
        )

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return shortened(self._text, self._ways())

    def _repr_html_(self) -> str:
        """Return the answer as a notebook shows it: what is first in bold, then the lines."""
        first, _, rest = self._text.partition("\n")
        ways = escape(self._ways())
        return f"<div><b>{escape(first)}</b><pre>{escape(rest)}</pre><small>{ways}</small></div>"

    def _ways(self) -> str:
        """Return what there is beside the screen."""
        kept = self._asked.kept
        ways = [".explain()"] if self.sections else []
        if kept.result is not None:
            ways += [".dataframe", ".dataset", ".plot()"]
        elif kept.listed is not None:
            ways += [".dataframe"]
        return ", ".join(ways)


class Plan(Answer):
    """The best plans of a model on a machine.

    Beside what every `Answer` has: the recommended plan as a mapping, why it is, and the search.
    """

    @property
    def search(self) -> Plans:
        """The search: everything that can be said of it.

        Raises
        ------
        InputError
            If no plans were searched: the calculator's table, or one plan explained.
        """
        plans: Plans | None = self._asked.kept.plans
        if plans is None:
            refuse("search", self.command, "no plans are searched", "a model with shapes")
        return plans

    @property
    def recommended(self) -> Execution | None:
        """The best plan at one point, such as ``recommended["tp"]``; None where none can run."""
        answer = self.search.answer
        return None if answer is None else answer.recommended

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is recommended; where nothing can run, what would help."""
        answer = self.search.answer
        if answer is None:
            return ()
        if answer.recommended is not None:
            return answer.reasons
        return tuple(
            f"{remedy.words}: {remedy.search.recommended.name}" for remedy in answer.remedies
        )

    @property
    def fallen(self) -> Mapping[str, int]:
        """How many plans fall for each reason."""
        answer = self.search.answer
        return {} if answer is None else dict(answer.counts.fallen)

    @cached_property
    def sensitivity(self) -> xr.Dataset:
        """What each constant that wasn't given moves the recommended plan by, at x0.9 and x1.1.

        As `sweeps.sensitivity` gives it, with the plan that is then the best of those kept
        (``lower_best``, ``upper_best``) and what the recommended one loses to it, as a share
        (``lower_loss``, ``upper_loss``; NaN where it can't run).  The plans are ranked again, not
        searched again.

        Raises
        ------
        InputError
            If no plan can run, or the question is one at many points.
        """
        from sweeps.search.answer import survival

        answer = self.search.answer
        if answer is None or answer.recommended is None:
            allowed = "a question at one point that has an answer"
            refuse("sensitivity", "..", "there is no recommended plan", allowed)
        survived = survival(answer)
        command = ["sweeps.plan", "sensitivity"]
        return survived.own.result({}, survived.columns(), command).dataset()


class Page(Answer):
    """A page to open, to touch and to pass on: a notebook shows it."""

    @property
    def path(self) -> Path:
        """The file."""
        path = self._asked.kept.path
        assert path is not None
        return path

    def _repr_html_(self) -> str:
        """Return a frame with the page in it."""
        page = escape(self.path.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="720" style="border:0"></iframe>'
