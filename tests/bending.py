"""Bends the text of a file in a few places, as people's editors and networks do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sweeps.errors import InputError

__all__ = ["bent", "of_seeds", "read_or_faults"]

TORN = 0.1  # The share of bends that tear the rest off


def bent(
    text: str, draw: random.Random, junk: Sequence[str], parts: str = "\n", words: str = " "
) -> str:
    """Return a text with a few places cut, doubled, exchanged, overwritten or torn off.

    Parameters
    ----------
    text : str
        The whole text.
    draw : random.Random
        Draws the places.
    junk : sequence of str
        What is put in.
    parts, words : str
        What stands between parts that are left out or doubled, and between those that junk takes
        the place of.
    """
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text) + 1)
        kind = draw.randrange(5)
        listed = text.split(parts)
        position = draw.randrange(len(listed))
        if draw.random() < TORN:
            text = text[:at]
        elif kind == 0:
            del listed[position]
            text = parts.join(listed)
        elif kind == 1:
            listed.insert(position, draw.choice(listed))
            text = parts.join(listed)
        elif kind == 2:
            text = text[:at] + draw.choice(junk) + text[at:]
        elif kind == 3:
            text = text[:at] + text[at + draw.randint(1, 40) :]
        else:
            own = text.split(words)
            own[draw.randrange(len(own))] = draw.choice(junk)
            text = words.join(own)
    return text


def of_seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Run a test with a few bends, and as a thorough test with the others, up to many."""
    others = pytest.param(range(few, many), marks=pytest.mark.thorough)
    return pytest.mark.parametrize("seeds", [range(few), others], ids=["few", "many"])


def read_or_faults(read: Callable[..., Any], *args: Any, **named: Any) -> tuple[Any, Sequence[str]]:
    """Return what is read, or None and why it is refused, each fault a line."""
    try:
        return read(*args, **named), ()
    except InputError as error:
        faults = error.faults
    assert faults
    assert all(line.strip() and "\n" not in line for line in faults)
    return None, faults
