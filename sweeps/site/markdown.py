"""The Markdown of the guide's pages as HTML: the subset that they use, and no more.

Headings, paragraphs, lists of one level, tables, fenced code, and in lines code, bold text and
links; comments are dropped.  Anything else is refused, so that a page is on the site what it is in
the repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from sweeps.site.pieces import in_code, table_of

_HEADING = re.compile(r"(#{1,3}) (\S.*)")
_ITEM = re.compile(r"(-|\d+\.) (\S.*)")
_FENCE = re.compile(r"```([a-z]*)(?: (\d+))?")
_COMMENT = re.compile(r"<!--.*-->")
# Code, bold text and links; all else is text.
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
# What would be markup elsewhere.
_REFUSED = re.compile(r"[<>`]|\*\*|\]\(|(?<![\w\\])[*_](?=\w)|&\w+;|\\(?![|*])")
_OTHER_BLOCK = re.compile(r" |\t|>|\* |\+ |#{4,}|={3,}|-{3,}|~{3,}|!\[|\d+\)")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page: what kind it is, and its lines."""

    kind: str  # heading, paragraph, item, table, or code
    lines: Sequence[str]
    mark: str = ""  # Of a heading its #s, of an item its bullet, of code its language
    most: int = 0  # Of code: the lines of a command's screen that are shown; 0: all


@dataclass(slots=True)
class _Open:
    """The block that lines are being added to."""

    kind: str = ""
    mark: str = ""
    lines: list[str] = field(default_factory=list)


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page.

    Raises
    ------
    ValueError
        At a line that the subset doesn't have.
    """
    gathered = _Open()
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        kind, mark, rest = _kind(line, gathered.kind, number)
        if fence or kind not in (gathered.kind, "more"):
            if gathered.kind:
                yield Block(gathered.kind, gathered.lines, gathered.mark)
            gathered = _Open()
        elif kind == "item":
            yield Block(gathered.kind, gathered.lines, gathered.mark)
            gathered = _Open()
        if fence:
            inside = []
            for _, below in lines:
                if below == "```":
                    break
                inside.append(below)
            else:
                message = f"line {number}: the code isn't closed"
                raise ValueError(message)
            yield Block("code", inside, fence[1], int(fence[2] or 0))
        elif kind == "heading":
            yield Block(kind, [rest], mark)
        elif kind:
            gathered.kind = gathered.kind or kind
            gathered.mark = gathered.mark or mark
            gathered.lines.append(rest)
    if gathered.kind:
        yield Block(gathered.kind, gathered.lines, gathered.mark)


def _kind(line: str, above: str, number: int) -> tuple[str, str, str]:
    """Return what kind of block a line begins or continues, its mark, and what it says."""
    if not line.strip() or _COMMENT.fullmatch(line):
        return "", "", ""
    if above == "item" and re.match(r" {2,3}\S", line):
        return "more", "", line.strip()
    if match := _HEADING.fullmatch(line):
        return "heading", match[1], match[2]
    if match := _ITEM.fullmatch(line):
        return "item", match[1], match[2]
    if line.startswith("| ") and line.endswith(" |"):
        return "table", "", line
    if _FENCE.fullmatch(line):
        return "", "", ""
    if _OTHER_BLOCK.match(line):
        message = f"line {number}: not of the subset: {line}"
        raise ValueError(message)
    return "paragraph", "", line


def title_of(text: str) -> str:
    """Return a page's title: its first heading."""
    first = next(blocks(text))
    if (first.kind, first.mark) != ("heading", "#"):
        message = "a page begins with its title"
        raise ValueError(message)
    return first.lines[0]


def anchor(heading: str) -> str:
    """Return the place of a heading in links, as forges have it."""
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.replace(" ", "-")


def to_html(text: str, target: Callable[[str], str]) -> Iterator[str]:
    """Yield a page's blocks as HTML, without its title.

    Parameters
    ----------
    text : str
        The page.
    target : callable
        Gives where a link leads on the site; empty where it leads nowhere there, so that its text
        alone is shown.

    Raises
    ------
    ValueError
        At what the subset doesn't have.
    """
    items: list[str] = []
    tag = ""
    for block in blocks(text):
        ordered = block.mark[:1].isdigit()
        if items and (block.kind != "item" or tag != ("ol" if ordered else "ul")):
            yield f"<{tag}>\n{''.join(items)}</{tag}>\n"
            items = []
        if block.kind == "item":
            tag = "ol" if ordered else "ul"
            items.append(f"<li>{inline(' '.join(block.lines), target)}</li>\n")
        elif block.kind == "heading" and len(block.mark) > 1:
            tag, name = f"h{len(block.mark)}", block.lines[0]
            yield f'<{tag} id="{anchor(name)}">{inline(name, target)}</{tag}>\n'
        elif block.kind == "paragraph":
            yield f"<p>{inline(' '.join(block.lines), target)}</p>\n"
        elif block.kind == "table":
            yield _table(block.lines, target)
        elif block.kind == "code":
            yield f"<pre>{escape(chr(10).join(block.lines))}</pre>\n"
    if items:
        yield f"<{tag}>\n{''.join(items)}</{tag}>\n"


def inline(text: str, target: Callable[[str], str]) -> str:
    """Return a line's text as HTML."""
    parts, offset = [], 0
    for match in _INLINE.finditer(text):
        parts.append(_plain(text[offset : match.start()]))
        offset = match.end()
        code, bold, words, link = match.groups()
        if code is not None:
            parts.append(in_code(code))
        elif bold is not None:
            parts.append(f"<strong>{inline(bold, target)}</strong>")
        else:
            leads, shown = target(link), inline(words, target)
            parts.append(f'<a href="{escape(leads)}">{shown}</a>' if leads else shown)
    return "".join([*parts, _plain(text[offset:])])


def _plain(text: str) -> str:
    if match := _REFUSED.search(text):
        message = f"not of the subset: {text[max(0, match.start() - 20) :][:60]!r}"
        raise ValueError(message)
    return escape(re.sub(r"\\([|*])", r"\1", text))


def _table(lines: Sequence[str], target: Callable[[str], str]) -> str:
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    head, rule, *body = rows
    if len({len(row) for row in rows}) > 1 or any(set(cell) - set(":-") for cell in rule):
        message = f"a table's rows differ in length: {lines[0]}"
        raise ValueError(message)
    each = [[inline(cell.replace(r"\|", "|"), target) for cell in row] for row in body]
    return table_of(head, each)
