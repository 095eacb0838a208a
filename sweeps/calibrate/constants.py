"""The constants that a fit is of, and how the machine's file calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault
from sweeps.spec.catalog import Machine

__all__ = ["BANDWIDTHS", "CONSTANTS", "LATENCIES", "LAUNCH", "Constant", "base_values", "vector"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the model."""

    name: str  # The quantity's name in the vocabulary; ``launch`` has none
    words: str  # What it is
    units: str  # Its canonical unit
    place: str  # Where a hardware file has it; empty for ``launch``, which no file has
    least: float = 0.0  # The least value that a fit may give it

    @property
    def inverse(self) -> bool:
        """Whether times are linear in one by it."""
        return self.units == "byte s-1"


LAUNCH = "launch"
# Light goes 0.3 m in a nanosecond, so no message between two GPUs takes less.
_LEAST_LATENCY = 1e-9
CONSTANTS: Mapping[str, Constant] = {
    one.name: one
    for one in (
        Constant("intra_bandwidth", "bandwidth in a node", "byte s-1", "scale_up.bandwidth"),
        Constant("inter_bandwidth", "bandwidth between nodes", "byte s-1", "scale_out.bandwidth"),
        Constant("intra_latency", "latency in a node", "s", "scale_up.latency", _LEAST_LATENCY),
        Constant(
            "inter_latency", "latency between nodes", "s", "scale_out.latency", _LEAST_LATENCY
        ),
        Constant(
            "in_network_latency", "latency through the reducing switch", "s",
            "scale_up.in_network_latency", _LEAST_LATENCY,
        ),
        Constant(LAUNCH, "launch of an operation", "s", ""),
    )
}  # fmt: skip
BANDWIDTHS = ("intra_bandwidth", "inter_bandwidth")
LATENCIES = ("intra_latency", "inter_latency", "in_network_latency")


def base_values(machine: Machine) -> dict[str, float]:
    """Return the constants as a machine's file has them; no launch."""
    kind = machine.scale_up_kind
    if kind not in ("switch", "fully_connected"):
        wrong = f"its nodes are a {kind}, on which nccl-tests doesn't run"
        raise InputError(fault("--hardware", machine.name, wrong, "a machine of GPUs"))
    values = {
        name: machine.figures[name].value if name in machine.figures else np.nan
        for name in CONSTANTS
    }
    if np.isnan(values["in_network_latency"]):
        values["in_network_latency"] = values["intra_latency"]
    values[LAUNCH] = 0.0
    return values


def vector(values: Mapping[str, float]) -> Floats:
    """Return constants as what times are linear in: latencies, and one by bandwidths."""
    return np.array(
        [1.0 / values[one.name] if one.inverse else values[one.name] for one in CONSTANTS.values()]
    )
