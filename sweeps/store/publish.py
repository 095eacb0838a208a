"""An output appears under its name whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from pathlib import Path

from sweeps.errors import InputError, fault
from sweeps.store.failures import system_calls

__all__ = [
    "check_output",
    "publish",
    "publish_folder",
    "strays",
    "sweep_strays",
    "temporary",
    "to_disk",
]

_TAG_BYTES = 4
_NO_LINKS_HERE = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


def check_output(path: Path, *, overwrite: bool = False, folder: bool = False) -> Path:
    """Check that an output can be written, before anything is computed for it."""
    with system_calls(path):
        target = Path(os.path.realpath(path))
        problem = _problem(target, overwrite=overwrite, is_folder=folder)
    if problem:
        raise InputError(fault("output", str(path), *problem))
    return target


def _problem(target: Path, *, overwrite: bool, is_folder: bool) -> tuple[str, str] | None:
    """Return what is wrong with a target, and what would be right."""
    folder = target.parent
    problem: tuple[str, str] | None = None
    if not folder.is_dir():
        state = "is a file, not a folder" if folder.exists() else "is a folder that does not exist"
        problem = f"'{folder.name}' {state}", "make the folder first, or name another"
    elif target.is_symlink():
        problem = "is a link that leads to itself", "name a file"
    elif is_folder and target.exists() and not (target / ".zgroup").exists():
        problem = "is not a Zarr store", "name a folder that doesn't exist"
    elif not is_folder and target.exists() and not target.is_file():
        problem = "is not a file" + " but a folder" * target.is_dir(), "name a file"
    elif len(os.fsencode(target.name)) > (longest := _longest_name(folder)):
        problem = "its name is too long", f"at most {longest} bytes, here"
    elif target.exists() and not overwrite:
        problem = "exists already", "--overwrite replaces it"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = "its folder can't be written to", "choose one that can be"
    return problem


def _longest_name(folder: Path) -> int:
    """Return the bytes that an output's name may have, so that its temporary's fits too."""
    return os.pathconf(folder, "PC_NAME_MAX") - len(_affixed("", "0" * 2 * _TAG_BYTES))


def _affixed(name: str, tag: str) -> str:
    """Return the name of a temporary: hidden, and beside the output."""
    return f".{name}.{tag}.tmp"


def temporary(target: Path) -> Path:
    """Return a new name for the file that is written before it is published."""
    return target.with_name(_affixed(target.name, secrets.token_hex(_TAG_BYTES)))


def strays(target: Path) -> list[Path]:
    """Return what runs that were killed, or that are running, have left of an output."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{{2 * _TAG_BYTES}}}\.tmp")
    return [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]


def sweep_strays(target: Path) -> list[Path]:
    """Remove what runs that were killed have left of this output.

    Call it only while the output's lock is held: then whatever temporary there is has no owner.
    """
    found = strays(target)
    for stray in found:
        if stray.is_dir():
            shutil.rmtree(stray)
        else:
            stray.unlink(missing_ok=True)
    return found


def publish(finished: Path, target: Path, *, overwrite: bool = False) -> None:
    """Give a finished file its name: durably, at once, and over no other without leave."""
    to_disk(finished)
    if overwrite:
        finished.replace(target)
    else:
        _name_without_replacing(finished, target)
    to_disk(target.parent)


def publish_folder(finished: Path, target: Path, *, overwrite: bool = False) -> None:
    """Give a finished folder its name, as `publish` does; what it replaces is gone for a moment."""
    aside = None
    if target.exists():
        if not overwrite:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        aside = temporary(target)
        target.rename(aside)
    finished.rename(target)
    to_disk(target.parent)
    if aside is not None:
        shutil.rmtree(aside)


def _name_without_replacing(finished: Path, target: Path) -> None:
    try:
        target.hardlink_to(finished)
    except OSError as error:
        if error.errno not in _NO_LINKS_HERE:
            raise
        # No hard links on this filesystem: the output's lock keeps other runs of ours away.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        finished.replace(target)
        return
    # The output is complete under its name; a second name that stays is swept another day.
    with contextlib.suppress(OSError):
        finished.unlink()


def to_disk(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network filesystems can't sync a folder, and say so with EINVAL.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
