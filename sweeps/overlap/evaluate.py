"""A request's cells: values, and why some of them can't be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.evaluation import Evaluation
from sweeps.engine.layout import Block
from sweeps.overlap.request import Case, Request

__all__ = ["FAULTS", "blocks", "cell_of", "evaluate", "faults_of", "records"]

Floats = NDArray[np.float64]

# Cells computed at a time.
BLOCK_CELLS = 1 << 17

FAULTS: dict[str, tuple[int, str]] = {
    "ranks_odd": (1, "two chunks at a time need an even number of ranks"),
    "no_multiprocessor_left": (2, "communication must leave a multiprocessor: num_sm below sms"),
    "micro_batches_not_multiple_of_stages": (
        4,
        "interleaving needs a multiple of the stages as micro-batches",
    ),
    "virtual_stages_need_interleaving": (8, "other schedules have one virtual stage a rank"),
    "shorter_than_possible": (16, "both at once can't be shorter than the longer of them"),
}
# Rounding of what was measured.
SLACK = 1e-9


def faults_of(case: Case, evaluation: Evaluation) -> Any:
    """Return flags of why cells can't be, of the shape to which what they depend on broadcasts."""
    found: Any = 0
    held = evaluation.given
    if case.mechanism == "ring_exchange_aggregate":
        odd = (held["ranks"] % 2 == 1) & (held["ranks"] > 1)
        found = found + odd * FAULTS["ranks_odd"][0]
    if case.mechanism.startswith("bulk") and "num_sm" in held and "sms" in held:
        none = held["num_sm"] >= held["sms"]
        found = found + none * FAULTS["no_multiprocessor_left"][0]
    if case.mechanism == "pipeline":
        # Nothing depends on it where compute and communication are given beside the stages.
        several = np.asarray(held.get("virtual_stages", 1.0)) > 1
        if case.labels["schedule"] == "interleaved":
            uneven = several & (held["micro_batches"] % held["pp"] != 0)
            found = found + uneven * FAULTS["micro_batches_not_multiple_of_stages"][0]
        else:
            found = found + several * FAULTS["virtual_stages_need_interleaving"][0]
    if "overlapped_time" in held:
        longer = evaluation["ideal_overlapped_time"]
        short = held["overlapped_time"] < longer * (1.0 - SLACK)
        found = found + short * FAULTS["shorter_than_possible"][0]
    return found


def evaluate(
    request: Request, case: Case, region: Sequence[slice] | None = None
) -> dict[str, NDArray[Any]]:
    """Evaluate a case over a region of the numeric axes."""
    parts = tuple(region or [slice(None)] * len(request.axes))
    held: dict[str, Any] = {**case.defaults, **request.constants}
    shape = []
    for place, (name, values) in enumerate(request.axes.items()):
        own = values[parts[place]]
        shape.append(len(own))
        held[name] = own.reshape((-1,) + (1,) * (len(request.axes) - place - 1))
    evaluation = Evaluation({name: held[name] for name in held if name in case.used}, case.labels)
    with np.errstate(all="ignore"):
        status = np.broadcast_to(faults_of(case, evaluation), shape).astype(np.int32)
        found: dict[str, NDArray[Any]] = {}
        for name in request.outputs:
            value = np.broadcast_to(evaluation[name], shape)
            found[name] = np.where(status == 0, value, np.nan)
    return {**found, "status": status}


def _regions(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield regions of at most so many cells, which cover a grid in C order."""
    inner = len(shape)
    size = 1
    while inner and size * shape[inner - 1] <= most:
        inner -= 1
        size *= shape[inner]
    if not inner:
        yield tuple(slice(0, n) for n in shape)
        return
    step = max(most // size, 1)
    for place in np.ndindex(*shape[: inner - 1]):
        for start in range(0, shape[inner - 1], step):
            end = min(start + step, shape[inner - 1])
            yield (
                *(slice(k, k + 1) for k in place),
                slice(start, end),
                *(slice(0, n) for n in shape[inner:]),
            )


def _places(request: Request) -> Iterator[tuple[tuple[int, ...], Case]]:
    places = product(*(range(len(values)) for values in request.labels.values()))
    yield from zip(places, request.cases, strict=True)


def blocks(request: Request, cells: int = BLOCK_CELLS) -> Iterator[Block]:
    """Yield every output and the status, block by block; each cell once."""
    sizes = [len(values) for values in request.axes.values()]
    for place, case in _places(request):
        labelled = tuple(slice(k, k + 1) for k in place)
        for region in _regions(sizes, cells):
            for name, values in evaluate(request, case, region).items():
                shape = (1,) * len(place) + values.shape
                yield Block(name, (*labelled, *region), values.reshape(shape))


def records(request: Request) -> Iterator[dict[str, Any]]:
    """Yield a record for each cell: coordinates, constants, outputs, why it can't be."""
    sizes = [len(values) for values in request.axes.values()]
    for place, case in _places(request):
        chosen = zip(request.labels.items(), place, strict=True)
        names = {"mechanism": case.mechanism}
        names |= {label: values[k] for (label, values), k in chosen}
        for region in _regions(sizes, BLOCK_CELLS):
            found = evaluate(request, case, region)
            for index in np.ndindex(found["status"].shape):
                cell: dict[str, Any] = {**names, **request.constants}
                for part, at, (name, values) in zip(
                    region, index, request.axes.items(), strict=True
                ):
                    cell[name] = float(values[part.start + at])
                cell |= {name: float(found[name][index]) for name in request.outputs}
                flags = int(found["status"][index])
                told = [name for name, (bit, _) in FAULTS.items() if flags & bit]
                yield {**cell, "status": " ".join(told) or "ok"}


def cell_of(request: Request, case: Case, names: Sequence[str]) -> Mapping[str, float]:
    """Return further quantities of a request's one cell; what can't be had is left out."""
    held = {**case.defaults, **request.constants}
    evaluation = Evaluation(held, case.labels)
    found: dict[str, float] = {}
    with np.errstate(all="ignore"):
        for name in names:
            value = evaluation.value(name, {})
            if value is not None:
                found[name] = float(value)
    return found
