"""Launch files as planners have them: what is read, and that it is the same question as typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sweeps as package
from sweeps.cli.from_file import read_files
from sweeps.errors import InputError
from sweeps.launch.arguments import Override
from sweeps.launch.setting import Reading
from sweeps.spec.catalog import load_framework
from tests.cli_runner import Runner
from tests.launch import read_launch
from tests.tables import examples, keyed

DATA = Path(__file__).parents[1] / "data" / "launch"


def read(name: str, **given: str) -> Reading:
    overrides = {key: Override(f"--{key}", value) for key, value in given.items()}
    return read_launch(str(DATA / name), overrides)


LLAMA = examples(__file__, "llama")
LATENT = examples(__file__, "latent")
TITAN = keyed(
    "model=llama3-8b micro_batch_size=2 sequence_length=8192 tp=2 pp=1 cp=1 hsdp_shard_size=8 "
    "zero_stage=3 recompute=per_op precision=fp8_current training_tokens=524_288_000 "
    "global_batch_size=64 sequence_parallel=1 gathered_bytes=1 framework=torchtitan+async_tp"
)
ZERO = keyed(
    "model=Qwen/Qwen2.5-32B sequence_length=4096 micro_batch_size=2 global_batch_size=128 "
    "recompute=full precision=bf16 recipe=mixed_adam attention_kernel=flash_2 zero_stage=3 "
    "optimizer_offload=1 parameter_offload=1 world_size=16 gpus_per_node=8 loss=liger "
    "framework=deepspeed tp=1"
)
BRIDGE = examples(__file__, "bridge")
MAXTEXT = keyed(
    "model=llama3-70b hardware=tpu-v5p world_size=256 hsdp_shard_size=128 zero_stage=3 tp=1 "
    "micro_batch_size=2 global_batch_size=512 sequence_length=8192 training_tokens=419_430_400 "
    "loss=vocab_tiling loss_chunks=4 recompute=full attention_kernel=flash_2 precision=bf16 "
    "framework=maxtext"
)
RECIPE = keyed(
    "model=llama3-70b micro_batch_size=2 sequence_length=8192 tp=8 zero_stage=3 recompute=full "
    "loss=chunked loss_chunks=8 world_size=256 global_batch_size=64 sequence_parallel=1 cp=1 "
    "framework=torchtitan"
)
READ = [
    ("megatron-llama-70b/train.sh", {}, LLAMA),
    ("megatron-mla-moe/run.slurm", {}, LATENT),
    ("titan-toml/llama3_8b.toml", {"world_size": "64"}, TITAN),
    ("hf-deepspeed/run.sh", {}, ZERO),
    ("bridge-yaml/overrides.yaml", {"world_size": "16"}, BRIDGE),
    ("maxtext-yml/llama3_70b.yml", {}, MAXTEXT),
    ("titan-recipe/my_runs.py:llama3_70b_fsdp32_tp8", {}, RECIPE),
    (
        "titan-recipe/my_runs.py:llama3_70b_cp4",
        {},
        {**RECIPE, "cp": 4, "context_parallel": "all_gather", "global_batch_size": 16},
    ),
    (
        "titan-recipe/my_runs.py:llama3_70b_selective_eager",
        {"world_size": "256"},
        {"recompute": "per_op", "framework": "torchtitan+eager", "micro_batch_size": 1},
    ),
]


@pytest.mark.parametrize(("name", "given", "expected"), READ, ids=[row[0] for row in READ])
def test_what_is_read(name: str, given: dict[str, str], expected: dict[str, object]) -> None:
    reading = read(name, **given)
    assert {key: reading.given.get(key) for key in expected} == expected
    assert reading.asks == []


SHAPES = (
    "--layers 80 --hidden-size 8192 --heads 64 --kv-heads 8 --ffn-size 28672 "
    "--vocab-size 129024 --gated-mlp on --tied-embeddings off"
)
SAME = examples(__file__, "same", SHAPES=SHAPES)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "typed"), SAME, ids=[row[0].split()[0] for row in SAME])
def test_a_file_is_the_same_question_as_its_options(cli: Runner, name: str, typed: str) -> None:
    (read,) = cli(f"analysis --from {DATA}/{name} --json", fine=False).records
    (same,) = cli(f"analysis {typed} --json").records
    for key in ("step_time_s", "per_gpu_memory_bytes"):
        assert read[key] == pytest.approx(same[key], rel=1e-12), key


def test_what_became_of_every_setting() -> None:
    reading = read("megatron-llama-70b/train.sh")
    assert reading.unknown == ["--cluster-tag"]
    assert {"--lr", "--min-lr", "--data-path", "--save", "--rotary-base"} <= {*reading.no_cost}
    assert "--num-layers" in reading.read
    assert reading.origins["tp"] == "train.sh, line 43: --tensor-model-parallel-size"
    first, assumed = list(reading.lines())[:2]
    assert first.startswith("train.sh (Megatron-LM arguments): read ")
    assert "1 not understood: --cluster-tag" in first
    assert "gradients in 4 bytes" in assumed


def test_defaults_are_the_framework_s_not_ours(tmp_path: Path) -> None:
    script = tmp_path / "bare.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 "
        "--micro-batch-size 4 --vocab-size 50257 --tensor-model-parallel-size 2\n"
    )
    given = read_launch(str(script)).given
    expected = keyed(
        "zero_stage=0 sequence_parallel=0 dropout=1 linear_bias=1 layer_norm=1 tied_embeddings=1 "
        "learned_positions=2048 kv_heads=32 ffn_size=16384 gated_mlp=0 precision=fp32 "
        "global_batch_size=16 recompute=none framework=megatron-lm+serial_tp+serial_dp "
        "vocabulary_size=50432"
    )
    assert {name: given.get(name) for name in expected} == expected


# What can't be read is refused with its line, all at once.

REFUSED = examples(__file__, "refused")


@pytest.mark.parametrize(("name", "given", "lines"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(name: str, given: dict[str, str], lines: list[str]) -> None:
    with pytest.raises(InputError) as error:
        read(name, **given)
    assert list(error.value.faults) == lines


def test_a_file_that_contradicts_itself(tmp_path: Path) -> None:
    text = (DATA / "broken-deepspeed" / "ds.json").read_text()
    mended = tmp_path / "ds.json"
    mended.write_text(text.replace("  // copied from a page\n", "").replace("},\n}", "}\n}"))
    with pytest.raises(InputError) as error:
        read_launch(str(mended), {"world_size": Override("--gpus", "8")})
    faults = [line.partition(": ")[2] for line in error.value.faults]
    assert faults == [
        "train_batch_size 256: isn't 4 * 4 * 8 = 128 (micro-batch, accumulation, data-parallel "
        "ranks)",
        "zero_optimization.offload_param.device: needs stage 3; here it is 2",
        "fp16.enabled: stands beside bf16.enabled; one of both",
    ]


ASKED = examples(__file__, "asked")


@pytest.mark.parametrize(("name", "line"), ASKED)
def test_what_a_file_leaves_open_is_asked_for(cli: Runner, name: str, line: str) -> None:
    result = cli(f"analysis --from {DATA / name}", fine=False)
    assert result.code == 2
    assert result.err == f"sweeps: {line}\n"


# The command line rules over the file.


def test_the_command_line_rules_and_says_so() -> None:
    reading = read("titan-toml/llama3_8b.toml", world_size="64", tp="4")
    assert reading.given["hsdp_shard_size"] == 4
    assert "tp" not in reading.given
    assert (
        "--tp 4 rules over parallelism.tensor_parallel_degree 2 (llama3_8b.toml, line 28)"
        in reading.notes
    )


def test_a_fault_names_the_line_of_the_file(cli: Runner, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    text = (DATA / "megatron-llama-70b" / "train.sh").read_text()
    script.write_text(text.replace("NNODES=${SLURM_NNODES:-16}", "NNODES=3"))
    result = cli(f"analysis --from {script}", fine=False)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert "train.sh" in result.err


def test_a_zero_configuration_in_the_script_itself(tmp_path: Path) -> None:
    folder = DATA / "hf-deepspeed"
    script = (folder / "run.sh").read_text()
    config = (folder / "ds_z3_offload.json").read_text()
    whole = tmp_path / "whole.sh"
    whole.write_text(
        script.replace(
            "deepspeed --hostfile", f"cat > zero.json <<EOF\n{config}\nEOF\ndeepspeed --hostfile"
        ).replace("ds_z3_offload.json", "zero.json")
    )
    beside = read("hf-deepspeed/run.sh")
    assert read_launch(str(whole)).given == beside.given


def test_a_folder_is_no_launch_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name the launch file in it"):
        read_launch(str(tmp_path))


def test_nothing_in_a_script_is_run(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    shutil.copy(DATA / "megatron-llama-70b" / "train.sh", script)
    marker = tmp_path / "ran"
    text = script.read_text()
    script.write_text(f"touch {marker}\nX=$(touch {marker})\n`touch {marker}`\n{text}")
    assert read_launch(str(script)).given == read("megatron-llama-70b/train.sh").given
    assert not marker.exists()


ARRAYS = """
NNODES=${SLURM_NNODES:-"2"}
WORLD_SIZE=$((8*NNODES))
MODEL=(
    --num-layers 32 --hidden-size 4096
    # --num-query-groups 4
    --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096
#    --group-query-attention
)
LOG=(
    --log-interval 1 \\
    #--save $CHECKPOINTS \\
    --no-load-optim
)
if [ -n "$WANDB_API_KEY" ]; then
    LOG+=(--wandb-project ${PROJECT:-mine})
fi
for i in 1 2; do TP=$i; done
torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py ${MODEL[@]} --micro-batch-size 1 \\
    --tokenizer-type Llama2Tokenizer --bf16 ${LOG[@]} $MORE
"""


def test_comments_and_conditions_in_arrays(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(ARRAYS)
    reading = read_launch(str(script))
    assert reading.given["world_size"] == 16
    assert reading.given["kv_heads"] == 32
    assert reading.given["vocabulary_size"] == 32000
    assert any(
        "added only if a condition holds" in note and "--wandb-project" in note
        for note in reading.notes
    )


def test_what_a_loop_sets_is_refused_where_a_cost_needs_it(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(ARRAYS.replace("--bf16", "--bf16 --tensor-model-parallel-size $TP"))
    with pytest.raises(InputError) as error:
        read_launch(str(script))
    (line,) = error.value.faults
    assert "--tensor-model-parallel-size $TP: 'for' decides on it in line 18" in line
    given = read_launch(str(script), {"tp": Override("--tp", "2")}).given
    assert "tp" not in given


PAIRS = [
    (
        "python3 -m MaxText.train base.yml model_name=llama3.1-70b per_device_batch_size=4 "
        "ici_fsdp_parallelism=-1 max_target_length=8192 compile_topology=v6e-256",
        keyed("model=llama3-70b hardware=tpu-v6e world_size=256 global_batch_size=1024"),
    ),
    (
        "torchrun --nproc_per_node=8 pretrain.py trainer.num_nodes=4 trainer.devices=8 "
        "model.micro_batch_size=1 model.global_batch_size=256 model.num_layers=32 "
        "model.tensor_model_parallel_size=4 model.hidden_size=4096 model.num_attention_heads=32 "
        "model.encoder_seq_length=4096 model.vocab_size=32000",
        {"world_size": 32, "tp": 4, "layers": 32, "sequence_length": 4096, "zero_stage": 1},
    ),
    # NVIDIA/Megatron-LM, megatron/core/model_parallel_config.py: native unless it is said.
    *(
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
            "--num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 "
            f"--micro-batch-size 4 --vocab-size 50257 --cross-entropy-loss-fusion{impl}",
            {"loss": loss, "loss_recomputation": number},
        )
        for impl, loss, number in (
            ("", "vocab_parallel", None),
            (" --cross-entropy-fusion-impl native", "vocab_parallel", None),
            (" --cross-entropy-fusion-impl te", None, None),
            (" --cross-entropy-fusion-impl linear", "cut_cross_entropy", 1),
        )
    ),
    *(
        (
            "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
            "--num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 --bf16 "
            f"--micro-batch-size 4 --vocab-size 50257 --optimizer muon{more}",
            {"framework": f"megatron-lm+serial_dp+{options}"},
        )
        for more, options in (
            ("", "muon+fp32_gradients"),
            (" --grad-reduce-in-bf16", "muon"),
        )
    ),
]


@pytest.mark.parametrize(("line", "expected"), PAIRS)
def test_settings_on_a_command_line(line: str, expected: dict[str, object], tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{line}\n")
    given = read_launch(str(script)).given
    assert {name: given.get(name) for name in expected} == expected


def test_settings_of_userbuffers_that_a_script_names(tmp_path: Path) -> None:
    text = (DATA / "megatron-llama-70b" / "train.sh").read_text()
    named = text.replace(
        "    --tp-comm-overlap\n", "--tp-comm-overlap --tp-comm-overlap-cfg ub.yaml\n"
    )
    script, layers = tmp_path / "train.sh", tmp_path / "ub.yaml"
    script.write_text(named)
    assert not [note for note in read_launch(str(script)).notes if "ub.yaml" in note]
    layers.write_text("qkv_fprop: {method: ring_exchange, num_sm: 16, set_sm_margin: true}\n")
    (note,) = [note for note in read_launch(str(script)).notes if "set_sm_margin" in note]
    assert note.startswith("ub.yaml:1: warning (runtime): qkv_fprop.set_sm_margin = 1: takes 16")
    layers.write_text("qkv_fprop: [")
    assert any("ub.yaml, line 1: is not YAML" in note for note in read_launch(str(script)).notes)


ACCELERATE = """
accelerate launch {more} train.py --model_name_or_path Qwen/Qwen2.5-32B --max_seq_length 4096 \\
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 True --packing True
"""
ZERO_3 = examples(__file__, "zero_3")
LAUNCHED = examples(__file__, "launched")


@pytest.mark.parametrize(("more", "expected"), LAUNCHED, ids=[row[0] for row in LAUNCHED])
def test_how_accelerate_shards(more: str, expected: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "zero3.yaml").write_text(ZERO_3)
    script = tmp_path / "run.sh"
    script.write_text(ACCELERATE.format(more=more))
    given = read_launch(str(script)).given
    assert {name: given.get(name) for name in expected} == expected
    assert (given["world_size"], given["micro_batch_size"], given["global_batch_size"]) == (
        16,
        2,
        128,
    )


def test_a_configuration_of_accelerate_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "zero3.yaml"
    path.write_text(ZERO_3)
    reading = read_launch(str(path))
    assert (reading.given["zero_stage"], reading.given["global_batch_size"]) == (3, 512)
    path.write_text(ZERO_3.replace("DEEPSPEED", "MEGATRON_LM"))
    with pytest.raises(InputError, match="distributed_type MEGATRON_LM: isn't modelled"):
        read_launch(str(path))
    script = tmp_path / "run.sh"
    script.write_text(ACCELERATE.format(more="--config_file nowhere.yaml"))
    with pytest.raises(InputError, match=r"nowhere\.yaml: isn't there, nor beside the file"):
        read_launch(str(script))


def test_what_else_a_file_says_stays_beside_another_model() -> None:
    path = str(DATA / "titan-toml" / "llama3_8b.toml")
    given = {"model": [("--model", "llama3-70b")], "world_size": [("--gpus", "64")]}
    taken = read_files([path], given, "analysis").taken
    assert taken["gathered_bytes"] == "1"
    assert not {"layers", "heads"} & taken.keys()


@pytest.mark.parametrize(("machine", "kept"), [("dgx-h100", "4"), ("gb200-nvl72", None)])
def test_a_launcher_s_gpus_are_of_a_host(machine: str, kept: str | None, tmp_path: Path) -> None:
    """Four GPUs of a node of eight are half of it; of an NVL72 they are one tray of its domain."""
    script = tmp_path / "train.sh"
    text = (DATA / "megatron-llama-70b" / "train.sh").read_text()
    script.write_text(text.replace("GPUS_PER_NODE=8", "GPUS_PER_NODE=4"))
    taken = read_files([str(script)], {"hardware": [("--hardware", machine)]}, "analysis").taken
    assert taken.get("gpus_per_node") == kept


def test_half_of_what_overlaps_without_gathers(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    text = (DATA / "megatron-llama-70b" / "train.sh").read_text()
    script.write_text(text.replace("    --overlap-param-gather\n", ""))
    whole = load_framework("megatron-lm").figures["dp_overlap"].value
    assert read_launch(str(script)).given["dp_overlap"] == whole / 2


# Commands and Python.


def test_python_reads_a_file() -> None:
    reading = package.read(str(DATA / "megatron-llama-70b" / "train.sh"))
    dataset = package.sweep(["step_time", "parameters"], hardware="dgx-h100", **reading.given)
    assert float(dataset.parameters) == 70_566_289_408
    assert float(dataset.step_time) > 1.0


@pytest.mark.thorough
def test_plan_searches_around_a_file(cli: Runner) -> None:
    line = f"plan --from {DATA}/megatron-llama-70b/train.sh --hardware dgx-h100"
    text = " ".join(cli(line).out.split())
    assert "train.sh: its own plan, tp 8, pp 4, dp 4; interleaved, 4 chunks" in text
    assert "to change in train.sh: --micro-batch-size" in text
    (record,) = cli(line.replace("plan", "analysis", 1) + " --json", fine=False).records
    assert f"takes {record['step_time_s']:.1f} s" in text
    # The flag that goes is the one that stands in the file.
    assert "no --num-layers-per-virtual-pipeline-stage" in text
    assert "no --num-virtual-stages-per-pipeline-rank" not in text


@pytest.mark.thorough
def test_a_file_s_plan_is_told_with_the_options_that_rule_over_it(cli: Runner) -> None:
    line = f"plan --from {DATA}/megatron-llama-70b/train.sh --hardware dgx-h100 --tp 4 --cp 1"
    text = " ".join(cli(line).out.split())
    assert "train.sh: its plan with --tp 4, --cp 1, tp 4, pp 4, dp 8; interleaved" in text
    assert "own plan" not in text


@pytest.mark.thorough
def test_memory_that_keeps_a_file_s_plan_from_running_is_told(cli: Runner) -> None:
    line = f"plan --from {DATA}/bridge-yaml/overrides.yaml --hardware dgx-h100 --gpus"
    risky, full = (" ".join(cli(f"{line} {gpus}").out.split()) for gpus in (64, 8))
    assert ", faster), with 90.1 of 84.9 GB (may not fit)" in risky
    assert "if the memory sufficed, but needs 116.8 of 84.9 GB (does not fit)" in full
    # Fields of a YAML, not arguments.
    assert "micro_batch_size: 2, expert_model_parallel_size: 16, no recompute_granularity" in risky


@pytest.mark.thorough
def test_changes_are_in_the_words_of_the_file(cli: Runner) -> None:
    text = " ".join(cli(f"plan --from {DATA}/hf-deepspeed/run.sh --hardware dgx-h100").out.split())
    assert "to change in run.sh, ds_z3_offload.json:" in text
    # DeepSpeed's file has "auto" there, and nothing of recomputation.
    assert "per_device_train_batch_size = 1" in text
    # The script is LLaMA-Factory's, which recomputes unless this is set.
    assert "disable_gradient_checkpointing = true recommended:" in text
    assert "nothing recomputed" in text
    assert "--tensor-model" not in text
    assert "duplicate" not in cli(f"plan --from {DATA}/megatron-mla-moe/run.slurm").err


@pytest.mark.thorough
def test_buy_takes_the_model_of_a_file(cli: Runner) -> None:
    line = f"buy --from {DATA}/titan-toml/llama3_8b.toml --tokens 1T --days 30"
    assert "llama3-8b" in cli(line).out


@pytest.mark.thorough
def test_a_page_of_a_file(cli: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cli(f"page --from {DATA}/titan-recipe/my_runs.py:llama3_70b_fsdp32_tp8 --output a.html")
    assert "llama3-70b" in Path("a.html").read_text()


OFFLOADED = examples(__file__, "offloaded")


@pytest.mark.parametrize(("text", "given", "fault"), OFFLOADED, ids=[row[0] for row in OFFLOADED])
def test_weights_that_deepspeed_offloads(
    text: str, given: dict[str, float | None], fault: str, tmp_path: Path
) -> None:
    path = tmp_path / "ds.json"
    path.write_text(
        f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 3, {text}}}}}'
    )
    gpus = {"world_size": Override("--gpus", "8")}
    if fault:
        with pytest.raises(InputError, match=fault):
            read_launch(str(path), gpus)
        return
    found = read_launch(str(path), gpus)
    assert {name: found.given.get(name) for name in given} == given
    assert not found.not_modelled


def test_torchtitan_offloads_all_states(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nenable_cpu_offload = true'
    )
    found = read_launch(str(path), {"world_size": Override("--gpus", "8")})
    assert (found.given["optimizer_offload"], found.given["parameter_offload"]) == (1, 1)
    assert not [note for note in found.notes if "offload" in note]
