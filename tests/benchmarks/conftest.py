"""A table of ratios at the end of a run."""

import time
from collections.abc import Callable

import pytest

RATIOS: list[tuple[str, float, float, str]] = []


def best_of(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Return the best time of each work, in turns, so that all see the same machine."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


@pytest.fixture
def ratio() -> Callable[[str, float, float, str], None]:
    """Record a measured ratio, the one aimed at, and a note."""

    def record(what: str, measured: float, aim: float, note: str = "") -> None:
        RATIOS.append((what, measured, aim, note))

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the ratios."""
    if not RATIOS:
        return
    terminalreporter.section("ratios")
    width = max(len(row[0]) for row in RATIOS)
    for what, measured, aim, note in RATIOS:
        terminalreporter.write_line(f"{what.ljust(width)}  {measured:9.3g}  aim {aim:g}  {note}")
