"""Laws of a library's forms: what they become without the library, and what makes them grow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overhead.choose import TAKEN, candidates
from overhead.collectives.algorithm import ALGORITHMS, SCHEDULE, Algorithm
from overhead.quantity import VOCABULARY
from sweeps.engine.program import Program
from sweeps.spec.catalog import load_hardware
from sweeps.spec.machine import CONSTANTS
from sweeps.spec.software import load_software
from tests.tables import keyed

# Every algorithm of a form of its own, and one of each network that is priced by its schedule.
OWN = [algorithm for algorithm in ALGORITHMS.values() if algorithm.form != SCHEDULE]
SCHEDULED = [
    ALGORITHMS[key]
    for key in (
        ("hierarchical", "all_reduce", "ring_ring"),
        ("hierarchical", "all_to_all", "two_phase"),
        ("torus", "all_reduce", "ring"),
        ("switch", "all_gather", "bruck"),
        ("ring", "all_reduce", "ring"),
        ("mesh", "broadcast", "chain"),
    )
]
EVERY = pytest.mark.parametrize(
    "algorithm", [*OWN, *SCHEDULED], ids=lambda case: ".".join(case.key)
)
few = settings(max_examples=12, deadline=None)
TIMES = tuple(name for name in CONSTANTS if VOCABULARY[name].units == "s")
SHARES = tuple(name for name in CONSTANTS if VOCABULARY[name].maximum == 1.0)
RATES = tuple(name for name in CONSTANTS if VOCABULARY[name].units == "byte s-1")
FACTORS = tuple(name for name in CONSTANTS if name not in (*TIMES, *SHARES, *RATES))
SIZES = 2.0 ** np.arange(0, 36, 3)
LINKS = {
    **keyed(
        "latency=2e-6 bandwidth=4e11 intra_latency=2e-6 intra_bandwidth=4e11 inter_latency=5e-6 "
        "inter_bandwidth=5e10 oversubscription=1.5 ranks_sharing_nic=2.0 "
        "in_network_latency_factor=1.0 has_nvls=1.0 intra_nvls=1.0 inter_inc=1.0 hops=1.0 "
        "gpus_per_host=4.0 collective_host_time=0.0"
    ),
    "pair_bandwidth_ratio": 1.0,
}


@cache
def shipped() -> Mapping[str, float]:
    profile = load_software("nccl").constants(load_hardware("dgx-h100"))
    return {name: profile[name].value for name in CONSTANTS}


def neutral() -> dict[str, float]:
    """Return constants of a library that adds nothing to links."""
    found = {**dict.fromkeys(TIMES, 0.0), **dict.fromkeys(FACTORS, 0.0)}
    found |= {**dict.fromkeys(SHARES, 1.0), **dict.fromkeys(RATES, np.inf)}
    found |= {"step_latency": 2e-6, "sendrecv_step_latency": 2e-6, "inter_node_step_latency": 5e-6}
    return found


def values(
    algorithm: Algorithm, constants: Mapping[str, float], library: str = "nccl", ranks: float = 16.0
) -> dict[str, np.ndarray]:
    """Return times and their parts over sizes of the message."""
    from sweeps.spec.axis import Axis

    given = {**LINKS, **constants, "ranks": ranks, "gpus_per_node": min(ranks, 4.0)}
    if algorithm.topology in ("torus", "mesh"):
        given |= {"mesh_nx": ranks, "mesh_ny": 1.0, "mesh_nz": 1.0}
    labels = {
        "topology": algorithm.topology,
        "collective": algorithm.collective,
        "algorithm": algorithm.name,
        "latency_per": "hop",
        "link": "intra",
        "library": library,
        "floor": "none",
        "environment": "nccl-tests",
    }
    if algorithm.topology == "hierarchical":
        labels["link"] = "auto"
    wanted = ["time", "latency_time", "bandwidth_time", "lower_bound"]
    if library != "none":
        wanted += ["transfer_part_time", "copy_part_time", "ramp_part_time", "step_part_time"]
    axis = Axis("message_bytes", {"message_bytes": SIZES})
    plan = Program([axis], given, labels, wanted)
    return {
        name: np.broadcast_to(np.asarray(value_found, dtype=np.float64).reshape(-1), SIZES.shape)
        for name, value_found in plan.evaluate().items()
        if name in wanted
    }


@EVERY
def test_a_library_that_adds_nothing_gives_the_exact_form(algorithm: Algorithm) -> None:
    priced = values(algorithm, neutral())["time"]
    exact = values(algorithm, neutral(), "none")["time"]
    if algorithm.form == "ring" and algorithm.topology == "hierarchical":
        # NCCL's tuner counts a step between nodes less, and one inside them more.
        passes = 2.0 if algorithm.collective == "all_reduce" else 1.0
        exact = exact - passes * (5e-6 - 2e-6)
    if algorithm.name == "node_pairwise":
        # Messages to other nodes are on their way together: one latency, not twelve.
        # And they go on beside those inside the node, which take less.
        exact = exact - 11.0 * 5e-6 - 3.0 / 16.0 * SIZES / 4e11
    if algorithm.form in ("nvls", "nvls_tree", "sharp"):
        # The switch's own time is a constant; and NVLS has no chunks to fill.
        far = {"nvls": 0.0, "nvls_tree": 4.0, "sharp": 2.0}[algorithm.form] * 5e-6
        share = {"nvls": 17.0 / 16.0, "nvls_tree": 1.25, "sharp": 1.25}[algorithm.form]
        inner = share * SIZES / 4e11
        outer = {"nvls": 0.0, "nvls_tree": 1.5, "sharp": 1.0}[algorithm.form] * 0.5
        exact = far + np.maximum(inner, outer * SIZES * 1.5 / 5e10)
    np.testing.assert_allclose(priced, exact, rtol=1e-12)


@EVERY
def test_one_rank_costs_nothing(algorithm: Algorithm) -> None:
    arrays = values(algorithm, shipped(), ranks=1.0)
    for name in ("time", "latency_time", "bandwidth_time"):
        np.testing.assert_array_equal(arrays[name], 0.0)


@EVERY
def test_the_parts_are_the_time(algorithm: Algorithm) -> None:
    arrays = values(algorithm, shipped())
    together = arrays["latency_time"] + arrays["bandwidth_time"]
    np.testing.assert_allclose(together, arrays["time"], rtol=1e-12)
    parts = arrays["transfer_part_time"] + arrays["copy_part_time"] + arrays["ramp_part_time"]
    np.testing.assert_allclose(parts, arrays["bandwidth_time"], rtol=1e-12)
    assert np.all(np.diff(arrays["time"]) > 0.0)
    # Bytes go no faster than links do, in as many chunks.
    cut = {"chunks": 4.0}
    ours, links = (
        values(algorithm, library | cut)["transfer_part_time"] for library in (shipped(), neutral())
    )
    assert np.all(ours >= links)


@pytest.mark.thorough_cases(every=5)
@EVERY
@few
@given(data=st.data())
def test_times_grow_with_times_and_fall_with_rates(
    algorithm: Algorithm, data: st.DataObject
) -> None:
    base = dict(shipped())
    for name in CONSTANTS:
        base[name] *= data.draw(st.floats(0.5, 1.0), label=name)
    name = data.draw(st.sampled_from(CONSTANTS))
    more = base | {name: base[name] * data.draw(st.floats(1.0, 2.0))}
    if name in SHARES:
        more[name] = min(more[name], 1.0)
    time, other_time = values(algorithm, base)["time"], values(algorithm, more)["time"]
    if name in (*SHARES, *RATES):
        time, other_time = other_time, time
    assert np.all(other_time >= time * (1.0 - 1e-12))


def test_what_a_library_takes() -> None:
    def names(topology: str, collective: str) -> set[str]:
        return {candidate.name for candidate in candidates(topology, collective, "nccl", "nccl")}

    assert names("switch", "all_reduce") == {"ring", "nvls"}
    assert names("hierarchical", "all_reduce") == {"ring_path", "tree_path", "nvls_tree"}
    assert names("hierarchical", "all_to_all") == {"node_pairwise"}
    assert {name.form for name in OWN} - set(TAKEN) == {"sharp"}
    # What it has no form for is what it has without a profile.
    bare = candidates("torus", "all_reduce", "nccl")
    assert candidates("torus", "all_reduce", "nccl", "xla") == bare
