"""Groups beyond those of plans' dimensions: pairs of ranks, shards, pods, squares."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from overhead import build_topology, collective
from overhead.collectives.grid import factors
from overhead.communication.totals import OPERATIONS
from overhead.expression import FUNCTIONS
from tests.each import each
from tests.overhead.communication_cases import GPT, MACHINE, MOE, TOPOLOGIES, held
from tests.tables import examples, keyed

FLAT = tuple(name for name in TOPOLOGIES if name != "hierarchical")
DEGREES = tuple(product((1, 2, 3, 4, 8), (1, 2, 4), (1, 2, 3), (1, 2, 3, 4)))


def node(rank: float) -> int:
    return int(rank) // 8


@each("degrees", DEGREES)
def test_pairs_of_stages(degrees: tuple[int, int, int, int]) -> None:
    """A pipeline's pairs share a node if all of them do, of all its ranks."""
    tp, cp, dp, pp = degrees
    size = tp * cp * dp
    world = size * pp
    step = held({**GPT, "tp": tp, "cp": cp, "dp": dp, "pp": pp}, group="boundary")
    assert float(step["group_size"]) == min(pp, 2)
    apart = any(node(rank) != node(rank + size) for rank in range(world - size))
    members = float(step["members_in_node"])
    if apart:
        assert members == 1
    elif world <= 8 or 8 % size == 0:
        assert members == min(pp, 2)
    assert float(step["group_nodes"]) * members == min(pp, 2)
    ends = held({**GPT, "tp": tp, "cp": cp, "dp": dp, "pp": pp}, group="ends")
    far = any(node(rank) != node(rank + world - size) for rank in range(size))
    assert not far or float(ends["members_in_node"]) == 1


@pytest.mark.parametrize(
    ("tp", "cp"), [(1, 2), (1, 8), (2, 4), (2, 8), (4, 4), (8, 2), (8, 4), (1, 16), (16, 2)]
)
def test_rings(tp: int, cp: int) -> None:
    """The links of all context-parallel rings of a plan, one by one."""
    plan = {**GPT, "heads": 32, "kv_heads": 32, "head_size": 32, "tp": tp, "cp": cp}
    step = held(plan, context_parallel="ring")
    message = float(step["cp_ring_bytes"])
    joules, slowest = 0.0, 0
    for start in range(tp):
        for index in range(cp):
            one, other = start + index * tp, start + (index + 1) % cp * tp
            between = node(one) != node(other)
            slowest = max(slowest, between)
            joules += 8 * message * (1e-11 if between else 1e-12)
    assert float(step["cp_ring_energy"] * step["cp_groups"]) == pytest.approx(joules)
    latency, bandwidth = ((1e-6, 1e11), (5e-6, 1e10))[slowest]
    assert float(step["cp_ring_time"]) == pytest.approx(latency + message / bandwidth)


@pytest.mark.parametrize(("tp", "cp", "inner"), examples(__file__, "rings_of_groups"))
def test_rings_of_groups_that_exchange_heads(tp: int, cp: int, inner: int) -> None:
    """The links of all groups and rings of a plan, one by one."""
    plan = {**GPT, "heads": 32, "kv_heads": 32, "head_size": 32, "tp": tp, "cp": cp}
    step = held({**plan, "ulysses_ranks": inner}, context_parallel="mixed")
    message, places = float(step["cp_ring_bytes"]), cp // inner
    joules, slowest, leaving = 0.0, False, [0] * (tp * cp)
    for start, rank, index in product(range(tp), range(inner), range(places)):
        left, right = (start + (at % places * inner + rank) * tp for at in (index, index + 1))
        between = node(left) != node(right)
        leaving[node(left)] += between
        slowest |= between
        joules += 8 * message * (1e-11 if between else 1e-12)
    if places > 1:
        assert float(step["cp_ring_energy"] * step["cp_groups"]) == pytest.approx(joules)
    latency, bandwidth = ((1e-6, 1e11), (5e-6, 1e10))[slowest]
    once = latency + message / bandwidth if places > 1 else 0.0
    assert float(step["cp_ring_time"]) == pytest.approx(once)
    # A node's messages out of it share its cards.
    shared = held({**plan, "ulysses_ranks": inner, "nics_per_node": 1}, context_parallel="mixed")
    sharing = max(leaving) if slowest else 1
    once = latency + sharing * message / bandwidth if places > 1 else 0.0
    assert float(shared["cp_ring_time"]) == pytest.approx(once)
    # Those that exchange are neighbours: a collective of theirs alone takes as long.
    own = held({**plan, "ulysses_ranks": inner}, context_parallel="mixed", group="cp_inner")
    members = [start * tp for start in range(inner)]
    assert float(own["group_size"]) == inner
    most = max(sum(node(member) == node(rank) for member in members) for rank in members)
    assert float(own["members_in_node"]) == most


def test_rings_of_one_kind_are_what_mixed_ones_end_in() -> None:
    """Groups of one are a ring, and one group of all exchanges heads."""
    plan = {**GPT, "cp": 8, "tp": 2, "num_micro_batches": 3}
    for groups, kind in ((1, "ring"), (8, "all_to_all")):
        mixed = held({**plan, "ulysses_ranks": groups}, context_parallel="mixed")
        alone = held(plan, context_parallel=kind)
        for end in ("time", "volume", "energy"):
            name = f"cp_communication_{end}"
            assert float(mixed[name]) == pytest.approx(float(alone[name])), (kind, end)


@pytest.mark.parametrize("shard", [1, 2, 4, 8, 16])
def test_shards_and_their_replicas(shard: int) -> None:
    """Ranks of equal weights are every second one, of equal experts every fourth."""
    plan = {**MOE, "tp": 2, "cp": 2, "dp": 8, "ep": 2, "etp": 2, "hsdp_shard_size": shard}
    step = held(plan, sharding="hybrid")
    equal, experts = list(range(0, 32, 2)), list(range(0, 32, 4))
    cut = max(shard * 2 // 4, 1)
    groups = {
        "shard": equal[:shard],
        "replica": equal[::shard],
        "expert_shard": experts[:cut],
        "expert_replica": experts[::cut],
    }
    for name, members in groups.items():
        own = held(plan, sharding="hybrid", group=name)
        assert float(own["group_size"]) == float(step[f"{name}_ranks"]) == len(members)
        assert float(step[f"{name}_groups"]) * len(members) == 32
        if len(members) > 1:
            assert float(own["group_stride"]) == members[1] - members[0]
        counted = max(sum(node(m) == n for m in members) for n in range(4))
        assert float(own["members_in_node"]) == counted


def test_groups_cover_all_ranks() -> None:
    step = held({**MOE, "tp": 2, "cp": 2, "pp": 2, "dp": 8, "ep": 4, "etp": 2, "zero_stage": 1})
    for operation in OPERATIONS.values():
        if operation.of == "boundary":
            continue  # counted by boundaries
        groups = float(step[f"{operation.of}_groups"])
        size = float(
            held(
                {**MOE, "tp": 2, "cp": 2, "pp": 2, "dp": 8, "ep": 4, "etp": 2}, group=operation.of
            )["group_size"]
        )
        assert groups * size == 64


# On other networks each group is that network of its own size.


@pytest.mark.parametrize("topology", FLAT)
def test_a_group_is_a_network_of_its_size(topology: str) -> None:
    plan = {**MOE, "tp": 4, "cp": 2, "pp": 2, "dp": 12, "ep": 6, "zero_stage": 3}
    step = held(plan, topology=topology)
    for name, operation in OPERATIONS.items():
        own = held(plan, topology=topology, group=operation.group)
        size, within = float(own["group_size"]), float(own["members_in_node"])
        near = size <= within
        network = build_topology(
            topology,
            size,
            bandwidth=MACHINE[f"{'intra' if near else 'inter'}_bandwidth"],
            latency=MACHINE[f"{'intra' if near else 'inter'}_latency"],
            energy_per_bit=MACHINE[f"{'intra' if near else 'inter'}_energy_per_bit"],
        )
        alone = collective(operation.collective, step[operation.message], network, algorithm="nccl")
        assert float(step[f"{name}_time"]) == pytest.approx(float(alone.latency_s)), name
        assert float(step[f"{name}_sent_bytes"]) == pytest.approx(float(alone.volume_bytes))
        if name != "cp_ring":
            assert float(step[f"{name}_energy"]) == pytest.approx(float(alone.energy_j))


@pytest.mark.parametrize("algorithm", ["standard", "auto", "ring_ring"])
def test_a_group_on_nodes_is_a_hierarchy_of_its_members(algorithm: str) -> None:
    plan = {**GPT, "tp": 2, "dp": 16}
    step = held(plan, algorithm=algorithm)
    network = build_topology(
        "hierarchical",
        16,
        gpus_per_node=4,
        ranks_sharing_nic=1,
        intra_bandwidth=1e11,
        intra_latency=1e-6,
        intra_energy_per_bit=1e-12,
        inter_bandwidth=1e10,
        inter_latency=5e-6,
        inter_energy_per_bit=1e-11,
    )
    message = step["dp_reduce_bytes"]
    alone = collective("all_reduce", message, network, algorithm=algorithm)
    assert float(step["dp_all_reduce_time"]) == pytest.approx(float(alone.latency_s))
    assert float(step["dp_all_reduce_energy"]) == pytest.approx(float(alone.energy_j))


# Pods.


@pytest.mark.parametrize("nodes_per_pod", [1, 2, 4])
@pytest.mark.parametrize(("tp", "dp"), [(1, 64), (2, 32), (8, 8), (16, 4), (32, 2)])
def test_groups_over_pods(tp: int, dp: int, nodes_per_pod: int) -> None:
    pods = {
        "nodes_per_pod": nodes_per_pod,
        "pod_bandwidth": 1e9,
        "pod_latency": 1e-5,
        "pod_energy_per_bit": 1e-10,
        "pod_oversubscription": 1,
    }
    plan = {**GPT, "heads": 32, "kv_heads": 32, "head_size": 32, "tp": tp, "dp": dp, **pods}
    own = held(plan, group="dp", shape="three_levels")
    members = range(0, tp * dp, tp)
    nodes = {node(rank) for rank in members}
    expected = max(sum(n // nodes_per_pod == pod for n in nodes) for pod in range(16))
    assert float(own["group_pod_nodes"]) == expected
    step = held(plan, shape="three_levels")
    network = build_topology(
        "hierarchical",
        dp,
        gpus_per_node=float(own["members_in_node"]),
        ranks_sharing_nic=1,
        intra_bandwidth=1e11,
        intra_latency=1e-6,
        inter_bandwidth=1e10,
        inter_latency=5e-6,
        nodes_per_pod=expected,
        pod_bandwidth=1e9,
        pod_latency=1e-5,
    )
    alone = collective("all_reduce", step["dp_reduce_bytes"], network, algorithm="nccl")
    assert float(step["dp_all_reduce_time"]) == pytest.approx(float(alone.latency_s))


def test_transfers_between_pods() -> None:
    pods = keyed(
        "pod_bandwidth=1e9 pod_latency=1e-5 pod_energy_per_bit=1e-10 pod_oversubscription=1"
    )
    plan = {**GPT, "tp": 8, "pp": 4, **pods}
    message = 2 * 2048 * 1024
    near = held({**plan, "nodes_per_pod": 4}, shape="three_levels")
    far = held({**plan, "nodes_per_pod": 2}, shape="three_levels")
    assert float(near["p2p_time"]) == pytest.approx(5e-6 + message / 1e10)
    assert float(far["p2p_time"]) == pytest.approx(1e-5 + message / 1e9)


# Squares.


def test_the_divisor_nearest_to_the_root() -> None:
    numbers = np.concatenate([np.arange(1, 3000), [99991, 999983, 999999, 10**6, 720720, 2**19]])
    found = FUNCTIONS["square_divisor"](numbers.reshape(5, -1)).reshape(-1)
    expected = [factors(int(number), 2)[1] for number in numbers]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("size", "sides"), [(1, (1, 1)), (7, (7, 1)), (12, (4, 3)), (64, (8, 8))])
def test_a_group_on_a_torus_is_a_square(size: int, sides: tuple[int, int]) -> None:
    step = held({**GPT, "dp": size}, topology="torus", group="dp")
    assert tuple(float(step[f"group_n{axis}"]) for axis in "xyz") == (*sides, 1)


def test_a_torus_may_be_given() -> None:
    """A group of 64 is the torus of 4 x 4 x 4; one of 16 is a square."""
    cube = {"mesh_nx": 4, "mesh_ny": 4, "mesh_nz": 4}
    sizes = np.array([16.0, 64.0])
    step = held({**GPT, "dp": sizes, **cube}, topology="torus", group="dp", grid="given")
    for axis, expected in (("x", (4, 4)), ("y", (4, 4)), ("z", (1, 4))):
        np.testing.assert_array_equal(step[f"group_n{axis}"], expected)
