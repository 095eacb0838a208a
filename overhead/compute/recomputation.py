"""What a backward computes again, by label `recompute`.

``selective`` repeats scores and values, ``full`` the whole forward, ``full_early_stop`` all of it
but the last product of a dense layer, whose result no gradient needs, and ``per_op`` what lies
between the products of which every second one was kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute import quantities, sources
from overhead.formula import formula
from overhead.quantity import Array

__all__ = [
    "early_stop_dense_layer_recompute_time",
    "full_dense_layer_recompute_time",
    "full_moe_layer_recompute_time",
    "no_dense_layer_recompute_time",
    "no_moe_layer_recompute_time",
    "per_op_dense_layer_recompute_time",
    "per_op_moe_layer_recompute_time",
    "quantities",
    "selective_dense_layer_recompute_time",
    "selective_moe_layer_recompute_time",
    "sources",
]

PAPER: dict[str, Any] = {"source": "korthikanti2022", "where": "section 5"}
EARLY: dict[str, Any] = {
    "source": "chen2016",
    "where": "section 4.1; PyTorch's checkpointing without re-entrance stops at what is needed",
}
PER_OP: dict[str, Any] = {
    "source": "torchtitan",
    "where": "torchtitan/models/llama3/infra/parallelize.py, _save_list and _custom_policy",
    "assumes": (
        "products of keys, of the attention's context and of the gate are repeated",
        "scores and values are kept",
    ),
    "when": {"recompute": "per_op"},
}


@formula(returns="dense_layer_recompute_time", expression="0*attention_forward_time", **PAPER)
def no_dense_layer_recompute_time(attention_forward_time: Array) -> Array:
    """Time of what a dense layer computes again: none."""
    return 0.0 * attention_forward_time


@formula(returns="moe_layer_recompute_time", expression="0*attention_forward_time", **PAPER)
def no_moe_layer_recompute_time(attention_forward_time: Array) -> Array:
    """Time of what a mixture-of-experts layer computes again: none."""
    return 0.0 * attention_forward_time


@formula(
    returns="dense_layer_recompute_time",
    expression="1*attention_forward_time",
    when={"recompute": "selective"},
    **PAPER,
)
def selective_dense_layer_recompute_time(attention_forward_time: Array) -> Array:
    """Time of what a dense layer computes again: scores and values."""
    return 1.0 * attention_forward_time


@formula(
    returns="moe_layer_recompute_time",
    expression="1*attention_forward_time",
    when={"recompute": "selective"},
    **PAPER,
)
def selective_moe_layer_recompute_time(attention_forward_time: Array) -> Array:
    """Time of what a mixture-of-experts layer computes again: scores and values."""
    return 1.0 * attention_forward_time


@formula(
    returns="dense_layer_recompute_time",
    expression="dense_layer_matmul_forward_time + attention_forward_time"
    " + dense_layer_elementwise_forward_time",
    when={"recompute": "full"},
    **PAPER,
)
def full_dense_layer_recompute_time(
    dense_layer_matmul_forward_time: Array,
    attention_forward_time: Array,
    dense_layer_elementwise_forward_time: Array,
) -> Array:
    """Time of what a dense layer computes again: all."""
    products = dense_layer_matmul_forward_time + attention_forward_time
    return products + dense_layer_elementwise_forward_time


@formula(
    returns="dense_layer_recompute_time",
    expression="qkv_forward_time + attention_output_forward_time + mlp_up_forward_time"
    " + attention_forward_time + dense_layer_elementwise_forward_time",
    when={"recompute": "full_early_stop"},
    **EARLY,
)
def early_stop_dense_layer_recompute_time(
    qkv_forward_time: Array,
    attention_output_forward_time: Array,
    mlp_up_forward_time: Array,
    attention_forward_time: Array,
    dense_layer_elementwise_forward_time: Array,
) -> Array:
    """Time of what a dense layer computes again: all but its last product."""
    products = qkv_forward_time + attention_output_forward_time + mlp_up_forward_time
    return products + attention_forward_time + dense_layer_elementwise_forward_time


@formula(
    returns="moe_layer_recompute_time",
    expression="moe_layer_matmul_forward_time + attention_forward_time"
    " + moe_layer_elementwise_forward_time",
    assumes=("the probabilities' gradient needs the experts' outputs, so nothing is left out",),
    when={"recompute": "full|full_early_stop"},
    **PAPER,
)
def full_moe_layer_recompute_time(
    moe_layer_matmul_forward_time: Array,
    attention_forward_time: Array,
    moe_layer_elementwise_forward_time: Array,
) -> Array:
    """Time of what a mixture-of-experts layer computes again: all."""
    products = moe_layer_matmul_forward_time + attention_forward_time
    return products + moe_layer_elementwise_forward_time


KEYS = "rank_key_value_weights/(2*hidden_size*maximum(qkv_width, 1))*qkv_forward_time"
GATE = "gated/(1 + gated)"


def _keys(weights: Array, hidden_size: Array, width: Array, time: Array) -> Array:
    return weights / (2.0 * hidden_size * np.maximum(width, 1.0)) * time


@formula(
    returns="dense_layer_recompute_time",
    expression=f"{KEYS} + attention_output_forward_time + {GATE}*mlp_up_forward_time"
    " + dense_layer_elementwise_forward_time",
    **PER_OP,
)
def per_op_dense_layer_recompute_time(
    rank_key_value_weights: Array,
    hidden_size: Array,
    qkv_width: Array,
    qkv_forward_time: Array,
    attention_output_forward_time: Array,
    gated: Array,
    mlp_up_forward_time: Array,
    dense_layer_elementwise_forward_time: Array,
) -> Array:
    """Time of what a dense layer computes again: every second product, and what is cheap."""
    keys = _keys(rank_key_value_weights, hidden_size, qkv_width, qkv_forward_time)
    gate = gated / (1.0 + gated) * mlp_up_forward_time
    return keys + attention_output_forward_time + gate + dense_layer_elementwise_forward_time


@formula(
    returns="moe_layer_recompute_time",
    expression=f"{KEYS} + attention_output_forward_time + router_forward_time"
    f" + {GATE}*shared_up_forward_time + expert_up_forward_time + expert_down_forward_time"
    " + moe_layer_elementwise_forward_time",
    **PER_OP,
)
def per_op_moe_layer_recompute_time(
    rank_key_value_weights: Array,
    hidden_size: Array,
    qkv_width: Array,
    qkv_forward_time: Array,
    attention_output_forward_time: Array,
    router_forward_time: Array,
    gated: Array,
    shared_up_forward_time: Array,
    expert_up_forward_time: Array,
    expert_down_forward_time: Array,
    moe_layer_elementwise_forward_time: Array,
) -> Array:
    """Time of what a mixture-of-experts layer computes again: routed experts as a whole."""
    keys = _keys(rank_key_value_weights, hidden_size, qkv_width, qkv_forward_time)
    shared = gated / (1.0 + gated) * shared_up_forward_time
    half = keys + attention_output_forward_time + router_forward_time + shared
    experts = expert_up_forward_time + expert_down_forward_time
    return half + experts + moe_layer_elementwise_forward_time
