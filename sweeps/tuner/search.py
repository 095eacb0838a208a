"""The number of multiprocessors by bisection: few cases instead of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["TOLERANCE", "best_count", "bracket"]

TOLERANCE = 1e-9
"""Times that differ by less than this share are the same: the smaller number wins."""


def bracket(times: Sequence[tuple[int, float]], least: int, most: int) -> tuple[int, int]:
    """Return between which numbers the best one lies, by those that are known."""
    if not times:
        return least, most
    ordered = sorted(times)
    low = min(time for _, time in ordered) * (1.0 + TOLERANCE)
    place = next(k for k, (_, time) in enumerate(ordered) if time <= low)
    below = ordered[place - 1][0] if place else least
    above = ordered[place + 1][0] if place + 1 < len(ordered) else most
    return max(below, least), min(above, most)


def best_count(
    time: Callable[[int], float], least: int, most: int, tolerance: float = TOLERANCE
) -> int:
    """Find the number of multiprocessors with the least time.

    The time of a product beside a collective falls while the collective is the longer one, for it
    gets faster, and rises afterwards, for the product gets slower.  So "one more is no better" is
    false up to some number and true from there on, and that number is found by bisection.
    """
    known: dict[int, float] = {}

    def of(count: int) -> float:
        if count not in known:
            known[count] = time(count)
        return known[count]

    low, high = least, most
    while low < high:
        middle = (low + high) // 2
        if of(middle) <= of(middle + 1) * (1.0 + tolerance):
            high = middle
        else:
            low = middle + 1
    # With noise the search can have gone astray: what was seen and is better, is better.
    best = min(known.values(), default=of(low))
    return min(count for count, one in known.items() if one <= best * (1.0 + tolerance))
