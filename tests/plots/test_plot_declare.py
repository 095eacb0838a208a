"""Declarations: what is understood, and how each fault reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import xarray as xr

from sweeps.errors import InputError
from sweeps.plots.data import Subject, subject_of
from sweeps.plots.declare import check_figures
from sweeps.plots.defaults import default_figures
from sweeps.plots.schema import FORMS, KINDS, Figure
from tests.tables import examples

Make = Callable[..., xr.Dataset]


def checked(dataset: xr.Dataset, *declarations: Any) -> list[Figure]:
    return check_figures(declarations, replace(subject_of(dataset), columns=None))


def faults(dataset: xr.Dataset, *declarations: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        checked(dataset, *declarations)
    return caught.value.faults


def test_defaults_are_filled_in(networks: Make) -> None:
    figure = checked(networks(), {"kind": "curves", "at": {"ranks": 64}, "panels": "collective"})[0]
    assert figure["x"] == "message_bytes"
    assert figure["y"] == "time"
    assert figure["lines"] == ("topology",)
    assert figure["crossovers"] is True


def test_names_are_given_and_unique(networks: Make) -> None:
    plain = {"kind": "best", "panels": "collective"}
    figures = checked(networks(), plain, {**plain, "name": "mine"}, plain)
    assert [figure.name for figure in figures] == ["best", "mine", "best-2"]
    twice = faults(networks(), {**plain, "name": "a"}, {**plain, "name": "a"})
    assert twice == ("figures[2].name = 'a': another figure has it; another name",)


@pytest.mark.parametrize(("declaration", "fault"), examples(__file__, "faults_read_well"))
def test_faults_read_well(networks: Make, declaration: Any, fault: str) -> None:
    assert any(fault in line for line in faults(networks(), declaration))


def test_all_faults_come_at_once(networks: Make) -> None:
    names = faults(networks(), {"kind": "x"}, {"kind": "best", "y": "rank", "x": "size"}, {})
    assert len(names) == 4
    assert [
        line.split(":")[0].split(" ")[0] for line in names
    ] == "figures[1].kind figures[2].x figures[2].y figures[3].kind".split()


def test_what_is_held_may_have_a_unit(networks: Make) -> None:
    made = networks(points=24)
    at = {"message_bytes": "8GiB", "collective": "p2p"}
    assert checked(made, {"kind": "scaling", "at": at})[0].kind == "scaling"


def test_variables_of_unknown_dimensions_are_checked_later(networks: Make) -> None:
    subject = Subject(subject_of(networks()).dims, {"time": None})
    figure = check_figures([{"kind": "curves"}], subject)[0]
    assert figure["lines"] is None


def test_every_key_of_every_kind_has_a_form_and_a_meaning() -> None:
    for kind in KINDS.values():
        assert {*kind.shown, *kind.used, kind.filled} <= kind.keys.keys()
        for key in kind.keys.values():
            assert key.form in FORMS
            assert key.meaning


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        ("networks", ["curves", "scaling", "best"]),
        ("algorithms", ["curves", "scaling", "best"]),
        ("measured", ["measured"]),
        ("memory", ["bars"]),
    ],
)
def test_default_figures_are_good_declarations(
    make: str, kinds: list[str], request: pytest.FixtureRequest
) -> None:
    made: xr.Dataset = request.getfixturevalue(make)()
    declarations = default_figures(made)
    assert [declaration["kind"] for declaration in declarations] == kinds
    assert len(checked(made, *declarations)) == len(kinds)


def test_default_figures_of_one_point_are_bars_or_nothing(networks: Make) -> None:
    made = networks().isel(message_bytes=[3], ranks=[2])
    assert [default_figure["kind"] for default_figure in default_figures(made)] == ["bars"]
    assert default_figures(made.isel(collective=[0], topology=[0])) == []


def test_default_bars_show_parts_only_if_they_are_all_of_the_time(networks: Make) -> None:
    made = networks().isel(message_bytes=3, ranks=2)
    made["latency_time"] = 0.25 * made["time"]
    made["bandwidth_time"] = 0.75 * made["time"]
    assert default_figures(made)[0]["parts"] == ["latency_time", "bandwidth_time"]
    made["bandwidth_time"] = 0.8 * made["time"]
    assert default_figures(made)[0]["parts"] == ["time"]


def test_many_algorithms_are_drawn_by_their_best(networks: Make) -> None:
    made = networks(points=5, ranks=(4, 16))
    many = xr.concat([made["time"] * (1 + k / 10) for k in range(6)], dim="algorithm")
    made["time"] = many.assign_coords(algorithm=[f"algorithm_{k}" for k in range(6)])
    figure = default_figures(made)[0]
    assert figure["lines"] == ["topology"]
    assert figure["best_of"] == ["algorithm"]
