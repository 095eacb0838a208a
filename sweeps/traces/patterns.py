"""What rows of a trace are, by patterns that are data."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import needs
from sweeps.spec.fields import FigureReader
from sweeps.spec.files import read_toml, shipped
from sweeps.traces.columns import Trace

CLASSES = ("gemm", "other", "communication", "copy", "wait")
"""What GPU rows can be; their places are the codes that `Patterns.classify` gives."""

EXCLUDED = -1
"""The code of rows that are no work of the GPU."""

_EXCLUDED_WORD = "excluded"
KINDS = (
    "attention",
    "convolution",
    "embedding",
    "experts",
    "norm",
    "optimizer",
    "pointwise",
    "quantization",
    "reduction",
    "softmax",
)
"""What a rule may say more of computation that is no product."""

_KEYS = ("class", "kind", "categories", "names", "except", "because")
_FILE_KEYS = ("activity", "alone", "rules")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: whose rows it is about, and what these are."""

    code: int  # The class's place, or that of excluded rows
    # What is looked for in a name (nothing for all names), and what must not be in it
    names: tuple[re.Pattern[str], ...]
    exceptions: tuple[re.Pattern[str], ...]
    categories: frozenset[str]  # In small letters; empty for all
    kind: str = ""  # Of `KINDS`, or nothing

    def holds(self, category: str, name: str) -> bool:
        """Tell whether the rule holds for a row."""
        if self.categories and category not in self.categories:
            return False
        if self.names and not any(each.search(name) for each in self.names):
            return False
        return not any(exception.search(name) for exception in self.exceptions)


@dataclass(frozen=True, slots=True)
class Patterns:
    """Rules in order; the first that holds decides."""

    activity: frozenset[str]  # Categories of rows that are work of the GPU, in small letters
    rules: tuple[Rule, ...]  # As they are tried
    text: str  # The files that they come from

    def code(self, category: str, name: str) -> int:
        """Return the code of a row by its category and name."""
        if category.lower() not in self.activity:
            return EXCLUDED
        rule = self.rule(category, name)
        return CLASSES.index("other") if rule is None else rule.code

    def rule(self, category: str, name: str) -> Rule | None:
        """Return the rule that decides what a row is; None where none knows it."""
        small = category.lower()
        return next((rule for rule in self.rules if rule.holds(small, name)), None)

    def classify(self, trace: Trace) -> NDArray[np.int8]:
        """Return the code of each of a trace's rows."""
        rows, count = trace.rows, max(len(trace.names), 1)
        kinds, inverse = np.unique(
            rows.category.astype(np.int64) * count + rows.name, return_inverse=True
        )
        codes = [
            self.code(trace.categories[kind // count], trace.names[kind % count])
            for kind in kinds.tolist()
        ]
        return np.array(codes, dtype=np.int8)[inverse]


def load_patterns(path: str | os.PathLike[str] | None = None) -> Patterns:
    """Read the patterns that tell what rows are."""
    ours = _read(shipped("traces") / "patterns.toml")
    if path is None:
        return ours[0]
    theirs, alone = _read(Path(path))
    if alone:
        return theirs
    text = f"{theirs.text}\n{ours[0].text}"
    return Patterns(theirs.activity or ours[0].activity, theirs.rules + ours[0].rules, text)


def _read(path: Path) -> tuple[Patterns, bool]:
    """Read one file; return its patterns, and whether they stand alone."""
    file = FigureReader(path, read_toml(path))
    file.unknown("", file.content, _FILE_KEYS)
    alone = file.content.get("alone", False)
    activity: Any = file.content.get("activity", [])
    if not isinstance(alone, bool):
        file.fault("alone", alone, "is neither true nor false", "true or false")
    if not _is_texts(activity) or (alone is True and not activity):
        file.fault("activity", activity, "are not categories", "such as ['kernel']")
    listed = file.content.get("rules", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        file.fault("rules", listed, "are not tables", "[[rules]]")
        listed = []
    for index, table in enumerate(listed, start=1):
        _check(file, f"rule {index}", table)
    file.tell()
    rules = tuple(_rule(table) for table in listed)
    text = path.read_text(encoding="utf-8")
    return Patterns(frozenset(each.lower() for each in activity), rules, text), alone is True


def _check(file: FigureReader, where: str, table: Mapping[str, Any]) -> None:
    """Note what is wrong with a rule."""
    file.unknown(where, table, _KEYS)
    file.choice(where, table, "class", (*CLASSES, _EXCLUDED_WORD))
    if "kind" in table:
        file.choice(where, table, "kind", KINDS)
    for key in ("names", "categories", "except"):
        if key in table and not (_is_texts(table[key]) and table[key]):
            file.fault(f"{where}.{key}", table[key], "is not a list of texts", "['nccl']")
    if not {"names", "categories"} & table.keys():
        file.faults.append(
            needs(f"{file.path}: {where}", "what it is about", "names, or categories")
        )
    for key in ("names", "except"):
        for text in table.get(key, ()) if _is_texts(table.get(key, ())) else ():
            try:
                re.compile(text)
            except re.error as error:
                wrong = f"is not a regular expression ({error})"
                file.fault(f"{where}.{key}", text, wrong, "one")


def _rule(table: Mapping[str, Any]) -> Rule:
    name = table["class"]
    return Rule(
        EXCLUDED if name == _EXCLUDED_WORD else CLASSES.index(name),
        _compiled(table.get("names", ())),
        _compiled(table.get("except", ())),
        frozenset(each.lower() for each in table.get("categories", ())),
        table.get("kind", ""),
    )


def _compiled(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text) for text in texts)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
