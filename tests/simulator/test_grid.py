"""Every schedule on meshes and tori computes its collective, at the cost of known cases."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.simulator import SCHEDULES, simulate
from tests.simulator.core import Outcome
from tests.simulator.model import Case, Undefined

LATENCY, BANDWIDTH, BYTES = Fraction(3, 7), Fraction(11, 5), Fraction(13, 3)
TRANSFER = BYTES / BANDWIDTH
GRIDS = sorted(key for key in SCHEDULES if key[0] in ("mesh", "torus"))
SHAPES = [(1, 1), (2,), (5,), (6,), (1, 4), (2, 2), (4, 3), (2, 5), (3, 1, 2), (2, 2, 2), (3, 3, 2)]
EXCHANGES_SIDE_BY_SIDE = {"multi_shift_bidir", "multi_fwd_bidir", "multi_shift_line"}


def run(topology: str, collective: str, algorithm: str, *sizes: int, chunks: int = 1) -> Outcome:
    return simulate(
        Case(topology, collective, algorithm, sizes, BYTES, (LATENCY,), (BANDWIDTH,), chunks=chunks)
    )


def defined(algorithm: str, sizes: tuple[int, ...]) -> bool:
    used = [size for size in sizes if size > 1]
    if not used:
        return True
    if algorithm == "hamilton":
        return len(used) == 2
    if algorithm in ("chain", "two_chains"):
        return len(used) == 1
    return algorithm not in EXCHANGES_SIDE_BY_SIDE or len(set(used)) == 1


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("key", GRIDS, ids="-".join)
def test_it_computes_its_collective(key: tuple[str, str, str]) -> None:
    for sizes in SHAPES:
        case = Case(*key, sizes, BYTES, (LATENCY,), (BANDWIDTH,), chunks=2)
        if not defined(key[2], sizes):
            with pytest.raises(Undefined):
                simulate(case)
            continue
        outcome = simulate(case)
        once = simulate(replace(case, latency_per="message"))
        assert once.time <= outcome.time
        assert sum(outcome.carried) >= outcome.sent
        # A step pays whole latencies, and only one of them where a message counts once.
        assert (outcome.time - once.time) % LATENCY == 0


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    ("algorithm", "steps", "share"),
    [
        ("ring", 5, Fraction(11, 12)),
        ("ring_split", 5, Fraction(11, 24)),
        ("ring_short", 3, Fraction(11, 24)),
        ("multi_ring", 6, Fraction(1, 3) + Fraction(1, 8) + Fraction(1, 8)),
    ],
)
def test_a_torus_of_4_by_3(collective: str, algorithm: str, steps: int, share: Fraction) -> None:
    outcome = run("torus", collective, algorithm, 4, 3)
    assert (outcome.steps, outcome.time) == (steps, steps * LATENCY + share * TRANSFER)
    assert (outcome.sent, outcome.carried) == (BYTES * 11 / 12, (11 * BYTES,))


def test_a_wrapped_dimension_of_two_has_one_cable() -> None:
    """The reduce_scatter halves the buffer on the one cable first, then uses two ways."""
    first = run("torus", "reduce_scatter", "ring_split", 2, 4)
    assert first.time == 4 * LATENCY + (Fraction(1, 2) + Fraction(3, 16)) * TRANSFER
    last = run("torus", "reduce_scatter", "ring_split", 4, 2)
    assert last.time == 4 * LATENCY + (Fraction(3, 8) + Fraction(1, 8)) * TRANSFER
    assert run("torus", "all_to_all", "direct", 2).time == LATENCY + TRANSFER / 2


def test_inner_ranks_of_a_line_forward_both_ways() -> None:
    outcome = run("mesh", "all_gather", "line", 5)
    assert outcome.time == 4 * (LATENCY + TRANSFER / 5)
    assert outcome.sent == BYTES * 6 / 5
    assert run("mesh", "reduce_scatter", "line", 5).reduced == BYTES * 6 / 5


@pytest.mark.parametrize(("sizes", "hops"), [((3, 3), 4), ((4, 3), 1), ((3, 2), 1), ((5, 3), 6)])
def test_a_tour_of_a_mesh(sizes: tuple[int, int], hops: int) -> None:
    ranks = sizes[0] * sizes[1]
    outcome = run("mesh", "all_gather", "hamilton", *sizes)
    assert outcome.time == (ranks - 1) * (hops * LATENCY + TRANSFER / ranks)


def test_trees_have_their_roots_where_they_should() -> None:
    """Reductions meet in the centre, broadcasts start in a corner."""
    step = LATENCY + TRANSFER / 3
    centre = run("mesh", "all_reduce", "tree_pipe", 5, 4, chunks=3)
    assert (centre.steps, centre.time, centre.sent) == (10, 10 * step, 4 * BYTES)
    corner = run("mesh", "broadcast", "tree_pipe", 5, 4, chunks=3)
    assert (corner.steps, corner.time, corner.sent) == (9, 9 * step, 2 * BYTES)
    phases = run("torus", "reduce", "phased", 5, 4, chunks=3)
    assert (phases.time, phases.sent, phases.reduced) == (8 * step, BYTES, 4 * BYTES)


def test_exchanges_do_not_shrink_from_dimension_to_dimension() -> None:
    assert run("torus", "all_to_all", "fwd_bidir", 4, 4).time == 4 * LATENCY + TRANSFER
    assert run("torus", "all_to_all", "multi_fwd_bidir", 4, 4).time == 4 * LATENCY + TRANSFER / 2
    assert run("mesh", "all_to_all", "direct", 4, 3).time == 5 * LATENCY + TRANSFER
