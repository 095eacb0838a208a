"""The same collective operations on several ranks, and what isn't the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.traces.ranks import analyse_files
from sweeps.traces.skew import Skew
from tests.traces.make import GEMM, NCCL, call, kernel, launched, step, write

US = 1e-6
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GROUP = {"Collective name": "allreduce", "Group size": 2, "Process Group Name": "0"}


def matched(folder: Path, *ranks: list[dict[str, Any]], world: int = 2) -> tuple[Skew, list[str]]:
    paths = [
        write(folder / f"{k}.json", events, distributedInfo={"rank": k, "world_size": world})
        for k, events in enumerate(ranks)
    ]
    analysis = analyse_files(paths)
    assert analysis.skew is not None
    return analysis.skew, list(analysis.notes)


def test_the_last_rank_to_come_waits_least(tmp_path: Path) -> None:
    skew, notes = matched(
        tmp_path,
        [kernel(NCCL, 0, 100, **GROUP), kernel(NCCL, 200, 30, **GROUP)],
        [kernel(NCCL, 60, 40, **GROUP), kernel(NCCL, 180, 50, **GROUP)],
    )
    assert skew.matched == (2, 2)
    assert skew.unmatched == (0, 0)
    assert skew.duration == pytest.approx((130 * US, 90 * US))
    assert skew.transfer == pytest.approx((70 * US, 70 * US))
    assert skew.waiting == pytest.approx((60 * US, 20 * US))
    assert notes == []


def test_what_ran_at_different_times_is_not_the_same(tmp_path: Path) -> None:
    skew, notes = matched(tmp_path, [kernel(NCCL, 0, 10)], [kernel(NCCL, 10, 10)])
    assert skew.matched == (0, 0)
    assert skew.unmatched == (1, 1)
    assert notes == [
        "no collective operation was found on two ranks at one time: nothing says its skew"
    ]


def test_groups_and_kinds_are_kept_apart(tmp_path: Path) -> None:
    settings = {**GROUP, "Process Group Name": "1"}
    gather = {**GROUP, "Collective name": "_allgather_base"}
    skew, _ = matched(
        tmp_path,
        [kernel(NCCL, 0, 10, **GROUP), kernel(NCCL, 0, 50, 21, **settings)],
        [kernel(NCCL, 0, 10, **GROUP), kernel(NCCL, 0, 20, 21, **gather)],
    )
    assert skew.matched == (1, 1)


def test_sends_between_two_ranks_are_not_matched(tmp_path: Path) -> None:
    skew, _ = matched(tmp_path, [kernel(SEND, 0, 10)], [kernel(SEND, 0, 10)])
    assert skew.matched == (0, 0)


def test_an_annotation_names_the_operation(tmp_path: Path) -> None:
    """An all_to_all is made of sends; old files say so on the host alone."""

    def rank(at: float, name: str) -> list[dict[str, Any]]:
        span = {**step(1, 0, 9), "name": name, "ts": 4, "dur": 5}
        return [span, {**span, "ts": 0, "dur": 1}, *launched(SEND, 5, at, 50, 20, 1)]

    skew, notes = matched(
        tmp_path, rank(10, "nccl:all_to_all"), rank(30, "nccl:all_to_all"), world=4
    )
    assert skew.matched == (1, 1)
    assert skew.waiting == pytest.approx((0.0, 0.0))
    assert notes[0].startswith("2 of 4 ranks")
    assert notes[1].startswith("the traces don't name process groups")
    skew, _ = matched(tmp_path, rank(10, "nccl:send"), rank(30, "nccl:recv"))
    assert skew.matched == (0, 0)


def test_operations_are_matched_within_their_step(tmp_path: Path) -> None:
    """One rank's profile begins earlier: the first operations aren't each other's."""
    steps = [step(1, 0, 100), step(2, 100, 100)]
    one = [*steps, *launched(NCCL, 10, 20, 50, 20, 1), *launched(NCCL, 110, 120, 50, 20, 2)]
    other = [steps[1], *launched(NCCL, 130, 140, 30, 20, 5)]
    skew, _ = matched(tmp_path, one, other)
    assert skew.matched == (1, 1)
    assert skew.waiting == pytest.approx((20 * US, 0.0))


def test_a_rank_with_more_operations_is_not_guessed_at(tmp_path: Path) -> None:
    many = [kernel(NCCL, 20 * k, 15) for k in range(3)]
    skew, _ = matched(tmp_path, many, many[:2])
    assert skew.matched == (0, 0)


def test_ranks_are_sorted_or_numbered(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{rank}.json", [kernel(GEMM, 0, 10)], distributedInfo={"rank": rank})
        for rank in (5, 2)
    ]
    analysis = analyse_files(paths)
    assert analysis.numbers() == (2, 5)
    nameless = write(tmp_path / "none.json", [call(1, 2), kernel(GEMM, 0, 10)])
    analysis = analyse_files([paths[0], nameless])
    assert analysis.numbers() == (0, 1)
    assert "they are numbered in order" in analysis.notes[0]
    assert analyse_files([nameless]).numbers() == (0,)
