"""A sweep from its statement to a labelled dataset, in memory or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.engine.describe import layout_of, references
from sweeps.engine.layout import Block, Column, Layout
from sweeps.engine.plan import Plan
from sweeps.errors import InputError, fault
from sweeps.spec.dump import to_toml, with_si_units
from sweeps.spec.resolve import Resolved, resolve
from sweeps.spec.sweep import Sweep, read_sweep
from sweeps.spec.units import format_quantity, parse_quantity
from sweeps.validate.sizes import SIZE_CLASSES

if TYPE_CHECKING:
    import xarray as xr

    from sweeps.validate.measured import MeasuredTable

__all__ = ["Job", "prepare"]

# Most cells that a sweep may have without a reduction: 10^11 float64 are 0.8 TB.
MOST_CELLS = 10**11
# Reductions whose result has no dimension of its own.
PLAIN_RESULTS = ("min", "max", "mean")


@dataclass(frozen=True)
class Job:
    """A sweep ready to run.

    Attributes
    ----------
    sweep : Sweep
        What the user stated.
    resolved : Resolved
        With what follows from it.
    plan : Plan
        The graph on its grid.
    text : str
        The spec's text, for the file.
    command : sequence of str
        The command line, for the file's history.
    measured : MeasuredTable or None
        Measurements beside which the times are laid.
    options : mapping
        What else decides the file's contents, such as the type of its numbers.
    """

    sweep: Sweep
    resolved: Resolved
    plan: Plan
    text: str
    command: Sequence[str]
    measured: MeasuredTable | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def attrs(self) -> Mapping[str, str]:
        """Global attributes: made when a file or a dataset is, for they read all of the code."""
        from sweeps.store.metadata import code_digest, fingerprint, provenance

        machines = {
            machine.name: (machine.figures, machine.in_network, machine.scale_out_in_network)
            for machine in self.resolved.machines
        }
        inputs = {**self.options, "machines": repr(machines)}
        if self.resolved.models:
            shapes = {model.name: model.shapes for model in self.resolved.models}
            inputs["models"] = repr(shapes)
        if self.measured is not None:
            inputs["measured"] = self.measured.digest
        found = provenance(
            title=self.sweep.title or self._title,
            summary=self.sweep.summary,
            spec_text=self.text,
            command=self.command,
            fingerprint=fingerprint(self.text, code_digest(), inputs),
            references="; ".join(references(self.plan.declarations())),
        )
        implied = "; ".join(f"{name} = {value}" for name, value in self.plan.implied.items())
        return found | ({"implied_labels": implied} if implied else {})

    @property
    def _title(self) -> str:
        return "Sweep of training steps" if self.plan.training else "Sweep of collective operations"

    @property
    def layout(self) -> Layout:
        """The layout of what is stored as it is, without reductions."""
        return layout_of(self.plan, self.resolved.origins, self.attrs)

    @property
    def cells(self) -> int:
        """Cells to compute, all variables together."""
        shapes = (self.plan.shape(variable) for variable in self.plan.variables)
        return sum(int(np.prod([int(n) for n in shape], dtype=object)) for shape in shapes)

    @property
    def stored(self) -> tuple[str, ...]:
        """The variables that are stored whole."""
        kept = self.sweep.quantities
        return tuple(
            variable.name
            for variable in self.plan.variables
            if variable.name in kept or (variable.name == "status" and kept)
        )

    def check_size(self) -> None:
        """Refuse a sweep that no disk holds.

        Raises
        ------
        InputError
            Saying how large it is and what to do.
        """
        sizes = {v.name: self.plan.shape(v) for v in self.plan.variables if v.name in self.stored}
        cells = sum(int(np.prod([int(n) for n in s], dtype=object)) for s in sizes.values())
        if cells > MOST_CELLS:
            told = " x ".join(f"{name} {size}" for name, size in self.plan.grid.sizes.items())
            raise InputError(
                fault(
                    "axes",
                    told,
                    f"{cells:.3g} cells, {8 * cells / 1e12:.3g} TB",
                    f"at most {MOST_CELLS:.0e} cells can be stored; shorten an axis, or ask for a "
                    "reduction ([[reductions]] with quantities = [])",
                )
            )

    def check_memory(self, limit: str) -> None:
        """Refuse what needs more memory than the limit: reductions' results are held whole.

        Raises
        ------
        InputError
            If the limit can't be read or isn't enough.
        """
        most = parse_quantity(limit, "byte", field="--max-memory", bare_is_si=True)
        needed = 0
        for reduction in self.sweep.reductions:
            variable = next(v for v in self.plan.variables if v.name == reduction.quantity)
            kept = [n for d, n in self.plan.grid.sizes.items() if d in variable.dims]
            over = [self.plan.grid.sizes[d] for d in reduction.over if d in variable.dims]
            cells = int(np.prod(kept, dtype=object)) // int(np.prod(over, dtype=object))
            needed += 8 * cells * (2 + len(reduction.over)) * max(reduction.count, 1)
        if needed > most:
            told = f"the reductions' results need {format_quantity(needed, 'byte')}"
            raise InputError(fault("--max-memory", limit, told, "raise it, or reduce further"))

    def _check_fits(self) -> None:
        """Refuse a dataset that is larger than the machine's memory."""
        try:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return  # not told here
        if self.nbytes > memory:
            told = " x ".join(f"{name} {size}" for name, size in self.plan.grid.sizes.items())
            wrong = f"{format_quantity(self.nbytes, 'byte')} are more than the memory holds"
            allowed = "run it into a file ('sweeps run'), shorten an axis, or ask for a reduction"
            raise InputError(fault("axes", told, wrong, allowed))

    def estimate(self) -> Iterator[str]:
        """Yield what the sweep would compute and store."""
        for name, size in self.plan.grid.sizes.items():
            yield f"axis {name}: {size:,}"
        yield f"grid: {self.plan.grid.cells:,} cells"
        for variable in self.plan.variables:
            if variable.name in self.stored:
                dims = ", ".join(variable.dims) or "(none)"
                cells = int(np.prod([int(n) for n in self.plan.shape(variable)], dtype=object))
                yield f"{variable.name} over {dims}: {cells:,} cells"
        nbytes = format_quantity(self.nbytes, "byte")
        yield f"to compute: {self.cells:,} cells; file: about {nbytes}"

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored whole, uncompressed."""
        shapes = [self.plan.shape(v) for v in self.plan.variables if v.name in self.stored]
        return sum(8 * int(np.prod([int(n) for n in shape], dtype=object)) for shape in shapes)

    def shape_of_result(self) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
        """Return the result's dimensions with their values, and its variables with their dims."""
        values: dict[str, Any] = {}
        for axis in self.plan.grid.axes:
            values[axis.name] = axis.columns.get(axis.name, len(axis))
        values |= {name: (value,) for name, value in self.plan.grid.constants.items()}
        values |= {name: (label,) for name, label in self.plan.labels.items()}
        variables = {v.name: v.dims for v in self.plan.variables if v.name in self.stored}
        own = {v.name: v.dims for v in self.plan.variables}
        for reduction in self.sweep.reductions:
            if reduction.operation in PLAIN_RESULTS:
                dims = own[reduction.quantity]
                variables[reduction.name] = tuple(d for d in dims if d not in reduction.over)
        if self.measured is not None:
            variables |= self.measured.dims_of(variables["time"])
            values["size_class"] = np.array(list(SIZE_CLASSES), dtype=np.str_)
        return values, variables

    def result(self, progress: Callable[[int, int], None] | None = None) -> tuple[Layout, Any]:
        """Return the result's layout and its blocks; reductions run first.

        Parameters
        ----------
        progress : callable, optional
            Called with cells done and cells in all while reductions run.

        Returns
        -------
        Layout, iterator of Block
            What is to be stored.
        """
        layout = self.layout
        kept = tuple(column for column in layout.variables if column.name in self.stored)
        extra = self._reduce(progress) if self.sweep.reductions else []
        if self.measured is not None:
            time = next(v for v in self.plan.variables if v.name == "time")
            extra += self.measured.columns(time.dims, self.plan.evaluate(("time",))["time"])
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
        return whole, self._blocks(extra)

    @staticmethod
    def _needed(column: Column, used: set[str]) -> bool:
        return set(column.dims) <= used

    def _blocks(self, extra: Sequence[Column]) -> Iterator[Block]:
        for column in extra:
            assert column.values is not None
            yield Block(column.name, tuple(slice(0, n) for n in column.values.shape), column.values)
        yield from self.plan.blocks(self.stored)

    def _reduce(self, progress: Callable[[int, int], None] | None) -> list[Column]:
        from sweeps.engine.reduce import Reducer, reducer

        variables = {variable.name: variable for variable in self.plan.variables}
        described = {column.name: column for column in self.layout.variables}
        labels = {column.name: column for column in self.layout.coordinates}
        columns: list[Column] = []
        by_quantity: dict[str, list[Reducer]] = {}
        reducers = []
        for reduction in self.sweep.reductions:
            variable = variables[reduction.quantity]
            made = reducer(reduction, variable.dims, self.plan.grid.sizes, labels)
            reducers.append((reduction, made))
            by_quantity.setdefault(reduction.quantity, []).append(made)
        total = sum(int(np.prod(self.plan.shape(variables[q]))) for q in by_quantity)
        done = 0
        for block in self.plan.blocks(tuple(by_quantity)):
            for made in by_quantity[block.name]:
                made.update(block.region, block.values)
            done += block.values.size
            if progress is not None:
                progress(done, total)
        for reduction, made in reducers:
            attrs = dict(described[reduction.quantity].attrs)
            attrs.pop("ancillary_variables", None)
            columns += made.columns(attrs)
        return columns

    def dataset(self, progress: Callable[[int, int], None] | None = None) -> xr.Dataset:
        """Compute the result in memory.

        Returns
        -------
        xarray.Dataset
            Labelled; each variable with just the dimensions that it depends on.
        """
        from sweeps.store.memory import to_dataset

        self.check_size()
        self._check_fits()
        layout, blocks = self.result(progress)
        return to_dataset(layout, blocks)


def _without_values(column: Column) -> Column:
    return Column(column.name, column.dims, column.dtype, column.attrs)


def prepare(
    stated: Mapping[str, Any] | Sweep,
    *,
    text: str = "",
    command: Sequence[str] = ("sweeps",),
    bare_is_si: bool = True,
    folders: Sequence[Path] = (),
    options: Mapping[str, Any] | None = None,
    where: str = "",
) -> Job:
    """Make a sweep ready to run.

    Parameters
    ----------
    stated : mapping or Sweep
        As a spec file has it, or checked already.
    text : str
        The spec's own text, for the file.
    command : sequence of str
        The command line, for the file's history.
    bare_is_si : bool
        Whether numbers without a unit are SI.
    folders : sequence of Path
        The user's own folders of machines.
    options : mapping, optional
        What else decides the file's contents: part of its fingerprint.
    where : str
        What to put before each fault, such as the spec file's name.

    Returns
    -------
    Job
        Ready to run.

    Raises
    ------
    InputError
        With every fault in it.
    """
    try:
        return _prepared(stated, text, tuple(command), bare_is_si, folders, dict(options or {}))
    except InputError as error:
        if not where:
            raise
        raise InputError([where + line for line in error.faults]) from None


def _prepared(
    stated: Mapping[str, Any] | Sweep,
    text: str,
    command: tuple[str, ...],
    bare_is_si: bool,
    folders: Sequence[Path],
    options: Mapping[str, Any],
) -> Job:
    if isinstance(stated, Sweep):
        sweep = stated
    else:
        sweep = read_sweep(stated, bare_is_si=bare_is_si, folders=folders)
        text = text or to_toml(with_si_units(stated) if bare_is_si else stated)
    measured = None
    if sweep.measured:
        from sweeps.validate.measured import join_measured

        sweep, measured = join_measured(sweep, folders)
    resolved = resolve(sweep, folders)
    wanted = dict.fromkeys((*sweep.quantities, *(r.quantity for r in sweep.reductions)))
    plan = Plan(
        resolved.axes,
        resolved.constants,
        resolved.labels,
        tuple(wanted),
        fields=resolved.fields,
        implied=resolved.implied,
        optional=sweep.optional,
    )
    if measured is not None:
        resolved = replace(resolved, origins={**measured.origins, **resolved.origins})
        (time,) = (variable.dims for variable in plan.variables if variable.name == "time")
        measured.check_size({dim: plan.grid.sizes[dim] for dim in time})
    return Job(sweep, resolved, plan, text, command, measured, options)
