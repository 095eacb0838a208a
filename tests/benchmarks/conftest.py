"""A table of ratios at the end of a run; a ratio over what was seen, loosened by noise, fails."""

import csv
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

RATIOS: list[tuple[str, float, float, str]] = []


def _rows(name: str) -> dict[str, dict[str, str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as rows:
        return {row["ratio"]: row for row in csv.DictReader(rows)}


# Ratios that are a gate: what each one aims at, and what was seen last (median, by CPU time).
SEEN, BULK = _rows("seen.csv"), _rows("bulk.csv")
GATES = SEEN | BULK
# How far medians of few pairs were from one another on a machine that others use, too.
NOISE = 1.6


def aim_of(name: str) -> float:
    """Return what a ratio aims at."""
    return float(GATES[name]["aim"])


def limit_of(name: str) -> float:
    """Return up to what a ratio passes; infinite where it is no gate."""
    if name not in GATES:
        return float("inf")
    row = GATES[name]
    return float(row.get("noise", NOISE)) * max(aim_of(name), float(row["seen"]))


def best_of(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Return the best time of each work, in turns, so that all see the same machine."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def raw_file(path: Path, values: NDArray[np.float64], times: int) -> Callable[[], None]:
    """Return the work of writing values several times to a file as they are."""

    def work() -> None:
        with path.open("wb") as file:
            for _ in range(times):
                file.write(values)
            file.flush()
            os.fsync(file.fileno())
        path.unlink()

    return work


@pytest.fixture
def ratio() -> Iterator[Callable[[str, float, float, str], None]]:
    """Record a measured ratio, the one aimed at, and a note; fail over what passes."""
    lines: list[str] = []

    def record(name: str, measured: float, aim: float, note: str = "") -> None:
        RATIOS.append((name, measured, aim, note))
        if measured > limit_of(name):
            lines.append(f"{name}: {measured:.3g}, at most {limit_of(name):.3g} pass")

    yield record
    if lines:
        pytest.fail("; ".join(lines))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the ratios."""
    if not RATIOS:
        return
    terminalreporter.section("ratios")
    width = max(len(row[0]) for row in RATIOS)
    for name, measured, aim, note in RATIOS:
        terminalreporter.write_line(f"{name.ljust(width)}  {measured:9.3g}  aim {aim:g}  {note}")
