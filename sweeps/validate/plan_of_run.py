"""The parallel plan and the batches of a measured run, with what its row leaves out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NoReturn

from sweeps.validate.run_table import Run

__all__ = ["Unpredictable", "complete_batch", "complete_plan", "even_ends", "gpus_of", "refuse"]

DEGREES = ("tp", "pp", "cp", "ep")


class Unpredictable(Exception):
    """A row can't be predicted; the text says why."""


def refuse(reason: str) -> NoReturn:
    """Say that a row can't be predicted, and why."""
    raise Unpredictable(reason)


def gpus_of(run: Run, numbers: Mapping[str, float]) -> float:
    """Return all GPUs of a run."""
    world = math.prod(numbers[name] for name in ("tp", "cp", "pp", "dp"))
    return run.numbers.get("gpus", world)


def complete_plan(run: Run, numbers: dict[str, float], assumed: dict[str, None]) -> None:
    """Fill in degrees, and refuse those that don't make up the GPUs."""
    blank = [name for name in DEGREES if name not in numbers]
    routed = numbers.get("experts", 0.0) > 0.0
    sharded = numbers.get("zero_stage", 0.0) == 3.0
    vital = [name for name in blank if name != "cp"]
    if routed and vital and not sharded:
        refuse("plan not stated: " + ", ".join(vital))
    for name in blank:
        numbers[name] = 1.0
        # Few runs split the context, or experts that they don't have.
        if name in ("tp", "pp") or (name == "ep" and routed):
            assumed[name] = None
    numbers.setdefault("virtual_stages", 1.0)
    if numbers["pp"] == 1.0:
        numbers["virtual_stages"] = 1.0
    elif "vpp" not in run.numbers:
        assumed["virtual_stages"] = None
    others = math.prod(numbers[name] for name in ("tp", "cp", "pp"))
    gpus = run.numbers.get("gpus")
    if "dp" not in numbers:
        if gpus is None:
            assumed["dp"] = None
        numbers["dp"] = max((gpus or others) / others, 1.0)
    if gpus is not None and others * numbers["dp"] != gpus:
        told = " x ".join(f"{name} {numbers[name]:g}" for name in ("tp", "cp", "pp", "dp"))
        refuse(f"plan {told} isn't {gpus:g} GPUs")
    numbers.setdefault("etp", 1.0 if routed else numbers["tp"])


def complete_batch(
    run: Run, numbers: dict[str, float], assumed: dict[str, None], *, step: bool
) -> None:
    """Fill in the batches; ``grad_accum`` gives way to what follows from the others."""
    stated = numbers.pop("micro_batches", 0.0)
    batch, micro, ranks = numbers.get("global_batch"), numbers.get("micro_batch"), numbers["dp"]
    if step and "sequence_length" not in numbers:
        refuse("sequence length not stated")
    if step and batch is None and not (stated and micro):
        refuse("global batch not stated")
    # Of states alone no more is needed.
    numbers.setdefault("sequence_length", 1.0)
    if micro is None:
        micro = 1.0
        if batch is not None and stated:
            micro = max(batch / (ranks * stated), 1.0)
        else:
            assumed["micro_batch"] = None
        numbers["micro_batch"] = micro
    if batch is not None and batch < ranks * micro:
        told = f"{batch:g} sequences for {ranks:g} data-parallel ranks"
        refuse(f"{told}: the plan isn't stated whole")
    if batch is None:
        if not stated:
            # Enough for a full pipeline, which is what memory needs.
            stated = 2.0 * numbers["pp"]
            if numbers["pp"] > 1.0:
                assumed["global_batch"] = None
        numbers["global_batch"] = ranks * micro * stated
    numbers["micro_batches"] = max(math.ceil(numbers["global_batch"] / (ranks * micro)), 1.0)


def even_ends(numbers: dict[str, float]) -> None:
    """Let the ends count as layers where only so the stages come out even."""
    chunks = numbers["pp"] * numbers["virtual_stages"]
    if "layers" not in numbers:
        return
    fractional = numbers["layers"] % chunks != 0.0
    if fractional and (numbers["layers"] + 2.0) % chunks == 0.0:
        numbers.setdefault("embedding_as_layer", 1.0)
        numbers.setdefault("loss_as_layer", 1.0)
