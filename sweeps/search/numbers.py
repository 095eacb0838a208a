"""Spaces of several numbers of GPUs, of the plans alone whose step may be short enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from overhead.dependencies import bits
from overhead.graph import below
from overhead.labels import PLAIN
from sweeps.engine.program import Program
from sweeps.errors import InputError
from sweeps.search.floor import ALONE, BUSY, MICRO, Floors, floors_of, rows_of_layers
from sweeps.search.request import DEGREES, Columns, Point, num_micro_batches
from sweeps.search.rows import Rows, wrong_splits
from sweeps.search.search import blocks_of, is_bounded
from sweeps.search.space import (
    Common,
    Space,
    axes_of,
    choices_of,
    common_of,
    labels_of_all,
    recomputing_only_adds,
    shapes_of,
    spanned,
    splits_of,
)
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep

# What a degree can't be whatever the other ones.
OTHERS = (*DEGREES, "world_size", "virtual_pipeline_size", MICRO)
# Ranks up to which a degree is looked at, as many as the largest cluster has.
MOST_RANKS = 1 << 17
# Stages by which what plans vary is asked for.
PIPELINED = np.array([1.0, 2.0])
# Splits with micro-batches from which a table of layers pays.
WORTH = 4_000
# Rows of layers from which their table would take longer than it saves.
MOST_ROWS = 1 << 19

Key = tuple[object, ...]


@dataclass
class Numbers:
    """Numbers of GPUs for one question, by what their plans have in common."""

    point: Point
    several: Sequence[int]
    # By what plans have in common, whatever their batch: of one batch, and of others that divide it
    floors: dict[Key, Floors | None] = field(default_factory=dict)
    batch: float = 0.0  # The largest; the question's own where none is given
    # What plans of some numbers have in common; None where they can't be
    commons: dict[int, Common | None] = field(default_factory=dict)

    def spaces(self, steps: Mapping[int, float]) -> Iterator[Space]:
        """Span the spaces of some of the numbers, those that differ in nothing else as one.

        What can't be has none; how many plans fall isn't counted.  Of each number plans are left
        out whose step is surely longer than a given one.
        """
        for known, every, floors in self._alike:
            alike = [gpus for gpus in every if gpus in steps]
            yield from self._spaces(known, alike, floors, steps)

    def least_steps(self) -> dict[int, tuple[float, float]]:
        """Return by number of GPUs the ends of its plans' bounds, infinite where nothing bounds."""
        ends: dict[int, tuple[float, float]] = {}
        batch = self.point.constants["global_batch_size"]
        for _, alike, floors in self._alike:
            least, most = (floors.least, floors.most) if floors else (np.inf, np.inf)
            ends |= {gpus: (least * batch / gpus, most * batch / gpus) for gpus in alike}
        return ends

    @cached_property
    def _alike(self) -> list[tuple[Common, list[int], Floors | None]]:
        """Numbers whose plans have all else in common, with what that is, and what bounds them."""
        return [(*group, self._floors(*group)) for group in self._groups()]

    def _groups(self) -> Iterator[tuple[Common, list[int]]]:
        several = self.several
        if not several:
            return
        # What fewer and more have in common those between have, too.
        low, high = min(several), max(several)
        fewer = self._common(max((gpus for gpus in self.commons if gpus <= low), default=low))
        more = self._common(min((gpus for gpus in self.commons if gpus >= high), default=high))
        # Pods and domains are cut by the number.
        if (
            fewer
            and more
            and _key(fewer) == _key(more)
            and not any(
                machine.torus_dimensions or "gpus_per_host" in machine.figures
                for machine in fewer[2].machines
            )
        ):
            yield fewer, [*several]
            return
        groups: dict[Key, tuple[Common, list[int]]] = {}
        for gpus in several:
            common = self._common(gpus)
            if common is not None:
                groups.setdefault(_key(common), (common, []))[1].append(gpus)
        yield from groups.values()

    def _common(self, gpus: int) -> Common | None:
        if gpus not in self.commons:
            self.commons[gpus] = None
            with suppress(InputError):
                self.commons[gpus] = common_of(self.point.with_constants(world_size=float(gpus)))
        return self.commons[gpus]

    def _spaces(
        self, known: Common, alike: Sequence[int], floors: Floors | None, steps: Mapping[int, float]
    ) -> Iterator[Space]:
        """Yield the space of alike numbers of GPUs; where that can't be, each one's own."""
        shapes = shapes_of(self.point)
        points = {gpus: self.point.with_constants(world_size=float(gpus)) for gpus in alike}
        splits: dict[int, Columns] = {}
        batch = self.point.constants["global_batch_size"]
        for gpus, point in points.items():
            degrees = floors.within(steps[gpus] * gpus / batch) if floors else None
            with suppress(InputError):
                splits[gpus] = splits_of(point, shapes, degrees)
        constants = {name: value for name, value in known[0].items() if name != "world_size"}
        if splits:
            # Of one number alone, too: what is known of the graph of several holds for it.
            with suppress(InputError):  # Of some of them alone, maybe
                joined = {
                    name: np.concatenate([columns[name] for columns in splits.values()])
                    for name in splits[min(splits)]
                }
                common = constants, *known[1:]
                yield self._space(points[min(splits)], common, joined, floors, steps)
                return
        for gpus, columns in splits.items():
            if alone := self._common(gpus):
                with suppress(InputError):
                    yield self._space(points[gpus], alone, columns, floors, steps)

    def _space(
        self,
        point: Point,
        known: Common,
        splits: Columns,
        floors: Floors | None,
        steps: Mapping[int, float],
    ) -> Space:
        batch = point.constants["global_batch_size"]
        gpus, number = np.unique(splits["world_size"], return_inverse=True)
        longest = np.array([steps[int(count)] * count for count in gpus])[number]

        def near(micro_batches: NDArray[np.float64]) -> NDArray[np.bool_]:
            if floors is None:
                return np.ones((len(number), len(micro_batches)), dtype=np.bool_)
            return floors.of(splits, micro_batches) <= longest[:, None] / batch

        return spanned(point, known, splits, near)

    # The table of the least time of layers.

    def _floors(self, known: Common, alike: Sequence[int]) -> Floors | None:
        """Return what bounds the plans of alike numbers; None where nothing is known to."""
        if max(alike) > MOST_RANKS or self._plans(alike) < WORTH:
            return None
        constants, labels, resolved = known
        batch = {"global_batch_size": max(self.batch, self.point.constants["global_batch_size"])}
        own = replace(resolved, constants={**resolved.constants, **batch})
        key = _key((constants | batch, labels, own))
        if key not in self.floors:
            self.floors[key] = None
            with suppress(InputError):
                self.floors[key] = self._table(known)
        return self.floors[key]

    def _plans(self, alike: Sequence[int]) -> int:
        """Return about how many splits of some numbers there are, with their micro-batches."""
        routed = shapes_of(self.point).get("experts", 0.0) > 0.0
        count = 0
        for gpus in alike:
            powers = [*Counter(_primes(gpus)).values()]
            splits = math.prod(math.comb(power + 3, 3) for power in powers)
            count += splits * (math.prod(power + 1 for power in powers) if routed else 1)
        return count * len(self._micro_batches())

    def _micro_batches(self) -> tuple[int, ...]:
        asked = self.point.choices.get(MICRO)
        batch = max(self.batch, self.point.constants["global_batch_size"])
        return num_micro_batches(batch) if asked is None else tuple(asked.tolist())

    def _table(self, known: Common) -> Floors | None:
        if self.point.objective.quantity != "step_time":
            return None
        constants, labels, common = known
        columns = self._layers(known)
        count = len(columns["tp"])
        if not count or count > MOST_ROWS:
            return None
        choices = choices_of(self.point, common, {"tp": columns["tp"], "pp": PIPELINED})
        varied = {
            name: values
            for name, values in choices.items()
            if name not in ("schedule", "recompute")
        }
        rows = Rows(columns, np.arange(count), count, count, count, {})
        axes, numbers, names = axes_of(varied, rows)
        sweep = Sweep(
            "",
            axes=tuple(axes),
            constants={"world_size": 1.0, **constants, **numbers, **ALONE},
            labels={**labels, **names, "schedule": PLAIN, "recompute": "none"},
        )
        resolved = resolve(sweep, self.point.folders)
        plan = Program.of_sweep(resolved, ("step_time", BUSY))
        replicas, seen = bits(("dp", "world_size", "global_batch_size")), dict[int, int]()
        if any(below(case.nodes[BUSY], seen) & replicas for case in plan.cases):
            return None
        if not (is_bounded(plan, ["step_time"]) and recomputing_only_adds(plan.cases)):
            return None
        space = Space(self.point, rows, resolved, plan, None, varied)
        busy = np.full(count, np.inf)
        for block in blocks_of(space, cases=plan.cases):
            values = np.broadcast_to(block.value(BUSY), block.lengths)
            others = tuple(at for at in range(values.ndim) if at != block.axis)
            busy[block.rows] = np.fmin(busy[block.rows], values.min(axis=others))
        return floors_of(columns, busy)

    def _layers(self, known: Common) -> Columns:
        """Return the degrees within a stage that can be, with each micro-batch."""
        constants, _, common = known
        given = {**common.constants, **constants}
        labels = labels_of_all(common)
        routed = shapes_of(self.point).get("experts", 0.0)
        degrees: dict[str, NDArray[np.float64]] = {}
        for name in ("tp", "cp", *(("ep",) if routed else ())):
            values = np.arange(1.0, (routed if name == "ep" else MOST_RANKS) + 1.0)
            columns = {**dict.fromkeys(("dp", *OTHERS), np.ones(1)), name: values}
            free = bits(other for other in OTHERS if other != name)
            values = values[~wrong_splits(columns, given, labels, free)]
            asked = self.point.choices.get(name)
            degrees[name] = values if asked is None else values[np.isin(values, asked)]
        if routed:
            asked = self.point.choices.get("etp")
            several = [1.0, *degrees["tp"].tolist()] if asked is None else asked.tolist()
            degrees["etp"] = np.array(sorted({*several}))
        columns = rows_of_layers(degrees, self._micro_batches())
        if routed and "etp" not in self.point.choices:
            kept = (columns["etp"] == 1.0) | (columns["etp"] == columns["tp"])
            columns = {name: values[kept] for name, values in columns.items()}
        return columns


def _primes(number: int) -> Iterator[int]:
    """Yield the prime factors of a number, each as often as it divides."""
    factor = 2
    while factor * factor <= number:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
    if number > 1:
        yield number


def _key(common: Common) -> Key:
    """Return what tells what plans have in common from that of other numbers of GPUs."""
    constants, labels, resolved = common
    numbers = {**resolved.constants, **constants, "world_size": 0.0}
    names = {**resolved.labels, **resolved.implied, **labels}
    # As text, for what isn't known is no number that equals itself.
    return (
        *sorted((name, str(value)) for name, value in numbers.items()),
        *sorted((name, str(value)) for name, value in names.items()),
    )
