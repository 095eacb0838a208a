"""Files of the catalogue that formulas and their defaults come from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def read_shipped(kind: str, name: str) -> dict[str, Any]:
    """Read a file of the catalogue: a copy of it in an installation, or the one beside the code."""
    package, file = Path(__file__).parent, f"{name}.toml"
    places = (package / "machines" / file, package.parent / "specs" / kind / file)
    path = next((one for one in places if one.exists()), None)
    if path is None:
        message = f"{file} is missing from the installation of overhead: install again"
        raise FileNotFoundError(message)
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def error_bands() -> Mapping[str, Any]:
    """Return the bands of every class of predictions, and what tells classes apart."""
    return read_shipped("measured", "bands")
