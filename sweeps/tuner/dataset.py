"""A study of overlap's gain as a dataset in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import overhead  # noqa: F401  (declares the quantities)
from overhead.quantity import VOCABULARY
from sweeps.engine.layout import Column
from sweeps.overlap.arrays import label_column, number_column, store
from sweeps.tuner.benefit import Study, benefit
from sweeps.tuner.predict import ASSUMPTIONS

__all__ = ["write_study"]

QUANTITIES = ("sequential_time", "overlapped_time", "overlap_speedup")


def write_study(
    study: Study, stated: Mapping[str, str], given: Mapping[str, Any], output: Path
) -> dict[str, Any]:
    """Write a study as netCDF."""
    values = benefit(study)
    dims = study.dims
    names = [rates.name for rates in study.hardware]
    coordinates = [label_column("hardware", ("hardware",), names, "machine")]
    for dim, own in zip(dims[1:], study.axes.values(), strict=True):
        coordinates.append(number_column(dim, (dim,), own))
    for dim in ("sms", "bandwidth", "best_matmul_flops", "memory_bandwidth", "latency"):
        numbers = [rates[dim] for rates in study.hardware]
        origins = "; ".join(dict.fromkeys(rates.figures[dim][1] for rates in study.hardware))
        coordinates.append(number_column(dim, ("hardware",), numbers, origins))
    comment = "Assumes that " + "; ".join(ASSUMPTIONS) + "."
    variables = [
        Column(name, dims, np.dtype(np.float64), {**VOCABULARY[name].attrs(), "comment": comment})
        for name in QUANTITIES
    ]
    store(
        coordinates,
        variables,
        values,
        title=study.title,
        summary=study.summary,
        stated={"tp_overlap": dict(stated)},
        given=given,
        output=output,
    )
    return values
