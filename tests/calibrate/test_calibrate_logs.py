"""Reader of logs: layouts of all versions, prefixes, torn and mixed lines, and honest faults."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sweeps.calibration.json_log import read_json_log
from sweeps.calibration.log import LogTest, operation_of
from sweeps.calibration.logs import check_operation, read_any, read_logs
from sweeps.calibration.model import PlacedTest, bus_factor, cases_of
from sweeps.errors import InputError
from sweeps.spec.catalog import load_hardware
from tests.calibrate.simulated import header, log_text, row_text, timed
from tests.tables import examples

H100 = load_hardware("dgx-h100")
GROUP = ("all_reduce", 16, 2)
ROWS = timed([GROUP], {"collective_launch_time": 6e-6})
TEXT = log_text(ROWS, GROUP)


def read(text: str, name: str = "a.log") -> LogTest:
    (test,) = read_any(Path(name), text).tests
    return test


def placed(text: str, name: str = "a.log", **given: Any) -> PlacedTest:
    (case,) = cases_of([read(text, name)], H100, **given)
    return case


def test_what_is_no_file_or_far_too_large_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file; a log, a folder of logs, or - for a pipe"):
        read_logs(["/dev/null"])
    with (tmp_path / "core.log").open("wb") as file:
        file.truncate(2**28 + 1)  # a hole: it takes no room
    with pytest.raises(InputError, match="268,435,457 bytes; a log, of some megabytes at most"):
        read_logs([str(tmp_path / "core.log")])


def test_a_log_is_read_whole() -> None:
    case = placed(TEXT)
    assert (case.operation, case.ranks, case.nodes) == GROUP
    assert case.test.versions == {"nccl-tests": "2.17.6", "NCCL": "2.28.3"}
    out = [row for row in case.rows if row.placement == "out-of-place"]
    assert [row.size for row in out] == ROWS.message_bytes.tolist()
    assert [row.time for row in out] == pytest.approx(ROWS.time.tolist(), rel=1e-3)
    assert len(case.rows) == 2 * len(out)
    assert not case.notes


@pytest.mark.parametrize(
    "prefix",
    ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", " 0:", "[0] ", "(head, pid=38) [1,0]<stdout>:"],
)
def test_prefixes_of_launchers(prefix: str) -> None:
    case = placed("".join(prefix + line for line in TEXT.splitlines(keepends=True)))
    assert (case.ranks, case.nodes, len(case.rows)) == (16, 2, len(placed(TEXT).rows))


def test_noise_between_lines() -> None:
    noise = "node0:4000:4012 [0] NCCL INFO Channel 00/16 : 0 1 2 float 3 4\n"
    warned = "[node1:411] 15 more processes have sent help message\n"
    mixed = "".join(line + noise + warned for line in TEXT.splitlines(keepends=True))
    assert placed(mixed).rows[-1].size == placed(TEXT).rows[-1].size
    assert len(placed(mixed).rows) == len(placed(TEXT).rows)


@pytest.mark.parametrize("lost", [3, 20, 45, 60])
def test_a_torn_last_line_is_left_out(lost: int) -> None:
    rows = TEXT.index("# Out of bounds")
    case = placed(TEXT[: rows - lost])
    whole = len(placed(TEXT).rows)
    assert whole - 2 <= len(case.rows) < whole or lost == 3
    for row in case.rows:
        assert row.size / row.time == pytest.approx(row.algbw, rel=2e-2, abs=2e7)


@pytest.mark.parametrize("at", [52, 60, 70, 84, 100])
def test_rows_split_by_output_are_joined(at: int) -> None:
    line = row_text("all_reduce", 16, 1048576.0, 1e-4)
    noise = "node0:1:2 [0] NCCL INFO comm 0x7f rank 3\nnode1:1:2 [0] NCCL INFO Launch mode\n"
    broken = line[:at] + noise + line[at:]
    case = placed(TEXT.replace("# Out of bounds", broken + "# Out of bounds"))
    assert len(case.rows) == len(placed(TEXT).rows) + 2
    assert [row.time for row in case.rows[-2:]] == pytest.approx([1e-4, 1.02e-4])
    assert any("split by other output" in note for note in case.notes)


def test_rows_whose_rest_is_lost_are_told() -> None:
    line = row_text("all_reduce", 16, 1048576.0, 1e-4)
    broken = line[:60] + "node0:1:2 [0] NCCL INFO comm\n"
    case = placed(TEXT.replace("# Out of bounds", broken + "# Out of bounds"))
    assert len(case.rows) == len(placed(TEXT).rows)
    assert any("mixed with other output" in note for note in case.notes)


def test_several_tests_in_one_file() -> None:
    group = ("reduce_scatter", 8, 1)
    tests = read_any(Path("b.log"), TEXT + log_text(timed([group], {}), group)).tests
    assert [test.operation for test in tests] == ["all_reduce", "reduce_scatter"]
    assert [test.ranks for test in tests] == [16, 8]


# Layouts of other versions.


def test_layout_of_2019() -> None:
    ranks = "".join(
        f"#   Rank {rank:2d} Pid  89207 on    seville device {rank:2d} [0x3{rank}] H100\n"
        for rank in range(4)
    )
    text = (
        "# nThread 1 nGpus 4 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 "
        "iters: 20 validation: 1 \n#\n# Using devices\n" + ranks + "#\n"
        "#       size         count    type     time   algbw   busbw  error     time   algbw   "
        "busbw  error\n"
        "#        (B)    (elements)             (us)  (GB/s)  (GB/s)             (us)  (GB/s)\n"
        "        1024            64   float    20.00    0.05    0.04  2e-07    20.00    0.05    "
        "0.04  1e-07\n"
        "    67108864       4194304   float   1000.0   67.11   50.33  0e+00   1000.0   67.11   "
        "50.33    N/A\n"
    )
    case = placed(text, "all_gather.log")
    assert (case.operation, case.ranks, case.nodes) == ("all_gather", 4, 1)
    assert [row.size for row in case.rows[::2]] == [1024.0, 67108864.0]
    # A largest difference isn't a count of wrong elements.
    assert all(math.isnan(row.wrong) for row in case.rows)


def test_layout_of_2017_has_milliseconds_and_other_rates() -> None:
    ranks = "".join(
        f"#   Rank {rank:2d} on       ncrh device {rank:2d} [0x0{rank}] H100\n" for rank in range(4)
    )
    text = (
        "# NCCL Tests compiled with NCCL 2.1\n# Using devices\n" + ranks + "\n"
        "#                                                 out-of-place                in-place\n"
        "#      bytes             N    type     time  algbw  busbw      res     time  algbw  busbw"
        "      res\n"
        "    67108864       4194304   float    1.000  50.33  50.33    0e+00    1.000  50.33  50.33"
        "    0e+00\n"
    )
    case = placed(text, "all_gather_perf.txt")
    assert case.rows[0].time == pytest.approx(1e-3)
    assert case.test.versions == {"NCCL": "2.1"}


def test_newest_layout_with_iterations_and_time_stamps() -> None:
    text = header("all_reduce", 8, 1).replace(
        "#wrong     time", "#wrong  i_min  i_max  i_p99  i_cv%     time"
    )
    text = text.replace("#wrong \n", "#wrong  i_min  i_max  i_p99  i_cv%            timestamp\n")
    half = "   100.00   10.49   18.35       0    99.00   101.00   101.00     1.00"
    text += "     1048576        262144     float     sum      -1" + 2 * half
    text += "  2026-07-01 10:00:00\n"
    case = placed(text)
    assert [row.time for row in case.rows] == pytest.approx([1e-4, 1e-4])
    assert case.rows[1].placement == "in-place"


def test_rccl_in_place_alone() -> None:
    text = (
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor)\n#\n"
        "rccl-tests: Version develop:ae3e635\n# Using devices\n"
        + "".join(
            f"#   Rank {rank:2d} Pid  56417 on c42f device {rank:2d} [0002:00:0{rank}.0] AMD "
            "Instinct MI300X VF\n"
            for rank in range(8)
        )
        + "#                                                      in-place          \n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        "     1048576        262144     float     sum      -1   100.00   10.49   18.35      0\n"
    )
    (case,) = cases_of(
        [read(text, "all_reduce.log")], load_hardware("mi300x"), operation="all_reduce"
    )
    assert case.rows[0].placement == "in-place"
    assert case.test.versions == {"rccl-tests": "develop:ae3e635"}
    assert not case.notes


def result(size: int, time: float, ranks: int) -> dict[str, object]:
    rate = size / time / 1e9
    part = dict(
        time=time * 1e6, alg_bw=rate, bus_bw=rate * bus_factor("all_reduce", ranks), nwrong=0.0
    )
    return {
        "size": size,
        "count": size // 4,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": part,
        "in_place": None,
        "actual_iterations": 20,
    }


def test_json_lists_a_device_for_each_process() -> None:
    content = {
        "version": 3,
        "args": ["./build/all_reduce_perf", "-g", "4"],
        "nccl_version": 22907,
        "config": {
            "nthreads": 1,
            "ngpus": 4,
            "devices": [
                {"rank": 0, "group": 0, "hostname": f"n{host}", "device_info": "NVIDIA H100"}
                for host in (0, 0, 1, 1)
            ],
        },
        "results": [result(1 << power, 1e-5 * power, 16) for power in (10, 20, 30)],
    }
    (test,) = read_json_log(Path("a.json"), json.dumps(content)).tests
    (case,) = cases_of([test], H100)
    assert (case.operation, case.ranks, case.nodes) == GROUP
    assert [row.placement for row in case.rows] == ["out-of-place"] * 3
    assert test.versions == {"NCCL": "2.29.7"}


def test_a_table_with_lines(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(
        "# a remark\ncollective,ranks,nodes,message_bytes,time_us\nall_reduce,8,1,1024,12\n"
        "all_reduce,8,1,1048576,40\nall_to_all,8,1,1048576,30\n"
    )
    cases = cases_of(read_logs([str(path)]).tests, H100)
    assert [case.operation for case in cases] == ["all_reduce", "all_to_all"]
    assert [row.line for row in cases[0].rows] == [3, 4]


@pytest.mark.parametrize(("text", "operation"), examples(__file__, "names_of_operations"))
def test_names_of_operations(text: str, operation: str) -> None:
    assert operation_of(text) == operation


# Faults: one clear line, with file and line.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a.log: is empty"),
        ("hello\nworld\n", "a.log, line 1: not a log of nccl-tests"),
        (header("all_reduce", 8, 1), "no rows below the headings"),
        (header("all_reduce", 8, 1)[:200], "a test begins and has no rows"),
        (TEXT.replace("    time", " cputime"), "times are the processor's"),
        (TEXT.replace("all_reduce_perf", "scatter_perf"), "times no operation that is modelled"),
        (TEXT.replace("Rank  1 Group", "Rank  0 Group"), "line 7: rank 0 is given twice"),
        (TEXT.replace("node1", "node0"), "have the same device of one host, node0"),
    ],
)
def test_what_is_no_log(text: str, said: str) -> None:
    with pytest.raises(InputError, match=r"^a\.log") as caught:
        placed(text)
    assert said in caught.value.faults[0]
    assert len(caught.value.faults) == 1


def test_ranks_have_to_be_those_of_the_rates() -> None:
    shorter = "".join(line for line in TEXT.splitlines(keepends=True) if "on     node1" not in line)
    with pytest.raises(InputError, match=r"a\.log, line \d+: busbw is 1.875.*16 ranks would have"):
        placed(shorter)


def test_unknown_ranks_are_a_fault_that_says_what_the_rates_imply() -> None:
    bare = "".join(line for line in TEXT.splitlines(keepends=True) if "Rank" not in line)
    with pytest.raises(InputError, match="give --ranks 16, which busbw by algbw implies"):
        placed(bare)
    case = placed(bare, ranks=16)
    assert (case.ranks, case.nodes) == (16, 2)
    assert "no hosts in the log" in case.notes[0]


def test_a_wrong_operation_is_told() -> None:
    bare = TEXT.replace("# Collective test starting: all_reduce_perf\n", "")
    with pytest.raises(InputError, match="neither the log nor its name says which operation"):
        placed(bare)
    with pytest.raises(InputError, match="which no number of ranks has; is it another operation"):
        placed(bare, operation="all_gather")
    with pytest.raises(InputError, match="the log is of all_reduce"):
        placed(TEXT, operation="all_gather")
    with pytest.raises(InputError, match="is not an operation"):
        check_operation("gossip")


def test_rates_of_other_sizes_are_told() -> None:
    rows = "".join(row_text("all_reduce", 16, 2.0 * n * 2**20, n * 1e-4) for n in range(1, 6))
    wrong = rows.replace(f"{2 * 2**20:12d}", f"{2**20:12d}").replace(
        f"{4 * 2**20:12d}", f"{3 * 2**20:12d}"
    )
    case = placed(header(*GROUP) + wrong)
    assert len(case.rows) == 6
    assert "algbw isn't size by time" in case.notes[0]


def test_another_gpu_is_noted() -> None:
    text = TEXT.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
    assert placed(text).stranger == "NVIDIA A100-SXM4-80GB"
    assert not placed(TEXT).stranger


def test_a_rack_is_one_node() -> None:
    text = log_text(timed([("all_reduce", 16, 4)], {}), ("all_reduce", 16, 4))
    text = text.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB200")
    (case,) = cases_of([read(text)], load_hardware("gb200-nvl72"))
    assert case.nodes == 1
    assert "4 hosts taken for one node" in case.notes[0]


@pytest.mark.parametrize(("line", "forced"), examples(__file__, "settings"))
def test_settings_in_a_log_leave_algorithms(line: str, forced: str) -> None:
    assert placed(f"{line}\n{TEXT}").forced == forced


GATHER = log_text(timed([("all_gather", 8, 1)], {}), ("all_gather", 8, 1))


@pytest.mark.parametrize(
    ("setting", "unknown", "short", "note"),
    examples(__file__, "unknown"),
)
def test_what_nothing_is_known_of(setting: str, unknown: str, short: str, note: str) -> None:
    case = placed(f"{setting}\n{GATHER}")
    assert case.unknown.startswith(unknown)
    assert case.short_unknown.startswith(short)
    assert (bool(case.unknown), bool(case.short_unknown)) == (bool(unknown), bool(short))
    assert any(note in one for one in (*case.notes, ""))


def test_no_algorithm_is_left(tmp_path: Path) -> None:
    """PAT is of all_gather and reduce_scatter: an all_reduce has no algorithm then."""
    case = placed(f"NCCL_ALGO=PAT\n{TEXT}")
    assert (case.unknown, case.forced) == ("", "")
    assert any("leaves all_reduce no algorithm" in note for note in case.notes)


def test_json_behind_a_remark_and_lines_without_end(tmp_path: Path) -> None:
    """Half a megabyte in one line is another program's, or JSON; it is searched once."""
    whole = json.dumps({"results": [], "more": "all_reduce" * 50_000})
    path = tmp_path / "a.json"
    path.write_text(f"# by hand\n{whole}\n")
    with pytest.raises(InputError, match="'results' holds no times"):
        read_logs([str(path)])
    path.write_text(f"# by hand\nx {whole}\n{TEXT}")
    (test,) = read_logs([str(path)]).tests
    assert len(test.rows) == len(read(TEXT).rows)


def test_a_table_may_name_fabric_cards_and_algorithm(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "collective,ranks,nodes,message_bytes,time_us,algorithm,fabric,inter_bandwidth_GB/s\n"
        "all_reduce,16,2,1024,90,ring_path,efa,50\n"
    )
    (test,) = read_logs([str(path)]).tests
    assert (test.forced, test.fabric, test.card) == ("ring", "efa", 50e9)
