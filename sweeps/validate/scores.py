"""How far predictions are from measurements: records of rows, and errors gathered over groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.validate.predict import Predictions
from sweeps.validate.training_rows import Case, Cases, Skipped

__all__ = ["Record", "Score", "records_of", "score", "score_lines", "scores_by", "skipped_lines"]

# What is told of assumptions, and of reasons, before the rest is counted alone.
MOST = 12


@dataclass(frozen=True, slots=True)
class Record:
    """One row with its prediction."""

    case: Case  # What was measured
    predicted: float  # In the quantity's canonical unit
    # The error that the prediction is said to have; NaN where nothing says so
    band: float = math.nan

    @property
    def error(self) -> float:
        """Predicted by measured, less 1."""
        return self.predicted / self.case.measured - 1.0

    @property
    def within(self) -> bool | None:
        """Whether the measurement lies inside the band; None where there is none."""
        return None if math.isnan(self.band) else abs(self.error) <= self.band

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
            "error_band": self.band,
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
    within: float  # Share of the rows with a band whose measurement lies inside it; NaN without any

    def fields(self) -> dict[str, float]:
        """Return it by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Group:
    records: list[Record] = field(default_factory=list)


def records_of(cases: Cases, predictions: Predictions) -> tuple[list[Record], list[Skipped]]:
    """Lay predictions beside cases."""
    found = []
    skipped = list(cases.skipped)
    for place, case in enumerate(cases.cases):
        reason = predictions.reasons.get(place)
        if reason is None:
            values = predictions.values[place], predictions.bands[place]
            found.append(Record(case, *map(float, values)))
        else:
            skipped.append(Skipped(case.name, case.source, case.kind, reason))
    return found, skipped


def score(records: Sequence[Record]) -> Score:
    """Gather the errors of some rows."""
    errors = np.array([record.error for record in records])
    sizes = np.abs(errors)
    inside = [within for record in records if (within := record.within) is not None]
    return Score(
        len(records),
        float(np.mean(sizes)),
        float(np.median(sizes)),
        float(np.percentile(sizes, 90.0)),
        float(np.mean(errors)),
        float(np.mean(inside)) if inside else math.nan,
    )


def scores_by(records: Iterable[Record], by: Sequence[str]) -> dict[tuple[str, ...], Score]:
    """Gather errors by what rows have in common."""
    groups: dict[tuple[str, ...], _Group] = {}
    for record in records:
        fields = record.fields()
        key = tuple(str(fields[name]) for name in by)
        groups.setdefault(key, _Group()).records.append(record)
    return {key: score(group.records) for key, group in groups.items()}


def score_lines(heading: str, scores: Mapping[str, Score]) -> Iterator[str]:
    """Yield errors as a table for a terminal."""
    titles = [heading, "rows", "MAPE", "median", "p90", "bias", "in band"]
    table = [titles]
    for name, one in scores.items():
        shares = [_percent(value) for value in (one.mape, one.median, one.p90)]
        within = "-" if math.isnan(one.within) else f"{100.0 * one.within:.0f} %"
        table.append([name, f"{one.rows}", *shares, _percent(one.bias, "+"), within])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        rest = (text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))
        yield "  ".join([line[0].ljust(widths[0]), *rest])


def _percent(value: float, sign: str = "") -> str:
    return f"{100.0 * value:{sign}.1f} %"


def skipped_lines(skipped: Sequence[Skipped], *, every: bool = False) -> Iterator[str]:
    """Yield why rows weren't predicted: each reason with its count and its sources."""
    counts = Counter(one.reason for one in skipped)
    sources: dict[str, dict[str, None]] = {}
    for one in skipped:
        sources.setdefault(one.reason, {})[one.source] = None
    shown = counts.most_common(None if every else MOST)
    for reason, count in shown:
        yield f"  {count:>4}  {reason} ({', '.join(sources[reason])})"
    more = len(counts) - len(shown)
    if more:
        left = sum(counts.values()) - sum(count for _, count in shown)
        yield f"  {left:>4}  for {more} other reasons: --verbose tells them"
