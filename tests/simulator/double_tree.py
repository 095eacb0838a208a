"""The double binary tree: two trees, each with half of the buffer, that share the ranks' ports.

A rank that is inside one tree is a leaf of the other, so that no port has twice the work.
"""

from __future__ import annotations

from tests.simulator.model import Case, Steps
from tests.simulator.patterns import pieces, together, tree_all_reduce
from tests.simulator.ports import across


def parents(ranks: int) -> dict[int, int]:
    """Return each rank's parent in the in-order tree whose root, rank 0, has a single child.

    A rank whose lowest set bit is b sits 2^b above the leaves; where its parent's place is beyond
    the last rank, the place's own parent takes over.
    """
    tree = {}
    for rank in range(1, ranks):
        bit = rank & -rank
        parent = (rank ^ bit) | (bit << 1)
        tree[rank] = parent if parent < ranks else rank ^ bit
    return tree


def second(tree: dict[int, int], ranks: int) -> dict[int, int]:
    """Return the tree seen in a mirror (even) or moved by one (odd numbers of ranks)."""
    if ranks % 2:
        return {(rank + 1) % ranks: (up + 1) % ranks for rank, up in tree.items()}
    return {ranks - 1 - rank: ranks - 1 - up for rank, up in tree.items()}


def depth(tree: dict[int, int], rank: int) -> int:
    return 1 + depth(tree, tree[rank]) if rank in tree else 0


def one_tree(case: Case, tree: dict[int, int], half: slice) -> Steps:
    depths = {rank: depth(tree, rank) for rank in range(case.ranks)}
    paths = {rank: across(up, rank) for rank, up in tree.items()}
    return tree_all_reduce(depths, paths, pieces((), 2 * case.chunks)[half])


def double_tree(case: Case) -> Steps:
    """Both trees at once, each reducing up and broadcasting down chunk by chunk."""
    tree = parents(case.ranks)
    return together(
        one_tree(case, tree, slice(0, case.chunks)),
        one_tree(case, second(tree, case.ranks), slice(case.chunks, None)),
    )
