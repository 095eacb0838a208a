"""Why some values of a cell are missing though the cell itself can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from sweeps.engine.axes import Array
from sweeps.engine.node import Node
from sweeps.engine.validity import NO_TIME, NOT_CHUNKED, NOT_KNOWN, NOT_OF_ONE_RANK, ONE_RANK

__all__ = ["notes", "unknowns"]

Note = tuple[Node, int, Callable[[Array], Array]]


def notes(
    wanted: Mapping[str, Node],
    perhaps: Callable[[str], Node | None],
    bits: Mapping[str, int],
) -> Iterator[Note]:
    """Yield the reasons that concern some quantities of a cell alone."""
    if set(wanted) & set(NOT_OF_ONE_RANK):
        ranks, time = perhaps("ranks"), perhaps("time")
        if ranks is not None and (ranks.given is None or np.any(ranks.given == 1.0)):
            yield _note(ranks, bits[ONE_RANK], lambda values: values == 1.0)
        if time is not None and _may_be_zero(time):
            yield _note(time, bits[NO_TIME], lambda values: values == 0.0)
    if "chunks" in wanted:
        yield _note(wanted["chunks"], bits[NOT_CHUNKED], np.isnan)
    yield from unknowns(wanted.values(), bits[NOT_KNOWN])


def unknowns(wanted: Iterable[Node], bit: int) -> Iterator[Note]:
    """Yield what is given as NaN and taken by quantities, with a bit where it is."""
    for node in _given_below(wanted):
        if node.given is not None and np.isnan(node.given).any():
            yield _note(node, bit, np.isnan)


def _note(node: Node, bit: int, test: Callable[[Array], Array]) -> Note:
    return node, bit, lambda values: np.where(test(values), bit, 0)


def _given_below(nodes: Iterable[Node]) -> list[Node]:
    """Return the given nodes on which nodes depend, each once."""
    found: dict[int, Node] = {}
    stack, seen = list(nodes), set[int]()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += node.inputs
            if node.given is not None:
                found[id(node)] = node
    return list(found.values())


def _may_be_zero(time: Node) -> bool:
    """Return whether a time can be zero of several ranks: no latency, and no bytes or no wire."""
    free = {"latency": False, "message_bytes": False, "bandwidth": False}
    for node in _given_below([time]):
        kind = next((name for name in free if node.name.endswith(name)), None)
        if kind is not None and node.given is not None:
            free[kind] |= bool(np.any(node.given == (np.inf if kind == "bandwidth" else 0.0)))
    return free["latency"] and (free["message_bytes"] or free["bandwidth"])
