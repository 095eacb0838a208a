"""What a tuning comes to, in words: which overlap to use, and where none pays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sweeps.tuner.choose import Choice

__all__ = ["Recommendation", "recommend"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """How one layer should overlap on so many ranks."""

    tp_size: int  # Tensor-parallel ranks
    operator: str  # The layer
    phase: str  # The layer
    config_id: str  # The case whose configuration it is
    method: str  # Userbuffers' method
    aggregate: int  # Of a ring; of the other methods
    num_sm: int  # Of a ring; of the other methods
    overlap_ratio: float  # Overlap of the layer's pass, with all that was chosen
    saved: float  # Time that it saves the layer, forward and backward, in seconds
    speedup: float  # Time without any overlap by the time with this one
    effective: bool  # Whether the overlap reaches the threshold, and saves time
    reason: str = ""  # Why it isn't effective, or what to know

    def __str__(self) -> str:
        how = f"aggregate {self.aggregate}"
        how = how if self.method == "ring_exchange" else f"num_sm {self.num_sm}"
        gain = f"{self.saved * 1e6:+,.1f} us saved, {self.speedup:.3f} x"
        text = f"TP={self.tp_size} {self.operator} {self.phase}: {self.method} ({how}), "
        text += f"overlap {self.overlap_ratio:.2f}, {gain}"
        return f"{text}; {self.reason}" if self.reason else text

    def record(self) -> dict[str, Any]:
        """Return it as the report has it."""
        ring = self.method == "ring_exchange"
        return {
            "config_id": self.config_id,
            "tp_size": self.tp_size,
            "operator": self.operator,
            "phase": self.phase,
            "overlap_method": self.method,
            "aggregate": self.aggregate if ring else None,
            "num_sm": None if ring else self.num_sm,
            "overlap_ratio": self.overlap_ratio,
            "saved_time_us": round(self.saved * 1e6, 6),
            "speedup": self.speedup,
            "effective": self.effective,
            "reason": self.reason,
        }


def recommend(choices: Iterable[Choice], threshold: float) -> list[Recommendation]:
    """Say what was chosen, layer by layer."""
    found = []
    for choice in choices:
        for layer, result in choice.layers.items():
            case = result.case
            base = choice.baselines.get(case.operator)
            saved = float("nan") if base is None else base.e2e - result.e2e
            ratio = float(result.own.ratio) if base is None else choice.ratio(layer)
            reasons = [choice.reasons[layer]] if layer in choice.reasons else []
            if ratio < threshold:
                reasons.append(f"overlap below {threshold:g}")
            if saved <= 0.0:
                reasons.append("slower than without overlap")
            if base is None:
                reasons.append("nothing to compare with: its baseline is missing")
            effective = ratio >= threshold and not saved <= 0.0
            speedup = float("nan") if base is None else base.e2e / result.e2e
            found.append(
                Recommendation(
                    case.tp_size,
                    case.operator,
                    case.phase,
                    case.config_id,
                    case.method,
                    case.aggregate,
                    case.num_sm,
                    ratio,
                    saved,
                    speedup,
                    effective,
                    "; ".join(reasons),
                )
            )
    return found
