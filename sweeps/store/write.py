"""Blocks to a netCDF-4 file that is there whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sweeps.engine.grid import Block, Layout
from sweeps.store.encode import Storage, Stored, check_layout, stored, target_of, targets
from sweeps.store.publish import (
    check_output,
    hold,
    publish,
    require,
    sweep_strays,
    system_calls,
    temporary,
)
from sweeps.store.read import OpenFile, least_size

_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Written:
    """A file that has been written."""

    path: Path  # The output under the name that was given
    nbytes: int  # Its size
    checksums: dict[str, str]  # By the variable's name in the file


def write(
    path: Path | str,
    layout: Layout,
    blocks: Iterable[Block],
    *,
    overwrite: bool = False,
    compress: bool = False,
    digits: int | None = None,
    dtype: str = "f8",
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write a dataset while it is computed, with bounded memory.

    What stands under `path` is at any moment what stood there before or the complete new file,
    also when the process is killed, when the power fails, and when two runs have one output.
    """
    storage = Storage(compress, digits, dtype)
    plan = planned(path, layout, storage, overwrite=overwrite)
    with output_lock(Path(path), overwrite=overwrite) as target:
        return write_under_lock(
            Path(path), target, layout, blocks, plan, storage, overwrite, progress
        )


def planned(
    path: Path | str, layout: Layout, storage: Storage, *, overwrite: bool = False
) -> list[Stored]:
    """Check that a layout can be a file, and that there is room for it."""
    check_layout(layout)
    plan = stored(layout, storage)
    check_output(Path(path), overwrite=overwrite)
    require(least_size(plan) + _HEADER_BYTES, Path(path))
    return plan


@contextlib.contextmanager
def output_lock(output: Path, *, overwrite: bool = False, folder: bool = False) -> Iterator[Path]:
    """Hold an output's lock, with the strays of killed runs swept away."""
    target = check_output(output, overwrite=overwrite, folder=folder)
    with contextlib.ExitStack() as stack:
        with system_calls(output):
            if stack.enter_context(hold(target)):
                sweep_strays(target)
        yield target


def write_under_lock(
    output: Path,
    target: Path,
    layout: Layout,
    blocks: Iterable[Block],
    plan: list[Stored],
    storage: Storage,
    overwrite: bool,
    progress: Callable[[int, int], None] | None,
) -> Written:
    """Write a dataset whose output's lock is held (see `write`)."""
    fresh = temporary(target)
    try:
        with OpenFile(fresh, output, layout, plan, storage) as file:
            checksums = _fill(file, layout, blocks, progress)
        with system_calls(output):
            nbytes = fresh.stat().st_size
            publish(fresh, target, overwrite=overwrite)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
    return Written(output, nbytes, checksums)


def _fill(
    file: OpenFile,
    layout: Layout,
    blocks: Iterable[Block],
    progress: Callable[[int, int], None] | None,
) -> dict[str, str]:
    """Write the blocks, check that they cover every variable, and close the file."""
    known = targets(layout)
    total = sum(each.coverage.total for each in known.values())
    done = 0
    for block in blocks:
        region, values = target_of(block, known).place(block)
        file.put(block.name, region, values)
        done += values.size
        if progress is not None:
            progress(done, total)
    for each in known.values():
        each.finish()
    return file.finish()
