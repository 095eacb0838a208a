"""One quantity has one value under whichever of its names, and an option that is given acts."""

from __future__ import annotations

import pytest

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.cli import COMMANDS
from sweeps.cli.typed import flags_of
from sweeps.spec.names import GPUS, NAMES, OTHER_NAMES, names_of, quantity_of
from tests.cli_runner import Runner
from tests.refusals import Refused, one
from tests.tables import examples

STEP = "analysis --model llama3-8b --seq-len 4096"
SMALL = "plan --model llama3-8b -b 64 -s 4k --tp 1 --pp 1 --cp 1 --zero-stage 1 --recompute none"


def test_a_name_means_one_thing() -> None:
    assert not {*OTHER_NAMES} & {*VOCABULARY, *LABELS}
    for own, names in NAMES.items():
        for name in names:
            assert quantity_of(name, training=own != GPUS[1]) in (own, *GPUS)
        assert flags_of(own)[0] == f"--{names_of(own)[0].replace('_', '-')}"


@pytest.mark.thorough_cases("analysis", "plan")
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("collective --message-size 1MiB", ("ranks",)),
        (STEP, ("world_size",)),
        (f"{SMALL} --top 1", ("world_size",)),
    ],
)
def test_nodes_are_as_many_gpus_as_they_have(
    cli: Runner, line: str, names: tuple[str, ...]
) -> None:
    for machine, gpus in (("dgx-h100", 16), ("dgx-h100 --gpus-per-node 4", 8)):
        nodes = cli(f"{line} --hardware {machine} --nodes 2 --json").records
        assert nodes == cli(f"{line} --hardware {machine} --gpus {gpus} --json").records
        assert {record[name] for record in nodes for name in names} == {gpus}
    assert (
        cli(f"{line} --nodes 2 --gpus 16 --json").records == cli(f"{line} --gpus 16 --json").records
    )


def test_nodes_of_a_number_of_parameters(cli: Runner) -> None:
    nodes = cli("plan --params 70 --nodes 8 --json").records
    assert [row["world_size"] for row in nodes] == [64] * len(nodes)


def test_the_nodes_of_several_machines(cli: Runner, refused: Refused) -> None:
    line = "collective --message-size 1MiB --nodes 1,2 --hardware dgx-h100,"
    assert [row["ranks"] for row in cli(f"{line}dgx-a100 --json").records] == [8, 16, 8, 16]
    one(
        refused(f"{line}gb200-nvl72"),
        "--nodes 1,2",
        "8, 72",
        "the number of GPUs, or one kind of node",
    )


@pytest.mark.parametrize(
    "line",
    [
        "collective --N 8 --gpus 8 --M 1MiB --message-size 1024KiB --json",
        f"{STEP} --gpus 8 --num-gpus 8.0 --seq-length 4k --json",
    ],
)
def test_equal_values_of_one_quantity_are_fine(cli: Runner, line: str) -> None:
    plain = line.replace(" --gpus 8", "").replace(" --M 1MiB", "").replace(" --seq-length 4k", "")
    assert cli(line).records == cli(plain).records


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{STEP} --gpus 8 --batch-size 2", "read as the micro-batch size; for the global batch"),
        (f"{SMALL.replace('-b', '--batch-size')} --gpus 8", "is read as the global batch size"),
    ],
)
def test_a_batch_size_says_what_it_is_read_as(cli: Runner, line: str, words: str) -> None:
    assert words in " ".join(cli(line).out.split())


@pytest.mark.thorough
@pytest.mark.parametrize(("label", "degree"), examples(__file__, "idle_labels"))
def test_a_label_that_changes_nothing_is_refused(
    refused: Refused, cli: Runner, label: str, degree: str
) -> None:
    flag, value = f"--{label}".split()
    why = f"changes nothing: --{degree} is 1" if degree else "changes nothing"
    one(refused(f"{STEP} --gpus 16 {flag} {value}"), f"{flag} {value}", why)
    if degree:
        extra = " --sp" if degree == "tp" else ""
        cli(f"{STEP} --gpus 16 {flag} {value} --{degree} 1,2 --micro-batches 4 --json{extra}")


def test_a_default_label_given_back_is_fine(cli: Runner) -> None:
    line = f"{STEP} --gpus 16 --json"
    given = "--tp-mechanism efficiency --schedule one_f_one_b --latency-model hop"
    assert cli(f"{line} {given}").records == cli(line).records


@pytest.mark.parametrize("command", ["collective", "analysis", "plan", "buy", "page"])
def test_help_lists_other_names_once(cli: Runner, command: str) -> None:
    assert command in COMMANDS
    shown = cli(f"{command} --help-all").out
    head, aliases = shown.split("Aliases:")
    other = "--message-bytes" if command == "collective" else "--seq-length"
    assert other not in head.split()
    assert aliases.count(other) == 1
