"""Time in which the host launches a layer: what it launches of each kind, at one time for each.

A mixture of experts has more to launch than a dense layer: a router, the exchange, and for each of
the rank's experts its own products, which fused libraries launch one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from overhead.compute import quantities, sources
from overhead.compute.declare import declare
from overhead.formula import formula
from overhead.quantity import Array

__all__ = ["cast_launches", "quantities", "sources"]

MEASURED: dict[str, Any] = {
    "source": sources.VTRAIN,
    "where": "data/ground_truth_single.csv: small models' time by layer is constant",
    "assumes": (
        "a collective is one operation more: tensor parallelism has two in each direction",
    ),
}
LIBRARY: dict[str, Any] = {
    "source": "transformerengine",
    "where": "transformer_engine/pytorch/csrc/extensions/cast.cpp, split_quantize, and"
    " common/gemm/cublaslt_gemm.cu, nvte_multi_tensor_gemm",
}
EXPERTS: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/transformer/moe: router.py, moe_utils.py, token_dispatcher.py",
    "assumes": (
        "every expert's products and casts are launched one by one",
        "routing and permutation are fused, as in NVIDIA's recipes; unfused they are 16 more",
    ),
}
AGAIN = {"recompute": "full|full_early_stop|per_op"}

# Launches of a layer's experts beyond a dense layer's.  Forward: the gate 2, top-k, scores, counts,
# loss and its log 6, tokens' counts of all ranks 8, copies to the host 4, permutations 6 less a
# dense layer's two products, exchanges of tokens, probabilities and results 3, the sum 1.
# Backward: exchanges 3, permutations 6, gate and routing 5, gradients' sums 4 less its four.
# A profile has 463,348 kernels in a step of 48 layers, 64 micro-batches and 8 experts a rank, 151 a
# layer; counted so it launches 145 (NVIDIA-NeMo/Megatron-Bridge,
# skills/nemo-mbridge-perf-expert-parallel-overlap/SKILL.md @067f987df0).
ROUTED = {"forward": 28.0, "backward": 14.0}
# Products: one forward each for the first and the last, and twice as many gradients.
PRODUCTS = {"forward": 2.0, "backward": 4.0}
DENSE_CASTS, OTHER_CASTS, EXPERT_CASTS = 4.0, 2.0, 2.0


@formula(
    returns="cast_launches",
    expression="where(matmul_input_bytes < activation_bytes, 2, 0)",
    assumes=("a cast, and the layout of its scales; scales of whole tensors need one more",),
    **LIBRARY,
)
def cast_launches(matmul_input_bytes: Array, activation_bytes: Array) -> Array:
    """Operations that the host launches to cast what a product takes, where it is narrower."""
    return np.where(matmul_input_bytes < activation_bytes, 2.0, 0.0)


def _dense(operations: Array, casts: Array) -> Array:
    return operations + DENSE_CASTS * casts


def _routed(way: str) -> Any:
    def launches(operations: Array, casts: Array, local_experts: Array) -> Array:
        each = PRODUCTS[way] + EXPERT_CASTS * casts
        return operations + ROUTED[way] + OTHER_CASTS * casts + each * local_experts

    return launches


for _way in ("forward", "backward"):
    _taken = (f"{_way}_operations", "cast_launches")
    declare(
        f"dense_{_way}_launches",
        _taken,
        f"{_taken[0]} + {DENSE_CASTS:g}*cast_launches",
        _dense,
        **LIBRARY,
    )
    declare(
        f"moe_{_way}_launches",
        (*_taken, "local_experts"),
        f"{_taken[0]} + {ROUTED[_way]:g} + {OTHER_CASTS:g}*cast_launches"
        f" + ({PRODUCTS[_way]:g} + {EXPERT_CASTS:g}*cast_launches)*local_experts",
        _routed(_way),
        **EXPERTS,
    )


def _host(launches: Array, tp: Array, host_time: Array) -> Array:
    return np.asarray((launches + np.where(tp > 1.0, 2.0, 0.0)) * host_time)


def _host_again(
    backward: Array,
    again: Array,
    forward: Array,
    operations: Array,
    tp: Array,
    host_time: Array,
) -> Array:
    collectives = np.where(tp > 1.0, 4.0, 0.0)
    beyond = np.maximum(forward - operations, 0.0)
    return np.asarray((backward + again + beyond + collectives) * host_time)


def _declare(of: str, way: str, when: Mapping[str, str] | None = None) -> None:
    """Declare the host's time of one direction of a layer."""
    launches = f"{of}_{way}_launches"
    returns = f"{of}_layer_{way}_host_time"
    if when is None:
        text = f"({launches} + where(tp > 1, 2, 0))*host_time"
        declare(returns, (launches, "tp", "host_time"), text, _host, **MEASURED)
        return
    beyond = f"{of}_forward_launches", "forward_operations"
    text = (
        f"{launches} + recompute_operations + maximum({beyond[0]} - {beyond[1]}, 0)"
        " + where(tp > 1, 4, 0)"
    )
    taken = (launches, "recompute_operations", *beyond, "tp", "host_time")
    declare(returns, taken, f"({text})*host_time", _host_again, when=when, **MEASURED)


for _class, _, _ in quantities.CLASSES:
    _declare(_class, "forward")
    _declare(_class, "backward")
    _declare(_class, "backward", AGAIN)
