"""States in the host's memory: what of them is where, by the software that puts them there.

``host_states`` says which.  Megatron-LM's hybrid optimizer (``hybrid``) sends moments alone: the
master copy is on both sides.  DeepSpeed (``zero_offload``) sends all that the optimizer has and the
gradients, and at stage 3 of ZeRO the weights where ``parameter_offload`` is given.  FSDP2's policy
(``fsdp_offload``) sends weights, gradients and states together.
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, formula
from overhead.model.order import of_stage

HOST = {"updating": "host"}
ZERO = {"updating": "host", "host_states": "zero_offload"}
FSDP = {"updating": "host", "host_states": "fsdp_offload"}
DEEPSPEED = cited("deepspeed", "deepspeed/runtime/zero/stage3.py and stage_1_and_2.py @edaa72212")
FULLY_SHARD = cited(
    "fsdp2", "_fsdp_api.py @01d5c2cc8a, CPUOffloadPolicy; _fsdp_param.py @010ae4a895"
)


# What is left on the GPU, by parameter.


@formula(
    returns="device_optimizer_bytes",
    source="megatron",
    where="megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py;"
    " Megatron-Bridge, skills/nemo-mbridge-perf-cpu-offloading/card.yaml @067f987df: measured",
    assumes=(
        "master weights of low-precision weights stay on the GPU as well, as in Megatron-Bridge",
    ),
)
def offloaded_optimizer_bytes(optimizer_bytes, optimizer_offload, weight_bytes, single_bytes):
    """On-GPU optimizer state bytes per parameter, mean."""
    master = xp.where(weight_bytes < single_bytes, single_bytes, 0.0)
    moments = xp.maximum(optimizer_bytes - master, 0.0)
    return optimizer_bytes - optimizer_offload * moments


@formula(
    returns="device_optimizer_bytes",
    when={**ZERO, "host_states": "zero_offload|fsdp_offload"},
    **DEEPSPEED,
)
def left_optimizer_bytes(optimizer_bytes, optimizer_offload):
    """On-GPU optimizer state bytes per parameter: of the fraction that the GPU updates."""
    return optimizer_bytes * (1.0 - optimizer_offload)


@formula(
    returns="device_gradient_bytes",
    assumes=(
        "stage 1 keeps gradients on the GPU until the step",
        "gradients of the fraction that the GPU updates are in single precision",
    ),
    when=ZERO,
    **DEEPSPEED,
)
def zero_gradient_bytes(gradient_bytes, optimizer_offload, single_bytes, zero_stage):
    """On-GPU gradient bytes per parameter: from stage 2 those that the GPU updates by."""
    left = xp.where(
        optimizer_offload > 0.0, (1.0 - optimizer_offload) * single_bytes, gradient_bytes
    )
    return xp.where(zero_stage >= 2.0, left, gradient_bytes)


@formula(returns="device_gradient_bytes", when=FSDP, **FULLY_SHARD)
def fsdp_gradient_bytes(gradient_bytes, optimizer_offload):
    """On-GPU gradient bytes per parameter: none where the host updates."""
    return gradient_bytes * (1.0 - optimizer_offload)


@formula(
    returns="weight_memory",
    assumes=("gathered weights as without offload",),
    **DEEPSPEED,
)
def left_weight_memory(weight_shard_memory, parameter_offload):
    """Memory of weights that stay on the GPU."""
    return weight_shard_memory * (1.0 - parameter_offload)


@formula(
    returns="weight_memory",
    assumes=("below stage 3 weights stay gathered, in the precision of GEMMs",),
    when=FSDP,
    **FULLY_SHARD,
)
def fsdp_left_weight_memory(
    weight_shard_memory,
    parameter_offload,
    zero_stage,
    gathered_bytes,
    stage_parameters,
    stage_expert_parameters,
):
    """Memory of weights that stay on the GPU: none at stage 3."""
    gathered = gathered_bytes * (stage_parameters + stage_expert_parameters)
    kept = parameter_offload * xp.where(zero_stage >= 3.0, 0.0, gathered)
    return weight_shard_memory * (1.0 - parameter_offload) + kept


# What the host holds, by GPU.


@formula(
    returns="offloaded_weight_memory",
    assumes=("of experts as many ranks have a shard as of other weights",),
    when=FSDP,
    **FULLY_SHARD,
)
def fsdp_offloaded_weight_memory(parameter_offload, weight_shard_memory, zero_stage, shards):
    """Weights in host memory: shards at every stage."""
    return parameter_offload * weight_shard_memory / xp.where(zero_stage >= 3.0, 1.0, shards)


# Ranks of the last stage update most.
of_stage("host_weight_memory", "offloaded_weight_memory", "last_stage", when=HOST)


@formula(
    returns="host_optimizer_memory",
    source="megatron",
    where="megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py",
    assumes=("the host has a copy of the gradients and of the master copy, in single precision",),
    when=HOST,
)
def offloaded_optimizer_memory(optimizer_offload, owned_parameters, optimizer_bytes, single_bytes):
    """Optimizer states and gradients in host memory per GPU."""
    return optimizer_offload * owned_parameters * (optimizer_bytes + single_bytes)


@formula(
    returns="host_optimizer_memory",
    assumes=(
        "of single precision weights the host has a copy, too",
        "weights are made in shards (zero.Init): else each rank first has all of them there",
    ),
    when=ZERO,
    **DEEPSPEED,
)
def zero_optimizer_memory(
    optimizer_offload,
    owned_parameters,
    optimizer_bytes,
    single_bytes,
    weight_bytes,
    gradient_bytes,
    zero_stage,
    num_micro_batches,
):
    """Optimizer states, gradients and 16-bit copies in host memory per GPU."""
    master = xp.where(weight_bytes < single_bytes, 0.0, single_bytes)
    updated = optimizer_offload * (optimizer_bytes + master + single_bytes)
    # Stage 3 has gradient partitions there, others updated weights on their way back, and what
    # accumulates.
    waiting = xp.where((zero_stage >= 2.0) & (num_micro_batches > 1.0), gradient_bytes, 0.0)
    copies = xp.where(zero_stage >= 3.0, gradient_bytes, weight_bytes + waiting)
    return owned_parameters * (updated + xp.where(optimizer_offload > 0.0, copies, 0.0))


@formula(
    returns="host_optimizer_memory",
    when=FSDP,
    **FULLY_SHARD,
)
def fsdp_optimizer_memory(optimizer_offload, owned_parameters, optimizer_bytes, gradient_bytes):
    """Optimizer states and gradients in host memory per GPU, weights excluded."""
    return optimizer_offload * owned_parameters * (optimizer_bytes + gradient_bytes)


# The first stage has most micro-batches in flight.
of_stage("host_stored_memory", "offloaded_activation_memory", "first_stage")
# DeepSpeed's estimate has 18 bytes a parameter and half as many again for buffers, so 27 where the
# tensors are 20.
OVER_TENSORS = 18.0 * 1.5 / 20.0 - 1.0


@formula(
    source="deepspeed",
    where="deepspeed/runtime/zero/stage3.py @edaa72212, estimate_zero3_model_states_mem_needs",
    assumes=(
        "includes pinned memory rounded up to powers of two by PyTorch (from memory, unverified)",
        "no overhead of activations",
    ),
)
def host_memory_upper(host_memory, host_optimizer_memory, host_weight_memory):
    """Offloaded memory per GPU with allocation overhead of states, upper estimate."""
    return host_memory + OVER_TENSORS * (host_optimizer_memory + host_weight_memory)


@formula(source="derivation")
def host_node_memory(host_memory, gpus_per_node, world_size):
    """Host memory per node of what its GPUs offload."""
    return host_memory * xp.minimum(gpus_per_node, world_size)
