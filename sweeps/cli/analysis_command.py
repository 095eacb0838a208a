"""``sweeps analysis``: a report for one configuration, a table for many."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from overhead.labels import TENSORS
from sweeps.cli.options import file_options, output_options, stated_sweep, tree_algorithms
from sweeps.errors import InputError, fault

if TYPE_CHECKING:
    from overhead.step.timeline import StepTimeline
    from sweeps.job import Job

# Options of ``sweeps analysis``, and the sweep of training steps that they state.

Command = TypeVar("Command", bound=Callable[..., Any])

# Flag names, the quantity or label that they give, and what it is.
PLAN_FLAGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--num-gpus", "--gpus"), "world_size", "GPUs of the plan.  [default: dp*tp*cp*pp]"),
    (("--dp",), "dp", "Data-parallel degree.  [default: what the others leave of the GPUs]"),
    (("--tp",), "tp", "Tensor-parallel degree.  [default: 1]"),
    (("--cp",), "cp", "Context-parallel degree.  [default: 1]"),
    (("--pp",), "pp", "Pipeline-parallel degree.  [default: 1]"),
    (("--ep",), "ep", "Expert-parallel degree.  [default: 1]"),
    (("--etp",), "etp", "Tensor-parallel degree of experts.  [default: tp]"),
    (("--virtual-stages",), "virtual_stages", "Virtual stages of a rank (interleaving)."),
    (("--micro-batch",), "micro_batch", "Sequences that a rank computes at once.  [default: 1]"),
    (("--global-batch",), "global_batch", "Sequences of a step, over all ranks."),
    (("--micro-batches",), "micro_batches", "Micro-batches of a step on a rank.  [default: 1]"),
    (("--zero-stage",), "zero_stage", "ZeRO stage, 0 to 3.  [default: the framework's, or 0]"),
    (("--sp",), "sequence_parallel", "Sequence parallelism beside tp: on or off."),
    (("--cp-kind",), "context_parallel", "all_to_all (Ulysses), ring or all_gather."),
    (("--hsdp-shard",), "hsdp_shard", "Ranks over which hybrid sharding shards."),
    (("--schedule",), "schedule", "Schedule of the pipeline: one_f_one_b, interleaved, .."),
    (("--recompute",), "recompute", "Activations to recompute: none, selective, full, .."),
    (("--imbalance",), "expert_imbalance", "Tokens of the busiest expert by the mean."),
    (("--mask",), "mask", "causal or full attention."),
    (("--tp-mechanism",), "tp_mechanism", "How tp overlaps: efficiency, userbuffers, decomposed."),
    (("--cp-mechanism",), "cp_mechanism", "How cp overlaps: efficiency, ring_exchange."),
    (("--dp-mechanism",), "dp_mechanism", "efficiency, ddp_buckets or megatron_buckets."),
)
MODEL_FLAGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--model",), "model", "Model(s) of the catalogue, or of Hugging Face's config.json."),
    (("--params", "--parameters"), "parameters", "Number of parameters, without shapes."),
    (("--seq-length", "--seq-len"), "sequence_length", "Tokens of a sequence."),
    (("--num-layers", "--layers"), "layers", "Layers."),
    (("--hidden-size",), "hidden_size", "Hidden size."),
    (("--heads", "--num-heads"), "heads", "Attention heads."),
    (("--kv-heads",), "kv_heads", "Key and value heads.  [default: as many as heads]"),
    (("--head-size",), "head_size", "Size of a head.  [default: hidden size by heads]"),
    (("--ffn-size",), "ffn_size", "Inner size of a dense layer's MLP."),
    (("--vocabulary-size", "--vocab-size"), "vocabulary_size", "Tokens in the vocabulary."),
    (("--gated",), "gated", "Whether the MLP is gated: on or off."),
    (("--tied-embeddings",), "tied_embeddings", "Whether input and output share a table."),
    (("--experts", "--num-experts"), "experts", "Routed experts of a layer."),
    (("--experts-per-token", "--top-k"), "experts_per_token", "Experts that a token is sent to."),
    (("--expert-ffn-size",), "expert_ffn_size", "Inner size of one routed expert."),
    (("--shared-ffn-size",), "shared_ffn_size", "Inner size of all shared experts together."),
    (("--dense-layers",), "dense_layers", "First layers of a mixture of experts that are dense."),
)
MACHINE_FLAGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--topology",), "topology", "Network(s), or all.  [default: hierarchical]"),
    (("--algorithm",), "algorithm", "Algorithm(s): a name, standard, nccl or auto."),
    (("--hardware",), "hardware", "Machine(s) of the catalogue.  [default: dgx-h100]"),
    (("--framework",), "framework", "Software that trains.  [default: megatron-lm]"),
    (("--precision",), "precision", "What matrices are multiplied in.  [default: bf16]"),
    (("--recipe",), "recipe", "Bytes of weights, gradients and optimizer, by name."),
    (("--attention-kernel",), "attention_kernel", "flash_2, flash_3, cudnn, unfused, .."),
    (("--weight-bytes",), "weight_bytes", "Bytes of a weight."),
    (("--gradient-bytes",), "gradient_bytes", "Bytes of a gradient."),
    (("--optimizer-bytes",), "optimizer_bytes", "Bytes of a parameter's optimizer states."),
    (("--memory-capacity",), "memory_capacity", "Memory of a GPU."),
    (("--gpus-per-node",), "gpus_per_node", "GPUs of a node."),
    (("--nics-per-node",), "nics_per_node", "Network cards of a node."),
    (("--nodes-per-pod",), "nodes_per_pod", "Nodes of a pod: a third level (hierarchical)."),
    (("--bandwidth",), "bandwidth", "One direction of a flat network's link."),
    (("--latency",), "latency", "Of a flat network's link."),
    (("--energy-per-bit",), "energy_per_bit", "Of a flat network's link."),
    (("--link",), "link", "Link of a flat network: auto, intra or inter."),
    (("--intra-bandwidth",), "intra_bandwidth", "Inside a node."),
    (("--intra-latency",), "intra_latency", "Inside a node."),
    (("--intra-efficiency",), "intra_efficiency", "Share of it that long messages reach."),
    (("--inter-bandwidth",), "inter_bandwidth", "Of one network card between nodes."),
    (("--inter-latency",), "inter_latency", "Between nodes."),
    (("--inter-efficiency",), "inter_efficiency", "Share of it that long messages reach."),
    (("--oversubscription",), "oversubscription", "Between nodes (2 halves the bandwidth)."),
    (("--pod-bandwidth",), "pod_bandwidth", "Of one network card between pods."),
    (("--pod-latency",), "pod_latency", "Between pods."),
    (("--pod-oversubscription",), "pod_oversubscription", "Between pods."),
    (("--mesh-nx",), "mesh_nx", "Ranks along x of a group that fills the mesh or torus."),
    (("--mesh-ny",), "mesh_ny", "Ranks along y."),
    (("--mesh-nz",), "mesh_nz", "Ranks along z."),
    (("--latency-per",), "latency_per", "What pays a latency: hop or message.  [default: hop]"),
    (("--price",), "price", "Price of a GPU, such as '2.5 USD/h'."),
    (("--training-tokens",), "training_tokens", "Tokens of the whole training, for its cost."),
)
ANALYSIS_FLAGS = (*PLAN_FLAGS, *MODEL_FLAGS, *MACHINE_FLAGS)
# Innermost first; Megatron-LM leaves out experts, or names them where they cut the same ranks.
RANK_ORDERS = ("tp-cp-dp-pp", "tp-cp-ep-dp-pp")
# What says all of a model, with the MLP's inner size.
SHAPES = (*TENSORS, "gated", "tied_embeddings")
SWITCHED = ("sequence_parallel", "gated", "tied_embeddings")
WORDS = {"on": "1", "true": "1", "yes": "1", "off": "0", "false": "0", "no": "0"}
# Labels of which "all" means every value; of the network's, the sweep itself knows what it means.
WHOLE = (
    "recompute", "schedule", "context_parallel", "attention_kernel", "precision", "mask",
    "tp_mechanism", "cp_mechanism", "dp_mechanism",
)  # fmt: skip


def analysis_options(command: Command) -> Command:
    """Add the options that state a sweep of training steps."""
    batch = "As --micro-batch: sequences that a rank computes at once."
    order = "Which ranks are neighbours, innermost first.  [default: tp-cp-dp-pp]"
    extra = (
        click.option("--batch-size", "batch_size", help=batch, metavar="VALUES"),
        click.option("--rank-order", "rank_order", help=order, metavar="ORDER"),
        click.option("--tree-algo", is_flag=True, help="The tree algorithm of an all_reduce."),
    )
    for option in reversed(extra):
        command = option(command)
    for flags, name, words in reversed(ANALYSIS_FLAGS):
        more: dict[str, Any] = {}
        if name == "sequence_parallel":
            more = {"is_flag": False, "flag_value": "on"}
        command = click.option(*flags, name, help=words, metavar="VALUES", **more)(command)
    return command


def flag_of(name: str) -> str:
    """Return the flag by which a quantity is given, or its name where there is none."""
    return next((flags[0] for flags, given, _ in ANALYSIS_FLAGS if given == name), name)


def stated_analysis(given: Mapping[str, Any]) -> dict[str, Any]:
    """Make of the command's options what a spec file would state."""
    options = {name: given[name] for _, name, _ in ANALYSIS_FLAGS}
    faults = [*_batch(options, given["batch_size"]), *_order(given["rank_order"])]
    faults += _model(options)
    if faults:
        raise InputError(faults)
    if given["tree_algo"]:
        topology = options["topology"] or "hierarchical"
        options["algorithm"] = tree_algorithms(topology, options["algorithm"])
    for name in SWITCHED:
        if options[name] is not None:
            words = (word.strip() for word in options[name].split(","))
            options[name] = ",".join(WORDS.get(word.lower(), word) for word in words)
    for name in WHOLE:
        if options[name] is not None and options[name].strip() == "all":
            options[name] = _every(name)
    return stated_sweep(options, "Training steps")


def _batch(options: dict[str, Any], batch: str | None) -> list[str]:
    """Give the micro-batch under its other name, too."""
    if batch is None:
        return []
    if options["micro_batch"] not in (None, batch):
        wrong = f"--micro-batch {options['micro_batch']} is the same, and another value"
        return [fault("--batch-size", batch, wrong, "one of the two")]
    options["micro_batch"] = batch
    return []


def _model(options: Mapping[str, Any]) -> list[str]:
    """Check that there is a model, and one alone."""
    if options["model"] is not None:
        if options["parameters"] is None:
            return []
        wrong = "stands beside --model, whose shapes give it"
        return [fault("--params", options["parameters"], wrong, "one of the two")]
    inner = "ffn_size" if options["expert_ffn_size"] is None else "expert_ffn_size"
    needed = [name for name in (*SHAPES, inner) if options[name] is None]
    if options["parameters"] is not None or not needed:
        return []
    shapes = "or shapes" if len(needed) > len(SHAPES) else "or the other shapes"
    flags = ", ".join(map(flag_of, needed))
    allowed = f"--model NAME, --params 70e9, {shapes}: {flags}"
    return [fault("--model", "(not given)", "needed", allowed)]


def _order(order: str | None) -> list[str]:
    if order is None or order in RANK_ORDERS:
        return []
    wrong = "isn't modelled"
    return [fault("--rank-order", order, wrong, f"{RANK_ORDERS[0]}, Megatron-LM's default")]


def _every(name: str) -> str:
    from sweeps.spec.axis import label_values

    return ",".join(label_values(name))


@click.command("analysis")
@analysis_options
@click.option("--timeline", metavar="FILE.json", help="Predicted course, as a Chrome trace.")
@click.option("--verbose", "-v", is_flag=True, help="Formula, source, and the numbers put in.")
@output_options
def command(**given: Any) -> int:
    """Memory, communication and step time of a training configuration.

    One value for every argument prints a report; several print a table.  --timeline writes when
    what of one plan's step runs; with --plot, a figure of it beside.
    """
    from sweeps.cli.analysis_job import analysis_job, check_printable
    from sweeps.own_formulas import load_formulas

    for path in given["formulas"]:
        load_formulas(Path(path))
    job = analysis_job(
        stated_analysis(given),
        command=["sweeps", *sys.argv[1:]],
        folders=[Path(folder) for folder in given["hardware_folder"]],
        options=file_options(given),
    )
    step = _timeline(job) if given["timeline"] else None
    writing = bool(given["output"] or (given["plot"] and step is None))
    small = check_printable(job, given, writing=writing)
    # What can't be printed isn't written either.
    lines: Iterable[str] = _lines(job, job.plan.evaluate(job.stored), given) if small else ()
    if writing:
        from sweeps.cli.write import default_folder, write_result

        given["output"] = given["output"] or str(default_folder() / "analysis.nc")
        lines = list(lines) if job.plan.grid.cells == 1 else lines
        write_result(job, given)
    sys.stdout.writelines(lines)
    if step is not None:
        from sweeps.cli.analysis_job import write_timeline

        write_timeline(job, step, given)
    return 0


def _timeline(job: Job) -> StepTimeline:
    """Return the course of a plan's step; where there is none, nothing is written either."""
    from sweeps.cli.analysis_job import timeline_of

    return timeline_of(job)


def _lines(job: Job, arrays: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is printed: records for programs, a report or a table for people."""
    from sweeps.cli.analysis_report import report, table_notes
    from sweeps.cli.records import Cells, as_csv, as_json, as_table

    cells = Cells(job.plan, arrays)
    if given["as_json"] or given["as_csv"]:
        yield from as_json(cells) if given["as_json"] else as_csv(cells)
    elif len(cells) == 1:
        yield from (line + "\n" for line in report(job, given["verbose"]))
    else:
        yield from as_table(cells)
        yield from (line + "\n" for line in table_notes(job, given["verbose"]))
