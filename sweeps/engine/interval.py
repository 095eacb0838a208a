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
        low, high = (np.broadcast_to(one, whole).reshape(*shape) for one in (self.low, self.high))
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


def _infinite(one: Interval) -> Array | None:
    """Return where a bound is infinite; None where none is."""
    if np.isfinite(one.low).all() and np.isfinite(one.high).all():
        return None
    return np.asarray(~(np.isfinite(one.low) & np.isfinite(one.high)))


def _both_infinite(one: Interval, other: Interval) -> Array | None:
    left, right = _infinite(one), _infinite(other)
    return None if left is None or right is None else left & right


def _has_zero(one: Interval) -> Array:
    return np.asarray((one.low <= 0.0) & (one.high >= 0.0))


def _add(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan, _both_infinite(one, other))
    if one.low is one.high and other.low is other.high:
        total = one.low + other.low
        return _made(total, total, nan)
    return _made(one.low + other.low, one.high + other.high, nan)


def _negative(one: Interval) -> Interval:
    return Interval(-one.high, -one.low, one.nan)


def _subtract(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan, _both_infinite(one, other))
    return _made(one.low - other.high, one.high - other.low, nan)


def _multiply(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan)
    for left, right in ((one, other), (other, one)):
        infinite = _infinite(left)
        if infinite is not None:
            nan = _joined(nan, infinite & _has_zero(right))
    if (one.low >= 0.0).all() and (other.low >= 0.0).all():
        return _made(one.low * other.low, one.high * other.high, nan)
    ends = [x * y for x in (one.low, one.high) for y in (other.low, other.high)]
    return _made(reduce(np.minimum, ends), reduce(np.maximum, ends), nan)


def _divide(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan, _both_infinite(one, other))
    zero = _has_zero(other)
    some = bool(zero.any())
    if some:
        nan = _joined(nan, zero & _has_zero(one))
    above = bool((one.low >= 0.0).all()) and bool((other.low >= 0.0).all())
    if above and not (some and np.signbit(other.low).any()):
        return _made(one.low / other.high, one.high / other.low, nan)
    ends = [x / y for x in (one.low, one.high) for y in (other.low, other.high)]
    low, high = reduce(np.minimum, ends), reduce(np.maximum, ends)
    if some:
        # Above nought on both sides the quotient is, whatever it is divided by; noughts between
        # bounds are taken to have the lower bound's sign.
        rising = (other.low == 0.0) & ~np.signbit(other.low) & (one.low >= 0.0)
        zero = zero & ~rising
        low, high = np.where(zero, -np.inf, low), np.where(zero, np.inf, high)
    return _made(low, high, nan)


def _minimum(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan)
    return Interval(np.minimum(one.low, other.low), np.minimum(one.high, other.high), nan)


def _maximum(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan)
    return Interval(np.maximum(one.low, other.low), np.maximum(one.high, other.high), nan)


def _hull(one: Interval, other: Interval) -> Interval:
    """Return what is either: of sets of bits those that both have, and those that one may have."""
    nan = _joined(one.nan, other.nan)
    if one.dtype.kind in "iu" and other.dtype.kind in "iu":
        return Interval(one.low & other.low, one.high | other.high)
    return Interval(np.minimum(one.low, other.low), np.maximum(one.high, other.high), nan)


def _ignoring(rule: Callable[..., Interval]) -> Callable[..., Interval]:
    """Return fmin or fmax: where one isn't a number it is the other."""

    def run(one: Interval, other: Interval) -> Interval:
        found = rule(one, other)
        return found if found.nan is None else _hull(one, other)

    return run


def _rising(ufunc: np.ufunc, ulps: int = 0) -> Callable[[Interval], Interval]:
    """Return what an increasing function gives."""

    def run(one: Interval) -> Interval:
        low, high = ufunc(one.low), ufunc(one.high)
        nan = one.nan
        if ufunc in PARTIAL:
            outside = one.low < PARTIAL[ufunc]
            nan = _joined(nan, outside) if outside.any() else nan
        return _made(*_widened(low, high, ulps), nan)

    return run


def _widened(low: Array, high: Array, ulps: int) -> tuple[Array, Array]:
    for _ in range(ulps):
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return low, high


def _absolute(one: Interval) -> Interval:
    low, high = np.abs(one.low), np.abs(one.high)
    least = np.where(_has_zero(one), 0.0, np.minimum(low, high))
    return Interval(least, np.maximum(low, high), one.nan)


def _power(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan)
    if (other.low == 2.0).all() and (other.high == 2.0).all():
        one = _absolute(one)  # A square has no sign
    if (one.low < 0.0).any():
        if not (one.point & other.point).all():
            msg = "a power of what may be negative"
            raise RecordingError(msg)
        total = np.power(one.low, other.low)
        return _made(total, total, nan)
    ends = [np.power(x, y) for x in (one.low, one.high) for y in (other.low, other.high)]
    if (np.isinf(other.low) | np.isinf(other.high)).any() or _infinite(one) is not None:
        nan = _joined(nan, np.ones(np.broadcast_shapes(one.shape, other.shape), dtype=np.bool_))
    low, high = reduce(np.minimum, ends), reduce(np.maximum, ends)
    wide = _widened(low, high, ULPS)
    same = one.point & other.point
    low, high = np.where(same, low, wide[0]), np.where(same, high, wide[1])
    # A negative power of a nought is infinite, with the nought's sign.
    nought = _has_zero(one) & np.signbit(one.low) & (other.low < 0.0)
    return _made(np.where(nought, -np.inf, low), np.where(nought, np.inf, high), nan)


def _remainder(one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan, _zero_or_none(other), _infinite(one))
    same = one.point & other.point
    whole = np.remainder(one.low, other.low)
    low = np.where(same, whole, np.minimum(other.low, 0.0))
    high = np.where(same, whole, np.maximum(other.high, 0.0))
    return _made(low, high, nan)


def _floor_divide(one: Interval, other: Interval) -> Interval:
    same = one.point & other.point & (other.low != 0.0)
    whole = np.floor_divide(one.low, other.low)
    near = _divide(one, other)
    nan = _joined(near.nan, _zero_or_none(other), _infinite(one))
    low = np.where(same, whole, np.floor(near.low) - 1.0)
    return _made(low, np.where(same, whole, np.floor(near.high)), nan)


def _zero_or_none(one: Interval) -> Array | None:
    zero = _has_zero(one)
    return zero if zero.any() else None


# Truths.


def _compared(ufunc: np.ufunc, one: Interval, other: Interval) -> Interval:
    nan = _joined(one.nan, other.nan)
    if ufunc in (np.equal, np.not_equal):
        sure = one.point & other.point & (one.low == other.low)
        perhaps = (one.low <= other.high) & (other.low <= one.high)
        if nan is not None:
            sure = sure & ~nan
        return Interval(sure, perhaps) if ufunc is np.equal else Interval(~perhaps, ~sure)
    if ufunc in (np.greater, np.greater_equal):
        one, other = other, one
        ufunc = np.less if ufunc is np.greater else np.less_equal
    sure, perhaps = ufunc(one.high, other.low), ufunc(one.low, other.high)
    return Interval(sure if nan is None else sure & ~nan, perhaps)


def _truth(one: Interval) -> Interval:
    return one.astype(np.bool_)


def _bits(ufunc: np.ufunc) -> Callable[[Interval, Interval], Interval]:
    def run(one: Interval, other: Interval) -> Interval:
        if {one.dtype.kind, other.dtype.kind} - {"b", "i", "u"}:
            msg = f"{ufunc.__name__} of numbers"
            raise RecordingError(msg)
        return Interval(ufunc(one.low, other.low), ufunc(one.high, other.high))

    return run


def _either(one: Interval, other: Interval) -> Interval:
    """Return the bits that one of two sets has, and the other hasn't."""
    found = _bits(np.bitwise_or)(one, other)
    return Interval((one.low & ~other.high) | (other.low & ~one.high), found.high)


def _not(one: Interval) -> Interval:
    if one.dtype.kind != "b":
        msg = "an inversion of numbers"
        raise RecordingError(msg)
    return Interval(~one.high, ~one.low)


def _logical(ufunc: np.ufunc) -> Callable[[Interval, Interval], Interval]:
    def run(one: Interval, other: Interval) -> Interval:
        one, other = _truth(one), _truth(other)
        return Interval(ufunc(one.low, other.low), ufunc(one.high, other.high))

    return run


def _isnan(one: Interval) -> Interval:
    none = np.zeros(one.shape, dtype=np.bool_)
    return Interval(none, none if one.nan is None else none | one.nan)


def _isfinite(one: Interval) -> Interval:
    infinite = _infinite(one)
    sure = np.ones(one.shape, dtype=np.bool_)
    doubt = _joined(one.nan, infinite)
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
    found = np.where(condition, False if yes is None else yes, False if no is None else no)
    return found if found.any() else None


def best_of(*values: Any) -> tuple[Interval, list[Array]]:
    """Return what `overhead.choose.best_of` may give, and which may be the best."""
    each = [of(value) for value in values]
    first, *others = each
    for other in others:
        first = _minimum(first, other)
    # The first of equal ones is taken; what isn't a number is never less.
    most = reduce(np.minimum, [one.high for one in each])
    perhaps = [np.asarray(one.low <= most) for one in each]
    if first.nan is not None:
        perhaps = [np.ones(first.shape, dtype=np.bool_) for _ in each]
    return first, perhaps


def select(best: tuple[Any, Any], *values: Any) -> Interval:
    """Return what `overhead.choose.select` may give."""
    marks = best[1]
    every = marks if isinstance(marks, list) else [marks == at for at in range(len(values))]
    shape = np.broadcast_shapes(*(one.shape for one in every), *(np.shape(v) for v in values))
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
    np.positive: lambda one: one,
    np.absolute: _absolute,
    np.square: lambda one: _multiply(_absolute(one), _absolute(one)),
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
    np.logical_not: lambda one: _not(_truth(one)),
    np.invert: _not,
    np.isnan: _isnan,
    np.isfinite: _isfinite,
    **{
        one: partial(_compared, one)
        for one in (
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
        rows = zip(*((one.starts, one.stops, one.bound) for one in several), strict=True)
        point = np.concatenate([one.point for one in several])
        return Boxes(point, *(np.concatenate(row, axis=1) for row in rows))


class Best:
    """The first so many (value, place) of each result; cells come in any order, or again."""

    def __init__(self, results: int, count: int, none: int) -> None:
        self.count, self.none = count, none
        self.keys = np.full((results, count), np.inf)
        self.places = np.full((results, count), none, dtype=np.int64)

    def add(self, results: Places, every: Floats, places: Places) -> None:
        """Take cells in."""
        (keys,) = every
        last, edge = self.keys[results, -1], self.places[results, -1]
        some = (keys < last) | ((keys == last) & (places < edge))
        if not some.any():
            return
        results, keys, places = results[some], keys[some], places[some]
        own = np.unique(results)
        results = np.concatenate([np.repeat(own, self.count), results])
        keys = np.concatenate([self.keys[own].ravel(), keys])
        places = np.concatenate([self.places[own].ravel(), places])
        order = np.lexsort((places, keys, results))
        results, keys, places = results[order], keys[order], places[order]
        again = np.r_[False, (results[1:] == results[:-1]) & (places[1:] == places[:-1])]
        again &= places != self.none
        results, keys, places = results[~again], keys[~again], places[~again]
        rank = np.arange(len(results)) - np.searchsorted(results, results)
        kept = rank < self.count
        self.keys[results[kept], rank[kept]] = keys[kept]
        self.places[results[kept], rank[kept]] = places[kept]

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
        keys, places = (state[name].reshape(self.count, -1).T for name in ("keys", "places"))
        results = np.repeat(np.arange(len(keys)), self.count)
        some = places.ravel() != self.none
        self.add(results[some], keys.ravel()[np.newaxis, some], places.ravel()[some])


class Front:
    """The cells of each result that no other has both keys of better, or the same at once."""

    def __init__(self) -> None:
        self.points = no_points()

    def add(self, results: Places, every: Floats, places: Places) -> None:
        """Take cells in."""
        offered = (results, every[0] + 0.0, every[1] + 0.0, places)
        self.points = front(joined(self.points, offered))

    def beats(self, results: Places, bound: Floats, first: Places) -> NDArray[np.bool_]:
        """Return which boxes hold nothing that is missing here."""
        found = np.zeros(len(results), dtype=np.bool_)
        cells, keys, others, places = self.points
        order = np.argsort(results, kind="stable")
        own, begins = np.unique(results[order], return_index=True)
        for result, mine in zip(own.tolist(), np.split(order, begins[1:]), strict=True):
            low, high = np.searchsorted(cells, [result, result + 1])
            if low == high:
                continue
            # Of what has the first key as good, the last has the best second key.
            at = np.searchsorted(keys[low:high], bound[0, mine], side="right") - 1
            some, at = at >= 0, np.maximum(at, 0) + low
            less = (keys[at] < bound[0, mine]) | (others[at] < bound[1, mine])
            some &= (others[at] <= bound[1, mine]) & (less | (places[at] <= first[mine]))
            found[mine] = some
        return found

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
    found = []
    for corner in product((0, 1), repeat=len(boxes.starts)):
        upper = np.array(corner, dtype=bool)[:, np.newaxis]
        starts = np.where(upper, middle, boxes.starts)
        stops = np.where(upper, boxes.stops, middle)
        some = (stops > starts).all(axis=0)
        found.append(
            Boxes(boxes.point[some], starts[:, some], stops[:, some], boxes.bound[:, some])
        )
    return Boxes.joined(found)


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
