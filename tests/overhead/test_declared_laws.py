"""Each formula's declared laws, on points that hypothesis draws from its inputs' domains.

``HYPOTHESIS_PROFILE=deep pytest -m "" tests/overhead/test_declared_laws.py`` draws many
more, elsewhere each time, and keeps what fails in its database.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import overhead
from overhead import VOCABULARY, Formula
from overhead.everything import formulas
from overhead.law import law_of, parsed, table
from tests.laws import BYTES, DRAWS, Moves, faults, signs, worked_faults

FORMULAS = tuple(formula for formula in formulas() if formula.inputs)
ROOT = Path(overhead.__file__).parent
MOST = 20


class Drawn(bytes):
    """Bytes that a message has no room for; hypothesis prints how to draw them again."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@st.composite
def points(draw: st.DrawFn) -> Drawn:
    """Draw bytes for as many inputs as a formula may have."""
    return Drawn(draw(st.binary(min_size=BYTES, max_size=BYTES)))


def subject(formula: Formula) -> str:
    """Return the folder or file in which a formula stands, or the table."""
    path = Path(formula.location.rpartition(":")[0]).relative_to(ROOT)
    return path.stem if path.suffix == ".csv" else path.parts[0].removesuffix(".py")


def chunks() -> dict[str, tuple[Formula, ...]]:
    """Return formulas by subject, at most so many at once."""
    found = {}
    for name, group in groupby(sorted(FORMULAS, key=subject), subject):
        every = tuple(group)
        parts = range(0, len(every), MOST)
        found |= {f"{name}-{k // MOST + 1}": every[k : k + MOST] for k in parts}
    return found


CHUNKS = chunks()
by_subject = pytest.mark.parametrize("part", CHUNKS)
# Bytes say nothing to a reader, however few of them differ from 0: a failure isn't shrunk.
PHASES = [phase for phase in Phase if phase is not Phase.shrink]


@pytest.mark.thorough_cases("model", "run")
@by_subject
@settings(phases=PHASES)
@given(data=points())
def test_formulas_have_the_laws_that_they_declare(part: str, data: bytes) -> None:
    for formula in CHUNKS[part]:
        law = law_of(formula)
        assert law is not None, f"{formula.name} declares no laws: a row in overhead/laws/"
        wrong = list(faults(formula, law, data))
        assert not wrong, f"{formula.name} {'; '.join(wrong)}"


def test_each_input_has_a_law() -> None:
    for formula in FORMULAS:
        law = law_of(formula)
        assert law is not None, f"{formula.name} declares no laws: a row in overhead/laws/"
        named = {*law.moving, *law.free}
        assert named == set(formula.inputs), formula.name
        for names in law.beside.values():
            assert set(names) <= set(formula.inputs), formula.name


def test_rows_stand_for_formulas() -> None:
    assert set(table()) <= {formula.name for formula in FORMULAS}


@pytest.mark.thorough_cases("model", "run")
@by_subject
def test_laws_say_what_moves(part: str) -> None:
    """What is free goes both ways somewhere, and what has a direction goes it somewhere."""
    for formula in CHUNKS[part]:
        law = law_of(formula)
        assert law is not None
        seen = {name: [False, False] for name in formula.inputs}
        for data in DRAWS:
            moves = Moves(formula, data)
            for name, ways in seen.items():
                rises, falls = signs(moves, name)
                ways[0], ways[1] = ways[0] or rises, ways[1] or falls
            if all(
                all(ways)
                or (any(ways) and name in law.moving)
                or law.moving.get(name) in ("flat", "chooses")
                for name, ways in seen.items()
            ):
                break
        for name, (rises, falls) in seen.items():
            text = f"{formula.name} with {name}"
            if name in law.free:
                assert (rises, falls) == (True, True), f"{text}: free, and goes one way only"
            elif law.moving[name] not in ("flat", "chooses"):
                assert rises or falls, f"{text}: {law.moving[name]}, and never moves"


WORKED = tuple(formula for formula in FORMULAS if (law := law_of(formula)) is not None and law.at)


@pytest.mark.parametrize("formula", WORKED, ids=[example.name for example in WORKED])
def test_values_worked_out_by_hand(formula: Formula) -> None:
    law = law_of(formula)
    assert law is not None
    assert not list(worked_faults(formula, law))


@pytest.mark.parametrize(
    ("laws", "free", "said"),
    [
        ("rises: ranks", "", "'rises' is no kind of law"),
        ("up: ranks; down: ranks", "", "'ranks' is up and down"),
        ("", "ranks:", "without a reason"),
        ("up: ranks", "ranks: both", "'ranks' is free and up"),
    ],
)
def test_a_wrong_law_is_refused(laws: str, free: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed(laws, free)


def wrong_by(kernel: object, laws: str) -> str:
    """Return what the check says of a kernel of two quantities."""
    formula = Formula(
        "own",
        kernel,
        ("message_bytes", "bandwidth"),
        "time",
        "derivation",  # type: ignore[arg-type]
    )
    return "; ".join(sorted({w for data in DRAWS[:4] for w in faults(formula, parsed(laws), data)}))


def test_the_check_finds_what_is_wrong() -> None:
    assert {"message_bytes", "bandwidth", "time"} <= set(VOCABULARY)
    right = "proportional: message_bytes; inverse: bandwidth"
    assert wrong_by(lambda m, b: m / b, right) == ""
    assert "not proportional" in wrong_by(lambda m, b: m * m / b, right)
    assert "does not scale as byte" in wrong_by(lambda m, b: m + 1 / b, "up: message_bytes")
    assert "does not only go up" in wrong_by(lambda m, b: m / b, "up: bandwidth")
    assert "moves with bandwidth" in wrong_by(lambda m, b: m / b, "flat: bandwidth")
    assert "is not linear" in wrong_by(lambda m, b: m**2 / b, "linear: message_bytes")
    assert "is not 0 where 0 is" in wrong_by(lambda m, b: (m + 1) / b, "zero: message_bytes")
    assert "is not 0 where 1 is" in wrong_by(lambda m, b: m / b, "alone: message_bytes")
    assert "is not 0 where 1 is" not in wrong_by(lambda m, b: (m - 1) / b, "alone: message_bytes")
    assert "is not hidden behind" in wrong_by(lambda m, b: m / b, "hidden: bandwidth")
    hidden = wrong_by(lambda m, b: np.maximum(m - b, 0.0), "hidden: bandwidth")
    assert "is not hidden behind" not in hidden
