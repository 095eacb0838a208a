"""A layer's work and time, element-wise and in all."""

from __future__ import annotations

from functools import reduce
from typing import Any, Unpack

from overhead.arrays import xp
from overhead.compute import quantities
from overhead.formula import Further, cited, declare, derived, formula
from overhead.quantity import Array
from overhead.shipped import usual_table

# What was fitted: specs/training/usual.csv says to which rows.
FITTED = usual_table()["kernels"]
KERNELS = cited("megatron", "megatron/core/fusions")
EXPERTS = cited("megatron", "megatron/core/transformer/moe/token_dispatcher.py and experts.py")
CASTS = cited(
    "transformerengine",
    "transformer_engine/pytorch/module",
    assumes=(
        "a cast reads and writes each element once, in the GEMM precision",
        "amax and transpose kernels are not counted: with them, runs of such recipes fit less well",
    ),
)


# In a ring each block of keys and values that comes round gives a part of the result, in single
# precision added up with those before.


@formula(
    source="liu2023",
    where="section 3: the output and its denominator are kept up to date block by block",
    assumes=("a part is read, and the sum read and written, by one kernel",),
    when={"context_parallel": "ring|mixed"},
)
def merged_bytes(
    ring_ranks, merged_token_fraction, activation_bytes, single_bytes, rank_tokens, attention_width
):
    """HBM traffic of merging ring blocks into the attention result, forward."""
    element = activation_bytes + 2.0 * single_bytes
    merges = xp.maximum(ring_ranks - 1.0, 0.0) * merged_token_fraction
    return merges * element * rank_tokens * attention_width


@formula(
    assumes=(
        "norms read and write, two sums with the residual read two and write one",
        "queries, keys and values are read and written once (rotation, or a copy)",
        "outputs of projections up from latent vectors are as wide as they are",
        "several residuals are mixed instead of summed: mixing_forward_bytes are theirs",
        "no rotary embedding before a linear-attention scan (megatron/core/ssm)",
    ),
    **KERNELS,
)
def attention_elementwise_bytes(
    activation_bytes,
    dropout,
    mask_bytes,
    rank_tokens,
    hidden_size,
    sequence_shards,
    rotated_width,
    latent_width,
    merged_bytes,
    residual_streams,
    attention_layer_fraction,
    layer_norms,
):
    """HBM traffic per layer outside MLP and scan, forward: norms, residuals, rotation."""
    sums = xp.where(residual_streams > 1.0, 0.0, 6.0)
    element = (2.0 * layer_norms + sums) * activation_bytes + 2.0 * dropout * mask_bytes
    between = element * rank_tokens * hidden_size / sequence_shards
    rotated = 2.0 * activation_bytes * rank_tokens * (rotated_width + latent_width)
    return between + rotated + attention_layer_fraction * merged_bytes


# Several residuals (manifold-constrained hyper-connections) are mixed before and behind each of a
# layer's two blocks.  Hidden states that this moves, by the residuals' number and beside it.
# Forward: the projection to the mixing's weights reads all, the block's input is their sum, and
# all and the block's output give all.  Backward: the last of these reads its gradient, all and the
# output and writes two gradients, the sum reads all and writes theirs, the projection too; these
# three are added up.
MIXED = {"forward": (4.0, 2.0), "backward": (11.0, 3.0)}
# Of the rate at which others' kernels move bytes.
MIXING_RATE = {
    "forward": FITTED["mixing_forward_rate"].value,
    "backward": FITTED["mixing_backward_rate"].value,
}


def _mixed(way: str) -> Any:
    each, once = MIXED[way]

    def moved(
        streams: Array, activation_bytes: Array, tokens: Array, hidden: Array, shards: Array
    ) -> Array:
        whole = 2.0 * activation_bytes * (each * streams + once) * tokens * hidden / shards
        return xp.where(streams > 1.0, whole, 0.0)

    return moved


for _way in MIXED:
    declare(
        f"mixing_{_way}_bytes",
        ("residual_streams", "activation_bytes", "rank_tokens", "hidden_size", "sequence_shards"),
        _mixed(_way),
        source="megatron",
        where="megatron/core/fusions/fused_mhc_kernels.py @03141850e2 and"
        " megatron/core/transformer/hyper_connection.py",
        assumes=("weights of the mixing, a few a token, move nothing",),
    )


@formula(assumes=("activation function and gate multiplication are one kernel",), **KERNELS)
def dense_elementwise_bytes(
    attention_elementwise_bytes, gated_mlp, activation_bytes, rank_tokens, mlp_width
):
    """HBM traffic of element-wise kernels per dense layer, forward."""
    return (
        attention_elementwise_bytes + (2.0 + gated_mlp) * activation_bytes * rank_tokens * mlp_width
    )


@formula(
    assumes=(
        "tokens are put in order before and after each exchange: read and written four times",
        "more than fused kernels move: 6 + 2 / top-k reads and writes per routed element and pass, "
        "up to 4 if each rank gets a token once; with these, steps on GB200 fit less well",
    ),
    **EXPERTS,
)
def moe_elementwise_bytes(
    attention_elementwise_bytes,
    gated_mlp,
    activation_bytes,
    rank_tokens,
    shared_width,
    local_experts,
    expert_tokens,
    expert_width,
    expert_hidden_size,
):
    """HBM traffic of element-wise kernels per MoE layer, forward."""
    routed = local_experts * expert_tokens
    inside = rank_tokens * shared_width + routed * expert_width
    inner = attention_elementwise_bytes + (2.0 + gated_mlp) * activation_bytes * inside
    return inner + 8.0 * activation_bytes * routed * expert_hidden_size


# Mixtures whose routed experts work on a latent vector: smaller experts, and smaller messages.

LATENT = cited(
    "megatron", "megatron/core/transformer/moe/moe_layer.py: fc1_latent_proj, fc2_latent_proj"
)


@formula(**LATENT)
def expert_hidden_size(expert_latent_size, hidden_size):
    """Inputs and outputs of a routed expert: those of the latent vector, if there is one."""
    return xp.where(expert_latent_size > 0.0, expert_latent_size, hidden_size)


@formula(
    assumes=("latent projections are replicated on each rank, in BF16",),
    **LATENT,
)
def router_width(experts, expert_latent_size):
    """Outputs of router and both latent projections, as one GEMM."""
    return experts + 2.0 * expert_latent_size


# Casts of what the products take, where that is in fewer bytes than what is kept.


def _cast(wide, narrow, share, attention_share, tokens, hidden, mlp, *attention, routed=0.0):
    each = attention_share * sum(attention, hidden) + share * (hidden + mlp)
    return xp.where(narrow < wide, (wide + narrow) * (tokens * each + routed), 0.0)


def _routed_cast(local_experts, tokens, expert_share, inner, outer, *others):
    routed = expert_share * (local_experts * tokens * (outer + inner))
    return _cast(*others, routed=routed)


CAST_SHARES = (
    "activation_bytes",
    "matmul_input_bytes",
    "low_precision_layer_fraction",
    "low_precision_attention_fraction",
    "rank_tokens",
    "hidden_size",
)
CAST_EXPERTS = ("local_experts", "expert_tokens", "low_precision_expert_fraction")
for _way, _what, _up, _attention in (
    ("forward", "input", "", ("attention_width",)),
    ("backward", "gradient", "_up", ("qkv_width", "latent_width")),
):
    _mlp, _shared, _expert = (f"{_of}{_up}_width" for _of in ("mlp", "shared", "expert"))
    _taken = (*CAST_SHARES, _mlp, *_attention)
    _title = f"HBM traffic of {_what} casts"
    declare(f"dense_cast_{_way}_bytes", _taken, _cast, f"{_title}, dense layer", **CASTS)
    _taken = (*CAST_EXPERTS, _expert, "expert_hidden_size", *CAST_SHARES, _shared, *_attention)
    declare(f"moe_cast_{_way}_bytes", _taken, _routed_cast, f"{_title}, MoE layer", **CASTS)


# A router's kernels, one for scores and choice, one for the scores that a loss balances, and that
# loss: each has a number in single precision for each expert, and a byte that says whether it was
# chosen.  What each reads and writes is in tests/overhead/test_compute_parts.py.
ROUTING = cited(
    "transformerengine",
    "transformer_engine/pytorch/router.py and csrc/extensions/router.cpp @d0067d0da6",
    assumes=(
        "choosing is one kernel, and so are the scores whose balance a loss keeps",
        "logits are in single precision (moe_router_dtype)",
    ),
)
CHOSEN = {"forward": (7.0, 3.0), "backward": (10.0, 1.0)}


def _routing(way: str) -> Any:
    singles, flags = CHOSEN[way]

    def moved(tokens: Array, experts: Array, single_bytes: Array) -> Array:
        return tokens * experts * (singles + flags / 4.0) * single_bytes

    return moved


for _way in CHOSEN:
    _taken = ("router_tokens", "experts", "single_bytes")
    declare(f"routing_{_way}_bytes", _taken, _routing(_way), **ROUTING)


# A bias of routed experts that follows the last GEMM: for each expert's rows the product with their
# probabilities, the sum, one copy of all and a cast, in single precision; backward the cast, its
# gradients' two products and sums, a cast and a copy.  Elements of 32 bits, and of 16.
BIASES = cited(
    "megatron",
    "megatron/core/transformer/moe/experts.py, TEGroupedMLP._apply_bias @d0b3b77549",
    assumes=("the bias of the first GEMM is part of it, and probabilities are single precision",),
)
BIAS_MOVES = {"forward": (6.0, 2.0), "backward": (8.0, 4.0)}
BIAS_LAUNCHES = {"forward": 2.0, "backward": 5.0}  # for each expert


@formula(**BIASES)
def separate_expert_bias(unfused_expert_bias, linear_bias, expert_bias):
    """Whether kernels of their own add the biases of routed experts."""
    return unfused_expert_bias * xp.maximum(linear_bias, expert_bias)


def _biased(way: str) -> Any:
    singles, others = BIAS_MOVES[way]

    def moved(
        separate: Array, experts: Array, tokens: Array, hidden: Array, single: Array, wide: Array
    ) -> Array:
        return separate * experts * tokens * hidden * (singles * single + others * wide)

    return moved


for _way in BIAS_MOVES:
    _taken = ("separate_expert_bias", "local_experts", "expert_tokens", "expert_hidden_size")
    _sizes = ("single_bytes", "activation_bytes")
    declare(f"expert_bias_{_way}_bytes", (*_taken, *_sizes), _biased(_way), **BIASES)


# Times.


TIMES = {"forward": 1.0, "backward": 2.0}
RATE_OF_BYTES = ("memory_efficiency", "memory_bandwidth")
TWICE = {"forward": (), "backward": ("the backward pass moves twice: gradients and activations",)}


def _elementwise(way: str) -> Any:
    def time(factor, moved, casts, mixed, scanning, share, bandwidth, *routed):
        every = TIMES[way] * factor * moved + casts + mixed / MIXING_RATE[way]
        every = every + factor * sum(routed) if routed else every
        return every / (share * bandwidth) + scanning

    return time


for _class in quantities.CLASSES:
    for _kind in TIMES:
        _moved = (f"{_class}_elementwise_bytes", f"{_class}_cast_{_kind}_bytes")
        _bytes = ("elementwise_factor", *_moved, f"mixing_{_kind}_bytes")
        _routed_bytes = (f"routing_{_kind}_bytes", f"expert_bias_{_kind}_bytes")
        _router = _routed_bytes if _class == "moe" else ()
        declare(
            f"{_class}_layer_elementwise_{_kind}_time",
            (*_bytes, f"scan_{_kind}_time", *RATE_OF_BYTES, *_router),
            _elementwise(_kind),
            assumes=TWICE[_kind],
            **KERNELS,
        )


@formula(**KERNELS)
def merge_forward_time(elementwise_factor, merged_bytes, memory_efficiency, memory_bandwidth):
    """Ring attention merge time per layer, forward."""
    return elementwise_factor * merged_bytes / (memory_efficiency * memory_bandwidth)


@derived(assumes=("the backward pass merges twice as much",))
def context_attention_time(attention_time, merge_forward_time, layer_exposed_cp_time):
    """Attention time per layer with exposed CP communication, forward and backward."""
    return attention_time + 3.0 * merge_forward_time + layer_exposed_cp_time


# Time in which the host launches a layer: what it launches of each kind, at one time for each.
#
# A mixture of experts has more to launch than a dense layer: a router, the exchange, and for each
# of the rank's experts its own products, which fused libraries launch one by one.

MEASURED = cited(
    quantities.VTRAIN,
    "data/ground_truth_single.csv: small models' time by layer is constant",
    assumes=("a collective is one operation more: tensor parallelism has two in each direction",),
)
LIBRARY = cited(
    "transformerengine",
    "transformer_engine/pytorch/csrc/extensions/cast.cpp, split_quantize, and"
    " common/gemm/cublaslt_gemm.cu, nvte_multi_tensor_gemm",
)
EXPERT_HOST = cited(
    "megatron",
    "megatron/core/transformer/moe: router.py, moe_utils.py, token_dispatcher.py",
    assumes=(
        "one call launches the GEMMs of every expert separately, with casts unless one kernel "
        "covers all; partial CUDA graphs exclude them (cuda_graph_scope: dynamic shapes)",
        "overlapped exchanges split a layer into nodes (model_chunk_schedule_plan.py)",
        "permutation is fused, as in NVIDIA's recipes",
    ),
)
AGAIN = {"recompute": "full|uniform|full_early_stop|per_op"}

# Launches of a layer's experts beyond a dense layer's.  Forward: the gate 2, top-k, scores, counts,
# loss and its log 6, tokens' counts of all ranks 8, copies to the host 4, permutations 6 less a
# dense layer's two products, exchanges of tokens, probabilities and results 3, the sum 1.
# Backward: exchanges 3, permutations 6, gate and routing 5, gradients' sums 4 less its four.
ROUTED = {"forward": 28.0, "backward": 14.0}
# Where one kernel sends each token once to a node, it permutes, too (fused_a2a.py): of counts,
# copies, permutations and exchanges remain forward a map of all ranks, its prefix sums, dispatch,
# permutation, their waits, combine and one copy, 14; backward 6 of 9.
SENT_ONCE = {"forward": 20.0, "backward": 11.0}
# Launches more where routing isn't fused.  Forward: 7 of top-k, 4 of the loss's scores, 3 of the
# loss; backward 3 of top-k and 2 of the loss.
UNFUSED = {"forward": 14.0, "backward": 5.0}
# Launches of latent attention beyond those of an attention with one product before it.  Forward:
# three products more and a norm before each of four but one, keys' positions of all ranks.
# Backward: two products for each of these, norms, the positions' sums, gradients of what two
# products share and of the parts of one.
LATENT = {"forward": 7.0, "backward": 12.0}
# And where its rotary embeddings aren't fused: 13 forward of queries as of keys, and three that
# join them with the rest, in the place of two; backward 8, and as many that part them.
ROTARY = {"forward": 27.0, "backward": 17.0}
# Products: one forward each for the first and the last, and twice as many gradients.
PRODUCT_FLOPS = {"forward": 2.0, "backward": 4.0}
# Casts: of a dense layer's products, of a mixture's without its experts, for which as many are
# launched for all as one cast has: the layout of their scales, or the kernel that has them all.
ATTENTION_CASTS, MLP_CASTS, ROUTED_CASTS, EXPERT_CASTS = 2.0, 2.0, 1.0, 2.0
# By an operation from Python: one expert's product, or making its narrow tensors, in one call of
# the library for all experts, and a kernel of it.
CALLED = FITTED["called_expert_launches"].value
CALLED_KERNEL = FITTED["called_kernel_launches"].value
# Where exchanges hide behind another micro-batch's computing a layer is four nodes: attention,
# dispatch, experts, combine.  Each detaches what it takes and hands on what it gives; backward it
# starts autograd, waits for its stream and gathers gradients.
NODES = {"forward": 8.0, "backward": 12.0}


@formula(
    assumes=("a cast, and the layout of its scales; scales of whole tensors need one more",),
    **LIBRARY,
)
def cast_launches(matmul_input_bytes, activation_bytes, low_precision_layer_fraction):
    """Cast launches per low-precision GEMM."""
    return xp.where(matmul_input_bytes < activation_bytes, 2.0 * low_precision_layer_fraction, 0.0)


@formula(**LIBRARY)
def expert_cast_launches(
    matmul_input_bytes, activation_bytes, low_precision_expert_fraction, expert_casts
):
    """Cast launches per expert GEMM."""
    each = low_precision_expert_fraction * (CALLED + CALLED_KERNEL * expert_casts)
    return xp.where(matmul_input_bytes < activation_bytes, each, 0.0)


def _of_latent(way: str, latent: Array, unfused: Array) -> Array:
    return latent * (LATENT[way] + ROTARY[way] * unfused)


def _dense(way: str) -> Any:
    def launches(operations, casts, share, left, attending, latent, unfused):
        attention = ATTENTION_CASTS * (1.0 - left * attending)  # Only attention is left in 16 bits
        others = operations + _of_latent(way, latent, unfused)
        return share * (others + (attention + MLP_CASTS) * casts)

    return launches


def _routed(way: str, routed: float) -> Any:
    def launches(
        operations,
        casts,
        share,
        left,
        attending,
        latent,
        unfused,
        left_experts,
        local_experts,
        own_casts,
        ep_overlap,
        separate,
    ):
        each = CALLED * PRODUCT_FLOPS[way] + EXPERT_CASTS * own_casts
        expert_launches = (each + BIAS_LAUNCHES[way] * separate) * local_experts
        nodes = xp.where(ep_overlap > 0.0, NODES[way], 0.0)
        cast = ATTENTION_CASTS * (1.0 - left * attending) + ROUTED_CASTS * (1.0 - left_experts)
        counted = operations + routed + UNFUSED[way] * unfused + _of_latent(way, latent, unfused)
        others = share * (counted + cast * casts)
        return others + xp.where(share > 0.0, expert_launches + nodes, 0.0)

    return launches


for _way in ("forward", "backward"):
    _of_library = ("cast_launches", "eager_launch_fraction", "bf16_attention")
    _counted = ("attention_layer_fraction", "latent_attention_fraction", "unfused_operations")
    _taken = (f"{_way}_operations", *_of_library, *_counted)
    _experts = ("bf16_experts", "local_experts", "expert_cast_launches", "ep_overlap")
    _own = (*_experts, "separate_expert_bias")
    declare(f"dense_{_way}_launches", _taken, _dense(_way), **LIBRARY)
    for _count, _when in ((ROUTED, None), (SENT_ONCE, {"dispatcher": "deduplicated"})):
        _kernel = _routed(_way, _count[_way])
        declare(f"moe_{_way}_launches", (*_taken, *_own), _kernel, when=_when, **EXPERT_HOST)


@formula(**MEASURED)
def layer_pass_host_time(layer_pass_launches, tp, eager_launch_fraction, host_launch_time):
    """Host launch time per layer and pass: kernels, and collectives."""
    collectives = eager_launch_fraction * xp.where(tp > 1.0, 2.0, 0.0)
    return xp.asarray((layer_pass_launches + collectives) * host_launch_time)


# A backward that repeats the forward launches that, too: of its operations those of a repeated
# layer, and what it has beyond them.


def _host_again(backward, again, forward, operations, tp, share, host_launch_time):
    collectives = xp.where(tp > 1.0, 4.0, 0.0)
    beyond = xp.maximum(forward - share * operations, 0.0)
    return xp.asarray((backward + share * (again + collectives) + beyond) * host_launch_time)


def _host_some(backward, again, forward, operations, tp, share, host_launch_time, part):
    once = layer_pass_host_time(backward, tp, share, host_launch_time)
    whole = _host_again(backward, again, forward, operations, tp, share, host_launch_time)
    return once + part * (whole - once)


def _host_routed(backward, forward, operations, tp, share, host_launch_time, moe):
    again = moe * xp.maximum(forward - share * operations, 0.0) * host_launch_time
    return layer_pass_host_time(backward, tp, share, host_launch_time) + again


_launching = ("tp", "eager_launch_fraction", "host_launch_time")
_beyond = ("layer_forward_launches", "forward_operations")
_taken = ("layer_backward_launches", "recompute_operations", *_beyond, *_launching)
_some = {"recompute": "block"}
declare("layer_backward_host_time", _taken, _host_again, when=AGAIN, **MEASURED)
_taken = (*_taken, "recomputed_fraction")
declare("layer_backward_host_time", _taken, _host_some, when=_some, **MEASURED)
declare(
    "moe_layer_backward_host_time",
    (
        "moe_backward_launches",
        "moe_forward_launches",
        "forward_operations",
        *_launching,
        "recompute_moe",
    ),
    _host_routed,
    when={"recompute": "selective"},
    **EXPERT_HOST,
)


# One layer's time for one micro-batch on one rank: the sum of its parts, and the host beside it.
#
# The GPU works on what the host launches ahead of it, so the slower of the two rules; near the
# change from one to the other both do, which a norm of order 4 has.


@formula(
    returns="layer_pass_time",
    source=quantities.VTRAIN,
    where="data/ground_truth_single.csv: of sum, greater and norm this fits best",
    assumes=("the host launches ahead of the GPU, except for the always-exposed fraction",),
)
def with_host(layer_pass_gpu_time, layer_pass_host_time, exposed_launch_fraction):
    """Time per layer and pass: GPU time overlapped with host launches."""
    waited = exposed_launch_fraction * layer_pass_host_time
    ahead = layer_pass_host_time - waited
    squares = layer_pass_gpu_time * layer_pass_gpu_time, ahead * ahead
    return xp.sqrt(xp.sqrt(squares[0] * squares[0] + squares[1] * squares[1])) + waited


def _passes(forward, has_backward, *backward):
    return reduce(lambda time, further: time + has_backward * further, backward, forward)


def both_passes(returns: str, forward: str, *backward: str, **further: Unpack[Further]) -> None:
    """Declare a sum over the forward and, where a step has one, the backward pass."""
    inputs = (forward, "has_backward", *backward)
    said: Further = {"laws": f"linear: {' '.join(inputs)}", **further}
    declare(returns, inputs, _passes, **said)


both_passes("both_passes_time", "forward_pass_time", "backward_pass_time")
for _class in quantities.CLASSES:
    both_passes(
        f"{_class}_layer_matmul_time",
        f"{_class}_layer_matmul_forward_time",
        f"{_class}_layer_input_gradient_time",
        f"{_class}_layer_weight_gradient_time",
    )
