"""Write a drawing into files, whole or not at all, on light or dark ground."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.errors import RunError
from sweeps.plots.style import ALARM, BAND, COLOURS, FAINT, HOLE_COLOUR, INK, MUTED, use

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def save(canvas: Canvas, stem: Path) -> list[Path]:
    """Write a drawing in its use's forms, beside their final names; then move them there."""
    # No date and no program's version in the files: they change only with what is drawn.
    metadata: dict[str, dict[str, object]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    if use().dark:
        _darken(canvas)
    aspect = use().aspect
    page = {} if aspect is None else {"bbox_inches": _page(canvas, aspect)}
    paths = {ending: stem.with_name(f"{stem.name}.{ending}") for ending in use().endings}
    parts = {
        ending: path.with_name(f".{path.name}.{os.getpid()}.tmp") for ending, path in paths.items()
    }
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for ending, part in parts.items():
            how = {"facecolor": canvas.get_facecolor(), **page}
            canvas.savefig(part, format=ending, metadata=metadata[ending], **how)
        for ending, path in paths.items():
            parts[ending].replace(path)
    except OSError as error:
        message = f"{stem.parent}: the figure {stem.name} can't be written: {error.strerror}"
        raise RunError(message) from error
    finally:
        for part in parts.values():
            with suppress(OSError):  # gone already, or never there
                part.unlink()
    return list(paths.values())


def _page(canvas: Canvas, aspect: float) -> Any:
    """Return a page of some proportions around a drawing."""
    from matplotlib.transforms import Bbox

    width, height = canvas.get_size_inches()
    wide, high = max(width, aspect * height), max(height, width / aspect)
    return Bbox.from_bounds((width - wide) / 2, (height - high) / 2, wide, high)


# On dark ground: paper and ink change places, and what lies between.
_GROUND = "#15181c"
_DARK = {
    "#ffffff": _GROUND,
    INK: "#ececec",
    MUTED: "#b0b0b0",
    FAINT: "#363c43",
    HOLE_COLOUR: "#23282e",
    BAND: "#1d3a2c",
    COLOURS[-1]: "#d0d0d0",
    COLOURS[0]: "#4aa3df",
    ALARM: "#ff7a45",
    "#000000": "#ececec",
}
_COLOURED = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")


def _darken(canvas: Canvas) -> None:
    """Give a drawing the colours that it has on dark ground."""
    from matplotlib.colors import to_hex, to_rgba_array
    from matplotlib.patheffects import AbstractPathEffect
    from matplotlib.text import Text

    def other(value: Any) -> list[str]:
        rows = [(to_hex(row), round(255 * row[3])) for row in to_rgba_array(value)]
        return [f"{_DARK.get(seen, seen)}{alpha:02x}" if alpha else "none" for seen, alpha in rows]

    texts = (item for item in canvas.findobj() if isinstance(item, Text))
    boxes = [box for text in texts if (box := text.get_bbox_patch()) is not None]
    for artist in (*canvas.findobj(), *boxes):
        for name in _COLOURED:
            read, write = (getattr(artist, f"{verb}_{name}", None) for verb in ("get", "set"))
            if read is None or write is None or (name == "color" and hasattr(artist, "get_hatch")):
                continue
            colours = other(read())
            if colours:
                write(colours if len(colours) > 1 else colours[0])
        for effect in artist.get_path_effects() or ():
            assert isinstance(effect, AbstractPathEffect)
            settings = vars(effect).get("_gc", {})
            if "foreground" in settings:
                settings["foreground"] = other(settings["foreground"])[0]
