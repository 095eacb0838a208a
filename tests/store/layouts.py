"""Layouts and blocks to store, made up here: nothing is computed by the engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from sweeps.engine.grid import Block, Column, Layout
from sweeps.origin import attributes
from tests.tables import keyed

GLOBAL = keyed(
    "Conventions=CF-1.11 title='A made-up sweep' institution='not stated' source=tests "
    "history='2026-01-01T00:00:00Z made up' references=none comment=none fingerprint=abc"
)
STATUS = {
    "long_name": "why a cell has no result",
    "flag_masks": [1, 2],
    "flag_meanings": "not_defined out_of_domain",
}
CHOSEN = dict(long_name="algorithm chosen", flag_values=[0, 1, 2], flag_meanings="none ring tree")

Values = Mapping[str, NDArray[Any]]
Case = tuple[Layout, dict[str, NDArray[Any]]]


def number(name: str, dims: tuple[str, ...], units: str = "s", **attrs: Any) -> Column:
    return Column(name, dims, np.dtype("f8"), {"long_name": name, "units": units, **attrs})


def axis(name: str, values: Any, units: str = "1") -> Column:
    array = np.asarray(values)
    attrs = {"long_name": name, "units": units, "symbol": "$x$", **attributes()}
    return Column(name, (name,), array.dtype, attrs, array)


def scalar(name: str, value: Any = 1.0) -> Column:
    array = np.asarray(value)
    return Column(name, (), array.dtype, {"long_name": name, "units": "1"}, array)


def label(name: str, words: list[str]) -> Column:
    array = np.array(words)
    return Column(name, (name,), array.dtype, {"long_name": name}, array)


def layout(coordinates: tuple[Column, ...], variables: tuple[Column, ...], **sizes: int) -> Layout:
    named = [coordinate for coordinate in coordinates if coordinate.dims == (coordinate.name,)]
    sizes_by_name = {each.name: np.asarray(each.values).size for each in named}
    return Layout({**sizes, **sizes_by_name}, coordinates, variables, GLOBAL)


def usual() -> Case:
    """Labels, a table axis, a scalar and a text scalar; several variables; holes, inf, flags."""
    coordinates = (
        label("topology", ["ring", "torus", "多級交換"]),
        Column(
            "rate",
            ("topology",),
            np.dtype("f8"),
            {"long_name": "r", "units": "byte s-1"},
            np.array([1e9, 2e9, 4e9]),
        ),
        Column(
            "vendor",
            ("topology",),
            np.dtype("U3"),
            {"long_name": "vendor"},
            np.array(["a", "", "é"]),
        ),
        axis("plan", np.arange(4)),
        Column(
            "dp",
            ("plan",),
            np.dtype("i8"),
            {"long_name": "d", "units": "1"},
            np.array([1, 2, 4, 8]),
        ),
        axis("message_bytes", np.geomspace(1e3, 1e9, 5), "byte"),
        Column("latency", (), np.dtype("f8"), {"long_name": "l", "units": "s"}, np.array(1e-6)),
        Column("collective", (), np.dtype("U10"), {"long_name": "c"}, np.array("all_reduce")),
    )
    full = ("topology", "plan", "message_bytes")
    variables = (
        number("time", full, references="somebody, 2009"),
        number("steps", ("plan",), "1"),
        number("bound", ()),
        Column("status", full, np.dtype("i2"), STATUS),
        Column("chosen_algorithm", ("topology", "plan"), np.dtype("i1"), CHOSEN),
    )
    made = layout(coordinates, variables)
    generator = np.random.default_rng(1)
    time = generator.lognormal(size=(3, 4, 5))
    time[0, 0, :3] = np.nan, np.inf, -np.inf
    values = {
        "time": time,
        "steps": np.array([1.0, np.nan, 0.0, -0.0]),
        "bound": np.array(2.5),
        "status": np.isnan(time).astype("i2"),
        "chosen_algorithm": generator.integers(0, 3, (3, 4)).astype("i1"),
    }
    return made, values


def blocks(values: Values, cells: int | None = None) -> Iterator[Block]:
    """Cut each variable, in C order, along its first dimension that is long enough."""
    for name, array in values.items():
        if array.ndim == 0 or cells is None:
            yield Block(name, tuple(slice(0, size) for size in array.shape), array)
            continue
        for start in range(0, array.shape[0], cells):
            region = (slice(start, start + cells), *(slice(None) for _ in array.shape[1:]))
            yield Block(name, region, array[region])


@st.composite
def layouts(draw: st.DrawFn) -> Case:
    """Up to three dimensions of labels or numbers, and variables on any of them."""
    names = ["topology", "ranks", "message_bytes"][: draw(st.integers(0, 3))]
    coordinates = []
    for name in names:
        size = draw(st.integers(1, 5))
        kind = draw(st.sampled_from(["label", "float", "int", "none"]))
        if kind == "label":
            word = st.text(st.characters(exclude_categories=["C"]), max_size=6)
            words = draw(st.lists(word, min_size=size, max_size=size, unique=True))
            coordinates.append(label(name, words))
        elif kind == "none":
            coordinates.append(
                Column(
                    f"{name}_column",
                    (name,),
                    np.dtype("f8"),
                    {"long_name": name, "units": "1"},
                    np.arange(float(size)),
                )
            )
        else:
            coordinates.append(axis(name, np.arange(size, dtype="f8" if kind == "float" else "i8")))
    sizes = {coordinate.dims[0]: np.asarray(coordinate.values).size for coordinate in coordinates}
    if draw(st.booleans()):
        coordinates.append(Column("latency", (), np.dtype("f8"), {"units": "s"}, np.array(2.0)))
    variables, values = [], {}
    for index in range(draw(st.integers(1, 3))):
        dims = tuple(name for name in names if draw(st.booleans()))
        shape = tuple(sizes[name] for name in dims)
        if draw(st.booleans()):
            column = number(f"v{index}", dims)
            element = st.floats(allow_nan=True, allow_infinity=True)
        else:
            name = "status" if index == 0 else f"v{index}"
            kind = draw(st.sampled_from(["i1", "i2", "i4"]))
            column = Column(name, dims, np.dtype(kind), STATUS)
            element = st.integers(-100, 100)
        count = int(np.prod(shape, dtype=int))
        flat = draw(st.lists(element, min_size=count, max_size=count))
        variables.append(column)
        values[column.name] = np.array(flat, dtype=column.dtype).reshape(shape)
    return Layout(sizes, tuple(coordinates), tuple(variables), GLOBAL), values


@st.composite
def partitions(draw: st.DrawFn, values: Values) -> list[Block]:
    """Cut every variable along every dimension somewhere, and shuffle the pieces."""
    pieces = []
    for name, array in values.items():
        cuts = []
        for size in array.shape:
            inner = sorted(draw(st.sets(st.integers(1, size - 1)))) if size > 1 else []
            cuts.append(list(itertools.pairwise([0, *inner, size])))
        for bounds in itertools.product(*cuts):
            region = tuple(slice(start, stop) for start, stop in bounds)
            pieces.append(Block(name, region, array[region]))
    return list(draw(st.permutations(pieces)))


def names(folder: Path | str) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def written_bytes(path: Path) -> bytes | None:
    """The file's bytes; None if there is none."""
    return path.read_bytes() if path.exists() else None
