"""What is best together: a legal configuration for each tensor-parallel size.

Layers aren't free of one another.  A switch of Megatron-LM turns a kind of overlap on or off for
all layers; the input gradients of qkv and fc1 are scattered with their own product both or
neither, and then their weight gradients have nothing to overlap.  What a layer gains is taken from
the case in which it alone overlaps; gains add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweeps.tuner.times import CaseTimes, PassTimes
from sweeps.tuner.userbuffers import COLUMN, PHASES, LayerOverlap, flag_group

TOLERANCE = 1e-9
"""Times that differ by less than this share are the same: the smaller number wins."""
OBJECTIVES = ("e2e", "ratio")
ALIKE = 0.003
"""Cases of a layer that differ by less than this share, about 1 % of one phase, are as good."""
GROUPS = ("ag", "rs", "bulk_dgrad", "bulk_wgrad")
"""What Megatron-LM switches; scattered input gradients take the place of the last two."""
NO_BASELINE = "its baseline is missing: nothing says what overlap saves"
OTHER = {"ring_exchange": "pipeline", "pipeline": "ring_exchange"}
"""What a reduce_scatter with its own product can overlap by instead."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of one tensor-parallel size."""

    tp_size: int  # Tensor-parallel ranks
    # By layer the case that it overlaps as; layers that run in turn aren't there
    layers: Mapping[str, CaseTimes]
    groups: frozenset[str]  # The switches of `GROUPS` that are on
    # Whether input gradients of qkv and fc1 are scattered with their own product
    scattered_dgrad: bool
    # By operator, forward and backward with what was chosen; operators whose times aren't known
    # aren't there
    passes: Mapping[str, tuple[PassTimes, PassTimes]]
    baselines: Mapping[str, CaseTimes]  # By operator the case without overlap
    reasons: Mapping[str, str]  # By layer why it runs in turn, or as it does
    notes: tuple[str, ...] = ()  # What is to be known of the whole
    # By layer the best case of the other method that it could overlap by: a ring, or a pipeline
    others: Mapping[str, CaseTimes] = field(default_factory=dict)

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
    baselines: dict[str, CaseTimes] = field(default_factory=dict)
    cases: dict[str, list[CaseTimes]] = field(default_factory=dict)

    def take(self, results: Iterable[CaseTimes]) -> None:
        for result in results:
            case = result.case
            if case.tp_size != self.size or not result.done or case.same_as != case:
                continue
            if case.is_baseline:
                self.baselines.setdefault(case.operator, result)
            elif case.legality.level == "legal":
                self.cases.setdefault(case.layer, []).append(result)

    def gain(self, result: CaseTimes) -> float:
        """Return what a case saves; nothing of an operator without baseline, where none knows."""
        base = self.baselines.get(result.case.operator)
        return 0.0 if base is None else base.e2e - result.e2e

    def best(self, layer: str, methods: Sequence[str]) -> CaseTimes | None:
        """Return a layer's best case of some methods."""
        results = [r for r in self.cases.get(layer, ()) if r.case.method in methods]
        if not results:
            return None
        if self.objective == "ratio":
            most = max(float(r.layer_pass.ratio) for r in results)
            results = [r for r in results if float(r.layer_pass.ratio) >= most * (1.0 - TOLERANCE)]
        by_case = {r.case: r for r in results}
        return by_case[best_of({case: r.e2e for case, r in by_case.items()}, ALIKE)]


def best_of(times: Mapping[LayerOverlap, float], alike: float) -> LayerOverlap:
    """Return the case with the least time.

    Of its method's cases that differ by less than a share, the one with the fewest multiprocessors;
    of a pipeline's the one with the most, for its product spares them.
    """
    best = min(times, key=lambda case: (times[case], case.num_sm, case.aggregate))
    as_good = [
        case
        for case, time in times.items()
        if (case.method, case.aggregate) == (best.method, best.aggregate)
        and time <= times[best] * (1.0 + alike)
    ]
    return (max if best.method == "pipeline" else min)(as_good, key=lambda case: case.num_sm)


def choose(
    results: Iterable[CaseTimes], tp_size: int, operators: Sequence[str], objective: str = "e2e"
) -> Choice:
    """Choose a configuration for one tensor-parallel size."""
    known = _Layers(tp_size, operators, objective)
    known.take(results)
    notes = [
        f"tp{tp_size}_{operator}_baseline has no times: nothing says what overlap gains {operator}"
        for operator in operators
        if operator not in known.baselines
    ]
    chosen: dict[str, CaseTimes] = {}
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
    others = {
        layer: known.best(layer, [OTHER[result.case.method]])
        for layer, result in chosen.items()
        if result.case.method in OTHER
    }
    return Choice(
        tp_size,
        chosen,
        frozenset(groups),
        scattered,
        passes,
        dict(known.baselines),
        reasons,
        tuple(notes),
        {layer: other for layer, other in others.items() if other is not None},
    )


def _of_group(known: _Layers, group: str, methods: Sequence[str]) -> dict[str, CaseTimes]:
    """Return the best cases of the layers that stand under a switch."""
    picked = {
        f"{operator}_{phase}": known.best(f"{operator}_{phase}", methods)
        for operator in known.operators
        for phase in PHASES
        if flag_group(operator, phase) == group
    }
    return {layer: result for layer, result in picked.items() if result is not None}


def _switch(
    known: _Layers, what: str, picked: Mapping[str, CaseTimes], reasons: dict[str, str]
) -> bool:
    """Decide whether a kind of overlap is on, and say why of layers where that isn't obvious."""
    if not picked:
        return False
    gains = {layer: known.gain(result) for layer, result in picked.items()}
    # By ratio every overlap is as good; of layers without baseline nothing says what it saves.
    unknown = [
        layer for layer, result in picked.items() if result.case.operator not in known.baselines
    ]
    on = sum(gains.values()) > 0.0 or (known.objective == "ratio" and len(unknown) < len(gains))
    for layer, gain in gains.items():
        if layer in unknown:
            reasons[layer] = NO_BASELINE
        elif on and gain <= 0.0:
            reasons[layer] = "by itself it would better run in turn, but its switch is shared"
        elif not on and gain > 0.0:
            reasons[layer] = "by itself it gains, but its switch is shared, and others lose more"
        elif not on:
            reasons[layer] = f"overlap costs time here: {what} stays off"
    return on


def _backward(known: _Layers, reasons: dict[str, str]) -> tuple[dict[str, CaseTimes], bool]:
    """Choose between bulk for both gradients of column-split layers, and scattered dgrads."""
    bulk: dict[str, CaseTimes] = {}
    text: dict[str, str] = {}
    for group in ("bulk_dgrad", "bulk_wgrad"):
        picked = _of_group(known, group, ("bulk",))
        if _switch(known, group, picked, text):
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
    reasons |= text
    return bulk, False


def _better(known: _Layers, first: Mapping[str, CaseTimes], other: Mapping[str, CaseTimes]) -> bool:
    if known.objective == "ratio":
        passes = [_ratio(known, chosen) for chosen in (first, other)]
        return passes[0] > passes[1] * (1.0 + TOLERANCE)
    gains = [sum(known.gain(result) for result in chosen.values()) for chosen in (first, other)]
    return gains[0] > max(gains[1], 0.0) * (1.0 + TOLERANCE)


def _ratio(known: _Layers, chosen: Mapping[str, CaseTimes]) -> float:
    """Return the mean overlap of column-split layers' backwards."""
    operators = [operator for operator in COLUMN if operator in known.baselines]
    ratios = [float(_together(known, operator, chosen)[1].ratio) for operator in operators]
    return sum(ratios) / len(ratios) if ratios else 0.0


def _together(
    known: _Layers, operator: str, chosen: Mapping[str, CaseTimes]
) -> tuple[PassTimes, PassTimes]:
    """Return a layer's passes with all that was chosen: the baseline's, and what cases change."""
    base = known.baselines[operator].passes
    total = list(base)
    for phase in PHASES:
        result = chosen.get(f"{operator}_{phase}")
        if result is not None:
            for k, times in enumerate(result.passes):
                total[k] = total[k] + times - base[k]
    if known.baselines[operator].source == "traces":
        # Gains that were measured one by one add up to no more than there was to hide.
        total = [replace(t, overlap=min(t.overlap, t.gemm, t.comm)) for t in total]
    return total[0], total[1]


# What a tuning comes to, in words: which overlap to use, and where none pays.


@dataclass(frozen=True, slots=True)
class Recommendation:
    """How one layer should overlap on so many ranks."""

    case: LayerOverlap  # Whose configuration it is
    overlap_of_shorter: float  # Overlap of the layer's pass, with all that was chosen
    saved: float  # Time that it saves the layer, forward and backward, in seconds
    speedup: float  # Time without any overlap by the time with this one
    effective: bool  # Whether the overlap reaches the threshold, and saves time
    reason: str = ""  # Why it isn't effective, or what to know
    other: LayerOverlap | None = None  # The best case of the other method
    other_saved: float = float("nan")  # What that saves, in seconds

    def __str__(self) -> str:
        case = self.case
        text = f"TP={case.tp_size} {case.operator} {case.phase}: {_how(case)}, "
        text += f"overlap {self.overlap_of_shorter:.2f}"
        if not math.isnan(self.saved):
            text += f", {self.saved * 1e6:+,.1f} µs saved, {self.speedup:.3f}x"
        if self.other is not None:
            text += f"; {_how(self.other)} would save {self.other_saved * 1e6:,.1f} µs"
        return f"{text}; {self.reason}" if self.reason else text

    def cells(self) -> list[str]:
        """Return it as a row of a table: its layer, pass, gain and method."""
        case, known = self.case, not math.isnan(self.saved)
        return [
            case.operator,
            case.phase,
            f"{self.saved * 1e6:,.0f}" if known else "-",
            f"{self.speedup:.2f}x" if known else "-",
            f"{100.0 * self.overlap_of_shorter:.0f}",
            case.method if self.effective else f"{case.method} (not effective)",
            "-" if case.method == "ring_exchange" else f"{case.num_sm:g}",
        ]

    def record(self) -> dict[str, Any]:
        """Return it as the report has it."""
        case = self.case
        ring = case.method == "ring_exchange"
        return {
            "config_id": case.config_id,
            "tp_size": case.tp_size,
            "operator": case.operator,
            "phase": case.phase,
            "overlap_method": case.method,
            "aggregate": case.aggregate if ring else None,
            "num_sm": None if ring else case.num_sm,
            "overlap_of_shorter": self.overlap_of_shorter,
            "saved_time_us": round(self.saved * 1e6, 6),
            "speedup": self.speedup,
            "effective": self.effective,
            "reason": self.reason,
            "other_config_id": self.other and self.other.config_id,
            "other_saved_time_us": self.other and round(self.other_saved * 1e6, 6),
        }


def _how(case: LayerOverlap) -> str:
    ring = case.method == "ring_exchange"
    setting = f"aggregate {case.aggregate}" if ring else f"num_sm {case.num_sm}"
    return f"{case.method} ({setting})"


def recommend(choices: Iterable[Choice], threshold: float) -> list[Recommendation]:
    """Say what was chosen, layer by layer."""
    sentences = []
    for choice in choices:
        for layer, result in choice.layers.items():
            base = choice.baselines.get(result.case.operator)
            ratio = float(result.layer_pass.ratio) if base is None else choice.ratio(layer)
            if base is None:
                sentences.append(
                    Recommendation(result.case, ratio, math.nan, math.nan, False, NO_BASELINE)
                )
                continue
            saved = base.e2e - result.e2e
            reasons = [choice.reasons[layer]] if layer in choice.reasons else []
            if ratio < threshold:
                reasons.append(f"overlap below {threshold:g}")
            if saved <= 0.0:
                reasons.append("slower than without overlap")
            other = choice.others.get(layer)
            sentences.append(
                Recommendation(
                    result.case,
                    ratio,
                    saved,
                    base.e2e / result.e2e,
                    ratio >= threshold and saved > 0.0,
                    "; ".join(reasons),
                    None if other is None else other.case,
                    math.nan if other is None else base.e2e - other.e2e,
                )
            )
    return sentences


# Which tensor-parallel size pays: the time on n ranks by an n-th of the time on one.

ROUNDING = 1e-9  # 600*4/2000 is 1.2, and that is within a tolerance of 0.2


@dataclass(frozen=True, slots=True)
class OperatorScaling:
    """How one linear layer scales."""

    # The largest size up to which all are efficient; None where one rank's time isn't known
    optimal: int | None
    times: Mapping[int, float]  # By size, in seconds
    ratios: Mapping[int, float]  # n times the time on n ranks by the time on one
    efficient: Mapping[int, bool]  # Whether the ratio is within the tolerance

    @property
    def reason(self) -> str:
        """What was found, in one line."""
        if self.optimal is None:
            return "the time on one rank isn't known"
        reasons = "; ".join(
            f"TP={size}: {'EFFICIENT' if good else 'NOT efficient'}"
            for size, good in self.efficient.items()
            if size > 1
        )
        base = f"Baseline: TP=1 (no TP) @ {self.times[1] * 1e6:.1f}us."
        return f"{base} {reasons}".strip()


@dataclass(frozen=True, slots=True)
class Scaling:
    """How all linear layers scale."""

    tolerance: float  # By how much a ratio may be above one
    operators: Mapping[str, OperatorScaling]  # By linear layer

    @property
    def optimal(self) -> int | None:
        """The largest size that is efficient for all layers; None where nothing is known."""
        sizes = [
            operator.optimal for operator in self.operators.values() if operator.optimal is not None
        ]
        return min(sizes, default=None)

    def record(self) -> dict[str, Any]:
        """Return it as the report has it: sizes are texts there."""
        return {
            "optimal_tp_size": self.optimal,
            "tolerance": self.tolerance,
            "results": {
                operator: {
                    "optimal_tp_size": scaling.optimal,
                    "scaling_efficient": {str(n): good for n, good in scaling.efficient.items()},
                    "scaling_ratios": {str(n): round(r, 6) for n, r in scaling.ratios.items()},
                    "e2e_times": {str(n): round(t * 1e6, 6) for n, t in scaling.times.items()},
                    "reason": scaling.reason,
                }
                for operator, scaling in self.operators.items()
            },
        }


def scale(times: Mapping[str, Mapping[int, float]], tolerance: float) -> Scaling:
    """Find which sizes are efficient."""
    return Scaling(tolerance, {name: _scaling_of(time, tolerance) for name, time in times.items()})


def _scaling_of(times: Mapping[int, float], tolerance: float) -> OperatorScaling:
    known = dict(sorted(times.items()))
    if 1 not in known:
        return OperatorScaling(None, known, {}, {})
    ratios = {size: size * time / known[1] for size, time in known.items()}
    efficient = {size: ratio <= 1.0 + tolerance + ROUNDING for size, ratio in ratios.items()}
    optimal = 1
    for size, good in efficient.items():
        if not good:
            break
        optimal = size
    return OperatorScaling(optimal, known, ratios, efficient)
