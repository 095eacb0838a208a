"""An output appears under its name whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from sweeps.errors import InputError, RunError, fault

# Two locks: one per output file among processes, one per process around the netCDF library.

_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


class _NetcdfLock:
    """A re-entrant lock that survives pickling as the one lock of the process that unpickles it.

    The netCDF and HDF5 libraries are not thread-safe, even on different files. Lazily read
    datasets hold a reference to this lock, so it has to travel with them.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, as `threading.RLock.acquire` does."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> str:
        return "NETCDF"


NETCDF = _NetcdfLock()
"""Held around every call into netCDF4, reading or writing."""


def lock_of(output: Path) -> Path:
    """Return the file that an output's lock is on."""
    return output.with_name(f".{output.name}.lock")


@contextlib.contextmanager
def hold(output: Path) -> Iterator[bool]:
    """Hold the lock of an output file while it is written.

    The lock is a hidden file beside the output, taken before the netCDF library sees any path.
    The kernel drops it when its holder dies, however that happens.
    """
    path = lock_of(output)
    descriptor, lock = _take(path, output)
    _HELD.add(descriptor)
    try:
        yield lock
    finally:
        _HELD.discard(descriptor)
        # Unlinked while still locked: whoever waits on the old file finds out and starts afresh.
        if lock:
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(descriptor)


_HELD: set[int] = set()


def _let_go() -> None:
    """Close the locks in a copy of the process: they are dropped when their holder dies."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)


def _take(path: Path, output: Path) -> tuple[int, bool]:
    """Open and lock `path`; repeat if its last holder removed it in between."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, descriptor):
                return descriptor, True
        except BlockingIOError:
            os.close(descriptor)
            wrong = "is being written by another run"
            message = fault("output", str(output), wrong, "wait for it, or name another file")
            raise RunError(message) from None
        except OSError as error:
            if error.errno in _NO_LOCKS_HERE:
                return descriptor, False
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the file that is open is the one that has this name now."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


# Room on the disk: asked for before anything is computed, and reserved where that is possible.

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
        allowed = "free some space, write elsewhere, or try --compress"
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


# What the operating system or the netCDF library refused, said in one line.

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


def is_zarr(path: Path) -> bool:
    """Tell whether a path is a Zarr store: of format 3, or of 2 as they were written before."""
    return path.is_dir() and any((path / name).is_file() for name in ("zarr.json", ".zgroup"))


def _problem(target: Path, *, overwrite: bool, is_folder: bool) -> tuple[str, str] | None:
    """Return what is wrong with a target, and what would be right."""
    folder = target.parent
    problem: tuple[str, str] | None = None
    if not folder.is_dir():
        state = "is a file, not a folder" if folder.exists() else "is a folder that does not exist"
        problem = f"'{folder.name}' {state}", "make the folder first, or name another"
    elif target.is_symlink():
        problem = "is a link that leads to itself", "name a file"
    elif is_folder and target.exists() and not is_zarr(target):
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
    removed = strays(target)
    for stray in removed:
        if stray.is_dir():
            shutil.rmtree(stray)
        else:
            stray.unlink(missing_ok=True)
    return removed


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


# A small file of our own that is there whole or not at all, also after the power failed.

_SUFFIX = ".tmp"
_GATHERED = 1 << 18


def is_temporary(path: Path) -> bool:
    """Return whether a name is one of a file that hasn't been published."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)


def write_whole(target: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    with NewFile(target) as file:
        file.write(content)
        file.publish()


class NewFile:
    """A file to write to, which gets its name when it is complete; a context."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_SUFFIX}")
        self._descriptor = -1
        self._gathered = bytearray()
        self.nbytes = 0

    def __enter__(self) -> NewFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._temporary, flags, 0o666)
        return self

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes; small ones are gathered first."""
        rest = memoryview(data).cast("B")
        self.nbytes += len(rest)
        if len(self._gathered) + len(rest) > _GATHERED:
            self._flush()
        if len(rest) > _GATHERED:
            self._write(rest)
        else:
            self._gathered += rest

    def _flush(self) -> None:
        self._write(memoryview(bytes(self._gathered)))
        self._gathered.clear()

    def _write(self, rest: memoryview) -> None:
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def publish(self) -> None:
        """Give the file its name: durably, at once, in the place of another that has it."""
        self._flush()
        os.fsync(self._descriptor)
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        os.replace(self._temporary, self._target)  # noqa: PTH105
        to_disk(self._target.parent)

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)  # noqa: PTH108
