"""What a sweep is going to take: cells, bytes, seconds, memory."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from overhead.choose import best_of
from overhead.collectives.algorithm import Algorithm
from overhead.graph import Node, nodes_below
from sweeps.engine.evaluate import BLOCK_CELLS, WHOLE_CELLS, Evaluator, Limits
from sweeps.engine.grid import LabelCase
from sweeps.engine.program import Program, Stage, Steps
from sweeps.engine.reduce_base import Reducer, Split, split
from sweeps.engine.reduce_quantile import MOST_BINS, MOST_VALUES, is_exact
from sweeps.errors import InputError, fault, refuse
from sweeps.job import Job
from sweeps.spec.reduction import Reduction, partners
from sweeps.spec.units import format_quantity, parse_quantity

GIB = 1 << 30
# To compute, read and write a file's numbers costs about so much a GiB on a local disk.
WRITING_SECONDS = 1.0 / GIB
# The same for blocks: written, synced, summed, and read once more.
KEEPING_SECONDS = 1.2 / GIB
# Seconds of work in a block.
BLOCK_SECONDS = 2.0
# How long trials may take, all together, and how many steps of a stage are tried.
TRIAL_SECONDS = 0.5
TRIALS = 5
# Bytes of a block at most, and the share of the memory that blocks of all processes may have.
BLOCK_BYTES = 1 << 26
BLOCKS_SHARE = 4
# Values that a node of the graph holds beside its cells: a cost has the figures of each level.
OF_A_COST = 12
OF_A_CHOICE = 4
# Points of a front that are reckoned with.
OF_A_FRONT = 256
# Arrays of a block that a kernel needs while it runs.
AT_WORK = 12
LEAST_BLOCK = 1 << 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a sweep is going to take."""

    cells: int  # To compute, all variables together
    nbytes: int  # To store, uncompressed
    seconds: float  # To compute, by one process
    steps: int  # In how many steps
    kept_nbytes: int  # That blocks take on the disk until they are gathered

    @property
    def writing(self) -> float:
        """Seconds to write the file."""
        return self.nbytes * WRITING_SECONDS

    @property
    def keeping(self) -> float:
        """Seconds that blocks cost."""
        return self.kept_nbytes * KEEPING_SECONDS


def names_of(job: Job) -> tuple[str, ...]:
    """Return the variables that a job computes: stored ones first."""
    return tuple(dict.fromkeys((*job.stored, *(r.quantity for r in job.sweep.reductions))))


def estimate(job: Job, limits: Limits) -> Estimate:
    """Estimate a sweep by computing a few steps of it."""
    steps = Steps(job.program, names_of(job), limits, partners(job.sweep.reductions))
    variables = {variable.name: variable for variable in job.program.variables}
    seconds = _seconds(steps, job.reducers())
    blocks = min(len(steps), 1 + int(seconds / BLOCK_SECONDS))
    # Each block holds what was gathered in it: the whole state at most, or some of each cell.
    sizes = {name: math.prod(job.program.shape(variable)) for name, variable in variables.items()}
    states = (
        min(blocks * _state_bytes(job, reduction), 16 * sizes[reduction.quantity])
        for reduction in job.sweep.reductions
    )
    return Estimate(
        sum(sizes[name] for name in names_of(job)),
        job.nbytes + sum(_result_bytes(job, reduced) for reduced in job.sweep.reductions),
        seconds,
        len(steps),
        job.nbytes + sum(states),
    )


def _seconds(steps: Steps, reducers: Sequence[Reducer]) -> float:
    """Return how long all steps take: measured of the largest stages, as long as there is time."""
    stages = sorted(steps.stages, key=_cells, reverse=True)
    begin, measured, spent = time.perf_counter(), 0, 0.0
    for number, stage in enumerate(stages):
        if number and time.perf_counter() - begin > TRIAL_SECONDS:
            break
        cells, first = _cells(stage), steps.first(stage)
        # The first has what is computed once; some others tell what a cell of the rest takes.
        done, once = _timed(steps, reducers, first, first + 1)
        tried, each = 0, 0.0
        for start, stop in _spread(first, len(stage.cuts)):
            more, took = _timed(steps, reducers, start, stop)
            tried, each = tried + more, each + took
            if time.perf_counter() - begin > 2 * TRIAL_SECONDS:
                break
        spent += once + each * (cells - done) / max(tried, 1)
        measured += cells
    total = sum(map(_cells, stages))
    return spent * total / max(measured, 1)


def _spread(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield some runs of a stage's steps beside its first: none begins as another in a pattern."""
    tries = min(TRIALS, count - 1)
    for number in range(tries):
        low, high = (1 + (count - 1) * n // tries for n in (number, number + 1))
        yield first + low + (high - low) * number // tries, first + high


def _cells(stage: Stage) -> int:
    return math.prod(stage.cuts.shape) * len(stage.variables)


def _timed(steps: Steps, reducers: Sequence[Reducer], start: int, stop: int) -> tuple[int, float]:
    """Return the cells of some steps, and how long it takes to compute and to reduce them.

    One that takes long is enough; of short ones several, for the first of a run has more to do.
    """
    begin, cells = time.perf_counter(), 0
    for step in range(start, stop):
        for block in steps.run(step, step + 1):
            cells += block.values.size
            for made in reducers:
                if made.task.reduction.quantity == block.name:
                    made.update(block.region, block.values, block.partners)
        if time.perf_counter() - begin > TRIAL_SECONDS / (2 * TRIALS):
            break
    return cells, time.perf_counter() - begin


def lines(estimated: Estimate) -> Iterator[str]:
    """Yield an estimate for a person."""
    written = f", {duration(estimated.writing)} to write" if estimated.writing >= 1 else ""
    nbytes = format_quantity(estimated.nbytes, "byte", binary=False)
    yield (
        f"to compute: {estimated.cells:,} cells in {estimated.steps:,} steps, about "
        f"{duration(estimated.seconds)} on one core{written}; file: about {nbytes}"
    )


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    for size, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


# Memory.


def memory(limit: str) -> float:
    """Return the most memory in bytes."""
    return parse_quantity(limit, "byte", field="--max-memory", bare_is_si=True)


def block_bytes(limit: str, processes: int) -> int:
    """Return the most bytes of a block: what is gathered for it is held while it is computed."""
    return min(BLOCK_BYTES, int(memory(limit) / (BLOCKS_SHARE * processes)))


def _split(job: Job, reduction: Reduction) -> Split:
    variable = next(v for v in job.program.variables if v.name == reduction.quantity)
    return split(variable.dims, job.program.grid.sizes, reduction.over)


def _state_bytes(job: Job, reduction: Reduction) -> int:
    """Return the most bytes that a reduction holds."""
    parts = _split(job, reduction)
    kept, total = parts.kept_cells, parts.kept_cells * parts.reduced_cells
    match reduction.operation:
        case "min" | "max" | "top":
            return 16 * kept * max(1, reduction.count)
        case "mean":
            return 8 * kept * 8
        case "pareto":
            return 32 * kept * min(OF_A_FRONT, parts.reduced_cells)
        case "quantile" if total <= MOST_VALUES:
            return 8 * total
        case "quantile" if is_exact(parts):
            return 8 * kept * len(reduction.quantiles)
    return 48 * min(MOST_BINS, total)


def _result_bytes(job: Job, reduction: Reduction) -> int:
    """Return the bytes of a reduction's results."""
    kept = _split(job, reduction).kept_cells
    several = max(reduction.count if reduction.operation == "top" else 1, 1)
    if reduction.operation == "quantile":
        several = len(reduction.quantiles)
    if reduction.operation in ("histogram", "pareto"):
        return 0
    return 8 * kept * several * (2 + len(reduction.over))


def limits_for(job: Job, limit: str, processes: int = 1) -> Limits:
    """Return how much may be computed at a time so that memory suffices."""
    most = memory(limit)
    results = sum(
        _state_bytes(job, reduction) + _result_bytes(job, reduction)
        for reduction in job.sweep.reductions
    )
    if results > most:
        wrong = f"the reductions' results need {format_quantity(results, 'byte', binary=False)}"
        refuse("--max-memory", limit, wrong, "raise it, or reduce further")
    block, whole = BLOCK_CELLS, WHOLE_CELLS
    kept = processes * block_bytes(limit, processes) if job.sweep.reductions else 0
    while block >= LEAST_BLOCK:
        needed = results + kept + processes * _working_bytes(job.program, Limits(block, whole))
        if needed <= most:
            return Limits(block, whole)
        block, whole = block // 2, whole // 2
    wrong = f"the sweep's values need {format_quantity(needed, 'byte', binary=False)}"
    raise InputError(fault("--max-memory", limit, wrong, "raise it, or take fewer --workers"))


def _working_bytes(program: Program, limits: Limits) -> int:
    """Return the most bytes that a process needs to compute: the worst case's nodes, and arrays."""
    return max(
        _case_bytes(part, case, nodes, limits)
        for part in program.parts
        for case, nodes in _nodes(part)
    )


def _weight(node: Node) -> int:
    if isinstance(node.origin, Algorithm):
        return OF_A_COST
    return OF_A_CHOICE if node.run is best_of else 1


def _nodes(program: Program) -> Iterator[tuple[LabelCase, list[Node]]]:
    for case in program.cases:
        # What reasons take is computed at all points, and again at those where cells can be.
        yield case, [*nodes_below(case.nodes.values()), *nodes_below([case.status])]


def _case_bytes(program: Program, case: LabelCase, nodes: Sequence[Node], limits: Limits) -> int:
    evaluator = Evaluator(program.grid, dict(case.fixed), limits)
    largest, total = 1, 0
    for node in nodes:
        cells = evaluator.cells(node)
        kept = cells if evaluator.small(node) else min(cells, limits.block)
        largest = max(largest, kept)
        if node.run is not None:
            total += kept * _weight(node)
    return 8 * (total + AT_WORK * largest)
