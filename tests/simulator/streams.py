"""Streams of bytes that flow up to a sum and down again, as many at once as share the buffer.

Nobody waits for a whole block: what comes in is passed on as it comes in.  So all streams together
last as long as the latency of the longest way up and down, and the bytes of the busiest link.
A stream adds up what all ranks have at one place, and hands the sum to all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from tests.simulator.core import Outcome
from tests.simulator.hierarchical_network import Hierarchy
from tests.simulator.model import Case, ScheduleFault, Undefined

Place = Hashable


@dataclass(frozen=True)
class Hop:
    """What flows from one place to the next.

    `sender`: the rank that sends it; None where a switch passes it on.  `adds`: the rank that adds
    it to its own.  `merged`: a switch adds up or multicasts, so that of all such hops of a stream
    each link carries the bytes once.
    """

    start: Place
    end: Place
    links: tuple[tuple[int, int], ...]
    latency: Fraction
    sender: int | None
    adds: int | None = None
    merged: bool = False


@dataclass(frozen=True)
class Stream:
    """A part of the buffer, its hops to the place of the sum, and those from there."""

    share: Fraction
    up: tuple[Hop, ...]
    top: Place
    down: tuple[Hop, ...]


def longest(hops: Sequence[Hop], top: Place, *, up: bool) -> tuple[dict[Place, int], Fraction]:
    """Return the hops between each place and the top, and the latency of the longest way."""
    towards: dict[Place, Hop] = {}
    for hop in hops:
        far = hop.start if up else hop.end
        if far in towards or far == top:
            msg = f"{far} has two ways"
            raise ScheduleFault(msg)
        towards[far] = hop
    counts, most = {top: 0}, Fraction(0)
    for toward in towards:
        count, latency, at = 0, Fraction(0), toward
        while at != top:
            if count > len(towards):
                msg = f"{toward} isn't joined to the sum"
                raise ScheduleFault(msg)
            hop = towards[at]
            count, latency, at = count + 1, latency + hop.latency, hop.end if up else hop.start
        counts[toward] = count
        most = max(most, latency)
    return counts, most


def run(case: Case, streams: Sequence[Stream]) -> Outcome:
    """Return what streams cost; raise `ScheduleFault` where they don't compute the all_reduce."""
    network = Hierarchy(case.sizes, ranks_sharing_nic=case.ranks_sharing_nic).network(case)
    if sum(stream.share for stream in streams) != 1:
        msg = "the streams aren't the buffer"
        raise ScheduleFault(msg)
    load: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    sent: defaultdict[int, Fraction] = defaultdict(Fraction)
    reduced: defaultdict[int, Fraction] = defaultdict(Fraction)
    steps, latency = 0, Fraction(0)
    for stream in streams:
        ways = [longest(stream.up, stream.top, up=True), longest(stream.down, stream.top, up=False)]
        for counts, _ in ways:
            if not all(rank in counts for rank in range(case.ranks)):
                msg = "a rank is left out"
                raise ScheduleFault(msg)
        steps = max(steps, sum(max(counts.values()) for counts, _ in ways))
        latency = max(latency, sum((most for _, most in ways), Fraction(0)))
        for hops in (stream.up, stream.down):
            once = {link for hop in hops if hop.merged for link in hop.links}
            for link in (*once, *(link for hop in hops if not hop.merged for link in hop.links)):
                load[link] += stream.share * case.message
            for hop in hops:
                if hop.sender is not None:
                    sent[hop.sender] += stream.share * case.message
                if hop.adds is not None:
                    reduced[hop.adds] += stream.share * case.message
    transfer = max((size / network.links[link].bandwidth for link, size in load.items()))
    levels = [Fraction(0)] * len(case.latency)
    for link, size in load.items():
        levels[network.links[link].level] += size * network.links[link].share
    nothing = Fraction(0)
    return Outcome(
        latency + transfer,
        steps,
        max(sent.values(), default=nothing),
        tuple(levels),
        max(reduced.values(), default=nothing),
    )


def parents(count: int) -> dict[int, int]:
    """Return the parents in a binary tree over 0 .. count - 1, in order, rooted at 0.

    A number hangs below that without its lowest bit, or below the next power of two above it.
    """
    found = {}
    for node in range(1, count):
        low = node & -node
        above = (node | (low << 1)) & ~low
        found[node] = above if above < count else node & ~low
    return found


def trees(count: int) -> list[dict[int, int]]:
    """Return two trees over the nodes, one the other's mirror image or shift, in all turns."""
    one = parents(count)
    mirrored = count % 2 == 0
    other = {
        (count - 1 - child if mirrored else (child + 1) % count): (
            count - 1 - parent if mirrored else (parent + 1) % count
        )
        for child, parent in one.items()
    }
    return [
        {(child + turn) % count: (parent + turn) % count for child, parent in tree.items()}
        for turn in range(count)
        for tree in (one, other)
    ]


def two_levels(case: Case) -> tuple[Hierarchy, int, int]:
    if len(case.sizes) > 2:
        msg = "streams know two levels"
        raise Undefined(msg)
    return Hierarchy(case.sizes, ranks_sharing_nic=case.ranks_sharing_nic), *case.sizes


def between(case: Case, grid: Hierarchy, tree: dict[int, int], head: int) -> list[Hop]:
    """Return the hops up a tree over the nodes, between the ranks at one place in them."""
    size = case.sizes[0]
    hops = []
    for child, parent in tree.items():
        start, end = child * size + head, parent * size + head
        links = tuple(pairwise(grid.between(start, end)))
        hops.append(Hop(start, end, links, case.latency[1], start, end))
    return hops


def back(hop: Hop) -> Hop:
    """Return a hop on the way down, between ranks."""
    assert isinstance(hop.end, int)
    links = tuple((end, start) for start, end in hop.links)
    return Hop(hop.end, hop.start, links, hop.latency, hop.end)


def root(tree: dict[int, int]) -> int:
    (only,) = set(tree.values()) - set(tree) or {0}
    return only


def tree_path(case: Case) -> Outcome:
    """Chains of each node's ranks, every rank at the head of one, under the trees."""
    grid, size, nodes = two_levels(case)
    streams = []
    for tree in trees(nodes):
        for head in range(size):
            hops = between(case, grid, tree, head)
            for node in range(nodes):
                chain = [node * size + (head + place) % size for place in range(size)]
                for end, start in pairwise(chain):
                    links = tuple(pairwise(grid.between(start, end)))
                    hops.append(Hop(start, end, links, case.latency[0], start, end))
            down = tuple(back(hop) for hop in hops)
            share = Fraction(1, size * 2 * nodes)
            streams.append(Stream(share, tuple(hops), root(tree) * size + head, down))
    return run(case, streams)


def through_switch(
    case: Case, grid: Hierarchy, node: int, head: int
) -> tuple[list[Hop], list[Hop], Place]:
    """Return the hops by which a rank reads its node's sum through the switch, and writes it.

    A rank reads its own share through the switch, too; where it has it, is the place returned.
    """
    size = case.sizes[0]
    reader = node * size + head
    if size == 1:
        return [], [], reader
    switch = grid.switch(reader, 0)
    place = ("sum", reader)
    latency = case.latency[0]
    up = [
        Hop(rank, place, ((rank, switch), (switch, reader)), latency, rank, merged=True)
        for rank in range(node * size, (node + 1) * size)
    ]
    down = [
        Hop(place, rank, ((reader, switch), (switch, rank)), latency, None, merged=True)
        for rank in range(node * size, (node + 1) * size)
    ]
    # What a rank writes leaves it once.
    down[head] = Hop(place, reader, down[head].links, latency, reader, merged=True)
    return up, down, place


def nvls(case: Case, heads: list[tuple[Fraction, int, list[Hop], list[Hop], Place]]) -> Outcome:
    """Run streams whose nodes' switches reduce and multicast, given what joins their heads."""
    grid, size, nodes = two_levels(case)
    streams = []
    for share, head, joined, parted, top in heads:
        up, down = [], []
        places = {}
        for node in range(nodes):
            more, less, place = through_switch(case, grid, node, head)
            up += more
            down += less
            places[node * size + head] = place
        for hops, more in ((up, joined), (down, parted)):
            hops += [
                replace(h, start=places.get(h.start, h.start), end=places.get(h.end, h.end))
                for h in more
            ]
        streams.append(Stream(share, tuple(up), places.get(top, top), tuple(down)))
    return run(case, streams)


def one_switch(case: Case) -> Outcome:
    """The switch of all ranks reduces and multicasts: a node alone."""
    node = replace(case, sizes=(case.ranks, 1))
    nothing = Fraction(0)
    alone = replace(
        node, latency=(*case.latency, nothing), bandwidth=(*case.bandwidth, Fraction(1))
    )
    heads = [(Fraction(1, case.ranks), head, [], [], head) for head in range(case.ranks)]
    found = nvls(alone, heads)
    return replace(found, carried=found.carried[:1])


def nvls_tree(case: Case) -> Outcome:
    """The trees between nodes whose switches reduce and multicast."""
    grid, size, nodes = two_levels(case)
    heads = []
    for tree in trees(nodes):
        for head in range(size):
            up = between(case, grid, tree, head)
            down = [back(hop) for hop in up]
            share = Fraction(1, size * 2 * nodes)
            heads.append((share, head, up, down, root(tree) * size + head))
    return nvls(case, heads)


def nvls_sharp(case: Case) -> Outcome:
    """Switches between the nodes that add up what each sends, and send the sum to each."""
    grid, size, nodes = two_levels(case)
    heads = []
    for head in range(size):
        up: list[Hop] = []
        down: list[Hop] = []
        top: Place = head
        if nodes > 1:
            top = "switch"
            for node in range(nodes):
                rank = node * size + head
                links = tuple(pairwise(grid.ports(rank, 1)))
                up.append(Hop(rank, top, links, case.latency[1], rank))
                inwards = tuple((end, start) for start, end in links)
                down.append(Hop(top, rank, inwards, case.latency[1], None))
        heads.append((Fraction(1, size), head, up, down, top))
    return nvls(case, heads)


STREAMS = {
    ("switch", "all_reduce", "nvls"): one_switch,
    ("hierarchical", "all_reduce", "tree_path"): tree_path,
    ("hierarchical", "all_reduce", "nvls_tree"): nvls_tree,
    ("hierarchical", "all_reduce", "nvls_sharp"): nvls_sharp,
}
