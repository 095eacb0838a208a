"""``sweeps collective --verbose``: every printed line gives what stands below it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from overhead.collectives.algorithm import ALGORITHMS
from overhead.quantity import VOCABULARY
from overhead.special import popcount_sum
from sweeps.cli.collective_command import screen
from sweeps.job import Job, prepare
from sweeps.plots.style import parse
from tests.tables import examples

# What may be asked beside a network and an operation: each goes another way to the time.
VARIANTS: dict[str, dict[str, Any]] = examples(__file__, "variants")
PLAIN = {"topology", "collective", "algorithm", "message_bytes", *VARIANTS["in_network"]}
SIZES = {"small": 4096.0, "large": 1e9}
FUNCTIONS: dict[str, Any] = {
    "number": np.float64,
    "unlimited": np.inf,
    "gcd": lambda left, right: float(math.gcd(int(left), int(right))),
    "square_divisor": lambda n: float(max(k for k in range(1, int(n**0.5) + 1) if n % k == 0)),
    "popcount_sum": popcount_sum,
    **{
        name: getattr(np, name)
        for name in ("minimum", "maximum", "ceil", "floor", "where", "sqrt", "log2", "exp")
    },
}
UNITS = re.compile(
    r"\d[\d.]*(?:e[+-]?\d+)? (?:[fpnµm]?s|min|h|[kKMGTPE]?i?B)(?:/s|/B)?(?![A-Za-z])"
)
# An equation, the same with numbers, what each term of a sum comes to, and the result
BLOCK = re.compile(
    r"^  (\w+) = (.*)\n    = (.*)\n(?:    = .*\n)?    = (.*?)(?:  \[\d+\].*)?$", re.M
)


def questions() -> list[tuple[str, dict[str, Any]]]:
    """Return for each algorithm one way to its time, each way in turn."""
    ways, sizes = list(VARIANTS.items()), list(SIZES.values())
    found = []
    for index, (topology, collective, algorithm) in enumerate(ALGORITHMS):
        way, more = ways[index % len(ways)]
        asked = {"topology": topology, "collective": collective, "algorithm": algorithm, **more}
        asked["message_bytes"] = sizes[index // len(ways) % len(sizes)]
        found.append((f"{topology}-{collective}-{algorithm}-{way}", asked))
    return found


def number(text: str) -> float:
    """Return what a number with its unit is in SI."""
    parsed = parse(text)
    return float(text.split(maxsplit=1)[0]) if parsed is None else parsed


def in_si(text: str) -> str:
    """Return an expression with every number in SI and as a call, for Python to evaluate."""
    plain = UNITS.sub(lambda match: repr(number(match[0])), text)
    return re.sub(r"(?<![\w.])\d[\d.]*(e[+-]?\d+)?", r"number(\g<0>)", plain)


def lines_of(job: Job) -> str:
    return "\n".join(screen(job, job.evaluated(), ("formulas", "defaults")))


def answerable(asked: dict[str, Any]) -> Job | None:
    """Return the job for the first number of ranks for which the algorithm is defined."""
    for ranks in (16, 12, 64, 8, 4, 2):
        shape = {"gpus_per_node": 4} if asked["topology"] == "hierarchical" else {}
        if ranks <= 4 and shape:
            continue
        try:
            job = prepare({"title": "x", "constants": {**asked, **shape, "ranks": ranks}})
        except ValueError:
            continue
        if int(job.program.evaluate(("status",))["status"].reshape(-1)[0]) == 0:
            return job
    return None


@pytest.mark.thorough_cases("short", every=9)
@pytest.mark.parametrize("asked", [pytest.param(asked, id=name) for name, asked in questions()])
def test_each_line_gives_the_result_below_it(asked: dict[str, Any]) -> None:
    job = answerable(asked)
    if job is None:  # such as a switch that reduces, where the machine has none
        asked = {**asked, **VARIANTS["in_network"]}
        job = answerable({name: asked[name] for name in asked if name in PLAIN})
    assert job is not None
    text = lines_of(job)
    matches = BLOCK.findall(text)
    times = []
    for name, _, numbers, result in matches:
        with np.errstate(all="ignore"):
            value = float(eval(in_si(numbers), {"__builtins__": {}}, FUNCTIONS))
        assert value == pytest.approx(number(result), rel=2e-3, abs=1e-15, nan_ok=True), name
        times += [value] if name == "time" else []
    # The last one is the answer of the first line.
    answer = float(job.program.evaluate(("time",))["time"].reshape(-1)[0])
    assert times[-1] == pytest.approx(answer, rel=2e-3)
    # Whatever stands in an equation is derived above it, or named below with its value.
    named = set(re.findall(r"^  (\w+) = ", text, re.M))
    for name, expression, _, _ in matches:
        used = {match for match in re.findall(r"[a-z_]\w*", expression) if match in VOCABULARY}
        assert used <= named, f"{name} needs {sorted(used - named)}"
