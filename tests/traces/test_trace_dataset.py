"""What was found as a labelled dataset: in memory as in the file, with units, sources and holes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from sweeps.store.netcdf import open_dataset, verify
from sweeps.store.netcdf import write as write_file
from sweeps.traces.patterns import CLASSES
from sweeps.traces.ranks import Ranks, analyse_files, result_of
from tests.traces.make import GEMM, NCCL, kernel, launched, step, write


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    one = [step(1, 0, 100), step(2, 100, 100), *launched(GEMM, 10, 20, 50, 7, 1)]
    one += [*launched(NCCL, 20, 30, 70, 20, 2), *launched(GEMM, 110, 130, 40, 7, 3)]
    other = [step(2, 100, 100), *launched(NCCL, 120, 150, 10, 30, 4)]
    paths = [
        write(tmp_path / f"rank{rank}.json.gz", events, distributedInfo={"rank": rank})
        for rank, events in ((3, other), (0, one))
    ]
    return analyse_files(paths)


def test_memory_and_file_agree(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    path = tmp_path / "t.nc"
    write_file(path, result_of(ranks).bare, result_of(ranks).blocks)
    assert verify(path) == ()
    with open_dataset(path) as stored:
        assert stored.identical(result_of(ranks).dataset())


def test_dimensions_units_and_sources(ranks: Ranks) -> None:
    dataset = result_of(ranks).dataset()
    sizes = {"rank": 2, "step": 2, "stream": 3, "activity": 5, "part": 6, "reason": 5}
    assert dict(dataset.sizes) == {**sizes, "diagnosis": 2}
    assert dataset["rank"].values.tolist() == [0, 3]
    assert dataset["trace_file"].values.tolist() == ["rank0.json.gz", "rank3.json.gz"]
    assert dataset["activity"].values.tolist() == list(CLASSES)
    for variable in dataset.data_vars.values():
        assert variable.attrs["units"] in {"s", "1"}
        assert variable.attrs["long_name"]
    spec = tomllib.loads(dataset.attrs["spec"])
    assert [file["rank"] for file in spec["traces"]] == [0, 3]
    assert all(len(file["blake2b"]) == 32 for file in spec["traces"])
    assert "/" not in dataset.attrs["spec"]


def test_values_and_holes(ranks: Ranks) -> None:
    dataset = result_of(ranks).dataset()
    for index, overlap in enumerate(ranks.overlaps):
        own = dataset.isel(rank=index)
        assert float(own["overlap_of_communication"]) == overlap.of_communication
        assert own["part_time"].sum().item() == pytest.approx(overlap.end_to_end)
    gemm = dataset["step_activity_time"].sel(activity="gemm")
    assert gemm.sel(rank=0).values == pytest.approx([50e-6, 40e-6])
    # Rank 3 has neither step 1 nor stream 7.
    assert np.isnan(gemm.sel(rank=3, step=1))
    assert np.isnan(dataset["stream_activity_time"].sel(rank=3, stream=7)).all()
    assert dataset["step_host_time"].sel(rank=0, step=1) == pytest.approx(100e-6)


def test_why_communication_is_exposed(ranks: Ranks) -> None:
    dataset = result_of(ranks).dataset()
    by_reason = dataset["exposed_reason_time"].sum("reason")
    np.testing.assert_allclose(by_reason, dataset["exposed_communication_time"])
    assert "reason" in dataset["change"].dims
    # Rank 0's from 70 us, where its product has ended, to 100, and what is next is launched at 110.
    assert dataset["diagnosis_rank"].values.tolist() == [0, 3]
    assert dataset["diagnosis_time"].values == pytest.approx([30e-6, 10e-6])
    assert dataset["diagnosis_reason"].values.tolist()[0] == "host bound"
    assert dataset["diagnosis_start"].values[0] == pytest.approx(10e-6)


def test_without_steps(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel(GEMM, 0, 10)])
    dataset = result_of(analyse_files([path])).dataset()
    assert dict(dataset.sizes) == {"rank": 1, "stream": 1, "activity": 5, "part": 6, "reason": 5}
    assert dataset["exposed_reason_time"].sum() == 0.0
    assert np.isnan(dataset["overlap_of_communication"]).all()


def test_by_holistic_trace_analysis(ranks: Ranks, tmp_path: Path) -> None:
    paths = [tmp_path / trace.file for trace in ranks.traces]
    dataset = result_of(analyse_files(paths, "hta")).dataset()
    assert dict(dataset.sizes) == {"rank": 2, "activity": 4, "part": 3}
    assert "gemm_overlap_time" not in dataset
    assert "HolisticTraceAnalysis" in dataset.attrs["references"]


def test_the_fingerprint_is_of_what_went_in(ranks: Ranks, tmp_path: Path) -> None:
    paths = [tmp_path / trace.file for trace in ranks.traces]
    other_analyses = [analyse_files(paths), analyse_files(paths[:1]), analyse_files(paths, "hta")]
    prints = [result_of(found).dataset().attrs["fingerprint"] for found in (ranks, *other_analyses)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
