"""Laws of single kernels beside kernels that were measured alone (specs/measured/kernels.csv)."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from overhead.evaluation import Evaluation, derive
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import training_constants
from tests.tables import keyed

TABLE = Path("specs/measured/kernels.csv")
MACHINES = {"h100": "dgx-h100", "h200": "dgx-h200"}
Columns = dict[str, np.ndarray]


def measured(*kernels: str, gpu: str = "h100", least: int = 0) -> Columns:
    """Return kernels' rows of at least so many tokens, column by column, numbers where they are."""
    with TABLE.open(encoding="utf-8") as file:
        every = csv.DictReader(line for line in file if not line.startswith("#"))
        own = [row for row in every if row["kernel"] in kernels and row["gpu"] == gpu]
    rows = [row for row in own if float(row["tokens"] or "inf") >= least]
    words = {name: np.array([row[name] for row in rows]) for name in ("kernel", "direction")}
    numbers = {
        name: np.array([float(row[name] or "nan") for row in rows])
        for name in rows[0]
        if name not in ("gpu", *words)
    }
    return words | numbers


def constants(gpu: str, kernel: str = "cudnn", framework: str = "torchtitan") -> dict[str, float]:
    origins = training_constants(
        load_hardware(MACHINES[gpu]), load_framework(framework), attention_kernel=kernel
    )
    return {name: origin.value for name, origin in origins.items()}


def errors(predicted: np.ndarray, columns: Columns) -> np.ndarray:
    return predicted / (1e-6 * columns["time_us"]) - 1.0


@pytest.mark.parametrize(("gpu", "mean", "spread"), [("h100", 0.06, 0.09), ("h200", 0.01, 0.07)])
def test_products_take_what_the_law_of_other_gpus_products_says(
    gpu: str, mean: float, spread: float
) -> None:
    """The law is of XLA's table; none of these products was in its fit."""
    columns = measured("matmul_bf16", gpu=gpu)
    sizes = {
        "matmul_m": columns["rows"],
        "matmul_n": columns["columns"],
        "matmul_k": columns["depth"],
    }
    given = {**constants(gpu), **sizes, "matmul_efficiency": 1.0}
    given |= {"matmul_input_bytes": 2.0, "activation_bytes": 2.0}
    off = errors(derive("matmul_time", given), columns)
    assert len(off) >= 168
    assert abs(off.mean()) < mean
    assert np.abs(off).mean() < spread


def attention(columns: Columns, given: dict[str, float], kernel: str) -> np.ndarray:
    """Return the law's times of causal attention of one sequence, forward or backward."""
    plan = {
        **given,
        "rank_tokens": columns["tokens"],
        "attention_span": columns["tokens"],
        "attended_span": 0.5 * columns["tokens"],
        "sequence_length": columns["tokens"],
        "heads": columns["heads"],
        "tp": 1.0,
        "query_head_size": columns["head_size"],
        "value_head_size": columns["value_head_size"],
        "indexed_forward_flops": 0.0,
        "attention_layer_fraction": 1.0,
        "mixer_scan_flops": 0.0,
        "index_backward_flops": 0.0,
        "attention_half_length": 512.0,
        "attention_backward_efficiency": 0.85,
    }
    labels = {"attention_kernel": kernel, "mask": "causal"}
    known = Evaluation(plan, labels)
    durations = [known[f"attention_{way}_time"] for way in ("forward", "backward")]
    return np.where(columns["direction"] == "forward", *durations)


@pytest.mark.parametrize("kernel", ["cudnn", "flash_2"])
@pytest.mark.parametrize("gpu", MACHINES)
def test_attention_of_many_heads(gpu: str, kernel: str) -> None:
    """Of 2,048 tokens and 32 heads on: fewer leave multiprocessors idle, which no law has yet."""
    columns = measured(kernel, gpu=gpu, least=2048)
    many = columns["heads"] >= 32.0
    off = errors(attention(columns, constants(gpu, kernel), kernel), columns)[many]
    assert many.sum() >= 12
    assert abs(off.mean()) < 0.08
    assert np.abs(off).mean() < 0.11


def test_heads_of_other_sizes_take_their_tiles() -> None:
    """Heads of 80 to 112 take as long as of 128, and one of 64 more than half as long."""
    columns = measured("cudnn", least=4096)
    mask = (columns["heads"] == 32.0) & (columns["tokens"] == 4096.0)
    part = {name: column[mask] for name, column in columns.items()}
    predicted = attention(part, constants("h100"), "cudnn")
    for way in ("forward", "backward"):
        of = part["direction"] == way
        whole = of & (part["head_size"] == 128.0)
        for size in (64.0, 80.0, 96.0, 112.0, 192.0):
            own = of & (part["head_size"] == size)
            ratio = part["time_us"][own].mean() / part["time_us"][whole].mean()
            law = predicted[own].mean() / predicted[whole].mean()
            assert law == pytest.approx(ratio, rel=0.14), (way, size)


def test_copies_of_sharded_weights_and_gradients() -> None:
    given = constants("h100")
    plan = {
        **keyed(
            "expert_shards=1.0 edp_messages=0.0 edp_gather_bytes=0.0 "
            "max_rank_trained_expert_parameters=0.0 dp_messages=1.0 activation_bytes=2.0 "
            "reduction_bytes=4.0 forward_gathers=1.0 backward_gathers=1.0 gradient_reductions=1.0"
        ),
        "sharding_copy_efficiency": given["sharding_copy_efficiency"],
        "memory_bandwidth": given["memory_bandwidth"],
    }
    out, into = measured("copy_out"), measured("copy_in")
    weights = out["elements"]
    plan |= dict(
        shards=out["ranks"], dp_gather_bytes=2.0 * weights, max_rank_trained_parameters=weights
    )
    # A layer's weights are gathered twice in a step, its gradients reduced once.
    step = 1e-6 * (2.0 * out["time_us"] + into["time_us"])
    assert derive("sharding_copy_time", plan) == pytest.approx(step, rel=0.06)
    assert (derive("sharding_copy_time", {**plan, "shards": 1.0}) == 0.0).all()


@pytest.mark.parametrize("how", ["compiled", "eager"])
def test_a_loss_moves_so_many_bytes_a_logit(how: str) -> None:
    columns = measured(f"loss_{how}")
    given = constants("h100", framework="torchtitan" if how == "compiled" else "torchtitan+eager")
    moved = given["loss_bytes"] * columns["tokens"] * columns["vocabulary"]
    rate = given["memory_efficiency"] * given["memory_bandwidth"]
    assert np.abs(errors(moved / rate, columns)).max() < 0.08


def test_grouped_products_hide_half_of_the_shorter_time() -> None:
    """Of compute and memory time half the shorter one hides in a grouped kernel, none in others."""
    columns = measured("grouped_mm_bf16")
    sizes = {
        "matmul_m": columns["rows"],
        "matmul_n": columns["columns"],
        "matmul_k": columns["depth"],
    }
    given = {**constants("h100"), **sizes, "matmul_groups": columns["groups"]}
    given |= keyed("matmul_efficiency=1.0 matmul_input_bytes=2.0 activation_bytes=2.0")
    assert given["grouped_exposed_fraction"] == 0.5  # torchtitan's, by these rows
    grouped = errors(derive("grouped_matmul_time", given), columns)
    apart = errors(
        derive("grouped_matmul_time", {**given, "grouped_exposed_fraction": 1.0}), columns
    )
    assert len(grouped) == 21
    assert np.abs(grouped).mean() < 0.08
    assert np.abs(apart).mean() > 0.17


def test_experts_alone_on_hopper_and_blackwell() -> None:
    """One form from 1 to 64 ranks; none of these rows is in a fit but for the launches' 25 us.

    Beside both grouped products tokens are copied to their experts, activated, and summed.
    """
    with Path("specs/measured/experts.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(line for line in file if not line.startswith("#"))]
    off = []
    for gpu, machine in (("h100", "dgx-h100"), ("b200", "dgx-b200")):
        some = [row for row in rows if row["gpu"] == gpu]
        some = [row for row in some if row["model"] != "kimi-k2" or float(row["ep"]) < 32.0]
        names = ("hidden", "expert_ffn", "experts", "experts_per_token", "tokens", "ep", "time_us")
        hidden, inner, experts, chosen, tokens, ep, time_us = (
            np.array([float(row[name]) for row in some]) for name in names
        )
        origins = training_constants(load_hardware(machine), load_framework("torchtitan"))
        given = {name: origin.value for name, origin in origins.items()}
        given |= keyed("matmul_efficiency=1.0 matmul_input_bytes=2.0 activation_bytes=2.0")
        given |= {"matmul_groups": experts / ep, "matmul_m": tokens * chosen / experts}
        up = {**given, "matmul_n": 2.0 * inner, "matmul_k": hidden}
        down = {**given, "matmul_n": hidden, "matmul_k": inner}
        moved = 2.0 * (tokens * chosen / ep * 3.0 * (hidden + inner) + tokens * hidden)
        rate = given["memory_efficiency"] * given["memory_bandwidth"]
        products = derive("grouped_matmul_time", up) + derive("grouped_matmul_time", down)
        off.append((25e-6 + products + moved / rate) / (1e-6 * time_us) - 1.0)
    every = np.concatenate(off)
    assert len(every) == 52
    assert abs(every.mean()) < 0.02
    assert np.abs(every).mean() < 0.11
