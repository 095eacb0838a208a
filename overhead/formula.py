"""How a formula is declared, and the registry that everything else reads."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from overhead import expression as ex
from overhead.quantity import VOCABULARY, Quantity
from overhead.source import SOURCES, Source

__all__ = [
    "REGISTRY",
    "Call",
    "Formula",
    "Registry",
    "call",
    "document",
    "formula",
    "parameters",
    "summary",
]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Formula:
    """A declared formula: a numpy function with its statement and its source.

    Attributes
    ----------
    name : str
        The function's name.
    kernel : callable
        Takes arrays that broadcast, in canonical units; gives an array.
    inputs : tuple of str
        The quantities that it takes: its parameters' names.
    returns : str
        The quantity that it gives.
    expression : str
        The statement, which tests execute against the kernel.
    source : Source
        Where it comes from, and `where` in it.
    where : str
        The place in the source.
    assumes : tuple of str
        Its assumptions, a phrase each.
    when : mapping of str to str
        The labels for which it holds, such as ``{"topology": "hierarchical"}``; empty: always.
    ufunc : numpy.ufunc or None
        The one ufunc that the kernel is, if it is one of two inputs.
    commutes : bool
        Whether its inputs may come in any order: those of few dimensions are best put first.
    """

    name: str
    kernel: Callable[..., Any]
    inputs: tuple[str, ...]
    returns: str
    expression: str
    source: Source
    where: str = ""
    assumes: tuple[str, ...] = ()
    when: Mapping[str, str] = field(default_factory=dict)
    ufunc: np.ufunc | None = None
    commutes: bool = False

    @property
    def result(self) -> Quantity:
        """The quantity that it gives."""
        return VOCABULARY[self.returns]

    @property
    def statement(self) -> str:
        """The statement as an equation."""
        return f"{self.returns} = {self.expression}"

    @property
    def latex(self) -> str:
        """The statement as LaTeX."""
        return f"{self.result.symbol} = {ex.latex(self.expression)}"

    @property
    def reference(self) -> str:
        """The source with the place in it."""
        return self.source.at(self.where)

    def check(self) -> None:
        """Check that the declaration holds together.

        Raises
        ------
        ValueError
            If a parameter, the result or a name of the expression isn't what it must be.
        """
        for name in (*self.inputs, self.returns):
            if name not in VOCABULARY:
                message = f"{self.name}: '{name}' is not in the vocabulary"
                raise ValueError(message)
        strange = set(ex.names(self.expression)) - set(self.inputs)
        if strange:
            message = f"{self.name}: the expression names {sorted(strange)}, which it isn't given"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A quantity that is another one where some quantities are bound and some labels set.

    So one formula serves many places: the time of a matrix product serves each of a layer's, the
    time of an all_reduce each group's.

    Attributes
    ----------
    returns : str
        The quantity that it gives.
    of : str
        The quantity that it evaluates.
    bind : mapping of str to str
        What is given to it: for each quantity there, the one here that it is.
    labels : mapping of str to str
        Labels that hold there; what is bound is evaluated with them, too.
    when : mapping of str to str
        The labels for which the call holds; empty: always.
    """

    returns: str
    of: str
    bind: Mapping[str, str]
    labels: Mapping[str, str]
    when: Mapping[str, str]

    @property
    def result(self) -> Quantity:
        """The quantity that it gives."""
        return VOCABULARY[self.returns]

    @property
    def statement(self) -> str:
        """The call as an equation with its bindings."""
        bound = ", ".join(f"{inner} = {outer}" for inner, outer in self.bind.items())
        places = ", ".join(f"{label} {value}" for label, value in self.labels.items())
        of = f"{self.of} of {places}" if places else self.of
        return f"{self.returns} = {of}({bound})"

    def check(self) -> None:
        """Check that the declaration holds together.

        Raises
        ------
        ValueError
            If a name isn't in the vocabulary, or the two quantities differ in unit.
        """
        for name in (self.returns, self.of, *self.bind, *self.bind.values()):
            if name not in VOCABULARY:
                message = f"{self.returns}: '{name}' is not in the vocabulary"
                raise ValueError(message)
        for one, other in ((self.returns, self.of), *self.bind.items()):
            if VOCABULARY[one].units != VOCABULARY[other].units:
                message = f"{self.returns}: '{one}' and '{other}' differ in unit"
                raise ValueError(message)


class Registry(Mapping[str, Formula]):
    """Formulas by name, a name stands once; and calls."""

    def __init__(self) -> None:
        self._formulas: dict[str, Formula] = {}
        self._returning: dict[str, list[Formula | Call]] = {}
        self.calls: list[Call] = []

    def __getitem__(self, name: str) -> Formula:
        try:
            return self._formulas[name]
        except KeyError:
            close = difflib.get_close_matches(name, self._formulas, n=2)
            offer = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            message = f"no formula is called '{name}'{offer}"
            raise KeyError(message) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._formulas)

    def __len__(self) -> int:
        return len(self._formulas)

    def add(self, declared: Formula) -> None:
        """Add a formula."""
        if declared.name in self._formulas:
            message = f"a formula called '{declared.name}' is declared already"
            raise ValueError(message)
        self._formulas[declared.name] = declared
        self._returning.setdefault(declared.returns, []).append(declared)

    def add_call(self, declared: Call) -> None:
        """Add a call."""
        self.calls.append(declared)
        self._returning.setdefault(declared.returns, []).append(declared)

    def returning(self, quantity: str, labels: Mapping[str, str]) -> Formula | Call | None:
        """Find the formula or call that gives a quantity where the labels are these.

        The one with the most conditions wins, and of equals the last declared, so that a user's
        own takes the place of ours.
        """
        best: Formula | Call | None = None
        for candidate in self._returning.get(quantity, ()):
            holds = all(
                labels.get(key) in value.split("|") for key, value in candidate.when.items()
            )
            if holds and (best is None or len(candidate.when) >= len(best.when)):
                best = candidate
        return best


REGISTRY = Registry()


def parameters(kernel: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters (faster than inspect's signature)."""
    code = kernel.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def summary(kernel: Callable[..., Any]) -> str:
    """Return the first line of a function's docstring, without its full stop."""
    return (kernel.__doc__ or "").strip().split("\n", 1)[0].rstrip(".")


def document(kernel: Callable[..., Any], returns: str, reference: str, assumes: str) -> None:
    """Complete a function's docstring from its declaration, as numpydoc has it."""
    lines = [(kernel.__doc__ or "").rstrip(), "", "Parameters", "----------"]
    for name in parameters(kernel):
        quantity = VOCABULARY[name]
        lines += [f"{name} : array_like", f"    {quantity.meaning} [{quantity.units}]"]
    lines += ["", "Returns", "-------", f"{returns}, of the shape to which the inputs broadcast"]
    lines += ["", "Notes", "-----", f"Assumes {assumes}."] if assumes else []
    lines += ["", "References", "----------", reference]
    kernel.__doc__ = "\n".join(lines)


def formula(
    *,
    returns: str,
    expression: str,
    source: str,
    where: str = "",
    assumes: tuple[str, ...] = (),
    when: Mapping[str, str] | None = None,
    ufunc: np.ufunc | None = None,
    inputs: tuple[str, ...] = (),
    name: str = "",
    commutes: bool = False,
) -> Callable[[Kernel], Kernel]:
    """Declare a function as a formula and register it; the function stays as it is.

    Parameters
    ----------
    returns : str
        The quantity that it gives.
    expression : str
        The statement, in the names of its parameters.
    source : str
        The key of the publication (`overhead.source.cite`).
    where : str
        The place in it.
    assumes : tuple of str
        Assumptions.
    when : mapping, optional
        Labels for which it holds; several values of one label are joined by ``|``.
    ufunc : numpy.ufunc, optional
        The ufunc that it is, if it is just one.
    inputs : tuple of str, optional
        The quantities that it takes, where they aren't its parameters' names: of a function that
        serves several formulas.
    name : str, optional
        The formula's name, if it isn't the function's.
    commutes : bool
        Whether its inputs may come in any order.

    Returns
    -------
    callable
        The decorator.

    Raises
    ------
    KeyError
        If the source or a quantity isn't declared.
    ValueError
        If the name is taken.
    """
    cited = SOURCES[source]

    def declare(kernel: Kernel) -> Kernel:
        declared = Formula(
            name=name or kernel.__name__,
            kernel=kernel,
            inputs=inputs or parameters(kernel),
            returns=returns,
            expression=expression,
            source=cited,
            where=where,
            assumes=assumes,
            when=dict(when or {}),
            ufunc=ufunc,
            commutes=commutes,
        )
        result = VOCABULARY[returns]
        if not inputs:
            what = f"{returns} [{result.units}]"
            document(kernel, what, declared.reference, "; ".join(assumes))
        REGISTRY.add(declared)
        return kernel

    return declare


def call(
    *,
    returns: str,
    of: str,
    bind: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    when: Mapping[str, str] | None = None,
) -> Call:
    """Declare that a quantity is another one with quantities bound and labels set; register it.

    Parameters
    ----------
    returns : str
        The quantity that it gives.
    of : str
        The quantity that it evaluates.
    bind : mapping of str to str
        For each quantity there, the one here that it is.
    labels : mapping, optional
        Labels that hold there.
    when : mapping, optional
        Labels for which the call holds; several values of one label are joined by ``|``.

    Returns
    -------
    Call
        The declaration.
    """
    declared = Call(returns, of, dict(bind), dict(labels or {}), dict(when or {}))
    REGISTRY.add_call(declared)
    return declared
