"""What is studied: a layer's messages by strategy, on networks of typed links, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.hops import Hops, LevelHops, Links, Traffic, messages, ring_all_reduce
from overhead.labels import HIERARCHY
from sweeps.engine.program import Program
from sweeps.errors import InputError, fault, refuse
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import load_hardware
from sweeps.spec.machine import Machine
from sweeps.spec.model import Model
from sweeps.spec.resolve import resolve
from sweeps.spec.sweep import Sweep

# How a tensor-parallel block communicates, and which bytes of data parallelism count.
TENSOR = ("ring", "messages")
VOLUMES = ("all_reduce", "reduce_scatter")
# In a block's forward and in its backward: one each.
PASSES = 2
# What a machine's links are called, by level, and the figures that they must have.
LEVELS = ("intra", "gpu_nic", "inter", "pod")
LEVEL_NAMES = {
    "intra": "in-node link",
    "gpu_nic": "PCIe",
    "inter": "link between nodes",
    "pod": "link between pods",
}
FIGURES = {"bandwidth": "byte s-1", "latency": "s", "energy_per_bit": "J bit-1"}
# How a message leaves a node: by the GPU's own card, over PCIe at either end (rails), or through a
# link inside each of the two nodes, as the hop-energy notebook has it.
WIRINGS = ("rails", "in_node_links")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scenario:
    """A network with a way of communicating: a column of the comparison."""

    name: str  # What it is called
    links: Links  # Its types of links
    network: Hops  # What lies between ranks
    where: str  # The machine or network that it is of
    switching: str = "store_and_forward"  # ``store_and_forward`` or ``cut_through``
    gated: bool | None = None  # Whether the MLP has a gate; None: as the model has it
    # Of `TENSOR`: an all_reduce round a ring in the forward and one in the backward, or two whole
    # messages over the first ranks' path
    tensor: str = "ring"
    # Of `VOLUMES`: bytes of both halves of data parallelism's all_reduce, or of the first
    volume: str = "all_reduce"
    # How the machine's all_reduce runs, as `sweeps collective` has it; empty: one ring over the
    # links between ranks, as they stand in their order
    algorithm: str = ""
    machine: bool = False  # Whether its links are a machine's
    folders: tuple[Path, ...] = ()  # Where the machine is found
    note: str = ""  # What to know of it
    wiring: str = "rails"  # Of `WIRINGS`, where it is a machine
    link_names: tuple[str, ...] = ()  # Of the machine's links; empty: the usual ones
    # Figures of its links that are given in place of the machine's, by their names
    given: Mapping[str, float] = field(default_factory=dict)

    def all_reduce(self, message_bytes: Floats, ranks: int, stride: int = 1) -> Traffic:
        """Return what an all_reduce of every stride-th rank costs."""
        if not self.algorithm:
            return ring_all_reduce(
                message_bytes, ranks, self.network, self.links, self.switching, stride
            )
        labels = {"topology": HIERARCHY, "algorithm": self.algorithm, "hardware": self.where}
        sizes = Axis("message_bytes", {"message_bytes": message_bytes})
        wanted = ("time", "energy", "sent_bytes", "link_bytes")
        own_labels = {"collective": "all_reduce", **labels}
        sweep = Sweep("", "", wanted, (sizes,), self.constants(ranks, stride), own_labels)
        resolved = resolve(sweep, self.folders)
        program = Program.of_sweep(resolved, wanted)
        values = program.evaluate()
        faults = program.faults.named(int(np.bitwise_or.reduce(values["status"], axis=None)))
        for name in faults:
            about = ("algorithm", self.algorithm)
            if not name.startswith("algorithm"):
                about = ("ranks", f"{ranks:,}")
            wrong = f"'{self.name}': {name.replace('_', ' ')}"
            raise InputError(fault(*about, wrong, program.faults.texts[name]))
        time, energy, sent, total = (
            np.broadcast_to(values[n], message_bytes.shape) for n in wanted
        )
        return Traffic(rank_bytes=sent, total_bytes=total, time=time, energy=energy)

    def constants(self, ranks: int, stride: int = 1) -> dict[str, float]:
        """Return what `sweeps collective` is given for an all_reduce of every stride-th rank."""
        machine = load_hardware(self.where, self.folders)
        levels = machine.figures
        pods = {"nodes_per_pod": levels["nodes_per_pod"].value} if "pod_bandwidth" in levels else {}
        given_figures = {
            name: value for name, value in self.given.items() if not name.startswith("gpu_nic_")
        }
        figures = {name: figure.value for name, figure in levels.items()} | dict(self.given)
        given_figures |= _through_cards(figures, self.given)
        if "intra_bandwidth" in given_figures:
            # Here a link's; a collective operation has all of a chip's at once.
            given_figures["intra_bandwidth"] *= machine.ports
        return {"ranks": float(ranks), **pods, **given_figures, **_spread(levels, ranks, stride)}


def _through_cards(figures: Mapping[str, float], given: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of links between nodes with what is given of PCIe at either end."""
    values = {}
    if "gpu_nic_bandwidth" in given:
        # What streams goes at the slowest link's rate.
        for name in ("inter_bandwidth", "pod_bandwidth"):
            if name in figures:
                values[name] = min(figures[name], given["gpu_nic_bandwidth"])
    for figure in ("latency", "energy_per_bit"):
        if f"gpu_nic_{figure}" in given:
            values[f"inter_{figure}"] = (
                figures[f"inter_{figure}"] + 2.0 * given[f"gpu_nic_{figure}"]
            )
    return values


def _spread(levels: Mapping[str, Any], ranks: int, stride: int) -> dict[str, float]:
    """Return what a group of every stride-th rank has of a node: as many cards a rank as all."""
    if stride == 1:
        return {}
    node = levels["gpus_per_node"].value
    members = min(max(node // stride, 1.0), float(ranks))
    cards = levels["nics_per_node"].value * members / node
    shared = {"nics_per_node": cards} if cards >= 1.0 else {"ranks_sharing_nic": members / cards}
    return {"gpus_per_node": members, **shared}


@dataclass(frozen=True)
class HopStudy:
    """What is computed."""

    title: str  # What it is about
    summary: str
    model: Model  # Whose layers
    sequence_length: Floats  # Tokens of the sequence that a rank works on; one or several
    gradient_bytes: float  # Bytes of a gradient as it is sent
    activation_bytes: float  # Bytes of an activation as it is sent
    data_parallel: tuple[int, ...]  # Ranks
    tensor_parallel: tuple[int, ...]
    # By name, the level of the network that a pipeline's boundary crosses, innermost 0
    pipeline: Mapping[str, int]
    message_bytes: Floats  # Sizes of the per-message table
    cases: tuple[Scenario, ...]  # Side by side
    whole: bool = False  # All layers of the model, not one
    # Tensor parallelism inside of data parallelism: ranks of both
    combined: tuple[tuple[int, int], ...] = ()

    @property
    def layers(self) -> dict[str, float]:
        """How many layers there are with each part: one, or the model's."""
        experts = self.model.shapes.get("experts", 0.0) > 0.0
        if not self.whole:
            return {"ATTN": 1.0, "MoE" if experts else "MLP": 1.0}
        layers = self.model.quantity("layers")
        moe = self.model.quantity("moe_layers")
        counts = {"ATTN": layers, "MLP": layers - moe, "MoE": moe}
        return {part: count for part, count in counts.items() if count}

    def weights(self, case: Scenario) -> dict[str, float]:
        """Return the bytes of a layer's parameters by part, as a case counts them."""
        given = {} if case.gated is None else {"gated_mlp": float(case.gated)}
        model = self.model
        if given:
            figures = {n: f for n, f in model.figures.items() if n not in given}
            model = replace(model, figures=figures)
        names = {"ATTN": "mixer_parameters", "MLP": "mlp_parameters", "MoE": "moe_parameters"}
        return {
            part: self.gradient_bytes * model.quantity(names[part], **given) for part in self.layers
        }

    @cached_property
    def rows(self) -> tuple[tuple[Row, ...], ...]:
        """The rows of the per-strategy table, by case: computed once for all that shows them."""
        return tuple(tuple(rows_of(self, case)) for case in self.cases)

    @property
    def activations(self) -> Floats:
        """Bytes of one block's output, for each sequence length."""
        hidden = self.model.quantity("hidden_size")
        return np.asarray(self.sequence_length * hidden * self.activation_bytes)


@dataclass(frozen=True)
class Row:
    """A strategy's communication of one layer: arrays over the sequence lengths."""

    layer: str
    mode: str
    ranks: int
    traffic: Traffic


@dataclass(frozen=True)
class Message:
    """A single message that a strategy sends, or of a given size: arrays over what varies."""

    what: str
    size: Floats
    hops: tuple[float, ...]


def from_machine(
    machine: Machine,
    names: tuple[str, ...] = (),
    wiring: str = "rails",
    given: Mapping[str, float] | None = None,
) -> tuple[Links, LevelHops]:
    """Return a machine's link types, and what lies between its ranks.

    A message to another node passes PCIe, a link between nodes, and PCIe, and where the receiver
    is on another rail a link inside a node first; with the other wiring a link inside each of the
    two nodes and one between them.
    """
    known = {name: figure.value for name, figure in machine.figures.items()} | dict(given or {})
    rails = wiring == "rails"
    levels = [
        level for level in LEVELS if f"{level}_bandwidth" in known and (rails or level != "gpu_nic")
    ]
    known |= {n: 0.0 for n in ("gpu_nic_latency", "gpu_nic_energy_per_bit") if n not in known}
    lacking = [f"{lev}_{figure}" for figure in FIGURES for lev in levels]
    lacking = [name for name in lacking if name not in known]
    if lacking:
        wrong = f"the machine's file has no {', '.join(lacking)}"
        refuse("hardware", machine.name, wrong, "a machine that has it")
    figures = {n: tuple(known[f"{level}_{n}"] for level in levels) for n in FIGURES}
    names = names or tuple(LEVEL_NAMES[level] for level in levels)
    if len(names) != len(levels):
        wrong = f"{machine.name} has {len(levels)} types of links"
        refuse("link_names", ", ".join(names), wrong, "a name for each")
    sizes = [int(known["gpus_per_node"])]
    inside, far = {"intra": 1}, {"intra": 0 if rails else 2, "gpu_nic": 2 if rails else 0}
    passed = [inside, {**far, "inter": 1}]
    if "pod" in levels:
        sizes.append(int(known["nodes_per_pod"]))
        passed.append({**far, "inter": 2, "pod": 1})
    paths = tuple(tuple(counts.get(level, 0) for level in levels) for counts in passed)
    cards = {}
    if rails and sizes[0] > 1:
        cards = {"rails": int(known.get("nics_per_node", sizes[0])), "turn": paths[0]}
    hops = LevelHops(tuple(sizes), paths, **cards)  # type: ignore[arg-type]
    return Links(names, figures["latency"], figures["bandwidth"], figures["energy_per_bit"]), hops


def on_machine(case: Scenario, **change: Any) -> Scenario:
    """Return a case of a machine with some of what it is changed: wiring, names, figures."""
    changed = replace(case, **change)
    machine = load_hardware(case.where, case.folders)
    links, network = from_machine(machine, changed.link_names, changed.wiring, changed.given)
    return replace(changed, links=links, network=network)


def levels_of(network: Hops) -> int:
    """Return how many levels a network has; a matrix has two: neighbours, and the furthest."""
    return len(network.paths) if isinstance(network, LevelHops) else 2


def parted(network: Hops, level: int) -> tuple[int, int]:
    """Return two ranks that a level parts, innermost 0; of a matrix the first and the last."""
    if isinstance(network, LevelHops):
        return 0, int(np.prod(network.sizes[:level], dtype=np.int64))
    return 0, (1, (network.ranks or 2) - 1)[level]


def too_many_ranks(
    cases: Sequence[Scenario], wanted: Mapping[str, Sequence[tuple[Any, int]]]
) -> Iterator[tuple[str, Any, str, str]]:
    """Yield, as a fault has it, what takes more ranks than a case has.

    What is wanted is by field its values, each with the ranks that it takes.
    """
    for case in cases:
        most = case.network.ranks
        for field_name, values in wanted.items():
            for value, ranks in values:
                if most is not None and ranks > most:
                    yield field_name, value, f"'{case.name}' has fewer ranks", f"at most {most}"


def of_both(pairs: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Return combinations of tensor and data parallelism, each with its ranks."""
    return [(f"tp{tensor}-dp{data}", tensor * data) for tensor, data in pairs]


def rows_of(study: HopStudy, case: Scenario) -> Iterator[Row]:
    """Yield the rows of the per-strategy table."""
    weights = study.weights(case)
    for layer, count in study.layers.items():
        for ranks in study.data_parallel:
            traffic = _times(_data(study, case, weights[layer], ranks), count)
            yield Row(layer, f"DP-{ranks}", ranks, traffic)
    for layer, count in study.layers.items():
        for ranks in study.tensor_parallel:
            yield Row(layer, f"TP-{ranks}", ranks, _times(_tensor(study, case, ranks), count))
    for layer, count in study.layers.items():
        for tensor, data in study.combined:
            inner = _tensor(study, case, tensor)
            outer = _data(study, case, weights[layer] / tensor, data, tensor)
            # Groups of one kind all work at a time; the kinds do one after the other.
            both = Traffic(
                inner.rank_bytes + outer.rank_bytes,
                data * inner.total_bytes + tensor * outer.total_bytes,
                inner.time + outer.time,
                data * inner.energy + tensor * outer.energy,
            )
            yield Row(layer, f"TP-{tensor} x DP-{data}", tensor * data, _times(both, count))
    for name, level in study.pipeline.items():
        hops = case.network.hops(*parted(case.network, level))
        sent = messages(study.activations, hops, case.links, case.switching)
        yield Row("BLOCK", f"PP-{name}", 2, sent)


def _times(traffic: Traffic, count: float) -> Traffic:
    return Traffic(
        count * traffic.rank_bytes,
        count * traffic.total_bytes,
        count * traffic.time,
        count * traffic.energy,
    )


def _data(study: HopStudy, case: Scenario, weights: float, ranks: int, stride: int = 1) -> Traffic:
    whole = case.all_reduce(weights * np.ones_like(study.sequence_length), ranks, stride)
    half = 0.5 if case.volume == "reduce_scatter" else 1.0
    return replace(whole, rank_bytes=half * whole.rank_bytes, total_bytes=half * whole.total_bytes)


def _tensor(study: HopStudy, case: Scenario, ranks: int) -> Traffic:
    if case.tensor == "messages":
        hops = case.network.hops(0, min(1, ranks - 1))
        return messages(
            study.activations, hops, case.links, case.switching, count=PASSES, senders=ranks
        )
    return _times(case.all_reduce(study.activations, ranks), PASSES)


def messages_of(study: HopStudy, case: Scenario) -> Iterator[Message]:
    """Yield each message that the strategies send, on each mix of hops that it passes.

    An operation by an algorithm of the machine's is no row of such messages.
    """
    rings = not case.algorithm
    for layer, weights in study.weights(case).items():
        for ranks in study.data_parallel if rings else ():
            size = np.full_like(study.sequence_length, weights / ranks)
            yield from _round(case, f"{layer} DP-{ranks}", size, ranks)
    for ranks in study.tensor_parallel:
        if case.tensor == "messages":
            hops = tuple(case.network.hops(0, min(1, ranks - 1)).tolist())
            yield Message(f"TP-{ranks}", study.activations, hops)
        elif rings:
            yield from _round(case, f"TP-{ranks}", study.activations / ranks, ranks)
    for name, level in study.pipeline.items():
        hops = tuple(case.network.hops(*parted(case.network, level)).tolist())
        yield Message(f"PP-{name}", study.activations, hops)


def _round(case: Scenario, what: str, size: Floats, ranks: int) -> Iterator[Message]:
    source = np.arange(ranks)
    kinds = np.unique(case.network.hops(source, (source + 1) % ranks), axis=1)
    for hops in kinds.T:
        if hops.any():
            yield Message(what, size, tuple(hops.tolist()))
