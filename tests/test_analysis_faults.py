"""Bad input to ``sweeps analysis``: one clear line a fault, exit 2."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from overhead import Config, analyze_config
from tests.refusals import Refused, one
from tests.tables import examples

LLAMA = "analysis --model llama3-8b --seq-length 8192"
BARE = "analysis --params 7e9"
SIZES = "--seq-length 1024 --hidden-size 4096"


# Plans that can't be.


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(
    ("line", "parts"),
    examples(__file__, "plans_that_cannot_be", BARE=BARE, LLAMA=LLAMA, SIZES=SIZES),
)
def test_plans_that_cannot_be(refused: Refused, line: str, parts: tuple[str, ...]) -> None:
    one(refused(line), *parts)


def test_all_faults_are_told_at_once(refused: Refused) -> None:
    plan = "--dp 2 --tp 3 --cp 5 --cp-kind ring --sp 0"
    lines = refused(f"{LLAMA} {plan} --num-gpus 8 --global-batch 3")
    found = [line.split(": ")[0] for line in lines]
    assert found == [
        "--tp 3",
        "--tp 3",
        "--tp 3 (ffn size 14336)",
        "--global-batch 3",
        "--cp 5, --seq-length 8192",
    ]


# What isn't given.


@pytest.mark.thorough_cases(every=2)
@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("--dp 4 --tp 2", "tensor parallelism (tp 2)"),
        ("--dp 2 --cp 4", "context parallelism (cp 4)"),
        ("--dp 4 --pp 2", "pipeline parallelism (pp 2)"),
        ("--dp 4 --tp 1,2", "tensor parallelism"),
    ],
)
def test_sizes_of_what_is_sent_are_needed(refused: Refused, plan: str, words: str) -> None:
    length, hidden = refused(f"analysis --topology ring --params 70e9 {plan}")
    one([length], f"{words} needs the sequence length in tokens; give --seq-len")
    one([hidden], f"{words} needs the hidden size; give --hidden-size, or --model with a model")
    one(
        refused(f"analysis --topology ring --params 70e9 --seq-length 1024 {plan}"),
        f"{words} needs the hidden size",
    )


def test_a_model_is_needed_and_one_alone(refused: Refused) -> None:
    for line in ("analysis", "analysis --topology ring", "analysis --num-gpus 8 --dp 8"):
        one(refused(line), "an analysis needs a model; give --model NAME", "--parameters 70e9")
    some = "analysis --num-layers 2 --hidden-size 512 --heads 8 --vocabulary-size 100 --gated on"
    one(refused(some), "an analysis needs a model", "or the other shapes: --tied-embeddings")
    one(refused("analysis --model llama3-8b --params 8e9"), "--params 8e9", "with --model")
    both = f"{some} --tied-embeddings on --ffn-size 64 --params 7e9"
    one(refused(both), "--params 7e9", "given with shapes, from which it follows")


def test_a_config_without_a_key(refused: Refused, tmp_path: Path) -> None:
    shapes = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096}
    shapes |= {"num_attention_heads": 32, "intermediate_size": 14336}
    (tmp_path / "config.json").write_text(json.dumps(shapes), encoding="utf-8")
    (line,) = refused("analysis --model ./config.json --tp 2 --seq-length 4096")
    assert "config.json: vocab_size: is missing; every llama model has one" in line


# What isn't there.


@pytest.mark.parametrize(("line", "parts"), examples(__file__, "values_not_there", BARE=BARE))
def test_values_that_are_not_there(refused: Refused, line: str, parts: tuple[str, ...]) -> None:
    one(refused(line), *parts)


@pytest.mark.thorough
def test_too_many_cells_to_print(refused: Refused) -> None:
    line = f"{BARE} --dp 1:4096:x2 --micro-batch 1:2000:+1 --zero-stage 0:3:+1 --global-batch"
    one(refused(f"{line} 1:100:+1"), "axes = '", "too many to print", "--output FILE.nc")


# The same from Python.


@pytest.mark.parametrize(("given", "words"), examples(__file__, "configurations_that_cannot_be"))
def test_configurations_that_cannot_be(given: dict[str, Any], words: str) -> None:
    sizes: dict[str, Any] = {"seq_length": 1024, "hidden_size": 4096, "num_parameters": 7e9}
    with pytest.raises(ValueError, match=re.escape(words)):
        analyze_config(Config(**{**sizes, **given}))


def test_a_configuration_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="tensor parallelism needs sequence_length, hidden_size"):
        analyze_config(Config(tp_degree=2, num_parameters=7e9))
    with pytest.raises(ValueError, match="memory needs num_parameters, or hidden_size, heads"):
        analyze_config(Config(dp_degree=2))
