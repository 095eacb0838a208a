"""Two locks: one per output file among processes, one per process around the netCDF library."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from sweeps.errors import RunError, fault

__all__ = ["NETCDF", "hold", "lock_of"]

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    descriptor, held = _take(path, output)
    try:
        yield held
    finally:
        # Unlinked while still locked: whoever waits on the old file finds out and starts afresh.
        if held:
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(descriptor)


def _take(path: Path, output: Path) -> tuple[int, bool]:
    """Open and lock `path`; repeat if its last holder removed it in between."""
    import fcntl

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
