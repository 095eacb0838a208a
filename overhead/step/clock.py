"""The one figure of a limited machine that a measured step tells: how fast it computes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from overhead.evaluation import Evaluation
from overhead.quantity import Array

# What is looked for: from a hundredth of the known rate to a hundred times it.
LEAST, MOST = 0.01, 100.0
# Points between which the ratio is looked for at once, and how often between two of them.
POINTS, TIMES = 33, 6


class ImpossibleStep(ValueError):
    """A measured step that no clock explains: what is wrong with it, and what is allowed."""

    def __init__(self, measured: float, wrong: str, allowed: str) -> None:
        super().__init__(f"measured_step_time = {measured:.4g} s: {wrong}; {allowed}")
        self.measured, self.wrong, self.allowed = measured, wrong, allowed


def fitted_clock(given: Mapping[str, Array], labels: Mapping[str, str]) -> Array:
    """Return the clock ratio with which a step takes as long as was measured.

    Parameters
    ----------
    given : mapping
        Quantities of a complete configuration, or of several that broadcast, the
        ``measured_step_time`` among them.
    labels : mapping
        Its labels.

    Returns
    -------
    ndarray
        Ratios of the compute rate; above 1 where the machine is faster than the known rates.

    Raises
    ------
    ImpossibleStep
        If a step is shorter than the GPU's peak allows, or than what isn't computing takes; or too
        long for computing to explain it.
    """
    given_values = {name: value for name, value in given.items() if name != "clock_ratio"}
    measured = np.asarray(given["measured_step_time"], dtype=np.float64)
    with np.errstate(all="ignore"):
        whole = Evaluation(given_values, labels)
        _check_peak(whole, measured)
        low = np.full(np.broadcast(whole["step_time"], measured).shape, np.log(LEAST))
        high = np.full_like(low, np.log(MOST))
        shares = np.linspace(0.0, 1.0, POINTS).reshape(-1, *[1] * low.ndim)
        for _ in range(TIMES):
            logs = low + (high - low) * shares
            times = Evaluation({**given_values, "clock_ratio": np.exp(logs)}, labels)["step_time"]
            times = np.broadcast_to(times, logs.shape)
            _check_ends(measured, times[0], times[-1])
            above = np.clip((times >= measured).sum(axis=0), 1, POINTS - 1)[np.newaxis]
            ends = [np.take_along_axis(logs, at, 0)[0] for at in (above - 1, above)]
            at_ends = [np.take_along_axis(times, at, 0)[0] for at in (above - 1, above)]
            low, high = ends
        span = at_ends[0] - at_ends[1]
        part = np.where(span > 0.0, (at_ends[0] - measured) / np.where(span > 0.0, span, 1.0), 0.0)
        known = np.isfinite(whole["step_time"])
    return np.asarray(np.where(known, np.exp(low + (high - low) * part), np.nan))


def _check_peak(whole: Evaluation, measured: Array) -> None:
    """Refuse a step in which more was computed than the GPU's peak allows."""
    hfu = whole.value("hfu", {})
    if hfu is None:
        return
    least = np.asarray(hfu * whole["step_time"])
    times, leasts = np.broadcast_arrays(measured, least)
    wrong = times < leasts * (1.0 - 1e-9)
    if wrong.any():
        time, limit = float(times[wrong][0]), float(leasts[wrong][0])
        raise ImpossibleStep(
            time, f"impossible: {limit / time:.0%} of the GPUs' peak", f"at least {limit:.3g} s"
        )


def _check_ends(measured: Array, longest: Array, shortest: Array) -> None:
    """Refuse a step that is longer or shorter than any clock makes it."""
    for wrong, limit, end, words in (
        (
            measured < shortest,
            shortest,
            "more than",
            "communication, memory traffic and launches alone take longer",
        ),
        (
            measured > longest,
            longest,
            "less than",
            "computing at a hundredth of the rate takes less",
        ),
    ):
        if wrong.any():
            times, limits = np.broadcast_arrays(measured, limit)
            time, least = float(times[wrong][0]), float(limits[wrong][0])
            raise ImpossibleStep(time, words, f"{end} {least:.3g} s, or another configuration")
