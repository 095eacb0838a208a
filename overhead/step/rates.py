"""Rates of a step: tokens a second, FLOP/s, and how much of the peak they are."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, formula

AGAIN = cited("korthikanti2022", "section 5 and appendix A")


# What is computed again.


@formula(
    returns="recomputed_flops_per_token",
    source="megatron",
    where="megatron/core/transformer/transformer_config.py: recompute_modules",
    assumes=("linear attention is not core attention: its state is kept",),
    when={"recompute": "selective"},
)
def module_flops_per_token(
    recompute_core_attn,
    computed_attention_flops_per_token,
    mixer_scan_flops,
    recompute_mla_up_proj,
    layers,
    up_projection_weights,
    recompute_mlp,
    dense_mlp_layers,
    mlp_weights,
    moe_layers,
    recompute_moe,
    router_weights,
    experts_per_token,
    expert_weights,
    recomputed_shared_experts,
    shared_expert_weights,
):
    """Recomputed FLOPs per token, selective recomputation of modules."""
    routed = recompute_moe * (router_weights + experts_per_token * expert_weights)
    mixture = moe_layers * (routed + recomputed_shared_experts * shared_expert_weights)
    dense = recompute_mlp * dense_mlp_layers * mlp_weights
    weights = recompute_mla_up_proj * layers * up_projection_weights + dense + mixture
    scores = xp.maximum(computed_attention_flops_per_token - layers * mixer_scan_flops, 0.0)
    return recompute_core_attn * scores + 2.0 * weights


@formula(
    returns="recomputed_flops_per_token",
    assumes=("the LM head is not recomputed",),
    when={"recompute": "full|full_early_stop|uniform|block"},
    **AGAIN,
)
def whole_recomputed_flops_per_token(
    recomputed_fraction,
    weight_flops_per_token,
    stops_early,
    dense_mlp_layers,
    hidden_size,
    ffn_size,
    computed_attention_flops_per_token,
    recompute_core_attn,
    layers,
    mixer_scan_flops,
):
    """Recomputed FLOPs per token of layers: all but last GEMMs and results that are kept."""
    last = stops_early * (2.0 * dense_mlp_layers * (hidden_size * ffn_size))
    weights = xp.maximum(weight_flops_per_token - last, 0.0)
    scores = xp.maximum(computed_attention_flops_per_token - layers * mixer_scan_flops, 0.0)
    attention = computed_attention_flops_per_token - (1.0 - recompute_core_attn) * scores
    return recomputed_fraction * (weights + attention)


@formula(
    returns="recomputed_flops_per_token",
    assumes=(
        "GEMMs of keys, of the attention output and of the gate, and routed experts are recomputed",
    ),
    when={"recompute": "per_op"},
    **AGAIN,
)
def per_op_recomputed_flops_per_token(
    layers,
    recomputed_mixer_weights,
    dense_mlp_layers,
    gated_mlp,
    hidden_size,
    ffn_size,
    moe_layers,
    router_weights,
    shared_ffn_size,
    experts_per_token,
    expert_weights,
):
    """Recomputed FLOPs per token, per-operator recomputation."""
    attention = layers * recomputed_mixer_weights
    dense = dense_mlp_layers * (gated_mlp * hidden_size * ffn_size)
    routed = router_weights + gated_mlp * hidden_size * shared_ffn_size
    experts = moe_layers * (routed + experts_per_token * expert_weights)
    return 2.0 * (attention + dense + experts)


@formula(**AGAIN)
def hardware_flops(
    computed_model_flops,
    has_backward,
    recomputed_flops_per_token,
    loss_recomputation,
    logits_flops_per_token,
    tokens_per_step,
):
    """Computed FLOPs per step, recomputation of layers and logits included."""
    again = recomputed_flops_per_token + loss_recomputation * logits_flops_per_token
    return computed_model_flops + has_backward * again * tokens_per_step


# Time of a whole training, and what its computing costs.

OWN = "derivation"


@formula(
    source=OWN, assumes=("the extra work of first and last stage is averaged over all stages",)
)
def step_compute_time(
    matmul_part_time,
    attention_part_time,
    elementwise_part_time,
    recompute_part_time,
    device_update_time,
    num_micro_batches,
    first_stage_extra_time,
    last_stage_extra_time,
    pp,
):
    """Time for which a GPU computes in a step, on average."""
    layers = matmul_part_time + attention_part_time + elementwise_part_time + recompute_part_time
    ends = num_micro_batches * (first_stage_extra_time + last_stage_extra_time) / pp
    return xp.maximum(layers + device_update_time + ends, 0.0)


# A whole training.


@formula(source=OWN, assumes=("GPUs alone are paid for",))
def cost_per_trillion_tokens(gpu_hour_price, world_size, tokens_per_step, step_time, hour):
    """Cost of training on a trillion tokens."""
    return gpu_hour_price * (world_size * (1e12 / tokens_per_step * step_time) / hour)


# Layers that predict further tokens: each joins the hidden state with the next token's embedding.

PREDICTION = cited("deepseekv3", "section 2.2")
LIKE_LAST = "each is a layer like the last one of the model, and shares embedding and LM head"
ATTENDS = "among layers of several kinds it has attention"


@formula(**PREDICTION)
def mtp_projection_weights(hidden_size):
    """MTP projection weights: hidden state and next embedding to hidden."""
    return 2.0 * hidden_size * hidden_size


@formula(
    assumes=(LIKE_LAST, ATTENDS, "norms of both that are joined, and one after the layer"),
    **PREDICTION,
)
def mtp_parameters(
    mtp_layers,
    attending_parameters,
    mixer_norm_parameters,
    moe_layers,
    moe_parameters,
    mlp_parameters,
    mtp_projection_weights,
    norm_parameters,
):
    """MTP parameters."""
    layer = attending_parameters + xp.where(moe_layers > 0.0, moe_parameters, mlp_parameters)
    norms = mixer_norm_parameters + 4.0 * norm_parameters
    return mtp_layers * (layer + mtp_projection_weights + norms)


@formula(
    assumes=(LIKE_LAST, "logits are computed for every token once per depth"),
    **PREDICTION,
)
def mtp_weight_flops_per_token(
    mtp_layers,
    mixer_weights,
    moe_layers,
    router_weights,
    shared_expert_weights,
    experts_per_token,
    expert_weights,
    mlp_weights,
    mtp_projection_weights,
    logits_flops_per_token,
):
    """MTP weight FLOPs per token, forward, without attention."""
    routed = router_weights + shared_expert_weights + experts_per_token * expert_weights
    layer = mixer_weights + xp.where(moe_layers > 0.0, routed, mlp_weights)
    return mtp_layers * (2.0 * (layer + mtp_projection_weights) + logits_flops_per_token)
