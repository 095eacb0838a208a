"""The command: report, records, files; and the hardware file that predicts what the fit does."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sweeps.calibration.log import LogTest
from sweeps.calibration.machine_file import write_hardware
from sweeps.calibration.model import Model, machine_for
from sweeps.calibration.normal import TABLE
from sweeps.calibration.report import CalibrationRequest, calibrate
from sweeps.calibration.table_log import read_table_log
from sweeps.spec.catalog import load_hardware
from tests.calibrate.simulated import SIZES, log_text, rows_of_groups, timed, write_logs
from tests.cli_runner import Runner
from tests.tables import examples, keyed

GROUPS = [("all_reduce", 8, 1), ("all_gather", 8, 1), ("all_reduce", 16, 2)]
TRUE = keyed(
    "channel_efficiency=0.62 nvls_efficiency=0.52 collective_launch_time=9e-6 nic_efficiency=0.7"
)


@pytest.fixture
def logs(tmp_path: Path) -> str:
    return shlex.join(write_logs(tmp_path, timed(GROUPS, TRUE, noise=0.01, seed=5), GROUPS))


@pytest.mark.thorough
def test_report_and_files(cli: Runner, logs: str) -> None:
    result = cli(f"calibrate {logs} --show fit --write mine.toml --output rows.nc --plot")
    assert "Defaults: --hardware dgx-h100" in result.out
    assert "channel_efficiency (achievable fraction of link" in result.out
    assert "slow links" in result.out
    with xr.open_dataset("rows.nc") as data:
        assert dict(data.sizes) == {"curve": len(GROUPS), "message_bytes": len(SIZES)}
        whole = data["measured_time"].sel(message_bytes=2.0**30)
        assert whole.notnull().all()
        assert float(np.median(np.abs(data["error_after"].to_numpy()))) < 0.03
        assert set(data["collective"].values) == {"all_reduce", "all_gather"}
    assert Path("rows.png").stat().st_size > 10_000
    machine, base = load_hardware("mine.toml"), load_hardware("dgx-h100")
    assert machine.figures == base.figures
    assert machine.profile == "nccl"
    share = machine.constants["channel_efficiency"]
    assert share.kind == "measured"
    assert 0.0 < share.uncertainty < 0.2
    for word in ("all_reduce-8x1.log", "69 rows", "nccl-tests 2.17.6", "0.824 before"):
        assert word in share.source
    assert cli("catalog mine.toml").out


def predicted(cli: Runner, operation: str, ranks: int, sizes: str, more: str = "") -> list[float]:
    rows = cli(
        f"collective --op {operation} --N {ranks} --M {sizes} --hardware mine.toml --csv {more}"
    ).rows
    return [float(row["latency_s"]) for row in rows]


@pytest.mark.thorough
def test_the_written_file_predicts_what_the_fit_does(cli: Runner, logs: str) -> None:
    calibration = calibrate(CalibrationRequest(logs=shlex.split(logs), hardware="dgx-h100"))
    write_hardware(calibration, Path("mine.toml").absolute())
    for index, (operation, ranks, _) in enumerate(GROUPS):
        mask = calibration.rows.case == index
        sizes = ",".join(f"{size:.0f}" for size in calibration.rows.message_bytes[mask])
        times = predicted(cli, operation, ranks, sizes)
        assert times == pytest.approx(calibration.fit.after[mask].tolist(), rel=1e-9)


PUBLISHED = [test for test in read_table_log(TABLE) if len({row.size for row in test.rows}) > 5]


@pytest.mark.thorough_cases(every=7)
@pytest.mark.parametrize(
    "test", PUBLISHED, ids=lambda case: f"{case.part}-{case.hardware}-{case.operation}-{case.ranks}"
)
def test_a_calibrated_machine_answers_as_each_published_log(cli: Runner, test: LogTest) -> None:
    """At the log's own sizes the collective command is within the fit's error of it."""
    head = "collective,ranks,nodes,inter_bandwidth_GB/s,message_bytes,time_s"
    case = f"{test.operation},{test.ranks},{test.nodes},{test.card / 1e9}"
    lines = [f"{case},{row.size:.0f},{row.time}" for row in test.rows]
    Path("log.csv").write_text("\n".join([head, *lines]))
    calibration = calibrate(
        CalibrationRequest(logs=["log.csv"], hardware=test.hardware, fabric=test.fabric)
    )
    write_hardware(calibration, Path("mine.toml").absolute())
    sizes = dict.fromkeys(f"{row.size:.0f}" for row in test.rows)
    node = f"--gpus-per-node {test.ranks // test.nodes} --inter-bandwidth {test.card / 1e9}GB/s"
    node = node if test.nodes > 1 else ""
    times = predicted(cli, test.operation, test.ranks, ",".join(sizes), node)
    by_size = dict(zip(map(float, sizes), times, strict=True))
    errors = [abs(by_size[row.size] / row.time - 1.0) for row in test.rows]
    fitted = np.abs(calibration.fit.after / calibration.rows.time - 1.0)
    assert np.mean(errors) == pytest.approx(np.mean(fitted), rel=1e-6)
    assert np.median(errors) < 0.2


@pytest.mark.thorough
def test_times_at_other_sizes(cli: Runner, logs: str) -> None:
    record = json.loads(cli(f"calibrate {logs} --at 3MiB,96MiB --json").out)
    assert [len(point["predicted_time_s"]) for point in record["at"]] == [2, 2, 2]
    model = Model(rows_of_groups(GROUPS, (3 * 2.0**20, 96 * 2.0**20)), machine_for("dgx-h100"))
    times = [time for point in record["at"] for time in point["predicted_time_s"]]
    assert times == pytest.approx(model.times(TRUE).tolist(), rel=0.06)


@pytest.mark.thorough
def test_strict_is_an_exit_code(cli: Runner) -> None:
    group = ("all_reduce", 8, 1)
    for name, share, code in (("fine.log", 0.693, 0), ("slow.log", 0.4, 1)):
        true = {"nvls_efficiency": share, "channel_efficiency": share}
        Path(name).write_text(log_text(timed([group], true), group))
        assert cli(f"calibrate {name}").code == 0
        assert cli(f"calibrate {name} --strict", fine=code == 0).code == code


@pytest.mark.thorough
def test_records(cli: Runner, logs: str) -> None:
    rows = cli(f"calibrate {logs} --csv").rows
    assert len(rows) == len(GROUPS) * len(SIZES)
    record = json.loads(cli(f"calibrate {logs} --json --placement both").out)
    assert len(record["rows"]) == 2 * len(rows)
    fitted = {constant["name"]: constant["fitted"] for constant in record["constants"]}
    assert fitted["channel_efficiency"] == pytest.approx(TRUE["channel_efficiency"], rel=0.1)
    assert fitted["nvls_efficiency"] == pytest.approx(TRUE["nvls_efficiency"], rel=0.1)
    assert [verdict["collective"] for verdict in record["verdicts"]] == [
        name for name, _, _ in GROUPS
    ]


@pytest.mark.thorough
def test_nothing_is_overwritten(cli: Runner, logs: str) -> None:
    for name in ("mine.toml", "rows.nc", "outputs/calibrate.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("mine")
    for options in ("--write mine.toml", "--output rows.nc", "--plot"):
        assert "exists already" in cli.refused(f"calibrate {logs} {options}")
    assert Path("mine.toml").read_text() == "mine"
    cli(f"calibrate {logs} --write mine.toml --overwrite")
    assert load_hardware("mine.toml").name == "mine"


def test_slow_links_and_odd_sizes_are_told(cli: Runner) -> None:
    group = ("all_reduce", 8, 1)
    rows = timed([group], {"channel_efficiency": 0.4, "nvls_efficiency": 0.35})
    rows.time[8] *= 3.0
    Path("slow.log").write_text(log_text(rows, group))
    screen = cli("calibrate slow.log").out.splitlines()
    assert screen[0].startswith("UNHEALTHY: sizes out of line, slow links: all_reduce of 8 ranks")
    assert sum(row.endswith("  SLOW") for row in screen) == 1
    assert len(screen) <= 40
    assert screen[-1].startswith("More: --show fit,rows,sources")
    out = cli("calibrate slow.log --show rows,sources").out
    assert "slow.log all_reduce 8: sizes out of line, slow links" in out
    assert "times slower than" in out
    assert "curves of the same operation, ranks, nodes and network" in out
    assert "nccl-collectives" in out


def test_wrong_results_are_told_and_left_out(cli: Runner) -> None:
    group = ("all_reduce", 8, 1)
    text = log_text(timed([group], {}), group).replace("       0\n", "       7\n", 1)
    text = text.replace("       0  ", "       7  ", 1)
    Path("wrong.log").write_text(text)
    out = cli("calibrate wrong.log").out
    assert "rows with wrong results, left out of the fit: 1" in out
    assert "all_reduce of 1 KiB out-of-place: 7 wrong elements" in out


@pytest.mark.parametrize(("line", "said"), examples(__file__, "faults_are_one_line"))
def test_faults_are_one_line(cli: Runner, line: str, said: str) -> None:
    group = ("all_reduce", 8, 1)
    Path("a.log").write_text(log_text(timed([group], {}), group))
    (line,) = cli.refused(line).splitlines()
    assert said in line
