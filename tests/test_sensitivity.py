"""What each constant moves an answer by: against cases known by hand, and against sweeps."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sweeps
from sweeps.error_bar import points_of
from sweeps.errors import InputError
from sweeps.origin import ASSUMED, GIVEN, SPECIFICATION
from tests.cli_runner import Runner
from tests.tables import keyed

# Of a ring of 8 ranks without latency: time = 2 (8 - 1)/8 M/B.
PURE = {"topology": "ring", "ranks": 8, "message_bytes": 1e9, "latency": 0.0, "bandwidth": 50e9}
STEP = keyed(
    "model=llama3-8b hardware=dgx-h100 world_size=16 tp=4 pp=2 global_batch_size=32 "
    "sequence_length=4096 zero_stage=1"
)


def test_a_linear_case_is_the_one_known_by_hand() -> None:
    table = sweeps.sensitivity(**PURE)
    of = table.sel(constant="bandwidth")
    assert table.time.item() == 2 * 7 / 8 * 1e9 / 50e9
    assert of.lower_change.item() == pytest.approx(1 / 0.9 - 1, rel=1e-12)
    assert of.upper_change.item() == pytest.approx(1 / 1.1 - 1, rel=1e-12)
    # What is asked, and whole numbers, are no constants that are known to some percent.
    assert not {"message_bytes", "ranks"} & {*table.constant.values.tolist()}
    # A tenth of nothing is nothing.
    of = table.sel(constant="latency")
    assert np.isnan(of.lower_change.item())
    assert np.isnan(of.upper_change.item())


def _most(dataset: xr.Dataset) -> list[float]:
    most = np.fmax(abs(dataset.lower_change), abs(dataset.upper_change)).to_numpy()
    return [-1.0 if np.isnan(row) else float(row) for row in most]


@pytest.mark.thorough
def test_a_step_is_sorted_has_origins_holes_and_what_a_sweep_gives() -> None:
    table = sweeps.sensitivity(**STEP, inter_bandwidth=50e9)
    most = _most(table)
    assert most == sorted(most, reverse=True)
    kinds = {n: table.kind.sel(constant=n).item() for n in table.constant.values.tolist()}
    assert kinds["inter_bandwidth"] == GIVEN
    assert kinds["elementwise_factor"] == ASSUMED
    assert not {"sequence_length", "weight_bytes", "zero_stage", "pp"} & kinds.keys()
    # One thing has one name: the best product's rate and the share of it that is sustained.
    assert len({"peak_measured_matmul_flops", "matmul_efficiency"} & kinds.keys()) == 1
    assert kinds["intra_bandwidth"] == SPECIFICATION
    assert "stas00" in table.origin.sel(constant="intra_bandwidth").item()
    # What a model is isn't varied.
    assert not {"layers", "hidden_size"} & kinds.keys()
    # Each answer is that of a sweep with the constant at that value.
    for name, side in (("memory_bandwidth", "lower"), ("intra_bandwidth", "upper")):
        of = table.sel(constant=name)
        there = {**STEP, name: of[f"{side}_value"].item()}
        alone = sweeps.sweep("step_time", **there).step_time.item()
        assert of[f"{side}_answer"].item() == alone
    assert table.step_time.item() == sweeps.sweep("step_time", **STEP).step_time.item()


def test_a_constant_moves_the_answer_as_if_it_were_given() -> None:
    asked = keyed(
        "topology=hierarchical ranks=64 message_bytes=1e8 hardware=dgx-h100 software=nccl"
    )
    table = sweeps.sensitivity(**asked)
    # An oversubscription that is given counts the leaf switches of the group.
    known = table.constant.values[np.isfinite(table.upper_answer.values)].tolist()
    moved = [*known[:3], "oversubscription"]
    for name in moved:
        of = table.sel(constant=name)
        alone = sweeps.sweep("time", **{**asked, name: of.upper_value.item()}).time.item()
        assert of.upper_answer.item() == alone, name


def test_points_are_within_their_domain() -> None:
    def values(name: str, value: float) -> tuple[float, float]:
        lower, upper = points_of(name, value)
        return lower.value, upper.value

    assert values("bandwidth", 4.0) == (3.6, 4.4)
    lower, upper = points_of("nic_efficiency", 0.95)
    assert lower.value == 0.9 * 0.95
    assert (upper.value, upper.note) == (1.0, "the limit, 1")
    assert points_of("nic_efficiency", 1.0)[1].note == "at its limit"
    assert points_of("memory_efficiency", 0.92)[1].value == 1.0


def test_what_has_no_answer_or_several_is_refused() -> None:
    with pytest.raises(InputError, match="one value for each argument"):
        sweeps.sensitivity(**{**PURE, "ranks": [8, 16]})
    with pytest.raises(InputError, match="is unknown"):
        sweeps.sensitivity("tyme", **PURE)
    with pytest.raises(InputError, match="is given"):
        sweeps.sensitivity("ranks", **PURE)
    with pytest.raises(InputError, match="shares of it aren't defined"):
        sweeps.sensitivity("latency_time", **PURE)


@pytest.mark.thorough
def test_the_commands_tell_it_first_and_write_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runner = Runner(capsys)
    line = "collective --topology ring --N 8 --M 1e9 --latency 0s --bandwidth 50GB/s --sensitivity"
    output = runner(line).out.splitlines()
    assert output[0].startswith(
        "time is 35 ms (band not known); bandwidth, 50 GB/s, moves it most:"
    )
    of_machine = runner("collective --N 16 --M 1GiB --sensitivity").out
    assert of_machine.startswith("time is 4.563 ms (-10/+14 %); intra_bandwidth, 450 GB/s, moves")
    rows = runner(f"{line} --csv").rows
    (row,) = (row for row in rows if row["constant"] == "bandwidth")
    assert float(row["lower_change"]) == pytest.approx(1 / 9)
    assert row["kind"] == "given"
    path = tmp_path / "moved.nc"
    runner(f"{line} algbw --output {path}")
    with sweeps.open(path) as stored:
        assert stored.lower_change.sel(constant="bandwidth").item() == pytest.approx(-0.1)
    step = "analysis --model llama3-8b --num-gpus 16 --tp 4 --pp 2 --global-batch 32"
    out = runner(f"{step} --seq-length 4096 --sensitivity peak_memory").out
    assert re.match(r"peak_memory is [\d.]+ GB \(-8/\+10 %\)", out)
    assert "whole numbers, sizes and formats of numbers, and the shapes of llama3-8b" in " ".join(
        out.split()
    )
    assert "--sensitivity" in runner.refused(
        f"{step} --seq-length 4096 --sensitivity --timeline x.json"
    )


def test_the_figure_has_a_bar_a_constant_the_longest_on_top(tmp_path: Path) -> None:
    from sweeps.plots.data import view_of
    from sweeps.plots.defaults import default_figures
    from sweeps.plots.draw import resolved
    from sweeps.plots.stacks import draw_tornado

    table = sweeps.sensitivity(**PURE)
    figure = resolved(table, default_figures(table)[0])
    canvas = draw_tornado(figure, view_of(table, {}))
    (axes,) = canvas.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["bandwidth 50 GB/s"]
    texts = [text.get_text() for text in axes.texts]
    assert texts[:2] == ["-9.09 %", "+11.1 %"]
    assert "What constants move the time by" in [text.get_text() for text in canvas.texts]


@pytest.mark.thorough
def test_a_plan_s_recommendation_is_ranked_again_with_each_constant_moved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = keyed(
        "model=llama3-8b hardware=dgx-h100 gpus=8 global_batch_size=64 sequence_length=4096 "
        "recompute=none schedule=one_f_one_b cp=1 zero_stage=1"
    )
    plans = sweeps.plan(**asked)
    sensitivity = plans.sensitivity
    assert plans.recommended is not None
    assert plans.search.answer is not None
    assert sensitivity.step_time.item() == plans.search.answer.main[0]["step_time"]
    # What was given, and what a plan chooses, isn't moved.
    assert not {"global_batch_size", "world_size", "tp", "layers"} & {
        *sensitivity.constant.values.tolist()
    }
    # The best of those kept is what a search gives with the constant at that value.
    of = sensitivity.sel(constant="intra_bandwidth")
    answer = sweeps.plan(**asked, intra_bandwidth=of.lower_value.item()).search.answer
    assert answer is not None
    least = of.lower_answer.item() / (1.0 + of.lower_loss.item())
    assert least == pytest.approx(min(answer.search.values), rel=1e-12)
    line = "plan --model llama3-8b --gpus 8 -b 64 --recompute none --cp 1 --zero-stage 1 --pp 1"
    path = tmp_path / "plan.nc"
    output = Runner(capsys)(f"{line} --sensitivity --output {path}").out
    with sweeps.open(path) as stored:
        assert stored.lower_best.sel(constant="intra_bandwidth").item()
    assert "plans were ranked again, not searched again" in " ".join(output.split())
    assert Runner(capsys)(f"{line} --gpus 8,16 --sensitivity", fine=False).code == 2


@pytest.mark.thorough
@pytest.mark.parametrize(("hardware", "name", "gpus"), [("tpu-v5p", "step_latency", 64)])
def test_what_follows_from_a_plan_s_constant_follows(hardware: str, name: str, gpus: int) -> None:
    """Times of messages follow from a library's step."""
    asked = {
        "model": "llama3-8b",
        "hardware": hardware,
        "gpus": gpus,
        "global_batch_size": 2 * gpus,
        "sequence_length": 4096,
        "recompute": "full",
        "cp": 1,
        "tp": 1,
    }
    plans = sweeps.plan(**asked)
    best, of = plans.recommended, plans.sensitivity.sel(constant=name)
    assert best is not None
    numbers = ("pp", "micro_batch_size", "virtual_pipeline_size", "zero_stage")
    same = {number: best[number] for number in numbers}
    for side in ("lower", "upper"):
        value, labels = of[f"{side}_value"].item(), {"schedule": best.labels["schedule"]}
        answer = sweeps.plan(**{**asked, **same, **labels, name: value}).search.answer
        assert answer is not None
        assert of[f"{side}_answer"].item() == answer.search.values[0]
