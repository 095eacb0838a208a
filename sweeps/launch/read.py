"""Launch files of training frameworks, read as quantities and labels; nothing of them is run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweeps.errors import InputError
from sweeps.launch import (
    read_bridge,
    read_deepspeed,
    read_hugging_face,
    read_maxtext,
    read_megatron,
    read_torchtitan,
)
from sweeps.launch.arguments import Override, Settings, keys_of
from sweeps.launch.documents import json_settings, toml_settings, typed, yaml_settings
from sweeps.launch.launcher import Launch, launches
from sweeps.launch.python_config import Calls
from sweeps.launch.setting import Place, Reading, Setting, few, unreadable
from sweeps.launch.shell import Script, Word, read_script
from sweeps.spec.files import is_file

# A command with fewer of a framework's arguments isn't taken for one of it.
FEW = 3
LARGEST = 10**7  # bytes of a file
MOST_SHOWN = 5  # faults of a file that a script names
KINDS = (
    "a shell script with Megatron-LM's or Hugging Face's arguments, torchtitan's TOML or Python, "
    "DeepSpeed's JSON, YAML of Megatron-Bridge, NeMo, MaxText or Accelerate"
)
Overrides = Mapping[str, Override]


def read_launch(path: str, overrides: Overrides | None = None) -> Reading:
    """Read a launch file.

    Parameters
    ----------
    path : str
        The file; of one with several Python functions ``FILE.py:FUNCTION``; ``-`` is standard
        input.
    overrides : mapping of str to Override, optional
        What the command line gives, by quantity: it rules over the file.

    Returns
    -------
    Reading
        Quantities and labels, where each comes from, and what became of every setting.

    Raises
    ------
    InputError
        With every fault of the file, a line each.
    """
    name, function = path, ""
    if (found := re.fullmatch(r"(.*\.py):(\w+)", path)) is not None:
        name, function = found[1], found[2]
    file = Path(name)
    text = sys.stdin.read() if path == "-" else _text(file)
    if path == "-":
        file = Path("standard input")
    reading = _read(text, file, function, overrides or {})
    if reading.faults:
        raise InputError(list(dict.fromkeys(reading.faults)))
    return reading


def _text(path: Path) -> str:
    try:
        folder, size = path.is_dir(), path.stat().st_size
        data = b"" if folder or size > LARGEST else path.read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(path, getattr(error, "strerror", None) or "can't be opened") from None
    if folder:
        raise unreadable(path, "is a folder; name the launch file in it")
    if size > LARGEST:
        raise unreadable(path, "is too large for a launch file")
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _read(text: str, path: Path, function: str, overrides: Overrides) -> Reading:
    """Read a file by what it holds."""
    file, start = path.name, text.lstrip()
    if start.startswith("{"):
        return _of_json(text, file, overrides)
    if path.suffix == ".py" or "Trainer.Config" in text:
        return _of_python(text, file, function, overrides)
    if re.search(r"^\s*\[(training|parallelism|model|job)\]", text, re.MULTILINE):
        return _of_toml(text, file, overrides)
    first = re.search(r"^(?!\s*(#|---|$)).+", text, re.MULTILINE)
    keyed = first is not None and re.match(r"[A-Za-z_]\w*:(\s|$)", first[0])
    if path.suffix in (".yaml", ".yml") or keyed:
        return _of_yaml(text, path, overrides)
    return _of_shell(text, path, overrides)


def _of_json(text: str, file: str, overrides: Overrides) -> Reading:
    settings = json_settings(text, file)
    names = {setting.name for setting in settings}
    if not any(
        name.startswith(("zero_optimization", "train_")) or name in ("bf16.enabled", "fp16.enabled")
        for name in names
    ):
        kind = (
            "a model's config.json is given by --model"
            if "model_type" in names
            else f"what can be read: {KINDS}"
        )
        raise unreadable(file, f"is no DeepSpeed configuration; {kind}")
    found = Settings(settings, Reading(read_deepspeed.FORMAT, file), overrides)
    read_deepspeed.read_config(found)
    if not {"model", "layers"} & overrides.keys():
        found.reading.asks.append("--model")
    if "sequence_length" not in overrides:
        found.reading.asks.append("--seq-length")
    return found.reading


def _of_toml(text: str, file: str, overrides: Overrides) -> Reading:
    generation = read_torchtitan.TOML
    found = Settings(toml_settings(text, file), Reading(generation.format, file), overrides)
    read_torchtitan.read_job(found, generation)
    return found.reading


def _of_python(text: str, file: str, function: str, overrides: Overrides) -> Reading:
    calls = Calls(text, file)
    known = calls.configurations()
    if function and function not in calls.functions:
        raise unreadable(file, f"has no function {function}; it has {', '.join(known) or 'none'}")
    if not known and not function:
        raise unreadable(
            file, f"has no function that returns a configuration; what can be read: {KINDS}"
        )
    if len(known) > 1 and not function:
        raise unreadable(file, f"which function? {', '.join(known)}: {file}:{known[0]}")
    settings = [*read_torchtitan.of_python(calls.settings(function or known[0]))]
    generation = read_torchtitan.PYTHON
    found = Settings(settings, Reading(generation.format, file), overrides)
    read_torchtitan.read_job(found, generation)
    return found.reading


def _of_yaml(text: str, path: Path, overrides: Overrides) -> Reading:
    file = path.name
    settings = yaml_settings(text, file)
    names = {setting.name for setting in settings}
    if {"per_device_batch_size", "base_config", "ici_fsdp_parallelism", "base_emb_dim"} & names:
        found = Settings(settings, Reading(read_maxtext.FORMAT, file), overrides)
        read_maxtext.read_config(found)
        return found.reading
    if "distributed_type" in names or "compute_environment" in names:
        found = Settings(settings, Reading(read_hugging_face.ACCELERATE, file), overrides)
        read_hugging_face.read_accelerate(found)
        _hugging_face(found, None, path)
        return found.reading
    if {"per_device_train_batch_size", "model_name_or_path"} & names:
        found = Settings(settings, Reading(read_hugging_face.FORMAT, file), overrides)
        _hugging_face(found, None, path)
        return found.reading
    if any(name.startswith(("model.", "trainer.", "train.", "ddp.")) for name in names):
        return _of_bridge(settings, file, overrides)
    raise unreadable(file, f"is no launch file that is known; what can be read: {KINDS}")


def _of_bridge(settings: list[Setting], file: str, overrides: Overrides) -> Reading:
    reading = Reading(read_bridge.FORMAT, file)
    read_bridge.check_lengths(settings, reading)
    world = read_bridge.world_of(Settings(settings, reading, overrides))
    arguments = {one.name: one for one in read_bridge.arguments_of(settings, reading)}
    found = Settings(arguments.values(), reading, overrides)
    padded = not any(one.name == read_bridge.PADDED and one.value is False for one in settings)
    read_megatron.read_arguments(found, world, padded=padded)
    reading.version = read_bridge.VERSION
    return reading


def _of_shell(text: str, path: Path, overrides: Overrides) -> Reading:
    """Read the command that trains in a shell script, with the files that it names."""
    script, file = read_script(text), path.name
    for launch in launches(script, file):
        reading = _of_command(launch, script, path, overrides)
        if reading is None:
            continue
        for name, value in script.arguments.items():
            reading.notes.append(f"argument {name} of the script is {value}, its own default")
        added = [word for word in script.conditional if word.text.startswith("--")]
        if added:
            place, names = Place(file, added[0].line), few([word.text for word in added])
            reading.notes.append(f"{place}: added only if a condition holds, so skipped: {names}")
        return reading
    raise unreadable(
        file, f"has no command that trains with arguments that are known; what can be read: {KINDS}"
    )


def _of_command(launch: Launch, script: Script, path: Path, overrides: Overrides) -> Reading | None:
    """Read a command by the framework whose arguments it has most of."""
    file = path.name
    megatron, hugging = keys_of(read_megatron.KEYS), keys_of(read_hugging_face.KEYS)
    settings = [*read_megatron.settings_of(launch.words, file)]
    theirs = [*read_hugging_face.settings_of(launch.words, file)]
    pairs = [*assigned(launch.words, file)]
    own = sum(setting.name in megatron for setting in settings)
    others = sum(setting.name in hugging for setting in theirs)
    if len(pairs) >= FEW and len(pairs) > max(own, others):
        return _of_pairs(pairs, launch, file, overrides)
    if own >= FEW and own >= others:
        reading = Reading(read_megatron.FORMAT, file)
        found = Settings(settings, reading, overrides, script.unknown)
        read_megatron.read_arguments(found, _world(found, launch))
        reading.notes += _tp_overlap(found, path)
        return reading
    if others >= FEW:
        reading = Reading(read_hugging_face.FORMAT, file)
        theirs += _accelerate(launch, path, reading)
        found = Settings(theirs, reading, overrides, script.unknown)
        if launch.world_size is None and "num_processes" in found.by_name:
            read_hugging_face.read_accelerate(found)
        else:
            _world(found, launch)
        _hugging_face(found, script, path)
        return reading
    return None


def assigned(words: Sequence[Word], file: str) -> Iterator[Setting]:
    """Yield what a command is given as ``name=value``, as MaxText and NeMo take it."""
    for word in words:
        if (
            found := re.fullmatch(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", word.text, re.DOTALL)
        ) is not None:
            yield Setting(found[1], typed(found[2]), Place(file, word.line))


def _of_pairs(
    pairs: list[Setting], launch: Launch, file: str, overrides: Overrides
) -> Reading | None:
    """Read ``name=value`` as MaxText's settings, or as NeMo's."""
    if any(one.name.startswith(("model.", "trainer.", "train.")) for one in pairs):
        return _of_bridge(pairs, file, overrides)
    if sum(one.name in keys_of(read_maxtext.KEYS) for one in pairs) < FEW:
        return None
    found = Settings(pairs, Reading(read_maxtext.FORMAT, file), overrides)
    if launch.world_size is not None:
        _world(found, launch)
    read_maxtext.read_config(found)
    return found.reading


def _hugging_face(found: Settings, script: Script | None, path: Path) -> None:
    """Read training arguments, with the DeepSpeed configuration that they name or spell out."""
    settings = _zero(found, script, path)
    if settings is None:
        read_hugging_face.read_training(found, zero=False)
        return
    reading = found.reading
    reading.format = f"{reading.format} with DeepSpeed"
    zero = Settings(settings, reading, found.overrides)
    said = zero.by_name.get("train_micro_batch_size_per_gpu")
    auto = said is None or said.value == read_deepspeed.AUTO
    if auto:
        read_hugging_face.read_training(found, zero=True)
        for name, key in read_deepspeed.FROM_ARGUMENTS.items():
            own = zero.by_name.pop(name, None)
            if key in found.by_name:
                zero.by_name[name] = replace(found.by_name[key], name=name)
            elif own is not None and own.value != read_deepspeed.AUTO:
                zero.by_name[name] = own
        zero.by_name.setdefault(
            "train_micro_batch_size_per_gpu",
            Setting("train_micro_batch_size_per_gpu", 8, Place(reading.file)),
        )
        zero.by_name.pop("train_batch_size", None)
        for name in ("global_batch_size", "training_tokens"):
            reading.given.pop(name, None)
    read_deepspeed.read_config(zero, beside=True)
    if not auto:
        read_hugging_face.read_training(found, zero=True)


def _zero(found: Settings, script: Script | None, path: Path) -> list[Setting] | None:
    """Return the DeepSpeed configuration that is named or spelled out; None where there is none."""
    keys = ("deepspeed", "deepspeed_config.deepspeed_config_file")
    named = found.text(*keys)
    if not named or named.lower() in ("true", "false"):
        by_type = found.text("distributed_type").upper() == "DEEPSPEED"
        return read_hugging_face.zero_of_accelerate(found) if by_type else None
    known = _beside(path, named)
    if script is not None and named in script.documents:
        text, line = script.documents[named]
        return [
            replace(one, place=Place(path.name, line + one.place.line - 1))
            for one in json_settings(text, f"{path.name}: {named}")
        ]
    if known is not None:
        return json_settings(_text(known), known.name)
    setting = next(found.by_name[key] for key in keys if key in found.by_name)
    found.reading.fault(setting, named, "isn't there, nor beside the file")
    return None


def _accelerate(launch: Launch, path: Path, reading: Reading) -> list[Setting]:
    """Return what Accelerate's launcher is given, with the configuration file that it names."""
    settings = [*read_hugging_face.launcher_settings(launch.accelerate, path.name)]
    word = launch.accelerate.get("--config_file")
    if word is None:
        return settings
    known, own = _beside(path, word.text), {one.name for one in settings}
    if known is None:
        setting = Setting("--config_file", word.text, Place(path.name, word.line))
        reading.fault(setting, word.text, "isn't there, nor beside the file")
        return settings
    # The launcher's options rule over its file.
    return settings + [
        one for one in yaml_settings(_text(known), known.name) if one.name not in own
    ]


def _beside(path: Path, named: str) -> Path | None:
    """Return the file that a launch file names, where it is there."""
    beside = [folder / named for folder in (path.parent, Path(), *path.parents[1:])]
    beside.append(path.parent / Path(named).name)
    return next((one for one in beside if is_file(one)), None)


def _tp_overlap(settings: Settings, path: Path) -> Iterator[str]:
    """Yield what is wrong with the layers' settings of overlap that a script names."""
    named = settings.text("--tp-comm-overlap-cfg")
    known = _beside(path, named) if named else None
    if known is None:
        return
    from sweeps.tuner.validate import validate_file

    try:
        found = validate_file(known)
    except InputError as error:
        yield from error.faults
        return
    wrong = [one.shown(known.name) for one in found if one.severity != "note"]
    yield from wrong[:MOST_SHOWN]
    if len(wrong) > MOST_SHOWN:
        yield f"{known.name}: {len(wrong) - MOST_SHOWN} more: sweeps tune --validate {known.name}"


def _world(settings: Settings, launch: Launch) -> float | None:
    """Take the number of GPUs from the launcher, or ask for it."""
    ruled = settings.overruled("world_size", launch.settings.get("world_size"))
    for name, value in (("world_size", launch.world_size), ("gpus_per_node", launch.gpus_per_node)):
        if value is not None and name not in settings.overrides:
            settings.reading.take(name, float(value), launch.settings[name])
    if ruled is None and launch.world_size is None and "nodes" not in settings.overrides:
        settings.reading.asks.append("--gpus")
    return ruled if ruled is not None else launch.world_size
