"""The suggested commands, and the predefined combinations that ``run-all`` evaluates."""

from __future__ import annotations

from typing import Any

__all__ = ["COMMANDS", "combinations"]

# Each command is complete, so that `sweeps list-cmds | sh` runs them one after another.
COMMANDS = (
    # One operation on one network.
    "sweeps collective --topology ring --N 8 --M 140e9",
    "sweeps collective --topology tree --N 8 --M 140e9",
    "sweeps collective --topology tree --N 8 --M 140e9 --tree-algo",
    "sweeps collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9",
    "sweeps collective --topology switch --N 8 --M 140e9",
    "sweeps collective --topology mesh --N 16 --mesh-nx 4 --mesh-ny 4 --M 140e9",
    "sweeps collective --topology torus --N 16 --mesh-nx 4 --mesh-ny 4 --M 140e9",
    "sweeps collective --topology torus --mesh-nx 4 --mesh-ny 4 --mesh-nz 4 --M 1GiB",
    # The formula with the numbers put in.
    "sweeps collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9 --verbose",
    "sweeps collective --topology torus --mesh-nx 4 --mesh-ny 4 --N 16 --M 1GiB --verbose",
    # Every operation, every network, every algorithm.
    "sweeps collective --op all --topology all --N 8 --M 64MiB",
    "sweeps collective --op all_reduce --topology switch --algorithm all --N 64 --M 1MiB",
    "sweeps collective --topology switch --algorithm auto --N 2:1024:x2 --M 1KiB:1GiB:log4",
    # What a network card shared by a node, or an oversubscribed fabric, costs.
    "sweeps collective --topology hierarchical --N 64 --M 1GiB --nics-per-node 1,2,4,8",
    "sweeps collective --topology hierarchical --N 64 --M 1GiB --oversubscription 1,2,4",
    # Machines side by side, and records for programs.
    "sweeps collective --hardware dgx-a100,dgx-h100,gb200-nvl72 --N 64 --M 256MiB",
    "sweeps collective --topology ring,switch,torus --N 2:64:x2 --M 1MiB --csv",
    # What there is.
    "sweeps list --op all_reduce --topology switch",
    "sweeps show switch.all_reduce.ring",
    "sweeps catalog",
)


def combinations() -> dict[str, Any]:
    """Return the predefined sweep: every network, operation and several numbers of ranks."""
    return {
        "title": "Predefined combinations",
        "axes": {
            "collective": "all",
            "topology": "all",
            "ranks": [2, 4, 8, 16, 32, 64, 128],
        },
        "constants": {"message_bytes": "140 GB"},
    }
