"""``sweeps collective``: a report for one cell, a table for many."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Unpack

import click
import numpy as np

from overhead.choose import TAKEN
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, STATEMENTS, Algorithm
from overhead.evaluation import Evaluation
from overhead.expression import names
from overhead.labels import HIERARCHY, NO_LIBRARY, OPERATION_DEFAULTS, XLA
from overhead.quantity import VOCABULARY
from overhead.statements import statement, statements
from sweeps import display
from sweeps.asked import command_line
from sweeps.bands import UNKNOWN, band_words, percent
from sweeps.cli import flags
from sweeps.cli.derivation import Derivation, evaluated, same
from sweeps.cli.given import Given
from sweeps.cli.numbers import SHORT, shown
from sweeps.cli.option_table import options
from sweeps.cli.options import (
    default_lines,
    defaults_line,
    file_options,
    output_options,
    show_sensitivity,
    sweep_of_options,
    uplink_lines,
)
from sweeps.cli.sections import further_lines, show_options, wanted_sections
from sweeps.cli.tables import as_table, every_row
from sweeps.cli.typed import flag_of, folders_of
from sweeps.cli.write import Output
from sweeps.engine.validity import NOT_KNOWN, NOTES
from sweeps.errors import InputError, fault, needs, refuse, tell_all
from sweeps.idle import check_taken
from sweeps.impossible import LARGEST, impossible, too_many
from sweeps.job import BOUND, Job, evaluation_of, prepare
from sweeps.result import Record, Result
from sweeps.spec.units import format_bytes, format_quantity, is_binary, put_in


@click.command(flags.COLLECTIVE, cls=flags.SweepCommand)
@flags.options(*flags.OF_COLLECTIVES)
@options("trees")
@show_options("collective")
@options("collective")
@output_options
def command(**given: Unpack[Given]) -> int:
    """Cost of a collective operation on a network.

    One value for every argument prints a report; several print a table.
    """
    from sweeps.own_formulas import load_formulas

    load_formulas(given["formulas"])
    options = flags.given_options(given, flags.OF_COLLECTIVES)
    if given["tree_algo"]:
        algorithm = flags.tree_algorithm(
            options["topology"], options["algorithm"], OPERATION_DEFAULTS["topology"]
        )
        options["algorithm"] = algorithm
    faults = []
    size, gpus = map(flag_of, ("message_bytes", "ranks"))
    if options["message_bytes"] is None:
        faults.append(needs("an operation", "a message size", f"{size}, such as {size} 64MiB"))
    if all(options[name] is None for name in ("ranks", "nodes", "mesh_nx")):
        faults.append(needs("an operation", "a number of ranks", f"{gpus}, such as {gpus} 8"))
    tell_all(faults)
    spec = sweep_of_options(options, "Collective operations")
    folders = folders_of(given)
    job = prepare(spec, command=command_line(), folders=folders, options=file_options(given))
    # Where no network has the algorithm, that is what is wrong.
    if any(case.algorithms for case in job.program.cases):
        check_taken(job, options, folders)
    if given["sensitivity"] is not None:
        show_sensitivity(job, given, "collective", str(given["sensitivity"]))
        return 0
    out = Output(given, "collective")
    show = wanted_sections(given, "collective")
    out.evaluate(job, lambda records: screen(job, records, show))
    return 0


# Of an operation the values that weren't given and matter most.
MATTERING = ("collective", "software", "topology", "oversubscription", "nics_per_node")


def screen(job: Job, result: Result, show: Sequence[str]) -> Iterator[str]:
    """Yield what people read: a report of one cell, a table of many."""
    bodies: dict[str, Callable[[], Iterable[str]]]
    if result.cells == 1:
        (record,) = result.values()
        yield from report(job, record)
        bodies = {"formulas": lambda: _terms(job, record)}
    else:
        yield from as_table(result, training=False)
        bodies = {
            "rows": lambda: every_row(result, training=False),
            "formulas": lambda: statement_lines(job),
        }
    yield ""
    yield from uplink_lines(job)
    yield from defaults_line(job, MATTERING)
    yield from further_lines(show, {**bodies, "defaults": lambda: default_lines(job)})


# The report of one cell for a person: values, and what they come from.


def report(job: Job, record: Record) -> Iterator[str]:
    """Yield the report's lines."""
    cell = evaluation_of(job)
    given, labels = cell.given, cell.labels
    texts = job.program.faults.texts
    faults = [name for name in str(record["status"]).split() if name != "ok"]
    notes = _refuse(cell, faults, record["time"], texts)
    used = str(record["chosen_algorithm"])
    in_library = labels.get("library", NO_LIBRARY) != NO_LIBRARY
    parts, protocol, band = {}, "", no_rows(used, labels)
    if in_library:
        with np.errstate(all="ignore"):
            names = (name for names in PARTS_OF.values() for name in names)
            parts = {name: shown(name, cell[name]) for name in names}
            if labels["library"] != XLA:
                protocol = f", protocol {PROTOCOLS[int(cell['protocol'])]}"
        band = _band(job, cell, used)
    yield _answer(record, cell, band)
    yield from (f"  {line}" for line in (*impossible(record), *too_many(given.get("ranks", 0.0))))
    bare = "" if job.resolved.machines else "bare "
    network = f"on a {bare}{labels['topology']} network, algorithm {used}"
    yield f"  {network}{_behind(job, labels, protocol)}"
    for name in display.rows("collective", screen="report"):
        # A bare network has no nodes; what takes no time isn't told.
        idle = name in PHASE_PARTS and record.get(name) == 0.0
        if name in record and not (idle or (bare and name in LEVELS)):
            units = VOCABULARY[name].units
            text = shown(name, record[name])
            if units == "byte":
                text = format_bytes(record[name], binary=is_binary(float(given["message_bytes"])))
            text += "  (an upper bound)" * (name == "time" and bool(record.get(BOUND, 0.0)))
            yield f"  {display.words(name):<26}{text}"
        if name == "time":
            yield f"  {'  error band':<26}{band[1]}"
        for part in PARTS_OF.get(name, ()) if parts else ():
            if parts[part] not in (SHORT, "0 s"):
                yield f"      {display.words(part):<22}{parts[part]}"
    yield from (f"  ({texts[note]})" for note in notes)


def _answer(record: Record, cell: Evaluation, band: tuple[str, str]) -> str:
    """Return what is asked: how long it takes, how near to the bound that is, and why."""
    given = cell.given
    ranks = " x ".join(f"{given[side]:g}" for side in SIDES if side in given)
    if "ranks" in given:
        ranks = format_quantity(float(given["ranks"]), "1")
    message = format_quantity(float(given["message_bytes"]), "byte")
    time, bound = float(record["time"]), float(record.get("lower_bound_ratio", np.nan))
    latency = float(record.get("latency_time", np.nan)) / time if time else np.nan
    busbw = float(record.get("busbw", np.nan))
    said = [f"busbw {shown('busbw', busbw)}"] if np.isfinite(busbw) else []
    if bound > 0.0:
        at = abs(bound - 1.0) < AT_BOUND
        said.append("at the lower bound" if at else f"{bound:.3g}x the lower bound")
    if np.isfinite(latency):
        limit = "latency" if latency >= 0.5 else "bandwidth"
        said.append(f"{percent(max(latency, 1.0 - latency))} {limit}")
    of = f"{cell.labels['collective']} of {message} on {ranks} ranks"
    text = f"{of}: {format_quantity(time, 's')} ({band[0]})"
    return ", ".join((text, *said))


def _behind(job: Job, labels: Mapping[str, str], protocol: str) -> str:
    """Return what is behind a network: a machine with its library, its links alone, or nothing."""
    names = [machine.name for machine in job.resolved.machines]
    if not names:
        return ": no machine, no library"
    software = f"software {labels['software']}{protocol}"
    if labels.get("library", NO_LIBRARY) == NO_LIBRARY:
        return f", {software}: links of {names[0]} alone"
    return f", {software}, on {names[0]}"


# What of a time passes inside nodes, and between them.
LEVELS = ("intra_time", "inter_time")
# Parts of a time that not every network has: what takes none isn't told.
PHASE_PARTS = ("reduction_time", "intra_time", "inter_time", "pod_time", "overlapped_phase_time")
AT_BOUND = 0.005  # times this share about the lower bound are at it
# The parts of a time that a library's profile tells apart, each below its sum.
PARTS_OF = {
    "latency_time": ("launch_part_time", "step_part_time", "host_wait_part_time"),
    "bandwidth_time": ("transfer_part_time", "copy_part_time", "ramp_part_time"),
}
PROTOCOLS = ("LL", "Simple")
SIDES = ("mesh_nx", "mesh_ny", "mesh_nz")


def _band(job: Job, cell: Evaluation, algorithm: str) -> tuple[str, str]:
    """Return the band of a cell's time, and what it comes from or why it isn't known, in words."""
    from sweeps.spec.software import APART, load_software

    labels = cell.labels
    (machine, *_) = job.resolved.machines
    profile = load_software(labels["software"])
    if not profile.errors:
        return UNKNOWN, f"{UNKNOWN}: there are no measured rows of {profile.title}"
    if machine.generation in APART:
        return UNKNOWN, f"{UNKNOWN}: {APART[machine.generation]}"
    form = ALGORITHMS[labels["topology"], labels["collective"], algorithm].form
    # The ranks of a mesh or torus may follow from its sides.
    ranks, node = float(cell["ranks"]), float(cell.given["gpus_per_node"])
    outside = labels["topology"] != HIERARCHY and ranks > node
    if form not in TAKEN or outside:
        return no_rows(algorithm, labels)
    if ranks > LARGEST:
        return UNKNOWN, f"{UNKNOWN}: no run of more than {LARGEST:,.0f} GPUs was measured"
    if machine.constants:
        return UNKNOWN, "that of the machine's own calibration"
    sizes = (np.asarray(value) for value in (cell.given["message_bytes"], ranks, node))
    low, high, rows = map(float, profile.bands(labels["collective"], *sizes))
    if not rows:
        return UNKNOWN, f"{UNKNOWN}: {profile.lacks_rows(labels['collective'], ranks, node)}"
    words = band_words(low, high)
    return words, f"{words} holds 4 of 5 measured rows ({rows:.0f}, held out of the fit by table)"


def no_rows(algorithm: str, labels: Mapping[str, str]) -> tuple[str, str]:
    """Say that nobody measured an algorithm on a network."""
    why = f"no measured rows of {algorithm} on a {labels['topology']} network"
    return UNKNOWN, f"{UNKNOWN}: {why}"


def _refuse(
    cell: Evaluation, states: Sequence[str], time: float, texts: Mapping[str, str]
) -> list[str]:
    """Refuse a cell that can't be; return the reasons why some of its values are missing."""
    known, labels = cell.given, cell.labels
    notes = [name for name in states if name in NOTES]
    faults = {name: texts[name] for name in states if name not in NOTES}
    if not faults and np.isnan(time) and NOT_KNOWN in notes:
        unknown = ", ".join(name for name, value in known.items() if np.isnan(value))
        wrong = f"the machine's file has no {unknown}"
        refuse("hardware", labels.get("hardware", ""), wrong, "give what it lacks")
    if "algorithm_not_defined_on_topology" in faults:
        raise InputError(_no_algorithm(labels))
    lines = []
    for name, allowed in faults.items():
        about = (
            condition.inputs
            for of in (NETWORKS, ALGORITHMS)
            for declared in of.values()
            for condition in declared.requires
            if condition.fault == name
        )
        given = {needed: f"{known[needed]:g}" for needed in next(about, ()) if needed in known}
        given = given or {"algorithm": labels["algorithm"]}
        wrong = name.replace("_", " ")
        lines.append(fault([*given], tuple(given.values()), wrong, allowed))
    tell_all(lines)
    return notes


def _no_algorithm(labels: Mapping[str, str]) -> str:
    network, collective = labels["topology"], labels["collective"]
    known = [algorithm.name for algorithm in ALGORITHMS.of(network, collective)]
    if not known:
        others = dict.fromkeys(key[1] for key in ALGORITHMS if key[0] == network)
        wrong = f"a {network} network has no algorithm of it"
        return fault("collective", collective, wrong, f"known there: {', '.join(others)}")
    wrong = f"no algorithm of {collective} on {network}"
    return fault("algorithm", labels["algorithm"], wrong, f"known there: {', '.join(known)}")


def statement_lines(job: Job) -> Iterator[str]:
    """Yield the statement and source of every algorithm that takes part."""
    for algorithm in job.program.algorithms():
        yield ".".join(algorithm.key)
        yield f"  {algorithm.title}"
        yield f"  {statement(algorithm)}"
        yield f"  source  {algorithm.reference}"


def _terms(job: Job, record: Record) -> Iterator[str]:
    (case,) = job.program.cases
    algorithm = next(a for a in case.algorithms if a.name == record["chosen_algorithm"])
    cell = evaluation_of(job)
    scopes = {each.name: Evaluation(cell.given, cell.labels, each) for each in case.algorithms}
    scope = scopes[algorithm.name]
    derivation = Derivation()
    yield ""
    yield f"{'.'.join(algorithm.key)}: {algorithm.title}"
    yield from _statements_of(algorithm, scope, derivation)
    yield from (f"  assumes {phrase}" for phrase in algorithm.assumes)
    yield f"  source  {algorithm.reference}"
    yield from _time(algorithm, scope, derivation)
    if len(case.algorithms) > 1:
        told = ", ".join(
            f"{name} {format_quantity(float(other['time']), 's')}"
            for name, other in scopes.items()
            if np.all(other.defined())
        )
        yield f"  fastest of {told}: {algorithm.name}"
    # What else the report prints: parts of the time, energy, rates.
    for name in display.rows("collective", screen="report"):
        known = name in record and np.isfinite(float(record[name]))
        if known and name not in (*STATEMENTS, "lower_bound", "lower_bound_ratio"):
            yield from derivation.lines(name, scope, DEEP)
    if float(record.get("lower_bound", np.nan)) > 0.0:
        yield ""
        yield "lower bound: no algorithm is faster on these links"
        yield from derivation.lines("lower_bound", scope, DEEP)
    yield from derivation.where()
    yield from derivation.references()
    yield ""


DEEP = 99  # Down to named constants


def _time(algorithm: Algorithm, scope: Evaluation, derivation: Derivation) -> Iterator[str]:
    """Yield how the time comes about where it isn't the stated one."""
    if "time" in derivation.stated:
        for name in names(statements(algorithm)["time"]):
            yield from derivation.lines(name, scope, DEEP)
        return
    if algorithm.bound:
        yield f"    ({algorithm.bound})"
    yield "  time as asked for, from named constants up"
    yield from derivation.lines("time", scope, DEEP)


def _statements_of(
    algorithm: Algorithm, scope: Evaluation, derivation: Derivation
) -> Iterator[str]:
    """Yield what the algorithm states of links alone, with the numbers put in."""
    for name, expression in statements(algorithm).items():
        values = {needed: float(scope[needed]) for needed in names(expression)}
        derivation.leaves |= {needed: shown(needed, value) for needed, value in values.items()}
        result, units = evaluated(expression, values), VOCABULARY[name].units
        if same(result, float(scope[name])):
            derivation.stated.add(name)
        yield f"  {name} = {expression}"
        yield f"    = {put_in(expression, values)}"
        yield from _addends(expression, values, units)
        binary = units == "byte" and is_binary(values.get("message_bytes", 1.0))
        text = format_bytes(result, binary=True) if binary else format_quantity(result, units)
        yield f"    = {text}"


def _addends(expression: str, values: Mapping[str, float], units: str) -> Iterator[str]:
    """Yield what each term of a sum comes to."""
    terms: list[str] = []
    part = ast.parse(expression, mode="eval").body
    while isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
        terms.insert(0, ast.unparse(part.right))
        part = part.left
    terms.insert(0, ast.unparse(part))
    if len(terms) > 1:
        yield "    = " + " + ".join(
            format_quantity(evaluated(term, values), units) for term in terms
        )
