"""Propose laws of formulas: ``python -m tests.maintenance.propose_laws FORMULA ..``.

Prints a row of ``overhead/laws/`` for each, of what holds at many points: for a person to read, to
give free inputs their reasons, and to paste.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from overhead import VOCABULARY, Formula
from overhead.everything import load
from overhead.formula import REGISTRY
from overhead.law import BESIDE, Law, power_of
from tests.laws import (
    BYTES,
    INPUTS,
    Moves,
    breaks_line,
    breaks_order,
    breaks_power,
    breaks_zero,
    outside_at_lowest,
    signs,
)


def proposed(formula: Formula, seeds: int = 16) -> Law:
    """Return the laws that hold at many points; inputs without a direction have no reason yet."""
    rng = np.random.default_rng(1)
    every = []
    for k in range(seeds):
        few = np.frombuffer(rng.bytes(BYTES * (8 if k < 4 else 1)), dtype="<u2")
        every.append(Moves(formula, few.reshape(INPUTS, -1).tobytes()))
    moving, edges, free = dict[str, str](), dict[str, float](), dict[str, str]()
    beside: dict[str, list[str]] = {kind: [] for kind in BESIDE}
    for name in formula.inputs:
        quantity = VOCABULARY[name]
        kind, edge = kind_of(every, name, None), quantity.minimum
        if kind == "free" and edge in (0.0, 1.0) and not quantity.flag:
            kind = kind_of(every, name, edge)
            edges |= {name: edge} if kind != "free" else {}
        if kind == "free":
            free[name] = ""
        else:
            moving[name] = kind
        plain = power_of(kind) is None and kind != "flat"
        if plain and quantity.minimum == 0.0 and not outside_at_lowest(quantity):
            beside["zero"] += [name] * (not any(breaks_zero(moves, name) for moves in every))
        if quantity.units == formula.result.units != "1":
            for order in ("least", "most"):
                holds = not any(breaks_order(moves, name, order) for moves in every)
                beside[order] += [name] * holds
    return Law(moving, {k: tuple(v) for k, v in beside.items() if v}, free, above=edges)


def kind_of(every: list[Moves], name: str, above: float | None) -> str:
    """Return how a formula moves with an input, above a value or everywhere."""
    both = [signs(moves, name, above) for moves in every]
    rises, falls = any(r for r, _ in both), any(f for _, f in both)
    if not (rises or falls):
        return "flat"
    if not VOCABULARY[name].flag:
        for power in (1.0, -1.0, 2.0, 0.5, -0.5, -2.0, 3.0, 1.5):
            if not any(breaks_power(moves, name, power, above) for moves in every):
                return {1.0: "proportional", -1.0: "inverse"}.get(power, f"power {power:g}")
    if rises and falls:
        return "free"
    way = "up" if rises else "down"
    if VOCABULARY[name].flag or any(breaks_line(moves, name, above) for moves in every):
        return way
    return "linear" if rises else "linear down"


def cells(law: Law) -> tuple[str, str]:
    """Return laws as a row's cells."""
    kinds: dict[str, list[Any]] = {}
    for name, kind in law.moving.items():
        edge = f" above {law.above[name]:g}" if name in law.above else ""
        kinds.setdefault(kind + edge, []).append(name)
    kinds |= {kind: list(names) for kind, names in law.beside.items()}
    texts = [f"{kind}: {' '.join(names)}" for kind, names in kinds.items()]
    return "; ".join(texts), "; ".join(f"{name}: {why}" for name, why in law.free.items())


if __name__ == "__main__":
    load()
    for wanted in sys.argv[1:]:
        print(wanted, *(f'"{cell}"' for cell in cells(proposed(REGISTRY[wanted]))), "", sep=",")
