"""Which tensor-parallel size pays: the time on n ranks by an n-th of the time on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["OperatorScaling", "Scaling", "scale"]

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
        found = "; ".join(
            f"TP={size}: {'EFFICIENT' if good else 'NOT efficient'}"
            for size, good in self.efficient.items()
            if size > 1
        )
        base = f"Baseline: TP=1 (no TP) @ {self.times[1] * 1e6:.1f}us."
        return f"{base} {found}".strip()


@dataclass(frozen=True, slots=True)
class Scaling:
    """How all linear layers scale."""

    tolerance: float  # By how much a ratio may be above one
    operators: Mapping[str, OperatorScaling]  # By linear layer

    @property
    def optimal(self) -> int | None:
        """The largest size that is efficient for all layers; None where nothing is known."""
        found = [one.optimal for one in self.operators.values() if one.optimal is not None]
        return min(found, default=None)

    def record(self) -> dict[str, Any]:
        """Return it as the report has it: sizes are texts there."""
        return {
            "optimal_tp_size": self.optimal,
            "tolerance": self.tolerance,
            "results": {
                operator: {
                    "optimal_tp_size": one.optimal,
                    "scaling_efficient": {str(n): good for n, good in one.efficient.items()},
                    "scaling_ratios": {str(n): round(r, 6) for n, r in one.ratios.items()},
                    "e2e_times": {str(n): round(t * 1e6, 6) for n, t in one.times.items()},
                    "reason": one.reason,
                }
                for operator, one in self.operators.items()
            },
        }


def scale(times: Mapping[str, Mapping[int, float]], tolerance: float) -> Scaling:
    """Find which sizes are efficient."""
    return Scaling(tolerance, {name: _one(own, tolerance) for name, own in times.items()})


def _one(times: Mapping[int, float], tolerance: float) -> OperatorScaling:
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
