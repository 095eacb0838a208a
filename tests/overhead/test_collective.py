"""The one call for a collective on a network: worked examples, shapes, choices, faults."""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import Any

import numpy as np
import pytest

import sweeps
from overhead import CollectiveKind, CollectiveResult, TopologyKind, build_topology, collective
from overhead.choose import candidates
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.evaluation import Evaluation
from overhead.labels import COLLECTIVES
from overhead.topology import TopologyDesc
from tests.overhead.shapes import fitting
from tests.tables import examples, keyed

NUMBERS = [field.name for field in fields(CollectiveResult) if field.name != "algorithm"]
PAIRS = tuple(dict.fromkeys(key[:2] for key in ALGORITHMS))
LEVELS = keyed("intra_latency=1.0 intra_bandwidth=8.0 inter_latency=10.0 inter_bandwidth=2.0")


def network(kind: str, ranks: Any, **other: Any) -> TopologyDesc:
    """Return a network with easy numbers: 2 bytes a second and 3 seconds a hop."""
    if kind == "hierarchical":
        return build_topology(kind, ranks, **{"gpus_per_node": 4, **LEVELS, **other})
    links = {"bandwidth": 2.0, "latency": 3.0, "energy_per_bit": 0.5}
    return build_topology(kind, ranks, **links | other)


def seconds(kind: str, message: float, on: TopologyDesc, algorithm: str, **other: Any) -> float:
    return float(collective(kind, message, on, algorithm=algorithm, **other).latency_s)


# Defaults.


@pytest.mark.parametrize("kind", list(NETWORKS))
def test_a_network_of_which_only_the_size_is_said_is_the_commands(kind: str) -> None:
    """To the last bit, below and above the size of a node, by every choice."""
    names = keyed(
        "latency_s=time energy_j=energy volume_bytes=sent_bytes lower_bound_s=lower_bound "
        "intra_latency_s=intra_time"
    )
    operations = [operation for topology, operation in PAIRS if topology == kind]
    axes = {"collective": operations, "algorithm": ["standard", "nccl", "auto"]}
    ranks = fitting(kind, (1, 8, 16))
    theirs = sweeps.sweep(
        list(names.values()), topology=kind, ranks=ranks, message_bytes=2.0**26, **axes
    )
    for operation in operations:
        for choice in axes["algorithm"]:
            ours = collective(operation, 2.0**26, build_topology(kind, ranks), algorithm=choice)
            own = theirs.sel(collective=operation, algorithm=choice)
            for field, name in names.items():
                want = np.broadcast_to(own[name], 3)
                np.testing.assert_array_equal(getattr(ours, field), want, f"{operation} {name}")


# Worked examples.


def test_ring_of_eight() -> None:
    """14 steps of 3 s and 160/8 = 20 bytes at 2 bytes/s: 14 x 13 s."""
    result = collective("all_reduce", 160.0, network("ring", 8))
    assert float(result.latency_s) == 182.0
    assert float(result.latency_part_s) == 42.0
    assert float(result.bandwidth_part_s) == 140.0
    assert float(result.steps) == 14.0
    # 14 blocks of 20 bytes out of each rank, and 8 ranks.
    assert float(result.volume_bytes) == 280.0
    assert float(result.link_bytes) == 2240.0
    # 2240 bytes x 8 bit x 0.5 J.
    assert float(result.energy_j) == 8960.0
    assert float(result.busbw) == pytest.approx(float(result.algbw) * 14 / 8)
    assert float(result.algbw) == 160 / 182
    # Two ports a rank carry 160 bytes in 40 s, but all 16 links 2 x 7 x 160 bytes in 70 s.
    assert float(result.lower_bound_s) == 70.0
    assert float(result.lower_bound_ratio) == pytest.approx(2.6)
    assert (float(result.intra_latency_s), float(result.inter_latency_s)) == (182.0, 0.0)
    assert result.algorithm == "ring"


def test_other_ways_round_a_ring() -> None:
    ring = network("ring", 8)
    # Half of each block each way: 14 x 3 + 14 x 10/2.
    assert seconds("all_reduce", 160.0, ring, "ring_split") == 112.0
    # Every block both ways, half of the ring: 2 x 4 steps, the same transfer.
    assert seconds("all_reduce", 160.0, ring, "ring_short") == 94.0
    # Blocks of 20 bytes; the busiest link has 1 + 2 + 3 + 4/2 of them: N/8 messages, 80 s.
    for name, latencies in {"shift_bidir": 10, "fwd_bidir": 4, "direct": 4}.items():
        assert seconds("all_to_all", 160.0, ring, name) == latencies * 3.0 + 80.0
    # A latency a message rather than a hop: 4 shifts.
    assert seconds("all_to_all", 160.0, ring, "shift_bidir", latency_per="message") == 92.0
    # A chain of 8 ranks: with 1 chunk 7 steps of 80 s, with 4 chunks 10 of 20 s.
    assert seconds("broadcast", 160.0, ring, "chain", chunks=1) == 7 * 83.0
    assert seconds("broadcast", 160.0, ring, "chain", chunks=4) == 10 * 23.0
    # Chosen: sqrt(6 x 80/3) = 12.65, and 12: 18 x 3 + 18 x 80/12 = 174; 13: 19 x 3 + 116.92.
    assert seconds("broadcast", 160.0, ring, "chain") == pytest.approx(19 * (3 + 80 / 13))


def test_switch_of_eight() -> None:
    switch = network("switch", 8, has_nvls=1, has_inc=1)
    # Halving and doubling: 3 + 3 steps; 4 + 2 + 1 blocks of 20 bytes each way.
    assert seconds("all_reduce", 160.0, switch, "halving") == 6 * 3 + 2 * 140 / 2
    assert seconds("all_reduce", 160.0, switch, "doubling") == 3 * (3 + 80.0)
    assert seconds("all_reduce", 160.0, switch, "direct") == 2 * 3 + 2 * 140 / 2
    assert seconds("all_reduce", 160.0, switch, "binomial") == 6 * (3 + 80.0)
    assert seconds("all_reduce", 160.0, switch, "inc") == 3 + 80.0
    # Blocks by the bits of their distance, 12 bits in 1 .. 7: 12 blocks of 20 bytes.
    assert seconds("all_to_all", 160.0, switch, "bruck") == 3 * 3 + 240 / 2
    # Six ranks: two hand their buffers to a partner, four halve and double, two get it back.
    six = network("switch", 6)
    folded = 2 * (3 + 80.0) + 4 * 3 + 2 * (3 / 4 * 160) / 2
    assert seconds("all_reduce", 160.0, six, "rabenseifner_fold") == folded


def test_torus_of_four_by_four() -> None:
    torus = network("torus", 16, mesh_nx=4, mesh_ny=4)
    # x: 3 steps of 160/4 bytes; y: 3 of 40/4; and back.
    assert seconds("all_reduce", 160.0, torus, "ring") == 2 * (3 * (3 + 20.0) + 3 * (3 + 5.0))
    # Two halves of the buffer, each beginning with another dimension: half of the transfer.
    assert seconds("all_reduce", 160.0, torus, "multi_ring") == 2 * (6 * 3 + 75 / 2)
    # Exchanges don't shrink: twice that of a ring of four, 4/8 messages.
    assert seconds("all_to_all", 160.0, torus, "shift_bidir") == 2 * (3 * 3 + 40.0)
    mesh = network("mesh", 16, mesh_nx=4, mesh_ny=4)
    assert seconds("all_to_all", 160.0, mesh, "direct") == 6 * 3 + 80.0


@pytest.mark.parametrize(("cards", "sharers"), [(4, 1), (2, 2), (1, 4)])
def test_two_nodes_of_four(cards: int, sharers: int) -> None:
    """In a node 3 steps of 160/4 bytes at 8 bytes/s; between them one of 20 bytes a rank."""
    nodes = network("hierarchical", 8, nics_per_node=cards)
    result = collective("all_reduce", 160.0, nodes)
    inside, between = 2 * (3 * 1 + 120 / 8), 2 * (10 + sharers * 20 / 2)
    assert float(result.latency_s) == inside + between
    assert float(result.intra_latency_s) == inside
    assert float(result.inter_latency_s) == between
    assert float(result.volume_bytes) == 2 * 7 / 8 * 160


def test_nodes_behind_a_narrow_network() -> None:
    plain = network("hierarchical", 8)
    narrow = network("hierarchical", 8, oversubscription=3)
    there = collective("all_reduce", 160.0, narrow).inter_latency_s
    assert float(there) == 2 * (10 + 3 * 20 / 2)
    same = collective("all_reduce", 160.0, network("hierarchical", 8, oversubscription=1))
    assert same.latency_s == collective("all_reduce", 160.0, plain).latency_s


def test_three_levels() -> None:
    """2 x 2 x 2 ranks: 80 bytes in a node, 40 between nodes, 20 between pods."""
    pods = network(
        "hierarchical", 8, gpus_per_node=2, nodes_per_pod=2, pod_latency=20.0, pod_bandwidth=1.0
    )
    result = collective("reduce_scatter", 160.0, pods)
    assert float(result.latency_s) == (1 + 80 / 8) + (10 + 40 / 2) + (20 + 20 / 1)
    assert float(result.intra_latency_s) == 11.0
    assert float(result.inter_latency_s) == 70.0


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce", "all_to_all", "p2p"])
@pytest.mark.parametrize("software", ["none", "nccl"])
def test_two_levels_are_three_with_one_pod(kind: str, software: str) -> None:
    """To the bit, whatever the links between pods."""
    ranks = np.array([1.0, 2.0, 8.0, 16.0, 64.0])
    two = build_topology("hierarchical", ranks)
    far = {"pod_bandwidth": 1e9, "pod_latency": 1e-3, "pod_energy_per_bit": 1e-9}
    three = build_topology("hierarchical", ranks, nodes_per_pod=8.0, **far)
    for algorithm in ALGORITHMS.of("hierarchical", kind):
        asked = {"algorithm": algorithm.name, "software": software}
        with np.errstate(all="ignore"):
            left, right = (collective(kind, 1e6, levels, **asked) for levels in (two, three))
        for field in fields(left):
            ours, theirs = getattr(left, field.name), getattr(right, field.name)
            np.testing.assert_array_equal(ours, theirs, f"{algorithm.name}: {field.name}")


@pytest.mark.parametrize(
    ("kind", "ranks", "algorithm", "share"),
    [
        ("switch", 8, "dbt", 2.0),
        ("switch", 3, "dbt", 1.5),
        ("switch", 2, "dbt", 1.0),
        ("switch", 8, "nvls", 9 / 8),
        ("switch", 8, "inc_pipe", 1.0),
        ("ring", 8, "tree_pipe", 1.0),
        ("binary_tree", 15, "tree_pipe", 1.0),
    ],
)
def test_many_chunks_come_near_a_known_limit(
    kind: str, ranks: int, algorithm: str, share: float
) -> None:
    """Without latency chunks are free: time tends to so many messages by the bandwidth."""
    switched = {"has_nvls": 1, "has_inc": 1} if kind == "switch" else {}
    instant = network(kind, ranks, latency=0.0, **switched)
    assert seconds("all_reduce", 160.0, instant, algorithm) == pytest.approx(share * 80.0)


def test_phases_on_a_torus_overlap_over_chunks() -> None:
    """Two chunks: 3 x (3 + 10) and 3 x (3 + 2.5) s a chunk, and the slower one once more."""
    torus = network("torus", 16, mesh_nx=4, mesh_ny=4)
    assert seconds("all_gather", 160.0, torus, "ring", phase_chunks=2) == 39 + 16.5 + 39
    assert seconds("all_gather", 160.0, torus, "ring", phase_chunks=1) == 69 + 24


def test_reductions_cost_what_they_are_told_to() -> None:
    """Seven of eight blocks of 20 bytes are added to another, at 0.1 s a byte."""
    ring = network("ring", 8)
    assert seconds("all_reduce", 160.0, ring, "ring", reduction_cost=0.1) == pytest.approx(196.0)
    free = seconds("all_gather", 160.0, ring, "ring")
    assert seconds("all_gather", 160.0, ring, "ring", reduction_cost=0.1) == free


def test_a_network_that_cannot_be_has_no_algorithm() -> None:
    """Of 8 and 12 ranks those fill nodes of 8, and these 2 x 2 x 3 of a torus, not 2 x 2 x 2."""
    both = np.array([8.0, 12.0])
    nodes = {"topology": "hierarchical", "shape": "two_levels", "collective": "all_reduce"}
    nodes |= {"algorithm": "ring_ring"}
    evaluation = Evaluation({"ranks": both, "gpus_per_node": np.asarray(8.0)}, nodes)
    assert evaluation.defined().tolist() == [True, False]
    grid = {"topology": "torus", "shape": "flat", "collective": "all_reduce", "algorithm": "ring"}
    sides = {"mesh_nx": 2.0, "mesh_ny": 2.0, "mesh_nz": np.array([2.0, 3.0])}
    assert Evaluation({"ranks": 8.0, **sides}, grid).defined().tolist() == [True, False]
    assert Evaluation({"ranks": 12.0, **sides}, grid).defined().tolist() == [False, True]


def test_one_message() -> None:
    assert seconds("p2p", 160.0, network("ring", 8), "direct", hops=4) == 4 * 3 + 80.0
    assert seconds("p2p", 160.0, network("hierarchical", 8), "direct") == 10 + 80.0
    assert seconds("p2p", 160.0, network("hierarchical", 4), "direct") == 1 + 20.0


def test_one_message_that_is_said_to_stay_in_a_node() -> None:
    nodes = network("hierarchical", 8)
    cells = {"shape": "two_levels", "phases": "sequential", "reduction": "free"}
    given = {**nodes.values, "message_bytes": np.asarray(160.0), "hops": np.asarray(1.0)}
    direct = ALGORITHMS["hierarchical", "p2p", "direct"]
    inside = Evaluation(given, {**cells, "latency_per": "hop", "link": "intra"}, direct)
    assert float(inside["time"]) == 1 + 20.0
    between = Evaluation(given, {**cells, "latency_per": "hop", "link": "auto"}, direct)
    assert float(between["time"]) == 10 + 80.0


# Shapes, choices, what isn't there.


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize(("topology", "kind"), PAIRS, ids=map("-".join, PAIRS))
def test_arrays_are_scalars_side_by_side(topology: str, kind: str) -> None:
    ranks, messages = fitting(topology, (1, 2, 4, 6, 8)), np.array([0.0, 1.0, 160.0, 1e6])[:, None]
    sized = {"gpus_per_node": 2} if topology == "hierarchical" else {}
    for name in ("standard", "nccl", "auto"):
        whole = collective(kind, messages, network(topology, ranks, **sized), algorithm=name)
        for field in (*NUMBERS, "algorithm"):
            values = getattr(whole, field)
            assert values.shape == (4, 5)
            assert (values.dtype == np.float64) == (field != "algorithm")
        cells = [
            collective(kind, message, network(topology, count, **sized), algorithm=name)
            for message, count in product(messages[:, 0], ranks)
        ]
        for field in (*NUMBERS, "algorithm"):
            values = [getattr(cell, field) for cell in cells]
            assert {(type(value), np.shape(value)) for value in values} == {(np.ndarray, ())}
            np.testing.assert_array_equal(getattr(whole, field).ravel(), values)


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(("topology", "kind"), PAIRS, ids=map("-".join, PAIRS))
@pytest.mark.parametrize("per", ["hop", "message"])
def test_auto_takes_the_least_of_all(topology: str, kind: str, per: str) -> None:
    ranks = fitting(topology, (1, 2, 3, 4, 6, 8, 12, 16, 60))
    messages = np.array([1.0, 30.0, 1e3, 1e6])[:, None]
    sized: dict[str, Any] = {"gpus_per_node": [1, 2, 1, 2, 3, 4, 6, 8, 4]}
    if topology != "hierarchical":
        sized = {"has_nvls": 1, "has_inc": 1} if topology == "switch" else {}
    there = network(topology, ranks, **sized)
    best = collective(kind, messages, there, algorithm="auto", latency_per=per)
    least = np.full((4, 9), np.inf)
    for candidate in candidates(topology, kind, "all"):
        alone = collective(kind, messages, there, algorithm=candidate.name, latency_per=per)
        least = np.fmin(least, alone.latency_s)
        chosen = best.algorithm == candidate.name
        for field in NUMBERS:
            one_s, best_s = getattr(alone, field)[chosen], getattr(best, field)[chosen]
            np.testing.assert_array_equal(best_s, one_s)
    np.testing.assert_array_equal(best.latency_s, least)
    assert np.all(best.algorithm != "")
    for choice in ("standard", "nccl"):
        cost = collective(kind, messages, there, algorithm=choice, latency_per=per)
        assert np.all(best.latency_s <= cost.latency_s)
        members = {one.name for one in candidates(topology, kind, choice)}
        assert set(np.unique(cost.algorithm)) <= members


def test_what_is_not_defined_is_nan_and_names_nothing() -> None:
    result = collective("all_reduce", 160.0, network("switch", [6, 8]), algorithm="halving")
    assert result.algorithm.tolist() == ["", "halving"]
    for field in NUMBERS:
        assert np.isnan(getattr(result, field)).tolist() == [True, False]
    assert np.isnan(seconds("all_reduce", 160.0, network("switch", 8), "nvls"))


def test_one_rank_has_no_bandwidth() -> None:
    result = collective("all_reduce", 160.0, network("ring", 1))
    assert result.latency_s == result.lower_bound_s == 0.0
    for field in ("algbw", "busbw", "lower_bound_ratio"):
        assert np.isnan(getattr(result, field))


GATHERING = ("all_gather", "reduce_scatter")
USUAL = {
    "ring": ("ring", "ring", "chain", "shift_bidir"),
    "torus": ("ring", "ring", "tree_pipe", "shift_bidir"),
    "mesh": ("line", "line", "tree_pipe", "shift_line"),
    "switch": ("ring", "ring", "chain", "pairwise"),
    "tree": ("dbt", "ring", "chain", "pairwise"),
    "binary_tree": ("tree_pipe", "flood", "tree_pipe", "direct"),
    "hierarchical": ("ring_ring", "ring_ring", "chain", "two_phase"),
}


@pytest.mark.parametrize(("topology", "names"), USUAL.items())
def test_standard_is_what_the_field_means(topology: str, names: tuple[str, ...]) -> None:
    summed, gathered, rooted, exchanged = names
    usual = {"all_reduce": summed, "all_to_all": exchanged, "p2p": "direct"}
    usual |= dict.fromkeys(GATHERING, gathered) | dict.fromkeys(("broadcast", "reduce"), rooted)
    assert set(usual) == set(COLLECTIVES)
    for kind, name in usual.items():
        assert collective(kind, 160.0, network(topology, 8)).algorithm == name


def test_nccl_takes_what_the_switch_offers() -> None:
    plain, nvls = network("switch", 8), network("switch", 8, has_nvls=1)
    large = 1e9
    assert collective("all_reduce", large, plain, algorithm="nccl").algorithm == "ring"
    assert collective("all_reduce", large, nvls, algorithm="nccl").algorithm == "nvls"
    assert collective("all_reduce", 1.0, plain, algorithm="nccl").algorithm == "dbt"
    nodes = network("hierarchical", 16)
    assert collective("all_gather", large, nodes, algorithm="nccl").algorithm == "ring_path"
    assert collective("all_reduce", 1.0, nodes, algorithm="nccl").algorithm == "tree_path"
    assert collective("all_to_all", 1.0, nodes, algorithm="nccl").algorithm == "node_pairwise"


def test_nccl_between_nodes_is_by_its_own_schedules() -> None:
    """Rounds of an exchange are (g-1)(a1 + M/NB1) + (N-g)(a2 + M/NB2); a ring pays its path."""
    links = keyed(
        "intra_latency=0.8e-6 intra_bandwidth=351e9 inter_latency=2.7e-6 inter_bandwidth=42.5e9"
    )
    nodes = build_topology("hierarchical", 8, gpus_per_node=4, **links)
    size = 2.0**25
    want = 3 * (0.8e-6 + size / 8 / 351e9) + 4 * (2.7e-6 + size / 8 / 42.5e9)
    found = collective("all_to_all", size, nodes, algorithm="nccl").latency_s
    np.testing.assert_allclose(found, want, rtol=1e-12)
    np.testing.assert_allclose(found, 443.8e-6, rtol=1e-4)
    pods = build_topology("hierarchical", 16, gpus_per_node=8, **links)
    path = collective("all_reduce", 0.0, pods, algorithm="ring_path").latency_s
    np.testing.assert_allclose(path, 2 * (13 * 0.8e-6 + 2 * 2.7e-6), rtol=1e-12)
    many = build_topology("hierarchical", 1024, gpus_per_node=8, **links)
    assert collective("all_reduce", 1024.0, many, algorithm="nccl").latency_s < 0.1e-3


def test_kinds_are_those_of_the_registry() -> None:
    assert tuple(CollectiveKind) == COLLECTIVES
    assert set(TopologyKind) == set(NETWORKS) == {key[0] for key in ALGORITHMS}
    ring = network("ring", 8)
    assert collective(CollectiveKind.BROADCAST, 160.0, ring).algorithm == "chain"


@pytest.mark.parametrize(("given", "sizes"), examples(__file__, "sizes_of_a_mesh"))
def test_sizes_of_a_mesh(given: dict[str, Any], sizes: tuple[int, int, int]) -> None:
    built = build_topology("mesh", bandwidth=1.0, latency=1.0, **given)
    for name, size in zip(("mesh_nx", "mesh_ny", "mesh_nz"), sizes, strict=True):
        assert isinstance(built.values[name], np.ndarray)
        assert float(built.values[name]) == size
    assert float(built.ranks) == np.prod(sizes)


RING = network("ring", 8)


@pytest.mark.parametrize(
    ("kind", "other", "text"), examples(__file__, "a_wrong_network_is_refused")
)
def test_a_wrong_network_is_refused(kind: str, other: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is compared below)
        build_topology(kind, **{"num_gpus": 8, "bandwidth": 1.0, "latency": 1.0, **other})
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "message", "other", "text"),
    [
        ("gather", 1.0, {}, "'gather' is unknown; known: all_reduce, all_gather"),
        ("all_reduce", -1.0, {}, "message_bytes = -1.0: out of range; must be 0 or more"),
        ("all_reduce", np.nan, {}, "message_bytes = nan: out of range"),
        *examples(__file__, "a_wrong_call_is_refused"),
    ],
)
def test_a_wrong_call_is_refused(
    kind: str, message: float, other: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is compared below)
        collective(kind, message, RING, **other)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
