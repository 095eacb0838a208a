"""Room on the disk: asked for before anything is computed, and reserved where that is possible."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from sweeps.errors import RunError, fault

__all__ = ["free_bytes", "readable", "require", "reserve"]

_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENODEV}
_STEP = 1000
_UNITS = ("byte", "kB", "MB", "GB", "TB", "PB", "EB")


def free_bytes(folder: Path) -> int:
    """Return the bytes that may still be written to a folder's filesystem."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def readable(nbytes: int) -> str:
    """Return a number of bytes as text for a person, in powers of a thousand."""
    size = float(nbytes)
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            break
        size /= _STEP
    return f"{size:.0f} {unit}" if unit == _UNITS[0] else f"{size:.1f} {unit}"


def require(nbytes: int, output: Path) -> None:
    """Refuse to start what the disk can't take."""
    free = free_bytes(output.parent)
    if nbytes > free:
        wrong = f"needs {readable(nbytes)} of disk, {readable(free)} are free"
        allowed = "free some space, write elsewhere, or try --compress or --dtype f4"
        raise RunError(fault("output", str(output), wrong, allowed))


def reserve(path: Path, nbytes: int) -> None:
    """Take the disk space of a file that is being written, so that it can't run out later."""
    if nbytes == 0 or not hasattr(os, "posix_fallocate"):
        return
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)
