"""Prose on lines of a terminal: cut between words, never within a number and its unit."""

from __future__ import annotations

import re
import textwrap

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
