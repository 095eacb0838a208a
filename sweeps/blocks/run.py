"""A sweep in blocks: goes on where it was, ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweeps.blocks.folder import Folder, Stated, damaged, refusal, unfinished
from sweeps.blocks.reader import Reader
from sweeps.blocks.recipe import Recipe, packed, recipe_of
from sweeps.blocks.stores import gather_store, prepare_store
from sweeps.blocks.work import Work, merge_states, stored_blocks
from sweeps.engine.evaluate import Limits
from sweeps.engine.layout import Block, Layout
from sweeps.engine.reduce import Reducer
from sweeps.engine.steps import Steps
from sweeps.errors import InputError, RunError
from sweeps.job import Job
from sweeps.store.failures import system_calls
from sweeps.store.space import free_bytes, readable, require
from sweeps.store.storage import Storage
from sweeps.store.write import Written, held, planned, write_held

__all__ = ["Cut", "Pool", "run_in_blocks"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Cut:
    """How a sweep is cut."""

    limits: Limits  # How much is computed at a time, and kept
    per_block: int  # Steps of a block


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a pool is given: the blocks to compute, and where."""

    work: Work  # For blocks that are computed here
    folder: Folder  # Where their files go
    output: Path  # The output under the name that the user gave
    missing: tuple[int, ...]  # The blocks to compute

    def send(self) -> tuple[str, str, str]:
        """Write the recipe for other processes; return the folder, its digest, and the output."""
        content, digest = packed(self.work.recipe)
        with system_calls(self.output):
            self.folder.put_recipe(content)
        return str(self.folder.path), digest, str(self.output)


Pool = Callable[[Assignment], Iterator[int]]


def here(assignment: Assignment) -> Iterator[int]:
    """Compute blocks one after the other in this process."""
    for index in assignment.missing:
        path = assignment.folder.block(index)
        assignment.work.write(index, path, assignment.output)
        yield index


def run_in_blocks(
    job: Job,
    output: Path,
    cut: Cut,
    *,
    pool: Pool = here,
    overwrite: bool = False,
    resume: bool = False,
    storage: Storage | None = None,
    zarr: bool = False,
    formulas: Sequence[tuple[str, str]] = (),
    progress: Callable[[str], Progress] | None = None,
) -> Written:
    """Run a sweep by blocks that are files, and gather them in the output."""
    chosen = storage or Storage()
    with held(output, overwrite=overwrite, folder=zarr) as target:
        folder = Folder(target)
        with system_calls(output):
            stated = _stated(job, output, folder, cut, overwrite=overwrite, resume=resume)
        own = chosen if zarr else None
        recipe = recipe_of(job, stated.limits, stated.per_block, formulas, own)
        work = Work(recipe, job.plan)
        with _told_what_is_kept(job, output, folder, recipe, stated):
            missing = _missing(folder, recipe, stated)
            require(_needed(job, chosen, len(missing) / stated.blocks, zarr=zarr), output)
            if zarr:
                prepare_store(job, work, folder, output)
            _compute(Assignment(work, folder, output, missing), stated.blocks, pool, progress)
            read = Reader(work, folder, output, stated.blocks)
            if zarr:
                told = progress("gathering") if progress else None
                written = gather_store(job, read, target, stated.attrs, overwrite, told)
            else:
                written = _gather(job, read, stated, target, chosen, overwrite, progress)
        with system_calls(output):
            folder.remove()
        return written


def identity(job: Job) -> dict[str, str]:
    """Return what a job's result depends on, part by part, each as a digest or a version."""
    inputs: Mapping[str, Any] = job.identity["inputs"]
    versions = inputs["versions"]
    others = {name: value for name, value in inputs.items() if name != "versions"}
    return {
        "the spec": hashlib.sha256(job.text.encode()).hexdigest(),
        "the code": job.identity["code"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "own formulas": str(others.pop("formulas", "")) and _digest(inputs["formulas"]),
        "machines, models or options": _digest(others),
    }


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _stated(
    job: Job, output: Path, folder: Folder, cut: Cut, *, overwrite: bool, resume: bool
) -> Stated:
    """Return what is fixed for this sweep: by its first start, which this may be."""
    found = folder.stated()
    wanted = identity(job)
    if not overwrite and folder.is_damaged():
        raise damaged(output)
    if found is not None and (resume or not overwrite):
        same = found.identity == wanted
        if resume and not same:
            raise refusal(output, found, wanted)
        if resume:
            folder.sweep_strays()
            return found
        done = len(folder.done(recipe_of(job, found.limits, found.per_block).owner, found.blocks))
        if done or not same:
            raise unfinished(output, found, done)
    names = recipe_of(job, cut.limits, cut.per_block).names
    steps = len(Steps(job.plan, names, cut.limits))
    stated = Stated(dict(job.attrs), wanted, cut.limits, cut.per_block, steps)
    folder.begin(stated)
    return stated


def _missing(folder: Folder, recipe: Recipe, stated: Stated) -> tuple[int, ...]:
    """Return the blocks that aren't there."""
    with system_calls(folder.path):
        done = folder.done(recipe.owner, stated.blocks)
    return tuple(index for index in range(stated.blocks) if index not in done)


@contextlib.contextmanager
def _told_what_is_kept(
    job: Job, output: Path, folder: Folder, recipe: Recipe, stated: Stated
) -> Iterator[None]:
    """Add to what fails while a sweep runs what is left of it, and what it takes to go on."""
    try:
        yield
    except RunError as error:
        try:
            left = len(_missing(folder, recipe, stated))
        except (InputError, RunError):
            raise error from None
        if left == stated.blocks:
            raise
        zarr = recipe.storage is not None
        needed = _needed(job, recipe.storage or Storage(), left / stated.blocks, zarr=zarr)
        disk = f" (needs {readable(needed)} of disk)" if needed > free_bytes(output.parent) else ""
        done = f"{stated.blocks - left} of {stated.blocks} blocks are kept"
        message = f"{error}; {done}: --resume goes on with them{disk}"
        raise RunError(message) from error


def _needed(job: Job, storage: Storage, left: float, *, zarr: bool) -> int:
    """Return the bytes that the disk has to take: blocks, and the file that gathers them."""
    file = 0 if storage.filtered else job.nbytes * np.dtype(storage.dtype).itemsize // 8
    return int(left * file if zarr else file + left * job.nbytes)


def _compute(
    assignment: Assignment, blocks: int, pool: Pool, progress: Callable[[str], Progress] | None
) -> None:
    """Compute the blocks that aren't there."""
    told = progress("computing") if progress else None
    missing = assignment.missing
    for count, _ in enumerate(itertools.chain([None], pool(assignment) if missing else ())):
        if told is not None:
            told(blocks - len(missing) + count, blocks)


def _gather(
    job: Job,
    read: Reader,
    stated: Stated,
    target: Path,
    storage: Storage,
    overwrite: bool,
    progress: Callable[[str], Progress] | None,
) -> Written:
    """Write the blocks' contents to the file."""
    layout, blocks = _result(job, read, stated, progress("reducing") if progress else None)
    plan = planned(read.output, layout, storage, overwrite=overwrite)
    told = progress("gathering") if progress else None
    return write_held(read.output, target, layout, blocks, plan, storage, overwrite, told)


def _result(
    job: Job, read: Reader, stated: Stated, told: Progress | None
) -> tuple[Layout, Iterator[Block]]:
    """Return the layout and the blocks of the whole result, from the blocks' files."""
    reducers: list[Reducer] = job.reducers()
    for index in range(stated.blocks if reducers else 0):
        merge_states(reducers, read(index))
        if told is not None:
            told(index + 1, stated.blocks)
    stored = (
        block
        for index in range(stated.blocks if read.work.recipe.stored else 0)
        for block in stored_blocks(read(index))
    )
    layout, blocks = job.result_of(reducers, stored)
    return dataclasses.replace(layout, attrs=stated.attrs), blocks
