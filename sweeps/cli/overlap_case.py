"""``sweeps overlap``: its flags as a sweep, what a mechanism lacks, report and timelines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from overhead.choose import Builder
from overhead.expression import evaluate as evaluated
from overhead.formula import REGISTRY, Call
from overhead.graph import Missing
from overhead.labels import LABELS
from overhead.overlap.mechanisms import HEEDED, MECHANISMS, OUTPUTS
from overhead.overlap.pipeline import PIPELINES
from overhead.quantity import VOCABULARY
from sweeps.bands import UNKNOWN, percent
from sweeps.cli.option_table import flags_in
from sweeps.cli.options import sweep_of_options
from sweeps.display import noun
from sweeps.engine.evaluate import Evaluator
from sweeps.engine.grid import LabelCase
from sweeps.engine.program import Program
from sweeps.errors import Faults, InputError, fault, needs, refuse, tell_all
from sweeps.job import Job, prepare
from sweeps.spec.axis import names_of
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep, read_sweep
from sweeps.spec.units import format_quantity, put_in

# The quantities that the command takes, as a group of options.
QUANTITIES = "overlap quantities"


def flag_of(quantity: str) -> str:
    """Return the first flag of a quantity; its name where it has none."""
    return flags_in(QUANTITIES).get(quantity, quantity)


# What ``sweeps overlap`` is asked: its flags as a sweep, and what a mechanism lacks.

BOTH = ("compute_time", "communication_time")
# Labels: what they may be, and their flags.
CHOSEN = {
    "mechanism": (LABELS["mechanism"].values, "--mechanism"),
    "efficiency_of": (LABELS["efficiency_of"].values, "--efficiency-of"),
    "schedule": (PIPELINES, "--schedule"),
}
PLAIN = "two_durations"  # Of two durations that are given nothing is predicted
# Labels that say how a duration or a count comes about.
WAYS = ("communication", "compute", "buckets", "sm_law", "mechanism")
TITLE = "Overlap of computation and communication"
SUMMARY = "What of computation and communication overlaps, by closed forms."
MOST_LINES = 16


def job_of(
    asked: Mapping[str, str | None],
    hardware: str | None = None,
    *,
    folders: Sequence[Path] = (),
    command: Sequence[str] = ("sweeps",),
    options: Mapping[str, object] | None = None,
) -> Job:
    """Make of what the flags say a sweep that is ready to run."""
    faults = Faults()
    labels: dict[str, tuple[str, ...]] = {}
    for name, (known, flag) in CHOSEN.items():
        default = LABELS[name].default
        chosen = faults.of(names_of, asked.get(name) or default, known, flag)
        labels[name] = chosen or (default,)
    values = {n: text for n, text in asked.items() if text is not None and n not in CHOSEN}
    read = partial(read_sweep, bare_is_si=True, folders=folders)
    faults.of(read, _spec(labels, values, hardware))
    faults.tell()
    every = asked.get("mechanism") == "all"
    _check_apart(labels, values, every)
    sweep = read(_spec(labels, values, hardware))
    labels["mechanism"] = _suited(sweep, labels, folders, every)
    spec = _spec(labels, values, hardware)
    job = prepare(spec, command=command, folders=folders, options=options)
    _check_taken(job, values, labels)
    return job


def _check_apart(
    labels: dict[str, tuple[str, ...]], values: Mapping[str, object], every: bool
) -> None:
    """Keep pipelines, whose computing is their stages', from what has durations of its own."""
    others = tuple(mechanism for mechanism in labels["mechanism"] if mechanism != "pipeline")
    given = [flag_of(name) for name in BOTH if name in values]
    if every and given:
        labels["mechanism"] = others
    elif given and others != labels["mechanism"] and (others or "stage_forward_time" in values):
        wrong = f"{' and '.join(given)} would stand in place of what its stages do"
        refuse("--mechanism", "pipeline", wrong, "--mechanism pipeline without them")


def _spec(
    labels: Mapping[str, tuple[str, ...]], values: Mapping[str, str], hardware: str | None
) -> Mapping[str, object]:
    """Return what a spec file would state."""
    kept = {
        name: ",".join(chosen)
        for name, chosen in labels.items()
        if name == "mechanism" or len(chosen) > 1 or HEEDED[name] in labels["mechanism"]
    }
    spec = sweep_of_options({**kept, "hardware": hardware, **values}, TITLE)
    derived = [name for name in BOTH if name not in values]
    spec["quantities"] = [*derived, *(name for name in OUTPUTS if name not in values)]
    return {**spec, "summary": SUMMARY}


# What mechanisms take of what is given, and what they lack.


def _suited(
    sweep: Sweep, labels: Mapping[str, tuple[str, ...]], folders: Sequence[Path], every: bool
) -> tuple[str, ...]:
    """Return the mechanisms that what is given suffices for; of those named it must for all."""
    lacking: dict[str, list[str]] = {}
    resolved = resolve(sweep, folders)
    columns = {name: v[0] for axis in resolved.axes for name, v in axis.columns.items()}
    numbers = {name: float(v) for name, v in columns.items() if name in VOCABULARY}
    measured = "overlapped_time" in sweep.given
    for choice in product(*labels.values()):
        chosen = dict(zip(labels, choice, strict=True))
        mechanism = chosen["mechanism"]
        takes = BOTH if measured else MECHANISMS[mechanism].takes
        constants = {**resolved.constants, **numbers}
        program = Program((), constants, chosen, takes, optional=True)
        builder = program.builder(program.cases[0])
        lacking.setdefault(mechanism, []).extend(
            lack for name in takes for lack in _lacking(builder, name, takes)
        )
    suited = tuple(mechanism for mechanism, names in lacking.items() if not names)
    if len(suited) < len(lacking) and not (every and suited):
        needed = {"all": BOTH} if every else lacking
        lines = (
            needs(f"--mechanism {mechanism}", noun(name), flag_of(name))
            for mechanism, names in needed.items()
            for name in names
        )
        raise InputError([*dict.fromkeys(lines)])
    return suited


def _lacking(builder: Builder, name: str, takes: Sequence[str]) -> list[str]:
    """Return what has to be given for a quantity: itself, or what the way asked for takes."""
    try:
        builder.node(name)
        return []
    except Missing as missing:
        lacking = set(missing.roots)
    # What follows from others that are lacking isn't told beside them.
    if name not in lacking and lacking <= set(takes):
        return []
    declared = REGISTRY.returning(name, builder.labels)
    by_way = declared is not None and any(way in declared.when for way in WAYS)
    flagged = [flag for flag in flags_in(QUANTITIES) if flag in lacking]
    return flagged if by_way and flagged else [name]


def _check_taken(
    job: Job, values: Mapping[str, object], labels: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse what no mechanism takes."""
    used, kinds = job.program.used(), ", ".join(labels["mechanism"])
    idle = [flag_of(name) for name in values if name not in used]
    wrong = f"--mechanism {kinds} does not use {'them' if len(idle) > 1 else 'it'}"
    faults = [fault(idle, "..", wrong, "remove")] if idle else []
    faults += [
        fault(
            CHOSEN[label][1],
            ",".join(labels[label]),
            f"only --mechanism {mechanism} takes it",
            "leave it",
        )
        for label, mechanism in HEEDED.items()
        if len(labels[label]) > 1 and mechanism not in labels["mechanism"]
    ]
    tell_all(faults)


# A job's cells.


def values_of(job: Job, case: LabelCase, names: Sequence[str]) -> dict[str, float]:
    """Return quantities that a case has one value of; what can't be had is left out."""
    builder = job.program.builder(case)
    evaluator = Evaluator(job.program.grid, dict(case.fixed))
    nodes = {name: builder.perhaps(name) for name in names}
    with np.errstate(all="ignore"):
        return {
            name: float(np.asarray(evaluator.value(node)).reshape(-1)[0])
            for name, node in nodes.items()
            if node is not None and evaluator.cells(node) == 1
        }


# What figures suit.


def figures_of(job: Job) -> list[dict[str, object]]:
    """Return declarations of figures that suit: lines over the longest axis, else bars."""
    sizes = {axis.name: len(axis) for axis in job.sweep.axes}
    numbers = [axis.name for axis in job.sweep.axes if not axis.labels]
    if not numbers and "mechanism" not in sizes:
        return []
    x = max(numbers, key=lambda name: sizes[name]) if numbers else "mechanism"
    lines: list[str] = []
    for name in sorted(sizes, key=lambda name: name != "mechanism") if numbers else ():
        if name != x and math.prod(sizes[n] for n in (*lines, name)) <= MOST_LINES:
            lines.append(name)
    at = {
        axis.name: axis.columns[axis.name][0 if axis.labels else len(axis) // 2].item()
        for axis in job.sweep.axes
        if axis.name not in (x, *lines[:2])
    }
    if not numbers:
        # What costs time hides nothing: no bar of less than nothing.
        saves = bool(np.all(job.program.evaluate(("hidden_time",))["hidden_time"] >= 0.0))
        parts = ["hidden_time", "exposed_time"] if saves else ["exposed_time"]
        title = "Communication time, overlapped and exposed"
        bars = {"kind": "bars", "name": "hidden", "parts": parts, "x": [x], "at": at}
        return [{**bars, "title": title}]
    curves = {"kind": "curves", "x": x, "lines": lines[:2], "crossovers": False, "at": at}
    title = "Time of computation and communication with overlap"
    time = {"name": "time", "y": "overlapped_time", "title": title}
    speedup = {"name": "speedup", "y": "overlap_speedup", "title": "Speedup by overlap"}
    linear = {"yscale": "linear", "better": "more"}
    return [{**curves, **time}, {**curves, **speedup, **linear}]


# The report of one case for a person: durations, speedups, what bounds it, what shows and why.

LINES = (
    ("compute_time", "computation"),
    ("communication_time", "communication"),
    ("sequential_time", "sequential"),
    ("overlapped_time", "overlapped"),
    ("ideal_overlapped_time", "ideal (the longer one)"),
    ("hidden_time", "hidden"),
    ("exposed_time", "exposed"),
)
RATIOS = (
    ("overlap_of_shorter", "hidden, of the shorter one"),
    ("overlapped_communication_fraction", "hidden, of communication"),
)
SPEEDUPS = (("overlap_speedup", "speedup"), ("ideal_speedup", "ideal speedup"))
WIDTH = 30
# Less than this share of the time is rounding.
LEAST = 1e-9


# What a fault is about.
ABOUT = {
    "ranks_odd": "ranks",
    "no_multiprocessor_left": "num_sm",
    "micro_batches_not_multiple_of_stages": "num_micro_batches",
    "virtual_stages_need_interleaving": "virtual_pipeline_size",
    "shorter_than_possible": "overlapped_time",
}


def check_cell(job: Job, case: LabelCase) -> None:
    """Refuse a cell that can't be."""
    evaluator = Evaluator(job.program.grid, dict(case.fixed))
    status = int(np.asarray(evaluator.value(case.status)).reshape(-1)[0])
    faults = []
    for name in job.program.faults.named(status):
        about = ABOUT[name]
        shown = format_quantity(values_of(job, case, [about])[about], VOCABULARY[about].units)
        text = job.program.faults.texts[name]
        faults.append(fault(flag_of(about), shown, name.replace("_", " "), text))
    tell_all(faults)


def sure_words(mechanisms: Iterable[str]) -> str:
    """Return how sure times are: two durations and an efficiency are all that there is to know."""
    return "exact for the given values" if {*mechanisms} <= {PLAIN} else UNKNOWN


def report_lines(job: Job, case: LabelCase) -> Iterator[str]:
    """Yield the report of one case."""
    check_cell(job, case)
    names = (*BOTH, *(name for name, _ in (*LINES, *RATIOS, *SPEEDUPS)), "overlap_efficiency")
    times = values_of(job, case, names)
    measured = "overlapped_time" in job.sweep.given
    mechanism = MECHANISMS[case.labels["mechanism"]]
    whole, time, hidden = (
        format_quantity(times[f"{name}_time"], "s")
        for name in ("sequential", "overlapped", "hidden")
    )
    gain = f"{times['overlap_speedup']:.4g}x as fast"
    shown = f": {hidden} is hidden" if times["hidden_time"] > 0.0 else ""
    sure = sure_words([mechanism.name])
    if time == whole:
        yield f"overlap gains nothing: it takes {time} either way ({sure})"
    else:
        yield f"overlapped it takes {time} rather than {whole}, {gain}{shown} ({sure})"
    yield f"  {'measured' if measured else f'{mechanism.name}: {mechanism.title}'}"
    for name, words in LINES:
        yield _line(words, format_quantity(times[name], "s"))
    if mechanism.name == "fused_messages" and not measured:
        fused = values_of(job, case, ("fusing_saves", "fused_communication_time"))
        yield _line("saved by fusing", format_quantity(fused["fusing_saves"], "s"))
        times["communication_time"] = fused["fused_communication_time"]
    if "compute" in case.labels and not measured:
        cut = values_of(job, case, ("slowed_matmul_time", "matmul_chunks"))
        if cut.get("matmul_chunks", 1.0) > 1.0:
            pieces = f"computation in {cut['matmul_chunks']:g} pieces"
            yield _line(pieces, format_quantity(cut["slowed_matmul_time"], "s"))
    for name, words in RATIOS:
        yield _line(words, percent(times[name]))
    for name, words in SPEEDUPS:
        yield _line(words, f"{times[name]:.4g}x")
    yield _line("bounded by", _bound(times))
    if measured:
        return
    if times["exposed_time"] > LEAST * times["overlapped_time"]:
        yield _line("exposed because", mechanism.exposed)
    yield from _notes(case, times)


def _line(words: str, text: str) -> str:
    return f"  {words.ljust(WIDTH)}{text}"


def _bound(times: Mapping[str, float]) -> str:
    """Say what decides how long it takes."""
    compute, communication = (times[name] for name in BOTH)
    time = times["overlapped_time"]
    both = compute + communication
    if time > times["sequential_time"] * (1.0 + LEAST):
        return "running at once: it costs more than it hides"
    if min(compute, communication) > 0.0 and time >= both * (1.0 - LEAST):
        return "both: nothing overlaps"
    if compute >= communication:
        return "the computation; overlap can hide all of the communication at best"
    return "the communication; what is longer than the computation can't hide"


def _notes(case: LabelCase, times: Mapping[str, float]) -> Iterator[str]:
    """Yield what a reader may trip over."""
    compute, communication = (times[name] for name in BOTH)
    mechanism = case.labels["mechanism"]
    if case.labels.get("efficiency_of") == "communication" and mechanism == "two_durations":
        bare = compute + communication * (1.0 - times["overlap_efficiency"])
        if bare < max(compute, communication) * (1.0 - LEAST):
            text = format_quantity(bare, "s")
            yield f"  (computation + communication*(1 - efficiency) would be {text}, less than the"
            yield "  communication by itself: no more of it hides than there is computation)"
    if mechanism == "layer_by_layer":
        yield "  (a plain transformer's next layer needs the all_reduce: it hides only behind what"
        yield "  doesn't, say another half of the batch; --independent-share says how much that is)"


def statement_lines(job: Job, case: LabelCase) -> Iterator[str]:
    """Yield the mechanism's formula and source, with the numbers put in."""
    declared = REGISTRY.returning("overlapped_time", case.labels)
    if declared is None or isinstance(declared, Call):
        return
    yield ""
    yield f"{declared.name}: {declared.statement}"
    values = values_of(job, case, declared.inputs)
    if len(values) == len(set(declared.inputs)):
        shown: Any = evaluated(declared.expression, values)
        yield f"  = {put_in(declared.expression, values)}"
        yield f"  = {format_quantity(float(shown), 's')}"
    yield "  where"
    for name in declared.inputs:
        quantity = VOCABULARY[name]
        text = format_quantity(values[name], quantity.units) if name in values else ".."
        yield f"    {name} = {text}  ({quantity.meaning})"
    for phrase in declared.assumes:
        yield f"  assumes {phrase}"
    yield f"  source  {declared.reference}"
