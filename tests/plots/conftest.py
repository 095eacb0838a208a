"""Datasets as a sweep stores them, made from latency and bandwidth costs written out here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

from sweeps.origin import Origin, attributes
from tests.tables import examples

COLLECTIVES = tuple("all_reduce all_gather reduce_scatter broadcast reduce all_to_all p2p".split())
TOPOLOGIES = ("ring", "tree", "hierarchical", "switch", "mesh", "torus")
ATTRS: dict[str, dict[str, str]] = examples(__file__, "attrs")


def coordinate(name: str, values: Any) -> tuple[tuple[str, ...], Any, dict[str, str]]:
    """Return a coordinate of its own dimension, with its metadata."""
    return (name,), values, ATTRS.get(name, {"long_name": name.replace("_", " ")})


def of(name: str, kind: str) -> dict[str, str]:
    """Return a coordinate's attributes with where it comes from."""
    return {**ATTRS[name], **attributes([Origin(None, kind)])}


def network_costs(ranks: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, for each topology, the latencies and the messages that an all_reduce costs."""
    side = np.sqrt(ranks)
    levels = np.ceil(np.log2(ranks))
    return {
        "ring": (2 * (ranks - 1), 2 * (ranks - 1) / ranks),
        "tree": (4 * levels, np.full_like(ranks, 2.6)),
        "hierarchical": (2 * (7 + ranks / 8), 3.2 * (ranks - 1) / ranks),
        "switch": (2 * levels, 3 * (ranks - 1) / ranks),
        "mesh": (4 * (side - 1), 2.3 * (ranks - 1) / ranks),
        "torus": (2 * (side - 1) * 1.2, 2.05 * (ranks - 1) / ranks),
    }


def make_networks(
    *,
    points: int = 97,
    ranks: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    collectives: tuple[str, ...] = COLLECTIVES,
    topologies: tuple[str, ...] = TOPOLOGIES,
    latency: float = 2e-6,
    bandwidth: float = 50e9,
) -> xr.Dataset:
    """Return a dataset of collectives on networks, with holes and their reasons."""
    size = np.geomspace(1024.0, 8 * 2.0**30, points)
    count = np.asarray(ranks, dtype=np.float64)
    costs = network_costs(count)
    factors = np.linspace(1.0, 0.5, len(collectives))
    shape = (len(collectives), len(topologies), len(ranks), points)
    time = np.empty(shape)
    for k, topology in enumerate(topologies):
        steps, fraction = costs[topology]
        one = steps[:, None] * latency + fraction[:, None] * size / bandwidth
        time[:, k] = factors[:, None, None] * one
    status = np.zeros(shape[1:3], dtype=np.int8)
    if "mesh" in topologies:
        square = np.round(np.sqrt(count)) ** 2 == count
        status[topologies.index("mesh"), ~square] = 1
    time = np.where(status[None, :, :, None] > 0, np.nan, time)
    bound = np.broadcast_to(size / bandwidth, (len(ranks), points)) + latency
    dims = ("collective", "topology", "ranks", "message_bytes")
    return xr.Dataset(
        {
            "time": (dims, time, ATTRS["time"]),
            "lower_bound": (dims[2:], bound, ATTRS["lower_bound"]),
            "status": (
                dims[1:3],
                status,
                {
                    "long_name": "why a value is missing",
                    "flag_masks": np.array([1, 2], dtype=np.int8),
                    "flag_meanings": "ranks_make_no_square ranks_not_power_of_two",
                },
            ),
        },
        coords={
            "collective": coordinate("collective", list(collectives)),
            "topology": coordinate("topology", list(topologies)),
            "ranks": coordinate("ranks", count),
            "message_bytes": coordinate("message_bytes", size),
            "hardware": ((), "dgx-h100", {"long_name": "machine"}),
            "latency": ((), latency, of("latency", "assumed")),
            "bandwidth": ((), bandwidth, of("bandwidth", "specification")),
        },
        attrs={"title": "Collectives on networks", "Conventions": "CF-1.11"},
    )


def make_algorithms(points: int = 97) -> xr.Dataset:
    """Return an all_reduce's algorithms on a switch; one equals another at two ranks."""
    ranks = np.array([2.0, 3, 4, 6, 8, 12, 16, 32, 64, 128])
    size = np.geomspace(1024.0, 8 * 2.0**30, points)
    levels = np.ceil(np.log2(ranks))
    cost = {
        "ring": (2 * (ranks - 1), 2 * (ranks - 1) / ranks),
        "halving": (2 * levels, 2 * (ranks - 1) / ranks),
        "doubling": (levels, levels),
        "oneshot": (np.ones_like(ranks), ranks - 1),
    }
    time = np.stack([s[:, None] * 3e-6 + f[:, None] * size / 25e9 for s, f in cost.values()])
    power = np.exp2(np.round(np.log2(ranks))) == ranks
    for name in ("halving", "doubling"):
        time[list(cost).index(name), ~power] = np.nan
    time[:, ranks == 6, :40] = np.nan
    status = np.zeros((len(cost), len(ranks), points), dtype=np.int8)
    status[1:3, ~power] = 1
    status[:, ranks == 6, :40] = 2
    best = np.where(
        np.isfinite(time).any(0), np.argmin(np.where(np.isnan(time), np.inf, time), 0) + 1, 0
    )
    dims = ("algorithm", "ranks", "message_bytes")
    return xr.Dataset(
        {
            "time": (dims, time, ATTRS["time"]),
            "status": (
                dims,
                status,
                {
                    "long_name": "why a value is missing",
                    "flag_values": np.array([0, 1, 2], dtype=np.int8),
                    "flag_meanings": "fine ranks_not_power_of_two network_too_small",
                },
            ),
            "chosen_algorithm": (
                dims[1:],
                best.astype(np.int8),
                {
                    "long_name": "algorithm chosen",
                    "flag_values": np.arange(5, dtype=np.int8),
                    "flag_meanings": "none " + " ".join(cost),
                },
            ),
        },
        coords={
            "algorithm": coordinate("algorithm", list(cost)),
            "ranks": coordinate("ranks", ranks),
            "message_bytes": coordinate("message_bytes", size),
            "collective": ((), "all_reduce", {"long_name": "operation"}),
            "topology": ((), "switch", {"long_name": "network"}),
        },
    )


def make_measured(cases: int = 5) -> xr.Dataset:
    """Return predictions beside measurements of several clusters, each at its own sizes."""
    random = np.random.default_rng(7)
    size = np.exp2(np.arange(10, 34))
    operations = ["all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast"]
    ranks = np.array([8, 16, 64, 256, 1024])
    time = np.stack(
        [2e-6 * np.log2(ranks[k % 5]) * 3 + size / (40e9 * (1 + k % 3)) for k in range(cases)]
    )
    measured = time * np.exp(random.normal(0.1, 0.2, time.shape))
    for k in range(cases):
        measured[k, : k % 4] = np.nan
        measured[k, k::5] = np.nan
    dims = ("case", "message_bytes")
    return xr.Dataset(
        {
            "time": (dims, time, ATTRS["time"]),
            "measured_time": (dims, measured, ATTRS["measured_time"]),
        },
        coords={
            "message_bytes": coordinate("message_bytes", size),
            "operation": ("case", [operations[k % 5] for k in range(cases)], {"long_name": "op"}),
            "machine": ("case", [f"cluster {k}, H100" for k in range(cases)], {"long_name": "m"}),
            "ranks": ("case", [int(ranks[k % 5]) for k in range(cases)], ATTRS["ranks"]),
        },
    )


def make_memory(plans: int = 4) -> xr.Dataset:
    """Return memory by part of several plans, one of which has none."""
    gib = 2.0**30
    parts = {"weights": 17.5, "gradients": 17.5, "optimizer_states": 35.0, "activations": 12.0}
    scale = np.linspace(0.5, 1.6, plans)
    values = {
        f"{name}_memory": (
            ("plan",),
            np.where(np.arange(plans) == plans - 1, np.nan, share * gib * scale),
            {"long_name": f"memory of {name.replace('_', ' ')}", "units": "byte"},
        )
        for name, share in parts.items()
    }
    return xr.Dataset(
        {
            **values,
            "memory_capacity": ((), 80e9, {"long_name": "memory of the device", "units": "byte"}),
        },
        coords={
            "plan": (
                "plan",
                [f"tp {2**k} pp {plans - k} dp 8" for k in range(plans)],
                {"long_name": "plan"},
            ),
            "model": ((), "llama3-70b", {"long_name": "model"}),
        },
    )


@pytest.fixture
def networks() -> Callable[..., xr.Dataset]:
    return make_networks


@pytest.fixture
def algorithms() -> Callable[..., xr.Dataset]:
    return make_algorithms


@pytest.fixture
def measured() -> Callable[..., xr.Dataset]:
    return make_measured


@pytest.fixture
def memory() -> Callable[..., xr.Dataset]:
    return make_memory
