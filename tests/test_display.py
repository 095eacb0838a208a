"""What is shown of quantities follows from one row each."""

from __future__ import annotations

from overhead.everything import load
from overhead.formula import REGISTRY
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps import display
from sweeps.cli.numbers import shown
from sweeps.engine.validity import of_a_run
from tests.each import each

load()
# What tables show that is no quantity.
OTHERS = {"chosen_algorithm", "best_split", "median_error", *LABELS}
SCREENS = {"usual", "report", "table", "plan", "best", "bar", "title", "record"}


@each("name", display.ROWS)
def test_a_row_says_what_the_vocabulary_does_not(name: str) -> None:
    one = display.ROWS[name]
    assert name in VOCABULARY or name in OTHERS
    assert one.screens <= SCREENS
    if one.words and name in VOCABULARY:
        assert one.words != VOCABULARY[name].meaning
    assert one.title not in (name, name.replace("_communication_time", " time"))


def test_a_quantity_without_a_row_is_shown_by_the_vocabulary() -> None:
    assert "weight_memory" not in display.ROWS
    assert display.words("weight_memory") == VOCABULARY["weight_memory"].meaning
    assert display.words("exposed_sharded_time") == "exposed ZeRO-3 communication"
    assert display.title("tp_communication_time") == "tp time"
    assert not display.percent("weight_memory")
    assert shown("weight_memory", 1e9) == "1 GB"


def test_records_begin_with_labels_and_then_numbers() -> None:
    names = display.of_records()
    assert set(names) == {row.name for row in display.ROWS.values() if "record" in row.screens}
    labels = [name in LABELS for name in names]
    assert labels == sorted(labels, reverse=True)


def test_a_share_is_shown_in_percent() -> None:
    assert shown("mfu", 0.415) == "42 %"


def test_what_follows_from_a_steps_time_is_of_a_run() -> None:
    names = of_a_run(len(REGISTRY), len(REGISTRY.calls))
    assert {"step_time", "mfu", "cost", "training_time", "step_energy"} <= names
    assert not {"peak_memory", "communication_upper_bound", "bubble_fraction"} & names


def test_the_groups_keep_the_order_of_reports() -> None:
    rates = display.rows("rates", screen="report")
    assert rates.index("tokens_per_second") + 1 == rates.index("tokens_per_second_per_gpu")
    assert display.rows("cost", "step", screen="plan") == ("cost_per_trillion_tokens", "step_time")
