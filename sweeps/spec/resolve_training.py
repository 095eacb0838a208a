"""What a sweep of training steps doesn't say: shapes, constants, defaults, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from overhead.completion import (
    DEFAULT,
    OF_EXPERTS,
    TAKEN_SMS,
    Statement,
    complete,
    follows,
    implied,
)
from overhead.labels import HIERARCHY, LABELS, OVERLAPS, SHARED, STEP_DEFAULTS
from overhead.quantity import VOCABULARY
from overhead.shipped import usual_table
from overhead.transformer import FURTHER_SHAPES, SHAPES
from sweeps.errors import fault, less_than_a_step, of_each, refuse, tell_all
from sweeps.origin import UNKNOWN, Origin, assumed, once
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import (
    load_framework,
    load_hardware,
    load_model,
    usual_framework,
    usual_operation,
)
from sweeps.spec.fields import declared_list
from sweeps.spec.framework import TEXTBOOK, Framework, among_all, training_constants
from sweeps.spec.known import known_of_run, unknown_settings
from sweeps.spec.machine import Machine, cut_domain, rates_of
from sweeps.spec.model import WITHIN, Model, complete_shapes
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.resolve_preset import SUBJECTS, PresetResolver
from sweeps.spec.software import userbuffers_figures
from sweeps.spec.units import format_quantity

SELECTING = "attention that selects tokens selects among all of them"
# Their product is the number of GPUs, where that isn't given.
WORLD = ("tp", "cp", "pp", "dp")
# The labels on which the constants of a machine and its software depend.
DECIDING = declared_list("deciding")


class TrainingResolver(PresetResolver, Statement):
    """Fills in what a sweep of training steps doesn't say, by the rules of `complete`."""

    def run(self) -> Resolved:
        """Return the sweep with all that follows."""
        self.frameworks: dict[str, Framework] = {}
        complete(self)
        return self.resolved(implied(self.given))

    def label(self, name: str, value: str, why: str = DEFAULT) -> None:
        """Take a label's value, for a reason, unless it is known."""
        self.take(name, assumed(value, why))

    def exceeds(self, name: str, limit: float) -> bool:
        """Return whether a quantity is known and some of its values are above a limit."""
        return name in self.given and bool(np.any(self._on_axes(name) > limit))

    def words(self, label: str) -> set[str]:
        """Return all values of a label."""
        return self._values(label)

    def same(self, name: str, other: str, why: str) -> None:
        """Take for a quantity what another one that is given is, unless it is known."""
        if name not in self.given:
            self._copy(other, name, why)

    def take_machine(self) -> None:
        """Take the machines' figures, what trains on them, and their network."""
        self.take_preset()
        unknown = unknown_settings(self.given)
        why = f"not given are {', '.join(unknown)}" if unknown else "all are given"
        self.take("unknown_settings", assumed(float(len(unknown)), why))
        self.label("precision", LABELS["precision"].default)
        self._machines()
        self._own_fabric()
        self._own_library()
        self._pods()

    def take_operation(self) -> None:
        """Take what failures, storage, power and money are; refuse a power limit that is none."""
        tell_all(self._beyond("power_limit", "power", "is more than the GPU takes"))
        for name, origin in usual_operation().items():
            if not follows(name, self.given):
                self.take(name, origin)

    def take_library(self) -> None:
        """Take how cards are shared, and what libraries' profiles say of the machines."""
        self._shared_cards()
        self._software()

    def _own_fabric(self) -> None:
        """Take what trains on the machines, and the torus of those that are one."""
        if "framework" not in self.given:
            self._by_machine("framework", self._usual_framework)
        grids = [hardware for hardware in self.machines if hardware.torus_dimensions]
        if not {"topology", "nodes_per_pod"} & self.sweep.given and grids:
            self._own_topology(grids)
        self.label("topology", STEP_DEFAULTS["topology"])
        self._whole_ports()
        self._switch_latency()

    def _usual_framework(self, machine: Machine) -> Origin:
        """Return what trains: a model of the catalogue as software does, bare sizes as textbooks.

        A machine that has its own software, as TPUs, trains everything with it.
        """
        usual = usual_framework(machine)
        if "model" in self.given or machine.framework:
            return usual
        return assumed(f"{usual.value}+{TEXTBOOK}", "bare sizes are a textbook's: its habits aside")

    def _own_topology(self, grids: Sequence[Machine]) -> None:
        """Take the torus of machines that are one, for so many GPUs."""
        sizes = np.unique(self._worlds())
        each = [
            [
                self._network(hardware, size) if hardware in grids else assumed(HIERARCHY)
                for size in sizes
            ]
            for hardware in self.machines
        ]
        axis = self._axis_of("world_size")
        if all(len({origin.value for origin in row}) == 1 for row in each):
            known = {machine.name: row[0] for machine, row in zip(self.machines, each, strict=True)}
            self._by_machine("topology", lambda machine: known[machine.name])
        elif axis is not None and len(self.machines) == 1:
            (machine,) = self.machines
            topologies = [self._network(machine, size) for size in axis.columns["world_size"]]
            self.give("topology", topologies, [axis])
        else:
            wrong = "chips of some plans fit into a pod, or wrap around, and those of others don't"
            refuse("topology", "not given", wrong, "give one")

    def _worlds(self) -> NDArray[np.float64]:
        """Return how many GPUs plans have, on the open grid of the axes."""
        gpus = np.ones([1] * len(self.axes))
        for name in ("world_size",) if "world_size" in self.given else WORLD:
            if name in self.given:
                gpus = gpus * self._on_axes(name)
        return gpus

    # Labels.

    def _habits(self, name: str, other: Origin) -> list[Origin]:
        """Return what the software takes if the user says nothing: one, or along its axis."""
        habits = []
        for framework in map(str, self._column("framework")):
            habit = self._framework(framework).habit(name)
            habits.append(other if habit is None else habit.of(framework))
        if name != "context_parallel":
            return habits
        heads = self.constants.get("index_heads", 0.0)
        ways = [(habit, among_all(habit.value, heads)) for habit in habits]
        return [origin if origin.value == way else assumed(way, SELECTING) for origin, way in ways]

    def _framework(self, name: str) -> Framework:
        """Return a framework, which is read once: each habit and each table asks for it."""
        if name not in self.frameworks:
            self.frameworks[name] = load_framework(name, self.folders)
        return self.frameworks[name]

    def habit(self, label: str, value: str) -> None:
        """Take a label as the software that trains has it, or else this value."""
        self._take_habit(label, assumed(value))

    def _take_habit(self, name: str, other: Origin) -> None:
        """Take what the software that trains has, unless it is known."""
        origins, axis = self._habits(name, other), self._axis_of("framework")
        if name not in self.given:
            self.give(name, origins, [] if axis is None else [axis])

    def check(self) -> None:
        """Refuse what can't be of labels and shapes, such as more of something than there is."""
        faults = []
        # A mechanism says itself what hides, so that no share stands beside it.
        for label in OVERLAPS:
            share, named = f"{label[:2]}_overlap", self.labels.get(label, SHARED)
            if share in self.sweep.given and named != SHARED:
                value = f"{self.constants[share]:g}" if share in self.constants else "several"
                wrong = f"the mechanism {named} says itself what hides"
                faults.append(fault(share, value, wrong, f"{label} = {SHARED}, or no share"))
        tell_all(faults)
        faults = [line for pair in WITHIN.items() for line in self._beyond(*pair)]
        taken = [name for name in TAKEN_SMS if name in self.sweep.given]
        if "overlap_slowdown" in self.sweep.given and taken:
            wrong = f"follows from {taken[0]}, which is given, too"
            faults.append(fault("overlap_slowdown", "given", wrong, "one of them"))
        tokens, batch, length = map(
            self._column, ("training_tokens", "global_batch_size", "sequence_length")
        )
        if "training_tokens" in self.sweep.given and len(batch) and len(length):
            step = float(batch.min() * length.min())
            faults += less_than_a_step("training_tokens", float(tokens.min()), step)
        ranks = self._column("lora_rank")
        if np.any(ranks == 0.0) and np.any(ranks > 0.0):
            wrong = "is full training, beside ranks that train adapters alone"
            faults.append(fault("lora_rank", "0", wrong, "a sweep of its own"))
        tell_all(faults)

    # The model.

    def take_model(self) -> None:
        """Give the shapes of the models, or of what the user gave of one."""
        axis = self._axis_of("model")
        if axis is not None:
            self._models(axis)
        elif "model" in self.labels:
            model = load_model(self.labels["model"], self.folders)
            self.models.append(model)
            # First, for it is what a user looks for among what wasn't given.
            if (length := model.published("sequence_length")) is not None:
                self.take("sequence_length", length)
            for name, figure in model.figures.items():
                self.take(name, figure.origin.of(model.name))
        else:
            self._bare()

    def _beyond(self, part: str, whole: str, wrong: str = "is more than there are") -> list[str]:
        """Return the fault of a quantity that is more than another one allows."""
        counts, limits = self._column(part), self._column(whole)
        if not {part, whole} & self.sweep.given or not (len(counts) and len(limits)):
            return []
        if self._axis_of(part) is not self._axis_of(whole):
            limits = np.max(limits)
        beyond = counts > limits
        if not np.any(beyond):
            return []
        limit = np.broadcast_to(limits, counts.shape)[beyond][0]
        units = VOCABULARY[part].units
        value, most = (format_quantity(count, units) for count in (counts[beyond][0], limit))
        return [fault(part, value, wrong, f"at most {whole} = {most}")]

    def _models(self, axis: Axis) -> None:
        names = map(str, axis.columns["model"])
        models = of_each(lambda name: load_model(name, self.folders), names)
        self.models += models.values()
        rows = [models[str(name)] for name in axis.columns["model"]]
        every = dict.fromkeys(name for model in rows for name in model.figures)
        columns = {
            name: np.array(
                [m.figures[name].value if name in m.figures else _lacking(name, m) for m in rows]
            )
            for name in every
            if name not in self.given
        }
        for name in columns:
            self.origins[name] = tuple(
                m.figures[name].origin.of(m.name) for m in models.values() if name in m.figures
            )
        lengths = [model.published("sequence_length") for model in rows]
        known = [length for length in lengths if length is not None]
        if len(known) == len(rows) and "sequence_length" not in self.given:
            columns["sequence_length"] = np.array([float(origin.value) for origin in known])
            self.origins["sequence_length"] = once(known)
        self.given |= set(columns)
        self._extend(axis, columns)

    def _bare(self) -> None:
        """Complete shapes that the user gave one by one; what can't be had stays away."""
        given = {name: float(self._column(name)[0]) for name in SHAPES if name in self.given}
        for name, (value, why) in complete_shapes(given).items():
            # Formulas give what follows from other shapes.
            if name not in ("kv_heads", "head_size", "ffn_size"):
                self.take(name, assumed(value, why))

    # The plan.

    def take_habits(self) -> None:
        """Take what plans of the software that trains usually have."""
        experts, axis = any(self._column("experts")[:1]), self._axis_of("experts")
        plain = self.labels.get("framework", "").endswith(f"+{TEXTBOOK}")
        if axis is not None and plain and "sequence_parallel" not in self.given:
            routed = (axis.columns["experts"] > 0).astype(np.float64)
            self._extend(axis, {"sequence_parallel": routed})
            self.given.add("sequence_parallel")
            why = "with experts, as Megatron-LM demands"
            self.origins["sequence_parallel"] = (assumed(None, why),)
        why = OF_EXPERTS if experts else "off"
        self._take_habit("sequence_parallel", assumed(float(experts), why))
        usual = Origin(*usual_table()["training"]["zero_stage"])
        self._take_habit("zero_stage", usual)

    # Domains of many hosts.

    def _domains(self) -> None:
        """Cut domains of many hosts as jobs are placed, wherever a job doesn't fill them."""
        if "gpus_per_node" in self.sweep.given:
            return
        if not any("gpus_per_host" in machine.figures for machine in self.machines):
            return
        domain = self._of_machines(lambda machine: per_node(machine, "gpus"))
        cards = self._of_machines(lambda machine: per_node(machine, "nics"))
        several = self._of_machines(lambda machine: float("gpus_per_host" in machine.figures))
        taken = np.where(several > 0.0, cut_domain(self._worlds(), domain), domain)
        if np.all(taken == domain):
            return
        why = f"of a domain of {domain.max():g} GPUs a job takes the most that divides its own"
        for name, value in (("gpus_per_node", taken), ("nics_per_node", cards * taken / domain)):
            if name not in self.sweep.given:
                self._spread(name, np.asarray(value, dtype=np.float64))
                self.origins[name] = (assumed(self.constants.get(name), why),)

    # Constants of the machine and its software.

    def take_constants(self) -> None:
        """Give every constant, along the axes on which it depends."""
        self._domains()
        # What a preset sets depends on more.
        deciding = (*DECIDING, *SUBJECTS) if "preset" in self.given else DECIDING
        axes = [axis for axis in self.axes if not axis.columns.keys().isdisjoint(deciding)]
        tables = [
            self._table({name: str(word) for name, word in point.items()})
            for point in self.points(axes, deciding)
        ]
        usual = usual_table()
        models = {**usual["memory"], **usual["communication"], **usual["step"]}
        for name in dict.fromkeys(name for table in tables for name in table):
            if name in self.given or follows(name, self.given):
                continue
            # What a framework doesn't state has the model's own default, if there is one.
            taken = models.get(name)
            other = Origin(np.nan, UNKNOWN) if taken is None else assumed(taken.value)
            known = {axis.name: axis for axis in self.axes}
            there = [known[axis.name] for axis in axes]
            self.give(name, [table.get(name, other) for table in tables], there)

    def _table(self, labels: Mapping[str, str]) -> dict[str, Origin]:
        machine = load_hardware(labels["hardware"], self.folders)
        software, numbers = self.software_at(labels)
        framework = self._framework(software)
        constants = training_constants(
            machine,
            framework,
            precision=labels["precision"],
            attention_kernel=labels["attention_kernel"],
            recipe=labels.get("recipe"),
            fp8_scaling=labels.get("fp8_scaling"),
            loss=labels["loss"],
        )
        if "userbuffers" in self._values("tp_mechanism"):
            constants |= userbuffers_figures(machine, rates_of(labels["precision"]), constants)
        told = software, labels["precision"], labels.get("preset", "")
        return constants | numbers | known_of_run(machine, *told)


def _lacking(name: str, model: Model) -> float:
    """Return what a model has of a shape that it lacks beside others: what it has by itself."""
    known = name in FURTHER_SHAPES and "layers" in model.figures
    default = VOCABULARY[name].default if known else None
    return np.nan if default is None else default


def per_node(machine: Machine, what: str) -> float:
    """Return how many GPUs or network cards a machine's node, or domain, has."""
    figure = machine.figures.get(f"{what}_per_node")
    return figure.value if figure else 1.0
