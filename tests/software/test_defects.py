"""Faults that were found once on machines' fabrics, each by the command that showed it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli_runner import Runner
from tests.tables import examples

US = 1e-6
POWERS = range(9, 34)
COLUMNS = "collective,ranks,nodes,message_bytes,time_us"


def record(cli: Runner, arguments: str) -> dict[str, Any]:
    (found,) = cli(f"collective {arguments} --json").records
    return found


def seconds(cli: Runner, arguments: str) -> float:
    return float(record(cli, arguments)["latency_s"])


@pytest.mark.parametrize(
    ("arguments", "network", "low", "high"),
    examples(__file__, "fabrics"),
)
def test_a_machine_knows_its_fabric(
    cli: Runner, arguments: str, network: str, low: float, high: float
) -> None:
    assert low < seconds(cli, arguments) < high
    line = cli(f"collective {arguments}").out.splitlines()[1]
    assert line.startswith(f"  on a {network} network, ")


def test_an_exchange_is_by_its_schedule(cli: Runner) -> None:
    """(g-1)(a1 + M/NB1) + (N-g)(a2 + M/NB2), and not as many rounds more again."""
    arguments = (
        "--op all_to_all --topology hierarchical --N 8 --gpus-per-node 4 --M 32MiB --algorithm nccl"
        " --intra-bandwidth 351e9 --inter-bandwidth 42.5e9 --software none"
    )
    assert seconds(cli, arguments) == pytest.approx(443.8 * US, abs=0.05 * US)


def test_a_ring_of_nodes_pays_its_path(cli: Runner) -> None:
    """Two nodes of eight: 28 latencies inside and 2 between, not 30 of the slower."""
    line = "--topology hierarchical --N 16 --gpus-per-node 8 --M 1KiB --software none --algorithm"
    assert seconds(cli, f"{line} ring_path") == pytest.approx(31.6 * US, rel=0.002)
    assert seconds(cli, f"{line} flat_ring_channels") > 80 * US


@pytest.mark.parametrize(
    ("arguments", "low", "high"),
    [("--N 8 --hardware dgx-h100", 465e9, 495e9), ("--N 72 --hardware gb200-nvl72", 8e11, 1e12)],
)
def test_nvls_reaches_what_is_measured(
    cli: Runner, arguments: str, low: float, high: float
) -> None:
    actual_record = record(cli, f"{arguments} --M 8GiB --algorithm nccl")
    assert actual_record["algorithm"] == "nvls"
    assert low < actual_record["busbw_bytes_per_s"] < high


@pytest.mark.parametrize(
    ("operation", "passes"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)]
)
def test_a_switch_that_streams_is_paid_a_pass(cli: Runner, operation: str, passes: int) -> None:
    """NCCL's 25 us of NVLS are paid once for reading and writing, not for each chunk."""
    line = f"--op {operation} --N 8 --hardware dgx-h100 --software none --algorithm nvls"
    share = {1: 1.0, 2: 9.0 / 8.0}[passes]
    for size in (0, 2**20, 2**33):
        exact = passes * 12.5 * US + share * size / 450e9
        for chunks in ("", "--phase-chunks 64"):
            assert seconds(cli, f"{line} --M {size} {chunks}") == pytest.approx(exact)


# Logs of straight lines: ranks, the time of no bytes in us, and bytes a us.
GATHER = ((8, 30.0, 8 / 7 * 6e5),)
REDUCE = ((8, 30.0, 2.4e5), (16, 45.0, 2.2e5), (32, 70.0, 1.9e5))


def log(operation: str, lines: tuple[tuple[int, float, float], ...]) -> dict[int, list[float]]:
    """Write a log of straight lines; return its times [s] by ranks."""
    times = {n: [start + 2**power / rate for power in POWERS] for n, start, rate in lines}
    rows = [
        f"{operation},{n},{n // 8},{2**power},{time}"
        for n, each in times.items()
        for power, time in zip(POWERS, each, strict=True)
    ]
    Path("log.csv").write_text("\n".join([COLUMNS, *rows]))
    return {n: [time * US for time in each] for n, each in times.items()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("operation", "lines", "hardware", "most"),
    [("all_gather", GATHER, "dgx-b200", 0.03), ("all_reduce", REDUCE, "dgx-h100", 0.06)],
)
def test_straight_lines_are_calibrated(
    cli: Runner,
    operation: str,
    lines: tuple[tuple[int, float, float], ...],
    hardware: str,
    most: float,
) -> None:
    """Every size is met, by the commands as by the fit, with the same algorithms."""
    measured = log(operation, lines)
    result = cli(f"calibrate log.csv --hardware {hardware} --verbose --write mine.toml")
    assert result.out.startswith(("HEALTHY: ", "UNHEALTHY: "))
    assert "\nverdict against published curves" in result.out
    assert "\nfitted: launch" in result.out
    for ranks, times in measured.items():
        sizes = ",".join(str(2**power) for power in POWERS)
        line = f"collective --op {operation} --N {ranks} --M {sizes} --hardware mine.toml --csv"
        found = np.array([float(row["latency_s"]) for row in cli(line).rows])
        errors = np.abs(found / times - 1.0)
        assert np.mean(errors) < most
        # One message of a GiB, which was 6.16 ms where the log has 4.37.
        assert errors[-4] < 0.1


@pytest.mark.parametrize(("powers", "kept"), [(range(9, 17), "rate"), (range(28, 34), "launch")])
def test_logs_of_one_end_are_read(cli: Runner, powers: range, kept: str) -> None:
    """Short messages alone say nothing of rates, and long ones nothing of the launch."""
    rows = [f"all_gather,8,1,{2**power},{60 + 2**power / 5e5}" for power in powers]
    Path("log.csv").write_text("\n".join([COLUMNS, *rows]))
    output = cli("calibrate log.csv --hardware dgx-b200 --show fit").out
    assert f"\n  {kept}: the profile's; " in output


def test_an_unhealthy_log_is_told_and_an_exit_code(cli: Runner) -> None:
    log("all_reduce", ((8, 90.0, 1.2e5),))
    for strict, code in (("", 0), (" --strict", 1)):
        result = cli(f"calibrate log.csv --hardware dgx-h100{strict}", fine=False)
        assert result.code == code
        assert result.out.startswith("UNHEALTHY: slow")
        assert re.search(r"\n  log.csv all_reduce 8 .*  SLOW\n", result.out)


def test_a_long_line_of_json_behind_a_remark_is_read_once(cli: Runner) -> None:
    Path("a.json").write_text("# by hand\n" + json.dumps({"results": [], "x": "time " * 100_000}))
    result = cli("calibrate a.json --hardware dgx-h100", fine=False)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "'results' holds no times" in result.err


@pytest.mark.parametrize("line", examples(__file__, "names_too_long_for_a_file_are_a_fault"))
def test_names_too_long_for_a_file_are_a_fault(cli: Runner, line: str) -> None:
    log("all_gather", GATHER)
    result = cli(f"calibrate {line.format('a' * 300)}", fine=False)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)


def test_shared_and_oversubscribed_cards_take_their_time(cli: Runner) -> None:
    """Where the cards bind, a message takes as many times longer as ranks share one."""
    common = "--N 64 --M 64GiB --hardware dgx-h100 --op all_gather"
    for option in ("--ranks-per-nic", "--leaf-nodes 1 --oversubscription"):
        times = [seconds(cli, f"{common} {option} {by}") for by in (1, 2, 4, 8)]
        cards = 63 / 64 * 2**36 / (400e9 * 0.91)
        for by, time in zip((2, 4, 8), times[1:], strict=True):
            assert cards * by < time < 1.1 * cards * by
        assert times == sorted(times)


def test_faster_links_of_a_machine_without_a_switch_are_those_of_its_pairs(cli: Runner) -> None:
    """Of 4 GiB, half the time; of two GPUs, the link that is stated rules."""
    asked = "--collective all-to-all --message-size 4GiB --hardware mi300x"
    shipped, twice = (
        seconds(cli, f"{asked} --gpus 8 --intra-bandwidth {rate}")
        for rate in ("448GB/s", "896GB/s")
    )
    assert seconds(cli, f"{asked} --gpus 8") == shipped
    assert 0.5 < twice / shipped < 0.55
    pairs = [seconds(cli, f"{asked} --gpus 2 {more}") for more in ("", "--pair-bandwidth 64GB/s")]
    assert pairs[0] == pairs[1]
