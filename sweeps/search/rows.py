"""Splits, chunks and micro-batches that go together: the rows of the longest axis of a search."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from overhead.analysis import faults
from overhead.collectives.algorithm import Requirement
from overhead.dependencies import bits
from overhead.evaluation import Evaluation
from overhead.frozen import frozen
from overhead.labels import CHUNKED
from overhead.plan import requirements
from sweeps.search.request import Columns

AGAIN = "same_plan_again"
ENDS = ("embedding_layer_weight", "head_layer_weight")

# Rows that are looked at together, before those that can't be go.
AT_ONCE = 1 << 17

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


@frozen(slots=True)
class Rows:
    """Splits of the GPUs, each with the chunks and micro-batches that it can have."""

    columns: Columns  # By quantity; one chunk first, then several
    split: Places  # Which split each row is of
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
    """Combine splits with chunks and micro-batches; leave out, and count, what can't be."""
    parts: list[tuple[Columns, Places]] = []
    fallen: dict[str, int] = {}
    count, first = 0, 0
    for kind, weight, known in _kinds(chunks, labels, schedules):
        count += weight * len(splits["dp"]) * len(kind) * len(micro_batches)
        for some in _pieces(np.arange(len(splits["dp"])), len(kind) * len(micro_batches)):
            opened = _opened(splits, some, kind, micro_batches)
            wrong = _wrong(opened, given, known, weight, fallen)
            kept = ~wrong
            columns = {n: np.broadcast_to(v, wrong.shape)[kept] for n, v in opened.items()}
            parts.append((columns, some[np.nonzero(kept)[0]]))
            first += int(np.count_nonzero(kept)) if kind[0] == 1.0 else 0
    columns, split = _joined(parts)
    columns |= _ends(columns, given, labels)
    return Rows(columns, split, len(splits["dp"]), first, count, fallen)


def near_rows(
    splits: Columns,
    chunks: Values,
    micro_batches: Values,
    given: Mapping[str, float],
    labels: Mapping[str, str],
    schedules: Sequence[str],
    near: Mask,
) -> Rows:
    """Combine splits with the micro-batches that are near, and chunks; leave out what can't be.

    The rows are those of `rows_of`, in its order, but how many others there are isn't counted:
    what can't be whatever its chunks, or micro-batch, isn't combined with them.
    """
    split, micro = np.flatnonzero(near.any(axis=1)), np.zeros(1, dtype=np.int64)
    parts: list[tuple[Columns, Places]] = []
    tested: set[Requirement] = set()

    def columns_of(split: Places, micro: Places, chunk: Values) -> Columns:
        columns = {name: values[split] for name, values in splits.items()}
        columns["virtual_pipeline_size"] = np.broadcast_to(chunk, split.shape)
        return columns | {MICRO: np.broadcast_to(micro_batches[micro], split.shape)}

    def wrong(split: Places, micro: Places, free: int) -> Mask:
        return wrong_splits(columns_of(split, micro, chunks[:1]), given, labels, free, tested)

    split = split[~wrong(split, micro, IN_SPLIT)]
    at, micro = np.nonzero(near[split])
    split = split[at]
    able = ~wrong(split, micro, CHUNKS)
    split, micro = split[able], micro[able]
    first = 0
    for kind, weight, known in _kinds(chunks, labels, schedules):
        opened = {n: v[:, None] for n, v in columns_of(split, micro, kind[:1]).items()}
        opened["virtual_pipeline_size"] = kind[None, :]
        kept = ~_wrong(opened, given, known, weight, {}, tested)
        pair, chunk = np.nonzero(np.broadcast_to(kept, (len(split), len(kind))))
        order = np.lexsort((micro[pair], chunk, split[pair]))
        pair, chunk = pair[order], chunk[order]
        parts.append((columns_of(split[pair], micro[pair], kind[chunk]), split[pair]))
        first += len(pair) if kind[0] == 1.0 else 0
    columns, split = _joined(parts)
    columns |= _ends(columns, given, labels)
    return Rows(columns, split, len(splits["dp"]), first, len(split), {})


def _kinds(
    chunks: Values, labels: Mapping[str, str], schedules: Sequence[str]
) -> Iterator[tuple[Values, int, Mapping[str, str]]]:
    """Yield one chunk, then several, with how many schedules suit them, and the labels known."""
    for of_one in (True, False):
        kind = chunks[(chunks == 1.0) == of_one]
        suiting = [name for name in schedules if (name in CHUNKED) != of_one]
        if suiting and len(kind):
            # Unless there is one schedule, only the conditions on all are looked at here.
            alone = not of_one and len(suiting) == 1
            yield kind, len(suiting), {**labels, "schedule": suiting[0]} if alone else labels


def _ends(columns: Columns, given: Mapping[str, float], labels: Mapping[str, str]) -> Columns:
    """Return of rows whether the embedding and the head count as layers, where any do."""
    if not columns or not len(columns["dp"]) or "layers" not in given:
        return {}
    evaluation = Evaluation({**given, **columns}, labels)
    shape = columns["dp"].shape
    ends = {name: np.broadcast_to(evaluation[name], shape) for name in ENDS if name not in given}
    return {name: values for name, values in ends.items() if values.any()}


def _pieces(splits: Places, ways: int) -> Iterator[Places]:
    """Yield some of the splits at a time, so that their rows are few."""
    step = max(1, AT_ONCE // ways)
    for start in range(0, len(splits), step):
        yield splits[start : start + step]


def _opened(splits: Columns, some: Places, chunks: Values, micro_batches: Values) -> Columns:
    """Return some splits, chunks and micro-batches as an open grid of each with each."""
    columns = {name: values[some].reshape(-1, 1, 1) for name, values in splits.items()}
    columns["virtual_pipeline_size"] = chunks.reshape(1, -1, 1)
    return columns | {MICRO: micro_batches.reshape(1, 1, -1)}


# What rows have beside a split.
MICRO = "micro_batch_size"
CHUNKS = bits(("virtual_pipeline_size",))
IN_SPLIT = CHUNKS | bits((MICRO,))


def wrong_splits(
    columns: Columns,
    given: Mapping[str, float],
    labels: Mapping[str, str],
    free: int,
    tested: set[Requirement] | None = None,
) -> Mask:
    """Return which splits can't be, whatever else they have: by conditions on nothing free.

    Those that were tested aren't looked at, and those that are then were.
    """
    evaluation = Evaluation({**given, **columns}, labels)
    of = evaluation.builder.dependencies.of
    new = [
        requirement
        for requirement in requirements(labels)
        if requirement not in (tested or ()) and not any(of(n) & free for n in requirement.inputs)
    ]
    if tested is not None:
        tested.update(new)
    wrong = np.zeros(np.broadcast_shapes(*map(np.shape, columns.values())), dtype=np.bool_)
    with np.errstate(all="ignore"):
        for fallen in faults(evaluation, new):
            wrong |= fallen.where
    return wrong.reshape(-1)


def _wrong(
    columns: Columns,
    given: Mapping[str, float],
    labels: Mapping[str, str],
    weight: int,
    fallen: dict[str, int],
    tested: Collection[Requirement] = (),
) -> Mask:
    """Return which of an open grid can't be, and count their reasons; tested ones aren't any."""
    shape = np.broadcast_shapes(*(values.shape for values in columns.values()))
    wrong = np.zeros(shape, dtype=np.bool_)

    def fall(name: str, mask: Mask) -> None:
        nonlocal wrong
        several = weight * (wrong.size // mask.size)
        fallen[name] = fallen.get(name, 0) + several * int(np.count_nonzero(mask))
        wrong |= mask

    again = (columns["pp"] == 1.0) & (columns["virtual_pipeline_size"] > 1.0)
    if again.any():
        fall(AGAIN, again)
    with np.errstate(all="ignore"):
        new = [condition for condition in requirements(labels) if condition not in tested]
        failed = faults(Evaluation({**given, **columns}, labels), new)
    for failure in failed:
        fall(failure.requirement.fault, failure.where)
    return wrong


def _joined(
    parts: Sequence[tuple[Columns, Places]],
) -> tuple[Columns, Places]:
    if not parts:
        return {}, np.empty(0, dtype=np.int64)
    names = parts[0][0]
    columns = {name: np.concatenate([part[name] for part, _ in parts]) for name in names}
    for values in columns.values():
        values.flags.writeable = False  # Grids share them
    return columns, np.concatenate([split for _, split in parts])
