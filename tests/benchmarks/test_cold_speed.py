"""Commands from cold, by the CPU time of a process that imports numpy alone, in pairs: a gate."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from statistics import median

import pytest

from tests.benchmarks.conftest import SEEN, aim_of, limit_of
from tests.benchmarks.test_speed import peak_memory

Ratio = Callable[[str, float, float, str], None]
PLAN = "--model llama3-70b --hardware dgx-h100 --gpus 512 --global-batch-size"
# By ratio: its command, and how many pairs.
COMMANDS = {
    "sweeps collective": ("collective --topology ring --N 8 --M 1GiB", 7),
    "sweeps analysis": (f"analysis {PLAN} 1024 --tp 8 --pp 4 --seq-len 8192", 5),
    "sweeps plan": (f"plan {PLAN} 4M --seq-len 8k", 5),
    "sweeps validate": ("validate", 2),
    "sweeps buy, four machines": (
        "buy --model llama3-70b --tokens 15T --days 90 --batch-size 4M"
        " --hardware dgx-h100,dgx-h200,dgx-b200,dgx-a100",
        1,
    ),
}

# A ratio over what passes is measured again, in so many more pairs at most: other programs make
# single runs slower, but never faster, so that the best run of each tells a real slow-down.
AGAIN = 6

# What loads most of what commands load.
FIRST = "buy --model llama3-8b --tokens 1T --days 90 --batch-size 4M --hardware dgx-h100"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where bytecode is kept, whatever the environment says: installed programs have theirs."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}


def seconds_of(environment: dict[str, str], *args: str) -> float:
    """Return the CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *args], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_from_cold(ratio: Ratio, environment: dict[str, str], what: str) -> None:
    text, pairs = COMMANDS[what]
    pair = ("-c", "import numpy"), ("-m", "sweeps", *text.split())
    for args in (("-c", "import numpy"), ("-m", "sweeps", *FIRST.split())):
        seconds_of(environment, *args)  # Bytecode is there, and files are in memory
    measure = lambda: [seconds_of(environment, *args) for args in pair]  # noqa: E731
    each = [measure() for _ in range(pairs)]
    bare, own = (median(seconds) for seconds in zip(*each, strict=True))
    note, limit = "", limit_of(what)
    while own / bare > limit and len(each) < pairs + AGAIN:
        each.append(measure())
        bare, own = (min(seconds) for seconds in zip(*each, strict=True))
        note = f", the best of {len(each)} pairs"
    ratio(what, own / bare, aim_of(what), f"{own:.2f} s of CPU{note}")


SEARCHED = """
from sweeps.search.request import read_request
from sweeps.search.search import search
from sweeps.search.space import space_of
from tests.benchmarks.test_speed import peak_memory
asked = {"model": "llama3-70b", "hardware": "dgx-h100", "gpus": 65536, "global_batch_size": 4096,
         "sequence_length": 4096}
search(space_of(read_request(asked).first))
print(peak_memory())
"""


def test_plans_of_the_largest_clusters(ratio: Ratio) -> None:
    process = subprocess.run(
        [sys.executable, "-c", SEARCHED], check=True, capture_output=True, text=True
    )
    text = "plans of 65,536 GPUs, peak MiB"
    ratio(text, float(process.stdout), aim_of(text), "")


def test_each_gate_is_measured() -> None:
    assert {*SEEN} == {*COMMANDS, "plans of 65,536 GPUs, peak MiB"}
    assert peak_memory() > 0.0
