"""Verdicts by row and by the log's own machine: what a median hides, and who is compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sweeps.calibration.device import machine_of
from sweeps.calibration.model import (
    Given,
    Model,
    PlacedTest,
    Rows,
    cases_of,
    machine_for,
    rows_of,
)
from sweeps.calibration.normal import (
    HEALTHY,
    OUT_OF_LINE,
    STRANGER,
    WRONG_RESULTS,
    highs_of,
    peers_of,
    published,
    verdict_of,
)
from sweeps.calibration.odd import NEIGHBOURS, PREDICTION, OddRow, slow_rows, wrong_rows
from sweeps.calibration.table_log import read_table_log
from sweeps.calibration.text_log import read_text_log
from tests.calibrate.simulated import log_text, rows_of_groups, timed
from tests.cli_runner import Runner
from tests.tables import examples

GROUP = ("all_reduce", 8, 1)
H100 = machine_for("dgx-h100")
ROWS = timed([GROUP], {}, noise=0.01)


def odd_of(rows: Rows) -> list[tuple[float, str]]:
    """Return the sizes that are out of line, and of what."""
    cases = case_of(log_text(rows, GROUP))
    (peer,) = peers_of(cases, rows, H100)
    odd_rows = slow_rows(rows, rows.time / (peer.times / peer.ratios), highs_of(peer, published()))
    return [(one.size, one.kind) for one in odd_rows.get(0, [])]


def case_of(text: str) -> list[PlacedTest]:
    return cases_of(read_text_log(Path("a.log"), text).tests, H100)


def slower(factor: float, where: slice) -> Rows:
    by = np.ones(len(ROWS))
    by[where] = factor
    return replace(ROWS, time=ROWS.time * by)


@pytest.mark.parametrize(
    ("factor", "where"),
    [
        (860.0, slice(12, 13)),
        (50.0, slice(11, 14)),  # 2, 4 and 8 MiB
        (2.6, slice(0, 1)),
        (2.6, slice(22, 23)),
        (3.0, slice(16, 23)),
        (6.0, slice(4, 11)),
    ],
)
def test_slow_sizes_are_told(factor: float, where: slice) -> None:
    sizes = {size for size, _ in odd_of(slower(factor, where))}
    assert {*ROWS.message_bytes[where].tolist()} & sizes
    if factor > 2.6:
        assert {*ROWS.message_bytes[where].tolist()} == sizes


def test_a_common_curve_has_none() -> None:
    assert odd_of(ROWS) == []
    assert odd_of(slower(1.3, slice(10, 12))) == []


@pytest.mark.thorough
def test_of_published_curves_two_have_some() -> None:
    """One with milliseconds at 32 KiB, one with 60 us at 32 B: both as they were printed."""
    tests = read_table_log("nccl-collectives")
    told = []
    for name in dict.fromkeys(test.hardware for test in tests):
        machine = machine_for(name)
        cases = cases_of([one for one in tests if one.hardware == name], machine)
        rows = rows_of(cases, ("out-of-place",))
        ratios, highs = np.ones(len(rows)), np.ones(len(rows))
        for index, peer in enumerate(peers_of(cases, rows, machine)):
            positions = np.flatnonzero(rows.case == index)
            at = np.searchsorted(peer.sizes, rows.message_bytes[positions])
            ratios[positions] = rows.time[positions] / (peer.times / peer.ratios)[at]
            others = [one for one in published() if one.name != peer.name]
            highs[positions] = highs_of(peer, others)[at]
        told += [cases[slow_row].test.part for slow_row in slow_rows(rows, ratios, highs)]
    assert sorted(told) == ["dgx-cloud", "ml-engineering"]


@pytest.mark.thorough
def test_wrong_elements_are_the_first_thing_said(cli: Runner) -> None:
    text = log_text(ROWS, GROUP).replace("       0  ", "    1000  ", 1)
    Path("wrong.log").write_text(text)
    result = cli("calibrate wrong.log --strict", fine=False)
    assert result.code == 1
    assert result.out.startswith("UNHEALTHY: wrong results: all_reduce of 8 ranks, 1 KiB: 1,000 ")
    every = "\n".join(
        line.replace("       0  ", "       3  ").removesuffix("       0") + "       3"
        if "float" in line
        else line
        for line in text.splitlines()
    )
    Path("all.log").write_text(every)
    result = cli("calibrate all.log --strict", fine=False)
    assert result.code == 1
    assert result.out.startswith("UNHEALTHY: wrong results")


@pytest.mark.thorough
def test_a_slow_size_is_not_healthy(cli: Runner) -> None:
    Path("one.log").write_text(log_text(slower(860.0, slice(12, 13)), GROUP))
    result = cli("calibrate one.log --strict", fine=False)
    assert result.code == 1
    assert result.out.startswith("UNHEALTHY: sizes out of line: all_reduce of 8 ranks, 4 MiB: ")


def test_words_of_rows() -> None:
    (case,) = case_of(log_text(ROWS, GROUP).replace("       0  ", "       1  ", 1))
    (peer,) = peers_of([case], ROWS, H100)
    wrong = wrong_rows(case, ("out-of-place",))
    assert [row.text for row in wrong] == ["1 KiB: 1 wrong element (line 18)"]
    odd = [*wrong, OddRow(20, 4096.0, NEIGHBOURS, 3.0)]
    verdict = verdict_of(case, peer, published(), odd)
    assert verdict.words == (WRONG_RESULTS, OUT_OF_LINE)
    assert not verdict.healthy
    assert verdict_of(case, peer, published()).words == (HEALTHY,)
    slow = replace(peer, times=3.0 * peer.times, ratios=3.0 * peer.ratios)
    far = OddRow(40, 2.0**30, PREDICTION, 2.5)
    assert verdict_of(case, slow, published(), [far]).odd == ()
    assert verdict_of(case, peer, published(), [far]).words == (OUT_OF_LINE,)
    strange = verdict_of(replace(case, stranger="NVIDIA B200"), peer, published())
    assert strange.words == (STRANGER,)
    assert not strange.healthy


# The log's own machine.


@pytest.mark.parametrize(("device", "machine"), examples(__file__, "machines_of_devices"))
def test_machines_of_devices(device: str, machine: str) -> None:
    assert machine_of(device) == machine
    if machine:
        assert machine_for(machine).name == machine


@pytest.mark.thorough
def test_the_gpu_picks_the_machine(cli: Runner) -> None:
    text = log_text(timed([GROUP], {}, "dgx-b200"), GROUP).replace("H100 80GB HBM3", "B200")
    Path("b200.log").write_text(text)
    result = cli("calibrate b200.log --strict")
    assert result.out.startswith("HEALTHY: 1 curve on dgx-b200")
    assert "Defaults: --hardware dgx-b200 (as the logs' GPUs)" in result.out
    result = cli("calibrate b200.log --hardware dgx-h100 --strict", fine=False)
    assert result.code == 1
    assert result.out.startswith(
        "UNKNOWN: the GPUs of b200.log are NVIDIA B200; --hardware is dgx-h100: give "
    )
    Path("v100.log").write_text(text.replace("B200", "V100"))
    assert (
        "its GPUs are NVIDIA V100, which no machine here has; give --hardware FILE"
        in cli.refused("calibrate v100.log")
    )
    Path("h100.log").write_text(log_text(ROWS, GROUP))
    result = cli("calibrate b200.log b200.log h100.log v100.log --strict", fine=False)
    assert result.code == 1
    assert "left out: h100.log, line 1: its GPUs are NVIDIA H100 80GB HBM3, and others'" in (
        " ".join(result.out.split())
    )


# The network, and NVLS.


@pytest.mark.thorough
def test_the_network_stands_in_the_verdict(cli: Runner) -> None:
    group = ("all_reduce", 16, 2)
    rows = timed([group], {})
    given = Given(inter_bandwidth=25e9, nics_per_node=4)
    half = Model(rows, machine_for("dgx-h100"), given=given).times()
    Path("half.log").write_text(log_text(replace(rows, time=half), group))
    result = cli("calibrate half.log --strict", fine=False)
    assert result.code == 1
    assert "(infiniband, 8 x 50 GB/s a node)" in " ".join(result.out.split())
    network = "--nics-per-node 4 --inter-bandwidth 200Gbit/s --software nccl"
    result = cli(f"calibrate half.log --strict {network}")
    assert result.out.startswith("HEALTHY: 1 curve on dgx-h100 (infiniband, 4 x 25 GB/s a node)")
    Path("one.log").write_text(log_text(ROWS, GROUP))
    for option in ("--nics-per-node 4", "--inter-bandwidth 25GB/s"):
        result = cli(f"calibrate one.log {option}", fine=False)
        assert "changes nothing: no log is of several nodes" in result.err


def test_bad_networks_are_refused(cli: Runner) -> None:
    Path("one.log").write_text(log_text(ROWS, GROUP))
    for option in ("--inter-bandwidth 0", "--inter-bandwidth fast", "--software ncll"):
        assert len(cli.refused(f"calibrate one.log {option}").splitlines()) == 1


def test_a_rate_that_fits_no_nvls_is_said_to() -> None:
    rows = rows_of_groups([GROUP])
    rings = replace(rows, forced=np.array(["no nvls"] * len(rows)))
    rings = replace(rings, time=Model(rings, H100).times())
    text = log_text(rings, GROUP)
    (case,) = case_of(text)
    (peer,) = peers_of([case], replace(rings, forced=rows.forced), H100)
    verdict = verdict_of(case, peer, published())
    assert not verdict.healthy
    assert "fits a run without NVLS (1.00 times" in verdict.remark
    (case,) = case_of(f"-x NCCL_ALGO=allreduce:^NVLS\n{text}")
    assert "compared with without" not in " ".join(case.notes)
    (peer,) = peers_of([case], rings, H100)
    verdict = verdict_of(case, peer, published())
    assert verdict.words == (HEALTHY,)
    assert not verdict.remark


def test_protocols_are_compared_with_themselves() -> None:
    rows = rows_of_groups([GROUP])
    times = {
        word: Model(replace(rows, forced=np.array([word] * len(rows))), H100).times()
        for word in ("", ";simple", "ring|tree;ll", "ring")
    }
    small, large = 0, -1
    assert times[";simple"][small] > times[""][small]
    assert times[";simple"][large] == times[""][large]
    assert times["ring|tree;ll"][large] > 1.5 * times["ring"][large]
    assert times["ring|tree;ll"][small] == pytest.approx(times["ring"][small], rel=0.01)


def test_nothing_is_normal_beyond_the_wires() -> None:
    rows = timed([("all_reduce", 16, 2)], {})
    text = log_text(rows, ("all_reduce", 16, 2))
    (case,) = case_of(text)
    (peer,) = peers_of([case], rows, H100)
    band = verdict_of(case, peer, published()).bands["bandwidth"]
    assert 0.5 < peer.fastest("bandwidth") <= band.low
