"""Bends the text of a file in a few places, as people's editors and networks do."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["bent"]

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
        place = draw.randrange(len(listed))
        if draw.random() < TORN:
            text = text[:at]
        elif kind == 0:
            del listed[place]
            text = parts.join(listed)
        elif kind == 1:
            listed.insert(place, draw.choice(listed))
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
