"""A sweep ready to run: what each variable's dimensions are, and its blocks."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, reduce
from itertools import accumulate, product
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np

from overhead.arrays import in_numpy
from overhead.choose import TAKEN, Builder, Undecided
from overhead.collectives.algorithm import Algorithm
from overhead.completion import following
from overhead.dependencies import bits
from overhead.expression import evaluate, names
from overhead.formula import REGISTRY, Call, Formula
from overhead.frozen import frozen
from overhead.graph import Missing, Node
from overhead.labels import HIERARCHY, NO_LIBRARY
from overhead.overlap.mechanisms import MECHANISMS
from overhead.quantity import VOCABULARY
from sweeps.display import BANDS, noun
from sweeps.engine import validity
from sweeps.engine.evaluate import Cuts, Limits, settings
from sweeps.engine.evaluators import Evaluators
from sweeps.engine.grid import (
    BESIDE,
    STATUS,
    Array,
    Block,
    Field,
    Grid,
    LabelCase,
    Variable,
    cut,
    dtype_of,
)
from sweeps.engine.group import Group
from sweeps.engine.kept import keep, kept_of
from sweeps.errors import InputError, fault, needs
from sweeps.spec.axis import Axis, is_overlap

if TYPE_CHECKING:
    from sweeps.spec.resolve_operation import Resolved

# What follows from the time alone, whichever algorithm has it.
OF_TIME = {"time", "algbw", "busbw"}
# What published rows tell of a time.
EXPECTED = ("time_band_low", "time_band_high", "error_band_samples")
# Cells of a set of labels up to which a trial computes all of them.
TRIED_CELLS = 64


class Program:
    """A sweep ready to run."""

    def __init__(
        self,
        axes: Sequence[Axis],
        constants: Mapping[str, float],
        labels: Mapping[str, str],
        wanted: Sequence[str],
        *,
        fields: Mapping[str, Field] | None = None,
        implied: Mapping[str, str] | None = None,
        optional: bool = False,
        published: bool = False,
        conditions: Sequence[str] = (),
        status_name: str = STATUS,
    ) -> None:
        self.grid = Grid(axes, constants, fields or {})
        self.labels = dict(labels)
        self.implied = dict(implied or {})
        self.optional = optional
        self.published = published  # Whether published rows tell how far times are off
        self.conditions = tuple(conditions)  # What reductions ask of the cells that they count
        self.status_name = status_name  # The variable that says why cells don't exist
        self.limits = Limits()  # How much is computed at a time, and with whose arrays
        # What is given isn't computed: it is a coordinate.
        self.wanted = tuple(name for name in wanted if name not in self.grid.columns)
        named = {name for axis in axes for name in axis.columns}
        self.collective = "collective" in {*labels, *named}
        self.overlap = is_overlap({*labels, *named})
        self.training = not (self.collective or self.overlap)
        self.faults: validity.Faults = _faults(training=self.training, overlap=self.overlap)
        self.missing: dict[str, str] = {}  # What was asked for and nothing gives, and why
        self._builders: dict[int, Builder] = {}
        self.switching = tuple(axis for axis in self.grid.axes if axis.switching)
        points = tuple(self._points())
        self._kept = kept_of(self.grid, [labels for labels, _ in points])
        self._graph, self._given = self._kept.graph, self._kept.given
        self._graph.unknown = bits(_unknown(self.grid))
        self.cases = tuple(self._cases(points))
        keep(self._kept)

    @classmethod
    def of_sweep(cls, resolved: Resolved, wanted: Sequence[str], **options: Any) -> Program:
        """Return the program of a resolved sweep."""
        return cls(
            resolved.axes,
            resolved.constants,
            resolved.labels,
            wanted,
            fields=resolved.fields,
            implied=resolved.implied,
            **options,
        )

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """The quantities asked for, and the status: found when asked for, by trials on the grid."""
        single = self.grid.cells == 1 or not any(self.grid.dims.values())
        if single and self.limits.arrays is None:
            self._kept.below(self._roots()).of_cell(self.grid)
        return tuple(self._variable(name) for name in (*self.wanted, self.status_name))

    def _points(self) -> Iterator[tuple[dict[str, str], dict[int, slice]]]:
        """Yield each set of labels, and where on the grid they hold."""
        for point in product(*(range(len(axis)) for axis in self.switching)):
            labels, fixed = dict(self.labels), {}
            for axis, index in zip(self.switching, point, strict=True):
                labels.update({name: str(axis.columns[name][index]) for name in axis.switching})
                fixed[self.grid.position(axis.name)] = slice(index, index + 1)
            yield {**self.implied, **following(labels, self.grid.dims)}, fixed

    def _cases(
        self, points: Sequence[tuple[dict[str, str], dict[int, slice]]]
    ) -> Iterator[LabelCase]:
        faults: list[str] = []
        # What some networks have and others don't is a hole there; what none has is a fault.
        lacking: dict[str, Missing] = {}
        reached: set[str] = set()
        only_time = set(self.wanted) <= OF_TIME.union(EXPECTED)
        for labels, fixed in points:
            builder = self._builder(labels, fixed, only_time=only_time)
            try:
                nodes = self._nodes(builder, lacking)
                reasons = self._status(builder, nodes)
                nodes |= self._conditions(builder) if nodes else {}
            except Missing as missing:
                faults += self._lacking(builder) or _missing(missing)
                continue
            except Undecided as choice:
                wrong = "takes the algorithm of the least time, but the time is given"
                allowed = "an algorithm's name, or standard"
                faults.append(fault("algorithm", str(choice), wrong, allowed))
                continue
            reached |= set(nodes)
            yield LabelCase(builder.labels, fixed, nodes, reasons, builder.algorithms())
        never = {name: reason for name, reason in lacking.items() if name not in reached}
        if self.optional:
            # An error of nothing.
            for value, ends in BANDS.items():
                if value in never:
                    never |= {end: never[value] for end in ends if end in self.wanted}
            self.missing = {name: "; ".join(_missing(reason)) for name, reason in never.items()}
            self.wanted = tuple(name for name in self.wanted if name not in never)
        else:
            faults += [line for missing in never.values() for line in _missing(missing)]
        if faults:
            raise InputError(list(dict.fromkeys(faults)))

    def _lacking(self, builder: Builder) -> list[str]:
        """Return faults of what a mechanism takes and nothing gives."""
        if not self.overlap:
            return []
        mechanism = MECHANISMS[builder.labels["mechanism"]]
        return [
            needs(f"the mechanism {mechanism.name}", noun(name), f"{name} {AS}")
            for name in mechanism.takes
            if builder.perhaps(name) is None
        ]

    def _status(self, builder: Builder, nodes: Mapping[str, Node]) -> Node:
        if self.training:
            return validity.feasibility(builder, self.faults.bits, nodes)
        if self.overlap:
            return validity.overlap_feasibility(builder, self.faults.bits, nodes)
        some = len(nodes) < len(self.wanted)
        return validity.status(builder, self.faults.bits, nodes, lacking=some)

    def _nodes(self, builder: Builder, lacking: dict[str, Missing]) -> dict[str, Node]:
        """Return the wanted quantities' nodes; those that nothing gives here are told."""
        nodes: dict[str, Node] = {}
        for name in self.wanted if builder.algorithms() or not self.collective else ():
            try:
                nodes[name] = builder.node(name)
            except Missing as missing:
                if missing.quantity != name and not self.optional:
                    raise
                lacking[name] = missing
        return nodes

    def _conditions(self, builder: Builder) -> dict[str, Node]:
        """Return the nodes of conditions: 1 where they hold, else 0."""
        conditions = {}
        for text in self.conditions:
            asked = names(text)
            absent = [name for name in asked if builder.perhaps(name) is None]
            if absent:
                wrong = f"{', '.join(absent)} is neither given nor computed here"
                allowed = "what is given, or what follows from it"
                raise InputError(fault("reductions.where", text, wrong, allowed))

            def run(*values: Array, text: str = text, asked: Sequence[str] = asked) -> Array:
                mask = evaluate(text, dict(zip(asked, values, strict=True)))
                return np.where(mask, 1.0, 0.0)

            inputs = tuple(builder.node(name) for name in asked)
            conditions[text] = builder.intern(text, ("condition", text), inputs, run)
        return conditions

    def dims_of(self, text: str) -> tuple[str, ...]:
        """Return the dimensions along which a condition varies; none of none."""
        dims = frozenset[str]()
        for case in self.cases:
            if text in case.nodes:
                dims |= self._varying(case, case.nodes[text])
        return self.grid.ordered(dims)

    def builder(self, case: LabelCase) -> Builder:
        """Return a builder of further nodes for a case."""
        if id(case) not in self._builders:
            self._builders[id(case)] = self._builder(case.labels, case.fixed)
        return self._builders[id(case)]

    def _builder(
        self, labels: Mapping[str, str], fixed: Mapping[int, slice], *, only_time: bool = False
    ) -> Builder:
        """Return a builder for labels, which what published rows tell of times is given to."""
        further: dict[str, Any] = {"only_time": only_time, "defaults": self._defaults(labels)}
        builder = Builder(self.grid, labels, self._given, self._graph, **further)
        if not self.collective or set(EXPECTED).isdisjoint(self.wanted):
            return builder
        given = {**self._given, **self._expected(builder, fixed)}
        return Builder(self.grid, labels, given, self._graph, **further)

    def _expected(self, builder: Builder, fixed: Mapping[int, slice]) -> dict[str, Node]:
        """Return the bands of times, and how many rows tell them; NaN and 0 where none does."""
        from sweeps.spec.software import load_software

        names = ("message_bytes", "ranks", "gpus_per_node")
        inputs = tuple(operand for name in names if (operand := builder.perhaps(name)) is not None)
        priced = builder.labels.get("library", NO_LIBRARY) != NO_LIBRARY
        measured = all(algorithm.form in TAKEN for algorithm in builder.algorithms())
        known = self.published and priced and measured and len(inputs) == len(names)
        software = self.labels.get("software", NO_LIBRARY)
        for axis in self.switching:
            if "software" in axis.columns:
                software = str(axis.columns["software"][fixed[self.grid.position(axis.name)].start])
        profile, operation = load_software(software), builder.labels["collective"]
        nested = builder.labels["topology"] == HIERARCHY

        def run(message: Array, ranks: Array, node: Array) -> tuple[Array, Array, Array]:
            message, ranks, node = map(in_numpy, (message, ranks, node))
            low, high, rows = profile.bands(operation, message, ranks, node)
            inside = (ranks <= node) | nested
            return (
                np.where(inside, low, np.nan),
                np.where(inside, high, np.nan),
                np.where(inside, rows, 0.0),
            )

        unit_shape = (1,) * self.grid.ndim
        nodes = {}
        for index, name in enumerate(EXPECTED):
            if known:
                what = (name, str(profile.path), operation, nested)
                expected_node = builder.intern(name, what, inputs, lambda *v, at=index: run(*v)[at])
            else:
                value = (np.nan, np.nan, 0.0)[index]
                expected_node = builder.intern(
                    name, (name,), (), lambda at=value: np.full(unit_shape, at)
                )
            nodes[name] = expected_node
        return nodes

    def asking(self, name: str) -> Program:
        """Return the program of another quantity, on the same graph, in cases with an algorithm."""
        other = copy(self)
        other.__dict__.pop("variables", None)
        other.wanted = (name,)
        nodes = [
            {name: self.builder(case).node(name)} if case.algorithms else {} for case in self.cases
        ]
        cases = zip(self.cases, nodes, strict=True)
        other.cases = tuple(replace(case, nodes=stated) for case, stated in cases)
        return other

    def _defaults(self, labels: Mapping[str, str]) -> dict[str, Node]:
        """Return what holds where nothing gives a quantity: a mechanism's defaults."""
        defaults: dict[str, Node] = {}
        for name, value in MECHANISMS[labels["mechanism"]].defaults.items() if self.overlap else ():
            defaults[name] = Node(name, ("default", name, value), (), None, frozenset())
        return defaults

    @property
    def assumed(self) -> Mapping[str, float]:
        """The defaults on which results depend."""
        return self._kept.below(self._roots()).assumed

    def algorithms(self) -> tuple[Algorithm, ...]:
        """Return all algorithms that take part, each once."""
        return tuple(dict.fromkeys(a for case in self.cases for a in case.algorithms))

    def declarations(self, *names: str) -> tuple[Formula | Algorithm, ...]:
        """Return the algorithms that take part, or every formula of a step (or variables of it)."""
        if self.collective:
            return self.algorithms()
        return self._kept.below(self._roots(*names)).declarations

    def nodes(self, *names: str) -> Iterator[Node]:
        """Yield every node on which a result, or some variables of it, depends, each once."""
        return iter(self._kept.below(self._roots(*names)).nodes)

    def _roots(self, *names: str) -> list[Node]:
        every = [{**case.nodes, self.status_name: case.status} for case in self.cases]
        return [nodes[name] for nodes in every for name in (names or nodes) if name in nodes]

    def given(self, name: str) -> Node:
        """Return the node of what is given."""
        return self._given[name]

    def used(self) -> set[str]:
        """Return the names of given quantities on which a result depends."""
        return set(self._kept.below(self._roots()).given)

    # What it consists of: itself, unless it is several at once (`sweeps.engine.joint`).

    @property
    def parts(self) -> tuple[Program, ...]:
        """The programs of one subject each."""
        return (self,)

    def of(self, name: str) -> Program:
        """Return the part that computes a variable."""
        return self

    # What a variable depends on.

    def _variable(self, name: str) -> Variable:
        nodes = [(case, self._node(case, name)) for case in self.cases]
        dims = frozenset[str]()
        declarations: dict[int, Any] = {}
        for case, node in nodes:
            if node is not None:
                dims |= self._varying(case, node)
                called = None if self.collective else REGISTRY.returning(name, case.labels)
                origin = called if isinstance(called, Call) else node.origin
                if origin is not None:
                    declarations.setdefault(id(origin), origin)
        dims |= self._switched([(case, node.key if node else None) for case, node in nodes])
        return Variable(name, self.grid.ordered(dims), tuple(declarations.values()))

    def _node(self, case: LabelCase, name: str) -> Node | None:
        return case.status if name == self.status_name else case.nodes.get(name)

    def _varying(self, case: LabelCase, node: Node) -> frozenset[str]:
        """Return the dimensions along which a node's value really varies.

        A kernel may take an input without every part of its cost depending on it: the shapes of a
        trial on two points a dimension tell.
        """
        if node.run is None:
            return node.dims
        value = np.asarray(self._trial(case, node))
        kept = {
            dim
            for dim in node.dims
            if self.grid.sizes[dim] == 1 or value.shape[self.grid.position(dim)] > 1
        }
        fixed = {self.grid.names[position] for position in case.fixed}
        return frozenset(kept | (node.dims & fixed))

    def _trial(self, case: LabelCase, node: Node) -> Any:
        grid = self.grid
        free = [n for index, n in enumerate(grid.shape) if index not in case.fixed]
        # Of few cells all are computed: what evaluates them has their values, then.
        most = max(free, default=1) if math.prod(free) <= TRIED_CELLS and grid.room > 0 else 2
        region = [slice(0, min(most, length)) for length in grid.shape]
        for position, part in case.fixed.items():
            region[position] = part
        memos: dict[frozenset[str], dict[int, Any]] = {}

        def value(operand: Node) -> Any:
            memo = memos.get(operand.dims)
            if memo is None:
                memo = memos[operand.dims] = self._tried(operand.dims, case.fixed, most)
            known = memo.get(id(operand))
            if known is None:
                given = grid.given(operand)
                if given is not None:
                    # One array of each: kernels look at whether inputs are the same.
                    known = cut(given, tuple(region))
                else:
                    assert operand.run is not None
                    known = operand.run(*[value(x) for x in operand.inputs])
                    grid.room -= BESIDE
                memo[id(operand)] = known
            return known

        with settings(self.grid.shape[-1]):
            return value(node)

    def _tried(self, dims: frozenset[str], fixed: Mapping[int, slice], most: int) -> dict[int, Any]:
        """Return what trials know of nodes over some dimensions: all there is of short ones."""
        grid = self.grid
        parts = {position: part for position, part in fixed.items() if grid.names[position] in dims}
        if all(grid.sizes[dim] <= most or grid.position(dim) in parts for dim in dims):
            return grid.known(dims, parts)
        starts = tuple((position, part.start) for position, part in parts.items())
        return self._trials.setdefault(starts, {})

    @cached_property
    def _trials(self) -> dict[tuple[tuple[int, int], ...], dict[int, Any]]:
        return {}

    def _switched(self, keys: Sequence[tuple[LabelCase, Any]]) -> frozenset[str]:
        """Return the switching dimensions along which the formulas differ."""
        switched = set()
        for axis in self.switching:
            position = self.grid.position(axis.name)
            seen: dict[tuple[int, ...], Any] = {}
            for case, key in keys:
                others = tuple(s.start for p, s in sorted(case.fixed.items()) if p != position)
                if seen.setdefault(others, key) != key:
                    switched.add(axis.name)
                    break
        return frozenset(switched)

    # Blocks.

    def evaluate(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        """Compute variables whole, in memory."""
        arrays = {
            variable.name: np.empty(self.shape(variable), dtype=dtype_of(variable.name))
            for variable in self.variables
            if names is None or variable.name in names
        }
        self.fill(arrays)
        return arrays

    def fill(self, arrays: Mapping[str, Array], cells: int = 0) -> None:
        """Compute variables into arrays of their shapes (C order), without copies."""
        self._steps(tuple(arrays), cells).fill(arrays)

    def blocks(self, names: Sequence[str] | None = None, cells: int = 0) -> Iterator[Block]:
        """Compute variables block by block."""
        wanted = tuple(v.name for v in self.variables if names is None or v.name in names)
        yield from (steps := self._steps(wanted, cells)).run(0, len(steps))

    def _steps(self, names: Sequence[str], cells: int) -> Steps:
        wanted = [variable.name for variable in self.variables if variable.name in names]
        return Steps(self, wanted, replace(self.limits, block=cells or self.limits.block))

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Return a variable's shape."""
        return tuple(self.grid.sizes[dim] for dim in variable.dims)

    def stages(
        self, names: Sequence[str]
    ) -> Iterator[tuple[LabelCase, tuple[str, ...], list[Variable]]]:
        """Yield what is computed together: variables of the same dimensions, case by case."""
        known = {variable.name: variable for variable in self.variables}
        wanted = [known[name] for name in names if name in known]
        done: set[tuple[Any, ...]] = set()
        for case in self.cases:
            groups: dict[tuple[str, ...], list[Variable]] = {}
            for variable in wanted:
                position = self._place(case, variable)
                if position not in done:
                    done.add(position)
                    groups.setdefault(variable.dims, []).append(variable)
            # Those of most dimensions first: the others see their reasons for holes.
            largest = sorted(groups.items(), key=lambda entry: -self.grid.size(frozenset(entry[0])))
            for dims, variables in largest:
                yield case, dims, variables

    def _place(self, case: LabelCase, variable: Variable) -> tuple[Any, ...]:
        fixed = {self.grid.names[p]: s.start for p, s in case.fixed.items()}
        return (variable.name, *((dim, fixed[dim]) for dim in variable.dims if dim in fixed))


# The work of a program as a row of numbered steps, so that any run of them can be computed alone.


@frozen()
class Stage:
    """Variables of the same dimensions in one case, and the parts that they are computed in."""

    program: Program  # The one of whose variables they are
    case: LabelCase  # The case whose formulas hold
    dims: tuple[str, ...]  # The variables' dimensions
    variables: tuple[Variable, ...]  # What is computed
    cuts: Cuts  # The parts, of the case's own points


class Steps:
    """A program's work: step after step, each a part of some variables.

    Each gives the same bits whichever others
    are computed, so that a sweep can be cut into runs of steps anywhere.
    """

    def __init__(
        self,
        program: Program,
        names: Sequence[str],
        limits: Limits | None = None,
        partners: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.program, self.limits, self.partners = program, limits or program.limits, partners
        self.stages = tuple(self._staged(names))
        self._ends = tuple(accumulate(len(stage.cuts) for stage in self.stages))
        # By part: what evaluates it, and what no variable's value survives.
        self._kept = {
            id(part): (Evaluators(part.grid, self.limits), self._deadly(part, names))
            for part in program.parts
        }
        self._group: tuple[Stage, Group] | None = None

    def _staged(self, names: Sequence[str]) -> Iterator[Stage]:
        for part in self.program.parts:
            for case, dims, variables in part.stages(names):
                lengths = [
                    1 if position in case.fixed else part.grid.shape[position]
                    for position in map(part.grid.position, dims)
                ]
                cuts = Cuts(lengths, self.limits.block)
                yield Stage(part, case, dims, tuple(variables), cuts)

    def _deadly(self, part: Program, names: Sequence[str]) -> int:
        """Return the bits of a part's status that the value of none of its variables survives."""
        names_of_part = [name for name in names if self.program.of(name) is part]
        others = [other for name in names_of_part for other in (self.partners or {}).get(name, ())]
        masks = [
            part.faults.masking(name) for name in {*names_of_part, *others} - {part.status_name}
        ]
        return reduce(and_, masks) if masks else 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def stage_of(self, step: int) -> tuple[Stage, int]:
        """Return a step's stage, and which of its parts it is."""
        number = bisect_right(self._ends, step)
        before = self._ends[number - 1] if number else 0
        return self.stages[number], step - before

    def first(self, stage: Stage) -> int:
        """Return the number of a stage's first step."""
        number = self.stages.index(stage)
        return self._ends[number - 1] if number else 0

    def run(self, start: int, stop: int) -> Iterator[Block]:
        """Compute some steps."""
        for step in range(start, min(stop, len(self))):
            stage, part = self.stage_of(step)
            group, cut = self._grouped(stage), stage.cuts[part]
            with settings(stage.program.grid.shape[-1]):
                blocks = group.at(cut, stage.variables, partners=self.partners)
            yield from blocks

    def fill(self, arrays: Mapping[str, Array]) -> None:
        """Compute all steps into arrays."""
        for stage in self.stages:
            group = self._grouped(stage)
            with settings(stage.program.grid.shape[-1]):
                for cut in stage.cuts:
                    group.at(cut, stage.variables, arrays)

    def _grouped(self, stage: Stage) -> Group:
        """Return what computes a stage; what a case's stages keep stays until the next case."""
        if self._group is None or self._group[0] is not stage:
            if self._group is not None and self._group[0].case is not stage.case:
                before = self._group[0]
                self._kept[id(before.program)][0].forget(before.case)
            self._group = None
            part = stage.program
            evaluators, bits = self._kept[id(part)]
            group = Group(
                part.grid,
                part.cases,
                stage.case,
                part.builder,
                evaluators,
                stage.dims,
                bits,
                part.faults,
                part.status_name,
            )
            self._group = stage, group
        return self._group[1]


def _unknown(grid: Grid) -> Iterator[str]:
    """Yield the names of what is given as NaN, somewhere."""
    for name, values in grid.columns.items():
        number = grid.constants.get(name)
        if np.isnan(values).any() if number is None else math.isnan(number):
            yield name


def _faults(*, training: bool, overlap: bool) -> validity.Faults:
    if not (training or overlap):
        return validity.collective_faults()
    return validity.training_faults() if training else validity.overlap_faults()


AS = "as an axis or a constant"


def _missing(missing: Missing) -> list[str]:
    """Return what a quantity that is asked for needs and nothing gives, a line each."""
    asked = (missing.chain or (missing.quantity,))[0]
    roots = [name for name in missing.roots if name != asked]
    if missing.circle:
        round_ = " needs ".join((*missing.circle, missing.circle[0]))
        return [f"nothing gives {asked}: {round_}; give {' or '.join(missing.circle)} {AS}"]
    if not roots:
        allowed = f"leave it out, or give it {AS}"
        return [f"nothing gives {asked}, {noun(asked)}, here; {allowed}"]
    shapes = [name for name in roots if name in VOCABULARY.tables["shapes"]]
    if len(shapes) < 2:
        return [needs(asked, noun(name), f"{name} {AS}") for name in roots]
    given = f"model, such as llama3-70b, or each of {', '.join(shapes)}"
    others = [name for name in roots if name not in shapes]
    return [needs(asked, "a model", given), *(needs(asked, noun(n), f"{n} {AS}") for n in others)]
