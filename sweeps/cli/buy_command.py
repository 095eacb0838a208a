"""``sweeps buy``: how many GPUs of which machine a training needs, with days, dollars, energy."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isnan
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli import flags
from sweeps.cli.options import file_options, folders_of, output_options
from sweeps.cli.plan_command import OTHERS, read_number
from sweeps.errors import InputError, fault

if TYPE_CHECKING:
    from sweeps.search.buy import Offer, Tried, Wish
    from sweeps.search.request import Point

# What is of one machine, so that each may have its own: NAME=VALUE,NAME=VALUE.
EACH = ("price", "capital")
# Taken where nothing is said, as `sweeps plan` takes them.
USUAL = {"global_batch": "512", "sequence_length": "4096"}
NAMES = {"global_batch": "--batch-size", "sequence_length": "--seq-len"}


@click.command("buy", cls=flags.SweepCommand)
@click.option("--tokens", required=True, metavar="N", help="Tokens of the training, such as 15T.")
@click.option("--days", required=True, metavar="N", help="Days in which it has to be done.")
@click.option("--budget", metavar="USD", help="What it may cost, such as 20M.")
@click.option("--batch-size", "--global-batch", "-b", "global_batch", metavar="N",
              help="Sequences of a step, or tokens: 4M.  [default: 512]")  # fmt: skip
@click.option("--seq-len", "--seq-length", "-s", "sequence_length", metavar="N",
              help="Tokens of a sequence, such as 8k.  [default: 4096]")  # fmt: skip
@click.option("--capital", metavar="USD", help="Price of owning a GPU, in place of --price.")
@flags.options(*OTHERS)
@output_options
def command(**given: Any) -> int:
    """How many GPUs of each machine train a model on so many tokens in so many days.

    For each machine of --hardware the least number of GPUs that makes it, with its plan, days,
    dollars, energy and spares, what binds, and the next smaller number, which just fails.
    --price and --capital take one value, or one a machine: dgx-h100=2.5,dgx-b200=4 (USD/h).
    """
    from sweeps.cli.write import Output, Progress
    from sweeps.own_formulas import load_formulas
    from sweeps.result import Result, fitted
    from sweeps.search.buy import FIGURE, layout, offer

    load_formulas(given["formulas"])
    wish, readings, assumed, points = _asked(given)
    if wish.budget < inf:
        readings = [*readings, *_unpriced(points, given["budget"])]
    out = Output(given, "buy")
    out.check()
    found = []
    for name, point in points.items():
        progress = Progress(f"searching {name}")
        found.append(offer(point, wish, name, progress))
        progress.end()
    first = next(iter(points.values()))
    attrs = _provenance(points, wish, given)
    if any(one.detail for own in found for one in own.tried):
        result = Result(layout(found, wish, first, attrs))
        priced = any(not isnan(one.cost) for own in found for one in own.tried)
        figure = FIGURE if priced else {**FIGURE, "name": "days-over-gpu-hours",
                                        "x": "run_gpu_hours"}  # fmt: skip
        out.deliver(result, _lines(found, wish, points, readings, assumed), [figure])
    else:
        sys.stdout.writelines(fitted(_lines(found, wish, points, readings, assumed)))
    return 0 if any(one.least and not one.least.fails(wish) for one in found) else 1


def _asked(
    given: Mapping[str, Any],
) -> tuple[Wish, Sequence[str], Sequence[str], dict[str, Point]]:
    """Return what is wanted, how it was read, what is assumed, and each machine's question."""
    from sweeps.search.buy import Wish
    from sweeps.search.request import read_request

    faults: list[str] = []
    tokens = read_number("--tokens", given["tokens"], faults, "tokens")
    days = read_number("--days", given["days"], faults, "days")
    budget = read_number("--budget", given["budget"], faults, "USD")
    every = flags.given_options(given, OTHERS)
    values = {name: text for name, text in every.items() if text is not None}
    values |= {name: given[name] for name in USUAL if given[name] is not None}
    readings = flags.in_tokens(values, "--batch-size")
    usual = {name: text for name, text in USUAL.items() if name not in values}
    if "tokens_per_step" in values:
        usual.pop("global_batch", None)
    assumed = [f"{NAMES[name]} {text}" for name, text in usual.items()]
    machines = str(values.pop("hardware", "dgx-h100")).split(",")
    each = {name: _each(name, given.get(name), machines, faults) for name in EACH}
    for name in EACH:
        values.pop(name, None)
    if faults or tokens is None or days is None:
        raise InputError(faults)
    folders = folders_of(given)
    points = {}
    for machine in machines:
        own = {name: texts[machine] for name, texts in each.items() if machine in texts}
        asked = {"world_size": "8", **usual, **values, **own, "hardware": machine}
        request = read_request(asked, objective="time", folders=folders)
        if request.axes:
            raise InputError([
                fault(flags.flag_of(axis.name), str(asked.get(axis.name, "several values")),
                      "has several values",
                      f"one value, or {machine}=VALUE,.." if axis.name in EACH else "one value")
                for axis in request.axes
            ])  # fmt: skip
        points[machine] = request.first
    wish = Wish(tokens, days, inf if budget is None else budget)
    return wish, readings, assumed, points


def _unpriced(points: Mapping[str, Point], budget: str) -> Iterator[str]:
    """Yield a note on machines without a price, which no budget binds; refuse one for nothing."""
    from sweeps.spec.catalog import load_hardware

    names = [
        name for name, point in points.items()
        if not {"price", "capital"} & set(point.constants)
        and "price" not in load_hardware(name, point.folders).figures
    ]  # fmt: skip
    listed = ", ".join(names)
    if len(names) == len(points):
        wrong = f"can't be kept: no price is known of {listed}"
        raise InputError(fault("--budget", budget, wrong, "--price or --capital, too"))
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
            faults.append(fault(f"--{name}", piece, "can't be read", allowed))
        found[machine] = value
    return found


def _provenance(
    points: Mapping[str, Point], wish: Wish, given: Mapping[str, Any]
) -> dict[str, str]:
    from sweeps.result import provenance_of
    from sweeps.search.interface import stated
    from sweeps.search.request import Request
    from sweeps.spec.catalog import load_hardware

    asked = {name: stated(Request(point)) for name, point in points.items()}
    machines = [load_hardware(name, point.folders) for name, point in points.items()]
    formulas = file_options(given)["formulas"]
    wanted = {"tokens": wish.tokens, "days": wish.days}
    return provenance_of(
        title="GPUs for a training in time",
        summary="For each machine numbers of GPUs with their best plan, days and cost.",
        stated={"title": "GPUs for a training in time", **wanted, "machines": asked},
        given=given,
        references="formulas of the training step: sweeps list",
        inputs=[formulas, *((machine.name, machine.figures) for machine in machines)],
    )


# The report.


def _lines(
    found: Sequence[Offer],
    wish: Wish,
    points: Mapping[str, Point],
    readings: Sequence[str],
    assumed: Sequence[str],
) -> Iterator[str]:
    from sweeps.cli.options import price_words
    from sweeps.result import aligned, prose
    from sweeps.spec.catalog import load_hardware

    first = next(iter(points.values()))
    budget = f", for up to {wish.budget:,.0f} USD" if wish.budget < inf else ""
    model = first.labels.get("model", "the model")
    batch, length = (first.constants[name] for name in USUAL)
    yield f"{model} on {wish.tokens / 1e12:.4g} T tokens in {wish.days:g} days{budget}"
    yield f"  {batch:g} sequences of {length:g} tokens a step"
    yield from (f"  ({line})" for line in readings)
    made = sorted(
        (one for one in found if one.least is not None), key=lambda one: _order(one.least, wish)
    )
    if made:
        yield from aligned([HEAD, *(_row(one.machine, one.least, wish) for one in made)], left=1)
    lacking = [
        one.machine for one in made
        if one.least and one.least.detail and isnan(one.least.detail["run_cost"])
    ]  # fmt: skip
    if lacking:
        yield f"  cost: no price is known of {', '.join(lacking)}; give --price or --capital"
    yield ""
    for one in [*made, *(one for one in found if one.least is None)]:
        yield from _of_machine(one, wish)
    if assumed:
        yield f"not given, so taken as: {', '.join(assumed)}"
    for name, point in points.items():
        if not {"price", "capital"} & set(point.constants) and (
            old := price_words(load_hardware(name, point.folders))
        ):
            yield from wrap(old, prose(), subsequent_indent="  ")
    yield "times are good to the error of a step's time that each plan states"
    yield "numbers of nodes with prime factors up to 7 were tried; sweeps plan says all of one"


HEAD = ["", "GPUs", "days", "goodput", "cost", "1e12 tokens", "energy", "spare servers", "MFU", ""]


def _order(one: Tried | None, wish: Wish) -> tuple[bool, float]:
    assert one is not None
    assert one.detail is not None
    hours = one.detail["run_gpu_hours"]
    return bool(one.fails(wish)), hours if isnan(one.cost) else one.cost


def _row(machine: str, one: Tried | None, wish: Wish) -> list[str]:
    from sweeps.cli.write import shown

    assert one is not None
    assert one.detail is not None
    names = ("run_days", "goodput", "run_cost", "useful_cost", "training_energy", "spare_servers")
    texts = [shown(name, one.detail[name]) for name in names]
    return [machine, f"{one.gpus:,}", *texts, shown("mfu", one.detail["mfu"]), one.fails(wish)]


def _of_machine(one: Offer, wish: Wish) -> Iterator[str]:
    """Yield what binds on a machine: its plan, and the number of GPUs that just fails."""
    from sweeps.cli.plan_report import bullets
    from sweeps.search.request import DEFAULT_THRESHOLD
    from sweeps.search.words import bound_by, memory_words

    yield one.machine
    if one.least is None or one.least.detail is None:
        yield from bullets([one.why])
        yield ""
        return
    detail = one.least.detail
    lines = [f"{one.least.gpus:,} GPUs: {detail.plan.name}", bound_by(detail)]
    lines.append(memory_words(detail, DEFAULT_THRESHOLD))
    if one.why:
        lines.append(f"over what is allowed: {one.why}")
    less = one.neighbour
    if less is not None:
        short = less.fails(wish) or "it would do"
        plan = f" ({less.detail.plan.split})" if less.detail else ""
        lines.append(f"fewer just fail: {less.gpus:,} GPUs{plan}: {short}")
    lines.append(f"tried: {', '.join(f'{own.gpus:,}' for own in one.tried)} GPUs")
    yield from bullets(lines)
    yield ""
