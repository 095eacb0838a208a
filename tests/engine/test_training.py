"""Training steps through the engine: equal to one evaluation a cell, masked with their reasons."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps
from overhead.evaluation import Evaluation
from overhead.memory.stage import PEAK_PARTS
from overhead.step.parts import PARTS
from sweeps.errors import InputError
from sweeps.job import Job, prepare
from sweeps.origin import read
from sweeps.store.constants import with_constants
from tests.tables import examples, keyed

TOP = Path(__file__).resolve().parents[2]
QUANTITIES = [
    "step_time",
    "mfu",
    "bubble_fraction",
    "peak_memory",
    "communication_upper_bound",
    "tp_communication_time",
    "step_energy",
    *PARTS,
    *PEAK_PARTS,
]
SMALL = keyed("model=llama3-8b hardware=dgx-h100 sequence_length=8192 global_batch_size=64")
RUN = {**SMALL, "tp": 2, "pp": 2, "dp": 4}


def job(axes: dict[str, Any], constants: dict[str, Any], quantities: list[str]) -> Job:
    """Return a sweep ready to run."""
    return prepare({"quantities": quantities, "axes": axes, "constants": constants})


def faults(found: Any) -> set[str]:
    """Return the names of all reasons in a dataset's status."""
    status = int(np.bitwise_or.reduce(found.status.values, axis=None))
    attrs = found.status.attrs
    pairs = zip(attrs["flag_meanings"].split(), attrs["flag_masks"], strict=True)
    return {name for name, bit in pairs if status & bit}


@pytest.mark.thorough_cases(every=10)
@pytest.mark.parametrize("more", examples(__file__, "every_cell_is_its_own_evaluation"))
def test_every_cell_is_its_own_evaluation(more: dict[str, Any]) -> None:
    axes = {
        "plan": {"tp": [1, 2, 4, 8], "pp": [2, 2, 4, 1], "ep": [1, 1, 1, 1]},
        "micro_batch_size": [1, 2],
        "zero_stage": [0, 1, 3],
        "recompute": ["none", "full"],
    }
    if more.get("model"):
        axes["plan"]["ep"] = [1, 2, 4, 8]
    made = job(axes, {**SMALL, "world_size": 64, **more}, QUANTITIES)
    arrays = made.program.evaluate()
    grid = made.program.grid
    seen = 0
    for case in made.program.cases:
        for index in np.ndindex(*(grid.sizes[name] for name in ("micro_batch_size", "plan"))):
            at = dict(zip(("micro_batch_size", "plan"), index, strict=True), zero_stage=seen % 3)
            starts_by_name = {grid.names[p]: part.start for p, part in case.fixed.items()} | at
            given = {
                name: cell(made, values, name, starts_by_name)
                for name, values in grid.columns.items()
            }
            alone = Evaluation(given, case.labels)
            for variable in made.program.variables:
                if variable.name == "status":
                    continue
                ours = arrays[variable.name][tuple(starts_by_name[dim] for dim in variable.dims)]
                if not np.isnan(ours):
                    theirs = float(alone[variable.name])
                    assert ours == pytest.approx(theirs, rel=1e-12), variable.name
                    seen += 1
    assert seen > 100


def cell(made: Job, values: np.ndarray, name: str, position: dict[str, int]) -> float:
    """Return a column's value at a cell."""
    index = tuple(
        position[dim] if length > 1 else 0
        for dim, length in zip(made.program.grid.names, values.shape, strict=True)
    )
    return float(values[index])


def test_a_plan_that_cant_be_is_masked_with_its_reasons() -> None:
    dataset = sweeps.sweep(
        ["step_time", "peak_memory", "memory_state"],
        **SMALL,
        plan={"tp": [8, 3, 1, 1, 64, 1], "dp": [1, 1, 7, 8, 1, 1]},
        gpus_per_node=8,
    )
    ok, heads, batch, risky, wide, full = np.isnan(dataset.step_time.values)
    assert (ok, heads, batch, wide) == (False, True, True, True)
    assert {"heads_not_divisible", "batch_not_divisible", "does_not_fit"} <= faults(dataset)
    # A plan that doesn't fit has memory to tell of, one that can't be has none.
    assert full
    np.testing.assert_array_equal(
        np.isnan(dataset.peak_memory.values), [False, True, True, False, True, False]
    )
    # Above the capacity by less than memory's band, a plan is at risk, and has a time.
    assert not risky
    assert (dataset.peak_memory.values[[3, 5]] > 79.11 * 2**30).all()
    np.testing.assert_array_equal(dataset.memory_state.values, [2, np.nan, np.nan, 1, np.nan, 0])


def test_memory_without_limit_lets_every_plan_run() -> None:
    dataset = sweeps.sweep("step_time", **SMALL, tp=1, dp=8, memory_capacity=np.inf)
    assert np.isfinite(float(dataset.step_time))


def test_constants_follow_machine_and_precision() -> None:
    dataset = sweeps.sweep(
        ["step_time", "peak_memory"],
        **{**RUN, "hardware": ["dgx-h100", "dgx-b200"]},
        precision=["bf16", "fp8"],
    )
    assert dataset.peak_measured_matmul_flops.dims == ("hardware", "precision")
    assert dataset.step_time.dims == ("hardware", "precision")
    rates = dataset.peak_measured_matmul_flops.values
    assert (rates[:, 1] > rates[:, 0]).all()
    times = dataset.step_time.values
    assert (times[:, 1] < times[:, 0]).all()
    assert (times[1] < times[0]).all()


def test_every_plan_of_some_gpus() -> None:
    dataset = sweeps.sweep(
        "peak_memory", **SMALL, plan={"every": "tp,pp", "world_size": [8, 12], "tp": [1, 2, 3, 4]}
    )
    product = dataset.tp * dataset.pp * dataset.dp
    np.testing.assert_array_equal(product, dataset.world_size)
    rows = {
        tuple(row)
        for row in np.stack([dataset.tp, dataset.pp, dataset.dp], axis=1).astype(int).tolist()
    }
    assert len(rows) == dataset.sizes["plan"]
    assert (3, 4, 1) in rows
    assert all(tp in (1, 2, 3, 4) for tp, _, _ in rows)


@pytest.mark.parametrize(
    ("table", "result"),
    [
        ({"every": "tq", "world_size": 8}, "every = 'tq'"),
        ({"every": "tp"}, "world_size"),
        ({"every": "tp,pp", "world_size": 8, "tp": 3, "pp": 3}, "no degrees"),
    ],
)
def test_a_wrong_enumeration_is_a_fault(table: dict[str, Any], result: str) -> None:
    with pytest.raises(InputError, match=result):
        sweeps.sweep("peak_memory", **SMALL, plan=table)


def test_what_cant_be_told_is_left_out_only_where_nothing_is_asked_for() -> None:
    bare = prepare({"axes": {}, "constants": {"parameters": 70e9, "dp": 8}})
    assert bare.program.wanted == ("first_stage_model_state_memory",)
    assert bare.program.evaluate()["first_stage_model_state_memory"] == 16 * 70e9
    assert "step_time" in bare.program.missing
    assert "sequence_length" in " ".join(bare.program.missing.values())
    with pytest.raises(InputError, match="step_time needs"):
        prepare({"quantities": ["step_time"], "constants": {"parameters": 70e9, "dp": 8}})


def test_an_operation_beside_a_step_needs_its_size_and_ranks() -> None:
    with pytest.raises(InputError) as raised:
        prepare({"constants": {"collective": "all_reduce", "tp": 2}})
    size, ranks = str(raised.value).splitlines()
    assert size.startswith("time needs the message size")
    assert size.endswith("give message_bytes as an axis or a constant")
    assert ranks == ("time needs the ranks in the group; give ranks as an axis or a constant")
    with pytest.raises(InputError, match=r"ranks = '\.\.': is of an operation, and no message"):
        prepare({"constants": {**RUN, "ranks": 8}})


def test_a_file_holds_only_the_constants_that_it_takes(tmp_path: Any) -> None:
    request = with_constants(sweeps.sweep("peak_memory", **RUN))
    assert "memory_capacity" in request.coords
    assert "intra_bandwidth" not in request.coords
    (origin,) = read(request.weight_bytes.attrs)
    assert origin.kind == "specification"
    assert origin.source.startswith("recipe")
    assert request.heads.attrs["units"] == "1"


def test_a_dataset_is_computed_again_from_what_is_in_it() -> None:
    dataset = sweeps.sweep(
        ["step_time", "peak_memory", "tokens_per_second"],
        **{**SMALL, "hardware": ["dgx-h100", "dgx-b200"]},
        precision=["bf16", "fp8"],
        world_size=64,
        tp=[1, 2, 4],
        pp=2,
    )
    repeated_dataset = sweeps.recompute(dataset)
    for name in dataset.data_vars:
        np.testing.assert_array_equal(dataset[name].values, repeated_dataset[name].values)


@pytest.mark.thorough_cases(every=9)
@pytest.mark.parametrize("topology", ["hierarchical", "ring", ["switch", "hierarchical"]])
@pytest.mark.parametrize("name", ["step_time", "peak_memory", "communication_volume"])
@pytest.mark.parametrize("software", ["nccl", "none"])
def test_a_step_on_any_network_is_computed_again(name: str, topology: Any, software: str) -> None:
    dataset = sweeps.sweep(name, **RUN, topology=topology, software=software)
    repeated_dataset = sweeps.recompute(dataset)
    np.testing.assert_array_equal(dataset[name].values, repeated_dataset[name].values)


@pytest.mark.thorough
def test_a_file_is_computed_again_by_a_process_that_knows_no_training_yet(tmp_path: Path) -> None:
    path = tmp_path / "step.nc"
    dataset = sweeps.sweep("step_time", **SMALL, tp=[4, 8], world_size=64)
    dataset.to_netcdf(path)
    stored = f"xarray.open_dataset({str(path)!r})"
    result = f"import sweeps, xarray\nprint(*sweeps.recompute({stored})['step_time'].values)"
    process = subprocess.run(
        [sys.executable, "-c", result], capture_output=True, text=True, check=True, cwd=TOP
    )
    assert [float(text) for text in process.stdout.split()] == list(dataset.step_time.values)


@pytest.mark.thorough
def test_a_share_beside_a_mechanism_that_says_itself_what_hides_is_a_fault() -> None:
    with pytest.raises(InputError) as raised:
        sweeps.sweep("step_time", **RUN, tp_mechanism="userbuffers", tp_overlap=0.5)
    assert "tp_overlap = '0.5': the mechanism userbuffers says itself what hides" in str(
        raised.value
    )
    # Beside several mechanisms it is for the one that takes it.
    mechanisms = ["efficiency", "userbuffers"]
    datasets = [
        sweeps.sweep("step_time", **RUN, sequence_parallel=1, tp_mechanism=mechanisms, tp_overlap=o)
        for o in (0.0, 1.0)
    ]
    first, second = (dataset.step_time.values for dataset in datasets)
    assert first[0] > second[0]
    assert first[1] == second[1]


@pytest.mark.thorough
def test_what_whole_steps_differ_by_from_measured_schedules() -> None:
    """The forms are within 5 % of published ratios; whole steps have ends, which theirs don't show.

    Their plan isn't printed: layers and the length of sequences are inferred.
    """
    lines = (TOP / "tests" / "data" / "schedules.csv").read_text(encoding="utf-8").splitlines()
    rows = [*csv.DictReader(line for line in lines if not line.startswith("#"))]
    plan = keyed(
        "model=llama2-7b layers=16 hardware=mi300x world_size=8 pp=8 micro_batch_size=1 "
        "global_batch_size=32 sequence_length=4096"
    )
    speeds, memories, plain = [], [], None
    for row in rows:
        cells = {
            "schedule": row["schedule"],
            "virtual_pipeline_size": int(row["virtual_pipeline_size"]),
        }
        dataset = sweeps.sweep(["step_time", "peak_memory"], **plan, **cells)
        own = (dataset.step_time.item(), dataset.peak_memory.item())
        plain = plain or own
        speeds.append(plain[0] / own[0] / float(row["speed"]) - 1.0)
        memories.append(own[1] / plain[1] / float(row["memory"]) - 1.0)
    # As the guide says.
    result = [round(100.0 * one) for many in (speeds, memories) for one in (min(many), max(many))]
    assert result == [-9, 9, -9, 29]
    guide = (TOP / "sweeps" / "docs" / "options.md").read_text(encoding="utf-8")
    assert "speed is 9 % low to 9 % high, of memory 9 % low to 29 % high" in guide
