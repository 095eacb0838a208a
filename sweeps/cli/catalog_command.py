"""``sweeps catalog``: machines and models, what they are and where that comes from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sweeps.spec.catalog import Figure, Machine
    from sweeps.spec.model import Model

__all__ = ["command"]

# What is told of a model's parameters, and of one token's forward pass.
COUNTS = ("parameters", "active_parameters")
PARTS = ("attention_parameters", "mlp_parameters", "moe_parameters", "embedding_parameters")
PASS = (
    "weight_flops_per_token",
    "logits_flops_per_token",
    "attention_flops_per_token",
    "causal_attention_flops_per_token",
    "forward_flops_per_token",
    "causal_forward_flops_per_token",
)


@click.command("catalog")
@click.argument("names", nargs=-1)
@click.option("--hardware-folder", multiple=True, metavar="FOLDER", help="Own machines.")
@click.option("--model-folder", multiple=True, metavar="FOLDER", help="Own models.")
@click.option(
    "--seq-length",
    "--seq-len",
    default="4096",
    show_default=True,
    metavar="TOKENS",
    help="Sequence for a model's FLOPs.",
)
def command(
    names: tuple[str, ...],
    hardware_folder: tuple[str, ...],
    model_folder: tuple[str, ...],
    seq_length: str,
) -> int:
    """List machines and models; with NAMES, all of these with its sources.

    A model's name may be Hugging Face's, or the path of a config.json.
    """
    from sweeps.spec.catalog import (
        Machine,
        hardware_names,
        load_hardware,
        load_model,
        model_names,
    )

    machines = [Path(folder) for folder in hardware_folder]
    models = [Path(folder) for folder in model_folder]
    if not names:
        known = hardware_names(machines)
        _list("machines", known, lambda name: load_hardware(name, machines).title)
        sys.stdout.write("\n")
        _list("models", model_names(models), lambda name: load_model(name, models).title)
        return 0
    found = [_load(name, machines, models) for name in names]
    for one in found:
        if isinstance(one, Machine):
            _show_machine(one)
        else:
            _show_model(one, seq_length)
    return 0


def _list(heading: str, names: Sequence[str], title: Callable[[str], str]) -> None:
    sys.stdout.write(f"{heading}\n")
    width = max(map(len, names), default=0)
    for name in names:
        sys.stdout.write(f"  {name.ljust(width)}  {title(name)}\n")


def _load(name: str, machines: Sequence[Path], models: Sequence[Path]) -> Machine | Model:
    """Load what is called so: a file is what its keys say, a name what has it."""
    from sweeps.errors import InputError, fault, nearest
    from sweeps.spec.catalog import (
        hardware_names,
        load_hardware,
        load_model,
        model_names,
        read_toml,
    )

    if name.endswith(".toml") and Path(name).is_file():
        content = read_toml(Path(name))
        return load_hardware(name) if "scale_up" in content else load_model(name)
    ours, theirs = hardware_names(machines), model_names(models)
    if name in ours:
        return load_hardware(name, machines)
    if name in theirs or name.endswith(".json") or Path(name).name != name:
        return load_model(name, models)
    near = nearest(name, (*ours, *theirs), shown=60)
    raise InputError(fault("name", name, "there is no such machine or model", near))


def _show_machine(machine: Machine) -> None:
    sys.stdout.write(f"{machine.name}  {machine.title}\n  {machine.summary}\n")
    _show_figures(machine.figures)
    for level, abilities in (
        ("node", machine.in_network),
        ("fabric", machine.scale_out_in_network),
    ):
        told = ", ".join(abilities) or "nothing"
        sys.stdout.write(f"  the {level}'s switch reduces in the network by: {told}\n")


def _show_figures(figures: Mapping[str, Figure]) -> None:
    from sweeps.spec.units import format_quantity

    width = max(map(len, figures), default=0)
    for quantity, figure in figures.items():
        shown = format_quantity(figure.value, figure.units)
        line = f"  {quantity.ljust(width)}  {shown:<14} {figure.kind:<14} {figure.source}"
        sys.stdout.write(line.rstrip() + "\n")


def _show_model(model: Model, seq_length: str) -> None:
    from sweeps.spec.model import shape_value

    length = shape_value("sequence_length", seq_length, "seq_length")
    sys.stdout.write(f"{model.name}  {model.title}\n")
    if model.summary:
        sys.stdout.write(f"  {model.summary}\n")
    if model.hugging_face:
        sys.stdout.write(f"  Hugging Face: {', '.join(model.hugging_face)}\n")
    sys.stdout.write(f"  shapes: {model.kind}, {model.source}\n")
    # What the file's own source doesn't cover says where it comes from; absent parts go unsaid.
    own = {
        name: figure
        for name, figure in model.figures.items()
        if name in model.stated or name in {"kv_heads", "head_size"}
    }
    width = max(map(len, (*own, *PASS)))
    for name, figure in own.items():
        origin = "" if figure.source == model.source else f"   {figure.kind}, {figure.source}"
        sys.stdout.write(f"  {name.ljust(width)}  {figure.value:,.0f}{origin}\n")
    if not model.labels:
        sys.stdout.write("  it is a number of parameters alone: no shapes, no FLOPs\n")
        return
    sys.stdout.write("  parameters, all and those that one token meets, and of one layer's parts\n")
    _show_totals(model, (*COUNTS, *PARTS), width)
    sys.stdout.write(f"  forward FLOPs of one token in a sequence of {length:,.0f}\n")
    _show_totals(model, PASS, width, sequence_length=length)


def _show_totals(model: Model, names: Sequence[str], width: int, **given: float) -> None:
    for name in names:
        value = model.quantity(name, **given)
        if value > 0.0:
            sys.stdout.write(f"  {name.ljust(width)}  {value:,.0f}\n")
