"""The page in a real browser: offline, without a fault in its console, as its reader uses it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweeps
from sweeps.bands import AT_RISK, FITS, MAY_NOT_FIT, NO_ROOM, band_words
from sweeps.cli.files import figures_of
from sweeps.engine.validity import training_faults
from sweeps.pages.pack import page_of
from sweeps.pages.write import write_page
from sweeps.plots.style import as_read, scale_of
from tests.cli_runner import Runner
from tests.page.test_live import FITTING
from tests.page.test_live import page_from as live_page
from tests.page.test_page import ALGORITHMS, PLANS, TAG, page_from, states, stored

# Memory and its band.
STATED = ["peak_memory", "memory_error_band_low", "memory_error_band_high"]
# Text over text, text beyond the figure, and a page wider than its window.
FAULTS = """() => {
  const host = document.querySelector("#figure").getBoundingClientRect();
  const found = [];
  const texts = [...document.querySelectorAll("#figure svg text")].map((one) => {
    return [one.textContent, one.getBoundingClientRect()];
  });
  texts.forEach(([text, a], n) => {
    if (a.left < host.left - 2 || a.right > host.right + 2) found.push(`${text} is cut`);
    for (const [other, b] of texts.slice(0, n)) {
      const across = a.left < b.right - 1 && b.left < a.right - 1;
      if (across && a.top < b.bottom - 2 && b.top < a.bottom - 2) found.push(`${text} | ${other}`);
    }
  });
  if (document.documentElement.scrollWidth > innerWidth) found.push("too wide");
  return found;
}"""
# Each state is a link; what is told of its cell is read off the page.
SHOWN = """(fragments) => fragments.map((fragment) => {
  history.replaceState(null, "", `#${fragment}`);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
  return document.querySelector("#cell .value").textContent;
})"""


class Opened:
    """A page that is open, with what its console says."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append("a dialog"), dialog.dismiss()))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def text(self, region: str) -> str:
        return str(self.page.inner_text(f"#{region}"))

    def close(self) -> None:
        self.context.close()
        assert not self.said


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name}.html" for name in (PLANS, ALGORITHMS)}
    for name, path in paths.items():
        write_page(page_from(name), path)
    return paths


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        (PLANS, 1280, "light"),
        (PLANS, 390, "dark"),
        (ALGORITHMS, 390, "light"),
    ],
)
def test_every_question_and_view_can_be_read(
    browser: Any, files: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    opened = Opened(browser, files[name], width, scheme)
    page = opened.page
    asked = page_from(name).data["figures"]
    assert opened.text("title") == asked[0]["title"]
    for one in asked:
        if one is not asked[0]:
            page.get_by_role("button", name=one["title"], exact=True).click()
        assert opened.text("title") == one["title"]
        assert len(opened.text("answer")) > 30
        assert page.evaluate(FAULTS) == [], one["title"]
    for view in ("Points", "Lines", "Map", "Parts"):
        button = page.locator("#controls fieldset").first.get_by_text(view, exact=True)
        if button.count():
            button.click()
            assert page.evaluate(FAULTS) == [], view
    opened.close()


def test_a_link_shows_what_is_stored(browser: Any, files: dict[str, Path]) -> None:
    dataset, data = stored(PLANS), page_from(PLANS).data
    cells = states(dataset, 150)  # A thousand of them are compared outside of a browser
    dims = [dim["name"] for dim in data["dims"]]
    names = [
        array["name"]
        for array in data["arrays"]
        if array["role"] == "quantity" and not array["percent"]
    ]
    chosen = [names[n % len(names)] for n in range(len(cells))]
    fragments = [
        f"view=lines&y={name}&cell={'.'.join(str(cell[dim]) for dim in dims)}"
        for name, cell in zip(chosen, cells, strict=True)
    ]
    opened = Opened(browser, files[PLANS])
    shown = opened.page.evaluate(SHOWN, fragments)
    arrays = {name: (dataset[name].dims, dataset[name].values) for name in names}
    units = {name: scale_of(as_read(name, str(dataset[name].attrs["units"]))) for name in names}
    for name, cell, text in zip(chosen, cells, shown, strict=True):
        own, values = arrays[name]
        true = np.float32(values[tuple(cell[str(dim)] for dim in own)])
        said = f"none: {text[6:]}" if np.isnan(true) else units[name].text(float(true), 4)
        assert text == said
        assert not np.isnan(true) or len(text) > 10
    opened.close()


# How many dots of a plot are opaque, but for its grid.
DOTS = """() => {
  const canvas = document.querySelector("#figure canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let n = 0; n < data.length; n += 4) found += data[n + 3] > 200 && data[n] < 40;
  return found;
}"""


def test_over_names_there_are_marks(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files[PLANS])
    opened.page.goto(f"{files[PLANS].as_uri()}#fig=none&view=lines&x=plan")
    opened.page.reload()
    opened.page.wait_for_selector("html[data-ready]")
    assert stored(PLANS).sizes["plan"] > 60
    assert opened.page.evaluate(DOTS) > 200
    opened.close()


def test_a_reader_limits_compares_and_passes_on(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files[PLANS])
    page = opened.page
    best = opened.text("answer")
    page.locator("#limits input").fill("50 GB")
    page.locator("#limits input").press("Enter")
    limited = opened.text("answer")
    true = stored(PLANS).isel(recompute=0, zero_stage=0)
    least = float(true.step_time.where(true.peak_memory <= 50e9).min())
    assert limited != best
    assert scale_of("s").text(least, 4) in limited
    page.get_by_role("button", name="Pin as A").click()
    page.locator("#best button").nth(1).click()
    page.get_by_role("button", name="Pin as B").click()
    assert "B over A" in opened.text("compare")
    with page.expect_download() as download:
        page.get_by_role("button", name="Table (CSV)").click()
    rows = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert "step_time [s]" in rows[0]
    assert len(rows) == 1 + 3 * 64
    opened_file = Opened(browser, files[PLANS])
    opened_file.page.goto(page.url)
    opened_file.page.reload()
    opened_file.page.wait_for_selector("html[data-ready]")
    assert opened_file.text("compare") == opened.text("compare")
    assert opened_file.text("answer") == limited
    opened_file.close()
    opened.close()


def test_keys_are_enough_and_paper_has_the_figure(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files[PLANS], scheme="dark")
    page = opened.page
    page.focus("#figure")
    before = opened.text("cell")
    page.keyboard.press("ArrowRight")
    assert opened.text("cell") != before
    page.keyboard.press("Enter")
    assert "cell=" in page.url
    page.focus("#controls input[type=radio]:checked")
    page.keyboard.press("ArrowRight")
    assert "view=lines" in page.url
    focused = page.evaluate("document.activeElement.closest('[data-control]').dataset.control")
    assert focused == "view"
    assert len(page.pdf()) > 20_000
    opened.close()


def test_nothing_from_a_file_is_executed(browser: Any, tmp_path: Path) -> None:
    dataset = stored(PLANS).copy()
    dataset.attrs |= dict.fromkeys(("title", "summary", "history", "source"), TAG)
    for name in (*dataset.data_vars, *dataset.coords):
        if "flag_masks" not in dataset[name].attrs:
            dataset[name].attrs |= {"long_name": TAG, "formula": TAG, "comment": TAG}
    dataset = dataset.assign_coords(recompute=[TAG, f"{TAG}2"])
    write_page(page_of(dataset, [], TAG), tmp_path / "x.html")
    opened = Opened(browser, tmp_path / "x.html")
    assert "</script>" in opened.text("answer")
    for view in ("Points", "Lines", "Map", "Parts"):
        opened.page.locator("#controls fieldset").first.get_by_text(view, exact=True).click()
    assert opened.page.locator("img").count() == 0
    opened.close()


# What each of a slider's steps changes before anything else runs: the answer, the figure, and the
# tables, whose numbers take thousands of plans.
STEPS = """() => {
  const text = (id) => document.getElementById(id).textContent;
  const slider = document.querySelector("#controls input[type=range]");
  const seen = [[text("answer"), text("figure")]];
  const tables = text("best") + text("compare");
  for (let step = 0; step < 21; step += 1) {
    slider.value = 580 + 20 * step;
    slider.dispatchEvent(new Event("input"));
    seen.push([text("answer"), text("figure")]);
  }
  return { seen, waits: text("best") + text("compare") === tables, tables };
}"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "plan.html"
    write_page(live_page(**FITTING), path)
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_calculator_follows_what_is_set(
    browser: Any, calculator: Path, width: int, scheme: str
) -> None:
    opened = Opened(browser, calculator, width, scheme)
    page = opened.page
    first = opened.text("answer")
    assert "A step takes" in first
    assert "per GPU: fits" in first
    assert page.evaluate(FAULTS) == []
    page.get_by_label("tensor parallel: less").click()
    assert opened.text("answer") != first
    assert page.evaluate(FAULTS) == []
    assert "tp=4" in page.evaluate("location.hash")
    assert "--tp 4" in opened.text("about")
    if width == 1280:
        gpus = page.get_by_label("GPUs", exact=True)
        gpus.fill("16")
        gpus.press("Enter")
        # The best plan that was found is taken, with the time that it was found with.
        row = page.locator("#search tr").nth(1)
        row.wait_for()
        found = row.locator("td").all_inner_texts()
        row.get_by_role("button").click()
        assert len(found) == 2
        assert all(one in opened.text("answer") for one in found)
        assert ", goodput " in opened.text("answer")
        assert page.evaluate(FAULTS) == []
        page.get_by_role("button", name="Back to the start").click()
    page.get_by_label("schedule").select_option("dual_pipe")
    page.get_by_label("pipeline stages: less").click()
    page.get_by_label("pipeline stages", exact=True).fill("3")
    page.get_by_label("pipeline stages", exact=True).press("Enter")
    # Why there is no such plan is said in the words of `status`.
    faults = training_faults().texts
    assert faults["odd_stages_or_micro_batches"] in opened.text("answer")
    linked = page.url
    said = opened.text("answer")
    page.get_by_role("button", name="Back to the start").click()
    assert opened.text("answer") == first
    page.goto(linked)
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert opened.text("answer") == said
    opened.close()


def test_a_step_of_a_slider_is_seen_at_once(browser: Any, calculator: Path) -> None:
    """The answer and its figure change in the step itself; what takes long comes after it."""
    opened = Opened(browser, calculator)
    opened.page.get_by_role("heading", name="Numbers", exact=True).wait_for()
    values_by_name = opened.page.evaluate(STEPS)
    for part in zip(*values_by_name["seen"], strict=True):
        assert all(before != after for before, after in itertools.pairwise(part))
    assert values_by_name["tables"]
    assert values_by_name["waits"]
    opened.close()


# Controls without a name, figures without one, and texts that stand out less than AA asks for.
ACCESS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (colour) => colour.slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, n) => sum + one * [0.2126, 0.7152, 0.0722][n], 0);
  const ratio = (...both) => {
    const [low, high] = both.map(light).sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = parse(getComputedStyle(one).backgroundColor);
      if (found.length === 3) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const one of document.querySelectorAll("input, select, button, summary")) {
    const labels = [...(one.labels || [])].map((label) => label.textContent).join("");
    const name = one.getAttribute("aria-label") || labels || one.textContent;
    if (!name.trim()) found.push(one.outerHTML);
  }
  for (const one of document.querySelectorAll("svg")) {
    if (one.getAttribute("role") !== "img" || !one.getAttribute("aria-label")) found.push("svg");
  }
  for (const one of document.querySelectorAll("canvas:not([aria-hidden])")) found.push("canvas");
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const seen = own && one.getClientRects().length && !one.closest("noscript, option, :disabled");
    if (!seen) continue;
    const style = getComputedStyle(one);
    const has = ratio(parse(one.closest("svg") ? style.fill : style.color), behind(one));
    if (has < 4.5) found.push(`${one.tagName} ${one.textContent} ${has}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_names_and_contrast(
    browser: Any, files: dict[str, Path], calculator: Path, scheme: str
) -> None:
    states = {calculator: ("", "tp=4&pp=2", "tp=1&pp=1", "pp=3"), files[PLANS]: ("",)}
    for path, fragments in states.items():
        opened = Opened(browser, path, 1280, scheme)
        for fragment in fragments:
            opened.page.goto(f"{path.as_uri()}#{fragment}")
            opened.page.reload()
            opened.page.wait_for_selector("html[data-ready]")
            assert opened.page.evaluate(ACCESS) == [], fragment
        opened.close()
    for view in ("lines", "map", "bars"):
        opened = Opened(browser, files[PLANS], 1280, scheme)
        opened.page.goto(f"{files[PLANS].as_uri()}#fig=none&view={view}")
        opened.page.reload()
        opened.page.wait_for_selector("html[data-ready]")
        assert opened.page.evaluate(ACCESS) == [], view
        opened.close()


def test_a_calculator_says_whether_memory_fits(browser: Any, calculator: Path) -> None:
    """The three states in the command line's words, with the band; no bars of no plan."""
    opened = Opened(browser, calculator)
    said = {}
    for tp, pp in ((8, 4), (4, 2), (1, 1)):
        opened.page.goto(f"{calculator.as_uri()}#tp={tp}&pp={pp}&recompute=none")
        opened.page.reload()
        opened.page.wait_for_selector("html[data-ready]")
        dataset = sweeps.sweep(STATED, **{**FITTING, "tp": tp, "pp": pp, "recompute": "none"})
        state = float(dataset.peak_memory) / float(dataset.memory_capacity)
        band = band_words(
            float(dataset.memory_error_band_low), float(dataset.memory_error_band_high)
        )
        low, high = (
            state * (1 + float(dataset[f"memory_error_band_{end}"])) for end in ("low", "high")
        )
        risky = MAY_NOT_FIT if state > 1 else AT_RISK
        words = NO_ROOM if low > 1 else risky if high > 1 else FITS
        said[words] = answer = opened.text("answer")
        assert f"({band})" in answer
        assert opened.page.locator("#figure svg").count() == 4
    assert all(answer.split("per GPU: ")[1].startswith(words) for words, answer in said.items())
    assert len(said) == 3
    opened.page.get_by_label("pipeline stages", exact=True).fill("3")
    opened.page.get_by_label("pipeline stages", exact=True).press("Enter")
    assert "There is no such plan." in opened.text("answer")
    assert opened.page.locator("#figure svg, #figure canvas").count() == 0
    opened.page.get_by_label("pipeline stages: less").click()
    assert opened.page.locator("#figure svg").count() == 4
    opened.close()


@pytest.mark.parametrize("path", ["calculator", PLANS])
def test_a_phone_shows_a_control_at_once(
    browser: Any, files: dict[str, Path], calculator: Path, path: str
) -> None:
    opened = Opened(browser, files.get(path, calculator), 390)
    first = "document.querySelector('select, input, button').getBoundingClientRect().bottom"
    assert opened.page.evaluate(first) < 844 / 2
    if path == "calculator":
        dial = "document.querySelector('#controls button').getBoundingClientRect().bottom"
        assert opened.page.evaluate(dial) < 844
    opened.close()


def test_a_picked_machine_gives_what_the_command_gives(
    browser: Any, calculator: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was set stays, the rest is the picked one's; the page's command says the same."""
    opened = Opened(browser, calculator)
    page = opened.page
    page.get_by_label("tensor parallel: less").click()
    assert not page.get_by_label("expert parallel", exact=True).is_visible()
    page.get_by_label("Machine", exact=True).select_option("dgx-b200")
    page.get_by_label("Model", exact=True).select_option("mixtral-8x7b")
    assert page.get_by_label("expert parallel", exact=True).is_visible()
    assert opened.text("title") == "Step time and memory of mixtral-8x7b on dgx-b200"
    command = page.locator("#about code").inner_text()
    assert "--model mixtral-8x7b" in command
    assert "--hardware dgx-b200" in command
    assert "--tp 4" in command
    (row,) = Runner(capsys)(command.removeprefix("sweeps "), "--json").records
    answer = opened.text("answer")
    assert scale_of("s").text(row["step_time_s"], 4) in answer
    assert f"({band_words(row['error_band_low'], row['error_band_high'])})" in answer
    linked = page.url
    page.goto(linked)
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert opened.text("answer") == answer
    opened.close()


@pytest.mark.thorough
def test_the_plans_page_leads_with_the_plan_that_is_recommended(
    browser: Any, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, *_) = Runner(capsys)(
        "plan --model llama3-70b --hardware dgx-h100 --gpus 512 --global-batch-size 1024 "
        "--seq-len 8192 --json"
    ).records
    opened = Opened(browser, files[PLANS])
    answer = opened.text("answer")
    assert answer.startswith(f"Recommended plan: {scale_of('s').text(first['step_time_s'], 4)} (")
    assert f"({band_words(first['error_band_low'], first['error_band_high'])})" in answer
    named = re.search(r"tp (\d+) · pp (\d+) · dp (\d+) · micro-batch (\d+)", answer)
    assert named
    degrees = ("tp", "pp", "dp", "micro_batch_size")
    assert [*map(float, named.groups())] == [first[name] for name in degrees]
    opened.close()
    # Among plans that tie the simplest is the one, not the fastest.
    dataset = stored(PLANS).copy(deep=True)
    slower = (dataset.tp == 8) & (dataset.pp == 1) & (dataset.cp == 1)
    dataset["step_time"] = dataset.step_time.where(~slower, dataset.step_time * 1.02).assign_attrs(
        dataset.step_time.attrs
    )
    write_page(page_of(dataset, figures_of(dataset), "x.nc"), tmp_path / "x.html")
    opened = Opened(browser, tmp_path / "x.html")
    assert "tp 8 · pp 1 · dp 64 · micro-batch 1" in opened.text("answer")
    least = float(dataset.step_time.isel(recompute=0, zero_stage=0).where(~slower).min())
    assert least < float(first["step_time_s"]) * 1.02
    opened.close()
    # Where nodes are of 4 GPUs, a slower plan whose tensor parallelism stays inside one.
    slow = float(first["step_time_s"]) * 1.03
    dataset["step_time"] = stored(PLANS).step_time.where(dataset.tp > 4, slow)
    dataset["step_time"].attrs = stored(PLANS).step_time.attrs
    for node, inside in ((8.0, False), (4.0, True)):
        dataset.attrs["gpus_per_node"] = node
        path = tmp_path / f"nodes-of-{node:g}.html"
        write_page(page_of(dataset, figures_of(dataset), "x.nc"), path)
        opened = Opened(browser, path)
        answer = opened.text("answer")
        assert ("tp 8" not in answer) == inside, answer
        opened.close()


@pytest.mark.thorough
def test_what_was_bought_has_its_machine_in_its_name(
    browser: Any, cli: Runner, tmp_path: Path
) -> None:
    """The file declares its figure by machine, which is a result of each row: it has a name."""
    line = "buy --model llama3-8b --tokens 1T --days 30 --hardware dgx-h100,dgx-b200"
    cli(f"{line} --output {tmp_path}/b.nc")
    cli(f"page {tmp_path}/b.nc --output {tmp_path}/b.html")
    opened = Opened(browser, tmp_path / "b.html")
    dataset = sweeps.open(tmp_path / "b.nc")
    words = str(dataset.hardware.attrs["flag_meanings"]).split()
    best = dataset.isel(dataset.run_days.argmin(...))
    machine = words[list(dataset.hardware.attrs["flag_values"]).index(int(best.hardware))]
    assert f"{float(best.run_days):.2f} d" in opened.text("answer")
    assert machine in opened.text("answer")
    opened.close()
