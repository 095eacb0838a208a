"""Every schedule of the one-dimensional networks computes its collective (its run proves it)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.simulator import SCHEDULES, simulate
from tests.simulator.core import Outcome
from tests.simulator.model import Case, Undefined

LATENCY, BANDWIDTH, BYTES = Fraction(3, 7), Fraction(11, 5), Fraction(13, 3)
FLAT = sorted(key for key in SCHEDULES if key[0] in ("ring", "switch", "tree", "binary_tree"))
POWERS_ONLY = {"halving", "doubling", "vdg_doubling", "rd"}


def case(key: tuple[str, str, str], ranks: int, chunks: int = 1) -> Case:
    return Case(*key, (ranks,), BYTES, (LATENCY,), (BANDWIDTH,), chunks)


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("key", FLAT, ids="-".join)
def test_it_computes_its_collective(key: tuple[str, str, str]) -> None:
    for ranks in range(2, 10):
        for chunks in (1, 3):
            try:
                outcome = simulate(case(key, ranks, chunks))
            except Undefined:
                power = not ranks & (ranks - 1)
                assert power == (key[2] == "rabenseifner_fold")
                continue
            assert outcome.time > 0
            # All that a rank sends crosses at least one link, or one port and a switch.
            assert sum(outcome.carried) >= outcome.sent / 2
            once = simulate(replace(case(key, ranks, chunks), latency_per="message"))
            assert once.time <= outcome.time


@pytest.mark.parametrize("key", FLAT, ids="-".join)
def test_one_rank_costs_nothing(key: tuple[str, str, str]) -> None:
    outcome = simulate(case(key, 1))
    assert outcome == Outcome(Fraction(0), 0, Fraction(0), (Fraction(0),), Fraction(0))


def test_algorithms_for_powers_of_two_only() -> None:
    only = [
        key for key in FLAT if key[2] in POWERS_ONLY or (key[0], key[2]) == ("ring", "binomial")
    ]
    assert len(only) == 9
    for key in only:
        for ranks in (3, 5, 6, 7, 12):
            with pytest.raises(Undefined):
                simulate(case(key, ranks))


def test_a_pipelined_chain() -> None:
    outcome = simulate(case(("ring", "broadcast", "chain"), 5, 4))
    assert outcome.steps == 7
    assert outcome.time == 7 * (LATENCY + BYTES / 4 / BANDWIDTH)


def test_opposite_ranks_of_an_even_ring_share_both_ways() -> None:
    outcome = simulate(case(("ring", "all_to_all", "shift_bidir"), 8))
    assert outcome.time == 10 * LATENCY + BYTES / BANDWIDTH


def test_two_ranks_on_a_ring_have_one_cable() -> None:
    outcome = simulate(case(("ring", "all_gather", "ring_short"), 2))
    assert outcome.time == LATENCY + BYTES / 2 / BANDWIDTH
