"""How often a step communicates, and over which links: against an enumeration of its events.

The enumeration walks through micro-batches, virtual stages and layers one by one, and knows none of
the formulas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from overhead.labels import LABELS
from tests.overhead.communication_cases import GPT, MOE, Plan, counts, held, total_energy
from tests.tables import examples, keyed

Events = Counter[tuple[str, str]]
DEGREES: Plan = keyed(
    "tp=1 cp=1 pp=1 dp=1 ep=1 virtual_pipeline_size=1 num_micro_batches=1 sequence_parallel=0"
)


def layers_of(plan: Plan, stage: int) -> list[int]:
    """Return the numbers of a stage's layers, its virtual stages being dealt out in turn."""
    chunks = int(plan["pp"] * plan["virtual_pipeline_size"])
    each = int(plan["layers"]) // chunks
    own = range(stage, chunks, int(plan["pp"]))
    return [chunk * each + index for chunk in own for index in range(each)]


def blocks(plan: Plan, layer: int) -> list[str]:
    """Return what of a layer is tensor-parallel."""
    routed = plan.get("experts", 0) and layer >= plan.get("dense_layers", 0)
    return ["attention"] if routed and not plan.get("shared_ffn_size", 0) else ["attention", "mlp"]


def forward(plan: Plan, layer: int, kind: str) -> Iterator[str]:
    """Yield what a layer's forward communicates."""
    for block in blocks(plan, layer):
        if plan["tp"] > 1 and plan["sequence_parallel"]:
            yield "tp_all_gather"
        if block == "attention" and plan["cp"] > 1:
            yield from context(plan, kind)
        if plan["tp"] > 1:
            yield "tp_reduce_scatter" if plan["sequence_parallel"] else "tp_all_reduce"
    if plan.get("experts", 0) and layer >= plan.get("dense_layers", 0):
        if plan["ep"] > 1:
            yield from ("ep_dispatch", "ep_combine")
        if plan.get("etp", 1) > 1:
            yield from ("etp_all_gather", "etp_reduce_scatter")


def context(plan: Plan, kind: str) -> Iterator[str]:
    """Yield what attention communicates in a forward."""
    if kind == "all_to_all":
        for _ in ("queries", "result"):
            yield "cp_query_all_to_all"
        for _ in ("keys", "values"):
            yield "cp_key_value_all_to_all"
    elif kind == "ring":
        yield from ("cp_ring" for index in range(int(plan["cp"])) if index)
    elif kind == "mixed":
        group = int(plan["ulysses_ranks"])
        for _ in ("in", "out") if group > 1 else ():
            yield from ("cp_query_all_to_all", "cp_key_value_all_to_all")
        yield from ("cp_ring" for index in range(0, int(plan["cp"]), group) if index)
    else:
        yield "cp_all_gather"


def backward(plan: Plan, layer: int, kind: str) -> Iterator[str]:
    """Yield what a layer's backward communicates: the gradients, and saved inputs."""
    adjoint = {"tp_all_gather": "tp_reduce_scatter", "tp_reduce_scatter": "tp_all_gather"}
    for event in forward(plan, layer, kind):
        if event.startswith("cp_") and "all_to_all" not in event:
            continue
        yield adjoint.get(event, event)
        if event == "tp_all_gather":
            yield "tp_weight_gather"
    if plan["cp"] > 1 and kind in ("ring", "mixed"):
        for _ in ("keys and values", "gradients"):
            yield from (event for event in context(plan, kind) if "ring" in event)
    elif plan["cp"] > 1 and kind == "all_gather":
        yield from ("cp_all_gather", "cp_reduce_scatter")


def repeated(plan: Plan, layer: int, kind: str, recompute: str) -> Iterator[str]:
    """Yield what recomputation repeats of a layer's forward."""
    if recompute == "full":
        yield from forward(plan, layer, kind)
    elif recompute == "selective" and plan["cp"] > 1:
        yield from context(plan, kind)


def ends(plan: Plan, stage: int, train: bool) -> Iterator[tuple[str, str]]:
    """Yield what a micro-batch communicates at the ends of the pipeline."""
    if plan["tp"] == 1:
        return
    split = plan["sequence_parallel"]
    if stage == 0:
        yield "embedding_reduce_scatter" if split else "embedding_all_reduce", "forward"
        if split and train:
            yield "embedding_all_gather", "backward"
    if stage == plan["pp"] - 1:
        if split:
            yield "logits_all_gather", "forward"
        if train:
            yield from (("loss_all_reduce", "forward") for _ in ("most", "sum", "answer"))
        if split and train:
            yield from (("logits_all_gather", "backward"), ("logits_reduce_scatter", "backward"))
        elif train:
            yield "logits_all_reduce", "backward"


def enumerated(plan: Plan, recompute: str, schedule: str, kind: str) -> dict[str, tuple[int, int]]:
    """Return how often each operation happens on the rank that does it most often."""
    train = schedule != "forward_only"
    most: dict[str, tuple[int, int]] = {}
    for stage in range(int(plan["pp"])):
        events: Events = Counter()
        for _ in range(int(plan["num_micro_batches"])):
            for layer in layers_of(plan, stage):
                events.update((name, "forward") for name in forward(plan, layer, kind))
                if train:
                    names = repeated(plan, layer, kind, recompute)
                    events.update((name, "backward") for name in names)
                    back = backward(plan, layer, kind)
                    events.update((name, "backward") for name in back)
            events.update(ends(plan, stage, train))
        for name in {name for name, _ in events}:
            own = (events[name, "forward"], events[name, "backward"])
            held_so_far = most.get(name, (0, 0))
            most[name] = (max(own[0], held_so_far[0]), max(own[1], held_so_far[1]))
    return most


PLANS: list[Plan] = [
    {**GPT, "tp": 2},
    {**GPT, "tp": 2, "sequence_parallel": 1, "pp": 4, "num_micro_batches": 3},
    {**GPT, "tp": 2, "pp": 2, "virtual_pipeline_size": 2, "num_micro_batches": 4, "cp": 2},
    {**GPT, "cp": 4, "pp": 2, "num_micro_batches": 2},
    {**MOE, "tp": 2, "dp": 4, "ep": 4},
    {**MOE, "tp": 2, "dp": 4, "ep": 2, "etp": 2, "pp": 2, "num_micro_batches": 3},
    {**MOE, "dp": 4, "ep": 4, "cp": 2, "pp": 4, "num_micro_batches": 4, "shared_ffn_size": 512,
     "tp": 2},
    {**MOE, "dense_layers": 3, "dp": 4, "ep": 4, "pp": 2, "virtual_pipeline_size": 2, "tp": 4},
    {**MOE, "dense_layers": 5, "dp": 4, "ep": 4, "pp": 2, "tp": 4},
    {**MOE, "dense_layers": 0, "dp": 4, "ep": 4, "pp": 4, "tp": 4},
    {**GPT, "cp": 4, "ulysses_ranks": 2, "pp": 2, "num_micro_batches": 2},
    {**GPT, "cp": 8, "ulysses_ranks": 2, "tp": 2},
    {**GPT, "cp": 4, "ulysses_ranks": 1},
    {**MOE, "cp": 4, "dp": 4, "ep": 4, "tp": 2, "ulysses_ranks": 4},
]  # fmt: skip
DP = ("dp_", "edp_", "pp_", "copy", "tied")


@pytest.mark.thorough_cases(every=5)
@pytest.mark.parametrize("kind", LABELS["context_parallel"].values)
@pytest.mark.parametrize("schedule", ["one_f_one_b", "forward_only"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("number", range(len(PLANS)))
def test_counts(number: int, recompute: str, schedule: str, kind: str) -> None:
    usual = {"ulysses_ranks": PLANS[number].get("cp", 1)}  # All in one node
    plan = {**DEGREES, **usual, **PLANS[number]}
    step = held(plan, recompute=recompute, schedule=schedule, context_parallel=kind)
    ours = {name: count for name, count in counts(step).items() if not name.startswith(DP)}
    expected = enumerated(plan, recompute, schedule, kind)
    assert ours == {name: (float(a), float(b)) for name, (a, b) in expected.items()}


# The busiest stage, where the ends of the model count as layers.


@pytest.mark.parametrize("dense_layers", [0, 1, 2, 3])
@pytest.mark.parametrize(("layers", "pp", "embedding", "loss"), examples(__file__, "busiest"))
def test_the_busiest_stage(
    layers: int, pp: int, embedding: int, loss: int, dense_layers: int
) -> None:
    places = (layers + embedding + loss) // pp
    sizes = [places - embedding * (i == 0) - loss * (i == pp - 1) for i in range(pp)]
    starts = [sum(sizes[:i]) for i in range(pp)]
    dense = [
        sum(start <= layer < start + size for layer in range(dense_layers))
        for start, size in zip(starts, sizes, strict=True)
    ]
    plan = {
        **MOE,
        "layers": layers,
        "dense_layers": dense_layers,
        "pp": pp,
        "tp": 2,
        "cp": 2,
        "dp": 4,
        "ep": 4,
        "embedding_layer_weight": embedding,
        "head_layer_weight": loss,
    }
    step = held(plan)
    routed = [size - few for size, few in zip(sizes, dense, strict=True)]
    assert float(step["max_stage_layers"]) == max(sizes)
    assert float(step["max_stage_moe_layers"]) == max(routed)
    experts = 16 / 4 * 3 * 1024 * 512
    assert float(step["max_rank_expert_parameters"]) == max(routed) * experts
    # All of a step's exchanges, of all stages.
    energy = float(step["ep_combine_energy"]) * 2 * sum(routed) * float(step["ep_groups"]) / pp
    assert float(total_energy(step, "ep_combine")) == pytest.approx(energy)
    blocks_of = [2 * few + own for few, own in zip(dense, routed, strict=True)]
    assert float(step["max_stage_tp_blocks"]) == max(blocks_of)
    held_by = [float(held({**plan, "stage": i})["stage_parameters"]) for i in range(pp)]
    assert float(step["max_rank_dense_parameters"]) == max(held_by)


# Pipelines: every transfer of every micro-batch, from rank to rank.


def transfers(plan: Plan, train: bool) -> Iterator[tuple[int, int]]:
    """Yield sender and receiver, by stage, of all messages of one pipeline in a step."""
    stages = [
        chunk % int(plan["pp"]) for chunk in range(int(plan["pp"] * plan["virtual_pipeline_size"]))
    ]
    for _ in range(int(plan["num_micro_batches"])):
        yield from pairwise(stages)
        if train:
            yield from pairwise(reversed(stages))


@pytest.mark.parametrize("schedule", ["interleaved", "forward_only"])
@pytest.mark.parametrize("virtual_pipeline_size", [1, 2, 4])
@pytest.mark.parametrize(
    ("tp", "dp", "pp"),
    [(1, 1, 2), (1, 1, 4), (2, 1, 8), (4, 1, 4), (8, 2, 2), (4, 4, 3), (1, 2, 1)],
)
def test_transfers(tp: int, dp: int, pp: int, virtual_pipeline_size: int, schedule: str) -> None:
    plan: Plan = {
        **DEGREES,
        **GPT,
        "layers": 24,
        "tp": tp,
        "dp": dp,
        "pp": pp,
        "num_micro_batches": 4,
        "virtual_pipeline_size": virtual_pipeline_size,
    }
    step = held(plan, schedule=schedule)
    sent: Counter[int] = Counter()
    joules = 0.0
    message = float(step["pp_message_bytes"])
    stage_ranks = tp * dp
    for sender, receiver in transfers(plan, schedule != "forward_only"):
        if sender == receiver:
            continue
        sent[sender] += 1
        for rank in range(stage_ranks):
            ours, theirs = ((stage * stage_ranks + rank) // 8 for stage in (sender, receiver))
            joules += 8 * message * (1e-12 if ours == theirs else 1e-11)
    most = max(sent.values(), default=0)
    assert float(step["pp_communication_volume"]) == pytest.approx(most * message)
    assert float(step["pp_communication_energy"]) == pytest.approx(joules)


# Data parallelism: an enumeration of rounds.


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("reduce", [0, 1])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("schedule", ["one_f_one_b", "forward_only"])
def test_rounds_of_data_parallelism(
    stage: int, reduce: int, keep: int, number: int, schedule: str
) -> None:
    plan: Plan = {
        **DEGREES,
        **GPT,
        "layers": 4,
        "dp": 4,
        "num_micro_batches": 5,
        "zero_stage": stage,
        "reduce_every_micro_batch": reduce,
        "keep_gathered": keep,
        "gather_every_micro_batch": number,
    }
    events: Events = Counter()
    train = schedule != "forward_only"
    gathered = False
    for _ in range(5):
        if stage == 3 and not gathered:
            events["dp_all_gather", "forward"] += 4
            gathered = True
        if train and stage == 3 and number and not keep:
            events["dp_all_gather", "backward"] += 4
        gathered = gathered and not number
        if train and stage >= 2 and reduce:
            events["dp_reduce_scatter", "backward"] += 4 if stage == 3 else 1
    if train and stage == 0:
        events["dp_all_reduce", "backward"] += 1
    if train and (stage == 1 or (stage > 1 and not reduce)):
        events["dp_reduce_scatter", "backward"] += 4 if stage == 3 else 1
    if train and stage in (1, 2):
        events["dp_all_gather", "forward"] += 1
    expected = {
        name: (float(events[name, "forward"]), float(events[name, "backward"]))
        for name, _ in events
    }
    actual_counts = counts(held(plan, schedule=schedule))
    assert actual_counts == expected
