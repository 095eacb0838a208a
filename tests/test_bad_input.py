"""Bad input: one line a fault that names the field, the value and what would be right; exit 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sweeps
from tests.refusals import BASE, Refused, one


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    monkeypatch.chdir(tmp_path)
    return Refused(capsys)


# Numbers.


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0", ("--N 0", "out of range", "a whole number, 1 or more")),
        ("-4", ("--N -4", "out of range", "a whole number, 1 or more")),
        ("nan", ("--N nan", "is not a number", "'8'")),
        ("inf", ("--N inf", "is not finite", "'8'")),
        ("2.5", ("--N 2.5", "is not whole", "a whole number")),
        ("eight", ("--N eight", "does not begin with a number", "'8'")),
        ("8 GB", ("--N '8 GB'", "is an amount of data, not a plain number", "'8'")),
        ("8,16,-1", ("--N -1", "out of range", "a whole number, 1 or more")),
        ("8,8", ("--N 8", "is given twice", "once")),
        ("4:16:x2,8", ("--N 8", "is given twice", "once")),
        ("", ("--N ''", "holds no value", "one value")),
        (",", ("--N ,", "has a comma without a value", "single commas")),
        ("8:", ("--N 8:", "is not a range", "first:last:x2")),
        ("8:16", ("--N 8:16", "is not a range", "first:last:x2")),
        ("8:16:y2", ("--N 8:16:y2", "is not a range", "first:last:x2")),
        ("16:8:x2", ("--N 16:8:x2", "runs downwards", "smaller end first")),
        ("8:16:x1", ("--N 8:16:x1", "has a factor that leads nowhere", "above 1")),
        ("8:16:+0", ("--N 8:16:+0", "has a step that leads nowhere", "above zero")),
        ("8:16:log1", ("--N 8:16:log1", "is a range of 1 point", "2 or more")),
        ("0:16:x2", ("--N 0:16:x2", "starts at or below zero", ":lin9")),
        ("1e400", ("--N 1e400", "is too large")),
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
            ("--M 64Mbit/s", "is a bandwidth, not an amount of data", "MiB"),
        ),
        ("--M", "-1", ("--M -1", "out of range", "0 or more")),
        (
            "--M",
            "1 parsec",
            ("--M '1 parsec'", "parsec", "write it for example as '64 MiB'"),
        ),
        ("--M", "64gb", ("--M 64gb", "64 MiB")),
        ("--latency", "5GB", ("--latency 5GB", "is an amount of data, not a time", "'2 us'")),
        ("--bandwidth", "0", ("--bandwidth 0", "out of range", "above 0")),
        ("--bandwidth", "5us", ("--bandwidth 5us", "is a time, not a bandwidth", "'450 GB/s'")),
        (
            "--energy-per-bit",
            "5 pJ",
            ("--energy-per-bit '5 pJ'", "is an energy, not an energy per bit", "pJ/bit"),
        ),
        (
            "--oversubscription",
            "0.5",
            ("--oversubscription 0.5", "out of range", "1 or more"),
        ),
        ("--chunks", "1.5", ("--chunks 1.5", "is not whole", "a whole number")),
        ("--gpus-per-node", "0", ("--gpus-per-node 0", "out of range", "1 or more")),
        ("--nics-per-node", "-2", ("--nics-per-node -2", "out of range", "1 or more")),
        ("--hops", "-1", ("--hops -1", "out of range", "0 or more")),
        (
            "--reduction-cost",
            "1 s",
            ("--reduction-cost '1 s'", "is a time, not a time per byte", "ps/B"),
        ),
        (
            "--latency",
            "1us,2",
            ("--latency 2", "has no unit beside values that have one", "1us"),
        ),
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
    assert refused("collective --topology ring") == [
        "an operation needs a message size; give --message-size, such as --message-size 64MiB",
        "an operation needs a number of ranks; give --gpus, such as --gpus 8",
    ]
    # A model whose publication doesn't say on how long sequences it was trained.
    assert refused("analysis --model glm-5.2 --gpus 512 --tp 8") == [
        "memory, tensor parallelism (tp 8) and expert parallelism (ep 1) need the "
        "sequence length in tokens; give --seq-len"
    ]


# Names.


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("colective", ("colective: ", "no such command", "did you mean 'collective'")),
        (BASE.replace("ring", "rnig"), ("--topology rnig", "unknown", "did you mean 'ring'")),
        (
            BASE.replace("ring", "ring,trous"),
            ("--topology trous", "unknown", "did you mean 'torus'"),
        ),
        (f"{BASE} --op all_reduse", ("--op all_reduse", "unknown", "'all_reduce'")),
        (f"{BASE} --algorithm tree-pype", ("--algorithm tree-pype", "unknown", "'tree_pipe'")),
        (f"{BASE} --hardware dgx-h10", ("--hardware dgx-h10", "not in the catalog", "'dgx-h100'")),
        (
            f"{BASE} --hardware dgx-h100,nothing",
            ("--hardware nothing", "not in the catalog", "known: "),
        ),
        (
            f"{BASE} --hardware ./mine.toml",
            ("--hardware ./mine.toml", "no such file", "as a name"),
        ),
        (f"{BASE} --latency-per hopp", ("--latency-per hopp", "unknown", "did you mean 'hop'")),
        (
            f"{BASE} --latency-per byte",
            ("--latency-per byte", "unknown", "known: hop, message"),
        ),
        (f"{BASE} --link outer", ("--link outer", "unknown", "did you mean 'inter'")),
        (f"{BASE} --link 3", ("--link 3", "unknown", "known: auto, inter, intra")),
        (f"{BASE} --algorithm ring,ring", ("--algorithm ring", "twice", "once")),
        ("list --topology rnig", ("--topology rnig", "unknown", "did you mean 'ring'")),
        ("list --op reduse", ("--op reduse", "unknown", "did you mean 'reduce'")),
        (
            "show serialization_tim",
            ("serialization_tim", "no such formula", "did you mean 'serialization_time'"),
        ),
        ("catalog dgx-h10", ("dgx-h10: ", "no such machine", "'dgx-h100'")),
        ("run quickstrat", ("quickstrat: ", "no such sweep", "did you mean 'quickstart'")),
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
        ("run --no-plot", "SPEC"),
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
        "--N 16, --mesh-nx 4, --mesh-ny 3 (mesh nz 1)",
        "mesh sizes do not multiply to ranks",
    )
    one(refused(line), *parts, "--mesh-nx x --mesh-ny x --mesh-nz must be the number of ranks")
    one(
        refused("collective --topology torus --N 10 --mesh-nx 4 --M 1e6"),
        "--N 10, --mesh-nx 4 (mesh ny 2.5, mesh nz 1)",
    )


def test_nodes_that_do_not_divide_the_ranks(refused: Refused) -> None:
    line = "collective --topology hierarchical --N 10 --gpus-per-node 4 --M 1e6"
    parts = ("--N 10, --gpus-per-node 4", "ranks not multiple of gpus per node")
    one(refused(line), *parts, "--gpus-per-node must divide the number of ranks")
    # The node's size may be the machine's, or an axis of one.
    one(refused(line.replace("--gpus-per-node 4", "")), "--N 10 (gpus per node 8)")
    one(refused(line.replace("10", "10:11:x2")), "--N 10, --gpus-per-node 4")
    pods = "collective --topology hierarchical --N 48 --nodes-per-pod 4 --M 1e6"
    one(
        refused(pods),
        "--N 48, --nodes-per-pod 4 (gpus per node 8)",
        "--nodes-per-pod must divide",
    )


def test_algorithms_that_are_not_there(refused: Refused) -> None:
    line = f"{BASE} --algorithm nvls"
    one(
        refused(line),
        "--algorithm nvls",
        "no algorithm of all_reduce on ring",
        "known there: ",
        "ring_split",
    )
    # Its links' figures aren't what is wrong, though nothing depends on them.
    other = "collective --topology torus --N 16 --M 1e6 --algorithm dbt --bandwidth 50GB/s"
    one(refused(other), "--algorithm dbt", "no algorithm of all_reduce on torus")
    halves = "collective --topology switch --N 6 --M 1e6 --algorithm doubling"
    one(refused(halves), "--N 6", "ranks not power of two", "must be a power of two")
    inc = "collective --topology switch --N 8 --M 1e6 --algorithm inc"
    one(refused(inc), "no reduction in the network", "has_inc = 1")
    tree = "collective --topology hierarchical --N 8 --M 1e6 --tree-algo"
    one(
        refused(tree),
        "--tree-algo hierarchical",
        "no tree algorithm there",
        "one network of ring, tree, ",
    )
    one(
        refused(f"{BASE} --tree-algo --algorithm ring"),
        "--tree-algo",
        "--algorithm is given too",
        "one of",
    )


def test_dimensions_that_cannot_be(refused: Refused) -> None:
    line = "collective --topology torus --M 1e6 "
    one(refused(f"{line} --N 16 --mesh-dimensions 4"), "--mesh-dimensions 4", "1, 2 or 3")
    one(
        refused(f"{line} --N 16 --mesh-dimensions 0"),
        "--mesh-dimensions 0",
        "a whole number, 1 or more",
    )
    one(
        refused(f"{line} --N 16 --mesh-dimensions 1 --mesh-ny 4"),
        "--mesh-dimensions 1",
        "--mesh-ny is given, too",
    )


# Sizes that are too large.


def test_an_axis_of_ten_to_the_thirteen_values(refused: Refused) -> None:
    lines = refused("collective --topology ring --N 8", "--M=1:10000000000000:+1")
    one(
        lines,
        "--M 1:10000000000000:+1",
        "is 10,000,000,000,000 values",
        "100,000,000 at most",
    )


def test_a_grid_of_ten_to_the_thirteen_cells(refused: Refused, tmp_path: Path) -> None:
    line = "collective --topology ring --N 2:100001:+1 --M 1:1e9:log100000 --latency 1e-7:1:log1000"
    for output in ("", "--output x.nc", "--csv"):
        (found,) = refused(f"{line} {output}")
        assert found.startswith("axes = 'latency 1000 x ")
        assert re.search(r"e\+13 cells, [.\d]+e?\+?\d* TB; at most 1e\+11 cells", found), found
        assert "ask for a reduction" in found
    assert list(tmp_path.iterdir()) == []
    many = "collective --topology ring --N 2:10001:+1 --M 1:1e9:log10000"
    one(
        refused(many),
        "axes = '100,000,000 cells'",
        "too many to print",
        "--output FILE.nc",
        "reduction",
    )
