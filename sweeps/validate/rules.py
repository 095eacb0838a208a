"""Rules that make settings of the words of a run: which software, machine, model and plan it is.

The rules stand in ``specs/measured/rules.toml``, the same for all rows that their conditions
match; none is of one row.  A rule's ``where`` gives for columns of the table a regular expression
each, which has to be found there; ``set`` says what then holds, and so do the expressions' named
groups.  Later rules win over earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from overhead.everything import load
from overhead.memory import RECIPES
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.catalog import read_toml, shipped
from sweeps.validate.run_table import LABELS, NUMBERS, TEXTS, Run

__all__ = ["Rule", "Settings", "read_rules", "settings_of", "shipped_rules"]

# Words that settings may have beside the labels that a table may state itself.
WORDS = ("model", "precision", "recompute", "topology", "measure", "stages")
# Numbers that aren't quantities of their own: what they give is computed of them.
HELPERS = {
    "shared_experts": "shared experts of a layer, each as large as a routed one",
    "card_gigabits": "a network card's rate, in Gbit/s",
    "node_gigabits": "all of a node's network cards' rate, in Gbit/s",
    "gpu_gigabits": "a GPU's network cards' rate, in Gbit/s",
    "loss_chunk_words": "tokens of the vocabulary in a chunk of the loss",
    "unit_bytes": "bytes of the unit in which memory is stated",
    "domains": "whether a node is as many of a larger machine's GPUs as a run fills evenly",
}
_KEYS = ("where", "set", "usual", "assumed", "skip", "because")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    where: Mapping[str, re.Pattern[str]]  # What has to be found in which column
    words: Mapping[str, str]  # What then holds
    numbers: Mapping[str, float]  # What then holds
    usual: Mapping[str, float]  # What holds unless the row or the catalogue says it
    assumed: tuple[str, ...]  # Settings that nobody stated
    skip: str  # Why such a row can't be predicted; empty where it can
    because: str  # Where that is known from


@dataclass(slots=True)
class Settings:
    """What the rules say of one run."""

    # What holds; the last unless the row or the catalogue says it
    words: dict[str, str] = field(default_factory=dict)
    # What holds; the last unless the row or the catalogue says it
    numbers: dict[str, float] = field(default_factory=dict)
    # What holds; the last unless the row or the catalogue says it
    usual: dict[str, float] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)  # Settings that nobody stated, in order
    skip: str = ""  # Why it can't be predicted; empty where it can
    read: set[str] = field(default_factory=set)  # Columns that a rule understood


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """Return the rules of ``specs/measured/rules.toml``."""
    return read_rules(shipped("measured") / "rules.toml")


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Read a file of rules."""
    load()
    faults: list[str] = []
    rules = []
    for number, stated in enumerate(read_toml(path).get("rules", []), 1):
        place = f"{path.name}, rule {number}"
        faults += [
            fault(f"{place}, {key}", "..", "no such key", nearest(key, _KEYS))
            for key in stated
            if key not in _KEYS
        ]
        where = _conditions(stated.get("where", {}), f"{place}, where", faults)
        words, numbers = _held(stated.get("set", {}), f"{place}, set", faults)
        weak, usual = _held(stated.get("usual", {}), f"{place}, usual", faults)
        faults += [fault(f"{place}, usual.{name}", "..", "no number", "under set") for name in weak]
        rules.append(
            Rule(
                where,
                words,
                numbers,
                usual,
                tuple(stated.get("assumed", ())),
                stated.get("skip", ""),
                stated.get("because", ""),
            )
        )
    if faults:
        raise InputError(faults)
    return tuple(rules)


def _conditions(
    stated: Mapping[str, str], place: str, faults: list[str]
) -> dict[str, re.Pattern[str]]:
    known = (*TEXTS, *NUMBERS, *LABELS)
    found = {}
    for column, text in stated.items():
        if column not in known:
            faults.append(
                fault(f"{place}.{column}", "..", "no such column", nearest(column, known))
            )
            continue
        try:
            found[column] = re.compile(text, re.IGNORECASE)
        except re.error as error:
            faults.append(fault(f"{place}.{column}", text, "no expression", str(error)))
            continue
        groups = found[column].groupindex
        wrong = [name for name in groups if name not in VOCABULARY and name not in HELPERS]
        faults += [
            fault(f"{place}.{column}", name, "no such quantity", nearest(name, VOCABULARY))
            for name in wrong
        ]
    return found


def _held(
    stated: Mapping[str, Any], place: str, faults: list[str]
) -> tuple[dict[str, str], dict[str, float]]:
    words: dict[str, str] = {}
    numbers: dict[str, float] = {}
    for name, value in stated.items():
        if name in (*LABELS, *WORDS):
            words[name] = str(value)
            if name == "recipe" and value not in RECIPES:
                faults.append(fault(f"{place}.{name}", value, "unknown", nearest(value, RECIPES)))
        elif name in VOCABULARY or name in HELPERS:
            numbers[name] = float(value)
        else:
            known = (*LABELS, *WORDS, *HELPERS, *VOCABULARY)
            faults.append(fault(f"{place}.{name}", value, "no such setting", nearest(name, known)))
    return words, numbers


def settings_of(run: Run, rules: Iterable[Rule]) -> Settings:
    """Return what rules say of a run."""
    found = Settings()
    for rule in rules:
        matches = _matches(run, rule)
        if matches is None:
            continue
        found.words |= rule.words
        found.numbers |= rule.numbers
        found.usual |= rule.usual
        for match in matches:
            groups = match.groupdict()
            found.numbers |= {name: float(text) for name, text in groups.items() if text}
        found.assumed |= dict.fromkeys(rule.assumed)
        found.skip = found.skip or rule.skip
        found.read |= set(rule.where)
    return found


def _matches(run: Run, rule: Rule) -> Sequence[re.Match[str]] | None:
    matches = []
    for column, pattern in rule.where.items():
        match = pattern.search(_text(run, column))
        if match is None:
            return None
        matches.append(match)
    return matches


def _text(run: Run, column: str) -> str:
    """Return what a column says of a run: words, or a number as people write it."""
    if column in run.numbers:
        return f"{run.numbers[column]:.15g}"
    return run.texts.get(column, "")
