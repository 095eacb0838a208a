"""How a formula is declared, and the registry that everything else reads."""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from itertools import combinations
from types import CodeType
from typing import Any, TypedDict, TypeVar, Unpack

from overhead import expression as ex
from overhead.arrays import xp
from overhead.frozen import frozen
from overhead.labels import Condition, both, expanded, implies
from overhead.quantity import VOCABULARY, Array, Quantity
from overhead.recording import RecordingError, record, text, ufunc_of
from overhead.source import SOURCES, Source

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


@frozen(eq=False)
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
    key : str
        The publication that it comes from, and `where` in it.
    where : str
        The place in the source.
    assumes : tuple of str
        Its assumptions, a phrase each.
    when : mapping of str to str
        The labels for which it holds, such as ``{"topology": "hierarchical"}``; empty: always.
    own_expression : str
        The statement of a kernel that can't be recorded, or is shaped for speed; empty: it is
        what the kernel does.
    replaces : str
        The name of the formula whose place it takes; empty: of none.
    lacks : mapping of str to str
        Of the more general form that it stands for: inputs that it doesn't follow from, with the
        reason.
    words : str
        What it gives, in one line; empty: the quantity's meaning.
    location : str
        The file and line where it stands.
    laws : str
        How it moves with its inputs, as `overhead.law` reads it; empty: its row says it.
    """

    name: str
    kernel: Callable[..., Any]
    inputs: tuple[str, ...]
    returns: str
    key: str
    where: str = ""
    assumes: tuple[str, ...] = ()
    when: Mapping[str, str] = field(default_factory=dict)
    own_expression: str = ""
    replaces: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)
    words: str = ""
    location: str = ""
    laws: str = ""

    @property
    def source(self) -> Source:
        """The publication that it comes from."""
        return SOURCES[self.key]

    @cached_property
    def holds(self) -> Condition:
        """For each label in `when` the values for which it holds."""
        return {name: frozenset(values.split("|")) for name, values in self.when.items()}

    @property
    def result(self) -> Quantity:
        """The quantity that it gives."""
        return VOCABULARY[self.returns]

    @property
    def title(self) -> str:
        """What it gives, in one line."""
        meaning = self.result.meaning
        return self.words or f"{meaning[0].upper()}{meaning[1:]}"

    @cached_property
    def tree(self) -> ast.expr:
        """The statement's syntax tree.

        Raises
        ------
        RecordingError
            If it isn't stated, and the kernel can't be recorded.
        """
        if self.own_expression:
            return ex.parse(self.own_expression)
        try:
            return record(self.kernel, self.inputs)
        except RecordingError as error:
            raise error.of(self.name, "expression") from None

    @cached_property
    def expression(self) -> str:
        """The statement: what the kernel does, in the names of its inputs."""
        return self.own_expression or text(self.tree)

    @cached_property
    def ufunc(self) -> Callable[..., Any] | None:
        """What computes it in an array ``out``: the kernel, or the one ufunc that this is."""
        if OUT in (self.kernel.__kwdefaults__ or ()):
            return self.kernel
        if len(self.inputs) != 2:
            return None
        try:
            return ufunc_of(record(self.kernel, self.inputs), self.inputs)
        except RecordingError:
            return None

    @property
    def statement(self) -> str:
        """The statement as an equation."""
        return f"{self.returns} = {self.expression}"

    @property
    def reference(self) -> str:
        """The source with the place in it."""
        return self.source.at(self.where)

    def check(self) -> None:
        """Check that the declaration holds together.

        Raises
        ------
        ValueError
            If its source, a parameter, the result, a name of the expression or what it says that
            it lacks isn't what it must be.
        """
        if self.key not in SOURCES:
            message = f"{self.name}: the source '{self.key}' isn't declared; `cite` it"
            raise ValueError(message)
        for name in (*self.inputs, self.returns):
            if name not in VOCABULARY:
                message = f"{self.name}: '{name}' is not in the vocabulary"
                raise ValueError(message)
        named = ex.names(self.own_expression) if self.own_expression else ()
        if strange := sorted({*named} - {*self.inputs}):
            message = f"{self.name}: the expression names {strange}, which it isn't given"
            raise ValueError(message)
        for name, reason in self.lacks.items():
            wrong = "isn't in the vocabulary" if name not in VOCABULARY else ""
            wrong = "is one of its inputs" if name in self.inputs else wrong
            wrong = wrong or ("" if reason.strip() else "has no reason")
            if wrong:
                message = f"{self.name}: lacks '{name}', which {wrong}"
                raise ValueError(message)


@frozen(eq=False)
class Call:
    """A quantity that is another one where some quantities are bound and some labels set.

    So one formula serves many places: the time of a GEMM serves each of a layer's, the
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
    location : str
        The file and line where it stands.
    """

    returns: str
    of: str
    bind: Mapping[str, str]
    labels: Mapping[str, str]
    when: Mapping[str, str]
    location: str = ""

    @property
    def is_bare(self) -> bool:
        """Whether it is the quantity itself, which then has to be given: it has no default."""
        return self.of == self.returns and not (self.bind or self.labels)

    @property
    def name(self) -> str:
        """What an error message calls it."""
        return f"{self.returns} as {self.of}"

    @cached_property
    def holds(self) -> Condition:
        """For each label in `when` the values for which it holds."""
        return {name: frozenset(values.split("|")) for name, values in self.when.items()}

    @cached_property
    def around(self) -> dict[str, str]:
        """The labels that it sets for the quantities that it binds, too."""
        return {name: label for name, label in self.labels.items() if name != "collective"}

    @property
    def result(self) -> Quantity:
        """The quantity that it gives."""
        return VOCABULARY[self.returns]

    @property
    def statement(self) -> str:
        """The call as an equation with its bindings."""
        bound = ", ".join(f"{inner} = {outer}" for inner, outer in self.bind.items())
        labels = ", ".join(f"{label} {value}" for label, value in self.labels.items())
        of = f"{self.of} of {labels}" if labels else self.of
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
        for inner, other in ((self.returns, self.of), *self.bind.items()):
            if VOCABULARY[inner].units != VOCABULARY[other].units:
                message = f"{self.returns}: '{inner}' and '{other}' differ in unit"
                raise ValueError(message)


class Registry(Mapping[str, Formula]):
    """Formulas by name, a name stands once; and calls.

    Of several that give a quantity the most special one holds: the one whose labels say all that
    the others' say, and more.  Where labels can hold together of which neither is the more
    special, a third must say what holds there; otherwise `complete` refuses them.  So the order in
    which modules are loaded decides nothing.
    """

    def __init__(self) -> None:
        self._formulas: dict[str, Formula] = {}
        self._candidates: dict[str, list[Formula | Call]] = {}
        self._ranked: dict[str, list[tuple[Formula | Call, Condition]]] = {}
        self._new: list[Formula | Call] = []
        self._defaults: dict[str, Formula | None] = {}
        self.calls: list[Call] = []
        self.edition = 0  # Another whenever what it holds is
        self._load_rest: Callable[[], None] | None = None

    def wait(self, load: Callable[[], None]) -> None:
        """Let the modules that no collective by itself needs be loaded when they are asked for."""
        self._load_rest = load

    def load_everything(self) -> None:
        """Declare what isn't loaded yet."""
        if self._load_rest is not None:
            load, self._load_rest = self._load_rest, None
            load()

    def __getitem__(self, name: str) -> Formula:
        if name not in self._formulas:
            self.load_everything()
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
        """Add a formula.

        Raises
        ------
        ValueError
            If its name is taken.
        """
        known = self._formulas.get(declared.name)
        if known is not None:
            locations = f"{known.location}, and now {declared.location}"
            message = f"a formula called '{declared.name}' is declared already: {locations}"
            raise ValueError(message)
        self._formulas[declared.name] = declared
        self._enter(declared)

    def add_call(self, declared: Call) -> None:
        """Add a call."""
        self.calls.append(declared)
        self._enter(declared)

    def _enter(self, declared: Formula | Call) -> None:
        self.edition += 1
        self._candidates.setdefault(declared.returns, []).append(declared)
        self._ranked.pop(declared.returns, None)
        self._new.append(declared)

    def remove(self, declared: Formula | Call) -> None:
        """Take out a formula or call: a user's own that was refused."""
        if isinstance(declared, Formula):
            del self._formulas[declared.name]
        else:
            self.calls.remove(declared)
        self.edition += 1
        self._candidates[declared.returns].remove(declared)
        self._ranked.pop(declared.returns, None)
        if declared in self._new:
            self._new.remove(declared)

    def returning(self, quantity: str, labels: Mapping[str, str]) -> Formula | Call | None:
        """Find the formula or call that gives a quantity where the labels are these.

        Parameters
        ----------
        quantity : str
            What is wanted.
        labels : mapping of str to str
            The labels that hold, such as the topology.

        Returns
        -------
        Formula, Call or None
            The most special one that holds; None where nothing gives it.
        """
        for candidate, _ in self._special_first(quantity):
            for name, values in candidate.holds.items():
                if labels.get(name) not in values:
                    break
            else:
                return None if isinstance(candidate, Call) and candidate.is_bare else candidate
        return self._default(quantity)

    def _default(self, quantity: str) -> Formula | None:
        """Return what gives a quantity where no declaration does: the default of its row."""
        if quantity not in self._defaults:
            value = VOCABULARY[quantity].default if quantity in VOCABULARY else None
            self._defaults[quantity] = (
                None
                if value is None
                else Formula(
                    f"default_{quantity}",
                    lambda: xp.asarray(value),
                    (),
                    quantity,
                    "derivation",
                    own_expression=f"{value:g}",
                    words="Where nothing else gives it",
                    location=__file__,
                )
            )
        return self._defaults[quantity]

    def of(self, quantity: str) -> Sequence[Formula | Call]:
        """Return all that give a quantity under some labels, as far as they are loaded."""
        return self._candidates.get(quantity, ())

    def candidates(self, quantity: str) -> tuple[Formula | Call, ...]:
        """Return all that give a quantity under some labels, the more special ones first."""
        return tuple(declaration for declaration, _ in self._special_first(quantity))

    def _special_first(self, quantity: str) -> list[tuple[Formula | Call, Condition]]:
        ranked = self._ranked.get(quantity)
        if ranked is None and quantity not in VOCABULARY.of_collectives:
            self.load_everything()
            ranked = self._ranked.get(quantity)
        if ranked is None:
            ranked = [(each, expanded(each.holds)) for each in self._candidates.get(quantity, ())]
            if len(ranked) > 1:
                # A more special one implies all that a more general one implies, and that one.
                every = [holds for _, holds in ranked]
                ranked.sort(key=lambda pair: -sum(implies(pair[1], holds) for holds in every))
            self._ranked[quantity] = ranked
        return ranked

    def complete(self, folder: str = "") -> None:
        """Check what is new, but for what stands in a folder, and complete its docstrings.

        Raises
        ------
        ValueError
            If a declaration doesn't hold together, or two of them give the same quantity under
            labels that can hold together, and nothing says which of them does.
        """
        new, waiting = list[Formula | Call](), list[Formula | Call]()
        for declared in self._new:
            (waiting if folder and declared.location.startswith(folder) else new).append(declared)
        self._new = waiting
        for declared in new:
            declared.check()
            if isinstance(declared, Formula) and declared.replaces:
                self.remove(self[declared.replaces])
            if isinstance(declared, Formula) and declared.inputs == parameters(declared.kernel):
                units = declared.result.units
                what = f"{declared.returns} [{units}]"
                assumes = "; ".join(declared.assumes)
                document(declared.kernel, what, declared.reference, assumes)
        for quantity in {declaration.returns: None for declaration in new}:
            self._refuse_ties(quantity)

    def _refuse_ties(self, quantity: str) -> None:
        ranked = self._special_first(quantity)
        for (left, first), (right, second) in combinations(ranked, 2):
            together = both(first, second)
            if together is None or (implies(first, second) != implies(second, first)):
                continue
            if not any(
                implies(together, c)
                and implies(c, first)
                and implies(c, second)
                and not (implies(first, c) or implies(second, c))
                for _, c in ranked
            ):
                words = ", ".join(f"{k} = {' or '.join(sorted(v))}" for k, v in together.items())
                message = (
                    f"{quantity}: '{left.name}' ({left.location}) and '{right.name}' "
                    f"({right.location}) both give it{f' where {words}' if words else ''}, "
                    "and nothing says which; "
                    f"let one hold for fewer labels, or say replaces = '{left.name}'"
                )
                raise ValueError(message)


REGISTRY = Registry()


# The last parameter, by keyword alone, of a kernel that works in an array which it is given.
OUT = "out"


def parameters(kernel: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's quantities (faster than inspect's signature)."""
    code = kernel.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names[:-1] if code.co_kwonlyargcount and names[-1] == OUT else names


def location_of(code: CodeType, line: int = 0) -> str:
    """Return the file and line where a function stands, or where it does something."""
    return f"{code.co_filename}:{line or code.co_firstlineno}"


def calling(depth: int = 2) -> str:
    """Return the file and line that call the function that asks, or one that calls that."""
    frame = sys._getframe(depth)
    return location_of(frame.f_code, frame.f_lineno)


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
    returns: str = "",
    expression: str = "",
    source: str,
    where: str = "",
    assumes: tuple[str, ...] = (),
    when: Mapping[str, str] | None = None,
    inputs: tuple[str, ...] = (),
    name: str = "",
    replaces: str = "",
    lacks: Mapping[str, str] | None = None,
    title: str = "",
    location: str = "",
    laws: str = "",
) -> Callable[[Kernel], Kernel]:
    """Declare a function as a formula and register it; the function stays as it is.

    Parameters
    ----------
    returns : str, optional
        The quantity that it gives, if that isn't the function's name.
    expression : str, optional
        The statement, in the names of its parameters, of a function that can't be recorded (see
        `overhead.recording`) or that is shaped for speed.  Otherwise it is what the function does.
    source : str
        The key of the publication (`overhead.source.cite`).
    where : str
        The place in it.
    assumes : tuple of str
        Assumptions.
    when : mapping, optional
        Labels for which it holds; several values of one label are joined by ``|``.
    inputs : tuple of str, optional
        The quantities that it takes, where they aren't its parameters' names: of a function that
        serves several formulas.
    name : str, optional
        The formula's name, if it isn't the function's.
    replaces : str, optional
        The name of the formula whose place it takes.  Without it, two formulas that give the same
        quantity under the same labels are refused.
    lacks : mapping of str to str, optional
        Inputs of the more general form that it doesn't follow from, each with the reason.
    title : str, optional
        What it gives, if that isn't the first line of the function's docstring.
    location : str, optional
        The file and line where it stands, if that isn't the function's.
    laws : str, optional
        How it moves with its inputs (`overhead.law`), such as ``"up: ranks; inverse: bandwidth"``;
        the package's own have rows in ``overhead/laws/``.

    Returns
    -------
    callable
        The decorator.

    Raises
    ------
    ValueError
        If the name is taken.
    """

    def declare(kernel: Kernel) -> Kernel:
        declared = Formula(
            name=name or kernel.__name__,
            kernel=kernel,
            inputs=inputs or parameters(kernel),
            returns=returns or kernel.__name__,
            key=source,
            where=where,
            assumes=assumes,
            when=dict(when or {}),
            own_expression=expression,
            replaces=replaces,
            lacks=dict(lacks or {}),
            words=title or summary(kernel),
            location=location or location_of(kernel.__code__),
            laws=laws,
        )
        REGISTRY.add(declared)
        return kernel

    return declare


def cited(source: str, where: str = "", **more: Any) -> dict[str, Any]:
    """Return what several declarations say alike: their source, the place in it, and more."""
    return {"source": source, **({"where": where} if where else {}), **more}


# A formula that is our own derivation.
derived = partial(formula, source="derivation")


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
    declared = Call(returns, of, dict(bind), dict(labels or {}), dict(when or {}), calling())
    REGISTRY.add_call(declared)
    return declared


class Further(TypedDict, total=False):
    """What every declaration may say: as of `formula`; the source is a derivation by default."""

    source: str
    where: str
    assumes: tuple[str, ...]
    when: Mapping[str, str] | None
    lacks: Mapping[str, str] | None
    name: str
    laws: str


def declare(
    returns: str,
    inputs: Sequence[str],
    kernel: Callable[..., Array],
    title: str = "",
    **further: Unpack[Further],
) -> None:
    """Declare a formula of a kernel that serves several, as layers of each kind."""

    def own(*values: Any) -> Array:
        return kernel(*values)

    name = named(returns, further.get("when"))
    options: Further = {"source": "derivation", "name": name, **further}
    formula(returns=returns, inputs=tuple(inputs), title=title, location=calling(), **options)(own)


def named(returns: str, when: Mapping[str, str] | None) -> str:
    """Return the name of a formula that has none: what it gives, and the labels' values."""
    return "_".join((returns, *(when or {}).values())).replace("|", "_or_")
