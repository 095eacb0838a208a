"""Files of launch settings, and those that they name beside them."""

from __future__ import annotations

from pathlib import Path

from sweeps.errors import reject
from sweeps.spec.files import is_file

LARGEST = 10**7  # bytes of a file


def text_of(path: Path) -> str:
    """Return a file's text, or refuse what isn't one."""
    try:
        folder, size = path.is_dir(), path.stat().st_size
        data = b"" if folder or size > LARGEST else path.read_bytes()
    except (OSError, ValueError) as error:
        reject(path, getattr(error, "strerror", None) or "can't be opened")
    if folder:
        reject(path, "is a folder; name the launch file in it")
    if size > LARGEST:
        reject(path, "is too large for a launch file")
    marked = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode("utf-16" if marked else "utf-8-sig", "replace").replace("\r\n", "\n")


def beside(path: Path, named: str) -> Path | None:
    """Return the file that a launch file names, where it is there."""
    near = [folder / named for folder in (path.parent, Path(), *path.parents[1:])]
    near.append(path.parent / Path(named).name)
    return next((file for file in near if is_file(file)), None)
