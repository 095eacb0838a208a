"""What a backward computes again, by label `recompute`.

``selective`` repeats modules, by default scores and values, ``full`` and ``uniform`` the whole
forward, ``block`` that of some layers, and ``per_op`` what lies between the products of which
every second one was kept.  Software that stops early leaves out of ``full`` the last product of a
dense layer, whose result no gradient needs, as ``full_early_stop`` does whatever the software.
Where ``recompute_core_attn`` is 0, whole layers are repeated but for attention's scores and values.
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, formula

EARLY = cited(
    "chen2016", "section 4.1; PyTorch's checkpointing without re-entrance stops at what is needed"
)
PER_OP = cited(
    "torchtitan",
    "torchtitan/models/llama3/infra/parallelize.py, _save_list and _custom_policy",
    assumes=(
        "GEMMs of keys, of the attention output and of the gate are recomputed",
        "scores and values are kept, after a ring merges its parts",
    ),
    when={"recompute": "per_op"},
)


# What is repeated of layers' forwards: of all or some layers as a whole, or of a layer's modules.
ALL = {"recompute": "full|full_early_stop|uniform|block"}
CHOSEN = {"recompute": "selective"}
KEPT_RESULTS = cited(
    "maxtext",
    "src/maxtext/configs/base.yml, remat_policy custom with context on device or host;"
    " the kernel names its sums of exponentials so, too (residual_checkpoint_name)",
)
MODULES = cited("megatron", "megatron/core/transformer/transformer_config.py: recompute_modules")


# Scores and values, whose results may be kept whatever else is repeated.


def _core(attention_forward_time, attention_forward_flops, rank_tokens, mixer_scan_flops, tp):
    """Return the part of attention's time that isn't linear attention's scan."""
    scan = rank_tokens * mixer_scan_flops / tp
    scanned = scan / xp.maximum(xp.maximum(attention_forward_flops, scan), 1.0)
    return (1.0 - scanned) * attention_forward_time


@formula(
    returns="layer_attention_recompute_time",
    assumes=("linear attention is not core attention: its state is kept",),
    when=CHOSEN,
    **MODULES,
)
def core_attention_time(
    recompute_core_attn,
    attention_forward_time,
    attention_forward_flops,
    rank_tokens,
    mixer_scan_flops,
    tp,
):
    """Attention time of recomputed modules: the part of scores and values."""
    core = _core(attention_forward_time, attention_forward_flops, rank_tokens, mixer_scan_flops, tp)
    return recompute_core_attn * core


@formula(
    returns="layer_attention_recompute_time",
    assumes=(
        "the backward pass takes nothing of attention but results and sums of exponentials",
        "a ring merges its parts once more, kept or not",
    ),
    when=ALL,
    **KEPT_RESULTS,
)
def whole_attention_time(
    recomputed_fraction,
    recompute_core_attn,
    attention_forward_time,
    attention_forward_flops,
    rank_tokens,
    mixer_scan_flops,
    tp,
):
    """Attention time of recomputed layers: all, or without scores and values."""
    core = _core(attention_forward_time, attention_forward_flops, rank_tokens, mixer_scan_flops, tp)
    kept = (1.0 - recompute_core_attn) * core
    return recomputed_fraction * (attention_forward_time - kept)


# A layer's modules.


@formula(
    returns="dense_layer_matmul_recompute_time",
    assumes=("projections up from latent vectors take as long as their part of the weights",),
    when=CHOSEN,
    **MODULES,
)
def dense_module_matmul_time(
    recompute_mla_up_proj,
    up_projection_width,
    qkv_width,
    qkv_forward_time,
    recompute_mlp,
    mlp_up_forward_time,
    mlp_down_forward_time,
):
    """GEMM time of the recomputed modules of a dense layer."""
    up = up_projection_width / xp.maximum(qkv_width, 1.0)
    projected = recompute_mla_up_proj * (up * qkv_forward_time)
    return projected + recompute_mlp * (mlp_up_forward_time + mlp_down_forward_time)


@formula(returns="moe_layer_matmul_recompute_time", when=CHOSEN, **MODULES)
def moe_module_matmul_time(
    dense_layer_matmul_recompute_time,
    recompute_mlp,
    mlp_up_forward_time,
    mlp_down_forward_time,
    recompute_moe,
    router_forward_time,
    expert_up_forward_time,
    expert_down_forward_time,
    recompute_shared_experts,
    shared_up_forward_time,
    shared_down_forward_time,
):
    """GEMM time of the recomputed modules of an MoE layer."""
    mlp = recompute_mlp * (mlp_up_forward_time + mlp_down_forward_time)
    routed = router_forward_time + expert_up_forward_time + expert_down_forward_time
    shared = xp.maximum(recompute_moe, recompute_shared_experts)
    half = xp.maximum(dense_layer_matmul_recompute_time - mlp, 0.0)
    both = shared_up_forward_time + shared_down_forward_time
    return half + recompute_moe * routed + shared * both


@formula(
    returns="dense_layer_elementwise_recompute_time",
    assumes=("casts are not recomputed", "attention in a ring merges its parts once more"),
    when=CHOSEN,
    **MODULES,
)
def dense_module_elementwise_time(
    elementwise_factor,
    activation_bytes,
    rank_tokens,
    recompute_layernorm,
    layer_norms,
    hidden_size,
    sequence_shards,
    recompute_mla_up_proj,
    up_projection_width,
    latent_width,
    recompute_mlp,
    gated_mlp,
    mlp_width,
    recompute_core_attn,
    attention_layer_fraction,
    merged_bytes,
    memory_efficiency,
    memory_bandwidth,
):
    """Element-wise time of the recomputed modules of a dense layer."""
    norms = 2.0 * layer_norms * recompute_layernorm * hidden_size / sequence_shards
    rotation = 2.0 * recompute_mla_up_proj * (up_projection_width + latent_width)
    inside = (2.0 + gated_mlp) * recompute_mlp * mlp_width
    merged = recompute_core_attn * attention_layer_fraction * merged_bytes
    moved = activation_bytes * rank_tokens * (norms + rotation + inside) + merged
    return elementwise_factor * moved / (memory_efficiency * memory_bandwidth)


@formula(
    returns="moe_layer_elementwise_recompute_time",
    assumes=("casts are not recomputed",),
    when=CHOSEN,
    **MODULES,
)
def moe_module_elementwise_time(
    dense_layer_elementwise_recompute_time,
    dense_elementwise_bytes,
    moe_elementwise_bytes,
    attention_elementwise_bytes,
    recompute_mlp,
    recompute_moe,
    recompute_moe_act,
    recompute_shared_experts,
    gated_mlp,
    activation_bytes,
    local_experts,
    expert_tokens,
    expert_width,
    rank_tokens,
    shared_width,
    elementwise_factor,
    memory_efficiency,
    memory_bandwidth,
):
    """Element-wise time of the recomputed modules of an MoE layer."""
    rate = memory_efficiency * memory_bandwidth
    mlp = recompute_mlp * (dense_elementwise_bytes - attention_elementwise_bytes)
    inside = recompute_moe_act * local_experts * expert_tokens * expert_width
    inside = inside + recompute_shared_experts * rank_tokens * shared_width
    parts = (2.0 + gated_mlp) * activation_bytes * inside
    whole = moe_elementwise_bytes - attention_elementwise_bytes
    moved = elementwise_factor * (xp.where(recompute_moe > 0.0, whole, parts) - mlp)
    return xp.maximum(dense_layer_elementwise_recompute_time + moved / rate, 0.0)


@formula(
    returns="dense_layer_matmul_recompute_time",
    assumes=("the mean of a chunk's layers", "with early stop the last GEMM is not recomputed"),
    when=ALL,
    **EARLY,
)
def whole_dense_layer_matmul_recompute_time(
    recomputed_fraction, dense_layer_matmul_forward_time, stops_early, mlp_down_forward_time
):
    """Recomputed GEMM time of a dense layer: all GEMMs, or all except the last."""
    last = stops_early * mlp_down_forward_time
    return recomputed_fraction * xp.maximum(dense_layer_matmul_forward_time - last, 0.0)


def _keys(keys_and_values, width, time):
    return keys_and_values / (2.0 * xp.maximum(width, 1.0)) * time


def _unmerged(elementwise, fraction, merging):
    """Return a layer's cheap kernels without those that merge a ring's parts: results are kept."""
    return xp.maximum(elementwise - fraction * merging, 0.0)


@formula(returns="dense_layer_recompute_time", **PER_OP)
def per_op_dense_layer_recompute_time(
    key_value_width,
    qkv_width,
    qkv_forward_time,
    attention_output_forward_time,
    gated_mlp,
    mlp_up_forward_time,
    dense_layer_elementwise_forward_time,
    attention_layer_fraction,
    merge_forward_time,
):
    """Recomputation time of a dense layer: every second GEMM, and cheap kernels."""
    keys = _keys(key_value_width, qkv_width, qkv_forward_time)
    gate = gated_mlp / (1.0 + gated_mlp) * mlp_up_forward_time
    cheap = _unmerged(
        dense_layer_elementwise_forward_time, attention_layer_fraction, merge_forward_time
    )
    return keys + attention_output_forward_time + gate + cheap


@formula(returns="moe_layer_recompute_time", **PER_OP)
def per_op_moe_layer_recompute_time(
    key_value_width,
    qkv_width,
    qkv_forward_time,
    attention_output_forward_time,
    router_forward_time,
    gated_mlp,
    shared_up_forward_time,
    expert_up_forward_time,
    expert_down_forward_time,
    moe_layer_elementwise_forward_time,
    attention_layer_fraction,
    merge_forward_time,
):
    """Recomputation time of an MoE layer: all routed experts."""
    keys = _keys(key_value_width, qkv_width, qkv_forward_time)
    shared = gated_mlp / (1.0 + gated_mlp) * shared_up_forward_time
    half = keys + attention_output_forward_time + router_forward_time + shared
    experts = expert_up_forward_time + expert_down_forward_time
    cheap = _unmerged(
        moe_layer_elementwise_forward_time, attention_layer_fraction, merge_forward_time
    )
    return half + experts + cheap
