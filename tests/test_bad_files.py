"""Specs and files that can't be used: one line a fault, with the file's name; exit 2."""

from __future__ import annotations

import os
from pathlib import Path

import netCDF4
import pytest

import sweeps
from sweeps.cli import run
from sweeps.errors import InputError
from tests.refusals import BASE, Refused, one
from tests.tables import examples

# Specs.


def written(tmp_path: Path, text: str, name: str = "mine.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


GOOD = examples(__file__, "good")


def test_all_faults_of_a_spec_at_once_with_the_name_of_its_file(
    refused: Refused, tmp_path: Path
) -> None:
    written(
        tmp_path,
        """
        titel = "x"
        quantities = ["tiem", "steps"]
        [axes]
        ranks = [8, 0]
        topology = ["ring", "rnig"]
        message_bytes = [1000, "1 MB"]
        hardware = ["dgx-h100", "dgx-h10"]
        latency = "2 GB"
        case = { chunks = [1, 2], hops = [1, 2, 3] }
        [constants]
        link = "outer"
        nics_per_node = [1, 2]
        oversubscriptoin = 2
        [[reductions]]
        quantity = "tim"
        over = ["rank"]
        operation = "minimum"
        """,
    )
    lines = refused("run mine.toml")
    assert all(line.startswith("mine.toml: ") for line in lines)
    actual_lines = [line.removeprefix("mine.toml: ") for line in lines]
    starts = [
        "titel = '..': no such key; did you mean 'title'",
        "quantities = 'tiem': no such quantity; did you mean 'time'",
        "ranks = '0': out of range; must be a whole number, 1 or more",
        "topology = 'rnig': unknown; did you mean 'ring'",
        "message_bytes = 1000: has no unit; write it for example as '64 MiB'",
        "hardware = 'dgx-h10': not in the catalog; did you mean 'dgx-h100'",
        "latency = '2 GB': is an amount of data, not a time",
        "axes.case = '{..}': columns of unequal length (chunks has 2, hops has 3)",
        "link = 'outer': unknown; did you mean 'inter'",
        "nics_per_node = '[1, 2]': a constant has one value; several make an axis",
        "oversubscriptoin = '2': no such quantity; did you mean 'oversubscription'",
        "reductions.quantity = 'tim': is unknown; did you mean 'time'",
        "reductions.over = 'rank': not an axis; did you mean 'ranks'",
        "reductions.operation = 'minimum': unknown; did you mean 'min'",
    ]
    for start in starts:
        assert any(line.startswith(start) for line in actual_lines), (start, actual_lines)
    assert len(actual_lines) == len(starts)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("[axes]", "[axes", ("mine.toml: not TOML: ", "line 3")),
        ('"1 MB"', "1" * 5000, ("mine.toml: not TOML: ",)),
        ('"1 MB"', "[" * 3000, ("mine.toml: ",)),
    ],
)
def test_a_spec_that_is_no_toml(
    refused: Refused, tmp_path: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    written(tmp_path, GOOD.replace(old, new))
    (line,) = refused("run mine.toml")
    for part in parts:
        assert part in line


@pytest.mark.parametrize(("old", "new", "parts"), examples(__file__, "faults_of_a_spec"))
def test_faults_of_a_spec(
    refused: Refused, tmp_path: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    assert old in GOOD
    written(tmp_path, GOOD.replace(old, new, 1))
    if parts == ["ranks"]:
        # Fine: another axis.
        assert sweeps.run(tmp_path / "mine.toml").sizes["hops"] == 2
        return
    lines = refused("run mine.toml")
    assert any(all(part in line for part in parts) for line in lines), lines
    assert all(line.startswith("mine.toml: ") for line in lines)


@pytest.mark.parametrize(("row", "parts"), examples(__file__, "faults_of_reductions"))
def test_faults_of_reductions(
    refused: Refused, tmp_path: Path, row: str, parts: tuple[str, ...]
) -> None:
    written(tmp_path, f"{GOOD}\n[[reductions]]\n{row}\n")
    one(refused("run mine.toml"), "mine.toml: ", *parts)


def test_reductions_and_figures_that_are_no_lists(refused: Refused, tmp_path: Path) -> None:
    written(tmp_path, 'reductions = "x"\nfigures = [1]\nmeasured = 3\n' + GOOD)
    lines = refused("run mine.toml")
    assert [line.split(" = ")[0] for line in lines] == [
        f"mine.toml: {name}" for name in ("reductions", "figures", "measured")
    ]


def test_what_nothing_gives_is_told_with_the_file(refused: Refused, tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("message_bytes", "hops").replace('"1 MB"', "1"))
    (line,) = refused("run mine.toml")
    assert line.startswith("mine.toml: time needs the message size (nccl-tests convention); give")


def test_specs_that_cannot_be_read(refused: Refused, tmp_path: Path) -> None:
    one(refused("run nothing.toml"), "nothing.toml: ", "no such file")
    (tmp_path / "folder.toml").mkdir()
    one(refused("run ./folder.toml"), "folder.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (line,) = refused("run bytes.toml")
    assert "bytes.toml" in line
    assert "UTF-8" in line


# Files.


def torn(tmp_path: Path) -> dict[str, Path]:
    """Make files that are no stored sweeps, each in its way."""
    assert (
        run(
            ["collective", "--topology", "ring", "--N", "2:64:x2", "--M", "1e6", "--output", "x.nc"]
        )
        == 0
    )
    whole = (tmp_path / "x.nc").read_bytes()
    made = {
        "cut": whole[: len(whole) // 2],
        "begun": whole[:100],
        "empty": b"",
        "text": b"not a dataset",
        "zeros": bytes(4096),
    }
    for name, content in made.items():
        (tmp_path / f"{name}.nc").write_bytes(content)
    with netCDF4.Dataset(tmp_path / "foreign.nc", "w") as file:
        file.createDimension("x", 3)
        file.createVariable("t", "f8", ("x",))[:] = 1.0
    (tmp_path / "folder.nc").mkdir()
    return {path.stem: path for path in tmp_path.glob("*.nc") if path.stem != "x"}


def test_torn_and_foreign_files(refused: Refused, tmp_path: Path) -> None:
    for name in torn(tmp_path):
        for command in ("info", "info --verify", "info --spec", "plot"):
            if (name, command) == ("foreign", "plot"):
                continue
            lines = refused(f"{command} {name}.nc")
            one(lines, f"{name}.nc: ")
        with pytest.raises(InputError):
            sweeps.open(f"{name}.nc")
    for command in ("info", "plot"):
        one(refused(f"{command} nothing.nc"), "nothing.nc: ", "no such file")


def test_a_foreign_file_is_not_replaced_by_chance(refused: Refused, tmp_path: Path) -> None:
    for name in ("text", "foreign", "cut"):
        path = (
            torn(tmp_path)[name]
            if not (tmp_path / f"{name}.nc").exists()
            else tmp_path / f"{name}.nc"
        )
        before = path.read_bytes()
        one(
            refused(f"{BASE} --output {name}.nc"),
            f"--output {name}.nc",
            "exists already",
            "--overwrite",
        )
        assert path.read_bytes() == before


def test_outputs_that_cannot_be_written(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    written(tmp_path, GOOD)
    cases = {
        "file/x.nc": "'file' is a file, not a folder",
        "nothing/x.nc": "'nothing' is a folder that does not exist",
        "folder": "is not a file but a folder",
        f"{'x' * 300}.nc": "too long",
    }
    for output, wrong in cases.items():
        for command in (BASE, "run mine.toml"):
            one(refused(f"{command} --output {output}"), f"--output {output}", wrong)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "mine.toml"]


def test_a_file_where_outputs_go(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "outputs").touch()
    written(tmp_path, GOOD)
    for line in ("run mine.toml", f"{BASE} --plot"):
        one(refused(line), "--output outputs/", "'outputs' is a file, not a folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o500)
    one(refused(f"{BASE} --output folder/x.nc"), "--output folder/x.nc", "can't be written to")


def test_options_of_a_file_that_cannot_be(refused: Refused, tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    one(refused("run mine.toml --max-memory much"), "--max-memory much")
    one(refused("run mine.toml --max-memory '3 s'"), "--max-memory '3 s'", "is a time")
    assert not (tmp_path / "x.nc").exists()


def test_a_time_of_the_source_that_is_none(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    one(
        refused(f"{BASE} --output x.nc"),
        "SOURCE_DATE_EPOCH = 'yesterday'",
        "whole seconds since 1970",
    )
