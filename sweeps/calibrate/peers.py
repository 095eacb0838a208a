"""Published curves beside the profile, and whether a curve is as they are: the verdict.

A curve is judged by its times over the profile's: the median of short messages, and of long ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sweeps.calibrate.logs import LogTest, read_table_log
from sweeps.calibrate.model import Model, PlacedTest, Rows, Stated, cases_of, machine_for, rows_of
from sweeps.spec.machine import Machine

Floats = NDArray[np.float64]

TABLE = "nccl-collectives"
HEALTHY, FAST, UNKNOWN = "healthy", "faster than peers", "no messages that tell"
SLOW_LINKS, SLOW_LATENCY, SLOW_HOST = "slow links", "slow latency", "slow host"
# Messages that tell latency, and bandwidth; where fewer than two are as long, the second.
SHORT, LONG, LESS_LONG = 64.0 * 2**10, 64.0 * 2**20, 16.0 * 2**20
# A host's floor is flat to here, within this factor.
FLAT, LEVEL = 256.0 * 2**10, 1.25
# The least ratio to the middle of peers that is out of their band, in a node and between nodes.
LEAST = {"latency": 1.4, "bandwidth": 1.2}
BETWEEN = 1.5
# So many peers make a band; quantile and robust standard deviations of its end.
ENOUGH, QUANTILE, WIDTH, SIGMA = 8, 0.975, 2.5, 1.4826
WIDER = (
    "the same operation, ranks, nodes and network",
    "the same operation and ranks",
    "the same operation",
    "any operation",
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A curve beside the profile of its machine."""

    name: str  # The table, or the log
    hardware: str
    operation: str
    ranks: int
    nodes: int
    network: str  # The GPUs' generation in a node, the network between nodes
    sizes: Floats  # Message sizes [byte], each once
    times: Floats  # Measured [s]
    ratios: Floats  # Measured by the profile's
    forced: str = ""  # Which algorithm its settings left; empty: NCCL's own choice

    @property
    def latency(self) -> float:
        """Measured time by the profile's, of short messages; NaN where there are none."""
        return _median(self.ratios[self.sizes <= SHORT])

    @property
    def bandwidth(self) -> float:
        """The same of long messages."""
        long = self.sizes >= LONG
        return _median(self.ratios[long if long.sum() > 1 else self.sizes >= LESS_LONG])

    def part(self, name: str) -> float:
        """Return the latency's ratio or the bandwidth's."""
        return self.latency if name == "latency" else self.bandwidth

    def at(self, size: float, near: float) -> float:
        """Return the ratio at a size, between neighbours; NaN far beyond what was measured.

        Beyond a size that is latency alone, or bandwidth alone, it stays as it is there.
        """
        least, most = self.sizes[0], self.sizes[-1]
        low = least <= SHORT or size >= least / near
        high = most >= LONG or size <= most * near
        if not (low and high):
            return np.nan
        return float(np.interp(np.log(size), np.log(self.sizes), self.ratios))

    def like(self, other: Peer, wider: int) -> bool:
        """Return whether two are of one class, of the narrowest on."""
        count = len(WIDER) - wider
        return self._class[:count] == other._class[:count]

    @property
    def _class(self) -> tuple[object, ...]:
        # What a reduce_scatter does, an all_gather does backwards.
        operation = self.operation.replace("reduce_scatter", "all_gather")
        ranks = "2" if self.ranks == 2 else "3 to 8" if self.ranks <= 8 else "more"
        return self.nodes > 1, operation, ranks, self.network

    @property
    def flat(self) -> bool:
        """Whether times stay level up to long messages, as where a host is slow."""
        times = self.times[self.sizes <= FLAT]
        reach = self.sizes[self.sizes <= FLAT].max(initial=0.0) >= FLAT / 2.0
        return bool(reach and len(times) > 2 and times.max() < LEVEL * times.min())


@dataclass(frozen=True, slots=True)
class Band:
    """What is normal of a ratio among peers."""

    low: float
    high: float
    peers: tuple[float, ...]  # Their ratios
    wider: int  # Which of `WIDER` they are

    @property
    def enough(self) -> bool:
        """Whether there are peers enough for a verdict."""
        return len(self.peers) >= ENOUGH

    def percentile(self, ratio: float) -> float:
        """Return which share of peers is faster [%]."""
        return 100.0 * float(np.mean(np.array(self.peers) < ratio)) if self.peers else np.nan


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a test looks like beside published curves."""

    case: PlacedTest
    words: tuple[str, ...]
    peer: Peer
    bands: dict[str, Band]

    @property
    def healthy(self) -> bool:
        """Whether nothing speaks against it."""
        return not {SLOW_LINKS, SLOW_LATENCY, SLOW_HOST, FAST} & {*self.words}


def _median(values: Floats) -> float:
    return float(np.median(values)) if values.size else np.nan


def peers_of(cases: Sequence[PlacedTest], rows: Rows, machine: Machine) -> list[Peer]:
    """Return the curve of each case that has rows."""
    plain = replace(machine, constants={})
    ratios = rows.time / Model(rows, plain).times()
    found = []
    for place, case in enumerate(cases):
        own = rows.case == place
        if not own.any():
            continue
        sizes, at = np.unique(rows.message_bytes[own], return_inverse=True)
        each = [
            np.array([np.median(values[own][at == one]) for one in range(len(sizes))])
            for values in (rows.time, ratios)
        ]
        network = machine.generation if case.nodes == 1 else case.test.fabric or machine.fabric
        found.append(
            Peer(
                case.test.part or case.test.name, machine.name, case.operation, case.ranks,
                case.nodes, network, sizes, each[0], each[1], case.test.forced,
            )
        )  # fmt: skip
    return found


@cache
def published() -> tuple[Peer, ...]:
    """Return the published curves, each beside the profile of its machine."""
    tests = read_table_log(TABLE)
    found: list[Peer] = []
    for name in dict.fromkeys(one.hardware for one in tests):
        found += _of_machine([one for one in tests if one.hardware == name], machine_for(name))
    return tuple(found)


def _of_machine(tests: Sequence[LogTest], machine: Machine) -> list[Peer]:
    cases = cases_of(tests, machine, Stated())
    return peers_of(cases, rows_of(cases, ("out-of-place",)), machine)


def least_of(name: str, nodes: int) -> float:
    """Return the least ratio to the middle of peers that is out of a band."""
    return LEAST[name] if nodes == 1 else BETWEEN


def band(found: Sequence[float], least: float) -> tuple[float, float]:
    """Return the ends of what is normal among ratios of peers."""
    if not found:
        return 1.0 / least, least
    ratios = np.array(found)
    middle = float(np.median(ratios))
    spread = WIDTH * SIGMA * float(np.median(np.abs(ratios - middle)))
    # The quantile, unless a few that are slow themselves set it.
    high = min(float(np.quantile(ratios, QUANTILE)), middle + spread)
    low = max(float(np.quantile(ratios, 1.0 - QUANTILE)), middle - spread)
    return min(low, 1.0 / least), max(high, least)


def band_of(peer: Peer, name: str, others: Sequence[Peer]) -> Band:
    """Return what is normal of latency or bandwidth among the nearest class of enough peers."""
    found: list[float] = []
    for wider in range(len(WIDER)):
        alike = (one.part(name) for one in others if one is not peer and one.like(peer, wider))
        found = [ratio for ratio in alike if np.isfinite(ratio)]
        if len(found) >= ENOUGH:
            break
    return Band(*band(found, least_of(name, peer.nodes)), tuple(found), wider)


def verdict_of(case: PlacedTest, peer: Peer, others: Sequence[Peer]) -> Verdict:
    """Judge a curve by published ones."""
    bands = {name: band_of(peer, name, others) for name in LEAST}
    return Verdict(case, tuple(_words(peer, bands)), peer, bands)


def _words(peer: Peer, bands: dict[str, Band]) -> Iterator[str]:
    out = {name: _out(peer.part(name), band) for name, band in bands.items()}
    if all(np.isnan(peer.part(name)) for name in bands):
        yield UNKNOWN
        return
    slow = {name for name, one in out.items() if one > 0}
    if "latency" in slow:
        host = peer.flat and "bandwidth" not in slow and not np.isnan(peer.bandwidth)
        yield SLOW_HOST if host else SLOW_LATENCY
    if "bandwidth" in slow:
        yield SLOW_LINKS
    if not slow:
        yield FAST if min(out.values()) < 0 else HEALTHY


def _out(ratio: float, band: Band) -> int:
    """Return 1 above a band, -1 below it, else 0."""
    if np.isnan(ratio):
        return 0
    return int(ratio > band.high) - int(ratio < band.low)
