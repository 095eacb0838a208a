"""``sweeps show``: one formula or algorithm, whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click


@click.command("show")
@click.argument("name")
@click.option("--latex", "as_latex", is_flag=True, help="The statement as LaTeX too.")
@click.option("--formulas", multiple=True, metavar="FILE.py", help="Own formulas.")
def command(name: str, as_latex: bool, formulas: tuple[str, ...]) -> int:
    """Show a formula, or an algorithm as NETWORK.OPERATION.ALGORITHM (or a part of that)."""
    from overhead.collectives.algorithm import ALGORITHMS
    from overhead.everything import load
    from overhead.formula import REGISTRY
    from sweeps.errors import InputError, fault, nearest
    from sweeps.own_formulas import load_formulas

    load()
    for path in formulas:
        load_formulas(Path(path))
    keys = {".".join(key): key for key in ALGORITHMS}
    parts = set(name.split("."))
    found = [key for text, key in keys.items() if text == name or parts <= set(key)]
    if name in REGISTRY:
        sys.stdout.writelines(line + "\n" for line in _formula(name, as_latex))
    elif not found:
        known = (*REGISTRY, *keys, *ALGORITHMS.names())
        raise InputError(fault("NAME", name, "no such formula", nearest(name, known)))
    for key in found:
        sys.stdout.writelines(line + "\n" for line in _algorithm(key, as_latex))
    return 0


def _formula(name: str, as_latex: bool) -> Iterator[str]:
    from overhead.formula import REGISTRY

    one = REGISTRY[name]
    yield f"{name}  {one.title}"
    yield f"  {one.statement}  [{one.result.units}]"
    if as_latex:
        yield f"  {one.latex}"
    yield from _quantities(one.inputs)
    for label, value in one.when.items():
        yield f"  where   {label} = {value.replace('|', ' or ')}"
    for phrase in one.assumes:
        yield f"  assumes {phrase}"
    yield f"  source  {one.reference}"


def _algorithm(key: tuple[str, str, str], as_latex: bool) -> Iterator[str]:
    from overhead.collectives.algorithm import ALGORITHMS
    from overhead.expression import names

    one = ALGORITHMS[key]
    yield f"{'.'.join(key)}  {one.title}"
    for quantity, expression in one.statements.items():
        yield f"  {quantity} = {expression}"
    if as_latex:
        yield f"  {one.latex}"
    used = dict.fromkeys(n for text in one.statements.values() for n in names(text))
    yield from _quantities(tuple(used))
    for requirement in one.requires:
        yield f"  needs   {requirement.text}"
    for phrase in one.assumes:
        yield f"  assumes {phrase}"
    if one.bound:
        yield f"  {one.bound}"
    yield f"  source  {one.reference}"


def _quantities(used: tuple[str, ...]) -> Iterator[str]:
    from overhead.quantity import VOCABULARY

    width = max(map(len, used), default=0)
    for name in used:
        quantity = VOCABULARY[name]
        yield f"    {name.ljust(width)}  {quantity.units:<9} {quantity.meaning}"
