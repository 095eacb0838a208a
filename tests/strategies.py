"""Quantities drawn from their domains in the vocabulary, of shapes that broadcast.

Hypothesis draws them as bytes, many at once: a call evaluates many in no more time than one, and
drawn one by one they would take longer than what they test.  Bytes of 0 are the lowest values.
Sizes of a network depend on one another, so they are drawn together: the ranks of a mesh are the
product of its sizes, and those of a hierarchy fill its nodes and pods.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from itertools import product
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from overhead import VOCABULARY, Algorithm, Quantity
from overhead.collectives.algorithm import NETWORKS
from overhead.quantity import Array

__all__ = ["POINTS", "Draws", "drawing", "drawn", "networks", "prices", "quantities"]

# Largest whole number drawn, and the powers of ten between which other numbers lie; of many drawn
# at once most lie nearer to one another, so that no term of a sum hides the others.
MOST = 70
POWERS = (-9, 12)
NEAR = (-2, 3)
POINTS = 24
WIDE = 8  # Of the points
# What stands below a fraction line is not nought, though its domain has it.
POSITIVE = {"time", "lower_bound"}
# Counts are added up one by one to some multiple of their product.
LARGEST = {"nodes_down": 1e3, "down_dispersion": 10.0}
# Latency of a switch that reduces, by that of one that doesn't: not 1, which no product shows.
SLOWER_SWITCH = 1.75
LEVELS = ("intra", "inter", "pod")
GRID = ("mesh_nx", "mesh_ny", "mesh_nz")
HIERARCHY = ("node_ranks", "nodes", "pods")
DERIVED = ("ranks", "gpus_per_node", "nodes_per_pod", *GRID, *HIERARCHY)
# Bytes say nothing to a reader, however few of them differ from 0, and are long to shrink.
PHASES = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
MOST_DIMENSIONS = 3
LONGEST = 3


def drawing(share: float, least: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with generators as its `rng`, as many as a share of hypothesis' examples.

    As with hypothesis they are the same each time, unless the profile says otherwise.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def each(**known: Any) -> None:
            profile = settings()
            names = (test.__name__, *(str(getattr(one, "name", one)) for one in known.values()))
            seed = zlib.crc32(".".join(names).encode())
            if not profile.derandomize:
                seed = np.random.SeedSequence().generate_state(1)[0]
            for number in range(max(int(profile.max_examples * share), least)):
                print(f"seed = [{seed}, {number}]")
                test(**known, rng=np.random.default_rng([seed, number]))

        signature = inspect.signature(test)
        other_parameters = [
            parameter for name, parameter in signature.parameters.items() if name != "rng"
        ]
        vars(each)["__signature__"] = signature.replace(parameters=other_parameters)
        return each

    return decorate


class Draws:
    """Numbers that hypothesis draws, asked for as of numpy's generator."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Array]], Array]) -> None:
        self._draw = draw

    def random(self, size: int | tuple[int, ...] = ()) -> Array:
        """Return numbers from 0 to below 1."""
        count = int(np.prod(size, dtype=int))
        several = st.binary(min_size=2 * count, max_size=2 * count).map(_parts)
        return self._draw(several).reshape(size)

    def uniform(self, low: float, high: float, size: int | tuple[int, ...] = ()) -> Array:
        """Return numbers between two."""
        return low + (high - low) * self.random(size)

    def integers(
        self, low: int, high: int, size: int | tuple[int, ...] = (), *, endpoint: bool = False
    ) -> Any:
        """Return whole numbers from one to below another, or up to it."""
        return (low + np.floor((high - low + endpoint) * self.random(size))).astype(int)


def _parts(data: bytes) -> Array:
    return np.frombuffer(data, dtype="<u2") / 65536.0


def drawn(share: float, least: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with `Draws` as its `rng`, as many as a share of hypothesis' examples."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(test)
        other_parameters = [
            parameter for name, parameter in own.parameters.items() if name != "rng"
        ]
        data = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = own.replace(parameters=[*other_parameters, data])

        @wraps(test)
        def each(*args: Any, **kwargs: Any) -> None:
            known = signature.bind(*args, **kwargs).arguments
            test(rng=Draws(known.pop("data").draw), **known)

        vars(each)["__signature__"] = signature
        most = max(int(settings.default.max_examples * share), least)
        return settings(max_examples=most, phases=PHASES)(given(data=st.data())(each))

    return decorate


def _sample(
    quantity: Quantity,
    count: int,
    rng: Draws | np.random.Generator,
    powers: tuple[int, int] = POWERS,
    lowest_of: float = 0.3,
) -> Array:
    """Return numbers in a quantity's domain, some of them its lowest."""
    lowest = quantity.minimum if math.isfinite(quantity.minimum) else 0.0
    low = rng.random(count) < lowest_of
    if quantity.integer:
        highest = min(quantity.maximum, lowest + MOST)
        few = np.minimum(lowest + rng.integers(0, 3, count), highest)
        drawn = rng.integers(int(lowest), int(highest), count, endpoint=True)
        return np.where(low, few, drawn).astype(np.float64)
    most = LARGEST.get(quantity.name, quantity.maximum)
    above = np.minimum(lowest + 10.0 ** rng.uniform(*powers, count), most)
    return above if quantity.above or quantity.name in POSITIVE else np.where(low, lowest, above)


def _columns(names: Iterable[str], rng: Draws | np.random.Generator) -> dict[str, Array]:
    """Return an array for each quantity, of shapes that broadcast."""
    whole = rng.integers(1, LONGEST, rng.integers(0, MOST_DIMENSIONS, endpoint=True), endpoint=True)
    arrays = {}
    for name in dict.fromkeys(names):
        one = np.where(rng.random(whole.size) < 0.3, 1, whole)
        shape = tuple(int(side) for side in one[rng.integers(0, whole.size, endpoint=True) :])
        arrays[name] = _sample(VOCABULARY[name], math.prod(shape), rng).reshape(shape)
    return arrays


def quantities(names: Iterable[str], rng: Draws | np.random.Generator) -> dict[str, Array]:
    """Return an array for each quantity, of shapes that broadcast; sizes fit one another."""
    wanted = tuple(dict.fromkeys(names))
    sizes: tuple[str, ...] = ()
    if any(name in GRID for name in wanted):
        sizes = GRID
    elif any(name in ("gpus_per_node", "nodes_per_pod", *HIERARCHY) for name in wanted):
        sizes = HIERARCHY
    free = [name for name in wanted if not sizes or name not in DERIVED]
    drawn = _columns((*sizes, *free), rng)
    if sizes == GRID:
        drawn["ranks"] = drawn["mesh_nx"] * drawn["mesh_ny"] * drawn["mesh_nz"]
    elif sizes == HIERARCHY:
        drawn |= _filled(drawn, int(rng.integers(1, 4)))
    if "tokens_per_step" in drawn and "sequence_length" in drawn:
        # Whole sequences: plans refuse a batch of other than these.
        drawn["tokens_per_step"] = drawn["tokens_per_step"] * drawn["sequence_length"]
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
        ones = dict.fromkeys(("intra_nvls", "inter_inc"), np.ones_like(drawn["nodes"]))
        ones["in_network_latency_factor"] = np.full_like(drawn["nodes"], SLOWER_SWITCH)
        return {**drawn, **ones, **_filled(drawn, spare=2)}
    requires = NETWORKS[topology].requires
    ranks = np.array(range(1, 1025) if requires else RANKS, dtype=np.float64)
    for condition in requires:
        ranks = ranks[condition.holds(ranks)]
    one = np.ones_like(ranks)
    if topology == "switch":
        able = dict.fromkeys(("has_nvls", "has_inc"), one)
        return {"ranks": ranks, **able, "in_network_latency_factor": SLOWER_SWITCH * one}
    return {"ranks": ranks}


def networks(algorithm: Algorithm) -> dict[str, Array]:
    """Return columns of all shapes of networks, of many, on which an algorithm is defined."""
    shapes = _shapes(algorithm.topology)
    mask = np.ones_like(shapes["ranks"], dtype=bool)
    for requirement in algorithm.requires:
        mask &= requirement.holds(**{name: shapes[name] for name in requirement.inputs})
    return {name: column[mask] for name, column in shapes.items()}


def prices(topology: str, rng: Draws | np.random.Generator) -> dict[str, Array]:
    """Return messages and a network's links: `POINTS` of each, as a column of two dimensions."""
    names = ["message_bytes", "chunks"]
    for level in LEVELS if topology == "hierarchical" else ("",):
        prefix = f"{level}_" if level else ""
        names += [f"{prefix}{name}" for name in ("latency", "bandwidth", "energy_per_bit")]
    if topology == "hierarchical":
        names += ["ranks_sharing_nic", "oversubscription", "pod_oversubscription"]
    drawn = {}
    for name in names:
        wide = _sample(VOCABULARY[name], WIDE, rng)
        near = _sample(VOCABULARY[name], POINTS - WIDE, rng, NEAR, 0.1)
        drawn[name] = np.concatenate([wide, near])[:, None]
    return drawn
