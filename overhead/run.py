"""A whole run: what failures cost it, the energy of whole nodes, and what it costs in money."""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.formula import derived, formula, product, total
from overhead.shipped import usual_table
from overhead.special import negative_binomial_quantile, negative_binomial_tail

# A run with less of its time in use never ends.
LEAST = 1e-12
DALY: dict[str, Any] = {
    "source": "daly2006",
    "assumes": ("interruptions come at random and one by one, while restarting as well",),
}


# How often it is interrupted.


@derived()
def servers(world_size, server_gpus):
    """Servers of the run (not rounded)."""
    return world_size / server_gpus


@derived(assumes=("an upper bound: faults that come together interrupt a run once",))
def fault_interval(day, fault_rate, servers):
    """Mean time between interruptions of the run."""
    return day / (fault_rate * servers)


# What a checkpoint takes.


@derived(assumes=("gradients aren't saved",))
def checkpoint_bytes(parameters, weight_bytes, optimizer_bytes):
    """Bytes of a checkpoint: weights and the optimizer's states of the whole model."""
    return parameters * (weight_bytes + optimizer_bytes)


@derived(
    returns="checkpoint_bytes",
    assumes=("frozen weights aren't saved",),
    lacks={"parameters": "frozen weights aren't saved"},
    when={"tuning": "lora"},
)
def adapted_checkpoint_bytes(adapter_parameters, weight_bytes, optimizer_bytes):
    """Bytes of a checkpoint: adapters and the optimizer's states of them."""
    return adapter_parameters * (weight_bytes + optimizer_bytes)


@derived(assumes=("servers share out what they hold alike, and write all at once",))
def checkpoint_flow_time(checkpoint_bytes, servers, storage_bandwidth, total_storage_bandwidth):
    """Time of a checkpoint's bytes on their way to storage."""
    return checkpoint_bytes / xp.minimum(servers * storage_bandwidth, total_storage_bandwidth)


total("checkpoint_write_time", ("checkpoint_start_time", "checkpoint_flow_time"))


@derived(assumes=("all computing waits until a checkpoint is written",))
def checkpoint_stall_time(checkpoint_write_time):
    """Time for which a checkpoint stops computing: all of its writing."""
    return 1.0 * checkpoint_write_time


@derived(
    returns="checkpoint_stall_time",
    assumes=("computing goes on once each GPU's share is in its host's memory",),
    when={"saving": "staged"},
)
def staged_stall_time(checkpoint_bytes, world_size, staging_bandwidth):
    """Time for which a staged checkpoint stops computing: its way to the hosts' memory."""
    return checkpoint_bytes / (world_size * staging_bandwidth)


@formula(returns="checkpoint_interval", where="equation 37", **DALY)
def best_interval(checkpoint_stall_time, fault_interval, step_time):
    """Computing between two checkpoints: the best, and a step at least."""
    share = checkpoint_stall_time / (2.0 * fault_interval)
    order = 1.0 + xp.sqrt(share) / 3.0 + share / 9.0
    young = xp.sqrt(2.0 * checkpoint_stall_time * fault_interval)
    best = xp.where(share < 1.0, young * order - checkpoint_stall_time, fault_interval)
    return xp.maximum(best, step_time)


@formula(returns="checkpoint_interval", where="equation 37", when={"saving": "staged"}, **DALY)
def best_staged_interval(checkpoint_stall_time, fault_interval, step_time, checkpoint_write_time):
    """Computing between two staged checkpoints: the best, once the last one is written."""
    best = best_interval(checkpoint_stall_time, fault_interval, step_time)
    return xp.maximum(best, checkpoint_write_time)


total(
    "outage_time",
    ("detection_time", "job_start_time", "checkpoint_flow_time"),
    assumes=("a checkpoint is read as fast as it is written",),
)


# Of the run's time the shares that interruptions take: together with the goodput they are all.


def _running(outage, interval, waiting):
    """Return the share of the time in which the run computes or saves."""
    return (1.0 - waiting) * xp.exp(-outage / interval)


def _kept(attempt):
    """Return 1/(e^x - 1): attempts that come to their end by those that don't."""
    return xp.exp(-attempt) / -xp.expm1(-attempt)


@formula(where="equation 20", **DALY)
def goodput(checkpoint_interval, checkpoint_stall_time, fault_interval, outage_time, waiting_share):
    """Share of the run's time that brings the training on."""
    attempt = (checkpoint_interval + checkpoint_stall_time) / fault_interval
    running = _running(outage_time, fault_interval, waiting_share)
    return running * (checkpoint_interval / fault_interval) * _kept(attempt)


@formula(where="equation 20, the part of what is saved", **DALY)
def saving_share(
    checkpoint_interval, checkpoint_stall_time, fault_interval, outage_time, waiting_share
):
    """Share of the run's time lost to writing checkpoints that are of use."""
    attempt = (checkpoint_interval + checkpoint_stall_time) / fault_interval
    running = _running(outage_time, fault_interval, waiting_share)
    return running * (checkpoint_stall_time / fault_interval) * _kept(attempt)


@formula(where="equation 20, the part of what is broken off", **DALY)
def redone_share(
    checkpoint_interval, checkpoint_stall_time, fault_interval, outage_time, waiting_share
):
    """Share of the run's time lost to work that is done again."""
    attempt = (checkpoint_interval + checkpoint_stall_time) / fault_interval
    # Of a short attempt the first terms: the difference would lose its digits.
    short = attempt / 2.0 - attempt**2.0 / 12.0 + attempt**4.0 / 720.0
    lost = xp.where(attempt < 0.01, short, 1.0 - attempt * _kept(attempt))
    return _running(outage_time, fault_interval, waiting_share) * lost


@formula(where="equation 20, the part of restarts", **DALY)
def restarting_share(outage_time, fault_interval, waiting_share):
    """Share of the run's time lost from interruptions until it computes again."""
    return (1.0 - waiting_share) * -xp.expm1(-outage_time / fault_interval)


# Servers that are away, and those that stand ready.


@derived(assumes=("a server is away for as long on average wherever it stands",))
def servers_down(fault_rate, servers, repair_time, day):
    """Servers that are away at once, on average: all at most."""
    return servers * xp.minimum(fault_rate * repair_time / day, 1.0)


GAMMA: dict[str, Any] = {
    "source": "derivation",
    "assumes": (
        "servers away are a negative binomial: a Poisson law whose rate itself varies, by a gamma",
    ),
}


@formula(**GAMMA)
def spare_servers(servers_down, down_dispersion, spare_probability):
    """Servers that must stand ready to suffice for a share of the time."""
    return negative_binomial_quantile(spare_probability, servers_down, down_dispersion)


@formula(**{**GAMMA, "assumes": (*GAMMA["assumes"], "a run waits while more are away than stand "
                                 "ready")})  # fmt: skip
def waiting_share(spare_servers, servers_down, down_dispersion):
    """Share of the run's time in which more servers are away than stand ready."""
    return negative_binomial_tail(spare_servers, servers_down, down_dispersion)


# The run.


@derived()
def run_time(training_time, goodput):
    """Time of a whole training with all that interrupts it."""
    return training_time / xp.maximum(goodput, LEAST)


@derived()
def run_days(run_time, day):
    """Days of a whole training with all that interrupts it."""
    return run_time / day


# Energy of a step: GPUs by what they do, hosts, cards, fans, switches, conversion, the site.


@derived(assumes=("a GPU that communicates or waits takes what an idle one does",))
def device_energy(world_size, power, idle_power_fraction, step_time, computing_time):
    """Energy of a step: all GPUs, idle all the time and busy while they compute."""
    busy = xp.maximum(1.0 - idle_power_fraction, 0.0) * xp.minimum(computing_time, step_time)
    return world_size * power * (idle_power_fraction * step_time + busy)


# Under a limit of its power a GPU runs at lower clocks.

LIMITED: dict[str, Any] = {"when": {"clock": "limited"}}
# Beyond what was measured a GPU is as slow as at the lowest limit that was.
LEAST_LIMIT = usual_table()["run"]["least_power_share"].value


@formula(
    source="zeus2023",
    assumes=(
        "products and attention slow down, memory and links don't",
        "below a third of the power it is as slow as at a third",
    ),
    **LIMITED,
)
def clock_share(power_limit, power, power_slowdown):
    """Rate of a GPU under a limit of its power by that without one."""
    share = xp.minimum(xp.maximum(power_limit / power, LEAST_LIMIT), 1.0)
    return xp.maximum(1.0 - power_slowdown * (1.0 - share) ** 2.0, 0.01)


product("matmul_efficiency", ("full_matmul_efficiency", "clock_share"), **LIMITED)
product("attention_efficiency", ("full_attention_efficiency", "clock_share"), **LIMITED)


@derived(
    returns="device_energy",
    assumes=("a GPU at work takes what its limit allows, and never less than an idle one",),
    **LIMITED,
)
def limited_device_energy(
    world_size, power, power_limit, idle_power_fraction, step_time, computing_time
):
    """Energy of a step: all GPUs, idle all the time and at their limit while they compute."""
    idle = idle_power_fraction * power
    more = xp.maximum(xp.minimum(power_limit, power) - idle, 0.0)
    return world_size * (idle * step_time + more * xp.minimum(computing_time, step_time))


@derived(assumes=("hosts take the same whatever the GPUs do",))
def host_energy(world_size, host_power, fan_power, step_time):
    """Energy of a step: hosts and fans."""
    return world_size * (host_power + fan_power) * step_time


@derived()
def cards(world_size, nics_per_node, gpus_per_node):
    """Network cards of all nodes."""
    return world_size * nics_per_node / gpus_per_node


product("card_energy", ("cards", "card_power", "step_time"))
product("switch_energy", ("cards", "switch_power", "step_time"))
total("node_energy", ("device_energy", "host_energy", "card_energy"))


@derived()
def node_power(node_energy, step_time, world_size, gpus_per_node):
    """Power of a node in a step, on average, behind its supplies."""
    return node_energy / (step_time * world_size) * gpus_per_node


@derived(
    assumes=(
        "a GPU's power holds its own links' ports, so that moved bits' energy is that of what "
        "lies outside of its board: links, cables, transceivers",
    )
)
def step_energy(node_energy, conversion_efficiency, switch_energy, communication_energy, pue):
    """Energy of a step: nodes with their supplies, switches, moved bits, the site."""
    return pue * (node_energy / conversion_efficiency + switch_energy + communication_energy)


@derived()
def token_energy(step_energy, tokens_per_step):
    """Energy of a token: a step's by its tokens."""
    return step_energy / tokens_per_step


product("training_energy", ("training_steps", "step_energy"))


# What a run costs: GPU-hours rented or owned, with all that interrupts it.


@derived(
    returns="price",
    assumes=("what is owned works all the time, and is worth nothing in the end",),
)
def price_of_owning(
    capital,
    network_share,
    ownership_time,
    hour,
    electricity_price,
    kilowatt_hour,
    step_energy,
    world_size,
    step_time,
):
    """Price of a GPU for an hour: what owning it costs, with its electricity."""
    written_off = capital * (1.0 + network_share) / (ownership_time / hour)
    joules = step_energy / (world_size * (step_time / hour))
    return written_off + electricity_price * joules / kilowatt_hour


@derived()
def paid_gpus(world_size, spare_servers, server_gpus):
    """GPUs that are paid for, spare ones among them."""
    return world_size + spare_servers * server_gpus


@derived()
def run_gpu_hours(paid_gpus, run_time, hour):
    """GPU-hours of a whole training with all that interrupts it, spare GPUs counted."""
    return paid_gpus * run_time / hour


product("run_cost", ("run_gpu_hours", "price"))


@derived()
def useful_cost(price, paid_gpus, tokens_per_step, step_time, goodput, hour):
    """Cost of training on a trillion tokens with all that interrupts it, spare GPUs counted."""
    lasting = 1e12 / tokens_per_step * step_time / xp.maximum(goodput, LEAST)
    return price * (paid_gpus * lasting / hour)
