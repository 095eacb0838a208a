"""The report of ``sweeps plan`` for a person: the best plans, why, and what would be better."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from overhead.analysis import analyze
from overhead.evaluation import Evaluation
from sweeps import display
from sweeps.bands import band_of, brief, change_by, percent, tie, written
from sweeps.bands import memory_words as fitting
from sweeps.cli.from_file import setting_lines
from sweeps.cli.given import Planned
from sweeps.cli.numbers import shown
from sweeps.cli.options import (
    LEAF,
    MATTERING,
    default_lines,
    defaults_line,
    price_words,
    uplink_words,
)
from sweeps.cli.plan_experts import bullets, expert_lines
from sweeps.cli.plan_from import file_lines
from sweeps.cli.plan_question import Asked
from sweeps.cli.plan_ranked import ranked_lines
from sweeps.cli.presets import narrower
from sweeps.cli.progress import Progress
from sweeps.cli.room import MOST_LINES, first_notes, height
from sweeps.cli.save import SAVING
from sweeps.cli.sections import more_line, sections_of, shown_sections, wanted_sections, wrapped
from sweeps.cli.typed import flag_of
from sweeps.engine.grid import is_row_number
from sweeps.impossible import impossible
from sweeps.job import Job
from sweeps.launch.frameworks import settings_of
from sweeps.launch.settings import FrameworkSettings
from sweeps.result import Result
from sweeps.search.answer import (
    NO_ROOM,
    POINTS,
    Answer,
    Survival,
    nodes_lost,
    other_batch,
    trained,
)
from sweeps.search.details import Detail, details
from sweeps.search.request import CHOICES, Execution
from sweeps.search.words import (
    bound_by,
    memory_words,
    network,
    of_causal,
    tempting,
)
from sweeps.spec.catalog import load_hardware
from sweeps.spec.sweep import Sweep
from sweeps.wrapping import aligned, prose, room, wrap

# Tables of plans for people, and records of them for programs.

MARK = "*"
RECOMPUTED = {"none": "-"}
SCHEDULED = {"one_f_one_b": "1F1B", "interleaved": "interl."}


def plan_rows(plans: Sequence[Detail]) -> list[list[str]]:
    """Return plans as rows of a table, with a header."""
    base = plans[0]["step_time"] if plans else 1.0
    unit, per = ("s", 1.0) if base >= 1.0 else ("ms", 1e3)
    # Four digits: layouts are close to each other.
    decimals = max(0, 3 - int(np.floor(np.log10(base * per)))) if np.isfinite(base) else 0
    steps = [plan["step_time"] * per for plan in plans]
    times = [f"{step:,.{decimals}f}" if np.isfinite(step) else "-" for step in steps]
    columns: list[tuple[str, list[str], bool]] = [
        (name, [_degree(plan, name) for plan in plans], shown_always)
        for name, shown_always in (
            ("tp", True),
            ("cp", False),
            ("pp", True),
            ("dp", True),
            ("ep", False),
            ("etp", False),
        )
    ]
    columns += [
        ("vp", [f"{plan.plan['virtual_pipeline_size']:g}" for plan in plans], False),
        ("schedule", [_schedule(plan) for plan in plans], False),
        ("mb", [f"{plan.plan['micro_batch_size']:g}" for plan in plans], True),
        ("ZeRO", [f"{plan.plan['zero_stage']:g}" for plan in plans], True),
        ("sp", ["on" if plan.plan["sequence_parallel"] else "-" for plan in plans], False),
        ("recompute", [_recompute(plan) for plan in plans], False),
        *(
            (name, [f"{plan.plan.given[name]:g}" for plan in plans], False)
            for name in ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap")
            if all(name in plan.plan.given for plan in plans)
            and len({plan.plan.given[name] for plan in plans}) > 1
        ),
        (f"step ({unit})", times, True),
        ("vs first (%)", [_by(plan["step_time"], base) for plan in plans], True),
        ("GB", [f"{plan['peak_memory'] / 1e9:.1f}" for plan in plans], True),
        *(
            (*_rate(name, [plan[name] for plan in plans]), True)
            for name in display.rows("rates", screen="best")
        ),
    ]
    idle = ({"1"}, {"-"}, {"1", "-"})
    routed = any(plan.plan.routed for plan in plans)
    kept = [
        (title, texts)
        for title, texts, always in columns
        if (always or set(texts) not in idle) and (title != "etp" or routed)
    ]
    return [
        [title for title, _ in kept],
        *([texts[index] for _, texts in kept] for index in range(len(plans))),
    ]


_DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp")


def _plan_table(plans: Sequence[Detail]) -> Iterator[str]:
    """Yield plans as a table; where it is too wide, what all have stands in a line below."""
    rows = plan_rows(plans)
    keys = sum(title in _DEGREES for title in rows[0])
    columns = [*zip(*rows, strict=True)]
    wide = sum(max(map(len, column)) + 2 for column in columns) > room()
    rates = display.title("tokens_per_second_per_gpu")  # As the step time, in other units
    same = {
        column[0]: column[1]
        for column in columns[keys:]
        if len(rows) > 2 and len(set(column[1:])) == 1
    }
    said = [name for name in same if name and name in _HOW]
    if wide:
        columns = [cells for cells in columns if cells[0] != rates and cells[0] not in said]
    yield from aligned([*zip(*columns, strict=True)], left=0, keys=keys)
    if wide and said:
        yield "  in each: " + ", ".join(f"{name} {same[name]}" for name in said)


_HOW = ("vp", "schedule", "mb", "ZeRO", "sp", "recompute")  # Columns of how a split is run


def _by(time: float, base: float) -> str:
    if time == base or np.isnan(time / base):
        return ""
    return change_by(time / base - 1.0, 1).removesuffix(" %")


def _rate(name: str, values: Sequence[float]) -> tuple[str, list[str]]:
    """Return a column's title and cells: percentages in one number of digits."""
    if not display.percent(name):
        return display.title(name), [shown(name, value) for value in values]
    digits = int(any(value < 0.1 for value in values))
    texts = [percent(value, digits).removesuffix(" %") for value in values]
    return f"{display.title(name)} (%)", texts


def _degree(plan: Detail, name: str) -> str:
    mark = MARK if name == "tp" and plan.plan.crosses_nodes else ""
    return f"{plan.plan[name]:g}{mark}"


def _schedule(plan: Detail) -> str:
    if plan.plan["pp"] == 1.0:
        return "-"
    schedule = plan.plan.labels["schedule"]
    return SCHEDULED.get(schedule, schedule)


def _recompute(plan: Detail) -> str:
    label = plan.plan.labels["recompute"]
    if label == "block" and "recompute_layers" in plan.plan.known:
        return f"{plan.plan.known['recompute_layers']:g}/chunk"
    if plan.plan.modules:
        return "+".join(plan.plan.modules)
    return RECOMPUTED.get(label, label)


def range_rows(result: Result, names: Sequence[str]) -> list[list[str]]:
    """Return a table of many points for people: what varies, then some of the plan."""
    columns = {column.name: column for column in result.layout.coordinates if column.dims}
    variables = {column.name for column in result.layout.variables}
    records = [*result.values()]
    # What goes with a model's name isn't told beside it.
    told = records[0] if records else {}
    varying = [name for name in columns if name in told and not is_row_number(columns[name].attrs)]
    wanted = [name for name in names if name in variables]
    rows = [[*(name.replace("_", " ") for name in varying), *map(display.title, wanted)]]
    shown_names = (*varying, *wanted)
    rows += [[_text(name, record[name]) for name in shown_names] for record in records]
    return rows


def _text(name: str, value: Any) -> str:
    if name == "peak_memory" and np.isfinite(value):
        return f"{value / 1e9:.1f} GB"
    if name == "best_split":
        return str(value).replace("_", ", ").replace("none", "none can run")
    return shown(name, value)


# How many layouts, and plans of the Pareto front, are shown.
SHOWN_SPLITS = 5
NOTES = 5  # lines on how the question was read
FEWEST_SPLITS = 2  # where more don't fit the screen
FRONT = 8
# Below this a batch that divides better isn't worth a line.
WORTH = 0.01


# What no plan can have above 1.
AT_MOST_ONE = ("hfu", "causal_mfu", "mfu")


def impossible_lines(plans: Sequence[Execution | None]) -> Iterator[str]:
    """Yield what can't be of plans: more than the peak of their GPUs."""
    known = [plan for plan in plans if plan is not None]
    shares = details(known, AT_MOST_ONE)
    values = {name: np.array([detail[name] for detail in shares]) for name in AT_MOST_ONE}
    for line in impossible(values) if known else ():
        yield from wrapped(line, "  ")


def answer_lines(answer: Answer, asked: Asked, given: Planned) -> Iterator[str]:
    """Yield the report of a question that has an answer."""
    wanted = wanted_sections(given, "plan")
    best = answer.main[0]
    bodies: dict[str, Callable[[], Iterable[str]]] = {
        "reasons": lambda: _why(answer),
        **{name: partial(part_lines, name, answer, best.plan) for name in OF_ONE},
        "pareto": lambda: _front(answer),
        "changes": lambda: what_if_lines(answer.effects),
        "rejected": lambda: space_lines(answer),
        "launch": lambda: settings_lines(settings_of(best.plan)),
        "defaults": lambda: (*setting_lines(), *answer_defaults(answer, asked)),
    }
    run = list(training_lines(best, asked, answer.point.folders))
    lost = list(_lost(answer, given["lost_nodes"])) if given["lost_nodes"] else []
    above = [reached(best), *ranked_lines(answer, asked), *_preset(answer)]
    above += [*impossible_lines([best.plan])]
    above += (line for text in (*run[:1], *lost[:1]) for line in wrapped(text, indent="  "))
    file_words = [*file_lines(answer, asked)]
    above += (*file_words, *_question(answer, asked), "")
    below = [*("the training run", *run[1:])] if run else []
    below += lost[1:]
    if np.isfinite(best["step_time"]):
        below += _limits(answer)
    below += (*_searched(answer), *short_defaults(answer, asked))
    below += more_line(wanted, sections_of("plan"), "" if given["save"] else SAVING)
    yield from above
    count = _splits_in_room(answer, height([*above, *below])) if file_words else SHOWN_SPLITS
    yield from _best(answer, given["top"] or count)
    yield from below
    yield from shown_sections(wanted, bodies)


# Sections of one configuration.
OF_ONE = ("parts", "memory", "communication", "overlap")


def part_lines(name: str, answer: Answer, plan: Execution) -> Iterator[str]:
    """Yield a section of a plan, as an analysis of it has it."""
    from sweeps.cli.analysis_report import bodies_of

    job = _job(answer)
    assert job is not None
    evaluation = Evaluation(plan.given, plan.labels)
    with np.errstate(all="ignore"):
        yield from bodies_of(job, evaluation, analyze(evaluation))[name]()


def _splits_in_room(answer: Answer, taken: int) -> int:
    """Return of how many layouts a screen of a launch file shows the best plan."""
    count = SHOWN_SPLITS
    while count > FEWEST_SPLITS and taken + height([*_best(answer, count)]) > MOST_LINES:
        count -= 1
    return count


def _limits(answer: Answer) -> Iterator[str]:
    """Yield what limits the best plan, and what would be faster."""
    best = answer.main[0]
    lines = bound_by(best), *tempting(answer.effects, best, answer.point.threshold)
    for line in (*lines, *network(answer.effects), *of_causal(best)):
        yield from wrapped(line[0].upper() + line[1:])
    yield from _other_batch(answer)
    known = {**answer.search.space.resolved.constants, **answer.point.constants}
    if {"oversubscription", *LEAF} <= known.keys():
        sizes = (known[name] for name in LEAF)
        yield from uplink_words(known["oversubscription"], answer.point.world_size, *sizes)
    yield ""


def _question(answer: Answer, asked: Asked) -> Iterator[str]:
    """Yield the plan, and the question as it was read."""
    best = answer.main[0]
    yield from wrapped(f"recommended: {best.plan.name}", indent="  ")
    batch, length = (answer.point.constants[n] for n in ("global_batch_size", "sequence_length"))
    rate = best["tokens_per_second_per_gpu"]
    rates = f": {rate * answer.point.world_size:,.0f} tokens/s, {rate:,.0f} per GPU"
    yield from wrapped(question(answer) + (rates if np.isfinite(rate) else ""), indent="  ")
    yield from wrapped(f"{batch:,.0f} sequences of {length:,.0f} tokens per step", indent="  ")
    yield from first_notes(asked.readings, "defaults", NOTES)


def _preset(answer: Answer) -> Iterator[str]:
    """Yield what naming a preset would narrow the band to, where it would."""
    plan, resolved = answer.main[0].plan, answer.search.space.resolved
    given = (*answer.point.labels, *CHOICES)
    yield from narrower(Evaluation(plan.given, plan.labels), resolved.labels["framework"], given)


def _searched(answer: Answer) -> Iterator[str]:
    """Yield how many plans can run, and which options were left to the search."""
    counts = answer.counts
    text = f"{counts.feasible:,} of {counts.all:,} plans can run"
    free = _searched_options(answer)
    yield from wrapped(f"{text}; searched over {free}" if free else text)


def short_defaults(answer: Answer, asked: Asked) -> Iterator[str]:
    """Yield the values that weren't given and matter most, and how many others there are."""
    if job := _job(answer):
        yield from defaults_line(job, MATTERING, *asked.assumed)


def _job(answer: Answer) -> Job | None:
    """Return the plans that were searched as a job, for sections that say something of one."""
    space = answer.search.space
    return Job(Sweep(""), space.resolved, space.plan, " ", ()) if space.plan else None


def _searched_options(answer: Answer) -> str:
    """Return the options that were left to the search."""
    choices = answer.search.space.choices
    return ", ".join(flag_of(name) for name in choices if name not in answer.point.choices)


def _why(answer: Answer) -> Iterator[str]:
    yield "why this plan"
    yield from bullets(answer.reasons)
    yield from expert_lines(answer)


def heading(answer: Answer, text: str) -> str:
    """Return what was asked and the answer, in a line."""
    return f"{question(answer)}: {text}"


def question(answer: Answer) -> str:
    """Return what trains on what."""
    model = answer.point.labels.get("model", "a model")
    machine = answer.search.space.resolved.labels.get("hardware", "")
    return f"{model} on {answer.point.world_size:,} GPUs ({machine})"


def reached(plan: Detail) -> str:
    """Return how fast a plan is and how full it makes the memory, each with its band."""
    if np.isfinite(plan["step_time"]):
        text = f"{brief(plan['step_time'], 's')} per step"
        text += f" ({band_of('step_time', plan.values.get)})"
    else:
        text = "the step time is not known"
    text += f", MFU {percent(plan['mfu'])}" if np.isfinite(plan["mfu"]) else ""
    ends = (plan.values[name] for name in display.BANDS["peak_memory"])
    return f"{text}, {fitting(plan['peak_memory'], plan.capacity, *ends)}"


def ties(answer: Answer) -> str:
    """Return how many layouts have a plan that can't be told from the best."""
    result = answer.search
    if result.tied < 2:
        return f"no other layout ties with it (within {percent(tie())})"
    return (
        f"{result.tied} layouts tie (within {percent(tie())}: published runs do not tell which "
        "is faster); the first is the simplest of them"
    )


def question_lines(answer: Answer, asked: Asked) -> Iterator[str]:
    """Yield what was asked, as it was read."""
    batch, length = (answer.point.constants[n] for n in ("global_batch_size", "sequence_length"))
    tokens = batch * length / 1e6
    yield f"asked: {batch:,.0f} sequences of {length:,.0f} tokens per step, {tokens:.3g} M tokens"
    yield from (f"  ({line})" for line in asked.readings)
    yield ""


def space_lines(answer: Answer) -> Iterator[str]:
    """Yield how many plans there are, and why not all of them can run."""
    counts, texts = answer.counts, answer.search.space.texts
    splits = answer.search.space.rows.splits
    yield (
        f"{counts.all:,} plans of {splits:,} layouts of the GPUs; {counts.feasible:,} can run "
        f"({len(answer.search.splits):,} layouts)"
    )
    if counts.computed < counts.feasible:
        yield f"  {counts.computed:,} of these were computed in full: bounds exclude the others"
    if counts.fallen:
        yield "  rejected, by reason (a plan may have several):"
    rows = sorted(counts.fallen.items(), key=lambda item: -item[1])
    lines = [
        [f"{count:,}", name.replace("_", " "), texts.get(name, "").partition("; or ")[0]]
        for name, count in rows
    ]
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
    for count, name, text in lines:
        head = f"    {count.rjust(widths[0])}  {name.ljust(widths[1])}  "
        yield from wrap(text, prose(), initial_indent=head, subsequent_indent=" " * len(head)) or [
            head.rstrip()
        ]
    yield ""


def _best(answer: Answer, count: int) -> Iterator[str]:
    rows = answer.table(count)
    objective = answer.point.objective
    several = len(answer.search.splits)
    shown_of = f", {len(rows)} of {several:,}" if several > len(rows) else ""
    yield f"Best plan of each layout{shown_of}: the recommended one, then {objective.words} first"
    yield from _plan_table(rows)
    if objective.timed:
        yield from wrapped(ties(answer), indent="  ")
    if any(row.plan.crosses_nodes for row in rows):
        node = rows[0].plan["gpus_per_node"]
        yield f"  {MARK} tensor parallelism crosses nodes of {node:g} GPUs"
    yield ""


def _front(answer: Answer) -> Iterator[str]:
    plans = answer.front(FRONT)
    if len(plans) < 2:
        return
    whole = len(answer.search.front)
    several = f", {len(plans)} of {whole}" if whole > len(plans) else ""
    objective = answer.point.objective
    both = f"{objective.quantity.replace('_', ' ')} against {objective.second.replace('_', ' ')}"
    yield f"Pareto front: {both}{several}"
    yield from _plan_table(plans)
    yield ""


def what_if_lines(effects: Sequence[Any]) -> Iterator[str]:
    """Yield what one change would do to a plan, as a table."""
    if not effects:
        return
    yield "single changes of the plan"
    rows = [["", "step time", "per token", "memory", ""]]
    for effect in effects:
        can = not np.isnan(effect.slower)
        rows.append(
            [
                effect.change.words,
                shown("step_time", effect.detail["step_time"]) if can else "-",
                change_by(effect.slower) if can else "-",
                "-" if effect.detail.faults else f"{effect.detail['peak_memory'] / 1e9:.1f} GB",
                effect.note,
            ]
        )
    yield from aligned(rows, last=True)
    yield ""


# Of a whole training.
TRAINING = (
    "training_days",
    "run_days",
    "run_gpu_hours",
    "run_cost",
    "cost_per_trillion_useful_tokens",
    "run_energy",
)
FAILURES = display.rows("failures")
LOST = display.LOST


def training_lines(detail: Detail, asked: Asked, folders: Sequence[Path]) -> Iterator[str]:
    """Yield days and cost of a training, or the tokens in days, with what interrupts it."""
    if asked.tokens is None and asked.days is None:
        return
    (failures,) = details([detail.plan], FAILURES)
    (plan,) = trained([detail.plan], asked.tokens, asked.days)
    tokens = plan["training_tokens"]
    (whole,) = details([plan], TRAINING)
    text = f"{tokens / 1e12:.4g} T tokens" if tokens >= 1e12 else f"{tokens / 1e9:.4g} B tokens"
    days = shown("run_days", whole["run_days"])
    computing = shown("training_days", whole["training_days"])
    goodput = f"goodput {percent(failures['goodput'], 1)}"
    yield f"{text}: {days}, {computing} without interruptions ({goodput})"
    lost = ", ".join(
        f"{display.words(name).split(' to ')[1]} {percent(failures[name])}" for name in LOST
    )
    every = shown("mean_time_between_failures", failures["mean_time_between_failures"])
    pause = shown("checkpoint_interval", failures["checkpoint_interval"])
    stall = shown("checkpoint_stall_time", failures["checkpoint_stall_time"])
    spare = f"{failures['spare_nodes']:g} spare nodes of {plan['gpus_per_failing_node']:g} GPUs"
    times = f"MTBF {every}; checkpoint every {pause} ({stall}); {spare}"
    lines = [f"lost: {lost}", times]
    sums = [f"{shown('run_gpu_hours', whole['run_gpu_hours'])} of GPUs, spares included"]
    if np.isfinite(whole["run_cost"]):
        each = shown("cost_per_trillion_useful_tokens", whole["cost_per_trillion_useful_tokens"])
        sums += [shown("run_cost", whole["run_cost"]), f"{each} for a trillion tokens"]
    if np.isfinite(whole["run_energy"]):
        joules = whole["run_energy"]
        sums.append(f"{shown('run_energy', joules)} ({joules / 3.6e12:,.4g} GWh)")
    lines.append(f"it takes {', '.join(sums)}")
    if np.isfinite(whole["run_cost"]) and not {"gpu_hour_price", "capital_cost"} & set(asked.given):
        lines.append(price_words([load_hardware(plan.labels["hardware"], folders)]))
    if not np.isfinite(whole["run_cost"]):
        lines.append(
            "no price is known: --price '2.5 USD/h' (or --capital '35000 USD', of a GPU "
            "that is owned) gives the cost"
        )
    if asked.tokens is not None and asked.days is not None:
        over = whole["run_days"] - asked.days
        late = f"{over:.2g} days too late, of {asked.days:g}: sweeps buy finds GPUs that make it"
        lines.append(
            late if over > 0.0 else f"in time: {-over:.2g} of {asked.days:g} days are left"
        )
    yield from bullets(lines)
    yield ""


def _other_batch(answer: Answer) -> Iterator[str]:
    other = other_batch(answer)
    if other is not None and other.faster > WORTH:
        plan = other.answer.recommended
        assert plan is not None
        yield from wrapped(
            "Note: the batch does not divide among the GPUs: with "
            f"{other.words} the time per token would change by "
            f"{change_by(1.0 / (1.0 + other.faster) - 1.0)} ({plan.name})"
        )


# A loss below this is none: the whole cluster would do no better with nodes idle.
SMALLEST_LOSS = 5e-4
# What the loss of a node takes once.
LOSING = ("recovery_time", "checkpoint_interval", "checkpoint_drain_time")


def _lost(answer: Answer, nodes: int) -> Iterator[str]:
    """Yield what can be done when nodes are lost, the best first."""
    text = "a node lost" if nodes == 1 else f"{nodes} nodes lost"
    progress = Progress("searching")
    ways = nodes_lost(answer, nodes, progress)
    progress.end()
    best_way = next((way for way in ways if way.fits), None)
    otherwise = f"{percent(-best_way.loss)} of tokens/s" if best_way else "nothing can run"
    yield f"{text}: a spare takes over, or else {otherwise}"
    yield f"{text}: options, by tokens/s relative to the full cluster"
    (best,) = details([answer.main[0].plan], LOSING)
    restart = shown("recovery_time", best["recovery_time"])
    half = best["checkpoint_interval"] / 2.0
    again = shown("checkpoint_interval", half + best["checkpoint_drain_time"])
    yield from bullets(
        [
            f"0 %: a spare takes over: {restart} of restart and on average {again} "
            "of work done again, once"
        ]
    )
    for outcome in ways:
        short = "" if outcome.fits else "; does not fit"
        if outcome.loss < SMALLEST_LOSS:
            short = " (the full cluster would be no faster)"
        loss = "0 %" if outcome.loss < SMALLEST_LOSS else percent(-outcome.loss)
        line = f"{loss}: {outcome.words}: {outcome.rate:,.0f} tokens/s{short}"
        yield from bullets([f"{line}: {outcome.plan.name}" if outcome.fits else line])
    if not any(lost.fits for lost in ways):
        yield "  - nothing can run on what is left"
    yield ""


def settings_lines(settings: Sequence[FrameworkSettings]) -> Iterator[str]:
    """Yield a plan in the words of frameworks."""
    yield "launch settings"
    for setting in settings:
        yield f"  {setting.framework}"
        for line in _packed(setting):
            yield f"    {line}"
        yield from (f"    ({missing})" for missing in setting.missing)
    yield ""


def _packed(settings: FrameworkSettings) -> Iterator[str]:
    """Yield settings with several on a line where they are short."""
    if settings.framework == "DeepSpeed":
        text = " ".join(line.strip() for line in settings.lines)
        yield from wrap(text, prose() - 4)
        return
    section, row = "", ""
    for line in settings.lines:
        heads = line.startswith("[") or not line
        joined = f"{row}{'; ' if section else ' '}{line}" if row else line
        if not heads and (not row or len(joined) <= prose() - 4):
            row = joined
            continue
        if row:
            yield row
        row, section = ("", line) if heads else (line, section)
        if heads and line:
            yield line
    if row:
        yield row


def answer_defaults(answer: Answer, asked: Asked) -> Iterator[str]:
    """Yield what wasn't given: what was assumed, what was searched, and every value's source."""
    if asked.assumed:
        yield f"Assumed: {', '.join(asked.assumed)}"
    if free := _searched_options(answer):
        yield f"Searched: {free}"
    if job := _job(answer):
        yield from default_lines(job)


def survival_lines(answer: Answer, analysis: Survival, *, every: bool) -> Iterator[str]:
    """Yield whether the recommended plan stays the best with each constant moved."""
    yield reached(answer.main[0])
    yield f"  {question(answer)}"
    yield f"  recommended: {answer.main[0].plan.name}"
    sides = {
        (constant.name, which): side
        for constant in analysis.own.moved
        for which, side in zip(POINTS, (constant.lower, constant.upper), strict=True)
    }
    fallen = {
        key: contender for key, contender in analysis.rivals.items() if not contender.survives
    }
    survives = "is as good as the best" if fallen else "stays as good as the best"
    count = len(analysis.rivals)
    where = f"at {count - len(fallen)} of {count} points" if fallen else f"at all {count} points"
    text = (
        f"{survives} (within {percent(tie())}) {where}: each constant that wasn't given, by "
        f"itself at x0.9 and x1.1. {analysis.kept} plans were ranked again, not searched again: "
        "the best of all, of each split, of the Pareto front"
    )
    yield from bullets([text])
    if fallen:
        yield "it isn't with"
    for (name, which), rival in sorted(
        fallen.items(), key=lambda item: (item[1].why, -item[1].lost)
    ):
        value = written(name, sides[name, which].value)
        lost = f"it {rival.why}" if rival.why == NO_ROOM else rival.why
        lost = lost or f"it loses {percent(rival.lost)}"
        then = f"best is {rival.plan.name}" if rival.plan else "none of these plans can run"
        yield from wrap(
            f"{name} = {value}: {lost}; {then}",
            prose(),
            initial_indent="  ",
            subsequent_indent="      ",
        )
    yield ""
    yield from analysis.own.lines(every=every)


def nothing_lines(answer: Answer, asked: Asked, show: Sequence[str]) -> Iterator[str]:
    """Yield the report of a question without an answer: the nearest plan, and what would help."""
    yield heading(answer, "no plan can run")
    nearest = answer.nearest
    if nearest is None:
        typed = f"{flag_of('world_size')} {answer.point.world_size:,}"
        batch = f"a batch of {answer.point.constants['global_batch_size']:,.0f}"
        degrees = f"no TP, CP, PP and DP that the model and {batch} allow multiply to it"
        yield from wrapped(f"{typed}: {degrees}", "  ")
    else:
        wanted = ("peak_memory", "step_time", *display.BANDS["peak_memory"])
        (detail,) = details([nearest.plan], wanted)
        yield f"nearest: {nearest.plan.name}"
        lines = list(nearest.reasons.values())
        if nearest.memory:
            lines = [memory_words(detail, answer.point.threshold)]
            need = detail["peak_memory"] / answer.point.threshold
            lines.append(
                f"GPUs of {need / 1e9:.1f} GB would hold it, {percent(answer.point.threshold)} full"
            )
        yield from bullets(lines)
    remedies = answer.remedies
    yield "what would make a plan run" if remedies else "no change that was tried makes a plan run"
    lines = []
    for remedy in remedies:
        (detail,) = details([remedy.search.recommended], ("step_time",))
        time = shown("step_time", detail["step_time"])
        lines.append(f"{remedy.words}: {detail.plan.name} ({time} per step)")
    yield from bullets(lines)
    yield from question_lines(answer, asked)
    yield from _searched(answer)
    if "rejected" in show:
        yield from space_lines(answer)
