"""Closed-form models of what distributed training costs: formulas as numpy functions."""

from overhead.collective import CollectiveKind, CollectiveResult, collective
from overhead.collectives import ALGORITHMS, Algorithm, algorithm
from overhead.collectives.cost import Cost, Level, flat
from overhead.formula import REGISTRY, Formula, formula
from overhead.quantity import VOCABULARY, Quantity, define
from overhead.source import SOURCES, Source, cite
from overhead.topology import TopologyDesc, TopologyKind, build_topology

__all__ = [
    "ALGORITHMS",
    "REGISTRY",
    "SOURCES",
    "VOCABULARY",
    "Algorithm",
    "CollectiveKind",
    "CollectiveResult",
    "Cost",
    "Formula",
    "Level",
    "Quantity",
    "Source",
    "TopologyDesc",
    "TopologyKind",
    "algorithm",
    "build_topology",
    "cite",
    "collective",
    "define",
    "flat",
    "formula",
]
