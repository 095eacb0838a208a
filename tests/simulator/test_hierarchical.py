"""Every schedule on two and three levels computes its collective, at the cost of known cases."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.simulator import SCHEDULES, STREAMS, simulate
from tests.simulator.core import Outcome
from tests.simulator.model import Case, Undefined

LATENCY = (Fraction(3, 7), Fraction(5, 3), Fraction(22, 9))
BANDWIDTH = (Fraction(11, 5), Fraction(7, 13), Fraction(2, 9))
BYTES = Fraction(13, 3)
STEPPED = {**SCHEDULES, **STREAMS}
ALL = sorted(key[1:] for key in STEPPED if key[0] == "hierarchical")
SHAPES = [(1, 1), (3, 1), (1, 4), (2, 2), (3, 2), (4, 3), (1, 1, 2), (2, 3, 2), (3, 1, 2)]


def run(collective: str, algorithm: str, sizes: tuple[int, ...], nic: int = 1) -> Outcome:
    levels = len(sizes)
    return simulate(
        Case(
            "hierarchical",
            collective,
            algorithm,
            sizes,
            BYTES,
            LATENCY[:levels],
            BANDWIDTH[:levels],
            chunks=2,
            ranks_sharing_nic=nic,
        )
    )


def defined(algorithm: str, sizes: tuple[int, ...]) -> bool:
    if set(sizes) == {1}:
        return True
    if algorithm in ("flat_pairwise", *(key[2] for key in STREAMS)):
        return len(sizes) == 2
    return not algorithm.endswith("halving") or not any(size & (size - 1) for size in sizes[1:])


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("key", ALL, ids="-".join)
def test_it_computes_its_collective(key: tuple[str, str]) -> None:
    for sizes in SHAPES:
        times = []
        for nic in range(1, sizes[0] + 1):
            if not defined(key[1], sizes):
                with pytest.raises(Undefined):
                    run(*key, sizes, nic)
                continue
            outcome = run(*key, sizes, nic)
            times.append(outcome.time)
            assert sum(outcome.carried) >= outcome.sent
        assert times == sorted(times)


@pytest.mark.parametrize("nic", [1, 2, 4])
def test_levels_shrink_and_adapters_are_shared(nic: int) -> None:
    """Inside a node 3/4 of the buffer, then 2/3 of a quarter, times the ranks of an adapter."""
    outcome = run("reduce_scatter", "direct_ring", (4, 3), nic)
    inside = LATENCY[0] + Fraction(3, 4) * BYTES / BANDWIDTH[0]
    between = 2 * LATENCY[1] + nic * Fraction(2, 12) * BYTES / BANDWIDTH[1]
    assert outcome.time == inside + between
    assert outcome.carried == (9 * BYTES, 2 * BYTES)


def test_three_levels() -> None:
    outcome = run("all_reduce", "ring_halving", (3, 2, 2), 3)
    inside = 2 * LATENCY[0] + Fraction(2, 3) * BYTES / BANDWIDTH[0]
    nodes = LATENCY[1] + Fraction(3, 6) * BYTES / BANDWIDTH[1]
    pods = LATENCY[2] + Fraction(3, 12) * BYTES / BANDWIDTH[2]
    assert outcome.time == 2 * (inside + nodes + pods)
    assert outcome.carried == (16 * BYTES, 4 * BYTES, 2 * BYTES)


def test_channels_use_all_adapters_and_one_ring_uses_one() -> None:
    message = BYTES / 12
    channels = run("all_gather", "flat_ring_channels", (4, 3))
    assert channels.time == 11 * (LATENCY[1] + message / 4 / BANDWIDTH[1])
    assert run("all_gather", "flat_ring", (4, 3)).time == 11 * (LATENCY[1] + message / BANDWIDTH[1])
    alone = run("all_gather", "flat_ring_channels", (4, 1))
    assert alone.time == 3 * (LATENCY[0] + BYTES / 4 / BANDWIDTH[0])


def test_wrong_order_costs_more_between_nodes() -> None:
    assert run("all_gather", "intra_inter", (4, 3)).carried == (3 * BYTES, 8 * BYTES)
    assert run("all_gather", "ring_ring", (4, 3)).carried == (9 * BYTES, 2 * BYTES)


@pytest.mark.parametrize("nic", [1, 2, 3])
def test_shifts_across_nodes_share_an_adapter(nic: int) -> None:
    outcome = run("all_to_all", "flat_pairwise", (3, 3), nic)
    crowd = [min(shift, 9 - shift, nic) for shift in range(1, 9)]
    assert outcome.time == sum(LATENCY[1] + n * BYTES / 9 / BANDWIDTH[1] for n in crowd)


@pytest.mark.parametrize(("sizes", "inside", "between"), [((8, 2), 26, 4), ((4, 3), 16, 6)])
def test_a_ring_without_waiting_pays_its_path(
    sizes: tuple[int, int], inside: int, between: int
) -> None:
    """Twice round the ring, but for two links inside nodes; the transfer is the slowest link's."""
    ranks = sizes[0] * sizes[1]
    outcome = run("all_reduce", "ring_path", sizes, sizes[0])
    transfer = 2 * (ranks - 1) * BYTES / ranks / BANDWIDTH[1]
    assert outcome.time == inside * LATENCY[0] + between * LATENCY[1] + transfer
    assert outcome.time < run("all_reduce", "flat_ring_channels", sizes, sizes[0]).time


def test_rounds_node_by_node_lie_inside_or_between() -> None:
    outcome = run("all_to_all", "node_pairwise", (4, 2))
    inside = 3 * (LATENCY[0] + BYTES / 8 / BANDWIDTH[0])
    assert outcome.time == inside + 4 * (LATENCY[1] + BYTES / 8 / BANDWIDTH[1])


def test_a_reduce_to_a_root_sends_more_than_the_buffer_on_rails() -> None:
    outcome = run("reduce", "scatter_rails", (4, 3))
    assert outcome.sent == BYTES * 5 / 4
    assert outcome.reduced == BYTES * 5 / 4
    assert run("broadcast", "scatter_rails", (4, 3)).time == outcome.time


@pytest.mark.parametrize(
    ("sizes", "level"), [((4, 1), 0), ((4, 2), 1), ((1, 3), 1), ((2, 1, 2), 2), ((2, 2, 2), 1)]
)
def test_two_ranks_of_neighbouring_nodes(sizes: tuple[int, ...], level: int) -> None:
    assert run("p2p", "direct", sizes).time == LATENCY[level] + BYTES / BANDWIDTH[level]


@pytest.mark.parametrize(
    ("nodes", "depth", "load"), [(2, 1, 1), (3, 2, Fraction(4, 3)), (8, 3, Fraction(7, 4))]
)
def test_trees_between_nodes_carry_less_than_a_ring(nodes: int, depth: int, load: Fraction) -> None:
    """With two nodes each sends the message once, with many nearly twice, on each rank's card."""
    outcome = run("all_reduce", "tree_path", (4, nodes), 4)
    latency = 6 * LATENCY[0] + 2 * depth * LATENCY[1]
    assert outcome.time == latency + load * BYTES / BANDWIDTH[1]
    assert outcome.steps == 6 + 2 * depth


def test_switches_that_reduce_take_the_message_once() -> None:
    outcome = run("all_reduce", "nvls_sharp", (4, 3), 4)
    assert outcome.time == 2 * LATENCY[0] + 2 * LATENCY[1] + BYTES / BANDWIDTH[1]
    assert outcome.carried == (15 * BYTES, 3 * BYTES)
    assert outcome.reduced == 0
    plain = run("all_reduce", "nvls_tree", (4, 3), 4)
    assert plain.time == 2 * LATENCY[0] + 4 * LATENCY[1] + Fraction(4, 3) * BYTES / BANDWIDTH[1]
