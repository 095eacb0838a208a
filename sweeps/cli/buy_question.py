"""What ``sweeps buy`` is asked: each model with all tokens, days and prices, on some machines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import cast

from sweeps.cli import flags
from sweeps.cli.from_file import reading_lines
from sweeps.cli.given import Planned, texts_of
from sweeps.cli.numbers import shown
from sweeps.cli.plan_command import OTHERS, check_options_used, length_words, read_number
from sweeps.cli.typed import flag_of, folders_of
from sweeps.errors import InputError, fault, less_than_a_step, refuse, tell_all
from sweeps.search.batches import Batches, batches_of
from sweeps.search.buy import PRICES, Wish
from sweeps.search.request import Point, Request, read_request, sequences_of
from sweeps.search.space import common_of
from sweeps.spec.axis import numbers_of, parse_values
from sweeps.spec.catalog import load_hardware
from sweeps.spec.model import USUAL_LENGTH
from sweeps.spec.units import spelled_out

# Options of which several values are a table, with the heads of its columns.
SEVERAL = {"model": "model", "tokens": "tokens", "days": "in days", "gpu_hour_price": "USD/h"}
# Of so many all splits can be that a purchase may have: nodes of 8 and 72 GPUs, and stages of 3.
MANY_GPUS = 2304.0
OF_BUYING = tuple(name for name in OTHERS if name not in ("world_size", "nodes"))
# What owning costs beside the machine, with what is assumed where it isn't given.
OWNING = {
    "depreciation_time": "",
    "electricity_price": "",
    "pue": " (no cooling)",
    "network_cost_fraction": " (the capital cost holds the network)",
}
# Sequences of a step where neither is said nor does a publication help, as `sweeps plan` has them.
USUAL_BATCH = "512"


@dataclass(frozen=True)
class Purchase:
    """What the command is asked."""

    wish: Wish
    points: Mapping[str, Point]  # Each machine's question
    sequences: tuple[float, ...]  # Of a step: the batches that are searched, from small to large
    batches: Batches | None  # Whose they are, where none is given
    readings: Sequence[str]  # How numbers were read
    assumed: Sequence[str]  # What wasn't given, as it was taken
    gpus: tuple[int, ...] = ()  # The numbers to compare; none where the fewest are searched
    keys: Mapping[str, str] = field(default_factory=dict)  # What tells it from others, as typed

    @property
    def first(self) -> Point:
        """The question about the first machine."""
        return next(iter(self.points.values()))

    def tokens(self, batch: float) -> str:
        """Return the tokens of so many sequences, in words."""
        return f"{batch * self.first.constants['sequence_length'] / 1e6:.3g} M"


@dataclass(frozen=True)
class _Model:
    """What is asked of one model, whatever is trained at what price."""

    points: Mapping[str, Point]
    sequences: tuple[float, ...]  # The batches that are given; none where they are searched
    readings: Sequence[str]
    lengths: Sequence[str]  # How long sequences are, where that isn't given


def read_purchases(given: Planned) -> list[Purchase]:
    """Return what is asked: every model with all tokens, days and prices."""
    faults: list[str] = []
    tokens = _amounts("--tokens", str(given["tokens"]), "tokens", faults)
    days = _amounts("--days", str(given["days"]), "days", faults)
    budget = read_number("--budget", given["budget"], faults, "USD")
    gpus = _several("world_size", given["world_size"], faults)
    text = texts_of(given, ("gpu_hour_price",))["gpu_hour_price"]
    # Of several machines prices are a machine's each, and named by it.
    machines = (given["hardware"] or "").split(",")
    typed = None if text is None or "=" in text or len(machines) > 1 else text
    prices = {f"{amount:g}": amount for amount in _several("gpu_hour_price", typed, faults)}
    names = [part.strip() for part in (given["model"] or "").split(",")]
    models: dict[str, _Model] = {}
    first = {"gpu_hour_price": next(iter(prices), None)} if len(prices) > 1 else {}
    for model in names:
        try:
            models[model] = _of_model(cast("Planned", {**given, **first, "model": model or None}))
        except InputError as error:
            faults += [line for line in error.faults if line not in faults]
    tell_all(faults)
    purchases = []
    for combined in itertools.product(models, tokens, days, prices if len(prices) > 1 else [None]):
        name, of_tokens, in_days, price = combined
        wish = Wish(tokens[of_tokens], days[in_days], inf if budget is None else budget)
        asked = models[name]
        if price is not None:
            points = {
                machine: point.with_constants(gpu_hour_price=prices[price])
                for machine, point in asked.points.items()
            }
            asked = replace(asked, points=points)
        purchase = _purchase(asked, wish, folders_of(given))
        if budget is not None:
            notes = _unpriced(asked.points, str(given["budget"]))
            purchase = replace(purchase, readings=[*purchase.readings, *notes])
        keys = {key: str(value) for key, value in zip(SEVERAL, combined, strict=True)}
        purchases.append(replace(purchase, gpus=tuple(map(int, gpus)), keys=keys))
    return purchases


def _amounts(flag: str, text: str, unit: str, faults: list[str]) -> dict[str, float]:
    """Return the numbers of an option such as 2T,15T or 1T:8T:x2, by how each is told."""
    amounts: dict[str, float] = {}
    for piece in (part.strip() for part in text.split(",")):
        ends = piece.split(":")
        if not piece:
            wrong = "has a comma without a value"
            faults.append(fault(flag, text, wrong, "put single commas between values"))
            continue
        numbers = [read_number(flag, end, faults, unit) for end in ends[:2]]
        if None in numbers:
            continue
        values = {piece: numbers[0]}
        if len(ends) > 1:
            ranged = ":".join([*(f"{number:.17g}" for number in numbers if number), *ends[2:]])
            try:
                values = {_told(number): number for number in _range(ranged, flag)}
            except InputError as error:
                faults += error.faults
                continue
        for told, value in values.items():
            if value in amounts.values():
                faults.append(fault(flag, told, "is given twice", "give it once"))
            elif value is not None:
                amounts[told] = value
    return amounts


def _range(text: str, flag: str) -> list[float]:
    return parse_values(text, "1", field=flag, bare_is_si=True).tolist()


def _told(number: float) -> str:
    """Return a number of a range as it could be typed."""
    for letter, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.6g}{letter}"
    return f"{number:.6g}"


def _several(name: str, text: str | None, faults: list[str]) -> list[float]:
    """Return the values of a quantity, in order; none where nothing is typed."""
    try:
        if text is not None:
            return numbers_of(name, spelled_out(name, text), flag_of(name)).tolist()
    except InputError as error:
        faults += error.faults
    return []


def _of_model(given: Planned) -> _Model:
    """Return each machine's question about a model, how numbers were read, and what is assumed."""
    faults: list[str] = []
    every = flags.given_options(given, OF_BUYING)
    if every.get("nodes") is not None:
        allowed = f"{flag_of('world_size')}, in GPUs of all nodes"
        faults.append(fault(flag_of("nodes"), every["nodes"], "isn't read here", allowed))
    values = {name: text for name, text in every.items() if text is not None}
    usual = ("global_batch_size", "sequence_length")
    values |= {name: text for name, text in texts_of(given, usual).items() if text is not None}
    readings = [*reading_lines(), *flags.in_tokens(values, flag_of("global_batch_size"))]
    readings += flags.model_notes(values.get("model"), folders_of(given))
    typed = {**values}
    machines = [part.strip() for part in values.pop("hardware", "dgx-h100").split(",")]
    each = {
        name: _each(name, text, machines, faults)
        for name, text in texts_of({**dict.fromkeys(PRICES), **given}, PRICES).items()
    }
    for name in (*PRICES, "world_size", "nodes"):
        values.pop(name, None)
    kind = "tokens_per_step" if "tokens_per_step" in values else "global_batch_size"
    batches = _several(kind, values.get(kind), faults)
    tell_all(faults)
    values[kind] = f"{batches[0]:.17g}" if batches else USUAL_BATCH
    points = {}
    lengths: Sequence[str] = ()
    for machine in machines:
        prices = {
            price_name: texts[machine] for price_name, texts in each.items() if machine in texts
        }
        asked = {"world_size": "8", **values, **prices, "hardware": machine}
        request = read_request(
            asked, objective="time", folders=folders_of(given), usual_length=USUAL_LENGTH
        )
        tell_all(_varying(request, asked, machine))
        points[machine] = request.first
        lengths = [length_words(length) for length in request.lengths]
    some = [point.with_constants(world_size=MANY_GPUS) for point in points.values()]
    told = {name: text for name, text in every.items() if text is not None}
    check_options_used(some, {**told, **typed}, run=True)
    if kind == "tokens_per_step":
        length = points[machines[0]].constants["sequence_length"]
        batches = [sequences_of(tokens, length) for tokens in batches]
    return _Model(points, tuple(batches), readings, lengths)


def _varying(request: Request, asked: Mapping[str, object], machine: str) -> list[str]:
    """Return faults of what has several values and may have one."""
    return [
        fault(
            flag_of(axis.name),
            str(asked.get(axis.name, "several values")),
            "has several values",
            f"one value, or {machine}=VALUE,.." if axis.name in PRICES else "one value",
        )
        for axis in request.axes
    ]


def _each(
    name: str, text: str | None, machines: Sequence[str], faults: list[str]
) -> dict[str, str]:
    """Return a value for each machine: one for all, or those of ``machine=value,..``."""
    if text is None:
        return {}
    if "=" not in text:
        return dict.fromkeys(machines, text)
    by_machine = {}
    for piece in text.split(","):
        machine, _, value = (part.strip() for part in piece.partition("="))
        if machine not in machines or not value:
            allowed = f"one value, or machine=value of {', '.join(machines)}"
            faults.append(fault(flag_of(name), piece, "can't be read", allowed))
        by_machine[machine] = value
    return by_machine


def _purchase(asked: _Model, wish: Wish, folders: Sequence[Path]) -> Purchase:
    """Return what is asked of a model with so many tokens and days."""
    first = next(iter(asked.points.values()))
    assumed, batches = [*asked.lengths], None
    sequences = asked.sequences
    if not sequences:
        known = common_of(first)[2].constants
        batches = batches_of(first.labels.get("model", ""), known, wish.tokens, folders)
        sequences = batches.sequences if batches else (float(USUAL_BATCH),)
        usual = f"{flag_of('global_batch_size')} {USUAL_BATCH}"
        assumed.append(batches.words if batches else usual)
    owned = [point for point in asked.points.values() if "capital_cost" in point.constants]
    assumed += [words for point in owned[:1] for words in _owning(point)]
    step = min(sequences) * first.constants["sequence_length"]
    tell_all(less_than_a_step("--tokens", wish.tokens, step))
    return Purchase(wish, asked.points, sequences, batches, asked.readings, assumed)


def _unpriced(points: Mapping[str, Point], budget: str) -> Iterator[str]:
    """Yield a note on machines without a price, which no budget binds; refuse one for nothing."""
    names = [
        name
        for name, point in points.items()
        if not {*PRICES} & set(point.constants)
        and "gpu_hour_price" not in load_hardware(name, point.folders).figures
    ]
    listed = ", ".join(names)
    if len(names) == len(points):
        wrong = f"needs a price, and none is known of {listed}"
        small = f". {budget} means {budget} USD; write {budget}M" if budget.isdigit() else ""
        refuse("--budget", budget, wrong, f"add --price 2.5 (USD per GPU-hour){small}")
    if names:
        yield f"no price is known of {listed}, which no budget binds: --price {names[0]}=2.5"


def _owning(point: Point) -> Iterator[str]:
    """Yield what is assumed of a machine that is owned."""
    values = common_of(point)[2].constants
    for name, why in OWNING.items():
        if name not in point.constants:
            yield f"{flag_of(name)} {shown(name, values[name])}{why}"
