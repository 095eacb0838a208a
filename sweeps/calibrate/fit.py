"""A machine's links fitted to measured rows: bandwidths, latencies, and the launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.constants import CONSTANTS, LATENCIES, LAUNCH, base_values, vector
from sweeps.calibrate.model import Model, Rows
from sweeps.calibrate.solve import bounded, loss, resampled, robust_weights
from sweeps.calibrate.told import class_weights, untold
from sweeps.errors import InputError
from sweeps.spec.catalog import Machine
from sweeps.validate.sizes import class_of

__all__ = ["Fit", "fit_links"]

Floats = NDArray[np.float64]

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
