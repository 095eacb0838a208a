"""Readers of JSON: what nccl-tests writes, and the lines of rccl-tests and NCCL's Inspector.

The keys of nccl-tests are those of NVIDIA/nccl-tests, src/util.cu @a0b82b2 (version 2.19.6, file
version 3); of the Inspector, NVIDIA/nccl, plugins/profiler/inspector/README.md (format v4.0); of
rccl-tests, ROCm/rccl-tests, src/common.cu (``-Z json``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sweeps.calibration.log import (
    GIGA,
    PLACEMENTS,
    Left,
    LogRow,
    Logs,
    LogTest,
    operation_of,
    version_text,
)
from sweeps.errors import InputError

_MOST_RANKS = 1 << 24  # and any other count


def read_json_log(path: Path, text: str) -> Logs:
    """Read one test's JSON."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            message = (
                f"{path.name}, line {error.lineno}: another JSON value behind the first; give what "
                "nccl-tests wrote by -J, or lines of NCCL's Inspector ('coll_perf')"
            )
            raise InputError(message) from None
        message = (
            f"{path.name}, line {error.lineno}: is not whole JSON: {error.msg}; was the test "
            "stopped before its end? what it printed can be read instead"
        )
        raise InputError(message) from None
    except RecursionError:
        message = f"{path.name}, line 1: is nested too deeply; give what nccl-tests wrote by -J"
        raise InputError(message) from None
    except ValueError:  # A number of too many digits
        message = f"{path.name}, line 1: has a number that can't be; give what nccl-tests wrote"
        raise InputError(message) from None
    if isinstance(content, list):
        return _of_records(path, [(index, one) for index, one in enumerate(content, start=1)])
    if isinstance(content, dict) and _kind(content):
        return _of_records(path, [(1, content)])
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list):
        message = f"{path.name}, line 1: no list 'results'; give what nccl-tests wrote by -J"
        raise InputError(message)
    return _of_results(path, content, results)


def _of_results(path: Path, content: Mapping[str, object], results: list[Any]) -> Logs:
    found, rows, empty = Logs(), list[LogRow](), 0
    for number, result in enumerate(results, start=1):
        try:
            each = _rows(path, number, result)
        except InputError as error:
            found.left += [Left(line) for line in error.faults]
            continue
        kept = [row for row in each if row.size > 0.0]
        empty += len(each) - len(kept)
        rows += kept
    if not rows:
        if found.left:
            raise InputError(found.left[0].reason)
        message = f"{path.name}, line 1: 'results' holds no times; did the test fail? run it again"
        raise InputError(message)
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
    found.tests.append(
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
    return found


def _rows(path: Path, number: int, result: object) -> list[LogRow]:
    """Return a result's placements that have a time."""
    where = f"{path.name}, result {number}"
    size = _number(result.get("size")) if isinstance(result, dict) else math.nan
    if not isinstance(result, dict) or not (size >= 0.0 and math.isfinite(size)):
        message = f"{where}: has no size; give what nccl-tests wrote by -J"
        raise InputError(message)
    rows = []
    for placement in PLACEMENTS:
        part = result.get(placement.replace("-", "_"))
        if not isinstance(part, dict):
            continue
        if "cpu_time" in part:
            message = (
                f"{where}: times are the processor's (-C 1), not the operations'; run the test "
                "without"
            )
            raise InputError(message)
        time = _number(part.get("time"))
        if not (time > 0.0 and math.isfinite(time)):
            continue
        rates = _number(part.get("alg_bw")) * GIGA, _number(part.get("bus_bw")) * GIGA
        wrong = _number(part.get("nwrong"))
        rows.append(LogRow(number, size, placement, time * 1e-6, *rates, wrong))
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
            message = (
                f"{path.name}, line 1: a device of 'config.devices' has no hostname; give what "
                "nccl-tests wrote by -J"
            )
            raise InputError(message)
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

INSPECTOR, RCCL = "coll_perf", "busBw"
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
    found: list[tuple[int, Any]] = []
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
        found.append((number, record))
    return found or None


def read_json_lines(path: Path, records: list[tuple[int, Any]]) -> Logs:
    """Read records, a line each."""
    return _of_records(path, records)


def _of_records(path: Path, records: list[tuple[int, Any]]) -> Logs:
    each: dict[tuple[Any, ...], dict[tuple[float, str], list[_Record]]] = {}
    found, dead, others = Logs(), list[int](), 0
    for number, record in records:
        if isinstance(record, dict) and "coll_perf" not in record and "p2p_perf" in record:
            others += 1
            continue
        one = _record(number, record)
        if one is None:
            dead.append(number)
            continue
        rows = each.setdefault(one.key, {})
        rows.setdefault((one.row.size, one.row.placement), []).append(one)
    if len(each) > _MOST_KINDS:
        message = f"{path.name}: {len(each):,} groups; give the records of some of them"
        raise InputError(message)
    for (kind, name, ranks, nodes), rows in each.items():
        operation, line = operation_of(name), min(one.row.line for g in rows.values() for one in g)
        where = f"{path.name}, line {line}"
        if not operation:
            found.left.append(Left(f"{where}: '{name}' is no operation that is modelled"))
            continue
        notes = [*_notes(kind, rows, len(dead), others)]
        found.tests.append(
            LogTest(
                path=path,
                line=line,
                operation=operation,
                rows=tuple(_medians(rows)),
                ranks=ranks,
                nodes=nodes,
                notes=tuple(notes),
            )
        )
    if not found.tests and not found.left:
        message = (
            f"{path.name}, line {dead[0] if dead else 1}: no record of an operation "
            "with its size and time; give the lines of NCCL's Inspector ('coll_perf'), or the "
            "records of rccl-tests"
        )
        raise InputError(message)
    return found


class _Record:
    """One operation's record."""

    def __init__(self, key: tuple[str, str, int, int], row: LogRow) -> None:
        self.key, self.row = key, row


def _record(number: int, record: object) -> _Record | None:
    """Return a record's operation; None where it can't be read."""
    kind = _kind(record)
    if not kind or not isinstance(record, dict):
        return None
    if kind == RCCL:
        size, time = _number(record["size"]), _number(record["time"])
        ranks, nodes = _count(record["ranks"]), _count(record.get("nodes"))
        placement = PLACEMENTS[1 if _count(record.get("inPlace")) else 0]
        rates = _number(record.get("algBw")), _number(record.get("busBw"))
        wrong, name = _number(record.get("wrong")), str(record.get("name", ""))
    else:
        header, own = record.get("header"), record["coll_perf"]
        header = header if isinstance(header, dict) else {}
        size, time = _number(own.get("coll_msg_size_bytes")), _number(own.get("coll_exec_time_us"))
        ranks = _count(header.get("n_ranks"))
        nodes = _count(header.get("nnodes", header.get("n_nodes")))
        rates = _number(own.get("coll_algobw_gbs")), _number(own.get("coll_busbw_gbs"))
        # Of operations that share a message, the size is a rank's part, and the rate the whole's.
        if ranks > 1 and rates[0] > 0.0 and time > 0.0 and size > 0.0:
            whole = rates[0] * time * 1e3 / size
            size *= ranks if abs(whole / ranks - 1.0) < 0.1 else 1
        placement, wrong, name = PLACEMENTS[0], math.nan, str(own.get("coll", ""))
    if not (size > 0.0 and time > 0.0 and math.isfinite(size) and math.isfinite(time)):
        return None
    row = LogRow(number, size, placement, time * 1e-6, rates[0] * GIGA, rates[1] * GIGA, wrong)
    return _Record((kind, name, max(ranks, 0), max(nodes, 0)), row)


def _medians(rows: Mapping[tuple[float, str], list[_Record]]) -> Iterator[LogRow]:
    """Yield the middle one of each size's records."""
    for (size, placement), records in sorted(rows.items()):
        ordered = sorted((record.row for record in records), key=lambda row: row.time)
        middle = ordered[(len(ordered) - 1) // 2]
        wrong = float(np.nanmax([*(row.wrong for row in ordered), -1.0]))
        yield LogRow(
            middle.line,
            size,
            placement,
            middle.time,
            middle.algbw,
            middle.busbw,
            wrong if wrong >= 0.0 else math.nan,
        )


def _notes(kind: str, rows: Mapping[Any, list[_Record]], dead: int, others: int) -> Iterator[str]:
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
