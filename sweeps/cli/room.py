"""What of a screen is left out where it would be longer than `MOST_LINES`, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeps.cli.sections import wrapped
from sweeps.wrapping import fitted

MOST_LINES = 40  # of a screen
MOST_OF_NOTES = 9  # of these, what is said of launch files


def height(lines: Sequence[str]) -> int:
    """Return how many lines of the terminal some lines take."""
    return sum(1 for _ in fitted(lines))


def first_notes(notes: Sequence[str], section: str, most: int = MOST_OF_NOTES) -> list[str]:
    """Return the first notes that have room, and in which section the others are."""
    shown = [f"  ({note})" for note in notes]
    count = len(shown)
    while count > 1 and height(shown[:count]) > most - (count < len(shown)):
        count -= 1
    left = len(shown) - count
    more = f"  ({left} more note{'s' * (left > 1)}: --show {section})"
    return shown[:count] + [more] * (left > 0)


def in_room(groups: Mapping[str, Sequence[str]], most: int) -> list[str]:
    """Return a line of prose of each group, the last parts of the longest left out until they fit.

    Of each group the first part stays.
    """
    kept = {words: len(parts) for words, parts in groups.items()}
    while True:
        lines = {words: _line(words, groups[words], count) for words, count in kept.items()}
        long = [words for words, count in kept.items() if count > 1 and len(lines[words]) > 1]
        if sum(map(len, lines.values())) <= most or not long:
            return [line for section in lines.values() for line in section]
        kept[max(long, key=lambda words: len(lines[words]))] -= 1


def _line(words: str, parts: Sequence[str], count: int) -> list[str]:
    left = len(parts) - count
    return [*wrapped(f"{words}: {'; '.join(parts[:count])}" + f"; {left} more" * (left > 0))]
