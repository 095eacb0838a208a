"""What hypothesis draws: quantities from their domains in the vocabulary, of shapes that broadcast.

Sizes of a network depend on one another, so they are drawn together: the ranks of a mesh are the
product of its sizes, and those of a hierarchy fill its nodes and pods.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from overhead import VOCABULARY, Algorithm, Quantity
from overhead.collectives.algorithm import NETWORKS
from overhead.quantity import Array

__all__ = [
    "MOST",
    "POINTS",
    "columns",
    "networks",
    "prices",
    "quantities",
    "values",
]

# Largest whole number drawn, and the powers of ten between which other numbers lie; of many drawn
# at once most lie nearer to one another, so that no term of a sum hides the others.
MOST = 70
POWERS = (-9, 12)
NEAR = (-2, 3)
POINTS = 6
# What stands below a fraction line is not nought, though its domain has it.
POSITIVE = {"time", "lower_bound"}
LEVELS = ("intra", "inter", "pod")
GRID = ("mesh_nx", "mesh_ny", "mesh_nz")
HIERARCHY = ("node_ranks", "nodes", "pods")
DERIVED = ("ranks", "gpus_per_node", "nodes_per_pod", *GRID, *HIERARCHY)


def values(quantity: Quantity) -> st.SearchStrategy[float]:
    """Return numbers in a quantity's domain."""
    lowest = quantity.minimum if math.isfinite(quantity.minimum) else 0.0
    if quantity.integer:
        highest = min(quantity.maximum, lowest + MOST)
        return st.integers(int(lowest), int(highest)).map(float)
    above = st.floats(*POWERS).map(lambda power: min(lowest + 10.0**power, quantity.maximum))
    if quantity.above or quantity.name in POSITIVE:
        return above
    return st.one_of(above, above, st.just(lowest))


def _sample(quantity: Quantity, count: int, rng: np.random.Generator) -> Array:
    """Return numbers in a quantity's domain."""
    lowest = quantity.minimum if math.isfinite(quantity.minimum) else 0.0
    if quantity.integer:
        highest = min(quantity.maximum, lowest + MOST)
        return rng.integers(int(lowest), int(highest), count, endpoint=True).astype(np.float64)
    above = np.minimum(lowest + 10.0 ** rng.uniform(*NEAR, count), quantity.maximum)
    return above if quantity.above else np.where(rng.random(count) < 0.1, lowest, above)


@st.composite
def columns(draw: st.DrawFn, names: Iterable[str]) -> dict[str, Array]:
    """Return an array for each quantity, of shapes that broadcast."""
    wanted = tuple(dict.fromkeys(names))
    if not wanted:
        return {}
    shapes = draw(_broadcasting(len(wanted)))
    arrays = {}
    for name, shape in zip(wanted, shapes.input_shapes, strict=True):
        numbers = _several(name, math.prod(shape))
        arrays[name] = np.array(draw(numbers), dtype=np.float64).reshape(shape)
    return arrays


# Made once: thousands of tests draw from the same few.


@cache
def _broadcasting(count: int) -> st.SearchStrategy[Any]:
    return mutually_broadcastable_shapes(num_shapes=count, max_dims=3, max_side=3)


@cache
def _several(name: str, count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(values(VOCABULARY[name]), min_size=count, max_size=count)


@st.composite
def quantities(draw: st.DrawFn, names: Iterable[str]) -> dict[str, Array]:
    """Return an array for each quantity, of shapes that broadcast; sizes fit one another."""
    wanted = tuple(dict.fromkeys(names))
    sizes: tuple[str, ...] = ()
    if any(name in GRID for name in wanted):
        sizes = GRID
    elif any(name in ("gpus_per_node", "nodes_per_pod", *HIERARCHY) for name in wanted):
        sizes = HIERARCHY
    free = [name for name in wanted if not sizes or name not in DERIVED]
    drawn = draw(columns((*sizes, *free)))
    if sizes == GRID:
        drawn["ranks"] = drawn["mesh_nx"] * drawn["mesh_ny"] * drawn["mesh_nz"]
    elif sizes == HIERARCHY:
        drawn |= _filled(drawn, draw(st.integers(1, 3)))
    return {name: np.asarray(drawn[name]) for name in wanted}


def _filled(sizes: Mapping[str, Array], spare: int) -> dict[str, Array]:
    """Return what nodes and pods have room for; those of a group of one may have more."""
    node_ranks, nodes, pods = (sizes[name] for name in HIERARCHY)
    groups = nodes * pods
    return {
        "ranks": node_ranks * groups,
        "gpus_per_node": np.where(groups > 1.0, node_ranks, node_ranks * spare),
        "nodes_per_pod": np.where(pods > 1.0, nodes, nodes * spare),
    }


RANKS = (*range(1, 34), 48, 63, 64, 65, 100, 128, 1000, 1024)
SIZES = (*product((1, 2, 3, 4, 5), repeat=3), (6, 6, 1), (8, 4, 1), (8, 8, 8), (16, 1, 1))
DEPTHS = (*product((1, 2, 3, 4, 8), (1, 2, 3, 4, 7), (1, 2, 3)), (8, 64, 1), (8, 32, 16))


@cache
def _shapes(topology: str) -> Mapping[str, Array]:
    """Return columns of networks of many shapes."""
    if topology in ("mesh", "torus"):
        drawn = dict(zip(GRID, np.array(SIZES, dtype=np.float64).T, strict=True))
        return {**drawn, "ranks": drawn["mesh_nx"] * drawn["mesh_ny"] * drawn["mesh_nz"]}
    if topology == "hierarchical":
        drawn = dict(zip(HIERARCHY, np.array(DEPTHS, dtype=np.float64).T, strict=True))
        able = ("intra_nvls", "inter_inc", "in_network_latency_factor")
        ones = dict.fromkeys(able, np.ones_like(drawn["nodes"]))
        return {**drawn, **ones, **_filled(drawn, spare=2)}
    requires = NETWORKS[topology].requires
    ranks = np.array(range(1, 1025) if requires else RANKS, dtype=np.float64)
    for condition in requires:
        ranks = ranks[condition.holds(ranks)]
    one = np.ones_like(ranks)
    if topology == "switch":
        able = ("has_nvls", "has_inc", "in_network_latency_factor")
        return {"ranks": ranks, **dict.fromkeys(able, one)}
    return {"ranks": ranks}


def networks(algorithm: Algorithm) -> dict[str, Array]:
    """Return columns of all shapes of networks, of many, on which an algorithm is defined."""
    shapes = _shapes(algorithm.topology)
    mask = np.ones_like(shapes["ranks"], dtype=bool)
    for requirement in algorithm.requires:
        mask &= requirement.holds(**{name: shapes[name] for name in requirement.inputs})
    return {name: column[mask] for name, column in shapes.items()}


@st.composite
def prices(draw: st.DrawFn, topology: str) -> dict[str, Array]:
    """Return messages and a network's links: `POINTS` of each, as a column of two dimensions."""
    names = ["message_bytes", "chunks"]
    for level in LEVELS if topology == "hierarchical" else ("",):
        prefix = f"{level}_" if level else ""
        names += [f"{prefix}{name}" for name in ("latency", "bandwidth", "energy_per_bit")]
    if topology == "hierarchical":
        names += ["ranks_per_nic", "oversubscription", "pod_oversubscription"]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    drawn = {}
    for name in names:
        first = draw(values(VOCABULARY[name]))
        more = _sample(VOCABULARY[name], POINTS - 1, rng)
        drawn[name] = np.concatenate([[first], more])[:, None]
    return drawn
