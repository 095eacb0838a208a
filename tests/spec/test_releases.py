"""Names of releases and fine-tunes find the catalogue's shapes, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.cli import run
from sweeps.errors import InputError
from sweeps.spec.catalog import load_model, model_names
from sweeps.spec.releases import bare_name, release_of
from tests.tables import examples


@pytest.mark.parametrize(("name", "text"), examples(__file__, "releases"))
def test_a_release_has_the_catalogue_s_shapes(name: str, text: str) -> None:
    model = load_model(name)
    assert model == load_model(text)
    assert model.note == f"{name}: has the shapes of {text}, by its name"


@pytest.mark.parametrize("name", ["llama3-70b", "Llama3-70B", "LLAMA3_70B"])
def test_the_catalogue_s_own_name_says_nothing(name: str) -> None:
    assert load_model(name).note == ""


@pytest.mark.parametrize(
    "name",
    (
        "mistralai/Mistral-7B-Instruct-v0.3 Qwen/Qwen3-6B gemma-1.1-7b-it instruct 70B "
        "Mistral-Small-3.1-24B-Instruct-2503"
    ).split(),
)
def test_other_shapes_are_nobody_s_release(name: str) -> None:
    with pytest.raises(InputError, match=r"not in the catalog"):
        load_model(name)


@pytest.mark.thorough
def test_no_name_of_the_catalogue_means_another() -> None:
    known = {model_name: load_model(model_name).hugging_face for model_name in model_names()}
    for own, names in known.items():
        assert {release_of(name, known) for name in (own, *names)} == {own}


def test_of_two_that_are_meant_none_is() -> None:
    known = {"first": ["us/Model-7B"], "second": ["them/Model-7B-Chat"]}
    assert bare_name("us/Model_7B-Instruct-2507") == ("model", "7b")
    assert release_of("Model-7B-Base", known) is None
    assert release_of("us/Model-7B", known) == "first"


@pytest.mark.thorough
def test_commands_say_whose_shapes_a_name_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = "--hardware dgx-h100 --gpus 64 --seq-len 4096 --global-batch-size 64"
    note = "Llama-3.1-8B-Instruct: has the shapes of llama3-8b, by its name"
    for command in ("analysis", "plan", "catalog"):
        rest = "" if command == "catalog" else f"--model {{}} {plan}"
        words = [command, *(rest or "{}").format("Llama-3.1-8B-Instruct").split()]
        assert run(words) == 0
        assert note in " ".join(capsys.readouterr().out.split())
