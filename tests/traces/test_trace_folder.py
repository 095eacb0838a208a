"""A folder of traces as profilers write it, what is bad in it, and which rank a file is of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.traces.folder import listed
from sweeps.traces.origin import named_rank
from sweeps.traces.ranks import Ranks, analyse_files
from tests.cli_runner import Runner
from tests.tables import examples
from tests.traces.make import GEMM, NCCL, call, kernel, launched, step, write


def trace(path: Path, rank: int | None = None, end: float = 10, world: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world}}
    events = [
        step(1, 0, 20),
        *launched(GEMM, 1, 2, end - 2, 7, 1),
        *launched(NCCL, 3, 4, 6, 9, 2),
        step(2, 20, 20),
        *launched(GEMM, 21, 22, end - 2, 7, 3),
    ]
    return write(path, events, **about)


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        analyse_files([folder])
    (line,) = caught.value.faults
    return line


def read(folder: Path) -> Ranks:
    return analyse_files([folder])


def test_one_file_a_rank(tmp_path: Path, cli: Runner) -> None:
    for rank in (1, 0):
        trace(tmp_path / "log" / f"host{rank}_9.17000000000{rank}0.pt.trace.json.gz", rank)
    result = cli("trace log")
    assert result.out.startswith("Most exposed communication: rank 0 of 2 traces")
    rows = [line.split() for line in result.out.splitlines() if line.startswith("     ")]
    assert [row[0] for row in rows if row[0].isdigit()][:2] == ["0", "1"]
    assert [*read(tmp_path / "log").overlaps[0].by_step] == [1, 2]
    records = cli("trace log --json").records
    assert {record["rank"] for record in records} == {0, 1}


def test_a_trace_given_twice_is_a_single_rank(tmp_path: Path) -> None:
    file = tmp_path / "log" / "rank0.json"
    trace(file, 0)
    assert len(analyse_files([file, tmp_path / "log", tmp_path / "log" / ".." / "log"]).traces) == 1


def test_a_single_row_or_name_is_not_plural(tmp_path: Path, cli: Runner) -> None:
    trace(tmp_path / "rank0.json", 0)
    assert not re.search(r"\b1 (?:names|more rows)\b", cli("trace rank0.json --show rows").out)


def test_bad_files_are_named_and_the_rest_is_judged(tmp_path: Path, cli: Runner) -> None:
    folder = tmp_path / "log"
    trace(folder / "rank0.json")
    trace(folder / "rank10.json.gz")
    trace(folder / "rank2.json")
    (folder / "rank3.json.gz").write_bytes((folder / "rank10.json.gz").read_bytes()[:60])
    (folder / "rank4.json").write_text("")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "notes.txt").write_text("mine")
    write(folder / "rank5.json", [call(1, 2)])
    ranks = read(folder)
    assert ranks.numbers() == (0, 2, 10)
    left = [note for note in ranks.notes if note.startswith("left out: trace = '")]
    reasons = {
        "config.json": "no traceEvents",
        "rank3": "torn off",
        "rank4": "is empty",
        "rank5": "no rows of GPU work",
    }
    assert len(left) == len(reasons)
    for name, reason in reasons.items():
        assert any(name in note and reason in note for note in left)
    result = cli("trace log")
    text = " ".join(result.out.split())
    assert all(f"Note: left out: trace = 'log/{name}" in text for name in [*reasons][:3])
    assert "Note: left out: trace = 'rank5.json': has no rows of GPU work" in text


def test_nothing_but_bad_files(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert [line.split("'")[1].split("/")[-1] for line in caught.value.faults] == [
        "a.json",
        "b.json",
    ]


def test_folders_without_traces(tmp_path: Path) -> None:
    assert "is a folder without traces; *.json or *.json.gz" in refused(tmp_path)
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        (tmp_path / name).touch()
    assert "without traces: it has a.txt, b.txt, c.txt and 1 more; *.json" in refused(tmp_path)
    (tmp_path / "rank0.nsys-rep").touch()
    line = refused(tmp_path)
    assert "of Nsight Systems: " in line
    assert "torch.profiler" in line


def test_several_cycles_of_a_worker(tmp_path: Path) -> None:
    for worker in (0, 1):
        for cycle, end in ((1, 10), (2, 12), (10, 14)):
            name = f"host_{worker}.17000000000{cycle:02}.pt.trace.json"
            trace(tmp_path / name, worker, end)
    ranks = read(tmp_path)
    assert [one.file for one in ranks.traces] == [
        "host_0.1700000000010.pt.trace.json",
        "host_1.1700000000010.pt.trace.json",
    ]
    assert any("4 of 6 traces are earlier ones of the same workers" in n for n in ranks.notes)


def test_a_folder_for_each_time_and_for_each_rank(tmp_path: Path) -> None:
    for iteration in (2, 10):
        for rank in (0, 1):
            trace(tmp_path / "times" / f"iteration_{iteration}" / f"rank{rank}_trace.json")
    files, notes = listed([tmp_path / "times"])
    assert {file.path.parent.name for file in files} == {"iteration_10"}
    assert len(files) == 2
    assert "the last one is read, iteration_10" in notes[0]
    for rank in (0, 1, 10):
        trace(tmp_path / "ranks" / f"rank{rank}" / "trace.json")
    ranks = read(tmp_path / "ranks")
    assert ranks.numbers() == (0, 1, 10)
    assert ranks.traces[2].file == "rank10/trace.json"


def test_files_asked_for_by_name_stop_as_before(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("nonsense")
    trace(tmp_path / "log" / "rank0.json")
    with pytest.raises(InputError):
        analyse_files([tmp_path / "log", bad])


@pytest.mark.parametrize(("name", "rank"), examples(__file__, "ranks_in_names"))
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert named_rank(Path("log") / name) == rank


def test_the_file_s_own_rank_rules(tmp_path: Path) -> None:
    trace(tmp_path / "rank7.json", 1)
    trace(tmp_path / "rank8.json")
    assert read(tmp_path).numbers() == (1, 8)


def test_a_rank_beside_gpus_of_one_file(tmp_path: Path) -> None:
    write(tmp_path / "rank3.json", [kernel(GEMM, 0, 1), kernel(GEMM, 0, 1, device=1)])
    assert read(tmp_path).numbers() == (0, 1)
