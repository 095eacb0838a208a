"""A user's own file of formulas: what it declares appears everywhere by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import netCDF4
import pytest

from tests.tables import examples

ROOT = Path(__file__).parents[1]
OWN = '''
import numpy as np

from overhead import algorithm, cite, define, flat, formula
from overhead.collectives.algorithm import Requirement

cite("own2026", "A. User, Notes on magic, 2026")
define("spread", r"\\\\sigma", "s", "spread of the time between ranks", minimum=0)
define("slowest_time", "T_s", "s", "time of the slowest rank", minimum=0)


@formula(
    returns="slowest_time",
    source="own2026",
    where="eq. 3",
    assumes=("ranks differ as they did last year",),
)
def slowest(time, spread):
    """Time of the slowest rank."""
    return time + 2.0 * spread


EVEN = Requirement(
    "ranks_odd", "the number of ranks must be even", lambda ranks: ranks % 2.0 == 0.0
)


@algorithm(
    "ring",
    "all_reduce",
    "magic",
    source="own2026",
    where="section 4",
    requires=(EVEN,),
)
def magic(ranks):
    """Magic: half of a message."""
    return flat(ranks / 2.0, 0.5 * np.ones_like(ranks), sent=0.5, carried=0.5 * ranks)
'''
OTHER = '''
from overhead import formula


@formula(returns="serialization_time", source="derivation", replaces="serialization_time")
def slow_wire(message_bytes, bandwidth):
    """Time on a wire that is half as fast."""
    return 2.0 * message_bytes / bandwidth
'''
SPEC = examples(__file__, "spec")


def sweeps(*args: str, cwd: Path, code: int = 0) -> str:
    """Run a command in a process of its own: what is declared stays in a process."""
    process = subprocess.run(
        [sys.executable, "-m", "sweeps", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == code, process.stderr
    if code:
        assert process.stdout == ""
        assert process.stderr.startswith("sweeps: ")
        assert process.stderr.count("\n") == 1, process.stderr
        return process.stderr
    assert process.stderr == ""
    return process.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "spec.toml").write_text(SPEC, encoding="utf-8")
    return tmp_path


@pytest.mark.thorough
def test_they_are_listed_and_shown(folder: Path) -> None:
    listed = sweeps("list", "--show", "rows", "--formulas", "own.py", cwd=folder)
    rows = [line.split("  ") for line in listed.splitlines()]
    named = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["ring", "all_reduce", "magic", "Magic: half of a message"] in named
    assert ["slowest", "slowest_time", "s", "Time of the slowest rank"] in named
    shown = sweeps("show", "slowest", "--latex", "--formulas", "own.py", cwd=folder)
    assert "slowest_time = time + 2*spread" in shown
    assert r"T_s = " in shown
    assert "spread of the time between ranks" in shown
    assert "assumes ranks differ as they did last year" in shown
    assert "Notes on magic" in shown
    assert "eq. 3" in shown
    output = sweeps("show", "ring.all_reduce.magic", "--formulas", "own.py", cwd=folder)
    assert "time = ranks/2*latency + 0.5*message_bytes/bandwidth" in output
    assert "needs   the number of ranks must be even" in output
    assert "section 4" in output
    # Without the file they aren't there.
    assert "no such formula" in sweeps("show", "slowest", cwd=folder, code=2)
    assert "magic" not in sweeps("list", "--show", "rows", cwd=folder)


@pytest.mark.thorough
def test_an_algorithm_is_taken_by_name_by_all_and_by_auto(folder: Path) -> None:
    base = tuple("collective --topology ring --M 1e9 --formulas own.py --software none".split())
    verbose = sweeps(*base, "--N", "8", "--algorithm", "magic", "--verbose", cwd=folder)
    assert "ring.all_reduce.magic: Magic: half of a message" in verbose
    assert "= 8/2*800 ns + 0.5*1 GB/(450 GB/s)" in verbose
    assert "Notes on magic" in verbose
    for choice, count in (("all", 5), ("auto,ring", 2)):
        out = sweeps(*base, "--N", "8", "--algorithm", choice, "--json", cwd=folder)
        records = json.loads(out)
        assert len(records) >= count
        if choice == "all":
            (mine,) = [record for record in records if record["algorithm"] == "magic"]
            assert mine["latency_s"] == pytest.approx(4 * 8e-7 + 0.5e9 / 450e9)
            assert mine["volume_bytes"] == 0.5e9
            assert mine["energy_j"] > 0
        else:
            assert records[0]["algorithm"] == "magic"
    refused = sweeps(*base, "--N", "7", "--algorithm", "magic", cwd=folder, code=2)
    assert refused == "sweeps: --N 7: ranks odd; the number of ranks must be even\n"


@pytest.mark.thorough
def test_they_are_in_a_file_with_their_metadata(folder: Path) -> None:
    run = ("run", "spec.toml", "--formulas", "own.py", "--output", "x.nc")
    sweeps(*run, cwd=folder)
    with netCDF4.Dataset(folder / "x.nc") as file:
        slowest, status = file["slowest_time"], file["status"]
        assert slowest.dimensions == ("algorithm", "ranks", "spread")
        assert slowest.units == "s"
        assert slowest.long_name == "time of the slowest rank"
        assert slowest.formula == "slowest_time = time + 2*spread"
        assert slowest.comment == "Assumes ranks differ as they did last year."
        assert "Notes on magic" in slowest.references
        assert "Notes on magic" in file.references
        assert "ring.all_reduce.magic: time = " in file["time"].formula
        assert file["spread"].long_name == "spread of the time between ranks"
        meanings = dict(zip(status.flag_meanings.split(), status.flag_masks, strict=True))
        assert status[1].tolist() == [meanings["ranks_odd"], 0]
        assert slowest[:].mask.any(axis=2).tolist() == [[False] * 2, [True, False], [False] * 2]
        flags = file["chosen_algorithm"]
        names = dict(zip(flags.flag_values, flags.flag_meanings.split(), strict=True))
        odd, even = (names[code] for code in flags[2])
        assert odd != "magic"
        assert even == "magic"
        time, extra = file["time"][0], file["slowest_time"][0]
        assert (extra[:, 2] - time).tolist() == pytest.approx([2e-3, 2e-3])
    # The same formulas: complete; others: another file.
    assert "is complete already" in sweeps(*run, cwd=folder)
    (folder / "own.py").write_text(OWN.replace("2.0 * spread", "3.0 * spread"), encoding="utf-8")
    assert "exists already; --overwrite replaces it" in sweeps(*run, cwd=folder, code=2)


@pytest.mark.thorough
def test_a_formula_of_ones_own_takes_the_place_of_ours(folder: Path) -> None:
    (folder / "other.py").write_text(OTHER, encoding="utf-8")
    base = tuple("collective --topology ring --N 8 --M 1e9 --json --software none".split())
    (ours,) = json.loads(sweeps(*base, cwd=folder))
    (theirs,) = json.loads(sweeps(*base, "--formulas", "other.py", cwd=folder))
    assert theirs["bandwidth_part_s"] == 2 * ours["bandwidth_part_s"]


@pytest.mark.thorough_cases(every=4)
@pytest.mark.parametrize(("content", "words"), examples(__file__, "a_broken_file_is_one_line"))
def test_a_broken_file_is_one_line(folder: Path, content: str, words: list[str]) -> None:
    (folder / "broken.py").write_text(content, encoding="utf-8")
    line = sweeps("list", "--formulas", "broken.py", cwd=folder, code=2)
    assert line.startswith("sweeps: --formulas broken.py: ")
    for word in words:
        assert word in line


@pytest.mark.thorough
def test_a_file_that_is_not_there(folder: Path) -> None:
    for command in (("list",), ("collective", "--N", "8", "--M", "1"), ("run", "spec.toml")):
        line = sweeps(*command, "--formulas", "nothing.py", cwd=folder, code=2)
        assert line == "sweeps: --formulas nothing.py: no such file; a Python file\n"


@pytest.mark.thorough
@pytest.mark.parametrize(("body", "words"), examples(__file__, "failures"))
def test_a_formula_that_fails_when_it_runs_is_one_line(folder: Path, body: str, words: str) -> None:
    given = OWN.replace('returns="slowest_time",', 'returns="slowest_time", expression="time",')
    broken = given.replace("    return time + 2.0 * spread\n", body)
    (folder / "own.py").write_text(broken, encoding="utf-8")
    line = sweeps(
        "run", "spec.toml", "--formulas", "own.py", "--output", "x.nc", cwd=folder, code=1
    )
    assert words in line
    assert not (folder / "x.nc").exists()


@pytest.mark.thorough
def test_an_algorithm_that_fails_when_it_runs_is_one_line(folder: Path) -> None:
    texts = 'steps="ranks", time="latency", sent="message_bytes", carried="message_bytes"'
    given = OWN.replace('source="own2026",\n    where="section 4"', f'source="own2026", {texts}')
    broken = given.replace("return flat(ranks / 2.0", "return flat(ranks.nothing / 2.0")
    (folder / "own.py").write_text(broken, encoding="utf-8")
    line = sweeps(
        "run", "spec.toml", "--formulas", "own.py", "--output", "x.nc", cwd=folder, code=1
    )
    assert "the algorithm 'ring.all_reduce.magic' failed: AttributeError" in line


@pytest.mark.thorough
def test_what_an_algorithm_states_must_be_what_it_costs(folder: Path) -> None:
    own = (folder / "own.py").read_text(encoding="utf-8")
    for text, right in (("ranks/2", True), ("0.5*ranks", True), ("ranks/3", False)):
        given = own.replace('    "magic",\n', f'    "magic",\n    steps="{text}",\n')
        assert given != own
        (folder / "own.py").write_text(given, encoding="utf-8")
        output = sweeps("list", "--formulas", "own.py", cwd=folder, code=0 if right else 2)
        if not right:
            assert "ring.all_reduce.magic: steps = ranks/3 gives " in output
            assert "and the code " in output
            assert "where ranks = " in output


@pytest.mark.thorough
def test_a_formula_may_give_one_number_for_all_cells(folder: Path) -> None:
    constant = OWN.replace("    return time + 2.0 * spread\n", "    return 7.0\n")
    (folder / "own.py").write_text(constant, encoding="utf-8")
    sweeps("run", "spec.toml", "--formulas", "own.py", "--output", "x.nc", cwd=folder)
    with netCDF4.Dataset(folder / "x.nc") as file:
        assert file["slowest_time"].dimensions == ("algorithm",)
        assert (file["slowest_time"][:] == 7.0).all()


@pytest.mark.parametrize(("line", "words"), examples(__file__, "kernels"))
def test_a_built_in_kernel_that_no_expression_has_is_one_line(line: str, words: str) -> None:
    code = f"""
import numpy as np
from overhead import algorithm, define, flat, formula
from sweeps.cli import main

define("slowest_time", "T_s", "s", "time of the slowest rank", minimum=0)

@formula(returns="slowest_time", source="derivation")
def slowest(time):
    return np.cbrt(time)

@algorithm("switch", "all_reduce", "cubic", source="derivation", steps="ranks")
def cubic(ranks):
    "Cubic."
    return flat(np.cbrt(ranks), np.cbrt(ranks), sent=1.0, carried=1.0)

main({line.split()!r})
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (2, f"sweeps: {words}")
