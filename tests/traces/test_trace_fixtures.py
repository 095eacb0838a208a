"""Real traces: HolisticTraceAnalysis' own figures, and those of full resolution."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest

from sweeps.traces.columns import Trace
from sweeps.traces.overlap import analyse, hta_figures
from sweeps.traces.patterns import load_patterns
from sweeps.traces.reader import read_trace
from tests.tables import examples

FOLDER = Path(__file__).parents[1] / "data" / "traces"
NAMES = examples(__file__, "names")
NAN = math.nan
# What HolisticTraceAnalysis 0.6.1 (f4d0062c) prints of each file, with the last step and without:
# comp_comm_overlap_pctg; idle, compute, non-compute and kernel time in microseconds.
HTA = {
    ("control", True): (46.24, 76007, 281336, 107251, 464594),
    ("control", False): (47.03, 62119, 234760, 86525, 383404),
    ("rank 0", True): (14.95, 675191, 210320, 337336, 1222847),
    ("rank 0", False): (11.81, 321378, 106252, 172428, 600058),
    ("rank 1", True): (19.93, 651136, 271973, 308077, 1231186),
    ("rank 1", False): (20.05, 328671, 135548, 136455, 600674),
    ("nccl", True): (15.14, 506512, 113012, 41026, 660550),
    ("nccl", False): (14.31, 338781, 75169, 21636, 435586),
    ("sync", False): (NAN, 19132, 369, 5, 19506),
    ("rocm", False): (NAN, 8780, 96, 35, 8911),
    ("triton", False): (NAN, 0, 94, 0, 94),
    ("b200", False): (0.0, 73669, 10153, 664, 84486),
}
# Overlap of communication with all rows and exact times, in percent.
FULL = {"rank 0": 14.946, "rank 1": 19.926, "nccl": 15.609, "control": 46.237, "b200": 0.0}
DEVICES = {
    "control": "NVIDIA A100-PG509-200",
    "rank 0": "",
    "rocm": "AMD Radeon Graphics",
    "b200": "NVIDIA B200",
}


@cache
def trace(name: str) -> Trace:
    return read_trace(FOLDER / f"{NAMES[name]}.json.gz")


@pytest.mark.thorough_cases("control-True")
@pytest.mark.parametrize(("name", "last"), HTA)
def test_figures_of_holistic_trace_analysis(name: str, last: bool) -> None:
    share, *times = HTA[name, last]
    overlap = analyse(trace(name), "hta", include_last_step=last)
    assert round(100 * overlap.of_communication, 2) == pytest.approx(share, nan_ok=True, abs=1e-9)
    figures = hta_figures(trace(name), include_last_step=last)
    rest = figures.span - figures.idle - figures.times[0]
    actual = [figures.idle, figures.times[0], rest, figures.span]
    assert [nanoseconds / 1000 for nanoseconds in actual] == times
    assert sum(overlap.parts.values()) == pytest.approx(overlap.end_to_end, abs=1e-12)


@pytest.mark.parametrize("name", FULL)
def test_overlap_with_all_rows(name: str) -> None:
    overlap = analyse(trace(name))
    assert round(100 * overlap.of_communication, 3) == FULL[name]
    smaller = min(overlap.communication, overlap.computation)
    assert overlap.of_smaller == pytest.approx(overlap.overlapped / smaller)


@pytest.mark.parametrize("name", ["sync", "rocm", "triton"])
def test_nothing_overlaps_without_communication(name: str) -> None:
    overlap = analyse(trace(name))
    assert overlap.communication == 0.0
    assert math.isnan(overlap.of_communication)
    assert math.isnan(overlap.of_smaller)


def test_steps_and_streams() -> None:
    overlap = analyse(trace("control"))
    assert list(overlap.by_step) == [1009, 1010, 1011, 1012, 1013, 1014]
    assert list(overlap.by_stream) == [7, 20, 21, 22]
    assert sum(part.rows for part in overlap.by_step.values()) == overlap.rows == 9450
    assert sum(part.rows for part in overlap.by_stream.values()) == overlap.rows
    # All communication is on one stream, so this one's share is the whole trace's.
    assert overlap.by_stream[21].of_communication == pytest.approx(overlap.of_communication)
    assert overlap.by_step[1009].host == pytest.approx(0.075473)


def test_graphics_cards_and_ranks() -> None:
    assert {name: trace(name).device for name in DEVICES} == DEVICES
    assert (trace("control").rank, trace("control").world_size) == (3, 8)
    assert trace("rocm").rank is None
    assert trace("nccl").fractional
    assert not trace("rank 0").fractional


def test_fbgemm_is_no_matrix_product() -> None:
    overlap = analyse(trace("rank 0"), patterns=load_patterns())
    assert 0.06 < overlap.times["gemm"] < 0.07  # with fbgemm_gpu's kernels it would be twice that
