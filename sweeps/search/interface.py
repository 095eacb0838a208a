"""Questions in, answers out: the plans of a model on a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overhead.frozen import frozen
from overhead.labels import LABELS
from sweeps.errors import InputError, fault
from sweeps.result import Result, provenance_of
from sweeps.search.answer import Answer, table_layout
from sweeps.search.repair import Best
from sweeps.search.request import Request
from sweeps.spec.catalog import load_hardware

# Splits that a dataset of one point keeps, beside the Pareto front.
KEPT_SPLITS = 50


@frozen()
class Plans:
    """The plans that a question has as its answer.

    Attributes
    ----------
    request : Request
        The question.
    answer : Answer or None
        Of a question at one point: everything that can be said of it.
    best : Best or None
        Of a question at many points: the best plan at each.
    tokens, days : float or None
        Of a whole training, whose time and cost the table tells: its tokens, or those of its days.
    splits : int
        Splits that the table of one point has, beside the Pareto front.
    """

    request: Request
    answer: Answer | None = None
    best: Best | None = None
    tokens: float | None = None
    days: float | None = None
    splits: int = KEPT_SPLITS

    def result(
        self, given: Mapping[str, Any], *, formulas: str = "", command: Sequence[str] = ()
    ) -> Result:
        """Return the table with its values and where they come from.

        Parameters
        ----------
        given : mapping
            Options of a file.
        formulas : str
            The text of the user's own formulas.
        command : sequence of str
            What computes it; by default the command that runs.
        """
        whole = {"training": {"tokens": self.tokens or "", "days": self.days or ""}}
        asked = {
            **(whole if self.tokens or self.days else {}),
            **({"splits": self.splits} if self.splits != KEPT_SPLITS else {}),
        }
        attrs = _provenance(self.request, asked, given, formulas, command)
        if self.best is not None:
            return Result(self.best.layout(attrs))
        assert self.answer is not None
        if self.answer.recommended is None:
            wrong = "none can run, so that there is no table"
            raise InputError(fault("plans", "..", wrong, "see the answer's remedies"))
        run = (self.tokens, self.days)
        return Result(table_layout(self.answer, self.splits, attrs, run=run))


def _provenance(
    request: Request,
    inputs: Mapping[str, Any],
    given: Mapping[str, Any],
    formulas: str,
    command: Sequence[str],
) -> dict[str, str]:
    """Return the global attributes of a table of plans."""

    def named(label: str, default: str) -> list[str]:
        axes = [axis.columns[label] for axis in request.axes if label in axis.columns]
        values = map(str, axes[0]) if axes else [request.first.labels.get(label, default)]
        return list(dict.fromkeys(values))

    names = named("hardware", LABELS["hardware"].default)
    machines = [load_hardware(name, request.first.folders) for name in names]
    return provenance_of(
        title=f"Best parallel plans of {', '.join(named('model', 'a model'))}",
        summary=f"Of all parallel plans those with {request.first.objective.words}.",
        spec={**spec_of(request), **inputs},
        given=given,
        references="formulas of the training step: sweeps list",
        inputs=[formulas, *((machine.name, machine.figures) for machine in machines)],
        command=command,
    )


def spec_of(request: Request) -> dict[str, Any]:
    """Return a question as text that says it whole."""
    first = request.first
    axes = {
        axis.name: {name: values.tolist() for name, values in axis.columns.items()}
        for axis in request.axes
    }
    varying = {name for axis in request.axes for name in axis.columns}
    given: dict[str, Any] = {**first.constants, **first.labels}
    return {
        "title": "Best parallel plans",
        "objective": first.objective.name,
        "memory_threshold": first.threshold,
        "axes": axes,
        "constants": {name: value for name, value in given.items() if name not in varying},
        "choices": {name: values.tolist() for name, values in first.choices.items()},
    }
