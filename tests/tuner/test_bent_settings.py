"""Bent settings of userbuffers: findings or one line of refusal, and never anything else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.tuner.userbuffers import KEYS, LAYERS, METHODS
from sweeps.tuner.validate import LEVELS, Finding, Setting, validate_file
from tests.bending import bent

JUNK = [
    "{",
    "}",
    "[",
    "]",
    ":",
    "&a",
    "*a",
    "<<: *a",
    "!!python/object/apply:os.system [ls]",
    "-",
    "null",
    "true",
    "1e999",
    "9" * 400,
    "-3",
    "é",
    "\x00",
    "\t",
    "'",
    '"',
    "|",
    "? ",
    "# x",
    "2026-01-01",
    "0x1f",
    "ring_exchange",
    "[[[[",
    "---",
]


def whole(draw: random.Random) -> str:
    lines = []
    for layer in draw.sample(LAYERS, draw.randint(1, 6)):
        lines.append(f"{layer}:")
        for key in draw.sample(list(KEYS), draw.randint(1, 6)):
            value = (
                draw.choice(METHODS) if key == "method" else draw.choice(["0", "1", "16", "true"])
            )
            lines.append(f"  {key}: {value}")
    return "\n".join(lines) + "\n"


def tried(path: Path, setting: Setting) -> tuple[list[Finding], list[str]]:
    try:
        return validate_file(path, setting), []
    except InputError as error:
        return [], [*error.faults]


def bend(seeds: range, path: Path) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        path.write_text(bent(whole(draw), draw, JUNK), encoding="utf-8")
        size = draw.choice([None, 2, 3, 8])
        found, faults = tried(path, Setting(size, 4096, draw.choice(["bf16", "fp8", "mxfp8"])))
        assert found or faults
        assert all(path.name in line and "\n" not in line for line in faults)
        assert all(one.level in LEVELS and one.text and "\n" not in one.text for one in found)


def test_bent(tmp_path: Path) -> None:
    bend(range(60), tmp_path / "ub.yaml")


@pytest.mark.thorough
def test_bent_a_thousand_times(tmp_path: Path) -> None:
    bend(range(60, 1060), tmp_path / "ub.yaml")
