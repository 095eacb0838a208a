"""Figures for a screen, a slide and a paper: no text meets another in any."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from sweeps.cli import run
from sweeps.plots import draw, measured, recorded, timeline, tuning
from sweeps.plots.style import MUTED, USES, use, using
from sweeps.store.netcdf import open_dataset
from tests.plots.drawing import canvas_of
from tests.plots.training_datasets import make_training

SWEEPS = Path(__file__).parents[2] / "specs" / "sweeps"
# Those in the gallery are drawn in every use, below; one declares no figure.
SHIPPED = sorted(
    {path.stem for path in SWEEPS.glob("*.toml")}
    - {"all-reduce-algorithms", "llama3-70b-plans", "big-sweep"}
)
GALLERY = Path(__file__).parents[2] / "outputs" / "gallery"
FILES = sorted(GALLERY.glob("*.nc"))
MOST_LETTERS = 70


def texts_that_meet(canvas: Canvas, size: float = 1.0) -> list[tuple[str, ...]]:
    """Return texts that overlap by more than a dot, and those that leave the drawing."""
    if size != 1.0:  # as it was drawn, smaller
        canvas.set_dpi(size * canvas.get_dpi())
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw_without_rendering()
    texts = [one for one in canvas.findobj(Text) if one.get_visible() and one.get_text().strip()]
    # An annotation's own extent would take in its arrow.
    boxes = [(one.get_text(), Text.get_window_extent(one, renderer)) for one in texts]
    width, height = canvas.bbox.width, canvas.bbox.height
    found: list[tuple[str, ...]] = [
        (text, "outside")
        for text, box in boxes
        if min(box.x0, box.y0, width - box.x1, height - box.y1) < -1.0
    ]
    for (text, left), (right, box) in itertools.combinations(boxes, 2):
        across = min(left.x1, box.x1) - max(left.x0, box.x0)
        if across > 1.0 and min(left.y1, box.y1) - max(left.y0, box.y0) > 1.0:
            found.append((text, right))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_text_meets_another(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Canvas] = []

    def take(canvas: Canvas, _: Path) -> list[Path]:
        drawn.append(canvas)
        return []

    monkeypatch.setattr(draw, "save", take)
    from sweeps.cli.files import draw_figures

    with using(name):
        draw_figures(path, dataset=open_dataset(path))
    assert len(drawn) >= 3
    assert [texts_that_meet(canvas) for canvas in drawn] == [[]] * len(drawn)
    if name == "screen":
        assert [words_of(canvas) for canvas in drawn] == [([], [])] * len(drawn)
    aspect = USES[name].aspect
    if aspect is not None:  # panels take the page's width
        shapes = [canvas.get_size_inches() for canvas in drawn]
        assert min(wide / high for wide, high in shapes) > aspect - 1e-6


def range_not_used(canvas: Canvas) -> list[tuple[str, float]]:
    """Return axes of which 95 % of what is drawn takes less than half: lines, else bars' ends."""
    found: list[tuple[str, float]] = []
    alike: dict[object, list[Axes]] = {}
    for axes in canvas.axes:  # panels share their axes
        alike.setdefault((axes.get_xlim(), axes.get_ylim()), []).append(axes)
    for (every,), way in itertools.product(zip(alike.values()), (0, 1)):
        scale = every[0].get_yscale() if way else every[0].get_xscale()
        ends = every[0].get_ylim() if way else every[0].get_xlim()
        lines = [
            np.asarray(line.get_xydata())[:, way]
            for axes in every
            for line in axes.get_lines()
            if line.get_transform() == axes.transData and line.get_markerfacecolor() != "none"
        ]
        boxes = [
            patch.get_path().get_extents(patch.get_patch_transform())
            for axes in every
            for patch in axes.patches
        ]
        bars = [box.extents[end + way] for box in boxes for end in (0, 2)]
        bars += [
            segment[:, way].max()
            for axes in every
            for collection in axes.collections
            if isinstance(collection, LineCollection)
            for segment in collection.get_segments()
        ]
        values = np.concatenate([*lines, bars] if lines else [bars, [0.0]])
        turn = np.log if scale == "log" else np.asarray
        values = turn(values[np.isfinite(values) & ((values > 0) | (scale == "linear"))])
        if len(np.unique(values)) > 1:
            low, high = np.quantile(values, [0.025, 0.975] if lines else [0.0, 1.0])
            share = float((high - low) / abs(turn(ends[1]) - turn(ends[0])))
            found += [("xy"[way], round(share, 2))] if share < 0.5 else []
    return found


# Every kind of figure of every command, small.
DRAWN = (
    "collective --op all_reduce --topology ring,tree,switch --N 8,64 --M 1KiB:1GiB:x4",
    "collective --op all --topology ring --N 64 --M 1KiB:1GiB:x16",
    "collective --op all_reduce --N 16 --M 1MiB --hardware dgx-h100,dgx-b200",
    "collective --algorithm all --topology switch --N 8,512 --M 1KiB:1GiB:x8",
    "analysis --model llama3-70b --gpus 512 --tp 4,8 --pp 1,4 --seq-len 8192 --global-batch 512",
    "analysis --model llama3-70b --gpus 512 --tp 8 --pp 4 --seq-len 8192 --global-batch 512 "
    "--timeline t.json",
    "analysis --model llama3-8b --gpus 8,32,128 --tp 8 --seq-len 8192 --global-batch 512",
    "plan --model llama3-8b --gpus 64 --batch-size 256 --seq-len 8192 --tp 1,2 --cp 1",
    "plan --model llama3-8b --gpus 32,64,128 --batch-size 256 --seq-len 8192",
    "hops",
    "validate running",
    "overlap --compute 1ms:50ms:log9 --comm 10ms",
    "overlap --kind all --compute 50ms --comm 10ms",
    "overlap --compute 50ms --comm 10ms",
    *(f"run {name}" for name in SHIPPED),
)


@pytest.mark.thorough_cases(but=("--compute 1ms", "dgx-h100,dgx-b200", "--op all --topology"))
@pytest.mark.parametrize("line", DRAWN)
def test_every_figure_can_be_read(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[tuple[str, Canvas]] = []

    def take(canvas: Canvas, stem: Path) -> list[Path]:
        drawn.append((stem.name, canvas))
        return []

    for module in (draw, measured, recorded, timeline, tuning):
        monkeypatch.setattr(module, "save", take)
    monkeypatch.chdir(tmp_path)
    assert run([*line.split(), "--plot", "--output", "a.nc"]) == 0
    assert drawn
    for name, canvas in drawn:
        title, notes = words_of(canvas)
        assert (name, title) == (name, [])
        assert len(notes) <= 2 * (not line.startswith("run "))  # one line below a shipped sweep's
        assert (name, texts_that_meet(canvas), range_not_used(canvas)) == (name, [], [])
        assert (name, texts_that_meet(canvas, 0.5)) == (name, [])


def words_of(canvas: Canvas) -> tuple[list[str], list[str]]:
    """Return titles that aren't read at a glance, and footnotes if they take several lines."""
    titles = [text for text in canvas.texts if text.get_weight() == "bold"]
    whole = " ".join(title.get_text() for title in titles)
    notes = [
        text.get_text()
        for text in canvas.texts
        if text.get_color() == MUTED and text.get_verticalalignment() == "bottom"
    ]
    return [whole] * (len(whole) > MOST_LETTERS), notes * (len(notes) > 1)


def test_an_outlier_is_found() -> None:
    canvas = Canvas(figsize=(4.0, 2.0))
    axes = canvas.add_subplot()
    axes.plot(np.arange(100.0), [*np.ones(99), 50.0], markerfacecolor="C0")
    assert [way for way, _ in range_not_used(canvas)] == ["y"]
    canvas.clear()
    axes = canvas.add_subplot()
    axes.bar([0.0, 1.0], [1.0, 2.0])
    axes.set_ylim(0.0, 5.0)
    assert range_not_used(canvas) == [("y", 0.4)]


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


@pytest.mark.thorough
def test_a_slide_is_a_page_of_16_by_9(tmp_path: Path) -> None:
    png, svg = plotted(tmp_path, "slide")
    assert (png.name, svg.name) == ("a-scaling-slide.png", "a-scaling-slide.svg")
    height, width, _ = mpl.image.imread(png).shape
    assert width / height == pytest.approx(16 / 9, rel=5e-3)


@pytest.mark.thorough
def test_a_paper_has_vectors_in_one_column(tmp_path: Path) -> None:
    pdf, svg = plotted(tmp_path, "paper")
    words = pdf.read_bytes()
    assert words.startswith(b"%PDF")
    assert b"/MediaBox [ 0 0 252 " in words  # 3.5 inches of 72 points
    assert b"/CIDFontType2" in words  # TrueType, of which publishers take all
    assert b"/Type3" not in words
    text = svg.read_text(encoding="utf-8")
    assert "Ranks in the group" in text
    assert "Time of an all_reduce" not in text  # Its caption says it
    assert {*re.findall(r"font: (?:bold )?([\d.]+)px", text)} <= {"7", "7.380952", "8"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "names"),
    [
        (
            "analysis --model llama3-8b --gpus 8 --output a.nc",
            {"a-step-parts-paper", "a-memory-paper"},
        ),
        ("overlap --compute 50ms --comm 30ms --output a.nc", {"a-timeline"}),
        ("validate running --output a.nc", {"a-paper-goodput"}),
    ],
)
def test_a_command_draws_in_a_style(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, names: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*line.split(), "--plot", "--style", "paper"]) in (0, 1)
    drawn = {path.stem for path in tmp_path.glob("*.pdf")}
    assert names <= drawn
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.thorough
def test_panels_of_bars_are_below_each_other_in_a_column() -> None:
    made = make_training(micro_batch_size=(1, 2, 4, 8))
    with using("paper"):
        at = {"plan": [16, 17, 18], "recompute": "none"}
        canvas = canvas_of(made, kind="step_parts", x="plan", panels="micro_batch_size", at=at)
        assert not texts_that_meet(canvas)
    boxes = [axes.get_position() for axes in canvas.axes]
    assert len(boxes) == 4
    assert len({round(box.x0, 3) for box in boxes}) == 1


def test_type_on_a_slide_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Canvas] = []
    monkeypatch.setattr(draw, "save", lambda canvas, _: drawn.append(canvas) or [])
    from sweeps.cli.files import draw_figures

    with using("slide"):
        draw_figures(FILES[0], dataset=open_dataset(FILES[0]), wanted=("scaling",))
    (canvas,) = drawn
    wide, _ = canvas.get_size_inches()
    sizes = [text.get_fontsize() for text in canvas.findobj(Text) if text.get_text()]
    assert min(sizes) * 13.33 / wide > 16.0  # points, on a page of 13.33 inches


def test_a_use_ends_and_unknown_ones_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with using("paper"):
        assert use().column
    assert not use().column
    shutil.copy(FILES[0], tmp_path / "a.nc")
    assert run(["plot", str(tmp_path / "a.nc"), "--style", "slides"]) == 2
    assert capsys.readouterr().err == "sweeps: --style slides: unknown; did you mean 'slide'?\n"
