"""Questions that tests of plans ask."""

from __future__ import annotations

from functools import cache
from typing import Any

from sweeps.search.answer import Answer, answer
from sweeps.search.buy import Searched, Tried
from sweeps.search.request import Point, read_request
from tests.tables import keyed

BASE: dict[str, Any] = keyed(
    "model=llama3-8b hardware=dgx-h100 gpus=16 global_batch_size=64 sequence_length=4096"
)


def point(objective: str = "time", threshold: float = 0.9, **changed: Any) -> Point:
    """Return a question at one point: a small one, with some of it changed."""
    return read_request({**BASE, **changed}, objective=objective, threshold=threshold).first


def best_run(asked: Point, tokens: float) -> Tried:
    """Return the best plan at a point with what a run on so many tokens takes."""
    (run,) = Searched().every_run(asked, [asked.world_size], tokens)
    return run


@cache
def usual() -> Answer:
    """Return the answer to a usual question: 70 billion parameters on 64 GPUs."""
    return answer(point(model="llama3-70b", gpus=64, global_batch_size=512))


@cache
def mixture() -> Answer:
    """Return the answer for a mixture of experts."""
    return answer(point(model="mixtral-8x7b", gpus=32, global_batch_size=128))
