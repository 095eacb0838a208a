"""The report of ``sweeps plan --explain``: what a given plan takes, and what it loses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sweeps.bands import band_of, change_by, percent
from sweeps.cli.given import Planned
from sweeps.cli.numbers import shown
from sweeps.cli.plan_experts import bullets
from sweeps.cli.plan_question import Asked
from sweeps.cli.plan_report import (
    OF_ONE,
    answer_defaults,
    impossible_lines,
    nothing_lines,
    part_lines,
    question,
    question_lines,
    reached,
    settings_lines,
    short_defaults,
    training_lines,
    what_if_lines,
)
from sweeps.cli.sections import shown_sections
from sweeps.launch.frameworks import settings_of
from sweeps.search.answer import WHOLE, Answer, answer
from sweeps.search.details import Detail, details
from sweeps.search.repair import nearest_plan
from sweeps.search.request import CHOICES, Request, read_request
from sweeps.search.words import bound_by, differences, effects, memory_words
from sweeps.wrapping import fitted


def explain(request: Request, asked: Asked, given: Planned) -> int:
    """Explain a plan: what isn't said of it is chosen as is best for it."""
    point = request.first
    explained = read_request(
        {**asked.given, **asked.explain},
        objective=point.objective.name,
        threshold=point.threshold,
        folders=point.folders,
        usual_length=point.constants["sequence_length"],
    )
    # Any share of the memory will do: whether it is too much is told.
    solution = answer(replace(point, choices=explained.first.choices, threshold=1.0))
    plan = solution.recommended
    if plan is None:
        near = nearest_plan(solution.search.space)
        if near is None or not near.memory:
            sys.stdout.writelines(fitted(nothing_lines(solution, asked, ())))
            return 1
        plan = near.plan
    (detail,) = details([plan], WHOLE, check=True)
    best = answer(point)
    lines = _lines(solution, detail, best, asked, given)
    sys.stdout.writelines(fitted(lines))
    return 0 if detail.fits and not detail.faults else 1


def _lines(
    solution: Answer, detail: Detail, best: Answer, asked: Asked, given: Planned
) -> Iterator[str]:
    yield reached(detail)
    yield from impossible_lines([detail.plan])
    yield f"  {question(solution)}"
    yield f"explained: {detail.plan.name}"
    free = [
        name.replace("_", " ")
        for name in CHOICES
        if name in solution.search.space.choices
        and name not in asked.explain
        and name not in solution.point.choices
    ]
    if free:
        yield f"  (of what isn't said, the best was taken: {', '.join(free)})"
    yield from bullets(list(_reasons(detail, best, solution)))
    yield from question_lines(solution, asked)
    bodies = {name: partial(part_lines, name, solution, detail.plan) for name in OF_ONE}
    yield from shown_sections(OF_ONE, bodies)
    yield ""
    yield from what_if_lines(effects(detail, best.search.space.choices))
    yield from training_lines(detail, asked, solution.point.folders)
    yield from settings_lines(settings_of(detail.plan))
    yield from (
        answer_defaults(solution, asked) if given["verbose"] else short_defaults(solution, asked)
    )


def _reasons(detail: Detail, best: Answer, solution: Answer) -> Iterator[str]:
    time, band = shown("step_time", detail["step_time"]), band_of("step_time", detail.values.get)
    text = f"a step takes {time} ({band}); MFU {shown('mfu', detail['mfu'])}"
    yield text if detail.fits else f"{text}, if the memory sufficed"
    yield bound_by(detail)
    yield memory_words(detail, best.point.threshold)
    plan = detail.plan
    if plan.crosses_nodes:
        yield f"tp {plan['tp']:g} crosses nodes of {plan['gpus_per_node']:g} GPUs"
    if best.recommended is None:
        yield f"no plan can run within {percent(best.point.threshold)} of the memory"
    elif best.recommended.key == plan.key:
        yield "it is the recommended plan"
    else:
        other = best.main[0]
        slower = detail["step_time"] / other["step_time"] - 1.0
        lost, gained = differences(other, detail)
        line = f"compared with the recommended plan, {other.plan.name}, it is {change_by(slower)}"
        line += f": it loses in {', '.join(lost[:4])}" if lost else ""
        line += f"; it gains in {', '.join(gained[:3])}" if gained else ""
        yield line
