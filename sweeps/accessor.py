"""``dataset.sweeps``: what can be said of a sweep's dataset.

It is there of every dataset, those that xarray opens by itself too, once `sweeps` is imported:
`sweeps.registering` imports this module.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import xarray as xr

from sweeps.store.constants import unstacked

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.pictures import Figures, Text


@xr.register_dataset_accessor("sweeps")  # type: ignore[no-untyped-call]
class Sweeps:
    """A sweep's dataset: its figures, reasons, sources, best cell; computed again; as a table."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = unstacked(dataset)
        # xarray keeps the first one's attributes, and with them what all cells are taken to have.
        for joined in [str(name) for name in dataset.dims if name in dataset.attrs]:
            warnings.warn(
                f"datasets are joined along {joined}: the first one's constants stand for all, its "
                f"memory's capacity among them; sweep {joined}=[..] instead",
                stacklevel=3,
            )

    def __str__(self) -> str:
        from sweeps.cli.files import lines_of
        from sweeps.wrapping import fitted

        return "".join(fitted(lines_of(self._dataset))).strip("\n")

    def __repr__(self) -> str:
        """Return what ``sweeps run`` says of it, and what else there is."""
        from sweeps.pictures import shortened

        ways = ".best(), .reasons(), .explain(), .to_dataframe(), .plot(), .recompute()"
        return shortened(str(self), ways)

    def plot(self, *figures: str, style: str = "screen") -> Figures:
        """Draw the figures that the sweep declares, or those that suit it.

        Parameters
        ----------
        *figures : str
            Names of some of them; all by default.
        style : {"screen", "slide", "paper"}
            What they are for.

        Returns
        -------
        Figures
            A notebook shows them; `Figures.save` writes them.
        """
        from sweeps.pictures import figures_of

        return figures_of(lambda: self._dataset, wanted=figures, style=style)

    def reasons(self, quantity: str | None = None) -> xr.DataArray:
        """Say in words why values don't exist, as `sweeps.reasons` does."""
        from sweeps.api import reasons

        return reasons(self._dataset, quantity)

    def recompute(self) -> xr.Dataset:
        """Compute the dataset again from what is in it, as `sweeps.recompute` does."""
        from sweeps.api import recompute

        return recompute(self._dataset)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a tidy table, a row a cell, as `sweeps.to_dataframe` does."""
        from sweeps.api import to_dataframe

        return to_dataframe(self._dataset)

    def best(self, quantity: str | None = None) -> xr.Dataset:
        """Return the best cell: the one that ``sweeps run`` and its figures name.

        Parameters
        ----------
        quantity : str, optional
            What is compared; the main variable by default.  Of a step's quantities plans whose
            memory is fuller than a recommended one's count only where no other fits.

        Returns
        -------
        xarray.Dataset
            The dataset at that cell, with all its variables.

        Raises
        ------
        InputError
            If there is no such variable, or none of its values exists.
        """
        from sweeps.plots.data import subject_of
        from sweeps.plots.defaults import main_variable
        from sweeps.plots.tables import best_place

        name = quantity or main_variable(self._dataset, subject_of(self._dataset))
        return self._dataset.isel(best_place(self._dataset, str(name)))

    def explain(self, quantity: str | None = None) -> Text:
        """Say what a variable is, by which formulas, from which inputs, each with its source.

        Parameters
        ----------
        quantity : str, optional
            A variable; all by default.

        Returns
        -------
        Text
            The lines.

        Raises
        ------
        InputError
            If there is no such variable.
        """
        from sweeps.pictures import Text

        return Text("\n".join(_explained(self._dataset, quantity)))


def _explained(dataset: xr.Dataset, quantity: str | None) -> Iterator[str]:
    """Yield what variables are computed by, then the inputs by where they come from."""
    from sweeps.errors import nearest, refuse
    from sweeps.origin import read, words_of
    from sweeps.store.constants import with_constants
    from sweeps.wrapping import fitted

    dataset = with_constants(dataset)
    names = [str(name) for name in dataset.data_vars if quantity in (None, name)]
    if not names:
        refuse(
            "quantity", quantity, "isn't here", nearest(str(quantity), map(str, dataset.data_vars))
        )
    for name in names:
        attrs = dataset[name].attrs
        yield f"{name}: {attrs.get('long_name', '')} [{attrs.get('units', '1')}]"
        for key in ("formula", "comment", "references"):
            if key in attrs:
                yield from (line.rstrip() for line in fitted([f"  {key:<12}{attrs[key]}"]))
    inputs: dict[str, list[str]] = {}
    for given, coordinate in dataset.coords.items():
        if origins := read(coordinate.attrs):
            inputs.setdefault(words_of(origins), []).append(str(given))
    for words, several in inputs.items():
        yield from (line.rstrip() for line in fitted([f"{', '.join(several)}", f"    {words}"]))
