"""What is recomputed, in the words of every framework.

torchtitan wraps every Nth of a rank's layers (torchtitan/distributed/activation_checkpoint.py at
pytorch/torchtitan @6404b93242): of n layers n // N are recomputed whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.errors import InputError
from sweeps.launch.arguments import Override
from sweeps.launch.read import read_launch

DATA = Path(__file__).parents[1] / "data" / "launch"
TITAN = """
[model]
name = "llama3"
flavor = "{flavor}"
[training]
local_batch_size = 8
[parallelism]
pipeline_parallel_degree = {pp}
pipeline_parallel_schedule = "{schedule}"
[activation_checkpoint]
{lines}
"""
TITANS: list[tuple[str, int, str, str, dict[str, Any]]] = [
    # Of 32 layers 16, as every second one is.
    ("8B", 1, "1F1B", 'mode = "selective"\nselective_ac_option = "2"',
     {"recompute": "block", "recompute_layers": 16}),
    ("8B", 1, "1F1B", 'mode = "selective"', {"recompute": "block", "recompute_layers": 16}),
    # 32 // 3
    ("8B", 1, "1F1B", 'mode = "selective"\nselective_ac_option = 3',
     {"recompute": "block", "recompute_layers": 10}),
    # A stage of 80 / 4 layers has 20 // 8; two chunks of 10 layers have 10 // 4 each.
    ("70B", 4, "1F1B", 'mode = "selective"\nselective_ac_option = "8"',
     {"recompute": "block", "recompute_layers": 2}),
    ("70B", 4, "Interleaved1F1B", 'mode = "selective"\nselective_ac_option = "4"',
     {"recompute": "block", "recompute_layers": 2}),
    ("70B", 4, "ZBVZeroBubble", 'mode = "selective"\nselective_ac_option = "4"',
     {"recompute": "block", "recompute_layers": 2}),
    ("8B", 1, "1F1B", 'mode = "selective"\nselective_ac_option = "64"', {"recompute": "none"}),
    ("8B", 1, "1F1B", 'mode = "selective"\nselective_ac_option = "1"', {"recompute": "full"}),
    ("8B", 1, "1F1B", 'mode = "selective"\nselective_ac_option = "op"', {"recompute": "per_op"}),
    ("8B", 1, "1F1B", 'mode = "none"', {"recompute": "none"}),
    ("8B", 1, "1F1B", 'mode = "full"\nearly_stop = true', {"recompute": "full_early_stop"}),
]  # fmt: skip


@pytest.mark.parametrize(("flavor", "pp", "schedule", "lines", "expected"), TITANS)
def test_torchtitan(
    flavor: str, pp: int, schedule: str, lines: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(TITAN.format(flavor=flavor, pp=pp, schedule=schedule, lines=lines))
    reading = read_launch(str(path), {"world_size": Override("--gpus", "64")})
    assert {name: reading.given.get(name) for name in expected} == expected
    if "recompute_layers" in expected:
        assert "layer recomputed" in reading.origins["recompute"]


def test_a_memory_budget_is_refused_with_a_way_on(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    lines = 'mode = "memory_budget"\nmemory_budget = 0.5'
    path.write_text(TITAN.format(flavor="8B", pp=1, schedule="1F1B", lines=lines))
    given = {"world_size": Override("--gpus", "64")}
    with pytest.raises(InputError) as error:
        read_launch(str(path), given)
    assert error.value.faults == (
        "job.toml, line 11: activation_checkpoint.mode memory_budget: isn't modelled; none, full, "
        "selective are; give --recompute per_op, say",
    )
    given["recompute"] = Override("--recompute", "per_op")
    assert read_launch(str(path), given).given["tp"] == 1


MEGATRON = [
    ("--recompute-activations", {"recompute": "selective", "recompute_core_attn": 1}),
    ("--recompute-granularity full --recompute-method uniform", {"recompute": "full"}),
    (
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
        {"recompute": "uniform", "recompute_layers": 4},
    ),
    (
        "--recompute-granularity full --recompute-method block --recompute-num-layers 2",
        {"recompute": "block", "recompute_layers": 2},
    ),
    (
        "--recompute-granularity selective --recompute-modules layernorm moe_act",
        {"recompute": "selective", "recompute_layernorm": 1, "recompute_core_attn": 0},
    ),
]


@pytest.mark.parametrize(("words", "expected"), MEGATRON)
def test_megatron(words: str, expected: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    text = (DATA / "megatron-llama-70b" / "train.sh").read_text()
    path.write_text(text.replace("--bf16", f"--bf16 {words}"))
    given = read_launch(str(path)).given
    assert {name: given.get(name) for name in expected} == expected


@pytest.mark.parametrize(("kind", "places"), [("none", 0), ("rope", 0), ("learned_absolute", 8192)])
def test_none_is_a_kind_of_position_embedding(kind: str, places: int, tmp_path: Path) -> None:
    """A setting whose value is the word none isn't silent."""
    path = tmp_path / "train.sh"
    text = (DATA / "megatron-llama-70b" / "train.sh").read_text()
    path.write_text(
        text.replace("--position-embedding-type rope", f"--position-embedding-type {kind}")
    )
    assert read_launch(str(path)).given["learned_positions"] == places
