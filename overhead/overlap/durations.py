"""Two durations that overlap with an efficiency, and what follows from any overlapped time."""

from __future__ import annotations

import numpy as np

from overhead.formula import formula
from overhead.overlap import quantities
from overhead.quantity import Array
from overhead.sums import total

__all__ = [
    "communication_share",
    "exposed_time",
    "hidden_communication_share",
    "hidden_time",
    "ideal_overlapped_time",
    "ideal_speedup",
    "of_communication_time",
    "overlap_ratio",
    "overlap_speedup",
    "quantities",
    "two_durations_time",
]

LONGER = "maximum(compute_time, communication_time)"
SHORTER = "minimum(compute_time, communication_time)"
TWO = {"mechanism": "two_durations"}


@formula(
    returns="overlapped_time",
    expression=f"{LONGER} + (1 - overlap_efficiency)*{SHORTER}",
    source="derivation",
    assumes=("the efficiency is of the shorter duration: all of it hides at 1",),
    when=TWO,
)
def two_durations_time(
    compute_time: Array, communication_time: Array, overlap_efficiency: Array
) -> Array:
    """Time of two durations of which a share of the shorter one hides."""
    shorter = np.minimum(compute_time, communication_time)
    return np.maximum(compute_time, communication_time) + (1.0 - overlap_efficiency) * shorter


@formula(
    returns="overlapped_time",
    expression=f"maximum(compute_time + (1 - overlap_efficiency)*communication_time, {LONGER})",
    source="derivation",
    assumes=(
        "the efficiency is of the communication, though no more of it hides than there is"
        " computation",
    ),
    when={**TWO, "efficiency_of": "communication"},
)
def of_communication_time(
    compute_time: Array, communication_time: Array, overlap_efficiency: Array
) -> Array:
    """Time of two durations of which a share of the communication hides, as far as it can.

    Without the bound a communication of 80 ms behind a computation of 50 ms would take 50 ms at
    full efficiency, less than the communication by itself.
    """
    shown = compute_time + (1.0 - overlap_efficiency) * communication_time
    return np.maximum(shown, np.maximum(compute_time, communication_time))


# What follows, whatever overlaps.

total("sequential_time", ("compute_time", "communication_time"))


@formula(returns="ideal_overlapped_time", expression=LONGER, source="derivation", ufunc=np.maximum)
def ideal_overlapped_time(compute_time: Array, communication_time: Array) -> Array:
    """Time of the longer of the two: what overlap can reach at best."""
    return np.maximum(compute_time, communication_time)


@formula(
    returns="hidden_time",
    expression="sequential_time - overlapped_time",
    source="derivation",
    ufunc=np.subtract,
)
def hidden_time(sequential_time: Array, overlapped_time: Array) -> Array:
    """Time that overlap saves; negative where what runs at once slows down by more."""
    return sequential_time - overlapped_time


@formula(
    returns="exposed_time",
    expression="overlapped_time - compute_time",
    source="derivation",
    ufunc=np.subtract,
)
def exposed_time(overlapped_time: Array, compute_time: Array) -> Array:
    """Time beyond that of the computation by itself."""
    return overlapped_time - compute_time


@formula(
    returns="overlap_ratio",
    expression=f"where({SHORTER} > 0, minimum(hidden_time/{SHORTER}, 1), 0)",
    source="derivation",
    assumes=("of the shorter duration, so that 1 is the best there can be",),
)
def overlap_ratio(hidden_time: Array, compute_time: Array, communication_time: Array) -> Array:
    """Hidden time by the shorter duration; 0 where there is nothing to hide."""
    shorter = np.minimum(compute_time, communication_time)
    some = shorter > 0.0
    return np.where(some, np.minimum(hidden_time / np.where(some, shorter, 1.0), 1.0), 0.0)


@formula(
    returns="hidden_communication_share",
    expression="where(communication_time > 0, minimum(hidden_time/communication_time, 1), 0)",
    source="derivation",
    assumes=("what tools tell of traces; it can't reach 1 where communication is the longer",),
)
def hidden_communication_share(hidden_time: Array, communication_time: Array) -> Array:
    """Hidden time by the communication's; 0 where there is none."""
    some = communication_time > 0.0
    share = hidden_time / np.where(some, communication_time, 1.0)
    return np.where(some, np.minimum(share, 1.0), 0.0)


@formula(
    returns="overlap_speedup",
    expression="where(overlapped_time > 0, sequential_time/overlapped_time, 1)",
    source="derivation",
)
def overlap_speedup(sequential_time: Array, overlapped_time: Array) -> Array:
    """Sequential time by overlapped time; 1 where both are nought."""
    some = overlapped_time > 0.0
    return np.where(some, sequential_time / np.where(some, overlapped_time, 1.0), 1.0)


@formula(
    returns="ideal_speedup",
    expression="where(ideal_overlapped_time > 0, sequential_time/ideal_overlapped_time, 1)",
    source="derivation",
)
def ideal_speedup(sequential_time: Array, ideal_overlapped_time: Array) -> Array:
    """Speedup if all of the shorter duration hid: 1/(1 - f) at a share f of communication."""
    some = ideal_overlapped_time > 0.0
    return np.where(some, sequential_time / np.where(some, ideal_overlapped_time, 1.0), 1.0)


@formula(
    returns="communication_share",
    expression="where(compute_time + communication_time > 0,"
    " communication_time/(compute_time + communication_time), 0)",
    source="derivation",
)
def communication_share(communication_time: Array, compute_time: Array) -> Array:
    """Communication by the time of both one after the other."""
    both = compute_time + communication_time
    some = both > 0.0
    return np.where(some, communication_time / np.where(some, both, 1.0), 0.0)
