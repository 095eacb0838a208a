"""What DeepSpeed and FSDP2 have in host memory, by hand; of Megatron-LM see `test_offload`.

Bytes a parameter of DeepSpeed: deepspeedai/DeepSpeed @edaa72212, runtime/zero/stage3.py and
stage_1_and_2.py: a master copy and its gradient in single precision (4 + 4), two moments (8), at
stage 3 gradient partitions in 16 bits (2), at stage 2 updated weights on their way back (2) and,
where micro-batches add up, gradients (2), at stage 3 weights where they are offloaded (2).  Of
FSDP2: pytorch/pytorch @010ae4a895, _fsdp_param.py and _fsdp_api.py: weights, gradients and two
moments in single precision (16).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sweeps
from overhead.analysis import analyze_config
from overhead.config import Config
from overhead.shipped import error_bands
from tests.cli_runner import Runner
from tests.tables import keyed

P = 8_030_261_248  # Of Llama-3 8B, as its config.json gives
STEP: dict[str, Any] = keyed(
    "model=llama3-8b hardware=dgx-a100 world_size=8 zero_stage=3 micro_batch_size=1 "
    "global_batch_size=16 sequence_length=2048 recompute=full vocabulary_multiple=1"
)
DEEPSPEED = STEP | {"framework": "deepspeed"}
FSDP = STEP | {"framework": "torchtitan", "embedding_layer_weight": 0, "head_layer_weight": 0}
BOTH = {"optimizer_offload": 1, "parameter_offload": 1}
LINK, HOST = 31e9, 26e9  # Bytes a second: PCIe 4 (dgx-a100.toml), the host's Adam (usual.csv)
OWN = 0.25e9 * 128 / 8  # And of DeepSpeed's update: by cores (usual.csv, dgx-a100.toml)


def found(plan: dict[str, Any], *names: str, **changed: Any) -> list[float]:
    data = sweeps.sweep(list(names), **{**plan, **changed})
    return [float(data[name]) for name in names]


# By plan: bytes a parameter of weights, gradients and optimizer on the GPU, and on the host, of
# each of eight ranks.
SHARES = [
    ("stage 3, optimizer", DEEPSPEED | {"optimizer_offload": 1}, (2 / 8, 0, 0), 18 / 8),
    ("stage 3, both", DEEPSPEED | BOTH, (0, 0, 0), 20 / 8),
    ("stage 3, weights", DEEPSPEED | {"parameter_offload": 1}, (0, 2 / 8, 12 / 8), 2 / 8),
    ("stage 3, half", DEEPSPEED | {"optimizer_offload": 0.5}, (2 / 8, 2 / 8, 6 / 8), 10 / 8),
    ("stage 2", DEEPSPEED | {"optimizer_offload": 1, "zero_stage": 2}, (2, 0, 0), 20 / 8),
    (
        "stage 2, one micro-batch",
        DEEPSPEED | {"optimizer_offload": 1, "zero_stage": 2, "global_batch_size": 8},
        (2, 0, 0),
        18 / 8,
    ),
    ("stage 1", DEEPSPEED | {"optimizer_offload": 1, "zero_stage": 1}, (2, 2, 0), 18 / 8),
    ("FSDP", FSDP | BOTH, (0, 0, 0), 16 / 8),
    ("FSDP, gathered", FSDP | BOTH | {"zero_stage": 2}, (2, 0, 0), 16 / 8),
]


@pytest.mark.parametrize(
    ("plan", "gpu", "host"), [row[1:] for row in SHARES], ids=[row[0] for row in SHARES]
)
def test_what_is_where(plan: dict[str, Any], gpu: tuple[float, ...], host: float) -> None:
    names = ("peak_weight_memory", "peak_gradient_memory", "peak_optimizer_memory", "host_memory")
    assert found(plan, *names) == pytest.approx([P * each for each in (*gpu, host)])
    assert found(plan, "host_node_memory") == pytest.approx([8 * P * host])


def test_the_time_of_deepspeed_by_hand() -> None:
    """Gradients leave in single precision; seven numbers a parameter; 16-bit weights come back."""
    ratio = P / 8
    names = ("host_update_time", "optimizer_time", "gradient_transfer_time", "weight_transfer_time")
    update = ratio * 28 / OWN
    only = found(DEEPSPEED, *names, optimizer_offload=1)
    assert only[:2] == pytest.approx([ratio * 4 / LINK + update + ratio * 2 / LINK] * 2)
    assert only[2:] == pytest.approx([ratio * 2 / LINK, 0.0])
    both = found(DEEPSPEED, *names, **BOTH)
    assert both == pytest.approx(
        [ratio * 4 / LINK + update] * 2 + [ratio * 2 / LINK, ratio * 2 / LINK]
    )


def test_the_time_of_fsdp_by_hand() -> None:
    ratio = P / 8
    names = ("host_update_time", "gradient_transfer_time", "weight_transfer_time")
    assert found(FSDP, *names, **BOTH) == pytest.approx([ratio * 28 / HOST, 0.0, ratio * 4 / LINK])


@pytest.mark.parametrize("plan", [DEEPSPEED | BOTH, FSDP | BOTH])
def test_what_computing_does_not_hide_of_transfers_is_in_the_step(plan: dict[str, Any]) -> None:
    names = tuple(
        (
            "step_time exposed_offload_time host_update_time num_micro_batches "
            "forward_transfer_time middle_layers_forward_time backward_transfer_time "
            "middle_layers_backward_time"
        ).split()
    )
    slow, fast = (found(plan, *names, host_bandwidth=rate) for rate in (1e9, 1e15))
    step, exposed, update, count, *times = slow
    hidden_less = sum(max(times[number] - times[number + 1], 0.0) for number in (0, 2))
    assert exposed == pytest.approx(count * hidden_less)
    assert exposed > 0.0 == fast[1]
    assert step - fast[0] == pytest.approx(exposed + update - fast[2])


@pytest.mark.parametrize("plan", [DEEPSPEED, FSDP])
def test_a_share_of_nothing_is_what_was(plan: dict[str, Any]) -> None:
    names = tuple(
        (
            "step_time peak_memory optimizer_time mfu memory_headroom error_band_low "
            "error_band_high"
        ).split()
    )
    settings = {"optimizer_offload": 0, "parameter_offload": 0}
    assert found(plan, *names, **settings) == found(plan, *names)
    assert found(plan, "host_memory", **settings) == [0.0]


def test_one_of_fsdp_is_both() -> None:
    names = ("peak_memory", "host_memory", "step_time")
    both = found(FSDP, *names, **BOTH)
    for name in BOTH:
        assert found(FSDP, *names, **{name: 1}) == both


@pytest.mark.thorough
def test_along_frameworks_each_is_what_it_is_alone() -> None:
    names = ("step_time", "peak_memory", "host_memory", "error_band_high")
    frameworks = ["deepspeed", "torchtitan", "megatron-lm"]
    for name in BOTH:
        dataset = sweeps.sweep(list(names), **{**STEP, name: 1, "framework": frameworks})
        for index, framework in enumerate(frameworks):
            alone = found(STEP, *names, **{name: 1, "framework": framework})
            own = [float(dataset[one].values.ravel()[index]) for one in names]
            np.testing.assert_array_equal(own, alone)


def test_72b_on_one_node() -> None:
    """It ran on eight A100 of 80 GB, both offloaded, at 4 sequences of 2,560 tokens."""
    plan = (
        DEEPSPEED
        | BOTH
        | keyed("model=qwen2.5-72b micro_batch_size=4 global_batch_size=32 sequence_length=2560")
    )
    data = sweeps.sweep(
        (
            "peak_memory memory_headroom host_node_memory host_memory host_memory_upper parameters "
            "step_time"
        ).split(),
        **plan,
    )
    assert float(data.peak_memory) == pytest.approx(41e9, rel=0.1)
    assert float(data.memory_headroom) > 0.0
    assert not np.isnan(float(data.step_time))
    least = float(data.host_node_memory)
    assert least == pytest.approx(20 * float(data.parameters))
    most = least * float(data.host_memory_upper / data.host_memory)
    assert (least / 1e12, most / 1e12) == pytest.approx((1.45, 1.96), abs=0.01)
    assert sweeps.reasons(sweeps.sweep(["step_time"], **plan, host_memory_capacity="150 GB"))


def test_one_gpu_has_its_layers_one_after_another() -> None:
    """Its weights are away, and what a layer needs is there."""
    names = ("peak_weight_memory", "peak_zero3_gathered_memory", "host_memory")
    alone = DEEPSPEED | {"world_size": 1, "gpus_per_node": 1, "global_batch_size": 1}
    weights, gathered, host = found(alone, *names, **BOTH)
    assert (weights, host) == pytest.approx((0.0, 20 * P))
    assert gathered == found(DEEPSPEED, names[1], **BOTH)[0] > 0.0
    assert found(alone, *names[:2]) == pytest.approx([2 * P, 0.0])


def test_no_surer_than_what_is_far() -> None:
    """Four runs of two sources were compared with, far apart."""
    band = error_bands()["step_time"]["far"]
    names = ("error_band_low", "error_band_high")
    for plan in (DEEPSPEED | BOTH, DEEPSPEED | {"parameter_offload": 1}, FSDP | BOTH):
        assert found(plan, *names) == [band["low"], band["high"]]
    megatron = STEP | {"framework": "megatron-lm", "zero_stage": 1}
    assert found(megatron, *names, optimizer_offload=1) == found(megatron, *names)


NOT = [
    ({"framework": "megatron-lm", "parameter_offload": 1}, "Megatron-LM has no weights in host"),
    ({"zero_stage": 2, "parameter_offload": 1}, "DeepSpeed offloads weights at ZeRO stage 3"),
    ({"zero_stage": 0, "optimizer_offload": 1}, "the optimizer from ZeRO stage 1 on"),
    ({"zero_stage": 2, "optimizer_offload": 0.5}, "a fraction of it at stage 3 alone"),
]


@pytest.mark.parametrize(("changed", "words"), NOT, ids=[words for _, words in NOT])
def test_what_a_framework_has_not(changed: dict[str, Any], words: str) -> None:
    data = sweeps.sweep(["step_time", "status"], **{**DEEPSPEED, **changed})
    assert np.isnan(float(data.step_time))
    assert sweeps.reasons(data).values.tolist() == "plan not of framework"


def test_a_configuration_in_python_says_the_scheme() -> None:
    common: dict[str, Any] = {
        "num_gpus": 8,
        "dp_degree": 8,
        "num_parameters": 8e9,
        "zero_stage": 3,
        "more": {"optimizer_offload": 1.0, "parameter_offload": 1.0},
    }
    result = analyze_config(Config(**common, host_states="zero_offload"))
    assert result.memory["weight_memory"] == result.memory["gradient_memory"] == 0.0
    assert result.memory["optimizer_memory"] == 0.0
    with pytest.raises(ValueError, match="host_states"):
        analyze_config(Config(**common, host_states="somewhere"))


COMMAND = (
    "--model qwen2.5-72b --hardware dgx-a100 --gpus 8 --framework deepspeed --micro-batch 4 "
    "--global-batch 32 --seq-len 2560 --recompute full --optimizer-offload 1 --param-offload 1"
)


def test_the_report_has_host_memory(capsys: pytest.CaptureFixture[str]) -> None:
    run = Runner(capsys)
    told = " ".join(run(f"analysis {COMMAND}").out.split())
    assert "Host memory: 1.45 to 1.96 of 2.00 TB per node: fits; offload times: compared" in told
    risk = " ".join(run(f"analysis {COMMAND} --host-memory-capacity 200GB").out.split())
    assert "1.45 to 1.96 of 1.60 TB per node: fits, at risk" in risk
    full = " ".join(run(f"analysis {COMMAND} --host-memory-capacity 150GB").out.split())
    assert "host memory: 1.45 to 1.96 of 1.20 TB per node: does not fit" in full


@pytest.mark.thorough
def test_a_search_offloads_what_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """And the host's memory is a reason."""
    run = Runner(capsys)
    assert "ZeRO 3" in run(f"plan {COMMAND}").out
    small = run(f"plan {COMMAND} --host-memory-capacity 150GB", fine=False).out
    assert "the host must hold what is offloaded" in " ".join(small.split())
    alone = COMMAND.partition(" --optimizer-offload")[0]
    assert "host" not in run(f"plan {alone} --show launch", fine=False).out
