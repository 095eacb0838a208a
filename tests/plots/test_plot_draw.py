"""Figures as files: there, whole, reproducible, and saying what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure as Canvas

from sweeps.errors import InputError, RunError
from sweeps.plots.defaults import default_figures
from sweeps.plots.draw import draw
from sweeps.plots.measured import median_error
from sweeps.plots.style import scale_of
from tests.plots.conftest import ATTRS, coordinate
from tests.tables import examples

Make = Callable[..., xr.Dataset]


def texts(path: Path) -> list[str]:
    matches = re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"), re.DOTALL)
    return [unescape(text) for text in matches]


def drawn(dataset: xr.Dataset, folder: Path, **declaration: Any) -> str:
    png, svg = draw(dataset, declaration, folder / "figure")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size > 10_000
    return "\n".join(texts(svg))


@pytest.mark.thorough
def test_curves_say_what_they_show(networks: Make, tmp_path: Path) -> None:
    at = {"collective": "all_reduce", "ranks": 64}
    text = drawn(networks(), tmp_path, kind="curves", at=at, lower_bound=True)
    for words in (
        "Time of all_reduce, by message size and topology",
        "band not in the file · all_reduce · dgx-h100 · 64 ranks",
        "Message size (nccl-tests convention), M",
        "Collective time, T",
        "32 MiB",
        "100 µs",
        "hierarchical",
        "lower bound",
        "Assumed values: see the file.",
    ):
        assert words in text


@pytest.mark.thorough
def test_crossovers_stand_where_costs_are_equal(networks: Make, tmp_path: Path) -> None:
    # 64 ranks: switch 12 x 2 us + 3 63/64 M/B, torus 16.8 x 2 us + 2.05 63/64 M/B, B = 50 GB/s:
    # equal at M = 9.6 us x B x 64/63 / 0.95 = 513283 byte = 501 KiB.
    at = {"collective": "all_reduce", "ranks": 64}
    for points in (97, 9):
        made = networks(points=points)
        assert "501 KiB" in drawn(made, tmp_path, kind="curves", at=at).splitlines()
        plain = drawn(made, tmp_path, kind="curves", at=at, crossovers=False)
        assert "501 KiB" not in plain.splitlines()


@pytest.mark.thorough
def test_panels_have_headings_and_one_legend(networks: Make, tmp_path: Path) -> None:
    text = drawn(networks(), tmp_path, kind="curves", at={"ranks": 64}, panels="collective")
    lines = text.splitlines()
    assert lines.count("all_to_all") == 1
    assert lines.count("torus") == 1


@pytest.mark.thorough
def test_a_map_names_its_regions_ties_and_holes(algorithms: Make, tmp_path: Path) -> None:
    text = drawn(algorithms(), tmp_path, kind="best")
    lines = text.splitlines()
    assert lines.count("halving") == 1  # a region with its name isn't in the legend
    assert "doubling = oneshot" in lines  # two ranks: both are one message
    assert "network too small" in lines
    assert "second best within 10 %" in lines


@pytest.mark.thorough
def test_a_map_tells_where_the_best_changes_and_where_the_bound_is_near(
    networks: Make, tmp_path: Path
) -> None:
    made = networks(points=97).sel(collective="all_reduce", topology=["switch", "torus"])
    lines = drawn(made, tmp_path, kind="best").splitlines()
    answer = {line for line in lines if re.fullmatch(r"[\d.]+ [KM]iB", line)}
    answer -= {"1 KiB", "32 KiB", "1 MiB", "32 MiB"}  # the axis'
    sizes = made["message_bytes"].values
    first = made["time"].transpose("topology", "ranks", "message_bytes").values.argmin(axis=0)
    changes = np.argwhere(first[:, 1:] != first[:, :-1])[:, 1]
    between = {scale_of("byte").text(float(np.sqrt(sizes[k] * sizes[k + 1])), 2) for k in changes}
    assert answer
    assert answer <= between
    made["ratio"] = xr.where(made["message_bytes"] > 2.0**20, 1.05, 2.0).broadcast_like(
        made["time"]
    )
    made["ratio"].attrs = {"units": "1"}
    text = drawn(made, tmp_path, kind="best", bound="ratio", note="A word below.")
    assert "within 10 % of the bound" in text
    assert "second best within" not in text
    assert "A word below." in text


@pytest.mark.thorough
def test_a_map_of_flags_shows_what_was_chosen(algorithms: Make, tmp_path: Path) -> None:
    text = drawn(algorithms(), tmp_path, kind="best", value="chosen_algorithm")
    assert "Algorithm chosen, by message size and ranks" in text
    assert "oneshot" in text
    assert "network too small" in text.splitlines()


def test_scaling_has_a_tick_at_each_number_of_ranks(networks: Make, tmp_path: Path) -> None:
    at = {"collective": "p2p", "message_bytes": "8GiB"}
    lines = drawn(networks(), tmp_path, kind="scaling", at=at).splitlines()
    assert {"2", "16", "128", "1024"} <= set(lines)
    assert "Gaps: ranks make no square." in " ".join(lines)


@pytest.mark.thorough
def test_measured_shows_the_median_error(measured: Make, tmp_path: Path) -> None:
    made = measured(3)
    made["measured_time"] = xr.where(made["measured_time"].isnull(), np.nan, made["time"] / 1.1)
    made["measured_time"].attrs = {"long_name": "measured", "units": "s"}
    made["measured_time"][2, :] = np.nan
    text = drawn(made, tmp_path, kind="measured", panels="case")
    assert text.splitlines().count("median error 10 % (19 points)") == 1
    assert text.splitlines().count("median error 10 % (18 points)") == 1
    assert "Without a pair of values: all_to_all, cluster 2, H100." in text
    assert "ratio within ±25 %" in text


def test_the_median_error_counts_pairs_only() -> None:
    predicted = np.array([1.0, 2.0, np.nan, 3.0, 9.0])
    actual = np.array([1.0, 1.0, 1.0, 2.0, np.nan])
    assert median_error(predicted, actual) == pytest.approx(0.5)
    assert np.isnan(median_error(predicted[2:3], actual[2:3]))


def test_bars_show_totals_and_the_capacity(memory: Make, tmp_path: Path) -> None:
    made = memory()
    parts = [name for name in made.data_vars if name != "memory_capacity"]
    text = drawn(made, tmp_path, kind="bars", parts=parts, capacity="memory_capacity")
    lines = text.splitlines()
    assert "Memory by part, by plan" in lines
    assert "Memory (GB)" in lines
    assert "44" in lines  # half of 82 GiB
    assert "none" in lines  # the plan without a value isn't a bar of height zero
    assert "Memory of the device: 80 GB" in text


def test_best_of_takes_the_best_and_a_rate_the_largest(networks: Make, tmp_path: Path) -> None:
    made = networks(points=9)
    made["algbw"] = made["message_bytes"] / made["time"]
    made["algbw"].attrs = {"long_name": "algorithm bandwidth", "units": "byte s-1"}
    values = {"ranks": 64, "collective": "all_reduce"}
    text = drawn(made, tmp_path, kind="curves", y="algbw", lines=[], best_of="topology", at=values)
    assert "by message size, with the best topology" in text.replace("\n", " ")
    assert "GB/s" in text


@pytest.mark.thorough
def test_dollars_and_angles_in_names_are_text(networks: Make, tmp_path: Path) -> None:
    made = networks(points=9, topologies=("ring", "torus"))
    made = made.assign_coords(topology=["$x$ & <ring>", "t" * 80])
    at = {"collective": "p2p", "ranks": 4}
    text = drawn(made, tmp_path, kind="curves", at=at, title="Costs in $ and in $")
    assert "$x$ & <ring>" in text
    assert "Costs in $ and in $" in text


def test_zeros_and_infinities_are_left_out_and_counted(networks: Make, tmp_path: Path) -> None:
    made = networks(points=9, ranks=(1, 2, 4))
    made["time"][:, :, 0] = 0.0
    at = {"collective": "p2p", "message_bytes": 1024}
    text = drawn(made, tmp_path, kind="scaling", at=at)
    assert "Not shown, as a logarithmic axis has no 0 or infinity: 6 points." in text


@pytest.mark.thorough_cases(but=("memory",))
@pytest.mark.parametrize("make", ["networks", "algorithms", "measured", "memory"])
def test_the_same_data_give_the_same_bytes(
    make: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made = request.getfixturevalue(make)()
    declaration = default_figures(made)[-1]
    first, second = (draw(made, declaration, tmp_path / name) for name in ("a", "b"))
    for left, right in zip(first, second, strict=True):
        assert left.read_bytes() == right.read_bytes()
    svg = first[1].read_text(encoding="utf-8")
    assert "<dc:date>" not in svg
    assert "atplotlib v" not in svg


@pytest.mark.thorough
def test_a_stored_file_gives_the_same_figure(algorithms: Make, tmp_path: Path) -> None:
    made = algorithms(24)
    made.to_netcdf(tmp_path / "data.nc", engine="netcdf4")
    here = draw(made, {"kind": "best"}, tmp_path / "here")
    with xr.open_dataset(tmp_path / "data.nc", engine="netcdf4") as stored:
        there = draw(stored, {"kind": "best"}, tmp_path / "there")
    assert here[1].read_bytes() == there[1].read_bytes()


@pytest.mark.thorough
def test_a_users_own_style_does_not_change_figures(networks: Make, tmp_path: Path) -> None:
    made = networks(points=9)
    declaration = {"kind": "curves", "at": {"ranks": 4, "collective": "p2p"}}
    first = draw(made, declaration, tmp_path / "a")[1].read_bytes()
    with mpl.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "axes.grid": False}):
        assert draw(made, declaration, tmp_path / "b")[1].read_bytes() == first


@pytest.mark.thorough
def test_a_failure_leaves_the_old_files(
    networks: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = networks(points=9)
    declaration = {"kind": "curves", "at": {"ranks": 4, "collective": "p2p"}}
    paths = draw(made, declaration, tmp_path / "figure")
    before = [path.read_bytes() for path in paths]
    whole = Canvas.savefig

    def full(self: Canvas, target: Any, **how: Any) -> None:
        if how["format"] == "svg":
            Path(target).write_text("half", encoding="utf-8")
            raise OSError(28, "No space left on device")
        whole(self, target, **how)

    monkeypatch.setattr(Canvas, "savefig", full)
    with pytest.raises(RunError, match="figure can't be written: No space left on device"):
        draw(made, {**declaration, "title": "another"}, tmp_path / "figure")
    assert [path.read_bytes() for path in paths] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "figure.svg"]


def test_a_folder_that_cannot_be_is_one_clear_line(networks: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    declaration = {"kind": "curves", "at": {"ranks": 4, "collective": "p2p"}}
    with pytest.raises(RunError, match="can't be written"):
        draw(networks(points=9), declaration, tmp_path / "file" / "figure")


@pytest.mark.thorough
def test_a_name_with_dots_keeps_them(networks: Make, tmp_path: Path) -> None:
    declaration = {"kind": "curves", "at": {"ranks": 4, "collective": "p2p"}}
    paths = draw(networks(points=9), declaration, tmp_path / "new" / "h100-1.5x")
    assert [path.name for path in paths] == ["h100-1.5x.png", "h100-1.5x.svg"]


@pytest.mark.parametrize(("declaration", "fault"), examples(__file__, "refused"))
def test_what_cannot_be_read_is_refused(
    networks: Make, tmp_path: Path, declaration: dict[str, Any], fault: str
) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        draw(networks(points=9), declaration, tmp_path / "figure")
    assert not list(tmp_path.iterdir())


def test_parts_of_different_units_are_refused(networks: Make, tmp_path: Path) -> None:
    made = networks(points=9)
    made["energy"] = made["time"] * 3
    made["energy"].attrs = {"units": "J"}
    declaration = {
        "kind": "bars",
        "parts": ["time", "energy"],
        "at": {"message_bytes": 1024, "ranks": 4},
        "panels": "collective",
    }
    with pytest.raises(InputError, match=r"time \(s\), energy \(J\)': different units"):
        draw(made, declaration, tmp_path / "figure")


def test_nothing_to_show_is_refused_with_its_reason(networks: Make, tmp_path: Path) -> None:
    at = {"collective": "p2p", "ranks": 2, "topology": "mesh"}
    with pytest.raises(InputError, match=r"no value to show here \(ranks make no square\)"):
        draw(networks(points=9), {"kind": "curves", "at": at}, tmp_path / "figure")


def test_heavy_libraries_load_late() -> None:
    code = "import sys, sweeps.plots; print({'matplotlib', 'xarray'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert result.stdout.strip() == "set()"


def straight(**costs: tuple[float, float]) -> xr.Dataset:
    """Return the times of topologies with a latency and a time a byte each."""
    size = np.exp2(np.arange(10, 31, 2))
    time = np.stack([latency + size * cost for latency, cost in costs.values()])
    return xr.Dataset(
        {"time": (("topology", "message_bytes"), time, ATTRS["time"])},
        coords={
            "topology": coordinate("topology", list(costs)),
            "message_bytes": coordinate("message_bytes", size),
        },
    )


@pytest.mark.thorough
def test_a_title_says_which_line_is_best_where(tmp_path: Path) -> None:
    made = straight(tree=(1e-5, 2e-11), ring=(1e-4, 1e-11), switch=(1e-4, 1e-11))
    text = drawn(made, tmp_path, kind="curves")
    # They meet at 9e-5 s / 1e-11 s a byte = 9e6 bytes
    assert "Tree is fastest up to 8.58 MiB, ring and switch above" in text
    assert "Coincide: ring and switch." in text
    text = drawn(straight(tree=(1e-5, 1e-9), ring=(1e-4, 1e-9)), tmp_path, kind="curves")
    assert "Time of the operation, by message size and topology" in text  # equal later
    text = drawn(straight(tree=(1e-5, 1e-11), ring=(1e-4, 2e-11)), tmp_path, kind="curves")
    assert "Tree is fastest throughout" in text


@pytest.mark.thorough
def test_panels_without_lines_need_no_legend(networks: Make, tmp_path: Path) -> None:
    at = {"topology": "ring", "ranks": 64}
    text = drawn(networks(points=5), tmp_path, kind="curves", panels="collective", at=at)
    assert "Time of each operation, by message size" in text
    assert "all_gather" in text
