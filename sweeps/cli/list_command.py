"""The formulas and algorithms that there are (``list``), and one of them whole (``show``)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from overhead.answer_laws import answer_laws
from overhead.collectives.algorithm import ALGORITHMS, NETWORKS, Algorithm
from overhead.everything import load
from overhead.expression import names
from overhead.formula import REGISTRY, Call, Formula
from overhead.labels import COLLECTIVES, usual_spelling
from overhead.law import OF_ALGORITHMS, law_of
from overhead.quantity import VOCABULARY
from overhead.statements import statements
from sweeps.cli.option_table import options
from sweeps.cli.sections import first_rows, show_options, wrapped
from sweeps.cli.typed import Command
from sweeps.errors import fault, nearest, refuse, tell_all
from sweeps.latex import equation
from sweeps.own_formulas import load_formulas
from sweeps.wrapping import aligned, fitted

# Matches of a name that `show` lists, and lines of a table that `list` has, without --show rows.
MATCHES, MOST = 10, 36


@click.command("list", cls=Command)
@options("list")
@show_options("list")
def command(
    topology: str | None,
    collective: str | None,
    kind: str,
    formulas: tuple[str, ...],
    show: tuple[str, ...],
) -> int:
    """Count the algorithms by network and operation; list those of --topology, --op or --kind."""
    load()
    load_formulas(formulas)
    topology = topology and usual_spelling(topology, NETWORKS)
    collective = collective and usual_spelling(collective, COLLECTIVES)
    asked = (("--topology", topology, NETWORKS), ("--op", collective, COLLECTIVES))
    tell_all(
        [
            fault(flag, value, "unknown", nearest(value, known))
            for flag, value, known in asked
            if value is not None and value not in known
        ]
    )
    every = topology is None and collective is None
    algorithms = [
        algorithm
        for algorithm in sorted(ALGORITHMS.values(), key=lambda candidate: candidate.key)
        if topology in (None, algorithm.topology) and collective in (None, algorithm.collective)
    ]
    if show:
        lines = _rows(algorithms if kind != "formulas" else [], every and kind != "algorithms")
    elif kind == "formulas":
        lines = fitted(_formula_counts())
    else:
        lines = fitted(_counts() if every else _names(algorithms, topology, collective))
    sys.stdout.writelines(lines)
    return 0


def _rows(algorithms: Sequence[Algorithm], formulas: bool) -> Iterator[str]:
    """Yield every algorithm of some, and every formula, a line each."""
    tables = []
    if algorithms:
        head = ("network", "operation", "algorithm", "summary")
        tables.append([head, *((*algorithm.key, algorithm.title) for algorithm in algorithms)])
    if formulas:
        order = sorted(REGISTRY.values(), key=lambda formula: formula.name)
        tables.append(
            [
                ("formula", "gives", "units", "summary"),
                *((each.name, each.returns, each.result.units, each.title) for each in order),
            ]
        )
    for table in tables:
        yield from (f"{line}\n" for line in aligned(table, left=len(table[0]), indent=""))


def _counts() -> Iterator[str]:
    """Yield how many algorithms each operation has on each network."""
    networks = list(dict.fromkeys(algorithm.topology for algorithm in ALGORITHMS.values()))
    operations = list(dict.fromkeys(entry.collective for entry in ALGORITHMS.values()))
    yield (
        f"{len(ALGORITHMS)} algorithms of {len(operations)} collectives on {len(networks)} "
        f"networks, {len(REGISTRY):,} formulas"
    )
    yield ""
    rows = [["", *networks]]
    rows += [
        [operation, *(str(len(ALGORITHMS.of(network, operation))) for network in networks)]
        for operation in operations
    ]
    yield from aligned(rows)
    yield ""
    yield "More: --op all_reduce --topology switch lists those; --show rows lists all"
    yield "  One of them: sweeps show NAME"


def _formula_counts() -> Iterator[str]:
    """Yield how many formulas each part of the package declares."""
    counts = Counter(map(_subject, REGISTRY.values()))
    yield f"{len(REGISTRY):,} formulas"
    yield ""
    rows = [[name, f"{count:,}"] for name, count in counts.most_common()]
    yield from aligned([["subject", "formulas"], *rows])
    yield ""
    yield "More: --show rows lists them. One of them: sweeps show NAME"


def _subject(formula: Formula) -> str:
    """Return the folder or file of the formulas' package that declares one; else its file."""
    path = Path(formula.location.rpartition(":")[0])
    parts = path.with_suffix("").parts
    if path.suffix == ".csv":
        return path.stem
    within = [index for index, part in enumerate(parts) if part == "overhead"]
    return parts[within[-1] + 1] if within else parts[-1]


def _names(
    algorithms: Sequence[Algorithm], topology: str | None, collective: str | None
) -> Iterator[str]:
    """Yield the names of some algorithms: with what they are, or by operation or network."""
    which = [f"of {collective}"] * (collective is not None)
    which += [f"on a {topology} network"] * (topology is not None)
    count = len(algorithms)
    yield f"{count} algorithm{'s' * (count != 1)} {' '.join(which)}"
    yield ""
    if topology is None or collective is None:
        groups: dict[str, list[str]] = {}
        for algorithm in algorithms:
            key = algorithm.collective if collective is None else algorithm.topology
            groups.setdefault(key, []).append(algorithm.key[-1])
        width = max(map(len, groups), default=0)
        for key, members in groups.items():
            yield f"  {key.ljust(width)}  {', '.join(members)}"
        left = 0
    else:
        rows = [
            ("algorithm", "summary"),
            *((member.key[-1], member.title) for member in algorithms),
        ]
        lines, kept = first_rows(rows, MOST, lambda table: aligned(table, left=2))
        yield from lines
        left = count - kept
    yield ""
    more = f"{left} more, and all with their summaries" if left else "what each is"
    if algorithms:
        yield from wrapped(
            f"More: --show rows ({more}); one of them: sweeps show {'.'.join(algorithms[0].key)}"
        )


# ``sweeps show``: one formula or algorithm, whole.


@click.command("show", cls=Command)
@click.argument("name")
@options("show")
@show_options("list")
def show_command(
    name: str, as_latex: bool, formulas: tuple[str, ...], show: tuple[str, ...]
) -> int:
    """Show a formula, a quantity, or an algorithm as NETWORK.OPERATION.ALGORITHM (or a part of it).

    Where a part means several, they are listed; --show rows shows all of them whole.
    """
    load()
    load_formulas(formulas)
    keys = {".".join(key): key for key in ALGORITHMS}
    parts = set(name.split("."))
    # A whole name is that one, though its parts stand in others, too.
    matches = [keys[name]] if name in keys else [key for key in keys.values() if parts <= set(key)]
    if name in REGISTRY:
        sys.stdout.writelines(fitted(_formula_lines(name, as_latex)))
    elif name in VOCABULARY and not matches:
        sys.stdout.writelines(fitted(_what_gives(name)))
    elif not matches:
        known = (*REGISTRY, *keys, *ALGORITHMS.names(), *VOCABULARY)
        near = nearest(name, known, shown=0)
        if near.startswith("known"):
            near = "search: sweeps list --show rows | grep WORD"
        refuse("NAME", name, "no such formula, quantity or algorithm", near)
    if len(matches) > 1 and not show:
        sys.stdout.writelines(fitted(_matches(name, matches)))
        return 0
    for key in matches:
        sys.stdout.writelines(fitted(_algorithm_lines(key, as_latex)))
    return 0


def _matches(name: str, matches: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield what a name that means several algorithms means."""
    first = ".".join(min(matches))
    yield f"{name} means {len(matches)} algorithms; one of them: sweeps show {first}"
    yield ""
    rows = [("name", "summary")]
    rows += [(".".join(key), ALGORITHMS[key].title) for key in sorted(matches)[:MATCHES]]
    yield from aligned(rows, left=2)
    yield ""
    more = f"{len(matches) - MATCHES} more, and " * (len(matches) > MATCHES)
    yield f"More: --show rows ({more}each whole)"


def _formula_lines(name: str, as_latex: bool) -> Iterator[str]:
    formula = REGISTRY[name]
    yield f"{name}  {formula.title}"
    yield f"  {formula.statement}  [{formula.result.units}]"
    if as_latex:
        yield f"  {equation(formula.returns, formula.expression)}"
    yield from _quantity_lines(formula.inputs)
    yield from _where(formula, "  where   ")
    yield from (f"  assumes {phrase}" for phrase in formula.assumes)
    law = law_of(formula)
    yield from (f"  law     {line}" for line in (law.lines() if law else ()))
    yield from _answers(formula.returns)
    yield f"  source  {formula.reference}"


def _where(declared: Formula | Call, head: str) -> Iterator[str]:
    """Yield the labels with which something holds."""
    for label, value in declared.when.items():
        yield f"{head}{label} = {value.replace('|', ' or ')}"


def _answers(name: str) -> Iterator[str]:
    """Yield how a quantity moves with what users give, if laws say it."""
    whole = answer_laws().get(name)
    yield from (f"  answer  {line}" for line in (whole.lines() if whole else ()))


def _what_gives(name: str) -> Iterator[str]:
    """Yield a quantity's unit and default, and the formulas of other names that give it."""
    quantity = VOCABULARY[name]
    yield f"{name}  {quantity.meaning}  [{quantity.units}]"
    candidates = REGISTRY.candidates(name)
    for candidate in candidates:
        yield f"  {candidate.statement}"
        yield from _where(candidate, "    where ")
    formulas = [formula.name for formula in candidates if isinstance(formula, Formula)]
    calls = dict.fromkeys(call.of for call in candidates if not isinstance(call, Formula))
    if quantity.default is not None:
        yield f"  default {quantity.default:g}"
    if not candidates:
        yield "  given, or taken from a catalog"
    yield from _answers(name)
    if formulas or calls:
        yield f"More: sweeps show {' or '.join((*formulas, *calls)[:3])}"


def _algorithm_lines(key: tuple[str, str, str], as_latex: bool) -> Iterator[str]:
    algorithm = ALGORITHMS[key]
    yield f"{'.'.join(key)}  {algorithm.title}"
    stated = statements(algorithm)
    yield from (f"  {quantity} = {expression}" for quantity, expression in stated.items())
    if as_latex:
        yield f"  {equation('time', stated['time'])}"
    used = dict.fromkeys(n for text in stated.values() for n in names(text))
    yield from _quantity_lines(tuple(used))
    yield from (f"  needs   {requirement.text}" for requirement in algorithm.requires)
    yield from (f"  assumes {phrase}" for phrase in algorithm.assumes)
    yield from (f"  law     {line}" for line in OF_ALGORITHMS)
    if algorithm.bound:
        yield f"  {algorithm.bound}"
    yield f"  source  {algorithm.reference}"


def _quantity_lines(used: tuple[str, ...]) -> Iterator[str]:
    width = max(map(len, used), default=0)
    for name in used:
        quantity = VOCABULARY[name]
        yield f"    {name.ljust(width)}  {quantity.units:<9} {quantity.meaning}"
