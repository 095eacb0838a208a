"""What share of its data sheet a machine's links are known to reach, and whether a log does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.cases import Case, Stated, cases_of
from sweeps.calibrate.constants import base_values, vector
from sweeps.calibrate.log import LogTest
from sweeps.calibrate.model import Model, Rows, rows_of
from sweeps.calibrate.table_log import read_table_log
from sweeps.spec.catalog import Machine, find_sweep, read_toml
from sweeps.spec.training_rule import MACHINE_RULE
from sweeps.validate.sizes import SIZE_CLASSES, class_of

__all__ = ["Comparison", "Published", "compare", "published_of"]

Floats = NDArray[np.float64]

TABLE, SWEEP = "nccl-collectives", "nccl-measured"
# A log is slower than published if it reaches less than this part of the least published share.
ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class Published:
    """Published measurements of a machine."""

    machine: Machine  # The machine
    cases: Sequence[Case]  # The tests
    rows: Rows  # Their rows
    shares: Floats  # The data sheet's time by the measured one


@dataclass(frozen=True, slots=True)
class Comparison:
    """A class of message sizes of a log beside what is published."""

    size_class: str  # One of `SIZE_CLASSES`
    # What the log reaches: the data sheet's time by the measured one, the median over sizes
    share: float
    low: float  # The least and the most that is published, at the same sizes
    high: float  # The least and the most that is published, at the same sizes
    source: str  # What says so

    @property
    def slower(self) -> bool:
        """Whether the log falls below what is published."""
        return self.share < ENOUGH * self.low


def published_of(machine: Machine, algorithm: str) -> Published | None:
    """Return what is published of a machine; nothing where nothing is."""
    tests = [one for one in _collected() if one.hardware == machine.name]
    if not tests:
        return None
    cases = cases_of(tests, machine, Stated())
    rows = rows_of(cases, ("out-of-place",))
    return Published(machine, cases, rows, data_sheet_shares(rows, machine, algorithm))


@cache
def _collected() -> tuple[LogTest, ...]:
    """Return the published tests of machines as the catalogue has them."""
    tables = read_toml(find_sweep(SWEEP))["measured"]["where"]["table"]
    return tuple(one for one in read_table_log(TABLE) if one.part in tables)


def data_sheet_shares(rows: Rows, machine: Machine, algorithm: str) -> Floats:
    """Return the data sheet's time by the measured one."""
    base = base_values(machine)
    return np.asarray(Model(rows, machine, algorithm).design(base) @ vector(base) / rows.time)


def compare(
    case: Case, rows: Rows, shares: Floats, machine: Machine, published: Published | None
) -> list[Comparison]:
    """Lay one test beside what is published of such machines, at the same message sizes."""
    level = case.level
    alike = [] if published is None else _alike(published, case)
    if not alike:
        large = class_of(rows.message_bytes) == len(SIZE_CLASSES) - 1
        if not large.any():
            return []
        figure = machine.figures.get(f"{level}_efficiency") or MACHINE_RULE[f"{level}_efficiency"]
        best = float(np.max(shares[large]))
        source = f"{level}_efficiency ({figure.origin})"
        return [Comparison("large", best, figure.value, figure.value, source)]
    assert published is not None
    return _beside(rows, shares, published, alike)


def _alike(published: Published, case: Case) -> list[int]:
    like = (case.level, case.operation)
    return [n for n, one in enumerate(published.cases) if (one.level, one.operation) == like]


def _beside(
    rows: Rows, shares: Floats, published: Published, alike: Sequence[int]
) -> list[Comparison]:
    classes = class_of(rows.message_bytes)
    sizes = np.log(rows.message_bytes)
    each = np.full((len(alike), len(rows)), np.nan)
    for place, number in enumerate(alike):
        own = published.rows.case == number
        known, mean = _curve(published.rows.message_bytes[own], published.shares[own])
        # Beyond the longest that was measured the share stays as it is there, if that is long.
        long = known[-1] >= np.log(SIZE_CLASSES["large"])
        inside = (sizes >= known[0]) & ((sizes <= known[-1]) | long)
        each[place, inside] = np.interp(sizes[inside], known, mean)
    found = []
    for index, name in enumerate(SIZE_CLASSES):
        here = (classes == index) & np.isfinite(each).any(axis=0)
        told = np.isfinite(each[:, here]).any(axis=1)
        if not here.any():
            continue
        low, high = np.nanmin(each[:, here], axis=0), np.nanmax(each[:, here], axis=0)
        used = [n for n, one in zip(alike, told, strict=True) if one]
        tables = sorted({published.cases[n].test.part for n in used})
        operation = published.cases[alike[0]].operation
        source = f"{TABLE}: {operation} of {', '.join(tables)}"
        found.append(
            Comparison(
                name, float(np.median(shares[here])), float(np.median(low)),
                float(np.median(high)), source,
            )
        )  # fmt: skip
    return found


def _curve(sizes: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of sizes, each once, and the median share at each."""
    known, place = np.unique(sizes, return_inverse=True)
    median = np.array([np.median(shares[place == one]) for one in range(len(known))])
    return np.log(known), median
