"""Groups of ranks beyond those of `overhead.plan`, and what of a machine each kind gets.

Sharded states have groups of their own: ``shard`` and ``replica``, for experts ``expert_shard`` and
``expert_replica``; with full sharding a shard is all ranks of equal weights.  Messages between two
ranks have pairs: ``boundary`` of neighbouring stages, ``ends`` of the first and the last stage,
``cp_ring`` of neighbours in a context-parallel ring, be it of ranks or of groups that exchange
heads, ``cp_inner``.  A pair stands for the slowest of its kind, and ``inner_boundary`` and
``inner_ring`` for those within a node.
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.collectives.levels import (
    FILLED,
    LEAVES_ONCE,
    UPLINKS,
    exchange_oversubscription,
    ring_oversubscription,
)
from overhead.formula import cited, declare, derived, formula
from overhead.labels import GIVEN_GRID
from overhead.special import greatest_common_divisor, square_divisor

ZERO = "rajbhandari2020"
HYBRID = "zhao2023"
BETWEEN_STAGES = {"group": "boundary|ends"}
INSIDE = {"group": "inner_boundary|inner_ring"}
RING = {"group": "cp_ring"}
PAIRS = "boundary|inner_boundary|ends"
RINGS = "cp_ring|inner_ring"


@derived(
    returns="group_ranks_sharing_nic",
    assumes=("one stage per node sends at a time, and its ranks use all NICs",),
    when=BETWEEN_STAGES,
)
def stage_ranks_per_nic(ranks_sharing_nic, tp, cp, dp, gpus_per_node):
    """Ranks per NIC with one sending stage."""
    sending = ranks_sharing_nic * xp.minimum(tp * cp * dp / gpus_per_node, 1.0)
    return xp.maximum(sending, xp.minimum(ranks_sharing_nic, 1.0))


# Rings of groups that exchange heads for tokens.

MIXED = cited(
    "megatron",
    "megatron/core/parallel_state.py, hierarchical_context_parallel_sizes: the inner ranks"
    " are neighbours",
)


@formula(**MIXED)
def ulysses_ranks(cp, cp_members_in_node):
    """Ranks that exchange heads, unless given: as many in one node as groups alike can have."""
    return greatest_common_divisor(cp, cp_members_in_node)


@formula(
    returns="group_ranks_sharing_nic",
    assumes=("a ring leaves a node once, and the rings of a node use all NICs",),
    when=RING,
    **MIXED,
)
def ring_ranks_per_nic(ranks_sharing_nic, cp_members_in_node, cp_exchange_ranks):
    """Ranks per NIC that send inter-node: all except ranks of intra-node rings."""
    inside = xp.maximum(cp_members_in_node / cp_exchange_ranks, 1.0)
    return xp.maximum(ranks_sharing_nic / inside, xp.minimum(ranks_sharing_nic, 1.0))


# Sharded states.


@formula(returns="group_size", source=ZERO, where="section 5", when={"group": "shard"})
def shard_size(shards):
    """Ranks among which the states of dense layers are cut."""
    return xp.ceil(shards)


@formula(returns="group_size", source=HYBRID, where="section 3.2.2", when={"group": "replica"})
def replica_size(dp, cp, shards):
    """Ranks that hold the same shard of dense layers."""
    return xp.ceil(dp * cp / shards)


@formula(returns="group_size", source=ZERO, where="section 5", when={"group": "expert_shard"})
def expert_shard_size(expert_shards):
    """Ranks among which the states of experts are cut."""
    return xp.ceil(expert_shards)


@formula(
    returns="group_size", source=HYBRID, where="section 3.2.2", when={"group": "expert_replica"}
)
def expert_replica_size(edp, expert_shards):
    """Ranks that hold the same shard of experts."""
    return xp.ceil(edp / expert_shards)


# Pairs.


@derived(returns="group_size", when={"group": PAIRS})
def stage_pair_size(pp):
    """Ranks of a pair in a pipeline: none to pair with where there is one stage."""
    return xp.where(pp > 1.0, 2.0, 1.0)


declare("group_size", ("ring_ranks",), stage_pair_size, when=RING)
declare("group_size", ("cp",), stage_pair_size, when={"group": "inner_ring"})


@derived(
    returns="members_in_node",
    assumes=("the slowest pair of the pipeline counts",),
    when=BETWEEN_STAGES,
)
def stage_pair_members(node_boundaries, group_size):
    """Members in one node of the slowest pair in a pipeline."""
    return xp.where(node_boundaries > 0.0, 1.0, group_size)


@derived(
    returns="members_in_node",
    assumes=("the slowest pair of the ring counts",),
    when=RING,
)
def ring_pair_members(cp_nodes, group_size):
    """Members in one node of the slowest pair in a context-parallel ring."""
    return xp.where(cp_nodes > 1.0, 1.0, group_size)


@derived(returns="group_nodes", when={"group": f"{PAIRS}|{RINGS}"})
def pair_nodes(group_size, members_in_node):
    """Nodes that a pair spans."""
    return xp.maximum(group_size / members_in_node, 1.0)


# Pods.


@derived(assumes=("pods have equal numbers of nodes of a group, or only one is certain",))
def group_pod_nodes(uneven_placement, group_nodes, nodes_per_pod, group_stride, gpus_per_node):
    """Nodes of a group in one pod."""
    apart = xp.maximum(group_stride / gpus_per_node, 1.0)
    near = xp.minimum(xp.maximum(xp.floor(nodes_per_pod / apart), 1.0), group_nodes)
    ragged = (uneven_placement > 0.0) | (group_nodes % near > 0.0)
    return xp.where(ragged, 1.0, near)


@derived(
    returns="group_pod_nodes",
    assumes=("the slowest pair of the pipeline counts",),
    when={"group": PAIRS},
)
def stage_pair_pod_nodes(tp, cp, pp, dp, gpus_per_node, nodes_per_pod):
    """Nodes in one pod of the slowest pair in a pipeline."""
    return xp.where(tp * cp * pp * dp > gpus_per_node * nodes_per_pod, 1.0, 2.0)


@derived(
    returns="group_pod_nodes",
    assumes=("the slowest pair of the ring counts",),
    when={"group": RINGS},
)
def ring_pair_pod_nodes(tp, cp, gpus_per_node, nodes_per_pod):
    """Nodes in one pod of the slowest pair in a context-parallel ring."""
    return xp.where(tp * cp > gpus_per_node * nodes_per_pod, 1.0, 2.0)


# What a group meets of leaf switches that are oversubscribed.


@derived(assumes=(FILLED,))
def leaf_members(nodes_per_leaf, group_stride, gpus_per_node, group_nodes):
    """Nodes of a group under one leaf switch: neighbours as far apart as the group places them."""
    apart = xp.maximum(group_stride / gpus_per_node, 1.0)
    return xp.minimum(xp.maximum(xp.floor(nodes_per_leaf / apart), 1.0), group_nodes)


@derived(assumes=(UPLINKS, LEAVES_ONCE))
def group_oversubscription(group_nodes, leaf_members, oversubscription):
    """Oversubscription that a group meets: of a leaf's members one sends out of it."""
    return ring_oversubscription(group_nodes, leaf_members, oversubscription)


declare(
    "group_oversubscription",
    ("group_nodes", "leaf_members", "oversubscription"),
    exchange_oversubscription,
    assumes=(UPLINKS,),
    when={"group": "ep|cp_inner"},
)


@derived(
    returns="group_oversubscription",
    assumes=(UPLINKS, "the slowest pair of the pipeline counts"),
    when={"group": PAIRS},
)
def stage_pair_oversubscription(tp, cp, dp, pp, gpus_per_node, nodes_per_leaf, oversubscription):
    """Oversubscription that stages meet: of a leaf's nodes those of its last stage send out."""
    stage = tp * cp * dp / gpus_per_node
    near = xp.maximum(xp.floor(nodes_per_leaf / xp.maximum(stage, 1.0)), 1.0)
    met = xp.maximum(oversubscription / near, 1.0)
    return xp.where(stage * pp > nodes_per_leaf, met, 1.0)


@derived(
    returns="group_oversubscription",
    assumes=(UPLINKS, "the slowest pair of the ring counts"),
    when={"group": RINGS},
)
def ring_pair_oversubscription(tp, cp, gpus_per_node, nodes_per_leaf, oversubscription):
    """Oversubscription that neighbours in a ring meet: a ring leaves a leaf once."""
    apart = xp.maximum(tp / gpus_per_node, 1.0)
    near = xp.maximum(xp.floor(nodes_per_leaf / apart), 1.0)
    met = xp.maximum(oversubscription / near, 1.0)
    return xp.where(tp * cp > gpus_per_node * nodes_per_leaf, met, 1.0)


# Numbers of groups.


PAIRED = ("boundary", "cp_ring")
ALIKE = (
    "tp",
    "cp",
    "cp_inner",
    "ep",
    "etp",
    "ends",
    "zero",
    "shard",
    "replica",
    "edp",
    "expert_shard",
    "expert_replica",
)


# Groups of ranks on a mesh or torus: each of its own size, as near to a square as can be.

# Where the sides of a mesh or torus are given, a group of as many ranks is that one.
WHOLE = "group_size == mesh_nx*mesh_ny*mesh_nz"
SQUARE = ("a group is a network of its own, of two dimensions",)


@derived(assumes=SQUARE)
def group_ny(group_size):
    """Ranks along y of the mesh or torus that a group is: the shorter side."""
    return square_divisor(group_size)


@derived(assumes=SQUARE)
def group_nx(group_size, group_ny, group_nz):
    """Mesh or torus size of a group along x: the remaining factor."""
    return xp.asarray(xp.maximum(xp.ceil(group_size / (group_ny * group_nz)), 1.0))


@derived(returns="group_ny", assumes=SQUARE, when=GIVEN_GRID)
def given_group_ny(group_size, mesh_nx, mesh_ny, mesh_nz):
    """Ranks along y of the mesh or torus that a group is: as given, of a group of that size."""
    whole = group_size == mesh_nx * mesh_ny * mesh_nz
    return xp.where(whole, mesh_ny, square_divisor(group_size))


@derived(returns="group_nz", assumes=SQUARE, when=GIVEN_GRID)
def given_group_nz(group_size, mesh_nx, mesh_ny, mesh_nz):
    """Ranks along z of the mesh or torus that a group is: as given, of a group of that size."""
    return xp.where(group_size == mesh_nx * mesh_ny * mesh_nz, mesh_nz, 1.0)
