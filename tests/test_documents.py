"""The documents say what the declarations say, and the gallery shows what the code computes.

After a change of declarations `PROOFS=write python -m pytest -m "" tests/test_documents.py` writes
the tables anew.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.references import algorithm_table, references

TOP = Path(__file__).parents[1]
TABLE = "<!-- algorithms: sweeps list --markdown -->\n"
WRITE = os.environ.get("PROOFS") in ("write", "new")
README = (TOP / "README.md").read_text(encoding="utf-8")
GUIDES = TOP / "outputs" / "gallery" / "guide.md"
GUIDE = GUIDES.read_text(encoding="utf-8")


def blocks(language: str, text: str = GUIDE) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


@pytest.mark.thorough
def test_reference_table_is_the_declarations() -> None:
    path = TOP / "overhead" / "REFERENCES.md"
    if WRITE:
        path.write_text(references(), encoding="utf-8")
    stored = path.read_text(encoding="utf-8")
    assert stored == references(), "sweeps list --references > overhead/REFERENCES.md"


def test_the_guide_s_table_is_the_declarations() -> None:
    before, rest = GUIDE.split(TABLE)
    table, mark, after = rest.partition("<!-- end -->")
    if WRITE:
        table = algorithm_table()
        text = f"{before}{TABLE}{table}{mark}{after}"
        GUIDES.write_text(text, encoding="utf-8")
    assert table == algorithm_table()


def test_readme_has_two_commands() -> None:
    assert len(blocks("sh", README)[0].strip().splitlines()) == 2


def test_readme_is_short_and_says_the_same_in_chinese() -> None:
    english, chinese = README.split("## 中文")
    assert len(README.splitlines()) <= 110
    for command in re.findall(r"^\$ (sweeps .*)$", english, re.M):
        assert command in chinese
    for link in re.findall(r"\]\((outputs/[\w/]+(?:\.md)?|overhead/[^)]+)\)", english):
        assert (TOP / link).exists()
        assert link in chinese


def test_readme_example_runs() -> None:
    names: dict[str, object] = {}
    exec(blocks("python", README)[0], names)
    found: Any = names["found"]
    for name in ("time", "step_time", "peak_memory"):
        assert f"# {name:<11}  ({', '.join(found[name].dims)})" in README


def test_the_guide_s_spec_is_a_sweep() -> None:
    from sweeps.spec.sweep import read_sweep

    read = read_sweep(tomllib.loads(blocks("toml")[0]), bare_is_si=False)
    assert [axis.name for axis in read.axes] == ["nics_per_node", "ranks", "message_bytes"]


def test_the_guide_s_notebook_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = blocks("python")[0].split("stored =")[0].rsplit("\n", 2)[0]
    names: dict[str, object] = {}
    exec(code.split("found.time.sel")[0], names)
    found = names["found"]
    assert found.time.sel(topology="torus", ranks=64, hardware="tpu-v5p").shape == (31,)  # type: ignore[attr-defined]
    exec(blocks("python")[1], {})
    exec("import sweeps\n" + blocks("python")[2], names)
    assert np.isfinite(names["best"]).all()  # type: ignore[call-overload]


@pytest.mark.thorough
def test_the_guide_s_algorithm_of_ones_own(tmp_path: Path) -> None:
    import subprocess
    import sys

    own = tmp_path / "own.py"
    own.write_text(blocks("python")[3], encoding="utf-8")
    asked = ["--topology", "switch", "--algorithm", "two_hop", "--N", "8", "--M", "1GB"]
    links = ["--bandwidth", "100GB/s", "--latency", "1us", "--formulas", str(own), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", "collective", *asked, *links],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    # Two latencies of 1 us, and 2 GB at 100 GB/s.
    assert '"latency_s": 0.020002' in done.stdout


@pytest.mark.parametrize("path", sorted((TOP / "outputs" / "gallery").glob("*.nc")), ids=str)
def test_gallery_is_what_the_code_computes(path: Path) -> None:
    import sweeps

    stored = sweeps.open(path)
    again = sweeps.recompute(stored)
    assert {*again.data_vars, "chosen_algorithm"} == {*stored.data_vars, "chosen_algorithm"}
    for name in again.data_vars:
        # Not bit for bit: other processors round logarithms otherwise.
        np.testing.assert_allclose(again[name], stored[name].values, rtol=1e-12, err_msg=str(name))


def test_places_named_in_contributing_are_there() -> None:
    text = (TOP / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:overhead|sweeps|specs|tests|\.ci)/[^` ]*)`", text)
    assert len(paths) > 20
    for path in paths:
        assert list(TOP.glob(path.rstrip("/"))), path


def test_links_lead_to_what_is_there() -> None:
    for text, folder in ((README, TOP), (GUIDE, GUIDES.parent)):
        for name in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (folder / name).exists(), name
