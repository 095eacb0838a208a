"""Which formula gives a quantity: never decided by the order in which modules are loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from overhead.formula import Formula, Registry
from overhead.labels import both, expanded, implies

ROOT = Path(__file__).parents[2]


def made(name: str, **when: str) -> Formula:
    return Formula(
        name,
        lambda latency: latency,
        ("latency",),
        "time",
        "derivation",
        when=when,
        location=f"test_registry.py:{name}",
    )


def registry(*formulas: Formula) -> Registry:
    found = Registry()
    for formula in formulas:
        found.add(formula)
    return found


def test_the_more_special_one_holds_whatever_comes_first() -> None:
    general, special = made("general"), made("special", topology="ring|torus")
    most = made("most", topology="ring", collective="p2p")
    for order in ((general, special, most), (most, special, general)):
        found = registry(*order)
        found.complete()
        assert found.returning("time", {"topology": "mesh"}) is general
        assert found.returning("time", {"topology": "torus", "collective": "p2p"}) is special
        assert found.returning("time", {"topology": "ring", "collective": "p2p"}) is most
        assert found.candidates("time")[0] is most


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {}),
        ({"topology": "ring"}, {"topology": "ring|torus", "collective": "p2p"}),
        ({"topology": "ring"}, {"collective": "p2p"}),
        ({"shape": "flat"}, {"topology": "ring|torus"}),
    ],
)
def test_two_that_can_hold_together_are_refused(
    left: dict[str, str], right: dict[str, str]
) -> None:
    found = registry(made("one", **left), made("other", **right))
    first, second = (expanded(made("x", **when).holds) for when in (left, right))
    if implies(first, second) != implies(second, first):
        found.complete()
        return
    with pytest.raises(ValueError, match=r"'one' \(.*test_registry.*'other' \(.*test_registry"):
        found.complete()


def test_a_third_may_say_what_holds_where_two_meet() -> None:
    both_hold = {"topology": "ring", "collective": "p2p"}
    found = registry(
        made("one", topology="ring"), made("other", collective="p2p"), made("third", **both_hold)
    )
    found.complete()
    assert str(found.returning("time", both_hold).name) == "third"  # type: ignore[union-attr]


def test_a_network_has_one_shape() -> None:
    levels = expanded({"topology": frozenset({"hierarchical"})})
    assert both(levels, {"shape": frozenset({"flat"})}) is None
    assert both(expanded({"topology": frozenset({"ring"})}), {"shape": frozenset({"flat"})})


LARGE = """
import pkgutil, sys

direction = sys.argv[1]
listed = pkgutil.iter_modules

def turned(*args):
    found = list(listed(*args))
    return reversed(found) if direction == "reversed" else found

pkgutil.iter_modules = turned
import overhead
import hashlib
import numpy as np
import sweeps
from overhead.quantity import VOCABULARY

def values(quantities, **axes):
    found = sweeps.sweep(quantities, **axes)
    text = hashlib.sha256()
    for name in sorted(found.data_vars):
        one = found.variables[name]
        one = one.transpose(*sorted(one.dims))
        bits = np.ascontiguousarray(one.values).tobytes()
        text.update(name.encode() + repr(one.shape).encode() + bits)
    return text.hexdigest()

STEP = [name for name in sorted(VOCABULARY) if name.startswith((
    "step", "exposed", "stage_", "peak_", "communication_", "kept_", "cp_", "tp_layer", "bubble"))]
common = dict(hardware="dgx-h100", world_size=64, sequence_length=8192, global_batch_size=64)
plan = {"tp": [1, 2, 4, 8], "pp": [2, 4, 1, 2], "cp": [2, 1, 4, 1]}

def possible(model):
    # What is missing is missing in both orders.
    from dataclasses import replace
    from sweeps.job import prepare
    from sweeps.spec.sweep import read_sweep
    first = {key: part[0] for key, part in plan.items()}
    stated = {"quantities": STEP, "constants": dict(common, model=model, **first)}
    read = read_sweep(stated, bare_is_si=True)
    return list(prepare(replace(read, optional=True)).program.wanted)

names = possible("llama3-8b")
print(len(names))
# Two labels at a time: that no others meet undecided is refused when all are listed.
dense = dict(common, model="llama3-8b", plan=plan)
print(values(names, **dense, context_parallel=["all_to_all", "ring", "all_gather", "mixed"],
      cp_mechanism=["efficiency", "ring_exchange"]))
print(values(names, **dense, recompute=["none", "selective", "full"]))
routed = dict(common, model="mixtral-8x7b", plan=dict(plan, ep=[1, 2, 2, 8]))
print(values(names, **routed, schedule=["gpipe", "one_f_one_b", "zero_bubble_h1", "dual_pipe"]))
print(values(names, **routed, tp_mechanism=["efficiency", "userbuffers", "decomposed"],
      dispatcher=["all_to_all", "deduplicated"]))
print(values(["time", "lower_bound", "chosen_algorithm", "energy", "steps", "busbw"],
      topology="all", collective="all", algorithm=["standard", "nccl", "auto"],
      ranks=[2, 8, 12, 64], message_bytes=[1e3, 1e6, 1e9], latency_per=["hop", "message"]))
"""


@pytest.mark.thorough
def test_loading_modules_in_reversed_order_gives_the_same_bits() -> None:
    result = []
    for direction in ("sorted", "reversed"):
        process = subprocess.run(
            [sys.executable, "-c", LARGE, direction],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        result.append(process.stdout)
    count, *digests = result[0].split()
    assert int(count) > 100
    assert len(digests) == 5
    assert result[0] == result[1]
