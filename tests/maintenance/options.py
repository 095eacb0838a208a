"""The types of what functions of `sweeps` take, and of what commands read of their options.

They follow from the vocabulary and the commands' options. ``PROOFS=write python -m pytest -n0
tests/test_stubs.py`` writes them to ``sweeps/options.pyi`` and ``sweeps/cli/given.pyi``.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator

import click

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.cli import COMMANDS, commands
from sweeps.cli.ask import ON_SCREEN
from sweeps.cli.flags import OF_COLLECTIVES, OF_TRAINING, USUAL, is_input
from sweeps.search.request import OBJECTIVES
from sweeps.spec.names import NAMES

__all__ = ["given_text", "text_of"]

HEAD = '''"""What the functions of `sweeps` take: from the vocabulary and the commands' options.

`PROOFS=write python -m pytest -n0 tests/test_stubs.py` writes this file.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, TypeVar

from numpy.typing import NDArray

Word = TypeVar("Word", bound=str)
File = str | PathLike[str]
Files = File | Sequence[File]
# One value or several: numbers in SI, text as it is typed, columns by name that go together.
Values = bool | float | str | Iterable[float] | Iterable[str] | NDArray[Any] | Mapping[str, Any]
Words = Word | Sequence[Word]
'''
# Whose options have every quantity and label, of a training step or of one operation.
EVERY = {
    "collective": "Operation",
    "plan": "Step",
    "buy": "Step",
    "analysis": "Step",
    "page": "Step",
}
OTHERS = ("hops", "overlap", "tune", "calibrate", "normal", "trace", "catalog")
PATHS = ("output", "save", "write", "timeline", "output_dir", "patterns", "spec")
CLOSED = {"objective": tuple(OBJECTIVES), "dtype": ("f8", "f4")}


def text_of() -> str:
    """Return the file."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    yield from HEAD.splitlines()
    for name, label in LABELS.items():
        if label.values:
            yield f"{_of_label(name)} = Words[{_literal((*label.values, 'all'))}]"
    yield ""
    bases = {
        "Operation": _axes(OF_COLLECTIVES, alone=True),
        "Step": _axes(OF_TRAINING, alone=False),
    }
    for name, fields in bases.items():
        # What a short help shows, and so does a signature.
        command = "collective" if name == "Operation" else "analysis"
        shown = [option for option, usual in USUAL.items() if command in usual.common]
        first = {NAMES.get(shown_text, (shown_text,))[0] for shown_text in shown}
        common = {field: kind for field, kind in fields.items() if field in first}
        other_fields_by_name = {field: kind for field, kind in fields.items() if field not in first}
        yield from _class(f"Common{name}", "TypedDict, total=False", common)
        yield from _class(name, f"Common{name}, total=False", other_fields_by_name)
    for command in (*EVERY, *OTHERS):
        base = EVERY.get(command)
        known = bases[base] if base else {}
        fields = {name: kind for name, kind in _options(command).items() if name not in known}
        parent = f"{base}, total=False" if base else "TypedDict, total=False"
        yield from _class(f"{command.capitalize()}Options", parent, fields)


def _class(name: str, parent: str, fields: dict[str, str]) -> Iterator[str]:
    yield f"class {name}({parent}):"
    yield from (f"    {field}: {kind}" for field, kind in fields.items())
    yield ""


def _axes(usual: Iterable[str], *, alone: bool) -> dict[str, str]:
    """Return the type of every quantity and label that can be given, the usual ones first."""
    every = (*usual, *(name for name in (*LABELS, *VOCABULARY) if is_input(name, alone=alone)))
    return {
        name: _kind(shown_text)
        for shown_text in dict.fromkeys(every)
        for name in (*NAMES.get(shown_text, ()), shown_text)
        if name.isidentifier() and not keyword.iskeyword(name)
    }


def _kind(text: str) -> str:
    return _of_label(text) if text in LABELS and LABELS[text].values else "Values"


def _of_label(name: str) -> str:
    """Return what the type of a label with known words is called."""
    return "".join(word.capitalize() for word in name.split("_"))


def _literal(words: Iterable[str]) -> str:
    return f"Literal[{', '.join(f'{word!r}' for word in words)}]".replace("'", '"')


def _options(command: str) -> dict[str, str]:
    """Return the type of each name of a command's options."""
    found = {}
    made = commands.get_command(click.Context(commands), command)
    assert made is not None
    for param in made.params:
        if not isinstance(param, click.Option) or param.name in ON_SCREEN:
            continue
        for flag in (*param.opts, str(param.name)):
            name = flag.lstrip("-").replace("-", "_")
            name = f"{name}_" if keyword.iskeyword(name) else name
            found[name] = _option(param)
    return found


def _option(param: click.Option) -> str:
    name = str(param.name)
    if param.is_flag:
        return "bool"
    if name in CLOSED:
        return _literal(CLOSED[name])
    if isinstance(param.type, click.Choice):
        return _literal(map(str, param.type.choices))
    if name in LABELS:
        return _kind(name)
    if param.multiple:
        return "Files | Mapping[str, Any]" if name == "held" else "Files"
    if isinstance(param.type, click.types.IntParamType | click.IntRange):
        return "int"
    return "File" if name in PATHS else "Values"


# What commands read of their options, by name.

GIVEN = '''"""What a command's options give: of all commands, and what differs in some of them.

`PROOFS=write python -m pytest -n0 tests/test_stubs.py` writes this file.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

Options = Mapping[str, object]
Folder = Literal["hardware_folder", "model_folder", "framework_folder"]

def texts_of(given: Options, names: Iterable[str]) -> dict[str, str | None]: ...
'''
# Classes beside what all commands may read, with the commands whose types of some names they have.
ARGUMENTS = {"spec"}
DIFFERENT = {"Planned": ("plan", "buy"), "Hops": ("hops",), "Measured": ("calibrate", "normal")}


def given_text() -> str:
    """Return the file."""
    types = {command: _given(command) for command in COMMANDS}
    every: dict[str, set[str]] = {}
    for known in types.values():
        for name, kind in known.items():
            every.setdefault(name, set()).update(kind.split(" | "))
    # A command that has an argument of the name takes that by itself.
    apart = {name for name, kinds in every.items() if "int" in kinds and "str" in kinds} | ARGUMENTS
    classes = {"OfFolders(TypedDict": {n: every[n] for n in sorted(every) if n.endswith("_folder")}}
    classes["Given(OfFolders"] = {
        name: kinds
        for name, kinds in sorted(every.items())
        if not name.endswith("_folder") and name not in apart
    }
    for title, commands_of_it in DIFFERENT.items():
        several = [types[command] for command in commands_of_it]
        names = {name for known in several for name in known} & apart
        classes[f"{title}(Given"] = {
            name: {kind for known in several for kind in known.get(name, "").split(" | ") if kind}
            for name in sorted(names)
        }
    lines = GIVEN.splitlines()
    for head, fields in classes.items():
        lines += ["", f"class {head}, total=False):"]
        lines += [f"    {name}: {_union(kinds)}" for name, kinds in fields.items()] or ["    ..."]
    return "".join(f"{line}\n" for line in lines)


def _union(kinds: set[str]) -> str:
    """Return a type of several: words of different commands are text."""
    words = [kind for kind in kinds if kind.startswith("Literal")]
    plain = kinds if len(words) < 2 and "str" not in kinds else {*kinds} - {*words} | {"str"}
    return " | ".join(sorted(plain, key=lambda kind: (kind == "None", kind)))


def _given(command: str) -> dict[str, str]:
    """Return the type of what each of a command's options gives."""
    made = commands.get_command(click.Context(commands), command)
    assert made is not None
    options = [param for param in made.params if isinstance(param, click.Option)]
    return {str(param.name): _read(param) for param in options}


def _read(param: click.Option) -> str:
    if param.multiple or param.name == "show":
        return "tuple[str, ...]"
    if param.is_flag:
        kind = "bool"
    elif isinstance(param.type, click.Choice):
        kind = _literal(map(str, param.type.choices))
    else:
        whole = isinstance(param.type, click.types.IntParamType | click.IntRange)
        kind = "int" if whole else "str"
    return f"{kind} | None" if param.to_info_dict()["default"] is None else kind
