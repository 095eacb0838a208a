"""Pieces of HTML pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import click

from overhead.labels import LABELS


def link_to(file: str, text: str, anchor: str = "", title: str = "") -> str:
    """Return a link to a page of the site, or to a place in it."""
    about = f' title="{escape(title)}"' if title else ""
    return f'<a href="{file}.html{f"#{anchor}" if anchor else ""}"{about}>{escape(text)}</a>'


def in_code(text: str) -> str:
    """Return text as it is typed."""
    return f"<code>{escape(text)}</code>"


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are HTML already."""
    first = "".join(f"<th>{escape(heading)}</th>" for heading in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><tr>{first}</tr>\n{body}</table></div>\n'


def facts_of(facts: Mapping[str, str]) -> str:
    """Return a list of facts that aren't empty; they are HTML already."""
    each = "".join(
        f"<dt>{escape(name)}</dt><dd>{text}</dd>\n" for name, text in facts.items() if text
    )
    return f"<dl>{each}</dl>\n" if each else ""


def labels_of(when: Mapping[str, str]) -> str:
    """Return labels with their values; those that follow from others have no place of their own."""
    shown = (
        f"{link_to('specs', label, f'label-{label}') if label in LABELS else escape(label)} = "
        f"{escape(values.replace('|', ' or '))}"
        for label, values in when.items()
    )
    return ", ".join(shown)


class Help(click.HelpFormatter):
    """What a command's help says, as HTML."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write how the command is called."""
        self.write(f"<pre>{escape(f'{prog} {args}')}</pre>\n")

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        self.write(f"<h2>{escape(heading)}</h2>\n")

    def write_paragraph(self) -> None:
        """Write nothing: paragraphs are apart already."""

    def write_text(self, text: str) -> None:
        """Write paragraphs; those marked are kept as they are."""
        for part in text.split("\n\n"):
            kept = part.startswith("\b\n")
            tag, words = ("pre", part[2:]) if kept else ("p", " ".join(part.split()))
            self.write(f"<{tag}>{escape(words)}</{tag}>\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], *_: Any, **__: Any) -> None:
        """Write options with their meanings."""
        self.write(table_of(("option", "meaning"), ((in_code(a), escape(b)) for a, b in rows)))
