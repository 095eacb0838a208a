"""Parts of memory against worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.evaluation import derive
from overhead.memory.quantities import RECIPES
from tests.overhead.memory_cases import DEEPSEEK_V3, LLAMA3_70B, MIXED, gpt, held, stage_memory
from tests.overhead.usual import usual

# Parameters of a rank.


def test_no_parallelism_holds_the_whole_model() -> None:
    for shapes in (LLAMA3_70B, DEEPSEEK_V3, gpt(96, 12288, 96, 50304)):
        whole = derive("parameters", {**usual("memory"), **shapes})
        assert float(held(shapes)["rank_parameters"]) == float(whole)


def test_llama_3_70b_by_hand() -> None:
    """On tp = 8, pp = 4: 20 layers, a key and value head a rank."""
    plan = {**LLAMA3_70B, "tp": 8, "pp": 4, "stage": [0.0, 1.0, 3.0]}
    attention = 8192 * 8 * 128 + 2 * 8192 * 1 * 128 + 8 * 128 * 8192
    mlp = 3 * 8192 * 28672 // 8
    layers = 20 * (attention + mlp + 2 * 8192)
    table = 129024 * 8192 // 8  # 128,256 tokens, padded to a multiple of 1,024
    expected = [layers + table, layers, layers + table + 8192]
    np.testing.assert_array_equal(held(plan)["rank_parameters"], expected)


def test_heads_that_are_fewer_than_ranks_are_copied() -> None:
    eight, sixteen = (held({**LLAMA3_70B, "tp": t}) for t in (8, 16))
    np.testing.assert_array_equal(sixteen["rank_kv_heads"], 1.0)
    np.testing.assert_array_equal(eight["key_value_width"], sixteen["key_value_width"])


def test_a_tied_table_is_held_at_both_ends_of_a_pipeline() -> None:
    shapes = {**gpt(4, 1024, 16), "stage": [0.0, 1.0, 3.0], "pp": 4}
    tied = held(shapes)
    untied = held({**shapes, "tied_embeddings": 0})
    np.testing.assert_array_equal(tied["rank_parameters"], untied["rank_parameters"])
    alone = held({**gpt(4, 1024, 16)})["rank_parameters"]
    table = 51200 * 1024
    assert float(tied["rank_parameters"] @ [1.0, 2.0, 1.0]) == float(alone) + table


def test_deepseek_v3_by_hand() -> None:
    """On tp = 1, pp = 16, ep = 64: 3 dense layers of the 4 of the first stage."""
    stages = np.array([0.0, 1.0, 15.0])
    plan = {**DEEPSEEK_V3, "pp": 16, "dp": 128, "ep": 64, "stage": stages}
    memory = held(plan)
    np.testing.assert_array_equal(memory["stage_moe_layers"], [1.0, 4.0, 4.0])
    np.testing.assert_array_equal(
        memory["stage_expert_parameters"], np.array([1.0, 4.0, 4.0]) * 4 * 3 * 7168 * 2048
    )
    assert float(memory["edp"]) == 2.0
    attention = (
        7168 * 1536
        + 1536
        + 1536 * 128 * 192
        + 7168 * 576
        + 512
        + 512 * 128 * 256
        + 128 * 128 * 7168
    )
    shared = 7168 * 256 + 256 + 3 * 7168 * 2048
    every = attention + 2 * 7168
    first = 4 * every + 3 * (3 * 7168 * 18432) + shared + 129280 * 7168
    middle = 4 * (every + shared)
    expected = [first, middle, middle + 129280 * 7168 + 7168]
    np.testing.assert_array_equal(memory["stage_parameters"], expected)


@settings(max_examples=50, deadline=None)
@given(
    layers=st.integers(1, 12), dense=st.integers(0, 12), pp=st.integers(1, 4), v=st.integers(1, 3)
)
def test_leading_dense_layers_are_where_they_are(layers: int, dense: int, pp: int, v: int) -> None:
    """Against a list of layers, dealt to stages chunk by chunk."""
    layers, dense = layers * pp * v, min(dense, layers * pp * v)
    chunk = layers // (pp * v)
    owners = [(layer // chunk) % pp for layer in range(layers)]
    expected = [sum(owner == i for owner in owners[:dense]) for i in range(pp)]
    plan = {
        **DEEPSEEK_V3,
        "layers": layers,
        "dense_layers": dense,
        "pp": pp,
        "virtual_pipeline_size": v,
        "stage": np.arange(pp),
    }
    memory = held(plan)
    np.testing.assert_allclose(memory["stage_leading_layers"], expected, atol=1e-9)
    np.testing.assert_allclose(memory["stage_moe_layers"], layers / pp - np.array(expected))


@settings(max_examples=50, deadline=None)
@given(
    chunk=st.integers(1, 5),
    dense=st.integers(0, 12),
    pp=st.integers(2, 4),
    v=st.integers(1, 3),
    embedding=st.integers(0, 1),
    loss=st.integers(0, 1),
)
def test_leading_dense_layers_beside_ends_that_count_as_layers(
    chunk: int, dense: int, pp: int, v: int, embedding: int, loss: int
) -> None:
    """Against a list of places, dealt to stages chunk by chunk, the ends' places among them."""
    layers = chunk * pp * v - embedding - loss
    dense = min(dense, layers)
    places = ["embedding"] * embedding + ["dense"] * dense
    places += ["experts"] * (layers - dense) + ["loss"] * loss
    stages = [places[i * chunk : (i + 1) * chunk] for i in range(pp * v)]
    expected = [
        [sum(stage.count(kind) for stage in stages[i::pp]) for i in range(pp)]
        for kind in ("dense", "experts")
    ]
    plan = {
        **DEEPSEEK_V3,
        "layers": layers,
        "dense_layers": dense,
        "pp": pp,
        "virtual_pipeline_size": v,
        "embedding_layer_weight": embedding,
        "head_layer_weight": loss,
        "stage": np.arange(pp),
    }
    memory = held(plan)
    np.testing.assert_array_equal(memory["stage_leading_layers"], expected[0])
    np.testing.assert_array_equal(memory["stage_moe_layers"], expected[1])


def test_dualpipe_s_ranks_hold_the_stage_and_its_opposite() -> None:
    plan = {**DEEPSEEK_V3, "layers": 64, "pp": 4, "stage": np.arange(4.0)}
    one = held(plan)
    two = held({**plan, "weight_copies": 2})
    rank_parameters = one["rank_parameters"] + one["rank_parameters"][::-1]
    np.testing.assert_allclose(two["rank_parameters"], rank_parameters, rtol=1e-12)


def test_ends_may_count_as_layers() -> None:
    """Llama-3.1 405B has 126 layers on 16 stages: the first and the last have one less."""
    plan = dict(
        layers=126, pp=8, virtual_pipeline_size=8, stage=[0.0, 1.0, 7.0], embedding_layer_weight=0
    )
    np.testing.assert_array_equal(held(plan)["stage_layers"], 16.0)
    ends = {"embedding_layer_weight": 1, "head_layer_weight": 1}
    np.testing.assert_array_equal(held({**plan, **ends})["stage_layers"], [15.0, 16.0, 15.0])


# Activations by hand.


def test_activations_of_llama_3_70b_by_hand() -> None:
    """A fused kernel, tp = 8 with sequence parallelism, two context-parallel ranks."""
    memory = held({**LLAMA3_70B, "tp": 8, "cp": 2, "sequence_parallel": 1})
    assert float(memory["rank_tokens"]) == 4096.0
    expected = (8 * 8192 + 4 * 64 * 128 + 4 * 8 * 128 + 6 * 28672 + 4 * 64) / 8
    assert float(memory["dense_layer_activations"]) == expected


def test_activations_of_eight_bit_products() -> None:
    plan = {**LLAMA3_70B, **RECIPES["fp8_adam"].given()}
    expected = 6 * 8192 + (2 + 1) * 64 * 128 + 4 * 8 * 128 + 5 * 28672 + 4 * 64
    assert float(held(plan)["dense_layer_activations"]) == expected


def test_activations_of_deepseek_v3_by_hand() -> None:
    plan = {**DEEPSEEK_V3, "tp": 2, "sequence_parallel": 1, "expert_load_imbalance": 1.5}
    memory = held({**plan, "weighted_outputs": 1})
    attention = 8 * 7168 / 2 + (4 * (1536 + 512) + 2 * 64) / 2 + 4 * 128 * (192 + 128) / 2
    experts = 1.5 * 8 / 2 * (4 * 7168 + 2 * 3 * 2048)
    shared = 2 * 3 * 2048 / 2
    expected = attention + 4 * 128 / 2 + experts + shared + 8 * 256 / 2
    assert float(memory["moe_layer_activations"]) == expected
    # Megatron-LM multiplies inside the experts by now, and keeps no outputs.
    assert float(held(plan)["moe_layer_activations"]) == expected - 1.5 * 8 / 2 * 2 * 7168


def test_logits_are_on_the_last_stage_alone() -> None:
    plan = {**LLAMA3_70B, "tp": 8, "pp": 4, "stage": [0.0, 1.0, 3.0]}
    logits = held(plan)["logits_memory"]
    np.testing.assert_array_equal(logits, [0.0, 0.0, 8192 * 129024 / 8 * 8])
    # In chunks gradients of the hidden states wait for all of them, in single precision.
    chunked = logits / 4 + np.array([0.0, 0.0, 4 * 8192 * 8192])
    np.testing.assert_array_equal(held({**plan, "loss_chunks": 4})["logits_memory"], chunked)


def test_gathered_weights_of_fully_sharded_layers_by_hand() -> None:
    plan = {**LLAMA3_70B, "dp": 64, "zero_stage": 3, "gathered_layers": 3}
    layer = 8192 * 64 * 128 * 2 + 2 * 8192 * 8 * 128 + 3 * 8192 * 28672 + 2 * 8192
    ends = 2 * 128256 * 8192 + 8192
    assert float(held(plan)["zero3_gathered_memory"]) == 2 * (3 * layer + ends)
    # DeepSpeed holds so many parameters live, but the layer at work whole.
    for most, bound in ((1e9, 1e9), (2e9, 2e9), (1e8, layer), (1e12, 3 * layer)):
        limited = float(held({**plan, "max_live_parameters": most})["zero3_gathered_memory"])
        assert limited == pytest.approx(2 * (bound + ends))
    assert float(held({**plan, "dp": 1})["zero3_gathered_memory"]) == 0.0
    assert float(held({**plan, "zero_stage": 2})["zero3_gathered_memory"]) == 0.0
    waiting = {**plan, **RECIPES["fsdp_adam"].given(), "unsharded_gradient_fraction": 1}
    parameters = float(held(plan)["rank_parameters"])
    several = held({**waiting, "num_micro_batches": 2})
    assert float(several["unsharded_gradient_memory"]) == 4 * parameters
    # Of one micro-batch, which is the last, none wait.
    alone = held({**waiting, "num_micro_batches": 1})
    assert float(alone["unsharded_gradient_memory"]) == 0.0
    # Those give way to their shards: never are both whole, unless shards are allocated before.
    steps = {**waiting, "dp": 2, "num_micro_batches": 4}
    for before, shards in ((0, 0.0), (1, 0.5)):
        left = held({**steps, "preallocated_gradients": before})["accumulated_gradient_memory"]
        assert float(left) == (1 + shards) * 4 * parameters
    # Weights that stay gathered are all of a stage's, and gradients reduced once a step wait.
    for kept in ({"keep_gathered": 1}, {"gather_every_micro_batch": 0}):
        assert float(held({**plan, **kept})["zero3_gathered_memory"]) == 2 * (80 * layer + ends)
    piped = {**plan, **RECIPES["fsdp_adam"].given(), "pp": 4, "unsharded_in_pipeline": 1}
    first = 20 * layer + 128256 * 8192
    stage = {
        name: held(piped)[name] for name in ("zero3_gathered_memory", "unsharded_gradient_memory")
    }
    assert float(np.max(stage["unsharded_gradient_memory"])) == 4 * first
    assert float(np.max(stage["zero3_gathered_memory"])) == 2 * first


def test_what_every_second_product_leaves_by_hand() -> None:
    """Queries, values and context, the MLP's first product and its last; inputs of layers."""
    memory = held({**LLAMA3_70B}, recompute="per_op")
    scores = 4 * 64
    expected = 2 * 8192 + 2 * (64 + 64 + 8) * 128 + scores + 2 * 28672 + 2 * 8192
    assert float(memory["kept_dense_layer_activations"]) == expected
    split = held({**LLAMA3_70B, "tp": 8, "sequence_parallel": 1}, recompute="per_op")
    ratio = (2 * 8192 + 2 * (64 + 64 + 8) * 128 + scores + 2 * 28672 + 2 * 2 * 8192) / 8
    assert float(split["kept_dense_layer_activations"]) == ratio + 2 * 8192
    plain = held({**LLAMA3_70B, "gated_mlp": 0}, recompute="per_op")
    assert float(plain["kept_dense_layer_activations"]) == expected - 2 * 8192


def test_full_recomputation_keeps_as_much_wherever_it_stops() -> None:
    for shapes in (LLAMA3_70B, DEEPSEEK_V3):
        left, right = (held(shapes, recompute=mode) for mode in ("full", "full_early_stop"))
        for name in ("saved_activation_memory", "recompute_activation_memory"):
            assert float(left[name]) == float(right[name])


def test_placeholders_are_one_of_each_weight_of_a_layer() -> None:
    plan = {**DEEPSEEK_V3, "placeholder_bytes": 2, "ep": 64, "dp": 64}
    memory = held(plan)
    layer = float(memory["layer_rank_parameters"])
    assert float(memory["placeholder_memory"]) == 2 * (layer + 3 * 7168 * 2048)
    assert float(held({**LLAMA3_70B})["placeholder_memory"]) == 0.0
    whole = held({**LLAMA3_70B, "placeholder_bytes": 2, "tp": 8})
    weights = 8192 * 2 * 64 * 128 / 8 + 2 * 8192 * 128 + 3 * 8192 * 28672 / 8 + 2 * 8192
    assert float(whole["placeholder_memory"]) == 2 * weights
    # Sharded gradients are handed back themselves.
    for stage, many in ((1, 1), (2, 0), (3, 0)):
        placeholder_memory = held({**plan, "zero_stage": stage})["placeholder_memory"]
        assert float(placeholder_memory) == many * float(memory["placeholder_memory"])


def test_placeholders_of_adapters_are_one_of_each_of_theirs() -> None:
    """Llama 3 70B: inputs and outputs of queries, keys and values, and of the projection."""
    plan = {**LLAMA3_70B, "placeholder_bytes": 2, "tp": 4, "lora_rank": 16, "lora_mlp": 0}
    trains = {"schedule": "one_f_one_b"}
    attention = 16 * (8192 + (64 + 16) * 128 + 64 * 128 + 8192) / 4
    mlp = 16 * (8192 + 2 * 28672 + 28672 + 8192) / 4
    for more, weights in (({}, attention), ({"lora_mlp": 1, "pp": 8}, attention + mlp)):
        memory = held({**plan, **more}, **trains)["placeholder_memory"]
        assert float(memory) == 2 * weights
    assert float(held({**plan, "zero_stage": 3}, **trains)["placeholder_memory"]) == 0.0
    forward = held({**plan, **MIXED}, schedule="forward_only")
    assert float(forward["placeholder_memory"]) == 0.0


def test_buffers_of_experts_exchange_by_hand() -> None:
    """DeepSeek-V3, 64 ranks of 4096 tokens: room for all of them; a node's experts in singles."""
    plan = {
        **DEEPSEEK_V3,
        "ep": 64,
        "dp": 64,
        "sequence_length": 4096,
        "tp": 1,
        "etp": 1,
        "gpus_per_node": 64,
        "in_flight_micro_batches": 1,
        **MIXED,
    }
    labels = {"dispatcher": "deduplicated"}
    own = stage_memory(plan, labels)
    tokens = 64 * 4096 * (2 * 7168 + 4 * 256 + 4 * 56)
    whole = stage_memory(plan)
    more = own.parts["nccl_buffer_memory"] - whole.parts["nccl_buffer_memory"]
    np.testing.assert_array_equal(more, tokens)
    np.testing.assert_array_equal(own.parts["reserved_memory"], whole.parts["reserved_memory"])
    # Nodes of 8 have an eighth of the experts; a node alone has no buffers.
    eight = stage_memory({**plan, "gpus_per_node": 8}, labels).parts["nccl_buffer_memory"]
    saved = 64 * 4096 * 4 * (256 - 32)
    np.testing.assert_allclose(own.parts["nccl_buffer_memory"] - eight, saved)
    alone = {**plan, "ep": 1}
    np.testing.assert_array_equal(
        stage_memory(alone, labels).peak_memory, stage_memory(alone).peak_memory
    )


def test_sequences_are_whole_where_software_gathers_them() -> None:
    """Inputs of two blocks, 7/8 beside a rank's part: of all layers, or of one recomputed one."""
    plan = {**LLAMA3_70B, "tp": 8, "sequence_parallel": 1}
    whole = {**plan, "gathered_sequences": 2}
    assert float(held(plan)["gathered_sequence_memory"]) == 0.0
    tokens = float(held(plan)["rank_tokens"])
    both = 2 * tokens * 8192 * (7 / 8) * 2
    for recompute, layers in (("none", 80), ("full", 1), ("per_op", 1)):
        gathered, shards = (held(of, recompute=recompute) for of in (whole, plan))
        assert float(gathered["gathered_sequence_memory"]) == both
        more = float(gathered["activation_memory"]) - float(shards["activation_memory"])
        # As many gradients, of one layer at a time.
        assert more == pytest.approx((layers + 1) * both)
    # Without a backward one layer has them, and no gradients.
    forward, alone = (held({**of, "has_backward": 0}) for of in (whole, plan))
    more = float(forward["activation_memory"]) - float(alone["activation_memory"])
    assert more == pytest.approx(both)
    for other in ({"tp": 1}, {"sequence_parallel": 0}):
        alone = held({**whole, **other})
        assert float(alone["gathered_sequence_memory"]) == 0.0
        assert float(alone["gathered_input_activations"]) == 0.0


def test_keys_gathered_by_context_parallel_ranks_take_room() -> None:
    """8,192 tokens of 8 heads of 128, keys and values, a fourth of them a rank's own."""
    plan = {**LLAMA3_70B, "cp": 4}
    others = 2 * 2 * 8192 * 8 * 128 * 3 / 4

    def part(name: str, more: dict[str, float], **labels: str) -> float:
        return float(held({**plan, **more}, **labels)[name])

    gathering = {"context_parallel": "all_gather"}
    live = "gathered_sequence_memory"
    assert part(live, {}, context_parallel="ring") == 0.0
    # With as many gradients in the backward; without one, the keys and values alone.
    assert part(live, {}, **gathering) == 2 * others
    assert part(live, {"has_backward": 0}, **gathering) == others
    assert part(live, {"cp": 1}, **gathering) == 0.0
    # Whose gradients go round a ring, accumulated, sent and received in single precision.
    ring = {"ring_key_gradients": 1}
    assert part(live, ring, **gathering) == others + 3 * others / 3 * (4 / 2)
    assert part(live, {**ring, "has_backward": 0}, **gathering) == others
    assert part(live, {**ring, "cp": 1}, **gathering) == 0.0
    # Kept for the backward, all layers have them: unless attention is computed again.
    saved = "micro_batch_activation_memory"
    again = {"recompute": "selective"}
    for labels, layers in ((gathering, 80), ({**gathering, **again}, 0)):
        kept = part(saved, {"kept_keys": 1}, **labels) - part(saved, {"kept_keys": 0}, **labels)
        assert kept == layers * others
