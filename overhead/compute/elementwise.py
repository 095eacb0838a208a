"""Element-wise work of a layer: the bytes that its kernels move, and casts to FP8."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute import quantities, sources
from overhead.compute.declare import declare
from overhead.formula import formula
from overhead.quantity import Array

__all__ = [
    "dense_cast_backward_bytes",
    "dense_cast_forward_bytes",
    "dense_elementwise_bytes",
    "half_elementwise_bytes",
    "moe_cast_backward_bytes",
    "moe_cast_forward_bytes",
    "moe_elementwise_bytes",
    "quantities",
    "sources",
]

KERNELS: dict[str, Any] = {"source": "megatron", "where": "megatron/core/fusions"}
EXPERTS: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/transformer/moe/token_dispatcher.py and experts.py",
}
CASTS: dict[str, Any] = {
    "source": "transformerengine",
    "where": "transformer_engine/pytorch/module",
    "assumes": ("a cast reads an element once and writes it once, in the products' precision",),
}


@formula(
    returns="half_elementwise_bytes",
    expression="(10*activation_bytes + 2*dropout*mask_bytes)*rank_tokens*hidden_size"
    "/sequence_shards + 2*activation_bytes*rank_tokens*qkv_width",
    assumes=(
        "two norms read and write, two sums with the residual read two and write one",
        "queries, keys and values are read and written once (rotation, or a copy)",
    ),
    **KERNELS,
)
def half_elementwise_bytes(
    activation_bytes: Array,
    dropout: Array,
    mask_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    sequence_shards: Array,
    qkv_width: Array,
) -> Array:
    """Bytes that a layer's forward moves beside its MLP: norms, residuals, rotation."""
    element = 10.0 * activation_bytes + 2.0 * dropout * mask_bytes
    between = element * rank_tokens * hidden_size / sequence_shards
    return between + 2.0 * activation_bytes * rank_tokens * qkv_width


@formula(
    returns="dense_elementwise_bytes",
    expression="half_elementwise_bytes + (2 + gated)*activation_bytes*rank_tokens*mlp_width",
    assumes=("the activation function and the gate's product are one kernel",),
    **KERNELS,
)
def dense_elementwise_bytes(
    half_elementwise_bytes: Array,
    gated: Array,
    activation_bytes: Array,
    rank_tokens: Array,
    mlp_width: Array,
) -> Array:
    """Bytes that a dense layer's forward moves."""
    return half_elementwise_bytes + (2.0 + gated) * activation_bytes * rank_tokens * mlp_width


@formula(
    returns="moe_elementwise_bytes",
    expression="half_elementwise_bytes + (2 + gated)*activation_bytes*(rank_tokens*shared_width"
    " + local_experts*expert_tokens*expert_width)"
    " + 8*activation_bytes*local_experts*expert_tokens*hidden_size",
    assumes=(
        "tokens are put in order before and after each exchange: read and written four times",
    ),
    **EXPERTS,
)
def moe_elementwise_bytes(
    half_elementwise_bytes: Array,
    gated: Array,
    activation_bytes: Array,
    rank_tokens: Array,
    shared_width: Array,
    local_experts: Array,
    expert_tokens: Array,
    expert_width: Array,
    hidden_size: Array,
) -> Array:
    """Bytes that a mixture-of-experts layer's forward moves."""
    routed = local_experts * expert_tokens
    inside = rank_tokens * shared_width + routed * expert_width
    inner = half_elementwise_bytes + (2.0 + gated) * activation_bytes * inside
    return inner + 8.0 * activation_bytes * routed * hidden_size


# Casts of what the products take, where that is in fewer bytes than what is kept.

CAST = "where(matmul_input_bytes < activation_bytes, activation_bytes + matmul_input_bytes, 0)"


def _cast(activation_bytes: Array, matmul_input_bytes: Array) -> Array:
    both = activation_bytes + matmul_input_bytes
    return np.where(matmul_input_bytes < activation_bytes, both, 0.0)


@formula(
    returns="dense_cast_forward_bytes",
    expression=f"{CAST}*rank_tokens*(2*hidden_size + attention_width + mlp_width)",
    **CASTS,
)
def dense_cast_forward_bytes(
    matmul_input_bytes: Array,
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    attention_width: Array,
    mlp_width: Array,
) -> Array:
    """Bytes that casts of a dense layer's inputs of products move."""
    each = _cast(activation_bytes, matmul_input_bytes)
    return np.asarray(each * rank_tokens * (2.0 * hidden_size + attention_width + mlp_width))


@formula(
    returns="dense_cast_backward_bytes",
    expression=f"{CAST}*rank_tokens*(2*hidden_size + qkv_width + mlp_up_width)",
    **CASTS,
)
def dense_cast_backward_bytes(
    matmul_input_bytes: Array,
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    qkv_width: Array,
    mlp_up_width: Array,
) -> Array:
    """Bytes that casts of the gradients of a dense layer's products move."""
    each = _cast(activation_bytes, matmul_input_bytes)
    return np.asarray(each * rank_tokens * (2.0 * hidden_size + qkv_width + mlp_up_width))


@formula(
    returns="moe_cast_forward_bytes",
    expression=f"{CAST}*(rank_tokens*(2*hidden_size + attention_width + shared_width)"
    " + local_experts*expert_tokens*(hidden_size + expert_width))",
    **CASTS,
)
def moe_cast_forward_bytes(
    matmul_input_bytes: Array,
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    attention_width: Array,
    shared_width: Array,
    local_experts: Array,
    expert_tokens: Array,
    expert_width: Array,
) -> Array:
    """Bytes that casts of a mixture-of-experts layer's inputs of products move."""
    own = rank_tokens * (2.0 * hidden_size + attention_width + shared_width)
    routed = local_experts * expert_tokens * (hidden_size + expert_width)
    return np.asarray(_cast(activation_bytes, matmul_input_bytes) * (own + routed))


@formula(
    returns="moe_cast_backward_bytes",
    expression=f"{CAST}*(rank_tokens*(2*hidden_size + qkv_width + shared_up_width)"
    " + local_experts*expert_tokens*(hidden_size + expert_up_width))",
    **CASTS,
)
def moe_cast_backward_bytes(
    matmul_input_bytes: Array,
    activation_bytes: Array,
    rank_tokens: Array,
    hidden_size: Array,
    qkv_width: Array,
    shared_up_width: Array,
    local_experts: Array,
    expert_tokens: Array,
    expert_up_width: Array,
) -> Array:
    """Bytes that casts of the gradients of a mixture-of-experts layer's products move."""
    own = rank_tokens * (2.0 * hidden_size + qkv_width + shared_up_width)
    routed = local_experts * expert_tokens * (hidden_size + expert_up_width)
    return np.asarray(_cast(activation_bytes, matmul_input_bytes) * (own + routed))


# Times.


def _time(times: float, factor: Array, moved: Array, casts: Array, *rest: Array) -> Array:
    memory_efficiency, memory_bandwidth = rest
    return (times * factor * moved + casts) / (memory_efficiency * memory_bandwidth)


def _forward(factor: Array, moved: Array, casts: Array, share: Array, bandwidth: Array) -> Array:
    return _time(1.0, factor, moved, casts, share, bandwidth)


def _backward(factor: Array, moved: Array, casts: Array, share: Array, bandwidth: Array) -> Array:
    return _time(2.0, factor, moved, casts, share, bandwidth)


for _class, _, _ in quantities.CLASSES:
    for _kind, _times, _kernel in (("forward", 1, _forward), ("backward", 2, _backward)):
        _bytes = (f"{_class}_elementwise_bytes", f"{_class}_cast_{_kind}_bytes")
        declare(
            f"{_class}_layer_elementwise_{_kind}_time",
            ("elementwise_factor", *_bytes, "memory_efficiency", "memory_bandwidth"),
            f"({_times}*elementwise_factor*{_bytes[0]} + {_bytes[1]})"
            "/(memory_efficiency*memory_bandwidth)",
            _kernel,
            assumes=("the backward moves twice as much: gradients beside activations",)
            if _kind == "backward"
            else (),
            **KERNELS,
        )
