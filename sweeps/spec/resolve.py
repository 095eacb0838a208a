"""What the user didn't say: machines' figures, shapes and defaults, each with its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.collectives.network import LEAF_NODES, factors
from overhead.labels import (
    AUTO,
    HIERARCHY,
    IN_A_STEP,
    LABELS,
    NCCL,
    NO_LIBRARY,
    OPERATION_DEFAULTS,
    SM_LAWS,
    complete,
)  # fmt: skip
from overhead.overlap.mechanisms import ASSUMED, HEEDED, MECHANISMS
from sweeps.errors import of_each, refuse
from sweeps.origin import SPECIFICATION, UNKNOWN, Origin, Origins, assumed, once
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import load_hardware
from sweeps.spec.machine import Machine
from sweeps.spec.software import LATENCIES, UNPRICED, own_library, priced, waits
from sweeps.spec.sweep import Sweep

if TYPE_CHECKING:
    from sweeps.spec.model import Model

DEFAULTS = {
    "hops": assumed(1.0, "sender and receiver are neighbours"),
    "oversubscription": assumed(1.0, "not oversubscribed"),
    "mesh_nz": assumed(1.0, "two dimensions"),
}
# What `Resolved` names of a training step where the user says nothing.
NUMBER_DEFAULTS = {
    "zero_stage": assumed(0.0, "nothing is sharded"),
    "expert_imbalance": assumed(1.0, "experts are used evenly"),
    "uneven_stages": assumed(1.0, "the largest stage rules where layers don't divide evenly"),
}
# Of machines whose files don't say it.
OF_LEAVES = {
    "oversubscription": DEFAULTS["oversubscription"],
    "leaf_nodes": assumed(LEAF_NODES, "all that leaves a node leaves its leaf switch, too"),
}
LINK_GIVEN = "of a link that is given, a message's latency"
# A user who gives links without a machine has no machine: no library, no network of its own.
LINKS = frozenset(f"{level}{what}" for level in ("", "intra_", "inter_")
                  for what in ("bandwidth", "latency"))  # fmt: skip
# What says which network it is.
NETWORK = frozenset(
    ("topology", "bandwidth", "latency", "link", "mesh_nx", "mesh_ny", "mesh_nz", "nodes_per_pod")
)
PER_CARD = "GPUs by network cards of the machine's node"
FIGURES = (
    "gpus_per_node",
    "nics_per_node",
    "intra_latency",
    "intra_bandwidth",
    "intra_energy_per_bit",
    "inter_latency",
    "inter_bandwidth",
    "inter_energy_per_bit",
    "intra_nvls",
    "intra_inc",
    "inter_inc",
    "in_network_latency_factor",
)
# Labels by which a library's profile is chosen; the first says which.
OF_SOFTWARE = ("software", "environment", "fabric")
# Quantities that vary along several axes: these, and the values.
Field = tuple[tuple[str, ...], NDArray[Any]]
PODS = ("pod_latency", "pod_bandwidth", "pod_energy_per_bit", "pod_oversubscription")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A sweep with everything that it needs."""

    axes: tuple[Axis, ...]  # The user's axes, with what follows from them as further columns
    constants: Mapping[str, float]  # Quantities of one value
    labels: Mapping[str, str]  # Labels of one value
    origins: Origins  # For each quantity and label that the user didn't give
    machines: tuple[Machine, ...]  # The machines that were read
    fields: Mapping[str, Field] = field(default_factory=dict)
    models: tuple[Model, ...] = ()  # The models that were read
    # Labels that follow from what is given and what isn't; no coordinates
    implied: Mapping[str, str] = field(default_factory=dict)


def resolve(sweep: Sweep, folders: Sequence[Path] = ()) -> Resolved:
    """Fill in what the user didn't give."""
    if sweep.training:
        from sweeps.spec.resolve_training import TrainingResolver

        return TrainingResolver(sweep, folders).run()
    if sweep.overlap:
        return OverlapResolver(sweep, folders).run()
    return Resolver(sweep, folders).run()


class Resolver:
    """Fills in what a sweep of collective operations doesn't say."""

    def __init__(self, sweep: Sweep, folders: Sequence[Path]) -> None:
        self.sweep, self.folders = sweep, folders
        self.given = set(sweep.given)
        self.constants = dict(sweep.constants)
        self.labels = dict(sweep.labels)
        self.origins: dict[str, tuple[Origin, ...]] = {}
        self.axes = list(sweep.axes)
        self.machines: list[Machine] = []

    def run(self) -> Resolved:
        """Return the sweep with all that follows."""
        for name, value in OPERATION_DEFAULTS.items():
            if name not in self.given:
                self.labels[name] = value
                self.origins[name] = (assumed(value),)
        if {"latency", "intra_latency"} & self.given:
            self._constant("in_network_latency_factor", assumed(1.0, LINK_GIVEN))
        self._machines()
        self._own()
        self._every_algorithm()
        self._pods()
        for name, origin in DEFAULTS.items():
            self._constant(name, origin)
        self._grid_sizes()
        self._shared_cards()
        fields = self._software()
        return Resolved(
            tuple(self.axes), self.constants, self.labels, self.origins, tuple(self.machines),
            fields,
        )  # fmt: skip

    def _constant(self, name: str, origin: Origin) -> None:
        if name not in self.given:
            self.constants[name] = origin.value
            self.origins[name] = (origin,)
            self.given.add(name)

    def _every_algorithm(self) -> None:
        """Leave out, where all algorithms are asked for, those that nothing here has."""
        axis = self._axis_of("algorithm")
        names = ALGORITHMS.names()
        if axis is None or axis.name != "algorithm" or len(axis) < len(names):
            return
        topologies, collectives = self._values("topology"), self._values("collective")
        here = {
            a.name
            for a in ALGORITHMS.values()
            if a.topology in topologies and a.collective in collectives
        }
        column = np.array([name for name in axis.columns["algorithm"] if name in here])
        self.axes[self.axes.index(axis)] = Axis("algorithm", {"algorithm": column})

    # Machines.

    def _machines(self) -> None:
        axis = self._axis_of("hardware")
        if axis is None:
            name = self.labels.get("hardware")
            if name is None:
                name = self.labels["hardware"] = LABELS["hardware"].default
                self.origins["hardware"] = (assumed(name),)
            machine = load_hardware(name, self.folders)
            self.machines.append(machine)
            for figure in self._figures():
                origin = self._figure(machine, figure)
                if origin.kind != UNKNOWN or figure in FIGURES:
                    self._constant(figure, origin)
            return
        names = map(str, axis.columns["hardware"])
        found = of_each(lambda name: load_hardware(name, self.folders), names)
        self.machines += found.values()
        rows = [found[str(name)] for name in axis.columns["hardware"]]
        columns: dict[str, NDArray[Any]] = {}
        for figure in self._figures():
            if figure in self.given:
                continue
            origins = [self._figure(machine, figure) for machine in rows]
            if all(one.kind == UNKNOWN for one in origins) and figure not in FIGURES:
                continue
            columns[figure] = np.array([one.value for one in origins])
            self.origins[figure] = once(origins)
        self.given |= set(columns)
        self._extend(axis, columns)

    def _figures(self) -> tuple[str, ...]:
        """Return what is taken of machines."""
        own = any("oversubscription" in machine.figures for machine in self.machines)
        met = self.sweep.training or own or "oversubscription" in self.given
        leaves = (*("oversubscription",) * own, *("leaf_nodes",) * met)
        return (*FIGURES, *leaves, *(PODS if "nodes_per_pod" in self.given else ()))

    def _figure(self, machine: Machine, name: str) -> Origin:
        return _figure(machine, name)

    def _pods(self) -> None:
        if "nodes_per_pod" not in self.given:
            return
        self._constant("pod_oversubscription", assumed(1.0, "not oversubscribed"))
        for name in ("latency", "bandwidth", "energy_per_bit"):
            if f"pod_{name}" not in self.given:
                self._copy(f"inter_{name}", f"pod_{name}", "as between nodes")

    def _copy(self, source: str, target: str, why: str) -> None:
        axis = self._axis_of(source)
        if axis is not None:
            self._extend(axis, {target: axis.columns[source]})
        elif source in self.constants:
            self.constants[target] = self.constants[source]
        self.origins[target] = (assumed(self.constants.get(source), why),)
        self.given.add(target)

    def _axis_of(self, column: str) -> Axis | None:
        return next((axis for axis in self.axes if column in axis.columns), None)

    def _extend(self, axis: Axis, columns: Mapping[str, NDArray[Any]]) -> None:
        longer = Axis(axis.name, {**axis.columns, **columns})
        self.axes[self.axes.index(axis)] = longer

    # What a machine has of its own: its library, its network, and what the library takes there.

    def _own(self) -> None:
        """Take each machine's own library, network and algorithms, where none are asked for."""
        if "hardware" in self.sweep.given or not LINKS & self.sweep.given:
            self._own_library()
            own = self._own_network()
        else:
            own = False
        if "algorithm" not in self.sweep.given and (own or "software" in self.given):
            self._algorithms(own)

    def _algorithms(self, own: bool) -> None:
        """Let each machine's library choose, or take the field's usual algorithm without one."""
        profiles, machines = self._axis_of("software"), self._axis_of("hardware")
        if profiles is None:
            profile = self.labels["software"]
            found = [_taken(one, profile, own) for one in self.machines]
            self._by_machine("algorithm", found)
            return
        names = profiles.columns["software"]
        if machines is profiles:
            places = [*zip(self._machine_names(profiles), names, strict=True)]
            by_name = {one.name: one for one in self.machines}
            self._along(profiles, "algorithm", [_taken(by_name[m], str(s), own) for m, s in places])
            return
        every = [[_taken(one, str(name), own) for name in names] for one in self.machines]
        words = {tuple(origin.value for origin in row) for row in every}
        if len(words) > 1:
            wrong = "what is usual differs by hardware and by software, which are two axes"
            refuse("algorithm", "not given", wrong, "give one, or an axis of both")
        self._along(profiles, "algorithm", every[0])

    def _own_library(self) -> None:
        """Take the profile of the library that runs on each machine."""
        if "software" in self.given:
            return
        unpriced = min(UNPRICED & self.sweep.given, default="")
        why = f"a library's profile has no form of {unpriced}"
        self._by_machine(
            "software",
            [assumed(NO_LIBRARY, why) if unpriced else own_library(one) for one in self.machines],
        )
        self.given.add("software")

    def _own_network(self) -> bool:
        """Take each machine's own network, for so many ranks; return whether it is."""
        if "ranks" not in self.given or NETWORK & self.sweep.given:
            return False
        ranks, hardware = self._axis_of("ranks"), self._axis_of("hardware")
        if ranks is None or (hardware is not None and hardware is not ranks):
            most = max(self._numbers("ranks"))
            self._by_machine("topology", [self._network(one, most) for one in self.machines])
        else:
            names = self._machine_names(ranks)
            by_name = {machine.name: machine for machine in self.machines}
            found = [
                self._network(by_name[name], count)
                for name, count in zip(names, ranks.columns["ranks"], strict=True)
            ]
            self._along(ranks, "topology", found)
        grids = {machine.torus_dimensions for machine in self.machines}
        if len(grids) == 1 and grids != {0}:
            self._constant("mesh_dimensions", assumed(float(grids.pop()), "the machine's own"))
        self._whole_ports()
        return True

    def _whole_ports(self) -> None:
        """Give a chip all links of its torus at once, where pods of them are a node each."""
        (machine, *others) = self.machines
        topologies = self._values("topology")
        if others or not machine.torus_dimensions or "intra_bandwidth" in self.sweep.given:
            return
        if HIERARCHY not in topologies:
            return
        if len(topologies) > 1:
            wrong = f"some fit into a pod of {machine.name}, others don't"
            refuse("ranks", "..", wrong, "one kind at a time")
        link = machine.figures["intra_bandwidth"].origin
        ports = 2.0 * machine.torus_dimensions
        why = f"; {ports:g} links of a chip together, as rings on every axis use them"
        self.constants["intra_bandwidth"] = ports * link.value
        self.origins["intra_bandwidth"] = (link.of(machine.name).derived(ports * link.value, why),)

    def _network(self, machine: Machine, ranks: float) -> Origin:
        """Return a machine's network for a number of ranks: its node's, or its nodes'."""
        sizes = self._numbers("gpus_per_node") if "gpus_per_node" in self.sweep.given else ()
        node = min(sizes) if len(sizes) else machine.figures["gpus_per_node"].value
        if ranks > node:
            why = f"the machine's own, for more than the {node:g} ranks of a node"
            return assumed(HIERARCHY, why).of(machine.name)
        if not machine.torus_dimensions:
            why = "the machine's own, inside a node"
            return assumed("switch", why).of(machine.name)
        whole = machine.wrap_multiple
        split = factors(int(ranks), machine.torus_dimensions)
        if whole and any(size > 1 and size % whole for size in split):
            why = f"the machine's own: an axis wraps around where {whole} divides it"
            return assumed("mesh", why).of(machine.name)
        return assumed(machine.scale_up_kind, "the machine's own").of(machine.name)

    def _by_machine(self, label: str, found: Sequence[Origin]) -> None:
        """Give a label what it is on each machine."""
        axis = self._axis_of("hardware")
        if axis is None:
            self.labels[label], self.origins[label] = found[0].value, once(found)
            return
        by_name = {one.name: origin for one, origin in zip(self.machines, found, strict=True)}
        self._along(axis, label, [by_name[name] for name in self._machine_names(axis)])

    def _along(self, axis: Axis, label: str, found: Sequence[Origin]) -> None:
        """Give a label what it is at each point of an axis."""
        values = [str(origin.value) for origin in found]
        self.origins[label] = once(found)
        if len(set(values)) == 1:
            self.labels[label] = values[0]
            return
        self.labels.pop(label, None)
        self._extend(axis, {label: np.array(values)})

    def _machine_names(self, axis: Axis) -> list[str]:
        """Return the machine's name at each point of an axis."""
        if "hardware" not in axis.columns:
            return [self.machines[0].name] * len(axis)
        return [Path(str(name)).stem for name in axis.columns["hardware"]]

    def _numbers(self, name: str) -> NDArray[Any]:
        """Return all values of a quantity that the user gives."""
        axis = self._axis_of(name)
        return np.array([self.constants[name]]) if axis is None else axis.columns[name]

    def _texts(self, label: str) -> set[str]:
        """Return all values of a label that may not be given."""
        return self._values(label) if label in self.given else set()

    def _software(self) -> dict[str, Field]:
        """Give what a library's profile says of the machines; return what varies along axes."""
        if not self._texts("software") - {NO_LIBRARY}:
            for name in OF_SOFTWARE[1:]:
                if name in self.given:
                    wrong, allowed = "is of a library's profile, and none is given", "give software"
                    refuse(name, "..", wrong, allowed)
            return {}
        if "environment" not in self.given:
            usual = IN_A_STEP if self.sweep.training else LABELS["environment"].values[0]
            self.labels["environment"], self.origins["environment"] = usual, (assumed(usual),)
        found = [self._axis_of(name) for name in (*OF_SOFTWARE, "hardware")]
        axes = {axis.name: axis for axis in found if axis is not None}
        shape = tuple(map(len, axes.values()))
        libraries, constants = self._priced(list(axes.values()), shape)
        own = self._axis_of("software")
        if own is None:
            self.labels["library"] = str(libraries.reshape(-1)[0])
        else:
            along = np.moveaxis(libraries, list(axes).index(own.name), 0)
            self._extend(own, {"library": along.reshape(len(own), -1)[:, 0]})
        self._given_latencies()
        fields: dict[str, Field] = {}
        for name in dict.fromkeys(name for one in constants for name in one):
            if name in self.given:
                continue
            values = np.array([one[name].value if name in one else np.nan for one in constants])
            self.given.add(name)
            self.origins[name] = once(one[name] for one in constants if name in one)
            if not axes:
                self.constants[name] = float(values[0])
            elif len(axes) == 1:
                (axis,) = (axis for axis in self.axes if axis.name in axes)
                self._extend(axis, {name: values})
            else:
                fields[name] = (tuple(axes), values.reshape(shape))
        return fields

    def _given_latencies(self) -> None:
        """Put latencies that the user gives in the place of a library's steps."""
        for step, level in LATENCIES.items():
            given = [name for name in ("latency", level) if name in self.sweep.given]
            if given and step not in self.given:
                self._copy(given[0], step, f"{given[0]} as given")

    def _priced(
        self, axes: Sequence[Axis], shape: tuple[int, ...]
    ) -> tuple[NDArray[Any], list[dict[str, Origin]]]:
        """Return the library, and the constants, at each point of axes."""
        machines = {machine.name: machine for machine in self.machines}
        points = []
        for place in np.ndindex(*shape):
            words = dict(self.labels)
            for axis, index in zip(axes, place, strict=True):
                texts = {n: v for n, v in axis.columns.items() if v.dtype.kind in "UO"}
                words |= {name: str(values[index]) for name, values in texts.items()}
            machine = machines[Path(words["hardware"]).stem]
            points.append(priced(machine, words))
        unpriced = UNPRICED & self.sweep.given
        unpriced |= {"intra_efficiency", "inter_efficiency"} & self.sweep.given
        if unpriced and any(library != NO_LIBRARY for library, _ in points):
            wrong, allowed = "a library's profile has no form of it", f"software = {NO_LIBRARY}"
            refuse(min(unpriced), "..", wrong, allowed)
        constants = [found for _, found in points]
        self.labels["floor"] = "some" if any(map(waits, constants)) else "none"
        return np.array([library for library, _ in points]).reshape(shape), constants

    # Shapes.

    def _values(self, label: str) -> set[str]:
        axis = self._axis_of(label)
        return {self.labels[label]} if axis is None else set(map(str, axis.columns[label]))

    def _grid_sizes(self) -> None:
        """Give meshes and tori the sizes nearest to each other, where the user gave none."""
        if not any(NETWORKS[name].grid for name in self._values("topology")):
            return
        given_sizes = {"mesh_nx", "mesh_ny"} & self.given
        if "mesh_nz" in self.sweep.given:
            given_sizes.add("mesh_nz")
        if given_sizes and "mesh_dimensions" in self.given:
            wrong, allowed = "sizes are given too", "mesh_dimensions, or mesh_nx, mesh_ny, mesh_nz"
            refuse("mesh_dimensions", "..", wrong, allowed)
        if given_sizes:
            if "ranks" not in self.given:
                self._constant("mesh_ny", assumed(1.0, "one dimension"))
            self._constant("mesh_nx", assumed(1.0, "one dimension"))
            return
        self.constants.pop("mesh_nz", None)
        axis, ranks, dimensions = self._ranks_and_dimensions()
        if ranks is None:
            return
        sizes = np.array([_sizes(n, int(d)) for n, d in zip(ranks, dimensions, strict=True)])
        columns = {name: sizes[:, i] for i, name in enumerate(("mesh_nx", "mesh_ny", "mesh_nz"))}
        if axis is None:
            self.constants |= {name: float(values[0]) for name, values in columns.items()}
        else:
            self._extend(axis, columns)
        kinds = sorted({int(d) for d in dimensions})
        words = {1: "a line", 2: "two factors nearest to a square", 3: "three nearest to a cube"}
        why = ", or ".join(words[kind] for kind in kinds)
        self.origins |= {name: (assumed(self.constants.get(name), why),) for name in columns}

    def _ranks_and_dimensions(self) -> tuple[Axis | None, NDArray[Any] | None, NDArray[Any]]:
        """Return the ranks and a grid's dimensions, and the axis along which these vary."""
        first, second = self._axis_of("ranks"), self._axis_of("mesh_dimensions")
        if first is not None and second is not None and first is not second:
            wrong = "varies beside the ranks"
            allowed = "one value, or a table in which both are columns"
            refuse("mesh_dimensions", "..", wrong, allowed)
        axis = first or second
        length = 1 if axis is None else len(axis)

        def column(name: str, default: float | None) -> NDArray[Any] | None:
            if axis is not None and name in axis.columns:
                return axis.columns[name]
            value = self.constants.get(name, default)
            return None if value is None else np.full(length, value)

        dimensions = column("mesh_dimensions", 2.0)
        assert dimensions is not None
        for value in dimensions:
            if value not in (1, 2, 3):
                refuse("mesh_dimensions", f"{value:g}", "no mesh or torus has so many", "1, 2 or 3")
        return axis, column("ranks", None), dimensions

    def _shared_cards(self) -> None:
        """Say how many ranks share a network card, from the machine where cards aren't given."""
        if {"ranks_per_nic", "nics_per_node"} & self.sweep.given:
            return
        if "gpus_per_node" not in self.sweep.given:
            return
        # The group may have fewer members in a node than the node has: its other ranks use their
        # network cards at the same time, so the machine's own ratio holds.
        ratios = [_ratio(machine) for machine in self.machines]
        axis = self._axis_of("hardware")
        origins = [Origin(ratio, SPECIFICATION, PER_CARD) for ratio in ratios]
        if axis is None:
            self._constant("ranks_per_nic", origins[0])
        else:
            by_name = {m.name: r for m, r in zip(self.machines, ratios, strict=True)}
            names = [str(name) for name in axis.columns["hardware"]]
            self._extend(axis, {"ranks_per_nic": np.array([by_name[n] for n in names])})
            self.origins["ranks_per_nic"] = once(origins)


def _ratio(machine: Machine) -> float:
    gpus, cards = (machine.figures.get(f"{name}_per_node") for name in ("gpus", "nics"))
    count = gpus.value if gpus else 1.0
    return count / ((cards.value if cards else 0.0) or count)


def _sizes(ranks: float, dimensions: int) -> tuple[float, ...]:
    sizes = factors(int(ranks), dimensions)
    return tuple(float(n) for n in (*sizes, *(1,) * (3 - dimensions)))


def _in_network_factor(machine: Machine) -> Origin:
    """Return how much slower a message is that the switch reduces or multicasts."""
    slow, plain = machine.figures.get("in_network_latency"), machine.figures.get("intra_latency")
    if slow is None or plain is None or not plain.value:
        return assumed(1.0, "as any message")
    return replace(slow.origin, value=slow.value / plain.value)


def _figure(machine: Machine, name: str) -> Origin:
    """Return a machine's figure and where it comes from; NaN where its file doesn't have it."""
    return figure_of(machine, name).of(machine.name)


def figure_of(machine: Machine, name: str) -> Origin:
    """Return a machine's figure of a quantity; of what it can do as 0 or 1."""
    if name.endswith(("_nvls", "_inc")):
        level, ability = name.split("_")
        abilities: Iterable[str] = (
            machine.in_network if level == "intra" else machine.scale_out_in_network
        )
        wanted = {"nvls": ("nvls",), "inc": ("inc", "sharp")}[ability]
        return Origin(float(any(word in abilities for word in wanted)), SPECIFICATION)
    if name == "in_network_latency_factor":
        return _in_network_factor(machine)
    found = machine.figures.get(name)
    return OF_LEAVES.get(name, Origin(np.nan, UNKNOWN)) if found is None else found.origin


# Overlap asked for by itself: a machine's figures, and what they are there.
OF_MACHINE = {
    "memory_bandwidth": "memory_bandwidth",
    "best_matmul_flops": "best_matmul_flops_bf16",
    "latency": "intra_latency",
    "bandwidth": "intra_bandwidth",
    "sms": "sms",
}
# What is computed at a machine's rates.
RATED = {"hardware", "matmul_rows", *SM_LAWS}


class OverlapResolver(Resolver):
    """Fills in what a sweep of computation and communication at once doesn't say."""

    def run(self) -> Resolved:
        """Return the sweep with all that follows."""
        chosen: list[str] = []
        for name in ("mechanism", *HEEDED):
            if name not in self.given and HEEDED.get(name, "") in ("", *chosen):
                self.labels[name] = LABELS[name].default
                self.origins[name] = (assumed(self.labels[name]),)
            if name == "mechanism":
                chosen = [one for one in MECHANISMS if one in self._values(name)]
        if RATED & self.given:
            self._machines()
        for way, more in ASSUMED.items():
            if any(way in complete({"mechanism": m}, self.sweep.given).items() for m in chosen):
                for name, (default, why) in more.items():
                    self._constant(name, assumed(default, why))
        for mechanism in chosen:
            for name, default in MECHANISMS[mechanism].defaults.items():
                if name not in self.given:
                    self.origins[name] = (assumed(default),)
        return Resolved(
            tuple(self.axes), self.constants, self.labels, self.origins, tuple(self.machines)
        )

    def _figures(self) -> tuple[str, ...]:
        return tuple(OF_MACHINE)

    def _figure(self, machine: Machine, name: str) -> Origin:
        return _figure(machine, OF_MACHINE[name])


def _taken(machine: Machine, profile: str, own: bool) -> Origin:
    """Return the choice of algorithms that a machine's library has, or the field's usual."""
    if profile == NO_LIBRARY and not own:
        return assumed(OPERATION_DEFAULTS["algorithm"])
    if machine.torus_dimensions:
        return assumed(AUTO, "the fastest on its torus")
    if profile != NO_LIBRARY:
        return assumed(NCCL, "what a library takes by itself")
    return assumed(OPERATION_DEFAULTS["algorithm"])
