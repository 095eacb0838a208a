"""The time of an interleaved pipeline whose chunks have their own layers, by its order of passes.

Each stage runs its passes in Megatron-LM's order, each as early as its input is there.  Few groups
of as many micro-batches as stages are run: each further one adds what lies between the last two.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from overhead.quantity import Array
from overhead.recording import named
from overhead.special import ATTENDING, MIXED, Number, layers_of_kind

# Groups of micro-batches that are run, and numbers that a block of cells has at most.
MOST_GROUPS, BLOCK = 4, 2**21


@lru_cache(maxsize=256)
def _ranks(pp: int, chunks: int, groups: int) -> tuple[list[Array], Array, int]:
    """Return passes that can run together, rank by rank; groups' last ones; the number of all.

    Of each: which it is, the one before it in its stage, the one that it needs, and its chunk, of
    backward passes after those of forward ones.  The last ones are the forward passes with which a
    stage ends a group.
    """
    count = chunks * groups * pp
    turn, stage = np.arange(count), np.arange(pp)[:, np.newaxis]
    row = turn // pp % chunks
    ahead = np.minimum(2 * (pp - 1 - stage) + (chunks - 1) * pp, count)
    forward = 2 * count * stage + turn + np.maximum(turn - ahead, 0)
    backward = 2 * count * stage + np.minimum(ahead + 2 * turn + 1, count + turn)
    nothing = 2 * pp * count
    needed = np.full(nothing + 1, nothing)
    needed[forward[1:]], needed[backward[:-1]] = forward[:-1], backward[1:]
    later, first = np.flatnonzero(row > 0), np.flatnonzero(row == 0)
    needed[forward[0, later]] = forward[-1, later - pp]
    needed[backward[-1, later]] = backward[0, later - pp]
    needed[backward[-1, first]] = forward[-1, first + (chunks - 1) * pp]
    before = np.arange(nothing + 1) - 1
    before[:: 2 * count] = nothing
    chunk = np.zeros(nothing + 1, dtype=np.int64)
    chunk[forward] = row * pp + stage
    chunk[backward] = (2 * chunks - 1 - row) * pp + stage
    rank, latest = np.zeros(nothing + 1, dtype=np.int64), np.full(nothing + 1, -1)
    while not np.array_equal(rank, latest):
        rank = latest
        latest = np.maximum(rank[before], rank[needed]) + 1
        latest[nothing] = -1
    order = np.argsort(rank[:-1], kind="stable")
    every = np.stack([order, before[order], needed[order], chunk[order]])
    ranks = np.split(every, np.flatnonzero(np.diff(rank[order])) + 1, axis=1)
    return ranks, forward[:, chunks * pp - 1 :: chunks * pp].T, nothing


def _run(pp: int, chunks: int, groups: int, times: Array) -> tuple[Array, Array]:
    """Return when columns of chunks' times are done, and what a further group adds.

    Times are of forward passes, then of backward ones.
    """
    ranks, lasts, count = _ranks(pp, chunks, groups)
    ends = np.zeros((count + 1, times.shape[1]))
    for passes, before, needed, chunk in ranks:
        ends[passes] = np.maximum(ends[before], ends[needed]) + times[chunk]
    longest = pp * times.reshape(2 * chunks, pp, -1).sum(axis=0).max(axis=0)
    if groups > 1:
        longest = np.maximum(longest, (ends[lasts[-1]] - ends[lasts[-2]]).max(axis=0))
    return ends.max(axis=0), longest


def _excess(period: int, *cut: Array) -> tuple[Array, Array]:
    """Return MoE and attention layers of chunks beyond their layers' mean, cells along columns.

    Attention is beyond that of its mixers, in layers of what attention has beyond their mean.
    """
    index = np.arange(float(period))[:, np.newaxis]
    every, attention, moe = (
        layers_of_kind(kind, index, 0.0, float(period), *cut) for kind in (0.0, ATTENDING, MIXED)
    )
    layers = np.maximum(every.sum(axis=0), 1.0)
    mixers, attending = layers - moe.sum(axis=0), attention.sum(axis=0)
    more = moe - every * moe.sum(axis=0) / layers
    beyond = attention - every * attending / layers + more * attending / np.maximum(mixers, 1.0)
    return more, beyond * mixers / np.maximum(mixers - attending, 1.0)


@named()
def interleaved_time(num_micro_batches: Number, pp: Number, chunks: Number, *work: Number) -> Array:
    """Return how long a pipeline takes whose chunks have the layers of an order, without transfers.

    `work`: forward and backward pass of a stage of mean layers; what the first chunk and the last
    one have beyond it, and what all of the last stage lacks, of both passes; what a MoE layer takes
    beyond two mean layers, forward and backward, and attention beyond a mean mixer; the layers of a
    chunk, those counted ahead in the first one, and the numbers that say the order.
    """
    given = (num_micro_batches, pp, chunks, *work)
    shape = np.broadcast_shapes(*map(np.shape, given))
    cells = [
        np.broadcast_to(np.asarray(number, dtype=np.float64), shape).ravel() for number in given
    ]
    count, stages, rows, *times = cells
    layers = layers_of_kind(0.0, 0.0, 0.0, 1.0, 1.0, 0.0, *times[11:])
    # Where there is no such order, or no layer for each chunk, it is that of even chunks.
    result = (count + (stages - 1.0) / rows) * (times[0] + times[1])
    known = (stages > 1.0) & (rows > 1.0) & (stages * rows <= layers) & (count >= stages)
    known &= (stages == np.floor(stages)) & (rows == np.floor(rows))
    for p, v in np.unique(np.stack([stages, rows])[:, known], axis=1).T.astype(int).tolist():
        same = np.flatnonzero(known & (stages == p) & (rows == v))
        step = max(BLOCK // (2 * MOST_GROUPS * v * p * p), 1)
        for some in (same[at : at + step] for at in range(0, same.size, step)):
            result[some] = _cells(p, v, count[some] / p, *(time[some] for time in times))
    return np.asarray(result.reshape(shape))


def _cells(pp: int, chunks: int, groups: Array, *work: Array) -> Array:
    """Return how long the pipelines of cells take that have as many stages and chunks."""
    forward, backward, first, last, lacking, *layers = work
    more, attention = _excess(pp * chunks, *layers[4:])
    ends = np.zeros_like(more)
    ends[0] += first
    ends[pp - 1 :: pp] -= lacking / chunks
    ends[-1] += last
    both = forward + backward
    ends = np.where(both > 0.0, ends / np.where(both > 0.0, both, 1.0), 0.0)
    ways = zip((forward, backward), layers[:2], layers[2:4], strict=True)
    times = [
        time / chunks + ends * time + more * moe + attention * attention_time
        for time, moe, attention_time in ways
    ]
    times = np.maximum(np.concatenate(times), 0.0)
    least = np.clip(np.floor(groups), 1.0, MOST_GROUPS)
    result = np.zeros(groups.size)
    for whole in np.unique(least):
        some = least == whole
        done, further = _run(pp, chunks, int(whole), times[:, some])
        result[some] = done + (groups[some] - whole) * further
    return result
