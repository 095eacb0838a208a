"""The settings that express a plan in Megatron-LM, DeepSpeed and torchtitan, and what they can't.

Names of settings are those of NVIDIA/Megatron-LM @d98e8a64dd (megatron/training/arguments.py),
pytorch/torchtitan @6404b93242 (torchtitan/config/job_config.py) and DeepSpeed's configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from overhead.memory.quantities import MODULES
from sweeps.search.request import Execution


@dataclass(frozen=True)
class Settings:
    """A plan in the words of a framework."""

    framework: str  # Which
    lines: tuple[str, ...]  # Arguments, or a configuration file's lines
    # What of the plan the framework can't express, or needs more for than settings
    missing: tuple[str, ...] = ()


def settings_of(plan: Execution) -> tuple[Settings, ...]:
    """Return a plan's settings in every framework."""
    return tuple(express(plan) for express in FRAMEWORKS.values())


# Megatron-LM.

COMMUNICATION = {"ring": "p2p", "all_to_all": "a2a", "all_gather": "all_gather", "mixed": "a2a+p2p"}
SHARDING = {2.0: "optim_grads", 3.0: "optim_grads_params"}
LAYOUT_CHUNKS = 256  # more aren't written out


def megatron(plan: Execution) -> Settings:
    """Return a plan's arguments of Megatron-LM."""
    missing: list[str] = []
    lines = [
        f"--tensor-model-parallel-size {plan['tp']:g}",
        f"--pipeline-model-parallel-size {plan['pp']:g}",
        f"--context-parallel-size {plan['cp']:g}",
        *_megatron_batch(plan),
        *_megatron_pipeline(plan, missing),
        *_megatron_sharding(plan),
    ]
    if plan["tp"] > 1.0 and plan["sequence_parallel"]:
        lines.append("--sequence-parallel")
        if _hides(plan, "tp"):
            lines.append("--tp-comm-overlap")
    if plan["cp"] > 1.0:
        lines.append(f"--cp-comm-type {COMMUNICATION[plan.labels['context_parallel']]}")
        if plan.labels["context_parallel"] == "mixed":
            sizes = f"{plan['ulysses_ranks']:g} {plan['ring_ranks']:g}"
            lines.append(f"--hierarchical-context-parallel-sizes {sizes}")
    if plan.routed:
        lines.append(f"--expert-model-parallel-size {plan['ep']:g}")
        lines.append(f"--expert-tensor-parallel-size {plan['etp']:g}")
        lines += ["--moe-token-dispatcher-type alltoall", "--moe-grouped-gemm"]
    lines += _megatron_recompute(plan, missing)
    if plan["tp"] > 1.0 or plan["cp"] > 1.0:
        missing.append("before Blackwell it wants CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment")
    return Settings("Megatron-LM", tuple(lines), tuple(missing))


def _hides(plan: Execution, dimension: str) -> bool:
    """Return whether a dimension's communication overlaps, by a mechanism or by a share."""
    named = plan.labels.get(f"{dimension}_mechanism", "efficiency") != "efficiency"
    return named or plan.given.get(f"{dimension}_overlap", 0.0) > 0.0


def _megatron_batch(plan: Execution) -> Iterator[str]:
    yield f"--micro-batch-size {plan['micro_batch_size']:g}"
    yield f"--global-batch-size {plan['global_batch_size']:g}"
    yield f"--seq-length {plan['sequence_length']:g}"


def _megatron_pipeline(plan: Execution, missing: list[str]) -> Iterator[str]:
    if plan["pp"] == 1.0:
        return
    schedule = plan.labels["schedule"]
    if schedule not in SCHEDULES["megatron-lm"]:
        missing.append(f"it has no schedule {schedule}")
    chunks, layers = int(plan["pp"] * plan["virtual_pipeline_size"]), int(plan["pipeline_layers"])
    ends = _ends(plan)
    flags = tuple(f"--account-for-{end}-in-pipeline-split" for end in ("embedding", "loss"))
    if (layers + sum(ends)) % chunks or max(ends) > 1:
        further = int(plan.given.get("mtp_layers", 0.0))
        if chunks <= LAYOUT_CHUNKS:
            yield f"--pipeline-model-parallel-layout '{layout(layers, chunks, ends, further)}'"
        else:
            missing.append(f"{layers} layers in {chunks} chunks need a layout of your own")
        return
    yield from (flag for flag, end in zip(flags, ends, strict=True) if end)
    if plan["virtual_pipeline_size"] > 1.0:
        yield f"--num-virtual-stages-per-pipeline-rank {plan['virtual_pipeline_size']:g}"


def _ends(plan: Execution) -> tuple[int, int]:
    """Return as how many layers the embedding and the loss count."""
    embedding = int(plan.given.get("embedding_layer_weight", 0.0))
    return embedding, int(plan.given.get("head_layer_weight", embedding))


def layout(layers: int, chunks: int, ends: tuple[int, int], further: int = 0) -> str:
    """Return which layers each chunk holds, as the model counts them: the last ones have fewer.

    E is the embedding, t a layer, m one that predicts a further token, L the loss.
    """
    places = -(-(layers + sum(ends)) // chunks)
    layers_of = [places - ends[0], *[places] * (chunks - 2), places - ends[1]]
    free = sum(layers_of) - layers
    for place in reversed(range(chunks)):
        fewer = min(free, layers_of[place])
        layers_of[place] -= fewer
        free -= fewer
    each = ["t" * count for count in layers_of]
    each[0], each[-1] = f"E{each[0]}", f"{each[-1]}{'m' * further}L"
    return "|".join(each)


def _megatron_sharding(plan: Execution) -> Iterator[str]:
    stage = plan["zero_stage"]
    hides = _hides(plan, "dp") and plan["dp"] * plan["cp"] > 1.0
    if stage >= 1.0:
        yield "--use-distributed-optimizer"
    if stage in SHARDING:
        yield "--use-megatron-fsdp"
        yield f"--data-parallel-sharding-strategy {SHARDING[stage]}"
        yield "--ckpt-format fsdp_dtensor"
    if hides:
        yield "--overlap-grad-reduce"
        if stage >= 1.0:
            yield "--overlap-param-gather"


def _megatron_recompute(plan: Execution, missing: list[str]) -> Iterator[str]:
    match plan.labels["recompute"]:
        case "none":
            return
        case "full":
            yield "--recompute-granularity full"
            yield "--recompute-method uniform"
            yield "--recompute-num-layers 1"
        case "block" | "uniform" as method:
            yield "--recompute-granularity full"
            yield f"--recompute-method {method}"
            layers = plan.given.get("recompute_layers", plan.known.get("recompute_layers", 1.0))
            yield f"--recompute-num-layers {layers:g}"
        case "selective":
            yield "--recompute-granularity selective"
            modules = [one for one in MODULES if plan.given.get(f"recompute_{one}", 0.0) > 0.0]
            yield f"--recompute-modules {' '.join(modules)}"
        case other:
            missing.append(f"it has no recomputation {other}")


# DeepSpeed.


def deepspeed(plan: Execution) -> Settings:
    """Return a plan's configuration of DeepSpeed, as JSON."""
    missing: list[str] = []
    stage, stages = int(plan["zero_stage"]), int(plan["pp"])
    hides = _hides(plan, "dp")
    content: dict[str, Any] = {
        "train_batch_size": int(plan["global_batch_size"]),
        "train_micro_batch_size_per_gpu": int(plan["micro_batch_size"]),
        "gradient_accumulation_steps": int(plan["num_micro_batches"]),
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "overlap_comm": hides},
    }
    if plan["tp"] > 1.0:
        content["tensor_parallel"] = {"autotp_size": int(plan["tp"])}
        if stage == 3:
            missing.append("its tensor parallelism doesn't go with ZeRO 3")
    if plan["cp"] > 1.0:
        content["sequence_parallel_size"] = int(plan["cp"])
        if plan.labels["context_parallel"] != "all_to_all":
            missing.append("it splits the context by all_to_all alone (Ulysses)")
    if stages > 1:
        missing.append(f"in code: PipelineModule(layers=.., num_stages={stages})")
        if stage >= 2:
            missing.append("its pipeline doesn't go with ZeRO 2 and 3")
        if plan["virtual_pipeline_size"] > 1.0:
            missing.append("its pipeline isn't interleaved")
    if plan.routed:
        text = f"deepspeed.moe.layer.MoE(.., ep_size={plan['ep']:g})"
        missing.append(f"in code: {text}")
        if plan["etp"] > 1.0:
            missing.append("with enable_expert_tensor_parallelism=True")
    if plan.labels["recompute"] != "none":
        missing.append("in code: recompute layers with deepspeed.checkpointing.checkpoint")
    lines = json.dumps(content, indent=2).splitlines()
    return Settings("DeepSpeed", tuple(lines), tuple(missing))


# torchtitan.

TITAN_SCHEDULES = {
    "one_f_one_b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "gpipe": "GPipe",
    "zero_bubble_v": "ZBVZeroBubble",
    "dual_pipe_v": "DualPipeV",
}
TITAN_RECOMPUTE: Mapping[str, tuple[str, ...]] = {
    "none": ('mode = "none"',),
    "per_op": ('mode = "selective"', 'selective_ac_option = "op"'),
    "full": ('mode = "full"',),
    "full_early_stop": ('mode = "full"', "early_stop = true"),
}


def torchtitan(plan: Execution) -> Settings:
    """Return a plan's configuration of torchtitan, as TOML."""
    missing: list[str] = []
    local = plan["global_batch_size"] / plan["dp"]
    lines = [
        "[training]",
        # With a pipeline a rank takes its whole batch at once, and cuts it up.
        f"local_batch_size = {local if plan['pp'] > 1.0 else plan['micro_batch_size']:g}",
        f"global_batch_size = {plan['global_batch_size']:g}",
        f"seq_len = {plan['sequence_length']:g}",
        "",
        "[parallelism]",
        *_titan_sharding(plan, missing),
        f"tensor_parallel_degree = {plan['tp']:g}",
        f"context_parallel_degree = {plan['cp']:g}",
        *_titan_pipeline(plan, missing),
    ]
    if plan["cp"] > 1.0 and plan.labels["context_parallel"] != "all_gather":
        missing.append("it gathers keys and values, or rotates them by all-to-all")
    if plan.routed:
        lines.append(f"expert_parallel_degree = {plan['ep']:g}")
        if plan["etp"] > 1.0:
            missing.append("experts that are tensor-parallel need a later version")
    if plan["tp"] > 1.0 and not plan["sequence_parallel"]:
        missing.append("its tensor parallelism is always sequence-parallel, too")
    again = plan.labels["recompute"]
    lines += ["", "[activation_checkpoint]", *TITAN_RECOMPUTE.get(again, ('mode = "selective"',))]
    if again not in TITAN_RECOMPUTE:
        missing.append(f"it has no recomputation {again}")
    return Settings("torchtitan", tuple(lines), tuple(missing))


def _titan_sharding(plan: Execution, missing: list[str]) -> Iterator[str]:
    stage = plan["zero_stage"]
    shard = stage >= 2.0
    replicas, shards = (1.0, plan["dp"]) if shard else (plan["dp"], 1.0)
    if shard and plan.labels.get("sharding") == "hybrid":
        shards = plan["hsdp_shard_size"] / plan["cp"]
        replicas = plan["dp"] / shards
    yield f"data_parallel_replicate_degree = {replicas:g}"
    yield f"data_parallel_shard_degree = {shards:g}"
    if shard:
        yield f'fsdp_reshard_after_forward = "{"always" if stage == 3.0 else "never"}"'
    elif stage == 1.0:
        missing.append("it shards gradients with the optimizer (ZeRO 2, 3), or nothing")
    elif plan["dp"] > 1.0 and plan["world_size"] > plan["dp"]:
        missing.append("data parallelism without shards doesn't go with other degrees there")


def _titan_pipeline(plan: Execution, missing: list[str]) -> Iterator[str]:
    yield f"pipeline_parallel_degree = {plan['pp']:g}"
    if plan["pp"] == 1.0:
        return
    schedule = plan.labels["schedule"]
    if schedule not in TITAN_SCHEDULES:
        missing.append(f"it has no schedule that is {schedule} (nearest: ZBVZeroBubble)")
    yield f'pipeline_parallel_schedule = "{TITAN_SCHEDULES.get(schedule, "ZBVZeroBubble")}"'
    yield f"pipeline_parallel_microbatch_size = {plan['micro_batch_size']:g}"
    layers, chunks = plan["pipeline_layers"], plan["pp"] * plan["virtual_pipeline_size"]
    ends = _ends(plan)
    yield f"pipeline_parallel_first_stage_less_layers = {ends[0]}"
    yield f"pipeline_parallel_last_stage_less_layers = {ends[1]}"
    if (layers + sum(ends)) % chunks:
        missing.append("stages that are uneven want module_fqns_per_model_part written out")
    else:
        yield f"pipeline_parallel_layers_per_stage = {(layers + sum(ends)) / chunks:g}"


# Of a pipeline, what each framework can run.
SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "megatron-lm": ("one_f_one_b", "interleaved"),
    "deepspeed": ("one_f_one_b",),
    "torchtitan": tuple(TITAN_SCHEDULES),
}
FRAMEWORKS = {"megatron-lm": megatron, "deepspeed": deepspeed, "torchtitan": torchtitan}
