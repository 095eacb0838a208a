"""A declared figure of a dataset, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.errors import tell_all
from sweeps.plots.data import View, of_subject, subject_of, view_of
from sweeps.plots.declare import check_figures, resolve, variables_of
from sweeps.plots.save import save
from sweeps.plots.schema import BREAKDOWNS, Figure
from sweeps.plots.style import style

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure as Canvas


def draw(dataset: xr.Dataset, figure: Figure | Mapping[str, object], stem: Path) -> list[Path]:
    """Draw a figure of a dataset."""
    figure = resolved(dataset, figure)
    with style():
        canvas = _drawn(dataset, figure)
        return save(canvas, stem)


def shown_by(dataset: xr.Dataset, figure: Figure) -> View:
    """Return what a figure shows: of an operation beside a training step, one of the two."""
    return view_of(of_subject(dataset, variables_of(figure)), figure["at"])


def resolved(dataset: xr.Dataset, figure: Figure | Mapping[str, object]) -> Figure:
    """Check a figure's declaration, and fill in what it leaves open."""
    subject = subject_of(dataset)
    if not isinstance(figure, Figure):
        return check_figures([figure], subject)[0]
    figure, faults = resolve(figure, subject)
    tell_all(faults)
    return figure


def _drawn(dataset: xr.Dataset, figure: Figure) -> Canvas:
    """Draw by kind; the kinds' modules load only when one of them is drawn."""
    view = shown_by(dataset, figure)
    if figure.kind == "best":
        from sweeps.plots.best import draw_best as draw_kind
    elif figure.kind == "measured":
        from sweeps.plots.measured import draw_measured as draw_kind
    elif figure.kind == "tornado":
        from sweeps.plots.stacks import draw_tornado as draw_kind
    elif figure.kind == "best_plans":
        from sweeps.plots.best_plans import draw_best_plans as draw_kind
    elif figure.kind in (*BREAKDOWNS, "bars"):
        from sweeps.plots.breakdown import draw_bars as draw_kind
    else:
        from sweeps.plots.curves import draw_curves as draw_kind
    return draw_kind(figure, view)
