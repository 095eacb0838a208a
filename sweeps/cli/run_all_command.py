"""The suggested commands, ``sweeps list-cmds``, and ``run-all``, which evaluates what they do."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.options import result_options

if TYPE_CHECKING:
    from sweeps.job import Job
    from sweeps.result import Result

SIZES = "--params 70e9 --seq-length 1024 --hidden-size 4096"
# Each command is complete, so that `sweeps list-cmds | sh` runs them one after another.
SUGGESTED = (
    # One operation on one network.
    "sweeps collective --topology ring --N 8 --M 140e9",
    "sweeps collective --topology tree --N 8 --M 140e9",
    "sweeps collective --topology tree --N 8 --M 140e9 --tree-algo",
    "sweeps collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9",
    "sweeps collective --topology switch --N 8 --M 140e9",
    "sweeps collective --topology mesh --N 16 --mesh-nx 4 --mesh-ny 4 --M 140e9",
    "sweeps collective --topology torus --N 16 --mesh-nx 4 --mesh-ny 4 --M 140e9",
    "sweeps collective --topology torus --mesh-nx 4 --mesh-ny 4 --mesh-nz 4 --M 1GiB",
    # The formula with the numbers put in.
    "sweeps collective --topology hierarchical --N 8 --gpus-per-node 4 --M 140e9 --verbose",
    "sweeps collective --topology torus --mesh-nx 4 --mesh-ny 4 --N 16 --M 1GiB --verbose",
    # Every operation, every network, every algorithm.
    "sweeps collective --op all --topology all --N 8 --M 64MiB",
    "sweeps collective --op all_reduce --topology switch --algorithm all --N 64 --M 1MiB",
    "sweeps collective --topology switch --algorithm auto --N 2:1024:x2 --M 1KiB:1GiB:log4",
    # What a network card shared by a node, or an oversubscribed fabric, costs.
    "sweeps collective --topology hierarchical --N 64 --M 1GiB --nics-per-node 1,2,4,8",
    "sweeps collective --op all_to_all --N 1024 --M 1GiB --oversubscription 1,2,4",
    # Machines side by side, and records for programs.
    "sweeps collective --hardware dgx-a100,dgx-h100,gb200-nvl72 --N 64 --M 256MiB",
    "sweeps collective --topology ring,switch,torus --N 2:64:x2 --M 1MiB --csv",
    # Memory and communication of a training configuration, on each network.
    "sweeps analysis --topology ring --num-gpus 8 --dp 8 --params 70e9",
    "sweeps analysis --topology hierarchical --num-gpus 8 --dp 8 --gpus-per-node 4 --params 70e9",
    "sweeps analysis --topology switch,mesh,torus,tree --num-gpus 8 --dp 8 --params 70e9",
    "sweeps analysis --topology torus --num-gpus 16 --mesh-nx 8 --mesh-ny 2 --dp 16 --params 70e9",
    # Nothing split: memory alone.
    "sweeps analysis --topology ring --num-gpus 1 --dp 1 --tp 1 --cp 1 --params 70e9",
    # Tensor, context and pipeline parallelism need the sizes of what they send.
    f"sweeps analysis --topology ring --num-gpus 8 --dp 4 --tp 2 {SIZES}",
    f"sweeps analysis --topology ring --num-gpus 8 --dp 2 --cp 4 {SIZES}",
    f"sweeps analysis --topology ring --num-gpus 8 --dp 2 --tp 2 --cp 2 {SIZES} --num-layers 32",
    f"sweeps analysis --topology ring --num-gpus 8 --dp 2 --pp 4 {SIZES} --num-layers 32",
    "sweeps analysis --topology hierarchical --num-gpus 8 --dp 8 --gpus-per-node 4 --params 70e9"
    " --verbose",
    # Whole steps of real models: memory, communication, time, energy.
    "sweeps analysis --model llama3-70b --num-gpus 512 --tp 8 --pp 4 --sp --zero-stage 1"
    " --global-batch 512 --seq-length 8192",
    "sweeps analysis --model gpt3-175b --hardware dgx-a100 --num-gpus 1024 --tp 8 --pp 8"
    " --recompute none,selective,full --sp --micro-batch 1,2 --global-batch 1536"
    " --seq-length 2048",
    "sweeps analysis --model mixtral-8x7b --num-gpus 64 --tp 2 --ep 8 --zero-stage 1 --sp"
    " --global-batch 256 --seq-length 4096",
    "sweeps analysis --model llama3-8b --num-gpus 64 --tp 1,2,4,8 --zero-stage 0,1,2,3"
    " --global-batch 64 --seq-length 8192",
    # Other machines, and a what-if of the network.
    "sweeps analysis --hardware dgx-a100,dgx-h100,dgx-b200 --model llama3-70b --num-gpus 64"
    " --tp 8 --pp 4 --sp --zero-stage 1 --global-batch 64 --seq-length 8192",
    "sweeps analysis --model llama3-70b --num-gpus 64 --tp 8 --pp 2 --zero-stage 3 --sp"
    " --global-batch 64 --seq-length 8192 --inter-bandwidth 25e9:100e9:x2 --oversubscription 1,4"
    " --csv",
    # The best plan, the calculator that many start from, hops, overlap.
    "sweeps plan --model llama3-8b --hardware dgx-h100 --gpus 16 --batch-size 64 --seq-len 4096",
    "sweeps plan --params 70 --gpus 64 --memory 80 --batch-size 512 --seq-len 4096",
    "sweeps hops",
    "sweeps overlap --compute 50ms --comm 10ms --efficiency 0.8",
    "sweeps run overlap-mechanisms",
    # What there is.
    "sweeps list --op all_reduce --topology switch",
    "sweeps show switch.all_reduce.ring",
    "sweeps catalog",
)


def combinations() -> dict[str, Any]:
    """Return the predefined sweep: every network, operation and several numbers of ranks."""
    return {
        "title": "Predefined combinations",
        "axes": {
            "collective": "all",
            "topology": "all",
            "ranks": [2, 4, 8, 16, 32, 64, 128],
        },
        "constants": {"message_bytes": "140 GB"},
    }


def analyses() -> tuple[str, ...]:
    """Return the suggested analyses: the commands' arguments, each once."""
    start = "sweeps analysis "
    output = (" --verbose", " --csv")
    found = [line.removeprefix(start) for line in SUGGESTED if line.startswith(start)]
    for end in output:
        found = [line.removesuffix(end) for line in found]
    return tuple(dict.fromkeys(found))


# ``sweeps list-cmds``: suggested commands, one a line.


@click.command("list-cmds")
def list_cmds_command() -> int:
    """List suggested commands, one a line: ``sweeps list-cmds | sh`` runs them all."""
    sys.stdout.writelines(line + "\n" for line in SUGGESTED)
    return 0


# ``sweeps run-all``: all predefined combinations as one table.

TITLE = "Predefined combinations: collective operations and training steps"


@click.command("run-all")
@result_options
def command(**given: Any) -> int:
    """Evaluate every predefined combination; print one table, as CSV where nothing is said.

    Every network, operation and several numbers of ranks, and each suggested analysis.
    """
    from sweeps.cli.write import Output
    from sweeps.result import of_rows, provenance_of

    out = Output({**given, "as_csv": not given["as_json"]}, "run-all")
    out.check()
    collectives = _collectives()
    found = {"collective": collectives.evaluated(), **dict(_analyses())}
    rows = [{"command": name, **row} for name, own in found.items() for row in own.records()]
    attrs = provenance_of(title=TITLE, stated={"commands": list(found)}, given=given)
    result = of_rows(rows, _fields(found.values()), attrs)
    out.deliver(result, draw=lambda stem: _draw(collectives, stem))
    return 0


def _fields(results: Any) -> list[Any]:
    """Return the columns of all results, each once."""
    from sweeps.result import Field

    known = {one.record: one for result in results for one in result.fields()}
    return [Field("command", "command", "command that gives the row"), *known.values()]


def _collectives() -> Job:
    from sweeps.job import prepare

    return prepare(combinations(), command=["sweeps", "run-all"])


def _analyses() -> Iterator[tuple[str, Result]]:
    from sweeps.cli.analysis_command import command as analysis
    from sweeps.cli.analysis_command import stated_analysis
    from sweeps.cli.analysis_job import analysis_job

    for line in analyses():
        given = analysis.make_context("analysis", shlex.split(line)).params
        job = analysis_job(stated_analysis(given)[0], command=["sweeps", "run-all"])
        yield f"analysis {line}", job.evaluated()


def _draw(job: Job, stem: Path) -> Iterator[Path]:
    """Draw the figures that suit the collective operations."""
    from sweeps.plots.data import subject_of
    from sweeps.plots.declare import check_figures
    from sweeps.plots.defaults import default_figures
    from sweeps.plots.draw import draw

    dataset = job.dataset()
    subject = subject_of(dataset)
    for figure in check_figures(default_figures(dataset), subject.dims, subject.variables):
        yield from draw(dataset, figure, stem.with_name(f"{stem.name}-{figure.name}"))
