"""Limited machines: their compute rate told, derived from a power limit, or fitted."""

from __future__ import annotations

from typing import Any

import pytest

import sweeps
from sweeps.errors import InputError

# torchtitan's own configuration of Llama-3 8B, as pytorch/ao measured it.
OF_8B: dict[str, Any] = {
    "model": "llama3-8b",
    "world_size": 8,
    "global_batch_size": 8,
    "sequence_length": 8192,
    "framework": "torchtitan",
}


def one(quantity: str, **given: Any) -> float:
    """Return one quantity of one configuration."""
    return float(sweeps.sweep([quantity], **{**OF_8B, **given})[quantity])


def test_a_share_of_the_clock_moves_compute_rates_alone() -> None:
    for name, factor in (
        ("qkv_forward_time", None),
        ("attention_forward_time", 2.0),
        ("attention_backward_time", 2.0),
        ("sized_matmul_efficiency", 0.5),
        ("dense_layer_elementwise_time", 1.0),
        ("dp_communication_time", 1.0),
        ("peak_memory", 1.0),
    ):
        whole, half = one(name), one(name, clock_ratio=0.5)
        if factor is None:  # a minimum time and bytes stay
            assert whole < half < 2.0 * whole
        else:
            assert half == pytest.approx(factor * whole, rel=1e-12), name


def test_the_whole_clock_restated_changes_nothing() -> None:
    assert one("step_time", clock_ratio=1) == one("step_time")
    assert one("step_time", power_limit=700) == one("step_time")


def test_a_power_limit_is_a_share_of_the_clock() -> None:
    """(500 / 700)^0.6: specs/operation/usual.toml."""
    share = (500.0 / 700.0) ** 0.6
    assert one("clock_ratio", power_limit=500) == pytest.approx(share, rel=1e-12)
    limited = one("step_time", power_limit=500)
    assert limited == pytest.approx(one("step_time", clock_ratio=share), rel=1e-12)
    # Of the power that is used and of the share that is told each says something else.
    assert one("step_time", power_limit=500, clock_ratio=1) == one("step_time")
    # A rate that is given is that without a limit.
    given = one("step_time", power_limit=500, matmul_efficiency=0.832)
    assert given == pytest.approx(limited, rel=1e-3)


def test_a_machine_that_is_limited_itself_is_not_limited_twice() -> None:
    """Grand Teton's H100 were fitted at their 500 W."""
    own = {"hardware": "grand-teton-h100"}
    assert one("step_time", **own, power_limit=500) == one("step_time", **own)
    assert one("clock_ratio", **own, power_limit=500) == 1.0


# Step times of Llama-3 8B by torchtitan on 8 GPUs: pytorch/ao @36027d82d,
# docs/source/workflows/training.md (8,192 tokens x 8 by tokens a second).
MEASURED = {
    "grand-teton-h100": {"bf16": 1.3320, "tensor": 1.0653, "row": 1.2104},
    "mi300x": {"bf16": 1.5237, "tensor": 1.3286, "row": 1.3906},
    "dgx-b200": {"bf16": 0.9861, "tensor": 0.7864, "row": 0.9481, "mx": 0.8217},
}


def scaled(name: str) -> dict[str, str]:
    """Return the labels of a precision, or of the scales of 8 bits."""
    return {"precision": name} if name == "bf16" else {"precision": "fp8", "fp8_scaling": name}


def test_scales_of_8_bits_are_as_slow_as_measured() -> None:
    """Without a scaling rowwise would be a fifth too fast."""
    for name, measured in MEASURED["grand-teton-h100"].items():
        found = one("step_time", hardware="grand-teton-h100", **scaled(name))
        assert found == pytest.approx(measured, rel=0.015), name


def test_a_scaling_is_told_in_several_ways() -> None:
    rows = one("step_time", precision="fp8", fp8_scaling="row")
    assert rows == one("step_time", precision="fp8", framework="torchtitan+rowwise_fp8")
    tensors = one("step_time", precision="fp8", fp8_scaling="tensor")
    assert tensors == one("step_time", precision="fp8") < rows
    own = {"hardware": "dgx-b200"}
    mx = one("step_time", **own, precision="fp8", fp8_scaling="mx")
    assert mx == one("step_time", **own, precision="mxfp8")
    assert mx == one("step_time", **own, precision="mxfp8", fp8_scaling="mx")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fp8_scaling": "row"}, "fp8_scaling = 'row': bf16 has no scales"),
        ({"fp8_scaling": "row", "precision": "mxfp8"}, "mxfp8 has no such scales; mx"),
        ({"fp8_scaling": "block", "precision": "fp8"}, "torchtitan has no such scales"),
        ({"fp8_scaling": "mx", "precision": "fp8"}, "dgx-h100 has no products of blocks"),
        (
            {"fp8_scaling": "row", "precision": "fp8", "framework": "megatron-lm"},
            "megatron-lm has no such scales; tensor or block or mx",
        ),
    ],
)
def test_scales_that_are_not_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        one("step_time", **given)
