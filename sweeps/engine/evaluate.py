"""Evaluation of a graph's nodes, whole or block by block, in bounded memory."""

from __future__ import annotations

import importlib
import math
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import is_not
from types import ModuleType
from typing import Any

import numpy as np

from overhead.arrays import NAMESPACES, in_numpy, using, xp
from overhead.choose import best_of, keep_least
from overhead.formula import Formula
from overhead.frozen import frozen
from overhead.graph import Node
from sweeps.engine.folds import Fold, Folds
from sweeps.engine.grid import BESIDE, WHOLE, Array, Grid, Region, cut
from sweeps.errors import InputError, fault

# Cells of a block: 1 MiB of float64, so that a block stays in a core's cache while the work on it
# outweighs the dispatch.
BLOCK_CELLS = 1 << 17
# Cells up to which a node is computed once and kept, rather than again for each block.
WHOLE_CELLS = 1 << 18
# Cells up to which a value is shared among sets of labels: of more, computing outweighs the calls.
SHARED_CELLS = 1 << 10
# What would be computed again for later blocks is kept up to so many times as many.
RETURNING = 2
# Reasons are kept up to so many times as many: 64 MiB.
KEPT_REASONS = 32
LOOKED_AT = 1 << 10  # Values by which arrays that may be equal are found
UNSET = -1
# Other libraries' calls cost more to start, so that their blocks have more cells.
CELLS_OF_ARRAYS = 1 << 20


@frozen(slots=True)
class Limits:
    """How much is computed at a time, and kept: what memory is bounded by."""

    block: int = BLOCK_CELLS  # Most cells of a block
    whole: int = WHOLE_CELLS  # Most cells of a value that is computed once and kept
    # The arrays' namespace, if it isn't numpy's: what leaves the evaluator is numpy's all the same
    arrays: ModuleType | None = None
    device: Any = None  # Where these arrays lie, if not where the library makes them


def limits_of(array: str) -> Limits:
    """Return what computes with a library's arrays.

    Raises
    ------
    InputError
        If the library is unknown, isn't installed, or finds no GPU where it needs one.
    """
    if array == "numpy":
        return Limits()
    known = "numpy, " + ", ".join(NAMESPACES)
    if array not in NAMESPACES:
        raise InputError(fault("array", array, "is unknown", known))
    try:
        namespace = importlib.import_module(NAMESPACES[array])
        if array == "cupy":
            namespace.zeros(1)
    except ImportError as error:
        allowed = f"{known}; the extra 'arrays' installs jax and torch, and cupy is a GPU's"
        raise InputError(fault("array", array, f"needs {error.name}", allowed)) from None
    except Exception as error:
        wrong = f"finds no GPU: {str(error).splitlines()[0]}"
        raise InputError(fault("array", array, wrong, known)) from None
    device = "cuda" if array == "torch" and sys.modules["torch"].cuda.is_available() else None
    return Limits(CELLS_OF_ARRAYS, WHOLE_CELLS, namespace, device)


# Elements of numpy's iteration buffer.  With its default of 8192, ufuncs copy operands that
# broadcast over shorter runs into the buffer, which takes two to three times as long as working
# on the runs themselves, unless these are short: then starting each costs more than the copies.
BUFFER_ELEMENTS = 64
BUFFER_OF_SHORT_RUNS = 2048
SHORT_RUN = 64


@contextmanager
def settings(run: int) -> Iterator[None]:
    """Set numpy up for open grids: no needless copies of what broadcasts, no warnings of holes."""
    with np.errstate(all="ignore"):
        size = BUFFER_OF_SHORT_RUNS if run < SHORT_RUN else BUFFER_ELEMENTS
        before = np.setbufsize(size)
        try:
            yield
        finally:
            np.setbufsize(before)


class Cuts(Sequence[Region]):
    """A shape cut into regions of at most so many cells, runs of the last dimensions, by number."""

    def __init__(self, shape: Sequence[int], cells: int) -> None:
        self.shape = tuple(shape)
        inner, split = 1, len(shape)
        while split > 0 and inner * shape[split - 1] <= cells:
            split -= 1
            inner *= shape[split]
        self._whole = tuple(slice(0, length) for length in shape[split:])
        self._outer = tuple(shape[: max(0, split - 1)])
        self._length = shape[split - 1] if split else 1
        self._run = self._length
        if split:
            self._run = -(-self._length // -(-self._length // max(1, cells // inner)))
        self._runs = -(-self._length // self._run)
        self._split = split > 0

    def __len__(self) -> int:
        return math.prod(self._outer) * self._runs

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        if not self._split:
            return self._whole
        rest, run = divmod(index, self._runs)
        point = []
        for size in reversed(self._outer):
            rest, position = divmod(rest, size)
            point.append(slice(position, position + 1))
        start = run * self._run
        part = slice(start, min(start + self._run, self._length))
        return (*reversed(point), part, *self._whole)


@frozen(slots=True)
class Picked:
    """Some points of one dimension, of which an evaluator computes values, and no others."""

    dim: str
    places: Array  # On the grid
    source: Evaluator | None = None  # Where values of more of them may be at hand
    part: slice | None = None  # Those that it has
    among: Array | None = None  # Where these are among those

    def known(self, node: Node, region: Region) -> Any:
        """Return a node's value if it is at hand; None where it isn't."""
        if self.source is None or self.part is None or self.among is None:
            return None
        position, local = self.source.grid.position(self.dim), list(region)
        local[position] = self.part
        value = self.source.known(node, tuple(local))
        if value is None or value.shape[position] == 1:
            return value
        return value.take(self.among, axis=position)


class FoldedValues(Folds):
    """Combinations of an axis's columns with the evaluators that compute values for them."""

    def __init__(self, grid: Grid, dim: str) -> None:
        super().__init__(grid, dim)
        self.evaluators: dict[int, Evaluator] = {}  # By the columns
        self.single: Evaluator | None = None  # Computes what doesn't vary along the axis


class Evaluator:
    """Computes nodes of a graph on a grid.

    What is small is computed once and kept; what is large is computed for the block asked for,
    from its inputs' parts, and kept until another block is asked for.
    """

    def __init__(
        self,
        grid: Grid,
        fixed: dict[int, slice] | None = None,
        limits: Limits | None = None,
        picked: Picked | None = None,
        points: Mapping[str, Array] | None = None,
        folds: FoldedValues | None = None,
        names: int = 0,
    ) -> None:
        self.folds, self.names = folds, names  # Of what it has combinations alone, if it has
        self.grid = grid
        self.limits = limits or Limits()
        self.fixed = fixed or {}
        self.picked = picked
        # The points of some dimensions by their places on the grid: regions are of these, then
        self.points = {picked.dim: picked.places} if picked else dict(points or {})
        self.sizes = grid.sizes | {dim: len(indices) for dim, indices in self.points.items()}
        self.shape = tuple(self.sizes.values()) or (1,)
        fixed_dims = {grid.names[position] for position in self.fixed}
        self._fixed_dims = frozenset(fixed_dims)
        # Values that another set of labels may have computed, by the dimensions of nodes
        self._shared: dict[frozenset[str], dict[int, Any]] = {}
        self._shares = self.limits.arrays is None and not self.points
        single = grid.cells == 1 and self.limits.arrays is None
        self._whole: dict[int, Any] = grid.values if single else {}
        self._kept: dict[int, Any] = {}
        # By the dimensions of nodes: their cells, whether these are small, their places, and where
        # the region that was asked for last has them
        self._cells: dict[frozenset[str], int] = {}
        self._small: dict[frozenset[str], bool] = {}
        self._places: dict[frozenset[str], tuple[int, ...]] = {}
        self._wheres: dict[frozenset[str], tuple[tuple[int, int], ...]] = {}
        self._twins: Twins | None = None
        # Whole values that another set of labels left, by node; they hold of nodes that don't vary
        # along the dimensions where its point isn't this one's
        self._left: dict[int, Any] = {}
        self._unlike: frozenset[str] = frozenset()
        self._spares: list[Array] = []
        self._used = 0
        self._region: Region = ()  # The one that was asked for last
        self._partly: frozenset[int] = frozenset()  # The dimensions of which it has a part
        # Values at that region; and those of them that are the same at all that have parts of the
        # same dimensions
        self._ready: dict[int, Any] = {}
        self._uncut: dict[frozenset[int], dict[int, Any]] = {}
        self._reasons: dict[int, Array] = {}
        self._parts: dict[int, tuple[tuple[tuple[int, int], ...], Any]] = {}
        self._combined: dict[int, tuple[slice, Array]] = {}  # By columns, of the last part
        everything = [slice(0, length) for length in self.shape]
        for position, part in self.fixed.items():
            everything[position] = part
        self.everything: Region = tuple(everything)
        # Blocks have dimensions whole from here on.
        lengths = [part.stop - part.start for part in everything]
        self._inner = len(lengths)
        while self._inner and math.prod(lengths[self._inner - 1 :]) <= self.limits.block:
            self._inner -= 1

    def small(self, node: Node) -> bool:
        """Return whether a node is computed once and kept, rather than again for each block."""
        known = self._small.get(node.dims)
        if known is None:
            cells, whole = self.cells(node), self.limits.whole
            known = cells <= whole or (cells <= RETURNING * whole and self._returns(node))
            # Not where another evaluator may have its value.
            known = known and (self.picked is None or self.picked.source is None)
            self._small[node.dims] = known
        return known

    def _returns(self, node: Node) -> bool:
        """Return whether blocks come back to a node's parts: along an axis outside of its own."""
        positions = {self.grid.position(dim) for dim in node.dims}
        outer = [p for p in range(self._inner) if p not in self.fixed and self.shape[p] > 1]
        varying = [position for position in outer if position in positions]
        return (
            any(position not in positions for position in outer[: outer.index(varying[-1])])
            if varying
            else False
        )

    def cells(self, node: Node) -> int:
        """Return the cells over a node's own dimensions."""
        known = self._cells.get(node.dims)
        if known is None:
            varying = node.dims - self._fixed_dims
            known = self._cells[node.dims] = math.prod(self.sizes[dim] for dim in varying)
        return known

    def value(self, node: Node, region: Region | None = None) -> Any:
        """Return a node's value over a region (everything where none is given)."""
        if region is None:
            return self._value(node, None)
        if region is not self._region:
            self._look_at(region)
        known = self._ready.get(id(node))
        if known is None:
            known = self._ready[id(node)] = self._value(node, region)
        return known

    def _value(self, node: Node, region: Region | None) -> Any:
        """Return a node's value over a region that was looked at, or over everything."""
        if node.run is None:
            given = self._given(node)
            if region is not None:
                return self._part(node, given, region)
            held = not node.dims.isdisjoint(self._fixed_dims)
            return self._cut(given, self.everything) if held else given
        whole = self._whole.get(id(node))
        if whole is None and self.folds is not None:
            folded = self._folded(node, region, self.folds)
            if folded is not None:
                return folded
        if whole is None and self.small(node):
            whole = self._whole[id(node)] = self._once(node)
        if whole is not None:
            return whole if region is None else self._part(node, whole, region)
        if region is None:
            return self._run(node, None)
        if self._twins is not None and (twin := self._twins.of(node)) is not node:
            return self.value(twin, region)
        where = self._where(node, region)
        known = self._parts.get(id(node))
        if known is not None and known[0] == where:
            return known[1]
        if self.picked is not None and (part := self.picked.known(node, region)) is not None:
            self._parts[id(node)] = (where, part)
            return part
        in_place = node.run is best_of and self.limits.arrays is None
        part = self._least(node, region) if in_place else self._run(node, region)
        self._parts[id(node)] = (where, part)
        return part

    def _folded(self, node: Node, region: Region | None, folds: FoldedValues) -> Any:
        """Return a value that is computed for fewer combinations; None where it isn't."""
        try:
            fold = folds.known[id(node)]
        except KeyError:
            fold = folds.of(node)
        if fold is None or fold.names == self.names:
            return None
        if not fold.names:
            if not self.names:
                return None
            if folds.single is None:
                folds.single = Evaluator(self.grid, self.fixed, self.limits)
            return folds.single.value(node, region)
        region = region or self.everything
        where = self._where(node, region)
        known = self._parts.get(id(node))
        if known is not None and known[0] == where:
            return known[1]
        source = folds.evaluators.get(fold.names)
        if self.sizes[folds.dim] < fold.count and not (source and id(node) in source._whole):
            return None
        if source is None:
            picked = Picked(folds.dim, fold.rows())
            # They have it, which would otherwise keep their values until cycles are collected.
            held: FoldedValues = folds if self.names else weakref.proxy(folds)
            source = Evaluator(self.grid, self.fixed, None, picked, None, held, fold.names)
            folds.evaluators[fold.names] = source
        # What isn't kept would be computed for all of them for each block.
        value = source.value(node) if source.small(node) else None
        if not isinstance(value, np.ndarray):
            return None
        if value.shape[folds.position] > 1:
            indices = self._combinations(fold, region[folds.position], folds.dim)
            value = value.take(indices, axis=folds.position)
            region = (*region[: folds.position], WHOLE, *region[folds.position + 1 :])
        part = cut(value, region)
        self._parts[id(node)] = (where, part)
        return part

    def _combinations(self, fold: Fold, part: slice, dim: str) -> Array:
        """Return which combinations the points of a part have; of the last part it is known."""
        known = self._combined.get(fold.names)
        if known is None or known[0] != part:
            indices = fold.of[self.points[dim]] if dim in self.points else fold.of
            known = self._combined[fold.names] = part, indices[part].astype(np.intp)
        return known[1]

    def _once(self, node: Node) -> Any:
        """Return a small node's value at all points; another set of labels may have it already."""
        if self._left and node.dims.isdisjoint(self._unlike):
            left = self._left.pop(id(node), None)
            if left is not None:
                return left
        if not self._shares or self.cells(node) > SHARED_CELLS:
            return self._run(node, None)
        shared = self._shared.get(node.dims)
        if shared is None:
            shared = self._shared[node.dims] = self.grid.known(node.dims, self.fixed)
        value = shared.get(id(node))
        if value is None:
            value = self._run(node, None)
            if self.grid.room > 0:
                shared[id(node)] = value
                self.grid.room -= BESIDE + self.cells(node)
        return value

    def known(self, node: Node, region: Region) -> Any:
        """Return a node's value over a region if it is at hand; None where it isn't."""
        whole = self._whole.get(id(node))
        if whole is not None:
            return cut(whole, region) if hasattr(whole, "shape") else None
        part = self._parts.get(id(node))
        if part is None or part[0] != self._where(node, region) or not hasattr(part[1], "shape"):
            return None
        return part[1]

    def _least(self, node: Node, region: Region) -> tuple[Array, Array]:
        """Return the least of the inputs and which it is, in arrays kept for the next block."""
        positions = {self.grid.position(dim) for dim in node.dims}
        shape = tuple(
            part.stop - part.start if position in positions else 1
            for position, part in enumerate(region)
        )
        kept = self._kept.get(id(node))
        if kept is None or kept[0].shape != shape:
            kept = tuple(np.empty(shape, dtype) for dtype in (float, float, bool, np.int8))
            self._kept[id(node)] = kept
        best, other, less, code = kept
        first, *rest = node.inputs
        self.into(first, region, best)
        code[...] = 0
        for index, operand in enumerate(rest, 1):
            self.into(operand, region, other)
            keep_least(best, code, other, index, less)
        return best, code

    def reasons(self, node: Node, region: Region) -> Array:
        """Return the status over a region; variables of fewer dimensions ask for it again.

        So it is kept, as long as it isn't large.
        """
        whole = self.limits.whole
        if not whole < self.cells(node) <= KEPT_REASONS * whole:
            return in_numpy(self.value(node, region))
        kept = self._reasons.get(id(node))
        if kept is None:
            positions = {self.grid.position(dim) for dim in node.dims - self._fixed_dims}
            shape = [n if index in positions else 1 for index, n in enumerate(self.shape)]
            kept = self._reasons[id(node)] = np.full(shape, UNSET, dtype=np.int32)
        part = cut(kept, region)
        if part.min() == UNSET:
            part[...] = in_numpy(self.value(node, region))
        return part

    def into(self, node: Node, region: Region, out: Array) -> None:
        """Compute a node over a region straight into an array of the region's open shape.

        A chain of ufuncs works in the one array, so that a block stays in cache.
        """
        node = node if self._twins is None else self._twins.of(node)
        if not self._direct(node, region):
            out[...] = in_numpy(self.value(node, region))
            return
        inputs: list[Array] = []
        taken = 0
        # A kernel of several steps writes to the array before it has read all its inputs.
        one_step = isinstance(node.ufunc, np.ufunc)
        for operand in node.inputs:
            whole = one_step and self.cells(operand) == self.cells(node)
            if not whole or not self._direct(operand, region):
                inputs.append(self.value(operand, region))
            elif any(x is out for x in inputs):
                spare = self._spare(out)
                taken += 1
                self.into(operand, region, spare)
                inputs.append(spare)
            else:
                self.into(operand, region, out)
                inputs.append(out)
        assert node.ufunc is not None
        node.ufunc(*inputs, out=out)
        self._used -= taken

    def _spare(self, like: Array) -> Array:
        """Return a scratch array: one more than are in use."""
        if self._used == len(self._spares):
            self._spares.append(np.empty_like(like))
        if self._spares[self._used].shape != like.shape:
            self._spares[self._used] = np.empty_like(like)
        self._used += 1
        return self._spares[self._used - 1]

    def _direct(self, node: Node, region: Region) -> bool:
        """Return whether a node can be computed in an array, and its value isn't at hand."""
        arrays = self.limits.arrays is not None
        if arrays or node.ufunc is None or self.small(node):
            return False
        known = self._parts.get(id(node))
        return known is None or known[0] != self._where(node, region)

    def _run(self, node: Node, region: Region | None) -> Any:
        assert node.run is not None
        # Most inputs are known, and a look costs less than a call.
        ready = {} if region is None else self._ready
        inputs = []
        for operand in node.inputs:
            known = ready.get(id(operand))
            inputs.append(self.value(operand, region) if known is None else known)
        if self.limits.arrays is None:
            return node.run(*inputs)
        with using(self.limits.arrays, self.limits.device):
            return node.run(*inputs)

    def merge(self) -> None:
        """Compute nodes of the same value once: it takes a look at those that are kept whole."""
        self._twins = Twins(self) if self.limits.arrays is None else None
        self._shares = False  # What twins are made of is there as long as they are

    @property
    def merged(self) -> bool:
        """Whether nodes of the same value are computed once."""
        return self._twins is not None

    def drop_parts(self) -> None:
        """Drop all but whole values."""
        self._left = {}
        self._region, self._partly = (), frozenset()
        for kept in (self._wheres, self._ready, self._uncut, self._parts, self._kept):
            kept.clear()
        self._reasons.clear()
        self._spares.clear()

    def inherit(self, other: Evaluator, nodes: Iterable[Node]) -> None:
        """Take over the whole values of nodes from an evaluator that is done with."""
        alike = self.points.keys() == other.points.keys() and all(
            np.array_equal(points, other.points[dim]) for dim, points in self.points.items()
        )
        if not alike or self.limits != other.limits:
            return
        every = {*self.fixed, *other.fixed}
        unlike = (p for p in every if self.fixed.get(p) != other.fixed.get(p))
        self._unlike = frozenset(self.grid.names[p] for p in unlike)
        whole = other._whole
        self._left = {id(node): whole[id(node)] for node in nodes if id(node) in whole}

    def keep(self, node: Node, value: Array) -> None:
        """Keep the value of a node at all points."""
        self._whole[id(node)] = value

    def _given(self, node: Node) -> Any:
        """Return what is given at the points that there are, in the arrays computed with."""
        if self.limits.arrays is None and self.points.keys().isdisjoint(node.dims):
            return self.grid.given(node)
        if id(node) not in self._whole:
            self._whole[id(node)] = self._points(node)
        return self._whole[id(node)]

    def _points(self, node: Node) -> Any:
        values = self.grid.given(node)
        assert values is not None
        for dim in node.dims & self.points.keys():
            values = values.take(self.points[dim], axis=self.grid.position(dim))
        if self.limits.arrays is None:
            return values
        with using(self.limits.arrays, self.limits.device):
            return xp.asarray(values)

    def _places_of(self, node: Node) -> tuple[int, ...]:
        positions = self._places.get(node.dims)
        if positions is None:
            positions = tuple(sorted(self.grid.position(dim) for dim in node.dims))
            self._places[node.dims] = positions
        return positions

    def _where(self, node: Node, region: Region) -> tuple[tuple[int, int], ...]:
        if region is not self._region:
            self._look_at(region)
        where = self._wheres.get(node.dims)
        if where is None:
            where = tuple([(region[p].start, region[p].stop) for p in self._places_of(node)])
            self._wheres[node.dims] = where
        return where

    def _look_at(self, region: Region) -> None:
        if region != self._region:
            ends = zip(region, self.shape, strict=True)
            partly = (p for p, (part, size) in enumerate(ends) if part.stop - part.start < size)
            self._partly, self._wheres = frozenset(partly), {}
            self._ready = dict(self._uncut.setdefault(self._partly, {}))
        self._region = region

    def _part(self, node: Node, whole: Any, region: Region) -> Any:
        """Return the part of a node's whole value; most nodes lie along what isn't cut."""
        if region is not self._region:
            self._look_at(region)
        if self._partly.isdisjoint(self._places_of(node)):
            self._uncut[self._partly][id(node)] = whole
            return whole
        return self._cut(whole, region)

    def _cut(self, whole: Any, region: Region) -> Any:
        if hasattr(whole, "shape"):
            # The whole was computed at the held points, where its length is 1 already.
            return cut(whole, region)
        if isinstance(whole, tuple):
            return tuple(self._cut(part, region) for part in whole)
        return _CutCost(whole, region).cost


class Twins:
    """Which nodes of an evaluator have the same value: one is computed for all of them.

    Nodes that are kept whole are compared by their values, and don't vary along a dimension where
    these don't; others are the same where the same is computed from the same inputs.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        # It holds these, which would otherwise keep its values until cycles are collected.
        self.evaluator: Evaluator = weakref.proxy(evaluator)
        self._known: dict[int, Node] = {}
        self._alike: dict[Any, list[Node]] = {}
        self._made: dict[Any, Node] = {}
        self._held: list[Node] = []  # A node's number isn't another's as long as it is there

    def of(self, node: Node) -> Node:
        """Return the node that is computed for a node."""
        known = self._known.get(id(node))
        if known is None:
            known = node
            if node.run is not None:
                whole = self.evaluator.small(node)
                known = self._by_value(node) if whole else self._by_inputs(node)
            self._known[id(node)] = known
        return known

    def _by_value(self, node: Node) -> Node:
        value = self.evaluator.value(node)
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            return node
        bits, grid = value.view(np.int64), self.evaluator.grid
        varying = set()
        for dim in node.dims:
            position = grid.position(dim)
            first = bits.take([0], axis=position)
            # The last tells most of the time.
            if (bits.take([-1], axis=position) != first).any() or (bits != first).any():
                varying.add(dim)
            else:
                value = value.take([0], axis=position)
                bits = value.view(np.int64)
        # Some of the values tell most of the time.
        some = bits.reshape(-1)[:: 1 + bits.size // LOOKED_AT]
        alike = self._alike.setdefault((value.shape, some.tobytes()), [])
        for known in alike:
            if np.array_equal(self.evaluator.value(known).view(np.int64), bits):
                return known
        if varying != node.dims:
            node = self._node(node, (), node.run, frozenset(varying))
            self.evaluator.keep(node, np.ascontiguousarray(value))
        alike.append(node)
        return node

    def _by_inputs(self, node: Node) -> Node:
        inputs = tuple(self.of(operand) for operand in node.inputs)
        made = node.origin.kernel if isinstance(node.origin, Formula) else node
        key = (id(made), *map(id, inputs))
        known = self._made.get(key)
        if known is None:
            known = node
            if any(map(is_not, inputs, node.inputs)):
                dims = frozenset[str]().union(*(operand.dims for operand in inputs))
                known = self._node(node, inputs, node.run, dims)
                if self.evaluator.small(known):
                    known = self._by_value(known)
            self._made[key] = known
        return known

    def _node(self, like: Node, inputs: tuple[Node, ...], run: Any, dims: frozenset[str]) -> Node:
        made = replace(like, inputs=inputs, run=run, dims=dims)
        self._held.append(made)
        self._known[id(made)] = made
        return made


class _CutCost:
    """A schedule's cost over a part of the grid."""

    def __init__(self, cost: Any, region: Region) -> None:
        def part(value: Any) -> Any:
            return cut(value, region) if getattr(value, "ndim", 0) == len(region) else value

        levels = tuple(
            replace(
                level,
                latencies=part(level.latencies),
                messages=part(level.messages),
                transfer=part(level.transfer),
                carried=part(level.carried),
            )
            for level in cost.levels
        )
        self.cost = replace(
            cost,
            steps=part(cost.steps),
            sent=part(cost.sent),
            levels=levels,
            reduced=part(cost.reduced),
        )
