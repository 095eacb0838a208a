"""Experts split by expert or by tensor parallelism, in numbers; models of some size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sweeps.plans.calculator import MENTIONED, Cluster, sizes_of
from sweeps.plans.choices import divisors
from sweeps.plans.detail import details
from sweeps.plans.execution import Execution
from sweeps.spec.catalog import load_model, model_names
from sweeps.spec.resolve import DEFAULT_HARDWARE, resolve
from sweeps.spec.sweep import Sweep

__all__ = ["Compared", "compared", "nearest_model"]

# How far a model of the catalogue may be from a number of parameters.
NEAR = 0.25


@dataclass(frozen=True)
class Compared:
    """Experts split over some ranks: whole ones on each, or slices of all on each."""

    ranks: int  # Over how many
    hardware: str  # Whose times these are
    forward: float  # All-to-alls of a layer
    backward: float  # All-to-alls of a layer
    message: float  # Bytes of one
    # Time of the experts' products in a layer's forward: of expert and of tensor parallelism
    whole: float
    # Time of the experts' products in a layer's forward: of expert and of tensor parallelism
    sliced: float


def compared(cluster: Cluster) -> Compared:
    """Compare expert with tensor parallelism of the calculator's experts."""
    ranks = max(n for n in divisors(cluster.experts) if n <= min(MENTIONED, cluster.gpus))
    constants = {
        **sizes_of(cluster),
        "tp": float(ranks),
        "pp": 1.0,
        "cp": 1.0,
        "dp": 1.0,
        "world_size": float(ranks),
        "sequence_length": cluster.length,
        "global_batch": 1.0,
        "micro_batch": 1.0,
        "zero_stage": 0.0,
        "sequence_parallel": 1.0,
    }
    found = resolve(Sweep("", constants=constants, labels={"hardware": DEFAULT_HARDWARE}))
    labels = {**found.labels, **found.implied, "shape": "two_levels", "phases": "sequential",
              "reduction": "free", "stages": "uneven"}  # fmt: skip
    plain = Execution({**found.constants, "ep": float(ranks), "etp": 1.0}, labels)
    # One rank holds a slice of every expert; the slice is as wide as divides evenly.
    width = np.ceil(plain["expert_ffn_size"] / ranks) * ranks
    plans = [one.changed({"expert_ffn_size": width})
             for one in (plain, plain.changed({"ep": 1.0, "etp": float(ranks)}))]  # fmt: skip
    counts = tuple(
        f"ep_{what}_{way}_count"
        for way in ("forward", "backward")
        for what in ("dispatch", "combine")
    )
    names = (*counts, "dispatch_message_bytes", "ep_layers", "micro_batches",
             "moe_layer_matmul_forward_time")  # fmt: skip
    whole, sliced = details(plans, names)
    layers = whole["ep_layers"] * whole["micro_batches"]
    forward, backward = (sum(whole[name] for name in pair) / layers
                         for pair in (counts[:2], counts[2:]))  # fmt: skip
    # What isn't the experts', attention among it, is the same in both.
    return Compared(
        ranks,
        DEFAULT_HARDWARE,
        forward,
        backward,
        whole["dispatch_message_bytes"],
        whole["moe_layer_matmul_forward_time"],
        sliced["moe_layer_matmul_forward_time"],
    )


def nearest_model(parameters: float, *, routed: bool) -> tuple[str, float] | None:
    """Return the model of the catalogue whose number of parameters is nearest."""
    best: tuple[float, str, float] | None = None
    for name in model_names():
        model = load_model(name)
        if (model.shapes.get("experts", 0.0) > 0.0) != routed:
            continue
        count = model.quantity("parameters")
        gap = abs(math.log(count / parameters))
        if best is None or (gap, name) < best[:2]:
            best = (gap, name, count)
    if best is None or best[0] > math.log1p(NEAR):
        return None
    return best[1], best[2]
