"""Datasets of training steps as a sweep stores them, from costs written out here."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import xarray as xr

from sweeps.origin import assumed, attributes
from tests.tables import examples, keyed

GIB = 2.0**30
CAPACITY = 80e9
FAULTS = ("product_of_degrees", "batch_not_divisible", "does_not_fit")
MEMORY = {
    "peak_weight_memory": "weights, peak stage",
    "peak_gradient_memory": "gradients, peak stage",
    "peak_optimizer_memory": "optimizer states, peak stage",
    "peak_zero3_gathered_memory": "weights gathered by ZeRO-3, peak stage",
    "peak_unsharded_gradient_memory": "gradients not yet sharded, peak stage",
    "peak_saved_activation_memory": "activations saved for the backward pass, peak stage",
    "peak_logits_memory": "logits and loss, peak stage",
    "peak_nccl_buffer_memory": "NCCL buffers, peak stage",
    "peak_context_bytes": "CUDA context, peak stage",
}
STEP = keyed(
    "matmul_part_time='step time: layer GEMMs' attention_part_time='step time: attention (QK, PV)' "
    "elementwise_part_time='step time: element-wise kernels' "
    "recompute_part_time='step time: recomputation' host_part_time='step time: launch-bound time' "
    "exposed_tp_time='step time: exposed TP communication' "
    "exposed_cp_time='step time: exposed CP communication' "
    "exposed_ep_time='step time: exposed EP communication' "
    "stage_imbalance_time='step time lost to uneven first and last stages' "
    "bubble_time='pipeline bubble' exposed_pp_time='exposed pipeline communication per step' "
    "exposed_dp_time='step time: exposed DP communication' "
    "optimizer_time='step time: optimizer update' "
    "step_overhead='step time: fixed overhead (not modeled)'"
)
DIMENSIONS = ("tp", "cp", "pp", "ep", "dp")
COORDINATES = examples(__file__, "coordinates")


def plan_rows(
    worlds: tuple[int, ...] = (512,), tp: tuple[int, ...] = (1, 2, 4, 8)
) -> dict[str, list[int]]:
    """Return the columns of all plans of some numbers of GPUs."""
    rows = [
        (world, t, p, world // (t * p))
        for world, t, p in itertools.product(worlds, tp, (1, 2, 4, 8, 16))
        if world % (t * p) == 0
    ]
    return dict(
        zip(("world_size", "tp", "pp", "dp"), map(list, zip(*rows, strict=True)), strict=True)
    )


def make_training(
    *,
    worlds: tuple[int, ...] = (512,),
    recompute: tuple[str, ...] = ("none", "full"),
    micro_batch_size: tuple[int, ...] = (1, 2),
    bandwidth: tuple[float, ...] = (50e9,),
    models: tuple[str, ...] = ("llama3-70b",),
) -> xr.Dataset:
    """Return memory, time and communication of every plan of a transformer, with holes."""
    columns = plan_rows(worlds)
    sizes = {
        "model": len(models),
        "plan": len(columns["tp"]),
        "recompute": len(recompute),
        "micro_batch_size": len(micro_batch_size),
        "inter_bandwidth": len(bandwidth),
    }
    dims = tuple(sizes)

    def along(values: Any, dim: str) -> np.ndarray:
        shape = [1] * len(dims)
        shape[dims.index(dim)] = -1
        return np.asarray(values, dtype=np.float64).reshape(shape)

    tp, pp, dp, world = (along(columns[name], "plan") for name in ("tp", "pp", "dp", "world_size"))
    b, net = along(micro_batch_size, "micro_batch_size"), along(bandwidth, "inter_bandwidth")
    array = along([mode == "full" for mode in recompute], "recompute")
    size = along([70e9 if "70" in model else 8e9 for model in models], "model")
    tokens, batch, layers, hidden = 8192.0, 1024.0, 80.0, 8192.0
    share = size / (tp * pp)
    flight = np.minimum(pp, batch / (dp * b)) * layers / pp
    memory = {
        "peak_weight_memory": 2 * share,
        "peak_gradient_memory": 4 * share,
        "peak_optimizer_memory": 12 * share / dp,
        "peak_zero3_gathered_memory": 0 * share,
        "peak_unsharded_gradient_memory": 0 * share,
        "peak_saved_activation_memory": tokens * b * hidden * flight * np.where(array, 2, 34) / tp,
        "peak_logits_memory": 4 * tokens * b * 128256 / tp * np.where(pp == 1, 1, 0),
        "peak_nccl_buffer_memory": 0.5 * GIB * (1 + (tp > 1) + (pp > 1)),
        "peak_context_bytes": 0.7 * GIB,
    }
    flops = 6 * size * tokens * batch / world
    matmul = flops / 989e12 / 0.7
    volume = {
        "tp": 8 * tokens * (batch / dp) * hidden * layers / pp * (tp - 1) / tp,
        "cp": 0 * share,
        "pp": np.where(pp > 1, 4 * tokens * (batch / dp) * hidden / tp, 0),
        "ep": 0 * share,
        "dp": 6 * share * (dp - 1) / dp,
    }
    spent = {name: value / (450e9 if name == "tp" else net) for name, value in volume.items()}
    step = {
        "matmul_part_time": matmul,
        "attention_part_time": 0.15 * matmul,
        "elementwise_part_time": 0.08 * matmul,
        "recompute_part_time": 0.33 * matmul * array,
        "host_part_time": 0 * matmul,
        "exposed_tp_time": spent["tp"],
        "exposed_cp_time": 0 * matmul,
        "exposed_ep_time": 0 * matmul,
        "stage_imbalance_time": 0.01 * matmul * (pp > 1),
        "bubble_time": matmul * (1 + 0.33 * array) * (pp - 1) * dp * b / batch,
        "exposed_pp_time": 0.2 * spent["pp"],
        "exposed_dp_time": 0.4 * spent["dp"],
        "optimizer_time": 20 * share / dp / 3.35e12,
        "step_overhead": 0.02 + 0 * matmul,
    }
    shape = tuple(sizes.values())
    whole = {
        name: np.broadcast_to(meaning, shape).copy() for name, meaning in {**memory, **step}.items()
    }
    status = np.zeros(shape, dtype=np.int32)
    impossible = np.broadcast_to((tp == 1) & (pp == 16), shape)
    undivided = np.broadcast_to(batch % (dp * b) != 0, shape)
    status[impossible] |= 1
    status[undivided] |= 2
    peak = sum(whole[name] for name in memory)
    status[peak > CAPACITY] |= 4
    masked = (status & 3) != 0
    for name in memory:
        whole[name][masked] = np.nan
    for name in step:
        whole[name][masked] = np.nan
    time = sum(whole[name] for name in step)
    time = np.where(status & 4, np.nan, time)
    dataset: dict[str, tuple[Any, Any, dict[str, Any]]] = {}

    def put(name: str, values: Any, words: str, units: str) -> None:
        dataset[name] = (dims, values, {"long_name": words, "units": units})

    for name, words in MEMORY.items():
        put(name, whole[name], words, "byte")
    put("peak_memory", np.where(masked, np.nan, peak), "peak memory per GPU", "byte")
    for name, words in STEP.items():
        put(name, whole[name], words, "s")
    put("step_time", time, "step time", "s")
    put("mfu", flops / time / 989e12, "MFU, full attention FLOPs", "1")
    put("tokens_per_second", tokens * batch / time, "tokens/s over all GPUs", "s-1")
    for name in DIMENSIONS:
        filled = {"time": spent[name], "volume": volume[name]}
        for measure, units, text in (
            ("time", "s", "communication per step, before overlap"),
            ("volume", "byte", "bytes sent per rank and step (maximum)"),
        ):
            values = np.where(masked, np.nan, filled[measure])
            put(f"{name}_communication_{measure}", values, f"{name.upper()} {text}", units)
    dataset["status"] = (
        dims,
        status,
        {
            "long_name": "why a value doesn't exist (0: it does)",
            "flag_masks": np.array([1, 2, 4], dtype=np.int32),
            "flag_meanings": " ".join(FAULTS),
        },
    )
    coords: dict[str, Any] = {
        "plan": ("plan", np.arange(sizes["plan"], dtype=np.int32), {"long_name": "plan (a row)"}),
        "recompute": ("recompute", list(recompute)),
        "micro_batch_size": ("micro_batch_size", np.asarray(micro_batch_size, dtype=np.float64)),
        "inter_bandwidth": ("inter_bandwidth", np.asarray(bandwidth)),
        "model": ("model", list(models)),
        "memory_capacity": ((), CAPACITY),
        "global_batch_size": ((), batch),
        "sequence_length": ((), tokens),
        "hardware": ((), "dgx-h100"),
        "framework": ((), "megatron-lm"),
        "mask": ((), "causal"),
    }
    for name, values in columns.items():
        coords[name] = ("plan", np.asarray(values, dtype=np.float64))
    made = xr.Dataset(dataset, coords=coords)
    for name, (words, units) in COORDINATES.items():
        origins = [assumed(None)] if name in ("mask", "framework") else []
        made[name].attrs = {"long_name": words, "units": units, **attributes(origins)}
    single = [dim for dim, count in sizes.items() if count == 1]
    return made.isel(dict.fromkeys(single, 0))
