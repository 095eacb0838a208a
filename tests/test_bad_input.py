"""Bad input: one line a fault that names the field, the value and what would be right; exit 2."""

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path

import netCDF4
import pytest

import sweeps
from sweeps.cli import run
from sweeps.errors import InputError

BASE = "collective --topology ring --N 8 --M 1e6"


class Refused:
    """Runs a command that must be refused, and returns the lines that say why."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, line: str, *more: str, code: int = 2) -> list[str]:
        self.capsys.readouterr()
        begun = time.monotonic()
        returned = run([*shlex.split(line), *more])
        told = self.capsys.readouterr()
        assert returned == code, (told.out, told.err)
        assert told.out == ""
        assert time.monotonic() - begun < 10
        lines = told.err.splitlines()
        assert lines
        assert all(one.startswith("sweeps: ") for one in lines), lines
        assert "Traceback" not in told.err
        return [one.removeprefix("sweeps: ") for one in lines]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    monkeypatch.chdir(tmp_path)
    return Refused(capsys)


def one(lines: list[str], *parts: str) -> None:
    """Check that there is one line, that has the form of a fault, with these parts in order."""
    (line,) = lines
    assert " = " in line
    assert ": " in line
    assert "; " in line
    place = 0
    for part in parts:
        assert part in line[place:], (part, line)
        place = line.index(part, place) + len(part)


# Numbers.


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0", ("ranks = '0'", "outside of its domain", "a whole number from 1")),
        ("-4", ("ranks = '-4'", "outside of its domain", "a whole number from 1")),
        ("nan", ("ranks = 'nan'", "is not a number", "'8'")),
        ("inf", ("ranks = 'inf'", "is not finite", "'8'")),
        ("2.5", ("ranks = '2.5'", "is not whole", "a whole number")),
        ("eight", ("ranks = 'eight'", "does not begin with a number", "'8'")),
        ("8 GB", ("ranks = '8 GB'", "is an amount of data, not a plain number", "'8'")),
        ("8,16,-1", ("ranks = '-1'", "outside of its domain", "a whole number from 1")),
        ("8,8", ("ranks = '8'", "stands there twice", "once")),
        ("4:16:x2,8", ("ranks = '8'", "stands there twice", "once")),
        ("", ("ranks = ''", "holds no value", "one value")),
        (",", ("ranks = ','", "has a comma without a value", "single commas")),
        ("8:", ("ranks = '8:'", "is not a range", "first:last:x2")),
        ("8:16", ("ranks = '8:16'", "is not a range", "first:last:x2")),
        ("8:16:y2", ("ranks = '8:16:y2'", "is not a range", "first:last:x2")),
        ("16:8:x2", ("ranks = '16:8:x2'", "runs downwards", "smaller end first")),
        ("8:16:x1", ("ranks = '8:16:x1'", "has a factor that leads nowhere", "above 1")),
        ("8:16:+0", ("ranks = '8:16:+0'", "has a step that leads nowhere", "above zero")),
        ("8:16:log1", ("ranks = '8:16:log1'", "is a range of 1 point", "2 or more")),
        ("0:16:x2", ("ranks = '0:16:x2'", "starts at or below zero", ":lin9")),
        ("1e400", ("ranks = '1e400'", "is too large")),
    ],
)
def test_numbers_of_ranks_that_cannot_be(
    refused: Refused, text: str, parts: tuple[str, ...]
) -> None:
    one(refused("collective --topology ring --M 1e6", f"--N={text}"), *parts)


@pytest.mark.parametrize(
    ("flag", "text", "parts"),
    [
        (
            "--M",
            "64Mbit/s",
            ("message_bytes = '64Mbit/s'", "is a bandwidth, not an amount of data", "MiB"),
        ),
        ("--M", "-1", ("message_bytes = '-1", "outside of its domain", "from 0")),
        (
            "--M",
            "1 parsec",
            ("message_bytes = '1 parsec'", "parsec", "write it for example as '64 MiB'"),
        ),
        ("--M", "64gb", ("message_bytes = '64gb'", "64 MiB")),
        ("--latency", "5GB", ("latency = '5GB'", "is an amount of data, not a time", "'2 us'")),
        ("--bandwidth", "0", ("bandwidth = '0", "outside of its domain", "above 0")),
        ("--bandwidth", "5us", ("bandwidth = '5us'", "is a time, not a bandwidth", "'450 GB/s'")),
        (
            "--energy-per-bit",
            "5 pJ",
            ("energy_per_bit = '5 pJ'", "is an energy, not an energy per bit", "pJ/bit"),
        ),
        (
            "--oversubscription",
            "0.5",
            ("oversubscription = '0.5'", "outside of its domain", "from 1"),
        ),
        ("--chunks", "1.5", ("chunks = '1.5'", "is not whole", "a whole number")),
        ("--gpus-per-node", "0", ("gpus_per_node = '0'", "outside of its domain", "from 1")),
        ("--nics-per-node", "-2", ("nics_per_node = '-2'", "outside of its domain", "from 1")),
        ("--hops", "-1", ("hops = '-1'", "outside of its domain", "from 0")),
        (
            "--reduction-cost",
            "1 s",
            ("reduction_cost = '1 s'", "is a time, not a time per byte", "ps/B"),
        ),
        ("--latency", "1us,2", ("latency = '2'", "has no unit beside values that have one", "1us")),
    ],
)
def test_quantities_that_cannot_be(
    refused: Refused, flag: str, text: str, parts: tuple[str, ...]
) -> None:
    line = BASE if flag != "--M" else "collective --topology ring --N 8"
    one(refused(line, f"{flag}={text}"), *parts)


def test_bits_and_bytes_are_told_apart(tmp_path: Path) -> None:
    """Both are accepted, and differ by eight."""
    bits = sweeps.sweep(
        "bandwidth_time", topology="ring", ranks=8, message_bytes="1GB", bandwidth="400Gb/s"
    )
    byte = sweeps.sweep(
        "bandwidth_time", topology="ring", ranks=8, message_bytes="1GB", bandwidth="400GB/s"
    )
    assert bits["bandwidth_time"].item() == pytest.approx(8 * byte["bandwidth_time"].item())


def test_what_is_needed_is_said(refused: Refused) -> None:
    lines = refused("collective --topology ring")
    assert [line.split(" = ")[0] for line in lines] == ["--M", "--N"]
    assert all("(not given): needed; a " in line.replace("'", "") for line in lines)


# Names.


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("colective", ("command = 'colective'", "unknown", "did you mean 'collective'")),
        (BASE.replace("ring", "rnig"), ("topology = 'rnig'", "unknown", "did you mean 'ring'")),
        (
            BASE.replace("ring", "ring,trous"),
            ("topology = 'trous'", "unknown", "did you mean 'torus'"),
        ),
        (f"{BASE} --op all_reduse", ("collective = 'all_reduse'", "unknown", "'all_reduce'")),
        (f"{BASE} --algorithm tree-pipe", ("algorithm = 'tree-pipe'", "unknown", "'tree_pipe'")),
        (f"{BASE} --hardware dgx-h10", ("hardware = 'dgx-h10'", "no such machine", "'dgx-h100'")),
        (
            f"{BASE} --hardware dgx-h100,nothing",
            ("hardware = 'nothing'", "no such machine", "known: "),
        ),
        (
            f"{BASE} --hardware ./mine.toml",
            ("hardware = './mine.toml'", "no such file", "as a name"),
        ),
        (f"{BASE} --latency-per hopp", ("latency_per = 'hopp'", "unknown", "did you mean 'hop'")),
        (f"{BASE} --latency-per byte", ("latency_per = 'byte'", "unknown", "known: hop, message")),
        (f"{BASE} --link outer", ("link = 'outer'", "unknown", "did you mean 'inter'")),
        (f"{BASE} --link 3", ("link = '3'", "unknown", "known: auto, inter, intra")),
        (f"{BASE} --algorithm ring,ring", ("algorithm = 'ring'", "twice", "once")),
        ("list --topology rnig", ("--topology = 'rnig'", "unknown", "did you mean 'ring'")),
        ("list --op reduse", ("--op = 'reduse'", "unknown", "did you mean 'reduce'")),
        ("show wire_tim", ("NAME = 'wire_tim'", "no such formula", "did you mean 'wire_time'")),
        ("catalog dgx-h10", ("name = 'dgx-h10'", "no such machine", "'dgx-h100'")),
        ("run quickstrat", ("sweep = 'quickstrat'", "no such sweep", "did you mean 'quickstart'")),
    ],
)
def test_unknown_names_get_the_nearest(refused: Refused, line: str, parts: tuple[str, ...]) -> None:
    one(refused(line), *parts)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("collective --topologie ring --N 8 --M 1", "--topology"),
        ("collective --hardwar x --N 8 --M 1", "--hardware"),
        ("run quickstart --overwite", "--overwrite"),
        ("info", "FILE.nc"),
        ("run", "SPEC"),
        ("collective --N", "--N"),
        (f"{BASE} --digits three", "three"),
        ("list --kind alorithms", "algorithms"),
    ],
)
def test_options_that_there_are_not(refused: Refused, line: str, words: str) -> None:
    lines = refused(line)
    assert len(lines) == 1
    assert words in lines[0]


# Networks that can't be.


def test_sizes_of_a_mesh_that_are_not_the_ranks(refused: Refused) -> None:
    line = "collective --topology mesh --N 16 --mesh-nx 4 --mesh-ny 3 --M 1e6"
    parts = (
        "ranks, mesh_nx, mesh_ny, mesh_nz = '16, 4, 3, 1'",
        "mesh sizes do not multiply to ranks",
    )
    one(refused(line), *parts, "mesh_nx x mesh_ny x mesh_nz must be the number of ranks")
    one(
        refused("collective --topology torus --N 10 --mesh-nx 4 --M 1e6"),
        "ranks, mesh_nx, mesh_nz = '10, 4, 1'",
    )


def test_nodes_that_do_not_divide_the_ranks(refused: Refused) -> None:
    line = "collective --topology hierarchical --N 10 --gpus-per-node 4 --M 1e6"
    parts = ("ranks, gpus_per_node = '10, 4'", "ranks not multiple of gpus per node")
    one(refused(line), *parts, "gpus_per_node must divide the number of ranks")
    # The node's size may be the machine's, or an axis of one.
    one(refused(line.replace("--gpus-per-node 4", "")), "ranks, gpus_per_node = '10, 8'")
    one(refused(line.replace("10", "10:11:x2")), "ranks, gpus_per_node = '10, 4'")
    pods = "collective --topology hierarchical --N 48 --nodes-per-pod 4 --M 1e6"
    one(
        refused(pods),
        "ranks, gpus_per_node, nodes_per_pod = '48, 8, 4'",
        "nodes_per_pod must divide",
    )


def test_algorithms_that_are_not_there(refused: Refused) -> None:
    line = f"{BASE} --algorithm nvls"
    one(
        refused(line),
        "algorithm = 'nvls'",
        "no algorithm of all_reduce on ring",
        "known there: ",
        "ring_split",
    )
    halves = "collective --topology switch --N 6 --M 1e6 --algorithm doubling"
    one(refused(halves), "ranks = '6'", "ranks not power of two", "must be a power of two")
    inc = "collective --topology switch --N 8 --M 1e6 --algorithm inc"
    one(refused(inc), "no reduction in the network", "has_inc = 1")
    tree = "collective --topology hierarchical --N 8 --M 1e6 --tree-algo"
    one(
        refused(tree),
        "--tree-algo = 'hierarchical'",
        "no tree algorithm there",
        "one network of tree, ",
    )
    one(
        refused(f"{BASE} --tree-algo --algorithm ring"),
        "--tree-algo",
        "--algorithm is given too",
        "one of",
    )


def test_dimensions_that_cannot_be(refused: Refused) -> None:
    line = "collective --topology torus --M 1e6 "
    one(refused(f"{line} --N 16 --mesh-dimensions 4"), "mesh_dimensions = '4'", "1, 2 or 3")
    one(
        refused(f"{line} --N 16 --mesh-dimensions 0"),
        "mesh_dimensions = '0'",
        "a whole number from 1",
    )
    one(
        refused(f"{line} --N 8,16 --mesh-dimensions 1,2"),
        "mesh_dimensions = '..'",
        "varies beside the ranks",
    )
    one(
        refused(f"{line} --N 16 --mesh-dimensions 2 --mesh-nx 4"),
        "mesh_dimensions = '..'",
        "sizes are given too",
    )


# Sizes that are too large.


def test_an_axis_of_ten_to_the_thirteen_values(refused: Refused) -> None:
    lines = refused("collective --topology ring --N 8", "--M=1:10000000000000:+1")
    one(
        lines,
        "message_bytes = '1 B:10000000000000 B:+1 B'",
        "is 10,000,000,000,000 values",
        "100,000,000 at most",
    )


def test_a_grid_of_ten_to_the_thirteen_cells(refused: Refused, tmp_path: Path) -> None:
    line = "collective --topology ring --N 2:100001:+1 --M 1:1e9:log100000 --latency 1e-7:1:log1000"
    for output in ("", "--output x.nc", "--csv"):
        (told,) = refused(f"{line} {output}")
        assert told.startswith("axes = 'latency 1000 x ")
        assert re.search(r"e\+13 cells, [.\d]+e?\+?\d* TB; at most 1e\+11 cells", told), told
        assert "ask for a reduction" in told
    assert list(tmp_path.iterdir()) == []
    many = "collective --topology ring --N 2:10001:+1 --M 1:1e9:log10000"
    one(
        refused(many),
        "axes = '100,000,000 cells'",
        "too many to print",
        "--output FILE.nc",
        "reduction",
    )


# Specs.


def written(tmp_path: Path, text: str, name: str = "mine.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


GOOD = """
quantities = ["time"]
[axes]
ranks = [8, 16]
topology = ["ring", "torus"]
[constants]
message_bytes = "1 MB"
"""


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
    told = [line.removeprefix("mine.toml: ") for line in lines]
    starts = [
        "titel = '..': no such key; did you mean 'title'",
        "quantities = 'tiem': no such quantity; did you mean 'time'",
        "ranks = '0': outside of its domain; a whole number from 1",
        "topology = 'rnig': unknown; did you mean 'ring'",
        "message_bytes = 1000: has no unit; write it for example as '64 MiB'",
        "hardware = 'dgx-h10': there is no such machine; did you mean 'dgx-h100'",
        "latency = '2 GB': is an amount of data, not a time",
        "axes.case = '{..}': columns of unequal length (chunks has 2, hops has 3)",
        "link = 'outer': unknown; did you mean 'inter'",
        "nics_per_node = '[1, 2]': a constant has one value; several make an axis",
        "oversubscriptoin = '2': no such quantity; did you mean 'oversubscription'",
        "reductions.quantity = 'tim': no such one; did you mean 'time'",
        "reductions.over = 'rank': not an axis; did you mean 'ranks'",
        "reductions.operation = 'minimum': unknown; did you mean 'min'",
    ]
    for start in starts:
        assert any(line.startswith(start) for line in told), (start, told)
    assert len(told) == len(starts)


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


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('"1 MB"', "1000000", ("message_bytes = 1000000", "has no unit", "'64 MiB'")),
        ('"1 MB"', "true", ("message_bytes = True", "is not a number")),
        ('"1 MB"', "2020-01-01", ("message_bytes = ", "2020", "64 MiB")),
        ("[8, 16]", "[]", ("ranks = []", "holds no value", "one value")),
        ("[8, 16]", '"4:4:lin5"', ("ranks = '4:4:lin5'", "has one end twice", "the value alone")),
        ("[8, 16]", "[[8, 16]]", ("ranks = [8, 16]", "is not a number")),
        ("[8, 16]", "{ }", ("axes.ranks = '{..}'", "a table needs a name of its own", "'case'")),
        ('["ring", "torus"]', "[]", ("topology = '[]'", "empty", "one value")),
        (
            '["ring", "torus"]',
            '["ring", "ring"]',
            ("topology = 'ring'", "stands there twice", "once"),
        ),
        ('["time"]', "[]", ("quantities = ''", "ask for nothing", "computed")),
        ('["time"]', '["ranks"]', ("quantities = 'ranks'", "are given", "computed")),
        (
            '["time"]',
            '["pod_wire_tiem"]',
            ("quantities = 'pod_wire_tiem'", "no such quantity", "pod_wire_time"),
        ),
        ("ranks =", "ranks = 8\nhops =", ("ranks",)),
        (
            "message_bytes =",
            "ranks = 8\nmessage_bytes =",
            ("ranks = '..'", "given twice", "one axis or one"),
        ),
        ("[axes]", "axes = 3\n[constant]", ("axes = 3", "not a table", "[axes]")),
        (
            "[axes]",
            "[axes]\nstatus = { hops = [1] }",
            ("axes = 'status'", "can't be a dimension's name"),
        ),
        (
            "[axes]",
            '[axes]\n"a b" = { hops = [1] }',
            ("axes = 'a b'", "can't be a dimension's name", "letters"),
        ),
        ("[axes]", "[axes]\ncase = { }", ("axes.case = '{}'", "no columns", "one or more")),
        (
            "[axes]",
            "[axes]\ncase = { hopps = [1] }",
            ("hopps = '[1]'", "no such quantity", "'hops'"),
        ),
    ],
)
def test_faults_of_a_spec(
    refused: Refused, tmp_path: Path, old: str, new: str, parts: tuple[str, ...]
) -> None:
    assert old in GOOD
    written(tmp_path, GOOD.replace(old, new, 1))
    if parts == ("ranks",):
        # Fine: another axis.
        assert sweeps.run(tmp_path / "mine.toml").sizes["hops"] == 2
        return
    lines = refused("run mine.toml")
    assert any(all(part in line for part in parts) for line in lines), lines
    assert all(line.startswith("mine.toml: ") for line in lines)


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ('quantity = "time"', ("reductions.over = '[]'", "empty", "ranks, topology")),
        ('quantity = "time"\nover = ["hop"]', ("reductions.over = 'hop'", "not an axis", "ranks")),
        (
            'quantity = "ranks"\nover = ["ranks"]',
            ("reductions.quantity = 'ranks'", "is given, not computed"),
        ),
        (
            'over = ["ranks"]\ncount = "three"',
            ("reductions.count = 'three'", "a whole number from 1"),
        ),
        ('over = ["ranks"]\ncount = 0', ("reductions.count = 0", "a whole number from 1")),
        ('over = ["ranks"]\nquantiles = [2]', ("reductions.quantiles = [2]", "from 0 to 1")),
        ('over = ["ranks"]\nquantiles = "x"', ("reductions.quantiles = 'x'", "from 0 to 1")),
        ('over = ["ranks"]\nname = "a/b"', ("reductions.name = 'a/b'", "letters, digits and _")),
        (
            'over = ["ranks"]\nnmae = "x"',
            ("reductions.nmae = '..'", "no such key", "did you mean 'name'"),
        ),
        (
            'over = ["ranks"]\n[[reductions]]\nover = ["topology"]',
            ("reductions.name = 'time_min'", "stands there twice"),
        ),
    ],
)
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
    assert line.startswith("mine.toml: message_bytes = (not given): time needs ")


def test_specs_that_cannot_be_read(refused: Refused, tmp_path: Path) -> None:
    one(refused("run nothing.toml"), "sweep = 'nothing.toml'", "there is no such file")
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
            one(lines, f"file = '{name}.nc'")
        with pytest.raises(InputError):
            sweeps.open(f"{name}.nc")
    for command in ("info", "plot"):
        one(refused(f"{command} nothing.nc"), "file = 'nothing.nc'", "does not exist")


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
            f"output = '{name}.nc'",
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
            one(refused(f"{command} --output {output}"), f"output = '{output}'", wrong)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "mine.toml"]


def test_a_file_where_outputs_go(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "outputs").touch()
    written(tmp_path, GOOD)
    for line in ("run mine.toml", f"{BASE} --plot"):
        one(refused(line), "output = 'outputs/", "'outputs' is a file, not a folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o500)
    one(refused(f"{BASE} --output folder/x.nc"), "output = 'folder/x.nc'", "can't be written to")


def test_options_of_a_file_that_cannot_be(refused: Refused, tmp_path: Path) -> None:
    one(refused(f"{BASE} --output x.nc --dtype f2"), "dtype = 'f2'", "f8 or f4")
    one(refused(f"{BASE} --output x.nc --digits 0"), "digits = ")
    one(refused(f"{BASE} --output x.nc --digits 99"), "digits = ")
    written(tmp_path, GOOD)
    one(refused("run mine.toml --max-memory much"), "--max-memory = 'much'")
    one(refused("run mine.toml --max-memory '3 s'"), "--max-memory = '3 s'", "is a time")
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
