"""Whatever is given isn't computed, and takes the place of what would have been."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sweeps
from overhead.collectives.algorithm import NETWORKS
from overhead.formula import REGISTRY
from sweeps.engine.program import Program
from sweeps.errors import InputError
from sweeps.job import prepare

RING = {"topology": "ring", "ranks": [2, 8], "message_bytes": [1e6, 1e9]}
LINK = {"latency": 0.0, "bandwidth": 450e9}


def computed(program: Program) -> set[str]:
    """Return the names of all that a program computes."""
    names, stack = set(), [node for case in program.cases for node in case.nodes.values()]
    while stack:
        node = stack.pop()
        if node.run is not None:
            names.add(node.name)
        stack += node.inputs
    return names


def plan_of(quantities: list[str], **axes: object) -> Program:
    spec = {name: value if isinstance(value, list) else [value] for name, value in axes.items()}
    return prepare({"quantities": quantities, "axes": spec}).program


def test_only_what_is_asked_for_is_computed() -> None:
    assert computed(plan_of(["bus_factor"], **RING)) == {"bus_factor"}
    steps = computed(plan_of(["steps"], **RING))
    assert steps == {"steps", "cost"}
    assert "serialization_time" not in computed(plan_of(["latency_time"], **RING))


def test_a_time_that_is_given_is_not_computed() -> None:
    time = [1e-3, 2e-3, 5e-3]
    program = plan_of(["time", "algbw", "busbw"], time=time, **RING)
    assert computed(program) == {"algbw", "bus_factor", "busbw"}
    assert [variable.name for variable in program.variables] == ["algbw", "busbw", "status"]
    dataset = sweeps.sweep(["time", "algbw", "busbw"], time=time, **RING)
    assert dataset["algbw"].dims == ("message_bytes", "time")
    assert dataset["busbw"].dims == ("ranks", "message_bytes", "time")
    sizes, times = np.array([1e6, 1e9]), np.array(time)
    np.testing.assert_array_equal(dataset["algbw"], sizes[:, None] / times)
    assert dataset["time"].dims == ("time",)
    assert "time" in dataset.coords


def test_a_part_of_the_time_that_is_given() -> None:
    given = [1e-3, 4e-3]
    dataset = sweeps.sweep(["time", "bandwidth_time", "latency_time"], bandwidth_time=given, **RING)
    assert set(dataset["time"].dims) == {"ranks", "bandwidth_time"}
    total = dataset["latency_time"] + dataset.coords["bandwidth_time"]
    np.testing.assert_array_equal(dataset["time"], total.transpose(*dataset["time"].dims))


def test_a_wire_time_takes_the_place_of_message_and_bandwidth() -> None:
    axes = {"topology": "ring", "ranks": 8, "latency": 0.0}
    dataset = sweeps.sweep(["time"], serialization_time=[1e-3, 8e-3], **axes)
    np.testing.assert_allclose(dataset["time"], 2 * 7 / 8 * np.array([1e-3, 8e-3]), rtol=1e-15)
    # Not even a message is needed then, but what takes one says so.
    with pytest.raises(
        InputError, match=r"sent_bytes needs the message size .*; give message_bytes as"
    ):
        sweeps.sweep(["sent_bytes"], serialization_time=[1e-3], **axes)


def test_counts_of_a_schedule_that_are_given() -> None:
    dataset = sweeps.sweep(["time", "steps"], transfer_fraction=[1.0, 3.0], **LINK, **RING)
    wire = RING["message_bytes"] / np.array([450e9, 450e9])  # type: ignore[operator]
    expected = np.multiply.outer([1.0, 3.0], wire)
    time = dataset["time"].transpose("ranks", "transfer_fraction", "message_bytes")
    np.testing.assert_allclose(time.sel(ranks=8), expected, rtol=1e-15)
    np.testing.assert_array_equal(time.sel(ranks=8), time.sel(ranks=2))
    assert dataset["steps"].to_numpy().tolist() == [2.0, 14.0]


def test_a_choice_between_times_needs_them_computed() -> None:
    for choice in ("auto", "nccl"):
        with pytest.raises(InputError, match=rf"algorithm = '{choice}'.*but the time is given"):
            sweeps.sweep(["steps"], **{**RING, "topology": "switch"}, algorithm=choice, time=1e-3)
    # What doesn't depend on the choice is fine.
    dataset = sweeps.sweep(["busbw"], **{**RING, "topology": "switch"}, algorithm="auto", time=1e-3)
    assert dataset["busbw"].sel(ranks=8, message_bytes=1e9).item() == pytest.approx(1.75e12)


def test_parts_of_the_time_that_are_given_leave_a_choice() -> None:
    axes = {"topology": "switch", "ranks": [6, 8], "message_bytes": [1e6]}
    parts = {"latency_time": [1e-3], "bandwidth_time": [1e-2, 1e-3]}
    dataset = sweeps.sweep(["steps", "time"], algorithm="auto", **axes, **parts)
    assert dataset["time"].transpose("bandwidth_time", ...).to_numpy().ravel()[0] == 2e-3
    assert np.isfinite(dataset["steps"]).all()


def test_quantities_that_are_given_and_asked_for_are_coordinates() -> None:
    dataset = sweeps.sweep(["ranks", "time", "intra_latency"], **RING)
    assert set(dataset.data_vars) == {"time", "status"}
    assert dataset.coords["ranks"].to_numpy().tolist() == [2, 8]
    with pytest.raises(InputError, match="quantities = 'ranks, message_bytes': are given"):
        sweeps.sweep(["ranks", "message_bytes"], **RING)


def test_what_nothing_gives_is_told_with_what_needs_it() -> None:
    with pytest.raises(InputError) as caught:
        sweeps.sweep(["time", "energy"], topology=["ring", "torus"], ranks=8)
    (line,) = caught.value.faults
    size = "the message size (nccl-tests convention)"
    assert line == f"time needs {size}; give message_bytes as an axis or a constant"


def test_a_quantity_of_some_networks_is_missing_on_the_others() -> None:
    dataset = sweeps.sweep(
        ["nodes"], topology=["ring", "hierarchical"], ranks=[8, 32], message_bytes=1e6
    )
    assert np.isnan(dataset["nodes"].sel(topology="ring")).all()
    assert dataset["nodes"].sel(topology="hierarchical").to_numpy().tolist() == [1, 4]
    meanings = dict(
        zip(
            dataset["status"].attrs["flag_meanings"].split(),
            dataset["status"].attrs["flag_masks"].tolist(),
            strict=True,
        )
    )
    status = dataset["status"].sel(topology="ring").to_numpy()
    assert (status & meanings["quantity_not_of_this_network"] != 0).all()
    assert (dataset["status"].sel(topology="hierarchical") == 0).all()
    # What none of the networks has is a fault.
    with pytest.raises(InputError, match="nothing gives nodes, the nodes of the group"):
        sweeps.sweep(["nodes"], topology=["ring", "switch"], ranks=8, message_bytes=1e6)


OF_NETWORKS = "overhead.collectives."


@pytest.mark.thorough
@pytest.mark.parametrize("pods", [{}, {"nodes_per_pod": 2, "gpus_per_node": 4}])
def test_whatever_a_formula_gives_can_be_asked_for(pods: dict[str, float]) -> None:
    """On the networks that have it: there it has values, elsewhere none."""
    of_networks = [f for f in REGISTRY.values() if f.kernel.__module__.startswith(OF_NETWORKS)]
    labels = {"topology": list(NETWORKS), "collective": ["all_reduce", "all_to_all", "p2p"]}
    given = {"ranks": 16, "message_bytes": 1e6, "reduction_cost": 1e-12, **pods}
    asked = {f.returns for f in of_networks} - set(given)
    absent = set()
    for name in sorted(asked):
        constants = {n: v for n, v in given.items() if n != name}
        if name.startswith(("phase_", "pipelined_", "overlapped_phase_")):
            constants["phase_chunks"] = 2
        spec = {"quantities": [name], "axes": labels, "constants": constants}
        try:
            values = prepare(spec).program.evaluate()
        except InputError as error:
            absent.add(name)
            lines = error.faults
            assert all(
                line.startswith((f"{name} needs", f"nothing gives {name},")) for line in lines
            )
            continue
        assert name not in values or np.isfinite(values[name]).any(), name
    # Between pods there is nothing where there are no pods.
    assert absent == (set() if pods else {n for n in absent if n.startswith("pod")})


@pytest.mark.parametrize(
    ("topology", "algorithm", "link"),
    [
        ("hierarchical", "nvls_tree", "intra_latency"),
        ("switch", "nvls", "latency"),
        ("switch", "nvls", "intra_latency"),
    ],
)
def test_a_switch_keeps_its_latency_where_that_of_a_link_is_given(
    topology: str, algorithm: str, link: str
) -> None:
    own = {"dgx-h100": 12.5e-6, "dgx-b200": 12.5e-6}
    asked = {"collective": "all_reduce", "topology": topology, "algorithm": algorithm, "ranks": 8}
    times = sweeps.sweep(
        ["time", "lower_bound"],
        **asked,
        message_bytes=0.0,
        software="none",
        hardware=list(own),
        **{link: [0.0, 1e-7, 8e-7, 2e-6, 3e-5]},
    ).transpose("hardware", ...)
    # Up and down through the switch; never faster than the link, and nothing where that is nothing.
    for hardware, switch in own.items():
        found = times["time"].sel(hardware=hardware)
        np.testing.assert_allclose(found, [0.0, 2 * switch, 2 * switch, 2 * switch, 6e-5])
    assert (times["time"] >= times["lower_bound"]).all()


def test_a_flat_network_s_bandwidth_is_no_less_than_what_is_given() -> None:
    """Beside a switch two GPUs have all of a bandwidth that is above the machine's own."""
    asked: dict[str, Any] = {
        "collective": "all_gather",
        "topology": "switch",
        "algorithm": "ring",
        "hardware": "dgx-h100",
        "software": "nccl",
        "ranks": 2,
        "message_bytes": 8e9,
    }
    own, twice = (
        float(sweeps.sweep(["time"], **asked, bandwidth=rate).time) for rate in (450e9, 900e9)
    )
    assert twice < 0.75 * own


def test_a_flat_network_s_bandwidth_leaves_nodes_as_they_are() -> None:
    """Of MI300X, whose GPUs are joined pair by pair, a hierarchy has its own pairs beside it."""
    asked: dict[str, Any] = {
        "collective": "all_to_all",
        "hardware": "mi300x",
        "software": "rccl",
        "ranks": 4,
        "message_bytes": 1e9,
    }
    networks = ["switch", "hierarchical"]
    together = sweeps.sweep(["time"], **asked, topology=networks, bandwidth=900e9).time
    own = sweeps.sweep(["time"], **asked, topology="hierarchical").time
    flat = sweeps.sweep(["time"], **asked, topology="switch", bandwidth=900e9).time
    assert float(together.sel(topology="hierarchical")) == float(own)
    assert float(together.sel(topology="switch")) == float(flat) < 0.5 * float(own)
