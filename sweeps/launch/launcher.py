"""Which of a script's commands trains, and on how many GPUs its launcher starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeps.launch.setting import Location, Setting
from sweeps.launch.shell import Script, Word
from sweeps.launch.terms import terms_of

JOB = "run_train.sh"  # torchtitan's


@dataclass(slots=True)
class Launch:
    """A command that trains."""

    words: Sequence[Word]  # What the training program is given
    program: str  # Its file
    world_size: int | None = None
    gpus_per_node: int | None = None
    settings: dict[str, Setting] = field(default_factory=dict)  # Of the two numbers
    # What Accelerate's launcher is given, by option; empty of other launchers
    accelerate: Mapping[str, Word] = field(default_factory=dict)


def launches(script: Script, file: str) -> list[Launch]:
    """Return the commands that run a Python program, the one with the most options first."""
    commands = [launch for command in script.commands if (launch := _launch(command, script, file))]
    return sorted(
        commands, key=lambda launch: -sum(word.text.startswith("--") for word in launch.words)
    )


def _trains_nothing(program: str, words: Sequence[str]) -> bool:
    """Tell whether a program is by its name one that generates, evaluates or converts."""
    named = re.search(rf"(?:^|_)(?:{'|'.join(words)})", program)
    return named is not None and "train" not in program


def _launch(command: Sequence[Word], script: Script, file: str) -> Launch | None:
    """Return how a command launches a program, or None where it doesn't."""
    names = [word.text.rpartition("/")[2] for word in command]
    known = terms_of("launchers")
    if not {*known["launchers"], JOB} & {*names}:
        return None
    index = next((k for k, name in enumerate(names) if name.endswith((".py", JOB))), None)
    modules = [k + 1 for k, name in enumerate(names[:-1]) if name == "-m"]
    modules = [k for k in modules if names[k] not in known["modules"]]
    if index is None and modules:
        index = modules[0]
    if index is None:
        index = 1 if names[0] in known["subcommands"] else None
    if index is None or index >= len(command) or _trains_nothing(names[index], known["other"]):
        return None
    launch = Launch(command[index + 1 :], command[index].text)
    options = _options(command[:index])
    launch.accelerate = options if "accelerate" in names[:index] else {}
    nodes, each, every = (
        _number(options, known["numbers"][count], file) for count in ("nodes", "each", "all")
    )
    if {*known["batch"]} & {*names[:index]} or nodes is None:
        nodes = nodes or _batch(script, file, "nodes")
        each = each or _batch(script, file, "ntasks-per-node", "gpus-per-node")
        every = every or _batch(script, file, "ntasks")
    program = JOB if names[index] == JOB else names[index - 1]
    for name in known["environment"].get(program, ()):
        text = script.environment.get(name, "")
        if _counts(text):
            setting = Setting(name, text, Location(file))
            nodes = setting if name == "NNODES" else nodes
            each = setting if name != "NNODES" else each
    if each and not every:
        launch.gpus_per_node = int(each.value)
        launch.world_size = (int(nodes.value) if nodes else 1) * launch.gpus_per_node
        launch.settings = {"world_size": nodes or each, "gpus_per_node": each}
    elif every:
        launch.world_size = int(every.value)
        launch.settings = {"world_size": every}
        count = int(nodes.value) if nodes else 0
        if each or (count and launch.world_size % count == 0):
            launch.gpus_per_node = int(each.value) if each else launch.world_size // count
            launch.settings["gpus_per_node"] = each or nodes or every
    return launch


def _options(words: Sequence[Word]) -> dict[str, Word]:
    """Return a launcher's options by name."""
    options: dict[str, Word] = {}
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if equals and name.startswith("-"):
            options[name] = Word(value, word.line)
        elif word.text.startswith("-"):
            following = words[index + 1] if index + 1 < len(words) else Word("true", word.line)
            options[word.text] = (
                Word("true", word.line) if following.text.startswith("-") else following
            )
            if len(word.text) > 2 and word.text[:2] in ("-N", "-n") and word.text[2:].isdigit():
                options[word.text[:2]] = Word(word.text[2:], word.line)
    return options


def _number(options: Mapping[str, Word], names: Sequence[str], file: str) -> Setting | None:
    """Return the first of some options that counts nodes or processes."""
    for name in names:
        word = options.get(name)
        # An elastic launcher is given the least and the most.
        text = word.text.rpartition(":")[2] if word else ""
        if word and _counts(text):
            return Setting(name, text, Location(file, word.line))
    return None


def _batch(script: Script, file: str, *names: str) -> Setting | None:
    """Return the first of what Slurm's comments ask for that counts nodes or processes."""
    known = (name for name in names if _counts(script.batch.get(name, "")))
    name = next(known, None)
    return Setting(f"#SBATCH --{name}", script.batch[name], Location(file)) if name else None


def _counts(text: str) -> bool:
    return text.isdigit() and int(text) > 0
