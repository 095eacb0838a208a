"""The figures that a prediction takes of a machine, each with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from overhead.labels import LABELS
from sweeps.bands import written
from sweeps.errors import refuse
from sweeps.origin import GIVEN, Origin, assumed
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import training_constants
from sweeps.spec.machine import Machine
from sweeps.spec.resolve_operation import figure_of
from sweeps.spec.software import STEPS, TILED, USERBUFFERS, own_library, priced, userbuffers_figures
from sweeps.tuner.userbuffers import ALL_GATHER, FACTS, REDUCE_SCATTER

PRECISIONS = ("bf16", "fp8")
FRAMEWORK = LABELS["framework"].default
# What can be given in place of the files' figures.
CHANGEABLE: Mapping[str, str] = FACTS["changeable"]


@dataclass(frozen=True, slots=True)
class Rates:
    """A machine as a prediction sees it."""

    name: str  # The machine's
    generation: str  # Of its GPUs
    ranks: int  # GPUs that reach one another inside a node
    # Whether every pair of GPUs has a link of its own, so that a ring uses one of them
    linked: bool
    figures: Mapping[str, Origin]  # By quantity, in canonical units
    # What the machine's library of collectives takes of it; nothing where none is known
    library: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, quantity: str) -> float:
        return float(self.figures[quantity].value)

    def lines(self) -> Iterator[str]:
        """Yield each figure with where it comes from, as people read it."""
        yield f"\ntaken of {self.name}:\n"
        for name, figure in self.figures.items():
            shown = written(name, figure.value)
            yield f"  {name} = {shown}  [{figure.words}]\n"


def read_rates(
    hardware: str | Machine,
    precision: str = "bf16",
    given: Mapping[str, float] | None = None,
    folders: tuple[Path, ...] = (),
) -> Rates:
    """Read what a prediction takes of a machine."""
    machine = load_hardware(hardware, folders) if isinstance(hardware, str) else hardware
    constants = training_constants(machine, load_framework(FRAMEWORK), precision=precision)
    if "sms" in (given or {}):
        constants["sms"] = Origin((given or {})["sms"], GIVEN)
    tiled = userbuffers_figures(machine, precision, constants)
    figures = _of_machine(machine, constants, tiled["userbuffers_efficiency"])
    values = {**tiled, **figures}
    for name, value in (given or {}).items():
        names = [name] if name != "sm_bandwidth" else list(SM_BANDWIDTH.values())
        values |= dict.fromkeys(names, Origin(value, GIVEN))
    if machine.scale_up_kind in {"torus", "mesh"}:
        wrong = f"its devices stand in a {machine.scale_up_kind}"
        refuse("hardware", machine.name, wrong, "userbuffers need NVLink and a GPU")
    if "sms" not in values:
        wrong = "its number of streaming multiprocessors isn't known"
        refuse("hardware", machine.name, wrong, "give it: --sms")
    lacking = [name for name in TAKEN if not values[name].value > -1.0]
    if lacking:
        wrong = f"{', '.join(lacking)} in {precision} isn't known"
        refuse("hardware", machine.name, wrong, "another machine or --precision")
    ranks = int(machine.figures["gpus_per_node"].value)
    linked = machine.scale_up_kind == "fully_connected"
    library = _moved(_library(machine), figures, given or {})
    return Rates(machine.name, machine.generation, ranks, linked, values, library)


# What formulas take of a machine.
TAKEN = (*TILED, *USERBUFFERS, *FACTS["taken"])
SM_BANDWIDTH = {ALL_GATHER: "gather_sm_bandwidth", REDUCE_SCATTER: "scatter_sm_bandwidth"}
# A step's labels, under which its collectives take what the machine's library takes of it.
IN_STEP: Mapping[str, str] = {
    **FACTS["in_step"],
    **{name: LABELS[name].default for name in ("latency_per", "link")},
}


def _library(machine: Machine) -> dict[str, float]:
    """Return what the library of a machine takes of it; nothing where none is known."""
    words = {"software": own_library(machine).value, "environment": IN_STEP["environment"]}
    name, constants = priced(machine, words)
    if name != IN_STEP["algorithm"]:
        return {}
    known = {figure: figure_of(machine, figure) for figure in FACTS["node"]}
    return {figure: origin.value for figure, origin in {**known, **constants}.items()}


def _moved(
    library: Mapping[str, float], figures: Mapping[str, Origin], given: Mapping[str, float]
) -> dict[str, float]:
    """Return what a library takes on links other than the machine's: its shares and costs stay."""
    values = dict(library)
    if "bandwidth" in given and library:
        values["intra_bandwidth"] *= given["bandwidth"] / figures["bandwidth"].value
    more = given.get("latency", figures["latency"].value) - figures["latency"].value
    for name, times in STEPS["intra"].items():
        if name in library and name != "sendrecv_step_latency":
            values[name] = max(library[name] + times * more, 0.0)
    return values


def _of_machine(
    machine: Machine, constants: Mapping[str, Origin], part: Origin
) -> dict[str, Origin]:
    """Return rates that long work reaches: the best by the share that is sustained."""

    def figure(name: str) -> Origin:
        return machine.figures[name].origin.of(machine.name)

    def link(name: str) -> Origin:
        best = figure(name)
        return best.derived(best.value * part.value, f"; times {part.value:g} ({part.text})")

    bandwidth = link("intra_bandwidth")
    figures = {
        "bandwidth": bandwidth,
        "latency": figure("intra_latency"),
        "launch_time": constants["matmul_min_time"],
        "activation_bytes": constants["activation_bytes"],
        "matmul_input_bytes": constants["matmul_input_bytes"],
        "communication_bytes": constants["activation_bytes"],
        "tp_gather_byte_ratio": constants["tp_gather_byte_ratio"],
        "layers": assumed(1.0, "products by themselves, none of a layer left in 16 bits"),
    }
    if "sms" in machine.figures:
        figures["sms"] = figure("sms")
    if machine.scale_up_kind == "fully_connected":
        figures["link_bandwidth"] = link("intra_link_bandwidth")
    single = figures.get("link_bandwidth", bandwidth)
    why = f"copy engines reach what rings reach; {single.text}"
    return {**figures, "copy_engine_bandwidth": assumed(single.value, why).of(machine.name)}
