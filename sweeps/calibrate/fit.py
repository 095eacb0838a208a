"""A machine's links fitted to measured rows: bandwidths, latencies, and the launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.model import (
    BANDWIDTHS,
    CONSTANTS,
    LATENCIES,
    LAUNCH,
    Model,
    Rows,
    base_values,
    vector,
)
from sweeps.errors import InputError
from sweeps.spec.machine import Machine
from sweeps.validate.sizes import SIZE_CLASSES, class_of

# Least squares with bounds, and the robust fit of linear terms to relative errors.

Floats = NDArray[np.float64]

# Relative errors count by their squares up to about this, by their sizes beyond: a row that a
# busy link made slow pulls no harder than others.  About what repeated runs scatter by.
SOFT = 0.02
_REPEATS = 40
_SETTLED, _RIDGE, _TINY = 1e-10, 1e-10, 1e-300


def loss(errors: Floats, weights: Floats) -> float:
    """Return the sum of the relative errors' sizes, rounded at nought."""
    return float(np.sum(weights * (np.hypot(errors, SOFT) - SOFT)))


def robust_weights(errors: Floats, weights: Floats) -> Floats:
    """Return the weights with which least squares has the gradient of `loss`."""
    return np.asarray(weights / np.hypot(errors, SOFT))


def bounded(terms: Floats, target: Floats, weights: Floats, least: Floats) -> Floats:
    """Solve weighted least squares for constants that have a least value."""
    root = np.sqrt(weights)[:, None]
    scale = np.linalg.norm(root * terms, axis=0)
    scale[scale == 0.0] = 1.0
    matrix = root * terms / scale
    wanted = root[:, 0] * (target - terms @ least)
    count = terms.shape[1]
    found = np.zeros(count)
    free = np.zeros(count, dtype=np.bool_)
    tolerance = 1e-12 * (1.0 + np.abs(matrix.T @ wanted).max(initial=0.0))
    for _ in range(4 * count + 4):
        pull = matrix.T @ (wanted - matrix @ found)
        pull[free] = -np.inf
        if free.all() or pull.max(initial=-np.inf) <= tolerance:
            break
        free[int(np.argmax(pull))] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            if (trial[free] > 0.0).all():
                found = trial
                break
            # Go towards the trial until the first of the free ones meets its bound.
            low = free & (trial <= 0.0)
            step = np.min(found[low] / (found[low] - trial[low]))
            found = found + step * (trial - found)
            free &= found > _SETTLED * found.max(initial=0.0)
            found[~free] = 0.0
            if not free.any():
                break
    return np.asarray(least + found / scale)


def resampled(terms: Floats, targets: Floats, weights: Floats, seed: int) -> Floats:
    """Fit constants again to rows that are drawn with replacement."""
    samples, (rows, count) = len(targets), terms.shape
    scale = np.linalg.norm(terms, axis=0)
    scale[scale == 0.0] = 1.0
    matrix = terms / scale
    drawn = np.random.default_rng(seed).multinomial(rows, np.full(rows, 1.0 / rows), samples)
    counts = drawn * weights
    found = np.zeros((samples, count))
    pairs = (matrix[:, :, None] * matrix[:, None, :]).reshape(rows, -1)
    own = counts
    for _ in range(_REPEATS):
        normal = (own @ pairs).reshape(samples, count, count)
        right = (own * targets) @ matrix
        size = np.trace(normal, axis1=1, axis2=2)[:, None] + _TINY
        # A ridge far below the smallest term that counts: samples may lack a constant's rows.
        normal = normal / size[:, :, None] + _RIDGE * np.eye(count)
        last, found = found, np.linalg.solve(normal, (right / size)[:, :, None])[:, :, 0]
        if np.allclose(last, found, rtol=1e-6, atol=1e-12):
            break
        own = counts / np.hypot(targets - found @ matrix.T, SOFT)
    return np.asarray(found / scale)


# Errors of predictions beside measured rows, by operation and class of message size.

ALL = "all"


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of some rows."""

    operation: str  # Which; ``all`` stands for all of them
    size_class: str  # Which; ``all`` stands for all of them
    count: int  # How many rows
    # Median size of the relative error: with the machine's file, and with the fitted constants
    before: float
    # Median size of the relative error: with the machine's file, and with the fitted constants
    after: float
    signed_before: float  # Median relative error; below 0 where the prediction is too fast
    signed_after: float  # Median relative error; below 0 where the prediction is too fast


def scores_of(rows: Rows, before: Floats, after: Floats) -> list[Score]:
    """Return the errors by operation and class of size, and of all rows at the end."""
    errors = before / rows.time - 1.0, after / rows.time - 1.0
    classes = class_of(rows.message_bytes)
    found = []
    for operation in dict.fromkeys(rows.operation.tolist()):
        for index, name in enumerate(SIZE_CLASSES):
            own = (rows.operation == operation) & (classes == index)
            if own.any():
                found.append(_score(operation, name, errors[0][own], errors[1][own]))
    return [*found, _score(ALL, ALL, *errors)]


def _score(operation: str, name: str, before: Floats, after: Floats) -> Score:
    sizes = [float(np.median(np.abs(one))) for one in (before, after)]
    signed = [float(np.median(one)) for one in (before, after)]
    return Score(operation, name, len(before), *sizes, *signed)


# Rows that fall out: of the band about the fit, or from between their neighbours in size.

WIDTH = 3.0  # robust standard deviations
_SIGMA = 1.4826  # standard deviations in a median of sizes, of what is normally distributed
# Repeated runs scatter by this much, so that less is nothing to tell; beside neighbours, whose
# protocols may differ, by more.
_LEAST, _LEAST_BESIDE = 0.02, 0.1
_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Outlier:
    """A row that falls out."""

    row: int  # Its place among the rows
    # What it takes longer than the fit predicts, in parts of that; below 0 where it is faster
    excess: float
    beside: float  # The same beside its neighbours in size; NaN where it has too few
    reason: str  # ``fit`` or ``neighbours``: what it falls out of


def scatter(rows: Rows, predicted: Floats) -> Floats:
    """Return the robust standard deviation of log(measured/predicted) of each class of size."""
    far = np.abs(np.log(rows.time / predicted))
    return _by_class(far, class_of(rows.message_bytes), _LEAST)


def _by_class(far: Floats, classes: NDArray[np.intp], least: float) -> Floats:
    found = np.full(len(SIZE_CLASSES), np.nan)
    for index in range(len(found)):
        own = far[(classes == index) & np.isfinite(far)]
        if own.size:
            found[index] = max(_SIGMA * float(np.median(own)), least)
    return found


def fall_out(rows: Rows, predicted: Floats) -> list[Outlier]:
    """Return the rows beyond three robust standard deviations, the furthest first."""
    ratio = np.log(rows.time / predicted)
    classes = class_of(rows.message_bytes)
    beside = _beside(rows, ratio)
    wide = scatter(rows, predicted)[classes]
    near = _by_class(np.abs(beside), classes, _LEAST_BESIDE)[classes]
    of_fit = np.abs(ratio) > WIDTH * wide
    of_neighbours = np.abs(np.nan_to_num(beside)) > WIDTH * near
    found = [
        Outlier(
            int(place),
            float(np.expm1(ratio[place])),
            float(np.expm1(beside[place])),
            "fit" if of_fit[place] else "neighbours",
        )
        for place in np.flatnonzero(of_fit | of_neighbours)
    ]
    return sorted(found, key=lambda one: -abs(np.log1p(one.excess)))


def _beside(rows: Rows, ratio: Floats) -> Floats:
    """Return how far each row is from the median of its neighbours in size; NaN with too few."""
    found = np.full(len(rows), np.nan)
    for case in np.unique(rows.case):
        for placement in np.unique(rows.placement[rows.case == case]):
            own = np.flatnonzero((rows.case == case) & (rows.placement == placement))
            own = own[np.argsort(rows.message_bytes[own], kind="stable")]
            if len(own) <= _NEIGHBOURS:
                continue
            for place in range(len(own)):
                first = min(max(place - _NEIGHBOURS // 2, 0), len(own) - _NEIGHBOURS - 1)
                near = np.delete(own[first : first + _NEIGHBOURS + 1], place - first)
                found[own[place]] = ratio[own[place]] - np.median(ratio[near])
    return found


# Which constants some rows tell, and which are left as the machine's file has them, and why.

# A row pays latency mostly if its rate is at most this part of the best of its test, and transfer
# if it takes so many times the least time of its test.
_SLOW, _LONG = 0.5, 2.0
# A constant counts in a row from this part of the row's time on; transfer, where latency is known
# only from the file, if all else is at most this part.
_NOTICED, _BESIDE = 0.02, 0.1
_SIZES = 2  # distinct sizes
# A constant that others explain to all but this part can't be told from them.
_APART = 0.1
_MOST_WEIGHT = 4.0
_UNUSED = "no row's algorithm pays it"
_ORDER = (*BANDWIDTHS, "intra_latency", "inter_latency", "in_network_latency", LAUNCH)


def class_weights(classes: NDArray[np.intp]) -> Floats:
    """Return weights with which classes of message size count alike."""
    names, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
    each = len(classes) / (len(names) * counts)
    return np.asarray(np.minimum(each, _MOST_WEIGHT)[place])


def untold(rows: Rows, terms: Floats, values: Floats, names: Sequence[str]) -> dict[str, str]:
    """Return the constants that rows don't tell."""
    slow, long = _bound(rows)
    shares = terms * values / rows.time[:, None]
    places = {name: place for place, name in enumerate(CONSTANTS)}
    others = [place for name, place in places.items() if name not in BANDWIDTHS]
    beside = shares[:, others].sum(axis=1) <= _BESIDE
    found: dict[str, str] = {}
    for name, place in places.items():
        noticed = shares[:, place] >= _NOTICED
        used = terms[:, place] > 0.0
        if name == LAUNCH or name not in names:
            continue
        if not used.any():
            levels = rows.between.any() and name != "in_network_latency"
            found[name] = "another link bounds every row" if levels else _UNUSED
        elif name in BANDWIDTHS:
            if _few(rows, noticed & long) and not (noticed & beside).any():
                found[name] = "no messages long enough to tell it from latency"
        elif name == "in_network_latency":
            # Only messages of middling size go that way; others tell the rest.
            if _few(rows, shares[:, place] >= _BESIDE):
                found[name] = "too few messages pay it"
        elif _few(rows, used & slow):
            found[name] = "no messages short enough to tell it from transfer"
    if LAUNCH in names and _few(rows, slow):
        found[LAUNCH] = "no messages short enough to tell it"
    return found | _alike(rows, terms, [name for name in _ORDER if name in {*names} - {*found}])


def _bound(rows: Rows) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows pay latency mostly, and which pay transfer."""
    slow, long = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.bool_)
    rate = rows.message_bytes / rows.time
    for case in np.unique(rows.case):
        own = rows.case == case
        slow[own] = rate[own] <= _SLOW * rate[own].max()
        long[own] = rows.time[own] >= _LONG * rows.time[own].min()
    return slow, long


def _few(rows: Rows, chosen: NDArray[np.bool_]) -> bool:
    """Return whether rows have fewer distinct sizes than tell a constant."""
    return len(np.unique(rows.message_bytes[chosen])) < _SIZES


def _alike(rows: Rows, terms: Floats, names: Sequence[str]) -> dict[str, str]:
    """Return the constants whose terms are those of others, times a number."""
    found: dict[str, str] = {}
    places = {name: place for place, name in enumerate(CONSTANTS)}
    kept: list[str] = []
    for name in names:
        columns = terms[:, [places[one] for one in (*kept, name)]] / rows.time[:, None]
        columns = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        own, others = columns[:, -1], columns[:, :-1]
        rest = own
        if kept:
            rest = own - others @ np.linalg.lstsq(others, own, rcond=None)[0]
        if np.linalg.norm(rest) >= _APART:
            kept.append(name)
        elif name == LAUNCH:
            found[name] = (
                "every row pays it and latency in one proportion: the fitted latency holds it"
            )
        else:
            found[name] = "its terms can't be told from those of " + " and ".join(kept)
    return found


SAMPLES, SEED = 200, 20240613
# No row is known better than this part of itself: so much a run differs from the one before, also
# where the rows at hand agree by chance.
_REPEATED = 0.01
DIGITS = 5
_ROUNDS, _HALVINGS = 60, 6
# Of the loss: less isn't worth a further round, while beginnings are compared and at the end.
_COARSE, _FINE = 3e-3, 1e-6
_FAR_WORSE = 1.5
_SCATTERED = 0.5  # of a constant: rows whose draws scatter it by more contradict each other
# Where the search begins: the file's latencies times the first, bandwidths times the second, and
# a launch as many programs on a GPU have it.
_STARTS = ((1.0, 1.0, 0.0), (1.0, 0.7, 5e-6), (6.0, 0.3, 0.0), (0.3, 0.8, 1e-5))


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants fitted to rows."""

    # The constants of the machine's file, and with the fitted ones in their places
    base: Mapping[str, float]
    # The constants of the machine's file, and with the fitted ones in their places
    values: Mapping[str, float]
    # Of each fitted constant one standard deviation: how much it scatters when rows are drawn with
    # replacement.  What the model leaves out isn't in it
    deviation: Mapping[str, float]
    kept: Mapping[str, str]  # Why a constant is the file's: by constant
    before: Floats  # Predicted times with the file's constants, and with the fitted ones [s]
    after: Floats  # Predicted times with the file's constants, and with the fitted ones [s]
    algorithms: NDArray[np.str_]  # The algorithm that each time after the fit is of

    @property
    def fitted(self) -> tuple[str, ...]:
        """The constants that were fitted."""
        return tuple(self.deviation)


def fit_links(rows: Rows, machine: Machine, algorithm: str = "nccl") -> Fit:
    """Fit a machine's links to measured rows."""
    base = base_values(machine)
    values, deviation, kept = dict(base), dict[str, float](), dict[str, str]()
    draws = np.tile(np.nan_to_num(vector(base)), (SAMPLES, 1))
    # Each level from its own tests: rows within a node first, then those of several nodes with
    # what the first have told.
    for several in (False, True):
        own = rows.where(rows.between == several)
        if len(own):
            told = [
                name
                for name in CONSTANTS
                if name not in deviation and (several or not name.startswith("inter_"))
            ]
            stage = _Stage(Model(own, machine, algorithm), values, told, draws)
            draws = stage.draws
            values, deviation = stage.values, deviation | stage.deviation
            kept = stage.kept | kept
    kept = {name: why for name, why in kept.items() if name not in deviation}
    if not rows.between.any():
        kept |= dict.fromkeys(("inter_bandwidth", "inter_latency"), "no log spans nodes")
    if not set(deviation) - {LAUNCH}:
        raise InputError(_nothing(kept))
    model = Model(rows, machine, algorithm)
    return Fit(
        base=base,
        values=values,
        deviation=deviation,
        kept=kept,
        before=model.design(base) @ vector(base),
        after=model.design(values) @ vector(values),
        algorithms=model.algorithms(values),
    )


class _Stage:
    """A fit to the rows of one level: what they tell, one constant fewer until all is resolved."""

    def __init__(
        self, model: Model, base: Mapping[str, float], names: Sequence[str], draws: Floats
    ) -> None:
        self.draws = draws
        rows = model.rows
        self.values, self.deviation = dict(base), dict[str, float]()
        # With the file's constants one level may hide another: what rows tell from any of the
        # beginnings is fitted, and looked at again with what was found.
        each = [untold(rows, model.design(one), vector(one), names) for one in _starts(base, names)]
        hidden = set(names).intersection(*each)
        self.kept = {name: why for name, why in each[0].items() if name in hidden}
        for _ in CONSTANTS:
            free = [name for name in names if name not in self.kept]
            if not set(free) - {LAUNCH}:
                self.values, self.deviation = dict(base), {}
                return
            found = _search(model, rows, base, free)
            self.values = {n: _rounded(one) if n in free else one for n, one in found.items()}
            options = _unresolved(self.values, free, rows, model)
            if not options:
                drawn = _draws(model, self.values, free, draws)
                self.deviation = _deviation(self.values, free, drawn, rows)
                options = self._worth(_scattered(self.values, self.deviation), model, base, free)
            if not options:
                self.draws = drawn
                return
            # Where one of several can't be told, the one is left without which rows fit best.
            losses = [_loss_without(model, base, free, one) for one in options]
            self.kept |= options[int(np.argmin(losses))]

    def _worth(
        self,
        scattered: Mapping[str, str],
        model: Model,
        base: Mapping[str, float],
        free: Sequence[str],
    ) -> list[Mapping[str, str]]:
        """Return what is better left out: what scatters, unless rows fit far worse without it."""
        if not scattered:
            return []
        now = _loss(model, self.values)
        worse = _loss_without(model, base, free, scattered) > _FAR_WORSE * now
        return [] if worse else [scattered]


def _loss(model: Model, values: Mapping[str, float]) -> float:
    errors = 1.0 - model.design(values) @ vector(values) / model.rows.time
    return loss(errors, _weights(model.rows))


def _loss_without(
    model: Model, base: Mapping[str, float], free: Sequence[str], left: Mapping[str, str]
) -> float:
    """Return how well rows fit with some constants as the file has them."""
    rest = [name for name in free if name not in left]
    if not set(rest) - {LAUNCH}:
        return np.inf
    return _loss(model, _search(model, model.rows, base, rest))


def _nothing(kept: Mapping[str, str]) -> list[str]:
    return [f"LOG: {name} can't be fitted: {why}" for name, why in kept.items() if name != LAUNCH]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS - 1}e}")


def _weights(rows: Rows) -> Floats:
    return class_weights(class_of(rows.message_bytes))


def _least(free: Sequence[str]) -> Floats:
    return np.array([CONSTANTS[name].least for name in free])


def _starts(base: Mapping[str, float], free: Sequence[str]) -> list[dict[str, float]]:
    """Return where a search begins."""
    found = []
    for latency, bandwidth, launch in _STARTS:
        start = dict(base)
        for name in free:
            factor = bandwidth if CONSTANTS[name].inverse else latency
            start[name] = launch if name == LAUNCH else base[name] * factor
        found.append(start)
    return found


def _search(
    model: Model, rows: Rows, base: Mapping[str, float], free: Sequence[str]
) -> dict[str, float]:
    """Return the constants of least loss, from the best of several beginnings."""
    found = [_descend(model, rows, start, free, _COARSE) for start in _starts(base, free)]
    _, best = min(found, key=lambda pair: pair[0])
    return _descend(model, rows, best, free, _FINE)[1]


def _descend(
    model: Model, rows: Rows, values: dict[str, float], free: Sequence[str], better: float
) -> tuple[float, dict[str, float]]:
    """Fit the terms of the chosen algorithms, choose again, until nothing gets better."""
    weights, least = _weights(rows), _least(free)
    places = [list(CONSTANTS).index(name) for name in free]
    terms = model.design(values) / rows.time[:, None]
    now = vector(values)
    now[~np.isfinite(now)] = 0.0
    errors = 1.0 - terms @ now
    least_loss = loss(errors, weights)
    for _ in range(_ROUNDS):
        own = terms[:, places]
        target = errors + own @ now[places]
        goal = bounded(own, target, robust_weights(errors, weights), least)
        step, began = goal - now[places], least_loss
        for halving in range(_HALVINGS):
            trial = now.copy()
            trial[places] = now[places] + step * 0.5**halving
            tried = _values(trial, values, free)
            new = model.design(tried) / rows.time[:, None]
            new_errors = 1.0 - new @ trial
            if (lower := loss(new_errors, weights)) < least_loss:
                now, terms, errors, least_loss, values = trial, new, new_errors, lower, tried
                break
        if began - least_loss <= better * (began + 1e-12):
            break
    return least_loss, values


def _values(
    constants: Floats, values: Mapping[str, float], free: Sequence[str]
) -> dict[str, float]:
    """Return constants by name; a bandwidth whose inverse is nought is without end."""
    found = dict(values)
    for place, (name, one) in enumerate(CONSTANTS.items()):
        if name in free:
            number = float(constants[place])
            found[name] = (1.0 / number if number > 0.0 else np.inf) if one.inverse else number
    return found


def _unresolved(
    values: Mapping[str, float], free: Sequence[str], rows: Rows, model: Model
) -> list[Mapping[str, str]]:
    """Return what may be left out: constants at their bounds, or that can't be told apart."""
    for name in free:
        if CONSTANTS[name].inverse and not np.isfinite(values[name]):
            return [{name: "the rows don't tell it: they'd take it to be without end"}]
    low = [name for name in LATENCIES if name in free and values[name] <= CONSTANTS[name].least]
    options: list[Mapping[str, str]] = [
        {name: "the rows don't tell it: they'd take it to be nothing"} for name in low
    ]
    if low and LAUNCH in free:
        options.append({LAUNCH: "it can't be told from latency, which holds it"})
    if options:
        return options
    if LAUNCH in free and values[LAUNCH] <= 0.0:
        return [{LAUNCH: "the rows show none"}]
    found = untold(rows, model.design(values), vector(values), free)
    return [found] if found else []


def _scattered(values: Mapping[str, float], deviation: Mapping[str, float]) -> dict[str, str]:
    """Return the constant that rows contradict each other most about, if one is beyond bounds."""
    shares = {name: one / values[name] for name, one in deviation.items() if values[name] > 0.0}
    name = max(shares, key=lambda one: np.nan_to_num(shares[one]))
    if not shares[name] > _SCATTERED:
        return {}
    return {name: f"the rows contradict each other about it (+- {100.0 * shares[name]:.0f} %)"}


def _draws(
    model: Model, values: Mapping[str, float], free: Sequence[str], others: Floats
) -> Floats:
    """Return constants fitted to rows drawn with replacement, as `vector` has them.

    What earlier stages have fitted is in `others`, of shape (samples, constants): it scatters too.
    """
    rows = model.rows
    places = [list(CONSTANTS).index(name) for name in free]
    fixed = [place for place in range(len(CONSTANTS)) if place not in places]
    terms = model.design(values) / rows.time[:, None]
    targets = 1.0 - others[:, fixed] @ terms[:, fixed].T
    noise = np.random.default_rng(SEED + 1).standard_normal(targets.shape)
    targets = targets + _REPEATED * noise
    found = others.copy()
    found[:, places] = resampled(terms[:, places], targets, _weights(rows), SEED)
    return found


def _deviation(
    values: Mapping[str, float], free: Sequence[str], draws: Floats, rows: Rows
) -> dict[str, float]:
    """Return how much each constant scatters; NaN where there are no more rows than constants."""
    if len(rows) <= len(free):
        return dict.fromkeys(free, np.nan)
    low, high = np.quantile(draws, [0.1587, 0.8413], axis=0)
    spread = dict(zip(CONSTANTS, ((high - low) / 2.0).tolist(), strict=True))
    # What is fitted to few rows follows them: their scatter about it is less than it is.
    few = np.sqrt(len(rows) / (len(rows) - len(free)))
    spread = {name: few * one for name, one in spread.items()}
    return {
        name: spread[name] * values[name] ** 2 if CONSTANTS[name].inverse else spread[name]
        for name in free
    }
