"""Schedules on meshes and tori of one to three dimensions; a line is a mesh of one."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator import grid_all_to_all, grid_buckets, grid_lines, grid_trees, ring
from tests.simulator.grid_network import Grid
from tests.simulator.model import Case, Network, Steps, Undefined
from tests.simulator.patterns import Build, Table, broadcast_family, gather_family, scheduled


def on_ring(collective: str, name: str) -> Build:
    """Return the ring's schedule of this name."""
    return lambda case: ring.SCHEDULES["ring", collective, name](case)[1]


GATHERS: dict[str, dict[str, Build]] = {
    "torus": {name: on_ring("all_gather", name) for name in ("ring", "ring_split", "ring_short")},
    "mesh": {
        "line": grid_lines.spread,
        "wrap": grid_lines.wrap,
        "folded": grid_lines.folded,
    },
}
EXCHANGES: dict[str, dict[str, Build]] = {
    "torus": {
        name: on_ring("all_to_all", name)
        for name in ("shift_uni", "shift_min", "shift_bidir", "fwd_uni", "fwd_bidir")
    },
    "mesh": {"shift_line": grid_lines.shift},
}
BROADCASTS: dict[str, Callable[[Grid, Case], Steps]] = {
    "tree_pipe": grid_trees.broadcast,
    "phased": grid_trees.phased,
}
SIDE_BY_SIDE = (
    "ring",
    "ring_split",
    "ring_short",
    "line",
    "shift_bidir",
    "fwd_bidir",
    "shift_line",
)


def grid_of(case: Case) -> Grid:
    return Grid(case.sizes, wrapped=case.topology == "torus")


def network(case: Case) -> Network:
    return grid_of(case).network(case)


def on_grid(build: Callable[[Grid, Case], Steps]) -> Build:
    return lambda case: build(grid_of(case), case)


def around_one(name: str) -> Build:
    """Return a ring's broadcast on the one dimension of a torus."""

    def build(case: Case) -> Steps:
        if len(grid_of(case).dimensions) > 1:
            msg = f"{name} runs along one dimension"
            raise Undefined(msg)
        return on_ring("broadcast", name)(case)

    return build


def along(compose: Callable[[Grid, Case, Build], Steps], build: Build) -> Build:
    """Return a grid's schedule composed of those of its lines."""
    return lambda case: compose(grid_of(case), case, build)


def composed(
    builds: dict[str, Build],
    one_by_one: Callable[[Grid, Case, Build], Steps],
    side_by_side: Callable[[Grid, Case, Build], Steps],
) -> dict[str, Build]:
    """Return the schedules over all dimensions of one-dimensional ones, plain and `multi_`."""
    return {name: along(one_by_one, build) for name, build in builds.items()} | {
        f"multi_{name}": along(side_by_side, builds[name])
        for name in SIDE_BY_SIDE
        if name in builds
    }


def table(topology: str) -> Table:
    """Return all schedules of a topology."""
    gathers = composed(GATHERS[topology], grid_buckets.one_by_one, grid_buckets.side_by_side)
    exchanges = composed(
        EXCHANGES[topology], grid_all_to_all.one_by_one, grid_all_to_all.side_by_side
    )
    broadcasts = {name: on_grid(build) for name, build in BROADCASTS.items()}
    exchanges["direct"] = lambda case: grid_all_to_all.direct(grid_of(case))
    if topology == "mesh":
        gathers["hamilton"] = lambda case: grid_buckets.around(grid_of(case))
        broadcasts["chain"] = on_grid(grid_trees.chain)
    else:
        broadcasts |= {name: around_one(name) for name in ("chain", "two_chains")}
    return {
        **gather_family(topology, network, gathers),
        **broadcast_family(topology, network, broadcasts),
        **{
            (topology, "all_to_all", name): scheduled(network, build)
            for name, build in exchanges.items()
        },
        (topology, "all_reduce", "tree_pipe"): scheduled(network, on_grid(grid_trees.all_reduce)),
        (topology, "p2p", "direct"): scheduled(network, on_ring("p2p", "direct")),
    }


SCHEDULES: Table = {**table("mesh"), **table("torus")}
