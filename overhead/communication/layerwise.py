"""Data parallelism as the model of a step needs it: all of a step's, and layer by layer.

A stage that is held twice (DualPipe) has its gradients added up between both that hold it, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.communication import data, parameters, passes
from overhead.communication.operation import never, on_network, operation
from overhead.formula import formula
from overhead.quantity import Array, define
from overhead.sums import product, total

__all__ = ["copy_message_bytes", "data", "parameters", "passes"]

FSDP: dict[str, Any] = {"source": "zhao2023", "where": "sections 3.2 and 3.3"}
DUAL: dict[str, Any] = {"source": "deepseekv3", "where": "section 3.2.1"}

# Stages that two ranks hold.

define("copy_message_bytes", r"M_{\mathrm{copy}}", "byte",
       "gradients that two ranks add up which hold the same stages", minimum=0)  # fmt: skip
operation(
    "copy_all_reduce",
    "all_reduce of gradients between two ranks that hold the same stages",
    dimension="dp",
    group="ends",
    collective="all_reduce",
    message="copy_message_bytes",
    share="dense_share",
)
never("copy_all_reduce_forward_count")


@formula(
    returns="copy_message_bytes",
    expression="reduction_bytes*(busiest_dense_parameters/where(zero_stage >= 1, shards, 1)"
    " + busiest_expert_parameters/where(zero_stage >= 1, expert_shards, 1))",
    **DUAL,
)
def copy_message_bytes(
    reduction_bytes: Array,
    busiest_dense_parameters: Array,
    zero_stage: Array,
    shards: Array,
    busiest_expert_parameters: Array,
    expert_shards: Array,
) -> Array:
    """Gradients of a rank, or of its shard, that another one with the same stages adds up."""
    sharded = zero_stage >= 1.0
    dense = busiest_dense_parameters / np.where(sharded, shards, 1.0)
    experts = busiest_expert_parameters / np.where(sharded, expert_shards, 1.0)
    return np.asarray(reduction_bytes * (dense + experts))


@formula(
    returns="copy_all_reduce_backward_count",
    expression="where(pp > 1, (weight_copies - 1)*(gradient_sums + gradient_reductions), 0)",
    **DUAL,
)
def copy_all_reduce_backward_count(
    pp: Array, weight_copies: Array, gradient_sums: Array, gradient_reductions: Array
) -> Array:
    """How often a step adds up the gradients of stages that are held twice."""
    rounds = (weight_copies - 1.0) * (gradient_sums + gradient_reductions)
    return np.where(pp > 1.0, rounds, 0.0)


# All of a step.

for _name, _mark, _meaning in (
    ("dp_gather_time", "g", "time of a step in which data parallelism gathers weights"),
    ("dp_reduce_time", "r", "time of a step in which data parallelism reduces gradients"),
):
    define(_name, f"T_{{d{_mark}}}", "s", _meaning, minimum=0)
total(
    "dp_gather_time",
    [
        f"{one.name}_all_gather_{way}_time"
        for one in data.FAMILIES
        for way in ("forward", "backward")
    ],
)
total(
    "dp_reduce_time",
    [
        f"{name}_backward_time"
        for one in data.FAMILIES
        for name in (
            f"{one.name}_all_reduce",
            f"{one.name}_reduce_scatter",
            f"{one.name}_replica_all_reduce",
        )
    ]
    + ["copy_all_reduce_backward_time"],
)


# One layer, of the last stage, for there the first dense ones are fewest: what of it isn't experts,
# and its experts if it has any.


def _shard(message: Array, shards: Array) -> Array:
    """Gradients of a layer's shard."""
    return np.asarray(message / shards)


def _declare_layer(family: data.Family) -> None:
    """Declare a layer's messages of one family, and the times of its gather and its reduction."""
    prefix, mark = f"{family.name}_layer", family.mark
    for part, symbol, units, meaning in (
        ("gather_bytes", "M^l", "byte", "weights of a layer, gathered"),
        ("scatter_bytes", "M'^l", "byte", "gradients of a layer"),
        ("replica_bytes", "M''^l", "byte", "gradients of a layer's shard"),
        ("gather_time", r"\tau^g", "s", "time to gather a layer's weights once"),
        ("scatter_time", r"\tau^s", "s", "time to reduce and scatter a layer's gradients once"),
        ("replica_time", r"\tau^a", "s", "time to add up a layer's gradients over replicas once"),
        ("reduce_time", r"\tau^r", "s", "time to reduce a layer's gradients once, over all ranks"),
    ):
        define(
            f"{prefix}_{part}", f"{symbol}_{mark}", units, f"{meaning}: {family.words}", minimum=0
        )
    product(f"{prefix}_gather_bytes", ("gathered_bytes", f"{prefix}_parameters"), **FSDP)
    product(f"{prefix}_scatter_bytes", ("reduction_bytes", f"{prefix}_parameters"), **FSDP)
    formula(
        returns=f"{prefix}_replica_bytes",
        expression=f"{prefix}_scatter_bytes/{family.shards}",
        inputs=(f"{prefix}_scatter_bytes", family.shards),
        ufunc=np.true_divide,
        name=f"{prefix}_replica_bytes",
        **FSDP,
    )(_shard)
    for part, group, collective in (
        ("gather", family.shard, "all_gather"),
        ("scatter", family.shard, "reduce_scatter"),
        ("replica", family.replica, "all_reduce"),
    ):
        on_network(f"{prefix}_{part}_time", "time", group, collective, f"{prefix}_{part}_bytes")
    total(f"{prefix}_reduce_time", [f"{prefix}_scatter_time", f"{prefix}_replica_time"], **FSDP)


for _family in data.FAMILIES:
    _declare_layer(_family)
