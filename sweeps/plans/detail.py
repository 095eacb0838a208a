"""Quantities of single plans, by the scalar interface: those of equal labels together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overhead.breakdown import faults
from overhead.communication import DIMENSIONS
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.peak_memory import PEAK_PARTS
from overhead.step import PARTS
from sweeps.plans.execution import Execution

__all__ = ["COMMUNICATION", "PARTS", "PEAK_PARTS", "TABLE", "Detail", "details", "evaluation"]

COMMUNICATION = tuple(f"{name}_communication_time" for name in DIMENSIONS)
# What stands in a table of plans.
TABLE = ("step_time", "peak_memory", "mfu", "tokens_per_second_per_gpu")


@dataclass(frozen=True)
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
    def fits(self) -> bool:
        """Whether the fullest GPU holds its part."""
        return not self.values["peak_memory"] > self.capacity


def details(
    plans: Sequence[Execution], names: Iterable[str], *, check: bool = False
) -> tuple[Detail, ...]:
    """Compute quantities of plans."""
    wanted = tuple(dict.fromkeys(names))
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, plan in enumerate(plans):
        key = (*sorted(plan.labels.items()), *sorted(plan.given), *sorted(plan.known))
        groups.setdefault(key, []).append(place)
    found: dict[int, Detail] = {}
    for places in groups.values():
        own = _of_group([plans[place] for place in places], wanted, check=check)
        found.update(zip(places, own, strict=True))
    return tuple(found[place] for place in range(len(plans)))


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
    one = evaluation(plans)
    values: dict[str, list[float]] = {}
    wrong: list[dict[str, str]] = [{} for _ in plans]
    with np.errstate(all="ignore"):
        for name in names:
            try:
                array = one[name]
            except MissingQuantities:
                array = np.array(np.nan)
            values[name] = np.broadcast_to(array.reshape(-1), (count,)).tolist()
        for fallen in faults(one) if check else ():
            mask = np.broadcast_to(fallen.where.reshape(-1), (count,))
            for place in np.nonzero(mask)[0]:
                wrong[place][fallen.requirement.fault] = fallen.requirement.text
    return [
        Detail(plan, {name: row[place] for name, row in values.items()}, wrong[place])
        for place, plan in enumerate(plans)
    ]
