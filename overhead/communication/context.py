"""Context parallelism: ranks that each hold a part of the sequences exchange for attention.

By all_to_all (Ulysses) each gets all tokens of some heads, and gives the result back; that is what
holds unless the label ``context_parallel`` says otherwise.  In a ring keys and values go from rank
to rank, in the backward with their gradients.  By all_gather each gets all keys and values, and
their gradients are reduced and scattered.  Mixed, neighbours exchange heads for tokens, and what
they then hold goes round rings of such groups.
"""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import declared, never, on_network, operation
from overhead.formula import alias, derived, formula, product, total
from overhead.quantity import Array

ULYSSES: dict[str, Any] = {"source": "jacobs2023", "where": "section 3.1"}
RING: dict[str, Any] = {"source": "liu2023", "where": "section 3"}
GATHER: dict[str, Any] = {"source": "grattafiori2024", "where": "section 3.3.2"}
UNKNOWN = {"shapes": "unknown"}
ROUND = {"context_parallel": "ring"}
GATHERED = {"context_parallel": "all_gather"}
MIXED = {"context_parallel": "mixed"}
BOTH: dict[str, Any] = {
    "source": "megatron",
    "where": "megatron/core/model_parallel_config.py, hierarchical_context_parallel_sizes with"
    " cp_comm_type a2a+p2p",
}
LATENT = "of latent attention, whose keys and values differ in size, their mean"


@formula(assumes=(LATENT,), **ULYSSES)
def cp_query_bytes(
    communication_bytes: Array,
    rank_tokens: Array,
    heads: Array,
    tp: Array,
    query_head_size: Array,
    value_head_size: Array,
) -> Array:
    """Queries of a micro-batch's tokens on a rank, or what attention gives for them."""
    head = (query_head_size + value_head_size) / 2.0
    return communication_bytes * rank_tokens * (heads / tp) * head


@formula(assumes=(LATENT,), **ULYSSES)
def cp_key_value_bytes(
    communication_bytes: Array,
    rank_tokens: Array,
    rank_kv_heads: Array,
    query_head_size: Array,
    value_head_size: Array,
) -> Array:
    """Keys of a micro-batch's tokens on a rank, or values."""
    head = (query_head_size + value_head_size) / 2.0
    return communication_bytes * rank_tokens * rank_kv_heads * head


def _hidden(tp_message_bytes: Array, tp: Array) -> Array:
    """A rank's part of the activations of a micro-batch's tokens."""
    return tp_message_bytes / tp


for _name in ("cp_query_bytes", "cp_key_value_bytes"):
    formula(
        returns=_name,
        assumes=("heads aren't known: they make up the hidden size, each with keys and values",),
        when=UNKNOWN,
        inputs=("tp_message_bytes", "tp"),
        name=f"{_name}_of_hidden",
        **ULYSSES,
    )(_hidden)


@formula(**RING)
def cp_ring_bytes(cp_key_value_bytes: Array) -> Array:
    """Keys and values of a micro-batch's tokens on a rank."""
    return 2.0 * cp_key_value_bytes


product("cp_gather_bytes", ("cp", "cp_ring_bytes"),
        "Keys and values of all tokens of a micro-batch, for a rank's heads", **GATHER)  # fmt: skip


@formula(
    returns="cp_gather_bytes",
    source="megatron",
    where="megatron/core/transformer/experimental_attention_variant/dsa.py",
    when={"selection": "indexed"},
    assumes=("latent attention selects among latent vectors, one for all heads of a token",),
)
def indexed_gather_bytes(
    cp: Array,
    cp_ring_bytes: Array,
    communication_bytes: Array,
    rank_tokens: Array,
    kv_rank: Array,
    head_size_rope: Array,
    index_heads: Array,
    index_share: Array,
    index_head_size: Array,
) -> Array:
    """What tokens are selected among, of all tokens of a micro-batch, with the indexer's keys."""
    latent = communication_bytes * rank_tokens * (kv_rank + head_size_rope)
    own = xp.where((kv_rank > 0.0) & (index_heads > 0.0), latent, cp_ring_bytes)
    return cp * (own + communication_bytes * rank_tokens * index_share * index_head_size)


CP: dict[str, Any] = {"dimension": "cp", "share": "layer_share"}
for _all_to_all, _when, _within, _ring, _group, _round, _words in (
    ("cp", {"context_parallel": "all_to_all"}, "", "cp_ring", "cp_ring", ROUND,
     "keys and values, or of their gradients, to the next rank of the ring"),
    ("cp_inner", MIXED, ", within a ring's place", "cp_outer_ring", "cp_outer", MIXED,
     "some heads' keys and values, or of their gradients, to the ring's next place"),
):  # fmt: skip
    for _what, _of in (
        ("query", "queries, or of what attention gives"), ("key_value", "keys or values"),
    ):  # fmt: skip
        operation(
            f"{_all_to_all}_{_what}_all_to_all", f"all_to_all of {_of}{_within}",
            group=_all_to_all, collective="all_to_all", message=f"cp_{_what}_bytes", when=_when,
            **CP,
        )  # fmt: skip
    operation(
        _ring, f"p2p of {_words}", group=_group, collective="p2p", message="cp_ring_bytes",
        of="cp", when=_round, own=("energy",), **CP,
    )  # fmt: skip
for _collective, _words in (
    ("all_gather", "keys and values"),
    ("reduce_scatter", "gradients of keys and values"),
):
    operation(
        f"cp_{_collective}",
        f"{_collective} of {_words}",
        group="cp",
        collective=_collective,
        message="cp_gather_bytes",
        when=GATHERED,
        **CP,
    )

# Energy of a ring's step: as many of its messages as it spans nodes leave one.
on_network("cp_hop_energy", "energy", "cp_ring", "p2p", "cp_ring_bytes")
on_network("cp_inner_energy", "energy", "inner_ring", "p2p", "cp_ring_bytes")


@derived()
def cp_ring_energy(
    cp_nodes: Array, cp: Array, cp_hop_energy: Array, cp_inner_energy: Array
) -> Array:
    """Energy of one step of a ring, in which each of its ranks sends a message."""
    leaving = xp.where(cp_nodes > 1.0, xp.minimum(cp_nodes, cp), 0.0)
    return leaving * cp_hop_energy + (cp - leaving) * cp_inner_energy


@derived()
def cp_outer_ring_energy(
    cp_nodes: Array, cp: Array, ulysses_ranks: Array, cp_hop_energy: Array, cp_inner_energy: Array
) -> Array:
    """Energy of one step of rings of groups, in which each rank sends a message."""
    leaving = xp.where(cp_nodes > 1.0, xp.minimum(ulysses_ranks * cp_nodes, cp), 0.0)
    return leaving * cp_hop_energy + (cp - leaving) * cp_inner_energy


# Counts: two messages of queries' size and two of keys' each way, by all_to_all.


@formula(**BOTH)
def exchanging_layers(ulysses_ranks: Array, cp_layers: Array) -> Array:
    """Layers whose groups exchange heads for tokens: none where a group is one rank."""
    return xp.where(ulysses_ranks > 1.0, cp_layers, 0.0)


BY_ALL_TO_ALL = ("cp_query_all_to_all", "cp_key_value_all_to_all")


def _twice(times: Array, cp_layers: Array) -> Array:
    """How often a step exchanges messages of which a layer has two."""
    return 2.0 * times * cp_layers


for _name in BY_ALL_TO_ALL:
    for _way, _times in (("forward", "micro_batches"), ("backward", "returning_attentions")):
        formula(
            returns=f"{_name}_{_way}_count",
            inputs=(_times, "cp_layers"),
            name=f"{_name}_{_way}_count",
            **ULYSSES,
        )(_twice)
        never(f"{_name}_{_way}_count", when={"context_parallel": "ring|all_gather|mixed"})
        inner = _name.replace("cp_", "cp_inner_")
        formula(
            returns=f"{inner}_{_way}_count",
            inputs=(_times, "exchanging_layers"),
            name=f"{inner}_{_way}_count",
            when=MIXED,
            **BOTH,
        )(_twice)
        never(f"{inner}_{_way}_count")
never(
    *(f"{name}_{way}_count"
      for name in ("cp_ring", "cp_outer_ring", "cp_all_gather", "cp_reduce_scatter")
      for way in ("forward", "backward")),
)  # fmt: skip


@formula(**RING)
def ring_steps(cp: Array) -> Array:
    """Messages of a rank in one ring of keys and values: to all others in turn."""
    return cp - 1.0


@formula(
    source="transformerengine",
    where="transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py",
    assumes=("keys and values go round, and their gradients with them",),
)
def ring_backward_steps(cp: Array, ring_return: Array) -> Array:
    """Messages of a rank in a backward: keys and values, and their gradients."""
    return xp.where(cp > 1.0, 2.0 * (cp - 1.0 + ring_return), 0.0)


formula(returns="ring_steps", inputs=("ring_ranks",), when=MIXED, name="outer_ring_steps",
        title="Messages of a rank in a ring of groups: to all others in turn",
        **BOTH)(ring_steps)  # fmt: skip
formula(returns="ring_backward_steps", inputs=("ring_ranks", "ring_return"), when=MIXED,
        name="outer_ring_backward_steps", **BOTH,
        title="Messages of a rank in a backward through a ring of groups: with gradients",
        )(ring_backward_steps)  # fmt: skip


for _name, _when in (("cp_ring", ROUND), ("cp_outer_ring", MIXED)):
    product(
        f"{_name}_forward_count",
        ("ring_steps", "micro_batches", "cp_layers"),
        when=_when,
        name=f"{_name}_forward_count_of_ring",
        **RING,
    )


@formula(returns="cp_outer_ring_backward_count", name="cp_outer_ring_backward_count", when=MIXED,
         **RING)  # fmt: skip
@formula(when=ROUND, **RING)
def cp_ring_backward_count(
    ring_backward_steps: Array,
    ring_steps: Array,
    repeated_attentions: Array,
    backward_passes: Array,
    cp_layers: Array,
) -> Array:
    """How often a rank sends keys and values, or gradients, to the next one in backwards."""
    around = ring_backward_steps + ring_steps * repeated_attentions
    return around * backward_passes * cp_layers


product(
    "cp_all_gather_forward_count",
    ("micro_batches", "cp_layers"),
    when=GATHERED,
    name="cp_all_gather_forward_count_of_all_gather",
    **GATHER,
)


@formula(when=GATHERED, **GATHER)
def cp_all_gather_backward_count(
    kept_keys: Array, repeated_attentions: Array, backward_passes: Array, cp_layers: Array
) -> Array:
    """How often a step's backwards gather keys and values, what they repeat included."""
    return (1.0 - kept_keys + repeated_attentions) * backward_passes * cp_layers


product(
    "cp_reduce_scatter_backward_count",
    ("backward_passes", "cp_layers"),
    when=GATHERED,
    name="cp_reduce_scatter_backward_count_of_all_gather",
    **GATHER,
)


# One layer and micro-batch.


@formula(**ULYSSES)
def cp_layer_forward_time(
    cp_query_all_to_all_time: Array, cp_key_value_all_to_all_time: Array
) -> Array:
    """Time of a layer's forward by all_to_all: queries, keys, values, and the result."""
    return 2.0 * (cp_query_all_to_all_time + cp_key_value_all_to_all_time)


alias(
    "cp_layer_backward_time",
    "cp_layer_forward_time",
    "Time of a layer's backward by all_to_all: the gradients of what the forward sent",
    **ULYSSES,
)


product("cp_layer_forward_time", ("ring_steps", "cp_ring_time"),
        "Time of a layer's forward in a ring", when=ROUND, name="ring_layer_forward_time",
        **RING)  # fmt: skip


product("cp_layer_backward_time", ("ring_backward_steps", "cp_ring_time"),
        "Time of a layer's backward in a ring", when=ROUND, name="ring_layer_backward_time",
        **RING)  # fmt: skip


for _way, _steps in (("forward", "ring_steps"), ("backward", "ring_backward_steps")):
    product(f"cp_round_{_way}_time", (_steps, "cp_outer_ring_time"), **BOTH)


@formula(**BOTH)
def cp_exchange_time(
    cp_inner_query_all_to_all_time: Array, cp_inner_key_value_all_to_all_time: Array
) -> Array:
    """Time in which a group exchanges a layer's heads for tokens, and back."""
    return 2.0 * (cp_inner_query_all_to_all_time + cp_inner_key_value_all_to_all_time)


for _way in ("forward", "backward"):
    total(f"cp_layer_{_way}_time", ("cp_exchange_time", f"cp_round_{_way}_time"), when=MIXED,
          name=f"mixed_layer_{_way}_time", **BOTH)  # fmt: skip


alias("cp_layer_forward_time", "cp_all_gather_time", when=GATHERED, **GATHER)


@formula(returns="cp_layer_backward_time", when=GATHERED, **GATHER)
def gathered_layer_backward_time(
    kept_keys: Array, cp_all_gather_time: Array, cp_reduce_scatter_time: Array
) -> Array:
    """Time of a layer's backward by all_gather."""
    return (1.0 - kept_keys) * cp_all_gather_time + cp_reduce_scatter_time


OPERATIONS = declared("cp")
