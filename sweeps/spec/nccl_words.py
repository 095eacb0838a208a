"""NCCL's names of algorithms and protocols, and what they are here.

Names are those of NVIDIA/nccl, src/collectives.cc; that PAT is of all_gather and reduce_scatter is
its src/graph/tuning.cc.
"""

from __future__ import annotations

from collections.abc import Mapping

PAT = "pat"
ALGORITHMS = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", PAT)
PROTOCOLS = ("ll", "ll128", "simple")
# What stood for several names in former versions.
FORMER: Mapping[str, tuple[str, ...]] = {"collnet": ("collnetdirect", "collnetchain")}
# The operations that PAT is of.
OF_PAT = ("all_gather", "reduce_scatter")
NO_TIMES = "no times of it are published to fit them to"
# What another name is here, on the networks that NCCL runs on.
_HERE = {
    "tree": "tree_path",
    "nvlstree": "nvls_tree",
    "collnetdirect": "nvls_sharp",
    "collnetchain": "nvls_sharp",
    "collnet": "nvls_sharp",
}


def refused_algorithm(word: str) -> tuple[str, str] | None:
    """Return why one of NCCL's words is no algorithm here, and what to give; None of others."""
    text = word.lower()
    if text.startswith("^"):
        return "all but it, in NCCL_ALGO", "name those that may run, such as ring_path,tree_path"
    if text == PAT:
        return f"NCCL's PAT isn't modelled: {NO_TIMES}", "leave it out, or ring_path"
    if text in _HERE:
        return "is NCCL's name of it", f"'{_HERE[text]}'"
    return None


def refused_protocol(text: str) -> tuple[str, str]:
    """Return why a protocol can't be stated, and what to do."""
    if text.lower() == "ll128":
        return f"LL128 isn't modelled: {NO_TIMES}", "leave it out: LL or Simple is taken"
    return (
        "is computed: the faster of LL and Simple",
        "leave it out; --show formulas has the times of both",
    )
