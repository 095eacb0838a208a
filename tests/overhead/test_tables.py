"""The vocabulary's tables: each quantity has a row, and is found by plain search."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np

import overhead
from overhead import REGISTRY, Formula
from overhead.everything import SUBJECTS, formulas
from overhead.quantity import DOMAINS, VOCABULARY
from overhead.source import SOURCES, cite

FOLDER = Path(overhead.__file__).parent
HEAD = ["name", "symbol", "units", "domain", "default", "meaning"]


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


TABLES = {path.stem: rows(path) for path in sorted((FOLDER / "quantities").glob("*.csv"))}


def test_what_formulas_name_has_one_row() -> None:
    rows = Counter(row[0] for table in TABLES.values() for row in table[1:])
    assert [name for name, count in rows.items() if count > 1] == []
    named = {name for formula in formulas() for name in (*formula.inputs, formula.returns)}
    for call in REGISTRY.calls:
        if call.location.startswith(str(FOLDER)):
            named |= {call.returns, call.of, *call.bind, *call.bind.values()}
    assert named <= {*rows}


# Where every quantity's name stands whole in the file that gives it.
WHOLE = ("collectives/", "software/", "hops.py")


def test_names_are_found_where_quantities_are_made() -> None:
    made: dict[str, set[str]] = {}
    for formula in (*formulas(), *REGISTRY.calls):
        path = formula.location.rpartition(":")[0].removeprefix(f"{FOLDER}/")
        if path.startswith(WHOLE):
            made.setdefault(path, set()).add(formula.returns)
    assert len(made) > 10
    for path, names in made.items():
        words = set(re.findall(r"\w+", (FOLDER / path).read_text(encoding="utf-8")))
        assert names - words == set(), path


def test_tables_are_sound() -> None:
    for subject, (head, *table) in TABLES.items():
        assert head == HEAD, subject
        for row in table:
            name, symbol, units, domain, default, meaning = row
            quantity = VOCABULARY[name]
            assert (quantity.symbol, quantity.units, quantity.meaning) == (symbol, units, meaning)
            assert domain in DOMAINS, name
            if default:
                assert quantity.default == float(default)
                assert not quantity.outside(np.asarray(quantity.default)), name
    used = {row[3] for table in TABLES.values() for row in table[1:]}
    assert used == {*DOMAINS}


def test_a_default_gives_what_nothing_else_does() -> None:
    for name, quantity in VOCABULARY.items():
        if quantity.default is not None and not REGISTRY.candidates(name):
            found = REGISTRY.returning(name, {})
            assert isinstance(found, Formula)
            assert found.kernel() == quantity.default
            # Bounds of a search trust what is the package's own
            assert found.location.startswith(str(FOLDER))
    trains = REGISTRY.returning("has_backward", {"schedule": "one_f_one_b"})
    assert isinstance(trains, Formula)
    assert trains.expression == "1"
    never = REGISTRY.returning("has_backward", {"schedule": "forward_only"})
    assert isinstance(never, Formula)
    assert never.expression == "0"


def test_identities_are_of_subjects_that_are_loaded() -> None:
    paths = sorted((FOLDER / "identities").glob("*.csv"))
    assert {path.stem for path in paths} <= {*SUBJECTS}
    head = "quantity is when source where assumes title name lacks".split()
    stated = {one.location for one in (*formulas(), *REGISTRY.calls)}
    for path in paths:
        table = rows(path)
        assert table[0] == head
        assert {f"{path}:{line}" for line in range(2, len(table) + 1)} <= stated


def test_every_source_has_one_row() -> None:
    head, *table = rows(FOLDER / "sources.csv")
    assert head == ["key", "citation", "locator"]
    assert [row[0] for row in table] == sorted(SOURCES)
    assert all(SOURCES[row[0]] == cite(*row) for row in table)
