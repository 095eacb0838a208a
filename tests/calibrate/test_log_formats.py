"""Every form of log, whatever blanks, cuts and packing do to it; and what is left out."""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
from pathlib import Path

import pytest

from sweeps.calibration.log import Left, LogTest
from sweeps.calibration.logs import read_any, read_logs
from sweeps.calibration.model import PlacedTest, cases_of
from sweeps.errors import InputError
from sweeps.spec.catalog import load_hardware
from tests.calibrate.simulated import header, log_text, row_text, timed
from tests.cli_runner import Runner
from tests.tables import examples, keyed

DATA = Path(__file__).parents[1] / "data" / "logs"
H100 = load_hardware("dgx-h100")
GROUP = ("all_reduce", 8, 1)
TEXT = log_text(timed([GROUP], {}), GROUP)
HEADINGS = "#  size  count  type  redop  root  time  algbw  busbw  {0}  time  algbw  busbw  {0}\n"


def of_data(name: str) -> list[LogTest]:
    return read_logs([str(DATA / name)]).tests


def rows_of_text(text: str, name: str = "a.log") -> list[tuple[float, str, float, float]]:
    (test,) = read_any(Path(name), text).tests
    return [(row.size, row.placement, round(row.time * 1e6, 3), row.wrong) for row in test.rows]


def placed(test: LogTest, hardware: str = "dgx-h100", **defaults: int) -> PlacedTest:
    (case,) = cases_of([test], load_hardware(hardware), **defaults)
    return case


# Cells.


@pytest.mark.parametrize(
    ("cells", "wrong"),
    examples(__file__, "blank_cells"),
)  # fmt: skip
def test_blank_cells(cells: str, wrong: tuple[float, float]) -> None:
    text = f"{HEADINGS.format('#wrong')}     1048576        262144     {cells}\n"
    rows = rows_of_text(text)
    assert [(size, time) for size, _, time, _ in rows] == [(1048576.0, 100.0), (1048576.0, 102.0)]
    for (*_, own), expected in zip(rows, wrong, strict=True):
        assert own == expected or (math.isnan(own) and math.isnan(expected))


def test_a_row_of_one_placement_and_whole_times() -> None:
    text = "    1048576  262144  float  sum  -1  100  10.49  18.35  0\n"
    assert rows_of_text(text) == [(1048576.0, "out-of-place", 100.0, 0.0)]


def test_times_of_two_digits() -> None:
    """From 10 s on, as in public logs of two nodes: the rate tells the time better."""
    row = (
        " 17179869184  2147483648  double  sum  -1  1.8e+07  0.97  0.97  0  1.7e+07  0.99  0.99  0"
    )
    (test,) = read_any(Path("a.log"), f"{HEADINGS.format('#wrong')}{row}\n").tests
    assert [round(row.time, 1) for row in test.rows] == [17.7, 17.4]
    (case,) = cases_of([test], H100, operation="all_reduce", ranks=2)
    assert len(case.rows) == 2


def test_pasted_without_signs() -> None:
    """As from a page: no sign before headings and ranks, marks of code about the rows."""
    bare = "".join(f"`{line.lstrip('# ')}`\n" for line in TEXT.splitlines())
    (test,) = read_any(Path("a.log"), bare).tests
    assert (test.operation, len(test.rows)) == ("all_reduce", 46)
    plain = "".join(f"{line.lstrip('#')}\n" for line in TEXT.splitlines())
    case = placed(read_any(Path("all_reduce.log"), plain).tests[0])
    assert (case.ranks, len(case.rows), case.test.device) == (8, 46, "NVIDIA H100 80GB HBM3")


def test_headings_of_2021() -> None:
    (test,) = of_data("a100-2-nodes-2021.log")
    assert [row.size for row in test.rows[::2]] == [8, 16, 128, 512, 33554432, 268435456]
    (case,) = cases_of([test], load_hardware("dgx-a100"), operation="all_reduce", ranks=16)
    assert (case.ranks, case.nodes) == (16, 2)


@pytest.mark.parametrize("kept", [1, 3, 7])
def test_a_cut_header_needs_its_ranks(kept: int) -> None:
    lines = TEXT.splitlines(keepends=True)
    last = "".join(line for line in lines if "Rank" not in line or f"Rank  {kept} " in line)
    test = read_any(Path("a.log"), last).tests[0]
    with pytest.raises(InputError, match="give --ranks 8, which busbw by algbw implies"):
        placed(test)
    case = placed(test, ranks=8)
    assert (case.ranks, case.nodes) == (8, 1)
    assert any("list of ranks is cut" in note for note in case.notes)
    first = "".join(line for line in lines if "Rank" not in line or f"Rank  {kept} " > line[3:11])
    if kept > 1:
        case = placed(read_any(Path("a.log"), first).tests[0], ranks=8)
        assert any("cut after" in note for note in case.notes)
        with pytest.raises(InputError, match=f"the log has {kept}"):
            placed(read_any(Path("a.log"), first).tests[0], ranks=16)


# Packing.


def test_encodings_and_packing(tmp_path: Path) -> None:
    contents = {
        "bom.log": TEXT.encode("utf-16"),
        "le.log": TEXT.encode("utf-16-le"),
        "be.log": TEXT.encode("utf-16-be"),
        "sig.log": TEXT.encode("utf-8-sig"),
        "crlf.log": TEXT.replace("\n", "\r\n").encode(),
        "packed.log.gz": gzip.compress(TEXT.encode()),
        "packed.txt": gzip.compress(TEXT.encode("utf-16")),
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        (test,) = read_logs([str(path)]).tests
        assert (len(test.rows), test.ranks) == (46, 8), name
        assert len(test.digest) == 64


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(TEXT.encode(), mtime=0)[:90], "cut off or damaged"),
        (b"\x28\xb5\x2f\xfd1234", "packed by zstd"),
        (b"PK\x03\x04....", "packed by zip"),
    ],
)
def test_packing_that_is_none(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.log").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_logs([str(tmp_path / "a.log")])


def test_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    (test,) = read_logs(["-"]).tests
    assert (test.name, len(test.rows)) == ("standard input", 46)


# What is left out, and the rest judged.


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.log").write_text(TEXT)
    (tmp_path / "b.log").write_text(header("all_gather", 8, 1))
    (tmp_path / "readme.txt").write_text("how these were made\n")
    (tmp_path / ".hidden").write_text(TEXT)
    logs = read_logs([str(tmp_path)])
    assert [test.name for test in logs.tests] == ["a.log"]
    assert sorted(omission.reason.split(":")[0] for omission in logs.left) == [
        "b.log, line 16",
        "readme.txt, line 1",
    ]
    assert {omission.counts for omission in logs.left} == {False}
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="a folder without files"):
        read_logs([str(empty)])


def test_sections_that_died_are_left_out() -> None:
    """A test without rows, one that isn't modelled, and one whose ranks are given twice."""
    dead = header("all_gather", 8, 1)
    strange = TEXT.replace("all_reduce_perf", "hypercube_perf")
    twice = TEXT.replace("Rank  1 Group", "Rank  0 Group")
    logs = read_any(Path("a.log"), dead + strange + TEXT + twice)
    assert [test.operation for test in logs.tests] == ["all_reduce"]
    reasons = [omission.reason for omission in logs.left]
    assert len(reasons) == 3
    assert "line 16: no rows below the headings" in reasons[0]
    assert "hypercube_perf times no operation that is modelled" in reasons[1]
    assert "rank 0 is given twice" in reasons[2]
    assert all(omission.counts for omission in logs.left)


def test_logs_that_cannot_be_placed_are_left_out() -> None:
    text = TEXT.replace("all_reduce_perf", "all_gather_perf")
    tests = [*read_any(Path("a.log"), TEXT).tests, *read_any(Path("b.log"), text).tests]
    left: list[Left] = []
    (case,) = cases_of(tests, H100, left=left)
    assert case.test.name == "a.log"
    assert "which no number of ranks has" in left[0].reason


# Other programs.


def test_osu_tables() -> None:
    case = placed(of_data("osu-allreduce-8.log")[0])
    assert (case.operation, case.ranks, case.rows[0].time) == ("all_reduce", 8, 8955.18e-6)
    (test,) = of_data("osu-alltoall-16.log")
    case = placed(test, ranks=16)
    # A message to each of 16: nccl-tests counts them all.
    assert [row.size for row in case.rows][:2] == [32.0, 16 * 1024.0]
    with pytest.raises(InputError, match="give --ranks N"):
        placed(test)


@pytest.mark.parametrize(
    ("title", "row", "said"),
    [
        ("# OSU MPI Allreduce Latency Test v7.3", "8 3.1", "buffers are in the host's memory"),
        ("# OSU MPI-CUDA Barrier Latency Test v7.3", "8 3.1", "no operation that is modelled"),
        ("# OSU NCCL-CUDA Reduce Latency Test v7.5", "", "no rows below the title"),
    ],
)
def test_osu_tables_that_tell_nothing(title: str, row: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_any(Path("a.log"), f"\n{title}\n# Size  Avg Latency(us)\n{row}\n")


MPI = (
    "# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size  Avg Latency(us)\n"
    "8 28.1\n1024 29.1\n262144 70\n67108864 4200\n268435456 16800\n1073741824 66000\n"
)


@pytest.mark.thorough
def test_times_of_mpi_get_no_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifteen times as slow as NCCL on eight H100 is MPI's algorithm, not the fabric's fault."""
    monkeypatch.setenv("COLUMNS", "1000")
    run, path = Runner(capsys), tmp_path / "mpi.log"

    def first(text: str, code: int) -> str:
        path.write_text(text)
        result = run(f"calibrate {path} --hardware dgx-h100 --ranks 8 --strict", fine=False)
        assert result.code == code
        return result.out.splitlines()[0]

    told = "UNKNOWN: 1 curve on dgx-h100: measured by MPI, not by NCCL"
    assert first(MPI, 0) == told
    said = "UNHEALTHY: sizes out of line: all_reduce of 8 ranks, 64 MiB: "
    assert first(MPI.replace("4200", "420000"), 1).startswith(said)
    fast = "impossible, faster than the machine's wires"
    assert fast in first(MPI.replace("66000", "660"), 1)
    slow = "UNHEALTHY: slow links"
    assert first(MPI.replace("MPI-CUDA", "NCCL-CUDA"), 1).startswith(slow)


def test_osu_bandwidth_and_checks() -> None:
    title = "# OSU MPI-CUDA Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size  Bandwidth (MB/s)\n"
    (test,) = read_any(Path("a.log"), f"{title}1048576  23935.47   Fail\n").tests
    assert test.operation == "p2p"
    assert test.rows[0].time == pytest.approx(1048576 / 23935.47e6)
    assert test.rows[0].wrong == 1.0
    assert test.library == "MPI"


def test_inspector_lines() -> None:
    """Sizes of a reduce-scatter are a rank's share: its rate says so."""
    reduced, scattered = of_data("inspector.jsonl")
    assert (reduced.operation, reduced.ranks, reduced.nodes) == ("all_reduce", 8, 1)
    assert [row.time for row in reduced.rows] == [pytest.approx(61974e-6)]
    assert reduced.rows[0].size == 2.0**34
    assert [row.size for row in scattered.rows] == [8 * 2.0**31]
    assert placed(scattered).ranks == 8
    notes = " ".join(reduced.notes)
    assert "left out 1 line: no whole record" in notes
    assert "left out 1 point-to-point operation" in notes


def test_rccl_records() -> None:
    record = {
        **keyed(
            "numCycle=0 name=AllReduce nodes=1 ranks=8 ranksPerNode=8 size=8 type=float redop=sum "
            "inPlace=1 time=20.0 algBw=0.0004 busBw=0.0007"
        ),
        "wrong": "2",
    }
    for text in (json.dumps(record) + "\n", json.dumps([record], indent=1)):
        (test,) = read_any(Path("a.json"), text).tests
        (row,) = test.rows
        assert (test.operation, test.ranks, row.placement, row.wrong) == (
            "all_reduce",
            8,
            "in-place",
            2.0,
        )


def test_rccl_tables() -> None:
    case = placed(of_data("rccl-mi300x.log")[0], "mi300x")
    assert (case.ranks, len(case.rows), case.stranger) == (8, 6, "")
    assert case.test.versions == {"rccl-tests": "develop:a7809b3", "RCCL": "2.27.7"}


def test_usual_tables() -> None:
    logs = read_logs([str(DATA / "usual.csv")])
    assert [(test.operation, test.ranks, len(test.rows)) for test in logs.tests] == [
        ("all_reduce", 4, 3),
        ("broadcast", 4, 1),
    ]
    lacking, unknown = (left_out.reason for left_out in logs.left)
    assert lacking == "usual.csv: rows without a size and a time: line 4"
    assert "'gather' is no operation that is modelled" in unknown
    assert "line 7" in unknown


@pytest.mark.parametrize("ranks", ["0", "-8", "8.5", "many"])
def test_ranks_of_a_table_are_whole_numbers(ranks: str, tmp_path: Path) -> None:
    head, row = "op,ranks,size,time_us\n", f"all_reduce,{ranks},1024,10\n"
    (tmp_path / "a.csv").write_text(f"{head}all_reduce,8,1024,10\n{row}")
    logs = read_logs([str(tmp_path / "a.csv")])
    assert [test.ranks for test in logs.tests] == [8]
    wanted = f"a.csv: rows without a whole number of ranks: line 3 (ranks {ranks})"
    assert [left_out.reason for left_out in logs.left] == [wanted]
    (tmp_path / "a.csv").write_text(head + row)
    with pytest.raises(InputError, match="no row has a whole number of ranks"):
        read_logs([str(tmp_path / "a.csv")])


def test_a_table_without_times_is_told_the_usual_headings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("op,ranks,size\nall_reduce,8,1MiB\n")
    with pytest.raises(InputError, match="name the columns size_bytes, time_us, op, ranks"):
        read_logs([str(tmp_path / "a.csv")])


@pytest.mark.parametrize("text", examples(__file__, "usual_headings"))
def test_usual_headings(text: str, tmp_path: Path) -> None:
    (tmp_path / "all_reduce.csv").write_text(text)
    (test,) = read_logs([str(tmp_path / "all_reduce.csv")]).tests
    case = placed(test, ranks=8)
    assert case.operation == "all_reduce"
    assert [(row.size, row.time) for row in case.rows] == [(2.0**20, pytest.approx(1e-4))]


@pytest.mark.parametrize(
    ("head", "both"),
    [
        ("op,ranks,size_bytes,time_us,time_ms", "time_us and time_ms are both its time"),
        ("op,ranks,size,time_us,algbw_GB/s,algbw_Gbit/s", "are both its algbw"),
    ],
)
def test_a_column_in_two_units_is_refused(head: str, both: str, tmp_path: Path) -> None:
    cells = ",".join(["all_reduce", "8", *(["1024"] * (head.count(",") - 1))])
    (tmp_path / "a.csv").write_text(f"{head}\n{cells}\n")
    with pytest.raises(InputError, match=both):
        read_logs([str(tmp_path / "a.csv")])


def test_columns_out_of_place_and_in_place_are_one_unit(tmp_path: Path) -> None:
    text = "op,ranks,size,time (us),time (usec)\nall_reduce,8,1024,10,11\n"
    (tmp_path / "a.csv").write_text(text)
    (test,) = read_logs([str(tmp_path / "a.csv")]).tests
    assert [row.time for row in test.rows] == [pytest.approx(1e-5)]


def test_a_time_without_a_unit_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("op,ranks,size,time\nall_reduce,8,1024,10\n")
    with pytest.raises(InputError, match="unit of column 4 isn't known; call it time_us"):
        read_logs([str(tmp_path / "a.csv")])
    (tmp_path / "a.csv").write_text("op,ranks,size,busbw\nall_reduce,8,1024,10\n")
    with pytest.raises(InputError, match="no row has a size and a time"):
        read_logs([str(tmp_path / "a.csv")])


@pytest.mark.parametrize("cell", range(13))
@pytest.mark.parametrize("junk", ["", "x", "##", "-", "nan", "1e999"])
def test_no_cell_is_lost_in_silence(cell: int, junk: str) -> None:
    """A row with one bent cell is read as it was, or named."""
    whole = row_text("all_reduce", 8, 1048576.0, 1e-4)
    words = whole.split()
    words[cell] = junk
    text = TEXT.replace("# Out of bounds", " ".join(words) + "\n# Out of bounds")
    (test,) = read_any(Path("a.log"), text).tests
    more = [row for row in test.rows if row.line == 41]
    told = " ".join((*test.notes, *placed(test).notes))
    if len(more) == 2 and cell > 0:
        assert {row.size for row in more} == {1048576.0}
        assert {round(row.time * 1e6) for row in more} == {100, 102} or "41" in told
    elif cell > 2:
        assert "41" in told
