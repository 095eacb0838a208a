"""Figures from a stored dataset: declared in a spec, drawn to PNG and SVG."""

from __future__ import annotations

from sweeps.plots.declare import check_figures
from sweeps.plots.defaults import default_figures
from sweeps.plots.draw import draw
from sweeps.plots.kinds import KINDS
from sweeps.plots.schema import Figure

__all__ = ["KINDS", "Figure", "check_figures", "default_figures", "draw"]
