r"""Into how many chunks a pipelined algorithm cuts its message best.

Of k chunks the time on each level of links is :math:`(p_0 + p_1 k) \alpha + (q_0 + q_1/k) M/B`:
every chunk costs latencies, and fewer bytes wait for one another.  The sum over levels is least
at :math:`k = \sqrt{\sum q_1 M/B / \sum p_1 \alpha}` or at one of the whole numbers beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overhead.arrays import xp
from overhead.collectives.algorithm import MOST_CHUNKS, Algorithm, Interval
from overhead.collectives.cost import COST_PARTS, STEP_PRICES, Cost
from overhead.frozen import frozen
from overhead.labels import NO_LIBRARY
from overhead.quantity import Array

# With a library each level's bytes have a ramp, too, the root of a term like that of the transfer.
# A root's slope in 1/k is :math:`q_1/2` by the root, which hardly changes with k: put into the
# formula it brings k nearer to the best number by a factor of four at least, each time.
ROUNDS = 12


@frozen(slots=True)
class _Fit:
    """Time of k chunks on an interval, as base + slope k + waiting/k and roots of terms in 1/k."""

    base: Array
    slope: Array
    waiting: Array
    ramps: Sequence[tuple[Array, Array]]  # Under each root a constant, and what is divided by k

    def at(self, chunks: Array) -> Array:
        straight = self.base + self.slope * chunks + self.waiting / chunks
        return xp.asarray(straight + self._ramp(chunks))

    def _ramp(self, chunks: Array) -> Array:
        return xp.asarray(sum((xp.sqrt(fixed + cut / chunks) for fixed, cut in self.ramps), 0.0))

    def _root(self, waiting: Array) -> Array:
        with xp.errstate(divide="ignore", invalid="ignore", over="ignore"):
            square = xp.where(waiting > 0.0, waiting / self.slope, 0.0)
        return xp.sqrt(xp.minimum(square, MOST_CHUNKS**2))

    def best(self, interval: Interval) -> Array:
        """Return the whole number of least time in an interval, of equals the lower."""
        low, high = interval
        root = self._root(self.waiting)
        for _ in range(ROUNDS if self.ramps else 0):
            chunks = xp.clip(root, low, high)
            waiting = self.waiting
            for fixed, cut in self.ramps:
                whole = xp.sqrt(fixed + cut / chunks)
                waiting = waiting + xp.where(whole > 0.0, cut, 0.0) / (
                    2.0 * xp.where(whole > 0.0, whole, 1.0)
                )
            before, root = root, self._root(waiting)
            if xp.all(root == before):
                break  # Further rounds would change nothing
        whole = xp.floor(root)
        below = xp.clip(whole, low, high)
        above = xp.clip(whole + 1.0, low, high)
        later = self.slope + (self._ramp(above) - self._ramp(below))
        return xp.where(self.waiting / (below * above) > later, above, below)


def _fit(
    few: Cost,
    many: Cost,
    interval: Interval,
    prices: Sequence[Sequence[Array]],
    latency_per: str,
) -> _Fit:
    """Fit the time through the costs of two numbers of chunks, the ends of an interval."""
    low, high = interval
    apart = xp.asarray(high - low)
    # One number alone has no slope, and needs none.
    between = xp.where(apart > 0.0, 1.0 / xp.where(apart > 0.0, apart, 1.0), 0.0)
    base = slope = waiting = xp.asarray(0.0)
    # One price serves all levels, which then have one ramp; else nodes have theirs, and the fabric.
    flat = len(prices) == 1
    each = list(prices) * len(few.levels) if flat else prices
    ramps: list[tuple[Array, Array]] = []
    taken = "messages" if latency_per == "message" else "latencies"
    levels = zip(few.levels, many.levels, each, strict=True)
    for index, (first, other, (latency, serialization_time, *ramp_time)) in enumerate(levels):
        paid, later = getattr(first, taken), getattr(other, taken)
        p1 = (later - paid) * between
        q1 = (first.transfer - other.transfer) * (low * high * between)
        base = base + (paid - p1 * low) * latency + (first.transfer - q1 / low) * serialization_time
        slope = slope + p1 * latency
        waiting = waiting + q1 * serialization_time
        for ramp in ramp_time:
            fixed, cut = (
                (first.transfer - q1 / low) * serialization_time * ramp,
                q1 * serialization_time * ramp,
            )
            if index > 1 or (flat and index):
                fixed, cut = fixed + ramps[-1][0], cut + ramps.pop()[1]
            ramps.append((fixed, cut))
    return _Fit(base, slope, waiting, ramps)


FLAT_PRICES = ("inner_step_latency", "step_serialization_time", "step_ramp_time")
PAID = ("in_network_latency", *FLAT_PRICES, *(name for names in STEP_PRICES for name in names))


def paid_by_steps(labels: Mapping[str, str], algorithm: Algorithm) -> list[tuple[str, ...]]:
    """Return the quantities that tell what steps pay: latencies, wires and, of a library, ramps."""
    prices: tuple[tuple[str, ...], ...] = STEP_PRICES
    if labels["shape"] == "flat":
        in_network = ("in_network_latency", *FLAT_PRICES[1:])
        prices = (in_network if algorithm.in_network else FLAT_PRICES,)
    each = list(zip(*prices, strict=True))
    return each[:2] if labels.get("library", NO_LIBRARY) == NO_LIBRARY else each


def best_chunks(
    algorithm: Algorithm,
    shape: Mapping[str, Array],
    latencies: Sequence[Array],
    wire_times: Sequence[Array],
    latency_per: str = "hop",
    ramp_times: Sequence[Array] = (),
) -> Array:
    """Return the number of chunks with the least time.

    The formula is in this module's first lines; derived here, as Chan et al. 2007 do for a
    pipelined chain.  Where an algorithm's time has several such pieces, their best are compared.
    Where there are ramps, their time constants are given, too.
    """
    if not algorithm.chunked:
        message = f"{'.'.join(algorithm.key)} cuts its message into no chunks"
        raise ValueError(message)
    given = {
        name: xp.asarray(shape[name], dtype=xp.float64)
        for name in algorithm.inputs
        if name != "chunks"
    }
    figures = [latencies, wire_times, *([ramp_times] if ramp_times else [])]
    prices = list(zip(*figures, strict=True))
    best: Array | None = None
    least: Array = xp.asarray(xp.inf)
    for low, high in algorithm.pieces(**given):
        # An interval without an end is known from its first number and the double of that.
        known = xp.where(xp.asarray(high) == MOST_CHUNKS, 2.0 * low, high)
        few, many = (algorithm.cost(**given, chunks=xp.asarray(end)) for end in (low, known))
        fit = _fit(few, many, (low, known), prices, latency_per)
        chunks = fit.best((low, high))
        time = fit.at(chunks)
        best = chunks if best is None else xp.where(time < least, chunks, best)
        least = xp.minimum(time, least)
    return xp.asarray(best)


def depends_on_chunks(algorithm: Algorithm, quantity: str, cost: Callable[..., Any]) -> bool:
    """Return whether a part of a chunked algorithm's cost varies with the number of chunks."""
    known = _VARYING.get((algorithm, quantity))
    if known is None:
        two, some = xp.array([2.0, 4.0]), xp.array(4.0)
        with xp.errstate(all="ignore"):
            computed = cost(*(two if name == "chunks" else some for name in algorithm.inputs))
            parts = [COST_PARTS[quantity](computed, per_message) for per_message in (True, False)]
        known = any(xp.asarray(part).size > 1 for part in parts)
        _VARYING[algorithm, quantity] = known
    return known


_VARYING: dict[tuple[Algorithm, str], bool] = {}
