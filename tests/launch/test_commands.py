"""Commands as people write them: redirections, subshells, variables, torchtitan's and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.errors import InputError
from sweeps.launch.arguments import Override
from sweeps.launch.shell import read_script
from tests.launch import read_launch
from tests.tables import examples

# What bash hands to the program of each line, as `bash -c` with `printf '%s|'` prints it.
WORDS = examples(__file__, "words")


@pytest.mark.parametrize(("text", "expected"), WORDS)
def test_words_of_a_command(text: str, expected: str) -> None:
    commands = [[str(word) for word in command] for command in read_script(text).commands]
    assert [" ".join(command[1:]) for command in commands if command[0] == "torchrun"] == [expected]


MEGATRON = """#!/bin/bash
OPTS="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096"
if [ "$FP8" = "1" ]; then
  OPTS="$OPTS --fp8-format hybrid"
fi
ARGS=(--bf16 --vocab-size 32000)
if [ -n "$X" ]; then ARGS=("${ARGS[@]}" --swiglu); fi
for k in 1 2; do EXTRA="--seed $k"; done
torchrun --nproc_per_node 8 pretrain_gpt.py $OPTS "${ARGS[@]}" --max-position-embeddings 4096 \\
  --micro-batch-size 1 --global-batch-size 128 $EXTRA --tensor-model-parallel-size 4
"""


def test_what_may_be_added(tmp_path: Path) -> None:
    """What a condition adds is skipped and named; so is a word of which nothing is known."""
    script = tmp_path / "train.sh"
    script.write_text(MEGATRON)
    reading = read_launch(str(script))
    assert (reading.given["global_batch_size"], reading.given["tp"]) == (128, 4)
    assert reading.given["precision"] == "bf16"
    assert "train.sh, line 10: $EXTRA is skipped: 'for' decides on it in line 8" in reading.notes
    skipped = "added only if a condition holds, so skipped: --fp8-format, --swiglu"
    assert any(skipped in note for note in reading.notes)
    script.write_text(MEGATRON.replace("parallel-size 4", "parallel-size $TP"))
    with pytest.raises(InputError, match=r"parallel-size \$TP: TP has no value in the script"):
        read_launch(str(script))


NEMO = examples(__file__, "nemo")


def test_values_that_refer_to_others(tmp_path: Path) -> None:
    path = tmp_path / "nemo.yaml"
    path.write_text(NEMO)
    given = read_launch(str(path)).given
    expected = {"ffn_size": 16384, "kv_heads": 32, "sequence_length": 4096, "world_size": 32}
    assert {name: given[name] for name in expected} == expected
    path.write_text(NEMO.replace("num_layers: 32", "num_layers: ${model.num_layers}"))
    with pytest.raises(InputError, match=r"num_layers \$\{model.num_layers\}: refers to a value"):
        read_launch(str(path))


def test_a_folder_is_the_model_in_it(tmp_path: Path) -> None:
    config = Path(__file__).parents[1] / "data" / "models" / "qwen3-8b.json"
    (tmp_path / "config.json").write_bytes(config.read_bytes())
    assert read_launch(str(tmp_path)).given["model"] == str(tmp_path / "config.json")


def test_what_evaluates_itself_ends() -> None:
    assert read_script("A='eval $A'\neval $A").commands == []


TOML = """
training = {local_batch_size = 2, seq_len = 8192}
model.name = "llama3"
model.flavor = "8B"
[activation_checkpoint]
mode = 'full'
"""
SHARDED = f"{TOML}[parallelism]\ndata_parallel_shard_degree = 16\n"
TITAN: list[tuple[str, dict[str, Any]]] = examples(__file__, "titan")


@pytest.mark.parametrize(("line", "expected"), TITAN)
def test_torchtitan_on_a_command_line(line: str, expected: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(TOML)
    script = tmp_path / "run.sh"
    script.write_text(line)
    reading = read_launch(str(script))
    assert {name: reading.given.get(name) for name in expected} == expected
    assert not reading.asks


def test_torchtitan_s_gpus_have_to_be_those_of_its_degrees(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(SHARDED)
    script = tmp_path / "run.sh"
    script.write_text("torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file job.toml")
    with pytest.raises(InputError, match=r"8 GPUs aren't tp 1 \* pp 1 \* cp 1 \* 1 replicas \* 16"):
        read_launch(str(script))
    script.write_text("torchrun -m torchtitan.train --job.config_file no.toml")
    with pytest.raises(InputError, match=r"no\.toml isn't there, nor beside the file"):
        read_launch(str(script))


FACTORY = examples(__file__, "factory")


@pytest.mark.parametrize(("line", "world"), examples(__file__, "arguments_in_a_file"))
def test_arguments_in_a_file_that_a_command_names(line: str, world: int, tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(FACTORY)
    script = tmp_path / "run.sh"
    script.write_text(line)
    reading = read_launch(str(script))
    assert (reading.given["world_size"], reading.given["sequence_length"]) == (world, 4096)
    assert not reading.unknown


@pytest.mark.parametrize(
    "program", ["tools/run_text_generation_server.py", "generate_samples_gpt.py", "evaluate.py"]
)
def test_what_only_uses_a_model_is_no_training(program: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(MEGATRON.replace("pretrain_gpt.py", program))
    with pytest.raises(InputError, match="has no command that trains"):
        read_launch(str(script))
    script.write_text(MEGATRON.replace("pretrain_gpt.py", "train_and_evaluate.py"))
    assert read_launch(str(script)).given["tp"] == 4


MAXTEXT = (
    "python3 -m MaxText.train base.yml run_name=a hardware=gpu model_name=llama3-8b "
    "per_device_batch_size=4 ici_fsdp_parallelism=64 "
)
ON_64 = {"world_size": Override("", "64")}


def test_two_values_are_refused_where_a_cost_needs_one(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{MAXTEXT} run_name=b")
    assert read_launch(str(script), ON_64).given["micro_batch_size"] == 4.0
    script.write_text(f"{MAXTEXT} per_device_batch_size=8")
    with pytest.raises(InputError, match="per_device_batch_size is given twice, 4 and 8"):
        read_launch(str(script), ON_64)


def test_a_policy_that_makes_mlps_again_says_how_its_memory_is_counted(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{MAXTEXT} remat_policy=save_dot_with_context_except_mlp")
    notes = read_launch(str(script), ON_64).notes
    assert any("in time, and has too much memory" in note for note in notes)
    notes = read_launch(str(script), {**ON_64, "recompute": Override("", "full")}).notes
    assert not any("remat_policy" in note for note in notes)


def test_many_comments_in_a_json_file_are_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{\n// a\n# b\n// c\n"train_batch_size": 8}')
    with pytest.raises(InputError) as caught:
        read_launch(str(path))
    assert list(caught.value.faults) == ["ds.json, line 2: comments aren't JSON (2 more lines)"]


def test_a_reference_that_the_file_has_not_says_what_gives_it(tmp_path: Path) -> None:
    path = tmp_path / "nemo.yaml"
    path.write_text(NEMO + "  tensor_model_parallel_size: ${x}\n")
    with pytest.raises(InputError, match=r"size \$\{x\}: refers to a value .*, or give --tp"):
        read_launch(str(path))


def test_llama_factory_recomputes_and_holds_frozen_weights_in_16_bits(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(FACTORY)
    full = read_launch(str(path), ON_64).given
    assert (full["recompute"], full["recipe"]) == ("full", "fsdp_adam")
    path.write_text(f"{FACTORY}disable_gradient_checkpointing: true\n")
    assert read_launch(str(path), ON_64).given["recompute"] == "none"
    path.write_text(FACTORY.replace(": full", ": lora") + "quantization_bit: 4\n")
    reading = read_launch(str(path), ON_64)
    assert (reading.given["recompute"], reading.given["recipe"]) == ("full", "bf16_adam")
    assert any(note.startswith("quantization_bit: not modelled, so") for note in reading.notes)
