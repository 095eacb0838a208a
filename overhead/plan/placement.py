"""Where the groups of a parallel plan sit: their ranks, and how they lie on nodes.

Ranks are numbered as Megatron-LM does by default, innermost first: dense layers by tp, cp, dp, pp;
experts cut the same ranks anew, by etp, ep, edp, pp.  So a group is every `group_stride`-th rank,
`group_size` of them, from a start that is another one in each group of its kind.  Node k holds
ranks k*gpus_per_node and on; nodes are full, or there is one.

A size that doesn't come out even belongs to a plan that `overhead.plan.requirements` refuses;
it is rounded up, so that it stays a size.
"""

from __future__ import annotations

import numpy as np

from overhead.declare import alias, constant
from overhead.expression import greatest_common_divisor
from overhead.formula import formula
from overhead.quantity import Array, define
from overhead.source import cite

# "zero" shards over data and context; "hsdp_*" cut those ranks into shards and their replicas.
GROUPS = ("tp", "cp", "dp", "zero", "hsdp_shard", "hsdp_replica", "pp", "etp", "ep", "edp")

define("edp", "e_d", "1", "data-parallel degree of experts", minimum=1, integer=True)
define(
    "boundary_in_node",
    r"\nu_i",
    "1",
    "whether all ranks of a stage share a node with theirs in the next one",
    minimum=0,
    maximum=1,
    integer=True,
)
define(
    "node_boundaries",
    r"\chi_p",
    "1",
    "boundaries between stages of a pipeline that lie between nodes",
    minimum=0,
    integer=True,
)
cite("megatron", "NVIDIA, Megatron-LM", "github.com/NVIDIA/Megatron-LM")

MEGATRON = "megatron"
ORDER = "megatron/core/parallel_state.py, the default order of ranks"
FULL_NODES = ("nodes are full, or there is one",)


# Sizes.


@formula(source=MEGATRON, where=ORDER)
def edp(tp: Array, cp: Array, dp: Array, etp: Array, ep: Array) -> Array:
    """Data-parallel degree of experts: what their other degrees leave of a stage's ranks."""
    return np.ceil(tp * cp * dp / (etp * ep))


for _group in ("tp", "cp", "dp", "pp", "etp", "ep", "edp", "hsdp_shard"):
    alias("group_size", _group, source=MEGATRON, where=ORDER, when={"group": _group})


@formula(returns="group_size", source=MEGATRON, where=ORDER, when={"group": "zero"})
def zero_size(dp: Array, cp: Array) -> Array:
    """Ranks over which ZeRO shards: those of equal weights."""
    return dp * cp


@formula(returns="group_size", source=MEGATRON, where=ORDER, when={"group": "hsdp_replica"})
def hsdp_replica_size(dp: Array, cp: Array, hsdp_shard: Array) -> Array:
    """Ranks that hold the same shard in hybrid sharding."""
    return np.ceil(dp * cp / hsdp_shard)


# Strides.


constant(
    "group_stride", 1.0, like="group_size", source=MEGATRON, where=ORDER, when={"group": "tp|etp"}
)
alias("group_stride", "tp", source=MEGATRON, where=ORDER, when={"group": "cp|zero|hsdp_shard"})


@formula(returns="group_stride", source=MEGATRON, where=ORDER, when={"group": "dp"})
def dp_stride(tp: Array, cp: Array) -> Array:
    """Distance in rank of neighbours in a data-parallel group."""
    return tp * cp


@formula(returns="group_stride", source=MEGATRON, where=ORDER, when={"group": "hsdp_replica"})
def hsdp_replica_stride(tp: Array, hsdp_shard: Array) -> Array:
    """Distance in rank of neighbours that hold the same shard."""
    return tp * hsdp_shard


@formula(returns="group_stride", source=MEGATRON, where=ORDER, when={"group": "pp"})
def pp_stride(tp: Array, cp: Array, dp: Array) -> Array:
    """Distance in rank of neighbours in a pipeline: the ranks of a stage."""
    return tp * cp * dp


alias("group_stride", "etp", source=MEGATRON, where=ORDER, when={"group": "ep"})


@formula(returns="group_stride", source=MEGATRON, where=ORDER, when={"group": "edp"})
def edp_stride(etp: Array, ep: Array) -> Array:
    """Distance in rank of neighbours in an experts' data-parallel group."""
    return etp * ep


# On nodes.


@formula(source="derivation", assumes=FULL_NODES)
def uneven_placement(group_size: Array, group_stride: Array, gpus_per_node: Array) -> Array:
    """Whether some groups of a kind lie on other numbers of nodes, or in other shares, than others.

    They lie alike if their members are on a node each, or if each node's members fill it in strides
    and groups and nodes fill one another.
    """
    span = group_size * group_stride
    ragged = (span % gpus_per_node > 0.0) & (gpus_per_node % span > 0.0)
    straddles = (gpus_per_node % group_stride > 0.0) | ragged
    within = (group_size > 1.0) & (group_stride < gpus_per_node)
    return np.where(within & straddles, 1.0, 0.0)


@formula(
    source="derivation",
    assumes=(*FULL_NODES, "of unevenly placed groups no more than one member in a node is sure"),
)
def members_in_node(
    uneven_placement: Array, gpus_per_node: Array, group_stride: Array, group_size: Array
) -> Array:
    """Members of a group in one node."""
    even = np.minimum(np.maximum(gpus_per_node / group_stride, 1.0), group_size)
    return np.where(uneven_placement > 0.0, 1.0, even)


@formula(source="derivation", assumes=FULL_NODES)
def group_nodes(
    uneven_placement: Array, gpus_per_node: Array, group_stride: Array, group_size: Array
) -> Array:
    """Nodes that a group spans; of unevenly placed groups, the one that spans most.

    Blocks of size times stride ranks start at multiples of the common divisor of that and of a
    node, groups at any of a stride's ranks after; the latest start in a node reaches furthest.
    """
    uneven = uneven_placement > 0.0
    # Elsewhere it isn't needed, and the divisor of ones is found at once.
    period = greatest_common_divisor(
        np.where(uneven, group_size * group_stride, 1.0), np.where(uneven, gpus_per_node, 1.0)
    )
    start = gpus_per_node - 1.0 - period + np.minimum(group_stride, period)
    most = 1.0 + np.floor((start + (group_size - 1.0) * group_stride) / gpus_per_node)
    even = np.minimum(np.maximum(gpus_per_node / group_stride, 1.0), group_size)
    return np.where(uneven, most, group_size / even)


# A pipeline's boundaries.


@formula(source="derivation", assumes=FULL_NODES)
def boundary_in_node(stage: Array, tp: Array, cp: Array, dp: Array, gpus_per_node: Array) -> Array:
    """Whether a stage and the next one lie in one node (`stage` from 0 to pp - 2)."""
    first = stage * tp * cp * dp
    end = (stage + 2.0) * tp * cp * dp
    return np.where(
        np.floor(first / gpus_per_node) == np.floor((end - 1.0) / gpus_per_node), 1.0, 0.0
    )


@formula(
    source="derivation",
    assumes=(*FULL_NODES, "where stages straddle nodes, each end of a node parts two boundaries"),
)
def node_boundaries(pp: Array, gpus_per_node: Array, tp: Array, cp: Array, dp: Array) -> Array:
    """Boundaries between stages that lie between nodes; at most, where stages straddle nodes."""
    parted = np.where(gpus_per_node % (tp * cp * dp) > 0.0, 2.0, 1.0)
    ends = np.ceil(pp * tp * cp * dp / gpus_per_node) - 1.0
    return np.minimum(pp - 1.0, parted * ends)
