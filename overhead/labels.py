"""Labels: words that decide which formulas hold; and what they say about one another."""

from __future__ import annotations

from collections.abc import Mapping

# For each label the values for which something holds.
Condition = Mapping[str, frozenset[str]]

FLAT = frozenset({"flat"})
LEVELS = frozenset({"two_levels", "three_levels"})


def expanded(condition: Condition) -> Condition:
    """Return a condition with what follows from it: a hierarchy has levels, others are flat."""
    found = dict(condition)
    topology = found.get("topology")
    if topology is not None and "shape" not in found:
        if topology == {"hierarchical"}:
            found["shape"] = LEVELS
        elif "hierarchical" not in topology:
            found["shape"] = FLAT
    return found


def implies(one: Condition, other: Condition) -> bool:
    """Return whether wherever the first holds, the second does, too."""
    return all(name in one and one[name] <= values for name, values in other.items())


def both(one: Condition, other: Condition) -> Condition | None:
    """Return where both hold, or None where they can't together."""
    found = {**one}
    for name, values in other.items():
        found[name] = found[name] & values if name in found else values
        if not found[name]:
            return None
    return found


# The labels that name what overlaps how in a step, and their values.
#
# ``efficiency`` takes a given share; each of the others has forms of its own (`overhead.step`).

# The value by which a given share says what hides.
SHARED = "efficiency"
TP_MECHANISMS = (SHARED, "userbuffers", "decomposed")
CP_MECHANISMS = (SHARED, "ring_exchange")
DP_MECHANISMS = (SHARED, "ddp_buckets", "megatron_buckets")
OVERLAPS: dict[str, tuple[str, ...]] = {
    "tp_mechanism": TP_MECHANISMS,
    "cp_mechanism": CP_MECHANISMS,
    "dp_mechanism": DP_MECHANISMS,
}

# What overlaps how, where an overlap is asked for by itself (`overhead.overlap.mechanisms`).
MECHANISMS = (
    "two_durations",
    "ddp_buckets",
    "fsdp_prefetch",
    "fsdp_backward",
    "zero3_prefetch",
    "layer_by_layer",
    "gradient_accumulation",
    "ring_exchange",
    "ring_exchange_aggregate",
    "reduce_scatter_ring",
    "reduce_scatter_pipeline",
    "bulk_margin",
    "bulk_shared",
    "bulk_queued",
    "pipeline",
    "fused_messages",
)
# Of a pipeline the stages' times are given; of the others one computation beside communication.
ONE_COMPUTATION = "|".join(name for name in MECHANISMS if name != "pipeline")
