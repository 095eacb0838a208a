"""Reader of the JSON that nccl-tests writes (``-J FILE.json``).

The keys are those of NVIDIA/nccl-tests, src/util.cu @a0b82b2 (version 2.19.6, file version 3).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps.calibrate.log import PLACEMENTS, LogRow, LogTest, operation_of
from sweeps.errors import InputError

__all__ = ["read_json_log"]

GIGA = 1e9


def read_json_log(path: Path, text: str) -> list[LogTest]:
    """Read one test's JSON."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        message = (
            f"{path.name}, line {error.lineno}: is not whole JSON: {error.msg}; was the test "
            "stopped before its end? what it printed can be read instead"
        )
        raise InputError(message) from None
    except RecursionError:
        message = f"{path.name}, line 1: is nested too deeply; give what nccl-tests wrote by -J"
        raise InputError(message) from None
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list):
        message = f"{path.name}, line 1: no list 'results'; give what nccl-tests wrote by -J"
        raise InputError(message)
    rows: list[LogRow] = []
    empty = 0
    for number, result in enumerate(results, start=1):
        found = _rows(path, number, result)
        kept = [row for row in found if row.size > 0.0]
        empty += len(found) - len(kept)
        rows += kept
    if not rows:
        message = f"{path.name}, line 1: 'results' holds no times; did the test fail?"
        raise InputError(message)
    config = content.get("config") if isinstance(content.get("config"), dict) else {}
    hosts, device = _hosts(path, config)
    args = content.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    version = content.get("nccl_version")
    notes = [f"left out {empty} values of messages of 0 bytes"] if empty else []
    if _count(config.get("graph")) > 0:
        notes.append(f"CUDA graphs ({config['graph']}): a launch costs less than usual")
    if _count(config.get("aggregated_iterations")) > 1:
        together = config["aggregated_iterations"]
        notes.append(f"{together} operations at once (-m): launches are shared")
    test = LogTest(
        path=path,
        line=1,
        operation=operation_of(Path(program).name),
        rows=tuple(rows),
        hosts=hosts,
        ranks=sum(hosts.values()),
        device=device,
        versions={"NCCL": _version(version)} if isinstance(version, int) else {},
        notes=tuple(notes),
    )
    return [test]


def _rows(path: Path, number: int, result: object) -> list[LogRow]:
    """Return a result's placements that have a time."""
    where = f"{path.name}, result {number}"
    if not isinstance(result, dict) or not isinstance(result.get("size"), int):
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
        if not time > 0.0:
            continue
        rates = (_number(part.get("alg_bw")) * GIGA, _number(part.get("bus_bw")) * GIGA)
        wrong = _number(part.get("nwrong"))
        size = float(result["size"])
        rows.append(LogRow(number, size, placement, time * 1e-6, *rates, wrong))
    return rows


def _hosts(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, int], str]:
    """Return the ranks of each host: the file lists one device a process, not one a rank."""
    each = max(_count(config.get("nthreads")), 1) * max(_count(config.get("ngpus")), 1)
    listed = config.get("devices")
    devices: list[Any] = listed if isinstance(listed, list) else []
    hosts: dict[str, int] = {}
    names: dict[str, None] = {}
    groups = set()
    for one in devices:
        if not isinstance(one, dict) or not isinstance(one.get("hostname"), str):
            message = f"{path.name}, line 1: a device of 'config.devices' has no hostname"
            raise InputError(message)
        groups.add(one.get("group"))
        if one.get("group") == devices[0].get("group"):
            hosts[one["hostname"]] = hosts.get(one["hostname"], 0) + each
        names[str(one.get("device_info", "")).strip()] = None
    return hosts, " and ".join(name for name in names if name)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _number(value: object) -> float:
    """Return a number; NaN for null, for the text that stands for NaN, and for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return math.nan


def _version(code: int) -> str:
    large = 10000 if code >= 10000 else 1000
    return f"{code // large}.{code % large // 100}.{code % 100}"
