"""What a sweep must give, a cell at a time: one call of `overhead.collective` for each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from overhead import TopologyDesc, build_topology, collective
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from sweeps.spec.catalog import load_hardware
from sweeps.spec.machine import Machine
from sweeps.store.constants import with_constants
from tests.tables import keyed

__all__ = ["FIELDS", "cells", "expected"]

# The result's fields by the dataset's variables.
FIELDS = keyed(
    "time=latency_s latency_time=latency_part_s bandwidth_time=bandwidth_part_s steps=steps "
    "sent_bytes=volume_bytes link_bytes=link_bytes energy=energy_j algbw=algbw busbw=busbw "
    "lower_bound=lower_bound_s lower_bound_ratio=lower_bound_ratio"
)
DEFAULTS: dict[str, Any] = keyed(
    "topology=switch collective=all_reduce algorithm=standard hardware=dgx-h100 latency_per=hop "
    "link=auto"
)


def cells(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return every cell of a dataset: its place by dimension, and what its coordinates say."""
    sizes = dict(dataset.sizes)
    settings = []
    for index in itertools.product(*(range(size) for size in sizes.values())):
        position = dict(zip(sizes, index, strict=True))
        settings.append({"place": position})
    return settings


def values_at(dataset: xr.Dataset, given: Mapping[str, Any], position: Mapping[str, int]) -> Any:
    """Return what the user gave for a cell, by quantity or label."""
    answer: dict[str, Any] = {}
    dataset = with_constants(dataset)
    for name in given:
        coordinate = dataset.coords[name]
        where = {dim: position[str(dim)] for dim in coordinate.dims}
        answer[name] = coordinate.isel(where).item()
    return answer


def network(answer: Mapping[str, Any], machine: Machine) -> TopologyDesc | None:
    """Build a cell's network; None if its ranks don't fill it."""
    figures = {name: figure.value for name, figure in machine.figures.items()}
    kind, ranks = answer["topology"], answer["ranks"]
    sizes_alone = [
        requirement for requirement in NETWORKS[kind].requires if requirement.inputs == ("ranks",)
    ]
    if not all(one.holds(np.asarray(ranks)) for one in sizes_alone):
        return None
    if kind == "hierarchical":
        # A chip of a torus reaches the others of its node by all of its links.
        figures["intra_bandwidth"] *= machine.ports
        return hierarchy(answer, figures, ranks)
    inside = {"intra": True, "inter": False}.get(
        answer["link"], ranks <= answer.get("gpus_per_node", figures["gpus_per_node"])
    )
    level = "intra" if inside else "inter"
    link = {
        name: answer.get(name, answer.get(f"{level}_{name}", figures[f"{level}_{name}"]))
        for name in ("bandwidth", "latency", "energy_per_bit")
    }
    sizes = {name: answer[name] for name in ("mesh_nx", "mesh_ny", "mesh_nz") if name in answer}
    if sizes and math.prod(sizes.values()) != ranks:
        return None
    abilities: dict[str, float] = {}
    if kind == "switch":
        reducing = machine.in_network if inside else machine.scale_out_in_network
        abilities = {
            "has_nvls": float(inside and "nvls" in machine.in_network),
            "has_inc": float("sharp" in reducing),
            "in_network_latency_factor": slower(link["latency"], figures) if inside else 1.0,
        }
    return build_topology(kind, ranks, **link, **sizes, **abilities)


def slower(link: float, figures: Mapping[str, float]) -> float:
    """Return how much longer a message takes that the switch of a node reduces."""
    if "in_network_latency" not in figures or not link:
        return 1.0
    return max(figures["in_network_latency"] / link, 1.0)


def hierarchy(
    answer: Mapping[str, Any], figures: Mapping[str, float], ranks: float
) -> TopologyDesc | None:
    node = answer.get("gpus_per_node", figures["gpus_per_node"])
    pod = answer.get("nodes_per_pod")
    full = ranks <= node or ranks % node == 0
    if pod is not None:
        full = full and (ranks <= node * pod or ranks % (node * pod) == 0)
    if not full:
        return None
    # Whoever puts fewer ranks on a node shares its cards with the node's other ranks.
    shared = figures["gpus_per_node"] / figures["nics_per_node"]
    if "nics_per_node" in answer:
        shared = node / answer["nics_per_node"]
    levels = {
        f"{level}_{name}": answer.get(f"{level}_{name}", figures[f"{level}_{name}"])
        for level in ("intra", "inter")
        for name in ("bandwidth", "latency", "energy_per_bit")
    }
    levels |= {
        "ranks_sharing_nic": shared,
        "oversubscription": answer.get("oversubscription", 1.0),
        "nodes_per_leaf": answer.get("nodes_per_leaf", figures.get("nodes_per_leaf", 1.0)),
    }
    if pod is not None:
        levels["nodes_per_pod"] = pod
        for name in ("bandwidth", "latency", "energy_per_bit"):
            levels[f"pod_{name}"] = answer.get(f"pod_{name}", levels[f"inter_{name}"])
    return build_topology("hierarchical", ranks, gpus_per_node=node, **levels)


def expected(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell's values by variable; NaN for all of them where the cell can't be."""
    answer = {**DEFAULTS, **answer}
    found = network(answer, load_hardware(answer["hardware"]))
    nothing = {**dict.fromkeys(FIELDS, np.nan), "chosen_algorithm": "none"}
    if found is None:
        return nothing
    key = answer["topology"], answer["collective"], answer["algorithm"]
    if answer["algorithm"] not in ("standard", "nccl", "auto") and key not in ALGORITHMS:
        return nothing
    if answer["collective"] not in NETWORKS[answer["topology"]].standard:
        return nothing
    options = {
        name: answer[name]
        for name in ("chunks", "phase_chunks", "reduction_cost", "hops")
        if name in answer
    }
    result = collective(
        answer["collective"],
        answer["message_bytes"],
        found,
        algorithm=answer["algorithm"],
        latency_per=answer["latency_per"],
        **options,
    )
    values: dict[str, Any] = {name: float(getattr(result, field)) for name, field in FIELDS.items()}
    values["chosen_algorithm"] = str(result.algorithm) or "none"
    return values
