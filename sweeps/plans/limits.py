"""What decides, beside the model, which plans count: memory left over, repetitions, frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.requirement import Requirement
from sweeps.engine.axes import Array, Region, cut
from sweeps.engine.feasibility import DOES_NOT_FIT
from sweeps.engine.plan import Plan

__all__ = ["AGAIN", "FULL", "REPEATED_TEXT", "UNSUPPORTED", "Limits"]

FULL = "fuller_than_the_threshold"
AGAIN = "same_plan_again"
UNSUPPORTED = "not_in_the_framework"

# Settings without effect make a plan that is there already.
REPEATED = (
    Requirement(
        AGAIN,
        "sequence parallelism needs tp above 1",
        lambda tp, sequence_parallel: (tp > 1.0) | (sequence_parallel == 0.0),
    ),
    Requirement(
        AGAIN,
        "ZeRO needs ranks of equal weights to shard over",
        lambda dp, cp, tp, ep, etp, zero_stage, experts: (
            (dp * cp > 1.0) | (zero_stage == 0.0)
            | ((experts > 0.0) & (tp * cp * dp > etp * ep))
        ),
    ),
)  # fmt: skip
REPEATED_TEXT = "; ".join((*(one.text for one in REPEATED), "interleaving needs pp above 1"))
# Labels that say nothing where a degree is 1: one of them is enough.
NAMELESS = {"schedule": "pp", "context_parallel": "cp"}
# Of shares of communication that hide, one is enough where there is nothing to hide.
HIDING = {"tp_overlap": ("tp",), "cp_overlap": ("cp",), "ep_overlap": ("ep",),
          "dp_overlap": ("dp", "cp")}  # fmt: skip
# What a framework refuses, of what a search varies.
REFUSED: Mapping[str, tuple[Requirement, ...]] = {
    "megatron-lm": (
        Requirement(
            UNSUPPORTED,
            "Megatron-LM interleaves no stages that Megatron-FSDP shards (ZeRO 2 and 3)",
            lambda zero_stage, virtual_stages: (zero_stage < 2.0) | (virtual_stages == 1.0),
        ),
    ),
}


class Limits:
    """What decides, beside the conditions on a plan, whether it counts."""

    def __init__(self, plan: Plan, threshold: float, framework: str) -> None:
        self.plan, self.threshold = plan, threshold
        self._rules = (*REPEATED, *REFUSED.get(framework.split("+", maxsplit=1)[0], ()))
        first = 1 << len(plan.faults.texts)
        own = {FULL: first, AGAIN: first << 1, UNSUPPORTED: first << 2}
        self.bits: dict[str, int] = {**plan.faults.bits, **own}
        self.masking = plan.faults.masking("step_time") | sum(own.values())
        self.of_memory = self.bits[DOES_NOT_FIT] | self.bits[FULL]
        refused = "; ".join(r.text for r in self._rules if r.fault == UNSUPPORTED)
        self.texts: dict[str, str] = {
            **plan.faults.texts,
            FULL: f"it fits, but the fullest GPU must need at most {threshold:.4g} of its memory",
            AGAIN: REPEATED_TEXT,
            UNSUPPORTED: refused or "the framework must be able to run it",
        }
        self._known = {rule: given for rule in self._rules if (given := self._given(rule))}
        self._idle = tuple(self._hiding())
        self._first: dict[str, str] = {}
        for case in sorted(plan.cases, key=lambda case: case.labels["schedule"] != "one_f_one_b"):
            for name in NAMELESS:
                if case.labels[name] != "interleaved":
                    self._first.setdefault(name, case.labels[name])
        self._capacity = plan.grid.columns["memory_capacity"]

    def _given(self, rule: Requirement) -> dict[str, Array] | None:
        """Return what a rule looks at, on the open grid; None where it isn't there."""
        columns = dict(self.plan.grid.columns)
        columns.setdefault("etp", columns["tp"])
        found = {name: columns[name] for name in rule.inputs if name in columns}
        return found if len(found) == len(rule.inputs) else None

    def _hiding(self) -> Iterator[tuple[Array, Array]]:
        """Yield where nothing is sent that could hide, and which shares say so again."""
        columns = self.plan.grid.columns
        for name, degrees in HIDING.items():
            if name in self.plan.grid.names:
                ranks = columns[degrees[0]]
                for degree in degrees[1:]:
                    ranks = ranks * columns[degree]
                yield ranks == 1.0, columns[name] > columns[name].min()

    def bits_at(
        self, region: Region, labels: Mapping[str, str], status: Array, peak_memory: Array
    ) -> NDArray[np.int64]:
        """Return all reasons why plans don't count, over a region."""
        capacity = cut(self._capacity, region)
        full = (peak_memory > self.threshold * capacity) & (peak_memory <= capacity)
        found = (status & self.masking) | np.where(full, self.bits[FULL], 0)
        for rule, columns in self._known.items():
            holds = rule.holds(**{name: cut(v, region) for name, v in columns.items()})
            if not np.all(holds):
                found = found | np.where(holds, 0, self.bits[rule.fault])
        for name, degree in NAMELESS.items():
            if labels[name] not in ("interleaved", self._first.get(name)):
                alone = cut(self.plan.grid.columns[degree], region) == 1.0
                found = found | np.where(alone, self.bits[AGAIN], 0)
        for idle, again in self._idle:
            found = found | np.where(cut(idle, region) & cut(again, region), self.bits[AGAIN], 0)
        return np.asarray(found, dtype=np.int64)

    def told(self, bits: int) -> dict[str, str]:
        """Return the reasons of some bits, with what must hold."""
        return {name: self.texts[name] for name, bit in self.bits.items() if bits & bit}
