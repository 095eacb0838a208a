"""Hypothesis profiles: ``HYPOTHESIS_PROFILE=deep`` searches longer, and elsewhere each time."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

# Tests start a few hundred processes: each would compile all modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Graphs and datasets are many objects that live for long: looking for cycles among them as often as
# Python does by default takes a fifth of the tests' time.
gc.set_threshold(100_000, 10, 10)

settings.register_profile("dev", max_examples=20, deadline=None, derandomize=True, database=None)
settings.register_profile("deep", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collection, which then runs seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


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
    """
    test, name = getattr(item, "obj", None), "_hypothesis_internal_use_settings"
    kept = getattr(test, name, None)
    try:
        return (yield)
    finally:
        if kept is not None:
            setattr(test, name, kept)
