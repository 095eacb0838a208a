"""One way out: every command that computes writes, prints, draws and refuses alike."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import sweeps
from sweeps.cli import COMMANDS
from sweeps.origin import read
from tests.calibrate.simulated import log_text, timed
from tests.cli_runner import Done, Runner, drawn_in
from tests.tables import examples
from tests.validate.test_validate_command import OWN

TRACE = Path(__file__).parent / "data" / "traces" / "triton_example.json.gz"
SPEC = examples(__file__, "spec")
# What every file says of where it comes from.
PROVENANCE = tuple(
    "Conventions title source history references date_created spec spec_sha256 fingerprint".split()
)
EPOCH = "2023-11-14T22:13:20Z"
DIMENSIONS = ("tp", "vocabulary", "cp", "pp", "ep", "dp")


class Case(NamedTuple):
    """A command, and which of its records' fields are which of its file's variables."""

    line: str
    pairs: Mapping[str, str]
    scale: float = 1.0  # Of a record's unit, in the file's


CASES = {
    "collective": Case(
        "collective --topology ring,torus --N 4,16 --M 1KiB:1GiB:log3",
        {"latency_s": "time", "volume_bytes": "sent_bytes", "energy_j": "energy"},
    ),
    "analysis": Case(
        "analysis --model llama3-8b --tp 1,2,8 --pp 2 --num-gpus 64 --global-batch 64"
        " --seq-length 4096",
        {"step_time_s": "step_time", "per_gpu_memory_bytes": "peak_memory"}
        | {
            f"{name}_communication_{part}{ending}": f"{name}_communication_{part}"
            for name in DIMENSIONS
            for part, ending in (
                ("time", "_s"),
                ("volume", "_bytes"),
                ("energy", "_j"),
            )
        },
    ),
    "plan": Case(
        "plan --model llama3-8b --gpus 8 --batch-size 64 --tp 1,2,4 --recompute none",
        {"step_time_s": "step_time", "per_gpu_memory_bytes": "peak_memory"},
    ),
    "plan of points": Case(
        "plan --model llama3-8b --gpus 8,16 --batch-size 64 --tp 1,2",
        {"step_time_s": "step_time", "tp": "tp"},
    ),
    "buy": Case(
        "buy --model llama3-8b --tokens 100B --days 30 -b 64 --tp 1,2 --recompute none",
        {"step_time_s": "step_time", "run_days": "run_days"},
    ),
    "plan --params": Case(
        "plan --params 70 --gpus 64",
        {
            "per_gpu_memory_bytes": "first_stage_model_state_memory",
            "tp_volume_bytes": "tp_communication_volume",
        },
    ),
    "hops": Case("hops", {"latency_s": "strategy_time", "volume_bytes": "rank_volume"}),
    "overlap": Case(
        "overlap --compute 50ms --comm 10ms:50ms:lin3 --efficiency 0.8",
        {"overlapped_time_s": "overlapped_time", "overlap_speedup": "overlap_speedup"},
    ),
    "tune": Case(
        "tune --model-name qwen3-0.6b --max-tp-size 2 --operators qkv --output-dir tuned",
        {"operator_e2e_time_us": "operator_e2e_time"},
        1e-6,
    ),
    "trace": Case(f"trace {TRACE}", {"end_to_end_s": "end_to_end_time"}),
    "validate": Case("validate own.csv", {"error": "relative_error"}),
    "validate of operations": Case(
        "validate nccl-collectives", {"median_error": "median_error", "points": "points"}
    ),
    "calibrate": Case(
        "calibrate a.log", {"predicted_time_s": "predicted_time", "error_after": "error_after"}
    ),
    "normal": Case("normal all_reduce --M 1KiB:1GiB:x32", {"busbw_typical": "busbw_typical"}),
    "run": Case("run small.toml", {"latency_s": "time", "busbw_bytes_per_s": "busbw"}),
    "run-all": Case("run-all", {"latency_s": "time", "step_time_s": "step_time"}),
}
# Commands that compute nothing of their own.
OTHERS = {"info", "plot", "page", "list", "show", "catalog", "docs", "schema", "list-cmds"}


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    group = ("all_reduce", 8, 1)
    for name, text in (
        ("own.csv", OWN),
        ("small.toml", SPEC),
        ("a.log", log_text(timed([group], {"channel_efficiency": 0.7}, noise=0.02, seed=1), group)),
    ):
        (tmp_path / name).write_text(text)
    return Runner(capsys)


@pytest.fixture
def told(cli: Runner, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Done]:
    """Run a command that may say something, under its own name."""

    def run(line: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["sweeps", *shlex.split(line)])
        return cli(line, fine=False)

    return run


def numbers(values: Any) -> list[float]:
    """Return the finite numbers among some values, each once, in order."""
    found = (float(value) for value in values if value is not None and not isinstance(value, str))
    return sorted({value for value in found if math.isfinite(value)})


def test_every_command_that_computes_is_here() -> None:
    assert {case.line.split()[0] for case in CASES.values()} == set(COMMANDS) - OTHERS


@pytest.mark.thorough_cases(but=("collective", "overlap", "tune", "trace", "normal", "calibrate"))
@pytest.mark.parametrize("name", CASES)
def test_a_result_leaves_by_one_way(told: Callable[[str], Done], tmp_path: Path, name: str) -> None:
    line, pairs, scale = CASES[name]
    # A file that isn't ours stays as it is.
    Path("mine.nc").write_text("mine")
    refused = told(f"{line} --output mine.nc")
    assert refused.code == 2
    assert "--output mine.nc: exists already; --overwrite replaces it" in refused.err
    assert Path("mine.nc").read_text() == "mine"
    # A file, figures beside it, and records, of one run.
    result = told(f"{line} --output x.nc --plot --json")
    assert result.code == 0, result.err
    assert "wrote x.nc (" in result.err
    drawn = drawn_in(result.err)
    assert any(path.endswith(".png") for path in drawn), result.err
    assert all(Path(path).stat().st_size > 1000 for path in drawn)
    whole = result.records
    records = whole if isinstance(whole, list) else whole["cases" if "cases" in whole else "rows"]
    with sweeps.open(tmp_path / "x.nc") as dataset:
        for attribute in PROVENANCE:
            assert dataset.attrs[attribute], attribute
        assert dataset.attrs["date_created"] == EPOCH
        assert dataset.attrs["history"].startswith(f"{EPOCH} sweeps {line.split()[0]}")
        assert "x.nc" not in dataset.attrs["history"]
        assert "overhead-sweeps" in dataset.attrs["source"]
        for coordinate in dataset.coords.values():
            assert "origin" not in coordinate.attrs or read(coordinate.attrs)
        for field, variable in pairs.items():
            stored = numbers(dataset[variable].to_numpy().ravel().tolist())
            actual_numbers = numbers(record.get(field) for record in records)
            assert actual_numbers, field
            np.testing.assert_allclose(
                [scale * actual_number for actual_number in actual_numbers], stored, rtol=1e-15
            )
    # The same once more: nothing is written again, and CSV has what JSON has.
    shutil.rmtree("tuned", ignore_errors=True)  # where a tuning lays configurations
    again = told(f"{line} --output x.nc --csv")
    assert again.code == 0
    assert "x.nc is complete already" in again.err
    for field in pairs:
        cells = numbers(float(row[field]) for row in again.rows if row.get(field))
        assert cells == numbers(record.get(field) for record in records), field
