"""Launch files whose model or split isn't what their first keys say."""

from __future__ import annotations

from pathlib import Path

import pytest

import sweeps
from sweeps.errors import InputError

MORE = ("vocabulary_size", "gated_mlp", "tied_embeddings")
SCRIPT = "python3 -m MaxText.train src/MaxText/configs/{} run_name=x steps=3 {}\n"


def maxtext(folder: Path, *more: str, named: str = "base.yml") -> Path:
    path = folder / "run.sh"
    path.write_text(SCRIPT.format(named, " ".join(more)))
    return path


@pytest.mark.parametrize(
    ("scale", "billions"),
    [(1, 1.1), (32, 32), (64, 64), (128, 128), (256, 256), (512, 512), (1024, 1024)],
)
def test_maxtext_scales_the_whole_model(scale: int, billions: float, tmp_path: Path) -> None:
    """As its own scripts are called: v5p/32b.sh has a scale of 32."""
    given = sweeps.read(maxtext(tmp_path, f"global_parameter_scale={scale}")).given
    shapes = ("layers", "hidden_size", "heads", "kv_heads", "head_size", "ffn_size")
    shown = {name: given[name] for name in (*shapes, *MORE)}
    found = sweeps.sweep("parameters", hardware="tpu-v5p", gpus=64, global_batch_size=64, **shown)
    assert float(found.parameters) / 1e9 == pytest.approx(billions, rel=0.1)


def test_a_scale_is_a_power_of_two_and_changes_no_named_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no power of two"):
        sweeps.read(maxtext(tmp_path, "global_parameter_scale=3"))
    with pytest.raises(InputError, match="changes llama2-70b"):
        sweeps.read(maxtext(tmp_path, "model_name=llama2-70b", "global_parameter_scale=2"))


def test_shapes_beside_a_named_model_are_the_model_s(tmp_path: Path) -> None:
    """As in MaxText's mixtral_8x1b.yml, which was read as all 32 layers of Mixtral 8x7B."""
    named = "model_name=mixtral-8x7b"
    with pytest.raises(InputError, match=r"base_num_decoder_layers.* isn't that of .* \(32\)"):
        sweeps.read(maxtext(tmp_path, named, "base_num_decoder_layers=5"))
    assert sweeps.read(maxtext(tmp_path, named, "base_num_decoder_layers=32")).given["model"]


def test_a_named_configuration_is_read_or_refused(tmp_path: Path) -> None:
    path = maxtext(tmp_path, "per_device_batch_size=2", named="models/gpu/llama2_7b.yml")
    with pytest.raises(InputError, match=r"llama2_7b.yml isn't beside it"):
        sweeps.read(path)
    content = "model_name: llama2-7b\nper_device_batch_size: 4\nmax_target_length: 4096\n"
    (tmp_path / "llama2_7b.yml").write_text(content)
    given = sweeps.read(path).given
    assert (given["model"], given["micro_batch_size"]) == ("llama2-7b", 2)
    assert given["sequence_length"] == 4096


def test_without_a_number_of_chips_nothing_is_said_of_the_batch(tmp_path: Path) -> None:
    """The rest of the chips shards: it was read as none, with the batch of a single one."""
    given = sweeps.read(maxtext(tmp_path, "per_device_batch_size=2")).given
    assert given["zero_stage"] == 3
    assert "global_batch_size" not in given


TRAINING = """model_name_or_path: Qwen/Qwen3-8B
output_dir: out
per_device_train_batch_size: 1
cutoff_len: 4096
"""


@pytest.mark.parametrize("name", ["tensor_model_parallel_size", "expert_model_parallel_size"])
def test_degrees_of_another_program_are_refused(name: str, tmp_path: Path) -> None:
    """LLaMA-Factory hands them to Megatron: they were read as data parallelism."""
    path = tmp_path / "sft.yaml"
    path.write_text(f"{TRAINING}bf16: true\n{name}: 4\n")
    with pytest.raises(InputError, match=rf"{name}: isn't among transformers' own arguments"):
        sweeps.read(path)
    path.write_text(f"{TRAINING}bf16: true\n{name}: 1\n")
    assert name in sweeps.read(path).read


def test_pure_bf16_is_16_bits_throughout(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(f"{TRAINING}pure_bf16: true\nquantization_bit: 4\n")
    reading = sweeps.read(path)
    assert (reading.given["precision"], reading.given["recipe"]) == ("bf16", "bf16_adam")
    assert reading.not_modelled == ["quantization_bit"]
    assert not reading.unknown


def test_axolotl_is_refused(tmp_path: Path) -> None:
    """Its micro-batch was taken to be transformers' default of 8."""
    path = tmp_path / "lora.yml"
    path.write_text(
        "base_model: NousResearch/Llama-3.2-1B\nmicro_batch_size: 2\nsequence_len: 2048\n"
        "output_dir: out\nbf16: auto\n"
    )
    with pytest.raises(InputError, match="is axolotl's"):
        sweeps.read(path)


NEMO = """trainer: {devices: 8, num_nodes: 4, precision: PRECISION}
model:
  micro_batch_size: 1
  global_batch_size: 64
  encoder_seq_length: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  num_query_groups: null
  kv_lora_rank: null
  bias: false
  activation: ACTIVATION
  normalization: NORM
  tokenizer: {vocab_size: 32000}
  optim: {name: OPTIMIZER, lr: 1e-4}
"""


def nemo(folder: Path, **words: str) -> dict[str, object]:
    usual = {"precision": "bf16", "activation": "fast-swiglu", "norm": "rmsnorm"}
    text = NEMO
    for name, word in {"optimizer": "mcore_distributed_optim", **usual, **words}.items():
        text = text.replace(name.upper(), word)
    path = folder / "llama.yaml"
    path.write_text(text)
    return sweeps.read(path).given


def test_nemo_s_words_are_read(tmp_path: Path) -> None:
    """Llama 2 in NeMo was read without a gate in its MLP, and with one key and value head."""
    given = nemo(tmp_path)
    shapes = {"gated_mlp": 1, "linear_bias": 0, "layer_norm": 0, "kv_heads": 32}
    expected = {**shapes, "zero_stage": 1, "precision": "bf16"}
    assert {name: given[name] for name in expected} == expected
    assert nemo(tmp_path, activation="gelu")["gated_mlp"] == 0
    assert nemo(tmp_path, norm="layernorm1p")["layer_norm"] == 1
    assert nemo(tmp_path, optimizer="fused_adam")["zero_stage"] == 0
    assert nemo(tmp_path, precision="16")["precision"] == "fp16"
    with pytest.raises(InputError, match=r"model.activation sine: isn't known"):
        nemo(tmp_path, activation="sine")


def test_a_stage_of_megatron_deepspeed_is_read_or_asked_for(tmp_path: Path) -> None:
    """The stage was told as unknown, and the run as one without sharding."""
    shapes = "--num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --bf16"
    more = "--micro-batch-size 1 --global-batch-size 8 --vocab-size 512 --deepspeed"
    path = tmp_path / "train.sh"
    path.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {shapes} {more} --zero-stage 2\n")
    reading = sweeps.read(path)
    assert reading.given["zero_stage"] == 2
    assert not reading.unknown
    path.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {shapes} {more}\n")
    with pytest.raises(InputError, match="give --zero-stage"):
        sweeps.read(path)
    asked = sweeps.analysis(from_=str(path), hardware="dgx-h100", zero_stage=1)
    assert "ZeRO stage 1" in str(asked)


REGISTRY = """
from torchtitan.trainer import Trainer, TrainingConfig
from . import model_registry

def small() -> Trainer.Config:
    spec = model_registry("8B")
    return Trainer.Config(
        model_spec=spec,
        training=TrainingConfig(steps=3, local_batch_size=1, max_context_length=4096),
        dataloader=Loader.Config(dataset=DATASETS["c4"], strict=a and "b" in c),
    )

def compiled() -> Trainer.Config:
    config = small()
    config.compile = CompileConfig(enable=True)
    config.model_spec = model_registry("0.6B")
    return config

def lost() -> Trainer.Config:
    return Trainer.Config(model_spec=model_registry("8B"), training=CONFIGS["usual"])

def asked() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(max_context_length=LENGTHS["long"], local_batch_size=1),
    )
"""


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    folder = tmp_path / "qwen3"
    folder.mkdir()
    path = folder / "config_registry.py"
    path.write_text(REGISTRY)
    return path


def test_a_registry_of_torchtitan_is_of_the_model_of_its_folder(registry: Path) -> None:
    """What a dataset is doesn't matter, and a model without its module was taken for Llama's."""
    assert sweeps.read(f"{registry}:small").given["model"] == "qwen3-8b"


def test_fields_that_are_set_to_calls_are_read(registry: Path) -> None:
    given = sweeps.read(f"{registry}:compiled").given
    assert given["model"] == "qwen3-0.6b"
    assert "eager" not in given["framework"]


@pytest.mark.parametrize(
    ("name", "told"), [("lost", r"training: 'CONFIGS\['usual'\]'"), ("asked", r"LENGTHS\['long'\]")]
)
def test_what_a_cost_needs_and_is_not_read_is_refused(name: str, told: str, registry: Path) -> None:
    with pytest.raises(InputError, match=rf"{told}.* can't be read without running it"):
        sweeps.read(f"{registry}:{name}")


@pytest.mark.parametrize("setting", ["stage: dpo", "stage: rm", "beta: 0.1", "num_generations: 8"])
def test_training_on_preferences_is_refused(setting: str, tmp_path: Path) -> None:
    """Its pairs and its reference model were left out: more than half of a step."""
    path = tmp_path / "dpo.yaml"
    path.write_text(f"{TRAINING}bf16: true\n{setting}\n")
    with pytest.raises(InputError, match="isn't modelled"):
        sweeps.read(path)
    path.write_text(f"{TRAINING}bf16: true\nstage: sft\n")
    assert sweeps.read(path).read


def test_kinds_of_fine_tuning(tmp_path: Path) -> None:
    """Frozen layers were read as a full run; LLaMA-Factory's own default is LoRA of rank 8."""
    path = tmp_path / "sft.yaml"
    for kind in ("freeze", "oft"):
        path.write_text(f"{TRAINING}bf16: true\nstage: sft\nfinetuning_type: {kind}\n")
        with pytest.raises(InputError, match=f"finetuning_type {kind}: isn't modelled"):
            sweeps.read(path)
    path.write_text(f"{TRAINING}bf16: true\nstage: sft\n")
    assert sweeps.read(path).given["lora_rank"] == 8
    path.write_text(f"{TRAINING}bf16: true\nstage: sft\nfinetuning_type: full\nlora_rank: 8\n")
    assert "lora_rank" not in sweeps.read(path).given
    path.write_text(f"{TRAINING}bf16: true\n")
    assert "lora_rank" not in sweeps.read(path).given
