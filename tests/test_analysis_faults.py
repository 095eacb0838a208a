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


# What isn't given.


def test_a_config_without_a_key(refused: Refused, tmp_path: Path) -> None:
    shapes = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096}
    shapes |= {"num_attention_heads": 32, "intermediate_size": 14336}
    (tmp_path / "config.json").write_text(json.dumps(shapes), encoding="utf-8")
    (line,) = refused("analysis --model ./config.json --tp 2 --seq-length 4096")
    assert "config.json: vocab_size: is missing; every llama model has one" in line


# What isn't there.


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
