"""Hugging Face's files together: training arguments, Accelerate's, DeepSpeed's, a model's.

They are one run: transformers gives DeepSpeed what its file leaves ``"auto"``, and refuses what
differs (integrations/deepspeed.py of transformers 5.24.0); Accelerate says how many processes run
and how they shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweeps.errors import InputError
from sweeps.launch import read_deepspeed, read_hugging_face
from sweeps.launch.arguments import FALSE, Override, Settings
from sweeps.launch.documents import json_settings, yaml_settings
from sweeps.launch.launcher import Launch
from sweeps.launch.named_files import beside, text_of
from sweeps.launch.setting import Location, Reading, Setting
from sweeps.launch.shell import Script

TRAINING, ACCELERATE, ZERO, MODEL = "training", "accelerate", "deepspeed", "model"
KINDS = (TRAINING, ACCELERATE, ZERO, MODEL)
# A file of training arguments has one of these.
_ARGUMENTS = frozenset(
    ("per_device_train_batch_size", "model_name_or_path", "num_train_epochs", "output_dir")
)
_SHAPES = frozenset(("hidden_size", "num_hidden_layers", "n_layer", "architectures"))
FSDP = "fsdp_config."


@dataclass(frozen=True, slots=True)
class Part:
    """One of the files."""

    path: Path
    kind: str
    settings: Sequence[Setting]


@dataclass(slots=True)
class Parts:
    """The files that were given beside each other; they are taken once."""

    parts: Sequence[Part] = ()
    taken: list[Part] = field(default_factory=list)

    def of(self, kind: str) -> list[Part]:
        """Return the files of a kind, which count as taken."""
        parts_of_kind = [part for part in self.parts if part.kind == kind]
        self.taken += [part for part in parts_of_kind if part not in self.taken]
        return parts_of_kind

    def settings(self, kind: str) -> list[Setting]:
        """Return the settings of the files of a kind."""
        return [setting for part in self.of(kind) for setting in part.settings]


def kind_of(names: Iterable[str]) -> str:
    """Return which of the files has settings of these names; empty for none of them."""
    keys = {*names}
    if keys & {"distributed_type", "compute_environment"}:
        return ACCELERATE
    if keys & _ARGUMENTS:
        return TRAINING
    if any(key.startswith(("zero_optimization", "train_")) for key in keys) or keys & {
        "bf16.enabled",
        "fp16.enabled",
    }:
        return ZERO
    return MODEL if "model_type" in keys or len(keys & _SHAPES) > 1 else ""


def read_parts(parts: Parts, overrides: Mapping[str, Override]) -> Reading:
    """Read the files of one run without a script."""
    untaken = [part for part in parts.parts if part not in parts.taken]
    names = ", ".join(part.path.name for part in untaken)
    kinds = [kind for kind in KINDS if any(part.kind == kind for part in untaken)]
    formats = {
        TRAINING: read_hugging_face.FORMAT,
        ACCELERATE: read_hugging_face.ACCELERATE,
        ZERO: read_deepspeed.FORMAT,
        MODEL: "a model's configuration",
    }
    reading = Reading(", ".join(formats[kind] for kind in kinds), names)
    settings = [*parts.settings(TRAINING), *parts.settings(ACCELERATE)]
    settings_read = Settings(spelled(settings), reading, overrides)
    if not {TRAINING, ACCELERATE} & {*kinds}:
        take_model(settings_read, parts)
        if ZERO in kinds:
            read_deepspeed.read_config(Settings(parts.settings(ZERO), reading, overrides))
            if not {"model", "layers"} & (overrides.keys() | reading.given.keys()):
                reading.asks.append("--model")
            if "sequence_length" not in overrides:
                reading.asks.append("--seq-length")
        return reading
    if ACCELERATE in kinds:
        read_hugging_face.read_accelerate(settings_read)
    read_training(settings_read, None, untaken[0].path, parts)
    return reading


def take_model(settings: Settings, parts: Parts) -> None:
    """Take the model whose config.json is given."""
    models = parts.of(MODEL)
    if len(models) > 1:
        names = ", ".join(str(part.path) for part in models)
        settings.reading.faults.append(f"{names}: two models; give one")
    for part in models[:1]:
        name = part.path.name
        if part.path.suffix != ".json":
            settings.reading.faults.append(
                f"{name}: a model's configuration; give it as a .json file"
            )
        elif "model" not in settings.overrides:
            setting = Setting("config.json", str(part.path), Location(name))
            settings.reading.take("model", str(part.path), setting)


def spelled(settings: Iterable[Setting]) -> list[Setting]:
    """Return settings as Accelerate spells those of FSDP; training arguments may leave a prefix."""
    respelled = []
    for setting in settings:
        key = setting.name.removeprefix(FSDP)
        if setting.name.startswith(FSDP) and not key.startswith("fsdp_"):
            name = f"{FSDP}fsdp_{key}"
            setting = replace(setting, name=name, label=setting.shown)  # noqa: PLW2901
        respelled.append(setting)
    return respelled


def read_training(fsdp: Settings, script: Script | None, path: Path, parts: Parts) -> None:
    """Read training arguments, with the DeepSpeed configuration that they name or spell out."""
    take_model(fsdp, parts)
    _follow_fsdp(fsdp, path)
    settings = _zero(fsdp, script, path, parts)
    if settings is None:
        read_hugging_face.read_training(fsdp, zero=False)
        return
    reading = fsdp.reading
    if "DeepSpeed" not in reading.format:
        reading.format = f"{reading.format} with DeepSpeed"
    if read_hugging_face.fsdp_words(fsdp):
        reading.fault(fsdp.by_name["fsdp"], "", "stands beside DeepSpeed; one of the two")
    zero = Settings(settings, reading, fsdp.overrides)
    _check_same(fsdp, zero)
    said = zero.by_name.get("train_micro_batch_size_per_gpu")
    auto = said is None or said.value == read_deepspeed.AUTO
    if auto:
        read_hugging_face.read_training(fsdp, zero=True)
        for name, key in read_deepspeed.FROM_ARGUMENTS.items():
            zero_setting = zero.by_name.pop(name, None)
            if key in fsdp.by_name:
                zero.by_name[name] = replace(fsdp.by_name[key], name=name)
            elif zero_setting is not None and zero_setting.value != read_deepspeed.AUTO:
                zero.by_name[name] = zero_setting
        zero.by_name.setdefault(
            "train_micro_batch_size_per_gpu",
            Setting("train_micro_batch_size_per_gpu", 8, Location(reading.file)),
        )
        zero.by_name.pop("train_batch_size", None)
        for name in ("global_batch_size", "training_tokens"):
            reading.given.pop(name, None)
    read_deepspeed.read_config(zero, beside=True)
    if not auto:
        read_hugging_face.read_training(fsdp, zero=True)


# What transformers compares: DeepSpeed's settings with its own arguments.
_SAME = {
    **read_deepspeed.FROM_ARGUMENTS,
    "bf16.enabled": "bf16",
    "fp16.enabled": "fp16",
}


def _check_same(settings: Settings, zero: Settings) -> None:
    """Refuse what the arguments and DeepSpeed's configuration say differently."""
    for name, key in _SAME.items():
        zero_setting, other = zero.by_name.get(name), settings.by_name.get(key)
        if zero_setting is None or other is None or zero_setting.value == read_deepspeed.AUTO:
            continue
        if _plain(zero_setting.value) != _plain(other.value):
            settings.reading.faults.append(
                f"{other} {other.value}, and {zero_setting} {zero_setting.value}: differ;"
                " transformers refuses them"
            )


def _plain(value: object) -> str:
    """Return a value as text that is the same for a file and for a command line."""
    text = str(value).lower()
    if text in (*FALSE, "none", "null", ""):
        return "false"
    return text


def _follow_fsdp(settings: Settings, path: Path) -> None:
    """Add the settings of the file that ``fsdp_config`` names."""
    setting = settings.by_name.get("fsdp_config")
    named = str(setting.value) if setting is not None else ""
    if setting is None or not named.endswith(".json"):
        return
    settings.used.add(setting.name)
    known = beside(path, named)
    if known is None:
        settings.reading.fault(setting, named, "isn't there, nor beside the file")
        return
    inner = json_settings(text_of(known), known.name)
    for spelled_setting in spelled(
        replace(member, name=FSDP + member.name, label=member.name) for member in inner
    ):
        settings.by_name.setdefault(spelled_setting.name, spelled_setting)


def _zero(
    settings: Settings, script: Script | None, path: Path, parts: Parts
) -> list[Setting] | None:
    """Return the DeepSpeed configuration that is named or spelled out; None where there is none."""
    inner = [member for member in settings.by_name.values() if member.name.startswith("deepspeed.")]
    for candidate in inner:
        del settings.by_name[candidate.name]
    given = parts.of(ZERO)
    if inner:
        short = [
            replace(member, name=member.name.removeprefix("deepspeed."), label=member.name)
            for member in inner
        ]
        return [*short, *parts.settings(ZERO)]
    keys = ("deepspeed", "deepspeed_config.deepspeed_config_file")
    named = next((text for text in map(settings.text, keys) if text), "")
    kind = settings.text("distributed_type").upper()
    if given and kind not in ("", "NO", "MULTI_GPU", "DEEPSPEED"):
        setting = settings.by_name["distributed_type"]
        settings.reading.fault(setting, kind, f"stands beside {given[0].path.name}; one of the two")
    if given:
        first = given[0].path.name
        if named and named.lower() not in ("true", "false") and Path(named).name != first:
            note = f"{first} is taken for {named}, which the arguments name"
            settings.reading.notes.append(note)
        return parts.settings(ZERO)
    if not named or named.lower() in ("true", "false"):
        return read_hugging_face.zero_of_accelerate(settings) if kind == "DEEPSPEED" else None
    if script is not None and named in script.documents:
        text, line = script.documents[named]
        return [
            replace(
                json_setting, location=Location(path.name, line + json_setting.location.line - 1)
            )
            for json_setting in json_settings(text, f"{path.name}: {named}")
        ]
    known = beside(path, named)
    if known is not None:
        return json_settings(text_of(known), known.name)
    stated = [settings.by_name[key] for key in keys if key in settings.by_name]
    setting = next(member for member in stated if member.value == named)
    settings.reading.fault(
        setting, named, "isn't there, nor beside the file; give it by a second --from"
    )
    return None


def accelerate_of(launch: Launch, path: Path, reading: Reading, parts: Parts) -> list[Setting]:
    """Return what Accelerate's launcher is given, with the configuration file that it names."""
    settings = [*read_hugging_face.launcher_settings(launch.accelerate, path.name)]
    names = {entry.name for entry in settings}
    word = launch.accelerate.get("--config_file")
    given = parts.settings(ACCELERATE)
    if given or word is None:
        more = given
    elif (known := beside(path, word.text)) is None:
        setting = Setting("--config_file", word.text, Location(path.name, word.line))
        reading.fault(
            setting, word.text, "isn't there, nor beside the file; give it by a second --from"
        )
        more = []
    else:
        more = yaml_settings(text_of(known), known.name)
    # The launcher's options rule over its file.
    return settings + [entry for entry in more if entry.name not in names]


def arguments_in(launch: Launch, path: Path) -> Iterator[Setting]:
    """Yield the training arguments of the JSON or YAML files that a program is given."""
    for word in launch.words:
        named = word.text.rpartition("=")[2]
        if not named.endswith((".json", ".yaml", ".yml")):
            continue
        known = beside(path, named)
        if known is None:
            continue
        read = json_settings if named.endswith(".json") else yaml_settings
        try:
            settings = read(text_of(known), known.name)
        except InputError:  # a file of data, say
            continue
        if kind_of(setting.name for setting in settings) == TRAINING:
            yield from settings
