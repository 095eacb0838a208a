"""How a communication of the training step is declared, and the table of all of them.

An operation is one collective of a kind of groups with one message.  It has a time, bytes that a
rank sends and an energy, each once; and counts: how often the rank that does it most often does it
in a step, in the forward direction and in the backward one.  From these follow its totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from overhead.arrays import xp
from overhead.communication import groups
from overhead.formula import call, constant, derived, product
from overhead.quantity import Array

# What communicates, in the order in which reports tell it.
DIMENSIONS: dict[str, str] = {
    "tp": "tensor parallelism",
    "vocabulary": "embedding, output layer and loss, split over tensor-parallel ranks",
    "cp": "context parallelism",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
    "dp": "data parallelism",
}

ONCE = {"time": "time", "sent_bytes": "sent_bytes", "energy": "energy"}

# What a collective takes for what, of the group that the label names.
BIND = {
    "ranks": "group_size",
    "gpus_per_node": "members_in_node",
    "ranks_per_nic": "group_ranks_per_nic",
    "intra_bandwidth": "effective_intra_bandwidth",
    "inter_bandwidth": "effective_inter_bandwidth",
    "uplink_oversubscription": "group_oversubscription",
}
GRID = {f"mesh_n{axis}": f"group_n{axis}" for axis in "xyz"}
PODS = {"nodes_per_pod": "group_pod_nodes", "pod_bandwidth": "effective_pod_bandwidth"}


@dataclass(frozen=True, slots=True)
class Operation:
    """A communication of the training step."""

    name: str  # Its name, with which the names of its quantities begin
    title: str  # What it is, in words
    dimension: str  # Of `DIMENSIONS`
    # The kind of groups that do it: the label ``group`` of `overhead.plan`, or of
    # `overhead.communication.groups`
    group: str
    collective: str  # What they do
    message: str  # The quantity that is its message [byte]
    of: str  # The kind of groups by whose number its energy is multiplied
    # The quantity by which all stages' counts, on average, fall short of the busiest stage's
    share: str
    when: Mapping[str, str]  # Labels of the plans that have it; empty: each has

    def quantity(self, part: str) -> str:
        """Return the name of one of its quantities, such as its time."""
        return f"{self.name}_{part}"


_DECLARED: list[Operation] = []


def declared(*dimensions: str) -> tuple[Operation, ...]:
    """Return the operations of some dimensions, as their module has declared them."""
    return tuple(one for one in _DECLARED if one.dimension in dimensions)


def operation(
    name: str,
    title: str,
    *,
    dimension: str,
    group: str,
    collective: str,
    message: str,
    of: str = "",
    share: str = "",
    when: Mapping[str, str] | None = None,
    own: tuple[str, ...] = (),
) -> Operation:
    """Declare a communication: its quantities, its cost on the network, its totals of a step.

    Its counts stay to be declared.
    """
    made = Operation(
        name, title, dimension, group, collective, message, of or group, share, dict(when or {})
    )
    _DECLARED.append(made)
    for part, quantity in ONCE.items():
        if part not in own:
            on_network(f"{name}_{part}", quantity, group, collective, message)
    for way in ("forward", "backward"):
        product(f"{name}_{way}_time", (f"{name}_{way}_count", f"{name}_time"))
    if "volume" not in own:
        _counted(made, "volume", (f"{name}_sent_bytes",))
    if "total_energy" not in own:
        factors = (f"{name}_energy", groups.number_of(made.of), *([share] if share else []))
        _counted(made, "total_energy", factors)
    return made


def _counted(made: Operation, part: str, factors: tuple[str, ...]) -> None:
    """Declare a quantity as both counts together times some others."""
    counts = tuple(made.quantity(f"{way}_count") for way in ("forward", "backward"))

    def kernel(forward: Array, backward: Array, *others: Array) -> Array:
        result = forward + backward
        for other in others:
            result = result * other
        return xp.asarray(result)

    returns = made.quantity(part)
    derived(returns=returns, inputs=(*counts, *factors), name=returns)(kernel)


def on_network(returns: str, of: str, group: str, collective: str, message: str) -> None:
    """Declare a quantity as one of a collective by one kind of groups, on whatever network."""
    labels = {"group": group, "collective": collective}
    bind = {**BIND, "message_bytes": message}
    call(returns=returns, of=of, bind=bind, labels=labels)
    grid = {"topology": "mesh|torus"}
    call(returns=returns, of=of, bind={**bind, **GRID}, labels=labels, when=grid)
    pods = {"topology": "hierarchical", "shape": "three_levels"}
    call(returns=returns, of=of, bind={**bind, **PODS}, labels=labels, when=pods)


def never(*counts: str, when: Mapping[str, str] | None = None, mark: str = "never") -> None:
    """Declare that there is nothing to count."""
    for returns in counts:
        title, name = "Nothing to count", f"{returns}_{mark}"
        constant(returns, 0.0, title, like="micro_batches", name=name, when=when)
