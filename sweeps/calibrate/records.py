"""What a calibration tells programs: rows as records, and everything as one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sweeps.calibrate.calibration import Calibration, Verdict
from sweeps.calibrate.constants import CONSTANTS, LAUNCH
from sweeps.calibrate.rates import bus_factor
from sweeps.validate.sizes import SIZE_CLASSES, class_of

__all__ = ["row_records", "whole_record"]


def row_records(found: Calibration) -> list[dict[str, Any]]:
    """Return a record a row: what was measured and predicted."""
    rows, fit = found.rows, found.fit
    names = list(SIZE_CLASSES)
    classes = class_of(rows.message_bytes)
    band = np.exp(3.0 * found.scatter[classes])
    odd = {one.row: one.reason for one in found.outliers}
    records = []
    for place in range(len(rows)):
        case = found.cases[int(rows.case[place])]
        size, time = float(rows.message_bytes[place]), float(rows.time[place])
        records.append(
            {
                "log": case.test.name,
                "line": int(rows.line[place]),
                "collective": case.operation,
                "placement": str(rows.placement[place]),
                "ranks": case.ranks,
                "nodes": case.nodes,
                "message_bytes": size,
                "size_class": names[int(classes[place])],
                "algorithm": str(fit.algorithms[place]),
                "measured_time_s": time,
                "measured_busbw": bus_factor(case.operation, case.ranks) * size / time,
                "data_sheet_time_s": float(fit.before[place]),
                "predicted_time_s": float(fit.after[place]),
                "band_low_s": float(fit.after[place] / band[place]),
                "band_high_s": float(fit.after[place] * band[place]),
                "error_before": float(fit.before[place] / time - 1.0),
                "error_after": float(fit.after[place] / time - 1.0),
                "falls_out_of": odd.get(place, ""),
            }
        )
    return records


def whole_record(found: Calibration) -> dict[str, Any]:
    """Return all that a calibration found as one record; what doesn't exist is None."""
    fit = found.fit
    constants = [
        {
            "name": name,
            "units": one.units,
            "data_sheet": None if name == LAUNCH else _finite(fit.base[name]),
            "fitted": fit.values[name] if name in fit.fitted else None,
            "standard_deviation": _finite(fit.deviation.get(name, math.nan)),
            "ratio": None
            if name == LAUNCH or name not in fit.fitted
            else fit.values[name] / fit.base[name],
            "kept_because": fit.kept.get(name),
        }
        for name, one in CONSTANTS.items()
    ]
    return {
        "hardware": found.machine.name,
        "algorithm": found.request.algorithm,
        "constants": constants,
        "errors": [
            {name: getattr(score, name) for name in score.__slots__} for score in found.scores
        ],
        "verdicts": [_verdict(one) for one in found.verdicts],
        "wrong": list(found.wrong),
        "notes": [
            {"log": case.test.name, "note": note} for case in found.cases for note in case.notes
        ],
        "rows": row_records(found),
    }


def _verdict(verdict: Verdict) -> Mapping[str, Any]:
    case = verdict.case
    return {
        "log": case.test.name,
        "collective": case.operation,
        "ranks": case.ranks,
        "nodes": case.nodes,
        "verdict": list(verdict.words),
        "published": [
            {name: getattr(one, name) for name in one.__slots__} for one in verdict.comparisons
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
