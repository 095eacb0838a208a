"""Numbers as people read them, in every command's text: one writer, and none of its slips."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.plots.style import number
from sweeps.spec.units import UNLIMITED, format_quantity, parse_quantity, plain
from tests.cli_runner import Runner

TRACES = Path(__file__).parent / "data" / "traces"
# What no report prints: an exponent, what isn't a number, a negative zero, a time that nothing
# measures, a rate of nothing.
NEVER = {
    "exponent": r"(?<![\w.])\d[\d.]*e[+-]?\d+",
    "not a number": r"\bnan\b(?!o)|\bnan%|\bnanx",
    "infinite": r"\binf\b",
    "negative zero": r"(?<![\w.])-0(\.0+)?(?![\d.])",
    "below a nanosecond": r"\d ?[pf]s\b",
    "rate without its noun": r"\d ?[kMGT]?/s\b",
}
TRAINING = "--model llama3-8b --hardware dgx-h100 --seq-len 8192 --global-batch 128"
MIXTURE = "--model deepseek-v3 --hardware dgx-h100 --gpus 512 --seq-len 4096 --global-batch 512"
SEED = "plan --params 70 --gpus 64 --memory 80 --batch-size 512 --seq-len 4096"
LINES = (
    "collective --N 16 --M 1GiB",
    "collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9",
    "collective --op p2p --N 1 --M 1GiB",
    "collective --op p2p --N 1,8,64 --M 1KiB,1GiB",
    "collective --op all --topology all --N 8 --M 64MiB",
    "collective --N 1e12 --M 1",
    "collective --N 16,64 --M 0,1MiB",
    f"analysis {TRAINING} --gpus 64",
    f"analysis {TRAINING} --gpus 64 --tp 1,2,4 --pp 1,16",
    f"analysis {MIXTURE} --ep 32 --pp 4",
    f"analysis {MIXTURE} --ep 1,32 --pp 4,8",
    "analysis --model llama3-8b --gpus 1000000000000 --seq-len 4096",
    "analysis --model nemotron-3-nano-30b-a3b --gpus 64 --seq-len 8192 --global-batch 64",
    "analysis --model llama3-70b --hardware tpu-v5p --gpus 64 --tp 8 --seq-len 4096",
    "analysis --params 70e9 --gpus 64",
    "analysis --model llama3-8b --gpus 8 --seq-len 1024 --global-batch 8 --price 2.5 "
    "--training-tokens 15T",
    SEED,
    f"{SEED} --moe --num-experts 64",
    f"{SEED} --moe --num-experts 7",
    "overlap --kind all --compute 50ms --comm 10ms",
    "overlap --kind all --compute 0ms --comm 10ms",
    "normal all_reduce --N 16 --hardware dgx-h100",
    "normal mfu --hardware dgx-a100",
    "tune --model Qwen/Qwen3-0.6B --max-tp-size 2",
    "validate memory --source simumax_b200",
    "validate userbuffers",
    "list --topology ring",
    "run models-on-machines --no-plot",
    "run network-choice --no-plot",
    "run all-reduce-algorithms --no-plot",
    "run quickstart --dry-run",
    *(f"trace {TRACES / name}" for name in ("control.json.gz", "nccl_data.json.gz")),
)


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return Runner(capsys)


@pytest.mark.parametrize("line", LINES)
def test_a_report_has_numbers_that_people_read(cli: Runner, line: str) -> None:
    done = cli(line, fine=False)
    assert done.code in (0, 1)
    for text in done.out.splitlines():
        # A constant, with its name, may be as small as picoseconds for a byte.
        for what, pattern in NEVER.items():
            found = re.search(pattern, text)
            assert not found or (what == "below a nanosecond" and " = " in text), (what, text)


def test_parts_that_take_nothing_are_left_out(cli: Runner) -> None:
    output = cli("collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9").out
    assert not re.search(r"^ +(inside|between) (nodes|pods) +0 s$", output, re.MULTILINE)
    assert "waiting for the host" not in cli("collective --N 16 --M 1GiB").out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("-1GiB", "'-1GiB': outside of its domain"),
        ("1,000,000", "'1,000,000': has commas, which are between values; write 1000000"),
        ("1,024", "write 1024"),
    ],
)
def test_messages_have_values_as_they_were_typed(cli: Runner, typed: str, said: str) -> None:
    done = cli(f"collective --N 16 --M {typed}", fine=False)
    assert done.code == 2
    assert said in done.err


@given(st.floats(allow_nan=True, allow_infinity=True), st.integers(2, 6))
@example(-0.0, 3)
@example(96.0, 2)
@example(-1e-300, 4)
@example(2.927e13, 4)
def test_a_plain_number_is_the_number(value: float, digits: int) -> None:
    text = plain(value, digits)
    for what, pattern in NEVER.items():
        assert not re.search(pattern, text) or (what == "exponent" and abs(value) < 1e-15)
    if math.isfinite(value) and abs(value) < 1e300:
        read = float(text.replace(",", ""))
        assert read == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits), abs=1e-320)


@given(st.floats(0.0, 1e25), st.sampled_from(["s", "byte", "byte s-1", "J", "1", "W"]))
def test_quantities_have_no_exponents(value: float, units: str) -> None:
    text = format_quantity(value, units)
    assert not re.search(NEVER["exponent"], text) or value < 1e-15
    assert "e+" not in number(value)


def test_what_is_unlimited_is_said_so_and_read_so() -> None:
    assert format_quantity(math.inf, "byte s-1") == UNLIMITED
    read = {"field": "x", "bare_is_si": True}
    assert parse_quantity("unlimited", "byte s-1", allow_infinite=True, **read) == math.inf  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is not finite"):
        parse_quantity("unlimited", "byte", **read)  # type: ignore[arg-type]
