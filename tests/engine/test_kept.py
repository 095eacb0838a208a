"""Programs of the same kind share a graph, and often asked cells become functions of numbers."""

from __future__ import annotations

import numpy as np
import pytest

import sweeps
from sweeps.engine import kept
from sweeps.job import prepare

QUANTITIES = ["step_time", "peak_memory", "tokens_per_second", "mfu"]
STEP = {"model": "llama3-8b", "hardware": "dgx-h100", "gpus": 64, "global_batch_size": 256}
PLANS = [{"tp": 2, "pp": 2}, {"tp": 8, "pp": 1}, {"tp": 1, "pp": 4}, {"tp": 3, "pp": 1}]
RING = {"topology": "ring", "latency": 1e-6, "bandwidth": 50e9}
SIZES = [(8, 1e9), (1, 1e9), (8, 0.0), (5, 12345.0)]


def bits(dataset: object) -> dict[str, bytes]:
    """Return the values of a dataset's variables, as they lie in memory."""
    return {str(name): dataset[name].to_numpy().tobytes() for name in dataset.data_vars}  # type: ignore[attr-defined, index]


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(kept, "_KEPT", {})
    return monkeypatch


@pytest.mark.thorough
@pytest.mark.parametrize("further", [{}, {"model": "deepseek-v3", "ep": 4}, {"recompute": "full"}])
def test_steps_asked_again_have_the_same_bits(
    anew: pytest.MonkeyPatch, further: dict[str, object]
) -> None:
    asked = [{**STEP, **plan, **further} for plan in PLANS]
    anew.setattr(kept, "BEFORE", 0)
    arrays = [bits(sweeps.sweep(QUANTITIES, **question)) for question in asked]
    anew.setattr(kept, "_KEPT", {})
    anew.setattr(kept, "BEFORE", 1)
    for _ in range(2):
        assert [bits(sweeps.sweep(QUANTITIES, **question)) for question in asked] == arrays
    assert len({str(array) for array in arrays}) == len(asked)


def test_collectives_asked_again_have_the_same_bits(anew: pytest.MonkeyPatch) -> None:
    asked = [{**RING, "ranks": ranks, "message_bytes": size} for ranks, size in SIZES]
    anew.setattr(kept, "BEFORE", 0)
    arrays = [bits(sweeps.sweep(["time", "busbw"], **question)) for question in asked]
    anew.setattr(kept, "_KEPT", {})
    anew.setattr(kept, "BEFORE", 1)
    for _ in range(2):
        assert [bits(sweeps.sweep(["time", "busbw"], **question)) for question in asked] == arrays


def test_sets_of_labels_asked_again_have_the_same_bits(anew: pytest.MonkeyPatch) -> None:
    labels = {"topology": ["ring", "torus", "switch"], "algorithm": ["auto", "ring"]}
    asked = {"collective": "all_reduce", "latency": 1e-6, "bandwidth": 50e9, **labels}
    asked |= {"ranks": 8, "mesh_nx": 4, "mesh_ny": 2, "mesh_nz": 1}
    anew.setattr(kept, "BEFORE", 0)
    sizes = [1e3, 1e9]
    quantities = ["time", "busbw", "chosen_algorithm"]
    arrays = [bits(sweeps.sweep(quantities, message_bytes=size, **asked)) for size in sizes]
    anew.setattr(kept, "_KEPT", {})
    anew.setattr(kept, "BEFORE", 1)
    for _ in range(2):
        again = [bits(sweeps.sweep(quantities, message_bytes=size, **asked)) for size in sizes]
        assert again == arrays
    (kept_graph,) = kept._KEPT.values()
    assert any(below._function for below in kept_graph._below.values())


def test_a_graph_has_no_values(anew: pytest.MonkeyPatch) -> None:
    first = sweeps.sweep("time", ranks=[2, 8], message_bytes=[1e6, 1e9], **RING)
    (kept_graph,) = kept._KEPT.values()
    made = len(kept_graph.graph.made)
    dataset = sweeps.sweep("time", ranks=[4, 16, 32], message_bytes=[1e3], **RING)
    assert [*kept._KEPT.values()] == [kept_graph]
    assert len(kept_graph.graph.made) == made
    assert first.time.shape == (2, 2)
    steps = 2 * (np.array([4, 16, 32]) - 1)
    wire = 2 * (1 - 1 / np.array([4, 16, 32])) * 1e3 / 50e9
    np.testing.assert_allclose(dataset.time.to_numpy().ravel(), steps * 1e-6 + wire, rtol=1e-12)


PLAN = {"gpus": 64, "tp": 4, "pp": 2, "cp": 2, "global_batch_size": 64, "seq_len": 4096}
DENSE = {**PLAN, "model": "llama3-8b", "hardware": "dgx-h100"}
EXPERTS = {**PLAN, "model": "deepseek-v3", "hardware": "gb200-nvl72", "ep": 8, "zero_stage": 3}
HYBRID = {**PLAN, "model": "qwen3-next-80b-a3b", "hardware": "dgx-a100", "lora_rank": 16}
SEVERAL = {"topology": ["hierarchical", "torus"], "loss": ["fused", "chunked"]}
RECOMPUTED = {"recompute": ["none", "full", "block"], "context_parallel": ["ring", "all_gather"]}
OVERLAPPED = {"dp_mechanism": ["efficiency", "ddp_buckets"], "schedule": ["gpipe", "one_f_one_b"]}
OPERATIONS = {
    "collective": ["all_reduce", "all_to_all"],
    "topology": ["ring", "torus", "hierarchical", "switch"],
    "algorithm": ["standard", "auto", "nccl"],
}


@pytest.mark.parametrize(
    ("quantities", "axes", "given"),
    [
        pytest.param(["step_time"], SEVERAL, DENSE, id="networks"),
        pytest.param(["mfu", "peak_memory"], RECOMPUTED, EXPERTS, id="recomputation"),
        pytest.param(["step_time"], RECOMPUTED, HYBRID, id="hybrid"),
        pytest.param(["exposed_dp_time"], OVERLAPPED, DENSE, id="mechanisms"),
        pytest.param(["time", "busbw"], OPERATIONS, {"ranks": 8, "message_bytes": 1e6}, id="alone"),
    ],
)
def test_many_sets_of_labels_are_the_same_computations(
    anew: pytest.MonkeyPatch,
    quantities: list[str],
    axes: dict[str, list[str]],
    given: dict[str, object],
) -> None:
    """What can matter among labels that occur gives the graph that what ever can matter gives."""
    statement = {"quantities": quantities, "axes": axes, "constants": given}
    graphs = []
    for most in (1, 10**9):
        anew.setattr(kept, "_KEPT", {})
        anew.setattr(kept, "MANY_CASES", most)
        program = prepare(statement).program
        keys = [[node.key for node in case.nodes.values()] for case in program.cases]
        graphs.append((keys, [case.status.key for case in program.cases]))
        assert (program._graph.dependencies is not None) == (most == 1)
    assert graphs[0] == graphs[1]
    assert len({str(each) for each in graphs[0][0]}) > 1
