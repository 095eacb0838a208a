"""Bent traces, alone and in folders: read or refused with a line, and never anything else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.traces.overlap import Mode
from sweeps.traces.ranks import Ranks, analyse_files
from sweeps.traces.report import kernel_lines, report
from tests.bending import bent
from tests.traces.make import GEMM, NCCL, OTHER, kernel, launched, step, write

FOLDER = Path(__file__).parents[1] / "data" / "traces"
JUNK = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ",",
    ":",
    "null",
    "true",
    "-1",
    "1e999",
    "NaN",
    "1e300",
    "9" * 400,
    "\\u0000",
    "\x00",
    "é",
    '{"ph": "X"}',
    '"traceEvents": [',
    '"stream": "stream 7"',
    "[[]]",
    '"dur": -5',
    '"ts": "x"',
    '"args": 3',
    '"name": []',
    '"cat": {}',
    '"ph": "X"',
    "//",
    '"pid": "GPU"',
    "\n",
    '"device": 99999999999999999999',
    '"correlation": 1.5',
]

PART = ", "


def whole(draw: random.Random) -> str:
    """Return a trace of two steps, on two streams and at times on two GPUs."""
    events = [step(1, 0, 90), step(2, 100, 90)]
    for number in range(draw.randint(1, 30)):
        name = draw.choice([GEMM, NCCL, OTHER, "triton_poi_fused_addmm_0"])
        start = draw.randint(0, 180)
        more = {"device": draw.choice([0, 0, 0, 1])}
        if name == NCCL:
            more |= {"Collective name": "allreduce", "Group size": 2}
        stream = draw.choice([7, 20])
        events += launched(name, start, start + 2, draw.randint(0, 30), stream, number, **more)
    about = {"distributedInfo": {"rank": 0, "world_size": 2}, "schemaVersion": 1}
    return json.dumps({**about, "traceEvents": events, "traceName": "t"})


def written(path: Path, text: str, draw: random.Random) -> None:
    data = text.encode("utf-16" if draw.random() < 0.05 else "utf-8", errors="replace")
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=1)
        if draw.random() < 0.3:
            position = draw.randrange(len(data))
            data = data[:position] + bytes([draw.randrange(256)]) + data[position + 1 :]
    path.write_bytes(data)


def read_or_refused(path: Path) -> None:
    modes: tuple[Mode, ...] = ("full", "hta")
    for mode in modes:
        ranks, faults = tried(path, mode)
        if ranks is None:
            assert faults
            assert all(line.startswith("trace = '") and "; " in line for line in faults)
            assert not any("\n" in line for line in faults)
            continue
        lines = [*report(ranks), *kernel_lines(ranks)]
        assert lines
        for overlap in ranks.overlaps:
            assert overlap.rows > 0
            assert 0.0 <= overlap.overlapped <= overlap.communication + 1e-9 or mode == "hta"


def tried(path: Path, mode: Mode) -> tuple[Ranks | None, list[str]]:
    try:
        return analyse_files([path], mode), []
    except InputError as error:
        return None, [*error.faults]


def bend(seeds: range, folder: Path) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        path = folder / draw.choice(["rank0.json", "rank0.json.gz"])
        written(path, bent(whole(draw), draw, JUNK, PART, PART), draw)
        read_or_refused(path)


def test_bent(tmp_path: Path) -> None:
    bend(range(60), tmp_path)


@pytest.mark.thorough
def test_bent_a_thousand_times(tmp_path: Path) -> None:
    bend(range(60, 1060), tmp_path)


@pytest.mark.thorough
def test_bent_folders(tmp_path: Path) -> None:
    """A good trace beside bent ones is judged, and every other is judged or named."""
    for seed in range(100):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        write(folder / "rank9.json", [kernel(GEMM, 0, 5)])
        count = draw.randint(1, 4)
        for rank in range(count):
            written(folder / f"rank{rank}.json.gz", bent(whole(draw), draw, JUNK, PART, PART), draw)
        ranks = analyse_files([folder])
        told = " ".join([*(trace.file for trace in ranks.traces), *ranks.notes])
        assert all(f"rank{rank}.json" in told for rank in (*range(count), 9))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sampled_rank-0", "b200_eager_trace"])
def test_bent_real_traces(name: str, tmp_path: Path) -> None:
    text = gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()).decode()
    for seed in range(12):
        draw = random.Random(seed)
        path = tmp_path / "t.json"
        written(path, bent(text, draw, JUNK, PART, PART), draw)
        read_or_refused(path)
