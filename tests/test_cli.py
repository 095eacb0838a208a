"""The command line as people and programs use it: what it prints, writes and returns."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import sweeps
from overhead import CollectiveResult, build_topology, collective
from overhead.collectives import ALGORITHMS, COLLECTIVES
from sweeps.cli import COMMANDS, run
from sweeps.cli.suggestions import COMMANDS as SUGGESTED

ROOT = Path(__file__).parents[1]
SPEC = """
title = "Mine"
[axes]
topology = ["ring", "torus"]
ranks = "2:16:x2"
message_bytes = "1KiB:1GiB:log5"
[[figures]]
kind = "curves"
name = "latency"
lines = ["topology"]
at = { ranks = 16 }
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))

    @property
    def records(self) -> list[dict[str, Any]]:
        return json.loads(self.out)  # type: ignore[no-any-return]


class Runner:
    """Runs commands in this process, in a folder of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, line: str, *more: str, fine: bool = True) -> Done:
        self.capsys.readouterr()
        code = run([*shlex.split(line), *more])
        told = self.capsys.readouterr()
        if fine:
            assert code == 0, told.err
            assert told.err == ""
        return Done(code, told.out, told.err)


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Runner:
    monkeypatch.chdir(tmp_path)
    return Runner(capsys)


def started(*args: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "sweeps", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


# One cell: a report for a person.


@pytest.mark.parametrize(
    ("line", "steps", "volume"),
    [
        ("--topology ring --N 8 --M 140e9", "14", "245 GB"),
        ("--topology tree --N 8 --M 140e9", None, "280 GB"),
        ("--topology tree --N 8 --M 140e9 --tree-algo", None, "280 GB"),
        ("--topology hierarchical --N 8 --gpus-per-node 4 --M 140e9", "8", "245 GB"),
        ("--topology switch --N 8 --M 140e9", "14", "245 GB"),
        ("--topology mesh --N 16 --mesh-nx 4 --mesh-ny 4 --M 140e9", None, None),
        ("--topology torus --N 16 --mesh-nx 4 --mesh-ny 4 --M 140e9", "12", "262.5 GB"),
        ("--topology torus --mesh-nx 4 --mesh-ny 4 --mesh-nz 4 --M 1GiB", "18", None),
    ],
)
def test_the_commands_of_the_first_seed(
    cli: Runner, line: str, steps: str | None, volume: str | None
) -> None:
    done = cli(f"collective {line}")
    found = {
        row[:26].strip(): row[26:].strip() for row in done.out.splitlines() if row.startswith("  ")
    }
    assert done.out.startswith("all_reduce of ")
    assert steps in (None, found["steps"])
    assert volume in (None, found["most bytes a rank sends"])
    assert "not given, so taken as" in done.out
    verbose = cli(f"collective {line} --verbose").out
    assert "  source  " in verbose
    assert "  time = " in verbose


def test_a_report_tells_each_quantity_with_its_unit(cli: Runner) -> None:
    out = cli(
        "collective --topology ring --N 8 --M 1GB --bandwidth 100GB/s --latency 1us --hops 1"
    ).out
    assert "  time                      17.51 ms" in out
    assert "  latency part            14 us" in out
    assert "  bandwidth part          17.5 ms" in out
    assert "  algbw                     57.1" in out
    assert "latency = " not in out.split("not given")[1]  # what is given isn't told as assumed
    assert "hardware" in out


def test_verbose_puts_the_numbers_in(cli: Runner) -> None:
    out = cli(
        "collective --topology ring --N 8 --M 1e9 --bandwidth 1e11 --latency 1e-6 --verbose"
    ).out
    (statement,) = re.findall(r"\n  time = (.*)\n", out)
    put_in, result = re.search(r"\n  time = .*\n    = (.*)\n    = (.*)\n", out).groups()  # type: ignore[union-attr]
    assert "ranks" in statement
    assert not re.search(r"[a-z]{3}", put_in)
    assert eval(put_in) == pytest.approx(14 * 1e-6 + 1.75e9 / 1e11)
    assert result == "17.51 ms"
    assert "which becomes" not in out
    assert "Patarasuk" in out
    assert "  assumes " in out


@pytest.mark.parametrize(
    ("more", "statement"),
    [
        ("--reduction-cost 1e-12", "time = latency_time + bandwidth_time + reduction_time"),
        (
            "--op all_to_all --topology torus --N 64 --latency-per message",
            "time = latency_time + bandwidth_time",
        ),
        ("--topology torus --N 16 --phase-chunks 4", "time = "),
    ],
)
def test_verbose_says_how_the_time_differs_from_the_statement(
    cli: Runner, more: str, statement: str
) -> None:
    base = "collective --topology ring --N 9 --M 1e9 --verbose "
    out = cli(base + more).out
    before, _, after = out.partition("  which becomes, as asked for,\n")
    assert statement in after
    told = re.search(r"\n  time +(.*)\n", before).group(1)  # type: ignore[union-attr]
    assert after.splitlines()[2].strip() == f"= {told}"


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
        done = cli(f"collective {line} --N 16 --M 1MiB --verbose", fine=False)
        assert done.code in (0, 2)
        if done.code == 0:
            assert ".".join(algorithm.key) in done.out
        else:
            assert "must" in done.err


def test_flags_that_mean_the_same(cli: Runner) -> None:
    outputs = {
        cli(f"collective --topology ring {n} 8 {m} 1e6 --json").out
        for n in ("--N", "--ranks", "--num-gpus", "--gpus")
        for m in ("--M", "--message-bytes")
    }
    outputs.add(cli("collective --topology ring --N 8 --M 1MB --op all_reduce --json").out)
    outputs.add(cli("collective --topology ring --N 8 --M 1MB --collective all_reduce --json").out)
    assert len(outputs) == 1


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
    assert time(levels + "--oversubscription 4") > time(levels)
    assert time(levels + "--intra-bandwidth 1e9") > time(levels)
    assert time(levels + "--intra-latency 1ms") > time(levels)
    assert time(levels + "--inter-bandwidth 1e9") > time(levels)
    assert time(levels + "--inter-latency 1ms") > time(levels)
    pods = levels + "--nodes-per-pod 2 "
    assert time(pods + "--pod-bandwidth 1e9") > time(pods)
    assert time(pods + "--pod-latency 1ms") > time(pods)
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
    done = cli("collective --topology ring,torus --N 8,16 --M 1KiB,1MiB")
    head, *rows = done.out.split("not given")[0].splitlines()
    assert head.split()[:3] == ["topology", "ranks", "message_bytes"]
    assert len(rows) == 8
    assert rows[0].split()[:4] == ["ring", "8", "1", "KiB"]
    assert len({row.index(" us") for row in rows if " us" in row}) <= 3


def test_a_long_table_says_how_much_is_left(cli: Runner) -> None:
    done = cli("collective --topology ring --N 2:101:+1 --M 1KiB")
    assert "... and 60 more: --csv, --json or --output give them all" in done.out


def test_holes_are_told_with_their_reason(cli: Runner) -> None:
    line = "collective --topology hierarchical --gpus-per-node 4 --N 8,10 --M 1e6"
    _, eight, ten = cli(line).out.splitlines()[:3]
    assert "ring_ring" in eight
    assert ten.split() == ["10", *["-"] * 6, "none", "ranks_not_multiple_of_gpus_per_node"]
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
    records = cli(line + " --json").records
    assert len(records) == 8
    told = {field.name for field in fields(CollectiveResult)} - {"algbw", "busbw"}
    assert told <= set(records[0])
    for record in records:
        network = build_topology(record["topology"], record["ranks"], bandwidth=1e11, latency=1e-6)
        result = collective("all_reduce", record["message_bytes"], network)
        for name in told - {"algorithm", "energy_j", "intra_latency_s", "inter_latency_s"}:
            assert record[name] == float(getattr(result, name)), name
        assert record["algorithm"] == str(result.algorithm)
        assert record["algbw_bytes_per_s"] == float(result.algbw)
        assert record["busbw_bytes_per_s"] == float(result.busbw)
    rows = cli(line + " --csv").rows
    assert len(rows) == 8
    for row, record in zip(rows, records, strict=True):
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


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8,16,32", [8, 16, 32]),
        ("32,8, 16", [8, 16, 32]),
        ("2:16:x2", [2, 4, 8, 16]),
        ("2:8:+2", [2, 4, 6, 8]),
        ("1:5:lin3", [1, 3, 5]),
        ("1:100:log3", [1, 10, 100]),
        ("2,4:8:+4,1e2", [2, 4, 8, 100]),
    ],
)
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
    done = cli(base, flag, text, fine=False)
    if values is None:
        # A bare number beside values with units is a slip.
        assert done.code == 2
        assert "has no unit beside values that have one" in done.err
        return
    assert (done.code, done.err) == (0, "")
    half = done.records[: len(values)]
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
    assert len(rows) == 7 * 6
    assert {row["status"] for row in rows} == {"ok"}
    rows = cli("collective --topology switch --algorithm all --N 8 --M 1MiB --csv").rows
    assert {row["algorithm"] for row in rows} <= {"none", *(row["algorithm"] for row in rows)}
    assert len(rows) == len(ALGORITHMS.of("switch", "all_reduce"))


# Files.


def test_output_is_written_and_the_table_printed(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring,torus --N 4,16 --M 1KiB:1GiB:log4 --output x.nc"
    done = cli(line)
    assert "wrote x.nc (" in done.out
    assert "topology  ranks" in done.out.replace("message_bytes  ", "")
    with sweeps.open(tmp_path / "x.nc") as dataset:
        assert dict(dataset.sizes) == {"topology": 2, "ranks": 2, "message_bytes": 4}
        expected = sweeps.sweep(
            "time", topology=["ring", "torus"], ranks=[4, 16], message_bytes="1KiB:1GiB:log4"
        )
        np.testing.assert_array_equal(dataset["time"], expected["time"])
    again = cli(line)
    assert "x.nc is complete already: the same sweep by the same code" in again.out
    assert "wrote" not in again.out


def test_records_and_an_output_at_once(cli: Runner, tmp_path: Path) -> None:
    done = cli("collective --topology ring --N 4,16 --M 1KiB --csv --output x.nc", fine=False)
    assert done.code == 0
    assert len(done.rows) == 2
    assert done.err.startswith("wrote x.nc (")
    assert (tmp_path / "x.nc").exists()


def test_another_sweep_does_not_replace_a_file(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring --M 1KiB,1MiB --output x.nc"
    cli(f"{line} --N 4")
    before = (tmp_path / "x.nc").read_bytes()
    refused = cli(f"{line} --N 8", fine=False)
    assert refused.code == 2
    assert refused.err == "sweeps: output = 'x.nc': exists already; --overwrite replaces it\n"
    assert (tmp_path / "x.nc").read_bytes() == before
    for options in ("--digits 3", "--dtype f4", "--compress"):
        assert cli(f"{line} --N 4 {options}", fine=False).code == 2
    cli(f"{line} --N 8 --overwrite")
    with sweeps.open(tmp_path / "x.nc") as dataset:
        assert dataset.coords["ranks"].item() == 8


def test_a_cell_that_cannot_be_is_not_written(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology hierarchical --N 10 --gpus-per-node 4 --M 1e6 --output x.nc"
    assert cli(line, fine=False).code == 2
    assert not (tmp_path / "x.nc").exists()


def test_options_of_a_file(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring --N 2:64:+1 --M 1KiB:1GiB:log50"
    for name, options in (
        ("plain", ""),
        ("small", "--compress"),
        ("f4", "--dtype f4"),
        ("digits", "--digits 3"),
    ):
        cli(f"{line} --output {name}.nc {options}")
    sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("*.nc")}
    assert sizes["digits"] < sizes["small"] < sizes["plain"]
    assert sizes["f4"] < sizes["plain"]
    with sweeps.open(tmp_path / "plain.nc") as plain:
        for name, places in (("small", 0.0), ("f4", 1e-7), ("digits", 5e-3)):
            with sweeps.open(tmp_path / f"{name}.nc") as other:
                np.testing.assert_allclose(other["time"], plain["time"], rtol=places)


def test_plot_draws_beside_the_output(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring,torus --N 2:64:x2 --M 1KiB:1GiB:log7 --plot"
    done = cli(line)
    drawn = re.findall(r"drew (.*)", done.out)
    assert drawn
    assert all((tmp_path / path).stat().st_size > 1000 for path in drawn)
    assert {Path(path).suffix for path in drawn} == {".png", ".svg"}
    assert (tmp_path / "outputs/collective.nc").exists()
    for path in drawn:
        (tmp_path / path).unlink()
    again = cli(line)
    assert "is complete already" in again.out
    assert re.findall(r"drew (.*)", again.out) == drawn
    assert all((tmp_path / path).exists() for path in drawn)


def test_a_plot_of_one_cell_says_that_there_is_none(cli: Runner) -> None:
    assert "drew nothing" in cli("collective --topology ring --N 8 --M 1KiB --plot").out


# Specs.


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_a_run_writes_prints_and_draws(cli: Runner, spec: Path, tmp_path: Path) -> None:
    done = cli("run mine.toml")
    assert "wrote outputs/mine.nc" in done.out
    assert re.search(
        r"time +topology 2, message_bytes 5, ranks 4|time +topology 2, ranks 4", done.out
    )
    assert {
        path.name for path in (tmp_path / "outputs").iterdir() if not path.name.startswith(".")
    } == {
        "mine.nc",
        "mine-latency.png",
        "mine-latency.svg",
    }
    (tmp_path / "outputs/mine-latency.png").unlink()
    again = cli("run mine.toml")
    assert "outputs/mine.nc is complete already" in again.out
    assert (tmp_path / "outputs/mine-latency.png").exists()
    refused = cli("run mine.toml --set ranks=8,16", fine=False)
    assert refused.code == 2
    assert refused.err.endswith("exists already; --overwrite replaces it\n")
    cli("run mine.toml --set ranks=8,16 --overwrite --no-plot --output outputs/mine.nc")
    with sweeps.open(tmp_path / "outputs/mine.nc") as dataset:
        assert dataset.coords["ranks"].to_numpy().tolist() == [8, 16]


def test_a_dry_run_computes_nothing(cli: Runner, spec: Path, tmp_path: Path) -> None:
    out = cli("run mine.toml --dry-run").out
    assert "axis ranks: 4" in out
    assert "grid: 40 cells" in out
    assert "to compute: " in out
    assert list(tmp_path.iterdir()) == [spec]


def test_a_huge_sweep_says_how_large_it_is_in_a_dry_run(cli: Runner, spec: Path) -> None:
    line = "run mine.toml --set latency=1e-7:1:log100000 --set message_bytes=1:1e9:log100000"
    assert "grid: 80,000,000,000 cells" in cli(f"{line} --dry-run").out


def test_a_name_is_a_shipped_sweep(cli: Runner) -> None:
    assert "axis collective: 7" in cli("run quickstart --dry-run").out


def test_a_stored_spec_runs_again(cli: Runner, tmp_path: Path) -> None:
    cli("collective --topology ring,torus --N 4,16 --M 1e3:1e9:log4 --latency 0,2us --output x.nc")
    (tmp_path / "again.toml").write_text(cli("info --spec x.nc").out, encoding="utf-8")
    cli("run again.toml --output y.nc")
    with sweeps.open(tmp_path / "x.nc") as one, sweeps.open(tmp_path / "y.nc") as other:
        for name in one.data_vars:
            assert one[name].to_numpy().tobytes() == other[name].to_numpy().tobytes(), name
        assert one.attrs["spec"] == other.attrs["spec"]


def test_plot_info_and_verify_of_a_stored_sweep(cli: Runner, spec: Path, tmp_path: Path) -> None:
    cli("run mine.toml --no-plot")
    drawn = re.findall(r"drew (.*)", cli("plot outputs/mine.nc").out)
    assert drawn == ["outputs/mine-latency.png", "outputs/mine-latency.svg"]
    assert cli("plot outputs/mine.nc --figure latency").out.count("drew") == 2
    unknown = cli("plot outputs/mine.nc --figure latencie", fine=False)
    assert unknown.code == 2
    assert "did you mean 'latency'" in unknown.err
    told = cli("info outputs/mine.nc").out
    assert "title       Mine" in told
    assert "Conventions CF-1.11" in told
    assert re.search(r"time +topology 2, .*40 ", told)
    assert str(tmp_path) not in told
    assert cli("info --verify outputs/mine.nc").out == "outputs/mine.nc: every checksum holds\n"
    with netCDF4.Dataset(tmp_path / "outputs/mine.nc", "a") as file:
        file["time"][1, 2, 3] *= 1.0000001
    broken = cli("info --verify outputs/mine.nc", fine=False)
    assert broken.code == 1
    assert broken.err == "sweeps: outputs/mine.nc: differs from its checksums: time\n"


# What there is.


def test_lists_and_shows_each_algorithm(cli: Runner) -> None:
    out = cli("list").out
    for key in ALGORITHMS:
        assert re.search(rf"^{key[0]} +{key[1]} +{key[2]} ", out, re.MULTILINE), key
    rows = cli("list --op all_reduce --topology switch").out.splitlines()[1:]
    assert len(rows) == len(ALGORITHMS.of("switch", "all_reduce"))
    assert "formula " not in cli("list --kind algorithms").out
    assert not cli("list --kind formulas").out.startswith("network ")
    shown = cli("show switch.all_reduce.ring").out
    for part in ("switch.all_reduce.ring  ", "  time = ", "  sent_bytes = ", "  source  "):
        assert part in shown
    assert "$" in cli("show wire_time --latex").out or "\\frac" in cli("show wire_time --latex").out
    assert "wire_time = message_bytes/bandwidth" in cli("show wire_time").out


def test_the_catalogue_tells_figures_with_sources(cli: Runner) -> None:
    assert "dgx-h100" in cli("catalog").out
    told = cli("catalog dgx-h100").out
    assert re.search(r"intra_bandwidth +450 GB/s +specification +\S", told)


def test_help_names_every_command(cli: Runner) -> None:
    told = cli("--help").out
    assert all(f"  {name} " in told for name in COMMANDS)
    assert cli("").out == told
    for name in COMMANDS:
        assert cli(f"{name} --help").out.startswith(f"Usage: sweeps {name}")
    assert cli("--version").out.startswith("sweeps, version")


def test_the_suggested_commands_all_run(cli: Runner) -> None:
    listed = cli("list-cmds").out.splitlines()
    assert listed == list(SUGGESTED)
    for line in listed:
        program, *args = shlex.split(line)
        assert program == "sweeps"
        assert cli(shlex.join(args)).out, line


def test_all_predefined_combinations(cli: Runner) -> None:
    rows = cli("run-all").rows
    assert len(rows) == 7 * 6 * 7
    assert {"collective", "topology", "ranks", "latency_s", "volume_bytes", "steps"} <= set(rows[0])
    assert {row["topology"] for row in rows} == {
        "ring",
        "tree",
        "hierarchical",
        "switch",
        "mesh",
        "torus",
    }
    assert all(float(row["latency_s"]) > 0 for row in rows)
    assert len(cli("run-all --json").records) == len(rows)


# Pipes and signals.


def test_a_pipe_that_closes_early_is_no_error(tmp_path: Path) -> None:
    for args in (
        (
            "collective",
            "--op",
            "all",
            "--topology",
            "all",
            "--N",
            "2:512:x2",
            "--M",
            "1KiB:1GiB:log40",
            "--csv",
        ),
        ("list",),
    ):
        process = started(*args, cwd=tmp_path)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        assert (process.wait(30), error) == (0, "")
        process.stderr.close()


def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    spec = tmp_path / "big.toml"
    spec.write_text(
        'quantities = ["time", "energy", "algbw", "busbw"]\n[axes]\nranks = "2:3000:+1"\n'
        'message_bytes = "1KiB:8GiB:log40000"\n[constants]\ntopology = "ring"\n',
        encoding="utf-8",
    )
    process = started("run", "big.toml", "--compress", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("outputs/.big.nc.*.tmp")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.strip() == "sweeps: interrupted; nothing was left half done"
    assert "wrote" not in out
    assert [
        path.name for path in (tmp_path / "outputs").iterdir() if path.suffix in (".nc", ".tmp")
    ] == []
