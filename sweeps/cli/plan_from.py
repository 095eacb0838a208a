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
from sweeps.launch.settings import Settings
from sweeps.search.answer import WHOLE, Answer, answer
from sweeps.search.request import Execution, read_request
from sweeps.search.search import Detail, details

# What stands in a file's format where its settings are a framework's.
WORDS = {"Megatron": "Megatron-LM", "torchtitan": "torchtitan", "DeepSpeed": "DeepSpeed"}


def file_lines(best: Answer, asked: Asked) -> Iterator[str]:
    """Yield how the plan of the launch file compares, and what to change in it."""
    found = found_in(click.get_current_context(silent=True))
    if found is None or not found.plan or best.recommended is None:
        return
    own = _own(best, asked, found.plan)
    files = ", ".join(reading.file for reading in found.readings)
    if own is None:
        yield from wrapped(f"{files}: its own plan can't run here", "  ")
        return
    first = best.main[0]
    if own.plan.key == first.plan.key:
        yield from wrapped(f"{files}: its own plan is the recommended one", "  ")
        return
    slower = own["step_time"] / first["step_time"] - 1.0
    text = f"{files}: its own plan, {own.plan.name}, takes {brief(own['step_time'], 's')}"
    text += f" ({change_by(slower)}, {difference_words(slower)})"
    yield from wrapped(text if own.fits else f"{text} if the memory sufficed", "  ")
    changes = _changes(own.plan, first.plan, found)
    if changes:
        yield from wrapped(f"to change in {files}: {changes}", "  ")


def _own(best: Answer, asked: Asked, plan: Mapping[str, str]) -> Detail | None:
    """Return the file's plan with what is known of it."""
    point = best.point
    try:
        request = read_request(
            {**asked.given, **plan},
            folders=point.folders,
            usual_length=point.constants["sequence_length"],
        )
        own = answer(replace(point, choices=request.first.choices, threshold=1.0), keep=1)
    except InputError:
        return None
    if own.recommended is None:
        return None
    (detail,) = details([own.recommended], WHOLE, check=True)
    return detail


def _changes(own: Execution, best: Execution, found: FromFile) -> str:
    """Return the settings that differ, in the words of the file's framework."""
    form = found.readings[0].format
    name = next((own for word, own in WORDS.items() if word in form), "")
    if not name:
        return ""
    here, there = (_lines(settings_of(plan), name) for plan in (own, best))
    removed = [line for line in here if line not in there]
    added = [line for line in there if line not in here]
    flags = {line.split(" ")[0].rstrip("=") for line in added}
    gone = [line.split(" ")[0] for line in removed if line.split(" ")[0] not in flags]
    return ", ".join((*added, *(f"no {flag}" for flag in gone)))


def _lines(every: tuple[Settings, ...], name: str) -> list[str]:
    lines = next(one.lines for one in every if one.framework == name)
    if name == "DeepSpeed":
        return [f"{key} = {value}" for key, value in flat(json.loads("\n".join(lines)))]
    return [line for line in lines if line and not line.startswith("[")]
