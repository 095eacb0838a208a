"""A sweep from its statement to a labelled dataset, in memory or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from overhead.collectives.algorithm import Algorithm
from sweeps.display import of_records
from sweeps.engine.bounds import Touched
from sweeps.engine.describe import layout_of, references
from sweeps.engine.evaluate import Limits
from sweeps.engine.grid import Block, Column, Layout
from sweeps.engine.program import Program, Steps
from sweeps.engine.reduce import feed, reduced_columns, reducers_of
from sweeps.engine.reduce_base import Reducer
from sweeps.errors import InputError, fault, refuse, tell_all
from sweeps.result import Result
from sweeps.spec.resolve import Resolved, resolve
from sweeps.spec.software import APART, load_software
from sweeps.spec.sweep import Sweep, read_sweep
from sweeps.spec.units import format_quantity, to_toml, with_si_units
from sweeps.store import encode
from sweeps.validate import SIZE_CLASSES

if TYPE_CHECKING:
    import xarray as xr

    from sweeps.validate.measured import MeasuredTable

# Most cells that a sweep may have without a reduction: 10^11 float64 are 0.8 TB.
MOST_CELLS = 10**11
# What records tell of a time where an algorithm's isn't exact everywhere.
BOUND = "time_is_upper_bound"
# Reductions whose result has no dimension of its own.
PLAIN_RESULTS = ("min", "max", "mean")


@dataclass(frozen=True)
class Job:
    """A sweep ready to run."""

    sweep: Sweep  # What the user stated
    resolved: Resolved  # With what follows from it
    program: Program  # The graph on its grid
    text: str  # The spec's text, for the file
    command: Sequence[str]  # The command line, for the file's history
    measured: MeasuredTable | None = None  # Measurements beside which the times are laid
    # What else decides the file's contents, such as the type of its numbers
    options: Mapping[str, Any] = field(default_factory=dict)
    # What reductions took, where bounds left cells out
    touched: list[Touched] = field(default_factory=list, compare=False)

    @cached_property
    def attrs(self) -> Mapping[str, str]:
        """Global attributes: made when a file or a dataset is, for they read all of the code."""
        code, inputs = self.identity["code"], self.identity["inputs"]
        found = encode.provenance(
            title=self.sweep.title or self._title,
            summary=self.sweep.summary,
            spec_text=self.text,
            command=self.command,
            fingerprint=encode.fingerprint(self.text, code, inputs),
            references="; ".join(references(self.program.declarations())),
        )
        implied = "; ".join(f"{name} = {value}" for name, value in self.program.implied.items())
        found |= {"implied_labels": implied} if implied else {}
        errors = self._expected_errors()
        return found | ({"expected_errors": errors} if errors else {})

    def _expected_errors(self) -> str:
        """Return the errors that times of libraries' profiles have to be expected to have."""
        errors = {
            name: load_software(name).error_words for name in sorted(_profiles(self.resolved))
        }
        return " | ".join(f"{name}: {words}" for name, words in errors.items() if words)

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """What a result depends on beside the spec's text: ``code``, its digest, and ``inputs``."""
        machines = {
            machine.name: (machine.figures, machine.in_network, machine.scale_out_in_network)
            for machine in self.resolved.machines
        }
        inputs = {**self.options, "versions": encode.versions(), "machines": repr(machines)}
        if self.resolved.models:
            shapes = {model.name: model.shapes for model in self.resolved.models}
            inputs["models"] = repr(shapes)
        if self.measured is not None:
            inputs["measured"] = self.measured.digest
        return {"code": encode.code_digest(), "inputs": inputs}

    @property
    def _title(self) -> str:
        if self.program.overlap:
            return "Overlap of computation and communication"
        return (
            "Sweep of training steps" if self.program.training else "Sweep of collective operations"
        )

    @property
    def layout(self) -> Layout:
        """The layout of what is stored as it is, without reductions."""
        return layout_of(self.program, self.resolved.origins, self.attrs)

    @property
    def cells(self) -> int:
        """Cells to compute, all variables together."""
        shapes = (self.program.shape(variable) for variable in self.program.variables)
        return sum(int(np.prod([int(n) for n in shape], dtype=object)) for shape in shapes)

    @property
    def stored(self) -> tuple[str, ...]:
        """The variables that are stored whole."""
        kept = self.sweep.quantities
        return tuple(
            variable.name
            for variable in self.program.variables
            if variable.name in kept or (variable.name == "status" and kept)
        )

    def check_size(self) -> None:
        """Refuse a sweep that no disk holds."""
        sizes = {
            v.name: self.program.shape(v) for v in self.program.variables if v.name in self.stored
        }
        cells = sum(int(np.prod([int(n) for n in s], dtype=object)) for s in sizes.values())
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
            wrong = f"{format_quantity(self.nbytes, 'byte')} are more than the memory holds"
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
                cells = int(np.prod([int(n) for n in self.program.shape(variable)], dtype=object))
                yield f"{variable.name} over {dims}: {cells:,} cells"
        nbytes = format_quantity(self.nbytes, "byte")
        yield f"to compute: {self.cells:,} cells; file: about {nbytes}"

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored whole, uncompressed."""
        shapes = [self.program.shape(v) for v in self.program.variables if v.name in self.stored]
        return sum(8 * int(np.prod([int(n) for n in shape], dtype=object)) for shape in shapes)

    def shape_of_result(self) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
        """Return the result's dimensions with their values, and its variables with their dims."""
        values: dict[str, Any] = {}
        for axis in self.program.grid.axes:
            values[axis.name] = axis.columns.get(axis.name, len(axis))
        values |= {name: (value,) for name, value in self.program.grid.constants.items()}
        values |= {name: (label,) for name, label in self.program.labels.items()}
        variables = {v.name: v.dims for v in self.program.variables if v.name in self.stored}
        own = {v.name: v.dims for v in self.program.variables}
        for reduction in self.sweep.reductions:
            if reduction.operation in PLAIN_RESULTS:
                dims = own[reduction.quantity]
                variables[reduction.name] = tuple(d for d in dims if d not in reduction.over)
        if self.measured is not None:
            variables |= self.measured.dims_of(variables["time"])
            values["size_class"] = np.array(list(SIZE_CLASSES), dtype=np.str_)
        return values, variables

    def result(
        self, progress: Callable[[int, int], None] | None = None, limits: Limits | None = None
    ) -> tuple[Layout, Iterator[Block]]:
        """Return the result's layout and its blocks; reductions run first."""
        reducers = self.reducers()
        if reducers:
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
            extra = reduced_columns(reducers, layout)
        if self.measured is not None:
            time = next(v for v in self.program.variables if v.name == "time")
            extra += self.measured.columns(time.dims, self.program.evaluate(("time",))["time"])
        sizes = dict(layout.sizes)
        for column in extra:
            assert column.values is not None
            sizes.update(zip(column.dims, column.values.shape, strict=True))
        used = {dim for column in (*kept, *extra) for dim in column.dims}
        coordinates = [
            c for c in layout.coordinates if (not kept and self._needed(c, used)) or kept
        ]
        coordinates += [column for column in extra if column.dims == (column.name,)]
        extra = [column for column in extra if column.dims != (column.name,)]
        whole = Layout(
            {name: size for name, size in sizes.items() if kept or name in used},
            tuple(coordinates),
            (*kept, *(_without_values(column) for column in extra)),
            layout.attrs,
        )
        return whole, self._blocks(extra, blocks)

    @staticmethod
    def _needed(column: Column, used: set[str]) -> bool:
        return set(column.dims) <= used

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
        return reducers_of(self.program, self.sweep.reductions, self.layout)

    @property
    def masks(self) -> dict[str, int]:
        """By variable: the bits of a status with which it has no value."""
        named = (BOUND, *(variable.name for variable in self.program.variables))
        return {name: self.program.faults.masking(name) for name in named}

    def evaluated(self) -> Result:
        """Evaluate what is stored whole, for records and tables: without sources and provenance."""
        arrays = self.program.evaluate(self.stored)
        # What files say of upper bounds records do, too.
        bounded = any(
            isinstance(one, Algorithm) and one.bound for one in self.program.declarations()
        )
        layout = layout_of(self.program, self.resolved.origins, {}, brief=not bounded)
        if "time" in arrays and bounded:
            found = self.program.asking(BOUND)
            (bound, *_) = layout_of(found, self.resolved.origins, {}, brief=True).variables
            layout = replace(layout, variables=(*layout.variables, bound))
            arrays |= found.evaluate((BOUND,))
        columns = (
            replace(column, values=arrays[column.name])
            for column in layout.variables
            if column.name in arrays
        )
        return Result(replace(layout, variables=tuple(columns)), of_records(), self.masks)

    def dataset(self, progress: Callable[[int, int], None] | None = None) -> xr.Dataset:
        """Compute the result in memory."""
        from sweeps.store.netcdf import to_dataset

        self.check_size()
        self._check_fits()
        layout, blocks = self.result(progress)
        return to_dataset(layout, blocks)


def _without_values(column: Column) -> Column:
    return Column(column.name, column.dims, column.dtype, column.attrs)


def prepare(
    spec: Mapping[str, Any] | Sweep,
    *,
    text: str = "",
    command: Sequence[str] = ("sweeps",),
    bare_is_si: bool = True,
    folders: Sequence[Path] = (),
    options: Mapping[str, Any] | None = None,
    where: str = "",
) -> Job:
    """Make a sweep ready to run."""
    try:
        return _prepared(spec, text, tuple(command), bare_is_si, folders, dict(options or {}))
    except InputError as error:
        if not where:
            raise
        raise InputError([where + line for line in error.faults]) from None


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


def _prepared(
    spec: Mapping[str, Any] | Sweep,
    text: str,
    command: tuple[str, ...],
    bare_is_si: bool,
    folders: Sequence[Path],
    options: Mapping[str, Any],
) -> Job:
    if isinstance(spec, Sweep):
        sweep = spec
    else:
        sweep = read_sweep(spec, bare_is_si=bare_is_si, folders=folders)
        text = text or to_toml(with_si_units(spec) if bare_is_si else spec)
    measured = None
    if sweep.measured:
        from sweeps.validate.measured import join_measured

        sweep, measured = join_measured(sweep, folders)
    resolved = resolve(sweep, folders)
    published = not (sweep.training or sweep.overlap) and _published(resolved)
    if published and sweep.usual:
        sweep = replace(sweep, quantities=(*sweep.quantities, "expected_error", "measured_rows"))
    own = (q for r in sweep.reductions for q in r.quantities)
    wanted = dict.fromkeys((*sweep.quantities, *own))
    program = Program(
        resolved.axes,
        resolved.constants,
        resolved.labels,
        tuple(wanted),
        fields=resolved.fields,
        implied=resolved.implied,
        optional=sweep.optional,
        published=published,
        conditions=tuple(dict.fromkeys(one.where for one in sweep.reductions if one.where)),
    )
    _check_computed(sweep, program)
    if measured is not None:
        resolved = replace(resolved, origins={**measured.origins, **resolved.origins})
        (time,) = (variable.dims for variable in program.variables if variable.name == "time")
        measured.check_size({dim: program.grid.sizes[dim] for dim in time})
    return Job(sweep, resolved, program, text, command, measured, options)


def _check_computed(sweep: Sweep, program: Program) -> None:
    """Refuse reductions of what a model or a machine gives."""
    given = program.grid.columns
    faults = [
        fault("reductions.quantity", name, "is given here, not computed", "another one")
        for one in sweep.reductions
        for name in one.quantities
        if name in given
    ]
    tell_all(faults)
