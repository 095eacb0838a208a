"""Which mutants of formulas do tests notice?  ``python -m tests.maintenance.mutate --count 200``.

Mutants are drawn by a seed from all functions that formulas and algorithms call.  Values worked out
by hand, the laws of the formulas that call a function, and the simulation of the algorithms that do
come first, in this process; whatever they let pass goes to the tests of its package that compare
values, in processes of their own.  ``--laws`` leaves those out.  What gives the same numbers at all
points, such as a sum whose terms are swapped, is no mutant to notice: unless tests do it isn't
counted.  Of what lives, and of what is the same, it says the line.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from textwrap import shorten
from types import CodeType
from typing import Any

import numpy as np

from overhead import ALGORITHMS, VOCABULARY, Algorithm, Formula, special
from overhead.everything import formulas
from overhead.law import Law, law_of
from tests.laws import DRAWS, Moves, drawn, faults, signs, spread, worked_faults
from tests.maintenance.mutant import ROOT, Mutant, mutants
from tests.overhead.test_worked_values import WORKED
from tests.strategies import networks
from tests.test_proofs import proof

POINTS = DRAWS[:20]  # As many examples as hypothesis draws
# What isn't arithmetic of formulas: declaring, recording, labels, arrays.
OTHERS = ("formula.py", "arrays.py", "recording.py", "expression.py", "labels.py", "quantity.py")
LAWS, SIMULATED, VALUES, SAME, LIVES = "laws", "simulated", "tests", "same", "lives"
ALL = (LAWS, SIMULATED, VALUES, SAME, LIVES)
LONGEST = 900  # Seconds of a mutant's tests
NOTHING = 5  # What pytest returns where no test has the marks
# By package its tests that compare values: simulators, and what is worked out by hand, the quickest
# first.  No screens, pages or stored outputs.
OF_STEPS = ("bands", "step_one_time", "step_rates", "step_data_parallel", "step_mechanisms", "step")
TESTS: dict[str, tuple[str, ...]] = {
    "collectives": (
        "overhead/test_bounds",
        "overhead/test_algorithms",
        "software/test_slowest_steps",
        "test_proofs",
        "overhead/test_formulas",
    ),
    "communication": ("overhead/test_communication*", "overhead/test_placement"),
    "compute": ("overhead/test_compute*", "overhead/test_own_layers", "overhead/test_loss"),
    "folded": ("overhead/test_schedule",),
    "hops": ("hops/test_forms",),
    "identities": ("overhead/test_formulas", "overhead/test_laws"),
    "interleaved": ("overhead/test_own_layers", "overlap/test_step_timeline"),
    "memory": ("overhead/test_memory*", "overhead/test_offload*", "overhead/test_recomputation"),
    "model": ("overhead/test_order", "overhead/test_hybrid", "overhead/test_memory*"),
    "overlap": ("overlap/test_forms", "overlap/test_bounds", "overlap/test_step_timeline"),
    "plan": ("overhead/test_placement", "overhead/test_communication_groups"),
    "run": ("overhead/test_run*",),
    "schedule": ("overhead/test_schedule", "overhead/test_own_layers"),
    "software": ("software/test_forms", "software/test_slowest_steps"),
    "special": ("overhead/test_order", "overhead/test_run*", "overhead/test_algorithms"),
    "step": tuple(f"overhead/test_{formula}" for formula in OF_STEPS),
    "transformer": ("overhead/test_transformer*", "overhead/test_mtp"),
}


@dataclass
class Reach:
    """The functions that are called by formulas and by algorithms."""

    formulas: dict[CodeType, list[Formula]] = field(default_factory=dict)
    algorithms: dict[CodeType, list[Algorithm]] = field(default_factory=dict)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The files in which they stand."""
        files = {code.co_filename for code in (*self.formulas, *self.algorithms)}
        inside = (Path(file).relative_to(ROOT) for file in files if file.startswith(str(ROOT)))
        return tuple(sorted(str(one) for one in inside if one.name not in OTHERS))


@cache
def reach() -> Reach:
    """Call each kernel once, and see what it calls."""
    found = Reach()
    for formula in formulas():
        points = drawn(formula, POINTS[0]).values()
        for code in called(formula.kernel, *points):
            found.formulas.setdefault(code, []).append(formula)
    for algorithm in ALGORITHMS.values():
        for code in called(algorithm.kernel, **drawn_sizes(algorithm)):
            found.algorithms.setdefault(code, []).append(algorithm)
    return found


@cache
def drawn_sizes(algorithm: Algorithm) -> dict[str, np.ndarray]:
    """Return networks of an algorithm, and some of all else that its kernel takes."""
    rng, sizes = np.random.default_rng(1), networks(algorithm)
    return {
        name: sizes[name] if name in sizes else spread(VOCABULARY[name], rng.random((24, 1)))
        for name in algorithm.inputs
    }


def called(kernel: Any, *given: Any, **named: Any) -> set[CodeType]:
    """Return the code of all functions that a call of a kernel calls."""
    codes = set()

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        with np.errstate(all="ignore"):
            kernel(*given, **named)
    finally:
        sys.setprofile(None)
    return codes


def drawn_mutants(
    count: int, seed: int, package: str = ""
) -> Iterator[tuple[Mutant, dict[CodeType, CodeType]]]:
    """Yield mutants of functions that are called, with the code that each changes."""
    every = [mutant for mutant in mutants(reach().paths) if package in ("", mutant.package)]
    random.Random(seed).shuffle(every)
    reached = {*reach().formulas, *reach().algorithms}
    for formula in every:
        try:
            changed = formula.functions()
        except SyntaxError:
            continue
        if reached & set(changed):
            yield formula, changed
            count -= 1
        if not count:
            return


def verdict(mutant: Mutant, changed: dict[CodeType, CodeType]) -> tuple[str, str]:
    """Return what becomes of a mutant by laws and values by hand, and what says so.

    What costs least is asked first: values by hand, then whether anything differs, then laws.
    """
    users = {one.name: one for code in changed for one in reach().formulas.get(code, ())}
    others = {one.key: one for code in changed for one in reach().algorithms.get(code, ())}
    every: list[Formula | Algorithm] = [*users.values(), *others.values()]
    special.MOST_KEPT = -1  # Numbers of what isn't changed
    try:
        with np.errstate(all="ignore"):
            with mutant.living(changed):
                if said := first(by_hand, users):
                    return LAWS, said
            before = [values(formula) for formula in every]
            with mutant.living(changed):
                if all(alike(old, _values(one)) for old, one in zip(before, every, strict=True)):
                    return SAME, ""
                if said := first(of_laws, users):
                    return LAWS, said
                if said := simulated(others):
                    return SIMULATED, said
    except Exception as error:  # Whatever it does, it is noticed
        return LAWS, f"raises {type(error).__name__}"
    return LIVES, " ".join([*users, *map(".".join, others)])


def first(ask: Callable[[Formula], Iterator[str]], some: dict[str, Formula]) -> str:
    """Return the first that is said of formulas; empty where nothing is."""
    said = (f"{name} {fault}" for name, formula in some.items() for fault in ask(formula))
    return next(said, "")


def simulated(keys: Iterable[tuple[str, str, str]]) -> str:
    """Return an algorithm that isn't its simulation of few ranks; empty: none.  Tests have many."""
    return next((".".join(key) for key in keys if proof.__wrapped__(key, few=True).faults), "")


def _values(left: Formula | Algorithm) -> list[np.ndarray]:
    """Return what a formula or an algorithm gives at all points."""
    if isinstance(left, Algorithm):
        cost = astuple(left.kernel(**drawn_sizes(left)))
        return [np.asarray(part) for part in flat(cost)]
    return [Moves(left, data).values.astype(float) for data in points_of(left)]


def points_of(formula: Formula) -> tuple[bytes, ...]:
    """Return points at which a formula is tried: few where it goes through layers and stages."""
    if not formula.inputs:
        return ()
    return POINTS[:1] if formula.name in through_stages() else POINTS


@cache
def through_stages() -> set[str]:
    """Return the formulas that look for the heaviest of stages, for each point anew."""
    codes = reach().formulas
    return {one.name for code in codes if code.co_name == "heaviest_stage" for one in codes[code]}


values = cache(_values)


def alike(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """Return whether two give the same numbers."""
    return all(np.array_equal(*both, equal_nan=True) for both in zip(left, right, strict=True))


def flat(part: Any) -> Iterator[Any]:
    """Yield what is in tuples within tuples."""
    for one in part if isinstance(part, tuple) else ():
        yield from flat(one) if isinstance(one, tuple) else (one,)


def by_hand(formula: Formula) -> Iterator[str]:
    """Yield what values by hand say of a formula."""
    law = law_of(formula) if formula.inputs else None
    if law is not None:
        yield from worked_faults(formula, law)
    for given, value in worked().get(formula.name, ()):
        if not math.isclose(float(formula.kernel(*given)), value, rel_tol=1e-6):
            yield f"isn't {value:g} as worked out"


def of_laws(formula: Formula) -> Iterator[str]:
    """Yield what laws say of a formula."""
    law = law_of(formula) if formula.inputs else None
    if law is None:
        return
    for data in points_of(formula):
        yield from faults(formula, law, data)
    if formula.name not in through_stages():
        yield from unmoved(formula, law)


@cache
def worked() -> dict[str, list[tuple[tuple[float, ...], float]]]:
    """Return the values worked out in ``test_worked_values.py``."""
    found: dict[str, list[tuple[tuple[float, ...], float]]] = {}
    for name, given, value in WORKED:
        found.setdefault(name, []).append((given, value))
    return found


def unmoved(formula: Formula, law: Law) -> Iterator[str]:
    """Yield inputs that a formula should move with, and doesn't anywhere."""
    ways = {name: law.direction(name) for name in formula.inputs}
    names = {name for name, way in ways.items() if way == "free" and name in law.free}
    once = {name for name, way in ways.items() if way in ("up", "down")}
    seen = {name: [False, False] for name in (*names, *once)}
    for data in DRAWS:
        moves = Moves(formula, data)
        for name, (rose, fell) in seen.items():
            rises, falls = signs(moves, name)
            seen[name] = [rose or rises, fell or falls]
        if all(all(value) if name in names else any(value) for name, value in seen.items()):
            return
    for name, value in seen.items():
        if not (all(value) if name in names else any(value)):
            yield f"doesn't move with {name} as declared"


def noticed_by_tests(mutant: Mutant) -> bool:
    """Return whether the tests of a mutant's package notice it, the default ones or all."""
    found = (sorted((ROOT / "tests").glob(f"{one}.py")) for one in TESTS[mutant.package])
    files = [str(path) for paths in found for path in paths]
    return any(_fail(mutant, files, marks) for marks in ("not slow and not thorough", "thorough"))


def _fail(mutant: Mutant, files: list[str], marks: str) -> bool:
    """Return whether tests fail with a mutant; one that never ends is noticed."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.maintenance.mutant", "-x", "-q", "-n0"]
    env = {**os.environ, "MUTANT": mutant.key, "PYTHONPATH": str(ROOT)}
    try:
        process = subprocess.run(
            [*command, "-p", "no:cacheprovider", "-m", marks, *files],
            cwd=ROOT,
            env=env,
            capture_output=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return process.returncode not in (0, NOTHING)


def main() -> None:
    """Draw mutants, and say by package how many live."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--count", type=int, default=200)
    read.add_argument("--seed", type=int, default=1)
    read.add_argument("--laws", action="store_true", help="laws alone, without tests")
    read.add_argument("--package", default="", help="this one's mutants alone are drawn")
    options = read.parse_args()
    found: dict[str, Counter[str]] = {}
    living = []
    for mutant, changed in drawn_mutants(options.count, options.seed, options.package):
        result, why = verdict(mutant, changed)
        found.setdefault(mutant.package, Counter())[result] += 1
        if result in (SAME, LIVES):
            print(f"{result}: {mutant}  [{shorten(why, 80)}]", flush=True)
        if result == LIVES or (result == SAME and not mutant.what.endswith("swapped")):
            living.append((mutant, result))
    if not options.laws:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            noticed = pool.map(noticed_by_tests, (mutant for mutant, _ in living))
            for (mutant, result), is_noticed in zip(living, noticed, strict=True):
                if is_noticed:
                    print(f"noticed by tests: {mutant}", flush=True)
                    found[mutant.package] += Counter({VALUES: 1, result: -1})
    total = sum(found.values(), Counter())
    print(f"\n{'package':15}" + "".join(f"{one:>10}" for one in ALL))
    for name, counts in [*sorted(found.items()), ("all", total)]:
        print(f"{name:15}" + "".join(f"{counts[one]:10}" for one in ALL))
    right = total.total() - total[SAME]
    print(f"\n{(right - total[LIVES]) / right:.1%} of {right} that differ somewhere die")


if __name__ == "__main__":
    main()
