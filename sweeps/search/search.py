"""The search: all plans of a space, and what is found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

import overhead
from overhead.frozen import frozen
from overhead.graph import Node
from overhead.labels import CHUNKED
from sweeps.bands import SET_UP, tie
from sweeps.engine.evaluate import BLOCK_CELLS, Cuts, Evaluator, Limits, Picked, settings
from sweeps.engine.grid import Array, LabelCase, Picking, Region
from sweeps.engine.program import Program
from sweeps.engine.validity import given_below
from sweeps.errors import InputError, fault
from sweeps.search.details import details
from sweeps.search.keep import BestOfSplits, Floats, Front, Places, Ranked, Top
from sweeps.search.request import Execution, Objective
from sweeps.search.rows import AGAIN
from sweeps.search.space import PLAN, SHARE, Space, executions_at

# The search: all plans of a space by blocks, in bounded memory.

KEPT = 50
# Rows of a block: most of what is computed varies with nothing else, and is then computed once.
# Hundreds of quantities of a block are kept, so that these are what memory goes to.
ROWS = 1 << 13
# Blocks of the same rows that are looked at together, and the share of rows with a plan that can
# run from which all are computed on rather than those.
TOGETHER, FULL = 64, 0.8


@dataclass
class Counts:
    """How many plans there are, how many can run, and why others can't."""

    all: int = 0  # Plans, those of splits that can't be among them
    evaluated: int = 0  # Those that were looked at one by one: the others' splits can't be
    feasible: int = 0  # Those that can run
    computed: int = 0  # Of these, those that were computed whole: bounds leave out the others
    # How many fall for each reason; one may fall for several
    fallen: dict[str, int] = field(default_factory=dict)
    # How many fall for this reason and no other
    alone: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, count: int, alone: int) -> None:
        """Count plans that fall."""
        if count:
            self.fallen[name] = self.fallen.get(name, 0) + count
        if alone:
            self.alone[name] = self.alone.get(name, 0) + alone


@frozen()
class SearchResult:
    """What a search finds."""

    space: Space  # What was searched
    counts: Counts  # How many plans, and why not more
    best: tuple[Execution, ...]  # The recommended plan, then the best of all others
    splits: Sequence[Execution]  # The best plan of every split, the recommended one's first
    front: Sequence[Execution]  # The Pareto front, from the best on
    values: tuple[float, ...] = ()  # What the best plans are ranked by, less is better
    tied: int = 0  # Splits of which a plan can't be told from the best of all

    @property
    def recommended(self) -> Execution:
        """The plan with the least to set up of those that can't be told from the best."""
        return self.best[0]

    @property
    def ranked(self) -> tuple[Execution, ...]:
        """The best plans by their numbers alone, whatever of these can be told apart."""
        pairs = zip(self.values, self.best, strict=True)
        return tuple(plan for _, plan in sorted(pairs, key=lambda pair: pair[0]))


def search(
    space: Space, keep: int = KEPT, progress: Callable[[int, int], None] | None = None
) -> SearchResult:
    """Search a space whole.

    Where it pays, a part of the step's time is computed first: plans of which this alone is longer
    than what would count are left out, exactly.
    """
    counts = Counts(all=space.cells)
    for name, rows in space.rows.fallen.items():
        counts.add(name, rows * space.ways, 0)
    if space.plan is None:
        return SearchResult(space, counts, (), (), ())
    staged = _Staged(space, Keeper(space, space.plan, max(keep, KEPT)), counts)
    _look_at_all(space, staged, counts, progress)
    if counts.feasible and not len(staged.keeper.top):
        unranked(space)
    return staged.keeper.result(counts)


def _look_at_all(
    space: Space,
    staged: _Staged,
    counts: Counts,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Count every plan and take it in; what was computed for it is let go of."""
    for rows in staged.parts():
        for group in groups_of(space, rows):
            can = []
            for block in group:
                fallen, repeated = block.fallen(), block.repeated()
                can.append(fallen.but(repeated))
                _count(space, block, fallen, repeated, counts)
                counts.evaluated += block.cells
                counts.feasible += block.number(can[-1])
            staged.take(group, can)
            if progress is not None:
                progress(counts.evaluated, len(space.rows) * space.ways)


class Fallen:
    """Why plans of a block don't count, as bits, whatever hides of their communication."""

    def __init__(self, bits: NDArray[np.int64]) -> None:
        self.bits, self.able = bits, bits == 0
        self.present = int(np.bitwise_or.reduce(bits, axis=None))
        self._alone: dict[int, tuple[NDArray[np.bool_] | None, int]] = {}
        self._with: dict[int, int] = {}

    def but(self, repeated: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Return which count, but for those that are there already."""
        return self.able if repeated is None else self.able & ~repeated

    def number(self, bit: int) -> int:
        """Return how many fall for a reason, as the open grid has them."""
        if bit not in self._with:
            self._with[bit] = int(np.count_nonzero(self.bits & bit)) if self.present & bit else 0
        return self._with[bit]

    def alone(self, bit: int) -> tuple[NDArray[np.bool_] | None, int]:
        """Return which fall for this reason and no other, and how many; None: none."""
        if bit not in self._alone:
            mask = self.bits == bit if self.present & bit else None
            count = 0 if mask is None else int(np.count_nonzero(mask))
            self._alone[bit] = (mask, count) if count else (None, 0)
        return self._alone[bit]


@frozen(slots=True)
class Block:
    """A part of the grid under one set of labels."""

    space: Space  # Of what
    case: LabelCase  # The labels, and what is computed under them
    evaluator: Evaluator  # Computes it
    inside: Region  # Where, of what it computes
    region: Picking  # Where on the grid
    # What blocks of its group fall for, by their labels and where they differ
    known: dict[tuple[Any, ...], Fallen]

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many plans it holds along each axis."""
        return tuple(part.stop - part.start for part in self.inside)

    @property
    def cells(self) -> int:
        """How many plans it holds."""
        return math.prod(self.lengths)

    def number(self, some: NDArray[np.bool_]) -> int:
        """Return how many of its plans some are, as the open grid has them."""
        return int(np.count_nonzero(some)) * (self.cells // some.size)

    @property
    def axis(self) -> int:
        """Where the rows are, among the axes."""
        return self.evaluator.grid.position(PLAN)

    @property
    def rows(self) -> Places:
        """The rows that it holds."""
        part = self.region[self.axis]
        return np.arange(part.start, part.stop) if isinstance(part, slice) else part

    def along(self, values: Array) -> Array:
        """Return a value for each of its rows, as the open grid has it."""
        return values.reshape([-1 if at == self.axis else 1 for at in range(len(self.inside))])

    def in_rows(self, some: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return in which of its rows any plan is among some."""
        others = tuple(at for at in range(some.ndim) if at != self.axis)
        return np.broadcast_to(some.any(axis=others), self.lengths[self.axis])

    def narrowed(self, evaluator: Evaluator, picked: Places) -> Block:
        """Return some of its rows, which another evaluator computes."""
        region: list[Any] = [*self.inside]
        region[self.axis] = slice(0, len(picked))
        inside = tuple(region)
        region[self.axis] = picked
        return replace(self, evaluator=evaluator, inside=inside, region=tuple(region), known={})

    def places(self, index: Sequence[Any]) -> Places:
        """Return flat places on the grid of some of its plans."""
        grid = [
            position + part.start if isinstance(part, slice) else part[position]
            for position, part in zip(index, self.region, strict=True)
        ]
        return np.asarray(np.ravel_multi_index(grid, self.evaluator.grid.shape), dtype=np.int64)

    def of(self, node: Node) -> Array:
        """Return the value of a node, as the open grid has it."""
        with settings(self.evaluator.grid.shape[-1]):
            return np.asarray(self.evaluator.value(node, self.inside))

    def value(self, name: str) -> Array:
        """Return a quantity of its plans, as the open grid has it."""
        return self.of(self.case.status if name == "status" else self.case.nodes[name])

    def least(self, name: str) -> Array:
        """Return what no plan's quantity is better than."""
        with np.errstate(all="ignore"):
            return np.asarray(least_of(self.case.nodes[name], self.of))

    def reasons(self) -> NDArray[np.int64]:
        """Return why its plans don't count, as bits."""
        assert self.space.limits is not None
        bits, repeated = self.fallen().bits, self.repeated()
        again = self.space.limits.bits[AGAIN]
        return bits if repeated is None else bits | np.where(repeated, again, 0)

    def able(self) -> NDArray[np.bool_]:
        """Return which of its plans count."""
        return self.fallen().but(self.repeated())

    def repeated(self) -> NDArray[np.bool_] | None:
        """Return which of its plans differ from others in what hides of nothing; None: none."""
        assert self.space.limits is not None
        return self.space.limits.repeated(self.region)

    def fallen(self) -> Fallen:
        """Return why its plans don't count but for what hides, once for all that differ in that."""
        assert self.space.limits is not None
        labels, limits = self.case.labels, self.space.limits
        names = ("peak_memory", SHARE) if labels["recompute"] == "block" else ("peak_memory",)
        nodes = (self.case.status, *(self.case.nodes[name] for name in names))
        parts = (self.inside[at] for at in limits.deciding(nodes))
        key = (id(self.case), *((part.start, part.stop) for part in parts))
        if key not in self.known:
            memory = self.value("peak_memory")
            bits = limits.bits_at(self.region, labels, self.value("status"), memory)
            if limits.blocks and labels["recompute"] == "block":
                bits = bits | np.where(self.value(SHARE) >= 1.0, limits.bits[AGAIN], 0)
            self.known[key] = Fallen(np.asarray(bits, dtype=np.int64))
        return self.known[key]


def blocks_of(
    space: Space, picked: Places | None = None, cases: Sequence[LabelCase] = ()
) -> Iterator[Block]:
    """Yield the parts of the grid, of all rows or of some, which rise."""
    for group in groups_of(space, picked, cases):
        yield from group


def groups_of(
    space: Space, picked: Places | None = None, several_cases: Sequence[LabelCase] = ()
) -> Iterator[list[Block]]:
    """Yield blocks of the same rows: rows of one chunk, then of several, under what suits them.

    What sets of labels have in common is computed once: no quantity that is given varies with
    them, so that one evaluator serves all.  These are the cases of the space's plans, or some.
    """
    plan = space.plan
    if plan is None:
        return
    grid = plan.grid
    here = {grid.position(axis.name): slice(0, 1) for axis in plan.switching}
    position = grid.position(PLAN)
    count, single, some, most = len(space.rows), space.rows.single, None, ROWS
    if picked is not None:
        count, single = len(picked), int(np.searchsorted(picked, single))
        some, most = Picked(PLAN, picked), ROWS // 2
    evaluator = Evaluator(grid, here, Limits(BLOCK_CELLS, ROWS), some, folds=space.folds)
    whole = [here.get(at, slice(0, length)) for at, length in enumerate(grid.shape)]
    for several, rows in ((False, slice(0, single)), (True, slice(single, count))):
        cases = [
            candidate
            for candidate in several_cases or space.cases
            if (candidate.labels["schedule"] in CHUNKED) == several
        ]
        if rows.start == rows.stop or not cases:
            continue
        for first in range(rows.start, rows.stop, most):
            whole[position] = slice(first, min(first + most, rows.stop))
            group: list[Block] = []
            known: dict[tuple[Any, ...], Fallen] = {}
            for part in Cuts([piece.stop - piece.start for piece in whole], BLOCK_CELLS):
                inside = [
                    slice(piece.start + cut.start, piece.start + cut.stop)
                    for piece, cut in zip(whole, part, strict=True)
                ]
                if (group and inside[position] != group[0].inside[position]) or len(
                    group
                ) >= TOGETHER:
                    yield group
                    group, known = [], {}
                for case in cases:
                    box = tuple(case.fixed.get(at, piece) for at, piece in enumerate(inside))
                    region: list[slice | Places] = [*box]
                    if picked is not None:
                        region[position] = picked[box[position]]
                    group.append(Block(space, case, evaluator, box, tuple(region), known))
            yield group


def _count(
    space: Space, block: Block, fallen: Fallen, repeated: NDArray[np.bool_] | None, counts: Counts
) -> None:
    """Count why plans of a block fall; one that says nothing new falls for that, too."""
    assert space.limits is not None
    every = np.broadcast_shapes(fallen.bits.shape, () if repeated is None else repeated.shape)
    several = block.cells // math.prod(every)
    each = several * (math.prod(every) // fallen.bits.size)
    again = space.limits.bits[AGAIN]
    for name, bit in space.limits.bits.items():
        number, (mask, alone) = each * fallen.number(bit), fallen.alone(bit)
        alone *= each
        if repeated is not None and bit == again:
            able, has = fallen.able & repeated, (fallen.bits & again) != 0
            number += several * int(np.count_nonzero(repeated & ~has))
            alone += several * int(np.count_nonzero(able))
        elif repeated is not None and mask is not None:
            alone -= several * int(np.count_nonzero(mask & repeated))
        counts.add(name, number, alone)


# What a plan takes at least: a part of the step's time.  Its terms are from 0 on, so that a rounded
# sum is at least that of some of them: up to rounding, by which a difference may be below 0.
TERMS = ("pipeline_time", "optimizer_time", "step_overhead")
ROUNDING = 1e-12
# The longer a step, the worse is each of these: nothing else in them varies with plans.
OF_TIME = ("cost_per_trillion_tokens", "tokens_per_second", "tokens_per_second_per_gpu")


def least_of(node: Node, value: Callable[[Node], Any]) -> Any:
    """Return what no plan is better than in what a node gives, from other nodes' values."""
    if node.name == "step_time":
        terms = [value(operand) for operand in node.inputs if operand.name in TERMS]
        return reduce(add, terms) * (1.0 - ROUNDING)
    if node.name not in OF_TIME:
        return value(node)
    assert node.run is not None
    return node.run(*(least_of(operand, value) for operand in node.inputs))


def is_bounded(plan: Program, names: Sequence[str]) -> bool:
    """Whether the least of some quantities is known, by our own formulas."""
    nodes = (case.nodes[name] for case in plan.cases for name in names)
    ours = (declared.location.startswith(OURS) for declared in plan.declarations(*names))
    return all(map(_is_bounded, nodes)) and all(ours)


def _is_bounded(node: Node) -> bool:
    """Whether a node's least is known, if its formulas are ours."""
    if node.name in OF_TIME:
        return all(operand.run is None or _is_bounded(operand) for operand in node.inputs)
    summed = node.name == "step_time" and TERMS[0] in {operand.name for operand in node.inputs}
    return summed or node.name in ("peak_memory", "tokens_per_step")


OURS = overhead.__file__.removesuffix("__init__.py")
# Plans from which staging is tried, and the splits of the trial; what share of its rows may have to
# be computed whole for it to pay.
WORTH, TRIED, PAYS = 1 << 20, 64, 0.5
# Plans that wait, bounded, until the most promising of all are known.
WAITING = 1 << 21


def able(
    group: Sequence[Block], can: Sequence[NDArray[np.bool_]]
) -> tuple[Sequence[Block], Sequence[NDArray[np.bool_]]]:
    """Return blocks of the same rows without the rows of which no plan is among some."""
    first = group[0]
    some = np.zeros(first.lengths[first.axis], dtype=np.bool_)
    for mask in can:
        some |= first.in_rows(mask)
    indices = np.flatnonzero(some)
    if len(indices) >= FULL * len(some):
        return group, can
    source, rows = first.evaluator, first.rows[indices]
    picked = Picked(PLAN, rows, source, first.inside[first.axis], indices)
    evaluator = Evaluator(source.grid, source.fixed, source.limits, picked, folds=source.folds)
    taken = [cells.take(indices, axis=first.axis) for cells in can]
    return [block.narrowed(evaluator, rows) for block in group], taken


def compute_whole(
    space: Space,
    chosen: Places,
    waiting: tuple[Places, Floats, Floats],
    done: NDArray[np.bool_],
    near: Callable[[Places, Floats, Floats], NDArray[np.bool_]],
    compute: Callable[[Block, NDArray[np.bool_]], None],
) -> int:
    """Compute chosen rows, then those that still may count, the most promising first.

    Plans that wait are known by their rows and what no plan there is better than.  Return how many
    rows were computed.
    """
    computed, (rows, first, second) = 0, waiting
    while len(chosen):
        computed += len(chosen)
        for group in groups_of(space, chosen):
            for block, can in zip(*able(group, [block.able() for block in group]), strict=True):
                compute(block, can)
        done[chosen] = True
        left = ~done[rows]
        left[left] = near(rows[left], first[left], second[left])
        rows, first, second = rows[left], first[left], second[left]
        nearest = rows[np.argsort(first, kind="stable")]
        chosen = np.sort(nearest[np.sort(np.unique(nearest, return_index=True)[1])[:ROWS]])
    return computed


class _Staged:
    """Takes in blocks: bounds what can run, and computes whole only what may count."""

    def __init__(self, space: Space, keeper: Keeper, counts: Counts) -> None:
        self.space, self.keeper, self.counts = space, keeper, counts
        objective = space.point.objective
        self.names = (objective.quantity, objective.second)
        self.sign = -1.0 if objective.more else 1.0
        self.staged = False
        self.done = np.zeros(len(space.rows), dtype=np.bool_)  # Rows of which all is known
        # Of plans that wait their rows and what no plan there is better than
        self.waiting: list[tuple[Places, Floats, Floats]] = []

    def parts(self) -> Iterator[Places | None]:
        """Yield the rows to take in, all at once, or some by which it is found if bounds pay."""
        space, plan = self.space, self.space.plan
        assert plan is not None
        if len(space.rows) * space.ways < WORTH or not is_bounded(plan, self.names):
            yield None
            return
        self.staged = True
        some = np.linspace(0, space.rows.splits - 1, TRIED).astype(np.int64)
        tried = np.isin(space.rows.split, some)
        for rows in (tried, ~tried):
            yield np.flatnonzero(rows)
            self.end()

    def take(self, group: Sequence[Block], can: Sequence[NDArray[np.bool_]]) -> None:
        """Take in blocks of the same rows, of whose plans some can run."""
        first = group[0]
        fresh = first.along(~self.done[first.rows])
        group, can = able(group, [cells & fresh for cells in can])
        for block, mask in zip(group, can, strict=True):
            if mask.any():
                (self._wait if self.staged else self._compute)(block, mask)
        if sum(len(rows) for rows, *_ in self.waiting) > WAITING:
            self.end()

    def _compute(self, block: Block, can: NDArray[np.bool_]) -> None:
        self.counts.computed += block.number(can)
        first, second = map(block.value, self.names)
        self.keeper.add(block, can, self.sign * first, second)

    def _wait(self, block: Block, can: NDArray[np.bool_]) -> None:
        some = np.broadcast_to(can, block.lengths)
        rows, first, second = (
            np.broadcast_to(values, block.lengths)[some]
            for values in (block.along(block.rows), *map(block.least, self.names))
        )
        near = self._near(rows, self.sign * first, second)
        self.waiting.append((rows[near], self.sign * first[near], second[near]))

    def _near(self, rows: Places, first: Floats, second: Floats) -> NDArray[np.bool_]:
        """Return which plans may count, of some rows, by their least values."""
        best = self.keeper.splits.first[self.space.rows.split[rows]]
        return self.keeper.may_count(first, second, best)

    def end(self) -> None:
        """Compute whole what may count of the plans that wait, the most promising first."""
        if not self.waiting:
            return
        rows, first, second = map(np.concatenate, zip(*self.waiting, strict=True))
        self.waiting = []
        if not len(rows):
            return
        count, chosen = np.count_nonzero(np.bincount(rows)), self._promising(rows, first)
        waiting = rows, first, second
        computed = compute_whole(self.space, chosen, waiting, self.done, self._near, self._compute)
        self.staged = self.staged and bool(computed <= PAYS * count)

    def _promising(self, rows: Places, first: Floats) -> Places:
        """Return the rows whose least is that of their split, or among the least of all."""
        split = self.space.rows.split[rows]
        best = np.full(self.space.rows.splits, np.inf)
        np.minimum.at(best, split, first)
        several = min(self.keeper.top.count, len(first)) - 1
        edge = np.partition(first, several)[several]
        return np.unique(rows[first <= np.maximum(best[split], edge)])


class Keeper:
    """Takes in blocks, keeps the best; alone: those alone of which one is recommended."""

    def __init__(self, space: Space, plan: Program, keep: int, *, alone: bool = False) -> None:
        self.space, self.alone = space, alone
        self.shape = plan.grid.shape
        self.top, self.front = Top(keep), Front()
        self.splits = BestOfSplits(space.rows.splits)
        self.axis = plan.grid.position(PLAN)

    def add(self, block: Block, can: Array, first: Array, second: Array) -> None:
        """Take in a block."""
        lengths = block.lengths
        ranked = np.broadcast_to(np.where(can, first, np.inf), lengths)
        others = tuple(n for n in range(len(lengths)) if n != self.axis)
        least = np.fmin.reduce(ranked, axis=others)
        least[np.isnan(least)] = np.inf
        split = self.space.rows.split[block.rows]
        best = self.splits.first.copy()
        np.minimum.at(best, split, least)
        chosen = self.may_count(ranked, second, block.along(best[split])) & np.isfinite(ranked)
        if chosen.any():
            index = np.nonzero(chosen)
            values, others_ = ranked[chosen], np.broadcast_to(second, lengths)[chosen]
            cells = block.places(index)
            self.splits.add(values, others_, cells, split[index[self.axis]])
            self.top.add(values, others_, cells)
            if not self.alone:
                self.front.add(values, others_, cells)

    @property
    def edge(self) -> float:
        """Up to which value a plan may be recommended; infinite where none is known yet."""
        first = self.top.first
        return _edge(float(first[0]), self.space.point.objective) if len(first) else np.inf

    def may_count(self, first: Array, second: Array, best: Array) -> NDArray[np.bool_]:
        """Return which plans may be kept, by what the best of their split has."""
        if self.alone:
            near = first <= self.edge
        else:
            near = (
                (first <= best) | (first <= self.top.bound) | (first <= self.front.bounds(second))
            )
        return np.asarray(near & (first < np.inf))

    def _tied(self) -> tuple[Places, Places]:
        """Return how many of the best and which splits' best can't be told from the best of all."""
        top, order = self.top, self.splits.order()
        edge = _edge(float(top.first[0]), self.space.point.objective)
        return np.flatnonzero(top.first[:KEPT] <= edge), order[self.splits.first[order] <= edge]

    def contenders(self) -> tuple[Floats, Floats, Places]:
        """Return what can't be told from the best: of the best plans, then of the best of splits.

        These are their values, and their places.
        """
        if not len(self.top):
            return self.top.kept
        some, tied = self._tied()
        known = {*self.top.places.tolist()}
        more = [split for split in tied[:KEPT] if int(self.splits.places[split]) not in known]
        first, second, cells = (
            np.concatenate([best[some], of_splits[more]])
            for best, of_splits in zip(self.top.kept, self.splits.kept, strict=True)
        )
        return first, second, cells

    def result(self, counts: Counts) -> SearchResult:
        """Return what was kept.

        Recommended is the simplest plan of those among which the model can't tell: of the best
        plans, and of the best ones of splits.
        """
        top, splits, order = self.top, self.splits, self.splits.order()
        best = plans_of(self.space, *top.kept)
        firsts, seconds, at = self.front.kept
        front = Ranked(
            (),
            len(at),
            lambda some: plans_of(self.space, firsts[some], seconds[some], at[some]),
            whole=True,
        )
        result = SearchResult(self.space, counts, best, (), front, tuple(top.first.tolist()))
        if best:
            some, tied = self._tied()
            values, seconds_, cells = self.contenders()
            more = slice(len(some), None)
            others = plans_of(self.space, values[more], seconds_[more], cells[more])
            each = (*best[: len(some)], *others)
            index = simplest(each, values)
            row = np.unravel_index(cells[index], self.shape)[self.axis]
            split = int(self.space.rows.split[row])
            order = np.array([split, *order[order != split]])
            rest = [at for at in range(len(best)) if at != index]
            result = replace(
                result,
                best=(each[index], *(best[at] for at in rest)),
                values=(float(values[index]), *(result.values[at] for at in rest)),
                tied=len(tied),
            )

        def make(some: slice) -> Sequence[Execution]:
            indices = order[some]
            first, second, cells = splits.kept
            return plans_of(self.space, first[indices], second[indices], cells[indices])

        return replace(result, splits=Ranked(result.best[:1], len(order), make))


def plans_of(space: Space, first: Floats, second: Floats, cells: Places) -> tuple[Execution, ...]:
    """Return the plans at places of the grid, by what they are ranked by."""
    objective = space.point.objective
    sign = -1.0 if objective.more else 1.0
    known = {objective.quantity: sign * first, objective.second: second}
    return _settled(executions_at(space, cells, known))


def simplest(plans: Sequence[Execution], values: Floats) -> int:
    """Return which plan has the least to set up, of those among which the model can't tell."""
    return min(range(len(plans)), key=lambda at: (effort(plans[at]), values[at]))


def _edge(best: float, objective: Objective) -> float:
    """Return up to which value plans can't be told from the best."""
    return best + (tie() if objective.timed else 0.0) * abs(best)


def effort(plan: Execution) -> tuple[float, ...]:
    """Return how much there is to set up for a plan; of the same, the less memory the better.

    Tensor parallelism across nodes comes last: it depends on the network as nothing else does.
    """
    kinds = sum(plan[name] > 1.0 for name in SET_UP)
    again = plan.labels["recompute"] != "none"
    memory = plan.known.get("peak_memory", 0.0)
    return (plan.crosses_nodes, kinds + again, plan["zero_stage"], memory)


def _settled(plans: Sequence[Execution]) -> tuple[Execution, ...]:
    """Return plans with the number of layers that they recompute, where as few do as fit."""
    settled = list(plans)
    chosen = [index for index, plan in enumerate(settled) if plan.labels["recompute"] == "block"]
    asked = ("recompute_layers", "chunk_layers")
    rows = details([settled[number] for number in chosen], asked)
    for index_, row in zip(chosen, rows, strict=True):
        plan, layers = row.plan, row["recompute_layers"]
        whole = "full" if layers >= row["chunk_layers"] else "block"
        again = whole if layers > 0.0 else "none"
        known = {"recompute_layers": layers} if again == "block" else {}
        settled[index_] = replace(
            plan, labels={**plan.labels, "recompute": again}, known={**plan.known, **known}
        )
    return tuple(settled)


def unranked(space: Space) -> None:
    """Say which figure the machine's file lacks of what plans are ranked by."""
    assert space.plan is not None
    ranks = space.plan.builder(space.plan.cases[0]).node(space.point.objective.quantity)
    known, names = space.plan.grid.constants, {node.name for node in given_below([ranks])}
    unknown = sorted(name for name in names if np.isnan(known.get(name, 0.0)))
    wrong = f"its file has no {', '.join(unknown) or 'figure'} to rank plans by"
    allowed = "give it, another machine, or another objective"
    raise InputError(fault("hardware", space.resolved.labels.get("hardware", ""), wrong, allowed))
