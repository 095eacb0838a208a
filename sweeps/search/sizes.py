"""Numbers of a machine's GPUs: of whole nodes, and how busy their plans can keep them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.search.request import pipeline_layers

if TYPE_CHECKING:
    from sweeps.spec.resolve_operation import Resolved

# Of numbers of nodes those are tried that degrees divide well: no prime factor is larger.
LARGEST_PRIME = 7
# The largest cluster that is let: Oracle, OCI Supercluster (2024-09), up to 131,072 Blackwell GPUs.
# Of a pod that is let in slices the largest is the pod.
LARGEST_CLUSTER = 131_072


def largest_of(common: Resolved) -> int:
    """Return the most GPUs of a machine that are considered: its pod, or the largest cluster."""
    pods = [
        machine.figures["gpus_per_node"].value
        for machine in common.machines
        if machine.torus_dimensions and any(slices_of(common))
    ]
    return int(min(pods, default=LARGEST_CLUSTER))


def slices_of(common: Resolved) -> tuple[int, int]:
    """Return the chips of a host, and of the least slice whose sides all wrap, of a pod in slices.

    Both are 0 where machines are let in nodes.
    """
    for machine in common.machines:
        chips, cards = (machine.figures[f"{what}_per_node"].value for what in ("gpus", "nics"))
        if machine.torus_dimensions and chips > cards:
            return int(chips / cards), machine.wrap_multiple**machine.torus_dimensions
    return 0, 0


@dataclass(frozen=True)
class Sizes:
    """The numbers of GPUs that are considered for a training."""

    given: Mapping[str, float]  # The model, the batch and the machine
    node: int  # GPUs of a node, or chips of a host
    largest: int
    # Chips of the least slice whose sides all wrap around: smaller ones are powers of two of hosts,
    # larger ones whole numbers of it
    slice: int = 1

    def rising(self, least: float) -> Iterator[int]:
        """Yield numbers of GPUs from one on: of whole nodes, whose number divides well."""
        for count in itertools.count(max(math.ceil(least / self.node), 1)):
            gpus = count * self.node
            if gpus % self.slice and (gpus > self.slice or count & (count - 1)):
                continue
            rest = count
            for prime in range(2, LARGEST_PRIME + 1):
                while rest % prime == 0:
                    rest //= prime
            if rest == 1:
                yield gpus

    def between(self, least: float, end: float) -> list[int]:
        """Return the numbers from one on that are below another."""
        return [*itertools.takewhile(lambda gpus: gpus < end, self.rising(least))]

    def filled(self, gpus: int) -> float:
        """Return the largest share of layers that stages can have of their fullest's; 0: no plan.

        What isn't a stage's divides the batch, heads or tokens, whatever the plan.
        """
        given = self.given
        names = ("global_batch_size", "heads", "sequence_length")
        layers, rest = int(pipeline_layers(given)), math.prod(int(given[name]) for name in names)
        # The embedding and the loss may be stages of their own.
        stages = [pp for pp in range(1, layers + 3) if gpus % pp == 0 and rest % (gpus // pp) == 0]
        return max((layers / pp / -(-layers // pp) for pp in stages), default=0.0)

    def busiest(self, several: Sequence[int]) -> int:
        """Return the number that can keep most GPUs busy."""
        return max(several, key=lambda gpus: gpus * self.filled(gpus))

    def rungs(self, least: float) -> Iterator[int]:
        """Yield a number of each doubling: the first of those whose stages are fullest."""
        for power in itertools.count():
            low, high = (max(least, float(self.node)) * 2.0**n for n in (power, power + 1))
            yield max(self.between(low, high), key=self.filled)

    def beside(self, gpus: int) -> list[int]:
        """Return about half and twice a number, as the figure has them."""
        others = (next(self.rungs(share * gpus)) for share in (0.5, 2.0))
        return [other for other in others if other <= self.largest]

    def expected(self, least: float, *, whole: bool) -> list[int]:
        """Return numbers that are asked for if the second doubling makes it, as most do."""
        numbers = [*itertools.islice(self.rungs(least), 3 if whole else 2)]
        if whole:
            numbers.append(next(self.rungs(0.5 * numbers[1])))
            numbers.append(self.busiest(self.between(least, numbers[1])))
        return [gpus for gpus in numbers if gpus <= self.largest and self.filled(gpus) > 0.0]


def sizes_of(common: Resolved, node: int) -> Sizes:
    """Return the numbers of a machine's GPUs, in nodes of so many or in slices of its pod."""
    host, least_slice = slices_of(common)
    return Sizes(common.constants, host or node, largest_of(common), least_slice or 1)
