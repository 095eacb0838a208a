"""What holds for every algorithm whatever its formula: growth, limits, bounds, kinship, choices.

Every law is checked on all shapes of `tests.strategies.networks` at once, with many prices at once,
which hypothesis draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from overhead.choose import candidates
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.evaluation import Evaluation
from overhead.labels import COLLECTIVES
from tests.strategies import POINTS, Draws, drawn, networks, prices
from tests.tables import examples, keyed

PAIRS = tuple(dict.fromkeys(key[:2] for key in ALGORITHMS))
every_network = pytest.mark.parametrize(("topology", "collective"), PAIRS, ids=map("-".join, PAIRS))
# Each has `POINTS` prices.
few = drawn(0.1, least=2)

ROUNDING = 1e-11
ALL = ("time", "latency_time", "bandwidth_time", "steps", "sent_bytes", "link_bytes", "energy")
HALVES = ("reduce_scatter", "all_gather")
Prices = Mapping[str, Any]


def evaluate(
    algorithm: Algorithm,
    price: Prices,
    *,
    best: bool = False,
    shapes: Mapping[str, Any] | None = None,
    **labels: str,
) -> Evaluation:
    """Evaluate on many networks; `best`: with the number of chunks that the product chooses."""
    columns = {**(networks(algorithm) if shapes is None else shapes), "hops": 1.0, **price}
    if best:
        columns.pop("chunks", None)
    result = {
        "shape": "three_levels" if algorithm.topology == "hierarchical" else "flat",
        "phases": "pipelined" if "phase_chunks" in columns else "sequential",
        "reduction": "counted" if "reduction_cost" in columns else "free",
        "latency_per": "hop",
        "link": "auto" if algorithm.topology == "hierarchical" else "intra",
    }
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in columns.items()}
    return Evaluation(arrays, result | labels, algorithm)


def changed(price: Prices, ending: str, value: float) -> dict[str, Any]:
    """Return prices with those of all levels that have an ending set."""
    return {name: value if name.endswith(ending) else known for name, known in price.items()}


# An algorithm whose steps wait for their slowest level takes one of these.
BYTES = ("message_bytes", "serialization_time")


def column(rng: Draws, low: float, high: float) -> Any:
    """Return a number beside each price, its lowest among them."""
    drawn = rng.uniform(low, high, (POINTS, 1))
    drawn[0] = low
    return drawn


def at_most(small: Any, large: Any, what: object) -> None:
    wrong = np.asarray(small) > np.asarray(large) * (1.0 + ROUNDING)
    assert not wrong.any(), (what, np.flatnonzero(wrong))


def equal(left: Any, right: Any, what: object) -> None:
    ours, theirs = np.broadcast_arrays(left, right)
    np.testing.assert_allclose(ours, theirs, rtol=ROUNDING, atol=0.0, err_msg=str(what))


def ways(algorithm: Algorithm) -> Iterable[dict[str, Any]]:
    """Return ways to evaluate: with given and chosen chunks, and both readings of a latency."""
    yield {}
    yield {"latency_per": "message", "best": True}
    if algorithm.chunked:
        yield {"best": True}


@pytest.mark.thorough_cases(every=3)
@every_network
@few
def test_time_never_falls_where_something_gets_worse(
    topology: str, collective: str, rng: Draws
) -> None:
    price = prices(topology, rng)
    factor = column(rng, 1.0, 1e3)
    worse: dict[str, Prices] = {}
    for name, value in price.items():
        if name.endswith("bandwidth"):
            worse[name] = {**price, name: value / factor}
        elif name == "message_bytes" or name.endswith(("latency", "oversubscription")):
            worse[name] = {**price, name: value * factor}
    for algorithm in ALGORITHMS.of(topology, collective):
        for way in ways(algorithm):
            before = evaluate(algorithm, price, **way)["time"]
            for name, prices_then in worse.items():
                after = evaluate(algorithm, prices_then, **way)["time"]
                at_most(before, after, (algorithm.name, name, way))


@every_network
@few
def test_one_rank_costs_nothing(topology: str, collective: str, rng: Draws) -> None:
    price = prices(topology, rng)
    for algorithm in ALGORITHMS.of(topology, collective):
        alone = networks(algorithm)["ranks"] == 1.0
        assert alone.any()
        for way in ways(algorithm):
            evaluation = evaluate(algorithm, price, **way)
            for name in (*ALL, "lower_bound", "reduced_fraction"):
                values = np.broadcast_to(evaluation[name], (POINTS, len(alone)))
                assert np.all(values[:, alone] == 0.0), (algorithm.name, name)
                if name == "steps":
                    assert np.all(values[:, ~alone] > 0.0), algorithm.name


@pytest.mark.thorough_cases(every=3)
@every_network
@few
def test_parts_of_the_time(topology: str, collective: str, rng: Draws) -> None:
    """No message or endless bandwidth leave the latency, no latency leaves the transfer."""
    price = prices(topology, rng)
    for algorithm in ALGORITHMS.of(topology, collective):
        whole = evaluate(algorithm, price)
        empty = evaluate(algorithm, {**price, "message_bytes": 0.0})
        endless = evaluate(algorithm, changed(price, "bandwidth", np.inf))
        instant = evaluate(algorithm, changed(price, "latency", 0.0))
        for lean in (empty, endless):
            assert np.all(lean["bandwidth_time"] == 0.0)
            equal(lean["time"], lean["latency_time"], algorithm.name)
        equal(empty["time"], endless["time"], algorithm.name)
        for name in ("sent_bytes", "link_bytes", "energy"):
            assert np.all(empty[name] == 0.0)
        assert np.all(instant["latency_time"] == 0.0)
        equal(instant["time"], instant["bandwidth_time"], algorithm.name)
        equal(whole["time"], whole["latency_time"] + whole["bandwidth_time"], algorithm.name)
        if any(name.endswith(BYTES) for name in algorithm.inputs):
            # Each step lasts as long as its slowest level, so that parts hide behind one another.
            at_most(whole["time"], empty["time"] + instant["time"], algorithm.name)
        else:
            equal(whole["latency_time"], empty["time"], algorithm.name)
            equal(whole["bandwidth_time"], instant["time"], algorithm.name)


@every_network
@few
def test_times_scale_as_bytes_and_latencies_do(topology: str, collective: str, rng: Draws) -> None:
    """Twice the bytes take as long at twice the bandwidth, twice as long at twice the latency."""
    price = prices(topology, rng)
    bytes_twice = {**price, "message_bytes": 2.0 * price["message_bytes"]}
    fast = {n: v * (2.0 if n.endswith("bandwidth") else 1.0) for n, v in bytes_twice.items()}
    late = {n: v * (2.0 if n.endswith("latency") else 1.0) for n, v in bytes_twice.items()}
    for algorithm in ALGORITHMS.of(topology, collective):
        for way in ways(algorithm):
            left, right, twice = (evaluate(algorithm, p, **way) for p in (price, fast, late))
            for name in ("time", "latency_time", "bandwidth_time", "lower_bound"):
                equal(right[name], left[name], (algorithm.name, name, way))
                equal(twice[name], 2.0 * left[name], (algorithm.name, name, way))
            for name in ("sent_bytes", "link_bytes", "energy"):
                equal(right[name], 2.0 * left[name], (algorithm.name, name, way))


# On a hierarchy more ranks bring cards of their own, so that each sends less through each; NVLS
# reads of a switch what all ranks have at the rate at which all of them can.
CHEAPER_WITH_RANKS = ("nvls",)


@every_network
@few
def test_twice_the_ranks_take_no_less_time(topology: str, collective: str, rng: Draws) -> None:
    """Of dimensions of over two ranks: two have one cable or two ways to go, four have both."""
    sides = ("mesh_nx", "mesh_ny", "mesh_nz") if topology in ("mesh", "torus") else ("ranks",)
    price = prices(topology, rng)
    for algorithm in ALGORITHMS.of(topology, collective):
        if topology == "hierarchical" or algorithm.name in CHEAPER_WITH_RANKS:
            continue
        shapes = networks(algorithm)
        rows = {key: k for k, key in enumerate(zip(*(shapes[n] for n in sides), strict=True))}
        pairs = [
            (k, rows[twice])
            for key, k in rows.items()
            for at, side in enumerate(key)
            if side > 2.0 and (twice := (*key[:at], 2.0 * side, *key[at + 1 :])) in rows
        ]
        time = np.broadcast_to(evaluate(algorithm, price)["time"], (POINTS, len(rows)))
        few_ranks, many = np.array(pairs, dtype=int).reshape(-1, 2).T
        at_most(time[:, few_ranks], time[:, many], algorithm.name)


@pytest.mark.thorough_cases(every=3)
@every_network
@few
def test_nothing_beats_the_lower_bound(topology: str, collective: str, rng: Draws) -> None:
    price = prices(topology, rng)
    extras: list[Prices] = [{}, {"phase_chunks": np.floor(column(rng, 1.0, 501.0))}]
    extras.append({"reduction_cost": column(rng, 0.0, 1.0)})
    for algorithm in ALGORITHMS.of(topology, collective):
        for way in ways(algorithm):
            for extra in extras:
                evaluation = evaluate(algorithm, {**price, **extra}, **way)
                bound = evaluation["lower_bound"]
                at_most(bound, evaluation["time"], (algorithm.name, way, extra))
                moves = (evaluation["ranks"] > 1.0) & (price["message_bytes"] > 0.0)
                assert np.all(bound[moves] > 0.0)


@every_network
@few
def test_no_number_of_chunks_beats_the_chosen_one(
    topology: str, collective: str, rng: Draws
) -> None:
    price = prices(topology, rng)
    others = np.arange(1.0, 301.0)[:, None, None]
    for algorithm, per in product(ALGORITHMS.of(topology, collective), ("hop", "message")):
        if algorithm.chunked:
            best = evaluate(algorithm, price, best=True, latency_per=per)
            any_other = evaluate(algorithm, {**price, "chunks": others}, latency_per=per)
            assert np.all(best["chunks"] >= 1.0)
            assert np.all(best["chunks"] == np.floor(best["chunks"]))
            at_most(best["time"], any_other["time"].min(axis=0), algorithm.name)


@pytest.mark.thorough_cases(every=3)
@every_network
@few
def test_phases_pipelined_over_chunks(topology: str, collective: str, rng: Draws) -> None:
    """One chunk changes nothing; of many the slowest dimension's phases are left."""
    price = prices(topology, rng)
    free = changed(price, "latency", 0.0)
    levels = ("intra", "inter", "pod") if topology == "hierarchical" else ("",) * 3
    for algorithm, per in product(ALGORITHMS.of(topology, collective), ("hop", "message")):
        plain = evaluate(algorithm, price, latency_per=per)
        evaluation = evaluate(algorithm, {**price, "phase_chunks": 1.0}, latency_per=per)
        equal(evaluation["time"], plain["time"], algorithm.name)
        many = evaluate(algorithm, {**free, "phase_chunks": 2.0**60}, latency_per=per)
        busy = [
            many[f"dimension_{number}_transfer_fraction"]
            * many[f"{level}_serialization_time" if level else "serialization_time"]
            for number, level in enumerate(levels, 1)
        ]
        slowest = np.maximum(np.maximum(busy[0], busy[1]), busy[2])
        # Where every step works on all levels, there are no phases to overlap.
        whole = any(name.endswith(BYTES) for name in algorithm.inputs)
        equal(many["time"], evaluate(algorithm, free)["time"] if whole else slowest, algorithm.name)


@pytest.mark.thorough_cases(every=3)
@every_network
@few
def test_parts_of_phases_in_a_pipeline(topology: str, collective: str, rng: Draws) -> None:
    """What is waited for adds up to the time; with what hides, to all chunks' work."""
    price = prices(topology, rng)
    chunks = np.floor(column(rng, 1.0, 501.0))
    slow_switch = {**price, "in_network_latency": column(rng, 0.0, 1.0)}
    for algorithm in ALGORITHMS.of(topology, collective):
        pipelined = {**slow_switch, "phase_chunks": chunks, "reduction_cost": 1e-9}
        evaluation = evaluate(algorithm, pipelined)
        parts = evaluation["latency_time"] + evaluation["bandwidth_time"]
        equal(evaluation["time"], parts + evaluation["reduction_time"], algorithm.name)
        work = sum(evaluation[f"phase_{number}_time"] for number in (1, 2, 3))
        equal(
            parts + evaluation["overlapped_phase_time"],
            evaluation["pipelined_chunks"] * work,
            algorithm.name,
        )
        if topology == "hierarchical":
            levels = evaluation["intra_time"] + evaluation["inter_time"] + evaluation["pod_time"]
            equal(levels, parts, algorithm.name)
        left = evaluate(algorithm, {**slow_switch, "phase_chunks": 1.0})
        for name in ("time", "latency_time", "bandwidth_time", "intra_time", "inter_time"):
            if topology == "hierarchical" or not name.startswith("int"):
                equal(left[name], evaluate(algorithm, slow_switch)[name], (algorithm.name, name))


# Algorithms and networks that are kin.


def kin(
    left: Evaluation, right: Evaluation, what: object, names: Iterable[str] = (*ALL, "lower_bound")
) -> None:
    for name in names:
        equal(left[name], right[name], (what, name))


@pytest.mark.parametrize("topology", list(NETWORKS))
@few
def test_an_all_reduce_is_its_two_halves(topology: str, rng: Draws) -> None:
    price = prices(topology, rng)
    for whole in ALGORITHMS.of(topology, "all_reduce"):
        halves = [ALGORITHMS.get((topology, half, whole.name)) for half in HALVES]
        # NVLS reads and writes at once what its halves read first and write then.
        if whole.chunked or whole.form == "nvls" or None in halves:
            continue
        parts = [evaluate(half, price) for half in halves if half]
        together = evaluate(whole, price)
        for name in ALL:
            equal(together[name], parts[0][name] + parts[1][name], (whole.name, name))
        equal(together["reduced_fraction"], parts[0]["reduced_fraction"], whole.name)


# Algorithms on nodes, and what they are on one level: in a node, and between nodes of one GPU.
ONE_LEVEL = examples(__file__, "one_level")


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("level", ["intra", "inter", "pod"])
@few
def test_a_hierarchy_of_one_level_is_a_switch(level: str, collective: str, rng: Draws) -> None:
    price = prices("hierarchical", rng) | {"ranks_sharing_nic": 1.0, "oversubscription": 1.0}
    price |= {"pod_oversubscription": 1.0, "in_network_latency_factor": 1.0}
    own = {name: price[f"{level}_{name}"] for name in ("latency", "bandwidth", "energy_per_bit")}
    own |= {"message_bytes": price["message_bytes"], "chunks": price["chunks"]}
    own["in_network_latency_factor"] = 1.0
    place = {"intra": "node_ranks", "inter": "nodes", "pod": "pods"}[level]
    for nested in ALGORITHMS.of("hierarchical", collective):
        alike = ONE_LEVEL[nested.name][level != "intra"]
        # Without pods, or streamed through trees and switches, which has no like on a switch.
        if (nested.name, level) == ("flat_pairwise", "pod") or not alike:
            continue
        flat = ALGORITHMS["switch", collective, alike]
        shapes = dict(networks(flat))
        sizes = dict.fromkeys(("node_ranks", "nodes", "pods"), 1.0) | {place: shapes["ranks"]}
        ours = evaluate(nested, price, shapes=sizes | {"ranks": shapes["ranks"]})
        # Gathers to a root that differ in whose pieces go through which rank.
        same = [
            name
            for name in (*ALL, "lower_bound")
            if flat.key[1:] != ("reduce", "vdg_ring") or name[:4] != "sent"
        ]
        kin(ours, evaluate(flat, own, shapes=shapes), (nested.name, flat.name), same)


@pytest.mark.parametrize("collective", COLLECTIVES)
@few
def test_one_pod_is_no_pod(collective: str, rng: Draws) -> None:
    price = prices("hierarchical", rng)
    for algorithm in ALGORITHMS.of("hierarchical", collective):
        all_shapes = networks(algorithm)
        mask = all_shapes["pods"] == 1.0
        shapes = {name: column[mask] for name, column in all_shapes.items()}
        kin(
            evaluate(algorithm, price, shapes=shapes),
            evaluate(algorithm, price, shapes=shapes, shape="two_levels"),
            algorithm.name,
        )


@pytest.mark.parametrize("collective", COLLECTIVES)
@few
def test_oversubscription_divides_bandwidth(collective: str, rng: Draws) -> None:
    price = prices("hierarchical", rng)
    divided = {**price, "oversubscription": 1.0, "pod_oversubscription": 1.0}
    divided["inter_bandwidth"] = price["inter_bandwidth"] / price["oversubscription"]
    divided["pod_bandwidth"] = price["pod_bandwidth"] / price["pod_oversubscription"]
    for algorithm in ALGORITHMS.of("hierarchical", collective):
        for way in ways(algorithm):
            less, none = (evaluate(algorithm, p, **way) for p in (price, divided))
            kin(less, none, algorithm.name, ("time", "sent_bytes", "link_bytes", "energy"))


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("axis", ["mesh_nx", "mesh_ny", "mesh_nz"])
@few
def test_a_torus_of_one_dimension_is_a_ring(axis: str, collective: str, rng: Draws) -> None:
    price = prices("torus", rng)
    for wide in ALGORITHMS.of("torus", collective):
        narrow = ALGORITHMS.get(("ring", collective, wide.name.removeprefix("multi_")))
        if narrow is None:
            continue
        ranks = networks(narrow)["ranks"]
        sizes = dict.fromkeys(("mesh_nx", "mesh_ny", "mesh_nz"), 1.0) | {axis: ranks}
        ours = evaluate(wide, price, shapes={**sizes, "ranks": ranks})
        keep = np.broadcast_to(ours.defined(), ranks.shape)
        theirs = evaluate(narrow, price)
        for name in (*ALL, "lower_bound"):
            left, right = (np.broadcast_to(e[name], (POINTS, len(ranks))) for e in (ours, theirs))
            equal(left[:, keep], right[:, keep], (wide.name, name))


# On dimensions of two ranks a mesh and a torus have the same cables.
SAME_CABLES = keyed("line=ring wrap=ring folded=ring multi_line=multi_ring shift_line=shift_min")


@pytest.mark.parametrize("collective", COLLECTIVES)
@few
def test_dimensions_of_two_ranks_need_no_wraparound(collective: str, rng: Draws) -> None:
    price = prices("mesh", rng)
    sizes = np.array([[1, 2, 1, 1, 2, 2, 1, 2], [1, 1, 2, 1, 2, 1, 2, 2], [1, 1, 1, 2, 1, 2, 2, 2]])
    shapes = dict(zip(("mesh_nx", "mesh_ny", "mesh_nz"), sizes.astype(np.float64), strict=True))
    shapes["ranks"] = sizes.prod(axis=0)
    pairs = 0
    for mesh in ALGORITHMS.of("mesh", collective):
        torus = ALGORITHMS.get(("torus", collective, SAME_CABLES.get(mesh.name, mesh.name)))
        if torus is not None:
            pairs += 1
            ours = evaluate(mesh, price, shapes=shapes)
            kin(ours, evaluate(torus, price, shapes=shapes), mesh.name)
    assert pairs > 0


@pytest.mark.parametrize("collective", COLLECTIVES)
@few
def test_two_ranks_have_one_cable_on_every_network(collective: str, rng: Draws) -> None:
    price = prices("ring", rng)
    shapes = {"ranks": 2.0, "mesh_nx": 2.0, "mesh_ny": 1.0, "mesh_nz": 1.0}
    names = {"ring", "line", "flood", "direct", "chain", "fwd_bidir", "shift_min", "pairwise"}
    evaluations = [
        evaluate(algorithm, price, shapes=shapes)
        for topology in set(NETWORKS) - {"hierarchical"}
        for algorithm in ALGORITHMS.of(topology, collective)
        if algorithm.name in names
    ]
    assert len(evaluations) > 3
    for evaluation in evaluations[1:]:
        kin(evaluations[0], evaluation, evaluation.algorithm.key)


@few
def test_a_logical_tree_hangs_on_a_switch(rng: Draws) -> None:
    price = prices("switch", rng)
    for key, tree in ALGORITHMS.items():
        if key[0] == "tree":
            switch = ALGORITHMS["switch", *key[1:]]
            for way in ways(tree):
                kin(evaluate(tree, price, **way), evaluate(switch, price, **way), key)


# Choices.


@every_network
def test_choices_are_algorithms_of_the_network(topology: str, collective: str) -> None:
    there = ALGORITHMS.of(topology, collective)
    (standard,) = candidates(topology, collective, "standard")
    assert standard in there
    assert standard.requires == ()
    nccl = candidates(topology, collective, "nccl")
    assert set(nccl) <= set(there)
    assert any(not one.requires for one in nccl)
    assert candidates(topology, collective, "auto") == there
