"""Shapes of transformers: those that tests state, and those that hypothesis draws."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from overhead.evaluation import derive
from overhead.quantity import VOCABULARY
from overhead.transformer import SHAPES

__all__ = ["NONE", "Shapes", "count", "models", "routed", "shapes"]

Shapes = dict[str, float]
NONE: Shapes = {**dict.fromkeys(SHAPES, 0.0), "moe_layer_frequency": 1.0}


def shapes(**given: float) -> Shapes:
    """Return all shapes: what is given, heads that fill the hidden size, nothing else."""
    full = {"kv_heads": given["heads"], "head_size": given["hidden_size"] / given["heads"]}
    return {**NONE, **full, **given}


def count(model: Mapping[str, float], quantity: str = "parameters", **more: float) -> int:
    value = float(derive(quantity, {**model, **more}))
    assert value.is_integer()
    return int(value)


def routed(experts: int, top: int, size: int) -> Shapes:
    return {"experts": experts, "experts_per_token": top, "expert_ffn_size": size}


@st.composite
def models(draw: st.DrawFn) -> Shapes:
    """Draw a model: dense or of experts, with heads of their own or latent."""

    def pick(least: int, most: int) -> int:
        return draw(st.integers(least, most))

    groups, each = pick(1, 8), pick(1, 8)
    model = {
        **NONE,
        "layers": pick(1, 100),
        "hidden_size": 8 * pick(1, 500),
        "heads": groups * each,
        "kv_heads": groups,
        "head_size": pick(1, 256),
        "ffn_size": pick(1, 10**4),
        "vocabulary_size": pick(1, 10**6),
        "learned_positions": pick(0, 4096),
        "sliding_window": pick(0, 4096),
        **{flag: pick(0, 1) for flag in SHAPES if VOCABULARY[flag].flag},
    }
    if draw(st.booleans()):
        model |= routed(pick(1, 64), 1, pick(1, 1000))
        model["experts_per_token"] = pick(1, int(model["experts"]))
        model["shared_ffn_size"] = pick(0, 1000)
        model["dense_layers"] = pick(0, int(model["layers"]))
        model["moe_layer_frequency"] = pick(1, 4)
    if draw(st.booleans()):
        model |= dict(kv_heads=model["heads"], q_lora_rank=pick(0, 100), kv_lora_rank=pick(1, 100))
        sizes = ("qk_nope_head_size", "qk_rope_head_size", "v_head_size")
        model |= {size: pick(1, 64) for size in sizes}
    return {name: float(value) for name, value in model.items()}
