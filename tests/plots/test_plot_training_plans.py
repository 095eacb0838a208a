"""Figures of training steps: all plans as points, scaling over GPUs, percentages of a baseline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes

from sweeps.bands import MEMORY_LIMIT
from sweeps.plots.axis import axis_of
from sweeps.plots.data import subject_of, view_of
from sweeps.plots.declare import check_figures
from sweeps.plots.draw import draw
from sweeps.plots.optima import pareto, thinned
from sweeps.plots.relative import by_column
from tests.plots.drawing import canvas_of, faults_of, title_of
from tests.plots.training_datasets import CAPACITY, make_training
from tests.tables import examples

DIMS = ("plan", "recompute", "micro_batch_size")
BANDWIDTH = (12.5e9, 25e9, 50e9, 100e9)
OVER = {"best_of": ["recompute", "micro_batch_size"]}


def curves(axes: Axes, least: int = 2) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return what is drawn as lines in the panel, without samples of legends and leaders."""
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in axes.lines
        if line.get_transform() == axes.transData
        and line.get_linestyle() != "None"
        and len(np.atleast_1d(line.get_xdata())) >= least
    ]


def points(axes: Axes) -> set[tuple[float, float]]:
    return {
        (float(x), float(y))
        for line in axes.lines
        if line.get_linestyle() == "None" and line.get_transform() == axes.transData
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }


# All plans.


def test_every_plan_that_fits_is_a_point() -> None:
    made = make_training()
    axes = canvas_of(made, kind="best_plans").axes[0]
    x, y = made["peak_memory"].values.ravel(), made["step_time"].values.ravel()
    fits = np.isfinite(y) & (x <= CAPACITY)
    assert 10 < np.count_nonzero(fits) < len(x)
    wanted = set(zip(x[fits].tolist(), y[fits].tolist(), strict=True))
    drawn = points(axes)
    assert drawn <= wanted
    # Those left out lie under another point.
    for lost in wanted - drawn:
        assert any(np.allclose(lost, point, rtol=0.01) for point in drawn)


def test_the_front_is_a_staircase_of_plans_that_no_plan_beats() -> None:
    made = make_training()
    canvas = canvas_of(made, kind="best_plans")
    x, y = made["peak_memory"].values.ravel(), made["step_time"].values.ravel()
    fits = np.isfinite(y)
    unbeaten = {
        (a, b)
        for a, b in zip(x[fits], y[fits], strict=True)
        if not np.any((x <= a) & (y <= b) & ((x < a) | (y < b)))
    }
    (front,) = curves(canvas.axes[0], 3)
    assert set(zip(*front, strict=True)) == unbeaten
    assert "Pareto front" in [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=25),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_front_is_what_nothing_beats(rows: list[tuple[int, int, bool]], more: bool) -> None:
    x, y, valid = (np.array([row[k] for row in rows], dtype=float) for k in range(3))
    there = valid.astype(bool)
    found = pareto(x, y, there, more=more)
    cost = -y if more else y
    kept = {(x[k], cost[k]) for k in np.nonzero(there)[0]}
    wanted = {
        point
        for point in kept
        if not any(a <= point[0] and b <= point[1] and (a, b) != point for a, b in kept)
    }
    assert {(x[k], cost[k]) for k in found} == wanted
    assert len(found) == len(wanted)
    assert np.all(np.diff(x[found]) > 0)


def test_the_best_are_numbered_and_named() -> None:
    made = make_training()
    canvas = canvas_of(made, kind="best_plans")
    flat = made.stack(cell=DIMS, create_index=False)
    times = flat["step_time"].where(flat["peak_memory"] <= MEMORY_LIMIT * CAPACITY)
    order = np.lexsort((flat["peak_memory"].values, times.values))[:5]
    assert len(canvas.subfigs[0].legends[0].get_texts()) == 3  # the best, the front, the capacity
    below = [text.get_text() for text in canvas.texts]
    for rank, position in enumerate(order.tolist(), 1):
        plan = flat.isel(cell=position)
        memory = float(plan["peak_memory"]) / 1e9
        start = below.index(f"{rank}")
        row = below[start : start + 4]
        assert row[1:3] == [f"{float(plan['step_time']):.3g} s", f"{memory:.3g} GB"]
        assert f"TP {plan.tp:.0f}, PP {plan.pp:.0f}, DP {plan.dp:.0f}" in row[3]
    numbers = {
        text.get_text(): text.xy for text in canvas.axes[0].texts if text.get_text().isdigit()
    }
    assert sorted(numbers) == ["1", "2", "3", "4", "5"]


def test_plans_that_do_not_fit_are_grey_beyond_the_capacity() -> None:
    made = make_training()
    canvas = canvas_of(made, kind="best_plans")
    axes = canvas.axes[0]
    memory = made["peak_memory"].values.ravel()
    outside = memory[memory > CAPACITY]
    (strokes,) = axes.collections
    at = {round(float(segment[0, 0]), 3) for segment in strokes.get_segments()}
    assert at <= {round(float(x), 3) for x in outside}
    assert len(at) > 1
    (limit,) = (line for line in axes.lines if line.get_transform() == axes.get_xaxis_transform())
    assert set(limit.get_xdata()) == {CAPACITY}
    assert f"Grey: {len(outside)} don't (" in title_of(canvas)
    assert "4 can't be (product of degrees" in title_of(canvas)
    # A time that is known all the same is a grey point.
    made["step_time"] = made["step_time"].fillna(30.0)
    timed = canvas_of(made, kind="best_plans")
    grey = [line for line in timed.axes[0].lines if line.get_color() == "#b8b8b8"]
    assert set(np.concatenate([line.get_ydata() for line in grey])) == {30.0}
    assert all(x > CAPACITY for line in grey for x in line.get_xdata())


def test_colours_show_a_column_and_more_may_be_better() -> None:
    made = make_training()
    canvas = canvas_of(made, kind="best_plans", y="mfu", better="more", by="tp")
    result = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    assert result[:4] == ["TP 1", "TP 2", "TP 4", "TP 8"]
    most = made["mfu"].where(made["peak_memory"] <= MEMORY_LIMIT * CAPACITY).max()
    assert most < made["mfu"].max()  # of a plan that fills more than one that is recommended
    assert f"{float(most):.3g}" in [text.get_text() for text in canvas.texts]
    (front,) = curves(canvas.axes[0], 3)
    assert np.all(np.diff(front[1]) > 0)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_points_that_cover_each_other_are_drawn_once(scale: Any) -> None:
    rng = np.random.default_rng(3)
    x, y = np.exp(rng.normal(0.0, 1.0, (2, 20_000)))
    axes = tuple(axis_of(name, {}, one, scale, 4.0) for name, one in (("x", x), ("y", y)))
    valid = rng.random(len(x)) < 0.5
    kept = thinned(x, y, valid, (axes[0], axes[1]))
    assert valid[kept].all()
    assert 500 < len(kept) < np.count_nonzero(valid)
    assert len(thinned(x, y, np.zeros(len(x), bool), (axes[0], axes[1]))) == 0
    again = thinned(np.full(9, 1.0), np.full(9, 1.0), np.ones(9, bool), (axes[0], axes[1]))
    assert again.tolist() == [0]


@pytest.mark.parametrize(("declaration", "fault"), examples(__file__, "faults_of_plans_read_well"))
def test_faults_of_plans_read_well(declaration: dict[str, Any], fault: str) -> None:
    assert fault in faults_of(make_training(), **{"kind": "best_plans", **declaration})


# Scaling.


@pytest.fixture(scope="module")
def worlds() -> xr.Dataset:
    return make_training(worlds=(64, 128, 256, 512), models=("llama3-8b", "llama3-70b"))


def test_scaling_shows_the_best_plan_of_each_number_of_gpus(worlds: xr.Dataset) -> None:
    canvas = canvas_of(worlds, kind="scaling", **OVER)
    best = worlds["tokens_per_second"].max(["recompute", "micro_batch_size"])
    drawn = [line for line in curves(canvas.axes[0]) if len(line[0]) == 4]
    for model in ("llama3-8b", "llama3-70b"):
        wanted = [
            float(best.sel(model=model)[worlds["world_size"].values == size].max())
            for size in (64, 128, 256, 512)
        ]
        assert any(np.allclose(y, wanted) and x[0] == 64 for x, y in drawn)
        ideal = [wanted[0] * k for k in (1, 2, 4, 8)]
        assert any(np.allclose(y, ideal) for _, y in drawn)
    assert len(drawn) == 4
    assert canvas.axes[0].get_xscale() == canvas.axes[0].get_yscale() == "log"
    title = "Throughput, by number of GPUs and model, with the best plan"
    assert title in title_of(canvas).replace("\n", " ")


def test_one_line_and_its_ideal_are_named(worlds: xr.Dataset) -> None:
    canvas = canvas_of(worlds, kind="scaling", at={"model": "llama3-70b"}, **OVER)
    result = {text.get_text() for text in canvas.axes[0].texts}
    assert result >= {"ideal", "tokens per second"}
    alone = canvas_of(worlds, kind="scaling", ideal=False, at={"model": "llama3-70b"}, **OVER)
    assert len(curves(alone.axes[0], 4)) == 1


def test_an_ideal_starts_where_a_line_does(worlds: xr.Dataset) -> None:
    made = worlds.copy(deep=True)
    early = made["world_size"].values == 64
    made["tokens_per_second"][{"plan": early, "model": 1}] = np.nan
    canvas = canvas_of(made, kind="scaling", at={"model": "llama3-70b"}, **OVER)
    ideal, line = curves(canvas.axes[0], 4)
    assert np.isnan(ideal[1][0])
    assert np.isnan(line[1][0])
    assert np.allclose(ideal[1][1:], line[1][1] * np.array([1, 2, 4]))


def test_a_dimension_of_gpus_needs_no_table() -> None:
    made = make_training(worlds=(64, 128, 256, 512), recompute=("full",), micro_batch_size=(1,))
    best = made["tokens_per_second"].groupby("world_size").max()
    alone = best.to_dataset().drop_vars("plan", errors="ignore")
    alone["tokens_per_second"].attrs = made["tokens_per_second"].attrs
    line = curves(canvas_of(alone, kind="scaling").axes[0], 4)[-1]
    assert np.allclose(line[1], best.values)
    view = view_of(alone, {})
    assert by_column(view, "world_size", "tokens_per_second", more=True) == (view, "")


@pytest.mark.parametrize(("declaration", "fault"), examples(__file__, "faults_of_scaling"))
def test_faults_of_scaling_read_well(
    worlds: xr.Dataset, declaration: dict[str, Any], fault: str
) -> None:
    assert fault in faults_of(worlds, **{"kind": "scaling", **OVER, **declaration})


def test_a_column_is_checked_once_there_is_a_file(worlds: xr.Dataset) -> None:
    subject = replace(subject_of(worlds), columns=None)
    declared = {"kind": "scaling", **OVER}
    assert check_figures([declared], subject)[0]["x"] == "world_size"


# Percentages.

BY_BANDWIDTH: dict[str, Any] = {
    "kind": "curves",
    "x": "inter_bandwidth",
    "y": "step_time",
    "lines": "recompute",
    "best_of": ["plan", "micro_batch_size"],
    "relative_to": {"inter_bandwidth": "50GB/s"},
}


@pytest.mark.thorough
def test_curves_are_in_percent_of_their_baseline(tmp_path: Path) -> None:
    made = make_training(bandwidth=BANDWIDTH)
    canvas = canvas_of(made, **BY_BANDWIDTH)
    best = made["step_time"].min(["plan", "micro_batch_size"]).transpose("recompute", ...).values
    drawn = [y for x, y in curves(canvas.axes[0], 4)]
    assert np.allclose(drawn, 100 * best / best[:, [2]])
    assert all(y[2] == 100.0 for y in drawn)
    low, high = canvas.axes[0].get_ylim()
    assert 50 < low < 100 < high
    text = title_of(canvas)
    assert "Step time by the baseline's (%)" in text
    assert "Baseline, 100 %: 400 Gbit/s between nodes." in text
    assert "Step time, by inter-node bandwidth" in text.replace("\n", " ")
    assert draw(made, BY_BANDWIDTH, tmp_path / "relative")[0].stat().st_size > 10_000


def test_a_baseline_may_be_one_of_the_lines() -> None:
    made = make_training(bandwidth=BANDWIDTH)
    base = {"inter_bandwidth": 25e9, "recompute": "none"}
    canvas = canvas_of(made, **{**BY_BANDWIDTH, "relative_to": base})
    best = made["step_time"].min(["plan", "micro_batch_size"]).transpose("recompute", ...).values
    drawn = [y for x, y in curves(canvas.axes[0], 4)]
    assert np.allclose(drawn, 100 * best / best[0, 1])


def test_a_line_without_a_baseline_is_not_drawn() -> None:
    made = make_training(bandwidth=BANDWIDTH)
    made["step_time"].loc[{"recompute": "full", "inter_bandwidth": 50e9}] = np.nan
    declared = {**BY_BANDWIDTH, "relative_to": {"inter_bandwidth": 50e9}}
    canvas = canvas_of(made, **declared)
    assert len(curves(canvas.axes[0], 4)) == 1
    assert "Without values here: full." in title_of(canvas)
    made["step_time"].loc[{"recompute": "none", "inter_bandwidth": 50e9}] = np.nan
    fault = faults_of(made, **declared)
    assert "relative_to: nothing has a value at 400 Gbit/s between nodes; another" in fault


@pytest.mark.parametrize(("changed", "fault"), examples(__file__, "faults_of_a_baseline_read_well"))
def test_faults_of_a_baseline_read_well(changed: dict[str, Any], fault: str) -> None:
    made = make_training(bandwidth=BANDWIDTH)
    assert fault in faults_of(made, **{**BY_BANDWIDTH, **changed})


@pytest.mark.parametrize(
    ("worlds", "node", "noted"), [((8, 64), 8, 0), ((8, 24), 8, 1), ((8, 64), 72, 1)]
)
def test_bounds_are_noted_unless_all_groups_are_powers_of_two(
    worlds: tuple[int, ...], node: int, noted: int
) -> None:
    where = "dbt: exact where (log2(ranks) == ceil(log2(ranks))); elsewhere an upper bound"
    time = ("world_size", [1.0] * len(worlds), {"units": "s", "upper_bound": where})
    made = xr.Dataset({"step_time": time}, {"world_size": [*worlds], "gpus_per_node": node})
    note = "Upper bounds in places (dbt): see the file."
    assert view_of(made, {}).bounds_note() == [note] * noted


def test_the_answer_and_the_deadline_are_marked() -> None:
    made = make_training()
    deadline = 1.5 * float(made["step_time"].min())
    dims = tuple(dim for dim in DIMS if dim in made["step_time"].dims)
    flat = made["step_time"].transpose(*dims).values.ravel()
    fits = (made["peak_memory"] <= CAPACITY).transpose(*dims).values.ravel()
    position = int(np.flatnonzero(np.isfinite(flat) & fits)[2])
    canvas = canvas_of(made, kind="best_plans", answer=position + 1, deadline=deadline)
    (axes,) = canvas.axes
    stars = [line for line in axes.get_lines() if line.get_marker() == "*"]
    assert stars[0].get_ydata() == pytest.approx([flat[position]])
    limits = [line for line in axes.get_lines() if np.all(line.get_ydata() == deadline)]
    assert len(limits) == 1
    legend = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    assert "recommended" in legend
    assert f"deadline: {deadline:.3g} s" in legend
    below = [text.get_text() for text in canvas.texts]
    star = below.index("\N{BLACK STAR}")
    assert star < below.index("1")  # the answer, which is none of the five fastest, comes first
    assert below[star + 1] == f"{flat[position]:.3g} s"


def test_a_table_of_plans_says_the_machine_of_each() -> None:
    made = xr.Dataset(
        {
            "step_time": ("row", [2.0, 3.0], {"units": "s"}),
            "peak_memory": ("row", [1e9, 2e9], {"units": "byte"}),
        },
        coords={"hardware": ("row", ["dgx-b200", "dgx-h100"]), "world_size": ("row", [8.0, 16.0])},
    )
    canvas = canvas_of(made, kind="best_plans", plans=["row"], by="hardware")
    below = [text.get_text() for text in canvas.texts]
    for rank, machine in (("1", "dgx-b200"), ("2", "dgx-h100")):
        assert machine in below[below.index(rank) + 3]


def test_lines_of_schedules_are_called_as_people_call_them() -> None:
    times = xr.DataArray(
        [[4.0, 5.0], [3.0, 4.5]], dims=("schedule", "pp"), attrs={"units": "s", "long_name": "t"}
    )
    coords = {"schedule": ["one_f_one_b", "zero_bubble_h1"], "pp": [4.0, 8.0]}
    made = xr.Dataset({"step_time": times}, coords=coords)
    canvas = canvas_of(made, kind="curves", x="pp", y="step_time", lines=["schedule"])
    words = {text.get_text() for axes in canvas.axes for text in axes.texts} | {title_of(canvas)}
    assert any("1F1B" in text for text in words)
    assert any("zero bubble h1" in text for text in words)
    assert not any("one_f_one_b" in text for text in words)


def test_runs_for_several_deadlines_are_points_once_with_their_machines() -> None:
    """Rows of two deadlines: the second has the runs of the first, and one more."""
    days, dollars = [4.0, 8.0, 4.0, 8.0, 2.0], [50.0, 40.0, 50.0, 40.0, 60.0]
    flags = {"flag_values": [0, 1], "flag_meanings": "dgx-h100 dgx-b200"}
    made = xr.Dataset(
        {
            "run_days": ("plan", days, {"units": "d"}),
            "run_cost": ("plan", dollars, {"units": "USD"}),
            "hardware": ("plan", [0, 1, 0, 1, 0], flags),
            "days_allowed": ("plan", [9.0, 9.0, 5.0, 5.0, 5.0], {"units": "d"}),
        },
        {"world_size": ("plan", [64.0, 32.0, 64.0, 32.0, 128.0])},
    )
    declared = {"plans": ["plan"], "x": "run_cost", "y": "run_days", "by": "hardware"}
    canvas = canvas_of(made, kind="best_plans", better="less", **declared)
    below = [text.get_text() for text in canvas.texts]
    assert "3 plans fit." in below
    rows = [text for text in below if text.startswith("dgx-")]
    assert rows == ["dgx-h100, 128 GPUs", "dgx-h100, 64 GPUs", "dgx-b200, 32 GPUs"]


def test_a_figure_says_that_plans_near_the_capacity_are_not_numbered() -> None:
    made = xr.Dataset(
        {
            "step_time": ("row", [2.0, 3.0], {"units": "s"}),
            "peak_memory": ("row", [79e9, 20e9], {"units": "byte"}),
            "memory_capacity": ((), 80e9, {"units": "byte"}),
        },
        coords={"tp": ("row", [4.0, 8.0])},
    )
    shown = {"capacity": "memory_capacity", "plans": ["row"]}
    canvas = canvas_of(made, kind="best_plans", **shown)
    legend = [text.get_text() for text in canvas.subfigs[0].legends[0].get_texts()]
    assert "best, up to 90 % of memory" in legend
    assert "2" not in [text.get_text() for text in canvas.texts]
