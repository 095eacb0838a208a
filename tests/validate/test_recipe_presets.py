"""What the guide says of runs of recipes: their error by what a question states of them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import sweeps
from sweeps.spec.catalog import presets_of
from tests.cli_runner import Runner

ROOT = Path(__file__).parents[2]
SOURCE, OWN = "mcore_moe_recipes", "mcore-2026-06"
STATED = (
    "model hardware gpus tp pp vpp ep global_batch_size micro_batch_size seq_len precision".split()
)


def runs() -> list[dict[str, str]]:
    lines = (ROOT / "specs/measured/outside-fit.csv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [row for row in rows if row["source_id"] == SOURCE and row["step_time_s"]]


def mean_error(preset: str) -> float:
    """Return the mean error (%) of steps of which no more than `STATED` and a preset is said."""
    errors = []
    for row in runs():
        given = {name: row[name] for name in STATED if row[name]}
        named = {"preset": preset} if preset else {}
        step = sweeps.analysis(**given, etp=1, **named).dataset["step_time"]
        errors.append(abs(float(step) / float(row["step_time_s"]) - 1.0))
    return 100.0 * float(np.mean(errors))


@pytest.mark.thorough
def test_the_guide_has_the_errors_of_recipes_with_and_without_presets(cli: Runner) -> None:
    guide = " ".join((ROOT / "sweeps/docs/accuracy.md").read_text(encoding="utf-8").split())
    said = re.search(
        r"the mean error is (\d+) % with model, machine, degrees and batch alone, (\d+) to (\d+) % "
        r"with the presets of Megatron-Bridge.* and (\d+) % with all settings\. "
        rf"With `--preset {OWN}` it is (\d+) %",
        guide,
    )
    assert said
    bridge = [mean_error(name) for name in presets_of() if name.startswith("bridge-")]
    table = cli(f"validate outside-fit --source {SOURCE}").out
    all_settings = re.search(rf"{SOURCE} +{len(runs())} +([\d.]+) ", table)
    assert all_settings
    actual = (mean_error(""), min(bridge), max(bridge), float(all_settings[1]), mean_error(OWN))
    assert tuple(map(int, said.groups())) == tuple(map(round, actual))
