"""How a collective's algorithm is declared, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from overhead import expression as ex
from overhead.collectives.cost import Cost, mirror, twice
from overhead.collectives.requirement import Requirement
from overhead.formula import document, parameters, summary
from overhead.quantity import VOCABULARY
from overhead.source import SOURCES, Source

__all__ = ["ALGORITHMS", "COLLECTIVES", "TOPOLOGIES", "Algorithm", "Algorithms", "algorithm"]

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "p2p",
)
TOPOLOGIES = ("ring", "tree", "hierarchical", "switch", "mesh", "torus", "binary_tree")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")

Kernel = TypeVar("Kernel", bound=Callable[..., Cost])


@dataclass(frozen=True, slots=True, eq=False)
class Algorithm:
    """A declared algorithm of one collective on one network.

    Attributes
    ----------
    topology, collective, name : str
        What it is an algorithm of, and its name.
    kernel : callable
        Takes the network's shape as arrays that broadcast; gives a `Cost`.
    inputs : tuple of str
        The quantities that the kernel takes.
    statements : mapping of str to str
        The expressions of ``steps``, ``time``, ``sent_bytes`` and ``link_bytes``.
    source, where, assumes
        As of a `Formula`.
    requires : tuple of Requirement
        Where it is defined.
    in_network : bool
        Whether the network itself reduces or multicasts.
    exact_chunks : str
        Condition under which the stated time is exact rather than an upper bound; empty: always.
    """

    topology: str
    collective: str
    name: str
    kernel: Callable[..., Cost]
    inputs: tuple[str, ...]
    statements: Mapping[str, str]
    source: Source
    where: str = ""
    assumes: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()
    in_network: bool = False
    exact_chunks: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Topology, collective and name."""
        return self.topology, self.collective, self.name

    @property
    def title(self) -> str:
        """What it is, in one line."""
        return summary(self.kernel)

    @property
    def chunked(self) -> bool:
        """Whether it cuts its message into chunks."""
        return "chunks" in self.inputs

    @property
    def expression(self) -> str:
        """The stated expression of its time."""
        return self.statements["time"]

    @property
    def statement(self) -> str:
        """The stated time as an equation."""
        return f"time = {self.expression}"

    @property
    def latex(self) -> str:
        """The stated time as LaTeX."""
        return f"T = {ex.latex(self.expression)}"

    @property
    def reference(self) -> str:
        """The source with the place in it."""
        return self.source.at(self.where)

    def cost(self, **inputs: Any) -> Cost:
        """Return what it costs; nothing is reduced by a collective that doesn't reduce."""
        cost = self.kernel(**inputs)
        return cost if self.collective in REDUCING else replace(cost, reduced=0.0)

    def check(self) -> None:
        """Check that the declaration holds together.

        Raises
        ------
        ValueError
            If a label, a parameter or a name in a statement is unknown.
        """
        if self.topology not in TOPOLOGIES or self.collective not in COLLECTIVES:
            message = f"{self.name}: no network '{self.topology}' or collective '{self.collective}'"
            raise ValueError(message)
        named = [name for text in self.statements.values() for name in ex.names(text)]
        for name in (*self.inputs, *named):
            if name not in VOCABULARY:
                message = f"{'.'.join(self.key)}: '{name}' is not in the vocabulary"
                raise ValueError(message)


class Algorithms(Mapping[tuple[str, str, str], Algorithm]):
    """Algorithms by (topology, collective, name)."""

    def __init__(self) -> None:
        self._algorithms: dict[tuple[str, str, str], Algorithm] = {}

    def __getitem__(self, key: tuple[str, str, str]) -> Algorithm:
        return self._algorithms[key]

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self._algorithms)

    def __len__(self) -> int:
        return len(self._algorithms)

    def add(self, declared: Algorithm) -> None:
        """Add an algorithm."""
        if declared.key in self._algorithms:
            message = f"the algorithm {'.'.join(declared.key)} is declared already"
            raise ValueError(message)
        self._algorithms[declared.key] = declared

    def of(self, topology: str, collective: str) -> tuple[Algorithm, ...]:
        """Return a collective's algorithms on a network, in the order of declaration."""
        return tuple(a for a in self._algorithms.values() if a.key[:2] == (topology, collective))

    def names(self) -> tuple[str, ...]:
        """Return the names of all algorithms, each once, in the order of declaration."""
        return tuple(dict.fromkeys(key[2] for key in self._algorithms))


ALGORITHMS = Algorithms()


def _together(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def algorithm(
    topology: str | tuple[str, ...],
    collective: str | tuple[str, ...],
    name: str,
    *,
    steps: str,
    time: str,
    sent: str,
    carried: str,
    source: str,
    where: str = "",
    assumes: tuple[str, ...] = (),
    requires: tuple[Requirement, ...] = (),
    in_network: bool = False,
    exact_chunks: str = "",
    doubled: bool = False,
    mirrored: bool = False,
) -> Callable[[Kernel], Kernel]:
    """Declare a function as the cost of an algorithm, and register it.

    Parameters
    ----------
    topology, collective : str or tuple of str
        The networks and collectives of which it is an algorithm.
    name : str
        Its name.
    steps, time, sent, carried : str
        Stated expressions: steps, time [s], most bytes that a rank sends and bytes over all links.
    source, where, assumes
        As of `overhead.formula.formula`.
    requires : tuple of Requirement
        Where it is defined.
    in_network : bool
        Whether the network itself reduces or multicasts.
    exact_chunks : str
        Condition under which the time is exact rather than an upper bound.
    doubled : bool
        Declare the all_reduce too that runs it twice, as reduce_scatter and as all_gather.
    mirrored : bool
        Declare the reduce too that runs it, a broadcast, backwards.

    Returns
    -------
    callable
        The decorator; the function stays as it is.

    Raises
    ------
    KeyError
        If the source isn't declared.
    ValueError
        If it is declared already.
    """
    cited = SOURCES[source]
    stated = {"steps": steps, "time": time, "sent_bytes": sent, "link_bytes": carried}

    def declare(kernel: Kernel) -> Kernel:
        document(kernel, "Cost", cited.at(where), "; ".join(assumes))
        common = Algorithm(
            "", "", name, kernel, parameters(kernel), stated, cited, where, assumes, requires,
            in_network, exact_chunks,
        )  # fmt: skip
        for place in _together(topology):
            for operation in _together(collective):
                ALGORITHMS.add(replace(common, topology=place, collective=operation))
            if doubled:
                ALGORITHMS.add(_doubled(common, place))
            if mirrored:
                ALGORITHMS.add(_mirrored(common, place))
        return kernel

    return declare


def _doubled(half: Algorithm, topology: str) -> Algorithm:
    def kernel(**inputs: Any) -> Cost:
        return twice(half.kernel(**inputs))

    kernel.__doc__ = f"{half.title}, as reduce_scatter and then as all_gather."
    return replace(
        half,
        topology=topology,
        collective="all_reduce",
        kernel=kernel,
        statements={name: f"2*({text})" for name, text in half.statements.items()},
    )


def _mirrored(forward: Algorithm, topology: str) -> Algorithm:
    def kernel(**inputs: Any) -> Cost:
        ranks = inputs["ranks"] if "ranks" in inputs else _ranks(inputs)
        return mirror(forward.kernel(**inputs), ranks)

    kernel.__doc__ = f"{forward.title}, run backwards."
    sent = {"sent_bytes": "where(ranks > 1, message_bytes, 0*message_bytes)"}
    return replace(
        forward,
        topology=topology,
        collective="reduce",
        kernel=kernel,
        statements={**forward.statements, **sent},
    )


def _ranks(inputs: Mapping[str, Any]) -> Any:
    if "mesh_nx" in inputs:
        return inputs["mesh_nx"] * inputs["mesh_ny"] * inputs["mesh_nz"]
    return inputs["node_ranks"] * inputs["nodes"] * inputs["pods"]
