"""The vocabulary: every quantity that a formula may take or give, with its symbol, unit and domain.

The vocabulary is closed: the name of a formula's parameter is the name of a quantity here.  A
user's own formulas may add to it with `define`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.arrays import in_numpy

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A named quantity in its canonical unit.

    Attributes
    ----------
    name : str
        The name, as parameters, files, specs and flags have it.
    symbol : str
        LaTeX.
    units : str
        The canonical unit as UDUNITS writes it; ``"1"`` for a bare number.
    meaning : str
        What it is, in words.
    minimum, maximum : float
        The domain's ends, both included unless `above` says otherwise.
    above : bool
        Whether the minimum itself is outside of the domain.
    integer : bool
        Whether only whole numbers are in the domain.
    """

    name: str
    symbol: str
    units: str
    meaning: str
    minimum: float = -np.inf
    maximum: float = np.inf
    above: bool = False
    integer: bool = False

    def domain(self) -> str:
        """Return the domain in words."""
        kind = "a whole number" if self.integer else "a number"
        parts = []
        if self.minimum > -np.inf:
            parts.append(f"above {self.minimum:g}" if self.above else f"from {self.minimum:g}")
        if self.maximum < np.inf:
            parts.append(f"up to {self.maximum:g}")
        return " ".join([kind, *parts])

    def outside(self, values: Array) -> Array:
        """Return a mask of the values that are outside of the domain (shape of `values`)."""
        values = in_numpy(values)
        low = values <= self.minimum if self.above else values < self.minimum
        wrong = low | (values > self.maximum) | np.isnan(values)
        if self.integer:
            wrong = wrong | (values != np.floor(values))
        return np.asarray(wrong)

    def attrs(self) -> dict[str, str]:
        """Return the metadata of a variable that holds this quantity."""
        return {"long_name": self.meaning, "units": self.units, "symbol": f"${self.symbol}$"}


class Vocabulary(Mapping[str, Quantity]):
    """Quantities by name; a name stands once.

    A collective needs few of them, and starts faster with these `first` ones alone.  Where another
    is asked for, `load_rest` defines all others, once, with their formulas.
    """

    def __init__(self) -> None:
        self._quantities: dict[str, Quantity] = {}
        self.load_rest: Callable[[], None] | None = None
        self.first: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Quantity:
        if name not in self._quantities:
            self.load_everything()
        try:
            return self._quantities[name]
        except KeyError:
            message = f"no quantity is called '{name}': define it in the vocabulary first"
            raise KeyError(message) from None

    def wait(self, load: Callable[[], None]) -> None:
        """Let what isn't defined yet be loaded when it is asked for."""
        self.first, self.load_rest = frozenset(self._quantities), load

    def load_everything(self) -> None:
        """Define what isn't loaded yet."""
        if self.load_rest is not None:
            load, self.load_rest = self.load_rest, None
            load()

    def __iter__(self) -> Iterator[str]:
        self.load_everything()
        return iter(self._quantities)

    def __len__(self) -> int:
        self.load_everything()
        return len(self._quantities)

    def add(self, quantity: Quantity) -> Quantity:
        """Add a quantity."""
        present = self._quantities.get(quantity.name)
        if present is not None and present != quantity:
            message = f"the quantity '{quantity.name}' is defined already, as '{present.meaning}'"
            raise ValueError(message)
        self._quantities[quantity.name] = quantity
        return quantity


VOCABULARY = Vocabulary()


def define(name: str, symbol: str, units: str, meaning: str, **domain: Any) -> Quantity:
    """Define a quantity and add it to the vocabulary.

    Parameters
    ----------
    name, symbol, units, meaning : str
        As in `Quantity`.
    **domain
        ``minimum``, ``maximum``, ``above`` and ``integer`` of `Quantity`.

    Returns
    -------
    Quantity
        The quantity.

    Raises
    ------
    ValueError
        If another quantity has the name already.
    """
    return VOCABULARY.add(Quantity(name, symbol, units, meaning, **domain))


def amount(name: str, symbol: str, units: str, meaning: str, **domain: Any) -> Quantity:
    """Define a quantity that is never below 0, as `define` does any."""
    return define(name, symbol, units, meaning, minimum=0, **domain)


def _count(name: str, symbol: str, meaning: str, minimum: float = 1) -> None:
    define(name, symbol, "1", meaning, minimum=minimum, integer=True)


def _fraction(name: str, symbol: str, meaning: str) -> None:
    amount(name, symbol, "1", meaning)


def _link(level: str, mark: str, words: str) -> None:
    prefix = f"{level}_" if level else ""
    amount(f"{prefix}latency", rf"\alpha{mark}", "s", f"latency of one {words}")
    amount(
        f"{prefix}bandwidth",
        f"B{mark}",
        "byte s-1",
        f"bandwidth of one direction of one {words} (on a switch: of a rank's port)",
        above=True,
    )
    amount(f"{prefix}energy_per_bit", f"e{mark}", "J bit-1", f"energy of one bit over one {words}")


def _level_counts(level: str, mark: str, words: str) -> None:
    prefix = f"{level}_" if level else ""
    _fraction(f"{prefix}latency_count", f"A{mark}", f"latencies paid one after another{words}")
    _fraction(
        f"{prefix}transfer_fraction",
        f"W{mark}",
        f"bytes sent one after another over the slowest link{words}, in messages",
    )
    _fraction(
        f"{prefix}link_fraction", f"C{mark}", f"bytes over all links together{words}, in messages"
    )


# The group and its message.
_count("ranks", "N", "number of ranks in the group")
amount("message_bytes", "M", "byte", "message size (as nccl-tests counts it)")
_count("chunks", "k", "chunks that a pipelined algorithm cuts its message into")
_count("phase_chunks", "S", "chunks over which phases on different dimensions are pipelined")
_count("hops", "h", "links between sender and receiver", minimum=0)
amount("reduction_cost", r"\gamma", "s byte-1", "time to reduce one byte into another")

# Links: of a flat network, and of the levels of a hierarchy.
_link("", "", "link")
_link("intra", "_1", "link inside a node")
_link("inter", "_2", "link between nodes (one network card)")
_link("pod", "_3", "link between pods (one network card)")
define("oversubscription", "o_2", "1", "oversubscription between nodes", minimum=1)
define("pod_oversubscription", "o_3", "1", "oversubscription between pods", minimum=1)
_count("leaf_nodes", "s", "nodes under one leaf switch, which is what is oversubscribed")
define("uplink_oversubscription", "o_u", "1", "oversubscription that traffic between nodes meets",
       minimum=1)  # fmt: skip

amount(
    "in_network_latency",
    r"\alpha_s",
    "s",
    "latency of a message that the switch reduces or multicasts",
)
amount(
    "in_network_latency_factor",
    r"\phi_s",
    "1",
    "latency of a message that the switch reduces or multicasts, by a plain one's",
)

# Shapes of networks.
for _axis, _mark in zip("xyz", "123", strict=True):
    _count(f"mesh_n{_axis}", f"n_{_mark}", f"ranks along {_axis} of a mesh or torus")
_count("mesh_dimensions", "d", "dimensions of a mesh or torus that is given by its ranks alone")
_count("gpus_per_node", "g_0", "GPUs in a node")
_count("nics_per_node", "c", "network cards in a node")
_count("nodes_per_pod", "p_0", "nodes in a pod")
_count("node_ranks", "g", "ranks of the group in one node")
_count("nodes", "G", "nodes of the group in one pod")
_count("pods", "P", "pods of the group")
amount("ranks_per_nic", "f", "1", "ranks of a node that share a network card", above=True)
for _name, _words in (
    ("intra_nvls", "whether the switch inside a node reduces and multicasts (NVLS)"),
    ("intra_inc", "whether the switch inside a node reduces in the network (SHARP)"),
    ("inter_inc", "whether the switches between nodes reduce in the network (SHARP)"),
    ("has_nvls", "whether the switch reduces and multicasts what ranks read and write (NVLS)"),
    ("has_inc", "whether the switch reduces in the network (SHARP)"),
):
    _mark = rf"\mathrm{{{_name.replace('_', '-')}}}"
    amount(_name, _mark, "1", _words, maximum=1, integer=True)

# What an algorithm's schedule costs, as multiples of latencies and messages.
amount("steps", "s", "1", "steps of the algorithm's schedule")
_level_counts("", "", "")
for _number in (1, 2, 3):
    _level_counts(f"dimension_{_number}", f"_{_number}", f" on dimension {_number}")
_level_counts("intra", "_1", " inside nodes")
_level_counts("inter", "_2", " between nodes")
_level_counts("pod", "_3", " between pods")
_fraction("sent_fraction", "V", "bytes that the busiest rank sends, in messages")
_fraction("reduced_fraction", "R", "bytes that the busiest rank reduces, in messages")
amount(
    "phases_apart",
    r"\phi",
    "1",
    "whether phases on different levels follow one another",
    maximum=1,
    integer=True,
)

# Results.
amount("wire_time", r"t_w", "s", "time of the whole message over one link")
amount("inner_step_latency", r"a'", "s", "latency of a step of a flat network")
amount("step_wire_time", "t_s", "s",
       "time of the whole message over one link, at the rate that steps reach")  # fmt: skip
amount("step_ramp_time", "r_s", "s",
       "time constant of the ramp of steps, by the time of their bytes")  # fmt: skip
for _level, _mark, _words in (
    ("intra", "1", "inside a node"),
    ("inter", "2", "between nodes"),
    ("pod", "3", "between pods"),
):
    amount(
        f"{_level}_wire_time",
        f"t_{{w{_mark}}}",
        "s",
        f"time of the whole message over one link {_words}",
    )
    # What a step pays there, with a library or by the links alone
    amount(f"{_level}_step_latency", rf"\alpha_{{s{_mark}}}", "s", f"latency of a step {_words}")
    amount(
        f"{_level}_step_wire_time",
        f"t_{{s{_mark}}}",
        "s",
        f"time of the whole message over one link {_words}, at the rate that steps reach",
    )
    amount(
        f"{_level}_step_ramp_time",
        f"r_{{s{_mark}}}",
        "s",
        f"time constant of the ramp of steps {_words}, by the time of their bytes",
    )
amount("time", "T", "s", "time of the operation")
amount("time_is_upper_bound", r"\hat{T}", "1", "whether the time is an upper bound (1) rather than "
       "exact (0)", maximum=1, integer=True)  # fmt: skip
amount("latency_time", r"T_\alpha", "s", "part of the time that is latency")
amount("bandwidth_time", "T_B", "s", "part of the time that is transfer")
amount("reduction_time", r"T_\gamma", "s", "part of the time that is reduction")
for _number in (1, 2, 3):
    for _part, _mark, _words in (
        ("time", f"t_{_number}", "time of"),
        ("latency_time", rf"t_{{\alpha,{_number}}}", "latency of"),
        ("transfer_time", f"t_{{B,{_number}}}", "transfer of"),
    ):
        amount(f"phase_{_number}_{_part}", _mark, "s",
               f"{_words} one chunk's phases on dimension {_number}")  # fmt: skip
    define(f"phase_{_number}_passes", f"P_{_number}", "1",
           f"chunks whose phases on dimension {_number} are waited for", minimum=1)  # fmt: skip
define("pipelined_chunks", "S_p", "1", "chunks that follow one another through the dimensions",
       minimum=1)  # fmt: skip
amount("hidden_phase_time", "T_h", "s",
       "time of the phases that go on beside the slowest dimension's")  # fmt: skip
amount("intra_time", "T_1", "s", "part of the time spent inside nodes")
amount("inter_time", "T_2", "s", "part of the time spent between nodes")
amount("pod_time", "T_3", "s", "part of the time spent between pods")
amount("sent_bytes", "V_M", "byte", "most bytes that one rank sends")
amount("link_bytes", "C_M", "byte", "bytes over all links together")
amount("energy", "E", "J", "energy of all bytes over all links")
amount("algbw", r"B_\mathrm{alg}", "byte s-1", "algorithm bandwidth (message size by time)")
amount("bus_factor", r"b", "1", "factor from algorithm to bus bandwidth (nccl-tests)")
amount("busbw", r"B_\mathrm{bus}", "byte s-1", "bus bandwidth as nccl-tests has it")
_fraction("diameter", "D", "links between the ranks furthest apart (of a broadcast: from its root)")
define("ports", "p", "1", "links out of the rank that has fewest", minimum=1)
define("links", r"\ell", "1", "links together, each direction counted", minimum=1)
_fraction(
    "pair_cut", "w", "messages M through the busiest link of the worst cut, if all pairs exchange"
)
for _group, _mark, _words in (
    ("rank", "1", "one rank that sends alone"),
    ("mean", r"\mathrm{m}", "one rank when all send"),
    ("node", "2", "one node, by the group's network cards"),
    ("pod", "3", "one pod, by the group's network cards"),
):
    amount(
        f"{_group}_capacity",
        f"K_{_mark}",
        "byte s-1",
        f"bytes a second out of {_words}",
        above=True,
    )
amount("latency_bound", r"L_\alpha", "s", "least latency of the operation")
amount("bandwidth_bound", "L_B", "s", "least time of the operation's bytes")
amount("lower_bound", "L", "s", "physical lower bound of the time")
amount("lower_bound_ratio", "T/L", "1", "time over its physical lower bound")


class Bits(dict[str, int]):
    """A bit for each name, so that a set of names is a number."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, 1 << len(self))

    def of(self, names: Iterable[str]) -> int:
        """Return the bits of several names."""
        return reduce(or_, (self[name] for name in names), 0)


BITS = Bits()  # Of labels and quantities alike: those of one name are taken for one another


def short(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key of small integers in place of nested ones (interning keeps them apart)."""
    return ("k", _NUMBERS.setdefault(key, len(_NUMBERS)))


_NUMBERS: dict[tuple[Any, ...], int] = {}
