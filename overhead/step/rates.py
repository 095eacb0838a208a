"""Rates of a step: tokens a second, FLOP/s, and how much of the peak they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities
from overhead.sums import product, total

__all__ = [
    "causal_mfu",
    "hfu",
    "mfu",
    "model_flops_per_gpu",
    "quantities",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
]

PALM: dict[str, Any] = {"source": "chowdhery2022", "where": "appendix B"}
FORWARD = {"schedule": "forward_only"}
MASKED = "masked scores count as computed"
AGAIN: dict[str, Any] = {"source": "korthikanti2022", "where": "section 5 and appendix A"}


@formula(
    returns="tokens_per_second",
    expression="tokens_per_step/step_time",
    ufunc=np.true_divide,
    **PALM,
)
def tokens_per_second(tokens_per_step: Array, step_time: Array) -> Array:
    """Tokens a second, over all GPUs."""
    return tokens_per_step / step_time


@formula(
    returns="tokens_per_second_per_gpu",
    expression="tokens_per_second/world_size",
    ufunc=np.true_divide,
    **PALM,
)
def tokens_per_second_per_gpu(tokens_per_second: Array, world_size: Array) -> Array:
    """Tokens a second, a GPU."""
    return tokens_per_second / world_size


# FLOPs of a step of forwards alone.

for _prefix in ("", "causal_"):
    product(
        f"{_prefix}model_flops",
        (f"{_prefix}forward_flops_per_token", "tokens_per_step"),
        assumes=("there is no backward",),
        when=FORWARD,
        name=f"{_prefix}forward_only_flops",
        **PALM,
    )


@formula(
    returns="model_flops_per_gpu",
    expression="model_flops/(step_time*world_size)",
    assumes=(MASKED, "nothing recomputed counts"),
    **PALM,
)
def model_flops_per_gpu(model_flops: Array, step_time: Array, world_size: Array) -> Array:
    """Model's FLOP/s of a GPU."""
    return model_flops / (step_time * world_size)


@formula(
    returns="mfu",
    expression="model_flops_per_gpu/peak_flops",
    ufunc=np.true_divide,
    assumes=(MASKED, "the peak is dense, at the matrix products' precision"),
    **PALM,
)
def mfu(model_flops_per_gpu: Array, peak_flops: Array) -> Array:
    """Model's FLOP/s by the peak, masked scores counted."""
    return model_flops_per_gpu / peak_flops


@formula(
    returns="causal_mfu",
    expression="causal_model_flops/(step_time*world_size*peak_flops)",
    assumes=("masked scores don't count", "nothing recomputed counts"),
    **PALM,
)
def causal_mfu(
    causal_model_flops: Array, step_time: Array, world_size: Array, peak_flops: Array
) -> Array:
    """Model's FLOP/s by the peak, masked scores not counted."""
    return causal_model_flops / (step_time * world_size * peak_flops)


@formula(
    returns="hfu",
    expression="hardware_flops/(step_time*world_size*peak_flops)",
    assumes=(MASKED, "what a fused attention computes again doesn't count"),
    **PALM,
)
def hfu(hardware_flops: Array, step_time: Array, world_size: Array, peak_flops: Array) -> Array:
    """FLOP/s by the peak, what is recomputed counted."""
    return hardware_flops / (step_time * world_size * peak_flops)


# What is computed again.


@formula(returns="recomputed_flops_per_token", expression="0*attention_flops_per_token", **AGAIN)
def no_recomputed_flops_per_token(attention_flops_per_token: Array) -> Array:
    """FLOPs of one token that are computed again: none."""
    return 0.0 * attention_flops_per_token


@formula(
    returns="recomputed_flops_per_token",
    expression="1*attention_flops_per_token",
    when={"recompute": "selective"},
    **AGAIN,
)
def selective_recomputed_flops_per_token(attention_flops_per_token: Array) -> Array:
    """FLOPs of one token that are computed again: scores and values."""
    return 1.0 * attention_flops_per_token


total(
    "recomputed_flops_per_token",
    ("weight_flops_per_token", "attention_flops_per_token"),
    assumes=("the output layer isn't repeated",),
    when={"recompute": "full"},
    name="full_recomputed_flops_per_token",
    **AGAIN,
)


@formula(
    returns="recomputed_flops_per_token",
    expression="maximum(weight_flops_per_token"
    " - 2*dense_mlp_layers*(hidden_size*ffn_size), 0) + attention_flops_per_token",
    assumes=("the last product of a dense layer isn't repeated",),
    when={"recompute": "full_early_stop"},
    **AGAIN,
)
def early_stop_recomputed_flops_per_token(
    weight_flops_per_token: Array,
    dense_mlp_layers: Array,
    hidden_size: Array,
    ffn_size: Array,
    attention_flops_per_token: Array,
) -> Array:
    """FLOPs of one token that are computed again: all but dense layers' last product."""
    last = 2.0 * dense_mlp_layers * (hidden_size * ffn_size)
    return np.maximum(weight_flops_per_token - last, 0.0) + attention_flops_per_token


@formula(
    returns="recomputed_flops_per_token",
    expression="2*(layers*(key_value_weights/2 + attention_output_weights)"
    " + dense_mlp_layers*(gated*hidden_size*ffn_size) + moe_layers*(router_weights"
    " + gated*hidden_size*shared_ffn_size + experts_per_token*expert_weights))",
    assumes=("products of keys, of the context and of the gate, and routed experts are repeated",),
    when={"recompute": "per_op"},
    **AGAIN,
)
def per_op_recomputed_flops_per_token(
    layers: Array,
    key_value_weights: Array,
    attention_output_weights: Array,
    dense_mlp_layers: Array,
    gated: Array,
    hidden_size: Array,
    ffn_size: Array,
    moe_layers: Array,
    router_weights: Array,
    shared_ffn_size: Array,
    experts_per_token: Array,
    expert_weights: Array,
) -> Array:
    """FLOPs of one token that are computed again where every second product is kept."""
    attention = layers * (key_value_weights / 2.0 + attention_output_weights)
    dense = dense_mlp_layers * (gated * hidden_size * ffn_size)
    routed = router_weights + gated * hidden_size * shared_ffn_size
    experts = moe_layers * (routed + experts_per_token * expert_weights)
    return 2.0 * (attention + dense + experts)


@formula(
    returns="hardware_flops",
    expression="model_flops + recomputed_flops_per_token*tokens_per_step",
    **AGAIN,
)
def hardware_flops(
    model_flops: Array, recomputed_flops_per_token: Array, tokens_per_step: Array
) -> Array:
    """FLOPs of a step, what is recomputed counted."""
    return model_flops + recomputed_flops_per_token * tokens_per_step


@formula(
    returns="hardware_flops",
    expression="1*model_flops",
    assumes=("nothing is recomputed",),
    when=FORWARD,
    **AGAIN,
)
def forward_only_hardware_flops(model_flops: Array) -> Array:
    """FLOPs of a step of forwards alone."""
    return 1.0 * model_flops
