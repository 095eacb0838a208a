"""What can't be, or nobody has seen: rates above the peak, times below their bound, GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweeps.spec.units import format_quantity

if TYPE_CHECKING:
    import xarray as xr

ROUNDED = 1e-9


class Limit(NamedTuple):
    """The end of what a quantity can be, and what lies beyond it."""

    name: str
    least: float
    most: float
    words: str


LIMITS = (
    Limit(
        "lower_bound_ratio",
        1.0,
        np.inf,
        "a time below its lower bound, which no schedule on these links beats: an own "
        "formula, or a value that was given, is wrong",
    ),
    Limit(
        "hfu",
        0.0,
        1.0,
        "HFU above 100 %, more than the GPU's peak: a value that was given is wrong",
    ),
    Limit(
        "causal_mfu",
        0.0,
        1.0,
        "MFU above 100 % without masked scores, more than the GPU's peak: a value that was "
        "given is wrong",
    ),
)
# By convention, not by nature: PaLM's MFU counts what a causal kernel leaves out.
MASKED = "MFU is above 100 % for masked scores count in it: MFU without them, and HFU, are not"
# GPUs of the largest run among published ones that predictions are laid beside.
LARGEST = 16_384.0


def beyond(limit: Limit, values: Any) -> NDArray[np.bool_]:
    """Return where values can't be; where there are none they aren't impossible."""
    array = np.asarray(values, dtype=np.float64)
    below = array < limit.least * (1.0 - ROUNDED)
    return np.asarray(below | (array > limit.most * (1.0 + ROUNDED)))


def impossible(values: Mapping[str, object]) -> Iterator[str]:
    """Yield what can't be of quantities' values, numbers or arrays of cells: a line each."""
    kinds = set()
    for limit in LIMITS:
        if limit.name not in values:
            continue
        where = beyond(limit, values[limit.name])
        # HFU counts all that MFU does, and is told alone.
        if not where.any() or (limit.name == "causal_mfu" and "hfu" in kinds):
            continue
        kinds.add(limit.name)
        cells = f" in {int(where.sum()):,} of {where.size:,} cells" if where.size > 1 else ""
        yield f"IMPOSSIBLE{cells}: {limit.words}"
    if "mfu" in values and not kinds & {"hfu", "causal_mfu"}:
        above = np.asarray(values["mfu"], dtype=np.float64) > 1.0 + ROUNDED
        yield from [MASKED] if above.any() else []


def impossible_rows(dataset: xr.Dataset, bound: xr.DataArray) -> Iterator[str]:
    """Yield measured times of operations that are below what the links can do."""
    pair = _aligned(dataset["measured_time"], bound)
    measured, least_time = np.broadcast_arrays(*pair)
    where = measured < least_time * (1.0 - ROUNDED)
    if not where.any():
        return
    ratio = np.where(where, measured / np.where(where, least_time, 1.0), np.inf)
    case, size = np.unravel_index(int(np.argmin(ratio)), where.shape)[:2]
    name = str(dataset["case"].values[case])
    message = format_quantity(float(dataset["message_bytes"].values[size]), "byte")
    least = format_quantity(float(least_time[case, size].max()), "s")
    time = format_quantity(float(measured[case, size].max()), "s")
    count = int(where.any(axis=tuple(range(2, where.ndim))).sum())
    rows = f"{count:,} measured times are" if count > 1 else "a measured time is"
    yield (
        f"IMPOSSIBLE: {rows} below the lower bound of the links: {name}, {message}: {time}, where "
        f"{least} is the least; a figure of the machine, or the row, is wrong"
    )


def _aligned(*arrays: xr.DataArray) -> Iterator[NDArray[Any]]:
    """Yield values with the case first, the message size second, and what else there is."""
    first = ("case", "message_bytes")
    dims = (*first, *dict.fromkeys(d for array in arrays for d in array.dims if d not in first))
    for data in arrays:
        missing = [dim for dim in dims if dim not in data.dims]
        yield data.expand_dims(missing).transpose(*dims).to_numpy()


def too_many(gpus: Any) -> Iterator[str]:
    """Yield what is to be said of more GPUs than any measured run has."""
    most = float(np.max(gpus, initial=0.0))
    if most > LARGEST:
        yield (
            f"WARNING: {format_quantity(most, '1')} GPUs are beyond the largest run that was "
            f"measured ({LARGEST:,.0f}): no error is known there"
        )
