"""The loss as a choice: what of logits is kept and moved, in which chunks."""

from __future__ import annotations

import numpy as np
import pytest

import sweeps
from overhead import Config
from overhead.labels import LABELS
from overhead.shipped import losses
from sweeps.errors import InputError
from sweeps.spec.catalog import load_framework
from tests.overhead.memory_cases import LLAMA3_70B, held
from tests.tables import keyed

MIB, GIB = 2.0**20, 2.0**30
# A torchtitan run of Llama 3 8B on 8 GPUs.
TITAN = keyed(
    "model=llama3-8b world_size=8 framework=torchtitan sequence_length=8192 global_batch_size=8"
)
FRAMEWORKS = tuple(
    (
        "megatron-lm megatron-lm+fused_loss megatron-lm+fp32_fused_loss torchtitan "
        "torchtitan+eager deepspeed maxtext fms-fsdp fsdp-llmfoundry"
    ).split()
)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_s_own_loss_restated_changes_nothing(framework: str) -> None:
    asked = {**TITAN, "framework": framework}
    wanted = ["step_time", "peak_memory", "hfu"]
    plain, restated = (
        sweeps.sweep(wanted, **asked, **more)
        for more in ({}, {"loss": load_framework(framework).loss})
    )
    for name in wanted:
        assert float(plain[name]) == float(restated[name])


def test_an_option_of_a_framework_is_its_label() -> None:
    figures = {name: value.value for name, value in losses()["fused"].items()}
    framework = load_framework("megatron-lm+fused_loss")
    assert {name: framework.figures[name].value for name in figures} == figures
    eager = load_framework("torchtitan+eager")
    taken = {name: eager.figures[name].value for name in losses()["eager"]}
    assert taken == {"logit_bytes": 14, "loss_bytes": 52}


def test_python_and_the_command_take_the_same_bytes() -> None:
    for loss in LABELS["loss"].values:
        actual = Config(loss=loss).given()
        for name, value in losses()[loss].items():
            # Of its own software Python's configuration takes no constants of time.
            assert actual.get(name, value.value) == value.value
    assert Config(loss="eager", more={"logit_bytes": 5}).given()["logit_bytes"] == 5


def test_liger_cuts_tokens_into_chunks_of_a_power_of_two() -> None:
    """As a comment of its code has it: 4 x 4,096 tokens, 32,000 words, 4,096 wide: 2,048."""
    small = {**LLAMA3_70B, "tp": 1, "hidden_size": 4096, "vocabulary_size": 32000}
    plan = {**small, "sequence_length": 4096, "micro_batch_size": 4}
    assert held(plan, loss="liger")["logit_tokens"] == 2048
    # 128,256 words in 32 chunks of 8,192 tokens: 256 each; never more than there are.
    llama = {**small, "vocabulary_size": 128256, "sequence_length": 8192, "micro_batch_size": 1}
    assert held(llama, loss="liger")["logit_tokens"] == 256
    assert held({**llama, "vocabulary_size": 2048}, loss="liger")["logit_tokens"] == 8192
    # 16-bit logits of a chunk, gradients of hidden states and of the LM head.
    found = held({**llama, "tp": 1}, loss="liger")
    padded = found["padded_vocabulary_size"]
    expected = 2 * 256 * padded + 2 * (8192 + found["vocabulary_width"]) * 4096
    np.testing.assert_allclose(found["logits_memory"], expected, rtol=1e-15)


def test_published_memory_of_losses() -> None:
    """Of 8,192 tokens of Gemma 2 (2B), 256,000 words: apple/ml-cross-entropy, README @18e76ada05.

    Its megabytes are 2**20 bytes: 4,000 of them are 16-bit logits.
    """
    logits = 8192 * 256000
    assert 2 * logits == 4000 * MIB
    assert losses()["eager"]["logit_bytes"].value * logits == 28000 * MIB
    assert losses()["cut_cross_entropy"]["logit_bytes"].value == 0


def test_published_memory_of_a_run() -> None:
    """Llama 3 8B, FSDP 8, 1 x 8,192, loss not compiled: 47.65 GiB allocated.

    pytorch/ao @36027d82d, docs/source/workflows/training.md.
    """
    dataset = sweeps.sweep(["peak_memory", "context_bytes"], **TITAN, loss="eager")
    allocated = float(dataset.peak_memory) - float(dataset.context_bytes)
    assert abs(allocated / GIB / 47.65 - 1.0) < 0.03


def test_a_million_tokens() -> None:
    """Qwen3 8B, CP 8 in a ring: 79.7 GB are logits, and a fused loss turns what doesn't fit."""
    work = {"model": "qwen3-8b", "sequence_length": 2**20, "global_batch_size": 1}
    asked = {**TITAN, **work, "cp": 8, "context_parallel": "ring", "recompute": "full"}
    wanted = ["peak_memory", "peak_logits_memory", "memory_capacity"]
    plain = sweeps.sweep(wanted, **asked)
    assert float(plain.peak_logits_memory) == 4 * 2**17 * 151936
    assert float(plain.peak_memory) > 1.5 * 84.9e9
    for loss in ("liger", "cut_cross_entropy"):
        assert float(sweeps.sweep("peak_memory", **asked, loss=loss).peak_memory) < 84.9e9


def test_chunks_are_one_question() -> None:
    wanted = ["step_time", "peak_memory"]
    named, numbered = (
        sweeps.sweep(wanted, **TITAN, **more) for more in ({"loss": "chunked"}, {"loss_chunks": 8})
    )
    assert all(float(named[name]) == float(numbered[name]) for name in wanted)
    with pytest.warns(UserWarning, match="loss_chunks"):
        sweeps.sweep("step_time", **TITAN, loss="liger", loss_chunks=8)
    with pytest.raises(InputError, match="did you mean 'liger'"):
        sweeps.sweep("step_time", **TITAN, loss="lgier")


def test_time_of_a_loss_in_chunks_by_hand() -> None:
    """Each chunk is a GEMM of its own, and its wgrad reads the sum of those before it."""
    wanted = (
        "logits_forward_time logits_chunk_forward_time logits_weight_gradient_time "
        "logits_chunk_weight_gradient_time logits_recomputation_time"
    ).split()
    dataset = sweeps.sweep(
        wanted, **TITAN, loss="chunked", memory_bandwidth=3e12, memory_efficiency=0.8
    )
    value = {name: float(dataset[name]) for name in wanted}
    np.testing.assert_allclose(value["logits_forward_time"], 8 * value["logits_chunk_forward_time"])
    read = 7 * 2 * 128256 * 4096 / 2.4e12
    np.testing.assert_allclose(
        value["logits_weight_gradient_time"], 8 * value["logits_chunk_weight_gradient_time"] + read
    )
    assert value["logits_recomputation_time"] == 0.0
    tiled = sweeps.sweep(wanted, **TITAN, loss="vocab_tiling")
    assert float(tiled.logits_recomputation_time) == float(tiled.logits_forward_time)


def test_losses_by_memory() -> None:
    order = ("eager", "vocab_parallel", "compiled", "fused", "cut_cross_entropy")
    peak_memories = [
        float(sweeps.sweep("peak_memory", **TITAN, loss=loss).peak_memory) for loss in order
    ]
    assert peak_memories == sorted(peak_memories, reverse=True)
