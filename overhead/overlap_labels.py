"""The labels that name what overlaps how in a step, and their values.

``efficiency`` takes a given share; each of the others has forms of its own (`overhead.step`).
"""

from __future__ import annotations

__all__ = ["CP_MECHANISMS", "DP_MECHANISMS", "OVERLAPS", "SHARED", "TP_MECHANISMS"]

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
