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
from sweeps.spec.fields import Figure, FigureReader, declared_figures, declared_keys

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


# Constants of a library that runs collectives: of GPUs, NVLS, the network between nodes, of all.
LIBRARY = declared_figures("library")
NODE, NVLS, FABRIC, SHARED, SWITCHED = map(tuple, LIBRARY.values())
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


# What long runs sustain of a rate: `sweeps.spec.framework` says what holds where a file doesn't.
TABLES = declared_figures("machine")
KEYS = declared_keys("machine")


def read_machine(path: Path, content: Mapping[str, object]) -> Machine:
    """Make a machine of a hardware file's content."""
    reader = _MachineFile(path, content)
    return reader.checked(reader.machine())


class _MachineFile(FigureReader):
    """A walk over a hardware file."""

    def machine(self) -> Machine:
        name = self.name()
        self.unknown("", self.content, KEYS[""])
        if self.content.get("scale_up", {}) == {}:
            self.faults.append(f"{self.path}: scale_up: is missing; every machine has one")
        figures: dict[str, Figure] = {}
        for location, entries in TABLES.items():
            missing = f"every [{location}] has one" if self.content.get(location) else ""
            figures |= self.read_figures(location, entries, KEYS.get(location, ()), missing)
        up, out, software = (self.table(key) for key in ("scale_up", "scale_out", "software"))
        self.unknown("software", software, (*KEYS["software"], *CONSTANTS, ISSUE))
        kind = self.choice("scale_up", up, "kind", LINK_KINDS) if up else ""
        dimensions = self._dimensions(kind, up)
        self._check_links(kind, figures)
        self._check_shares(figures)
        return Machine(
            name=name,
            title=self.text("", self.content, "title"),
            summary=self.text("", self.content, "summary", default=""),
            path=self.path,
            figures=figures,
            scale_up_kind=kind,
            torus_dimensions=dimensions,
            in_network=self.choices("scale_up", up, "in_network_reduction", REDUCTIONS),
            scale_out_in_network=self.choices("scale_out", out, "in_network", REDUCTIONS),
            generation=self.text("software", software, "generation", default=""),
            framework=self.text("software", software, "framework", default=""),
            fabric=self.text("software", software, "fabric", default=""),
            profile=self.text("software", software, "profile", default=""),
            constants=self._constants(software),
            wrap_multiple=self._wrap_multiple(kind, up),
        )

    def _constants(self, software: Mapping[str, object]) -> dict[str, Figure]:
        """Return the constants of a library that were measured on this machine."""
        given = [name for name in (*CONSTANTS, ISSUE) if name in software]
        if given and "profile" not in software:
            where = f"{self.path}: software.profile"
            self.faults.append(f'{where}: is missing; whose {given[0]} it has, as "nccl"')
        each = {name: self.constant(f"software.{name}", name, software[name]) for name in given}
        return {name: figure for name, figure in each.items() if figure is not None}

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

    def _check_links(self, kind: str, figures: Mapping[str, Figure]) -> None:
        """Refuse a port that isn't its links together: bits for bytes, or both directions."""
        names = ("intra_bandwidth", "intra_links", "intra_link_bandwidth")
        if kind in {"switch", "fully_connected"} and all(name in figures for name in names):
            port, links, link = (figures[name].value for name in names)
            if not math.isclose(port, links * link, rel_tol=0.01):
                together = f"{links:g} links of {link:g} byte/s are {links * link:g}"
                self.fault("scale_up.bandwidth", f"{port:g}", "is not its links'", together)

    def _check_shares(self, figures: Mapping[str, Figure]) -> None:
        """Refuse a share of a rate that isn't stated: it would be a share of another one."""
        for name in PRECISIONS:
            share, whole = f"matmul_efficiency_{name}", f"peak_measured_matmul_flops_{name}"
            if share in figures and whole not in figures:
                location = f"training.matmul_efficiency.{name}"
                wrong = (
                    f"is a share of device.peak_measured_matmul_flops.{name}, which isn't stated"
                )
                self.fault(location, figures[share].value, wrong, "state both")


def cut_domain(gpus: NDArray[Any], domain: NDArray[Any]) -> NDArray[Any]:
    """Return how many GPUs of each domain jobs of so many take: the most that divide all."""
    most = np.ones(np.broadcast_shapes(np.shape(gpus), np.shape(domain)))
    for count in range(int(np.fmin(np.max(domain), np.max(gpus))), 1, -1):
        fits = (most == 1.0) & (gpus % count == 0.0) & (count <= domain)
        most = np.where(fits, float(count), most)
        if np.all(most > 1.0):
            break
    return most
