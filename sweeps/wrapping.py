"""Text on the lines of a terminal: prose cut between words, tables of aligned columns.

A number and its unit stay on one line.
"""

from __future__ import annotations

import itertools
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence

# What stays on one line: a number with its unit, an option with its value.
_UNIT = (
    r"(?<=\d) (?=(?:%|[fpnµmkMGTPE]?(?:s|B|J|W|Wh|bit|FLOP)(?:/\S+)?|[KMGTP]iB|h|days?|tokens/s"
    r"|(?:[MGT] )?USD)(?![\w-]))"
)
_VALUE = r"(?<=\s)(--[\w-]+) (?=[\w'\"])"
_JOINED = "\N{NO-BREAK SPACE}"  # at which no line is cut


def wrap(
    text: str, width: int, *, initial_indent: str = "", subsequent_indent: str = ""
) -> list[str]:
    """Return a text as lines of a width, without line ends."""
    joined = re.sub(_VALUE, rf"\1{_JOINED}", re.sub(_UNIT, _JOINED, text))
    made = textwrap.wrap(
        joined,
        width,
        initial_indent=initial_indent,
        subsequent_indent=subsequent_indent,
        break_on_hyphens=False,
    )
    return [line.replace(_JOINED, " ") for line in made]


# Characters of a line where no terminal says how many it has.
LINE = 80
_NARROWEST = 40  # of a terminal that is followed
_NAME = 36  # of a name that is cut
_PROSE = 20  # characters from which a cell of words may take several lines


def room() -> int:
    """Return how many characters a line may have: the terminal's, or those of ``COLUMNS``."""
    return max(shutil.get_terminal_size((LINE, 24)).columns, _NARROWEST)


def prose() -> int:
    """Return how many characters a line of prose has: wider ones are hard to read."""
    return min(room(), LINE)


def fitted(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines for people, those that are longer than the terminal's wrapped at words."""
    most = room()
    for text in (piece for line in lines for piece in line.removesuffix("\n").split("\n")):
        if len(text) <= most:
            yield text + "\n"
            continue
        start = len(text) - len(text.lstrip())
        # What stands behind a name and a gap goes on below itself.
        gaps = [gap.end() for gap in re.finditer(r"(?<=\S) {2,}", text[: most * 9 // 20])]
        hang = gaps[-1] if gaps else start + 2
        head, rest = (text[:hang], text[hang:]) if gaps else (text[:start], text[start:])
        made = wrap(rest, most, initial_indent=head, subsequent_indent=" " * hang)
        yield from (piece + "\n" for piece in made)


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    indent: str = "  ",
    keys: int = 0,
    last: bool = False,
) -> Iterator[str]:
    """Yield rows as lines with aligned columns: the first ones to the left, others to the right.

    Where the terminal is too narrow, words of heads and of long cells take several lines, and then
    the columns stand in several blocks, each of which begins with the first `keys` ones.  A row of
    one cell stands above those that follow.  The `last` column may be words, to the left.
    """
    count = max(map(len, rows), default=0)
    whole = [(number, row) for number, row in enumerate(rows) if len(row) == count]
    if not count:
        return
    widths, least = (
        [max(size(row[column], number == 0) for number, row in whole) for column in range(count)]
        for size in (lambda text, _: len(text), _least)
    )
    most = room() - len(indent)
    while sum(widths) + 2 * (count - 1) > most and widths != least:
        widest = max(
            range(count),
            key=lambda candidate: (widths[candidate] > least[candidate]) * widths[candidate],
        )
        widths[widest] -= 1
    if sum(widths) + 2 * (count - 1) > most and count > (keys := max(1, keys)) + 1:
        for number, columns in enumerate(_blocks(least, keys, most)):
            yield from [""] * (number > 0)
            block = [
                row if len(row) < count else [row[column] for column in columns] for row in rows
            ]
            options = {"left": sum(column < left for column in columns), "keys": keys}
            yield from aligned(block, indent=indent, last=last and count - 1 in columns, **options)
        return
    for number, row in enumerate(rows):
        if len(row) < count:
            yield from (line.rstrip() for line in fitted([indent + row[0]]))
            continue
        cells = [_cut(text, width, number == 0) for text, width in zip(row, widths, strict=True)]
        height = max(map(len, cells))
        # Heads stand on their columns, cells begin in one line.
        cells = [
            [""] * ((number == 0) * (height - len(lines_of_cell))) + lines_of_cell
            for lines_of_cell in cells
        ]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            texts = (
                text.ljust(width)
                if index < left or (last and index == count - 1)
                else text.rjust(width)
                for index, (text, width) in enumerate(zip(line, widths, strict=True))
            )
            yield (indent + "  ".join(texts)).rstrip()


def _pieces(text: str, head: bool) -> list[str]:
    """Return where a cell may be cut: heads behind words and their parts, cells of many words."""
    if head:
        return re.findall(r"[^\s_]*_|[^\s_]+ *| +", text)
    prose = len(text) > _PROSE and text.count(" ") > 1 and text.lstrip()[:1].isalpha()
    if len(text) > _NAME and " " not in text:
        return re.findall(r"[^_]*_|[^_]+", text)
    return re.findall(r" *\S+ *", text) if prose else [text]


def _least(text: str, head: bool) -> int:
    """Return the least width of a cell."""
    pieces = _pieces(text, head)
    longest = max((len(piece.rstrip()) for piece in pieces), default=0)
    return longest if head else max(longest, min(len(text), _PROSE if " " in text else _NAME))


def _cut(text: str, width: int, head: bool) -> list[str]:
    """Return a cell's lines."""
    if len(text) <= width:
        return [text]
    start = " " * (len(text) - len(text.lstrip()))
    lines = [""]
    for piece in _pieces(text, head):
        if lines[-1].strip() and len((lines[-1] + piece).rstrip()) > width:
            lines.append(start + piece.lstrip())
        else:
            lines[-1] += piece
    return [line.rstrip() for line in lines]


def _blocks(widths: Sequence[int], keys: int, most: int) -> list[list[int]]:
    """Return the columns of blocks that are no wider than a line, the first ones in each."""
    first = [*range(keys)]
    blocks = [first]
    for column in range(keys, len(widths)):
        taken = [*blocks[-1], column]
        if sum(widths[index] + 2 for index in taken) - 2 > most and len(blocks[-1]) > keys:
            blocks.append([*first, column])
        else:
            blocks[-1] = taken
    return blocks
