"""Several files of one run: training arguments, Accelerate's, DeepSpeed's, a model's config.json.

What transformers makes of them is its integrations/deepspeed.py and training_args.py, 5.24.0.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import sweeps as package
from sweeps.errors import InputError
from sweeps.launch.arguments import Override
from sweeps.launch.read import read_launches
from sweeps.launch.setting import Reading
from tests.bending import bent, of_seeds, read_or_faults
from tests.cli_runner import Runner
from tests.launch.test_bent_files import JUNK
from tests.tables import examples, keyed

DATA = Path(__file__).parents[1] / "data"
ARGUMENTS = {
    **keyed(
        "output_dir=out per_device_train_batch_size=2 gradient_accumulation_steps=4 "
        "gradient_checkpointing=True bf16=True fp16=False tf32=None max_steps=1000 "
        "optim=adamw_torch_fused max_length=4096 packing=True"
    ),
    "fsdp": [],
    "fsdp_config": {"min_num_params": 0, "xla": False},
    "deepspeed": None,
    "attn_implementation": "flash_attention_2",
}
ZERO = examples(__file__, "zero")
FSDP = """
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}
num_machines: 2
num_processes: 16
"""
DEEPSPEED = (DATA / "launch" / "hf-deepspeed" / "ds_z3_offload.json").read_text()
MODEL = (DATA / "models" / "qwen2.5-32b.json").read_text()
FILES = {
    "accelerate.yaml": ZERO,
    "fsdp.yaml": FSDP,
    "ds.json": DEEPSPEED,
    "config.json": MODEL,
    "named.sh": "accelerate launch --config_file accelerate.yaml train.py args.json\n",
    "own.sh": "accelerate launch --config_file accelerate.yaml train.py "
    "--model_name_or_path my --max_length 8192 --bf16 --packing true\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS, indent=1))
    return tmp_path


def read(folder: Path, names: str, **given: str) -> list[Reading]:
    overrides = {name: Override(f"--{name}", text) for name, text in given.items()}
    return read_launches([str(folder / name) for name in names.split()], overrides)


RUN = keyed(
    "world_size=16 gpus_per_node=8 micro_batch_size=2 global_batch_size=128 sequence_length=4096 "
    "precision=bf16 recompute=full zero_stage=3 attention_kernel=flash_2"
)
READ: list[tuple[str, dict[str, Any]]] = [
    (
        "args.json accelerate.yaml ds.json config.json",
        {**RUN, "framework": "deepspeed", "recipe": "mixed_adam", "optimizer_offload": 1},
    ),
    ("config.json ds.json accelerate.yaml args.json", {**RUN, "framework": "deepspeed"}),
    (
        "args.json fsdp.yaml config.json",
        {**RUN, "framework": "torchtitan+eager+no_sync", "recipe": "fsdp_adam"},
    ),
    ("named.sh ds.json config.json", {**RUN, "framework": "deepspeed"}),
    (
        "own.sh accelerate.yaml ds.json config.json",
        {**RUN, "sequence_length": 8192, "micro_batch_size": 8, "recompute": "none"},
    ),
]


@pytest.mark.parametrize(("names", "expected"), READ, ids=[row[0] for row in READ])
def test_files_are_one_run(names: str, expected: dict[str, Any], folder: Path) -> None:
    (reading,) = read(folder, names)
    if names.startswith("own"):
        expected = {**expected, "global_batch_size": 128}
    assert {name: reading.given.get(name) for name in expected} == expected
    assert reading.given["model"] == str(folder / "config.json")
    assert not reading.asks
    assert not reading.unknown


@pytest.mark.parametrize(
    ("more", "given"),
    [
        ({"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}, {}),
        ({"gradient_accumulation_steps": 1}, {}),
        ({}, {"global_batch_size": "32"}),
    ],
)
def test_gradients_that_wait_for_no_later_micro_batch(
    more: dict[str, Any], given: dict[str, str], folder: Path
) -> None:
    (folder / "args.json").write_text(json.dumps({**ARGUMENTS, **more}))
    (reading,) = read(folder, "args.json fsdp.yaml config.json", **given)
    assert reading.given["framework"] == "torchtitan+eager"
    assert reading.given["reduction_bytes"] == 2
    assert not reading.unknown


def test_each_file_is_said(folder: Path) -> None:
    (reading,) = read(folder, "args.json accelerate.yaml ds.json config.json")
    first, *other_lines = reading.lines()
    assert first.startswith(
        "Hugging Face arguments, Accelerate YAML, DeepSpeed JSON, a model's configuration: read 22 "
        "settings (11 of args.json, 5 of accelerate.yaml, 5 of ds.json, 1 of config.json)"
    )
    assert "ds.json is taken for /home/me/ds_config.json, which the arguments name" in other_lines
    assert reading.origins["zero_stage"] == "ds.json, line 6: zero_optimization.stage"
    assert reading.origins["world_size"] == "accelerate.yaml, line 6: num_processes"


WRONG = examples(__file__, "wrong")


@pytest.mark.parametrize(("names", "more", "words"), WRONG)
def test_refused(names: str, more: dict[str, Any], words: str, folder: Path) -> None:
    (folder / "args.json").write_text(json.dumps(ARGUMENTS | more, indent=1))
    with pytest.raises(InputError) as error:
        read(folder, names, world_size="16")
    assert any(words in line for line in error.value.faults), error.value.faults


def test_a_configuration_within_the_arguments(folder: Path) -> None:
    more = {"deepspeed": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}}
    (folder / "args.json").write_text(json.dumps(ARGUMENTS | more))
    (reading,) = read(folder, "args.json config.json", world_size="8")
    assert (reading.given["zero_stage"], reading.given["framework"]) == (2, "deepspeed")


@pytest.mark.parametrize("prefix", ["", "fsdp_"])
def test_shards_that_arguments_spell_out(prefix: str, folder: Path) -> None:
    """transformers takes the keys of ``fsdp_config`` with and without their prefix."""
    own = {f"{prefix}backward_prefetch": "backward_pre", f"{prefix}activation_checkpointing": True}
    more = {"fsdp": ["shard_grad_op", "auto_wrap"], "fsdp_config": own}
    (folder / "args.json").write_text(
        json.dumps(ARGUMENTS | {**more, "gradient_checkpointing": False})
    )
    (reading,) = read(folder, "args.json config.json", world_size="8")
    expected = {"zero_stage": 2, "backward_prefetch": 1, "recompute": "full"}
    assert {name: reading.given[name] for name in expected} == expected
    (folder / "fsdp.json").write_text(json.dumps(own))
    more = {"fsdp": "shard_grad_op", "fsdp_config": "fsdp.json", "gradient_checkpointing": False}
    (folder / "args.json").write_text(json.dumps(ARGUMENTS | more))
    (reading,) = read(folder, "args.json config.json", world_size="8")
    assert {name: reading.given[name] for name in expected} == expected


def test_a_model_s_own_file_beside_a_script(folder: Path) -> None:
    """Its shapes are those of config.json, as with ``--model``."""
    script = DATA / "launch" / "megatron-llama-70b" / "train.sh"
    found = package.read(script, folder / "config.json")
    assert found.given["model"] == str(folder / "config.json")
    assert not {"layers", "heads"} & found.given.keys()
    assert (found.given["tp"], found.asks) == (8, [])


@pytest.mark.thorough
def test_every_command_takes_them(cli: Runner, folder: Path) -> None:
    names = ("args.json", "fsdp.yaml", "config.json")
    line = " ".join(f"--from {folder / name}" for name in names)
    (record,) = cli(f"analysis --hardware dgx-b200 {line} --json", fine=False).records
    text = " ".join(cli(f"plan --hardware dgx-b200 {line} --tp 1 --cp 1 --pp 1").out.split())
    assert f"takes {record['step_time_s']:.1f} s" in text
    assert "12 of args.json" in text
    given = package.read(*(folder / name for name in names)).given
    given.pop("training_tokens")
    dataset = package.sweep(["step_time"], hardware="dgx-b200", **given)
    assert float(dataset.step_time) == pytest.approx(record["step_time_s"], rel=1e-12)


@of_seeds(20, 1020)
def test_bent(seeds: range, folder: Path) -> None:
    names = ("args.json", "accelerate.yaml", "ds.json", "config.json", "own.sh")
    whole = {name: (folder / name).read_text() for name in names}
    for seed in seeds:
        draw = random.Random(seed)
        for name, text in whole.items():
            (folder / name).write_text(bent(text, draw, JUNK) if draw.random() < 0.4 else text)
        asked = " ".join(draw.sample(names, draw.randint(2, 5)))
        readings, faults = read_or_faults(read, folder, asked, world_size="16")
        assert readings or faults
        for reading in readings or ():
            assert set(reading.origins) >= set(reading.given)
            assert [*reading.lines()]
