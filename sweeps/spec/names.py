"""What quantities and labels are called beside their own names, by options and in Python.

The first name of each is the one that help and messages have; the others are understood wherever
it is.  An option has hyphens in place of underscores.
"""

from __future__ import annotations

from sweeps.former import FORMER

NAMES: dict[str, tuple[str, ...]] = {
    "collective": ("collective", "op"),
    "ranks": ("gpus", "ranks", "N", "num_gpus"),
    "world_size": ("gpus", "world_size", "ranks", "N", "num_gpus"),
    "message_bytes": ("message_size", "message_bytes", "M"),
    "global_batch_size": ("global_batch_size", "global_batch"),
    "micro_batch_size": ("micro_batch_size", "micro_batch"),
    "tokens_per_step": ("batch_tokens", "tokens_per_step"),
    "sequence_length": ("seq_len", "seq_length", "sequence_length"),
    "parameters": ("parameters", "params"),
    "layers": ("num_layers", "layers"),
    "heads": ("num_heads", "heads"),
    "vocabulary_size": ("vocabulary_size", "vocab_size"),
    "gated_mlp": ("gated_mlp", "gated"),
    "experts": ("num_experts", "experts"),
    "experts_per_token": ("experts_per_token", "top_k"),
    "mask": ("attention_mask", "mask"),
    "sequence_parallel": ("sequence_parallel", "sp"),
    "context_parallel": ("cp_comm_type", "cp_kind", "context_parallel"),
    "virtual_pipeline_size": ("vpp", "virtual_stages"),
    "embedding_layer_weight": ("count_embedding_as", "embedding_as_layer"),
    "head_layer_weight": ("count_head_as", "loss_as_layer"),
    "expert_load_imbalance": ("expert_load_imbalance", "imbalance", "expert_imbalance"),
    "rank_load_imbalance": ("rank_load_imbalance", "expert_heat"),
    "recipe": ("optimizer_recipe", "recipe"),
    "memory_capacity": ("gpu_memory", "memory_capacity"),
    "software": ("collective_library", "software"),
    "environment": ("launch_mode", "environment"),
    "latency_per": ("latency_model", "latency_per"),
    "gpu_hour_price": ("price", "gpu_hour_price"),
    "capital_cost": ("capital_cost", "capital"),
    "parameter_offload": ("param_offload", "parameter_offload"),
    "measured_step_time": ("measured_step", "measured_step_time"),
    # Of a search alone.
    "memory_threshold": ("max_memory_use", "memory_threshold"),
    "explain": ("inspect", "explain"),
    "lost_nodes": ("failed_nodes", "lost_nodes"),
    "script": ("compare_script", "script"),
}
# Nodes, times the GPUs of each: of a training step `world_size`, of one operation `ranks`.
NODES = "nodes"
# The number of GPUs, of a training step and of one operation.
GPUS = ("world_size", "ranks")

# By other name what it means; those of the number of GPUs depend on what is asked.
_OF_GPUS = {name for gpu in GPUS for name in NAMES[gpu]} - {*GPUS}
_MEANT = {
    name: present_name
    for present_name, names in NAMES.items()
    for name in names
    if present_name not in GPUS and name != present_name
}
_FORMER_OF: dict[str, list[str]] = {}
for _former, _own in FORMER.items():
    _FORMER_OF.setdefault(_own, []).append(_former)
OTHER_NAMES = (*sorted(_OF_GPUS), *_MEANT)


def quantity_of(name: str, *, training: bool) -> str:
    """Return the quantity or label that a name means, or the name where it is none of these."""
    if name in _OF_GPUS:
        return GPUS[0] if training else GPUS[1]
    meant = _MEANT.get(name, name)
    return FORMER.get(meant, meant)


def names_of(present_name: str) -> tuple[str, ...]:
    """Return the names that a quantity or label is given by, the one that is shown first."""
    names = NAMES.get(present_name, (present_name,))
    return (*names, *(name for name in _FORMER_OF.get(present_name, ()) if name not in names))
