"""A parallel plan: its degrees, where its groups lie, and when it can be (``plan.csv``)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from overhead.arrays import xp
from overhead.collectives.algorithm import ALGORITHMS, Requirement
from overhead.expression import compiled
from overhead.formula import derived, formula
from overhead.frozen import frozen
from overhead.labels import CHOICES, HIERARCHY, STANDARD
from overhead.special import greatest_common_divisor

MEGATRON = "megatron"


@derived(returns="dp", assumes=("the remaining factor of the GPUs",))
def dp_of_world(world_size, tp, cp, pp):
    """Data-parallel size: the remaining factor of the GPUs."""
    return xp.maximum(xp.floor(world_size / (tp * cp * pp)), 1.0)


@derived(assumes=("a batch that is not divisible makes the plan invalid",))
def num_micro_batches(global_batch_size, dp, micro_batch_size):
    """Micro-batches of a step on a rank."""
    return xp.maximum(xp.ceil(global_batch_size / (dp * micro_batch_size)), 1.0)


@derived(returns="head_size", assumes=("heads share the hidden size, for nothing else is given",))
def head_size_of_hidden(hidden_size, heads):
    """Size of an attention head: the heads' share of the hidden size."""
    return xp.maximum(xp.floor(hidden_size / heads), 1.0)


__all__: list[str] = []

# In the order in which people name them.
DEGREES = (
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "dp",
    "hsdp_shard_size",
    "virtual_pipeline_size",
    "micro_batch_size",
)
BATCHES = ("global_batch_size", "num_micro_batches")


# Where the groups of a parallel plan sit: their ranks, and how they lie on nodes.
#
# Ranks are numbered as Megatron-LM does by default, innermost first: dense layers by tp, cp, dp,
# pp; experts cut the same ranks anew, by etp, ep, edp, pp.  So a group is every `group_stride`-th
# rank, `group_size` of them, from a start that is another one in each group of its kind.  Node k
# holds ranks k*gpus_per_node and on; nodes are full, or there is one.
#
# A size that doesn't come out even belongs to a plan that is refused below;
# it is rounded up, so that it stays a size.

# "zero" shards over data and context; "hsdp_*" cut those ranks into shards and their replicas.
GROUPS = ("tp", "cp", "dp", "zero", "hsdp_shard_size", "hsdp_replica", "pp", "etp", "ep", "edp")


ORDER = "megatron/core/parallel_state.py, the default order of ranks"
FULL_NODES = ("nodes are full, or there is one",)


# Sizes.


@formula(source=MEGATRON, where=ORDER)
def edp(tp, cp, dp, etp, ep):
    """Expert data-parallel size: the remaining factor of the ranks per stage."""
    return xp.ceil(tp * cp * dp / (etp * ep))


@formula(returns="group_size", source=MEGATRON, where=ORDER, when={"group": "hsdp_replica"})
def hsdp_replica_size(dp, cp, hsdp_shard_size):
    """Ranks that hold the same shard in hybrid sharding."""
    return xp.ceil(dp * cp / hsdp_shard_size)


# On nodes.


@derived(assumes=FULL_NODES)
def uneven_placement(group_size, group_stride, gpus_per_node):
    """Unevenly placed process groups (0 or 1).

    They lie alike if their members are on a node each, or if each node's members fill it in strides
    and groups and nodes fill one another.
    """
    span = group_size * group_stride
    ragged = (span % gpus_per_node > 0.0) & (gpus_per_node % span > 0.0)
    straddles = (gpus_per_node % group_stride > 0.0) | ragged
    within = (group_size > 1.0) & (group_stride < gpus_per_node)
    return xp.where(within & straddles, 1.0, 0.0)


@derived(assumes=(*FULL_NODES, "for unevenly placed groups only one member per node is certain"))
def members_in_node(uneven_placement, gpus_per_node, group_stride, group_size):
    """Members of a group in one node."""
    even = xp.minimum(xp.maximum(gpus_per_node / group_stride, 1.0), group_size)
    return xp.where(uneven_placement > 0.0, 1.0, even)


@derived(assumes=FULL_NODES)
def group_nodes(uneven_placement, gpus_per_node, group_stride, group_size):
    """Nodes that a group spans; of unevenly placed groups, the one that spans most.

    Blocks of size times stride ranks start at multiples of the common divisor of that and of a
    node, groups at any of a stride's ranks after; the latest start in a node reaches furthest.
    """
    uneven = uneven_placement > 0.0
    # Elsewhere it isn't needed, and the divisor of ones is found at once.
    period = greatest_common_divisor(
        xp.where(uneven, group_size * group_stride, 1.0), xp.where(uneven, gpus_per_node, 1.0)
    )
    start = gpus_per_node - 1.0 - period + xp.minimum(group_stride, period)
    most = 1.0 + xp.floor((start + (group_size - 1.0) * group_stride) / gpus_per_node)
    even = xp.minimum(xp.maximum(gpus_per_node / group_stride, 1.0), group_size)
    return xp.where(uneven, most, group_size / even)


# A pipeline's boundaries.


@derived(
    assumes=(*FULL_NODES, "where stages straddle nodes, each end of a node parts two boundaries")
)
def node_boundaries(pp, gpus_per_node, tp, cp, dp):
    """Inter-node stage boundaries; the maximum if stages straddle nodes."""
    parted = xp.where(gpus_per_node % (tp * cp * dp) > 0.0, 2.0, 1.0)
    ends = xp.ceil(pp * tp * cp * dp / gpus_per_node) - 1.0
    return xp.minimum(pp - 1.0, parted * ends)


# Which parallel plans there are: conditions on degrees, shapes and batches, with their faults.


@frozen()
class PlanCondition:
    """A row of ``plan.csv``: what must hold of plans with some labels."""

    rule: Requirement
    labels: Mapping[str, str]  # Several values of one label are joined by ``|``

    def concerns(self, labels: Mapping[str, str]) -> bool:
        """Return whether it has to hold of plans with these labels."""
        return all(labels.get(name) in values.split("|") for name, values in self.labels.items())


@cache
def conditions() -> tuple[PlanCondition, ...]:
    """Return what must hold of plans, in the order in which faults are told."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return tuple(
        PlanCondition(
            Requirement(fault, text, compiled(holds, of.split())),
            dict(label.split("=") for label in when.split("&") if label),
        )
        for fault, when, of, holds, text in rows
    )


# A collective that lacks the algorithm takes the standard one; here all would.
NO_ALGORITHM = Requirement(
    "algorithm_not_defined_on_topology",
    "some collective of the network must have the algorithm",
    lambda world_size: xp.asarray(world_size < 0.0),
)


NOT_OF_GROUPS = Requirement(
    "algorithm_not_defined_for_a_group",
    "the network and its algorithm must be defined for each group's number of ranks",
    lambda communication_upper_bound: ~xp.isnan(communication_upper_bound),
)


@cache
def _of_algorithm(network: str, name: str, _algorithms: int) -> tuple[Requirement, ...]:
    """Return what the algorithm of a plan's collectives must fulfil."""
    if name not in (*CHOICES, *ALGORITHMS.names(network)):
        return (NO_ALGORITHM,)
    algorithms = (algorithm for algorithm in ALGORITHMS.values() if algorithm.topology == network)
    # A choice takes what is defined, but for a network that some numbers of ranks don't make.
    limited = (
        member.conditions if member.name == name else member.of_ranks for member in algorithms
    )
    return (NOT_OF_GROUPS,) if any(limited) else ()


def requirements(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Return what a plan must fulfil."""
    network, algorithm = labels.get("topology", HIERARCHY), labels.get("algorithm", STANDARD)
    every = {"mask": "causal", **labels}
    return (
        *_of_algorithm(network, algorithm, len(ALGORITHMS)),
        *(condition.rule for condition in conditions() if condition.concerns(every)),
    )
