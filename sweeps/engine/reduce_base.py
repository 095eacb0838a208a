"""What every reduction has in common: it takes blocks in any order, merges, and gives columns."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sweeps.bands import written
from sweeps.engine.grid import Column
from sweeps.errors import RunError
from sweeps.spec.reduction import Reduction

# How a variable's dimensions split into those that a reduction keeps and those that it reduces.

# Up to so many slices, numpy is faster slice by slice than with very short inner loops.
FEW = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a variable, seen with the kept dimensions first."""

    where: tuple[slice, ...]  # Its place along the kept dimensions
    starts: tuple[int, ...]  # Its place along the reduced dimensions
    extents: tuple[int, ...]  # Its place along the reduced dimensions
    values: NDArray[np.float64]  # Shape: the kept extents, then the reduced ones (a view)

    @property
    def kept(self) -> tuple[int, ...]:
        """The extents along the kept dimensions."""
        return self.values.shape[: len(self.where)]

    @property
    def cells(self) -> int:
        """Cells along the reduced dimensions."""
        return math.prod(self.extents)

    def rows(self) -> NDArray[np.float64]:
        """Return the values as a table: a row for each kept cell (a view where that can be)."""
        return self.values.reshape(math.prod(self.kept), self.cells)

    def slices(self) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
        """Yield each reduced point (from the piece's start) with the kept cells' values there."""
        for point in np.ndindex(*self.extents):
            yield point, self.values[(..., *point)]


@dataclass(frozen=True, slots=True)
class Split:
    """A variable's dimensions, kept and reduced."""

    shape: tuple[int, ...]  # The variable's
    kept_axes: tuple[int, ...]  # Positions of the dimensions, in the variable's order
    reduced_axes: tuple[int, ...]  # Positions of the dimensions, in the variable's order
    kept_dims: tuple[str, ...]  # Their names
    reduced_dims: tuple[str, ...]  # Their names
    # Lengths of the kept dimensions; ``(1,)`` where none is kept, so that results are arrays
    kept_shape: tuple[int, ...]
    reduced_shape: tuple[int, ...]  # Lengths of the reduced ones
    # How far apart neighbours along each reduced dimension are in canonical order
    strides: tuple[int, ...]
    # Where along the kept dimensions this begins, if it is a part of another (`within`)
    origin: tuple[int, ...] = ()

    @property
    def where(self) -> tuple[slice, ...]:
        """The place of this along the whole's kept dimensions."""
        begins = self.origin or (0,) * len(self.kept_shape)
        sizes = zip(begins, self.kept_shape, strict=True)
        return tuple(slice(begin, begin + size) for begin, size in sizes)

    def within(self, where: Sequence[slice]) -> Split:
        """Return the split of a part of the results: regions are still those of the variable."""
        return replace(
            self,
            kept_shape=tuple(part.stop - part.start for part in where),
            origin=tuple(part.start for part in where),
        )

    def box(self, region: Sequence[slice]) -> tuple[slice, ...]:
        """Return the part of the results that a region of the variable belongs to."""
        if not self.kept_axes:
            return (slice(0, 1),)
        return tuple(slice(region[axis].start, region[axis].stop) for axis in self.kept_axes)

    @property
    def kept_cells(self) -> int:
        """Cells of the result."""
        return math.prod(self.kept_shape)

    @property
    def reduced_cells(self) -> int:
        """Cells that each cell of the result comes from."""
        return math.prod(self.reduced_shape)

    @property
    def trailing(self) -> bool:
        """Whether the reduced dimensions are the last: blocks in C order can have them whole."""
        return self.reduced_axes == tuple(range(len(self.kept_axes), len(self.shape)))

    def piece(self, region: Sequence[slice], values: NDArray[np.float64]) -> Piece:
        """Return a block as the reduction sees it."""
        bounds = [part.indices(size) for part, size in zip(region, self.shape, strict=True)]
        extents = tuple(stop - start for start, stop, _ in bounds)
        if values.shape != extents or any(step != 1 for *_, step in bounds):
            message = f"values of shape {values.shape} don't fill the region {tuple(region)}"
            raise ValueError(message)
        view = values.transpose(*self.kept_axes, *self.reduced_axes)
        begins = self.origin or (0,) * len(self.kept_axes)
        where = tuple(
            slice(bounds[axis][0] - begin, bounds[axis][1] - begin)
            for axis, begin in zip(self.kept_axes, begins, strict=False)
        )
        if not where:
            where, view = (slice(0, 1),), view[np.newaxis]
        starts = tuple(bounds[axis][0] for axis in self.reduced_axes)
        return Piece(where, starts, view.shape[len(where) :], view)

    def place(self, point: Sequence[int]) -> int:
        """Return a reduced point's place in canonical (lexicographic) order."""
        return sum(index * stride for index, stride in zip(point, self.strides, strict=True))

    def places(self, piece: Piece, local: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return places in canonical order of points that are counted within a piece."""
        positions = np.full(local.shape, self.place(piece.starts), dtype=np.int64)
        within = 1
        for extent, stride in zip(reversed(piece.extents), reversed(self.strides), strict=True):
            positions += local // within % extent * stride
            within *= extent
        return positions

    def indices(self, positions: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the index along each reduced dimension; -1 for a place beyond the last."""
        none = positions >= self.reduced_cells
        by_dim = {}
        for dim, size, stride in zip(
            self.reduced_dims, self.reduced_shape, self.strides, strict=True
        ):
            by_dim[dim] = np.where(none, -1, positions // stride % size)
        return by_dim


def split(dims: Sequence[str], sizes: Mapping[str, int], over: Sequence[str]) -> Split:
    """Split a variable's dimensions."""
    shape = tuple(int(sizes[dim]) for dim in dims)
    reduced = tuple(axis for axis, dim in enumerate(dims) if dim in over)
    kept = tuple(axis for axis, dim in enumerate(dims) if dim not in over)
    reduced_shape = tuple(shape[axis] for axis in reduced)
    strides = tuple(math.prod(reduced_shape[n + 1 :]) for n in range(len(reduced)))
    return Split(
        shape=shape,
        kept_axes=kept,
        reduced_axes=reduced,
        kept_dims=tuple(dims[axis] for axis in kept),
        reduced_dims=tuple(dims[axis] for axis in reduced),
        kept_shape=tuple(shape[axis] for axis in kept) or (1,),
        reduced_shape=reduced_shape,
        strides=strides,
    )


def over_slices(ufunc: np.ufunc, piece: Piece) -> NDArray[np.float64]:
    """Reduce a piece's reduced dimensions by a ufunc, in whatever order is fast."""
    values, kept = piece.values, piece.kept
    if piece.cells <= FEW:
        slices = piece.slices()
        total = next(slices)[1].copy()
        for _, part in slices:
            ufunc(total, part, out=total)
        return total
    if math.prod(kept) <= FEW:
        rows = [ufunc.reduce(values[point], axis=None) for point in np.ndindex(*kept)]
        return np.array(rows, dtype=np.float64).reshape(kept)
    axes = tuple(range(len(kept), values.ndim))
    return np.asarray(ufunc.reduce(values, axis=axes))


# Sums of float64 that are exact until they are rounded, once: the same in any order of addition.
#
# A float64 is a whole multiple of 2**-1088 below 2**1024.  Cut into limbs of 32 bits it is a
# handful of small whole numbers, whose sums are exact; the limbs that occur are kept, each an int64
# a cell.

LIMB_BITS = 32
# The weight of limb 0 is 2**-LOWEST_BIT: below the least float64, 2**-1074, and a whole limb.
LOWEST_BIT = 1088
MASK = (1 << LIMB_BITS) - 1
# Cells that one `add` may sum: below, sums of limbs are exact as float64.
MOST_CELLS = 1 << 20
# Cells after whose addition a limb may be near the end of int64, and carries are due.
MOST_LOAD = 1 << 29
ROUNDED_AT_ONCE = 1 << 15
# Powers of two beyond this don't fit a float64 (or not exactly), and are applied in two steps.
ONE_STEP = 1000


def weight(limb: int) -> int:
    """Return the exponent of two that a limb's unit stands for."""
    return LIMB_BITS * limb - LOWEST_BIT


def scaled(values: NDArray[np.float64], exponent: int) -> NDArray[np.float64]:
    """Return values times a power of two; exact where the result is a normal number."""
    if abs(exponent) <= ONE_STEP:
        return values * math.ldexp(1.0, exponent)
    half = exponent // 2
    product = values * math.ldexp(1.0, half)
    product *= math.ldexp(1.0, exponent - half)
    return product


class ExactSum:
    """Sums, one a cell, of any number of finite float64."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.limbs: dict[int, NDArray[np.int64]] = {}
        # No limb is larger than so many times 2**32.
        self._load = 0

    def add(self, piece: Piece) -> None:
        """Add a piece's values over its reduced dimensions."""
        if self._load + piece.cells > MOST_LOAD:
            self._carry()
        self._load += piece.cells
        rest = piece.values
        while (largest := max(float(rest.max()), -float(rest.min()))) > 0.0:
            limb = (math.frexp(largest)[1] - 1 + LOWEST_BIT) // LIMB_BITS
            whole = scaled(rest, -weight(limb))
            np.trunc(whole, out=whole)
            part = Piece(piece.where, piece.starts, piece.extents, whole)
            self._limb(limb)[piece.where] += over_slices(np.add, part).astype(np.int64)
            if limb == 0:
                break
            # Exact: what is left are the lower bits.
            rest = rest - scaled(whole, weight(limb))

    def merge(self, other: ExactSum, where: tuple[slice, ...] | None = None) -> None:
        """Add another's sums."""
        if self._load + other._load > MOST_LOAD:
            self._carry()
            other._carry()
        self._load += other._load
        for limb, sums in other.limbs.items():
            self._limb(limb)[where or ...] += sums

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Return the sums as arrays by name."""
        limbs = {f"limb.{limb}": sums for limb, sums in self.limbs.items()}
        return {"load": np.array(self._load, dtype=np.int64), **limbs}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set the sums, as `state` gives them."""
        self._load = int(state["load"])
        named = ((name.partition("."), sums) for name, sums in state.items())
        self.limbs = {int(key): sums.copy() for (kind, _, key), sums in named if kind == "limb"}

    def rounded(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the sums, each rounded once (to nearest, ties to even), as ``f * 2**e``."""
        cells = math.prod(self.shape)
        numbers, exponents = np.zeros(cells), np.zeros(cells, dtype=np.int64)
        if self.limbs:
            flat = {limb: sums.reshape(-1) for limb, sums in self.limbs.items()}
            for start in range(0, cells, ROUNDED_AT_ONCE):
                part = slice(start, start + ROUNDED_AT_ONCE)
                sums_rounded = rounded({limb: sums[part] for limb, sums in flat.items()})
                numbers[part], exponents[part] = sums_rounded
        return numbers.reshape(self.shape), exponents.reshape(self.shape)

    def _limb(self, limb: int) -> NDArray[np.int64]:
        if limb not in self.limbs:
            self.limbs[limb] = np.zeros(self.shape, dtype=np.int64)
        return self.limbs[limb]

    def _carry(self) -> None:
        """Bring every limb back between -2**31 and 2**31, so that there is room again.

        Digits of both signs: small negative sums have no long row of leading ones.
        """
        limb = min(self.limbs, default=0)
        while limb <= max(self.limbs, default=-1):
            if limb in self.limbs:
                carry = (self.limbs[limb] + (1 << (LIMB_BITS - 1))) >> LIMB_BITS
                if carry.any():
                    self.limbs[limb] -= carry << LIMB_BITS
                    self._limb(limb + 1)[...] += carry
            limb += 1
        self._load = 1


def rounded(
    limbs: dict[int, NDArray[np.int64]],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Round sums in limbs to float64."""
    low, high = min(limbs) - 2, max(limbs)
    cells = len(limbs[high])
    # Two limbs below, which are 0, so that three limbs can always be read; two above for carries.
    digits = np.zeros((high - low + 3, cells), dtype=np.int64)
    for limb, sums in limbs.items():
        digits[limb - low] = sums
    _propagate(digits)
    negative = digits[-1] < 0
    np.negative(digits, out=digits, where=negative)
    _propagate(digits)

    filled = digits != 0
    nothing = ~filled.any(axis=0)
    top = len(digits) - 1 - filled[::-1].argmax(axis=0)
    top[nothing] = 2
    lowest = np.where(nothing, len(digits), filled.argmax(axis=0))
    row = np.arange(cells)
    first, second, third = (digits[top - n, row].astype(np.uint64) for n in range(3))
    # The leading 64 bits, the last of them set if anything is below, so that rounding sees it.
    length = np.frexp(first.astype(np.float64))[1].astype(np.uint64)
    shift = np.uint64(LIMB_BITS) - length
    shift[nothing] = 0
    leading = ((first << np.uint64(LIMB_BITS)) | second) << shift
    leading |= third >> (np.uint64(LIMB_BITS) - shift)
    below = ((third << shift) & np.uint64(MASK)) != 0
    leading |= below | (lowest < top - 2)
    numbers = leading.astype(np.float64)
    exponents = LIMB_BITS * (top + low - 1) - LOWEST_BIT - shift.astype(np.int64)
    return np.where(negative, -numbers, numbers), exponents


def _propagate(digits: NDArray[np.int64]) -> None:
    """Bring all digits but the last (which holds the sign) between 0 and 2**32."""
    for limb in range(len(digits) - 1):
        digits[limb + 1] += digits[limb] >> LIMB_BITS
        digits[limb] &= MASK


# Metadata of a quantity that is true of its reductions as well.
KEPT_ATTRS = ("units", "references")


@dataclass(frozen=True, slots=True)
class Task:
    """A reduction of a variable of known dimensions."""

    reduction: Reduction  # What the user asks for
    split: Split  # The variable's dimensions, kept and reduced
    # The labels or values along reduced dimensions, as far as they are known
    coordinates: Mapping[str, Column] = field(default_factory=dict)
    absent: tuple[str, ...] = ()  # Dimensions to reduce that the variable doesn't have
    whole: Split | None = None  # The split of all results, where this is of a part of them

    @property
    def name(self) -> str:
        """The result's name."""
        return self.reduction.name

    @property
    def over(self) -> str:
        """The reduced dimensions, in words."""
        return ", ".join(self.reduction.over)

    def attrs(self, attrs: Mapping[str, Any], long_name: str, comment: str = "") -> dict[str, Any]:
        """Compose a result's metadata."""
        said = [
            f"Over {self.over}: {self.split.reduced_cells} cells for each result.",
            "Holes (NaN) are left out; a result that has nothing else is NaN.",
        ]
        if self.reduction.where:
            where = _in_words(self.reduction.where)
            said.append(f"Only cells with {where} count.")
            long_name += f", where {where}"
        if self.absent:
            said.append(
                f"{self.reduction.quantity} is the same all along {', '.join(self.absent)}."
            )
        said += [text for text in (comment, str(attrs.get("comment", ""))) if text]
        kept = {name: attrs[name] for name in KEPT_ATTRS if name in attrs}
        return {"long_name": long_name, **kept, "comment": " ".join(said)}

    def quantity(self, attrs: Mapping[str, Any]) -> str:
        """Return the reduced quantity in words."""
        return str(attrs.get("long_name", self.reduction.quantity))

    def column(
        self, values: NDArray[Any], name: str, attrs: Mapping[str, Any], last: str = ""
    ) -> Column:
        """Compose a result's column."""
        dims = (*self.split.kept_dims, last) if last else self.split.kept_dims
        shape = tuple(self.split.shape[axis] for axis in self.split.kept_axes)
        shape = (*shape, values.shape[-1]) if last else shape
        return Column(name, dims, values.dtype, attrs, values.reshape(shape))


class Reducer(ABC):
    """A reduction of one variable while its blocks stream by.

    Whatever the blocks, and in whatever order they come, the results are the same to the bit.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._seen = 0

    @property
    def complete(self) -> bool:
        """Whether as many cells have come as the variable has."""
        return self._seen == math.prod(self.task.split.shape)

    def update(
        self,
        region: Sequence[slice],
        values: NDArray[Any],
        partners: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take a block in.  Each cell of the variable may come once."""
        piece = self.task.split.piece(region, self.counted(values, partners))
        if piece.values.size == 0:
            return
        self._seen += piece.values.size
        for part in parts(piece):
            self._take(part)

    def counted(
        self, values: NDArray[Any], partners: Mapping[str, NDArray[Any]] | None
    ) -> NDArray[np.float64]:
        """Return values that are holes where the reduction's condition doesn't hold."""
        numbers, where = np.asarray(values, dtype=np.float64), self.task.reduction.where
        return numbers if not where else np.where((partners or {})[where] == 1.0, numbers, np.nan)

    def merge(self, other: Self) -> None:
        """Take in what another reducer has gathered from other blocks."""
        mine, its = self.task, other.task
        if (mine.reduction, mine.split) != (its.reduction, its.whole or its.split):
            message = f"{mine.name} and {its.name} aren't parts of one reduction"
            raise ValueError(message)
        self._seen += other._seen
        self._absorb(other, its.split.where)

    def part(self, where: Sequence[slice]) -> Self:
        """Return a reducer of a part of the results, to be given the blocks that belong to it."""
        task = replace(self.task, split=self.task.split.within(where), whole=self.task.split)
        return type(self)(task)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what has been gathered, as arrays by name: all that `restore` needs."""
        return {"seen": np.array(self._seen, dtype=np.int64), **self._state()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Set what has been gathered."""
        self._seen = int(state["seen"])
        self._restore(state)

    def columns(self, attrs: Mapping[str, Any]) -> list[Column]:
        """Return the results, over the kept dimensions in the variable's order."""
        if not self.complete:
            total = math.prod(self.task.split.shape)
            message = f"{self.task.name}: {self._seen} of {total} cells have been reduced"
            raise RunError(message)
        return self._columns(attrs)

    @abstractmethod
    def _take(self, piece: Piece) -> None: ...

    @abstractmethod
    def _absorb(self, other: Self, where: tuple[slice, ...]) -> None: ...

    @abstractmethod
    def _state(self) -> dict[str, NDArray[Any]]: ...

    @abstractmethod
    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None: ...

    @abstractmethod
    def _columns(self, attrs: Mapping[str, Any]) -> list[Column]: ...


def parts(piece: Piece) -> list[Piece]:
    """Cut a piece into some of at most so many cells that sums of limbs are exact."""
    if piece.values.size <= MOST_CELLS:
        return [piece]
    axis = int(np.argmax(piece.values.shape))
    middle = piece.values.shape[axis] // 2
    pieces = []
    for lower, upper in ((0, middle), (middle, piece.values.shape[axis])):
        kept = len(piece.where)
        values = piece.values[(*(slice(None),) * axis, slice(lower, upper))]
        where, starts = list(piece.where), list(piece.starts)
        if axis < kept:
            start = piece.where[axis].start
            where[axis] = slice(start + lower, start + upper)
        else:
            starts[axis - kept] += lower
        pieces += parts(Piece(tuple(where), tuple(starts), values.shape[kept:], values))
    return pieces


# Where along its reduced dimensions a result was found: as a coordinate's value, or as flags.

NOT_IN_FLAGS = re.compile(r"[^A-Za-z0-9_.+@-]")


def position(
    task: Task, dim: str, index: NDArray[np.int64], title: str
) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return what stands at some indices along a dimension, and its metadata."""
    coordinate = task.coordinates.get(dim)
    values = None if coordinate is None else coordinate.values
    if coordinate is not None and values is not None:
        if values.dtype.kind not in "UOST":
            kept = ("units", "symbol")
            attributes = {name: coordinate.attrs[name] for name in kept if name in coordinate.attrs}
            coordinates = np.where(index < 0, np.nan, values.astype(np.float64)[index])
            return coordinates, {"long_name": title, **attributes}
        texts = [str(word) for word in values]
        words = flag_words(["no_value" if "none" in texts else "none", *texts])
        flags = np.arange(len(words), dtype=np.min_scalar_type(-len(words)))
        about = {"flag_values": flags, "flag_meanings": " ".join(words)}
        return (index + 1).astype(flags.dtype), {"long_name": title, **about}
    attributes = {"long_name": f"index along {title}", "units": "1"}
    comment = "Counted from 0; -1 where there is no value."
    return index.astype(np.int32), {**attributes, "comment": comment}


def flag_words(words: Sequence[str]) -> list[str]:
    """Return words as CF's ``flag_meanings`` may have them: without blanks, each once."""
    unique_words: dict[str, None] = {}
    for word in words:
        plain = NOT_IN_FLAGS.sub("_", word) or "_"
        unique, number = plain, 2
        while unique in unique_words:
            unique, number = f"{plain}_{number}", number + 1
        unique_words[unique] = None
    return list(unique_words)


_COMPARED = re.compile(r"\((\w+) ([<>=!]=?) ([\d.e+-]+)\)")


def _in_words(where: str) -> str:
    """Return a condition with its numbers in units: peak_memory <= 72 GB."""

    def shown(match: re.Match[str]) -> str:
        name, sign, number = match.groups()
        return f"{name} {sign} {written(name, float(number))}"

    return _COMPARED.sub(shown, where).replace(" & ", " and ")
