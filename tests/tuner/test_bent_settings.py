"""Bent settings of userbuffers: findings or one line of refusal, and never anything else."""

from __future__ import annotations

import random
from pathlib import Path

from sweeps.tuner.userbuffers import KEYS, LAYERS, METHODS
from sweeps.tuner.validate import LEVELS, Setting, validate_file
from tests.bending import bent, of_seeds, read_or_faults

JUNK = [
    *"{ } [ ] : &a *a - null true 1e999 -3 é ' \" | 2026-01-01 0x1f ring_exchange [[[[ ---".split(),
    "<<: *a",
    "!!python/object/apply:os.system [ls]",
    "9" * 400,
    "\x00",
    "\t",
    "? ",
    "# x",
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


@of_seeds(60, 1060)
def test_bent(seeds: range, tmp_path: Path) -> None:
    path = tmp_path / "ub.yaml"
    for seed in seeds:
        draw = random.Random(seed)
        path.write_text(bent(whole(draw), draw, JUNK), encoding="utf-8")
        size = draw.choice([None, 2, 3, 8])
        setting = Setting(size, 4096, draw.choice(["bf16", "fp8", "mxfp8"]))
        findings, faults = read_or_faults(validate_file, path, setting)
        assert findings or faults
        assert all(path.name in line for line in faults)
        for finding in findings or ():
            assert finding.level in LEVELS
            assert finding.text
            assert "\n" not in finding.text
