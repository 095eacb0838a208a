"""What a training step's communication hides behind: how much of it, and why not all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from overhead.evaluation import Evaluation
from overhead.labels import PAIRED, PREFETCHES, SHARED
from sweeps.bands import percent
from sweeps.cli.analysis_headline import number
from sweeps.cli.numbers import shown
from sweeps.wrapping import aligned

# Of each dimension: its parts of a step that are exposed, the share that may hide, behind what,
# and why the rest can't.
HIDING: tuple[tuple[str, str, str, str, str], ...] = (
    ("tp", "exposed_tp_time", "tp_overlap", "the layer's own GEMMs",
     "a block's output waits for it (dependency)"),
    ("cp", "exposed_cp_time", "cp_overlap", "scores of the blocks that are there",
     "attention is too short for it, or waits for it"),
    ("ep", "exposed_ep_time", "ep_overlap", "another micro-batch's computing",
     "experts wait for their tokens (dependency)"),
    ("pp", "exposed_pp_time", "", "the micro-batches in between",
     "stages wait while the pipeline fills, drains and turns"),
    ("dp", "exposed_dp_time", "dp_overlap", "the last backward's layers, and the next forward's",
     "the first gathering and the last reduction have nothing beside them"),
)  # fmt: skip
BUCKETED = ("ddp_buckets", "megatron_buckets", "gradient_accumulation")
# Of a named mechanism: why the rest stays exposed.
MECHANISM = {
    "userbuffers": "a ring's first chunk, a pipeline's last part, multiprocessors taken",
    "decomposed": "the last chunk's product or sum, and what is longer than its product",
    "ring_exchange": "the last block in is still to be attended to, or attention is short",
    "chunked": "the first chunk's dispatch and the last one's combine, or products are short",
    **dict.fromkeys(BUCKETED, "the last bucket's gradients, or the window is short"),
    **dict.fromkeys(PREFETCHES, "the first weights, the last gradients, and what outlasts a layer"),
}
# Shares that hold in part of the cases alone.
HIDDEN = {"tp_overlap": "tp_overlapped_fraction"}
WHOLE = "without sequence parallelism an all_reduce has no product beside it"
SHORT = "what it hides behind is too short"
BEHIND = {"chunked": "the products of the chunks beside it"}
BEHIND_PAIRS = "the other direction's forward and backward"
UNPAIRED = "while the pipeline fills and drains, and what is longer than the computing beside it"


def overlap_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield a table: of each dimension that communicates what hides, what is exposed, and why."""
    rows: list[Sequence[str]] = []
    for dimension, part, share, behind, why in HIDING:
        total = number(evaluation, f"{dimension}_communication_time")
        exposed = number(evaluation, part)
        if not total > 0.0 or np.isnan(exposed):
            continue
        allowed = number(evaluation, HIDDEN.get(share, share)) if share else 1.0
        exposed = min(max(exposed, 0.0), total)
        whole = dimension == "tp" and number(evaluation, "sequence_parallel") == 0.0
        named = evaluation.labels.get(f"{dimension}_mechanism", SHARED)
        paired = dimension == "ep" and evaluation.labels.get("schedule") in PAIRED
        waited = _waited_for(evaluation) if dimension == "cp" else ""
        beside = BEHIND_PAIRS if paired else BEHIND.get(named, behind)
        if paired:
            reason = "nothing" if exposed < 0.005 * total else UNPAIRED
        elif waited:
            reason, beside = waited, beside if exposed < total else "nothing"
        elif whole and allowed == 0.0:
            reason = _whole(evaluation)
        elif named == SHARED:
            reason = _reason(exposed / total, allowed, share, why)
        else:
            allowed = 1.0
            reason = _reason_of_mechanism(evaluation, dimension, exposed / total, why)
        rows.append(
            (
                dimension,
                shown("step_time", total),
                f"{shown('step_time', total - exposed)} ({percent(1.0 - exposed / total)})",
                shown("step_time", exposed),
                beside,
                reason,
            )
        )
    if not rows:
        return
    header = ("", "in all", "hidden", "exposed", "it can hide behind", "what stays exposed")
    yield "what communication hides behind (without vocabulary's, which is in the ends' work)"
    yield from aligned([header, *rows], left=len(header))
    yield ""


def _waited_for(evaluation: Evaluation) -> str:
    """Return why context parallelism stays exposed where more than a ring communicates."""
    kind = evaluation.labels["context_parallel"]
    if kind == "mixed":
        return "exchanged heads are waited for, or attention is too short for a ring"
    return "" if kind == "ring" else "all: only a ring attends while it sends"


def _whole(evaluation: Evaluation) -> str:
    """Return what of all_reduces of a whole sequence stays exposed."""
    if number(evaluation, "tp_gradient_overlap") > 0.0:
        return f"{WHOLE}, but that of gradients has the weights'"
    return f"all: {WHOLE}"


def _reason(exposed: float, allowed: float, share: str, why: str) -> str:
    """Return why part of a communication stays exposed."""
    if exposed < 0.005:
        return "nothing"
    if share and allowed == 0.0:
        return f"all: {share} = 0 ({why})"
    if share and exposed > 1.0 - allowed + 0.005:
        return f"more than {share} = {allowed:g} leaves: {SHORT}; {why}"
    return f"{why}; {share} = {allowed:g}" if share else why


def _reason_of_mechanism(evaluation: Evaluation, dimension: str, exposed: float, why: str) -> str:
    """Return why part of a communication stays exposed where a mechanism is named."""
    named = evaluation.labels[f"{dimension}_mechanism"]
    usual = MECHANISM[named]
    if named in PREFETCHES:
        ways = ("forward", "backward")
        if not all(number(evaluation, f"{way}_layers_ahead") for way in ways):
            usual = "weights that aren't fetched ahead are waited for"
    elif dimension == "dp" and number(evaluation, "zero_stage") >= 3.0:
        usual = why
    if dimension == "tp" and number(evaluation, "sequence_parallel") == 0.0:
        usual = _whole(evaluation)
    return "nothing" if exposed < 0.005 else f"{usual} ({named})"
