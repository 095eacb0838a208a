"""A plan as DeepSpeed's configuration: JSON, and what is in code there.

Names of settings are those of deepspeed/runtime/config.py and deepspeed/runtime/zero/config.py
(deepspeedai/DeepSpeed 0.19).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sweeps.launch.settings import FrameworkSettings, LaunchFile, overlaps
from sweeps.search.request import Execution

SCHEDULES = ("one_f_one_b",)
FILE = "deepspeed.json"
# By precision the data type that the engine holds weights and gradients in.
TYPES = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16", "fp4": "bf16", "tf32": "", "fp32": ""}


def settings(plan: Execution) -> FrameworkSettings:
    """Return a plan's configuration of DeepSpeed, as JSON."""
    lines = json.dumps(config(plan), indent=2).splitlines()
    return FrameworkSettings("DeepSpeed", tuple(lines), tuple(unsaid(plan)))


def launch_file(plan: Execution, _: tuple[str, ...]) -> LaunchFile:
    """Return the configuration as a file; JSON has no comments for a heading."""
    return LaunchFile(FILE, json.dumps(config(plan), indent=2) + "\n", tuple(unsaid(plan)))


def config(plan: Execution) -> dict[str, Any]:
    """Return a plan's configuration of DeepSpeed."""
    zero: dict[str, Any] = {"stage": int(plan["zero_stage"]), "overlap_comm": overlaps(plan, "dp")}
    offloaded = plan.given.get("optimizer_offload", 0.0)
    if offloaded > 0.0:
        ratio = {"ratio": offloaded} if offloaded < 1.0 else {}
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True, **ratio}
    if plan.given.get("parameter_offload", 0.0) > 0.0:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    content: dict[str, Any] = {
        "train_batch_size": int(plan["global_batch_size"]),
        "train_micro_batch_size_per_gpu": int(plan["micro_batch_size"]),
        "gradient_accumulation_steps": int(plan["num_micro_batches"]),
    }
    if held := TYPES[_width(plan)]:
        content[held] = {"enabled": True}
    if plan.given.get("gradient_bytes") == plan.given.get("single_bytes"):
        content["data_types"] = {"grad_accum_dtype": "fp32"}
    content["zero_optimization"] = zero
    if plan["tp"] > 1.0:
        content["tensor_parallel"] = {"autotp_size": int(plan["tp"])}
    if plan["cp"] > 1.0:
        content["sequence_parallel_size"] = int(plan["cp"])
    return content


def _width(plan: Execution) -> str:
    """Return a precision without how its numbers are scaled."""
    precision = plan.labels["precision"].removeprefix("mx")
    return precision.partition("_")[0]


def unsaid(plan: Execution) -> Iterator[str]:
    """Yield what the configuration doesn't say, or DeepSpeed can't do."""
    stage, stages = int(plan["zero_stage"]), int(plan["pp"])
    if _width(plan) in ("fp8", "fp4"):
        yield f"in code: GEMMs in {plan.labels['precision']} by Transformer Engine's layers"
    if plan["tp"] > 1.0 and stage == 3:
        yield "its tensor parallelism doesn't go with ZeRO 3"
    if plan["cp"] > 1.0 and plan.labels["context_parallel"] != "all_to_all":
        yield "it splits the context by all_to_all alone (Ulysses)"
    if stages > 1:
        yield f"in code: PipelineModule(layers=.., num_stages={stages})"
        if stage >= 2:
            yield "its pipeline doesn't go with ZeRO 2 and 3"
        if plan["virtual_pipeline_size"] > 1.0:
            yield "its pipeline isn't interleaved"
    if plan.routed:
        yield f"in code: deepspeed.moe.layer.MoE(.., ep_size={plan['ep']:g})"
        if plan["etp"] > 1.0:
            yield "with enable_expert_tensor_parallelism=True"
    if 0.0 < plan.given.get("parameter_offload", 0.0) < 1.0:
        yield "offload_param takes all weights, or none"
    if plan.labels["recompute"] != "none":
        yield "in code: recompute layers with deepspeed.checkpointing.checkpoint"
