"""How far predictions are from measurements: records of rows, and errors gathered over groups."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.result import Field, Result, of_rows
from sweeps.spec.files import shipped
from sweeps.validate import SIZE_CLASSES, class_of, medians
from sweeps.validate.predict import Predictions
from sweeps.validate.training_rows import KINDS, Case, Cases, Skipped
from sweeps.wrapping import aligned

if TYPE_CHECKING:
    import xarray as xr

# Errors of rows that constants weren't fitted to, in specs/measured.
LEFT_OUT = "left-out.csv"
# What is told of assumptions, and of reasons, before the rest is counted alone.
MOST = 12


@dataclass(frozen=True, slots=True)
class Record:
    """One row with its prediction."""

    case: Case  # What was measured
    predicted: float  # In the quantity's canonical unit
    # The ends of the band in which the measured by the predicted, less 1, is said to lie; NaN where
    # nothing says so
    low: float = math.nan
    high: float = math.nan
    # Its error by constants fitted without the rows of its own model, and of its own source; NaN
    # where none was fitted to it
    without_model: float = math.nan
    without_source: float = math.nan

    @property
    def error(self) -> float:
        """Predicted by measured, less 1."""
        return self.predicted / self.case.measured - 1.0

    @property
    def within(self) -> bool | None:
        """Whether the measurement lies inside the band; None where there is none.

        Where constants were fitted to its source, those without it predict.
        """
        seen = math.isnan(self.without_source)
        error = self.error if seen else self.without_source
        if math.isnan(self.low):
            return None
        return self.low <= 1.0 / (1.0 + error) - 1.0 <= self.high

    def fields(self) -> dict[str, Any]:
        """Return it for programs: names with their units, one flat record."""
        case = self.case
        return {
            "row": case.name,
            "source": case.source,
            "class": case.group,
            "kind": case.kind,
            "model": case.model,
            "hardware": case.labels.get("hardware", ""),
            "framework": case.labels.get("framework", ""),
            "quantity": case.quantity,
            "units": VOCABULARY[case.quantity].units,
            "measured": case.measured,
            "predicted": self.predicted,
            "error": self.error,
            "error_without_model": self.without_model,
            "error_without_source": self.without_source,
            "error_band_low": self.low,
            "error_band_high": self.high,
            "assumed": " ".join(case.assumed),
            "source_ref": case.reference,
        }


@dataclass(frozen=True, slots=True)
class Score:
    """The errors of some rows."""

    rows: int  # How many
    mape: float  # Mean size of the relative errors
    median: float  # Of the errors' sizes
    p90: float  # Of the errors' sizes
    bias: float  # Mean of the signed errors
    without_source: float  # Mean size without the own source; NaN without any
    within: float  # Share of the rows with a band whose measurement lies inside it; NaN without any


def records_of(cases: Cases, predictions: Predictions) -> tuple[list[Record], list[Skipped]]:
    """Lay predictions beside cases."""
    records = []
    skipped = list(cases.skipped)
    left = left_out_errors()
    for index, case in enumerate(cases.cases):
        reason = predictions.reasons.get(index)
        if reason is None:
            value = float(predictions.values[index])
            ends = float(predictions.low[index]), float(predictions.high[index])
            model, source = left.get((case.kind, case.source, case.name), (math.nan, math.nan))
            records.append(Record(case, value, *ends, model, source))
        else:
            skipped.append(Skipped(case.name, case.source, case.kind, reason))
    return records, skipped


@cache
def left_out_errors() -> dict[tuple[str, str, str], tuple[float, float]]:
    """Read the errors of steps without their own model, and their own source, by source and row."""
    text = (shipped("measured") / LEFT_OUT).read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {
        ("step_time", row["source_id"], row["row_id"]): (
            float(row["without_model"]),
            float(row["without_source"]),
        )
        for row in rows
    }


def score(records: Sequence[Record]) -> Score:
    """Gather the errors of some rows."""
    errors = np.array([record.error for record in records])
    sizes = np.abs(errors)
    inside = [within for record in records if (within := record.within) is not None]
    held = [
        abs(held_error) for record in records if not math.isnan(held_error := record.without_source)
    ]
    return Score(
        len(records),
        float(np.mean(sizes)),
        float(np.median(sizes)),
        float(np.percentile(sizes, 90.0)),
        float(np.mean(errors)),
        float(np.mean(held)) if held else math.nan,
        float(np.mean(inside)) if inside else math.nan,
    )


def scores_by(records: Iterable[Record], by: str) -> dict[str, Score]:
    """Gather errors by class, of which a row has several, by source, or by what trained."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        case = record.case
        for key in case.classes if by == "class" else (getattr(case, by),):
            groups.setdefault(key, []).append(record)
    return {key: score(groups[key]) for key in sorted(groups)}


def skipped_lines(skipped: Sequence[Skipped], *, every: bool = False) -> Iterator[str]:
    """Yield why rows weren't predicted: each reason with its count and its sources."""
    counts = Counter(case.reason for case in skipped)
    sources: dict[str, dict[str, None]] = {}
    for skipped_case in skipped:
        sources.setdefault(skipped_case.reason, {})[skipped_case.source] = None
    # What can't be is told first, however seldom.
    order = sorted(
        counts.most_common(), key=lambda counted: not counted[0].startswith("impossible")
    )
    shown = order[: None if every else MOST]
    for reason, count in shown:
        yield f"  {count:>4}  {reason} ({', '.join(sources[reason])})"
    more = len(counts) - len(shown)
    if more:
        left = sum(counts.values()) - sum(count for _, count in shown)
        yield f"  {left:>4}  for {more} other reasons: --show rejected"


# Errors of a sweep beside measurements, as rows for a terminal.

_NUMBERS = ("points", "without_prediction", "median_error", "median_signed_error")


def error_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return the errors of predictions beside measurements, by source and size of message."""
    if "relative_error" not in dataset or "measured_time" not in dataset:
        message = "relative_error: not in this dataset; a spec with [measured] gives it"
        raise InputError(message)
    wanted = dataset["relative_error"].dims
    others = [str(dim) for dim in wanted if dim not in ("case", "message_bytes")]
    errors = dataset["relative_error"].transpose(*others, "case", "message_bytes").to_numpy()
    measured = dataset["measured_time"].transpose("case", "message_bytes").to_numpy()
    tables = dataset.coords["table"].to_numpy()
    labels = [_values(dataset, dim) for dim in others]
    classes = class_of(dataset["message_bytes"].to_numpy().astype(np.float64))
    rows = []
    for table in dict.fromkeys(tables.tolist()):
        cases = tables == table
        for cell in np.ndindex(*errors.shape[: len(others)]):
            group = {dim: values[k] for dim, values, k in zip(others, labels, cell, strict=True)}
            for index, size_class in enumerate(SIZE_CLASSES):
                chosen = np.ix_(cases, classes == index)
                count = int(np.count_nonzero(~np.isnan(measured[chosen])))
                if count:
                    row = {"table": table, **group, "size_class": size_class}
                    rows.append({**row, **_errors(errors[cell][chosen], count)})
    return rows


def error_answer(dataset: xr.Dataset) -> Iterator[str]:
    """Yield how far predictions are off in the middle, a line each way that was predicted."""
    wanted = dataset["relative_error"].dims
    others = [str(dim) for dim in wanted if dim not in ("case", "message_bytes")]
    errors = np.abs(dataset["relative_error"].transpose(*others, ...).to_numpy())
    for cell in np.ndindex(*errors.shape[: len(others)]):
        finite = errors[cell][np.isfinite(errors[cell])]
        if finite.size:
            names = [str(_values(dataset, dim)[k]) for dim, k in zip(others, cell, strict=True)]
            who = (
                " ".join(f"{dim} {name}" for dim, name in zip(others, names, strict=True)) or "all"
            )
            ends = [_summary_percent(float(value), "") for value in np.quantile(finite, (0.5, 0.9))]
            points = f"{finite.size:,} points"
            yield f"{who}: median error {ends[0]}, P90 {ends[1]} ({points})"


def error_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield rows of errors as a table for a terminal."""
    if not rows:
        return
    keys = [key for key in rows[0] if key not in _NUMBERS]
    holes = any(row["without_prediction"] for row in rows)
    table = [[*keys, "points", *(["not predicted"] if holes else []), "median error", "signed"]]
    for row in rows:
        counts = [f"{row['points']}", *([f"{row['without_prediction']}"] if holes else [])]
        ends = [
            _summary_percent(row["median_error"], ""),
            _summary_percent(row["median_signed_error"], "+"),
        ]
        table.append([*(f"{row[key]}" for key in keys), *counts, *ends])
    yield from aligned(table, left=len(keys), indent="")


def _summary_percent(value: float, sign: str) -> str:
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


# Measured rows with their predictions as a dataset: one dimension, the rows.

_UNITS = {"step_time": "step_time", "memory": "peak_memory"}
_OTHER_ROWS = "NaN where the row is of something else."
_ERRORS = (
    ("error", "relative_error", "relative error of the prediction"),
    ("error_without_model", "error_without_model", "error if the rows of its model aren't fitted"),
    (
        "error_without_source",
        "error_without_source",
        "error if the rows of its source aren't fitted",
    ),
    ("error_band_low", "error_band_low", "measured by predicted, less 1: low end"),
    ("error_band_high", "error_band_high", "measured by predicted, less 1: high end"),
)
_TEXTS = {
    "row": "row of the table",
    "source": "source of the measurement",
    "class": "class of the run",
    "kind": "what was measured",
    "model": "model",
    "hardware": "machine",
    "framework": "framework",
    "quantity": "quantity that was predicted",
    "assumed": "unknown settings",
    "source_ref": "where the measurement stands",
}


def result_of(records: Sequence[Record], attrs: Mapping[str, str]) -> Result:
    """Return rows as a dataset; what was measured of one kind alone is NaN in others' rows."""
    rows = [record.fields() for record in records]
    fields = [
        Field(name, f"{name}_of_run" if name == "class" else name, words)
        for name, words in _TEXTS.items()
    ]
    for kind in KINDS:
        if any(row["kind"] == kind for row in rows):
            words = "time of a step" if kind == "step_time" else "memory of a GPU"
            units = VOCABULARY[_UNITS[kind]].units
            fields += [
                Field(name, name, f"{of} {words}", units, comment=_OTHER_ROWS)
                for of in ("measured", "predicted")
                for name in (f"{of}_{kind}",)
            ]
    fields += [Field(record, name, words, "1") for record, name, words in _ERRORS]
    of_kind = [
        {**row, **{f"{of}_{row['kind']}": row[of] for of in ("measured", "predicted")}}
        for row in rows
    ]
    return replace(of_rows(of_kind, fields, attrs), rows=rows)


def error_result(rows: Sequence[Mapping[str, Any]], attrs: Mapping[str, str]) -> Result:
    """Return errors by source and size of message as a dataset of rows."""
    words = {"points": "measurements with a prediction", "without_prediction": "others"}
    fields = [
        Field(
            name,
            name,
            words.get(name, name.replace("_", " ")),
            "" if isinstance(value, str) else "1",
        )
        for name, value in rows[0].items()
    ]
    return of_rows(rows, fields, attrs)
