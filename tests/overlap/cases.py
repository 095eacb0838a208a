"""What tests of overlap share: durations that hypothesis draws, and the evaluation of one case."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st

from overhead.graph import Evaluation
from overhead.overlap.mechanisms import MECHANISMS

__all__ = ["EXACT", "close", "counts", "evaluated", "overlapped", "shares", "some_times", "times"]

times = st.fractions(0, 50, max_denominator=40)
some_times = st.fractions(Fraction(1, 40), 50, max_denominator=40)
shares = st.fractions(0, 1, max_denominator=30)
counts = st.integers(1, 12)
EXACT = 1e-12


def evaluated(mechanism: str, *wanted: str, **known: Any) -> list[float]:
    """Return quantities of one case."""
    chosen = [key for key in ("efficiency_of", "schedule") if key in known]
    labels: dict[str, str] = {key: known.pop(key) for key in chosen}
    numbers = {name: float(value) for name, value in known.items()}
    evaluation = Evaluation(
        {**MECHANISMS[mechanism].defaults, **numbers}, {"mechanism": mechanism, **labels}
    )
    return [float(evaluation[name]) for name in wanted]


def overlapped(mechanism: str, compute: Any, communication: Any, **known: Any) -> float:
    both = {"compute_time": compute, "communication_time": communication}
    return evaluated(mechanism, "overlapped_time", **both, **known)[0]


def close(ours: float, exact: Fraction) -> None:
    assert ours == pytest.approx(float(exact), rel=EXACT, abs=1e-13)
