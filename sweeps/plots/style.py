"""How every figure looks: type, colours, strokes, measures. Made to be read at half size."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sweeps.errors import InputError, nearest, refuse
from sweeps.spec.units import parse_quantity

# Options of an artist by matplotlib's names: their values are of many kinds.
Look = dict[str, Any]

# Okabe and Ito's colours, which stay apart for every kind of colour vision. The yellow is left to
# areas: as a line on white it can't be seen.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#333333")
_AREA_COLOURS = (*COLOURS[:6], "#F0E442", "#999999")
_DARKEST_TO_PALEST = 0.82  # of the colour scale, so that its lines stand out on white
_TINTS = (0.12, 0.62)  # how much white areas have, in the first and in the second round
STROKES: tuple[Any, ...] = (
    "solid",
    (0, (5, 1.6)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (1.3, 1.1)),
    (0, (9, 1.6)),
    (0, (6, 1.5, 1.2, 1.5, 1.2, 1.5)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
HATCHES = ("xxx", "+++", "|||", "---")
STIPPLE = ".."

INK = "#1a1a1a"
MUTED = "#595959"
FAINT = "#dcdcdc"
HOLE_COLOUR = "#f2f2f2"
BOUND = "#8a8a8a"
BAND = "#e3efe8"
ALARM = "#C23B00"

# Strokes and boxes that several kinds of figures have.
CAPACITY: dict[str, Any] = {"color": INK, "linewidth": 1.8, "linestyle": (0, (4, 1.5))}
BEHIND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
_FEW_COLOURS = 3  # more values of a number than these are told apart by a colour scale

UNBROKEN = "\u00a0"  # a space at which no line ends
LINE_HEIGHT = 1.35 / 72  # inches for each point of type
_LONG = 24  # letters from which a part of a name may be broken


@dataclass(frozen=True, slots=True)
class Use:
    """What a figure is for."""

    # Points; a figure of 7 inches shown at half its size leaves 5 points, still readable.
    text: float = 10.5
    note: float = 9.0
    title: float = 13.0  # 0 for none: a paper has a caption
    columns: int = 5  # Panels beside each other at most
    width: float = 6.0  # Inches of a page at least
    column: bool = False  # Whether a page is that wide whatever is drawn
    above: bool = False  # Whether legends stand above the panels, not beside them
    panel: float = 1.0  # By what its panels are larger
    aspect: float | None = None  # Width by height; None for what its panels take
    dots: float = 150.0  # By inch
    endings: tuple[str, ...] = ("png", "svg")

    @property
    def tick(self) -> float:
        """Points of the numbers along axes."""
        return self.note + 0.5 * self.scale

    @property
    def scale(self) -> float:
        """By what strokes and rows are larger than on a screen."""
        return self.text / 10.5


SCREEN = "screen"
USES = {
    "screen": Use(),
    # 20 points of type where a page of 10 inches is shown on one of 13.3
    "slide": Use(
        text=15.0,
        note=13.0,
        title=18.0,
        columns=3,
        width=10.0,
        above=True,
        panel=0.8,
        aspect=16 / 9,
        dots=192.0,
    ),
    "paper": Use(
        text=8.0,
        note=7.0,
        title=0.0,
        columns=2,
        width=3.5,
        column=True,
        above=True,
        endings=("pdf", "svg"),
    ),
}
_CURRENT: ContextVar[Use] = ContextVar("use of figures", default=USES[SCREEN])


def use() -> Use:
    """Return what is drawn for."""
    return _CURRENT.get()


def suffix_of(name: str | None) -> str:
    """Return what the files of a use's figures have after their names."""
    return "" if name in (None, SCREEN) else f"-{name}"


@contextmanager
def using(name: str) -> Iterator[None]:
    """Draw for a use inside.

    Raises
    ------
    InputError
        There is no such use.
    """
    if name not in USES:
        refuse("--style", name, "unknown", nearest(name, USES))
    token = _CURRENT.set(USES[name])
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _settings() -> dict[str, object]:
    """Return matplotlib's settings for the current use."""
    sizes = use()
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
        "font.size": sizes.text,
        "text.color": INK,
        "text.parse_math": False,  # names come from users: a dollar sign is one
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.labelsize": sizes.text,
        "axes.titlesize": sizes.text,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 5.0,
        "axes.linewidth": 1.0 * sizes.scale,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.unicode_minus": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.8 * sizes.scale,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": sizes.tick,
        "ytick.labelsize": sizes.tick,
        "xtick.minor.size": 2.0,
        "ytick.minor.size": 2.0,
        "lines.linewidth": 2.0 * sizes.scale,
        "lines.markersize": 5.5 * sizes.scale,
        "lines.dash_capstyle": "butt",
        "lines.scale_dashes": True,
        "legend.frameon": False,
        "legend.fontsize": sizes.text,
        "legend.title_fontsize": sizes.text,
        "hatch.linewidth": 1.4 * sizes.scale,
        "figure.facecolor": "white",
        "figure.dpi": sizes.dots,  # Letters are fitted to dots: laid out as it is written
        "savefig.facecolor": "white",
        "pdf.fonttype": 42,  # TrueType: publishers refuse the other
        "svg.fonttype": "none",  # text stays text: to be searched, edited, read aloud
        "svg.hashsalt": "sweeps",
    }


@contextmanager
def style() -> Iterator[None]:
    """Set the style for what is drawn inside, whatever a user's own settings are."""
    import matplotlib.style

    with matplotlib.style.context(["default", _settings()]):
        yield


def line_look(colour: int, stroke: int, of: int = 0) -> dict[str, Any]:
    """Return how a line is drawn: its colour, its stroke and its marker, each by a place.

    Where the colours show `of` values of a number, and not just a few, they are those of a scale.
    """
    shade = COLOURS[colour % len(COLOURS)]
    return {
        "color": shade if of <= _FEW_COLOURS else scale_colour(colour / (of - 1)),
        "linestyle": STROKES[stroke % len(STROKES)],
        "marker": MARKERS[stroke % len(MARKERS)],
    }


def region_colour(index: int) -> str:
    """Return the colour of an area: the lines' colour, then the same ones lighter."""
    base = _AREA_COLOURS[index % len(_AREA_COLOURS)]
    lighter = _TINTS[(index // len(_AREA_COLOURS)) % len(_TINTS)]
    parts = [int(base[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(255 * lighter + (1 - lighter) * part):02x}" for part in parts)


def scale_colour(share: float) -> str:
    """Return a colour of the scale for numbers, from 0 to 1; its palest end is left out."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return str(to_hex(mpl.colormaps["viridis"](_DARKEST_TO_PALEST * share)))


# A line is broken by trial: the same words are measured again and again.
@lru_cache(maxsize=4096)
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a line of text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def wrap(text: str, width: float, size: float, *, bold: bool = False, most: int = 3) -> list[str]:
    """Break text into lines."""
    lines: list[str] = []
    for word in text.split(" "):
        for piece in _pieces(word, width, size, bold=bold):
            longer = f"{lines[-1]} {piece}" if lines else piece
            if lines and text_width(longer, size, bold=bold) <= width:
                lines[-1] = longer
            else:
                lines.append(piece)
    if len(lines) > most:
        lines = lines[:most]
        last = lines[-1].rstrip(",;·")
        while last and text_width(f"{last}…", size, bold=bold) > width:
            last = last[:-1]
        lines[-1] = f"{last.rstrip()}…"
    return [line.replace(UNBROKEN, " ") for line in lines if line]


def unbroken(text: str) -> str:
    """Return text that a line doesn't end within."""
    return text.replace(" ", UNBROKEN)


def together(name: str) -> str:
    """Return a name of several parts, of which a line ends only between them."""
    comma = ", " in name and " · " not in name
    parts = name.split(", " if comma else " · ")
    joint = ", " if comma else f"{UNBROKEN}· "  # a line may end after the dot, not begin with it
    return joint.join(part if len(part) > _LONG else unbroken(part) for part in parts)


_DEGREE = re.compile(r"\b(tp|pp|dp|cp|ep|etp|vpp) (?=\d)")


def launched(name: str) -> str:
    """Return a plan's name as launch scripts have it: TP 8, PP 4, DP 16, ZeRO 1."""
    text = name.replace("virtual pipeline size ", "vpp ")
    if not _DEGREE.search(text):
        return name
    return _DEGREE.sub(lambda match: match[0].upper(), text).replace(" · ", ", ")


def _pieces(word: str, width: float, size: float, *, bold: bool) -> Iterator[str]:
    """Cut a word that is longer than a line."""
    while text_width(word, size, bold=bold) > width and len(word) > 1:
        cut = len(word) - 1
        while cut > 1 and text_width(word[:cut], size, bold=bold) > width:
            cut -= 1
        yield word[:cut]
        word = word[cut:]
    yield word


# Numbers and names as people read them: 64 KiB, 12.5 µs, 450 GB/s, α₁.

_STEPS = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PLAIN_DIGITS = 6  # whole numbers of at most so many digits are written out
_NOT_A_NUMBER = "none"
_FAR = 1e4  # values further apart than this have a unit each


@dataclass(frozen=True, slots=True)
class Scale:
    """The multiples in which a unit is read."""

    # Factor and text of each, from small to large
    multiples: tuple[tuple[float, str], ...]
    binary: bool = False  # Whether they are powers of 1024

    def pick(self, value: float) -> tuple[float, str]:
        """Return the factor and text of the multiple in which a value is read best."""
        size = abs(value) * (1 + 1e-9)
        if size == 0:
            plain = (multiple for multiple in self.multiples if multiple[0] == 1)
            return next(plain, self.multiples[0])
        fitting = [multiple for multiple in self.multiples if multiple[0] <= size]
        return fitting[-1] if fitting else self.multiples[0]

    def shared(self, values: Iterable[float]) -> tuple[float, str]:
        """Return the multiple in which a table's values are read together; 0 where none suits.

        Thousands have no prefix of their own where their digits fit: "3,880 tokens/s".
        """
        sizes = sorted(abs(value) for value in values if value and math.isfinite(value))
        if not sizes or sizes[-1] > _FAR * sizes[0]:
            return 0.0, ""
        factor, unit = self.pick(sizes[len(sizes) // 2])
        small = [multiple for multiple in self.multiples if multiple[0] * 1e3 == factor]
        return small[0] if unit.startswith("k ") and small else (factor, unit)

    def text(self, value: float, digits: int = 3) -> str:
        """Return a value with its unit, rounded to some significant digits."""
        factor, unit = self.pick(value)
        return f"{number(value / factor, digits)} {unit}".strip()

    def given(self, value: float, digits: int = 4) -> str:
        """Return a value that somebody chose: bytes round in powers of ten so (``140 GB``)."""
        if self.binary and not _short(value / self.pick(value)[0], digits):
            decimal = _prefixed("B", 0, 15)
            if _short(value / decimal.pick(value)[0], digits):
                return decimal.text(value, digits)
        return self.text(value, digits)


def _short(value: float, digits: int) -> bool:
    return abs(float(f"{value:.{digits}g}") - value) <= 1e-9 * abs(value)


def _prefixed(unit: str, least: int, most: int) -> Scale:
    steps = [step for step in _STEPS if least <= step <= most]
    return Scale(tuple((10.0**step, f"{_STEPS[step]}{unit}") for step in steps))


# What a network card sends is told in bits, whatever the unit of its numbers.
IN_BITS = "byte s-1 (bit)"
# Only messages are counted in powers of two; memory and what is sent in all are GB, as in reports.
IN_GB = "byte (GB)"
# Of a rate the noun is told: nobody reads "k/s".
TOKENS = "s-1 (tokens)"
IN_GPU = "byte (a GPU's GB)"  # beside a GPU's capacity

_SCALES = {
    IN_BITS: Scale(tuple((10.0**step / 8.0, f"{_STEPS[step]}bit/s") for step in (0, 3, 6, 9))),
    "byte": Scale(tuple((1024.0**i, text) for i, text in enumerate(_BINARY)), binary=True),
    IN_GB: _prefixed("B", 0, 15),
    "bit": _prefixed("bit", 0, 15),
    "s": _prefixed("s", -12, 0),
    "byte s-1": _prefixed("B/s", 0, 15),
    "bit s-1": _prefixed("bit/s", 0, 15),
    "s byte-1": _prefixed("s/B", -12, 0),
    "J": _prefixed("J", -12, 15),
    "J bit-1": _prefixed("J/bit", -12, 0),
    "J byte-1": _prefixed("J/B", -12, 0),
    "W": _prefixed("W", -3, 12),
    "s-1": _prefixed("/s", 0, 15),
    TOKENS: Scale(
        ((1.0, "tokens/s"), (1e3, "k tokens/s"), (1e6, "M tokens/s"), (1e9, "G tokens/s"))
    ),
    "1 s-1": _prefixed("FLOP/s", 0, 15),
    "USD": Scale(((1.0, "USD"), (1e3, "k USD"), (1e6, "M USD"))),
    "USD h-1": Scale(((1.0, "USD an hour"),)),
    IN_GPU: _prefixed("B", 0, 9),
    "1": Scale(((1.0, ""),)),
    "": Scale(((1.0, ""),)),
}


def as_read(name: str, units: str) -> str:
    """Return the unit in which a quantity's numbers are read."""
    if units == "s-1" and "token" in name:
        return TOKENS
    return IN_GB if units == "byte" and not name.startswith("message") else units


def canonical(units: str) -> str:
    """Return a unit without how it is read."""
    return units.partition(" (")[0]


def scale_of(units: str) -> Scale:
    """Return the multiples in which a canonical unit is read; its own name if it isn't known."""
    return _SCALES.get(units, Scale(((1.0, units),)))


def number(value: float, digits: int = 3) -> str:
    """Return a number without a needless exponent or zeros."""
    if value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return _NOT_A_NUMBER
    whole = abs(value) < 10.0**_PLAIN_DIGITS
    if whole and (value == round(value) or abs(value) >= 10.0**digits):
        return f"{value:.0f}"
    text = f"{value:.{digits}g}"
    mantissa, mark, exponent = text.partition("e")
    if mark and 0 < int(exponent) < _PLAIN_DIGITS:
        return f"{float(text):.0f}"
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def parse(text: str) -> float | None:
    """Read a number with or without a unit, whatever it is a number of."""
    for units in filter(None, _SCALES):
        try:
            return parse_quantity(text, units, field="", bare_is_si=True)
        except InputError:
            continue
    return None


_SUBSCRIPTS = dict(zip("0123456789", "₀₁₂₃₄₅₆₇₈₉", strict=True))


def symbol(latex: str) -> str:
    """Return a LaTeX symbol as plain text, or nothing where plain text has no such form."""
    text = latex.strip().strip("$").replace("{", "").replace("}", "")
    text = re.sub(r"\\([A-Za-z]+)", lambda match: _greek(match[1]), text)
    text = re.sub(r"_([0-9])$", lambda match: _SUBSCRIPTS[match[1]], text)
    return "" if re.search(r"[\\_^\s]", text) else text


def _greek(name: str) -> str:
    """Return a Greek letter by its LaTeX name; a backslash for any other command."""
    size = "SMALL" if name.islower() else "CAPITAL"
    letter = {"LAMBDA": "LAMDA"}.get(name.upper(), name.upper())  # as Unicode spells it
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {letter}")
    except KeyError:
        return "\\"


def long_name(name: str, attrs: Mapping[str, object], *, short: bool = False) -> str:
    """Return what a variable is, in words; `short` leaves out what stands in parentheses."""
    words = str(attrs.get("long_name") or plain(name))
    if str(attrs.get("comment", "")).startswith("Over "):  # The file says over what it is reduced
        words = words.rsplit(" over ", 1)[0]
    return re.sub(r"\s*\([^)]*\)", "", words) if short else words


def sentence(text: str) -> str:
    """Return text with a capital first letter; a name such as all_reduce stays as it is."""
    first = text.split(" ", 1)[0]
    return text if "_" in first or not first.islower() else text[:1].upper() + text[1:]


def shortened(text: str, letters: int) -> str:
    """Return text cut to some letters, at a space where there is one."""
    if len(text) <= letters:
        return text
    cut = text[: letters - 1]
    return f"{cut.rsplit(' ', 1)[0] if ' ' in cut else cut}…"


def plain(name: str) -> str:
    """Return a name with spaces for underscores."""
    return name.replace("_", " ")
