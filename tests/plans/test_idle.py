"""What no plan that is searched can use is refused; what one of them can, and defaults, are not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.errors import InputError
from sweeps.search.idle import check_used
from sweeps.search.request import read_request
from sweeps.spec.units import to_toml
from tests.cli_runner import Runner
from tests.tables import examples, keyed

DENSE = "plan --model llama3-8b --gpus 8 -b 64 --hardware dgx-h100"
BUY = "buy --model llama3-8b --tokens 1T --days 30 --hardware dgx-h100 -b 512"
ASKED: dict[str, Any] = keyed(
    "model=llama3-8b gpus=8 global_batch_size=64 sequence_length=4096 hardware=dgx-h100"
)
ROUTED: dict[str, Any] = {**ASKED, "model": "qwen3-30b-a3b", "gpus": 16}


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(("line", "flag", "why"), examples(__file__, "idle", BUY=BUY, DENSE=DENSE))
def test_what_no_plan_can_use_is_refused(
    capsys: pytest.CaptureFixture[str], line: str, flag: str, why: str
) -> None:
    ran = Runner(capsys)(line, fine=False)
    assert ran.code == 2
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert flag in ran.err
    assert why in ran.err


@pytest.mark.thorough
def test_python_refuses_it_too() -> None:
    with pytest.raises(InputError, match=r"^--imbalance 1.3: changes nothing"):
        sweeps.plan(**ASKED, imbalance=1.3)


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(
    ("asked", "more", "run"),
    [
        (ASKED, {"context_parallel": "all_gather"}, False),  # searched with cp above 1
        (ASKED, {"context_parallel": "ring", "cp": 1}, False),  # what is taken anyway
        (ASKED, {"cp_overlap": 0.8, "cp": 1}, False),
        (ASKED, {"head_layer_weight": 0, "pp": 1}, False),
        (ASKED, {"comm_sms": 20}, False),  # ZeRO 3 is slowed down by it
        (ASKED, {"recompute": "selective", "recompute_mlp": 1}, False),
        (ASKED, {"capital_cost": 30000, "electricity_price": 1e-7}, False),
        (ASKED, {"sliding_window": 1024}, False),
        (ASKED, {"failure_rate": 1e-9}, True),
        (ROUTED, {"expert_load_imbalance": 1.3, "etp": 1}, False),
        (
            {**ROUTED, "model": ["llama3-8b", "qwen3-30b-a3b"]},
            {"expert_load_imbalance": 1.3},
            False,
        ),
    ],
)
def test_what_a_plan_can_use_and_what_is_taken_anyway_is_fine(
    asked: dict[str, Any], more: dict[str, Any], run: bool
) -> None:
    request = read_request({**asked, **more})
    check_used(request.points(), {name: str(value) for name, value in more.items()}, run=run)


IDLE = {
    "title": "Idle",
    "quantities": ["time"],
    "axes": {"ranks": [8, 16]},
    "constants": {"message_bytes": "1 GB", "chunks": 4},
}


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_spec_says_which_constants_change_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: str
) -> None:
    path = tmp_path / "idle.toml"
    path.write_text(to_toml(IDLE))
    line = f"run {path} --no-plot --output {tmp_path / 'x.nc'} {more}"
    ran = Runner(capsys)(line, fine=False)
    assert ran.code == 0
    assert "given, but nothing here depends on it: chunks\n" in ran.out + ran.err


def test_python_warns_of_constants_that_change_nothing() -> None:
    with pytest.warns(UserWarning, match="nothing here depends on it: chunks"):
        sweeps.run(IDLE)
    with pytest.warns(UserWarning, match="nothing here depends on it: chunks"):
        sweeps.sweep("time", ranks=8, message_bytes=1e9, chunks=4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more", ["--count-head-as 0", "--count-embedding-as 0", "--comm-sms 20 --framework torchtitan"]
)
def test_an_analysis_takes_what_acts_and_what_is_taken_anyway(cli: Runner, more: str) -> None:
    cli(f"analysis --model llama3-8b --gpus 8 --seq-len 4096 {more}")


def test_a_latency_of_flat_networks_beside_a_hierarchy_acts(
    recwarn: pytest.WarningsRecorder,
) -> None:
    rows = [
        sweeps.sweep("time", ranks=[4, 16], latency=latency, message_bytes=1e6).time.values
        for latency in (1e-6, 2e-6)
    ]
    assert rows[0][0] < rows[1][0]
    assert rows[0][1] == rows[1][1]
    assert not recwarn


STEP = keyed("model=llama3-8b world_size=16 pp=2 global_batch_size=32 sequence_length=4096")


def test_python_warns_of_labels_that_change_nothing() -> None:
    with pytest.warns(UserWarning, match="nothing here depends on it: tp_mechanism"):
        sweeps.sweep("step_time", **STEP, tp=1, tp_mechanism="userbuffers")


@pytest.mark.parametrize(
    "more",
    [
        {"tp": 4, "tp_mechanism": "userbuffers"},
        {"tp": [1, 4], "tp_mechanism": "userbuffers"},
        {"tp": 1, "context_parallel": "ring"},  # What is taken anyway
    ],
)
def test_labels_that_act_somewhere_or_are_taken_anyway_are_fine(more: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweeps.sweep("step_time", **STEP, **more)


def test_a_joint_sweep_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweeps.sweep(["time"], ranks=[8, 16], message_bytes=1e9)
        sweeps.sweep(
            ["time", "step_time"],
            ranks=[8, 16],
            message_bytes=1e9,
            tp=[1, 2],
            model="llama3-8b",
            global_batch_size=32,
            sequence_length=4096,
        )
