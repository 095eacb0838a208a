"""What a run costs: GPU-hours rented or owned, with all that interrupts it."""

from __future__ import annotations

import numpy as np

from overhead.declare import product
from overhead.formula import formula
from overhead.quantity import Array, define
from overhead.run.failures import LEAST

OWN = "derivation"

define("capital", r"\Gamma_\mathrm{cap}", "USD", "price of owning a GPU with its share of a node",
       minimum=0)  # fmt: skip
define("network_share", r"\gamma_\mathrm{net}", "1", "price of the network by that of the nodes",
       minimum=0)  # fmt: skip
define("ownership_time", r"\theta_\mathrm{own}", "s", "time: for which what is owned is used",
       minimum=0, above=True)  # fmt: skip
define("electricity_price", r"p_\mathrm{el}", "USD kWh-1", "price of electricity", minimum=0)
define("kilowatt_hour", r"\eta_\mathrm{kWh}", "J kWh-1", "joules of a kilowatt-hour", minimum=0,
       above=True)  # fmt: skip
define("paid_gpus", r"N_\mathrm{paid}", "1", "GPUs that are paid for, spare ones among them",
       minimum=0)  # fmt: skip
define("run_gpu_hours", r"\Theta_\mathrm{paid}", "h",
       "GPU-hours that a whole training takes, interruptions and spares counted",
       minimum=0)  # fmt: skip
define("run_cost", r"\Gamma_\mathrm{run}", "USD",
       "cost of a whole training, interruptions and spares counted", minimum=0)  # fmt: skip
define("useful_cost", r"\Gamma_\mathrm{good}", "USD",
       "cost of 1e12 tokens of use, interruptions and spares counted", minimum=0)  # fmt: skip


@formula(
    returns="price",
    source=OWN,
    when={"paid": "owned"},
    assumes=("what is owned works all the time, and is worth nothing in the end",),
)
def price_of_owning(
    capital: Array,
    network_share: Array,
    ownership_time: Array,
    hour: Array,
    electricity_price: Array,
    kilowatt_hour: Array,
    step_energy: Array,
    world_size: Array,
    step_time: Array,
) -> Array:
    """Price of a GPU for an hour: what owning it costs, with its electricity."""
    written_off = capital * (1.0 + network_share) / (ownership_time / hour)
    joules = step_energy / (world_size * (step_time / hour))
    return written_off + electricity_price * joules / kilowatt_hour


@formula(source=OWN)
def paid_gpus(world_size: Array, spare_servers: Array, server_gpus: Array) -> Array:
    """GPUs that are paid for, spare ones among them."""
    return world_size + spare_servers * server_gpus


@formula(source=OWN)
def run_gpu_hours(paid_gpus: Array, run_time: Array, hour: Array) -> Array:
    """GPU-hours of a whole training with all that interrupts it, spare GPUs counted."""
    return paid_gpus * run_time / hour


product("run_cost", ("run_gpu_hours", "price"))


@formula(source=OWN)
def useful_cost(
    price: Array,
    paid_gpus: Array,
    tokens_per_step: Array,
    step_time: Array,
    goodput: Array,
    hour: Array,
) -> Array:
    """Cost of training on 1e12 tokens with all that interrupts it, spare GPUs counted."""
    lasting = 1e12 / tokens_per_step * step_time / np.maximum(goodput, LEAST)
    return price * (paid_gpus * lasting / hour)
