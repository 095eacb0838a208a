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

__all__ = ["Disk", "Event", "Recorder", "logged", "materialise"]

# What is recorded: operation, path relative to the folder, and what else there is to it: of a
# rename or link the other path, of a write its offset (the end where that is None) and bytes, of a
# change of size that.
Event = tuple[str, str, Any]


def logged(path: Path) -> list[Event]:
    """Read a log of system calls (`calls.c`)."""
    events: list[Event] = []
    with path.open("rb") as stream:
        while line := stream.readline():
            operation, *numbers = line.decode().split()
            offset, length, first, second = map(int, numbers)
            where = stream.read(first).decode() or "."
            other, data = stream.read(second).decode(), stream.read(length)
            more: Any = {"write": (offset, data), "size": offset, "reserve": offset}
            events.append((operation, where, more.get(operation, other or None)))
    return events


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
        for name in tuple("open write fsync replace rename link unlink mkdir rmdir remove".split()):
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
        self._add("write", self._where(descriptor), (None, bytes(memoryview(data)[:count])))

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
                part = content[start : start + max(1, len(content) // 3)]
                self._add("write", where, (None, part))
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

    safe: bytes = b""
    # What isn't safe: where bytes were written, or None and a new size.
    later: list[tuple[int | None, Any]] = field(default_factory=list)
    now: bytes = b""

    def __post_init__(self) -> None:
        self.now = self.safe

    def write(self, offset: int | None, data: bytes) -> None:
        self._do(len(self.now) if offset is None else offset, data)

    def resize(self, size: int) -> None:
        self._do(None, size)

    def _do(self, offset: int | None, more: Any) -> None:
        self.later.append((offset, more))
        self.now = changed(self.now, offset, more)

    def sync(self) -> None:
        self.safe, self.later = self.now, []

    def torn(self, share: float) -> bytes:
        """Return it with but a share of the last write done, and a byte at least not."""
        found, (offset, data) = self.safe, self.later[-1]
        for content in self.later[:-1]:
            found = changed(found, *content)
        return changed(found, offset, data[: min(int(share * len(data)), len(data) - 1)])

    def after_loss(self, draw: random.Random) -> bytes:
        """Each write that isn't safe may be lost, or half of it; what comes after it needn't be."""
        found = self.safe
        for offset, more in self.later:
            fate = draw.random()
            if fate < 0.5:
                found = changed(found, offset, more)
            elif fate < 0.75 and offset is not None and len(more) > 1:
                found = changed(found, offset, more[: len(more) // 2])
        return found


def changed(content: bytes, offset: int | None, more: Any) -> bytes:
    """Return bytes after a write at an offset, or with a new size."""
    if offset is None:
        return content[:more] + bytes(max(0, more - len(content)))
    if not more:
        return content
    gap = bytes(max(0, offset - len(content)))
    return content[:offset] + gap + more + content[offset + len(more) :]


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
            self.names[name] = self.safe[name] = Inode(content)

    def do(self, event: Event) -> None:
        operation, path, more = event
        match operation:
            case "create":
                self._change(path, [(path, Inode(), True)])
            case "mkdir":
                self._change(path, [(path, None, True)])
            case "write":
                self._inode(path).write(*more)
            case "size":
                self._inode(path).resize(more)
            case "reserve":
                inode = self._inode(path)
                inode.resize(max(more, len(inode.now)))
            case "fsync":
                self._sync(path)
            case "rename":
                self._change(path, [(more, self.names[path], True), (path, None, False)])
            case "link":
                self._change(path, [(more, self.names[path], True)])
            case "unlink" | "rmdir":
                self._change(path, [(path, None, False)])

    def _inode(self, path: str) -> Inode:
        inode = self.names[path]
        assert inode is not None
        return inode

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
        return {name: inode and inode.now for name, inode in self.names.items()}

    def torn(self, path: str, share: float) -> dict[str, bytes | None]:
        """Return what is there if of the last write, to a path, but a share was done.

        Parameters
        ----------
        path : str
            What was written to.
        share : float
            From 0 to 1; a byte at least isn't done.
        """
        return {**self.killed(), path: self._inode(path).torn(share)}

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
        actual_contents: dict[str, bytes | None] = {}
        for name, inode in names.items():
            if inode is not None:
                contents.setdefault(id(inode), inode.after_loss(draw))
            actual_contents[name] = None if inode is None else contents[id(inode)]
        # What is in a folder that isn't there isn't there either.
        return {
            name: content
            for name, content in actual_contents.items()
            if (above := folder_of(name)) == "."
            or (above in actual_contents and actual_contents[above] is None)
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


def materialise(contents: dict[str, bytes | None], folder: Path) -> None:
    """Write a state into an empty folder."""
    for name, content in sorted(contents.items()):
        if content is None:
            (folder / name).mkdir()
    for name, content in contents.items():
        if content is not None:
            (folder / name).write_bytes(content)
