"""What is legal: the table cell by cell, the grids of 288 and 144, names of cases."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from sweeps.tuner.userbuffers import (
    KEYS,
    LAYERS,
    METHODS,
    OPERATORS,
    PHASES,
    LayerOverlap,
    base_cases,
    collective_of,
    default_method,
    default_values,
    flag_group,
    grid_cases,
    legality,
    parse_case,
    sm_counts,
    tp_sizes,
)

COUNTS = (1, 2, 4, 8, 16)
FINE, ELSE, RUN, INIT = "legal", "runs_as_other", "run_error", "init_error"
# Columns: ring_exchange, pipeline, bulk, external.
TABLE = {
    ("qkv", "fprop"): (FINE, INIT, RUN, RUN),
    ("fc1", "fprop"): (FINE, INIT, RUN, RUN),
    ("qkv", "dgrad"): (FINE, FINE, FINE, INIT),
    ("fc1", "dgrad"): (FINE, FINE, FINE, INIT),
    ("qkv", "wgrad"): (RUN, ELSE, FINE, INIT),
    ("fc1", "wgrad"): (RUN, ELSE, FINE, INIT),
    ("proj", "fprop"): (FINE, FINE, ELSE, ELSE),
    ("fc2", "fprop"): (FINE, FINE, ELSE, ELSE),
    ("proj", "dgrad"): (FINE, INIT, RUN, RUN),
    ("fc2", "dgrad"): (FINE, INIT, RUN, RUN),
    ("proj", "wgrad"): (INIT, INIT, INIT, FINE),
    ("fc2", "wgrad"): (INIT, INIT, INIT, FINE),
}


def grid(**more: bool) -> tuple[LayerOverlap, ...]:
    return grid_cases((2, 4, 8), OPERATORS, COUNTS, **more)


@pytest.mark.parametrize(("layer", "levels"), TABLE.items())
def test_the_table(layer: tuple[str, str], levels: tuple[str, ...]) -> None:
    legalities = [legality(*layer, method) for method in METHODS]
    assert tuple(one.level for one in legalities) == levels
    assert all(one.reason for one in legalities if one.level != "legal")


def test_the_nominal_grid_has_288_cases() -> None:
    cases = grid(nominal=True)
    assert len(cases) == len(set(cases)) == 288
    assert len({case.config_id for case in cases}) == 288
    counts = Counter((case.tp_size, case.operator) for case in cases)
    assert set(counts.values()) == {24}
    other_cases = [case for case in cases if not case.is_baseline]
    assert len(other_cases) == 252
    levels = Counter(case.legality.level for case in other_cases)
    assert 252 - levels["init_error"] == 210
    assert levels["legal"] + levels["runs_as_other"] == 138
    assert levels == {"legal": 108, "runs_as_other": 30, "run_error": 72, "init_error": 42}


def test_the_legal_grid_has_144_cases() -> None:
    cases = grid()
    assert len(cases) == 144
    assert sum(case.is_baseline for case in cases) == 36
    assert set(cases) <= set(grid(nominal=True))
    assert {case.legality.level for case in cases} == {"legal"}
    # A ring's reduce_scatter knows no aggregate.
    twins = [case for case in cases if case.same_as != case]
    assert len(twins) == 12
    assert {case.layer for case in twins} == {"qkv_dgrad", "fc1_dgrad", "proj_fprop", "fc2_fprop"}


def test_one_rank_is_outside_of_the_grid() -> None:
    assert 1 not in {case.tp_size for case in grid(nominal=True)}
    assert len(base_cases(OPERATORS)) == 12


def test_no_case_configures_what_can_never_overlap() -> None:
    for case in (*grid(), *grid(pipeline=True)):
        assert case.is_baseline or case.layer not in {"proj_wgrad", "fc2_wgrad"}


def test_pipeline_comes_on_top() -> None:
    more = set(grid(pipeline=True)) - set(grid())
    assert {case.method for case in more} == {"pipeline"}
    layers = {"proj_fprop", "fc2_fprop", "qkv_dgrad", "fc1_dgrad"}
    assert {case.layer for case in more} == layers
    assert len(more) == 3 * 4 * 5


@pytest.mark.parametrize(
    "name", ["tp2_fc1_fprop_ring_agg0", "tp2_fc1_dgrad_bulk_sm2", "tp8_qkv_wgrad_bulk_sm16"]
)
def test_names_of_the_documentation(name: str) -> None:
    (case,) = parse_case(name)
    assert case.config_id == name


def test_every_name_is_read_back() -> None:
    for case in (*grid(nominal=True, pipeline=True), *base_cases(OPERATORS)):
        assert parse_case(case.config_id) == (case,)


def test_a_baseline_without_phase_is_all_three() -> None:
    assert [case.phase for case in parse_case("tp4_fc2_baseline")] == list(PHASES)
    assert {case.run_id for case in parse_case("tp4_fc2_baseline")} == {"tp4_fc2_baseline"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "tp2",
        "tp2_fc1",
        "tp2_fc1_ring_agg0",
        "tp2_fc1_fprop_ring_agg2",
        "tp2_fc3_fprop_baseline",
        "x_tp2_fc1_fprop_baseline",
        "tp2_fc1_fprop_bulk_sm",
        "tp2_fc1_fprop_baseline.bak",
    ],
)
def test_other_names_are_no_cases(name: str) -> None:
    assert parse_case(name) == ()


def test_counts_are_powers_of_two_and_the_ends() -> None:
    assert sm_counts(1, 16) == COUNTS
    assert sm_counts(3, 24) == (3, 4, 8, 16, 24)
    assert sm_counts(5, 5) == (5,)
    assert tp_sizes(8) == (2, 4, 8)
    assert tp_sizes(4) == (2, 4)


def test_defaults_as_transformer_engine_has_them() -> None:
    rings = {"qkv_fprop", "fc1_fprop", "proj_dgrad", "fc2_dgrad"}
    scatters = {"proj_fprop", "fc2_fprop", "qkv_wgrad", "fc1_wgrad"}
    for layer in LAYERS:
        values = default_values(layer, 4)
        assert list(values) == list(KEYS)
        ring = layer in rings
        assert (values["num_sm"], values["cga_size"]) == ((1, 1) if ring else (16, 2))
        assert values["set_sm_margin"] is not ring
        assert values["num_splits"] == 4
        assert values["is_reduce_scatter"] == (layer in scatters)
    assert default_method("proj_wgrad") == default_method("fc2_wgrad") == "external"


def test_a_scattered_input_gradient() -> None:
    for operator, method in product(("qkv", "fc1"), ("ring_exchange", "pipeline")):
        assert collective_of(operator, "dgrad", method) == "reduce_scatter"
        assert collective_of(operator, "dgrad", "bulk") == "all_gather"


def test_switches() -> None:
    names: dict[str, set[str]] = {}
    for operator, phase in product(OPERATORS, PHASES):
        names.setdefault(flag_group(operator, phase), set()).add(f"{operator}_{phase}")
    assert names == {
        "ag": {"qkv_fprop", "fc1_fprop", "proj_dgrad", "fc2_dgrad"},
        "rs": {"proj_fprop", "fc2_fprop"},
        "bulk_dgrad": {"qkv_dgrad", "fc1_dgrad"},
        "bulk_wgrad": {"qkv_wgrad", "fc1_wgrad"},
        "": {"proj_wgrad", "fc2_wgrad"},
    }
