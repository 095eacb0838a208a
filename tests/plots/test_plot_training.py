"""Figures of training steps: memory, time and communication by part, as bars."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

import sweeps
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.plots.data import Subject, evenly, subject_of, view_of
from sweeps.plots.declare import check_figures
from sweeps.plots.defaults import default_figures
from sweeps.plots.draw import draw
from sweeps.plots.names import cell_names
from sweeps.plots.schema import known_parts, labelled, stacked
from sweeps.plots.stacks import Stacks, _end_text
from sweeps.plots.style import launched, region_colour
from tests.cli_runner import Runner
from tests.plots.drawing import canvas_of, faults_of, title_of
from tests.plots.training_datasets import CAPACITY, MEMORY, STEP, make_training
from tests.tables import examples

ONE = {"micro_batch_size": 1}


def lengths(canvas: Canvas, panel: int = 0) -> dict[str, dict[int, float]]:
    """Return the bars' lengths: by colour, then by place; stripes under ``over``."""
    found: dict[str, dict[int, float]] = {}
    for patch in canvas.axes[panel].patches:
        assert isinstance(patch, Rectangle)
        colour = mpl.colors.to_hex(patch.get_facecolor(), keep_alpha=True)
        colour = "over" if patch.get_hatch() == "////" else colour[:7]
        row = round(patch.get_y() + patch.get_height() / 2)
        found.setdefault(colour, {})[row] = patch.get_width()
    return found


def totals(canvas: Canvas, panel: int = 0) -> dict[int, float]:
    whole: dict[int, float] = {}
    for colour, bars in lengths(canvas, panel).items():
        for position, length in bars.items() if colour != "over" else ():
            whole[position] = whole.get(position, 0.0) + length
    return whole


def limits(canvas: Canvas, panel: int = 0) -> set[float]:
    (lines,) = canvas.axes[panel].collections
    assert isinstance(lines, LineCollection)
    return {end for segment in lines.get_segments() for end in segment[:, 0]}


def names(canvas: Canvas) -> list[str]:
    assert canvas.axes[0].yaxis_inverted()  # bars are read from the top
    return [label.get_text().replace("\n", " ") for label in canvas.axes[0].get_yticklabels()]


def ends(canvas: Canvas, panel: int = 0) -> list[str]:
    return [text.get_text() for text in canvas.axes[panel].texts]


# Heights are the data.


def test_memory_bars_are_as_long_as_the_data() -> None:
    made = make_training(recompute=("full",))
    at = {"plan": [15, 16, 17, 18], "micro_batch_size": 1}
    canvas = canvas_of(made, kind="memory", at=at)
    part = made.isel(plan=at["plan"]).sel(micro_batch_size=1)
    assert totals(canvas) == pytest.approx(dict(enumerate(part["peak_memory"].values)))
    bars = lengths(canvas)
    gradients = part["peak_gradient_memory"] + part["peak_unsharded_gradient_memory"]
    for colour, values in (
        (0, part["peak_weight_memory"]),
        (1, gradients),
        (2, part["peak_optimizer_memory"]),
        (3, part["peak_saved_activation_memory"]),
        (7, part["peak_nccl_buffer_memory"] + part["peak_context_bytes"]),
    ):
        assert bars[region_colour(colour)] == pytest.approx(dict(enumerate(values.values)))


def test_related_parts_are_one_bar() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    made["peak_unsharded_gradient_memory"] = made["peak_gradient_memory"] / 2
    made["peak_unsharded_gradient_memory"].attrs = dict(made["peak_gradient_memory"].attrs)
    del made["peak_memory"]
    bars = lengths(canvas_of(made, kind="memory", at={"plan": [18, 19]}))
    wanted = 1.5 * made["peak_gradient_memory"].values[18:20]
    assert bars[region_colour(1)] == pytest.approx(dict(enumerate(wanted)))


def test_parts_named_one_by_one_stay_apart() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    parts = ["peak_optimizer_memory", "peak_weight_memory"]
    canvas = canvas_of(made, kind="memory", parts=parts, at={"plan": [18, 19]})
    bars = lengths(canvas)
    for index, name in enumerate(parts):
        wanted = dict(enumerate(made[name].values[18:20]))
        assert bars[region_colour(index)] == pytest.approx(wanted)
    assert "The parts shown don't add up to the peak memory." in title_of(canvas)


def test_step_bars_add_up_to_the_step_with_mfu_beside() -> None:
    made = make_training(recompute=("full",))
    at = {"plan": [16, 17, 18, 19], "micro_batch_size": 1}
    canvas = canvas_of(made, kind="step_parts", at=at)
    part = made.isel(plan=at["plan"]).sel(micro_batch_size=1)
    assert totals(canvas) == pytest.approx(dict(enumerate(part["step_time"].values)))
    matmul = lengths(canvas)[region_colour(0)]
    assert matmul == pytest.approx(dict(enumerate(part["matmul_part_time"].values)))
    for time, mfu, text in zip(
        part["step_time"].values, part["mfu"].values, ends(canvas), strict=True
    ):
        assert text.replace("\n", " · ") == f"{time:.3g} · MFU {100 * mfu:.3g} %"


@pytest.mark.parametrize(("of", "units"), [("time", "Time (s)"), ("volume", "Volume (GB)")])
def test_communication_is_stacked_by_dimension(of: str, units: str) -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    canvas = canvas_of(made, kind="communication", of=of, at={"plan": [5, 6, 7]})
    bars = lengths(canvas)
    for dim, colour in (("tp", 1), ("pp", 4), ("dp", 0)):
        values = made[f"{dim}_communication_{of}"].values[5:8]
        wanted = {index: value for index, value in enumerate(values) if value}
        assert bars[region_colour(colour)] == pytest.approx(wanted)
    assert units in title_of(canvas)
    legend = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    assert legend == ["TP", "PP", "DP"]


def test_parts_of_communication_are_those_of_dimensions() -> None:
    there = ["tp_communication_time", "sms_communication_time"]
    assert known_parts("communication", there) == ("tp_communication_time",)


def test_parts_that_stand_alone_are_no_smaller_than_those_put_together() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    canvas = canvas_of(made, kind="step_parts", at={"plan": [17, 18]})
    names = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    groups = {"Other communication and\nwaiting", "Other computation and\noverhead"}
    assert groups <= {*names}
    assert 7 <= len(names) < 11  # Of eleven parts that there are
    longest = {
        text: max(lengths(canvas)[mpl.colors.to_hex(patch.get_facecolor())].values())
        for text, patch in zip(names, canvas.subfigs[0].legends[0].get_patches(), strict=True)
    }
    assert max(longest[name] for name in groups) <= min(
        length for name, length in longest.items() if name not in groups
    )
    assert totals(canvas) == pytest.approx(dict(enumerate(made["step_time"].values[17:19])))


def test_a_part_below_nought_is_taken_off_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.plots.breakdown._MOST_PARTS", 99)
    made = make_training(recompute=("none",), micro_batch_size=(1,))
    usual = lengths(canvas_of(made, kind="step_parts", at={"plan": [17, 18]}))
    made["exposed_ep_time"] = made["exposed_ep_time"] - 0.01
    made["exposed_ep_time"].attrs = {"long_name": "time of a step: experts", "units": "s"}
    made["step_time"] = made["step_time"] - 0.01
    made["step_time"].attrs = {"long_name": "time of a step", "units": "s"}
    canvas = canvas_of(made, kind="step_parts", at={"plan": [17, 18]})
    found = lengths(canvas)
    assert region_colour(3) not in found
    changed = [colour for colour in found if found[colour] != pytest.approx(usual[colour])]
    assert len(changed) == 1
    assert found[changed[0]] == pytest.approx(
        {name: value - 0.01 for name, value in usual[changed[0]].items()}
    )
    assert totals(canvas) == pytest.approx(dict(enumerate(made["step_time"].values[17:19])))
    assert canvas.axes[0].get_ylim()[0] == 0.0 or canvas.axes[0].get_xlim()[0] == 0.0
    assert "Below zero, so taken off the part beside it: EP communication, exposed." in title_of(
        canvas
    )


def test_what_no_part_explains_is_the_rest() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,)).drop_vars(
        ["peak_saved_activation_memory", "peak_context_bytes"]
    )
    canvas = canvas_of(made, kind="memory", at={"plan": [15, 16, 17, 18]})
    assert totals(canvas) == pytest.approx(dict(enumerate(made["peak_memory"].values[15:19])))
    assert canvas.subfigs[0].legends[0].get_texts()[-2].get_text() == "The rest"


# What isn't there isn't drawn.


def test_a_masked_plan_has_no_bar_but_a_reason() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    canvas = canvas_of(made, kind="memory", at={"plan": [3, 4, 5]})
    assert names(canvas)[1] == "TP 1, PP 16, DP 32"
    assert set(totals(canvas)) == {0, 2}
    assert ends(canvas)[1] == "product of degrees"


def test_parts_that_are_nothing_are_not_in_the_legend() -> None:
    canvas = canvas_of(make_training(), kind="step_parts", at=ONE)
    legend = " ".join(text.get_text() for text in canvas.subfigs[0].legends[0].get_texts())
    assert "GEMMs" in legend
    assert "Context" not in legend
    assert "Expert" not in legend
    assert "host" not in legend


def test_the_capacity_is_a_line_and_what_is_beyond_it_striped() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    canvas = canvas_of(made, kind="memory", at={"plan": [0, 5, 10, 15]})
    assert limits(canvas) == {CAPACITY}
    peak = made["peak_memory"].values[[0, 5, 10, 15]]
    beyond = {k: value - CAPACITY for k, value in enumerate(peak) if value > CAPACITY}
    assert 0 < len(beyond) < 4
    assert lengths(canvas)["over"] == pytest.approx(beyond)
    weights = [text.get_fontweight() for text in canvas.axes[0].texts]
    assert [weight == "bold" for weight in weights] == (peak > CAPACITY).tolist()
    texts = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    assert texts[-1] == "above capacity"
    assert texts[-2].replace("\n", " ") == "GPU memory capacity: 80 GB"


def test_a_capacity_by_machine_is_each_panels_own() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    made = made.drop_vars(["hardware", "memory_capacity"])
    made = made.assign_coords(
        hardware=("hardware", ["small", "large"]),
        memory_capacity=("hardware", [40e9, 80e9], {"long_name": "memory", "units": "byte"}),
    )
    canvas = canvas_of(made, kind="memory", panels="hardware", at={"plan": [17, 18]})
    for panel, limit in enumerate((40e9, 80e9)):
        assert limits(canvas, panel) == {limit}
    fault = faults_of(made, kind="memory", at={"plan": [17, 18]})
    assert (
        "memory_capacity varies along hardware, which this figure neither shows nor hold" in fault
    )


def test_a_step_that_does_not_fit_says_so() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    canvas = canvas_of(made, kind="step_parts", at={"plan": [15, 0]})
    assert [text.endswith("does not fit") for text in ends(canvas)] == [True, False]
    assert set(totals(canvas)) == {0, 1}


# Which bars.


def test_of_many_plans_the_fastest_are_shown() -> None:
    made = make_training()
    canvas = canvas_of(made, kind="memory", most=5)
    flat = made.stack(cell=("plan", "recompute", "micro_batch_size"), create_index=False)
    order = np.argsort(flat["step_time"].values, kind="stable")[:5]
    assert totals(canvas) == pytest.approx(dict(enumerate(flat["peak_memory"].values[order])))
    count = int(made["step_time"].notnull().sum())
    assert f"the 5 fastest of {count} plans" in title_of(canvas)
    best = flat.isel(cell=order[0])
    assert names(canvas)[0].startswith(
        f"TP {best.tp:.0f}, PP {best.pp:.0f}, DP {best.dp:.0f}, micro-batch"
    )


def test_plans_beyond_the_capacity_are_not_among_the_fastest() -> None:
    made = make_training()
    fastest = made["peak_memory"].values.reshape(-1)[np.nanargmin(made["step_time"].values)]
    made = made.assign(memory_capacity=fastest - 1.0)
    fits = made["step_time"].notnull() & ~(made["peak_memory"] > made["memory_capacity"])
    assert 5 < int(fits.sum()) < int(made["step_time"].notnull().sum())
    canvas = canvas_of(made, kind="step_parts", most=5)
    best = np.sort(made["step_time"].values[fits.values])[:5]
    assert totals(canvas) == pytest.approx(dict(enumerate(best)))
    assert f"the 5 fastest of {int(fits.sum())} plans" in title_of(canvas)


def test_without_a_step_time_they_are_evenly_spread() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,)).drop_vars("step_time")
    canvas = canvas_of(made, kind="memory", most=4)
    there = np.nonzero(made["peak_memory"].notnull().values)[0]
    chosen = there[evenly(len(there), 4)]
    assert totals(canvas) == pytest.approx(dict(enumerate(made["peak_memory"].values[chosen])))
    assert f"4 of {len(there)} plans, evenly chosen" in title_of(canvas)
    assert "Left out, without a peak weight memory: 1 plan (product of degrees)." in title_of(
        canvas
    )


def test_a_title_of_ones_own_keeps_the_selection() -> None:
    canvas = canvas_of(make_training(), kind="memory", most=3, title="Mine")
    assert canvas.texts is not None
    assert re.search(r"Mine \(the 3 fastest of \d+ plans\)", title_of(canvas))


@pytest.mark.parametrize(("better", "sign"), [("more", -1), ("less", 1)])
def test_bars_are_sorted_as_declared(better: str, sign: int) -> None:
    made = make_training(recompute=("none",), micro_batch_size=(1,))
    at = {"plan": [16, 17, 18, 19]}
    canvas = canvas_of(made, kind="step_parts", sort="mfu", better=better, at=at)
    part = made.isel(plan=at["plan"])
    order = np.argsort(sign * part["mfu"].values)
    assert totals(canvas) == pytest.approx(dict(enumerate(part["step_time"].values[order])))
    assert "sorted by mfu" in title_of(canvas)


def test_any_one_axis_may_have_the_bars() -> None:
    made = make_training(bandwidth=tuple(1e9 * k for k in range(10, 50)))
    at = {"plan": 18, "micro_batch_size": 1, "recompute": "none"}
    canvas = canvas_of(made, kind="communication", x="inter_bandwidth", most=6, at=at)
    assert names(canvas)[0] == "80 Gbit/s between nodes"
    assert names(canvas)[-1] == "392 Gbit/s between nodes"
    assert len(names(canvas)) == 6
    assert "6 of 40 values of inter bandwidth, evenly chosen" in title_of(canvas)


def test_a_bar_for_each_of_few_labels() -> None:
    made = make_training()
    canvas = canvas_of(
        made, kind="step_parts", x="recompute", at={"plan": 18, "micro_batch_size": 1}
    )
    wanted = made["step_time"].isel(plan=18).sel(micro_batch_size=1).values
    assert totals(canvas) == pytest.approx(dict(enumerate(wanted)))
    assert names(canvas) == ["no recompute", "full recompute"]


def test_what_all_rows_have_in_common_is_said_once() -> None:
    made = make_training()
    canvas = canvas_of(made, kind="memory", at={"plan": [15, 16, 17], "micro_batch_size": 1})
    assert all("TP" not in name for name in names(canvas))
    assert "TP 8" in title_of(canvas)
    assert "512 GPUs" in title_of(canvas)


def test_rows_that_nothing_tells_apart_are_numbered() -> None:
    made = make_training(micro_batch_size=(1,), recompute=("none",))
    same = made.assign_coords(tp=("plan", np.ones(20)), pp=("plan", np.ones(20)))
    same = same.assign_coords(dp=("plan", np.ones(20))).drop_vars("plan")
    assert cell_names(same, ["plan"], [np.array([3, 4])]) == ["plan #3", "plan #4"]


# Declarations.


@pytest.mark.parametrize(("declaration", "fault"), examples(__file__, "faults_read_well"))
def test_faults_read_well(declaration: dict[str, Any], fault: str) -> None:
    assert fault in faults_of(make_training(), **declaration)


def test_columns_that_are_not_known_yet_are_checked_later() -> None:
    subject = subject_of(make_training())
    declared = {"kind": "memory", "capacity": "memory_capacity", "at": {"micro_batch_size": 1}}
    dims = {name: values for name, values in subject.dims.items() if name != "memory_capacity"}
    assert check_figures([declared], Subject(dims, subject.variables))[0]["x"] is None
    with pytest.raises(InputError, match="memory_capacity"):
        check_figures([declared], Subject(dims, subject.variables, {}))


@pytest.mark.parametrize(("make", "kinds"), examples(__file__, "default_figures"))
def test_default_figures_are_what_the_file_has(make: dict[str, Any], kinds: list[str]) -> None:
    made = make_training(**make)
    declared = default_figures(made)
    assert [figure["kind"] for figure in declared] == kinds
    assert len(check_figures(declared, subject_of(made))) == len(kinds)
    bare = made[["peak_memory", "status"]]
    assert [default_figure["kind"] for default_figure in default_figures(bare)] == ["memory"]
    nothing = made[["mfu"]]
    assert {declaration["kind"] for declaration in default_figures(nothing)} <= {
        "bars",
        "curves",
        "scaling",
    }


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(4))
def test_the_same_data_give_the_same_bytes(number: int, tmp_path: Path) -> None:
    made = make_training()
    made.to_netcdf(tmp_path / "data.nc", engine="netcdf4")
    declaration = default_figures(made)[number]
    first = draw(made, declaration, tmp_path / "a")
    with xr.open_dataset(tmp_path / "data.nc", engine="netcdf4") as stored:
        second = draw(stored, default_figures(stored)[number], tmp_path / "b")
    for left, right in zip(first, second, strict=True):
        assert left.read_bytes() == right.read_bytes()
    text = unescape(first[1].read_text(encoding="utf-8"))
    assert "llama3-70b · dgx-h100 · 512 GPUs" in text
    assert "causal" not in text  # an assumption, which the file has
    assert "Assumed values: see the file." in text


# Parts.


def test_every_part_of_the_memory_is_in_one_group() -> None:
    from overhead.memory.stage import PEAK_PARTS

    parts = stacked("memory", known_parts("memory", PEAK_PARTS), chosen=False)
    assert sorted(name for part in parts for name in part.variables) == sorted(PEAK_PARTS)
    assert len({part.colour for part in parts}) == len(parts) == 7
    plain = [name.removeprefix("peak_") for name in PEAK_PARTS]
    assert len(known_parts("memory", plain)) == len(PEAK_PARTS)


def test_every_part_of_a_step_has_its_own_colour() -> None:
    parts = stacked("step_parts", known_parts("step_parts", STEP), chosen=False)
    assert [name for part in parts for name in part.variables] == list(STEP)
    assert len({part.colour for part in parts}) == len(STEP)


def test_labels_leave_out_what_all_have_in_common() -> None:
    attrs = {name: {"long_name": MEMORY[name]} for name in MEMORY}
    parts = stacked("memory", tuple(MEMORY), chosen=True)
    assert labelled(parts, attrs) == [
        meaning.removesuffix(", peak stage") for meaning in MEMORY.values()
    ]
    alone = stacked("memory", ("peak_weight_memory",), chosen=True)
    assert labelled(alone, attrs) == ["weights, peak stage"]


def test_a_bar_that_stands_for_nothing_keeps_its_place() -> None:
    parts = np.array([[[1.0, np.nan]]])
    stacks = Stacks(["", ""], ["a", "b"], ["part"], parts, "s")
    assert np.isnan(stacks.totals[0, 1])


def test_what_is_too_short_for_the_axis_has_its_own_unit() -> None:
    parts = np.array([[[1.27, 75.4e-6, 0.0]]])
    stacks = Stacks([""], ["a", "b", "c"], ["part"], parts, "s")
    assert [_end_text(stacks, 0, index, 1.0) for index in range(3)] == ["1.27", "75.4 µs", "0"]


# What a sweep gives.


@pytest.fixture(scope="module")
def real() -> xr.Dataset:
    from overhead.memory.stage import PEAK_PARTS

    rows = [(t, p, 64 // (t * p)) for t in (1, 2, 4, 8) for p in (1, 2, 4)]
    columns = dict(zip(("tp", "pp", "dp"), map(list, zip(*rows, strict=True)), strict=True))
    return sweeps.sweep(
        ["peak_memory", *PEAK_PARTS, "memory_headroom"],
        model="llama3-8b",
        hardware="dgx-h100",
        world_size=64,
        plan=columns,
        recompute=["none", "full"],
        micro_batch_size=1,
        global_batch_size=128,
        sequence_length=8192,
    )


@pytest.mark.thorough
def test_memory_of_a_sweep_adds_up(real: xr.Dataset) -> None:
    canvas = canvas_of(real, kind="memory", most=30)
    shown = totals(canvas)
    flat = real["peak_memory"].transpose("recompute", "plan").values.ravel()
    order = {
        launched(name): index
        for index, name in enumerate(
            cell_names(
                view_of(real, {}).dataset,
                ["recompute", "plan"],
                [np.repeat([0, 1], 12), np.tile(np.arange(12), 2)],
            )
        )
    }
    assert len(order) == 24
    for position, name in enumerate(names(canvas)):
        assert shown.get(position, np.nan) == pytest.approx(flat[order[name]], nan_ok=True)
    assert "add up" not in title_of(canvas)
    legend = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    assert legend[:2] == ["Weights", "Gradients"]
    assert "The rest" not in legend


@pytest.mark.thorough
def test_default_figures_of_a_sweep_can_be_drawn(real: xr.Dataset, tmp_path: Path) -> None:
    (declared,) = default_figures(real)
    assert declared["kind"] == "memory"
    png, _ = draw(real, declared, tmp_path / "memory")
    assert png.stat().st_size > 10_000


def test_known_parts_are_quantities_of_the_vocabulary() -> None:

    every = {*known_parts("step_parts", VOCABULARY), *known_parts("memory", VOCABULARY)}
    for of in ("time", "volume", "energy"):
        every |= {*known_parts("communication", VOCABULARY, of)}
    assert len(every) == 17 + 16 + 3 * 6
    assert {VOCABULARY[name].units for name in every} == {"s", "byte", "J"}


def test_a_part_that_is_the_same_everywhere_is_a_coordinate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweeps.plots.breakdown._MOST_PARTS", 99)
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    constant = made.drop_vars("step_overhead").assign_coords(step_overhead=0.02)
    constant["step_overhead"].attrs = made["step_overhead"].attrs
    at = {"plan": [17, 18, 19]}
    canvas = canvas_of(constant, kind="step_parts", at=at)
    assert lengths(canvas)[region_colour(15)] == pytest.approx({0: 0.02, 1: 0.02, 2: 0.02})
    wanted = dict(enumerate(made["step_time"].values[17:20]))
    assert totals(canvas) == pytest.approx(wanted)
    legend = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    assert "Fixed overhead" in legend


QUANTITIES = tuple(
    (
        "step_time peak_memory mfu memory_headroom tokens_per_second peak_weight_memory "
        "peak_logits_memory bubble_time exposed_dp_time dp_communication_time "
        "communication_upper_bound goodput cost first_stage_model_state_memory"
    ).split()
)


@pytest.fixture(scope="module")
def every_quantity() -> xr.Dataset:
    return sweeps.sweep(
        QUANTITIES,
        model="llama3-8b",
        hardware="dgx-h100",
        world_size=[32, 64, 128],
        tp=[2, 4],
        sequence_length=4096,
        global_batch_size=128,
        gpu_hour_price="2 USD/h",
        training_tokens=1e12,
    )


@pytest.mark.thorough
@given(st.sets(st.sampled_from(QUANTITIES), min_size=1))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_for_default_figures_suit_it(
    every_quantity: xr.Dataset, names: set[str]
) -> None:
    """A figure of memory is of what was asked for, not of parts that stand beside it."""
    made = every_quantity.drop_vars([name for name in QUANTITIES if name not in names])
    subject = replace(subject_of(made), columns=None)  # As before there is a file
    for figure in check_figures(default_figures(made), subject):
        parts = figure.options.get("parts") or ()
        assert {*parts} <= {*made.data_vars, *made.coords}


@pytest.mark.thorough
def test_a_sweep_of_memory_without_its_parts_writes_its_file_and_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(
        'title = "Mine"\nquantities = ["step_time", "peak_memory", "mfu"]\n'
        '[constants]\nmodel = "llama3-8b"\nhardware = "dgx-h100"\nworld_size = 64\n'
        "sequence_length = 4096\nglobal_batch_size = 128\n[axes]\ntp = [1, 2, 4, 8]\n"
    )
    output = Runner(capsys)("run mine.toml --plot").out
    assert "wrote outputs/mine.nc" in output
    assert Path("outputs/mine-memory.png").stat().st_size > 5_000


def test_small_parts_put_together_have_colours_that_no_part_has() -> None:
    made = make_training(recompute=("full",), micro_batch_size=(1,))
    canvas = canvas_of(made, kind="step_parts", at={"plan": [17, 18]})
    legend = canvas.subfigs[0].legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    colours = [mpl.colors.to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    for name in ("Other communication and\nwaiting", "Other computation and\noverhead"):
        assert colours[names.index(name)] not in {region_colour(index) for index in range(16)}


def test_one_part_below_zero_is_not_taken_off_another() -> None:
    made = make_training(recompute=("none",), micro_batch_size=(1,))
    free = made["memory_capacity"] - made["peak_memory"]
    made = made.assign(memory_headroom=free.assign_attrs(units="byte", long_name="free memory"))
    canvas = canvas_of(made, kind="bars", parts=["memory_headroom"], x="plan")
    assert (free < 0).any()
    assert "Below zero" not in title_of(canvas)
    assert "Free memory (GB)" in title_of(canvas)
