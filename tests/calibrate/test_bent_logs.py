"""Bent logs: they are read or refused with a line, and never anything else."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweeps.calibration.log import Left, Logs
from sweeps.calibration.logs import read_logs
from sweeps.calibration.model import PlacedTest, cases_of
from sweeps.errors import InputError
from sweeps.spec.catalog import load_hardware
from tests.bending import bent
from tests.calibrate.simulated import log_text, timed
from tests.calibrate.test_calibrate_logs import result
from tests.launch.test_bent_files import JUNK

DATA = Path(__file__).parents[1] / "data" / "logs"
H100 = load_hardware("dgx-h100")
GROUP = ("all_reduce", 8, 1)
SIZES = tuple(2.0**power for power in range(10, 33, 4))
SETTINGS = (
    'NCCL_ALGO="ring;allreduce:^nvls"\nh:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL\n'
)
WHOLE = log_text(timed([GROUP], {}, sizes=SIZES), GROUP)
JSON = {
    "args": ["./all_reduce_perf"],
    "nccl_version": 22907,
    "config": {
        "ngpus": 8,
        "devices": [{"group": 0, "hostname": "n", "device_info": "NVIDIA H100"}],
    },
    "results": [result(1 << power, 1e-5 * power, 8) for power in (10, 20, 30)],
}
TEXTS = {
    "nccl.log": SETTINGS + WHOLE,
    "two.log": WHOLE + WHOLE.replace("all_reduce_perf", "alltoall_perf"),
    "test.json": json.dumps(JSON, indent=1),
    "shipped.csv": "collective,ranks,nodes,message_bytes,time_us\nall_reduce,8,1,1024,12\n"
    "all_reduce,8,1,1048576,40\nall_to_all,8,1,1048576,30\n",
    **{path.name: path.read_text() for path in sorted(DATA.iterdir())},
}


def told(lines: Sequence[str]) -> bool:
    return all(line.strip() and "\n" not in line for line in lines)


def read_or_refused(path: Path) -> tuple[Logs | None, Sequence[str]]:
    try:
        return read_logs([str(path)]), ()
    except InputError as error:
        return None, error.faults


def placed_or_refused(logs: Logs, left: list[Left]) -> tuple[list[PlacedTest], Sequence[str]]:
    try:
        return cases_of(logs.tests, H100, ranks=8, left=left), ()
    except InputError as error:
        return [], error.faults


def tried(path: Path) -> None:
    logs, faults = read_or_refused(path)
    assert told(faults)
    if logs is None:
        assert faults
        return
    assert told([one.reason for one in logs.left])
    checked(logs)
    left: list[Left] = []
    cases, faults = placed_or_refused(logs, left)
    assert cases or faults
    assert told([*faults, *(one.reason for one in left)])
    assert all(case.ranks > 1 for case in cases)


def checked(logs: Logs) -> None:
    assert logs.tests
    for test in logs.tests:
        assert test.rows
        assert told(test.notes)
        for row in test.rows:
            assert 0.0 < row.size < math.inf
            assert 0.0 < row.time < math.inf


def bend(name: str, seeds: range, folder: Path) -> None:
    path = folder / name
    for seed in seeds:
        path.write_text(bent(TEXTS[name], random.Random(seed), JUNK))
        tried(path)
        content = bytearray(TEXTS[name].encode("utf-16" if seed % 2 else "utf-8"))
        draw = random.Random(seed)
        for _ in range(3):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
        tried(path)


@pytest.mark.parametrize("name", TEXTS)
def test_bent(name: str, tmp_path: Path) -> None:
    bend(name, range(12), tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEXTS)
def test_bent_a_thousand_times(name: str, tmp_path: Path) -> None:
    bend(name, range(12, 512), tmp_path)


@pytest.mark.parametrize(
    "piece", ["a", " ", "_", "_perf", "1", "1 ", "( ", "NCCL_ALGO=", "OSU ", "{"]
)
def test_long_lines_take_no_time(piece: str, tmp_path: Path) -> None:
    """What takes the cube of a line's length wouldn't end."""
    lines = [piece * (2000 // len(piece)), f"# {piece * 1000}", f"# OSU A-B {piece * 2000} Test"]
    for name in ("a.log", "a.csv"):
        (tmp_path / name).write_text("\n".join([f"{lines[0]},size,{lines[0]}", *lines, WHOLE]))
        tried(tmp_path / name)
