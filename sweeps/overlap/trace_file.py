"""Predicted timelines as Chrome trace JSON, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overhead.overlap.timeline import Span

# Trace files have microseconds.
SCALE = 1e6


def chrome_trace(
    courses: Mapping[str, Sequence[Span]], marks: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return timelines as a Chrome trace: a process each, a thread each of its rows."""
    events: list[dict[str, Any]] = []
    for pid, (name, spans) in enumerate(courses.items(), 1):
        rows = {row: tid for tid, row in enumerate(dict.fromkeys(s.row for s in spans), 1)}
        events.append(_about("process_name", pid, 0, name=name))
        # Without a place readers sort by name: stage 10 before stage 2.
        events.append(_about("process_sort_index", pid, 0, sort_index=pid))
        for row, tid in rows.items():
            events.append(_about("thread_name", pid, tid, name=row))
            events.append(_about("thread_sort_index", pid, tid, sort_index=tid))
        events += [
            {
                "ph": "X",
                "name": span.name,
                "cat": span.kind or span.row,
                "pid": pid,
                "tid": rows[span.row],
                "ts": span.start * SCALE,
                "dur": span.duration * SCALE,
            }
            for span in spans
        ]
    events += [
        {"ph": "i", "s": "g", "name": name, "cat": "mark", "pid": 1, "tid": 1, "ts": at * SCALE}
        for name, at in (marks or {}).items()
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"kind": "predicted"}}


def _about(what: str, pid: int, tid: int, **told: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": told}


def write_trace(
    courses: Mapping[str, Sequence[Span]],
    path: Path,
    *,
    overwrite: bool,
    marks: Mapping[str, float] | None = None,
) -> None:
    """Write timelines as a Chrome trace file, whole or not at all."""
    from sweeps.store.publish import check_output, publish, system_calls, temporary

    target = check_output(path, overwrite=overwrite)
    fresh = temporary(target)
    text = json.dumps(chrome_trace(courses, marks), indent=1)
    try:
        with system_calls(path):
            fresh.write_text(text + "\n", encoding="utf-8")
            publish(fresh, target, overwrite=overwrite)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
