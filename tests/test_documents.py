"""README says what the declarations say, and the gallery shows what the code computes.

After a change of declarations `PROOFS=write python -m pytest -m "" tests/test_documents.py` writes
the tables anew.
"""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli_runner import Runner
from tests.maintenance.references import references

TOP = Path(__file__).parents[1]
WRITE = os.environ.get("PROOFS") in ("write", "new")
README = (TOP / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str) -> list[str]:
    """Return the code blocks of a language."""
    matches = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    return [code for block, code in matches if block == language]


def test_the_bibliography_is_the_declarations() -> None:
    path = TOP / "overhead" / "REFERENCES.md"
    if WRITE:
        path.write_text(references(), encoding="utf-8")
    stored = path.read_text(encoding="utf-8")
    assert stored == references(), "PROOFS=write writes it anew"


def test_readme_has_two_commands() -> None:
    assert len(blocks("sh", README)[0].strip().splitlines()) == 2


def test_readme_is_short_and_says_the_same_in_chinese() -> None:
    english, chinese = README.split("## 中文")
    assert len(english.splitlines()) <= 80
    for language in ("sh", ""):
        assert blocks(language, english) == blocks(language, chinese)
    links = [
        re.findall(r"\]\(((?:outputs|overhead|sweeps)/[^)]+)\)", text)
        for text in (english, chinese)
    ]
    assert {link for link in links[0] if "page.png" not in link and ".html" not in link} <= {
        *links[1]
    }
    assert len(re.findall(r"^\| ", english, re.M)) == len(re.findall(r"^\| ", chinese, re.M))


def test_readme_quotes_the_errors_of_runs_outside_the_fit() -> None:
    page = (TOP / "sweeps" / "docs" / "accuracy.md").read_text(encoding="utf-8")
    shares = re.findall(r"^Outside the fit, .*: \d+ runs, (\d+) %.* MAPE ([\d.]+) %$", page, re.M)
    (_, step), (_, memory) = shares
    english, chinese = README.split("## 中文")
    assert f"step times are {step} % off on average, memory {memory} %" in english.replace(
        "\n", " "
    )
    assert f"步时间平均误差 {step} %，显存 {memory} %" in chinese.replace("\n", "")
    assert all(75 <= float(inside) <= 90 for inside, _ in shares)


def test_readme_example_runs() -> None:
    names: dict[str, object] = {}
    exec(blocks("python", README)[0], names)
    costs: Any = names["costs"]
    shown = next(text for text in blocks("", README) if text.startswith("<xarray.Dataset>"))
    sizes = ", ".join(f"{name}: {size}" for name, size in costs.sizes.items())
    variables = [
        f"    {name:<11}  ({', '.join(costs[name].dims)})"
        for name in ("time", "step_time", "peak_memory")
    ]
    assert shown.splitlines()[1:] == [f"Dimensions: ({sizes})", "Data variables:", *variables]


@pytest.mark.parametrize("path", sorted((TOP / "outputs" / "gallery").glob("*.nc")), ids=str)
def test_gallery_is_what_the_code_computes(path: Path) -> None:
    import sweeps

    stored = sweeps.open(path)
    dataset = sweeps.recompute(stored)
    assert {*dataset.data_vars, "chosen_algorithm"} == {*stored.data_vars, "chosen_algorithm"}
    for name in dataset.data_vars:
        # Not bit for bit: other processors round logarithms otherwise.
        np.testing.assert_allclose(
            dataset[name], stored[name].values, rtol=1e-12, err_msg=str(name)
        )


def test_places_named_in_contributing_are_there() -> None:
    text = (TOP / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:overhead|sweeps|specs|tests|\.ci)/[^` ]*)`", text)
    assert len(paths) > 20
    for path in paths:
        assert list(TOP.glob(path.rstrip("/"))), path


def test_links_lead_to_what_is_there() -> None:
    for name in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (TOP / name).exists(), name


def test_readme_s_answers_are_what_its_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    told = [block.splitlines() for block in blocks("", README) if block.startswith("$ ")]
    answered = [
        (line, answer) for line, *rest in told for answer in rest[:1] if not answer.startswith("$ ")
    ]
    assert len(answered) == 2  # In English and in Chinese
    for line, answer in answered:
        assert Runner(capsys)(line.removeprefix("$ sweeps ")).out.splitlines()[0] == answer
