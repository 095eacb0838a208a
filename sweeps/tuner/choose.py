"""What is best together: a legal configuration for each tensor-parallel size.

Layers aren't free of one another.  A switch of Megatron-LM turns a kind of overlap on or off for
all layers; the input gradients of qkv and fc1 are scattered with their own product both or
neither, and then their weight gradients have nothing to overlap.  What a layer gains is taken from
the case in which it alone overlaps; gains add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sweeps.tuner.search import TOLERANCE
from sweeps.tuner.times import PassTimes, Result
from sweeps.tuner.userbuffers import COLUMN, PHASES, flag_group

__all__ = ["GROUPS", "OBJECTIVES", "Choice", "choose"]

OBJECTIVES = ("e2e", "ratio")
GROUPS = ("ag", "rs", "bulk_dgrad", "bulk_wgrad")
"""What Megatron-LM switches; scattered input gradients take the place of the last two."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of one tensor-parallel size."""

    tp_size: int  # Tensor-parallel ranks
    # By layer the case that it overlaps as; layers that run in turn aren't there
    layers: Mapping[str, Result]
    groups: frozenset[str]  # The switches of `GROUPS` that are on
    # Whether input gradients of qkv and fc1 are scattered with their own product
    scattered_dgrad: bool
    # By operator, forward and backward with what was chosen; operators whose times aren't known
    # aren't there
    passes: Mapping[str, tuple[PassTimes, PassTimes]]
    baselines: Mapping[str, Result]  # By operator the case without overlap
    reasons: Mapping[str, str]  # By layer why it runs in turn, or as it does
    notes: tuple[str, ...] = ()  # What is to be known of the whole

    def e2e(self, operator: str) -> float:
        """Return a linear layer's time, forward and backward."""
        forward, backward = self.passes[operator]
        return float(forward.e2e + backward.e2e)

    def ratio(self, layer: str) -> float:
        """Return the overlap of the pass that a layer's phase is in, with all that was chosen."""
        operator, phase = layer.split("_")
        return float(self.passes[operator][phase != "fprop"].ratio)


@dataclass(slots=True)
class _Layers:
    """The cases of one size, by layer, and what each gains."""

    size: int
    operators: Sequence[str]
    objective: str
    baselines: dict[str, Result] = field(default_factory=dict)
    cases: dict[str, list[Result]] = field(default_factory=dict)

    def take(self, results: Iterable[Result]) -> None:
        for result in results:
            case = result.case
            if case.tp_size != self.size or not result.done or case.same_as != case:
                continue
            if case.is_baseline:
                self.baselines.setdefault(case.operator, result)
            elif case.legality.level == "legal":
                self.cases.setdefault(case.layer, []).append(result)

    def reference(self, operator: str) -> float:
        """Return the time that gains are counted from: without overlap, or the slowest case's."""
        if operator in self.baselines:
            return self.baselines[operator].e2e
        own = [r.e2e for p in PHASES for r in self.cases.get(f"{operator}_{p}", ())]
        return max(own)

    def gain(self, result: Result) -> float:
        return self.reference(result.case.operator) - result.e2e

    def best(self, layer: str, methods: Sequence[str]) -> Result | None:
        """Return a layer's best case of some methods; of equal ones that with fewest SMs."""
        found = [r for r in self.cases.get(layer, ()) if r.case.method in methods]
        if not found:
            return None
        if self.objective == "ratio":
            most = max(float(r.own.ratio) for r in found)
            found = [r for r in found if float(r.own.ratio) >= most * (1.0 - TOLERANCE)]
        least = min(r.e2e for r in found)
        found = [r for r in found if r.e2e <= least * (1.0 + TOLERANCE)]
        return min(found, key=lambda r: (r.case.num_sm, r.case.aggregate))


def choose(
    results: Iterable[Result], tp_size: int, operators: Sequence[str], objective: str = "e2e"
) -> Choice:
    """Choose a configuration for one tensor-parallel size."""
    known = _Layers(tp_size, operators, objective)
    known.take(results)
    notes = [
        f"tp{tp_size}_{operator}_baseline has no times: nothing says what overlap gains {operator}"
        for operator in operators
        if operator not in known.baselines
    ]
    chosen: dict[str, Result] = {}
    reasons: dict[str, str] = {}
    groups: set[str] = set()
    for group in ("ag", "rs"):
        picked = _of_group(known, group, ("ring_exchange", "pipeline"))
        if _switch(known, group, picked, reasons):
            chosen |= picked
            groups.add(group)
    backward, scattered = _backward(known, reasons)
    chosen |= backward
    groups |= {flag_group(*layer.split("_")) for layer in backward}
    if scattered:
        groups -= {"bulk_dgrad", "bulk_wgrad"}
    passes = {
        operator: _together(known, operator, chosen)
        for operator in operators
        if operator in known.baselines
    }
    return Choice(
        tp_size, chosen, frozenset(groups), scattered, passes, dict(known.baselines), reasons,
        tuple(notes),
    )  # fmt: skip


def _layers_of(known: _Layers, group: str) -> list[str]:
    return [
        f"{operator}_{phase}"
        for operator in known.operators
        for phase in PHASES
        if flag_group(operator, phase) == group
    ]


def _of_group(known: _Layers, group: str, methods: Sequence[str]) -> dict[str, Result]:
    picked = {layer: known.best(layer, methods) for layer in _layers_of(known, group)}
    return {layer: result for layer, result in picked.items() if result is not None}


def _switch(
    known: _Layers, what: str, picked: Mapping[str, Result], reasons: dict[str, str]
) -> bool:
    """Decide whether a kind of overlap is on, and say why of layers where that isn't obvious."""
    if not picked:
        return False
    gains = {layer: known.gain(result) for layer, result in picked.items()}
    # Nothing is known of a layer without baseline, and by ratio every overlap is as good.
    compared = all(result.case.operator in known.baselines for result in picked.values())
    on = sum(gains.values()) > 0.0 or known.objective == "ratio" or not compared
    for layer, gain in gains.items():
        if on and gain <= 0.0 and compared:
            reasons[layer] = "by itself it would better run in turn, but its switch is shared"
        elif not on and gain > 0.0:
            reasons[layer] = "by itself it gains, but its switch is shared, and others lose more"
        elif not on:
            reasons[layer] = f"overlap costs time here: {what} stays off"
    return on


def _backward(known: _Layers, reasons: dict[str, str]) -> tuple[dict[str, Result], bool]:
    """Choose between bulk for both gradients of column-split layers, and scattered dgrads."""
    bulk: dict[str, Result] = {}
    told: dict[str, str] = {}
    for group in ("bulk_dgrad", "bulk_wgrad"):
        picked = _of_group(known, group, ("bulk",))
        if _switch(known, group, picked, told):
            bulk |= picked
    scattered = _of_group(known, "bulk_dgrad", ("ring_exchange", "pipeline"))
    # One switch scatters the input gradients of qkv and fc1, so both must be known.
    if set(scattered) == {f"{operator}_dgrad" for operator in COLUMN} and _better(
        known, scattered, bulk
    ):
        reasons |= {
            f"{operator}_wgrad": "its input gradient is scattered with its own product"
            for operator in COLUMN
        }
        return scattered, True
    reasons |= told
    return bulk, False


def _better(known: _Layers, one: Mapping[str, Result], other: Mapping[str, Result]) -> bool:
    if known.objective == "ratio":
        passes = [_ratio(known, chosen) for chosen in (one, other)]
        return passes[0] > passes[1] * (1.0 + TOLERANCE)
    gains = [sum(known.gain(result) for result in chosen.values()) for chosen in (one, other)]
    return gains[0] > max(gains[1], 0.0) * (1.0 + TOLERANCE)


def _ratio(known: _Layers, chosen: Mapping[str, Result]) -> float:
    """Return the mean overlap of column-split layers' backwards."""
    operators = [operator for operator in COLUMN if operator in known.baselines]
    ratios = [float(_together(known, operator, chosen)[1].ratio) for operator in operators]
    return sum(ratios) / len(ratios) if ratios else 0.0


def _together(
    known: _Layers, operator: str, chosen: Mapping[str, Result]
) -> tuple[PassTimes, PassTimes]:
    """Return a layer's passes with all that was chosen: the baseline's, and what cases change."""
    base = known.baselines[operator].passes
    total = list(base)
    for phase in PHASES:
        result = chosen.get(f"{operator}_{phase}")
        if result is not None:
            for k, own in enumerate(result.passes):
                total[k] = _shifted(total[k], own, base[k])
    return total[0], total[1]


def _shifted(total: PassTimes, own: PassTimes, base: PassTimes) -> PassTimes:
    names = ("gemm", "comm", "overlap", "other", "gemm_events", "comm_events")
    changed = {name: getattr(total, name) + getattr(own, name) - getattr(base, name)
               for name in names}  # fmt: skip
    return PassTimes(**changed)
