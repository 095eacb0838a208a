"""Why a cell can't be: conditions on the shape of a network, and the flags that name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from overhead.collectives.algorithm import ALGORITHMS, NETWORKS

NOT_DEFINED = "algorithm_not_defined_on_topology"
ONE_RANK = "one_rank_has_no_bandwidth"
NOT_CHUNKED = "algorithm_without_chunks"
NOT_KNOWN = "figure_of_the_machine_not_known"
NO_TIME = "nothing_takes_time"
NOT_OF_NETWORK = "quantity_not_of_this_network"
# What only some quantities of a cell lack; the cell itself exists.
NOTES = (ONE_RANK, NO_TIME, NOT_OF_NETWORK, NOT_CHUNKED, NOT_KNOWN)
# What a single rank doesn't have.
NOT_OF_ONE_RANK = ("algbw", "busbw", "lower_bound_ratio")


@dataclass(frozen=True)
class Faults:
    """The reasons why a cell, or a value in it, doesn't exist."""

    texts: Mapping[str, str]  # Each fault's name with what must hold, in the order of their bits
    # Takes a fault's and a variable's name: whether the variable is missing where the fault is
    concerns: Callable[[str, str], bool]

    @cached_property
    def bits(self) -> dict[str, int]:
        """Every fault's bit."""
        return {fault: 1 << index for index, fault in enumerate(self.texts)}

    def masking(self, variable: str) -> int:
        """Return the bits of all faults that a variable's value doesn't survive."""
        return sum(bit for fault, bit in self.bits.items() if self.concerns(fault, variable))

    def named(self, status: int) -> tuple[str, ...]:
        """Return the names of the faults in a status."""
        return tuple(fault for fault, bit in self.bits.items() if status & bit)


def collective_faults() -> Faults:
    """Return what can be wrong with a collective operation on a network."""
    texts = {one.fault: one.text for network in NETWORKS.values() for one in network.requires}
    texts[NOT_DEFINED] = "the algorithm must be defined for this collective on this network"
    texts[ONE_RANK] = "one rank has no algbw, busbw and lower_bound_ratio"
    texts[NO_TIME] = "where nothing takes time, ratios to the time aren't defined"
    texts[NOT_OF_NETWORK] = "some quantities, such as nodes, are of some networks alone"
    texts[NOT_CHUNKED] = "the algorithm cuts its message into no chunks of a number to choose"
    texts[NOT_KNOWN] = "the machine's file lacks a figure that a quantity needs, such as an energy"
    for algorithm in ALGORITHMS.values():
        texts.update({requirement.fault: requirement.text for requirement in algorithm.requires})
    return Faults(texts, _concerns)


def _concerns(fault: str, variable: str) -> bool:
    return fault not in NOTES or (fault == ONE_RANK and variable in NOT_OF_ONE_RANK)
