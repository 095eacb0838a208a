"""The command line as people and programs use it: what it prints."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import sweeps
from overhead import CollectiveResult, build_topology, collective
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.graph import ANYWHERE, Builder, key_of
from overhead.labels import COLLECTIVES
from tests.cli_runner import Runner
from tests.tables import examples

# One cell: a report for a person.


@pytest.mark.parametrize(
    ("line", "steps", "volume"), examples(__file__, "the_commands_of_the_first_seed")
)
def test_the_commands_of_the_first_seed(
    cli: Runner, line: str, steps: str | None, volume: str | None
) -> None:
    result = cli(f"collective {line}")
    found = {
        row[:26].strip(): row[26:].strip()
        for row in result.out.splitlines()
        if row.startswith("  ")
    }
    assert result.out.startswith("all_reduce of ")
    assert steps in (None, found["steps"])
    assert volume in (None, found["bytes sent per rank"])
    assert "\nDefaults: " in result.out
    verbose = cli(f"collective {line} --verbose").out
    assert "  source  " in verbose
    assert "  time = " in verbose


def test_a_report_tells_each_quantity_with_its_unit(cli: Runner) -> None:
    out = cli(
        "collective --topology ring --N 8 --M 1GB --bandwidth 100GB/s --latency 1us --hops 1"
    ).out
    assert "  time                      17.51 ms" in out
    assert "  latency part            14 µs" in out
    assert "  bandwidth part          17.5 ms" in out
    assert "  algbw                     57.1" in out
    assert "latency = " not in out.split("Defaults")[1]  # what is given isn't told as assumed
    assert "hardware" not in out
    assert "on a bare ring network, algorithm ring: no machine, no library" in out


def test_verbose_puts_the_numbers_in(cli: Runner) -> None:
    out = cli(
        "collective --topology ring --N 8 --M 1e9 --bandwidth 1e11 --latency 1e-6 --verbose"
    ).out
    (statement,) = re.findall(r"\n  time = (.*)\n", out)
    put_in, result = re.search(r"\n  time = .*\n    = (.*)\n    = (.*)\n", out).groups()  # type: ignore[union-attr]
    assert "ranks" in statement
    assert put_in == "2*(8 - 1)*1 µs + 2*(8 - 1)/8*1 GB/(100 GB/s)"
    assert result == "14 µs + 17.5 ms"
    assert "\n    = 17.51 ms\n" in out
    bound = out.split("lower bound: no algorithm is faster on these links")[1]
    assert "\n  lower_bound = maximum(latency_bound, bandwidth_bound)\n" in bound
    assert "time as asked for" not in out
    assert "Patarasuk" in out
    assert "  assumes " in out


def test_parts_of_phases_in_a_pipeline_add_up(cli: Runner) -> None:
    """Eight chunks' phases on x and one chunk's on y: 8 x 30 + 30 us of latency."""
    answer = cli(
        "collective --topology torus --mesh-nx 4 --mesh-ny 4 --N 16 --M 1MiB --bandwidth 50GB/s"
        " --latency 5us --phase-chunks 8 --verbose"
    ).out
    assert "  time                      302.4 µs\n" in answer
    assert "\n    latency part            270 µs\n" in answer
    assert "    bandwidth part          32.44 µs\n" in answer
    assert "  phases hidden behind it   216.9 µs\n" in answer
    assert "dimension_1_latency_count*latency + " in answer
    assert "\n    = 270 µs  [" in answer


def test_a_time_that_is_an_upper_bound_says_so_wherever_it_is_shown(
    cli: Runner, tmp_path: Path
) -> None:
    """The double tree's loads aren't known of few chunks where ranks are no power of two."""
    base = "collective --topology switch --M 64KiB --software none"
    assert (
        "  time                      30.2 µs  (an upper bound)\n"
        in cli(f"{base} --N 12 --algorithm dbt").out
    )
    for exact in ("--N 16 --algorithm dbt", "--N 12 --algorithm ring", "--N 12 --algorithm all"):
        assert "(an upper bound)" not in cli(f"{base} {exact}").out
    many = f"{base} --N 12,16 --algorithm dbt,ring"
    rows = json.loads(cli(f"{many} --json").out)
    assert [row["time_is_upper_bound"] for row in rows] == [1.0, 0.0, 0.0, 0.0]
    head, *lines = cli(f"{many} --csv").out.splitlines()
    assert head.endswith(",time_is_upper_bound")
    assert [line.rpartition(",")[2] for line in lines] == ["1.0", "0.0", "0.0", "0.0"]
    two = base.replace("--topology switch", "--topology ring,switch")
    holes = cli(f"{two} --N 12 --algorithm dbt --json").out
    assert [row["time_is_upper_bound"] for row in json.loads(holes)] == [None, 1.0]
    assert "time_is_upper_bound" not in cli(f"{base} --N 12,16 --csv").out
    cli(f"{many} --output {tmp_path}/x.nc")
    with sweeps.open(tmp_path / "x.nc") as stored:
        answer = stored["time"].attrs["upper_bound"]
    assert answer.startswith("dbt: exact where (ranks <= 4) | ")
    assert answer.endswith("; elsewhere an upper bound")


def test_what_reductions_cost_is_a_part_of_its_own(cli: Runner) -> None:
    answer = cli(
        "collective --topology ring --N 8 --M 1GB --bandwidth 100GB/s --latency 1us"
        " --reduction-cost 1e-12"
    )
    assert "  time                      18.39 ms\n" in answer.out
    assert "\n    latency part            14 µs\n" in answer.out
    assert "    bandwidth part          17.5 ms\n    reduction part          875 µs\n" in answer.out


@pytest.mark.parametrize(("more", "statement"), examples(__file__, "time_differs"))
def test_verbose_says_how_the_time_differs_from_the_statement(
    cli: Runner, more: str, statement: str
) -> None:
    out = cli(f"collective --M 1e9 --verbose {more}").out
    before, _, after = out.partition("  time as asked for, from named constants up\n")
    assert statement in after
    answer = re.search(r"\n  time +(.*)\n", before).group(1)  # type: ignore[union-attr]
    results = re.findall(r"\n  time = .*\n    = .*\n    = (.*?)  \[", after)
    assert results == [answer]


@pytest.mark.thorough_cases("torus")
@pytest.mark.parametrize(
    ("topology", "collective_name"),
    [
        ("torus", "all_reduce"),
        ("switch", "all_to_all"),
        ("hierarchical", "broadcast"),
        ("mesh", "p2p"),
    ],
)
def test_every_algorithm_can_be_told_verbosely(
    cli: Runner, topology: str, collective_name: str
) -> None:
    for algorithm in ALGORITHMS.of(topology, collective_name):
        line = f"--topology {topology} --op {collective_name} --algorithm {algorithm.name}"
        result = cli(f"collective {line} --N 16 --M 1MiB --verbose", fine=False)
        assert result.code in (0, 2)
        if result.code == 0:
            assert ".".join(algorithm.key) in result.out
        else:
            assert "must" in result.err


def test_flags_that_mean_the_same(cli: Runner) -> None:
    outputs = {
        cli(f"collective --topology ring {n} 8 {m} 1e6 --json").out
        for n in ("--N", "--ranks", "--num-gpus", "--gpus")
        for m in ("--M", "--message-bytes")
    }
    outputs.add(cli("collective --topology ring --N 8 --M 1MB --op all_reduce --json").out)
    outputs.add(cli("collective --topology ring --N 8 --M 1MB --collective all_reduce --json").out)
    assert len(outputs) == 1


@pytest.mark.thorough
def test_each_flag_changes_what_it_says(cli: Runner) -> None:
    def time(line: str) -> float:
        (record,) = cli(f"collective --N 64 --M 1e6 --json {line}").records
        return float(record["latency_s"])

    flat, levels = "--topology ring ", "--topology hierarchical "
    assert time(flat + "--bandwidth 1e9") > time(flat + "--bandwidth 1e10")
    assert time(flat + "--latency 1us") < time(flat + "--latency 2us")
    assert time(flat + "--link intra") < time(flat + "--link inter") == time(flat)
    assert time(flat + "--hardware dgx-a100") != time(flat)
    assert time(levels + "--gpus-per-node 4") != time(levels)
    assert time(levels + "--nics-per-node 1") > time(levels + "--nics-per-node 8") == time(levels)
    shared = levels + "--oversubscription 4 --leaf-nodes "
    assert time(shared + "1") > time(shared + "2") > time(levels) == time(shared + "8")
    assert time(levels + "--intra-bandwidth 1e9") > time(levels)
    assert time(levels + "--intra-latency 1ms") > time(levels)
    assert time(levels + "--inter-bandwidth 1e9") > time(levels)
    assert time(levels + "--inter-latency 1ms") > time(levels)
    pods = levels + "--nodes-per-pod 2 "
    assert time(pods + "--pod-bandwidth 1e9") > time(pods)
    bare = pods + "--software none "
    assert time(bare + "--pod-latency 1ms") > time(bare)
    assert time(pods + "--pod-oversubscription 8") > time(pods)
    assert time("--topology torus --mesh-dimensions 3") < time("--topology torus")
    assert time("--topology torus --mesh-nx 32") != time("--topology torus")
    assert time("--topology ring --reduction-cost 1e-9") > time("--topology ring")
    piped = "--topology ring --algorithm tree_pipe "
    assert time(piped + "--chunks 1") > time(piped)
    assert time("--op p2p --topology ring --hops 5") > time("--op p2p --topology ring")
    shift = "--op all_to_all --topology torus "
    assert time(shift + "--latency-per message") < time(shift + "--latency-per hop") == time(shift)
    assert time("--topology switch --algorithm auto") <= time("--topology switch --algorithm nccl")


# Many cells: a table, and records for programs.


def test_several_values_make_a_table(cli: Runner) -> None:
    result = cli("collective --topology ring,torus --N 8,16 --M 1KiB,1MiB")
    ends, winner, _, head, *rows = result.out.split("\n\nDefaults")[0].splitlines()
    assert ends.startswith("from ")
    assert winner.startswith("shortest time by topology: ")
    assert head.split()[:3] == ["topology", "ranks", "message"]
    assert "time (µs)" in head
    assert len(rows) == 8
    assert rows[0].split()[:4] == ["ring", "8", "1", "KiB"]
    assert len({len(row) for row in rows}) == 1


LONG = "collective --topology ring --N 2:101:+1 --M 1KiB"


def test_a_long_table_says_how_much_is_left(cli: Runner) -> None:
    result = cli(LONG)
    assert "\n  76 more rows: --show rows, or --csv\n" in result.out
    assert cli(f"{LONG} --show rows").out.count("\n101 ") == 1


def test_holes_are_told_with_their_reason(cli: Runner) -> None:
    line = "collective --topology hierarchical --gpus-per-node 4 --N 8,10 --M 1e6 --software none"
    _, _, _, eight, ten = cli(line).out.splitlines()[:5]
    assert "ring_ring" in eight
    why = "ranks_not_multiple_of_gpus_per_node"
    assert ten.split() == ["10", *["-"] * 3, "none", why]
    assert re.search(rf"\n10 +- +{why}  ", cli(f"{line} --show rows").out)
    first, second = cli(line + " --json").records
    assert first["status"] == "ok"
    assert second["status"] == "ranks_not_multiple_of_gpus_per_node"
    assert second["latency_s"] is None
    assert second["algorithm"] == "none"
    rows = cli(line + " --csv").rows
    assert rows[1]["latency_s"] == ""
    assert rows[1]["algorithm"] == "none"


def test_records_have_the_names_of_the_python_result(cli: Runner) -> None:
    line = "collective --topology ring,switch --N 8,16 --M 1e3,1e9 --bandwidth 1e11 --latency 1e-6"
    line += " --energy-per-bit '5 pJ/bit'"
    records = cli(line + " --json").records
    assert len(records) == 8
    answer = {field.name for field in fields(CollectiveResult)} - {"algbw", "busbw"}
    assert answer <= set(records[0])
    for record in records:
        network = build_topology(record["topology"], record["ranks"], bandwidth=1e11, latency=1e-6)
        result = collective("all_reduce", record["message_bytes"], network)
        for name in answer - {"algorithm", "energy_j", "intra_latency_s", "inter_latency_s"}:
            assert record[name] == float(getattr(result, name)), name
        assert record["algorithm"] == str(result.algorithm)
        assert record["algbw_bytes_per_s"] == float(result.algbw)
        assert record["busbw_bytes_per_s"] == float(result.busbw)
    rows = cli(line + " --csv").rows
    assert len(rows) == 8
    for row, record in zip(rows, records, strict=True):
        assert record.pop("schema_version") == 1
        assert set(row) == set(record)
        for name, value in record.items():
            assert row[name] == value if isinstance(value, str) else float(row[name]) == value


def test_records_of_what_is_infinite_are_json(cli: Runner) -> None:
    def refuse(text: str) -> float:
        pytest.fail(f"{text} is no JSON")

    out = cli("collective --topology ring --N 1,8 --M 1e6 --bandwidth inf --latency 0 --json").out
    one, eight = json.loads(out, parse_constant=refuse)
    assert one["latency_s"] == 0.0
    assert one["algbw_bytes_per_s"] is None
    assert eight["algbw_bytes_per_s"] == float("inf")
    assert eight["lower_bound_ratio"] is None


@pytest.mark.parametrize(("text", "values"), examples(__file__, "ranges_of_ranks"))
def test_ranges_of_ranks(cli: Runner, text: str, values: list[float]) -> None:
    rows = cli(f"collective --topology ring --M 1e6 --csv --N '{text}'").rows
    assert [float(row["ranks"]) for row in rows] == values


@pytest.mark.parametrize(
    ("flag", "name", "text", "values"),
    [
        ("--M", "message_bytes", "64MiB", [2.0**26]),
        ("--M", "message_bytes", "140e9,1024", [1024, 140e9]),
        ("--M", "message_bytes", "0:100:+50", [0, 50, 100]),
        ("--M", "message_bytes", "1e3:1e9:log3", [1e3, 1e6, 1e9]),
        ("--M", "message_bytes", "1 kB:8 kB:x2", [1e3, 2e3, 4e3, 8e3]),
        ("--bandwidth", "bandwidth", "400Gbit/s,400GB/s", [50e9, 400e9]),
        ("--bandwidth", "bandwidth", "400Gb/s", [50e9]),
        ("--bandwidth", "bandwidth", "18*25e9,inf", [450e9, float("inf")]),
        ("--latency", "latency", "0,2us,1e-3", None),
        ("--latency", "latency", "0,2us,1ms", [0, 2e-6, 1e-3]),
        ("--latency", "latency", "0:1e-6:+5e-7", [0, 5e-7, 1e-6]),
        ("--energy-per-bit", "energy_per_bit", "5pJ/bit,1e-12", None),
        ("--energy-per-bit", "energy_per_bit", "5 pJ/bit, 10 pJ/bit", [5e-12, 1e-11]),
        ("--reduction-cost", "reduction_cost", "0,1e-12", [0, 1e-12]),
    ],
)
def test_values_with_units(
    cli: Runner, flag: str, name: str, text: str, values: list[float] | None
) -> None:
    base = "collective --topology ring,switch --N 8 --json" + (" --M 1MB" if flag != "--M" else "")
    result = cli(base, flag, text, fine=False)
    if values is None:
        # A bare number beside values with units is a slip.
        assert result.code == 2
        assert "has no unit beside values that have one" in result.err
        return
    assert (result.code, result.err) == (0, "")
    half = result.records[: len(values)]
    if len(values) > 1:
        assert [record[name] for record in half] == values
    else:
        (record,) = cli(base.replace("ring,switch", "ring"), flag, text).records
        alone = sweeps.sweep(
            "time", topology="ring", ranks=8, **({"message_bytes": 1e6} | {name: values[0]})
        )
        assert record["latency_s"] == alone["time"].item()


def test_every_operation_network_and_algorithm(cli: Runner) -> None:
    rows = cli("collective --op all --topology all --N 8 --M 64MiB --csv").rows
    assert {row["collective"] for row in rows} == set(COLLECTIVES)
    assert len(rows) == len(COLLECTIVES) * len(NETWORKS)
    # A network may lack operations, or be of some sizes alone.
    usual = [row for row in rows if row["collective"] in NETWORKS[row["topology"]].standard]
    assert {r["status"] for r in usual if not NETWORKS[r["topology"]].requires} == {"ok"}
    rows = cli("collective --topology switch --algorithm all --N 8 --M 1MiB --csv").rows
    assert {row["algorithm"] for row in rows} <= {"none", *(row["algorithm"] for row in rows)}
    assert len(rows) == len(ALGORITHMS.of("switch", "all_reduce"))


# One cell, evaluated once.


@pytest.mark.parametrize(
    "line",
    [
        "collective --topology switch --algorithm auto --N 8 --M 1MiB --verbose",
        "overlap --compute 50ms --comm 10ms --efficiency 0.8 --verbose",
        "analysis --model llama3-8b --gpus 64 --tp 8 --global-batch 64 --seq-len 8192",
    ],
)
def test_a_cell_is_evaluated_once_for_the_terminal_and_the_file(
    cli: Runner, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    ran: Counter[int] = Counter()
    intern = Builder.intern

    def counting(self: Builder, name: str, what: Any, inputs: Any, run: Any, *more: Any) -> Any:
        key = key_of(what, inputs)

        def counted(*values: Any) -> Any:
            ran[key] += 1
            return run(*values)

        on_the_grid = self.space is not ANYWHERE
        return intern(self, name, what, inputs, counted if on_the_grid else run, *more)

    monkeypatch.setattr(Builder, "intern", counting)
    cli(f"{line} --output x.nc")
    assert len(ran) > 10
    assert set(ran.values()) == {1}
