"""What the forms predict of a table of measurements that their constants were not fitted to.

For each table of tests/data/collectives.csv, the constants of its GPU's generation, or those that
networks between nodes share, are fitted again to the other tables, and predict it.  Before that fit
the constants of a generation are those of the others, their geometric mean; those between nodes are
the profile's, but for what one table alone tells.  All are unsure by a factor of two, shares of
rates by a tenth.  A network's own latency and rate stay: it is one that was measured before.

    python -m tests.software.left_out
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from sweeps.calibration.model import Model, Rows, machine_for
from sweeps.spec.catalog import load_hardware
from sweeps.spec.software import load_software
from tests.software.test_errors import CLASSES, ROWS, SLOW_HOST

UNIT, UNSURE, SHARE, STEP = 0.08, 0.7, 0.1, 1e-4
# Rates that are NCCL's own, and what no table of one node tells.
# How names end of constants that are parts of a rate.
RATIOS = ("efficiency", "rate_ratio")
EXCHANGE = "inter_sendrecv_rate_ratio"
KEPT = ("channel_efficiency", "nvls_time", "nvls_hosts_time", EXCHANGE)
# Between nodes, of all networks.
ALIKE = tuple(
    (
        "simple_fabric_factor fabric_ramp_steps simple_step_factor inter_ll_rate_ratio "
        "tree_rate_ratio nvls_tree_rate_ratio peer_time"
    ).split()
)
GENERATIONS = ("ampere", "hopper", "blackwell")
# What was assumed before the tables that tell it; a generation's rate of an exchange is its own.
ASSUMED = {"peer_time": 0.5e-6} | {f"{generation}.{EXCHANGE}": 0.8 for generation in GENERATIONS}


@dataclass(frozen=True)
class Table:
    """Rows of one table, with what they are of."""

    name: str
    collective: str
    place: str  # One node or several, as the profile's errors have it
    group: str  # The tables whose constants are its own: a generation, or between nodes
    generation: str
    model: Model

    def times(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the times of its rows by constants, an exchange's by that of its generation."""
        own = {name: value for name, value in values.items() if "." not in name}
        exchange = values.get(f"{self.generation}.{EXCHANGE}")
        return self.model.times(own if exchange is None else own | {EXCHANGE: exchange})


def rows_of(lines: Sequence[Mapping[str, str]], fabric: str) -> Rows:
    def numbers(name: str) -> np.ndarray:
        return np.array([float(line[name] or 0.0) for line in lines])

    count = len(lines)
    forced = {"nvls_sharp": "sharp", "ring": "ring"}
    return Rows(
        np.zeros(count, dtype=np.intp),
        np.arange(count, dtype=np.intp),
        np.array([line["collective"] for line in lines]),
        numbers("ranks"),
        numbers("nodes"),
        numbers("message_bytes"),
        numbers("time_us") * 1e-6,
        np.array(["out-of-place"] * count),
        np.array([forced.get(line["algorithm"], "") for line in lines]),
        np.array([fabric] * count),
        numbers("card_GBps") * 1e9,
    )


@cache
def tables() -> tuple[Table, ...]:
    """Return all tables, a part each where a table holds several operations."""
    text = [line for line in ROWS.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    found: defaultdict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for line in csv.DictReader(text):
        columns = ("table", "collective", "hardware", "nodes", "fabric", "host", "algorithm")
        found[tuple(line[name] for name in columns)].append(line)
    each = []
    for (name, collective, hardware, nodes, fabric, host, _), lines in found.items():
        model = Model(rows_of(lines, ""), machine_for(hardware, fabric))
        if host:
            model.base["collective_host_time"] = SLOW_HOST
        several = int(nodes) > 1
        generation = load_hardware(hardware).generation
        each.append(
            Table(
                name,
                collective,
                "several_nodes" if several else "one_node",
                "nodes" if several else generation,
                generation,
                model,
            )
        )
    return tuple(each)


def before(group: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return what a group's constants are before a fit, and how unsure their logarithms are."""
    profile = load_software("nccl")
    if group == "nodes":
        base = {name: profile.shared[name].value for name in ALIKE} | ASSUMED
    else:
        names = [name for name in profile.nodes[group] if name not in KEPT]
        other_nodes = [
            profile.nodes[generation] for generation in GENERATIONS if generation != group
        ]
        base = {}
        for name in names:
            known = [other_node[name].value for other_node in other_nodes if name in other_node]
            base[name] = float(np.exp(np.mean(np.log(known))))
    unsure = {
        name: SHARE if name.endswith(RATIOS) and "ll_" not in name else UNSURE for name in base
    }
    return base, unsure


def fitted(
    own: Sequence[Table], base: Mapping[str, float], unsure: Mapping[str, float]
) -> dict[str, float]:
    """Return constants fitted to tables, each size class of each counting alike."""
    names, start = list(base), np.log(list(base.values()))
    width = np.array([unsure[name] for name in names])
    top = np.array([0.0 if name.endswith(RATIOS) else np.inf for name in names])
    measured = np.log(np.concatenate([table.model.rows.time for table in own]))
    parts = []
    for table in own:
        size = np.digitize(table.model.rows.message_bytes, (2.0**18, 2.0**24))
        parts.append(1.0 / np.sqrt(np.bincount(size, minlength=3)[size] / 6.0))
    weight = np.minimum(np.concatenate(parts), 1.0)

    def off(logs: np.ndarray) -> np.ndarray:
        """Return residuals of (.., constants), and how far these are from before."""
        values = {name: np.exp(logs[..., index, None]) for index, name in enumerate(names)}
        times = [
            np.broadcast_to(t := row.times(values), (*logs.shape[:-1], t.shape[-1])) for row in own
        ]
        far = (np.log(np.concatenate(times, axis=-1)) - measured) / UNIT
        soft = np.sign(far) * np.sqrt(2.0 * (np.sqrt(1.0 + far**2) - 1.0)) * weight
        return np.concatenate([soft, (logs - start) / width], axis=-1)

    at, damping = start, 1e-2
    rest = off(at)
    for _ in range(25):
        slopes = (off(at + STEP * np.eye(len(at))) - rest) / STEP
        square = slopes @ slopes.T
        for _ in range(6):
            step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -slopes @ rest)
            tried = np.minimum(at + step, top)
            left = off(tried)
            if left @ left < rest @ rest:
                break
            damping *= 4.0
        else:
            break
        gain = rest @ rest - left @ left
        at, rest, damping = tried, left, damping / 3.0
        if gain < 1e-4 * (rest @ rest):
            break
    return dict(zip(names, np.exp(at).tolist(), strict=True))


def left_out(group: str) -> Iterator[tuple[Table, np.ndarray]]:
    """Yield each table of a group with its relative errors, its constants fitted to the others."""
    every = [table for table in tables() if table.group == group]
    base, unsure = before(group)
    for name in dict.fromkeys(row.name for row in every):
        values = fitted([row for row in every if row.name != name], base, unsure)
        for row in every:
            if row.name == name:
                array = row.times({key: np.array([value]) for key, value in values.items()})
                yield row, array / row.model.rows.time - 1.0


def by_operation(groups: Sequence[str]) -> dict[str, list[tuple[int, float]]]:
    """Return rows and mean left-out errors in percent, by place and operation, in size classes."""
    found: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for group in groups:
        for row, error in left_out(group):
            both = np.stack([row.model.rows.message_bytes, np.abs(error)])
            for name in (f"{row.place}.{row.collective}", row.place, "all"):
                found[name].append(both)
    table = {}
    for name, parts in found.items():
        sizes, error = np.concatenate(parts, axis=1)
        own = [(sizes >= low) & (sizes < high) for low, high in CLASSES.values()]
        table[name] = [
            (
                int(np.sum(mask)),
                round(100.0 * float(np.mean(error[mask])), 1) if mask.any() else 0.0,
            )
            for mask in own
        ]
    return table


if __name__ == "__main__":
    for name, each in sorted(by_operation((*GENERATIONS, "nodes")).items()):
        print(name, each)
