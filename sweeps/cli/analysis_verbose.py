"""Formulas with the numbers put in: what a report of one training configuration comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from overhead.analysis import AnalysisResult, CollectiveReport
from overhead.collectives.algorithm import Algorithm
from overhead.expression import names
from overhead.formula import REGISTRY, Call, Formula
from overhead.graph import Evaluation
from overhead.quantity import VOCABULARY
from overhead.step.parts import PARTS as STEP_PARTS
from sweeps import display
from sweeps.cli.collective_command import evaluated, put_in
from sweeps.cli.records import shown
from sweeps.job import Job

# A step is made of hundreds of quantities: of what its parts are made of, so many layers are told.
STEP_DEPTH = 2
DEEP = 99
OF_ONE = ("time", "sent_bytes", "energy")


def explanation(evaluation: Evaluation, result: AnalysisResult) -> Iterator[str]:
    """Yield every quantity of a report with its formula or call, the numbers and its source."""
    teller = _Teller()
    yield "memory, with the numbers put in"
    yield from _memory(teller, evaluation, result)
    for dimension, reports in result.collective_reports.items():
        yield f"{dimension}, with the numbers put in"
        for one in reports:
            yield from _operation(teller, one, evaluation)
        yield from teller.tell(f"{dimension}_communication_time", evaluation, 1)
    if evaluation.value("communication_upper_bound", {}) is not None:
        yield from teller.tell("communication_upper_bound", evaluation, 0)
    if evaluation.value("step_time", {}) is not None:
        yield "step, with the numbers put in"
        rates = display.rows("rates", "training", "cost")
        for name in ("step_time", "pipeline_time", *STEP_PARTS, *rates):
            found = evaluation.value(name, {})
            if found is not None and not np.isnan(found):
                yield from teller.tell(name, evaluation, STEP_DEPTH)
    yield "where"
    for name, value in teller.leaves.items():
        yield f"  {name} = {value}  ({VOCABULARY[name].meaning})"
    yield "sources"
    for number, reference in enumerate(teller.sources, 1):
        yield f"  [{number}] {reference}"
    yield ""


def declarations(job: Job) -> Iterator[str]:
    """Yield the statement and source of every formula and algorithm that takes part."""
    for one in job.plan.declarations():
        yield f"{one.statement}"
        yield f"  source  {one.reference}"


def _memory(teller: _Teller, evaluation: Evaluation, result: AnalysisResult) -> Iterator[str]:
    scope = evaluation
    if result.memory_is_whole:
        stage = {"stage": evaluation["fullest_stage"]}
        scope = Evaluation(evaluation.given | stage, evaluation.labels)
        yield from teller.tell("fullest_stage", evaluation, 0)
    for name, value in result.memory.items():
        if value > 0.0:
            yield from teller.tell(name, scope, DEEP)
    if result.memory_is_whole:
        for name in ("model_state_memory", "activation_memory", "allocated_memory", "memory"):
            yield from teller.tell(name, scope, 0)


def _operation(teller: _Teller, one: CollectiveReport, evaluation: Evaluation) -> Iterator[str]:
    operation = one.operation
    yield from teller.tell(operation.message, evaluation, DEEP)
    yield from teller.collective(
        [operation.quantity(part) for part in OF_ONE], operation.title, evaluation
    )
    for part in ("forward_count", "backward_count", "volume", "total_energy"):
        if float(evaluation[operation.quantity(part)]) > 0.0:
            yield from teller.tell(operation.quantity(part), evaluation, DEEP)


class _Teller:
    """Tells quantities, each once, what a quantity is made of before the quantity itself."""

    def __init__(self) -> None:
        self.told: set[tuple[str, str, str]] = set()
        self.leaves: dict[str, str] = {}
        self.sources: dict[str, int] = {}

    def tell(self, name: str, scope: Evaluation, depth: int) -> Iterator[str]:
        """Yield a quantity's statement with the numbers, if it isn't given or told already."""
        if name in scope.given:
            self.leaves.setdefault(name, shown(name, scope[name]))
            return
        declared = REGISTRY.returning(name, scope.labels)
        if declared is None:
            return
        key = (name, declared.statement, shown(name, scope[name]))
        if key in self.told:
            return
        self.told.add(key)
        if isinstance(declared, Formula):
            for one in declared.inputs if depth else ():
                yield from self.tell(one, scope, depth - 1)
            yield from self._formula(declared, scope)
        elif "collective" in declared.labels:
            yield from self.collective([name], VOCABULARY[name].meaning, scope)
        else:
            yield from self._call(declared, scope, depth)

    def _call(self, declared: Call, scope: Evaluation, depth: int) -> Iterator[str]:
        """Yield what a call evaluates, in the scope in which its quantities are bound."""
        outer, inner = scope.called(declared)
        for one in declared.bind.values() if depth else ():
            yield from self.tell(one, outer, depth - 1)
        yield from self.tell(declared.of, inner, max(depth - 1, 0))
        bound = [f"{name} = {shown(name, outer[source])} ({source})"
                 for name, source in declared.bind.items()]  # fmt: skip
        places = [f"{label} {value}" for label, value in declared.labels.items()]
        yield f"  {declared.returns} = {declared.of} with {', '.join((*places, *bound))}"
        yield f"    = {shown(declared.returns, inner[declared.of])}"

    def _formula(self, declared: Formula, scope: Evaluation) -> Iterator[str]:
        values = _values(scope, declared.inputs)
        yield f"  {declared.statement}"
        result = shown(declared.returns, scope[declared.returns])
        yield f"    = {put_in(declared.expression, values)}"
        yield f"    = {result}  {self._source(declared)}"
        yield from (f"    assumes {phrase}" for phrase in declared.assumes)

    def _source(self, declared: Formula | Algorithm) -> str:
        return f"[{self.sources.setdefault(declared.reference, len(self.sources) + 1)}]"

    def collective(
        self, wanted: Sequence[str], title: str, evaluation: Evaluation
    ) -> Iterator[str]:
        """Yield an algorithm's own statements, with what the group of ranks binds to them."""
        calls = [REGISTRY.returning(name, evaluation.labels) for name in wanted]
        of_group = [one for one in calls if isinstance(one, Call) and "collective" in one.labels]
        for index, declared in enumerate(of_group):
            outer, fastest = evaluation.called(declared)
            assert fastest.algorithm is not None
            if index == 0:
                for source in declared.bind.values():
                    yield from self.tell(source, outer, 0)
                yield f"  {title}: {'.'.join(fastest.algorithm.key)} with"
                for name, source in declared.bind.items():
                    yield f"    {name} = {shown(name, outer[source])} ({source})"
            yield from self._of_collective(declared, fastest)

    def _of_collective(self, declared: Call, fastest: Evaluation) -> Iterator[str]:
        """Yield what a quantity of a collective comes from: the algorithm's statement, if it is."""
        algorithm, name = fastest.algorithm, declared.of
        assert algorithm is not None
        result = float(fastest[name])
        expression, source = algorithm.statements.get(name, ""), self._source(algorithm)
        if expression:
            stated = evaluated(expression, _values(fastest, names(expression)))
            expression = expression if np.isclose(stated, result, rtol=1e-9) else ""
        if not expression:
            # What is asked for isn't the plain case that the algorithm states.
            composed = REGISTRY.returning(name, fastest.labels)
            if not isinstance(composed, Formula):
                return
            expression, source = composed.expression, f"{source} {self._source(composed)}"
        values = _values(fastest, names(expression))
        for one in values:
            if one in fastest.given:
                self.leaves.setdefault(one, shown(one, values[one]))
        yield f"  {declared.returns} = {expression}"
        yield f"    = {put_in(expression, values)}"
        yield f"    = {shown(declared.returns, np.asarray(result))}  {source}"


def _values(scope: Evaluation, wanted: Sequence[str]) -> Mapping[str, float]:
    return {name: float(scope[name]) for name in wanted}
