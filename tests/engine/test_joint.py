"""An operation and a training step in one sweep: each is the sweep that it would be alone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import sweeps
from sweeps.blocks.run import Assignment, Cut, here, processes, run_in_blocks
from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError
from sweeps.job import Job, prepare
from tests.cli_runner import Runner
from tests.tables import examples

FEW = max(settings.default.max_examples // 4, 1)
STEP: dict[str, Any] = dict(
    model="llama3-8b", tp=[1, 4], pp=[1, 2], sequence_length=4096, global_batch_size=64
)
MESSAGES = {"message_bytes": [1024.0, 2.0**20, 2.0**30]}
NETWORK: dict[str, Any] = {
    "topology": ["ring", "hierarchical", "torus"],
    "inter_bandwidth": [25e9, 50e9],
}
QUANTITIES = ["time", "busbw", "chosen_algorithm", "step_time", "mfu", "peak_memory"]
OF_OPERATION = QUANTITIES[:3]


def alone(
    shared: dict[str, Any], step: dict[str, Any], operation: dict[str, Any], gpus: list[int]
) -> tuple[xr.Dataset, xr.Dataset]:
    quantities = [name for name in QUANTITIES if name not in OF_OPERATION]
    return (
        sweeps.sweep(OF_OPERATION, ranks=gpus, **operation, **shared),
        sweeps.sweep(quantities, world_size=gpus, **step, **shared),
    )


def equal(whole: xr.Dataset, part: xr.Dataset, renamed: dict[str, str]) -> None:
    """Check that a part's variables are the whole's, bit for bit, dimensions included."""
    for name, variable in part.data_vars.items():
        own = whole[renamed.get(str(name), str(name))]
        assert own.dims == tuple(renamed.get(str(dim), str(dim)) for dim in variable.dims), name
        assert own.values.tobytes() == variable.values.tobytes(), name


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    bare = draw(st.booleans())
    levels = ["inter_bandwidth", "intra_bandwidth", "oversubscription"]
    names = ["bandwidth"] if bare else draw(st.lists(st.sampled_from(levels), unique=True))
    values = {"oversubscription": [1.0, 2.0]}
    found: dict[str, Any] = {name: values.get(name, [25e9, 100e9]) for name in names}
    # A bare network has no levels.
    kinds = ["ring", "tree", "switch", "mesh", "torus", *(["hierarchical"] if not bare else [])]
    found["topology"] = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True))
    machines = ["dgx-a100", "dgx-h100", "gb200-nvl72"]
    found |= {"latency": 2e-6} if bare else {"hardware": draw(st.sampled_from(machines))}
    return found


@pytest.mark.thorough
@settings(max_examples=FEW)
@given(
    networks(),
    st.lists(st.sampled_from([8, 16, 64, 144, 512]), min_size=1, max_size=3, unique=True),
    st.sampled_from(["ranks", "world_size"]),
)
def test_each_part_is_the_sweep_of_it_alone(
    network: dict[str, Any], gpus: list[int], name: str
) -> None:
    whole = sweeps.sweep(QUANTITIES, **{name: gpus}, **MESSAGES, **STEP, **network)
    operation, step = alone(network, STEP, MESSAGES, gpus)
    equal(whole, operation, {"ranks": name, "status": "collective_status"})
    equal(whole, step, {"world_size": name})
    assert {*whole.data_vars} == {*QUANTITIES, "status", "collective_status"}
    if "hardware" in network:
        dataset = sweeps.recompute(whole)
        equal(whole, dataset, {})
        assert {*dataset.data_vars} == {*whole.data_vars}


def card() -> xr.Dataset:
    return sweeps.sweep(QUANTITIES, ranks=[8, 64, 512], **MESSAGES, **STEP, **NETWORK)


def test_variables_vary_along_what_they_depend_on() -> None:
    dataset = card()
    network = ("topology", "inter_bandwidth")
    assert set(dataset.time.dims) == {*network, "ranks", "message_bytes"}
    assert set(dataset.step_time.dims) == {*network, "ranks", "tp", "pp"}
    assert set(dataset.peak_memory.dims) == {"ranks", "tp", "pp"}
    assert not {"tp", "pp"} & {*dataset.collective_status.dims}
    assert "message_bytes" not in dataset.status.dims


@pytest.mark.parametrize("name", ["ranks", "world_size"])
def test_gpus_have_both_names(name: str) -> None:
    dataset = sweeps.sweep(QUANTITIES, **{name: [8, 64, 512]}, **MESSAGES, **STEP, **NETWORK)
    for either in ("ranks", "world_size"):
        part = dataset.sel({either: 64})
        xr.testing.assert_identical(part.time.variable, dataset.time.isel({name: 1}).variable)
        xr.testing.assert_identical(
            part.step_time.variable, dataset.step_time.isel({name: 1}).variable
        )


@pytest.mark.thorough
def test_slices_are_of_the_whole() -> None:
    dataset = card()
    for ranks in (8, 64):
        for topology in NETWORK["topology"]:
            network = {**NETWORK, "topology": topology}
            part = sweeps.sweep(QUANTITIES, ranks=ranks, **MESSAGES, **STEP, **network)
            whole = dataset.sel(ranks=ranks, topology=topology)
            for name in QUANTITIES:
                np.testing.assert_array_equal(whole[name].values, part[name].values, err_msg=name)


def test_gpus_of_each_where_both_are_given() -> None:
    dataset = sweeps.sweep(
        ["time", "step_time"], ranks=[4, 8], world_size=[16, 32, 64], **MESSAGES, **STEP
    )
    assert (dataset.sizes["ranks"], dataset.sizes["world_size"]) == (2, 3)
    assert "world_size" not in dataset.time.dims
    assert "ranks" not in dataset.step_time.dims
    # Where degrees say all, ranks are of the operation alone.
    degrees = sweeps.sweep(["time", "step_time"], ranks=[4, 8], dp=[1, 2], **MESSAGES, **STEP)
    assert "ranks" not in degrees.step_time.dims


def test_plans_of_one_size_are_no_axis_of_the_operation() -> None:
    plan = {"every": "tp,pp", "world_size": 16, "tp": [1, 2, 4, 8]}
    step = {name: value for name, value in STEP.items() if name not in ("tp", "pp")}
    dataset = sweeps.sweep(["time", "step_time"], plan=plan, **MESSAGES, **step)
    assert dataset.time.dims == ("message_bytes",)
    assert dataset.step_time.dims == ("plan",)
    assert float(dataset.ranks) == 16


def test_the_usual_quantities_are_of_both() -> None:
    dataset = sweeps.sweep(ranks=[8, 64], **MESSAGES, **STEP)
    assert {"time", "energy", "time_band_low", "step_time", "mfu"} <= {*dataset.data_vars}
    assert "reduction_time" not in dataset


@pytest.mark.thorough
def test_it_is_computed_again_from_itself(tmp_path: Path) -> None:
    run_in_blocks(job(), tmp_path / "x.nc", Cut(Limits(), 10**9))
    with sweeps.open(tmp_path / "x.nc") as stored:
        dataset = sweeps.recompute(stored)
        for name in dataset.data_vars:
            xr.testing.assert_equal(dataset[name].variable, stored[name].variable)
        assert {*QUANTITIES, "status", "collective_status"} == {*dataset.data_vars}
        xr.testing.assert_identical(stored.load(), job().dataset().assign_attrs(stored.attrs))


def test_reasons_are_of_each() -> None:
    dataset = sweeps.sweep(
        ["time", "step_time"],
        ranks=[8, 12],
        topology="switch",
        software="none",
        algorithm="halving",
        **MESSAGES,
        **STEP,
    )
    assert sweeps.reasons(dataset, "time").values.tolist() == ["", "ranks not power of two"]
    assert "product of degrees" in str(sweeps.reasons(dataset, "step_time").values)
    assert sweeps.reasons(dataset).dims == dataset.status.dims
    with pytest.raises(InputError, match="isn't here"):
        sweeps.reasons(dataset, "speed")


@pytest.mark.parametrize(
    ("asked", "given_too", "line"),
    [
        (
            ["step_time"],
            {**MESSAGES, **STEP},
            "message_bytes = '..': is of an operation, and nothing",
        ),
        (["time"], {**MESSAGES, **STEP}, "tp = '..': is of a training step, and nothing of one"),
        (["step_time"], STEP, "ranks = '..': is of an operation, and no message of one is given"),
        (["time", "step_time"], {"collective": "reduce", **STEP}, "give message_bytes as an axis"),
    ],
)
def test_what_changes_nothing_is_refused(
    asked: list[str], given_too: dict[str, Any], line: str
) -> None:
    with pytest.raises(InputError) as error:
        sweeps.sweep(asked, ranks=[8, 16], **given_too)
    assert line in str(error.value)


# In a file: reductions, blocks, records.

REDUCTIONS = examples(__file__, "reductions")


def job(**more: Any) -> Job:
    axes = {"ranks": [8, 64, 512], **MESSAGES, **NETWORK, "tp": [1, 4], "pp": [1, 2]}
    constants = {name: value for name, value in STEP.items() if name not in axes}
    return prepare(
        {"quantities": QUANTITIES, "axes": axes, "constants": constants, **more}, command=["x"]
    )


def test_a_reduction_is_of_either_part() -> None:
    dataset = job(reductions=REDUCTIONS).dataset()
    ours = dataset.step_time.where(dataset.mfu > 0.3).min(["tp", "pp"])
    xr.testing.assert_equal(dataset.best_step_time.variable, ours.variable)
    xr.testing.assert_equal(dataset.worst_time.variable, dataset.time.max("topology").variable)
    assert "ancillary_variables" not in dataset.worst_time.attrs
    crossed = {**REDUCTIONS[0], "operation": "pareto", "against": "energy", "where": []}
    with pytest.raises(InputError, match="aren't both"):
        job(reductions=[crossed])


class Stop(Exception):
    """What ends a run here."""


@pytest.mark.thorough
@pytest.mark.parametrize("cells", [7, 1 << 17])
def test_blocks_give_the_same_file(tmp_path: Path, cells: int) -> None:
    wanted = job(reductions=REDUCTIONS).dataset()
    cut = Cut(Limits(block=cells), 2)

    def stopping(assignment: Assignment) -> Iterator[int]:
        for count, index in enumerate(here(assignment)):
            if count == 2:
                raise Stop
            yield index

    path = tmp_path / "x.nc"
    with pytest.raises(Stop):
        run_in_blocks(job(reductions=REDUCTIONS), path, cut, pool=stopping)
    run_in_blocks(job(reductions=REDUCTIONS), path, cut, resume=True, pool=processes(1))
    with sweeps.open(path) as stored:
        xr.testing.assert_identical(stored.load(), wanted.assign_attrs(stored.attrs))


SPEC = examples(__file__, "spec")


@pytest.mark.thorough
def test_commands_take_it(cli: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("card.toml").write_text(SPEC)
    assert "time over topology, ranks, message_bytes: 8 cells" in cli("run card.toml --dry-run").out
    ran = cli("run card.toml --plot --page")
    assert "Time of all_reduce, by message" in ran.out
    assert (
        sorted(path.suffix for path in Path("outputs").glob("card-operation-*"))
        == ".png .png .png .svg .svg .svg".split()
    )
    assert "collective_status" in cli("info outputs/card.nc").out
    rows = list(
        csv.DictReader(io.StringIO(cli("run card.toml --csv --output y.nc", fine=False).out))
    )
    assert [bool(row["latency_s"]) for row in rows] == [True] * 8 + [False] * 8
    assert all(row["step_time_s"] == "" for row in rows[:8])
    assert {row["collective_status"] for row in rows[:8]} == {"ok"}
    ran = cli("run card.toml --json --output y.nc --overwrite", fine=False)
    assert ran.records[-1]["tp"] == 8


@pytest.mark.thorough
def test_what_moves_an_answer_is_of_its_part() -> None:
    whole = {**MESSAGES, **STEP, "message_bytes": 2**20, "tp": 4, "pp": 1}
    step = {name: value for name, value in whole.items() if name != "message_bytes"}
    for quantity, alone_ in (("time", {"message_bytes": 2**20}), ("step_time", step)):
        table = sweeps.sensitivity(quantity, ranks=8, **whole)
        name = "ranks" if quantity == "time" else "world_size"
        xr.testing.assert_equal(
            table.drop_attrs(), sweeps.sensitivity(quantity, **{name: 8}, **alone_).drop_attrs()
        )


@pytest.mark.thorough
def test_the_design_space_is_answered(cli: Runner, tmp_path: Path) -> None:
    few = "--set world_size=64,512 --set message_bytes=1MiB,1GiB --set topology=ring,hierarchical"
    ran = cli(f"run design-space {few} --output {tmp_path / 'x.nc'} --no-plot").out
    lines = " ".join(ran.split())
    # The baseline with its plans, then what each choice changes, then the operation's answer.
    assert re.match(r"hierarchical, 400 Gbit/s between nodes: [\d.]+ s \(64 GPUs, tp \d", lines)
    assert re.search(r"topology ring rather than hierarchical: (a tie|[-+.\d]+ %)", lines)
    answer, table = lines.split("Time of an all_reduce on 512 GPUs")
    assert "inter bandwidth 200 Gbit/s rather than 400 Gbit/s" in answer
    assert "fastest in" in table.partition("Step time of the best")[0]
    with sweeps.open(tmp_path / "x.nc") as dataset:
        step = dataset.step_time.min(["tp", "pp"]).sel(
            topology="hierarchical", inter_bandwidth=50e9
        )
        assert f"{float(step[-1]):.4g} s (512 GPUs" in lines
