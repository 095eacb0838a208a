"""Which of a script's commands trains, and on how many GPUs its launcher starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeps.launch.setting import Place, Setting
from sweeps.launch.shell import Script, Word

# What a launcher calls its numbers of nodes and of processes on each; or of processes in all.
_NODES = ("--nnodes", "--num_nodes", "--num-nodes", "--num_machines", "--nodes", "-N")
_EACH = (
    "--nproc_per_node",
    "--nproc-per-node",
    "--num_gpus",
    "--num-gpus",
    "--ntasks-per-node",
    "--gpus-per-node",
)
_ALL = ("-np", "-n", "--np", "--ntasks", "--num_processes")
_LAUNCHERS = frozenset(
    (
        "torchrun",
        "srun",
        "mpirun",
        "mpiexec",
        "deepspeed",
        "accelerate",
        "python",
        "python3",
        "trl",
        "llamafactory-cli",
    )
)
# Programs whose first word says what they do: accelerate launch, trl sft, llamafactory-cli train.
_SUBCOMMANDS = ("accelerate", "trl", "llamafactory-cli")
_BATCH = frozenset(("srun", "mpirun", "mpiexec", "deepspeed", "accelerate"))
FAKE = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


@dataclass(slots=True)
class Launch:
    """A command that trains."""

    words: Sequence[Word]  # What the training program is given
    program: str  # Its file
    world_size: int | None = None
    gpus_per_node: int | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)  # Of the two numbers
    # What Accelerate's launcher is given, by option; empty of other launchers
    accelerate: Mapping[str, Word] = field(default_factory=dict)


# What of a script's variables these read themselves.
JOB = "run_train.sh"  # torchtitan's
_ENVIRONMENT = {"llamafactory-cli": ("NNODES", "NPROC_PER_NODE"), JOB: ("NGPU",)}


def launches(script: Script, file: str) -> list[Launch]:
    """Return the commands that run a Python program, the one with the most options first."""
    found = [one for command in script.commands if (one := _launch(command, script, file))]
    return sorted(found, key=lambda one: -sum(word.text.startswith("--") for word in one.words))


def _launch(command: Sequence[Word], script: Script, file: str) -> Launch | None:
    """Return how a command launches a program, or None where it doesn't."""
    names = [word.text.rpartition("/")[2] for word in command]
    if not _LAUNCHERS & set(names) and JOB not in names:
        return None
    place = next((k for k, name in enumerate(names) if name.endswith((".py", JOB))), None)
    modules = [
        k + 1 for k, name in enumerate(names[:-1]) if name == "-m" and names[k + 1] not in FAKE
    ]
    if place is None and modules:
        place = modules[0]
    if place is None:
        place = 1 if names[0] in _SUBCOMMANDS else None
    if place is None or place >= len(command):
        return None
    launch = Launch(command[place + 1 :], command[place].text)
    own = _options(command[:place])
    launch.accelerate = own if "accelerate" in names[:place] else {}
    nodes, each, every = (_number(own, one, file) for one in (_NODES, _EACH, _ALL))
    batch = {
        name: Setting(f"#SBATCH --{name}", text, Place(file)) for name, text in script.batch.items()
    }
    if _BATCH & set(names[:place]) or nodes is None:
        nodes = nodes or _batch(batch, "nodes")
        each = each or _batch(batch, "ntasks-per-node") or _batch(batch, "gpus-per-node")
        every = every or _batch(batch, "ntasks")
    for name in _ENVIRONMENT.get(names[place - 1] if names[place] != JOB else JOB, ()):
        text = script.environment.get(name, "")
        if text.isdigit() and int(text) > 0:
            counted = int(text), Setting(name, text, Place(file))
            nodes = counted if name == "NNODES" else nodes
            each = counted if name != "NNODES" else each
    settings: dict[str, Setting] = {}
    if each and not every:
        launch.world_size = (nodes[0] if nodes else 1) * each[0]
        launch.gpus_per_node = each[0]
        settings = {"world_size": (nodes or each)[1], "gpus_per_node": each[1]}
    elif every:
        launch.world_size = every[0]
        settings = {"world_size": every[1]}
        if each or (nodes and every[0] % nodes[0] == 0):
            launch.gpus_per_node = each[0] if each else every[0] // (nodes[0] if nodes else 1)
            settings["gpus_per_node"] = (each or nodes or every)[1]
    launch.settings = settings
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


Counted = tuple[int, Setting] | None


def _number(options: Mapping[str, Word], names: Sequence[str], file: str) -> Counted:
    for name in names:
        word = options.get(name)
        # An elastic launcher is given the least and the most.
        text = word.text.rpartition(":")[2] if word else ""
        if word and text.isdigit() and int(text) > 0:
            return int(text), Setting(name, text, Place(file, word.line))
    return None


def _batch(options: Mapping[str, Setting], name: str) -> Counted:
    setting = options.get(name)
    text = str(setting.value) if setting else ""
    return (int(text), setting) if setting and text.isdigit() and int(text) > 0 else None
