"""``sweeps buy``: how many GPUs of which machine a training needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import inf, isnan
from typing import Any, Unpack

import click

from sweeps import display
from sweeps.bands import FITS, band_of, band_words, money, percent, three, tie
from sweeps.cli import flags
from sweeps.cli.buy_question import OF_BUYING, SEVERAL, Purchase, read_purchases
from sweeps.cli.from_file import from_option
from sweeps.cli.given import Planned
from sweeps.cli.numbers import shown
from sweeps.cli.options import file_options, output_options, price_words
from sweeps.cli.plan_report import impossible_lines
from sweeps.cli.progress import Progress
from sweeps.cli.save import SAVING, check_folder, save, save_option
from sweeps.cli.sections import (
    OF_BUY,
    more_line,
    show_options,
    shown_sections,
    wanted_sections,
    wrapped,
)
from sweeps.cli.typed import flag_of, flags_of
from sweeps.cli.write import Output
from sweeps.errors import fault, tell_all
from sweeps.own_formulas import load_formulas
from sweeps.result import Result, provenance_of
from sweeps.search.buy import PRICES, Offer, Searched, Tried, Wish, best_batch, offers
from sweeps.search.buy_table import Bought, figure_of, layout
from sweeps.search.interface import spec_of
from sweeps.search.request import DEFAULT_THRESHOLD, Request
from sweeps.search.words import bound_by, memory_words
from sweeps.spec.catalog import load_hardware
from sweeps.spec.units import grouped
from sweeps.wrapping import aligned, fitted


@click.command("buy", cls=flags.SweepCommand)
@click.option("--tokens", required=True, metavar="N", help="Tokens of the training, such as 15T.")
@click.option("--days", required=True, metavar="N", help="Days in which it has to be done.")
@click.option("--budget", metavar="USD", help="What it may cost, such as 20M.")
@click.option(
    *flags_of("global_batch_size"),
    "--batch-size",
    "-b",
    "global_batch_size",
    metavar="N",
    help="Sequences of a step, or tokens: 4M.  [default: searched]",
)
@click.option(
    *flags_of("sequence_length"),
    "-s",
    "sequence_length",
    metavar="N",
    help="Tokens of a sequence, such as 8k.  [default: the model's training length, or 4096]",
)
@click.option(
    *flags_of("world_size"),
    "world_size",
    metavar="N,..",
    help="GPUs to compare.  [default: the fewest]",
)
@click.option(
    *flags_of("capital_cost"),
    "capital_cost",
    metavar="USD",
    help="Price of owning a GPU, in place of --price.",
)
@from_option
@flags.options(*OF_BUYING)
@show_options(OF_BUY)
@save_option
@output_options
def command(**given: Unpack[Planned]) -> int:
    """GPUs of each machine that train a model on so many tokens in so many days.

    For each machine of --hardware the fewest GPUs that make it: plan, days, dollars, energy,
    spares, what binds, and the next smaller number, which just fails.
    --price and --capital take one value, or one a machine: dgx-h100=2.5,dgx-b200=4 (USD/h).
    Several models, tokens, days, or prices of one machine are a table: --tokens 2T,15T --days 30.
    Of several batches the smallest whose run ties with the cheapest is taken.
    """
    load_formulas(given["formulas"])
    every = read_purchases(given)
    if len(every) > 1:
        return _table_of_purchases(every, given)
    (asked,) = every
    out = Output(given, "buy").checked()
    check_folder(given)
    offered = _searched(asked, {})
    bought = Bought(offered, asked.wish, asked.first, asked.gpus)
    lines = _lines(bought, asked, wanted_sections(given, OF_BUY), saved=bool(given["save"]))
    if any(attempt.detail for offer in offered for attempt in offer.tried):

        @cache
        def result() -> Result:
            attrs = _provenance([asked], given)
            return Result(layout([bought], attrs))

        figure = figure_of([bought], _answer(offered, asked.wish))
        out.deliver(result, lines, [figure])
        out.notes.writelines(fitted(_saved(offered, asked, given, result)))
    else:
        sys.stdout.writelines(fitted(lines))
    return 0 if any(_makes(offer, asked.wish) for offer in offered) else 1


def _searched(asked: Purchase, kept: dict[tuple[str, float], Searched]) -> tuple[Offer, ...]:
    """Search, and tell how far it is; what is searched is kept for other tokens and days."""
    bars = [Progress("")]

    def telling(name: str, batch: float) -> Progress:
        bars[-1].end()
        bars.append(Progress(f"searching {name}, {asked.tokens(batch)} tokens per step"))
        return bars[-1]

    offered = offers(asked.points, asked.wish, asked.sequences, telling, kept, asked.gpus)
    bars[-1].end()
    return offered


def _table_of_purchases(every: Sequence[Purchase], given: Planned) -> int:
    """Answer several questions by a table: what to buy of each machine for each."""
    tell_all(
        [
            fault(f"--{name}", "set", "is of one purchase, and there are several", "leave it out")
            for name in ("save", "show")
            if given[name]
        ]
    )
    out = Output(given, "buy").checked()
    kept: dict[str, dict[tuple[str, float], Searched]] = {}
    bought: dict[int, Bought] = {}
    # Long runs first: what can't be in many days can't be in fewer.
    for index in sorted(range(len(every)), key=lambda at: -every[at].wish.days):
        asked = every[index]
        searches = kept.setdefault(asked.first.labels.get("model", ""), {})
        offered = _searched(asked, searches)
        bought[index] = Bought(offered, asked.wish, asked.first, asked.gpus)
    several = [bought[number] for number in range(len(every))]
    lines = _lines_of_several(several, every)
    if any(row for purchase in several for row in purchase.rows()):
        out.deliver(
            lambda: Result(layout(several, _provenance(every, given))), lines, [figure_of(several)]
        )
    else:
        sys.stdout.writelines(fitted(lines))
    return (
        0
        if any(_makes(offer, purchase.wish) for purchase in several for offer in purchase.offers)
        else 1
    )


def _lines_of_several(several: Sequence[Bought], every: Sequence[Purchase]) -> Iterator[str]:
    """Yield the table of several purchases: each machine's, the cheapest first."""
    varied = [name for name in SEVERAL if len({asked.keys[name] for asked in every}) > 1]
    chosen: list[Row] = []
    others: dict[str, None] = {}
    for purchase, asked in zip(several, every, strict=True):
        batch = best_batch(purchase.offers, purchase.wish) or purchase.offers[-1].batch
        keys = [asked.keys[name] for name in varied]
        here = [offer for offer in purchase.offers if offer.batch == batch]
        made = _ordered([offer for offer in here if offer.least], purchase.wish)
        rows = _compared(here, purchase.wish) if asked.gpus else _of_machines(made, purchase.wish)
        chosen += [([*keys, *key], attempt, why) for key, attempt, why in rows if why != FEWEST]
        why = (
            f"{', '.join(keys)}, {offer.machine}: {offer.why}" for offer in here if not offer.least
        )
        others |= dict.fromkeys(why)
    count = sum(any(_makes(offer, bought.wish) for offer in bought.offers) for bought in several)
    yield f"{count} of {len(several)} purchases can be made: GPUs, days and cost by machine"
    readings = dict.fromkeys(line for asked in every for line in asked.readings)
    yield from (f"  ({line})" for line in readings)
    if chosen:
        heads = [SEVERAL[name] for name in varied]
        yield from aligned(_table(heads, chosen), left=len(varied) + 1, keys=len(varied) + 2)
    for line in others:
        yield from wrapped(line)
    assumed = dict.fromkeys(words for asked in every for words in asked.assumed)
    if assumed:
        yield ""
        yield from wrapped(f"Defaults: {'; '.join(assumed)}")
    yield from _searched_words(several)
    yield "One purchase alone says its plan and what binds"


def _saved(
    offered: Sequence[Offer], asked: Purchase, given: Planned, result: Callable[[], Result]
) -> Iterator[str]:
    """Write the launch files of what to buy, and yield which there are."""
    batch = best_batch(offered, asked.wish) or offered[-1].batch
    made = _ordered(
        [offer for offer in offered if offer.batch == batch and offer.least], asked.wish
    )
    best = made[0].best(asked.wish) if made else None
    if best is None or best.detail is None:
        return
    point = asked.points[made[0].machine]
    constants = {name: best.detail.plan[name] for name in ("world_size", "global_batch_size")}
    model = point.labels.get("model", "the model")
    heading = (
        best.detail.plan.name,
        f"{model} on {best.gpus:,} GPUs ({made[0].machine})",
        f"Predicted: {_run_words(best)}",
    )
    yield from save(given, best.detail.plan, point.with_constants(**constants), heading, result)


def _makes(offer: Offer, wish: Wish) -> bool:
    """Whether a number of a machine's GPUs makes it."""
    return offer.least is not None and not offer.least.fails(wish)


def _provenance(every: Sequence[Purchase], given: Planned) -> dict[str, str]:
    points = [(name, point) for asked in every for name, point in asked.points.items()]
    asked = {name: spec_of(Request(point)) for name, point in points}
    machines = {name: load_hardware(name, point.folders) for name, point in points}
    formulas = file_options(given)["formulas"]
    wanted: dict[str, Any] = {"tokens": every[0].wish.tokens, "days": every[0].wish.days}
    if len(every) > 1:
        wanted = {
            "models": [purchase.first.labels.get("model", "") for purchase in every],
            "tokens": [purchase.wish.tokens for purchase in every],
            "days": [purchase.wish.days for purchase in every],
        }
    return provenance_of(
        title="GPUs for a training in time",
        summary="For each machine numbers of GPUs with their best plan, days and cost.",
        spec={"title": "GPUs for a training in time", **wanted, "machines": asked},
        given=given,
        references="formulas of the training step: sweeps list",
        inputs=[formulas, *((machine.name, machine.figures) for machine in machines.values())],
    )


# The report.


def _lines(bought: Bought, asked: Purchase, show: Sequence[str], *, saved: bool) -> Iterator[str]:
    offered, wish = bought.offers, asked.wish
    batch = best_batch(offered, wish) or offered[-1].batch
    here = [offer for offer in offered if offer.batch == batch]
    made = _ordered([offer for offer in here if offer.least], wish)
    others = [offer for offer in here if offer.least is None]
    yield _first(made, here, wish)
    details = [best.detail for offer in made if (best := offer.best(wish)) and best.detail]
    yield from impossible_lines(
        [replace(of.plan, known={"step_time": of["step_time"]}) for of in details]
    )
    yield from _question(offered, asked, batch, made)
    rows = _compared(here, wish) if asked.gpus else _of_machines(made, wish)
    if rows:
        yield from aligned(_table([], rows), left=1, keys=2)
    yield from _unpriced_words(offered, asked)
    yield ""
    if len(asked.sequences) > 1 and any(offer.tried for offer in offered):
        yield from _by_batch(offered, asked)
    for candidate in (*made, *others):
        yield from _in_short(candidate, wish)
    if not made and asked.batches is None and any(offer.tried for offer in here):
        yield f"a larger batch may do: {flag_of('global_batch_size')}"
    yield ""
    if asked.assumed:
        yield from wrapped(f"Defaults: {'; '.join(asked.assumed)}")
    catalogued = (
        load_hardware(name, point.folders)
        for name, point in asked.points.items()
        if not {*PRICES} & set(point.constants)
    )
    if old := price_words(catalogued):
        yield from wrapped(old[0].upper() + old[1:])
    yield from _searched_words([bought])
    bodies: dict[str, Callable[[], Iterable[str]]] = {
        "reasons": lambda: (line for offer in (*made, *others) for line in _of_machine(offer, wish))
    }
    yield from more_line(show, bodies, "" if saved else SAVING)
    yield from shown_sections(show, bodies)


def _question(
    offered: Sequence[Offer], asked: Purchase, batch: float, made: Sequence[Offer]
) -> Iterator[str]:
    """Yield what is asked, how it was read, and why this batch."""
    wish = asked.wish
    model = asked.first.labels.get("model", "the model")
    budget = f", for up to {money(wish.budget)}" if wish.budget < inf else ""
    length = asked.first.constants["sequence_length"]
    size = f"{batch:,.0f} sequences of {length:,.0f} tokens per step ({asked.tokens(batch)} tokens)"
    question = f"{model}, {wish.tokens / 1e12:.4g} T tokens, at most {wish.days:g} days{budget}"
    yield from wrapped(f"{question}; {size}", "  ")
    if len(asked.sequences) > 1 and any(_makes(offer, wish) for offer in made):
        yield f"  the smallest batch that costs at most {percent(tie())} more than the cheapest"
    yield from (f"  ({line})" for line in asked.readings)


def _unpriced_words(offered: Sequence[Offer], asked: Purchase) -> Iterator[str]:
    unpriced = [
        name
        for name in asked.points
        if any(
            attempt.detail and isnan(attempt.cost)
            for offer in offered
            for attempt in offer.tried
            if offer.machine == name
        )
    ]
    if unpriced:
        names = ", ".join(unpriced)
        yield (
            f"  cost: no price is known of {names}; give --price {unpriced[0]}=2.5 (USD per "
            "GPU-hour) or --capital"
        )


def _by_batch(offered: Sequence[Offer], asked: Purchase) -> Iterator[str]:
    """Yield what each batch that was searched does."""
    rows = [["tokens per step", "", "GPUs", "days", "cost", "MFU", ""]]
    for offer in offered:
        best = offer.best(asked.wish)
        if best is None or best.detail is None:
            rows.append([asked.tokens(offer.batch), offer.machine, "-", "-", "-", "-", offer.why])
            continue
        days, cost, mfu = (best.detail[name] for name in ("run_days", "run_cost", "mfu"))
        late = best.fails(asked.wish)
        late = f"at best; {late}" if offer.least is None else late
        texts = [three(days), shown("run_cost", cost), percent(mfu)]
        rows.append([asked.tokens(offer.batch), offer.machine, f"{best.gpus:,}", *texts, late])
    yield "By batch"
    yield from aligned(rows, left=2, last=True)
    yield ""


# A column of the table: its quantity, its head, and what it is multiplied by there.
COLUMNS = (
    ("run_days", "days", 1.0),
    ("run_cost", "cost (M USD)", 1e-6),
    ("cost_per_trillion_useful_tokens", "USD per T tokens", 1.0),
    ("goodput", "goodput (%)", 100.0),
    ("run_energy", "energy (MWh)", 1.0 / 3.6e9),
    ("provisioned_gpus", "spare GPUs", 1.0),
    ("mfu", "MFU (%)", 100.0),
)


Row = tuple[list[str], Tried, str]
FEWEST = "the fewest"


def _compared(offered: Sequence[Offer], wish: Wish) -> list[Row]:
    """Return a row for each number of GPUs that was asked for and can run."""
    return [
        ([offer.machine], attempt, attempt.fails(wish))
        for offer in offered
        for attempt in offer.tried
        if attempt.detail
    ]


def _searched_words(every: Sequence[Bought]) -> Iterator[str]:
    """Yield which numbers of GPUs were searched, or which of those asked for can't run."""
    if not every[0].gpus:
        yield "Searched: numbers of nodes, or a pod's slices, with prime factors up to 7"
        return
    offers = [offer for bought in every for offer in bought.offers]
    for machine in dict.fromkeys(offer.machine for offer in offers):
        tried = [attempt for offer in offers if offer.machine == machine for attempt in offer.tried]
        able = {attempt.gpus for attempt in tried if attempt.detail}
        if able and (none := [f"{gpus:,}" for gpus in every[0].gpus if gpus not in able]):
            yield f"No plan can run on {', '.join(none)} GPUs of {machine}"


def _of_machines(made: Sequence[Offer], wish: Wish) -> list[Row]:
    """Return the rows of machines: each one's best, and the fewest GPUs that make it."""
    chosen = []
    for offer in made:
        best = offer.best(wish)
        for attempt in (best, offer.least) if offer.least is not best else (best,):
            assert attempt is not None
            why = attempt.fails(wish) or ("" if attempt is best else FEWEST)
            chosen.append(([offer.machine], attempt, why))
    return chosen


def _table(heads_of_keys: Sequence[str], chosen: Sequence[Row]) -> list[list[str]]:
    """Return the table: a row for each number of GPUs that is told, after its keys."""
    details = [attempt.detail for _, attempt, _ in chosen if attempt.detail is not None]
    columns = [
        column for column in COLUMNS if any(not isnan(detail[column[0]]) for detail in details)
    ]
    heads = [head for _, head, _ in columns]
    rows = [[*heads_of_keys, "", "GPUs", heads[0], "band", *heads[1:], ""]]
    for (keys, trial, why), detail in zip(chosen, details, strict=True):
        told = {name: detail[name] for name, _, _ in columns}
        # Of what is paid for, those that wait: on every machine in its GPUs, whatever a node is.
        told["provisioned_gpus"] -= trial.gpus
        texts = [grouped(told[name] * scale) for name, _, scale in columns]
        band = band_of("step_time", detail.values.get)
        notes = [text for text in (why, detail.fit) if text not in ("", FITS)]
        rows.append([*keys, f"{trial.gpus:,}", texts[0], band, *texts[1:], "; ".join(notes)])
    return rows if any(row[-1] for row in rows) else [row[:-1] for row in rows]


def _answer(offered: Sequence[Offer], wish: Wish) -> Tried | None:
    """Return the GPUs to buy; None where no machine can."""
    batch = best_batch(offered, wish) or offered[-1].batch
    made = _ordered([offer for offer in offered if offer.batch == batch and offer.least], wish)
    return made[0].best(wish) if made else None


def _ordered(made: Sequence[Offer], wish: Wish) -> list[Offer]:
    """Return machines that can, the cheapest first, then those that just can't."""

    def key(offer: Offer) -> tuple[bool, float]:
        best = offer.best(wish)
        assert best is not None
        return bool(best.fails(wish)), best.cost if priced else best.hours

    priced = not any(isnan(offer.least.cost) for offer in made if offer.least)
    return sorted(made, key=key)


def _first(made: Sequence[Offer], every: Sequence[Offer], wish: Wish) -> str:
    """Return what to buy, in a few words; of what can't be, what bounds it."""
    best = made[0].best(wish) if made else None
    if best is None or best.detail is None:
        several = len(every) > 1
        why = "; ".join(
            f"{offer.machine}: {offer.why}" if several else offer.why for offer in every
        )
        return f"no machine can: {why}"
    if why := best.fails(wish):
        return f"no machine can; nearest are {best.gpus:,} GPUs of {made[0].machine} ({why})"
    cost = "" if isnan(best.cost) else f", {shown('run_cost', best.detail['run_cost'])}"
    low, high = (best.detail[name] for name in display.BANDS["step_time"])
    ends = " to ".join(three(best.days * (1.0 + end)) for end in (low, high))
    band = f"{band_words(low, high)}: {ends}"
    text = f"{best.gpus:,} GPUs of {made[0].machine}: {three(best.days)} days ({band}){cost}"
    return f"{text}; {best.verdict(wish)} the {wish.days:g} days"


def _run_words(attempt: Tried) -> str:
    """Return how long a run takes and what it costs."""
    assert attempt.detail is not None
    cost = "" if isnan(attempt.cost) else f", {shown('run_cost', attempt.detail['run_cost'])}"
    return f"{shown('run_days', attempt.detail['run_days'])}{cost}"


def _in_short(offer: Offer, wish: Wish) -> Iterator[str]:
    """Yield a machine's plan and its next smaller number of GPUs, or why there is none."""
    best = offer.best(wish)
    if offer.least is None or best is None or best.detail is None:
        yield from wrapped(f"{offer.machine}: {offer.why}")
        return
    yield from wrapped(f"{offer.machine}: {best.detail.plan.name}")
    less = offer.neighbour
    if less is not None:
        short = less.fails(wish) or "it would do"
        plan = f" ({less.detail.plan.split})" if less.detail else ""
        yield from wrapped(f"next smaller: {less.gpus:,} GPUs{plan}: {short}", "  ")


def _of_machine(offer: Offer, wish: Wish) -> Iterator[str]:
    """Yield what binds on a machine: its plan, and the number of GPUs that just fails."""
    from sweeps.cli.plan_experts import bullets

    yield offer.machine
    best = offer.best(wish)
    if offer.least is None or best is None or best.detail is None:
        yield from bullets([offer.why])
        yield ""
        return
    detail = best.detail
    lines = [f"{best.gpus:,} GPUs, {best.verdict(wish)}: {detail.plan.name}", bound_by(detail)]
    lines.append(memory_words(detail, DEFAULT_THRESHOLD))
    if offer.why:
        lines.append(f"over what is allowed: {offer.why}")
    if best is not offer.least:
        lines.append(
            f"fewer make it, and cost more: {offer.least.gpus:,} GPUs: {_run_words(offer.least)}"
        )
    less = offer.neighbour
    if less is not None:
        short = less.fails(wish) or "it would do"
        plan = f" ({less.detail.plan.split})" if less.detail else ""
        lines.append(f"next smaller: {less.gpus:,} GPUs{plan}: {short}")
    searched = f"searched: {', '.join(f'{attempt.gpus:,}' for attempt in offer.tried)} GPUs"
    rest = (
        f"; bounds rule out the {offer.ruled_out} other smaller numbers" if offer.ruled_out else ""
    )
    lines.append(searched + rest)
    yield from bullets(lines)
    yield ""
