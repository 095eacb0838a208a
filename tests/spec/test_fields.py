"""Tables that declare what files may hold, and what is said of a plan: all of it has a name."""

from __future__ import annotations

import pytest

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.launch.terms import keys_of, says_of
from sweeps.spec.fields import Entry, declared_figures, declared_keys, declared_list
from sweeps.spec.files import read_rows, shipped

FIELDS = shipped("fields")


@pytest.mark.parametrize("row", read_rows(FIELDS / "figures.csv"), ids=lambda row: row["key"])
def test_a_figure_is_a_quantity_or_says_its_unit_and_domain(row: dict[str, str]) -> None:
    entry = declared_figures(row["file"])[row["table"]][row["key"]]
    assert entry.quantity in VOCABULARY or (row["units"] and row["domain"])
    assert bool(row["units"]) == bool(row["domain"])
    assert entry.required == bool(row["needed"])


def test_domains_are_read_as_they_are_written() -> None:
    machine, framework = declared_figures("machine"), declared_figures("framework")
    assert machine["scale_up"]["links"] == Entry("intra_links", "1", 1.0, integer=True)
    share = Entry("memory_efficiency", "1", above=True, maximum=1.0)
    assert machine["training"]["memory_efficiency"] == share
    stage = Entry("zero_stage", "1", integer=True, maximum=3.0)
    assert framework["plan"]["zero_stage"] == stage
    bandwidth = Entry("intra_bandwidth", "byte s-1", above=True, required=True)
    assert machine["scale_up"]["bandwidth"] == bandwidth


def test_lists_are_of_quantities_and_labels() -> None:
    for row in read_rows(FIELDS / "lists.csv"):
        known = row["name"] in VOCABULARY or row["name"] in LABELS
        assert known or row["list"] in ("tiles", "userbuffers"), row
        assert declared_list(row["list"]).count(row["name"]) == 1


def test_keys_are_once_in_their_table() -> None:
    rows = read_rows(FIELDS / "keys.csv")
    assert len({(row["file"], row["table"], row["key"]) for row in rows}) == len(rows)
    assert all(declared_keys("sweep")[""].values())


def test_shapes_need_shapes() -> None:
    for row in read_rows(FIELDS / "shapes.csv"):
        assert {row["name"], row["needs"], row["within"]} - {""} <= VOCABULARY.keys()


def test_arguments_of_a_plan_are_those_that_are_read() -> None:
    for row in says_of("megatron"):
        assert row["quantity"] in VOCABULARY
        assert row["argument"].split()[0] in keys_of("megatron")
