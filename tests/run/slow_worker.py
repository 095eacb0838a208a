"""For a Dask worker to preload: its blocks wait while a file beside the output says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from sweeps.blocks.folder import Record
from sweeps.blocks.work import Work

__all__ = ["WAIT"]

WAIT = "wait"
write, records = Work.write, Work.records


def slow_write(self: Work, index: int, path: Path, output: Path) -> int:
    self.wait = path.parent.parent / WAIT  # type: ignore[attr-defined]
    return write(self, index, path, output)


def slow_records(self: Work, index: int) -> Iterator[Record]:
    # The block's temporary file is there by now.
    while self.wait.exists():  # type: ignore[attr-defined]
        time.sleep(0.02)
    yield from records(self, index)


Work.write, Work.records = slow_write, slow_records  # type: ignore[method-assign]
