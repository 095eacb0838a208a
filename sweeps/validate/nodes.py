"""The nodes and network cards of a measured run, where they aren't the machine's own."""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.spec.catalog import Machine
from sweeps.validate.run_table import Run

__all__ = ["network_of"]

GIGABIT = 1e9 / 8


def network_of(
    machine: Machine, run: Run, settings: Mapping[str, float], gpus: float
) -> dict[str, float]:
    """Return the GPUs of a node and its network cards as a run had them."""
    own = machine.figures["gpus_per_node"].value
    stated = settings.get("gpus_per_node", run.numbers.get("gpus_per_node", own))
    # Of a machine that reaches further than a tray, a run fills as many GPUs evenly.
    node = _domain(gpus, own) if settings.get("domains", 0.0) and own > stated else stated
    cards = machine.figures["nics_per_node"].value * node / own
    found = {"gpus_per_node": node}
    if "card_gigabits" in settings:
        cards = settings.get("nics_per_node", cards)
        found["inter_bandwidth"] = settings["card_gigabits"] * GIGABIT
    elif "node_gigabits" in settings:
        found["inter_bandwidth"] = settings["node_gigabits"] * GIGABIT / max(cards, 1.0)
    elif "gpu_gigabits" in settings:
        found["inter_bandwidth"] = settings["gpu_gigabits"] * GIGABIT * node / max(cards, 1.0)
    found["nics_per_node"] = max(cards, 1.0)
    found["ranks_per_nic"] = node / found["nics_per_node"]
    return found


def _domain(gpus: float, most: float) -> float:
    """Return the most GPUs up to a limit that divide all."""
    if gpus <= most:
        return gpus
    return float(max(n for n in range(1, int(most) + 1) if gpus % n == 0))
