"""Closed-form models of what distributed training costs: formulas as numpy functions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from overhead.collectives.algorithm import ALGORITHMS, Algorithm, algorithm
from overhead.collectives.cost import Cost, Level, flat
from overhead.everything import load
from overhead.formula import REGISTRY, Formula, formula
from overhead.quantity import VOCABULARY, Quantity, define
from overhead.source import SOURCES, Source, cite

if TYPE_CHECKING:
    from overhead.analysis import AnalysisResult, analyze_config
    from overhead.config import Config
    from overhead.topology import (
        CollectiveKind,
        CollectiveResult,
        TopologyDesc,
        TopologyKind,
        build_topology,
        collective,
    )

__all__ = [
    "ALGORITHMS",
    "REGISTRY",
    "SOURCES",
    "VOCABULARY",
    "Algorithm",
    "AnalysisResult",
    "CollectiveKind",
    "CollectiveResult",
    "Config",
    "Cost",
    "Formula",
    "Level",
    "Quantity",
    "Source",
    "TopologyDesc",
    "TopologyKind",
    "algorithm",
    "analyze_config",
    "build_topology",
    "cite",
    "collective",
    "define",
    "flat",
    "formula",
]

# A single collective needs no more; what a training step is made of comes when it is asked for.
load("collectives", "software")
REGISTRY.wait(load)

# What is imported when it is asked for, by its module.
LATE = {
    "analysis": ("AnalysisResult", "analyze_config"),
    "config": ("Config",),
    "topology": (
        "CollectiveKind",
        "CollectiveResult",
        "TopologyDesc",
        "TopologyKind",
        "build_topology",
        "collective",
    ),
}


def __dir__() -> list[str]:
    """Return what is public, loaded or not."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import what few programs need when it is asked for."""
    if name == "collective_latency_and_volume":  # What another calculator calls it
        name = "collective"
    module = next((module for module, names in LATE.items() if name in names), None)
    if module is None:
        message = f"module 'overhead' has no attribute '{name}'"
        if name == "MemoryBreakdown":
            message += "; the parts are in analyze_config(config).memory"
        raise AttributeError(message)
    return getattr(import_module(f"overhead.{module}"), name)
