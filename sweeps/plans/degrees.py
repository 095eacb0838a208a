"""Every split of a number of GPUs into degrees."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault
from sweeps.spec.plans import every_plan

__all__ = ["Columns", "every_split"]

Columns = dict[str, NDArray[np.float64]]


def every_split(
    world_size: int, limits: Mapping[str, NDArray[np.float64]], *, experts: bool
) -> Columns:
    """Enumerate the splits of a number of GPUs."""
    names = ("tp", "cp", "pp", *(("ep",) if experts else ()))
    if not experts and "ep" in limits and 1.0 not in limits["ep"]:
        allowed = "leave it out, or a model with experts"
        raise InputError(fault("ep", _told(limits["ep"]), "the model has no experts", allowed))
    own = {name: values for name, values in limits.items() if name in names}
    try:
        columns = every_plan(names, {**own, "world_size": np.array([float(world_size)])})
    except InputError as error:
        raise InputError(_contradiction(world_size, limits) or error.faults) from None
    if "dp" in limits:
        columns = _rows(columns, np.isin(columns["dp"], limits["dp"]))
    if experts:
        columns = _with_etp(columns, limits.get("etp"))
    if not len(columns["dp"]):
        raise InputError(_contradiction(world_size, limits))
    return columns


def _told(values: NDArray[np.float64]) -> str:
    return ",".join(f"{value:g}" for value in values)


def _contradiction(world_size: int, limits: Mapping[str, NDArray[np.float64]]) -> list[str]:
    """Say that the degrees that are allowed never make up the GPUs."""
    stated = {name: _told(limits[name]) for name in ("tp", "cp", "pp", "dp", "ep", "etp")
              if name in limits}  # fmt: skip
    if not stated:
        return []
    wrong = f"never multiply, with what is free, to {world_size} GPUs"
    allowed = f"divisors of {world_size} whose product divides it, or another number of GPUs"
    return [fault(", ".join(stated), "; ".join(stated.values()), wrong, allowed)]


def _rows(columns: Columns, kept: NDArray[np.bool_]) -> Columns:
    return {name: values[kept] for name, values in columns.items()}


def _with_etp(columns: Columns, allowed: NDArray[np.float64] | None) -> Columns:
    """Add the experts' own tensor parallelism: each row once for each degree."""
    if allowed is None:
        whole = {**columns, "etp": np.ones_like(columns["tp"])}
        like = _rows({**columns, "etp": columns["tp"].copy()}, columns["tp"] > 1.0)
        parts = [whole, like]
    else:
        parts = [{**columns, "etp": np.full_like(columns["tp"], value)} for value in allowed]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
