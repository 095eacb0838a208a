"""One call for a collective on a network: arrays in, arrays out."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache, reduce
from operator import mul
from typing import Any

import numpy as np

from overhead.arrays import in_numpy, namespace_of, using, xp
from overhead.collectives.algorithm import Algorithm
from overhead.collectives.choices import candidates
from overhead.graph import Evaluation, Node, graph_of
from overhead.labels import (
    CHOICES,
    COLLECTIVES,
    FOLLOWING,
    LABELS,
    NCCL,
    NO_LIBRARY,
    OPERATION_DEFAULTS,
    complete,
    usual_spelling,
)
from overhead.quantity import VOCABULARY, Array
from overhead.recording import Recorded, Replacing, number, record, recording, text, tree_of
from overhead.topology import LIBRARY, TopologyDesc, default_library, kinds, own_network

CollectiveKind = kinds("CollectiveKind", COLLECTIVES)


@dataclass(frozen=True, slots=True)
class CollectiveResult:
    """What a collective costs; arrays of the shape to which the inputs broadcast.

    Attributes
    ----------
    latency_s : ndarray
        The whole time [s]; NaN where the algorithm isn't defined.
    volume_bytes : ndarray
        Most bytes that one rank sends [byte].
    steps : ndarray
        Steps of the schedule.
    latency_part_s, bandwidth_part_s : ndarray
        The time's parts [s].
    intra_latency_s, inter_latency_s : ndarray
        The time's parts inside and between nodes, between pods included [s]; of a flat network
        all is inside.
    link_bytes : ndarray
        Bytes over all links together [byte].
    energy_j : ndarray
        Energy of these bytes [J].
    algbw, busbw : ndarray
        Algorithm and bus bandwidth as nccl-tests has them [byte/s]; NaN for one rank.
    lower_bound_s, lower_bound_ratio : ndarray
        Physical lower bound [s], and the time over it.
    algorithm : ndarray of str
        The algorithm whose time it is; empty where none is defined.
    """

    latency_s: Array
    volume_bytes: Array
    steps: Array
    latency_part_s: Array
    bandwidth_part_s: Array
    intra_latency_s: Array
    inter_latency_s: Array
    link_bytes: Array
    energy_j: Array
    algbw: Array
    busbw: Array
    lower_bound_s: Array
    lower_bound_ratio: Array
    algorithm: Array


QUANTITIES = {
    "latency_s": "time",
    "volume_bytes": "sent_bytes",
    "steps": "steps",
    "latency_part_s": "latency_time",
    "bandwidth_part_s": "bandwidth_time",
    "intra_latency_s": "intra_time",
    "inter_latency_s": "inter_time",
    "link_bytes": "link_bytes",
    "energy_j": "energy",
    "algbw": "algbw",
    "busbw": "busbw",
    "lower_bound_s": "lower_bound",
    "lower_bound_ratio": "lower_bound_ratio",
}
# What a single rank doesn't have.
NOT_OF_ONE_RANK = ("algbw", "busbw", "lower_bound_ratio")
assert {*QUANTITIES, "algorithm"} == {field.name for field in fields(CollectiveResult)}


def collective(
    kind: str,
    message_bytes: Any,
    topology: TopologyDesc | Any,
    *,
    algorithm: str | None = None,
    software: str | None = None,
    chunks: Any = None,
    phase_chunks: Any = None,
    reduction_cost: Any = None,
    hops: Any = 1.0,
    latency_per: str = OPERATION_DEFAULTS["latency_per"],
) -> CollectiveResult:
    """Return what a collective operation costs.

    Parameters
    ----------
    kind : str
        The operation: a `CollectiveKind` or its name.
    message_bytes : array_like
        Message size as nccl-tests counts it [byte]; broadcasts with the network's values.
    topology : TopologyDesc or array_like
        The network; or a number of ranks, on the network of the machine that commands take where
        none is named.
    algorithm : str, optional
        A name, or ``standard``, ``nccl``, ``auto`` (the least time of all that are defined); by
        default what a library takes (``nccl``), without one ``standard``.
    software : {"none", "nccl"}, optional
        Whether the exact forms hold alone, or the library's profile prices them, with the constants
        of the default machine; by default the network's own.
    chunks, phase_chunks : array_like, optional
        Chunks of a pipelined algorithm (default: the optimum), and chunks over which phases on
        different dimensions are pipelined (default: they run one after another).
    reduction_cost : array_like, optional
        Time to reduce a byte [s/byte]; by default reductions cost nothing.
    hops : array_like
        Links between sender and receiver of a p2p.
    latency_per : {"hop", "message"}
        What pays a latency.

    Returns
    -------
    CollectiveResult
        Arrays of one shape: numpy's, or of the library (JAX, PyTorch, CuPy and others that follow
        the array API standard) whose arrays are given.

    Raises
    ------
    ValueError
        If the collective has no such algorithm on the network, a name is unknown, or a value
        outside of its domain.
    """
    network = topology if isinstance(topology, TopologyDesc) else own_network(in_numpy(topology))
    kind = usual_spelling(str(kind), COLLECTIVES)
    library = _library(network, software, {"phase_chunks": phase_chunks,
                                           "reduction_cost": reduction_cost})  # fmt: skip
    if algorithm is None:
        algorithm = OPERATION_DEFAULTS["algorithm"] if library == NO_LIBRARY else NCCL
    found = candidates(network.kind, kind, algorithm, library)
    if not found:
        message = f"algorithm = '{algorithm}': none of {kind} on {network.kind} is called so"
        if algorithm in CHOICES:
            message = f"{kind}: {network.kind} has no {algorithm} algorithm of it"
        raise ValueError(message)
    constants = default_library() if library != NO_LIBRARY else {}
    given = {**constants, **network.values, "message_bytes": message_bytes, "hops": hops}
    known = LABELS["latency_per"].values
    if latency_per not in known:
        message = f"latency_per = '{latency_per}': {' or '.join(known)}"
        raise ValueError(message)
    optional = {"chunks": chunks, "phase_chunks": phase_chunks, "reduction_cost": reduction_cost}
    given |= {name: value for name, value in optional.items() if value is not None}
    for name in ("message_bytes", "hops", *optional):
        if name in given and np.any(VOCABULARY[name].outside(given[name])):
            domain = VOCABULARY[name].domain()
            wrong = in_numpy(given[name]).astype(np.float64)
            message = f"{name} = {wrong}: outside of its domain; {domain}"
            raise ValueError(message)
    labels = {"topology": network.kind, "collective": kind, "algorithm": algorithm}
    labels |= {
        "latency_per": latency_per,
        # A flat network that is given by its own link is all like the inside of a node.
        "link": "intra" if "bandwidth" in network.values else OPERATION_DEFAULTS["link"],
        "library": library,
        "floor": "none",
        "environment": LABELS["environment"].values[0],
    }
    with np.errstate(all="ignore"), using(namespace_of(*given.values())):
        return _result(Evaluation(given, complete(labels, given)))


def _library(network: TopologyDesc, software: str | None, unpriced: Mapping[str, Any]) -> str:
    """Return the library whose profile prices an operation."""
    if software is None:
        return network.library if all(v is None for v in unpriced.values()) else NO_LIBRARY
    if software not in (NO_LIBRARY, LIBRARY):
        message = f"software = '{software}': {NO_LIBRARY} or {LIBRARY}"
        raise ValueError(message)
    for name, value in unpriced.items():
        if value is not None and software != NO_LIBRARY:
            message = f"{name} = {value}: a library's profile has no form of it; software = 'none'"
            raise ValueError(message)
    return software


def _result(evaluation: Evaluation) -> CollectiveResult:
    """Return the quantities of the algorithm that has the least time, cell by cell."""
    values = {field: evaluation[quantity] for field, quantity in QUANTITIES.items()}
    if evaluation.labels["shape"] == "three_levels":
        # What goes between pods goes between nodes too.
        values["inter_latency_s"] = values["inter_latency_s"] + evaluation["pod_time"]
    names = np.array([one.name for one in evaluation.algorithms])
    undefined = ~(evaluation.defined() & xp.isfinite(values["latency_s"]))
    alone = undefined | (evaluation["ranks"] == 1.0)
    fastest = in_numpy(evaluation.fastest()).astype(np.int64)
    shape = np.broadcast_shapes(*(value.shape for value in (*values.values(), alone, fastest)))
    for field, value in values.items():
        missing = alone if field in NOT_OF_ONE_RANK else undefined
        values[field] = xp.where(missing, np.nan, xp.broadcast_to(value, shape))
    chosen = np.broadcast_to(names[fastest], shape)
    return CollectiveResult(**values, algorithm=np.where(in_numpy(undefined), "", chosen))


# What an algorithm's kernel says, in words.

# The labels under which an algorithm's time is stated.
PLAIN = {name: FOLLOWING[name][0] for name in ("phases", "reduction")}
PLAIN["latency_per"] = LABELS["latency_per"].default


class _Recording(dict[str, Node]):
    """Quantities that stand for themselves."""

    def get(self, name: str, default: Any = None) -> Node:
        value: Any = Recorded(ast.Name(name))
        return self.setdefault(name, Node(name, ("given", name), (), None, frozenset(), value))


@lru_cache(maxsize=4096)
def statement(algorithm: Algorithm, quantity: str) -> str:
    """Return what an algorithm's kernel says of one of its quantities.

    Raises
    ------
    RecordingError
        If the kernel can't be recorded.
    """
    shape = "three_levels" if algorithm.topology == "hierarchical" else "flat"
    with recording():
        named = (*algorithm.inputs, "ranks_per_nic", "uplink_oversubscription")
        own: dict[str, Any] = {name: Recorded(ast.Name(name)) for name in named}
        evaluation = Evaluation(own, {**PLAIN, "shape": shape}, algorithm)
        labels = frozenset(evaluation.labels.items())
        graph = graph_of.__wrapped__(labels, frozenset(own), algorithm)
        graph.defaults = _Recording()
        evaluation.place(graph)
        tree = number(tree_of(evaluation[quantity]))
    for sizes in (("mesh_nx", "mesh_ny", "mesh_nz"), ("node_ranks", "nodes", "pods")):
        ranks = record(lambda *sizes: reduce(mul, sizes), sizes)
        tree = Replacing(ranks, ast.Name("ranks")).of(tree)
    return text(tree)
