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
from tests.launch import read_launch
from tests.tables import examples

DATA = Path(__file__).parents[1] / "data" / "launch"
TITAN = examples(__file__, "titan")
TITANS: list[tuple[str, int, str, str, dict[str, Any]]] = examples(__file__, "titans")


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


@pytest.mark.parametrize(
    ("policy", "context", "repeated"),
    [
        ("custom", "device", 0),
        ("custom", "offload", 0),
        ("custom", "remat", None),
        ("full", "device", None),
    ],
)
def test_maxtext_may_keep_what_attention_gave(
    policy: str, context: str, repeated: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "job.yml"
    text = (DATA / "maxtext-yml" / "llama3_70b.yml").read_text().replace("custom", policy)
    path.write_text(f'{text}context: "{context}"\n')
    given = read_launch(str(path)).given
    assert given["recompute"] == "full"
    assert given.get("recompute_core_attn") == repeated


MEGATRON = examples(__file__, "megatron")


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
