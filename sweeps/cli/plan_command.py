"""``sweeps plan``: the best plan, with reasons, or a table; ``sweeps buy``: GPUs for a training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import click

from overhead.labels import HIERARCHY
from sweeps import display
from sweeps.bands import band_of, band_words, bands_words, money, three
from sweeps.cli import flags
from sweeps.cli.options import (
    file_options,
    folders_of,
    output_options,
    price_words,
    sweep_of_options,
)
from sweeps.cli.typed import flag_of, flags_of
from sweeps.cli.write import Output, Progress, shown
from sweeps.errors import InputError, fault, refuse, tell_all
from sweeps.origin import Origin
from sweeps.own_formulas import load_formulas
from sweeps.result import Result, aligned, fitted, prose, provenance_of
from sweeps.search.answer import answer, point_figures, range_figures, survival
from sweeps.search.batches import Batches, batches_of
from sweeps.search.idle import check_used
from sweeps.search.interface import (
    FIGURE,
    KEPT_SPLITS,
    Offer,
    Plans,
    Tried,
    Wish,
    best_batch,
    layout,
    offers,
    spec_of,
)
from sweeps.search.repair import best_at
from sweeps.search.request import ALIASES, CHOICES, DEFAULT_THRESHOLD, Point, Request, read_request
from sweeps.search.space import common_of
from sweeps.search.words import bound_by, memory_words
from sweeps.spec.catalog import load_hardware
from sweeps.spec.model import USUAL_LENGTH
from sweeps.spec.names import quantity_of
from sweeps.spec.sweep import read_sweep
from sweeps.spec.units import parse_quantity

if TYPE_CHECKING:
    import xarray as xr

# Options of ``sweeps plan``, and how what is written in them is read.

Command = TypeVar("Command", bound=Callable[..., Any])

# The flags of the strategy calculator: a short name, what it gives, its default there, what it is.
SEED_FLAGS = (
    ("-p", "parameters", "70", "Parameters of a model without shapes: billions, from 1e6 on SI."),
    ("-g", "world_size", "64", "GPUs."),
    ("-m", "memory_capacity", "80", "Memory of a GPU: GB, from 1e6 on bytes."),
    ("-b", "global_batch", "512", "Sequences of a step, over all ranks, or tokens: 4M."),
    ("-s", "sequence_length", "4096", "Tokens of a sequence, such as 8k (8,192)."),
)
# Whose value is taken first where nothing is said.
WHOSE = {"memory_capacity": "the machine's", "sequence_length": "the model's training length"}
# Their further names, which are of the calculator's script.
OF_SCRIPT = {"memory_capacity": ("--memory",), "global_batch": ("--batch-size",)}
# What the search decides by itself, or the flags above give.
LEFT_OUT = (
    "world_size", "global_batch", "micro_batches", "parameters", "sequence_length",
    "memory_capacity", "experts", "training_tokens",
)  # fmt: skip
OTHERS = tuple(name for name in flags.OF_TRAINING if name not in LEFT_OUT)
SHAPES = tuple(name for name in OTHERS if flags.SECTION_OF[name] == flags.BATCH
               and name not in ("model", "tokens_per_step"))  # fmt: skip
# Options of this command that the calculator's table hasn't, with what they are if not given.
PLANNED: dict[str, Any] = {
    **dict.fromkeys(("explain", "lost_nodes", "tokens", "days", "top")),
    "objective": "time", "verbose": False, "sensitivity": False,
}  # fmt: skip
# What the calculator takes of sizes, beside what it asks for.
CALCULATED = (
    "layers", "hidden_size", "heads", "vocabulary_size", "ffn_size", "experts_per_token",
    "gpus_per_node", "weight_bytes", "gradient_bytes", "optimizer_bytes",
)  # fmt: skip
# A schedule without a backward is none of training.
FORWARD = "forward_only"
SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


@dataclass(frozen=True)
class Asked:
    """What the command is asked."""

    given: Mapping[str, str]  # Values by quantity or label, as text
    readings: tuple[str, ...]  # How numbers were read that could be read in two ways
    assumed: tuple[str, ...]  # What wasn't given, as it was taken
    calculator: bool  # Whether it is a question for the strategy calculator's table
    experts: str | None = None  # How many experts, of such a model
    # The plan that is to be explained; empty where none is
    explain: Mapping[str, str] = field(default_factory=dict)
    tokens: float | None = None  # Of the whole training
    days: float | None = None


def plan_options(command: Command) -> Command:
    """Add the options of the command."""
    extra = (
        click.option("--moe", is_flag=True, help="A mixture of experts, without shapes."),
        click.option("--num-experts", "--experts", "num_experts", metavar="N",
                     help="Its experts, of every layer.  [default: 64]"),
        click.option(*flags_of("script"), "script", is_flag=True,
                     help="The rows of the script that the calculator follows, beside ours."),
        click.option("--objective", default=PLANNED["objective"], metavar="NAME",
                     help="time, memory, energy, cost or tokens (a GPU).  [default: time]"),
        click.option(*flags_of("memory_threshold"), "memory_threshold", default="0.9",
                     metavar="SHARE",
                     help="Share of the memory that a plan may take.  [default: 0.9]"),
        click.option("--top", type=click.IntRange(1), metavar="N",
                     help="Splits that are shown.  [default: 10; of records and files 50]"),
        click.option(*flags_of("explain"), "explain", metavar="PLAN",
                     help="The full report of one plan, such as tp=8,pp=4,dp=2."),
        click.option(*flags_of("lost_nodes"), "lost_nodes", type=click.IntRange(1),
                     metavar="N", help="What is best when so many nodes are lost."),
        click.option("--sensitivity", is_flag=True,
                     help="Whether the plan stays the best with each constant at x0.9 and x1.1."),
        click.option("--tokens", metavar="N", help="Tokens of the training, such as 2T: days."),
        click.option("--days", metavar="N", help="Days of the training: tokens."),
        click.option("--tree-algo", is_flag=True, help="The tree algorithm of an all_reduce."),
        click.option("--verbose", "-v", is_flag=True, help="Sources of all that is assumed."),
    )  # fmt: skip
    for option in reversed(extra):
        command = option(command)
    command = flags.options(*OTHERS)(command)
    for short, name, default, words in reversed(SEED_FLAGS):
        names = (*flags_of(name), *OF_SCRIPT.get(name, ()), short)
        whose = {
            "memory_capacity": "the machine's",
            "sequence_length": "the model's training length",
        }
        taken = f"{whose[name]}, or {default}" if name in whose else default
        text = f"{words}  [default: {taken}]"
        command = click.option(*names, name, help=text, metavar="VALUES")(command)
    return command


def read_options(given: Mapping[str, Any]) -> Asked:
    """Read what click gives."""
    model = given["model"] is not None
    shaped = [name for name in SHAPES if given[name] is not None]
    counted = given["parameters"] is not None
    calculator = not model and (counted or not {"heads", "vocabulary_size"} & set(shaped))
    faults = list(_contradictions(given, model=model, calculator=calculator))
    assumed: list[str] = []
    values: dict[str, str] = {}
    for _, name, default, _ in SEED_FLAGS:
        text = given[name]
        if name == "world_size" and text is None and given["nodes"] is not None:
            continue
        if text is None and (calculator or name in ("world_size", "global_batch")):
            assumed.append(f"{flag_of(name)} {default}")
            text = default
        if text is not None:
            values[name] = text
    readings: list[str] = []
    numbers = [read_number(f"--{one}", given[one], faults, one) for one in ("tokens", "days")]
    explain = _explain(given["explain"], faults)
    tell_all(faults)
    for name, unit in (("memory_capacity", "GB"), ("parameters", "billions")):
        if name in values:
            values[name] = flags.scaled(flag_of(name), values[name], unit, readings)
    if not calculator:
        values.pop("parameters", None)
    values |= _others(given)
    if "tokens_per_step" in values and given["global_batch"] is None:
        values.pop("global_batch", None)
        assumed = [text for text in assumed if not text.startswith(flag_of("global_batch"))]
    readings += flags.in_tokens(values, flag_of("global_batch"))
    experts = given["num_experts"] if given["moe"] or given["num_experts"] else None
    if given["moe"] and experts is None:
        experts = "64"
        assumed.append("--num-experts 64")
    if not calculator and experts is not None:
        values["experts"] = experts
    if calculator and "nodes" in values:
        values |= {"world_size": _gpus(values, folders_of(given))}
        values.pop("nodes")
    return Asked(values, tuple(readings), tuple(assumed), calculator, experts, explain, *numbers)


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


def _contradictions(given: Mapping[str, Any], *, model: bool, calculator: bool) -> Iterator[str]:
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


def _of_planner(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options given that the calculator's table hasn't: a whole plan has them."""
    kept = (*CALCULATED, "tokens_per_step", "nodes")
    found: dict[str, Any] = {
        flag_of(name): text
        for name, text in flags.given_options(given, OTHERS).items()
        if text is not None and name not in kept
    }
    several = {name: given[name] for name, usual in PLANNED.items() if given[name] != usual}
    if given["tree_algo"]:
        several["tree_algo"] = "set"
    return found | {flag_of(name): value for name, value in several.items()}


def _others(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the other options that were given, as a sweep has them."""
    every = flags.given_options(given, OTHERS)
    found = {name: text for name, text in every.items() if text is not None}
    if given["schedule"] is not None and given["schedule"].strip() == "all":
        found["schedule"] = ",".join(one for one in found["schedule"].split(",") if one != FORWARD)
    if given["tree_algo"]:
        topology = found.get("topology")
        found["algorithm"] = flags.tree_algorithm(topology, found.get("algorithm"), HIERARCHY)
    return found


def _explain(text: str | None, faults: list[str]) -> dict[str, str]:
    """Return the settings of a plan that is to be explained."""
    found: dict[str, str] = {}
    for piece in (text or "").split(","):
        if not piece.strip():
            continue
        name, equals, value = (part.strip() for part in piece.partition("="))
        own = quantity_of(ALIASES.get(name, name), training=True)
        if not equals or own not in CHOICES:
            allowed = "name=value of tp, cp, pp, dp, ep, micro_batch, zero_stage, recompute, .."
            faults.append(fault(flag_of("explain"), piece.strip(), "can't be read", allowed))
            continue
        found[own] = flags.read(own, value) or value
    if text is not None and not found and not faults:
        faults.append(fault(flag_of("explain"), text, "names no plan", "such as tp=8,pp=4,dp=2"))
    return found


def read_number(flag: str, text: str | None, faults: list[str], unit: str) -> float | None:
    """Read a number above 0, such as 15T; None where there is none, or a fault with it."""
    if text is None:
        return None
    plain = text.strip().removesuffix(unit).strip()
    scale = SCALES.get(plain[-1:].lower(), 1.0)
    try:
        value = float(plain[:-1] if scale > 1.0 else plain) * scale
    except ValueError:
        value = float("nan")
    if not 0.0 < value < float("inf"):
        allowed = "a number above 0, such as 2T, 300B or 1e12" if unit == "tokens" else "such as 21"
        faults.append(fault(flag, text, "can't be read", allowed))
        return None
    return value


@click.command(flags.SEARCH, cls=flags.SweepCommand)
@plan_options
@output_options
def command(**given: Any) -> int:
    """The best parallel plan for a model on a machine, and why.

    One value for every argument prints a report; several of what isn't the plan's to choose, such
    as --gpus 64:4096:x2, give the best plan at each point.  Several values of tp, recompute and
    the like limit what is searched.  With --parameters in place of --model it does what the
    parallel strategy calculator does; with options that this hasn't, it plans on its sizes.
    """
    load_formulas(given["formulas"])
    asked = read_options(given)
    if asked.calculator:
        from sweeps.cli.plan_calculator import calculator, planned

        if not _of_planner(given):
            return calculator(asked, given)
        asked = planned(asked, given)
    request = _request(asked, given)
    run = asked.tokens is not None or asked.days is not None
    _check_used(request.points(), asked.given, run=run)
    asked = replace(asked, assumed=(*asked.assumed, *map(length_words, request.lengths)))
    if request.axes:
        return _many(request, asked, given)
    return _one(request, asked, given)


def _request(asked: Asked, given: Mapping[str, Any]) -> Request:
    threshold = parse_quantity(
        given["memory_threshold"], "1", field=flag_of("memory_threshold"), bare_is_si=True
    )
    folders = folders_of(given)
    return read_request(
        asked.given, objective=given["objective"], threshold=threshold, folders=folders,
        usual_length=USUAL_LENGTH,
    )  # fmt: skip


def length_words(origin: Origin) -> str:
    """Return how long sequences are taken to be, as an option, and whose length it is."""
    whose = f" (as {origin.owner} was trained)" if origin.owner else ""
    return f"{flag_of('sequence_length')} {origin.value:g}{whose}"


def _check_used(points: Iterable[Point], asked: Mapping[str, str], *, run: bool) -> None:
    """Refuse options that no plan that is searched can use."""
    typed = click.get_current_context().params
    check_used(points, {name: asked[name] for name in asked if typed.get(name) is not None},
               run=run)  # fmt: skip


def _one(request: Request, asked: Asked, given: dict[str, Any]) -> int:
    """Answer a question at one point."""
    from sweeps.cli.plan_report import answer_lines, nothing_lines

    if asked.explain:
        from sweeps.cli.plan_report import explain

        _refuse(given, UNEXPLAINED, "says nothing of one plan that is explained", "leave it out")
        return explain(request, asked, given)
    out = Output(given, "plan-sensitivity" if given["sensitivity"] else "plan")
    if given["sensitivity"]:
        _refuse(given, UNMOVED, "is not in what constants move", "one of the two")
    if out.programs:
        _refuse(given, ("lost_nodes",), "is told to people, not in records", "one of the two")
    out.checked()
    progress = Progress("searching")
    found = answer(request.first, progress=progress)
    progress.end()
    plans = Plans(request, found, None, asked.tokens, asked.days, given["top"] or KEPT_SPLITS)
    if found.recommended is None:
        sys.stdout.writelines(fitted(nothing_lines(found, asked)))
        return 1
    if given["sensitivity"]:
        from sweeps.cli.plan_report import survival_lines

        lasting = survival(found)
        lines = survival_lines(found, lasting, every=given["verbose"])
        out.deliver(lasting.own.result(given, lasting.columns()), lines)
        return 0
    result = plans.result(given, formulas=file_options(given)["formulas"])
    lines = answer_lines(found, asked, given)
    out.deliver(result, lines, lambda dataset: _figures(dataset, plans))
    return 0


# What a sensitivity, a plan that is explained, and many points have no use for.
UNMOVED = ("lost_nodes", "top", "tokens", "days")
UNEXPLAINED = ("sensitivity", "lost_nodes", "top", "csv", "json", "output", "plot", "overwrite",
               "compress", "digits")  # fmt: skip


def _refuse(given: Mapping[str, Any], names: Sequence[str], wrong: str, allowed: str) -> None:
    """Refuse those of some options that are given: they would do nothing."""
    values = {name: given.get(name, given.get(f"as_{name}")) for name in names}
    faults = [
        fault(flag_of(name), "set" if value is True else value, wrong, allowed)
        for name, value in values.items()
        if value not in (None, False)
    ]
    tell_all(faults)


def _many(request: Request, asked: Asked, given: dict[str, Any]) -> int:
    """Answer a question at many points."""
    one = ("explain", "sensitivity", "lost_nodes", "tokens", "days", "top", "verbose")
    _refuse(given, one, "is for one point, and there are many", "one value for every argument")
    out = Output(given, "plan").checked()
    progress = Progress("searching")
    best = best_at(request, progress)
    progress.end()
    plans = Plans(request, best=best)
    result = plans.result(given, formulas=file_options(given)["formulas"])
    lines = _table(plans, result, asked)
    out.deliver(result, lines, lambda dataset: _figures(dataset, plans))
    return 0 if any(best.plans) else 1


def _table(plans: Plans, result: Result, asked: Asked) -> Iterator[str]:
    from sweeps.cli.plan_report import range_rows

    assert plans.best is not None
    first = plans.request.first
    count = len(plans.best.plans)
    times = [float(one["step_time"]) for one in result.values() if one.get("step_time")]
    ends = [f"{shown('step_time', end)}" for end in (max(times), min(times))] if times else []
    names = display.BANDS["step_time"]
    pairs = [(own[names[0]], own[names[1]]) for own in result.values() if own.get("step_time")]
    band = " to ".join(bands_words(pairs))
    steps = f": steps of {' to '.join(dict.fromkeys(ends))} ({band})" if ends else ""
    yield f"the plan with {first.objective.words} at each of {count:,} points{steps}"
    yield from (f"  ({line})" for line in asked.readings)
    groups = ("plan", "step", "memory", "rates", "cost")
    rows = range_rows(result, display.rows(*groups, place="best"))
    yield from aligned(rows, left=len(plans.request.axes) + 1, indent="")
    lines = dict.fromkeys(line for own in plans.best.refused.values() for line in own)
    yield from (f"refused at some points: {line}" for line in lines)
    if asked.assumed:
        yield f"not given, so taken as: {', '.join(asked.assumed)}"


def _figures(dataset: xr.Dataset, plans: Plans) -> Sequence[Mapping[str, Any]]:
    """Return the figures of a table: those that suit it, and which plan wins where."""
    from sweeps.plots.defaults import default_figures

    usual = default_figures(dataset)
    if plans.answer is None:
        return [*range_figures(plans.request), *usual]
    own = point_figures(plans.answer)
    named = {figure["kind"] for figure in own}
    return [*own, *(figure for figure in usual if figure["kind"] not in named)]


# What is of one machine, so that each may have its own: NAME=VALUE,NAME=VALUE.
EACH = ("price", "capital")
# How many GPUs is what is asked.
GPUS_OF_PLANS = ("world_size", "nodes")
# Of so many all splits can be that a purchase may have: nodes of 8 and 72 GPUs, and stages of 3.
MANY_GPUS = 2304.0
OF_BUYING = tuple(name for name in OTHERS if name not in GPUS_OF_PLANS)
# Sequences of a step where neither is said nor does a publication help, as `sweeps plan` has them.
USUAL_BATCH = "512"


@click.command("buy", cls=flags.SweepCommand)
@click.option("--tokens", required=True, metavar="N", help="Tokens of the training, such as 15T.")
@click.option("--days", required=True, metavar="N", help="Days in which it has to be done.")
@click.option("--budget", metavar="USD", help="What it may cost, such as 20M.")
@click.option(*flags_of("global_batch"), "--batch-size", "-b", "global_batch", metavar="N",
              help="Sequences of a step, or tokens: 4M.  [default: searched]")  # fmt: skip
@click.option(*flags_of("sequence_length"), "-s", "sequence_length", metavar="N",
              help="Tokens of a sequence, such as 8k.  "
                   "[default: the model's training length, or 4096]")  # fmt: skip
@click.option(*flags_of("capital"), "capital", metavar="USD",
              help="Price of owning a GPU, in place of --price.")  # fmt: skip
@flags.options(*OF_BUYING)
@output_options
def buy_command(**given: Any) -> int:
    """How many GPUs of each machine train a model on so many tokens in so many days.

    For each machine of --hardware the least number of GPUs that makes it, with its plan, days,
    dollars, energy and spares, what binds, and the next smaller number, which just fails.
    --price and --capital take one value, or one a machine: dgx-h100=2.5,dgx-b200=4 (USD/h).
    A batch that isn't given is searched between published ones: the answer names the smallest whose
    run is as cheap as any within a step's error, and a table says what the others do.
    """
    load_formulas(given["formulas"])
    asked = _asked(given)
    if asked.wish.budget < inf:
        asked = replace(
            asked, readings=[*asked.readings, *_unpriced(asked.points, given["budget"])]
        )
    out = Output(given, "buy").checked()
    bars = [Progress("")]

    def telling(name: str, batch: float) -> Progress:
        bars[-1].end()
        bars.append(Progress(f"searching {name}, {asked.tokens(batch)} tokens a step"))
        return bars[-1]

    found = offers(asked.points, asked.wish, asked.sequences, telling)
    bars[-1].end()
    attrs = _provenance(asked.points, asked.wish, given)
    lines = _lines(found, asked)
    if any(one.detail for own in found for one in own.tried):
        result = Result(layout(found, asked.wish, asked.first, attrs))
        priced = any(not isnan(one.cost) for own in found for one in own.tried)
        figure = FIGURE if priced else {**FIGURE, "name": "days-over-gpu-hours",
                                        "x": "run_gpu_hours"}  # fmt: skip
        out.deliver(result, lines, [figure])
    else:
        sys.stdout.writelines(fitted(lines))
    return 0 if any(_makes(one, asked.wish) for one in found) else 1


@dataclass(frozen=True)
class Purchase:
    """What the command is asked."""

    wish: Wish
    points: Mapping[str, Point]  # Each machine's question
    sequences: tuple[float, ...]  # Of a step: the batches that are searched, from small to large
    batches: Batches | None  # Whose they are, where none is given
    readings: Sequence[str]  # How numbers were read
    assumed: Sequence[str]  # What wasn't given, as it was taken

    @property
    def first(self) -> Point:
        """The question about the first machine."""
        return next(iter(self.points.values()))

    def tokens(self, batch: float) -> str:
        """Return the tokens of so many sequences, in words."""
        return f"{batch * self.first.constants['sequence_length'] / 1e6:.3g} M"


def _makes(one: Offer, wish: Wish) -> bool:
    """Whether a number of a machine's GPUs makes it."""
    return one.least is not None and not one.least.fails(wish)


def _asked(given: Mapping[str, Any]) -> Purchase:
    """Return what is wanted, how it was read, what is assumed, and each machine's question."""
    faults: list[str] = []
    tokens = read_number("--tokens", given["tokens"], faults, "tokens")
    days = read_number("--days", given["days"], faults, "days")
    budget = read_number("--budget", given["budget"], faults, "USD")
    every = flags.given_options(given, OF_BUYING)
    faults += [fault(flag_of(name), every[name], "is what buy finds", "sweeps plan, of so many")
               for name in GPUS_OF_PLANS if every.get(name) is not None]  # fmt: skip
    values = {name: text for name, text in every.items() if text is not None}
    own = ("global_batch", "sequence_length")
    values |= {name: given[name] for name in own if given[name] is not None}
    readings = flags.in_tokens(values, flag_of("global_batch"))
    free = not {"global_batch", "tokens_per_step"} & values.keys()
    machines = str(values.pop("hardware", "dgx-h100")).split(",")
    each = {name: _each(name, given.get(name), machines, faults) for name in EACH}
    for name in EACH:
        values.pop(name, None)
    if faults or tokens is None or days is None:
        raise InputError(faults)
    folders = folders_of(given)
    points = {}
    for machine in machines:
        prices = {name: texts[machine] for name, texts in each.items() if machine in texts}
        asked = {"world_size": "8", **({"global_batch": USUAL_BATCH} if free else {}),
                 **values, **prices, "hardware": machine}  # fmt: skip
        request = read_request(asked, objective="time", folders=folders, usual_length=USUAL_LENGTH)
        if request.axes:
            raise InputError([
                fault(flag_of(axis.name), str(asked.get(axis.name, "several values")),
                      "has several values",
                      f"one value, or {machine}=VALUE,.." if axis.name in EACH else "one value")
                for axis in request.axes
            ])  # fmt: skip
        points[machine] = request.first
    some = [one.with_constants(world_size=MANY_GPUS) for one in points.values()]
    told = {name: text for name, text in every.items() if text is not None}
    _check_used(some, {**told, **values}, run=True)
    first = points[machines[0]]
    assumed = [length_words(one) for one in request.lengths]
    known = common_of(first)[2].constants
    batches = batches_of(first.labels.get("model", ""), known, tokens, folders) if free else None
    if batches is not None:
        assumed.append(batches.words)
    elif free:
        assumed.append(f"{flag_of('global_batch')} {USUAL_BATCH}")
    sequences = batches.sequences if batches else (first.constants["global_batch"],)
    wish = Wish(tokens, days, inf if budget is None else budget)
    return Purchase(wish, points, sequences, batches, readings, assumed)


def _unpriced(points: Mapping[str, Point], budget: str) -> Iterator[str]:
    """Yield a note on machines without a price, which no budget binds; refuse one for nothing."""
    names = [
        name for name, point in points.items()
        if not {"price", "capital"} & set(point.constants)
        and "price" not in load_hardware(name, point.folders).figures
    ]  # fmt: skip
    listed = ", ".join(names)
    if len(names) == len(points):
        wrong = f"can't be kept: no price is known of {listed}"
        refuse("--budget", budget, wrong, "--price or --capital, too")
    if names:
        yield f"no price is known of {listed}, which no budget binds: --price {names[0]}=2.5"


def _each(
    name: str, text: str | None, machines: Sequence[str], faults: list[str]
) -> dict[str, str]:
    """Return a value for each machine: one for all, or those of ``machine=value,..``."""
    if text is None:
        return {}
    if "=" not in text:
        return dict.fromkeys(machines, text)
    found = {}
    for piece in text.split(","):
        machine, _, value = (part.strip() for part in piece.partition("="))
        if machine not in machines or not value:
            allowed = f"one value, or machine=value of {', '.join(machines)}"
            faults.append(fault(flag_of(name), piece, "can't be read", allowed))
        found[machine] = value
    return found


def _provenance(
    points: Mapping[str, Point], wish: Wish, given: Mapping[str, Any]
) -> dict[str, str]:
    asked = {name: spec_of(Request(point)) for name, point in points.items()}
    machines = [load_hardware(name, point.folders) for name, point in points.items()]
    formulas = file_options(given)["formulas"]
    wanted = {"tokens": wish.tokens, "days": wish.days}
    return provenance_of(
        title="GPUs for a training in time",
        summary="For each machine numbers of GPUs with their best plan, days and cost.",
        spec={"title": "GPUs for a training in time", **wanted, "machines": asked},
        given=given,
        references="formulas of the training step: sweeps list",
        inputs=[formulas, *((machine.name, machine.figures) for machine in machines)],
    )


# The report.


def _lines(found: Sequence[Offer], asked: Purchase) -> Iterator[str]:
    wish = asked.wish
    batch = best_batch(found, wish) or found[-1].batch
    budget = f", for up to {money(wish.budget)}" if wish.budget < inf else ""
    here = [one for one in found if one.batch == batch]
    made = _ordered([one for one in here if one.least], wish)
    model = asked.first.labels.get("model", "the model")
    yield _first(made, here, wish)
    yield f"  {model} on {wish.tokens / 1e12:.4g} T tokens in {wish.days:g} days{budget}"
    length = asked.first.constants["sequence_length"]
    line = f"  {batch:g} sequences of {length:g} tokens a step, {asked.tokens(batch)} tokens"
    chosen = len(asked.sequences) > 1 and any(_makes(one, wish) for one in made)
    why = "the smallest of those searched whose run is as cheap as any, within a step's error"
    yield f"{line}: {why}" if chosen else line
    yield from (f"  ({line})" for line in asked.readings)
    if made:
        yield from aligned([HEAD, *(row for one in made for row in _rows(one, wish))], left=1)
    unpriced = [
        name for name in asked.points
        if any(own.detail and isnan(own.cost) for one in found for own in one.tried
               if one.machine == name)
    ]  # fmt: skip
    if unpriced:
        names = ", ".join(unpriced)
        yield (f"  cost: no price is known of {names}; give --price {unpriced[0]}=2.5 (USD for a "
               "GPU-hour) or --capital")  # fmt: skip
    yield ""
    if len(asked.sequences) > 1 and any(one.tried for one in found):
        yield from _by_batch(found, asked)
    for one in [*made, *(one for one in here if one.least is None)]:
        yield from _of_machine(one, wish)
    if not made and asked.batches is None and any(one.tried for one in here):
        yield f"a larger batch may do: {flag_of('global_batch')}"
    if asked.assumed:
        yield from wrap(f"not given, so taken as: {', '.join(asked.assumed)}", prose(),
                        subsequent_indent="  ", break_on_hyphens=False)  # fmt: skip
    for name, point in asked.points.items():
        if not {"price", "capital"} & set(point.constants) and (
            old := price_words(load_hardware(name, point.folders))
        ):
            yield from wrap(old, prose(), subsequent_indent="  ")
    yield "numbers of nodes with prime factors up to 7 are looked at; sweeps plan says all of one"


def _by_batch(found: Sequence[Offer], asked: Purchase) -> Iterator[str]:
    """Yield what each batch that was searched does."""
    rows = [["tokens a step", "", "GPUs", "days", "cost", "MFU", ""]]
    for one in found:
        best = one.best(asked.wish)
        if best is None or best.detail is None:
            rows.append([asked.tokens(one.batch), one.machine, "-", "-", "-", "-", one.why])
            continue
        texts = [shown(name, best.detail[name]) for name in ("run_days", "run_cost", "mfu")]
        late = best.fails(asked.wish)
        late = f"at best; {late}" if one.least is None else late
        rows.append([asked.tokens(one.batch), one.machine, f"{best.gpus:,}", *texts, late])
    yield "by batch (of batches but the one above one number of GPUs in each doubling was tried)"
    yield from aligned(rows, left=2)
    yield ""


HEAD = [
    "",
    "GPUs",
    "days",
    "measured",
    "goodput",
    "cost",
    "T tokens",
    "energy",
    "spare servers",
    "MFU",
    "",
]


def _ordered(made: Sequence[Offer], wish: Wish) -> list[Offer]:
    """Return machines that can, the cheapest first, then those that just can't."""

    def key(one: Offer) -> tuple[bool, float]:
        best = one.best(wish)
        assert best is not None
        return bool(best.fails(wish)), best.cost if priced else best.hours

    priced = not any(isnan(one.least.cost) for one in made if one.least)
    return sorted(made, key=key)


def _first(made: Sequence[Offer], every: Sequence[Offer], wish: Wish) -> str:
    """Return what to buy, in a few words; of what can't be, what bounds it."""
    best = made[0].best(wish) if made else None
    if best is None or best.detail is None:
        several = len(every) > 1
        why = "; ".join(f"{one.machine}: {one.why}" if several else one.why for one in every)
        return f"no machine can: {why}"
    if why := best.fails(wish):
        return f"no machine can; nearest are {best.gpus:,} GPUs of {made[0].machine} ({why})"
    cost = "" if isnan(best.cost) else f", {shown('run_cost', best.detail['run_cost'])}"
    low, high = (best.detail[name] for name in display.BANDS["step_time"])
    ends = " to ".join(three(best.days * (1.0 + end)) for end in (low, high))
    band = f"{band_words(low, high)}: {ends}"
    text = f"{best.gpus:,} GPUs of {made[0].machine}: {three(best.days)} days ({band}){cost}"
    return f"{text}; {best.verdict(wish)} the {wish.days:g} days"


def _run_words(one: Tried) -> str:
    """Return how long a run takes and what it costs."""
    assert one.detail is not None
    cost = "" if isnan(one.cost) else f", {shown('run_cost', one.detail['run_cost'])}"
    return f"{shown('run_days', one.detail['run_days'])}{cost}"


def _rows(one: Offer, wish: Wish) -> Iterator[list[str]]:
    """Yield a machine's rows: the number of GPUs to take, and the least that makes it."""
    names = ("run_days", "goodput", "run_cost", "useful_cost", "training_energy", "spare_servers")
    best = one.best(wish)
    for own in (best, one.least) if one.least is not best else (best,):
        assert own is not None
        assert own.detail is not None
        days, *texts = (shown(name, own.detail[name]) for name in (*names, "mfu"))
        band = band_of("step_time", own.detail.values.get)
        why = own.fails(wish) or ("" if own is best else "the fewest")
        yield [one.machine, f"{own.gpus:,}", days, band, *texts, why]


def _of_machine(one: Offer, wish: Wish) -> Iterator[str]:
    """Yield what binds on a machine: its plan, and the number of GPUs that just fails."""
    from sweeps.cli.plan_experts import bullets

    yield one.machine
    best = one.best(wish)
    if one.least is None or best is None or best.detail is None:
        yield from bullets([one.why])
        yield ""
        return
    detail = best.detail
    lines = [f"{best.gpus:,} GPUs, {best.verdict(wish)}: {detail.plan.name}", bound_by(detail)]
    lines.append(memory_words(detail, DEFAULT_THRESHOLD))
    if one.why:
        lines.append(f"over what is allowed: {one.why}")
    if best is not one.least:
        lines.append(f"fewer make it, and cost more: {one.least.gpus:,} GPUs: "
                     f"{_run_words(one.least)}")  # fmt: skip
    less = one.neighbour
    if less is not None:
        short = less.fails(wish) or "it would do"
        plan = f" ({less.detail.plan.split})" if less.detail else ""
        lines.append(f"next smaller: {less.gpus:,} GPUs{plan}: {short}")
    searched = f"searched: {', '.join(f'{own.gpus:,}' for own in one.tried)} GPUs"
    rest = f"; bounds rule out the {one.ruled_out} other smaller numbers" if one.ruled_out else ""
    lines.append(searched + rest)
    yield from bullets(lines)
    yield ""
