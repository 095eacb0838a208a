"""Reader of logs, whatever their form: text, JSON or a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweeps.calibrate.json_log import read_json_log
from sweeps.calibrate.log import LogTest, known_operations, operation_of
from sweeps.calibrate.table_log import read_table_log
from sweeps.calibrate.text_log import read_text_log
from sweeps.errors import InputError, fault

__all__ = ["check_operation", "read_logs"]

_HUGE = 1 << 28  # bytes: a log of nccl-tests has some thousand lines


def check_operation(text: str | None) -> str:
    """Return an operation by the name that people or nccl-tests give it; empty for None."""
    if text is None:
        return ""
    found = operation_of(text)
    if not found:
        raise InputError(fault("--op", text, "no operation is called so", known_operations(text)))
    return found


def read_logs(names: Sequence[str], operation: str = "") -> list[LogTest]:
    """Read logs."""
    faults: list[str] = []
    tests: list[LogTest] = []
    for name in dict.fromkeys(names):
        try:
            tests += _read(name, operation)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return tests


def _read(name: str, operation: str) -> list[LogTest]:
    path = Path(name)
    if path.suffix == ".csv" or not (path.exists() or path.suffix or path.name != name):
        return read_table_log(name, operation)
    try:
        if path.stat().st_size > _HUGE:
            wrong = f"{path.stat().st_size:,} bytes"
            raise InputError(fault("LOG", name, wrong, "a log, of some megabytes at most"))
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or "can't be read"
        raise InputError(fault("LOG", name, reason, "a log of nccl-tests")) from None
    # A log may hold any bytes between its lines; those that aren't text are none of its own.
    text = content.decode("utf-8-sig", errors="replace")
    return read_json_log(path, text) if text.lstrip().startswith("{") else read_text_log(path, text)
