"""Named settings of a file: looked up by name, each once, with what overrules them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sweeps.launch.setting import Reading, Setting, Unread
from sweeps.launch.shell import HOLE, Word
from sweeps.launch.terms import Key, keys_of
from sweeps.spec.names import names_of

FALSE = frozenset(("false", "no", "off", "0"))
# What others are divided by.
AT_LEAST_ONE = frozenset(
    ("tp", "pp", "cp", "ep", "etp", "heads", "micro_batch_size", "sequence_length", "world_size")
)


def arguments(words: Iterable[Word]) -> Iterator[tuple[str, list[str], int]]:
    """Yield a command line's arguments: the flag, the words behind it, the line."""
    name, values, line = "", list[str](), 0
    for word in words:
        if word.text.startswith("--") and len(word.text) > 2:
            if name:
                yield name, values, line
            name, equals, value = word.text.partition("=")
            values, line = [value] if equals else [], word.line
        elif not (values and word.is_hole):  # what may be further arguments
            values.append(word.text)
    if name:
        yield name, values, line


@dataclass(frozen=True, slots=True)
class Override:
    """A value of the command line, which rules over a file's."""

    flag: str  # As it was typed
    text: str  # Its value

    @property
    def number(self) -> float | None:
        """The value where it is one number."""
        try:
            return float(self.text)
        except ValueError:
            return None


UNREAD = "can't be read without running it"


class Settings:
    """The settings of a file by name, with the reading that they become."""

    def __init__(
        self,
        settings: Iterable[Setting],
        reading: Reading,
        overrides: Mapping[str, Override],
        unknown: Mapping[str, str] | None = None,
    ) -> None:
        self.by_name: dict[str, Setting] = {}
        self.reading = reading
        self.overrides = overrides
        self.holes = unknown or {}  # By variable: why it has no value
        self.used: set[str] = set()
        self.twice: dict[str, str] = {}  # What is wrong with two values, where a cost needs one
        for setting in settings:
            self._add(setting)

    def _add(self, setting: Setting) -> None:
        first = self.by_name.get(setting.name)
        if first is not None and str(first.value).lower() != str(setting.value).lower():
            origins = f"{first.location}, and {setting.location}"
            self.twice[setting.name] = (
                f"{origins}: {setting.shown} is given twice, {first.value} and {setting.value}; "
                "remove one"
            )
        self.by_name[setting.name] = setting

    def __contains__(self, name: str) -> bool:
        """Whether a setting is there and switched on; it counts as read."""
        setting = self.find(name)
        return setting is not None and str(setting.value).lower() not in (*FALSE, "none", "null")

    def find(self, *names: str) -> Setting | None:
        """Return the first of some settings that is there; it counts as read."""
        for name in names:
            if name in self.by_name:
                setting = self.by_name[name]
                if isinstance(setting.value, Unread) and name not in self.used:
                    self.reading.fault(setting, "", f"'{setting.value}' {UNREAD}")
                if name in self.twice and name not in self.used:
                    self.reading.faults.append(self.twice[name])
                self.used.add(name)
                return setting
        return None

    def text(self, *names: str, default: str = "") -> str:
        """Return a setting's text."""
        setting = self.find(*names)
        if setting is None or str(setting.value).lower() in ("none", "null", ""):
            return default
        return str(setting.value)

    def number(
        self, *names: str, quantity: str = "", default: float = math.nan, whole: bool = True
    ) -> float:
        """Return a setting's number; the command line's where that gives the quantity."""
        setting = self.find(*names)
        if (ruled := self.overruled(quantity, setting)) is not None:
            return ruled
        if setting is None or str(setting.value).lower() in ("none", "null", ""):
            return default
        value = self._read(setting, quantity, whole=whole)
        return default if value is None else value

    def overruled(self, quantity: str, setting: Setting | None) -> float | None:
        """Return the command line's number of a quantity, and note what it rules over."""
        override = self.overrides.get(quantity)
        if override is None:
            return None
        if setting is not None and str(setting.value) != override.text:
            self.reading.notes.append(
                f"{override.flag} {override.text} rules over {setting.shown} {setting.value} "
                f"({setting.location})"
            )
        return override.number

    def _read(self, setting: Setting, quantity: str, *, whole: bool) -> float | None:
        text = str(setting.value)
        if HOLE in text:
            self._hole(setting, text, quantity)
            return None
        if "${" in text:
            wrong = "refers to a value that isn't in the file, or is computed; write the number"
            self.reading.fault(setting, text, f"{wrong}{_or_give(quantity)}")
            return None
        try:
            value = float(text.replace("_", "")) if not isinstance(setting.value, bool) else None
        except ValueError:
            value = None
        if value is not None and whole and value < 1.0 and quantity in AT_LEAST_ONE:
            self.reading.fault(setting, text, "must be 1 or more")
            return None
        if value is None or not math.isfinite(value) or (whole and not value.is_integer()):
            kind = "a whole number is expected, such as 4096" if whole else "a number is expected"
            self.reading.fault(setting, text, kind)
            return None
        return value

    def _hole(self, setting: Setting, text: str, quantity: str) -> None:
        name = text.split(HOLE)[1]
        shown = text.replace(f"{HOLE}{name}{HOLE}", f"${name}")
        why = self.holes.get(name, f"{name} has no value")
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            why += f"; set {name}=.. before"
        self.reading.fault(setting, shown, f"{why}{_or_give(quantity)}")

    def take(self, quantity: str, value: Any, *names: str, why: str = "", note: str = "") -> None:
        """Take a quantity's value, from the first of the settings that is there.

        Where none is, `why` says what the framework does then; a note is told in any case.  What
        the command line gives stays its own.
        """
        setting = next((self.by_name[name] for name in names if name in self.by_name), None)
        if setting is not None:
            self.used.add(setting.name)
        if quantity in self.overrides:
            return
        if isinstance(value, float) and not math.isfinite(value):
            return
        if setting is None:
            self.reading.take(quantity, value, why)
        else:
            self.reading.take(quantity, value, setting, note)

    def take_number(
        self,
        quantity: str,
        *names: str,
        usual: float = math.nan,
        whole: bool = True,
        why: str = "",
    ) -> float:
        """Take a quantity's number and return it; the framework's usual one of a silent file."""
        value = self.number(*names, quantity=quantity, default=usual, whole=whole)
        self.take(quantity, value, *names, why=why)
        return value

    def take_declared(self, framework: str, *names: str) -> None:
        """Take the numbers of settings as the framework's table declares them."""
        for name in names:
            key = keys_of(framework)[name]
            self.take_number(key.quantity, name, usual=key.usual, why=f"{name} {key.usual:g}")

    def take_switch(self, quantity: str, name: str, value: Any = 1.0) -> bool:
        """Take a value if a setting is there and switched on; return whether it is."""
        on = name in self
        if on:
            self.take(quantity, value, name)
        return on

    def take_flag(self, quantity: str, name: str, why: str = "", *, off: bool = False) -> bool:
        """Take 1 if a setting is switched on, else 0; if `off` the other way round."""
        value = (name in self) != off
        self.take(quantity, float(value), name, why=why)
        return value

    def take_word(
        self, quantity: str, name: str, words: Mapping[str, Any], usual: str, why: str
    ) -> str:
        """Take what a framework's word is of ours, or refuse one that has none; return the word."""
        word = self.text(name, default=usual)
        if word in words:
            self.take(quantity, words[word], name, why=why)
        else:
            known = ", ".join(filter(None, words))
            self.reading.fault(self.by_name[name], word, f"isn't modelled; {known} are")
        return word

    def classify(
        self,
        keys: Mapping[str, Key],
        refused: Callable[[Setting], str] = lambda _: "isn't modelled",
    ) -> None:
        """Say of every setting what became of it."""
        reading = self.reading
        for name, setting in self.by_name.items():
            if setting.value in (None, [], {}, ""):  # it is silent
                continue
            key, shown = keys.get(name) or _of_table(name, keys), setting.shown
            if key is None:
                reading.unknown.append(meant(shown, keys))
            elif key.effect == "refused":
                reading.fault(setting, "", refused(setting))
            elif key.effect == "none":
                reading.no_cost.append(shown)
            elif key.effect == "small":
                reading.small.append(shown)
            elif key.effect == "not modelled" or not (key.effect == "implied" or name in self.used):
                if str(setting.value).lower() not in FALSE:
                    reading.not_modelled.append(shown)
            else:
                reading.note_read(setting)


def _or_give(quantity: str) -> str:
    """Return which option gives a quantity in place of a file, if any does."""
    return f", or give --{names_of(quantity)[0].replace('_', '-')}" if quantity else ""


def _of_table(name: str, keys: Mapping[str, Key]) -> Key | None:
    """Return what is known of the table that a setting stands in, the innermost first."""
    while "." in name:
        name = name.rpartition(".")[0]
        if f"{name}.*" in keys:
            return keys[f"{name}.*"]
    return None


def meant(name: str, known: Iterable[str]) -> str:
    """Return a name that isn't known, with the nearest that is."""
    near = get_close_matches(name, list(known), 1, 0.8)
    return f"{name} (did you mean {near[0]}?)" if near else name
