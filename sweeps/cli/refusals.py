"""How refusals read on the command line: the option or argument as typed, its value, the fault."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

import click

from sweeps.elsewhere import named_here
from sweeps.errors import Fault

ABSENT = "not given"  # As a value: what was left out
# Faults of one command that are shown.
MOST = 5
# Arguments that have no option: their value says what is meant.
ARGUMENTS = frozenset(("command", "file", "name", "sweep", "trace"))
_OF_FILE = re.compile(r"\S+\.\w+[:,] ")


# What the letters mean that some commands take.
SHORT = {
    "b": ("global_batch_size", "micro_batch_size"),
    "g": ("world_size", "ranks"),
    "m": ("model", "memory_capacity"),
    "p": ("parameters",),
    "s": ("sequence_length",),
}


def on_command_line(line: str, typed: Collection[str] | None = None) -> str:
    """Return a fault as it reads on the command line: ``--tp 3: does not divide ..``.

    Of several options, those that weren't `typed` are what the others don't go with.
    """
    if not isinstance(line, Fault) or not line.names:
        return line
    names, values = line.names, [f"{value}" for value in line.values]
    if len(names) == 1 and (names[0] in ARGUMENTS or (names[0].isupper() and names[0].isalpha())):
        return f"{_shown(values[0])}: {line.reason}"
    if not all(name.startswith("-") for name in names):
        return line
    if values == [".."]:
        return f"{', '.join(names)}: {line.reason}"
    if len(names) != len(values):
        return f"{', '.join(names)} {_shown(values[0])}: {line.reason}"
    pairs = [*zip(names, values, strict=True)]
    pairs_typed = [pair for pair in pairs if typed is None or pair[0] in typed] or pairs
    head = ", ".join(_pair(*pair) for pair in pairs_typed)
    others = [
        f"{flag.lstrip('-').replace('-', ' ')} {text}"
        for flag, text in pairs
        if (flag, text) not in pairs_typed
    ]
    beside = f" ({', '.join(others)})" if others else ""
    return f"{head}{beside}: {line.reason}"


def told(lines: Iterable[str]) -> list[str]:
    """Return the lines that are shown of a command's faults: those of a file are all."""
    every = [*dict.fromkeys(map(on_command_line, lines))]
    own_lines = [line for line in every if not _OF_FILE.match(line)]
    if len(own_lines) <= MOST:
        return every
    shown = [line for line in every if line not in own_lines[MOST:]]
    return [*shown, f"and {len(own_lines) - MOST} more"]


def _pair(flag: str, value: str) -> str:
    """Return an option with its value; a switch, or one whose value isn't known, alone."""
    if value == ABSENT:
        return f"{flag} ({ABSENT})"
    return flag if value in ("set", "..", "True") else f"{flag} {_shown(value)}"


def _shown(value: str) -> str:
    return f"'{value}'" if " " in value or not value else value


def of_click(error: click.UsageError) -> str:
    """Return what click refuses, in the form of other faults."""
    if isinstance(error, click.NoSuchOption):
        params = error.ctx.command.params if error.ctx else ()
        options = [flag for param in params for flag in (*param.opts, *param.secondary_opts)]
        names = {str(parameter.name): parameter.opts[0] for parameter in params}
        word = error.option_name.lstrip("-").replace("-", "_")
        letter = " or ".join(names[name] for name in SHORT.get(word, ()) if name in names)
        meant = letter or names.get(word) or names.get(named_here(word, names) or "")
        if meant:
            near = f"; did you mean {meant}?"
        else:
            near = _near(error.option_name, options if len(word) > 1 else ())
        return f"{error.option_name}: no such option{near}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        given = re.match(r"(?s)'(.*)' is not one of (.*)\.$", error.message)
        name = error.param.opts[0] if isinstance(error.param, click.Option) else ""
        if given:
            return f"{_pair(name, given[1]).strip()}: unknown; {given[2].replace(chr(39), '')}"
        number = re.match(r"(?s)'(.*)' is not a valid (?:integer|float)", error.message)
        if number and name:
            return f"{_pair(name, number[1])}: is not a number; write it in digits"
    extra = re.match(r"(?s)Got unexpected extra arguments? \((.*)\)", error.message)
    if extra and error.ctx:
        words = extra[1].split(" ")
        return f"{words[0]}: follows no option; {_option_of(words[0], error.ctx.command)}"
    return error.format_message()


def _option_of(word: str, command: click.Command) -> str:
    """Return the option of a command that takes a word, as far as labels and catalogue tell."""
    # Late: every start imports this file, and only a refusal needs the vocabulary.
    from overhead.labels import LABELS
    from sweeps.spec.files import is_file, shipped

    flags = {str(param.name): param.opts[0] for param in command.params}
    taking = [name for name, label in LABELS.items() if word in label.values]
    folders = {"model": "models", "hardware": "hardware"}
    taking += [n for n, folder in folders.items() if is_file(shipped(folder) / f"{word}.toml")]
    for name in taking:
        if name in flags:
            return f"did you mean {flags[name]} {word}?"
    return "sweeps COMMAND --help lists the options"


def _near(word: str, options: Iterable[str]) -> str:
    """Return the option that is meant by another, by its letters."""
    known = [option for option in options if option.startswith("--")]
    begins = [
        option for option in known if option.startswith(f"{word}-") or word.startswith(f"{option}-")
    ]
    ends = [option for option in known if option.endswith(word.lstrip("-"))]
    close = begins or ends or difflib.get_close_matches(word, known, n=2, cutoff=0.7)
    if close:
        return f"; did you mean {' or '.join(sorted(close, key=len)[:2])}?"
    return "; sweeps COMMAND --help lists them"
