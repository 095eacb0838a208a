"""DeepSpeed's configuration as quantities, alone or beside Hugging Face's arguments.

What isn't said is as deepspeed/runtime/config.py and deepspeed/runtime/zero/config.py have it at
DeepSpeed 0.19.6; what is ``"auto"`` comes from the arguments beside it (transformers,
integrations/deepspeed.py).
"""

from __future__ import annotations

from math import isnan, nan

from sweeps.launch.arguments import Settings
from sweeps.launch.setting import Setting
from sweeps.launch.terms import keys_of, terms_of

FORMAT = "DeepSpeed JSON"
VERSION = "DeepSpeed 0.19.6"
KEYS = "deepspeed"
AUTO = "auto"
BATCHES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
# What "auto" takes from Hugging Face's arguments.
FROM_ARGUMENTS = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
UNKNOWN_OPTIMIZERS = ("onebitadam", "zerooneadam", "onebitlamb")


def read_config(settings: Settings, *, beside: bool = False) -> None:
    """Take quantities from a configuration; `beside` arguments that say what is ``auto``."""
    reading = settings.reading
    reading.version = reading.version or VERSION
    for setting in list(settings.by_name.values()):
        if setting.value == AUTO:
            if not beside and setting.name.rpartition(".")[2] not in terms_of(KEYS)["auto_free"]:
                wrong = "comes from Hugging Face's arguments, which stand beside no file here"
                reading.fault(setting, AUTO, f"{wrong}; give a value")
            del settings.by_name[setting.name]
    degrees = _degrees(settings)
    world = settings.overruled("world_size", None) or reading.given.get("world_size", nan)
    if isnan(world):
        reading.asks.append("--gpus")
    dp = world / (degrees["tp"] * degrees["pp"] * degrees["cp"])
    _batch(settings, dp)
    stage = _zero(settings, dp)
    _precision(settings, beside=beside)
    overlap = settings.find("zero_optimization.overlap_comm")
    on = stage == 3.0 if overlap is None else bool(overlap.value)
    if not on:
        why = f"no overlap_comm at stage {stage:g}"
        settings.take("dp_overlap", 0.0, "zero_optimization.overlap_comm", why=why)
    settings.take("framework", "deepspeed")
    settings.classify(keys_of(KEYS))
    again = [name for name in reading.not_modelled if name.startswith("activation_check")]
    if again:
        reading.not_modelled = [name for name in reading.not_modelled if name not in again]
        reading.notes.append(
            f"{again[0]} doesn't switch recomputation on: the model's code does; "
            "give --recompute full where it does"
        )


def _degrees(settings: Settings) -> dict[str, float]:
    degrees = {}
    for name, key in (
        ("tp", "tensor_parallel.autotp_size"),
        ("cp", "sequence_parallel_size"),
        ("pp", "pipeline.stages"),
    ):
        degrees[name] = max(settings.number(key, quantity=name, default=1.0), 1.0)
        settings.take(name, degrees[name], key)
    if degrees["cp"] > 1.0:
        settings.take("context_parallel", "all_to_all", "sequence_parallel_size")
    if degrees["tp"] > 1.0:
        settings.take("sequence_parallel", 0.0)
    return degrees


def _batch(settings: Settings, dp: float) -> None:
    """Take the batch: two of its three numbers suffice, three that differ are refused."""
    numbers = {key: settings.number(key) for key in BATCHES}
    micro, steps, whole = numbers.values()
    ruled = {"micro_batch_size", "global_batch_size"} & settings.overrides.keys()
    if isnan(steps) and isnan(whole):
        steps = 1.0
    if isnan(micro):
        micro = whole / dp / (1.0 if isnan(steps) else steps)
    if isnan(steps):
        steps = whole / dp / micro
    product = micro * steps * dp
    if isnan(whole):
        whole = product
    elif not isnan(product) and whole != product and not ruled:
        wrong = f"isn't {micro:g} * {steps:g} * {dp:g} = {product:g}"
        wrong += " (micro-batch, accumulation, data-parallel ranks)"
        settings.reading.fault(settings.by_name["train_batch_size"], f"{whole:g}", wrong)
        return
    if isnan(micro) and "micro_batch_size" not in settings.reading.given:
        settings.reading.asks.append("--micro-batch-size")
    settings.take("micro_batch_size", micro, BATCHES[0], why="the batch in equal parts")
    settings.take("global_batch_size", whole, BATCHES[2], BATCHES[0])


def _zero(settings: Settings, dp: float) -> float:
    """Take the stage of ZeRO with what is offloaded; return the stage."""
    prefix = "zero_optimization."
    stage = settings.number(f"{prefix}stage", quantity="zero_stage", default=0.0)
    settings.take("zero_stage", stage, f"{prefix}stage", why="no ZeRO")
    old = f"{prefix}cpu_offload" in settings
    device = settings.text(f"{prefix}offload_optimizer.device", default="cpu" if old else "none")
    if old:
        settings.reading.notes.append(
            f"{prefix}cpu_offload is read as offload_optimizer.device = cpu"
        )
    if device == "cpu":
        ratio = settings.number(f"{prefix}offload_optimizer.ratio", default=1.0, whole=False)
        settings.take(
            "optimizer_offload",
            ratio if stage == 3.0 else 1.0,
            f"{prefix}offload_optimizer.device",
            f"{prefix}cpu_offload",
        )
    elif device == "nvme":
        setting = settings.by_name[f"{prefix}offload_optimizer.device"]
        settings.reading.fault(setting, device, "isn't modelled; cpu is")
    _offloaded_weights(settings, stage)
    ahead = settings.number(f"{prefix}stage3_prefetch_bucket_size", whole=False)
    if not isnan(ahead):
        if stage == 3.0:
            settings.take("prefetched_elements", ahead, f"{prefix}stage3_prefetch_bucket_size")
        else:
            settings.reading.notes.append(
                f"{prefix}stage3_prefetch_bucket_size has no effect at stage {stage:g}"
            )
    if f"{prefix}zero_quantized_weights" in settings and stage == 3.0:
        settings.take("gathered_bytes", 1.0, f"{prefix}zero_quantized_weights")
    size = settings.number(f"{prefix}mics_shard_size", default=-1.0)
    if size > 0.0:
        settings.take("hsdp_shard_size", size, f"{prefix}mics_shard_size")
    return stage


def _offloaded_weights(settings: Settings, stage: float) -> None:
    """Take whether weights wait in host memory, which stage 3 alone has."""
    name = "zero_optimization.offload_param.device"
    old = "zero_optimization.cpu_offload_param"
    setting = settings.find(name, old)
    device = settings.text(name, default="cpu" if old in settings else "none").lower()
    if setting is None or device == "none":
        return
    if stage != 3.0:
        settings.reading.fault(setting, "", f"needs stage 3; here it is {stage:g}")
    elif device == "nvme":
        settings.reading.fault(setting, device, "isn't modelled; cpu is")
    else:
        settings.take("parameter_offload", 1.0, setting.name)


def _precision(settings: Settings, *, beside: bool) -> None:
    reading = settings.reading
    wide = "bf16.enabled" in settings or "bfloat16.enabled" in settings
    half = "fp16.enabled" in settings
    if wide and half:
        setting: Setting = settings.by_name["fp16.enabled"]
        reading.fault(setting, "", "stands beside bf16.enabled; one of both")
    if wide or half:
        names = ("bf16.enabled", "bfloat16.enabled", "fp16.enabled")
        settings.take("precision", "bf16" if wide else "fp16", *names)
        masters = "bf16.bf16_master_weights_and_grads"
        recipe = "bf16_adam" if masters in settings and wide else "mixed_adam"
        settings.take("recipe", recipe, masters)
        settings.find("bf16.bf16_optimizer_states")
    elif not beside:
        settings.take("precision", "fp32", why="neither bf16 nor fp16: single precision")
        settings.take("recipe", "fp32_adam")
    if settings.text("data_types.grad_accum_dtype") == "fp32" and (wide or half):
        settings.take("gradient_bytes", 4.0, "data_types.grad_accum_dtype")
    kind = settings.find("optimizer.type")
    if kind is not None and str(kind.value).lower() in UNKNOWN_OPTIMIZERS:
        reading.fault(kind, str(kind.value), "isn't modelled; Adam and AdamW are")
