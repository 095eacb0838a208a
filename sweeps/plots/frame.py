"""The sheet that a figure is drawn on: title, panels, shared labels, legend, notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sweeps.plots.style import (
    INK,
    LINE_HEIGHT,
    MUTED,
    SIZE_NOTE,
    SIZE_TEXT,
    SIZE_TITLE,
    UNBROKEN,
    long_name,
    number,
    scale_of,
    sentence,
    shortened,
    symbol,
    text_width,
    together,
    use,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4, 9: 3, 10: 4, 11: 4, 12: 4}
_WIDE = 5  # columns from 13 panels on
_PANEL_SIZES = {1: (6.2, 4.2), 2: (4.2, 3.3), 3: (3.3, 2.7)}
_SMALL_PANEL = (2.9, 2.4)

# Inches.
_EDGE = 0.15
_GAP = 0.22  # between columns, and between a panel and the legend
_HEADING = 0.3  # a panel's heading
_TICK_LABELS = 0.32  # tick labels below a panel
_STRIP_GAP = 0.14
_HANDLE = 0.62  # a legend's sample with its spaces
_ROW = 0.178  # a legend's line
_APART = 0.037  # between a legend's labels
_LEGEND_TEXT = 2.4  # the widest line in a legend
_LEAST_WIDTH = 6.0
_COLUMN_GAP = 0.15  # between columns of a table below
_NARROW = 5.0  # a sheet below it has two lines of what is held
ASSUMED_NOTE = "Assumed values: see the file."
_HINTED = 0.97  # of a line's room: letters that are fitted to dots take a little more


# A text of a legend, and how its sample looks: an area where it has a ``facecolor``, else a line.
Sample = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Legend:
    """What stands in a legend: samples with their text."""

    samples: Sequence[Sample] = ()
    heading: str = ""

    @property
    def labels(self) -> list[str]:
        """The texts."""
        return [label for label, _ in self.samples]

    def handles(self) -> list[Any]:
        """Return the samples."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        looks = [look for _, look in self.samples]
        return [Patch(**one) if "facecolor" in one else Line2D([], [], **one) for one in looks]

    def lines(self) -> list[list[str]]:
        """Return each label's lines."""
        # What stands between dots stays on a line.
        whole = [together(label) if " · " in label else label for label in self.labels]
        return [wrap(label, _LEGEND_TEXT, SIZE_TEXT) for label in whole]

    def size(self) -> tuple[float, float]:
        """Return its width and height in inches; 0 for an empty one."""
        if not self.labels:
            return 0.0, 0.0
        lines = [line for label in self.lines() for line in label]
        widest = max(text_width(line, SIZE_TEXT) for line in lines) + _HANDLE
        widest = max(widest, text_width(self.heading, SIZE_TEXT, bold=True))
        labels = len(self.labels) + bool(self.heading)
        high = _ROW * (len(lines) + bool(self.heading)) + _APART * labels
        return widest + 0.1, high + 0.15


@dataclass(frozen=True, slots=True)
class Sheet:
    """The words of a figure, and the measures that depend on its kind."""

    title: str  # In bold
    # The axes' labels, once for all panels; the last for the second panels
    xlabel: str = ""
    ylabel: str = ""
    strip_label: str = ""
    fixed: str = ""  # What is held fixed, under the title
    notes: Sequence[str] = ()  # What stands below
    table: Sequence[Sequence[str]] = ()  # Rows above the notes, such as of numbered points
    panels: Sequence[str] = ("",)  # A heading for each panel; one empty text for a single panel
    left: float = 1.05  # Inches for the vertical axis' labels
    right: float = 0.25  # and for what stands beside the panels
    strip: float = 0.0  # Height in inches of a second panel under each; 0 for none
    # A panel's width and height in inches; by default from the number of panels
    panel: tuple[float, float] | None = None


def columns_of(panels: int) -> int:
    """Return in how many columns panels are laid out."""
    return min(_COLUMNS.get(panels, _WIDE), use().columns)


def panel_size(panels: int) -> tuple[float, float]:
    """Return a panel's width and height in inches."""
    width, height = _PANEL_SIZES.get(columns_of(panels), _SMALL_PANEL)
    return use().panel * width, use().panel * height


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
    axis_room: float  # Of the bottom what is beside the legend: ticks and the axis' label
    legend: tuple[float, float]
    legend_right: bool
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
        width += _GAP + self.legend[0] if self.legend_right else 0.0
        legend = self.legend[1] - self.axis_room if self.legend_right else 0.0
        inner = max(self.grid[1], legend)
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
        lines = "\n".join(wrap(text, length, SIZE_TEXT))
        how = {"ha": "left", "va": "center", "rotation": 90, "multialignment": "center"}
        self.text(0.1, middle, lines, **how)

    def draw_legend(self, legend: Legend) -> None:
        """Draw the legend where room was kept for it."""
        if not legend.labels:
            return
        plan = self.geometry
        x, y = plan.corner(len(self.axes))
        if plan.legend_right:
            x, y = plan.left + plan.grid[0] + plan.right, plan.size[1] - plan.top
        width, height = plan.size
        self.canvas.legend(
            legend.handles(),
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
    """Make a sheet with its panels and legend, keeping room for everything around them."""
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
    wide = [
        max(text_width(cell, SIZE_NOTE) for cell in column) + _COLUMN_GAP
        for column in zip(*sheet.table, strict=True)
    ]
    for row in reversed(sheet.table):
        for place, cell in enumerate(row):
            made.text(_EDGE + sum(wide[:place]), y, cell, size=SIZE_NOTE, va="bottom")
        y += SIZE_NOTE * LINE_HEIGHT
    made.draw_legend(legend)
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

    def plan(top: float, bottom: float, axis_room: float = 0.0) -> _Geometry:
        legend_right = bool(legend.labels) and not inside
        return _Geometry(
            columns,
            rows,
            panel,
            sheet.strip,
            heading,
            sheet.left,
            top,
            bottom,
            axis_room,
            size,
            legend_right,
            sheet.right,
        )

    above, below = _words(sheet, plan(0.0, 0.0).size[0] - 2 * _EDGE)
    top = 0.12 + sum(points * LINE_HEIGHT for _, points, _ in above) + 0.16 + heading
    labels = len(_xlabel(sheet, plan(0.0, 0.0).grid[0]))
    axis_room = _TICK_LABELS + labels * SIZE_TEXT * LINE_HEIGHT
    bottom = axis_room + 0.2 + (len(below) + len(sheet.table)) * SIZE_NOTE * LINE_HEIGHT
    planned, aspect = plan(top, bottom, axis_room), use().aspect
    if aspect is not None:  # Panels take the room that the page has for them
        high = (planned.size[0] / aspect - planned.size[1]) / rows
        wide = (planned.size[1] * aspect - planned.size[0]) / columns
        panel = panel[0] + max(wide, 0.0), panel[1] + max(high, 0.0)
        planned = plan(top, bottom, axis_room)
    return planned, above, below


def _xlabel(sheet: Sheet, width: float) -> list[str]:
    return wrap(sheet.xlabel, max(width, _LEAST_WIDTH - sheet.left), SIZE_TEXT, most=2)


def _words(sheet: Sheet, width: float) -> tuple[list[Line], list[str]]:
    width *= _HINTED
    title = wrap(sheet.title, width, SIZE_TITLE, bold=True)
    # One line of what is held, the first of it: all is in the file.
    parts = sheet.fixed.split(" · ")
    while len(fixed := wrap(" · ".join(parts), width, SIZE_TEXT)) > (1 if width > _NARROW else 2):
        if len(parts) == 1:
            break
        parts = parts[:-1]
    above = [
        *((line, SIZE_TITLE, "bold") for line in title),
        *((line, SIZE_TEXT, "normal") for line in fixed),
    ]
    below = wrap(" ".join(sheet.notes), width, SIZE_NOTE)
    if (
        len(below) > 1 and sheet.notes[-1] == ASSUMED_NOTE
    ):  # One line, and what is of all figures last
        below = wrap(" ".join(sheet.notes[:-1]), width, SIZE_NOTE)
    return above, below


# Where an axis has its ticks, and what stands at them.

_FEWEST = 3  # ticks that an axis should have at least
_MANY_MINOR = 40
_TWO_DECADES = 100.0
_STEPS = {2.0: (1, 2, 5, 10, 20, 30), 10.0: (1, 2, 3, 6, 9)}  # powers from tick to tick
_MANTISSAS = (1.0, 2.0, 5.0)
_LEAST_SHOWN = 0.05  # of the unit that all of an axis' numbers have


@dataclass(frozen=True, slots=True)
class Ticks:
    """Ticks of one axis."""

    positions: tuple[float, ...]  # In the axis' canonical unit
    labels: tuple[str, ...]  # What stands at each
    minor: tuple[float, ...] = ()  # Positions of ticks without text
    units: str = ""  # The unit for the axis' label, unless it stands at the ticks


def _with_units(positions: list[float], units: str, minor: list[float]) -> Ticks:
    """Return ticks with the unit once: in the axis' label, or at each where they differ in it."""
    scale = scale_of(units)
    names = {scale.pick(position)[1] for position in positions if position}
    if len(names) != 1 and units == "s-1" and max(positions, default=0.0) < _LARGEST_COUNT:
        labels = tuple(f"{position:,.10g}" for position in positions)
        return Ticks(tuple(positions), labels, tuple(minor))
    sizes = [abs(position) for position in positions if position]
    fit = [
        (factor, name)
        for factor, name in map(scale.pick, sorted(sizes))
        if len(names) == 1 or (min(sizes) >= _LEAST_SHOWN * factor and max(sizes) < 1e4 * factor)
    ]
    if not fit or (scale.binary and len(names) > 1):
        labels = tuple(scale.text(position, 4) for position in positions)
        return Ticks(tuple(positions), labels, tuple(minor))
    factor, name = fit[0]
    labels = tuple(number(position / factor, 4) for position in positions)
    return Ticks(tuple(positions), labels, tuple(minor), name)


def value_ticks(values: list[float], units: str) -> Ticks:
    """Return ticks at given values."""
    return _with_units(values, units, [])


def log_ticks(low: float, high: float, units: str, room: float, *, binary: bool = False) -> Ticks:
    """Return ticks of a logarithmic axis."""
    if binary or scale_of(units).binary:
        return _power_ticks(low, high, units, room, 2.0)
    lowest, highest = math.floor(math.log10(low)), math.ceil(math.log10(high))
    fine = [m * 10.0**e for e in range(lowest, highest + 1) for m in _MANTISSAS]
    fine = [position for position in fine if low <= position <= high]
    decades = sum(1 for position in fine if math.log10(position).is_integer())
    if decades > _FEWEST or (high / low >= _TWO_DECADES and len(fine) > room):
        return _power_ticks(low, high, units, room, 10.0)
    if len(fine) >= _FEWEST:
        return _with_units(fine, units, [])
    # A short axis: evenly spaced numbers, each with its unit as on every logarithmic axis.
    even = linear_ticks(low, high, units, room)
    return _with_units(list(even.positions), units, [])


def _power_ticks(low: float, high: float, units: str, room: float, base: float) -> Ticks:
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    if last - first < 1:
        even = linear_ticks(low, high, units, room)
        return _with_units(list(even.positions), units, [])
    chosen: list[int] = []
    for step in _STEPS[base]:
        chosen = [power for power in range(first, last + 1) if power % step == 0]
        if len(chosen) <= room:
            break
    if len(chosen) < 2:
        chosen = [first, last]
    between = [base**power for power in range(first, last + 1) if power not in chosen]
    minor = between if len(between) <= _MANY_MINOR else []
    return _with_units([base**power for power in chosen], units, minor)


def linear_ticks(low: float, high: float, units: str, room: float) -> Ticks:
    """Return ticks of a linear axis: round numbers in one unit, which belongs in the label."""
    factor, name = scale_of(units).pick(max(abs(low), abs(high)))
    low, high = low / factor, high / factor
    rough = (high - low) / max(room, 2.0) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    marks = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    positions = [float(mark * step) for mark in marks]
    labels = tuple(number(position, 6) for position in positions)
    return Ticks(tuple(position * factor for position in positions), labels, (), name)


# Axes: their scale, ends, ticks and label, from the metadata of what they show.

_LABEL_WIDTH = 0.72  # inches that a tick's label and its space take
_LABEL_HEIGHT = 0.3
_COUNTS_ROOM = 1.4  # so many more counts fit than numbers with a unit
_LONGEST_NAME = 72  # letters of a name beside an axis; symbol and unit come after it
_LOG_FROM = 16.0  # ratio of the ends from which an axis is logarithmic
_CLEARANCE = 0.08  # inches between the labels of two ticks
Side = Literal["left", "center", "right"]
_LARGEST_COUNT = 1e7  # rates below it are read without a prefix
_FEW_VALUES = 12  # so many values may each have a tick of their own


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a figure."""

    scale: Literal["log", "linear"]  # ``log`` or ``linear``
    low: float  # Its ends
    high: float
    ticks: Ticks  # Its ticks
    label: str  # Long name, symbol and units
    # How its first and its last label lie to their ticks: inwards where they would meet a neighbour
    sides: tuple[Side, Side] = ("center", "center")

    def apply(self, axes: Axes, direction: Literal["x", "y"], *, labels: bool = True) -> None:
        """Set one direction of some axes up; without tick labels where a neighbour has them."""
        axis = axes.xaxis if direction == "x" else axes.yaxis
        if direction == "x":
            axes.set_xscale(self.scale)
            axes.set_xlim(self.low, self.high)
        else:
            axes.set_yscale(self.scale)
            axes.set_ylim(self.low, self.high)
        texts = self.ticks.labels if labels else [""] * len(self.ticks.labels)
        # First the small ticks: those that matplotlib would make by itself take most of its time.
        axis.set_ticks(list(self.ticks.minor), labels=[""] * len(self.ticks.minor), minor=True)
        axis.set_ticks(list(self.ticks.positions), labels=list(texts))
        if direction == "x" and self.ticks.labels:
            for place, side in zip((0, -1), self.sides, strict=True):
                axis.get_ticklabels()[place].set_horizontalalignment(side)


def scale_for(values: NDArray[np.float64], wanted: str | None) -> Literal["log", "linear"]:
    """Return the scale that suits values: logarithmic from 1 to 16 on, where all are above 0."""
    if wanted is not None:
        return "linear" if wanted == "linear" else "log"
    positive = values[np.isfinite(values) & (values > 0)]
    if positive.size and positive.max() / positive.min() >= _LOG_FROM:
        return "log"
    return "linear"


def axis_of(
    name: str,
    attrs: Mapping[str, Any],
    values: NDArray[np.float64],
    scale: Literal["log", "linear"],
    inches: float,
    *,
    pad: float = 0.03,
    vertical: bool = False,
    discrete: bool = False,
    origin: float = 1.0,
    ends: tuple[float, float] | None = None,
) -> Axis:
    """Make an axis for values, from 0 where they leave at most a share `origin` of it empty."""
    units = str(attrs.get("units", "1"))
    usable = values[np.isfinite(values) & ((values > 0) | (scale == "linear"))]
    usable = usable if usable.size else np.array([1.0, 10.0])
    low, high = ends or _ends(float(usable.min()), float(usable.max()), scale, pad, origin=origin)
    room = inches / (_LABEL_HEIGHT if vertical else _LABEL_WIDTH)
    each = np.unique(usable).tolist() if discrete else []
    own = value_ticks(each, units) if all(_is_round(one, units) for one in each) else Ticks((), ())
    if own.labels and _fit(own, low, high, scale, inches, vertical=vertical):
        ticks = own
    elif scale == "log":
        counts = units == "1" and bool(np.all(usable == np.round(usable)))
        room *= _COUNTS_ROOM if counts else 1.0
        ticks = log_ticks(low, high, units, room, binary=counts)
    else:
        ticks = linear_ticks(low, high, units, room)
    if not vertical:
        ticks = _roomy(_thinned(ticks, low, high, scale, inches), low, high, scale, inches)
    named = sentence(long_name(name, attrs))
    if len(named) > _LONGEST_NAME:
        named = sentence(long_name(name, attrs, short=True))
    words = [shortened(named, _LONGEST_NAME)]
    words += [mark] if (mark := symbol(str(attrs.get("symbol", "")))) else []
    unit = f" ({ticks.units.replace(' ', UNBROKEN)})" if ticks.units else ""
    made = Axis(scale, low, high, ticks, f",{UNBROKEN}".join(words) + unit)
    return made if vertical else replace(made, sides=_sides(ticks, low, high, scale, inches))


def _is_round(value: float, units: str) -> bool:
    """Return whether a value has few digits: others need no tick of their own."""
    own = value / scale_of(units).pick(value)[0]
    return float(f"{own:.3g}") == own or (own.is_integer() and abs(own) < _LARGEST_COUNT)


def _fit(
    ticks: Ticks, low: float, high: float, scale: str, inches: float, *, vertical: bool
) -> bool:
    """Return whether the ticks' labels keep clear of each other."""
    if len(ticks.labels) > _FEW_VALUES:
        return False
    places, sizes = _extents(ticks, low, high, scale, inches)
    if vertical:
        sizes = np.full(len(places), _LABEL_HEIGHT * 0.7)
    return bool(np.all(np.diff(places) >= (sizes[1:] + sizes[:-1]) / 2))


def _extents(
    ticks: Ticks, low: float, high: float, scale: str, inches: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where the ticks of a horizontal axis lie, and how wide their labels are [inches]."""
    turn = np.log if scale == "log" else np.asarray
    places = turn(np.array(ticks.positions)) / (turn(high) - turn(low)) * inches
    sizes = [text_width(label, SIZE_NOTE + 0.5) + _CLEARANCE for label in ticks.labels]
    return places, np.array(sizes)


def _sides(ticks: Ticks, low: float, high: float, scale: str, inches: float) -> tuple[Side, Side]:
    """Return how the outermost labels lie, so that those of panels beside each other don't meet."""
    (first, last), (left, right) = _at_ends(ticks, low, high, scale, inches)
    return "left" if first and left else "center", "right" if last and right else "center"


def _at_ends(
    ticks: Ticks, low: float, high: float, scale: str, inches: float
) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """Return whether the outermost labels stand over the ends, and whether there is room inside."""
    if len(ticks.labels) < 2:
        return (False, False), (True, True)
    places, sizes = _extents(ticks, low, high, scale, inches)
    turn = np.log if scale == "log" else np.asarray
    start = float(turn(low)) / float(turn(high) - turn(low)) * inches
    free = np.diff(places) - (sizes[1:] + sizes[:-1]) / 2  # Between two labels
    over = (
        bool(places[0] - start - sizes[0] / 2 < -_GAP / 2),
        bool(start + inches - places[-1] - sizes[-1] / 2 < -_GAP / 2),
    )
    return over, (bool(free[0] > sizes[0] / 2), bool(free[-1] > sizes[-1] / 2))


def _roomy(ticks: Ticks, low: float, high: float, scale: str, inches: float) -> Ticks:
    """Return ticks without the label beside an outermost one that has to move inwards."""
    for place, end in ((1, 0), (-2, 1)):
        over, room = _at_ends(ticks, low, high, scale, inches)
        if over[end] and not room[end] and len(ticks.labels) > 2:
            kept = [k for k in range(len(ticks.labels)) if k != place % len(ticks.labels)]
            bare = ticks.positions[place]
            ticks = replace(
                ticks,
                positions=tuple(ticks.positions[k] for k in kept),
                labels=tuple(ticks.labels[k] for k in kept),
                minor=tuple(sorted({*ticks.minor, bare})),
            )
    return ticks


def _thinned(ticks: Ticks, low: float, high: float, scale: str, inches: float) -> Ticks:
    """Return ticks of which those lose their labels that would touch one before."""
    places, sizes = _extents(ticks, low, high, scale, inches)
    kept: list[int] = []
    for index, (place, size) in enumerate(zip(places, sizes, strict=True)):
        last = kept[-1] if kept else None
        if last is None or place - places[last] >= (size + sizes[last]) / 2:
            kept.append(index)
    bare = {position for index, position in enumerate(ticks.positions) if index not in kept}
    return replace(
        ticks,
        positions=tuple(ticks.positions[index] for index in kept),
        labels=tuple(ticks.labels[index] for index in kept),
        minor=tuple(sorted({*ticks.minor, *bare})),
    )


def _ends(low: float, high: float, scale: str, pad: float, *, origin: float) -> tuple[float, float]:
    if scale == "log":
        wide = max(np.log(high / low), np.log(1.5))
        return low * float(np.exp(-pad * wide)), high * float(np.exp(pad * wide))
    if low >= 0 and (low <= origin * high or low == high):  # lengths are compared from zero on
        return 0.0, high * (1 + 2 * pad) or 1.0
    wide = (high - low) or 1.0
    return low - pad * wide, high + pad * wide


def better_of(wanted: str | None, units: str) -> bool:
    """Return whether more is better: as declared, else for rates only."""
    if wanted is not None:
        return wanted == "more"
    return "s-1" in units.split()
