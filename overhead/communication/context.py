"""Context parallelism: ranks that each hold a part of the sequences exchange for attention.

By all_to_all (Ulysses) each gets all tokens of some heads, and gives the result back; that is what
holds unless the label ``context_parallel`` says otherwise.  In a ring keys and values go from rank
to rank, in the backward with their gradients.  By all_gather each gets all keys and values, and
their gradients are reduced and scattered.  Mixed, neighbours exchange heads for tokens, and what
they then hold goes round rings of such groups.  Layers of linear attention exchange heads for
tokens.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import WAYS, added, on_network, operation, times
from overhead.formula import cited, derived, formula

ULYSSES = cited("jacobs2023", "section 3.1")
RING = cited("liu2023", "section 3")
GATHER = cited("grattafiori2024", "section 3.3.2")
# Mixed exchanges within groups of ranks and goes round rings of such groups; the others are its
# ends: one group of all (`cp_exchange_ranks` is cp), or groups of one rank.
EXCHANGED = {"context_parallel": "all_to_all|mixed"}
ROUND = {"context_parallel": "ring|mixed"}
GATHERED = {"context_parallel": "all_gather"}
BOTH = cited(
    "megatron",
    "megatron/core/model_parallel_config.py, hierarchical_context_parallel_sizes with"
    " cp_comm_type a2a+p2p",
)
LATENT = "of latent attention, whose keys and values differ in size, their mean"


@formula(assumes=(LATENT,), **ULYSSES)
def cp_query_bytes(communication_bytes, rank_tokens, heads, tp, query_head_size, value_head_size):
    """Queries, or attention output, of a micro-batch per rank."""
    head = (query_head_size + value_head_size) / 2.0
    return communication_bytes * rank_tokens * (heads / tp) * head


@formula(assumes=(LATENT,), **ULYSSES)
def cp_key_value_bytes(
    communication_bytes, rank_tokens, rank_kv_heads, query_head_size, value_head_size
):
    """Keys, or values, of a micro-batch per rank."""
    head = (query_head_size + value_head_size) / 2.0
    return communication_bytes * rank_tokens * rank_kv_heads * head


@formula(**RING)
def cp_ring_bytes(cp_key_value_bytes):
    """Keys and values of a micro-batch per rank."""
    return 2.0 * cp_key_value_bytes


@formula(
    returns="cp_gather_bytes",
    source="megatron",
    where="megatron/core/transformer/experimental_attention_variant/dsa.py",
    when={"selection": "indexed"},
    assumes=("latent attention selects among latent vectors shared by all heads",),
)
def indexed_gather_bytes(
    cp,
    cp_ring_bytes,
    communication_bytes,
    rank_tokens,
    kv_lora_rank,
    qk_rope_head_size,
    index_heads,
    indexer_fraction,
    index_head_size,
):
    """What tokens are selected among, of all tokens of a micro-batch, with the indexer's keys."""
    latent = communication_bytes * rank_tokens * (kv_lora_rank + qk_rope_head_size)
    key_bytes = xp.where((kv_lora_rank > 0.0) & (index_heads > 0.0), latent, cp_ring_bytes)
    return cp * (key_bytes + communication_bytes * rank_tokens * indexer_fraction * index_head_size)


CP: dict[str, Any] = {
    "dimension": "cp",
    "each": ("max_stage_layers", "attention_layer_fraction"),
    "share": "stage_layer_balance",
}
# Both ways two messages of queries' size, and two of keys'.
EXCHANGE: dict[str, Any] = {
    **CP,
    **ULYSSES,
    "group": "cp_inner",
    "forward": (2.0,),
    "backward": (2.0,),
    "repeated": "recomputed_attentions",
    "when": EXCHANGED,
}
for _of, _words in (("query", "queries or attention outputs"), ("key_value", "keys or values")):
    _title = f"all-to-all of CP {_words}"
    operation(f"cp_{_of}_all_to_all", _title, "all_to_all", f"cp_{_of}_bytes", **EXCHANGE)
operation(
    "cp_ring",
    "ring send/recv of CP keys and values",
    "p2p",
    "cp_ring_bytes",
    group="cp_ring",
    of="cp",
    forward=("ring_steps",),
    backward=("ring_backward_steps",),
    repeated="recomputed_attentions",
    own=("energy",),
    when=ROUND,
    **CP,
    **RING,
)
operation(
    "cp_all_gather",
    "all-gather of CP keys and values",
    "all_gather",
    "cp_gather_bytes",
    group="cp",
    forward=(1.0,),
    backward=("key_gathers",),
    repeated="recomputed_attentions",
    when=GATHERED,
    **CP,
    **GATHER,
)
operation(
    "cp_reduce_scatter",
    "reduce-scatter of CP key and value gradients",
    "reduce_scatter",
    "cp_gather_bytes",
    group="cp",
    backward=(1.0,),
    when=GATHERED,
    **CP,
    **GATHER,
)


# Linear attention scans whole sequences: ranks exchange heads for tokens, whatever attention does.

SCANS = cited(
    "megatron",
    "megatron/core/ssm/mamba_context_parallel.py @00caa53af3 and gated_delta_net/common.py,"
    " tensor_a2a_cp2hp",
)
HYBRID = {"mixers": "hybrid"}


@formula(
    assumes=(
        "one message of all parts",
        "of Mamba-2 each rank gets the groups of states that its heads have",
    ),
    **SCANS,
)
def cp_scan_input_bytes(
    communication_bytes,
    rank_tokens,
    linear_in_width,
    tp,
    mamba,
    linear_key_size,
    cp,
    linear_key_heads,
):
    """Linear-attention scan inputs of a micro-batch per rank."""
    copies = xp.maximum(cp * tp - linear_key_heads, 0.0)
    width = linear_in_width + 2.0 * mamba * linear_key_size * copies
    return communication_bytes * rank_tokens * width / tp


@formula(**SCANS)
def cp_scan_output_bytes(communication_bytes, rank_tokens, linear_out_width, tp):
    """Linear-attention scan outputs of a micro-batch per rank."""
    return communication_bytes * rank_tokens * linear_out_width / tp


for _part in ("input", "output"):
    operation(
        f"cp_scan_{_part}_all_to_all",
        f"all-to-all of CP linear-attention {_part}s",
        "all_to_all",
        f"cp_scan_{_part}_bytes",
        dimension="cp",
        group="cp",
        forward=(1.0,),
        backward=(1.0,),
        repeated="recomputed_fraction",
        each=("max_stage_layers", "linear_attention_fraction"),
        share="stage_layer_balance",
        when=HYBRID,
        **SCANS,
    )


@formula(**GATHER)
def key_gathers(kept_keys):
    """CP all-gathers of keys and values per layer, backward: one, unless they are saved."""
    return 1.0 - kept_keys


# Energy of a ring's step: as many of its messages as it spans nodes leave one.
on_network("cp_hop_energy", "energy", "cp_ring", "p2p", "cp_ring_bytes")
on_network("cp_inner_energy", "energy", "inner_ring", "p2p", "cp_ring_bytes")


@derived()
def cp_ring_energy(cp_nodes, cp, cp_exchange_ranks, cp_hop_energy, cp_inner_energy):
    """Energy of one step of rings of groups that exchange heads, each rank sending a message."""
    leaving = xp.where(cp_nodes > 1.0, xp.minimum(cp_exchange_ranks * cp_nodes, cp), 0.0)
    return leaving * cp_hop_energy + (cp - leaving) * cp_inner_energy


# How often a rank of a ring sends.


@formula(when=ROUND, **BOTH)
def ring_ranks(cp, cp_exchange_ranks):
    """Ranks of a context-parallel group that are in one ring: one of each group that exchanges."""
    return xp.ceil(cp / cp_exchange_ranks)


@formula(**RING)
def ring_steps(ring_ranks):
    """Messages per rank and ring pass of keys and values: to all others sequentially."""
    return ring_ranks - 1.0


@formula(
    source="transformerengine",
    where="transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py",
    assumes=("keys and values travel around the ring with their gradients",),
)
def ring_backward_steps(ring_ranks, ring_return):
    """Messages per rank and backward pass: keys and values, and their gradients."""
    return xp.where(ring_ranks > 1.0, 2.0 * (ring_ranks - 1.0 + ring_return), 0.0)


# One layer and micro-batch: heads for tokens and back, or gathers; and what goes round rings.

ATTENDING, SCANNING = ("attention_layer_fraction",), ("linear_attention_fraction",)
SCANNED = ("cp_scan_input_all_to_all", "cp_scan_output_all_to_all")
for _way in WAYS:
    added(f"cp_scan_{_way}_time", times(SCANNED, _way, factors=SCANNING), when=HYBRID, **SCANS)
    for _kind, _part, _names, _said in (
        (EXCHANGED, "exchange", ("cp_query_all_to_all", "cp_key_value_all_to_all"), ULYSSES),
        (GATHERED, "exchange", ("cp_all_gather", "cp_reduce_scatter"), GATHER),
        (ROUND, "round", ("cp_ring",), RING),
    ):
        _terms = times(_names, _way, factors=ATTENDING)
        added(f"cp_{_part}_{_way}_time", _terms, when=_kind, **_said)
