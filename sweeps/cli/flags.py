"""Options that say what is computed: one for every quantity and label that a sweep can be given.

The usual ones stand in a command's help; any other is an option by its own name, such as
``--dropout`` or ``--workspace-bytes``.  What they mean, their units, values and defaults are those
of the vocabulary and of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, trees
from overhead.formula import REGISTRY
from overhead.labels import LABELS
from overhead.plan import conditions as conditions_of_plans
from overhead.quantity import VOCABULARY
from sweeps.cli.from_file import FROM, files_in, found_in, read_files
from sweeps.cli.given import Options, texts_of
from sweeps.cli.option_table import read_table
from sweeps.cli.typed import TYPED, Command, flag_of, flags_of, occurrences
from sweeps.errors import InputError, fault, refuse, tell_all
from sweeps.spec.names import quantity_of
from sweeps.spec.units import UNITS, counts_tokens, spelled_out

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

COLLECTIVE, TRAINING, SEARCH = "collective", "analysis", "plan"
SEARCHES = (SEARCH, "buy")


class Usual(NamedTuple):
    """A usual option: what of it doesn't follow from the name of what it gives."""

    commands: Collection[str] = ()  # That have it by this table
    part: str = ""  # Of help, in which it stands
    common: Collection[str] = ()  # The commands whose short help has it
    default: str = ""  # What is taken where it isn't given, if formulas say it
    words: str = ""  # What it is, if people say it otherwise than the vocabulary


# The usual options, in the order of help, of axes and so of records.
USUAL = {
    row["name"]: Usual(
        row["commands"].split(), row["part"], row["common"].split(), row["default"], row["words"]
    )
    for row in read_table("quantities.csv")
}
OF_COLLECTIVES, OF_TRAINING = (
    tuple(name for name, usual in USUAL.items() if command in usual.commands)
    for command in (COLLECTIVE, TRAINING)
)
# The parts of help, behind the options of no part.
BATCH = "Model and batch"
SECTIONS = (BATCH, "Machine", "Network", "Parallel plan", "Framework and numbers", "Files")
NONE = Usual()
HELP_ALL = f"{__name__}.help_all"

# What is written for a switch.
SWITCHED = {"on": "1", "true": "1", "yes": "1", "off": "0", "false": "0", "no": "0"}
# A label's values that help lists.
LISTED = 8
EXTRA = f"{__name__}.extra"


class Option(click.Option):
    """An option that gives a quantity or label; what it says of itself is made when it is asked."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the name of the option and what it is."""
        self.help = self.help or words_of(str(self.name), str(ctx.command.name))
        return super().get_help_record(ctx)


class SweepCommand(Command):
    """A command that takes any quantity or label of a sweep as an option by its name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the options by name that the arguments have."""
        if "--help-all" in args:
            ctx.meta[HELP_ALL] = True
            args = [*(arg for arg in args if arg != "--help-all"), "--help"]
        known = {text for param in self.params for text in (*param.opts, *param.secondary_opts)}
        given = {param.name for param in self.params}
        typed = dict.fromkeys(text.partition("=")[0] for text in args if text.startswith("--"))
        alone = self.name == COLLECTIVE
        extra: dict[str, list[str]] = {}
        for text in typed:
            name = quantity_of(text[2:].replace("-", "_"), training=not alone)
            if text not in {*known, "--help"} and name not in given and is_input(name, alone=alone):
                extra.setdefault(name, []).append(text)
        ctx.meta[EXTRA] = [option(name, names) for name, names in extra.items()]
        if "launch_files" not in given or not (files := files_in(args)):
            return super().parse_args(ctx, args)
        read = read_files(files, occurrences(self, ctx, args), str(self.name))
        ctx.meta[FROM] = read
        declared = {*given, *extra}
        ctx.meta[EXTRA] += [
            option(name)
            for name in read.taken
            if name not in declared and flags_of(name)[0] not in known
        ]
        told = [f"{flags_of(name)[0]}={text}" for name, text in read.taken.items()]
        rest = super().parse_args(ctx, [*args, *told])
        origins = {name: why for reading in read.readings for name, why in reading.origins.items()}
        ctx.meta[TYPED] |= {name: origins[name] for name in read.taken}
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; of a launch file's values it is said whose they are."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            from_file = found_in(ctx)
            if from_file is None:
                raise
            files = [reading.file for reading in from_file.readings]
            lines = (
                line if any(file in line for file in files) else f"{', '.join(files)}: {line}"
                for line in error.faults
            )
            raise InputError([*lines]) from None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the usual options and those that the arguments have."""
        return [*super().get_params(ctx), *ctx.meta.get(EXTRA, ())]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the common options by what they are about; with ``--help-all`` all, and aliases."""
        parts: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *SECTIONS)}
        others: list[tuple[str, str]] = []
        whole = bool(ctx.meta.get(HELP_ALL))
        like = COLLECTIVE if self.name == COLLECTIVE else TRAINING
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is None:
                continue
            name = str(param.name)
            if name in USUAL and like not in USUAL[name].common and not whole:
                continue
            part = USUAL.get(name, NONE).part or "Options"
            opts = param.opts
            long = [opt for opt in opts if opt.startswith("--")]
            short = [spelling for spelling in opts if spelling not in long]
            first, more = ", ".join([*short, *long[:1]]), long[1:]
            names, words = record
            _, space, value = names.rpartition(", ")[2].partition(" ")
            shown = f"{first}{space}{value}" if more else names
            # Every value is one or several; long words stand in --help-all.
            parts[part].append(
                (shown, words) if whole else (shown.removesuffix(" VALUES"), _in_short(words))
            )
            others += [(first.split(", ")[-1], ", ".join(more))] * bool(more)
        for title, records in (*parts.items(), ("Aliases", others if whole else [])):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say that there are more options."""
        formatter.write_paragraph()
        if not ctx.meta.get(HELP_ALL):
            every = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
            formatter.write_text(f"All {len(every)} options, with defaults: --help-all")
            return
        formatter.write_text(
            "Any other quantity or label that a formula takes is an option by its name, such as "
            "--window 4096 or --workspace-bytes 1GiB."
        )


def _in_short(words: str) -> str:
    """Return an option's words on a line of help: without a default, then without its values."""
    text = words.partition("  [")[0]
    first, _, listed = text.partition(": ")
    named = f"{first}." if ", " in listed and "(" not in first else text
    return next((candidate for candidate in (words, text) if len(candidate) <= LONG), named)


LONG = 50  # letters of an option's words that fit a line of help


def option(name: str, names: Sequence[str] = (), words: str | None = None) -> Option:
    """Return the option that gives a quantity or label."""
    more: dict[str, Any] = {}
    if name == "sequence_parallel":
        more = {"is_flag": False, "flag_value": "on"}
    return Option([*(names or flags_of(name)), name], help=words, metavar="VALUES", **more)


def options(*names: str) -> Callable[[Decorated], Decorated]:
    """Add the options that give some quantities and labels."""

    def add(command: Decorated) -> Decorated:
        for name in reversed(names):
            made = option(name)
            params: list[click.Parameter] = command.__dict__.setdefault("__click_params__", [])
            params.append(made)
        return command

    return add


def given_options(given: Options, usual: Iterable[str]) -> dict[str, str | None]:
    """Return what the options give, by quantity or label, the usual ones and others."""
    context = click.get_current_context(silent=True)
    more = [str(param.name) for param in context.meta.get(EXTRA, ())] if context else []
    texts = texts_of(given, (*usual, *more))
    values = {name: read(name, text) for name, text in texts.items()}
    slow = [(n, t) for n, t in values.items() if n.endswith(("bandwidth", "latency")) and t]
    faults = [line for name, text in slow for line in _slow(name, text)]
    tell_all(faults)
    return values


def typed_options(given: Options, usual: Iterable[str]) -> dict[str, str | None]:
    """Return what was typed, as `given_options` does: what a launch file says may be idle here."""
    from_file = found_in(click.get_current_context(silent=True))
    taken = from_file.taken if from_file else {}
    return {name: text for name, text in given_options(given, usual).items() if name not in taken}


# No link is slower; a bare number below is one of Gbit/s or GB/s, without its unit.
SLOWEST = 1e6
LATEST = 0.1  # and no latency is longer: a bare number above is one of microseconds


def _slow(name: str, text: str) -> Iterator[str]:
    """Yield a fault for each number without a unit that no link has."""
    bare = {}
    parts = [part.strip() for piece in text.split(",") for part in piece.split(":")[:2]]
    for part in parts:
        with suppress(ValueError):  # of what has a unit, or is refused elsewhere
            bare[part] = float(part)
    if name.endswith("latency"):
        small, units, is_wrong = "seconds", ("us", "ns"), min(bare.values(), default=0.0) > LATEST
        wrong = parts[:1] if is_wrong and len(bare) == len({*parts}) else []
    else:
        small, units = "bytes a second", ("Gbit/s", "GB/s")
        wrong = [part for part, value in bare.items() if 0.0 < value < SLOWEST]
    for part in wrong:
        what = f"{small}, for it has no unit: no link is as slow"
        yield fault(flag_of(name), part, what, f"'{part} {units[0]}' or '{part} {units[1]}'")


# Numbers from here on are SI, smaller ones billions of parameters, or GB.
LARGE = 1e6
SHORT = {"billions": "billion parameters", "GB": "GB"}


def scaled(flag: str, text: str, unit: str, readings: list[str]) -> str:
    """Return numbers that are short for billions or GB as SI, and say how they were read."""
    pieces = []
    for piece in text.split(","):
        try:
            value = float(piece)
        except ValueError:
            pieces.append(piece)  # a range, or with a unit
            continue
        if 0.0 < value < LARGE:
            pieces.append(repr(value * 1e9))
            readings.append(f"{flag} {piece} is read as {value:g} {SHORT[unit]}")
        else:
            pieces.append(piece)
            read = f"{value / 1e9:,.4g} {SHORT[unit]}"
            readings.append(f"{flag} {piece} is read as {read}")
    return ",".join(pieces)


# What is the global batch in one command and the micro-batch in another.
AMBIGUOUS = ("--batch-size", "-b")


def model_notes(name: str | None, folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return how a model was found or read, where that is more than by its name."""
    from sweeps.spec.catalog import load_model

    try:
        note = "" if name is None else load_model(name, folders).note
    except InputError:  # which is told where it is needed
        note = ""
    return (note,) if note else ()


def in_tokens(options: dict[str, Any], batch: str) -> tuple[str, ...]:
    """Move a batch in tokens to where it is, and say how tokens written with k and M are read.

    `batch` is the option's name that was meant for sequences.
    """
    lines: list[str] = []
    if counts_tokens(options.get("global_batch_size")):
        if options.get("tokens_per_step") is not None:
            value, wrong = options["tokens_per_step"], f"stands beside {batch} in tokens"
            refuse(flag_of("tokens_per_step"), value, wrong, "one of the two")
        options["tokens_per_step"] = options.pop("global_batch_size")
        context = click.get_current_context(silent=True)
        if context is not None:
            context.meta.setdefault(TYPED, {})["tokens_per_step"] = batch
        lines = _readings(batch, "tokens_per_step", options["tokens_per_step"], " per step")
    elif options.get("tokens_per_step") is not None:
        if options.get("global_batch_size") is not None:
            value = options["global_batch_size"]
            refuse(batch, value, f"stands beside {flag_of('tokens_per_step')}", "one of the two")
        flag, text = flag_of("tokens_per_step"), options["tokens_per_step"]
        lines = _readings(flag, "tokens_per_step", text, " per step")
    elif options.get("global_batch_size") is not None and batch in AMBIGUOUS:
        wrong = "as the global batch size, in sequences of all ranks"
        lines = [f"{batch} {options['global_batch_size']} is read {wrong}"]
    length = options.get("sequence_length")
    if length is not None:
        lines += _readings(flag_of("sequence_length"), "sequence_length", length, "")
    return tuple(lines)


def _readings(flag: str, name: str, text: str, of: str) -> list[str]:
    """Return how the pieces of a text with k or M are read."""
    pieces = [part for piece in text.split(",") for part in piece.split(":")[:2]]
    return [
        f"{flag} {part.strip()} is read as {float(spelled_out(name, part)):,.0f} tokens{of}"
        for part in pieces
        if counts_tokens(part)
    ]


def read(name: str, text: str | None) -> str | None:
    """Return what is written in an option: of a switch its numbers, of "all" every value."""
    if text is None:
        return None
    label = LABELS.get(name)
    if label is None:
        return ",".join(switched(name, word) for word in text.split(","))
    # Of a network's labels a sweep itself knows what "all" is.
    every = text.strip() == "all" and label.training and label.values
    return ",".join(label.values) if every else text


def switched(name: str, word: str) -> str:
    """Return a switch's number; any other text as it is."""
    number = SWITCHED.get(word.strip().lower())
    # As how many layers an end counts is mostly one or none.
    takes = is_switch(name) or name in ("embedding_layer_weight", "head_layer_weight")
    return number if number is not None and takes else word


def is_switch(name: str) -> bool:
    """Return whether a quantity is 0 or 1."""
    quantity = VOCABULARY[name]
    return quantity.integer and (quantity.minimum, quantity.maximum) == (0, 1)


def is_input(name: str, *, alone: bool) -> bool:
    """Return whether a formula or a condition takes a quantity, or a label has the name.

    An operation alone takes only what is defined for collectives.
    """
    if name in LABELS:
        return not (alone and LABELS[name].training)
    if name not in VOCABULARY or (alone and name not in VOCABULARY.of_collectives):
        return False
    REGISTRY.load_everything()
    conditions = (
        [
            requirement
            for of in (NETWORKS, ALGORITHMS)
            for each in of.values()
            for requirement in each.requires
        ]
        if alone
        else [condition.rule for condition in conditions_of_plans() if not condition.labels]
    )
    return (
        any(name in formula.inputs for formula in REGISTRY.values())
        or any(name in call.bind.values() for call in REGISTRY.calls)
        or any(name in condition.inputs for condition in conditions)
    )


# What an option says of itself.


def words_of(name: str, command: str) -> str:
    """Return what an option is, with its unit or values, and its default."""
    default = _default(name, command)
    text = USUAL.get(name, NONE).words or (
        _of_label(name) if name in LABELS else _of_quantity(name)
    )
    return f"{text[:1].upper()}{text[1:]}.{f'  [default: {default}]' if default else ''}"


def _of_label(name: str) -> str:
    from sweeps.spec.axis import label_values

    values = label_values(name)
    listed = ", ".join((*values[:LISTED], *(["others"] if len(values) > LISTED else [])))
    return f"{LABELS[name].meaning}{f': {listed}' if listed else ''}"


def _of_quantity(name: str) -> str:
    quantity = VOCABULARY[name]
    unit = UNITS.get(quantity.units, quantity.units) if quantity.units != "1" else ""
    text = quantity.meaning.removesuffix(" (0 or 1)")
    return f"{text}: on or off" if is_switch(name) else f"{text}{f' [{unit}]' if unit else ''}"


def _default(name: str, command: str) -> str:
    """Return what is taken where nothing is said, in words."""
    from sweeps.cli.defaults import default_words
    from sweeps.search.request import SEARCHED

    if command in SEARCHES and name in SEARCHED:
        return "searched"
    default = USUAL.get(name, NONE).default
    return default or default_words(name, training=command != COLLECTIVE)


def tree_algorithm(topology: str | None, algorithm: str | None, usual: str) -> str:
    """Return the algorithm that --tree-algo means."""
    name = topology or usual
    if algorithm is not None:
        refuse("--tree-algo", "set", "--algorithm is given too", "one of the two")
    if name not in trees():
        allowed = f"one network of {', '.join(trees())}"
        refuse("--tree-algo", name, "no tree algorithm there", allowed)
    return NETWORKS[name].tree
