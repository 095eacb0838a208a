"""Counts by integer code, of which few of very many occur; the same in any order of addition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import RunError

__all__ = ["SparseCounts"]

Codes = NDArray[np.int64]
# How many counts of new codes wait at least, before they are sorted in.
WAITING = 1 << 14
# Codes of a block are counted in a table that has at most so many entries a code.
TABLE = 4


class SparseCounts:
    """How often each code came, with fewer bits of the codes if they become too many.

    The bits that are left depend on the codes alone, not on their order: a bit goes when more
    codes than the limit differ without it.
    """

    def __init__(self, bits: int, limit: int, told: str) -> None:
        self.bits, self.limit, self.told = bits, limit, told
        self.dropped = 0
        self._codes = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Codes, Codes]] = []
        self._waits = 0

    def add(self, codes: Codes) -> None:
        """Count codes."""
        if codes.size == 0:
            return
        codes = codes >> self.dropped
        low = int(codes.min())
        if int(codes.max()) - low < TABLE * codes.size:
            table = np.bincount(codes - low)
            found = np.flatnonzero(table)
            self._add(found + low, table[found])
        else:
            self._add(*np.unique(codes, return_counts=True))

    def merge(self, other: SparseCounts) -> None:
        """Add another's counts."""
        self.take(*other.items(), other.dropped)

    def take(self, codes: Codes, counts: Codes, dropped: int) -> None:
        """Add counts of codes without some bits."""
        self._drop(dropped)
        self._add(*_summed(codes >> (self.dropped - dropped), counts))

    def state(self) -> dict[str, Codes]:
        """Return the counts as arrays by name."""
        codes, counts = self.items()
        return {"codes": codes, "counts": counts, "dropped": np.array(self.dropped)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set the counts, as `state` gives them."""
        self._codes, self._counts = state["codes"], state["counts"]
        self.dropped, self._waiting, self._waits = int(state["dropped"]), [], 0

    def items(self) -> tuple[Codes, Codes]:
        """Return the codes, ascending and without the bits dropped, and their counts."""
        self._settle()
        return self._codes, self._counts

    def _add(self, codes: Codes, counts: Codes) -> None:
        """Add counts of codes that are ascending, each once."""
        if self._codes.size:
            at = np.minimum(np.searchsorted(self._codes, codes), self._codes.size - 1)
            known = self._codes[at] == codes
            self._counts[at[known]] += counts[known]
            codes, counts = codes[~known], counts[~known]
        if codes.size:
            self._waiting.append((codes, counts))
            self._waits += codes.size
        if self._waits > max(WAITING, self._codes.size // 2):
            self._settle()

    def _settle(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waits = self._waiting, [], 0
        codes, counts = zip((self._codes, self._counts), *waiting, strict=True)
        self._codes, self._counts = _summed(np.concatenate(codes), np.concatenate(counts))
        while self._codes.size > self.limit:
            if self.dropped == self.bits:
                raise RunError(self.told)
            self._drop(self.dropped + 1)

    def _drop(self, bits: int) -> None:
        """Leave out bits, until so many are left out."""
        if bits <= self.dropped:
            return
        self._settle()
        if bits > self.dropped:
            codes = self._codes >> (bits - self.dropped)
            self._codes, self._counts = _summed(codes, self._counts)
            self.dropped = bits


def _summed(codes: Codes, counts: Codes) -> tuple[Codes, Codes]:
    """Return codes ascending, each once, with the sums of their counts."""
    if codes.size == 0:
        return codes, counts
    order = np.argsort(codes, kind="stable")
    codes, counts = codes[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return codes[starts], np.add.reduceat(counts, starts)
