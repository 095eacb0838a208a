"""The folder of a sweep that isn't finished: one plan, written once, and a file for each block."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
import shutil
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.evaluate import Limits
from sweeps.errors import InputError, fault
from sweeps.store.publish import NewFile, is_temporary, to_disk, write_whole

# A block's file: arrays, what they are, and a checksum over all of it.

MAGIC = b"sweeps block 1\n\0"
# Where the index begins, its length, whose block this is, and the checksum of all before it.
TRAILER = struct.Struct("<QQ32sI16s")
ALIGNED = 16


@dataclass(frozen=True, slots=True)
class Record:
    """One array of a block."""

    about: Mapping[str, Any]  # What it is, as JSON has it
    values: NDArray[Any]  # Its values


class BlockFile:
    """Writes a block's file: records as they come, then the index and the checksum."""

    def __init__(self, file: NewFile, owner: bytes) -> None:
        self._file, self._owner = file, owner
        self._crc = 0
        self._index: list[dict[str, Any]] = []
        self._write(MAGIC)

    def _write(self, data: bytes | memoryview) -> None:
        self._crc = zlib.crc32(data, self._crc)
        self._file.write(data)

    def put(self, about: Mapping[str, object], values: NDArray[Any]) -> None:
        """Append an array."""
        array = np.asarray(values)
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        self._write(bytes(-self._file.nbytes % ALIGNED))
        entry = {"at": self._file.nbytes, "dtype": plain.dtype.str, "shape": list(array.shape)}
        self._index.append({**about, **entry})
        self._write(plain.reshape(-1).view(np.uint8).data)

    def finish(self) -> int:
        """Write the index and the checksum."""
        at = self._file.nbytes
        index = json.dumps(self._index).encode()
        self._write(index)
        head = TRAILER.pack(at, len(index), self._owner, 0, MAGIC)[:-20]
        self._write(head)
        self._file.write(struct.pack("<I16s", self._crc, MAGIC))
        return self._crc


def looks_complete(path: Path, owner: bytes | None = None) -> bool:
    """Tell whether a block's file is there and ends as it should, without reading all of it."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size < TRAILER.size + len(MAGIC):
                return False
            stream.seek(-TRAILER.size, 2)
            at, length, writer, _, magic = TRAILER.unpack(stream.read())
    except OSError:
        return False
    whole = magic == MAGIC and at + length + TRAILER.size == size
    return bool(whole and owner in {None, writer})


def read_block(path: Path, owner: bytes) -> list[Record] | None:
    """Read a block's file, if it is what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < TRAILER.size + len(MAGIC):
        return None
    at, length, writer, crc, magic = TRAILER.unpack(content[-TRAILER.size :])
    if writer != owner or magic != MAGIC or at + length + TRAILER.size != len(content):
        return None
    if zlib.crc32(memoryview(content)[:-20]) != crc:
        return None
    records = []
    for entry in json.loads(content[at : at + length]):
        dtype, shape = np.dtype(entry.pop("dtype")), tuple(entry.pop("shape"))
        count = int(np.prod(shape, dtype=np.int64))
        values = np.frombuffer(content, dtype, count, entry.pop("at")).reshape(shape)
        native = values.astype(dtype.newbyteorder("="), copy=False)
        records.append(Record(entry, native))
    return records


PLAN, RECIPE = "plan.json", "recipe"
FORMAT = 1
BLOCK = re.compile(r"(\d{8,})\.block")


@dataclass(frozen=True)
class FirstStart:
    """What the first start of a sweep has fixed."""

    attrs: Mapping[str, str]  # The file's global attributes: its dates are those of the first start
    identity: Mapping[str, str]  # What the result depends on, part by part, for messages
    limits: Limits  # How much is computed at a time
    per_block: int  # Steps of a block
    steps: int  # Steps in all
    bounded: bool = False  # Whether blocks are parts of what bounds leave

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.steps // self.per_block)

    def text(self) -> str:
        """Return it as JSON with a digest of its own."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "attrs": dict(self.attrs),
            "identity": dict(self.identity),
            "limits": [self.limits.block, self.limits.whole],
            "per_block": self.per_block,
            "steps": self.steps,
            "bounded": self.bounded,
        }
        return json.dumps({**content, "sha256": _digest(content)}, indent=1)


def _digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def first_start_in(text: str) -> FirstStart | None:
    """Return what a plan's file says; None where it is torn."""
    try:
        content = json.loads(text)
        known = content.pop("sha256")
    except (ValueError, AttributeError, KeyError):
        return None
    if known != _digest(content) or content.pop("format") != FORMAT:
        return None
    return FirstStart(**{**content, "limits": Limits(*content["limits"])})


class Folder:
    """A sweep's folder, beside its output."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f".{target.name}.run")

    def block(self, index: int) -> Path:
        """Return the name of a block's file."""
        return self.path / f"{index:08d}.block"

    def first_start(self) -> FirstStart | None:
        """Return what the first start has fixed; None where there was none, or it is damaged."""
        try:
            text = (self.path / PLAN).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return None
        return first_start_in(text)

    def is_damaged(self) -> bool:
        """Return whether a plan that can't be read has blocks, so that a start would lose them.

        A start that was cut short leaves a torn plan without blocks, and an end that was, blocks
        without a plan: neither is a loss.
        """
        if not (self.path / PLAN).exists() or self.first_start() is not None:
            return False
        names = self.path.iterdir()
        return any(BLOCK.fullmatch(path.name) and looks_complete(path) for path in names)

    def exists(self) -> bool:
        """Return whether there is a folder."""
        return self.path.is_dir()

    def begin(self, start: FirstStart) -> None:
        """Make the folder, with nothing but the plan in it.

        Blocks without a plan have no owner.
        """
        self.remove()
        # A worker that was given up may have written there meanwhile.
        self.path.mkdir(exist_ok=True)
        to_disk(self.path.parent)
        write_whole(self.path / PLAN, start.text().encode())

    def put_recipe(self, content: bytes) -> Path:
        """Write the recipe that workers read, and return where it is."""
        path = self.path / RECIPE
        write_whole(path, content)
        return path

    def sweep_strays(self) -> None:
        """Remove files that killed writers left; the output's lock is to be held."""
        for path in self.path.iterdir():
            if is_temporary(path):
                path.unlink(missing_ok=True)

    def done(self, owner: bytes, count: int) -> set[int]:
        """Return the blocks that are there, by their ends; their checksums are for later."""
        names = (BLOCK.fullmatch(path.name) for path in self.path.iterdir())
        numbers = {int(name[1]) for name in names if name}
        return {n for n in numbers if n < count and looks_complete(self.block(n), owner)}

    def records(self, index: int, owner: bytes) -> list[Record] | None:
        """Return a block's records; None where it is missing or damaged."""
        return read_block(self.block(index), owner)

    def remove(self) -> None:
        """Remove the folder and what is in it: the plan first, for without it nothing counts."""
        if not self.path.exists():
            return
        (self.path / PLAN).unlink(missing_ok=True)
        shutil.rmtree(self.path, onerror=_tolerate)
        with contextlib.suppress(OSError):
            to_disk(self.path.parent)


def _tolerate(function: Any, path: str, info: Any) -> None:
    """A worker that was given up may still be writing: what it adds goes with the next run."""
    if info[1].errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
        raise info[1]


def refusal(output: Path, start: FirstStart, wanted: Mapping[str, str]) -> InputError:
    """Return why a sweep can't go on with what is there."""
    changed = [name for name in wanted if start.identity.get(name) != wanted[name]]
    text = " and ".join(changed) or "the way in which it is cut"
    wrong = f"has blocks of another sweep: {text} changed since {_since(start)}"
    allowed = "run what it was started with, or --overwrite to start afresh"
    return InputError(fault("--resume", str(output), wrong, allowed))


def _since(start: FirstStart) -> str:
    return str(start.attrs.get("date_created", "its start"))


def damaged(output: Path) -> InputError:
    """Return why blocks aren't gone on with whose plan can't be read."""
    wrong = f"has blocks, but their '{PLAN}' is damaged, or of another version of this program"
    return InputError(fault("output", str(output), wrong, "--overwrite starts afresh"))


def unfinished(output: Path, start: FirstStart, done: int) -> InputError:
    """Return why a sweep isn't simply begun again."""
    wrong = f"was begun {_since(start)} and has {done} of {start.blocks} blocks"
    allowed = "--resume goes on with it, --overwrite starts afresh"
    return InputError(fault("output", str(output), wrong, allowed))
