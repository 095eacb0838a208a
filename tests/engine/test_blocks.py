"""Blocks of any size, one array filled, and the whole at once: the same bits."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from overhead.graph import Node
from sweeps.engine import evaluate, evaluators, validity
from sweeps.engine.evaluate import Cuts, Evaluator, Limits
from sweeps.engine.program import Program, Steps
from sweeps.job import prepare
from sweeps.spec.axis import DEFAULT_QUANTITIES
from tests.tables import keyed

SIZES = (1, 7, 64, 10**9)
QUANTITIES = [*DEFAULT_QUANTITIES, "chunks"]
RANKS = [1, 2, 3, 6, 8, 12, 16, 20, 64]
MESSAGES = "1:8e9:log23"
# Every kernel of every network and operation, with pipelines, choices, holes and levels.
GRIDS: dict[str, dict[str, Any]] = {
    "auto": {
        "collective": "all",
        "topology": "all",
        "algorithm": ["auto"],
        "ranks": [1, 6, 16],
        "message_bytes": "1:8e9:log9",
    },
    "algorithms": dict(topology="switch", algorithm="all", ranks=RANKS, message_bytes=MESSAGES),
    "pods": {
        "topology": "hierarchical",
        "collective": "all",
        "algorithm": ["standard", "auto"],
        "ranks": RANKS,
        "gpus_per_node": [2, 4],
        "nodes_per_pod": [2, 3],
        "oversubscription": [1, 2],
        "message_bytes": [1e3, 1e9],
    },
    "grids": {
        "topology": ["mesh", "torus"],
        "collective": "all",
        "algorithm": "auto",
        "mesh_nx": [1, 2, 3, 4, 6],
        "mesh_ny": [1, 2, 4],
        "mesh_nz": [1, 2],
        "latency": [0, 1e-6],
        "message_bytes": [1e3, 1e9],
    },
    "table": {
        "case": {
            "topology": ["torus", "hierarchical", "ring", "switch"],
            "hardware": ["tpu-v5p", "dgx-h100", "dgx-a100", "strategy-calculator"],
            "ranks": [64, 12, 8, 1],
        },
        "message_bytes": MESSAGES,
        "reduction_cost": [0, 1e-12],
    },
}


def plan_of(axes: dict[str, Any], quantities: list[str] = QUANTITIES) -> Program:
    several = {
        name: v for name, v in axes.items() if not isinstance(v, str) or ":" in v or v == "all"
    }
    single = {name: v for name, v in axes.items() if name not in several}
    return prepare({"quantities": quantities, "axes": several, "constants": single}).program


def gathered(program: Program, cells: int) -> dict[str, NDArray[Any]]:
    """Put blocks together; each cell must come just once."""
    arrays = {v.name: np.full(program.shape(v), -7, dtype=float) for v in program.variables}
    seen = {v.name: np.zeros(program.shape(v), dtype=np.int64) for v in program.variables}
    largest = 0
    for block in program.blocks(cells=cells):
        arrays[block.name][block.region] = block.values
        seen[block.name][block.region] += 1
        assert block.values.shape == arrays[block.name][block.region].shape
        largest = max(largest, block.values.size)
    assert all((count == 1).all() for count in seen.values())
    assert largest <= max(cells, 1)
    return arrays


@pytest.mark.thorough_cases("auto", "pods", "grids")
@pytest.mark.parametrize("grid", GRIDS)
def test_blocks_of_any_size_give_the_same_bits(grid: str) -> None:
    whole = plan_of(GRIDS[grid]).evaluate()
    assert any(np.isfinite(values).any() for values in whole.values())
    for cells in SIZES[1:] if math.prod(plan_of(GRIDS[grid]).grid.shape) > 1000 else SIZES:
        parts = gathered(plan_of(GRIDS[grid]), cells)
        assert parts.keys() == whole.keys()
        for name, values in parts.items():
            np.testing.assert_array_equal(values, whole[name], f"{name} in blocks of {cells}")


def test_a_single_cell_at_a_time() -> None:
    axes = dict(
        topology=["ring", "switch"], algorithm="auto", ranks=[6, 8], message_bytes=[1e3, 1e9]
    )
    program = plan_of(axes)
    for name, values in gathered(program, 1).items():
        np.testing.assert_array_equal(values, program.evaluate()[name], name)


@pytest.mark.thorough
def test_large_nodes_are_computed_in_parts_with_the_same_bits() -> None:
    """Above the size up to which a value is kept whole, each block computes its part."""
    axes = {
        "topology": ["switch", "hierarchical"],
        "algorithm": ["auto", "standard"],
        "ranks": "2:400:+1",
        "message_bytes": "1:8e9:log700",
    }
    names = ["time", "busbw", "chosen_algorithm", "energy", "chunks"]
    arrays = plan_of(axes, names).evaluate()
    parts = gathered(plan_of(axes, names), 5000)
    for name, values in parts.items():
        np.testing.assert_array_equal(values, arrays[name], name)
    # And the same as where all of it is small.
    few = {**axes, "ranks": [2, 255, 400], "message_bytes": "1:8e9:log700"}
    small = plan_of(few, names).evaluate()
    rows = [0, 253, 398]
    for name, values in small.items():
        dims = next(v.dims for v in plan_of(few, names).variables if v.name == name)
        if "ranks" in dims:
            taken = np.take(
                arrays[name],
                rows,
                axis=next(v.dims for v in plan_of(axes, names).variables if v.name == name).index(
                    "ranks"
                ),
            )
            where = plan_of(axes, names)
            order = next(v.dims for v in where.variables if v.name == name)
            moved = np.moveaxis(taken, [order.index(d) for d in dims], range(len(dims)))
            np.testing.assert_array_equal(values, moved, name)


def counted(nodes: Iterable[Node]) -> list[str]:
    """Return a list to which nodes add their names whenever they are computed."""
    lines: list[str] = []
    for node in nodes:

        def run(*values: Any, node: Node = node, own: Any = node.run) -> Any:
            lines.append(node.name)
            return own(*values)

        node.run = run
    return lines


@pytest.mark.parametrize(("whole", "times"), [(105, 1), (53, 1), (52, 6)])
def test_what_blocks_come_back_to_is_computed_once(whole: int, times: int) -> None:
    """Up to twice the size of what is kept in any case; else again for each latency's blocks."""
    axes = dict(
        latency=[1e-6, 2e-6], ranks=[2, 4, 8], bandwidth="1e9:1e10:log5", message_bytes="1:8e9:log7"
    )
    settings = {"topology": "switch", "algorithm": "ring"}
    program = plan_of({**axes, **settings}, ["time"])
    expected = program.evaluate()["time"]
    assert expected.shape == (2, 3, 5, 7)
    program = plan_of({**axes, **settings}, ["time"])  # Nothing of it is known but by trials
    assert program.variables
    runs = counted(node for node in program.nodes() if node.name == "bandwidth_time")
    program.limits = Limits(block=35, whole=whole)
    np.testing.assert_array_equal(program.evaluate()["time"], expected)
    assert len(runs) == times


def test_reasons_of_cases_are_found_once_for_all_variables() -> None:
    """Variables without the axis of the cases are missing where no case can be."""
    quantities = ["step_time", "attention_part_time", "optimizer_time", "peak_bucket_memory"]
    axes = {
        "recompute": ["none", "selective", "full"],
        "zero_stage": [0, 1],
        "tp": [3, 4],
        "micro_batch_size": [1, 2],
        "sequence_length": [1024 * (2 + n) for n in range(9)],  # More cells than trials look at
    }
    constants = keyed("model=llama3-8b hardware=dgx-h100 world_size=16 pp=2 global_batch_size=64")
    program = prepare({"quantities": quantities, "axes": axes, "constants": constants}).program
    dims = {variable.dims for variable in program.variables if "recompute" not in variable.dims}
    assert len(dims) > 1
    runs = counted(case.status for case in program.cases)
    blocks = sum(1 for _ in program.blocks())
    found = len(runs)
    assert blocks > 3
    assert found == 3


def test_filling_an_array_is_the_same_and_touches_nothing_else() -> None:
    program = plan_of(GRIDS["algorithms"], ["time", "steps"])
    whole = program.evaluate()
    outer = {name: np.full((3, *values.shape), -7.0) for name, values in whole.items()}
    inner = {name: values[1] for name, values in outer.items()}
    program.fill(inner, cells=100)
    for name, values in whole.items():
        np.testing.assert_array_equal(inner[name], values)
        assert (outer[name][[0, 2]] == -7).all()
    # Variables that aren't asked for aren't computed.
    time = np.full(whole["time"].shape, -7.0)
    program.fill({"time": time})
    np.testing.assert_array_equal(time, whole["time"])


def test_a_scalar_is_filled() -> None:
    program = plan_of({"topology": "ring", "ranks": "8", "message_bytes": "1e9"}, ["time"])
    out = np.full((), -7.0)
    program.fill({"time": out})
    assert out.item() == program.evaluate()["time"].item() > 0


def test_only_the_names_asked_for_come() -> None:
    program = plan_of(GRIDS["algorithms"])
    assert {block.name for block in program.blocks(["time", "status"])} == {"time", "status"}


@given(st.lists(st.integers(1, 9), max_size=5), st.integers(1, 200))
def test_regions_cover_a_shape_once_and_in_order(shape: list[int], cells: int) -> None:
    seen = np.zeros(shape, dtype=np.int64)
    starts = []
    cuts = Cuts(shape, cells)
    for number in range(len(cuts)):
        region = cuts[number]
        part = seen[region]
        assert part.size <= cells
        seen[region] += 1
        starts.append([piece.start for piece in region])
    assert (seen == 1).all()
    assert starts == sorted(starts)


@pytest.mark.thorough
def test_the_order_in_which_axes_are_given_changes_no_bit() -> None:
    axes = GRIDS["pods"]
    values_by_name = plan_of(axes).evaluate()
    for order in itertools.islice(itertools.permutations(axes), 1, 400, 150):
        program = plan_of({name: axes[name] for name in order})
        for variable in program.variables:
            first = next(v.dims for v in plan_of(axes).variables if v.name == variable.name)
            values = program.evaluate([variable.name])[variable.name]
            moved = np.moveaxis(values, [variable.dims.index(d) for d in first], range(len(first)))
            np.testing.assert_array_equal(moved, values_by_name[variable.name], variable.name)


# Plans of which most can't be, some axes of which change nothing of some quantities.
HOLES = {
    "plan": {"every": "tp,cp,pp", "world_size": 16},
    "micro_batch_size": "1:12:+1",
    "virtual_pipeline_size": [1, 2],
    "zero_stage": [0, 1, 3],
    "recompute": ["none", "full"],
    "global_batch_size": [7, 48],
}
PARTS = (
    "step_time exposed_dp_time bubble_fraction peak_memory peak_weight_memory "
    "peak_recompute_activation_memory communication_upper_bound"
).split()


def plans_with_holes(limits: Limits) -> Program:
    constants = {"model": "llama3-8b", "sequence_length": 4096}
    program = prepare({"quantities": PARTS, "axes": HOLES, "constants": constants}).program
    program.limits = limits
    return program


def computing(program: Program) -> list[Evaluator]:
    """Return what has computed the values of each stage."""
    steps, found = Steps(program, [v.name for v in program.variables]), []
    with evaluate.settings(program.grid.shape[-1]):
        for stage in steps.stages:
            group = steps._grouped(stage)
            group.at(stage.cuts[0], stage.variables)
            found.append(group.evaluator)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("whole", [900, 2000])
def test_what_is_left_out_and_merged_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    monkeypatch.setattr(evaluators, "MERGED", 0)
    program = plans_with_holes(Limits(1000, whole))
    arrays, parts = program.evaluate(), gathered(program, 1000)
    fewer = [evaluator for evaluator in computing(program) if evaluator.points]
    assert any(one._twins._held for one in fewer if one._twins)
    monkeypatch.setattr(validity, "FEW", -1.0)
    monkeypatch.setattr(evaluators, "MERGED", 10**9)
    plain = plans_with_holes(Limits(1000, whole))
    assert not any(evaluator.points or evaluator._twins for evaluator in computing(plain))
    for name, values in plain.evaluate().items():
        assert values.tobytes() == arrays[name].tobytes(), name
        np.testing.assert_array_equal(parts[name], values, name)


def test_what_a_pass_kept_is_let_go_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes over a large grid would else add up, until cycles of references are looked for."""
    made: list[weakref.ref[Evaluator]] = []
    begin = Evaluator.__init__

    def counted(self: Evaluator, *given: Any) -> None:
        begin(self, *given)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Evaluator, "__init__", counted)
    monkeypatch.setattr(evaluators, "MERGED", 0)
    program = plans_with_holes(Limits(1000, 100))
    gc.disable()
    try:
        gathered(program, 1000)
        assert made
        assert not [reducer_made for reducer_made in made if reducer_made() is not None]
    finally:
        gc.enable()


@pytest.mark.thorough_cases("auto", "pods", "grids")
@pytest.mark.parametrize("grid", GRIDS)
def test_collectives_with_little_kept_have_the_same_bits(grid: str) -> None:
    whole, few = plan_of(GRIDS[grid]), plan_of(GRIDS[grid])
    few.limits = Limits(200, 40)
    for name, values in few.evaluate().items():
        assert values.tobytes() == whole.evaluate([name])[name].tobytes(), name


def test_nothing_is_computed_where_no_cell_can_be() -> None:
    axes = {**HOLES, "global_batch_size": [7, 11], "micro_batch_size": [2, 3, 4, 6]}
    constants = {"model": "llama3-8b", "sequence_length": 4096}
    program = prepare({"quantities": PARTS, "axes": axes, "constants": constants}).program
    program.limits = Limits(1000, 100)
    arrays = gathered(program, 1000)
    assert (arrays["status"] != 0).all()
    assert np.isnan(arrays["step_time"]).all()
