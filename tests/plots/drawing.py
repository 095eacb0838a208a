"""Draws figures of training steps as they are declared, and refuses what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr
from matplotlib.figure import Figure as Canvas

from sweeps.errors import InputError
from sweeps.plots.best_plans import draw_best_plans
from sweeps.plots.breakdown import draw_bars
from sweeps.plots.curves import draw_curves
from sweeps.plots.data import subject_of, view_of
from sweeps.plots.declare import check_figures, resolve
from sweeps.plots.style import style

__all__ = ["canvas_of", "faults_of", "title_of"]

DRAW = {"best_plans": draw_best_plans, "curves": draw_curves, "scaling": draw_curves}


def canvas_of(dataset: xr.Dataset, **declaration: Any) -> Canvas:
    subject = subject_of(dataset)
    figure = check_figures([declaration], subject)[0]
    figure, faults = resolve(figure, subject)
    assert not faults
    with style():
        return DRAW.get(figure.kind, draw_bars)(figure, view_of(dataset, figure["at"]))


def title_of(canvas: Canvas) -> str:
    texts = [*canvas.texts, *(text for part in canvas.subfigs for text in part.texts)]
    return " ".join(text.get_text() for text in texts)


def faults_of(dataset: xr.Dataset, **declaration: Any) -> str:
    with pytest.raises(InputError) as caught:
        canvas_of(dataset, **declaration)
    assert all("\n" not in line for line in caught.value.faults)
    return "\n".join(caught.value.faults)
