"""Context parallelism's exposed communication by mechanism: keys and values round a ring.

The label ``cp_mechanism`` names it; with ``efficiency`` a share is given (`overhead.step.overlap`).
Only a ring has something to compute while it sends: exchanging heads for tokens, or gathering keys
and values, is waited for.
"""

from __future__ import annotations

from overhead import overlap as mechanisms
from overhead.compute.declare import declare
from overhead.formula import call
from overhead.quantity import Array, define
from overhead.step import overlap, quantities
from overhead.sums import total

__all__ = ["mechanisms", "overlap", "quantities"]

NAMED = {"cp_mechanism": "ring_exchange"}
RING = {**NAMED, **overlap.RING}

define("attention_again_time", r"t_\mathrm{attn,bf}", "s",
       "time of a layer's attention in its backward, what is repeated of its forward included",
       minimum=0)  # fmt: skip
total("attention_again_time", ("attention_backward_time", "attention_forward_time"))


def _once(time: Array) -> Array:
    return 1.0 * time


def _ring(way: str, computing: str, when: dict[str, str]) -> None:
    call(
        returns=f"exposed_cp_{way}_time",
        of="exposed_time",
        bind={
            "compute_time": computing,
            "communication_time": f"cp_layer_{way}_time",
            "ranks": "cp",
        },
        labels={"mechanism": "ring_exchange"},
        when=when,
    )


for _way in ("forward", "backward"):
    _sent = f"cp_layer_{_way}_time"
    # What is repeated in a backward changes nothing of it.
    for _when in (
        (NAMED,) if _way == "forward" else (NAMED, {**NAMED, **overlap.REPEATED_ATTENTION})
    ):
        declare(
            f"exposed_cp_{_way}_time",
            (_sent,),
            f"1*{_sent}",
            _once,
            assumes=("attention waits for what isn't sent round a ring",),
            when=_when,
        )
    _ring(_way, f"attention_{_way}_time", RING)
_ring("backward", "attention_again_time", {**RING, **overlap.REPEATED_ATTENTION})
