"""The job that mutates formulas: a wrong one is noticed, an equal one isn't, no file is written."""

from __future__ import annotations

import os
import subprocess
import sys
from types import CodeType

import numpy as np
import pytest

from overhead import REGISTRY
from tests.maintenance.mutant import ROOT, Mutant, mutants
from tests.maintenance.mutate import (
    LAWS,
    LIVES,
    SAME,
    TESTS,
    drawn_mutants,
    of_laws,
    reach,
    simulated,
    verdict,
)

RUN = "overhead/run.py"
DALY = {
    "checkpoint_stall_time": 2.0,
    "mean_time_between_failures": 100.0,
    "step_time": 0.0,
    "checkpoint_drain_time": 0.0,
}


def mutant(text: str) -> Mutant:
    (found,) = (one for one in mutants((RUN,)) if one.what == text)
    return found


def interval() -> float:
    formula = REGISTRY["checkpoint_interval"]
    return float(formula.kernel(*(np.asarray(DALY[name]) for name in formula.inputs)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9.0 -> 18.0", "by hand"),
        ("power and idle_power_fraction swapped", "device_energy"),
        ("xp.maximum(best, step_time) -> xp.minimum(best, step_time)", "by hand"),
        ("weight_bytes + optimizer_bytes -> weight_bytes", "checkpoint_bytes is 15, by hand 36"),
    ],
)
def test_what_is_wrong_is_noticed(text: str, said: str) -> None:
    before = interval()
    found = next(one for one in mutants((RUN,)) if one.what == text)
    result, why = verdict(found, found.functions())
    assert result == LAWS
    assert said in why
    assert interval() == before


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (
            "xp.maximum(goodput, LEAST) -> xp.minimum(goodput, LEAST)",
            "run_time",
            "is not proportional to the power -1 of goodput",
        ),
        (
            "weight_bytes + optimizer_bytes -> weight_bytes",
            "checkpoint_bytes",
            "doesn't move with optimizer_bytes as declared",
        ),
    ],
)
def test_laws_alone_notice_it_too(text: str, name: str, said: str) -> None:
    found = next(one for one in mutants((RUN,)) if one.what == text)
    assert not list(of_laws(REGISTRY[name]))
    with found.living(found.functions()), np.errstate(all="ignore"):
        assert said in list(of_laws(REGISTRY[name]))


@pytest.mark.thorough
def test_algorithms_are_simulated() -> None:
    def is_seen(mutant: Mutant, changed: dict[CodeType, CodeType]) -> bool:
        keys = [one.key for code in changed for one in reach().algorithms.get(code, ())]
        assert not simulated(keys)
        with mutant.living(changed):
            return bool(simulated(keys))

    # Few ranks don't show each.
    assert any(is_seen(*drawn) for drawn in drawn_mutants(6, 1, "collectives"))


def test_what_is_the_same_is_not() -> None:
    swapped = next(
        one for one in mutants((RUN,)) if one.what == "weight_bytes and optimizer_bytes swapped"
    )
    assert verdict(swapped, swapped.functions())[0] == SAME


def test_what_no_law_reads_lives() -> None:
    """Attempts from 0.01 and from 0.02 are counted alike: the form for short ones holds of both."""
    whose = next(one for one in mutants((RUN,)) if one.what.startswith("attempt < 0.01"))
    found = mutants((RUN,))[whose.number + 1]
    assert found.what == "0.01 -> 0.02"
    assert verdict(found, found.functions())[0] == LIVES


@pytest.mark.thorough
def test_a_mutant_is_loaded_by_a_process_of_its_own() -> None:
    command = (
        "import tests.maintenance.mutant\nfrom tests.maintenance.test_mutate import interval\n"
        "print(interval())"
    )
    source = (ROOT / RUN).read_text(encoding="utf-8")
    env = {**os.environ, "MUTANT": mutant("9.0 -> 18.0").key, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "-c", command], env=env, capture_output=True, text=True, check=True
    )
    # sqrt(2*2*100) = 20; a hundredth by 18 instead of by 9 is missing.
    assert float(process.stdout) == pytest.approx(interval() - 20 * (0.01 / 9 - 0.01 / 18))
    assert (ROOT / RUN).read_text(encoding="utf-8") == source


@pytest.mark.thorough
def test_every_package_with_mutants_has_tests() -> None:
    called = {*reach().formulas, *reach().algorithms}
    first = {mutant.package: mutant for mutant in mutants(reach().paths)}
    assert {
        name for name, mutant in first.items() if called & {*mutant.functions()}
    } <= TESTS.keys()


def test_draws_are_of_functions_that_are_called() -> None:
    left, right = (list(drawn_mutants(20, 3)) for _ in range(2))
    assert [mutant.key for mutant, _ in left] == [mutant.key for mutant, _ in right]
    called = {*reach().formulas, *reach().algorithms}
    assert all(called & set(changed) for _, changed in left)
