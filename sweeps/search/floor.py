"""What no plan's step is shorter than, by what a GPU computes and sends of each layer alone.

A layer's time depends on the degrees within a stage and on the micro-batch, whatever the number of
GPUs, of stages and of replicas.  With one stage and one micro-batch a device computes all layers;
stages share them, none of several has less than the mean of all, and nothing takes less time than
what the fullest one computes.  So a few thousand values bound the plans of all numbers of GPUs,
before any of these is enumerated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from overhead.frozen import frozen
from sweeps.search.request import Columns

if TYPE_CHECKING:
    from sweeps.engine.grid import Array

# What a layer's time varies with, of what a split is.
WITHIN = ("tp", "cp", "ep", "etp")
# Of these the ones that splits of GPUs are made by.
SPLIT_BY = ("tp", "cp", "ep")
MICRO = "micro_batch_size"
# The time of all layers; and what holds beside it where one device has them all at once.
BUSY = "busy_time"
ALONE = {"pp": 1.0, "dp": 1.0, "virtual_pipeline_size": 1.0, "num_micro_batches": 1.0}
WHOLE = {"schedule": "one_f_one_b", "recompute": "none"}
# Times are sums in another order, so that equal ones may differ by rounding.
ROUNDING = 1e-9


@frozen()
class Floors:
    """The least GPU time of a sequence's layers, by degrees within a stage and micro-batch."""

    values: Mapping[str, NDArray[np.float64]]  # Of each degree and of micro-batches, rising
    table: NDArray[np.float64]  # The GPU time [s], along all of them; 0 where not known

    @property
    def least(self) -> float:
        """The least of all; 0 where none is known."""
        known = self.table[self.table > 0.0]
        return float(known.min(initial=np.inf)) if known.size else 0.0

    @property
    def most(self) -> float:
        """The most of all."""
        return float(self.table[self.table < np.inf].max(initial=0.0))

    def of(self, splits: Columns, micro_batches: Array) -> NDArray[np.float64]:
        """Return the least GPU time of splits with each micro-batch; 0 where it isn't known."""
        index: list[NDArray[np.int64]] = []
        known = np.ones((len(splits["dp"]), len(micro_batches)), dtype=np.bool_)
        for name, values in self.values.items():
            asked = micro_batches[None, :] if name == MICRO else splits[name][:, None]
            at = np.minimum(np.searchsorted(values, asked), len(values) - 1)
            known &= values[at] == asked
            index.append(at)
        return np.where(known, self.table[tuple(index)], 0.0)

    def within(self, gpu_time: float) -> dict[str, NDArray[np.float64]]:
        """Return the degrees with which a step may take no more GPU time."""
        near = self.table <= gpu_time
        return {
            name: values[near.any(axis=tuple(n for n in range(near.ndim) if n != at))]
            for at, (name, values) in enumerate(self.values.items())
            if name in SPLIT_BY
        }


def floors_of(columns: Columns, busy: Array) -> Floors:
    """Return the table of rows of degrees with the time of their layers."""
    names = [name for name in (*WITHIN, MICRO) if name in columns]
    values = {name: _rising(columns[name]) for name in names}
    # What isn't among the rows can't be.
    table = np.full([len(values[name]) for name in names], np.inf)
    ranks = columns["tp"] * columns["cp"]
    gpu_time = ranks * busy / columns[MICRO] * (1.0 - ROUNDING)
    index = tuple(np.searchsorted(values[name], columns[name]) for name in names)
    table[index] = np.nan_to_num(gpu_time, nan=0.0, posinf=0.0)
    return Floors(values, table)


def _rising(column: Array) -> NDArray[np.float64]:
    """Return the values of a column, each once: `np.unique` would load masked arrays."""
    values = np.sort(column)
    return values[np.append(True, values[1:] != values[:-1])]


def rows_of_layers(
    degrees: Mapping[str, Sequence[float] | Array], micro_batches: Sequence[float] | Array
) -> Columns:
    """Return each degree with each micro-batch; experts' own TP is 1, all of TP, or as given."""
    lists = [np.asarray(degrees[name], dtype=np.float64) for name in WITHIN if name in degrees]
    names = [name for name in WITHIN if name in degrees]
    grids = np.meshgrid(*lists, np.asarray(micro_batches, dtype=np.float64), indexing="ij")
    return {name: grid.reshape(-1) for name, grid in zip((*names, MICRO), grids, strict=True)}
