"""Files that can't be used: one clear line each, and exit code 2."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.traces import file as whole_file
from sweeps.traces import parts
from sweeps.traces.overlap import analyse
from sweeps.traces.ranks import analyse_files
from sweeps.traces.reader import read_trace
from tests.cli_runner import Runner
from tests.tables import examples
from tests.traces.make import GEMM, call, kernel, step, write

GOOD = json.dumps({"traceEvents": [kernel(GEMM, k, 1) for k in range(400)], "traceName": "t"})


def told(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        analyse(read_trace(path))
    (line,) = caught.value.faults
    return line


@pytest.mark.parametrize("kept", [5, 30, 500, -9, -1])
def test_torn_gzip(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(GOOD.encode(), compresslevel=1)[:kept])
    assert "t.json.gz': its gzip data is torn off after" in told(path)


def test_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(GOOD.encode()))
    path = tmp_path / "t.json.gz"
    path.write_bytes(data[:-8] + bytes(8))  # the checksum
    assert "its gzip data is damaged" in told(path)
    path.write_bytes(data + b"more")
    assert "its gzip data is damaged" in told(path)
    data[200:260] = bytes(60)
    path.write_bytes(data)
    assert "its gzip data is" in told(path)


@pytest.mark.thorough_cases(but=("-262144", "0.01-64"))
@pytest.mark.parametrize("part", [64, 1 << 18])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.3, 0.5, 0.999])
def test_cut_off(tmp_path: Path, share: float, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_READ", part)
    path = tmp_path / "t.json"
    for fewer in range(12):
        path.write_text(GOOD[: int(share * len(GOOD)) - fewer or 1])
        line = told(path)
        assert "is cut off after" in line or "isn't JSON near its byte" in line
        assert line.endswith(
            "; a PyTorch profiler's trace: JSON with traceEvents, plain or gzipped"
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *examples(__file__, "what_is_no_trace"),
        ('{"traceEvents": ' + "[" * 100_000, "nested too deeply"),
        ("[]", "has no rows of GPU work in 2 bytes of JSON"),
        ('{"traceEvents": []}', "has no rows of GPU work"),
        ('{"traceEvents": [1, null, "kernel", [{"ph": "X"}]]}', "has no rows of GPU work"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    assert words in told(path)


def test_invalid_json_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_READ", 1 << 10)
    monkeypatch.setattr(whole_file, "_MOST", 1 << 14)
    path = tmp_path / "t.json"
    broken = GOOD.replace('"ts": 200,', '"ts": 200 oops,')
    path.write_text(broken)
    assert "isn't JSON near its byte" in told(path)
    at = int(told(path).split("near its byte ")[1].split(" ")[0].replace(",", ""))
    assert at == broken.index("oops")


def test_without_gpu_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "cpu.json", [call(1, 2), step(1, 0, 9)])
    line = told(path)
    assert "has no rows of GPU work" in line
    assert "ProfilerActivity.CUDA" in line
    for mode in ("full", "hta"):
        with pytest.raises(InputError):
            analyse(read_trace(path), mode)  # type: ignore[arg-type]


def test_rows_that_can_t_be_are_why_there_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [kernel(GEMM, 0, -5), kernel(GEMM, float("nan"), 1)])
    line = told(path)
    assert "has no rows of GPU work in" in line
    assert "left out: 1 row without a start or a duration; left out: 1 row of negative" in line


def test_lists_in_place_of_numbers(tmp_path: Path) -> None:
    """Lists of one length are an array, too, of one dimension more."""
    odd = kernel(GEMM, 0, 10)
    odd["args"] |= {"stream": [7], "device": [0, 1], "correlation": {}}
    analysis = analyse(read_trace(write(tmp_path / "t.json", [odd, odd])))
    assert (analysis.rows, analysis.computation) == (2, pytest.approx(10e-6))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in told(tmp_path / "none.json")
    assert "can't be read" in told(tmp_path)


def test_all_faults_are_told(tmp_path: Path, cli: Runner) -> None:
    good = write(tmp_path / "good.json", [kernel(GEMM, 0, 1)])
    bad = [tmp_path / name for name in ("one.json", "two.json")]
    for path in bad:
        path.write_text("nonsense")
    with pytest.raises(InputError) as caught:
        analyse_files([bad[0], good, bad[1]])
    assert len(caught.value.faults) == 2
    result = cli("trace", str(bad[0]), str(good), str(bad[1]), fine=False)
    assert result.code == 2
    assert result.out == ""
    lines = result.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("sweeps: /") for line in lines)


@pytest.mark.parametrize(("options", "words"), examples(__file__, "options_that_cannot_be"))
def test_options_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Runner, options: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("good.json"), [kernel(GEMM, 0, 1)])
    result = cli(f"trace good.json {options}", fine=False)
    assert result.code == 2
    assert words in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["good.json"],
        ["good.json", "outputs"],
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=6),
    zipped=st.booleans(),
)
def test_damage_is_told_or_harmless(
    tmp_path: Path, places: list[tuple[int, int]], zipped: bool
) -> None:
    whole = json.dumps({"traceEvents": [step(1, 0, 99), *[kernel(GEMM, k, 1) for k in range(9)]]})
    data = bytearray(gzip.compress(whole.encode()) if zipped else whole.encode())
    for position, value in places:
        data[position % len(data)] = value
    path = tmp_path / "t.json"
    path.write_bytes(data)
    faults: tuple[str, ...] = ()
    try:
        analyse(read_trace(path))
    except InputError as error:
        faults = error.faults
    assert len(faults) <= 1
    assert not any("\n" in fault for fault in faults)
