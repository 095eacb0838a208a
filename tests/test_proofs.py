"""Every closed form against the step-by-step execution of its schedule, and the table of proofs.

For every algorithm: time, steps, the most bytes that a rank sends, the bytes over the links of
each level, the most bytes that a rank reduces, and the energy.  `proofs.md` says what was compared;
after a change of algorithms, schedules or cases write it anew with

    PROOFS=write python -m pytest tests/test_proofs.py

or, where only algorithms were added, with PROOFS=new, which writes their rows alone.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overhead import expression as ex
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from overhead.collectives.cost import LEVELS
from overhead.evaluation import Evaluation
from tests.simulator import SCHEDULES, STREAMS, simulate
from tests.simulator.core import Outcome
from tests.simulator.model import Case, Undefined

Key = tuple[str, str, str]
Sizes = tuple[int, ...]

# Other tests may declare algorithms of their own.
KEYS: tuple[Key, ...] = tuple(ALGORITHMS)
OPERATIONS = tuple(dict.fromkeys(key[:2] for key in KEYS))
TABLE = Path(__file__).with_name("proofs.md")
NEW = os.environ.get("PROOFS") == "new"
WRITE = NEW or os.environ.get("PROOFS") == "write"
TOLERANCE = 1e-9
FEW = 8
# Differences below this are rounding, which differs between machines.
SHOWN = 1e-12

LATENCY = (Fraction(3, 7), Fraction(5, 3), Fraction(22, 9))
BANDWIDTH = (Fraction(11, 5), Fraction(7, 13), Fraction(2, 9))
ENERGY = (Fraction(1, 3), Fraction(5, 2), Fraction(8, 7))
LARGE, SMALL = Fraction(13, 3), Fraction(1, 50)
# A level whose bandwidth is divided by so much, of one that has so much more, is as if without.
OVERSUBSCRIPTION = (Fraction(1), Fraction(3, 2), Fraction(5, 4))

RANKS = (*range(1, 14), 15, 16, 17, 24, 31, 32, 33)
LINES: tuple[Sizes, ...] = tuple((size,) for size in (*range(1, 10), 12))
PLANES: tuple[Sizes, ...] = (
    (1, 4),
    (4, 1),
    (2, 2),
    (2, 3),
    (3, 2),
    (2, 4),
    (4, 2),
    (3, 3),
    (2, 5),
    (5, 2),
    (6, 2),
    (3, 4),
    (4, 3),
    (3, 5),
    (4, 4),
    (5, 4),
    (5, 5),
    (6, 4),
)
BLOCKS: tuple[Sizes, ...] = (
    (1, 1, 1),
    (3, 1, 2),
    (1, 3, 2),
    (2, 2, 2),
    (2, 2, 3),
    (2, 3, 2),
    (3, 2, 2),
    (2, 3, 3),
    (3, 3, 2),
    (4, 2, 2),
    (2, 4, 2),
    (4, 3, 2),
    (2, 3, 4),
    (3, 2, 4),
    (3, 3, 3),
    (4, 4, 2),
)
NODES: tuple[Sizes, ...] = (
    (1, 1),
    (2, 1),
    (5, 1),
    (8, 1),
    (1, 2),
    (1, 4),
    (1, 5),
    (2, 2),
    (3, 2),
    (2, 3),
    (4, 2),
    (2, 4),
    (6, 2),
    (3, 4),
    (4, 3),
    (5, 3),
    (3, 5),
    (4, 4),
    (8, 2),
    (2, 8),
)
PODS: tuple[Sizes, ...] = (
    (1, 1, 1),
    (1, 1, 2),
    (2, 1, 2),
    (1, 2, 2),
    (1, 3, 2),
    (3, 1, 3),
    (2, 2, 2),
    (2, 2, 3),
    (2, 3, 2),
    (3, 2, 2),
    (1, 4, 2),
    (4, 2, 2),
    (2, 4, 2),
    (2, 2, 4),
    (5, 2, 2),
)
SHAPES: dict[str, tuple[Sizes, ...]] = {
    **dict.fromkeys(("mesh", "torus"), (*LINES, *PLANES, *BLOCKS)),
    "hierarchical": (*NODES, *PODS),
}
# Store and forward on a ring moves N^2 blocks in each of N steps.
SLOW = ("fwd_uni", "fwd_bidir", "shift_uni", "shift_min", "shift_bidir")
STREAMED = tuple(key[2] for key in STREAMS)
# Defined with fewer sizes than its schedule: with two or an odd number of ranks a dimension.
NARROWER = ("multi_shift_bidir", "multi_fwd_bidir")


def numbers(key: Key) -> Sequence[int]:
    """Return how many ranks there may be: of a network that has few such numbers all up to 64."""
    conditions = NETWORKS[key[0]].requires
    if conditions:
        every = np.arange(1.0, 65.0)
        return [int(n) for n in every if all(condition.holds(n) for condition in conditions)]
    return RANKS[:-3] if key[2] in SLOW else (*RANKS, 64)


def shapes(key: Key) -> tuple[Sizes, ...]:
    found = SHAPES[key[0]] if key[0] in SHAPES else tuple((number,) for number in numbers(key))
    # An all_reduce takes both its halves' time to simulate; on the largest shapes they suffice.
    doubled = key[0] in SHAPES and (key[0], "all_gather", key[2]) in ALGORITHMS
    most = 16 if doubled and key[1] == "all_reduce" else 64
    return tuple(sizes for sizes in found if math.prod(sizes) <= most)


def chunk_counts(key: Key, ranks: int) -> tuple[int, ...]:
    if not ALGORITHMS[key].chunked:
        return (1,)
    if key[2] == "dbt":
        return (*range(1, 12), 16) if ranks <= 17 else (1, 4, 7, 10, 12)
    return (1, 2, 3, 5, 8) if ranks <= 13 else (3,)


def sharers(sizes: Sizes) -> Sequence[int]:
    """Return how many ranks may share a network card, whether that divides a node's or not."""
    node = sizes[0]
    return range(1, node + 1) if math.prod(sizes) <= 12 else sorted({1, min(3, node), node})


def cases(key: Key) -> Iterator[Case]:
    layered = key[0] == "hierarchical"
    for sizes in shapes(key):
        ranks, depth = math.prod(sizes), len(sizes) if layered else 1
        for chunks in chunk_counts(key, ranks):
            for nic in sharers(sizes) if layered else (1,):
                plain = Case(*key, sizes, LARGE, LATENCY[:depth], BANDWIDTH[:depth], chunks, nic)
                yield from variants(plain)


def variants(plain: Case) -> Iterator[Case]:
    """Yield a case, and for few ranks those with other prices: a step may be slow on any level."""
    yield plain
    if plain.topology == "hierarchical":
        if plain.ranks <= 4:
            yield replace(plain, latency_per="message")
        if plain.algorithm.startswith(("flat_", "ring_path", *STREAMED)) and plain.ranks <= 8:
            turned = replace(plain, latency=plain.latency[::-1], bandwidth=plain.bandwidth[::-1])
            cheap = replace(turned, bandwidth=plain.bandwidth)
            yield from (turned, cheap, *(replace(c, message=SMALL) for c in (plain, turned)))
        return
    if plain.ranks <= 12:
        yield replace(plain, latency_per="message")
        yield replace(plain, message=SMALL)


def outcome(case: Case) -> Outcome | None:
    """Run a case's schedule; None where there is none."""
    power = not case.ranks & (case.ranks - 1)
    if case.algorithm == "rabenseifner_fold" and power:
        # Nothing is folded there, which leaves recursive halving and doubling.
        case = replace(case, algorithm="halving")
    if case.topology == "tree":
        # It hangs on a switch: the schedules are the same, and have run there.
        key = case.collective, case.algorithm
        assert SCHEDULES["tree", *key] is SCHEDULES["switch", *key]
        case = replace(case, topology="switch")
    return simulated(case)


@cache
def simulated(case: Case) -> Outcome | None:
    try:
        return simulate(case)
    except Undefined:
        return None


def given(case: Case) -> dict[str, float]:
    """Return a case as the product's quantities."""
    values: dict[str, Any] = {
        "ranks": case.ranks,
        "message_bytes": case.message,
        "chunks": case.chunks,
        "hops": 1,
        "latency": case.latency[0],
        "bandwidth": case.bandwidth[0],
        "energy_per_bit": ENERGY[0],
    }
    if case.topology == "switch":
        values |= {"has_nvls": 1, "has_inc": 1, "in_network_latency_factor": 1}
    elif case.topology in ("mesh", "torus"):
        axes = ("mesh_nx", "mesh_ny", "mesh_nz")
        values |= zip(axes, (*case.sizes, 1, 1), strict=False)
    elif case.topology == "hierarchical":
        values |= {"ranks_sharing_nic": case.ranks_sharing_nic, "gpus_per_node": case.sizes[0]}
        values |= {"intra_nvls": 1, "inter_inc": 1, "in_network_latency_factor": 1}
        values |= zip(
            ("oversubscription", "pod_oversubscription"), OVERSUBSCRIPTION[1:], strict=True
        )
        if len(case.sizes) == 3:
            values["nodes_per_pod"] = case.sizes[1]
        for number, level in enumerate(LEVELS[: len(case.sizes)]):
            values[f"{level}_latency"] = case.latency[number]
            values[f"{level}_bandwidth"] = case.bandwidth[number] * OVERSUBSCRIPTION[number]
            values[f"{level}_energy_per_bit"] = ENERGY[number]
    return {name: float(value) for name, value in values.items()}


def expected(run: Outcome) -> dict[str, float]:
    values = {
        "time": run.time,
        "steps": run.steps,
        "sent_bytes": run.sent,
        "reduced": run.reduced,
        "link_bytes": sum(run.carried),
        "energy": 8 * sum(c * e for c, e in zip(run.carried, ENERGY, strict=False)),
    }
    if len(run.carried) > 1:
        values |= zip(LEVELS, run.carried, strict=False)
    return {name: float(value) for name, value in values.items()}


def labels(case: Case) -> dict[str, str]:
    return {
        "shape": ("flat", "two_levels", "three_levels")[len(case.latency) - 1],
        "phases": "sequential",
        "reduction": "free",
        "latency_per": case.latency_per,
        "link": "auto" if case.topology == "hierarchical" else "intra",
    }


def computed(evaluation: Evaluation, name: str) -> np.ndarray:
    """Return what the product gives for one of the names of `expected`."""
    message = evaluation["message_bytes"]
    if name == "reduced":
        return evaluation["reduced_fraction"] * message
    if name in LEVELS:
        return evaluation[f"{name}_link_fraction"] * message
    return evaluation[name]


@dataclass(frozen=True)
class Proof:
    """What comparing an algorithm with its schedule gave."""

    key: Key
    sizes: tuple[Sizes, ...]
    chunks: tuple[int, ...]
    cases: int
    worst: float
    above: float
    faults: tuple[str, ...]

    def row(self) -> str:
        """Return the table's row."""
        tried = compressed(self.sizes)
        if ALGORITHMS[self.key].chunked:
            tried += f"; k = {', '.join(map(str, self.chunks))}"
        difference = f"< {rounded(self.worst):.0e}"
        if self.above > 0.0:
            difference += f"; at few chunks an upper bound, at most {self.above:.1%} above"
        names = " | ".join(self.key)
        schedule = described({**SCHEDULES, **STREAMS}[self.key], self.key[2])
        return f"| {names} | `{schedule}` | {tried} | {self.cases} | {difference} |"


def rounded(worst: float) -> float:
    """Return the next power of ten above, at least `SHOWN`."""
    return SHOWN if worst < SHOWN else 10.0 ** math.ceil(math.log10(worst))


def compressed(sizes: Sequence[Sizes]) -> str:
    if any(len(one) > 1 for one in sizes):
        return ", ".join("x".join(map(str, one)) for one in sizes)
    runs: list[list[int]] = []
    for (ranks,) in sizes:
        if runs and ranks == runs[-1][-1] + 1:
            runs[-1].append(ranks)
        else:
            runs.append([ranks])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else str(run)[1:-1] for run in runs)


def described(schedule: Any, entry: str) -> str:
    """Return the name of a schedule's function, with those of which it is composed."""
    if isinstance(schedule, str):
        return schedule
    module, name = schedule.__module__.rsplit(".", 1)[-1], schedule.__qualname__
    if "<" not in name:
        return f"{module}.{name}"
    outer = name.split(".")[0]
    cells = zip(schedule.__code__.co_freevars, schedule.__closure__ or (), strict=True)
    parts = {part: cell.cell_contents for part, cell in cells}
    if outer in ("<lambda>", "table"):
        return f"{module}.{entry}"
    if outer in ("scheduled", "of_ranks", "of_chunks", "on_grid"):
        return described(parts.get("build") or parts["shared"].__wrapped__, entry)
    if outer in ("on_ring", "on_switch"):
        return f"{outer[3:]}.{parts['collective']}.{parts['name']}"
    if outer == "along":
        outer = described(parts.pop("compose"), entry)
    return f"{outer}({', '.join(described(part, entry) for part in parts.values())})"


@cache
def proof(key: Key, few: bool = False) -> Proof:
    """Compare an algorithm with its schedule; `few` takes one in three of the small cases."""
    chosen = [case for case in cases(key) if not few or case.ranks <= FEW]
    groups: dict[tuple[tuple[str, str], ...], list[tuple[Case, Outcome | None]]] = defaultdict(list)
    for case in chosen[:: 3 if few else 1]:
        groups[tuple(labels(case).items())].append((case, outcome(case)))
    faults: list[str] = []
    done: list[Case] = []
    worst = above = 0.0
    for result, runs in groups.items():
        rows = [given(case) for case, _ in runs]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        evaluation = Evaluation(columns, dict(result), ALGORITHMS[key])
        defined = np.broadcast_to(evaluation.defined(), len(runs))
        for (case, run), ours in zip(runs, defined, strict=True):
            if ours != (run is not None) and not (key[2] in NARROWER and not ours):
                faults.append(
                    f"{case}: defined {'only here' if ours else 'only in the simulation'}"
                )
        both = [i for i, (_, run) in enumerate(runs) if run is not None and defined[i]]
        done += [runs[i][0] for i in both]
        wanted = [expected(run) for i in both if (run := runs[i][1]) is not None]
        exact = exactness(key, evaluation, len(runs))[both]
        for name in wanted[0] if wanted else ():
            want = np.array([one[name] for one in wanted])
            got = np.broadcast_to(computed(evaluation, name), len(runs))[both]
            with np.errstate(divide="ignore", invalid="ignore"):
                off = np.where(got == want, 0.0, (got - want) / want)
            if name == "time" and not exact.all():
                above = max(above, float(np.max(off[~exact])))
                off = np.where(exact, off, np.minimum(off, 0.0))
            off = np.abs(off)
            worst = max(worst, float(np.max(off)))
            bad = np.flatnonzero(~(off <= TOLERANCE))
            faults += [f"{runs[both[i]][0]}: {name} is {got[i]!r}, not {want[i]!r}" for i in bad]
    return Proof(
        key,
        tuple(dict.fromkeys(case.sizes for case in done)),
        tuple(sorted({case.chunks for case in done})),
        len(done),
        worst,
        above,
        tuple(faults),
    )


def exactness(key: Key, evaluation: Evaluation, count: int) -> np.ndarray:
    """Return where the stated time is exact rather than an upper bound."""
    condition = ALGORITHMS[key].exact_chunks
    values = {name: evaluation[name] for name in ex.names(condition)} if condition else {}
    holds = ex.evaluate(condition, values) if condition else True
    return np.broadcast_to(holds, count)


HEAD = """\
# Closed forms and the schedules that prove them

Each closed form in `overhead/collectives` equals the step-by-step execution of its schedule in
`tests/simulator`, which shares no code with it and counts in fractions: the time, the steps, the
most bytes that one rank sends, the bytes over the links of each level, the most bytes that one rank
reduces, and the energy. The last column bounds the relative difference in all cases of a row; the
cases differ in shape, chunks k, ranks that share a network card, latency paid a hop or a message,
and prices of links. Sizes are ranks; of meshes and tori nx x ny x nz; of hierarchies GPUs in a node
x nodes x pods.

`tests/test_proofs.py` compares this table with what it finds. To write it anew:

    PROOFS=write python -m pytest tests/test_proofs.py

| network | operation | algorithm | schedule | sizes | cases | largest relative difference |
|---|---|---|---|---|---|---|
"""


def stated() -> dict[Key, str]:
    """Return the rows of the table that is there."""
    lines = TABLE.read_text(encoding="utf-8").removeprefix(HEAD).splitlines()
    return {tuple(cell.strip() for cell in line.split("|")[1:4]): line for line in lines}  # type: ignore[misc]


def test_every_algorithm_has_a_schedule_and_every_schedule_an_algorithm() -> None:
    assert sorted(KEYS) == sorted({**SCHEDULES, **STREAMS})


of_each = pytest.mark.parametrize(
    ("topology", "collective"), OPERATIONS, ids=map("-".join, OPERATIONS)
)


@pytest.mark.thorough_cases("hierarchical-all_reduce")
@of_each
def test_closed_forms_equal_their_simulation_of_few_ranks(topology: str, collective: str) -> None:
    for key in KEYS:
        if key[:2] == (topology, collective):
            found = proof(key, few=True)
            assert not found.faults, "\n".join(found.faults[:5])
            assert found.cases > 2


@pytest.mark.thorough
@of_each
def test_closed_forms_equal_their_simulation(topology: str, collective: str) -> None:
    for key in KEYS:
        if key[:2] == (topology, collective):
            found = proof(key)
            assert not found.faults, "\n".join(found.faults[:5])
            assert found.cases > len(found.sizes) > 5
            if not WRITE:
                assert found.row() == stated()[key]


def test_the_table_lists_every_algorithm() -> None:
    if WRITE:
        known = stated() if NEW else {}
        rows = "\n".join(known.get(key) or proof(key).row() for key in sorted(KEYS))
        TABLE.write_text(f"{HEAD}{rows}\n", encoding="utf-8")
    assert TABLE.read_text(encoding="utf-8").startswith(HEAD)
    assert list(stated()) == sorted(KEYS)


def broken(change: Callable[[Case], dict[str, float]], key: Key, ranks: int) -> bool:
    """Tell whether a closed form with an error in it differs from the simulation."""
    case = next(case for case in cases(key) if case.ranks == ranks)
    wrong = {name: np.asarray(value) for name, value in (given(case) | change(case)).items()}
    run = outcome(case)
    assert run is not None
    evaluation = Evaluation(wrong, labels(case), ALGORITHMS[key])
    return abs(float(evaluation["time"]) - float(run.time)) > TOLERANCE * float(run.time)


def test_an_error_shows() -> None:
    key = ("ring", "all_reduce", "ring")
    assert not broken(lambda case: {}, key, 8)
    assert broken(lambda case: {"ranks": case.ranks + 1.0}, key, 8)
    assert broken(lambda case: {"latency": float(case.latency[0]) * (1 + 1e-7)}, key, 8)
