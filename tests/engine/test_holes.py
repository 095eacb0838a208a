"""Cells that can't be are missing, with a reason; nothing else is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import xarray as xr

import sweeps
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS
from sweeps.engine.validity import collective_faults
from sweeps.spec.axis import DEFAULT_QUANTITIES

RATIOS = ("algbw", "busbw", "lower_bound_ratio")


def reasons(dataset: xr.Dataset, **at: object) -> set[str]:
    """Return why something is missing at a cell, by the file's own flags."""
    status = dataset["status"]
    where = {name: value for name, value in at.items() if name in status.dims}
    bits = int(status.sel(where).item())
    masks = np.atleast_1d(status.attrs["flag_masks"])
    meanings = status.attrs["flag_meanings"].split()
    assert len(masks) == len(meanings)
    return {word for word, mask in zip(meanings, masks, strict=True) if bits & mask}


def test_ranks_that_do_not_fill_their_nodes() -> None:
    dataset = sweeps.sweep(
        topology="hierarchical", ranks=[2, 6, 8, 12], gpus_per_node=[4, 8], message_bytes=[1e6, 1e9]
    )
    full = {(2, 4), (2, 8), (6, 8), (8, 4), (8, 8), (12, 4)}
    for ranks, node in itertools.product((2, 6, 8, 12), (4, 8)):
        at = {"ranks": ranks, "gpus_per_node": node}
        time = dataset["time"].sel(at)
        if (ranks, node) in full:
            assert np.isfinite(time).all()
            assert reasons(dataset, **at) == set()
        else:
            assert np.isnan(time).all()
            assert reasons(dataset, **at) == {"ranks_not_multiple_of_gpus_per_node"}
    # A rank's share doesn't vary along the node's size, so it is missing where no node fits.
    assert dataset["lower_bound"].notnull().sum() > 0


def test_nodes_that_do_not_fill_their_pods() -> None:
    axes = {"ranks": [16, 32, 48], "gpus_per_node": 8, "message_bytes": 1e6}
    dataset = sweeps.sweep("time", topology="hierarchical", nodes_per_pod=[2, 4], **axes)
    for ranks, pod in itertools.product((16, 32, 48), (2, 4)):
        full = ranks <= 8 * pod or ranks % (8 * pod) == 0
        at = {"ranks": ranks, "nodes_per_pod": pod}
        assert np.isfinite(dataset["time"].sel(at).item()) == full
        why = set() if full else {"nodes_not_multiple_of_nodes_per_pod"}
        assert reasons(dataset, **at) == why


def test_sizes_that_are_not_the_ranks() -> None:
    axes = {"mesh_nx": [2, 4], "mesh_ny": [4, 8], "message_bytes": 1e6}
    dataset = sweeps.sweep(
        ["time", "serialization_time"], topology="torus", ranks=[8, 16, 20], **axes
    )
    for ranks, nx, ny in itertools.product((8, 16, 20), (2, 4), (4, 8)):
        at = {"ranks": ranks, "mesh_nx": nx, "mesh_ny": ny}
        full = nx * ny == ranks
        assert np.isfinite(dataset["time"].sel(at).item()) == full
        assert reasons(dataset, **at) == (
            set() if full else {"mesh_sizes_do_not_multiply_to_ranks"}
        )
    # The time on the wire has no sizes; no torus here has 20 ranks.
    assert dataset["serialization_time"].dims == ("ranks",)
    assert np.isfinite(dataset["serialization_time"]).to_numpy().tolist() == [True, True, False]


def test_algorithms_that_are_not_defined() -> None:
    names = ["ring", "doubling", "ring_ring", "inc", "nvls"]
    dataset = sweeps.sweep(
        DEFAULT_QUANTITIES, topology="switch", algorithm=names, ranks=[6, 8, 16], message_bytes=1e6
    )
    why = {
        (name, ranks): reasons(dataset, algorithm=name, ranks=ranks)
        for name in names
        for ranks in (6, 8, 16)
    }
    assert {key for key, value in why.items() if not value} == {
        *(("ring", n) for n in (6, 8, 16)),
        ("doubling", 8),
        ("doubling", 16),
        # A DGX H100's NVSwitch reduces; the network beyond the node doesn't.
        ("nvls", 6),
        ("nvls", 8),
    }
    assert why["doubling", 6] == {"ranks_not_power_of_two"}
    assert why["ring_ring", 8] == {"algorithm_not_defined_on_topology"}
    assert why["inc", 8] == {"no_reduction_in_the_network"}
    assert why["nvls", 16] == {"no_nvls_in_the_network"}
    for (name, ranks), value in why.items():
        at = {"algorithm": name, "ranks": ranks}
        for quantity in ("time", "energy", "busbw", "steps", "lower_bound_ratio"):
            exists = np.isfinite(dataset[quantity].sel(at).item())
            assert exists == (not value), (quantity, at)
        chosen = dataset["chosen_algorithm"].sel(
            {"algorithm": name} if dataset["chosen_algorithm"].ndim else {}
        )
        assert np.all(chosen.to_numpy() > 0) or value


@pytest.mark.parametrize("order", [1, -1])
def test_what_algorithms_share_is_not_missing_where_one_of_them_is(order: int) -> None:
    """Recursive doubling needs a power of two; the bound of six ranks is there all the same."""
    dataset = sweeps.sweep(
        ["bus_factor", "lower_bound", "time"],
        topology="switch",
        algorithm=["doubling", "ring"][::order],
        ranks=[6, 8],
        message_bytes=1e9,
    )
    assert dataset["bus_factor"].dims == ("ranks",)
    assert np.isfinite(dataset["bus_factor"]).all()
    assert np.isfinite(dataset["lower_bound"]).all()
    assert np.isnan(dataset["time"].sel(algorithm="doubling", ranks=6).item())
    # Where none can be, it is missing.
    alone = sweeps.sweep(
        ["bus_factor"], topology="switch", algorithm="doubling", ranks=[6, 8], message_bytes=1e9
    )
    assert np.isnan(alone["bus_factor"]).to_numpy().tolist() == [True, False]


@pytest.mark.parametrize("sizes", [[3, 4], [4, 3]])
def test_a_hole_along_one_axis_hides_nothing_that_does_not_vary_along_it(sizes: list[int]) -> None:
    dataset = sweeps.sweep(
        ["bus_factor", "chosen_algorithm", "time"],
        topology="torus",
        ranks=16,
        mesh_nx=sizes,
        mesh_ny=4,
        message_bytes=1e6,
    )
    assert dataset["bus_factor"].item() == 1.875
    assert dataset["chosen_algorithm"].item() > 0
    assert np.isnan(dataset["time"]).sum() == 1


@pytest.mark.thorough
def test_one_rank_takes_no_time_and_has_no_bandwidth() -> None:
    for topology in NETWORKS:
        there = sorted({key[1] for key in ALGORITHMS if key[0] == topology})
        dataset = sweeps.sweep(
            topology=topology, ranks=[1, 2], message_bytes=[1e6], collective=there
        )
        one, two = dataset.sel(ranks=1), dataset.sel(ranks=2)
        for name in DEFAULT_QUANTITIES:
            if name in RATIOS:
                assert np.isnan(one[name]).all(), (topology, name)
                assert np.isfinite(two[name]).all(), (topology, name)
            elif name != "chosen_algorithm":
                assert (one[name] == 0).all(), (topology, name)
        assert reasons(
            dataset.isel(collective=0) if "collective" in dataset["status"].dims else dataset,
            ranks=1,
        ) == {"one_rank_has_no_bandwidth"}
        assert (two["status"] == 0).all()


def test_one_rank_by_the_sizes_of_its_mesh() -> None:
    dataset = sweeps.sweep(topology="torus", mesh_nx=[1, 2], mesh_ny=[1], message_bytes=1e6)
    one = dataset.isel(mesh_nx=0, mesh_ny=0)
    assert one["time"].item() == 0
    assert np.isnan(one["algbw"].item())
    assert reasons(dataset, mesh_nx=1, mesh_ny=1) == {"one_rank_has_no_bandwidth"}


def test_without_bandwidths_one_rank_is_no_hole() -> None:
    dataset = sweeps.sweep(["time", "steps"], topology="ring", ranks=[1, 2], message_bytes=1e6)
    assert dataset["status"].dims == ()
    assert dataset["status"].item() == 0


def test_ratios_to_no_time_at_all() -> None:
    dataset = sweeps.sweep(
        topology="ring",
        ranks=8,
        latency=[0, 1e-6],
        message_bytes=[0, 1e6],
        bandwidth=[1e9, np.inf],
        energy_per_bit=0.0,
    )
    nothing = {"latency": 0, "message_bytes": 0, "bandwidth": 1e9}
    assert dataset["time"].sel(nothing).item() == 0
    assert np.isnan(dataset["algbw"].sel(latency=0, message_bytes=0)).all()
    assert reasons(dataset, **nothing) == {"nothing_takes_time"}
    free = {"latency": 0, "message_bytes": 1e6, "bandwidth": np.inf}
    assert dataset["time"].sel(free).item() == 0
    assert np.isinf(dataset["algbw"].sel(free).item())
    assert np.isnan(dataset["lower_bound_ratio"].sel(free).item())
    assert reasons(dataset, **free) == {"nothing_takes_time"}
    settings = {"latency": 1e-6, "message_bytes": 0, "bandwidth": 1e9}
    assert dataset["algbw"].sel(settings).item() == 0
    assert reasons(dataset, **settings) == set()


def test_an_energy_that_the_machine_does_not_tell() -> None:
    axes = {"topology": "ring", "ranks": [8], "message_bytes": 1e6}
    for hardware in (["dgx-h100", "strategy-calculator"], "strategy-calculator"):
        dataset = sweeps.sweep(["time", "energy"], hardware=hardware, **axes)
        assert np.isfinite(dataset["time"]).all()
        energy = dataset["energy"].to_numpy().reshape(-1)
        assert np.isnan(energy[-1])
        at = {"hardware": "strategy-calculator", "ranks": 8}
        assert reasons(dataset, **at) == {"figure_of_the_machine_not_known"}
        if isinstance(hardware, list):
            assert np.isfinite(energy[0])
            assert reasons(dataset, hardware="dgx-h100", ranks=8) == set()
    # Without an energy asked for, nothing is missing.
    assert sweeps.sweep("time", hardware="strategy-calculator", **axes)["status"].item() == 0
    given = sweeps.sweep(["energy"], hardware="strategy-calculator", energy_per_bit=1e-12, **axes)
    assert given["energy"].item() == pytest.approx(14e6 * 8e-12)


def test_chunks_of_algorithms_that_have_none() -> None:
    dataset = sweeps.sweep(
        ["chunks", "time"],
        topology="ring",
        algorithm=["ring", "tree_pipe", "auto"],
        ranks=[3, 64],
        message_bytes=[1e3, 1e9],
    )
    chunks = dataset["chunks"]
    assert np.isnan(chunks.sel(algorithm="ring")).all()
    assert reasons(dataset, algorithm="ring", ranks=3, message_bytes=1e3) == {
        "algorithm_without_chunks"
    }
    piped = chunks.sel(algorithm="tree_pipe")
    assert (piped >= 1).all()
    assert (piped == np.floor(piped)).all()
    # The choice has the chunks of the algorithm that it takes.
    times, best = dataset["time"], chunks.sel(algorithm="auto")
    takes = (times.sel(algorithm="auto") == times.sel(algorithm="tree_pipe")).to_numpy()
    np.testing.assert_array_equal(best.to_numpy()[takes], piped.to_numpy()[takes])
    # Giving these chunks gives the same time.
    for ranks in (3, 64):
        count = piped.sel(ranks=ranks, message_bytes=1e9).item()
        fixed = sweeps.sweep(
            "time",
            topology="ring",
            algorithm="tree_pipe",
            ranks=ranks,
            message_bytes=1e9,
            chunks=count,
        )
        assert fixed["time"].item() == times.sel(
            algorithm="tree_pipe", ranks=ranks, message_bytes=1e9
        )


def test_every_reason_has_its_own_bit_and_a_text() -> None:
    found = sweeps.sweep("time", topology="ring", ranks=8, message_bytes=1e6)["status"].attrs
    masks = np.atleast_1d(found["flag_masks"]).tolist()
    assert sorted(masks) == [1 << index for index in range(len(masks))]
    assert set(found["flag_meanings"].split()) == set(collective_faults().texts)
    texts = collective_faults().texts
    assert all(found["comment"].count(f"{name}: {text}") == 1 for name, text in texts.items())


@pytest.mark.parametrize("order", [1, -1])
def test_reasons_are_the_same_beside_a_choice(order: int) -> None:
    """What a choice leaves out for itself is no reason of its cells, nor of other algorithms'."""
    names = ["auto", "doubling", "halving", "nvls"][::order]
    dataset = sweeps.sweep(
        "time", topology="switch", algorithm=names, ranks=[6, 16], message_bytes=1e6
    )
    why = {name: reasons(dataset, algorithm=name, ranks=6) for name in names}
    power = {"ranks_not_power_of_two"}
    assert why == {"auto": set(), "doubling": power, "halving": power, "nvls": set()}
    assert reasons(dataset, algorithm="nvls", ranks=16) == {"no_nvls_in_the_network"}
