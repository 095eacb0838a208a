"""What a figure takes from a dataset: the part it shows, and the words for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overhead.labels import LABELS, SWITCHES
from sweeps import display
from sweeps.engine.grid import SUBJECT
from sweeps.origin import ASSUMED, GIVEN, read
from sweeps.plots.names import (
    PLAN_NAMES,
    WAYS,
    cell_names,
    coordinates_of,
    is_without,
    kinds_of,
    word_of,
    worded,
)
from sweeps.plots.style import IN_BITS, as_read, parse, scale_of
from sweeps.store.constants import with_constants

if TYPE_CHECKING:
    import xarray as xr


CARDS = ("inter_bandwidth", "pod_bandwidth")


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of `count` places, evenly spread, the first and the last among them."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.round(np.linspace(0, count - 1, most)).astype(np.int64))


# What a title names even if it is a constant number, or a label that nobody chose.
_TITLED = display.rows("collective", "plan", screen="title")

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """The dimensions and variables that figures may name."""

    # Of each dimension its coordinate's values, or its size where it has none. A constant counts as
    # a dimension of one value
    dims: Mapping[str, Values | int]
    # Of each variable its dimensions, where they are known
    variables: Mapping[str, tuple[str, ...] | None]
    # Of each coordinate that varies along other dimensions these; None where not known
    columns: Mapping[str, tuple[str, ...]] | None = None

    def size(self, dim: str) -> int:
        """Return how many entries a dimension has; 1 for one that isn't there."""
        values = self.dims.get(dim, 1)
        return values if isinstance(values, int) else len(values)

    def varying(self, variable: str) -> tuple[str, ...]:
        """Return a variable's or coordinate's dimensions that have more than one entry."""
        dims = self.variables.get(variable) or (self.columns or {}).get(variable)
        if dims is None:
            dims = (variable,) if variable in self.dims else ()
        return tuple(dim for dim in dims if self.size(dim) > 1)

    def labels(self, dim: str) -> bool:
        """Return whether a dimension holds names rather than numbers."""
        values = self.dims.get(dim, ())
        return isinstance(values, int) or is_label(values)


def is_label(values: Sequence[Any] | NDArray[Any]) -> bool:
    """Return whether values are names."""
    return len(values) > 0 and isinstance(values[0], str | bytes)


def subject_of(dataset: xr.Dataset) -> Subject:
    """Return what figures may name in a dataset."""
    dataset = with_constants(dataset)
    dims: dict[str, Values | int] = {}
    rows = _tables(dataset)
    for dim, size in dataset.sizes.items():
        known = dim in dataset.coords and dim not in rows
        dims[str(dim)] = _listed(dataset.variables[dim].values) if known else int(size)
    for name, coordinate in coordinates_of(dataset):
        if coordinate.ndim == 0:
            dims[name] = _listed(coordinate.values.reshape(1))
    variables = {
        str(name): tuple(str(dim) for dim in dataset.variables[name].dims)
        for name in dataset.data_vars
    }
    columns = {
        name: tuple(str(dim) for dim in coordinate.dims)
        for name, coordinate in coordinates_of(dataset)
        if coordinate.ndim and name not in dims
    }
    return Subject(dims, variables, columns)


def entries(dataset: xr.Dataset, dim: str) -> Values | int:
    """Return a dimension's values, or its size where it has none."""
    if dim in dataset.coords:
        return _listed(np.atleast_1d(dataset.variables[dim].values))
    return int(dataset.sizes[dim])


def _tables(dataset: xr.Dataset) -> list[str]:
    """Return the dimensions of tables' rows: what just numbers them isn't a value of anything."""
    return [
        str(dim)
        for dim, size in dataset.sizes.items()
        if dim in dataset.coords
        and dataset.variables[dim].dtype.kind in "iu"
        and np.array_equal(dataset.variables[dim].values, np.arange(size))
        and any(
            coordinate.dims == (dim,) for name, coordinate in coordinates_of(dataset) if name != dim
        )
    ]


def _listed(values: NDArray[Any]) -> Values:
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return tuple(values.tolist())


def find(wanted: object, values: Values | int) -> int | None:
    """Find an entry of a dimension."""
    if isinstance(values, int):
        values = tuple(range(values))
    if is_label(values):
        return values.index(wanted) if wanted in values else None
    if isinstance(wanted, bool) or not isinstance(wanted, Real | str):
        return None
    value = parse(wanted) if isinstance(wanted, str) else float(wanted)
    if value is None:
        return None
    near = np.nonzero(np.isclose(np.asarray(values, dtype=np.float64), value, rtol=1e-9, atol=0))
    return int(near[0][0]) if near[0].size else None


def shown(value: object, units: str = "1") -> str:
    """Return a coordinate's value as text."""
    if isinstance(value, str):
        return value
    return scale_of(units).given(float(value))  # type: ignore[arg-type]


# Where times of trees in two halves are exact, however long a message: of so many ranks.
_EXACT = "(log2(ranks) == ceil(log2(ranks)))"


@dataclass(frozen=True, slots=True)
class View:
    """The part of a dataset that a figure shows: selected, without dimensions of one entry."""

    dataset: xr.Dataset  # That part
    # The dimensions that were fixed, in the order in which the title names them
    chosen: tuple[str, ...]

    def has(self, dim: str) -> bool:
        """Return whether a dimension varies here."""
        return dim in self.dataset.sizes

    def values(self, name: str, dims: Sequence[str]) -> NDArray[Any]:
        """Return a variable with one axis for each of `dims` (length 1 where it has none)."""
        variable = self.dataset.variables[name]
        present = [dim for dim in dims if dim in variable.dims]
        data = variable.transpose(*present).values
        key = tuple(slice(None) if dim in present else None for dim in dims)
        return np.asarray(data[key])

    def numbers(self, name: str, dims: Sequence[str]) -> NDArray[np.float64]:
        """Return a variable as floating-point numbers, with one axis for each of `dims`."""
        return self.values(name, dims).astype(np.float64)

    def coordinate(self, dim: str) -> NDArray[np.float64]:
        """Return a numeric dimension's values; places from 0 where it has none."""
        if dim not in self.dataset.coords:
            return np.arange(self.dataset.sizes[dim], dtype=np.float64)
        return np.asarray(self.dataset.variables[dim].values, dtype=np.float64)

    def is_label(self, dim: str) -> bool:
        """Return whether a dimension holds names rather than numbers."""
        return dim not in self.dataset.coords or is_label(
            _listed(self.dataset.variables[dim].values)
        )

    def attrs(self, name: str) -> Mapping[str, Any]:
        """Return a variable's or coordinate's metadata; nothing where there is none."""
        return self.dataset.variables[name].attrs if name in self.dataset.variables else {}

    def units(self, name: str) -> str:
        """Return a variable's or coordinate's units."""
        return str(self.attrs(name).get("units", "1"))

    def labels(self, dim: str, *, bare: bool = False) -> list[str]:
        """Return a text for every entry of a dimension; bare ones don't say of what.

        Of a table without names of its own, what its columns say that isn't the same everywhere.
        """
        if dim in self.dataset.coords:
            values = _listed(self.dataset.variables[dim].values)
            if is_label(values):
                none = display.phrase(dim, "none") or "none"
                return [none if value == "none" else str(value) for value in values]
            texts = [shown(value, self.units(dim)) for value in values]
            return texts if bare else [said(dim, text) for text in texts]
        columns = [
            (name, _listed(column.values))
            for name, column in coordinates_of(self.dataset)
            if column.dims == (dim,)
        ]
        if any(name in PLAN_NAMES for name, _ in columns):
            return cell_names(self.dataset, [dim], [np.arange(self.dataset.sizes[dim])])
        columns = [(name, values) for name, values in columns if len(set(values)) > 1]
        named = [(name, values) for name, values in columns if is_label(values)]
        shorter = [(name, values) for name, values in named if not name.endswith("_id")]
        for used in (shorter, named or columns):  # An identifier only where nothing else tells
            texts = [
                ", ".join(
                    filter(None, (shown(values[i], self.units(name)) for name, values in used))
                )
                for i in range(self.dataset.sizes[dim])
            ]
            if len(set(texts)) == len(texts):
                return texts
        return [f"{text} #{i}".strip() for i, text in enumerate(texts)]

    @property
    def fixed(self) -> list[str]:
        """What is the same in all cells, and what a reader may ask of it: not what nobody chose."""
        scalars = {
            name for name, coordinate in coordinates_of(self.dataset) if coordinate.ndim == 0
        }
        given = [
            name
            for name in scalars
            if GIVEN in kinds_of(self.dataset.variables[name])
            and not (name in LABELS and LABELS[name].follows)
        ]
        variables = self.dataset.variables
        usual = [
            name
            for name in PLAN_NAMES
            if name in given and is_without(name, variables[name].values.item())
        ]
        # A way of splitting what isn't split.
        usual += [way for way, of in WAYS.items() if of in scalars and variables[of].values == 1.0]
        asked = dict.fromkeys([*self.chosen, "hardware", "precision", *sorted(given)])
        return display.phrased(name for name in asked if name in scalars and name not in usual)

    def phrase(self, name: str) -> str:
        """Return a held value as people say it: ``512 GPUs``, ``tp 8``, ``latency 2 µs``."""
        value = _listed(self.dataset.variables[name].values.reshape(1))[0]
        if name in PLAN_NAMES:
            return worded(name, value, self.units(name))
        return said(name, shown(value, self.units(name)))

    def bounds_note(self) -> list[str]:
        """Say which algorithms' times are upper bounds somewhere, where a figure has times."""
        bounds = (self.attrs(name).get("upper_bound") for name in ("time", "step_time"))
        bound = str(next(filter(None, bounds), ""))
        if _EXACT in bound and self._is_of_powers():
            return []
        return [f"Upper bounds in places ({bound.partition(':')[0]}): see the file."] * bool(bound)

    def _is_of_powers(self) -> bool:
        """Return whether GPUs are by powers of two, all of them and a node's: so is any group."""
        variables = self.dataset.variables
        known = [variables[name] for name in ("world_size", "gpus_per_node") if name in variables]
        more = [variables[name] for name in ("ranks", "nodes_per_pod") if name in variables]
        values = [np.asarray(variable.values, np.float64).ravel() for variable in (*known, *more)]
        return len(known) == 2 and all(
            bool(np.all((value >= 1.0) & (np.exp2(np.round(np.log2(value))) == value)))
            for value in values
        )

    def is_assumed(self) -> bool:
        """Return whether something here is an assumption."""
        return any(self._is_assumed(coordinate) for _, coordinate in coordinates_of(self.dataset))

    def _is_assumed(self, coordinate: xr.Variable) -> bool:
        """Whether a coordinate is an assumption: of several machines', the one that is shown."""
        origins = read(coordinate.attrs)
        machine = self.dataset.variables.get("hardware")
        if machine is not None and not machine.ndim:
            origins = (
                tuple(origin for origin in origins if origin.owner == str(machine.values))
                or origins
            )
        return any(figure_origin.kind == ASSUMED for figure_origin in origins)


def said(name: str, text: str) -> str:
    """Return a value as people say it, with the name that it needs to be understood."""
    return display.phrase(name, text) or f"{word_of(name)} {text}"


# Names of one number, where an operation's and a training step's GPUs are the same.
_GPUS = ("ranks", "world_size")


def of_subject(dataset: xr.Dataset, names: Iterable[str]) -> xr.Dataset:
    """Return what a dataset has of an operation, or of a training step, whichever names are of."""
    dataset = with_constants(dataset)
    known = dataset.variables
    owners = {known[name].attrs.get(SUBJECT) for name in names if name in dataset.data_vars}
    if len(owners) != 1 or None in owners:
        return dataset
    strange = [
        name
        for name, variable in known.items()
        if name not in dataset.sizes
        and SUBJECT in variable.attrs
        and (variable.attrs[SUBJECT] not in owners or name in _GPUS)
    ]
    return dataset.drop_vars(strange)


def view_of(dataset: xr.Dataset, at: Mapping[str, object]) -> View:
    """Select the part that a figure shows."""
    dataset = with_constants(dataset)
    dims = subject_of(dataset).dims
    dataset = dataset.drop_vars(_tables(dataset))
    indices: dict[str, int | list[int]] = {}
    for dim, wanted in at.items():
        if dim in dataset.sizes:
            several = [wanted] if not isinstance(wanted, list) else wanted
            positions = [
                position for value in several if (position := find(value, dims[dim])) is not None
            ]
            if not is_label(dataset.variables[dim].values if dim in dataset.coords else ()):
                positions.sort()
            indices[dim] = positions if len(positions) > 1 else positions[0]
    part = _as_read(_without_constant_columns(dataset.isel(indices)))
    single = [str(dim) for dim, size in part.sizes.items() if size == 1]
    part = part.isel(dict.fromkeys(single, 0))
    named = [dim for dim in at if dim not in indices or not isinstance(indices[dim], list)]
    # A table has no names of its own: what its columns say of the one row is what is fixed.
    rows = [dim for dim in dict.fromkeys([*named, *single]) if dim not in dataset.coords]
    columns = [
        name
        for name, coordinate in coordinates_of(dataset)
        if coordinate.ndim == 1 and coordinate.dims[0] in rows and coordinate.dtype.kind in "OUS"
    ]
    scalars = [
        name
        for name, coordinate in coordinates_of(part)
        if coordinate.ndim == 0
        and (coordinate.dtype.kind in "OUS" or name in _TITLED)
        and not _is_minor(part, name)
        and kinds_of(part.variables[name]) != {ASSUMED}
    ]
    return View(part, tuple(dict.fromkeys([*named, *single, *columns, *scalars])))


def _as_read(part: xr.Dataset) -> xr.Dataset:
    """Give what network cards send, and bytes that aren't a message's, the units people use."""
    columns = {}
    for name, variable_read in ((str(name), variable) for name, variable in part.variables.items()):
        units = str(variable_read.attrs.get("units", ""))
        if name in CARDS and name in part.coords and units == "byte s-1":
            columns[name] = variable_read.copy(deep=False)
            columns[name].attrs["units"] = IN_BITS
        elif name not in part.sizes and units != (read_as := as_read(name, units)):
            columns[name] = variable_read.copy(deep=False)
            columns[name].attrs["units"] = read_as
    variables, coordinates = (
        {name: column for name, column in columns.items() if (name in part.coords) is given}
        for given in (False, True)
    )
    return part.assign(variables).assign_coords(coordinates)


def _without_constant_columns(part: xr.Dataset) -> xr.Dataset:
    """Make numbers of what a table's plans have in common, which the figure then says."""
    same = {
        name: ((), column.values.reshape(-1)[0], column.attrs)
        for name, column in coordinates_of(part)
        if name in (*PLAN_NAMES, *_TITLED)
        and column.ndim
        and name not in part.sizes
        and (column.values == column.values.reshape(-1)[0]).all()
    }
    return part.assign_coords(same) if same else part


def _is_minor(dataset: xr.Dataset, name: str) -> bool:
    """Return whether a label needs no place in a title: it follows, or is the framework's habit."""
    if name not in SWITCHES or name in _TITLED:
        return False
    told = read(dataset.variables[name].attrs)
    habit = any(origin.kind == ASSUMED or origin.owner for origin in told)
    return LABELS[name].follows or ("framework" in dataset.coords and habit)
