"""Communication of a training step: examples worked by hand, of each dimension but dp."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.communication.operation import DIMENSIONS
from overhead.communication.totals import OPERATIONS
from overhead.evaluation import Evaluation
from sweeps.spec.catalog import load_model
from tests.overhead.communication_cases import (
    GPT,
    LLAMA,
    MACHINE,
    MOE,
    count,
    counts,
    held,
    sent,
    spent,
    total_energy,
)
from tests.tables import examples, keyed

A = 2 * 2048 * 1024  # 16-bit activations of 2048 tokens and hidden size 1024
INSIDE, BETWEEN = 1e11, 1e10  # byte/s
NEAR, FAR = 1e-6, 5e-6  # s


def times(evaluation: Evaluation, *names: str) -> tuple[float, ...]:
    return tuple(float(evaluation[name]) for name in names)


# Tensor parallelism.


def test_tensor_parallelism_without_sequence_parallelism() -> None:
    """4 of a node's 8 ranks: a ring of 4 gives 2*3 steps of a quarter of the buffer."""
    step = held({**GPT, "tp": 4, "num_micro_batches": 3})
    once = 2 * 3 * (NEAR + A / 4 / INSIDE)
    assert float(step["tp_message_bytes"]) == A
    assert float(step["tp_all_reduce_time"]) == pytest.approx(once)
    # 8 layers of 2 blocks, 3 micro-batches, each way.
    assert counts(step)["tp_all_reduce"] == (48, 48)
    assert float(sent(step, "tp", "forward")) == pytest.approx(48 * once)
    assert float(step["tp_communication_time"]) == pytest.approx(96 * once)
    assert float(step["tp_communication_volume"]) == pytest.approx(96 * 2 * 3 / 4 * A)
    # A ring of 4 sends 2*3 messages over all its links together; 8 bits a byte, 1 pJ a bit.
    assert float(step["tp_communication_energy"]) == pytest.approx(96 * 2 * 3 * A * 8e-12)
    assert float(step["tp_layer_forward_time"]) == pytest.approx(2 * once)
    assert float(step["tp_layer_gather_time"]) == 0.0


def test_tensor_parallelism_with_sequence_parallelism() -> None:
    step = held({**GPT, "tp": 4, "num_micro_batches": 3, "sequence_parallel": 1}, recompute="full")
    half = 3 * (NEAR + A / 4 / INSIDE)
    assert float(count(step, "tp_all_reduce", "forward")) == 0.0
    for name, forward, backward in (
        ("tp_all_gather", 48, 96),
        ("tp_reduce_scatter", 48, 96),
        ("tp_weight_gather", 0, 48),
    ):
        assert counts(step)[name] == (forward, backward)
        assert float(step[f"{name}_time"]) == pytest.approx(half)
    layer = times(step, *(f"tp_layer_{n}_time" for n in ("forward", "backward", "gather")))
    assert layer == pytest.approx((4 * half, 4 * half, 2 * half))
    assert float(step["tp_layer_recompute_time"]) == pytest.approx(4 * half)
    assert float(step["tp_communication_time"]) == pytest.approx((48 * 6 + 48) * half)


def test_tensor_parallelism_of_experts() -> None:
    """Two dense layers of two blocks; six whose attention alone is tensor-parallel."""
    step = held({**MOE, "tp": 2})
    assert float(step["max_stage_tp_blocks"]) == 2 * 2 + 6
    assert float(step["tp_moe_layer_forward_time"]) == float(step["tp_layer_forward_time"]) / 2
    shared = held({**MOE, "tp": 2, "shared_ffn_size": 512})
    assert float(shared["max_stage_tp_blocks"]) == 2 * 8
    assert float(shared["tp_moe_layer_gather_time"]) == float(shared["tp_layer_gather_time"])


def test_tensor_parallelism_of_mixers_without_an_mlp() -> None:
    """Nemotron 3 Nano: 23 Mamba-2, 6 of attention, 23 mixtures with shared experts: 52 blocks."""
    shapes = load_model("nemotron-3-nano-30b-a3b").shapes
    plan = {**shapes, "tp": 4, "sequence_length": 2048, "num_micro_batches": 3}
    step = held(plan)
    assert float(step["max_stage_tp_blocks"]) == 52
    assert float(step["tp_block_balance"]) == 1.0
    assert counts(step)["tp_all_reduce"] == (156, 156)
    whole = 2 * 2048 * 2688
    assert float(step["tp_communication_volume"]) == pytest.approx(312 * 2 * 3 / 4 * whole)
    layers = times(step, "tp_layer_forward_time", "tp_moe_layer_forward_time")
    once = float(step["tp_all_reduce_time"])
    assert layers == pytest.approx((once, 2 * once))
    assert 3 * (6 * layers[0] + 23 * layers[1]) == pytest.approx(156 * once)
    # Sequence parallelism: of each block a gather and a reduce-scatter each way, and one more.
    step = held({**plan, "sequence_parallel": 1})
    assert counts(step)["tp_all_gather"] == counts(step)["tp_reduce_scatter"] == (156, 156)
    assert counts(step)["tp_weight_gather"] == (0, 156)
    # Which software does without that keeps what it gathered.
    kept = held({**plan, "sequence_parallel": 1, "gathered_sequences": 2})
    assert "tp_weight_gather" not in counts(kept)
    sent = float(kept["tp_communication_volume"])
    assert sent == pytest.approx(4 / 5 * float(step["tp_communication_volume"]))


@pytest.mark.parametrize(("recompute", "gathers", "reductions"), examples(__file__, "repeated"))
def test_what_recomputation_repeats(recompute: str, gathers: int, reductions: int) -> None:
    plan = {**GPT, "tp": 4, "sequence_parallel": 1, "cp": 2}
    step = held(plan, recompute=recompute)
    half = float(step["tp_all_gather_time"])
    expected = pytest.approx((gathers + reductions) * half)
    assert float(step["tp_layer_recompute_time"]) == expected
    assert float(count(step, "tp_all_gather", "backward")) == 8 * (2 + gathers)
    assert float(count(step, "tp_reduce_scatter", "backward")) == 8 * (2 + reductions)
    attention = recompute in ("selective", "full", "full_early_stop")
    assert float(count(step, "cp_query_all_to_all", "backward")) == 8 * 2 * (1 + attention)


@pytest.mark.parametrize(
    ("model", "blocks", "left"),
    [
        ("llama3-8b", 2 * 32, 32),
        # A mixture without shared experts comes after its mixer's one reduction.
        ("mixtral-8x7b", 32, 0),
        # Leading layers with MLPs, mixtures with shared experts
        ("deepseek-v3", 2 * 61, 61),
        # Each mixer is a layer with one reduction, each mixture's shared experts another.
        ("nemotron-3-nano-30b-a3b", 52, 52),
    ],
)
def test_the_last_reduction_of_a_layer_is_not_repeated(model: str, blocks: int, left: int) -> None:
    plan = {**load_model(model).shapes, "early_stop": 1.0}
    step = Evaluation(plan, {"recompute": "full", "shapes": "known"})
    assert float(step["recomputed_reductions"]) == 1.0 - left / blocks


# Vocabulary.


def test_vocabulary() -> None:
    """Tied, on two stages: 51200*1024/2 gradients of 4 bytes between first and last."""
    step = held({**GPT, "tp": 2, "pp": 2, "dp": 2, "num_micro_batches": 4})
    whole = 2 * (NEAR + A / 2 / INSIDE)
    loss = 2 * (NEAR + 4 * 2048 / 2 / INSIDE)
    assert float(spent(step, "embedding_all_reduce", "forward")) == pytest.approx(4 * whole)
    assert float(spent(step, "logits_all_reduce", "backward")) == pytest.approx(4 * whole)
    assert float(spent(step, "loss_all_reduce", "forward")) == pytest.approx(4 * 3 * loss)
    table = 4 * 51200 * 1024 / 2
    # Both stages' 8 ranks share a node, so the ends do.
    tied = 2 * (NEAR + table / 2 / INSIDE)
    assert float(step["tied_all_reduce_backward_time"]) == pytest.approx(tied)
    total = 8 * whole + 12 * loss + tied
    assert float(step["vocabulary_communication_time"]) == pytest.approx(total)
    assert float(step["vocabulary_first_time"]) == pytest.approx(whole)
    assert float(step["vocabulary_last_time"]) == pytest.approx(whole + 3 * loss)
    # One end of the pipeline: 2 groups of 2 ranks each; and 4 pairs of ends.
    energy = 8 * 2 * 2 * A + 12 * 2 * 2 * 4 * 2048 + 4 * 2 * table
    assert float(step["vocabulary_communication_energy"]) == pytest.approx(energy * 8e-12)


def test_vocabulary_with_sequence_parallelism() -> None:
    step = held(
        {**GPT, "tp": 2, "sequence_parallel": 1, "tied_embeddings": 0, "num_micro_batches": 4}
    )
    half = NEAR + A / 2 / INSIDE
    loss = 2 * (NEAR + 4 * 2048 / 2 / INSIDE)
    assert float(step["vocabulary_first_time"]) == pytest.approx(2 * half)
    assert float(step["vocabulary_last_time"]) == pytest.approx(3 * half + 3 * loss)
    forward = 4 * (2 * half + 3 * loss)
    assert float(sent(step, "vocabulary", "forward")) == pytest.approx(forward)
    assert float(sent(step, "vocabulary", "backward")) == pytest.approx(4 * 3 * half)


# Context parallelism: 8192 tokens of a sequence over 4 ranks, 64/2 heads of 128, 8/2 of keys.

CP = {**LLAMA, "tp": 2, "cp": 4, "sequence_parallel": 1}
QUERIES = 2 * 2048 * 32 * 128
KEYS = 2 * 2048 * 4 * 128


def in_a_layer(step: Evaluation, way: str) -> float:
    """Return the time of a layer's exchanges and of its rounds."""
    return float(step[f"cp_exchange_{way}_time"] + step[f"cp_round_{way}_time"])


def test_context_parallelism_by_all_to_all() -> None:
    step = held({**CP, "dp": 1})
    assert times(step, "cp_query_bytes", "cp_key_value_bytes") == (QUERIES, KEYS)
    # All in one node: three shifts, each of a quarter.
    left, right = (3 * (NEAR + message / 4 / INSIDE) for message in (QUERIES, KEYS))
    assert in_a_layer(step, "forward") == pytest.approx(2 * left + 2 * right)
    assert in_a_layer(step, "backward") == pytest.approx(2 * left + 2 * right)
    assert float(step["cp_communication_time"]) == pytest.approx(80 * 4 * (left + right))
    volume = 80 * 4 * 3 / 4 * (QUERIES + KEYS)
    assert float(step["cp_communication_volume"]) == pytest.approx(volume)


@pytest.mark.parametrize(("back", "messages"), [(0, 3), (1, 4)])
def test_context_parallelism_in_a_ring(back: int, messages: int) -> None:
    step = held({**CP, "ring_return": back}, context_parallel="ring")
    hop = NEAR + 2 * KEYS / INSIDE
    assert float(step["cp_ring_time"]) == pytest.approx(hop)
    assert in_a_layer(step, "forward") == pytest.approx(3 * hop)
    assert in_a_layer(step, "backward") == pytest.approx(2 * messages * hop)
    assert float(step["cp_communication_time"]) == pytest.approx(80 * (3 + 2 * messages) * hop)
    assert float(step["cp_communication_volume"]) == pytest.approx(
        80 * (3 + 2 * messages) * 2 * KEYS
    )


def test_a_ring_over_nodes_takes_the_slower_link() -> None:
    """tp 2 and cp 8 on two nodes: each ring crosses twice, and each node's two share 8 cards."""
    plan = {**CP, "cp": 8}
    step = held(plan, context_parallel="ring")
    message = 2 * 2 * 1024 * 4 * 128
    assert float(step["cp_ring_time"]) == pytest.approx(FAR + message / BETWEEN)
    # Of a ring's 8 messages a step 2 go between nodes, at 10 pJ a bit.
    energy = message * 8 * (2 * 1e-11 + 6 * 1e-12)
    assert float(step["cp_ring_energy"]) == pytest.approx(energy)
    # One card a node: the two rings' messages share it.
    shared = held({**plan, "nics_per_node": 1}, context_parallel="ring")
    assert float(shared["cp_ring_time"]) == pytest.approx(FAR + 2 * message / BETWEEN)


def test_context_parallelism_by_all_gather() -> None:
    step = held(CP, context_parallel="all_gather")
    gather = 3 * (NEAR + 2 * KEYS / INSIDE)
    assert float(step["cp_gather_bytes"]) == 4 * 2 * KEYS
    assert in_a_layer(step, "forward") == pytest.approx(gather)
    assert in_a_layer(step, "backward") == pytest.approx(2 * gather)
    kept = held({**CP, "kept_keys": 1}, context_parallel="all_gather")
    assert in_a_layer(kept, "backward") == pytest.approx(gather)
    assert float(step["cp_communication_time"]) == pytest.approx(80 * 3 * gather)


def test_latent_attention_has_heads_of_its_own() -> None:
    """Keys of 128 + 64, values of 128: on average 160, for each of 128 heads over tp."""
    latent = keyed(
        "heads=128 kv_heads=128 kv_lora_rank=512 qk_nope_head_size=128 qk_rope_head_size=64 "
        "v_head_size=128"
    )
    step = held({**LLAMA, **latent, "tp": 2, "cp": 4})
    expected = 2 * 2048 * 64 * 160
    assert times(step, "cp_query_bytes", "cp_key_value_bytes") == (expected, expected)


def test_attention_that_selects_gathers_latent_vectors() -> None:
    """A vector of 512 + 64 a token for all heads, and half the layers' indexer's key of 128."""
    selecting = {
        **LLAMA,
        **keyed(
            "heads=64 kv_heads=64 kv_lora_rank=512 qk_nope_head_size=192 qk_rope_head_size=64 "
            "v_head_size=256 index_heads=32 index_head_size=128 index_top_k=2048 tp=2 cp=4"
        ),
        "index_layers": LLAMA["layers"] / 2,
    }
    step = held(selecting, context_parallel="all_gather", selection="indexed")
    assert float(step["cp_gather_bytes"]) == 4 * 2 * 2048 * (512 + 64 + 64)


# Pipelines.


@pytest.mark.parametrize(
    ("change", "inside", "message"),
    [
        ({"tp": 4, "pp": 2}, True, A),
        ({"tp": 4, "pp": 4}, False, A),
        ({"tp": 8, "pp": 2}, False, A),
        ({"tp": 8, "pp": 2, "sequence_parallel": 1}, False, A / 8),
    ],
)
def test_pipelines(change: dict[str, float], inside: bool, message: float) -> None:
    step = held({**GPT, "num_micro_batches": 4, **change})
    latency, bandwidth = (NEAR, INSIDE) if inside else (FAR, BETWEEN)
    once = latency + message / bandwidth
    assert float(step["p2p_time"]) == pytest.approx(once)
    assert float(step["pp_communication_time"]) == pytest.approx(8 * once)
    assert float(sent(step, "pp", "forward")) == pytest.approx(4 * once)
    # Of two stages each sends one way.
    ways = 8 if change["pp"] > 2 else 4
    assert float(step["pp_communication_volume"]) == pytest.approx(ways * message)


def test_stages_that_send_their_parts_gather_them() -> None:
    plan = {**GPT, "tp": 8, "pp": 2, "num_micro_batches": 4}
    step = held({**plan, "scatter_gather": 1})
    gather = 7 * (NEAR + A / 8 / INSIDE)
    once = FAR + A / 8 / BETWEEN
    assert float(step["p2p_time"]) == pytest.approx(once + gather)
    assert float(step["pp_communication_time"]) == pytest.approx(8 * (once + gather))
    split = held({**plan, "scatter_gather": 1, "sequence_parallel": 1})
    assert float(split["p2p_time"]) == pytest.approx(once)
    assert float(count(split, "pp_gather", "forward")) == 0.0


def test_a_small_stage_has_all_cards_of_its_node() -> None:
    """Four ranks a stage, two cards: two messages a card, not the four of a full node."""
    step = held({**GPT, "tp": 4, "pp": 4, "nics_per_node": 2})
    assert float(step["p2p_time"]) == pytest.approx(FAR + 2 * A / BETWEEN)
    full = held({**GPT, "tp": 8, "pp": 4, "nics_per_node": 2})
    assert float(full["p2p_time"]) == pytest.approx(FAR + 4 * A / BETWEEN)


# Experts: 2048 tokens over tp 2, two experts each.


def test_expert_parallelism() -> None:
    step = held({**MOE, "tp": 2, "dp": 4, "ep": 4, "num_micro_batches": 3})
    message = 2 * 2048 / 2 * 2 * 1024
    once = 3 * (NEAR + message / 4 / INSIDE)
    assert float(step["combine_message_bytes"]) == message
    assert float(step["ep_layer_forward_time"]) == pytest.approx(2 * once)
    # Six layers of experts, three micro-batches, four exchanges.
    assert float(step["ep_communication_time"]) == pytest.approx(6 * 3 * 4 * once)
    assert float(step["ep_communication_volume"]) == pytest.approx(6 * 3 * 4 * 3 / 4 * message)


def test_what_is_dispatched_may_be_narrower_and_uneven() -> None:
    plan = {**MOE, "tp": 2, "dp": 4, "ep": 4}
    plain, uneven = held(plan), held({**plan, "dispatch_bytes": 1, "expert_load_imbalance": 1.5})
    message = float(plain["combine_message_bytes"])
    assert float(uneven["dispatch_message_bytes"]) == 0.75 * message
    assert float(uneven["combine_message_bytes"]) == 1.5 * message
    # Bytes on links are no more for it.
    energy = float(total_energy(plain, "ep_combine"))
    assert float(total_energy(uneven, "ep_combine")) == pytest.approx(energy)
    assert float(total_energy(uneven, "ep_dispatch")) == pytest.approx(energy / 2)


@pytest.mark.thorough_cases("8-256-8", "256-64", "384-128", "256-256")
@pytest.mark.parametrize(("tokens", "per_token", "experts", "ep"), examples(__file__, "busiest"))
def test_the_busiest_rank_s_experts_by_chance(
    tokens: int, per_token: int, experts: int, ep: int
) -> None:
    """A Monte-Carlo: tokens of all ranks draw experts; heat gives one rank's a larger chance."""
    plan = dict(
        rank_tokens=tokens, experts_per_token=per_token, experts=experts, ep=ep, etp=1, tp=1
    )
    rng = np.random.default_rng(20261123)

    def drawn(heat: float) -> float:
        # Largest of random keys with weights: a draw without replacement (Efraimidis, Spirakis).
        weights = np.ones(experts)
        weights[: experts // ep] = heat * (ep - 1.0) / (ep - heat)
        ratios = []
        for _ in range(40):
            keys = rng.exponential(1.0 / weights, (tokens * ep, experts))
            chosen = keys.argpartition(per_token - 1, axis=1)[:, :per_token]
            loads = np.bincount((chosen // (experts // ep)).ravel(), minlength=ep)
            ratios.append(loads.max() / loads.mean())
        return float(np.mean(ratios))

    def formula(heat: float) -> float:
        given = Evaluation({**plan, "rank_load_imbalance": heat})
        return float(given["expert_load_imbalance"])

    even = drawn(1.0)
    assert formula(1.0) - 1.0 == pytest.approx(even - 1.0, rel=0.15)
    assert formula(1.3) == pytest.approx(1.3 * formula(1.0))
    # One hot rank is at most as busy as the busiest of ranks that are all so hot.
    assert formula(1.3) == pytest.approx(drawn(1.3), rel=even - 1.0 + 0.03)
    assert formula(1.3) > 0.97 * drawn(1.3)
    assert formula(1e9) == min(ep, experts / per_token)


def test_one_rank_of_experts_has_no_busiest() -> None:
    plan = {"rank_tokens": 64, "experts_per_token": 2, "experts": 8, "ep": 1, "etp": 1, "tp": 1}
    drawn = Evaluation({**plan, "rank_load_imbalance": 1.0})
    assert float(drawn["expert_load_imbalance"]) == 1.0


def test_split_experts_gather_their_tokens() -> None:
    step = held({**MOE, "tp": 2, "dp": 4, "ep": 4, "etp": 2})
    message = 2 * 2048 / 2 * 2 * 1024
    assert times(step, "etp_gather_bytes", "etp_scatter_bytes") == (2 * message, 2 * message)
    once = NEAR + 2 * message / 2 / INSIDE
    assert float(step["etp_all_gather_time"]) == pytest.approx(once)
    # Every second rank, over 8: the group fills a node.
    shift = 3 * (NEAR + message / 4 / INSIDE)
    assert float(step["ep_layer_forward_time"]) == pytest.approx(2 * (once + shift))


# A number of parameters alone.


def test_a_bare_number_of_parameters() -> None:
    """70e9 parameters over tp 2 and pp 2, their 16-bit gradients over dp 8."""
    bare = keyed(
        "parameters=70e9 tp=2 pp=2 dp=8 gradient_bytes=2 layers=2 sequence_length=1024 "
        "hidden_size=4096"
    )
    step = held(bare, shapes="unknown")
    share = 70e9 / 4
    # Four members in a node of eight: 2 nodes, through 4 rings a node that enter at other cards.
    assert float(step["max_rank_dense_parameters"]) == share
    assert float(step["dp_communication_volume"]) == pytest.approx(2 * 7 / 8 * 2 * share)
    assert float(step["ep_communication_time"]) == 0.0
    assert float(count(step, "tp_all_reduce", "forward")) == 2
    assert float(step["communication_upper_bound"]) > float(step["dp_communication_time"])
    heads = held({**bare, "cp": 2}, shapes="unknown")
    assert float(heads["cp_query_bytes"]) == 2 * 512 * 4096 / 2


def test_no_shapes_are_needed_for_data_parallelism() -> None:
    step = held({"parameters": 70e9, "dp": 8, "layers": 1, "gradient_bytes": 2}, shapes="unknown")
    once = 2 * 7 * (NEAR + 140e9 / 8 / INSIDE)
    assert float(step["dp_communication_time"]) == pytest.approx(once)


# Links.


def test_links_give_a_share_of_their_bandwidth() -> None:
    step = held({**GPT, "tp": 8, "pp": 2, "intra_efficiency": 0.5, "inter_efficiency": 0.8})
    assert float(step["tp_all_reduce_time"]) == pytest.approx(
        2 * 7 * (NEAR + A / 8 / (0.5 * INSIDE))
    )
    assert float(step["p2p_time"]) == pytest.approx(FAR + A / (0.8 * BETWEEN))


def test_the_tables_name_what_there_is() -> None:
    assert {operation.dimension for operation in OPERATIONS.values()} == set(DIMENSIONS)
    for name, one in OPERATIONS.items():
        assert one.name == name
        said = "send/recv" if one.collective == "p2p" else one.collective.replace("_", "-")
        assert said in one.title.partition(" of ")[0]
    assert len({operation.title for operation in OPERATIONS.values()}) == len(OPERATIONS)
    assert MACHINE["intra_bandwidth"] == INSIDE
