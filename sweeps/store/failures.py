"""What the operating system or the netCDF library refused, said in one line."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from sweeps.errors import InputError, RunError, fault
from sweeps.store.lock import NETCDF
from sweeps.store.space import free_bytes, readable

__all__ = ["LIBRARY_ERRORS", "explain", "library_calls", "system_calls"]

_ANOTHER_FOLDER = "choose a folder that can be written"
_FORBIDDEN = ("can't be written, {reason}", _ANOTHER_FOLDER, InputError)
_NOWHERE = ("can't be written, {reason}", "choose another path", InputError)
_FULL = (
    "the disk is full ({reason}; {free} left)",
    "free some space, or write elsewhere",
    RunError,
)
_CAUSES: dict[int, tuple[str, str, type[InputError | RunError]]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: (
        "larger than a file may be there",
        "write elsewhere, or a smaller grid",
        RunError,
    ),
    errno.EROFS: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EEXIST: ("exists already", "--overwrite replaces it", InputError),
    errno.ENOENT: _NOWHERE,
    errno.ENOTDIR: _NOWHERE,
    errno.EISDIR: _NOWHERE,
    errno.ELOOP: _NOWHERE,
    errno.ENAMETOOLONG: _NOWHERE,
}
_OTHERWISE = ("writing failed, {reason}", "check the disk, then run it again", RunError)
_PROBE = bytes(1 << 16)

LIBRARY_ERRORS = (RuntimeError, OSError, AttributeError)
"""What netCDF4 raises for errors of the C library: the last where attributes are concerned."""


def explain(error: OSError, output: Path) -> InputError | RunError:
    """Turn an operating system's error on an output into the error that a user is told."""
    wrong, allowed, kind = _CAUSES.get(error.errno or 0, _OTHERWISE)
    reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
    wrong = wrong.format(reason=reason, free=readable(free_bytes(output.parent)))
    return kind(fault("output", str(output), wrong, allowed))


@contextlib.contextmanager
def system_calls(output: Path) -> Iterator[None]:
    """Explain an OSError that the enclosed file operations raise."""
    try:
        yield
    except OSError as error:
        raise explain(error, output) from error


@contextlib.contextmanager
def library_calls(temporary: Path, output: Path) -> Iterator[None]:
    """Hold the netCDF lock, and find the true cause of what the library raises.

    The library reports a full disk, a quota and a broken one all as "HDF error": the cause is
    found by writing a little to the same file, which is lost in any case.
    """
    with NETCDF:
        try:
            yield
        except LIBRARY_ERRORS as error:
            if isinstance(error, RunError):
                raise
            raise _cause(error, temporary, output) from error


def _cause(error: Exception, temporary: Path, output: Path) -> InputError | RunError:
    """Return what a small write of our own fails with, else what the library said."""
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            rest = memoryview(_PROBE)
            while rest:  # the first bytes may still fit into the file's last block
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as cause:
        return explain(cause, output)
    wrong = f"the netCDF library failed ({error})"
    return RunError(fault("output", str(output), wrong, "check the disk, then run it again"))
