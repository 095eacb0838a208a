"""Calls: a quantity that is another one, with quantities bound and labels set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from overhead import REGISTRY, VOCABULARY, define
from overhead.evaluation import Evaluation, MissingQuantities
from overhead.everything import load
from overhead.formula import Call, call
from tests.each import each
from tests.tables import keyed

load()
define("called_time", "T", "s", "time that a test calls", minimum=0)
HELD = keyed(
    "topology=hierarchical shape=two_levels algorithm=nccl latency_per=hop phases=sequential "
    "reduction=free link=auto"
)
GROUP = {
    "ranks": "group_size",
    "message_bytes": "weight_bytes",
    "gpus_per_node": "members_in_node",
    "ranks_sharing_nic": "ranks_sharing_nic",
}
MACHINE = keyed(
    "gpus_per_node=8.0 nics_per_node=8.0 intra_bandwidth=400e9 inter_bandwidth=50e9 "
    "intra_latency=1e-6 inter_latency=2e-6 oversubscription=1.0 in_network_latency_factor=1.0 "
    "intra_nvls=0.0 intra_inc=0.0 inter_inc=0.0"
)


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    """Declare a call of a time for the test, and take it back."""
    made = call(
        returns="called_time",
        of="time",
        bind=GROUP,
        labels={"group": "dp", "collective": "all_reduce"},
        when={"test": "call"},
    )
    yield
    REGISTRY.remove(made)


@pytest.mark.parametrize("algorithm", ["nccl", "standard", "auto"])
@pytest.mark.parametrize("topology", ["hierarchical", "switch", "ring"])
def test_a_call_is_the_collective_of_the_group(topology: str, algorithm: str) -> None:
    shape = "two_levels" if topology == "hierarchical" else "flat"
    labels = {**HELD, "topology": topology, "shape": shape, "algorithm": algorithm}
    plan = {"tp": 4.0, "cp": 1.0, "dp": np.array([1.0, 2.0, 4.0, 16.0]), "weight_bytes": 1e8}
    ours = Evaluation({**MACHINE, **plan}, {**labels, "test": "call"})["called_time"]
    # Of four tensor-parallel ranks each, two members share a node.
    shared = {"ranks": plan["dp"], "gpus_per_node": np.minimum(plan["dp"], 2.0)}
    alone = {**MACHINE, **shared, "ranks_sharing_nic": 1.0, "message_bytes": 1e8}
    inner = {**labels, "collective": "all_reduce"}
    np.testing.assert_array_equal(ours, Evaluation(alone, inner)["time"])
    assert ours[0] == 0.0


def test_what_a_call_lacks_is_told() -> None:
    with pytest.raises(MissingQuantities, match="called_time needs tp and cp, which nothing gives"):
        _ = Evaluation({**MACHINE, "dp": 2.0, "weight_bytes": 1.0}, {**HELD, "test": "call"})[
            "called_time"
        ]


@each("made", REGISTRY.calls, lambda made: made.statement)
def test_a_declaration_holds_together(made: Call) -> None:
    made.check()
    assert made.returns in made.statement
    assert made.result is VOCABULARY[made.returns]


def test_units_must_agree() -> None:
    with pytest.raises(ValueError, match="differ in unit"):
        Call("called_time", "ranks", {}, {}, {}).check()
    with pytest.raises(ValueError, match="vocabulary"):
        Call("called_time", "time", {"rank": "ranks"}, {}, {}).check()


# Circles.


def test_quantities_that_follow_from_each_other_are_named() -> None:
    """The ranks of a mesh follow from its sides, and a side from the ranks."""
    labels = {"topology": "mesh", "shape": "flat"}
    known = {"mesh_nx": 4.0, "mesh_nz": 1.0}
    for name, circle in (("ranks", "ranks needs mesh_ny"), ("mesh_ny", "mesh_ny needs ranks")):
        with pytest.raises(MissingQuantities) as caught:
            Evaluation(known, labels)[name]
        first, last = circle.split(" needs ")
        words = f"{name} can't be had: {circle} needs {first}; give {first} or {last}"
        assert str(caught.value) == words
    assert Evaluation({**known, "ranks": 12.0}, labels)["mesh_ny"] == 3.0
    assert Evaluation({**known, "mesh_ny": 3.0}, labels)["ranks"] == 12.0
    with pytest.raises(MissingQuantities, match="dp needs tp, cp, pp and world_size, which"):
        Evaluation({})["dp"]


def test_a_circle_through_a_call_is_found() -> None:
    """What is called takes, in its own place, what it gives."""
    labels = {"group": "dp", "collective": "all_reduce"}
    bind = {**GROUP, "message_bytes": "called_time"}
    made = call(returns="called_time", of="time", bind=bind, labels=labels, when={"test": "round"})
    try:
        with pytest.raises(MissingQuantities) as caught:
            Evaluation({**MACHINE, "dp": 8.0}, {**HELD, "test": "round"})["called_time"]
    finally:
        REGISTRY.remove(made)
    circle = "called_time needs called_time"
    assert str(caught.value) == f"called_time can't be had: {circle}; give called_time"
