"""A command asked from Python: keyword arguments as its command line, and what that comes to.

There is one road: the words that somebody would type are read, computed and refused as typed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import click
import numpy as np

from sweeps.asked import ASKED
from sweeps.cli import commands, lacking
from sweeps.cli.kept import Kept
from sweeps.cli.refusals import of_click, told
from sweeps.cli.sections import shown_sections
from sweeps.errors import InputError, fault, nearest, tell_all
from sweeps.wrapping import fitted

# Options of how a screen is shown or a program reads it: what is asked has these as methods.
ON_SCREEN = {
    "as_csv": ".dataframe has the rows",
    "as_json": ".dataframe has the rows",
    "verbose": ".explain() tells it",
    "show": ".explain() tells it",
    "plot": ".plot() draws it",
    "style": ".plot(style=..) takes it",
    "asserts": "compare .dataset's numbers",
}


@dataclass(frozen=True)
class Asked:
    """A command that was asked, and what it came to."""

    words: tuple[str, ...]  # The command line
    kept: Kept
    screen: str
    context: click.Context

    def sections(self, names: Sequence[str] = ()) -> str:
        """Return further sections of the report, by name, or all that there are."""
        known = [*self.kept.sections]
        unknown = [name for name in names if name not in known]
        tell_all(
            [
                fault("explain", section, "no such section", nearest(section, known))
                for section in unknown
            ]
        )
        with self.context.scope(cleanup=False), np.errstate(all="ignore"):
            lines = shown_sections(names or known, self.kept.sections)
            return "".join(fitted(lines)).strip("\n")


def ask(name: str, arguments: Iterable[Any], options: Mapping[str, object]) -> Asked:
    """Ask a command.

    Parameters
    ----------
    name : str
        The command's.
    arguments : iterable
        Its arguments; those that are None aren't given.
    options : mapping
        Values by an option's name with underscores; one that is Python's own word has one at its
        end, too (``from_``).  None, and False of a switch, is not given.

    Raises
    ------
    InputError
        With every fault, a line each, as the command line tells them.
    """
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    texts = [
        text for argument in arguments for text in ([] if argument is None else _texts(argument))
    ]
    words = [*texts, *_words(command, options)]
    kept = Kept()
    token = ASKED.set([name, *words])
    try:
        with redirect_stdout(StringIO()) as screen:
            context = command.make_context(name, [*words], obj=kept)
            with context.scope(cleanup=False):
                command.invoke(context)
    except InputError as error:
        raise InputError(told(error.faults)) from None
    except click.MissingParameter as error:
        raise InputError(lacking(error)) from None
    except click.UsageError as error:
        raise InputError(of_click(error)) from None
    finally:
        ASKED.reset(token)
    kept.result = _made_as(kept.result, [name, *words])
    return Asked(("sweeps", name, *words), kept, screen.getvalue(), context)


def _made_as(result: Any, words: list[str]) -> Any:
    """Return a table that is still to be made so that it tells the command that was asked."""
    if not callable(result):
        return result

    def made() -> Any:
        token = ASKED.set(words)
        try:
            return result()
        finally:
            ASKED.reset(token)

    return made


def _words(command: click.Command, options: Mapping[str, object]) -> Iterator[str]:
    """Yield the words of a command line that give some options."""
    several = [param for param in command.params if isinstance(param, click.Option)]
    # By what it gives, as sweeps have it, and by each of its names.
    known = {str(param.name): (param.opts[0], param) for param in several}
    known |= {
        flag.lstrip("-").replace("-", "_"): (flag, param)
        for param in several
        for flag in param.opts
    }
    for name, value in options.items():
        plain = name.removesuffix("_")
        flag, param = known.get(plain, (f"--{plain.replace('_', '-')}", None))
        option = "" if param is None else str(param.name)
        if option in ON_SCREEN:
            raise InputError(fault(plain, value, "is of the command line", ON_SCREEN[option]))
        if value is None or (value is False and param is not None and param.is_flag):
            continue
        # Some options mean their usual value where they are given without one.
        if param is not None and (param.is_flag or (value is True and _has_usual(param))):
            yield flag
        elif param is not None and param.multiple:
            yield from (word for text in _texts(value) for word in (flag, text))
        else:
            text = _text(value)
            # What begins with a hyphen, a negative number say, would be read as an option.
            yield from ([f"{flag}={text}"] if text[:1] in ("-", "") else [flag, text])


def _has_usual(option: click.Option) -> bool:
    """Return whether an option may be given without a value."""
    return isinstance(option.flag_value, str)


def _texts(value: Any) -> list[str]:
    """Return each of one or several values as text."""
    several = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    return [_text(item) for item in value] if several else [_text(value)]


def _text(value: Any) -> str:
    """Return a value as it is typed: several with commas, columns as name=value, numbers in SI."""
    if isinstance(value, bool | np.bool_):
        return "on" if value else "off"
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):
        return _text(value.tolist())
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_text(item)}" for name, item in value.items())
    if isinstance(value, Iterable):
        return ",".join(map(_text, value))
    return str(value)
