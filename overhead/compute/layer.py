"""One layer's time for one micro-batch on one rank: the sum of its parts, and the host beside it.

The GPU works on what the host launches ahead of it, so the slower of the two rules; near the
change from one to the other both do, which a norm of order 4 has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute import quantities, sources
from overhead.compute.declare import declare
from overhead.quantity import Array
from overhead.sums import total

__all__ = ["quantities", "sources"]

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
    "source": sources.VTRAIN,
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


def _once(value: Array) -> Array:
    return 1.0 * value


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
        text = f"sqrt(sqrt({gpu}**4 + {host}**4))"
        declare(f"{of}_layer_{kind}_time", (gpu, host), text, _norm, **NORM)


def _both(returns: str, names: tuple[str, ...]) -> None:
    """Declare a sum over forward and backward, and its forward alone where there is no other."""
    total(returns, names)
    declare(returns, names[:1], f"1*{names[0]}", _once, when=FORWARD)


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
    first = "maximum({} - {}, 0)".format(*forward)
    text = f"{first} + maximum({backward[0]} - {backward[1]}, 0)"
    declare(f"{of}_layer_host_time", (*forward, *backward), text, _added)
    declare(f"{of}_layer_host_time", forward, first, _forward_added, when=FORWARD)


for _class, _, _ in quantities.CLASSES:
    _layer(_class)
    _parts(_class)
_both("attention_time", ("attention_forward_time", "attention_backward_time"))
_both("layer_exposed_cp_time", ("exposed_cp_forward_time", "exposed_cp_backward_time"))
_both("layer_exposed_ep_time", ("exposed_ep_forward_time", "exposed_ep_backward_time"))
