"""Functions of expressions beyond numpy's: of whole numbers, of draws, of counts and maxima."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from overhead.quantity import Array
from overhead.recording import named

# More experts a token than this no model has.
MOST_DRAWS = 4096
# Counts whose probabilities are added up at once, over all cells.
COUNTS = 65536
# The first of these: mostly they suffice.
FIRST_COUNTS = 256
# Where laws have more counts than so many of some probability, they are integrated.
MOST_COUNTS = 400_000.0
# Of a continued fraction: terms at most, and the least change that is worth another one.
MOST_TERMS, LAST_DIGIT = 10_000, 2.0**-50


@named()
def popcount_sum(ranks: Array) -> Array:
    """Return the number of one bits in 0 .. ranks - 1 together (shape of `ranks`).

    Bit i is set in half of each period of 2^(i+1) numbers.
    """
    whole = np.asarray(ranks, dtype=np.float64)
    total = np.zeros_like(whole)
    for bit in range(53):
        half = 2.0**bit
        if not np.any(whole > half):
            break
        period = 2.0 * half
        total += np.floor(whole / period) * half + np.maximum(whole % period - half, 0.0)
    return total


@named("gcd")
def greatest_common_divisor(first: Array, other: Array) -> Array:
    """Return the greatest common divisor of whole numbers, of the shape to which they broadcast.

    What isn't whole is cut off.
    """
    whole = (np.asarray(number, dtype=np.float64).astype(np.int64) for number in (first, other))
    return np.asarray(np.gcd(*whole), dtype=np.float64)


@named()
def square_divisor(number: Array) -> Array:
    """Return the largest divisor of whole numbers that is no larger than their root.

    What isn't whole is cut off.
    """
    whole = np.asarray(number, dtype=np.float64).astype(np.int64)
    each, inverse = np.unique(whole, return_inverse=True)
    best = np.ones_like(each)
    # Divisors one by one, for all numbers at once.
    for divisor in range(2, int(np.sqrt(each[-1])) + 1 if each.size else 0):
        best = np.where((each % divisor == 0) & (divisor * divisor <= each), divisor, best)
    return np.asarray(best[inverse].reshape(whole.shape), dtype=np.float64)


@named()
def power_sum(left: Array, other: Array, power: Array | float) -> Array:
    """Return (one^power + other^power)^(1/power) of numbers from 0: a maximum that is smooth.

    With a power below 0 it is a smooth minimum; either way the sharper, the further from 0.
    """
    larger, smaller = np.maximum(left, other), np.minimum(left, other)
    first = np.where(np.less(power, 0.0), smaller, larger)
    second = np.where(np.less(power, 0.0), larger, smaller)
    some = (first > 0.0) & (first < np.inf)
    ratio = np.where(some, second, 1.0) / np.where(some, first, 1.0)
    return np.asarray(np.where(some, first * (1.0 + ratio**power) ** (1.0 / power), first))


@named()
def never_drawn(total: Array, marked: Array, draws: Array) -> Array:
    """Return the share of draws without replacement that meet none of the marked ones.

    Of `total` things `draws` are drawn: C(total - marked, draws)/C(total, draws).
    """
    total, marked, draws = (np.asarray(n, dtype=np.float64) for n in (total, marked, draws))
    share = np.ones(np.broadcast_shapes(total.shape, marked.shape, draws.shape))
    most = float(np.max(draws, initial=0.0))
    # Draw by draw, for all numbers at once; a draw beyond what there is changes nothing.
    for drawn in range(int(min(most, MOST_DRAWS))):
        left = np.maximum(total - drawn, 1.0)
        missed = np.maximum(total - marked - drawn, 0.0) / left
        share = share * np.where(drawn < np.minimum(draws, total), missed, 1.0)
    return share


@named()
def negative_binomial_tail(count: Array, mean: Array, dispersion: Array) -> Array:
    """Return the probability of more than a count, of the shape to which the inputs broadcast.

    The variance is mean + dispersion*mean^2; with a dispersion of 0 it is Poisson's law.
    """
    count, mean, dispersion = np.broadcast_arrays(*map(np.asarray, (count, mean, dispersion)))
    far = _far(mean, dispersion)
    near = np.where(far, 0.0, mean)
    _, below, last = _sum_up(near, dispersion, count=count)
    # Beyond the mean never as 1 less what lies below, which leaves no digits of a small one.
    above = count + 1.0 >= near
    beyond = _beyond(count, np.where(above, near, 0.0), dispersion, last)
    tail = np.where(above, beyond, 1.0 - below)
    if np.any(far):
        tail = np.array(tail)
        tail[far] = _tail(count[far], mean[far], dispersion[far])
    return tail


@named()
def negative_binomial_quantile(share: Array, mean: Array, dispersion: Array) -> Array:
    """Return the least count that isn't exceeded with a probability, as `negative_binomial_tail`.

    A share must be below 1.
    """
    share, mean, dispersion = np.broadcast_arrays(*map(np.asarray, (share, mean, dispersion)))
    far = _far(mean, dispersion)
    quantile = _sum_up(np.where(far, 0.0, mean), dispersion, share=share)[0]
    if np.any(far):
        quantile = np.array(quantile)
        quantile[far] = _count(share[far], mean[far], dispersion[far])
    return quantile


def _far(mean, dispersion):
    """Return whether counts of some probability are too many to be added up one by one."""
    return mean + 40.0 * (1.0 + dispersion * mean) > MOST_COUNTS


def _count(share, mean, dispersion):
    """Return the least counts of a probability, between bounds that are halved."""
    least, most = np.full(share.shape, -1.0), np.ones(share.shape)
    while np.any(short := _tail(most, mean, dispersion) > 1.0 - share):
        most = np.where(short, 2.0 * most, most)
    # Bounds that are near stay as they are, so that a number is the same alone and among others.
    while np.any(apart := most - least > np.maximum(1.0, 1e-15 * most)):
        middle = np.maximum(np.floor((least + most) / 2.0), 0.0)
        enough = _tail(middle, mean, dispersion) <= 1.0 - share
        least = np.where(apart & ~enough, middle, least)
        most = np.where(apart & enough, middle, most)
    return most


def _tail(count, mean, dispersion):
    """Return probabilities of more than counts, at one dimension, as parts of a beta function.

    Of its density's two sides, over the logit and from its peak on, neither is small beside the
    other where both count; strips grow away from the peak (NIST DLMF, 8.17.24: the law's sum).
    """
    inverse_dispersion = 1.0 / np.maximum(dispersion, 1e-9 / mean)
    other = count + 1.0
    left, right = (
        (inverse_dispersion / (inverse_dispersion + other))[:, None, None],
        (other / (inverse_dispersion + other))[:, None, None],
    )
    scale = np.minimum(np.sqrt(1.0 / inverse_dispersion + 1.0 / other), 1.0)
    steps = np.concatenate(([0.0], 2.0 ** np.arange(18)))
    edges = scale[:, None] * np.concatenate((-steps[:0:-1], steps))
    split = np.log(other / mean)[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(24)

    def integral(low: Array, high: Array) -> Array:
        half = (high - low)[..., None] / 2.0
        at = low[..., None] + half * (1.0 + nodes)
        # So far from the peak that a logarithm is infinite there is nothing.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            logs = inverse_dispersion[:, None, None] * np.log1p(right * np.expm1(-at))
            logs += other[:, None, None] * np.log1p(left * np.expm1(at))
            density = np.nan_to_num(np.exp(-logs), posinf=0.0)
        return np.sum(half * weights * density, axis=(1, 2))

    below = integral(np.minimum(edges[:, :-1], split), np.minimum(edges[:, 1:], split))
    above = integral(np.maximum(edges[:, :-1], split), np.maximum(edges[:, 1:], split))
    return above / (below + above)


def _beyond(count, mean, dispersion, last):
    """Return probabilities of more than counts from the mean on, by the logarithm of the count's.

    The next count's probability by the continued fraction of an incomplete beta function, of
    which the tail is one (NIST DLMF, 8.17.22, by Lentz's way); with a dispersion of 0 of a gamma.
    """
    first, rest = count + 1.0, mean / (1.0 + dispersion * mean)
    share = dispersion * rest  # the function's x, and `rest` is x times its b
    with np.errstate(divide="ignore"):
        following = np.exp(last + np.log(rest * ((1.0 + dispersion * count) / first)))
    upper, lower, fraction = np.ones(mean.shape), np.zeros(mean.shape), np.ones(mean.shape)
    going = np.ones(mean.shape, dtype=bool)
    for order in range(MOST_TERMS):
        half, at = order // 2, first + order
        if order % 2:
            term = (half + 1.0) * (rest - (half + 1.0) * share) / (at * (at + 1.0))
        else:
            term = -(first + half) * (rest + (first + half) * share) / (at * (at + 1.0))
        upper, lower = 1.0 + term / upper, 1.0 / (1.0 + term * lower)
        change = upper * lower
        # Each number ends by itself, so that it is the same alone and among others.
        fraction = np.where(going, fraction * change, fraction)
        going &= np.abs(change - 1.0) > LAST_DIGIT
        if not np.any(going):
            break
    return following / fraction


def _sum_up(
    mean: Array, dispersion: Array, *, count: Array | float = np.inf, share: Array | float = np.inf
) -> tuple[Array, Array, Array]:
    """Return the first counts of a share, up to a count; what cumulates; the last one's logarithm.

    Probabilities follow one from another, as logarithms, for the first ones may be very small;
    they are added up block by block, each block on from the last one's end: however many counts a
    block has, the digits are the same.
    """
    mean, dispersion, last, wanted = np.broadcast_arrays(
        *(
            np.asarray(parameter, dtype=np.float64)[..., None]
            for parameter in (mean, dispersion, count, share)
        )
    )
    spread = np.where(dispersion > 0.0, dispersion, 1.0)
    log_probability = np.where(dispersion > 0.0, -np.log1p(spread * mean) / spread, -mean)
    with np.errstate(divide="ignore"):
        step = np.log(mean / (1.0 + dispersion * mean))
    first_count, added = np.zeros(mean.shape), np.exp(log_probability)
    total = added
    done, latest = (total >= wanted) | (last <= 0.0) | (mean <= 0.0), log_probability
    most = max(COUNTS // max(mean.size, 1), 1)
    start, size = 0.0, min(FIRST_COUNTS, most)
    while not np.all(done):
        block = start + np.arange(size)
        steps = step + np.log((1.0 + dispersion * block) / (block + 1.0))
        logs = _on_from(log_probability, steps)
        sums = _on_from(added, np.exp(logs))
        counts = np.broadcast_to(block + 1.0, sums.shape)
        # Far out nothing is added any more: all there is has been added up.
        enough = (sums >= wanted) | (counts >= last) | (np.exp(logs) <= 0.0) & (counts > mean)
        index = np.where(enough.any(axis=-1), enough.argmax(axis=-1), block.size - 1)[..., None]
        first_count = np.where(done, first_count, np.take_along_axis(counts, index, -1))
        total = np.where(done, total, np.take_along_axis(sums, index, -1))
        latest = np.where(done, latest, np.take_along_axis(logs, index, -1))
        log_probability, added = logs[..., -1:], sums[..., -1:]
        start, size = start + size, min(2 * size, most)
        done = done | enough.any(axis=-1)[..., None]
    return first_count[..., 0], np.minimum(total, 1.0)[..., 0], latest[..., 0]


def _on_from(begin, terms):
    """Return sums of all terms up to each, begun with a number, from left to right."""
    first = np.broadcast_to(begin, (*terms.shape[:-1], 1))
    return np.add.accumulate(np.concatenate((first, terms), axis=-1), axis=-1)[..., 1:]


# Kinds of layers, as digits: with linear attention, with attention, mixtures of experts.
ATTENDING, MIXED = 2.0, 3.0
# Digits of base 4 in a number that says the kinds of as many layers, exact in doubles.
LAYERS_A_NUMBER = 26
DIGITS = 4.0 ** np.arange(LAYERS_A_NUMBER)
# Combinations of values that are worked on at once.
ROWS = 1024
# Tables of more numbers than these aren't kept.
MOST_KEPT = 4096
# Whole numbers up to here are exact in doubles.
EXACT = 2.0**53
Number = Array | float


def _codes(column: Array) -> tuple[Array, float]:
    """Return whole numbers from 0 on that tell a column's values apart, and what they are below."""
    least, most = column.min(initial=0.0), column.max(initial=0.0)
    if most - least < ROWS and (column == np.floor(column)).all():
        return column - least, float(most - least) + 1.0
    distinct = np.unique(column)
    return np.searchsorted(distinct, column), float(distinct.size)


def _combinations(columns: list[Array]) -> tuple[Array, Array]:
    """Return a row for each combination of columns' values, and which combination rows have."""
    code, below = np.zeros(len(columns[0])), 1.0
    for column in columns:
        column_code, span = _codes(column)
        if below * span > EXACT:
            code, below = _codes(code)
        code, below = code * span + column_code, below * span
    known = np.unique(code)
    inverse = np.searchsorted(known, code)
    rows = np.empty(known.size, dtype=np.int64)
    rows[inverse] = np.arange(len(code))
    return rows, inverse


Given = TypeVar("Given")


def _kept(function: Callable[..., Given]) -> Callable[..., Given]:
    """Let a function of few numbers be computed once for the same ones."""

    @lru_cache(maxsize=512)
    def known(*given: tuple[bytes, tuple[int, ...]]) -> Given:
        return function(*(np.frombuffer(data).reshape(shape) for data, shape in given))

    def asked(*values: Number) -> Given:
        arrays = [np.asarray(value, dtype=np.float64) for value in values]
        if sum(array.size for array in arrays) > MOST_KEPT:
            return function(*arrays)
        return known(*((argument.tobytes(), argument.shape) for argument in arrays))

    return asked


def _distinct(*values: Number) -> tuple[list[Array], Array]:
    """Return columns of values, a row a combination that there is, and which one each cell has."""
    given = [np.asarray(value, dtype=np.float64) for value in values]
    shape = np.broadcast_shapes(*map(np.shape, given))
    full = [
        number.reshape(-1) if number.size == 1 else np.broadcast_to(number, shape).ravel()
        for number in given
    ]
    several = [array for array in full if array.size != 1]
    if not several:
        return full, np.zeros(shape, dtype=np.int64)
    rows, inverse = _combinations(several)
    each = [np.broadcast_to(array[rows % array.size], rows.shape) for array in full]
    return each, inverse.reshape(shape)


def _kinds(numbers: tuple[Array, ...]) -> Array:
    """Return the kinds that columns of numbers say, one after the other in a row."""
    stated = np.hstack(np.broadcast_arrays(*numbers))
    return np.floor(stated[:, :, np.newaxis] / DIGITS).reshape(len(stated), -1) % 4.0


@_kept
def _tables(
    kind: Number, period: Number, chunk: Number, ahead: Number, *numbers: Array
) -> tuple[Array, Array]:
    """Return how many layers of a kind each chunk index has, a row a combination; cells' rows."""
    columns, inverse = _distinct(kind, period, chunk, ahead, *numbers)
    every = [column[:, np.newaxis] for column in columns]
    some = [slice(begin, begin + ROWS) for begin in range(0, every[0].size, ROWS)]
    tables = [_counted(*(array[part] for array in every)) for part in some]
    table = np.zeros((every[0].size, max((counted.shape[1] for counted in tables), default=0)))
    for part, counts in zip(some, tables, strict=True):
        table[part, : counts.shape[1]] = counts
    return table, inverse


def _counted(kind: Array, period: Array, chunk: Array, ahead: Array, *numbers: Array) -> Array:
    """Return how many layers of a kind each chunk index has, rows a combination each."""
    kinds = _kinds(numbers)
    of_kind = np.where(kind > 0.0, kinds == kind, kinds > 0.0)
    layers = np.flatnonzero(of_kind.any(axis=0))
    chunk_index = np.floor((layers + ahead) / np.maximum(chunk, 1.0)) % period
    width = int(chunk_index.max(initial=0.0)) + 1
    at = np.arange(len(chunk_index))[:, np.newaxis] * width + chunk_index.astype(np.int64)
    counts = np.bincount(at.ravel(), of_kind[:, layers].ravel(), len(chunk_index) * width)
    return counts.reshape(len(chunk_index), width)


@named()
def layers_of_kind(
    kind: Number,
    index: Number,
    mirrored: Number,
    period: Number,
    chunk: Number,
    ahead: Number,
    *numbers: Array,
) -> Array:
    """Return how many layers of a kind are in every `period`-th chunk from one of that index on.

    The layers' kinds are digits of base 4 in `numbers`, and of kind 0 all are; in the first chunk
    places are taken ahead.  If `mirrored`, those of the index as far from a period's end are
    counted as well.
    """
    table, rows = _tables(kind, period, chunk, ahead, *numbers)

    def held(index: Number) -> Array:
        column = np.asarray(index, dtype=np.float64)
        there = (column == np.floor(column)) & (column >= 0.0) & (column < table.shape[1])
        if not table.size:
            return np.zeros(np.broadcast_shapes(rows.shape, column.shape))
        return np.where(there, table[rows, np.where(there, column, 0.0).astype(np.int64)], 0.0)

    layers = held(index)
    if not np.any(np.greater(mirrored, 0.0)):
        return layers + 0.0 * np.asarray(mirrored)
    return layers + np.where(np.greater(mirrored, 0.0), held(np.subtract(period, 1.0) - index), 0.0)


@lru_cache(maxsize=4096)
def _candidates(
    pp: float, turned: float, mirrored: float, chunk: float, ahead: float, *numbers: float
) -> tuple[tuple[float, float, float], ...]:
    """Return stages between the ends that differ: attention and mixtures beyond the mean of layers.

    Of a folded pipeline all stages but the first are between them.
    """
    kinds = _kinds(tuple(np.array([[number]]) for number in numbers))[0]
    layers = np.flatnonzero(kinds)
    period = pp * (1.0 + turned)
    stages = np.floor((layers + ahead) / max(chunk, 1.0)) % period
    stages = np.minimum(stages, period - 1.0 - stages) if turned > 0.0 else stages
    sides = (stages, pp - 1.0 - stages) if mirrored > 0.0 else (stages,)
    held: dict[tuple[int, ...], float] = {}
    for stage in np.arange(1.0, pp if turned > 0.0 else pp - 1.0):
        there = np.concatenate([kinds[layers[side == stage]] for side in sides])
        counts = (there.size, (there == ATTENDING).sum(), (there == MIXED).sum())
        held.setdefault(counts, float(stage))
    whole = max(layers.size, 1)
    attending, mixed = (kinds == ATTENDING).sum() / whole, (kinds == MIXED).sum() / whole
    beyond = (
        (stage, attended - count * attending, other - count * mixed)
        for (count, attended, other), stage in held.items()
    )
    candidates = tuple(
        (stage, attended / len(sides), other / len(sides)) for stage, attended, other in beyond
    )
    return candidates or ((min(max(pp - 1.0, 0.0), 1.0), 0.0, 0.0),)


@_kept
def _stages(*cut: Number) -> list[tuple[Array, Array, Array]]:
    """Return the candidates one after the other, each with what all cells have of it."""
    columns, inverse = _distinct(*cut)
    each = [_candidates(*map(float, row)) for row in zip(*columns, strict=True)]
    most = max(map(len, each), default=1)
    # Rows of fewer stages repeat the first, which changes nothing.
    table = np.array(
        [[*candidates, *candidates[:1] * (most - len(candidates))] for candidates in each]
    ).reshape(-1, most, 3)
    return [tuple(array[inverse] for array in some.T) for some in np.moveaxis(table, 1, 0)]


@named()
def heaviest_stage(
    attention_weight: Number,
    mixture_weight: Number,
    pp: Number,
    turned: Number,
    mirrored: Number,
    chunk: Number,
    ahead: Number,
    *numbers: Array,
) -> Array:
    """Return the first of the stages between the ends whose layers weigh most; of two the second.

    Layers with linear attention weigh 0, attention and mixtures as said, empty places the mean.
    Chunks go down the stages again and again, or (`turned`) down once and up; a stage may have
    those of its mirror image, too.
    """
    several = _stages(pp, turned, mirrored, chunk, ahead, *numbers)
    shape = np.broadcast_shapes(
        several[0][0].shape, np.shape(attention_weight), np.shape(mixture_weight)
    )
    best, heaviest = np.full(shape, -np.inf), np.zeros(shape)
    for stage, attending, mixed in several:
        weight = attention_weight * attending + mixture_weight * mixed
        more = weight > best
        np.copyto(best, weight, where=more)
        np.copyto(heaviest, stage, where=more)
    return heaviest
