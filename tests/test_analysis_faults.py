"""Bad input to ``sweeps analysis``: one clear line a fault, exit 2."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from overhead import Config, analyze_config
from tests.refusals import Refused, one

LLAMA = "analysis --model llama3-8b --seq-length 8192"
BARE = "analysis --params 7e9"
SIZES = "--seq-length 1024 --hidden-size 4096"


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    monkeypatch.chdir(tmp_path)
    return Refused(capsys)


# Plans that can't be.


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            f"{BARE} --num-gpus 8 --dp 8 --tp 2 {SIZES}",
            ("--dp 8, --tp 2 (cp 1, pp 1)", "multiply to 16, not to 8 GPUs"),
        ),
        (
            "analysis --model qwen3-next-80b-a3b --seq-length 4096 --linear-layers 100",
            ("--linear-layers 100", "is more than there are", "at most layers = 48"),
        ),
        (
            "analysis --model deepseek-v3,llama3-8b --seq-length 4096 --mtp-layers 1,62",
            ("--mtp-layers 62", "is more than there are", "at most layers = 61"),
        ),
        (
            f"{LLAMA} --overlap-contention 0.1 --communication-sms 20",
            ("--overlap-contention given", "follows from --communication-sms", "one of them"),
        ),
        (
            f"{LLAMA} --num-gpus 8 --zero-stage 2 --dp-mechanism fsdp_prefetch",
            ("--zero-stage 2", "gather weights layer by layer: stage 3 of ZeRO"),
        ),
        (
            f"{LLAMA} --num-gpus 8 --algorithm ring",
            ("--algorithm ring", "a hierarchical network has no such algorithm", "ring_path"),
        ),
        (
            f"{LLAMA} --num-gpus 24 --tp 8 --topology switch --algorithm halving",
            ("--algorithm halving", "isn't defined for a group's ranks", "each group's number"),
        ),
        (
            f"{LLAMA} --kv-heads 64",
            ("--kv-heads 64", "is more than there are", "at most heads = 32"),
        ),
        (
            f"{LLAMA} --tp 64",
            ("--tp 64", "does not divide the 32 attention heads", "use 1, 2, 4, 8"),
        ),
        (
            f"{BARE} --tp 8 --heads 4 {SIZES}",
            ("--tp 8", "does not divide the 4 attention heads"),
        ),
        (
            f"{LLAMA} --cp 3 --cp-kind ring --gpus-per-node 3",
            ("--cp 3, --seq-length 8192", "not divisible by cp", "2*cp must divide"),
        ),
        (
            f"{LLAMA} --cp 16 --cp-kind all_to_all --num-gpus 16",
            ("--cp 16 (kv heads 8)", "not divisible by cp", "must divide the key and value"),
        ),
        (
            f"{LLAMA} --dp 8 --global-batch 4",
            ("--global-batch 4", "is fewer than the 8 sequences", "a multiple of 8"),
        ),
        (
            f"{LLAMA} --dp 8 --micro-batch 2 --global-batch 24",
            ("--global-batch 24", "isn't a multiple of the 16", "a multiple of 16"),
        ),
        (
            f"{LLAMA} --ep 4 --num-gpus 4",
            ("--ep 4 (num experts 0)", "experts not divisible", "1 where there are none"),
        ),
        (
            "analysis --model mixtral-8x7b --seq-length 4096 --ep 16 --num-gpus 16",
            ("--ep 16 (num experts 8)", "ep must divide the experts"),
        ),
        (
            "analysis --model mixtral-8x7b --seq-length 4096 --tp 2 --sp off --num-gpus 2",
            ("--tp 2, --sp 0 (num experts 8)", "needs sequence parallelism"),
        ),
        (
            "analysis --model mixtral-8x7b --seq-length 4096 --ep 8 --etp 2 --num-gpus 8",
            ("--etp 2, --ep 8 (dp 8, num experts 8)", "etp*ep must divide tp*cp*dp"),
        ),
        (
            f"{LLAMA} --framework deepspeed --zero-stage 3 --pp 2 --num-gpus 8",
            ("--zero-stage 3, --pp 2", "DeepSpeed has no pipeline with ZeRO stage 2 or 3"),
        ),
        (
            f"{BARE} --dp 8 --hsdp-shard 3",
            ("--hsdp-shard 3, --dp 8", "must divide dp*cp"),
        ),
        (
            f"{LLAMA} --pp 64 --num-gpus 64",
            (
                "--pp 64 (vpp 1, num layers 32, count embedding as 0, count head as 0)",
                "too few layers",
            ),
        ),
        (
            f"{LLAMA} --pp 2 --virtual-stages 2 --schedule one_f_one_b",
            ("--virtual-stages 2", "only interleaved and folded schedules"),
        ),
        (
            f"{LLAMA} --schedule zero_bubble_h1 --pp 4 --global-batch 2",
            ("--pp 4 (num micro batches 2)", "too few micro batches", "ZB-H1"),
        ),
        (
            f"{BARE} --dp 12",
            ("--gpus 12, --gpus-per-node 8", "fill whole nodes"),
        ),
        (
            f"{BARE} --topology mesh --dp 16 --num-gpus 16 --mesh-nx 4 --mesh-ny 3",
            ("--mesh-nx 4, --mesh-ny 3 (mesh nz 1)", "multiply to 12, not to 16 GPUs"),
        ),
        (
            f"{BARE} --topology mesh --dp 16 --mesh-nx 4",
            ("--mesh-nx needs the other side; give --mesh-ny, too",),
        ),
    ],
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


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (f"{BARE} --rank-order dp-tp-cp-pp", ("--rank-order dp-tp-cp-pp", "isn't modelled")),
        (
            f"{BARE} --dp 8 --batch-size 2 --micro-batch 1",
            ("--batch-size 2", "--micro-batch 1 is the same, and another value"),
        ),
        (f"{BARE} --dp 8 --tree-algo", ("--tree-algo hierarchical", "no tree algorithm")),
        (f"{BARE} --zero-stage 4", ("--zero-stage 4", "out of range", "0 to 3")),
        (f"{BARE} --dp 2.5", ("--dp 2.5", "is not whole")),
        (f"{BARE} --dp 2,2", ("--dp 2", "is given twice")),
        ("analysis --params=-1", ("--params -1", "out of range")),
        (f"{BARE} --cp-kind rings", ("--cp-kind rings", "did you mean 'ring'")),
        (f"{BARE} --recompute everything", ("--recompute everything", "unknown")),
        (f"{BARE} --precision int8", ("--precision int8", "unknown")),
        (f"{BARE} --sp perhaps", ("--sp perhaps", "number")),
        ("analysis --model llama3-80b", ("--model llama3-80b", "not in the catalog", "llama3-70b")),
        (f"{BARE} --hardware dgx-h10", ("--hardware dgx-h10", "not in the catalog", "dgx-h100")),
        (f"{BARE} --framework megatron", ("--framework megatron", "'megatron-lm'")),
        (f"{BARE} --topology rnig", ("--topology rnig", "did you mean 'ring'")),
        (f"{BARE} --seq-length 8q", ("--seq-length 8q",)),
    ],
)
def test_values_that_are_not_there(refused: Refused, line: str, parts: tuple[str, ...]) -> None:
    one(refused(line), *parts)


@pytest.mark.thorough
def test_too_many_cells_to_print(refused: Refused) -> None:
    line = f"{BARE} --dp 1:4096:x2 --micro-batch 1:2000:+1 --zero-stage 0:3:+1 --global-batch"
    one(refused(f"{line} 1:100:+1"), "axes = '", "too many to print", "--output FILE.nc")


# The same from Python.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_gpus": 8, "dp_degree": 4, "tp_degree": 3}, "must be the number of GPUs"),
        ({"dp_degree": 8, "zero_stage": 4}, "zero_stage = 4.0: out of range"),
        ({"dp_degree": 2.5}, "dp = 2.5: out of range; must be a whole number"),
        ({"topology_kind": "rnig"}, "topology = 'rnig': is unknown"),
        ({"recompute": "al"}, "recompute = 'al': is unknown; one of none"),
        ({"algorithm": "ring"}, "algorithm = 'ring': is unknown; one of standard, nccl, auto, "),
        ({"tree_algo": True}, "tree_algo = True: no tree algorithm on hierarchical"),
        ({"more": {"head": 8}}, "head: no such quantity; did you mean 'heads'"),
        ({"topology_kind": "mesh", "mesh_nx": 4}, "only one is given"),
        (
            {"topology_kind": "mesh", "num_gpus": 16, "mesh_nx": 4, "mesh_ny": 3},
            "= 12.0: isn't the number of GPUs, 16.0",
        ),
        ({"dp_degree": 8, "global_batch_size": 12}, "must divide the global batch"),
    ],
)
def test_configurations_that_cannot_be(given: dict[str, Any], words: str) -> None:
    sizes: dict[str, Any] = {"seq_length": 1024, "hidden_size": 4096, "num_parameters": 7e9}
    with pytest.raises(ValueError, match=re.escape(words)):
        analyze_config(Config(**{**sizes, **given}))


def test_a_configuration_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="tensor parallelism needs sequence_length, hidden_size"):
        analyze_config(Config(tp_degree=2, num_parameters=7e9))
    with pytest.raises(ValueError, match="memory needs num_parameters, or hidden_size, heads"):
        analyze_config(Config(dp_degree=2))
