"""Measured rows with their predictions as a dataset: one dimension, the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.engine.layout import Block, Column, Layout
from sweeps.validate.scores import Record
from sweeps.validate.training_rows import KINDS

__all__ = ["layout_of_rows"]

_UNITS = {"step_time": "step_time", "memory": "peak_memory"}
_TEXTS = {
    "row": "row of the table",
    "source": "source of the measurement",
    "class": "class of the run",
    "kind": "what was measured",
    "model": "model",
    "hardware": "machine",
    "framework": "software that trains",
    "quantity": "quantity that was predicted",
    "assumed": "settings that the row doesn't state",
    "source_ref": "where the measurement stands",
}


def layout_of_rows(
    records: Sequence[Record], attrs: Mapping[str, str]
) -> tuple[Layout, list[Block]]:
    """Lay rows out as a dataset."""
    fields = [record.fields() for record in records]
    coordinates = []
    for name, words in _TEXTS.items():
        own = f"{name}_of_run" if name == "class" else name
        texts = np.array([str(one[name]) for one in fields], dtype=np.str_)
        coordinates.append(Column(own, ("row",), texts.dtype, {"long_name": words}, texts))
    kinds = np.array([record.case.kind for record in records])
    pairs = {
        "measured": np.array([record.case.measured for record in records]),
        "predicted": np.array([record.predicted for record in records]),
    }
    variables: list[Column] = []
    values: dict[str, NDArray[np.float64]] = {}
    for kind in KINDS:
        if not (kinds == kind).any():
            continue
        declared = VOCABULARY[_UNITS[kind]]
        words = "time of a step" if kind == "step_time" else "memory of a GPU"
        for name, column in pairs.items():
            about = {"long_name": f"{name} {words}", "units": declared.units}
            about["comment"] = "NaN where the row is of something else."
            variables.append(_column(f"{name}_{kind}", about))
            values[f"{name}_{kind}"] = np.where(kinds == kind, column, np.nan)
    for name, words, shares in (
        ("relative_error", "relative error of the prediction", [r.error for r in records]),
        ("error_band", "error that the prediction is said to have", [r.band for r in records]),
    ):
        variables.append(_column(name, {"long_name": words, "units": "1"}))
        values[name] = np.array(shares)
    layout = Layout({"row": len(records)}, tuple(coordinates), tuple(variables), attrs)
    region = (slice(0, len(records)),)
    return layout, [Block(name, region, column) for name, column in values.items()]


def _column(name: str, about: Mapping[str, str]) -> Column:
    return Column(name, ("row",), np.dtype(np.float64), dict(about))
