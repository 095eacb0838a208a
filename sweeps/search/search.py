"""What is kept of plans that stream by: the best, the best of every split, the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from overhead.analysis import faults
from overhead.communication.operation import DIMENSIONS
from overhead.graph import Evaluation, MissingQuantities
from overhead.labels import CHUNKED
from sweeps import display
from sweeps.engine.evaluate import BLOCK_CELLS, Cuts, Evaluator, Limits, settings
from sweeps.engine.grid import Array, LabelCase, Region
from sweeps.engine.program import Program
from sweeps.errors import InputError, fault
from sweeps.search.request import Execution, executions_at
from sweeps.search.space import AGAIN, PLAN, SHARE, Space

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class Kept:
    """Plans: what they are ranked by, what decides between equals, and their places.

    A place is a flat index into the grid, in C order.
    """

    def __init__(self) -> None:
        self.first: Floats = np.empty(0)
        self.second: Floats = np.empty(0)
        self.places: Places = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.places)

    def _join(self, first: Floats, second: Floats, places: Places) -> None:
        """Add plans, in order of what they are ranked by."""
        first = np.concatenate([self.first, first])
        second = np.concatenate([self.second, second])
        places = np.concatenate([self.places, places])
        # Of equals the first on the grid, so that blocks of any size give the same.
        self._take(first, second, places, np.lexsort((places, second, first)))

    def _take(self, first: Floats, second: Floats, places: Places, kept: Places) -> None:
        self.first, self.second, self.places = first[kept], second[kept], places[kept]


class Top(Kept):
    """The best plans."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    @property
    def bound(self) -> float:
        """What a plan must reach to be kept."""
        return float(self.first[-1]) if len(self) == self.count else np.inf

    def add(self, first: Floats, second: Floats, places: Places) -> None:
        """Take in plans (any number, in any order)."""
        if len(first) > 4 * self.count:
            edge = np.partition(first, self.count - 1)[self.count - 1]
            near = first <= edge
            first, second, places = first[near], second[near], places[near]
        self._join(first, second, places)
        self._take(self.first, self.second, self.places, np.arange(min(len(self), self.count)))


class Front(Kept):
    """The plans that no other beats in both ways: less of the one, less of the other."""

    def bounds(self, second: Floats) -> Floats:
        """Return what a plan of so much of the second must stay below to be on the front."""
        # Along the front, by more and more of the first, there is less and less of the second.
        rising, values = self.second[::-1], self.first[::-1]
        at = np.searchsorted(rising, second, side="right")
        return np.concatenate([[np.inf], values])[at]

    def add(self, first: Floats, second: Floats, places: Places) -> None:
        """Take in plans (any number, in any order)."""
        self._join(first, second, places)
        least = np.minimum.accumulate(np.concatenate([[np.inf], self.second[:-1]]))
        self._take(self.first, self.second, self.places, np.nonzero(self.second < least)[0])


class BestOfSplits:
    """The best plan of every split."""

    def __init__(self, count: int) -> None:
        self.first: Floats = np.full(count, np.inf)
        self.second: Floats = np.full(count, np.inf)
        self.places: Places = np.full(count, -1, dtype=np.int64)

    def add(self, first: Floats, second: Floats, places: Places, splits: Places) -> None:
        """Take in plans of some splits (any number, in any order)."""
        first = np.concatenate([self.first, first])
        second = np.concatenate([self.second, second])
        places = np.concatenate([self.places, places])
        splits = np.concatenate([np.arange(len(self.first)), splits])
        # What isn't there yet is worse than anything.
        order = np.lexsort((places, second, first, splits))
        _, start = np.unique(splits[order], return_index=True)
        kept = order[start]
        self.first, self.second, self.places = first[kept], second[kept], places[kept]

    def order(self) -> Places:
        """Return the splits that have a plan, the best first."""
        found = np.nonzero(self.places >= 0)[0]
        ranks = np.lexsort((self.places[found], self.second[found], self.first[found]))
        return np.asarray(found[ranks], dtype=np.int64)


# The search: all plans of a space by blocks, in bounded memory.

KEPT = 50
# Assumed: below this share of what plans are ranked by, far below the model's own error, nobody can
# tell which is better. The simplest of such plans is recommended, of those that are kept.
RESOLUTION = 5e-3
# Rows of a block: most of what is computed varies with nothing else, and is then computed once.
ROWS = 1 << 14


@dataclass
class Counts:
    """How many plans there are, how many can run, and why others can't."""

    all: int = 0  # Plans, those of splits that can't be among them
    evaluated: int = 0  # Those that were looked at one by one: the others' splits can't be
    feasible: int = 0  # Those that can run
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


@dataclass(frozen=True)
class Found:
    """What a search finds."""

    space: Space  # What was searched
    counts: Counts  # How many plans, and why not more
    best: tuple[Execution, ...]  # The recommended plan, then the best of all others
    splits: tuple[Execution, ...]  # The best plan of every split, the recommended one's first
    front: tuple[Execution, ...]  # The Pareto front, from the best on
    values: tuple[float, ...] = ()  # What the best plans are ranked by, less is better

    @property
    def recommended(self) -> Execution:
        """The plan with the least to set up of those that are as good as can be told."""
        return self.best[0]

    def within(self, share: float) -> tuple[Execution, ...]:
        """Return those that are worse than the best by at most this share."""
        if not self.values:
            return ()
        edge = min(self.values) + share * abs(min(self.values))
        return tuple(
            one for one, value in zip(self.best, self.values, strict=True) if value <= edge
        )


# Bounds (`sweeps.engine.bounds`) aren't used: all axes are discrete, reasons why plans can't run
# take every status, and each block with a plan that can run holds some of the best of a split or
# of the front (14 of 14 of DeepSeek-V3 on 2,048 GPUs, of 7.5 million plans).  There the status
# takes a quarter of 1.2 s, what plans are ranked by 0.55 s.  A staged sum, `pipeline_time`, is
# 0.99 (median) of a step's time, but 0.81 at the tenth percentile, and takes about half of that.
def search(
    space: Space, keep: int = KEPT, progress: Callable[[int, int], None] | None = None
) -> Found:
    """Search a space whole."""
    counts = Counts(all=space.cells)
    for name, rows in space.rows.fallen.items():
        counts.add(name, rows * space.ways, 0)
    if space.plan is None:
        return Found(space, counts, (), (), ())
    keeper = _Keeper(space, space.plan, max(keep, KEPT))
    for block in blocks_of(space):
        counts.evaluated += block.cells
        counts.feasible += _take(block, counts, keeper)
        if progress is not None:
            progress(counts.evaluated, len(space.rows) * space.ways)
    if counts.feasible and not len(keeper.top):
        _unranked(space)
    return keeper.found(counts)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the grid under one set of labels."""

    space: Space  # Of what
    case: LabelCase  # The labels, and what is computed under them
    evaluator: Evaluator  # Computes it
    region: Region  # Where

    @property
    def cells(self) -> int:
        """How many plans it holds."""
        return math.prod(part.stop - part.start for part in self.region)

    def value(self, name: str) -> Array:
        """Return a quantity of its plans, as the open grid has it."""
        node = self.case.status if name == "status" else self.case.nodes[name]
        assert self.space.plan is not None
        with settings(self.space.plan.grid.shape[-1]):
            return np.asarray(self.evaluator.value(node, self.region))

    def reasons(self) -> NDArray[np.int64]:
        """Return why its plans don't count, as bits."""
        assert self.space.limits is not None
        memory = self.value("peak_memory")
        labels, limits = self.case.labels, self.space.limits
        bits = limits.bits_at(self.region, labels, self.value("status"), memory)
        if limits.blocks and labels["recompute"] == "block":
            bits = bits | np.where(self.value(SHARE) >= 1.0, limits.bits[AGAIN], 0)
        return np.asarray(bits, dtype=np.int64)


def blocks_of(space: Space) -> Iterator[Block]:
    """Yield the parts of the grid: rows of one chunk, then of several, under what suits them.

    What sets of labels have in common is computed once: no quantity that is given varies with
    them, so that one evaluator serves all.
    """
    plan = space.plan
    if plan is None:
        return
    grid = plan.grid
    switching = {grid.position(axis.name) for axis in plan.switching}
    here = {place: slice(0, 1) for place in switching}
    evaluator = Evaluator(grid, here, Limits(BLOCK_CELLS, ROWS))
    whole = [here.get(place, slice(0, length)) for place, length in enumerate(grid.shape)]
    place = grid.position(PLAN)
    for several, rows in (
        (False, slice(0, space.rows.single)),
        (True, slice(space.rows.single, len(space.rows))),
    ):
        cases = [one for one in plan.cases if (one.labels["schedule"] in CHUNKED) == several]
        if rows.start == rows.stop or not cases:
            continue
        for first in range(rows.start, rows.stop, ROWS):
            whole[place] = slice(first, min(first + ROWS, rows.stop))
            for part in Cuts([own.stop - own.start for own in whole], BLOCK_CELLS):
                inside = [slice(own.start + cut.start, own.start + cut.stop)
                          for own, cut in zip(whole, part, strict=True)]  # fmt: skip
                for case in cases:
                    indices = [case.fixed.get(at, own) for at, own in enumerate(inside)]
                    yield Block(space, case, evaluator, tuple(indices))


def _take(block: Block, counts: Counts, keeper: _Keeper) -> int:
    """Take in one block; return how many of its plans can run."""
    bits = block.reasons()
    several = block.cells // bits.size
    _count(block.space, bits, several, counts)
    can = bits == 0
    feasible = int(np.count_nonzero(can)) * several
    if feasible:
        objective = block.space.point.objective
        first = block.value(objective.quantity)
        second = block.value(objective.second)
        keeper.add(block.region, can, -first if objective.more else first, second)
    return feasible


def _count(space: Space, bits: NDArray[np.int64], several: int, counts: Counts) -> None:
    assert space.limits is not None
    found = int(np.bitwise_or.reduce(bits, axis=None))
    single = bits[(bits & (bits - 1)) == 0] if found else bits
    for name, bit in space.limits.bits.items():
        if found & bit:
            own = int(np.count_nonzero(bits & bit)) * several
            counts.add(name, own, int(np.count_nonzero(single == bit)) * several)


class _Keeper:
    """Takes in blocks, keeps the best."""

    def __init__(self, space: Space, plan: Program, keep: int) -> None:
        self.space = space
        self.shape = plan.grid.shape
        self.top, self.front = Top(keep), Front()
        self.splits = BestOfSplits(space.rows.splits)
        self.axis = plan.grid.position(PLAN)

    def add(self, region: Region, can: Array, first: Array, second: Array) -> None:
        """Take in a block."""
        lengths = tuple(part.stop - part.start for part in region)
        ranked = np.broadcast_to(np.where(can, first, np.inf), lengths)
        others = tuple(n for n in range(len(lengths)) if n != self.axis)
        least = np.fmin.reduce(ranked, axis=others)
        least[np.isnan(least)] = np.inf
        split = self.space.rows.split[region[self.axis]]
        bounds = self.splits.first.copy()
        np.minimum.at(bounds, split, least)
        wide = [1] * len(lengths)
        wide[self.axis] = lengths[self.axis]
        candidates = ranked <= bounds[split].reshape(wide)
        candidates |= ranked <= self.top.bound
        candidates |= ranked < self.front.bounds(second)
        candidates &= np.isfinite(ranked)
        if candidates.any():
            self._keep(region, ranked, np.broadcast_to(second, lengths), candidates)

    def _keep(self, region: Region, ranked: Array, second: Array, chosen: Array) -> None:
        index = np.nonzero(chosen)
        grid = tuple(own + part.start for own, part in zip(index, region, strict=True))
        places = np.ravel_multi_index(grid, self.shape).astype(np.int64)
        values, others = ranked[chosen], second[chosen]
        self.splits.add(values, others, places, self.space.rows.split[grid[self.axis]])
        self.top.add(values, others, places)
        self.front.add(values, others, places)

    def found(self, counts: Counts) -> Found:
        """Return what was kept."""
        best = self._plans(self.top.first, self.top.second, self.top.places)
        order = self.splits.order()
        splits = self._plans(
            self.splits.first[order], self.splits.second[order], self.splits.places[order]
        )
        front = self._plans(self.front.first, self.front.second, self.front.places)
        found = Found(self.space, counts, best, splits, front, tuple(self.top.first.tolist()))
        return _simplest(found)

    def _plans(
        self, first: NDArray[np.float64], second: NDArray[np.float64], places: NDArray[np.int64]
    ) -> tuple[Execution, ...]:
        objective = self.space.point.objective
        sign = -1.0 if objective.more else 1.0
        known = {objective.quantity: sign * first, objective.second: second}
        return _settled(executions_at(self.space, places, known))


def effort(plan: Execution) -> tuple[float, ...]:
    """Return how much there is to set up for a plan."""
    degrees = sum(plan[name] > 1.0 for name in ("tp", "cp", "pp", "ep"))
    again = plan.labels["recompute"] != "none"
    return (degrees, again, plan["virtual_stages"], plan["zero_stage"], plan["pp"])


def _simplest(found: Found) -> Found:
    """Recommend the simplest plan of those among which the model can't tell."""
    near = found.within(RESOLUTION)[:KEPT]
    if not near:
        return found
    place = min(range(len(near)), key=lambda index: effort(near[index]))
    best, values = list(found.best), list(found.values)
    best.insert(0, best.pop(place))
    values.insert(0, values.pop(place))
    chosen = best[0]
    others = (plan for plan in found.splits if plan.split != chosen.split)
    return replace(found, best=tuple(best), values=tuple(values), splits=(chosen, *others))


def _settled(plans: Sequence[Execution]) -> tuple[Execution, ...]:
    """Return plans with the number of layers that they recompute, where as few do as fit."""
    found = list(plans)
    chosen = [place for place, plan in enumerate(found) if plan.labels["recompute"] == "block"]
    asked = ("recompute_layers", "chunk_layers")
    rows = details([found[place] for place in chosen], asked)
    for place, row in zip(chosen, rows, strict=True):
        plan, layers = row.plan, row["recompute_layers"]
        whole = "full" if layers >= row["chunk_layers"] else "block"
        again = whole if layers > 0.0 else "none"
        known = {"recompute_layers": layers} if again == "block" else {}
        found[place] = replace(
            plan, labels={**plan.labels, "recompute": again}, known={**plan.known, **known}
        )
    return tuple(found)


def _unranked(space: Space) -> None:
    """Say which figure the machine's file lacks."""
    assert space.plan is not None
    used = space.plan.used()
    given = space.plan.grid.constants
    unknown = [name for name, value in given.items() if name in used and np.isnan(value)]
    machine = space.resolved.labels.get("hardware", "")
    wrong = f"its file has no {', '.join(unknown) or 'figure'} to rank plans by"
    allowed = "give it, another machine, or another objective"
    raise InputError(fault("hardware", machine, wrong, allowed))


# Quantities of single plans, by the scalar interface: those of equal labels together.

COMMUNICATION = tuple(f"{name}_communication_time" for name in DIMENSIONS)
# What stands in a table of plans.
TABLE = display.rows("step", "memory", "rates", place="best")


@dataclass(frozen=True)
class Detail:
    """A plan with what is known of it."""

    plan: Execution  # The plan
    values: Mapping[str, float]  # By quantity; NaN where nothing gives one
    faults: Mapping[str, str]  # The conditions that it doesn't fulfil, with what must hold

    def __getitem__(self, name: str) -> float:
        """Return a quantity."""
        return self.values[name]

    @property
    def capacity(self) -> float:
        """A GPU's memory."""
        return self.plan.given["memory_capacity"]

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU holds its part."""
        return not self.values["peak_memory"] > self.capacity


def details(
    plans: Sequence[Execution], names: Iterable[str], *, check: bool = False
) -> tuple[Detail, ...]:
    """Compute quantities of plans."""
    wanted = tuple(dict.fromkeys(names))
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, plan in enumerate(plans):
        key = (*sorted(plan.labels.items()), *sorted(plan.given), *sorted(plan.known))
        groups.setdefault(key, []).append(place)
    found: dict[int, Detail] = {}
    for places in groups.values():
        own = _of_group([plans[place] for place in places], wanted, check=check)
        found.update(zip(places, own, strict=True))
    return tuple(found[place] for place in range(len(plans)))


def evaluation(plans: Sequence[Execution]) -> Evaluation:
    """Return the scalar interface of plans of equal labels: what is the same as one number.

    What the search has computed of them isn't computed again.
    """
    given: dict[str, NDArray[np.float64] | float] = {}
    rows = [{**plan.given, **plan.known} for plan in plans]
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        same = len(plans) > 1 and bool(np.all(values == values[0]))
        given[name] = float(values[0]) if same else values
    return Evaluation(given, plans[0].labels)


def _of_group(plans: Sequence[Execution], names: Sequence[str], *, check: bool) -> list[Detail]:
    count = len(plans)
    one = evaluation(plans)
    values: dict[str, list[float]] = {}
    wrong: list[dict[str, str]] = [{} for _ in plans]
    with np.errstate(all="ignore"):
        for name in names:
            try:
                array = one[name]
            except MissingQuantities:
                array = np.array(np.nan)
            values[name] = np.broadcast_to(array.reshape(-1), (count,)).tolist()
        for fallen in faults(one) if check else ():
            mask = np.broadcast_to(fallen.where.reshape(-1), (count,))
            for place in np.nonzero(mask)[0]:
                wrong[place][fallen.requirement.fault] = fallen.requirement.text
    return [
        Detail(plan, {name: row[place] for name, row in values.items()}, wrong[place])
        for place, plan in enumerate(plans)
    ]
