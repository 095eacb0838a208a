"""Cells of a notebook, run one after another in a process of their own: what each of them shows.

A cell shows what it prints, its last expression unless that ends in a semicolon, and the figures
that it leaves open, as notebooks do.  ``python -m tests.maintenance.cells`` reads cells and writes
what they show, as JSON.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweeps.errors import RunError
from sweeps.wrapping import LINE

Shown = dict[str, object]
# The time that results tell, so that a notebook is the same whenever it is run.
EPOCH = "1767225600"
_WIDE = 800  # dots of a notebook's picture
_TONES = 128
_LONGEST = 40_000  # letters of HTML that a notebook holds
# Whose HTML is the same in every run.
_STEADY = ("sweeps", "pandas")


def run_cells(cells: Sequence[str], files: Mapping[str, str]) -> list[list[Shown]]:
    """Run a notebook's cells beside some files, and return what each shows, as a notebook has it.

    Raises
    ------
    RunError
        If a cell fails.
    """
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        top = str(Path(__file__).parents[2])
        settings = {"PYTHONPATH": top, "COLUMNS": str(LINE), "SOURCE_DATE_EPOCH": EPOCH}
        process = subprocess.run(
            [sys.executable, "-m", "tests.maintenance.cells"],
            cwd=folder,
            env={**os.environ, **settings, "MPLBACKEND": "agg"},
            input=json.dumps([*cells]),
            capture_output=True,
            text=True,
            check=False,
        )
    if process.returncode:
        raise RunError(process.stderr)
    record: list[list[Shown]] = json.loads(process.stdout)
    return record


def main() -> None:
    """Run the cells of standard input."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [[*_run(cell, names)] for cell in json.load(sys.stdin)]
    json.dump(shown, sys.stdout)


def _run(cell: str, names: dict[str, object]) -> Iterator[Shown]:
    """Run a cell, and yield what it shows."""
    tree = ast.parse(cell)
    last = tree.body[-1] if tree.body else None
    value = None
    with redirect_stdout(StringIO()) as printed:
        if isinstance(last, ast.Expr):
            before = ast.Module(tree.body[:-1], [])
            exec(compile(before, "<cell>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        else:
            exec(compile(tree, "<cell>", "exec"), names)
    if text := printed.getvalue():
        lines = text.splitlines(keepends=True)
        yield {"name": "stdout", "output_type": "stream", "text": lines}
    if value is not None and not cell.rstrip().endswith(";"):
        about = {"data": dict(_bundle(value)), "metadata": {}, "execution_count": None}
        yield {"output_type": "execute_result", **about}
    if "matplotlib.pyplot" in sys.modules:
        for picture in _open_figures():
            data = {"image/png": picture, "text/plain": ["<Figure>"]}
            yield {"data": data, "metadata": {}, "output_type": "display_data"}


def _bundle(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the forms in which a notebook shows a value."""
    picture = value._repr_png_() if hasattr(value, "_repr_png_") else None
    if picture is not None:
        yield "image/png", _small(picture)
    steady = type(value).__module__.partition(".")[0] in _STEADY
    html = value._repr_html_() if steady and hasattr(value, "_repr_html_") else None
    if html is not None and len(html) < _LONGEST:
        yield "text/html", html.splitlines(keepends=True)
    yield "text/plain", repr(value).splitlines(keepends=True)


def _open_figures() -> Iterator[str]:
    from matplotlib import pyplot

    for number in pyplot.get_fignums():
        data = BytesIO()
        pyplot.figure(number).savefig(data, format="png", dpi=120, bbox_inches="tight")
        yield _small(data.getvalue())
    pyplot.close("all")


def _small(picture: bytes) -> str:
    """Return a picture in few dots and colours: notebooks are kept small."""
    from PIL import Image

    with Image.open(BytesIO(picture)) as whole:
        size = (_WIDE, round(whole.height * _WIDE / whole.width))
        small = whole.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        small = small.quantize(_TONES, Image.Quantize.FASTOCTREE)
    data = BytesIO()
    small.save(data, format="PNG", optimize=True)
    return b64encode(data.getvalue()).decode()


if __name__ == "__main__":
    main()
