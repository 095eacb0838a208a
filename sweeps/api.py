"""The interface for notebooks: a sweep in, a labelled dataset out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.engine.describe import layout_of
from sweeps.engine.evaluate import limits_of
from sweeps.engine.grid import (
    OPERATION,
    OPERATION_STATUS,
    STATUS,
    STEP,
    SUBJECT,
    Block,
    Layout,
    is_row_number,
    status_of,
)
from sweeps.engine.joint import OF_OPERATION, joined
from sweeps.engine.program import Program
from sweeps.errors import nearest, refuse
from sweeps.idle import UNUSED, unused
from sweeps.job import Job
from sweeps.job import prepare as job_of
from sweeps.origin import GIVEN
from sweeps.origin import read as read_origin
from sweeps.prepared import Prepared
from sweeps.result import Result, of_dataset
from sweeps.spec.axis import Axis
from sweeps.spec.catalog import find_sweep
from sweeps.spec.keywords import spec_of
from sweeps.spec.sweep import load_sweep
from sweeps.store.constants import unstacked, with_constants
from sweeps.store.netcdf import open_dataset, to_dataset

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from sweeps.launch.setting import Reading
    from sweeps.options import Step

# A stored dataset computed again from what is in it.


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
    dataset = with_constants(unstacked(dataset))
    subjects = {str(variable.attrs.get(SUBJECT, "")) for variable in dataset.data_vars.values()}
    subjects = subjects - {""} or {""}
    parts = [_again(dataset, subject) for subject in sorted(subjects)]
    layout = parts[0][0]
    if subjects == {OPERATION, STEP}:
        sizes = {str(dim): size for dim, size in dataset.sizes.items()}
        layout = joined([layout for layout, _ in parts], sizes, {})
    whole = to_dataset(layout, chain.from_iterable(blocks for _, blocks in parts))
    return _shaped(whole, dataset)


def _shaped(again: xr.Dataset, dataset: xr.Dataset) -> xr.Dataset:
    """Return variables along the dimensions that they had, in that order.

    An axis of which one value was selected is no axis where it is computed by itself.
    """
    for name, variable in dataset.data_vars.items():
        if name in again.data_vars and again[name].dims != variable.dims:
            again[name] = again[name].broadcast_like(variable).transpose(*variable.dims)
    return again


def _again(dataset: xr.Dataset, subject: str) -> tuple[Layout, Iterator[Block]]:
    """Compute a stored dataset again, or what is an operation's of it, or a step's."""
    status_name = OPERATION_STATUS if subject == OPERATION else STATUS
    columns: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    constants: dict[str, float] = {}
    labels: dict[str, str] = {}
    for name, coordinate in _coordinates(dataset, subject).items():
        text = coordinate.dtype.kind in "UO"
        if not (name in VOCABULARY or text or is_row_number(coordinate.attrs)):
            refuse("dataset", name, "is no quantity", "drop it, or select one entry")
        values = coordinate.to_numpy()
        if not coordinate.dims:
            if values.dtype.kind in "UO":
                labels[name] = str(values)
            else:
                constants[name] = float(values)
        elif len(coordinate.dims) > 1:
            fields[name] = (tuple(map(str, coordinate.dims)), values)
        elif not is_row_number(coordinate.attrs):
            columns.setdefault(str(coordinate.dims[0]), {})[name] = values
    axes = [Axis(dim, column) for dim, column in columns.items() if dim in dataset.sizes]
    if "topology" not in {*labels, *(name for axis in axes for name in axis.columns)}:
        allowed = "files of sweeps of collectives or training steps"
        refuse("dataset", dataset.attrs.get("title", ""), "has no network", allowed)
    if 0 in dataset.sizes.values():
        refuse("dataset", dataset.attrs.get("title", ""), "has no cells", "one at least")
    # What was measured, or gathered from other variables, isn't computed from coordinates.
    wanted = [
        str(name)
        for name, variable in dataset.data_vars.items()
        if (name in VOCABULARY or name == "chosen_algorithm")
        and variable.attrs.get(SUBJECT, "") == subject
    ]
    pairs = str(dataset.attrs.get("implied_labels", "")).split("; ")
    implied = {} if subject == OPERATION else dict(pair.split(" = ", 1) for pair in pairs if pair)
    program = Program(
        axes,
        constants,
        labels,
        wanted,
        fields=fields,
        implied=implied,
        published="time_band_low" in wanted and bool(dataset["error_band_samples"].any()),
        status_name=status_name,
    )
    return layout_of(program, {}, {}), program.blocks()


def _coordinates(dataset: xr.Dataset, subject: str) -> dict[str, xr.DataArray]:
    """Return a dataset's coordinates, or an operation's, or a step's, each by its own name."""
    coordinates = {
        str(name): coord
        for name, coord in dataset.coords.items()
        if not subject or coord.attrs.get(SUBJECT, subject) == subject
    }
    if subject != OPERATION:
        return coordinates
    # Some quantities' own names begin so.
    return {
        name if name in VOCABULARY else name.removeprefix(OF_OPERATION): coordinate
        for name, coordinate in coordinates.items()
    }


def run(
    spec: str | Path | Mapping[str, object], *, hardware_folders: Sequence[str | Path] = ()
) -> xr.Dataset:
    """Run a sweep in memory.

    Parameters
    ----------
    spec : str, Path or mapping
        A spec file's path, the name of one that is shipped, or what a spec file would state.
    hardware_folders : sequence of path
        Folders of own machines.

    Returns
    -------
    xarray.Dataset
        Labelled; each variable with just the dimensions that it depends on, with units.

    Raises
    ------
    InputError
        With every fault of the spec, a line each.
    """
    folders = [Path(folder) for folder in hardware_folders]
    if isinstance(spec, Mapping):
        job = job_of(spec, command=["sweeps.run"], folders=folders)
        _warn(job)
        return job.dataset()
    path = find_sweep(spec)
    read, text = load_sweep(path, folders=folders)
    where = f"{path.name}: "
    job = job_of(read, text=text, command=["sweeps.run"], folders=folders, where=where)
    _warn(job)
    return job.dataset()


def _warn(job: Job) -> None:
    """Tell the caller of a function here what was given and changes nothing."""
    if idle := unused(job):
        warnings.warn(f"{UNUSED}: {', '.join(idle)}", stacklevel=3)


def sweep(
    quantities: Sequence[str] | str | None = None,
    *,
    array: str = "numpy",
    hardware_folders: Sequence[str | Path] = (),
    **axes: Unpack[Step],
) -> xr.Dataset:
    """Evaluate quantities over the product of axes.

    Parameters
    ----------
    quantities : sequence of str, optional
        What is wanted, such as ``["time", "energy"]``; the usual ones by default.
    array : {"numpy", "jax", "torch", "cupy"}
        Whose arrays compute: on a GPU where the library has one.  The dataset holds numpy's, and
        the same numbers to 1e-12.
    hardware_folders : sequence of path
        Folders of own machines.
    **axes
        Values by quantity or label: one value, several, range text, or a mapping of columns that
        go together.  Numbers are SI.

    Returns
    -------
    xarray.Dataset
        Labelled, as `run` gives it.

    Raises
    ------
    InputError
        With every fault, a line each.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.sweep("time", topology=["ring", "torus"], ranks=[8, 64], message_bytes=1e9)
    >>> found.time.sel(topology="torus", ranks=64).dims
    ()
    """
    table = spec_of(axes)
    if quantities is not None:
        names = quantities.split(",") if isinstance(quantities, str) else list(quantities)
        table["quantities"] = names
    folders = [Path(folder) for folder in hardware_folders]
    job = job_of(table, command=["sweeps.sweep"], folders=folders)
    _warn(job)
    job.program.limits = limits_of(array)
    return job.dataset()


def prepare(
    quantities: Sequence[str] | str | None = None,
    *,
    hardware_folders: Sequence[str | Path] = (),
    **given: Unpack[Step],
) -> Prepared:
    """Prepare a question that is asked again and again with other numbers, as an optimiser does.

    Parameters
    ----------
    quantities : sequence of str, optional
        What is wanted, such as ``["step_time", "peak_memory"]``; the usual ones by default.
    hardware_folders : sequence of path
        Folders of own machines.
    **given
        One value by quantity or label: what stays as it is, all labels among it.  Numbers are SI.

    Returns
    -------
    Prepared
        A function of the quantities that are left open: numbers, or arrays that broadcast.  It
        gives the same bits as `sweep` does.

    Raises
    ------
    InputError
        With every fault, a line each; also when the function is called.

    Examples
    --------
    >>> import sweeps
    >>> model = sweeps.prepare(["step_time", "peak_memory"], model="llama3-70b",
    ...                        hardware="dgx-h100", gpus=512, global_batch_size=1024)
    >>> found = model(tp=8, pp=4, micro_batch=[1, 2])
    >>> found.step_time.shape, found.status.tolist()
    ((2,), [0, 0])
    >>> model(tp=8, pp=4, micro_batch=3).reasons
    'batch not divisible'
    """
    names = quantities.split(",") if isinstance(quantities, str) else quantities
    folders = [Path(folder) for folder in hardware_folders]
    return Prepared(names, given, folders)


def sensitivity(
    quantity: str | None = None,
    *,
    hardware_folders: Sequence[str | Path] = (),
    **constants: Unpack[Step],
) -> xr.Dataset:
    """Say what each given and each assumed constant moves an answer by.

    Parameters
    ----------
    quantity : str, optional
        The answer, such as ``"peak_memory"``; the time, or the step time, by default.
    hardware_folders : sequence of path
        Folders of own machines.
    **constants
        One value by quantity or label, as `sweep` takes it.  Numbers are SI.

    Returns
    -------
    xarray.Dataset
        Along ``constant``, the one that moves most first: ``lower_change`` and ``upper_change``,
        shares of the answer, with the constant at x0.9 and at x1.1 and all others as they are; the
        answers there, and where each value comes from.  What has a limit stays within it:
        ``lower_value`` and ``upper_value``.  Of factors of one product that are nowhere alone one
        is named.  Sizes, formats of numbers, choices and counts aren't varied.

    Raises
    ------
    InputError
        With every fault, a line each; also where there are several cells, or no answer.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.sensitivity(topology="ring", ranks=8, message_bytes=1e9, latency=0.0,
    ...                            bandwidth=50e9)
    >>> round(float(found.lower_change.sel(constant="bandwidth")), 4)
    0.1111
    """
    from sweeps.error_bar import sensitivity_of

    folders = [Path(folder) for folder in hardware_folders]
    job = job_of(spec_of(constants), command=["sweeps.sensitivity"], folders=folders)
    asked = quantity or ("step_time" if job.program.training else "time")
    analysis = sensitivity_of(job.of(asked), asked, folders)
    return analysis.result({}, command=["sweeps.sensitivity"]).dataset()


KEEP = "keep them: xr.set_options(keep_attrs=True)"


def reasons(dataset: xr.Dataset, quantity: str | None = None) -> xr.DataArray:
    """Say in words why values of a sweep don't exist.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `sweep`, `run` or `open` gives it.
    quantity : str, optional
        Whose values, where a sweep is of collectives and of training steps: these have a status
        each.  By default those of ``status``, the steps'.

    Returns
    -------
    xarray.DataArray
        Of the dimensions of the status: each cell's reasons, such as ``does not fit``, joined by
        semicolons; empty where its values exist, ``left out`` where xarray's `where` has removed
        them.

    Raises
    ------
    InputError
        If the dataset has no status, or doesn't have the quantity.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.sweep(["time"], topology="switch", algorithm="halving", ranks=[8, 12],
    ...                      message_bytes=1e6, software="none")
    >>> sweeps.reasons(found).values.tolist()
    ['', 'ranks not power of two']
    """
    if quantity is not None and quantity not in dataset.data_vars:
        known = [*map(str, dataset.data_vars)]
        refuse("quantity", quantity, "isn't here", nearest(quantity, known))
    name = STATUS if quantity is None else status_of(dataset[quantity].attrs)
    if name not in dataset.variables:
        title = dataset.attrs.get("title", "")
        refuse("dataset", title, "has no status", "a sweep's dataset")
    status = dataset[name]
    if "flag_meanings" not in status.attrs:
        refuse(name, "..", "has lost its attributes, so that its codes mean nothing", KEEP)
    masks = np.atleast_1d(status.attrs.get("flag_masks", ())).tolist()
    words = [word.replace("_", " ") for word in str(status.attrs["flag_meanings"]).split()]
    codes, inverse = np.unique(status.to_numpy(), return_inverse=True)
    texts = [
        "left out"  # By xarray's `where`, or where it put datasets together
        if np.isnan(code)
        else "; ".join(word for mask, word in zip(masks, words, strict=True) if int(code) & mask)
        for code in codes
    ]
    texts_array = status.copy(data=np.array(texts, dtype=object)[inverse.reshape(status.shape)])
    texts_array.attrs = {"long_name": str(status.attrs.get("long_name", ""))}
    return texts_array.rename("reasons")


def open(path: str | Path) -> xr.Dataset:
    """Open a stored sweep.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    xarray.Dataset
        With its labels: ``ds.sel(topology="torus", ranks=64)`` works.

    Raises
    ------
    InputError
        If it isn't a whole file of ours.
    """
    return open_dataset(path)


def to_dataframe(dataset: xr.Dataset) -> pd.DataFrame:
    """Return a sweep as a tidy table: a row a cell, a column a quantity, words for codes.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `sweep`, `run` or `open` gives it, or a part of it.

    Returns
    -------
    pandas.DataFrame
        What was given, then what tells cells apart, then the values: the columns of ``--csv``,
        whose names end in units (``latency_s``).  ``status`` says why values are NaN.  Of columns
        that are numbers ``attrs["units"]`` has the units, ``attrs["long_name"]`` the meanings of
        all.  Other constants stay in the dataset.

    Examples
    --------
    >>> import sweeps
    >>> found = sweeps.sweep(["time"], topology="switch", algorithm="halving", ranks=[8, 12],
    ...                      message_bytes=1e6, software="none")
    >>> sweeps.to_dataframe(found)[["ranks", "status"]].values.tolist()
    [[8.0, 'ok'], [12.0, 'ranks_not_power_of_two']]
    """
    dataset = with_constants(unstacked(dataset))
    given = [
        str(name)
        for name, coord in dataset.coords.items()
        if not coord.dims
        and GIVEN in {origin.kind for origin in read_origin(coord.attrs)}
        and not (name in LABELS and LABELS[str(name)].follows)
    ]
    return frame_of(of_dataset(dataset, given))


def frame_of(result: Result) -> pd.DataFrame:
    """Return a result's records as a table, with what its columns are and their units."""
    import pandas as pd

    table = pd.DataFrame(result.records(), columns=result.header())
    fields = [field for field in result.fields() if field.record in table.columns]
    table.attrs["units"] = {column.record: column.units for column in fields if column.units}
    table.attrs["long_name"] = {column.record: column.words for column in fields}
    return table


# A training framework's launch file.


def read(path: str | Path, *beside: str | Path) -> Reading:
    """Read a launch file, or several of one run: what they give is what `sweep` takes.

    Parameters
    ----------
    path : path
        A shell script, TOML, JSON, YAML or Python file of a training framework; of one with
        several Python functions ``FILE.py:FUNCTION``.  Nothing in it is run.
    *beside : path
        Further files of the same run, such as Accelerate's and DeepSpeed's configurations and the
        model's config.json beside training arguments.

    Returns
    -------
    Reading
        Quantities and labels (``given``), where each comes from (``origins``), and what became of
        every setting.

    Raises
    ------
    InputError
        With every fault of the files, a line each.

    Examples
    --------
    >>> import sweeps
    >>> given = sweeps.read("train.sh").given  # doctest: +SKIP
    >>> sweeps.sweep("step_time", hardware="dgx-h100", **given)  # doctest: +SKIP
    """
    from sweeps.launch.read import read_launches
    from sweeps.launch.together import together

    return together(read_launches([str(name) for name in (path, *beside)]))
