"""Numbers known to lie between two bounds, on which kernels run as they are; boxes of such.

Each operation is the kernel's own, at the ends of what it takes: rounding to nearest is monotone,
so that whatever a kernel gives of any numbers between the bounds lies between those of its result,
to the last bit.  What rounds otherwise (powers, logarithms) is widened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.recording import FUNCTIONS, Recorded, RecordingError
from sweeps.engine.front import Floats, Places, front, joined, no_points

Array = NDArray[Any]
# Units in the last place by which functions may be off that nobody has proven monotone.
ULPS = 4


class Interval(Recorded):
    """Numbers, or truths, between two arrays of bounds.

    Of truths the lower bound says where it surely holds, the upper one where it may; of sets of
    bits likewise.  `nan` says where a number may be missing: None where none may.  Where it surely
    is, the lower bound lies above the upper one.
    """

    def __init__(self, low: Array, high: Array, nan: Array | None = None) -> None:
        self.low, self.high, self.nan = low, high, nan

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape to which the bounds broadcast."""
        return np.broadcast_shapes(self.low.shape, self.high.shape)

    @property
    def ndim(self) -> int:  # type: ignore[override]
        """The dimensions."""
        return max(self.low.ndim, self.high.ndim)

    @property
    def size(self) -> int:  # type: ignore[override]
        """The numbers."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The type of the bounds."""
        return np.dtype(self.low.dtype)

    @property
    def point(self) -> Array:
        """Where there is one number."""
        return np.asarray(self.low == self.high)

    def astype(self, dtype: Any = None, **_: Any) -> Interval:
        """Return it as another type."""
        if dtype is None or self.low.dtype == np.dtype(dtype) == self.high.dtype:
            return self
        kinds = np.dtype(dtype).kind, self.low.dtype.kind
        if kinds[0] == "b" != kinds[1]:
            return _compared(np.not_equal, self, of(0.0))
        if (
            kinds[0] in "iu"
            and kinds[1] == "f"
            and (self.nan is not None or _infinite(self) is not None)
        ):
            msg = "a whole number that may be missing or infinite"
            raise RecordingError(msg)
        return Interval(self.low.astype(dtype), self.high.astype(dtype), self.nan)

    def reshape(self, *shape: Any) -> Interval:
        """Return it in another shape."""
        whole = self.shape
        nan = None if self.nan is None else np.broadcast_to(self.nan, whole).reshape(*shape)
        low, high = (
            np.broadcast_to(bound, whole).reshape(*shape) for bound in (self.low, self.high)
        )
        return Interval(low, high, nan)

    def any(self) -> bool:
        """Whether it may hold anywhere."""
        return bool(np.any(self.high)) or bool(np.any(self.low))

    def all(self) -> bool:
        """Whether it surely holds everywhere."""
        return bool(np.all(self.low))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Any:
        rule = RULES.get(ufunc)
        # An array to work in isn't taken: kernels go on with what is returned.
        if method != "__call__" or options.keys() - {"out"} or rule is None:
            msg = f"{ufunc.__name__}.{method} of an interval with {list(options)}"
            raise RecordingError(msg)
        return rule(*map(of, args))

    def __array_function__(self, function: Any, _types: Any, args: Any, options: Any) -> Any:
        rule = OWN.get(function) or FUNCTIONS.get(function)
        if rule is None:
            msg = f"{function.__name__} of an interval"
            raise RecordingError(msg)
        return rule(*args, **options)

    def called(self, name: str, args: Sequence[Any]) -> Interval:
        """Refuse what expressions call by name: its own steps are what is bounded."""
        msg = f"{name} of an interval"
        raise RecordingError(msg)


def of(value: Any) -> Interval:
    """Return plain numbers as an interval."""
    if isinstance(value, Interval):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        msg = f"{type(value).__name__} beside an interval"
        raise RecordingError(msg)
    if array.dtype.kind != "f" or not np.isnan(array).any():
        return Interval(array, array)
    nan = np.isnan(array)
    return Interval(np.where(nan, np.inf, array), np.where(nan, -np.inf, array), nan)


def _joined(*nans: Array | None) -> Array | None:
    known = [nan for nan in nans if nan is not None]
    return reduce(or_, known) if known else None


def _made(low: Array, high: Array, nan: Array | None) -> Interval:
    """Return an interval of computed bounds: what isn't a number bounds nothing."""
    if np.isnan(low).any() or np.isnan(high).any():
        none = np.isnan(low) | np.isnan(high)
        low, high = np.where(none, -np.inf, low), np.where(none, np.inf, high)
        nan = none if nan is None else nan | none
    if nan is not None and not nan.any():
        nan = None
    return Interval(low, high, nan)


def _infinite(interval: Interval) -> Array | None:
    """Return where a bound is infinite; None where none is."""
    if np.isfinite(interval.low).all() and np.isfinite(interval.high).all():
        return None
    return np.asarray(~(np.isfinite(interval.low) & np.isfinite(interval.high)))


def _both_infinite(first: Interval, other: Interval) -> Array | None:
    left, right = _infinite(first), _infinite(other)
    return None if left is None or right is None else left & right


def _has_zero(interval: Interval) -> Array:
    return np.asarray((interval.low <= 0.0) & (interval.high >= 0.0))


def _add(first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan, _both_infinite(first, other))
    if first.low is first.high and other.low is other.high:
        total = first.low + other.low
        return _made(total, total, nan)
    return _made(first.low + other.low, first.high + other.high, nan)


def _negative(interval: Interval) -> Interval:
    return Interval(-interval.high, -interval.low, interval.nan)


def _subtract(first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan, _both_infinite(first, other))
    return _made(first.low - other.high, first.high - other.low, nan)


def _multiply(first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan)
    for left, right in ((first, other), (other, first)):
        infinite = _infinite(left)
        if infinite is not None:
            nan = _joined(nan, infinite & _has_zero(right))
    if (first.low >= 0.0).all() and (other.low >= 0.0).all():
        return _made(first.low * other.low, first.high * other.high, nan)
    ends = [x * y for x in (first.low, first.high) for y in (other.low, other.high)]
    return _made(reduce(np.minimum, ends), reduce(np.maximum, ends), nan)


def _divide(first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan, _both_infinite(first, other))
    zero = _has_zero(other)
    some = bool(zero.any())
    if some:
        nan = _joined(nan, zero & _has_zero(first))
    above = bool((first.low >= 0.0).all()) and bool((other.low >= 0.0).all())
    if above and not (some and np.signbit(other.low).any()):
        return _made(first.low / other.high, first.high / other.low, nan)
    ends = [x / y for x in (first.low, first.high) for y in (other.low, other.high)]
    low, high = reduce(np.minimum, ends), reduce(np.maximum, ends)
    if some:
        # Above nought on both sides the quotient is, whatever it is divided by; noughts between
        # bounds are taken to have the lower bound's sign.
        rising = (other.low == 0.0) & ~np.signbit(other.low) & (first.low >= 0.0)
        zero = zero & ~rising
        low, high = np.where(zero, -np.inf, low), np.where(zero, np.inf, high)
    return _made(low, high, nan)


def _minimum(first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan)
    return Interval(np.minimum(first.low, other.low), np.minimum(first.high, other.high), nan)


def _maximum(first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan)
    return Interval(np.maximum(first.low, other.low), np.maximum(first.high, other.high), nan)


def _hull(first: Interval, other: Interval) -> Interval:
    """Return what is either: of sets of bits those that both have, and those that one may have."""
    nan = _joined(first.nan, other.nan)
    if first.dtype.kind in "iu" and other.dtype.kind in "iu":
        return Interval(first.low & other.low, first.high | other.high)
    return Interval(np.minimum(first.low, other.low), np.maximum(first.high, other.high), nan)


def _ignoring(rule: Callable[..., Interval]) -> Callable[..., Interval]:
    """Return fmin or fmax: where one isn't a number it is the other."""

    def run(first: Interval, other: Interval) -> Interval:
        joint = rule(first, other)
        return joint if joint.nan is None else _hull(first, other)

    return run


def _rising(ufunc: np.ufunc, ulps: int = 0) -> Callable[[Interval], Interval]:
    """Return what an increasing function gives."""

    def run(interval: Interval) -> Interval:
        low, high = ufunc(interval.low), ufunc(interval.high)
        nan = interval.nan
        if ufunc in PARTIAL:
            outside = interval.low < PARTIAL[ufunc]
            nan = _joined(nan, outside) if outside.any() else nan
        return _made(*_widened(low, high, ulps), nan)

    return run


def _widened(low: Array, high: Array, ulps: int) -> tuple[Array, Array]:
    for _ in range(ulps):
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return low, high


def _absolute(interval: Interval) -> Interval:
    low, high = np.abs(interval.low), np.abs(interval.high)
    least = np.where(_has_zero(interval), 0.0, np.minimum(low, high))
    return Interval(least, np.maximum(low, high), interval.nan)


def _power(base: Interval, other: Interval) -> Interval:
    nan = _joined(base.nan, other.nan)
    if (other.low == 2.0).all() and (other.high == 2.0).all():
        base = _absolute(base)  # A square has no sign
    if (base.low < 0.0).any():
        if not (base.point & other.point).all():
            msg = "a power of what may be negative"
            raise RecordingError(msg)
        total = np.power(base.low, other.low)
        return _made(total, total, nan)
    ends = [np.power(x, y) for x in (base.low, base.high) for y in (other.low, other.high)]
    if (np.isinf(other.low) | np.isinf(other.high)).any() or _infinite(base) is not None:
        nan = _joined(nan, np.ones(np.broadcast_shapes(base.shape, other.shape), dtype=np.bool_))
    low, high = reduce(np.minimum, ends), reduce(np.maximum, ends)
    wide = _widened(low, high, ULPS)
    same = base.point & other.point
    low, high = np.where(same, low, wide[0]), np.where(same, high, wide[1])
    # A negative power of a nought is infinite, with the nought's sign.
    nought = _has_zero(base) & np.signbit(base.low) & (other.low < 0.0)
    return _made(np.where(nought, -np.inf, low), np.where(nought, np.inf, high), nan)


def _remainder(first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan, _zero_or_none(other), _infinite(first))
    same = first.point & other.point
    whole = np.remainder(first.low, other.low)
    low = np.where(same, whole, np.minimum(other.low, 0.0))
    high = np.where(same, whole, np.maximum(other.high, 0.0))
    return _made(low, high, nan)


def _floor_divide(first: Interval, other: Interval) -> Interval:
    same = first.point & other.point & (other.low != 0.0)
    whole = np.floor_divide(first.low, other.low)
    near = _divide(first, other)
    nan = _joined(near.nan, _zero_or_none(other), _infinite(first))
    low = np.where(same, whole, np.floor(near.low) - 1.0)
    return _made(low, np.where(same, whole, np.floor(near.high)), nan)


def _zero_or_none(interval: Interval) -> Array | None:
    zero = _has_zero(interval)
    return zero if zero.any() else None


# Truths.


def _compared(ufunc: np.ufunc, first: Interval, other: Interval) -> Interval:
    nan = _joined(first.nan, other.nan)
    if ufunc in (np.equal, np.not_equal):
        sure = first.point & other.point & (first.low == other.low)
        perhaps = (first.low <= other.high) & (other.low <= first.high)
        if nan is not None:
            sure = sure & ~nan
        return Interval(sure, perhaps) if ufunc is np.equal else Interval(~perhaps, ~sure)
    if ufunc in (np.greater, np.greater_equal):
        first, other = other, first
        ufunc = np.less if ufunc is np.greater else np.less_equal
    sure, perhaps = ufunc(first.high, other.low), ufunc(first.low, other.high)
    return Interval(sure if nan is None else sure & ~nan, perhaps)


def _truth(interval: Interval) -> Interval:
    return interval.astype(np.bool_)


def _bits(ufunc: np.ufunc) -> Callable[[Interval, Interval], Interval]:
    def run(first: Interval, other: Interval) -> Interval:
        if {first.dtype.kind, other.dtype.kind} - {"b", "i", "u"}:
            msg = f"{ufunc.__name__} of numbers"
            raise RecordingError(msg)
        return Interval(ufunc(first.low, other.low), ufunc(first.high, other.high))

    return run


def _either(first: Interval, other: Interval) -> Interval:
    """Return the bits that one of two sets has, and the other hasn't."""
    union = _bits(np.bitwise_or)(first, other)
    return Interval((first.low & ~other.high) | (other.low & ~first.high), union.high)


def _not(interval: Interval) -> Interval:
    if interval.dtype.kind != "b":
        msg = "an inversion of numbers"
        raise RecordingError(msg)
    return Interval(~interval.high, ~interval.low)


def _logical(ufunc: np.ufunc) -> Callable[[Interval, Interval], Interval]:
    def run(first: Interval, other: Interval) -> Interval:
        first, other = _truth(first), _truth(other)
        return Interval(ufunc(first.low, other.low), ufunc(first.high, other.high))

    return run


def _isnan(interval: Interval) -> Interval:
    none = np.zeros(interval.shape, dtype=np.bool_)
    return Interval(none, none if interval.nan is None else none | interval.nan)


def _isfinite(interval: Interval) -> Interval:
    infinite = _infinite(interval)
    sure = np.ones(interval.shape, dtype=np.bool_)
    doubt = _joined(interval.nan, infinite)
    return Interval(sure if doubt is None else sure & ~doubt, sure)


def where(condition: Any, yes: Any, no: Any) -> Interval:
    """Return what a choice may give: of a condition that isn't sure, either."""
    yes, no = of(yes), of(no)
    if not isinstance(condition, Interval):
        condition = np.asarray(condition)
        low, high = (
            np.where(condition, getattr(yes, end), getattr(no, end)) for end in ("low", "high")
        )
        return Interval(low, high, _chosen(condition, yes.nan, no.nan))
    test = _truth(condition)
    both = _hull(yes, no)
    sure, never = test.low, ~test.high
    low, high = (
        np.where(sure, getattr(yes, end), np.where(never, getattr(no, end), getattr(both, end)))
        for end in ("low", "high")
    )
    if both.nan is None:
        return Interval(low, high)
    mine = _chosen(sure, yes.nan, _chosen(never, no.nan, both.nan))
    return Interval(low, high, mine)


def _chosen(condition: Array, yes: Array | None, no: Array | None) -> Array | None:
    if yes is None and no is None:
        return None
    mask = np.where(condition, False if yes is None else yes, False if no is None else no)
    return mask if mask.any() else None


def best_of(*values: Any) -> tuple[Interval, list[Array]]:
    """Return what `overhead.choose.best_of` may give, and which may be the best."""
    each = [of(value) for value in values]
    first, *others = each
    for other in others:
        first = _minimum(first, other)
    # The first of equal ones is taken; what isn't a number is never less.
    most = reduce(np.minimum, [interval.high for interval in each])
    perhaps = [np.asarray(interval.low <= most) for interval in each]
    if first.nan is not None:
        perhaps = [np.ones(first.shape, dtype=np.bool_) for _ in each]
    return first, perhaps


def select(best: tuple[Any, Any], *values: Any) -> Interval:
    """Return what `overhead.choose.select` may give."""
    marks = best[1]
    every = marks if isinstance(marks, list) else [marks == at for at in range(len(values))]
    shape = np.broadcast_shapes(
        *(interval.shape for interval in every), *(np.shape(v) for v in values)
    )
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    nan: Array | None = None
    for value, perhaps in zip(map(of, values), every, strict=True):
        low = np.where(perhaps, np.minimum(low, value.low), low)
        high = np.where(perhaps, np.maximum(high, value.high), high)
        nan = _joined(nan, None if value.nan is None else value.nan & perhaps)
    return _made(low, high, nan)


PARTIAL: dict[np.ufunc, float] = {np.sqrt: 0.0, np.log: 0.0, np.log2: 0.0, np.log1p: -1.0}
RULES: dict[np.ufunc, Callable[..., Any]] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.true_divide: _divide,
    np.negative: _negative,
    np.positive: lambda interval: interval,
    np.absolute: _absolute,
    np.square: lambda interval: _multiply(_absolute(interval), _absolute(interval)),
    np.minimum: _minimum,
    np.maximum: _maximum,
    np.fmin: _ignoring(_minimum),
    np.fmax: _ignoring(_maximum),
    np.floor: _rising(np.floor),
    np.ceil: _rising(np.ceil),
    np.rint: _rising(np.rint),
    np.trunc: _rising(np.trunc),
    np.sqrt: _rising(np.sqrt),
    np.exp: _rising(np.exp, ULPS),
    np.exp2: _rising(np.exp2, ULPS),
    np.expm1: _rising(np.expm1, ULPS),
    np.log: _rising(np.log, ULPS),
    np.log2: _rising(np.log2, ULPS),
    np.log1p: _rising(np.log1p, ULPS),
    np.power: _power,
    np.remainder: _remainder,
    np.floor_divide: _floor_divide,
    np.bitwise_or: _bits(np.bitwise_or),
    np.bitwise_and: _bits(np.bitwise_and),
    np.bitwise_xor: _either,
    np.logical_or: _logical(np.logical_or),
    np.logical_and: _logical(np.logical_and),
    np.logical_not: lambda interval: _not(_truth(interval)),
    np.invert: _not,
    np.isnan: _isnan,
    np.isfinite: _isfinite,
    **{
        comparison: partial(_compared, comparison)
        for comparison in (
            np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal,
        )
    },
}  # fmt: skip


def _full_like(like: Any, value: Any, **_: Any) -> Array:
    return np.full(np.shape(like), value, dtype=np.float64)


OWN: dict[Any, Callable[..., Any]] = {
    np.where: where,
    np.any: lambda value, **_: value.any(),
    np.all: lambda value, **_: value.all(),
    np.round: np.rint,
    np.zeros_like: lambda value, **_: np.zeros(value.shape),
    np.ones_like: lambda value, **_: np.ones(value.shape),
    np.full_like: _full_like,
    np.shape: lambda value: value.shape,
    np.ndim: lambda value: value.ndim,
    np.reshape: lambda value, shape, **_: value.reshape(shape),
}


# Boxes of a grid, and the best cells of each result that are known while boxes are looked at.

# Of each result the most promising boxes are looked at first, to have something to beat.
PROMISING = 4


@dataclass(frozen=True)
class Boxes:
    """Boxes: a point of the discrete axes each, and a run of each continuous one."""

    point: Places  # Of the discrete axes, a flat index in C order
    starts: Places  # Shape: axes, boxes
    stops: Places  # Shape: axes, boxes
    bound: Floats  # Shape: keys, boxes.  No value inside comes before this

    def __len__(self) -> int:
        return len(self.point)

    def take(self, which: Any) -> Boxes:
        """Return some of them."""
        starts, stops = self.starts[:, which], self.stops[:, which]
        return Boxes(self.point[which], starts, stops, self.bound[:, which])

    @property
    def cells(self) -> Places:
        """How many cells each has."""
        return np.asarray(np.prod(self.stops - self.starts, axis=0, dtype=np.int64))

    @staticmethod
    def joined(several: Sequence[Boxes]) -> Boxes:
        """Return all of several."""
        rows = zip(*((boxes.starts, boxes.stops, boxes.bound) for boxes in several), strict=True)
        point = np.concatenate([boxes.point for boxes in several])
        return Boxes(point, *(np.concatenate(row, axis=1) for row in rows))


class Best:
    """The first so many (value, place) of each result; cells come in any order, or again."""

    def __init__(self, results: int, count: int, none: int) -> None:
        self.count, self.none = count, none
        self.keys = np.full((results, count), np.inf)
        self.places = np.full((results, count), none, dtype=np.int64)

    def add(self, results: Places, every: Floats, indices: Places) -> None:
        """Take cells in."""
        (keys,) = every
        last, edge = self.keys[results, -1], self.places[results, -1]
        some = (keys < last) | ((keys == last) & (indices < edge))
        if not some.any():
            return
        results, keys, indices = results[some], keys[some], indices[some]
        touched = np.unique(results)
        results = np.concatenate([np.repeat(touched, self.count), results])
        keys = np.concatenate([self.keys[touched].ravel(), keys])
        indices = np.concatenate([self.places[touched].ravel(), indices])
        order = np.lexsort((indices, keys, results))
        results, keys, indices = results[order], keys[order], indices[order]
        again = np.r_[False, (results[1:] == results[:-1]) & (indices[1:] == indices[:-1])]
        again &= indices != self.none
        results, keys, indices = results[~again], keys[~again], indices[~again]
        rank = np.arange(len(results)) - np.searchsorted(results, results)
        kept = rank < self.count
        self.keys[results[kept], rank[kept]] = keys[kept]
        self.places[results[kept], rank[kept]] = indices[kept]

    def beats(self, results: Places, bound: Floats, first: Places) -> NDArray[np.bool_]:
        """Return which boxes hold nothing that is missing here."""
        last, edge = self.keys[results, -1], self.places[results, -1]
        return np.asarray((bound[0] > last) | ((bound[0] == last) & (first >= edge)))

    def promising(self, results: Places, bound: Floats) -> Places:
        """Return the boxes of each result with the best bounds."""
        order = np.lexsort((bound[0], results))
        rank = np.arange(len(order)) - np.searchsorted(results[order], results[order])
        return np.asarray(order[rank < PROMISING])

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what a reducer of `sweeps.engine.reduce` takes."""
        kept = (self.count, *shape)
        return {
            "keys": np.ascontiguousarray(self.keys.T).reshape(kept),
            "places": np.ascontiguousarray(self.places.T).reshape(kept),
        }

    def join(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take in what others have found, as `state` gives it."""
        keys, indices = (state[name].reshape(self.count, -1).T for name in ("keys", "places"))
        results = np.repeat(np.arange(len(keys)), self.count)
        some = indices.ravel() != self.none
        self.add(results[some], keys.ravel()[np.newaxis, some], indices.ravel()[some])


class Front:
    """The cells of each result that no other has both keys of better, or the same at once."""

    def __init__(self) -> None:
        self.points = no_points()

    def add(self, results: Places, every: Floats, indices: Places) -> None:
        """Take cells in."""
        offered = (results, every[0] + 0.0, every[1] + 0.0, indices)
        self.points = front(joined(self.points, offered))

    def beats(self, results: Places, bound: Floats, first: Places) -> NDArray[np.bool_]:
        """Return which boxes hold nothing that is missing here."""
        beaten = np.zeros(len(results), dtype=np.bool_)
        cells, keys, others, indices = self.points
        order = np.argsort(results, kind="stable")
        queried, begins = np.unique(results[order], return_index=True)
        for result, mine in zip(queried.tolist(), np.split(order, begins[1:]), strict=True):
            low, high = np.searchsorted(cells, [result, result + 1])
            if low == high:
                continue
            # Of what has the first key as good, the last has the best second key.
            at = np.searchsorted(keys[low:high], bound[0, mine], side="right") - 1
            some, at = at >= 0, np.maximum(at, 0) + low
            less = (keys[at] < bound[0, mine]) | (others[at] < bound[1, mine])
            some &= (others[at] <= bound[1, mine]) & (less | (indices[at] <= first[mine]))
            beaten[mine] = some
        return beaten

    def promising(self, results: Places, bound: Floats) -> Places:
        """Return the boxes whose bounds no other has both of better."""
        return front((results, bound[0], bound[1], np.arange(len(results))))[3]

    def state(self, _: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what a reducer of `sweeps.engine.reduce` takes."""
        return dict(zip(("cells", "first", "second", "places"), self.points, strict=True))

    def join(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take in what others have found, as `state` gives it."""
        self.add(state["cells"], np.stack([state["first"], state["second"]]), state["places"])


# Parts of boxes.


def halved(boxes: Boxes) -> Boxes:
    """Return the halves of boxes along every continuous axis."""
    middle = (boxes.starts + boxes.stops + 1) // 2
    halves = []
    for corner in product((0, 1), repeat=len(boxes.starts)):
        upper = np.array(corner, dtype=bool)[:, np.newaxis]
        starts = np.where(upper, middle, boxes.starts)
        stops = np.where(upper, boxes.stops, middle)
        some = (stops > starts).all(axis=0)
        halves.append(
            Boxes(boxes.point[some], starts[:, some], stops[:, some], boxes.bound[:, some])
        )
    return Boxes.joined(halves)


def cells_of(boxes: Boxes) -> tuple[Places, Places]:
    """Return every cell of boxes."""
    cells = boxes.cells
    point = np.repeat(boxes.point, cells)
    local = np.arange(len(point)) - np.repeat(np.cumsum(cells) - cells, cells)
    starts = np.empty((len(boxes.starts), len(point)), dtype=np.int64)
    for at in range(len(boxes.starts) - 1, -1, -1):
        extent = np.repeat(boxes.stops[at] - boxes.starts[at], cells)
        starts[at] = np.repeat(boxes.starts[at], cells) + local % extent
        local //= extent
    return point, starts
