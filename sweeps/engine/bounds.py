"""Exact extremes and fronts without computing most cells: boxes are bounded, halved, and left out.

Discrete axes stay points; reduced axes of continuous quantities become intervals, on which the
same kernels give bounds (`sweeps.engine.interval`).  A box whose best possible value, at its first
place, comes after what is known already holds nothing of the answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead import choose
from overhead.graph import Node
from overhead.quantity import VOCABULARY
from overhead.recording import RecordingError, recording
from sweeps.engine import interval
from sweeps.engine.evaluate import Cuts, settings
from sweeps.engine.front import Floats, Places
from sweeps.engine.grid import LabelCase, Variable, cut
from sweeps.engine.interval import Best, Boxes, Front, Interval, cells_of, halved
from sweeps.engine.program import Program, Steps

Progress = Callable[[int, int], None]

# Boxes of a pass, and discrete points of the first ones, an open grid: some 100 MB of values.
BOXES, POINTS = 1 << 13, 1 << 16
# Seconds of computing everything below which a pass of so many points would take too much of them.
LONG = 60.0
# Boxes of no more cells are computed.
SMALL = 8
# Boxes that wait; beyond, they are worked off before more are made.
WAITING = 1 << 20
# Kept boxes of no more cells are computed: halving them again would take as long.
KEPT_SMALL, KEPT_LEAST = 16, 8
# Cells of boxes that are computed at once.
CELLS = 1 << 20
# Seconds of bounding from which what is found is kept, and the most results it may have.
LASTING, KEPT_RESULTS = 10.0, 1 << 16
# Seconds of computing everything from which it is worth trying, and the share of them that the
# trial, and all that comes of it, may take.
WORTH, TRIAL, SHARE = 3.0, 0.05, 0.12
BOUNDED = ("min", "max", "top", "pareto")
INSTEAD: dict[Any, Callable[..., Any]] = {
    choose.best_of: interval.best_of,
    choose.select: interval.select,
}


class Touched(NamedTuple):
    """What a reduction took."""

    name: str  # The reduction's
    cells: int  # Cells that were computed
    boxes: int  # Boxes that were bounded
    total: int  # Cells there are

    @property
    def words(self) -> str:
        """What was computed of how many."""
        done = f"{self.name}: {self.cells:,} of {self.total:,} cells were computed"
        return f"{done}; bounds of {self.boxes:,} boxes leave out the others, exactly"


class Abandoned(Exception):
    """Bounds leave out too little, or can't be had: everything is computed."""


class Work:
    """One variable under one set of labels: what is bounded, what is computed, where."""

    def __init__(
        self,
        program: Program,
        case: LabelCase,
        variable: Variable,
        task: Any,
        axes: Sequence[str],
        *,
        kept: bool = False,
    ) -> None:
        # Where the continuous axes are kept, upper bounds are asked for, too.
        self.upper = kept
        self.program, self.case, self.grid = program, case, program.grid
        self.split = task.split
        asked = task.reduction
        self.signs = [
            -1.0 if asked.operation == "max" or name in asked.greatest else 1.0
            for name in asked.quantities
        ]
        self.nodes, self.status = [case.nodes[name] for name in asked.quantities], case.status
        self.mask = 0
        for name in asked.quantities:
            self.mask |= program.faults.masking(name)
        self.condition = asked.where
        if self.condition:
            # A condition is one more value, of which only 1 will do.
            self.nodes.append(case.nodes[self.condition])
            self.mask |= program.faults.masking(self.condition)
        self.order = _ordered([*self.nodes, self.status])
        dims = variable.dims
        self.dims = [self.grid.position(dim) for dim in dims]
        self.axes = [self.grid.position(dim) for dim in axes]
        self.points = [position for position in self.dims if position not in self.axes]
        self.lengths = [1 if p in case.fixed else self.grid.shape[p] for p in self.points]
        self.runs = np.array([self.grid.shape[p] for p in self.axes], dtype=np.int64)
        # Of each of the variable's dimensions: how far apart results, and places, lie along it.
        names = [dims[axis] for axis in self.split.kept_axes]
        reach = [math.prod(self.split.kept_shape[n + 1 :]) for n in range(len(names))]
        self.results = dict(zip(names, reach, strict=True))
        self.strides = dict(zip(self.split.reduced_dims, self.split.strides, strict=True))
        self.bounded = self.computed = 0
        self.most = POINTS  # Discrete points of a pass
        self.check: Callable[[], float] = lambda: 0.0  # Called after each pass, may give up

    def index(self, point: Places) -> dict[int, Places]:
        """Return the index along each discrete dimension."""
        unravelled = np.unravel_index(point, self.lengths) if self.lengths else ()
        index = dict(zip(self.points, unravelled, strict=True))
        fixed = {
            position: np.full(len(point), piece.start)
            for position, piece in self.case.fixed.items()
        }
        return {position: np.asarray(values) for position, values in (index | fixed).items()}

    def where(self, point: Places, starts: Places) -> tuple[Places, Places]:
        """Return results, and places in canonical order, of cells."""
        index = self.index(point) | dict(zip(self.axes, starts, strict=True))
        result, offset = np.zeros((2, len(point)), dtype=np.int64)
        for position, indices in index.items():
            name = self.grid.names[position]
            result += indices * self.results.get(name, 0)
            offset += indices * self.strides.get(name, 0)
        return result, offset

    # Values.

    def _given(
        self, index: Mapping[int, Places], starts: Places, stops: Places | None
    ) -> Callable[[Node], Any]:
        """Return what gives given nodes, a box each along the first dimension."""
        shape = (-1, *(1,) * (self.grid.ndim - 1))
        positions = dict(zip(self.axes, range(len(self.axes)), strict=True))

        def given(node: Node) -> Any:
            column = self.grid.given(node)
            assert column is not None
            varying = [p for p, length in enumerate(column.shape) if length > 1]
            if not varying:
                return column
            if len(varying) == 1 and varying[0] in positions:
                values, at = column.reshape(-1), positions[varying[0]]
                low = values[starts[at]].reshape(shape)
                if stops is None:
                    return low
                high = values[stops[at] - 1].reshape(shape)
                if node.name in self.falling:
                    low, high = high, low
                return Interval(low, high)
            every = tuple(
                0
                if p not in varying
                else starts[positions[p]]
                if p in positions
                else index.get(p, 0)
                for p in range(self.grid.ndim)
            )
            return column[every].reshape(shape)

        return given

    @property
    def falling(self) -> set[str]:
        """The columns of continuous axes whose values fall along them."""
        axes = (self.grid.axes[position] for position in self.axes)
        return {
            name
            for axis in axes
            for name, values in axis.columns.items()
            if len(values) > 1 and values[0] > values[-1]
        }

    def evaluated(self, given: Callable[[Node], Any]) -> tuple[list[Any], Any]:
        """Return the variables and their status where given nodes have some values."""
        known: dict[int, Any] = {}
        for node, done in self.order:
            if node.run is None:
                known[id(node)] = given(node)
            else:
                values = [known[id(operand)] for operand in node.inputs]
                run: Any = node.run
                if run in INSTEAD and any(map(is_bounded, values)):
                    run = INSTEAD[run]
                known[id(node)] = run(*values)
            for spent in done:
                known.pop(spent, None)
        return [known[id(node)] for node in self.nodes], known[id(self.status)]

    def bounds(self, given: Callable[[Node], Any], shape: Sequence[int]) -> Floats:
        """Return what no value comes before; infinity where there surely is none."""
        with settings(self.grid.shape[-1]), recording():
            values, reasons = self.evaluated(given)
        status, parts = interval.of(reasons), []
        never = (status.low & self.mask) != 0
        sure = np.ones((1,) * self.grid.ndim, dtype=np.bool_)
        if self.condition:
            value = interval.of(values.pop())
            never, sure = never | (value.high < 1.0), value.low == 1.0
        for sign, bounded in zip(self.signs, map(interval.of, values), strict=True):
            bound = bounded.low if sign > 0.0 else -bounded.high
            if bounded.nan is not None:
                # What may be no number may be any.
                bound = np.where(bounded.nan, -np.inf, bound)
            bound = np.where(np.isnan(bound), -np.inf, bound)
            parts.append(np.broadcast_to(np.where(never, np.nan, bound), shape).reshape(-1))
            if self.upper:
                most = bounded.high if sign > 0.0 else -bounded.low
                doubt = ((status.high & self.mask) != 0) | ~sure | np.isnan(most)
                doubt = doubt if bounded.nan is None else doubt | bounded.nan
                parts.append(np.broadcast_to(np.where(doubt, np.inf, most), shape).reshape(-1))
        return np.stack(parts)

    def of_boxes(self, boxes: Boxes) -> Boxes:
        """Return boxes with their bounds."""
        if not len(boxes):
            return boxes
        parts = []
        trailing = (1,) * (self.grid.ndim - 1)
        for first in range(0, len(boxes), BOXES):
            some = boxes.take(slice(first, first + BOXES))
            given = self._given(self.index(some.point), some.starts, some.stops)
            parts.append(self.bounds(given, (len(some), *trailing)))
            self.check()
        self.bounded += len(boxes)
        made = Boxes(boxes.point, boxes.starts, boxes.stops, np.concatenate(parts, axis=1))
        return made.take(~np.isnan(made.bound[0]))

    def cells(self, point: Places, starts: Places) -> Floats:
        """Return the keys of cells, as the engine computes them; NaN where there is none."""
        table = np.empty((len(self.signs), len(point)))
        for first in range(0, len(point), BOXES):
            part = slice(first, first + BOXES)
            given = self._given(self.index(point[part]), starts[:, part], None)
            with settings(self.grid.shape[-1]):
                values, status = self.evaluated(given)
            shape = (len(point[part]), *(1,) * (self.grid.ndim - 1))
            there = (np.broadcast_to(status, shape) & self.mask) == 0
            if self.condition:
                there &= np.broadcast_to(values.pop(), shape) == 1.0
            for row, sign, value in zip(table, self.signs, values, strict=True):
                masked = np.where(there, np.broadcast_to(value, shape), np.nan)
                row[part] = sign * masked.reshape(-1)
            self.check()
        self.computed += len(point)
        return table

    # The first boxes: each discrete point with all of the continuous axes.

    def parts(self) -> Sequence[tuple[slice, ...]]:
        """Return parts of the discrete points, as slices along their dimensions."""
        return Cuts(self.lengths, self.most) if self.lengths else [()]

    def roots(self, part: Sequence[slice]) -> Boxes:
        """Return the boxes of some discrete points."""
        pieces = {
            position: slice(self.case.fixed[position].start, self.case.fixed[position].stop)
            if position in self.case.fixed
            else piece
            for position, piece in zip(self.points, part, strict=True)
        }
        region = tuple(
            slice(0, self.grid.shape[p])
            if p in self.axes
            else pieces.get(p, self.case.fixed.get(p, slice(0, 1)))
            for p in range(self.grid.ndim)
        )
        shape = [
            1 if p in self.axes else piece.stop - piece.start for p, piece in enumerate(region)
        ]

        def given(node: Node) -> Any:
            column = self.grid.given(node)
            assert column is not None
            varying = {p for p, length in enumerate(column.shape) if length > 1}
            if varying & set(self.axes):
                ends = sorted(column.reshape(-1)[[0, -1]])
                return Interval(*(np.full((1,) * self.grid.ndim, end) for end in ends))
            return cut(column, region)

        bound = self.bounds(given, shape)
        # The grid's order of dimensions is that of the points.
        count = bound.shape[1]
        mine = [piece.stop - piece.start for piece in part]
        index = np.unravel_index(np.arange(count), mine) if mine else ()
        absolute = [offset + piece.start for offset, piece in zip(index, part, strict=True)]
        point = (
            np.ravel_multi_index(absolute, self.lengths).astype(np.int64)
            if absolute
            else np.zeros(count, dtype=np.int64)
        )
        starts = np.zeros((len(self.axes), count), dtype=np.int64)
        stops = np.repeat(self.runs[:, np.newaxis], count, axis=1)
        self.bounded += count
        return Boxes(point, starts, stops, bound).take(~np.isnan(bound[0]))


def is_bounded(value: Any) -> bool:
    """Whether a value, or the pair that a choice gives, is an interval."""
    return isinstance(value, Interval) or (
        isinstance(value, tuple) and any(isinstance(item, Interval) for item in value)
    )


def _ordered(targets: Sequence[Node]) -> list[tuple[Node, list[int]]]:
    """Return nodes, each after what it takes, with those that nothing takes any more."""
    order: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) in order:
            return
        for operand in node.inputs:
            visit(operand)
        order[id(node)] = node

    for target in targets:
        visit(target)
    last = {id(operand): id(node) for node in order.values() for operand in node.inputs}
    done: dict[int, list[int]] = {}
    keep = {id(target) for target in targets}
    for key, user in last.items():
        if key not in keep:
            done.setdefault(user, []).append(key)
    return [(node, done.get(key, [])) for key, node in order.items()]


# The search.


def continuous(program: Program, dims: Sequence[str]) -> list[str]:
    """Return those of some dimensions that may become intervals."""
    grid, names = program.grid, []
    shared = {dim for dims, _ in grid.fields.values() for dim in dims}
    for dim in dims:
        axis = grid.axes[grid.position(dim)]
        numbers = [values for values in axis.columns.values() if values.dtype.kind == "f"]
        if axis.switching or dim in shared or len(axis) < 2 or len(numbers) < len(axis.columns):
            continue
        steps = [np.diff(values) for values in numbers]
        rising = all((step >= 0).all() or (step <= 0).all() for step in steps)
        if rising and not all(
            name in VOCABULARY and VOCABULARY[name].integer for name in axis.columns
        ):
            names.append(dim)
    return names


def search(
    work: Work, best: Best | Front, stop: Callable[[int, int], None], some: range | None = None
) -> None:
    """Find the best cells of a variable under one set of labels; of some of its parts.

    `stop` is told how many of how many discrete points have been bounded, and may raise
    `Abandoned`.
    """
    waiting: list[Boxes] = []
    count, done, total = 0, 0, math.prod(work.lengths)

    def go_on() -> None:
        stop(done, total)

    parts = work.parts()
    for part in (parts[at] for at in some or range(len(parts))):
        boxes = _left(work, best, work.roots(part))
        _try(work, best, boxes)
        boxes = _left(work, best, boxes)
        done += math.prod(piece.stop - piece.start for piece in part)
        if len(boxes):
            waiting.append(boxes)
            count += len(boxes)
        go_on()
        if count > WAITING:
            _work_off(work, best, waiting, go_on)
            waiting, count = [], 0
    _work_off(work, best, waiting, go_on)


def search_kept(work: Work, best: Best, stop: Callable[[int, int], None]) -> None:
    """Find the best cells at each point of kept continuous axes.

    A discrete choice is left out over a whole box of results where as many others as are asked for
    are better at all of its points: its lower bound lies above their upper ones.
    """
    rest: list[Boxes] = []
    done, total = 0, math.prod(work.lengths)
    edge = Best(math.prod(work.split.kept_shape), best.count, total)
    for part in work.parts():
        boxes = work.roots(part)
        result, _ = work.where(boxes.point, boxes.starts)
        edge.add(result, boxes.bound[1:], boxes.point)
        rest.append(boxes.take(boxes.bound[0] <= edge.keys[result, -1]))
        if sum(map(len, rest)) > WAITING:
            raise Abandoned
        done += math.prod(piece.stop - piece.start for piece in part)
        stop(done, total)
    stack = [_grouped(work, Boxes.joined(rest), best.count)] if sum(map(len, rest)) else []
    while stack:
        boxes, group = stack.pop()
        if len(boxes) > BOXES:
            # The boxes of a result stay together.
            end = int(np.searchsorted(group, group[BOXES], side="left")) or int(
                np.searchsorted(group, group[BOXES], side="right")
            )
            if end < len(boxes):
                stack.append((boxes.take(slice(end, None)), group[end:]))
                boxes, group = boxes.take(slice(0, end)), group[:end]
        alone = np.bincount(group - group[0])[group - group[0]] <= best.count
        small = (boxes.cells <= KEPT_SMALL) | (alone & (boxes.cells <= BOXES))
        _compute_all(work, best, boxes.take(small))
        boxes = boxes.take(~small)
        if len(boxes):
            boxes, group = _grouped(work, work.of_boxes(halved(boxes)), best.count)
            stack += [(boxes, group)] if len(boxes) else []
        stop(total, total)


def _grouped(work: Work, boxes: Boxes, count: int) -> tuple[Boxes, Places]:
    """Return boxes, those of a result together, without those that others are better than."""
    result, _ = work.where(boxes.point, boxes.starts)
    _, group = np.unique(result, return_inverse=True)
    edge = Best(int(group.max(initial=-1)) + 1, count, math.prod(work.lengths))
    edge.add(group, boxes.bound[1:], boxes.point)
    some = boxes.bound[0] <= edge.keys[group, -1]
    order = np.flatnonzero(some)[np.argsort(group[some], kind="stable")]
    return boxes.take(order), group[order]


def _compute_all(work: Work, best: Best, boxes: Boxes) -> None:
    """Compute all cells of boxes, so many at once."""
    ends = np.cumsum(boxes.cells)
    cuts = np.searchsorted(ends, np.arange(CELLS, int(ends[-1:].sum()), CELLS))
    for some in np.split(np.arange(len(boxes)), cuts):
        if len(some):
            _compute(work, best, *cells_of(boxes.take(some)))


def _left(work: Work, best: Best | Front, boxes: Boxes) -> Boxes:
    """Return the boxes that may hold something that isn't known yet."""
    if not len(boxes):
        return boxes
    result, first = work.where(boxes.point, boxes.starts)
    return boxes.take(~best.beats(result, boxes.bound, first))


def _try(work: Work, best: Best | Front, boxes: Boxes) -> None:
    """Compute cells at the ends of the most promising boxes of each result."""
    if not len(boxes):
        return
    result, _ = work.where(boxes.point, boxes.starts)
    chosen = boxes.take(best.promising(result, boxes.bound))
    ends = list(product((0, 1), repeat=len(work.axes)))
    chosen = chosen.take(slice(0, max(1, BOXES // len(ends))))
    corners = [
        np.array(
            [(chosen.stops[at] - 1 if end else chosen.starts[at]) for at, end in enumerate(corner)]
        )
        for corner in ends
    ]
    point = np.tile(chosen.point, len(ends))
    starts = np.concatenate(corners, axis=1)
    _compute(work, best, point, starts)


def _compute(work: Work, best: Best | Front, point: Places, starts: Places) -> None:
    keys = work.cells(point, starts)
    there = ~np.isnan(keys).any(axis=0)
    result, offset = work.where(point[there], starts[:, there])
    best.add(result, keys[:, there], offset)


def _work_off(
    work: Work, best: Best | Front, waiting: list[Boxes], stop: Callable[[], None]
) -> None:
    """Halve boxes and compute small ones until none is left, the most promising first."""
    if not waiting:
        return
    ways = 1 << len(work.axes)
    size = max(1, BOXES // ways)
    boxes = Boxes.joined(waiting)
    boxes = boxes.take(np.argsort(-boxes.bound[0], kind="stable"))
    stack = [boxes]  # The most promising last
    while stack:
        boxes = stack.pop()
        if len(boxes) > size:
            stack.append(boxes.take(slice(0, len(boxes) - size)))
            boxes = boxes.take(slice(len(boxes) - size, len(boxes)))
        boxes = _left(work, best, boxes)
        if not len(boxes):
            continue
        small = boxes.cells <= SMALL
        if small.any():
            _compute(work, best, *cells_of(boxes.take(small)))
            boxes = boxes.take(~small)
        if not len(boxes):
            continue
        boxes = _left(work, best, work.of_boxes(halved(boxes)))
        _try(work, best, boxes)
        boxes = _left(work, best, boxes)
        if len(boxes):
            stack.append(boxes.take(np.argsort(-boxes.bound[0], kind="stable")))
        stop()


# Whether it is worth it.


def reduce(
    program: Program,
    reducers: Sequence[Any],
    seconds: float,
    progress: Progress | None = None,
    *,
    kept: bool = False,
) -> tuple[Touched, ...] | None:
    """Fill reducers of one variable by bounds; None where everything has to be computed.

    `seconds`: what computing everything takes.  `kept`: whether to raise `Long` where it is long.
    """
    if seconds < WORTH:
        return None
    works = works_of(program, [made.task for made in reducers])
    if works is None:
        return None
    budget = Budget(seconds, len(reducers) * sum(map(_points, works[0])), progress)
    budget.kept = kept and suits(works, [made.task for made in reducers])
    touched_states = []
    try:
        for made, work in zip(reducers, works, strict=True):
            touched_states.append(_filled(made, work, budget))
    except (Abandoned, RecordingError):
        return None
    for made, (state, _) in zip(reducers, touched_states, strict=True):
        made.restore(state)
    return tuple(touched for _, touched in touched_states)


def reduce_some(
    program: Program,
    by_quantity: dict[str, list[Any]],
    seconds: float,
    progress: Progress | None = None,
    *,
    kept: bool = False,
) -> tuple[Touched, ...]:
    """Fill what reducers bounds can fill, and take them away from those by quantity."""
    each = seconds / max(len(by_quantity), 1)
    touched: list[Touched] = []
    for name, several in list(by_quantity.items()):
        alone = kept and len(by_quantity) == 1
        known = reduce(program.of(name), several, each, progress, kept=alone)
        if known is not None:
            touched += known
            del by_quantity[name]
    return tuple(touched)


def works_of(program: Program, tasks: Sequence[Any]) -> list[list[Work]] | None:
    """Return what bounds are of, for each task on one variable; None where there are none."""
    name = tasks[0].reduction.quantity
    (variable,) = (candidate for candidate in program.variables if candidate.name == name)
    works = []
    for task in tasks:
        operation, parts = task.reduction.operation, task.split
        axes, kept = continuous(program, parts.reduced_dims), False
        lengths = program.grid.sizes
        others = [d for d in continuous(program, parts.kept_dims) if lengths[d] >= KEPT_LEAST]
        if operation != "pareto" and others and _cells(lengths, others) > _cells(lengths, axes):
            # Along long kept axes few of the discrete choices are ever the best.
            axes, kept = others, True
        if operation not in BOUNDED or not axes:
            return None
        works.append(
            [
                Work(program, case, variable, task, axes, kept=kept)
                for case, _, _ in program.stages([name])
                if case.nodes.keys() >= {*task.reduction.quantities}
            ]
        )
    whole = all(_is_whole(program, variable, work) for group in works for work in group)
    return works if whole else None


def _cells(lengths: Mapping[str, int], dims: Sequence[str]) -> int:
    return math.prod(lengths[dim] for dim in dims)


def _is_whole(program: Program, variable: Variable, work: Work) -> bool:
    """Whether each of a variable's cells has one status, of its own."""
    dims = {*variable.dims, *(program.grid.names[p] for p in work.case.fixed)}
    alone = all(axis.name in variable.dims or len(axis) == 1 for axis in program.switching)
    return alone and work.status.dims <= dims


def _points(work: Work) -> int:
    return math.prod(work.lengths)


def suits(works: Sequence[Sequence[Work]], tasks: Sequence[Any]) -> bool:
    """Whether parts can be kept: bounds of each hold by themselves, and files are small."""
    sizes = (task.split.kept_cells * task.reduction.count for task in tasks)
    return max(sizes) <= KEPT_RESULTS and not any(work.upper for group in works for work in group)


def nothing_of(task: Any) -> Best | Front:
    """Return what is known before anything is computed."""
    asked, split = task.reduction, task.split
    if asked.operation == "pareto":
        return Front()
    count = min(asked.count, split.reduced_cells) if asked.operation == "top" else 1
    return Best(split.kept_cells, count, split.reduced_cells)


def _filled(
    reducer: Any, works: Sequence[Work], budget: Budget
) -> tuple[dict[str, NDArray[Any]], Touched]:
    task, split = reducer.task, reducer.task.split
    kept = nothing_of(task)
    for work in works:
        work.check = budget.check
        work.most = POINTS if budget.seconds > LONG else BOXES
        if work.upper and isinstance(kept, Best):
            search_kept(work, kept, budget.spent)
        else:
            search(work, kept, budget.spent)
        budget.before += _points(work)
    total = math.prod(split.shape)
    state = {"seen": np.array(total, dtype=np.int64), **kept.state(split.kept_shape)}
    cells, boxes = sum(part.computed for part in works), sum(part.bounded for part in works)
    return state, Touched(task.name, cells, boxes, total)


class Long(Exception):
    """Bounds pay, and take long enough to be kept, part by part."""


class Budget:
    """How long bounds may take, beside computing everything."""

    def __init__(self, seconds: float, points: int, progress: Progress | None = None) -> None:
        self.seconds, self.points, self.progress = seconds, points, progress
        self.before, self.start = 0, time.perf_counter()
        self.longest = self.latest = 0.0  # Of passes, and when the latest ended
        self.kept = False  # Whether to raise `Long`

    def check(self) -> float:
        """Return how long bounds have taken; give up where one more pass is beyond their share."""
        now = time.perf_counter() - self.start
        self.longest, self.latest = max(self.longest, now - self.latest), now
        if now + self.longest > SHARE * self.seconds:
            raise Abandoned
        return now

    def spent(self, done: int, _: int) -> None:
        """Give up where so much was spent, or would be by the end, that computing all is better."""
        now = self.check()
        whole = now * self.points / max(self.before + done, 1)
        if now > TRIAL * self.seconds and whole > self.seconds / 2:
            raise Abandoned
        if self.kept and now > TRIAL * LASTING and LASTING < whole <= self.seconds / 2:
            raise Long
        if self.progress is not None:
            self.progress(self.before + done, self.points)


TIMED = 3  # Steps; the first makes what all others use


def sample_of(steps: Steps) -> list[int]:
    """Return the steps that tell how long all take; none where they are few."""
    if len(steps) <= 2 * TIMED:
        return []
    return [0, *np.linspace(1, len(steps) - 1, TIMED, dtype=np.int64).tolist()]
