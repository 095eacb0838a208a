"""Reader of logs, whatever their form: text, JSON or a table, in files, folders or a pipe."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.calibration.json_log import json_lines, read_json_lines, read_json_log
from sweeps.calibration.log import Left, Logs, known_operations, operation_of
from sweeps.calibration.osu_log import is_osu, read_osu_log
from sweeps.calibration.table_log import header_of, read_table_log, read_usual_table
from sweeps.calibration.text_log import read_text_log
from sweeps.errors import InputError, fault, refuse
from sweeps.spec.files import is_file

# What may stand above JSON.
_COMMENTS = re.compile(r"(?:\s*(?:#|//)[^\n]*\n)*\s*")
_JSON = re.compile(r"\{|\[\s*\{")
_HUGE = 1 << 28  # bytes: a log of nccl-tests has some thousand lines
_MOST_FILES = 2000  # of a folder
PIPE = "-"
_NAME = "standard input"
_ZIPPED = b"\x1f\x8b"
_PACKED = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}
_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def check_operation(text: str | None) -> str:
    """Return an operation by the name that people or nccl-tests give it; empty for None."""
    if text is None:
        return ""
    operation = operation_of(text)
    if not operation:
        refuse("--op", text, "is not an operation", known_operations(text))
    return operation


def read_logs(names: Sequence[str], operation: str = "") -> Logs:
    """Read logs; what can't be read is left out, unless nothing can."""
    logs_read = Logs()
    for name, inside in _files(dict.fromkeys(names), logs_read):
        try:
            logs = _read(name, operation)
        except InputError as error:
            logs_read.left += [Left(line, counts=not inside) for line in error.faults]
            continue
        logs_read.tests += logs.tests
        logs_read.left += logs.left
    if not logs_read.tests:
        raise InputError(list(dict.fromkeys(left_out.reason for left_out in logs_read.left)))
    return logs_read


def _files(names: Sequence[str] | dict[str, None], logs: Logs) -> Iterator[tuple[str, bool]]:
    """Yield the files of names, and whether each was found in a folder."""
    for name in names:
        if not _is_folder(name):
            yield name, False
            continue
        within = sorted(
            path
            for path in Path(name).rglob("*")
            if is_file(path) and not any(part.startswith(".") for part in path.parts)
        )
        if not within:
            logs.left.append(Left(fault("LOG", name, "a folder without files", "one with logs")))
        if len(within) > _MOST_FILES:
            wrong = f"a folder of {len(within):,} files"
            refuse("LOG", name, wrong, f"the logs in it by name, or one of {_MOST_FILES:,} at most")
        yield from ((str(path), True) for path in within)


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def _read(name: str, operation: str) -> Logs:
    path = Path(name)
    if name != PIPE and not (is_file(path) or path.suffix or path.name != name):
        return _told(Logs(read_table_log(name, operation)), b"", 0.0)
    if name == PIPE:
        content, path, dated = _piped(), Path(_NAME), 0.0
    else:
        content, dated = _content(name)
    text = text_of(name, content)
    if path.name.lower().removesuffix(".gz").endswith(".csv"):
        logs = _table(name, path, text, operation)
    else:
        logs = read_any(path, text, operation)
    return _told(logs, content, dated)


def _told(logs: Logs, content: bytes, dated: float) -> Logs:
    """Return logs with their file's digest and date."""
    if content:
        digest = hashlib.sha256(content).hexdigest()
        logs.tests = [replace(test, digest=digest, dated=dated) for test in logs.tests]
    return logs


def _content(name: str) -> tuple[bytes, float]:
    path = Path(name)
    try:
        status, whole = path.stat(), path.is_file()
        large = status.st_size > _HUGE
        content = path.read_bytes() if whole and not large else b""
    except FileNotFoundError:
        refuse("LOG", name, "no such file", "expects the output of nccl-tests (text, JSON or CSV)")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "can't be read"
        refuse("LOG", name, reason, "a log of nccl-tests")
    if large:
        refuse("LOG", name, f"{status.st_size:,} bytes", "a log, of some megabytes at most")
    if not whole:
        refuse("LOG", name, "is no file", "a log, a folder of logs, or - for a pipe")
    return content, status.st_mtime


def _piped() -> bytes:
    content = sys.stdin.buffer.read(_HUGE + 1)
    if len(content) > _HUGE:
        refuse("LOG", PIPE, "is longer than a log", "a log, of some megabytes at most")
    return content


def text_of(name: str, content: bytes) -> str:
    """Return a file's text, whatever it is packed and encoded as."""
    if content.startswith(_ZIPPED):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(_HUGE + 1)
        except (OSError, EOFError, zlib.error):
            refuse("LOG", name, "a gzip file that is cut off or damaged", "the whole file")
        if len(content) > _HUGE:
            refuse("LOG", name, "unpacks to more than a log", "a log, of some megabytes at most")
    for mark, kind in _PACKED.items():
        if content.startswith(mark):
            refuse("LOG", name, f"is packed by {kind}", "the file unpacked, or by gzip")
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return content[2:].decode(encoding, errors="replace")
    head = content[:400]
    # UTF-16 without its mark: each other byte of plain text is nought.
    if len(head) > 20 and head.count(0) * 5 > len(head) * 2:
        encoding = "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
        return content.decode(encoding, errors="replace")
    # A log may hold any bytes between its lines; those that aren't text are none of its own.
    return content.decode("utf-8-sig", errors="replace")


def _table(name: str, path: Path, text: str, operation: str) -> Logs:
    """Read a table: with the columns of the shipped ones, else by the usual names."""
    strict: InputError | None = None
    if path.suffix == ".csv" and is_file(path):
        try:
            return Logs(read_table_log(name, operation))
        except InputError as error:
            strict = error
            if any(line.startswith("--op") for line in error.faults):
                raise
    if header_of(text) is None:
        try:
            return read_any(path, text, operation)
        except InputError:
            pass
        # A spec says which column holds what; of a log the usual names are told.
        if strict is not None and not any("columns = {" in line for line in strict.faults):
            raise strict
    return read_usual_table(path, text, operation)


def read_any(path: Path, text: str, operation: str = "") -> Logs:
    """Read a text by what stands in it."""
    whole = _COMMENTS.match(text)
    begins = whole.end() if whole else 0
    if _JSON.match(text, begins):
        # Lines keep their numbers.
        rest = "\n" * text.count("\n", 0, begins) + text[begins:]
        if (records := json_lines(rest)) is not None:
            return read_json_lines(path, records)
        return read_json_log(path, rest)
    if (records := json_lines(text)) is not None:
        return read_json_lines(path, records)
    osu = read_osu_log(path, text) if is_osu(text) else None
    try:
        logs = read_text_log(path, text)
    except InputError:
        if osu is not None:
            return _whole(osu)
        if header_of(text) is not None:
            return read_usual_table(path, text, operation)
        raise
    if osu is not None:
        logs.tests += osu.tests
        logs.left += osu.left
    return _whole(logs)


def _whole(logs: Logs) -> Logs:
    """Return logs that hold a test, or tell why none does."""
    if not logs.tests:
        raise InputError(list(dict.fromkeys(left_out.reason for left_out in logs.left)))
    return logs
