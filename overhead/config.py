"""A training configuration as plain values, and the quantities and labels that it stands for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, trees
from overhead.completion import Statement, complete, following, implied, library_labels
from overhead.labels import (
    CHOICES,
    LABELS,
    NO_LIBRARY,
    STEP_DEFAULTS,
    usual_spelling,
)
from overhead.memory.quantities import RECIPES
from overhead.quantity import VOCABULARY, Array
from overhead.shipped import Usual, loss_figures, usual_table
from overhead.step.clock import fitted_clock
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
    "batch_size": "micro_batch_size",
    "seq_length": "sequence_length",
    "num_layers": "layers",
    "num_heads": "heads",
    "num_kv_heads": "kv_heads",
}
LINKS = default_links()
KERNEL, LOSS = (default_framework()[0][name] for name in ("attention_kernel", "loss"))
RECIPE = RECIPES["mixed_adam"].given()
# What is given of links that leaves a library's constants without meaning.
BARE = frozenset(
    f"{level}{figure}"
    for level in ("", "intra_", "inter_")
    for figure in ("bandwidth", "latency", "efficiency")
)


class PythonStatement(Statement):
    """A configuration on the default machine, with the default software's constants.

    Its habits are a user's who names it.
    """

    def __init__(self, inputs: Mapping[str, Array], labels: Mapping[str, str]) -> None:
        bare = not BARE.isdisjoint(inputs)
        super().__init__(inputs, {"library": NO_LIBRARY if bare else LIBRARY, **labels})

    def _take(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.number(name, Usual(value, "", ""))

    def take_machine(self) -> None:
        """Take the default machine's links, and a card a GPU where cards aren't given."""
        if "nics_per_node" not in self.given:
            self._take({"ranks_sharing_nic": 1.0})
        self._take({name: link for name, link in LINKS.items() if not name.endswith("_per_node")})

    def take_model(self) -> None:
        """Take what a model lacks of which nothing is said."""
        shapes = usual_table()["shapes"]
        self._take({name: shape.value for name, shape in shapes.items() if name not in VITAL})

    def take_constants(self) -> None:
        """Take the default software's constants."""
        tables = usual_table()
        known = {*tables["step"], *tables["communication"], *tables["memory"]}
        figures = default_framework()[1]
        of_loss = loss_figures(self.labels["loss"], LOSS)
        self._take({name: taken.value for name, taken in of_loss.items()})
        self._take({name: value for name, value in figures.items() if name in known})

    def check(self) -> None:
        """Refuse sides of a mesh or torus that aren't all there, or don't multiply to its ranks."""
        if ("mesh_nx" in self.given) != ("mesh_ny" in self.given):
            message = "mesh_nx and mesh_ny: only one is given; give both"
            raise ValueError(message)
        if not {"mesh_nx", "world_size"} <= self.given:
            return
        sides = self.numbers["mesh_nx"] * self.numbers["mesh_ny"]
        sides = sides * self.numbers.get("mesh_nz", 1.0)
        if np.any(sides != self.numbers["world_size"]):
            world = self.numbers["world_size"]
            message = f"mesh_nx x mesh_ny x mesh_nz = {sides}: isn't the number of GPUs, {world}"
            raise ValueError(message)

    def take_library(self) -> None:
        """Take the library's constants on the default machine, and its labels."""
        library = self.labels["library"]
        if library != NO_LIBRARY:
            self._take(default_library())
        self.labels |= library_labels(library, self.numbers)


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
    virtual_pipeline_size : array_like, optional
        Virtual stages of a rank; above 1 the schedule is ``interleaved`` unless it is given.
    num_parameters : array_like, optional
        The model's parameters; with shapes they follow from these.
    batch_size : array_like, optional
        Sequences that a rank computes at once: the micro-batch.
    global_batch_size, num_micro_batches : array_like, optional
        Sequences of a step over all ranks, or micro-batches of a step on a rank (default: 1).
    seq_length, hidden_size, num_layers, num_heads, num_kv_heads, head_size, ffn_size,
    vocabulary_size, gated_mlp, tied_embeddings : array_like, optional
        The model's shapes; without layers, communication is that of one layer a stage.
    zero_stage, sequence_parallel, hsdp_shard_size : array_like, optional
        Stage of ZeRO; whether tensor parallelism splits the sequence (by default with experts);
        ranks of a hybrid shard.
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
    oversubscription : array_like, optional
        Of the network between nodes.
    algorithm : str
        A name, or ``standard``, ``nccl``, ``auto``.
    tree_algo : bool
        Whether an all_reduce takes the network's tree algorithm.
    context_parallel, recompute, attention_kernel, loss, schedule, mask, dispatcher, host_states,
    latency_per, tp_mechanism, cp_mechanism, ep_mechanism, dp_mechanism : str
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
    tp_degree: ArrayLike | None = None
    cp_degree: ArrayLike | None = None
    pp_degree: ArrayLike | None = None
    ep_degree: ArrayLike | None = None
    etp_degree: ArrayLike | None = None
    virtual_pipeline_size: ArrayLike | None = None
    num_parameters: ArrayLike | None = None
    batch_size: ArrayLike | None = None
    global_batch_size: ArrayLike | None = None
    num_micro_batches: ArrayLike | None = None
    seq_length: ArrayLike | None = None
    hidden_size: ArrayLike | None = None
    num_layers: ArrayLike | None = None
    num_heads: ArrayLike | None = None
    num_kv_heads: ArrayLike | None = None
    head_size: ArrayLike | None = None
    ffn_size: ArrayLike | None = None
    vocabulary_size: ArrayLike | None = None
    gated_mlp: ArrayLike | None = None
    tied_embeddings: ArrayLike | None = None
    zero_stage: ArrayLike | None = None
    sequence_parallel: ArrayLike | None = None
    hsdp_shard_size: ArrayLike | None = None
    weight_bytes: ArrayLike = RECIPE["weight_bytes"]
    gradient_bytes: ArrayLike = RECIPE["gradient_bytes"]
    optimizer_bytes: ArrayLike = RECIPE["optimizer_bytes"]
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
    oversubscription: ArrayLike | None = None
    algorithm: str = STEP_DEFAULTS["algorithm"]
    tree_algo: bool = False
    context_parallel: str = STEP_DEFAULTS["context_parallel"]
    recompute: str = STEP_DEFAULTS["recompute"]
    attention_kernel: str = KERNEL
    loss: str = LOSS
    schedule: str = ""
    mask: str = STEP_DEFAULTS["mask"]
    dispatcher: str = STEP_DEFAULTS["dispatcher"]
    host_states: str = ""
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
            If a value is out of range, or a name isn't a quantity's.
        """
        names = {field.name: RENAMED.get(field.name, field.name) for field in fields(self)}
        every = {
            **{name: getattr(self, field) for field, name in names.items() if name in VOCABULARY},
            **self.more,
        }
        given = {name: value for name, value in every.items() if value is not None}
        values = {name: np.asarray(value, dtype=np.float64) for name, value in given.items()}
        for name, value in values.items():
            if name not in VOCABULARY:
                message = f"{name}: no such quantity; {_near(name, VOCABULARY)}"
                raise ValueError(message)
            if np.any(VOCABULARY[name].outside(value)):
                domain = VOCABULARY[name].domain()
                message = f"{name} = {value}: out of range; must be {domain}"
                raise ValueError(message)
        return values

    def completed(self) -> Statement:
        """Return all that holds: what the fields give, and what is taken beside it.

        Raises
        ------
        ValueError
            As `inputs`; or if a label has no such value.
        """
        statement = PythonStatement(self.inputs(), self._words())
        complete(statement)
        statement.labels = following(statement.labels, statement.given) | implied(statement.given)
        if "clock_ratio" not in statement.given and statement.exceeds("measured_step_time", 0.0):
            numbers = {name: np.asarray(value) for name, value in statement.numbers.items()}
            statement.numbers["clock_ratio"] = fitted_clock(numbers, statement.labels)
        return statement

    def given(self) -> dict[str, Array]:
        """Return the numbers of `completed`, by quantity."""
        return {name: np.asarray(value) for name, value in self.completed().numbers.items()}

    def labels(self) -> dict[str, str]:
        """Return the labels of `completed`."""
        return self.completed().labels

    def _words(self) -> dict[str, str]:
        """Return what the fields give of labels, each as it is usually spelled."""
        topology = usual_spelling(str(self.topology_kind), NETWORKS)
        if topology not in NETWORKS:
            raise ValueError(_unknown("topology", topology, NETWORKS))
        labels = {"topology": topology, "algorithm": self._algorithm(topology)}
        for name in (entry.name for entry in fields(self) if entry.name in LABELS):
            if name not in labels and (word := getattr(self, name)):
                known = LABELS[name].values
                labels[name] = usual_spelling(word, known)
                if labels[name] not in known:
                    raise ValueError(_unknown(name, labels[name], known))
        return labels

    def _algorithm(self, topology: str) -> str:
        if not self.tree_algo:
            known = (*CHOICES, *ALGORITHMS.names(topology))
            if self.algorithm not in known:
                raise ValueError(_unknown("algorithm", self.algorithm, known))
            return self.algorithm
        tree = NETWORKS[topology].tree
        if not tree:
            message = f"tree_algo = True: no tree algorithm on {topology}; one of "
            raise ValueError(message + ", ".join(trees()))
        return tree


def _near(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, [str(entry) for entry in known], n=2)
    listed = " or ".join(map(repr, close))
    return f"did you mean {listed}?" if close else "see overhead.VOCABULARY"


def _unknown(name: str, value: str, known: Any) -> str:
    return f"{name} = '{value}': is unknown; one of {', '.join(map(str, known))}"
