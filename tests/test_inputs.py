"""Batches and sequences as people write them, in tokens; bandwidths without a unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps
from sweeps.errors import InputError
from sweeps.spec.sweep import read_sweep
from sweeps.spec.units import counts_tokens, spelled_out
from tests.cli_runner import Runner
from tests.tables import examples

MODEL = "--model llama3-8b --gpus 16"
PLAN = f"plan {MODEL} --pp 1 --cp 1"
ANALYSIS = f"analysis {MODEL} --tp 8"


@pytest.mark.parametrize(("name", "text", "meant"), examples(__file__, "tokens"))
def test_tokens_are_counted_as_people_do(name: str, text: object, meant: object) -> None:
    assert spelled_out(name, text) == meant


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4M", True),
        ("4Mi", True),
        ("512", False),
        ("4e6", False),
        (["1k"], True),
        ("4 MB", False),
        (4.0, False),
    ],
)
def test_what_counts_tokens(text: object, counts: bool) -> None:
    assert counts_tokens(text) == counts


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize(
    "flag", ["--batch-size 4M", "--global-batch 4M", "--batch-tokens 4M", "--batch-tokens 4194304"]
)
def test_a_batch_in_tokens_is_that_of_its_sequences(cli: Runner, flag: str) -> None:
    plain = cli(f"{ANALYSIS} --global-batch 512 --seq-len 8192 --json").records[0]
    record = cli(f"{ANALYSIS} {flag} --seq-len 8k --json").records[0]
    assert record["global_batch_size"] == plain["global_batch_size"] == 512
    assert record["step_time_s"] == plain["step_time_s"]


@pytest.mark.thorough
@pytest.mark.parametrize("flag", ["-b 4M", "--batch-tokens 4M"])
def test_plans_of_a_batch_in_tokens_are_those_of_its_sequences(cli: Runner, flag: str) -> None:
    best = cli(f"{PLAN} -b 512 -s 8192 --json").records
    assert cli(f"{PLAN} {flag} -s 8k --json").records == best
    output = cli(f"{PLAN} {flag} -s 8k").out
    assert "512 sequences of 8,192 tokens per step" in output
    assert "(-s 8k is read as 8,192 tokens)" in output
    assert f"({flag} is read as 4,194,304 tokens per step)" in output


def test_what_is_read_is_said(cli: Runner) -> None:
    output = cli(f"{ANALYSIS} --batch-size 4M --seq-len 8k").out
    first, second, third, *_ = output.splitlines()
    assert "s per step" in first
    assert second == "  (--batch-size 4M is read as 4,194,304 tokens per step)"
    assert third == "  (--seq-len 8k is read as 8,192 tokens)"


@pytest.mark.thorough
def test_tokens_are_an_axis_of_every_road(
    cli: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"model": "llama3-8b", "world_size": 16, "tp": 8}
    dataset = sweeps.sweep(
        ["step_time", "global_batch_size"],
        **given,
        tokens_per_step=["1M", "2M"],
        sequence_length=["4k", "8k"],
    )
    batch = dataset.global_batch_size.transpose("tokens_per_step", "sequence_length").to_numpy()
    np.testing.assert_array_equal(batch, [[256.0, 128.0], [512.0, 256.0]])
    spec = tmp_path / "tokens.toml"
    spec.write_text(
        'quantities = ["step_time"]\n[axes]\nglobal_batch_size = ["1M", "2M"]\n[constants]\n'
        'model = "llama3-8b"\nworld_size = 16\ntp = 8\nsequence_length = "8k"\n'
    )
    monkeypatch.chdir(tmp_path)
    rows = cli(f"run {spec} --json", fine=False).records
    times = [row["step_time_s"] for row in rows]
    assert times == dataset.step_time.sel(sequence_length=8192).to_numpy().tolist()
    points = cli(f"{PLAN} --batch-tokens 1M,2M -s 4k,8k --json").records
    assert [(row["sequence_length"], row["tokens_per_step"]) for row in points] == [
        (length, tokens) for length in (4096, 8192) for tokens in (2**20, 2**21)
    ]
    (record,) = cli(f"{PLAN} -b 256 -s 8192 --top 1 --json").records[:1]
    assert points[3]["step_time_s"] == record["step_time_s"]


def test_bits_and_bytes_are_told_apart() -> None:
    """Both are accepted, and differ by eight."""
    bits = sweeps.sweep(
        "bandwidth_time", topology="ring", ranks=8, message_bytes="1GB", bandwidth="400Gb/s"
    )
    byte = sweeps.sweep(
        "bandwidth_time", topology="ring", ranks=8, message_bytes="1GB", bandwidth="400GB/s"
    )
    assert bits["bandwidth_time"].item() == pytest.approx(8 * byte["bandwidth_time"].item())


def test_a_spec_needs_units_as_it_did() -> None:
    statement = {"axes": {"ranks": [8]}, "constants": {"message_bytes": "1 MiB", "bandwidth": 400}}
    with pytest.raises(InputError, match="has no unit"):
        read_sweep(statement, bare_is_si=False)


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize("written", ["70", "70B", "70e9"])
def test_parameters_mean_one_thing(cli: Runner, written: str) -> None:
    """Below 1e6 they are billions, in an analysis as in the calculator."""
    (one,) = cli(f"analysis --params {written} --gpus 64 --json").records
    assert one["gradient_memory_bytes"] == 140e9
    planned = cli(f"plan --params {written} --gpus 64 --json").records
    assert {record["parameters"] for record in planned} == {70e9}
    output = cli(f"analysis --params {written} --gpus 64").out
    assert ("(--params 70 is read as 70 billion" in output) == (written == "70")


@pytest.mark.parametrize("names", [("ranks", "gpus"), ("gpus", "ranks"), ("gpus", "N")])
def test_two_names_of_a_quantity_are_refused_in_a_line(names: tuple[str, str]) -> None:
    asked: dict[str, Any] = dict(zip(names, (16, 8), strict=True))
    with pytest.raises(InputError) as caught:
        sweeps.sweep("time", message_bytes=1e6, **asked)
    (line,) = caught.value.faults
    first, other = names
    assert line == (
        f"{other} = 8: stands beside {first} = 16, which is the same quantity; one of the two"
    )
