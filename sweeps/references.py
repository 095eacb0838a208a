"""The tables of all formulas, algorithms and their sources, as Markdown, from the declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.everything import algorithms, formulas
from overhead.formula import Formula
from overhead.source import SOURCES
from overhead.statements import statements


def references(*, others: bool = False) -> str:
    """Return the whole document: algorithms, formulas, sources."""
    lines = [
        "# Formulas and their sources",
        "",
        "Generated from the declarations by `sweeps list --references`; a test compares.",
        "Symbols: the names are the vocabulary's (`sweeps show NAME` tells units and meaning).",
        "",
        "## Algorithms",
        "",
    ]
    for topology in NETWORKS:
        of = [a for a in algorithms(others=others) if a.topology == topology]
        lines += [f"### {topology}", "", *_algorithms(of), ""]
    every = formulas(others=others)
    cited = {one.source.key for one in algorithms(others=others)}
    cited |= {one.source.key for one in every}
    lines += ["## Formulas", "", *_formulas(every), "", "## Sources", ""]
    lines += [
        f"- `{key}`: {source.at()}" for key, source in sorted(SOURCES.items()) if key in cited
    ]
    return "\n".join(lines) + "\n"


def _algorithms(algorithms: Sequence[Algorithm]) -> Iterator[str]:
    yield (
        "| operation | algorithm | steps | time | most bytes a rank sends | bytes over links "
        "| source |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for one in algorithms:
        stated = [f"`{text}`" for text in statements(one).values()]
        stated[1] += f" ({one.bound})" * bool(one.bound)
        place = f"{one.source.key}{', ' + one.where if one.where else ''}"
        cells = [one.collective, one.name, *stated, place]
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _formulas(formulas: Sequence[Formula]) -> Iterator[str]:
    yield "| gives | where | expression | unit | what it is | source |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in sorted(formulas, key=lambda f: f.returns):
        when = ", ".join(f"{k} = {v.replace('|', ' or ')}" for k, v in one.when.items())
        place = f"{one.source.key}{', ' + one.where if one.where else ''}"
        cells = [one.returns, when or "always", f"`{one.expression}`", one.result.units]
        cells += [one.title, place]
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def algorithm_table(*, others: bool = False) -> str:
    """Return which algorithms each operation has on each network, as a Markdown table."""
    topologies = list(NETWORKS)
    lines = ["| operation | " + " | ".join(topologies) + " |"]
    lines.append("| --- |" + " --- |" * len(topologies))
    keys = sorted((one.key for one in algorithms(others=others)), key=lambda key: key[1])
    for collective, group in groupby(keys, key=lambda key: key[1]):
        found = list(group)
        named = [(k[0], k[2] + r"\*" * bool(ALGORITHMS[k].bound)) for k in found]
        cells = [", ".join(name for of, name in named if of == t) or "-" for t in topologies]
        lines.append(f"| {collective} | " + " | ".join(cells) + " |")
    lines += [
        "",
        r"\* An upper bound of the time at some sizes, marked there; all others are exact.",
    ]
    return "\n".join(lines) + "\n"
