"""What is taken where nothing is said: one table, a row a name; what was fitted says to what."""

from __future__ import annotations

import csv
import math
import tomllib
from pathlib import Path

import pytest

from overhead.quantity import VOCABULARY

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "specs" / "training" / "usual.csv"
ROWS = list(csv.DictReader(TABLE.open(encoding="utf-8", newline="")))
# Shares and counts that no formula takes by name.
OF_NO_FORMULA = {"machine", "products", "attention", "framework", "kernels", "run"}


def test_a_name_stands_once() -> None:
    assert len({row["name"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_row_says_what_it_must(row: dict[str, str]) -> None:
    name, takers = row["name"], set(row["of"].split())
    if name in VOCABULARY:
        default = VOCABULARY[name].default
        assert (row["value"] == "") == (default is not None), "one place has the value"
        value = float(row["value"] or default or 0.0)
        assert math.isnan(value) == (row["kind"] == "unknown")
        assert row["kind"] == "unknown" or not VOCABULARY[name].outside(value)
    else:
        assert takers <= OF_NO_FORMULA
    assert row["kind"] in ("specification", "measured", "assumed", "unknown")
    assert row["source"] or takers & {"step", "communication", "memory"}
    if row["kind"] == "measured":
        assert row["rows"]
        assert row["error"]


def test_an_installation_has_the_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert shipped[TABLE.relative_to(ROOT).as_posix()] == f"overhead/machines/{TABLE.name}"
