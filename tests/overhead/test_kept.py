"""What layers of unlike kinds keep for their backward, and what adapters have, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from overhead.completion import features
from sweeps.spec.catalog import load_model
from tests.overhead.memory_cases import Derivation
from tests.tables import keyed

MODELS = Path(__file__).parents[1] / "data" / "models"
SEQUENCE = 4096.0
FLASH, KIMI, NANO = "deepseek-v4-flash", "kimi-k3", "nemotron-3-nano-30b-a3b"


def kept(
    model: str, name: str, kernel: str = "flash_2", recompute: str = "none", **given: float
) -> float:
    """A quantity of a layer on one rank, in the mean of layers, per token."""
    values = {
        **load_model(model).shapes,
        "sequence_length": SEQUENCE,
        "matmul_input_bytes": 2.0,
        "weighted_outputs": 1.0,
        "stage": 0.0,
        **given,
    }
    labels = {"attention_kernel": kernel, "recompute": recompute, **features(values)}
    return float(Derivation(values, labels)[name])


def test_adapters_keep_residual_streams() -> None:
    """DeepSeek-V4 Flash: what four streams add is the same whether weights are frozen or not."""
    added = 2 * (4 + 1) * 2 * 4096  # Before each block four, and what it gives, in 16 bits
    for tuning in ({}, {"lora_rank": 16.0}, {"lora_rank": 16.0, "lora_mlp": 0.0}):
        four, one = (
            kept(FLASH, "moe_layer_activations", residual_streams=count, **tuning)
            for count in (4.0, 1.0)
        )
        assert four - one == added
    # Frozen: routed experts' inputs, 6 of 4096, and their last products' inputs, 6 of 2048.
    whole, frozen = (
        kept(FLASH, "moe_layer_activations", **tuning) for tuning in ({}, {"lora_rank": 16.0})
    )
    assert whole - frozen == 6 * 2 * (4096 + 2048)


def test_a_frozen_mixture_keeps_its_input_for_shared_experts_alone() -> None:
    """Mixtral 8x7B has none: its router is frozen, too.  GLM-4.5 Air has, and a dense layer."""
    lora = {"lora_rank": 16.0}
    norms = 2 * 2 * 4096 + 2 * 4096  # Both norms' inputs, and what attention's adapters take
    heads = 2 * (32 * 128 + 2 * 8 * 128 + 32 * 128) + 4 * 32
    experts = 2 * (2 * 2 * 14336 + 2 * 4096)  # Of two experts the inside, and what they give
    router = 2 * 4 * 8
    moe_layer_activations = kept("mixtral-8x7b", "moe_layer_activations", **lora)
    assert moe_layer_activations == norms + heads + experts + router
    # What adapters of an MLP, or of shared experts, take: its input and its last product's.
    for name, size in (("moe_block_activations", 1408), ("mlp_block_activations", 10944)):
        none, taken = (kept("glm-4.5-air", name, **lora, lora_mlp=mlp) for mlp in (0.0, 1.0))
        assert taken - none == 2 * (4096 + size)


def test_modules_of_frozen_layers_that_are_recomputed_made_what_is_kept() -> None:
    """Mixtral's norms' outputs are kept for attention's adapters alone; experts' inputs aren't."""
    lora = {"lora_rank": 16.0, "recompute_core_attn": 0.0}
    given = {**lora, "recompute_layernorm": 1.0, "recompute_moe_act": 1.0}
    names = ("mixer_module_activations", "moe_block_module_activations")
    assert [kept("mixtral-8x7b", name, **given) for name in names] == [2 * 4096, 0.0]
    given = {**given, "lora_attention": 0.0}
    assert [kept("mixtral-8x7b", name, **given) for name in names] == [0.0, 0.0]


@pytest.mark.parametrize(("kernel", "number"), [("flash_2", 4), ("unfused", 2 * 4096)])
def test_layers_with_linear_attention_have_no_scores(kernel: str, number: int) -> None:
    """Qwen3.5 27B: 24 heads in 16 of 64 layers; Kimi K3: 96 in 24 of 93, and latent vectors."""
    mixer_module_activations = kept("qwen3.5-27b", "mixer_module_activations", kernel)
    assert mixer_module_activations == pytest.approx(16 / 64 * 24 * number, rel=1e-12)
    mixer_module_activations = kept(KIMI, "mixer_module_activations", kernel)
    assert mixer_module_activations == pytest.approx(24 / 93 * 96 * number, rel=1e-12)
    # Around it norm and input; latent vectors; queries, keys, values, gate, its product, context.
    latent = 2 * 2 * 7168 + 2 * (2 * (1536 + 512) + 64) + 96 * number
    latent += 2 * 96 * (2 * 192 + 128 + 2 * 128 + 128)
    alone = {"latent_attention_fraction": 1.0, "linear_attention_fraction": 0.0}
    assert kept(KIMI, "mixer_activations", kernel, **alone) == latent
    share = kept(KIMI, "latent_attention_fraction"), kept(KIMI, "grouped_query_fraction")
    assert share == (pytest.approx(24 / 93), 0.0)


def test_two_products_behind_attention_keep_an_input_each() -> None:
    """DeepSeek-V4 Flash: 64 contexts of 512, then 8 groups' vectors of 1024."""

    def kept_alone(**change: float) -> float:
        return kept(FLASH, "mixer_activations", indexer_fraction=0.0, **change)

    one, two = (kept_alone(output_rank=rank) for rank in (0.0, 1024.0))
    assert two - one == 2 * 8 * 1024
    # Frozen, neither it nor the first products keep what they take.
    assert kept_alone(lora_rank=8.0, lora_attention=0.0) == one - 2 * 4096
    # The first takes contexts in 16 bits, whatever the second takes.
    narrow = kept_alone(matmul_input_bytes=1.0)
    assert two - narrow == 8 * 1024 + 4096
    split = kept_alone(tp=8.0)
    between = 2 * (2 * 4096 + 5 * 4096 + 2 * 1024)  # Input, streams and queries' latent vector
    assert split == between + 2 * (2 * 8 * 512 + 2 * 512 + 1024) + 4 * 8


def test_projections_up_are_where_there_are_latent_vectors() -> None:
    """Kimi K3: of 24 of 93 layers; DeepSeek-V4 Flash: of its queries, for no key is projected."""
    up = {"recompute_mla_up_proj": 1.0, "recompute_core_attn": 0.0}
    kimi = 2 * 96 * (192 + 192 + 128)
    assert kept(KIMI, "mixer_module_activations", **up) == pytest.approx(24 / 93 * kimi, rel=1e-12)
    assert kept(FLASH, "mixer_module_activations", **up) == 2 * 64 * 512
    # Outputs by weights: a rank's queries, keys and values from their vectors.
    width = (1536 * 96 * 192 + 512 * 96 * 256) / 7168
    up_projection_width = kept(KIMI, "up_projection_width")
    assert up_projection_width == pytest.approx(24 / 93 * width, rel=1e-12)
    assert kept(FLASH, "up_projection_width") == 1024 * 64 * 512 / 4096
    assert kept("llama3-70b", "up_projection_width") == 0.0


def test_adapters_of_each_product_by_hand() -> None:
    def adapters(model: str, **only: float) -> float:
        return kept(model, "adapter_parameters", lora_rank=1.0, **only)

    attention, mlps = {"lora_mlp": 0.0}, {"lora_attention": 0.0}
    # Kimi K3, 24 latent: queries and keys down and up, a gate of 96 values, the context's product.
    down = 7168 + 1536 + 7168 + 512 + 64
    up = 1536 + 96 * 192 + 512 + 96 * (128 + 128)
    out = 2 * (7168 + 96 * 128)
    inner = 96 * 128
    linear = 7168 + 4 * inner + 2 * 96 + inner + 7168
    assert adapters(KIMI, **attention) == pytest.approx(24 * (down + up + out) + 69 * linear)
    # Nemotron-3 Nano: 23 shared experts of 3,712; behind its other mixers is nothing.
    assert adapters(NANO, **mlps) == 23 * 2 * (2688 + 3712)
    # DeepSeek-V4 Flash: queries down and up, one vector counted as key and value, and the context
    # in groups to 8 vectors of 1024 and from there.
    queries, keys = 4096 + 1024 + 1024 + 64 * 512, 4096 + 2 * 512
    output = 64 * 512 + 8 * 1024 + 8 * 1024 + 4096
    assert adapters(FLASH, **attention) == 43 * (queries + keys + output)


def test_further_tokens_cost_training_of_adapters_something() -> None:
    """DeepSeek-V3: beside a forward and inputs' gradients, of scores a third part."""
    plan = {"lora_rank": 1.0, "sequence_length": 4096.0}
    names = ("", "causal_")
    for prefix in names:
        more = kept("deepseek-v3", f"{prefix}model_flops_per_token", **plan, mtp_layers=1.0)
        none = kept("deepseek-v3", f"{prefix}model_flops_per_token", **plan)
        weights = kept("deepseek-v3", "mtp_weight_flops_per_token", **plan, mtp_layers=1.0)
        scores = kept("deepseek-v3", f"{prefix}attention_flops_per_token", **plan) / 61
        assert more - none == pytest.approx(2 * weights + 3 * scores, rel=1e-9)


def test_adapters_that_a_layer_exchanges_are_the_mean_of_its_stage() -> None:
    """DeepSeek-V3: MLPs of 18,432 in 3 of 61 layers, shared experts of 2,048 in the others."""
    plan = {"lora_rank": 1.0, "lora_attention": 0.0}
    dp_layer_trained_parameters = kept("deepseek-v3", "dp_layer_trained_parameters", **plan)
    dense, shared = 2 * 7168 + 3 * 18432, 2 * 7168 + 3 * 2048
    assert dp_layer_trained_parameters == pytest.approx((3 * dense + 58 * shared) / 61, rel=1e-12)


@pytest.mark.parametrize("model", [FLASH, KIMI, "llama3-70b"])
def test_adapters_are_no_better_known_than_training_all_weights(model: str) -> None:
    plan = keyed("uncalibrated_device=0.0 unknown_settings=0.0 world_size=64.0 gpus_per_node=8.0")
    plan |= {"device_kind": 0.0, "software_kind": 0.0, "given_options": 1.0}
    for name in ("error_band_low", "error_band_high"):
        whole, adapted = (kept(model, name, **plan, **more) for more in ({}, {"lora_rank": 8.0}))
        assert abs(adapted) >= abs(whole)


def order_of(model: str) -> str:
    """The published order of a Nemotron's layers: Mamba-2, attention, experts."""
    config = json.loads((MODELS / f"{model}.json").read_text(encoding="utf-8"))
    letters = {"mamba": "M", "attention": "*", "moe": "E"}
    order = config.get("hybrid_override_pattern") or config["layers_block_type"]
    return "".join(letters.get(kind, kind) for kind in order)


@pytest.mark.parametrize(
    ("model", "exact"),
    [
        (NANO, (1, 2, 4, 13)),
        ("nemotron-3-super-120b-a12b", (1, 2, 4, 8, 11)),
        ("nemotron-3-ultra-550b-a55b", (1, 2, 3, 4)),
    ],
)
def test_stages_hold_the_experts_of_their_slice_of_the_layers(
    model: str, exact: tuple[int, ...]
) -> None:
    """As many as the slice with most of them; cut one further, no more than one off."""
    order = order_of(model)
    for pp in (pp for pp in range(1, 17) if len(order) % pp == 0):
        size = len(order) // pp
        slices = [order[first : first + size] for first in range(0, len(order), size)]
        most = max(one.count("E") for one in slices)
        for stage in range(pp):
            plan = {"pp": float(pp), "stage": float(stage)}
            stage_moe_layers = kept(model, "stage_moe_layers", **plan)
            assert abs(stage_moe_layers - most) <= (0.0 if pp in exact else 1.0)
            mixers = kept(model, "stage_layers", **plan)
            assert mixers == pytest.approx((len(order) - order.count("E")) / pp, rel=1e-12)
            assert abs(mixers - size + slices[stage].count("E")) <= 1.0


def test_weights_of_nemotron_3_nano_in_four_stages() -> None:
    """Stages of 13 of its 52 layers: beside the weights of each, mixer by mixer."""
    order = order_of(NANO)
    mamba = 2688 * (2 * 4096 + 2 * 1024 + 64) + 4096 * 2688
    attention = 2688 * 128 * (32 + 2 * 2) + 32 * 128 * 2688
    mixture = 128 * 2 * 2688 * 1856 + 2 * 2688 * 3712 + 2688 * 128
    table = 131072 * 2688
    for stage in range(4):
        part = order[13 * stage : 13 * (stage + 1)]
        sizes = {"M": mamba, "*": attention, "E": mixture}
        whole = sum(sizes[kind] for kind in part) + table * (stage in (0, 3))
        rank_parameters = kept(NANO, "rank_parameters", pp=4.0, stage=float(stage))
        assert rank_parameters == pytest.approx(whole, rel=0.02 if part.count("E") == 6 else 0.2)
        assert rank_parameters > whole * 0.98
