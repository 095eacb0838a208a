"""A training configuration as plain values, and the quantities and labels that it stands for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, trees
from overhead.communication.groups import DEFAULTS as COMMUNICATION_DEFAULTS
from overhead.labels import (
    CHOICES,
    FULL,
    HYBRID,
    IN_A_STEP,
    INTERLEAVED,
    LABELS,
    NO_LIBRARY,
    OVERLAPS,
    PLAIN,
    STEP_DEFAULTS,
    complete,
    implied,
    usual_spelling,
    without_following,
)
from overhead.memory.stage import DEFAULTS as MEMORY_DEFAULTS
from overhead.quantity import VOCABULARY, Array
from overhead.topology import LIBRARY, default_framework, default_library, default_links
from overhead.transformer import VITAL

# The quantities that fields are, where their names differ.
RENAMED = {
    "num_gpus": "world_size",
    "dp_degree": "dp",
    "tp_degree": "tp",
    "cp_degree": "cp",
    "pp_degree": "pp",
    "ep_degree": "ep",
    "etp_degree": "etp",
    "num_parameters": "parameters",
    "batch_size": "micro_batch",
    "seq_length": "sequence_length",
    "num_layers": "layers",
    "num_heads": "heads",
    "num_kv_heads": "kv_heads",
}
# Fields that are labels.
CHOSEN = (
    "context_parallel",
    "recompute",
    "attention_kernel",
    "schedule",
    "mask",
    "dispatcher",
    "latency_per",
    "library",
    *OVERLAPS,
)
OTHERS = ("topology_kind", "algorithm", "tree_algo", "more", *CHOSEN)
# What an operation may wait for: its host, or the network.
FLOORS, ZERO = ("issue_time", "fabric_floor_time"), np.zeros(())
# What formulas give if it isn't given.
DERIVED = ("dp", "etp", "weight_copies", "kv_heads", "head_size", "ffn_size")
LINKS = default_links()
# A framework's habits are a user's who names it; its kernels and bytes come with its constants.
KERNEL = default_framework()[0]["attention_kernel"]
BYTES = {
    name: value for name, value in default_framework()[1].items()
    if name in {**MEMORY_DEFAULTS, **COMMUNICATION_DEFAULTS}
}  # fmt: skip
# What is given of links that leaves a library's constants without meaning.
BARE = frozenset(
    f"{level}{figure}"
    for level in ("", "intra_", "inter_")
    for figure in ("bandwidth", "latency", "efficiency")
)
NETWORK_DEFAULTS = {
    **{name: value for name, value in LINKS.items() if not name.endswith("_per_node")},
    "uneven_stages": 1.0,
    "mesh_nz": 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A training configuration.  Every number may be an array; all of them broadcast.

    What isn't given has a default: degrees are 1, and `dp_degree` is what the others leave of the
    GPUs; a step is one micro-batch of one sequence; bytes are those of mixed precision, with
    16-bit gradients, as recipes of Megatron-LM set; the network is that of the machine
    that commands take where none is named (a DGX H100), its links as fast as long messages are; the
    kernel of the attention and the bytes are those of the software that they take (Megatron-LM).

    Attributes
    ----------
    num_gpus : array_like, optional
        GPUs; by default the product of the degrees.
    topology_kind : TopologyKind or str
        The network.  On a hierarchy a group of ranks lies as its ranks lie on nodes; on any other
        network each group is that network of its own size.
    dp_degree, tp_degree, cp_degree, pp_degree, ep_degree, etp_degree : array_like, optional
        Degrees of parallelism; `etp_degree`, of experts, is by default `tp_degree`.
    virtual_stages : array_like
        Virtual stages of a rank; above 1 the schedule is ``interleaved`` unless it is given.
    num_parameters : array_like, optional
        The model's parameters; with shapes they follow from these.
    batch_size : array_like
        Sequences that a rank computes at once: the micro-batch.
    global_batch, micro_batches : array_like, optional
        Sequences of a step over all ranks, or micro-batches of a step on a rank (default: 1).
    seq_length, hidden_size, num_layers, num_heads, num_kv_heads, head_size, ffn_size,
    vocabulary_size, gated, tied_embeddings : array_like, optional
        The model's shapes; without layers, communication is that of one layer a stage.
    zero_stage, sequence_parallel, hsdp_shard : array_like, optional
        Stage of ZeRO; whether tensor parallelism splits the sequence; ranks of a hybrid shard.
    weight_bytes, gradient_bytes, optimizer_bytes : array_like
        Bytes of a parameter.
    memory_capacity : array_like, optional
        Memory of a GPU [byte].
    gpus_per_node, nics_per_node : array_like
        Of a node; by default there is a network card a GPU.
    mesh_nx, mesh_ny, mesh_nz : array_like, optional
        Sides of the group that is the whole mesh or torus; other groups are as near to a square
        as can be.
    bandwidth, latency, energy_per_bit : array_like, optional
        Of a flat network's links, if they aren't those inside or between nodes.
    intra_bandwidth, intra_latency, intra_energy_per_bit : array_like
        Inside a node: byte/s of one direction of a GPU, s, J/bit.
    inter_bandwidth, inter_latency, inter_energy_per_bit : array_like
        Between nodes: byte/s of one direction of a card, s, J/bit.
    intra_efficiency, inter_efficiency : array_like
        Share of these bandwidths that long messages reach.
    oversubscription : array_like
        Of the network between nodes.
    algorithm : str
        A name, or ``standard``, ``nccl``, ``auto``.
    tree_algo : bool
        Whether an all_reduce takes the network's tree algorithm.
    context_parallel, recompute, attention_kernel, schedule, mask, dispatcher, latency_per,
    tp_mechanism, cp_mechanism, ep_mechanism, dp_mechanism : str
        Kinds, as the command line has them.
    library : str, optional
        Library whose constants price collectives: ``nccl``, ``rccl``, ``xla``, those that `more`
        doesn't give as of NCCL on the default machine; ``none`` takes links alone.  By default
        NCCL, or ``none`` where a link's bandwidth, latency or share is given.
    more : mapping of str to array_like
        Further quantities by the vocabulary's names, such as those of a mixture of experts.
    """

    num_gpus: ArrayLike | None = None
    topology_kind: str = STEP_DEFAULTS["topology"]
    dp_degree: ArrayLike | None = None
    tp_degree: ArrayLike = 1.0
    cp_degree: ArrayLike = 1.0
    pp_degree: ArrayLike = 1.0
    ep_degree: ArrayLike = 1.0
    etp_degree: ArrayLike | None = None
    virtual_stages: ArrayLike = 1.0
    num_parameters: ArrayLike | None = None
    batch_size: ArrayLike = 1.0
    global_batch: ArrayLike | None = None
    micro_batches: ArrayLike | None = None
    seq_length: ArrayLike | None = None
    hidden_size: ArrayLike | None = None
    num_layers: ArrayLike | None = None
    num_heads: ArrayLike | None = None
    num_kv_heads: ArrayLike | None = None
    head_size: ArrayLike | None = None
    ffn_size: ArrayLike | None = None
    vocabulary_size: ArrayLike | None = None
    gated: ArrayLike | None = None
    tied_embeddings: ArrayLike | None = None
    zero_stage: ArrayLike = 0.0
    sequence_parallel: ArrayLike = 0.0
    hsdp_shard: ArrayLike | None = None
    weight_bytes: ArrayLike = 2.0
    gradient_bytes: ArrayLike = 2.0
    optimizer_bytes: ArrayLike = 12.0
    memory_capacity: ArrayLike | None = None
    gpus_per_node: ArrayLike = LINKS["gpus_per_node"]
    nics_per_node: ArrayLike | None = None
    mesh_nx: ArrayLike | None = None
    mesh_ny: ArrayLike | None = None
    mesh_nz: ArrayLike | None = None
    bandwidth: ArrayLike | None = None
    latency: ArrayLike | None = None
    energy_per_bit: ArrayLike | None = None
    intra_bandwidth: ArrayLike | None = None
    intra_latency: ArrayLike | None = None
    intra_energy_per_bit: ArrayLike | None = None
    intra_efficiency: ArrayLike | None = None
    inter_bandwidth: ArrayLike | None = None
    inter_latency: ArrayLike | None = None
    inter_energy_per_bit: ArrayLike | None = None
    inter_efficiency: ArrayLike | None = None
    oversubscription: ArrayLike = 1.0
    algorithm: str = STEP_DEFAULTS["algorithm"]
    tree_algo: bool = False
    context_parallel: str = STEP_DEFAULTS["context_parallel"]
    recompute: str = STEP_DEFAULTS["recompute"]
    attention_kernel: str = KERNEL
    schedule: str = ""
    mask: str = STEP_DEFAULTS["mask"]
    dispatcher: str = STEP_DEFAULTS["dispatcher"]
    latency_per: str = STEP_DEFAULTS["latency_per"]
    library: str | None = None
    tp_mechanism: str = STEP_DEFAULTS["tp_mechanism"]
    cp_mechanism: str = STEP_DEFAULTS["cp_mechanism"]
    ep_mechanism: str = STEP_DEFAULTS["ep_mechanism"]
    dp_mechanism: str = STEP_DEFAULTS["dp_mechanism"]
    more: Mapping[str, ArrayLike] = field(default_factory=dict)

    def inputs(self) -> dict[str, Array]:
        """Return what the fields give, by quantity.

        Raises
        ------
        ValueError
            If a value is outside of its domain, or a name isn't a quantity's.
        """
        names = {one.name: RENAMED.get(one.name, one.name) for one in fields(self)}
        own = {name: getattr(self, field) for field, name in names.items() if field not in OTHERS}
        given = {name: value for name, value in {**own, **self.more}.items() if value is not None}
        values = {name: np.asarray(value, dtype=np.float64) for name, value in given.items()}
        for name, value in values.items():
            if name not in VOCABULARY:
                message = f"{name}: no such quantity; {_near(name, VOCABULARY)}"
                raise ValueError(message)
            if np.any(VOCABULARY[name].outside(value)):
                domain = VOCABULARY[name].domain()
                message = f"{name} = {value}: outside of its domain; {domain}"
                raise ValueError(message)
        return values

    def given(self) -> dict[str, Array]:
        """Return all that is given, by quantity: what the fields give, and defaults.

        Raises
        ------
        ValueError
            As `inputs`.
        """
        inputs = self.inputs()
        _check_sides(inputs)
        shapes = (*VITAL, *DERIVED)
        defaults = {**MEMORY_DEFAULTS, **COMMUNICATION_DEFAULTS, **NETWORK_DEFAULTS, **BYTES}
        if self._library(inputs) != NO_LIBRARY:
            defaults |= default_library()
        values = {
            name: np.asarray(value)
            for name, value in without_following(defaults, inputs).items()
            if name not in shapes
        } | inputs
        if not {"global_batch", "micro_batches"} & set(inputs):
            values["micro_batches"] = np.asarray(1.0)
        if not {"dp", "world_size"} & set(inputs):
            values["dp"] = np.asarray(1.0)
        if "tp_overlap" in inputs and "tp_whole_overlap" not in inputs:
            values["tp_whole_overlap"] = inputs["tp_overlap"]
        if "nics_per_node" not in inputs:
            values.setdefault("ranks_per_nic", np.asarray(1.0))
        return values

    def labels(self) -> dict[str, str]:
        """Return the labels that hold.

        Raises
        ------
        ValueError
            If a label has no such value.
        """
        topology = usual_spelling(str(self.topology_kind), NETWORKS)
        if topology not in NETWORKS:
            raise ValueError(_unknown("topology", topology, NETWORKS))
        inputs = self.inputs()
        plain = bool(np.all(np.asarray(self.virtual_stages) == 1.0))
        schedule = self.schedule or (PLAIN if plain else INTERLEAVED)
        library = self._library(inputs)
        labels = {name: getattr(self, name) for name in CHOSEN}
        labels |= {"schedule": schedule, "library": library}
        for name in labels:
            value = labels[name] = usual_spelling(labels[name], LABELS[name].values)
            if value not in LABELS[name].values:
                raise ValueError(_unknown(name, value, LABELS[name].values))
        waits = (default_library() if library != NO_LIBRARY else {}) | inputs
        labels |= {
            "topology": topology,
            "algorithm": self._algorithm(topology),
            "link": LABELS["link"].default,
            "sharding": HYBRID if "hsdp_shard" in inputs else FULL,
            **({"environment": IN_A_STEP} if library != NO_LIBRARY else {}),
            "floor": "some" if any(np.any(waits.get(n, ZERO) > 0.0) for n in FLOORS) else "none",
        }
        return complete(labels, inputs) | implied(inputs)

    def _library(self, inputs: Mapping[str, Array]) -> str:
        """Return the library whose profile prices collectives."""
        if self.library is not None:
            return self.library
        return NO_LIBRARY if BARE & set(inputs) else LIBRARY

    def _algorithm(self, topology: str) -> str:
        if not self.tree_algo:
            known = (*CHOICES, *ALGORITHMS.names(topology))
            if self.algorithm not in known:
                raise ValueError(_unknown("algorithm", self.algorithm, known))
            return self.algorithm
        found = NETWORKS[topology].tree
        if not found:
            message = f"tree_algo = True: no tree algorithm on {topology}; one of "
            raise ValueError(message + ", ".join(trees()))
        return found


def _check_sides(inputs: Mapping[str, Array]) -> None:
    """Refuse sides of a mesh or torus that aren't all there, or don't multiply to its ranks."""
    if ("mesh_nx" in inputs) != ("mesh_ny" in inputs):
        message = "mesh_nx and mesh_ny: only one is given; give both"
        raise ValueError(message)
    world = inputs.get("world_size")
    if "mesh_nx" not in inputs or world is None:
        return
    sides = inputs["mesh_nx"] * inputs["mesh_ny"] * inputs.get("mesh_nz", np.asarray(1.0))
    if np.any(sides != world):
        message = f"mesh_nx x mesh_ny x mesh_nz = {sides}: isn't the number of GPUs, {world}"
        raise ValueError(message)


def _near(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, [str(one) for one in known], n=2)
    listed = " or ".join(map(repr, close))
    return f"did you mean {listed}?" if close else "see overhead.VOCABULARY"


def _unknown(name: str, value: str, known: Any) -> str:
    return f"{name} = '{value}': is unknown; one of {', '.join(map(str, known))}"
