"""What frameworks call things: their settings, and tables from their words to ours."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from overhead.frozen import frozen
from sweeps.spec.files import read_rows, shipped

MEGATRON = "megatron"


@frozen(slots=True)
class Key:
    """What is known of a setting."""

    value: bool  # Whether a value follows
    effect: str  # read, implied, small, none, not modelled or refused
    quantity: str = ""  # The quantity whose number it is, where it is one
    usual: float = math.nan  # Its number where the file is silent; NaN: none


@cache
def keys_of(framework: str) -> Mapping[str, Key]:
    """Return the settings that a framework knows."""
    return {
        row["argument"]: Key(
            row["value"] == "1",
            row["effect"],
            row.get("quantity") or "",
            float(row.get("usual") or "nan"),
        )
        for row in read_rows(shipped("launch") / f"{framework}.csv")
    }


@cache
def says_of(framework: str) -> list[dict[str, str]]:
    """Return which arguments of a framework say what of a plan."""
    return read_rows(shipped("launch") / f"{framework}-says.csv")


@cache
def terms_of(framework: str) -> Mapping[str, Any]:
    """Return what a framework calls things: tables from its words to ours."""
    return tomllib.loads((shipped("launch") / f"{framework}.toml").read_text(encoding="utf-8"))
