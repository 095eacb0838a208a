"""How many GPUs of a machine a training needs: numbers tried, bounds, and what a run takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from overhead.evaluation import derive
from overhead.memory.stage import PEAK_PARTS
from overhead.step.parts import PARTS
from sweeps.bands import SAME, limit_words, meets, money, three, tie
from sweeps.display import BANDS
from sweeps.errors import InputError, refuse
from sweeps.search.answer import BETTER, RUN
from sweeps.search.details import COMMUNICATION, Detail, Together, details
from sweeps.search.floor import Floors
from sweeps.search.numbers import Key, Numbers
from sweeps.search.recommended import least_steps, recommended
from sweeps.search.repair import MEASURES
from sweeps.search.request import Execution, Point
from sweeps.search.search import blocks_of, is_bounded
from sweeps.search.sizes import Sizes, sizes_of
from sweeps.search.space import Common, common_of

# With so many times the GPUs of the fastest no number makes it.
FUTILE = 4.0
# Of the work the numbers of each doubling are about this share.
DOUBLINGS = 0.4
# Plans are looked at whose step may take so many times the shortest that any layer allows, and then
# so many times the GPU time of the best plan of other numbers: a start, which decides nothing.
FIRST_LOOK, LATER_LOOK = 2.0, 1.25
# So many numbers are tried at once between the fewest and those that are as cheap as any.
BETWEEN = 3


@dataclass(frozen=True)
class Wish:
    """What is wanted of a run."""

    tokens: float  # That it trains on
    days: float  # In which it has to be done
    budget: float = np.inf  # What it may cost [USD]


@dataclass(frozen=True)
class Tried:
    """A number of GPUs of a machine, its best plan and what a run takes."""

    gpus: int
    detail: Detail | None  # Of the best plan; None where none can run

    @property
    def days(self) -> float:
        """The days of the run; infinite where no plan can run."""
        return np.inf if self.detail is None else self.detail["run_days"]

    @property
    def cost(self) -> float:
        """What the run costs; NaN where no price is known."""
        return np.nan if self.detail is None else self.detail["run_cost"]

    def in_time(self, wish: Wish) -> bool:
        """Return whether it is done in time, as predicted."""
        return meets(self.days, wish.days)

    def verdict(self, wish: Wish) -> str:
        """Return how it compares with the days that it has, by the error of a step's time."""
        if self.detail is None:
            return "no plan can run"
        ends = (self.detail.values.get(name, np.nan) for name in BANDS["step_time"])
        return limit_words(self.days, wish.days, *ends)

    @property
    def hours(self) -> float:
        """The GPU-hours of the run, with spares."""
        return np.inf if self.detail is None else self.detail["run_gpu_hours"]

    def fails(self, wish: Wish) -> str:
        """Return why it isn't enough, in words; nothing where it is."""
        if self.detail is None:
            return "no plan can run"
        if not self.in_time(wish):
            late = three(self.days - wish.days)
            return f"{three(self.days)} days, {self.verdict(wish)} by {late} days"
        if self.cost > wish.budget:
            return f"{money(self.cost)}, {money(self.cost - wish.budget)} over the budget"
        return ""


def as_cheap(several: Sequence[Tried]) -> list[Tried]:
    """Return the runs that tie with the cheapest: by GPU-hours without prices."""
    price = attrgetter("hours" if any(np.isnan(attempt.cost) for attempt in several) else "cost")
    worst = min(map(price, several)) * (1.0 + tie())
    return [attempt for attempt in several if price(attempt) <= worst]


@dataclass(frozen=True)
class Offer:
    """What was found of one machine."""

    machine: str
    tried: tuple[Tried, ...]  # From few GPUs to many
    least: Tried | None  # The least that makes it in time
    why: str = ""  # Why there is none
    ruled_out: int = 0  # Smaller numbers that can't make it by bounds, so that none was searched
    batch: float = 0.0  # Sequences of a step

    def best(self, wish: Wish) -> Tried | None:
        """Return the fewest GPUs whose run is as cheap as any; where none makes it the nearest.

        Of those that make it in time, but over the budget, the nearest is the cheapest.
        """
        in_time = [attempt for attempt in self.tried if attempt.in_time(wish)]
        made = [attempt for attempt in in_time if not attempt.fails(wish)] or in_time
        if made:
            return min(as_cheap(made), key=lambda attempt: attempt.gpus)
        able = [attempt for attempt in self.tried if attempt.detail is not None]
        return self.least or min(able, key=lambda attempt: attempt.days, default=None)

    @property
    def neighbour(self) -> Tried | None:
        """Of the smaller numbers that were tried the fastest, which just fails."""
        smaller = [
            attempt for attempt in self.tried if self.least and attempt.gpus < self.least.gpus
        ]
        return min(smaller, key=lambda attempt: attempt.days, default=None)


# What a machine's GPUs cost: it decides which number is bought, and no plan.
PRICES = ("gpu_hour_price", "capital_cost")
# What is told of a run, and what of it decides which numbers are tried.
TOLD = (*MEASURES, *RUN, *PARTS, *PEAK_PARTS, *COMMUNICATION)
DECIDING = ("run_days", "run_cost", "run_gpu_hours", *BANDS["step_time"])


@dataclass
class Searched:
    """What was searched of a model on a machine with one batch, whatever is trained at what price.

    So that tables of tokens, days and prices search each number of GPUs once.
    """

    plans: dict[int, Execution | None] = field(default_factory=dict)  # The best, by GPUs
    # By GPUs the longest step that bounds rule out, and the shortest that they don't
    out: dict[int, float] = field(default_factory=dict)
    may: dict[int, float] = field(default_factory=dict)
    # What bounds plans, whatever their batch, up to the largest one
    floors: dict[Key, Floors | None] = field(default_factory=dict)
    largest: float = 0.0
    commons: dict[int, Common | None] = field(default_factory=dict)
    # What runs take: by GPUs, tokens and prices
    runs: dict[tuple[float, ...], Tried] = field(default_factory=dict)
    together: Together = field(default_factory=lambda: Together(TOLD))

    def every_run(self, point: Point, several: Sequence[int], tokens: float) -> list[Tried]:
        """Return the best plan of each number of GPUs with what a run on so many tokens takes."""
        self.search(point, several)
        prices = {name: point.constants[name] for name in PRICES if name in point.constants}
        asked = (tokens, *(prices.get(name, -1.0) for name in PRICES))
        given = {"training_tokens": tokens, **prices}
        new = {
            gpus: plan
            for gpus in several
            if (gpus, *asked) not in self.runs and (plan := self.plans[gpus]) is not None
        }
        told = [replace(plan, given={**plan.given, **given}) for plan in new.values()]
        for (gpus, plan), run in zip(new.items(), details(told, DECIDING), strict=True):
            detail = self.together.add(plan.changed(given), run.values)
            self.runs[gpus, *asked] = Tried(gpus, detail)
        return [self.runs.get((gpus, *asked), Tried(gpus, None)) for gpus in several]

    def numbers(self, point: Point, several: Sequence[int]) -> Numbers:
        """Return numbers of GPUs with what is known of others."""
        return Numbers(point, several, self.floors, self.largest, self.commons)

    def search(self, point: Point, several: Sequence[int]) -> None:
        """Search the best plans of some numbers of GPUs, as one where they are alike.

        Looked at are plans whose step may be up to so long; where the best one leaves any room
        for others beyond, those up to as long as it allows.
        """
        new = [gpus for gpus in dict.fromkeys(several) if gpus not in self.plans]
        self.plans |= dict.fromkeys(new)
        numbers = self.numbers(point, new)
        ends = numbers.least_steps()
        best = min((plan.known["step_time"] * gpus for gpus, plan in self._ranked()), default=None)
        steps = {
            gpus: FIRST_LOOK * low if best is None else max(LATER_LOOK * best / gpus, low)
            for gpus, (low, _) in ends.items()
        }
        while steps:
            for space in numbers.spaces(steps):
                with suppress(InputError):  # No machine's figure, maybe, to rank plans by
                    self.plans |= recommended(space, steps)
            steps = {
                gpus: step
                for gpus, longest in steps.items()
                if longest < ends[gpus][1] and (step := self._further(gpus, longest)) > longest
            }

    def _ranked(self) -> Iterator[tuple[int, Execution]]:
        yield from ((gpus, plan) for gpus, plan in self.plans.items() if plan is not None)

    def _further(self, gpus: int, longest: float) -> float:
        """Return up to which step plans have to be looked at, once those up to another one were."""
        plan = self.plans[gpus]
        return np.inf if plan is None else plan.known["step_time"] * (1.0 + tie())

    def may_take(self, point: Point, several: Sequence[int], step: float) -> set[int]:
        """Return the numbers of GPUs of which a plan that can run may take up to so long a step."""
        asked = [
            gpus
            for gpus in several
            if self.out.get(gpus, -np.inf) < step < self.may.get(gpus, np.inf)
        ]
        able = may_take(self.numbers(point, asked), step)
        for gpus in asked:
            (self.may if gpus in able else self.out)[gpus] = step
        return {gpus for gpus in several if gpus in self.may and step >= self.may[gpus]}


def offers(
    points: Mapping[str, Point],
    wish: Wish,
    sequences: Sequence[float],
    telling: Callable[[str, float], Callable[[int, int], None]],
    searched: dict[tuple[str, float], Searched] | None = None,
    gpus: Sequence[int] = (),
) -> tuple[Offer, ...]:
    """Return what was found of each machine with each batch, and the whole of the best batch's.

    Of the others one number of GPUs in each doubling was tried; where GPUs are given, these alone.
    What is searched is kept by machine and batch, for other tokens, days and prices of the same
    model.
    """
    kept = {} if searched is None else searched
    for name in points:
        floors = next((old.floors for (machine, _), old in kept.items() if machine == name), {})
        together = next((old.together for old in kept.values()), Together(TOLD))
        for batch in sequences:
            new = Searched(floors=floors, largest=max(sequences), together=together)
            kept.setdefault((name, batch), new)
    if gpus:
        return tuple(
            compared(
                point.with_constants(global_batch_size=batch),
                wish,
                name,
                gpus,
                kept[name, batch],
                telling(name, batch),
            )
            for batch in sequences
            for name, point in points.items()
        )
    offered: dict[tuple[str, float], Offer] = {}
    near: dict[str, int] = {}
    for batch in sequences:
        for name, point in points.items():
            batch_point = point.with_constants(global_batch_size=batch)
            offer_made = offer(
                batch_point,
                wish,
                name,
                telling(name, batch),
                whole=len(sequences) == 1,
                near=near.get(name, 0),
                searched=kept[name, batch],
            )
            offered[name, batch] = offer_made
            if offer_made.least is not None:
                near[name] = offer_made.least.gpus
    best = best_batch([*offered.values()], wish) if len(sequences) > 1 else None
    for name, point in points.items():
        if best is None:
            break
        batch_point, known = point.with_constants(global_batch_size=best), offered[name, best].tried
        at = kept[name, best]
        offered[name, best] = offer(
            batch_point, wish, name, telling(name, best), known=known, searched=at
        )
    return tuple(offered.values())


def best_batch(offered: Sequence[Offer], wish: Wish) -> float | None:
    """Return the smallest batch whose run is as cheap as any; None where none makes it."""
    some = [(machine_offer.batch, machine_offer.best(wish)) for machine_offer in offered]
    made = [
        (batch, attempt)
        for batch, attempt in some
        if attempt is not None and not attempt.fails(wish)
    ]
    cheap = as_cheap([attempt for _, attempt in made]) if made else []
    return min((batch for batch, attempt in made if attempt in cheap), default=None)


def compared(
    point: Point,
    wish: Wish,
    machine: str,
    gpus: Sequence[int],
    searched: Searched,
    progress: Callable[[int, int], None],
) -> Offer:
    """Return what was found of some numbers of a machine's GPUs."""
    tried = searched.every_run(point, sorted(gpus), wish.tokens)
    progress(1, 1)
    least = next((attempt for attempt in tried if attempt.in_time(wish)), None)
    able = [attempt for attempt in tried if attempt.detail is not None]
    why = "" if least is None else least.fails(wish)
    if not able:
        why = f"no plan can run on {', '.join(f'{attempt.gpus:,}' for attempt in tried)} GPUs"
    elif least is None:
        fastest = min(able, key=lambda attempt: attempt.days)
        why = f"none of these numbers makes it{_fastest(fastest)}"
    return Offer(machine, tuple(tried), least, why, 0, point.constants["global_batch_size"])


def offer(
    point: Point,
    wish: Wish,
    machine: str,
    progress: Callable[[int, int], None] | None = None,
    *,
    whole: bool = True,
    near: int = 0,
    known: Sequence[Tried] = (),
    searched: Searched | None = None,
) -> Offer:
    """Return the least number of a machine's GPUs that makes it in time.

    Days don't fall steadily with GPUs, for some numbers divide badly.  Of each doubling one number
    is tried of which plans keep their stages busy, until one makes it, from half of as many on as
    are near; then, if the whole is asked for, from few to many each smaller one that bounds of its
    plans' steps don't rule out.
    """
    common = common_of(point)[2]
    node, bound = _bound(common.constants, wish, machine)
    attempts = _Attempts(
        point,
        wish,
        machine,
        sizes_of(common, node),
        bound,
        searched or Searched(),
        (lambda share: progress(round(1000 * share), 1000)) if progress else (lambda _: None),
        {attempt.gpus: attempt for attempt in known},
    )
    largest = attempts.sizes.largest
    if bound > largest:
        days = _days_at_peak(common.constants, wish.tokens, largest)
        return attempts.offer(
            None,
            f"{wish.days:.3g} days are below the {days:.3g} days of {largest:,} "
            "GPUs at 100 % MFU, the largest number considered",
        )
    rungs, most = attempts.climb(max(bound, near / 2.0), whole=whole)
    if not rungs:
        return attempts.offer(None, f"no plan can run on up to {most:,.0f} GPUs")
    best = min(rungs, key=lambda other: other.days)
    if best.days > wish.days * (1.0 + BETTER):
        why = f"of one number in each doubling up to {most:,.0f} none makes it{_fastest(best)}"
        return attempts.offer(None, why)
    if not whole and best.in_time(wish):
        return attempts.offer(best, best.fails(wish))
    return attempts.fewest(best)


@dataclass
class _Attempts:
    """The numbers of a machine's GPUs that are tried for one training with one batch."""

    point: Point
    wish: Wish
    machine: str
    sizes: Sizes
    bound: float  # GPUs with fewer than which no run makes it
    searched: Searched
    tell: Callable[[float], None]  # Told which share of the work is done
    tried: dict[int, Tried]

    def search(self, several: Sequence[int]) -> list[Tried]:
        """Return numbers of GPUs, tried as one where they are alike."""
        return self.searched.every_run(self.point, several, self.wish.tokens)

    def at(self, gpus: int) -> Tried:
        """Return a number of GPUs, tried."""
        if gpus not in self.tried:
            (self.tried[gpus],) = self.search([gpus])
        return self.tried[gpus]

    def offer(self, least: Tried | None, why: str = "", ruled_out: int = 0) -> Offer:
        """Return what was tried, with the least number that makes it, or why there is none."""
        several = tuple(self.tried[gpus] for gpus in sorted(self.tried))
        batch = self.point.constants["global_batch_size"]
        return Offer(self.machine, several, least, why, ruled_out, batch)

    def climb(self, least: float, *, whole: bool) -> tuple[list[Tried], float]:
        """Try a number of each doubling until one makes it.

        Return those of which a plan can run, and up to which number others were looked at.
        """
        self.search(self.sizes.expected(least, whole=whole))
        rungs: list[Tried] = []
        most = min(FUTILE**2 * max(self.bound, self.sizes.node), self.sizes.largest)
        for gpus in self.sizes.rungs(least):
            if gpus > most:
                break
            if self.sizes.filled(gpus) == 0.0 or (rung := self.at(gpus)).detail is None:
                continue
            rungs.append(rung)
            self.tell(DOUBLINGS * len(rungs) / (len(rungs) + 3))
            if rung.in_time(self.wish):
                break
            fastest = min(rungs, key=lambda other: other.days)
            most = min(FUTILE * fastest.gpus, self.sizes.largest)
        return rungs, most

    def fewest(self, best: Tried) -> Offer:
        """Return the fewest GPUs that make it: the best of the doublings, or fewer."""
        wish, sizes, tried = self.wish, self.sizes, self.tried
        top = min(best.gpus * (1.0 if best.in_time(wish) else 2.0), sizes.largest + 1)
        numbers = sizes.between(self.bound, top)
        able = [gpus for gpus in numbers if gpus not in tried and sizes.filled(gpus) > 0.0]
        may = self.searched.may_take(self.point, able, _longest_step(sizes.given, wish))
        # With them what is told beside the answer, if that is the number that is known to make it.
        self.search([gpus for gpus in able if gpus in may] + sizes.beside(best.gpus))
        telling = _telling(numbers, self.tell)
        left = (self.at(gpus) for gpus in telling if gpus in tried or gpus in may)
        best = next((attempt for attempt in left if attempt.in_time(wish)), best)
        # Told beside it: the smaller number that keeps most GPUs busy.
        smaller, beside = sizes.between(self.bound, best.gpus), sizes.beside(best.gpus)
        if any(map(sizes.filled, smaller)):
            beside.append(sizes.busiest(smaller))
        tried |= {attempt.gpus: attempt for attempt in self.search(beside)}
        made = [attempt for attempt in tried.values() if attempt.in_time(wish)]
        if not made:
            return self.offer(None, f"no number up to {top:,.0f} makes it{_fastest(best)}")
        least = self.with_those_between(made)
        return self.offer(least, least.fails(wish), len({*smaller} - tried.keys()))

    def with_those_between(self, made: Sequence[Tried]) -> Tried:
        """Return the fewest that make it; try those up to the best that may be as cheap as it is.

        Of numbers whose stages are as full these are the ones that powers of two divide best.
        """
        # It ends: each round tries a number that wasn't, and what is chosen never has more GPUs.
        fewest, sizes = min(made, key=lambda candidate: candidate.gpus), self.sizes
        while affordable := [attempt for attempt in made if not attempt.fails(self.wish)]:
            chosen = min(as_cheap(affordable), key=lambda attempt: attempt.gpus).gpus
            between = [
                gpus
                for gpus in sizes.between(fewest.gpus, chosen)
                if gpus not in self.tried and sizes.filled(gpus) >= sizes.filled(chosen)
            ]
            if not between:
                break
            several = sorted(between, key=lambda gpus: (gpus & -gpus, gpus))[-BETWEEN:]
            more = self.search(several)
            self.tried |= {attempt.gpus: attempt for attempt in more}
            made = [*made, *(attempt for attempt in more if attempt.in_time(self.wish))]
        return fewest


def _telling(numbers: Sequence[int], tell: Callable[[float], None]) -> Iterator[int]:
    """Yield the smaller numbers, telling how far it is: of most only a bound is looked at."""
    for count, gpus in enumerate(numbers):
        tell(DOUBLINGS + (1.0 - DOUBLINGS) * count / len(numbers))
        yield gpus


def _fastest(attempt: Tried) -> str:
    """Return what is known where none makes it: how near the fastest comes."""
    return f": the fastest, {attempt.gpus:,} GPUs, take {attempt.days:.4g} days"


def _longest_step(given: Mapping[str, float], wish: Wish) -> float:
    """Return how long a step may take at most: nothing interrupts the run."""
    steps = wish.tokens / (given["global_batch_size"] * given["sequence_length"])
    return wish.days * given["day"] / steps * (1.0 + SAME)


def may_take(numbers: Numbers, step: float) -> set[int]:
    """Return the numbers of GPUs of which a plan that can run is bounded by up to so long a step.

    Whether plans can run is looked at of those alone that are short enough.
    """
    counts: set[int] = set()
    steps = dict.fromkeys(numbers.several, step)
    for space in numbers.spaces(steps):
        rows, _ = least_steps(space, steps)
        can = set[int]()
        bounded = space.plan is not None and is_bounded(space.plan, ["step_time"])
        for block in blocks_of(space, rows) if len(rows) else ():
            some = block.able()
            if bounded:
                some = some & (block.least("step_time") <= step)
            can |= {*block.rows[block.in_rows(some)].tolist()}
        counts |= {int(size) for size in space.rows.columns["world_size"][[*can]].tolist()}
    return counts


def _bound(given: Mapping[str, float], wish: Wish, machine: str) -> tuple[int, float]:
    """Return the GPUs of a node, and how many are needed at least: all at their peak, always."""
    if np.isnan(given["peak_flops"]):
        refuse("hardware", machine, "its file has no peak FLOP/s", "a machine that trains")
    node = given.get("gpus_per_node", np.nan)
    least = _days_at_peak(given, wish.tokens, 1) / wish.days
    return int(node) if np.isfinite(node) else 1, least


def _days_at_peak(given: Mapping[str, float], tokens: float, gpus: int) -> float:
    """Return the days of so many GPUs that are never idle: no run is shorter."""
    flops = float(derive("causal_model_flops_per_token", given)) * tokens
    return flops / (given["peak_flops"] * gpus * given["day"])
