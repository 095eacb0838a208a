"""Grids drawn at random equal one scalar call for each of their cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sweeps
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.labels import COLLECTIVES
from tests.engine.oracle import FIELDS, cells, expected, values_at
from tests.overhead.shapes import fitting
from tests.tables import examples

MACHINES = ("dgx-h100", "dgx-a100", "gb200-nvl72", "tpu-v5p", "mi300x")
LABELS: dict[str, tuple[str, ...]] = {
    "topology": tuple(NETWORKS),
    "collective": COLLECTIVES,
    "algorithm": ("auto", "nccl", "standard", *ALGORITHMS.names()),
    "hardware": MACHINES,
    "latency_per": ("hop", "message"),
    "link": ("auto", "intra", "inter"),
}
NUMBERS: dict[str, tuple[float, ...]] = examples(__file__, "numbers")
NEEDED = ("ranks", "message_bytes")


@st.composite
def stated(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a user gives: each label and number left out, one value, or an axis."""
    found: dict[str, Any] = {}
    for name, known in LABELS.items():
        several = draw(st.lists(st.sampled_from(known), max_size=2, unique=True))
        if several:
            found[name] = several if len(several) > 1 or draw(st.booleans()) else several[0]
    optional = draw(st.lists(st.sampled_from(sorted(set(NUMBERS) - set(NEEDED))), max_size=3))
    for name in (*NEEDED, *dict.fromkeys(optional)):
        most = 3 if name in NEEDED else 2
        several_numbers = draw(
            st.lists(st.sampled_from(NUMBERS[name]), min_size=1, max_size=most, unique=True)
        )
        found[name] = several_numbers if len(several_numbers) > 1 else several_numbers[0]
    if "hierarchical" in found.get("topology", ()) and "p2p" in found.get("collective", ()):
        # A single call sends a hierarchy's message between nodes, if there are several.
        found.pop("link", None)
    if found.get("topology") in ("hierarchical", ["hierarchical"]):
        # A hierarchy has a link of each level: a flat network's alone is refused.
        for name in ("bandwidth", "latency"):
            found.pop(name, None)
    return found


def check(dataset: xr.Dataset, found: dict[str, Any]) -> int:
    """Compare every cell; return how many there are that can't be."""
    missing = 0
    for cell in cells(dataset):
        position = cell["place"]
        wanted = expected(values_at(dataset, found, position))
        status = at(dataset, "status", position)
        exists = not np.isnan(wanted["time"])
        missing += not exists
        for name in FIELDS:
            value = at(dataset, name, position)
            if not exists and set(dataset["status"].dims) <= set(dataset[name].dims):
                assert np.isnan(value), f"{name} at {position} of {found}"
            if exists:
                np.testing.assert_array_equal(
                    value, wanted[name], f"{name} at {position} of {found}"
                )
            if np.isnan(value):
                assert status != 0, f"{name} is missing at {position} for no reason: {found}"
        if exists:
            code = int(at(dataset, "chosen_algorithm", position))
            assert ALGORITHMS.name_of(code) == wanted["chosen_algorithm"], (
                f"at {position} of {found}"
            )
        else:
            assert status != 0, f"no reason at {position} of {found}"
            assert np.isnan(at(dataset, "time", position)), f"time at {position} of {found}"
    return missing


def at(dataset: xr.Dataset, name: str, position: dict[str, int]) -> float:
    variable = dataset[name]
    return float(variable.isel({dim: position[str(dim)] for dim in variable.dims}).item())


def bare(found: dict[str, Any]) -> xr.Dataset:
    """Evaluate a grid by the exact forms alone, as the single calls do."""
    usual = {"hardware": "dgx-h100", "topology": "switch"}  # a given link replaces the machine's
    return sweeps.sweep(**({"software": "none", "algorithm": "standard", **usual} | found))


@pytest.mark.thorough
@settings(
    max_examples=35, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(stated())
def test_a_grid_equals_its_cells(found: dict[str, Any]) -> None:
    check(bare(found), found)


@pytest.mark.thorough
def test_every_network_and_operation_by_every_choice() -> None:
    for topology in NETWORKS:
        found = {
            "topology": topology,
            "collective": sorted({key[1] for key in ALGORITHMS if key[0] == topology}),
            "algorithm": ["standard", "nccl", "auto"],
            "ranks": fitting(topology, (1, 6, 16)),
            "message_bytes": 1e6,
        }
        assert check(bare(found), found) == 0


@pytest.mark.thorough
def test_shared_network_cards() -> None:
    """A group with fewer ranks in a node than it has shares its cards as the machine does."""
    found = {
        "topology": "hierarchical",
        "collective": ["all_reduce", "all_to_all", "p2p"],
        "hardware": ["tpu-v5p", "dgx-h100"],
        "ranks": [2, 8, 32],
        "gpus_per_node": [1, 2, 4],
        "message_bytes": 1e8,
    }
    for more in (
        {},
        {"nics_per_node": [1, 2]},
        {"nodes_per_pod": [2], "oversubscription": 2.0, "nodes_per_leaf": [1, 2]},
    ):
        axes = {**found, **more}
        missing = check(bare(axes), axes)
        assert missing == 0
    # Without a node's size it is the machine's, and so are its cards.
    whole = {name: value for name, value in found.items() if name != "gpus_per_node"}
    assert check(bare(whole), whole) == 0


def test_cells_that_cannot_be_are_among_those_compared() -> None:
    found = {
        "topology": ["hierarchical", "ring"],
        "algorithm": ["ring", "ring_ring", "standard"],
        "ranks": [8, 10, 12],
        "gpus_per_node": [4, 8],
        "message_bytes": [1e6],
    }
    # ring isn't defined on the hierarchy nor ring_ring on the ring; 10 fills no nodes, 12 no 8.
    assert check(bare(found), found) == 2 * 3 * 2 + 2 * 3
