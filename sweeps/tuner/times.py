"""How long a case takes: products, communication, what of both overlaps, and the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sweeps.tuner.userbuffers import LayerOverlap

Status = Literal["done", "illegal", "missing", "failed"]
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Times of a forward or a backward in seconds: numbers, or arrays of many cases."""

    gemm: Any  # While GEMMs run, and while communication does
    comm: Any
    overlap: Any  # While both do
    # Of other work within the same span, such as sums of partial results, and gaps
    other: Any = 0.0
    gemm_events: Any = 0  # How many products and transfers these are
    comm_events: Any = 0

    @property
    def e2e(self) -> Any:
        """From the first start to the last end."""
        return self.gemm + self.comm + self.other - self.overlap

    @property
    def ratio(self) -> Any:
        """Overlap by the shorter of products and communication; 0 where one is nothing."""
        return ratio_of(self.overlap, np.minimum(self.gemm, self.comm))

    def __add__(self, more: PassTimes) -> PassTimes:
        return PassTimes(
            *(getattr(self, part.name) + getattr(more, part.name) for part in fields(self))
        )

    def __sub__(self, less: PassTimes) -> PassTimes:
        return PassTimes(
            *(getattr(self, part.name) - getattr(less, part.name) for part in fields(self))
        )

    def at(self, index: Any) -> PassTimes:
        """Return the times of one of many cases."""
        return PassTimes(*(float(getattr(self, part.name)[index]) for part in fields(self)))


def ratio_of(overlap: Any, shorter: Any) -> Any:
    """Return an overlap by the shorter duration; 0 where that is nothing."""
    some = np.asarray(shorter) > 0.0
    share = np.where(some, overlap / np.where(some, shorter, 1.0), 0.0)
    # A measured overlap and its shorter duration come from one time line; only rounding is beyond.
    ratio: NDArray[np.float64] = np.minimum(share, 1.0)
    return ratio if ratio.ndim else float(ratio)


@dataclass(frozen=True, slots=True)
class CaseTimes:
    """A case with its times, or why it has none."""

    case: LayerOverlap  # The case
    status: Status  # ``done``, ``illegal``, ``missing`` (nothing was recorded), or ``failed``
    reason: str = ""  # Why it has no times, or what to know of them
    forward: PassTimes | None = None  # Its times
    backward: PassTimes | None = None
    source: str = "predicted"  # Where they come from: ``predicted`` or ``traces``
    refined: bool = False  # Whether the search over multiprocessors added it to the grid

    @property
    def done(self) -> bool:
        """Whether it has times."""
        return self.forward is not None and self.backward is not None

    @property
    def passes(self) -> tuple[PassTimes, PassTimes]:
        """Its forward and backward."""
        assert self.forward is not None
        assert self.backward is not None
        return self.forward, self.backward

    @property
    def e2e(self) -> float:
        """The linear layer's forward and backward together, in seconds."""
        forward, backward = self.passes
        return float(forward.e2e + backward.e2e)

    @property
    def layer_pass(self) -> PassTimes:
        """The pass in which the case's phase is."""
        return self.passes[self.case.phase != "fprop"]

    @property
    def total_ratio(self) -> float:
        """Overlap of both passes by their shorter durations."""
        forward, backward = self.passes
        shorter = min(forward.gemm, forward.comm) + min(backward.gemm, backward.comm)
        return float(ratio_of(forward.overlap + backward.overlap, shorter))

    def record(self) -> dict[str, Any]:
        """Return it as the report has it: times in microseconds, None where there are none."""
        case = self.case
        bulk = case.method in {"bulk", "pipeline"}
        report: dict[str, Any] = {
            "config_id": case.config_id,
            "operator": case.operator,
            "phase": case.phase,
            "tp_size": case.tp_size,
            "overlap_method": case.method,
            "aggregate": case.aggregate if case.method == "ring_exchange" else None,
            "num_sm": case.num_sm if bulk else None,
            "status": self.status,
            "reason": self.reason,
            "source": self.source if self.done else None,
            "refined": self.refined,
        }
        return report | dict(self._figures())

    def _figures(self) -> Iterator[tuple[str, Any]]:
        for name, part in (("forward", self.forward), ("backward", self.backward)):
            for what in ("gemm", "comm", "overlap", "other"):
                yield f"{name}_{what}_time_us", part and _micro(getattr(part, what))
            yield f"{name}_overlap_ratio", part and float(part.ratio)
            yield f"{name}_e2e_time_us", part and _micro(part.e2e)
        known = self.done
        yield "operator_e2e_time_us", _micro(self.e2e) if known else None
        yield "total_overlap_ratio", self.total_ratio if known else None
        for name in ("gemm", "comm"):
            events = [getattr(part, f"{name}_events") for part in self.passes] if known else None
            yield f"num_{name}_events", events and int(sum(events))


def _micro(seconds: Any) -> float:
    return round(float(seconds) * _MICRO, 6)
