"""Typed hops: formulas and general forms beside a simulation, limits, the notebook's table."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.evaluation import Evaluation
from overhead.hops import (
    SWITCHING,
    HopMatrix,
    LevelHops,
    Links,
    message_energy,
    message_time,
    messages,
    ring_all_reduce,
)
from tests.simulator import hops as simulated

EXACT = 1e-12
positive = st.fractions(Fraction(1, 20), 20, max_denominator=20)
times = st.fractions(0, 5, max_denominator=20)
links = st.builds(simulated.Link, times, positive, times)
counts = st.integers(0, 3)


def figures(types: list[simulated.Link]) -> Links:
    return Links(
        tuple(f"link {k}" for k in range(len(types))),
        tuple(float(link_type.latency) for link_type in types),
        tuple(float(link_type.bandwidth) for link_type in types),
        tuple(float(link_type.energy) for link_type in types),
    )


def path_of(types: list[simulated.Link], hops: tuple[int, ...]) -> list[simulated.Link]:
    return [link for link, count in zip(types, hops, strict=True) for _ in range(count)]


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[simulated.Link], tuple[tuple[int, ...], ...]]:
    """Return types of links, and a path over them for each of three levels."""
    types = draw(st.lists(links, min_size=1, max_size=3))
    path = st.tuples(*[counts] * len(types)).filter(any)
    return types, tuple(draw(path) for _ in range(3))


@pytest.mark.thorough
@given(networks(), st.fractions(0, 50, max_denominator=7))
def test_a_message(network: Any, size: Fraction) -> None:
    types, (hops, *_) = network
    known = figures(types)
    path = path_of(types, hops)
    ours = message_time(float(size), hops, known.latency, known.bandwidth)
    assert float(ours) == pytest.approx(float(simulated.send(size, path, 1)), rel=EXACT)
    # In ever smaller packets store and forward becomes cut-through.
    packets = 200
    exact = simulated.send(size, path, packets)
    streamed = float(message_time(float(size), hops, known.latency, known.bandwidth, "cut_through"))
    slack = float(sum(size / packets / link.bandwidth for link in path))
    assert streamed <= float(exact) * (1 + EXACT) + 1e-15
    assert float(exact) <= streamed + slack * (1 + 1e-9) + 1e-15
    energy = sum(8 * size * link.energy for link in path)
    ours = message_energy(float(size), hops, known.energy_per_bit)
    assert float(ours) == pytest.approx(float(energy), rel=EXACT)


@pytest.mark.thorough
@given(networks(), st.integers(2, 14), st.integers(1, 4), positive)
def test_a_ring(network: Any, ranks: int, size: int, message: Fraction) -> None:
    types, paths = network
    levels = LevelHops((size, 2), paths)
    known = figures(types)

    def between(left: int, right: int) -> tuple[int, ...]:
        if left // size == right // size:
            return paths[0]
        return paths[1 if left // (2 * size) == right // (2 * size) else 2]

    ring = [path_of(types, between(r, (r + 1) % ranks)) for r in range(ranks)]
    exact = simulated.ring_all_reduce(message, ring)
    ours = ring_all_reduce(float(message), ranks, levels, known)
    assert float(ours.time) == pytest.approx(float(exact.time), rel=EXACT)
    assert float(ours.energy) == pytest.approx(float(exact.energy), rel=EXACT)
    assert float(ours.rank_bytes) == pytest.approx(float(max(exact.sent)), rel=EXACT)
    assert float(ours.total_bytes) == pytest.approx(float(sum(exact.sent)), rel=EXACT)
    # A matrix with the same hops gives the same.
    everywhere = np.arange(ranks)
    matrix = HopMatrix(np.asarray(levels.hops(everywhere[:, None], everywhere)))
    for cell in product(range(ranks), repeat=2):
        hops = tuple(matrix.hops(*cell).astype(int))
        assert hops == ((0,) * len(types) if cell[0] == cell[1] else between(*cell))
    assert float(ring_all_reduce(float(message), ranks, matrix, known).time) == float(ours.time)


@pytest.mark.parametrize("switching", SWITCHING)
@given(
    known=st.tuples(*[st.floats(1e-7, 1e3)] * 6),
    path=st.tuples(counts, counts).filter(any),
    size=st.floats(0, 1e6),
)
def test_the_formulas_are_the_general_forms(
    switching: str, known: Any, path: Any, size: float
) -> None:
    names = [
        f"{level}_{figure}"
        for figure in ("latency", "bandwidth", "energy_per_bit")
        for level in ("intra", "inter")
    ]
    given_ones = {
        **dict(zip(names, known, strict=True)),
        "intra_hops": float(path[0]),
        "inter_hops": float(path[1]),
        "message_bytes": size,
    }
    evaluation = Evaluation(given_ones, {"switching": switching})
    types = Links(("intra", "inter"), known[:2], known[2:4], known[4:])
    time = message_time(size, path, types.latency, types.bandwidth, switching)
    assert float(evaluation["path_time"]) == float(time)
    energy = message_energy(size, path, types.energy_per_bit)
    assert float(evaluation["path_energy"]) == float(energy)


# Limits.

NOTEBOOK = Links(("NVLink", "InfiniBand"), (0.2e-6, 2e-6), (90e9, 50e9), (5e-12, 25e-12))
NODES = LevelHops((8,), ((1, 0), (2, 1)))


def test_limits() -> None:
    alone = ring_all_reduce(1e9, 1, NODES, NOTEBOOK)
    assert float(alone.time) == float(alone.energy) == float(alone.rank_bytes) == 0.0
    empty = ring_all_reduce(0.0, 8, NODES, NOTEBOOK)
    assert float(empty.time) == pytest.approx(14 * 0.2e-6)
    assert float(empty.energy) == 0.0
    fast = Links(("a", "b"), (0.0, 0.0), (np.inf, np.inf), (0.0, 0.0))
    assert float(ring_all_reduce(1e9, 16, NODES, fast).time) == 0.0
    assert float(message_time(1e9, (0, 0), *_two(NOTEBOOK))) == 0.0
    assert float(message_time(1e9, (0, 0), *_two(NOTEBOOK), "cut_through")) == 0.0
    assert NOTEBOOK.mix((2, 1)) == "2 NVLink + 1 InfiniBand"
    assert NOTEBOOK.mix((0, 0)) == "no link"


def test_rails() -> None:
    """Eight GPUs with four cards: two share a rail, and another rail is a turn in the node."""
    rails = LevelHops((8,), ((1, 0, 0), (0, 2, 1)), 4, (1, 0, 0))
    for number, path in (
        (0, (0, 0, 0)),
        (5, (1, 0, 0)),
        (8, (0, 2, 1)),
        (9, (0, 2, 1)),
        (10, (1, 2, 1)),
        (15, (1, 2, 1)),
        (16, (0, 2, 1)),
    ):
        assert tuple(rails.hops(0, number)) == tuple(rails.hops(number, 0)) == path
    # A ring of every eighth rank stays on its rail.
    links = Links(("a", "b", "c"), (1e-6, 0.0, 2e-6), (4e9, 2e9, 1e9), (1e-12, 2e-12, 4e-12))
    ring = ring_all_reduce(4e6, 4, rails, links, "cut_through", stride=8)
    assert float(ring.time) == pytest.approx(6 * (2e-6 + 1e6 / 1e9))
    assert float(ring.energy) == pytest.approx(6 * 4 * 8e6 * 8e-12)


def _two(known: Links) -> tuple[Any, Any]:
    return known.latency, known.bandwidth


@given(networks(), st.floats(0, 1e3))
def test_streaming_is_no_slower(network: Any, size: float) -> None:
    types, (hops, *_) = network
    known = figures(types)
    stored, streamed = (
        float(message_time(size, hops, known.latency, known.bandwidth, way)) for way in SWITCHING
    )
    assert streamed <= stored * (1 + EXACT)
    if sum(hops) == 1:
        assert streamed == pytest.approx(stored, rel=EXACT)


def test_arrays_broadcast() -> None:
    sizes = np.array([[1e3], [1e6]])
    hops = np.array([[0, 1, 2], [1, 0, 1]])
    whole = message_time(sizes, hops, *_two(NOTEBOOK))
    assert whole.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert whole[i, j] == message_time(sizes[i, 0], hops[:, j], *_two(NOTEBOOK))
    ring = ring_all_reduce(sizes, 16, NODES, NOTEBOOK)
    assert ring.time.shape == (2, 1)
    assert ring.time[1, 0] == ring_all_reduce(1e6, 16, NODES, NOTEBOOK).time
    sent = messages(sizes, (2, 1), NOTEBOOK, count=3, senders=4)
    assert sent.total_bytes[0, 0] == 12e3
    assert sent.time[0, 0] == 3 * message_time(1e3, (2, 1), *_two(NOTEBOOK))


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: LevelHops((8,), ((1, 0),)), "a path for each level"),
        (lambda: LevelHops((8,), ((1, 0), (2,))), "a path for each level"),
        (lambda: LevelHops((0,), ((1,), (2,))), "sizes from 1"),
        (lambda: LevelHops((), ((1,),), 2, (1,)), "rails of nodes"),
        (lambda: HopMatrix(np.zeros((1, 2, 3))), "have the shape"),
        (lambda: HopMatrix(np.full((1, 2, 2), -1.0)), "whole numbers"),
        (lambda: HopMatrix(np.full((1, 2, 2), 0.5)), "whole numbers"),
        (lambda: HopMatrix(np.ones((1, 2, 2))), "to itself"),
        (lambda: message_time(1.0, (1,), (1.0,), (1.0,), "teleport"), "not a way of switching"),
    ],
)
def test_what_can_not_be_is_refused(make: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        make()


# The notebook's table, from its constants.

BLOCK = 2048 * 4096 * 2
ATTENTION = 2 * (4096 * 4096 + 2 * 1024 * 4096 + 4096 * 4096)
MLP = 2 * (2 * 14336 * 4096)
TABLE = {
    ("ATTN", "DP-8"): (73.400, 1.634, 46.976),
    ("ATTN", "DP-16"): (78.643, 6.713, 176.161),
    ("MLP", "DP-8"): (205.521, 4.570, 131.533),
    ("MLP", "DP-16"): (220.201, 18.667, 493.250),
    ("ATTN", "TP-8"): (33.554, 0.373, 1.342),
    ("MLP", "TP-8"): (33.554, 0.373, 1.342),
    ("BLOCK", "PP-NV"): (16.777, 0.187, 0.671),
    ("BLOCK", "PP-Cross"): (16.777, 0.711, 4.698),
}


def test_the_notebook_s_rings() -> None:
    for (layer, mode), (megabytes, milliseconds, millijoules) in TABLE.items():
        size = {"ATTN": ATTENTION, "MLP": MLP}.get(layer, BLOCK)
        if mode.startswith("DP"):
            ours = ring_all_reduce(size, int(mode[3:]), NODES, NOTEBOOK)
            sent = ours.rank_bytes / 2
        else:
            hops = (2, 1) if mode == "PP-Cross" else (1, 0)
            ours = messages(BLOCK, hops, NOTEBOOK, count=2 if mode == "TP-8" else 1)
            sent = ours.rank_bytes
        actual = (sent / 1e6, ours.time * 1e3, ours.energy * 1e3)
        assert tuple(round(float(x), 3) for x in actual) == (megabytes, milliseconds, millijoules)
