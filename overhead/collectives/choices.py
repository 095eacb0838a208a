"""Which algorithm stands for a collective where none is named.

``standard`` is the one that the field means by a network and an operation.  ``nccl`` is the fastest
of those that NCCL has on such a machine; on networks for which NCCL has nothing of its own, the
standard one.  An all_to_all over three levels it doesn't have: that cell is a hole.
``auto`` is the fastest of all that are defined there; ``all`` is each of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.labels import ALL, AUTO, CHOICES, COLLECTIVES, NCCL, NO_LIBRARY, STANDARD

# Forms of what a library takes by itself: reduction by switches between nodes has to be asked for.
TAKEN = ("ring", "nvls", "tree", "nvls_tree", "pairs", "message")


def candidates(
    topology: str, collective: str, choice: str, library: str = NO_LIBRARY
) -> tuple[Algorithm, ...]:
    """Return the algorithms among which a choice takes the fastest that is defined.

    With a library's profile NCCL's are those that have a form of their own in it.
    """
    for word, known in ((topology, NETWORKS), (collective, COLLECTIVES)):
        if word not in known:
            message = f"'{word}' is unknown; known: {', '.join(known)}"
            raise ValueError(message)
    network = NETWORKS[topology]
    standard: tuple[str, ...] = (network.standard.get(collective, ""),)
    if choice == STANDARD:
        names = standard
    elif choice == NCCL:
        own = [one for one in ALGORITHMS.of(topology, collective) if one.form in TAKEN]
        if library != NO_LIBRARY and own:
            return tuple(own)
        names = network.nccl.get(collective, standard)
    elif choice in (AUTO, ALL):
        return ALGORITHMS.of(topology, collective)
    elif choice in ALGORITHMS.names():
        names = (choice,)
    else:
        near = difflib.get_close_matches(choice, (*CHOICES, ALL, *ALGORITHMS.names()), n=2)
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
    library = labels.get("library", NO_LIBRARY)
    found = candidates(topology, collective, labels["algorithm"], library)
    return found or candidates(topology, collective, STANDARD)
