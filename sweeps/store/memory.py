"""Blocks to a labelled dataset in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from sweeps.engine.layout import Block, Layout
from sweeps.store.attributes import attributes, normalised, stored_dtype, values_of
from sweeps.store.blocks import target_of, targets

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["to_dataset"]


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
    return xr.Dataset(
        {
            each.name: (each.dims, arrays[each.name], attributes(layout, each))
            for each in layout.variables
        },
        coords={
            each.name: (each.dims, values_of(each), attributes(layout, each))
            for each in layout.coordinates
        },
        attrs=normalised(layout.attrs),
    )
