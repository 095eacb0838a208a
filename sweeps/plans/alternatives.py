"""Other questions whose answer a user wants beside his own: another batch, a node lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sweeps.errors import InputError
from sweeps.plans.answer import Answer, answer
from sweeps.plans.choices import divisors
from sweeps.plans.detail import details
from sweeps.plans.repair import batch_for
from sweeps.plans.request import Point

__all__ = ["Alternative", "nodes_lost", "other_batch"]


@dataclass(frozen=True)
class Alternative:
    """The answer to another question."""

    words: str  # What is other
    answer: Answer  # Its answer, with a plan
    rate: float  # Its tokens a second
    faster: float  # The same by those of the first answer, less one; NaN where that has no plan


def _rate(one: Answer) -> float:
    """Return the tokens a second of an answer's plan; NaN where there is none."""
    if one.recommended is None:
        return float("nan")
    (detail,) = details([one.recommended], ("tokens_per_second",))
    return detail["tokens_per_second"]


def _alternative(words: str, first: Answer, point: Point) -> Alternative | None:
    try:
        other = answer(point)
    except InputError:
        return None
    if other.recommended is None:
        return None
    rate = _rate(other)
    return Alternative(words, other, rate, rate / _rate(first) - 1.0)


def _node(one: Answer) -> float:
    return one.found.space.resolved.constants.get("gpus_per_node", float("nan"))


def other_batch(first: Answer) -> Alternative | None:
    """Return the answer for a batch nearby that divides among the GPUs or their nodes."""
    batch = batch_for(first.point, _node(first))
    if batch is None:
        return None
    point = first.point.with_constants(global_batch=batch)
    return _alternative(f"a batch of {batch:g} sequences", first, point)


def nodes_lost(first: Answer, nodes: int = 1) -> Iterator[Alternative]:
    """Yield what is best when nodes are lost: on all GPUs that are left, or on fewer of them."""
    node = _node(first)
    left = first.point.world_size - nodes * (int(node) if np.isfinite(node) else 1)
    if left < 1:
        return
    point = first.point.with_constants(world_size=float(left))
    every = _alternative(f"{left} GPUs, the same batch", first, point)
    if every is not None:
        yield every
    batch = batch_for(point, node)
    if batch is not None:
        near = point.with_constants(global_batch=batch)
        other = _alternative(f"{left} GPUs, a batch of {batch:g}", first, near)
        if other is not None:
            yield other
    fewer = _agreeing(left, node, int(first.point.constants["global_batch"]))
    if fewer is not None:
        some = point.with_constants(world_size=float(fewer))
        idle = left - fewer
        spare = _alternative(f"{fewer} GPUs, {idle} idle, the same batch", first, some)
        if spare is not None:
            yield spare


def _agreeing(left: int, node: float, batch: int) -> int | None:
    """Return the most GPUs whose nodes the batch divides among; None where these are all."""
    size = int(node) if np.isfinite(node) else 1
    whole = left // size
    most = max((n for n in divisors(batch) if n <= whole), default=0)
    return most * size if 0 < most < whole else None
