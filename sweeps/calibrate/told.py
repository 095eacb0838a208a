"""Which constants some rows tell, and which are left as the machine's file has them, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.constants import BANDWIDTHS, CONSTANTS, LAUNCH
from sweeps.calibrate.model import Rows

__all__ = ["class_weights", "untold"]

Floats = NDArray[np.float64]

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
