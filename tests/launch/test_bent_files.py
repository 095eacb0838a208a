"""Bent launch files: they are read or refused with a line, and never anything else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.launch.arguments import Override
from sweeps.launch.setting import Reading
from tests.bending import bent
from tests.launch import read_launch
from tests.tables import examples

DATA = Path(__file__).parents[1] / "data" / "launch"
FILES = (
    "megatron-llama-70b/train.sh megatron-mla-moe/run.slurm hf-deepspeed/run.sh "
    "hf-deepspeed/ds_z3_offload.json titan-toml/llama3_8b.toml titan-recipe/my_runs.py "
    "bridge-yaml/overrides.yaml maxtext-yml/llama3_70b.yml"
).split()
GIVEN = {"world_size": Override("--gpus", "64")}
JUNK = [*examples(__file__, "junk"), "9" * 400, *examples(__file__, "junk_more")]


def read_or_refused(path: Path) -> None:
    functions = ["", ":llama3_70b_fsdp32_tp8", ":llama3_70b_cp4"] if path.suffix == ".py" else [""]
    for function in functions:
        reading, faults = tried(f"{path}{function}")
        if reading is None:
            assert faults
            assert all(line.strip() and "\n" not in line for line in faults)
        else:
            assert set(reading.origins) >= set(reading.given)
            assert [*reading.lines()]


def tried(path: str) -> tuple[Reading | None, list[str]]:
    try:
        return read_launch(path, GIVEN), []
    except InputError as error:
        return None, [*error.faults]


def bend(name: str, seeds: range, folder: Path) -> None:
    whole = DATA / name
    text = whole.read_text()
    for beside in whole.parent.iterdir():
        (folder / beside.name).write_bytes(beside.read_bytes())
    path = folder / whole.name
    for seed in seeds:
        path.write_text(bent(text, random.Random(seed), JUNK))
        read_or_refused(path)


@pytest.mark.parametrize("name", FILES)
def test_bent(name: str, tmp_path: Path) -> None:
    bend(name, range(20), tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_bent_a_thousand_times(name: str, tmp_path: Path) -> None:
    bend(name, range(20, 1000), tmp_path)
