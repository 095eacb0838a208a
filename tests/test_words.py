"""Meanings, labels and titles are in the English of the field: no house words, no two alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from overhead.communication.operation import OPERATIONS
from overhead.everything import algorithms, formulas, load
from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from tests.tables import examples

# What isn't written, each with a name for what is: a pattern searched for as it stands.
BANNED = examples(__file__, "banned")
# Texts that may match a pattern, with the reason.
ALLOWED: dict[str, str] = {}
ARTICLE = re.compile(r"\b(?:an?|the) ", re.IGNORECASE)


def titles() -> Iterator[str]:
    return (formula.title for formula in formulas())


def meanings() -> Iterator[str]:
    return (quantity.meaning for quantity in VOCABULARY.values())


def labels() -> Iterator[str]:
    return (label.meaning for label in LABELS.values())


def assumptions() -> Iterator[str]:
    return (text for formula in (*formulas(), *algorithms()) for text in formula.assumes)


def matches(text: str) -> list[str]:
    return [name for name, pattern in BANNED.items() if re.search(pattern, text)]


@pytest.mark.parametrize("texts", [meanings, titles, labels, assumptions])
def test_house_words_are_not_written(texts: Callable[[], Iterable[str]]) -> None:
    found = {text: matches(text) for text in texts() if text not in ALLOWED}
    assert not {text: names for text, names in found.items() if names}


def test_every_exception_is_one() -> None:
    known = {*meanings(), *titles(), *labels(), *assumptions()}
    assert not [text for text in ALLOWED if text not in known or not matches(text)]


def test_no_two_meanings_are_alike() -> None:
    alike = Counter(ARTICLE.sub("", text).casefold() for text in meanings())
    assert not [text for text, times in alike.items() if times > 1]


def test_quantities_of_an_operation_begin_with_its_title() -> None:
    load()
    for name, operation in OPERATIONS.items():
        for part in ("time", "sent_bytes", "energy"):
            assert VOCABULARY[f"{name}_{part}"].meaning.startswith(f"{operation.title}: ")


def test_ratios_name_both_sides_and_conditions_their_values() -> None:
    """A ratio is A / B or a fraction; what is 0 or 1 says so."""
    for quantity in VOCABULARY.values():
        if quantity.name.endswith(("_ratio", "_balance", "_imbalance")):
            assert "/" in quantity.meaning, quantity.name
    flags = [
        one for one in VOCABULARY.values() if one.integer and (one.minimum, one.maximum) == (0, 1)
    ]
    assert flags
    assert not [flag.name for flag in flags if "(0 " not in flag.meaning]
