"""Readers of JSON: what nccl-tests writes, and the lines of rccl-tests and NCCL's Inspector.

The keys of nccl-tests are those of NVIDIA/nccl-tests, src/util.cu @a0b82b2 (version 2.19.6, file
version 3); of the Inspector, NVIDIA/nccl, plugins/profiler/inspector/README.md (format v4.0); of
rccl-tests, ROCm/rccl-tests, src/common.cu (``-Z json``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sweeps.calibration.log import (
    GIGA,
    PLACEMENTS,
    WORDS,
    Left,
    LogRow,
    Logs,
    LogTest,
    operation_of,
    version_text,
)
from sweeps.errors import InputError, reject

_MOST_RANKS = 1 << 24  # and any other count


def read_json_log(path: Path, text: str) -> Logs:
    """Read one test's JSON."""
    content: Any = None
    line, wrong = 1, ""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        line = error.lineno
        wrong = (
            f"is not whole JSON: {error.msg}; was the test stopped before its end? what it printed "
            "can be read instead"
        )
        if error.msg == "Extra data":
            wrong = (
                "another JSON value behind the first; give what nccl-tests wrote by -J, or lines "
                "of NCCL's Inspector ('coll_perf')"
            )
    except RecursionError:
        wrong = "is nested too deeply; give what nccl-tests wrote by -J"
    except ValueError:  # A number of too many digits
        wrong = "has a number that can't be; give what nccl-tests wrote"
    if wrong:
        reject(f"{path.name}, line {line}", wrong)
    if isinstance(content, list):
        return read_json_lines(path, [*enumerate(content, start=1)])
    if isinstance(content, dict) and _kind(content):
        return read_json_lines(path, [(1, content)])
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list):
        reject(f"{path.name}, line 1", "no list 'results'; give what nccl-tests wrote by -J")
    return _of_results(path, content, results)


def _of_results(path: Path, content: Mapping[str, object], results: list[Any]) -> Logs:
    logs, rows, empty = Logs(), list[LogRow](), 0
    for number, result in enumerate(results, start=1):
        try:
            each = _rows(path, number, result)
        except InputError as error:
            logs.left += [Left(line) for line in error.faults]
            continue
        kept = [row for row in each if row.size > 0.0]
        empty += len(each) - len(kept)
        rows += kept
    if not rows:
        if logs.left:
            raise InputError(logs.left[0].reason)
        wrong = "'results' holds no times; did the test fail? run it again"
        reject(f"{path.name}, line 1", wrong)
    config = content.get("config")
    config = config if isinstance(config, dict) else {}
    hosts, device = _hosts(path, config)
    args = content.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    version = _count(content.get("nccl_version"))
    notes = [f"left out {empty} values of messages of 0 bytes"] if empty else []
    if _count(config.get("graph")) > 0:
        notes.append(f"CUDA graphs ({config['graph']}): a launch costs less than usual")
    if _count(config.get("aggregated_iterations")) > 1:
        together = config["aggregated_iterations"]
        notes.append(f"{together} operations at once (-m): launches are shared")
    logs.tests.append(
        LogTest(
            path=path,
            line=1,
            operation=operation_of(Path(program).name),
            rows=tuple(rows),
            hosts=hosts,
            ranks=sum(hosts.values()),
            device=device,
            versions={"NCCL": version_text(version)} if version > 0 else {},
            notes=tuple(notes),
        )
    )
    return logs


def _rows(path: Path, number: int, result: object) -> list[LogRow]:
    """Return a result's placements that have a time."""
    where = f"{path.name}, result {number}"
    size = _number(result.get("size")) if isinstance(result, dict) else math.nan
    if not isinstance(result, dict) or not (size >= 0.0 and math.isfinite(size)):
        reject(where, "has no size; give what nccl-tests wrote by -J")
    rows = []
    for placement in PLACEMENTS:
        part = result.get(placement.replace("-", "_"))
        if not isinstance(part, dict):
            continue
        if "cpu_time" in part:
            wrong = "times are the processor's (-C 1), not the operations'; run the test without"
            reject(where, wrong)
        time, algbw, busbw, odd = (
            _number(part.get(key)) for key in ("time", "alg_bw", "bus_bw", "nwrong")
        )
        if 0.0 < time < math.inf:
            rates = algbw * GIGA, busbw * GIGA
            rows.append(LogRow(number, size, time * 1e-6, placement, *rates, odd))
    return rows


def _hosts(path: Path, config: Mapping[str, object]) -> tuple[dict[str, int], str]:
    """Return the ranks of each host: the file lists one device a process, not one a rank."""
    each = max(_count(config.get("nthreads")), 1) * max(_count(config.get("ngpus")), 1)
    listed = config.get("devices")
    devices: list[Any] = listed if isinstance(listed, list) else []
    hosts: dict[str, int] = {}
    names: dict[str, None] = {}
    for device in devices:
        if not isinstance(device, dict) or not isinstance(device.get("hostname"), str):
            wrong = "a device of 'config.devices' has no hostname; give what nccl-tests wrote by -J"
            reject(f"{path.name}, line 1", wrong)
        if device.get("group") == devices[0].get("group"):
            hosts[device["hostname"]] = hosts.get(device["hostname"], 0) + each
        names[str(device.get("device_info", "")).strip()] = None
    return hosts, " and ".join(name for name in names if name)


def _count(value: object) -> int:
    """Return a count; 0 of what is none."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST_RANKS
    return value if whole and isinstance(value, int) else 0


def _number(value: object) -> float:
    """Return a number; NaN for null, for the text that stands for NaN, and for anything else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.nan
    return math.nan


# Records: an operation each, of rccl-tests or of NCCL's Inspector.

INSPECTOR, RCCL = "inspector", "rccl"
_MOST_KINDS = 10_000  # curves and sizes; more is no log of a test or of a training run


def _kind(record: object) -> str:
    """Return whose record it is; empty: neither's."""
    if not isinstance(record, dict):
        return ""
    if isinstance(record.get("coll_perf"), dict) or "p2p_perf" in record:
        return INSPECTOR
    return RCCL if "ranks" in record and "time" in record and "size" in record else ""


def json_lines(text: str) -> list[tuple[int, Any]] | None:
    """Return the records of a file whose first lines are JSON, a record each; None: it isn't."""
    records: list[tuple[int, Any]] = []
    first = True
    for number, line in enumerate(text.splitlines(), start=1):
        plain = line.strip().rstrip(",")
        if not plain.startswith("{"):
            continue
        try:
            record = json.loads(plain)
        except (ValueError, RecursionError):
            record = None
        if first and not _kind(record):
            return None
        first = False
        records.append((number, record))
    return records or None


def read_json_lines(path: Path, records: Sequence[tuple[int, Any]]) -> Logs:
    """Read records, each with its line."""
    each: dict[_Key, _Sizes] = {}
    logs, dead, others = Logs(), list[int](), 0
    for number, record in records:
        if isinstance(record, dict) and "coll_perf" not in record and "p2p_perf" in record:
            others += 1
            continue
        key, row = _record(number, record) or (None, None)
        if key is None or row is None:
            dead.append(number)
            continue
        each.setdefault(key, {}).setdefault((row.size, row.placement), []).append(row)
    if len(each) > _MOST_KINDS:
        reject(path.name, f"{len(each):,} groups; give the records of some of them")
    for (kind, name, ranks, nodes), rows in each.items():
        operation = operation_of(name)
        line = min(row.line for some in rows.values() for row in some)
        where = f"{path.name}, line {line}"
        if not operation:
            logs.left.append(Left(f"{where}: '{name}' is no operation that is modelled"))
            continue
        logs.tests.append(
            LogTest(
                path=path,
                line=line,
                operation=operation,
                rows=tuple(_medians(rows)),
                ranks=ranks,
                nodes=nodes,
                notes=tuple(_notes(kind, rows, len(dead), others)),
            )
        )
    if not logs.tests and not logs.left:
        wrong = (
            "no record of an operation with its size and time; give the lines of NCCL's Inspector "
            "('coll_perf'), or the records of rccl-tests"
        )
        reject(f"{path.name}, line {dead[0] if dead else 1}", wrong)
    return logs


_Key = tuple[str, str, int, int]  # kind of record, operation, ranks, nodes
_Sizes = dict[tuple[float, str], list[LogRow]]  # rows by size and placement


def _record(number: int, record: object) -> tuple[_Key, LogRow] | None:
    """Return what a record is of, and its row; None where it can't be read."""
    kind = _kind(record)
    if not kind or not isinstance(record, dict):
        return None
    if kind == INSPECTOR:
        header, measured = record.get("header"), record.get("coll_perf")
        header = header if isinstance(header, dict) else {}
        if not isinstance(measured, dict):
            return None
        record = {**header, **measured, "nnodes": header.get("nnodes", header.get("n_nodes"))}
    cells = {meaning: record.get(key) for meaning, key in WORDS["records"][kind].items()}
    size, time, algbw, busbw, wrong = (
        _number(cells.get(name)) for name in ("size", "time", "algbw", "busbw", "wrong")
    )
    ranks = _count(cells["ranks"])
    # Of operations that share a message, the size is a rank's part, and the rate the whole's.
    if kind == INSPECTOR and ranks > 1 and algbw > 0.0 and time > 0.0 and size > 0.0:
        whole = algbw * time * 1e3 / size
        size *= ranks if abs(whole / ranks - 1.0) < 0.1 else 1
    placement = PLACEMENTS[_count(cells.get("in_place")) > 0]
    row = LogRow(number, size, time * 1e-6, placement, algbw * GIGA, busbw * GIGA, wrong)
    name = str(record.get(WORDS["records"][kind]["name"], ""))
    key = (kind, name, ranks, _count(cells["nodes"]))
    return (key, row) if row.whole else None


def _medians(rows: _Sizes) -> Iterator[LogRow]:
    """Yield the middle one of each size's records."""
    for _, some in sorted(rows.items()):
        ordered = sorted(some, key=lambda row: row.time)
        wrong = float(np.nanmax([*(row.wrong for row in ordered), -1.0]))
        middle = ordered[(len(ordered) - 1) // 2]
        yield replace(middle, wrong=wrong if wrong >= 0.0 else math.nan)


def _notes(kind: str, rows: _Sizes, dead: int, others: int) -> Iterator[str]:
    count = sum(map(len, rows.values()))
    if kind == INSPECTOR:
        yield (
            f"{count} operation{'s' * (count > 1)} of a run, the middle time of each size; beside "
            "compute they take longer than alone"
        )
    elif count > len(rows):
        yield f"{count} records, the middle time of each size"
    if dead:
        yield f"left out {dead} line{'s' * (dead > 1)}: no whole record"
    if others:
        yield f"left out {others} point-to-point operation{'s' * (others > 1)}"
