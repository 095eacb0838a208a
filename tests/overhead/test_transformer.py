"""Parameters and floating-point operations: published totals and formulas, worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.evaluation import MissingQuantities, derive
from overhead.formula import REGISTRY
from overhead.quantity import VOCABULARY
from overhead.transformer import SHAPES
from tests.overhead.transformers import Shapes, count, routed, shapes
from tests.tables import examples


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51200) -> Shapes:
    return shapes(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        ffn_size=4 * hidden,
        vocabulary_size=vocabulary,
        learned_positions=2048,
        tied_embeddings=1,
        linear_bias=1,
        layer_norm=1,
    )


def decoder(*sizes: float, **more: float) -> Shapes:
    names = ("layers", "hidden_size", "heads", "kv_heads", "head_size", "ffn_size")
    given = dict(zip((*names, "vocabulary_size"), sizes, strict=True))
    return shapes(**given, gated_mlp=1, **more)


def latent(layers: int, heads: int, vocabulary: int, experts: int, dense: int) -> Shapes:
    return shapes(
        layers=layers,
        hidden_size=7168,
        heads=heads,
        ffn_size=18432,
        vocabulary_size=vocabulary,
        gated_mlp=1,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_size=128,
        qk_rope_head_size=64,
        v_head_size=128,
        experts=experts,
        experts_per_token=8,
        expert_ffn_size=2048,
        shared_ffn_size=2048,
        dense_layers=dense,
        router_bias=1,
    )


LLAMA2_7B = decoder(32, 4096, 32, 32, 128, 11008, 32000)
TOTALS: dict[str, tuple[Shapes, int, int]] = {
    name: (model, total, active or total)
    for name, model, total, active in (
        ("GPT-3 175B", gpt(96, 12288, 96, 50257), 174_604_259_328, 0),
        ("Llama 2 7B", LLAMA2_7B, 6_738_415_616, 0),
        ("Llama 2 13B", decoder(40, 5120, 40, 40, 128, 13824, 32000), 13_015_864_320, 0),
        ("Llama 2 70B", decoder(80, 8192, 64, 8, 128, 28672, 32000), 68_976_648_192, 0),
        ("Llama 3 8B", decoder(32, 4096, 32, 8, 128, 14336, 128256), 8_030_261_248, 0),
        ("Llama 3 70B", decoder(80, 8192, 64, 8, 128, 28672, 128256), 70_553_706_496, 0),
        ("Llama 3 405B", decoder(126, 16384, 128, 8, 128, 53248, 128256), 405_853_388_800, 0),
        (
            "Qwen2.5 72B",
            decoder(80, 8192, 64, 8, 128, 29568, 152064, qkv_biases=1),
            72_706_203_648,
            0,
        ),
        ("Qwen3 32B", decoder(64, 5120, 64, 8, 128, 25600, 151936, qk_norms=1), 32_762_123_264, 0),
        (
            "Qwen3 0.6B",
            decoder(28, 1024, 16, 8, 128, 3072, 151936, qk_norms=1, tied_embeddings=1),
            596_049_920,
            0,
        ),
        (
            "Qwen3 235B-A22B",
            decoder(94, 4096, 64, 4, 128, 0, 151936, qk_norms=1, **routed(128, 8, 1536)),
            235_093_634_560,
            22_190_763_520,
        ),
        (
            "Mixtral 8x7B",
            decoder(32, 4096, 32, 8, 128, 0, 32000, **routed(8, 2, 14336)),
            46_702_792_704,
            12_879_925_248,
        ),
        ("DeepSeek-V3", latent(61, 128, 129280, 256, 3), 671_026_419_200, 37_552_297_472),
        ("Kimi K2", latent(61, 64, 163840, 384, 1), 1_026_408_232_448, 32_861_500_928),
        # Its model card's number; the attention's heads aren't hidden_size/heads wide.
        (
            "Mistral 7B",
            decoder(32, 4096, 32, 8, 128, 14336, 32000, sliding_window=4096),
            7_241_732_096,
            0,
        ),
    )
}


@pytest.mark.parametrize("name", TOTALS)
def test_published_totals(name: str) -> None:
    model, total, active = TOTALS[name]
    assert count(model) == total
    assert count(model, "active_parameters") == active


# Narayanan et al. 2021, table 1: layers, hidden size, heads, parameters in billions.
MEGATRON = examples(__file__, "megatron")


@pytest.mark.parametrize(("layers", "hidden", "heads", "billions"), MEGATRON)
def test_narayanan_2021_table_1(layers: int, hidden: int, heads: int, billions: float) -> None:
    assert round(count(gpt(layers, hidden, heads)) / 1e9, 1) == billions


sizes = st.integers(1, 64)


@given(layers=sizes, heads=sizes, size=sizes, vocabulary=st.integers(1, 10**6))
def test_narayanan_2021_equation_2(layers: int, heads: int, size: int, vocabulary: int) -> None:
    # P = 12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h)); it leaves out the last layer norm, 2 h.
    h = heads * size
    total = 12 * layers * h * h + 13 * layers * h + (vocabulary + 2048) * h
    assert count(gpt(layers, h, heads, vocabulary)) == total + 2 * h


@given(
    layers=sizes,
    heads=sizes,
    size=sizes,
    sequence=st.integers(1, 10**5),
    vocabulary=st.integers(1, 10**6),
    batch=sizes,
)
def test_narayanan_2021_flops(
    layers: int, heads: int, size: int, sequence: int, vocabulary: int, batch: int
) -> None:
    h = heads * size
    model = {**gpt(layers, h, heads, vocabulary), "sequence_length": sequence}
    parts = ("weight_flops_per_token", "attention_flops_per_token", "logits_flops_per_token")
    weights, attention, logits = (count(model, part) for part in parts)
    tokens = batch * sequence
    # Equation (3): layers once more forward to recompute them, logits not.
    full = 96 * tokens * layers * h * h * (1 + sequence / 6 / h + vocabulary / 16 / layers / h)
    assert tokens * (4 * (weights + attention) + 3 * logits) == pytest.approx(full, rel=1e-12)
    once = 72 * tokens * layers * h * h * (1 + sequence / 6 / h + vocabulary / 12 / layers / h)
    ours = float(derive("model_flops", {**model, "global_batch_size": batch}))
    assert ours == pytest.approx(once, rel=1e-12)


PALM = decoder(118, 18432, 48, 1, 256, 73728, 256000, tied_embeddings=1)


def test_palm_s_flops_per_token() -> None:
    # Appendix B: 6 N + 12 L H Q T, where norms are too small to tell: 540.35 billion and 2048.
    norms = (2 * 118 + 1) * 18432
    total = count(PALM)
    assert round((total - norms) / 1e9, 2) == 540.35
    flops = 6 * (total - norms) + 12 * 118 * 48 * 256 * 2048
    assert count(PALM, "model_flops_per_token", sequence_length=2048) == flops


TINY = decoder(2, 8, 2, 1, 4, 16, 10)


def test_a_tiny_decoder() -> None:
    # Attention: 8*2*4 to queries, 2*8*1*4 to keys and values, 2*4*8 back; MLP: 3*8*16.
    assert count(TINY, "mixer_weights") == 64 + 64 + 64
    assert count(TINY, "mixer_parameters") == 192
    assert count(TINY, "mlp_parameters") == 384
    # A layer: 192 + 384 + two norms of 8; two of them, two tables of 10*8, and the last norm.
    assert count(TINY, "dense_layer_parameters") == 592
    assert count(TINY, "non_layer_parameters") == 80 + 80 + 8
    assert count(TINY) == 2 * 592 + 168
    assert count({**TINY, "tied_embeddings": 1}) == 2 * 592 + 88


def test_a_tiny_decoder_s_flops() -> None:
    # Two FLOPs for each of 2*(192 + 384) weights; logits 2*8*10; scores 2*4*2*4 and values as
    # many, in 2 layers; a causal mask hides half of these.
    given = {**TINY, "sequence_length": 4.0}
    assert count(given, "weight_flops_per_token") == 2304
    assert count(given, "logits_flops_per_token") == 160
    assert count(given, "attention_flops_per_token") == 256
    assert count(given, "causal_attention_flops_per_token") == 128
    assert count(given, "forward_flops_per_token") == 2720
    assert count(given, "causal_forward_flops_per_token") == 2592
    assert count(given, "model_flops", global_batch_size=3) == 3 * 2720 * 12
    assert count(given, "causal_model_flops", global_batch_size=3) == 3 * 2592 * 12


def test_a_tiny_gpt() -> None:
    tiny = shapes(
        layers=1,
        hidden_size=4,
        heads=2,
        ffn_size=16,
        vocabulary_size=5,
        learned_positions=3,
        tied_embeddings=1,
        linear_bias=1,
        layer_norm=1,
    )
    # Attention 4*4*4 and biases 3*4 + 4; MLP 2*4*16 and biases 16 + 4; two norms of 8.
    assert count(tiny, "mixer_parameters") == 64 + 16
    assert count(tiny, "mlp_parameters") == 128 + 20
    assert count(tiny) == 80 + 148 + 16 + 5 * 4 + 3 * 4 + 8
    # Biases, positions and norms cost no FLOPs.
    assert count(tiny, "weight_flops_per_token") == 2 * (64 + 128)
    # Biases of queries, keys and values alone: 2*2 + 2*(1*2) with one key and value head.
    settings = {**tiny, "linear_bias": 0, "qkv_biases": 1, "kv_heads": 1}
    assert count(settings, "mixer_parameters") - count(settings, "mixer_weights") == 8
    assert count({**tiny, "qkv_biases": 1}) == count(tiny)


LATENT = shapes(
    layers=1,
    hidden_size=8,
    heads=2,
    vocabulary_size=1,
    q_lora_rank=4,
    kv_lora_rank=3,
    qk_nope_head_size=2,
    qk_rope_head_size=1,
    v_head_size=2,
)


def test_a_tiny_latent_attention() -> None:
    # Queries 8*4 down and 4*2*(2+1) up; keys and values 8*(3+1) down and 3*2*(2+2) up; 2*2*8 back.
    assert count(LATENT, "mixer_weights") == 32 + 24 + 32 + 24 + 32
    assert count(LATENT, "up_projection_weights") == 24 + 24
    # Norms of both latent vectors.
    assert count(LATENT, "mixer_parameters") == 144 + 4 + 3
    # Queries straight from hidden: 8*2*3.
    assert count({**LATENT, "q_lora_rank": 0}, "mixer_parameters") == 48 + 32 + 24 + 32 + 3
    # Biases: outputs 4 + 2*3 of queries, 3 + 1 + 2*(2+2) of keys and values, 8 back.
    biased = count({**LATENT, "linear_bias": 1}, "mixer_parameters")
    assert biased - count(LATENT, "mixer_parameters") == 10 + 12 + 8
    # Scores over 2 + 1, values over 2: 2*10*2*(3 + 2).
    assert count(LATENT, "attention_flops_per_token", sequence_length=10) == 200


MIXTURE = shapes(
    layers=7,
    hidden_size=4,
    heads=2,
    ffn_size=9,
    vocabulary_size=1,
    gated_mlp=1,
    experts=6,
    experts_per_token=2,
    expert_ffn_size=5,
    shared_ffn_size=7,
    dense_layers=1,
    moe_layer_frequency=2,
    router_bias=1,
)


def test_a_tiny_mixture_of_experts() -> None:
    # One expert 3*4*5; router 4*6 and a bias for each; shared experts 3*4*7.
    assert count(MIXTURE, "expert_parameters") == 60
    assert count(MIXTURE, "router_parameters") == 30
    assert count(MIXTURE, "shared_expert_parameters") == 84
    assert count(MIXTURE, "moe_parameters") == 6 * 60 + 30 + 84
    # Of 7 layers 1 is dense, and of the 6 others every second.
    assert count(MIXTURE, "moe_layers") == 3
    assert count(MIXTURE, "dense_mlp_layers") == 4
    assert count(MIXTURE) - count(MIXTURE, "active_parameters") == 3 * 4 * 60
    # Attention 64 in 7 layers, MLP 108 in 4, router 24, shared 84 and two experts in 3.
    active = 7 * 64 + 4 * 108 + 3 * (24 + 84 + 120)
    assert count(MIXTURE, "weight_flops_per_token") == 2 * active
    # With biases an expert has 2*5 + 4 more, the shared ones 2*7 + 4, none where there are none.
    biased = {**MIXTURE, "linear_bias": 1}
    assert count(biased, "expert_parameters") == 60 + 14
    assert count(biased, "shared_expert_parameters") == 84 + 18
    assert count({**biased, "shared_ffn_size": 0}, "shared_expert_parameters") == 0


# The declarations.


def test_what_is_missing_is_named_all_at_once() -> None:
    with pytest.raises(MissingQuantities) as error:
        derive("logits_flops_per_token", {})
    assert error.value.missing == ("hidden_size", "vocabulary_size")
    with pytest.raises(MissingQuantities) as error:
        derive("parameters", {name: 1.0 for name in SHAPES if name not in {"layers", "gated_mlp"}})
    assert set(error.value.missing) == {"layers", "gated_mlp"}


def test_what_is_given_is_taken() -> None:
    assert derive("parameters", {"parameters": 70e9}) == 70e9
    assert derive("model_flops", {"model_flops_per_token": 6.0, "tokens_per_step": 2.0}) == 12.0


# Where formulas of a model stand.
SHAPED = ("transformer", "model")
PLACES = ("overhead/transformer.py", "overhead/model/", *(f"identities/{n}.csv" for n in SHAPED))


def test_every_shape_counts_for_something() -> None:
    used = {
        name
        for formula in REGISTRY.values()
        if any(place in formula.location for place in PLACES)
        for name in formula.inputs
    }
    # What predicts further tokens stands beside a step's FLOPs.
    assert set(SHAPES) <= used | set(REGISTRY["mtp_parameters"].inputs)
    assert all(VOCABULARY[name].integer for name in SHAPES)
