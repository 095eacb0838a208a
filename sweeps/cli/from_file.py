"""``--from FILE``: what a launch file says becomes options, as if it had been typed.

The command line rules over the file: what it gives isn't taken from there, and what follows is
derived anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from overhead.frozen import frozen
from sweeps.cli.option_table import options
from sweeps.errors import InputError

if TYPE_CHECKING:
    from sweeps.launch.setting import Reading

FROM = f"{__name__}.from"
# What one option of the command line says in place of others of a file.
SAME: Mapping[str, tuple[str, ...]] = {
    "nodes": ("world_size",),
    "tokens_per_step": ("global_batch_size",),
    "batch_size": ("micro_batch_size",),
    "num_micro_batches": ("global_batch_size",),
}
# What a purchase finds by itself, or is asked by other options.
NOT_BOUGHT = frozenset(("world_size", "training_tokens"))


@frozen(slots=True)
class FromFile:
    """What was read of the launch files of a command."""

    readings: tuple[Reading, ...]
    taken: Mapping[str, str]  # Options that come from them, by quantity or label, as text
    plan: Mapping[str, str]  # The files' own plan, where the command searches for one


from_option = options("from")


def files_in(args: Sequence[str]) -> list[str]:
    """Return the files of ``--from`` among arguments."""
    paths = [arg.partition("=")[2] for arg in args if arg.startswith("--from=")]
    return paths + [args[k + 1] for k, arg in enumerate(args[:-1]) if arg == "--from"]


def read_files(
    files: Sequence[str], given: Mapping[str, Sequence[tuple[str, Any]]], command: str
) -> FromFile:
    """Read launch files beside options that are given, by quantity with their names and values."""
    from sweeps.launch.arguments import Override
    from sweeps.launch.read import read_launches
    from sweeps.launch.together import given_together, shapes
    from sweeps.search.request import CHOICES

    overrides = {name: Override(pairs[-1][0], str(pairs[-1][1])) for name, pairs in given.items()}
    ruled = {spelling for name in given for spelling in (name, *SAME.get(name, ()))}
    for name in ruled - overrides.keys():
        overrides[name] = Override("", "")
    readings = read_launches(files, overrides)
    values = given_together(readings)
    _ask(readings, {*ruled, *values} | ({"world_size"} if command == "buy" else set()))
    taken = {name: _text(value) for name, value in values.items() if name not in ruled}
    if "model" in given:
        shape_names = shapes()
        taken = {name: text for name, text in taken.items() if name not in shape_names}
    if is_of_hosts(taken, given.get("hardware", ())):
        del taken["gpus_per_node"]
    plan = {}
    if command in ("plan", "buy"):
        plan = {name: text for name, text in taken.items() if name in CHOICES}
        taken = {name: text for name, text in taken.items() if name not in CHOICES}
    if command == "buy":
        taken = {name: text for name, text in taken.items() if name not in NOT_BOUGHT}
    return FromFile(tuple(readings), taken, plan)


def is_of_hosts(taken: Mapping[str, str], hardware: Sequence[tuple[str, Any]]) -> bool:
    """Return whether a launcher counts the GPUs of a host, several of which are a node here."""
    if "gpus_per_node" not in taken or not hardware:
        return False
    from sweeps.spec.catalog import load_hardware

    names = str(hardware[-1][1]).split(",")
    try:
        figures = [load_hardware(name).figures for name in names]
    except InputError:  # told where the machine is read, or it is of an own folder
        return False
    hosts = [figure.get("gpus_per_host") for figure in figures]
    return any(host is not None and f"{host.value:g}" == taken["gpus_per_node"] for host in hosts)


def _ask(readings: Sequence[Reading], ruled: set[str]) -> None:
    """Refuse files that leave something to the command line which isn't there."""
    faults = [
        f"{reading.file}: doesn't say {words}; give {flag}"
        for reading in readings
        for flag in dict.fromkeys(reading.asks)
        for words, *names in [ASKED.get(flag, ("what it is",))]
        if not {*names} & ruled
    ]
    if faults:
        raise InputError(faults)


# By option that a file leaves to the command line: what it is, and what may give it.
ASKED: Mapping[str, tuple[str, ...]] = {
    "--gpus": ("on how many GPUs it runs", "world_size"),
    "--micro-batch-size": ("how large a micro-batch is", "micro_batch_size"),
    "--num-layers": ("how many layers the model has", "layers", "model"),
    "--hidden-size": ("how wide the model is", "hidden_size", "model"),
    "--num-attention-heads": ("how many heads the model has", "heads", "model"),
    "--seq-length": ("how long sequences are", "sequence_length"),
    "--vocab-size": ("how many tokens the tokenizer knows", "vocabulary_size", "model"),
    "--model": ("which model it trains", "model"),
}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e18 else repr(value)
    return str(value)


def found_in(context: click.Context | None) -> FromFile | None:
    """Return what was read of the launch files of the command that runs."""
    return context.meta.get(FROM) if context else None


def reading_lines() -> Iterator[str]:
    """Yield what was read of launch files, in a few sentences."""
    from_file = found_in(click.get_current_context(silent=True))
    for reading in from_file.readings if from_file else ():
        yield from reading.lines()


def setting_lines() -> Iterator[str]:
    """Yield of launch files every note, and every value with the setting that it comes from."""
    from_file = found_in(click.get_current_context(silent=True))
    for reading in from_file.readings if from_file else ():
        yield from reading.lines()
        lists = {
            "of too little effect": reading.small,
            "without effect on cost": reading.no_cost,
            "not modelled": reading.not_modelled,
            "not understood": reading.unknown,
        }
        yield from (f"  {words}: {', '.join(names)}" for words, names in lists.items() if names)
        for name, value in reading.given.items():
            ruled = (
                "" if from_file and name in {*from_file.taken, *from_file.plan} else " (not taken)"
            )
            yield f"  {name} = {_text(value)}: {reading.origins[name]}{ruled}"
        yield ""
