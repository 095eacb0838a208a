"""The vocabulary of typed hops: paths over links of two types, and what strategies send on them."""

from __future__ import annotations

from overhead import plan_quantities
from overhead.quantity import define

__all__ = ["plan_quantities"]


def _named(base: str, name: str) -> str:
    return rf"{base}_{{\mathrm{{{name}}}}}"


for _level, _mark, _words in (("intra", "1", "inside nodes"), ("inter", "2", "between nodes")):
    define(
        f"{_level}_hops",
        f"h_{_mark}",
        "1",
        f"links {_words} that a message passes",
        minimum=0,
        integer=True,
    )
define("path_time", _named("t", "path"), "s", "time of a message over all links of its path",
       minimum=0)  # fmt: skip
define("path_energy", _named("e", "path"), "J", "energy of a message over all links of its path",
       minimum=0)  # fmt: skip

# A ring of ranks, in the order of their nodes.
define("ring_chunk_bytes", _named("M", "chunk"), "byte", "bytes of a ring's message", minimum=0)
define("crossing_links", _named("n", "x"), "1", "links of a ring between nodes", minimum=0)
for _end, _words in (("node", "a link inside a node"), ("crossing", "a link between nodes")):
    for _level, _mark, _type in (("intra", "1", "inside nodes"), ("inter", "2", "between nodes")):
        define(
            f"{_end}_{_level}_hops",
            f"h_{{{_mark},{_end[0]}}}",
            "1",
            f"links {_type} that {_words} of the ring consists of",
            minimum=0,
            integer=True,
        )
    define(f"{_end}_path_time", _named("t", f"{_end}"), "s", f"time of a message over {_words}",
           minimum=0)  # fmt: skip
    define(f"{_end}_path_energy", _named("e", f"{_end}"), "J", f"energy of a message over {_words}",
           minimum=0)  # fmt: skip
define("ring_time", _named("T", "ring"), "s", "time of an all_reduce round a ring", minimum=0)
define("ring_energy", _named("E", "ring"), "J", "energy of an all_reduce round a ring", minimum=0)
define("ring_rank_bytes", _named("V", "ring"), "byte",
       "bytes that a rank sends in an all_reduce round a ring", minimum=0)  # fmt: skip

# What a strategy sends for one layer.
for _name, _symbol, _units, _meaning in (
    ("strategy_time", _named("T", "s"), "s", "time of a strategy's communication of one layer"),
    ("strategy_energy", _named("E", "s"), "J", "energy of a strategy's communication of one layer"),
    ("rank_volume", _named("V", "rank"), "byte", "bytes that one rank sends for one layer"),
    ("total_volume", _named("V", "all"), "byte", "bytes that all ranks send for one layer"),
):
    define(_name, _symbol, _units, _meaning, minimum=0)
