"""What is nearest where no plan can run, and what would make one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sweeps.errors import InputError
from sweeps.plans.choices import CHOICES, DEGREES, SHORT
from sweeps.plans.execution import Execution, executions_at
from sweeps.plans.request import Point
from sweeps.plans.search import Found, blocks_of, search
from sweeps.plans.space import Space, space_of

__all__ = ["Nearest", "Remedy", "batch_for", "filled", "nearest_plan", "remedies"]

# How far GPUs are doubled in search of a plan that fits.
DOUBLINGS = 6
# How far a batch may be from what was asked for, to be a proposal.
NEAR = 0.1


@dataclass(frozen=True)
class Nearest:
    """The plan that comes nearest to running."""

    # The plan: of those that only memory forbids the one that needs least of it, else one that
    # fails the fewest conditions
    plan: Execution
    reasons: dict[str, str]  # Why it can't run, with what must hold
    memory: bool  # Whether memory alone is in the way


@dataclass(frozen=True)
class Remedy:
    """What would make a plan run, and the best plan then."""

    words: str  # What to change
    found: Found  # What is found then


def nearest_plan(space: Space) -> Nearest | None:
    """Return the plan that comes nearest to running."""
    plan, limits = space.plan, space.limits
    if plan is None or limits is None:
        return None
    best: tuple[float, float, int, int] | None = None
    for block in blocks_of(space):
        bits = block.reasons()
        structural = np.bitwise_count(bits & ~limits.of_memory).astype(float)
        memory = np.broadcast_to(block.value("peak_memory"), bits.shape)
        # Fewest conditions that fail, then least memory.
        order = np.lexsort((memory.reshape(-1), structural.reshape(-1)))
        first = int(order[0])
        index = [int(at) for at in np.unravel_index(first, bits.shape)]
        grid = [own + part.start for own, part in zip(index, block.region, strict=True)]
        place = int(np.ravel_multi_index(grid, plan.grid.shape))
        flat = bits.reshape(-1)
        found = (float(structural.reshape(-1)[first]), float(memory.reshape(-1)[first]),
                 place, int(flat[first]))  # fmt: skip
        if best is None or found[:3] < best[:3]:
            best = found
    assert best is not None
    (one,) = executions_at(space, np.array([best[2]]))
    return Nearest(one, limits.told(best[3]), best[0] == 0.0)


def remedies(point: Point, nearest: Nearest | None) -> Iterator[Remedy]:
    """Yield what would make a plan run, as far as it is found."""
    yield from _lifted(point)
    if nearest is None or not nearest.memory:
        yield from _fitting(point)
        yield from _other_batch(point)
        return
    if point.threshold < 1.0:
        whole = Point(**{**vars(point), "threshold": 1.0})
        yield from _tried("all of the memory instead of a share", whole)
    yield from _more(point)
    yield from _shorter(point)


def _tried(words: str, point: Point) -> Iterator[Remedy]:
    try:
        found = search(space_of(point))
    except InputError:
        return
    if found.best:
        yield Remedy(words, found)


def _lifted(point: Point) -> Iterator[Remedy]:
    """Yield the best plan without one of the user's choices, then without any of degrees."""
    stated = [name for name in CHOICES if name in point.choices]
    for name in stated:
        told = SHORT.get(name, name)
        yield from _tried(f"any {told}", point.with_choices(**{name: None}))
    degrees = [name for name in stated if name in DEGREES]
    if len(degrees) > 1:
        free = point.with_choices(**dict.fromkeys(degrees, None))
        yield from _tried(f"any {', '.join(degrees)}", free)


def _more(point: Point) -> Iterator[Remedy]:
    """Yield the least of some numbers of GPUs on which a plan fits."""
    world = point.world_size
    for doubling in range(1, DOUBLINGS + 1):
        more = world * 2**doubling
        found = list(_tried(f"{more:,} GPUs", point.with_constants(world_size=float(more))))
        if found:
            yield found[0]
            return


def _shorter(point: Point) -> Iterator[Remedy]:
    """Yield half the sequence, at as many tokens of a batch."""
    length = point.constants["sequence_length"]
    if length % 2.0 == 0.0:
        half = {"sequence_length": length / 2, "global_batch": 2 * point.constants["global_batch"]}
        words = f"sequences of {half['sequence_length']:g} tokens, as many tokens a step"
        yield from _tried(words, point.with_constants(**half))


def filled(world_size: int, gpus_per_node: float) -> tuple[int, ...]:
    """Return the next numbers of GPUs, below and above, that fill nodes or divide one."""
    node = int(gpus_per_node) if np.isfinite(gpus_per_node) else 1

    def fills(number: int) -> bool:
        return number % node == 0 or node % number == 0

    below = next((n for n in range(world_size - 1, 0, -1) if fills(n)), 0)
    above = next(n for n in range(world_size + 1, world_size + node + 1) if fills(n))
    return (*((below,) if below else ()), above)


def _fitting(point: Point) -> Iterator[Remedy]:
    """Yield the next numbers of GPUs that fill nodes, where these don't."""
    space = space_of(point)
    if "nodes_not_filled" not in space.rows.fallen:
        return
    node = space.resolved.constants.get("gpus_per_node", np.nan)
    for number in filled(point.world_size, node):
        idle = point.world_size - number
        told = f", {idle} idle" if idle > 0 else ""
        yield from _tried(f"{number} GPUs{told}", point.with_constants(world_size=float(number)))


def batch_for(point: Point, gpus_per_node: float) -> float | None:
    """Return a batch near the one that is asked for, which divides among all ranks or nodes."""
    batch, world = point.constants["global_batch"], float(point.world_size)
    node = gpus_per_node if np.isfinite(gpus_per_node) else 1.0
    for unit in dict.fromkeys((world, np.ceil(world / node))):
        if batch % unit == 0.0:
            return None
        near = max(float(np.round(batch / unit)), 1.0) * unit
        if abs(near - batch) <= NEAR * batch:
            return near
    return None


def _other_batch(point: Point) -> Iterator[Remedy]:
    space = space_of(point)
    batch = batch_for(point, space.resolved.constants.get("gpus_per_node", np.nan))
    if batch is not None:
        yield from _tried(f"a batch of {batch:g}", point.with_constants(global_batch=batch))
