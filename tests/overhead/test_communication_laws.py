"""What holds of communication whatever the plan: limits, sums, and what can't get worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overhead.communication.operation import DIMENSIONS, WAYS
from overhead.communication.totals import OPERATIONS
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.labels import LABELS
from overhead.quantity import Array
from tests.overhead.communication_cases import (
    GPT,
    MACHINE,
    MOE,
    TOPOLOGIES,
    count,
    counts,
    happening,
    held,
    sent,
    spent,
    total_energy,
    volume,
)
from tests.tables import keyed

KINDS = LABELS["context_parallel"].values
COSTS = ("time", "volume", "energy")
every_topology = pytest.mark.parametrize("topology", TOPOLOGIES)


def grid(**axes: tuple[float, ...]) -> dict[str, Array]:
    """Return axes as open arrays, each along a dimension of its own."""
    names = tuple(axes)
    opened = np.ix_(*(np.array(axes[name], dtype=np.float64) for name in names))
    return dict(zip(names, opened, strict=True))


PLANS = grid(
    tp=(1, 2, 4, 8),
    cp=(1, 2),
    pp=(1, 2, 4),
    dp=(1, 2, 8),
    sequence_parallel=(0, 1),
    zero_stage=(0, 1, 2, 3),
    num_micro_batches=(1, 4),
)
EXPERTS = {**MOE, **grid(tp=(1, 2), pp=(1, 2), dp=(4, 8), ep=(1, 2, 4), etp=(1, 2))}


def whole(values: Any, plans: dict[str, Any] = PLANS) -> Array:
    """Return values of all plans."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in plans.values()))
    return np.broadcast_to(values, shape)


def dimension(step: Evaluation, name: str, cost: str) -> Array:
    return whole(step[f"{name}_communication_{cost}"])


# Limits.


@every_topology
@pytest.mark.parametrize("kind", KINDS)
def test_a_degree_of_one_sends_nothing(topology: str, kind: str) -> None:
    step = held({**GPT, **PLANS}, topology=topology, context_parallel=kind)
    plan = {name: whole(values) for name, values in PLANS.items()}
    alone = {
        "tp": plan["tp"] == 1,
        "vocabulary": (plan["tp"] == 1) & (plan["pp"] == 1),
        "cp": plan["cp"] == 1,
        "pp": plan["pp"] == 1,
        "dp": plan["dp"] * plan["cp"] == 1,
        "ep": np.ones_like(plan["tp"], dtype=bool),
    }
    for name in DIMENSIONS:
        for cost in COSTS:
            values = dimension(step, name, cost)
            assert not values[alone[name]].any(), (name, cost)
            assert (values[~alone[name]] > 0.0).all(), (name, cost)


@every_topology
def test_without_parallelism_there_is_no_communication(topology: str) -> None:
    for model in (GPT, {**MOE, "sequence_parallel": 0}):
        step = held({**model, "num_micro_batches": 1e6, "micro_batch_size": 1e6}, topology=topology)
        for name in ("upper_bound", "volume", "energy"):
            assert float(step[f"communication_{name}"]) == 0.0
        for name in OPERATIONS:
            for part in ("time", "sent_bytes", "energy"):
                assert float(step[f"{name}_{part}"]) == 0.0, (name, part)
        assert counts(step) == {}


def test_forwards_alone_have_no_gradients() -> None:
    step = held({**GPT, **PLANS}, schedule="forward_only")
    for name in DIMENSIONS:
        assert not np.any(sent(step, name, "backward"))
    assert not np.any(step["dp_reduce_time"])


def test_a_step_of_a_dense_model_has_no_experts() -> None:
    step = held({**GPT, **PLANS})
    for name in OPERATIONS:
        if name.startswith(("edp_", "ep_", "etp_")):
            assert not np.any(total_energy(step, name))
            assert not np.any(volume(step, name))


# Sums.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["dense", "experts"])
def test_totals_are_sums(model: str, kind: str) -> None:
    plans: dict[str, Any] = {**GPT, **PLANS} if model == "dense" else {**EXPERTS, "cp": 2}
    step = held(plans, context_parallel=kind, recompute="full")
    sums = dict.fromkeys(("time", "volume", "energy"), np.zeros(()))
    for name in DIMENSIONS:
        mine = [operation.name for operation in happening(step) if operation.dimension == name]
        ways = [[spent(step, operation, way) for operation in mine] for way in WAYS]
        for way, times in zip(WAYS, ways, strict=True):
            one_way, whole = np.broadcast_arrays(sent(step, name, way), sum(times))
            np.testing.assert_allclose(one_way, whole, rtol=1e-13)
        parts = {"communication_time": [time for times in ways for time in times]}
        parts["communication_volume"] = [volume(step, operation) for operation in mine]
        parts["communication_energy"] = [total_energy(step, operation) for operation in mine]
        for end, part in parts.items():
            expected = sum(part[1:], start=part[0])
            np.testing.assert_allclose(step[f"{name}_{end}"], expected, rtol=1e-13)
        for cost in sums:
            sums[cost] = sums[cost] + step[f"{name}_communication_{cost}"]
    np.testing.assert_allclose(step["communication_upper_bound"], sums["time"], rtol=1e-13)
    for cost in ("volume", "energy"):
        np.testing.assert_allclose(step[f"communication_{cost}"], sums[cost], rtol=1e-13)


def test_an_operation_s_bytes_are_its_counts_times_what_one_sends() -> None:
    step = held({**GPT, **PLANS})
    for operation in happening(step):
        if operation.name != "pp_transfer":
            total = sum(count(step, operation.name, way) for way in WAYS)
            bytes_sent = total * step[f"{operation.name}_sent_bytes"]
            np.testing.assert_allclose(volume(step, operation.name), bytes_sent, rtol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_layers_make_up_a_step(recompute: str, kind: str) -> None:
    plan = {**MOE, "tp": 2, "cp": 2, "dp": 4, "ep": 4, "num_micro_batches": 3}
    step = held(plan, recompute=recompute, context_parallel=kind)

    def layer(name: str, way: str) -> float:
        return float(step[f"{name}_layer_{way}_time"])

    ways = ("forward", "backward", "gather", "recompute")
    dense, moe = (sum(layer(name, way) for way in ways) for name in ("tp", "tp_moe"))
    assert float(step["tp_communication_time"]) == pytest.approx(3 * (2 * dense + 6 * moe))
    mask = recompute != "none"
    once, back = (
        float(step[f"cp_exchange_{way}_time"] + step[f"cp_round_{way}_time"])
        for way in ("forward", "backward")
    )
    attention = (1 + mask) * once + back
    assert float(step["cp_communication_time"]) == pytest.approx(3 * 8 * attention)
    mask = recompute == "full"
    experts = (2 + mask) * layer("ep", "forward")
    assert float(step["ep_communication_time"]) == pytest.approx(3 * 6 * experts)
    ends = step["vocabulary_first_time"] + step["vocabulary_last_time"]
    assert float(step["vocabulary_communication_time"]) == pytest.approx(3 * float(ends))


def test_layers_make_up_data_parallelism() -> None:
    """Without embedding, output layer and last norm, of which the layers' messages know nothing."""
    plan = MOE | keyed("tp=2 dp=8 ep=2 zero_stage=3 intra_latency=0 inter_latency=0")
    step = held(plan)
    dense = float(step["max_rank_dense_parameters"])
    tables = 2 * 51200 * 1024 / 2 + 1024
    scale = dense / (dense - tables)
    gather = 8 * float(step["dp_layer_gather_time"]) * scale + 6 * float(
        step["edp_layer_gather_time"]
    )
    reduce = 8 * float(step["dp_layer_reduce_time"]) * scale + 6 * float(
        step["edp_layer_reduce_time"]
    )
    assert float(step["dp_gather_time"]) == pytest.approx(2 * gather)
    assert float(step["dp_reduce_time"]) == pytest.approx(reduce)


# Known proportions.


@every_topology
def test_zero_3_sends_half_as_much_again_as_zero_0(topology: str) -> None:
    plan = {**GPT, **grid(tp=(1, 2), dp=(2, 4, 64)), "gradient_bytes": 2}
    steps = [held({**plan, "zero_stage": stage}, topology=topology) for stage in (0, 1, 2, 3)]
    costs = [step["dp_communication_volume"] for step in steps]
    if topology in ("switch", "tree", "mesh"):
        # A tree sends more than a ring, and inner ranks of a line more than those at its ends.
        np.testing.assert_allclose(costs[1], costs[2], rtol=1e-13)
    else:
        np.testing.assert_allclose(costs[1], costs[0], rtol=1e-13)
        np.testing.assert_allclose(costs[2], costs[0], rtol=1e-13)
    scatter, gather = volume(steps[1], "dp_reduce_scatter"), volume(steps[1], "dp_all_gather")
    np.testing.assert_allclose(costs[3], scatter + 2 * gather, rtol=1e-13)
    if topology in ("hierarchical", "ring", "torus"):
        np.testing.assert_allclose(costs[3], 1.5 * costs[0], rtol=1e-13)


def test_sequence_parallelism_sends_as_much() -> None:
    plan = {**GPT, **grid(tp=(1, 2, 4, 8), pp=(1, 2), num_micro_batches=(1, 4))}
    plain, split = held(plan), held({**plan, "sequence_parallel": 1})
    sent = split["tp_communication_volume"] - volume(split, "tp_weight_gather")
    np.testing.assert_allclose(sent, plain["tp_communication_volume"], rtol=1e-13)
    np.testing.assert_allclose(
        volume(split, "tp_weight_gather"), plain["tp_communication_volume"] / 8 * 2, rtol=1e-13
    )


def test_one_shard_over_all_is_full_sharding() -> None:
    plan = {**MOE, **grid(tp=(1, 2), dp=(4, 8), ep=(1, 4), zero_stage=(1, 2, 3)), "cp": 2}
    left = held(plan)
    right = held({**plan, "hsdp_shard_size": plan["dp"] * 2}, sharding="hybrid")
    for name in ("time", "volume", "energy"):
        total = f"dp_communication_{name}"
        np.testing.assert_allclose(left[total], right[total], rtol=1e-13)
    assert not np.any(volume(right, "dp_replica_all_reduce"))


def test_energy_is_that_of_all_bytes_that_are_sent() -> None:
    """A rank sends as much as any other, over links of 1 pJ or of 10 pJ a bit."""
    plan = {
        **MOE,
        "dense_layers": 0,
        **grid(tp=(2, 4), pp=(1, 2), dp=(4, 16)),
        "cp": 2,
        "ep": 4,
        "zero_stage": 3,
    }
    step = held(plan)
    world = plan["tp"] * 2 * plan["pp"] * plan["dp"]
    for name in ("tp_all_gather", "cp_query_all_to_all", "ep_dispatch", "edp_reduce_scatter"):
        bits = 8 * volume(step, name) * world
        energy = total_energy(step, name)
        assert (energy >= bits * 1e-12 * (1 - 1e-12)).all()
        assert (energy <= bits * 1e-11 * (1 + 1e-12)).all()
    same = held({**plan, "inter_energy_per_bit": 1e-12})
    for name in ("tp_all_gather", "cp_query_all_to_all", "ep_dispatch", "edp_reduce_scatter"):
        bits = 8 * volume(same, name) * world
        np.testing.assert_allclose(total_energy(same, name), bits * 1e-12, rtol=1e-12)


@pytest.mark.parametrize("tied", [0, 1])
def test_energy_of_gradients_is_that_of_all_stages(tied: float) -> None:
    """The stages hold different numbers of parameters: those of all count, tables included."""
    tp, dp = 2.0, 4.0
    for pp in (1.0, 2.0, 4.0):
        plan = {**GPT, "tied_embeddings": tied, "tp": tp, "pp": pp, "dp": dp}
        step = held({**plan, "inter_energy_per_bit": 1e-12})
        held_by_all = sum(
            float(held({**plan, "stage": stage})["stage_parameters"]) for stage in np.arange(pp)
        )
        bits = 8 * 4 * held_by_all * tp * 2 * (dp - 1)
        assert float(step["dp_communication_energy"]) == pytest.approx(bits * 1e-12)


# What can't get worse.


@pytest.mark.thorough_cases(every=3)
@every_topology
@pytest.mark.parametrize("kind", KINDS)
def test_more_bandwidth_never_slows(topology: str, kind: str) -> None:
    plan = {**EXPERTS, "cp": 2, "zero_stage": 3}
    slow = held(plan, topology=topology, context_parallel=kind)
    double = {name: 2 * MACHINE[name] for name in ("intra_bandwidth", "inter_bandwidth")}
    for faster in (
        {"intra_bandwidth": double["intra_bandwidth"]},
        {"inter_bandwidth": double["inter_bandwidth"]},
        double,
        {"intra_latency": 0.0},
    ):
        fast = held({**plan, **faster}, topology=topology, context_parallel=kind)
        for name in (*(f"{name}_time" for name in OPERATIONS), "communication_upper_bound"):
            assert (fast[name] <= slow[name] * (1 + 1e-12)).all(), name
    half = held(
        {**plan, **double, "intra_efficiency": 0.5, "inter_efficiency": 0.5},
        topology=topology,
        context_parallel=kind,
    )
    for name in ("communication_upper_bound", "p2p_time"):
        np.testing.assert_allclose(half[name], slow[name], rtol=1e-13)


def test_more_micro_batches_take_longer_and_gradients_alone_do_not() -> None:
    few, many = (held({**GPT, **PLANS, "num_micro_batches": count}) for count in (2.0, 4.0))
    for name in ("tp", "cp", "pp"):
        time = f"{name}_communication_time"
        np.testing.assert_allclose(many[time], 2 * few[time], rtol=1e-13)
    rows = whole(PLANS["zero_stage"]) < 2
    left, right = (dimension(step, "dp", "time")[rows] for step in (few, many))
    np.testing.assert_array_equal(left, right)


def test_many_plans_at_once_are_each_plan_alone() -> None:
    together = held({**GPT, **PLANS})["communication_upper_bound"]
    rng = np.random.default_rng(7)
    for cell in zip(*(rng.integers(0, size, 12) for size in together.shape), strict=True):
        plan = {name: float(whole(values)[cell]) for name, values in PLANS.items()}
        alone = held({**GPT, **plan})["communication_upper_bound"]
        np.testing.assert_allclose(together[cell], alone, rtol=1e-14)


def test_what_is_missing_is_told() -> None:
    with pytest.raises(MissingQuantities, match="hidden_size"):
        _ = held({"tp": 2, "sequence_length": 128})["tp_message_bytes"]
