"""Bent logs: they are read or refused with a line, and never anything else."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from sweeps.calibration.log import Left, Logs
from sweeps.calibration.logs import read_logs
from sweeps.calibration.model import cases_of
from sweeps.spec.catalog import load_hardware
from tests.bending import bent, of_seeds, read_or_faults
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


def one_line_each(lines: Iterable[str]) -> bool:
    return all(line.strip() and "\n" not in line for line in lines)


def look_at(path: Path) -> None:
    logs, _ = read_or_faults(read_logs, [str(path)])
    if logs is None:
        return
    assert one_line_each(test.reason for test in logs.left)
    checked(logs)
    left: list[Left] = []
    cases, faults = read_or_faults(cases_of, logs.tests, H100, ranks=8, left=left)
    assert cases or faults
    assert one_line_each(test.reason for test in left)
    assert all(case.ranks > 1 for case in cases or ())


def checked(logs: Logs) -> None:
    assert logs.tests
    for test in logs.tests:
        assert test.rows
        assert one_line_each(test.notes)
        for row in test.rows:
            assert 0.0 < row.size < math.inf
            assert 0.0 < row.time < math.inf


@of_seeds(12, 512)
@pytest.mark.parametrize("name", TEXTS)
def test_bent(name: str, seeds: range, tmp_path: Path) -> None:
    path = tmp_path / name
    for seed in seeds:
        path.write_text(bent(TEXTS[name], random.Random(seed), JUNK))
        look_at(path)
        content = bytearray(TEXTS[name].encode("utf-16" if seed % 2 else "utf-8"))
        draw = random.Random(seed)
        for _ in range(3):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
        look_at(path)


@pytest.mark.parametrize(
    "piece", ["a", " ", "_", "_perf", "1", "1 ", "( ", "NCCL_ALGO=", "OSU ", "{"]
)
def test_long_lines_take_no_time(piece: str, tmp_path: Path) -> None:
    """What takes the cube of a line's length wouldn't end."""
    lines = [piece * (2000 // len(piece)), f"# {piece * 1000}", f"# OSU A-B {piece * 2000} Test"]
    for name in ("a.log", "a.csv"):
        (tmp_path / name).write_text("\n".join([f"{lines[0]},size,{lines[0]}", *lines, WHOLE]))
        look_at(tmp_path / name)
