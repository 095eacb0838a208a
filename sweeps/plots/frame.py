"""The sheet that a figure is drawn on: title, panels, shared labels, legend, notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeps.plots.style import (
    INK,
    LINE_HEIGHT,
    MUTED,
    SIZE_NOTE,
    SIZE_TEXT,
    SIZE_TITLE,
    text_width,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["Frame", "Legend", "Sheet", "columns_of", "frame", "panel_size"]

_COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4, 9: 3, 10: 4, 11: 4, 12: 4}
_WIDE = 5  # columns from 13 panels on
_PANEL_SIZES = {1: (6.2, 4.2), 2: (4.2, 3.3), 3: (3.3, 2.7)}
_SMALL_PANEL = (2.9, 2.4)

# Inches.
_EDGE = 0.15
_GAP = 0.22  # between columns, and between a panel and the legend
_HEADING = 0.3  # a panel's heading
_TICK_LABELS = 0.32  # tick labels below a panel
_STRIP_GAP = 0.1
_HANDLE = 0.62  # a legend's sample with its spaces
_ROW = 0.215  # a legend's line
_LEGEND_TEXT = 2.4  # the widest line in a legend
_LEAST_WIDTH = 6.0


@dataclass(frozen=True, slots=True)
class Legend:
    """What stands in a legend: samples with their text."""

    handles: Sequence[Any] = ()
    labels: Sequence[str] = ()
    heading: str = ""
    most: int = 3  # lines of a label

    def lines(self) -> list[list[str]]:
        """Return each label's lines."""
        return [wrap(label, _LEGEND_TEXT, SIZE_TEXT, most=self.most) for label in self.labels]

    def size(self) -> tuple[float, float]:
        """Return its width and height in inches; 0 for an empty one."""
        if not self.labels:
            return 0.0, 0.0
        lines = [line for label in self.lines() for line in label]
        widest = max(text_width(line, SIZE_TEXT) for line in lines) + _HANDLE
        widest = max(widest, text_width(self.heading, SIZE_TEXT, bold=True))
        return widest + 0.1, _ROW * (len(lines) + bool(self.heading)) + 0.15


@dataclass(frozen=True, slots=True)
class Sheet:
    """The words of a figure, and the measures that depend on its kind."""

    title: str  # In bold
    xlabel: str = ""  # The axes' labels, once for all panels; the last for the second panels
    ylabel: str = ""  # The axes' labels, once for all panels; the last for the second panels
    strip_label: str = ""  # The axes' labels, once for all panels; the last for the second panels
    fixed: str = ""  # What is held fixed, under the title
    constants: str = ""  # Other values that went into it, smaller
    notes: Sequence[str] = ()  # What stands below
    panels: Sequence[str] = ("",)  # A heading for each panel; one empty text for a single panel
    # Inches for the vertical axis' labels, and for what stands beside the panels
    left: float = 1.05
    # Inches for the vertical axis' labels, and for what stands beside the panels
    right: float = 0.25
    strip: float = 0.0  # Height in inches of a second panel under each; 0 for none
    # A panel's width and height in inches; by default from the number of panels
    panel: tuple[float, float] | None = None


def columns_of(panels: int) -> int:
    """Return in how many columns panels are laid out."""
    return _COLUMNS.get(panels, _WIDE)


def panel_size(panels: int) -> tuple[float, float]:
    """Return a panel's width and height in inches."""
    return _PANEL_SIZES.get(columns_of(panels), _SMALL_PANEL)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Where everything is, in inches from the lower left corner."""

    columns: int
    rows: int
    panel: tuple[float, float]
    strip: float
    heading: float
    left: float
    top: float
    bottom: float
    legend: tuple[float, float]
    beside: bool
    right: float

    @property
    def step(self) -> tuple[float, float]:
        """Distance from one panel to the next, across and down."""
        strip = self.strip + _STRIP_GAP if self.strip else 0.0
        return self.panel[0] + _GAP, self.panel[1] + strip + self.heading + _TICK_LABELS

    @property
    def grid(self) -> tuple[float, float]:
        """Width and height of all panels together, without what stands around them."""
        step = self.step
        around = self.heading + _TICK_LABELS
        return self.columns * step[0] - _GAP, self.rows * step[1] - around

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the sheet."""
        width = self.left + self.grid[0] + self.right
        width += _GAP + self.legend[0] if self.beside else 0.0
        inner = max(self.grid[1], self.legend[1] if self.beside else 0.0)
        return max(width, _LEAST_WIDTH), self.top + inner + self.bottom

    def corner(self, index: int) -> tuple[float, float]:
        """Return a panel's upper left corner."""
        row, column = divmod(index, self.columns)
        step = self.step
        return self.left + column * step[0], self.size[1] - self.top - row * step[1]


@dataclass(slots=True)
class Frame:
    """A sheet with its panels made."""

    canvas: Canvas
    axes: list[Axes]
    strips: list[Axes]
    geometry: _Geometry

    @property
    def panel(self) -> tuple[float, float]:
        """A panel's width and height in inches."""
        return self.geometry.panel

    def outer(self, index: int) -> tuple[bool, bool]:
        """Return whether a panel is the lowest of its column, and the first of its row."""
        columns = self.geometry.columns
        return index + columns >= len(self.axes), index % columns == 0

    def text(self, x: float, y: float, text: str, **how: Any) -> None:
        """Write at a place given in inches."""
        width, height = self.geometry.size
        self.canvas.text(x / width, y / height, text, **how)

    def label_axes(self, sheet: Sheet) -> None:
        """Write the axes' labels, once for all panels."""
        plan = self.geometry
        grid = plan.grid
        top = plan.size[1] - plan.top
        below = top - grid[1] - _TICK_LABELS - 0.02
        lines = _xlabel(sheet, grid[0])
        self.text(plan.left + grid[0] / 2, below, "\n".join(lines), ha="center", va="top")
        if not sheet.strip_label:
            self._upright(sheet.ylabel, top - grid[1] / 2, grid[1] + 0.3)
            return
        for row in range(plan.rows):
            high = top - row * plan.step[1]
            self._upright(sheet.ylabel, high - plan.panel[1] / 2, plan.panel[1])
            middle = high - plan.panel[1] - _STRIP_GAP - plan.strip / 2
            self._upright(sheet.strip_label, middle, plan.strip + 0.1)

    def _upright(self, text: str, middle: float, length: float) -> None:
        lines = "\n".join(wrap(text, length, SIZE_TEXT, most=2))
        how = {"ha": "left", "va": "center", "rotation": 90, "multialignment": "center"}
        self.text(0.1, middle, lines, **how)

    def legend(self, legend: Legend) -> None:
        """Draw the legend where room was kept for it."""
        if not legend.labels:
            return
        plan = self.geometry
        x, y = plan.corner(len(self.axes))
        if plan.beside:
            x, y = plan.left + plan.grid[0] + plan.right, plan.size[1] - plan.top
        width, height = plan.size
        self.canvas.legend(
            list(legend.handles),
            ["\n".join(lines) for lines in legend.lines()],
            title=legend.heading or None,
            loc="upper left",
            bbox_to_anchor=((x + 0.02) / width, y / height),
            borderaxespad=0.0,
            borderpad=0.0,
            handlelength=2.6,
            labelspacing=0.4,
            alignment="left",
            title_fontproperties={"weight": "bold", "size": SIZE_TEXT},
        )


def frame(sheet: Sheet, legend: Legend) -> Frame:
    """Make a sheet with its panels, keeping room for everything around them."""
    from matplotlib.figure import Figure as Canvas

    plan, above, below = _planned(sheet, legend)
    width, height = plan.size
    made = Frame(Canvas(figsize=(width, height)), [], [], plan)
    across, high = plan.panel
    for index, name in enumerate(sheet.panels):
        x, y = plan.corner(index)
        box = (x / width, (y - high) / height, across / width, high / height)
        axes = made.canvas.add_axes(box)
        axes.set_title("\n".join(_heading(name, across)))
        made.axes.append(axes)
        if plan.strip:
            low = y - high - _STRIP_GAP - plan.strip
            box = (x / width, low / height, across / width, plan.strip / height)
            made.strips.append(made.canvas.add_axes(box))
    made.label_axes(sheet)
    y = height - 0.12
    for line, size, weight in above:
        colour = MUTED if size == SIZE_NOTE else INK
        made.text(_EDGE, y, line, size=size, weight=weight, color=colour, va="top")
        y -= size * LINE_HEIGHT
    y = 0.1
    for line in reversed(below):
        made.text(_EDGE, y, line, size=SIZE_NOTE, color=MUTED, va="bottom")
        y += SIZE_NOTE * LINE_HEIGHT
    return made


def _heading(name: str, width: float) -> list[str]:
    return wrap(name, width, SIZE_TEXT, bold=True, most=2)


Line = tuple[str, float, str]


def _planned(sheet: Sheet, legend: Legend) -> tuple[_Geometry, list[Line], list[str]]:
    """Measure everything; the words' lines depend on the width, the height on their number."""
    count = len(sheet.panels)
    columns = columns_of(count)
    rows = math.ceil(count / columns)
    panel = sheet.panel or panel_size(count)
    size = legend.size()
    high = panel[1] + (sheet.strip + _STRIP_GAP if sheet.strip else 0.0)
    inside = rows * columns > count and size[0] <= panel[0] + _GAP and size[1] <= high
    lines = max(len(_heading(name, panel[0])) for name in sheet.panels)
    heading = _HEADING + (lines - 1) * SIZE_TEXT * LINE_HEIGHT if lines else 0.0

    def plan(top: float, bottom: float) -> _Geometry:
        beside = bool(legend.labels) and not inside
        return _Geometry(
            columns, rows, panel, sheet.strip, heading, sheet.left, top, bottom, size, beside,
            sheet.right,
        )  # fmt: skip

    above, below = _words(sheet, plan(0.0, 0.0).size[0] - 2 * _EDGE)
    top = 0.12 + sum(points * LINE_HEIGHT for _, points, _ in above) + 0.16 + heading
    bottom = _TICK_LABELS + len(_xlabel(sheet, plan(0.0, 0.0).grid[0])) * SIZE_TEXT * LINE_HEIGHT
    bottom += 0.2 + len(below) * SIZE_NOTE * LINE_HEIGHT
    return plan(top, bottom), above, below


def _xlabel(sheet: Sheet, width: float) -> list[str]:
    return wrap(sheet.xlabel, max(width, _LEAST_WIDTH - sheet.left), SIZE_TEXT, most=2)


def _words(sheet: Sheet, width: float) -> tuple[list[Line], list[str]]:
    title = wrap(sheet.title, width, SIZE_TITLE, bold=True)
    fixed = wrap(sheet.fixed, width, SIZE_TEXT)
    others = wrap(sheet.constants, width, SIZE_NOTE)
    above = [
        *((line, SIZE_TITLE, "bold") for line in title),
        *((line, SIZE_TEXT, "normal") for line in fixed),
        *((line, SIZE_NOTE, "normal") for line in others),
    ]
    return above, [line for note in sheet.notes for line in wrap(note, width, SIZE_NOTE)]
