"""What commands refuse reads alike: the option as typed, the value as given, a line a fault."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sweeps.cli import run
from sweeps.cli.refusals import MOST, on_command_line
from sweeps.errors import BY_MEANING, nearest

GRID = "collective --gpus 16 --message-size 1GiB"
PLAN = "plan --model llama3-70b --gpus 512 --seq-len 8k"
STEP = "analysis --model llama3-70b --seq-len 4096"
# The command, and the lines that it says, each without what comes before it.
REFUSALS = (
    (f"{PLAN} --tp 3", "--tp 3: does not divide 512 GPUs; use 1, 2, 4, 8, .."),
    (f"{PLAN} --tp 4,8 --pp 3",
     "--tp 4,8, --pp 3: no layout of 512 GPUs has these degrees; use 1, 2, 4, 8, .."),
    (f"{PLAN} --ranks 8",
     "--gpus 512, --ranks 8: two names of one option with different values; give one"),
    (f"{PLAN} --zero 1", "--zero: no such option; did you mean --zero-stage?"),
    (f"{PLAN} --tensor-parallel 8", "--tensor-parallel: no such option; did you mean --tp?"),
    (f"{PLAN} --num-attention-heads 64",
     "--num-attention-heads: no such option; did you mean --num-heads?"),
    (f"{STEP} --gpus 64 --tp 7",
     "--tp 7: does not divide 64 GPUs; use 1, 2, 4, 8, ..",
     "--tp 7: does not divide the 64 attention heads; use 1, 2, 4, 8, ..",
     "--tp 7, --seq-len 4096 (sequence parallel 1): sequence not divisible by tp; tp must divide "
     "the sequence of a context-parallel rank with sequence parallelism"),
    ("analysis --model gpt3-175b --gpus 56 --tp 7",
     "--tp 7: does not divide the 96 attention heads; use 1, 2, 3, 4, ..",
     "--tp 7 (ffn size 49152): ffn not divisible; tp must divide the inner size of the MLP",
     "--tp 7 (seq len 2048, sequence parallel 1): sequence not divisible by tp; tp must divide "
     "the sequence of a context-parallel rank with sequence parallelism"),
    ("buy --model llama3-70b --tokens 15T --budget 20",
     "--budget 20: needs --days, too: a budget sets no deadline (20 means 20 USD; 20M for "
     "millions); such as 'sweeps buy --model llama3-70b --tokens 15T --days 90'"),
    ("plan --model llama3-8b --gpus 8 --objective cost --hardware mi300x",
     "--hardware mi300x: its file has no --price to rank plans by; give it, another machine, or "
     "another objective"),
    ("buy --model llama3-8b --tokens 1T --days 9 --hardware dgx-h100,hop-energy-notebook",
     "--hardware hop-energy-notebook: its file has no peak FLOP/s; a machine that trains"),
    (f"{STEP} --gpus 64 --tp 8 --dp 16",
     "--dp 16, --tp 8 (cp 1, pp 1): multiply to 128, not to 64 GPUs; use 1, 2, 4, 8, .."),
    ("analysis --model llama3-8b --gpus 8 --seq-len 8kb",
     "--seq-len 8kb: is not a number of tokens; write 8k or 8192"),
    ("analysis --model llama3-8b --gpus 8 --seq-len 4096 --recompute some",
     "--recompute some: unknown; known: block, full, full_early_stop, none, per_op, selective, "
     "uniform"),
    ("collective --gpus 16 --message-size 1,000,000",
     "--message-size 1,000,000: commas separate values; write 1000000"),
    ("collective --gpus 16 --message-size -1GiB",
     "--message-size -1GiB: out of range; must be 0 or more"),
    ("collective --gpus 16 --M 1GiB --style paper", "--style paper: is of figures; --plot, too"),
    ("run quickstart --no-plot --style paper", "--style paper: is of figures; --plot, too"),
    ("collective --gpus 16 --M 1GiB --plot --style papr",
     "--style papr: unknown; did you mean 'paper'?"),
    ("collective all_to_all --gpus 16 --M 1GiB",
     "all_to_all: follows no option; did you mean --collective all_to_all?"),
    ("analysis llama3-8b --gpus 8",
     "llama3-8b: follows no option; did you mean --model llama3-8b?"),
    ("plan --model llama3-8b of 8",
     "of: follows no option; sweeps COMMAND --help lists the options"),
    ("collective --gpus 16 --size 1GiB", "--size: no such option; did you mean --message-size?"),
    ("collective --gpus 16 --M 1GiB --algorithm PAT",
     "--algorithm PAT: NCCL's PAT isn't modelled: no times of it are published to fit them to; "
     "leave it out, or ring_path"),
    ("collective --gpus 16 --M 1GiB --algorithm Tree",
     "--algorithm Tree: is NCCL's name of it; 'tree_path'"),
    ("collective --gpus 16 --M 1GiB --algorithm ^nvls",
     "--algorithm ^nvls: all but it, in NCCL_ALGO; name those that may run, such as "
     "ring_path,tree_path"),
    ("collective --gpus 16 --M 1GiB --protocol LL128",
     "--protocol LL128: LL128 isn't modelled: no times of it are published to fit them to; leave "
     "it out: LL or Simple is taken"),
    ("collective --gpus 16 --M 1GiB --protocol 1",
     "--protocol 1: is computed: the faster of LL and Simple; leave it out; --show formulas has "
     "the times of both"),
    (f"{GRID} --topology fattree",
     "--topology fattree: unknown; a fat tree is hierarchical with --oversubscription (or switch, "
     "if non-blocking)"),
    (f"{GRID} --assert 'nosuch < 5'",
     "--assert 'nosuch < 5': unknown quantity nosuch; such as step_time, peak_memory, mfu, time or "
     "busbw"),
    (f"{GRID} --assert 'busbv < 5'",
     "--assert 'busbv < 5': unknown quantity busbv; did you mean 'busbw'?"),
    (f"{GRID} --csv --json", "--csv: can't be given with --json; one of the two"),
    (f"{GRID} --digits x", "--digits x: is not a number; write it in digits"),
    ("run nosuch",
     "nosuch: no such sweep; shipped: all-reduce-algorithms, bandwidth-what-if, big-sweep, .. "
     "('sweeps run' lists them)"),
    ("run network-choice --set foo.bar=7",
     "--set foo.bar=7: no such key; title, quantities, axes.NAME or constants.NAME"),
    ("validate x.csv",
     "x.csv: no such file or table; tables: training, memory, outside-fit, plans, "
     "nccl-collectives, running, context, userbuffers"),
    ("validate trainig", "trainig: no such table; did you mean 'training'?"),
    ("validate --kind both", "--kind both: unknown; step-time, memory, all"),
    ("buy --model llama3-70b --tokens 15T --days 30 --budget 20 --hardware gaudi3",
     "--budget 20: needs a price, and none is known of gaudi3; add --price 2.5 (USD per "
     "GPU-hour). 20 means 20 USD; write 20M"),
    ("calibrate nosuch.log",
     "nosuch.log: no such file; expects the output of nccl-tests (text, JSON or CSV)"),
    ("show nosuch",
     "nosuch: no such formula or algorithm; search: sweeps list --show rows | grep WORD"),
    ("info nosuch.nc", "nosuch.nc: no such file; name a netCDF file"),
    ("plot nosuch.nc", "nosuch.nc: no such file; name a netCDF file"),
    ("trace nosuch.json",
     "nosuch.json: no such file; a PyTorch profiler's trace: JSON with traceEvents, plain or "
     "gzipped"),
    ("catalog nosuch",
     "nosuch: no such machine, model, framework, preset or library; "
     "sweeps catalog lists all names"),
    ("schema nosuch", "nosuch: unknown; specs, hardware, models, records"),
    ("nosuch", "nosuch: no such command; sweeps --help lists them"),
    ("colective", "colective: no such command; did you mean 'collective'?"),
)  # fmt: skip


@pytest.mark.thorough_cases("buy", "trace", "analysis", "plan", every=3)
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case[0])
def test_a_refusal_names_what_was_typed(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    line, *said = case
    assert run(shlex.split(line)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [f"sweeps: {one}" for one in said]
    # No repr of what was typed, no internal name of it, no exponent.
    assert not re.search(r"\w = '|\d[eE][+-]?\d", told.err)


def test_a_short_name_is_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("h100", "H100", "dgx-h100"):
        assert run(shlex.split(f"{GRID} --hardware {name} --csv")) == 0
    first, *others = capsys.readouterr().out.split("\ncollective,")[0:1]
    assert not others
    assert "dgx-h100" in first or "4.59" in first


def test_at_most_some_faults_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = " ".join(f"--set no{number}.x=1" for number in range(MOST + 2))
    assert run(shlex.split(f"run quickstart {wrong}")) == 2
    *told, last = capsys.readouterr().err.splitlines()
    assert len(told) == MOST
    assert last == "sweeps: and 2 more"


def test_lines_of_files_stay_as_they_are() -> None:
    for line in (
        "spec.toml: ranks = '0': out of range; must be 1 or more",
        "constants.ranks = 0: out of range; must be 1 or more",
        "a training needs tokens; give --tokens",
    ):
        assert on_command_line(line) == line


def test_what_is_meant_exists() -> None:
    for word, (name, text) in BY_MEANING.items():
        assert nearest(word, [name, "other"]) == text
