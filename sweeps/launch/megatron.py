"""A plan as arguments of Megatron-LM, and as a script that runs them.

Names of arguments are those of NVIDIA/Megatron-LM @d98e8a64dd (megatron/training/arguments.py and
the configurations from which it makes further ones).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from overhead.memory.quantities import MODULES
from sweeps.launch.megatron_model import model_arguments, unsaid_of_model
from sweeps.launch.settings import (
    FIRST_STEPS,
    FrameworkSettings,
    LaunchFile,
    end_layers,
    keeps_attention,
    options_of,
    overlaps,
    recomputed_layers,
    said,
)
from sweeps.launch.terms import MEGATRON, terms_of
from sweeps.search.request import Execution

FILE = "megatron-lm.sh"
SCHEDULES = ("one_f_one_b", "interleaved")
LAYOUT_CHUNKS = 256  # more aren't written out


def settings(plan: Execution) -> FrameworkSettings:
    """Return a plan's arguments of Megatron-LM."""
    lines = (
        *said(plan, MEGATRON, "batch"),
        *_parallelism(plan),
        *_precision(plan),
        *_software(plan),
    )
    missing = list(_unsaid(plan))
    if plan["tp"] > 1.0 or plan["cp"] > 1.0:
        missing.append("before Blackwell it wants CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment")
    return FrameworkSettings("Megatron-LM", lines, tuple(missing))


def launch_file(plan: Execution, heading: tuple[str, ...]) -> LaunchFile:
    """Return a script that runs a plan on made-up data: settings after its name are added."""
    missing = (*_unsaid(plan), *unsaid_of_model(plan))
    gpus = min(plan.given.get("gpus_per_node", plan["world_size"]), plan["world_size"])
    lines = [
        "#!/bin/bash",
        *(f"# {line}" for line in heading),
        *(f"# Not in this file: {text}" for text in missing),
        "# Run it on every node, in Megatron-LM's folder; arguments given to it are added.",
        "set -euo pipefail",
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        "",
        f"GPUS_PER_NODE={gpus:.0f}",
        f"NNODES={plan['world_size'] / gpus:.0f}",
        "NODE_RANK=${NODE_RANK:-${SLURM_NODEID:-0}}",
        "MASTER_ADDR=${MASTER_ADDR:-localhost}",
        "MASTER_PORT=${MASTER_PORT:-6000}",
        "",
        *_array("MODEL", model_arguments(plan)),
        *_array("BATCH", said(plan, MEGATRON, "batch")),
        *_array("PARALLELISM", _parallelism(plan)),
        *_array("PRECISION", (*_precision(plan), *_software(plan))),
        "# A first run on made-up data, which shows whether it is as fast as predicted.",
        *_array("RUN", _first_run(plan)),
        "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK \\",
        "    --master_addr $MASTER_ADDR --master_port $MASTER_PORT pretrain_gpt.py \\",
        '    "${MODEL[@]}" "${BATCH[@]}" "${PARALLELISM[@]}" "${PRECISION[@]}" "${RUN[@]}" "$@"',
    ]
    return LaunchFile(FILE, "\n".join(lines) + "\n", missing)


def _array(name: str, arguments: Iterable[str]) -> Iterator[str]:
    """Yield arguments as an array of a shell, each on its line."""
    yield f"{name}=("
    yield from (f"    {argument}" for argument in arguments)
    yield ")"


def _first_run(plan: Execution) -> list[str]:
    """Return what a run needs that says nothing of its cost."""
    return [
        "--mock-data",
        "--tokenizer-type NullTokenizer",
        # It adds a token for the end of a text.
        f"--vocab-size {plan['vocabulary_size'] - 1.0:.0f}",
        f"--make-vocab-size-divisible-by {plan.given.get('vocabulary_multiple', 128.0):.0f}",
        f"--train-iters {FIRST_STEPS}",
        "--lr 1e-5",
        "--eval-iters 0",
        "--log-interval 1",
        "--log-throughput",
    ]


def _parallelism(plan: Execution) -> Iterator[str]:
    yield from said(plan, MEGATRON, "degrees")
    yield from _pipeline(plan)
    yield from _sharding(plan)
    if plan["tp"] > 1.0 and plan["sequence_parallel"]:
        yield "--sequence-parallel"
        if overlaps(plan, "tp"):
            yield "--tp-comm-overlap"
    if plan["cp"] > 1.0:
        kinds = {ours: theirs for theirs, ours in terms_of(MEGATRON)["cp_comm_type"].items()}
        yield f"--cp-comm-type {kinds[plan.labels['context_parallel']]}"
        if plan.labels["context_parallel"] == "mixed":
            sizes = f"{plan['ulysses_ranks']:g} {plan['ring_ranks']:g}"
            yield f"--hierarchical-context-parallel-sizes {sizes}"
    if plan.routed:
        yield from said(plan, MEGATRON, "expert_degrees")
        yield from terms_of(MEGATRON)["dispatchers"][plan.labels["dispatcher"]]
        yield "--moe-grouped-gemm"
        if overlaps(plan, "ep"):
            yield "--overlap-moe-expert-parallel-comm"
    yield from _recompute(plan)
    yield from said(plan, MEGATRON, "offload")


def _pipeline(plan: Execution) -> Iterator[str]:
    if plan["pp"] == 1.0:
        return
    chunks, layers = _chunks(plan), int(plan["pipeline_layers"])
    ends = end_layers(plan)
    flags = tuple(f"--account-for-{end}-in-pipeline-split" for end in ("embedding", "loss"))
    if _uneven(plan):
        further = int(plan.given.get("mtp_layers", 0.0))
        if chunks <= LAYOUT_CHUNKS:
            yield f"--pipeline-model-parallel-layout '{layout(layers, chunks, ends, further)}'"
        return
    yield from (flag for flag, end in zip(flags, ends, strict=True) if end)
    if plan["virtual_pipeline_size"] > 1.0:
        yield f"--num-virtual-stages-per-pipeline-rank {plan['virtual_pipeline_size']:g}"


def _chunks(plan: Execution) -> int:
    return int(plan["pp"] * plan["virtual_pipeline_size"])


def _uneven(plan: Execution) -> bool:
    """Return whether chunks have different numbers of layers, which a layout says."""
    ends = end_layers(plan)
    return bool((plan["pipeline_layers"] + sum(ends)) % _chunks(plan)) or max(ends) > 1


def layout(layers: int, chunks: int, ends: tuple[int, int], further: int = 0) -> str:
    """Return which layers each chunk holds, as the model counts them: the last ones have fewer.

    E is the embedding, t a layer, m one that predicts a further token, L the loss.
    """
    layers_of_chunk = -(-(layers + sum(ends)) // chunks)
    layers_of = [
        layers_of_chunk - ends[0],
        *[layers_of_chunk] * (chunks - 2),
        layers_of_chunk - ends[1],
    ]
    free = sum(layers_of) - layers
    for chunk in reversed(range(chunks)):
        fewer = min(free, layers_of[chunk])
        layers_of[chunk] -= fewer
        free -= fewer
    each = ["t" * count for count in layers_of]
    each[0], each[-1] = f"E{each[0]}", f"{each[-1]}{'m' * further}L"
    return "|".join(each)


def _sharding(plan: Execution) -> Iterator[str]:
    stage = plan["zero_stage"]
    hides = overlaps(plan, "dp") and plan["dp"] * plan["cp"] > 1.0
    if stage >= 1.0:
        yield "--use-distributed-optimizer"
    if stage >= 2.0:
        strategies = {ours: theirs for theirs, ours in terms_of(MEGATRON)["sharding"].items()}
        yield "--use-megatron-fsdp"
        yield f"--data-parallel-sharding-strategy {strategies[stage]}"
        yield "--ckpt-format fsdp_dtensor"
    if hides:
        yield "--overlap-grad-reduce"
        if stage >= 1.0:
            yield "--overlap-param-gather"


def _recompute(plan: Execution) -> Iterator[str]:
    match plan.labels["recompute"]:
        case "full":
            yield "--recompute-granularity full"
            yield "--recompute-method uniform"
            yield "--recompute-num-layers 1"
        case "block" | "uniform" as method:
            yield "--recompute-granularity full"
            yield f"--recompute-method {method}"
            yield f"--recompute-num-layers {recomputed_layers(plan)}"
        case "selective":
            yield "--recompute-granularity selective"
            modules = [name for name in MODULES if plan.given.get(f"recompute_{name}", 0.0) > 0.0]
            yield f"--recompute-modules {' '.join(modules)}"


def _precision(plan: Execution) -> Iterator[str]:
    """Yield the precision of GEMMs, gradients and the optimizer's states."""
    precision = plan.labels["precision"]
    if precision in ("tf32", "fp32"):
        return
    yield "--fp16" if precision == "fp16" else "--bf16"
    if precision == "fp4":
        yield "--fp4-format e2m1"
    elif recipe := terms_of(MEGATRON)["fp8_recipes"].get(precision):
        recipe = terms_of(MEGATRON)["fp8_scalings"].get(plan.labels.get("fp8_scaling"), recipe)
        yield f"--fp8-format {'e4m3' if recipe == 'mxfp8' else 'hybrid'}"
        yield f"--fp8-recipe {recipe}"
    if "fp8_parameters" in options_of(plan):
        yield "--fp8-param-gather"
    if "fp8_attention" in options_of(plan):
        yield "--fp8-dot-product-attention"
    if "bf16_ends" in options_of(plan):
        yield "--first-last-layers-bf16"
    halved = plan.given.get("gradient_bytes", 4.0) < 4.0
    if halved and precision != "fp16":
        yield "--grad-reduce-in-bf16"
    elif not halved and precision == "fp16":
        yield "--accumulate-allreduce-grads-in-fp32"
    if "bf16_moments" in options_of(plan):
        if plan.given.get("optimizer_offload", 0.0) == 0.0:
            yield "--use-precision-aware-optimizer"
        yield from ("--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16")
    if "muon" in options_of(plan):
        yield "--optimizer muon"


def _software(plan: Execution) -> Iterator[str]:
    """Yield the kernels and graphs that a plan has."""
    kernel = plan.labels["attention_kernel"]
    backend = "fused" if kernel == "cudnn" else "unfused" if kernel == "unfused" else "flash"
    yield f"--attention-backend {backend}"
    if kind := terms_of(MEGATRON)["losses"].get(plan.labels["loss"]):
        yield from ("--cross-entropy-loss-fusion", f"--cross-entropy-fusion-impl {kind}")
    if "deterministic" in options_of(plan):
        yield "--deterministic-mode"
    if "cuda_graphs" in options_of(plan):
        yield "--cuda-graph-impl full_iteration"
    known = terms_of(MEGATRON)["graphs"]
    graphs = [modules for option, modules in known.items() if option in options_of(plan)]
    if graphs:
        yield "--cuda-graph-impl transformer_engine"
        yield f"--cuda-graph-modules {' '.join(graphs)}"


def _unsaid(plan: Execution) -> Iterator[str]:
    """Yield what of a plan Megatron-LM can't do, or what needs more than arguments."""
    if plan.given.get("parameter_offload", 0.0) > 0.0:
        yield "it has no weights in host memory"
    if plan["pp"] > 1.0:
        if plan.labels["schedule"] not in SCHEDULES:
            yield f"it has no schedule {plan.labels['schedule']}"
        if _uneven(plan) and _chunks(plan) > LAYOUT_CHUNKS:
            layers = int(plan["pipeline_layers"])
            yield f"{layers} layers in {_chunks(plan)} chunks need a layout of your own"
    if plan.labels["recompute"] in ("full_early_stop", "per_op"):
        yield f"it has no recomputation {plan.labels['recompute']}"
    if keeps_attention(plan):
        yield "its recomputation of whole layers repeats attention"
    if plan.labels["loss"] not in terms_of(MEGATRON)["losses"]:
        yield f"it has no loss {plan.labels['loss']}"
