"""What help calls a default is what is taken: given back, it changes no number."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import click
import numpy as np
import pytest

import sweeps
from sweeps.cli import COMMANDS, commands, flags, plan_command
from sweeps.cli.defaults import MANY, OPERATION, STEP
from sweeps.cli.typed import flags_of
from sweeps.errors import InputError
from sweeps.search.request import DEGREES, SEARCHED, read_request
from sweeps.search.space import space_of
from tests.plans.cases import BASE
from tests.tables import examples

DEFAULT = re.compile(r"\[default: (?P<text>.+)\]")
# Words of what formulas say, in place of a value.
OF_FORMULAS = {usual.default for usual in flags.USUAL.values() if not usual.default.isdigit()}
OF_OPERATIONS: dict[str, Any] = {**OPERATION, "ranks": MANY}
OF_STEPS: dict[str, Any] = {**STEP, "world_size": MANY}


def value_of(name: str, command: str) -> str:
    """Return the value that help says is taken of a number of GPUs of several nodes."""
    match = DEFAULT.search(flags.words_of(name, command))
    text = match["text"] if match else ""
    if text in OF_FORMULAS or text == "the model's":
        return ""
    inner = re.search(r"\((?:[\w.+-]+: )(?P<values>.+)\)", text)
    values = inner["values"] if inner else text
    return values.split(", ")[-1].removesuffix(" over several")


STATED = [
    (command, name)
    for command, names in (("collective", flags.OF_COLLECTIVES), ("analysis", flags.OF_TRAINING))
    for name in names
    if value_of(name, command)
]


@cache
def answer(command: str, name: str = "", text: str = "") -> tuple[float, ...]:
    asked = OF_OPERATIONS if command == "collective" else OF_STEPS
    wanted = ["time"] if command == "collective" else ["step_time", "peak_memory"]
    given = {name: flags.read(name, text)} if name else {}
    dataset = sweeps.sweep(wanted, **asked, **given)
    return tuple(float(dataset[quantity]) for quantity in wanted)


@pytest.mark.thorough_cases(every=3)
@pytest.mark.parametrize(("command", "name"), STATED)
def test_a_default_given_back_changes_nothing(command: str, name: str) -> None:
    assert np.isfinite(answer(command)).all()
    assert answer(command, name, value_of(name, command)) == answer(command)


def test_most_options_state_a_default() -> None:
    assert len([name for command, name in STATED if command == "analysis"]) > 36
    assert len([name for command, name in STATED if command == "collective"]) > 7


@pytest.mark.parametrize(("command", "name", "words"), examples(__file__, "defaults"))
def test_help_says_what_a_default_depends_on(command: str, name: str, words: str) -> None:
    assert words in flags.words_of(name, command)


def test_what_is_searched_is_what_help_says() -> None:
    space = space_of(read_request(BASE).first)
    assert {*DEGREES, *space.choices} == {*SEARCHED}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_default_that_is_written_is_the_option_s(command: str) -> None:
    actual_command = commands.get_command(click.Context(commands), command)
    assert actual_command is not None
    for param in actual_command.params:
        stated = DEFAULT.search(getattr(param, "help", None) or "")
        usual = param.default
        if stated and isinstance(usual, str | int | float) and not isinstance(usual, bool):
            assert stated["text"].startswith(str(usual)), param.name


def test_a_search_states_what_it_takes() -> None:
    taken = {flags_of(name)[0]: default for name, default in plan_command.SEED.items()}
    command = commands.get_command(click.Context(commands), "plan")
    assert command is not None
    with command.make_context("plan", []) as context:
        asked = plan_command.read_options(context.params)
    assert {*asked.assumed} == {f"{flag} {default}" for flag, default in taken.items()}


@pytest.mark.parametrize("name", ["gpus", "num_gpus", "N"])
def test_python_knows_the_names_of_options(name: str) -> None:
    plain = sweeps.sweep("time", ranks=16, message_bytes=1e9)
    named: dict[str, Any] = {name: 16, "message_size": 1e9}
    assert float(sweeps.sweep("time", **named).time) == float(plain.time)


def test_python_refuses_two_names_with_unlike_values() -> None:
    with pytest.raises(InputError, match=r"gpus = 8 is given|stands beside"):
        sweeps.sweep("time", gpus=8, ranks=16, message_size=1e9)
    with pytest.raises(InputError, match=r"nodes = '4'.+gpus is 16"):
        sweeps.sweep("step_time", nodes=4, gpus=16, **STEP)
    with pytest.raises(InputError, match=r"gpus = '0'"):
        sweeps.sweep("step_time", gpus=0, **STEP)
