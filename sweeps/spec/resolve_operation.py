"""What a sweep of operations doesn't say: machines' figures, shapes, defaults, with origins."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.collectives.grid import factors
from overhead.completion import FLOORS, floor_label
from overhead.frozen import frozen
from overhead.labels import (
    AUTO,
    HIERARCHY,
    IN_A_STEP,
    LABELS,
    NCCL,
    NO_LIBRARY,
    OPERATION_DEFAULTS,
    XLA,
)
from overhead.shipped import Usual, usual_table
from sweeps.errors import of_each, refuse
from sweeps.origin import SPECIFICATION, UNKNOWN, Origin, Origins, assumed, once
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import load_hardware
from sweeps.spec.fields import declared_list
from sweeps.spec.machine import Machine
from sweeps.spec.software import STEPS, UNPRICED, own_library, priced
from sweeps.spec.sweep import Sweep

if TYPE_CHECKING:
    from sweeps.spec.model import Model

# The sides of a mesh or torus, and how many it has where nothing says it.
SIDES = ("mesh_nx", "mesh_ny", "mesh_nz")
PLANE = 2.0
# With a topology and without a machine, one of these describes a bare network.
LINK = ("bandwidth", "latency")
BARE = "of a bare network"
# Its one kind of link, as formulas of a machine's network have it.
ONE_LINK = "intra"
PER_CARD = "GPUs by network cards of the machine's node"
FIGURES = declared_list("network")
# Labels by which a library's profile is chosen; the first says which.
# So many values of a library's steps at most: they vary along the axes of links and of networks.
MOST_STEPS = 10**7
OF_SOFTWARE = ("software", "environment", "fabric")
# Quantities that vary along several axes: these, and the values.
Field = tuple[tuple[str, ...], NDArray[Any]]
PODS = declared_list("pods")


@frozen(slots=True)
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


class Resolver:
    """Fills in what a sweep of collective operations doesn't say."""

    def __init__(self, sweep: Sweep, folders: Sequence[Path]) -> None:
        self.sweep, self.folders = sweep, folders
        self.given = set(sweep.given)
        self.constants = dict(sweep.constants)
        self.labels = dict(sweep.labels)
        self.origins: dict[str, tuple[Origin, ...]] = {}
        self.axes = list(sweep.axes)
        self.fields: dict[str, Field] = {}
        self.machines: list[Machine] = []
        self.models: list[Model] = []

    def run(self) -> Resolved:
        """Return the sweep with all that follows."""
        for name, value in OPERATION_DEFAULTS.items():
            self._assume(name, value)
        if self._is_bare():
            self._bare_network()
        else:
            self._machines()
            self._own_library()
            # Each machine has a network of its own for so many ranks, where none is given.
            if "topology" not in self.given and "ranks" in self.given:
                self._networks()
            self._whole_ports()
            self._switch_latency()
            self._algorithms()
        self._check_link()
        self._every_algorithm()
        self._pods()
        for name, taken in usual_table()["operation"].items():
            self.number(name, taken)
        self._grid_sizes()
        self._shared_cards()
        self._software()
        return self.resolved()

    def resolved(self, labels: Mapping[str, str] | None = None) -> Resolved:
        """Return the sweep as it is known now, with labels that follow."""
        return Resolved(
            tuple(self.axes),
            self.constants,
            self.labels,
            self.origins,
            tuple(self.machines),
            self.fields,
            tuple(self.models),
            labels or {},
        )

    # What is known: of the whole sweep, along an axis, or along several.

    def _assume(self, label: str, value: str) -> None:
        """Let a label that isn't given be a default, which gives way to what is found."""
        if label not in self.given:
            self.labels[label], self.origins[label] = value, (assumed(value),)

    def number(self, name: str, taken: Usual) -> None:
        """Take a quantity's number, unless it is known."""
        self.take(name, Origin(*taken))

    def take(self, name: str, origin: Origin) -> None:
        """Take a value for the whole sweep, unless it is known."""
        if name not in self.given:
            table: dict[str, Any] = self.labels if name in LABELS else self.constants
            table[name], self.origins[name] = origin.value, (origin,)
            self.given.add(name)

    def give(self, name: str, origins: Sequence[Origin], axes: Sequence[Axis]) -> None:
        """Give a label or quantity what it is at the points of some axes."""
        values = np.array([origin.value for origin in origins])
        self._spread(name, values.reshape([len(axis) for axis in axes]), axes)
        self.origins[name] = once(origins)
        self.given.add(name)

    def give_column(self, name: str, origins: Sequence[Origin], axis: Axis | None) -> None:
        """Give a quantity what it is at each point of an axis, or as a whole without one."""
        if axis is None:
            self.take(name, origins[0])
            return
        self._extend(axis, {name: np.array([origin.value for origin in origins])})
        self.origins[name] = once(origins)
        self.given.add(name)

    def points(self, axes: Sequence[Axis], names: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield what is known of some quantities and labels at each point of some axes."""
        known = {**self.constants, **self.labels}
        whole = {name: known[name] for name in names if name in known}
        for point in product(*(range(len(axis)) for axis in axes)):
            there = dict(whole)
            for axis, index in zip(axes, point, strict=True):
                shared = [name for name in axis.columns if name in names]
                there |= {name: axis.columns[name][index] for name in shared}
            yield there

    def _axis_of(self, column: str) -> Axis | None:
        return next((axis for axis in self.axes if column in axis.columns), None)

    def _column(self, name: str) -> NDArray[Any]:
        """Return all values of a quantity or label, along its axis or the one; none if unknown."""
        axis = self._axis_of(name)
        if axis is not None:
            return axis.columns[name]
        known = self.labels.get(name, self.constants.get(name))
        return np.array([] if known is None else [known])

    def _values(self, label: str) -> set[str]:
        return set(map(str, self._column(label)))

    def _texts(self, label: str) -> set[str]:
        """Return all values of a label that may not be given."""
        return self._values(label) if label in self.given else set()

    # A bare network: described by its topology and link, with nothing behind it.

    def _is_bare(self) -> bool:
        """Whether a network is described, and no machine or library asked for."""
        described = "topology" in self.given and not self.given.isdisjoint(LINK)
        if not described or "hardware" in self.given:
            return False
        return not self._texts("software") - {NO_LIBRARY}

    def _bare_network(self) -> None:
        """Give what a bare network has: one kind of link, and no switch that reduces."""
        self.take("software", assumed(NO_LIBRARY, BARE))
        if self._texts("link") - {ONE_LINK}:
            refuse("link", "..", "is a machine's, and none is given", "give hardware, too")
        self.labels["link"], self.origins["link"] = ONE_LINK, (assumed(ONE_LINK, BARE),)
        for name, taken in usual_table()["bare"].items():
            self.number(name, taken)

    def _check_link(self) -> None:
        """Refuse a flat network's link where no network is flat, or a hierarchy is bare."""
        given = [name for name in LINK if name in self.sweep.given]
        topologies = self._values("topology") if given else set[str]()
        if HIERARCHY in topologies and (not self.machines or topologies == {HIERARCHY}):
            wrong = "is a flat network's, and a hierarchical one has a link of each level"
            allowed = ", ".join(f"{level}_{given[0]}" for level in ("intra", "inter"))
            more = "" if self.machines else ", or hardware, too, whose levels a hierarchy has"
            refuse(given[0], "..", wrong, f"{allowed}, or another topology{more}")

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
        self._assume("hardware", LABELS["hardware"].default)
        names = [*map(str, self._column("hardware"))]
        machines = of_each(lambda name: load_hardware(name, self.folders), names)
        self.machines += machines.values()
        for figure in self._figures():
            origins = [self._figure(machines[name], figure) for name in names]
            known = figure in FIGURES or any(origin.kind != UNKNOWN for origin in origins)
            if known and figure not in self.given:
                self.give_column(figure, origins, self._axis_of("hardware"))

    def _figures(self) -> tuple[str, ...]:
        """Return what is taken of machines."""
        oversubscribed = any("oversubscription" in machine.figures for machine in self.machines)
        met = self.sweep.training or oversubscribed or "oversubscription" in self.given
        leaves = (*("oversubscription",) * oversubscribed, *("nodes_per_leaf",) * met)
        return (*FIGURES, *leaves, *(PODS if "nodes_per_pod" in self.given else ()))

    def _figure(self, machine: Machine, name: str) -> Origin:
        """Return a machine's figure and where it comes from; NaN where its file doesn't have it."""
        return figure_of(machine, name).of(machine.name)

    def _pods(self) -> None:
        if "nodes_per_pod" not in self.given:
            return
        for name, taken in usual_table()["pods"].items():
            self.number(name, taken)
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

    def _extend(self, axis: Axis, columns: Mapping[str, NDArray[Any]]) -> None:
        longer = Axis(axis.name, {**axis.columns, **columns})
        self.axes[self.axes.index(axis)] = longer

    def _on_axes(self, name: str) -> NDArray[Any]:
        """Return a quantity's or label's values on the open grid of the axes."""
        shape = [1] * len(self.axes)
        if name in self.fields:
            dims, values = self.fields[name]
            positions = [[axis.name for axis in self.axes].index(dim) for dim in dims]
            for position, length in zip(positions, values.shape, strict=True):
                shape[position] = length
            return np.transpose(values, np.argsort(positions)).reshape(shape)
        axis = self._axis_of(name)
        if axis is None:
            return np.array(self.labels.get(name, self.constants.get(name))).reshape(shape)
        shape[self.axes.index(axis)] = len(axis)
        return axis.columns[name].reshape(shape)

    def _of_machines(self, value: Callable[[Machine], float]) -> NDArray[np.float64]:
        """Return a number of the machines on the open grid of the axes."""
        known = {machine.name: value(machine) for machine in self.machines}
        names = self._on_axes("hardware")
        return np.array([known[Path(str(name)).stem] for name in names.flat]).reshape(names.shape)

    def _machine_at(self, point: Mapping[str, Any]) -> Machine:
        """Return the machine at a point; the only one where machines don't vary."""
        name = Path(str(point["hardware"])).stem
        return next(
            (machine for machine in self.machines if machine.name == name), self.machines[0]
        )

    def _spread(self, name: str, values: NDArray[Any], axes: Sequence[Axis] | None = None) -> None:
        """Give a quantity or label values on some axes (or all), along those on which it varies."""
        some = self.axes if axes is None else axes
        varying = varying_dims(values)
        index = tuple(slice(None) if p in varying else 0 for p in range(values.ndim))
        part = np.asarray(values[index])
        # What the quantity was gives way to the values.
        for table in (self.constants, self.labels, self.fields):
            table.pop(name, None)
        for position, axis in enumerate(self.axes):
            if name in axis.columns:
                left = {key: column for key, column in axis.columns.items() if key != name}
                self.axes[position] = Axis(axis.name, left)
        if not varying and part.dtype.kind == "U":
            self.labels[name] = str(part)
        elif not varying:
            self.constants[name] = float(part)
        elif len(varying) == 1:
            single = next(axis for axis in self.axes if axis.name == some[varying[0]].name)
            self._extend(single, {name: part})
        else:
            self.fields[name] = (tuple(some[position].name for position in varying), part)

    # What a machine has of its own: its library, its network, and what the library takes there.

    def _algorithms(self) -> None:
        """Let each machine's library choose, or take the field's usual algorithm without one."""
        if "algorithm" in self.sweep.given:
            return
        names = ("hardware", "software")
        axes = [axis for axis in self.axes if not axis.columns.keys().isdisjoint(names)]
        origins = [
            _taken(self._machine_at(point), str(point["software"]))
            for point in self.points(axes, names)
        ]
        words = np.array([origin.value for origin in origins]).reshape([*map(len, axes)])
        if len(varying_dims(words)) > 1:
            wrong = "what is usual differs by hardware and by software, which are two axes"
            refuse("algorithm", "not given", wrong, "give one, or an axis of both")
        self.give("algorithm", origins, axes)

    def _own_library(self) -> None:
        """Take the profile of the library that runs on each machine."""
        if "software" in self.given:
            return
        unpriced = min(UNPRICED & self.sweep.given, default="")
        none = assumed(NO_LIBRARY, f"a library's profile has no form of {unpriced}")
        self._by_machine("software", lambda machine: none if unpriced else own_library(machine))

    def _by_machine(self, label: str, origin: Callable[[Machine], Origin]) -> None:
        """Give a label what it is on each machine."""
        axes = [axis for axis in self.axes if "hardware" in axis.columns]
        known = {machine.name: origin(machine) for machine in self.machines}
        points = self.points(axes, ("hardware",))
        self.give(label, [known[self._machine_at(point).name] for point in points], axes)

    def _networks(self) -> None:
        """Take each machine's own network, for so many ranks."""
        ranks, hardware = self._axis_of("ranks"), self._axis_of("hardware")
        if ranks is None or (hardware is not None and hardware is not ranks):
            most = max(self._column("ranks"))
            self._by_machine("topology", lambda machine: self._network(machine, most))
        else:
            points = self.points([ranks], ("ranks", "hardware"))
            origins = [self._network(self._machine_at(point), point["ranks"]) for point in points]
            self.give("topology", origins, [ranks])

    def _whole_ports(self) -> None:
        """Give a chip all links of its torus at once, where pods of them are a node each."""
        if "intra_bandwidth" in self.sweep.given or HIERARCHY not in self._values("topology"):
            return
        if not any(machine.torus_dimensions for machine in self.machines):
            return
        ports = self._of_machines(lambda chip: chip.ports)
        ports = np.where(self._on_axes("topology") == HIERARCHY, ports, 1.0)
        values = ports * self._of_machines(lambda chip: chip.figures["intra_bandwidth"].value)
        self._spread("intra_bandwidth", values)
        self.origins["intra_bandwidth"] = once(map(_whole_port, self.machines))

    def _switch_latency(self) -> None:
        """Leave a machine's switch that reduces its own latency where a link's is given."""
        given = {"latency", "intra_latency"} & self.sweep.given
        if not given or "in_network_latency_factor" in self.sweep.given:
            return
        if not any("in_network_latency" in machine.figures for machine in self.machines):
            return
        link = self._on_axes("intra_latency")
        if "latency" in given:
            link = np.where(self._on_axes("topology") == HIERARCHY, link, self._on_axes("latency"))
        own = self._of_machines(lambda machine: _own_latency("in_network_latency", machine))
        self._spread("in_network_latency_factor", slower(own, link))
        self.origins["in_network_latency_factor"] = once(map(_slow_switch, self.machines))

    def _network(self, machine: Machine, ranks: float) -> Origin:
        """Return a machine's network for a number of ranks: its node's, or its nodes'."""
        sizes = self._column("gpus_per_node") if "gpus_per_node" in self.sweep.given else ()
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

    def _software(self) -> None:
        """Give what a library's profile says of the machines."""
        if not self._texts("software") - {NO_LIBRARY}:
            for name in OF_SOFTWARE[1:]:
                if name in self.given:
                    wrong, allowed = "is of a library's profile, and none is given", "give software"
                    refuse(name, "..", wrong, allowed)
            return
        usual = IN_A_STEP if self.sweep.training else LABELS["environment"].values[0]
        self._assume("environment", usual)
        axes = {
            axis.name: axis
            for name in (*OF_SOFTWARE, "hardware")
            if (axis := self._axis_of(name)) is not None
        }
        shape = tuple(map(len, axes.values()))
        libraries, constants = self._priced(list(axes.values()))
        software_axis = self._axis_of("software")
        if software_axis is None:
            self.labels["library"] = libraries[0]
        else:
            position = list(axes).index(software_axis.name)
            along = np.moveaxis(np.array(libraries).reshape(shape), position, 0)
            self._extend(software_axis, {"library": along.reshape(len(software_axis), -1)[:, 0]})
        for name in dict.fromkeys(name for constant in constants for name in constant):
            if name in self.given:
                continue
            values = np.array(
                [
                    constants_of[name].value if name in constants_of else np.nan
                    for constants_of in constants
                ]
            )
            self.given.add(name)
            self.origins[name] = once(row[name] for row in constants if name in row)
            self._spread(name, values.reshape(shape), list(axes.values()))
        self._given_bandwidth()
        self._given_latencies()
        self._check_pods()

    def _given_bandwidth(self) -> None:
        """Let two GPUs have all of a flat link that is given, whatever joins the machine's own."""
        flat = self._on_axes("topology") != HIERARCHY
        if "bandwidth" not in self.sweep.given or "pair_bandwidth" in self.given or not flat.any():
            return
        own = np.array(np.inf)
        if not flat.all():
            own = self._on_axes("intra_bandwidth") * self._on_axes("pair_bandwidth_ratio")
        self.given.add("pair_bandwidth")
        self._spread("pair_bandwidth", np.where(flat, np.inf, own))
        self.origins["pair_bandwidth"] = (assumed(None, "a flat link that is given is one"),)

    def _given_latencies(self) -> None:
        """Move a library's steps by what a latency that is given differs from the machine's.

        A library's step isn't the link's: it has a cost of its own, which stays.
        """
        xla = self._on_axes("library") == XLA
        apart = {"sendrecv_step_latency": xla, "sendrecv_launch_time": ~xla}
        for level, steps in STEPS.items():
            level_latency = f"{level}_latency"
            given = [name for name in ("latency", level_latency) if name in self.sweep.given]
            if not given:
                continue
            base, value = (
                self._of_machines(partial(_own_latency, level_latency)),
                self._on_axes(level_latency),
            )
            if "latency" in given:
                flat = self._on_axes("topology") != HIERARCHY
                value = np.where(flat, self._on_axes("latency"), value)
            cells = np.broadcast(base, value).size
            if cells > MOST_STEPS:
                wrong = f"makes {cells:,} values of a library's steps, for networks vary along axes"
                refuse(given[0], "..", wrong, "give topology, software = none, or a shorter axis")
            more = np.where(np.isnan(base), 0.0, value - base)
            for name, times in steps.items():
                if name in self.sweep.given or name not in self.origins or not np.any(more):
                    continue
                moved = np.where(apart.get(name, np.array(True)), times * more, 0.0)
                values = np.maximum(self._on_axes(name) + moved, 0.0)
                self._spread(name, np.asarray(values, dtype=np.float64))
                why = f"; and what {given[0]}, which is given, is over the machine's"
                self.origins[name] = tuple(
                    origin.derived(self.constants.get(name), why) for origin in self.origins[name]
                )

    def _check_pods(self) -> None:
        """Refuse a latency between pods that no library's profile has a form of."""
        if "pod_latency" not in self.sweep.given or "nodes_per_pod" not in self.given:
            return
        between = self._on_axes("inter_latency")
        stated = self._of_machines(partial(_own_latency, "pod_latency"))
        if np.any(self._on_axes("pod_latency") != np.where(np.isnan(stated), between, stated)):
            wrong, allowed = "a library's profile has no form of it", f"software = {NO_LIBRARY}"
            refuse("pod_latency", "..", wrong, allowed)

    def _priced(self, axes: Sequence[Axis]) -> tuple[list[str], list[dict[str, Origin]]]:
        """Return the library, and the constants, at each point of axes."""
        points = [
            priced(self._machine_at(point), {name: str(word) for name, word in point.items()})
            for point in self.points(axes, (*OF_SOFTWARE, "hardware"))
        ]
        unpriced = UNPRICED & self.sweep.given
        if unpriced and any(library != NO_LIBRARY for library, _ in points):
            wrong, allowed = "a library's profile has no form of it", f"software = {NO_LIBRARY}"
            refuse(min(unpriced), "..", wrong, allowed)
        constants = [constants_at for _, constants_at in points]
        # The times for which operations may wait for their host, or the network's.
        waits = {
            name: self._on_axes(name)
            if name in self.sweep.given
            else [constant[name].value for constant in constants if name in constant]
            for name in FLOORS
            if name in self.sweep.given or any(name in row for row in constants)
        }
        self.labels["floor"] = floor_label(waits)
        return [library for library, _ in points], constants

    # Shapes.

    def _grid_sizes(self) -> None:
        """Give meshes and tori the sides that aren't given: the rest of the ranks, evenly."""
        given = [name for name in SIDES if name in self.sweep.given]
        ranks = self._on_axes("ranks") if "ranks" in self.given else None
        if not any(NETWORKS[name].grid for name in self._values("topology")):
            self.number("mesh_nz", usual_table()["grid"]["mesh_nz"])
            return
        dimensions = self._dimensions(given)
        if (ranks is None and not given) or len(given) == len(SIDES):
            return
        zero = np.zeros([1] * len(self.axes))
        sides = [self._on_axes(name) if name in given else zero for name in SIDES]
        every = np.broadcast_arrays(zero if ranks is None else ranks, dimensions, *sides)
        rows, inverse = np.unique(
            np.stack([column.reshape(-1) for column in every], axis=1), axis=0, return_inverse=True
        )
        sizes = np.array([_sides(*row) for row in rows])[inverse.reshape(-1)]
        words = {1: "a line", 2: "two factors nearest to a square", 3: "three nearest to a cube"}
        why = ", or ".join(words[kind] for kind in sorted({*dimensions.reshape(-1).tolist()}))
        if given:
            why = "what the sides that are given leave of the ranks" if ranks is not None else "one"
        for index, name in enumerate(SIDES):
            if name not in given:
                self._spread(name, sizes[:, index].reshape(every[0].shape))
                self.origins[name] = (assumed(self.constants.get(name), why),)
                self.given.add(name)

    def _dimensions(self, sides: Sequence[str]) -> NDArray[Any]:
        """Return how many dimensions a mesh or torus has: as given, a machine's own, or two."""
        if "mesh_dimensions" not in self.given:
            if not self.machines:
                return np.full([1] * len(self.axes), PLANE)
            return self._of_machines(lambda machine: float(machine.torus_dimensions or PLANE))
        dimensions = self._on_axes("mesh_dimensions")
        for value in dimensions.flat:
            if value not in (1, 2, 3):
                refuse("mesh_dimensions", f"{value:g}", "no mesh or torus has so many", "1, 2 or 3")
        beyond = [
            name
            for index, name in enumerate(SIDES)
            if name in sides and np.any((self._on_axes(name) > 1.0) & (dimensions <= index))
        ]
        if beyond:
            wrong, allowed = f"{beyond[0]} is given, too", "more dimensions, or fewer sides"
            refuse("mesh_dimensions", f"{dimensions.min():g}", wrong, allowed)
        return dimensions

    def _shared_cards(self) -> None:
        """Say how many ranks share a network card, from the machine where cards aren't given."""
        if {"ranks_sharing_nic", "nics_per_node"} & self.sweep.given or not self.machines:
            return
        if "gpus_per_node" not in self.sweep.given:
            return
        # The group may have fewer members in a node than the node has: its other ranks use their
        # network cards at the same time, so the machine's own ratio holds.
        axis = self._axis_of("hardware")
        points = self.points([] if axis is None else [axis], ("hardware",))
        ratios = [_ratio(self._machine_at(point)) for point in points]
        origins = [Origin(ratio, SPECIFICATION, PER_CARD) for ratio in ratios]
        self.give_column("ranks_sharing_nic", origins, axis)


def varying_dims(values: NDArray[Any]) -> list[int]:
    """Return along which of its dimensions an array varies; what is missing is alike."""
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)

    def varies(position: int) -> bool:
        first, none = (np.take(of, [0], axis=position) for of in (values, missing))
        return bool(np.any((values != first) & ~(missing & none)))

    return [position for position in range(values.ndim) if varies(position)]


def _ratio(machine: Machine) -> float:
    gpus, cards = (machine.figures.get(f"{name}_per_node") for name in ("gpus", "nics"))
    count = gpus.value if gpus else 1.0
    return count / ((cards.value if cards else 0.0) or count)


def _sides(ranks: float, dimensions: float, *given: float) -> tuple[float, ...]:
    """Return the sides of a grid; of those given as 0 what the others leave, evenly."""
    sides = [side or 1.0 for side in given]
    free = [index for index in range(int(dimensions)) if not given[index]]
    rest = ranks / math.prod(sides)
    if ranks and free:
        split = factors(int(rest), len(free)) if rest.is_integer() else (rest,)
        for axis, size in zip(free, split, strict=False):
            sides[axis] = float(size)
    return tuple(sides)


def _whole_port(machine: Machine) -> Origin:
    """Return the rate of a chip's links together, where a pod of a torus is a node."""
    link = machine.figures["intra_bandwidth"].origin.of(machine.name)
    if not machine.torus_dimensions:
        return link
    why = f"; {machine.ports:g} links of a chip together, as rings on every axis use them"
    return link.derived(machine.ports * link.value, why)


def slower(switch: NDArray[np.float64], link: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much slower a message is that the switch reduces; never faster than its link."""
    times = np.divide(switch, link, out=np.ones(np.broadcast(switch, link).shape), where=link > 0.0)
    return np.fmax(times, 1.0)


def _slow_switch(machine: Machine) -> Origin:
    """Return what says how slow a machine's switch is, by the latency of a link that is given."""
    origin = figure_of(machine, "in_network_latency_factor").of(machine.name)
    return origin.derived(origin.value, "; by the link latency that is given")


def _own_latency(name: str, machine: Machine) -> float:
    """Return a machine's latency; NaN where its file has none."""
    return machine.figures[name].value if name in machine.figures else math.nan


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
        # So much slower is a message that the switch reduces or multicasts.
        slow, plain = (machine.figures.get(f"{of}_latency") for of in ("in_network", "intra"))
        if slow is None or plain is None or not plain.value:
            return assumed(1.0, "as any message")
        times = slower(np.array(slow.value), np.array(plain.value))
        return replace(slow.origin, value=float(times))
    figure = machine.figures.get(name)
    if figure is not None:
        return figure.origin
    taken = usual_table()["leaves"].get(name)
    return Origin(np.nan, UNKNOWN) if taken is None else Origin(*taken)


def _taken(machine: Machine, profile: str) -> Origin:
    """Return the choice of algorithms that a machine's library has, or the field's usual."""
    if machine.torus_dimensions:
        return assumed(AUTO, "the fastest on its torus")
    if profile != NO_LIBRARY:
        return assumed(NCCL, "what a library takes by itself")
    return assumed(OPERATION_DEFAULTS["algorithm"])
