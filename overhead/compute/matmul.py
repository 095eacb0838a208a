"""GEMMs and attention of a layer: their work and their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overhead.arrays import xp
from overhead.compute import quantities
from overhead.formula import call, cited, declare, formula
from overhead.memory.activations import EVENLY, NARROW, WIDE
from overhead.quantity import Array

# A product is cut into tiles, and the last one is computed whole.
TILE, TILE_DEPTH = 128.0, 64.0
PADDED = (
    "N and K are padded to full tiles, of 128 outputs and of 64 elements in BF16, or in proportion "
    f"more in low precision ({quantities.TILES}, section 3.1); mean sizes of several GEMMs, "
    "not integers, are not padded"
)

# Of four smooth and three tiled forms this one fits the measured products best; tiles and waves
# counted whole make it worse, for libraries choose among tiles and split the depth.
FORM = cited(
    quantities.MEASURED,
    "half of its bf16 products, which fit within 6 % on average",
    assumes=(
        "compute and memory time do not overlap",
        "an empty GEMM takes no time",
        PADDED,
    ),
)


def _padded(size: Array, tile: Array | float) -> Array:
    """Round a product's side up to whole tiles; there are smaller ones for less than one."""
    unpadded = (size % 1.0 > 0.0) | (size < tile)
    return xp.where(unpadded, size, tile * xp.ceil(size / tile))


def _operations(rows, columns, depth, input_bytes, activation_bytes):
    """Operations of a product, those on what tiles are padded with, too."""
    # Twice as many in 8 bits, four times in 4; what is beyond that is scales.
    half, quarter = input_bytes < activation_bytes, input_bytes < 0.5 * activation_bytes
    inner = _padded(depth, TILE_DEPTH * xp.where(quarter, 4.0, xp.where(half, 2.0, 1.0)))
    return xp.asarray(2.0 * rows * (_padded(columns, TILE) * inner))


def _moved(rows, columns, depth, input_bytes, result_bytes):
    """Bytes of a product's inputs and of its result."""
    return input_bytes * (rows * depth + depth * columns) + result_bytes * (rows * columns)


@formula(**FORM)
def matmul_time(
    matmul_m,
    matmul_n,
    matmul_k,
    matmul_min_time,
    matmul_time_per_k,
    matmul_efficiency,
    peak_measured_matmul_flops,
    matmul_input_bytes,
    activation_bytes,
    memory_efficiency,
    memory_bandwidth,
):
    """GEMM time: minimum, K, FLOPs and bytes."""
    taken = (matmul_m, matmul_n, matmul_k, matmul_input_bytes, activation_bytes)
    start = matmul_min_time + matmul_time_per_k * matmul_k
    operations = _operations(*taken)
    worked = start + operations / (matmul_efficiency * peak_measured_matmul_flops)
    time = worked + _moved(*taken) / (memory_efficiency * memory_bandwidth)
    return xp.where(operations > 0.0, time, 0.0)


@formula(
    source=quantities.KERNELS,
    where="its grouped products; of one product the form is that of matmul_time",
    assumes=(
        "the groups are equal and fill the GPU together",
        "compute of some groups overlaps with memory time of others, in part",
        PADDED,
    ),
)
def grouped_matmul_time(
    matmul_groups,
    matmul_m,
    matmul_n,
    matmul_k,
    matmul_min_time,
    matmul_time_per_k,
    matmul_efficiency,
    peak_measured_matmul_flops,
    matmul_input_bytes,
    activation_bytes,
    memory_efficiency,
    memory_bandwidth,
    grouped_exposed_fraction,
):
    """Time of equal GEMMs in one grouped GEMM: one minimum time, and the work of each."""
    taken = (matmul_m, matmul_n, matmul_k, matmul_input_bytes, activation_bytes)
    operations = _operations(*taken)
    worked = operations / (matmul_efficiency * peak_measured_matmul_flops)
    moved = _moved(*taken) / (memory_efficiency * memory_bandwidth)
    each = xp.maximum(worked, moved) + grouped_exposed_fraction * xp.minimum(worked, moved)
    time = matmul_min_time + matmul_time_per_k * matmul_k + matmul_groups * each
    return xp.where(matmul_groups * operations > 0.0, time, 0.0)


# A layer's GEMMs: their sizes on one rank, and each product's time forward and back.
#
# Columns are split over tensor-parallel ranks in the first product of a block, the depth in its
# last.  Projections through latent vectors count as one product of as many weights.

TENSOR = cited("narayanan2021", "section 2.3")
EXPERTS = cited("megatron", "megatron/core/transformer/moe/experts.py")


@formula(**TENSOR)
def mlp_up_width(gated_mlp, mlp_width):
    """Dense MLP up-projection outputs per rank: twice the inner size if gated."""
    return (1.0 + gated_mlp) * mlp_width


@formula(**TENSOR)
def shared_up_width(gated_mlp, shared_width):
    """Shared-expert up-projection outputs per rank."""
    return (1.0 + gated_mlp) * shared_width


@formula(**EXPERTS)
def expert_up_width(gated_mlp, expert_width):
    """Routed-expert up-projection outputs per rank."""
    return (1.0 + gated_mlp) * expert_width


@formula(
    source="megatron",
    where="megatron/core/transformer/moe/token_dispatcher.py",
    assumes=(
        "tensor-parallel ranks dispatch a share of the tokens each (sequence parallelism)",
        "all experts of the most loaded rank have the maximum load",
    ),
)
def expert_tokens(expert_load_imbalance, experts_per_token, rank_tokens, etp, ep, tp, experts):
    """Tokens of a micro-batch that one expert of a rank works on."""
    sent = expert_load_imbalance * experts_per_token * rank_tokens
    return sent * (etp * ep) / (tp * xp.maximum(experts, 1.0))


MTP = cited("megatron", "megatron/core/transformer/multi_token_prediction.py, eh_proj")


@formula(**MTP)
def mtp_depth(hidden_size):
    """MTP projection inputs: a hidden state and an embedding."""
    return 2.0 * hidden_size


# Each product, its input's gradient and its weights' gradient.


@formula(
    source=quantities.BLOOM,
    where="hidden sizes of 14400 and 14336 at one plan",
    assumes=(
        "every GEMM of a layer has the hidden size as one dimension",
        "in addition to tile quantization: the same at half a tile left of 112 as of 22",
    ),
)
def sized_matmul_efficiency(matmul_efficiency, tile_quantization_loss, hidden_size, clock_ratio):
    """Sustained GEMM efficiency at the GPU clock, less the tile quantization loss."""
    odd = hidden_size % 128.0 > 0.0
    return clock_ratio * (matmul_efficiency * xp.where(odd, 1.0 - tile_quantization_loss, 1.0))


# Casts to 8 bits run beside a GEMM: whether each TP rank casts its part alone the software decides.
CASTS = "casts to 8 bits slow GEMMs down by as much whatever their sizes, and by another with TP"


def _rate(peak_measured_matmul_flops, output_matmul_flops, narrow, unsplit, tp):
    """Rate of the best product in the mean of layers: of their times, not of their rates."""
    best = peak_measured_matmul_flops * xp.where(tp > 1.0, 1.0, unsplit)
    mixed = 1.0 / (narrow / best + (1.0 - narrow) / output_matmul_flops)
    return xp.where(narrow < 1.0, mixed, best)


for _module, _share in NARROW.items():
    declare(
        f"{_module}_matmul_flops",
        (
            "peak_measured_matmul_flops",
            "output_matmul_flops",
            _share,
            "unsplit_matmul_rate_ratio",
            "tp",
        ),
        _rate,
        assumes=(EVENLY, CASTS),
        **WIDE,
    )


@formula(
    source="megatron",
    where="megatron/core/transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py"
    " @009276bb2f, forward: einsum over groups",
    assumes=("of two grouped output projection GEMMs the first is in BF16",),
)
def context_matmul_flops(
    attention_matmul_flops,
    output_matmul_flops,
    output_rank,
    heads,
    value_head_size,
    output_groups,
    hidden_size,
):
    """Best GEMM rate of the attention output projection: from the mean time of two GEMMs."""
    context = heads * value_head_size
    wide = context / xp.maximum(context + output_groups * hidden_size, 1.0)
    mixed = 1.0 / (wide / output_matmul_flops + (1.0 - wide) / attention_matmul_flops)
    return xp.where(output_rank > 0.0, mixed, attention_matmul_flops)


# Of a module's products, and what stays in 16 bit whatever the others are in.
OF_LAYERS, OF_ATTENTION, OF_EXPERTS = (
    {
        "matmul_input_bytes": f"{module}_input_bytes",
        "peak_measured_matmul_flops": f"{module}_matmul_flops",
    }
    for module in NARROW
)
OF_CONTEXT = OF_ATTENTION | {"peak_measured_matmul_flops": "context_matmul_flops"}
PLAIN = {
    "matmul_input_bytes": "activation_bytes",
    "peak_measured_matmul_flops": "output_matmul_flops",
}


# A product's rows, columns and depth; of the gradients' products, where these are the result's.
SIZES = ("matmul_m", "matmul_n", "matmul_k")
GRADIENTS = {"forward": (0, 1, 2), "input_gradient": (0, 2, 1), "weight_gradient": (2, 1, 0)}
# The quantities that are a dense layer's products' rows, columns and depth.
LINEAR = {
    "qkv": ("rank_tokens", "qkv_width", "hidden_size"),
    "attention_output": ("rank_tokens", "hidden_size", "attention_width"),
    "mlp_up": ("rank_tokens", "mlp_up_width", "hidden_size"),
    "mlp_down": ("rank_tokens", "hidden_size", "mlp_width"),
}


def product_sizes(sizes: Sequence[str], kind: str) -> dict[str, str]:
    """Return the quantities that are a product's sizes: forward's or one of its gradients'."""
    return {name: sizes[index] for name, index in zip(SIZES, GRADIENTS[kind], strict=True)}


# A weights' gradient joins those of the micro-batches before it.


@formula(
    source="transformerengine",
    where="transformer_engine/pytorch/module/linear.py: accumulate_wgrad_into_param_main_grad",
    assumes=(
        "fused, the GEMM reads the accumulated gradient and writes the sum",
        "else a kernel of its own adds it, to all but the first micro-batch's",
        "gradients reduced in each backward pass (ZeRO-2 and ZeRO-3) accumulate sharded",
    ),
)
def weight_gradient_bytes(
    gradient_accumulation_fusion, gradient_bytes, activation_bytes, num_micro_batches, zero_stage
):
    """HBM traffic per weight gradient: wgrad and accumulation."""
    summed = 2.0 * gradient_bytes
    added = (1.0 - 1.0 / num_micro_batches) * (activation_bytes + summed)
    kept = xp.where(gradient_accumulation_fusion > 0.0, summed, activation_bytes + added)
    return xp.where(zero_stage >= 2.0, activation_bytes, kept)


def declare_product(
    name: str,
    *sizes: str,
    of: str = "matmul_time",
    further: Mapping[str, str] | None = None,
) -> None:
    """Declare the times of one product: its result, its input's and its weights' gradient."""
    for kind in GRADIENTS:
        bound = {**product_sizes(sizes, kind), "matmul_efficiency": "sized_matmul_efficiency"}
        binding = {**OF_LAYERS, **(further or {})}
        if kind == "weight_gradient":
            binding["activation_bytes"] = "weight_gradient_bytes"
            # Frozen weights have no gradients: their GEMM is of no tokens.
            bound["matmul_k"] = f"trained_{sizes[0]}"
        call(returns=f"{name}_{kind}_time", of=of, bind={**bound, **binding})


GROUPED: dict[str, Any] = {
    "of": "grouped_matmul_time",
    "further": {
        "matmul_groups": "local_experts",
        "matmul_efficiency": "grouped_matmul_efficiency",
        **OF_EXPERTS,
    },
}
for _name, _sizes in LINEAR.items():
    _own = OF_CONTEXT if _name == "attention_output" else OF_ATTENTION
    declare_product(_name, *_sizes, further=OF_LAYERS if _name.startswith("mlp") else _own)
declare_product("router", "router_tokens", "router_width", "hidden_size", further=PLAIN)
declare_product("shared_up", "rank_tokens", "shared_up_width", "hidden_size")
declare_product("shared_down", "rank_tokens", "hidden_size", "shared_width")
declare_product("expert_up", "expert_tokens", "expert_up_width", "expert_hidden_size", **GROUPED)
declare_product("expert_down", "expert_tokens", "expert_hidden_size", "expert_width", **GROUPED)
declare_product("mtp_projection", "rank_tokens", "mtp_width", "mtp_depth")


# Beside frozen weights: adapters' products, and no gradients of weights.

LORA = cited("hu2021", "section 4.1", when={"tuning": "lora"})


for _class, _width in (("dense", "mlp_adapter_width"), ("moe", "shared_adapter_width")):

    @formula(
        returns=f"{_class}_layer_adapter_time",
        name=f"{_class}_layer_adapter_time",
        inputs=(
            "lora_rank",
            "rank_tokens",
            "mixer_adapter_width",
            _width,
            "tp",
            "lora_attention",
            "lora_mlp",
            "matmul_min_time",
            "sized_matmul_efficiency",
            "output_matmul_flops",
            "activation_bytes",
            "memory_efficiency",
            "memory_bandwidth",
        ),
        assumes=(
            "adapter GEMMs are in BF16",
            "dropout, scaling and residual sum of the adapter are separate kernels: forward "
            "and two gradient passes each move 3.5 elements on average",
        ),
        **LORA,
    )
    def _layer_adapters(rank: Array, tokens: Array, attention: Array, *rest: Array) -> Array:
        """LoRA adapter GEMM time per layer, forward or per gradient kind."""
        mlp, tp, adapts_attention, adapts_mlp, floor, efficiency, best, *moving = rest
        element, share, bandwidth = moving
        width = (attention + mlp) / tp
        launched = 4.0 * (adapts_attention + adapts_mlp) * floor
        each = 2.0 * rank * tokens * width / (efficiency * best)
        moved = 3.5 * element * tokens * width / (share * bandwidth)
        return xp.where(rank * width > 0.0, launched + each + moved, 0.0)
