"""The temporary netCDF file while it is being written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from sweeps.engine.layout import Layout
from sweeps.store.checksum import RunningChecksum, checksum, stored_checksum
from sweeps.store.encode import Stored, create
from sweeps.store.failures import LIBRARY_ERRORS, library_calls, system_calls
from sweeps.store.lock import NETCDF
from sweeps.store.space import reserve
from sweeps.store.storage import Storage

if TYPE_CHECKING:
    import netCDF4

__all__ = ["OpenFile", "least_size"]


def least_size(plan: list[Stored]) -> int:
    """Return the bytes of all that is stored without a filter."""
    return sum(each.nbytes for each in plan if not each.level)


class OpenFile:
    """A netCDF file to put regions into; a context that closes it in any case."""

    def __init__(
        self, fresh: Path, output: Path, layout: Layout, plan: list[Stored], storage: Storage
    ) -> None:
        self._fresh = fresh
        self._output = output
        self._layout = layout
        self._plan = {each.name: each for each in plan}
        self._storage = storage
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
        ready = self._storage.numbers(values, name, self._plan[name].dtype)
        self._running[name].add(region, ready)
        with library_calls(self._fresh, self._output):
            self._variables[name][region or ...] = ready

    def finish(self) -> dict[str, str]:
        """Set every variable's checksum and close the file."""
        found = {}
        with library_calls(self._fresh, self._output):
            for name, each in self._plan.items():
                if each.values is not None:
                    found[name] = checksum(each.values)
                else:
                    given = self._running[name].result()
                    found[name] = given or stored_checksum(self._variables[name])
                self._variables[name].setncattr("checksum", found[name])
            self._dataset.close()
        return found

    def _close(self) -> None:
        with NETCDF, contextlib.suppress(*LIBRARY_ERRORS):
            if self._dataset.isopen():
                self._dataset.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()
