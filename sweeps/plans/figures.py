"""Figures of the best plans at many points: which plan wins where, time against GPUs."""

from __future__ import annotations

from typing import Any

from sweeps.plans.answer import Answer
from sweeps.plans.request import Request
from sweeps.plans.table import PLAN

__all__ = ["point_figures", "range_figures"]

MOST_PANELS = 4
FEWEST_POINTS = 3
COMPARED = ("model", "hardware", "framework", "precision")


def range_figures(request: Request) -> list[dict[str, Any]]:
    """Return declarations of figures that the usual ones don't hold."""
    sizes = {axis.name: len(axis) for axis in request.axes}
    plain = [axis for axis in request.axes if axis.name in axis.columns]
    numbers = [axis.name for axis in plain if axis.columns[axis.name].dtype.kind == "f"]
    labels = [name for name in sizes if name not in numbers]
    several = [name for name in numbers if sizes[name] > 1]
    figures: list[dict[str, Any]] = []
    first = {axis.name: axis.columns[axis.name][0].item() for axis in plain}
    if "world_size" in several and sizes["world_size"] > 2:
        lines = [name for name in labels if name in COMPARED][:1]
        held = {name: first[name] for name in first if name not in ("world_size", *lines)}
        figures.append({"kind": "scaling", "name": "time-over-gpus", "x": "world_size",
                        "y": "step_time", "lines": lines, "at": held})  # fmt: skip
    if len(several) >= 2:
        x, y = several[:2]
        panels = [name for name in labels if name in COMPARED and sizes[name] <= MOST_PANELS][:1]
        held = {name: first[name] for name in first if name not in (x, y, *panels)}
        figure = {"kind": "best", "name": "best-split", "x": x, "y": y, "value": "best_split",
                  "over": [], "at": held}  # fmt: skip
        figures.append({**figure, "panels": panels[0]} if panels else figure)
    return figures


def point_figures(answer: Answer) -> list[dict[str, Any]]:
    """Return declarations of figures of the plans of one point."""
    title = "the best plan of each split, and the Pareto front"
    if len(answer.found.splits) + len(answer.found.front) < FEWEST_POINTS:
        return []
    return [{"kind": "best_plans", "plans": [PLAN], "title": title}]
