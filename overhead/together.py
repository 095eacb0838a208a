"""Evaluations of unlike statements together: what several have in common is computed once.

Statements of unlike labels share most formulas.  On one graph these are the same nodes, and each is
computed for the rows of all the evaluations that need it as one array, rather than once for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.evaluation import Evaluation, builder_of
from overhead.graph import Graph, Node

Places = NDArray[np.int64]


def compute(evaluations: Sequence[Evaluation], quantities: Sequence[Iterable[str]]) -> None:
    """Compute quantities of evaluations, which keep them; what nothing gives is left out.

    Parameters
    ----------
    evaluations : sequence of Evaluation
        On numbers, or on arrays of one dimension: each of rows of its own.
    quantities : sequence of iterables of str
        What is wanted of each.
    """
    graph, nodes = Graph(), dict[str, Node]()
    wanted: list[list[Node]] = []
    for evaluation, names in zip(evaluations, quantities, strict=True):
        labels = evaluation.labels.items()
        evaluation.use(builder_of(labels, evaluation.given, None, graph, nodes))
        known = (evaluation.builder.perhaps(name) for name in names)
        wanted.append([node for node in known if node is not None])
    rows = _Rows([_count(evaluation.given) for evaluation in evaluations])
    for (index, node), value in _values(evaluations, wanted, rows):
        evaluations[index].keep(node, value)


def _count(given: Mapping[str, Any]) -> int:
    """Return how many rows an evaluation has."""
    return max((value.size for value in given.values()), default=1)


class _Rows:
    """The rows of evaluations one after another: which of them some evaluations have.

    Evaluations are a bit each, and several a number.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = counts
        self._members: dict[int, tuple[int, ...]] = {}
        self._counts: dict[int, int] = {}
        self._among: dict[tuple[int, int], Places] = {}

    def members(self, some: int) -> tuple[int, ...]:
        """Return the places of some evaluations."""
        known = self._members.get(some)
        if known is None:
            known = self._members[some] = tuple(
                index for index in range(len(self.counts)) if some >> index & 1
            )
        return known

    def count(self, some: int) -> int:
        """Return how many rows some evaluations have together."""
        known = self._counts.get(some)
        if known is None:
            known = self._counts[some] = sum(self.counts[index] for index in self.members(some))
        return known

    def among(self, few: int, many: int) -> Places:
        """Return where the rows of few evaluations are among those of many."""
        known = self._among.get((few, many))
        if known is None:
            parts, start = [], 0
            for index in self.members(many):
                if few >> index & 1:
                    parts.append(np.arange(start, start + self.counts[index]))
                start += self.counts[index]
            known = self._among[few, many] = np.concatenate(parts)
        return known

    def taken(self, value: Any, few: int, many: int) -> Any:
        """Return what few evaluations have of the value of many."""
        if few == many:
            return value
        if isinstance(value, np.ndarray):
            if value.ndim == 0 or value.shape[-1] != self.count(many):
                return value  # The same in all rows
            return value.take(self.among(few, many), axis=-1)
        if isinstance(value, tuple):
            return tuple([self.taken(part, few, many) for part in value])
        if is_dataclass(value) and not isinstance(value, type):
            parts = {field.name: getattr(value, field.name) for field in fields(value)}
            taken = {name: self.taken(part, few, many) for name, part in parts.items()}
            return replace(value, **taken)
        return value

    def joined(self, values: Sequence[Any], some: int) -> NDArray[np.float64]:
        """Return what is given to some evaluations, one after another."""
        pairs = zip(self.members(some), values, strict=True)
        return np.concatenate([np.broadcast_to(v, (self.counts[index],)) for index, v in pairs])


def _values(
    evaluations: Sequence[Evaluation], wanted: Sequence[Sequence[Node]], rows: _Rows
) -> Iterator[tuple[tuple[int, Node], Any]]:
    """Yield what is wanted of each evaluation: its index and the node, and the value."""
    asked: dict[int, int] = {}  # By node: the evaluations that ask for it
    pairs = [(index, node) for index, nodes in enumerate(wanted) for node in nodes]
    for index, node in pairs:
        asked[id(node)] = asked.get(id(node), 0) | 1 << index
    order = _after_inputs(node for _, node in pairs)
    needed, uses = dict(asked), dict[int, int]()
    for node in reversed(order):
        for source in node.inputs:
            needed[id(source)] = needed.get(id(source), 0) | needed[id(node)]
            uses[id(source)] = uses.get(id(source), 0) + 1
    values: dict[int, Any] = {}
    parts: dict[int, dict[int, Any]] = {}  # By node, those of few of its evaluations

    def part(node: Node, few: int) -> Any:
        value, many = values[id(node)], needed[id(node)]
        if few == many:
            return value
        known = parts.setdefault(id(node), {})
        if few not in known:
            known[few] = rows.taken(value, few, many)
        return known[few]

    for node in order:
        some = needed[id(node)]
        if node.run is None:
            given = [evaluations[index].given[node.name] for index in rows.members(some)]
            value: Any = rows.joined(given, some)
        else:
            value = node.run(*[part(source, some) for source in node.inputs])
        values[id(node)] = value
        for index in rows.members(asked.get(id(node), 0)):
            yield (index, node), rows.taken(value, 1 << index, some)
        for source in node.inputs:
            uses[id(source)] -= 1
            if not uses[id(source)]:  # Nothing needs it any more
                values.pop(id(source), None)
                parts.pop(id(source), None)


def _after_inputs(nodes: Iterable[Node]) -> list[Node]:
    """Return nodes and all that they need, each after its inputs."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(node, False) for node in nodes]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(source, False) for source in node.inputs if id(source) not in seen]
    return order
