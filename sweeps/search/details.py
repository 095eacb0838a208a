"""Quantities of single plans, by the scalar interface: those of equal labels together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from overhead.analysis import faults
from overhead.choose import Builder
from overhead.communication.operation import DIMENSIONS
from overhead.dependencies import bits
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.frozen import frozen
from sweeps import display
from sweeps.bands import NO_ROOM, fit_of
from sweeps.display import BANDS
from sweeps.search.request import Execution

COMMUNICATION = tuple(f"{name}_communication_time" for name in DIMENSIONS)
# What stands in a table of plans.
TABLE = display.rows("step", "memory", "rates", screen="best")


@frozen()
class Detail:
    """A plan with what is known of it."""

    plan: Execution  # The plan
    values: Mapping[str, float]  # By quantity; NaN where nothing gives one
    faults: Mapping[str, str]  # The conditions that it doesn't fulfil, with what must hold

    def __getitem__(self, name: str) -> float:
        """Return a quantity."""
        return self.values[name]

    @property
    def capacity(self) -> float:
        """A GPU's memory."""
        return self.plan.given["memory_capacity"]

    @property
    def fit(self) -> str:
        """Whether the fullest GPU holds its part, as `sweeps.bands` says it."""
        low, high = (self.values.get(name, np.nan) for name in BANDS["peak_memory"])
        return fit_of(self.values["peak_memory"], self.capacity, low, high)

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU holds its part, at risk or not."""
        return self.fit != NO_ROOM


def details(
    plans: Sequence[Execution], names: Iterable[str], *, check: bool = False
) -> tuple[Detail, ...]:
    """Compute quantities of plans."""
    wanted = tuple(dict.fromkeys(names))
    # What no formula looks at, such as a machine's name, may differ.
    seen = -1 if check else reduce(or_, map(Builder.dependencies.of, wanted), 0)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, plan in enumerate(plans):
        labels = sorted(item for item in plan.labels.items() if bits(item[:1]) & seen)
        key = (*labels, *sorted(plan.given), *sorted(plan.known))
        groups.setdefault(key, []).append(index)
    rows: dict[int, Detail] = {}
    for indices in groups.values():
        rows_of_group = _of_group([plans[number] for number in indices], wanted, check=check)
        rows.update(zip(indices, rows_of_group, strict=True))
    return tuple(rows[number] for number in range(len(plans)))


def evaluation(plans: Sequence[Execution]) -> Evaluation:
    """Return the scalar interface of plans of equal labels: what is the same as one number.

    What the search has computed of them isn't computed again.
    """
    given: dict[str, NDArray[np.float64] | float] = {}
    rows = [{**plan.given, **plan.known} for plan in plans]
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        same = len(plans) > 1 and bool(np.all(values == values[0]))
        given[name] = float(values[0]) if same else values
    return Evaluation(given, plans[0].labels)


def _of_group(plans: Sequence[Execution], names: Sequence[str], *, check: bool) -> list[Detail]:
    count = len(plans)
    evaluation_of_plans = evaluation(plans)
    values: dict[str, list[float]] = {}
    wrong: list[dict[str, str]] = [{} for _ in plans]
    with np.errstate(all="ignore"):
        for name in names:
            try:
                array = evaluation_of_plans[name]
            except MissingQuantities:
                array = np.array(np.nan)
            values[name] = np.broadcast_to(array.reshape(-1), (count,)).tolist()
        for fallen in faults(evaluation_of_plans) if check else ():
            mask = np.broadcast_to(fallen.where.reshape(-1), (count,))
            for plan_number in np.nonzero(mask)[0]:
                wrong[plan_number][fallen.requirement.fault] = fallen.requirement.text
    return [
        Detail(plan, {name: row[index] for name, row in values.items()}, wrong[index])
        for index, plan in enumerate(plans)
    ]


class Together:
    """Details of plans that come at various times, computed together once any is asked for.

    What is computed of one takes as long of many.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._plans: list[Execution] = []
        self._details: list[Detail] = []

    def add(self, plan: Execution, known: Mapping[str, float]) -> Detail:
        """Return a plan's detail, of which some values are known."""
        self._plans.append(plan)
        return Detail(plan, Late(self, len(self._plans) - 1, known), {})

    def values(self, index: int) -> Mapping[str, float]:
        """Return all values of a plan, by its place among those that came."""
        if index >= len(self._details):
            self._details += details(self._plans[len(self._details) :], self._names)
        return self._details[index].values


class Late(Mapping[str, float]):
    """A plan's values: some that are known, the others computed when one of them is asked for."""

    def __init__(self, together: Together, index: int, known: Mapping[str, float]) -> None:
        self._together, self._index, self._known = together, index, known

    def __getitem__(self, name: str) -> float:
        known = self._known.get(name)
        return self._together.values(self._index)[name] if known is None else known

    def __iter__(self) -> Iterator[str]:
        return iter(self._together.values(self._index))

    def __len__(self) -> int:
        return len(self._together.values(self._index))
