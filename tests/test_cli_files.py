"""The command line with files: what it writes, draws, refuses, and leaves behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import sweeps
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.cli import COMMANDS
from sweeps.cli.flags import SECTIONS
from sweeps.cli.run_command import analyses, suggested
from sweeps.spec.units import grouped
from tests.cli_runner import Runner, drawn_in
from tests.tables import examples

ROOT = Path(__file__).parents[1]
SPEC = examples(__file__, "spec")


def started(*args: str, cwd: Path, code: str = "", **options: Any) -> subprocess.Popen[str]:
    """Start a command, or some code, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, *(["-c", code] if code else ["-m", "sweeps"]), *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


# Files.


def test_output_is_written_and_the_table_printed(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring,torus --N 4,16 --M 1KiB:1GiB:log4 --output x.nc"
    result = cli(line)
    assert "wrote x.nc (" in result.out
    assert "topology  ranks" in result.out.replace("message_bytes  ", "")
    with sweeps.open(tmp_path / "x.nc") as dataset:
        assert dict(dataset.sizes) == {"topology": 2, "ranks": 2, "message_bytes": 4}
        expected = sweeps.sweep(
            "time", topology=["ring", "torus"], ranks=[4, 16], message_bytes="1KiB:1GiB:log4"
        )
        np.testing.assert_array_equal(dataset["time"], expected["time"])
    again = cli(line)
    assert "x.nc is complete already: the same input and the same code" in again.out
    assert "wrote" not in again.out


def test_records_and_an_output_at_once(cli: Runner, tmp_path: Path) -> None:
    result = cli("collective --topology ring --N 4,16 --M 1KiB --csv --output x.nc", fine=False)
    assert result.code == 0
    assert len(result.rows) == 2
    assert result.err.startswith("wrote x.nc (")
    assert (tmp_path / "x.nc").exists()


def test_another_sweep_does_not_replace_a_file(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring --M 1KiB,1MiB --output x.nc"
    cli(f"{line} --N 4")
    before = (tmp_path / "x.nc").read_bytes()
    refused = cli(f"{line} --N 8", fine=False)
    assert refused.code == 2
    assert refused.err == "sweeps: --output x.nc: exists already; --overwrite replaces it\n"
    assert (tmp_path / "x.nc").read_bytes() == before
    assert cli(f"{line} --N 4 --compress", fine=False).code == 2
    cli(f"{line} --N 8 --overwrite")
    with sweeps.open(tmp_path / "x.nc") as dataset:
        assert dataset.attrs["ranks"] == 8


def test_a_cell_that_cannot_be_is_not_written(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology hierarchical --N 10 --gpus-per-node 4 --M 1e6 --output x.nc"
    assert cli(line, fine=False).code == 2
    assert not (tmp_path / "x.nc").exists()


@pytest.mark.thorough
def test_options_of_a_file(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring --N 2:64:+1 --M 1KiB:1GiB:log50"
    for name, options in (("plain", ""), ("small", "--compress")):
        cli(f"{line} --output {name}.nc {options}")
    sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("*.nc")}
    assert sizes["small"] < sizes["plain"]
    with sweeps.open(tmp_path / "plain.nc") as plain, sweeps.open(tmp_path / "small.nc") as small:
        np.testing.assert_array_equal(small["time"], plain["time"])


@pytest.mark.thorough
def test_plot_draws_beside_the_output(cli: Runner, tmp_path: Path) -> None:
    line = "collective --topology ring,torus --N 2:64:x2 --M 1KiB:1GiB:log7 --plot"
    result = cli(line)
    drawn = drawn_in(result.out)
    assert drawn
    assert all((tmp_path / path).stat().st_size > 1000 for path in drawn)
    assert {Path(path).suffix for path in drawn} == {".png", ".svg"}
    assert (tmp_path / "outputs/collective.nc").exists()
    for path in drawn:
        (tmp_path / path).unlink()
    again = cli(line)
    assert "is complete already" in again.out
    assert drawn_in(again.out) == drawn
    assert all((tmp_path / path).exists() for path in drawn)


def test_a_plot_of_one_cell_says_that_there_is_none(cli: Runner) -> None:
    assert "drew nothing" in cli("collective --topology ring --N 8 --M 1KiB --plot").out


# Specs.


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.mark.thorough
def test_a_run_writes_prints_and_draws(cli: Runner, spec: Path, tmp_path: Path) -> None:
    result = cli("run mine.toml")
    assert "wrote outputs/mine.nc" in result.out
    # The first figure as a table comes before all else.
    won, title, heads, *rows = result.out[: result.out.index("\n\n")].splitlines()
    assert won.startswith("fastest in each of 5 cases: torus, ")
    assert title.startswith("Time of all_reduce, by message size and topology")
    assert "(µs)" in title or "(us)" in title
    assert re.split(r"\s{2,}", heads.strip())[:2] == ["topology", "message bytes 1 KiB"]
    with sweeps.open(tmp_path / "outputs/mine.nc") as dataset:
        drawn = dataset.time.sel(ranks=16, topology="torus").to_numpy()
        ends = [grouped(1e6 * curve) for curve in drawn[[0, -1]]]
    cells = re.split(r"\s{2,}", rows[-1].strip())
    assert [cells[0], cells[1], cells[-1]] == ["torus", *ends]
    assert "variable  " not in result.out
    assert re.search(
        r"time +topology 2, message_bytes 5, ranks 4|time +topology 2, ranks 4",
        cli("run mine.toml --show variables --overwrite --no-plot").out,
    )
    assert {
        path.name for path in (tmp_path / "outputs").iterdir() if not path.name.startswith(".")
    } == {"mine.nc", "mine-latency.png", "mine-latency.svg"}
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


@pytest.mark.thorough
def test_a_run_says_which_plan_is_best(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "best.toml").write_text(
        """
title = "Best"
quantities = []
[axes]
recompute = ["none", "full"]
tp = [1, 2]
world_size = [8, 16]
[constants]
model = "llama3-8b"
hardware = "dgx-h100"
sequence_length = 4096
global_batch_size = 64
[[reductions]]
quantity = "step_time"
operation = "min"
over = ["recompute", "tp"]
name = "best"
[[figures]]
kind = "curves"
x = "world_size"
y = "best"
"""
    )
    _, heads, row, *_ = cli("run best.toml --no-plot").out.splitlines()
    assert re.split(r"\s{2,}", heads.strip()) == [
        "world size 8",
        "16",
        "best plan at world size 16",
    ]
    with sweeps.open(tmp_path / "outputs/best.nc") as dataset:
        last = dataset.isel(world_size=-1)
        # What has no value is called otherwise where a label has the name.
        assert dataset.best_recompute.attrs["flag_meanings"] == "no_value none full"
        assert row.endswith(f"  tp {int(last.best_tp)}")
        assert f" {grouped(float(last.best))}  tp " in row


def test_a_dry_run_computes_nothing(cli: Runner, spec: Path, tmp_path: Path) -> None:
    out = cli("run mine.toml --dry-run").out
    assert "axis ranks: 4" in out
    assert "grid: 40 cells" in out
    assert "to compute: " in out
    assert list(tmp_path.iterdir()) == [spec]


@pytest.mark.thorough
def test_figures_are_checked_in_a_dry_run_and_drawn_where_asked_for(
    cli: Runner, spec: Path, tmp_path: Path
) -> None:
    statement = spec.read_text(encoding="utf-8")
    plain = statement[: statement.index("[[figures]]")]
    wrong = "[[figures]]\nkind = 'curves'\nname = 'one'\npanels = 'topologie'\n"
    (tmp_path / "wrong.toml").write_text(plain + wrong, encoding="utf-8")
    assert "panels = 'topologie': no such dimension; did you mean 'topology'?" in cli.refused(
        "run wrong.toml --dry-run"
    )
    (tmp_path / "plain.toml").write_text(plain, encoding="utf-8")
    assert "drew" not in cli("run plain.toml").out
    assert "drew outputs/plain-" in cli("run plain.toml --plot").out


@pytest.mark.thorough
def test_a_huge_sweep_says_how_large_it_is_in_a_dry_run(cli: Runner, spec: Path) -> None:
    line = "run mine.toml --set latency=1e-7:1:log100000 --set message_bytes=1:1e9:log100000"
    assert "grid: 80,000,000,000 cells" in cli(f"{line} --no-plot --dry-run").out


@pytest.mark.thorough
def test_a_name_is_a_shipped_sweep(cli: Runner) -> None:
    assert "axis collective: 7" in cli("run quickstart --dry-run").out


@pytest.mark.thorough
def test_a_stored_spec_runs_again(cli: Runner, tmp_path: Path) -> None:
    cli("collective --topology ring,torus --N 4,16 --M 1e3:1e9:log4 --latency 0,2us --output x.nc")
    (tmp_path / "again.toml").write_text(cli("info --spec x.nc").out, encoding="utf-8")
    cli("run again.toml --output y.nc")
    with sweeps.open(tmp_path / "x.nc") as dataset, sweeps.open(tmp_path / "y.nc") as other_dataset:
        for name in dataset.data_vars:
            assert dataset[name].to_numpy().tobytes() == other_dataset[name].to_numpy().tobytes(), (
                name
            )
        assert dataset.attrs["spec"] == other_dataset.attrs["spec"]


@pytest.mark.thorough
def test_plot_info_and_verify_of_a_stored_sweep(cli: Runner, spec: Path, tmp_path: Path) -> None:
    cli("run mine.toml --no-plot")
    drawn = drawn_in(cli("plot outputs/mine.nc").out)
    assert drawn == ["outputs/mine-latency.png", "outputs/mine-latency.svg"]
    assert drawn_in(cli("plot outputs/mine.nc --figure latency").out) == drawn
    assert "did you mean 'latency'" in cli.refused("plot outputs/mine.nc --figure latencie")
    output = cli("info outputs/mine.nc").out
    assert "title       Mine" in output
    assert "Conventions CF-1.11" in output
    assert re.search(r"time +topology 2, .*40 ", output)
    assert str(tmp_path) not in output
    assert cli("info --verify outputs/mine.nc").out == "outputs/mine.nc: every checksum holds\n"
    with netCDF4.Dataset(tmp_path / "outputs/mine.nc", "a") as file:
        file["time"][1, 2, 3] *= 1.0000001
    broken = cli("info --verify outputs/mine.nc", fine=False)
    assert broken.code == 1
    assert broken.err == "sweeps: outputs/mine.nc: differs from its checksums: time\n"


def test_a_sweep_without_a_valid_configuration_writes_nothing(cli: Runner) -> None:
    for line in ("run network-choice --set gpus=7", "run network-choice --set gpus=7 --dry-run"):
        result = cli(line, fine=False)
        assert result.code == 2
        assert result.err == (
            "sweeps: network-choice.toml: no configuration is valid: nodes not filled (the GPUs "
            "must fill whole nodes, or divide one evenly)\n"
        )
    assert not Path("outputs").exists()


# What there is.


def test_a_name_of_several_algorithms_lists_them(cli: Runner) -> None:
    first, _, _, *rows = cli("show ring").out.splitlines()
    assert first == "ring means 36 algorithms; one of them: sweeps show ring.all_gather.rd"
    assert sum(row.startswith("  ring.") for row in rows) == 10
    assert rows[-1] == "More: --show rows (26 more, and each whole)"
    assert cli("show ring --show rows").out.count("\n  time = ") == 36
    # Its parts are in a torus' ring, too.
    assert cli("show ring.all_reduce.ring").out.startswith("ring.all_reduce.ring  Ring: each")
    assert cli("show ring.p2p.direct").out.startswith("ring.p2p.direct  ")


def test_lists_and_shows_each_algorithm(cli: Runner) -> None:
    out = cli("list --show rows").out
    for key in ALGORITHMS:
        assert re.search(rf"^{key[0]} +{key[1]} +{key[2]} ", out, re.MULTILINE), key
    line = "list --op all_reduce --topology switch"
    rows = cli(f"{line} --show rows").out.splitlines()[1:]
    assert len(rows) == len(ALGORITHMS.of("switch", "all_reduce"))
    brief = cli(line).out.splitlines()
    assert brief[0] == f"{len(rows)} algorithms of all_reduce on a switch network"
    assert {row.split()[2] for row in rows} <= set(" ".join(brief).split())
    assert "formula " not in cli("list --kind algorithms --show rows").out
    assert not cli("list --kind formulas --show rows").out.startswith("network ")
    shown = cli("show switch.all_reduce.ring").out
    for part in ("switch.all_reduce.ring  ", "  time = ", "  sent_bytes = ", "  source  "):
        assert part in shown
    assert (
        "$" in cli("show serialization_time --latex").out
        or "\\frac" in cli("show serialization_time --latex").out
    )
    output = cli("show switch.all_reduce.ring --latex").out
    assert "\n  T = " in output
    assert "serialization_time = message_bytes/bandwidth" in cli("show serialization_time").out


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "distinct_ranks",
            ["  distinct_ranks = distinct_nodes(ep_nodes = ep)", "sweeps show distinct_nodes"],
        ),
        ("chunk_matmul_time", ["    where mechanism = reduce_scatter_pipeline"]),
        ("sequence_length", ["[1]", "  given, or taken from a catalog"]),
        ("gathered_sequences", ["  default 0"]),
    ],
)
def test_a_quantity_is_shown_by_what_gives_it(cli: Runner, name: str, parts: list[str]) -> None:
    out = cli(f"show {name}").out
    assert out.startswith(f"{name}  {VOCABULARY[name].meaning}")
    assert all(part in out for part in parts), out


@pytest.mark.thorough
def test_each_quantity_is_shown(cli: Runner) -> None:
    for name in VOCABULARY:
        assert cli(f"show {name}").out.startswith(f"{name}  "), name


def test_the_catalogue_tells_figures_with_sources(cli: Runner) -> None:
    assert "dgx-h100" in cli("catalog").out
    assert re.search(r"intra_bandwidth +450 GB/s", cli("catalog dgx-h100").out)
    output = cli("catalog dgx-h100 --show sources").out
    assert re.search(r"intra_bandwidth +450 GB/s +specification +\S", output)


def test_help_names_every_command(cli: Runner) -> None:
    output = cli("--help").out
    assert all(f"  {name} " in output for name in COMMANDS)
    assert cli("").out == output
    for name in COMMANDS:
        assert cli(f"{name} --help").out.startswith(f"Usage: sweeps {name}")
    assert cli("--version").out.startswith("sweeps, version")
    help_of_plans = cli("plan --help-all").out
    parts = [f"\n{title}:\n" for title in ("Options", *SECTIONS)]
    places = [help_of_plans.index(part) for part in parts]
    assert places == sorted(places)
    assert places[2] < help_of_plans.index("--hardware VALUES") < places[3]


@pytest.mark.thorough
def test_the_suggested_commands_all_run(cli: Runner) -> None:
    listed = cli("list-cmds").out.splitlines()
    assert listed == list(suggested())
    for line in listed:
        program, *args = shlex.split(line)
        assert program == "sweeps"
        assert cli(shlex.join(args)).out, line


@pytest.mark.thorough
def test_all_predefined_combinations(cli: Runner) -> None:
    every = cli("run-all").rows
    rows = [row for row in every if row["command"] == "collective"]
    # Every operation on every network, for seven numbers of ranks.
    collectives = LABELS["collective"].values
    assert len(rows) == len(collectives) * len(NETWORKS) * 7
    assert {"collective", "topology", "ranks", "latency_s", "volume_bytes", "steps"} <= set(rows[0])
    assert {row["topology"] for row in rows} == set(NETWORKS)
    lacking = [row for row in rows if row["status"] != "ok"]
    assert all(float(row["latency_s"]) > 0 for row in rows if row not in lacking)
    # A network may have few sizes, and few operations.
    every_one = {(name, kind) for name, network in NETWORKS.items() for kind in network.standard}
    few = {
        name
        for name, network in NETWORKS.items()
        if any(c.inputs == ("ranks",) for c in network.requires)
    }
    for row in lacking:
        assert row["topology"] in few or (row["topology"], row["collective"]) not in every_one
    # And each suggested analysis, one row a configuration.
    output = {row["command"] for row in every} - {"collective"}
    assert output == {f"analysis {line}" for line in analyses()}
    for row in every[len(rows) :]:
        assert float(row["per_gpu_memory_bytes"] or row["first_stage_model_state_memory_bytes"]) > 0
    assert len(cli("run-all --json").records) == len(every)


# Pipes and signals.


@pytest.mark.thorough
def test_a_pipe_that_closes_early_is_no_error(tmp_path: Path) -> None:
    for args in (
        tuple("collective --op all --topology all --N 2:512:x2 --M 1KiB:1GiB:log40 --csv".split()),
        ("list",),
    ):
        process = started(*args, cwd=tmp_path)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        assert (process.wait(600), error) == (0, "")
        process.stderr.close()


# A command that waits as soon as it has written some values.
WAITING = """
import signal, sys
from sweeps.cli import run
from sweeps.store.netcdf import OpenFile

put = OpenFile.put

def waiting(self, *block):
    put(self, *block)
    print("a block is written", flush=True)
    sys.stdin.readline()

OpenFile.put = waiting
# A shell that starts tests in the background hands on that interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.thorough
def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SPEC, encoding="utf-8")
    process = started("run", "small.toml", cwd=tmp_path, code=WAITING)
    assert process.stdout is not None
    while process.stdout.readline() != "a block is written\n":
        assert process.poll() is None, process.communicate()
    assert list(tmp_path.glob("outputs/.small.nc.*.tmp"))
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 130
    assert error.strip() == "sweeps: interrupted; nothing was left half done"
    assert "wrote" not in out
    assert [
        path.name for path in (tmp_path / "outputs").iterdir() if path.suffix in (".nc", ".tmp")
    ] == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("collective --N 8,64 --M 1MiB", "from "),
        ("overlap --compute 1ms,2ms --comm 1ms", "overlap gains most, "),
    ],
)
def test_the_answer_stands_before_the_files(cli: Runner, line: str, answer: str) -> None:
    result = cli(f"{line} --plot")
    assert result.out.startswith(answer)
    lines = result.out.splitlines()
    wrote = next(index for index, one in enumerate(lines) if one.startswith("wrote outputs/"))
    assert all(one.startswith("drew outputs/") for one in lines[wrote + 1 :])


@pytest.mark.thorough
def test_plot_draws_what_the_command_drew(cli: Runner, tmp_path: Path) -> None:
    line = "buy --model llama3-8b --tokens 1T --days 30 --hardware dgx-h100 --output b.nc"
    drawn = drawn_in(cli(f"{line} --plot").out)
    assert drawn == drawn_in(cli("plot b.nc").out)
    assert drawn[0] == "b-days-over-dollars.png"


def test_plot_says_how_to_draw_what_is_not_in_the_file(cli: Runner, tmp_path: Path) -> None:
    cli("normal all_reduce --gpus 16 --hardware dgx-h100 --output n.nc")
    assert "isn't in this file; draw it with: sweeps" in cli("plot n.nc").out
