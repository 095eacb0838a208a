"""How a collective's algorithm is declared, and the table of all of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from overhead import expression as ex
from overhead.arrays import xp
from overhead.collectives.cost import STEP_PRICES, Cost, mirror, twice
from overhead.formula import document, parameters, summary
from overhead.frozen import frozen
from overhead.labels import COLLECTIVES
from overhead.quantity import VOCABULARY, Array
from overhead.source import SOURCES, Source

# Where an algorithm is defined: conditions on a network's shape, each with its name.


@frozen(slots=True)
class Requirement:
    """A condition that must hold for an algorithm to be defined.

    Attributes
    ----------
    fault : str
        The name of the fault where it doesn't hold, as the flag of a masked cell.
    text : str
        What must hold, in words.
    holds : callable
        Takes quantities as arrays, by name; gives a mask.
    """

    fault: str
    text: str
    holds: Callable[..., Array]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The quantities that it looks at."""
        return parameters(self.holds)


def power_of_two(ranks: Array) -> Array:
    """Return whether numbers are powers of two."""
    return xp.asarray(xp.exp2(xp.round(xp.log2(xp.maximum(ranks, 1.0)))) == ranks)


POWER_OF_TWO = Requirement(
    "ranks_not_power_of_two", "the number of ranks must be a power of two", power_of_two
)


REDUCING = ("all_reduce", "reduce_scatter", "reduce")
BOTH = ("reduce_scatter", "all_gather")
# What the statements of several algorithms say: bytes that a rank sends and bytes over all links
# if no byte moves in vain; 1 where there are others; the time of a chunk over one link, and of all
# chunks along a chain.
EVERY = "(ranks - 1)/ranks*message_bytes"
MINIMAL = "(ranks - 1)*message_bytes"
ONCE = "where(ranks > 1, 1, 0)"
CHUNK = "(latency + message_bytes/(chunks*bandwidth))"
CHAIN = f"where(ranks > 1, ranks - 2 + chunks, 0)*{CHUNK}"

# Networks.


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A declared network, and which of its algorithms stands for an operation."""

    name: str
    position: int  # Where lists have it: of two the lower first
    # By operation the algorithm that the field means by it; an operation may have none
    standard: Mapping[str, str]
    # By operation those that NCCL has there, if they aren't the standard one
    nccl: Mapping[str, tuple[str, ...]]
    tree: str  # The tree algorithm of its all_reduce; empty: none
    requires: tuple[Requirement, ...]  # What must hold for it to exist
    grid: bool  # Whether its shape is sizes along dimensions

    def existing(self, labels: Mapping[str, str]) -> tuple[Requirement, ...]:
        """Return what must hold for it to exist where labels say how many levels it has."""
        pods = labels.get("shape") == "three_levels"
        return tuple(
            requirement
            for requirement in self.requires
            if pods or "nodes_per_pod" not in requirement.inputs
        )


NETWORKS: dict[str, Network] = {}


def network(
    name: str,
    *,
    standard: Mapping[str, str],
    nccl: Mapping[str, tuple[str, ...]] | None = None,
    tree: str = "",
    requires: tuple[Requirement, ...] = (),
    grid: bool = False,
    position: int = 100,
) -> None:
    """Declare a network.

    Parameters
    ----------
    name : str
        The label's value.
    standard : mapping of str to str
        By operation the algorithm that stands for it; an operation may be left out.
    nccl : mapping of str to tuple of str, optional
        By operation the algorithms that NCCL has there, if they aren't the standard one.
    tree : str
        The tree algorithm of its all_reduce, if it has one.
    requires : tuple of Requirement
        What must hold for it to exist.
    grid : bool
        Whether its shape is ``mesh_nx``, ``mesh_ny`` and ``mesh_nz``.
    position : int
        Where lists have it: of two networks the lower first.

    Raises
    ------
    ValueError
        If it is declared already.
    """
    if name in NETWORKS:
        message = f"a network called '{name}' is declared already"
        raise ValueError(message)
    NETWORKS[name] = Network(
        name=name,
        position=position,
        standard=dict(standard),
        nccl=nccl or {},
        tree=tree,
        requires=requires,
        grid=grid,
    )
    ordered = sorted(NETWORKS.values(), key=lambda entry: (entry.position, entry.name))
    NETWORKS.clear()
    NETWORKS.update((entry.name, entry) for entry in ordered)


def trees() -> tuple[str, ...]:
    """Return the networks whose all_reduce has a tree algorithm."""
    return tuple(name for name, member in NETWORKS.items() if member.tree)


# Algorithms.

# Algorithms that no library has in a form of its own are priced by their schedule.
SCHEDULE = "schedule"

# What an algorithm states of itself, with the arguments that say it.
STATEMENTS = {"steps": "steps", "time": "time", "sent_bytes": "sent", "link_bytes": "carried"}

Kernel = TypeVar("Kernel", bound=Callable[..., Cost])

# Of numbers of chunks, both ends included.
Interval = tuple[Any, Any]
MOST_CHUNKS = 2.0**40


def one_piece(**_: Any) -> list[Interval]:
    """Return all numbers of chunks: an algorithm's time has one form of them."""
    return [(1.0, MOST_CHUNKS)]


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
    own_statements : mapping of str to str
        What it states in words of its own, where that says it better than what follows from the
        kernel (`overhead.statements`).
    source, where, assumes
        As of a `Formula`.
    requires : tuple of Requirement
        Where it is defined.
    in_network : bool
        Whether the network itself reduces or multicasts.
    exact_chunks : str
        Condition under which the stated time is exact rather than an upper bound; empty: always.
    form : str
        How a library's profile prices it (`overhead.software`): by its schedule, or in a form of
        its own, which only algorithms have that a library runs.
    pieces : callable
        From its inputs but chunks, by keyword, to the intervals of numbers of chunks on each of
        which its time has one form.
    """

    topology: str
    collective: str
    name: str
    kernel: Callable[..., Cost]
    inputs: tuple[str, ...]
    own_statements: Mapping[str, str]
    key_of_source: str
    where: str = ""
    assumes: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()
    in_network: bool = False
    exact_chunks: str = ""
    form: str = SCHEDULE
    pieces: Callable[..., list[Interval]] = one_piece
    # Module and line of the declaration: what stands first goes first, whatever is loaded first
    line: tuple[str, int] = ("", 0)

    @property
    def key(self) -> tuple[str, str, str]:
        """Topology, collective and name."""
        return self.topology, self.collective, self.name

    @property
    def labels(self) -> dict[str, str]:
        """The labels that it decides."""
        within = "yes" if self.in_network else "no"
        network = {"topology": self.topology, "collective": self.collective}
        return {**network, "in_network": within, "form": self.form}

    @property
    def source(self) -> Source:
        """The publication that it comes from."""
        return SOURCES[self.key_of_source]

    @property
    def conditions(self) -> tuple[Requirement, ...]:
        """Where it is defined, and of which numbers of ranks its network is."""
        return (*self.requires, *self.of_ranks)

    @property
    def of_ranks(self) -> tuple[Requirement, ...]:
        """Of which numbers of ranks its network is, if not of all."""
        return tuple(
            requirement
            for requirement in NETWORKS[self.topology].requires
            if requirement.inputs == ("ranks",)
        )

    @property
    def location(self) -> str:
        """The file and line where it stands."""
        module, line = self.line
        return f"{module}:{line}"

    @property
    def code(self) -> int:
        """The number that stands for its name in files, whatever else there is."""
        return code_of(self.name)

    @property
    def title(self) -> str:
        """What it is, in one line."""
        return summary(self.kernel)

    @property
    def chunked(self) -> bool:
        """Whether it cuts its message into chunks."""
        return "chunks" in self.inputs

    @property
    def reference(self) -> str:
        """The source with the place in it."""
        return self.source.at(self.where)

    @property
    def bound(self) -> str:
        """Where its time is exact, and where it is an upper bound, in words; empty: all exact."""
        return f"exact where {self.exact_chunks}; elsewhere an upper bound" * bool(
            self.exact_chunks
        )

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
        if self.key_of_source not in SOURCES:
            message = (
                f"{'.'.join(self.key)}: the source '{self.key_of_source}' isn't declared; `cite` it"
            )
            raise ValueError(message)
        if self.topology not in NETWORKS or self.collective not in COLLECTIVES:
            message = f"{self.name}: no network '{self.topology}' or collective '{self.collective}'"
            raise ValueError(message)
        # Parsing some of these takes longer than all else that a command does before it answers.
        named = {name for text in self.own_statements.values() for name in ex.words(text)}
        for name in (*self.inputs, *named):
            if name not in VOCABULARY:
                message = f"{'.'.join(self.key)}: '{name}' is not in the vocabulary"
                raise ValueError(message)


class Algorithms(Mapping[tuple[str, str, str], Algorithm]):
    """Algorithms by (topology, collective, name)."""

    def __init__(self) -> None:
        self._algorithms: dict[tuple[str, str, str], Algorithm] = {}
        self._new: list[Algorithm] = []
        self._of: dict[tuple[str, str], tuple[Algorithm, ...]] = {}

    def __getitem__(self, key: tuple[str, str, str]) -> Algorithm:
        return self._algorithms[key]

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self._algorithms)

    def __len__(self) -> int:
        return len(self._algorithms)

    def add(self, declared: Algorithm) -> None:
        """Add an algorithm."""
        if declared.key in self._algorithms:
            known = self._algorithms[declared.key].location
            message = f"the algorithm {'.'.join(declared.key)} is declared already: {known}"
            raise ValueError(message)
        self._algorithms[declared.key] = declared
        self._of.pop(declared.key[:2], None)
        self._new.append(declared)

    def complete(self) -> None:
        """Check what was declared since the last time, and complete its docstrings.

        Raises
        ------
        ValueError
            If a declaration doesn't hold together.
        """
        new, self._new = self._new, []
        for declared in new:
            declared.check()
            if "\n" not in (declared.kernel.__doc__ or ""):
                assumes = "; ".join(declared.assumes)
                document(declared.kernel, "Cost", declared.reference, assumes)

    def of(self, topology: str, collective: str) -> tuple[Algorithm, ...]:
        """Return a collective's algorithms on a network, in the order of their files."""
        where = (topology, collective)
        if where not in self._of:
            algorithms = [member for member in self._algorithms.values() if member.key[:2] == where]
            self._of[where] = tuple(sorted(algorithms, key=lambda member: member.line))
        return self._of[where]

    def names(self, topology: str = "") -> tuple[str, ...]:
        """Return the names of all algorithms, or of those on a network, each once, sorted."""
        return tuple(sorted({key[2] for key in self._algorithms if topology in ("", key[0])}))

    def name_of(self, code: int) -> str:
        """Return the name that a code stands for; "none" for 0."""
        return next((name for name in self.names() if code_of(name) == code), "none")


ALGORITHMS = Algorithms()


def code_of(name: str) -> int:
    """Return the number that stands for an algorithm's name in files: 31 bits of its CRC-32."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _together(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def algorithm(
    topology: str | tuple[str, ...],
    collective: str | tuple[str, ...],
    name: str,
    *,
    source: str,
    steps: str = "",
    time: str = "",
    sent: str = "",
    carried: str = "",
    where: str = "",
    assumes: tuple[str, ...] = (),
    requires: tuple[Requirement, ...] = (),
    in_network: bool = False,
    exact_chunks: str = "",
    form: str = SCHEDULE,
    pieces: Callable[..., list[Interval]] = one_piece,
    links: tuple[str, ...] = (),
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
    steps, time, sent, carried : str, optional
        Expressions of steps, time [s], most bytes that a rank sends and bytes over all links, where
        what follows from the function can't be recorded or is hard to read.
    source, where, assumes
        As of `overhead.formula.formula`.
    requires : tuple of Requirement
        Where it is defined.
    in_network : bool
        Whether the network itself reduces or multicasts.
    exact_chunks : str
        Condition under which the time is exact rather than an upper bound.
    form : str
        How a library's profile prices it, if not by its schedule.
    pieces : callable
        As of an `Algorithm`, where its time has several forms by the number of chunks.
    links : tuple of str
        What of its links the function takes beside its parameters, by keyword.
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
    ValueError
        If it is declared already.
    """
    texts = zip(STATEMENTS, (steps, time, sent, carried), strict=True)
    own_statements = {quantity: text for quantity, text in texts if text}

    def declare(kernel: Kernel) -> Kernel:
        common = Algorithm(
            "",
            "",
            name,
            kernel,
            (*parameters(kernel), *links),
            own_statements,
            source,
            where,
            assumes,
            requires,
            in_network,
            exact_chunks,
            form,
            pieces,
            (kernel.__code__.co_filename, kernel.__code__.co_firstlineno),
        )
        for network in _together(topology):
            for operation in _together(collective):
                ALGORITHMS.add(replace(common, topology=network, collective=operation))
            if doubled:
                ALGORITHMS.add(_doubled(common, network))
            if mirrored:
                ALGORITHMS.add(_mirrored(common, network))
        return kernel

    return declare


def _doubled(half: Algorithm, topology: str) -> Algorithm:
    ramps = {ramp for *_, ramp in STEP_PRICES} & {*half.inputs}

    def kernel(**inputs: Any) -> Cost:
        # Both halves have one ramp, which grows with the root of what they take.
        return twice(half.kernel(**inputs | {name: 0.5 * inputs[name] for name in ramps}))

    kernel.__doc__ = f"{half.title}, as reduce_scatter and then as all_gather."
    return replace(
        half,
        topology=topology,
        collective="all_reduce",
        kernel=kernel,
        own_statements={name: f"2*({text})" for name, text in half.own_statements.items()},
    )


def _mirrored(forward: Algorithm, topology: str) -> Algorithm:
    def kernel(**inputs: Any) -> Cost:
        ranks = inputs["ranks"] if "ranks" in inputs else _ranks(inputs)
        return mirror(forward.kernel(**inputs), ranks)

    kernel.__doc__ = f"{forward.title}, run backwards."
    return replace(
        forward,
        topology=topology,
        collective="reduce",
        kernel=kernel,
        own_statements={
            name: text for name, text in forward.own_statements.items() if name != "sent_bytes"
        },
    )


def _ranks(inputs: Mapping[str, Any]) -> Any:
    if "mesh_nx" in inputs:
        return inputs["mesh_nx"] * inputs["mesh_ny"] * inputs["mesh_nz"]
    return inputs["node_ranks"] * inputs["nodes"] * inputs["pods"]
