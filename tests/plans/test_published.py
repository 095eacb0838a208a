"""Published plans beside the best of the search, by our own model: listed, not tuned."""

from __future__ import annotations

import numpy as np
import pytest

from tests.plans.published import Beside, beside, chosen_cases, lines

# One of each kind: small and large models, with and without experts, several machines.
SOURCES = ("mlperf_v4", "korthikanti", "megascale", "dgxc_25.05")


@pytest.fixture(scope="module")
def found() -> list[Beside]:
    return list(beside(chosen_cases(SOURCES)))


def test_no_published_plan_beats_the_best(found: list[Beside]) -> None:
    slower = np.array([one.slower for one in found])
    known = slower[np.isfinite(slower)]
    assert len(known) >= 8
    assert known.min() >= -1e-9


def test_the_list_says_how_many_are_near(found: list[Beside], capsys: object) -> None:
    told = list(lines(found))
    near = sum(one.slower <= 0.1 for one in found)
    assert told[-1].startswith(f"{near} of ")
    assert len(told) == 2 * len(found) + 1
    print("\n".join(told))
