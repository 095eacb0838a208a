"""Variables in random blocks, for tests of reductions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sweeps.engine.grid import Column
from sweeps.engine.reduce import reducer
from sweeps.engine.reduce_base import Reducer
from sweeps.spec.reduction import Reduction

ATTRS = {"long_name": "time", "units": "s", "references": "somebody", "formula": "time = 1"}
SPECIAL = np.array([np.inf, -np.inf, 0.0, -0.0, 5e-324, -(2.0**-1030), 1.7e308, -1.7e308])
KINDS = ("tied", "usual", "wide", "special")


@dataclass(frozen=True)
class Case:
    """A variable's values, and the dimensions to reduce."""

    values: np.ndarray
    dims: tuple[str, ...]
    over: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.dims, self.values.shape, strict=True))

    @property
    def kept_dims(self) -> tuple[str, ...]:
        return tuple(dim for dim in self.dims if dim not in self.over)

    @property
    def kept_shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[dim] for dim in self.kept_dims)

    @property
    def reduced_dims(self) -> tuple[str, ...]:
        return tuple(dim for dim in self.dims if dim in self.over)

    @property
    def reduced_shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[dim] for dim in self.reduced_dims)

    def rows(self) -> np.ndarray:
        """The oracle's view: a row a kept cell, its cells in canonical order."""
        kept = [n for n, dim in enumerate(self.dims) if dim not in self.over]
        reduced = [n for n, dim in enumerate(self.dims) if dim in self.over]
        count = math.prod(self.kept_shape)
        return np.ascontiguousarray(self.values.transpose(kept + reduced)).reshape(count, -1)

    def reducer(self, operation: str, **options: Any) -> Reducer:
        made = Reduction("time", operation, self.over, "r", **options)
        return reducer(made, self.dims, self.sizes, {})


def numbers(kind: str, seed: int, shape: tuple[int, ...], holes: float) -> np.ndarray:
    generator = np.random.default_rng(seed)
    match kind:
        case "tied":
            values = generator.integers(0, 3, shape).astype(float)
        case "usual":
            values = generator.lognormal(-5.0, 4.0, shape)
        case "wide":
            bits = generator.integers(-(2**63), 2**63, shape, dtype=np.int64)
            values = bits.view(np.float64)
        case _:
            values = generator.choice(np.concatenate([SPECIAL, [1.0, np.pi]]), shape)
    values = np.array(values, dtype=np.float64).reshape(shape)
    values[generator.random(shape) < holes] = np.nan
    return values


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS, longest: int = 40) -> Case:
    """Up to four dimensions; most are short, one may be long."""
    dims = ("topology", "plan", "ranks", "message_bytes")[: draw(st.integers(0, 4))]
    lengths = [draw(st.integers(1, 5)) for _ in dims]
    if dims:
        position = draw(st.integers(0, len(dims) - 1))
        lengths[position] = draw(st.integers(1, longest))
    over = tuple(dim for dim in dims if draw(st.booleans()))
    kind, seed = draw(st.sampled_from(kinds)), draw(st.integers(0, 2**32 - 1))
    holes = draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    return Case(numbers(kind, seed, tuple(lengths), holes), dims, over)


Region = tuple[slice, ...]


@st.composite
def partitions(draw: st.DrawFn, shape: tuple[int, ...], most: int = 12) -> list[Region]:
    """Cut again and again, somewhere along some dimension; then shuffle."""
    regions: list[Region] = [tuple(slice(0, size) for size in shape)]
    for _ in range(draw(st.integers(0, most))):
        index = draw(st.integers(0, len(regions) - 1))
        region = regions[index]
        long = [n for n, part in enumerate(region) if part.stop - part.start > 1]
        if not long:
            continue
        axis = draw(st.sampled_from(long))
        part = region[axis]
        cut = draw(st.integers(part.start + 1, part.stop - 1))
        pair = (slice(part.start, cut), slice(cut, part.stop))
        regions[index : index + 1] = [(*region[:axis], one, *region[axis + 1 :]) for one in pair]
    return draw(st.permutations(regions))


def singles(shape: tuple[int, ...]) -> Iterator[Region]:
    for point in itertools.product(*(range(size) for size in shape)):
        yield tuple(slice(index, index + 1) for index in point)


def whole(shape: tuple[int, ...]) -> Region:
    return tuple(slice(0, size) for size in shape)


def feed(made: Reducer, values: np.ndarray, regions: list[Region]) -> Reducer:
    for region in regions:
        block = values[region].copy()
        made.update(region, block)
        # A block's memory is used again for the next one.
        block.fill(-12345.0)
    return made


def results(made: Reducer) -> dict[str, np.ndarray]:
    arrays = {}
    for column in made.columns(ATTRS):
        assert column.values is not None
        assert column.values.dtype == column.dtype
        assert column.values.ndim == len(column.dims)
        arrays[column.name] = column.values
    return arrays


def bits(columns: dict[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    return {n: (v.shape, v.dtype.str, v.tobytes()) for n, v in columns.items()}


def named(columns: list[Column]) -> dict[str, Column]:
    return {column.name: column for column in columns}


def in_any_blocks(case: Case, data: st.DataObject, operation: str, **options: Any) -> Reducer:
    """Reduce in random blocks by one to three workers; compare with one worker and one block."""
    shape = case.values.shape
    workers = [case.reducer(operation, **options) for _ in range(data.draw(st.integers(1, 3)))]
    for region in data.draw(partitions(shape)):
        feed(data.draw(st.sampled_from(workers)), case.values, [region])
    order = data.draw(st.permutations(workers))
    if len(order) == 3 and data.draw(st.booleans()):
        order[1].merge(order[2])
        order = order[:2]
    for other in order[1:]:
        order[0].merge(other)
    alone = feed(case.reducer(operation, **options), case.values, [whole(shape)])
    assert bits(results(order[0])) == bits(results(alone))
    return alone
