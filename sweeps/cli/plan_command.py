"""``sweeps plan``: the best plan, with reasons, or a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import click

from overhead.labels import HIERARCHY
from sweeps import display
from sweeps.bands import bands_words
from sweeps.cli import flags
from sweeps.cli.from_file import found_in, from_option, reading_lines
from sweeps.cli.given import Options, Planned, texts_of
from sweeps.cli.kept import keep
from sweeps.cli.numbers import shown
from sweeps.cli.option_table import options
from sweeps.cli.options import (
    file_options,
    output_options,
    sweep_of_options,
)
from sweeps.cli.plan_question import CALCULATED, Asked
from sweeps.cli.progress import Progress
from sweeps.cli.save import check_folder, save, save_option
from sweeps.cli.sections import show_options
from sweeps.cli.typed import flag_of, folders_of, refuse_given
from sweeps.cli.write import Output
from sweeps.errors import InputError, fault, less_than_a_step, needs, tell_all
from sweeps.measured_step import CLOCK, MEASURED_STEP, add_clock
from sweeps.origin import Origin
from sweeps.own_formulas import load_formulas
from sweeps.result import Result
from sweeps.search.answer import answer, point_figures, range_figures, survival
from sweeps.search.idle import check_used
from sweeps.search.interface import (
    KEPT_SPLITS,
    Plans,
)
from sweeps.search.repair import best_at
from sweeps.search.request import ALIASES, CHOICES, Point, Request, read_request
from sweeps.spec.model import USUAL_LENGTH
from sweeps.spec.names import quantity_of
from sweeps.spec.sweep import read_sweep
from sweeps.spec.units import parse_quantity
from sweeps.wrapping import aligned, fitted

if TYPE_CHECKING:
    import xarray as xr

# Options of ``sweeps plan``, and how what is written in them is read.

Command = TypeVar("Command", bound=Callable[..., Any])

# What the strategy calculator asks for, and what it takes where nothing is said.
SEED = {
    "parameters": "70",
    "world_size": "64",
    "memory_capacity": "80",
    "global_batch_size": "512",
    "sequence_length": "4096",
}
# What the search decides by itself, or the flags above give.
LEFT_OUT = (
    "world_size",
    "global_batch_size",
    "num_micro_batches",
    "parameters",
    "sequence_length",
    "memory_capacity",
    "experts",
    "training_tokens",
)
OTHERS = tuple(name for name in flags.OF_TRAINING if name not in LEFT_OUT)
SHAPES = tuple(
    name
    for name in OTHERS
    if flags.USUAL[name].part == flags.BATCH and name not in ("model", "tokens_per_step")
)
# Options of this command that the calculator's table hasn't, with what they are if not given.
PLANNED: dict[str, object] = {
    **dict.fromkeys(("explain", "measured_plan", "lost_nodes", "tokens", "days", "top")),
    "objective": "time",
    "show": (),
    "verbose": False,
    "sensitivity": False,
    "save": None,
}
# A schedule without a backward is none of training.
FORWARD = "forward_only"
SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def plan_options(command: Command) -> Command:
    """Add the options of the command."""
    command = options("plan")(show_options("plan")(save_option(command)))
    return options("calculator")(from_option(flags.options(*OTHERS)(command)))


def read_options(given: Planned) -> Asked:
    """Read what click gives."""
    model = given["model"] is not None
    shaped = [name for name, text in texts_of(given, SHAPES).items() if text is not None]
    counted = given["parameters"] is not None
    calculator = not model and (counted or not {"heads", "vocabulary_size"} & set(shaped))
    faults = list(_contradictions(given, model=model, calculator=calculator))
    assumed: list[str] = []
    values: dict[str, str] = {}
    texts = texts_of(given, SEED)
    for name, default in SEED.items():
        text = texts[name]
        if name == "world_size" and text is None and given["nodes"] is not None:
            continue
        if text is None and (calculator or name in ("world_size", "global_batch_size")):
            assumed.append(f"{flag_of(name)} {default}")
            text = default
        if text is not None:
            values[name] = text
    readings: list[str] = []
    numbers = [
        read_number(f"--{option}", given[option], faults, option) for option in ("tokens", "days")
    ]
    explain = _plan_of("explain", given["explain"], faults)
    measured = _plan_of("measured_plan", given["measured_plan"], faults)
    tell_all(faults)
    for name, unit in (("memory_capacity", "GB"), ("parameters", "billions")):
        if name in values:
            values[name] = flags.scaled(flag_of(name), values[name], unit, readings)
    if not calculator:
        values.pop("parameters", None)
    values |= _others(given)
    if "tokens_per_step" in values and given["global_batch_size"] is None:
        values.pop("global_batch_size", None)
        assumed = [text for text in assumed if not text.startswith(flag_of("global_batch_size"))]
    readings += flags.in_tokens(values, flag_of("global_batch_size"))
    readings += flags.model_notes(values.get("model"), folders_of(given))
    experts = given["num_experts"] if given["moe"] or given["num_experts"] else None
    if given["moe"] and experts is None:
        experts = "64"
        assumed.append("--num-experts 64")
    if not calculator and experts is not None:
        values["experts"] = experts
    if calculator and "nodes" in values:
        values |= {"world_size": _gpus(values, folders_of(given))}
        values.pop("nodes")
    readings = [*reading_lines(), *readings]
    if measured or MEASURED_STEP in values:
        _check_measured(values)
        from_file = found_in(click.get_current_context(silent=True))
        of_file = from_file.plan if from_file and CLOCK not in values else {}
        clock = measured or of_file
        readings += add_clock(values, clock, CHOICES, folders_of(given))
    return Asked(values, tuple(readings), tuple(assumed), calculator, experts, explain, *numbers)


def _check_measured(values: Mapping[str, str]) -> None:
    """Refuse a plan that was measured without the time of its step."""
    if MEASURED_STEP not in values:
        give = f"{flag_of(MEASURED_STEP)}, such as 10s"
        raise InputError(needs("measured_plan", "the time of its step", give))


def _gpus(values: Mapping[str, str], folders: Sequence[Path]) -> str:
    """Return the GPUs of nodes, beside which they may be given, too."""
    names = ("nodes", "world_size", "gpus_per_node", "hardware")
    told = {name: values[name] for name in names if name in values}
    # Any quantity of a plan says that it is one.
    spec = sweep_of_options({**told, "tp": "1"}, "GPUs of nodes")
    sweep = read_sweep(spec, bare_is_si=True, folders=folders)
    axes = [axis.columns["world_size"] for axis in sweep.axes if "world_size" in axis.columns]
    counts = axes[0] if axes else [sweep.constants["world_size"]]
    return ",".join(f"{count:g}" for count in counts)


def _contradictions(given: Planned, *, model: bool, calculator: bool) -> Iterator[str]:
    if model and given["parameters"] is not None:
        wrong = "can't be given with --model, whose shapes give it"
        yield fault(flag_of("parameters"), given["parameters"], wrong, "one of the two")
    if model and (given["moe"] or given["num_experts"] is not None):
        flag = "--moe" if given["moe"] else "--num-experts"
        yield fault(
            flag, "set", "can't be given with --model, which says so itself", "one of the two"
        )
    if given["script"] and not calculator:
        yield fault(
            flag_of("script"), "set", "is of a number of parameters alone", flag_of("parameters")
        )
    if given["script"]:
        for flag, text in _of_planner(given).items():
            yield fault(
                flag, text, "is not in the script's rows", f"leave it or {flag_of('script')} out"
            )


def _of_planner(given: Planned) -> dict[str, object]:
    """Return the options given that the calculator's table hasn't: a whole plan has them."""
    kept = (*CALCULATED, "tokens_per_step", "nodes")
    options: dict[str, Any] = {
        flag_of(name): text
        for name, text in flags.given_options(given, OTHERS).items()
        if text is not None and name not in kept
    }
    every: Options = given
    several = {name: every[name] for name, usual in PLANNED.items() if every[name] != usual}
    if given["tree_algo"]:
        several["tree_algo"] = "set"
    return options | {flag_of(name): value for name, value in several.items()}


def _others(given: Planned) -> dict[str, str]:
    """Return the other options that were given, as a sweep has them."""
    every = flags.given_options(given, OTHERS)
    others = {name: text for name, text in every.items() if text is not None}
    if given["schedule"] is not None and given["schedule"].strip() == "all":
        others["schedule"] = ",".join(
            schedule for schedule in others["schedule"].split(",") if schedule != FORWARD
        )
    if given["tree_algo"]:
        topology = others.get("topology")
        others["algorithm"] = flags.tree_algorithm(topology, others.get("algorithm"), HIERARCHY)
    return others


def _plan_of(option: str, text: str | None, faults: list[str]) -> dict[str, str]:
    """Return the settings of a plan that an option names."""
    plan: dict[str, str] = {}
    for piece in (text or "").split(","):
        if not piece.strip():
            continue
        name, equals, value = (part.strip() for part in piece.partition("="))
        quantity = quantity_of(ALIASES.get(name, name), training=True)
        if not equals or quantity not in CHOICES:
            allowed = (
                "name=value of tp, cp, pp, dp, ep, micro_batch_size, zero_stage, recompute, .."
            )
            faults.append(fault(flag_of(option), piece.strip(), "can't be read", allowed))
            continue
        plan[quantity] = flags.read(quantity, value) or value
    if text is not None and not plan and not faults:
        faults.append(fault(flag_of(option), text, "names no plan", "such as tp=8,pp=4,dp=2"))
    return plan


def read_number(flag: str, text: str | None, faults: list[str], unit: str) -> float | None:
    """Read a number above 0, such as 15T; None where there is none, or a fault with it."""
    if text is None:
        return None
    plain = text.strip().removesuffix(unit).strip()
    plain = plain.removeprefix("$") if unit == "USD" else plain
    scale = SCALES.get(plain[-1:].lower(), 1.0)
    try:
        value = float(plain[:-1] if scale > 1.0 else plain) * scale
    except ValueError:
        value = float("nan")
    if not 0.0 < value < float("inf"):
        example = {"tokens": "2T or 300B", "USD": "2M or 300k"}.get(unit, "21")
        several = "takes one value" if "," in text or ":" in text else "can't be read"
        faults.append(fault(flag, text, several, f"a number above 0, such as {example}"))
        return None
    return value


@click.command(flags.SEARCH, cls=flags.SweepCommand)
@plan_options
@output_options
def command(**given: Unpack[Planned]) -> int:
    """The best parallel plan for a model on a machine, and why.

    One value for every argument prints a report; several, such as --gpus 64:4096:x2, the best plan
    at each point.  Several values of tp, recompute .. limit the search; --from FILE searches
    around a launch file.
    """
    load_formulas(given["formulas"])
    asked = read_options(given)
    if asked.calculator:
        from sweeps.cli.plan_calculator import calculator, planned

        if not _of_planner(given):
            return calculator(asked, given)
        asked = planned(asked, given)
    request = _request(asked, given)
    if asked.tokens is not None:
        each = (point.constants for point in request.points())
        step = min(known["global_batch_size"] * known["sequence_length"] for known in each)
        tell_all(less_than_a_step("--tokens", asked.tokens, step))
    run = asked.tokens is not None or asked.days is not None
    check_options_used(request.points(), asked.given, run=run)
    asked = replace(asked, assumed=(*asked.assumed, *map(length_words, request.lengths)))
    if request.axes:
        return _at_many_points(request, asked, given)
    return _at_one_point(request, asked, given)


def _request(asked: Asked, given: Planned) -> Request:
    threshold = parse_quantity(
        given["memory_threshold"], "1", field=flag_of("memory_threshold"), bare_is_si=True
    )
    folders = folders_of(given)
    return read_request(
        asked.given,
        objective=str(given["objective"]),
        threshold=threshold,
        folders=folders,
        usual_length=USUAL_LENGTH,
    )


def length_words(origin: Origin) -> str:
    """Return how long sequences are taken to be, as an option, and whose length it is."""
    whose = f" (as {origin.owner} was trained)" if origin.owner else ""
    return f"{flag_of('sequence_length')} {origin.value:g}{whose}"


def check_options_used(points: Iterable[Point], asked: Mapping[str, str], *, run: bool) -> None:
    """Refuse options that no plan that is searched can use."""
    context = click.get_current_context()
    from_file = found_in(context)
    taken = from_file.taken if from_file else {}
    typed = {name for name, value in context.params.items() if value is not None} - taken.keys()
    check_used(points, {name: asked[name] for name in asked if name in typed}, run=run)


def _at_one_point(request: Request, asked: Asked, given: Planned) -> int:
    """Answer a question at one point."""
    from sweeps.cli.plan_report import answer_lines, nothing_lines, question, reached

    if asked.explain:
        from sweeps.cli.plan_explain import explain

        refuse_given(UNEXPLAINED, "says nothing of one plan that is explained", "leave it out")
        return explain(request, asked, given)
    out = Output(given, "plan-sensitivity" if given["sensitivity"] else "plan")
    if given["sensitivity"]:
        refuse_given(UNMOVED, "is not in what constants move", "one of the two")
    if out.programs:
        refuse_given(("lost_nodes", "show"), "is on screen, not in records", "one of the two")
    out.checked()
    check_folder(given)
    progress = Progress("searching")
    solution = answer(request.first, progress=progress)
    progress.end()
    plans = Plans(request, solution, None, asked.tokens, asked.days, given["top"] or KEPT_SPLITS)
    keep(plans=plans)
    if solution.recommended is None:
        sys.stdout.writelines(fitted(nothing_lines(solution, asked, given["show"])))
        return 1
    if given["sensitivity"]:
        from sweeps.cli.plan_report import survival_lines

        lasting = survival(solution)
        lines = survival_lines(solution, lasting, every=given["verbose"])
        out.deliver(lasting.own.result(given, lasting.columns()), lines)
        return 0
    result = cache(lambda: plans.result(given, formulas=str(file_options(given)["formulas"])))
    lines = answer_lines(solution, asked, given)
    out.deliver(result, lines, lambda dataset: _figures(dataset, plans))
    best = solution.main[0]
    heading = (best.plan.name, question(solution), f"Predicted: {reached(best)}")
    out.notes.writelines(fitted(save(given, best.plan, solution.point, heading, result)))
    return 0


# What a sensitivity, a plan that is explained, and many points have no use for.
UNMOVED = ("lost_nodes", "show", "top", "tokens", "days", "save")
UNEXPLAINED = (
    "sensitivity",
    "lost_nodes",
    "show",
    "top",
    "save",
    "as_csv",
    "as_json",
    "output",
    "plot",
    "overwrite",
    "compress",
)


def _at_many_points(request: Request, asked: Asked, given: Planned) -> int:
    """Answer a question at many points."""
    options = (
        "explain",
        "sensitivity",
        "lost_nodes",
        "tokens",
        "days",
        "top",
        "show",
        "verbose",
        "save",
    )
    refuse_given(options, "is for one point, and there are many", "one value for every argument")
    out = Output(given, "plan").checked()
    progress = Progress("searching")
    best = best_at(request, progress)
    progress.end()
    plans = Plans(request, best=best)
    keep(plans=plans)
    result = plans.result(given, formulas=str(file_options(given)["formulas"]))
    lines = _table(plans, result, asked)
    out.deliver(result, lines, lambda dataset: _figures(dataset, plans))
    return 0 if any(best.plans) else 1


def _table(plans: Plans, result: Result, asked: Asked) -> Iterator[str]:
    from sweeps.cli.plan_report import impossible_lines, range_rows
    from sweeps.cli.tables import idle_axes

    assert plans.best is not None
    first = plans.request.first
    count = len(plans.best.plans)
    times = [float(point["step_time"]) for point in result.values() if point.get("step_time")]
    ends = [f"{shown('step_time', end)}" for end in (max(times), min(times))] if times else []
    names = display.BANDS["step_time"]
    pairs = [(row[names[0]], row[names[1]]) for row in result.values() if row.get("step_time")]
    band = " to ".join(bands_words(pairs))
    steps = f": steps of {' to '.join(dict.fromkeys(ends))} ({band})" if ends else ""
    yield f"the plan with {first.objective.words} at each of {count:,} points{steps}"
    yield from impossible_lines(plans.best.plans)
    yield from (f"  ({line})" for line in asked.readings)
    groups = ("plan", "step", "memory", "rates", "cost")
    rows = range_rows(result, display.rows(*groups, screen="best"))
    yield from aligned(rows, left=len(plans.request.axes) + 1, indent="")
    lines = dict.fromkeys(line for refusals in plans.best.refused.values() for line in refusals)
    yield from (f"refused at some points: {line}" for line in lines)
    points = [*result.values()]
    yield from idle_axes(points, [axis.name for axis in plans.request.axes])
    if asked.assumed:
        yield f"Defaults: {', '.join(asked.assumed)}"


def _figures(dataset: xr.Dataset, plans: Plans) -> Sequence[Mapping[str, object]]:
    """Return the figures of a table: those that suit it, and which plan wins where."""
    from sweeps.plots.defaults import default_figures

    usual = default_figures(dataset)
    if plans.answer is None:
        return [*range_figures(plans.request), *usual]
    figures = point_figures(plans.answer)
    named = {figure["kind"] for figure in figures}
    return [*figures, *(figure for figure in usual if figure["kind"] not in named)]
