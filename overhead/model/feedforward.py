"""What works on each token by itself: an MLP, or a router with its experts."""

from __future__ import annotations

from overhead.arrays import xp
from overhead.formula import cited, declare
from overhead.model.layer import (
    AGAIN,
    HEADS,
    OF_KEPT,
    ROWS,
    WHOLE,
    Kept,
    Linear,
    Part,
    adapter_width,
    all_parameters,
    declare_sum,
    kept_bytes,
    module_bytes,
    rank_parameters,
    residual,
    sum_of,
    weights,
)
from overhead.quantity import Array


def mlp(hidden_size, gated_mlp, ffn_size, linear_bias, mlp_bias, mlp_fraction):
    """A dense layer's MLP, in the mean of such layers; one of no width has nothing."""
    bias, width = xp.maximum(linear_bias, mlp_bias), mlp_fraction * ffn_size
    down = Linear(width, hidden_size, ROWS, xp.where(ffn_size > 0.0, mlp_fraction * bias, 0.0))
    return Part((Linear(hidden_size, (1.0 + gated_mlp) * width, bias=bias), down))


def shared_experts(hidden_size, gated_mlp, shared_ffn_size, linear_bias, mlp_bias):
    """A layer's shared experts, which are one MLP of their widths together."""
    return mlp(hidden_size, gated_mlp, shared_ffn_size, linear_bias, mlp_bias, 1.0)


def expert(expert_hidden_size, gated_mlp, expert_ffn_size, linear_bias, expert_bias):
    """One routed expert."""
    return mlp(expert_hidden_size, gated_mlp, expert_ffn_size, linear_bias, expert_bias, 1.0)


def router(hidden_size, router_width, experts, router_bias, shared_expert_gate):
    """Scores of the experts, with a bias each that balances their load, and latent projections.

    Shared experts may have a gate, which is one score more.
    """
    linears = (
        Linear(hidden_size, router_width, WHOLE, adapted=False),
        Linear(hidden_size, shared_expert_gate, WHOLE, adapted=False),
    )
    return Part(linears, (router_bias * experts,))


# What each keeps for its backward.


def mlp_kept(
    hidden_size,
    gated_mlp,
    ffn_size,
    activation_bytes,
    norm_kept_bytes,
    activation_output_bytes,
    kept_layer_input_bytes,
    dropout,
    mask_bytes,
    residual_streams,
    layer_norms,
    mlp_fraction,
):
    """A dense layer's MLP: its input, and both sides of its activation function."""
    return (
        *residual(
            hidden_size,
            activation_bytes,
            norm_kept_bytes,
            kept_layer_input_bytes,
            dropout,
            mask_bytes,
            residual_streams,
            layer_norms,
        ),
        *_inside(
            mlp_fraction * ffn_size,
            gated_mlp,
            activation_bytes,
            activation_output_bytes,
            kept_layer_input_bytes,
            ("recompute_mlp",),
            ("recompute_mlp",),
        ),
    )


def _inside(
    size: Array,
    gated_mlp: Array,
    element: Array,
    output_bytes: Array,
    input_bytes: Array,
    again: tuple[str, ...],
    act: tuple[str, ...],
) -> tuple[Kept, ...]:
    """What the first GEMM gives, what a gate multiplies, and what the last GEMM takes."""
    return (
        Kept((1.0 + gated_mlp) * size, element, HEADS, again),
        Kept(gated_mlp * size, output_bytes, HEADS, act),
        Kept(size, input_bytes, HEADS, act),
    )


def moe_kept(
    hidden_size,
    gated_mlp,
    shared_ffn_size,
    experts,
    experts_per_token,
    expert_load_imbalance,
    etp,
    expert_hidden_size,
    expert_ffn_size,
    expert_latent_size,
    weighted_outputs,
    activation_bytes,
    norm_kept_bytes,
    activation_output_bytes,
    kept_moe_input_bytes,
    kept_layer_input_bytes,
    kept_expert_input_bytes,
    single_bytes,
    dropout,
    mask_bytes,
    residual_streams,
    layer_norms,
):
    """A mixture of experts: of the router, shared experts, and the rows of routed ones.

    Ranks dispatch a share of the tokens each; an expert's output is kept where the probabilities
    multiply it.
    """
    moe, rows = ("recompute_moe",), expert_load_imbalance * experts_per_token
    both, act = (*moe, "recompute_shared_experts"), (*moe, "recompute_moe_act")
    ends = rows * etp * expert_hidden_size
    return (
        *residual(
            hidden_size,
            activation_bytes,
            norm_kept_bytes,
            kept_moe_input_bytes,
            dropout,
            mask_bytes,
            residual_streams,
            layer_norms,
        ),
        Kept(2.0 * experts, single_bytes, again=moe),
        Kept(expert_latent_size, activation_bytes, again=moe),
        *_inside(
            shared_ffn_size,
            gated_mlp,
            activation_bytes,
            activation_output_bytes,
            kept_layer_input_bytes,
            both,
            both,
        ),
        Kept(ends, kept_expert_input_bytes, HEADS, moe),
        *_inside(
            rows * expert_ffn_size,
            gated_mlp,
            activation_bytes,
            activation_output_bytes,
            kept_expert_input_bytes,
            moe,
            act,
        ),
        Kept(weighted_outputs * ends, activation_bytes, HEADS, moe),
    )


PLAIN = cited("vaswani2017", "section 3.3; gated: Shazeer 2020, section 2")
ROUTED = cited("mixtral2024", "section 2.1")
SHARED = cited(
    "deepseekv3",
    "section 2.1.2",
    assumes=("the shared experts are one MLP of their widths together",),
)
SPLIT = "the bias of a GEMM that is split by inputs is whole on each rank"
for _name, _kind, _source in (
    ("mlp", mlp, PLAIN),
    ("expert", expert, ROUTED),
    ("shared_expert", shared_experts, SHARED),
    ("router", router, ROUTED),
):
    declare_sum(f"{_name}_weights", weights, _kind, **_source)
    declare_sum(f"{_name}_parameters", all_parameters, _kind, (f"{_name}_weights",), **_source)
TENSOR = cited("narayanan2021", "section 2.3", assumes=(SPLIT,))
declare_sum("mlp_rank_parameters", rank_parameters, mlp, ("tp",), **TENSOR)
_shared, _of_shared = sum_of(rank_parameters, shared_experts, ("tp",))
_expert, _of_expert = sum_of(rank_parameters, expert, ("etp",))
declare(
    "shared_rank_parameters",
    ("router_parameters", *_shared),
    lambda router, *sizes: router + _of_shared(*sizes),
    source="megatron",
    where="megatron/core/transformer/moe (router.py, shared_experts.py)",
    assumes=("the router is whole on each rank", SPLIT),
)
declare(
    "expert_rank_parameters",
    ("local_experts", *_expert),
    lambda local, *sizes: local * _of_expert(*sizes),
    source="megatron",
    where="megatron/core/transformer/moe/experts.py",
    assumes=(SPLIT,),
)
ADAPTED = cited("hu2021", "section 4.1")
declare_sum("mlp_adapter_width", adapter_width, mlp, ("lora_mlp",), **ADAPTED)
declare_sum(
    "shared_adapter_width",
    adapter_width,
    shared_experts,
    ("lora_mlp",),
    assumes=("routed experts and the router have none",),
    **ADAPTED,
)

KEPT = cited("korthikanti2022", "sections 4.1 and 4.2.2")
MOE = cited(
    "megatron",
    "megatron/core/transformer/moe: router.py, shared_experts.py, experts.py and "
    "token_dispatcher.py; moe_layer.py: fc2_latent_proj",
    assumes=(
        "logits and probabilities are in single precision",
        "tensor-parallel ranks dispatch a share of the tokens each (sequence parallelism)",
        "expert outputs are saved where scaled by router probabilities, and from a latent vector",
    ),
)
MODULES = cited(
    "megatron",
    "megatron/core/transformer/transformer_config.py: recompute_modules",
    assumes=("expert activation functions give the input of the down-projection",),
)
for _name, _kept, _further in (("mlp", mlp_kept, KEPT), ("moe", moe_kept, MOE)):
    declare_sum(f"{_name}_block_activations", kept_bytes, _kept, OF_KEPT, **_further)
    declare_sum(
        f"{_name}_block_module_activations", module_bytes, _kept, (*OF_KEPT, *AGAIN), **MODULES
    )
