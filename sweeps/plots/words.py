"""What a figure says around its data: title, what is fixed, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError
from sweeps.plots.data import View
from sweeps.plots.frame import Sheet
from sweeps.plots.kinds import KINDS
from sweeps.plots.readable import long_name, plain, sentence
from sweeps.plots.schema import Figure, listed
from sweeps.plots.style import unbroken

__all__ = ["joined", "panels_of", "reasons", "sheet_of", "short_name", "status_bits"]

_NAMED = 10  # so many constants are named; the file has them all
_MOST_PANELS = 20
_MOST_BITS = 62
_REASONS = 3  # so many reasons for one hole are named


def joined(words: Sequence[str]) -> str:
    """Return names as people list them: a, b and c."""
    texts = [plain(word) for word in words]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def short_name(view: View, name: str) -> str:
    """Return what a variable is, without what stands in parentheses."""
    return long_name(name, view.attrs(name), short=True)


def panels_of(figure: Figure, view: View) -> list[str]:
    """Return a heading for each panel; one empty text where there are no panels."""
    dim = figure["panels"]
    if dim is None or not view.has(dim):
        return [""]
    labels = view.labels(dim)
    if len(labels) > _MOST_PANELS:
        message = (
            f"{figure.where}.panels = '{dim}': {len(labels)} panels can't be read; at most "
            f"{_MOST_PANELS}: choose some by at = {{ {dim} = [...] }}"
        )
        raise InputError(message)
    return labels


def sheet_of(
    figure: Figure,
    view: View,
    title: str,
    notes: Sequence[str],
    panels: Sequence[str],
    **measures: Any,
) -> Sheet:
    """Return the words of a figure."""
    shown = [name for key in KINDS[figure.kind].shown for name in listed(figure[key])]
    energy = any(_is_energy(view.units(name)) for name in shown)
    beside = [name for name in view.constants() if energy or not _is_energy(view.units(name))]
    assumed = [name for name in view.assumed() if energy or not _is_energy(view.units(name))]
    below = list(notes)
    if assumed:
        below.append(f"Assumed, not given, specified or measured: {_some(view, assumed)}.")
    return Sheet(
        figure["title"] or sentence(title),
        fixed=" · ".join(unbroken(text) for text in view.fixed()),
        constants=f"with {_some(view, beside)}" if beside else "",
        notes=below,
        panels=panels,
        **measures,
    )


def _is_energy(units: str) -> bool:
    """Return whether a unit is of energy, which is nothing to a figure of times or bytes."""
    return "J" in units.split()


def _some(view: View, names: Sequence[str]) -> str:
    """Return the first of some coordinates with their values, and how many more there are."""
    texts = [unbroken(view.named(name)) for name in names[:_NAMED]]
    more = len(names) - len(texts)
    return ", ".join(texts) + (f" and {more} more (in the file)" if more else "")


def status_bits(view: View, dims: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Return why values are missing, by the dataset's status variable."""
    if "status" not in view.dataset:
        return np.zeros((1,) * len(dims), dtype=np.int64), []
    others = [str(dim) for dim in view.dataset["status"].dims if dim not in dims]
    status = view.values("status", [*others, *dims]).astype(np.int64)
    attrs = view.attrs("status")
    meanings = str(attrs.get("flag_meanings", "")).split()[:_MOST_BITS]
    masked = "flag_masks" in attrs
    flags = np.atleast_1d(attrs["flag_masks" if masked else "flag_values"]).astype(np.int64)
    bits = np.zeros_like(status)
    for place, flag in enumerate(flags[: len(meanings)]):
        applies = (status & flag) != 0 if masked else (status == flag) & (flag != 0)
        bits |= applies.astype(np.int64) << place
    for _ in others:  # a variable without these dimensions has a hole for all that stands there
        bits = np.bitwise_or.reduce(bits, axis=0)
    return bits, [plain(meaning) for meaning in meanings]


def reasons(view: View, missing: NDArray[np.bool_], dims: Sequence[str]) -> list[str]:
    """Return why values are missing, the most frequent reason first."""
    bits, meanings = status_bits(view, dims)
    concerned = np.broadcast_to(bits, missing.shape)[missing]
    counts = [int(np.count_nonzero(concerned >> place & 1)) for place in range(len(meanings))]
    order = sorted(range(len(counts)), key=lambda place: -counts[place])
    found = [meanings[place] for place in order if counts[place]]
    return [*found[:_REASONS], "and others"] if len(found) > _REASONS else found
