"""Tensor parallelism's exposed communication by mechanism: each collective beside its product.

The label ``tp_mechanism`` names what overlaps how; with ``efficiency`` a share is given
(`overhead.step.overlap`).  What is exposed is the time of both together beyond that of the product
by itself.  Only what sequence parallelism sends can hide: an all_reduce has no product of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import WAYS, Factors, added, times
from overhead.compute.matmul import LINEAR as PRODUCTS
from overhead.compute.matmul import product_sizes
from overhead.formula import call, declare, derived
from overhead.overlap import mechanisms

GATHER, SCATTER, AGAIN = "tp_all_gather_time", "tp_reduce_scatter_time", "tp_weight_gather_time"
# First and last products of a block.
FIRST, LAST = ("qkv", "mlp_up"), ("attention_output", "mlp_down")
# How a collective is paired with a product, a value of the label ``pairing``: its input comes round
# a ring, its result goes round one, or the collective runs beside it.
GATHERED, SCATTERED, BESIDE = "gathered", "scattered", "beside"
Treatment = tuple[str, tuple[str, ...], str, str]
# How each mechanism treats the products: kind of product, which of a block's, what is sent, how.
TREATMENTS: dict[str, tuple[Treatment, ...]] = {
    "userbuffers": (
        ("forward", FIRST, GATHER, GATHERED),
        ("forward", LAST, SCATTER, SCATTERED),
        ("input_gradient", LAST, GATHER, GATHERED),
        ("input_gradient", FIRST, AGAIN, BESIDE),
        ("weight_gradient", FIRST, SCATTER, BESIDE),
    ),
    "decomposed": (
        ("forward", FIRST, GATHER, GATHERED),
        ("forward", LAST, SCATTER, SCATTERED),
        ("input_gradient", LAST, GATHER, GATHERED),
        ("input_gradient", FIRST, SCATTER, SCATTERED),
        ("weight_gradient", FIRST, AGAIN, GATHERED),
    ),
}
# Who sends where something overlaps, and so at what rate.
COPIES = {"communication": "sms", "sm_law": "copy_engine"}
KERNELS = {"communication": "sms", "sm_law": "linear"}
SOURCES: dict[str, dict[str, Any]] = {
    "userbuffers": {
        "source": mechanisms.ENGINE,
        "where": "transformer_engine/pytorch/module/base.py: methods of initialize_ub; NVIDIA's"
        " presets leave no margin in bulk (NVIDIA/NeMo, tp_overlap_configs/userbuffers.py)",
        "assumes": (
            "GEMMs and collectives as in the Userbuffers tuner",
            "a pair runs sequentially if overlap takes longer, or if its ranks are on several "
            "nodes",
            "Userbuffers at best have the start and bandwidth of a sequential collective",
            "a chunked GEMM is slower than an unsplit one by the short-burst ratio, at the "
            "rate of the step",
        ),
    },
    "decomposed": {
        "source": mechanisms.DECOMPOSED,
        "where": "all_gather and einsum, einsum and reduce_scatter as loops of chunks",
    },
}


# A pair: a product, and its collective, whose times by themselves are `step_matmul_time` and
# `sent_time`.  What a step's pairs expose are calls of `pair_exposed_time`.

UB, DEC = ({"tp_mechanism": mechanism} for mechanism in TREATMENTS)


@derived(when=UB)
def pair_burst_ratio(step_matmul_time, launch_time, burst_matmul_time):
    """Short-burst GEMM rate / rate in the step."""
    some = burst_matmul_time > 0.0
    lasting = xp.maximum(step_matmul_time - launch_time, 0.0)
    return xp.where(some, lasting / xp.where(some, burst_matmul_time, 1.0), 1.0)


@derived(assumes=("rates fitted on runs with split GEMMs include the splitting loss (0 then)",))
def chunked_matmul_time(chunking_slowdown, step_matmul_time):
    """GEMM time in chunks."""
    return (1.0 + chunking_slowdown) * step_matmul_time


def _beyond(tp, together, alone):
    return xp.where(tp > 1.0, xp.maximum(together - alone, 0.0), 0.0)


def _paid(tp, gpus_per_node, sent, alone, *together):
    best = reduce(xp.minimum, together)
    # Hiding is all that is gained: not what a collective would be faster by.
    beyond = xp.minimum(_beyond(tp, xp.maximum(best, sent), alone), sent)
    return xp.where(tp > gpus_per_node, sent, beyond)


_alone = ("tp", "gpus_per_node", "sent_time", "step_matmul_time", "pair_first_time")
_said = {"when": {**UB, "pairing": f"{GATHERED}|{SCATTERED}"}, **SOURCES["userbuffers"]}
declare("pair_exposed_time", (*_alone, "pair_second_time"), _paid, **_said)
declare(
    "pair_exposed_time", _alone, _paid, when={**UB, "pairing": BESIDE}, **SOURCES["userbuffers"]
)
_taken = ("tp", "pair_first_time", "step_matmul_time")
declare("pair_exposed_time", _taken, _beyond, when=DEC, **SOURCES["decomposed"])


def _pair(product: str, kind: str, sent: str, pairing: str, mechanism: str) -> None:
    """Declare what a product's collective adds to it."""
    alone = {"step_matmul_time": f"{product}_{kind}_time", "sent_time": sent, "ranks": "tp"}
    labels = {"pairing": pairing}
    message = "tp_message_bytes" if sent == SCATTER else "tp_gather_message_bytes"
    bind = {**alone, "message_bytes": message}
    if mechanism == "userbuffers":
        labels["compute"] = "tiles"
        way = "scatter" if sent == SCATTER else "gather"
        bind |= {
            **product_sizes(PRODUCTS[product], kind),
            "latency": "intra_latency",
            "bandwidth": "userbuffers_bandwidth",
            "copy_engine_bandwidth": "userbuffers_bandwidth",
            "sm_bandwidth": f"{way}_sm_bandwidth",
            "launch_time": "matmul_min_time",
        }
    exposed, when = f"{product}_{kind}_exposed_time", {"tp_mechanism": mechanism}
    call(returns=exposed, of="pair_exposed_time", bind=bind, labels=labels, when=when)


# A block's pairs, and a layer's blocks.  Beside them a layer waits for what isn't paired: an
# all_reduce without sequence parallelism, and a mixture's blocks beyond attention.

BLOCKS = {"attention": ("qkv", "attention_output"), "mlp": ("mlp_up", "mlp_down")}
UNPAIRED = "shared experts have no overlap mechanism"
for _mechanism, _treated in TREATMENTS.items():
    for _kind, _products, _sent, _pairing in _treated:
        for _product in _products:
            _pair(_product, _kind, _sent, _pairing, _mechanism)


def of_block(block: str, way: str) -> list[Factors]:
    """Return what a block's pairs expose in one way, or where it is repeated."""
    first, last = BLOCKS[block]
    gather, scatter = f"{first}_forward_exposed_time", f"{last}_forward_exposed_time"
    if way == "forward":
        return [(gather,), (scatter,)]
    if way == "recompute":
        return [("recomputed_gathers", gather), ("recomputed_reductions", scatter)]
    products = (last, "input_gradient"), (first, "input_gradient"), (first, "weight_gradient")
    return [(f"{product}_{kind}_exposed_time",) for product, kind in products]


# With a split sequence a layer exposes the pairs of its mixer and, if it has one, of its MLP; of a
# mixture what is sent for shared experts; with a whole one its reductions.  A backward also has
# what it repeats.

TP_NAMED = {"tp_mechanism": "|".join(TREATMENTS)}


def _layer(way: str, unhidden: str, mlp: Mapping[str, list[Factors]]) -> list[Factors]:
    """Return what a layer exposes in one way, as terms of a sum."""
    mixer: list[Factors] = [("sequence_parallel", *term) for term in of_block("attention", way)]
    return [*mixer, *mlp[way], ("replicated_activations", unhidden)]


def _declare_exposed(
    of: str, layer: str, mlp: Mapping[str, list[Factors]], assumes: tuple[str, ...] = ()
) -> None:
    """Declare what layers of one class expose; `mlp`: what they do behind the mixer."""
    kinds = ("matmul_forward", "input_gradient", "weight_gradient") if assumes else ()
    lacking = [f"{of}_layer_{kind}_time" for kind in kinds]
    said: dict[str, Any] = {"when": TP_NAMED, "assumes": assumes}
    forward = _layer("forward", f"{layer}_forward_time", mlp)
    backward = _layer("backward", f"{of}_tp_waited_time", mlp)
    again = _layer("recompute", f"{layer}_recompute_time", mlp)
    ahead, behind = (dict.fromkeys(names, UNPAIRED) for names in (lacking[:1], lacking[1:]))
    added(f"{of}_exposed_tp_forward_time", forward, lacks=ahead, **said)
    added(f"{of}_exposed_tp_backward_time", backward + again, lacks=behind, **said)


OF_MLP: Factors = ("sequence_parallel", ("dense_layer_blocks", -1.0))
OF_SHARED: Factors = (("moe_layer_blocks", -1.0),)
SENT = ("tp_all_gather", "tp_reduce_scatter")
_declare_exposed(
    "dense",
    "tp_layer",
    {way: [(*OF_MLP, *term) for term in of_block("mlp", way)] for way in (*WAYS, "recompute")},
)
_declare_exposed(
    "moe",
    "tp_moe_layer",
    {
        "forward": times(SENT, "forward", factors=OF_SHARED),
        "backward": times((*SENT, "tp_weight_gather"), "backward", factors=OF_SHARED),
        "recompute": times(SENT, "recompute", factors=OF_SHARED),
    },
    (UNPAIRED,),
)
