"""The figures that a prediction takes of a machine, each with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.errors import InputError, fault
from sweeps.spec.catalog import load_framework, load_hardware, read_toml, shipped
from sweeps.spec.figures import Entry, Figure, FigureReader
from sweeps.spec.machine import Machine
from sweeps.spec.training import training_constants
from sweeps.tuner.userbuffers import ALL_GATHER, REDUCE_SCATTER

__all__ = ["CHANGEABLE", "PRECISIONS", "Rates", "read_rates"]

PRECISIONS = ("bf16", "fp8")
FRAMEWORK = "megatron-lm"
# What can be given in place of the files' figures.
CHANGEABLE = {
    "sms": "1",
    "bandwidth": "byte s-1",
    "copy_engine_bandwidth": "byte s-1",
    "latency": "s",
    "launch_time": "s",
    "half_bandwidth_sms": "1",
    "tile_rows": "1",
    "tile_columns": "1",
}
_COUNT = Entry("sms", "1", minimum=1.0, integer=True)
_HALF = Entry("half_bandwidth_sms", "1", minimum=0.0)


@dataclass(frozen=True, slots=True)
class Rates:
    """A machine as a prediction sees it."""

    name: str  # The machine's
    ranks: int  # GPUs that reach one another inside a node
    # Whether every pair of GPUs has a link of its own, so that a ring uses one of them
    linked: bool
    figures: Mapping[str, tuple[float, str]]  # By quantity, in canonical units, with its origin

    def __getitem__(self, quantity: str) -> float:
        return self.figures[quantity][0]


def read_rates(
    hardware: str,
    precision: str = "bf16",
    given: Mapping[str, float] | None = None,
    folders: tuple[Path, ...] = (),
) -> Rates:
    """Read what a prediction takes of a machine."""
    machine = load_hardware(hardware, folders)
    constants = training_constants(machine, load_framework(FRAMEWORK), precision=precision)
    own = _own_figures()
    found = {**_of_machine(machine, constants), **own}
    for name, value in (given or {}).items():
        names = [name] if name != "half_bandwidth_sms" else [f"{name}_{c}" for c in _COLLECTIVES]
        found |= dict.fromkeys(names, (value, "given"))
    if machine.scale_up_kind in {"torus", "mesh"}:
        wrong = f"its devices stand in a {machine.scale_up_kind}"
        raise InputError(fault("hardware", hardware, wrong, "userbuffers need NVLink and a GPU"))
    if "sms" not in found:
        wrong = "its number of streaming multiprocessors isn't known"
        raise InputError(fault("hardware", hardware, wrong, "give it: --sms"))
    lacking = [name for name, (value, _) in found.items() if not value > -1.0]
    if lacking:
        wrong = f"{', '.join(lacking)} in {precision} isn't known"
        raise InputError(fault("hardware", hardware, wrong, "another machine or --precision"))
    ranks = int(machine.figures["gpus_per_node"].value)
    return Rates(machine.name, ranks, machine.scale_up_kind == "fully_connected", found)


_COLLECTIVES = (ALL_GATHER, REDUCE_SCATTER)


def _of_machine(
    machine: Machine, constants: Mapping[str, tuple[float, str]]
) -> dict[str, tuple[float, str]]:
    """Return rates that long work reaches: the best by the share that is sustained."""

    def sustained(best: tuple[float, str], share: str) -> tuple[float, str]:
        part, why = constants[share]
        return best[0] * part, f"{best[1]}; times {part:g} ({why})"

    def link(name: str) -> tuple[float, str]:
        figure: Figure = machine.figures[name]
        return sustained((figure.value, figure.origin), "intra_efficiency")

    bandwidth = link("intra_bandwidth")
    latency = machine.figures["intra_latency"]
    engine = "assumed: copy engines reach what rings reach"
    found = {
        "best_matmul_flops": sustained(constants["best_matmul_flops"], "matmul_efficiency"),
        "memory_bandwidth": sustained(constants["memory_bandwidth"], "memory_efficiency"),
        "bandwidth": bandwidth,
        "latency": (latency.value, latency.origin),
        "launch_time": constants["matmul_floor"],
        "activation_bytes": constants["activation_bytes"],
        "gathered_bytes": constants["matmul_input_bytes"],
    }
    if "sms" in machine.figures:
        count = machine.figures["sms"]
        found["sms"] = count.value, count.origin
    if machine.scale_up_kind == "fully_connected":
        found["link_bandwidth"] = link("intra_link_bandwidth")
    single = found.get("link_bandwidth", bandwidth)
    return {**found, "copy_engine_bandwidth": (single[0], f"{engine}; {single[1]}")}


def _own_figures() -> dict[str, tuple[float, str]]:
    """Return the figures of the tuner's own file."""
    path = shipped("tuner") / "rates.toml"
    reader = FigureReader(path, read_toml(path))
    wanted: dict[str, tuple[str, str, Entry]] = {}
    for name in ("tile_rows", "tile_columns"):
        wanted[name] = ("product", name, _COUNT)
    for name in _COLLECTIVES:
        wanted[f"half_bandwidth_sms_{name}"] = ("half_bandwidth_sms", name, _HALF)
    found: dict[str, tuple[float, str]] = {}
    for quantity, (place, key, entry) in wanted.items():
        table: dict[str, Any] = reader.table(place)
        if key in table:
            figure = reader.figure(f"{place}.{key}", table[key], entry)
            if figure is not None:
                found[quantity] = figure.value, figure.origin
    if reader.faults:
        raise InputError(reader.faults)
    return found
