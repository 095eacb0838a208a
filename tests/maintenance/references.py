"""The bibliography and the table of algorithms, as Markdown, from the declarations."""

from __future__ import annotations

from itertools import groupby

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.everything import algorithms, formulas
from overhead.source import SOURCES


def references() -> str:
    """Return the publications that formulas and algorithms come from, as a document."""
    cited = {algorithm.source.key for algorithm in algorithms()}
    cited |= {formula.source.key for formula in formulas()}
    lines = [
        "# Sources",
        "",
        "The publications that formulas and algorithms cite, generated from the declarations.",
        "The formulas are in the site that `sweeps docs FOLDER` writes; `sweeps show NAME` prints",
        "one.",
        "",
    ]
    lines += [
        f"- `{key}`: {source.at()}" for key, source in sorted(SOURCES.items()) if key in cited
    ]
    return "\n".join(lines) + "\n"


def algorithm_table() -> str:
    """Return which algorithms each operation has on each network, as a Markdown table."""
    topologies = list(NETWORKS)
    lines = ["| operation | " + " | ".join(topologies) + " |"]
    lines.append("| --- |" + " --- |" * len(topologies))
    keys = sorted((algorithm.key for algorithm in algorithms()), key=lambda key: key[1])
    for collective, group in groupby(keys, key=lambda key: key[1]):
        actual_group = list(group)
        named = [(k[0], k[2] + r"\*" * bool(ALGORITHMS[k].bound)) for k in actual_group]
        cells = [", ".join(name for of, name in named if of == t) or "-" for t in topologies]
        lines.append(f"| {collective} | " + " | ".join(cells) + " |")
    lines += [
        "",
        r"\* An upper bound of the time at some sizes, marked there; all others are exact.",
    ]
    return "\n".join(lines) + "\n"
