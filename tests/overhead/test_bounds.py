"""No algorithm is faster than the physical bound of its network."""

from __future__ import annotations

import numpy as np
import pytest

from overhead import expression as ex
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.formula import REGISTRY
from tests.overhead.shapes import Columns, defined, time_of

every_algorithm = pytest.mark.parametrize(
    "algorithm", ALGORITHMS.values(), ids=[".".join(key) for key in ALGORITHMS]
)


class Bounds:
    """Quantities of an algorithm's network, through the registry."""

    def __init__(self, algorithm: Algorithm, columns: Columns, shape: str, per: str) -> None:
        self.labels = {
            "topology": algorithm.topology,
            "collective": algorithm.collective,
            "shape": shape,
            "latency_per": per,
            "in_network": "yes" if algorithm.in_network else "no",
        }
        self.known = dict(columns)

    def get(self, quantity: str) -> np.ndarray:
        if quantity not in self.known:
            formula = REGISTRY.returning(quantity, self.labels)
            assert formula is not None, (quantity, self.labels)
            inputs = {name: self.get(name) for name in formula.inputs}
            with np.errstate(all="raise"):
                self.known[quantity] = np.asarray(formula.kernel(*inputs.values()))
                expected = ex.evaluate(formula.expression, inputs)
            np.testing.assert_allclose(self.known[quantity], expected, rtol=1e-12)
        return self.known[quantity]


def cases(algorithm: Algorithm) -> list[tuple[str, Columns]]:
    columns = dict(defined(algorithm))
    if algorithm.topology != "hierarchical":
        return [("flat", columns)]
    one_pod = columns["pods"] == 1.0
    two = {name: column[one_pod] for name, column in columns.items()}
    return [("two_levels", two), ("three_levels", columns)]


@every_algorithm
@pytest.mark.parametrize("per", ["hop", "message"])
def test_no_algorithm_beats_its_bound(algorithm: Algorithm, per: str) -> None:
    for shape, columns in cases(algorithm):
        bounds = Bounds(algorithm, columns, shape, per)
        part = {"hop": "latencies", "message": "messages"}[per]
        for chunks in (1.0, 2.0, 3.0, 7.0, 60.0, 2.0**40):
            cut = {**columns, "chunks": np.full_like(columns["ranks"], chunks)}
            time = time_of(algorithm, cut, part)
            low = bounds.get("lower_bound")
            worst = np.argmax(low - time * (1 + 1e-12))
            row = {name: column[worst] for name, column in columns.items()}
            assert np.all(low <= time * (1 + 1e-12)), (low[worst], time[worst], row)
            if not algorithm.chunked:
                break


# How near the nearest algorithm comes.  On grids no broadcast here uses all the links of its root
# for different bytes, and no all_reduce all links of a mesh.
LIMITS: dict[str, dict[str, float]] = {
    **{name: {} for name in ("ring", "tree", "switch", "hierarchical", "binary_tree")},
    "mesh": {"broadcast": 2.0, "all_reduce": 1.34},
    "torus": {"broadcast": 3.0},
}
# Of networks that aren't here the bound is at least of the right size.
FAR = 4.0


@pytest.mark.parametrize("topology", list(NETWORKS))
def test_bounds_are_not_idle(topology: str) -> None:
    """Where there are several ranks and bytes there is a bound, and somebody comes near it."""
    for collective in ("all_reduce", "all_gather", "broadcast", "all_to_all"):
        nearest = np.inf
        algorithms = ALGORITHMS.of(topology, collective)
        for algorithm in algorithms:
            shape, columns = cases(algorithm)[-1]
            cut = {**columns, "chunks": np.full_like(columns["ranks"], 2.0**40)}
            for name in [name for name in cut if name.endswith("latency")]:
                cut[name] = np.zeros_like(cut[name])
            several = (cut["ranks"] > 8.0) & (cut["message_bytes"] > 0.0)
            low = Bounds(algorithm, cut, shape, "hop").get("bandwidth_bound")
            assert np.all(low[several] > 0.0)
            ratio = time_of(algorithm, cut)[several] / low[several]
            nearest = min(nearest, float(np.min(ratio, initial=np.inf)))
        limit = LIMITS[topology].get(collective, 1.0) if topology in LIMITS else FAR
        assert nearest < limit + 0.01 or not algorithms, (topology, collective, nearest)
