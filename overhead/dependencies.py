"""What a quantity can depend on: the labels and quantities that formulas below it may look at.

A formula looks at the labels of its ``when`` and at its parameters, and the formulas of these do in
turn.  So much is known before anything is given: the registry is a graph of functions, of which
the names of parameters are the edges, and `Dependencies.of` is all that can be reached in it from a
quantity, by whichever formulas the labels choose.  Wherever two sets of labels and given quantities
differ in nothing of this, the quantity is the same, and is made once (`overhead.graph`).

Where more is known, less can be reached (`Dependencies.within`): no further than what is given, and
not through formulas of labels that don't occur.

A name is a bit and a set of names a number: there are a thousand sets of up to a thousand names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from overhead.formula import REGISTRY, Call, Formula

# What a collective's algorithm decides; a call of a collective decides it for itself.
ITSELF, FORM = "the algorithm", ("in_network", "form")


class Dependencies:
    """What each quantity can depend on, found when it is first asked for.

    Parameters
    ----------
    further : callable
        From a quantity to the names of what it depends on beside its formulas.
    given : collection of str
        Quantities that are given wherever it is asked, and so follow from nothing.
    occurring : mapping of str to set of str, optional
        By label the values that occur, beside those that calls set; left out: all do.
    """

    def __init__(
        self,
        further: Callable[[str], Iterable[str]],
        given: Collection[str] = (),
        occurring: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._further, self._given, self._occurring = further, given, occurring
        self._known: dict[str, int] = {}
        self._edition = 0
        self._labels: dict[str, set[str]] = {}  # The values that can hold anywhere

    def within(
        self, given: Collection[str], occurring: Mapping[str, Collection[str]]
    ) -> Dependencies:
        """Return the dependencies where this is given, and these are the values of labels."""
        return Dependencies(self._further, given, occurring)

    def of(self, quantity: str) -> int:
        """Return the bits of all that a quantity can depend on, itself included."""
        if self._edition != REGISTRY.edition:
            self._known, self._edition = {}, REGISTRY.edition
            self._labels = self._values()
        known = self._known.get(quantity)
        if known is None:
            self._reach(quantity)
            known = self._known[quantity]
        return known

    def _reach(self, quantity: str) -> None:
        """Follow the edges from a quantity: Tarjan's strongly connected components.

        Those that need one another can depend on the same.
        """
        known, reached = self._known, dict[str, int]()
        earliest: dict[str, int] = {}  # The earliest that is reached, by the order in which met
        open_names: list[str] = []
        path: list[tuple[str, int, list[tuple[str, int]]]] = []

        def enter(name: str) -> None:
            path.append((name, len(earliest), self._edges(name)))
            earliest[name], reached[name] = len(earliest), BIT[name]
            open_names.append(name)

        enter(quantity)
        while path:
            name, index, edges = path[-1]
            if edges:
                to, seen = edges[-1]
                if to in known:
                    reached[name] |= known[to] & seen
                elif to in earliest:
                    earliest[name] = min(earliest[name], earliest[to])
                else:
                    enter(to)
                    continue
                edges.pop()
                continue
            path.pop()
            if earliest[name] == index:
                circle, total = [], 0
                while name not in circle:
                    circle.append(open_names.pop())
                    total |= reached[circle[-1]]
                known.update(dict.fromkeys(circle, total))

    def _edges(self, quantity: str) -> list[tuple[str, int]]:
        """Return what a quantity needs, with the bits that can be seen through it."""
        if quantity in self._given:
            return []
        plain, bound = dict.fromkeys(self._further(quantity)), list[tuple[str, int]]()
        for declared in REGISTRY.of(quantity):
            if self._occurring is not None and not self._can_hold(declared):
                continue
            plain.update(dict.fromkeys(declared.when))
            if isinstance(declared, Call):
                around = ~bits(declared.around)
                bound += [(name, around) for name in declared.bind.values()]
                # What it binds and sets is the same there, whatever it is here.
                chosen = (ITSELF, *FORM) if "collective" in declared.labels else ()
                bound.append((declared.of, ~bits((*declared.bind, *declared.labels, *chosen))))
            else:
                plain.update(dict.fromkeys(declared.inputs))
        return [*bound, *((name, ALL) for name in plain)]

    def _values(self) -> dict[str, set[str]]:
        """Return the values that labels can have: those that occur, and those that calls set."""
        values = {name: set(some) for name, some in (self._occurring or {}).items()}
        for call in REGISTRY.calls if self._occurring is not None else ():
            for name, value in call.labels.items():
                values.setdefault(name, set()).add(value)
        return values

    def _can_hold(self, declared: Formula | Call) -> bool:
        """Whether the labels of a declaration occur; an algorithm's form is known by it alone."""
        return not any(
            self._labels.get(name, NONE).isdisjoint(values)
            for name, values in declared.holds.items()
            if name not in FORM
        )


ALL, NONE = -1, frozenset[str]()


class _Bits(dict[str, int]):
    """The bit of each name, which has one once it is asked for."""

    def __missing__(self, name: str) -> int:
        bit = self[name] = 1 << len(self)
        return bit


BIT = _Bits()


def bits(names: Iterable[str]) -> int:
    """Return the bits of some names together."""
    mask = 0
    for name in names:
        mask |= BIT[name]
    return mask
