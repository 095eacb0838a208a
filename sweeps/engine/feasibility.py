"""Why a parallel plan can't be, or can't run: the conditions on it, as flags of its cells."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from overhead.collectives.algorithm import Requirement
from overhead.formula import REGISTRY
from overhead.graph import Builder, Missing, Node
from overhead.overlap import mechanisms
from overhead.plan import (
    CONTEXT,
    FRAMEWORK,
    PLAN,
    SCHEDULE,
    requirements,
)
from sweeps.engine.validity import NOT_KNOWN, NOT_OF_NETWORK, Faults, given_below, noted, unknowns

DOES_NOT_FIT = "does_not_fit"
STEP = "step_time"
FITS = Requirement(
    DOES_NOT_FIT,
    "the fullest GPU must hold its part: peak_memory up to memory_capacity",
    lambda peak_memory, memory_capacity: ~np.asarray(peak_memory > memory_capacity),
)


def training_faults() -> Faults:
    """Return what can be wrong with a parallel plan."""
    every = (
        PLAN,
        *CONTEXT.values(),
        *SCHEDULE.values(),
        *FRAMEWORK.values(),
        (FITS,),
    )
    texts: dict[str, str] = {}
    for group in every:
        for one in group:
            known = texts.setdefault(one.fault, one.text)
            if one.text not in known:
                texts[one.fault] = f"{known}; or {one.text}"
    texts[NOT_KNOWN] = "the machine's file lacks a figure that a quantity needs, such as an energy"
    texts[NOT_OF_NETWORK] = "some quantities are of some plans or networks alone"
    return Faults(texts, _concerns)


def _concerns(fault: str, variable: str) -> bool:
    if fault == DOES_NOT_FIT:
        return variable in of_a_run(len(REGISTRY), len(REGISTRY.calls))
    return fault not in (NOT_KNOWN, NOT_OF_NETWORK)


@cache
def of_a_run(formulas: int, calls: int) -> frozenset[str]:
    """Return what only a step that runs has: its time, and all that follows from it.

    Memory and communication are told of plans that don't fit, too.  The registry grows, but for
    users' formulas that are refused: `formulas` and `calls` are its size.
    """
    takers: dict[str, set[str]] = {}
    for formula in REGISTRY.values():
        for name in formula.inputs:
            takers.setdefault(name, set()).add(formula.returns)
    for call in REGISTRY.calls:
        for name in (call.of, *call.bind.values()):
            takers.setdefault(name, set()).add(call.returns)
    found, new = {STEP}, [STEP]
    while new:
        more = takers.get(new.pop(), set()) - found
        found |= more
        new += more
    return frozenset(found)


def feasibility(builder: Builder, faults: Mapping[str, int], nodes: Mapping[str, Node]) -> Node:
    """Return the node of the reasons why plans can't be, or can't run, as bits."""
    flat = builder.labels["topology"] != "hierarchical"
    each: list[Node] = []
    for one in (*requirements(builder.labels), FITS):
        if flat and one.fault == "nodes_not_filled":
            continue  # a flat network has no nodes
        try:
            each.append(builder.faults((one,), faults))
        except Missing:
            continue
    each += [noted(builder, one) for one in unknowns(nodes.values(), faults[NOT_KNOWN])]
    # Small ones first, so that few nodes are as large as all axes together.
    each.sort(key=lambda node: builder.space.size(node.dims))
    return builder.either(each) if each else builder.everywhere(0)


def overlap_faults() -> Faults:
    """Return what can be wrong with computation and communication at once."""
    texts = {one.fault: one.text for one in mechanisms.REQUIREMENTS}
    return Faults(texts, lambda fault, variable: True)


def overlap_feasibility(
    builder: Builder, faults: Mapping[str, int], nodes: Mapping[str, Node]
) -> Node:
    """Return the node of the reasons why a mechanism can't be; what it doesn't take is none."""
    taken = {node.name for node in given_below(nodes.values())}
    each: list[Node] = []
    measured = "overlapped_time" in builder.given
    for one in mechanisms.requirements(builder.labels, measured=measured):
        inputs = [builder.perhaps(name) for name in one.inputs]
        if all(node and (node.given is None or node.name in taken) for node in inputs):
            each.append(builder.faults((one,), faults))
    return builder.either(each) if each else builder.everywhere(0)
