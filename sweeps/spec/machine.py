"""A machine's file, checked whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.frozen import frozen
from overhead.labels import LABELS
from sweeps.errors import nearest
from sweeps.spec.fields import Entry, Figure, FigureReader

# Recipes of 8 bits by how they scale, and at whose rates they run.
SCALINGS = {"fp8_delayed": "fp8", "fp8_current": "fp8", "mxfp8": "fp8"}
# By precision the granularity of its scales where that is told.
GRANULARITIES = {
    "fp8": LABELS["fp8_scaling"].values,
    "fp8_delayed": ("tensor",),
    "fp8_current": ("tensor", "row", "block"),
    "mxfp8": ("mx",),
}
# What GEMMs can be computed in, and the kinds of attention kernels.
PRECISIONS = tuple(name for name in LABELS["precision"].values if name not in SCALINGS)
KERNELS = LABELS["attention_kernel"].values


def rates_of(precision: str) -> str:
    """Return the precision at whose rates a machine computes."""
    return SCALINGS.get(precision, precision)


# Constants of a library that runs collectives: of GPUs, of the network between nodes, of all.
NVLS = ("nvls_time", "nvls_hosts_time", "nvls_efficiency", "nvls_ramp_time")
NODE = (
    "collective_launch_time",
    "step_latency",
    "channel_efficiency",
    "local_copy_bandwidth",
    "all_reduce_copy_ratio",
    "ll_rate_ratio",
    "simple_launch_time",
    "ramp_time",
    "sendrecv_launch_time",
    "sendrecv_step_latency",
    "sendrecv_simple_time",
    "sendrecv_efficiency",
    "sendrecv_copy_rate",
    "sendrecv_ll_rate_ratio",
    "sendrecv_ramp_time",
    "inter_sendrecv_rate_ratio",
)
FABRIC = ("inter_node_step_latency", "nic_efficiency", "inter_min_time")
SHARED = (
    "simple_fabric_factor",
    "fabric_ramp_steps",
    "simple_step_factor",
    "inter_ll_rate_ratio",
    "tree_rate_ratio",
    "tree_chain_rate_ratio",
    "peer_time",
)
SWITCHED = ("nvls_tree_rate_ratio", "sharp_efficiency")
CONSTANTS = (*NODE, *NVLS, *FABRIC, *SHARED, *SWITCHED)
# What the host takes to issue an operation is a constant of a machine, not of a library.
ISSUE = "collective_host_time"


LINK_KINDS = ("switch", "torus", "mesh", "fully_connected")
REDUCTIONS = ("nvls", "sharp")


@frozen(slots=True)
class Machine:
    """A machine: its links, its devices, and a source for every figure."""

    # What the catalogue calls it, what people call it, and what to know of it
    name: str
    title: str
    summary: str
    path: Path  # Its file
    # By quantity: ``intra_bandwidth``, ``gpus_per_node``, ``peak_flops_bf16``, ..  What the file
    # doesn't state isn't there
    figures: Mapping[str, Figure]
    # How ranks of a node are connected: ``switch``, ``torus``, ``mesh``, ``fully_connected``
    scale_up_kind: str
    torus_dimensions: int  # Dimensions of a torus or mesh; 0 where there is none
    # What the switch inside a node can do: ``nvls``, ``sharp``, or nothing
    in_network: tuple[str, ...]
    scale_out_in_network: tuple[str, ...]  # What the switches between nodes can do
    generation: str = ""  # The GPUs' generation, as software profiles call it; empty: not stated
    # A torus' axis wraps around where this divides it; 0 where every axis does
    wrap_multiple: int = 0
    framework: str = ""  # What trains on it, if that isn't the usual one
    fabric: str = ""  # The network between nodes, as software profiles call it
    profile: str = ""  # The profile whose constants the machine has measured ones in place of
    constants: Mapping[str, Figure] = field(default_factory=dict)  # These, by quantity

    @property
    def ports(self) -> float:
        """How many links a chip drives at once where a pod of a torus is a node; one elsewhere."""
        return 2.0 * self.torus_dimensions or 1.0


def _count(quantity: str, *, required: bool = False) -> Entry:
    return Entry(quantity, "1", minimum=1.0, integer=True, required=required)


def _link(level: str) -> dict[str, Entry]:
    return {
        "bandwidth": Entry(f"{level}_bandwidth", "byte s-1", above=True, required=True),
        "latency": Entry(f"{level}_latency", "s", required=True),
        "energy_per_bit": Entry(f"{level}_energy_per_bit", "J bit-1"),
    }


def _rates(quantity: str) -> dict[str, Entry]:
    names = (*PRECISIONS, "int8")
    return {name: Entry(f"{quantity}_{name}", "1 s-1", above=True) for name in names}


def _share(quantity: str) -> Entry:
    return Entry(quantity, "1", above=True, maximum=1.0)


TABLES: dict[str, dict[str, Entry]] = {
    "scale_up": {
        **_link("intra"),
        "gpus_per_node": _count("gpus_per_node", required=True),
        "gpus_per_host": _count("gpus_per_host"),
        "in_network_latency": Entry("in_network_latency", "s", above=True),
        "links": _count("intra_links"),
        "link_bandwidth": Entry("intra_link_bandwidth", "byte s-1", above=True),
    },
    "scale_out": {
        **_link("inter"),
        "nics_per_node": _count("nics_per_node", required=True),
        "oversubscription": Entry("oversubscription", "1", minimum=1.0),
        "nodes_per_leaf": _count("nodes_per_leaf"),
        "gpu_nic_bandwidth": Entry("gpu_nic_bandwidth", "byte s-1", above=True),
        "gpu_nic_latency": Entry("gpu_nic_latency", "s"),
        "gpu_nic_energy_per_bit": Entry("gpu_nic_energy_per_bit", "J bit-1"),
    },
    "pod": {
        **_link("pod"),
        "nodes_per_pod": _count("nodes_per_pod", required=True),
        "oversubscription": Entry("pod_oversubscription", "1", minimum=1.0),
    },
    "device": {
        "memory_capacity": Entry("memory_capacity", "byte", above=True),
        "memory_bandwidth": Entry("memory_bandwidth", "byte s-1", above=True),
        "host_memory_capacity": Entry("host_memory_capacity", "byte", above=True),
        "host_bandwidth": Entry("host_bandwidth", "byte s-1", above=True),
        "host_update_bandwidth": Entry("host_update_bandwidth", "byte s-1", above=True),
        "last_level_cache": Entry("last_level_cache", "byte", above=True),
        "sms": _count("sms"),
        "power": Entry("power", "W", above=True),
        "gpu_hour_price": Entry("gpu_hour_price", "USD h-1"),
    },
    "device.peak_flops": _rates("peak_flops"),
    "device.peak_measured_matmul_flops": _rates("peak_measured_matmul_flops"),
    # What long runs sustain of it: `sweeps.spec.framework` says what holds where a file doesn't.
    "training": {
        "memory_efficiency": _share("memory_efficiency"),
        "matmul_min_time": Entry("matmul_min_time", "s"),
        "matmul_time_per_k": Entry("matmul_time_per_k", "s"),
        "tile_quantization_loss": Entry("tile_quantization_loss", "1", maximum=0.9),
        "step_overhead": Entry("step_overhead", "s"),
        "host_slowdown": Entry("host_slowdown", "1", above=True),
        "idle_power_fraction": Entry("idle_power_fraction", "1", maximum=1.0),
    },
    "training.matmul_efficiency": {
        name: _share(f"matmul_efficiency_{name}") for name in PRECISIONS
    },
    "training.attention_efficiency": {
        name: _share(f"attention_efficiency_{name}") for name in KERNELS
    },
}
# Keys that aren't figures.
KEYS = {
    "": (
        "name",
        "title",
        "summary",
        "scale_up",
        "scale_out",
        "pod",
        "device",
        "training",
        "software",
    ),
    "scale_up": ("kind", "dimensions", "wrap_multiple", "in_network_reduction"),
    "scale_out": ("in_network",),
    "software": ("generation", "fabric", "profile", "framework"),
    "device": ("peak_flops", "peak_measured_matmul_flops"),
    "training": ("matmul_efficiency", "attention_efficiency"),
}


def read_machine(path: Path, content: Mapping[str, object]) -> Machine:
    """Make a machine of a hardware file's content."""
    reader = _MachineFile(path, content)
    return reader.checked(reader.machine())


class _MachineFile(FigureReader):
    """A walk over a hardware file."""

    def __init__(self, path: Path, content: Mapping[str, object]) -> None:
        super().__init__(path, content)
        self.figures: dict[str, Figure] = {}

    def machine(self) -> Machine:
        name = self.name()
        self.unknown("", self.content, KEYS[""])
        tables = {section: self.table(section) for section in TABLES}
        if self.content.get("scale_up", {}) == {}:
            self.faults.append(f"{self.path}: scale_up: is missing; every machine has one")
        for location, table in tables.items():
            self._section(location, table)
        up, out = tables["scale_up"], tables["scale_out"]
        software = self.table("software")
        self.unknown("software", software, (*KEYS["software"], *CONSTANTS, ISSUE))
        kind = self.choice("scale_up", up, "kind", LINK_KINDS) if up else ""
        dimensions = self._dimensions(kind, up)
        self._check_links(kind)
        self._check_shares()
        return Machine(
            name=name,
            title=self.text("", self.content, "title"),
            summary=self.text("", self.content, "summary", default=""),
            path=self.path,
            figures=self.figures,
            scale_up_kind=kind,
            torus_dimensions=dimensions,
            in_network=self._reductions("scale_up", up, "in_network_reduction"),
            scale_out_in_network=self._reductions("scale_out", out, "in_network"),
            generation=self.text("software", software, "generation", default=""),
            framework=self.text("software", software, "framework", default=""),
            fabric=self.text("software", software, "fabric", default=""),
            profile=self.text("software", software, "profile", default=""),
            constants=self._constants(software),
            wrap_multiple=self._wrap_multiple(kind, up),
        )

    def _section(self, section: str, table: Mapping[str, object]) -> None:
        entries = TABLES[section]
        self.unknown(section, table, (*KEYS.get(section, ()), *entries))
        for key, entry in entries.items():
            if key in table:
                figure = self.figure(f"{section}.{key}", table[key], entry)
                if figure is not None:
                    self.figures[entry.quantity] = figure
            elif entry.required and table:
                where = f"{self.path}: {section}.{key}"
                self.faults.append(f"{where}: is missing; every [{section}] has one")

    def _constants(self, software: Mapping[str, object]) -> dict[str, Figure]:
        """Return the constants of a library that were measured on this machine."""
        given = [name for name in (*CONSTANTS, ISSUE) if name in software]
        if given and "profile" not in software:
            where = f"{self.path}: software.profile"
            self.faults.append(f'{where}: is missing; whose {given[0]} it has, as "nccl"')
        each = {name: self.constant(f"software.{name}", name, software[name]) for name in given}
        return {name: figure for name, figure in each.items() if figure is not None}

    def _reductions(self, location: str, table: Mapping[str, object], key: str) -> tuple[str, ...]:
        given = table.get(key, [])
        names = tuple(str(name) for name in given) if isinstance(given, list) else ()
        if not isinstance(given, list):
            self.fault(f"{location}.{key}", given, "is not a list", f"a list of {REDUCTIONS}")
        for name in names:
            if name not in REDUCTIONS:
                self.fault(f"{location}.{key}", name, "is unknown", nearest(name, REDUCTIONS))
        return names

    def _dimensions(self, kind: str, table: Mapping[str, object]) -> int:
        given = table.get("dimensions", 0)
        grid = kind in {"torus", "mesh"}
        allowed = (1, 2, 3) if grid else (0,)
        if isinstance(given, int) and not isinstance(given, bool) and given in allowed:
            return given
        wrong = "is missing" if "dimensions" not in table else "isn't allowed"
        what = f"a {kind} has 1, 2 or 3" if grid else "only a torus or a mesh has dimensions"
        self.fault("scale_up.dimensions", given, wrong, what)
        return 0

    def _wrap_multiple(self, kind: str, table: Mapping[str, Any]) -> int:
        given = table.get("wrap_multiple", 0)
        whole = isinstance(given, int) and not isinstance(given, bool) and given >= 0
        if whole and (kind == "torus" or "wrap_multiple" not in table):
            return given
        self.fault("scale_up.wrap_multiple", given, "isn't allowed", "a torus', a whole number")
        return 0

    def _check_links(self, kind: str) -> None:
        """Refuse a port that isn't its links together: bits for bytes, or both directions."""
        names = ("intra_bandwidth", "intra_links", "intra_link_bandwidth")
        if kind in {"switch", "fully_connected"} and all(name in self.figures for name in names):
            port, links, link = (self.figures[name].value for name in names)
            if not math.isclose(port, links * link, rel_tol=0.01):
                together = f"{links:g} links of {link:g} byte/s are {links * link:g}"
                self.fault("scale_up.bandwidth", f"{port:g}", "is not its links'", together)

    def _check_shares(self) -> None:
        """Refuse a share of a rate that isn't stated: it would be a share of another one."""
        for name in PRECISIONS:
            share, whole = f"matmul_efficiency_{name}", f"peak_measured_matmul_flops_{name}"
            if share in self.figures and whole not in self.figures:
                location = f"training.matmul_efficiency.{name}"
                wrong = (
                    f"is a share of device.peak_measured_matmul_flops.{name}, which isn't stated"
                )
                self.fault(location, self.figures[share].value, wrong, "state both")


def cut_domain(gpus: NDArray[Any], domain: NDArray[Any]) -> NDArray[Any]:
    """Return how many GPUs of each domain jobs of so many take: the most that divide all."""
    most = np.ones(np.broadcast_shapes(np.shape(gpus), np.shape(domain)))
    for count in range(int(np.fmin(np.max(domain), np.max(gpus))), 1, -1):
        fits = (most == 1.0) & (gpus % count == 0.0) & (count <= domain)
        most = np.where(fits, float(count), most)
        if np.all(most > 1.0):
            break
    return most
