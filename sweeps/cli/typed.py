"""Commands that know how their options were typed: each has one value, and messages name it so."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from overhead.quantity import VOCABULARY
from sweeps.cli.given import Folder, OfFolders, Options
from sweeps.cli.refusals import on_command_line
from sweeps.errors import Fault, InputError, fault, refuse, tell_all
from sweeps.spec.axis import parse_values
from sweeps.spec.names import names_of
from sweeps.spec.units import spelled_out

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

TYPED = f"{__name__}.typed"
# In a sentence a word without an underscore is a word, but before its value.
WORD = re.compile(r"(?<![\w'-])[a-z0-9]+(?:(?:_[a-z0-9]+)+(?![\w(])|(?= is \d))")
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


@contextmanager
def _in_style(given: Options) -> Iterator[None]:
    """Draw the figures of a command in the style that it is asked for."""
    style = given.get("style")
    if style is None:
        yield
        return
    from sweeps.plots.style import using

    with using(str(style)):
        if given.get("plot") is False:
            refuse("--style", style, "is of figures", "--plot, too")
        yield


class Command(click.Command):
    """A command whose options have one value each, and whose messages name them as typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; refuse two values of one option, under whichever of its names."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        every = occurrences(self, ctx, given)
        others = {
            str(param.name): flag for param in self.params for flag in param.opts if flag in given
        }
        ctx.meta[TYPED] = others | {name: pairs[-1][0] for name, pairs in every.items()}
        tell_all([line for name, pairs in every.items() for line in _several(name, pairs)])
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; what it refuses is told of options as they were typed."""
        try:
            with _in_style(ctx.params):
                return super().invoke(ctx)
        except InputError as error:
            options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
            names = {str(option.name): typed_or(ctx, option) for option in options}
            for option in options:
                for flag in option.opts:
                    names[flag] = typed_or(ctx, option)
                    names.setdefault(flag.lstrip("-").replace("-", "_"), names[flag])
            values = {name: text for name in names if isinstance(text := ctx.params.get(name), str)}
            typed = ctx.meta.get(TYPED, {}).values()
            raise InputError(
                [on_command_line(as_typed(line, names, values), typed) for line in error.faults]
            ) from None


def flag_of(name: str) -> str:
    """Return the option by which a quantity or label is given: as it was typed, if it was."""
    context = click.get_current_context(silent=True)
    typed: Mapping[str, str] = context.meta.get(TYPED, {}) if context else {}
    return typed.get(name) or flags_of(name)[0]


def flags_of(name: str) -> tuple[str, ...]:
    """Return all options by which a quantity or label is given, the one that help shows first."""
    return tuple(f"--{spelling.replace('_', '-')}" for spelling in names_of(name))


# The user's own files by kind, each in folders of its own.
OWN = {"hardware": "machines", "model": "models", "framework": "frameworks"}
OTHER_FOLDERS: tuple[Folder, ...] = ("model_folder", "framework_folder")


def folders_of(given: OfFolders, option: Folder = "hardware_folder") -> list[Path]:
    """Return the folders of the user's own files of a kind, or refuse those that there aren't."""
    kind, folders = option.removesuffix("_folder"), [Path(folder) for folder in given[option]]
    allowed = f"one of {OWN[kind]}' files"
    tell_all(
        [
            fault(f"--{kind}-dir", folder, "no such folder", allowed)
            for folder in folders
            if not folder.is_dir()
        ]
    )
    return folders


def typed_or(ctx: click.Context, option: click.Option) -> str:
    """Return the name by which an option was typed, or its first one."""
    return str(ctx.meta.get(TYPED, {}).get(option.name, option.opts[0]))


def refuse_given(names: Collection[str], wrong: str, allowed: str = "leave it out") -> None:
    """Refuse those of the command's options that are given, and would do nothing."""
    context = click.get_current_context()
    faults = []
    for option in context.command.get_params(context):
        name, value = str(option.name), context.params.get(str(option.name))
        usual = (None, False, (), option.get_default(context))
        if isinstance(option, click.Option) and name in names and value not in usual:
            shown = ", ".join(value) if isinstance(value, tuple) else value
            shown = "set" if value is True else shown
            faults.append(fault(typed_or(context, option), shown, wrong, allowed))
    tell_all(faults)


def occurrences(
    command: click.Command, ctx: click.Context, args: Sequence[str]
) -> dict[str, list[tuple[str, Any]]]:
    """Return for each option that takes one value every name by which it is given, with values."""
    names: dict[str, str] = {}
    probes: list[click.Parameter] = []
    for param in command.get_params(ctx):
        if not isinstance(param, click.Option) or param.multiple or param.is_flag or param.count:
            probes.append(param)
            continue
        for flag in param.opts:
            probe = copy.copy(param)
            probe.name, probe.opts, probe.secondary_opts, probe.multiple = flag, [flag], [], True
            probes.append(probe)
            names[flag] = str(param.name)
    several = click.Command(command.name, params=probes, add_help_option=False)
    read, _, order = several.make_parser(ctx).parse_args([*args])
    values = {flag: iter(read.get(flag, ())) for flag in names}
    values_of: dict[str, list[tuple[str, Any]]] = {}
    for parameter in order:
        if (flag := str(parameter.name)) in names:
            values_of.setdefault(names[flag], []).append((flag, next(values[flag])))
    return values_of


def _several(name: str, pairs: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield a fault for each value of an option that isn't its last one."""
    *others, (flag, last) = pairs
    for other, value in others:
        if not _same(name, str(value), str(last)):
            what = "is given twice" if other == flag else "two names of one option"
            wrong = f"{what} with different values"
            yield fault((other, flag), (value, last), wrong, "give one")


def _same(name: str, first: str, other: str) -> bool:
    """Return whether two texts say the same value of an option."""
    if first.strip() == other.strip():
        return True
    units = VOCABULARY[name].units if name in VOCABULARY else "1"
    try:
        values = [
            parse_values(spelled_out(name, text), units, field=name, bare_is_si=True).tolist()
            for text in (first, other)
        ]
    except InputError:
        return False
    return bool(values[0] == values[1])


def as_typed(line: str, names: Mapping[str, str], values: Mapping[str, str]) -> str:
    """Return a fault with options, and their values, in the place of what they give.

    Lines without parts are those of files, which stay; so do faults of what a file states.
    """
    if not isinstance(line, Fault) or any("." in name for name in line.names):
        return line
    flags = tuple(names.get(name, name) for name in line.names)
    given = line.values
    if given == ("..",) and len(flags) == 1:
        # Along an axis whoever refuses a value doesn't know how it was written.
        texts = (text for name, text in values.items() if flags[0] in (name, names[name]))
        given = (next(texts, ".."),)

    def flag(match: re.Match[str]) -> str:
        return names.get(match[0], match[0])

    return Fault(flags, given, WORD.sub(flag, FLAG.sub(flag, line.reason)))
