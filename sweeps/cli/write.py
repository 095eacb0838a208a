"""A command's result to where its options say: printed, in a file, as figures, with progress."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np

from sweeps import display
from sweeps.bands import AT_RISK, FIT, FITS, NO_ROOM, band_of, brief
from sweeps.blocks.estimate import Estimate, duration, lines
from sweeps.blocks.folder import Folder
from sweeps.blocks.run import Means, clear, write_sweep
from sweeps.cli.numbers import shown
from sweeps.engine.grid import SUBJECT
from sweeps.engine.validity import ONE_RANK
from sweeps.errors import InputError, fault, nearest, refuse, tell_all
from sweeps.impossible import impossible, too_many
from sweeps.job import Job
from sweeps.plots.data import PLACE, subject_of
from sweeps.plots.declare import check_figures, variables_of
from sweeps.plots.defaults import default_figures, main_variable
from sweeps.plots.draw import best_cells, draw, effects, tabulate
from sweeps.plots.schema import Figure
from sweeps.result import (
    SCHEMA_VERSION,
    Record,
    Result,
    aligned,
    csv_lines,
    fitted,
    hold,
    json_lines,
    of_dataset,
    stored_as,
    table_lines,
)
from sweeps.spec.contract import Contract, read_contract
from sweeps.spec.former import renamed
from sweeps.spec.units import format_bytes, is_binary
from sweeps.store.encode import Storage
from sweeps.store.netcdf import is_complete, is_ours, open_dataset, write
from sweeps.store.publish import NewFile, check_output, system_calls
from sweeps.store.publish import readable as text

if TYPE_CHECKING:
    import xarray as xr

# Seconds between lines of progress where they go to a file.
LOGGED = 30.0
# More cells than this are evaluated for a file or a reduction, not for the terminal; beside a file
# fewer, for only the first of them are shown.
MOST_SHOWN = 10**7
MOST_STEPS = 10**6
MOST_SHOWN_WITH_FILE = 10**5

# Endings of files that hold no dataset.
OTHERS = (".png", ".svg", ".pdf", ".json", ".toml", ".txt", ".log", ".xlsx")

# How a dataset is stored, with what is usual.
STORED = {"compress": False, "digits": None, "dtype": "f8"}

Figures = Sequence[Mapping[str, Any]]


class Progress:
    """A line on the terminal that says how far long work is, and how long it will take."""

    def __init__(self, words: str) -> None:
        self.words, self.start, self.last = words, time.monotonic(), 0.0
        self.shown = False
        self.before: int | None = None
        # In the log of a batch job, a line now and then.
        self.in_place = sys.stderr.isatty()
        self.pause, self.first = (0.2, 1.0) if self.in_place else (LOGGED, LOGGED)

    def __call__(self, done: int, total: int) -> None:
        """Show the state, now and then, and not for short work."""
        now = time.monotonic()
        if self.before is None:
            # What an earlier run has done took no time of this one.
            self.before, self.start = done, now
        spent = now - self.start
        if spent < self.first or (now - self.last < self.pause and done < total):
            return
        self.last, self.shown = now, self.in_place
        left = spent * (total - done) / max(done - self.before, 1)
        share = 100.0 * done / max(total, 1)
        rest = f", {duration(left)} left" if done > self.before else ""
        line = f"{self.words}: {share:3.0f} %{rest}"
        sys.stderr.write(f"\r{line}   " if self.in_place else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            sys.stderr.write("\r" + " " * 60 + "\r")


class Output:
    """Where a command's result goes."""

    def __init__(
        self, given: Mapping[str, Any], name: str, own: Mapping[str, str] | None = None
    ) -> None:
        self.given = given  # The command's options
        self.name = name  # Of the file in outputs/ where none is named, without its ending
        self.programs = bool(given["as_csv"] or given["as_json"])
        # Programs read records from standard output, so what is for people goes elsewhere.
        self.notes: TextIO = sys.stderr if self.programs else sys.stdout
        self.ends: TextIO = self.notes  # Where it says which files there are, after the answer
        self.wanted = bool(given["output"] or given["plot"])  # Whether there is a file to write
        self.contracts = [read_contract(text, own=own) for text in given.get("asserts", ())]
        faults = list(self._idle())
        if Path(given["output"] or "").suffix in OTHERS:
            allowed = "FILE.csv or FILE.nc"
            faults.append(fault("--output", given["output"], "is not a format", allowed))
        tell_all(faults)

    def _idle(self) -> Iterator[str]:
        """Yield a fault for each option that would do nothing beside the others."""
        given = self.given
        if given["as_csv"] and given["as_json"]:
            yield fault("--csv", "set", "can't be given with --json", "one of the two")
        if self.programs and given.get("verbose"):
            yield fault("--verbose", "set", "is told to people, not in records", "one of the two")
        always = "max_memory" in given  # of what writes a file whether or not one is named
        stored = (self.wanted or always) and Path(given["output"] or "").suffix != ".csv"
        for name, usual in STORED.items():
            if given[name] != usual and not stored:
                wrong = "is of a dataset in a file, and none is written"
                yield fault(f"--{name}", given[name], wrong, "--output FILE.nc, too")
        others = any(given.get(name) for name in ("write", "timeline", "output_dir"))
        if given["overwrite"] and not (self.wanted or always or others):
            yield fault("--overwrite", "set", "nothing is written", "--output FILE.nc, too")

    @property
    def path(self) -> Path:
        """The file."""
        ending = "zarr" if self.given.get("kind") == "zarr" else "nc"
        return Path(self.given["output"] or default_folder() / f"{self.name}.{ending}")

    @property
    def stem(self) -> Path:
        """The file without its ending: figures stand beside it."""
        return self.path.with_suffix("")

    def checked(self) -> Self:
        """Refuse an output that can't be before anything is computed; one that exists may be it."""
        if self.wanted:
            overwrite = bool(self.given["overwrite"])
            check_output(self.path, overwrite=overwrite or is_ours(self.path))
        return self

    def is_printed(self, job: Job) -> bool:
        """Return whether a job is small enough to be printed; refuse one that goes nowhere."""
        if not self.wanted:
            self.check_printable(job)
        with_file = self.wanted and not self.programs
        return job.program.grid.cells <= (MOST_SHOWN_WITH_FILE if with_file else _most(job))

    def check_printable(self, job: Job) -> None:
        """Refuse a job with more cells than can be printed."""
        if job.program.grid.cells > _most(job):
            job.check_size()
            shown = f"{job.program.grid.cells:,} cells"
            allowed = "use --output FILE.nc, or 'sweeps run' with a reduction"
            refuse("axes", shown, "too many to print", allowed)

    def deliver(
        self,
        result: Result,
        lines: Iterable[str] = (),
        figures: Figures | Callable[[xr.Dataset], Figures] | None = None,
        draw: Callable[[Path], Iterable[Path]] | None = None,
    ) -> None:
        """Write the file that is asked for, and show the result."""
        with self.answered_first():
            if self.wanted:
                self.write(result, figures, draw)
            self.show(result, lines)
        hold(self.contracts, result)

    @contextlib.contextmanager
    def answered_first(self) -> Iterator[None]:
        """Keep back which files there are until the answer stands."""
        kept, self.ends = self.ends, io.StringIO()
        try:
            yield
        finally:
            kept.write(self.ends.getvalue())
            self.ends = kept

    def hold_stored(self, contracts: Sequence[Contract]) -> None:
        """Check what is asserted of a file that was written."""
        if not contracts:
            return
        with open_dataset(self.path) as dataset:
            names = {one.name for one in contracts} & {str(name) for name in dataset.data_vars}
            hold(contracts, of_dataset(dataset[sorted(names)]))

    def evaluate(
        self,
        job: Job,
        lines: Callable[[Result], Iterable[str]],
        figures: Figures | None = None,
        rows: Callable[[], Iterator[Record]] | None = None,
    ) -> None:
        """Evaluate a job, write the file that is asked for, and show what can be printed."""
        found = replace(job.evaluated(), rows=rows) if self.is_printed(job) else None
        # What can't be printed isn't written either.
        shown = list(lines(found)) if found and not self.programs else []
        with self.answered_first():
            if self.wanted:
                self.write(job, figures)
            if found:
                self.show(found, shown)
        if found:
            hold(self.contracts, found)
        elif self.contracts:
            self.hold_stored(self.contracts)

    def show(self, result: Result, lines: Iterable[str] = ()) -> None:
        """Print records for programs, or else lines for people."""
        if self.programs:
            sys.stdout.writelines(self.text(result))
        else:
            sys.stdout.writelines(fitted(lines))

    def text(self, result: Result) -> Iterator[str]:
        """Yield a result's records as the text that is asked for."""
        version = {"schema_version": SCHEMA_VERSION}
        if self.given["as_json"] and result.whole is not None:
            whole = {**version, **result.whole}
            return iter([json.dumps(whole, indent=1, allow_nan=False) + "\n"])
        if self.given["as_json"]:
            return json_lines({**version, **record} for record in result.records())
        return csv_lines(result.records(), result.header())

    def write(
        self,
        result: Result | Job,
        figures: Figures | Callable[[xr.Dataset], Figures] | None = None,
        draw: Callable[[Path], Iterable[Path]] | None = None,
    ) -> None:
        """Write the file and draw the figures that are asked for, and say so.

        Figures are the declared ones, or those that suit a dataset; `draw` draws others, and
        returns their files.
        """
        path = self.path
        if path.suffix == ".csv":
            self._write_csv(result)
        elif not self.given["overwrite"] and _is_complete(path, result):
            self.ends.write(f"{path} is complete already: the same input and the same code\n")
        else:
            written = self._write_job(result) if isinstance(result, Job) else self._store(result)
            self.ends.write(f"wrote {path} ({readable(written)})\n")
        if not self.given["plot"]:
            return
        for made in draw(self.stem) if draw else ():
            self.ends.write(f"drew {made}\n")
        if draw is None or figures:
            dataset = result.dataset() if path.suffix == ".csv" else None
            draw_figures(path, figures, notes=self.ends, dataset=dataset)

    def _store(self, result: Result) -> int:
        with _progress(self.path) as progress:
            written = write(
                self.path,
                result.bare,
                result.blocks,
                overwrite=bool(self.given["overwrite"]),
                progress=progress("writing"),
                **stored_as(self.given),
            )
        return written.nbytes

    def _write_job(self, job: Job) -> int:
        given, zarr = self.given, self.given.get("kind") == "zarr"
        check_output(self.path, overwrite=bool(given["overwrite"]), folder=zarr)
        job.check_size()
        storage = Storage(**stored_as(given))
        means = Means(
            overwrite=bool(given["overwrite"]),
            resume=bool(given.get("resume")),
            workers=given.get("workers") or 0,
            scheduler=given.get("scheduler"),
            zarr=zarr,
            max_memory=given.get("max_memory") or "2GiB",
            formulas=own_formulas(given.get("formulas", ())),
        )
        with _progress(self.path) as progress:
            tell = _teller(self.notes) if "max_memory" in given else None
            written = write_sweep(job, self.path, means, storage, progress=progress, tell=tell)
        return written.nbytes

    def _write_csv(self, result: Result | Job) -> None:
        """Write the records as CSV: whole or not at all."""
        if isinstance(result, Job):
            self.is_printed(result)
            result = result.evaluated()
        target = check_output(self.path, overwrite=bool(self.given["overwrite"]))
        with system_calls(self.path), NewFile(target) as file:
            for line in csv_lines(result.records(), result.header()):
                file.write(line.encode("utf-8"))
            file.publish()
            self.notes.write(f"wrote {self.path} ({readable(file.nbytes)})\n")


def _most(job: Job) -> int:
    return MOST_STEPS if job.program.training else MOST_SHOWN


def _is_complete(path: Path, result: Result | Job) -> bool:
    """Tell whether a file holds what would be written; sweep away what was left beside it."""
    if isinstance(result, Result):
        return is_complete(path, result.layout.attrs["fingerprint"])
    complete = is_complete(path, result.attrs["fingerprint"])
    if complete:
        clear(path)
    return complete


@contextlib.contextmanager
def _progress(output: Path) -> Iterator[Callable[[str], Progress]]:
    """Give lines of progress, one after the other, the last of which is cleared."""
    shown: list[Progress] = []

    def begin(words: str) -> Progress:
        for line in shown:
            line.end()
        shown.append(Progress(words))
        return shown[-1]

    try:
        yield begin
    except KeyboardInterrupt:
        if Folder(output.resolve()).exists():
            sys.stderr.write("\nsweeps: finished blocks are kept: --resume goes on with them\n")
        raise
    finally:
        for line in shown:
            line.end()


def _teller(notes: TextIO) -> Callable[[Estimate], None]:
    """Return what shows the estimate of a long sweep."""

    def tell(found: Estimate) -> None:
        notes.writelines(line + "\n" for line in lines(found))
        notes.flush()

    return tell


def own_formulas(paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the names and the text of files of own formulas, for processes that need them too."""
    return tuple((Path(path).name, Path(path).read_text(encoding="utf-8")) for path in paths)


def default_folder() -> Path:
    """Return the folder of outputs that aren't named, made if it can be."""
    folder = Path("outputs")
    # Where it can't be made, checking the output says why.
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
    return folder


def readable(nbytes: int) -> str:
    """Return a number of bytes as people write it."""
    return text(nbytes)


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
        notes.write("drew nothing: no figure suits a dataset without an axis\n")
    for figure in checked:
        if wanted and figure.name not in wanted:
            continue
        stem = path.with_name(f"{path.stem}-{figure.name}{suffix}")
        for made in draw(dataset, figure, stem):
            notes.write(f"drew {made}\n")


def figures_of(dataset: xr.Dataset, declared: Figures | None = None) -> list[Figure]:
    """Return checked figures: those declared, a dataset's spec's, or what suits it."""
    import tomllib

    if not declared:
        try:
            spec = tomllib.loads(str(dataset.attrs.get("spec", "")))
            declared = renamed(spec, "spec").get("figures")
        except tomllib.TOMLDecodeError:
            declared = None
    subject = subject_of(dataset)
    return check_figures(declared or default_figures(dataset), subject.dims, subject.variables)


TABLES = ("curves", "scaling", "best")  # The kinds of figures that are tables as well
_MOST_ROWS = 24
_BEST = 8
FOLLOWING = ("gpus_per_node", "mesh_nx", "mesh_ny", "mesh_nz")  # Axes that others tell
_MOST_READ = 10_000_000  # Cells from which nothing is read just to show some of them


def answer_lines(path: Path) -> Iterator[str]:
    """Yield what a stored sweep says: its first lines or map as a table, or its best cells."""
    with open_dataset(path) as dataset:
        main = main_variable(dataset, subject_of(dataset))
        if main is None or dataset.variables[main].size > _MOST_READ:
            return
        own = [one for one in figures_of(dataset) if one.kind in TABLES]
        # What is asked first, and what stands beside it: of the same lines another quantity.
        alike = [one for one in own if _along(one) == _along(own[0])]
        shown = [tabulate(dataset, one) for one in alike]
        shown = shown or [best_cells(dataset, main, _BEST)]
        changes = [*effects(dataset, own[0])] if own else []
        changes += _of_others(dataset, own)
    yield from changes  # The answer, then what was asked
    for title, names, (heads, *rows), gaps in shown:
        yield title
        table, last = [heads, *rows[:_MOST_ROWS]], heads[-1].startswith(PLACE)
        yield from aligned(table, left=names, keys=names, last=last)
        yield from (f"  {gap}" for gap in gaps)
        if len(rows) > _MOST_ROWS:
            yield f"  ... and {len(rows) - _MOST_ROWS} more: --csv or --json give all"
        yield ""


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
        found = [f"  {line}" for line in effects(dataset, figure)]
        if found:
            yield tabulate(dataset, figure)[0]
            yield from found


# A result's cells as a table for people, and values as people write them.

PLAN = display.rows("plan", place="table")
STATES = "first_stage_model_state_memory"


def _wanted(result: Result, *, training: bool) -> list[str]:
    """Return the variables that a table shows."""
    values = {column.name: np.asarray(column.values) for column in result.layout.variables}
    if not training:
        shown = display.rows("collective", place="table")
        wanted = [name for name in shown if name in values]
        known = {*wanted, *display.rows("collective", place="report"), "chunks", "status"}
        return wanted + [name for name in values if name not in known]
    memory = "peak_memory" if "peak_memory" in values else STATES
    times = [name for name in values if name.endswith("_communication_time")]
    # Of what some plans have alone, what none here has is left out.
    perhaps = {*times, "bubble_fraction"}
    more = display.rows("communication", "step", "rates", "cost", place="table")
    first = [name for name in ("step_time", "tokens_per_second_per_gpu", "mfu") if name in more]
    usual = dict.fromkeys((*PLAN, *first, memory, *times, *more))
    return [
        name
        for name in usual
        if name in values and (name not in perhaps or np.any(values[name] > 0.0))
    ] or list(values)


_MOST_COMPARED = 5000  # Cells among which the best is looked for before a table
# What is compared: one of two that wins is named.
_SAID = {"message_bytes": "message", "world_size": "GPUs", "global_batch_size": "sequences a step",
         "sequence_length": "tokens a sequence"}  # fmt: skip
_RIVALS = ("algorithm", "topology", "hardware", "software", "mechanism", "model", "schedule")


def extremes(result: Result, *, training: bool) -> Iterator[str]:
    """Yield in a line or two what a table of many cells says: the ends, and what wins where."""
    rows = list(result.values(_MOST_COMPARED + 1))
    variables = {column.name for column in result.layout.variables}
    main = next((name for name in ("step_time", "time") if name in variables), "")
    done = [row for row in rows if main and np.isfinite(float(row[main]))]
    if not done or len(rows) > _MOST_COMPARED:
        return
    axes = [n for n in rows[0] if n not in variables and len({row[n] for row in rows}) > 1]
    if training:
        yield from _best_steps(rows, done, axes)
    else:
        ends = (pick(done, key=lambda row: float(row[main])) for pick in (min, max))
        yield "from " + " to ".join(
            f"{shown(main, row[main])} ({_place(row, axes)}; {band_of(main, row.get)})"
            for row in ends
        )
    # Models are no rivals: their steps are of other work.
    rivals = [name for name in axes if name in _RIVALS and name != "model"]
    if rivals:
        others = [n for n in axes if n not in (rivals[0], *FOLLOWING)]
        yield from _winners(done, main, rivals[0], others)


def _place(row: Mapping[str, Any], axes: Sequence[str]) -> str:
    return ", ".join(
        str(row[name])
        if name in (*_RIVALS, "collective")
        else f"{_SAID.get(name) or name.replace('_', ' ')} {shown(name, row[name])}"
        for name in axes
        if name not in FOLLOWING
    )


def _best_steps(
    rows: Sequence[Mapping[str, Any]], done: Sequence[Mapping[str, Any]], axes: Sequence[str]
) -> Iterator[str]:
    """Yield the best step of each model, with its band; never one model's beside another's."""
    models = dict.fromkeys(str(row.get("model", "")) for row in rows)
    rest = [name for name in axes if name != "model"]
    for model in models:
        every, own = (
            [row for row in some if str(row.get("model", "")) == model] for some in (rows, done)
        )
        head = f"{model}: " if len(models) > 1 else ""
        if not own:
            yield f"{head}nothing fits or can be"
            continue
        yield head + _best_step(every, own, rest)


def _best_step(
    every: Sequence[Mapping[str, Any]], done: Sequence[Mapping[str, Any]], axes: Sequence[str]
) -> str:
    """Return the best step of one model: the shortest, or of unlike work the most tokens a GPU."""
    rate = "tokens_per_second_per_gpu"
    work = {(row.get("global_batch_size"), row.get("sequence_length")) for row in done}
    fits = [row for row in done if float(row.get("memory_state", FITTING)) > 0.0]
    if len(work) > 1 and rate in done[0]:
        best = max(fits or done, key=lambda row: float(row[rate]))
        text = f"{float(best[rate]):,.0f} tokens/s per GPU ({band_of('step_time', best.get)})"
        what = "most, steps being of unlike batches"
    else:
        best = min(fits or done, key=lambda row: float(row["step_time"]))
        text, what = (
            f"{brief(best['step_time'], 's')} per step ({band_of('step_time', best.get)})",
            "shortest",
        )
    text += f", MFU {float(best['mfu']):.0%}" if "mfu" in best else ""
    if not fits:
        text += f": {NO_ROOM}"
    elif float(best.get("memory_state", FITTING)) < FITTING:
        text += f": {AT_RISK}"
    where = _place(best, axes)
    text += f"; {what}, with {where}" if where else ""
    few = f"; {len(every) - len(fits):,} of {len(every):,} don't fit or can't be"
    return text + few * (0 < len(fits) < len(every))


# The state of memory that fits, by the formula's number.
FITTING = float(FIT.index(FITS))


def _winners(
    rows: Sequence[Mapping[str, Any]], main: str, rival: str, others: Sequence[str]
) -> Iterator[str]:
    """Yield which of what is compared has the least, in how many cases."""
    cases: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        cases.setdefault(tuple(row[name] for name in others), []).append(row)
    won: dict[str, int] = {}
    compared = [own for own in cases.values() if len(own) > 1]
    for own in compared:
        best = str(min(own, key=lambda row: float(row[main]))[rival])
        won[best] = won.get(best, 0) + 1
    if not compared:
        return
    order = sorted(won.items(), key=lambda item: -item[1])
    texts = [f"{name} in {count:,}" for name, count in order]
    of = f" of {len(compared):,}" if len(compared) > 1 else ""
    line = f"{texts[0]}{of}" + "".join(f", {text}" for text in texts[1:])
    yield f"least time by {rival}: " + (line if of else order[0][0])


_SENT = ("sent_bytes", "link_bytes")  # What stands beside a message's size


def _of_row(result: Result, record: Mapping[str, Any]) -> Callable[[str, Any], str]:
    """Return what writes a cell: all bytes in powers of two where the message is, else of ten."""
    scalars = {c.name: c.values for c in result.layout.coordinates if not c.dims}
    message = record.get("message_bytes", scalars.get("message_bytes"))
    binary = message is not None and is_binary(float(message))

    def cell(name: str, value: Any) -> str:
        if message is not None and name in _SENT:
            return format_bytes(float(value), binary=binary)
        return shown(name, value)

    return cell


def as_table(result: Result, *, training: bool, most: int = 40) -> Iterator[str]:
    """Yield the cells as a table with aligned columns, cut after some rows."""
    yield from extremes(result, training=training)
    columns = (*result.layout.variables, *result.layout.coordinates)
    values = {column.name: column.values for column in columns}
    yield from impossible(values)
    yield from too_many(values.get("world_size" if training else "ranks", 0.0))
    rows = []
    wanted = _wanted(result, training=training)
    variables = {column.name for column in result.layout.variables}
    records = list(result.values(most))
    if all(one.get("algorithm") == one.get("chosen_algorithm") for one in records):
        wanted = [name for name in wanted if name != "chosen_algorithm"]
    for record in records:
        cell = _of_row(result, record)
        row = {
            name: cell(name, record[name])
            for name in (*(name for name in record if name not in variables), *wanted)
            if name in record
        }
        why = set(str(record.get("status", "ok")).split()) - {"ok", ONE_RANK}
        if training and float(record.get("memory_state", FITTING)) == 1.0:
            why.add(AT_RISK)
        if why:
            row["why"] = " ".join(sorted(why))
        rows.append(row)
    if any("why" in row for row in rows):
        # Behind what is missing, not behind all columns.
        head = [*itertools.takewhile(lambda name: name not in ("time", "step_time"), rows[0])]
        order = dict.fromkeys([*head, *(n for n in ("step_time", "time") if n in rows[0]), "why"])
        rows = [{name: row.get(name, "") for name in dict.fromkeys([*order, *row])} for row in rows]
    yield from table_lines(
        rows,
        lambda _, text: text,
        most=most,
        total=result.cells,
        title=lambda name: display.title(name) if name in variables else name,
        keys=sum(name not in variables for name in next(iter(rows), {})),
    )
