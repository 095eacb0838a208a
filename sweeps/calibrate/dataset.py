"""Measured rows with their predictions as a dataset: one dimension, the rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.calibrate.calibration import Calibration
from sweeps.calibrate.records import row_records
from sweeps.engine.layout import Block, Column, Layout

__all__ = ["layout_of_calibration"]

_TEXTS = {
    "log": "log of the measurement",
    "collective": "collective operation",
    "placement": "whether the operation's buffers are two or one",
    "size_class": "class of message size (small below 256 KiB, medium below 16 MiB)",
    "algorithm": "algorithm of the predicted time",
    "falls_out_of": "what the row falls out of; empty where it doesn't",
}
_NUMBERS = {
    "line": ("line in the log", "1"),
    "ranks": ("number of ranks", "1"),
    "nodes": ("number of nodes", "1"),
    "message_bytes": ("message size", VOCABULARY["message_bytes"].units),
}
# The variable's name, the record's field, its words and unit.
_VALUES = (
    ("measured_time", "measured_time_s", "measured time of the operation", "s"),
    ("data_sheet_time", "data_sheet_time_s", "time predicted with the machine's file", "s"),
    ("predicted_time", "predicted_time_s", "time predicted with the fitted constants", "s"),
    ("band_low", "band_low_s", "lower end of the band about the fit", "s"),
    ("band_high", "band_high_s", "upper end of the band about the fit", "s"),
    ("measured_busbw", "measured_busbw", "measured bus bandwidth", "byte s-1"),
    ("error_before", "error_before", "relative error with the machine's file", "1"),
    ("error_after", "error_after", "relative error with the fitted constants", "1"),
)


def layout_of_calibration(
    found: Calibration, attrs: Mapping[str, str]
) -> tuple[Layout, list[Block]]:
    """Lay rows out as a dataset."""
    records = row_records(found)
    coordinates = []
    for name, words in _TEXTS.items():
        texts = np.array([str(one[name]) for one in records], dtype=np.str_)
        coordinates.append(Column(name, ("row",), texts.dtype, {"long_name": words}, texts))
    for name, (words, units) in _NUMBERS.items():
        numbers = np.array([float(one[name]) for one in records])
        about = {"long_name": words, "units": units}
        coordinates.append(Column(name, ("row",), numbers.dtype, about, numbers))
    variables = []
    values: dict[str, NDArray[np.float64]] = {}
    for name, key, words, units in _VALUES:
        about = {"long_name": words, "units": units}
        variables.append(Column(name, ("row",), np.dtype(np.float64), about))
        values[name] = np.array([float(one[key]) for one in records])
    layout = Layout({"row": len(records)}, tuple(coordinates), tuple(variables), attrs)
    region = (slice(0, len(records)),)
    return layout, [Block(name, region, column) for name, column in values.items()]
