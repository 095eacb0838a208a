"""Adapters of low rank beside frozen weights: parameters, memory, work and traffic by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sweeps
from overhead.memory.quantities import RECIPES
from overhead.shipped import usual_table
from sweeps.errors import InputError
from sweeps.spec.catalog import load_model
from tests.overhead.memory_cases import stage_memory
from tests.tables import keyed

# Llama-2 70B: 80 layers, hidden 8192, 64 heads of 128, 8 of keys, MLPs of 28672.
ATTENTION = 80 * (8192 + 10240 + 8192 + 8192)
MLPS = 80 * (8192 + 2 * 28672 + 28672 + 8192)
PLAN = keyed(
    "model=llama2-70b hardware=dgx-h100 framework=megatron-lm tp=4 dp=2 sequence_length=8192 "
    "global_batch_size=8 micro_batch_size=1 zero_stage=0 sequence_parallel=1 recompute=none "
    "memory_capacity='1000 GB'"
)


def found(*names: str, **changed: Any) -> list[float]:
    data = sweeps.sweep(list(names), **{**PLAN, **changed})
    return [float(data[name]) for name in names]


@pytest.mark.parametrize(("attention", "mlp"), [(1, 0), (0, 1), (1, 1)])
def test_adapters_alone_have_gradients_and_states(attention: int, mlp: int) -> None:
    chosen = {"lora_rank": 16, "lora_attention": attention, "lora_mlp": mlp}
    parts = ("peak_gradient_memory", "peak_optimizer_memory", "peak_weight_memory")
    whole = 16 * (attention * ATTENTION + mlp * MLPS)
    (all_of_them,) = found("adapter_parameters", **chosen)
    assert all_of_them == whole
    gradients, states, weights = found(*parts, **chosen)
    # Gradients in 16 bits, 12 bytes of states, both split over tensor-parallel ranks.
    assert (gradients, states) == (2 * whole / 4, 12 * whole / 4)
    assert weights == found(parts[2])[0] + 2 * whole / 4
    assert found(parts[1], zero_stage=1, **chosen) == [12 * whole / 4 / 2]
    (saved,) = found("checkpoint_bytes", **chosen)
    assert saved == (2 + 12) * whole


def test_a_step_computes_no_gradients_of_frozen_weights() -> None:
    names = (
        "dense_layer_matmul_forward_time",
        "dense_layer_input_gradient_time",
        "dense_layer_weight_gradient_time",
        "dense_layer_adapter_time",
    )
    forward, inputs, weights, adapters = found(*names, lora_rank=16)
    plain = found(*names[:2])
    assert weights == adapters > 0.0
    assert [forward - adapters, inputs - adapters] == pytest.approx(plain)
    # Twice the rank is twice the work, but not twice what is read and added up.
    (twice,) = found(names[3], lora_rank=32)
    assert adapters < twice < 2.0 * adapters
    # Four FLOPs a weight and token, six a weight of an adapter, and scores as ever.
    flops, outputs, scores = found(
        "forward_flops_per_token",
        "model_flops_per_token",
        "attention_flops_per_token",
        lora_rank=16,
    )
    assert outputs == 2 * flops + scores + 6 * 16 * (ATTENTION + MLPS)


@pytest.mark.thorough
def test_a_smaller_rank_takes_no_longer_and_none_is_full_training() -> None:
    """Adapters are less than all weights; a rank of 0 is no adapter."""
    times = [found("step_time", lora_rank=rank)[0] for rank in (1, 16, 64)]
    (whole,) = found("step_time")
    assert times == sorted(times)
    assert times[-1] < whole
    assert found("step_time", lora_rank=0) == [whole]


def test_data_parallelism_exchanges_adapters() -> None:
    names = ("dp_reduce_bytes", "dp_gather_bytes")
    trained = 16 * ATTENTION / 4
    only = {"lora_rank": 16, "lora_mlp": 0}
    assert found(*names, zero_stage=1, **only) == [2 * trained, 2 * trained]
    # ZeRO-3 gathers what is frozen, too, a layer at a time.
    reduced, gathered = found(*names, zero_stage=3, **only)
    assert reduced == 2 * trained / 80
    assert gathered == found(names[1], zero_stage=3)[0]


def test_inputs_are_kept_where_adapters_take_them() -> None:
    """Of a token and layer: norms' inputs, queries and so on, the MLP's inside, on 4 ranks."""
    inside = 64 * 128 * 2 + 64 * 128 * 2 + 2 * 8 * 128 * 2 + 64 * 4
    for attention, mlp in ((0, 0), (1, 0), (1, 1)):
        (kept,) = found(
            "dense_layer_activations", lora_rank=8, lora_attention=attention, lora_mlp=mlp
        )
        norms = 2 * (2 + attention + mlp) * 8192
        assert kept * 4 == norms + inside + 2 * (2 + mlp) * 28672
    # All inputs of 16 bits are what training all keeps.
    assert kept == found("dense_layer_activations")[0]


def test_experts_are_frozen() -> None:
    """Adapters of attention and of shared experts; routed experts exchange no gradients."""
    moe = keyed(
        "model=deepseek-v3 tp=1 dp=64 ep=64 sequence_parallel=0 global_batch_size=64 lora_rank=4"
    )
    # Down to latent vectors of 1536 and 512 + 64, up to 128 heads of 192, 128 and 128.
    attention = 7168 + 1536 + 1536 + 128 * 192 + 7168 + 576 + 512 + 128 * 256 + 128 * 128 + 7168
    dense, shared = 2 * 7168 + 3 * 18432, 2 * 7168 + 3 * 2048
    (adapters, experts) = found("adapter_parameters", "edp_reduce_bytes", **moe)
    assert adapters == 4 * (61 * attention + 3 * dense + 58 * shared)
    assert experts == 0.0
    assert np.isfinite(found("step_time", **moe)[0])


@pytest.mark.thorough
def test_published_steps_of_llama2_70b() -> None:
    """MLPerf Training v4.1 and v5.1, NVIDIA and others on H100, FP8, adapters of attention.

    Their attention is in 8 bits, too: FP8_DPA=1, as in specs/measured/rules.toml.
    """
    only = keyed(
        "lora_rank=16 lora_mlp=0 precision=fp8 zero_stage=1 framework=megatron-lm+fp8_attention"
    )
    for changed, measured in (
        ({}, (3.66668, 3.68673, 3.6738, 3.72435)),
        ({"dp": 8}, (0.960143,)),
        ({"dp": 8, "cp": 2}, (0.540574, 0.55500, 0.54329)),
        ({"dp": 128, "cp": 2, "global_batch_size": 128}, (0.545081,)),
    ):
        (time,) = found("step_time", **{**only, **changed})
        assert time == pytest.approx(np.mean(measured), rel=0.05)


@pytest.mark.thorough
def test_attention_of_packed_sequences_stays_within_documents() -> None:
    """A pack of n documents has an n-th of the scores; one that fills it is none."""
    names = tuple(
        (
            "attention_flops_per_token causal_attention_flops_per_token attention_forward_time "
            "step_time weight_flops_per_token"
        ).split()
    )
    whole = found(*names)
    assert found(*names, document_length=8192) == whole
    assert found(*names, document_length=10**6) == whole
    packed = found(*names, document_length=1024)
    assert packed[:2] == [flops / 8 for flops in whole[:2]]
    # As many sequences of that length take as long, but for what each costs by itself.
    alone = found(*names, sequence_length=1024, global_batch_size=64, micro_batch_size=8)
    assert packed[:3] == pytest.approx(alone[:3])
    assert packed[3] == pytest.approx(alone[3], rel=0.01)
    assert packed[4] == whole[4]
    # A window within documents: tokens beyond it are left out of each.
    both = found("causal_attention_span", document_length=1024, sliding_window=256)
    assert both == [256 * (1 - 256 / 2048)]


def test_reductions_beside_frozen_weights_are_waited_for() -> None:
    names = ("dense_exposed_tp_backward_time", "tp_reduction_time", "tp_layer_backward_time")
    shown, reduction, whole = found(*names, lora_rank=16, tp_overlap=0.7)
    # Two blocks' inputs' gradients are added up with no product of weights' gradients beside.
    assert shown == pytest.approx(2 * reduction + 0.3 * (whole - 2 * reduction))
    (other,) = found(names[0], tp_overlap=0.7)
    assert other < shown
    (again,) = found(names[0], lora_rank=16, tp_overlap=0.7, recompute="full")
    assert again > shown


def test_a_rank_of_0_is_full_training() -> None:
    names = ("step_time", "peak_memory", "checkpoint_bytes")
    assert found(*names, lora_rank=0) == found(*names)
    assert found(*names, lora_rank=8) != found(*names)
    with pytest.raises(InputError, match="lora_rank"):
        found(*names, lora_rank=[0, 8])
    given = {name: value.value for name, value in usual_table()["memory"].items()}
    given |= RECIPES["mixed_adam"].given() | load_model("llama2-70b").shapes
    given |= {"dp": 8.0, "num_micro_batches": 1.0, "sequence_length": 4096.0}
    labels = {"schedule": "one_f_one_b"}
    plain = stage_memory(given, labels).peak_memory
    assert stage_memory({**given, "lora_rank": 0.0}, labels).peak_memory == plain
