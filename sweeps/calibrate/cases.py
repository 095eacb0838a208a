"""Tests placed on a machine: the operation, its ranks, and the nodes that they are on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sweeps.calibrate.log import LogRow, LogTest, known_operations, operation_of
from sweeps.calibrate.rates import checked_rates, implied_ranks
from sweeps.errors import InputError, fault
from sweeps.spec.catalog import Machine

__all__ = ["Case", "Stated", "cases_of"]

# No host has more GPUs of its own; a machine whose node is larger joins several hosts (a rack).
MOST_IN_A_HOST = 16
_DEVICE = re.compile(r"\b(?:MI|GB|[A-Z])\d{2,3}[A-Z]?\b")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the user says of logs that don't say it: 0 and nothing where they do."""

    operation: str = ""  # The collective
    ranks: int = 0  # All ranks, and those of one node
    gpus_per_node: int = 0  # All ranks, and those of one node


@dataclass(frozen=True, slots=True)
class Case:
    """One test on a machine."""

    test: LogTest  # As it was read
    name: str  # What it is called: its file, and what tells it from others
    operation: str  # The collective
    ranks: int  # How many
    nodes: int  # How many
    rows: tuple[LogRow, ...]  # Those that agree with themselves
    notes: tuple[str, ...]  # What was left out, assumed, or is odd

    @property
    def level(self) -> str:
        """``intra`` for a test within one node, else ``inter``."""
        return "intra" if self.nodes == 1 else "inter"

    @property
    def placed(self) -> str:
        """Its ranks in words."""
        if self.nodes == 1:
            return f"{self.ranks} ranks"
        return f"{self.nodes} x {self.ranks // self.nodes} ranks"


def cases_of(tests: Sequence[LogTest], machine: Machine, stated: Stated) -> list[Case]:
    """Place tests on a machine's nodes."""
    faults: list[str] = []
    cases = []
    for test in tests:
        if test.hardware and test.hardware != machine.name:
            continue
        try:
            cases.append(_case(test, machine, stated))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    if not cases:
        named = ", ".join(dict.fromkeys(test.hardware for test in tests))
        wrong = "the table has no rows of it"
        raise InputError(fault("--hardware", machine.name, wrong, f"one of {named}"))
    return cases


def _case(test: LogTest, machine: Machine, stated: Stated) -> Case:
    operation = _operation(test, stated)
    test = replace(test, operation=operation)
    ranks = _ranks(test, operation, stated)
    nodes, notes = _nodes(test, ranks, machine, stated)
    rows, odd = checked_rates(test, ranks)
    placed = f"{nodes} x {ranks // nodes}" if nodes > 1 else f"{ranks}"
    return Case(
        test=test,
        name=f"{test.name} {operation} {placed}",
        operation=operation,
        ranks=ranks,
        nodes=nodes,
        rows=rows,
        notes=(*test.notes, *odd, *notes, *_other_device(test, machine)),
    )


def _operation(test: LogTest, stated: Stated) -> str:
    own = test.operation or operation_of(test.path.name)
    if test.operation and stated.operation and test.operation != stated.operation:
        wrong = f"{test.where}: the log is of {test.operation}"
        raise InputError(fault("--op", stated.operation, wrong, "leave it out: the log says it"))
    found = stated.operation or own
    if not found:
        message = (
            f"{test.where}: neither the log nor its name says which operation it is of; "
            f"give --op ({known_operations('')})"
        )
        raise InputError(message)
    return found


def _ranks(test: LogTest, operation: str, stated: Stated) -> int:
    if test.ranks and stated.ranks and test.ranks != stated.ranks:
        wrong = f"{test.where}: the log has {test.ranks}"
        raise InputError(fault("--ranks", stated.ranks, wrong, "leave it out: the log says it"))
    ranks = test.ranks or stated.ranks
    if not ranks:
        implied = implied_ranks(operation, test.rows)
        hint = f"--ranks {implied}, which busbw by algbw implies" if implied else "--ranks N"
        message = f"{test.where}: no lines '# Rank ..', so its ranks aren't known; give {hint}"
        raise InputError(message)
    if ranks < 2:
        message = f"{test.where}: one rank sends nothing; give a log of two ranks or more"
        raise InputError(message)
    return ranks


def _nodes(
    test: LogTest, ranks: int, machine: Machine, stated: Stated
) -> tuple[int, tuple[str, ...]]:
    """Return the nodes of a test, and what was assumed of them."""
    most = int(machine.figures["gpus_per_node"].value)
    hosts = list(test.hosts.values())
    notes: tuple[str, ...] = ()
    if stated.gpus_per_node:
        nodes = -(-ranks // stated.gpus_per_node)
    elif test.nodes:
        nodes = test.nodes
    elif len(hosts) > 1 and most > MOST_IN_A_HOST:
        nodes = -(-ranks // most)
        joined = "one node" if nodes == 1 else f"{nodes} nodes"
        notes = (
            f"{len(hosts)} hosts taken for {joined} of {machine.name} (up to {most} GPUs each); "
            "--gpus-per-node says otherwise",
        )
    elif hosts:
        if len(set(hosts)) > 1:
            told = ", ".join(f"{host} {count}" for host, count in test.hosts.items())
            message = f"{test.where}: nodes have unequal ranks ({told}); as many on each node"
            raise InputError(message)
        nodes = len(hosts)
    else:
        nodes = 1 if ranks <= most else -(-ranks // most)
        if nodes > 1:
            notes = (f"no hosts in the log: {nodes} nodes of {most} GPUs, as {machine.name} has",)
    share = ranks / nodes
    if not share.is_integer() or share > most:
        message = (
            f"{test.where}: {ranks} ranks on {nodes} nodes, and a node of {machine.name} has "
            f"{most} GPUs; give another --hardware, or --gpus-per-node for the ranks of a node"
        )
        raise InputError(message)
    return nodes, notes


def _other_device(test: LogTest, machine: Machine) -> tuple[str, ...]:
    """Return a note where the log's GPUs are called otherwise than the machine's."""
    found = _DEVICE.search(test.device)
    if not found or found[0].lower() in f"{machine.name} {machine.title}".lower():
        return ()
    return (f"its GPUs are {test.device}; --hardware is {machine.name}: is that the machine?",)
