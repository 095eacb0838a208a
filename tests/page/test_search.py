"""The search of the site, in a browser, from files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.cli import COMMANDS, commands
from sweeps.site.reference import Site
from sweeps.site.write import write_site


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("search") / "site"
    write_site(Site(commands, COMMANDS), folder)
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.goto((folder / "index.html").as_uri())
    yield opened
    assert not faults


def home(page: Any) -> None:
    page.goto(Path(page.url.removeprefix("file://")).with_name("index.html").as_uri())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "name", "file"),
    [
        ("step_time", "step_time", "#step_time"),
        ("step time", "step_time", "#step_time"),
        ("dgx-h100", "dgx-h100", "hardware-dgx-h100.html"),
        ("plan --gpus", "plan --gpus", "command-plan.html"),
        ("latency_per", "latency_per", "specs.html#label-latency_per"),
    ],
)
def test_the_first_hit_is_what_was_named(page: Any, text: str, name: str, file: str) -> None:
    home(page)
    page.keyboard.press("/")
    page.keyboard.type(text)
    assert page.locator("#hits li a").first.inner_text().startswith(name)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{file}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.thorough
def test_keys_go_through_the_hits(page: Any) -> None:
    home(page)
    field = page.get_by_label("Search")
    field.fill("memory")
    assert field.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.locator("[aria-selected=true]")
    assert chosen.count() == 1
    assert chosen.get_attribute("id") == field.get_attribute("aria-activedescendant") == "hit-1"
    link = chosen.locator("a").get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{link}")
    home(page)
    page.get_by_label("Search").fill("no such thing")
    assert page.get_by_role("status").inner_text() == "nothing has 'no such thing'"
    page.keyboard.press("Escape")
    assert page.get_by_label("Search").input_value() == ""
