"""Recomputation as Megatron-LM has it: some layers of each chunk, units of them, modules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.memory.quantities import MODULES
from overhead.step.parts import PARTS
from tests.overhead.communication_cases import count
from tests.overhead.memory_cases import DEEPSEEK_V3, LLAMA3_70B, MIXED, held, stage_memory
from tests.overhead.step_cases import evaluation
from tests.tables import keyed

NOTHING = dict.fromkeys((f"recompute_{name}" for name in MODULES), 0.0)
# Of one token of Llama 3 70B on one GPU: inputs of norms and products 8 h, queries and context
# 4 h, keys and values 4 x 1,024, the scores' sums 4 x 64, the MLP's inside 6 x 28,672.
H, TOKENS = 8192, 8192
WHOLE = 8 * H + 4 * H + 4 * 1024 + 4 * 64 + 6 * 28672
INPUT = 2 * H


def test_layers_of_a_block_keep_their_input_alone() -> None:
    """Of the 20 layers of a stage 3 are recomputed, with 2 micro-batches in flight."""
    plan = {**LLAMA3_70B, "pp": 4, "in_flight_micro_batches": 2, "stage": 1}
    block = held({**plan, "recompute_layers": 3}, recompute="block")
    stored = 2 * TOKENS * (3 * INPUT + 17 * WHOLE)
    assert float(block["saved_activation_memory"]) == stored
    assert float(block["recompute_activation_memory"]) == TOKENS * (WHOLE - INPUT)
    none = held({**plan, "recompute_layers": 0}, recompute="block")
    assert float(none["saved_activation_memory"]) == 2 * TOKENS * 20 * WHOLE
    assert float(none["recompute_activation_memory"]) == 0.0
    # Two chunks of 10 layers each have 3 of their own.
    chunks = held({**plan, "recompute_layers": 3, "virtual_pipeline_size": 2}, recompute="block")
    stored = 2 * TOKENS * (6 * INPUT + 14 * WHOLE)
    assert float(chunks["saved_activation_memory"]) == stored


def test_units_of_layers_keep_one_input_and_are_there_as_a_whole() -> None:
    """20 layers in units of 3 are 7, the last of 2 layers."""
    plan = {**LLAMA3_70B, "pp": 4, "stage": 1}
    units = held({**plan, "recompute_layers": 3}, recompute="uniform")
    assert float(units["saved_activation_memory"]) == TOKENS * 7 * INPUT
    assert float(units["recompute_activation_memory"]) == TOKENS * (3 * WHOLE - INPUT)
    single, full = (
        held({**plan, "recompute_layers": 1}, recompute="uniform"),
        held(plan, recompute="full"),
    )
    for part in ("saved_activation_memory", "recompute_activation_memory"):
        assert float(single[part]) == float(full[part])


def test_whole_layers_may_keep_what_attention_gave() -> None:
    """Of 64 heads 128 numbers of 2 bytes and a sum of 4 are kept; no score is computed again."""
    kept = {**LLAMA3_70B, "pp": 4, "stage": 1, "recompute_core_attn": 0.0}
    memory = held(kept, recompute="full")
    assert float(memory["saved_activation_memory"]) == TOKENS * 20 * (INPUT + 64 * (2 * 128 + 4))
    for kind, again in (("ring", 0.0), ("all_gather", 1.0), ("all_to_all", 1.0)):
        plan = {**kept, "cp": 4}
        labels = {"recompute": "full", "context_parallel": kind}
        less = evaluation(plan, **labels)
        more = evaluation({**plan, "recompute_core_attn": 1.0}, **labels)
        assert float(less["layer_attention_recompute_time"]) == 0.0
        time, forward = more["layer_attention_recompute_time"], more["attention_forward_time"]
        assert float(time) == float(forward) > 0.0
        scores = float(more["computed_attention_flops_per_token"])
        fewer = more["recomputed_flops_per_token"] - less["recomputed_flops_per_token"]
        assert float(fewer) == pytest.approx(scores)
        assert float(less["recomputed_attentions"]) == again
        assert float(less["step_time"]) < float(more["step_time"])


def test_modules_drop_what_they_made() -> None:
    """By hand, of one token on one GPU; latent vectors, gates and experts of DeepSeek-V3."""

    def dropped(shapes: dict[str, float], of: str, **modules: float) -> float:
        memory = held({**shapes, **NOTHING, **modules}, recompute="selective")
        whole = float(memory[f"{of}_layer_activations"])
        return whole - float(memory[f"kept_{of}_layer_activations"])

    for of in ("dense", "moe"):
        assert dropped(DEEPSEEK_V3, of) == 0.0
        assert dropped(DEEPSEEK_V3, of, recompute_core_attn=1.0) == 4 * 128
        assert dropped(DEEPSEEK_V3, of, recompute_layernorm=1.0) == 2 * 2 * 7168
        up = 2 * 128 * (192 + 192 + 128)
        assert dropped(DEEPSEEK_V3, of, recompute_mla_up_proj=1.0) == up
        assert dropped(LLAMA3_70B, of, recompute_mla_up_proj=1.0) == 0.0
    assert dropped(DEEPSEEK_V3, "dense", recompute_mlp=1.0) == 3 * 2 * 18432
    assert dropped(DEEPSEEK_V3, "moe", recompute_mlp=1.0) == 0.0
    shared, act = 3 * 2 * 2048, 8 * 2 * 2048
    assert dropped(DEEPSEEK_V3, "moe", recompute_shared_experts=1.0) == shared
    assert dropped(DEEPSEEK_V3, "moe", recompute_moe_act=1.0) == act
    both = dropped(DEEPSEEK_V3, "moe", recompute_moe_act=1.0, recompute_shared_experts=1.0)
    assert both == shared + act
    # All of a mixture: the router's 2 x 4 bytes an expert, inputs of 8 experts and their inside.
    everything = 2 * 4 * 256 + shared + 8 * (2 * 7168 + 3 * 2 * 2048)
    assert dropped(DEEPSEEK_V3, "moe", recompute_moe=1.0) == everything
    again = dropped(DEEPSEEK_V3, "moe", recompute_moe=1.0, recompute_moe_act=1.0)
    assert again == everything


SEVEN = LLAMA3_70B | keyed("layers=28 global_batch_size=16 pp=2 tp=2 sequence_parallel=1")


def parts(labels: str, **more: float) -> np.ndarray:
    actual_evaluation = evaluation({**SEVEN, "stage": 0, **more}, recompute=labels)
    return np.array(
        [float(actual_evaluation[part]) for part in (*PARTS, "step_time", "hardware_flops")]
    )


@pytest.mark.thorough
def test_a_block_of_all_layers_is_full_recomputation_and_of_none_is_none() -> None:
    np.testing.assert_allclose(parts("block", recompute_layers=14), parts("full"), rtol=1e-13)
    np.testing.assert_allclose(parts("block", recompute_layers=99), parts("full"), rtol=1e-13)
    np.testing.assert_allclose(parts("block", recompute_layers=0), parts("none"), rtol=1e-13)
    np.testing.assert_allclose(parts("uniform", recompute_layers=2), parts("full"), rtol=1e-13)
    np.testing.assert_allclose(parts("selective", **NOTHING), parts("none"), rtol=1e-13)
    # Between them each layer takes as long as the one before; operations are the share's.
    position = PARTS.index("recompute_part_time")
    half, full = parts("block", recompute_layers=7), parts("full")
    assert half[position] == pytest.approx(full[position] / 2, rel=1e-13)
    assert half[-1] == pytest.approx((parts("none")[-1] + full[-1]) / 2, rel=1e-13)


def test_modules_take_the_time_of_their_forwards() -> None:
    """Experts by hand: products, what is put in order, and the exchange once more."""
    plan = {**DEEPSEEK_V3, "layers": 8, "global_batch_size": 64, "ep": 8, "dp": 8, "stage": 0}
    step = evaluation({**plan, **NOTHING, "recompute_moe": 1.0}, recompute="selective")
    none = evaluation(plan, recompute="none")
    products = ("router", "expert_up", "expert_down", "shared_up", "shared_down")
    total = sum(float(none[f"{name}_forward_time"]) for name in products)
    bytes_moved = none["moe_elementwise_bytes"] - none["attention_elementwise_bytes"]
    total += float(bytes_moved / (none["memory_efficiency"] * none["memory_bandwidth"]))
    assert float(step["moe_layer_recompute_time"]) == pytest.approx(total, rel=1e-12)
    assert float(step["dense_layer_recompute_time"]) == 0.0
    exchanged = float(step["exposed_ep_time"]) / float(none["exposed_ep_time"])
    assert exchanged == pytest.approx(1.5, rel=1e-12)
    counts = [float(count(one, "ep_dispatch", "backward")) for one in (step, none)]
    assert counts[0] == 2 * counts[1]
    up = evaluation({**plan, **NOTHING, "recompute_mla_up_proj": 1.0}, recompute="selective")
    weights = 1536 * 128 * 192 + 512 * 128 * 256
    share = weights / (weights + 7168 * (1536 + 512 + 64))
    result = float(up["dense_layer_matmul_recompute_time"])
    assert result == pytest.approx(share * float(none["qkv_forward_time"]), rel=1e-12)
    # Of the dense layers the MLP is the second block, with what it communicates.
    split = {**SEVEN, "stage": 0, **NOTHING, "recompute_mlp": 1.0}
    mlp, none = evaluation(split, recompute="selective"), evaluation(split, recompute="none")
    half = float(none["tp_layer_forward_time"]) / 2
    assert float(mlp["tp_layer_recompute_time"]) == pytest.approx(half, rel=1e-12)
    assert float(mlp["recomputed_gathers"]) == 0.5


@pytest.mark.thorough
@settings(max_examples=60)
@given(
    capacity=st.floats(10e9, 400e9),
    share=st.floats(0.5, 1.0),
    pp=st.sampled_from([1, 2, 4]),
    chunks=st.sampled_from([1, 2, 5]),
    flying=st.integers(1, 8),
)
def test_as_few_layers_are_recomputed_as_fit(
    capacity: float, share: float, pp: int, chunks: int, flying: int
) -> None:
    plan = {
        **LLAMA3_70B,
        **MIXED,
        "tp": 8,
        "sequence_parallel": 1,
        "dp": 8,
        "zero_stage": 1,
        "pp": pp,
        "virtual_pipeline_size": chunks,
        "in_flight_micro_batches": flying,
        "target_memory_fraction": share,
        "memory_capacity": capacity,
    }

    def peak(layers: float) -> float:
        return float(stage_memory({**plan, "recompute_layers": layers}, few).peak_memory)

    few = {"recompute": "block"}
    layers = float(held({**plan, "stage": 0}, recompute="block")["recompute_layers"])
    most = np.ceil(80 / (pp * chunks))
    assert layers == int(layers)
    assert 0 <= layers <= most
    assert float(stage_memory(plan, few).peak_memory) == peak(layers)
    room = share * capacity
    assert peak(layers) <= room * (1 + 1e-12) or layers == most
    if layers > 0:
        assert peak(layers - 1) > room * (1 - 1e-12)


@pytest.mark.parametrize("kind", ["ring", "mixed"])
@pytest.mark.parametrize("shapes", [LLAMA3_70B, DEEPSEEK_V3])
def test_attention_in_a_ring_merges_again_where_it_is_repeated(
    shapes: dict[str, float], kind: str
) -> None:
    """Modules and whole layers repeat the merging of a ring's parts; kept results are merged."""
    ring = {**shapes, "stage": 0, "cp": 4, "ulysses_ranks": 2}
    of = "moe" if "experts" in shapes else "dense"

    def repeated(name: str, **labels: str) -> float:
        plan = {**ring, **NOTHING, "recompute_core_attn": 1.0}
        step = evaluation(plan if labels["recompute"] == "selective" else ring, **labels)
        return float(step[name])

    elementwise = f"{of}_layer_elementwise_recompute_time"
    merging = repeated("merge_forward_time", recompute="none", context_parallel=kind)
    assert merging > 0.0
    for how in ("selective", "full"):
        parts = repeated(elementwise, recompute=how, context_parallel=kind)
        whole = repeated(elementwise, recompute=how, context_parallel="all_gather")
        assert parts == pytest.approx(whole + merging)
    again = f"{of}_layer_recompute_time"
    parts = repeated(again, recompute="per_op", context_parallel=kind)
    whole = repeated(again, recompute="per_op", context_parallel="all_gather")
    assert parts == pytest.approx(whole)


@pytest.mark.thorough
@settings(max_examples=40)
@given(names=st.sets(st.sampled_from(sorted(MODULES))), more=st.sampled_from(sorted(MODULES)))
def test_each_module_more_takes_no_less_time_and_no_more_memory(names: set[str], more: str) -> None:
    plan = {**DEEPSEEK_V3, "layers": 8, "global_batch_size": 64, "ep": 8, "dp": 8, "stage": 0}

    def measured(chosen: set[str]) -> tuple[float, float]:
        switched = {f"recompute_{name}": 1.0 for name in chosen}
        step = evaluation({**plan, **NOTHING, **switched}, recompute="selective")
        return float(step["step_time"]), float(step["saved_activation_memory"])

    one, other = measured(names), measured(names | {more})
    assert other[0] >= one[0] * (1 - 1e-12)
    assert other[1] <= one[1] * (1 + 1e-12)
    full = evaluation(plan, recompute="full")
    assert other[0] <= float(full["step_time"]) * (1 + 1e-9)
    assert other[1] >= float(full["saved_activation_memory"])
