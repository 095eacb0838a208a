"""A command's result to where its options say: printed, or in a file, with figures.

What files and figures need is imported when there is one to write.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from sweeps.cli.given import Given
from sweeps.cli.kept import keep
from sweeps.cli.progress import tell_drawn
from sweeps.contracts import check_asserted, hold
from sweeps.errors import fault, refuse, tell_all
from sweeps.job import Job
from sweeps.result import SCHEMA_VERSION, Record, Result, csv_lines, json_lines, of_dataset
from sweeps.spec.contract import Contract, read_contract
from sweeps.wrapping import fitted

if TYPE_CHECKING:
    import xarray as xr

# More cells than this are evaluated for a file or a reduction, not for the terminal; beside a file
# fewer, for only the first of them are shown.
MOST_SHOWN = 10**7
MOST_STEPS = 10**6
MOST_SHOWN_WITH_FILE = 10**5

# Endings of files that hold no dataset.
OTHERS = (
    *(".png", ".svg", ".pdf", ".json", ".toml", ".txt", ".log", ".xlsx"),
    *(".yaml", ".yml", ".md", ".parquet"),
)

Figures = Sequence[Mapping[str, object]]


class Output:
    """Where a command's result goes."""

    def __init__(
        self, given: Given, name: str, reduction_units: Mapping[str, str] | None = None
    ) -> None:
        self.given = given  # The command's options
        self.name = name  # Of the file in outputs/ where none is named, without its ending
        self.programs = bool(given["as_csv"] or given["as_json"])
        # Programs read records from standard output, so what is for people goes elsewhere.
        self.notes: TextIO = sys.stderr if self.programs else sys.stdout
        self.ends: TextIO = self.notes  # Where it says which files there are, after the answer
        self.wanted = bool(given["output"] or given["plot"])  # Whether there is a file to write
        self.contracts = [
            read_contract(text, further=reduction_units) for text in given.get("asserts", ())
        ]
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
            yield fault("--verbose", "set", "is on screen, not in records", "one of the two")
        if self.programs and given.get("show"):
            shown = ",".join(given["show"])
            yield fault("--show", shown, "is on screen, not in records", "one of the two")
        always = "max_memory" in given  # of what writes a file whether or not one is named
        stored = (self.wanted or always) and Path(given["output"] or "").suffix != ".csv"
        if given["compress"] and not stored:
            wrong = "is of a dataset in a file, and none is written"
            yield fault("--compress", given["compress"], wrong, "--output FILE.nc, too")
        others = any(given.get(name) for name in ("write", "timeline", "output_dir", "save"))
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

    @property
    def figure_stem(self) -> Path:
        """A figure that has no name of its own, without its ending: its style is in its name."""
        from sweeps.plots.style import suffix_of

        return self.stem.with_name(self.stem.name + suffix_of(self.given.get("style")))

    def checked(self) -> Self:
        """Refuse an output that can't be before anything is computed; one that exists may be it."""
        if self.wanted:
            from sweeps.store.netcdf import is_ours
            from sweeps.store.publish import check_output

            overwrite = bool(self.given["overwrite"])
            check_output(self.path, overwrite=overwrite or is_ours(self.path))
        return self

    def is_printed(self, job: Job, *, must: bool = False) -> bool:
        """Return whether a job is small enough to be printed; refuse one that goes nowhere else."""
        cells, most = job.program.grid.cells, MOST_STEPS if job.program.training else MOST_SHOWN
        if cells > most and (must or not self.wanted):
            job.check_size()
            allowed = "use --output FILE.nc, or 'sweeps run' with a reduction"
            refuse("axes", f"{cells:,} cells", "too many to print", allowed)
        with_file = self.wanted and not self.programs
        return cells <= (MOST_SHOWN_WITH_FILE if with_file else most)

    def deliver(
        self,
        result: Result | Callable[[], Result],
        lines: Iterable[str] = (),
        figures: Figures | Callable[[xr.Dataset], Figures] | None = None,
        draw: Callable[[Path], Iterable[Path]] | None = None,
    ) -> None:
        """Write the file that is asked for, and show the result.

        A table that lines don't need is a function, called where a file, a program or a contract
        reads it.
        """
        keep(result=result, figures=figures, draw=draw)
        if callable(result) and not (self.wanted or self.programs or self.contracts):
            sys.stdout.writelines(fitted(lines))
            return
        result = result() if callable(result) else result
        check_asserted(self.contracts, result.numbers)
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
        from sweeps.store.netcdf import open_dataset

        with open_dataset(self.path) as dataset:
            names = {contract.name for contract in contracts} & {
                str(name) for name in dataset.data_vars
            }
            hold(contracts, of_dataset(dataset[sorted(names)]))

    def evaluate(
        self,
        job: Job,
        lines: Callable[[Result], Iterable[str]],
        figures: Figures | None = None,
        rows: Callable[[], Iterator[Record]] | None = None,
    ) -> None:
        """Evaluate a job, write the file that is asked for, and show what can be printed."""
        if self.contracts:
            check_asserted(self.contracts, job.computed)
        records = replace(job.evaluated(), rows=rows) if self.is_printed(job) else None
        keep(result=job, records=records, figures=figures)
        # What can't be printed isn't written either.
        shown = list(lines(records)) if records and not self.programs else []
        with self.answered_first():
            if self.wanted:
                self.write(job, figures)
            if records:
                self.show(records, shown)
        if records:
            hold(self.contracts, records)
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
        returns their files.  A table's file holds those that are declared, for ``sweeps plot``:
        none where what they show isn't in it.
        """
        from sweeps.cli import files
        from sweeps.store.publish import readable

        if isinstance(result, Result) and figures is not None:
            figures = list(figures(result.dataset()) if callable(figures) else figures)
            attrs = {**result.layout.attrs, files.FIGURES: json.dumps(figures)}
            result = replace(result, layout=replace(result.layout, attrs=attrs))

        path, overwrite = self.path, bool(self.given["overwrite"])
        if path.suffix == ".csv":
            if isinstance(result, Job):
                self.is_printed(result)
                result = result.evaluated()
            written = files.write_csv(result, path, overwrite=overwrite)
            self.notes.write(f"wrote {path} ({readable(written)})\n")
        elif not overwrite and files.is_done(path, result):
            self.ends.write(f"{path} is complete already: the same input and the same code\n")
        else:
            written = (
                files.run_to(result, path, self.given, self.notes)
                if isinstance(result, Job)
                else files.store(result, path, self.given)
            )
            self.ends.write(f"wrote {path} ({readable(written)})\n")
        if self.given["plot"]:
            self._draw(result, figures, draw)

    def _draw(
        self,
        result: Result | Job,
        figures: Figures | Callable[[xr.Dataset], Figures] | None,
        draw: Callable[[Path], Iterable[Path]] | None,
    ) -> None:
        """Draw figures beside the file; the command's style holds."""
        from sweeps.cli import files
        from sweeps.plots.style import suffix_of

        suffix = suffix_of(self.given.get("style"))
        tell_drawn(draw(self.figure_stem) if draw else (), self.ends)
        if draw is None or figures:
            table = not isinstance(result, Job) and self.path.suffix == ".csv"
            dataset = result.dataset() if table else None
            files.draw_figures(self.path, figures, notes=self.ends, dataset=dataset, suffix=suffix)


def default_folder() -> Path:
    """Return the folder of outputs that aren't named, made if it can be."""
    folder = Path("outputs")
    # Where it can't be made, checking the output says why.
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
    return folder
