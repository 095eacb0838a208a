"""Mutants of formulas: a function's source with one change, in memory.

A change is of a number, an operator, the order of two inputs, a term left out, or the larger for
the smaller.  `Mutant.living` puts it into the functions that are loaded.  As a plugin of pytest
(``MUTANT=KEY pytest -p tests.maintenance.mutant``) this module puts it into a module as that is
imported.  No file is written.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
FUNCTIONS = {
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "ceil": "floor",
    "floor": "ceil",
}
# Of what a call is told this is no arithmetic.
SHAPES = ("axis", "dtype", "ndim", "shape")
Back = Callable[[], None]


@dataclass(frozen=True)
class Change:
    """One change of a syntax tree: making it returns what takes it back."""

    line: int
    what: str
    make: Callable[[], Back]


@dataclass(frozen=True)
class Mutant:
    """A module's source with one change.

    Attributes
    ----------
    path : str
        The module's file, from the root of the repository.
    number : int
        Which of the changes of that file.
    line : int
        The line that it changes.
    what : str
        What it makes of what.
    """

    path: str
    number: int
    line: int
    what: str

    @property
    def package(self) -> str:
        """The folder or file of ``overhead/`` in which it stands."""
        return Path(self.path).parts[1].removesuffix(".py")

    @property
    def key(self) -> str:
        """By what another process makes it again."""
        return f"{self.path}:{self.number}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"

    def code(self) -> CodeType:
        """Return the module's code with the change."""
        tree, found = _changes(self.path)
        back = found[self.number].make()
        try:
            return compile(tree, str(ROOT / self.path), "exec")
        finally:
            back()

    def functions(self) -> dict[CodeType, CodeType]:
        """Return the code of each function that it changes, and what that becomes."""
        return {old: new for old, new in _both(_code(self.path), self.code()) if old != new}

    @contextmanager
    def living(self, changed: dict[CodeType, CodeType]) -> Iterator[None]:
        """Have functions that are loaded changed, for as long as this holds.

        A function that no longer takes something from the one around it can't be changed so.
        """
        known = _living(self.path)
        pairs = [
            (one, new)
            for old, new in changed.items()
            for one in known.get(old, ())
            if old.co_freevars == new.co_freevars
        ]
        before = [one.__code__ for one, _ in pairs]
        try:
            for one, new in pairs:
                one.__code__ = new
            _forget(self.path)
            yield
        finally:
            for (one, _), code in zip(pairs, before, strict=True):
                one.__code__ = code
            _forget(self.path)


def mutants(paths: Iterable[str]) -> tuple[Mutant, ...]:
    """Return all mutants of files of the package."""
    return tuple(
        Mutant(path, number, one.line, one.what)
        for path in paths
        for number, one in enumerate(_changes(path)[1])
    )


def of_key(key: str) -> Mutant:
    """Return the mutant that a key stands for."""
    path, _, number = key.rpartition(":")
    return mutants((path,))[int(number)]


@cache
def _changes(path: str) -> tuple[ast.Module, tuple[Change, ...]]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return tree, tuple(changes(tree))


@cache
def _code(path: str) -> CodeType:
    return compile(_changes(path)[0], str(ROOT / path), "exec")


def _both(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the code of each function within some code, and its like within another."""
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)]
    for pair in zip(*inner, strict=False):
        yield pair[0], pair[1]
        yield from _both(*pair)


@cache
def _living(path: str) -> dict[CodeType, list[FunctionType]]:
    """Return the functions of a file that are loaded."""
    function_types: dict[CodeType, list[FunctionType]] = {}
    file, frozen = str(ROOT / path), gc.get_freeze_count()
    gc.unfreeze()  # What is frozen isn't among objects
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename == file:
            function_types.setdefault(one.__code__, []).append(one)
    if frozen:
        gc.freeze()
    return function_types


def _forget(path: str) -> None:
    """Let functions of a module that keep what they gave compute it anew."""
    module = sys.modules[path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")]
    for one in vars(module).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()


# What is changed.


def changes(tree: ast.Module) -> Iterator[Change]:
    """Yield each change of each function of a module."""
    for function in _functions(tree):
        body = function.body if isinstance(function.body, list) else [function.body]
        nodes = list(_arithmetic(body))
        yield from _swaps(function, nodes)
        for node in nodes:
            yield from _of_node(node)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.Lambda]:
    """Yield the outermost functions of a module, and methods."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            yield node
        else:
            yield from _functions(node)


def _arithmetic(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield nodes in which numbers are reckoned with, the outer ones first."""
    for one in body:
        if isinstance(one, ast.Raise | ast.JoinedStr | ast.arguments):
            continue
        if isinstance(one, ast.AnnAssign | ast.FunctionDef):
            inner = [one.value] if isinstance(one, ast.AnnAssign) and one.value else []
            yield from _arithmetic(inner if isinstance(one, ast.AnnAssign) else one.body)
            continue
        if isinstance(one, ast.keyword) and one.arg in SHAPES:
            continue
        yield one
        inner = list(ast.iter_child_nodes(one))
        if isinstance(one, ast.Subscript):
            inner = [one.value]
        yield from _arithmetic(inner)


def _swaps(function: ast.FunctionDef | ast.Lambda, nodes: Sequence[ast.AST]) -> Iterator[Change]:
    """Yield what swaps two inputs that stand side by side, wherever they are used."""
    used = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    taken = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    for first, second in pairwise(one for one in taken if any(one == each.id for each in used)):
        other = {first: second, second: first}
        found = [one for one in used if one.id in other]

        def make(name_nodes: list[ast.Name] = found, other: dict[str, str] = other) -> Back:
            before = [name_node.id for name_node in name_nodes]
            for name_node in name_nodes:
                name_node.id = other[name_node.id]
            return partial(_put, name_nodes, "id", before)

        yield Change(function.lineno, f"{first} and {second} swapped", make)


def _of_node(node: ast.AST) -> Iterator[Change]:
    """Yield what changes one node."""
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    if is_number:
        yield _setting(node, "value", 2 * node.value if node.value else type(node.value)(1))
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield _setting(node, "op", OPERATORS[type(node.op)]())
        kept = ("left", "right") if isinstance(node.op, ast.Add | ast.Mult) else ("left",)
        for side in kept:
            yield _replacing(node, getattr(node, side))
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield _setting(node, "ops", [OPERATORS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield _replacing(node, node.operand)
    elif isinstance(node, ast.Call):
        called = node.func
        name = getattr(called, "attr", getattr(called, "id", ""))
        if name in FUNCTIONS:
            field = "attr" if isinstance(called, ast.Attribute) else "id"
            yield _setting(node, "func", _named(called, field, FUNCTIONS[name]))
        if name == "where" and len(node.args) == 3:
            first, second, third = node.args
            yield _setting(node, "args", [first, third, second])


def _named(node: ast.expr, field: str, name: str) -> ast.expr:
    """Return a node that has another name."""
    kept = {key: getattr(node, key) for key in node._fields}
    return ast.copy_location(type(node)(**{**kept, field: name}), node)


def _put(nodes: Iterable[Any], field: str, values: Iterable[Any]) -> None:
    for node, value in zip(nodes, values, strict=True):
        setattr(node, field, value)


def _setting(node: Any, field: str, value: Any) -> Change:
    """Return what gives a node's field another value."""
    before, text = getattr(node, field), ast.unparse(node)

    def make() -> Back:
        setattr(node, field, value)
        return partial(setattr, node, field, before)

    back = make()
    what = f"{text} -> {ast.unparse(node)}"
    back()
    return Change(node.lineno, what, make)


def _replacing(node: Any, part: ast.expr) -> Change:
    """Return what has a node's operand stand in its place."""
    kind, kept = node.__class__, dict(vars(node))

    def become(kind: type, fields: dict[str, Any]) -> None:
        node.__class__ = kind
        vars(node).clear()
        vars(node).update(fields)

    def make() -> Back:
        become(part.__class__, vars(part))
        return partial(become, kind, kept)

    return Change(node.lineno, f"{ast.unparse(node)} -> {ast.unparse(part)}", make)


# A mutant in a process of its own.


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Loads a module with a change."""

    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the changed code; nothing is stored."""
        del fullname
        return self.mutant.code()


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds the module of a mutant, with its change."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.file = str(ROOT / mutant.path)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how the module is loaded, and None for all others."""
        if not name.startswith("overhead"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin != self.file:
            return None
        spec.loader = MutantLoader(name, self.file)
        spec.loader.mutant = self.mutant
        return spec


if key := os.environ.get("MUTANT"):
    sys.meta_path.insert(0, MutantFinder(of_key(key)))
