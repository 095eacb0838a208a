"""Predicted timelines as Chrome trace JSON, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overhead.overlap.timeline import Span

__all__ = ["chrome_trace", "write_trace"]

# Trace files have microseconds.
SCALE = 1e6


def chrome_trace(courses: Mapping[str, Sequence[Span]]) -> dict[str, Any]:
    """Return timelines as a Chrome trace: a process each, a thread each of its rows.

    Parameters
    ----------
    courses : mapping of str to sequence of Span
        By name.

    Returns
    -------
    dict
        With ``traceEvents``: metadata, then complete events (``ph`` X) with ``ts`` and ``dur``
        in microseconds.
    """
    events: list[dict[str, Any]] = []
    for pid, (name, spans) in enumerate(courses.items(), 1):
        rows = {row: tid for tid, row in enumerate(dict.fromkeys(s.row for s in spans), 1)}
        events.append(_about("process_name", pid, 0, name))
        events += [_about("thread_name", pid, tid, row) for row, tid in rows.items()]
        events += [
            {
                "ph": "X",
                "name": span.name,
                "cat": span.row,
                "pid": pid,
                "tid": rows[span.row],
                "ts": span.start * SCALE,
                "dur": span.duration * SCALE,
            }
            for span in spans
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"kind": "predicted"}}


def _about(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def write_trace(courses: Mapping[str, Sequence[Span]], path: Path, *, overwrite: bool) -> None:
    """Write timelines as a Chrome trace file, whole or not at all.

    Raises
    ------
    InputError
        If the file exists or can't be written there.
    RunError
        If the disk is full or fails.
    """
    from sweeps.store.failures import system_calls
    from sweeps.store.publish import check_output, publish, temporary

    target = check_output(path, overwrite=overwrite)
    fresh = temporary(target)
    text = json.dumps(chrome_trace(courses), indent=1)
    try:
        with system_calls(path):
            fresh.write_text(text + "\n", encoding="utf-8")
            publish(fresh, target, overwrite=overwrite)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
