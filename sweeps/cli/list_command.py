"""``sweeps list``: formulas and algorithms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click


@click.command("list")
@click.option("--topology", help="Only algorithms on this network.")
@click.option("--op", "collective", help="Only algorithms of this operation.")
@click.option("--kind", type=click.Choice(["all", "algorithms", "formulas"]), default="all")
@click.option("--markdown", is_flag=True, help="Networks by operations, as a table for documents.")
@click.option("--references", is_flag=True, help="All of overhead/REFERENCES.md.")
@click.option("--formulas", multiple=True, metavar="FILE.py", help="Own formulas.")
def command(
    topology: str | None,
    collective: str | None,
    kind: str,
    markdown: bool,
    references: bool,
    formulas: tuple[str, ...],
) -> int:
    """List the algorithms (network, operation, name) and the formulas that they share."""
    from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
    from overhead.everything import load
    from overhead.formula import REGISTRY
    from overhead.labels import COLLECTIVES
    from sweeps.errors import InputError, fault, nearest
    from sweeps.own_formulas import load_formulas

    load()
    for path in formulas:
        load_formulas(Path(path))
    if references or markdown:
        from overhead import everything

        make = everything.references if references else everything.algorithm_table
        sys.stdout.write(make(others=True))
        return 0
    faults = []
    for flag, value, known in (
        ("--topology", topology, NETWORKS),
        ("--op", collective, COLLECTIVES),
    ):
        if value is not None and value not in known:
            faults.append(fault(flag, value, "unknown", nearest(value, known)))
    if faults:
        raise InputError(faults)
    if kind != "formulas":
        rows = [("network", "operation", "algorithm", "summary")]
        rows += [
            (*algorithm.key, algorithm.title)
            for algorithm in ALGORITHMS.values()
            if topology in (None, algorithm.topology) and collective in (None, algorithm.collective)
        ]
        _write(rows)
    if kind != "algorithms" and topology is None and collective is None:
        rows = [("formula", "gives", "units", "summary")]
        rows += [(one.name, one.returns, one.result.units, one.title) for one in REGISTRY.values()]
        _write(rows)
    return 0


def _write(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
