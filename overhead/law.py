"""Laws of formulas: how each moves with what it takes, as data that tests hold and screens show.

A formula states its laws beside itself (``@formula(.., laws="up: a b; flat: c")``) or, most of
them, in a row of ``laws/SUBJECT.csv``, which is read when a law is asked for.  The column ``laws``
has kinds of `KINDS` with the inputs of which each holds; ``free`` has the inputs that have no
direction, each with its reason; ``at`` has values worked out by hand: only these see a wrong
constant.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from overhead.expression import evaluate
from overhead.formula import Formula

# Kinds that say how a formula moves with an input: each input has one of them, or is free.  A
# ``power N`` is another exact power than 1 and -1.  What ``chooses`` is the number of a case, such
# as of a stage or of a class of measured rows.
MOVING = {
    "proportional": "up",
    "inverse": "down",
    "linear": "up",
    "linear down": "down",
    "up": "up",
    "down": "down",
    "flat": "flat",
    "chooses": "free",
}
# Kinds that an input may have beside, each with what it says: limits, and bounds.
BESIDE = {
    "zero": "0 where one is 0:",
    "alone": "0 where one is 1:",
    "hidden": "0 where all hides, wholly and for long enough, behind",
    "least": "never below",
    "most": "never above",
}
# What each algorithm of a collective has, on every network (``tests/overhead/test_laws.py``).
OF_ALGORITHMS = (
    "time never falls with message size, latency or oversubscription",
    "time never rises with bandwidth, and is never below its lower bound",
    "bytes and energy are proportional to message size; one rank costs nothing",
)
FOLDER = Path(__file__).parent / "laws"


@dataclass(frozen=True)
class Law:
    """The laws of one formula.

    Attributes
    ----------
    moving : mapping of str to str
        For each input how the formula moves with it: a kind of `MOVING` or ``power N``.
    beside : mapping of str to tuple of str
        For each kind of `BESIDE` the inputs of which it holds; ``hidden`` holds of all at once.
    free : mapping of str to str
        Inputs in which it has no direction, with the reason.
    at : tuple of str
        Values worked out by hand, as ``a=2 b=100 -> 2*100/8``.
    above : mapping of str to float
        Inputs whose kind holds above their lowest value only: there they mean something else,
        such as 0 for no limit, or 1 rank for no communication.
    """

    moving: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    free: Mapping[str, str] = field(default_factory=dict)
    at: tuple[str, ...] = ()
    above: Mapping[str, float] = field(default_factory=dict)

    def direction(self, name: str) -> str:
        """Return ``up``, ``down``, ``flat`` or ``free``."""
        if name in self.free:
            return "free"
        power = power_of(self.moving[name])
        return MOVING.get(self.moving[name]) or ("up" if power and power > 0.0 else "down")

    def worked(self, inputs: tuple[str, ...]) -> Iterator[tuple[dict[str, float], float]]:
        """Yield what is given by hand: all inputs (``*`` is those not named), and the value."""
        for text in self.at:
            given, _, value = text.partition("->")
            known = dict(pair.split("=") for pair in given.split())
            rest = known.pop("*", None)
            if strange := set(known) - set(inputs):
                message = f"{text}: {', '.join(sorted(strange))} is no input"
                raise ValueError(message)
            yield (
                {name: float(evaluate(known.get(name, rest) or "nan", {})) for name in inputs},
                float(evaluate(value.strip(), {})),
            )

    def lines(self) -> Iterator[str]:
        """Yield the laws in words, a kind a line."""
        kinds: dict[str, list[str]] = {}
        for name, kind in self.moving.items():
            edge = f" (above {self.above[name]:g})" if name in self.above else ""
            kinds.setdefault(kind, []).append(name + edge)
        words = {
            "proportional": "proportional to",
            "inverse": "inversely proportional to",
            "linear": "rises linearly with",
            "linear down": "falls linearly with",
            "up": "never falls with",
            "down": "never rises with",
            "flat": "independent of",
            "chooses": "chooses a case by",
        }
        for kind, word in words.items():
            if kind in kinds:
                yield f"{word} {', '.join(kinds.pop(kind))}"
        for kind, names in kinds.items():
            yield f"proportional to the {kind} of {', '.join(names)}"
        for kind, word in BESIDE.items():
            if kind in self.beside:
                yield f"{word} {', '.join(self.beside[kind])}"
        alike: dict[str, list[str]] = {}
        for name, reason in self.free.items():
            alike.setdefault(reason, []).append(name)
        for reason, names in alike.items():
            yield f"either way with {', '.join(names)}: {reason}"


def power_of(kind: str) -> float | None:
    """Return the exact power that a kind means; None where it means none."""
    if kind in ("proportional", "inverse"):
        return 1.0 if kind == "proportional" else -1.0
    return float(kind.removeprefix("power ")) if kind.startswith("power ") else None


def parsed(laws: str, free: str = "", at: str = "") -> Law:
    """Read laws as a formula or a row states them.

    Raises
    ------
    ValueError
        If a kind is unknown, an input has two of them, or a free one has no reason.
    """
    moving: dict[str, str] = {}
    beside: dict[str, tuple[str, ...]] = {}
    reasons: dict[str, str] = {}
    above: dict[str, float] = {}
    for part in filter(None, map(str.strip, laws.split(";"))):
        kind, _, names = part.partition(":")
        if kind in BESIDE:
            beside[kind] = tuple(names.split())
            continue
        kind, _, edge = kind.partition(" above ")
        if kind not in MOVING and power_of(kind) is None:
            message = f"'{kind}' is no kind of law; known: {', '.join((*MOVING, *BESIDE))}, power N"
            raise ValueError(message)
        for name in names.split():
            if name in moving:
                message = f"'{name}' is {moving[name]} and {kind}"
                raise ValueError(message)
            moving[name] = kind
            if edge:
                above[name] = float(edge)
    for part in filter(None, map(str.strip, free.split(";"))):
        names, _, reason = part.partition(":")
        for name in names.split():
            if name in moving or not reason.strip():
                message = f"'{name}' is free " + ("and " + moving.get(name, "without a reason"))
                raise ValueError(message)
            reasons[name] = reason.strip()
    return Law(moving, beside, reasons, tuple(filter(None, map(str.strip, at.split(";")))), above)


@cache
def table() -> dict[str, Law]:
    """Return the laws of all rows, by formula; a row may stand for several."""
    laws: dict[str, Law] = {}
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                law = parsed(row["laws"], row["free"], row["at"])
                for name in row["formula"].split():
                    if name in laws:
                        message = f"{path.name}: '{name}' has laws already"
                        raise ValueError(message)
                    laws[name] = law
    return laws


def law_of(formula: Formula) -> Law | None:
    """Return a formula's laws: its row's, else those beside it; None where it states none."""
    return table().get(formula.name) or (parsed(formula.laws) if formula.laws else None)
