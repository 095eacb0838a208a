"""The page of a stored sweep: what it shows is what is stored; nothing in it is executed."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sweeps
from sweeps.bands import band_words
from sweeps.cli.files import figures_of
from sweeps.errors import InputError
from sweeps.pages import pack, write
from sweeps.pages.pack import page_of
from sweeps.pages.write import Page, compose
from sweeps.plots import breakdown
from sweeps.plots.data import view_of
from sweeps.plots.names import cell_names
from sweeps.plots.style import as_read, scale_of
from sweeps.plots.tables import best_cells
from tests.cli_runner import Runner
from tests.page.script import needs_node, run_script

GALLERY = Path(__file__).parents[2] / "outputs" / "gallery"
STORED = ("llama3-70b-plans", "all-reduce-algorithms")
PLANS, ALGORITHMS = STORED
TAG = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@cache
def stored(name: str) -> xr.Dataset:
    return sweeps.open(GALLERY / f"{name}.nc").load()


@cache
def page_from(name: str) -> Page:
    return page_of(stored(name), figures_of(stored(name)), f"{name}.nc")


def states(dataset: xr.Dataset, count: int) -> list[dict[str, int]]:
    """Return seeded random cells."""
    rng = np.random.default_rng(16)
    sizes = {str(dim): size for dim, size in dataset.sizes.items()}
    places = {dim: rng.integers(0, size, count).tolist() for dim, size in sizes.items()}
    return [{dim: places[dim][n] for dim in sizes} for n in range(count)]


@pytest.mark.thorough_cases("plans")
@needs_node
@pytest.mark.parametrize("name", STORED)
def test_what_a_page_shows_is_what_is_stored(tmp_path: Path, name: str) -> None:
    dataset, page = stored(name), page_from(name)
    cells = states(dataset, 1000)
    names = [
        array["name"]
        for array in page.data["arrays"]
        if array["role"] == "quantity" and not array.get("texts")
    ]
    code = """
    const sweep = openSweep(data, bytes);
    process.stdout.write(JSON.stringify(asked.cells.map((cell) => ({
      name: nameOf(sweep, cell, sweep.dims.map((dim) => dim.name)),
      values: asked.names.map((name) => {
        const value = numberAt(sweep.arrays[name], cell);
        return [String(value), valueText(value, sweep.arrays[name].units), Number.isNaN(value)
          ? reasonAt(sweep, sweep.arrays[name], cell) : ""];
      }),
    }))));
    """
    result = run_script(tmp_path, page, code, {"cells": cells, "names": names})
    why = (sweeps.reasons(dataset).dims, sweeps.reasons(dataset).values)
    compared = 0
    for index, one in enumerate(names):
        scale = scale_of(as_read(one, str(dataset[one].attrs["units"])))
        values, dims = dataset[one].values, dataset[one].dims
        for cell, shown in zip(cells, result, strict=True):
            text, words, reason = shown["values"][index]
            true = float(values[tuple(cell[str(dim)] for dim in dims)])
            if np.isnan(true):
                reason_shown = why[1][tuple(cell[str(dim)] for dim in why[0])]
                assert (text, reason) == ("NaN", reason_shown)
                continue
            assert abs(float(text) - true) <= 10.0**-pack.DIGITS * abs(true)
            assert words == scale.text(float(text), 4)
            compared += 1
    assert compared > 1000
    if name == PLANS:  # Each cell of the figures' tables is called what they call it
        dims = [dim["name"] for dim in page.data["dims"]]
        kept = {tuple(cell.values()): n for n, cell in enumerate(cells)}.values()
        places = [np.array([cells[n][dim] for n in kept]) for dim in dims]
        names = cell_names(view_of(dataset, {}).dataset, dims, places)
        assert [result[n]["name"] for n in kept] == names


@needs_node
def test_the_best_cells_are_those_of_the_first_screen(tmp_path: Path) -> None:
    dataset = stored(PLANS)
    _, _, (_, *rows), _ = best_cells(dataset, "step_time", 8)
    code = """
    const sweep = openSweep(data, bytes);
    const dims = sweep.dims.map((dim) => dim.name);
    const array = sweep.arrays.step_time;
    const found = (limits) => {
      const kept = keeping(sweep, limits, dims, {});
      return bestPlaces(gather(array, dims, {}, sweep.sizes), kept, false, 8).map((n) => {
        const cell = cellOf(n, dims, {}, sweep.sizes);
        return [nameOf(sweep, cell, dims), valueText(numberAt(array, cell), "s"),
          numberAt(sweep.arrays.peak_memory, cell), numberAt(array, cell)];
      });
    };
    const own = found({ max: { peak_memory: 5e10 } });
    const plain = found({ max: data.most });
    const place = bestPlaces(gather(sweep.arrays.step_time, dims, {}, sweep.sizes),
      keeping(sweep, { max: data.most }, dims, {}), false, 1)[0];
    const bands = ["step_time", "peak_memory"].map((name) =>
      bandAt(sweep, sweep.arrays[name], cellOf(place, dims, {}, sweep.sizes)));
    process.stdout.write(JSON.stringify([plain, own, bands]));
    """
    page = page_from(PLANS)
    # As searches do, a page begins with plans that leave a tenth of the memory free.
    assert page.data["most"]["peak_memory"] == 0.9 * float(dataset.memory_capacity)
    plain, limited, bands = run_script(tmp_path, page, code)
    ends = ("error_band", "memory_error_band")
    words = [
        band_words(*(float(dataset[f"{one}_{end}"].max()) for end in ("low", "high")))
        for one in ends
    ]
    assert bands == [f" ({text})" for text in words]
    assert [one[:2] for one in plain] == rows
    true = dataset.step_time.where(dataset.peak_memory <= 5e10)
    assert limited[0][3] == pytest.approx(float(true.min()), rel=1e-6)
    assert all(memory <= 5e10 for _, _, memory, _ in limited)
    assert limited[0][3] > plain[0][3]


@needs_node
def test_parts_add_up_to_their_total(tmp_path: Path) -> None:
    code = """
    const sweep = openSweep(data, bytes);
    process.stdout.write(JSON.stringify(data.groups.map((group) => asked.map((cell) => {
      const sum = group.parts.reduce((all, part) => all + partAt(sweep, part, cell), 0);
      return [sum, numberAt(sweep.arrays[group.total], cell)].map(String);
    }))));
    """
    result = run_script(tmp_path, page_from(PLANS), code, states(stored(PLANS), 300))
    assert len(result) == 3
    for group in result:
        pairs = np.array(group, dtype=np.float64)
        there = ~np.isnan(pairs[:, 1])
        assert there.sum() > 30
        np.testing.assert_allclose(pairs[there, 0], pairs[there, 1], rtol=1e-6)


@needs_node
def test_parts_below_zero_are_taken_off_as_in_the_figures(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    parts = rng.uniform(-1, 9, (200, 6))
    code = "process.stdout.write(JSON.stringify(asked.map(folded)));"
    result = run_script(tmp_path, page_from(PLANS), code, parts.tolist())
    true, below = breakdown.folded(parts)
    np.testing.assert_allclose(result, true, rtol=1e-12, atol=1e-12)
    assert below == list(range(6))


HELD = """
const sweep = openSweep(data, bytes);
const asked_of = (changes) => {
  const page = { sweep };
  page.quantities = data.arrays.filter((one) => one.role === "quantity").map((one) => one.name);
  page.numbers = page.quantities;
  page.columns = [];
  page.state = { ...firstState(page), max: {}, min: {}, ...changes };
  page.asked = resolved(page);
  page.best = bestCells(page, 8);
  return page;
};
"""


@needs_node
def test_what_nothing_depends_on_is_not_looked_through(tmp_path: Path) -> None:
    plans = {"a": ("plan", [3.0, 1.0, 2.0]), "b": (("plan", "size"), np.ones((3, 5)))}
    dataset = xr.Dataset(plans, {"plan": ["x", "y", "z"], "size": np.arange(1.0, 6.0)})
    page = page_of(dataset, [], "own.nc")
    code = """
    const page = asked_of({});
    const cells = page.best.cells.map((cell) => nameOf(sweep, cell, page.best.dims));
    process.stdout.write(JSON.stringify([page.asked.x.name, page.best.total, cells]));
    """
    result = run_script(tmp_path, page, HELD + code)
    assert result == ["plan", 3, ["y", "z", "x"]]


@needs_node
def test_the_front_has_what_nothing_beats(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    xs, ys = np.round(rng.random((2, 3000)), 2)  # Many equal ones
    code = """
    const all = asked.xs.map(() => 1);
    const found = [false, true].map((more) => frontOf(asked.xs, asked.ys, all, more));
    process.stdout.write(JSON.stringify(found));
    """
    asked = {"xs": xs.tolist(), "ys": ys.tolist()}
    fronts = run_script(tmp_path, page_from(PLANS), code, asked)
    for front, sign in zip(fronts, (1, -1), strict=True):
        best = {(xs[n], sign * ys[n]) for n in front}
        points = sorted({(x, sign * y) for x, y in zip(xs, ys, strict=True)})
        least = np.minimum.accumulate([y for _, y in points])
        true = {point for n, point in enumerate(points) if n == 0 or point[1] < least[n - 1]}
        assert best == true


@needs_node
def test_numbers_are_written_as_the_figures_write_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    values = [0.0, 1.0, 0.5, 1e-7, 123456.0, 1e9, *(10 ** rng.uniform(-12, 17, 300)).tolist()]
    units = ("byte", "s", "byte s-1", "1", "USD", "J")
    cases = [list(case) for case in itertools.product(values, units, (3, 4))]
    code = """
    process.stdout.write(JSON.stringify(asked.map(([value, units, digits]) => {
      return [valueText(value, units, digits), givenText(value, units, digits)];
    })));
    """
    result = run_script(tmp_path, page_from(PLANS), code, cases)
    for (value, unit, digits), texts in zip(cases, result, strict=True):
        scale = scale_of(unit)
        assert texts == [scale.text(value, digits), scale.given(value, digits)], value


def parts_of(whole: bytes) -> tuple[str, dict[str, Any], bytes]:
    """Return a page's text, and the data and values in it."""
    text = whole.decode()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    values = re.search(r'<script type="text/plain" id="values">(.*?)</script>', text, re.S)
    assert data
    assert values
    return text, json.loads(data[1]), gzip.decompress(b64decode(values[1]))


def test_a_page_holds_all_and_fetches_nothing() -> None:
    text, data, values = parts_of(compose(page_from(PLANS), "x.nc"))
    assert values == page_from(PLANS).values
    assert data["spec"] == stored(PLANS).attrs["spec"]
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=", text.partition("<script")[0])
    assert len(text) < 250_000


def test_the_gallerys_page_holds_the_gallerys_sweep() -> None:
    text, data, values = parts_of((GALLERY / f"{PLANS}.html").read_bytes())
    assert data["fingerprint"] == stored(PLANS).attrs["fingerprint"]
    assert values == page_from(PLANS).values
    assert f"<title>{page_from(PLANS).title}</title>" in text
    present = parts_of(compose(page_from(PLANS), f"{PLANS}.html"))
    # Its look and its script are the present ones; its words may be those of a day before.
    assert kept_of(text) == kept_of(present[0]), "sweeps page llama3-70b-plans.nc --overwrite"
    assert [array["name"] for array in data["arrays"]] == [o["name"] for o in present[1]["arrays"]]


def kept_of(text: str) -> list[str]:
    """Return a page's style and script, but for what is of one page alone."""
    style = re.findall(r"<style>.*?</style>", text, re.S)
    code = re.findall(r"<script>.*?</script>", text, re.S)
    return style + [re.sub(r"const program = .*", "", one, flags=re.S) for one in code]


@pytest.mark.parametrize("kind", write.KINDS)
def test_the_code_of_a_page_is_small(kind: str) -> None:
    others = (write.FILES / "page.html").stat().st_size + len(write.look_of(kind).encode())
    assert len(write.script(kind).encode()) + others <= 100_000
    # Indentation is left out of a page: each line has all of a text that it begins.
    files = (*write.SHARED, *write.KINDS[kind])
    lines = [line for name in files for line in (write.FILES / name).read_text().splitlines()]
    assert not [line for line in lines if line.count("`") % 2]


def test_what_a_file_says_stays_text() -> None:
    dataset = stored(PLANS)[["step_time", "peak_memory", "status"]].copy()
    dataset.attrs |= {"title": TAG, "summary": TAG, "history": TAG, "spec": f'title = "{TAG}"'}
    dataset.step_time.attrs |= {"long_name": TAG, "formula": TAG, "units": TAG, "comment": TAG}
    dataset = dataset.assign_coords(recompute=[TAG, "full"])
    text, data, _ = parts_of(compose(page_of(dataset, [], TAG), TAG))
    assert data["title"] == TAG
    assert text.count("<script") == text.count("</script") == 3
    assert "<img" not in text


def test_what_is_too_large_is_refused_with_what_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = stored(PLANS)
    monkeypatch.setattr(pack, "MOST_CELLS", 500)
    with pytest.raises(InputError, match=r"768 cells of step_time.*longest dimension, plan \(64\)"):
        page_of(dataset, [], "x.nc")
    page = page_of(dataset, figures_of(dataset), "x.nc", at={"plan": "9"})
    assert [dim["name"] for dim in page.data["dims"]] == [
        "recompute",
        "zero_stage",
        "micro_batch_size",
    ]
    monkeypatch.setattr(write, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="too large to open at once; at most"):
        compose(page, "x.nc")


SOURCE = GALLERY / f"{ALGORITHMS}.nc"


def test_the_command_writes_a_page_once(cli: Runner, tmp_path: Path) -> None:
    line = f"page {SOURCE} --output x.html"
    assert cli(line).out.startswith("wrote x.html (")
    whole = (tmp_path / "x.html").read_bytes()
    assert "exists already" in cli.refused(line)
    assert cli(f"{line} --overwrite --at topology=torus --at ranks=64 --quantity time").code == 0
    _, data, _ = parts_of((tmp_path / "x.html").read_bytes())
    assert [dim["name"] for dim in data["dims"]] == ["algorithm", "message_bytes"]
    assert {array["name"] for array in data["arrays"] if array["role"] == "quantity"} == {"time"}
    assert len((tmp_path / "x.html").read_bytes()) < len(whole)
    assert {path.name for path in tmp_path.iterdir()} == {"x.html"}


def test_a_run_leaves_its_page_beside_its_file(cli: Runner, tmp_path: Path) -> None:
    spec = 'quantities = ["time"]\n[axes]\nranks = [2, 8]\n[constants]\nmessage_bytes = "1 MiB"\n'
    (tmp_path / "small.toml").write_text(spec, encoding="utf-8")
    ran = cli("run small.toml --page --csv --output x.nc", fine=False)
    assert ran.code == 0
    assert "wrote x.html (" in ran.err
    assert len(ran.rows) == 2
    _, data, _ = parts_of((tmp_path / "x.html").read_bytes())
    assert data["spec"] == spec


def test_a_page_of_a_sensitivity_shows_what_moves_the_answer() -> None:
    changes = {
        "upper_change": ("constant", [0.1, -0.02]),
        "lower_change": ("constant", [-0.1, 0.02]),
    }
    dataset = xr.Dataset({"step_time": 18.0, **changes}, {"constant": ["a", "b"]})
    page = page_of(dataset.assign_attrs(title="What moves it"), [], "s.nc")
    (asked,) = page.data["figures"]
    assert (page.title, asked["state"]["y"]) == ("What moves it", "upper_change")
    result = {array["name"]: array for array in page.data["arrays"]}
    assert all(result[name]["percent"] for name in changes)
    assert result["upper_change"]["better"] == "more"


REDUCED = """
title = "Best"
quantities = []
[axes.plan]
every = "tp,pp"
world_size = 64
tp = "1,8"
[axes]
micro_batch_size = [1, 2]
inter_bandwidth = ["100 Gbit/s", "400 Gbit/s"]
[constants]
model = "llama3-8b"
hardware = "dgx-h100"
sequence_length = 8192
global_batch_size = 128
[[reductions]]
quantity = "step_time"
operation = "top"
over = ["plan", "micro_batch_size"]
name = "best"
where = "peak_memory <= 72 GB"
[[reductions]]
quantity = "peak_memory"
operation = "min"
over = ["micro_batch_size", "inter_bandwidth"]
name = "least"
"""


@pytest.mark.thorough
@needs_node
def test_a_page_of_reductions_tells_what_was_found(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "best.toml").write_text(REDUCED, encoding="utf-8")
    assert cli("run best.toml --output best.nc --no-plot").code == 0
    dataset = sweeps.open(tmp_path / "best.nc").load()
    assert dataset.best.attrs["long_name"].endswith(", where peak_memory <= 72 GB")
    page = page_of(dataset, figures_of(dataset), "best.nc")
    code = """
    const page = asked_of({ y: "best", x: "inter_bandwidth" });
    const [cell] = page.best.cells;
    const found = foundAt(sweep, page.asked.array, cell);
    process.stdout.write(JSON.stringify([cell.best_rank, found]));
    """
    rank, actual = run_script(tmp_path, page, HELD + code)
    first = dataset.isel(best_rank=0, inter_bandwidth=1)
    plan = dataset.isel(plan=int(first.best_plan))
    assert rank == 0  # Of the best ones the first, not one in their midst
    assert f"tp {float(plan.tp):g}" in actual
    assert f"micro batch size {float(first.best_micro_batch_size):g}" in actual


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ("--at rank=64", "did you mean 'ranks'"),
        ("--at ranks=65", "isn't in the file; 2"),
        ("--at ranks", "DIMENSION=VALUE"),
        ("--quantity tme", "did you mean 'time'"),
        ("--output x.nc", "is no page"),
        ("--output none-such/x.html", "does not exist"),
        (
            "--at ranks=64 --at message_bytes=1KiB --at topology=torus --at algorithm=auto",
            "has no result with a dimension",
        ),
    ],
)
def test_what_cannot_be_a_page_is_refused(
    cli: Runner, tmp_path: Path, more: str, result: str
) -> None:
    output = "" if "--output" in more else "--output x.html"
    ran = cli(f"page {SOURCE} {output} {more}", fine=False)
    assert (ran.code, result in ran.err, ran.err.count("\n")) == (2, True, 1), ran.err
    assert not list(tmp_path.iterdir())
