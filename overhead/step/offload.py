"""Time of states in the host's memory: their transfers, and the update by the host's processors.

Of DeepSpeed and FSDP2 no time was compared with a run (`overhead.step.bands`).
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, formula
from overhead.labels import TRAINING
from overhead.memory.offload import DEEPSPEED, FSDP, FULLY_SHARD, HOST, ZERO

MEGATRON = cited("megatron", "megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py, step")
# Numbers in single precision that an update moves: reads a weight, its gradient and two moments,
# writes all but the gradient.
UPDATED_NUMBERS = 7.0

# Beside the passes of a micro-batch.


@formula(
    assumes=("each micro-batch takes gradients to host memory and back, to add the next one's",),
    when={**ZERO, "schedule": TRAINING},
    **DEEPSPEED,
)
def gradient_transfer_time(
    optimizer_offload,
    gradient_bytes,
    owned_parameters,
    zero_stage,
    num_micro_batches,
    host_bandwidth,
):
    """Gradient transfer time per micro-batch, one direction."""
    added = (zero_stage >= 3.0) | ((zero_stage >= 2.0) & (num_micro_batches > 1.0))
    moved = xp.where(added & (optimizer_offload > 0.0), gradient_bytes * owned_parameters, 0.0)
    return moved / host_bandwidth


# After them.


@formula(
    returns="host_update_time",
    assumes=(
        "gradients leave and weights come back in single precision",
        "the host moves as many bytes a parameter as the GPU would",
    ),
    when={**HOST, "schedule": TRAINING},
    **MEGATRON,
)
def offloaded_update_time(
    optimizer_offload,
    owned_parameters,
    single_bytes,
    host_bandwidth,
    optimizer_traffic_bytes,
    host_update_bandwidth,
    host_update_overlap,
):
    """Time of the update on the host: gradients there, states, weights back."""
    moved = optimizer_offload * owned_parameters
    transfer = moved * single_bytes / host_bandwidth
    update = moved * optimizer_traffic_bytes / host_update_bandwidth
    serial = transfer + update + transfer
    return serial + host_update_overlap * (xp.maximum(update, transfer) - serial)


@formula(
    returns="host_update_time",
    assumes=(
        "gradients of the last micro-batch leave in single precision",
        "updated weights come back in their own, unless they stay in host memory",
        "Adam's update in one pass over states in single precision (csrc/adam/cpu_adam_impl.cpp)",
        "ranks of a node share its cores, which are slower than its memory",
    ),
    when={**ZERO, "schedule": TRAINING},
    **DEEPSPEED,
)
def zero_update_time(
    optimizer_offload,
    owned_parameters,
    single_bytes,
    host_bandwidth,
    host_update_bandwidth,
    core_update_bandwidth,
    host_cores,
    gpus_per_node,
    world_size,
    weight_bytes,
    parameter_offload,
):
    """Time of the update on the host: gradients there, states, 16-bit weights back."""
    moved = optimizer_offload * owned_parameters
    down = moved * single_bytes / host_bandwidth
    cores = host_cores / xp.minimum(gpus_per_node, world_size)
    rate = xp.minimum(core_update_bandwidth * cores, host_update_bandwidth)
    update = moved * (UPDATED_NUMBERS * single_bytes) / rate
    up = moved * weight_bytes * (1.0 - parameter_offload) / host_bandwidth
    return down + update + up


@formula(
    returns="host_update_time",
    assumes=(
        "gradients are there when the backward pass is done; weights stay there",
        "Adam's update in one pass over states in single precision (fused)",
    ),
    when={**FSDP, "schedule": TRAINING},
    **FULLY_SHARD,
)
def fsdp_update_time(optimizer_offload, owned_parameters, single_bytes, host_update_bandwidth):
    """Time of the update on the host, of states in single precision."""
    moved = optimizer_offload * owned_parameters
    return moved * (UPDATED_NUMBERS * single_bytes) / host_update_bandwidth


@formula(source="megatron", where="megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py")
def optimizer_time(device_update_time, host_update_time):
    """Optimizer update time: GPU and host parts concurrent."""
    return xp.maximum(device_update_time, host_update_time)
