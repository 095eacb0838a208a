"""Options that several commands share, and what they state together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from overhead.model.order import NUMBERS, pattern_of
from sweeps.bands import written
from sweeps.cli.given import Given
from sweeps.cli.option_table import options
from sweeps.cli.presets import from_preset, preset_lines
from sweeps.cli.sections import wrapped
from sweeps.cli.typed import flag_of, folders_of
from sweeps.idle import UNUSED, unused
from sweeps.job import Job
from sweeps.origin import ASSUMED, words_of
from sweeps.spec.keywords import Stated, spec_of
from sweeps.spec.machine import Machine
from sweeps.wrapping import prose, wrap

output_options, result_options = options("output"), options("result")


def show_sensitivity(job: Job, given: Given, name: str, asked: str) -> None:
    """Write and show what constants move a quantity by."""
    from sweeps.cli.write import Output
    from sweeps.error_bar import sensitivity_of

    out = Output(given, f"{name}-sensitivity")
    sensitivity = sensitivity_of(job, asked, folders_of(given))
    out.deliver(sensitivity.result(given), sensitivity.lines(every=bool(given["verbose"])))


def sweep_of_options(given: Mapping[str, str | None], title: str) -> Stated:
    """Make of options what a spec file would state."""
    spec = spec_of({name: text for name, text in given.items() if text is not None})
    spec["title"] = title
    return spec


def file_options(given: Given) -> dict[str, object]:
    """Return the options that decide a file's contents, for its fingerprint."""
    formulas = [Path(path).read_text(encoding="utf-8") for path in given["formulas"]]
    kind = {"format": "zarr"} if given.get("kind") == "zarr" else {}
    compress = given.get("compress", False)
    return {"compress": compress, **kind, "formulas": "".join(formulas)}


# What the user didn't give: the values taken, and where they come from.

# What says how units convert, and a model's shapes that it doesn't have.
CONVERSIONS = ("hour", "day", "kilowatt_hour")
ABSENT = (ASSUMED, "not stated: none")


# What says how many GPUs are below a leaf switch.
LEAF = ("nodes_per_leaf", "gpus_per_node")


def unused_lines(job: Job, named: Callable[[str], str] = flag_of) -> Iterator[str]:
    """Yield what the user gave and nothing that is told depends on, as it is named there."""
    if idle := unused(job):
        yield f"{UNUSED}: {', '.join(map(named, idle))}"
    yield from uplink_lines(job)


def uplink_lines(job: Job) -> Iterator[str]:
    """Yield why a given oversubscription changes nothing, where no GPU is beyond a leaf switch."""
    columns = job.program.grid.columns
    size = "world_size" if "world_size" in columns else "ranks"
    # Of several a table says itself which changes nothing.
    ratio = job.resolved.constants.get("oversubscription", 1.0)
    if "oversubscription" in job.sweep.given and {size, *LEAF} <= columns.keys():
        least = (float(columns[name].min()) for name in LEAF)
        yield from uplink_words(ratio, float(columns[size].max()), *least)


def uplink_words(ratio: float, gpus: float, nodes: float, inside: float) -> Iterator[str]:
    """Yield the same of so many GPUs, nodes of a leaf and GPUs of a node."""
    if ratio > 1.0 and inside < gpus <= nodes * inside:
        yield from wrapped(
            f"oversubscription changes nothing here: one leaf switch has {nodes:g} nodes, so all "
            f"{gpus:,.0f} GPUs; --nodes-per-leaf gives another size"
        )


def _said(name: str, constants: Mapping[str, float]) -> str:
    """Return a value as text: of a part of a hybrid's order its letters."""
    if name in NUMBERS and constants[name]:
        return pattern_of({NUMBERS[0]: constants[name], "mamba": constants.get("mamba", 0.0)})
    return written(name, constants[name])


def taken_values(job: Job, *, absent: bool = False) -> dict[str, str]:
    """Return the values that weren't given and are used, as text; also those that are `absent`."""
    columns = {n: v for axis in job.program.grid.axes for n, v in axis.columns.items()}
    constants = {**job.program.grid.constants, **job.program.assumed}
    used = {"hardware", *job.program.labels, *job.program.used()}
    taken: dict[str, str] = {}
    for name, origins in job.resolved.origins.items():
        lacking = all((origin.kind, origin.source) == ABSENT for origin in origins)
        if name not in used or name in CONVERSIONS or (lacking and not absent):
            continue
        if name in job.program.labels:
            taken[name] = job.program.labels[name]
        elif name in constants:
            taken[name] = _said(name, constants)
        elif name in columns:
            taken[name] = _several(name, columns[name])
        elif name in job.program.grid.columns:
            taken[name] = _several(name, job.program.grid.columns[name].reshape(-1))
    return taken


# Of a training configuration the values that weren't given and matter most.
MATTERING = ("framework", "precision", "attention_kernel", "recompute", "software")


def defaults_line(job: Job, first: Sequence[str], *more: str) -> Iterator[str]:
    """Yield the values that weren't given and matter most, and how many others there are."""
    taken = taken_values(job)
    yield from preset_lines(job, taken)
    taken_names = [
        name for name in first if name in taken and not from_preset(job.resolved.origins[name])
    ]
    named = [f"{name} = {taken[name]}" for name in taken_names]
    if taken:
        others = len(taken) - len(named)
        noun = "more" if more or named else f"value{'s' * (others > 1)}"
        rest = [f"{others} {noun}"] if others else []
        yield from wrapped("Defaults: " + "; ".join((*more, *named, *rest)))


def default_lines(job: Job) -> Iterator[str]:
    """Yield every value that wasn't given, gathered by where it comes from."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name, value in taken_values(job, absent=True).items():
        origin = words_of(job.resolved.origins[name])
        groups.setdefault(origin, {}).setdefault(value, []).append(name)
    if groups:
        yield "Defaults, by source"
    for origin, values in groups.items():
        yield f"  {origin}"
        text = "; ".join(f"{', '.join(names)} = {value}" for value, names in values.items())
        yield from wrap(text, prose(), initial_indent=" " * 6, subsequent_indent=" " * 6)


def _several(name: str, values: Any) -> str:
    shown = list(dict.fromkeys(written(name, float(v)) for v in values))
    return ", ".join(shown[:6]) + (", .." if len(shown) > 6 else "")


def price_words(machines: Iterable[Machine]) -> str:
    """Return how old the catalogue's prices of machines are; nothing where none has a price."""
    prices = {
        machine.name: price
        for machine in machines
        if (price := machine.figures.get("gpu_hour_price")) is not None
    }
    words = {name: f"{price.value:g} USD/h for a GPU of {name}" for name, price in prices.items()}
    if len(prices) == 1:
        ((name, price),) = prices.items()
        whose = f"({price.kind}: {price.source})"
        return f"the price, {words[name]}, is {_age(price.date)} {whose}: --price gives today's"
    several = "; ".join(f"{words[name]} ({_age(price.date)})" for name, price in prices.items())
    sources = f"sources: sweeps catalog {' '.join(prices)} --show sources"
    return f"prices: {several} ({sources}): --price gives today's" if prices else ""


def _age(date: str) -> str:
    """Return how old a price of a month is."""
    from sweeps.store.encode import created

    if not date:
        return "without a date"
    today, then = (12 * int(text[:4]) + int(text[5:7]) for text in (created(), date))
    return f"of {date}, {today - then} months old"
