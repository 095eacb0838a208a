"""Tensor parallelism: what its ranks exchange at the ends of each block, a layer's two.

Without sequence parallelism every block ends, in each direction, with an all_reduce.  With it a
block begins with an all_gather and ends with a reduce_scatter, of the same bytes together; and the
gradient of its weights needs the saved input gathered once more.
"""

from __future__ import annotations

from typing import Any

from overhead.communication import passes
from overhead.communication.operation import never, operation
from overhead.formula import formula
from overhead.memory import activations
from overhead.quantity import Array, define
from overhead.sums import product

__all__ = ["activations", "passes", "tp_message_bytes"]

WHOLE: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.3"}
SPLIT: dict[str, Any] = {"source": "korthikanti2022", "where": "section 4.2.2"}
TP: dict[str, Any] = {
    "dimension": "tp",
    "group": "tp",
    "message": "tp_message_bytes",
    "share": "tp_share",
}

define("tp_message_bytes", "M_t", "byte", "activations of a micro-batch on a rank, whole",
       minimum=0)  # fmt: skip


@formula(
    returns="tp_message_bytes",
    expression="communication_bytes*rank_tokens*hidden_size",
    **WHOLE,
)
def tp_message_bytes(communication_bytes: Array, rank_tokens: Array, hidden_size: Array) -> Array:
    """Activations between blocks of a micro-batch's tokens on a rank."""
    return communication_bytes * rank_tokens * hidden_size


operation("tp_all_reduce", "all_reduce of a block's output", collective="all_reduce", **TP)
operation("tp_all_gather", "all_gather of a block's input", collective="all_gather", **TP)
operation(
    "tp_reduce_scatter", "reduce_scatter of a block's output", collective="reduce_scatter", **TP
)
operation(
    "tp_weight_gather",
    "all_gather of a saved input, for the weights' gradient",
    collective="all_gather",
    **TP,
)

for _name, _kept, _returning in (
    ("tp_all_reduce", "sequence_whole", "returning_reductions"),
    ("tp_all_gather", "sequence_parallel", "returning_gathers"),
    ("tp_reduce_scatter", "sequence_parallel", "returning_reductions"),
):
    product(f"{_name}_forward_count", (_kept, "micro_batches", "tp_blocks"), **WHOLE)
    product(f"{_name}_backward_count", (_kept, _returning, "tp_blocks"), **WHOLE)
never("tp_weight_gather_forward_count")
product(
    "tp_weight_gather_backward_count",
    ("sequence_parallel", "backward_passes", "tp_blocks"),
    **SPLIT,
)


# One layer and micro-batch.

for _name, _mark, _meaning in (
    ("forward", "f", "forward of {}"),
    ("backward", "b", "backward of {}, but for gathers for the weights' gradients"),
    ("gather", "g", "gathers for the weights' gradients of {}"),
    ("recompute", "r", "what the backward repeats of the forward of {}"),
):
    for _prefix, _sort, _words in (
        ("tp_layer", "", "a dense layer"),
        ("tp_moe_layer", "'", "a mixture-of-experts layer"),
    ):
        define(
            f"{_prefix}_{_name}_time",
            rf"\tau{_sort}_{_mark}",
            "s",
            f"time of tensor-parallel communication: {_meaning.format(_words)}, one micro-batch",
            minimum=0,
        )


@formula(
    returns="tp_layer_forward_time",
    expression="2*(sequence_whole*tp_all_reduce_time"
    " + sequence_parallel*(tp_all_gather_time + tp_reduce_scatter_time))",
    **SPLIT,
)
def tp_layer_forward_time(
    sequence_whole: Array,
    tp_all_reduce_time: Array,
    sequence_parallel: Array,
    tp_all_gather_time: Array,
    tp_reduce_scatter_time: Array,
) -> Array:
    """Time of tensor-parallel communication in a dense layer's forward."""
    split = tp_all_gather_time + tp_reduce_scatter_time
    return 2.0 * (sequence_whole * tp_all_reduce_time + sequence_parallel * split)


@formula(
    returns="tp_layer_backward_time",
    expression="1*tp_layer_forward_time",
    assumes=("a gather's backward is a reduce_scatter, and the other way round",),
    **SPLIT,
)
def tp_layer_backward_time(tp_layer_forward_time: Array) -> Array:
    """Time of tensor-parallel communication in a dense layer's backward: that of its forward."""
    return 1.0 * tp_layer_forward_time


@formula(
    returns="tp_layer_gather_time",
    expression="2*sequence_parallel*tp_weight_gather_time",
    **SPLIT,
)
def tp_layer_gather_time(sequence_parallel: Array, tp_weight_gather_time: Array) -> Array:
    """Time to gather a dense layer's saved inputs for its weights' gradients."""
    return 2.0 * sequence_parallel * tp_weight_gather_time


@formula(
    returns="tp_layer_recompute_time",
    expression="2*(repeated_reductions*(sequence_whole*tp_all_reduce_time"
    " + sequence_parallel*tp_reduce_scatter_time)"
    " + repeated_gathers*sequence_parallel*tp_all_gather_time)",
    **SPLIT,
)
def tp_layer_recompute_time(
    repeated_reductions: Array,
    sequence_whole: Array,
    tp_all_reduce_time: Array,
    sequence_parallel: Array,
    tp_reduce_scatter_time: Array,
    repeated_gathers: Array,
    tp_all_gather_time: Array,
) -> Array:
    """Time of tensor-parallel communication that a dense layer's backward repeats."""
    reduced = sequence_whole * tp_all_reduce_time + sequence_parallel * tp_reduce_scatter_time
    gathered = sequence_parallel * tp_all_gather_time
    return 2.0 * (repeated_reductions * reduced + repeated_gathers * gathered)


def _of_moe_layer(moe_layer_blocks: Array, dense: Array) -> Array:
    """Time of a mixture-of-experts layer: that of so many of a dense layer's two blocks."""
    return moe_layer_blocks / 2.0 * dense


for _name in ("forward", "backward", "gather", "recompute"):
    formula(
        returns=f"tp_moe_layer_{_name}_time",
        expression=f"moe_layer_blocks/2*tp_layer_{_name}_time",
        inputs=("moe_layer_blocks", f"tp_layer_{_name}_time"),
        name=f"tp_moe_layer_{_name}_time",
        **WHOLE,
    )(_of_moe_layer)
