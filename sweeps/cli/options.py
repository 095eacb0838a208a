"""Options that several commands share, and what they state together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from sweeps.errors import InputError, fault

__all__ = [
    "COLLECTIVE_FLAGS",
    "collective_options",
    "file_options",
    "output_options",
    "recorded",
    "stated_sweep",
    "tree_algorithms",
]

Command = TypeVar("Command", bound=Callable[..., Any])

# Flag names, the quantity or label that they give, and what it is.
COLLECTIVE_FLAGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--op", "--collective"), "collective", "Operation(s), or all.  [default: all_reduce]"),
    (("--topology",), "topology", "Network(s), or all.  [default: switch]"),
    (("--algorithm",), "algorithm", "Algorithm(s): a name, standard, nccl, auto or all."),
    (("--N", "--ranks", "--num-gpus", "--gpus"), "ranks", "Number of ranks."),
    (("--M", "--message-bytes"), "message_bytes", "Message size (bytes, or with a unit)."),
    (("--hardware",), "hardware", "Machine(s) of the catalogue.  [default: dgx-h100]"),
    (("--bandwidth",), "bandwidth", "One direction of a flat network's link."),
    (("--latency",), "latency", "Of a flat network's link."),
    (("--energy-per-bit",), "energy_per_bit", "Of a flat network's link."),
    (("--link",), "link", "Link of a flat network: auto, intra or inter."),
    (("--gpus-per-node",), "gpus_per_node", "Ranks of the group in a node (hierarchical)."),
    (("--nics-per-node",), "nics_per_node", "Network cards of a node."),
    (("--nodes-per-pod",), "nodes_per_pod", "Nodes of a pod: a third level (hierarchical)."),
    (("--intra-bandwidth",), "intra_bandwidth", "Inside a node."),
    (("--intra-latency",), "intra_latency", "Inside a node."),
    (("--inter-bandwidth",), "inter_bandwidth", "Of one network card between nodes."),
    (("--inter-latency",), "inter_latency", "Between nodes."),
    (("--pod-bandwidth",), "pod_bandwidth", "Of one network card between pods."),
    (("--pod-latency",), "pod_latency", "Between pods."),
    (("--oversubscription",), "oversubscription", "Between nodes (2 halves the bandwidth)."),
    (("--pod-oversubscription",), "pod_oversubscription", "Between pods."),
    (("--mesh-nx",), "mesh_nx", "Ranks along x (mesh and torus)."),
    (("--mesh-ny",), "mesh_ny", "Ranks along y."),
    (("--mesh-nz",), "mesh_nz", "Ranks along z."),
    (("--mesh-dimensions",), "mesh_dimensions", "Dimensions, if sizes aren't given.  [default: 2]"),
    (("--chunks",), "chunks", "Chunks of a pipelined algorithm.  [default: the optimum]"),
    (("--phase-chunks",), "phase_chunks", "Chunks over which phases are pipelined."),
    (("--reduction-cost",), "reduction_cost", "Time to reduce a byte (s/B).  [default: none]"),
    (("--hops",), "hops", "Links between the two ranks of a p2p.  [default: 1]"),
    (("--latency-per",), "latency_per", "What pays a latency: hop or message.  [default: hop]"),
)
# The tree algorithm of each network, for --tree-algo.
TREES = {
    "tree": "dbt",
    "switch": "dbt",
    "ring": "tree_pipe",
    "mesh": "tree_pipe",
    "torus": "tree_pipe",
    "binary_tree": "tree_pipe",
}


def collective_options(command: Command) -> Command:
    """Add the options that state a sweep of collectives."""
    for flags, name, words in reversed(COLLECTIVE_FLAGS):
        command = click.option(*flags, name, help=words, metavar="VALUES")(command)
    return command


def output_options(command: Command) -> Command:
    """Add the options that say what becomes of the result."""
    for option in reversed(
        (
            click.option("--output", metavar="FILE.nc", help="Write the dataset as netCDF."),
            click.option("--overwrite", is_flag=True, help="Replace an output that exists."),
            click.option("--plot", is_flag=True, help="Draw figures beside the output."),
            click.option("--csv", "as_csv", is_flag=True, help="One record a cell, as CSV."),
            click.option("--json", "as_json", is_flag=True, help="One record a cell, as JSON."),
            click.option("--compress", is_flag=True, help="Compress the file, lossless."),
            click.option("--digits", type=int, help="Round to so many digits, and compress."),
            click.option("--dtype", default="f8", help="f8 or f4: numbers in the file."),
            click.option("--formulas", multiple=True, metavar="FILE.py", help="Own formulas."),
            click.option(
                "--hardware-folder", multiple=True, metavar="FOLDER", help="Own machines."
            ),
        )
    ):
        command = option(command)
    return command


def stated_sweep(given: Mapping[str, str | None], title: str) -> dict[str, Any]:
    """Make of options what a spec file would state."""
    from sweeps.spec.dump import with_unit

    axes: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, text in given.items():
        if text is None:
            continue
        value = with_unit(name, text)
        many = "," in text or ":" in text or text.strip() == "all"
        (axes if many else constants)[name] = value
    stated: dict[str, Any] = {"title": title}
    if axes:
        stated["axes"] = axes
    if constants:
        stated["constants"] = constants
    return stated


def file_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that decide a file's contents, for its fingerprint."""
    from pathlib import Path

    formulas = [Path(path).read_text(encoding="utf-8") for path in given["formulas"]]
    kept = {name: given[name] for name in ("compress", "digits", "dtype")}
    kind = {"format": "zarr"} if given.get("kind") == "zarr" else {}
    return {**kept, **kind, "formulas": "".join(formulas)}


# Options that decide how a sweep is run, not what is in its file, and whether they have a value.
OF_RUNNING = {
    "--resume": False,
    "--overwrite": False,
    "--plot": False,
    "--no-plot": False,
    "--verbose": False,
    "-v": False,
    "--workers": True,
    "--scheduler": True,
    "--max-memory": True,
    "--output": True,
}


def recorded(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments as its file tells them: the same however it was run."""
    kept, skipped = [], False
    for argument in arguments:
        name, _, value = argument.partition("=")
        if skipped:
            skipped = False
        elif name in OF_RUNNING:
            skipped = OF_RUNNING[name] and not value
        else:
            kept.append(argument)
    return kept


def tree_algorithms(topology: str | None, algorithm: str | None) -> str:
    """Return the algorithm that --tree-algo means."""
    name = topology or "switch"
    if algorithm is not None:
        raise InputError(fault("--tree-algo", "set", "--algorithm is given too", "one of the two"))
    if name not in TREES:
        allowed = f"one network of {', '.join(TREES)}"
        raise InputError(fault("--tree-algo", name, "no tree algorithm there", allowed))
    return TREES[name]
