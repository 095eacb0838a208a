"""Verdicts: published curves are healthy, what is made slower is told, and by whom it is judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.calibration.model import cases_of, machine_for, rows_of
from sweeps.calibration.normal import (
    FAST,
    HEALTHY,
    IMPOSSIBLE,
    LESS_LONG,
    SHORT,
    SLOW_HOST,
    SLOW_LATENCY,
    SLOW_LINKS,
    TABLE,
    UNKNOWN,
    Peer,
    band,
    band_of,
    published,
    verdict_of,
)
from sweeps.calibration.table_log import read_table_log

OTHERS = published()
CASE = cases_of(read_table_log(TABLE), machine_for("dgx-h100"))[0]
# Curves of one node; on each there is a size at least that tells.
ONE_NODE = [peer for peer in OTHERS if peer.nodes == 1 and len(peer.sizes) > 5]


def words(peer: Peer, of: Peer | None = None) -> tuple[str, ...]:
    """Judge a curve by all others than the one that it was."""
    others = [other for other in OTHERS if other is not (of or peer)]
    return verdict_of(CASE, peer, others).words


def slower(peer: Peer, factor: float, where: np.ndarray) -> Peer:
    by = np.where(where, factor, 1.0)
    return replace(peer, times=peer.times * by, ratios=peer.ratios * by)


def test_published_curves_are_healthy() -> None:
    found = [words(peer) == (HEALTHY,) for peer in ONE_NODE]
    assert np.mean(found) >= 0.9
    assert words(ONE_NODE[0]) == (HEALTHY,)


def test_slow_hosts_among_them_are_told() -> None:
    hosts = {(peer.name, peer.hardware) for peer in ONE_NODE if SLOW_HOST in words(peer)}
    # The other one's latency, 1.90 times the usual, has a peer in another source: it is normal.
    assert hosts == {("azure", "dgx-a100")}


@pytest.mark.parametrize("part", ["latency", "bandwidth"])
@pytest.mark.parametrize("nodes", ["one", "several"])
def test_a_band_holds_sources_that_it_has_not_seen(part: str, nodes: str) -> None:
    """Each source whole left out in turn: four in five of them are inside, curve by curve more."""
    inside: dict[str, list[bool]] = {}
    for peer in OTHERS:
        if (peer.nodes > 1) == (nodes == "several") and np.isfinite(peer.part(part)):
            band = band_of(peer, part, [other for other in OTHERS if other.name != peer.name])
            inside.setdefault(peer.name, []).append(band.low <= peer.part(part) <= band.high)
    assert len(inside) > 4
    assert np.mean([np.mean(each) for each in inside.values()]) >= 0.8
    assert np.mean([one for each in inside.values() for one in each]) >= 0.85


@given(ratios=st.lists(st.floats(0.8, 1.9), min_size=8, max_size=40), sources=st.integers(3, 9))
def test_of_few_sources_a_band_holds_all_curves(ratios: list[float], sources: int) -> None:
    found = [(f"source {index % sources}", ratio) for index, ratio in enumerate(ratios)]
    low, high = band(found, 1.1)
    assert low <= min(ratios)
    assert high >= max(ratios)


def test_slow_rates_are_flagged() -> None:
    names = [words(slower(peer, 1.5, peer.sizes >= LESS_LONG), peer) for peer in ONE_NODE]
    assert np.mean([SLOW_LINKS in name for name in names]) >= 0.95


def test_slow_short_messages_are_flagged() -> None:
    short = [peer for peer in ONE_NODE if np.isfinite(peer.latency)]
    assert len(short) > 20
    # Of six sources two take twice the usual time: less can't be called slow.
    names = [words(slower(one, 2.5, one.sizes <= SHORT), one) for one in short]
    assert np.mean([bool({SLOW_LATENCY, SLOW_HOST} & {*name}) for name in names]) >= 0.95


def test_what_is_faster_than_all_peers_is_odd() -> None:
    (peer,) = (p for p in ONE_NODE if p.name == "dgx-cloud")
    assert words(slower(peer, 0.75, peer.sizes > 0), peer) == (FAST,)
    middle = {name: getattr(peer, name)[12:14] for name in ("sizes", "times", "ratios", "least")}
    assert words(replace(peer, **middle)) == (UNKNOWN,)


def test_what_is_faster_than_its_wires_is_impossible() -> None:
    """No published curve is; one at half its time is, though peers may scatter as much."""
    assert not [peer.name for peer in OTHERS if peer.impossible]
    (peer,) = (p for p in ONE_NODE if p.name == "dgx-cloud")
    fast = slower(peer, 0.5, peer.sizes > 0)
    assert words(fast, peer) == (IMPOSSIBLE,)
    assert not verdict_of(CASE, fast, OTHERS).healthy


def test_a_class_of_few_peers_is_widened() -> None:
    (peer,) = (p for p in ONE_NODE if p.name == "dgx-cloud")
    near = verdict_of(CASE, peer, OTHERS).bands["bandwidth"]
    assert (near.wider, near.enough) == (0, True)
    alone = replace(peer, operation="broadcast")
    assert verdict_of(CASE, alone, OTHERS).bands["bandwidth"].wider == 3
    assert verdict_of(CASE, peer, ()).bands["latency"].peers == ()


def test_percentiles_count_faster_peers() -> None:
    (peer,) = (p for p in ONE_NODE if p.name == "dgx-cloud")
    band = verdict_of(CASE, peer, OTHERS).bands["latency"]
    assert band.percentile(0.0) == 0.0
    assert band.percentile(1e9) == 100.0


@pytest.mark.parametrize("fabric", ["", "efa"])
def test_rows_on_another_network_are_priced_there(fabric: str) -> None:
    machine = machine_for("dgx-h100", fabric)
    cases = cases_of(read_table_log(TABLE), machine)
    rows = rows_of(cases, ("out-of-place",))
    assert machine.fabric == (fabric or "infiniband")
    assert len(rows) > 100


def test_a_peer_tells_of_sizes_near_its_own() -> None:
    (peer,) = (p for p in ONE_NODE if p.name == "dgx-cloud")
    assert peer.at(1.0, 1.5) == peer.ratios[0]
    assert peer.at(2.0**40, 1.5) == peer.ratios[-1]
    middle = replace(peer, sizes=peer.sizes[12:14], ratios=peer.ratios[12:14])
    assert np.isnan(middle.at(1.0, 1.5))
    assert np.isnan(middle.at(2.0**40, 1.5))
    assert middle.ratios.min() <= middle.at(float(middle.sizes.mean()), 1.5) <= middle.ratios.max()
