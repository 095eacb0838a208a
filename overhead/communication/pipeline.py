"""Pipeline parallelism: activations from stage to stage, and their gradients back.

A micro-batch passes pp*virtual_stages - 1 boundaries in each direction.  A rank between the ends
sends, and receives, one message a virtual stage, micro-batch and direction; where there are two
stages, one of either's messages has nowhere to go.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import declared, on_network, operation
from overhead.formula import formula, product
from overhead.quantity import Array, define

STAGES: dict[str, Any] = {"source": "narayanan2021", "where": "section 2.2"}
GATHERED: dict[str, Any] = {"source": "narayanan2021", "where": "section 4.1"}

define("pp_message_bytes", "M_p", "byte", "what a rank sends to the next stage", minimum=0)
define("pp_inner_energy", r"e_{\mathrm{p,in}}", "J",
       "energy of a transfer between stages in one node", minimum=0)  # fmt: skip
define("gathered_at_stages", r"\chi_g", "1",
       "whether what a stage receives in parts is gathered", minimum=0, maximum=1)  # fmt: skip
define("pp_share", r"q_{\mathrm{pp}}", "1", "messages that stages receive, mean by most",
       minimum=0)  # fmt: skip


@formula(**GATHERED)
def pp_message_bytes(
    tp_message_bytes: Array, sequence_parallel: Array, scatter_gather: Array, tp: Array
) -> Array:
    """What a rank sends to the next stage: its part, if activations are split, else the whole."""
    return tp_message_bytes / xp.where(sequence_parallel + scatter_gather > 0.0, tp, 1.0)


@formula(**GATHERED)
def gathered_at_stages(tp: Array, scatter_gather: Array, sequence_whole: Array) -> Array:
    """Whether what a stage receives in parts is gathered: with sequence parallelism it isn't."""
    return xp.where(tp > 1.0, scatter_gather * sequence_whole, 0.0)


@formula(**STAGES)
def pp_share(pp: Array, virtual_stages: Array) -> Array:
    """Messages that stages receive, mean by most: nobody sends to the first chunk."""
    return (pp * virtual_stages - 1.0) / (pp * virtual_stages)


operation(
    "pp_transfer",
    "p2p of activations, or their gradients, to a neighbouring stage",
    dimension="pp",
    group="boundary",
    collective="p2p",
    message="pp_message_bytes",
    own=("volume", "total_energy"),
)
operation(
    "pp_gather",
    "all_gather of what a stage received in parts",
    dimension="pp",
    group="tp",
    collective="all_gather",
    message="tp_message_bytes",
    share="pp_share",
)
on_network("pp_inner_energy", "energy", "inner_boundary", "p2p", "pp_message_bytes")


@formula(**STAGES)
def pp_transfer_forward_count(pp: Array, virtual_stages: Array, micro_batches: Array) -> Array:
    """How often a rank sends to the next stage: once a virtual stage and micro-batch."""
    return xp.where(pp > 1.0, virtual_stages * micro_batches, 0.0)


product("pp_transfer_backward_count", ("has_backward", "pp_transfer_forward_count"), **STAGES)
product("pp_gather_forward_count", ("gathered_at_stages", "pp_transfer_forward_count"), **GATHERED)
product(
    "pp_gather_backward_count", ("gathered_at_stages", "pp_transfer_backward_count"), **GATHERED
)

BOTH = "pp_transfer_forward_count + pp_transfer_backward_count"


@formula(**STAGES)
def pp_transfer_volume(
    pp_transfer_sent_bytes: Array,
    pp: Array,
    pp_transfer_forward_count: Array,
    pp_transfer_backward_count: Array,
    micro_batches: Array,
) -> Array:
    """Most bytes that a rank sends to its neighbours in a step."""
    both = pp_transfer_forward_count + pp_transfer_backward_count
    two = xp.maximum(both - micro_batches, pp_transfer_forward_count)
    return pp_transfer_sent_bytes * xp.where(pp > 2.0, both, two)


@formula(source="derivation")
def pp_transfer_total_energy(
    tp: Array,
    cp: Array,
    dp: Array,
    micro_batches: Array,
    has_backward: Array,
    node_boundaries: Array,
    virtual_stages: Array,
    pp_transfer_energy: Array,
    pp: Array,
    pp_inner_energy: Array,
) -> Array:
    """Energy of all pipelines' transfers in a step, those between nodes and those inside."""
    # Boundaries between nodes on a micro-batch's way through all virtual stages; from one to the
    # next it goes from the last stage back to the first.
    crossing = virtual_stages * (node_boundaries + 1.0) - 1.0
    across = xp.where(node_boundaries > 0.0, crossing, 0.0)
    inside = xp.maximum(pp * virtual_stages - 1.0 - across, 0.0)
    ways = tp * cp * dp * micro_batches * (1.0 + has_backward)
    return ways * (across * pp_transfer_energy + inside * pp_inner_energy)


@formula(assumes=("all boundaries take as long as one between nodes, if there is any",), **GATHERED)
def p2p_time(pp_transfer_time: Array, gathered_at_stages: Array, pp_gather_time: Array) -> Array:
    """Time of one transfer between neighbouring stages, until the next can begin."""
    return pp_transfer_time + gathered_at_stages * pp_gather_time


OPERATIONS = declared("pp")
