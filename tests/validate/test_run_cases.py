"""Rows as cases: what is taken of them, what is assumed, what can't be predicted."""

from __future__ import annotations

import pytest

from sweeps.validate.run_table import NUMBERS, Run
from sweeps.validate.training_rows import Case, cases_of_runs
from tests.overhead.memory_cases import Derivation
from tests.tables import examples, keyed

STEP = keyed(
    "model=llama3-70b gpu_type=dgx-h100 framework=megatron-lm precision=bf16 recompute=none "
    "zero_or_sharding=ZeRO-1 sp=yes gpus=64 tp=4 pp=4 cp=1 dp=4 vpp=1 seq_len=8192 "
    "global_batch_size=128 micro_batch_size=1 step_time_s=14.6"
)


def run(**more: object) -> Run:
    cells = {**STEP, **more}
    spec = {name: value for name, value in cells.items() if value is not None}
    numbers = {name: float(str(v)) for name, v in spec.items() if name in NUMBERS}
    texts = {name: str(v) for name, v in spec.items() if name not in NUMBERS}
    return Run(2, texts, numbers)


def case(**more: object) -> Case:
    cases = cases_of_runs([run(**more)])
    assert not cases.skipped, cases.skipped
    return cases.cases[0]


def reason(**more: object) -> str:
    cases = cases_of_runs([run(**more)])
    assert not cases.cases
    return cases.skipped[0].reason


def test_a_row_that_says_it_all() -> None:
    one = case()
    assert one.kind == one.quantity == "step_time"
    assert one.measured == 14.6
    assert one.assumed == ()
    assert one.group == "dgx-h100"
    assert one.labels["hardware"] == "dgx-h100"
    assert one.labels["attention_kernel"] == "cudnn"  # Transformer Engine's, by the framework
    assert one.labels["schedule"] == "one_f_one_b"
    expected = {"tp": 4, "dp": 4, "num_micro_batches": 32, "zero_stage": 1, "layers": 80, "etp": 4}
    assert {name: one.numbers[name] for name in expected} == expected


def test_what_recipes_of_bridge_set_is_on() -> None:
    """Their releases take Transformer Engine's loss; further tokens as their column says."""
    row = {"source_id": "mbridge_26.06", "model": "deepseek-v3", "ep": 16, "framework": None}
    one = case(**row, mtp_layers=1)
    assert "fused_loss" in one.labels["framework"].split("+")
    assert one.numbers["mtp_layers"] == 1
    for model, fused in (("qwen35_vl_35b_a3b", True), ("deepseek_v4_flash", False)):
        of_main = case(source_id="mbridge_main", model=model, ep=16, framework=None)
        assert ("fused_loss" in of_main.labels["framework"].split("+")) == fused
    assert case(**row).numbers["mtp_layers"] == 0
    # Printed with the degrees of the release before; its recipe has others.
    row = keyed(
        "model=Qwen3_30B_a3B gpu_type=H100-80GB-SXM gpus=16 pp=2 vpp=12 ep=8 dp=8 tp=1 "
        "framework=None"
    )
    later, before = (case(source_id=f"mbridge_{name}", **row) for name in ("26.02.01", "26.02"))
    for name, new, old in (
        ("pp", 1, 2),
        ("ep", 16, 8),
        ("dp", 16, 8),
        ("virtual_pipeline_size", 1, 12),
    ):
        assert (later.numbers[name], before.numbers[name]) == (new, old)
    assert {"pp", "ep"} <= set(later.assumed)
    # 25.11's table has the degrees of 25.09's, too.
    row |= {"vpp": 24, "micro_batch_size": 2, "global_batch_size": 512, "grad_accum": 32}
    later, before = (case(source_id=f"mbridge_{name}", **row) for name in ("25.11", "25.09"))
    for name, new, old in (
        ("micro_batch_size", 1, 2),
        ("num_micro_batches", 64, 32),
        ("virtual_pipeline_size", 12, 24),
    ):
        assert (later.numbers[name], before.numbers[name]) == (new, old)
    assert {"micro_batch_size", "virtual_pipeline_size"} <= set(later.assumed)


def test_columns_go_before_the_catalogue() -> None:
    one = case(layers=12, tp=8, pp=1, dp=8)
    assert one.numbers["layers"] == 12
    assert one.numbers["hidden_size"] == 8192


def test_torchtitan_of_2024_has_as_many_micro_batches_as_stages() -> None:
    """Its configuration's default then: the micro-batch is what the batch leaves of them."""
    row = {"source_id": "torchtitan_202412", "framework": "torchtitan", "micro_batch_size": None}
    for pp, virtual, dp in ((8, 1, 2), (4, 2, 4)):
        numbers = case(**row, pp=pp, dp=dp, vpp=virtual, global_batch_size=128).numbers
        assert numbers["num_micro_batches"] == pp * virtual
        assert numbers["micro_batch_size"] == 128 / dp / (pp * virtual)
    result = case(**{**row, "micro_batch_size": 1}, pp=8, dp=2, global_batch_size=128).numbers
    assert result["num_micro_batches"] == 64


def test_transfers_that_overlap_tell_interleaving() -> None:
    """Megatron has no such overlap in any other schedule; the number of chunks stays assumed."""
    row = {"source_id": "mcore_h100_weak", "framework": None, "vpp": None}
    one = case(**row, overlap="grad-reduce overlap; PP overlap")
    assert (one.labels["schedule"], one.numbers["virtual_pipeline_size"]) == ("interleaved", 20)
    assert "virtual_pipeline_size" in one.assumed
    for settings in ({"overlap": "PP overlap", "pp": 1, "dp": 16}, {"overlap": "tp-comm-overlap"}):
        assert case(**row | settings).labels["schedule"] == "one_f_one_b"


def test_what_isn_t_said_is_assumed_and_told() -> None:
    assert case(recompute=None).assumed == ("recompute",)
    assert case(recompute="unspecified (recipe)").assumed == ("recompute",)
    assert case(recompute="none (assumed)").assumed == ("recompute",)
    assert case(vpp=None).assumed == ("virtual_pipeline_size",)
    assert "micro_batch_size" in case(micro_batch_size=None).assumed
    assert case(framework=None).assumed == ("framework",)
    assert case(zero_or_sharding=None).assumed == ("zero_stage",)


def test_micro_batch_from_accumulation() -> None:
    one = case(micro_batch_size=None, grad_accum=16)
    assert (one.numbers["micro_batch_size"], one.numbers["num_micro_batches"]) == (2, 16)
    assert one.assumed == ()


def test_degrees_that_follow() -> None:
    assert case(dp=None).numbers["dp"] == 4
    assert case(pp=1, vpp=5, dp=16).numbers["virtual_pipeline_size"] == 1


@pytest.mark.parametrize(
    ("layers", "pp", "v", "ends"),
    [(126, 8, 8, 1), (30, 4, 8, 1), (128, 8, 8, 0), (61, 4, 4, 0), (80, 4, 5, 0)],
)
def test_ends_count_as_layers_only_where_that_evens_stages(
    layers: int, pp: int, v: int, ends: int
) -> None:
    one = case(layers=layers, pp=pp, vpp=v, dp=16 // pp)
    values = Derivation(one.numbers)
    for name in ("embedding_layer_weight", "head_layer_weight"):
        assert float(values[name]) == ends
    assert one.labels["schedule"] == "interleaved"


@pytest.mark.parametrize(("gpu_type", "gpus", "spec", "node", "cards"), examples(__file__, "nodes"))
def test_nodes(gpu_type: str, gpus: int, spec: int | None, node: int, cards: int) -> None:
    one = case(
        gpu_type=gpu_type,
        gpus=gpus,
        gpus_per_node=spec,
        tp=1,
        pp=1,
        dp=gpus,
        global_batch_size=gpus,
    )
    assert one.numbers["gpus_per_node"] == node
    assert one.numbers["nics_per_node"] == cards
    assert one.numbers["ranks_sharing_nic"] == 1


def test_network_cards_of_a_row() -> None:
    one = case(interconnect="NVLink3; 4x100Gb RoCE per node")
    assert one.numbers["nics_per_node"] == 4
    assert one.numbers["ranks_sharing_nic"] == 2
    assert one.numbers["inter_bandwidth"] == 12.5e9
    one = case(interconnect="NVLink; 1600 Gb/s per node RoCE")
    assert one.numbers["inter_bandwidth"] * one.numbers["nics_per_node"] == 200e9


def test_time_from_a_rate() -> None:
    one = case(step_time_s=None, tokens_per_s_per_gpu=1000)
    assert one.measured == 128 * 8192 / (64 * 1000)


@pytest.mark.parametrize(("more", "result"), examples(__file__, "rows_that_can_t_be_predicted"))
def test_rows_that_can_t_be_predicted(more: dict[str, object], result: str) -> None:
    assert result in reason(**more)


def test_a_row_of_time_and_memory_is_two_cases_unless_a_table_of_memory_has_it() -> None:
    run_case = run(row_id="T1", peak_mem_gib=60)
    cases = cases_of_runs([run_case])
    assert [one.kind for one in cases.cases] == ["step_time", "memory"]
    assert cases.cases[1].measured == 60 * 2.0**30
    linked = run(
        row_id="M1",
        linked_training_row="T1",
        quantity="peak memory per GPU",
        value=60,
        unit="GiB",
        step_time_s=None,
    )
    cases = cases_of_runs([run_case, linked])
    assert [one.name for one in cases.cases] == ["T1", "M1"]
    assert not cases_of_runs([linked], kinds=("step_time",)).cases


def test_memory_needs_no_machine() -> None:
    one = case(
        gpu_type="abacus 80 GB"[:0],
        quantity="peak memory per GPU",
        value=60,
        unit="GiB",
        step_time_s=None,
        global_batch_size=None,
        grad_accum=8,
    )
    assert "hardware" not in one.labels
    assert one.numbers["num_micro_batches"] == 8


def test_a_count_of_parameters_is_enough_for_states() -> None:
    one = case(
        model="7.5B params",
        n_params_b=7.5,
        quantity="model-state memory per device",
        value=31.4,
        unit="GB (1e9)",
        step_time_s=None,
    )
    assert one.labels["shapes"] == "unknown"
    assert one.numbers["parameters"] == 7.5e9
    assert one.measured == 31.4e9


@pytest.mark.parametrize(("stated", "parallel"), [(None, 1), (0, 0), (1, 1)])
def test_stated_sequence_parallelism_is_not_assumed(stated: int | None, parallel: int) -> None:
    """A table may state it by the quantity's name, as numbers, instead of words in ``sp``."""
    run_case = run(sp=None)
    if stated is not None:
        run_case = Run(
            run_case.line, run_case.texts, {**run_case.numbers, "sequence_parallel": float(stated)}
        )
    found = cases_of_runs([run_case]).cases[0]
    assert found.numbers["sequence_parallel"] == parallel
    assert ("sequence_parallel" in found.assumed) == (stated is None)
