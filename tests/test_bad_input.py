"""Bad input: one line a fault that names the field, the value and what would be right; exit 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sweeps
from tests.refusals import BASE, Refused, one
from tests.tables import examples

# Numbers.


@pytest.mark.parametrize(("text", "parts"), examples(__file__, "numbers_of_ranks_that_cannot_be"))
def test_numbers_of_ranks_that_cannot_be(
    refused: Refused, text: str, parts: tuple[str, ...]
) -> None:
    one(refused("collective --topology ring --M 1e6", f"--N={text}"), *parts)


@pytest.mark.parametrize(("flag", "text", "parts"), examples(__file__, "quantities_that_cannot_be"))
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


@pytest.mark.parametrize(("line", "parts"), examples(__file__, "unknown_names", BASE=BASE))
def test_unknown_names_get_the_nearest(refused: Refused, line: str, parts: tuple[str, ...]) -> None:
    one(refused(line), *parts)


@pytest.mark.parametrize(("line", "words"), examples(__file__, "unknown_options", BASE=BASE))
def test_options_that_there_are_not(refused: Refused, line: str, words: str) -> None:
    lines = refused(line)
    assert len(lines) == 1
    assert words in lines[0]


# Networks that can't be.


def test_sizes_of_a_mesh_that_are_not_the_ranks(refused: Refused) -> None:
    line = "collective --topology mesh --N 16 --mesh-nx 4 --mesh-ny 3 --M 1e6"
    parts = ("--N 16, --mesh-nx 4, --mesh-ny 3 (mesh nz 1)", "mesh sizes do not multiply to ranks")
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
    one(refused(pods), "--N 48, --nodes-per-pod 4 (gpus per node 8)", "--nodes-per-pod must divide")


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
    one(lines, "--M 1:10000000000000:+1", "is 10,000,000,000,000 values", "100,000,000 at most")


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
