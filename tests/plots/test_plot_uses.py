"""Figures for a screen, a slide, a paper and dark ground: no text meets another in any."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from sweeps.cli import run
from sweeps.plots import draw
from sweeps.plots.style import USES, use, using
from sweeps.store.read import open_dataset

GALLERY = Path(__file__).parents[2] / "outputs" / "gallery"
FILES = sorted(GALLERY.glob("*.nc"))


def texts_that_meet(canvas: Canvas) -> list[tuple[str, ...]]:
    """Return texts that overlap by more than a dot, and those that leave the drawing."""
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw(renderer)
    texts = [one for one in canvas.findobj(Text) if one.get_visible() and one.get_text().strip()]
    # An annotation's own extent would take in its arrow.
    boxes = [(one.get_text(), Text.get_window_extent(one, renderer)) for one in texts]
    width, height = canvas.bbox.width, canvas.bbox.height
    found: list[tuple[str, ...]] = [
        (text, "outside") for text, box in boxes
        if min(box.x0, box.y0, width - box.x1, height - box.y1) < -1.0
    ]  # fmt: skip
    for (text, one), (other, box) in itertools.combinations(boxes, 2):
        across = min(one.x1, box.x1) - max(one.x0, box.x0)
        if across > 1.0 and min(one.y1, box.y1) - max(one.y0, box.y0) > 1.0:
            found.append((text, other))
    return found


@pytest.mark.parametrize("name", [name for name in USES if name != "dark"])  # laid out as screen is
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_text_meets_another(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Canvas] = []

    def take(canvas: Canvas, _: Path) -> list[Path]:
        drawn.append(canvas)
        return []

    monkeypatch.setattr(draw, "save", take)
    from sweeps.cli.write import draw_figures

    with using(name):
        draw_figures(path, dataset=open_dataset(path))
    assert len(drawn) >= 3
    assert [texts_that_meet(canvas) for canvas in drawn] == [[]] * len(drawn)


def test_texts_that_meet_are_found() -> None:
    canvas = Canvas(figsize=(4.0, 2.0))
    canvas.text(0.5, 0.5, "one text")
    canvas.text(0.55, 0.5, "another")
    canvas.text(0.97, 0.2, "leaves")
    assert texts_that_meet(canvas) == [("leaves", "outside"), ("one text", "another")]


def plotted(folder: Path, name: str) -> list[Path]:
    path = folder / "a.nc"
    shutil.copy(FILES[0], path)
    assert run(["plot", str(path), "--figure", "scaling", "--style", name]) == 0
    return sorted(one for one in folder.iterdir() if one != path)


def test_a_slide_is_a_page_of_16_by_9(tmp_path: Path) -> None:
    png, svg = plotted(tmp_path, "slide")
    assert (png.name, svg.name) == ("a-scaling-slide.png", "a-scaling-slide.svg")
    height, width, _ = mpl.image.imread(png).shape
    assert width / height == pytest.approx(16 / 9, rel=5e-3)


def test_a_paper_has_vectors_in_one_column(tmp_path: Path) -> None:
    pdf, svg = plotted(tmp_path, "paper")
    assert pdf.read_bytes().startswith(b"%PDF")
    assert svg.suffix == ".svg"


def test_dark_ground_has_light_words(tmp_path: Path) -> None:
    png, _ = plotted(tmp_path, "dark")
    pixels = mpl.image.imread(png)[..., :3]
    assert np.median(pixels) < 0.15
    assert pixels[:60].max() > 0.85  # the title's


def test_a_use_ends_and_unknown_ones_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with using("dark"):
        assert use().dark
    assert not use().dark
    shutil.copy(FILES[0], tmp_path / "a.nc")
    assert run(["plot", str(tmp_path / "a.nc"), "--style", "slides"]) == 2
    assert capsys.readouterr().err == "sweeps: --style = 'slides': unknown; did you mean 'slide'?\n"
