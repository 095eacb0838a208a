"""The plan of a launch file beside the one that is recommended: how far off, and what to change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import click

from sweeps.bands import brief, change_by, difference_words
from sweeps.cli.from_file import FromFile, found_in
from sweeps.cli.plan_question import Asked
from sweeps.cli.sections import wrapped
from sweeps.errors import InputError
from sweeps.launch.documents import flat
from sweeps.launch.frameworks import settings_of
from sweeps.launch.settings import FrameworkSettings
from sweeps.search.answer import WHOLE, Answer, answer
from sweeps.search.details import Detail, details
from sweeps.search.request import Execution, read_request

# What stands in a file's format where its settings are a framework's.
WORDS = {"Megatron": "Megatron-LM", "torchtitan": "torchtitan", "DeepSpeed": "DeepSpeed"}


def file_lines(best: Answer, asked: Asked) -> Iterator[str]:
    """Yield how the plan of the launch file compares, and what to change in it."""
    from_file = found_in(click.get_current_context(silent=True))
    if from_file is None or not from_file.plan or best.recommended is None:
        return
    detail = _plan_of_file(best, asked, from_file.plan)
    files = ", ".join(reading.file for reading in from_file.readings)
    if detail is None:
        yield from wrapped(f"{files}: its own plan can't run here", "  ")
        return
    first = best.main[0]
    if detail.plan.key == first.plan.key:
        yield from wrapped(f"{files}: its own plan is the recommended one", "  ")
        return
    slower = detail["step_time"] / first["step_time"] - 1.0
    text = f"{files}: its own plan, {detail.plan.name}, takes {brief(detail['step_time'], 's')}"
    text += f" ({change_by(slower)}, {difference_words(slower)})"
    yield from wrapped(text if detail.fits else f"{text} if the memory sufficed", "  ")
    changes = _changes(detail.plan, first.plan, from_file)
    if changes:
        yield from wrapped(f"to change in {files}: {changes}", "  ")


def _plan_of_file(best: Answer, asked: Asked, plan: Mapping[str, str]) -> Detail | None:
    """Return the file's plan with what is known of it."""
    point = best.point
    try:
        request = read_request(
            {**asked.given, **plan},
            folders=point.folders,
            usual_length=point.constants["sequence_length"],
        )
        solution = answer(replace(point, choices=request.first.choices, threshold=1.0), keep=1)
    except InputError:
        return None
    if solution.recommended is None:
        return None
    (detail,) = details([solution.recommended], WHOLE, check=True)
    return detail


def _changes(file_plan: Execution, best: Execution, from_file: FromFile) -> str:
    """Return the settings that differ, in the words of the file's framework."""
    form = from_file.readings[0].format
    name = next((framework for word, framework in WORDS.items() if word in form), "")
    if not name:
        return ""
    here, there = (_lines(settings_of(plan), name) for plan in (file_plan, best))
    removed = [line for line in here if line not in there]
    added = [line for line in there if line not in here]
    flags = {line.split(" ")[0].rstrip("=") for line in added}
    gone = [line.split(" ")[0] for line in removed if line.split(" ")[0] not in flags]
    return ", ".join((*added, *(f"no {flag}" for flag in gone)))


def _lines(every: tuple[FrameworkSettings, ...], name: str) -> list[str]:
    lines = next(
        framework_lines.lines for framework_lines in every if framework_lines.framework == name
    )
    if name == "DeepSpeed":
        return [f"{key} = {value}" for key, value in flat(json.loads("\n".join(lines)))]
    return [line for line in lines if line and not line.startswith("[")]
