"""What is studied: a layer's messages by strategy, on networks of typed links, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overhead.hops import Hops, LevelHops, Links, Traffic, messages, ring_all_reduce
from sweeps.errors import InputError, fault
from sweeps.spec.catalog import Machine
from sweeps.spec.model import Model

__all__ = [
    "TENSOR",
    "VOLUMES",
    "Case",
    "Message",
    "Row",
    "Study",
    "from_machine",
    "levels_of",
    "messages_of",
    "parted",
    "rows_of",
]

# How a tensor-parallel block communicates, and which bytes of data parallelism count.
TENSOR = ("ring", "messages")
VOLUMES = ("all_reduce", "reduce_scatter")
# In a block's forward and in its backward: one each.
PASSES = 2
# What a machine's links are called, by level, and the figures that they must have.
LEVELS = ("intra", "inter", "pod")
LEVEL_NAMES = {"intra": "in-node link", "inter": "link between nodes", "pod": "link between pods"}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
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
    note: str = ""  # What to know of it


@dataclass(frozen=True)
class Study:
    """What is computed."""

    title: str  # What it is about
    summary: str  # What it is about
    model: Model  # Whose layers
    sequence_length: Floats  # Tokens of the sequence that a rank works on; one or several
    element_bytes: float  # Bytes of a gradient and of an activation
    data_parallel: tuple[int, ...]  # Ranks
    tensor_parallel: tuple[int, ...]  # Ranks
    # By name, the level of the network that a pipeline's boundary crosses, innermost 0
    pipeline: Mapping[str, int]
    message_bytes: Floats  # Sizes of the per-message table
    cases: tuple[Case, ...]  # Side by side

    def weights(self, case: Case) -> dict[str, float]:
        """Return the bytes of a layer's parameters by part, as a case counts them."""
        given = {} if case.gated is None else {"gated": float(case.gated)}
        model = self.model
        if given:
            figures = {n: f for n, f in model.figures.items() if n not in given}
            model = replace(model, figures=figures)
        experts = model.shapes.get("experts", 0.0) > 0.0
        parts = {"ATTN": "attention_parameters", "MLP": "mlp_parameters"}
        if experts:
            parts = {"ATTN": "attention_parameters", "MoE": "moe_parameters"}
        return {
            part: self.element_bytes * model.quantity(name, **given) for part, name in parts.items()
        }

    @property
    def activations(self) -> Floats:
        """Bytes of one block's output, for each sequence length."""
        hidden = self.model.quantity("hidden_size")
        return np.asarray(self.sequence_length * hidden * self.element_bytes)


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


def from_machine(machine: Machine, names: tuple[str, ...] = ()) -> tuple[Links, LevelHops]:
    """Return a machine's link types, and what lies between its ranks.

    A message to another node passes a link inside each of the two nodes and one between them.
    """
    levels = [level for level in LEVELS if f"{level}_bandwidth" in machine.figures]
    figures: dict[str, tuple[float, ...]] = {}
    lacking = []
    for figure in ("latency", "bandwidth", "energy_per_bit"):
        found = [machine.figures.get(f"{level}_{figure}") for level in levels]
        lacking += [
            f"{lev}_{figure}" for lev, one in zip(levels, found, strict=True) if one is None
        ]
        figures[figure] = tuple(one.value for one in found if one is not None)
    if lacking:
        wrong = f"the machine's file has no {', '.join(lacking)}"
        raise InputError(fault("hardware", machine.name, wrong, "a machine that has it"))
    names = names or tuple(LEVEL_NAMES[level] for level in levels)
    if len(names) != len(levels):
        wrong = f"{machine.name} has {len(levels)} types of links"
        raise InputError(fault("link_names", ", ".join(names), wrong, "a name for each"))
    sizes = [int(machine.figures["gpus_per_node"].value)]
    paths = [(1, 0, 0), (2, 1, 0), (2, 2, 1)][: len(levels)]
    if "pod" in levels:
        sizes.append(int(machine.figures["nodes_per_pod"].value))
    hops = LevelHops(tuple(sizes), tuple(path[: len(levels)] for path in paths))
    return Links(names, figures["latency"], figures["bandwidth"], figures["energy_per_bit"]), hops


def levels_of(network: Hops) -> int:
    """Return how many levels a network has; a matrix has two: neighbours, and the furthest."""
    return len(network.paths) if isinstance(network, LevelHops) else 2


def parted(network: Hops, level: int) -> tuple[int, int]:
    """Return two ranks that a level parts, innermost 0; of a matrix the first and the last."""
    if isinstance(network, LevelHops):
        return 0, int(np.prod(network.sizes[:level], dtype=np.int64))
    return 0, (1, (network.ranks or 2) - 1)[level]


def rows_of(study: Study, case: Case) -> Iterator[Row]:
    """Yield the rows of the per-strategy table."""
    lengths = np.ones_like(study.sequence_length)
    for layer, weights in study.weights(case).items():
        for ranks in study.data_parallel:
            whole = ring_all_reduce(
                weights * lengths, ranks, case.network, case.links, case.switching
            )
            half = 0.5 if case.volume == "reduce_scatter" else 1.0
            counted = replace(
                whole, rank_bytes=half * whole.rank_bytes, total_bytes=half * whole.total_bytes
            )
            yield Row(layer, f"DP-{ranks}", ranks, counted)
    for layer in study.weights(case):
        for ranks in study.tensor_parallel:
            yield Row(layer, f"TP-{ranks}", ranks, _tensor(study, case, ranks))
    for name, level in study.pipeline.items():
        hops = case.network.hops(*parted(case.network, level))
        sent = messages(study.activations, hops, case.links, case.switching)
        yield Row("BLOCK", f"PP-{name}", 2, sent)


def _tensor(study: Study, case: Case, ranks: int) -> Traffic:
    if case.tensor == "messages":
        hops = case.network.hops(0, min(1, ranks - 1))
        return messages(
            study.activations, hops, case.links, case.switching, count=PASSES, senders=ranks
        )
    once = ring_all_reduce(study.activations, ranks, case.network, case.links, case.switching)
    return Traffic(
        PASSES * once.rank_bytes, PASSES * once.total_bytes, PASSES * once.time,
        PASSES * once.energy,
    )  # fmt: skip


def messages_of(study: Study, case: Case) -> Iterator[Message]:
    """Yield each message that the strategies send, on each mix of hops that it passes."""
    for layer, weights in study.weights(case).items():
        for ranks in study.data_parallel:
            size = np.full_like(study.sequence_length, weights / ranks)
            yield from _round(case, f"{layer} DP-{ranks}", size, ranks)
    for ranks in study.tensor_parallel:
        if case.tensor == "messages":
            hops = tuple(case.network.hops(0, min(1, ranks - 1)).tolist())
            yield Message(f"TP-{ranks}", study.activations, hops)
        else:
            yield from _round(case, f"TP-{ranks}", study.activations / ranks, ranks)
    for name, level in study.pipeline.items():
        hops = tuple(case.network.hops(*parted(case.network, level)).tolist())
        yield Message(f"PP-{name}", study.activations, hops)


def _round(case: Case, what: str, size: Floats, ranks: int) -> Iterator[Message]:
    source = np.arange(ranks)
    kinds = np.unique(case.network.hops(source, (source + 1) % ranks), axis=1)
    for hops in kinds.T:
        if hops.any():
            yield Message(what, size, tuple(hops.tolist()))
