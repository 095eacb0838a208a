"""A model's shapes as arguments of Megatron-LM.

Names of arguments are those of NVIDIA/Megatron-LM @d98e8a64dd: megatron/training/arguments.py, and
megatron/core/transformer/transformer_config.py, whose fields are arguments, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from overhead.model.order import pattern_of
from sweeps.launch.settings import said
from sweeps.launch.terms import MEGATRON, keys_of, terms_of
from sweeps.search.request import Execution


def model_arguments(plan: Execution) -> list[str]:
    """Return a model's shapes as arguments."""
    given = {name: value for name, value in plan.given.items() if value > 0.0}
    hybrid = given.get("linear_layers", 0.0) > 0.0 and "mamba" in given
    lines = [] if hybrid else [*_numbers(plan, "--num-layers")]
    lines += [
        *_numbers(plan, "--hidden-size", "--num-attention-heads"),
        f"--max-position-embeddings {max(plan['sequence_length'], plan['learned_positions']):.0f}",
    ]
    if plan["ffn_size"] > 0.0:
        lines.append(f"--ffn-hidden-size {plan['ffn_size']:.0f}")
    lines += [*_attention(plan), *said(plan, MEGATRON, "layers"), *_hybrid(plan)]
    if plan.routed:
        lines += _experts(plan)
    return [*lines, *said(plan, MEGATRON, "numbers")]


def _numbers(plan: Execution, *flags: str) -> Iterator[str]:
    """Yield arguments that are a quantity's number, as the reader's table declares them."""
    declared = keys_of(MEGATRON)
    yield from (f"{flag} {plan[declared[flag].quantity]:.0f}" for flag in flags)


def unsaid_of_model(plan: Execution) -> Iterator[str]:
    """Yield what a model has that these arguments don't say."""
    for name, words in terms_of(MEGATRON)["unsaid"].items():
        if plan.given.get(name, 0.0) > 0.0:
            yield f"the model's {words}"
    if plan.given.get("layer_norms", 2.0) > 2.0:
        yield "the model's further norms in each layer"
    if _window_share(plan) is None:
        yield "which of the model's layers have a window: --window-attn-skip-freq"
    if plan["gated_mlp"] == 0.0 and plan["layer_norm"] == 0.0:
        yield "the MLP's activation function (such as --squared-relu), which costs nothing"


def _attention(plan: Execution) -> Iterator[str]:
    if plan["kv_lora_rank"] > 0.0:
        yield "--multi-latent-attention"
        yield from _numbers(plan, "--kv-lora-rank", *terms_of(MEGATRON)["numbers"]["latent_heads"])
        yield "--qk-layernorm"
    else:
        yield f"--kv-channels {plan['head_size']:.0f}"
        if plan["kv_heads"] < plan["heads"]:
            yield "--group-query-attention"
            yield f"--num-query-groups {plan['kv_heads']:.0f}"
        if plan["qk_norms"] > 0.0:
            yield "--qk-layernorm"
    if plan["sliding_window"] > 0.0:
        yield f"--window-size {plan['sliding_window'] - 1.0:.0f},0"
        if share := _window_share(plan):
            yield f"--window-attn-skip-freq {share}"
    yield from said(plan, MEGATRON, "attention")


def _window_share(plan: Execution) -> int | None:
    """Return of how many layers one has no window: 0 for none; None where they aren't evenly so."""
    windowed = plan.given.get("sliding_window_layers", 0.0)
    if plan["sliding_window"] == 0.0 or windowed == 0.0:
        return 0
    share = plan["layers"] / max(plan["layers"] - windowed, 1.0)
    return int(share) if share.is_integer() else None


def _hybrid(plan: Execution) -> Iterator[str]:
    """Yield which layers have linear attention or a state space, and their shapes."""
    linear = plan.given.get("linear_layers", 0.0)
    if linear == 0.0:
        return
    if plan.given.get("mamba", 0.0) > 0.0:
        yield f"--hybrid-layer-pattern '{pattern_of(plan.given)}'"
        yield from _numbers(plan, *terms_of(MEGATRON)["numbers"]["state_space"])
        return
    yield "--experimental-attention-variant gated_delta_net"
    every = plan["layers"] / max(plan["layers"] - linear, 1.0)
    freq = f"{every:.0f}" if every.is_integer() else f"'({_runs(pattern_of(plan.given))})'"
    yield f"--linear-attention-freq {freq}"
    yield from _numbers(plan, *terms_of(MEGATRON)["numbers"]["linear_attention"])


def _runs(pattern: str) -> str:
    """Return an order of layers as runs of 1 (linear attention) and 0."""
    runs = ((kind, len([*layers])) for kind, layers in groupby(pattern))
    return "+".join(f"[{int(kind != '*')}]*{length}" for kind, length in runs)


def _experts(plan: Execution) -> Iterator[str]:
    yield from _numbers(plan, "--num-experts", "--moe-router-topk")
    yield f"--moe-ffn-hidden-size {plan['expert_ffn_size']:.0f}"
    dense, every = plan["dense_layers"], plan["moe_layer_frequency"]
    if dense > 0.0:
        yield f"--moe-layer-freq '([0]*{dense:.0f}+[1]*{plan['layers'] - dense:.0f})'"
    elif every > 1.0:
        yield f"--moe-layer-freq {every:.0f}"
    yield from said(plan, MEGATRON, "experts")
