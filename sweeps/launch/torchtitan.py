"""A plan as torchtitan's configuration: a TOML file.

Names of settings are those of pytorch/torchtitan @6404b93242, torchtitan/config/job_config.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from sweeps.launch.settings import (
    FIRST_STEPS,
    FrameworkSettings,
    LaunchFile,
    end_layers,
    keeps_attention,
    options_of,
    recomputed_layers,
)
from sweeps.launch.terms import terms_of
from sweeps.search.request import Execution

FILE = "torchtitan.toml"
RECOMPUTE: Mapping[str, tuple[str, ...]] = {
    "none": ('mode = "none"',),
    "per_op": ('mode = "selective"', 'selective_ac_option = "op"'),
    "full": ('mode = "full"',),
    "full_early_stop": ('mode = "full"', "early_stop = true"),
}
# By precision, which converter casts GEMMs to it.
CONVERTERS = {"fp8": "float8", "fp8_current": "float8", "mxfp8": "mx"}


def settings(plan: Execution) -> FrameworkSettings:
    """Return what a plan says of torchtitan's configuration, as TOML."""
    return FrameworkSettings("torchtitan", tuple(config(plan)), tuple(unsaid(plan)))


def launch_file(plan: Execution, heading: tuple[str, ...]) -> LaunchFile:
    """Return a configuration that runs: the plan, the model, a public sample of text as data."""
    missing = [*unsaid(plan)]
    name, flavor = terms_of("torchtitan")["models"].get(plan.labels.get("model"), ("", ""))
    if not name:
        model = plan.labels.get("model", "of its own")
        missing.insert(0, f"[model] name and flavor: torchtitan has no model {model}")
    converter = CONVERTERS.get(plan.labels["precision"])
    lines = [
        *(f"# {line}" for line in heading),
        *(f"# Not in this file: {text}" for text in missing),
        "[job]",
        'dump_folder = "outputs"',
        "",
        "[model]",
        f'name = "{name}"',
        f'flavor = "{flavor}"',
        f'converters = ["{converter}"]' if converter else "converters = []",
        "",
        "[metrics]",
        "log_freq = 1",
        "",
        "[lr_scheduler]",
        "warmup_steps = 2",
        "",
        *_training(plan),
        f"steps = {FIRST_STEPS}",
        'dataset = "c4_test"',
        "",
        *_plan(plan),
        "",
        "[compile]",
        *_compiled(plan),
        *(["", f"[{converter}]", *_low_precision(plan)] if converter else []),
    ]
    return LaunchFile(FILE, "\n".join(lines) + "\n", tuple(missing))


def _compiled(plan: Execution) -> Iterator[str]:
    """Yield what torch.compile is on for: the model, the loss, or both."""
    model, loss = "eager" not in options_of(plan), plan.labels["loss"]
    parts = {"model": model, "loss": loss == "compiled" or (model and loss != "eager")}
    yield f"enable = {'true' if any(parts.values()) else 'false'}"
    if parts["model"] != parts["loss"]:
        yield f"components = {json.dumps([name for name, on in parts.items() if on])}"


def _low_precision(plan: Execution) -> Iterator[str]:
    """Yield how the converter casts: of the head nothing, of FSDP's gathers what is said."""
    yield 'filter_fqns = ["output"]'
    if plan.labels["precision"] == "mxfp8":
        return
    rows = "row" if "rowwise_fp8" in options_of(plan) else ""
    if plan.labels.get("fp8_scaling", rows) == "row":
        yield 'recipe_name = "rowwise"'
    elif plan.given.get("gathered_bytes", 2.0) < 2.0:
        yield "enable_fsdp_float8_all_gather = true"
        yield "precompute_float8_dynamic_scale_for_fsdp = true"
    if "fp8_experts" in options_of(plan):
        yield 'moe_fqns_prototype = ["experts"]'


def config(plan: Execution) -> Iterator[str]:
    """Yield the lines of a plan."""
    yield from _training(plan)
    yield ""
    yield from _plan(plan)


def _training(plan: Execution) -> Iterator[str]:
    local = plan["global_batch_size"] / plan["dp"]
    yield "[training]"
    # With a pipeline a rank takes its whole batch at once, and cuts it up.
    yield f"local_batch_size = {local if plan['pp'] > 1.0 else plan['micro_batch_size']:g}"
    yield f"global_batch_size = {plan['global_batch_size']:.0f}"
    yield f"seq_len = {plan['sequence_length']:.0f}"
    if "deterministic" in options_of(plan):
        yield "deterministic = true"
    if _offloads(plan):
        yield "enable_cpu_offload = true"


def _offloads(plan: Execution) -> bool:
    """Return whether states are in host memory."""
    names = ("optimizer_offload", "parameter_offload")
    return any(plan.given.get(name, 0.0) > 0.0 for name in names)


def _plan(plan: Execution) -> Iterator[str]:
    yield "[parallelism]"
    yield from _sharding(plan)
    yield f"tensor_parallel_degree = {plan['tp']:g}"
    if plan["tp"] > 1.0 and "async_tp" in options_of(plan):
        yield "enable_async_tensor_parallel = true"
    yield f"context_parallel_degree = {plan['cp']:g}"
    yield from _pipeline(plan)
    if plan.routed:
        yield f"expert_parallel_degree = {plan['ep']:g}"
    yield from ("", "[activation_checkpoint]")
    yield from _recompute(plan)


def _recompute(plan: Execution) -> Iterator[str]:
    """Yield how activations are recomputed; of a chunk's layers every so many-th whole."""
    again = plan.labels["recompute"]
    if again in RECOMPUTE:
        yield from RECOMPUTE[again]
        return
    yield 'mode = "selective"'
    if again == "block":
        chunks = plan["pp"] * plan["virtual_pipeline_size"]
        every = max(round(plan["pipeline_layers"] / chunks / recomputed_layers(plan)), 1)
        yield f'selective_ac_option = "{every}"'


def _sharding(plan: Execution) -> Iterator[str]:
    stage = plan["zero_stage"]
    shard = stage >= 1.0
    replicas, shards = (1.0, plan["dp"]) if shard else (plan["dp"], 1.0)
    if shard and plan.labels.get("sharding") == "hybrid":
        shards = plan["hsdp_shard_size"] / plan["cp"]
        replicas = plan["dp"] / shards
    yield f"data_parallel_replicate_degree = {replicas:g}"
    yield f"data_parallel_shard_degree = {shards:g}"
    if shard:
        yield f'fsdp_reshard_after_forward = "{"always" if stage == 3.0 else "never"}"'


def _pipeline(plan: Execution) -> Iterator[str]:
    yield f"pipeline_parallel_degree = {plan['pp']:g}"
    if plan["pp"] == 1.0:
        return
    schedules = terms_of("torchtitan")["schedules"]
    schedule = schedules.get(plan.labels["schedule"], schedules["zero_bubble_v"])
    yield f'pipeline_parallel_schedule = "{schedule}"'
    yield f"pipeline_parallel_microbatch_size = {plan['micro_batch_size']:g}"
    layers, chunks = plan["pipeline_layers"], plan["pp"] * plan["virtual_pipeline_size"]
    ends = end_layers(plan)
    yield f"pipeline_parallel_first_stage_less_layers = {ends[0]}"
    yield f"pipeline_parallel_last_stage_less_layers = {ends[1]}"
    if not (layers + sum(ends)) % chunks:
        yield f"pipeline_parallel_layers_per_stage = {(layers + sum(ends)) / chunks:g}"


def _unsaid_recompute(plan: Execution) -> Iterator[str]:
    again = plan.labels["recompute"]
    if again == "block":
        yield "of a chunk's layers it recomputes every so many-th: [activation_checkpoint] is near"
    elif again not in RECOMPUTE:
        yield f"it has no recomputation {again}"
    if keeps_attention(plan):
        yield "its recomputation of whole layers repeats attention"


def _unsaid_loss(loss: str) -> Iterator[str]:
    if loss == "chunked":
        yield "a loss in chunks wants ChunkedCELoss, in its Python configuration"
    elif loss not in ("compiled", "eager", "vocab_parallel"):  # Megatron-LM's own
        yield f"it has no loss {loss}"


def unsaid(plan: Execution) -> Iterator[str]:
    """Yield what the configuration doesn't say, or torchtitan can't do."""
    stage = plan["zero_stage"]
    if stage == 1.0:
        yield "it shards gradients with the optimizer: ZeRO 2 is the nearest"
    elif stage == 0.0 and plan["dp"] > 1.0 and plan["world_size"] > plan["dp"]:
        yield "data parallelism without shards doesn't go with other degrees there"
    if plan["pp"] > 1.0:
        schedule, chunks = plan.labels["schedule"], plan["pp"] * plan["virtual_pipeline_size"]
        if schedule not in terms_of("torchtitan")["schedules"]:
            yield f"it has no schedule that is {schedule} (nearest: ZBVZeroBubble)"
        if (plan["pipeline_layers"] + sum(end_layers(plan))) % chunks:
            yield "stages that are uneven want module_fqns_per_model_part written out"
    if plan["cp"] > 1.0 and plan.labels["context_parallel"] != "all_gather":
        yield "it gathers keys and values, or rotates them by all-to-all"
    yield from _unsaid_loss(plan.labels["loss"])
    if plan.routed and plan["etp"] > 1.0:
        yield "experts that are tensor-parallel need a later version"
    if plan["tp"] > 1.0 and not plan["sequence_parallel"]:
        yield "its tensor parallelism is always sequence-parallel, too"
    yield from _unsaid_recompute(plan)
    if plan.labels["precision"] not in ("bf16", *CONVERTERS):
        yield f"it has no GEMMs in {plan.labels['precision']}"
    together = plan.labels.get("host_states") == "fsdp_offload"
    if _offloads(plan) and not (together or plan.given.get("parameter_offload", 0.0)):
        yield "the optimizer alone isn't offloaded there: training.enable_cpu_offload takes weights"
