"""A result or a job to a file, the figures beside it, and what a stored one says."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sweeps.blocks.estimate import Estimate, lines
from sweeps.blocks.run import Means, clear, write_sweep
from sweeps.cli.given import Given
from sweeps.cli.progress import progress_to, tell_drawn
from sweeps.cli.sections import first_rows
from sweeps.engine.grid import SUBJECT
from sweeps.errors import InputError, fault, nearest
from sweeps.former import renamed
from sweeps.job import Job
from sweeps.plots.data import subject_of
from sweeps.plots.declare import check_figures, variables_of
from sweeps.plots.defaults import default_figures, main_variable
from sweeps.plots.draw import draw
from sweeps.plots.names import PLACE
from sweeps.plots.schema import Figure
from sweeps.plots.tables import best_cells, effects, tabulate
from sweeps.result import Result, csv_lines
from sweeps.store.netcdf import is_complete, open_dataset, write
from sweeps.store.publish import NewFile, check_output, system_calls
from sweeps.wrapping import aligned, fitted, room

if TYPE_CHECKING:
    import xarray as xr

Figures = Sequence[Mapping[str, object]]


def store(result: Result, path: Path, given: Given) -> int:
    """Write a result as a dataset; return its bytes."""
    with progress_to(path) as progress:
        written = write(
            path,
            result.bare,
            result.blocks,
            overwrite=bool(given["overwrite"]),
            progress=progress("writing"),
            compress=bool(given.get("compress")),
        )
    return written.nbytes


def run_to(job: Job, path: Path, given: Given, notes: TextIO) -> int:
    """Evaluate a job block by block into a dataset; return its bytes."""
    zarr = given.get("kind") == "zarr"
    check_output(path, overwrite=bool(given["overwrite"]), folder=zarr)
    job.check_size()
    means = Means(
        overwrite=bool(given["overwrite"]),
        resume=bool(given.get("resume")),
        workers=given.get("workers") or 0,
        scheduler=given.get("scheduler"),
        zarr=zarr,
        max_memory=given.get("max_memory") or "2GiB",
        compress=bool(given.get("compress")),
        formulas=own_formulas(given.get("formulas", ())),
    )

    def tell(estimate: Estimate) -> None:
        notes.writelines(line + "\n" for line in lines(estimate))
        notes.flush()

    with progress_to(path) as progress:
        written = write_sweep(
            job,
            path,
            means,
            progress=progress,
            tell=tell if "max_memory" in given else None,
        )
    return written.nbytes


def write_csv(result: Result, path: Path, *, overwrite: bool) -> int:
    """Write the records as CSV, whole or not at all; return its bytes."""
    target = check_output(path, overwrite=overwrite)
    with system_calls(path), NewFile(target) as file:
        for line in csv_lines(result.records(), result.header()):
            file.write(line.encode("utf-8"))
        file.publish()
        return file.nbytes


def is_done(path: Path, result: Result | Job) -> bool:
    """Tell whether a file holds what would be written; sweep away what was left beside it."""
    if isinstance(result, Result):
        return is_complete(path, result.layout.attrs["fingerprint"])
    complete = is_complete(path, result.attrs["fingerprint"])
    if complete:
        clear(path)
    return complete


def own_formulas(paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the names and the text of files of own formulas, for processes that need them too."""
    return tuple((Path(path).name, Path(path).read_text(encoding="utf-8")) for path in paths)


def draw_figures(
    path: Path,
    figures: Figures | Callable[[xr.Dataset], Figures] | None = None,
    wanted: Sequence[str] = (),
    notes: TextIO | None = None,
    dataset: xr.Dataset | None = None,
    suffix: str = "",
) -> None:
    """Draw figures beside a stored file: those given, its spec's, or what suits its dataset."""
    dataset = open_dataset(path, require_ours=False) if dataset is None else dataset
    checked = figures_of(dataset, figures(dataset) if callable(figures) else figures)
    unknown = set(wanted) - {figure.name for figure in checked}
    if unknown:
        known = [figure.name for figure in checked]
        raise InputError([fault("--figure", n, "is unknown", nearest(n, known)) for n in unknown])
    notes = notes or sys.stdout
    if not checked:
        notes.write(f"drew nothing: {_why_none(dataset)}\n")
    for figure in checked:
        if wanted and figure.name not in wanted:
            continue
        stem = path.with_name(f"{path.stem}-{figure.name}{suffix}")
        tell_drawn(draw(dataset, figure, stem), notes)


def figures_of(dataset: xr.Dataset, declared: Figures | None = None) -> list[Figure]:
    """Return checked figures: those declared, a dataset's spec's, or what suits it."""
    if not declared and FIGURES in dataset.attrs:
        declared = json.loads(dataset.attrs[FIGURES])
        if not declared:
            return []
    if not declared:
        try:
            spec = tomllib.loads(str(dataset.attrs.get("spec", "")))
            declared = renamed(spec, "spec").get("figures")
        except tomllib.TOMLDecodeError:
            declared = None
    return check_figures(declared or default_figures(dataset), subject_of(dataset))


def _why_none(dataset: xr.Dataset) -> str:
    """Return why a dataset has no figure."""
    if FIGURES not in dataset.attrs:
        return "no figure suits a dataset without an axis"
    command = str(dataset.attrs.get("history", "")).partition(" ")[2] or "the command"
    return f"what the figure shows isn't in this file; draw it with: {command} --plot"


FIGURES = "figures"
"""The attribute of a table's file that declares its figures, as JSON."""
TABLES = ("curves", "scaling", "best")  # The kinds of figures that are tables as well
_MOST_LINES = 26  # of a screen, with what is said before
_FEW_LINES = 10
_BEST = 8
_MOST_READ = 10_000_000  # Cells from which nothing is read just to show some of them


# A table: its title, its number of columns of names, its heads and rows, and why some lack.
Table = tuple[str, int, list[list[str]], list[str]]


def lines_of(dataset: xr.Dataset) -> Iterator[str]:
    """Yield what a sweep says, then its first lines or map as a table, or its best cells."""
    changes, tables = _answer(dataset)
    yield from changes
    left = max(_FEW_LINES, _MOST_LINES - sum(1 for _ in fitted(changes)))
    for title, names, rows, gaps in tables:
        narrow = _narrowed(names, rows)
        lines, count = first_rows(narrow, left, partial(_aligned, names))
        if len(lines) > left:
            lines, count = [], 0
        if lines:
            yield from (title, *lines, *(f"  {gap}" for gap in gaps))
        if len(rows) - 1 > count:
            of = "" if lines else f" of: {title}"
            cut = len(rows) - 1 - count
            yield f"  {cut:,} more row{'s' * (cut > 1)}{of}"
        left -= len(lines)
        yield ""


def row_lines(path: Path) -> Iterator[str]:
    """Yield the tables of what a stored sweep says, whole: also the plans that they are of."""
    with open_dataset(path) as dataset:
        _, tables = _answer(dataset)
    for title, names, rows, gaps in tables:
        yield title
        yield from _aligned(names, rows)
        yield from (f"  {gap}" for gap in gaps)
        yield ""


def _answer(dataset: xr.Dataset) -> tuple[list[str], list[Table]]:
    """Return what a sweep says, and the tables that say it."""
    main = main_variable(dataset, subject_of(dataset))
    if main is None or dataset.variables[main].size > _MOST_READ:
        return [], []
    drawn = [figure for figure in figures_of(dataset) if figure.kind in TABLES]
    # What is asked first, and what stands beside it: of the same lines another quantity.
    alike = [figure for figure in drawn if _along(figure) == _along(drawn[0])]
    shown = [tabulate(dataset, figure) for figure in alike]
    shown = shown or [best_cells(dataset, main, _BEST)]
    changes = [*effects(dataset, drawn[0])] if drawn else []
    return [*changes, *_of_others(dataset, drawn)], shown


def _aligned(names: int, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from aligned(rows, left=names, keys=names, last=rows[0][-1].startswith(PLACE))


def _narrowed(names: int, rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return a table that a terminal shows whole: without plans, then with fewer samples."""
    width = sum(2 + max(map(len, column)) for column in zip(*rows, strict=True))
    if rows[0][-1].startswith(PLACE) and width > room():
        rows = [row[:-1] for row in rows]
    # In several blocks a line between them is empty.
    while len(rows[0]) > names + 2 and "" in _aligned(names, rows):
        middle = (names + len(rows[0])) // 2
        rows = [[*row[:middle], *row[middle + 1 :]] for row in rows]
    return rows


def _along(figure: Figure) -> tuple[Any, ...]:
    """Return what a figure lays its quantity along."""
    keys = ("x", "lines", "panels", "at")
    return (figure.kind, *(str(figure.options.get(key)) for key in keys))


def _of_others(dataset: xr.Dataset, figures: Sequence[Figure]) -> Iterator[str]:
    """Yield what the first figure of an operation says where the first of all is of a step."""
    first: dict[str, Figure] = {}
    for figure in figures:
        shown = dataset.variables.get(variables_of(figure)[0])
        first.setdefault("" if shown is None else shown.attrs.get(SUBJECT, ""), figure)
    for figure in [*first.values()][1:]:
        effect_lines = [f"  {line}" for line in effects(dataset, figure)]
        if effect_lines:
            yield figure["title"] or tabulate(dataset, figure)[0]
            yield from effect_lines
