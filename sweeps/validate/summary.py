"""Errors of a sweep beside measurements, as rows for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault, nearest
from sweeps.validate.sizes import SIZE_CLASSES, class_of, medians

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["error_lines", "error_rows"]

_NUMBERS = ("points", "without_prediction", "median_error", "median_signed_error")


def error_rows(dataset: xr.Dataset, by: Sequence[str] = ("table",)) -> list[dict[str, Any]]:
    """Return the errors of predictions beside measurements, by source and size of message."""
    if "relative_error" not in dataset or "measured_time" not in dataset:
        message = "relative_error: not in this dataset; a spec with [measured] gives it"
        raise InputError(message)
    known = [str(name) for name, one in dataset.coords.items() if one.dims == ("case",)]
    faults = [
        fault("by", name, "no such column of the cases", nearest(name, known))
        for name in by
        if name not in known
    ]
    if faults:
        raise InputError(faults)
    wanted = dataset["relative_error"].dims
    others = [str(dim) for dim in wanted if dim not in ("case", "message_bytes")]
    errors = dataset["relative_error"].transpose(*others, "case", "message_bytes").to_numpy()
    measured = dataset["measured_time"].transpose("case", "message_bytes").to_numpy()
    columns = [dataset.coords[name].to_numpy().tolist() for name in by]
    keys = list(zip(*columns, strict=True)) or [()] * len(measured)
    labels = [_values(dataset, dim) for dim in others]
    classes = class_of(dataset["message_bytes"].to_numpy().astype(np.float64))
    rows = []
    for key in dict.fromkeys(keys):
        cases = np.array([one == key for one in keys])
        for place in np.ndindex(*errors.shape[: len(others)]):
            group = {dim: values[k] for dim, values, k in zip(others, labels, place, strict=True)}
            for index, size_class in enumerate(SIZE_CLASSES):
                chosen = np.ix_(cases, classes == index)
                count = int(np.count_nonzero(~np.isnan(measured[chosen])))
                if count:
                    row = {**dict(zip(by, key, strict=True)), **group, "size_class": size_class}
                    rows.append({**row, **_errors(errors[place][chosen], count)})
    return rows


def error_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield rows of errors as a table for a terminal."""
    if not rows:
        return
    keys = [key for key in rows[0] if key not in _NUMBERS]
    holes = any(row["without_prediction"] for row in rows)
    table = [[*keys, "points", *(["not predicted"] if holes else []), "median error", "signed"]]
    for row in rows:
        counts = [f"{row['points']}", *([f"{row['without_prediction']}"] if holes else [])]
        ends = [_percent(row["median_error"], ""), _percent(row["median_signed_error"], "+")]
        table.append([*(f"{row[key]}" for key in keys), *counts, *ends])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        words = [text.ljust(width) for text, width in zip(line, widths, strict=True)][: len(keys)]
        numbers = [text.rjust(width) for text, width in zip(line, widths, strict=True)][len(keys) :]
        yield "  ".join([*words, *numbers])


def _percent(value: float, sign: str) -> str:
    return "-" if math.isnan(value) else f"{100.0 * value:{sign}.0f} %"


def _values(dataset: xr.Dataset, dim: str) -> list[Any]:
    if dim in dataset.coords:
        return list(dataset.coords[dim].to_numpy().tolist())
    return list(range(dataset.sizes[dim]))


def _errors(errors: NDArray[np.float64], measured: int) -> dict[str, Any]:
    size, count = medians(np.abs(errors).ravel())
    signed, _ = medians(errors.ravel())
    return {
        "points": int(count),
        "without_prediction": measured - int(count),
        "median_error": float(size),
        "median_signed_error": float(signed),
    }
