"""How every figure looks: type, colours, strokes, measures. Made to be read at half size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "ALARM",
    "BAND",
    "BOUND",
    "COLOURS",
    "FAINT",
    "HATCHES",
    "HOLE_COLOUR",
    "INK",
    "LINE_HEIGHT",
    "MARKERS",
    "MUTED",
    "SIZE_NOTE",
    "SIZE_TEXT",
    "SIZE_TITLE",
    "STIPPLE",
    "STROKES",
    "UNBROKEN",
    "region_colour",
    "scale_colour",
    "style",
    "text_width",
    "together",
    "unbroken",
    "wrap",
]

# Okabe and Ito's colours, which stay apart for every kind of colour vision. The yellow is left to
# areas: as a line on white it can't be seen.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#333333")
_AREA_COLOURS = (*COLOURS[:6], "#F0E442", "#999999")
_DARKEST_TO_PALEST = 0.88  # of the colour scale, so that its lines stand out on white
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

# Points; a figure of 7 inches shown at half its size leaves 5 points, still readable.
SIZE_TITLE = 13.0
SIZE_TEXT = 10.5
SIZE_NOTE = 9.0
UNBROKEN = "\u00a0"  # a space at which no line ends
LINE_HEIGHT = 1.35 / 72  # inches for each point of type
_LONG = 24  # letters from which a part of a name may be broken

_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": SIZE_TEXT,
    "text.color": INK,
    "text.parse_math": False,  # names come from users: a dollar sign is one
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": SIZE_TEXT,
    "axes.titlesize": SIZE_TEXT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 5.0,
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SIZE_NOTE + 0.5,
    "ytick.labelsize": SIZE_NOTE + 0.5,
    "xtick.minor.size": 2.0,
    "ytick.minor.size": 2.0,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.5,
    "lines.dash_capstyle": "butt",
    "lines.scale_dashes": True,
    "legend.frameon": False,
    "legend.fontsize": SIZE_TEXT,
    "legend.title_fontsize": SIZE_TEXT,
    "hatch.linewidth": 1.4,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",  # text stays text: to be searched, edited, read aloud
    "svg.hashsalt": "sweeps",
}


@contextmanager
def style() -> Iterator[None]:
    """Set the style for what is drawn inside, whatever a user's own settings are."""
    import matplotlib.style

    with matplotlib.style.context(["default", _SETTINGS]):
        yield


def region_colour(index: int) -> str:
    """Return the colour of an area: the lines' colour, then the same ones lighter."""
    from matplotlib.colors import to_hex, to_rgb

    base = to_rgb(_AREA_COLOURS[index % len(_AREA_COLOURS)])
    lighter = _TINTS[(index // len(_AREA_COLOURS)) % len(_TINTS)]
    mixed = [lighter + (1 - lighter) * part for part in base]
    return str(to_hex((mixed[0], mixed[1], mixed[2])))


def scale_colour(share: float) -> str:
    """Return a colour of the scale for numbers, from 0 to 1; its palest end is left out."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return str(to_hex(mpl.colormaps["cividis"](_DARKEST_TO_PALEST * share)))


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
    parts = name.split(" · ")
    joint = f"{UNBROKEN}· "  # a line may end after the dot, and not begin with it
    return joint.join(part if len(part) > _LONG else unbroken(part) for part in parts)


def _pieces(word: str, width: float, size: float, *, bold: bool) -> Iterator[str]:
    """Cut a word that is longer than a line."""
    while text_width(word, size, bold=bold) > width and len(word) > 1:
        cut = len(word) - 1
        while cut > 1 and text_width(word[:cut], size, bold=bold) > width:
            cut -= 1
        yield word[:cut]
        word = word[cut:]
    yield word
