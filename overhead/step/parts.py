"""Parts of a step's time, of all micro-batches, on a rank of a stage between the ends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from overhead.compute.declare import declare
from overhead.formula import formula
from overhead.quantity import Array
from overhead.step import quantities
from overhead.sums import total

__all__ = ["dual_pipe_exposed_ep_time", "even_imbalance_time", "quantities"]

DUAL = {"schedule": "dual_pipe"}


total("middle_layers", ("middle_mlp_layers", "middle_moe_layers"))


def _by_class(
    micro_batches: Array, dense: Array, dense_time: Array, experts: Array, expert_time: Array
) -> Array:
    return micro_batches * (dense * dense_time + experts * expert_time)


for _part, _name in (
    ("matmul_part", "layer_matmul"),
    ("elementwise_part", "layer_elementwise"),
    ("host_part", "layer_host"),
    ("exposed_tp", "exposed_tp"),
    ("recompute_part", "layer_recompute"),
):
    _times = (f"dense_{_name}_time", f"moe_{_name}_time")
    declare(
        f"{_part}_time",
        ("micro_batches", "middle_mlp_layers", _times[0], "middle_moe_layers", _times[1]),
        f"micro_batches*(middle_mlp_layers*{_times[0]} + middle_moe_layers*{_times[1]})",
        _by_class,
    )


def _none(micro_batches: Array, time: Array) -> Array:
    return 0.0 * micro_batches * time


declare(
    "recompute_part_time",
    ("micro_batches", "attention_forward_time"),
    "0*micro_batches*attention_forward_time",
    _none,
    when={"schedule": "forward_only"},
)


def _each(micro_batches: Array, layers: Array, time: Array) -> Array:
    return micro_batches * (layers * time)


for _part, _layers, _time in (
    ("attention_part", "middle_layers", "attention_time"),
    ("exposed_cp", "middle_layers", "layer_exposed_cp_time"),
    ("exposed_ep", "middle_moe_layers", "layer_exposed_ep_time"),
):
    declare(
        f"{_part}_time",
        ("micro_batches", _layers, _time),
        f"micro_batches*({_layers}*{_time})",
        _each,
    )


@formula(
    returns="exposed_ep_time",
    expression="micro_batches*(middle_moe_layers*layer_exposed_ep_time)"
    " - (micro_batches*(stage_forward_time + stage_backward_time) - busy_time)",
    source="deepseekv3",
    where="section 3.2.1",
    assumes=("what a forward and a backward gain by overlapping is experts' communication",),
    when=DUAL,
)
def dual_pipe_exposed_ep_time(
    micro_batches: Array,
    middle_moe_layers: Array,
    layer_exposed_ep_time: Array,
    stage_forward_time: Array,
    stage_backward_time: Array,
    busy_time: Array,
) -> Array:
    """Expert parallelism's exposed communication in DualPipe, less what overlapped pairs gain."""
    alone = micro_batches * (stage_forward_time + stage_backward_time)
    return micro_batches * (middle_moe_layers * layer_exposed_ep_time) - (alone - busy_time)


@formula(
    returns="imbalance_time",
    expression="micro_batches*ends_extra_time",
    source="derivation",
    assumes=("every stage takes as long as the slower end",),
    when={"stages": "even"},
    ufunc=np.multiply,
)
def even_imbalance_time(micro_batches: Array, ends_extra_time: Array) -> Array:
    """Time that the ends' extra work adds where every stage counts as having it."""
    return micro_batches * ends_extra_time


# Whether the host rules.


def _host_bound(dense: Array, experts: Array, *times: Array) -> Array:
    """Return 1 where the host takes longer; a class's times are the host's, then the GPU's."""
    each = len(times) // 4
    sums = [sum(times[place * each : (place + 1) * each]) for place in range(4)]
    host = dense * sums[0] + experts * sums[2]
    return np.where(host > dense * sums[1] + experts * sums[3], 1.0, 0.0)


def _declare_host_bound(ways: tuple[str, ...], when: Mapping[str, str] | None = None) -> None:
    """Declare whether the host rules the layers of a stage, over some directions."""
    times = {
        (of, what): [f"{of}_layer_{way}_{what}_time" for way in ways]
        for of in ("dense", "moe")
        for what in ("host", "gpu")
    }
    host, gpu = (
        f"middle_mlp_layers*({' + '.join(times['dense', what])})"
        f" + middle_moe_layers*({' + '.join(times['moe', what])})"
        for what in ("host", "gpu")
    )
    taken = (
        "middle_mlp_layers",
        "middle_moe_layers",
        *(n for each in times.values() for n in each),
    )
    declare("host_bound", taken, f"where({host} > {gpu}, 1, 0)", _host_bound, when=when)


_declare_host_bound(("forward", "backward"))
_declare_host_bound(("forward",), {"schedule": "forward_only"})
