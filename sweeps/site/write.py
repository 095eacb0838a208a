"""A folder of pages, whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from sweeps.errors import refuse
from sweeps.site.reference import Site
from sweeps.store.publish import check_output, publish_folder, system_calls, temporary


def write_site(site: Site, folder: Path, *, overwrite: bool = False) -> int:
    """Write the site as a folder, whole or not at all, and return how many files it has.

    Raises
    ------
    InputError
        If something is there that isn't a site, or is one and may not be overwritten.
    """
    known = all((folder / name).is_file() for name in ("index.html", "style.css"))
    if folder.exists() and not known:
        wrong, allowed = "is there already, and is no site", "name a folder that doesn't exist"
        refuse("FOLDER", str(folder), wrong, allowed)
    if known and not overwrite:
        refuse("FOLDER", str(folder), "exists already", "--overwrite replaces it")
    target = folder if known else check_output(folder)
    texts = site.make()
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
