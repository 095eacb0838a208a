"""Fixtures, and profiles: ``HYPOTHESIS_PROFILE=deep`` searches longer, and elsewhere each time."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from tests.cli_runner import Runner
    from tests.refusals import Refused

# Tests start a few hundred processes: each would compile all modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Graphs and datasets are many objects that live for long: looking for cycles among them as often as
# Python does by default takes a fifth of the tests' time.
gc.set_threshold(100_000, 10, 10)

# Over half a second is thorough; the first test of a process needs leeway. A loaded machine is
# slower by a half or more, so that what a test may take is counted in loops timed beside it.
UNMARKED_CPU = 2.0
UNMARKED_LOOPS = 40
LIMITED = "TESTS_LIMIT_CPU" in os.environ

settings.register_profile("dev", max_examples=20, deadline=None, derandomize=True, database=None)
settings.register_profile("deep", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Runner:
    """Run commands in a folder of the test's own."""
    from tests.cli_runner import Runner

    monkeypatch.chdir(tmp_path)
    return Runner(capsys)


@pytest.fixture
def refused(cli: Runner) -> Refused:
    """Run commands that must be refused, in a folder of the test's own."""
    return lambda line, *more: cli.refused(line, *more).splitlines()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `thorough_cases` says of a test's parameters as thorough."""
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("thorough_cases")
        if marker is None:
            continue
        test, _, case = item.nodeid.partition("[")
        if _is_thorough(case, seen[test], *marker.args, **marker.kwargs):
            item.add_marker(pytest.mark.thorough)
        seen[test] += 1


def _is_thorough(
    case: str, number: int, *parts: str, but: Sequence[str] = (), every: int = 1
) -> bool:
    other = bool(but) and not any(part in case for part in but)
    return other or number % every > 0 or any(part in case for part in parts)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collection, which then runs seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.callbacks.append(_collected)
    if LIMITED:
        _draw_once()


@settings(max_examples=1)
@given(st.tuples(st.text(), st.integers(), st.floats()))
def _draw_once(drawn: object) -> None:
    """Let hypothesis read characters and modules: the first test to draw would pay for it."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, Any, Any]:
    """Give tests a wide terminal: they read whole lines; what has to fit one sets its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "1000")
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Give a test back its settings: each of its parameters would nest them once more.

    A thousand parameters, such as all formulas, would nest them deeper than Python recurses.
    With ``TESTS_LIMIT_CPU`` a test that takes long must be marked as thorough.
    """
    before = _cpu_seconds()
    test, name = getattr(item, "obj", None), "_hypothesis_internal_use_settings"
    kept = getattr(test, name, None)
    try:
        result = yield
    finally:
        if kept is not None:
            setattr(test, name, kept)
    taken = _cpu_seconds() - before
    limited = LIMITED and not item.get_closest_marker("thorough")
    if limited and taken > UNMARKED_CPU and taken > UNMARKED_LOOPS * _loop_seconds():
        pytest.fail(f"takes {taken:.1f} s of CPU: mark it as thorough, or make it faster")
    return result


COLLECTIONS = {"seconds": 0.0}


def _collected(phase: str, _: object) -> None:
    """Add up the CPU time of garbage collections: what all tests left is no one test's."""
    COLLECTIONS["seconds"] += sum(os.times()[:2]) * (1 if phase == "stop" else -1)


def _cpu_seconds() -> float:
    """Return what this process and the children that it waited for used beside collections."""
    return sum(os.times()[:4]) - COLLECTIONS["seconds"]


def _loop_seconds() -> float:
    """Return the CPU time of a loop that takes 0.05 s where nothing else runs."""
    before = _cpu_seconds()
    sum(number * number for number in range(1_000_000))
    return _cpu_seconds() - before
