"""Ways to build schedules from one another: mirror images, sequences, pipelined trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from tests.simulator.model import Block, Case, Flow, Message, Network, Steps, Undefined

Build = Callable[[Case], Steps]
Schedule = Callable[[Case], tuple[Network, Steps]]
Table = dict[tuple[str, str, str], Schedule]


def scheduled(network: Callable[[Case], Network], build: Build) -> Schedule:
    """Return the schedule function of a network and of what happens on it.

    What happens doesn't depend on prices, so that cases which differ in them share it.
    """

    @lru_cache(maxsize=8)
    def shared(case: Case) -> Steps:
        steps = build(case)
        return steps if isinstance(steps, Flow) else tuple(map(tuple, steps))

    return lambda case: (network(case), shared(case.unpriced))


def gather_family(
    topology: str, network: Callable[[Case], Network], gathers: dict[str, Build]
) -> Table:
    """Return all_gathers, the reduce_scatters that mirror them, and both after each other."""
    table: Table = {}
    for name, build in gathers.items():
        table[topology, "all_gather", name] = scheduled(network, build)
        table[topology, "reduce_scatter", name] = scheduled(network, mirror(build))
        table[topology, "all_reduce", name] = scheduled(network, both(build))
    return table


def broadcast_family(
    topology: str, network: Callable[[Case], Network], broadcasts: dict[str, Build]
) -> Table:
    """Return broadcasts and the reduces that mirror them."""
    table: Table = {}
    for name, build in broadcasts.items():
        table[topology, "broadcast", name] = scheduled(network, build)
        table[topology, "reduce", name] = scheduled(network, mirror(build))
    return table


def mirror(build: Build) -> Build:
    return lambda case: mirrored(build(case))


def both(gather: Build) -> Build:
    return lambda case: all_reduced(case.ranks, gather(case))


def whole_power(ranks: int) -> int:
    """Return log2 of a power of two; other numbers of ranks are `Undefined`."""
    if ranks & (ranks - 1):
        msg = f"{ranks} ranks are no power of two"
        raise Undefined(msg)
    return ranks.bit_length() - 1


def pieces(home: tuple[int, ...], parts: int = 1) -> tuple[Block, ...]:
    """Return all the parts of a home."""
    return tuple(Block(home, part, parts) for part in range(parts))


def mirrored(steps: Steps) -> list[list[Message]]:
    """Return a schedule backwards in time, each message reversed and reduced where it was copied.

    Turns an all_gather into its reduce_scatter and a broadcast into its reduce.
    """
    return [
        [Message(one.path[::-1], one.payload, "reduce", one.streamed) for one in step]
        for step in reversed(list(steps))
    ]


def renamed(steps: Steps, remap: Callable[[Block], Block]) -> list[list[Message]]:
    """Return a schedule with every block replaced."""
    return [
        [Message(one.path, tuple(map(remap, one.payload)), one.mode, one.streamed) for one in step]
        for step in steps
    ]


def all_reduced(ranks: int, gather: Steps) -> list[list[Message]]:
    """Return the all_reduce made of an all_gather's mirror image and that all_gather."""

    def remap(block: Block) -> Block:
        (owner,) = block.home
        return Block((), owner * block.parts + block.part, ranks * block.parts)

    gather = renamed(gather, remap)
    return mirrored(gather) + gather


def together(*schedules: Steps) -> list[list[Message]]:
    """Return schedules that run side by side, step by step, until the longest ends."""
    listed = [list(schedule) for schedule in schedules]
    return [
        [message for schedule in listed if time < len(schedule) for message in schedule[time]]
        for time in range(max(map(len, listed)))
    ]


def tree_broadcast(
    depths: Mapping[int, int],
    paths: Mapping[int, tuple[int, ...]],
    chunks: tuple[Block, ...],
) -> list[list[Message]]:
    """Return a broadcast down a tree, chunk by chunk.

    `depths` of all nodes; `paths`: for each node but the root the path from its parent to it.
    """
    steps: list[list[Message]] = [[] for _ in range(max(depths.values()) + len(chunks) - 1)]
    for node, path in paths.items():
        for late, chunk in enumerate(chunks):
            steps[late + depths[node] - 1].append(Message(path, (chunk,)))
    return steps


def tree_all_reduce(
    depths: Mapping[int, int],
    paths: Mapping[int, tuple[int, ...]],
    chunks: tuple[Block, ...],
) -> list[list[Message]]:
    """Return a reduction up a tree and the broadcast back, overlapped chunk by chunk."""
    height = max(depths.values())
    steps: list[list[Message]] = [[] for _ in range(2 * height + len(chunks) - 1)]
    for node, path in paths.items():
        for late, chunk in enumerate(chunks):
            up = Message(path[::-1], (chunk,), "reduce")
            steps[late + height - depths[node]].append(up)
            steps[late + height + depths[node] - 1].append(Message(path, (chunk,)))
    return steps
