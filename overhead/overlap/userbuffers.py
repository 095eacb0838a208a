"""Userbuffers: a linear layer's collectives in turn, in parts, and beside its products."""

from __future__ import annotations

import numpy as np

from overhead.declare import alias, product
from overhead.formula import call, formula
from overhead.labels import HIERARCHY, LABELS, NCCL, complete
from overhead.overlap import mechanisms
from overhead.quantity import Array, define

# The label ``links``: whether each pair of a node's GPUs has a link of its own, or all a switch.
PAIRS = {"links": "pairs"}

for _name, _mark, _meaning in (
    ("link_bandwidth", "link", "bandwidth of the link between two GPUs of a node"),
    ("ring_bandwidth", "ring", "bandwidth at which a ring inside a node sends"),
    ("port_bandwidth", "port", "bandwidth of all links of a GPU inside a node"),
    ("group_bandwidth", "grp", "bandwidth of those links of a GPU that lead to its group"),
):
    define(_name, rf"B_{{\mathrm{{{_mark}}}}}", "byte s-1", _meaning, minimum=0, above=True)
for _name, _mark, _meaning in (
    ("gather_message_bytes", "g", "bytes of a linear layer's input or gradient, gathered"),
    ("scatter_message_bytes", "s", "bytes of a linear layer's result, reduced and scattered"),
    ("split_message_bytes", "q", "bytes of one part of a split product's result"),
):
    define(_name, rf"M_{{\mathrm{{{_mark}}}}}", "byte", _meaning, minimum=0)
for _name, _mark, _meaning in (
    ("gather_time", "g", "time of a linear layer's all_gather in turn"),
    ("scatter_time", "s", "time of a linear layer's reduce_scatter in turn"),
    ("split_time", "q", "time of one part's communication"),
    ("split_communication_time", "q,all", "time of all parts' communication, the last's included"),
    ("product_time", "prod", "time during which a product runs, what slows it down included"),
):
    define(_name, rf"t_{{\mathrm{{{_mark}}}}}", "s", _meaning, minimum=0)
define(
    "last_split_sms", r"k_{\mathrm{last}}", "1",
    "streaming multiprocessors that the last part's communication takes", minimum=1, integer=True,
)  # fmt: skip

# Links inside a node.

alias("ring_bandwidth", "port_bandwidth")
alias("ring_bandwidth", "link_bandwidth", when=PAIRS)
alias("group_bandwidth", "port_bandwidth")


@formula(
    returns="group_bandwidth",
    source="derivation",
    assumes=("each pair of GPUs has a link of its own",),
    when=PAIRS,
)
def bandwidth_to_peers(port_bandwidth: Array, ranks: Array, link_bandwidth: Array) -> Array:
    """Bandwidth of the links that lead to a group's other ranks."""
    return np.minimum(port_bandwidth, np.maximum(ranks - 1.0, 1.0) * link_bandwidth)


# What communicates in turn is the collective that `overhead.collectives` has, in one node.

product("gather_message_bytes", ("rank_tokens", "hidden_size", "matmul_input_bytes"))
product("scatter_message_bytes", ("rank_tokens", "hidden_size", "activation_bytes"))

for _kind, _name in (("all_gather", "gather"), ("reduce_scatter", "scatter")):
    call(
        returns=f"{_name}_time",
        of="time",
        bind={
            "message_bytes": f"{_name}_message_bytes",
            "gpus_per_node": "ranks",
            "ranks_per_nic": "ranks",
            "intra_latency": "latency",
            "intra_bandwidth": "ring_bandwidth",
            # Nothing leaves the node.
            "inter_latency": "latency",
            "inter_bandwidth": "ring_bandwidth",
        },
        labels={
            **complete({"topology": HIERARCHY}, ()),
            "collective": _kind,
            "algorithm": NCCL,
            "latency_per": LABELS["latency_per"].default,
            "link": LABELS["link"].default,
        },
    )

# Parts of a product, each reduced and scattered behind the next one's product.

SPLIT = {"communication": "split", "mechanism": "reduce_scatter_pipeline"}
PART = {"communication": "sms"}


@formula(source=mechanisms.ENGINE, where="num_splits")
def split_message_bytes(message_bytes: Array, splits: Array) -> Array:
    """Bytes of one of equal parts."""
    return message_bytes / splits


call(
    returns="split_time",
    of="communication_time",
    bind={"message_bytes": "split_message_bytes"},
    labels=PART,
    when=SPLIT,
)
call(
    returns="last_split_time",
    of="communication_time",
    bind={"message_bytes": "split_message_bytes", "num_sm": "last_split_sms"},
    labels=PART,
    when=SPLIT,
)
product("communication_time", ("splits", "split_time"), when=SPLIT, name="split_parts_time")


@formula(source=mechanisms.ENGINE, where="the last part has multiprocessors of its own")
def split_communication_time(splits: Array, split_time: Array, last_split_time: Array) -> Array:
    """Time of the parts' communication, the last one's at a rate of its own."""
    return (splits - 1.0) * split_time + last_split_time


# How long a product runs beside a collective.

alias("product_time", "compute_time")
alias("product_time", "carved_compute_time", when={"mechanism": "bulk_margin"})


@formula(
    returns="product_time",
    source="derivation",
    assumes=("beside a longer collective the product has what that leaves it all of the time",),
    when={"mechanism": "bulk_shared"},
)
def slowed_product_time(
    overlapped_time: Array, compute_time: Array, sms: Array, free_sms: Array
) -> Array:
    """Time of a product that gets a collective's multiprocessors when that is done."""
    return np.minimum(overlapped_time, compute_time * sms / free_sms)
