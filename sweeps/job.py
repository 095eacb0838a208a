"""A sweep from its statement to a labelled dataset, in memory or in a file."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from overhead.collectives.algorithm import Algorithm
from overhead.evaluation import Evaluation
from overhead.frozen import frozen
from overhead.quantity import VOCABULARY
from sweeps.display import of_records, row
from sweeps.engine.describe import layout_of, references
from sweeps.engine.evaluate import Limits
from sweeps.engine.grid import OPERATION_STATUS, STATUS, Block, Column, Layout
from sweeps.engine.joint import Joint, joined
from sweeps.engine.program import EXPECTED, Program, Steps
from sweeps.errors import InputError, fault, refuse, tell_all
from sweeps.measured_step import with_clock
from sweeps.result import Result
from sweeps.spec.axis import OF_A_PLAN, OF_TRAINING, Axis
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.software import APART, load_software
from sweeps.spec.sweep import OF_OPERATION, Sweep, read_sweep
from sweeps.spec.units import format_quantity, to_toml, with_si_units
from sweeps.validate import SIZE_CLASSES

if TYPE_CHECKING:
    import xarray as xr

    from sweeps.engine.bounds import Touched
    from sweeps.engine.reduce_base import Reducer
    from sweeps.validate.measured import MeasuredTable

# Most cells that a sweep may have without a reduction: 10^11 float64 are 0.8 TB.
MOST_CELLS = 10**11
# What records tell of a time where an algorithm's isn't exact everywhere.
BOUND = "time_is_upper_bound"
# Groups of quantities that an operation has, and no training step.
OF_AN_OPERATION = ("collective", "library part")
# Reductions whose result has no dimension of its own.
PLAIN_RESULTS = ("min", "max", "mean")


# What makes a program, as data that other processes can be sent.
Compiler = Callable[[], Program]


def _compiler(sweep: Sweep, resolved: Resolved, *, published: bool, status_name: str) -> Compiler:
    """Return what makes the program of a sweep of one subject."""
    reduced = (name for reduction in sweep.reductions for name in reduction.quantities)
    conditions = (reduction.where for reduction in sweep.reductions if reduction.where)
    return partial(
        Program,
        resolved.axes,
        resolved.constants,
        resolved.labels,
        tuple(dict.fromkeys((*sweep.quantities, *reduced))),
        fields=resolved.fields,
        implied=resolved.implied,
        optional=sweep.optional,
        published=published,
        conditions=tuple(dict.fromkeys(conditions)),
        status_name=status_name,
    )


def _joint_program(compilers: Sequence[Compiler], resolved: Resolved) -> Program:
    """Make the program of an operation beside a step."""
    programs = [compiler() for compiler in compilers]
    return Joint(programs, resolved.axes, resolved.constants, resolved.fields)


class Identity(NamedTuple):
    """What a result depends on beside the text of its spec."""

    code: str  # The digest of the code
    inputs: Mapping[str, object]  # Options, versions, and the files that were read


@frozen()
class Job:
    """A sweep ready to run."""

    sweep: Sweep  # What the user stated
    resolved: Resolved  # With what follows from it
    program: Program  # The graph on its grid
    stated: str | Mapping[str, object]  # The spec, as text or as it was given
    command: Sequence[str]  # The command line, for the file's history
    measured: MeasuredTable | None = None  # Measurements beside which the times are laid
    # What else decides the file's contents, such as the type of its numbers
    options: Mapping[str, object] = field(default_factory=dict)
    # What reductions took, where bounds left cells out
    touched: list[Touched] = field(default_factory=list, compare=False)
    # The operation's job and the step's, of a sweep of both
    parts: tuple[Job, ...] = ()

    @cached_property
    def text(self) -> str:
        """The spec's text, for the file."""
        return self.stated if isinstance(self.stated, str) else to_toml(with_si_units(self.stated))

    @property
    def compiler(self) -> Compiler:
        """What makes its program."""
        if self.parts:
            known = replace(self.resolved, origins={}, machines=(), models=())
            return partial(_joint_program, [part.compiler for part in self.parts], known)
        published, name = self.program.published, self.program.status_name
        return _compiler(self.sweep, self.resolved, published=published, status_name=name)

    def of(self, name: str) -> Job:
        """Return the part that computes a quantity."""
        program = self.program.of(name)
        return next((part for part in self.parts if part.program is program), self)

    @cached_property
    def attrs(self) -> Mapping[str, str]:
        """Global attributes: made when a file or a dataset is, for they read all of the code."""
        from sweeps.store.encode import fingerprint, provenance

        code, inputs = self.identity
        attributes = provenance(
            title=self.sweep.title or self._title,
            summary=self.sweep.summary,
            spec_text=self.text,
            command=self.command,
            fingerprint=fingerprint(self.text, code, inputs),
            references="; ".join(references(self.program.declarations())),
        )
        implied = "; ".join(f"{name} = {value}" for name, value in self.program.implied.items())
        attributes |= {"implied_labels": implied} if implied else {}
        errors = self._expected_errors()
        return attributes | ({"expected_errors": errors} if errors else {})

    def _expected_errors(self) -> str:
        """Return the errors that times of libraries' profiles have to be expected to have."""
        errors = {
            name: load_software(name).error_words for name in sorted(_profiles(self.resolved))
        }
        return " | ".join(f"{name}: {words}" for name, words in errors.items() if words)

    @cached_property
    def identity(self) -> Identity:
        """What a result depends on beside the spec's text."""
        from sweeps.store.encode import code_digest, versions

        machines = {
            machine.name: (machine.figures, machine.in_network, machine.scale_out_in_network)
            for machine in self.resolved.machines
        }
        inputs: dict[str, object] = {
            **self.options,
            "versions": versions(),
            "machines": repr(machines),
        }
        if self.resolved.models:
            said = {model.name: (model.shapes, model.trained) for model in self.resolved.models}
            inputs["models"] = repr(said)
        if self.measured is not None:
            inputs["measured"] = self.measured.digest
        return Identity(code_digest(), inputs)

    @property
    def _title(self) -> str:
        if self.program.overlap:
            return "Overlap of computation and communication"
        if self.parts:
            return "Sweep of collective operations and training steps"
        return (
            "Sweep of training steps" if self.program.training else "Sweep of collective operations"
        )

    @property
    def layout(self) -> Layout:
        """The layout of what is stored as it is, without reductions."""
        if self.parts:
            layouts = [layout_of(part.program, part.resolved.origins, {}) for part in self.parts]
            return joined(layouts, self.program.grid.sizes, self.attrs)
        return layout_of(self.program, self.resolved.origins, self.attrs)

    @cached_property
    def cells(self) -> Mapping[str, int]:
        """Cells to compute of each variable."""
        return {v.name: prod(map(int, self.program.shape(v))) for v in self.program.variables}

    @property
    def stored_cells(self) -> int:
        """Cells of what is stored whole."""
        return sum(self.cells[name] for name in {*self.stored} & self.cells.keys())

    @property
    def stored(self) -> tuple[str, ...]:
        """The variables that are stored whole."""
        kept, names = set(self.sweep.quantities), list[str]()
        for part in self.program.parts:
            names_of_part = [variable.name for variable in part.variables if variable.name in kept]
            names += [*names_of_part, part.status_name] if names_of_part else []
        return tuple(names)

    @property
    def computed(self) -> tuple[str, ...]:
        """The quantities of the result, and what reductions of them are called: what is asserted.

        What was measured stands there, too.
        """
        measured = self.measured.dims_of(()) if self.measured else ()
        reduced = (reduction.name for reduction in self.sweep.reductions)
        return (*(name for name in self.stored if name in VOCABULARY), *reduced, *measured)

    def check_size(self) -> None:
        """Refuse a sweep that no disk holds."""
        cells = self.stored_cells
        if cells > MOST_CELLS:
            text = " x ".join(f"{name} {size}" for name, size in self.program.grid.sizes.items())
            refuse(
                "axes",
                text,
                f"{cells:.3g} cells, {8 * cells / 1e12:.3g} TB",
                f"at most {MOST_CELLS:.0e} cells can be stored; shorten an axis, or ask for a "
                "reduction ([[reductions]] with quantities = [])",
            )

    def _check_fits(self) -> None:
        """Refuse a dataset that is larger than the machine's memory."""
        try:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return  # not told here
        if self.nbytes > memory:
            text = " x ".join(f"{name} {size}" for name, size in self.program.grid.sizes.items())
            size = format_quantity(self.nbytes, "byte", binary=False)
            wrong = f"{size} are more than the memory holds"
            allowed = "run it into a file ('sweeps run'), shorten an axis, or ask for a reduction"
            refuse("axes", text, wrong, allowed)

    def estimate(self) -> Iterator[str]:
        """Yield what the sweep would compute and store."""
        for name, size in self.program.grid.sizes.items():
            yield f"axis {name}: {size:,}"
        yield f"grid: {self.program.grid.cells:,} cells"
        for variable in self.program.variables:
            if variable.name in self.stored:
                dims = ", ".join(variable.dims) or "(none)"
                yield f"{variable.name} over {dims}: {self.cells[variable.name]:,} cells"
        nbytes = format_quantity(self.nbytes, "byte", binary=False)
        yield f"to compute: {sum(self.cells.values()):,} cells; file: about {nbytes}"

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored whole, uncompressed."""
        return 8 * self.stored_cells

    def shape_of_result(
        self,
    ) -> tuple[dict[str, tuple[Any, ...] | int], dict[str, tuple[str, ...]]]:
        """Return the result's dimensions with their values, and its variables with their dims."""
        values: dict[str, tuple[Any, ...] | int] = {}
        for axis in self.program.grid.axes:
            column = axis.columns.get(axis.name)
            values[axis.name] = len(axis) if column is None else tuple(column)
        values |= {name: (value,) for name, value in self.program.grid.constants.items()}
        values |= {name: (label,) for name, label in self.program.labels.items()}
        variables = {v.name: v.dims for v in self.program.variables if v.name in self.stored}
        dims_of = {v.name: v.dims for v in self.program.variables}
        for reduction in self.sweep.reductions:
            if reduction.operation in PLAIN_RESULTS:
                dims = dims_of[reduction.quantity]
                variables[reduction.name] = tuple(d for d in dims if d not in reduction.over)
        if self.measured is not None:
            variables |= self.measured.dims_of(variables["time"])
            values["size_class"] = tuple(SIZE_CLASSES)
        return values, variables

    def result(
        self, progress: Callable[[int, int], None] | None = None, limits: Limits | None = None
    ) -> tuple[Layout, Iterator[Block]]:
        """Return the result's layout and its blocks; reductions run first."""
        reducers = self.reducers()
        if reducers:
            from sweeps.engine.reduce import feed

            self.touched[:] = feed(self.program, reducers, limits, progress)
        steps = Steps(self.program, self.stored, limits)
        return self.result_of(reducers, steps.run(0, len(steps)))

    def result_of(
        self, reducers: Sequence[Reducer], blocks: Iterator[Block]
    ) -> tuple[Layout, Iterator[Block]]:
        """Return the result's layout and its blocks, from reducers and blocks at hand."""
        layout = self.layout
        kept = tuple(column for column in layout.variables if column.name in self.stored)
        extra = []
        if reducers:
            from sweeps.engine.reduce import reduced_columns

            extra = reduced_columns(reducers, layout)
        if self.measured is not None:
            time = next(v for v in self.program.variables if v.name == "time")
            extra += self.measured.columns(time.dims, self.program.evaluate(("time",))["time"])
        sizes = dict(layout.sizes)
        for column in extra:
            assert column.values is not None
            sizes.update(zip(column.dims, column.values.shape, strict=True))
        used = {dim for column in (*kept, *extra) for dim in column.dims}
        coordinates = [c for c in layout.coordinates if kept or set(c.dims) <= used]
        coordinates += [column for column in extra if column.dims == (column.name,)]
        extra = [column for column in extra if column.dims != (column.name,)]
        whole = Layout(
            {name: size for name, size in sizes.items() if kept or name in used},
            tuple(coordinates),
            (*kept, *(Column(c.name, c.dims, c.dtype, c.attrs) for c in extra)),
            layout.attrs,
        )
        return whole, self._blocks(extra, blocks)

    @staticmethod
    def _blocks(extra: Sequence[Column], blocks: Iterator[Block]) -> Iterator[Block]:
        for column in extra:
            assert column.values is not None
            yield Block(column.name, tuple(slice(0, n) for n in column.values.shape), column.values)
        yield from blocks

    def reducers(self) -> list[Reducer]:
        """Return an empty reducer for each reduction, in their order."""
        if not self.sweep.reductions:
            return []
        from sweeps.engine.reduce import reducers_of

        return reducers_of(self.program, self.sweep.reductions, self.layout)

    @property
    def masks(self) -> dict[str, int]:
        """By variable: the bits of a status with which it has no value."""
        parts = {
            variable.name: self.program.of(variable.name) for variable in self.program.variables
        }
        parts[BOUND] = self.program.of("time")
        return {name: part.faults.masking(name) for name, part in parts.items()}

    def evaluated(self) -> Result:
        """Evaluate what is stored whole, for records and tables: without sources and provenance."""
        if self.parts:
            layouts = [part.evaluated().layout for part in self.parts]
            return Result(joined(layouts, self.program.grid.sizes, {}), of_records(), self.masks)
        arrays = self.program.evaluate(self.stored)
        # What files say of upper bounds records do, too.
        bounded = any(
            isinstance(declaration, Algorithm) and declaration.bound
            for declaration in self.program.declarations()
        )
        layout = layout_of(self.program, self.resolved.origins, {}, brief=not bounded)
        if "time" in arrays and bounded:
            program = self.program.asking(BOUND)
            (bound, *_) = layout_of(program, self.resolved.origins, {}, brief=True).variables
            layout = replace(layout, variables=(*layout.variables, bound))
            arrays |= program.evaluate((BOUND,))
        columns = (
            replace(column, values=arrays[column.name])
            for column in layout.variables
            if column.name in arrays
        )
        return Result(replace(layout, variables=tuple(columns)), of_records(), self.masks)

    def dataset(self) -> xr.Dataset:
        """Compute the result in memory."""
        from sweeps.store.netcdf import to_dataset

        self.check_size()
        self._check_fits()
        layout, blocks = self.result()
        return to_dataset(layout, blocks)


def prepare(
    spec: Mapping[str, object] | Sweep,
    *,
    text: str = "",
    command: Sequence[str] = ("sweeps",),
    folders: Sequence[Path] = (),
    options: Mapping[str, object] | None = None,
    where: str = "",
) -> Job:
    """Make a sweep ready to run."""
    try:
        stated: str | Mapping[str, object] = text
        if isinstance(spec, Sweep):
            sweep = spec
        else:
            sweep = read_sweep(spec, bare_is_si=True, folders=folders)
            # Written where a file asks for it; whoever gave it may change it until then.
            stated = text or copy.deepcopy(spec)
        compiled = _joint if sweep.joint else _compiled
        return compiled(sweep, stated, tuple(command), folders, dict(options or {}))
    except InputError as error:
        if not where:
            raise
        raise InputError([where + line for line in error.faults]) from None


def evaluation_of(job: Job, *, whole: bool = False) -> Evaluation:
    """Return the evaluation of a result's first cell, for what isn't among its variables."""
    (case, *_), grid = job.program.cases, job.program.grid
    if grid.cells == 1 and not whole:
        return Evaluation.of_cell(job.program.builder(case), grid.values)
    columns = grid.columns
    first = {name: values.reshape(-1)[:1].reshape(()) for name, values in columns.items()}
    return Evaluation(columns if whole else first, case.labels)


def bounds_of(spec: Mapping[str, object] | Sweep, folders: Sequence[Path] = ()) -> xr.DataArray:
    """Return the physical lower bounds of the operations of a sweep beside measurements."""
    wanted = ("lower_bound",)
    if isinstance(spec, Sweep):
        spec = replace(spec, quantities=wanted, reductions=(), figures=(), asserts=())
    else:
        spec = {**spec, "quantities": list(wanted)}
    return prepare(spec, folders=folders).dataset()["lower_bound"]


def _profiles(resolved: Resolved) -> set[str]:
    """Return the names of the libraries' profiles of a sweep."""
    columns = (axis.columns.get("software", ()) for axis in resolved.axes)
    names = {str(name) for column in columns for name in column}
    return names | ({resolved.labels["software"]} if "software" in resolved.labels else set())


def _published(resolved: Resolved) -> bool:
    """Return whether published rows tell how far times of operations are off.

    What is calibrated has errors of its own, and so have links that the rows aren't of.
    """
    if not any(load_software(name).errors for name in _profiles(resolved)):
        return False
    apart = (machine.constants or machine.generation in APART for machine in resolved.machines)
    return not any(apart)


def _compiled(
    sweep: Sweep,
    stated: str | Mapping[str, object],
    command: tuple[str, ...],
    folders: Sequence[Path],
    options: Mapping[str, object],
    status_name: str = STATUS,
) -> Job:
    """Make a sweep of one subject ready to run."""
    measured = None
    if sweep.measured:
        from sweeps.validate.measured import join_measured

        sweep, measured = join_measured(sweep, folders)
    resolved = with_clock(sweep, resolve(sweep, folders))
    sweep, program = program_of(sweep, resolved, status_name)
    if measured is not None:
        resolved = replace(resolved, origins={**measured.origins, **resolved.origins})
        (time,) = (variable.dims for variable in program.variables if variable.name == "time")
        measured.check_size({dim: program.grid.sizes[dim] for dim in time})
    return Job(sweep, resolved, program, stated, command, measured, options)


def program_of(
    sweep: Sweep, resolved: Resolved, status_name: str = STATUS
) -> tuple[Sweep, Program]:
    """Return a sweep of one subject with all that it asks for, and its program."""
    published = not (sweep.training or sweep.overlap) and _published(resolved)
    if published and sweep.usual:
        sweep = replace(sweep, quantities=(*sweep.quantities, *EXPECTED))
    program = _compiler(sweep, resolved, published=published, status_name=status_name)()
    # What a model or a machine gives can't be reduced.
    tell_all(
        [
            fault("reductions.quantity", name, "is given here, not computed", "another one")
            for reduction in sweep.reductions
            for name in reduction.quantities
            if name in program.grid.columns
        ]
    )
    return sweep, program


# A sweep of an operation and of a training step: each is the sweep that it would be alone.


def _joint(
    sweep: Sweep,
    stated: str | Mapping[str, object],
    command: tuple[str, ...],
    folders: Sequence[Path],
    options: Mapping[str, object],
) -> Job:
    """Make a sweep of operations beside training steps ready to run."""
    if sweep.measured:
        wrong, allowed = "is beside operations alone", "a sweep without a training step"
        refuse("measured", "..", wrong, allowed)
    operation, step = sweep.split()
    reduced = (name for reduction in sweep.reductions for name in reduction.quantities)
    asked = tuple(dict.fromkeys((*sweep.quantities, *reduced)))
    of_operation = _of_operation(asked, resolve(operation, folders))
    _check_asked(sweep, asked, of_operation)
    jobs = []
    for part, name in ((operation, OPERATION_STATUS), (step, STATUS)):
        of_it = [
            quantity for quantity in asked if (quantity in of_operation) is (part is operation)
        ]
        part = replace(  # noqa: PLW2901
            part,
            quantities=tuple(quantity for quantity in sweep.quantities if quantity in of_it),
            reductions=tuple(
                reduction for reduction in sweep.reductions if reduction.quantity in of_it
            ),
            optional=sweep.optional and part is step,
        )
        jobs.append(_compiled(part, stated, command, folders, options, name))
    resolved = _together(sweep, [job.resolved for job in jobs])
    program = Joint(
        [job.program for job in jobs], resolved.axes, resolved.constants, resolved.fields
    )
    whole = replace(sweep, quantities=tuple(n for job in jobs for n in job.sweep.quantities))
    return Job(whole, resolved, program, stated, command, None, options, parts=tuple(jobs))


def _of_operation(names: Sequence[str], resolved: Resolved) -> set[str]:
    """Return which of some quantities are an operation's: those that it has, and no step."""
    told = {name: row(name).group for name in names}
    names_of_operation = {name for name, group in told.items() if group in OF_AN_OPERATION}
    names_of_operation |= {*names} & {"chosen_algorithm", *EXPECTED}
    left = tuple(
        name for name, group in told.items() if not group and name not in names_of_operation
    )
    if left:
        names_of_operation |= {*Program.of_sweep(resolved, left, optional=True).wanted}
    return names_of_operation


def _check_asked(sweep: Sweep, asked: Iterable[str], of_operation: Container[str]) -> None:
    """Refuse inputs of an operation, or of a step, of which nothing is asked for."""
    subjects = {
        "an operation": ("time", OF_OPERATION, any(name in of_operation for name in asked)),
        "a training step": (
            "step_time",
            (*OF_A_PLAN, *OF_TRAINING),
            any(name not in of_operation for name in asked),
        ),
    }
    faults = [
        fault(
            name,
            "..",
            f"is of {subject}, and nothing of one is asked for",
            f"{usual} among the quantities, or leave it out",
        )
        for subject, (usual, names, some) in subjects.items()
        if not some
        for name in names
        if name in sweep.given
    ]
    for reduction in sweep.reductions:
        if reduction.against and (reduction.quantity in of_operation) is not (
            reduction.against in of_operation
        ):
            wrong = f"and {reduction.quantity} aren't both of an operation, or both of a step"
            faults.append(fault("reductions.against", reduction.against, wrong, "another one"))
    tell_all(faults)


def _together(sweep: Sweep, parts: Sequence[Resolved]) -> Resolved:
    """Return what an operation and a step have, as one; the step's, where they differ."""
    axes = [
        Axis(
            axis.name,
            {name: values for part_axis in alike for name, values in part_axis.columns.items()},
        )
        for axis in sweep.axes
        if (
            alike := [
                candidate
                for part in parts
                for candidate in part.axes
                if candidate.name == axis.name
            ]
        )
    ]
    operation, step = parts
    return Resolved(
        tuple(axes),
        {**operation.constants, **step.constants},
        {**operation.labels, **step.labels},
        {**operation.origins, **step.origins},
        tuple({machine.name: machine for part in parts for machine in part.machines}.values()),
        {**operation.fields, **step.fields},
        step.models,
        step.implied,
    )
