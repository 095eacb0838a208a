"""A Python function that returns a configuration, read by its syntax and never run.

Understood are constants, their products and sums, names of these, calls with keyword arguments,
the result of another function of the file, and fields of it that are set.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from sweeps.errors import InputError, reject
from sweeps.launch.calculated import calculated
from sweeps.launch.setting import Location, Setting, Unread

DEEPEST = 20
Tree = dict[str, Any]


class Unreadable(Exception):
    """What can't be known without running it, with its line."""

    def __init__(self, line: int, words: str) -> None:
        super().__init__(f"line {line}: {words}")


class Calls:
    """The functions of a file, and what each returns."""

    def __init__(self, text: str, file: str, folder: str = "") -> None:
        self.file = file
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            words = getattr(error, "msg", "can't be read")
            reject(Location(file, line or 0), f"isn't Python: {words}")
        self.functions = {
            function.name: function
            for function in module.body
            if isinstance(function, ast.FunctionDef)
        }
        self.origins = dict(_imports(module, folder))
        self.constants: Tree = {}
        for statement in module.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                try:
                    value = self._value(statement.value, {}, 0)
                except Unreadable:
                    continue
                self.constants[statement.targets[0].id] = value

    def configurations(self) -> list[str]:
        """Return the functions that return a configuration."""
        return [name for name, function in self.functions.items() if _returns_config(function)]

    def settings(self, name: str) -> list[Setting]:
        """Return the settings of the configuration that a function returns, by their path."""
        try:
            tree = self._run(self.functions[name], 0)
        except Unreadable as error:
            raise InputError([f"{self.file}, {error}"]) from None
        return [*_flat(tree, self.file)]

    def _run(self, function: ast.FunctionDef, deep: int) -> Tree:
        """Return what a function returns, from its assignments."""
        if deep > DEEPEST:
            raise Unreadable(function.lineno, f"{function.name} calls itself")
        names: Tree = dict(self.constants)
        for statement in function.body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    table = self._value(value, names, deep)
                    if isinstance(table, dict):
                        return table
                    raise Unreadable(statement.lineno, "returns no configuration")
                case ast.Assign(targets=[ast.Name(id=own)], value=value):
                    names[own] = self._value(value, names, deep)
                case ast.Assign(targets=[ast.Attribute() as target], value=value):
                    self._set(target, self._value(value, names, deep), names)
                case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Pass():
                    continue
                case _:
                    text = ast.unparse(statement).partition("\n")[0]
                    raise Unreadable(statement.lineno, f"'{text}' can't be read without running it")
        raise Unreadable(function.lineno, f"{function.name} returns nothing")

    def _set(self, target: ast.Attribute, value: Any, names: Tree) -> None:
        path: list[str] = []
        node: ast.expr = target
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        tree = names.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(tree, dict):
            raise Unreadable(target.lineno, f"{ast.unparse(target)} is no configuration")
        for part in path[:-1]:
            inner = tree.setdefault(part, {})
            if not isinstance(inner, dict):
                raise Unreadable(target.lineno, f"{part} is no configuration")
            tree = inner
        tree[path[-1]] = value if isinstance(value, dict) else _Lined(value, target.lineno)

    def _value(self, node: ast.expr, names: Mapping[str, object], deep: int) -> Any:
        match node:
            case ast.Constant(value=value):
                return _Lined(value, node.lineno)
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.Attribute() | ast.Name():
                return _Lined(ast.unparse(node), node.lineno)
            case ast.UnaryOp() | ast.BinOp():
                return _Lined(self._number(node, names), node.lineno)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return _Lined(
                    [self._element(element, names, deep) for element in elements], node.lineno
                )
            case ast.Dict(keys=keys, values=values):
                return {
                    str(getattr(key, "value", "")): self._value(value, names, deep)
                    for key, value in zip(keys, values, strict=True)
                }
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                return self._run(self.functions[name], deep + 1)
            case ast.Call():
                return self._call(node, names, deep)
        text = ast.unparse(node)
        raise Unreadable(node.lineno, f"'{text}' can't be read without running it")

    def _element(self, node: ast.expr, names: Mapping[str, object], deep: int) -> Any:
        value = self._value(node, names, deep)
        if isinstance(value, dict):
            return value.get(CALLED, _Lined("", 0)).value
        return value.value

    def _call(self, node: ast.Call, names: Mapping[str, object], deep: int) -> Tree:
        """Return a call's keyword arguments, with what is called."""
        called = ast.unparse(node.func)
        tree: Tree = {CALLED: _Lined(called, node.lineno)}
        root = called.partition(".")[0]
        if root in self.origins:
            tree[FROM] = _Lined(self.origins[root], node.lineno)
        for index, argument in enumerate(node.args):
            tree[f"{PLACE}{index}"] = self._value(argument, names, deep)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise Unreadable(node.lineno, "'**' can't be read without running it")
            tree[keyword.arg] = self._argument(keyword.value, names, deep)
        return tree

    def _argument(self, node: ast.expr, names: Mapping[str, object], deep: int) -> Any:
        """Return an argument's value; an expression that isn't read matters only if it is asked."""
        if isinstance(node, ast.Subscript | ast.BoolOp | ast.Compare | ast.JoinedStr):
            return _Lined(Unread(ast.unparse(node)), node.lineno)
        return self._value(node, names, deep)

    def _number(self, node: ast.expr, names: Mapping[str, object]) -> int:
        """Return a product or sum of constants and of names that are constants."""
        text = ast.unparse(node)
        known = {name: value.value for name, value in names.items() if isinstance(value, _Lined)}
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and not isinstance(known.get(child.id), int):
                raise Unreadable(node.lineno, f"{child.id} isn't known in '{text}'")
        result = calculated(text, known)
        if result is None:
            raise Unreadable(node.lineno, f"'{text}' isn't a whole number's calculation")
        return result


CALLED, FROM, PLACE = "(called)", "(from)", "(argument)"


class _Lined:
    """A value with its line."""

    def __init__(self, value: Any, line: int) -> None:
        self.value: Any = value.value if isinstance(value, _Lined) else value
        self.line = line


def _imports(module: ast.Module, folder: str) -> Iterator[tuple[str, str]]:
    """Yield names with the modules that they are from; of the file's own folder that."""
    for statement in module.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or statement.level == 1):
            known = statement.module or folder
            yield from ((name.asname or name.name, known) for name in statement.names)


def _returns_config(function: ast.FunctionDef) -> bool:
    """Return whether a function's annotation or its last statement says a configuration."""
    if function.returns is not None:
        return "Config" in ast.unparse(function.returns)
    last = function.body[-1]
    return (
        isinstance(last, ast.Return)
        and isinstance(last.value, ast.Call)
        and ("Config" in ast.unparse(last.value.func))
    )


def _flat(tree: Tree, file: str, prefix: str = "") -> Iterator[Setting]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, file, f"{prefix}{name}.")
        else:
            yield Setting(f"{prefix}{name}", value.value, Location(file, value.line))
