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
