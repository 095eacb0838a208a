"""The command: report, records, files; and the hardware file that predicts what the fit does."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sweeps.calibrate.calibration import Request, calibrate
from sweeps.calibrate.model import Model, vector
from sweeps.calibrate.report import write_hardware
from sweeps.spec.catalog import load_hardware
from tests.calibrate.simulated import SIZES, log_text, timed, write_logs
from tests.cli_runner import Runner

GROUPS = [("all_reduce", 8, 1), ("all_gather", 8, 1), ("all_reduce", 16, 2)]
TRUE = {
    "intra_bandwidth": 372.5e9, "inter_bandwidth": 41.2e9, "intra_latency": 1.31e-6,
    "inter_latency": 4.2e-6, "launch": 5.3e-6,
}  # fmt: skip


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    monkeypatch.chdir(tmp_path)
    return Runner(capsys)


@pytest.fixture
def logs(tmp_path: Path) -> str:
    return shlex.join(write_logs(tmp_path, timed(GROUPS, TRUE, noise=0.01, seed=5), GROUPS))


def test_report_and_files(run: Runner, logs: str) -> None:
    done = run(f"calibrate {logs} --write mine.toml --output rows.nc --plot")
    assert "--hardware isn't given: taken as dgx-h100" in done.out
    assert "intra_bandwidth (bandwidth in a node)" in done.out
    assert "healthy" in done.out
    with xr.open_dataset("rows.nc") as data:
        assert data.sizes["row"] == len(GROUPS) * len(SIZES)
        assert float(np.median(np.abs(data["error_after"].to_numpy()))) < 0.02
        assert set(data["collective"].values) == {"all_reduce", "all_gather"}
    assert Path("rows.png").stat().st_size > 10_000
    machine = load_hardware("mine.toml")
    assert machine.figures["intra_bandwidth"].kind == "measured"
    source = machine.figures["intra_bandwidth"].source
    for word in ("all_reduce-8x1.log", "69 rows", "nccl-tests 2.17.6", "450 GB/s in dgx-h100"):
        assert word in source
    base = load_hardware("dgx-h100")
    changed = {n for n in base.figures if machine.figures[n] != base.figures[n]}
    assert changed <= {
        "intra_bandwidth", "inter_bandwidth", "intra_latency", "inter_latency",
        "in_network_latency", "intra_link_bandwidth",
    }  # fmt: skip
    assert run("catalog mine.toml").out


def test_the_written_file_predicts_what_the_fit_does(run: Runner, logs: str) -> None:
    found = calibrate(Request(logs=shlex.split(logs), hardware="dgx-h100"))
    write_hardware(found, Path("mine.toml").absolute())
    values = dict(found.fit.values) | {"launch": 0.0}
    without = Model(found.rows, found.machine).design(values) @ vector(values)
    launch = found.fit.values["launch"]
    assert found.fit.after == pytest.approx(without + launch)
    for place, (operation, ranks, nodes) in enumerate(GROUPS):
        topology = "switch" if nodes == 1 else "hierarchical"
        own = found.rows.case == place
        sizes = ",".join(f"{size:.0f}" for size in found.rows.message_bytes[own])
        rows = run(
            f"collective --op {operation} --topology {topology} --N {ranks} --M {sizes} "
            "--algorithm nccl --hardware mine.toml --csv"
        ).rows
        times = [float(row["latency_s"]) for row in rows]
        assert times == pytest.approx(without[own].tolist(), rel=1e-9)


def test_records(run: Runner, logs: str) -> None:
    rows = run(f"calibrate {logs} --csv").rows
    assert len(rows) == len(GROUPS) * len(SIZES)
    record = json.loads(run(f"calibrate {logs} --json --placement both").out)
    assert len(record["rows"]) == 2 * len(rows)
    fitted = {one["name"]: one["fitted"] for one in record["constants"]}
    assert fitted["inter_bandwidth"] == pytest.approx(TRUE["inter_bandwidth"], rel=0.02)
    assert [one["collective"] for one in record["verdicts"]] == [name for name, _, _ in GROUPS]


def test_nothing_is_overwritten(run: Runner, logs: str) -> None:
    for name in ("mine.toml", "rows.nc", "outputs/calibrate.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("mine")
    for options in ("--write mine.toml", "--output rows.nc", "--plot"):
        done = run(f"calibrate {logs} {options}", fine=False)
        assert done.code == 2
        assert "exists already" in done.err
        assert done.out == ""
    assert Path("mine.toml").read_text() == "mine"
    run(f"calibrate {logs} --write mine.toml --overwrite")
    assert load_hardware("mine.toml").name == "mine"


def test_slow_links_and_odd_sizes_are_told(run: Runner) -> None:
    group = ("all_reduce", 8, 1)
    rows = timed([group], {"intra_bandwidth": 150e9, "launch": 6e-6})
    rows.time[8] *= 3.0
    Path("slow.log").write_text(log_text(rows, group))
    out = run("calibrate slow.log").out
    assert "slow.log all_reduce 8: slower than published, odd at 256 KiB" in out
    assert "times slower than" in out
    assert "nccl-collectives: all_reduce of aiconfigurator-2.29.2, dgx-cloud" in out


def test_wrong_results_are_told_and_left_out(run: Runner) -> None:
    group = ("all_reduce", 8, 1)
    text = log_text(timed([group], {}), group).replace("       0\n", "       7\n", 1)
    text = text.replace("       0  ", "       7  ", 1)
    Path("wrong.log").write_text(text)
    out = run("calibrate wrong.log").out
    assert "rows with wrong results, left out of the fit: 1" in out
    assert "all_reduce of 1 KiB out-of-place: 7 wrong elements" in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("calibrate", "LOG = '(not given)'"),
        ("calibrate no-such.log", "No such file"),
        ("calibrate a.log --hardware tpu-v4", "on which nccl-tests doesn't run"),
        ("calibrate a.log --hardware dgx-h1000", "there is no such machine"),
        ("calibrate a.log --algorithm quick", "--algorithm = 'quick'"),
        ("calibrate a.log --algorithm all", "--algorithm = 'all'"),
        ("calibrate a.log --write mine", "no hardware file"),
        ("calibrate a.log --output a.png", "no such format"),
        ("calibrate a.log --ranks 4", "the log has 8"),
        ("calibrate a.log --gpus-per-node 3", "8 ranks on 3 nodes"),
        ("calibrate nccl-collectives --hardware dgx-b300", "the table has no rows of it"),
    ],
)
def test_faults_are_one_line(run: Runner, line: str, said: str) -> None:
    group = ("all_reduce", 8, 1)
    Path("a.log").write_text(log_text(timed([group], {}), group))
    done = run(line, fine=False)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert done.out == ""
