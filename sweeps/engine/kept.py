"""Graphs that programs share: those of the same given names on the same dimensions.

A graph has no values of what is given, so the next program takes it as it is, with all that was
found out about it, and adds what its own labels need.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from overhead.choose import Builder
from overhead.collectives.algorithm import ALGORITHMS, Algorithm
from overhead.formula import REGISTRY, Formula
from overhead.graph import Graph, Node, nodes_below
from sweeps.engine.evaluate import settings
from sweeps.engine.grid import Grid

# Most graphs that are kept, quantities made in one, and sets of nodes told of one.
MOST_GRAPHS, MOST_MADE, MOST_ROOTS = 8, 20_000, 256
# As many sets of labels gain more by dependencies of their own than it takes to find these.
MANY_CASES = 24
# One cell is computed so often by nodes before they are written as a function of numbers: to write
# it takes as long as to compute some ten.
BEFORE = 6
# Most nodes that are written so: of more the text, and what Python makes of it, are large.
MOST_WRITTEN = 5_000


class Below:
    """Some nodes with all on which they depend, and what was found out about these."""

    def __init__(self, roots: Sequence[Node]) -> None:
        self.roots, self.nodes = tuple(roots), tuple(nodes_below(roots))
        self._asked = 0
        self._function: Callable[..., tuple[Any, ...] | None] | None = None
        self._dtypes: list[np.dtype[Any]] = []

    @cached_property
    def declarations(self) -> tuple[Formula | Algorithm, ...]:
        """The formulas and algorithms from which they come, each once."""
        origins = (node.origin for node in self.nodes)
        return tuple({id(origin): origin for origin in origins if origin is not None}.values())

    @cached_property
    def assumed(self) -> Mapping[str, float]:
        """The defaults among them."""
        taken = (node for node in self.nodes if node.what[0] == "default")
        return {node.name: float(node.what[2]) for node in taken}

    @cached_property
    def given(self) -> tuple[str, ...]:
        """The names of what is given, or assumed."""
        return tuple([node.name for node in self.nodes if node.run is None])

    # Of one cell, or of one for each set of labels, as numbers.

    @cached_property
    def _varying(self) -> dict[int, str]:
        """The names of what is given, by its nodes."""
        return {id(node): node.name for node in self.nodes if node.what[0] == "given"}

    def of_cell(self, grid: Grid) -> None:
        """Compute the values at a grid's one cell: as numbers, if that is asked for often."""
        self._asked += 1
        if self._asked == BEFORE and len(self.nodes) <= MOST_WRITTEN:
            self._write(grid)
        if self._function is not None:
            numbers = [grid.columns[name].item() for name in self._varying.values()]
            # What a number does that an array doesn't, such as to overflow, arrays find out.
            with suppress(ArithmeticError), np.errstate(all="ignore"):
                results = self._function(*numbers)
                assert results is not None
                for node, result, dtype in zip(self.roots, results, self._dtypes, strict=True):
                    grid.values[id(node)] = np.full((1,) * grid.ndim, result, dtype)
                return
        self._compute(grid)

    def _compute(self, grid: Grid) -> None:
        """Compute the values in arrays, each after those that it takes."""
        values = grid.values
        with settings(1):
            for node in self._order:
                if id(node) in values:
                    continue  # a report asked for it before
                if node.run is not None:
                    values[id(node)] = node.run(*[values[id(other)] for other in node.inputs])
                else:
                    values[id(node)] = grid.given(node)

    @cached_property
    def _order(self) -> list[Node]:
        """All nodes, each after those that it takes."""
        from sweeps.engine.scalar import ordered

        return ordered(self.roots)

    def _write(self, grid: Grid) -> None:
        """Write the nodes as a function of numbers, with a grid's values as an example."""
        from sweeps.engine.scalar import KINDS, Recorder, written

        self._compute(grid)
        values = grid.values
        names = {node: f"p{index}" for index, node in enumerate(self._varying)}
        recorder = Recorder(names, values)
        recorder.record([node for node in self._order if node.run is not None])
        self._dtypes = [values[id(node)].dtype for node in self.roots]
        kept = [
            recorder.tape.of(recorder.of(node), KINDS[dtype.kind])
            for node, dtype in zip(self.roots, self._dtypes, strict=True)
        ]
        results = [f"{{{index}}}" for index in range(len(kept))]
        self._function = written(recorder.tape, [*names.values()], [], results, kept)


@dataclass(slots=True)
class Kept:
    """A graph with the nodes of what is given, and what is known of other nodes."""

    kind: tuple[Any, ...]
    graph: Graph
    given: dict[str, Node]
    _below: dict[tuple[int, ...], Below] = field(default_factory=dict)

    def below(self, roots: Iterable[Node]) -> Below:
        """Return nodes with all on which they depend."""
        stated = tuple(roots)
        keys = tuple([node.key for node in stated])
        known = self._below.get(keys)
        if known is None:
            known = Below(stated)
            if len(self._below) < MOST_ROOTS:
                self._below[keys] = known
        return known


_KEPT: dict[tuple[Any, ...], Kept] = {}


def kept_of(grid: Grid, cases: Sequence[Mapping[str, str]]) -> Kept:
    """Return the graph of the last program of the same kind, or a new one.

    Many sets of labels have a graph to themselves, which knows the values that occur: fewer
    formulas can hold then, so that most of what is made for one set serves others.
    """
    occurring = _occurring(cases) if len(cases) >= MANY_CASES else {}
    edition = REGISTRY.edition, len(ALGORITHMS), threading.get_ident()
    kind = grid.ndim, frozenset(grid.dims.items()), frozenset(occurring.items()), edition
    kept = _KEPT.get(kind)
    if kept is None:
        given = {
            name: Node(name, ("given", name), (), None, dims) for name, dims in grid.dims.items()
        }
        within = Builder.dependencies.within(frozenset(given), occurring) if occurring else None
        kept = Kept(kind, Graph(within), given)
    return kept


def _occurring(cases: Sequence[Mapping[str, str]]) -> dict[str, frozenset[str]]:
    """Return by label the values that it has in some cases."""
    values: dict[str, set[str]] = {}
    for name, value in {item for labels in cases for item in labels.items()}:
        values.setdefault(name, set()).add(value)
    return {name: frozenset(each) for name, each in values.items()}


def keep(kept: Kept) -> None:
    """Keep a program's graph for the next one, unless it is large."""
    _KEPT.pop(kept.kind, None)
    while len(_KEPT) >= MOST_GRAPHS:
        _KEPT.pop(next(iter(_KEPT)))
    if len(kept.graph.made) <= MOST_MADE:
        _KEPT[kept.kind] = kept
