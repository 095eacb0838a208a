"""What commands refuse reads alike: the option as typed, the value as given, a line a fault."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path

import pytest

from sweeps.cli import run
from sweeps.cli.refusals import MOST, on_command_line
from sweeps.cli.typed import as_typed
from sweeps.errors import BY_MEANING, fault, nearest
from tests.refusals import Refused, one
from tests.tables import examples

GRID = "collective --gpus 16 --message-size 1GiB"
PLAN = "plan --model llama3-70b --gpus 512 --seq-len 8k"
STEP = "analysis --model llama3-70b --seq-len 4096"
# The command, and the lines that it says, each without what comes before it.
REFUSALS = examples(__file__, "refusals", GRID=GRID, PLAN=PLAN, STEP=STEP)


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
    assert told.err.splitlines() == [f"sweeps: {fault}" for fault in said]
    # No repr of what was typed, no internal name of it, no exponent.
    assert not re.search(r"\w = '|\d[eE][+-]?\d", told.err)


@pytest.mark.thorough_cases("gaudi3")
@pytest.mark.parametrize("case", examples(__file__, "further"), ids=lambda case: case[0])
def test_a_refusal_says_all_that_is_wrong(refused: Refused, case: list[str]) -> None:
    line, *faults = case
    patterns = [".*".join(re.escape(part) for part in fault.split("{..}")) for fault in faults]
    assert re.fullmatch("\n".join(patterns), "\n".join(refused(line)))


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


def test_a_fault_keeps_its_parts_until_it_is_told() -> None:
    """No value is read again from a text: not one with commas, quotes or a colon."""
    lists = fault(("tp", "pp"), ("4, 8", "it's: 3"), "no layout", "others")
    assert lists == "tp, pp = '4, 8; it's: 3': no layout; others"
    names = {"tp": "--tp", "pp": "-p", "micro_batch_size": "--mbs"}
    assert on_command_line(as_typed(lists, names, {})) == (
        "--tp '4, 8', -p 'it's: 3': no layout; others"
    )
    value = fault("tp", "micro_batch_size", "is text", "a number")
    assert on_command_line(as_typed(value, names, {})) == (
        "--tp micro_batch_size: is text; a number"
    )
    assert on_command_line(as_typed(copy.deepcopy(lists), names, {}), ["--tp"]) == (
        "--tp '4, 8' (p it's: 3): no layout; others"
    )


def test_what_is_meant_exists() -> None:
    for word, (name, text) in BY_MEANING.items():
        assert nearest(word, [name, "other"]) == text


def test_a_grid_of_ten_to_the_thirteen_cells(refused: Refused, tmp_path: Path) -> None:
    line = "collective --topology ring --N 2:100001:+1 --M 1:1e9:log100000 --latency 1e-7:1:log1000"
    for output in ("", "--output x.nc", "--csv"):
        (found,) = refused(f"{line} {output}")
        assert found.startswith("axes = 'latency 1000 x ")
        assert re.search(r"e\+13 cells, [.\d]+e?\+?\d* TB; at most 1e\+11 cells", found), found
        assert "ask for a reduction" in found
    assert list(tmp_path.iterdir()) == []
    many = "collective --topology ring --N 2:10001:+1 --M 1:1e9:log10000"
    one(
        refused(many),
        "axes = '100,000,000 cells'",
        "too many to print",
        "--output FILE.nc",
        "reduction",
    )
