"""Refuse what is given to a search and no plan of it can use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from overhead.completion import TAKEN_SMS
from sweeps.engine.program import Program
from sweeps.errors import InputError, fault, tell_all
from sweeps.idle import (
    ALWAYS,
    CONTENDED,
    IDLE,
    MOST_TRIED,
    alike,
    as_not_given,
    is_taken,
    slows,
    split_needed,
)
from sweeps.search.answer import RUN, WHOLE
from sweeps.search.request import DEGREES, NEEDED, NUMBER_CHOICES, Point
from sweeps.search.space import Space, space_of

# What decides which plans are searched, whether or not a number of theirs depends on it.
SEARCHING = {*ALWAYS, *NEEDED, *DEGREES, *NUMBER_CHOICES, "recompute", "tokens_per_step"}
# How sure an answer is follows from what is given.
SURENESS = {"unknown_settings"}
# What a whole training depends on doesn't follow from how many tokens it has.
SOME_TOKENS = {"training_tokens": 1e12}


def check_used(points: Iterable[Point], given: Mapping[str, str], *, run: bool) -> None:
    """Refuse what no plan of any point can use: it would change no answer.

    ``given`` is what was asked, by quantity or label, as it was written; ``run`` says whether the
    answer tells of a whole training, too.
    """
    idle = {name: "" for name in given if name not in SEARCHING}
    for point in points:
        known = {*point.constants, *point.labels, *point.choices}
        reasons = _idle(point, idle.keys() & known, run=run)
        idle = {
            name: reasons.get(name, why)
            for name, why in idle.items()
            if name in reasons or name not in known
        }
        if not idle:
            return
    tell_all([fault(name, given[name], why, "leave it out") for name, why in idle.items() if why])


def _idle(point: Point, names: Collection[str], *, run: bool) -> dict[str, str]:
    """Return which of some names no plan of a point can use, and why."""
    if not names:
        return {}
    try:
        space = space_of(point)
    except InputError:
        return {}  # it is told where it is searched
    if space.plan is None:
        return {}
    whole = _whole(space, run=run)
    used, reasons = whole.used(), {}
    for name in sorted(names):
        why = split_needed(name, space.plan.grid.columns)
        if as_not_given(name, point.constants):
            continue
        if name in TAKEN_SMS and name in used and space.plan.grid.cells <= MOST_TRIED:
            if not slows(space.resolved, name, ("step_time",)):
                reasons[name] = CONTENDED
            continue
        if (name in used and not why) or len(point.choices.get(name, ())) > 1:
            continue
        without = _without(point, name)
        if without is None or without.plan is None:
            continue
        if is_taken(without.resolved, name, _value(space, name)):
            continue  # it says what is taken anyway
        if why or _same(without, space, {name, *SURENESS}, whole, run=run):
            reasons[name] = why or IDLE
    return reasons


def _without(point: Point, name: str) -> Space | None:
    """Return what is searched where one thing isn't given; nothing where it has to be."""
    constants = {key: value for key, value in point.constants.items() if key != name}
    labels = {key: value for key, value in point.labels.items() if key != name}
    fewer = replace(point.with_choices(**{name: None}), constants=constants, labels=labels)
    try:
        return space_of(fewer)
    except InputError:
        return None


def _value(space: Space, name: str) -> object:
    """Return what is taken of a quantity or label; nothing where it varies."""
    return space.resolved.labels.get(name, space.resolved.constants.get(name))


def _whole(space: Space, *, run: bool) -> Program:
    """Return the graph of all that is told of plans."""
    constants = {**(SOME_TOKENS if run else {}), **space.resolved.constants}
    wanted = dict.fromkeys((*WHOLE, *(RUN if run else ()), space.point.objective.quantity))
    resolved = replace(space.resolved, constants=constants)
    return Program.of_sweep(resolved, tuple(wanted), optional=True)


def _same(without: Space, space: Space, names: set[str], whole: Program, *, run: bool) -> bool:
    """Return whether two searches are of the same plans, with the same formulas."""
    other = _whole(without, run=run)
    # What comes along with it and nothing takes changes as little.
    idle = {*without.resolved.constants, *space.resolved.constants} - other.used() - whole.used()
    return alike(without.resolved, space.resolved, names | idle) and _keys(other) == _keys(whole)


def _keys(program: Program) -> list[dict[str, object]]:
    """Return what each case's results are, so that equal ones have equal keys."""
    return [
        {**{name: node.key for name, node in case.nodes.items()}, "": case.status.key}
        for case in program.cases
    ]
