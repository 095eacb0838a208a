"""Write a drawing into files, whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.errors import RunError
from sweeps.plots.style import use

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
    aspect = use().aspect
    page = {} if aspect is None else {"bbox_inches": _page(canvas, aspect)}
    paths = {ending: stem.with_name(f"{stem.name}.{ending}") for ending in use().endings}
    parts = {
        ending: path.with_name(f".{path.name}.{os.getpid()}.tmp") for ending, path in paths.items()
    }
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for ending, part in parts.items():
            canvas.savefig(part, format=ending, metadata=metadata[ending], **page)
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
