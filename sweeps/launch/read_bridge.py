"""Megatron-Bridge's and NeMo's YAML as Megatron-LM's arguments.

What isn't said is as NVIDIA-NeMo/Megatron-Bridge @067f987df has it in pretraining recipes:
src/megatron/bridge/recipes, training/mixed_precision.py, training/config.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from sweeps.launch.arguments import Settings
from sweeps.launch.setting import Location, Reading, Setting
from sweeps.launch.terms import MEGATRON, keys_of, terms_of

FORMAT = "Megatron-Bridge YAML"
VERSION = "Megatron-Bridge @067f987df"
KEYS = "megatron-bridge"
PADDED = "model.should_pad_vocab"  # read elsewhere
NODES, DEVICES = ("trainer.num_nodes", "num_nodes"), ("trainer.devices", "devices")


def arguments_of(settings: list[Setting], reading: Reading) -> Iterator[Setting]:
    """Yield a recipe's fields as Megatron-LM's arguments; of the rest say what becomes of it."""
    known, words = keys_of(MEGATRON), terms_of(KEYS)
    # What is null is as if it weren't there: NeMo's files name all groups and ranks.
    names = {setting.name for setting in settings if setting.value is not None}
    for setting in settings:
        field = setting.name.rpartition(".")[2]
        top = setting.name.partition(".")[0]
        if setting.name == "mixed_precision":
            yield from _mixed(setting, reading)
        elif setting.name in words["says"]:
            yield from _said(setting, reading)
        elif setting.name in (*NODES, *DEVICES, PADDED):
            continue
        elif top in words["no_cost"]:
            reading.no_cost.append(setting.name)
        elif field in words["opposite"]:
            if setting.value is False:
                yield Setting(words["opposite"][field], "true", setting.location, setting.name)
        elif setting.value is None or setting.value is False:
            continue
        else:
            flag = words["renamed"].get(field, f"--{field.replace('_', '-')}")
            name = flag if flag in known else setting.name
            yield Setting(name, _text(setting), setting.location, setting.name)
    yield from _implied(names, settings, reading)


def _implied(names: set[str], settings: list[Setting], reading: Reading) -> Iterator[Setting]:
    """Yield what a recipe's fields say without an argument's name, and what recipes start from."""
    nowhere = Location(reading.file)
    where = {setting.name: setting.location for setting in settings}
    if "model.num_query_groups" in names:
        key = "model.num_query_groups"
        yield Setting("--group-query-attention", "true", where[key], key)
    if "model.kv_lora_rank" in names:
        key = "model.kv_lora_rank"
        yield Setting("--multi-latent-attention", "true", where[key], key)
    if names & {"optim.name", "model.optim.name"}:
        # NeMo's: Megatron-LM's own defaults, and the optimizer by its name.
        if "trainer.precision" not in names:
            yield Setting("--bf16", "true", nowhere)
        return
    if "model.position_embedding_type" not in names:
        yield Setting("--position-embedding-type", "rope", nowhere)
    if not any(name.startswith("mixed_precision") for name in names):
        reading.defaults.append("bf16_mixed: gradients in 4 bytes")
        yield Setting("--bf16", "true", nowhere)
    for name in ("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"):
        if f"ddp.{name}" not in names:
            yield Setting(f"--{name.replace('_', '-')}", "true", nowhere)
    for field, usual in (("micro_batch_size", 2), ("global_batch_size", 32)):
        if f"train.{field}" not in names and f"model.{field}" not in names:
            reading.defaults.append(f"{field} {usual}")
            yield Setting(f"--{field.replace('_', '-')}", str(usual), nowhere)


def _said(setting: Setting, reading: Reading) -> Iterator[Setting]:
    """Yield the arguments that a word of NeMo's stands for; a word that isn't known is refused."""
    said = terms_of(KEYS)["says"][setting.name]
    known = said.get(str(setting.value).lower())
    if known is None:
        reading.fault(setting, str(setting.value), f"isn't known; {', '.join(said)} are")
        return
    reading.note_read(setting)
    for argument in known:
        name, _, value = argument.partition(" ")
        yield Setting(name, value or "true", setting.location, setting.name)


def _mixed(setting: Setting, reading: Reading) -> Iterator[Setting]:
    mixed = terms_of(KEYS)["mixed_precision"]
    known = mixed.get(str(setting.value))
    if known is None:
        reading.fault(setting, str(setting.value), f"isn't known; {', '.join(mixed)} are")
        return
    low = any("fp8-recipe" in key for key in known)
    extra = (*("--bf16",) * ("--fp16" not in known), *("--fp8-format hybrid",) * low)
    for argument in dict.fromkeys((*known, *extra)):
        name, _, value = argument.partition(" ")
        yield Setting(name, value or "true", setting.location, setting.name)


def _text(setting: Setting) -> str:
    value = setting.value
    if value is True:
        return "true"
    if isinstance(value, list):
        if setting.name.endswith(("layer_freq", "attention_freq", "skip_freq", "window_size")):
            return str(value)
        return " ".join(map(str, value))
    return str(value)


def world_of(settings: Settings) -> float | None:
    """Take the nodes and their GPUs."""
    nodes, each = settings.number(*NODES), settings.number(*DEVICES)
    ruled = settings.overruled("world_size", None)
    if isnan(nodes) or isnan(each):
        if ruled is None:
            settings.reading.asks.append("--gpus")
        return ruled
    settings.take("world_size", nodes * each, *NODES)
    settings.take("gpus_per_node", each, *DEVICES)
    return nodes * each if ruled is None else ruled


def check_lengths(settings: list[Setting], reading: Reading) -> None:
    """Refuse a length of sequences that is said twice with two values."""
    said = [setting for setting in settings if setting.name in terms_of(KEYS)["lengths"]]
    if len({str(argument.value) for argument in said}) > 1:
        texts = " and ".join(f"{argument.name} {argument.value}" for argument in said)
        reading.faults.append(f"{reading.file}: {texts}: differ; give one length")
