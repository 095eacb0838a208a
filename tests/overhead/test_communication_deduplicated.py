"""Dispatch once to each node: against an enumeration of experts, and against its bounds."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.evaluation import Evaluation
from overhead.everything import load
from overhead.special import never_drawn
from tests.tables import keyed

load()
LABELS = keyed(
    "topology=hierarchical shape=two_levels algorithm=nccl latency_per=hop phases=sequential "
    "reduction=free link=auto"
)
MACHINE = keyed(
    "gpus_per_node=8.0 nics_per_node=8.0 oversubscription=1.0 intra_bandwidth=400e9 "
    "inter_bandwidth=50e9 intra_latency=1e-6 inter_latency=3e-6 intra_efficiency=1.0 "
    "inter_efficiency=1.0 in_network_latency_factor=1.0 intra_nvls=0.0 intra_inc=0.0 inter_inc=0.0 "
    "intra_energy_per_bit=1e-11 inter_energy_per_bit=4e-11"
)
PLAN = {"tp": 1.0, "cp": 1.0, "pp": 1.0, "dp": 64.0, "etp": 1.0, "communication_bytes": 2.0}
MODEL = keyed(
    "experts=256.0 experts_per_token=8.0 expert_load_imbalance=1.0 hidden_size=7168.0 "
    "rank_tokens=4096.0"
)


def dispatch(part: str, dispatcher: str, **more: float) -> float:
    """Return a quantity of the dispatch, with pods where their nodes are given."""
    values = {**MACHINE, **PLAN, **MODEL, **more}
    shape = "three_levels" if "nodes_per_pod" in more else "two_levels"
    labels = {**LABELS, "dispatcher": dispatcher, "shape": shape}
    return float(Evaluation(values, labels)[f"ep_dispatch_{part}"])


@pytest.mark.parametrize(("experts", "nodes", "chosen"), [(8, 2, 3), (12, 4, 2), (6, 6, 6)])
def test_distinct_nodes_are_those_of_all_choices(experts: int, nodes: int, chosen: int) -> None:
    each = experts // nodes
    choices = list(combinations(range(experts), chosen))
    mean = sum(len({one // each for one in choice}) for choice in choices) / len(choices)
    values = {"ep_nodes": nodes, "experts": experts, "experts_per_token": chosen}
    assert float(Evaluation(values)["distinct_nodes"]) == pytest.approx(mean, rel=1e-12)


def drawn_nodes(experts: int, groups: int, limit: int, chosen: int, nodes: int) -> float:
    """Mean number of nodes of tokens whose scores are drawn, by Megatron-LM's group_limited_topk.

    A group's score is the sum of its best ones, as many as come to each group that is chosen.
    """
    scores = np.random.default_rng(7).random((20000, experts))
    best = np.sort(scores.reshape(len(scores), groups, -1), axis=2)[:, :, -(chosen // limit) :]
    kept = np.argsort(-best.sum(axis=2), axis=1)[:, :limit]
    open_groups = np.zeros((len(scores), groups), bool)
    np.put_along_axis(open_groups, kept, values=True, axis=1)
    masked = np.where(np.repeat(open_groups, experts // groups, axis=1), scores, -1.0)
    choices = np.argpartition(-masked, chosen - 1, axis=1)[:, :chosen] // (experts // nodes)
    met = np.zeros((len(scores), nodes), bool)
    np.put_along_axis(met, choices, values=True, axis=1)
    return float(met.sum(axis=1).mean())


# DeepSeek-V3, DeepSeek-V2, two groups of eight, and fewer experts.
GROUPED = [(256, 8, 4, 8), (160, 8, 3, 6), (256, 8, 2, 8), (64, 8, 4, 8)]


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize("shapes", GROUPED)
@pytest.mark.parametrize("nodes", [2, 4, 8, 16, 32])
def test_tokens_of_chosen_groups_meet_fewer_nodes(
    shapes: tuple[int, int, int, int], nodes: int
) -> None:
    experts, groups, limit, chosen = shapes
    values = {"ep_nodes": nodes, "experts": experts, "experts_per_token": chosen}
    free = float(Evaluation(values)["distinct_nodes"])
    values |= {"expert_groups": groups, "groups_per_token": limit}
    found = float(Evaluation(values)["distinct_nodes"])
    tolerance = 0.02 if nodes <= groups else 0.06
    assert found == pytest.approx(drawn_nodes(experts, groups, limit, chosen, nodes), rel=tolerance)
    assert found <= min(free, limit * max(nodes / groups, 1.0)) * (1 + 1e-12)


def test_limits_of_chosen_groups() -> None:
    """All groups are no limit, as is one; as many nodes as groups are met as groups are chosen."""
    values = {"ep_nodes": 8.0, "experts": 256.0, "experts_per_token": 8.0}
    free = Evaluation(values)["distinct_nodes"]
    for groups, limit in ((0.0, 0.0), (1.0, 1.0), (8.0, 8.0)):
        more = {"expert_groups": groups, "groups_per_token": limit}
        assert Evaluation({**values, **more})["distinct_nodes"] == free
    limits = {"expert_groups": 8.0, "groups_per_token": np.arange(1.0, 8.0)}
    assert Evaluation({**values, **limits})["distinct_nodes"] == pytest.approx(np.arange(1.0, 8.0))
    for nodes in (2.0, 4.0, 16.0, 64.0):
        found = Evaluation({**values, **limits, "ep_nodes": nodes})["distinct_nodes"]
        assert np.all(np.diff(found) > -1e-12)
    alone = Evaluation({**values, **limits, "ep_nodes": 1.0})["distinct_nodes"]
    assert alone == pytest.approx(np.ones(7))


def test_deepseek_v3_sends_a_token_to_four_nodes() -> None:
    """64-fold on 8 nodes its remote bytes are those of 3.5 nodes, not of 5.3 times 7/8."""
    plan = {"ep": 64.0, "expert_groups": 8.0, "groups_per_token": 4.0}
    limited = dispatch("time", "deduplicated", **plan)
    assert limited == pytest.approx(4096 * 7168 * 2 * 4 * 7 / 8 / 50e9 + 4e-6)
    assert limited < 0.77 * dispatch("time", "deduplicated", ep=64.0)
    # Without deduplication a token goes to each expert, on however few nodes.
    free = dispatch("sent_bytes", "all_to_all", ep=64.0)
    assert dispatch("sent_bytes", "all_to_all", **plan) == free


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 20))
def test_never_drawn_is_the_binomials_quotient(total: int, marked: int, draws: int) -> None:
    marked, draws = min(marked, total), min(draws, total)
    expected = comb(total - marked, draws) / comb(total, draws)
    assert never_drawn(total, marked, draws) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def ranks_met(ranks: int) -> float:
    """Ranks that a token with 8 of 256 experts meets."""
    return ranks * (1 - comb(256 - 256 // ranks, 8) / comb(256, 8))


def test_a_worked_example() -> None:
    # 64-fold on 8 nodes: of 8 experts a token meets 8 (1 - C(224, 8)/C(256, 8)) nodes.
    distinct = 8 * (1 - comb(224, 8) / comb(256, 8))
    remote = 4096 * 7168 * 2 * distinct * 7 / 8
    assert dispatch("time", "deduplicated", ep=64.0) == pytest.approx(remote / 50e9 + 4e-6)
    # And 64 (1 - C(252, 8)/C(256, 8)) ranks, one in eight of which it reaches without a link.
    inside = 4096 * ranks_met(64) * 7168 * 2 * 7 / 8
    assert dispatch("sent_bytes", "deduplicated", ep=64.0) == pytest.approx(remote + inside)


PODS = keyed(
    "pod_oversubscription=2.0 pod_bandwidth=40e9 pod_latency=5e-6 pod_energy_per_bit=9e-11"
)


def test_pods_slow_down_what_leaves_them() -> None:
    """Of the 7 other nodes of 64 ranks 4 are in another pod, at 20 GB/s a card."""
    distinct = 8 * (1 - comb(224, 8) / comb(256, 8))
    remote = 4096 * 7168 * 2 * distinct * 7 / 8
    inside = 4096 * ranks_met(64) * 7168 * 2 * 7 / 8
    pods = {"ep": 64.0, "nodes_per_pod": 4.0, **PODS}
    time = dispatch("time", "deduplicated", **pods)
    assert time == pytest.approx(remote * 4 / 7 / 20e9 + 5e-6 + 1e-6)
    assert time < dispatch("time", "all_to_all", **pods)
    mean = (4 * 9e-11 + 3 * 4e-11) / 7
    energy = 64 * 8 * (remote * mean + inside * 1e-11)
    assert dispatch("energy", "deduplicated", **pods) == pytest.approx(energy)


def test_a_group_in_one_pod_is_as_without_pods() -> None:
    for part in ("time", "sent_bytes", "energy"):
        within = dispatch(part, "deduplicated", ep=64.0, nodes_per_pod=8.0, **PODS)
        assert within == dispatch(part, "deduplicated", ep=64.0)
    even = {**PODS, "pod_oversubscription": 1.0, "pod_bandwidth": 50e9, "pod_latency": 3e-6}
    across = dispatch("time", "deduplicated", ep=64.0, nodes_per_pod=2.0, **even)
    assert across == dispatch("time", "deduplicated", ep=64.0)


def test_inside_a_node_a_rank_gets_a_token_once() -> None:
    """Of 8 ranks a token meets 5.3, however many of its 8 experts each has."""
    once = dispatch("sent_bytes", "all_to_all", ep=8.0) * ranks_met(8) / 8
    assert ranks_met(8) == pytest.approx(5.3, rel=0.01)
    assert dispatch("sent_bytes", "deduplicated", ep=8.0) == pytest.approx(once)
    assert dispatch("time", "deduplicated", ep=8.0) == pytest.approx(once / 400e9 + 1e-6)


def test_a_rank_for_every_expert_gets_as_many_copies() -> None:
    plain = dispatch("sent_bytes", "all_to_all", ep=8.0, experts=8.0, experts_per_token=3.0)
    one = dispatch("sent_bytes", "deduplicated", ep=8.0, experts=8.0, experts_per_token=3.0)
    assert one == pytest.approx(plain)


# Bandwidth in GB/s that DeepEP's documents state of ranks in one node, of all that a rank gets: 8
# experts of 256 a token, in bf16.  With 24 of B200's SMs it is within a tenth of what links reach.
STATED = [(200e9, 0.8, 153), (200e9, 0.8, 158), (900e9, 0.802, 643), (900e9, 0.802, 675)]
# Of more ranks of a GB200, 8 experts each: means of dispatch and combine, with 32 SMs.
MORE = {8: 751, 16: 687, 24: 653, 32: 624, 36: 615}
KERNELS = [(*case, 8, 32) for case in STATED] + [
    (900e9, 0.802, stated, ranks, 8) for ranks, stated in MORE.items()
]


@pytest.mark.parametrize(("link", "efficiency", "stated", "ranks", "each"), KERNELS)
def test_kernels_of_one_node_have_the_stated_bandwidth(
    link: float, efficiency: float, stated: float, ranks: int, each: int
) -> None:
    library = {
        "channel_efficiency": efficiency,
        "nic_efficiency": 0.91,
        "inter_node_step_latency": 8e-6,
        "step_latency": 0.8e-6,
        "collective_launch_time": 5e-6,
    }
    values = {**MACHINE, **PLAN, **MODEL, **library, "ep": ranks, "intra_bandwidth": link}
    values |= {"gpus_per_node": ranks, "nics_per_node": ranks, "experts": ranks * each}
    values["dp"] = ranks
    labels = {**LABELS, "dispatcher": "deduplicated", "library": "nccl"}
    evaluation = Evaluation(values, labels)
    rate = float(evaluation["dispatch_rank_bytes"] / evaluation["ep_dispatch_time"]) / 1e9
    assert rate == pytest.approx(stated, rel=0.12)


def test_alone_nothing_is_sent() -> None:
    for part in ("time", "sent_bytes", "energy"):
        assert dispatch(part, "deduplicated", ep=1.0) == 0.0


@given(st.sampled_from([2.0, 4.0, 8.0, 16.0, 32.0, 64.0]), st.integers(1, 32))
def test_it_never_takes_longer_than_a_message_for_every_expert(ep: float, chosen: int) -> None:
    known = {"ep": ep, "experts_per_token": float(chosen), "intra_latency": 0.0}
    known["inter_latency"] = 0.0
    plain = dispatch("time", "all_to_all", **known)
    assert dispatch("time", "deduplicated", **known) <= plain * (1 + 1e-12)


def test_more_experts_a_token_never_meet_fewer_nodes() -> None:
    values = {"ep_nodes": 8.0, "experts": 64.0, "experts_per_token": np.arange(1.0, 65.0)}
    nodes = Evaluation(values)["distinct_nodes"]
    assert (np.diff(nodes) >= -1e-12).all()
    assert nodes[0] == pytest.approx(1.0)
    assert nodes[-1] == pytest.approx(8.0)
