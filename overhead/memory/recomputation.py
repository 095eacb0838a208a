"""What is kept for the backward, and what is computed again: layers, or modules of a layer.

The label ``recompute`` says what: nothing, modules of each layer (``selective``), every layer
(``full``, ``full_early_stop``, in units of several ``uniform``), every second product (``per_op``),
or the first ``recompute_layers`` of each chunk (``block``), by default as few as fit.

What is kept of a share of layers may wait in the host's memory (``activation_offload``).
"""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, declare, formula
from overhead.memory.stage import CANDIDATES
from overhead.model.order import of_stage

PIPELINE = cited("narayanan2021", "section 2.2")
TOTAL = cited("korthikanti2022", "section 4.3")

# What a layer keeps, by label `recompute`; nothing without a backward.

MODULES = cited(
    "megatron",
    "megatron/core/transformer/transformer_config.py: recompute_modules;"
    " transformer_layer.py, multi_latent_attention.py, moe/moe_layer.py and experts.py",
)
MEGATRON_BLOCK = cited(
    "megatron", "megatron/core/transformer/transformer_block.py: recompute_num_layers"
)
IN_BLOCK, UNIFORM = {"recompute": "block"}, {"recompute": "uniform"}
PER_OP = cited(
    "torchtitan", "torchtitan/models/llama3/infra/parallelize.py, _save_list and _custom_policy"
)
EVERY_SECOND = (
    "the layer input, outputs of every second GEMM (queries, values, MLP up-projection, "
    "down-projection of a gated MLP), attention output and reduce-scatter outputs"
)
SOME = "of a layer's activations the outputs of some GEMMs alone are kept"


def _kept(backward, whole, recomputed, fraction, checkpoint, repeats, result):
    again = fraction * checkpoint + (1.0 - repeats) * result
    return backward * (recomputed * again + (1.0 - recomputed) * whole)


def _all_but(backward, whole, mixer, block):
    return backward * xp.maximum(whole - (mixer + block), 0.0)


@formula(
    assumes=("sums of exponentials are kept with the results",),
    **cited("maxtext", "src/maxtext/configs/base.yml, remat_policy custom with context on device"),
)
def attention_result_activations(
    attention_layer_fraction, heads, tp, activation_bytes, value_head_size, score_bytes
):
    """Results of core attention per token and layer, with what its backward takes of scores."""
    result = activation_bytes * value_head_size + score_bytes
    return attention_layer_fraction * (heads / tp) * result


# Of whole layers, the share that is recomputed keeps its inputs, and attention's results unless it
# repeats them.
LAYERS = cited(
    "korthikanti2022",
    "sections 4.1 and 5, full recomputation",
    assumes=("a mean over the layers of a stage",),
)
INPUTS = (
    "stage_recomputed_fraction",
    "kept_input_fraction",
    "checkpoint_activations",
    "recompute_core_attn",
    "attention_result_activations",
)
for _class, _block in (("dense", "mlp"), ("moe", "moe")):
    _returns, _all = f"kept_{_class}_layer_activations", f"{_class}_layer_activations"
    declare(_returns, ("has_backward", _all, *INPUTS), _kept, **LAYERS)
    _modules = ("mixer_module_activations", f"{_block}_block_module_activations")
    _inputs = ("has_backward", _all, *_modules)
    declare(_returns, _inputs, _all_but, when={"recompute": "selective"}, **MODULES)


@formula(
    assumes=(EVERY_SECOND, "queries, keys and values are one GEMM each, in that order"), **PER_OP
)
def saved_attention_activations(
    checkpoint_activations,
    activation_bytes,
    heads,
    tp,
    query_head_size,
    value_head_size,
    rank_kv_heads,
    score_bytes,
    hidden_size,
    sequence_shards,
    attention_layer_fraction,
):
    """Saved activations per token outside the MLP, per-operator recomputation."""
    outputs = heads / tp * (query_head_size + value_head_size) + rank_kv_heads * value_head_size
    reduced = xp.where(tp > 1.0, 2.0 * hidden_size / sequence_shards, 0.0)
    stored = checkpoint_activations + attention_layer_fraction * heads / tp * score_bytes
    return stored + activation_bytes * (outputs + reduced)


@formula(
    returns="kept_dense_layer_activations",
    assumes=(EVERY_SECOND, "the output of the last GEMM is replicated on each rank"),
    lacks={"dense_layer_activations": SOME},
    when={"recompute": "per_op"},
    **PER_OP,
)
def per_op_dense_layer_activations(
    has_backward,
    saved_attention_activations,
    activation_bytes,
    ffn_size,
    tp,
    gated_mlp,
    hidden_size,
):
    """Saved activations per token: dense layer, per-operator recomputation."""
    outputs = activation_bytes * (ffn_size / tp + gated_mlp * hidden_size)
    return has_backward * (saved_attention_activations + outputs)


@formula(
    returns="kept_moe_layer_activations",
    assumes=(EVERY_SECOND, "routed-expert GEMMs are not among the saved outputs"),
    lacks={"moe_layer_activations": SOME},
    when={"recompute": "per_op"},
    **PER_OP,
)
def per_op_moe_layer_activations(
    has_backward, saved_attention_activations, activation_bytes, gated_mlp, shared_ffn_size, tp
):
    """Saved activations per token: MoE layer, per-operator recomputation."""
    outputs = activation_bytes * gated_mlp * shared_ffn_size / tp
    return has_backward * (saved_attention_activations + outputs)


# What is there while a layer is computed again.


def _live(rank_tokens, dense_layers, dense, moe_layers, moe):
    return rank_tokens * xp.maximum(
        xp.where(dense_layers > 0.0, xp.maximum(dense, 0.0), 0.0),
        xp.where(moe_layers > 0.0, xp.maximum(moe, 0.0), 0.0),
    )


def _one_layer(rank_tokens, dense_layers, dense, kept_dense, moe_layers, moe, kept_moe):
    return _live(rank_tokens, dense_layers, dense - kept_dense, moe_layers, moe - kept_moe)


def _one_of_block(rank_tokens, dense_layers, dense, moe_layers, moe, checkpoint, recompute_layers):
    live = _live(rank_tokens, dense_layers, dense - checkpoint, moe_layers, moe - checkpoint)
    return xp.where(recompute_layers > 0.0, live, 0.0)


def _one_unit(
    rank_tokens, dense_layers, dense, moe_layers, moe, checkpoint, recompute_layers, chunk_layers
):
    unit = xp.minimum(xp.maximum(recompute_layers, 1.0), chunk_layers)
    whole = unit * dense - checkpoint, unit * moe - checkpoint
    return _live(rank_tokens, dense_layers, whole[0], moe_layers, whole[1])


LIVE = cited("chen2016", "section 4.1")
ONE = "one layer of one micro-batch is recomputed at a time"
OF_LAYERS = (
    "rank_tokens",
    "stage_mlp_layers",
    "dense_layer_activations",
    "stage_moe_layers",
    "moe_layer_activations",
)
KEPT = (
    *OF_LAYERS[:3],
    "kept_dense_layer_activations",
    *OF_LAYERS[3:],
    "kept_moe_layer_activations",
)
UNLESS = f"{ONE} (computed, in a forward-only schedule)"
_returns = "recompute_activation_memory"
declare(_returns, KEPT, _one_layer, assumes=(UNLESS,), **LIVE)
# In a forward-only schedule how many layers are recomputed needs no answer.
NONE_AGAIN = {"recompute_layers": "without a backward no layer is recomputed"}
for _method, _kernel, _more, _lacks in (
    ("block", _one_of_block, (), NONE_AGAIN),
    ("uniform", _one_unit, ("chunk_layers",), None),
):
    _inputs = (*OF_LAYERS, "checkpoint_activations", "recompute_layers", *_more)
    _when = {"recompute": _method}
    declare(_returns, _inputs, _kernel, assumes=(ONE,), when=_when, **LIVE)
    _when["schedule"] = "forward_only"
    declare(_returns, KEPT, _one_layer, assumes=(UNLESS,), when=_when, lacks=_lacks, **LIVE)


# What waits in the host's memory, and comes back for the backward.

OFFLOAD = cited(
    "transformerengine", "transformer_engine/pytorch/cpu_offload.py", when={"stashing": "host"}
)


@formula(**OFFLOAD)
def activation_offload(offloaded_layers, layers):
    """Fraction of layers with offloaded activations (CPU)."""
    return xp.minimum(offloaded_layers / layers, 1.0)


@formula(
    returns="offloaded_activation_memory",
    assumes=(
        "each stage offloads the same share of its layers",
        "a layer on its way out and one on its way back are on the GPU as well",
        "as few recomputed layers as fit are counted as if nothing were offloaded",
    ),
    **OFFLOAD,
)
def host_activation_memory(
    activation_offload,
    in_flight_micro_batches,
    micro_batch_activation_memory,
    rank_tokens,
    stage_mlp_layers,
    kept_dense_layer_activations,
    stage_moe_layers,
    kept_moe_layer_activations,
):
    """Offloaded activations in host memory per GPU."""
    moved = activation_offload * (in_flight_micro_batches * micro_batch_activation_memory)
    layer = xp.maximum(
        xp.where(stage_mlp_layers > 0.0, kept_dense_layer_activations, 0.0),
        xp.where(stage_moe_layers > 0.0, kept_moe_layer_activations, 0.0),
    )
    return xp.maximum(moved - 2.0 * rank_tokens * layer, 0.0)


# How many layers of a chunk are recomputed: as many as are given, or as few as fit.


@formula(**PIPELINE)
def chunk_layers(
    layers, pipeline_layers, embedding_layer_weight, head_layer_weight, pp, virtual_pipeline_size
):
    """Layers of the largest chunk of a stage."""
    slots = pipeline_layers + embedding_layer_weight + head_layer_weight
    return xp.ceil(slots / (pp * virtual_pipeline_size)) * layers / xp.maximum(pipeline_layers, 1.0)


@formula(
    returns="recomputed_fraction",
    assumes=("the largest chunk",),
    name="block_recomputed_share",
    when=IN_BLOCK,
    **MEGATRON_BLOCK,
)
def block_recomputed_share(recompute_layers, chunk_layers):
    """Fraction of recomputed layers per virtual stage."""
    return xp.minimum(recompute_layers / xp.maximum(chunk_layers, 1.0), 1.0)


@formula(when=IN_BLOCK, **MEGATRON_BLOCK)
def stage_recomputed_fraction(recompute_layers, virtual_pipeline_size, stage_layers):
    """Fraction of recomputed layers per stage."""
    return xp.minimum(recompute_layers * virtual_pipeline_size / xp.maximum(stage_layers, 1.0), 1.0)


@formula(when=UNIFORM, **MEGATRON_BLOCK)
def kept_input_fraction(chunk_layers, recompute_layers):
    """Layer inputs kept per recomputed layer: the first of each unit of a chunk's layers."""
    units = xp.ceil(chunk_layers / xp.maximum(recompute_layers, 1.0))
    return units / xp.maximum(chunk_layers, 1.0)


@formula(**TOTAL)
def activation_memory_without_recompute(
    in_flight_micro_batches,
    rank_tokens,
    stage_mlp_layers,
    stage_lone_moe_layers,
    dense_layer_activations,
    stage_moe_layers,
    moe_layer_activations,
):
    """Layer activations of all in-flight micro-batches without recomputation."""
    dense = (stage_mlp_layers - stage_lone_moe_layers) * dense_layer_activations
    layers = xp.maximum(dense + stage_moe_layers * moe_layer_activations, 0.0)
    return in_flight_micro_batches * (rank_tokens * layers)


@formula(source="derivation", assumes=("a layer mean over the stage",))
def needed_recompute_layers(
    memory_without_recompute,
    target_memory_fraction,
    memory_capacity,
    allocator_reserve_ratio,
    activation_memory_without_recompute,
    in_flight_micro_batches,
    rank_tokens,
    checkpoint_activations,
    stage_layers,
    virtual_pipeline_size,
    chunk_layers,
    stage_mlp_layers,
    dense_layer_activations,
    stage_moe_layers,
    moe_layer_activations,
    single_bytes,
):
    """Layers of each chunk that have to be recomputed for the stage to fit."""
    left = target_memory_fraction * memory_capacity - memory_without_recompute
    live = _live(
        rank_tokens,
        stage_mlp_layers,
        dense_layer_activations - checkpoint_activations,
        stage_moe_layers,
        moe_layer_activations - checkpoint_activations,
    )
    inputs = in_flight_micro_batches * rank_tokens * stage_layers * checkpoint_activations
    # A layer that saves nothing saves a number, so that all of them are recomputed.
    saved = xp.maximum(activation_memory_without_recompute - inputs, single_bytes) / xp.maximum(
        stage_layers, 1.0
    )
    several = xp.ceil(
        (allocator_reserve_ratio * live - left)
        / (allocator_reserve_ratio * saved * virtual_pipeline_size)
    )
    return xp.where(left >= 0.0, 0.0, xp.minimum(xp.maximum(several, 1.0), chunk_layers))


for _stage in CANDIDATES:
    of_stage(f"{_stage}_recompute_layers", "needed_recompute_layers", _stage, when=IN_BLOCK)


def _most(*values):
    first, two, three, last = values
    return xp.maximum(xp.maximum(first, two), xp.maximum(three, last))


declare(
    "recompute_layers",
    [f"{stage}_recompute_layers" for stage in CANDIDATES],
    _most,
    assumes=("the fewest that fit, equal in every stage; all if that is not enough",),
    when=IN_BLOCK,
)
