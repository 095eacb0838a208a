"""Tensor parallelism's exposed communication by mechanism: each collective beside its product.

The label ``tp_mechanism`` names what overlaps how; with ``efficiency`` a share is given
(`overhead.step.overlap`).  What is exposed is the time of both together beyond that of the product
by itself.  Only what sequence parallelism sends can hide: an all_reduce has no product of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overhead.arrays import xp
from overhead.communication.operation import Factors, added
from overhead.compute.matmul import LINEAR as PRODUCTS
from overhead.compute.matmul import product_sizes
from overhead.formula import call, declare, product, total
from overhead.labels import LABELS
from overhead.overlap import mechanisms
from overhead.quantity import Array

GATHER, SCATTER, AGAIN = "tp_all_gather_time", "tp_reduce_scatter_time", "tp_weight_gather_time"
# First and last products of a block.
FIRST, LAST = ("qkv", "mlp_up"), ("attention_output", "mlp_down")
Treatment = tuple[str, tuple[str, ...], str, str]
# How each mechanism treats the products: kind of product, which of a block's, what is sent, form.
GATHERING = "ring_exchange|ring_exchange_aggregate"
USERBUFFERS: tuple[Treatment, ...] = (
    ("forward", FIRST, GATHER, GATHERING),
    ("forward", LAST, SCATTER, "reduce_scatter_ring|reduce_scatter_pipeline"),
    ("input_gradient", LAST, GATHER, GATHERING),
    ("input_gradient", FIRST, AGAIN, "bulk_shared"),
    ("weight_gradient", FIRST, SCATTER, "bulk_shared"),
)
# Who sends where something overlaps, and so at what rate.
COPIES = {"communication": "sms", "sm_law": "copy_engine"}
KERNELS = {"communication": "sms", "sm_law": "linear"}
LAWS = {
    "ring_exchange": COPIES,
    "ring_exchange_aggregate": COPIES,
    "reduce_scatter_ring": COPIES,
    "reduce_scatter_pipeline": {**KERNELS, "communication": "split"},
    "bulk_shared": KERNELS,
}
DECOMPOSED: tuple[Treatment, ...] = (
    ("forward", FIRST, GATHER, "ring_exchange"),
    ("forward", LAST, SCATTER, "reduce_scatter_ring"),
    ("input_gradient", LAST, GATHER, "ring_exchange"),
    ("input_gradient", FIRST, SCATTER, "reduce_scatter_ring"),
    ("weight_gradient", FIRST, AGAIN, "ring_exchange"),
)
SOURCES: dict[str, dict[str, Any]] = {
    "userbuffers": {
        "source": mechanisms.ENGINE,
        "where": "transformer_engine/pytorch/module/base.py: methods of initialize_ub; NVIDIA's"
        " presets leave no margin in bulk (NVIDIA/NeMo, tp_overlap_configs/userbuffers.py)",
        "assumes": (
            "products and collectives take what the tuner of userbuffers charges for them",
            "a pair that would take longer than one after the other runs so, and so does one"
            " whose ranks are on several nodes",
            "userbuffers start no sooner and send no faster than a collective in turn",
            "a product in pieces is slower than a whole one as in short runs, at the step's rate",
        ),
    },
    "decomposed": {
        "source": mechanisms.DECOMPOSED,
        "where": "all_gather and einsum, einsum and reduce_scatter as loops of chunks",
    },
}
CUT = "rates fitted on runs whose products were cut have the cut's loss in them (0 then)"


product("userbuffers_bandwidth", ("userbuffers_share", "intra_bandwidth"))


def _time(product: str, kind: str, part: str) -> str:
    """Return the name of a time of a pair: a product and its collective."""
    return f"{product}_{kind}_{part}_time"


def _beyond(tp: Array, together: Array, alone: Array) -> Array:
    return xp.where(tp > 1.0, xp.maximum(together - alone, 0.0), 0.0)


def _slowed(slowdown: Array, time: Array) -> Array:
    return (1.0 + slowdown) * time


def _computing(product: str, kind: str, when: dict[str, str]) -> str:
    """Declare the time of a product that is cut."""
    cut = _time(product, kind, "cut")
    declare(cut, ("cut_slowdown", f"{product}_{kind}_time"), _slowed, when=when, assumes=(CUT,))
    return cut


WAYS = {"reduce_scatter_pipeline": "parted", "ring_exchange_aggregate": "paired"}


def _paid(tp: Array, gpus_per_node: Array, sent: Array, alone: Array, *together: Array) -> Array:
    best = together[0]
    for one in together[1:]:
        best = xp.minimum(best, one)
    # Hiding is all that is gained: not what a collective would be faster by.
    beyond = xp.minimum(_beyond(tp, xp.maximum(best, sent), alone), sent)
    return xp.where(tp > gpus_per_node, sent, beyond)


def _lasting(time: Array, launch: Array, burst: Array) -> Array:
    """Return by how much a product's short runs are faster than the step's own."""
    some = burst > 0.0
    return xp.where(some, xp.maximum(time - launch, 0.0) / xp.where(some, burst, 1.0), 1.0)


def _userbuffers(product: str, kind: str, sent: str, forms: str) -> str:
    """Declare a product with its collective as the tuner has it; return what it exposes."""
    when = {"tp_mechanism": "userbuffers"}
    way = "scatter" if sent == SCATTER else "gather"
    bind = {
        **product_sizes(PRODUCTS[product], kind),
        "ranks": "tp",
        "message_bytes": "tp_message_bytes" if sent == SCATTER else "tp_gather_message_bytes",
        "latency": "intra_latency",
        "bandwidth": "userbuffers_bandwidth",
        "copy_engine_bandwidth": "userbuffers_bandwidth",
        "sm_bandwidth": f"{way}_sm_bandwidth",
        "launch_time": "matmul_floor",
    }
    whole, burst = f"{product}_{kind}_time", _time(product, kind, "burst")
    tiles = {"compute": "tiles"}
    call(returns=burst, of="burst_product_time", bind=bind, labels=tiles, when=when)
    # The product has one rate, the step's: that of a short run is lasting by this.
    ratio = f"{product}_{kind}_burst_ratio"
    declare(ratio, (whole, "matmul_floor", burst), _lasting, when=when)
    bind["burst_ratio"] = ratio
    alone = _time(product, kind, "tiled")
    call(returns=alone, of="whole_product_time", bind=bind, labels=tiles, when=when)
    together = []
    for form in forms.split("|"):
        labels = {**tiles, "mechanism": form, **LAWS[form]}
        together.append(_time(product, kind, WAYS.get(form, "overlapped")))
        call(returns=together[-1], of="overlapped_time", bind=bind, labels=labels, when=when)
    exposed = _time(product, kind, "exposed")
    taken = ("tp", "gpus_per_node", sent, whole, *together)
    declare(exposed, taken, _paid, when=when, **SOURCES["userbuffers"])
    return exposed


def _pair(product: str, kind: str, sent: str, form: str, mechanism: str) -> str:
    """Declare a product with its collective, by one form; return what it exposes."""
    if mechanism == "userbuffers":
        return _userbuffers(product, kind, sent, form)
    when = {"tp_mechanism": mechanism}
    bind = {"compute_time": _computing(product, kind, when), "communication_time": sent}
    bind["ranks"] = "tp"
    if form == "reduce_scatter_ring":
        bind["message_bytes"] = "tp_message_bytes"
    together, alone = _time(product, kind, "overlapped"), f"{product}_{kind}_time"
    call(returns=together, of="overlapped_time", bind=bind, labels={"mechanism": form}, when=when)
    exposed = _time(product, kind, "exposed")
    declare(exposed, ("tp", together, alone), _beyond, when=when, **SOURCES[mechanism])
    return exposed


# A block's pairs, and a layer's blocks.  Beside them a layer waits for what isn't paired: an
# all_reduce without sequence parallelism, and a mixture's blocks beyond attention.

BLOCKS = {"attention": ("qkv", "attention_output"), "mlp": ("mlp_up", "mlp_down")}
UNPAIRED = "a mixture's shared experts have no mechanism"


def _repeated(gathers: Array, gather: Array, reductions: Array, scatter: Array) -> Array:
    return gathers * gather + reductions * scatter


def _blocks(mechanism: str, treated: Sequence[Treatment]) -> None:
    """Declare what each block exposes."""
    when = {"tp_mechanism": mechanism}
    found = {
        (product, kind): _pair(product, kind, sent, form, mechanism)
        for kind, products, sent, form in treated
        for product in products
    }
    for block, products in BLOCKS.items():
        ways = {
            way: [n for (product, kind), n in found.items() if product in products
                  and (kind == "forward") == (way == "forward")]
            for way in ("forward", "backward")
        }  # fmt: skip
        for way, names in ways.items():
            returns = f"{block}_tp_{way}_time"
            total(returns, names, when=when, name=f"{returns}_{mechanism}")
        gather, scatter = ways["forward"]
        declare(
            f"{block}_tp_recompute_time",
            ("repeated_gathers", gather, "repeated_reductions", scatter),
            _repeated,
            when=when,
        )


for _mechanism, _treated in (("userbuffers", USERBUFFERS), ("decomposed", DECOMPOSED)):
    _blocks(_mechanism, _treated)

TP_NAMED = {"tp_mechanism": "|".join(LABELS["tp_mechanism"].values[1:])}


# With a split sequence a layer exposes its blocks' pairs, and of a mixture what is sent for the
# blocks beyond attention; with a whole one its reductions.  A backward also has what it repeats.


def _layer(way: str, unhidden: str, *sent: str) -> list[Factors]:
    """Return what a layer exposes in one way, as terms of a sum."""
    shared: Factors = ("sequence_parallel", ("moe_layer_blocks", -1.0), 0.5)
    mlp = [(*shared, time) for time in sent] or [("sequence_parallel", f"mlp_tp_{way}_time")]
    return [("sequence_parallel", f"attention_tp_{way}_time"), *mlp, ("sequence_whole", unhidden)]


def _declare_exposed(of: str, layer: str, beyond: Mapping[str, tuple[str, ...]]) -> None:
    """Declare what layers of one class expose; `beyond`: what is sent for blocks without pairs."""
    kinds = ("matmul_forward", "input_gradient", "weight_gradient") if beyond else ()
    lacking = [f"{of}_layer_{kind}_time" for kind in kinds]
    said: dict[str, Any] = {"when": TP_NAMED, "assumes": (UNPAIRED,) if beyond else ()}
    ways = {
        "forward": f"{layer}_forward_time",
        "backward": f"{of}_tp_waited_time",
        "recompute": f"{layer}_recompute_time",
    }
    forward, backward, again = (_layer(way, ways[way], *beyond.get(way, ())) for way in ways)
    added(f"{of}_exposed_tp_forward_time", forward,
          lacks=dict.fromkeys(lacking[:1], UNPAIRED), **said)  # fmt: skip
    added(f"{of}_exposed_tp_backward_time", backward + again,
          lacks=dict.fromkeys(lacking[1:], UNPAIRED), **said)  # fmt: skip


_declare_exposed("dense", "tp_layer", {})
_declare_exposed("moe", "tp_moe_layer", {
    "forward": ("tp_layer_forward_time",),
    "backward": ("tp_layer_backward_time", "tp_layer_gather_time"),
    "recompute": ("tp_layer_recompute_time",),
})  # fmt: skip
