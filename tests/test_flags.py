"""Options follow from the vocabulary, the labels and the registry."""

from __future__ import annotations

import json

import pytest

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.cli import flags
from sweeps.cli.option_table import read_table
from tests.cli_runner import Runner
from tests.each import each

PLAN = "--model llama3-8b --num-gpus 8 --seq-length 4096 --global-batch 8"


@each("name", [*flags.OF_COLLECTIVES, *flags.OF_TRAINING])
def test_an_option_says_what_it_gives(name: str) -> None:
    command = flags.COLLECTIVE if name in flags.OF_COLLECTIVES else flags.TRAINING
    words = flags.words_of(name, command)
    assert words.rstrip("]").rstrip()
    if name in VOCABULARY and not flags.USUAL[name].words:
        meaning = VOCABULARY[name].meaning.removesuffix(" (0 or 1)")
        assert words.lower().startswith(meaning.lower())


def test_a_usual_option_stands_once() -> None:
    rows = read_table("quantities.csv")
    assert len(rows) == len(flags.USUAL)
    assert {row["part"] for row in rows} == {*flags.SECTIONS, ""}
    assert {*flags.OF_COLLECTIVES, *flags.OF_TRAINING} <= {*VOCABULARY, *LABELS}


def test_any_input_is_an_option_by_its_name(cli: Runner) -> None:
    shown = cli(f"analysis {PLAN} --dp 8 --zero-stage 3 --window 1024,2048 --json").out
    first, second = json.loads(shown)
    assert (first["sliding_window"], second["sliding_window"]) == (1024.0, 2048.0)
    assert first["step_time_s"] < second["step_time_s"]


@pytest.mark.parametrize("on", ["on", "yes", "1"])
def test_a_switch_is_on_or_off(cli: Runner, on: str) -> None:
    plan = f"{PLAN} --tp 2 --pp 4 --dp 1 --embedding-as-layer {on} --loss-as-layer off,{on}"
    uneven, even = json.loads(cli(f"analysis {plan} --json").out)
    assert (uneven["head_layer_weight"], even["head_layer_weight"]) == (0.0, 1.0)


def test_the_help_of_a_command_names_units_values_and_defaults(cli: Runner) -> None:
    shown = " ".join(cli("analysis --help-all").out.split())
    for words in (
        "--micro-batch-size VALUES Sequences per micro-batch. [default: 1]",
        "gpipe, one_f_one_b, interleaved,",
        "[B/s]. [default: the machine's (dgx-h100: 50 GB/s)]",
        "is an option by its name",
    ):
        assert words in shown
