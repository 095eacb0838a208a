"""Numbers as people read them, in every command's text: one writer, and none of its slips."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overhead.quantity import VOCABULARY
from sweeps.bands import change_by, money, percent
from sweeps.cli.numbers import shown
from sweeps.errors import InputError
from sweeps.plots.style import number
from sweeps.spec.units import UNLIMITED, format_quantity, parse_quantity, plain
from tests.calibrate.simulated import timed, write_logs
from tests.cli_runner import Done, Runner
from tests.tables import examples
from tests.traces.make import GEMM, NCCL, call, kernel, launched, step, write

TRACES = Path(__file__).parent / "data" / "traces"
# What no report prints: an exponent, what isn't a number, a negative zero, a time that nothing
# measures, a rate of nothing.
NEVER = examples(__file__, "never")
TRAINING = "--model llama3-8b --hardware dgx-h100 --seq-len 8192 --global-batch 128"
MIXTURE = "--model deepseek-v3 --hardware dgx-h100 --gpus 512 --seq-len 4096 --global-batch 512"
SEED = "plan --params 70 --gpus 64 --memory 80 --batch-size 512 --seq-len 4096"
TRAINED = (
    "--model llama3-8b --hardware dgx-h100 --seq-len 4096 --global-batch 32 --recompute none --cp 1"
)
CATALOGUED = ("dgx-h100", "hop-energy-notebook", "llama3-8b", "deepseek-v3", "nccl", "megatron-lm")
LINES = (
    "collective --N 16 --M 1GiB",
    "collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9",
    "collective --op p2p --N 1 --M 1GiB",
    "collective --op p2p --N 1,8,64 --M 1KiB,1GiB",
    "collective --op all --topology all --N 8 --M 64MiB",
    "collective --N 1e12 --M 1",
    "collective --N 16,64 --M 0,1MiB",
    "plan --model llama3-8b --gpus 64 --batch-size 64 --seq-len 1M",
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
    "overlap --compute 50ms,60ms --comm 10ms,0ms",
    f"plan {TRAINED} --gpus 16",
    f"plan {TRAINED} --gpus 16,32",
    f"plan {TRAINED} --gpus 16 --sensitivity",
    "buy --model qwen3-0.6b --tokens 10B --days 30 --hardware dgx-h100 --global-batch 256",
    "buy --model llama3-8b --tokens 15T --days 0.01 --hardware dgx-h100",
    "collective --N 16 --M 1GiB --sensitivity",
    f"analysis {TRAINING} --gpus 64 --sensitivity",
    "hops",
    "hops --dp 1 --tp 1",
    "hops --model llama3-70b --hardware tpu-v5p --dp 16 --verbose",
    *(f"catalog {name}" for name in CATALOGUED),
    "normal mfu",
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
def cli(cli: Runner, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("COLUMNS", "80")
    return cli


@pytest.mark.thorough_cases("--params", "line2", "buy", "mfu", "run", "control", "hops", every=2)
@pytest.mark.parametrize("line", LINES)
def test_a_report_has_numbers_that_people_read(cli: Runner, line: str) -> None:
    check_numbers(cli(line, fine=False))


def check_numbers(result: Done) -> None:
    assert result.code in (0, 1)
    assert result.out
    for text in result.out.splitlines():
        if " is read as " in text:
            continue  # it repeats a value as it was typed
        for name, pattern in NEVER.items():
            match = re.search(pattern, text)
            assert not match or (name == "below a nanosecond" and of_a_constant(text)), (name, text)


def of_a_constant(text: str) -> bool:
    """Whether a line names a constant, which may be as small as picoseconds for a byte."""
    return " = " in text or text.split(maxsplit=1)[0] in VOCABULARY


# Traces without steps, launches, computing or communication, or cut off within.
TRACED = {
    "no steps": [kernel(GEMM, 0, 10)],
    "communication only": [kernel(NCCL, 0, 10)],
    "nothing takes time": [kernel(GEMM, 5, 0), kernel(NCCL, 5, 0)],
    "picoseconds": [kernel(GEMM, 0, 1e-6), kernel(NCCL, 0, 1e9)],
    "launches without kernels, a step without its end": [
        step(1, 0, 100),
        *launched(GEMM, 10, 20, 50, 7, 1),
        kernel(NCCL, 30, 40, 20),
        call(80, 9),
    ],
}


@pytest.mark.parametrize("kind", TRACED)
@pytest.mark.parametrize("mode", ["full", "hta"])
def test_what_traces_lack_is_no_number(cli: Runner, kind: str, mode: str) -> None:
    write(Path("whole.json"), TRACED["no steps"] + [kernel(NCCL, 5, 10)])
    write(Path("t.json"), TRACED[kind])
    check_numbers(cli(f"trace t.json --mode {mode}", fine=False))
    check_numbers(cli(f"trace t.json whole.json --mode {mode}", fine=False))


def test_a_calibration_has_numbers_that_people_read(cli: Runner) -> None:
    groups = [("all_reduce", 8, 1)]
    logs = write_logs(Path(), timed(groups, {"channel_efficiency": 0.62}, noise=0.001), groups)
    check_numbers(cli(f"calibrate {shlex.join(logs)}"))


def strings(value: object) -> Iterator[str]:
    """Yield the texts of a table, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def test_texts_of_the_catalogue_have_no_exponents() -> None:
    """What commands print of it: notes and sources, which are prose; values aren't."""
    for path in sorted((Path(__file__).parents[1] / "specs").rglob("*.toml")):
        for text in strings(tomllib.loads(path.read_text(encoding="utf-8"))):
            assert " " not in text or not re.search(NEVER["exponent"], text), (path, text)


@pytest.mark.parametrize(("dollars", "text"), examples(__file__, "money_has_three_digits"))
def test_money_has_three_digits(dollars: float, text: str) -> None:
    assert money(dollars) == text


@pytest.mark.parametrize(
    ("fraction", "text", "change"),
    [
        *examples(__file__, "percent_has_a_space_and_no_more_digits_than_count"),
        (math.nan, "-", "-"),
    ],
)
def test_percent_has_a_space_and_no_more_digits_than_count(
    fraction: float, text: str, change: str
) -> None:
    """Rule 3 of screens: no decimals from 10 % on, one below, never a negative zero."""
    assert (percent(fraction), change_by(fraction)) == (text, change)


def test_digits_of_a_column_of_percentages_are_as_many() -> None:
    assert [percent(share, 1) for share in (0.524, 0.08, -1e-5)] == ["52.4 %", "8.0 %", "0.0 %"]
    assert [change_by(share, 1) for share in (0.004, -0.028)] == ["+0.4 %", "-2.8 %"]


@pytest.mark.parametrize(("name", "text"), examples(__file__, "powers"))
def test_memory_is_in_powers_of_ten_and_messages_in_powers_of_two(name: str, text: str) -> None:
    assert shown(name, 2.0**30) == text


def test_what_cannot_be_bought_says_why_at_once(cli: Runner) -> None:
    runner = cli("buy --tokens 15T --days 0.01 --model llama3-8b --hardware dgx-h100", fine=False)
    assert runner.code == 1
    answer = " ".join(runner.out.split("\n  llama3-8b on")[0].split())
    assert answer.startswith("no machine can: 0.01 days are below the 0.0689 days of 131,072 GPUs")


@pytest.mark.thorough
def test_a_formula_keeps_the_name_of_what_nobody_states(cli: Runner) -> None:
    plan = "--model llama3-8b --gpus 8 --tp 4 --hardware gaudi3"
    derivation = cli(f"analysis {plan} --show formulas").out
    assert "3*intra_energy_per_bit + 0*" in derivation
    assert not re.search(r"\bnan\b", derivation)


def test_parts_that_take_nothing_are_left_out(cli: Runner) -> None:
    output = cli("collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9").out
    assert not re.search(r"^ +(inside|between) (nodes|pods) +0 s$", output, re.MULTILINE)
    assert "host wait" not in cli("collective --N 16 --M 1GiB").out


@given(st.floats(allow_nan=True, allow_infinity=True), st.integers(2, 6))
@example(-0.0, 3)
@example(96.0, 2)
@example(-1e-300, 4)
@example(2.927e13, 4)
def test_a_plain_number_is_the_number(value: float, digits: int) -> None:
    text = plain(value, digits)
    for name, pattern in NEVER.items():
        assert not re.search(pattern, text) or (name == "exponent" and abs(value) < 1e-15)
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
