"""Bent launch files: they are read or refused with a line, and never anything else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sweeps.launch.arguments import Override
from tests.bending import bent, of_seeds, read_or_faults
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


def look_at(path: str) -> None:
    reading, _ = read_or_faults(read_launch, path, GIVEN)
    if reading is not None:
        assert set(reading.origins) >= set(reading.given)
        assert [*reading.lines()]


@of_seeds(20, 1000)
@pytest.mark.parametrize("name", FILES)
def test_bent(name: str, seeds: range, tmp_path: Path) -> None:
    whole = DATA / name
    text = whole.read_text()
    for neighbour in whole.parent.iterdir():
        (tmp_path / neighbour.name).write_bytes(neighbour.read_bytes())
    path = tmp_path / whole.name
    functions = ["", ":llama3_70b_fsdp32_tp8", ":llama3_70b_cp4"] if path.suffix == ".py" else [""]
    for seed in seeds:
        path.write_text(bent(text, random.Random(seed), JUNK))
        for function in functions:
            look_at(f"{path}{function}")
