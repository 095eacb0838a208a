"""Hugging Face's training arguments and Accelerate's configuration as quantities.

What isn't said is as transformers 5.24.0 has it (training_args.py), and Accelerate @16cb6eb8
(commands/config, utils/dataclasses.py).  Both reduce gradients that accumulate once a step
(trainer.py, _run_epoch, and accelerator.py, no_sync), and FSDP's in the precision of computing
(FullyShardedDataParallelPlugin.set_mixed_precision).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan, prod
from pathlib import Path

from sweeps.launch.arguments import FALSE, Settings, arguments
from sweeps.launch.setting import Location, Setting
from sweeps.launch.shell import Word
from sweeps.launch.terms import keys_of, terms_of

FORMAT = "Hugging Face arguments"
ACCELERATE = "Accelerate YAML"
VERSION = "transformers 5.24.0"
FACTORY = ("stage", "finetuning_type")  # Of LLaMA-Factory's files alone
QUANTIZED = ("load_in_4bit", "load_in_8bit", "quantization_bit")
KEYS = "hugging-face"
# Accelerate's keys of a DeepSpeed configuration by DeepSpeed's.
ZERO: Mapping[str, str] = terms_of(KEYS)["zero"]
# Degrees that LLaMA-Factory hands to Megatron, and others to kernels of their own.
DEGREES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "context_parallel_size",
    "sequence_parallel_size",
    "tensor_parallel_size",
)
# Arguments that TRL has for DPO, ORPO, KTO and GRPO, and not for supervised training.
PREFERENCES = ("beta", "max_prompt_length", "num_generations")
# Where it is on, each micro-batch reduces its gradients.
EACH_BATCH = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
# Kinds of distribution, beside FSDP and DeepSpeed, that are plain data parallelism.
PLAIN = ("", "NO", "MULTI_GPU")


def settings_of(words: Sequence[Word], file: str) -> Iterator[Setting]:
    """Yield a command line's arguments, without hyphens."""
    for flag, values, line in arguments(words):
        name = flag[2:].replace("-", "_")
        yield Setting(name, " ".join(values) or "true", Location(file, line))


def read_training(settings: Settings, *, zero: bool) -> None:
    """Take quantities from training arguments; `zero` where a DeepSpeed configuration follows."""
    reading = settings.reading
    reading.version = reading.version or VERSION
    _supervised(settings)
    for name in DEGREES:
        if settings.number(name, default=1.0) > 1.0:
            wrong = "isn't among transformers' own arguments: another program splits the model"
            reading.fault(settings.by_name[name], "", f"{wrong}; leave it out, and give its option")
    _model(settings)
    length = settings.take_number("sequence_length", *terms_of(KEYS)["lengths"])
    if isnan(length) and "sequence_length" not in reading.given:
        reading.asks.append("--seq-length")
    _batch(settings, zero=zero)
    _precision(settings, zero=zero)
    _recompute(settings)
    names = ("attn_implementation", "flash_attn", "use_flash_attention_2")
    word = settings.text(*names[:2], default="sdpa")
    if names[2] in settings:
        word = "flash_attention_2"
    kernel = terms_of(KEYS)["attn_implementation"].get(word, "flash_2")
    settings.take("attention_kernel", kernel, *names, why="attention by sdpa")
    names = ("use_liger_kernel", "use_liger", "enable_liger_kernel")
    if any(name in settings for name in names):
        settings.take("loss", "liger", *names, note="its kernels of layers aren't modelled")
    if "packing" not in settings:
        reading.notes.append(
            "without packing sequences are shorter than their limit: the time of full ones is told"
        )
    _lora(settings)
    if not zero:
        _degrees(settings)
        _sharding(settings)
    settings.classify(keys_of(KEYS))


def _supervised(settings: Settings) -> None:
    """Refuse what learns from preferences: pairs of answers, and a reference model beside."""
    stage = settings.text("stage", default="sft")
    if stage not in ("pt", "sft"):
        settings.reading.fault(settings.by_name["stage"], stage, "isn't modelled; pt and sft are")
    named = next((name for name in PREFERENCES if settings.find(name) is not None), None)
    if named is not None:
        wrong = "is of training on preferences, which isn't modelled: pairs and a reference model"
        settings.reading.fault(settings.by_name[named], "", wrong)


def _model(settings: Settings) -> None:
    setting = settings.find("model_name_or_path", "model_name", "config_name")
    known = str(settings.reading.given.get("model", ""))
    if known.endswith(".json"):
        if setting is not None:
            settings.reading.notes.append(f"{Path(known).name} is taken for {setting.value}")
        return
    if setting is None:
        if "model" not in settings.reading.given:
            settings.reading.asks.append("--model")
        return
    settings.take("model", str(setting.value), setting.name)


def _batch(settings: Settings, *, zero: bool) -> None:
    given = settings.reading.given
    world = settings.overruled("world_size", None) or given.get("world_size", nan)
    if isnan(world):
        settings.reading.asks.append("--gpus")
    known = "micro_batch_size" in given
    if zero and known and "per_device_train_batch_size" not in settings.by_name:
        return
    name, why = "per_device_train_batch_size", "micro-batches of 8"
    micro = settings.take_number("micro_batch_size", name, usual=8.0, why=why)
    steps = settings.number("gradient_accumulation_steps", default=1.0)
    others = given.get("tp", 1.0) * given.get("cp", 1.0) * given.get("pp", 1.0)
    batch = micro * steps * world / others
    why = "no accumulation of gradients"
    settings.take("global_batch_size", batch, "gradient_accumulation_steps", name, why=why)
    count = settings.number("max_steps", default=-1.0)
    if count > 0.0:
        length = given.get("sequence_length", nan)
        settings.take("training_tokens", count * batch * length, "max_steps")


def _recompute(settings: Settings) -> None:
    own = "disable_gradient_checkpointing"  # LLaMA-Factory's, model_args.py @ff6d4d12ee
    names = (
        "gradient_checkpointing",
        "activation_checkpointing",
        "fsdp_config.fsdp_activation_checkpointing",
    )
    if any(name in settings for name in names):
        settings.take("recompute", "full", *names)
    elif _of_factory(settings):
        kind = "none" if own in settings else "full"
        settings.take("recompute", kind, own, why="layers recomputed, by LLaMA-Factory")
    else:
        settings.take("recompute", "none", *names, why="no recomputation")


def _precision(settings: Settings, *, zero: bool) -> None:
    mixed = settings.text("mixed_precision")
    held = settings.text("torch_dtype", "dtype").rpartition(".")[2]
    optimizer = settings.text("optim", default="adamw_torch_fused")
    if "pure_bf16" in settings:  # LLaMA-Factory's: without single precision anywhere
        mixed, held = "", "bfloat16"
    names = ("bf16", "fp16", "mixed_precision", "torch_dtype", "dtype", "pure_bf16")
    stated = [name for name in ("fp16", "bf16") if name in settings]
    if len(stated) > 1:
        settings.reading.fault(settings.by_name["fp16"], "", "stands beside bf16; one of both")
    dtype = stated[0] if stated else ""
    # Arguments rule over Accelerate's launcher: they set what it reads.
    if dtype or mixed in ("bf16", "fp16"):
        precision = dtype or mixed
    elif mixed == "fp8":
        precision = "fp8_current"
    elif held in ("bfloat16", "float16"):
        precision = "bf16" if held == "bfloat16" else "fp16"
    else:
        precision = "tf32" if "tf32" in settings else "fp32"
    settings.take("precision", precision, *names, why="single precision: neither bf16 nor fp16")
    if "recipe" in settings.reading.given:
        settings.find("optim")
        return
    if recipe := terms_of(KEYS)["optim"].get(optimizer):
        settings.take("recipe", recipe, "optim")
    elif held == "bfloat16" or (precision == "bf16" and not zero and _freezes(settings)):
        note = "weights and states in 16 bits, no master copy"
        settings.take("recipe", "bf16_adam", "torch_dtype", "dtype", "pure_bf16", note=note)
    elif precision in ("fp32", "tf32"):
        settings.take("recipe", "fp32_adam")
    elif zero:
        settings.take("recipe", "mixed_adam")
    else:
        note = "weights and states in single precision, computed in 16 bits"
        settings.take("recipe", "fsdp_adam", "optim", note=note)


def _of_factory(settings: Settings) -> bool:
    """Return whether settings are of LLaMA-Factory's files, which have a stage."""
    return any(name in settings.by_name for name in FACTORY)


def _adapts(settings: Settings) -> bool:
    """Return whether adapters are trained: by LLaMA-Factory unless its file says otherwise."""
    kind = settings.text("finetuning_type", default="lora" if _of_factory(settings) else "")
    ranks = not {"lora_r", "lora_rank"}.isdisjoint(settings.by_name)
    return "use_peft" in settings or kind == "lora" or (ranks and kind != "full")


def _freezes(settings: Settings) -> bool:
    """Return whether weights are frozen in 16 bits, as LLaMA-Factory loads those of adapters."""
    return _of_factory(settings) and _adapts(settings)


def _lora(settings: Settings) -> None:
    kind = settings.text("finetuning_type")
    if kind not in ("", "full", "lora"):
        setting = settings.by_name["finetuning_type"]
        settings.reading.fault(setting, kind, "isn't modelled; full and lora are")
    quantized = [name for name in QUANTIZED if name in settings]
    if quantized:
        settings.reading.notes.append(
            f"{', '.join(quantized)}: not modelled, so that weights have their 16 or 32 bits here: "
            "the memory of quantized ones is less"
        )
    rank = settings.number("lora_r", "lora_rank")
    if _adapts(settings):
        usual = 8.0 if _of_factory(settings) else 16.0
        rank = usual if isnan(rank) else rank
        settings.take("lora_rank", rank, "lora_r", "lora_rank", why=f"adapters of rank {usual:g}")
        targets = settings.text("lora_target_modules", "lora_target", default="all")
        mlp = any(word in targets for word in ("all", "gate_proj", "up_proj", "down_proj"))
        settings.take("lora_mlp", float(mlp), "lora_target_modules", "lora_target")


def _degrees(settings: Settings) -> None:
    """Take degrees of 1 where no file says otherwise: the Trainer splits batches alone."""
    for name in ("tp", "cp", "pp"):
        if name not in settings.reading.given:
            settings.take(name, 1.0)


def fsdp_words(settings: Settings) -> list[str]:
    """Return the words of the argument ``fsdp``, which may be a list; none where it is off."""
    words = re.findall(r"\w+", settings.text("fsdp").lower())
    return [] if words in (["false"], ["no"]) else words


def _sharding(settings: Settings) -> None:
    """Take how weights are sharded: by FSDP, or not at all."""
    kind = settings.text("distributed_type", default="").upper()
    words = fsdp_words(settings)
    table = "fsdp_config."
    strategy = settings.text(f"{table}fsdp_sharding_strategy", default="FULL_SHARD").upper()
    version = settings.text(f"{table}fsdp_version", default="1")
    if kind == "FSDP" or words or f"{table}fsdp_version" in settings.by_name:
        stage = terms_of(KEYS)["fsdp_sharding_strategy"].get(strategy, 3.0)
        if "shard_grad_op" in words:
            stage = 2.0
        if version == "2":
            kept = settings.text(f"{table}fsdp_reshard_after_forward", default="true").lower()
            stage = 2.0 if kept in FALSE else 3.0
        settings.take(
            "zero_stage",
            stage,
            f"{table}fsdp_sharding_strategy",
            f"{table}fsdp_reshard_after_forward",
            "distributed_type",
            "fsdp",
        )
        node = settings.reading.given.get("gpus_per_node", nan)
        if (
            strategy in terms_of(KEYS)["fsdp_hybrid"] or "hybrid_shard" in words
        ) and version == "1":
            settings.take("hsdp_shard_size", node, f"{table}fsdp_sharding_strategy")
        ahead = settings.text(f"{table}fsdp_backward_prefetch", default="NO_PREFETCH").upper()
        settings.take(
            "backward_prefetch", float(ahead != "NO_PREFETCH"), f"{table}fsdp_backward_prefetch"
        )
        settings.take_flag("forward_prefetch", f"{table}fsdp_forward_prefetch")
        for name in ("optimizer_offload", "parameter_offload"):
            settings.take_switch(name, f"{table}fsdp_offload_params")
        for name in settings.by_name:
            if name.startswith(table):
                settings.used.add(name)
        # A model that layers are recomputed around from outside keeps its cache, where it has one.
        outside = f"{table}fsdp_activation_checkpointing" in settings and "use_cache" in settings
        waits = "+no_sync" * _waits(settings)
        name = "torchtitan+eager" + "+kept_cache" * outside + waits
        note = "FSDP of PyTorch, not compiled"
        note += ", gradients whole until a step's last micro-batch" * bool(waits)
        settings.take("framework", name, note=note)
        if settings.reading.given.get("precision") in ("bf16", "fp16", "fp8_current"):
            settings.take("reduction_bytes", 2.0, note="FSDP reduces gradients in 16 bits")
    elif kind not in PLAIN:
        settings.reading.fault(
            settings.by_name["distributed_type"], kind, "isn't modelled; FSDP and DEEPSPEED are"
        )
    else:
        settings.take("zero_stage", 0.0, "distributed_type", why="DDP: ZeRO 0")
        _autocast(settings)


def _waits(settings: Settings) -> bool:
    """Return whether gradients of several micro-batches wait for the last, which reduces them."""
    names = ("global_batch_size", "micro_batch_size", "world_size", "tp", "cp", "pp")
    numbers = (
        settings.overruled(name, None) or settings.reading.given.get(name, nan) for name in names
    )
    whole, micro, world, *others = numbers
    return whole > micro * world / prod(others) and EACH_BATCH not in settings


def _autocast(settings: Settings) -> None:
    """Take the options of DDP: mixed precision is torch.autocast over single precision weights."""
    given = settings.reading.given
    mixed = given.get("recipe") == "fsdp_adam" and given.get("precision") in ("bf16", "fp16")
    note = "DDP of PyTorch, not compiled" + ", under torch.autocast" * mixed
    settings.take("framework", "torchtitan+eager" + "+autocast" * mixed, note=note)


def read_accelerate(settings: Settings) -> None:
    """Take the GPUs and their nodes from Accelerate's configuration."""
    for name in ("tp", "cp"):
        settings.take_number(name, f"parallelism_config.parallelism_config_{name}_size")
    count = settings.take_number("world_size", "num_processes")
    machines = settings.number("num_machines", default=1.0)
    if not isnan(count) and count % machines == 0.0:
        settings.take("gpus_per_node", count / machines, "num_machines")


def zero_of_accelerate(settings: Settings) -> list[Setting]:
    """Return the DeepSpeed configuration that Accelerate's own keys spell out."""
    prefix = "deepspeed_config."
    settings_read = []
    for name, path in ZERO.items():
        setting = settings.find(prefix + name)
        if setting is not None:
            settings_read.append(Setting(path, setting.value, setting.location, setting.shown))
    if f"{prefix}zero_stage" not in settings.by_name:
        settings.reading.defaults.append("ZeRO 2")
        location = Location(settings.reading.file)
        settings_read.append(Setting("zero_optimization.stage", 2, location, "distributed_type"))
    return settings_read


def launcher_settings(options: Mapping[str, Word], file: str) -> Iterator[Setting]:
    """Yield what Accelerate's launcher is given, as its configuration file has it."""
    for flag, word in options.items():
        name, location = flag.lstrip("-").replace("-", "_"), Location(file, word.line)
        if name in ("use_fsdp", "use_deepspeed"):
            yield Setting("distributed_type", name[4:].upper(), location, flag)
        elif name.startswith("fsdp_"):
            yield Setting(f"fsdp_config.{name}", word.text, location, flag)
        elif name in ZERO or name == "deepspeed_config_file":
            yield Setting(f"deepspeed_config.{name}", word.text, location, flag)
        elif name == "mixed_precision":
            yield Setting(name, word.text, location, flag)
