"""What a collective's schedule costs, in latencies and messages: the form that all kernels give.

The time of every algorithm here is, on each level of links, a number of latencies plus a number
of messages that go through the slowest link one after another.  So a kernel needs the network's
shape alone, and the engine multiplies the rest in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from overhead.arrays import xp
from overhead.quantity import Array

Number = Array | float
LEVELS = ("intra", "inter", "pod")
# What a step pays on each level: a latency, the time of the whole message, a ramp's time constant.
STEP_PRICES = (
    ("intra_step_latency", "intra_step_serialization_time", "intra_step_ramp_time"),
    ("inter_step_latency", "inter_step_serialization_time", "inter_step_ramp_time"),
    ("pod_step_latency", "pod_step_serialization_time", "inter_step_ramp_time"),
)


@dataclass(frozen=True, slots=True)
class Level:
    """What a schedule costs on one level of links.

    Attributes
    ----------
    latencies : array
        Latencies paid one after another, one a hop.
    messages : array
        The same where a message pays one latency whatever its path.
    transfer : array
        Bytes that pass the slowest link, summed over steps, in messages M.
    carried : array
        Bytes over all of the level's links together, in messages M.
    """

    latencies: Number
    messages: Number
    transfer: Number
    carried: Number


@dataclass(frozen=True, slots=True)
class Cost:
    """What a schedule costs.

    Attributes
    ----------
    steps : array
        Its steps.
    sent : array
        Bytes that the busiest rank sends, in messages M.
    levels : tuple of Level
        One a level of links, innermost first.
    reduced : array
        Bytes that the busiest rank reduces, in messages M (nought where nothing is reduced).
    apart : float
        1.0 where phases on different levels follow one another, so that chunks of the message may
        overlap them; 0.0 where every step works on all levels.
    """

    steps: Number
    sent: Number
    levels: tuple[Level, ...]
    reduced: Number = 0.0
    apart: float = 1.0


def several(ranks: Array) -> Array:
    """Return 1.0 where there is more than one rank, else 0.0."""
    return xp.asarray(ranks > 1.0, dtype=xp.float64)


def flat(
    steps: Number,
    transfer: Number,
    *,
    sent: Number,
    carried: Number,
    latencies: Number | None = None,
    messages: Number | None = None,
    reduced: Number = 0.0,
) -> Cost:
    """Return the cost of a schedule on one level of links.

    Parameters
    ----------
    steps, transfer, sent, carried, latencies, messages, reduced : array
        As in `Cost` and `Level`.  A step pays one latency unless `latencies` says otherwise, and
        one message's latency unless `messages` does.

    Returns
    -------
    Cost
        The cost.
    """
    paid = steps if messages is None else messages
    hops = paid if latencies is None else latencies
    return Cost(steps, sent, (Level(hops, paid, transfer, carried),), reduced)


def scale(cost: Cost, message: Number, copies: Number = 1.0) -> Cost:
    """Return the cost for a message of another size, with `copies` of the schedule side by side."""
    levels = tuple(
        replace(level, transfer=level.transfer * message, carried=level.carried * message * copies)
        for level in cost.levels
    )
    return replace(cost, sent=cost.sent * message, levels=levels, reduced=cost.reduced * message)


def stack(costs: Sequence[Cost]) -> Cost:
    """Return the cost of schedules that run one after another, each on its own level of links."""
    return Cost(
        sum((cost.steps for cost in costs), start=0.0),
        sum((cost.sent for cost in costs), start=0.0),
        tuple(level for cost in costs for level in cost.levels),
        sum((cost.reduced for cost in costs), start=0.0),
    )


def twice(cost: Cost) -> Cost:
    """Return the cost of an all_reduce made of a reduce_scatter and its mirror, an all_gather."""
    levels = tuple(
        Level(
            2.0 * level.latencies, 2.0 * level.messages, 2.0 * level.transfer, 2.0 * level.carried
        )
        for level in cost.levels
    )
    return replace(cost, steps=2.0 * cost.steps, sent=2.0 * cost.sent, levels=levels)


def mirror(cost: Cost, ranks: Array) -> Cost:
    """Return the cost of the reduce that runs a broadcast backwards.

    A rank sends the one message that it got there, and reduces what it sent there.
    """
    return replace(cost, sent=several(ranks), reduced=cost.sent)


def _part(level: Level, part: str, per_message: bool) -> Any:
    return level.messages if part == "latencies" and per_message else getattr(level, part)


def _total(part: str) -> Callable[[Any, bool], Any]:
    return lambda cost, per_message: sum(_part(level, part, per_message) for level in cost.levels)


def _level(index: int, part: str) -> Callable[[Any, bool], Any]:
    def take(cost: Any, per_message: bool) -> Any:
        return _part(cost.levels[index], part, per_message) if index < len(cost.levels) else 0.0

    return take


# The quantities that a cost gives, from (cost, whether a message pays one latency).
LATENCY_COUNTS: dict[str, Callable[[Any, bool], Any]] = {
    "latency_count": _total("latencies"),
    "intra_latency_count": _level(0, "latencies"),
    "inter_latency_count": _level(1, "latencies"),
    "pod_latency_count": _level(2, "latencies"),
    "dimension_1_latency_count": _level(0, "latencies"),
    "dimension_2_latency_count": _level(1, "latencies"),
    "dimension_3_latency_count": _level(2, "latencies"),
}
COST_PARTS: dict[str, Callable[[Any, bool], Any]] = {
    **LATENCY_COUNTS,
    "steps": lambda cost, _: cost.steps,
    "sent_fraction": lambda cost, _: cost.sent,
    "reduced_fraction": lambda cost, _: cost.reduced,
    "sequential_phases": lambda cost, _: cost.apart,
    "transfer_fraction": _total("transfer"),
    "intra_transfer_fraction": _level(0, "transfer"),
    "inter_transfer_fraction": _level(1, "transfer"),
    "pod_transfer_fraction": _level(2, "transfer"),
    "dimension_1_transfer_fraction": _level(0, "transfer"),
    "dimension_2_transfer_fraction": _level(1, "transfer"),
    "dimension_3_transfer_fraction": _level(2, "transfer"),
    "link_fraction": _total("carried"),
    "intra_link_fraction": _level(0, "carried"),
    "inter_link_fraction": _level(1, "carried"),
    "pod_link_fraction": _level(2, "carried"),
    "dimension_1_link_fraction": _level(0, "carried"),
    "dimension_2_link_fraction": _level(1, "carried"),
    "dimension_3_link_fraction": _level(2, "carried"),
}
