"""Networks: their shape from what a user gives, and the measures that lower bounds need."""

from __future__ import annotations

from functools import reduce

from overhead.arrays import xp
from overhead.formula import alias, constant, declare, derived, product
from overhead.quantity import Array

HIERARCHY = {"topology": "hierarchical"}
MESH = {"topology": "mesh"}
TORUS = {"topology": "torus"}


def factors(ranks: int, dimensions: int) -> tuple[int, ...]:
    """Split a number of ranks into sizes as near to each other as they get."""
    if dimensions == 1:
        return (ranks,)
    best: tuple[int, ...] = (ranks,) + (1,) * (dimensions - 1)
    for first in range(1, int(ranks ** (1.0 / dimensions) + 1e-9) + 1):
        if ranks % first == 0:
            sizes = tuple(sorted((first, *factors(ranks // first, dimensions - 1)), reverse=True))
            if max(sizes) < max(best) or (max(sizes) == max(best) and sum(sizes) < sum(best)):
                best = sizes
    return best


@derived(assumes=("ranks fill one node after another",), when=HIERARCHY)
def node_ranks(gpus_per_node, ranks):
    """Ranks of the group in one node."""
    return xp.minimum(gpus_per_node, ranks)


alias(
    "node_ranks",
    "ranks",
    "Ranks in one node, of a message that is said to stay inside it: all",
    assumes=("both ranks of a message share a node",),
    when={**HIERARCHY, "collective": "p2p", "link": "intra"},
)


@derived(when={**HIERARCHY, "shape": "two_levels"})
def nodes(ranks, node_ranks):
    """Nodes of the group."""
    return ranks / node_ranks


@derived(returns="nodes", when={**HIERARCHY, "shape": "three_levels"})
def pod_nodes(ranks, node_ranks, nodes_per_pod):
    """Nodes of the group in one pod."""
    return xp.minimum(nodes_per_pod, ranks / node_ranks)


@derived(when=HIERARCHY)
def pods(ranks, node_ranks, nodes):
    """Pods of the group."""
    return xp.asarray(ranks / (node_ranks * nodes))


# Leaf switches.  What stays under one pays no oversubscription; what leaves it shares its uplinks.

UPLINKS = "a leaf's uplinks are those of its nodes by the oversubscription, shared evenly"
FILLED = "a group's nodes fill one leaf after another"
LEAVES_ONCE = "a ring or a tree leaves a leaf once, whatever it has of the group"


def ring_oversubscription(group_nodes: Array, leaf_members: Array, ratio: Array) -> Array:
    """Return what a ring meets: of a leaf's members one sends out of it."""
    met = xp.maximum(ratio / leaf_members, 1.0)
    return xp.where(group_nodes > leaf_members, met, 1.0)


def exchange_oversubscription(group_nodes: Array, leaf_members: Array, ratio: Array) -> Array:
    """Return what an all_to_all meets: of what a node sends, a share leaves."""
    share = (group_nodes - leaf_members) / xp.maximum(group_nodes - 1.0, 1.0)
    met = xp.maximum(ratio * share, 1.0)
    return xp.where(group_nodes > leaf_members, met, 1.0)


@derived(assumes=(UPLINKS, FILLED, LEAVES_ONCE), when=HIERARCHY)
def uplink_oversubscription(nodes, pods, leaf_nodes, oversubscription):
    """Oversubscription that a collective on neighbouring nodes meets."""
    return ring_oversubscription(nodes * pods, leaf_nodes, oversubscription)


@derived(
    returns="uplink_oversubscription",
    assumes=(UPLINKS, FILLED),
    when={**HIERARCHY, "collective": "all_to_all"},
)
def all_to_all_oversubscription(nodes, pods, leaf_nodes, oversubscription):
    """Oversubscription that an all_to_all on neighbouring nodes meets."""
    return exchange_oversubscription(nodes * pods, leaf_nodes, oversubscription)


@derived(assumes=("the node's other ranks use their network cards at the same time",))
def ranks_per_nic(gpus_per_node, nics_per_node):
    """Ranks of a node that share a network card."""
    return gpus_per_node / nics_per_node


# Measures of a network: the distance, the ports and the links that no schedule can do without.


@derived(returns="diameter", when={"topology": "ring"})
def ring_diameter(ranks):
    """Distance half round a ring."""
    return xp.floor(ranks / 2.0)


@derived(returns="diameter", when={"topology": "switch|tree"})
def switch_diameter(ranks):
    """Distance through a switch."""
    return xp.where(ranks > 1.0, 1.0, 0.0)


@derived(returns="diameter", when=TORUS)
def torus_diameter(mesh_nx, mesh_ny, mesh_nz):
    """Distance half round a torus in every dimension."""
    return xp.floor(mesh_nx / 2.0) + xp.floor(mesh_ny / 2.0) + xp.floor(mesh_nz / 2.0)


@derived(returns="diameter", assumes=("a broadcast starts in a corner",), when=MESH)
def mesh_diameter(mesh_nx, mesh_ny, mesh_nz):
    """Distance from corner to corner of a mesh."""
    return mesh_nx + mesh_ny + mesh_nz - 3.0


@derived(
    returns="diameter",
    assumes=("rank i hangs below rank (i - 1)/2",),
    when={
        "topology": "binary_tree",
        "collective": "all_reduce|all_gather|reduce_scatter|all_to_all",
    },
)
def binary_tree_diameter(ranks):
    """Distance between the deepest leaves left and right of the root."""
    right = xp.floor(xp.log2(2.0 * ranks / 3.0))
    return xp.floor(xp.log2(ranks)) + xp.maximum(right, 0.0)


@derived(
    returns="diameter",
    assumes=("the root of the broadcast is the root of the tree",),
    when={"topology": "binary_tree", "collective": "broadcast|reduce|p2p"},
)
def binary_tree_depth(ranks):
    """Distance from the root to the deepest leaf."""
    return xp.floor(xp.log2(ranks))


@derived(returns="ports", when={"topology": "ring"})
def ring_ports(ranks):
    """Links out of a rank of a ring."""
    return xp.where(ranks > 2.0, 2.0, 1.0)


constant("ports", 1.0, when={"topology": "switch|tree|binary_tree"})


@derived(returns="ports", when=TORUS)
def torus_ports(mesh_nx, mesh_ny, mesh_nz):
    """Links out of a rank of a torus; a dimension of two ranks has one cable."""
    ports = sum(xp.minimum(size - 1.0, 2.0) for size in (mesh_nx, mesh_ny, mesh_nz))
    return xp.maximum(ports, 1.0)


@derived(returns="ports", when=MESH)
def mesh_ports(mesh_nx, mesh_ny, mesh_nz):
    """Links out of a corner of a mesh."""
    ports = sum(xp.minimum(size - 1.0, 1.0) for size in (mesh_nx, mesh_ny, mesh_nz))
    return xp.maximum(ports, 1.0)


@derived(returns="links", when={"topology": "ring|switch|tree|torus"})
def regular_links(ranks, ports):
    """Links of a network whose ranks have equally many (on a switch: the ports)."""
    return xp.asarray(xp.maximum(ranks * ports, 1.0))


@derived(returns="links", when={"topology": "binary_tree"})
def tree_links(ranks):
    """Links of a tree, up and down."""
    return xp.maximum(2.0 * (ranks - 1.0), 1.0)


@derived(returns="links", when=MESH)
def mesh_links(mesh_nx, mesh_ny, mesh_nz):
    """Links of a mesh, both directions."""
    faces = mesh_ny * mesh_nz + mesh_nx * mesh_nz + mesh_nx * mesh_ny
    return xp.asarray(xp.maximum(2.0 * (3.0 * mesh_nx * mesh_ny * mesh_nz - faces), 1.0))


def _half(size):
    return xp.floor(size / 2.0) * xp.ceil(size / 2.0) / size


@derived(returns="pair_cut", when={"topology": "ring"})
def ring_pair_cut(ranks, ports):
    """Load of a ring's links, cut into halves."""
    return _half(ranks) / ports


@derived(returns="pair_cut", when={"topology": "switch|tree"})
def switch_pair_cut(ranks):
    """Load of a switch's port."""
    return (ranks - 1.0) / ranks


@derived(returns="pair_cut", when=TORUS)
def torus_pair_cut(mesh_nx, mesh_ny, mesh_nz):
    """Load of a torus' links, cut into halves across its worst dimension."""
    loads = [_half(n) / xp.where(n > 2.0, 2.0, 1.0) for n in (mesh_nx, mesh_ny, mesh_nz)]
    return xp.asarray(reduce(xp.maximum, loads))


@derived(returns="pair_cut", when=MESH)
def mesh_pair_cut(mesh_nx, mesh_ny, mesh_nz):
    """Load of a mesh's links, cut into halves across its worst dimension."""
    return xp.maximum(xp.maximum(_half(mesh_nx), _half(mesh_ny)), _half(mesh_nz))


def left_subtree(ranks: Array) -> Array:
    """Return the size of the larger subtree below the root of the binary tree of ranks."""
    depth = xp.floor(xp.log2(ranks))
    below = xp.exp2(xp.maximum(depth - 1.0, 0.0))
    last = xp.minimum(ranks - xp.exp2(depth) + 1.0, below)
    return xp.where(ranks > 1.0, below - 1.0 + last, 0.0)


# Ranks in the larger subtree below the root of the binary tree.
LEFT = (
    "where(ranks > 1, 2**maximum(floor(log2(ranks)) - 1, 0) - 1 + minimum("
    "ranks - 2**floor(log2(ranks)) + 1, 2**maximum(floor(log2(ranks)) - 1, 0)), 0)"
)


@derived(returns="pair_cut", when={"topology": "binary_tree"})
def binary_tree_pair_cut(ranks):
    """Load of the link between the root and its larger subtree."""
    below = left_subtree(ranks)
    return xp.asarray(below * (ranks - below) / ranks)


# Shapes that are given in part: sizes of a mesh from its ranks, and levels that aren't there.

GRID = {"topology": "mesh|torus"}
TWO = {"topology": "hierarchical", "shape": "two_levels"}


product("ranks", ("mesh_nx", "mesh_ny", "mesh_nz"), "Ranks of a mesh or torus",
        when=GRID, name="grid_ranks")  # fmt: skip


@derived(returns="mesh_ny", when=GRID)
def grid_ny(ranks, mesh_nx, mesh_nz):
    """Ranks along y, from the others."""
    return ranks / (mesh_nx * mesh_nz)


# Kernels of hierarchies take three levels.  Where there are two, the third is like the second;
# nothing passes it.

alias("pod_latency", "inter_latency", when=TWO)
alias("pod_bandwidth", "inter_bandwidth", when=TWO)
alias("pod_oversubscription", "uplink_oversubscription", when=TWO)


# What a flat network takes from a machine: its link, and what its switch can do.


def _within(ranks, gpus_per_node, intra, inter):
    return xp.where(ranks <= gpus_per_node, intra, inter)


for _part, _words in (
    ("latency", "Latency of"), ("bandwidth", "Bandwidth of"),
    ("energy_per_bit", "Energy of one bit over"),
):  # fmt: skip
    declare(
        _part, ("ranks", "gpus_per_node", f"intra_{_part}", f"inter_{_part}"), _within,
        f"{_words} a flat network's link", when={"link": "auto"}, name=f"flat_{_part}",
        assumes=("a flat network lies in a node while its ranks fit into one",),
    )  # fmt: skip


for _level in ("intra", "inter"):
    for _part in ("latency", "bandwidth", "energy_per_bit"):
        alias(_part, f"{_level}_{_part}", when={"link": _level})
    alias("has_inc", f"{_level}_inc", when={"link": _level})


@derived(
    returns="in_network_latency",
    assumes=("the factor is that of the switch inside a node",),
    when={"link": "auto"},
)
def flat_in_network_latency(latency, ranks, gpus_per_node, in_network_latency_factor):
    """Latency of a message that the switch reduces or multicasts."""
    return latency * xp.where(ranks <= gpus_per_node, in_network_latency_factor, 1.0)


product("in_network_latency", ("latency", "in_network_latency_factor"),
        "Latency of a message that the switch inside a node reduces or multicasts",
        when={"link": "intra"}, name="intra_only_in_network_latency")  # fmt: skip


alias("in_network_latency", "latency", when={"link": "inter"})


@derived(returns="has_nvls", when={"link": "auto"})
def flat_nvls(ranks, gpus_per_node, intra_nvls):
    """Whether the switch reduces and multicasts what ranks read and write."""
    return xp.where(ranks <= gpus_per_node, intra_nvls, 0.0)


alias("has_nvls", "intra_nvls", when={"link": "intra"})
constant("has_nvls", 0.0, when={"link": "inter"})


declare("has_inc", ("ranks", "gpus_per_node", "intra_inc", "inter_inc"), _within,
        "Whether the switch reduces in the network", when={"link": "auto"},
        name="flat_inc")  # fmt: skip
