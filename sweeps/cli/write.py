"""A result to its file and figures, with progress."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sweeps.errors import InputError, fault, nearest
from sweeps.job import Job

if TYPE_CHECKING:
    from sweeps.blocks.estimate import Estimate

# Seconds between lines of progress where they go to a file.
LOGGED = 30.0


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
        from sweeps.blocks.estimate import duration

        self.last, self.shown = now, self.in_place
        left = spent * (total - done) / max(done - self.before, 1)
        share = 100.0 * done / max(total, 1)
        told = f", {duration(left)} left" if done > self.before else ""
        line = f"{self.words}: {share:3.0f} %{told}"
        sys.stderr.write(f"\r{line}   " if self.in_place else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            sys.stderr.write("\r" + " " * 60 + "\r")


def write_result(job: Job, given: Mapping[str, Any], figures: Any = None) -> int:
    """Write a result's file, say so, and draw its figures."""
    from sweeps.blocks.run import Means, clear, write_sweep
    from sweeps.store.encode import Storage
    from sweeps.store.read import is_complete

    output = Path(given["output"] or default_folder() / "collective.nc")
    # Programs read records from standard output, so what is for people goes elsewhere.
    notes = sys.stderr if given.get("as_csv") or given.get("as_json") else sys.stdout
    if not given["overwrite"] and is_complete(output, job.attrs["fingerprint"]):
        clear(output)
        notes.write(f"{output} is complete already: the same sweep by the same code\n")
    else:
        from sweeps.store.publish import check_output

        zarr = given.get("kind") == "zarr"
        check_output(output, overwrite=bool(given["overwrite"]), folder=zarr)
        job.check_size()
        storage = Storage(bool(given["compress"]), given["digits"], given["dtype"])
        means = Means(
            overwrite=bool(given["overwrite"]),
            resume=bool(given.get("resume")),
            workers=given.get("workers") or 0,
            scheduler=given.get("scheduler"),
            zarr=zarr,
            max_memory=given.get("max_memory") or "2GiB",
            formulas=own_formulas(given["formulas"]),
        )
        with _progress(output) as progress:
            tell = _teller(notes) if "max_memory" in given else None
            written = write_sweep(job, output, means, storage, progress=progress, tell=tell)
        notes.write(f"wrote {output} ({readable(written.nbytes)})\n")
    if given["plot"] or figures:
        draw_figures(output, figures, notes=notes)
    return 0


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
        from sweeps.blocks.folder import Folder

        if Folder(output.resolve()).exists():
            sys.stderr.write("\nsweeps: finished blocks are kept: --resume goes on with them\n")
        raise
    finally:
        for line in shown:
            line.end()


def _teller(notes: TextIO) -> Callable[[Estimate], None]:
    """Return what shows the estimate of a long sweep."""
    from sweeps.blocks.estimate import lines

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
    from sweeps.store.publish import readable as text

    return text(nbytes)


def draw_figures(
    path: Path, figures: Any = None, wanted: Sequence[str] = (), notes: TextIO | None = None
) -> None:
    """Draw a stored file's figures beside it."""
    import tomllib

    from sweeps.plots.data import subject_of
    from sweeps.plots.declare import check_figures
    from sweeps.plots.defaults import default_figures
    from sweeps.plots.draw import draw
    from sweeps.store.read import open_dataset

    dataset = open_dataset(path, require_ours=False)
    declared = figures
    if not declared:
        try:
            declared = tomllib.loads(str(dataset.attrs.get("spec", ""))).get("figures")
        except tomllib.TOMLDecodeError:
            declared = None
    declared = declared or default_figures(dataset)
    subject = subject_of(dataset)
    checked = check_figures(declared, subject.dims, subject.variables)
    unknown = set(wanted) - {figure.name for figure in checked}
    if unknown:
        known = [figure.name for figure in checked]
        raise InputError([fault("--figure", n, "no such one", nearest(n, known)) for n in unknown])
    notes = notes or sys.stdout
    if not checked:
        notes.write("drew nothing: no figure suits a dataset without an axis\n")
    for figure in checked:
        if wanted and figure.name not in wanted:
            continue
        stem = path.with_name(f"{path.stem}-{figure.name}")
        for made in draw(dataset, figure, stem):
            notes.write(f"drew {made}\n")
