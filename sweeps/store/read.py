"""Files to labelled datasets, and whether a file is ours, whole, and what was asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.errors import InputError, fault
from sweeps.store.attributes import labels
from sweeps.store.checksum import stored_checksum
from sweeps.store.describe import Description, Summary, describe_file
from sweeps.store.encode import FORMAT
from sweeps.store.failures import LIBRARY_ERRORS
from sweeps.store.lock import NETCDF
from sweeps.store.zarr_read import ZarrFile, is_zarr, open_zarr

if TYPE_CHECKING:
    import netCDF4
    import xarray as xr

__all__ = ["Description", "Summary", "describe", "is_complete", "open_dataset", "verify"]

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
            wrong, allowed = "does not exist", "name a netCDF file"
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
        raise InputError(fault("file", str(path), wrong, allowed))
    return file


def _check_format(dataset: Any, path: Path, *, require_ours: bool) -> None:
    name, version = FORMAT
    found = dataset.getncattr(name) if name in dataset.ncattrs() else None
    if found is None and require_ours:
        wrong = "a netCDF file that no sweep has written"
        raise InputError(fault("file", str(path), wrong, "name a file that 'sweeps' wrote"))
    if found not in {None, version}:
        wrong = f"written in format {found}"
        raise InputError(fault("file", str(path), wrong, f"this version reads format {version}"))


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
                    real,
                    engine="netcdf4",
                    decode_times=False,
                    mask_and_scale=not ours,
                    lock=NETCDF,
                )
            )
            return _restored(dataset) if ours else dataset
        except _DAMAGED as error:
            wrong = f"can't be read, it is damaged ({_reason(error)})"
            raise InputError(fault("file", str(path), wrong, "write it again")) from error


def _restored(dataset: xr.Dataset) -> xr.Dataset:
    """Give dimensions their labels back, and leave out what only concerns the file."""
    coordinates: dict[str, Any] = {}
    renamed = []
    for name, variable in dataset.coords.items():
        if variable.dtype.kind not in "OSU":
            continue
        key = str(name)
        dim = key.removesuffix("_name")
        if dim != key and dim in variable.dims and dim not in dataset.variables:
            renamed.append(key)
            key = dim
        attrs = {each: value for each, value in variable.attrs.items() if each not in _OURS}
        coordinates[key] = (variable.dims, labels(variable.values), attrs)
    restored = dataset.drop_vars(renamed).assign_coords(coordinates)
    restored.attrs.pop(FORMAT[0], None)
    for variable in restored.variables.values():
        for attribute in _OURS:
            variable.attrs.pop(attribute, None)
    restored.set_close(dataset.close)
    return restored


def is_complete(path: Path | str, fingerprint: str) -> bool:
    """Tell whether a file is there that holds just what would be computed again."""
    try:
        with _opened(Path(path), require_ours=True) as dataset:
            found = dataset.getncattr("fingerprint") if "fingerprint" in dataset.ncattrs() else None
    except InputError:
        return False
    return bool(found == fingerprint)


def verify(path: Path | str) -> tuple[str, ...]:
    """Compare every variable with its checksum."""
    with _opened(Path(path), require_ours=True) as dataset:
        return tuple(name for name, each in dataset.variables.items() if not _is_intact(each))


def _is_intact(variable: netCDF4.Variable[Any]) -> bool:
    """Whether a variable's bytes are those that its checksum was made of."""
    try:
        return "checksum" in variable.ncattrs() and variable.checksum == stored_checksum(variable)
    except _DAMAGED:
        return False


def describe(path: Path | str, *, ranges: bool = True) -> Description:
    """Describe a stored sweep without holding it in memory."""
    with _opened(Path(path), require_ours=True) as dataset:
        return describe_file(dataset, Path(path), ranges=ranges)
