"""``sweeps trace``: report, records, file and figures."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from sweeps.store.netcdf import open_dataset
from tests.cli_runner import Runner
from tests.traces.make import GEMM, NCCL, kernel, launched, step, write

FOLDER = Path(__file__).parents[1] / "data" / "traces"
TWO = f"{FOLDER / 'sampled_rank-0.json.gz'} {FOLDER / 'sampled_rank-1.json.gz'}"


def texts(path: Path) -> str:
    matches = re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"), re.DOTALL)
    return "\n".join(unescape(text) for text in matches)


@pytest.mark.thorough
def test_report(cli: Runner) -> None:
    result = cli(f"trace {TWO} --show all").out
    for words in (
        "sampled_rank-0.json.gz: 15 % of communication overlapped, 337 ms exposed (28 % of ",
        "  rank 0 of 128, 1,204 GPU kernels on 5 streams",
        "15 % of communication, 28 % of the shorter (compute)",
        "20 % of communication",
        "Note: 2 of 128 ranks",
        "4 of 10",
        "Exposed because",
        "86 %  waits for data: what comes next needs its result",
    ):
        assert words in result
    assert re.search(r"exposed +337 ms", result)
    assert re.search(r"\n +551 +600\.1 ms", result)


@pytest.mark.thorough
def test_the_answer_stands_first(cli: Runner, tmp_path: Path) -> None:
    result = " ".join(cli(f"trace {TWO}").out.split())
    assert result.startswith("Most exposed communication: rank 0 of 2 traces, 337 ms of 1.223 s")
    alone = write(tmp_path / "t.json", [kernel(GEMM, 0, 6), kernel(GEMM, 8, 2)])
    result = cli(f"trace {alone}").out
    assert result.startswith("t.json: compute takes 80 % of 10 µs, no communication (measured)\n")
    assert "  2 GPU kernels on 1 stream" in result


def test_report_by_holistic_trace_analysis(cli: Runner) -> None:
    result = cli(f"trace {TWO} --mode hta").out
    assert "by HolisticTraceAnalysis' definitions" in result
    assert "12 %" in result
    assert "20 %" in result
    assert "what the last step launched is left out" in result
    result = cli(f"trace {TWO} --mode hta --include-last-step").out
    assert "15 %" in result
    assert "left out" not in result


def test_names_by_class(cli: Runner) -> None:
    result = cli(f"trace {FOLDER / 'nccl_data.json.gz'} --show rows").out
    assert "communication: 2 names, 46.88 ms" in result
    assert "ncclKernel_AllReduce_RING_LL_Sum_float" in result
    assert re.search(r"gemm: \d+ names, 19\.65 ms", result)


@pytest.mark.thorough
def test_records(cli: Runner) -> None:
    records = cli(f"trace {TWO} --json").records
    rows = cli(f"trace {TWO} --csv").rows
    assert len(records) == len(rows) == 2 * (1 + 2 + 2 + 5)
    first = records[0]
    assert (first["rank"], first["step"], first["stream"]) == (0, "all", "all")
    assert first["communication_s"] == 0.396199
    assert first["exposed_communication_s"] == 0.336983
    assert first["overlap_of_communication"] == pytest.approx(0.14946, abs=1e-6)
    assert first["matched_collectives"] == 4
    # Why it is exposed: these sum to all that is, and say what to change.
    reasons = [
        record for record in records[1:] if record["rank"] == 0 and record["reason"] != "all"
    ]
    assert {reason["reason"] for reason in reasons} == {"waits for data", "host bound"}
    assert sum(reason["exposed_communication_s"] for reason in reasons) == pytest.approx(0.336983)
    assert "SendRecv" in reasons[0]["collective"]
    assert reasons[0]["exposed_collectives"] == 10
    assert "cut both in pieces" in reasons[0]["change"]
    assert records[3]["step"] == 551
    assert (records[3]["matched_collectives"], records[3]["reason"]) == (None, "all")
    assert float(rows[0]["communication_s"]) == 0.396199
    assert rows[0]["host_s"] == ""
    # Records in JSON have a version that a table has not.
    assert {tuple(record) for record in records} == {("schema_version", *rows[0])}
    (only,) = cli(f"trace {FOLDER / 'triton_example.json.gz'} --json --mode hta").records
    assert only["overlap_of_communication"] is None


@pytest.mark.thorough
def test_file_and_figures(cli: Runner, tmp_path: Path) -> None:
    done = cli(f"trace {TWO} --output t.nc --plot")
    assert "wrote t.nc" in done.out
    made = sorted(path.name for path in tmp_path.iterdir())
    names = ("classes", "exposed", "timeline")
    assert made == [f"t-{name}.{kind}" for name in names for kind in ("png", "svg")] + ["t.nc"]
    with open_dataset(tmp_path / "t.nc") as dataset:
        assert dataset["overlap_of_communication"].values == pytest.approx(
            [0.149460, 0.199260], abs=1e-6
        )
    result = texts(tmp_path / "t-classes.svg")
    for words in ("What the time of each rank went into", "rank 1", "14.9 % hidden", "Idle"):
        assert words in result
    result = texts(tmp_path / "t-exposed.svg")
    for words in ("Why communication is exposed, by rank", "Waits for data", "27.6 % of its time"):
        assert words in result
    result = texts(tmp_path / "t-timeline.svg")
    for words in ("2 traces · step 552", "rank 0 · stream 84", "Communication, exposed"):
        assert words in result
    # The same again is no work; something else needs leave.
    assert "t.nc is complete already" in cli(f"trace {TWO} --output t.nc").out
    refused = cli(f"trace {TWO} --output t.nc --mode hta", fine=False)
    assert refused.code == 2
    assert "exists already; --overwrite replaces it" in refused.err
    assert "wrote t.nc" in cli(f"trace {TWO} --output t.nc --mode hta --overwrite").out
    quiet = cli(f"trace {TWO} --output other.nc --json", fine=False)
    assert quiet.code == 0
    assert "wrote other.nc" in quiet.err
    assert len(quiet.records) == 20


@pytest.mark.thorough
def test_figures_of_one_trace(cli: Runner, tmp_path: Path) -> None:
    events = [step(k, 100 * k, 100) for k in range(3)]
    for k in range(3):
        events += launched(GEMM, 100 * k + 1, 100 * k + 10, 50, 7, 2 * k)
        events += launched(NCCL, 100 * k + 2, 100 * k + 40, 40, 20, 2 * k + 1)
    write(tmp_path / "one.json", events)
    done = cli("trace one.json --plot")
    assert "drew outputs/trace-timeline.png" in done.out
    result = texts(tmp_path / "outputs" / "trace-classes.svg")
    assert "What the time of each step went into" in result
    assert "50 % hidden" in result
    result = texts(tmp_path / "outputs" / "trace-timeline.svg")
    assert "one.json · step 1" in result
    assert "Communication, overlapped" in result
    result = texts(tmp_path / "outputs" / "trace-exposed.svg")
    assert "Why communication is exposed, by collective" in result
    cli("trace one.json --plot --overwrite --window 90us:95us")
    result = texts(tmp_path / "outputs" / "trace-timeline.svg")
    assert "from 90 µs to 95 µs" in result
    assert "Nothing runs in this time." in result


@pytest.mark.thorough
def test_figures_by_holistic_trace_analysis(cli: Runner, tmp_path: Path) -> None:
    cli(f"trace {TWO} --mode hta --output h.nc --plot")
    result = texts(tmp_path / "h-classes.svg")
    assert "No computation" in result
    assert "11.8 % hidden" in result


@pytest.mark.thorough
def test_clocks_that_differ(cli: Runner, tmp_path: Path) -> None:
    for rank, zero in ((0, 0), (1, 10**9)):
        rows = [kernel(GEMM, zero, 30), kernel(NCCL, zero + 20, 30, 20)]
        write(tmp_path / f"{rank}.json", rows, distributedInfo={"rank": rank})
    cli("trace 0.json 1.json --output c.nc --plot")
    result = texts(tmp_path / "c-timeline.svg")
    assert "The ranks' clocks differ" in result
    assert "rank 1 · stream 20" in result


def test_own_patterns(cli: Runner, tmp_path: Path) -> None:
    write(tmp_path / "t.json", [kernel("my_ring_step", 0, 10), kernel(GEMM, 0, 10)])
    (tmp_path / "own.toml").write_text('[[rules]]\nclass = "communication"\nnames = ["my_ring"]\n')
    before = cli("trace t.json --json").records[0]
    after = cli("trace t.json --patterns own.toml --json").records[0]
    assert (before["communication_s"], after["communication_s"]) == (0.0, 1e-05)
    assert after["overlap_of_communication"] == 1.0
