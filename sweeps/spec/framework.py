"""A framework's file: constants, habits and options of the software that trains, checked whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from overhead.memory.breakdown import LABELS
from overhead.memory.precision import RECIPES
from overhead.overlap_labels import OVERLAPS
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.figures import ORIGINS, PRECISIONS, Entry, Figure, FigureReader
from sweeps.spec.training_rule import FRAMEWORK_RULE

__all__ = ["Choice", "Framework", "read_framework"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One name among several that a framework takes, and where that comes from."""

    value: str  # The name
    kind: str  # As of a `Figure`
    source: str  # As of a `Figure`

    @property
    def origin(self) -> str:
        """What it is and where it comes from, as one text."""
        return f"{self.kind}: {self.source}"


@dataclass(frozen=True, slots=True)
class Framework:
    """The software that trains: its constants, what it does by default, and its options."""

    # What the catalogue calls it (with the options that are on: ``torchtitan+eager``), what people
    # call it, and what to know of it
    name: str
    # What the catalogue calls it (with the options that are on: ``torchtitan+eager``), what people
    # call it, and what to know of it
    title: str
    # What the catalogue calls it (with the options that are on: ``torchtitan+eager``), what people
    # call it, and what to know of it
    summary: str
    path: Path  # Its file
    # By quantity: ``host_time``, ``tp_overlap``, ..  What the file doesn't state is the rule's
    figures: Mapping[str, Figure]
    stated: frozenset[str] = frozenset()  # The quantities that the file states
    # Labels that hold if the user gives no others
    choices: Mapping[str, Choice] = field(default_factory=dict)
    # The recipe of bytes a parameter for each precision that the file states
    precisions: Mapping[str, Choice] = field(default_factory=dict)
    # What its plans usually have: ``zero_stage``, ``sequence_parallel``
    plan: Mapping[str, Figure] = field(default_factory=dict)
    # By name: each option's own figures, choices and summary, for `with_options`
    options: Mapping[str, Framework] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that hold if the user gives no others."""
        return {name: choice.value for name, choice in self.choices.items()}

    def with_options(self, names: Sequence[str]) -> Framework:
        """Return the framework with some of its options on, the last of them the strongest."""
        wrong = [
            fault("framework", f"{self.name}+{name}", "has no such option", self._near(name))
            for name in names
            if name not in self.options
        ]
        if wrong:
            raise InputError(wrong)
        whole = self
        for name in dict.fromkeys(names):
            part = self.options[name]
            whole = replace(
                whole,
                name=f"{whole.name}+{name}",
                figures={**whole.figures, **part.figures},
                stated=whole.stated | part.stated,
                choices={**whole.choices, **part.choices},
                precisions={**whole.precisions, **part.precisions},
                plan={**whole.plan, **part.plan},
            )
        return whole

    def _near(self, name: str) -> str:
        return nearest(name, self.options) if self.options else "it has no options"


def _share(name: str) -> Entry:
    return Entry(name, "1", maximum=1.0)


def _bytes(name: str) -> Entry:
    return Entry(name, "byte")


def _number(name: str, minimum: float = 0.0) -> Entry:
    return Entry(name, "1", minimum=minimum)


_FIGURES: dict[str, Entry] = {
    entry.quantity: entry
    for entry in (
        Entry("host_time", "s"),
        Entry("elementwise_factor", "1", above=True),
        *map(_bytes, ("loss_bytes", "logit_bytes")),
        *map(_share, ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap")),
        _share("overlap_contention"),
        *map(_number, ("forward_operations", "backward_operations", "recompute_operations")),
        Entry("matmul_share", "1", above=True, maximum=1.0),
        *(
            Entry(name, "1", integer=True, maximum=1.0)
            for name in ("embedding_as_layer", "loss_as_layer", "dropout")
        ),
        # Of its memory; what isn't stated has the model's own default.
        *map(_bytes, ("workspace_bytes", "context_bytes", "bucket_bytes", "gradient_bytes")),
        *map(_number, ("gathered_layers", "buckets")),
        *map(_share, ("gathered_ends", "pending_share")),
        Entry("vocabulary_multiple", "1", minimum=1.0, integer=True),
        *(_number(name, 1.0) for name in ("loss_chunks", "reserve_factor")),
    )
}
_PLAN: dict[str, Entry] = {
    "zero_stage": Entry("zero_stage", "1", integer=True, maximum=3.0),
    "sequence_parallel": Entry("sequence_parallel", "1", integer=True, maximum=1.0),
}
_LABELS: dict[str, tuple[str, ...]] = {
    **{name: LABELS[name] for name in ("attention_kernel", "recompute", "sharding", "schedule")},
    "context_parallel": ("all_to_all", "ring", "all_gather"),
    **OVERLAPS,
}
_RECIPES: dict[str, tuple[str, ...]] = dict.fromkeys(PRECISIONS, tuple(RECIPES))
_TABLES = ("figures", "labels", "recipes", "plan")


def read_framework(path: Path, content: Mapping[str, Any]) -> Framework:
    """Make a framework of a framework file's content."""
    reader = _Reader(path, content)
    framework = reader.framework()
    if reader.faults:
        raise InputError(reader.faults)
    return framework


class _Reader(FigureReader):
    """A walk over a framework's file."""

    def framework(self) -> Framework:
        self.unknown("", self.content, ("name", "title", "summary", *_TABLES, "options"))
        summary = self.text("", self.content, "summary", default="")
        part = self._part("", self.name(), self.text("", self.content, "title"), summary)
        options = {name: self._option(name) for name in self.table("options")}
        return replace(part, figures={**FRAMEWORK_RULE, **part.figures}, options=options)

    def _option(self, name: str) -> Framework:
        place = f"options.{name}"
        table = self.table(place)
        self.unknown(place, table, ("summary", *_TABLES))
        if not name.isidentifier():
            self.fault("options", name, "can't be a name", "write letters, digits and _")
        if table and not any(key in table for key in _TABLES):
            self.faults.append(f"{self.path}: {place}: changes nothing; write [{place}.figures]")
        return self._part(f"{place}.", name, name, self.text(place, table, "summary"))

    def _part(self, prefix: str, name: str, title: str, summary: str) -> Framework:
        """Read the tables of the framework or of one of its options."""
        figures = self._figures(f"{prefix}figures", _FIGURES)
        return Framework(
            name=name,
            title=title,
            summary=summary,
            path=self.path,
            figures=figures,
            stated=frozenset(figures),
            choices=self._choices(f"{prefix}labels", _LABELS),
            precisions=self._choices(f"{prefix}recipes", _RECIPES),
            plan=self._figures(f"{prefix}plan", _PLAN),
        )

    def _figures(self, place: str, entries: Mapping[str, Entry]) -> dict[str, Figure]:
        table = self.table(place)
        self.unknown(place, table, entries)
        found = {
            key: self.figure(f"{place}.{key}", table[key], entry)
            for key, entry in entries.items()
            if key in table
        }
        return {key: figure for key, figure in found.items() if figure is not None}

    def _choices(self, place: str, known: Mapping[str, Sequence[str]]) -> dict[str, Choice]:
        table = self.table(place)
        self.unknown(place, table, known)
        found = {}
        for key, names in known.items():
            if key not in table:
                continue
            where, given = f"{place}.{key}", table[key]
            if not isinstance(given, dict):
                form = "write { value = .., kind = .., source = .. }"
                self.fault(where, given, "has no source", form)
                continue
            self.unknown(where, given, ("value", "kind", "source"))
            found[key] = Choice(
                self.choice(where, given, "value", names),
                self.choice(where, given, "kind", ORIGINS),
                self.text(where, given, "source"),
            )
        return found
