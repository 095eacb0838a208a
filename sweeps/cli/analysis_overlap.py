"""What a training step's communication hides behind: how much of it, and why not all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from overhead.evaluation import Evaluation
from sweeps.cli.records import shown

__all__ = ["overlap_lines"]

# Of each dimension: its parts of a step that are exposed, the share that may hide, behind what,
# and why the rest can't.
HIDING: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "tp",
        "exposed_tp_time",
        "tp_overlap",
        "the layer's own matrix products",
        "a block's output waits for it (dependency)",
    ),
    (
        "cp",
        "exposed_cp_time",
        "cp_overlap",
        "scores of the blocks that are there",
        "attention is too short for it, or waits for it",
    ),
    (
        "ep",
        "exposed_ep_time",
        "ep_overlap",
        "another micro-batch's computing",
        "experts wait for their tokens (dependency)",
    ),
    (
        "pp",
        "exposed_p2p_time",
        "",
        "the micro-batches in between",
        "stages wait while the pipeline fills, drains and turns",
    ),
    (
        "dp",
        "exposed_dp_time",
        "dp_overlap",
        "the last backward's layers, and the next forward's",
        "the first gathering and the last reduction have nothing beside them",
    ),
)
# Of a named mechanism: why the rest stays exposed.
MECHANISM = {
    "userbuffers": "a ring's first chunk, a pipeline's last part, multiprocessors that are taken",
    "decomposed": "the last chunk's product or sum, and what is longer than its product",
    "ring_exchange": "the last block in is still to be attended to, or attention is short",
    "ddp_buckets": "the last bucket's gradients, or the window is short",
    "megatron_buckets": "the last bucket's gradients, or the window is short",
}
# Shares that hold in part of the cases alone.
HIDDEN = {"tp_overlap": "tp_hidden_share"}
WHOLE = "without sequence parallelism an all_reduce has no product beside it"
SHORT = "what it hides behind is too short"


def overlap_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield a table: of each dimension that communicates what hides, what is exposed, and why."""
    rows: list[Sequence[str]] = []
    for dimension, part, share, behind, why in HIDING:
        total = _value(evaluation, f"{dimension}_communication_time")
        exposed = _value(evaluation, part)
        if not total > 0.0 or np.isnan(exposed):
            continue
        allowed = _value(evaluation, HIDDEN.get(share, share)) if share else 1.0
        exposed = min(max(exposed, 0.0), total)
        whole = dimension == "tp" and _value(evaluation, "sequence_parallel") == 0.0
        if whole and allowed == 0.0:
            reason = f"all: {WHOLE}"
        elif evaluation.labels.get(f"{dimension}_mechanism", "efficiency") == "efficiency":
            reason = _reason(exposed / total, allowed, share, why)
        else:
            allowed = 1.0
            reason = _reason_of_mechanism(evaluation, dimension, exposed / total, why)
        again = _repeated(evaluation, dimension, total, exposed, allowed)
        if again > 0.0:
            reason += f"; {shown('step_time', again)} more are recomputation's"
            total -= again
        rows.append(
            (
                dimension,
                shown("step_time", total),
                f"{shown('step_time', total - exposed)} ({1.0 - exposed / total:.0%})",
                shown("step_time", exposed),
                behind,
                reason,
            )
        )
    if not rows:
        return
    header = ("", "in all", "hidden", "exposed", "it can hide behind", "what stays exposed")
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    yield "what communication hides behind (without vocabulary's, which is in the ends' work)"
    for row in table:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
    yield ""


def _repeated(
    evaluation: Evaluation, dimension: str, total: float, exposed: float, allowed: float
) -> float:
    """Return what recomputation sends again: a step counts it with what is computed again."""
    if evaluation.labels.get("recompute") in (None, "none") or dimension not in ("tp", "ep"):
        return 0.0
    return max(total - exposed / (1.0 - allowed), 0.0) if allowed < 1.0 else 0.0


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
    if dimension == "dp" and _value(evaluation, "zero_stage") >= 3.0:
        usual = why
    if dimension == "tp" and _value(evaluation, "sequence_parallel") == 0.0:
        usual = WHOLE
    if dimension == "cp" and evaluation.labels["context_parallel"] != "ring":
        usual = "only a ring attends while it sends"
    return "nothing" if exposed < 0.005 else f"{usual} ({named})"


def _value(evaluation: Evaluation, name: str) -> float:
    value = evaluation.value(name, {})
    return float("nan") if value is None else float(np.ravel(value)[0])
