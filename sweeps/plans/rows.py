"""Splits, chunks and micro-batches that go together: the rows of the longest axis of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overhead.breakdown import faults
from overhead.evaluation import Evaluation
from sweeps.plans.degrees import Columns
from sweeps.plans.limits import AGAIN

__all__ = ["ENDS", "Rows", "rows_of"]

ENDS = ("embedding_as_layer", "loss_as_layer")

# Rows that are looked at together, before those that can't be go.
AT_ONCE = 1 << 17

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """Splits of the GPUs, each with the chunks and micro-batches that it can have."""

    columns: Columns  # By quantity; one chunk first, then several
    split: NDArray[np.int64]  # Which split each row is of
    splits: int  # How many splits there are, those that can't be among them
    single: int  # How many rows have one chunk
    all: int  # How many plans there are of splits, schedules, chunks and micro-batches
    fallen: Mapping[str, int]  # How many of these fall for each reason

    def __len__(self) -> int:
        return len(self.split)


def rows_of(
    splits: Columns,
    chunks: Values,
    micro_batches: Values,
    given: Mapping[str, float],
    labels: Mapping[str, str],
    schedules: Sequence[str],
) -> Rows:
    """Combine splits with chunks and micro-batches, and leave out what can't be."""
    single = [name for name in schedules if name != "interleaved"]
    several = "interleaved" in schedules
    parts: list[tuple[Columns, NDArray[np.int64]]] = []
    fallen: dict[str, int] = {}
    count, first = 0, 0
    for of_one in (True, False):
        own = chunks[(chunks == 1.0) == of_one]
        weight = len(single) if of_one else int(several)
        if not weight or not len(own):
            continue
        # Of one chunk only the conditions on all schedules are looked at here.
        known = labels if of_one else {**labels, "schedule": "interleaved"}
        for some in _pieces(len(splits["dp"]), len(own) * len(micro_batches)):
            columns, split = _combined(splits, some, own, micro_batches)
            count += weight * len(split)
            kept = _checked(columns, given, known, weight, fallen)
            parts.append(({name: v[kept] for name, v in columns.items()}, split[kept]))
            first += int(np.count_nonzero(kept)) if of_one else 0
    columns, split = _joined(parts)
    if given.get("layers") and not any(given.get(name, 0.0) for name in ENDS):
        columns, split, first = _with_ends(columns, split, first, given["layers"])
    return Rows(columns, split, len(splits["dp"]), first, count, fallen)


def _pieces(splits: int, ways: int) -> Iterator[slice]:
    """Yield some of the splits at a time, so that their rows are few."""
    step = max(1, AT_ONCE // ways)
    for start in range(0, splits, step):
        yield slice(start, min(start + step, splits))


def _combined(
    splits: Columns, some: slice, chunks: Values, micro_batches: Values
) -> tuple[Columns, NDArray[np.int64]]:
    shape = (some.stop - some.start, len(chunks), len(micro_batches))
    split, chunk, batch = (part.reshape(-1) for part in np.indices(shape))
    split = split + some.start
    columns = {name: values[split] for name, values in splits.items()}
    columns |= {"virtual_stages": chunks[chunk], "micro_batch": micro_batches[batch]}
    return columns, split.astype(np.int64)


def _checked(
    columns: Columns,
    given: Mapping[str, float],
    labels: Mapping[str, str],
    weight: int,
    fallen: dict[str, int],
) -> Mask:
    """Return which rows can be, and count the reasons of the others."""
    count = len(columns["dp"])
    again = (columns["pp"] == 1.0) & (columns["virtual_stages"] > 1.0)
    if again.any():
        fallen[AGAIN] = fallen.get(AGAIN, 0) + weight * int(again.sum())
    wrong = again
    with np.errstate(all="ignore"):
        found = faults(Evaluation({**given, **columns}, labels))
    for one in found:
        mask = np.broadcast_to(one.where, (count,))
        name = one.requirement.fault
        fallen[name] = fallen.get(name, 0) + weight * int(mask.sum())
        wrong = wrong | mask
    return np.asarray(~wrong)


def _joined(
    parts: Sequence[tuple[Columns, NDArray[np.int64]]],
) -> tuple[Columns, NDArray[np.int64]]:
    if not parts:
        return {}, np.empty(0, dtype=np.int64)
    names = parts[0][0]
    columns = {name: np.concatenate([part[name] for part, _ in parts]) for name in names}
    return columns, np.concatenate([split for _, split in parts])


def _with_ends(
    columns: Columns, split: NDArray[np.int64], single: int, layers: float
) -> tuple[Columns, NDArray[np.int64], int]:
    """Let the embedding and the loss count as layers, too, where only so the stages are even."""
    if not len(split):
        return columns, split, single
    stages = columns["pp"] * columns["virtual_stages"]
    uneven = (layers % stages != 0.0) & ((layers + 2.0) % stages == 0.0)
    if not uneven.any():
        return columns, split, single
    place = np.concatenate([np.arange(len(split)), np.nonzero(uneven)[0]])
    counted = np.concatenate([np.zeros(len(split)), np.ones(int(uneven.sum()))])
    # Rows of one chunk stay before the others.
    order = np.argsort(place >= single, kind="stable")
    place, counted = place[order], counted[order]
    wider = {name: values[place] for name, values in columns.items()}
    wider |= {name: counted.copy() for name in ENDS}
    return wider, split[place], int(np.count_nonzero(place < single))
