"""Which class of runs a step or a plan's memory is of, by hand, and the ends of a band."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from overhead.step import bands

# A dense model of Megatron-LM on two nodes, of which one setting isn't known.
USUAL = {
    "experts": 0.0,
    "world_size": 16.0,
    "gpus_per_node": 8.0,
    "cp": 1.0,
    "indexer_fraction": 0.0,
    "attention_layer_fraction": 1.0,
    "device_kind": bands.NVIDIA,
    "software_kind": bands.MEGATRON,
    "uncalibrated_device": 0.0,
    "unknown_settings": 1.0,
    "given_options": 0.0,
    "unknown_slowdown": 0.0,
    "expert_load_imbalance": 1.0,
    "offloaded_states": 0.0,
    "trained_weights": 1.0,
}
Kernel = Callable[..., np.ndarray]
NAMES = (
    *("experts_bare", "far", "limited", "few_runs", "experts", "tpu", "megatron_nodes_told"),
    *("megatron_nodes", "megatron_node_told", "megatron_node", "other_nodes", "other_node"),
    "adapters",
)


def class_of(**given: float) -> str:
    known = USUAL | given
    names = bands.step_classes(*(np.asarray(known[name]) for name in bands.STEP_INPUTS))
    return NAMES[int(bands._chosen(names, {name: float(k) for k, name in enumerate(NAMES)}))]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "megatron_nodes"),
        ({"unknown_settings": 0.0}, "megatron_nodes_told"),
        ({"world_size": 8.0}, "megatron_node"),
        ({"world_size": 8.0, "unknown_settings": 0.0}, "megatron_node_told"),
        ({"software_kind": bands.TORCH_FSDP}, "other_nodes"),
        ({"software_kind": bands.TORCH_FSDP, "unknown_settings": 0.0}, "other_nodes"),
        ({"software_kind": bands.TORCH_FSDP, "world_size": 8.0}, "other_node"),
        ({"device_kind": bands.TPU}, "tpu"),
        ({"device_kind": bands.OTHER_DEVICES}, "far"),
        ({"uncalibrated_device": 2.0}, "far"),
        ({"uncalibrated_device": 1.0}, "few_runs"),
        ({"cp": 3.0}, "megatron_nodes"),
        ({"cp": 4.0}, "few_runs"),
        ({"indexer_fraction": 0.5}, "few_runs"),
        ({"attention_layer_fraction": 0.5}, "few_runs"),
        ({"unknown_slowdown": 0.5}, "limited"),
        ({"experts": 1.0}, "experts_bare"),
        ({"experts": 1.0, "given_options": 1.0}, "experts"),
        ({"experts": 1.0, "given_options": 1.0, "unknown_slowdown": 0.5}, "far"),
        ({"experts": 1.0, "unknown_slowdown": 0.5}, "experts_bare"),
        ({"experts": 1.0, "given_options": 1.0, "expert_load_imbalance": 1.1}, "far"),
        ({"expert_load_imbalance": 1.1}, "megatron_nodes"),
        ({"experts": 1.0, "device_kind": bands.TPU}, "experts_bare"),
        ({"experts": 1.0, "given_options": 1.0, "device_kind": bands.TPU}, "far"),
        ({"experts": 1.0, "given_options": 1.0, "software_kind": bands.TORCH_FSDP}, "far"),
    ],
)
def test_the_class_of_a_step(given: dict[str, float], name: str) -> None:
    assert class_of(**given) == name


def test_adapters_and_states_in_host_memory() -> None:
    assert class_of(trained_weights=0.0) == "adapters"
    assert class_of(trained_weights=0.0, cp=4.0) == "few_runs"
    assert class_of(trained_weights=0.0, experts=1.0) == "experts_bare"
    assert class_of(offloaded_states=1.0) == "far"
    assert class_of(offloaded_states=1.0, unknown_slowdown=0.5) == "far"
    assert class_of(offloaded_states=1.0, trained_weights=0.0) == "far"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (bands.MEGATRON, "megatron"),
        (bands.TORCH_FSDP, "torch_fsdp"),
        (bands.OTHER_SOFTWARE, "others"),
    ],
)
def test_the_class_of_memory(kind: float, name: str) -> None:
    values = {"megatron": 1.0, "torch_fsdp": 2.0, "others": 3.0}
    assert bands._chosen(bands.memory_classes(np.asarray(kind)), values) == values[name]


def test_the_ends_of_a_band(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a slower clock than a full one at least the difference of limited ones counts."""
    settings = {"low": -0.2, "high": 0.3, "difference": 0.05}
    table = dict.fromkeys(NAMES, settings) | {"limited": {**settings, "difference": 0.5}}
    monkeypatch.setattr(bands, "error_bands", lambda: {"step_time": table})
    for end, sign in (("low", -1.0), ("high", 1.0)):
        kernel = bands._end_of_step(end)

        def found(clock_ratio: float, measured: float, kernel: Kernel = kernel) -> float:
            return float(kernel(*map(np.asarray, (*USUAL.values(), clock_ratio, measured))))

        assert found(1.0, 0.0) == found(0.5, 0.0) == settings[end]
        assert found(1.0, 0.5) == found(0.8, 0.5) == sign * 0.05
        assert found(0.79, 0.5) == sign * 0.5
