"""How a number comes about: each formula with the numbers put in, from named constants up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from overhead.collectives.algorithm import Algorithm
from overhead.collectives.cost import COST_PARTS
from overhead.evaluation import Evaluation
from overhead.expression import evaluate, names
from overhead.formula import REGISTRY, Call, Formula
from overhead.quantity import VOCABULARY
from overhead.recording import RecordingError
from overhead.statements import recorded, statements
from sweeps.cli.numbers import exact
from sweeps.spec.units import put_in


def evaluated(expression: str, values: Mapping[str, float]) -> float:
    """Return what an expression gives for some values."""
    with np.errstate(all="ignore"):
        arrays = {name: np.float64(value) for name, value in values.items()}
        return float(evaluate(expression, arrays))


def same(number: float, other: float) -> bool:
    """Whether two numbers are one, but for the order in which they were added up."""
    return bool(np.isclose(number, other, rtol=1e-9, atol=0.0))


def digits_for(expression: str, values: Mapping[str, float], result: float) -> int:
    """Return how many digits of the values give the result: more where it is a small difference."""
    for digits in (6, 9, 12):
        rounded = {name: float(f"{value:.{digits}g}") for name, value in values.items()}
        if np.isclose(evaluated(expression, rounded), result, rtol=1e-4, atol=0.0):
            return digits
    return 15


class Derivation:
    """Quantities, each once, and before it what it is made of."""

    def __init__(self) -> None:
        self.keys: set[tuple[str, str, str]] = set()
        self.leaves: dict[str, str] = {}  # Named constants that were met, as shown
        self.sources: dict[str, int] = {}
        self.stated: set[str] = set()  # What an algorithm's own statement gives already

    def lines(self, name: str, scope: Evaluation, depth: int) -> Iterator[str]:
        """Yield a quantity's statement with the numbers, if it isn't given or derived already."""
        if name in scope.given:
            self.leaves.setdefault(name, exact(name, scope[name]))
            return
        if name in self.stated:
            return
        declared = REGISTRY.returning(name, scope.labels)
        algorithm = scope.algorithm
        if name in COST_PARTS and algorithm is not None:
            yield from self._counted(name, algorithm, scope, depth)
            return
        if declared is None:
            return
        key = (name, declared.statement, exact(name, scope[name]))
        if key in self.keys:
            return
        self.keys.add(key)
        if isinstance(declared, Formula):
            for needed in declared.inputs if depth else ():
                yield from self.lines(needed, scope, depth - 1)
            yield from self._statement(name, declared.expression, scope, declared)
            yield from (f"    assumes {phrase}" for phrase in declared.assumes)
        elif "collective" in declared.labels:
            yield from self.collective([name], VOCABULARY[name].meaning, scope, depth)
        else:
            yield from self._call(declared, scope, depth)

    def where(self) -> Iterator[str]:
        """Yield the named constants from which all that was derived follows."""
        yield "where"
        for name, value in self.leaves.items():
            yield f"  {name} = {value}  ({VOCABULARY[name].meaning})"

    def references(self) -> Iterator[str]:
        """Yield the sources of all that was derived, by number."""
        yield "sources"
        for reference, number in self.sources.items():
            yield f"  [{number}] {reference}"

    def _statement(
        self,
        name: str,
        expression: str,
        scope: Evaluation,
        *declared: Formula | Algorithm,
        called: str = "",
    ) -> Iterator[str]:
        """Yield an equation, the same with the numbers put in, and what it gives."""
        values = {needed: float(scope[needed]) for needed in names(expression)}
        for needed, value in values.items():
            if needed in scope.given:
                self.leaves.setdefault(needed, exact(needed, value))
        numbers = (
            self.sources.setdefault(statement.reference, len(self.sources) + 1)
            for statement in declared
        )
        yield f"  {called or name} = {expression}"
        digits = digits_for(expression, values, float(scope[name]))
        yield f"    = {put_in(expression, values, digits)}"
        yield f"    = {exact(name, scope[name])}  {' '.join(f'[{n}]' for n in numbers)}"

    def _counted(
        self, name: str, algorithm: Algorithm, scope: Evaluation, depth: int
    ) -> Iterator[str]:
        """Yield what an algorithm's schedule counts, such as its latencies."""
        try:
            expression = recorded(algorithm, name)
            values = {needed: float(scope[needed]) for needed in names(expression)}
            stated = same(evaluated(expression, values), float(scope[name]))
        except (RecordingError, LookupError, TypeError):
            stated = False
        key = (name, ".".join(algorithm.key), exact(name, scope[name]))
        if key in self.keys:
            return
        self.keys.add(key)
        if not stated:
            where = f"counted from the schedule of {'.'.join(algorithm.key)}"
            yield f"  {name} = {exact(name, scope[name])}  ({where})"
            return
        for needed in values if depth else ():
            yield from self.lines(needed, scope, depth - 1)
        yield from self._statement(name, expression, scope, algorithm)

    def _call(self, declared: Call, scope: Evaluation, depth: int) -> Iterator[str]:
        """Yield what a call evaluates, in the scope in which its quantities are bound."""
        outer, inner = scope.called(declared)
        for bound in declared.bind.values() if depth else ():
            yield from self.lines(bound, outer, depth - 1)
        yield from self.lines(declared.of, inner, max(depth - 1, 0))
        bound_to = [
            f"{name} = {exact(name, outer[source])} ({source})"
            for name, source in declared.bind.items()
        ]
        labels = [f"{label} {value}" for label, value in declared.labels.items()]
        yield f"  {declared.returns} = {declared.of} with {', '.join((*labels, *bound_to))}"
        yield f"    = {exact(declared.returns, inner[declared.of])}"

    def collective(
        self, wanted: Sequence[str], title: str, evaluation: Evaluation, depth: int = 0
    ) -> Iterator[str]:
        """Yield an operation's quantities, with what the group of ranks binds to its algorithm."""
        calls = [REGISTRY.returning(name, evaluation.labels) for name in wanted]
        of_group = [
            call for call in calls if isinstance(call, Call) and "collective" in call.labels
        ]
        for index, declared in enumerate(of_group):
            outer, fastest = evaluation.called(declared)
            assert fastest.algorithm is not None
            if index == 0:
                for source in declared.bind.values():
                    yield from self.lines(source, outer, 0)
                yield f"  {title}: {'.'.join(fastest.algorithm.key)} with"
                for name, source in declared.bind.items():
                    yield f"    {name} = {exact(name, outer[source])} ({source})"
            yield from self.of_algorithm(declared.of, fastest, depth, declared.returns)

    def of_algorithm(self, name: str, scope: Evaluation, depth: int, called: str) -> Iterator[str]:
        """Yield a quantity of an algorithm: its own statement if that holds, else the formulas.

        `called` is what the quantity is called outside.
        """
        algorithm = scope.algorithm
        assert algorithm is not None
        expression = statements(algorithm).get(name, "")
        if expression:
            values = {needed: float(scope[needed]) for needed in names(expression)}
            if same(evaluated(expression, values), float(scope[name])):
                for needed in values if depth else ():
                    yield from self.lines(needed, scope, depth - 1)
                yield from self._statement(name, expression, scope, algorithm, called=called)
                return
        # What is asked for isn't the plain case that the algorithm states.
        composed = REGISTRY.returning(name, scope.labels)
        if isinstance(composed, Formula):
            for needed in composed.inputs if depth else ():
                yield from self.lines(needed, scope, depth - 1)
            parts = (algorithm, composed)
            yield from self._statement(name, composed.expression, scope, *parts, called=called)
