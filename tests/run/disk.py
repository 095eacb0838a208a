"""A model of a disk: what our file operations leave behind if a run ends at any of them."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Disk", "Event", "Recorder", "materialise"]

# What is recorded: operation, path relative to the folder, and bytes or another path.
Event = tuple[str, str, Any]


class Recorder:
    """Records what is done with files in a folder, by whichever of our functions.

    The netCDF library's own writes aren't seen: what it has written is read when it is synced.

    Parameters
    ----------
    folder : Path
        What happens elsewhere isn't recorded.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._seen: set[str] = set()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("open", "write", "fsync", "replace", "rename", "link", "unlink", "mkdir",
                     "rmdir", "remove"):  # fmt: skip
            self._wrap(patch, name, getattr(os, name), getattr(self, f"_{name}"))

    def _wrap(self, patch: pytest.MonkeyPatch, name: str, original: Any, record: Any) -> None:
        def wrapped(*args: Any, **kw: Any) -> Any:
            found = original(*args, **kw)
            record(found, *args, **kw)
            return found

        patch.setattr(os, name, wrapped)

    def _where(self, path: Any, dir_fd: int | None = None) -> str | None:
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        elif dir_fd is not None:
            path = Path(f"/proc/self/fd/{dir_fd}").readlink() / path
        try:
            return Path(path).absolute().relative_to(self.folder).as_posix()
        except ValueError:
            return None

    def _add(self, operation: str, path: str | None, more: Any = None) -> None:
        if path is not None:
            self.events.append((operation, path, more))

    def _open(self, descriptor: int, path: Any, flags: int, *_: Any, **kw: Any) -> None:
        where = self._where(path, kw.get("dir_fd"))
        if where is not None and flags & os.O_CREAT and where not in self._seen:
            self._seen.add(where)
            self._add("create", where)

    def _write(self, count: int, descriptor: int, data: Any) -> None:
        self._add("write", self._where(descriptor), bytes(memoryview(data)[:count]))

    def _fsync(self, _: None, descriptor: int) -> None:
        where = self._where(descriptor)
        if where is None:
            return
        path = self.folder / where
        if path.is_file() and where not in self._seen:
            # Written by the library: it may be cut anywhere.
            self._seen.add(where)
            content = path.read_bytes()
            self._add("create", where)
            for start in range(0, len(content), max(1, len(content) // 3)):
                self._add("write", where, content[start : start + max(1, len(content) // 3)])
        self._add("fsync", where)

    def _replace(self, _: None, old: Any, new: Any, **kw: Any) -> None:
        target = self._where(new)
        self._add("rename", self._where(old), target)
        self._seen.add(str(target))

    _rename = _replace

    def _link(self, _: None, old: Any, new: Any, **kw: Any) -> None:
        self._add("link", self._where(old), self._where(new))

    def _unlink(self, _: None, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._where(path, dir_fd)
        self._add("unlink", where)
        self._seen.discard(str(where))

    _remove = _unlink

    def _mkdir(self, _: None, path: Any, *args: Any, **kw: Any) -> None:
        self._add("mkdir", self._where(path))

    def _rmdir(self, _: None, path: Any, *, dir_fd: int | None = None) -> None:
        self._add("rmdir", self._where(path, dir_fd))


@dataclass
class Inode:
    """A file's bytes: those that are safe, and writes that aren't yet."""

    safe: bytearray = field(default_factory=bytearray)
    later: list[bytes] = field(default_factory=list)

    def content(self) -> bytes:
        return bytes(self.safe) + b"".join(self.later)

    def sync(self) -> None:
        self.safe += b"".join(self.later)
        self.later = []

    def after_loss(self, draw: random.Random) -> bytes:
        """Each write that isn't safe may be lost, or half of it; what comes after it needn't be."""
        found = bytearray(self.safe)
        end = len(found)
        for data in self.later:
            fate = draw.random()
            kept = data if fate < 0.5 else data[: len(data) // 2] if fate < 0.75 else b""
            if kept:
                found += bytes(end - len(found)) + kept
            end += len(data)
        return bytes(found)


class Disk:
    """Files after some events.

    Parameters
    ----------
    before : mapping of str to bytes
        What is there from the start.
    syncing : bool
        Whether fsync does anything.
    """

    def __init__(self, before: dict[str, bytes], *, syncing: bool = True) -> None:
        self.syncing = syncing
        self.names: dict[str, Inode | None] = {}
        self.safe: dict[str, Inode | None] = {}
        # Changes of names that aren't safe yet, by folder, in order.
        self.pending: list[tuple[str, list[tuple[str, Inode | None, bool]]]] = []
        for name, content in before.items():
            self.names[name] = self.safe[name] = Inode(bytearray(content))

    def do(self, event: Event) -> None:
        operation, path, more = event
        match operation:
            case "create":
                self._change(path, [(path, Inode(), True)])
            case "mkdir":
                self._change(path, [(path, None, True)])
            case "write":
                inode = self.names[path]
                assert inode is not None
                inode.later.append(more)
            case "fsync":
                self._sync(path)
            case "rename":
                self._change(path, [(more, self.names[path], True), (path, None, False)])
            case "link":
                self._change(path, [(more, self.names[path], True)])
            case "unlink" | "rmdir":
                self._change(path, [(path, None, False)])

    def _change(self, path: str, changes: list[tuple[str, Inode | None, bool]]) -> None:
        apply(self.names, changes)
        self.pending.append((folder_of(path), changes))

    def _sync(self, path: str) -> None:
        if not self.syncing:
            return
        inode = self.names.get(path)
        if inode is not None:
            inode.sync()
            return
        for folder, changes in self.pending:
            if folder == path:
                apply(self.safe, changes)
        self.pending = [one for one in self.pending if one[0] != path]

    def killed(self) -> dict[str, bytes | None]:
        """Return what is there if the process ends now: all that it has done."""
        return {name: inode and inode.content() for name, inode in self.names.items()}

    def torn(self, share: float) -> dict[str, bytes | None]:
        """Return what is there if of the last write but a share was done, and a byte at least not.

        Parameters
        ----------
        share : float
            From 0 to 1.
        """
        found = self.killed()
        for name, inode in self.names.items():
            if inode is not None and inode.later:
                last = len(inode.later[-1])
                found[name] = inode.content()[: min(int(share * last), last - 1) - last]
        return found

    def power_lost(self, draw: random.Random) -> dict[str, bytes | None]:
        """Return what may be there if the power fails now."""
        names = dict(self.safe)
        # Of a folder's changes those before some moment are kept: often all of them.
        counts = Counter(folder for folder, _ in self.pending)
        kept = {f: n if draw.random() < 0.5 else draw.randint(0, n) for f, n in counts.items()}
        for folder, changes in self.pending:
            if kept[folder] > 0:
                apply(names, changes)
                kept[folder] -= 1
        contents: dict[int, bytes] = {}
        found: dict[str, bytes | None] = {}
        for name, inode in names.items():
            if inode is not None:
                contents.setdefault(id(inode), inode.after_loss(draw))
            found[name] = None if inode is None else contents[id(inode)]
        # What is in a folder that isn't there isn't there either.
        return {
            name: content
            for name, content in found.items()
            if (above := folder_of(name)) == "." or (above in found and found[above] is None)
        }


def apply(
    names: dict[str, Inode | None], changes: Sequence[tuple[str, Inode | None, bool]]
) -> None:
    for name, inode, there in changes:
        if there:
            names[name] = inode
        else:
            names.pop(name, None)


def folder_of(path: str) -> str:
    return Path(path).parent.as_posix()


def materialise(found: dict[str, bytes | None], folder: Path) -> None:
    """Write a state into an empty folder."""
    for name, content in sorted(found.items()):
        if content is None:
            (folder / name).mkdir()
    for name, content in found.items():
        if content is not None:
            (folder / name).write_bytes(content)
