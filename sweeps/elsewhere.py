"""What other systems call quantities, labels and functions: messages name ours for them.

``elsewhere.csv`` has a row for each name that a quantity or label has in other calculators,
frameworks and model files: the name, and what it means here (of several the first that is known
where it is given).
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from pathlib import Path

# Of Python names of other packages what does the same here.
IN_PYTHON: Mapping[str, str] = {
    "MemoryBreakdown": "overhead.analyze_config(config).memory, by part",
    "collective_latency_and_volume": "overhead.collective(kind, message_bytes, topology)",
    "analyze_config": "overhead.analyze_config(config)",
    "build_topology": "overhead.build_topology(kind, num_gpus, bandwidth=.., latency=..)",
    "Config": "overhead.Config(num_gpus=.., ..)",
    "TopologyKind": "overhead.TopologyKind",
    "CollectiveKind": "overhead.CollectiveKind",
    "TPOverlapTuner": "sweeps.tuner.TPOverlapTuner, or the command 'sweeps tune'",
    "TPOverlapTunerConfig": "sweeps.tuner.TPOverlapTunerConfig, or the command 'sweeps tune'",
    "calculate_overlap_speedup": "sweeps.sweep('speedup', mechanism='two_durations', ..)",
    "find_optimal_strategy": "sweeps.plan(model=.., hardware=.., gpus=..)",
    "LLMAnalysis": "sweeps.sweep(['step_time', 'peak_memory'], model=.., hardware=..)",
    "plans": "sweeps.plan(model=.., hardware=.., gpus=..)",
}


def read_names() -> Mapping[str, tuple[str, ...]]:
    """Return what each name of elsewhere is called here."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as rows:
        return {
            row["elsewhere"].lower(): tuple(row["names"].split()) for row in csv.DictReader(rows)
        }


def named_here(word: str, known: Collection[str]) -> str | None:
    """Return what a name that isn't known is called here, if it is known by another name.

    Parameters
    ----------
    word : str
        A name, or an option.
    known : collection of str
        Names that can be given there.
    """
    plain = word.lstrip("-").replace("-", "_").lower()
    return next((name for name in read_names().get(plain, ()) if name in known), None)


def python_hint(module: str, name: str) -> str:
    """Return the message of an attribute that isn't there, with what does the same here."""
    message = f"module '{module}' has no attribute '{name}'"
    return f"{message}; here it is {IN_PYTHON[name]}" if name in IN_PYTHON else message
