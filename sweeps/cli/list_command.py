"""``sweeps list``: formulas and algorithms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

__all__ = ["command"]


@click.command("list")
@click.option("--topology", help="Only algorithms on this network.")
@click.option("--op", "collective", help="Only algorithms of this operation.")
@click.option("--kind", type=click.Choice(["all", "algorithms", "formulas"]), default="all")
@click.option("--markdown", is_flag=True, help="As a table for documents.")
@click.option("--formulas", multiple=True, metavar="FILE.py", help="Own formulas.")
def command(
    topology: str | None,
    collective: str | None,
    kind: str,
    markdown: bool,
    formulas: tuple[str, ...],
) -> int:
    """List the algorithms (network, operation, name) and the formulas that they share."""
    from overhead.collectives import ALGORITHMS, COLLECTIVES, TOPOLOGIES
    from overhead.formula import REGISTRY, summary
    from sweeps.errors import InputError, fault, nearest
    from sweeps.job import load_formulas

    for path in formulas:
        load_formulas(Path(path))
    faults = []
    for flag, value, known in (
        ("--topology", topology, TOPOLOGIES),
        ("--op", collective, COLLECTIVES),
    ):
        if value is not None and value not in known:
            faults.append(fault(flag, value, "unknown", nearest(value, known)))
    if faults:
        raise InputError(faults)
    if kind != "formulas":
        rows = [("network", "operation", "algorithm", "time", "summary")]
        rows += [
            (*algorithm.key, algorithm.expression, algorithm.title)
            for algorithm in ALGORITHMS.values()
            if topology in (None, algorithm.topology) and collective in (None, algorithm.collective)
        ]
        _write(rows, markdown, hidden=() if markdown else (3,))
    if kind != "algorithms" and topology is None and collective is None:
        rows = [("formula", "gives", "units", "expression", "summary")]
        rows += [
            (one.name, one.returns, one.result.units, one.expression, summary(one.kernel))
            for one in REGISTRY.values()
        ]
        _write(rows, markdown, hidden=() if markdown else (3,))
    return 0


def _write(rows: Sequence[tuple[str, ...]], markdown: bool, hidden: tuple[int, ...]) -> None:
    if markdown:
        head, *rest = rows
        sys.stdout.write("| " + " | ".join(head) + " |\n|" + " --- |" * len(head) + "\n")
        for row in rest:
            cells = (f"`{text}`" if i == 3 else text for i, text in enumerate(row))
            sys.stdout.write("| " + " | ".join(cells).replace(" & ", " &amp; ") + " |\n")
        return
    shown = [[text for i, text in enumerate(row) if i not in hidden] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    for row in shown:
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
