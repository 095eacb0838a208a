"""Expert parallelism: tokens to their experts and back, in each direction of a step.

A token goes to each of its experts.  What is dispatched may be narrower than what is combined; the
backward dispatches the gradients of what was combined, and combines those of what was dispatched.
Where an expert is split, its ranks gather what they were sent, and reduce and scatter its results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.communication import passes
from overhead.communication.operation import operation
from overhead.formula import formula
from overhead.memory import activations
from overhead.quantity import Array, define
from overhead.sums import product

__all__ = ["activations", "dispatch_bytes", "passes", "routed_elements"]

DISPATCHER: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/transformer/moe/token_dispatcher.py",
}
NARROW: dict[str, Any] = {"source": "deepseekv3", "where": "section 3.3.3"}
UNKNOWN = {"shapes": "unknown"}
BUSIEST = "all ranks wait for the one whose experts have most tokens"

define("routed_elements", r"n_\mathrm{route}", "1",
       "activations of a rank's part of a micro-batch's tokens, a copy for each of their experts, "
       "on the busiest rank", minimum=0)  # fmt: skip
define("routed_share", r"q_\mathrm{route}", "1",
       "what is sent to experts, mean by most, over stages and ranks", minimum=0)  # fmt: skip
for _name, _mark, _meaning in (
    ("dispatch_message_bytes", "ed", "what a rank dispatches to experts"),
    ("combine_message_bytes", "ec", "what a rank combines from experts"),
    ("etp_gather_bytes", "tg", "what the ranks of a split expert gather"),
    ("etp_scatter_bytes", "ts", "what the ranks of a split expert reduce and scatter"),
):
    define(_name, f"M_{{{_mark}}}", "byte", f"{_meaning}, of one micro-batch and layer", minimum=0)


@formula(returns="dispatch_bytes", expression="1*communication_bytes", **NARROW)
def dispatch_bytes(communication_bytes: Array) -> Array:
    """Bytes of an activation on its way to an expert: as of any other, unless given."""
    return 1.0 * communication_bytes


@formula(
    returns="routed_elements",
    expression="rank_tokens*experts_per_token*hidden_size*expert_imbalance/tp",
    assumes=("tensor parallelism splits the sequence where there are experts", BUSIEST),
    **DISPATCHER,
)
def routed_elements(
    rank_tokens: Array,
    experts_per_token: Array,
    hidden_size: Array,
    expert_imbalance: Array,
    tp: Array,
) -> Array:
    """Activations that a rank sends to experts, by the busiest rank."""
    return rank_tokens * experts_per_token * hidden_size * expert_imbalance / tp


@formula(
    returns="routed_elements",
    expression="0*tp",
    assumes=("shapes aren't known: there are no experts",),
    when=UNKNOWN,
    **DISPATCHER,
)
def no_routed_elements(tp: Array) -> Array:
    """Activations that a rank sends to experts: none are known."""
    return 0.0 * tp


@formula(
    returns="routed_share",
    expression="moe_share/expert_imbalance",
    source="derivation",
    assumes=("what the busiest rank gets too much, others get too little",),
    ufunc=np.true_divide,
)
def routed_share(moe_share: Array, expert_imbalance: Array) -> Array:
    """What is sent to experts, mean by most: over stages and over ranks."""
    return moe_share / expert_imbalance


for _returns, _element in (
    ("dispatch_message_bytes", "dispatch_bytes"),
    ("combine_message_bytes", "communication_bytes"),
):
    product(_returns, (_element, "routed_elements"), **DISPATCHER)
for _returns, _message in (
    ("etp_gather_bytes", "dispatch_message_bytes"),
    ("etp_scatter_bytes", "combine_message_bytes"),
):
    product(_returns, ("etp", _message), **DISPATCHER)

EP: dict[str, Any] = {"dimension": "ep", "share": "routed_share"}
for _name, _words, _group, _collective, _message in (
    ("ep_dispatch", "tokens to experts", "ep", "all_to_all", "dispatch_message_bytes"),
    ("ep_combine", "experts' results", "ep", "all_to_all", "combine_message_bytes"),
    ("etp_all_gather", "a split expert's tokens", "etp", "all_gather", "etp_gather_bytes"),
    ("etp_reduce_scatter", "a split expert's results", "etp", "reduce_scatter",
     "etp_scatter_bytes"),
):  # fmt: skip
    operation(
        _name,
        f"{_collective} of {_words}",
        group=_group,
        collective=_collective,
        message=_message,
        **EP,
    )
    for _way, _times in (("forward", "micro_batches"), ("backward", "returning_exchanges")):
        product(f"{_name}_{_way}_count", (_times, f"{_group}_layers"), **DISPATCHER)


# One layer and micro-batch.

for _way, _mark, _words in (
    ("forward", "f", "forward"),
    ("backward", "b", "backward, without what it repeats of the forward"),
):
    define(
        f"ep_layer_{_way}_time",
        rf"\tau_{{e{_mark}}}",
        "s",
        f"time of expert-parallel communication: {_words} of a layer, one micro-batch",
        minimum=0,
    )


@formula(
    returns="ep_layer_forward_time",
    expression="where(experts > 0, ep_dispatch_time + ep_combine_time + etp_all_gather_time"
    " + etp_reduce_scatter_time, 0)",
    **DISPATCHER,
)
def ep_layer_forward_time(
    experts: Array,
    ep_dispatch_time: Array,
    ep_combine_time: Array,
    etp_all_gather_time: Array,
    etp_reduce_scatter_time: Array,
) -> Array:
    """Time of expert-parallel communication in a layer's forward; none where there are none."""
    split = etp_all_gather_time + etp_reduce_scatter_time
    return np.where(experts > 0.0, ep_dispatch_time + ep_combine_time + split, 0.0)


@formula(
    returns="ep_layer_backward_time",
    expression="1*ep_layer_forward_time",
    **DISPATCHER,
)
def ep_layer_backward_time(ep_layer_forward_time: Array) -> Array:
    """Time of expert-parallel communication in a layer's backward: that of its forward."""
    return 1.0 * ep_layer_forward_time


@formula(
    returns="ep_layer_forward_time",
    expression="0*ep_dispatch_time",
    assumes=("shapes aren't known: there are no experts",),
    when=UNKNOWN,
    **DISPATCHER,
)
def no_ep_layer_forward_time(ep_dispatch_time: Array) -> Array:
    """Time of expert-parallel communication in a layer's forward: there are no experts."""
    return 0.0 * ep_dispatch_time
