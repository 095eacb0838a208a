"""Predicted times beside an account of its own, and their properties."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sweeps
from overhead.evaluation import Evaluation
from overhead.formula import REGISTRY, Call
from sweeps.job import prepare
from sweeps.origin import GIVEN, Origin
from sweeps.spec.catalog import load_model
from sweeps.tuner.predict import SPLITS, predict, predict_phases
from sweeps.tuner.rates import Rates, read_rates
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.times import PassTimes
from sweeps.tuner.tuner import TPOverlapTuner
from sweeps.tuner.userbuffers import (
    COLUMN,
    OPERATORS,
    LayerOverlap,
    collective_of,
    grid_cases,
    products_of,
)
from tests.tables import examples, keyed

H100 = replace(read_rates("dgx-h100"), library={})  # Links alone, without what a library adds
LLAMA = load_model("llama3-70b").shapes
TOKENS = 8192
GRID = grid_cases((2, 4, 8), OPERATORS, (1, 2, 4, 8, 16), pipeline=True)


def times(
    case: LayerOverlap, rates: Rates = H100, shapes: Any = LLAMA, **more: Any
) -> list[PassTimes]:
    predictions = predict(shapes, TOKENS, [case], rates, **more)
    return [predictions.forward.at((0, 0)), predictions.backward.at((0, 0))]


# An independent account of a product and of a collective.

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))


def norm(values: list[float], power: float) -> float:
    scale = max(values) if power > 0 else min(values)
    return scale * math.fsum((value / scale) ** power for value in values) ** (1 / power)


def burst_time(rows: float, columns: float, depth: float, rates: Rates, count: float = 1) -> float:
    """Return the time of so many equal products at once by the best of the tiles."""
    sms, longer = rates["sms"], depth + rates["tile_depth_overhead"]
    size, written = rates["matmul_input_bytes"], rates["activation_bytes"]
    moved = count * (size * depth * (rows + columns) + written * rows * columns)
    times = []
    for a, b in TILES:
        full = max(count * math.ceil(rows / a) * math.ceil(columns / b) / sms, 1.0)
        waves = full + rates["last_wave_fraction"] * (math.ceil(full) - full)
        worked = 2 * a * b * longer / (rates["burst_matmul_flops"] / sms)
        loaded = (a + b) * longer * size / rates["sm_load_bandwidth"]
        tile = norm([worked, loaded], rates["tile_sharpness"])
        times.append(norm([waves * tile, moved / rates["burst_memory_bandwidth"]], 4))
    return norm(times, -33)


def slowed_matmul_time(
    rows: float, columns: float, depth: float, rates: Rates, sms: float, count: float = 1
) -> float:
    if not rows:
        return 0.0
    burst = burst_time(rows, columns, depth, rates, count)
    lasting = norm([rates["burst_ratio"] * burst, burst * rates["sms"] / sms], 20)
    return lasting + rates["launch_time"]


def in_pieces(
    rows: float, columns: float, depth: float, sms: float, count: float, once: float
) -> float:
    """Return the time of pieces of which some run side by side: one start, and gaps."""
    start = H100["launch_time"]
    together = slowed_matmul_time(rows, columns, depth, H100, sms, once) - start
    return start + count / once * together + (count - 1) * H100["matmul_chunk_gap"]


def sizes(case: LayerOverlap, phase: str) -> tuple[float, float, float]:
    hidden, tp = LLAMA["hidden_size"], case.tp_size
    inner = dict(
        qkv=(64 + 2 * 8) * 128 / tp, proj=64 * 128 / tp, fc1=2 * 28672 / tp, fc2=28672 / tp
    )[case.operator]
    out, depth = (inner, hidden) if case.operator in COLUMN else (hidden, inner)
    return dict(fprop=(TOKENS, out, depth), dgrad=(TOKENS, depth, out), wgrad=(out, depth, TOKENS))[
        phase
    ]


def collective_time(tp: int, bandwidth: float, parts: int = 1) -> float:
    message = 2 * TOKENS * LLAMA["hidden_size"] / parts
    return (tp - 1) * (H100["latency"] + message / (tp * bandwidth))


def own_time(case: LayerOverlap, margin: bool) -> float:
    """Return the time of the phase that overlaps."""
    tp, phase, sms = case.tp_size, case.phase, H100["sms"]
    rows, columns, depth = sizes(case, phase)
    scatters = collective_of(case.operator, phase, case.method) == "reduce_scatter"
    if case.method == "ring_exchange":
        sent = collective_time(tp, H100["copy_engine_bandwidth"])
        chunks = tp // 2 if case.aggregate and not scatters else tp
        matmul_time = slowed_matmul_time(rows / chunks, columns, depth, H100, sms)
        once = min(2 if scatters else 3, chunks)
        every = in_pieces(rows / chunks, columns, depth, sms, chunks, once)
        if scatters:
            message = 2 * TOKENS * LLAMA["hidden_size"]
            return max(every, sent + matmul_time) + (tp + 1) * message / tp / H100["sum_bandwidth"]
        waited = sent / (tp - 1) if case.aggregate else 0.0
        return max(every + waited, sent + matmul_time)
    each = H100["scatter_sm_bandwidth" if scatters else "gather_sm_bandwidth"]

    def sending(count: int, parts: int = 1) -> float:
        return collective_time(tp, min(H100["bandwidth"], count * each), parts)

    left = sms - case.num_sm
    if case.method == "pipeline":
        part = slowed_matmul_time(rows, columns / SPLITS, depth, H100, left)
        every = in_pieces(rows, columns / SPLITS, depth, left, SPLITS, SPLITS)
        others = (SPLITS - 1) * sending(case.num_sm, SPLITS)
        return max(every, part + others) + sending(32, SPLITS)
    comm, slow = sending(case.num_sm), slowed_matmul_time(rows, columns, depth, H100, left)
    if margin or comm >= slow:
        return max(slow, comm)
    # While the collective runs the product does what it would on the multiprocessors left.
    whole = slowed_matmul_time(rows, columns, depth, H100, sms)
    return comm + whole * (1.0 - comm / slow)


def in_turn(case: LayerOverlap, phase: str) -> float:
    matmul_time = slowed_matmul_time(*sizes(case, phase), H100, H100["sms"])
    silent = case.operator not in COLUMN and phase == "wgrad"
    return matmul_time + (0.0 if silent else collective_time(case.tp_size, H100["bandwidth"]))


@pytest.mark.thorough
@pytest.mark.parametrize("margin", [False, True])
def test_every_case_beside_an_account_of_its_own(margin: bool) -> None:
    for case in GRID:
        forward, backward = times(case, sm_margin=margin)
        phases = {phase: in_turn(case, phase) for phase in ("fprop", "dgrad", "wgrad")}
        if not case.is_baseline:
            phases[case.phase] = own_time(case, margin)
        assert forward.e2e == pytest.approx(phases["fprop"], rel=1e-12), case
        assert backward.e2e == pytest.approx(phases["dgrad"] + phases["wgrad"], rel=1e-12), case


def test_many_models_at_once_are_each_alone() -> None:
    names = ("llama3-8b", "llama3-70b", "qwen3-0.6b", "llama2-13b")
    shapes = [load_model(name).shapes for name in names]
    together = {key: np.array([shape[key] for shape in shapes]) for key in shapes[0]}
    predictions = predict(together, np.array([4096, 8192, 2048, 8192]), GRID, H100)
    for k, tokens in enumerate((4096, 8192, 2048, 8192)):
        alone = predict(shapes[k], tokens, GRID, H100)
        for name in ("forward", "backward"):
            attribute, other_attribute = getattr(predictions, name), getattr(alone, name)
            np.testing.assert_array_equal(
                np.broadcast_to(attribute.e2e, (4, len(GRID)))[k], other_attribute.e2e[0]
            )


# Properties.


@pytest.mark.thorough
@given(
    st.sampled_from(GRID),
    st.sampled_from(["llama3-8b", "qwen3-0.6b", "llama3-405b"]),
    st.integers(1, 64),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_between_the_longer_and_both(
    case: LayerOverlap, model: str, blocks: int, margin: bool
) -> None:
    shapes = load_model(model).shapes
    predictions = predict(shapes, 8 * 128 * blocks, [case], H100, sm_margin=margin)
    for pass_time in (predictions.forward.at((0, 0)), predictions.backward.at((0, 0))):
        longer, both = (
            max(pass_time.gemm, pass_time.comm),
            pass_time.gemm + pass_time.comm + pass_time.other,
        )
        assert longer * (1 - 1e-12) <= pass_time.e2e <= both * (1 + 1e-12)
        assert 0.0 <= pass_time.ratio <= 1.0
        assert -1e-15 <= pass_time.overlap <= min(pass_time.gemm, pass_time.comm) * (1 + 1e-9)


@pytest.mark.parametrize("layer", ["qkv_fprop", "fc1_fprop", "proj_dgrad", "fc2_dgrad"])
def test_two_ranks_overlap_nothing_with_aggregate(layer: str) -> None:
    operator, phase = layer.split("_")
    pass_time = times(LayerOverlap(2, operator, phase, "ring_exchange", 1))[phase != "fprop"]
    assert pass_time.overlap == pytest.approx(0.0, abs=1e-15)
    four = times(LayerOverlap(4, operator, phase, "ring_exchange", 1))[phase != "fprop"]
    assert four.overlap > 0.0


@pytest.mark.parametrize("margin", [False, True])
@pytest.mark.parametrize("layer", ["qkv_dgrad", "qkv_wgrad", "fc1_dgrad", "fc1_wgrad"])
def test_time_falls_and_then_rises_with_multiprocessors(layer: str, margin: bool) -> None:
    operator, phase = layer.split("_")
    for tokens in (1024, 8192):
        cases = [LayerOverlap(8, operator, phase, "bulk", num_sm=k) for k in range(1, 33)]
        actual = predict(LLAMA, tokens, cases, H100, sm_margin=margin).backward.e2e[0]
        knee = int(np.argmin(actual))
        assert np.all(np.diff(actual[: knee + 1]) <= actual[0] * 1e-12)
        assert np.all(np.diff(actual[knee:]) >= -actual[0] * 1e-12)


def test_without_communication_nothing_is_gained() -> None:
    names = ("bandwidth", "copy_engine_bandwidth", "gather_sm_bandwidth")
    fast = dict.fromkeys(names, Origin(math.inf, GIVEN))
    rates = replace(H100, figures={**H100.figures, **fast, "latency": Origin(0.0, GIVEN)})
    base = sum(time.e2e for time in times(LayerOverlap(4, "fc1", "fprop"), rates))
    for case in (
        LayerOverlap(4, "fc1", "fprop", "ring_exchange"),
        LayerOverlap(4, "fc1", "dgrad", "bulk", 0, 4),
    ):
        pass_times = times(case, rates)
        assert sum(pass_time.comm for pass_time in pass_times) == 0.0
        assert sum(pass_time.e2e for pass_time in pass_times) >= base * (1 - 1e-12)


def test_one_rank_has_no_communication() -> None:
    for operator in OPERATORS:
        forward, backward = times(LayerOverlap(1, operator, "fprop"))
        assert forward.comm == backward.comm == 0.0
        assert forward.comm_events == backward.comm_events == 0.0


def test_eight_bits_gather_half_as_much_and_scatter_the_same() -> None:
    short = replace(read_rates("dgx-h100", "fp8"), library={})
    assert (short["matmul_input_bytes"], short["activation_bytes"]) == (1.0, 2.0)
    gather = [times(LayerOverlap(8, "fc1", "fprop"), rates)[0].comm for rates in (H100, short)]
    scatter = [times(LayerOverlap(8, "fc2", "fprop"), rates)[0].comm for rates in (H100, short)]
    assert gather[1] < 0.52 * gather[0]
    assert scatter[1] == scatter[0]


@pytest.mark.parametrize("precision", ["bf16", "fp8", "mxfp8"])
@pytest.mark.parametrize("framework", ["megatron-lm", "torchtitan"])
def test_gathered_bytes_have_one_answer(framework: str, precision: str) -> None:
    """What a step's all_gather moves is what its userbuffers and the tuner take for it."""
    constants = {
        **keyed(
            "model=llama3-8b hardware=dgx-b200 tp=8 world_size=8 sequence_length=4096 "
            "micro_batch_size=1 global_batch_size=1 tp_mechanism=userbuffers sequence_parallel=1"
        ),
        "precision": precision,
        "framework": framework,
    }
    program = prepare({"quantities": ["exposed_tp_time"], "constants": constants}).program
    cell = Evaluation.of_cell(program.builder(program.cases[0]), {})
    moved = float(cell["tp_all_gather_sent_bytes"]) * 8 / 7
    rates = read_rates("dgx-b200", "bf16" if precision == "bf16" else "fp8")
    each = rates["communication_bytes"] * 4096 * 4096
    if precision != "mxfp8" and framework == "megatron-lm":
        assert moved == each * rates["tp_gather_byte_ratio"]
    assert float(cell["tp_reduce_scatter_sent_bytes"]) * 8 / 7 == each
    # Its forms follow from the same bytes: fewer are there earlier.
    name, shares = "qkv_forward_exposed_time", [0.01, 1.0]
    sooner, later = sweeps.sweep([name], **constants, tp_gather_byte_ratio=shares)[name].to_numpy()
    assert sooner < later


def test_widths_know_head_size_gate_and_groups() -> None:
    # Qwen3 0.6B: 16 heads of 128 though 1024/16 is 64; 8 of key and value; a gate.
    shapes = load_model("Qwen/Qwen3-0.6B").shapes
    products = products_of(shapes, 2.0, tokens=512.0)
    split = {"qkv": "matmul_n", "proj": "matmul_k", "fc1": "matmul_n", "fc2": "matmul_k"}
    actual = {name: float(products[name, "fprop"][side]) for name, side in split.items()}
    assert actual == {"qkv": (16 + 16) * 128 / 2, "proj": 1024, "fc1": 3072, "fc2": 1536}
    weights = [float(size) for size in products["fc2", "wgrad"].values()]
    assert weights == [1536, 1024, 512]


@pytest.mark.parametrize("hardware", ["dgx-a100", "dgx-h100", "dgx-b200"])
def test_overlap_gains_what_it_hides_and_no_more(hardware: str) -> None:
    """Few tokens saved up to 3.2 times over: userbuffers had no start, and faster links."""
    rates = read_rates(hardware)
    bases = [LayerOverlap(8, operator, "fprop") for operator in OPERATORS]
    cases = [*bases, *(case for case in GRID if case.tp_size == 8 and not case.is_baseline)]
    for tokens in (16, 128, 1024, 8192):
        for phase, predict_phase in predict_phases(LLAMA, tokens, cases, rates).items():
            assert (predict_phase.overlap >= -1e-12).all()
            assert (
                predict_phase.overlap
                <= np.minimum(predict_phase.gemm, predict_phase.comm) * (1 + 1e-12)
            ).all()
            for index, case in enumerate(cases):
                base = predict_phase.at((0, [one.operator for one in bases].index(case.operator)))
                least = max(base.gemm, base.comm) * (1.0 - 1e-12)
                assert predict_phase.e2e[0, index] >= least, (tokens, phase, case)


def test_what_overlaps_doesn_t_depend_on_the_library() -> None:
    whole = read_rates("dgx-h100")
    assert whole.library
    cases = [
        LayerOverlap(8, "proj", "fprop", "pipeline", 0, 32),
        LayerOverlap(8, "proj", "fprop", "ring_exchange"),
        LayerOverlap(8, "proj", "fprop"),
    ]
    ours, bare = (predict(LLAMA, 2048, cases, rates).forward for rates in (whole, H100))
    np.testing.assert_array_equal(ours.gemm[0, :2], bare.gemm[0, :2])
    # Beside a product nothing is sent faster than in turn, so that hiding is all that is gained.
    assert (ours.comm[0, :2] == ours.comm[0, 2]).all()
    # In turn its profile says what an operation takes, more than the links alone.
    assert ours.comm[0, 2] > bare.comm[0, 2]


@pytest.mark.parametrize("scaling", ["fp8_current", "mxfp8"])
def test_every_scaling_of_eight_bits_has_its_tiles(scaling: str) -> None:
    def rate(precision: str) -> float:
        constants = {
            **keyed(
                "model=llama3-8b hardware=dgx-b200 tp=2 world_size=2 sequence_length=4096 "
                "micro_batch_size=1 global_batch_size=1 tp_mechanism=userbuffers"
            ),
            "precision": precision,
        }
        program = prepare({"quantities": ["exposed_tp_time"], "constants": constants}).program
        cell = Evaluation.of_cell(program.builder(program.cases[0]), {})
        return float(cell["burst_matmul_flops"])

    assert rate(scaling) == rate("fp8") == read_rates("dgx-b200", "fp8")["burst_matmul_flops"]


def test_links_of_pairs_carry_a_ring_each() -> None:
    with pytest.raises(ValueError, match="streaming multiprocessors"):
        read_rates("mi300x")
    rates = read_rates("mi300x", given={"sms": 304.0})
    assert rates.linked
    two, eight = (times(LayerOverlap(n, "fc1", "fprop"), rates)[0].comm for n in (2, 8))
    # On one link of seven the ring's rate doesn't depend on how many take part.
    assert eight / two == pytest.approx((7 / 8) / (1 / 2), rel=0.01)


def tiled_time(cell: Evaluation, product: str, ratio: float) -> float:
    """Return the time of a product by itself, by the best of its tiles, as the tuner has it."""
    pair = REGISTRY.returning(f"{product}_exposed_time", cell.labels)
    assert isinstance(pair, Call)
    _, inner = cell.called(pair)
    rates = inner.given | {"burst_ratio": np.array(ratio)}
    return float(Evaluation(rates, inner.labels)["unsplit_matmul_time"])


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(
    ("model", "tp", "tokens", "hardware", "precision"), examples(__file__, "saved")
)
def test_a_step_saves_what_the_tuner_says(
    model: str, tp: int, tokens: int, hardware: str, precision: str
) -> None:
    """A layer's time saved by userbuffers, as `sweeps analysis` has it and as `sweeps tune`.

    A long run of a product has one rate in a step, that of its own size, and in a tuning its burst
    rate by one ratio: at the tuner's rates both are the same within 1 %, at their own within 2.5 %.
    """
    exposed = [f"dense_exposed_tp_{way}_time" for way in ("forward", "backward")]
    sent = [f"tp_layer_{way}_time" for way in ("forward", "backward", "gather")]
    constants = {
        "model": model,
        "hardware": hardware,
        "world_size": tp,
        "tp": tp,
        "sequence_parallel": 1,
        "sequence_length": tokens,
        "micro_batch_size": 1,
        "global_batch_size": 1,
        "tp_mechanism": "userbuffers",
        "precision": precision,
    }
    products = [
        f"{product}_{kind}"
        for product in ("qkv", "attention_output", "mlp_up", "mlp_down")
        for kind in ("forward", "input_gradient", "weight_gradient")
        if kind != "weight_gradient" or product in ("qkv", "mlp_up")
    ]
    ratio = read_rates(hardware, precision)["burst_ratio"]
    spec = {"quantities": [*exposed, *sent], "constants": constants | {"pair_burst_ratio": ratio}}
    program = prepare(spec).program
    cell = Evaluation.of_cell(program.builder(program.cases[0]), {})
    alike = {f"{product}_time": tiled_time(cell, product, ratio) for product in products}
    whole, saved = [], []
    for rates in ({}, alike):
        spec = {"quantities": [*exposed, *sent], "constants": constants | rates}
        step = prepare(spec).program.evaluate()
        whole.append(sum(float(step[name]) for name in sent))
        saved.append(whole[-1] - sum(float(step[name]) for name in exposed))
    config = TPOverlapTunerConfig(
        model,
        max_tp_size=tp,
        max_token_len=tokens,
        hardware=hardware,
        pipeline=True,
        max_num_sm=32,
        search="grid",
        precision=precision,
    )
    choice = TPOverlapTuner(config).run(write=False).choices[-1]
    bases = choice.baselines.values()
    assert [
        sum(pass_index.comm for base in bases for pass_index in base.passes)
    ] * 2 == pytest.approx(whole)
    tuned = sum(base.e2e - choice.e2e(base.case.operator) for base in bases)
    assert tuned == pytest.approx(saved[0], rel=0.025)
    assert tuned == pytest.approx(saved[1], rel=0.01)
