"""What a figure says around its data: title, what is fixed, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps import display
from sweeps.bands import bands_of
from sweeps.engine.grid import status_of
from sweeps.plots.data import View
from sweeps.plots.frame import ASSUMED_NOTE, Sheet
from sweeps.plots.schema import KINDS, Figure, listed
from sweeps.plots.style import launched, long_name, plain, sentence, unbroken

if TYPE_CHECKING:
    pass

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


def heading(view: View, name: str, along: Sequence[str], end: str = "") -> str:
    """Return a figure's title: its quantity, and by what it is spread out."""
    column = view.dataset.variables.get("collective")
    single = column is not None and column.ndim == 0
    operation = str(column.values.item()) if column is not None and single else "each operation"
    if column is None:
        operation = "the operation"
    known = display.heading(name, operation)
    axes = [display.axis(dim) or short_name(view, dim).split(", ")[0] for dim in along]
    by = f", by {joined(axes)}" if axes else ""
    return f"{known or short_name(view, name).split(', ')[0]}{by}{end}"


def panels_of(figure: Figure, view: View) -> list[str]:
    """Return a heading for each panel; one empty text where there are no panels."""
    dim = figure["panels"]
    if dim is None or not view.has(dim):
        return [""]
    labels = view.labels(dim)
    if len(labels) > _MOST_PANELS:
        some = f"at most {_MOST_PANELS}: choose some by at = {{ {dim} = [...] }}"
        figure.refuse("panels", f"{len(labels)} panels can't be read", some)
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
    below = [*filter(None, [figure["note"]]), *notes, *view.bounds_note()]
    if view.is_assumed():
        below.append(ASSUMED_NOTE)
    return Sheet(
        figure["title"] or sentence(title),
        fixed=" · ".join(
            [
                *_measured(view, figure),
                *(unbroken(launched(view.phrase(name))) for name in view.fixed),
            ]
        ),
        notes=below,
        panels=panels,
        **measures,
    )


# Times, and what follows from them alone: a figure of these tells its band.
_NOT_STORED = "band not in the file"  # a band that is not known stands in the file as such
TIMED = {"time", "algbw", "busbw", "chosen_algorithm", "step_time"}


def _measured(view: View, figure: Figure) -> list[str]:
    """Return how far measurements may be from the times that are drawn."""
    if figure.kind in ("memory", "communication"):
        return []
    bands = bands_of(view.dataset).removeprefix("measured ")
    shown = {name for key in KINDS[figure.kind].shown for name in listed(figure[key])}
    if not bands and shown & TIMED:
        bands = _NOT_STORED
    if bands and not bands.startswith("band"):
        bands = f"band {bands}"
    return [unbroken(bands)] if bands else []


def status_bits(
    view: View, dims: Sequence[str], quantity: str = ""
) -> tuple[NDArray[np.int64], list[str]]:
    """Return why a quantity's values are missing, by the status variable that it has."""
    name = status_of(view.attrs(quantity))
    if name not in view.dataset:
        return np.zeros((1,) * len(dims), dtype=np.int64), []
    others = [str(dim) for dim in view.dataset[name].dims if dim not in dims]
    status = view.values(name, [*others, *dims]).astype(np.int64)
    attrs = view.attrs(name)
    meanings = str(attrs.get("flag_meanings", "")).split()[:_MOST_BITS]
    masked = "flag_masks" in attrs
    flags = np.atleast_1d(attrs["flag_masks" if masked else "flag_values"]).astype(np.int64)
    bits = np.zeros_like(status)
    for index, flag in enumerate(flags[: len(meanings)]):
        applies = (status & flag) != 0 if masked else (status == flag) & (flag != 0)
        bits |= applies.astype(np.int64) << index
    for _ in others:  # a variable without these dimensions has a hole for all that stands there
        bits = np.bitwise_or.reduce(bits, axis=0)
    return bits, [plain(meaning) for meaning in meanings]


def reasons(
    view: View, missing: NDArray[np.bool_], dims: Sequence[str], quantity: str = ""
) -> list[str]:
    """Return why a quantity's values are missing, the most frequent reason first."""
    bits, meanings = status_bits(view, dims, quantity)
    concerned = np.broadcast_to(bits, missing.shape)[missing]
    counts = [int(np.count_nonzero(concerned >> bit & 1)) for bit in range(len(meanings))]
    order = sorted(range(len(counts)), key=lambda meaning: -counts[meaning])
    texts = [meanings[meaning] for meaning in order if counts[meaning]]
    return [*texts[:_REASONS], "and others"] if len(texts) > _REASONS else texts
