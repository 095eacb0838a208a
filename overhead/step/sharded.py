"""Stage 3 of ZeRO: weights gathered and gradients reduced layer by layer, and what nothing hides.

The next layer's weights are gathered while a layer computes, and its gradients are reduced while
the layer before it does.  A step has forwards that gather, and backwards that gather, reduce or do
both; each such pass exposes its ends, and what takes longer than a layer's computing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute.declare import declare
from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities
from overhead.sums import total

__all__ = [
    "exposed_backward_pass_time",
    "exposed_forward_pass_time",
    "exposed_gather_pass_time",
    "exposed_reduce_pass_time",
    "exposed_sharded_time",
    "gather_passes",
    "leading_share",
    "paired_passes",
    "quantities",
    "reduce_passes",
]

FSDP: dict[str, Any] = {"source": "zhao2023", "where": "section 3.3"}
HIDDEN = "what hides slows down what it hides behind by a share of its own time"
AHEAD = "one layer is fetched ahead"


# One layer, all layers, and what is outside of them.


def _each(time: Array, layers: Array) -> Array:
    return time / np.maximum(layers, 1.0)


for _way in ("forward", "backward"):
    declare(
        f"layer_compute_{_way}_time",
        (f"stage_{_way}_time", "middle_layers"),
        f"stage_{_way}_time/maximum(middle_layers, 1)",
        _each,
    )


def _mean(dense: Array, experts: Array, layers: Array, expert: Array) -> Array:
    return dense + experts / np.maximum(layers, 1.0) * expert


def _round(dense: Array, dense_time: Array, experts: Array, expert_time: Array) -> Array:
    return dense * dense_time + experts * expert_time


def _outside(whole: Array, layers: Array, layer: Array) -> Array:
    return np.maximum(whole - layers * layer, 0.0)


def _declare_rounds(way: str, sent: tuple[str, str]) -> None:
    """Declare the times of a layer, of all that a rank has, and of what is outside of layers."""
    times = (f"dp_layer_{way}_time", f"edp_layer_{way}_time")
    declare(
        f"layer_{way}_time",
        (times[0], "middle_moe_layers", "middle_layers", times[1]),
        f"{times[0]} + middle_moe_layers/maximum(middle_layers, 1)*{times[1]}",
        _mean,
        **FSDP,
    )
    declare(
        f"{way}_round_time",
        ("dp_messages", sent[0], "edp_messages", sent[1]),
        f"dp_messages*{sent[0]} + edp_messages*{sent[1]}",
        _round,
        **FSDP,
    )
    declare(
        f"ends_{way}_time",
        (f"{way}_round_time", "middle_layers", f"layer_{way}_time"),
        f"maximum({way}_round_time - middle_layers*layer_{way}_time, 0)",
        _outside,
        **FSDP,
    )


for _family in ("dp", "edp"):
    total(
        f"{_family}_shard_reduce_time",
        (f"{_family}_reduce_scatter_time", f"{_family}_replica_all_reduce_time"),
        **FSDP,
    )
_declare_rounds("gather", ("dp_all_gather_time", "edp_all_gather_time"))
_declare_rounds("reduce", ("dp_shard_reduce_time", "edp_shard_reduce_time"))


@formula(
    returns="leading_share",
    expression="where(pp > 1, 1, 1/(2 - tied_embeddings))",
    assumes=(
        "the embedding is gathered before all else and its gradients are reduced after it",
        "an output layer of its own hides",
    ),
    **FSDP,
)
def leading_share(pp: Array, tied_embeddings: Array) -> Array:
    """Share of what is outside of layers that nothing can hide: the embedding's."""
    return np.where(pp > 1.0, 1.0, 1.0 / (2.0 - tied_embeddings))


# A pass.  One layer's weights (G) and gradients (R); its forward (F) and its backward (B).
G, R = "layer_gather_time", "layer_reduce_time"
F, B = "layer_compute_forward_time", "layer_compute_backward_time"
BETWEEN = "maximum(middle_layers - 1, 0)"
INNER = "maximum(middle_layers - 2, 0)"
GATHERED = f"(ends_gather_time + {BETWEEN}*{G})"
REDUCED = f"(ends_reduce_time + ({R} + {BETWEEN}*{R}))"
FIRST = f"(leading_share*ends_gather_time + {G})"
LAST = f"(leading_share*ends_reduce_time + {R})"


def _stated(sent: str, late: str) -> str:
    """Return the expression of what a pass exposes of what it sends."""
    unhidden = f"maximum((1 - dp_overlap)*{sent}, {late})"
    return f"{unhidden} + overlap_contention*maximum({sent} - {unhidden}, 0)"


def _exposed(sent: Array, late: Array, overlap: Array, contention: Array) -> Array:
    unhidden = np.maximum((1.0 - overlap) * sent, late)
    return unhidden + contention * np.maximum(sent - unhidden, 0.0)


@formula(
    returns="exposed_forward_pass_time",
    expression=_stated(f"({G} + {GATHERED})", f"({FIRST} + {BETWEEN}*maximum({G} - {F}, 0))"),
    assumes=(AHEAD, "the first gathering hides behind nothing", HIDDEN),
    **FSDP,
)
def exposed_forward_pass_time(
    dp_overlap: Array,
    layer_gather_time: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    leading_share: Array,
    layer_compute_forward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a forward exposes that gathers each layer's weights."""
    between = np.maximum(middle_layers - 1.0, 0.0)
    sent = layer_gather_time + (ends_gather_time + between * layer_gather_time)
    first = leading_share * ends_gather_time + layer_gather_time
    late = first + between * np.maximum(layer_gather_time - layer_compute_forward_time, 0.0)
    return _exposed(sent, late, dp_overlap, overlap_contention)


@formula(
    returns="exposed_gather_pass_time",
    expression=_stated(GATHERED, f"({BETWEEN}*maximum({G} - {B}, 0))"),
    assumes=(AHEAD, "the first layer's weights are kept from the forward", HIDDEN),
    **FSDP,
)
def exposed_gather_pass_time(
    dp_overlap: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    layer_gather_time: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that gathers each layer's weights, and reduces nothing."""
    between = np.maximum(middle_layers - 1.0, 0.0)
    sent = ends_gather_time + between * layer_gather_time
    late = between * np.maximum(layer_gather_time - layer_compute_backward_time, 0.0)
    return _exposed(sent, late, dp_overlap, overlap_contention)


@formula(
    returns="exposed_reduce_pass_time",
    expression=_stated(REDUCED, f"({LAST} + {BETWEEN}*maximum({R} - {B}, 0))"),
    assumes=("the last reduction hides behind nothing", HIDDEN),
    **FSDP,
)
def exposed_reduce_pass_time(
    dp_overlap: Array,
    ends_reduce_time: Array,
    layer_reduce_time: Array,
    middle_layers: Array,
    leading_share: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that reduces each layer's gradients, and gathers nothing."""
    between = np.maximum(middle_layers - 1.0, 0.0)
    sent = ends_reduce_time + (layer_reduce_time + between * layer_reduce_time)
    last = leading_share * ends_reduce_time + layer_reduce_time
    late = last + between * np.maximum(layer_reduce_time - layer_compute_backward_time, 0.0)
    return _exposed(sent, late, dp_overlap, overlap_contention)


@formula(
    returns="exposed_backward_pass_time",
    expression=_stated(
        f"({GATHERED} + {REDUCED})",
        f"({LAST} + {INNER}*maximum({G} + {R} - {B}, 0)"
        f" + ({BETWEEN} - {INNER})*(maximum({G} - {B}, 0) + maximum({R} - {B}, 0)))",
    ),
    assumes=(
        AHEAD,
        "the first layer's weights are kept from the forward",
        "gathering and reduction share the network; beside the first layer nothing is reduced, "
        "beside the last nothing gathered",
        HIDDEN,
    ),
    **FSDP,
)
def exposed_backward_pass_time(
    dp_overlap: Array,
    ends_gather_time: Array,
    middle_layers: Array,
    layer_gather_time: Array,
    ends_reduce_time: Array,
    layer_reduce_time: Array,
    leading_share: Array,
    layer_compute_backward_time: Array,
    overlap_contention: Array,
) -> Array:
    """What a backward exposes that gathers each layer's weights and reduces its gradients."""
    gather, reduce, compute = layer_gather_time, layer_reduce_time, layer_compute_backward_time
    between = np.maximum(middle_layers - 1.0, 0.0)
    inner = np.maximum(middle_layers - 2.0, 0.0)
    sent = (ends_gather_time + between * gather) + (ends_reduce_time + (reduce + between * reduce))
    late = leading_share * ends_reduce_time + reduce
    late = late + inner * np.maximum(gather + reduce - compute, 0.0)
    ends = np.maximum(gather - compute, 0.0) + np.maximum(reduce - compute, 0.0)
    return _exposed(sent, late + (between - inner) * ends, dp_overlap, overlap_contention)


# A step.


@formula(
    returns="paired_passes",
    expression="minimum(backward_gathers, gradient_reductions)",
    ufunc=np.minimum,
    **FSDP,
)
def paired_passes(backward_gathers: Array, gradient_reductions: Array) -> Array:
    """Backwards of a step that gather weights and reduce gradients."""
    return np.minimum(backward_gathers, gradient_reductions)


@formula(
    returns="gather_passes",
    expression="maximum(backward_gathers - gradient_reductions, 0)",
    **FSDP,
)
def gather_passes(backward_gathers: Array, gradient_reductions: Array) -> Array:
    """Backwards of a step that gather weights alone."""
    return np.maximum(backward_gathers - gradient_reductions, 0.0)


@formula(
    returns="reduce_passes",
    expression="maximum(gradient_reductions - backward_gathers, 0)",
    **FSDP,
)
def reduce_passes(gradient_reductions: Array, backward_gathers: Array) -> Array:
    """Backwards of a step that reduce gradients alone."""
    return np.maximum(gradient_reductions - backward_gathers, 0.0)


@formula(
    returns="exposed_sharded_time",
    expression="forward_gathers*exposed_forward_pass_time"
    " + paired_passes*exposed_backward_pass_time + gather_passes*exposed_gather_pass_time"
    " + reduce_passes*exposed_reduce_pass_time",
    assumes=(
        "micro-batches hide nothing of one another's",
        "what two ranks hold (DualPipe) isn't sharded in stage 3",
    ),
    **FSDP,
)
def exposed_sharded_time(
    forward_gathers: Array,
    exposed_forward_pass_time: Array,
    paired_passes: Array,
    exposed_backward_pass_time: Array,
    gather_passes: Array,
    exposed_gather_pass_time: Array,
    reduce_passes: Array,
    exposed_reduce_pass_time: Array,
) -> Array:
    """Gathering and reduction of stage 3 of ZeRO that nothing hides, in a step."""
    whole = forward_gathers * exposed_forward_pass_time
    whole = whole + paired_passes * exposed_backward_pass_time
    whole = whole + gather_passes * exposed_gather_pass_time
    return whole + reduce_passes * exposed_reduce_pass_time
