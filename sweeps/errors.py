"""What a user is told when something can't be: bad input, or a failure while running."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from sweeps.elsewhere import named_here
from sweeps.former import FORMER

Key = TypeVar("Key")
Value = TypeVar("Value")
# Faults of one file that a user is shown, and headings of one that has none right.
MOST_FAULTS = 20


# Words for what has another name here: that name, and what to write.
BY_MEANING = {
    "fattree": (
        "hierarchical",
        "a fat tree is hierarchical with --oversubscription (or switch, if non-blocking)",
    ),
    "leafspine": ("hierarchical", "leaf and spine are hierarchical with --oversubscription"),
    "nvswitch": ("switch", "an NVSwitch is switch"),
    "crossbar": ("switch", "a crossbar is switch"),
    "fullyconnected": ("switch", "a non-blocking network is switch"),
}


class InputError(ValueError):
    """Input that can't be used: every fault found, a line each (exit code 2).

    Parameters
    ----------
    faults : sequence of str or str
        The lines; one string is one fault.
    """

    def __init__(self, faults: Sequence[str] | str) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class RunError(RuntimeError):
    """A failure while running that isn't the input's: disk full, lock held (exit code 1)."""


class ContractError(RuntimeError):
    """Results that don't keep what was asserted of them: a line each (exit code 3)."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(faults))


class Fault(str):
    """What is wrong with which value, and what would be right: an object until it is told.

    As a text it names things as files and Python do; a command tells it by its options.
    Of several names there is a value each, or one of all.  What lacks something has no names.
    """

    names: tuple[str, ...]
    values: tuple[object, ...]
    reason: str

    def __new__(cls, names: tuple[str, ...], values: tuple[object, ...], reason: str) -> Fault:
        """Make a fault; its text follows from its parts."""
        shown = "; " if any("," in f"{value}" for value in values) else ", "
        text = shown.join(f"{value}" for value in values)
        if len(values) > 1 or any(isinstance(value, str) for value in values):
            text = f"'{text}'"
        self = super().__new__(cls, f"{', '.join(names)} = {text}: {reason}" if names else reason)
        self.names, self.values, self.reason = names, values, reason
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the parts, as copies and other processes need them."""
        return self.names, self.values, self.reason


def fault(field: str | Sequence[str], value: object, wrong: str, allowed: str) -> str:
    """Make one fault.

    Parameters
    ----------
    field, value
        What was given, under the name that the user knows: several names with a tuple of values.
    wrong, allowed : str
        What is wrong with it, and what would be right.

    Returns
    -------
    str
        A `Fault`: ``field = value: wrong; allowed``.
    """
    reason = f"{wrong}; {allowed}"
    if isinstance(field, str):
        return Fault((field,), (value,), reason)
    return Fault(tuple(field), value if isinstance(value, tuple) else (value,), reason)


def refuse(field: str | Sequence[str], value: object, wrong: str, allowed: str) -> NoReturn:
    """Refuse input for one `fault`."""
    raise InputError(fault(field, value, wrong, allowed)) from None


def reject(location: object, wrong: str) -> NoReturn:
    """Refuse a file for what is wrong at a place of it."""
    raise InputError([f"{location}: {wrong}"]) from None


def tell_all(faults: Sequence[str]) -> None:
    """Refuse input for its faults, if there are any."""
    if faults:
        raise InputError(faults)


def less_than_a_step(name: str, tokens: float, step: float) -> list[str]:
    """Return the fault of a training that takes fewer tokens than one step has."""
    wrong = f"is less than one step, which takes {step:,.0f} tokens"
    return [fault(name, f"{tokens:g}", wrong, "such as 15T")] if tokens < step else []


def needs(who: str | Sequence[str], what: str, give: str) -> str:
    """Make the fault of something that isn't given: ``who needs what; give ..``."""
    names = [who] if isinstance(who, str) else list(who)
    *others, last = names
    listed = f"{', '.join(others)} and {last}" if others else last
    return Fault((), (), f"{listed} {'need' if others else 'needs'} {what}; give {give}")


def refuse_all(name: str, faults: Sequence[str]) -> None:
    """Refuse a file for its faults, if it has any: the first of them, and how many more."""
    more = [f"{name}: {len(faults) - MOST_FAULTS} more faults"]
    tell_all([*faults[:MOST_FAULTS], *more * (len(faults) > MOST_FAULTS)])


def few(names: Sequence[str], most: int = 3, sign: str = ", ") -> str:
    """Return the first of some names, and how many there are further."""
    left = len(names) - most
    return sign.join(names[:most]) + (f" and {left} more" if left > 0 else "")


def nearest(word: str, known: Iterable[str], *, shown: int = 12) -> str:
    """Say which known names are like a word that isn't known.

    Parameters
    ----------
    word : str
        The unknown name.
    known : iterable of str
        The names there are.
    shown : int
        How many of them to list where none is like it.

    Returns
    -------
    str
        ``did you mean 'x'?``, or the list of known names.
    """
    names = sorted(set(known))
    if FORMER.get(word) in names:
        return f"it is called '{FORMER[word]}' now"
    if meant := named_here(word, names):
        return f"here it is called '{meant}'"
    plain = word.lower().replace("-", "").replace("_", "").replace(" ", "")
    if plain in BY_MEANING and BY_MEANING[plain][0] in names:
        return BY_MEANING[plain][1]
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), list(lowered), n=2, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f"'{lowered[name]}'" for name in close) + "?"
    listed = ", ".join(names[:shown])
    return f"known: {listed}" + (f", and {len(names) - shown} more" if len(names) > shown else "")


class Faults:
    """Faults that are gathered, to be told together."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def add(self, field: str, value: object, wrong: str, allowed: str) -> None:
        """Add a fault."""
        self.faults.append(fault(field, value, wrong, allowed))

    def check_keys(
        self, location: str, names: Iterable[str], known: Iterable[str], wrong: str = "no such key"
    ) -> None:
        """Add each name that isn't known, with the nearest that is."""
        listed = tuple(known)
        for name in names:
            if name not in listed:
                self.add(f"{location}.{name}".strip("."), "..", wrong, nearest(name, listed))

    def of(self, read: Callable[..., Value], *arguments: Any, **named: Any) -> Value | None:
        """Call what may find faults; return None where it does, and keep them."""
        try:
            return read(*arguments, **named)
        except InputError as error:
            self.faults += error.faults
            return None

    def tell(self) -> None:
        """Tell all faults, if there are any."""
        tell_all(list(dict.fromkeys(self.faults)))

    def checked(self, value: Value) -> Value:
        """Return what was read, or tell the faults."""
        self.tell()
        return value


def of_each(read: Callable[[Key], Value], items: Iterable[Key]) -> dict[Key, Value]:
    """Return what is read of each item, once; of several that can't be read, tell all faults."""
    faults = Faults()
    each = {item: faults.of(read, item) for item in dict.fromkeys(items)}
    return faults.checked({item: value for item, value in each.items() if value is not None})
