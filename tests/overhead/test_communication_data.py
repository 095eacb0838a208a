"""Communication of data parallelism in a step: examples worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.overhead.communication_cases import GPT, MOE, count, held, sent, spent
from tests.tables import examples

INSIDE, BETWEEN = 1e11, 1e10  # byte/s
NEAR, FAR = 1e-6, 5e-6  # s

# Data parallelism: eight ranks a node are one stage of tp 8, so that dp goes between nodes.

DP = {**GPT, "tied_embeddings": 0, "tp": 8, "dp": 4, "num_micro_batches": 3}
LAYER = (4 * 1024**2 + 2 * 1024 * 4096) / 8 + 2 * 1024
TABLES = 2 * 51200 * 1024 / 8 + 1024


@pytest.mark.parametrize(("change", "reduced", "gathered"), examples(__file__, "sharded"))
def test_sharded_data_parallelism(
    change: dict[str, float], reduced: int, gathered: tuple[int, int]
) -> None:
    """Stage 3 sends layer by layer, the others everything at once."""
    step = held({**DP, "gathered_bytes": 3, **change})
    parameters = 8 * LAYER + TABLES
    element = 3 if change["zero_stage"] == 3 else 2
    assert float(step["max_rank_dense_parameters"]) == parameters
    pieces = 8 if change["zero_stage"] == 3 else 1
    scatter = pieces * 3 * (FAR + 4 * parameters / pieces / 4 / BETWEEN)
    gather = pieces * 3 * (FAR + element * parameters / pieces / 4 / BETWEEN)
    assert float(step["dp_reduce_time"]) == pytest.approx(reduced * scatter)
    assert float(step["dp_gather_time"]) == pytest.approx(sum(gathered) * gather)
    forward = float(sent(step, "dp", "forward"))
    assert forward == pytest.approx(gathered[0] * gather)
    volume = 3 / 4 * parameters * (4 * reduced + element * sum(gathered))
    assert float(step["dp_communication_volume"]) == pytest.approx(volume)


def test_a_pipeline_may_gather_and_reduce_once_a_step() -> None:
    """Where stages stay whole until the last micro-batch, a step has one round of each."""
    plan = {**DP, "pp": 2, "num_micro_batches": 6, "zero_stage": 3}
    for whole, rounds in ((0, 6), (1, 1)):
        step = held({**plan, "unsharded_in_pipeline": whole})
        assert float(step["forward_gathers"]) == float(step["gradient_reductions"]) == rounds
        assert float(step["backward_gathers"]) == (0 if whole else rounds)


def test_plain_data_parallelism() -> None:
    step = held(DP)
    parameters = 8 * LAYER + TABLES
    # Two trees through 4 nodes, of two levels up and down, through which the bytes stream.
    once = 4 * FAR + 6 * 4 * parameters / 4 / BETWEEN
    assert float(step["dp_communication_time"]) == pytest.approx(once)
    # 8 rings of 4, in which every link is between nodes.
    energy = 8 * 2 * 3 * 4 * parameters * 8 * 1e-11
    assert float(step["dp_communication_energy"]) == pytest.approx(energy)
    assert float(held({**DP, "reduction_bytes": 2})["dp_communication_volume"]) == pytest.approx(
        2 * 3 / 4 * 2 * parameters
    )


def test_buckets_pay_latency_each() -> None:
    parameters = 8 * LAYER + TABLES
    step = held({**DP, "bucket_bytes": 10e6})
    pieces = np.ceil(4 * parameters / 10e6)
    assert float(count(step, "dp_all_reduce", "backward")) == pieces == 11
    once = 4 * FAR + 6 * 4 * parameters / pieces / 4 / BETWEEN
    assert float(step["dp_communication_time"]) == pytest.approx(pieces * once)


def test_hybrid_sharding() -> None:
    """Shards of 4 ranks inside a node, each with its replicas on two nodes."""
    plan = {**DP, "tp": 2, "dp": 8, "hsdp_shard_size": 4, "zero_stage": 1}
    step = held(plan, sharding="hybrid")
    parameters = float(step["max_rank_dense_parameters"])
    scatter = 3 * (NEAR + 4 * parameters / 4 / INSIDE)
    gather = 3 * (NEAR + 2 * parameters / 4 / INSIDE)
    replicas = 2 * (FAR + 4 * parameters / 4 / 2 / BETWEEN)
    assert float(step["dp_gather_time"]) == pytest.approx(gather)
    assert float(step["dp_reduce_time"]) == pytest.approx(scatter + replicas)
    layer = float(step["dp_layer_reduce_time"])
    assert layer == pytest.approx(
        3 * (NEAR + LAYER_OF_2 / INSIDE) + 2 * (FAR + LAYER_OF_2 / 2 / BETWEEN)
    )


# A quarter of the 4-byte gradients of a layer of which a rank has half.
LAYER_OF_2 = (4 * 1024**2 + 2 * 1024 * 4096) / 2 + 2 * 1024


def test_experts_have_data_parallelism_of_their_own() -> None:
    """Of 8 ranks with 4 of expert parallelism two hold the same experts, 4 apart."""
    step = held({**MOE, "dp": 8, "ep": 4, "zero_stage": 0})
    experts = 6 * 16 / 4 * 3 * 1024 * 512
    assert float(step["max_rank_expert_parameters"]) == experts
    once = 2 * (NEAR + 4 * experts / 2 / INSIDE)
    assert float(spent(step, "edp_all_reduce", "backward")) == pytest.approx(once)
    plain = float(spent(step, "dp_all_reduce", "backward"))
    assert float(step["dp_reduce_time"]) == pytest.approx(plain + once)
    assert float(step["edp_layer_gather_time"]) == pytest.approx(
        NEAR + 2 * experts / 6 / 2 / INSIDE
    )


def test_two_copies_of_a_stage_share_their_gradients() -> None:
    plan = {**GPT, "tp": 8, "pp": 4, "num_micro_batches": 8}
    step = held(plan, schedule="dual_pipe")
    parameters = float(step["max_rank_dense_parameters"])
    once = 2 * (FAR + 4 * parameters / 2 / BETWEEN)
    assert float(spent(step, "copy_all_reduce", "backward")) == pytest.approx(once)
    assert float(step["dp_reduce_time"]) == pytest.approx(once)
    # Which has the shared table's gradients in it.
    assert float(step["tied_all_reduce_backward_count"]) == 0.0
    assert float(held(plan)["copy_all_reduce_backward_count"]) == 0.0


@pytest.mark.parametrize(("stage", "rounds"), [(0, 1), (1, 1), (2, 8)])
def test_copies_of_sharded_gradients(stage: int, rounds: int) -> None:
    plan = {**MOE, "tp": 4, "pp": 4, "dp": 4, "ep": 2, "num_micro_batches": 8, "zero_stage": stage}
    step = held(plan, schedule="dual_pipe")
    dense, experts = (float(step[f"max_rank_{kind}_parameters"]) for kind in ("dense", "expert"))
    shards, expert_shards = (4, 8) if stage else (1, 1)
    message = 4 * (dense / shards + experts / expert_shards)
    assert float(step["copy_message_bytes"]) == pytest.approx(message)
    assert float(step["copy_all_reduce_backward_count"]) == rounds
