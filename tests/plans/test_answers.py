"""What is said of a plan: reasons, changes, settings, what is nearest, what a node lost costs."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from overhead.evaluation import Evaluation
from overhead.memory.stage import PEAK_PARTS
from overhead.step.parts import PARTS
from sweeps.bands import change_by, percent, tie
from sweeps.errors import InputError
from sweeps.launch.deepspeed import settings as deepspeed
from sweeps.launch.megatron import layout
from sweeps.launch.megatron import settings as megatron
from sweeps.launch.torchtitan import settings as torchtitan
from sweeps.search.answer import answer, nodes_lost, other_batch
from sweeps.search.details import details
from sweeps.search.repair import batch_for, filled, nearest_plan, remedies
from sweeps.search.request import Execution
from sweeps.search.search import KEPT, effort, search
from sweeps.search.space import space_of
from sweeps.search.words import bound_by
from tests.plans.cases import mixture, point, usual
from tests.tables import examples, keyed


@pytest.mark.thorough
def test_parts_add_up_to_what_was_searched_for() -> None:
    one = usual()
    for detail in (*one.main, *one.next_split):
        parts = sum(detail[name] for name in PARTS)
        assert parts == pytest.approx(detail["step_time"], rel=1e-9)
        memory = sum(detail[name] for name in PEAK_PARTS)
        assert memory == pytest.approx(detail["peak_memory"], rel=1e-9)


@pytest.mark.thorough
def test_reasons_say_what_the_numbers_say() -> None:
    one = usual()
    best, other = *one.main, *one.next_split
    result = "\n".join(one.reasons)
    assert f"{best['tokens_per_second_per_gpu']:,.0f} tokens/s" in result
    assert f"MFU {percent(best['mfu'])}" in result
    products = best["matmul_part_time"] / best["step_time"]
    assert f"GEMMs {percent(products)}" in result
    assert f"{best['peak_memory'] / 1e9:.1f} GB of 84.9 GB" in result
    assert (
        f"{0.9 * 84.9437 - best['peak_memory'] / 1e9:.1f} GB below the threshold of 90 %" in result
    )
    gap = other["step_time"] / best["step_time"] - 1.0
    assert f"{other.plan.split} ({other.plan.way}), is {change_by(gap)}" in result
    between = next(e for e in one.effects if e.change.words == "twice the inter-node bandwidth")
    assert f"twice the inter-node bandwidth {change_by(between.slower)}" in result


@pytest.mark.thorough
def test_the_next_split_is_another_one_and_no_faster_as_far_as_can_be_told() -> None:
    one = usual()
    best, other = *one.main, *one.next_split
    assert other.plan.split != best.plan.split
    assert best["step_time"] <= (1.0 + tie()) * other["step_time"]


@pytest.mark.thorough
def test_changes_are_evaluated_again() -> None:
    one = usual()
    for effect in one.effects:
        detail = effect.detail
        (repeated_detail,) = details([detail.plan], ("step_time", "peak_memory"))
        assert repeated_detail["step_time"] == detail["step_time"]
        if np.isfinite(effect.slower):
            ratio = detail["step_time"] / one.main[0]["step_time"]
            assert effect.slower == pytest.approx(ratio - 1.0)
        else:
            assert effect.note
    # Among those of the plan that can run none is better: the search would have found it.
    effects = [
        e
        for e in one.effects
        if not e.change.machine and not e.note and e.detail["peak_memory"] <= 72e9
    ]
    assert effects
    assert min(e.slower for e in effects) >= -1e-9


@pytest.mark.thorough
def test_a_change_that_cant_be_says_why() -> None:
    one = mixture()
    ep = next(e for e in one.effects if e.change.words == f"ep {one.main[0].plan['ep'] * 2:g}")
    assert np.isnan(ep.slower)
    assert "experts not divisible" in ep.note


def test_more_bandwidth_is_never_worse() -> None:
    for effect in usual().effects:
        if effect.change.words.startswith(("twice the", "half the latencies")):
            assert effect.slower <= 1e-12
        if effect.change.words.startswith("half the inter-node bandwidth"):
            assert effect.slower >= -1e-12


# Settings.


def arguments(lines: tuple[str, ...]) -> dict[str, str]:
    return {line.split(" ")[0]: line.partition(" ")[2] for line in lines}


def test_megatron() -> None:
    plan = usual().main[0].plan
    given = arguments(megatron(plan).lines)
    assert given["--tensor-model-parallel-size"] == f"{plan['tp']:g}"
    assert given["--pipeline-model-parallel-size"] == f"{plan['pp']:g}"
    assert given["--micro-batch-size"] == f"{plan['micro_batch_size']:g}"
    assert given["--global-batch-size"] == "512"
    several = plan.changed({"pp": 4.0, "virtual_pipeline_size": 5.0}, {"schedule": "interleaved"})
    chunks = arguments(megatron(several).lines)
    assert chunks["--num-virtual-stages-per-pipeline-rank"] == "5"
    assert "--use-distributed-optimizer" in given
    assert "--sequence-parallel" in given
    assert "--recompute-granularity" not in given
    full = megatron(plan.changed({"zero_stage": 3.0}, {"recompute": "full"}))
    assert arguments(full.lines)["--data-parallel-sharding-strategy"] == "optim_grads_params"
    assert arguments(full.lines)["--recompute-granularity"] == "full"


@pytest.mark.thorough
def test_megatron_of_experts() -> None:
    plan = mixture().main[0].plan
    given = arguments(megatron(plan).lines)
    assert given["--expert-model-parallel-size"] == f"{plan['ep']:g}"
    assert given["--expert-tensor-parallel-size"] == f"{plan['etp']:g}"


def test_stages_that_are_uneven_have_a_layout() -> None:
    plan = (
        usual()
        .main[0]
        .plan.changed({"pp": 3.0, "virtual_pipeline_size": 1.0}, {"schedule": "one_f_one_b"})
    )
    layout = arguments(megatron(plan).lines)["--pipeline-model-parallel-layout"].strip("'")
    chunks = layout.split("|")
    assert len(chunks) == 3
    assert sum(chunk.count("t") for chunk in chunks) == 80
    assert chunks[0].startswith("E")
    assert chunks[-1].endswith("L")


@pytest.mark.parametrize(
    ("layers", "chunks", "ends", "further", "published"),
    [
        # DeepSeek-V3 and Kimi K2 as NVIDIA's recipes have them (specs/measured/plans.csv).
        (61, 16, (0, 3), 1, f"E{'tttt|' * 15}tmL"),
        (61, 16, (0, 0), 1, f"E{'tttt|' * 15}tmL"),
        (61, 16, (0, 3), 0, f"E{'tttt|' * 15}tL"),
        (61, 32, (1, 2), 0, f"Et|{'tt|' * 30}L"),
        # By hand: one free place more than the last chunk has.
        (5, 4, (0, 0), 0, "Ett|tt|t|L"),
    ],
)
def test_layouts_are_those_that_stages_are_counted_by(
    layers: int, chunks: int, ends: tuple[int, int], further: int, published: str
) -> None:
    assert layout(layers, chunks, ends, further) == published
    assert published.count("t") == layers
    plan = usual().main[0].plan
    given = {"pp": 4.0, "virtual_pipeline_size": chunks / 4.0, "layers": float(layers)}
    given |= {"embedding_layer_weight": float(ends[0]), "head_layer_weight": float(ends[1])}
    given |= {"mtp_layers": float(further)}
    result = arguments(megatron(plan.changed(given, {"schedule": "interleaved"})).lines)
    assert result["--pipeline-model-parallel-layout"].strip("'") == published
    # What stages hold in memory: chunks of the same place of each turn.
    chunk = [part.count("t") + part.count("m") for part in published.split("|")]
    known = {**given, "mtp_depths": float(further), "weight_copies": 1.0, "stage": np.arange(4.0)}
    values = Evaluation(known, {})["stage_layers"]
    if published != "Ett|tt|t|L":  # Free places beyond the last stage's are counted as held.
        assert values.tolist()[:3] == [sum(chunk[index::4]) for index in range(3)]
        assert values[3] >= sum(chunk[3::4])


def test_deepspeed_is_a_configuration() -> None:
    plan = usual().search.ranked[0]
    content = json.loads("\n".join(deepspeed(plan).lines))
    product = (
        content["train_micro_batch_size_per_gpu"]
        * content["gradient_accumulation_steps"]
        * plan["dp"]
    )
    assert content["train_batch_size"] == product == 512
    assert content["zero_optimization"]["stage"] == plan["zero_stage"]
    assert "its pipeline isn't interleaved" in deepspeed(plan).missing


def test_torchtitan_is_a_configuration() -> None:
    plan = usual().search.ranked[0]
    content = tomllib.loads("\n".join(torchtitan(plan).lines))
    degrees = content["parallelism"]
    world = 1
    for name in tuple(
        (
            "data_parallel_replicate data_parallel_shard tensor_parallel context_parallel "
            "pipeline_parallel"
        ).split()
    ):
        world *= degrees[f"{name}_degree"]
    assert world == 64
    assert degrees["pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert content["activation_checkpoint"]["mode"] == "none"
    assert any("shards gradients" in line for line in torchtitan(plan).missing)


# Where nothing fits.


def test_the_nearest_plan_needs_least_memory() -> None:
    asked = point(model="llama3-405b", gpus=8)
    near = nearest_plan(space_of(asked))
    assert near is not None
    assert near.memory
    assert set(near.reasons) == {"does_not_fit"}
    (detail,) = details([near.plan], ("peak_memory",))
    least = search(
        space_of(point("memory", 1.0, model="llama3-405b", gpus=8, memory_capacity="10TB"))
    )
    assert detail["peak_memory"] == pytest.approx(least.recommended.known["peak_memory"])


@pytest.mark.thorough
def test_more_gpus_make_it_fit() -> None:
    one = answer(point(model="llama3-70b", gpus=8))
    assert one.recommended is None
    assert one.counts.feasible == 0
    words = [remedy.words for remedy in one.remedies]
    more = next(remedy for remedy in one.remedies if remedy.words.endswith("GPUs"))
    assert more.search.recommended["world_size"] in (16.0, 32.0)
    assert all(remedy.search.best for remedy in one.remedies), words


@pytest.mark.thorough
def test_what_the_user_forbade_would_make_it_fit() -> None:
    asked = point(model="llama3-70b", gpus=32, zero_stage=0, recompute="none", tp="1,2")
    one = answer(asked)
    assert one.recommended is None
    words = {remedy.words for remedy in remedies(asked, one.nearest)}
    assert "any tp" in words
    assert "any ZeRO" in words


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(("world", "nodes"), [(61, (56, 64)), (7, (4, 8)), (13, (8, 16))])
def test_gpus_that_dont_fill_nodes(world: int, nodes: tuple[int, int]) -> None:
    assert filled(world, 8.0) == nodes
    one = answer(point(gpus=world, global_batch_size=64))
    assert one.recommended is None
    assert one.counts.fallen["nodes_not_filled"] == one.counts.all
    assert [remedy.search.recommended["world_size"] for remedy in one.remedies][:2] == list(nodes)


def test_a_batch_smaller_than_the_ranks_leaves_other_splits() -> None:
    one = answer(point(gpus=16, global_batch_size=4))
    assert one.recommended is not None
    assert max(plan["dp"] for plan in one.search.splits) <= 4
    assert one.counts.fallen["batch_not_divisible"] > 0


def test_an_odd_batch_has_another_one_near() -> None:
    asked = point(gpus=24, global_batch_size=64)
    assert batch_for(asked, 8.0) == 63.0 or batch_for(asked, 8.0) == 72.0
    assert batch_for(point(gpus=16, global_batch_size=64), 8.0) is None
    assert batch_for(point(gpus=512, global_batch_size=8), 8.0) is None


# A node lost.


@pytest.mark.thorough
def test_a_node_lost() -> None:
    first = usual()
    every = nodes_lost(first)
    assert [one.loss for one in every if one.fits] == sorted(one.loss for one in every if one.fits)
    assert all(0.0 <= one.loss < 1.0 for one in every)
    kept = next(
        one for one in every if "GPUs, the same" in one.words or "idle, the same" in one.words
    )
    replicas = [one for one in every if one.words.startswith("the plan with dp")]
    assert len(replicas) == 2
    assert all(replica.plan["pp"] == first.main[0].plan["pp"] for replica in replicas)
    assert {replica.plan["global_batch_size"] for replica in replicas} >= {512.0}
    # Every smaller number of nodes, searched by itself, is no better.
    for gpus in range(56, 0, -8):
        other_answer = answer(point(model="llama3-70b", gpus=gpus, global_batch_size=512))
        if other_answer.recommended is not None:
            (rate,) = details([other_answer.recommended], ("tokens_per_second",))
            assert rate["tokens_per_second"] <= kept.rate * (1 + 1e-12), gpus


@pytest.mark.thorough
def test_fewer_replicas_take_as_much_longer_as_they_have_more_to_do() -> None:
    first = usual()
    plan = first.main[0].plan
    for one in nodes_lost(first):
        if one.words.startswith("the plan with dp"):
            values = one.plan["dp"] * one.plan["micro_batch_size"] * one.plan["num_micro_batches"]
            assert values >= one.plan["global_batch_size"]
            assert one.plan["world_size"] == one.plan["dp"] * plan["tp"] * plan["cp"] * plan["pp"]
            assert one.rate <= details([plan], ("tokens_per_second",))[0]["tokens_per_second"]


def test_504_gpus() -> None:
    """A node of 512 GPUs is gone: 504 have few divisors in common with the batch."""
    one = answer(point(model="llama3-70b", gpus=504, global_batch_size=512))
    plan = one.recommended
    assert plan is not None
    assert plan["tp"] * plan["cp"] * plan["pp"] * plan["dp"] == 504.0
    alternative = other_batch(one)
    assert alternative is not None
    assert alternative.answer.point.constants["global_batch_size"] == 504.0
    assert alternative.faster > 0.2


# Experts.


@pytest.mark.thorough
def test_experts_are_split_beside_and_instead_of_tensors() -> None:
    one = mixture()
    ways = {(plan["ep"] > 1.0, plan["etp"] > 1.0) for plan in one.search.splits}
    assert (True, False) in ways
    assert (False, True) in ways
    assert (True, True) in ways
    for plan in one.search.splits:
        assert plan["experts"] % plan["ep"] == 0.0


def test_an_all_to_all_between_nodes_takes_longer() -> None:
    plan = (
        mixture()
        .main[0]
        .plan.changed(
            {"tp": 1.0, "cp": 1.0, "pp": 1.0, "dp": 32.0, "etp": 1.0, "sequence_parallel": 1.0}
        )
    )
    inside, outside = details(
        [plan.changed({"ep": 8.0}), plan.changed({"ep": 8.0, "gpus_per_node": 4.0})],
        ("ep_dispatch_time",),
    )
    assert outside["ep_dispatch_time"] > 2.0 * inside["ep_dispatch_time"]


def test_imbalance_costs_time() -> None:
    even = search(space_of(point(model="mixtral-8x7b", gpus=32))).recommended
    (left, right) = details([even, even.changed({"expert_load_imbalance": 1.5})], ("step_time",))
    assert right["step_time"] > left["step_time"]


@pytest.mark.thorough
def test_of_plans_as_good_as_can_be_told_the_simplest_is_recommended() -> None:
    for several in (1, 4 * KEPT):  # Whatever is kept beside it
        match = search(space_of(point(model="llama3-70b", gpus=256)), several)
        edge = (1.0 + tie()) * min(match.values)
        near = [
            plan for plan in (*match.best[:KEPT], *match.splits) if plan.known["step_time"] <= edge
        ]
        assert effort(match.recommended) == min(map(effort, near))
        assert match.splits[0] == match.recommended
        assert len({plan.split for plan in match.splits}) == len(match.splits)
        assert match.tied == len({plan.split for plan in near}) > 1
        assert match.ranked[0].known["step_time"] == min(match.values)
    assert min(match.values) < match.values[0] <= edge


def test_tensor_parallelism_across_nodes_is_not_the_simplest() -> None:
    """Of a million tokens TP 8 and CP 8 tie with TP 16 and CP 4, which has two degrees as well."""
    asked = point(model="llama3-8b", gpus=64, global_batch_size=16, sequence_length=1 << 20)
    match = search(space_of(asked))
    edge = (1.0 + tie()) * min(match.values)
    near = [plan for plan in match.splits if plan.known["step_time"] <= edge]
    assert any(plan["tp"] == 16.0 and plan.crosses_nodes for plan in near)
    assert match.recommended["tp"] <= 8.0
    assert not match.recommended.crosses_nodes
    across = replace(match.recommended, given={**match.recommended.given, "tp": 16.0})
    assert effort(match.recommended) < effort(across)
    assert not replace(across, labels={**across.labels, "topology": "torus"}).crosses_nodes


# Bad input.


@pytest.mark.parametrize(("changed", "result"), examples(__file__, "bad_input"))
def test_bad_input(changed: dict[str, object], result: str) -> None:
    with pytest.raises(InputError, match=re.escape(result)):
        answer(point(**changed))


def test_a_model_without_shapes_is_a_fault() -> None:
    from sweeps.search.request import read_request

    asked = keyed(
        "parameters=70e9 hardware=dgx-h100 gpus=64 global_batch_size=512 sequence_length=4096"
    )
    with pytest.raises(InputError, match="needs a model's shapes"):
        read_request(asked)
    with pytest.raises(InputError) as raised:
        read_request({"model": "llama3-8b"})  # sequences are as long as it was trained on
    assert [fault.split("; ")[1] for fault in raised.value.faults] == [
        "give gpus",
        "give global_batch_size",
    ]
    with pytest.raises(InputError) as raised:
        read_request({"model": "gpt-oss-20b"})  # its publication doesn't say how long
    assert len(raised.value.faults) == 3


def test_tensor_parallelism_across_nodes_is_allowed() -> None:
    one = answer(point(tp=16))
    assert one.recommended is not None
    assert "tp 16 crosses nodes of 8 GPUs" in "\n".join(one.reasons)


def test_a_machine_without_what_is_ranked_is_a_fault() -> None:
    with pytest.raises(InputError, match="peak_flops"):
        answer(point(hardware="strategy-calculator"))
    with pytest.raises(InputError, match="gpu_hour_price"):
        answer(point("cost", hardware="mi300x"))  # its file has none


def test_a_plan_says_what_it_has() -> None:
    plan = Execution({"tp": 2.0, "ep": 1.0}, {"recompute": "none"})
    assert "tp" in plan
    assert "etp" in plan
    assert "recompute" not in plan
    assert "foo" not in plan
    with pytest.raises(KeyError, match="recompute is a label"):
        plan["recompute"]


def test_a_plan_is_shown_in_a_line() -> None:
    recommended = usual().recommended
    assert recommended is not None
    assert repr(recommended) == f"<plan: {recommended.name}>"


@pytest.mark.parametrize(
    ("slow", "name"), [("optimizer_time", "optimizer"), ("exposed_offload_time", "CPU offload")]
)
def test_what_bounds_a_step_next_is_its_second_largest_part(slow: str, name: str) -> None:
    best = usual().main[0]
    values = {**best.values, slow: 0.3 * best["step_time"]}
    assert "limited by compute: " in bound_by(replace(best, values=values))
    assert f"; next: {name}" in bound_by(replace(best, values=values))
