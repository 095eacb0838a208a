"""Parts of a step's time, of all micro-batches, on a rank of a stage between the ends."""

from __future__ import annotations

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


def _host_bound(
    layers: Array, host: Array, dense: Array, dense_gpu: Array, experts: Array, expert_gpu: Array
) -> Array:
    return np.where(layers * host > dense * dense_gpu + experts * expert_gpu, 1.0, 0.0)


def _host_bound_of_both(
    layers: Array,
    forward_host: Array,
    backward_host: Array,
    dense: Array,
    dense_forward: Array,
    dense_backward: Array,
    experts: Array,
    expert_forward: Array,
    expert_backward: Array,
) -> Array:
    host, dense_gpu = forward_host + backward_host, dense_forward + dense_backward
    expert_gpu = expert_forward + expert_backward
    return _host_bound(layers, host, dense, dense_gpu, experts, expert_gpu)


_gpu = [[f"{_class}_layer_{_way}_gpu_time" for _way in ("forward", "backward")]
        for _class in ("dense", "moe")]  # fmt: skip
_host = ("layer_forward_host_time", "layer_backward_host_time")
declare(
    "host_bound",
    ("middle_layers", *_host, "middle_mlp_layers", *_gpu[0], "middle_moe_layers", *_gpu[1]),
    f"where(middle_layers*({_host[0]} + {_host[1]}) > middle_mlp_layers*({' + '.join(_gpu[0])})"
    f" + middle_moe_layers*({' + '.join(_gpu[1])}), 1, 0)",
    _host_bound_of_both,
)
declare(
    "host_bound",
    (
        *("middle_layers", _host[0]),
        *("middle_mlp_layers", _gpu[0][0], "middle_moe_layers", _gpu[1][0]),
    ),
    f"where(middle_layers*{_host[0]} > middle_mlp_layers*{_gpu[0][0]}"
    f" + middle_moe_layers*{_gpu[1][0]}, 1, 0)",
    _host_bound,
    when={"schedule": "forward_only"},
)
