"""The time of an operation with a library, from steps and bytes, and its parts.

A library takes the protocol of least time.  Operations are issued ahead of the GPU, so a slow host
hides behind a long operation: its time and theirs join as the root of fourth powers.
"""

from __future__ import annotations

import numpy as np

from overhead.arrays import PLAIN, xp
from overhead.collectives.cost import several
from overhead.quantity import Array
from overhead.software.flat import PRICED, priced

ANY = {"library": PRICED}
SEQUENTIAL = {**ANY, "phases": "sequential"}
FLAT, NODES = {"shape": "flat"}, {"topology": "hierarchical"}
# Where a library's form stands in the place of that of links alone.
EXACT = {**SEQUENTIAL, "reduction": "free"}
WITHOUT_FLOOR = {**EXACT, "floor": "none"}
TWO_PROTOCOLS = "ring|pairs|message|tree"
SIMPLE_ONLY = "nvls|nvls_tree|sharp|schedule"
SIMPLY, RINGS = {**ANY, "form": SIMPLE_ONLY}, {**ANY, "form": "ring"}
WAITING = {"floor": "some"}
HASTE = ("operations are issued ahead of the GPU",)


@priced(when=ANY)
def launch_part_time(ranks, collective_launch_time):
    """Launch, where there is anything to do."""
    return several(ranks) * collective_launch_time


@priced(
    returns="copy_byte_time",
    assumes=("a rank moves its own block, too",),
    when={**RINGS, "collective": "all_gather|reduce_scatter"},
)
def ring_copy_byte_time(ranks, local_copy_bandwidth):
    """Local copy."""
    return several(ranks) / (ranks * local_copy_bandwidth)


@priced(returns="copy_byte_time", when={**RINGS, "collective": "all_reduce"})
def all_reduce_copy_byte_time(ranks, all_reduce_copy_ratio, local_copy_bandwidth):
    """Local copy of an all-reduce."""
    return several(ranks) * all_reduce_copy_ratio / (ranks * local_copy_bandwidth)


# On the many cells of a grid there are a few sums and products, all in one array: a line for LL;
# for Simple, whose ramp grows with the root of the message, a quadratic in that root.


@priced(when=ANY)
def ll_time(
    message_bytes: Array,
    ll_byte_time: Array,
    copy_byte_time: Array,
    launch_part_time: Array,
    ll_fixed_time: Array,
    *,
    out: Array | None = None,
) -> Array:
    """Time with protocol LL."""
    moved = _scaled(message_bytes, ll_byte_time + copy_byte_time, out)
    return _on(np.add, moved, launch_part_time + ll_fixed_time)


SIMPLE = (
    "message_bytes*(simple_byte_time + copy_byte_time) + sqrt(message_bytes*ramp_square)"
    " + launch_part_time + simple_fixed_time"
)


@priced(expression=SIMPLE, when=ANY)
@priced(name="simple_device_time", returns="device_time", expression=SIMPLE, when=SIMPLY)
@priced(name="whole_time", returns="time", expression=SIMPLE, when={**WITHOUT_FLOOR, **SIMPLY})
def simple_time(
    message_bytes: Array,
    simple_byte_time: Array,
    copy_byte_time: Array,
    ramp_square: Array,
    launch_part_time: Array,
    simple_fixed_time: Array,
    *,
    out: Array | None = None,
) -> Array:
    """Time with protocol Simple."""
    root = xp.sqrt(message_bytes)
    byte_time = simple_byte_time + copy_byte_time
    rate = _on(np.add, _scaled(root, byte_time, out), xp.sqrt(ramp_square))
    return _on(np.add, _on(np.multiply, rate, root), launch_part_time + simple_fixed_time)


def _scaled(values: Array, slope: Array, out: Array | None) -> Array:
    return values * slope if out is None else np.multiply(values, slope, out=out)


def _on(change: np.ufunc, total: Array, other: Array) -> Array:
    """Return a sum or product, in place of the first array if it is numpy's and has its shape."""
    if not isinstance(total, PLAIN):
        return xp.asarray(total + other if change is np.add else total * other)
    total = np.asarray(total)
    fits = np.broadcast(total, other).shape == total.shape
    return np.asarray(change(total, other, out=total if fits else None))


@priced(returns="device_time", when={**ANY, "form": TWO_PROTOCOLS}, name="least_device_time")
@priced(returns="time", when={**WITHOUT_FLOOR, "form": TWO_PROTOCOLS})
def least_time(ll_time, simple_time):
    """Time with the faster protocol, LL or Simple."""
    return xp.minimum(ll_time, simple_time)


@priced(returns="time", assumes=HASTE, when={**EXACT, "floor": "some"})
def floored_time(device_time, floor_time):
    """Collective time, including host or fabric waits."""
    return xp.sqrt(xp.sqrt(device_time**4 + floor_time**4))


@priced(returns="floor_time", when={**ANY, **FLAT})
def flat_floor_time(ranks, host_floor_time):
    """Minimum collective time: host."""
    return several(ranks) * host_floor_time


@priced(returns="floor_time", when={**ANY, **NODES})
def nodes_floor_time(ranks, host_floor_time, total_nodes, inter_min_time):
    """Minimum collective time: host and fabric."""
    fabric = several(total_nodes) * inter_min_time
    return several(ranks) * xp.sqrt(xp.sqrt(host_floor_time**4 + fabric**4))


# The parts of the time.


@priced(when={**ANY, "form": TWO_PROTOCOLS})
def protocol(ll_time, simple_time):
    """Faster protocol: 0 LL, 1 Simple."""
    return xp.where(ll_time <= simple_time, 0.0, 1.0)


@priced(returns="protocol", when=SIMPLY)
def one_protocol(ranks):
    """Simple, where there is no other protocol."""
    return xp.ones_like(ranks)


@priced(when={**ANY, "form": TWO_PROTOCOLS})
def step_part_time(protocol, simple_fixed_time, ll_fixed_time):
    """Step latency part of the chosen protocol."""
    return xp.where(protocol > 0.0, simple_fixed_time, ll_fixed_time)


@priced(when={**ANY, "form": TWO_PROTOCOLS})
def transfer_part_time(message_bytes, protocol, simple_byte_time, ll_byte_time):
    """Transfer part of the chosen protocol."""
    return message_bytes * xp.where(protocol > 0.0, simple_byte_time, ll_byte_time)


@priced(when=ANY)
def ramp_part_time(protocol, message_bytes, ramp_square):
    """Pipeline fill of the message, if the protocol has one."""
    return protocol * (xp.sqrt(message_bytes) * xp.sqrt(ramp_square))


@priced(when={**ANY, "floor": "some"})
def host_wait_part_time(time, device_time):
    """Host or proxy wait part."""
    return xp.maximum(time - device_time, 0.0)


@priced(returns="latency_time", when={**SEQUENTIAL, **FLAT}, name="flat_latency_parts")
@priced(
    returns="latency_time",
    when={**SEQUENTIAL, **FLAT, "in_network": "yes"},
    name="in_network_latency_parts",
)
@priced(returns="latency_time", when={**SEQUENTIAL, **NODES}, name="nodes_latency_parts")
def latency_parts(launch_part_time, step_part_time, host_wait_part_time):
    """Latency term, independent of the message size."""
    return launch_part_time + step_part_time + host_wait_part_time


@priced(returns="bandwidth_time", when={**SEQUENTIAL, **FLAT}, name="flat_bandwidth_parts")
@priced(returns="bandwidth_time", when={**SEQUENTIAL, **NODES}, name="nodes_bandwidth_parts")
def bandwidth_parts(transfer_part_time, copy_part_time, ramp_part_time):
    """Part of the time that grows with the message."""
    return transfer_part_time + copy_part_time + ramp_part_time


LEVELS = {**SEQUENTIAL, **NODES}
WHOLE = ("an operation that leaves a node counts as between nodes, as a whole",)


@priced(returns="intra_time", assumes=WHOLE, when=LEVELS)
def whole_intra_time(total_nodes, time):
    """Part of the time that is spent inside a node: all or nothing."""
    return xp.where(total_nodes > 1.0, 0.0, time)


@priced(returns="inter_time", assumes=WHOLE, when=LEVELS)
def whole_inter_time(total_nodes, pods, time):
    """Part of the time that is spent between nodes: all or nothing."""
    return xp.where((total_nodes > 1.0) & (pods <= 1.0), time, 0.0)


@priced(returns="pod_time", assumes=WHOLE, when=LEVELS)
def whole_pod_time(pods, time):
    """Part of the time that is spent between pods: all or nothing."""
    return xp.where(pods > 1.0, time, 0.0)
