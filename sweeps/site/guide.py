"""The guide: pages of Markdown by subject, in the order of their index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sweeps.site.markdown import title_of, to_html

FOLDER = Path(__file__).parents[1] / "docs"
INDEX = "README"
# The index's file on the site; others are called after it.
GUIDE = "guide"
# Documents of the repository that are pages of the site, too.
ELSEWHERE = {
    "../../outputs/gallery/jobs.md": "index.html",
    "../../overhead/REFERENCES.md": "sources.html",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the guide."""

    name: str  # Its file's, without the ending
    short: str  # In the menu; empty: it isn't there
    text: str

    @property
    def title(self) -> str:
        """What it is about."""
        return title_of(self.text)

    @property
    def file(self) -> str:
        """Its file on the site, without the ending."""
        return GUIDE if self.name == INDEX else f"{GUIDE}-{self.name.replace('.', '-')}"

    @property
    def language(self) -> str:
        """The language that it is written in."""
        return "zh" if self.name.endswith(".zh") else "en"


def guide_pages() -> tuple[Page, ...]:
    """Return the guide's pages: the index, those that it lists, and their translations."""
    index = (FOLDER / f"{INDEX}.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([^\]]+)\]\((.+?)\.md\)", index, re.MULTILINE)
    known = [(name, short) for short, name in listed]
    others = sorted({path.stem for path in FOLDER.glob("*.md")} - {INDEX, *dict(known)})
    return (
        Page(INDEX, "Contents", index),
        *(
            Page(name, short, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))
            for name, short in [*known, *((name, "") for name in others)]
        ),
    )


def menu(pages: tuple[Page, ...], at: Page) -> str:
    """Return links to the pages that the index lists, folded."""
    links = (
        escape(page.short) if page == at else f'<a href="{page.file}.html">{escape(page.short)}</a>'
        for page in pages
        if page.short
    )
    each = "".join(f"<li>{link}</li>\n" for link in links)
    return f"<details>\n<summary>Pages of the guide</summary>\n<ul>\n{each}</ul>\n</details>\n"


def body_of(page: Page, pages: tuple[Page, ...]) -> Iterator[str]:
    """Yield a page as HTML below its title: the guide's menu, its text, and the next page."""
    if page.name != INDEX:
        yield menu(pages, page)
    yield from to_html(page.text, target_of(pages))
    listed = [entry for entry in pages if entry.short]
    if page in listed[:-1]:
        after = listed[listed.index(page) + 1]
        yield f'<p>Next: <a href="{after.file}.html">{escape(after.title)}</a></p>\n'


def target_of(pages: tuple[Page, ...]) -> Callable[[str], str]:
    """Return what gives where a page's link leads on the site: the repository isn't there."""
    files = {**ELSEWHERE, **{f"{page.name}.md": f"{page.file}.html" for page in pages}}

    def target(link: str) -> str:
        if link.startswith("https://"):
            return link
        file, mark, anchor = link.partition("#")
        if not file or file in files:
            return f"{files.get(file, '')}{mark}{anchor}"
        if not file.startswith("../"):
            message = f"a link to no page: {link}"
            raise ValueError(message)
        return ""

    return target
