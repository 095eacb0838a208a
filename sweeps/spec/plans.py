"""All parallel plans of a number of GPUs, as the columns of one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault, nearest

__all__ = ["ENUMERATED", "every_plan"]

# Degrees that an enumeration may vary; what they leave of the GPUs is data-parallel.
ENUMERATED = ("tp", "cp", "pp", "ep")
# More plans than this are a slip of the pen.
MOST_PLANS = 10**6


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, in order."""
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return tuple(sorted({*small, *(number // k for k in small)}))


def every_plan(
    degrees: Sequence[str], limits: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """Enumerate parallel plans."""
    faults = [
        fault("every", name, "no such degree", nearest(name, ENUMERATED))
        for name in degrees
        if name not in ENUMERATED
    ]
    if "world_size" not in limits:
        faults.append(fault("world_size", "(not given)", "needed by 'every'", "a number of GPUs"))
    if faults:
        raise InputError(faults)
    columns: dict[str, list[float]] = {name: [] for name in ("world_size", *degrees, "dp")}
    for world in limits["world_size"]:
        for row in _of_world(int(world), degrees, limits):
            for name, value in row.items():
                columns[name].append(value)
        if len(columns["dp"]) > MOST_PLANS:
            wrong = f"more than {MOST_PLANS:,} plans"
            raise InputError(fault("every", ",".join(degrees), wrong, "limit the degrees"))
    if not columns["dp"]:
        told = ", ".join(f"{v:g}" for v in limits["world_size"])
        wrong = "no degrees of those allowed divide it"
        raise InputError(fault("world_size", told, wrong, "other degrees, or another number"))
    return {name: np.array(values, dtype=np.float64) for name, values in columns.items()}


def _of_world(
    world: int, degrees: Sequence[str], limits: Mapping[str, NDArray[np.float64]]
) -> list[dict[str, float]]:
    allowed = {name: {int(v) for v in limits[name]} for name in degrees if name in limits}
    dense = [name for name in degrees if name != "ep"]
    rows = []
    for values in product(*(divisors(world) for _ in dense)):
        named = dict(zip(dense, values, strict=True))
        size = int(np.prod(values)) if values else 1
        fits = all(value in allowed.get(name, {value}) for name, value in named.items())
        if world % size or not fits:
            continue
        stage = world // named.get("pp", 1)
        experts = divisors(stage) if "ep" in degrees else (0,)
        for ep in experts:
            if ep and ep not in allowed.get("ep", {ep}):
                continue
            row: dict[str, float] = {"world_size": world, **named, "dp": world // size}
            rows.append(row | ({"ep": ep} if ep else {}))
    return rows
