"""What a launch file says: settings with their places, and what is read of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from overhead.frozen import frozen
from sweeps.errors import few

LONGEST = 60  # characters of a value in a message


@frozen(slots=True)
class Location:
    """Where something stands."""

    file: str
    line: int = 0  # From 1; 0 where a format's reader doesn't tell it

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}" if self.line else self.file


class Unread(str):
    """The text of a value that can't be known without running its file."""

    __slots__ = ()


@frozen(slots=True)
class Setting:
    """One setting of a file."""

    name: str  # As the file has it
    value: Any  # Text of a command line; of other files what their format makes of it
    location: Location
    label: str = ""  # What the file calls it, where it is read under another name

    @property
    def shown(self) -> str:
        """What the file calls it."""
        return self.label or self.name

    def __str__(self) -> str:
        return f"{self.location}: {self.shown}"


@dataclass(slots=True)
class Reading:
    """What is read of a launch file: quantities and labels, and what became of every setting.

    Attributes
    ----------
    given : dict
        By quantity or label its value, in SI: arguments of `sweeps.sweep`.
    origins : dict of str to str
        By quantity or label the setting that it comes from with its line, or the framework's
        default that it is.
    read, no_cost, small, not_modelled, unknown : list of str
        Settings that a quantity got its value from, without effect on cost, of too little to
        count, that aren't modelled, and that nobody knows.
    defaults, notes : list of str
        What the framework does where the file is silent; what else to know.
    asks : list of str
        Options that the file leaves to who asks, such as ``--gpus``.
    """

    format: str
    file: str
    version: str = ""  # Of the framework whose defaults hold
    given: dict[str, Any] = field(default_factory=dict)  # By quantity or label
    # By quantity or label: the setting that it comes from; of others why it is so
    origins: dict[str, str] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)  # Settings that a quantity got its value from
    no_cost: list[str] = field(default_factory=list)
    small: list[str] = field(default_factory=list)  # Too little to count
    not_modelled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # With what may be meant
    defaults: list[str] = field(default_factory=list)  # What the framework does where it's silent
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # Of which each refuses the file
    asks: list[str] = field(default_factory=list)  # Options that a user has to add
    by_file: dict[str, list[str]] = field(default_factory=dict)  # What was read of each

    def take(self, name: str, value: Any, setting: Setting | str, why: str = "") -> None:
        """Take a quantity's value from a setting, or as a framework's own default, and why."""
        self.given[name] = value
        if isinstance(setting, Setting):
            self.origins[name] = f"{setting}" + (f" ({why})" if why else "")
            self.note_read(setting)
        else:
            self.origins[name] = setting or f"{self.version or self.format}: its default"
            if setting and setting not in self.defaults:
                self.defaults.append(setting)

    def note_read(self, setting: Setting) -> None:
        """Count a setting as read, of its file."""
        names = self.by_file.setdefault(setting.location.file, [])
        if setting.shown not in names:
            names.append(setting.shown)
        if setting.shown not in self.read:
            self.read.append(setting.shown)

    def fault(self, setting: Setting, value: str, wrong: str) -> None:
        """Note what is wrong with a setting, which refuses the file."""
        text = " ".join(value.split())
        shown = f" {text[:LONGEST]}{'..' * (len(text) > LONGEST)}" if text else ""
        self.faults.append(f"{setting}{shown}: {wrong}")

    def lines(self) -> Iterator[str]:
        """Yield what was read, in a few sentences."""
        files = self.file.split(", ")
        names = [*(file for file in files if file in self.by_file), *self.by_file]
        each = ", ".join(f"{len(self.by_file[name])} of {name}" for name in dict.fromkeys(names))
        of = f" ({each})" if len(self.by_file) > 1 else ""
        parts = [f"read {counted(len(self.read), 'setting')}{of}"]
        if self.no_cost:
            parts.append(f"{len(self.no_cost)} without effect on cost ({few(self.no_cost)})")
        if self.not_modelled:
            parts.append(f"{len(self.not_modelled)} not modelled: {few(self.not_modelled, 4)}")
        if self.unknown:
            parts.append(f"{len(self.unknown)} not understood: {few(self.unknown, 4)}")
        head = self.format if len(files) > 1 else f"{self.file} ({self.format})"
        yield f"{head}: {'; '.join(parts)}"
        if self.defaults:
            yield f"not stated, so as {self.version} has it: {few(self.defaults, 5, '; ')}"
        yield from self.notes


def counted(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
