"""Laws of overlap on traces made by chance, and cases worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.traces.overlap import ADVICE, PARTS, Overlap, analyse, exposures, kernels_of
from sweeps.traces.patterns import CLASSES, load_patterns
from sweeps.traces.reader import read_trace
from tests.traces.make import GEMM, NCCL, OTHER, call, kernel, launched, step, write

Event = dict[str, Any]
PATTERNS = load_patterns()
NAMES = {
    "gemm": (GEMM, "kernel"),
    "other": (OTHER, "kernel"),
    "communication": (NCCL, "kernel"),
    "copy": ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy"),
    "wait": ("kuserbuffers_pushrecv(int)", "kernel"),
}
US = 1e-6
ROWS = st.lists(
    st.tuples(
        st.sampled_from(CLASSES), st.integers(0, 60), st.integers(0, 9), st.sampled_from([7, 20])
    ),
    min_size=1,
    max_size=25,
)


def found(folder: Path, events: list[Event]) -> Overlap:
    return analyse(read_trace(write(folder / "t.json", events)), patterns=PATTERNS)


def brute(rows: list[tuple[str, int, int, int]]) -> dict[str, Any]:
    """Return what a look at every microsecond says."""
    busy: dict[int, set[str]] = {}
    for kind, start, length, _ in rows:
        for at in range(start, start + length):
            busy.setdefault(at, set()).add(kind)
    low, high = min(r[1] for r in rows), max(r[1] + r[2] for r in rows)
    at_all = [busy.get(at, set()) for at in range(low, high)]
    first = [next((k for k in CLASSES if k in kinds), "idle") for kinds in at_all]
    computing = [bool(kinds & {"gemm", "other"}) for kinds in at_all]
    carrying = ["communication" in kinds for kinds in at_all]
    return {
        "times": {k: sum(k in kinds for kinds in at_all) for k in CLASSES},
        "parts": {k: first.count(k) for k in PARTS},
        "end_to_end": high - low,
        "computation": sum(computing),
        "overlapped": sum(a and b for a, b in zip(computing, carrying, strict=True)),
        "gemm_overlapped": sum("gemm" in k and "communication" in k for k in at_all),
        "idle": sum(not kinds for kinds in at_all),
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_figures_and_laws(tmp_path: Path, rows: list[tuple[str, int, int, int]]) -> None:
    events = [kernel(NAMES[k][0], at, n, s, cat=NAMES[k][1]) for k, at, n, s in rows]
    overlap = found(tmp_path, events)
    for name, value in brute(rows).items():
        if isinstance(value, dict):
            assert getattr(overlap, name) == pytest.approx({k: v * US for k, v in value.items()})
        else:
            assert getattr(overlap, name) == pytest.approx(value * US, abs=1e-15)
    # Time together lies between the longer of both and their sum.
    compute, communicate = overlap.computation, overlap.communication
    both = compute + communicate - overlap.overlapped
    assert max(compute, communicate) - 1e-12 <= both <= compute + communicate
    assert overlap.exposed == pytest.approx(communicate - overlap.overlapped)
    assert sum(overlap.parts.values()) == pytest.approx(overlap.end_to_end)
    assert overlap.parts["communication"] <= overlap.exposed + 1e-12
    assert overlap.busy == pytest.approx(overlap.end_to_end - overlap.idle)
    assert overlap.gemm_overlapped <= overlap.overlapped <= min(compute, communicate) + 1e-12
    if communicate:
        assert 0.0 <= overlap.of_communication <= overlap.of_smaller + 1e-12
        assert overlap.of_smaller <= 1.0 + 1e-9
    else:
        assert math.isnan(overlap.of_communication)
        assert math.isnan(overlap.of_smaller)
    # Communication is overlapped on its stream by whatever computes anywhere.
    exposed = sum(part.exposed for part in overlap.by_stream.values())
    assert exposed >= overlap.exposed - 1e-12
    assert sum(part.rows for part in overlap.by_stream.values()) == overlap.rows == len(rows)


def test_both_denominators(tmp_path: Path) -> None:
    # Computation 0 to 40, communication 30 to 130: 10 in common.
    overlap = found(tmp_path, [kernel(GEMM, 0, 40), kernel(NCCL, 30, 100, 20)])
    assert overlap.of_communication == pytest.approx(0.1)
    assert overlap.of_smaller == pytest.approx(0.25)
    assert overlap.exposed == pytest.approx(90 * US)
    assert overlap.end_to_end == pytest.approx(130 * US)


def test_communication_without_computation(tmp_path: Path) -> None:
    overlap = found(tmp_path, [kernel(NCCL, 0, 10)])
    assert overlap.of_communication == 0.0
    assert overlap.of_smaller == 0.0


def test_waiting_is_neither(tmp_path: Path) -> None:
    """The payload of a ring exchange is a copy between GPUs; the kernel that spins carries none."""
    overlap = found(
        tmp_path,
        [
            kernel(GEMM, 0, 100),
            kernel("Memcpy PtoP (Device -> Device)", 10, 50, 20, cat="gpu_memcpy"),
            kernel("kuserbuffers_pushrecv(int)", 10, 140, 21),
        ],
    )
    assert overlap.communication == pytest.approx(50 * US)
    assert overlap.of_communication == 1.0
    assert overlap.times["wait"] == pytest.approx(140 * US)
    assert overlap.parts["wait"] == pytest.approx(50 * US)
    assert overlap.idle == 0.0


def test_steps_are_of_their_launches(tmp_path: Path) -> None:
    events = [
        step(4, 0, 100),
        step(5, 100, 100),
        step(4, 20, 100, cat="gpu_user_annotation"),
        step(5, 3, 100, tid=2),  # another thread's mark of a step that the first one has marked
        *launched(GEMM, 90, 150, 30, 7, 1),  # of step 4, though it runs in step 5
        *launched(NCCL, 110, 160, 30, 20, 2),
        *launched(OTHER, 250, 260, 30, 7, 3),  # of none
        kernel(OTHER, 105, 5, correlation=99),  # its launch isn't in the file
    ]
    events[3]["ts"] = 103
    overlap = found(tmp_path, events)
    assert {k: part.rows for k, part in overlap.by_step.items()} == {4: 1, 5: 1}
    assert overlap.by_step[5].communication == pytest.approx(30 * US)
    assert overlap.by_step[5].start == pytest.approx(55 * US)
    assert overlap.by_step[4].host == pytest.approx(100 * US)
    assert overlap.rows == 4
    assert overlap.notes == ("launched outside of the steps: 2 rows, that count in no step",)


def test_steps_without_launches(tmp_path: Path) -> None:
    events = [step(1, 0, 50), step(2, 50, 50), kernel(GEMM, 10, 60), kernel(GEMM, 80, 5)]
    overlap = found(tmp_path, events)
    assert {k: part.rows for k, part in overlap.by_step.items()} == {1: 1, 2: 1}


def test_rows_that_overlap_on_a_stream_are_told(tmp_path: Path) -> None:
    overlap = found(tmp_path, [kernel(GEMM, 0, 50), kernel(OTHER, 40, 50), kernel(OTHER, 90, 5)])
    assert overlap.computation == pytest.approx(95 * US)
    assert overlap.notes == (
        "overlapping on one stream: 1 row, by up to 10 µs; what they have in common counts once",
    )


def test_exact_to_the_nanosecond(tmp_path: Path) -> None:
    start = 4458676983543
    rows = [kernel(GEMM, start + 0.183, 41.407), kernel(NCCL, start + 41.589, 1.001, 20)]
    overlap = found(tmp_path, rows)
    assert round(overlap.overlapped * 1e9) == 1
    assert round(overlap.end_to_end * 1e9) == 42407


def test_names_by_class(tmp_path: Path) -> None:
    events = [kernel(GEMM, 0, 10), kernel(GEMM, 20, 10), kernel(NCCL, 0, 50, 20)]
    events.append(kernel("Stream Wait Event", 0, 1, cat="cuda_sync"))
    trace = read_trace(write(tmp_path / "t.json", events))
    result = [(k.kind, k.rows, round(k.time * 1e6)) for k in kernels_of(trace, PATTERNS)]
    assert result == [("communication", 1, 50), ("gemm", 2, 20), ("excluded", 1, 1)]


# Why communication is exposed.

REDUCE = launched(NCCL, 0, 100, 50, 20, 1)
WHY = {
    # The product after it was launched long ago, on another stream.
    "waits for data": [*REDUCE, *launched(GEMM, 10, 150, 9, 7, 2)],
    # Queued behind it.
    "same stream": [*REDUCE, *launched(GEMM, 10, 150, 9, 20, 2)],
    # Launched when the collective was done.
    "host bound": [*REDUCE, *launched(GEMM, 160, 165, 9, 7, 2)],
    "tiny message": [*launched(NCCL, 0, 100, 12, 20, 1), *launched(GEMM, 10, 112, 9, 7, 2)],
    "launched late": [*launched(NCCL, 95, 100, 50, 20, 1), *launched(GEMM, 10, 150, 9, 7, 2)],
}


@pytest.mark.parametrize("reason", WHY)
def test_each_reason_is_told(reason: str, tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "t.json", WHY[reason]))
    (exposure,) = exposures(trace, PATTERNS)
    assert exposure.reason == reason
    assert exposure.time == pytest.approx((12 if reason == "tiny message" else 50) * US)
    assert (exposure.rows, exposure.at) == (1, 0.0)
    assert exposure.name.startswith("ncclDevKernel_AllReduce")


def test_what_was_launched_halfway_is_two_reasons(tmp_path: Path) -> None:
    """Until its launch nothing could have computed; from then on it waits."""
    events = [*REDUCE, *launched(GEMM, 120, 150, 9, 7, 2)]
    actual_exposures = exposures(read_trace(write(tmp_path / "t.json", events)), PATTERNS)
    assert {
        actual_exposure.reason: actual_exposure.time for actual_exposure in actual_exposures
    } == pytest.approx({"host bound": 20 * US, "waits for data": 30 * US})


def test_groups_of_an_operation_are_told_apart_and_the_worst_is_found(tmp_path: Path) -> None:
    """Tensor-parallel all_reduces and those of gradients are one name, and two things to change."""
    said = {"Collective name": "allreduce", "Group size": 2}
    tensor = {
        **said,
        "Process Group Description": "TP",
        "Process Group Name": "3",
        "Process Group Ranks": "[0, 1]",
    }
    data = {**said, "Group size": 8, "Process Group Name": "5", "Process Group Ranks": "[0, 2]"}
    events = [
        kernel(GEMM, 0, 10),
        *(kernel(NCCL, 10 + 100 * n, 30 + n, 20, **tensor) for n in range(3)),
        kernel(NCCL, 400, 90, 20, **data),
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    actual = {
        exposure.name: (round(exposure.time * 1e6), exposure.rows, round(exposure.at * 1e6))
        for exposure in exposures(trace, PATTERNS)
    }
    assert actual == {
        "allreduce, group TP 3 of 2 ranks": (93, 3, 210),
        "allreduce, group 5 of 8 ranks": (90, 1, 400),
    }
    # Nothing says when they were launched: that is told, and not taken for knowledge.
    (note,) = analyse(trace, patterns=PATTERNS).notes
    assert "no launches" in note
    events.append(call(1, 1))
    trace = read_trace(write(tmp_path / "t.json", events[-2:]))
    assert not analyse(trace, patterns=PATTERNS).notes
    assert [exposure.name for exposure in exposures(trace, PATTERNS)] == ["allreduce"]


@pytest.mark.thorough
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_reasons_sum_to_what_is_exposed(
    tmp_path: Path, rows: list[tuple[str, int, int, int]]
) -> None:
    events = [
        kernel(NAMES[kind][0], start, length, stream, cat=NAMES[kind][1])
        for kind, start, length, stream in rows
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    reasons = exposures(trace, PATTERNS)
    assert sum(reason.time for reason in reasons) == pytest.approx(
        analyse(trace, patterns=PATTERNS).exposed, abs=1e-12
    )
    assert {reason.reason for reason in reasons} <= set(ADVICE)
