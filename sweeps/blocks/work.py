"""Computing a block: the one function that every process runs, here, beside or far away."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import pickle
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.blocks.folder import BlockFile, Folder, Record
from sweeps.engine import bounds
from sweeps.engine.evaluate import Limits
from sweeps.engine.grid import Block
from sweeps.engine.program import Program, Steps
from sweeps.engine.reduce import part, task_of
from sweeps.engine.reduce_base import Reducer, Task
from sweeps.errors import RunError, fault
from sweeps.job import Compiler, Job
from sweeps.spec.reduction import Reduction, partners
from sweeps.store.encode import (
    RunningChecksum,
    check_layout,
    code_digest,
    stored_checksum,
    versions,
)
from sweeps.store.netcdf import Written
from sweeps.store.publish import NewFile, publish_folder, system_calls
from sweeps.store.zarr_store import ZarrFile, ZarrStore, crc

# Own formulas that this process has, by file name: they join registries, and don't leave them.
_LOADED: dict[str, str] = {}


@dataclass(frozen=True)
class Recipe:
    """A sweep as data."""

    compiler: Compiler  # What makes the program
    reductions: tuple[Reduction, ...]  # Reductions
    stored: tuple[str, ...]  # The variables that are stored whole
    limits: Limits  # How much is computed at a time, and kept
    per_block: int  # Steps of a block
    owner: bytes  # Marks the blocks of this sweep, cut like this
    formulas: tuple[tuple[str, str], ...]  # Own formulas: the names of their files and the text
    code: str  # Digest of the code that has to compute it
    numpy: str  # numpy's version
    zarr: bool = False  # Whether blocks are parts of a Zarr store; else they are files
    compress: bool = False  # Whether the numbers in it are compressed
    bounded: bool = False  # Whether blocks are parts of what bounds leave

    @property
    def names(self) -> tuple[str, ...]:
        """The variables to compute: those that are stored come first, in their order."""
        return tuple(dict.fromkeys((*self.stored, *(r.quantity for r in self.reductions))))

    def program(self) -> Program:
        """Make the program, in a process that has nothing of it."""
        if (code_here(), versions(["numpy"])["numpy"]) != (self.code, self.numpy):
            message = (
                "a worker runs other code or another numpy than the sweep was started with; "
                "install the same there and restart it"
            )
            raise RunError(message)
        load_own(self.formulas)
        return self.compiler()


@cache
def code_here() -> str:
    """Return the digest of this process' code: found once, for what is imported stays."""
    return code_digest()


def load_own(formulas: Sequence[tuple[str, str]]) -> None:
    """Load own formulas from their text, once in a process."""
    from sweeps.own_formulas import load_formulas

    wanted = dict(formulas)
    for name, text in wanted.items():
        if name not in _LOADED and f"formulas_{Path(name).stem}" not in sys.modules:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / name
                path.write_text(text, encoding="utf-8")
                load_formulas([path])
        _LOADED.setdefault(name, text)
    if wanted != _LOADED:
        message = "a worker has the own formulas of another sweep; restart it"
        raise RunError(message)


def recipe_of(
    job: Job,
    limits: Limits,
    per_block: int,
    formulas: Sequence[tuple[str, str]] = (),
    *,
    zarr: bool = False,
    compress: bool = False,
    bounded: bool = False,
) -> Recipe:
    """Return a job as data."""
    cut = f"{job.attrs['fingerprint']} {limits.block} {limits.whole} {per_block}"
    cut += " bounded" if bounded else ""
    return Recipe(
        compiler=job.compiler,
        reductions=tuple(job.sweep.reductions),
        stored=job.stored,
        limits=limits,
        per_block=per_block,
        owner=hashlib.sha256(cut.encode()).digest(),
        formulas=tuple(formulas),
        code=job.identity.code,
        numpy=versions(["numpy"])["numpy"],
        zarr=zarr,
        compress=compress,
        bounded=bounded,
    )


def packed(recipe: Recipe) -> tuple[bytes, str]:
    """Return a recipe as bytes, and their digest."""
    content = pickle.dumps(recipe, protocol=5)
    return content, hashlib.sha256(content).hexdigest()


def unpacked(content: bytes, digest: str) -> Recipe:
    """Return a recipe from bytes, if they are those that were sent."""
    if hashlib.sha256(content).hexdigest() != digest:
        message = "the sweep's recipe isn't the one that was sent: another run took its folder"
        raise RunError(message)
    recipe: Any = pickle.loads(content)
    assert isinstance(recipe, Recipe)
    return recipe


# Memory that was freed stays with the process, for the next array of a block.

# Of glibc's mallopt: how much free memory is kept, and what size is asked of the system each time.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 128 << 20
LARGE_BYTES = 32 << 20


@cache
def keep_freed() -> None:
    """Let the C library keep freed arrays, once in a process; elsewhere nothing happens.

    Dask starts workers with ``MALLOC_TRIM_THRESHOLD_`` set, so that they give memory back at once:
    then the system has to clear each array of a block anew, which takes longer than to compute it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


Box = tuple[slice, ...]
STORE = "store"


class Work:
    """What a process keeps between blocks of one sweep."""

    def __init__(self, recipe: Recipe, program: Program | None = None) -> None:
        self.recipe = recipe
        self.program = program or recipe.program()
        pairs = partners(recipe.reductions)
        self.steps = Steps(self.program, recipe.names, recipe.limits, pairs)
        dims = {variable.name: variable.dims for variable in self.program.variables}
        sizes = self.program.grid.sizes
        self._store: ZarrStore | None = None
        self._tasks: dict[str, list[tuple[int, Task]]] = {}
        for number, reduction in enumerate(recipe.reductions):
            # Without labels: the results' metadata is for the one who gathers them.
            task = task_of(reduction, dims[reduction.quantity], sizes, {})
            self._tasks.setdefault(reduction.quantity, []).append((number, task))
        self.chunks_of_bounds: Chunks | None = None
        if recipe.bounded:
            ((*several,),) = self._tasks.values()
            self.chunks_of_bounds = Chunks(self.program, [task for _, task in several])

    def span(self, index: int) -> tuple[int, int]:
        """Return the steps of a block: the first, and the one after the last."""
        first = index * self.recipe.per_block
        return first, min(first + self.recipe.per_block, len(self.steps))

    def records(self, index: int) -> Iterator[Record]:
        """Compute a block."""
        if self.chunks_of_bounds is not None:
            number, state = self.chunks_of_bounds.run(index)
            for name, values in state.items():
                yield Record({"bounded": number, "key": name}, values)
            return
        parts: dict[tuple[int, tuple[tuple[int, int], ...]], Reducer] = {}
        for block in self.steps.run(*self.span(index)):
            if block.name in self.recipe.stored:
                yield Record(
                    {"variable": block.name, "region": _bounds(block.region)}, block.values
                )
            for number, task in self._tasks.get(block.name, ()):
                box = task.split.box(block.region)
                key = (number, tuple((part.start, part.stop) for part in box))
                if key not in parts:
                    parts[key] = part(task, box)
                parts[key].update(block.region, block.values, block.partners)
        for (number, extent), made in parts.items():
            for name, values in made.state().items():
                about = {"reduction": number, "box": [list(pair) for pair in extent], "key": name}
                yield Record(about, values)

    def write(self, index: int, path: Path, output: Path) -> int:
        """Compute a block into its file."""
        with system_calls(output), NewFile(path) as file:
            block = BlockFile(file, self.recipe.owner)
            store = self.store(path.parent)
            for record in self.records(index):
                placed = store is not None and "variable" in record.about
                left = _put(store, record) if store is not None and placed else record
                block.put(left.about, left.values)
            checksum = block.finish()
            if store is not None:
                # Before the file that says that they are there.
                store.sync()
            file.publish()
        return checksum

    def store(self, folder: Path) -> ZarrStore | None:
        """Return the store that values go to; None where they are in blocks' files."""
        if not self.recipe.zarr:
            return None
        if self._store is None or self._store.path.parent != folder:
            self._store = ZarrStore(folder / STORE, compress=self.recipe.compress)
        return self._store

    def chunks(self) -> dict[str, tuple[int, ...]]:
        """Return for each stored variable the shape of what a step computes of it."""
        shapes = {}
        for stage in self.steps.stages:
            shape = tuple(part.stop - part.start for part in stage.cuts[0])
            shapes.update({variable.name: shape for variable in stage.variables})
        return {name: shape for name, shape in shapes.items() if name in self.recipe.stored}


def _put(store: ZarrStore, record: Record) -> Record:
    """Write values into a store; return what is left to say of them."""
    region = region_of(record.about["region"])
    ready = store.put(record.about["variable"], region, record.values)
    return Record({**record.about, "crc": crc(ready)}, np.empty(0))


def _bounds(region: Sequence[slice]) -> list[list[int]]:
    return [[part.start, part.stop] for part in region]


def region_of(bounds: Sequence[Sequence[int]]) -> Box:
    """Return a region as slices."""
    return tuple(slice(start, stop) for start, stop in bounds)


def stored_blocks(records: Sequence[Record]) -> Iterator[Block]:
    """Yield the stored variables' values that are among a block's records."""
    for record in records:
        if "variable" in record.about:
            name, region = record.about["variable"], region_of(record.about["region"])
            yield Block(name, region, record.values)


def merge_states(reducers: Sequence[Reducer], records: Sequence[Record]) -> None:
    """Take what reductions have gathered in a block into the whole ones."""
    states: dict[tuple[int, str], tuple[Box, dict[str, NDArray[Any]]]] = {}
    for record in records:
        if "reduction" in record.about:
            about: Mapping[str, Any] = record.about
            key = (about["reduction"], str(about["box"]))
            _, values = states.setdefault(key, (region_of(about["box"]), {}))
            values[about["key"]] = record.values
    for (number, _), (box, state) in states.items():
        made = reducers[number].part(box)
        made.restore(state)
        reducers[number].merge(made)


# What bounds leave, part by part.

PARTS = 16  # Passes of a part, each of some discrete points


class Chunks:
    """Reductions of one variable in parts, each found by itself: by any process, at any time.

    What a process has found in one part leaves out boxes in its others.
    """

    def __init__(self, program: Program, tasks: Sequence[Task]) -> None:
        works = bounds.works_of(program.of(tasks[0].reduction.quantity), tasks)
        assert works is not None
        self.tasks = tasks
        self.best = [bounds.nothing_of(task) for task in tasks]
        self.cells, self.boxes = [0] * len(tasks), [0] * len(tasks)
        self.spans = []
        for number, group in enumerate(works):
            for work in group:
                work.most = bounds.POINTS
                count = len(work.parts())
                self.spans += [
                    (number, work, range(first, min(first + PARTS, count)))
                    for first in range(0, count, PARTS)
                ]

    def __len__(self) -> int:
        return len(self.spans)

    def run(self, index: int) -> tuple[int, dict[str, NDArray[Any]]]:
        """Find a part; return which task it is of, and what is known of it now."""
        number, work, some = self.spans[index]
        before = np.array([work.computed, work.bounded])
        bounds.search(work, self.best[number], lambda *_: None, some)
        state = self.best[number].state(self.tasks[number].split.kept_shape)
        return number, {**state, "took": np.array([work.computed, work.bounded]) - before}

    def add(self, number: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Take in what was found in a part; what is there already changes nothing."""
        self.best[number].join(state)
        computed, bounded = state["took"].tolist()
        self.cells[number] += computed
        self.boxes[number] += bounded

    def fill(self, reducers: Sequence[Reducer]) -> Iterator[bounds.Touched]:
        """Fill reducers with what was found, and yield what it took."""
        for number, made in enumerate(reducers):
            total = math.prod(made.task.split.shape)
            state = self.best[number].state(made.task.split.kept_shape)
            made.restore({"seen": np.array(total, dtype=np.int64), **state})
            yield bounds.Touched(made.task.name, self.cells[number], self.boxes[number], total)


def merge_bounds(chunks: Chunks, records: Sequence[Record]) -> None:
    """Take what bounds have left of a part into the whole."""
    state = {record.about["key"]: record.values for record in records}
    chunks.add(records[0].about["bounded"], state)


_HERE = threading.local()


@contextlib.contextmanager
def at_hand(work: Work, digest: str) -> Iterator[None]:
    """Keep the work of a recipe for this thread, and for copies of this process."""
    keep_freed()
    _HERE.digest, _HERE.work = digest, work
    try:
        yield
    finally:
        _HERE.digest, _HERE.work = None, None


def compute_block(folder: str, digest: str, index: int, output: str) -> tuple[int, int]:
    """Compute one block into its file."""
    # Of each thread its own: what a program keeps between blocks isn't for several at a time.
    if getattr(_HERE, "digest", None) != digest:
        keep_freed()
        _HERE.digest, _HERE.work = None, None
        _HERE.work = Work(unpacked(_content(Path(folder)), digest))
        _HERE.digest = digest
    work: Work = _HERE.work
    return index, work.write(index, Path(folder) / f"{index:08d}.block", Path(output))


def compute_blocks(folder: str, digest: str, blocks: Sequence[int], output: str) -> float:
    """Compute blocks into their files, and return how many seconds one has taken."""
    start = time.monotonic()
    for index in blocks:
        compute_block(folder, digest, index, output)
    return (time.monotonic() - start) / len(blocks)


def _content(folder: Path) -> bytes:
    try:
        return (folder / "recipe").read_bytes()
    except OSError as error:
        message = (
            f"the worker on {socket.gethostname()} can't read '{folder}' ({error.strerror}): "
            "workers need a folder that they share with the one who starts the sweep"
        )
        raise RunError(message) from None


# Blocks read back: what isn't as it was written is computed again.

ATTEMPTS = 3


class BlockReader:
    """Reads a sweep's blocks."""

    def __init__(self, work: Work, folder: Folder, output: Path, count: int) -> None:
        self.work, self.folder, self.output, self.count = work, folder, output, count

    def __call__(self, index: int) -> list[Record]:
        """Return a block's records; of a Zarr store with the values that are in it."""
        for _ in range(ATTEMPTS):
            records = self.folder.records(index, self.work.recipe.owner)
            if records is not None:
                whole = self._filled(records)
                if whole is not None:
                    return whole
            self.work.write(index, self.folder.block(index), self.output)
        wrong = f"'{self.folder.block(index)}' isn't read back as it was written"
        raise RunError(fault("output", str(self.output), wrong, "check the disk"))

    def _filled(self, records: Sequence[Record]) -> list[Record] | None:
        """Return records with the values of the store; None where these are damaged."""
        store = self.work.store(self.folder.path)
        filled = []
        for record in records:
            if store is None or "variable" not in record.about:
                filled.append(record)
                continue
            values = store.get(record.about["variable"], region_of(record.about["region"]))
            if values is None or crc(values) != record.about["crc"]:
                return None
            filled.append(Record(record.about, values))
        return filled


# A sweep into a Zarr store: workers write its chunks, which are checked at the end.


def prepare_store(job: Job, work: Work, folder: Folder, output: Path) -> None:
    """Make the metadata of the variables that blocks write; chunks that are there stay."""
    store = _store(work, folder)
    layout = job.layout
    kept = tuple(column for column in layout.variables if column.name in job.stored)
    check_layout(layout)
    with system_calls(output):
        store.prepare(replace(layout, variables=kept), work.chunks())


def _store(work: Work, folder: Folder) -> ZarrStore:
    store = work.store(folder.path)
    assert store is not None
    return store


def gather_store(
    job: Job,
    read: BlockReader,
    target: Path,
    attrs: Mapping[str, str],
    overwrite: bool,
    progress: Callable[[int, int], None] | None,
) -> Written:
    """Check every chunk, add what is known only now, and publish the store."""
    store, reducers = _store(read.work, read.folder), job.reducers()
    shapes = {variable.name: job.program.shape(variable) for variable in job.program.variables}
    running = {name: RunningChecksum(shapes[name]) for name in job.stored}
    for index in range(read.count):
        records = read(index)
        merge_states(reducers, records)
        for block in stored_blocks(records):
            running[block.name].add(block.region, block.values)
        if progress is not None:
            progress(index + 1, read.count)
    layout, rest = job.result_of(reducers, iter(()))
    layout = replace(layout, attrs=attrs)
    check_layout(layout)
    with system_calls(read.output):
        blocks = {
            name: future.result() or _read_back(store, name) for name, future in running.items()
        }
        # What reductions give has got its dimensions only now.
        reduced = {block.name: np.asarray(block.values) for block in rest}
        checksums = store.finish(layout, read.work.chunks(), reduced, blocks)
        nbytes = store.nbytes()
        publish_folder(store.path, target, overwrite=overwrite)
    return Written(read.output, nbytes, checksums)


def _read_back(store: ZarrStore, name: str) -> str:
    return stored_checksum(ZarrFile(store.path).variables[name])
