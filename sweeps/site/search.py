"""The search of the site: an index of all that has a name, in a script that needs no server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

FILE = "search.js"
SCRIPT = Path(__file__).parents[1] / "pages" / "files" / FILE
# What a page's entries are called, by the beginning of its file's name.
KINDS = {
    "algorithms": "algorithm",
    "command": "command",
    "frameworks": "framework",
    "guide": "guide",
    "hardware": "machine",
    "index": "question",
    "models": "model",
    "quantities": "quantity",
    "software": "library",
    "specs": "spec key",
}
CATALOGUE = ("machine", "model", "framework", "library")
# Longest text that an entry shows
MOST = 120


def search_script(pages: Mapping[str, str]) -> str:
    """Return the script of the search with its index: kind, name, meaning and link of each."""
    found_entries = (entry for page, text in pages.items() for entry in entries(page, text))
    index = [entry for entry in found_entries if entry[1]]
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in index)
    return f"const INDEX = [\n{lines}\n];\n{SCRIPT.read_text('utf-8')}"


def entries(page: str, text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield what of a page can be found: itself, its sections, a command's options, keys."""
    kind = KINDS.get(page.partition("-")[0])
    if kind is None:
        return
    body = ElementTree.fromstring(text).find("body")
    assert body is not None
    file = f"{page}.html"
    title, meaning = _text(body.find("h1")), _text(body.find("p"))
    if kind in CATALOGUE:  # Found by the name that is typed
        title, meaning = page.partition("-")[2], f"{title}. {meaning}"
    yield kind, title, meaning, file
    for section in body.iter("section"):
        heading = section.find("h3")
        heading = section.find("h2") if heading is None else heading
        anchor = section.get("id", "")
        yield kind, _text(heading), _text(section.find("p")), f"{file}#{anchor}"
    if kind in ("command", "spec key"):
        for row in body.iter("tr"):
            cells = row.findall("td")
            if len(cells) > 1 and cells[0].find("code") is not None:
                name = f"{page.removeprefix('command-')} {_text(cells[0])}".removeprefix("specs ")
                yield ("option" if kind == "command" else kind), name, _text(cells[1]), file


def _text(element: ElementTree.Element | None) -> str:
    words = "" if element is None else " ".join("".join(element.itertext()).split())
    return words if len(words) <= MOST else f"{words[: MOST - 2]} .."
