"""A given plan explained: what a step and the memory are made of, and what it loses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from overhead.breakdown import CollectiveReport, collective_reports
from overhead.communication import DIMENSIONS
from overhead.memory import PARTS as MEMORY_PARTS
from overhead.quantity import VOCABULARY
from sweeps.cli.analysis_report import WORDS
from sweeps.cli.plan_options import Asked
from sweeps.cli.plan_report import (
    assumed_lines,
    bullets,
    heading,
    nothing_lines,
    settings_lines,
    training_lines,
    what_if_lines,
)
from sweeps.cli.plan_table import aligned
from sweeps.cli.records import shown
from sweeps.plans.answer import WHOLE, Answer, answer
from sweeps.plans.choices import CHOICES
from sweeps.plans.detail import PARTS, Detail, details, evaluation
from sweeps.plans.launch import settings_of
from sweeps.plans.repair import nearest_plan
from sweeps.plans.request import Request, read_request
from sweeps.plans.what_if import effects
from sweeps.plans.words import bound_by, differences, memory_words

__all__ = ["explain"]


def explain(request: Request, asked: Asked, given: Mapping[str, Any]) -> int:
    """Explain a plan: what isn't said of it is chosen as is best for it."""
    point = request.first
    stated = read_request({**asked.given, **asked.explain}, objective=point.objective.name,
                          threshold=point.threshold, folders=point.folders)  # fmt: skip
    # Any share of the memory will do: whether it is too much is told.
    own = answer(replace(point, choices=stated.first.choices, threshold=1.0))
    plan = own.recommended
    if plan is None:
        near = nearest_plan(own.found.space)
        if near is None or not near.memory:
            sys.stdout.writelines(line + "\n" for line in nothing_lines(own, asked))
            return 1
        plan = near.plan
    (detail,) = details([plan], WHOLE, check=True)
    best = answer(point)
    lines = _lines(own, detail, best, asked, given)
    sys.stdout.writelines(line + "\n" for line in lines)
    return 0 if detail.fits and not detail.faults else 1


def _lines(
    own: Answer, detail: Detail, best: Answer, asked: Asked, given: Mapping[str, Any]
) -> Iterator[str]:
    yield heading(own)
    yield from (f"  ({line})" for line in asked.readings)
    yield f"explained: {detail.plan.name}"
    free = [name.replace("_", " ") for name in CHOICES
            if name in own.found.space.choices and name not in asked.explain
            and name not in own.point.choices]  # fmt: skip
    if free:
        yield f"  (of what isn't said, the best was taken: {', '.join(free)})"
    yield from bullets(list(_reasons(detail, best, own)))
    yield ""
    yield from _step(detail)
    yield from _memory(detail)
    yield from _communication(detail)
    yield from what_if_lines(effects(detail, best.found.space.choices))
    yield from training_lines(detail, asked)
    yield from settings_lines(settings_of(detail.plan))
    yield from assumed_lines(own, asked, verbose=bool(given["verbose"]))


def _reasons(detail: Detail, best: Answer, own: Answer) -> Iterator[str]:
    time, band = shown("step_time", detail["step_time"]), detail["error_band"]
    told = f"a step takes {time}, +- {band:.0%}; MFU {shown('mfu', detail['mfu'])}"
    yield told if detail.fits else f"{told}, if the memory sufficed"
    yield bound_by(detail)
    yield memory_words(detail, best.point.threshold)
    plan = detail.plan
    node = plan.given.get("gpus_per_node", np.inf)
    if plan["tp"] > node and plan.labels["topology"] == "hierarchical":
        yield f"tp {plan['tp']:g} crosses nodes of {node:g} GPUs"
    if best.recommended is None:
        yield f"no plan can run within {best.point.threshold:.0%} of the memory"
    elif best.recommended.key == plan.key:
        yield "it is the recommended plan"
    else:
        other = best.main[0]
        slower = detail["step_time"] / other["step_time"] - 1.0
        lost, gained = differences(other, detail)
        line = f"beside the recommended plan, {other.plan.name}, it is {slower:+.1%}"
        line += f": it loses in {', '.join(lost[:4])}" if lost else ""
        line += f"; it gains in {', '.join(gained[:3])}" if gained else ""
        yield line


def _step(detail: Detail) -> Iterator[str]:
    whole = detail["step_time"]
    yield "a step"
    rows = [
        [WORDS.get(name, VOCABULARY[name].meaning.removeprefix("time of a step: ")),
         shown(name, detail[name]), f"{detail[name] / whole:.1%}"]
        for name in PARTS if detail[name] != 0.0
    ]  # fmt: skip
    yield from aligned([*rows, ["all together", shown("step_time", whole), ""]])
    yield ""


def _memory(detail: Detail) -> Iterator[str]:
    stages = detail.plan["pp"]
    place = f", stage {detail['fullest_stage'] + 1:g} of {stages:g}" if stages > 1.0 else ""
    yield f"memory of the fullest GPU{place}"
    rows = []
    for name in MEMORY_PARTS:
        value = detail.values.get(f"peak_{name}", np.nan)
        if value > 0.0:
            words = VOCABULARY[name].meaning.removeprefix("memory: ")
            rows.append([WORDS.get(name, words), f"{value / 1e9:.2f} GB"])
    peak = detail["peak_memory"]
    yield from aligned([*rows, ["all together", f"{peak / 1e9:.2f} GB"]])
    yield ""


def _communication(detail: Detail) -> Iterator[str]:
    """Yield every operation of a step, nothing hidden."""
    one = evaluation([detail.plan])
    with np.errstate(all="ignore"):
        rows = [
            [f"{words.split(',', maxsplit=1)[0]}: {report.operation.title}", *_row(report)]
            for dimension, words in DIMENSIONS.items()
            for report in collective_reports(one, dimension)
        ]
    yield "communication of a step, nothing hidden"
    if not rows:
        yield "  none, for nothing is split"
    else:
        yield from aligned([["", "times", "a message", "a rank sends", "time"], *rows])
    yield ""


def _row(report: CollectiveReport) -> list[str]:
    count = _one(report.forward_count) + _one(report.backward_count)
    time = _one(report.forward_time_s) + _one(report.backward_time_s)
    return [
        f"{count:g}",
        shown("message_bytes", _one(report.message_bytes)),
        shown("sent_bytes", _one(report.total_volume_bytes)),
        shown("time", time),
    ]


def _one(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])
