"""Which algorithm stands for a collective where none is named.

``standard`` is the one that the field means by a network and an operation.  ``nccl`` is the fastest
of those that NCCL has on such a machine; on networks for which NCCL has nothing of its own, the
standard one.  An all_to_all over three levels it doesn't have: that cell is a hole.
``auto`` is the fastest of all that are defined there; ``all`` is each of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from overhead.collectives.algorithm import ALGORITHMS, TOPOLOGIES, Algorithm
from overhead.labels import COLLECTIVES

CHOICES = ("standard", "nccl", "auto", "all")
HALVES = ("all_gather", "reduce_scatter")
REDUCING = ("all_reduce", *HALVES)
ROOTED = ("broadcast", "reduce")

STANDARD: dict[tuple[str, str], str] = {
    **{(topology, "p2p"): "direct" for topology in TOPOLOGIES},
    **{
        (topology, collective): "ring"
        for topology in ("ring", "torus", "switch")
        for collective in REDUCING
    },
    **{("mesh", collective): "line" for collective in REDUCING},
    **{("hierarchical", collective): "ring_ring" for collective in REDUCING},
    **{("tree", collective): "ring" for collective in HALVES},
    ("tree", "all_reduce"): "dbt",
    **{("binary_tree", collective): "flood" for collective in HALVES},
    ("binary_tree", "all_reduce"): "tree_pipe",
    **{
        (topology, collective): "chain"
        for topology in ("ring", "tree", "hierarchical", "switch")
        for collective in ROOTED
    },
    **{
        (topology, collective): "tree_pipe"
        for topology in ("mesh", "torus", "binary_tree")
        for collective in ROOTED
    },
    ("ring", "all_to_all"): "shift_bidir",
    ("torus", "all_to_all"): "shift_bidir",
    ("mesh", "all_to_all"): "shift_line",
    ("tree", "all_to_all"): "pairwise",
    ("switch", "all_to_all"): "pairwise",
    ("hierarchical", "all_to_all"): "two_phase",
    ("binary_tree", "all_to_all"): "direct",
}

# NCCL knows a ring, a switch and nodes of GPUs.  (Its logarithmic all_gather and reduce_scatter
# work with one GPU a node only, and are left out.)
NCCL: dict[tuple[str, str], tuple[str, ...]] = {
    **{key: (name,) for key, name in STANDARD.items()},
    ("ring", "all_to_all"): ("shift_min",),
    ("switch", "all_reduce"): ("ring", "dbt", "nvls", "inc"),
    **{("switch", collective): ("ring", "nvls") for collective in HALVES},
    **{("hierarchical", collective): ("flat_ring_channels",) for collective in REDUCING},
    ("hierarchical", "all_to_all"): ("flat_pairwise",),
}


def candidates(topology: str, collective: str, choice: str) -> tuple[Algorithm, ...]:
    """Return the algorithms among which a choice takes the fastest that is defined."""
    for word, known in ((topology, TOPOLOGIES), (collective, COLLECTIVES)):
        if word not in known:
            message = f"'{word}' is unknown; known: {', '.join(known)}"
            raise ValueError(message)
    if choice == "standard":
        names: tuple[str, ...] = (STANDARD[topology, collective],)
    elif choice == "nccl":
        names = NCCL[topology, collective]
    elif choice in ("auto", "all"):
        return ALGORITHMS.of(topology, collective)
    elif choice in ALGORITHMS.names():
        names = (choice,)
    else:
        near = difflib.get_close_matches(choice, (*CHOICES, *ALGORITHMS.names()), n=2)
        offer = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        message = f"no algorithm is called '{choice}'{offer}"
        raise ValueError(message)
    keys = ((topology, collective, name) for name in names)
    return tuple(ALGORITHMS[key] for key in keys if key in ALGORITHMS)


def usable(labels: Mapping[str, str]) -> tuple[Algorithm, ...]:
    """Return the algorithms of a collective inside of a model: a network has one for each.

    A name that the collective doesn't have there stands for the standard algorithm: it was meant
    for another of the model's collectives.
    """
    topology, collective = labels["topology"], labels["collective"]
    found = candidates(topology, collective, labels["algorithm"])
    return found or candidates(topology, collective, "standard")
