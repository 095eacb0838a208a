"""One layer's time for one micro-batch on one rank: the sum of its parts, and the host beside it.

The GPU works on what the host launches ahead of it, so the slower of the two rules; near the
change from one to the other both do, which a norm of order 4 has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute import quantities
from overhead.declare import alias, constant, declare, total
from overhead.formula import formula
from overhead.quantity import Array

FORWARD = {"schedule": "forward_only"}
PRODUCTS = {
    "dense": ("qkv", "attention_output", "mlp_up", "mlp_down"),
    "moe": (
        "qkv",
        "attention_output",
        "router",
        "shared_up",
        "shared_down",
        "expert_up",
        "expert_down",
    ),
}
SUM: dict[str, Any] = {"assumes": ("a GPU's kernels follow one another",)}
NORM: dict[str, Any] = {
    "source": quantities.VTRAIN,
    "where": "data/ground_truth_single.csv: of sum, greater and norm this fits best",
    "assumes": ("the host launches ahead of the GPU",),
}


def _norm(gpu: Array, host: Array) -> Array:
    squares = gpu * gpu, host * host
    return np.sqrt(np.sqrt(squares[0] * squares[0] + squares[1] * squares[1]))


def _added(forward: Array, forward_gpu: Array, backward: Array, backward_gpu: Array) -> Array:
    return np.maximum(forward - forward_gpu, 0.0) + np.maximum(backward - backward_gpu, 0.0)


def _forward_added(forward: Array, forward_gpu: Array) -> Array:
    return np.maximum(forward - forward_gpu, 0.0)


def _layer(of: str) -> None:
    """Declare a layer's sums, of one class."""
    for returns, kind in (
        ("layer_matmul_forward", "forward"),
        ("layer_input_gradient", "input_gradient"),
        ("layer_weight_gradient", "weight_gradient"),
    ):
        total(f"{of}_{returns}_time", [f"{each}_{kind}_time" for each in PRODUCTS[of]], **SUM)
    exchange = ("forward", "backward") if of == "moe" else ()
    exchanges = {kind: [f"exposed_ep_{kind}_time"] for kind in exchange}
    total(
        f"{of}_layer_forward_gpu_time",
        [
            f"{of}_layer_matmul_forward_time",
            "attention_forward_time",
            f"{of}_layer_elementwise_forward_time",
            f"{of}_exposed_tp_forward_time",
            "exposed_cp_forward_time",
            *exchanges.get("forward", ()),
        ],
        **SUM,
    )
    total(
        f"{of}_layer_backward_gpu_time",
        [
            f"{of}_layer_input_gradient_time",
            f"{of}_layer_weight_gradient_time",
            "attention_backward_time",
            f"{of}_layer_elementwise_backward_time",
            f"{of}_layer_recompute_time",
            f"{of}_exposed_tp_backward_time",
            "exposed_cp_backward_time",
            *exchanges.get("backward", ()),
        ],
        **SUM,
    )
    for kind in ("forward", "backward"):
        gpu, host = f"{of}_layer_{kind}_gpu_time", f"{of}_layer_{kind}_host_time"
        declare(f"{of}_layer_{kind}_time", (gpu, host), _norm, **NORM)


def _both(returns: str, names: tuple[str, ...]) -> None:
    """Declare a sum over forward and backward, and its forward alone where there is no other."""
    total(returns, names)
    alias(returns, names[0], when=FORWARD)


def _parts(of: str) -> None:
    """Declare a layer's parts over forward and backward together."""
    _both(
        f"{of}_layer_matmul_time",
        (
            f"{of}_layer_matmul_forward_time",
            f"{of}_layer_input_gradient_time",
            f"{of}_layer_weight_gradient_time",
        ),
    )
    for part in ("layer_elementwise", "exposed_tp", "layer"):
        names = (f"{of}_{part}_forward_time", f"{of}_{part}_backward_time")
        _both(f"{of}_{part}_time", names)
    forward = f"{of}_layer_forward_time", f"{of}_layer_forward_gpu_time"
    backward = f"{of}_layer_backward_time", f"{of}_layer_backward_gpu_time"
    declare(f"{of}_layer_host_time", (*forward, *backward), _added)
    declare(f"{of}_layer_host_time", forward, _forward_added, when=FORWARD)


for _class, _, _ in quantities.CLASSES:
    _layer(_class)
    _parts(_class)
_both("attention_time", ("attention_forward_time", "attention_backward_time"))
_both("layer_exposed_cp_time", ("exposed_cp_forward_time", "exposed_cp_backward_time"))
_both("layer_exposed_ep_time", ("exposed_ep_forward_time", "exposed_ep_backward_time"))

# What a backward computes again, by label `recompute`.
#
# ``selective`` repeats scores and values, ``full`` the whole forward, ``full_early_stop`` all of it
# but the last product of a dense layer, whose result no gradient needs, and ``per_op`` what lies
# between the products of which every second one was kept.

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


for _class in ("dense", "moe"):
    _again, _scores = f"{_class}_layer_recompute_time", "attention_forward_time"
    constant(_again, 0.0, "Nothing is computed again", like=_scores, **PAPER)
    _selective = {"recompute": "selective"}
    alias(_again, _scores, "Scores and values are computed again", when=_selective, **PAPER)


@formula(returns="dense_layer_recompute_time", when={"recompute": "full"}, **PAPER)
def full_dense_layer_recompute_time(
    dense_layer_matmul_forward_time: Array,
    attention_forward_time: Array,
    dense_layer_elementwise_forward_time: Array,
) -> Array:
    """Time of what a dense layer computes again: all."""
    products = dense_layer_matmul_forward_time + attention_forward_time
    return products + dense_layer_elementwise_forward_time


@formula(returns="dense_layer_recompute_time", when={"recompute": "full_early_stop"}, **EARLY)
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


def _keys(weights: Array, hidden_size: Array, width: Array, time: Array) -> Array:
    return weights / (2.0 * hidden_size * np.maximum(width, 1.0)) * time


@formula(returns="dense_layer_recompute_time", **PER_OP)
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


@formula(returns="moe_layer_recompute_time", **PER_OP)
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
