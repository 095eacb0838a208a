"""Hybrids with gated delta nets: the mean of their layers by hand, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from overhead.completion import features
from overhead.compute.layer import MIXING_RATE
from overhead.evaluation import Evaluation
from overhead.shipped import error_bands
from sweeps import sweep
from sweeps.spec.catalog import load_model
from sweeps.validate.predict import predict
from sweeps.validate.run_table import find_runs, read_runs
from sweeps.validate.training_rows import PLAN as PUBLISHED
from sweeps.validate.training_rows import cases_of_runs
from tests.tables import examples, keyed

# Qwen3.5 27B: 64 layers of 5120, of which 48 with 16 key and 48 value heads of 128; the others
# with 24 heads of 256 and their gates, and 4 of keys and values.
LINEAR = 5120 * (2 * 16 * 128 + 2 * 48 * 128 + 2 * 48) + 48 * 128 * 5120
FULL = 5120 * 256 * (2 * 24 + 2 * 4 + 24)
MLP = 3 * 5120 * 17408
# Convolution over 4 tokens, a decay and a step a head, a norm; norms of queries and keys.
SMALL = 48 * (4 * (2 * 16 + 48) * 128 + 2 * 48 + 128) + 16 * 2 * 256


def held(name: str, model: str = "qwen3.5-27b", **more: Any) -> float:
    given = {**load_model(model).shapes, **more}
    return float(Evaluation(given, features(given))[name])


def test_parameters_by_hand() -> None:
    norms = 64 * 2 * 5120 + 5120
    whole = 48 * LINEAR + 16 * FULL + 64 * MLP + SMALL + norms + 2 * 248320 * 5120
    assert held("parameters") == pytest.approx(whole, rel=1e-12)


def test_flops_by_hand() -> None:
    """Scores in 16 layers; in 48 a state of 128 by 128 a head: four products, a convolution."""
    assert held("weight_flops_per_token") == 2 * (48 * LINEAR + 16 * FULL + 64 * MLP)
    scan = 2 * (4 * (2 * 16 + 48) * 128 + 48 * 128 * 128 * 4)
    assert held("linear_attention_scan_flops") == scan
    scores = 16 * 4 * 4096 * 24 * 256 + 48 * scan
    assert held("attention_flops_per_token", sequence_length=4096) == pytest.approx(scores)
    # What a linear attention computes doesn't grow with the sequence.
    longer = held("attention_flops_per_token", sequence_length=8192) - scores
    assert longer == pytest.approx(16 * 4 * 4096 * 24 * 256)


# Nemotron-3 Nano: 23 mixers of Mamba-2 (64 heads of 64, 8 groups of states of 128), 6 of attention
# (32 heads of 128, 2 of keys and values), 23 mixtures of 128 experts and a shared one.
NANO = "nemotron-3-nano-30b-a3b"
INNER, STATES = 64 * 64, 8 * 128
MAMBA = 2688 * (2 * INNER + 2 * STATES + 64) + INNER * 2688


def test_mamba_by_hand() -> None:
    """Convolution of 4 with a bias, three numbers a head, a norm of all heads; the state's scan."""
    small = 5 * (INNER + 2 * STATES) + 3 * 64 + INNER
    attention = 2688 * 128 * (2 * 32 + 2 * 2)
    mixture = 2 * 2688 * (128 * 1856 + 3712) + 128 * 2688
    norms = 52 * 2688 + 2688  # Of 23 + 6 mixers and 23 mixtures each one, and the last
    whole = 23 * (MAMBA + small + mixture) + 6 * attention + norms + 2 * 131072 * 2688
    assert held("parameters", NANO) == pytest.approx(whole, rel=1e-12)
    assert whole == 31_577_937_344  # As its published weights hold
    assert held("linear_in_width", NANO) == 2 * INNER + 2 * STATES + 64
    scan = 7 * INNER * 128 + 2 * 4 * (INNER + 2 * STATES)
    assert held("linear_attention_scan_flops", NANO) == scan


# What each kernel of mamba_ssm moves: elements a token of W convolved, M inner, G of the groups'
# states, H heads, S of the states of chunks and P of the chunks' products, in 16 bits and in 32.
SCAN_FORWARD = {
    "causal_conv1d_fwd": ("2W", ""),
    "_chunk_cumsum_fwd": ("H", "2H"),
    "_chunk_state_fwd": ("G M", "2H S"),
    "_state_passing_fwd": ("S", "S"),
    "_bmm_chunk_fwd": ("2G", "P"),
    "_chunk_scan_fwd: x, C, states, z, out, out_x": ("M G S M 2M", "P 2H"),
    "norm": ("2M", ""),
}
SCAN_BACKWARD = examples(__file__, "scan_backward")
# What each kernel of a gated delta net moves, of fla and of Megatron-LM's functions around these:
# elements a token of W convolved, G of keys, Q of keys repeated for each value head, V of values, H
# heads, S of the states of chunks and A of a token's products in its chunk, in 16 bits and in 32.
DELTA_FORWARD = examples(__file__, "delta_forward")
DELTA_BACKWARD = examples(__file__, "delta_backward")
SCAN_SIZES = dict(W=INNER + 2 * STATES, M=INNER, G=STATES, H=64, S=INNER * 128 / 128, P=8 * 128)


# Qwen3-Next: 36 of 48 layers with 16 key and 32 value heads of 128.
NEXT = "qwen3-next-80b-a3b"
DELTA_SIZES = dict(W=2 * 2048 + 4096, G=2048, Q=4096, V=4096, H=32, S=4096 * 128 / 64, A=32 * 64)


def moved_by(kernels: dict[str, tuple[str, str]], sizes: Mapping[str, float] = SCAN_SIZES) -> float:
    def elements(words: str) -> float:
        return sum(int(word[:-1] or 1) * sizes[word[-1]] for word in words.split())

    return sum(2 * elements(halves) + 4 * elements(singles) for halves, singles in kernels.values())


def test_what_mamba_s_kernels_move_kernel_by_kernel() -> None:
    """Nano's forward and backward; with two sequences what leads to it and from it is copied."""
    names = ["linear_attention_scan_forward_bytes", "linear_attention_scan_backward_bytes"]
    plan = dict(PLAN, model=NANO, tp=1, dp=8, sequence_parallel=0, global_batch_size=16)
    one, two = (sweep(names, **{**plan, "micro_batch_size": count}) for count in (1, 2))
    width = 2 * INNER + 2 * STATES + 64
    for name, kernels, copied in (
        (names[0], SCAN_FORWARD, width + INNER),
        (names[1], SCAN_BACKWARD, width),
    ):
        moved = moved_by(kernels)
        assert float(one[name]) == pytest.approx(4096 * moved, rel=1e-12)
        both = moved + 4 * copied
        assert float(two[name]) == pytest.approx(2 * 4096 * both, rel=1e-12)


def test_what_a_delta_net_s_kernels_move_kernel_by_kernel() -> None:
    """Qwen3-Next's forward and backward; with two sequences what leads from it is copied."""
    names = [
        "linear_attention_scan_forward_bytes",
        "linear_attention_scan_backward_bytes",
        "attention_elementwise_bytes",
    ]
    plan = dict(PLAN, model=NEXT, tp=1, dp=8, sequence_parallel=0, global_batch_size=16)
    one, two = (sweep(names, **{**plan, "micro_batch_size": count}) for count in (1, 2))
    for name, kernels in zip(names, (DELTA_FORWARD, DELTA_BACKWARD), strict=False):
        moved = moved_by(kernels, DELTA_SIZES)
        assert float(one[name]) == pytest.approx(4096 * moved, rel=1e-12)
        both = moved + 4 * 4096
        assert float(two[name]) == pytest.approx(2 * 4096 * both, rel=1e-12)
    # Beside them norms and sums, and the rotation of the other layers' queries, keys and values.
    attention = 12 / 48 * (2 * 16 + 2 * 2) * 256
    assert float(one.attention_elementwise_bytes) == 4096 * 2 * (10 * 2048 + 2 * attention)
    # All of it is split over tensor-parallel ranks, and none is there without linear attention.
    given = {"rank_tokens": 4096, "micro_batch_size": 1, "activation_bytes": 2, "single_bytes": 4}
    split = held(names[1], NEXT, **given, tp=2)
    assert split == pytest.approx(float(one[names[1]]) / 2)
    rates = {"memory_efficiency": 1.0, "memory_bandwidth": 1e12, "tp": 1}
    assert held("scan_backward_time", NEXT, **given, **rates) > 0.0
    assert held("scan_backward_time", NEXT, **given, **rates, linear_layers=0) == 0.0


# What README.md of fla has of chunk_gdn on GB200, of what moves 3 GB and more: sequences, tokens,
# heads and their size; milliseconds forward, and forward and back.  Its inputs' norm is a kernel of
# its own, forward and back.
MEASURED = [
    (1, 8192, 96, 128, 1.265, 4.738),
    (2, 16384, 16, 128, 1.029, 3.616),
    (4, 4096, 64, 128, 1.581, 5.964),
    (8, 2048, 32, 256, 1.831, 8.644),
]


def test_a_delta_net_s_kernels_take_the_time_that_is_measured() -> None:
    chunks = [
        {
            name: kernel
            for name, kernel in kernels.items()
            if "chunk_" in name or "w_u" in name or name == "dg.sum" or "wy" in name
        }
        for kernels in (DELTA_FORWARD, DELTA_BACKWARD)
    ]
    moved = took = 0.0
    for sequences, tokens, heads, size, forward, both in MEASURED:
        width = heads * size
        sizes = {"Q": width, "V": width, "H": heads, "S": width * size / 64, "A": heads * 64}
        norms = 2 * (4 + 6) * width
        each = sum(moved_by(kernels, sizes) for kernels in chunks) + norms
        flops = 3 * 8 * width * size * sequences * tokens
        seconds = both / 1e3 - flops / (0.6 * 2.5e15)
        rate = each * sequences * tokens / (0.85 * 8e12) / seconds
        assert 0.35 < rate < 0.55, (rate, forward)
        moved, took = moved + rate * seconds, took + seconds
    assert moved / took == pytest.approx(held("linear_attention_scan_rate", NEXT), abs=0.01)


def test_mamba_s_kernels_take_a_time_of_their_own() -> None:
    """What a framework leaves unfused costs others, not these kernels, which none has fused."""
    names = ["dense_layer_elementwise_forward_time", "dense_layer_elementwise_backward_time"]
    scans = ["linear_attention_scan_forward_bytes", "linear_attention_scan_backward_bytes"]
    rate = ["memory_efficiency", "memory_bandwidth"]
    plan = {**PLAN, "model": NANO, "tp": 1, "dp": 8, "sequence_parallel": 0, "global_batch_size": 8}
    mixed = ["dense_elementwise_bytes", "dense_cast_forward_bytes", "dense_cast_backward_bytes"]
    for factor in (1.0, 4.0):
        dataset = sweep([*names, *scans, *mixed, *rate], **plan, elementwise_factor=factor)
        bandwidth = float(dataset.memory_efficiency * dataset.memory_bandwidth)
        for times, name, scan, cast in zip((1, 2), names, scans, mixed[1:], strict=True):
            plain = times * factor * float(dataset.dense_elementwise_bytes) + float(dataset[cast])
            moved = plain + 23 / 29 * float(dataset[scan]) / 0.34
            assert float(dataset[name]) == pytest.approx(moved / bandwidth, rel=1e-12)


def test_what_a_mamba_layer_keeps() -> None:
    """What leads to the scan, its result before and after its gate, and the norm's in 16 bits.

    A delta net of the same sizes keeps its convolution's output and one number a head more.
    """
    plan = {**PLAN, "model": NANO, "tp": 1, "dp": 8, "sequence_parallel": 0, "global_batch_size": 8}
    mamba, delta = (
        sweep(["mixer_activations"], **plan, mamba=flag).mixer_activations for flag in (1, 0)
    )
    width = INNER + 2 * STATES
    assert float(delta - mamba) == pytest.approx(23 / 29 * 2 * (width + 64 - INNER))


def test_steps_of_nemotron_3_nano_on_h100() -> None:
    """Four releases of Megatron-Bridge on 16 H100, of 16 to which the kernels' rate is fitted.

    They are 3 to 8.2 % too long: on Blackwell, by the same rate, 11 % too short to 8 % too long.
    """
    actual_cases = cases_of_runs(read_runs(find_runs("plans")).runs, kinds=(PUBLISHED,)).cases
    cases = [
        replace(case, kind="step_time", quantity="step_time")
        for case in actual_cases
        if case.name in {"E0189", "E0190", "E0191", "E0192"}
    ]
    assert predict(cases).values == pytest.approx([case.measured for case in cases], rel=0.085)


def test_windows_in_some_layers_by_hand() -> None:
    """GPT-OSS 120B: 18 of 36 layers with 128 tokens; the first 128 tokens attend to fewer."""
    sums = [sum(min(token + 0.5, most) for token in range(4096)) / 4096 for most in (4096, 128)]
    span = held("causal_attention_span", "gpt-oss-120b", sequence_length=4096)
    assert span == pytest.approx(sum(sums) / 2, rel=1e-3)
    whole = held("attention_flops_per_token", "gpt-oss-120b", sequence_length=4096)
    assert whole == 4 * 64 * 64 * (18 * 4096 + 18 * 128)
    # Without a number of layers all have it.
    attention_span = held("attention_span", "mistral-7b", sequence_length=32768)
    assert (
        attention_span
        == 4096
        == held("attention_span", "mistral-7b", sequence_length=32768, sliding_window_layers=32)
    )
    packed = held("attention_span", "gpt-oss-120b", sequence_length=4096, document_length=1024)
    assert packed == (1024 + 128) / 2


def test_chunks_in_some_layers_by_hand() -> None:
    """Llama 4 Scout: 36 of 48 layers within chunks of 8,192 tokens; the last one is short."""
    for length in (4096, 8192, 20000, 32768):
        chunks, whole = (
            sum(token % most + 0.5 for token in range(length)) / length for most in (8192, length)
        )
        given = {**load_model("llama4-scout").shapes, "sequence_length": length}
        labels = {**features(given), "mask": "causal", "attention_kernel": "cudnn"}
        values = Evaluation(given, labels)
        for name in ("causal_attention_span", "attended_span"):
            assert float(values[name]) == pytest.approx(0.75 * chunks + 0.25 * whole, rel=1e-12)


def test_sinks_are_parameters_and_move_nothing() -> None:
    """With a number a head and layer GPT-OSS has its published parameters, to the last one."""
    assert held("parameters", "gpt-oss-20b") == 20_914_757_184
    assert held("parameters", "gpt-oss-120b") == 116_829_156_672
    fewer = held("parameters", "gpt-oss-120b", attention_sinks=0)
    assert 116_829_156_672 - fewer == 36 * 64
    plan = {"rank_tokens": 4096, "tp": 1, "sequence_length": 4096}
    for name in ("attention_forward_flops", "attention_flops_per_token"):
        none = held(name, "gpt-oss-120b", **plan, attention_sinks=0)
        assert held(name, "gpt-oss-120b", **plan) == none


# Nemotron-3 Super: routed experts of 2688 work on a latent vector of 1024, a shared one on 4096.
SUPER = "nemotron-3-super-120b-a12b"


def test_latent_mixtures_by_hand() -> None:
    mixture = 2 * 4096 * 1024 + 512 * (2 * 1024 * 2688 + 4096) + 2 * 4096 * 5376
    mamba = 4096 * (2 * 8192 + 2 * 1024 + 128) + 8192 * 4096
    small = 5 * (8192 + 2 * 1024) + 3 * 128 + 8192
    attention = 4096 * 128 * (2 * 32 + 2 * 2)
    norms = 88 * 4096 + 4096  # Of 48 mixers and 40 mixtures, and the last
    whole = 40 * (mamba + small + mixture) + 8 * attention + norms + 2 * 131072 * 4096
    assert held("parameters", SUPER) == pytest.approx(whole, rel=1e-12)
    plan = {
        **PLAN,
        **keyed(
            "tp=1 dp=64 ep=64 global_batch_size=64 sequence_parallel=0 micro_batch_size=1 "
            "hardware=gb200-nvl72"
        ),
        "model": SUPER,
    }
    names = ["routed_elements", "moe_block_activations", "step_time"]
    latent, plain = (sweep(names, **plan, **more) for more in ({}, {"expert_latent_size": 0}))
    # A message is a quarter of what it would be, and so are experts' inputs and outputs.
    assert float(latent.routed_elements) == 4096 * 22 * 1024
    assert float(plain.routed_elements) == 4 * float(latent.routed_elements)
    saved = float(plain.moe_block_activations - latent.moe_block_activations)
    assert saved == 22 * 2 * (4096 - 1024) - 2 * 1024
    assert float(latent.step_time) < float(plain.step_time)


def test_gated_latent_attention_among_linear_layers() -> None:
    """Kimi K3: 24 of 93 layers with 96 latent heads and a gate of full rank, 69 with deltas."""
    inner = 96 * 128
    full = 7168 * 1536 + 1536 * 96 * 192 + 7168 * 576 + 512 * 96 * 256 + 2 * inner * 7168
    linear = 7168 * (4 * inner + 2 * 96) + inner * 7168
    actual = 93 * held("mixer_weights", "kimi-k3")
    assert actual == pytest.approx(24 * full + 69 * linear, rel=1e-12)
    small = held("mixer_parameters", "kimi-k3") - held("mixer_weights", "kimi-k3")
    rank = 93 * (held("mixer_rank_parameters", "kimi-k3", tp=8) - small)
    whole = 7168 * (1536 + 576)
    assert rank == pytest.approx(24 * (whole + (full - whole) / 8) + 69 * linear / 8, rel=1e-12)


# GLM-5: in each of 78 layers 32 heads of 128 select 2048 tokens, from a latent vector of 2048.
INDEXER = 2048 * 32 * 128 + 6144 * (128 + 32)


def test_sparse_attention_by_hand() -> None:
    attention = (
        6144 * 2048 + 2048 * 64 * 256 + 6144 * 576 + 512 * 64 * (192 + 256) + 64 * 256 * 6144
    )
    small = 2048 + 512 + 2 * 128 + 2 * 6144
    mixture = 257 * 3 * 6144 * 2048 + 256 * 6144 + 256
    whole = 78 * (attention + INDEXER + small) + 3 * 3 * 6144 * 12288 + 75 * mixture
    assert held("parameters", "glm-5") == whole + 6144 + 2 * 154880 * 6144
    assert whole == pytest.approx(742e9, rel=1e-3)  # 744 as published, with both tables
    # At 131,072 tokens the indexer has more to compute than what it selects for.
    scores = 2 * 2048 * 64 * (256 + 256)
    index = 2 * 131072 * 32 * (128 + 1)
    attention_flops_per_token = held("attention_flops_per_token", "glm-5", sequence_length=131072)
    assert attention_flops_per_token == 78 * (scores + index)
    every = held("attention_flops_per_token", "glm-5", sequence_length=131072, index_heads=0)
    assert every == 78 * 64 * scores
    # What is selected is causal: each of the first 2048 tokens attends to those before it.
    causal = held("causal_attention_span", "glm-5", sequence_length=131072)
    assert causal == pytest.approx(
        sum(min(n + 0.5, 2048) for n in range(131072)) / 131072, rel=1e-6
    )
    # Indexers of 21 layers select for all 78.
    shared = held("attention_flops_per_token", "glm-5.2", sequence_length=131072)
    assert shared == pytest.approx(78 * scores + 21 * index)
    fewer = held("parameters", "glm-5") - held("parameters", "glm-5.2")
    assert fewer == pytest.approx(57 * (INDEXER + 2 * 128))


def test_a_rank_s_part_of_sparse_attention() -> None:
    """Each tensor-parallel rank has the whole indexer; steps of long sequences are shorter."""
    plan = PLAN | keyed(
        "model=glm-5 tp=8 dp=32 ep=32 global_batch_size=32 sequence_length=65536 "
        "hardware=gb200-nvl72"
    )
    names = (
        "mixer_rank_parameters qkv_width mixer_activations step_time attention_backward_flops "
        "attention_forward_flops"
    ).split()
    sparse, full = (sweep(names, **plan, index_heads=heads) for heads in (32, 0))
    more = float(sparse.mixer_rank_parameters - full.mixer_rank_parameters)
    assert more == INDEXER + 2 * 128
    assert float(sparse.qkv_width - full.qkv_width) == pytest.approx(INDEXER / 6144)
    more = float(sparse.mixer_activations - full.mixer_activations)
    assert more == 2 * (32 * 129 + 128) + 8 * 2048
    mean = 2048 * (1 - 2048 / (2 * 65536))
    own = 65536 * mean * 8 * 512 * 2
    assert float(sparse.attention_forward_flops) == own + 65536 * 65536 * 32 * 129
    # Two gradients of the indexer's scores; they and attention's are computed again for its loss.
    again = 2 * 32 * 128 + 2 * 8 * 256
    backward = own / 512 * (3 * 256 + 2 * 256) + 65536 * mean * (4 * 32 * 128 + again)
    assert float(sparse.attention_backward_flops) == pytest.approx(backward)
    assert float(sparse.step_time) < 0.9 * float(full.step_time)
    bands = error_bands()["step_time"]
    dataset = sweep("error_band_high", **{**plan, "framework": "megatron-lm+fused_loss"})
    assert float(dataset.error_band_high) == bands["few_runs"]["high"]
    bare = sweep("error_band_low", **plan).error_band_low
    assert float(bare) == bands["experts_bare"]["low"]


@pytest.mark.thorough
def test_hybrids_beside_published_steps() -> None:
    """Of 22 step times of Nemotron-3 Nano and Super four in five are within their band.

    Nano's are what the rate of Mamba-2's kernels is fitted to; Super's, of another model, aren't.
    """
    actual_cases = cases_of_runs(read_runs(find_runs("plans")).runs, kinds=(PUBLISHED,)).cases
    cases = [
        replace(case, kind="step_time", quantity="step_time")
        for case in actual_cases
        if case.measured > 0.0 and "linear_layers" in case.numbers
    ]
    result = predict(cases)
    measured = np.array([case.measured for case in cases])
    ratio = measured / result.values - 1.0
    within = (result.low <= ratio) & (ratio <= result.high)
    assert len(cases) >= 22
    assert within.mean() >= 0.8
    nano = np.array(["nano" in case.model for case in cases])
    off = np.abs(result.values / measured - 1.0)
    assert (off[nano].mean() < 0.08, off[~nano].mean() < 0.18) == (True, True)


PLAN = keyed(
    "hardware=dgx-b200 framework=megatron-lm tp=2 dp=4 sequence_length=4096 global_batch_size=4 "
    "micro_batch_size=1 sequence_parallel=1 recompute=none memory_capacity='1000 GB'"
)


def test_activations_and_weights_of_a_rank() -> None:
    dataset = sweep(["mixer_activations", "peak_weight_memory"], model="qwen3.5-27b", **PLAN)
    # 16 bits: queries, context, gate and its product, keys and values; norms' inputs; by 2 ranks.
    full = 2 * 256 * (4 * 12 + 2 * 2) + 2 * 256 * (12 + 2)
    linear = 2 * ((2 * 16 + 2 * 48) * 128 + 2 * 48 + (2 * 16 + 48) * 128 + 2 * 48 * 128) / 2
    # Around each its norm's input and output; of 12 heads a rank a number in single precision.
    around, scores = 2 * 2 * 5120 / 2, 12 * 4
    assert float(dataset.mixer_activations) == around + (16 * (full + scores) + 48 * linear) / 64
    small = 64 * 2 * 5120 + 5120 + SMALL
    weights = (48 * LINEAR + 16 * FULL + 64 * MLP) / 2 + small + 248320 * 5120
    assert float(dataset.peak_weight_memory) == pytest.approx(2 * weights)


def test_models_without_linear_layers_are_as_they_were() -> None:
    """Beside a hybrid, whose formulas then hold for all, grouped and latent attention too."""
    names = ["step_time", "peak_memory", "parameters", "model_flops_per_token"]
    plan = {**PLAN, "tp": 1, "dp": 8, "ep": 8, "sequence_parallel": 0, "global_batch_size": 8}
    models = ["qwen3-30b-a3b", "deepseek-v2-lite"]
    alone = sweep(names, model=models, **plan)
    several = sweep(names, model=["qwen3.5-35b-a3b", *models], **plan)
    for name in names:
        assert several[name].sel(model=models).values == pytest.approx(
            alone[name].values, rel=1e-12
        )
        assert float(several[name].sel(model="qwen3.5-35b-a3b")) > 0.0


@pytest.mark.parametrize(("cp", "copies"), [(4, 1), (16, 2)])
@pytest.mark.parametrize("kind", ["ring", "all_gather"])
def test_scans_exchange_heads_for_tokens_and_attention_its_keys(
    kind: str, cp: int, copies: int
) -> None:
    """Of 29 layers 6 send keys and values, 23 inputs and outputs of scans: 8 groups of states."""
    plan = {**PLAN, "tp": 1, "cp": cp, "dp": 1, "ep": cp, "sequence_parallel": 0}
    plan |= {"global_batch_size": 1, "cp_overlap": 0.0, "context_parallel": kind}
    plan["sequence_length"] = 8192
    names = ["cp_communication_volume", "cp_communication_time", "exposed_cp_time"]
    for recompute, again in (("none", 0), ("full", 1)):
        found = sweep(names, model=NANO, **plan | {"recompute": recompute})
        tokens, others = 8192 / cp, (cp - 1) / cp
        scans = tokens * others * (3 * INNER + 2 * STATES * copies + 64)
        keys = (cp - 1) * tokens * 2 * 2 * 128
        volume = 2 * (23 * (2 + again) * scans + 6 * (3 + again) * keys)
        assert float(found.cp_communication_volume) == pytest.approx(volume, rel=1e-12)
        assert float(found.exposed_cp_time) == pytest.approx(float(found.cp_communication_time))


def test_long_sequences_cost_a_hybrid_less() -> None:
    """The share of attention in a step: a quarter of the layers have scores."""
    lengths = [4096, 65536]
    plan = {**PLAN, "sequence_length": lengths}
    dataset = sweep("attention_forward_time", model="qwen3.5-27b", **plan)
    grown = dataset.sel(sequence_length=65536) / dataset.sel(sequence_length=4096)
    whole = sweep("attention_forward_time", model="qwen3-32b", **plan)
    usual = whole.sel(sequence_length=65536) / whole.sel(sequence_length=4096)
    assert float(grown.attention_forward_time) < float(usual.attention_forward_time)


def test_adapters_of_a_hybrid() -> None:
    """Both products of each kind of attention: 8 by their inputs and outputs."""
    linear = 2 * 5120 + (2 * 16 * 128 + 2 * 48 * 128 + 2 * 48) + 48 * 128
    full = 2 * 5120 + 256 * (2 * 24 + 2 * 4) + 24 * 256
    whole = held("adapter_parameters", lora_rank=8, lora_attention=1, lora_mlp=0)
    assert whole == pytest.approx(8 * (48 * linear + 16 * full))


def test_a_hybrid_is_less_known_than_others() -> None:
    bands = [
        float(sweep("error_band_high", model=model, **PLAN).error_band_high)
        for model in ("qwen3.5-27b", "qwen3-32b")
    ]
    assert bands[0] > bands[1]
    dataset = sweep("error_band_high", model=["qwen3.5-27b", "qwen3-32b"], **PLAN)
    assert dataset.error_band_high.values.tolist() == bands


# DeepSeek-V4 Flash: in each of 43 layers 64 heads of 512 over one vector, whose contexts go in 8
# groups to vectors of 1024; in 21 layers 64 heads of 128 select 512 vectors of 4 tokens each.
FLASH = "deepseek-v4-flash"
# A key of 4 tokens, and what attention takes for them, is made of values and gates of two windows.
V4_INDEXER = 1024 * 64 * 128 + 4096 * (4 * 128 + 64 + 4 * 512)


def test_compressed_sparse_attention_by_hand() -> None:
    output = 8 * (8 * 512) * 1024 + 8 * 1024 * 4096
    grouped, plain = (held("mixer_weights", FLASH, output_rank=r) for r in (1024, 0))
    assert grouped - plain == pytest.approx(output - 64 * 512 * 4096, rel=1e-12)
    attention = 4096 * 1024 + 1024 * 64 * 512 + 2 * 4096 * 512 + output
    mixture = 257 * 3 * 4096 * 2048 + 256 * 4096 + 256
    small = 1024 + 2 * 4096
    whole = 43 * (attention + mixture + small) + 21 * (V4_INDEXER + 2 * 128)
    whole += 20 * 2 * 4096 * 512  # What makes one vector of 128 tokens, in the other layers but two
    assert held("parameters", FLASH) == pytest.approx(whole + 4096 + 2 * 129280 * 4096, rel=1e-12)
    # Of 65,536 tokens 640 are attended to in 21 layers and 128 in 22; a key of 4 tokens each.  In
    # 20 of these 22 so are 512 vectors of 128 tokens.
    span = 21 * 640 + 22 * 128 + 20 * 512
    index = 21 * 2 * (65536 / 4) * 64 * (128 + 1)
    expected = 2 * span * 64 * (512 + 512) + index
    attention_flops_per_token = held("attention_flops_per_token", FLASH, sequence_length=65536)
    assert attention_flops_per_token == pytest.approx(expected, rel=1e-12)


def test_the_first_of_two_products_behind_attention_is_in_16_bits() -> None:
    """Half of DeepSeek-V4 Flash's weights there: as long as both halves, each at its rate."""
    rates = {"attention_matmul_flops": 4e15, "output_matmul_flops": 1e15}
    found = held("context_matmul_flops", FLASH, **rates)
    assert found == pytest.approx(2 / (1 / 4e15 + 1 / 1e15), rel=1e-12)
    assert held("context_matmul_flops", FLASH, **rates, output_rank=0) == 4e15


def test_several_residuals_by_hand() -> None:
    """Bytes, what is kept and what stages send, beside those of one residual."""
    plan = {
        **PLAN,
        **keyed(
            "tp=1 pp=4 dp=64 ep=64 global_batch_size=256 sequence_length=4096 hardware=gb200-nvl72"
        ),
        "model": FLASH,
    }
    names = (
        "attention_elementwise_bytes moe_layer_activations checkpoint_activations "
        "mixing_forward_bytes mixing_backward_bytes pp_message_bytes tp_message_bytes rank_tokens"
    ).split()
    four, one = (sweep(names, **plan, residual_streams=count) for count in (4, 1))
    token = 2 * 4096
    tokens = float(four.rank_tokens)
    # The sums of one residual, each of three hidden states, give way to kernels of the mixing.
    sums = float(one.attention_elementwise_bytes - four.attention_elementwise_bytes)
    assert sums == 2 * 3 * token * tokens
    assert float(one.mixing_forward_bytes) == float(one.mixing_backward_bytes) == 0.0
    # Four are read for the mixing's weights and for the block's input, which is written; they and
    # its output are read, and four written.
    forward = 4 + (4 + 1) + (4 + 1 + 4)
    assert float(four.mixing_forward_bytes) == 2 * forward * token * tokens
    # The gradient of four, what they were and the output are read, gradients of both written; the
    # input's gradient and what four were read, their gradient written; so for the weights; and
    # three gradients added up.
    backward = (4 + 4 + 1 + 4 + 1) + (1 + 4 + 4) + (4 + 4) + (3 * 4 + 4)
    assert float(four.mixing_backward_bytes) == 2 * backward * token * tokens
    assert float(four.moe_layer_activations - one.moe_layer_activations) == 2 * (4 + 1) * token
    assert float(four.checkpoint_activations) == 4 * float(one.checkpoint_activations) == 4 * token
    assert float(four.pp_message_bytes) == 4 * float(four.tp_message_bytes)
    assert float(one.pp_message_bytes) == float(one.tp_message_bytes) == token * tokens


# Kernels of a layer's mixing of four residuals before both blocks, of these hidden sizes, for 8,192
# tokens on B200 in ms: sgl-project's and vLLM's (ai-dynamo/aiconfigurator, aic-core/src/
# aiconfigurator_core/systems/data/b200_sxm/mhc @095f58a51c), to which nothing was fitted.
@pytest.mark.parametrize(("hidden", "times"), [(4096, (0.4074, 0.4239)), (7168, (0.6828, 0.7077))])
def test_mixing_of_residuals_takes_as_long_as_others_measured(
    hidden: int, times: tuple[float, ...]
) -> None:
    given = {
        "residual_streams": 4.0,
        "activation_bytes": 2.0,
        "rank_tokens": 8192.0,
        "hidden_size": float(hidden),
        "sequence_shards": 1.0,
    }
    moved = float(Evaluation(given, {})["mixing_forward_bytes"])
    time = moved / MIXING_RATE["forward"] / (0.92 * 8e12)
    for measured in times:
        assert time * 1e3 == pytest.approx(measured, rel=0.12)


def test_projections_up_from_latent_vectors_are_as_wide_as_they_are() -> None:
    """DeepSeek-V3's 128 heads of 192 and of 256, beside one product of as many weights."""
    plan = PLAN | keyed(
        "tp=2 pp=1 dp=64 global_batch_size=128 sequence_length=4096 hardware=gb200-nvl72"
    )
    names = ["latent_width", "qkv_width"]
    latent = sweep(names, **{**plan, "model": "deepseek-v3", "ep": 64})
    own = 64 * (192 + 256) - (1536 * 64 * 192 + 512 * 64 * 256) / 7168
    assert float(latent.latent_width) == pytest.approx(own, rel=1e-12)
    both = float(latent.latent_width + latent.qkv_width)
    assert both == pytest.approx(64 * (192 + 256) + 1536 + 512 + 64, rel=1e-12)
    plain = sweep(names, **{**plan, "model": "llama3-70b", "ep": 1})
    assert float(plain.latent_width) == 0.0


@pytest.mark.parametrize(("window", "tile"), [(128, 128), (128, 64), (200, 64), (128, 512)])
def test_blocks_of_a_window_are_as_many_as_are_computed(window: int, tile: int) -> None:
    """Blocks counted one by one; that on the diagonal is half, as where there is no window."""
    sequence = 8192
    tokens = 0.0
    for first in range(0, sequence, tile):  # Of a block's queries; keys' blocks before it
        earlier = range(0, first, tile)
        tokens += tile * sum(first - (keys + tile - 1) < window for keys in earlier) + tile / 2
    given = {
        "selected_span": sequence,
        "full_span": sequence,
        "sliding_window": window,
        "sliding_window_fraction": 1.0,
        "pooled_span": 0.0,
        "attention_tile": tile,
    }
    fused = {"mask": "causal", "attention_kernel": "flash_2"}
    found = float(Evaluation(given, fused)["attended_span"])
    assert found == pytest.approx(tokens / (sequence / tile), rel=0.01)
    exact = float(Evaluation(given, {})["causal_attention_span"])
    without = float(Evaluation({**given, "sliding_window": 0}, fused)["attended_span"])
    assert exact <= found < without


def test_recomputed_core_attention_leaves_states_of_linear_attention() -> None:
    """Of Qwen3-Next's layers a fourth have scores: these are repeated, and kept states are not."""
    names = (
        "hardware_flops computed_model_flops mixer_scan_flops recompute_part_time "
        "computed_attention_flops_per_token attention_forward_time attention_scores"
    ).split()
    plan: dict[str, Any] = {"gpus": 64, "ep": 8, "global_batch_size": 64}
    plan |= {"sequence_length": 8192, "memory_capacity": 1e15, "recompute": "selective"}
    asked = sweep(names[:-1], model="qwen3-next-80b-a3b", **plan)
    values = {name: float(asked[name]) for name in names[:-1]}
    every = values["computed_attention_flops_per_token"]
    scores = every - 48 * values["mixer_scan_flops"]
    # Causal scores and values of 16 heads of 256, in 12 layers
    assert scores == pytest.approx(12 * 4 * 4096 * 16 * 256)
    again = values["hardware_flops"] - values["computed_model_flops"]
    assert again == pytest.approx(scores * 64 * 8192)
    repeated = 48 * values["attention_forward_time"] * scores / every
    assert values["recompute_part_time"] == pytest.approx(repeated)
    # Nor do layers without scores move any.
    plan |= {"attention_kernel": "unfused"}
    moved = float(sweep(names[-1:], model="qwen3-next-80b-a3b", **plan)["attention_scores"])
    assert moved == 0.25 * 8192 * 8192 * 16
