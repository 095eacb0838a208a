"""What a screen says of launch files: within its lines, and the whole of it with ``--show``."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.cli.room import MOST_OF_NOTES, first_notes, height, in_room
from tests.cli_runner import Runner

DATA = Path(__file__).parents[1] / "data" / "launch"
FILES = tuple(
    (
        "hf-deepspeed/run.sh titan-toml/llama3_8b.toml megatron-mla-moe/run.slurm "
        "megatron-llama-70b/train.sh maxtext-yml/llama3_70b.yml"
    ).split()
)


@pytest.fixture
def sweeps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("COLUMNS", "80")
    return Runner(capsys)


@pytest.mark.thorough_cases("hf-", "llama-70b", "maxtext")
@pytest.mark.parametrize("name", FILES)
def test_a_screen_has_forty_lines(sweeps: Runner, name: str) -> None:
    machine = "" if name.startswith("maxtext") else "--hardware dgx-h100"
    gpus = "--gpus 64" if name.startswith("titan") else ""
    line = f"analysis --from {DATA / name} {machine} {gpus}"
    short = sweeps(line).out.splitlines()
    assert len(short) <= 40
    assert max(map(len, short)) <= 80
    assert short[-1].startswith("More: --show parts,") or short[-2].startswith("More: ")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["megatron-llama-70b/train.sh", "hf-deepspeed/run.sh"])
def test_a_plan_s_screen_has_forty_lines(sweeps: Runner, name: str) -> None:
    lines = sweeps(f"plan --from {DATA / name} --hardware dgx-h100 --gpus 64").out.splitlines()
    assert len(lines) <= 40
    assert any("its own plan" in line for line in lines)


def test_every_setting_with_show_defaults(sweeps: Runner) -> None:
    """What the command line rules over is said, and not taken."""
    path = DATA / "titan-toml" / "llama3_8b.toml"
    line = f"analysis --from {path} --hardware dgx-h100 --gpus 64 --tp 4 --show defaults"
    text = sweeps(line).out
    assert "  pp = 1: llama3_8b.toml, line 30: parallelism.pipeline_parallel_degree\n" in text
    assert "\n  tp = " not in text
    assert "  without effect on cost: job.dump_folder, job.description," in text
    assert "--tp 4 rules over parallelism.tensor_parallel_degree 2" in " ".join(text.split())


def test_notes_that_have_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = first_notes([f"a note of {index}: {'word ' * 20}" for index in range(9)], "defaults")
    assert lines[-1] == "  (5 more notes: --show defaults)"
    assert height(lines) <= MOST_OF_NOTES
    assert first_notes(["one", "two"], "defaults") == ["  (one)", "  (two)"]


def test_the_longest_group_is_cut_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups = {"Rates": ["a" * 30] * 6, "Cost": ["b" * 10] * 3}
    assert len(in_room(groups, 10)) == 4
    assert in_room(groups, 2) == [
        f"Rates: {'a' * 30}; {'a' * 30}; 4 more",
        f"Cost: {'; '.join(['b' * 10] * 3)}",
    ]
    assert len(in_room(groups, 0)) == 2
