"""Rules that make settings of words: the shipped ones, and a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.errors import InputError
from sweeps.spec.catalog import hardware_names, load_framework, model_names
from sweeps.validate.run_table import Run, RunSettings, read_rules, settings_of, shipped_rules
from tests.tables import examples


def settings(**texts: str) -> RunSettings:
    return settings_of(Run(1, texts, {}), shipped_rules())


@pytest.mark.parametrize(("column", "text", "expected"), examples(__file__, "words_to_numbers"))
def test_words_to_numbers(column: str, text: str, expected: dict[str, float]) -> None:
    found = settings(**{column: text}).numbers
    assert {name: found.get(name) for name in expected} == expected
    if not expected:
        assert not found


@pytest.mark.parametrize(("column", "text", "expected"), examples(__file__, "words_to_labels"))
def test_words_to_labels(column: str, text: str, expected: dict[str, str]) -> None:
    words = settings(**{column: text}).words
    assert {name: words.get(name) for name in expected} == expected


def test_what_shipped_rules_name_exists() -> None:
    machines, models = hardware_names(), model_names()
    for rule in shipped_rules():
        if "hardware" in rule.words:
            assert rule.words["hardware"] in machines
        if "model" in rule.words:
            assert rule.words["model"] in models
        if "framework" in rule.words:
            load_framework(rule.words["framework"])


def test_no_rule_is_of_one_row() -> None:
    assert not [
        rule for rule in shipped_rules() if {"row_id", "linked_training_row"} & {*rule.where}
    ]


def test_rules_of_sources_say_where_that_is_known_from() -> None:
    result = [rule for rule in shipped_rules() if "source_id" in rule.where and rule.numbers]
    assert result
    assert all(rule.because for rule in result)


@pytest.mark.parametrize(
    ("text", "result"),
    examples(__file__, "faults_of_own_rules"),
)
def test_faults_of_own_rules(tmp_path: Path, text: str, result: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_rules(path)
    assert len(caught.value.faults) == 1
    assert result in caught.value.faults[0]


def test_later_rules_win(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        "[[rules]]\nset = { tp = 1, framework = 'torchtitan' }\n"
        "[[rules]]\nwhere = { model = 'big' }\nset = { tp = 8 }\nassumed = ['tp']\n"
        "[[rules]]\nwhere = { model = 'odd' }\nskip = 'odd'\n"
    )
    rules = read_rules(path)
    small, big, odd = (settings_of(Run(1, {"model": m}, {}), rules) for m in ("s", "BIG", "odd"))
    assert (small.numbers, big.numbers) == ({"tp": 1}, {"tp": 8})
    assert small.words == big.words == {"framework": "torchtitan"}
    assert (list(small.assumed), list(big.assumed)) == ([], ["tp"])
    assert (small.skip, odd.skip) == ("", "odd")


def test_a_network_is_told_by_its_words_and_by_when_its_settings_were_mended() -> None:
    words = {"interconnect": "NVLink3; 4x100Gb/s Omni-Path per node", "source_id": "bloom_prequel"}
    late = settings(**words, notes="2022-02-25; settings improved").words["fabric"]
    early = settings(**words, notes="2022-02-24").words["fabric"]
    assert (early, late) == ("omni_path_untuned", "omni_path")
    assert settings(interconnect=words["interconnect"]).words["fabric"] == "omni_path"
