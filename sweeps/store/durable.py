"""A small file of our own that is there whole or not at all, also after the power failed."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from types import TracebackType

from sweeps.store.publish import to_disk

__all__ = ["NewFile", "is_temporary"]

_SUFFIX = ".tmp"
_GATHERED = 1 << 18


def is_temporary(path: Path) -> bool:
    """Return whether a name is one of a file that hasn't been published."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)  # noqa: PTH108
