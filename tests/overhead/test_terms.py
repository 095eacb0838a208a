"""Terms of parameters that some families of decoders have alone, each by hand.

Their counts are Hugging Face transformers 5.24.0's: for each term the class that has it is named.
"""

from __future__ import annotations

from typing import Any

import pytest

from overhead.completion import features
from overhead.evaluation import Evaluation
from tests.overhead.transformers import Shapes, shapes
from tests.tables import keyed

# 3 layers of a hidden size of 8, 4 heads of 3 with 2 of keys, an MLP of 5, 7 tokens.
DENSE = shapes(
    layers=3,
    hidden_size=8,
    heads=4,
    kv_heads=2,
    head_size=3,
    ffn_size=5,
    vocabulary_size=7,
    gated_mlp=1,
)
ROUTED = DENSE | keyed("experts=6.0 experts_per_token=2.0 expert_ffn_size=4.0 shared_ffn_size=5.0")
LATENT = DENSE | keyed(
    "kv_lora_rank=6.0 q_lora_rank=5.0 qk_nope_head_size=2.0 qk_rope_head_size=1.0 v_head_size=2.0 "
    "kv_heads=4.0"
)
LINEAR = DENSE | keyed(
    "linear_layers=2.0 linear_key_heads=1.0 linear_value_heads=2.0 linear_key_size=3.0 "
    "linear_value_size=4.0 linear_kernel=0.0 mamba=0.0"
)


def found(name: str, given: Shapes, **more: Any) -> float:
    values = {**given, **more}
    return float(Evaluation(values, features(values))[name])


NORM = 8
TERMS: dict[str, tuple[Shapes, dict[str, float], float]] = {
    # Gemma2DecoderLayer: four norms; CohereDecoderLayer: one.
    "four norms": (DENSE, {"layer_norms": 4}, 3 * 2 * NORM),
    "one norm": (DENSE, {"layer_norms": 1}, -3 * NORM),
    # OlmoLayerNorm has no weights, after the last layer neither.
    "norms without weights": (DENSE, {"unscaled_norms": 1}, -7 * NORM),
    # BloomModel.word_embeddings_layernorm.
    "a norm after the embedding": (DENSE, {"embedding_norm": 1}, NORM),
    "with a bias": ({**DENSE, "layer_norm": 1.0}, {"embedding_norm": 1}, 2 * NORM),
    # Qwen3Attention: over one head; Olmo2Attention: q_norm over 4 heads, k_norm over 2.
    "norms of a head": (DENSE, {"qk_norms": 1}, 3 * 2 * 3),
    "norms of all heads": (DENSE, {"qk_norms": 1, "qk_norms_over_heads": 1}, 3 * (12 + 6)),
    # PhiAttention: layer norms with biases.
    "with biases": (DENSE, {"qk_norms": 1, "qk_norm_biases": 1}, 3 * 2 * 2 * 3),
    # LlamaAttention, attention_bias: 12 + 2*6 of queries, keys and values, 8 of the output.
    "biases of queries, keys and values": (DENSE, {"qkv_biases": 1}, 3 * 24),
    "of the output": (DENSE, {"attention_output_bias": 1}, 3 * 8),
    # LlamaMLP, mlp_bias: 2*5 + 8.
    "of the MLP": (DENSE, {"mlp_bias": 1}, 3 * 18),
    # All of them, as everywhere before.
    "of everything": (DENSE, {"linear_bias": 1}, 3 * (24 + 8 + 18)),
    # Of a mixture mlp_bias is the shared expert's; GptOssExperts: 6*(2*4 + 8).
    "of the shared expert": (ROUTED, {"mlp_bias": 1}, 3 * 18),
    "of routed experts": (ROUTED, {"expert_bias": 1}, 3 * 6 * 16),
    # DeepseekV3Attention, attention_bias: q_a_proj, and kv_a_proj_with_mqa with the rotated part.
    "of latent vectors": (LATENT, {"latent_bias": 1}, 3 * (5 + 6 + 1)),
    # PhiForCausalLM.lm_head.
    "of the head": (DENSE, {"lm_head_bias": 1}, 7),
    # Qwen2MoeSparseMoeBlock.shared_expert_gate: 8 weights.
    "a gate of the shared expert": (ROUTED, {"shared_expert_gate": 1}, 3 * 8),
    # ApertusMLP's xIELU: alpha_p and alpha_n.
    "two numbers a layer": (DENSE, {"layer_numbers": 2}, 6),
    # NemotronHBlock: one norm each; of 3 layers one has no MLP: 3*8*5 weights and its norm.
    "a layer without an MLP": (DENSE, {"bare_layers": 1}, -(3 * 8 * 5 + NORM)),
    # Qwen2MoeDecoderLayer, mlp_only_layers: of 3 layers 2 have a mixture, the other an MLP.
    "mixtures in two layers": (
        ROUTED, {"routed_layers": 2},
        3 * 8 * 5 - (6 * 3 * 8 * 4 + 3 * 8 * 5 + 6 * 8),
    ),
    # FalconH1DecoderLayer: attention beside Mamba in all layers that have it.
    "attention beside": (LINEAR, {"parallel_mixers": 1}, 2 * (8 * 12 + 2 * 8 * 6 + 12 * 8)),
    # MiniMaxLightningAttention in place of a gated delta net's 3 + 3 + 8 + 8 + 2*2 outputs,
    # 2*2 numbers of its decay and a norm of 4: 4*8 outputs, a norm of all heads' 8.
    "widths stated": (
        LINEAR, {"linear_width": 32, "linear_numbers": 8}, 2 * (8 * (32 - 26) + 8 - (4 + 4)),
    ),
    # JambaMambaMixer.x_proj and dt_proj.
    "weights between": (
        {**LINEAR, "linear_width": 32.0}, {"linear_further_weights": 40}, 2 * 40,
    ),
}  # fmt: skip


@pytest.mark.parametrize("term", TERMS)
def test_a_term_by_hand(term: str) -> None:
    given, change, more = TERMS[term]
    parameters = found("parameters", given, **change) - found("parameters", given)
    assert parameters == pytest.approx(more, rel=1e-12)


@pytest.mark.parametrize("term", TERMS)
def test_a_rank_holds_a_term_once(term: str) -> None:
    """On one rank a stage holds what the model does."""
    given, change, more = TERMS[term]
    plan = dict.fromkeys(
        ("tp", "pp", "ep", "etp", "virtual_pipeline_size", "vocabulary_multiple"), 1.0
    )
    plan |= dict(stage=0.0, local_experts=given.get("experts", 0.0), embedding_layer_weight=0.0)

    def held(**terms: float) -> float:
        values = {**given, **plan, **terms}
        return sum(found(name, values) for name in ("stage_parameters", "stage_expert_parameters"))

    assert held(**change) - held() == pytest.approx(more, rel=1e-12)


def test_ranks_share_biases_of_columns_alone() -> None:
    """On 2 ranks: of the output whole, of queries halves, of the head those of its rows."""

    def rank(name: str, **terms: float) -> float:
        return found(name, DENSE, tp=2.0, **terms) - found(name, DENSE, tp=2.0)

    assert rank("mixer_rank_parameters", attention_output_bias=1) == 8
    assert rank("mixer_rank_parameters", qkv_biases=1) == 12
    assert rank("mlp_rank_parameters", mlp_bias=1) == 5 + 8
    assert rank("mixer_rank_parameters", qk_norms=1, qk_norms_over_heads=1) == 18


def test_adapters_are_for_gemms_alone() -> None:
    """A gate of the shared expert, norms and biases have none; an output gate's GEMM shares one."""
    for change in ({"shared_expert_gate": 1}, {"mlp_bias": 1}, {"layer_norms": 4}):
        for name in ("mixer_adapter_width", "shared_adapter_width"):
            lora = {"lora_attention": 1.0, "lora_mlp": 1.0}
            assert found(name, ROUTED, **lora, **change) == found(name, ROUTED, **lora)


def test_a_gate_costs_flops_and_biases_none() -> None:
    gate = {"shared_expert_gate": 1}
    own = found("weight_flops_per_token", ROUTED, **gate) - found("weight_flops_per_token", ROUTED)
    assert own == 3 * 2 * 8
    for change in ({"mlp_bias": 1}, {"qk_norms": 1, "qk_norms_over_heads": 1}, {"layer_norms": 4}):
        assert found("weight_flops_per_token", ROUTED, **change) == found(
            "weight_flops_per_token", ROUTED
        )


def test_norms_of_a_layer_are_kept() -> None:
    """Each norm keeps its input; with one alone both halves of a layer share what it gives."""
    narrow = tuple(
        (
            "activation_bytes kept_layer_input_bytes kept_attention_input_bytes kept_context_bytes"
        ).split()
    )
    none = ("dropout", "score_bytes", "selected_span", "single_bytes")
    memory = {
        **dict.fromkeys(narrow, 2.0),
        **dict.fromkeys(none, 0.0),
        **dict.fromkeys(("mask_bytes", "tp", "sequence_shards"), 1.0),
    }

    def kept(**change: float) -> float:
        names = ("mlp_block_activations", "mixer_activations")
        return sum(found(name, DENSE, **memory, **change) for name in names)

    assert kept(layer_norms=4) - kept() == 2 * 8 * 2
    assert kept() - kept(layer_norms=1) == 2 * 8 * 2


def test_each_norm_reads_and_writes() -> None:
    """Twice two bytes of 10 tokens of 8 numbers for each of two norms more."""
    given = DENSE | keyed(
        "activation_bytes=2.0 dropout=0.0 mask_bytes=1.0 rank_tokens=10.0 sequence_shards=1.0 "
        "rotated_width=0.0 latent_width=0.0 merged_bytes=0.0"
    )
    name = "attention_elementwise_bytes"
    assert found(name, given, layer_norms=4) - found(name, given) == 2 * 2 * 2 * 10 * 8
