"""Blocks read back: what isn't as it was written is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweeps.blocks.block_file import Record
from sweeps.blocks.folder import Folder
from sweeps.blocks.work import Work, region_of
from sweeps.errors import RunError, fault
from sweeps.store.zarr_store import crc

__all__ = ["Reader"]

ATTEMPTS = 3


class Reader:
    """Reads a sweep's blocks."""

    def __init__(self, work: Work, folder: Folder, output: Path, count: int) -> None:
        self.work, self.folder, self.output, self.count = work, folder, output, count

    def __call__(self, index: int) -> list[Record]:
        """Return a block's records; of a Zarr store with the values that are in it."""
        for _ in range(ATTEMPTS):
            found = self.folder.records(index, self.work.recipe.owner)
            if found is not None:
                whole = self._filled(found)
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
