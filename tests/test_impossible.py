"""What can't be is said to be impossible, wherever it is asked or measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.impossible import LARGEST, impossible, too_many
from tests.cli_runner import Runner

ROOT = Path(__file__).parents[1]
STEP = "analysis --model llama3-8b --hardware dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128"
HALF = '''
import numpy as np
from overhead import algorithm
from overhead.collectives.cost import flat


@algorithm("ring", "all_reduce", "magic", source="derivation")
def magic(ranks):
    """Magic: half of a message."""
    return flat(ranks / 2.0, 0.5 * np.ones_like(ranks), sent=0.5, carried=0.5 * ranks)
'''


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.thorough
def test_more_flops_than_the_peak_are_impossible(cli: Runner) -> None:
    """A peak that is given below what the step reaches: HFU would be 169 %."""
    assert "IMPOSSIBLE" not in cli(STEP).out
    lines = cli(f"{STEP} --peak-flops 300TFLOP/s").out.split("\n  dp ")[0]
    assert "IMPOSSIBLE: HFU above 100 %, more than the GPU's peak" in said(lines)
    table = said(cli(f"{STEP} --peak-flops 300TFLOP/s,989TFLOP/s").out)
    assert "IMPOSSIBLE in 1 of 2 cells: HFU above 100 %" in table


@pytest.mark.thorough
def test_an_own_algorithm_below_the_bound_is_impossible(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(HALF)
    line = "collective --topology ring --algorithm magic --N 8 --M 1GB --bandwidth 50GB/s"
    process = subprocess.run(
        [sys.executable, "-m", "sweeps", *line.split(), "--latency", "1us", "--formulas", "own.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, *rest = said(process.stdout).partition("IMPOSSIBLE: a time below its lower bound")
    assert rest[0]
    assert "0.572x the lower bound" in first
    assert "at the lower bound" not in process.stdout


def test_more_gpus_than_were_measured_are_doubted_at_once(cli: Runner) -> None:
    for line in (
        "collective --N 1e12 --M 1GiB",
        "collective --N 8,1000000 --M 1GiB",
        "analysis --model llama3-8b --gpus 1048576 --seq-len 4096",
    ):
        output = said(cli(line).out)
        position = output.index("GPUs are beyond the largest run that was measured (16,384)")
        assert position < 400
    assert "WARNING" not in cli("collective --N 16384 --M 1GiB").out


def test_measured_steps_above_the_peak_are_left_out(cli: Runner) -> None:
    """8,708 tokens a second of a 7B on a GPU of 312 TFLOP/s: 120 % of its peak."""
    head = (
        "row_id,source_id,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,global_batch_size,"
        "micro_batch_size,gpus,gpu_type,tp,pp,precision,tokens_per_s_per_gpu\n"
    )
    row = "{},mine,llama2-7b,32,4096,32,32,11008,32000,4096,64,1,8,dgx-a100,1,1,bf16,{}\n"
    Path("own.csv").write_text(head + row.format(1, 8708) + row.format(2, 4000))
    output = cli("validate own.csv --show rejected").out
    assert "Step time: 1 run" in output
    assert "impossible: 120 % of the GPUs' peak" in output
    Path("own.csv").write_text(head + row.format(1, 8708))
    assert "impossible: 120 % of the GPUs' peak" in cli.refused("validate own.csv")


@pytest.mark.thorough
def test_no_published_step_is_impossible(cli: Runner) -> None:
    assert "impossible" not in cli("validate training --kind step-time --verbose").out


@pytest.mark.thorough
def test_measured_operations_below_the_bound_are_impossible(cli: Runner) -> None:
    Path("own.csv").write_text(
        "collective,hardware,ranks,nodes,message_bytes,time_us\n"
        "all_reduce,dgx-h100,8,1,1073741824,4000\nall_reduce,dgx-h100,8,1,2147483648,4000\n"
    )
    Path("own.toml").write_text('constants.algorithm = "nccl"\nmeasured.table = "own.csv"\n')
    for line in ("validate own.csv", "run own.toml"):
        output = said(cli(line).out)
        assert "IMPOSSIBLE: a measured time is below the lower bound of the links" in output
        assert "8 ranks, 2 GiB: 4 ms" in output
    assert "IMPOSSIBLE" not in cli("validate nccl-collectives").out


@pytest.mark.thorough
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9))
def test_what_can_be_is_not_doubted(shares: list[float]) -> None:
    values = np.array(shares)
    ratios = 1.0 + values
    assert not [*impossible({"hfu": values, "mfu": values, "lower_bound_ratio": ratios})]
    assert not [*impossible({"hfu": np.nan, "lower_bound_ratio": np.nan})]
    assert [*impossible({"hfu": np.append(values, 1.01)})]
    assert [*impossible({"lower_bound_ratio": np.append(ratios, 0.99)})]
    assert not [*too_many(LARGEST)]


def test_masked_scores_take_mfu_above_1() -> None:
    (line,) = impossible({"hfu": 0.6, "mfu": 1.1})
    assert "masked scores count" in line


@pytest.mark.thorough
def test_plans_and_purchases_above_the_peak_are_impossible(cli: Runner) -> None:
    """Clocks four times as fast: HFU would be over 150 %."""
    plan = "plan --model llama3-8b -b 64 -s 8192 --clock-ratio"
    for line in (
        f"{plan} 4 --gpus 8",
        f"{plan} 4 --gpus 8,16",
        f"{plan} 4 --gpus 8 --inspect tp=1",
        "buy --model llama3-8b --hardware dgx-h100 --tokens 1T --days 30 -b 512 -s 4096 "
        "--clock-ratio 4",
    ):
        output = said(cli(line).out)
        position = output.index("HFU above 100 %, more than the GPU's peak")
        assert "IMPOSSIBLE" in output[:position]
        assert position < 200
    assert "IMPOSSIBLE" not in cli(f"{plan} 1 --gpus 8").out


@pytest.mark.thorough
def test_attention_of_a_million_tokens_is_below_the_peak(cli: Runner) -> None:
    """What was once said to reach an HFU of 103 %."""
    output = cli(
        "analysis --model llama3-8b --gpus 8 --framework torchtitan --cp 8 --cp-kind ring "
        "--zero-stage 3 --global-batch 1 --seq-len 1048576 --recompute full "
        "--attention-kernel cudnn"
    ).out
    assert "IMPOSSIBLE" not in output
