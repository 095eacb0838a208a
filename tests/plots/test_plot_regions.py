"""The best entry of each cell, ties and holes, against a loop over cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sweeps.plots.best import _compared
from sweeps.plots.placing import label_place
from sweeps.plots.regions import HOLE, edges, regions_of, runs
from sweeps.plots.tables import tabulate
from sweeps.store.netcdf import open_dataset

values = arrays(
    np.float64, (4, 3, 5), elements=st.sampled_from([1.0, 1.0 + 1e-12, 1.5, 2.0, 7.0, np.nan])
)


@given(values, st.booleans())
def test_regions_equal_a_loop_over_cells(cube: np.ndarray, more: bool) -> None:
    regions = regions_of(cube, more=more)
    for position in np.ndindex(cube.shape[1:]):
        cell = cube[(slice(None), *position)]
        usable = sorted(cell[np.isfinite(cell)], reverse=more)
        if not usable:
            assert regions.which[position] == HOLE
            assert np.isnan(regions.margin[position])
            continue
        best = usable[0]
        entries = tuple(k for k, one in enumerate(cell) if abs(one - best) < 1e-6)
        assert regions.sets[regions.which[position]] == entries
        if len(usable) > 1:
            ratio = best / usable[1] if more else usable[1] / best
            assert regions.margin[position] == pytest.approx(ratio)


def test_the_largest_region_comes_first() -> None:
    cube = np.array([[1.0, 1, 1, 2], [2.0, 2, 2, 1]])
    assert regions_of(cube).sets == ((0,), (1,))


def test_many_entries_may_be_best_together() -> None:
    cube = np.ones((70, 2))
    cube[:, 1] = np.arange(70.0)[::-1]
    regions = regions_of(cube)
    assert {regions.sets[k] for k in regions.which} == {tuple(range(70)), (69,)}


def test_cells_reach_halfway_to_their_neighbours() -> None:
    np.testing.assert_allclose(edges(np.array([1.0, 4.0, 16.0]), "log"), [0.5, 2, 8, 32])
    np.testing.assert_allclose(edges(np.array([1.0, 2.0, 4.0]), "linear"), [0.5, 1.5, 3, 5])


@given(arrays(np.bool_, (4, 7)))
def test_runs_cover_a_mask_exactly(mask: np.ndarray) -> None:
    covered = np.zeros_like(mask)
    for row, first, last in runs(mask):
        assert not covered[row, first:last].any()
        covered[row, first:last] = True
    np.testing.assert_array_equal(covered, mask)


def test_a_name_stands_inside_its_region_or_nowhere() -> None:
    mask = np.zeros((40, 100), dtype=bool)
    mask[10:30, 50:90] = True
    x, y = label_place(mask, (0.2, 0.1)) or (0.0, 0.0)
    assert 0.6 <= x <= 0.8
    assert 0.3 <= y <= 0.7
    assert label_place(mask, (0.5, 0.1)) is None
    assert label_place(mask, (2.0, 0.1)) is None


def test_a_map_is_a_table_of_the_best() -> None:
    gallery = Path(__file__).parents[2] / "outputs" / "gallery"
    with open_dataset(gallery / "all-reduce-algorithms.nc") as stored:
        figure = dict(
            kind="best", value="chosen_algorithm", panels="topology", at={"algorithm": "auto"}
        )
        _, names, (heads, *rows), _ = tabulate(stored, figure)
        chosen = stored.chosen_algorithm
        words = dict(zip(chosen.flag_values, chosen.flag_meanings.split(), strict=True))
        of = chosen.sel(algorithm="auto", message_bytes=[1024, 8 * 2**30])
        assert (names, heads[:2], heads[-1]) == (2, ["topology", "ranks"], "8 GiB")
        assert len(rows) == 4 * stored.sizes["topology"]
        for row in rows:
            ends = of.sel(topology=row[0], ranks=int(row[1])).values
            assert [row[2], row[-1]] == [words[end] for end in ends]


def test_regions_of_several_with_the_same_first_two_look_different() -> None:
    regions = _compared([[0, 1], [0, 1, 2], [2]], ["ring", "torus", "mesh", "tree"])
    looks = [(region.colour, region.stripes, region.hatch) for region in regions]
    assert len({*looks}) == len(looks)
