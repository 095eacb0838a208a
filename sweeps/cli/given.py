"""What a command's options give, by name: groups of options with their types, each declared once.

A command takes ``**given: Unpack[Given]``, or a group that says more, so that a name that no option
has is found before it runs. An option that wasn't typed gives what stands as its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

Options = Mapping[str, object]  # Those of any command, where names aren't known before it runs


def texts_of(given: Options, names: Iterable[str]) -> dict[str, str | None]:
    """Return what some options give, as it was typed; nothing for those that weren't."""
    return {name: None if given[name] is None else str(given[name]) for name in names}


class OfResults(TypedDict, total=False):
    """What becomes of a result: options of every command that computes."""

    output: str | None
    overwrite: bool
    plot: bool | None
    style: str | None
    as_csv: bool
    as_json: bool
    asserts: tuple[str, ...]
    formulas: tuple[str, ...]
    verbose: bool
    show: tuple[str, ...]
    timeline: str | None
    kind: str | None
    max_memory: str
    resume: bool
    workers: int
    scheduler: str | None
    sensitivity: str | bool | None  # The quantity that is asked for, or whether it is
    write: str | None
    save: str | None


Folder = Literal["hardware_folder", "model_folder", "framework_folder"]


class OfFolders(TypedDict, total=False):
    """The user's own files."""

    hardware_folder: tuple[str, ...]
    framework_folder: tuple[str, ...]
    model_folder: tuple[str, ...]


class OfQuantities(TypedDict, total=False):
    """Quantities and labels that commands look at themselves, as they were typed."""

    algorithm: str | None
    batch_size: str | None
    fabric: str | None
    global_batch_size: str | None
    hardware: str | None
    inter_bandwidth: str | None
    layers: str | None
    message_bytes: str | None
    model: str | None
    num_experts: str | None
    parameters: str | None
    precision: str | None
    schedule: str | None
    software: str | None
    tokens_per_step: str | None
    world_size: str | None


class Given(OfResults, OfFolders, OfQuantities, total=False):
    """What all commands may look at."""

    bound: str | None
    budget: str | None
    classes: tuple[str, ...]
    combined: str | None
    days: str | None
    dry_run: bool
    explain: str | None
    flags: str | None
    held: tuple[str, ...]
    include_last_step: bool
    lost_nodes: int | None
    max_token_len: str | None
    max_tp_size: str | None
    measured_plan: str | None
    memory_threshold: str
    messages: bool  # Of hops; of an overlap a quantity
    mode: Literal["full", "hta"]
    model_name: str | None
    moe: bool
    objective: str | None
    operators: str | None
    overlap_threshold: str | None
    page: bool
    patterns: str | None
    pipeline: bool | None
    quantities: tuple[str, ...]
    rank_order: str | None
    rules: str | None
    script: bool
    settings: tuple[str, ...]
    sm_margin: bool
    sources: tuple[str, ...]
    strict: bool
    switching: str | None
    te_version: str | None
    tensor: str | None
    tokens: str | None
    top: int | None
    tp_size: str | None
    tree_algo: bool
    validate: str | None
    window: str | None
    wiring: str | None
    write_workload: str | None


class Hops(Given, total=False):
    """Of a study of hops."""

    spec: str | None


class Planned(Given, total=False):
    """Where plans are searched."""

    nodes: str | None


class Measured(Given, total=False):
    """Where logs are compared: a run has one number of GPUs and nodes."""

    at: str | None
    gpus_per_node: int | None
    nics_per_node: int | None
    nodes: int | None
    op: str | None
    placement: str
    ranks: int | None
    sizes: str | None
