"""A library's constants on a machine, fitted to measured rows with the profile as what is likely.

Logarithms of constants are fitted, in groups; a group is freed only where rows can tell it, and
only if rows that were left out of the fit are predicted better for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from overhead.quantity import VOCABULARY
from sweeps.calibration.model import Model, Rows
from sweeps.spec.files import read_rows, shipped
from sweeps.spec.machine import ISSUE
from sweeps.validate import SIZE_CLASSES, class_of

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

# The constants by group, each with how far its logarithm may lie from the profile's, and which rows
# tell a group: those where the wire takes most of the time, hardly any, or a part.
_ROWS = read_rows(shipped("logs") / "groups.csv")
TERMS = tuple((row["constant"], row["group"]) for row in _ROWS)
TOLD_BY = {row["group"]: row["messages"] for row in _ROWS}
NAMES = tuple(row["constant"] for row in _ROWS)
DEVIATIONS = np.array([float(row["deviation"]) for row in _ROWS])
LINKS = "links"
RATES = ("channel_efficiency", "sendrecv_efficiency", "nvls_efficiency")
LONG, SHORT = 0.5, 0.2
_SIZES = 2  # distinct sizes that tell a group
_NOTICED = 0.02  # of a row's time, by a change of a group's constant by a like part of it
# Relative errors count by their squares up to this, by their sizes beyond; and in scores up to
# the second, so that rows that fell out don't decide.
UNIT, MOST = 0.08, 0.25
# By so much a run differs from the one before: no prediction is better than that.
REPEATED = 0.02
# The simplest within this of the best is taken, if it is so much better than the profile alone.
NEAR, WORTH = 1.03, 0.9
_STEP, _ROUNDS, _FAR = 1e-4, 20, 1.5
_TRIED, _FEW_ROUNDS = 8, 5  # groups of groups that are tried exactly, and how closely
_MOST_ROWS = 160  # in the search; all in the fit
_MOST_WEIGHT = 4.0
# What host an operation waits for is told by its least time.
_HOST = 0.9
_SETTLED = 1e-10  # of the largest constant: less is nought


def bounded(terms: Floats, target: Floats, weights: Floats, least: Floats) -> Floats:
    """Solve weighted least squares for constants that have a least value."""
    root = np.sqrt(weights)[:, None]
    scale = np.linalg.norm(root * terms, axis=0)
    scale[scale == 0.0] = 1.0
    matrix = root * terms / scale
    wanted = root[:, 0] * (target - terms @ least)
    count = terms.shape[1]
    solution = np.zeros(count)
    free = np.zeros(count, dtype=np.bool_)
    tolerance = 1e-12 * (1.0 + np.abs(matrix.T @ wanted).max(initial=0.0))
    for _ in range(4 * count + 4):
        pull = matrix.T @ (wanted - matrix @ solution)
        pull[free] = -np.inf
        if free.all() or pull.max(initial=-np.inf) <= tolerance:
            break
        free[int(np.argmax(pull))] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            if (trial[free] > 0.0).all():
                solution = trial
                break
            # Go towards the trial until the first of the free ones meets its bound.
            low = free & (trial <= 0.0)
            step = np.min(solution[low] / (solution[low] - trial[low]))
            solution = solution + step * (trial - solution)
            free &= solution > _SETTLED * solution.max(initial=0.0)
            solution[~free] = 0.0
            if not free.any():
                break
    return np.asarray(least + solution / scale)


@dataclass(frozen=True, slots=True)
class Fit:
    """A library's constants on a machine."""

    base: Mapping[str, float]  # The profile's
    values: Mapping[str, float]  # With the fitted ones in their places
    deviation: Mapping[str, float]  # Of each fitted one, a standard deviation, relative
    groups: tuple[str, ...]  # What was freed; nothing where the profile stays
    kept: Mapping[str, str]  # Why the others are the profile's, by group
    # Mean errors of rows that were left out of the fit: the profile's, and the fit's
    scores: tuple[float, float]
    before: Floats  # Predicted times with the profile's constants, and with the fitted ones [s]
    after: Floats
    algorithms: NDArray[np.str_]  # The algorithm that each time after the fit is of

    @property
    def fitted(self) -> tuple[str, ...]:
        """The constants that were fitted."""
        return tuple(self.deviation)


def fit_profile(model: Model) -> Fit:
    """Fit a machine's constants to rows."""
    problem = _Problem(model)
    kept = problem.undetermined()
    free = [name for name in TOLD_BY if name not in kept]
    groups: tuple[str, ...] = ()
    scores = (np.nan, np.nan)
    if free:
        thin = _Problem(Model(_thinned(model.rows), model.machine, model.algorithm), problem.host)
        groups, scores = _search(thin, free)
    kept |= {name: "freed, it predicts no better" for name in free if name not in groups}
    values, deviation = dict(model.base), dict[str, float]()
    if groups:
        marks = _marks([groups])
        fitted = problem.descend(marks, np.ones((1, len(model.rows))))
        deviation = problem.deviations(fitted, marks)
        each = problem.values(fitted.theta, marks)
        values |= {name: float(f"{each[name].item():.{DIGITS - 1}e}") for name in deviation}
    return Fit(
        base=model.base,
        values=values,
        deviation=deviation,
        groups=groups,
        kept=kept,
        scores=scores,
        before=model.times(),
        after=model.times(values),
        algorithms=model.algorithms(values),
    )


DIGITS = 5


def _marks(subsets: Sequence[Sequence[str]]) -> Marks:
    """Return which constants are free, of shape (subsets, constants)."""
    return np.array([[group in subset for _, group in TERMS] for subset in subsets])


@dataclass(slots=True)
class _State:
    """Where fits stand: constants, errors in units, and their slopes."""

    theta: Floats  # (fits, constants)
    errors: Floats  # (fits, rows)
    slopes: Floats  # (fits, constants, rows)
    loss: Floats  # (fits)


class _Problem:
    """Rows to be fitted."""

    def __init__(self, model: Model, host: float = 0.0) -> None:
        self.model, rows = model, model.rows
        self.weights = _alike(rows)
        wire = model.wire()
        self.wire = wire
        short = rows.time[wire < SHORT]
        self.host = host or _HOST * float(np.median(short if short.size else rows.time))
        nvls = np.array([name.startswith("nvls") for name in model.algorithms({})])
        self.shared = RATES if nvls.any() else RATES[:2]

    def values(self, theta: Floats, marks: Marks) -> dict[str, Floats]:
        """Return constants of shape (fits, 1) for logarithms of factors."""
        constants = {}
        links = theta[:, NAMES.index(LINKS)]
        for index, name in enumerate(NAMES):
            if name == LINKS or name not in self.model.base:
                continue
            factor = theta[:, index] + (links if name in self.shared else 0.0)
            base = np.asarray(self.model.base[name])
            if name == ISSUE:
                # Without its group the host is as it was.
                base = np.where(marks[:, index], self.host, base)
            value = base * np.exp(factor)
            constants[name] = np.minimum(value, VOCABULARY[name].maximum)[:, None]
        return constants

    def state(self, theta: Floats, marks: Marks, weights: Floats) -> _State:
        """Return errors and slopes at constants."""
        fits, count = theta.shape
        free = np.flatnonzero(marks.any(axis=0))
        points = np.repeat(theta[:, None, :], len(free) + 1, axis=1)
        points[:, np.arange(1, len(free) + 1), free] += _STEP
        every = np.repeat(marks, len(free) + 1, axis=0)
        times = self.model.times(self.values(points.reshape(-1, count), every))
        logs = np.log(times / self.model.rows.time).reshape(fits, len(free) + 1, -1) / UNIT
        slopes = np.zeros((fits, count, logs.shape[-1]))
        slopes[:, free] = (logs[:, 1:] - logs[:, :1]) / _STEP * marks[:, free, None]
        errors = logs[:, 0]
        soft = 2.0 * (np.hypot(1.0, errors) - 1.0)
        loss = (self.weights * weights * soft).sum(axis=1) + ((theta / DEVIATIONS) ** 2).sum(axis=1)
        return _State(theta, errors, slopes, loss)

    def descend(
        self, marks: Marks, weights: Floats, start: Floats | None = None, rounds: int = _ROUNDS
    ) -> _State:
        """Fit marked constants to weighted rows, each fit by itself (Levenberg and Marquardt)."""
        begin = np.zeros(marks.shape) if start is None else start * marks
        now = self.state(begin, marks, weights)
        damping = np.full(len(marks), 1e-3)
        for _ in range(rounds):
            step = _newton(now, marks, self.weights * weights, damping)
            new = self.state(now.theta + np.clip(step, -_FAR, _FAR), marks, weights)
            better = new.loss < now.loss
            gain = np.where(better, now.loss - new.loss, 0.0)
            for name in ("theta", "errors", "slopes", "loss"):
                mark = better.reshape((-1,) + (1,) * (getattr(now, name).ndim - 1))
                setattr(now, name, np.where(mark, getattr(new, name), getattr(now, name)))
            damping = np.where(better, damping * 0.2, damping * 8.0)
            if (gain <= 1e-4 * (1.0 + now.loss)).all() and (better | (damping > 10.0)).all():
                break
        return now

    def deviations(self, state: _State, marks: Marks) -> dict[str, float]:
        """Return a standard deviation, relative, of each constant that rows tell."""
        weights = self.weights / np.hypot(1.0, state.errors[0])
        slopes = state.slopes[0]
        # The scatter about the fit, where it is more than the unit of errors.
        spread = max(float(np.average(np.minimum(state.errors[0] ** 2, 9.0), weights=weights)), 1.0)
        matrix = (slopes * weights) @ slopes.T / spread + np.diag(DEVIATIONS**-2.0)
        covariance = np.linalg.inv(matrix)
        relative = {}
        links = NAMES.index(LINKS)
        for index in np.flatnonzero(marks[0]):
            name = NAMES[index]
            if name == LINKS or name not in self.model.base:
                continue
            part = np.zeros(len(NAMES))
            part[index] = 1.0
            if name in self.shared:
                part[links] = 1.0
            # A rate at its bound has no slope, and isn't the profile's.
            if np.abs(part @ slopes).max() * UNIT >= _NOTICED or abs(part @ state.theta[0]) > 0.01:
                relative[name] = float(np.sqrt(part @ covariance @ part))
        return relative

    def undetermined(self) -> dict[str, str]:
        """Return the groups that rows can't tell, and why."""
        rows = self.model.rows
        at = self.state(
            np.zeros((1, len(NAMES))), _marks([tuple(TOLD_BY)]), np.ones((1, len(rows)))
        )
        slopes = np.abs(at.slopes[0]) * UNIT
        which = {
            "long": self.wire > LONG,
            "short": self.wire < SHORT,
            "middling": (self.wire >= SHORT) & (self.wire <= LONG),
        }
        reasons: dict[str, str] = {}
        for group, length in TOLD_BY.items():
            terms = np.array([name == group for _, name in TERMS])
            noticed = (slopes[terms] >= _NOTICED).any(axis=0) | (group == "host")
            if not noticed.any():
                between = group.startswith("fabric") and not rows.between.any()
                reasons[group] = "no log spans nodes" if between else "no row pays it"
                continue
            own_rows = rows.between if group.startswith("fabric") else np.ones(len(rows), np.bool_)
            sizes = np.unique(rows.message_bytes[which[length] & own_rows])
            if len(sizes) < _SIZES:
                reasons[group] = f"no two {length} messages that tell it"
            elif group == "step" and len(np.unique(rows.ranks[which["short"] & noticed])) < 2:
                reasons[group] = "one number of ranks doesn't tell it from the launch"
        return reasons


def _alike(rows: Rows) -> Floats:
    """Return weights with which each operation, rank count and class of size counts alike."""
    keys = zip(rows.operation, rows.ranks, class_of(rows.message_bytes), strict=True)
    _, inverse, counts = np.unique(
        np.array([f"{first} {two:g} {three}" for first, two, three in keys]),
        return_inverse=True,
        return_counts=True,
    )
    each = len(rows) / (len(counts) * counts)
    return np.asarray(np.minimum(each, _MOST_WEIGHT)[inverse])


def _newton(now: _State, marks: Marks, weights: Floats, damping: Floats) -> Floats:
    """Return the steps to the least of the losses' quadratics."""
    weights_now = weights / np.hypot(1.0, now.errors)
    weighted = now.slopes * weights_now[:, None, :]
    matrix = weighted @ now.slopes.transpose(0, 2, 1)
    matrix = _bounded_to(matrix, marks, damping)
    pull = (weighted @ now.errors[..., None])[..., 0] + now.theta / DEVIATIONS**2
    return -np.linalg.solve(matrix, (pull * marks)[..., None])[..., 0] * marks


def _bounded_to(matrix: Floats, marks: Marks, damping: Floats) -> Floats:
    """Return normal equations with what is likely in them, of marked constants alone."""
    diagonal = np.arange(len(NAMES))
    both = marks[:, :, None] & marks[:, None, :]
    matrix = np.where(both, matrix, 0.0)
    matrix[:, diagonal, diagonal] *= 1.0 + damping[:, None]
    matrix[:, diagonal, diagonal] += DEVIATIONS**-2.0
    return matrix


# Which groups to free: all groups of groups, by how well they predict rows that were left out.


def _search(problem: _Problem, free: Sequence[str]) -> tuple[tuple[str, ...], tuple[float, float]]:
    """Return the groups that are worth freeing, and the scores of the profile and of the fit."""
    every = list(chain.from_iterable(combinations(free, n) for n in range(len(free) + 1)))
    folds, shares = _folds(problem.model.rows)
    start, rough = _linear(problem, every, folds, shares)
    best = sorted({0, *np.argsort(rough, kind="stable")[:_TRIED].tolist()})
    every = [every[index] for index in best]
    marks = np.repeat(_marks(every), len(folds), axis=0)
    train = np.tile(folds, (len(every), 1)).astype(np.float64)
    fits = problem.descend(marks, train, start[best].reshape(marks.shape), _FEW_ROUNDS)
    each = _left_out(problem, fits.errors.reshape(len(every), len(folds), -1), folds, shares)
    near = [index for index, error in enumerate(each) if error <= NEAR * each.min()]
    taken = min(near, key=lambda candidate: (len(every[candidate]), each[candidate]))
    untouched = float(each[every.index(())])
    if each[taken] > WORTH * untouched:
        taken = every.index(())
    return tuple(every[taken]), (untouched, float(each[taken]))


def _folds(rows: Rows) -> tuple[Marks, Floats]:
    """Return which rows each fold fits, and how much it counts: sizes by turns, fewer ranks."""
    order = np.empty(len(rows), dtype=np.intp)
    for case in np.unique(rows.case):
        rows_of_case = rows.case == case
        order[rows_of_case] = np.unique(rows.message_bytes[rows_of_case], return_inverse=True)[1]
    folds, shares = [order % 2 == 0, order % 2 == 1], [1.0, 1.0]
    ranks = np.unique(rows.ranks)
    if len(ranks) > 1:
        folds.append(rows.ranks <= ranks[(len(ranks) - 1) // 2])
        shares.append(2.0)
    parted = [index for index, fold in enumerate(folds) if fold.any() and not fold.all()]
    return np.array(folds)[parted], np.array(shares)[parted]


def _left_out(problem: _Problem, errors: Floats, folds: Marks, shares: Floats) -> Floats:
    """Return the mean error of rows that were left out, of shape (subsets)."""
    size = np.minimum(np.abs(errors) * UNIT, MOST)
    weights = problem.weights * ~folds
    each = (size * weights).sum(axis=-1) / weights.sum(axis=-1)
    return np.hypot((each * shares).sum(axis=-1) / shares.sum(), REPEATED)


def _linear(
    problem: _Problem, every: Sequence[Sequence[str]], folds: Marks, shares: Floats
) -> tuple[Floats, Floats]:
    """Return fits and their scores if errors were linear about the fit of all groups."""
    marks = _marks(every)
    whole = np.atleast_2d(marks.any(axis=0))
    at = problem.descend(whole, np.ones((1, len(problem.model.rows))))
    errors, slopes, theta = at.errors[0], at.slopes[0], at.theta[0]
    row_weights = problem.weights / np.hypot(1.0, errors)
    errors_out = np.empty((len(every), len(folds), len(errors)))
    moved = np.empty((len(every), len(folds), len(theta)))
    level = errors - theta @ slopes
    for index, fold in enumerate(folds):
        matrix = (slopes * (row_weights * fold)) @ slopes.T
        each = _bounded_to(np.repeat(matrix[None], len(every), axis=0), marks, np.zeros(len(every)))
        pull = slopes @ (row_weights * fold * level)
        moved[:, index] = -np.linalg.solve(each, (pull * marks)[..., None])[..., 0] * marks
        errors_out[:, index] = level + moved[:, index] @ slopes
    return moved, _left_out(problem, errors_out, folds, shares)


def _thinned(rows: Rows) -> Rows:
    """Return rows for the search: the middle one of each case and size, and no more than needed."""
    keys = np.stack([rows.case.astype(np.float64), rows.message_bytes])
    _, inverse = np.unique(keys, axis=1, return_inverse=True)
    kept = np.zeros(len(rows), dtype=np.bool_)
    inverse = inverse.reshape(-1)
    for group in range(inverse.max() + 1):
        rows_of_group = np.flatnonzero(inverse == group)
        kept[
            rows_of_group[
                np.argsort(rows.time[rows_of_group], kind="stable")[(len(rows_of_group) - 1) // 2]
            ]
        ] = True
    count = int(kept.sum())
    if count > _MOST_ROWS:
        each = np.flatnonzero(kept)
        kept[:] = False
        kept[each[np.linspace(0, count - 1, _MOST_ROWS).round().astype(int)]] = True
    return rows.where(kept)


# A curve that was measured, at other sizes.

_FOLLOWED, _LEAST_SIZES, _PART, _ODD = 30, 6, 0.7, 0.3


def follow(
    sizes: Floats, times: Floats, predicted: Floats, wanted: Floats, there: Floats, ideal: Floats
) -> Floats:
    """Return a curve's times at other message sizes than those that were measured.

    They follow what was measured: sums of a constant, the size, its root and what the machine's
    constants predict, none below nought; times most of what is left, between neighbours; never
    falling, and never below the wire's.  Of fewer sizes they are what the constants predict.
    """
    known, inverse = np.unique(sizes, return_inverse=True)
    if len(known) < _LEAST_SIZES:
        return there
    middle = [
        np.array([np.median(values[inverse == n]) for n in range(len(known))])
        for values in (times, predicted)
    ]
    time, machine = middle
    terms = np.stack([np.ones_like(known), known, np.sqrt(known), machine], axis=1)
    weights, least = np.ones(len(known)), np.zeros(4)
    for _ in range(_FOLLOWED):
        coefficients = bounded(terms / time[:, None], np.ones(len(known)), weights, least)
        weights = 1.0 / np.hypot(1.0 - terms @ coefficients / time, 0.02)
    rest = np.log(time / (terms @ coefficients))
    rest[np.abs(rest) > _ODD] = 0.0
    each = np.stack([np.ones_like(wanted), wanted, np.sqrt(wanted), there], axis=1) @ coefficients
    each *= np.exp(_PART * np.interp(np.log(wanted), np.log(known), rest))
    order = np.argsort(wanted, kind="stable")
    each[order] = np.maximum.accumulate(each[order])
    return np.maximum(each, ideal)


# Errors of predictions beside measured rows, by operation and class of message size.

ALL = "all"


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of some rows."""

    operation: str  # Which; ``all`` stands for all of them
    size_class: str
    count: int  # How many rows
    # Median size of the relative error: with the machine's file, and with the fitted constants
    before: float
    after: float
    signed_before: float  # Median relative error; below 0 where the prediction is too fast
    signed_after: float


def scores_of(rows: Rows, before: Floats, after: Floats) -> list[Score]:
    """Return the errors by operation and class of size, and of all rows at the end."""
    errors = before / rows.time - 1.0, after / rows.time - 1.0
    classes = class_of(rows.message_bytes)
    scores = []
    for operation in dict.fromkeys(rows.operation.tolist()):
        for index, name in enumerate(SIZE_CLASSES):
            mask = (rows.operation == operation) & (classes == index)
            if mask.any():
                scores.append(_score(operation, name, errors[0][mask], errors[1][mask]))
    return [*scores, _score(ALL, ALL, *errors)]


def _score(operation: str, name: str, before: Floats, after: Floats) -> Score:
    sizes = [float(np.median(np.abs(distances))) for distances in (before, after)]
    signed = [float(np.median(distances)) for distances in (before, after)]
    return Score(operation, name, len(before), *sizes, *signed)


# Rows that fall out: of the band about the fit, or from between their neighbours in size.

WIDTH = 3.0  # robust standard deviations
_SIGMA = 1.4826  # standard deviations in a median of sizes, of what is normally distributed
# Repeated runs scatter by this much, so that less is nothing to tell; beside neighbours, whose
# protocols may differ, by more.
_LEAST, _LEAST_OF_NEIGHBOURS = 0.02, 0.1
_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Outlier:
    """A row that falls out."""

    row: int  # Its place among the rows
    # What it takes longer than the fit predicts, in parts of that; below 0 where it is faster
    excess: float
    local_excess: float  # The same against its neighbours in size; NaN where it has too few
    reason: str  # ``fit`` or ``neighbours``: what it falls out of


def scatter(rows: Rows, predicted: Floats) -> Floats:
    """Return the robust standard deviation of log(measured/predicted) of each class of size."""
    far = np.abs(np.log(rows.time / predicted))
    return _by_class(far, class_of(rows.message_bytes), _LEAST)


def _by_class(far: Floats, classes: NDArray[np.intp], least: float) -> Floats:
    spread = np.full(len(SIZE_CLASSES), np.nan)
    for index in range(len(spread)):
        distances = far[(classes == index) & np.isfinite(far)]
        if distances.size:
            spread[index] = max(_SIGMA * float(np.median(distances)), least)
    return spread


def fall_out(rows: Rows, predicted: Floats) -> list[Outlier]:
    """Return the rows beyond three robust standard deviations, the furthest first."""
    ratio = np.log(rows.time / predicted)
    classes = class_of(rows.message_bytes)
    local = against_neighbours(rows, ratio)
    wide = scatter(rows, predicted)[classes]
    near = _by_class(np.abs(local), classes, _LEAST_OF_NEIGHBOURS)[classes]
    of_fit = np.abs(ratio) > WIDTH * wide
    of_neighbours = np.abs(np.nan_to_num(local)) > WIDTH * near
    outliers = [
        Outlier(
            int(row),
            float(np.expm1(ratio[row])),
            float(np.expm1(local[row])),
            "fit" if of_fit[row] else "neighbours",
        )
        for row in np.flatnonzero(of_fit | of_neighbours)
    ]
    return sorted(outliers, key=lambda outlier: -abs(np.log1p(outlier.excess)))


def against_neighbours(rows: Rows, ratio: Floats) -> Floats:
    """Return how far each row is from the median of its neighbours in size; NaN with too few."""
    ratios = np.full(len(rows), np.nan)
    for case in np.unique(rows.case):
        for placement in np.unique(rows.placement[rows.case == case]):
            rows_of_curve = np.flatnonzero((rows.case == case) & (rows.placement == placement))
            rows_of_curve = rows_of_curve[
                np.argsort(rows.message_bytes[rows_of_curve], kind="stable")
            ]
            if len(rows_of_curve) <= _NEIGHBOURS:
                continue
            for index in range(len(rows_of_curve)):
                first = min(max(index - _NEIGHBOURS // 2, 0), len(rows_of_curve) - _NEIGHBOURS - 1)
                near = np.delete(rows_of_curve[first : first + _NEIGHBOURS + 1], index - first)
                ratios[rows_of_curve[index]] = ratio[rows_of_curve[index]] - np.median(ratio[near])
    return ratios
