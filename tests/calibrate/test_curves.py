"""Measured rows as curves over the message size: each row is a cell, and no cell is two."""

from __future__ import annotations

from typing import Any

import numpy as np

from sweeps.calibration.curves import FIELDS, layout_of_rows
from sweeps.result import Result
from sweeps.store.netcdf import to_dataset

TEXTS = {"log": "a.log", "collective": "all_reduce", "size_class": "small", "algorithm": "ring"}


def row(size: float, placement: str = "out-of-place", line: int = 1, **others: Any) -> Any:
    numbers = {field.record: 0.5 for field in FIELDS if field.units}
    known = {**numbers, **TEXTS, "ranks": 8, "nodes": 1, "falls_out_of": ""}
    return {**known, "message_bytes": size, "placement": placement, "line": line, **others}


def dataset(rows: list[Any], cases: list[int]) -> Any:
    found = Result(layout_of_rows(rows, cases, {"title": "curves"}))
    return to_dataset(found.bare, found.blocks)


def test_each_row_is_a_cell() -> None:
    rows = [
        row(2048.0, line=1, measured_time_s=1.0),
        row(1024.0, line=2, measured_time_s=2.0),
        row(1024.0, "in-place", line=3, measured_time_s=3.0, falls_out_of="slow"),
        row(4096.0, line=4, measured_time_s=4.0, log="b.log", ranks=16),
    ]
    actual_dataset = dataset(rows, [0, 0, 0, 1])
    assert dict(actual_dataset.sizes) == {"curve": 3, "message_bytes": 3}
    assert actual_dataset["message_bytes"].values.tolist() == [1024.0, 2048.0, 4096.0]
    nan = np.nan
    times = [[2.0, 1.0, nan], [3.0, nan, nan], [nan, nan, 4.0]]
    np.testing.assert_array_equal(actual_dataset["measured_time"], times)
    np.testing.assert_array_equal(
        actual_dataset["line"], [[2, 1, nan], [3, nan, nan], [nan, nan, 4]]
    )
    assert actual_dataset["log"].values.tolist() == ["a.log", "a.log", "b.log"]
    assert actual_dataset["placement"].values.tolist() == [
        "out-of-place",
        "in-place",
        "out-of-place",
    ]
    assert actual_dataset["ranks"].values.tolist() == [8, 8, 16]
    assert actual_dataset["falls_out_of"].values.tolist() == [
        ["", "", ""],
        ["slow", "", ""],
        ["", "", ""],
    ]
    assert actual_dataset["algorithm"].values.tolist()[0] == ["ring", "ring", ""]


def test_a_size_measured_again_is_a_curve_more() -> None:
    rows = [row(1024.0, line=line, measured_time_s=float(line)) for line in (1, 2, 3)]
    actual_dataset = dataset([*rows, row(2048.0, line=4, measured_time_s=4.0)], [0, 0, 0, 0])
    assert actual_dataset["repeat"].values.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(
        actual_dataset["measured_time"], [[1.0, 4.0], [2.0, np.nan], [3.0, np.nan]]
    )
    assert np.isfinite(actual_dataset["measured_time"]).sum() == 4
