"""netCDF files: blocks to one that is there whole or not at all, and labelled datasets from it."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sweeps.engine.grid import SUBJECT, Block, Layout
from sweeps.errors import InputError, fault, refuse
from sweeps.former import FORMER, warn_of
from sweeps.store.constants import (
    CHECKSUM,
    CONSTANTS,
    checksum_of,
    constants_aside,
    constants_of,
    with_constants,
    without_constants,
)
from sweeps.store.encode import (
    FORMAT,
    READ,
    RunningChecksum,
    Stored,
    attributes,
    check_layout,
    checksum,
    contiguous,
    create,
    global_attributes,
    labels,
    slabs,
    stored,
    stored_checksum,
    stored_dtype,
    target_of,
    targets,
    values_of,
)
from sweeps.store.publish import (
    LIBRARY_ERRORS,
    NETCDF,
    check_output,
    hold,
    is_zarr,
    library_calls,
    publish,
    require,
    reserve,
    sweep_strays,
    system_calls,
    temporary,
)
from sweeps.store.zarr_store import ZarrFile, open_zarr

if TYPE_CHECKING:
    import netCDF4
    import xarray as xr

# The temporary netCDF file while it is being written.


def least_size(plan: list[Stored]) -> int:
    """Return the bytes of all that is stored without a filter."""
    return sum(each.nbytes for each in plan if not each.level)


class OpenFile:
    """A netCDF file to put regions into; a context that closes it in any case."""

    def __init__(self, fresh: Path, output: Path, layout: Layout, plan: list[Stored]) -> None:
        self._fresh = fresh
        self._output = output
        self._layout = layout
        self._plan = {each.name: each for each in plan}
        self._running = {
            each.name: RunningChecksum(each.shape) for each in plan if each.values is None
        }
        self._dataset: netCDF4.Dataset
        self._variables: dict[str, netCDF4.Variable[Any]] = {}

    def __enter__(self) -> OpenFile:
        import netCDF4

        with library_calls(self._fresh, self._output):
            self._dataset = netCDF4.Dataset(self._fresh, "w", clobber=False, format="NETCDF4")
        try:
            self._prepare()
        except BaseException:
            self._close()
            raise
        return self

    def _prepare(self) -> None:
        plan = list(self._plan.values())
        # Before the library extends the file, as it would hide the reason for which it can't;
        # and after, as it first shortens the file to what it knows of.
        with system_calls(self._output):
            reserve(self._fresh, least_size(plan))
        with library_calls(self._fresh, self._output):
            create(self._dataset, self._layout, plan)
            self._dataset.sync()
            self._variables = dict(self._dataset.variables)
        with system_calls(self._output):
            reserve(self._fresh, self._fresh.stat().st_size)

    def put(self, name: str, region: tuple[slice, ...], values: NDArray[Any]) -> None:
        """Write values at a region of a variable."""
        if values.size == 0:
            return
        ready = contiguous(values, self._plan[name].dtype)
        self._running[name].add(region, ready)
        with library_calls(self._fresh, self._output):
            self._variables[name][region or ...] = ready

    def finish(self) -> dict[str, str]:
        """Set every variable's checksum and close the file."""
        checksums = {}
        with library_calls(self._fresh, self._output):
            for name, each in self._plan.items():
                if each.values is not None:
                    checksums[name] = checksum(each.values)
                else:
                    given = self._running[name].result()
                    checksums[name] = given or stored_checksum(self._variables[name])
                self._variables[name].setncattr("checksum", checksums[name])
            self._dataset.close()
        return checksums

    def _close(self) -> None:
        with NETCDF, contextlib.suppress(*LIBRARY_ERRORS):
            if self._dataset.isopen():
                self._dataset.close()

    def __exit__(self, *_: object) -> None:
        self._close()


# Blocks to a labelled dataset in memory.


def to_dataset(layout: Layout, blocks: Iterable[Block]) -> xr.Dataset:
    """Gather a dataset in memory, as `open_dataset` gives it from an exact file."""
    import xarray as xr

    known = targets(layout)
    arrays = {name: np.empty(each.shape, stored_dtype(each.column)) for name, each in known.items()}
    for block in blocks:
        region, values = target_of(block, known).place(block)
        arrays[block.name][region] = values
    for each in known.values():
        each.finish()
    dataset = xr.Dataset(
        {
            variable.name: (variable.dims, arrays[variable.name], attributes(layout, variable))
            for variable in layout.variables
        },
        coords={
            coordinate.name: (
                coordinate.dims,
                values_of(coordinate),
                attributes(layout, coordinate),
            )
            for coordinate in layout.coordinates
            if coordinate.dims
        },
        attrs=global_attributes(layout),
    )
    return _selectable(dataset)


def _selectable(dataset: xr.Dataset) -> xr.Dataset:
    """Let cells be selected by both names of the number of GPUs, where it is given once for two."""
    for name in ("ranks", "world_size"):
        variable = dataset.variables.get(name)
        if (
            variable is not None
            and SUBJECT in variable.attrs
            and variable.ndim == 1
            and name not in variable.dims
        ):
            dataset = dataset.set_xindex(name)
    return dataset


# What is in a file: its dimensions, coordinates and variables, with their ranges.

_HIDDEN = {"_FillValue", "_Encoding", "checksum", "coordinates"}


@dataclass(frozen=True, slots=True)
class Summary:
    """One coordinate or variable of a file."""

    name: str  # As it is called in a dataset
    dims: tuple[str, ...]  # Its dimensions and their sizes
    shape: tuple[int, ...]
    dtype: str  # ``float64``, ``int8``, .., or ``str``
    attrs: dict[str, Any]  # Its metadata
    is_coordinate: bool  # Whether it was given rather than computed
    # Of its numbers, infinities among them; None for text, flags, and where there is no number
    minimum: float | None = None
    maximum: float | None = None
    missing: int = 0  # How many cells are NaN
    labels: tuple[str, ...] = ()  # Text, in order
    # For each meaning of a flag, how many cells have it; 0 cells are listed too
    flags: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Description:
    """A file's contents."""

    path: Path  # The file, under the name that was given
    nbytes: int  # Its size on disk
    sizes: dict[str, int]  # The dimensions
    coordinates: tuple[Summary, ...]  # What was given, and what was computed
    variables: tuple[Summary, ...]
    attrs: dict[str, Any]  # Global attributes

    @property
    def spec(self) -> str:
        """The text of the sweep that the file was computed from; empty if it has none."""
        return str(self.attrs.get("spec", ""))


def describe_file(dataset: netCDF4.Dataset, path: Path) -> Description:
    """Describe an open file; the caller holds the netCDF lock."""
    widths = {
        variable.dimensions[-1] for variable in dataset.variables.values() if variable.dtype == "S1"
    }
    named = set(dataset.dimensions) | _named(dataset)
    for each in dataset.variables.values():
        named |= _named(each)
    summaries = [
        _summary(name, each, is_coordinate=name in named)
        for name, each in dataset.variables.items()
    ]
    attrs = {
        name: dataset.getncattr(name)
        for name in dataset.ncattrs()
        if name not in {"coordinates", FORMAT[0]}
    }
    summaries += [_constant(*each) for each in constants_of(attrs)]
    return Description(
        path=path,
        nbytes=_size(path),
        sizes={
            name: dimension.size
            for name, dimension in dataset.dimensions.items()
            if name not in widths
        },
        coordinates=tuple(each for each in summaries if each.is_coordinate),
        variables=tuple(each for each in summaries if not each.is_coordinate),
        attrs=without_constants(attrs),
    )


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size


def _named(holder: netCDF4.Dataset | netCDF4.Variable[Any]) -> set[str]:
    """Return what an attribute lists as coordinates."""
    has_names = "coordinates" in holder.ncattrs()
    return set(holder.getncattr("coordinates").split()) if has_names else set()


def _summary(name: str, variable: netCDF4.Variable[Any], *, is_coordinate: bool) -> Summary:
    variable.set_auto_maskandscale(False)
    variable.set_auto_chartostring(False)
    attrs = {
        ncattr: variable.getncattr(ncattr) for ncattr in variable.ncattrs() if ncattr not in _HIDDEN
    }
    dims, shape = variable.dimensions, variable.shape
    if variable.dtype != "S1" and np.dtype(variable.dtype).kind in "UO":
        text = tuple(np.asarray(variable[...]).reshape(-1).tolist())
        return Summary(name, dims, shape, "str", attrs, is_coordinate, labels=text)
    if variable.dtype == "S1":
        dims, shape = dims[:-1], shape[:-1]
        characters = np.ascontiguousarray(variable[...]).view(f"S{variable.shape[-1]}")
        name = name.removesuffix("_name") if name.removesuffix("_name") in dims else name
        texts = tuple(labels(characters).reshape(-1).tolist())
        return Summary(name, dims, shape, "str", attrs, is_coordinate, labels=texts)
    values: dict[str, Any] = {}
    values = {"flags": _flags(variable, attrs)} if "flag_meanings" in attrs else _range(variable)
    return Summary(name, dims, shape, str(variable.dtype), attrs, is_coordinate, **values)


def _constant(name: str, value: NDArray[Any], attrs: dict[str, object]) -> Summary:
    if value.dtype.kind == "U":
        return Summary(name, (), (), "str", attrs, is_coordinate=True, labels=(str(value),))
    number = float(value)
    known = {"missing": 1} if np.isnan(number) else {"minimum": number, "maximum": number}
    return Summary(name, (), (), str(value.dtype), attrs, is_coordinate=True, **known)


def _range(variable: netCDF4.Variable[Any]) -> dict[str, object]:
    """Return the least and the greatest number, and how many there are none."""
    minimum, maximum, missing = np.inf, -np.inf, 0
    for region in slabs(variable.shape, variable.dtype.itemsize):
        values = np.asarray(variable[region or ...])
        empty = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
        missing += empty
        if empty < values.size:
            minimum = min(minimum, float(np.fmin.reduce(values, axis=None)))
            maximum = max(maximum, float(np.fmax.reduce(values, axis=None)))
    if minimum > maximum:
        return {"missing": missing}
    return {"minimum": minimum, "maximum": maximum, "missing": missing}


def _flags(variable: netCDF4.Variable[Any], attrs: dict[str, Any]) -> dict[str, int]:
    """Return how many cells each meaning has."""
    counts: Counter[int] = Counter()
    for region in slabs(variable.shape, variable.dtype.itemsize):
        counts.update(_counted(np.asarray(variable[region or ...])))
    meanings = str(attrs["flag_meanings"]).split()
    if "flag_masks" in attrs:
        masks = [int(mask) for mask in np.atleast_1d(attrs["flag_masks"])]
        cells = [sum(n for value, n in counts.items() if value & mask) for mask in masks]
    else:
        cells = [counts[int(value)] for value in np.atleast_1d(attrs["flag_values"])]
    return dict(zip(meanings, cells, strict=False))


def _counted(values: NDArray[np.integer]) -> dict[int, int]:
    """Return how often each integer occurs."""
    if values.dtype.itemsize == 1:
        # Counted as bytes: far faster than by sorting.
        counts = np.bincount(values.reshape(-1).view(np.uint8), minlength=256)
        kept = np.flatnonzero(counts)
        keys = kept.astype(np.uint8).view(values.dtype)
        return dict(zip(keys.tolist(), counts[kept].tolist(), strict=True))
    keys, counts = np.unique(values, return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


_MAGIC = (b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05")
_DAMAGED = (OSError, RuntimeError, AttributeError, ValueError, LookupError, MemoryError)
"""What the netCDF library and those above it raise where a file has changed."""
_OURS = ("checksum", "_FillValue")


@contextlib.contextmanager
def _opened(path: Path, *, require_ours: bool) -> Iterator[Any]:
    """Open a file for reading, with the netCDF lock held; say in one line why it can't be."""
    import netCDF4

    file = _existing(path)
    with NETCDF:
        try:
            dataset = ZarrFile(file) if is_zarr(file) else netCDF4.Dataset(file)
        except InputError:
            raise
        except _DAMAGED as error:
            wrong = f"can't be read, it was cut short or damaged ({_reason(error)})"
            raise InputError(fault("file", str(path), wrong, "write it again")) from error
        try:
            _check_format(dataset, path, require_ours=require_ours)
            yield dataset
        except InputError:
            raise
        except _DAMAGED as error:
            wrong = f"can't be read, it is damaged ({_reason(error)})"
            raise InputError(fault("file", str(path), wrong, "write it again")) from error
        finally:
            with contextlib.suppress(*LIBRARY_ERRORS):
                dataset.close()


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.removeprefix("NetCDF: ")


def _existing(path: Path) -> Path:
    """Return a file's absolute path, once it is known to be a netCDF file at all."""
    file = Path(os.path.realpath(path))
    wrong, allowed = "", ""
    try:
        if is_zarr(file):
            return file
        if file.is_dir():
            wrong, allowed = "is a folder", "name a file in it"
        elif not file.is_file():
            wrong, allowed = "no such file", "name a netCDF file"
        else:
            with file.open("rb") as stream:
                start = stream.read(8)
            if not start:
                wrong, allowed = "is empty", "write it again"
            elif not start.startswith(_MAGIC):
                wrong, allowed = "is not a netCDF file", "name a netCDF file"
    except OSError as error:
        wrong, allowed = f"can't be read, {_reason(error).lower()}", "check its permissions"
    if wrong:
        refuse("file", str(path), wrong, allowed)
    return file


def _check_format(dataset: Any, path: Path, *, require_ours: bool) -> None:
    name, known = FORMAT[0], " and ".join(READ)
    version = dataset.getncattr(name) if name in dataset.ncattrs() else None
    if version is None and require_ours:
        wrong = "a netCDF file that no sweep has written"
        refuse("file", str(path), wrong, "name a file that 'sweeps' wrote")
    if version not in {None, *READ}:
        wrong = f"written in format {version}"
        refuse("file", str(path), wrong, f"this version reads formats {known}")


def open_dataset(path: Path | str, *, require_ours: bool = True) -> xr.Dataset:
    """Open a stored sweep; values are read when they are used."""
    import xarray as xr

    with NETCDF:
        with _opened(Path(path), require_ours=require_ours) as raw:
            ours = FORMAT[0] in raw.ncattrs()
        try:
            # Our own lock: xarray's would not keep a writer of ours in another thread away, and
            # it has none while it opens a file.
            real = Path(os.path.realpath(path))
            dataset = (
                open_zarr(real)
                if is_zarr(real)
                else xr.open_dataset(
                    real, engine="netcdf4", decode_times=False, mask_and_scale=not ours, lock=NETCDF
                )
            )
            if not ours:
                return dataset
            named = _with_names(with_constants(dataset), real)
            return constants_aside(_selectable(_restored(named)))
        except _DAMAGED as error:
            wrong = f"can't be read, it is damaged ({_reason(error)})"
            raise InputError(fault("file", str(path), wrong, "write it again")) from error


def _with_names(dataset: xr.Dataset, path: Path) -> xr.Dataset:
    """Give variables the names that quantities have, where a file has their former ones."""
    names = {str(name) for name in (*dataset.variables, *dataset.dims)}
    met = {name: FORMER[name] for name in names if name in FORMER}
    if not met:
        return dataset
    warn_of(met, path.name)
    # Where the best ones lie: the reduction's name, and a dimension's.
    met |= {
        f"{name}_{old}": f"{name}_{new}"
        for old, new in tuple(met.items())
        for name in names
        if f"{name}_{old}" in names
    }
    named = dataset.rename(met)
    named.set_close(dataset.close)
    return named


def _restored(dataset: xr.Dataset) -> xr.Dataset:
    """Give dimensions their labels back, and leave out what only concerns the file."""
    former = dataset.attrs.pop(FORMAT[0], None) == "1"
    coordinates: dict[str, object] = {}
    renamed = []
    for name, variable in dataset.coords.items():
        if variable.dtype.kind not in "OSUT":
            continue
        key = str(name)
        dim = key.removesuffix("_name")
        if former and dim != key and dim in variable.dims and dim not in dataset.variables:
            renamed.append(key)
            key = dim
        attrs = {each: value for each, value in variable.attrs.items() if each not in _OURS}
        coordinates[key] = (variable.dims, labels(variable.values), attrs)
    restored = dataset.drop_vars(renamed).assign_coords(coordinates)
    for variable in restored.variables.values():
        for attribute in _OURS:
            variable.attrs.pop(attribute, None)
    restored.set_close(dataset.close)
    return restored


def is_ours(path: Path | str) -> bool:
    """Tell whether there is a whole file that a command of ours has written."""
    try:
        with _opened(Path(path), require_ours=True):
            return True
    except InputError:
        return False


def is_complete(path: Path | str, fingerprint: str) -> bool:
    """Tell whether a file is there that holds just what would be computed again."""
    try:
        with _opened(Path(path), require_ours=True) as dataset:
            stated = (
                dataset.getncattr("fingerprint") if "fingerprint" in dataset.ncattrs() else None
            )
    except InputError:
        return False
    return bool(stated == fingerprint)


def verify(path: Path | str) -> tuple[str, ...]:
    """Compare every variable with its checksum."""
    with _opened(Path(path), require_ours=True) as dataset:
        wrong = [name for name, variable in dataset.variables.items() if not _is_intact(variable)]
        attrs = {name: dataset.getncattr(name) for name in dataset.ncattrs()}
        if CHECKSUM in attrs and attrs[CHECKSUM] != checksum_of(attrs):
            wrong.append(CONSTANTS)
        return tuple(wrong)


def _is_intact(variable: netCDF4.Variable[Any]) -> bool:
    """Whether a variable's bytes are those that its checksum was made of."""
    try:
        return "checksum" in variable.ncattrs() and variable.checksum == stored_checksum(variable)
    except _DAMAGED:
        return False


def describe(path: Path | str) -> Description:
    """Describe a stored sweep without holding it in memory."""
    with _opened(Path(path), require_ours=True) as dataset:
        return describe_file(dataset, Path(path))


# Writing.

_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Written:
    """A file that has been written."""

    path: Path  # The output under the name that was given
    nbytes: int  # Its size
    checksums: dict[str, str]  # By the variable's name in the file


def write(
    path: Path | str,
    layout: Layout,
    blocks: Iterable[Block],
    *,
    overwrite: bool = False,
    compress: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write a dataset while it is computed, with bounded memory.

    What stands under `path` is at any moment what stood there before or the complete new file,
    also when the process is killed, when the power fails, and when two runs have one output.
    """
    plan = planned(path, layout, compress=compress, overwrite=overwrite)
    with output_lock(Path(path), overwrite=overwrite) as target:
        return write_under_lock(Path(path), target, layout, blocks, plan, overwrite, progress)


def planned(
    path: Path | str, layout: Layout, *, compress: bool, overwrite: bool = False
) -> list[Stored]:
    """Check that a layout can be a file, and that there is room for it."""
    check_layout(layout)
    plan = stored(layout, compress=compress)
    check_output(Path(path), overwrite=overwrite)
    require(least_size(plan) + _HEADER_BYTES, Path(path))
    return plan


@contextlib.contextmanager
def output_lock(output: Path, *, overwrite: bool = False, folder: bool = False) -> Iterator[Path]:
    """Hold an output's lock, with the strays of killed runs swept away."""
    target = check_output(output, overwrite=overwrite, folder=folder)
    with contextlib.ExitStack() as stack:
        with system_calls(output):
            if stack.enter_context(hold(target)):
                sweep_strays(target)
        yield target


def write_under_lock(
    output: Path,
    target: Path,
    layout: Layout,
    blocks: Iterable[Block],
    plan: list[Stored],
    overwrite: bool,
    progress: Callable[[int, int], None] | None,
) -> Written:
    """Write a dataset whose output's lock is held (see `write`)."""
    fresh = temporary(target)
    try:
        with OpenFile(fresh, output, layout, plan) as file:
            checksums = _fill(file, layout, blocks, progress)
        with system_calls(output):
            nbytes = fresh.stat().st_size
            publish(fresh, target, overwrite=overwrite)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
    return Written(output, nbytes, checksums)


def _fill(
    file: OpenFile,
    layout: Layout,
    blocks: Iterable[Block],
    progress: Callable[[int, int], None] | None,
) -> dict[str, str]:
    """Write the blocks, check that they cover every variable, and close the file."""
    known = targets(layout)
    total = sum(each.coverage.total for each in known.values())
    done = 0
    for block in blocks:
        region, values = target_of(block, known).place(block)
        file.put(block.name, region, values)
        done += values.size
        if progress is not None:
            progress(done, total)
    for each in known.values():
        each.finish()
    return file.finish()
