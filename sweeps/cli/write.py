"""A result to its file and figures, with progress."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sweeps.errors import InputError, fault, nearest
from sweeps.job import Job

__all__ = ["Progress", "default_folder", "draw_figures", "write_result"]


class Progress:
    """A line on the terminal that says how far long work is, and how long it will take.

    Parameters
    ----------
    words : str
        What is being done.
    """

    def __init__(self, words: str) -> None:
        self.words, self.start, self.last = words, time.monotonic(), 0.0
        self.shown = False
        self.wanted = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Show the state, at most five times a second, and not for short work."""
        now = time.monotonic()
        spent = now - self.start
        if not self.wanted or spent < 1.0 or (now - self.last < 0.2 and done < total):
            return
        self.last, self.shown = now, True
        left = spent * (total - done) / max(done, 1)
        share = 100.0 * done / max(total, 1)
        sys.stderr.write(f"\r{self.words}: {share:3.0f} %, {left:.0f} s left   ")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            sys.stderr.write("\r" + " " * 60 + "\r")


def write_result(job: Job, given: Mapping[str, Any], figures: Any = None) -> int:
    """Write a result's file, say so, and draw its figures.

    Parameters
    ----------
    job : Job
        Ready to run.
    given : mapping
        The options of the command: ``output``, ``overwrite``, ``plot``, ..
    figures : sequence of mapping, optional
        Declared figures; sensible ones where none are declared and ``plot`` is set.

    Returns
    -------
    int
        The exit code.
    """
    from sweeps.store.read import is_complete
    from sweeps.store.write import write

    output = Path(given["output"] or default_folder() / "collective.nc")
    # Programs read records from standard output, so what is for people goes elsewhere.
    notes = sys.stderr if given.get("as_csv") or given.get("as_json") else sys.stdout
    if not given["overwrite"] and is_complete(output, job.attrs["fingerprint"]):
        notes.write(f"{output} is complete already: the same sweep by the same code\n")
    else:
        from sweeps.store.publish import check_output

        check_output(output, overwrite=bool(given["overwrite"]))
        job.check_size()
        progress = Progress("reducing")
        layout, blocks = job.result(progress)
        progress.end()
        progress = Progress("writing")
        written = write(
            output,
            layout,
            blocks,
            overwrite=bool(given["overwrite"]),
            compress=bool(given["compress"]),
            digits=given["digits"],
            dtype=given["dtype"],
            progress=progress,
        )
        progress.end()
        notes.write(f"wrote {output} ({readable(written.nbytes)})\n")
    if given["plot"] or figures:
        draw_figures(output, figures, notes=notes)
    return 0


def default_folder() -> Path:
    """Return the folder of outputs that aren't named, made if it can be."""
    folder = Path("outputs")
    # Where it can't be made, checking the output says why.
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
    return folder


def readable(nbytes: int) -> str:
    """Return a number of bytes as people write it."""
    from sweeps.store.space import readable as text

    return text(nbytes)


def draw_figures(
    path: Path, figures: Any = None, wanted: Sequence[str] = (), notes: TextIO | None = None
) -> None:
    """Draw a stored file's figures beside it.

    Parameters
    ----------
    path : Path
        The file.
    figures : sequence of mapping, optional
        Declarations; those that suit the dataset where there are none.
    wanted : sequence of str
        Names of figures; all where none are named.
    notes : file, optional
        Where to say what was drawn; standard output by default.
    """
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
