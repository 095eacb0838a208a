"""A whole run: what failures cost it, the energy of whole nodes, and what it costs in money."""

from __future__ import annotations

from typing import Any

from overhead.arrays import xp
from overhead.formula import cited, derived, formula
from overhead.shipped import usual_table
from overhead.special import negative_binomial_quantile, negative_binomial_tail

# A run with less of its time in use never ends.
LEAST = 1e-12
DALY = cited("daly2006", assumes=("failures are random and independent, during restarts as well",))


# How often it is interrupted.


# What a checkpoint takes.


@derived(assumes=("gradients are not saved", "frozen weights are not saved"))
def checkpoint_bytes(
    trained_weights, parameters, adapter_parameters, weight_bytes, optimizer_bytes
):
    """Checkpoint size: trained weights and their optimizer states."""
    trained = trained_weights * parameters + adapter_parameters
    return trained * (weight_bytes + optimizer_bytes)


@derived(assumes=("nodes split replicated data and write concurrently",))
def checkpoint_flow_time(checkpoint_bytes, run_nodes, storage_bandwidth, total_storage_bandwidth):
    """Checkpoint transfer time to storage."""
    return checkpoint_bytes / xp.minimum(run_nodes * storage_bandwidth, total_storage_bandwidth)


@derived(
    assumes=(
        "a staged checkpoint stops computing until the part of each GPU is in host memory, "
        "another one until it is written",
    )
)
def checkpoint_stall_time(checkpoint_write_time, checkpoint_bytes, world_size, staging_bandwidth):
    """Time for which a checkpoint stops computing."""
    staged = staging_bandwidth > 0.0
    copied = checkpoint_bytes / (world_size * xp.where(staged, staging_bandwidth, 1.0))
    return xp.where(staged, copied, checkpoint_write_time)


@derived(assumes=("a failure loses checkpoints that are in host memory alone",))
def checkpoint_drain_time(checkpoint_write_time, staging_bandwidth):
    """Time after the stall until a checkpoint is in storage: a staged one's writing."""
    return xp.where(staging_bandwidth > 0.0, checkpoint_write_time, 0.0)


@formula(where="equation 37", **DALY)
def checkpoint_interval(
    checkpoint_stall_time, mean_time_between_failures, step_time, checkpoint_drain_time
):
    """Computing between two checkpoints: the best, a step at least, and a staged one's writing."""
    share = checkpoint_stall_time / (2.0 * mean_time_between_failures)
    order = 1.0 + xp.sqrt(share) / 3.0 + share / 9.0
    young = xp.sqrt(2.0 * checkpoint_stall_time * mean_time_between_failures)
    best = xp.where(share < 1.0, young * order - checkpoint_stall_time, mean_time_between_failures)
    return xp.maximum(xp.maximum(best, step_time), checkpoint_drain_time)


# Of the run's time the shares that interruptions take: together with the goodput they are all.


def _running(outage, interval, waiting):
    """Return the share of the time in which the run computes or saves."""
    return (1.0 - waiting) * xp.exp(-outage / interval)


def _kept(attempt, drain):
    """Return e^-d/(e^x - 1): attempts in storage by failures, if storage has them d later."""
    return xp.exp(-drain) * (xp.exp(-attempt) / -xp.expm1(-attempt))


# A checkpoint counts from when it is in storage: of n attempts in a row the last one is there if no
# failure comes within n attempts and its drain, and summed over n that is e^-d/(e^x - 1).
KEPT: dict[str, Any] = {
    **DALY,
    "assumes": (*DALY["assumes"], "a failure loses the checkpoint that is not in storage yet"),
}


@formula(where="equation 20", **KEPT)
def goodput(
    checkpoint_interval,
    checkpoint_stall_time,
    checkpoint_drain_time,
    mean_time_between_failures,
    recovery_time,
    replacement_wait_fraction,
):
    """Goodput (useful time / run time)."""
    attempt = (checkpoint_interval + checkpoint_stall_time) / mean_time_between_failures
    drain = checkpoint_drain_time / mean_time_between_failures
    running = _running(recovery_time, mean_time_between_failures, replacement_wait_fraction)
    return running * (checkpoint_interval / mean_time_between_failures) * _kept(attempt, drain)


@formula(where="equation 20, the part of what is saved", **KEPT)
def checkpoint_overhead(
    checkpoint_interval,
    checkpoint_stall_time,
    checkpoint_drain_time,
    mean_time_between_failures,
    recovery_time,
    replacement_wait_fraction,
):
    """Fraction of run time spent writing useful checkpoints."""
    attempt = (checkpoint_interval + checkpoint_stall_time) / mean_time_between_failures
    drain = checkpoint_drain_time / mean_time_between_failures
    running = _running(recovery_time, mean_time_between_failures, replacement_wait_fraction)
    return running * (checkpoint_stall_time / mean_time_between_failures) * _kept(attempt, drain)


@formula(where="equation 20, the part of what is broken off", **KEPT)
def rework_fraction(
    checkpoint_interval,
    checkpoint_stall_time,
    checkpoint_drain_time,
    mean_time_between_failures,
    recovery_time,
    replacement_wait_fraction,
):
    """Fraction of run time spent on rework."""
    attempt = (checkpoint_interval + checkpoint_stall_time) / mean_time_between_failures
    drain = checkpoint_drain_time / mean_time_between_failures
    # Of a short attempt the first terms: the difference would lose its digits.
    short = attempt / 2.0 - attempt**2.0 / 12.0 + attempt**4.0 / 720.0
    broken = xp.where(attempt < 0.01, short, 1.0 - attempt * _kept(attempt, 0.0))
    lost = broken - (1.0 - broken) * xp.expm1(-drain)
    return _running(recovery_time, mean_time_between_failures, replacement_wait_fraction) * lost


@formula(where="equation 20, the part of restarts", **DALY)
def restart_fraction(recovery_time, mean_time_between_failures, replacement_wait_fraction):
    """Fraction of run time from failure to resumed training."""
    return (1.0 - replacement_wait_fraction) * -xp.expm1(
        -recovery_time / mean_time_between_failures
    )


# Servers that are away, and those that stand ready.


@derived(assumes=("a server is away for as long on average wherever it stands",))
def nodes_down(failure_rate, run_nodes, mean_time_to_repair, day):
    """Nodes down, mean: at most all."""
    return run_nodes * xp.minimum(failure_rate * mean_time_to_repair / day, 1.0)


GAMMA = cited(
    "derivation",
    assumes=(
        "servers away are a negative binomial: a Poisson law whose rate itself varies, by a gamma",
    ),
)


@formula(**GAMMA)
def spare_nodes(nodes_down, down_dispersion, spare_coverage):
    """Servers that must stand ready to suffice for a share of the time."""
    return negative_binomial_quantile(spare_coverage, nodes_down, down_dispersion)


@formula(
    **{**GAMMA, "assumes": (*GAMMA["assumes"], "a run waits while more are away than stand ready")}
)
def replacement_wait_fraction(spare_nodes, nodes_down, down_dispersion):
    """Fraction of run time with more nodes down than spares."""
    return negative_binomial_tail(spare_nodes, nodes_down, down_dispersion)


# The run.


@derived()
def run_time(training_time, goodput):
    """Training time including interruptions."""
    return training_time / xp.maximum(goodput, LEAST)


@derived(
    assumes=(
        "interruptions take the power of a step, which is too much where a run waits",
        "servers that stand ready are off",
    )
)
def run_energy(training_energy, goodput):
    """Training energy including interruptions."""
    return training_energy / xp.maximum(goodput, LEAST)


# Energy of a step: GPUs by what they do, hosts, cards, fans, switches, conversion, the site.


@derived(assumes=("a communicating or waiting GPU has idle power",))
def device_energy(world_size, power, idle_power_fraction, step_time, step_compute_time):
    """Energy of a step: all GPUs, idle all the time and busy while they compute."""
    busy = xp.maximum(1.0 - idle_power_fraction, 0.0) * xp.minimum(step_compute_time, step_time)
    return world_size * power * (idle_power_fraction * step_time + busy)


# Under a power limit a GPU runs at lower clocks.

LIMITED: dict[str, Any] = {"when": {"clock": "limited"}}
# Beyond what was measured a GPU is as slow as at the lowest limit that was.
LEAST_LIMIT = usual_table()["run"]["least_power_share"].value


@formula(
    source="zeus2023",
    assumes=(
        "GEMMs and attention slow down, HBM and links do not",
        "below a third of the power it is as slow as at a third",
        "the exponent is of one pair, H100 at 700 and 500 W; V100 and RTX 6000 training BERT "
        "follow exponent 0 and slowdown 1.28",
    ),
    **LIMITED,
)
def clock_ratio(power_limit, power, power_cap_exponent, power_cap_slowdown):
    """GEMM and attention rate under a power limit / without one."""
    share = xp.minimum(xp.maximum(power_limit / power, LEAST_LIMIT), 1.0)
    curved = 1.0 - power_cap_slowdown * (1.0 - share) ** 2.0
    return xp.maximum(share**power_cap_exponent * curved, 0.01)


@derived(
    returns="device_energy",
    assumes=("a GPU at work takes what its limit allows, and never less than an idle one",),
    **LIMITED,
)
def limited_device_energy(
    world_size, power, power_limit, idle_power_fraction, step_time, step_compute_time
):
    """Energy of a step: all GPUs, idle all the time and at their limit while they compute."""
    idle = idle_power_fraction * power
    more = xp.maximum(xp.minimum(power_limit, power) - idle, 0.0)
    return world_size * (idle * step_time + more * xp.minimum(step_compute_time, step_time))


@derived(assumes=("hosts take the same whatever the GPUs do",))
def node_energy(
    device_energy,
    world_size,
    host_power,
    fan_power,
    nic_power,
    nics_per_node,
    gpus_per_node,
    step_time,
):
    """Energy of a step: GPUs, hosts with their fans, and NICs."""
    nics = world_size * nics_per_node / gpus_per_node
    host = world_size * (host_power + fan_power) * step_time
    return device_energy + host + nics * nic_power * step_time


@derived()
def node_dc_power(node_energy, step_time, world_size, gpus_per_node):
    """Average node power in a step, DC side."""
    return node_energy / (step_time * world_size) * gpus_per_node


@derived(
    assumes=(
        "GPU power includes its link ports: energy per bit is for links, cables and "
        "transceivers outside the board",
    )
)
def step_energy(
    node_energy,
    psu_efficiency,
    world_size,
    switch_power,
    nics_per_node,
    gpus_per_node,
    step_time,
    communication_energy,
    pue,
):
    """Energy of a step: nodes with their supplies, switches, moved bits, the site."""
    switches = world_size * nics_per_node / gpus_per_node * switch_power * step_time
    return pue * (node_energy / psu_efficiency + switches + communication_energy)


# What a run costs: GPU-hours rented or owned, with all that interrupts it.


@derived(
    returns="gpu_hour_price",
    assumes=(
        "owned hardware is used all the time, with no residual value",
        "spare nodes pay for as much electricity as nodes of the run",
    ),
)
def price_of_owning(
    capital_cost,
    network_cost_fraction,
    depreciation_time,
    hour,
    electricity_price,
    kilowatt_hour,
    step_energy,
    world_size,
    step_time,
):
    """Price of a GPU for an hour: what owning it costs, with its electricity."""
    written_off = capital_cost * (1.0 + network_cost_fraction) / (depreciation_time / hour)
    joules = step_energy / (world_size * (step_time / hour))
    return written_off + electricity_price * joules / kilowatt_hour


@derived()
def provisioned_gpus(world_size, spare_nodes, gpus_per_failing_node):
    """GPUs that are paid for, spare ones among them."""
    return world_size + spare_nodes * gpus_per_failing_node


@derived()
def cost_per_trillion_useful_tokens(
    gpu_hour_price, provisioned_gpus, tokens_per_step, step_time, goodput, hour
):
    """Cost of training on a trillion tokens with all that interrupts it, spare GPUs counted."""
    lasting = 1e12 / tokens_per_step * step_time / xp.maximum(goodput, LEAST)
    return gpu_hour_price * (provisioned_gpus * lasting / hour)
