"""Energy of a step: GPUs by what they do, hosts, cards, fans, switches, conversion, the site."""

from __future__ import annotations

from typing import Any

import numpy as np

from overhead.declare import product, total
from overhead.formula import formula
from overhead.quantity import Array, define

OWN: dict[str, Any] = {"source": "derivation"}


def _named(name: str) -> str:
    return rf"\mathrm{{{name}}}"


for _name, _mark, _meaning in (
    ("host_power", "host", "power of processors, memory, disks of a node: a GPU's share"),
    ("fan_power", "fan", "power of a node's fans: a GPU's share"),
    ("card_power", "card", "power of a network card"),
    ("switch_power", "switch", "power of the switches between nodes: a network card's share"),
    ("node_power", "node", "power of a node in a step, on average, behind its supplies"),
):
    define(_name, f"P_{{{_named(_mark)}}}", "W", _meaning, minimum=0)
for _name, _mark, _meaning in (
    ("host_energy", "host", "energy of a step: hosts and fans"),
    ("card_energy", "card", "energy of a step: network cards"),
    ("switch_energy", "switch", "energy of a step: switches between nodes"),
    ("node_energy", "node", "energy of a step: all nodes, behind their supplies"),
    ("token_energy", "1", "energy of a token: a step's by its tokens"),
):
    define(_name, f"W_{{{_named(_mark)}}}", "J", _meaning, minimum=0)
define("cards", r"N_\mathrm{card}", "1", "network cards of all nodes", minimum=0)
define("conversion_efficiency", r"\eta_\mathrm{ac}", "1",
       "share of a node's power that its supplies hand on", minimum=0, above=True,
       maximum=1)  # fmt: skip
define("pue", r"\eta_\mathrm{site}", "1",
       "power of the site, cooling included, by that of its machines", minimum=1)  # fmt: skip


@formula(assumes=("a GPU that communicates or waits takes what an idle one does",), **OWN)
def device_energy(
    world_size: Array,
    power: Array,
    idle_power_fraction: Array,
    step_time: Array,
    computing_time: Array,
) -> Array:
    """Energy of a step: all GPUs, idle all the time and busy while they compute."""
    busy = np.maximum(1.0 - idle_power_fraction, 0.0) * np.minimum(computing_time, step_time)
    return world_size * power * (idle_power_fraction * step_time + busy)


@formula(assumes=("hosts take the same whatever the GPUs do",), **OWN)
def host_energy(world_size: Array, host_power: Array, fan_power: Array, step_time: Array) -> Array:
    """Energy of a step: hosts and fans."""
    return world_size * (host_power + fan_power) * step_time


@formula(**OWN)
def cards(world_size: Array, nics_per_node: Array, gpus_per_node: Array) -> Array:
    """Network cards of all nodes."""
    return world_size * nics_per_node / gpus_per_node


product("card_energy", ("cards", "card_power", "step_time"))
product("switch_energy", ("cards", "switch_power", "step_time"))
total("node_energy", ("device_energy", "host_energy", "card_energy"))


@formula(**OWN)
def node_power(
    node_energy: Array, step_time: Array, world_size: Array, gpus_per_node: Array
) -> Array:
    """Power of a node in a step, on average, behind its supplies."""
    return node_energy / (step_time * world_size) * gpus_per_node


@formula(
    assumes=(
        "a GPU's power holds its own links' ports, so that moved bits' energy is that of what "
        "lies outside of its board: links, cables, transceivers",
    ),
    **OWN,
)
def step_energy(
    node_energy: Array,
    conversion_efficiency: Array,
    switch_energy: Array,
    communication_energy: Array,
    pue: Array,
) -> Array:
    """Energy of a step: nodes with their supplies, switches, moved bits, the site."""
    return pue * (node_energy / conversion_efficiency + switch_energy + communication_energy)


@formula(**OWN)
def token_energy(step_energy: Array, tokens_per_step: Array) -> Array:
    """Energy of a token: a step's by its tokens."""
    return step_energy / tokens_per_step


product("training_energy", ("training_steps", "step_energy"))
