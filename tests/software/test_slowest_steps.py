"""Steps that wait for their slowest level, and chunks: by what is paid, with a library or without.

What is looked at is each algorithm on each network: with a library a step's latency, rate and ramp
are the library's, whatever the links' own are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.collectives.algorithm import ALGORITHMS, Algorithm
from overhead.completion import following
from overhead.evaluation import Evaluation
from overhead.topology import build_topology, collective, default_library, default_links
from tests.tables import keyed

US, GB = 1e-6, 1e9
POINTS = 300
LINKS = ("intra_latency", "inter_latency", "intra_bandwidth", "inter_bandwidth")
LIBRARY = tuple(
    "step_latency inter_node_step_latency ramp_time fabric_ramp_steps simple_launch_time".split()
)
SHARES = ("channel_efficiency", "nic_efficiency")
WORSE = (
    "intra_latency",
    "inter_latency",
    "pod_latency",
    *LIBRARY,
    "message_bytes",
    "oversubscription",
    "pod_oversubscription",
    "simple_fabric_factor",
)
BETTER = ("intra_bandwidth", "inter_bandwidth", "pod_bandwidth", "pair_bandwidth_ratio", *SHARES)
STEPWISE = [
    algorithm
    for algorithm in ALGORITHMS.values()
    if algorithm.chunked or any(name.endswith("_step_latency") for name in algorithm.inputs)
]


def test_a_slower_link_makes_no_ring_faster() -> None:
    """One ring of 64 ranks in 8 nodes of NCCL: 126 steps, each as long as the one between nodes.

    A step between nodes takes 8.0 us and 0.68 times as much more for Simple: 13.44 us, and 126 of
    them 1,693.44 us; one inside a node takes 0.81 us, whatever latency its link is said to have.
    """
    library = default_library()
    step = library["inter_node_step_latency"] * (1.0 + library["simple_fabric_factor"])
    assert step == pytest.approx(13.44 * US)
    for latency in (0.8 * US, 2.7 * US, 5.0 * US, 15.0 * US):
        network = build_topology("hierarchical", 64, **default_links() | {"intra_latency": latency})
        cost = collective("all_reduce", 0.0, network, algorithm="flat_ring", software="nccl")
        start = library["collective_launch_time"] + library["simple_launch_time"]
        assert cost.steps == 126.0
        assert float(cost.latency_s) == pytest.approx(126.0 * step + start)


def test_the_number_of_chunks_is_best_with_its_ramp() -> None:
    """A chain of 4 ranks in a node, of 1 MiB: two steps more than chunks, by hand."""
    library = default_library() | {"step_latency": 5.0 * US, "ramp_time": 30.0 * US}
    links = {"bandwidth": 100.0 * GB, "latency": 1.0 * US, "pair_bandwidth": np.inf}
    message, share = 2.0**20, library["channel_efficiency"]
    wire = message / (100.0 * GB * share)

    def time(chunks: float) -> float:
        steps = 2.0 + chunks
        ramp = (library["ramp_time"] * steps / chunks * message / (100.0 * GB)) ** 0.5
        return steps * 5.0 * US + steps / chunks * wire + ramp

    best = min(range(1, 100), key=time)
    assert best != min(range(1, 100), key=lambda k: (2.0 + k) * (5.0 * US + wire / k))
    given = {**library, **links, "ranks": 4.0, "message_bytes": message, "gpus_per_node": 8.0}
    labels = keyed(
        "topology=switch collective=broadcast algorithm=chain latency_per=hop link=intra "
        "library=nccl floor=none environment=nccl-tests"
    )
    evaluation = Evaluation(given, following(labels, given))
    assert float(evaluation["chunks"]) == best
    start = library["collective_launch_time"] + library["simple_launch_time"]
    assert float(evaluation["time"]) == pytest.approx(start + time(best))


def drawn(rng: np.random.Generator, algorithm: Algorithm, pods: bool) -> dict[str, Any]:
    """Return networks, a library's constants on them, and messages: a column each."""

    def around(value: Any) -> Any:
        return value * np.exp(rng.uniform(np.log(0.05), np.log(20.0), POINTS))

    def powers(most: int) -> Any:
        return 2.0 ** rng.integers(0, most, POINTS)

    found: dict[str, Any] = {**default_library(), **default_links()}
    for name in (*LINKS, *LIBRARY):
        found[name] = around(found[name])
    found |= {name: rng.uniform(0.3, 1.0, POINTS) for name in SHARES}
    found["pair_bandwidth_ratio"] = rng.choice([0.1, 0.4, 1.0], POINTS)
    found["message_bytes"] = np.exp(rng.uniform(np.log(1e2), np.log(1e11), POINTS))
    found |= {"oversubscription": rng.uniform(1.0, 4.0, POINTS), "hops": 1.0, "nodes_per_leaf": 1.0}
    if algorithm.topology == "hierarchical":
        node, nodes, more = powers(5), powers(5), powers(3)
        cards = np.minimum(node, powers(3))
        found |= {"gpus_per_node": node, "ranks_sharing_nic": cards, "ranks": node * nodes * more}
        if pods:
            found |= {
                f"pod_{one}": around(found[f"inter_{one}"]) for one in ("latency", "bandwidth")
            }
            found |= {"nodes_per_pod": nodes, "pod_oversubscription": rng.uniform(1, 4, POINTS)}
        return found
    found |= {"bandwidth": found["intra_bandwidth"], "latency": found["intra_latency"]}
    sizes = (powers(4), 4.0, 2.0) if algorithm.topology in {"mesh", "torus"} else (powers(9),)
    found["ranks"] = np.prod(np.broadcast_arrays(*sizes), axis=0)
    if len(sizes) > 1:
        found |= dict(zip(("mesh_nx", "mesh_ny", "mesh_nz"), sizes, strict=True))
    return found


def evaluated(algorithm: Algorithm, values: dict[str, Any], library: str) -> Evaluation:
    labels = {
        "topology": algorithm.topology,
        "collective": algorithm.collective,
        "algorithm": algorithm.name,
        "latency_per": "hop",
        "link": "auto",
        "library": library,
        "floor": "none",
        "environment": "nccl-tests",
    }
    return Evaluation(values, following(labels, values), algorithm)


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize("algorithm", STEPWISE, ids=[".".join(name.key) for name in STEPWISE])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1), library=st.sampled_from(["none", "nccl"]), pods=st.booleans()
)
def test_nothing_is_faster_where_something_is_slower(
    algorithm: Algorithm, seed: int, library: str, pods: bool
) -> None:
    rng = np.random.default_rng(seed)
    values = drawn(rng, algorithm, pods)
    with np.errstate(all="ignore"):
        before = evaluated(algorithm, values, library)
        defined = np.broadcast_to(before.defined(), (POINTS,))
        time = np.broadcast_to(before["time"], (POINTS,))
        for name in (*WORSE, *BETTER):
            if name not in values:
                continue
            factor = 1.0 + np.exp(rng.uniform(np.log(1e-3), np.log(3.0), POINTS))
            worse = values[name] * factor if name in WORSE else values[name] / factor
            then = np.broadcast_to(
                evaluated(algorithm, {**values, name: worse}, library)["time"], (POINTS,)
            )
            wrong = defined & (then < time * (1.0 - 1e-9))
            assert not wrong.any(), (name, np.flatnonzero(wrong), (then / time)[wrong])
