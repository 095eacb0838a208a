"""``sweeps buy``: how many GPUs of which machine a training needs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isnan
from typing import Any, Unpack, cast

import click

from sweeps import display
from sweeps.bands import FITS, band_of, band_words, money, percent, three
from sweeps.cli import flags
from sweeps.cli.from_file import from_option, reading_lines
from sweeps.cli.given import Planned, texts_of
from sweeps.cli.numbers import shown
from sweeps.cli.options import (
    file_options,
    output_options,
    price_words,
)
from sweeps.cli.plan_command import OTHERS, check_options_used, length_words, read_number
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
from sweeps.cli.typed import flag_of, flags_of, folders_of
from sweeps.cli.write import Output
from sweeps.errors import InputError, fault, refuse, tell_all
from sweeps.own_formulas import load_formulas
from sweeps.result import Result, aligned, fitted, provenance_of
from sweeps.search.batches import Batches, batches_of
from sweeps.search.buy import (
    Bought,
    Offer,
    Searched,
    Tried,
    Wish,
    best_batch,
    figure_of,
    layout,
    offers,
)
from sweeps.search.interface import spec_of
from sweeps.search.request import DEFAULT_THRESHOLD, Point, Request, read_request
from sweeps.search.space import common_of
from sweeps.search.words import bound_by, memory_words
from sweeps.spec.catalog import load_hardware
from sweeps.spec.model import USUAL_LENGTH
from sweeps.spec.units import grouped

# What is of one machine, so that each may have its own: NAME=VALUE,NAME=VALUE.
EACH = ("gpu_hour_price", "capital_cost")
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
    A batch that isn't given is searched between published ones: the smallest whose run is as cheap
    as any within a step's error is the answer.
    """
    load_formulas(given["formulas"])
    questions = [*_each_question(given)]
    if len(questions) > 1:
        return _table_of_purchases(questions, given)
    asked = _asked(given)
    if asked.wish.budget < inf:
        asked = replace(
            asked, readings=[*asked.readings, *_unpriced(asked.points, str(given["budget"]))]
        )
    out = Output(given, "buy").checked()
    check_folder(given)
    found = _searched(asked, {})
    lines = _lines(found, asked, wanted_sections(given, OF_BUY), saved=bool(given["save"]))
    if any(one.detail for own in found for one in own.tried):

        @cache
        def result() -> Result:
            attrs = _provenance([asked], given)
            return Result(layout([Bought(found, asked.wish, asked.first)], attrs))

        figure = figure_of(found, asked.wish, _answer(found, asked.wish))
        out.deliver(result, lines, [figure])
        out.notes.writelines(fitted(_saved(found, asked, given, result)))
    else:
        sys.stdout.writelines(fitted(lines))
    return 0 if any(_makes(one, asked.wish) for one in found) else 1


def _searched(asked: Purchase, kept: dict[tuple[str, float], Searched]) -> tuple[Offer, ...]:
    """Search, and tell how far it is; what is searched is kept for other tokens and days."""
    bars = [Progress("")]

    def telling(name: str, batch: float) -> Progress:
        bars[-1].end()
        bars.append(Progress(f"searching {name}, {asked.tokens(batch)} tokens per step"))
        return bars[-1]

    found = offers(asked.points, asked.wish, asked.sequences, telling, kept)
    bars[-1].end()
    return found


# Options of which several values are a table.
SEVERAL = ("model", "tokens", "days", "gpu_hour_price")


def _each_question(given: Planned) -> Iterator[Planned]:
    """Yield the options of each question: every model with all tokens, days and prices."""
    # Of several machines prices are a machine's each, and named by it.
    machines = len((given["hardware"] or "").split(","))
    names = [name for name in SEVERAL if machines == 1 or name != "gpu_hour_price"]
    typed = texts_of(given, (name for name in names if name in given))
    texts = {name: text for name, text in typed.items() if text}
    several = {
        name: [text] if "=" in text else [part.strip() for part in text.split(",")]
        for name, text in texts.items()
    }
    for values in itertools.product(*several.values()):
        yield cast("Planned", {**given, **dict(zip(several, values, strict=True))})


def _table_of_purchases(questions: Sequence[Planned], given: Planned) -> int:
    """Answer several questions by a table: what to buy of each machine for each."""
    tell_all(
        [
            fault(f"--{name}", "set", "is of one purchase, and there are several", "leave it out")
            for name in ("save", "show")
            if given[name]
        ]
    )
    every = [_asked(own) for own in questions]
    out = Output(given, "buy").checked()
    kept: dict[str, dict[tuple[str, float], Searched]] = {}
    bought: dict[int, Bought] = {}
    # Long runs first: what can't be in many days can't be in fewer.
    for place in sorted(range(len(every)), key=lambda at: -every[at].wish.days):
        asked = every[place]
        own = kept.setdefault(asked.first.labels.get("model", ""), {})
        bought[place] = Bought(_searched(asked, own), asked.wish, asked.first)
    several = [bought[place] for place in range(len(every))]
    lines = _lines_of_several(several, every, questions)
    offered = [one for own in several for one in own.found]
    if any(row for own in several for row in own.rows()):
        out.deliver(
            lambda: Result(layout(several, _provenance(every, given))), lines, [figure_of(offered)]
        )
    else:
        sys.stdout.writelines(fitted(lines))
    return 0 if any(_makes(one, own.wish) for own in several for one in own.found) else 1


def _lines_of_several(
    several: Sequence[Bought], every: Sequence[Purchase], questions: Sequence[Mapping[str, object]]
) -> Iterator[str]:
    """Yield the table of several purchases: each machine's, the cheapest first."""
    heads = {"model": "model", "tokens": "tokens", "days": "in days", "gpu_hour_price": "USD/h"}
    varied = [name for name in heads if len({own.get(name) for own in questions}) > 1]
    chosen: list[Row] = []
    others: dict[str, None] = {}
    for own, question in zip(several, questions, strict=True):
        batch = best_batch(own.found, own.wish) or own.found[-1].batch
        keys = [str(question[name]) for name in varied]
        here = [one for one in own.found if one.batch == batch]
        for one in _ordered([one for one in here if one.least], own.wish):
            best = one.best(own.wish)
            assert best is not None
            chosen.append(([*keys, one.machine], best, best.fails(own.wish)))
        why = (f"{', '.join(keys)}, {one.machine}: {one.why}" for one in here if not one.least)
        others |= dict.fromkeys(why)
    made = len({tuple(keys[:-1]) for keys, _, late in chosen if not late})
    yield f"{made} of {len(several)} purchases can be made: GPUs, days and cost by machine"
    readings = dict.fromkeys(line for asked in every for line in asked.readings)
    yield from (f"  ({line})" for line in readings)
    if chosen:
        yield from aligned(_table([heads[name] for name in varied], chosen), left=len(varied) + 1)
    for line in others:
        yield from wrapped(line)
    assumed = dict.fromkeys(words for asked in every for words in asked.assumed)
    if assumed:
        yield ""
        yield from wrapped(f"Defaults: {'; '.join(assumed)}")
    yield "Searched: numbers of nodes with prime factors up to 7"
    yield "One purchase alone says its plan and what binds"


def _saved(
    found: Sequence[Offer], asked: Purchase, given: Planned, result: Callable[[], Result]
) -> Iterator[str]:
    """Write the launch files of what to buy, and yield which there are."""
    batch = best_batch(found, asked.wish) or found[-1].batch
    made = _ordered([one for one in found if one.batch == batch and one.least], asked.wish)
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


def _asked(given: Planned) -> Purchase:
    """Return what is wanted, how it was read, what is assumed, and each machine's question."""
    faults: list[str] = []
    tokens = read_number("--tokens", given["tokens"], faults, "tokens")
    days = read_number("--days", given["days"], faults, "days")
    budget = read_number("--budget", given["budget"], faults, "USD")
    every = flags.given_options(given, OF_BUYING)
    faults += [
        fault(flag_of(name), every[name], "is what buy finds", "sweeps plan, of so many")
        for name in GPUS_OF_PLANS
        if every.get(name) is not None
    ]
    values = {name: text for name, text in every.items() if text is not None}
    own = ("global_batch_size", "sequence_length")
    values |= {name: text for name, text in texts_of(given, own).items() if text is not None}
    readings = [*reading_lines(), *flags.in_tokens(values, flag_of("global_batch_size"))]
    readings += flags.model_notes(values.get("model"), folders_of(given))
    free = not {"global_batch_size", "tokens_per_step"} & values.keys()
    machines = str(values.pop("hardware", "dgx-h100")).split(",")
    typed = texts_of({**dict.fromkeys(EACH), **given}, EACH)
    each = {name: _each(name, text, machines, faults) for name, text in typed.items()}
    for name in EACH:
        values.pop(name, None)
    if faults or tokens is None or days is None:
        raise InputError(faults)
    folders = folders_of(given)
    points = {}
    for machine in machines:
        prices = {name: texts[machine] for name, texts in each.items() if machine in texts}
        asked = {
            "world_size": "8",
            **({"global_batch_size": USUAL_BATCH} if free else {}),
            **values,
            **prices,
            "hardware": machine,
        }
        request = read_request(asked, objective="time", folders=folders, usual_length=USUAL_LENGTH)
        if request.axes:
            raise InputError(
                [
                    fault(
                        flag_of(axis.name),
                        str(asked.get(axis.name, "several values")),
                        "has several values",
                        f"one value, or {machine}=VALUE,.." if axis.name in EACH else "one value",
                    )
                    for axis in request.axes
                ]
            )
        points[machine] = request.first
    some = [point.with_constants(world_size=MANY_GPUS) for point in points.values()]
    told = {name: text for name, text in every.items() if text is not None}
    check_options_used(some, {**told, **values}, run=True)
    first = points[machines[0]]
    assumed = [length_words(length) for length in request.lengths]
    known = common_of(first)[2].constants
    batches = batches_of(first.labels.get("model", ""), known, tokens, folders) if free else None
    if batches is not None:
        assumed.append(batches.words)
    elif free:
        assumed.append(f"{flag_of('global_batch_size')} {USUAL_BATCH}")
    sequences = batches.sequences if batches else (first.constants["global_batch_size"],)
    wish = Wish(tokens, days, inf if budget is None else budget)
    return Purchase(wish, points, sequences, batches, readings, assumed)


def _unpriced(points: Mapping[str, Point], budget: str) -> Iterator[str]:
    """Yield a note on machines without a price, which no budget binds; refuse one for nothing."""
    names = [
        name
        for name, point in points.items()
        if not {"gpu_hour_price", "capital_cost"} & set(point.constants)
        and "gpu_hour_price" not in load_hardware(name, point.folders).figures
    ]
    listed = ", ".join(names)
    if len(names) == len(points):
        wrong = f"needs a price, and none is known of {listed}"
        small = f". {budget} means {budget} USD; write {budget}M" if budget.isdigit() else ""
        refuse("--budget", budget, wrong, f"add --price 2.5 (USD per GPU-hour){small}")
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


def _provenance(every: Sequence[Purchase], given: Planned) -> dict[str, str]:
    points = [(name, point) for asked in every for name, point in asked.points.items()]
    asked = {name: spec_of(Request(point)) for name, point in points}
    machines = {name: load_hardware(name, point.folders) for name, point in points}
    formulas = file_options(given)["formulas"]
    wanted: dict[str, Any] = {"tokens": every[0].wish.tokens, "days": every[0].wish.days}
    if len(every) > 1:
        wanted = {
            "models": [one.first.labels.get("model", "") for one in every],
            "tokens": [one.wish.tokens for one in every],
            "days": [one.wish.days for one in every],
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


def _lines(
    found: Sequence[Offer], asked: Purchase, show: Sequence[str], *, saved: bool
) -> Iterator[str]:
    wish = asked.wish
    batch = best_batch(found, wish) or found[-1].batch
    here = [one for one in found if one.batch == batch]
    made = _ordered([one for one in here if one.least], wish)
    others = [one for one in here if one.least is None]
    yield _first(made, here, wish)
    best = [one.best(wish) for one in made]
    yield from impossible_lines([one.detail.plan for one in best if one and one.detail])
    yield from _question(found, asked, batch, made)
    if made:
        yield from aligned(_table([], _of_machines(made, wish)), left=1, keys=2)
    yield from _unpriced_words(found, asked)
    yield ""
    if len(asked.sequences) > 1 and any(one.tried for one in found):
        yield from _by_batch(found, asked)
    for one in (*made, *others):
        yield from _in_short(one, wish)
    if not made and asked.batches is None and any(one.tried for one in here):
        yield f"a larger batch may do: {flag_of('global_batch_size')}"
    yield ""
    if asked.assumed:
        yield from wrapped(f"Defaults: {'; '.join(asked.assumed)}")
    for name, point in asked.points.items():
        if not {"gpu_hour_price", "capital_cost"} & set(point.constants) and (
            old := price_words(load_hardware(name, point.folders))
        ):
            yield from wrapped(old[0].upper() + old[1:])
    yield "Searched: numbers of nodes with prime factors up to 7"
    bodies: dict[str, Callable[[], Iterable[str]]] = {
        "reasons": lambda: (line for one in (*made, *others) for line in _of_machine(one, wish))
    }
    yield from more_line(show, bodies, "" if saved else SAVING)
    yield from shown_sections(show, bodies)


def _question(
    found: Sequence[Offer], asked: Purchase, batch: float, made: Sequence[Offer]
) -> Iterator[str]:
    """Yield what is asked, how it was read, and why this batch."""
    wish = asked.wish
    model = asked.first.labels.get("model", "the model")
    budget = f", for up to {money(wish.budget)}" if wish.budget < inf else ""
    length = asked.first.constants["sequence_length"]
    size = f"{batch:g} sequences of {length:g} tokens per step ({asked.tokens(batch)} tokens)"
    question = f"{model}, {wish.tokens / 1e12:.4g} T tokens, at most {wish.days:g} days{budget}"
    yield from wrapped(f"{question}; {size}", "  ")
    if len(asked.sequences) > 1 and any(_makes(one, wish) for one in made):
        yield "  the smallest batch whose run is as cheap as any, within a step's error"
    yield from (f"  ({line})" for line in asked.readings)


def _unpriced_words(found: Sequence[Offer], asked: Purchase) -> Iterator[str]:
    unpriced = [
        name
        for name in asked.points
        if any(
            own.detail and isnan(own.cost)
            for one in found
            for own in one.tried
            if one.machine == name
        )
    ]
    if unpriced:
        names = ", ".join(unpriced)
        yield (
            f"  cost: no price is known of {names}; give --price {unpriced[0]}=2.5 (USD per "
            "GPU-hour) or --capital"
        )


def _by_batch(found: Sequence[Offer], asked: Purchase) -> Iterator[str]:
    """Yield what each batch that was searched does."""
    rows = [["tokens per step", "", "GPUs", "days", "cost", "MFU", ""]]
    for one in found:
        best = one.best(asked.wish)
        if best is None or best.detail is None:
            rows.append([asked.tokens(one.batch), one.machine, "-", "-", "-", "-", one.why])
            continue
        days, cost, mfu = (best.detail[name] for name in ("run_days", "run_cost", "mfu"))
        late = best.fails(asked.wish)
        late = f"at best; {late}" if one.least is None else late
        texts = [three(days), shown("run_cost", cost), percent(mfu)]
        rows.append([asked.tokens(one.batch), one.machine, f"{best.gpus:,}", *texts, late])
    yield "By batch"
    yield from aligned(rows, left=2, last=True)
    yield ""


# A column of the table: its quantity, its head, and what it is multiplied by there.
COLUMNS = (
    ("run_days", "days", 1.0),
    ("run_cost", "cost (M USD)", 1e-6),
    ("cost_per_trillion_useful_tokens", "USD per T tokens", 1.0),
    ("goodput", "goodput (%)", 100.0),
    ("training_energy", "energy (MWh)", 1.0 / 3.6e9),
    ("spare_nodes", "spare nodes", 1.0),
    ("mfu", "MFU (%)", 100.0),
)


Row = tuple[list[str], Tried, str]


def _of_machines(made: Sequence[Offer], wish: Wish) -> list[Row]:
    """Return the rows of machines: each one's best, and the fewest GPUs that make it."""
    chosen = []
    for one in made:
        best = one.best(wish)
        for own in (best, one.least) if one.least is not best else (best,):
            assert own is not None
            why = own.fails(wish) or ("" if own is best else "the fewest")
            chosen.append(([one.machine], own, why))
    return chosen


def _table(heads_of_keys: Sequence[str], chosen: Sequence[Row]) -> list[list[str]]:
    """Return the table: a row for each number of GPUs that is told, after its keys."""
    details = [own.detail for _, own, _ in chosen if own.detail is not None]
    columns = [
        column for column in COLUMNS if any(not isnan(detail[column[0]]) for detail in details)
    ]
    heads = [head for _, head, _ in columns]
    rows = [[*heads_of_keys, "", "GPUs", heads[0], "band", *heads[1:], ""]]
    for (keys, own, why), detail in zip(chosen, details, strict=True):
        texts = [grouped(detail[name] * scale) for name, _, scale in columns]
        band = band_of("step_time", detail.values.get)
        notes = [text for text in (why, detail.fit) if text not in ("", FITS)]
        rows.append([*keys, f"{own.gpus:,}", texts[0], band, *texts[1:], "; ".join(notes)])
    return rows if any(row[-1] for row in rows) else [row[:-1] for row in rows]


def _answer(found: Sequence[Offer], wish: Wish) -> Tried | None:
    """Return the GPUs to buy; None where no machine can."""
    batch = best_batch(found, wish) or found[-1].batch
    made = _ordered([one for one in found if one.batch == batch and one.least], wish)
    return made[0].best(wish) if made else None


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


def _in_short(one: Offer, wish: Wish) -> Iterator[str]:
    """Yield a machine's plan and its next smaller number of GPUs, or why there is none."""
    best = one.best(wish)
    if one.least is None or best is None or best.detail is None:
        yield from wrapped(f"{one.machine}: {one.why}")
        return
    yield from wrapped(f"{one.machine}: {best.detail.plan.name}")
    less = one.neighbour
    if less is not None:
        short = less.fails(wish) or "it would do"
        plan = f" ({less.detail.plan.split})" if less.detail else ""
        yield from wrapped(f"next smaller: {less.gpus:,} GPUs{plan}: {short}", "  ")


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
        lines.append(
            f"fewer make it, and cost more: {one.least.gpus:,} GPUs: {_run_words(one.least)}"
        )
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
