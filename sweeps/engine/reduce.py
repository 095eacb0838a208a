"""Reductions of a variable along named dimensions, while its blocks stream by."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.engine.bounds import TIMED, Touched, reduce_some, sample_of
from sweeps.engine.evaluate import Limits
from sweeps.engine.front import Floats, Places, Points, front, joined, no_points, thinned
from sweeps.engine.grid import SUBJECT, Column, Layout
from sweeps.engine.program import Program, Steps
from sweeps.engine.reduce_base import (
    FEW,
    ExactSum,
    Piece,
    Reducer,
    Split,
    Task,
    over_slices,
    position,
    split,
)
from sweeps.engine.reduce_quantile import MOST_BINNED, Histogram, Quantile, is_exact
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.reduction import REDUCTIONS, Reduction, partners

Keys = NDArray[np.float64]
# Up to so many ranks a key is put in its place by comparing neighbours, beyond by sorting.
BUBBLED = 8


class Least:
    """The least so many keys of each kept cell; of equal ones, those of the first places."""

    def __init__(self, split: Split, count: int, *, greatest: bool = False) -> None:
        self.split, self.count, self.greatest = split, count, greatest
        shape = (count, *split.kept_shape)
        self.keys = np.full(shape, np.inf)
        self.places = np.full(shape, split.reduced_cells, dtype=np.int64)

    def add(self, piece: Piece) -> None:
        """Take a piece's values in; NaN is passed over."""
        region = (slice(None), *piece.where)
        keys, cells = self.keys[region], self.places[region]
        if piece.cells <= FEW and self.count <= BUBBLED:
            for point, values in piece.slices():
                absolute = tuple(map(operator.add, piece.starts, point))
                offered = -values if self.greatest else np.ascontiguousarray(values)
                put(keys, cells, offered, self.split.place(absolute))
            return
        best = -over_slices(np.fmax, piece) if self.greatest else over_slices(np.fmin, piece)
        # A piece's places are none before its first.
        first = self.split.place(piece.starts)
        better = before(best, first, keys[-1], cells[-1])
        count = np.count_nonzero(better)
        if not count:
            return
        if count == better.size:
            rows = piece.rows()
        else:
            rows = piece.values[better].reshape(count, piece.cells)
        rows = -rows if self.greatest else rows
        offered, local = candidates(rows, best[better], keys[-1][better], self.count)
        where = self.split.places(piece, local)
        where[local < 0] = self.split.reduced_cells
        keys[:, better], cells[:, better] = merged(
            keys[:, better], cells[:, better], offered, where
        )

    def merge(self, other: Least, where: tuple[slice, ...]) -> None:
        """Take in what another has found of the cells in a place."""
        here = (slice(None), *where)
        self.keys[here], self.places[here] = merged(
            self.keys[here], self.places[here], other.keys, other.places
        )

    def values(self) -> NDArray[np.float64]:
        """Return the values found, first ranks first; NaN where there is none, and no -0.0."""
        values = -self.keys if self.greatest else self.keys
        return np.where(self.places >= self.split.reduced_cells, np.nan, values + 0.0)


def before(keys: Keys, cells: Places | int, than: Keys, than_places: Places) -> NDArray[np.bool_]:
    """Return where a key comes before another: it is less, or equal and at an earlier place."""
    earlier = np.less(keys, than)
    equal = np.equal(keys, than)
    if equal.any():
        earlier |= equal & (cells < than_places)
    return earlier


def put(keys: Keys, cells: Places, offered: Keys, cell: Places | int) -> None:
    """Put one more key a cell in its place among sorted ones, in place."""
    better = before(offered, cell, keys[-1], cells[-1])
    if not better.any():
        return
    # Minimum, maximum and putmask are several times as fast as masked copies.
    np.putmask(cells[-1], better, cell)
    if len(keys) == 1:
        np.fmin(keys[-1], offered, out=keys[-1])
    else:
        np.putmask(keys[-1], better, offered)
    for rank in range(len(keys) - 1, 0, -1):
        (low, high), (first, second) = keys[rank - 1 : rank + 1], cells[rank - 1 : rank + 1]
        better = before(high, second, low, first)
        if not better.any():
            return
        keys[rank - 1], keys[rank] = np.minimum(low, high), np.maximum(low, high)
        cells[rank - 1], cells[rank] = (
            np.where(better, second, first),
            np.where(better, first, second),
        )


def candidates(
    rows: NDArray[np.float64], least: Keys, bar: Keys, count: int
) -> tuple[Keys, Places]:
    """Return the keys of each row that may be among its least."""
    if count == 1:
        column = (rows == least[:, np.newaxis]).argmax(axis=1)
        return least[np.newaxis], column[np.newaxis]
    wanted = min(count, rows.shape[1])
    if wanted < rows.shape[1]:
        last = np.partition(rows, wanted - 1, axis=1)[:, wanted - 1]
        bar = np.fmin(bar, last)
    row, column = np.nonzero(rows <= bar[:, np.newaxis])
    keys = rows[row, column]
    # Stable, so that of equal keys the first columns stay first.
    order = np.lexsort((keys, row))
    row, column, keys = row[order], column[order], keys[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    kept = rank < wanted
    best = np.full((wanted, len(rows)), np.inf)
    where = np.full(best.shape, -1, dtype=np.int64)
    best[rank[kept], row[kept]] = keys[kept]
    where[rank[kept], row[kept]] = column[kept]
    return best, where


def merged(keys: Keys, cells: Places, offered: Keys, offered_places: Places) -> tuple[Keys, Places]:
    """Return the least of two sorted tables (a row a rank), as many as before."""
    if len(keys) <= BUBBLED:
        keys, cells = keys.copy(), cells.copy()
        for key, offered_place in zip(offered, offered_places, strict=True):
            put(keys, cells, key, offered_place)
        return keys, cells
    both = np.concatenate([keys, offered])
    both_places = np.concatenate([cells, offered_places])
    order = np.lexsort((both_places, both), axis=0)[: len(keys)]
    return np.take_along_axis(both, order, 0), np.take_along_axis(both_places, order, 0)


# The least or greatest values along dimensions, and where they are.

PLACE = {"min": "at the {}", "max": "at the {}", "top": "of each of the {} values of"}


class Extremes(Reducer):
    """``min``, ``max`` and ``top``: values, each with its coordinates along what is reduced.

    Of equal values the first in lexicographic order of the reduced dimensions counts, as the
    variable orders them.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        operation = task.reduction.operation
        count = min(task.reduction.count, task.split.reduced_cells) if operation == "top" else 1
        self._least = Least(task.split, count, greatest=self._greatest)

    @property
    def _greatest(self) -> bool:
        asked = self.task.reduction
        return asked.operation == "max" or asked.quantity in asked.greatest

    @property
    def _rank(self) -> str:
        return f"{self.task.name}_rank" if self.task.reduction.operation == "top" else ""

    def _take(self, piece: Piece) -> None:
        self._least.add(piece)

    def _absorb(self, other: Extremes, where: tuple[slice, ...]) -> None:
        self._least.merge(other._least, where)

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"keys": self._least.keys, "places": self._least.places}

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._least.keys, self._least.places = state["keys"], state["places"]

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task, quantity = self.task, self.task.quantity(attrs)
        degree = "greatest" if self._greatest else "least"
        values_of = " values of" if self._rank else ""
        long_name = f"{degree}{values_of} {quantity} over {task.over}"
        comment = "Of equal values the first counts."
        columns = [
            self._column(self._least.values(), task.name, task.attrs(attrs, long_name, comment))
        ]
        for dim, index in task.split.indices(self._least.places).items():
            title = f"{dim} {PLACE[task.reduction.operation].format(degree)} {quantity}"
            values, attributes = position(task, dim, index, title)
            columns.append(self._column(values, f"{task.name}_{dim}", attributes))
        return columns if not self._rank else [*columns, self._ranks(quantity)]

    def _ranks(self, quantity: str) -> Column:
        ranks = np.arange(1, self._least.count + 1, dtype=np.int32)
        first = "greatest" if self._greatest else "least"
        attributes = {"long_name": f"rank by {quantity}, the {first} first", "units": "1"}
        return Column(self._rank, (self._rank,), ranks.dtype, attributes, ranks)

    def _column(self, values: NDArray[Any], name: str, attrs: Mapping[str, Any]) -> Column:
        if self._rank:
            return self.task.column(np.moveaxis(values, 0, -1), name, attrs, self._rank)
        return self.task.column(values[0], name, attrs)


# The mean along dimensions, of an exact sum.


class Mean(Reducer):
    """``mean``: the exact sum, rounded to float64, divided by the number of cells.

    With an infinite cell the mean is infinite, with both infinities NaN.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._sum = ExactSum(task.split.kept_shape)
        self._count = np.zeros(task.split.kept_shape, dtype=np.int64)
        # How many cells are infinite, by sign; kept only where that happens.
        self._infinite: dict[float, NDArray[np.int64]] = {}

    def _take(self, piece: Piece) -> None:
        values = piece.values
        # One pass each, without temporaries: NaN and infinities show in the extremes.
        if math.isfinite(values.max()) and math.isfinite(values.min()):
            self._count[piece.where] += piece.cells
            self._sum.add(piece)
            return
        axes = tuple(range(len(piece.where), values.ndim))
        self._count[piece.where] += np.count_nonzero(~np.isnan(values), axis=axes)
        for sign in (np.inf, -np.inf):
            equal = values == sign
            if equal.any():
                self._of(sign)[piece.where] += np.count_nonzero(equal, axis=axes)
        finite = np.where(np.isfinite(values), values, 0.0)
        self._sum.add(Piece(piece.where, piece.starts, piece.extents, finite))

    def _absorb(self, other: Mean, where: tuple[slice, ...]) -> None:
        self._sum.merge(other._sum, where)
        self._count[where] += other._count
        for sign, count in other._infinite.items():
            self._of(sign)[where] += count

    def _state(self) -> dict[str, NDArray[Any]]:
        infinite = {f"infinite.{sign}": count for sign, count in self._infinite.items()}
        return {"count": self._count, **infinite, **self._sum.state()}

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._count = state["count"]
        self._infinite = {
            sign: state[f"infinite.{sign}"]
            for sign in (np.inf, -np.inf)
            if f"infinite.{sign}" in state
        }
        self._sum.restore(state)

    def _of(self, sign: float) -> NDArray[np.int64]:
        if sign not in self._infinite:
            self._infinite[sign] = np.zeros(self._count.shape, dtype=np.int64)
        return self._infinite[sign]

    def _mean(self) -> NDArray[np.float64]:
        numbers, exponents = self._sum.rounded()
        with np.errstate(all="ignore"):
            total = np.ldexp(numbers, exponents)
            # A sum may be too large for float64 where the mean isn't.
            mean = np.where(
                np.isfinite(total),
                total / self._count,
                np.ldexp(numbers / self._count, exponents),
            )
            for sign, count in self._infinite.items():
                mean = np.where(count > 0, mean + sign, mean)
        return np.where(self._count == 0, np.nan, mean)

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task = self.task
        long_name = f"mean {task.quantity(attrs)} over {task.over}"
        comment = "The sum is exact, rounded once, then divided by the number of cells."
        count = {"long_name": f"number of cells in the {long_name}", "units": "1"}
        return [
            task.column(self._mean(), task.name, task.attrs(attrs, long_name, comment)),
            task.column(self._count.copy(), f"{task.name}_count", count),
        ]


# Cells of a piece that are looked at together.
AT_ONCE = 1 << 18


class Pareto(Reducer):
    """``pareto``: values of two quantities that no other cell has both of better.

    Of cells that are equal in both the first in lexicographic order of the reduced dimensions
    counts, as the variable orders them.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        names = task.reduction.quantity, task.reduction.against
        self._signs = tuple(-1.0 if name in task.reduction.greatest else 1.0 for name in names)
        self._points = no_points()

    def update(
        self,
        region: Sequence[slice],
        values: NDArray[Any],
        partners: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take a block in, with the other quantity's values at the same cells."""
        other = np.asarray((partners or {})[self.task.reduction.against], dtype=np.float64)
        first = self.task.split.piece(region, self.counted(values, partners))
        second = self.task.split.piece(region, other)
        if first.values.size:
            self._seen += first.values.size
            self._gather(first, second)

    def _gather(self, first: Piece, second: Piece) -> None:
        """Take in the front of each row of a piece, some rows or part of a row at a time."""
        kept = np.arange(self.task.split.kept_cells).reshape(self.task.split.kept_shape)
        cells = kept[first.where].ravel()
        rows, others = first.rows(), second.rows()
        step = max(1, AT_ONCE // max(1, first.cells))
        for start in range(0, len(cells), step):
            for left in range(0, first.cells, AT_ONCE):
                part = slice(start, start + step), slice(left, left + AT_ONCE)
                best = self._candidates(cells[part[0]], rows[part], others[part])
                local = best[3] + left
                where = self.task.split.places(first, local)
                self._points = front(joined(self._points, (*best[:3], where)))

    def _candidates(self, cells: Places, rows: Floats, others: Floats) -> Points:
        """Return the front of each row, with columns for places."""
        # What has both is a point; and 0 has one sign.
        first, two = (
            sign * values + 0.0 for sign, values in zip(self._signs, (rows, others), strict=True)
        )
        some = ~(np.isnan(first) | np.isnan(two))
        for best in (first, two):
            some &= ~_beaten(first, two, np.where(some, best, np.inf))
        row, column = np.nonzero(some)
        return front((cells[row], first[row, column], two[row, column], column.astype(np.int64)))

    def _take(self, piece: Piece) -> None:
        raise NotImplementedError  # both quantities come by `update`

    def _absorb(self, other: Pareto, where: tuple[slice, ...]) -> None:
        kept = np.arange(self.task.split.kept_cells).reshape(self.task.split.kept_shape)
        cells = kept[where].ravel()
        theirs = (cells[other._points[0]], *other._points[1:])
        self._points = front(joined(self._points, theirs))

    def _state(self) -> dict[str, NDArray[Any]]:
        return dict(zip(("cells", "first", "second", "places"), self._points, strict=True))

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._points = state["cells"], state["first"], state["second"], state["places"]

    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        task, name = self.task, self.task.name
        cells, first, second, positions = thinned(self._points, task.reduction.count)
        rank = np.arange(len(cells)) - np.searchsorted(cells, cells)
        length = int(rank.max()) + 1 if len(rank) else 1
        shape = task.split.kept_cells, length
        point = f"{name}_point"
        columns = []
        pairs = zip(self._signs, (first, second), self._described(attrs), strict=True)
        for sign, keys, (quantity, attributes_of) in pairs:
            values = np.full(shape, np.nan)
            values[cells, rank] = sign * keys + 0.0
            long_name = (
                f"{attributes_of.get('long_name', quantity)} on the Pareto front over {task.over}"
            )
            attributes = task.attrs(
                attributes_of, long_name, "Of cells equal in both quantities the first counts."
            )
            columns.append(task.column(values, f"{name}_{quantity}", attributes, point))
        index = np.full(shape, task.split.reduced_cells, dtype=np.int64)
        index[cells, rank] = positions
        for dim, row in task.split.indices(index).items():
            values, attributes = position(task, dim, row, f"{dim} on the Pareto front")
            columns.append(task.column(values, f"{name}_{dim}", attributes, point))
        numbers = np.arange(1, length + 1, dtype=np.int32)
        attributes = {
            "long_name": f"point of the front, best {task.reduction.quantity} first",
            "units": "1",
        }
        return [*columns, Column(point, (point,), numbers.dtype, attributes, numbers)]

    def _described(self, attrs: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        against = self.task.reduction.against
        return [(self.task.reduction.quantity, attrs), (against, VOCABULARY[against].attrs())]


def _beaten(left: Floats, two: Floats, best: Floats) -> NDArray[np.bool_]:
    """Return which cells are worse in both keys than the cell of their row with the best key."""
    column = np.argmin(best, axis=1)[:, np.newaxis]
    first, second = (np.take_along_axis(each, column, axis=1) for each in (left, two))
    return (left > first) & (two > second)


KINDS: Mapping[str, type[Reducer]] = {
    "min": Extremes,
    "max": Extremes,
    "top": Extremes,
    "mean": Mean,
    "quantile": Quantile,
    "histogram": Histogram,
    "pareto": Pareto,
}


def reducer(
    reduction: Reduction,
    variable_dims: Sequence[str],
    sizes: Mapping[str, int],
    labels: Mapping[str, Column | Sequence[str] | NDArray[Any] | None],
) -> Reducer:
    """Make a reducer for a variable."""
    task = task_of(reduction, variable_dims, sizes, labels)
    return KINDS[reduction.operation](task)


def part(task: Task, where: Sequence[slice]) -> Reducer:
    """Make a reducer of a part of a task's results, to be merged into the whole one."""
    narrowed = replace(task, split=task.split.within(where), whole=task.split)
    return KINDS[task.reduction.operation](narrowed)


def task_of(
    reduction: Reduction,
    variable_dims: Sequence[str],
    sizes: Mapping[str, int],
    labels: Mapping[str, Column | Sequence[str] | NDArray[Any] | None],
) -> Task:
    """Return what a reducer is to do, as `reducer` takes it."""
    faults = _faults(reduction, sizes)
    parts = split(variable_dims, sizes, reduction.over)
    if not faults:
        faults = _too_large(reduction, parts)
    if faults:
        raise InputError(faults)
    return Task(
        reduction,
        parts,
        {
            dim: _coordinate(dim, given)
            for dim in parts.reduced_dims
            if (given := labels.get(dim)) is not None
        },
        tuple(dim for dim in reduction.over if dim not in parts.reduced_dims),
    )


def _coordinate(dim: str, given: Column | Sequence[str] | NDArray[Any]) -> Column:
    if isinstance(given, Column):
        return given
    values = np.asarray(given)
    text = values.dtype.kind in "UOST"
    attrs: dict[str, str] = {} if text else {"units": "1"}
    if not text and dim in VOCABULARY:
        attrs = VOCABULARY[dim].attrs()
    return Column(dim, (dim,), values.dtype, attrs, values)


def _faults(reduction: Reduction, sizes: Mapping[str, int]) -> list[str]:
    operation = reduction.operation
    faults = []
    if operation not in KINDS:
        offer = nearest(operation, REDUCTIONS)
        faults.append(fault("reductions.operation", operation, "unknown", offer))
    faults += [
        fault("reductions.over", dim, "not an axis", nearest(dim, sizes))
        for dim in reduction.over
        if dim not in sizes
    ]
    if operation == "top" and reduction.count < 1:
        faults.append(fault("reductions.count", reduction.count, "nothing to find", "1 or more"))
    if operation == "quantile":
        if not reduction.quantiles:
            faults.append(fault("reductions.quantiles", "[]", "empty", "numbers from 0 to 1"))
        faults += [
            fault("reductions.quantiles", q, "no quantile", "numbers from 0 to 1")
            for q in reduction.quantiles
            if not 0.0 <= q <= 1.0
        ]
    return faults


def _too_large(reduction: Reduction, parts: Split) -> list[str]:
    binned = reduction.operation == "histogram" or (
        reduction.operation == "quantile" and not is_exact(parts)
    )
    if not binned or parts.kept_cells <= MOST_BINNED:
        return []
    wrong = f"{reduction.name} has {parts.kept_cells} cells, and counts in bins for each"
    allowed = f"at most {MOST_BINNED}: reduce over more dimensions"
    return [fault("reductions.over", ", ".join(reduction.over), wrong, allowed)]


# All reductions of a sweep together: made, fed with a program's blocks, and turned into columns.


def reducers_of(program: Program, reductions: Sequence[Reduction], layout: Layout) -> list[Reducer]:
    """Return an empty reducer for each reduction, in their order."""
    dims = {variable.name: variable.dims for variable in program.variables}
    labels = {column.name: column for column in layout.coordinates}
    faults = [
        fault(
            "reductions.against",
            reduction.against,
            f"varies along {', '.join(more)}, and {reduction.quantity} doesn't",
            "the two the other way round, or another one",
        )
        for reduction in reductions
        if reduction.against
        and (more := [d for d in dims[reduction.against] if d not in dims[reduction.quantity]])
    ]
    for asked_reduction in reductions:
        where = program.of(asked_reduction.quantity).dims_of(asked_reduction.where)
        more = [dim for dim in where if dim not in dims[asked_reduction.quantity]]
        if more:
            wrong = f"varies along {', '.join(more)}, and {asked_reduction.quantity} doesn't"
            faults.append(
                fault("reductions.where", asked_reduction.where, wrong, "another quantity")
            )
    if faults:
        raise InputError(faults)
    return [
        reducer(reduction, dims[reduction.quantity], program.grid.sizes, labels)
        for reduction in reductions
    ]


def feed(
    program: Program,
    reducers: Sequence[Reducer],
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Touched, ...]:
    """Compute what is reduced, and reduce it; return what bounds left out of it."""
    by_quantity: dict[str, list[Reducer]] = {}
    for made in reducers:
        by_quantity.setdefault(made.task.reduction.quantity, []).append(made)
    pairs = partners([made.task.reduction for made in reducers])
    steps = Steps(program, tuple(by_quantity), limits, pairs)
    shapes = {variable.name: program.shape(variable) for variable in program.variables}
    total, done = sum(math.prod(shapes[name]) for name in by_quantity), 0

    def take(number: int) -> None:
        nonlocal done
        for block in steps.run(number, number + 1):
            for made in by_quantity[block.name]:
                made.update(block.region, block.values, block.partners)
            done += block.values.size
            if progress is not None:
                progress(done, total)

    # What is computed to see how long everything takes needn't be computed again.
    taken, seconds = set(sample_of(steps)), 0.0
    for number in sorted(taken):
        start = time.perf_counter()
        take(number)
        seconds += (time.perf_counter() - start) * (number > 0)
    left = dict(by_quantity)
    touched = reduce_some(program, left, seconds * len(steps) / TIMED)
    if touched:
        for made in (made for several in left.values() for made in several):
            made.restore(type(made)(made.task).state())
        steps, by_quantity, taken = Steps(program, tuple(left), limits, pairs), left, set()
        total, done = sum(math.prod(shapes[name]) for name in left), 0
    for number in range(len(steps)):
        if number not in taken:
            take(number)
    return touched


def reduced_columns(reducers: Sequence[Reducer], layout: Layout) -> list[Column]:
    """Return the reductions' results."""
    described = {column.name: column for column in layout.variables}
    columns: list[Column] = []
    for made in reducers:
        attrs = dict(described[made.task.reduction.quantity].attrs)
        attrs.pop("ancillary_variables", None)
        subject = {SUBJECT: attrs[SUBJECT]} if SUBJECT in attrs else {}
        columns += (
            replace(column, attrs={**column.attrs, **subject}) for column in made.columns(attrs)
        )
    return columns
