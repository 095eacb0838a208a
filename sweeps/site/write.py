"""Folders of pages or notebooks, each whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweeps.errors import refuse
from sweeps.site.cells import run_cells
from sweeps.site.jobs import Job, notebook
from sweeps.site.reference import Site
from sweeps.store.publish import check_output, publish_folder, system_calls, temporary


def write_site(site: Site, folder: Path, *, overwrite: bool = False) -> int:
    """Write the site as a folder, whole or not at all, and return how many files it has.

    Raises
    ------
    InputError
        If something is there that isn't a site, or is one and may not be overwritten.
    """
    return write_folder(site.make, folder, ("index.html", "style.css"), overwrite=overwrite)


def write_notebooks(jobs: Sequence[Job], folder: Path, *, overwrite: bool = False) -> int:
    """Run the jobs as notebooks, write them into a folder, as a site is, and return how many."""
    names = {f"{place}-{job.name}.ipynb": (place, job) for place, job in enumerate(jobs, 1)}

    def make() -> Mapping[str, str]:
        return {
            name: notebook(place, job, run_cells([one.strip() for one in job.cells], job.files))
            for name, (place, job) in names.items()
        }

    # A folder with the first of them is one of notebooks, written by this version or another.
    return write_folder(make, folder, tuple(names)[:1], overwrite=overwrite)


def write_folder(
    make: Callable[[], Mapping[str, str]], folder: Path, marks: Sequence[str], *, overwrite: bool
) -> int:
    """Write texts as a folder; one that has the files that mark it may be replaced."""
    known = all((folder / name).is_file() for name in marks)
    if folder.exists() and not known:
        wrong, allowed = "is there already, and is no site", "name a folder that doesn't exist"
        refuse("FOLDER", str(folder), wrong, allowed)
    if known and not overwrite:
        refuse("FOLDER", str(folder), "exists already", "--overwrite replaces it")
    target = folder if known else check_output(folder)
    texts = make()
    made = temporary(target)
    try:
        with system_calls(target):
            made.mkdir()
            for name, text in texts.items():
                (made / name).write_text(text, encoding="utf-8", newline="\n")
            publish_folder(made, target, overwrite=overwrite)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(made)
    return len(texts)
