"""Launch files of training frameworks, read as quantities and labels; nothing of them is run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.errors import InputError, few, reject, tell_all
from sweeps.launch import (
    read_bridge,
    read_hugging_face,
    read_maxtext,
    read_megatron,
    read_torchtitan,
)
from sweeps.launch.arguments import UNREAD, Override, Settings
from sweeps.launch.documents import json_settings, toml_settings, typed, yaml_settings
from sweeps.launch.hugging_face_files import (
    MODEL,
    TRAINING,
    Part,
    Parts,
    accelerate_of,
    arguments_in,
    kind_of,
    read_parts,
    read_training,
    spelled,
)
from sweeps.launch.launcher import Launch, launches
from sweeps.launch.named_files import beside, text_of
from sweeps.launch.python_config import Calls
from sweeps.launch.setting import Location, Reading, Setting, Unread
from sweeps.launch.shell import Script, Word, read_script
from sweeps.launch.terms import MEGATRON, keys_of
from sweeps.spec.files import is_file

# A command with fewer of a framework's arguments isn't taken for one of it.
FEW = 3
MOST_SHOWN = 5  # faults of a file that a script names
KINDS = (
    "a shell script with Megatron-LM's or Hugging Face's arguments, torchtitan's TOML or Python, "
    "DeepSpeed's JSON, YAML of Megatron-Bridge, NeMo, MaxText or Accelerate, a model's config.json"
)
UNKNOWN = f"is no launch file that is known; what can be read: {KINDS}"
Overrides = Mapping[str, Override]


def read_launches(paths: Sequence[str], overrides: Overrides | None = None) -> list[Reading]:
    """Read the launch files of a run; those of Hugging Face are one reading together.

    Parameters
    ----------
    paths : sequence of str
        The files; of one with several Python functions ``FILE.py:FUNCTION``; ``-`` is standard
        input.
    overrides : mapping of str to Override, optional
        What the command line gives, by quantity: it rules over the files.

    Returns
    -------
    list of Reading
        One of Hugging Face's files together, one of every other file: quantities and labels, where
        each comes from, and what became of every setting.

    Raises
    ------
    InputError
        With every fault of the files, a line each.
    """
    given = overrides or {}
    files = [_opened(path) for path in dict.fromkeys(paths)]
    parts = Parts([part for file in files if (part := _part(file)) is not None])
    taken = {part.path for part in parts.parts}
    readings = [_read(file, given, parts) for file in files if file.path not in taken]
    if len(parts.taken) < len(parts.parts):
        readings.append(read_parts(parts, given))
    # A value may have several lines; a fault has one.
    faults = [" ".join(fault.split()) for reading in readings for fault in reading.faults]
    tell_all(list(dict.fromkeys(faults)))
    return readings


@dataclass(frozen=True, slots=True)
class _File:
    """A file's text, what it is written in, and which of its functions is asked for."""

    path: Path
    text: str
    form: str  # ``json``, ``python``, ``toml``, ``yaml`` or ``shell``
    function: str = ""


def _opened(path: str) -> _File:
    match = re.fullmatch(r"(.*\.py):(\w+)", path)
    location, function = Path(match[1] if match else path), match[2] if match else ""
    if path == "-":
        location, text = Path("standard input"), sys.stdin.read()
    else:
        if not match and is_file(location / "config.json"):  # a folder is a model's
            location /= "config.json"
        text = text_of(location)
    return _File(location, text, _form(location.suffix, text), function)


def _form(suffix: str, text: str) -> str:
    """Return what a file is written in."""
    if suffix == ".json" or re.match(r"\s*((//|#(?!!))[^\n]*\n\s*)*\{(?!\{)", text):
        return "json"
    if suffix == ".py" or "Trainer.Config" in text:
        return "python"
    tables = r"^\s*\[(training|parallelism|model|job)\]"
    if suffix == ".toml" or re.search(tables, text, re.MULTILINE):
        return "toml"
    first = re.search(r"^(?!\s*(#|---|$)).+", text, re.MULTILINE)
    if suffix in (".yaml", ".yml") or (first and re.match(r"[A-Za-z_]\w*:(\s|$)", first[0])):
        return "yaml"
    return "shell"


def _part(file: _File) -> Part | None:
    """Return a file as one of Hugging Face's, or None where it isn't any."""
    if file.form not in ("json", "yaml"):
        return None
    read = json_settings if file.form == "json" else yaml_settings
    settings = read(file.text, file.path.name)
    names = {setting.name for setting in settings}
    kind = kind_of(names)
    if {"base_model", "micro_batch_size"} <= names:
        wrong = "is axolotl's, whose settings aren't read"
        reject(file.path.name, f"{wrong}; give options, such as --model and --micro-batch-size")
    if names & MAXTEXT or (file.form == "yaml" and kind == MODEL):
        return None
    if not kind and file.form == "json":
        reject(file.path.name, UNKNOWN)
    return Part(file.path, kind, settings) if kind else None


MAXTEXT = frozenset(
    ("per_device_batch_size", "base_config", "ici_fsdp_parallelism", "base_emb_dim")
)


def _read(file: _File, overrides: Overrides, parts: Parts) -> Reading:
    """Read a file by what it is written in."""
    if file.form == "python":
        return _of_python(file.text, file.path, file.function, overrides)
    if file.form == "toml":
        return _of_toml(file.text, file.path.name, overrides)
    if file.form == "yaml":
        return _of_yaml(file.text, file.path.name, overrides)
    return _of_shell(file.text, file.path, overrides, parts)


def _of_toml(
    text: str, file: str, overrides: Overrides, more: Sequence[Setting] = (), script: str = ""
) -> Reading:
    """Read torchtitan's TOML; `more` settings of a script's command rule over it."""
    generation = read_torchtitan.TOML
    names = {setting.name for setting in more}
    settings = [
        toml_setting for toml_setting in toml_settings(text, file) if toml_setting.name not in names
    ]
    reading = Reading(generation.format, script or file)
    job = Settings([*settings, *more], reading, overrides)
    read_torchtitan.read_job(job, generation)
    return job.reading


def _of_job(launch: Launch, script: Script, path: Path, overrides: Overrides) -> Reading | None:
    """Read the command that starts torchtitan, with the TOML file that it names."""
    settings = {
        argument.name: argument for argument in read_torchtitan.settings_of(launch.words, path.name)
    }
    named = settings.pop("job.config_file", None)
    name = str(named.value) if named else script.environment.get("CONFIG_FILE", "")
    if not (named or launch.program.endswith((*TITAN, "run_train.sh"))):
        return None
    known = beside(path, name) if name else None
    if name and known is None:
        setting = named or Setting("CONFIG_FILE", name, Location(path.name))
        reject(setting, f"{name} isn't there, nor beside the file")
    world, more = launch.world_size, dict(overrides)
    if world is not None and "world_size" not in overrides:
        more["world_size"] = Override("", str(world))
    text, file = (text_of(known), known.name) if known else ("", path.name)
    reading = _of_toml(text, file, more, [*settings.values()], path.name)
    if world is not None and "world_size" not in overrides:
        reading.take("world_size", float(world), launch.settings["world_size"])
    return reading


# The program that torchtitan's jobs run.
TITAN = ("torchtitan.train", "torchtitan/train.py")


def _of_python(text: str, path: Path, function: str, overrides: Overrides) -> Reading:
    file = path.name
    calls = Calls(text, file, path.absolute().parent.name)
    known = calls.configurations()
    if function and function not in calls.functions:
        reject(file, f"has no function {function}; it has {', '.join(known) or 'none'}")
    if not known and not function:
        reject(file, f"has no function that returns a configuration; what can be read: {KINDS}")
    if len(known) > 1 and not function:
        reject(file, f"which function? {', '.join(known)}: {file}:{known[0]}")
    settings = [*read_torchtitan.of_python(calls.settings(function or known[0]))]
    generation = read_torchtitan.PYTHON
    job = Settings(settings, Reading(generation.format, file), overrides)
    read = [name for name, key in keys_of(read_torchtitan.KEYS).items() if key.effect == "read"]
    for setting in settings:
        # A whole table that isn't read would be one that isn't there.
        table = f"{setting.name}."
        if isinstance(setting.value, Unread) and any(name.startswith(table) for name in read):
            job.reading.fault(setting, "", f"'{setting.value}' {UNREAD}")
    read_torchtitan.read_job(job, generation)
    return job.reading


def _of_yaml(text: str, file: str, overrides: Overrides) -> Reading:
    settings = yaml_settings(text, file)
    names = {setting.name for setting in settings}
    if names & MAXTEXT:
        config = Settings(settings, Reading(read_maxtext.FORMAT, file), overrides)
        read_maxtext.read_config(config)
        return config.reading
    if not any(name.startswith(("model.", "trainer.", "train.", "ddp.")) for name in names):
        reject(file, UNKNOWN)
    return _of_bridge(settings, file, overrides)


def _of_bridge(settings: list[Setting], file: str, overrides: Overrides) -> Reading:
    reading = Reading(read_bridge.FORMAT, file)
    read_bridge.check_lengths(settings, reading)
    world = read_bridge.world_of(Settings(settings, reading, overrides))
    arguments = {
        argument.name: argument for argument in read_bridge.arguments_of(settings, reading)
    }
    job = Settings(arguments.values(), reading, overrides)
    padded = not any(
        setting.name == read_bridge.PADDED and setting.value is False for setting in settings
    )
    read_megatron.read_arguments(job, world, padded=padded)
    reading.version = read_bridge.VERSION
    return reading


def _of_shell(text: str, path: Path, overrides: Overrides, parts: Parts) -> Reading:
    """Read the command that trains in a shell script, with the files that it names."""
    script, file = read_script(text), path.name
    launch, reading = next(
        (
            (launch, reading)
            for launch in launches(script, file)
            if (reading := _of_command(launch, script, path, overrides, parts)) is not None
        ),
        (None, None),
    )
    if launch is None or reading is None:
        wrong = "has no command that trains with arguments that are known"
        reject(file, f"{wrong}; what can be read: {KINDS}")
    for name, value in script.arguments.items():
        reading.notes.append(f"argument {name} of the script is {value}, its own default")
    _tell_holes(launch, script, reading, file)
    added = [word for word in script.conditional if word.text.startswith("--")]
    if added:
        location, names = (
            Location(file, added[0].line),
            few([word.text.split()[0] for word in added]),
        )
        reading.notes.append(f"{location}: added only if a condition holds, so skipped: {names}")
    return reading


def _tell_holes(launch: Launch, script: Script, reading: Reading, file: str) -> None:
    """Note words of a command that may be arguments, of which nothing is known."""
    before = ["--", *(word.text for word in launch.words)]
    for last, word in zip(before, launch.words, strict=False):
        if word.is_hole and (not last.startswith("--") or "=" in last):
            why = script.unknown.get(word.holes[0], "it has no value")
            reading.notes.append(f"{Location(file, word.line)}: {word} is skipped: {why}")


def _of_command(
    launch: Launch, script: Script, path: Path, overrides: Overrides, parts: Parts
) -> Reading | None:
    """Read a command by the framework whose arguments it has most of."""
    file = path.name
    megatron, hugging = keys_of(MEGATRON), keys_of(read_hugging_face.KEYS)
    settings = [*read_megatron.settings_of(launch.words, file)]
    theirs = [*read_hugging_face.settings_of(launch.words, file)]
    if (job := _of_job(launch, script, path, overrides)) is not None:
        return job
    pairs = [*assigned(launch.words, file)]
    count = sum(setting.name in megatron for setting in settings)
    others = sum(setting.name in hugging for setting in theirs)
    if len(pairs) >= FEW and len(pairs) > max(count, others):
        return _of_pairs(pairs, launch, path, overrides)
    if count >= FEW and count >= others:
        reading = Reading(read_megatron.FORMAT, file)
        read_settings = Settings(settings, reading, overrides, script.unknown)
        read_megatron.read_arguments(read_settings, _world(read_settings, launch))
        reading.notes += _tp_overlap(read_settings, path)
        return reading
    named = [*arguments_in(launch, path)]
    if others >= FEW or named or parts.settings(TRAINING):
        reading = Reading(read_hugging_face.FORMAT, file)
        own_names = {their.name for their in theirs}
        # The command's arguments rule over those of its file.
        theirs += [argument for argument in named if argument.name not in own_names]
        theirs += parts.settings(TRAINING)
        theirs += accelerate_of(launch, path, reading, parts)
        read_settings = Settings(spelled(theirs), reading, overrides, script.unknown)
        if launch.world_size is None and "num_processes" in read_settings.by_name:
            read_hugging_face.read_accelerate(read_settings)
        else:
            _world(read_settings, launch)
        read_training(read_settings, script, path, parts)
        return reading
    return None


def assigned(words: Sequence[Word], file: str) -> Iterator[Setting]:
    """Yield what a command is given as ``name=value``, as MaxText and NeMo take it."""
    for word in words:
        if match := re.fullmatch(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", word.text, re.DOTALL):
            yield Setting(match[1], typed(match[2]), Location(file, word.line))


def _of_pairs(
    pairs: list[Setting], launch: Launch, path: Path, overrides: Overrides
) -> Reading | None:
    """Read ``name=value`` as MaxText's settings, or as NeMo's."""
    file = path.name
    if any(pair.name.startswith(("model.", "trainer.", "train.")) for pair in pairs):
        return _of_bridge(pairs, file, overrides)
    if sum(pair.name in keys_of(read_maxtext.KEYS) for pair in pairs) < FEW:
        return None
    own_names = {pair.name for pair in pairs}
    # The command's settings rule over those of its file.
    pairs += [each for each in _named_yaml(launch, path) if each.name not in own_names]
    settings = Settings(pairs, Reading(read_maxtext.FORMAT, file), overrides)
    if launch.world_size is not None:
        _world(settings, launch)
    read_maxtext.read_config(settings)
    return settings.reading


def _named_yaml(launch: Launch, path: Path) -> list[Setting]:
    """Return the settings of the configuration that a command of MaxText names."""
    endings = (".yml", ".yaml")
    names = [w for w in launch.words if w.text.endswith(endings) and "=" not in w.text]
    if not names or names[0].text.rpartition("/")[2] == "base.yml":  # What defaults are
        return []
    shown, location = names[0].text.rpartition("/")[2], Location(path.name, names[0].line)
    known = beside(path, names[0].text)
    if known is None:
        reject(str(location), f"{shown} isn't beside it, and its settings count; put it there")
    return yaml_settings(text_of(known), known.name)


def _tp_overlap(settings: Settings, path: Path) -> Iterator[str]:
    """Yield what is wrong with the layers' settings of overlap that a script names."""
    named = settings.text("--tp-comm-overlap-cfg")
    known = beside(path, named) if named else None
    if known is None:
        return
    from sweeps.tuner.validate import validate_file

    try:
        problems = validate_file(known)
    except InputError as error:
        yield from error.faults
        return
    wrong = [problem.shown(known.name) for problem in problems if problem.severity != "note"]
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
