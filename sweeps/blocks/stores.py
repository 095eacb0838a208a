"""A sweep into a Zarr store: workers write its chunks, which are checked at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from sweeps.blocks.folder import Folder
from sweeps.blocks.reader import Reader
from sweeps.blocks.work import Work, merge_states, stored_blocks
from sweeps.engine.layout import Layout
from sweeps.job import Job
from sweeps.store.attributes import check_layout
from sweeps.store.checksum import RunningChecksum, checksum, stored_checksum
from sweeps.store.encode import stored
from sweeps.store.failures import system_calls
from sweeps.store.publish import publish_folder
from sweeps.store.write import Written
from sweeps.store.zarr_read import ZarrFile
from sweeps.store.zarr_store import ZarrStore, zarr_variables

__all__ = ["gather_store", "prepare_store"]


def prepare_store(job: Job, work: Work, folder: Folder, output: Path) -> None:
    """Make the metadata of the variables that blocks write; chunks that are there stay."""
    store = _store(work, folder)
    layout = job.layout
    kept = tuple(column for column in layout.variables if column.name in job.stored)
    _prepare(store, replace(layout, variables=kept), work, output)


def _store(work: Work, folder: Folder) -> ZarrStore:
    store = work.store(folder.path)
    assert store is not None
    return store


def _prepare(store: ZarrStore, layout: Layout, work: Work, output: Path) -> None:
    check_layout(layout)
    variables = zarr_variables(layout, stored(layout, store.storage))
    with system_calls(output):
        store.prepare(variables, work.chunks())


def gather_store(
    job: Job,
    read: Reader,
    target: Path,
    attrs: Mapping[str, str],
    overwrite: bool,
    progress: Callable[[int, int], None] | None,
) -> Written:
    """Check every chunk, add what is known only now, and publish the store."""
    store, reducers = _store(read.work, read.folder), job.reducers()
    shapes = {each.name: job.plan.shape(each) for each in job.plan.variables}
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
    # What reductions give has got its dimensions only now.
    _prepare(store, layout, read.work, read.output)
    with system_calls(read.output):
        found = {name: one.result() or _read_back(store, name) for name, one in running.items()}
        for block in rest:
            found[block.name] = checksum(store.put(block.name, block.region, block.values))
        variables = zarr_variables(layout, stored(layout, store.storage))
        checksums = store.finish(layout, variables, found)
        nbytes = store.nbytes()
        publish_folder(store.path, target, overwrite=overwrite)
    return Written(read.output, nbytes, checksums)


def _read_back(store: ZarrStore, name: str) -> str:
    return stored_checksum(ZarrFile(store.path).variables[name])
