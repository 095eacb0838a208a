"""``dataset.sweeps``: the accessor of xarray's datasets, in whichever order things are imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweeps
from sweeps.errors import InputError

ROOT = Path(__file__).parents[1]
STEPS: Mapping[str, Any] = {
    "gpus": [64, 512],
    "tp": [1, 8],
    "pp": [1, 4],
    "model": "llama3-70b",
    "sequence_length": 8192,
    "global_batch_size": 1024,
}


@pytest.fixture(scope="module")
def steps() -> xr.Dataset:
    return sweeps.sweep(["step_time", "peak_memory", "memory_capacity"], **STEPS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "first",
    [
        "import sweeps; import xarray as xr",
        "import xarray as xr; import sweeps",
        "import xarray as xr; import sweeps.accessor",
    ],
)
def test_it_is_there_of_a_file_that_xarray_opens(first: str, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    sweeps.sweep("time", ranks=[8, 16], message_bytes=1e6).to_netcdf(path)
    code = f"{first}; print(xr.open_dataset({str(path)!r}).sweeps.reasons().values.tolist())"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.stdout == "['', '']\n", process.stderr


def test_it_does_what_the_functions_do(steps: xr.Dataset) -> None:
    assert steps.sweeps.recompute().equals(sweeps.recompute(steps))
    xr.testing.assert_identical(steps.sweeps.reasons(), sweeps.reasons(steps))
    assert steps.sweeps.to_dataframe().equals(sweeps.to_dataframe(steps))


def test_more_is_better_of_shares_that_are_no_rates() -> None:
    rows = sweeps.sweep("mfu", **{**STEPS, "gpus": 64})
    assert float(rows.sweeps.best("mfu").mfu) == float(rows.mfu.max())
    speedups = sweeps.sweep(
        ["overlap_speedup", "exposed_time"],
        mechanism=["ddp_buckets", "fsdp_prefetch"],
        gradient_buckets=[1, 2, 4],
        compute_time=0.04,
        communication_time=0.03,
    )
    best = speedups.sweeps.best("overlap_speedup")
    assert float(best.overlap_speedup) == float(speedups.overlap_speedup.max())
    exposed = speedups.exposed_time
    assert float(speedups.sweeps.best("exposed_time").exposed_time) == float(exposed.min())
    assert "highest in each of 3 cases: fsdp prefetch" in str(speedups[["overlap_speedup"]].sweeps)


def test_a_screen_has_zeros_that_a_logarithmic_axis_has_not(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Nothing sent takes its latencies, and a single rank no time: neither is a gap."""
    topology = ["ring", "torus"]
    costs = sweeps.sweep("time", ranks=[1, 8], message_bytes=[0, 1e6], topology=topology)
    assert "-" not in str(costs.sweeps).split("message bytes 0 B")[1]
    costs = sweeps.sweep("time", ranks=[1, 8, 16], message_bytes=1e6, topology=topology)
    assert "ring            0  32.6" in str(costs.sweeps)
    assert not recwarn


def test_the_best_cell_has_room(steps: xr.Dataset) -> None:
    best = steps.sweeps.best()
    assert not best.step_time.dims
    full = steps.peak_memory <= 0.9 * steps.memory_capacity
    assert bool(full.any())
    assert best.step_time.item() == steps.step_time.where(full).min().item()
    assert steps.sweeps.best("peak_memory").peak_memory.item() == steps.peak_memory.min().item()
    rate = sweeps.sweep("busbw", ranks=[8, 64], message_bytes=[1e3, 1e9])
    assert rate.sweeps.best("busbw").busbw.item() == rate.busbw.max().item()
    with pytest.raises(InputError, match=r"^quantity = 'steptime': isn't here; did you mean"):
        steps.sweeps.best("steptime")
    nothing = steps.assign(step_time=np.nan * steps.step_time)
    with pytest.raises(InputError, match="has no value"):
        nothing.sweeps.best("step_time")


def test_it_explains(steps: xr.Dataset) -> None:
    text = steps.sweeps.explain("step_time")
    assert text.startswith("step_time: step time [s]\n  formula     step_time = ")
    assert "peak_memory: " not in text
    assert "specification: " in text
    assert "tp, pp" in text
    assert "peak_memory: " in steps.sweeps.explain()
    with pytest.raises(InputError, match="isn't here"):
        steps.sweeps.explain("steptime")


@pytest.mark.thorough
def test_it_draws(steps: xr.Dataset) -> None:
    assert steps.sweeps.plot().names == sweeps.plot(steps).names
    assert steps.sweeps.plot(style="paper").files.keys() >= {"memory.pdf"}


@pytest.fixture(scope="module")
def both() -> xr.Dataset:
    axes = {**STEPS, "topology": ["ring", "torus"], "message_bytes": [1e6, 1e9]}
    return sweeps.sweep(["time", "step_time", "peak_memory"], **axes)


@pytest.mark.thorough
@pytest.mark.parametrize("selected", [0, [-1], [1, 0]])
def test_a_part_is_computed_again_along_the_dimensions_that_it_has(
    both: xr.Dataset, selected: Any
) -> None:
    for dim in both.sizes:
        part = both.isel({dim: selected})
        again = part.sweeps.recompute()
        for name, variable in part.data_vars.items():
            assert again[name].dims == variable.dims
            np.testing.assert_array_equal(again[name], variable)


def test_variables_are_computed_again_without_the_others(both: xr.Dataset) -> None:
    for name in ("time", "step_time"):
        again = both[[name]].assign(mine=2 * both.time).sweeps.recompute()
        np.testing.assert_array_equal(again[name], both[name])


@pytest.mark.thorough
def test_stacked_dimensions_are_shown_and_computed_again(steps: xr.Dataset) -> None:
    stacked = steps.stack(plan=["tp", "pp"])
    np.testing.assert_array_equal(stacked.sweeps.recompute().step_time, stacked.step_time)
    assert float(stacked.isel(plan=1).sweeps.recompute().tp) == 1
    assert {"tp", "pp"} <= {*stacked.sweeps.to_dataframe()}
    assert float(stacked.sweeps.best("step_time").step_time) == steps.sweeps.best().step_time
    assert "tp 8" in str(stacked.sweeps)
    assert stacked.sweeps.plot("memory").names


def test_what_xarray_left_out_is_said(steps: xr.Dataset) -> None:
    part = steps.where(steps.tp > 1)
    assert {*part.sweeps.reasons().sel(tp=1).values.flat} == {"left out"}
    table = part.sweeps.to_dataframe()
    assert {*table.status[table.tp == 1]} == {""}
    assert "ok" in {*table.status[table.tp == 8]}


def test_what_is_put_together_is_a_table_and_is_not_computed_again(steps: xr.Dataset) -> None:
    trials = steps.expand_dims(trial=[1, 2])
    assert "trial" in trials.sweeps.to_dataframe()
    with pytest.raises(InputError, match=r"trial.* is no quantity"):
        trials.sweeps.recompute()


def test_nothing_and_what_has_lost_its_attributes_are_refused(steps: xr.Dataset) -> None:
    with pytest.raises(InputError, match="has no cells"):
        steps.isel(tp=[]).sweeps.recompute()
    with pytest.raises(InputError, match="drew nothing"):
        steps.isel(tp=[]).sweeps.plot()
    with pytest.raises(InputError, match="keep_attrs"):
        steps.drop_attrs().sweeps.reasons()
    assert steps[["step_time"]].sweeps.plot().names


def test_what_is_joined_along_a_constant_says_whose_it_is() -> None:
    given = {**STEPS, "gpus": 64}
    each = [sweeps.sweep("step_time", hardware=name, **given) for name in ("dgx-h100", "dgx-a100")]
    with pytest.warns(UserWarning, match="joined along hardware: the first one's constants"):
        str(xr.concat(each, "hardware").sweeps)
