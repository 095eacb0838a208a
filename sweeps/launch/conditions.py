"""What a shell's conditions come to: true, false, or not known before it runs.

Understood are ``[ .. ]``, ``[[ .. ]]`` and ``test``, with comparisons of texts and whole numbers,
``-z`` and ``-n``, ``!``, ``&&`` and ``||``.  Files, commands and regular expressions aren't known.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

TESTS = {"[": "]", "[[": "]]", "test": ""}
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_AND, _OR = ("&&", "-a"), ("||", "-o")


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a condition: as it stands, and its value, if that is known."""

    raw: str
    value: str | None


@dataclass(slots=True)
class Branch:
    """An ``if`` whose end hasn't come: whether the part that is read runs."""

    runs: bool | None = None
    taken: bool | None = False  # Whether a part before it did

    def begin(self, condition: bool | None) -> None:
        """Begin the part that a condition guards, if none before it ran."""
        self.taken = either(self.taken, self.runs)
        self.runs = both(opposite(self.taken), condition)


@dataclass(slots=True)
class Condition:
    """The words of a condition, as they come."""

    terms: list[Term] = field(default_factory=list)
    strange: bool = False  # Whether a command's success is part of it
    alone: bool = False  # Whether it stands without ``if``

    @property
    def is_open(self) -> bool:
        """Whether a bracket of it is still open."""
        raws = [term.raw for term in self.terms]
        return any(raws.count(first) > raws.count(last) for first, last in TESTS.items() if last)

    def is_over(self, words: Sequence[Sequence[tuple[str, int]]]) -> bool:
        """Whether a statement is what it guards, where it stands without ``if``."""
        first = "".join(sign for sign, _ in words[0]) if words else ""
        return self.alone and bool(self.terms) and not self.is_open and first not in (*TESTS, "!")

    def decided(self) -> bool | None:
        """Return what it comes to."""
        return None if self.strange or not self.terms else _Parser(self.terms).listed()


def settled(value: bool | None) -> list[Term]:
    """Return the terms of a test that has come to a value."""
    texts = {True: "1", False: "", None: None}
    return [Term("[", "["), Term("", texts[value]), Term("]", "]")]


def both(first: bool | None, second: bool | None) -> bool | None:
    """Return whether both hold, as far as that is known."""
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def opposite(value: bool | None) -> bool | None:
    """Return whether it doesn't hold."""
    return None if value is None else not value


def either(first: bool | None, second: bool | None) -> bool | None:
    """Return whether one of both holds, as far as that is known."""
    return opposite(both(opposite(first), opposite(second)))


class _Parser:
    """Reads a condition's words from the first to the last."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = terms
        self.position = 0

    def _next(self) -> str:
        return self.terms[self.position].raw if self.position < len(self.terms) else ""

    def listed(self) -> bool | None:
        """Return what tests come to that follow each other: none binds tighter."""
        value = self._test()
        while self._next() in ("&&", "||"):
            joined = both if self._next() == "&&" else either
            self.position += 1
            value = joined(value, self._test())
        return value

    def _test(self) -> bool | None:
        if self._next() == "!":
            self.position += 1
            return opposite(self._test())
        if self._next() not in TESTS:
            self.position = len(self.terms)
            return None
        last = TESTS[self._next()]
        self.position += 1
        value = self._either(last)
        self.position += bool(last)
        return value

    def _either(self, last: str) -> bool | None:
        value = self._both(last)
        while self._next() in _OR and (last or self._next() != "||"):
            self.position += 1
            value = either(value, self._both(last))
        return value

    def _both(self, last: str) -> bool | None:
        value = self._comparison(last)
        while self._next() in _AND and (last or self._next() != "&&"):
            self.position += 1
            value = both(value, self._comparison(last))
        return value

    def _comparison(self, last: str) -> bool | None:
        if self._next() == "!":
            self.position += 1
            return opposite(self._comparison(last))
        begin = self.position
        while self.position < len(self.terms) and self._next() not in (last, *_AND, *_OR):
            self.position += 1
        return _compared(self.terms[begin : self.position], globs=last == "]]")


def _compared(terms: Sequence[Term], *, globs: bool) -> bool | None:
    """Return what one comparison comes to."""
    values = [term.value for term in terms]
    if len(terms) == 1:
        return None if values[0] is None else bool(values[0])
    if len(terms) == 2 and terms[0].raw in ("-z", "-n"):
        return None if values[1] is None else bool(values[1]) == (terms[0].raw == "-n")
    if len(terms) != 3 or values[0] is None or values[2] is None:
        return None
    first, sign, second = values[0], terms[1].raw, values[2]
    if sign in _NUMBERS:
        whole = all(re.fullmatch(r"[+-]?\d+", text.strip()) for text in (first, second))
        return _NUMBERS[sign](int(first), int(second)) if whole else None
    if sign not in ("=", "==", "!="):
        return None
    pattern = globs and terms[2].raw[:1] not in "'\"" and bool(set("*?[") & set(second))
    same = fnmatchcase(first, second) if pattern else first == second
    return same == (sign != "!=")
