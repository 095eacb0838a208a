"""A software profile's file: the constants of a library that runs collectives, each with a source.

Constants of a node go by the GPU's generation, those between nodes by the network there; what is
the same everywhere is shared.  A machine's file says which generation and network it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from overhead.frozen import frozen
from overhead.labels import COLLECTIVES, LABELS, NO_LIBRARY
from overhead.quantity import VOCABULARY, Array
from sweeps.errors import InputError, nearest, needs, refuse
from sweeps.origin import SPECIFICATION, Origin, assumed
from sweeps.spec.catalog import find_spec
from sweeps.spec.fields import Entry, Figure, FigureReader, declared_keys, declared_list
from sweeps.spec.files import read_toml, shipped
from sweeps.spec.machine import (
    CONSTANTS,
    FABRIC,
    ISSUE,
    LIBRARY,
    NODE,
    NVLS,
    SHARED,
    Machine,
)

LIBRARIES = LABELS["library"].values
# What every profile has, and what those of libraries with protocols have.
VITAL = ("channel_efficiency", "nic_efficiency")
WHOLE = (*NODE, *FABRIC, *SHARED)
# What a library without it, as XLA without protocols, takes in its place: the machine's latency.
LATENCIES = {
    "step_latency": "intra_latency",
    "sendrecv_step_latency": "intra_latency",
    "inter_node_step_latency": "inter_latency",
}
# A port's rate by generation [byte/s], for machines that don't name theirs.
PORTS = {"ampere": 300e9, "hopper": 450e9, "blackwell": 900e9, "pcie5": 64e9, "cdna3": 448e9}
# The library of each generation's machines, and of those that don't name theirs.
LIBRARY_OF = {
    **dict.fromkeys(("ampere", "hopper", "blackwell", "pcie5"), "nccl"),
    "cdna3": "rccl",
    "tpu": "xla",
}
OF_KIND = {"switch": "nccl", "fully_connected": "rccl"}
# GPUs whose links the rows behind a profile's errors aren't of, with what is known of their own.
APART = {
    "pcie5": "rows of errors are of NVLink; 147 rows of two machines whose GPUs PCIe joins are off "
    "by 7 % below 256 KiB and by 20 % above"
}
# What no profile has a form of.
UNPRICED = frozenset(
    ("phase_chunks", "reduction_cost", "latency_time", "bandwidth_time", "serialization_time")
)
# The steps of a library that a link's latency is a part of, by level, and how often: messages of an
# exchange are under way together, NVLS takes a read and a write.
STEPS = {
    "intra": {
        "step_latency": 1.0,
        "sendrecv_launch_time": 1.0,
        "sendrecv_step_latency": 1.0,
        "nvls_time": 2.0,
    },
    "inter": {"inter_node_step_latency": 1.0},
}
USUAL_FABRIC = "infiniband"
# Who issues operations so that the host may be slower than the GPU.
SLOW_HOSTS = ("pytorch", "group", "xla")
# Where operations are issued one by one, at the pace that a machine's own file may have.
OWN_HOSTS = ("nccl-tests", "step")


# Errors by class of size: measured rows, their mean in percent, and that of rows that are left out
# of the fit; of these the low and high end of four in five, measured by predicted, less 1.
Errors = tuple[tuple[int, float, float, float, float], ...]
SIZES = (2.0**18, 2.0**24)
NO_ERRORS: Errors = ((0, 0.0, 0.0, 0.0, 0.0),) * 3
PLACES = ("one_node", "several_nodes")
# Ranks in a rack beyond which all_reduce alone was measured, and ranks beyond which nothing was.
MEASURED = 16
MOST_RANKS = 256


@frozen(slots=True)
class Profile:
    """A library's constants."""

    name: str  # What the catalogue calls it
    title: str  # What people call it
    summary: str  # What to know of it
    path: Path  # Its file
    library: str  # The library whose forms hold
    nodes: Mapping[str, Mapping[str, Figure]]  # By generation, then quantity
    fabrics: Mapping[str, Mapping[str, Figure]]  # By network, then quantity
    shared: Mapping[str, Figure]
    environment: Mapping[str, Figure]  # What hosts take, by environment
    # By place and operation, for each class of size
    errors: Mapping[str, Mapping[str, Errors]]

    def bands(
        self, operation: str, message_bytes: Array, ranks: Array, gpus_per_node: Array
    ) -> tuple[Array, Array, Array]:
        """Return the ends of times' bands, and how many rows tell them.

        Where none does, NaN and 0.
        """
        several, size = ranks > gpus_per_node, np.searchsorted(SIZES, message_bytes, side="right")
        tables = [self.errors.get(span, {}).get(operation, NO_ERRORS) for span in PLACES]
        table = np.moveaxis(np.array(tables), -1, 0)
        rows, _, _, low, high = table[:, several.astype(int), size]
        rack = gpus_per_node > MEASURED
        unknown = rack & (ranks > MEASURED) & (several | (operation != "all_reduce"))
        rows = np.where(unknown | (ranks > MOST_RANKS), 0.0, rows)
        known = rows > 0.0
        return np.where(known, low / 100.0, np.nan), np.where(known, high / 100.0, np.nan), rows

    def lacks_rows(self, operation: str, ranks: float, gpus_per_node: float) -> str:
        """Say of what there are no measured rows."""
        if ranks > MOST_RANKS:
            return f"no measured rows of more than {MOST_RANKS:,} ranks"
        which = f"{operation} of such a size, {PLACES[ranks > gpus_per_node].replace('_', ' ')}"
        if gpus_per_node > MEASURED and ranks > MEASURED:
            which += f", above {MEASURED} ranks in a rack"
        return f"no measured rows of {which}"

    @property
    def error_words(self) -> str:
        """The errors to expect, by place, operation and size."""
        below, above = (f"{bound / 2**20:g} MiB" for bound in SIZES)
        classes = (f"below {below}", f"to {above}", "above")
        return "; ".join(
            f"{operation}, {span.replace('_', ' ')}, {size}: {low:g} to +{high:g} % of {rows} rows"
            for span, operations in self.errors.items()
            for operation, each in operations.items()
            for size, (rows, _, _, low, high) in zip(classes, each, strict=True)
            if rows
        )

    @property
    def uncertainty(self) -> dict[tuple[str, str], float]:
        """Relative uncertainties by table and quantity."""
        tables = {
            **{f"node.{name}": figures for name, figures in self.nodes.items()},
            **{f"fabric.{name}": figures for name, figures in self.fabrics.items()},
            "shared": self.shared,
            "environment": self.environment,
        }
        return {
            (span, name): figure.uncertainty
            for span, figures in tables.items()
            for name, figure in figures.items()
        }

    def generation(self, machine: Machine) -> tuple[str, str]:
        """Return the generation of a machine's GPUs, and why, if its file doesn't say."""
        if machine.generation in self.nodes:
            return machine.generation, ""
        field = f"software.generation of {machine.name}"
        if machine.generation:
            refuse(
                field,
                machine.generation,
                f"{self.name} has no such node",
                nearest(machine.generation, self.nodes),
            )
        known = [name for name in self.nodes if name in PORTS]
        if not known:
            give = f"{field}, one of {', '.join(self.nodes)}"
            raise InputError(needs(f"the profile {self.name}", "the generation of nodes", give))
        rate = machine.figures["intra_bandwidth"].value
        near = min(known, key=lambda name: abs(math.log(rate / PORTS[name])))
        return near, f"{machine.name} names no generation: {near} is nearest by its links' rate"

    def fabric(self, machine: Machine) -> tuple[str, str]:
        """Return the network between a machine's nodes, and why, if its file doesn't say."""
        if machine.fabric in self.fabrics:
            return machine.fabric, ""
        if machine.fabric:
            refuse(
                f"software.fabric of {machine.name}",
                machine.fabric,
                f"{self.name} has no such network",
                nearest(machine.fabric, self.fabrics),
            )
        usual = USUAL_FABRIC if USUAL_FABRIC in self.fabrics else next(iter(self.fabrics))
        return usual, f"{machine.name} names no network between nodes: taken as {usual}"

    def constants(self, machine: Machine) -> dict[str, Origin]:
        """Return every constant on a machine, with where it comes from."""
        generation, why_node = self.generation(machine)
        fabric, why_fabric = self.fabric(machine)
        tables = (
            (self.nodes[generation], f"{self.name}, {generation}", why_node),
            (self.fabrics[fabric], f"{self.name}, {fabric}", why_fabric),
            (self.shared, self.name, ""),
        )
        origins: dict[str, Origin] = {}
        for figures, owner, why in tables:
            for name, figure in figures.items():
                origin = figure.origin.of(owner)
                origins[name] = origin.derived(figure.value, f"; {why}") if why else origin
        if "nvls" in machine.in_network and NVLS[0] not in origins and self.library != "xla":
            what = f"what {self.name} says nothing of, its NVLS"
            location = f"node.{generation}.{NVLS[0]} in a profile of your own"
            raise InputError(needs(machine.name, what, location))
        for name in CONSTANTS:
            origins.setdefault(name, self._absent(name, machine))
        origins |= {n: o for n, o in self._measured(machine).items() if n != ISSUE}
        origins |= _wiring(machine)
        return origins

    def _measured(self, machine: Machine) -> dict[str, Origin]:
        """Return the constants that a machine's file has in place of this profile's."""
        if machine.profile != self.name:
            return {}
        return {
            name: constant.origin.of(machine.name) for name, constant in machine.constants.items()
        }

    def _absent(self, name: str, machine: Machine) -> Origin:
        """Return what stands for a constant that the library doesn't have."""
        if name in LATENCIES:
            figure = machine.figures.get(LATENCIES[name])
            value = figure.value if figure else math.nan
            return assumed(value, f"{self.title} has no constant of its own: the machine's")
        quantity = VOCABULARY[name]
        neutral = 1.0 if quantity.maximum == 1.0 or name == "all_reduce_copy_ratio" else 0.0
        value = math.inf if quantity.units == "byte s-1" else neutral
        return assumed(value, f"{self.title} has no such part")

    def issue(self, environment: str, machine: Machine) -> Origin:
        """Return what the host takes to issue an operation."""
        if environment in OWN_HOSTS and ISSUE in (constants := self._measured(machine)):
            return constants[ISSUE]
        if environment not in SLOW_HOSTS:
            return assumed(0.0, "the host is ahead of the GPU")
        figure = self.environment.get(environment)
        if figure is None:
            refuse(
                "environment",
                environment,
                f"{self.name} has no time of such hosts",
                nearest(environment, (*self.environment, *LABELS["environment"].values[:3])),
            )
        return figure.origin.of(f"{self.name}, {environment}")


def _wiring(machine: Machine) -> dict[str, Origin]:
    """Return how a machine's GPUs are joined, and how many a host has."""
    figures = machine.figures
    link = figures.get("intra_link_bandwidth")
    joined = machine.scale_up_kind == "fully_connected" and link is not None
    pair = Origin(1.0, SPECIFICATION, "a switch")
    if joined and link:
        whole = figures["intra_bandwidth"].value
        pair = link.origin.derived(min(link.value / whole, 1.0), "; of all links of a GPU")
    host = figures.get("gpus_per_host", figures["gpus_per_node"])
    return {"pair_bandwidth_ratio": pair, "gpus_per_host": host.origin}


def own_library(machine: Machine) -> Origin:
    """Return the name of the profile of the library that runs on a machine."""
    if machine.profile:
        return assumed(machine.profile, "the machine's own, with measured constants").of(
            machine.name
        )
    if machine.generation:
        name = LIBRARY_OF.get(machine.generation, NO_LIBRARY)
        why = "the machine's own" if name != NO_LIBRARY else f"none has {machine.generation}"
        return assumed(name, why).of(machine.name)
    name = OF_KIND.get(machine.scale_up_kind, NO_LIBRARY)
    why = f"{machine.name} names no generation, and isn't a machine of GPUs"
    if name != NO_LIBRARY:
        _, why = load_software(name).generation(machine)
    return assumed(name, why).of(machine.name)


def load_software(name_or_path: str) -> Profile:
    """Read a profile by its name or path."""
    path = find_spec("software", name_or_path)
    return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _load(path: Path, written: int) -> Profile:
    """Read a profile's file, once while it stays as it was written."""
    return read_profile(path, read_toml(path))


def read_profile(path: Path, content: Mapping[str, object]) -> Profile:
    """Make a profile of a file's content."""
    reader = _ProfileFile(path, content)
    return reader.checked(reader.profile())


class _ProfileFile(FigureReader):
    """A walk over a profile's file."""

    def profile(self) -> Profile:
        name = self.name()
        self.unknown("", self.content, declared_keys("library")[""])
        library = self.choice("", self.content, "library", LIBRARIES)
        nodes = self._several("node", library, "node", "nvls")
        fabrics = self._several("fabric", library, "fabric")
        shared = self._constants("shared", library, "shared", "switched")
        self.unknown("environment", self.table("environment"), SLOW_HOSTS)
        hosts = {
            environment: figure
            for environment, given in self.table("environment").items()
            if (figure := self.constant(f"environment.{environment}", ISSUE, given)) is not None
        }
        for section, entries in (("node", nodes), ("fabric", fabrics)):
            if library != NO_LIBRARY and not entries:
                self.faults.append(
                    f"{self.path}: {section}: is missing; one table a {section} or more"
                )
        return Profile(
            name=name,
            title=self.text("", self.content, "title"),
            summary=self.text("", self.content, "summary", default=""),
            path=self.path,
            library=library,
            nodes=nodes,
            fabrics=fabrics,
            shared=shared,
            environment=hosts,
            errors=self._errors(),
        )

    def _errors(self) -> dict[str, dict[str, Errors]]:
        """Read what errors to expect, by place and operation."""
        self.unknown("errors", self.table("errors"), PLACES)
        errors: dict[str, dict[str, Errors]] = {}
        for span in PLACES:
            table = self.table(f"errors.{span}")
            self.unknown(f"errors.{span}", table, COLLECTIVES)
            for operation, given in table.items():
                pairs = given if isinstance(given, list) else []
                fine = len(pairs) == len(NO_ERRORS) and all(map(_is_error, pairs))
                if fine:
                    each = tuple(
                        (int(rows), float(percent), float(out), float(low), float(high))
                        for rows, percent, out, low, high in pairs
                    )
                    errors.setdefault(span, {})[operation] = each
                else:
                    allowed = "[rows, percent, percent left out, low, high] for each of three sizes"
                    self.fault(f"errors.{span}.{operation}", given, "isn't allowed", allowed)
        return errors

    def _several(self, location: str, library: str, *tables: str) -> dict[str, dict[str, Figure]]:
        return {
            name: self._constants(f"{location}.{name}", library, *tables)
            for name in self.table(location)
        }

    def _constants(self, location: str, library: str, *tables: str) -> dict[str, Figure]:
        """Read some tables' constants; a library without protocols may lack most of them."""
        needed = WHOLE if library in ("nccl", "rccl") else VITAL
        entries = {
            name: entry._replace(integer=False, required=name in needed)
            for table in tables
            for name, entry in LIBRARY[table].items()
        }
        return self.read_figures(location, entries, missing=f"every {location} has it")


def _is_error(pair: object) -> bool:
    """Return whether it is a number of rows and its errors."""
    return (
        isinstance(pair, list)
        and len(pair) == len(("rows", "mean", "left out", "low", "high"))
        and all(isinstance(number, int | float) and math.isfinite(number) for number in pair)
        and min(pair[:3]) >= 0 >= pair[3]
        and pair[4] >= 0
    )


def priced(machine: Machine, words: Mapping[str, str]) -> tuple[str, dict[str, Origin]]:
    """Return the library of a profile, and its constants on a machine, as labels choose."""
    profile = load_software(words["software"])
    if profile.library == NO_LIBRARY:
        return NO_LIBRARY, {}
    machine = on_fabric(machine, words.get("fabric", machine.fabric))
    issue = profile.issue(words["environment"], machine)
    return profile.library, {**profile.constants(machine), ISSUE: issue}


def on_fabric(machine: Machine, fabric: str) -> Machine:
    """Return a machine on a network between nodes; what is known of its own holds there alone."""
    if fabric == machine.fabric:
        return machine
    kept = {n: constant for n, constant in machine.constants.items() if n not in (*FABRIC, *SHARED)}
    return replace(machine, fabric=fabric, constants=kept)


# What a machine's GEMMs reach with a choice among tiles, and userbuffers' kernels.

TILED, USERBUFFERS = declared_list("tiles"), declared_list("userbuffers")
_MEMORY, _SUMS = "burst_memory_share", "sum_bandwidth_share"
# The generation and precision whose tiles are taken where nothing was measured.
_LIKE, _PLAIN = "hopper", "bf16"


@lru_cache(maxsize=2)
def _userbuffers(path: Path) -> Mapping[str, Mapping[str, Origin]]:
    """Read the figures of products and of userbuffers, by the file's tables."""
    reader = FigureReader(path, read_toml(path))
    tables: dict[str, dict[str, Origin]] = {}
    for section in reader.content:
        for name, given in reader.table(section).items():
            units = "1" if name.endswith("_share") else VOCABULARY[name].units
            figure = reader.figure(f"{section}.{name}", given, Entry(name, units))
            if figure is not None:
                tables.setdefault(section, {})[name] = figure.origin
    return reader.checked(tables)


def userbuffers_figures(
    machine: Machine, precision: str, constants: Mapping[str, Origin]
) -> dict[str, Origin]:
    """Return what tiles of products and userbuffers' kernels reach on a machine."""
    every = _userbuffers(shipped("tuner") / "rates.toml")
    usual = every[f"{_LIKE}-{_PLAIN}"]
    chip_tiles = every.get(f"{machine.generation}-{precision}")
    shared = every["userbuffers"]
    words = {"software": own_library(machine).value, "environment": LABELS["environment"].default}
    _, library = priced(machine, words)
    whole = assumed(1.0, "no library's profile is known")
    figures = {name: shared[name] for name in USERBUFFERS if name in shared}
    figures["userbuffers_efficiency"] = library.get("channel_efficiency", whole)
    tiles = {**usual, **(chip_tiles or {})}
    if chip_tiles is None:
        rate = constants["peak_measured_matmul_flops"].value * constants["matmul_efficiency"].value
        burst = assumed(rate * figures["burst_ratio"].value, "its sustained rate by burst_ratio")
        each = burst.value / max(constants["sms"].value, 1.0)
        load = each * usual["sm_load_bandwidth"].value * 132.0 / usual["burst_matmul_flops"].value
        tiles |= {
            name: assumed(figure.value, f"as on {_LIKE}'s GPUs in {_PLAIN}")
            for name, figure in usual.items()
        }
        tiles["burst_matmul_flops"] = burst.of(machine.name)
        tiles["sm_load_bandwidth"] = assumed(load, f"as {_LIKE}'s, by the rates").of(machine.name)
    memory = constants["memory_bandwidth"]
    for share, name in ((tiles.pop(_MEMORY), TILED[-1]), (shared[_SUMS], "sum_bandwidth")):
        how = f"; times {share.value:g} ({share.text})"
        tiles[name] = memory.derived(memory.value * share.value, how)
    return {**figures, **tiles}
