"""Where along its reduced dimensions a result was found: as a coordinate's value, or as flags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.reduce_base import Task

__all__ = ["flag_words", "position"]

NOT_IN_FLAGS = re.compile(r"[^A-Za-z0-9_.+@-]")


def position(
    task: Task, dim: str, index: NDArray[np.int64], place: str
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return what stands at some indices along a dimension, and its metadata."""
    coordinate = task.coordinates.get(dim)
    values = None if coordinate is None else coordinate.values
    if coordinate is not None and values is not None:
        if values.dtype.kind not in "UOST":
            kept = ("units", "symbol")
            told = {name: coordinate.attrs[name] for name in kept if name in coordinate.attrs}
            found = np.where(index < 0, np.nan, values.astype(np.float64)[index])
            return found, {"long_name": place, **told}
        words = flag_words(["none", *(str(word) for word in values)])
        flags = np.arange(len(words), dtype=np.min_scalar_type(-len(words)))
        about = {"flag_values": flags, "flag_meanings": " ".join(words)}
        return (index + 1).astype(flags.dtype), {"long_name": place, **about}
    told = {"long_name": f"index along {place}", "units": "1"}
    comment = "Counted from 0; -1 where there is no value."
    return index.astype(np.int32), {**told, "comment": comment}


def flag_words(words: Sequence[str]) -> list[str]:
    """Return words as CF's ``flag_meanings`` may have them: without blanks, each once."""
    found: dict[str, None] = {}
    for word in words:
        plain = NOT_IN_FLAGS.sub("_", word) or "_"
        unique, number = plain, 2
        while unique in found:
            unique, number = f"{plain}_{number}", number + 1
        found[unique] = None
    return list(found)
