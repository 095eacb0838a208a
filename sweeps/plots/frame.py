"""The sheet that a figure is drawn on: title, panels, shared labels, legend, notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.plots.axis import Axis
from sweeps.plots.style import (
    INK,
    LINE_HEIGHT,
    MUTED,
    Look,
    launched,
    text_width,
    together,
    use,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.figure import SubFigure
    from matplotlib.gridspec import GridSpec
    from matplotlib.legend import Legend as Drawn
    from matplotlib.text import Text

_COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4, 9: 3, 10: 4, 11: 4, 12: 4}
_WIDE = 5  # columns from 13 panels on
_PANEL_SIZES = {1: (6.2, 4.2), 2: (4.2, 3.3), 3: (3.3, 2.7)}
_SMALL_PANEL = (2.9, 2.4)

_STACKED = 3  # panels up to which a paper's column has one below another
_LOW = 0.66  # height of its panels by their width

# Inches.
_BESIDE = 0.85  # of a paper's column what is beside its panels
_EDGE = 0.15
_GAP = 0.22  # between columns, and between a panel and the legend
_AROUND = 2.0  # of a first guess at what stands around the panels
_LEGEND_COLUMNS = 4
_LEGEND_TEXT = 2.4  # the widest line in a legend
_COLUMN_GAP = 0.15  # between columns of a table below
_NARROW = 5.0  # a sheet below it has two lines of what is held
_DIGITS = 5  # of places on the page
ASSUMED_NOTE = "Assumed values: see the file."
_HINTED = 0.97  # of a line's room: letters that are fitted to dots take a little more
# A text of a legend, and how its sample looks: an area where it has a ``facecolor``, else a line.
Sample = tuple[str, Look]


@dataclass(frozen=True, slots=True)
class Legend:
    """What stands in a legend: samples with their text."""

    samples: Sequence[Sample] = ()
    heading: str = ""

    def handles(self) -> list[Any]:
        """Return the samples."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        looks = [look for _, look in self.samples]
        return [
            Patch(**sample) if "facecolor" in sample else Line2D([], [], **sample)
            for sample in looks
        ]

    def texts(self) -> list[str]:
        """Return the labels, in lines; what stands between dots stays on a line."""
        whole = [
            together(launched(label)) if " · " in label else launched(label)
            for label, _ in self.samples
        ]
        return ["\n".join(wrap(label, _LEGEND_TEXT, use().text)) for label in whole]

    def draw(self, where: Any, loc: str, columns: int = 1) -> Drawn:
        """Draw the legend in a part of a figure, or in some axes."""
        made: Drawn = where.legend(
            self.handles(),
            self.texts(),
            title=self.heading or None,
            loc=loc,
            ncols=columns,
            borderaxespad=0.4,
            borderpad=0.0,
            handlelength=2.6,
            labelspacing=0.4,
            alignment="left",
            title_fontproperties={"weight": "bold", "size": use().text},
        )
        return made


@dataclass(frozen=True, slots=True)
class Sheet:
    """The words of a figure, and the measures that depend on its kind."""

    title: str  # In bold
    fixed: str = ""  # What is held fixed, under the title
    notes: Sequence[str] = ()  # What stands below
    table: Sequence[Sequence[str]] = ()  # Rows above the notes, such as of numbered points
    panels: Sequence[str] = ("",)  # A heading for each panel; one empty text for a single panel
    strip: float = 0.0  # Height in inches of a second panel under each; 0 for none
    stacked: bool = False  # Whether a paper has its panels one below another, however many
    # A panel's width and height in inches; by default from the number of panels
    panel: tuple[float, float] | None = None


def columns_of(panels: int, *, strips: bool = False) -> int:
    """Return in how many columns panels are laid out; with a second panel under each one."""
    if use().column and (panels <= _STACKED or strips):
        return 1
    return min(_COLUMNS.get(panels, _WIDE), use().columns)


def panel_size(panels: int, *, strips: bool = False) -> tuple[float, float]:
    """Return a panel's width and height in inches."""
    columns = columns_of(panels, strips=strips)
    if use().column:
        width = in_column(_PANEL_SIZES[1][0]) / columns - (columns - 1) * _GAP / 2
        return width, _LOW * width
    width, height = _PANEL_SIZES.get(columns, _SMALL_PANEL)
    return use().panel * width, use().panel * height


def in_column(wide: float) -> float:
    """Return a panel's width in inches, at most what a paper's column leaves."""
    return use().width - _BESIDE if use().column else wide


@dataclass(slots=True)
class Frame:
    """A sheet with its panels made; matplotlib lays them out, to panels of the size wanted."""

    sheet: Sheet
    canvas: Canvas
    thirds: GridSpec  # The words above, the panels, the words below
    body: SubFigure
    columns: int
    panel: tuple[float, float]  # A panel's width and height in inches
    axes: list[Axes] = field(default_factory=list)
    strips: list[Axes] = field(default_factory=list)
    shared: dict[str, Text] = field(default_factory=dict)  # Labels of all panels' axes
    legend: Drawn | None = None

    @property
    def rows(self) -> int:
        """In how many rows the panels are laid out."""
        return math.ceil(len(self.axes) / self.columns)

    def outer(self, index: int) -> tuple[bool, bool]:
        """Return whether a panel is the lowest of its column, and the first of its row."""
        return index + self.columns >= len(self.axes), index % self.columns == 0

    def set_axes(self, x: Axis | None, y: Axis | None, strip: Axis | None) -> None:
        """Set the panels' axes, and those of their strips; labels stand at the outer ones alone."""
        for index, axes in enumerate(self.axes):
            lowest, first = self.outer(index)
            if x is not None:
                x.apply(axes, "x", labels=lowest and strip is None)
            if y is not None:
                y.apply(axes, "y", labels=first)
            if x is not None and strip is not None:
                x.apply(self.strips[index], "x", labels=lowest)
                strip.apply(self.strips[index], "y", labels=first)

    def finished(self) -> Canvas:
        """Return the drawing: its panels of their size, by that of the page, and its words."""
        self._lay_out()
        above, below = self._resize()
        self._lay_out()
        self._centre_labels()
        self._write(above, below)
        self.canvas.set_layout_engine("none")
        # The layout's last digits differ from one run to the next; the same data, the same bytes.
        box = self.body.bbox_relative
        box.set_points(np.round(box.get_points(), _DIGITS))
        for axes in self.canvas.axes:
            axes.set_position(np.round(axes.get_position().bounds, _DIGITS).tolist())
        return self.canvas

    def _lay_out(self) -> None:
        engine = self.canvas.get_layout_engine()
        assert engine is not None
        engine.execute(self.canvas)

    def _resize(self) -> tuple[list[Line], list[str]]:
        """Give the page the size that the panels, their surroundings and the words take."""
        inches = self.body.bbox.transformed(self.canvas.dpi_scale_trans.inverted())
        wanted = _panel(self.sheet)
        box = self.axes[0].get_position(original=False)
        wide = wanted[0] - float(box.width * inches.width)
        high = wanted[1] - float(box.height * inches.height)
        width = use().width
        if not use().column:
            width = max(inches.width + wide * self.columns, width)
        body = inches.height + high * self.rows * (wanted[1] + self.sheet.strip) / wanted[1]
        if self.legend is not None:
            legend = self.legend.get_window_extent().height / self.canvas.dpi
            body = max(body, legend + 2 * _EDGE)
        aspect = use().aspect
        height = 0.0
        for _ in range(2):  # A page of some proportions may be wider than its panels
            above, below = _words(self.sheet, width - 2 * _EDGE)
            head = (0.2 if above else 0.02) + sum(size * LINE_HEIGHT for _, size, _ in above)
            lines = len(below) + len(self.sheet.table)
            foot = _EDGE + lines * use().note * LINE_HEIGHT
            height = max(height, head + body + foot)
            if aspect is not None:
                width, height = max(width, aspect * height), max(height, width / aspect)
        width, height = round(width, 2), round(height, 2)
        width = width if aspect is None else max(width, aspect * height)
        self.canvas.set_size_inches(width, height)
        self.thirds.set_height_ratios(
            [round(part, 4) for part in (head, height - head - foot, foot)]
        )
        return above, below

    def _centre_labels(self) -> None:
        """Put the shared labels at the middle of the panels."""
        boxes = [axes.get_position(original=False) for axes in (*self.axes, *self.strips)]
        x = (min(box.x0 for box in boxes) + max(box.x1 for box in boxes)) / 2
        y = (min(box.y0 for box in boxes) + max(box.y1 for box in boxes)) / 2
        if "x" in self.shared:
            self.shared["x"].set_x(round(x, _DIGITS))
        if "y" in self.shared:
            self.shared["y"].set_y(round(y, _DIGITS))

    def _write(self, above: Sequence[Line], below: Sequence[str]) -> None:
        """Write the words above and below the panels."""
        width, height = self.canvas.get_size_inches()

        def write(x: float, y: float, text: str, **how: Any) -> None:
            self.canvas.text(x / width, y / height, text, in_layout=False, **how)

        y = height - 0.12
        for line, size, weight in above:
            colour = MUTED if size == use().note else INK
            write(_EDGE, y, line, size=size, weight=weight, color=colour, va="top")
            y -= size * LINE_HEIGHT
        wide = [
            max(text_width(cell, use().note) for cell in column) + _COLUMN_GAP
            for column in zip(*self.sheet.table, strict=True)
        ]
        y = 0.1 + (len(below) + len(self.sheet.table)) * use().note * LINE_HEIGHT
        for row in self.sheet.table:
            y -= use().note * LINE_HEIGHT
            for index, cell in enumerate(row):
                write(_EDGE + sum(wide[:index]), y, cell, size=use().note, va="bottom")
        for line in below:
            y -= use().note * LINE_HEIGHT
            write(_EDGE, y, line, size=use().note, color=MUTED, va="bottom")


def _panel(sheet: Sheet) -> tuple[float, float]:
    return sheet.panel or panel_size(len(sheet.panels), strips=sheet.strip > 0.0)


def frame(
    sheet: Sheet,
    legend: Legend,
    x: Axis | None = None,
    y: Axis | None = None,
    strip: Axis | None = None,
) -> Frame:
    """Make a sheet with its panels, their axes and its legend; a strip's axis is a second one."""
    from matplotlib.figure import Figure as Canvas

    columns = columns_of(len(sheet.panels), strips=sheet.strip > 0.0 or sheet.stacked)
    rows = math.ceil(len(sheet.panels) / columns)
    wide, high = _panel(sheet)
    across = use().width if use().column else wide * columns + 2 * _AROUND
    size = across, (high + sheet.strip) * rows + 2 * _AROUND
    canvas = Canvas(figsize=size, layout="constrained")
    pads = {"w_pad": _GAP / 2, "h_pad": 0.08, "wspace": 0.0, "hspace": 0.0}
    canvas.get_layout_engine().set(**pads)  # type: ignore[union-attr]
    thirds = canvas.add_gridspec(3, 1, height_ratios=(0.1, 1.0, 0.1))
    body = canvas.add_subfigure(thirds[1])
    made = Frame(sheet, canvas, thirds, body, columns, (wide, high))
    heights = [high, sheet.strip] if sheet.strip else [high]
    mosaic = [
        [f"{kind}{row * columns + column}" for column in range(columns)]
        for row in range(rows)
        for kind in ("panel", "strip")[: len(heights)]
    ]
    every = body.subplot_mosaic(mosaic, height_ratios=heights * rows)  # type: ignore[arg-type]
    for index, name in enumerate(sheet.panels):
        axes = every[f"panel{index}"]
        axes.set_title("\n".join(wrap(launched(name), wide, use().text, bold=True, most=2)))
        made.axes.append(axes)
        if sheet.strip:
            made.strips.append(every[f"strip{index}"])
    made.set_axes(x, y, strip)
    _label(made, *("" if axis is None else axis.label for axis in (x, y, strip)))
    free = [name for name in every if int(name[5:]) >= len(sheet.panels)]
    for name in free:
        every[name].set_axis_off()
    if legend.samples:
        _place_legend(made, legend, every[free[0]] if free else None, (wide, high))
    return made


def _label(made: Frame, x: str, y: str, ratio: str) -> None:
    """Write the axes' labels, once for all panels; with strips once a row."""
    body, (wide, high) = made.body, made.panel

    def lines(words: str, inches: float, most: int = 3) -> str:
        return "\n".join(wrap(words, inches, use().text, most=most))

    if x:
        across = made.columns * (wide + _GAP)
        made.shared["x"] = body.supxlabel(lines(x, across, 2), size=use().text)
    if y and not made.strips:
        down = made.rows * high + (made.rows - 1) * 2 * _GAP
        made.shared["y"] = body.supylabel(lines(y, down), size=use().text)
    for axes, strip in list(zip(made.axes, made.strips, strict=False))[:: made.columns]:
        axes.set_ylabel(lines(y, high))
        strip.set_ylabel(lines(ratio, made.sheet.strip + _GAP))
    body.align_ylabels(made.axes + made.strips)


def _place_legend(
    made: Frame, legend: Legend, free: Axes | None, panel: tuple[float, float]
) -> None:
    """Put the legend where a panel is missing, if it fits there, else beside the panels.

    On slides and in papers above them, in as many columns as fit.
    """
    if use().above:
        for columns in range(min(_LEGEND_COLUMNS, len(legend.samples)), 0, -1):
            drawn = legend.draw(made.body, "outside upper left", columns)
            if columns == 1 or drawn.get_window_extent().width <= use().width * made.canvas.dpi:
                return
            drawn.remove()
    made.legend = legend.draw(made.body, "outside right upper")
    box = made.legend.get_window_extent()
    wide, high = box.width / made.canvas.dpi, box.height / made.canvas.dpi
    if free is not None and wide <= panel[0] and high <= panel[1]:
        made.legend.remove()
        made.legend = None
        legend.draw(free, "upper left")


Line = tuple[str, float, str]


def _words(sheet: Sheet, width: float) -> tuple[list[Line], list[str]]:
    width *= _HINTED
    title = wrap(sheet.title, width, use().title, bold=True) if use().title else []
    # One line of what is held, the first of it: all is in the file.
    parts = sheet.fixed.split(" · ")
    while len(fixed := wrap(" · ".join(parts), width, use().text)) > (1 if width > _NARROW else 2):
        if len(parts) == 1:
            break
        parts = parts[:-1]
    above = [
        *((line, use().title, "bold") for line in title),
        *((line, use().text, "normal") for line in fixed if title),
    ]
    below = wrap(" ".join(sheet.notes), width, use().note)
    if (
        len(below) > 1 and sheet.notes[-1] == ASSUMED_NOTE
    ):  # One line, and what is of all figures last
        below = wrap(" ".join(sheet.notes[:-1]), width, use().note)
    return above, below
