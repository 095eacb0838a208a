"""Which part of a layer's communication its computing doesn't hide, by dimension.

The caller says which share of a dimension's communication hides (``tp_overlap`` and so on); no
more hides than there is computing to hide behind, so that both together never take less time than
the longer of the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.compute.declare import declare
from overhead.compute.sources import WANG
from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities

__all__ = ["exposed", "quantities", "tp_hidden_share"]

BOUND: dict[str, Any] = {
    "source": WANG,
    "where": "section 4, the benefit of overlapping",
    "assumes": ("the share that hides is given", "at most as much hides as is computed meanwhile"),
}


def exposed(time: Array, overlap: Array, computing: Array) -> Array:
    """Return which part of a time isn't hidden."""
    return np.maximum(np.maximum((1.0 - overlap) * time, time - computing), 0.0)


def _text(time: str, overlap: str, computing: str) -> str:
    return f"maximum(maximum((1 - {overlap})*{time}, {time} - {computing}), 0)"


# Tensor parallelism hides behind a layer's products.  Inputs that are gathered again travel while
# the products of the inputs' gradients run, which don't need them (Megatron-LM).


@formula(
    returns="tp_hidden_share",
    expression="where(sequence_parallel > 0, tp_overlap, tp_whole_overlap)",
    source="megatron",
    where="megatron/core/model_parallel_config.py: tp_comm_overlap needs sequence parallelism",
)
def tp_hidden_share(sequence_parallel: Array, tp_overlap: Array, tp_whole_overlap: Array) -> Array:
    """Share of tensor parallelism's communication that hides, with a split sequence or a whole."""
    return np.where(sequence_parallel > 0.0, tp_overlap, tp_whole_overlap)


REPEATED = {"recompute": "full|full_early_stop|per_op"}


def _tp_backward(
    time: Array, gather: Array, overlap: Array, inputs: Array, weights: Array
) -> Array:
    return exposed(time, overlap, inputs + weights) + np.maximum(gather - inputs, 0.0)


def _tp_backward_again(
    time: Array,
    gather: Array,
    overlap: Array,
    inputs: Array,
    weights: Array,
    again: Array,
    forward: Array,
) -> Array:
    once = _tp_backward(time, gather, overlap, inputs, weights)
    return once + exposed(again, overlap, forward)


def _tensor(of: str, layer: str) -> None:
    """Declare what tensor parallelism exposes in layers of one class."""
    forward = f"{of}_layer_matmul_forward_time"
    inputs, weights = f"{of}_layer_input_gradient_time", f"{of}_layer_weight_gradient_time"
    time, again = f"{layer}_forward_time", f"{layer}_recompute_time"
    text = _text(time, "tp_hidden_share", forward)
    taken: tuple[str, ...] = (time, "tp_hidden_share", forward)
    declare(f"{of}_exposed_tp_forward_time", taken, text, exposed, **BOUND)

    time, gather = f"{layer}_backward_time", f"{layer}_gather_time"
    taken = (time, gather, "tp_hidden_share", inputs, weights)
    text = _text(time, "tp_hidden_share", f"({inputs} + {weights})")
    text = f"{text} + maximum({gather} - {inputs}, 0)"
    declare(f"{of}_exposed_tp_backward_time", taken, text, _tp_backward, **BOUND)
    declare(
        f"{of}_exposed_tp_backward_time",
        (*taken, again, forward),
        f"{text} + {_text(again, 'tp_hidden_share', forward)}",
        _tp_backward_again,
        when=REPEATED,
        **BOUND,
    )


_tensor("dense", "tp_layer")
_tensor("moe", "tp_moe_layer")


# Context parallelism hides behind scores and values; in a ring, behind all blocks but one.

RING = {"context_parallel": "ring"}
REPEATED_ATTENTION = {"recompute": "selective|full|full_early_stop"}


def _more(time: Array, overlap: Array, computing: Array, again: Array) -> Array:
    return exposed(time, overlap, computing + again)


def _ring(time: Array, overlap: Array, computing: Array, cp: Array) -> Array:
    return exposed(time, overlap, computing * (1.0 - 1.0 / cp))


def _ring_more(time: Array, overlap: Array, computing: Array, again: Array, cp: Array) -> Array:
    return _ring(time, overlap, computing + again, cp)


def _context() -> None:
    """Declare what context parallelism exposes; its backward holds what is repeated."""
    forward = ("cp_layer_forward_time", "cp_overlap", "attention_forward_time")
    backward = ("cp_layer_backward_time", "cp_overlap", "attention_backward_time")
    both = (*backward, forward[2])
    one, name = "exposed_cp_forward_time", "exposed_cp_backward_time"
    behind = f"({backward[2]} + {forward[2]})"
    declare(one, forward, _text(*forward), exposed, **BOUND)
    declare(name, backward, _text(*backward), exposed, **BOUND)
    again = REPEATED_ATTENTION
    declare(name, both, _text(*backward[:2], behind), _more, when=again, **BOUND)

    part = "*(1 - 1/cp)"
    text = _text(*forward[:2], forward[2] + part)
    declare(one, (*forward, "cp"), text, _ring, when=RING, **BOUND)
    text = _text(*backward[:2], backward[2] + part)
    declare(name, (*backward, "cp"), text, _ring, when=RING, **BOUND)
    text = _text(*backward[:2], behind + part)
    declare(name, (*both, "cp"), text, _ring_more, when={**RING, **again}, **BOUND)


_context()


# Expert parallelism hides behind a layer's products: of another micro-batch, or of shared experts.


def _ep_backward(time: Array, overlap: Array, inputs: Array, weights: Array) -> Array:
    return exposed(time, overlap, inputs + weights)


def _ep_backward_more(
    time: Array, overlap: Array, inputs: Array, weights: Array, forward: Array
) -> Array:
    return exposed(time, overlap, inputs + weights + forward)


def _expert() -> None:
    """Declare what expert parallelism exposes; its backward holds what is repeated."""
    forward = ("ep_layer_forward_time", "ep_overlap", "moe_layer_matmul_forward_time")
    inputs, weights = "moe_layer_input_gradient_time", "moe_layer_weight_gradient_time"
    backward = ("ep_layer_backward_time", "ep_overlap")
    declare("exposed_ep_forward_time", forward, _text(*forward), exposed, **BOUND)
    name, taken = "exposed_ep_backward_time", (*backward, inputs, weights)
    text = _text(*backward, f"({inputs} + {weights})")
    declare(name, taken, text, _ep_backward, **BOUND)
    text = _text(*backward, f"({inputs} + {weights} + {forward[2]})")
    declare(name, (*taken, forward[2]), text, _ep_backward_more, when=REPEATED, **BOUND)


_expert()
