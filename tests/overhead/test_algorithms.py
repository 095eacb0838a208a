"""Every algorithm: what it states is what its kernel gives; one rank costs nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import overhead
import sweeps
from overhead import expression as ex
from overhead.choose import candidates, usable
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, STATEMENTS, Algorithm
from overhead.collectives.torus import staircase
from overhead.labels import COLLECTIVES
from overhead.statements import statements
from sweeps.latex import latex
from tests.each import each
from tests.overhead.shapes import Columns, defined, paid, shapes, time_of

every_algorithm = each("algorithm", ALGORITHMS.values(), lambda algorithm: algorithm.key)
PAIRS = [(topology, collective) for topology in NETWORKS for collective in COLLECTIVES]
ONE = {"rtol": 1e-12, "atol": 0.0}


@pytest.fixture(scope="module", autouse=True)
def recorded() -> None:
    """Record what all state, which takes a second once and then stays."""
    for algorithm in ALGORITHMS.values():
        assert statements(algorithm)


def stated(algorithm: Algorithm, quantity: str, columns: Columns) -> np.ndarray:
    # A quotient may be without meaning where another branch is taken.
    with np.errstate(divide="ignore", invalid="ignore"):
        value = ex.evaluate(statements(algorithm)[quantity], columns)
    return np.broadcast_to(value, columns["ranks"].shape)


def kernel(algorithm: Algorithm, columns: Columns) -> dict[str, np.ndarray]:
    with np.errstate(all="raise"):
        cost = algorithm.cost(**{name: columns[name] for name in algorithm.inputs})
        time = time_of(algorithm, columns)
    message = columns["message_bytes"]
    carried = sum(level.carried for level in cost.levels)
    return {
        "steps": cost.steps + np.zeros_like(message),
        "time": time,
        "sent_bytes": cost.sent * message,
        "link_bytes": carried * message,
    }


@pytest.mark.thorough
@every_algorithm
def test_declaration_holds_together(algorithm: Algorithm) -> None:
    algorithm.check()
    assert set(statements(algorithm)) == {"steps", "time", "sent_bytes", "link_bytes"}
    assert algorithm.title
    assert not algorithm.title.endswith(".")
    for text in statements(algorithm).values():
        latex(text)


@every_algorithm
def test_kernel_gives_what_is_stated(algorithm: Algorithm) -> None:
    columns = defined(algorithm)
    assert len(columns["ranks"]) > 5
    for quantity, values in kernel(algorithm, columns).items():
        expected = stated(algorithm, quantity, columns)
        np.testing.assert_allclose(values, expected, **ONE, err_msg=quantity)


@every_algorithm
def test_statements_use_nothing_that_the_kernel_cannot_know(algorithm: Algorithm) -> None:
    prices = {"message_bytes", "ranks"}
    for level in ("", "intra_", "inter_", "pod_"):
        prices |= {f"{level}latency", f"{level}bandwidth"}
    prices |= {"effective_oversubscription", "pod_oversubscription", "in_network_latency"}
    named = {name for text in statements(algorithm).values() for name in ex.names(text)}
    assert named <= prices | set(algorithm.inputs)


@every_algorithm
def test_one_rank_costs_nothing(algorithm: Algorithm) -> None:
    columns = defined(algorithm)
    alone = {name: column[columns["ranks"] == 1.0] for name, column in columns.items()}
    assert len(alone["ranks"]) > 0
    cost = algorithm.cost(**{name: alone[name] for name in algorithm.inputs})
    for part in (cost.steps, cost.sent, cost.reduced):
        assert np.all(np.asarray(part) == 0.0)
    for level in cost.levels:
        for part in (level.latencies, level.messages, level.transfer, level.carried):
            assert np.all(np.asarray(part) == 0.0)
    for quantity in STATEMENTS:
        assert np.all(stated(algorithm, quantity, alone) == 0.0)


@every_algorithm
def test_costs_are_finite_and_consistent(algorithm: Algorithm) -> None:
    columns = defined(algorithm)
    cost = algorithm.cost(**{name: columns[name] for name in algorithm.inputs})
    carried = sum(level.carried for level in cost.levels)
    several = columns["ranks"] > 1.0
    assert np.all((np.broadcast_to(cost.steps, several.shape) > 0.0) == several)
    assert np.all((np.broadcast_to(cost.sent, several.shape) > 0.0) == several)
    # All ranks together send what the links carry; on longer ways, or with the switch, more.
    if not algorithm.in_network:
        assert np.all(carried <= columns["ranks"] * cost.sent * _longest(columns) + 1e-9)
    for level in cost.levels:
        assert np.all(np.isfinite(level.latencies))
        assert np.all(np.asarray(level.messages) <= np.asarray(level.latencies) + 1e-12)
    nothing_reduced = algorithm.collective not in ("all_reduce", "reduce_scatter", "reduce")
    # Switches reduce inside nodes, ranks between them.
    reducing = columns["nodes"] > 1.0 if algorithm.name == "nvls_tree" else several
    if nothing_reduced or (algorithm.in_network and reducing is several):
        reducing = np.zeros_like(several)
    assert np.all((np.broadcast_to(cost.reduced, several.shape) > 0.0) == reducing)


def _longest(columns: Columns) -> np.ndarray:
    """Return a number of links that no message exceeds."""
    if "mesh_nx" in columns:
        return columns["mesh_nx"] + columns["mesh_ny"] + columns["mesh_nz"]
    return np.maximum(columns["ranks"], columns["hops"])


@pytest.mark.thorough
@every_algorithm
def test_kernel_broadcasts(algorithm: Algorithm) -> None:
    """Inputs that vary along different dimensions give what each row of them gives."""
    columns = defined(algorithm)
    rows = np.linspace(0, len(columns["ranks"]) - 1, 7).astype(int)
    numbers = np.array([1.0, 3.0, 17.0])
    shape = {name: columns[name][rows][:, None] for name in algorithm.inputs if name != "chunks"}
    if algorithm.chunked:
        whole = algorithm.cost(**shape, chunks=numbers[None, :])
    else:
        whole = algorithm.cost(**shape)
    for row in range(len(rows)):
        for index, number in enumerate(numbers):
            one = {name: value[row, 0] for name, value in shape.items()}
            if algorithm.chunked:
                one["chunks"] = number
            alone = algorithm.cost(**{n: np.asarray(value) for n, value in one.items()})
            wide = np.broadcast_to(whole.levels[0].transfer, (len(rows), 3))
            assert wide[row, index] == pytest.approx(float(alone.levels[0].transfer), rel=1e-14)


@pytest.mark.parametrize("topology", list(NETWORKS))
def test_latency_a_message_is_no_more_than_a_hop(topology: str) -> None:
    for algorithm in ALGORITHMS.values():
        if algorithm.topology == topology:
            columns = defined(algorithm)
            a_hop = time_of(algorithm, columns)
            assert np.all(time_of(algorithm, columns, "messages") <= a_hop * (1 + 1e-12))


# One network as a special case of another.


@pytest.mark.parametrize(
    ("special", "general", "sizes"),
    [
        ("ring", "torus", ("mesh_nx", "mesh_ny", "mesh_nz")),
        ("ring", "torus", ("mesh_nz", "mesh_ny", "mesh_nx")),
        ("ring", "torus", ("mesh_ny", "mesh_nx", "mesh_nz")),
    ],
)
def test_torus_of_one_dimension_is_a_ring(
    special: str, general: str, sizes: tuple[str, str, str]
) -> None:
    columns = dict(shapes(special))
    columns |= {name: np.ones_like(columns["ranks"]) for name in sizes[1:]}
    columns[sizes[0]] = columns["ranks"]
    shared = 0
    for (topology, collective, name), algorithm in ALGORITHMS.items():
        key = (general, collective, name)
        if topology == special and key in ALGORITHMS and name not in ("rd", "binomial"):
            shared += 1
            ours, theirs = kernel(algorithm, columns), kernel(ALGORITHMS[key], columns)
            for quantity in ours:
                np.testing.assert_allclose(theirs[quantity], ours[quantity], **ONE)
    assert shared == 25


@pytest.mark.parametrize("level", ["node_ranks", "nodes", "pods"])
def test_hierarchy_of_one_level_is_a_switch(level: str) -> None:
    prefix = {"node_ranks": "intra", "nodes": "inter", "pods": "pod"}[level]
    columns = dict(shapes("switch"))
    ones = np.ones_like(columns["ranks"])
    columns |= dict.fromkeys(("node_ranks", "nodes", "pods", "ranks_sharing_nic"), ones)
    columns |= {
        "effective_oversubscription": ones,
        "pod_oversubscription": ones,
        level: columns["ranks"],
    }
    for other_name in ("intra", "inter", "pod"):
        columns |= {f"{other_name}_latency": 7.0 * ones, f"{other_name}_bandwidth": ones}
    columns |= {f"{prefix}_{name}": columns[name] for name in ("latency", "bandwidth")}
    columns |= paid(columns)
    pairs = {
        ("all_reduce", "ring_ring"): "ring",
        ("all_reduce", "flat_ring"): "ring",
        ("all_reduce", "flat_ring_channels"): "ring",
        ("all_reduce", "ring_path"): "ring",
        ("all_gather", "intra_inter"): "ring",
        ("broadcast", "chain"): "chain",
        ("reduce", "binomial"): "binomial",
        ("all_to_all", "two_phase"): "pairwise",
        ("all_to_all", "flat_direct"): "direct",
        ("all_to_all", "flat_pairwise"): "pairwise",
        ("all_to_all", "node_pairwise"): "pairwise",
        ("p2p", "direct"): "direct",
    }
    for (collective, name), flat in pairs.items():
        if name == "flat_pairwise" and level == "pods":
            continue
        ours = kernel(ALGORITHMS["hierarchical", collective, name], columns)
        theirs = kernel(ALGORITHMS["switch", collective, flat], columns)
        for quantity in ours:
            np.testing.assert_allclose(ours[quantity], theirs[quantity], **ONE, err_msg=name)


def test_pairwise_on_a_hierarchy_is_the_sum_of_its_shifts() -> None:
    algorithm = ALGORITHMS["hierarchical", "all_to_all", "flat_pairwise"]
    columns = defined(algorithm)
    small = {name: column[columns["ranks"] <= 64] for name, column in columns.items()}
    times = time_of(algorithm, small)
    for row, time in enumerate(times):
        v = {name: float(column[row]) for name, column in small.items()}
        assert time == pytest.approx(_shifts(v), rel=1e-12, abs=1e-18)


def _shifts(v: dict[str, float]) -> float:
    n, g, f = int(v["ranks"]), int(v["node_ranks"]), v["ranks_sharing_nic"]
    block = v["message_bytes"] / n
    total = 0.0
    for shift in range(1, n):
        near = min(shift, n - shift)
        inside = v["intra_latency"] + block / v["intra_bandwidth"]
        # Of a node's ranks at one card `near` have their partner outside; groups of other nodes'
        # ranks use a card that serves more than the group has.
        leaving = min(near, f, g) * max(1.0, f / g)
        wire = block * v["effective_oversubscription"] / v["inter_bandwidth"]
        outside = v["inter_latency"] + leaving * wire
        total += max(inside if near < g or v["nodes"] == 1 else 0.0, outside * (v["nodes"] > 1))
    return total


# Choices.


@pytest.mark.parametrize(("topology", "collective"), PAIRS)
def test_choices_name_algorithms_that_are_there(topology: str, collective: str) -> None:
    network = NETWORKS[topology]
    everything = candidates(topology, collective, "auto")
    assert everything == candidates(topology, collective, "all")
    standard = candidates(topology, collective, "standard")
    nccl = candidates(topology, collective, "nccl")
    # An operation that a network lacks has none; of one with algorithms one is the standard.
    assert len(standard) == (collective in network.standard) == bool(everything)
    names = tuple(choice.name for choice in standard)
    assert names == tuple(filter(None, [network.standard.get(collective)]))
    assert tuple(a.name for a in nccl) == network.nccl.get(collective, names)
    assert {*standard, *nccl} <= set(everything)
    for name in names:
        assert candidates(topology, collective, name) == standard


def test_an_operation_that_a_network_lacks_has_no_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network with one algorithm is legal; what it lacks is a hole, and no traceback."""
    torus = replace(NETWORKS["torus"], name="line", standard={"all_reduce": "ring"}, nccl={})
    monkeypatch.setitem(NETWORKS, "line", torus)
    for choice in ("standard", "nccl", "auto", "all"):
        assert candidates("line", "all_to_all", choice) == ()
    assert usable({"topology": "line", "collective": "p2p", "algorithm": "standard"}) == ()
    dataset = sweeps.sweep("time", topology="line", collective="p2p", ranks=8, message_bytes=1e6)
    assert np.isnan(dataset["time"]).all()
    status = dataset["status"]
    names = dict(zip(status.flag_meanings.split(), status.flag_masks, strict=True))
    assert int(status) == names["algorithm_not_defined_on_topology"]
    with pytest.raises(ValueError, match="broadcast: line has no nccl algorithm"):
        overhead.collective("broadcast", 1e6, overhead.TopologyDesc("line", {}), algorithm="nccl")


def test_a_name_of_another_network_gives_none() -> None:
    assert candidates("ring", "all_reduce", "nvls") == ()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("ring", "all_reduce", "rnig"), "no algorithm is called 'rnig'; did you mean 'ring'"),
        (("star", "all_reduce", "ring"), "'star' is unknown; known: ring, tree"),
        (("ring", "gather", "ring"), "'gather' is unknown; known: all_reduce"),
    ],
)
def test_an_unknown_word_is_refused(words: tuple[str, str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        candidates(*words)


@pytest.mark.parametrize("parts", [3, 6])
def test_the_slowest_of_parts_is_summed_over_steps_to_the_last_bit(parts: int) -> None:
    rng = np.random.default_rng(parts)
    lengths = rng.integers(0, 6, (parts, 5, 400)) / 2.0  # Many equal ones
    heights = rng.random((parts, 5, 400))
    order = np.argsort(-lengths, axis=0)
    long = np.take_along_axis(lengths, order, axis=0)
    slowest = np.maximum.accumulate(np.take_along_axis(heights, order, axis=0), axis=0)
    least = np.concatenate([long[1:], np.zeros_like(long[:1])])
    true = np.sum((long - least) * slowest, axis=0)
    np.testing.assert_array_equal(staircase(list(lengths), list(heights)), true)
