"""The report of one case for a person: durations, speedups, what bounds it, what shows and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from overhead.expression import evaluate as evaluated
from overhead.formula import REGISTRY, Call
from overhead.overlap.mechanisms import MECHANISMS
from overhead.quantity import VOCABULARY
from sweeps.engine.case import Case
from sweeps.engine.evaluate import Evaluator
from sweeps.errors import InputError, fault
from sweeps.job import Job
from sweeps.overlap.flags import flag_of
from sweeps.overlap.sweep import BOTH, values_of
from sweeps.spec.units import format_quantity

LINES = (
    ("compute_time", "computation"),
    ("communication_time", "communication"),
    ("sequential_time", "one after the other"),
    ("overlapped_time", "overlapped"),
    ("ideal_overlapped_time", "ideal (the longer one)"),
    ("hidden_time", "hidden"),
    ("exposed_time", "exposed"),
)
RATIOS = (
    ("overlap_ratio", "hidden, of the shorter one"),
    ("hidden_communication_share", "hidden, of communication"),
)
SPEEDUPS = (("overlap_speedup", "speedup"), ("ideal_speedup", "ideal speedup"))
WIDTH = 30
# Less than this share of the time is rounding.
LEAST = 1e-9


# What a fault is about.
ABOUT = {
    "ranks_odd": "ranks",
    "no_multiprocessor_left": "num_sm",
    "micro_batches_not_multiple_of_stages": "micro_batches",
    "virtual_stages_need_interleaving": "virtual_stages",
    "shorter_than_possible": "overlapped_time",
}


def check_cell(job: Job, case: Case) -> None:
    """Refuse a cell that can't be."""
    evaluator = Evaluator(job.plan.grid, dict(case.fixed))
    status = int(np.asarray(evaluator.value(case.status)).reshape(-1)[0])
    faults = []
    for name in job.plan.faults.named(status):
        about = ABOUT[name]
        shown = format_quantity(values_of(job, case, [about])[about], VOCABULARY[about].units)
        text = job.plan.faults.texts[name]
        faults.append(fault(flag_of(about), shown, name.replace("_", " "), text))
    if faults:
        raise InputError(faults)


def report_lines(job: Job, case: Case, verbose: bool) -> Iterator[str]:
    """Yield the report of one case."""
    check_cell(job, case)
    names = (*BOTH, *(name for name, _ in (*LINES, *RATIOS, *SPEEDUPS)), "overlap_efficiency")
    found = values_of(job, case, names)
    measured = "overlapped_time" in job.sweep.given
    mechanism = MECHANISMS[case.labels["mechanism"]]
    yield "measured" if measured else f"{mechanism.name}: {mechanism.title}"
    for name, words in LINES:
        yield _line(words, format_quantity(found[name], "s"))
    for name, words in RATIOS:
        yield _line(words, f"{100 * found[name]:.4g} %")
    for name, words in SPEEDUPS:
        yield _line(words, f"{found[name]:.4g}x")
    yield _line("bounded by", _bound(found))
    if measured:
        return
    if found["exposed_time"] > LEAST * found["overlapped_time"]:
        yield _line("exposed because", mechanism.exposed)
    yield from _notes(case, found)
    if verbose:
        yield from statement_lines(job, case)


def _line(words: str, text: str) -> str:
    return f"  {words.ljust(WIDTH)}{text}"


def _bound(found: Mapping[str, float]) -> str:
    """Say what decides how long it takes."""
    compute, communication = (found[name] for name in BOTH)
    time = found["overlapped_time"]
    both = compute + communication
    if time > found["sequential_time"] * (1.0 + LEAST):
        return "running at once: it costs more than it hides"
    if min(compute, communication) > 0.0 and time >= both * (1.0 - LEAST):
        return "both: nothing overlaps"
    if compute >= communication:
        return "the computation; overlap can hide all of the communication at best"
    return "the communication; what is longer than the computation can't hide"


def _notes(case: Case, found: Mapping[str, float]) -> Iterator[str]:
    """Yield what a reader may trip over."""
    compute, communication = (found[name] for name in BOTH)
    mechanism = case.labels["mechanism"]
    if case.labels.get("efficiency_of") == "communication" and mechanism == "two_durations":
        bare = compute + communication * (1.0 - found["overlap_efficiency"])
        if bare < max(compute, communication) * (1.0 - LEAST):
            told = format_quantity(bare, "s")
            yield f"  (computation + communication*(1 - efficiency) would be {told}, less than the"
            yield "  communication by itself: no more of it hides than there is computation)"
    if mechanism == "layer_by_layer":
        yield "  (a plain transformer's next layer needs the all_reduce: it hides only behind what"
        yield "  doesn't, say another half of the batch; --independent-share says how much that is)"


def statement_lines(job: Job, case: Case) -> Iterator[str]:
    """Yield the mechanism's formula and source, with the numbers put in."""
    declared = REGISTRY.returning("overlapped_time", case.labels)
    if declared is None or isinstance(declared, Call):
        return
    yield ""
    yield f"{declared.name}: {declared.statement}"
    values = values_of(job, case, declared.inputs)
    if len(values) == len(set(declared.inputs)):

        def put_in(match: re.Match[str]) -> str:
            return f"{values[match.group()]:.6g}" if match.group() in values else match.group()

        shown: Any = evaluated(declared.expression, values)
        yield f"  = {re.sub(r'[A-Za-z_][A-Za-z_0-9]*', put_in, declared.expression)}"
        yield f"  = {format_quantity(float(shown), 's')}"
    yield "  where"
    for name in declared.inputs:
        quantity = VOCABULARY[name]
        text = format_quantity(values[name], quantity.units) if name in values else ".."
        yield f"    {name} = {text}  ({quantity.meaning})"
    for phrase in declared.assumes:
        yield f"  assumes {phrase}"
    yield f"  source  {declared.reference}"
