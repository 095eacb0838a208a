"""What a framework's settings of a plan are made of."""

from __future__ import annotations

from collections.abc import Iterator

from overhead.frozen import frozen
from sweeps.launch.terms import says_of
from sweeps.search.request import Execution

# Steps of a first run, which shows whether it is as fast as predicted.
FIRST_STEPS = 20
# Kinds of recomputation that repeat layers.
WHOLE = ("full", "full_early_stop", "uniform", "block")


@frozen()
class FrameworkSettings:
    """A plan in the words of a framework."""

    framework: str  # Which
    lines: tuple[str, ...]  # Arguments, or a configuration file's lines
    # What of the plan the framework can't express, or needs more for than settings
    missing: tuple[str, ...] = ()


@frozen()
class LaunchFile:
    """A file with which a framework runs a plan."""

    name: str  # Of the file
    text: str  # Its content
    missing: tuple[str, ...] = ()  # As of `FrameworkSettings`


def overlaps(plan: Execution, dimension: str) -> bool:
    """Return whether a dimension's communication overlaps, by a mechanism or by a share."""
    named = plan.labels.get(f"{dimension}_mechanism", "efficiency") != "efficiency"
    return named or plan.given.get(f"{dimension}_overlap", 0.0) > 0.0


def end_layers(plan: Execution) -> tuple[int, int]:
    """Return as how many layers the embedding and the loss count."""
    embedding = int(plan.given.get("embedding_layer_weight", 0.0))
    return embedding, int(plan.given.get("head_layer_weight", embedding))


def options_of(plan: Execution) -> frozenset[str]:
    """Return the options of the framework that are on."""
    return frozenset(plan.labels["framework"].split("+")[1:])


def recomputed_layers(plan: Execution) -> int:
    """Return the layers of each chunk that are recomputed, where some are."""
    return int(plan.given.get("recompute_layers", plan.known.get("recompute_layers", 1.0)))


def keeps_attention(plan: Execution) -> bool:
    """Return whether layers are recomputed as a whole but for attention's scores and values."""
    return plan.labels["recompute"] in WHOLE and plan.given.get("recompute_core_attn", 1.0) < 1.0


def said(plan: Execution, framework: str, part: str) -> Iterator[str]:
    """Yield a part of a plan in the words of a framework's table, where its quantities are so."""
    for row in says_of(framework):
        if row["part"] != part:
            continue
        name, sign, limit = row["quantity"], row["is"][:1], row["is"][1:]
        value = plan.given.get(name, float(row["default"])) if row["default"] else plan[name]
        if not sign or (value > float(limit) if sign == ">" else value == float(limit)):
            yield row["argument"].format(value)
