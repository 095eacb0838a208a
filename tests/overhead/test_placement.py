"""Groups of a parallel plan against an enumeration of ranks, and which plans there are."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead import REGISTRY
from overhead.collectives.algorithm import Requirement
from overhead.plan import GROUPS, conditions, requirements
from overhead.special import greatest_common_divisor
from tests.tables import examples

Plan = dict[str, int]
DENSE = ("tp", "cp", "dp", "pp")
EXPERTS = ("etp", "ep", "edp", "pp")
more = settings(max_examples=settings().max_examples * 4)


def value(name: str, known: Plan, group: str = "") -> float:
    if name in known:
        return float(known[name])
    formula = REGISTRY.returning(name, {"group": group})
    assert formula is not None, (name, group)
    inputs = (np.asarray(value(each, known, group)) for each in formula.inputs)
    return float(formula.kernel(*inputs))


def by_last(plan: Plan, order: tuple[str, ...], along: tuple[str, ...]) -> list[list[int]]:
    """Return the groups along some axes of an order: ranks that differ in those alone."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(math.prod(plan[name] for name in order)):
        rest, position = rank, []
        for name in order:
            rest, index = divmod(rest, plan[name])
            if name not in along:
                position.append(index)
        groups.setdefault(tuple(position), []).append(rank)
    return list(groups.values())


def enumerated(plan: Plan, group: str) -> list[list[int]]:
    if group in ("etp", "ep", "edp"):
        return by_last(plan, EXPERTS, (group,))
    if group == "zero":
        return by_last(plan, DENSE, ("cp", "dp"))
    if group.startswith("hsdp"):
        replicas = plan["dp"] * plan["cp"] // plan["hsdp_shard_size"]
        cut = {**plan, "hsdp_replica": replicas}
        return by_last(cut, ("tp", "hsdp_shard_size", "hsdp_replica", "pp"), (group,))
    return by_last(plan, DENSE, (group,))


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return degrees that make groups, on nodes that are full, or on one."""
    tp, cp, dp, pp = (draw(st.sampled_from((1, 2, 3, 4, 5, 6, 8))) for _ in range(4))
    ranks = tp * cp * dp
    etp = draw(st.sampled_from(divisors(ranks)))
    ep = draw(st.sampled_from(divisors(ranks // etp)))
    world = ranks * pp
    nodes = [*divisors(world), *(world * times for times in (2, 3))]
    return {
        "tp": tp,
        "cp": cp,
        "dp": dp,
        "pp": pp,
        "etp": etp,
        "ep": ep,
        "edp": ranks // etp // ep,
        "hsdp_shard_size": draw(st.sampled_from(divisors(dp * cp))),
        "gpus_per_node": draw(st.sampled_from(nodes)),
    }


@pytest.mark.thorough
@more
@given(plans())
def test_groups_lie_as_enumerated(plan: Plan) -> None:
    node = plan["gpus_per_node"]
    for group in GROUPS:
        groups = enumerated(plan, group)
        size, stride = (int(value(name, plan, group)) for name in ("group_size", "group_stride"))
        for ranks in groups:
            assert ranks == list(range(ranks[0], ranks[0] + size * stride, stride))

        shares = [
            [sum(rank // node == n for rank in ranks) for n in {r // node for r in ranks}]
            for ranks in groups
        ]
        spans = [len(share) for share in shares]
        uneven = value("uneven_placement", plan, group)
        nodes = value("group_nodes", plan, group)
        members = value("members_in_node", plan, group)
        assert nodes == max(spans)
        if uneven:
            assert members == 1.0
        else:
            assert {count for share in shares for count in share} == {members}
            assert set(spans) == {nodes}
            assert members * nodes == size


@pytest.mark.thorough
@more
@given(plans())
def test_uneven_is_said_only_where_groups_differ(plan: Plan) -> None:
    """Groups that lie alike on all nodes, each in equal shares, are never called uneven."""
    node = plan["gpus_per_node"]
    for group in GROUPS:
        shares = {
            tuple(sorted(sum(r // node == n for r in ranks) for n in {r // node for r in ranks}))
            for ranks in enumerated(plan, group)
        }
        alike = len(shares) == 1 and len(set(next(iter(shares)))) == 1
        assert bool(value("uneven_placement", plan, group)) == (not alike), (group, shares)


@more
@given(plans())
def test_boundaries_of_a_pipeline(plan: Plan) -> None:
    node, stride = plan["gpus_per_node"], plan["tp"] * plan["cp"] * plan["dp"]
    within = [
        all(rank // node == (rank + stride) // node for rank in range(i * stride, (i + 1) * stride))
        for i in range(plan["pp"] - 1)
    ]
    between = value("node_boundaries", plan)
    if stride >= node or node % stride == 0:
        assert between == within.count(False)
    else:
        assert within.count(False) <= between <= plan["pp"] - 1


def test_groups_of_a_known_plan() -> None:
    """Llama-3 405B's order on 16,384 GPUs: TP in the node, data-parallel ranks far apart."""
    plan = {"tp": 8, "cp": 1, "dp": 128, "pp": 16, "etp": 1, "ep": 1, "gpus_per_node": 8}
    assert [value("group_size", plan, g) for g in ("tp", "zero", "pp")] == [8.0, 128.0, 16.0]
    assert [value("group_stride", plan, g) for g in ("tp", "zero", "pp")] == [1.0, 8.0, 1024.0]
    assert [value("members_in_node", plan, g) for g in ("tp", "zero", "pp")] == [8.0, 1.0, 1.0]
    assert [value("group_nodes", plan, g) for g in ("tp", "zero", "pp")] == [1.0, 128.0, 16.0]


def test_three_ranks_on_nodes_of_eight_straddle() -> None:
    plan = {"tp": 3, "cp": 1, "dp": 8, "pp": 1, "gpus_per_node": 8}
    assert value("uneven_placement", plan, "tp") == 1.0
    assert value("group_nodes", plan, "tp") == 2.0


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_greatest_common_divisor(one: int, other: int) -> None:
    array = greatest_common_divisor(np.asarray(float(one)), np.asarray([float(other)]))
    assert array.shape == (1,)
    assert array[0] == math.gcd(one, other)


# Plans.

GOOD: Plan = examples(__file__, "good")
ANY = {"schedule": "interleaved", "context_parallel": "ring", "mask": "causal"}


def faults(plan: Plan, labels: dict[str, str]) -> set[str]:
    arrays = {name: np.asarray(float(number)) for name, number in plan.items()}
    return {
        requirement.fault
        for requirement in requirements(labels)
        if not requirement.holds(**{name: arrays[name] for name in requirement.inputs})
    }


@pytest.mark.parametrize(("change", "labels", "expected"), examples(__file__, "plans"))
def test_plans(change: Plan, labels: dict[str, str], expected: list[str]) -> None:
    assert sorted(faults({**GOOD, **change}, {**ANY, **labels})) == expected


RULES = tuple(condition.rule for condition in conditions())


@pytest.mark.parametrize("requirement", RULES, ids=lambda case: case.fault)
def test_a_requirement_is_vectorised(requirement: Requirement) -> None:
    shapes = ((3, 1), (1, 2))
    offloaded = {"parameter_offload": 1.0, "optimizer_offload": 1.0, **GOOD}
    columns = {
        name: np.broadcast_to(np.asarray(float(offloaded[name])), shapes[n % 2])
        for n, name in enumerate(requirement.inputs)
    }
    holds: Callable[..., np.ndarray] = requirement.holds
    mask = np.asarray(holds(**columns))
    assert mask.dtype == bool
    assert mask.shape == np.broadcast_shapes(*(column.shape for column in columns.values()))
    assert requirement.text
    assert not requirement.text.endswith(".")
