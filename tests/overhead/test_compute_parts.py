"""Parts of a layer's time: GEMMs, attention, element-wise work, the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from overhead import REGISTRY
from overhead.evaluation import derive
from tests.overhead.step_cases import BARE, DEEPSEEK, GPT, LLAMA, MIXTRAL, MODELS, evaluation, value
from tests.tables import examples, keyed

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
WAYS = ("forward", "backward")
PRODUCT = keyed(
    "matmul_min_time=5e-6 matmul_time_per_k=1e-9 matmul_efficiency=0.5 "
    "peak_measured_matmul_flops=1e14 matmul_input_bytes=1 activation_bytes=2 memory_efficiency=0.5 "
    "memory_bandwidth=1e12 grouped_exposed_fraction=1"
)


def product(rows: ArrayLike, columns: ArrayLike, depth: ArrayLike, **more: ArrayLike) -> Any:
    sizes = {"matmul_m": rows, "matmul_n": columns, "matmul_k": depth}
    taken = {**PRODUCT, **sizes, **more}
    name = "grouped_matmul_time" if "matmul_groups" in more else "matmul_time"
    kernel = REGISTRY[name]
    return kernel.kernel(*(np.asarray(taken[each], dtype=float) for each in kernel.inputs))


# GEMMs.


def test_a_product_by_hand() -> None:
    """Of columns and depth tiles of 128 are computed whole; what is moved has no padding."""
    operations, inputs, result = 2 * 100 * 256 * 384, 100 * 300 + 300 * 200, 100 * 200
    expected = 5e-6 + 300e-9 + operations / 5e13 + (inputs + 2 * result) / 5e11
    assert product(100, 200, 300) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("width", "tile"), [(2, 64), (1, 128), (33 / 32, 128), (0.5625, 256)])
def test_the_last_tile_of_a_product_is_computed_whole(width: float, tile: int) -> None:
    """GPT-OSS's 2880 of 128 outputs a tile, and of 128 bytes, its scales apart, to the sum."""
    bare = {"matmul_min_time": 0, "matmul_time_per_k": 0, "memory_bandwidth": 1e30}
    bare["matmul_input_bytes"] = width
    ratio = product(256, [2560, 2880, 2944, 3072], 4096, **bare) * 5e13 / (2 * 256 * 4096)
    assert ratio == pytest.approx(np.array([2560, 2944, 2944, 3072]))
    depth = product(256, 4096, [2560, 2880, 3072], **bare) * 5e13 / (2 * 256 * 4096)
    assert depth == pytest.approx(np.array([2560, tile * -(-2880 // tile), 3072]))
    # Less than a tile has smaller ones; means of several products, no whole numbers, have none.
    assert product(256, [8, 300.5], 4096, **bare) * 5e13 / (2 * 256 * 4096) == pytest.approx(
        np.array([8, 300.5])
    )
    sizes = np.arange(1, 700)
    assert np.all(np.diff(product(256, sizes, 4096, **bare)) >= 0)


def test_a_product_of_nothing_takes_no_time() -> None:
    assert not np.any(product([0, 5, 5], [5, 0, 5], [5, 5, 0]))
    assert product(0, 5, 5, matmul_groups=4) == product(5, 5, 5, matmul_groups=0) == 0


def test_a_group_of_products_has_one_floor() -> None:
    one = product(100, 200, 300)
    assert product(100, 200, 300, matmul_groups=1) == pytest.approx(one, rel=1e-12)
    start = 5e-6 + 300e-9
    grouped = product(100, 200, 300, matmul_groups=8)
    assert grouped == pytest.approx(start + 8 * (one - start), rel=1e-12)
    moved = (100 * 300 + 300 * 200 + 2 * 100 * 200) / 5e11  # Shorter than the time of operations
    hidden = product(100, 200, 300, matmul_groups=8, grouped_exposed_fraction=0.25)
    assert hidden == pytest.approx(grouped - 8 * 0.75 * moved, rel=1e-12)


@pytest.mark.parametrize(
    ("fused", "gradient", "num_micro_batches", "stage", "moved"),
    [
        (1, 2, 8, 1, 4),  # reads what there is, writes the sum
        (1, 4, 1, 1, 8),
        (0, 2, 1, 1, 2),  # nothing to add to: written once
        (0, 2, 4, 1, 2 + 0.75 * (2 + 2 + 2)),  # three of four are added by a kernel of its own
        (0, 4, 4, 0, 2 + 0.75 * (2 + 4 + 4)),
        (1, 4, 8, 2, 2),  # reduced in each backward
        (0, 4, 8, 3, 2),
    ],
)
def test_a_weight_s_gradient_is_added_up(
    fused: int, gradient: int, num_micro_batches: int, stage: int, moved: float
) -> None:
    plan = {
        "gradient_accumulation_fusion": fused,
        "gradient_bytes": gradient,
        "dp": 2,
        "zero_stage": stage,
        "micro_batch_size": 1,
        "global_batch_size": 2 * num_micro_batches,
    }
    assert value({**GPT, **BARE, **plan}, "weight_gradient_bytes") == pytest.approx(moved)


def test_adding_up_takes_the_memory_s_time() -> None:
    """A step with gradients in single precision takes longer by what those move more."""
    plan = {
        **GPT,
        **BARE,
        "gradient_accumulation_fusion": 1,
        "micro_batch_size": 1,
        "global_batch_size": 4,
    }
    plan |= {"memory_bandwidth": 1e12, "memory_efficiency": 0.5}
    name = "dense_layer_weight_gradient_time"
    more = value({**plan, "gradient_bytes": 4}, name) - value({**plan, "gradient_bytes": 2}, name)
    weights = sum(
        columns * depth
        for columns, depth in (
            (value(plan, "qkv_width"), GPT["hidden_size"]),
            (GPT["hidden_size"], value(plan, "attention_width")),
            (value(plan, "mlp_up_width"), GPT["hidden_size"]),
            (GPT["hidden_size"], value(plan, "mlp_width")),
        )
    )
    assert more == pytest.approx(weights * 4 / 5e11)


@given(sizes=st.tuples(*[st.integers(1, 10**5)] * 3), more=st.integers(2, 9))
def test_a_product_never_beats_its_roofline(sizes: tuple[int, int, int], more: int) -> None:
    rows, columns, depth = sizes
    time = product(rows, columns, depth)
    assert time >= 2 * rows * columns * depth / 5e13
    assert time >= (depth * (rows + columns) + 2 * rows * columns) / 5e11
    assert product(rows * more, columns, depth) >= time
    assert product(rows, columns, depth * more) >= time


@every_model
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_products_have_the_model_s_operations(model: Mapping[str, float], tp: int) -> None:
    """Where operations alone take time, layers take the transformer's FLOPs at the best rate.

    Tokens are whole tiles, also those of one expert.
    """
    plan = {"tp": tp, "micro_batch_size": 4, "sequence_parallel": 1, "ep": 2 if tp > 1 else 1}
    values = evaluation({**model, **BARE, **plan})
    tokens = 4 * model["sequence_length"]
    weights = float(derive("weight_flops_per_token", model)) * tokens
    dense = float(derive("dense_mlp_layers", model))
    experts = float(derive("moe_layers", model))
    for part, times in (
        ("matmul_forward", 1),
        ("input_gradient", 1),
        ("weight_gradient", 1),
        ("matmul", 3),
    ):
        layers = (
            dense * values[f"dense_layer_{part}_time"] + experts * values[f"moe_layer_{part}_time"]
        )
        # Every rank has what all project down to latent vectors.
        latent = model["kv_lora_rank"] + model["qk_rope_head_size"] * (model["kv_lora_rank"] > 0)
        down = model["hidden_size"] * (model["q_lora_rank"] + latent)
        again = 2 * tokens * float(down) * (dense + experts) * (tp - 1)
        assert float(layers) * 1e15 * tp == pytest.approx(times * (weights + again), rel=1e-9)
    logits = float(derive("logits_flops_per_token", model)) * tokens
    width = float(values["vocabulary_width"])
    logits *= 128 * np.ceil(width / 128) / width
    assert float(values["logits_forward_time"]) * 1e15 * tp == pytest.approx(logits, rel=1e-9)


def test_more_ranks_than_keys_have_copies_of_them() -> None:
    """With 8 heads of keys and values, of 16 ranks each has one whole head."""
    plan = {**LLAMA, "heads": 64, "head_size": 64, "kv_heads": 8}
    assert value({**plan, "tp": 16}, "qkv_width") == (64 / 16 + 2) * 64
    assert value({**plan, "tp": 4}, "qkv_width") == (64 / 4 + 2 * 8 / 4) * 64


def test_experts_share_what_is_routed() -> None:
    plan = {**DEEPSEEK, "tp": 2, "ep": 32, "micro_batch_size": 2, "expert_load_imbalance": 1.5}
    values = evaluation(plan)
    assert float(values["local_experts"]) == 8
    # Each rank has its tokens' copies, half of the tokens each; so many reach an expert.
    assert float(values["expert_tokens"]) == 1.5 * 8 * 8192 / 2 / 8
    split = evaluation({**plan, "etp": 2})
    assert float(split["expert_tokens"]) == 2 * float(values["expert_tokens"])
    assert float(split["expert_width"]) == 1024


def test_a_dense_model_has_no_expert_products() -> None:
    values = evaluation(LLAMA)
    for name in ("router", "shared_up", "shared_down", "expert_up", "expert_down"):
        assert float(values[f"{name}_forward_time"]) == 0.0


def test_fp8_is_faster_but_for_the_output_layer_and_the_router() -> None:
    plan = {**MIXTRAL, **BARE}
    fast = {**plan, "peak_measured_matmul_flops": 2e15, "peak_flops": 2e15}
    one, other_evaluation = evaluation(plan), evaluation(fast)
    for name in ("qkv", "attention_output", "expert_up", "expert_down"):
        quantity = f"{name}_weight_gradient_time"
        assert float(one[quantity]) == pytest.approx(2 * float(other_evaluation[quantity]))
    for quantity in ("logits_forward_time", "router_forward_time", "attention_forward_time"):
        assert float(one[quantity]) == float(other_evaluation[quantity])


# Attention.


@every_model
@pytest.mark.parametrize("mask", ["causal", "full"])
@pytest.mark.parametrize("window", [0, 512])
def test_attention_has_the_model_s_operations(
    model: Mapping[str, float], mask: str, window: int
) -> None:
    plan = {
        **model,
        **BARE,
        "sliding_window": window,
        "tp": 4,
        "micro_batch_size": 2,
        "cp": 2,
        "attention_tile": 1,
    }
    prefix = "causal_" if mask == "causal" else ""
    flops = float(derive(f"{prefix}attention_flops_per_token", {**model, "sliding_window": window}))
    tokens = model["sequence_length"]
    time = value(plan, "attention_forward_time", mask=mask) * model["layers"]
    # Heads of 96 take as long as of 128.
    size = model["hidden_size"] / model["heads"]
    padded = 4 / 3 if size == 96 and not model.get("kv_lora_rank") else 1.0
    assert time * 1e15 * 4 == pytest.approx(padded * flops * tokens, rel=1e-9)


def test_a_fused_backward_has_five_products_for_two() -> None:
    values = evaluation({**LLAMA, "attention_backward_efficiency": 0.8})
    ratio = float(values["attention_backward_time"]) / float(values["attention_forward_time"])
    assert ratio == pytest.approx(2.5 / 0.8)
    latent = evaluation({**DEEPSEEK, "attention_backward_efficiency": 1})
    ratio = float(latent["attention_backward_time"]) / float(latent["attention_forward_time"])
    assert ratio == pytest.approx((3 * 192 + 2 * 128) / (192 + 128))


def test_attention_is_slower_on_short_sequences() -> None:
    long = {**LLAMA, **BARE, "sequence_length": 8192}
    rate = value(long, "attention_forward_time")
    assert value({**long, "attention_half_length": 512}, "attention_forward_time") == (
        pytest.approx(rate * (1 + 512 / 8192))
    )
    ring = {**long, "attention_half_length": 512, "cp": 8}
    shared = value({**ring, "attention_half_length": 0}, "attention_forward_time")
    blocks = value(ring, "attention_forward_time", context_parallel="ring")
    whole = value(ring, "attention_forward_time", context_parallel="all_gather")
    assert blocks == pytest.approx(shared * (1 + 512 / 1024))
    assert whole == pytest.approx(shared * (1 + 512 / 8192))


def test_an_unfused_attention_computes_all_scores_and_moves_them() -> None:
    plan = {**GPT, **BARE, "memory_bandwidth": 1e12, "memory_efficiency": 0.5, "tp": 8}
    scores = 2048 * 2048 * 64 / 8
    flops = scores * 2 * (2 * 96)
    values = evaluation(plan, attention_kernel="unfused")
    forward, backward = flops / 1e15, 2 * flops / 1e15
    assert float(values["attention_forward_time"]) == pytest.approx(forward + scores * 13 / 5e11)
    assert float(values["attention_backward_time"]) == pytest.approx(backward + scores * 19 / 5e11)
    plain = evaluation({**plan, "dropout": 0}, attention_kernel="unfused")
    assert float(plain["attention_forward_time"]) == pytest.approx(forward + scores * 8 / 5e11)


# Element-wise work.


def test_element_wise_work_by_hand() -> None:
    """Of a GPT with dropout: 22 bytes between blocks, 4 of 3h for heads, 4 inside the MLP."""
    plan = {**GPT, "tp": 8, "memory_bandwidth": 1e12, "memory_efficiency": 1}
    tokens, hidden = 2048, 6144
    heads, inner = 4 * 3 * hidden / 8, 4 * 4 * hidden / 8
    whole = tokens * (22 * hidden + heads + inner) / 1e12
    split = tokens * (22 * hidden / 8 + heads + inner) / 1e12
    name = "dense_layer_elementwise_forward_time"
    assert value(plan, name) == pytest.approx(whole)
    assert value({**plan, "sequence_parallel": 1}, name) == pytest.approx(split)
    assert value({**plan, "elementwise_factor": 4}, name) == pytest.approx(4 * whole)
    backward = value(plan, "dense_layer_elementwise_backward_time")
    assert backward == pytest.approx(2 * whole)


def test_casts_are_for_narrow_products_alone() -> None:
    plan = {**LLAMA, "memory_bandwidth": 1e12, "memory_efficiency": 1}
    names = [f"dense_layer_elementwise_{way}_time" for way in ("forward", "backward")]
    plain = [value(plan, name) for name in names]
    casts = [value({**plan, "matmul_input_bytes": 1}, name) for name in names]
    inputs = 2 * 4096 + 4096 + 14336
    gradients = 2 * 4096 + (4096 + 2 * 1024) + 2 * 14336
    assert casts[0] - plain[0] == pytest.approx(3 * 4096 * inputs / 1e12)
    assert casts[1] - plain[1] == pytest.approx(3 * 4096 * gradients / 1e12)
    wide = [value({**plan, "matmul_input_bytes": 2}, name) for name in names]
    assert wide == plain


def test_experts_move_what_is_routed() -> None:
    plan = {**MIXTRAL, "memory_bandwidth": 1e12, "memory_efficiency": 1, "ep": 8}
    half = value(plan, "attention_elementwise_bytes")
    routed = 2 * 4096
    expected = half + 6 * routed * 14336 + 16 * routed * 4096
    assert value(plan, "moe_elementwise_bytes") == pytest.approx(expected)
    busy = value({**plan, "expert_load_imbalance": 2}, "moe_elementwise_bytes")
    assert busy - half == pytest.approx(2 * (expected - half))


# What a router's kernels read and write of each expert's score: in single precision, and in bytes
# that say which are chosen (TransformerEngine, pytorch/router.py and csrc/extensions/router.cpp).
ROUTER = examples(__file__, "router")


def test_a_router_moves_what_its_kernels_read_and_write() -> None:
    plan = DEEPSEEK | keyed(
        "memory_bandwidth=1e12 memory_efficiency=1 tp=4 sequence_parallel=1 ep=8"
    )
    tokens = value(plan, "router_tokens")
    for way, kernels in ROUTER.items():
        singles, flags = (sum(kernel) for kernel in zip(*kernels.values(), strict=True))
        moved = value(plan, f"routing_{way}_bytes")
        assert moved == tokens * 256 * (4 * singles + flags)
        name = f"moe_layer_elementwise_{way}_time"
        others = (2 if way == "backward" else 1) * value(plan, "moe_elementwise_bytes")
        assert value(plan, name) == pytest.approx((others + moved) / 1e12)
        eager = value({**plan, "elementwise_factor": 4}, name)
        assert eager == pytest.approx(4 * (others + moved) / 1e12)
    assert value({**plan, "experts": 0, "experts_per_token": 0}, "routing_forward_bytes") == 0


# Elements that TEGroupedMLP._apply_bias reads and writes, in single precision and in 16 bits.
BIASED = examples(__file__, "biased")


def test_a_bias_that_follows_the_last_product_is_moved_by_kernels_of_its_own() -> None:
    plan = {**MIXTRAL, "linear_bias": 1, "unfused_expert_bias": 1}
    plan |= {"memory_bandwidth": 1e12, "memory_efficiency": 1, "elementwise_factor": 1}
    sizes = ("local_experts", "expert_tokens", "expert_hidden_size")
    elements = math.prod(value(plan, name) for name in sizes)
    for way, kernels in BIASED.items():
        singles, others = (sum(kernel) for kernel in zip(*kernels.values(), strict=True))
        moved = value(plan, f"expert_bias_{way}_bytes")
        assert moved == pytest.approx(elements * (4 * singles + 2 * others))
        time, fused = f"moe_layer_elementwise_{way}_time", {**plan, "unfused_expert_bias": 0}
        assert value(plan, time) - value(fused, time) == pytest.approx(moved / 1e12)
        more = value(plan, f"moe_{way}_launches") - value(fused, f"moe_{way}_launches")
        ratio = more / value(plan, "local_experts")
        assert ratio == pytest.approx({"forward": 2, "backward": 5}[way])
        assert value({**plan, "linear_bias": 0}, f"expert_bias_{way}_bytes") == 0
        assert value({**plan, "linear_bias": 0, "expert_bias": 1}, f"expert_bias_{way}_bytes")


def test_parts_of_a_ring_are_added_up() -> None:
    """By hand: 3 blocks after the first, 2 + 8 bytes an element; a causal mask halves half."""
    plan = {**LLAMA, "cp": 4, "elementwise_factor": 4, "memory_bandwidth": 1e12}
    plan = {**plan, "memory_efficiency": 1}
    tokens = value(plan, "rank_tokens")
    names = ("merged_bytes", "attention_elementwise_bytes", "merge_forward_time")
    around = {"context_parallel": "ring"}
    causal = [value(plan, name, **around, mask="causal") for name in names]
    plain = [value(plan, name, context_parallel="all_to_all", mask="causal") for name in names]
    merged = 3 * 0.75 * 10 * tokens * 4096
    assert causal[0] == pytest.approx(merged)
    assert causal[1] - plain[1] == pytest.approx(merged)
    assert causal[2:] == pytest.approx([4 * merged / 1e12])
    assert plain[0] == plain[2] == 0
    assert value(plan, "merged_bytes", **around, mask="full") == pytest.approx(merged / 0.75)
    assert value({**plan, "cp": 1}, "merged_bytes", **around) == 0


def test_experts_products_may_run_at_a_rate_of_their_own() -> None:
    names = ("expert_up_forward_time", "qkv_forward_time")
    usual = [value(MIXTRAL, name) for name in names]
    half = [value({**MIXTRAL, "grouped_matmul_rate_ratio": 0.5}, name) for name in names]
    assert half[1] == usual[1]
    assert 1.5 * usual[0] < half[0] < 2.0 * usual[0]


@every_model
def test_layers_left_in_16_bits_take_their_own_time(model: Mapping[str, float]) -> None:
    narrow = model | keyed("matmul_input_bytes=1 peak_measured_matmul_flops=2e15 peak_flops=2e15")
    layers, kind = model["layers"], "moe" if model["experts"] else "dense"
    narrow["output_matmul_flops"] = 7e14
    wide = {**narrow, "matmul_input_bytes": 2, "peak_measured_matmul_flops": 7e14}
    parts = (
        f"{kind}_layer_matmul_time",
        f"{kind}_layer_elementwise_time",
        f"{kind}_forward_launches",
        "layer_input_bytes",
    )
    for name in parts:
        own, other = value(narrow, name), value(wide, name)
        some = value({**narrow, "bf16_layers": 0.25 * layers}, name)
        assert some == pytest.approx(0.75 * own + 0.25 * other, rel=1e-12), name
        assert value({**narrow, "bf16_layers": 2.0 * layers}, name) == pytest.approx(other)
        assert value({**narrow, "bf16_layers": 0.0}, name) == own != other


# Recomputation and the host.


@every_model
def test_what_is_computed_again(model: Mapping[str, float]) -> None:
    kind = "moe" if model["experts"] else "dense"
    forward = evaluation(model)
    parts = [
        float(forward[name])
        for name in (
            f"{kind}_layer_matmul_forward_time",
            "attention_forward_time",
            f"{kind}_layer_elementwise_forward_time",
        )
    ]
    again = {
        mode: value(model, f"{kind}_layer_recompute_time", recompute=mode)
        for mode in ("none", "selective", "per_op", "full_early_stop", "full")
    }
    assert again["none"] == 0
    assert again["selective"] == parts[1]
    assert again["full"] == pytest.approx(sum(parts))
    stopped = float(forward["mlp_down_forward_time"]) if kind == "dense" else 0
    assert again["full_early_stop"] == pytest.approx(again["full"] - stopped)
    assert 0 < again["per_op"] < again["full"] - parts[1]


def test_every_second_product_is_computed_again() -> None:
    """Of the 8 billion parameters of Llama 3, keys, the context's product and the gate's."""
    values = evaluation({**LLAMA, **BARE}, recompute="per_op")
    share = float(values["dense_layer_recompute_time"]) / float(
        values["dense_layer_matmul_forward_time"]
    )
    weights = 4096 * (1024 + 4096 + 14336)
    assert share == pytest.approx(weights / (4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)))


@pytest.mark.parametrize(("recompute", "tp", "operations"), examples(__file__, "launches"))
def test_the_host_launches_operations(recompute: str, tp: int, operations: int) -> None:
    values = evaluation({**GPT, "tp": tp, "host_launch_time": 1e-5}, recompute=recompute)
    times = [float(values[f"dense_layer_{way}_host_time"]) for way in WAYS]
    assert sum(times) == pytest.approx(operations * 1e-5)
    assert times[0] == pytest.approx(2e-4 if tp == 1 else 2.2e-4)


@given(gpu=st.floats(0, 1), host=st.floats(0, 1))
def test_host_and_gpu_are_joined_by_a_norm(gpu: float, host: float) -> None:
    kernel = REGISTRY["with_host"].kernel
    ahead = np.asarray(0.0)  # No share of the launches that the GPU waits for
    both = float(kernel(np.asarray(gpu), np.asarray(host), ahead))
    tolerance = 1e-12 + 1e-70
    assert both >= max(gpu, host) * (1 - tolerance) - 1e-70
    assert both <= 2**0.25 * max(gpu, host) * (1 + tolerance)
    assert float(kernel(np.asarray(host), np.asarray(gpu), ahead)) == both


@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_that_waits_for_each_launch_takes_both_times(way: str) -> None:
    plan = {**GPT, "host_launch_time": 1e-5}
    gpu, host, ahead = (
        value(plan, f"dense_layer_{way}_{name}") for name in ("gpu_time", "host_time", "time")
    )
    assert max(gpu, host) < ahead < gpu + host
    waited = value({**plan, "exposed_launch_fraction": 1}, f"dense_layer_{way}_time")
    assert waited == pytest.approx(gpu + host, rel=1e-12)
    half = value({**plan, "exposed_launch_fraction": 0.5}, f"dense_layer_{way}_time")
    assert ahead < half < waited


def test_the_host_is_told_to_rule() -> None:
    plan = {**GPT, "host_launch_time": 1e-3}
    assert value({**plan, "host_launch_time": 0}, "host_bound") == 0
    assert value(plan, "host_bound") == 1
    assert value(plan, "host_bound", schedule="forward_only") == 1
    host = sum(value(plan, f"dense_layer_{way}_host_time") for way in WAYS)
    assert value(plan, "dense_layer_time") == pytest.approx(host, rel=0.05)


@pytest.mark.parametrize(
    ("ep", "narrow", "recompute"), [(1, 2, "none"), (4, 2, "full"), (8, 1, "none"), (8, 1, "full")]
)
def test_every_expert_of_a_rank_is_launched(ep: int, narrow: float, recompute: str) -> None:
    """A router and an exchange beyond a dense layer, and of each expert six products and casts.

    One call has all experts, of which each product, and each narrow tensor, is two thirds of an
    operation, and a cast's kernel a tenth.
    """
    plan = dict(
        MIXTRAL, ep=ep, host_launch_time=1e-5, matmul_input_bytes=narrow, activation_bytes=2
    )
    values = evaluation(plan, recompute=recompute)
    casts, each = 2 * (narrow < 2), (2 / 3 + 0.1 * 2) * (narrow < 2)
    experts = float(plan["experts"]) / ep
    forward = 20 + 28 + 3 * casts + (2 * 2 / 3 + 2 * each) * experts
    backward = 35 + 14 + 3 * casts + (4 * 2 / 3 + 2 * each) * experts
    if recompute == "full":
        backward += forward
    extra = (2, 4 if recompute == "full" else 2) if float(values["tp"]) > 1 else (0, 0)
    for way, launches, more in zip(WAYS, (forward, backward), extra, strict=True):
        time = float(values[f"moe_layer_{way}_host_time"])
        assert time == pytest.approx((launches + more) * 1e-5)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_graphs_of_a_part_of_a_layer_save_no_expert_s_launches(recompute: str) -> None:
    """Of 4 experts a rank; one graph of the whole step has these, too."""
    plan = {**MIXTRAL, "ep": 2, "tp": 1, "host_launch_time": 1e-5, "matmul_input_bytes": 2}
    each = (2, 4 + 2 * (recompute == "full"))
    others = (20 + 28, 35 + 14 + (20 + 28) * (recompute == "full"))
    for share, number in ((1.0, 1.0), (0.36, 1.0), (0.0, 0.0)):
        held = evaluation({**plan, "eager_launch_fraction": share}, recompute=recompute)
        for way, some, rest in zip(WAYS, each, others, strict=True):
            time = float(held[f"moe_layer_{way}_host_time"])
            assert time == pytest.approx((share * rest + number * 4 * some * 2 / 3) * 1e-5)
            dense = float(held[f"dense_layer_{way}_host_time"])
            count = 20 if way == "forward" else 35 + 20 * (recompute == "full")
            assert dense == pytest.approx(share * count * 1e-5)


@pytest.mark.parametrize("casts", [0, 1, 4])
def test_an_expert_s_casts_are_as_many_as_its_scaling_launches(casts: int) -> None:
    plan = {**MIXTRAL, "ep": 2, "tp": 1, "activation_bytes": 2, "matmul_input_bytes": 1}
    held = evaluation({**plan, "expert_casts": casts, "bf16_layers": 8, "layers": 32})
    each = 0.75 * (2 / 3 + 0.1 * casts)
    assert float(held["expert_cast_launches"]) == pytest.approx(each)
    some = 4 * (2 * 2 / 3 + 2 * each)
    assert float(held["moe_forward_launches"]) == pytest.approx(20 + 28 + 3 * 1.5 + some)


def test_casts_of_a_dense_layer_are_launched() -> None:
    plan = {**GPT, "host_launch_time": 1e-5, "activation_bytes": 2}
    wide, narrow = ({**plan, "matmul_input_bytes": width} for width in (2, 1))
    for way in WAYS:
        name = f"dense_layer_{way}_host_time"
        assert value(narrow, name) - value(wide, name) == pytest.approx(8e-5)


def test_many_small_experts_are_bound_by_the_host() -> None:
    """The same work in more experts takes the GPU no less, and the host more for each of them."""
    plan = {**MIXTRAL, "host_launch_time": 3e-5, "micro_batch_size": 1, "ep": 1}
    few, many = (
        {**plan, "experts": count, "expert_ffn_size": 14336 * 8 / count} for count in (8, 64)
    )
    assert value(few, "host_bound") == 0
    assert value(many, "host_bound") == 1
    for way, launches in (("forward", 2), ("backward", 4)):
        name = f"moe_layer_{way}_host_time"
        assert value(many, name) - value(few, name) == pytest.approx(56 * launches * 2e-5)


def test_launches_are_nearly_as_many_as_a_profile_has_kernels() -> None:
    """Of Qwen3 30B-A3B in 16 bit on 16 H100: Megatron-Bridge's skill of overlapped experts.

    It dispatches by HybridEP, and has norms of queries and keys and an update that aren't counted.
    Of 8 experts' products, a kernel each, a call takes two thirds of as many operations.
    """
    plan = {**MIXTRAL, "experts": 128, "ep": 16, "matmul_input_bytes": 2}
    values = evaluation(plan, dispatcher="deduplicated")
    launches = sum(float(values[f"moe_{way}_launches"]) for way in WAYS) + 8 * 6 / 3
    assert 0.88 < launches * 48 * 64 / 463_348 < 1.0


def test_exchanges_that_send_a_token_once_launch_less() -> None:
    plain, once = (evaluation(MIXTRAL, dispatcher=name) for name in ("all_to_all", "deduplicated"))
    less = [
        float(plain[n]) - float(once[n]) for n in ("moe_forward_launches", "moe_backward_launches")
    ]
    assert less == pytest.approx([8, 3])


@pytest.mark.parametrize(("share", "nodes"), [(1.0, (8, 12)), (0.36, (8, 12)), (0.0, (0, 0))])
def test_overlapped_exchanges_split_a_layer_into_nodes(
    share: float, nodes: tuple[float, float]
) -> None:
    """These are the host's beside what graphs of a part of a layer have; whole graphs have them."""
    serial, overlapped = (
        evaluation({**MIXTRAL, "eager_launch_fraction": share, "ep_overlap": part})
        for part in (0, 0.7)
    )
    for way, node in zip(WAYS, nodes, strict=True):
        name = f"moe_{way}_launches"
        assert float(overlapped[name]) - float(serial[name]) == pytest.approx(node)
        dense = f"dense_{way}_launches"
        assert float(overlapped[dense]) == float(serial[dense])
