"""Oversubscription of leaf switches: what leaves a leaf pays, by the placement of each group."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import sweeps
from overhead.completion import following
from overhead.evaluation import Evaluation
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep
from tests.tables import keyed

NODE = 8


def met(group: str, **given: float) -> float:
    """Return what a kind of groups meets, in a plan on nodes of eight."""
    plan = {
        **keyed("tp=8.0 cp=1.0 pp=1.0 dp=8.0 ep=1.0 oversubscription=4.0 nodes_per_leaf=4.0"),
        "gpus_per_node": float(NODE),
    }
    labels = {"topology": "hierarchical", "group": group}
    return float(Evaluation({**plan, **given}, following(labels, ()))["group_oversubscription"])


def crossing(nodes: list[int], leaf: int) -> dict[int, int]:
    """Return by leaf how many messages of a ring over nodes leave it."""
    out: dict[int, int] = {}
    for before, after in itertools.pairwise([*nodes, nodes[0]]):
        if before // leaf != after // leaf:
            out[before // leaf] = out.get(before // leaf, 0) + 1
    return out


@pytest.mark.parametrize(
    ("pp", "dp", "leaf"), list(itertools.product((1, 2, 4), (4, 8, 16), (2, 4, 8)))
)
def test_rings_counted_one_by_one(pp: int, dp: int, leaf: int) -> None:
    """Data-parallel rings of every stage, laid on nodes, share the uplinks of the leaves."""
    # A node is a tensor-parallel group; the nodes of a stage are next to one another.
    uplinks: dict[int, int] = {}
    for stage in range(pp):
        for where, count in crossing([stage * dp + k for k in range(dp)], leaf).items():
            uplinks[where] = uplinks.get(where, 0) + count
    for ratio in (1.0, 2.0, 4.0, 16.0):
        # A leaf's uplinks have the bandwidth of its nodes by the ratio.
        slowest = max((count / (leaf / ratio) for count in uplinks.values()), default=0.0)
        found = met("dp", pp=pp, dp=dp, nodes_per_leaf=leaf, oversubscription=ratio)
        assert found == pytest.approx(max(slowest, 1.0)), (ratio, uplinks)


def test_a_group_of_nodes_that_are_far_apart_pays_all_of_it() -> None:
    # Every 8th node: no two of them under one leaf of four.
    assert met("pp", pp=4.0, dp=8.0) == 4.0
    assert met("boundary", pp=4.0, dp=8.0) == 4.0
    # Two stages under a leaf: one of them sends out of it.
    assert met("boundary", pp=4.0, dp=2.0) == 2.0
    # All under one leaf.
    assert met("boundary", pp=2.0, dp=2.0) == 1.0


def test_an_exchange_pays_for_the_share_that_leaves() -> None:
    # Of what a node sends to 15 others, 12 are under other leaves.
    given = {"tp": 1.0, "ep": 128.0, "dp": 128.0, "experts": 128.0}
    assert met("ep", **given) == pytest.approx(4.0 * 12.0 / 15.0)
    assert met("ep", **given, nodes_per_leaf=16.0) == 1.0


@pytest.mark.parametrize("group", ["dp", "ep", "pp", "boundary", "cp_ring"])
def test_a_leaf_a_node_is_what_all_that_leaves_it_pays(group: str) -> None:
    given = {"tp": 1.0, "cp": 16.0, "pp": 2.0, "dp": 16.0, "ep": 16.0, "nodes_per_leaf": 1.0}
    for ratio in (1.0, 1.5, 4.0):
        assert met(group, **given, oversubscription=ratio) == ratio


def test_larger_leaves_never_cost_more() -> None:
    step_time = sweeps.sweep(
        ["step_time"],
        model="mixtral-8x7b",
        world_size=256,
        tp=4,
        pp=2,
        ep=8,
        sequence_parallel=1,
        sequence_length=4096,
        global_batch_size=512,
        oversubscription=[1, 2, 4],
        nodes_per_leaf=[1, 2, 4, 8, 16, 32],
        hardware="dgx-h100",
    ).step_time
    times = step_time.transpose("oversubscription", "nodes_per_leaf").to_numpy()
    assert np.all(np.diff(times, axis=1) <= 0.0)
    assert np.all(np.diff(times, axis=0) >= 0.0)
    assert np.all(times[:, -1] == times[0, -1])  # all 32 nodes under one leaf
    assert times[2, 0] > times[0, 0]


def test_twice_the_bandwidth_isnt_two_to_one() -> None:
    """800 Gbit/s at 2:1 is 400 Gbit/s only where every node has a leaf of its own."""
    given = keyed(
        "model=llama3-70b world_size=512 tp=8 pp=4 sequence_parallel=1 sequence_length=8192 "
        "global_batch_size=1024 hardware=dgx-h100"
    )

    def time(bandwidth: str, ratio: int, leaf: int) -> float:
        more = {"inter_bandwidth": bandwidth, "oversubscription": ratio, "nodes_per_leaf": leaf}
        return float(sweeps.sweep(["step_time"], **given, **more).step_time)

    assert time("800 Gbit/s", 2, 32) < time("400 Gbit/s", 1, 32)
    assert time("800 Gbit/s", 2, 32) == time("800 Gbit/s", 1, 32)


def test_a_machine_may_say_how_large_its_leaves_are(tmp_path: Path) -> None:
    folder = tmp_path / "hardware"
    folder.mkdir()
    source = 'kind = "specification", source = "our cabling"'
    (folder / "ours.toml").write_text(
        'name = "ours"\ntitle = "Ours"\nlike = "dgx-h100"\n[scale_out]\n'
        f"nodes_per_leaf = {{ value = 32, {source} }}\n"
        f"oversubscription = {{ value = 2, {source} }}\n"
    )
    sweep = Sweep("", constants={"tp": 8.0, "dp": 8.0}, labels={"hardware": "ours"})
    for asked in (sweep, Sweep("", constants={"ranks": 64.0}, labels={"hardware": "ours"})):
        constants = resolve(asked, [folder]).constants
        assert (constants["nodes_per_leaf"], constants["oversubscription"]) == (32.0, 2.0)
    other_sweep = Sweep("", constants={"tp": 8.0, "dp": 8.0}, labels={"hardware": "dgx-b300"})
    assert resolve(other_sweep).constants["nodes_per_leaf"] == 1.0
    shipped = Sweep("", constants={"tp": 8.0, "dp": 8.0}, labels={"hardware": "dgx-h100"})
    assert resolve(shipped).constants["nodes_per_leaf"] == 32.0


@pytest.mark.parametrize("software", ["none", "nccl"])
def test_a_collective_pays_as_a_step_s_group_does(software: str) -> None:
    """Sixteen nodes of data-parallel ranks, or of experts, are those of a lone collective."""
    shared = {
        "hardware": "dgx-h100",
        "software": software,
        **({} if software == "none" else {"environment": "step"}),
        "oversubscription": [1, 2, 8, 32],
        "nodes_per_leaf": [1, 2, 4, 8, 16, 32],
    }
    model = keyed(
        "model=mixtral-8x7b world_size=128 tp=1 pp=1 zero_stage=0 sequence_length=4096 "
        "micro_batch_size=1 global_batch_size=128"
    )
    for kind, more, time, message in (
        ("all_reduce", {"ep": 1}, "dp_all_reduce_time", "dp_reduce_bytes"),
        ("all_to_all", {"ep": 128, "experts": 128}, "ep_dispatch_time", "dispatch_message_bytes"),
    ):
        step = sweeps.sweep([time, message], **model, **more, **shared)
        size = float(step[message].max())
        alone = sweeps.sweep(
            ["time"],
            collective=kind,
            topology="hierarchical",
            algorithm="nccl",
            ranks=128,
            message_bytes=size,
            **shared,
        ).time
        order = ("oversubscription", "nodes_per_leaf")
        found = alone.transpose(*order).to_numpy()
        np.testing.assert_array_equal(found, step[time].transpose(*order).to_numpy())
        assert found[1, 0] > found[0, 0]
        assert np.all(found[:, -1] == found[0, 0])  # all nodes under one leaf
