"""A stored dataset computed again from what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from overhead.quantity import VOCABULARY
from sweeps.engine.describe import layout_of
from sweeps.engine.plan import Plan
from sweeps.errors import InputError, fault
from sweeps.spec.axis import OF_TRAINING, Axis
from sweeps.spec.usual_quantities import declare_for

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["recompute"]


def recompute(dataset: xr.Dataset) -> xr.Dataset:
    """Compute a stored dataset again from what is in it: coordinates, constants and labels.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `sweeps.open` gives it.

    Returns
    -------
    xarray.Dataset
        The same variables; equal bit for bit where the same code computes them on the same
        machine (and nothing was rounded when it was stored).

    Raises
    ------
    InputError
        If the dataset isn't of collectives or training steps.
    """
    from sweeps.store.memory import to_dataset

    columns: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    constants: dict[str, float] = {}
    labels: dict[str, str] = {}
    for name, coordinate in dataset.coords.items():
        values = coordinate.to_numpy()
        if not coordinate.dims:
            if values.dtype.kind in "UO":
                labels[str(name)] = str(values)
            else:
                constants[str(name)] = float(values)
        elif len(coordinate.dims) > 1:
            fields[str(name)] = (tuple(map(str, coordinate.dims)), values)
        elif "(a row of the table)" not in str(coordinate.attrs.get("long_name", "")):
            columns.setdefault(str(coordinate.dims[0]), {})[str(name)] = values
    axes = [Axis(dim, found) for dim, found in columns.items() if dim in dataset.sizes]
    if "topology" not in {*labels, *(name for axis in axes for name in axis.columns)}:
        allowed = "files of sweeps of collectives or training steps"
        raise InputError(
            fault("dataset", dataset.attrs.get("title", ""), "has no network", allowed)
        )
    if "collective" not in {*labels, *(name for axis in axes for name in axis.columns)}:
        declare_for(OF_TRAINING)
    # What was measured, or gathered from other variables, isn't computed from coordinates.
    known = (*VOCABULARY, "chosen_algorithm")
    wanted = tuple(str(name) for name in dataset.data_vars if name in known)
    pairs = str(dataset.attrs.get("implied_labels", "")).split("; ")
    implied = dict(pair.split(" = ", 1) for pair in pairs if pair)
    plan = Plan(axes, constants, labels, wanted, fields=fields, implied=implied)
    layout = layout_of(plan, {}, {})
    return to_dataset(layout, plan.blocks())
