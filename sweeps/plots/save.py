"""A drawing to its files: whole or not at all, the same bytes for the same drawing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.errors import RunError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

__all__ = ["save"]

_RESOLUTION = 150  # dots per inch of a PNG


def save(canvas: Canvas, stem: Path) -> list[Path]:
    """Write a drawing as PNG and SVG."""
    # No date and no program's version in the files: they change only with what is drawn.
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
    }
    paths = {ending: stem.with_name(f"{stem.name}.{ending}") for ending in metadata}
    parts = {
        ending: path.with_name(f".{path.name}.{os.getpid()}.tmp") for ending, path in paths.items()
    }
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for ending, part in parts.items():
            canvas.savefig(part, format=ending, dpi=_RESOLUTION, metadata=metadata[ending])
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
