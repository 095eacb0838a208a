"""The report of ``sweeps plan`` for a person: the best plans, why, and what would be better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from sweeps.cli.plan_options import Asked, flag_of
from sweeps.cli.plan_table import MARK, aligned, plan_rows
from sweeps.cli.records import shown
from sweeps.plans.alternatives import nodes_lost, other_batch
from sweeps.plans.answer import Answer
from sweeps.plans.detail import Detail, details
from sweeps.plans.execution import Execution
from sweeps.plans.launch import Settings
from sweeps.plans.words import memory_words, percent

__all__ = [
    "answer_lines",
    "assumed_lines",
    "bullets",
    "heading",
    "nothing_lines",
    "settings_lines",
    "space_lines",
    "training_lines",
    "what_if_lines",
]

WIDTH = 98
# How many plans of the Pareto front are shown.
FRONT = 8
# Below this a batch that divides better isn't worth a line.
WORTH = 0.01


def answer_lines(answer: Answer, asked: Asked, given: dict[str, Any]) -> Iterator[str]:
    """Yield the report of a question that has an answer."""
    yield heading(answer)
    yield from (f"  ({line})" for line in asked.readings)
    yield from space_lines(answer)
    yield from _best(answer, given["top"])
    yield from _front(answer)
    yield f"recommended: {answer.main[0].plan.name}"
    yield from bullets(answer.reasons)
    yield ""
    yield from _experts(answer)
    yield from what_if_lines(answer.effects)
    yield from training_lines(answer.main[0], asked)
    yield from _other_batch(answer)
    if given["lost_nodes"]:
        yield from _lost(answer, given["lost_nodes"])
    yield from settings_lines(answer.settings)
    yield from assumed_lines(answer, asked, verbose=given["verbose"])


def bullets(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines as wrapped points of a list."""
    for line in lines:
        yield from wrap(line, WIDTH, initial_indent="  - ", subsequent_indent="    ")


def heading(answer: Answer) -> str:
    """Return what is asked, in a line."""
    constants, labels = answer.point.constants, answer.point.labels
    model = labels.get("model", "a model")
    machine = answer.found.space.resolved.labels.get("hardware", "")
    batch, length = constants["global_batch"], constants["sequence_length"]
    tokens = batch * length
    return (
        f"plans of {model} on {answer.point.world_size:,} GPUs ({machine}): {batch:g} sequences of "
        f"{length:g} tokens a step, {tokens / 1e6:.3g} M tokens"
    )


def space_lines(answer: Answer) -> Iterator[str]:
    """Yield how many plans there are, and why not all of them can run."""
    counts, texts = answer.counts, answer.found.space.texts
    splits = answer.found.space.rows.splits
    yield (
        f"{counts.all:,} plans of {splits:,} splits of the GPUs; {counts.feasible:,} can run "
        f"(of {len(answer.found.splits):,} splits)"
    )
    if counts.fallen:
        yield "  the others fall for (one plan for several, maybe):"
    rows = sorted(counts.fallen.items(), key=lambda item: -item[1])
    lines = [[f"{count:,}", name.replace("_", " "), _short(texts.get(name, ""))]
             for name, count in rows]  # fmt: skip
    widths = [max((len(line[place]) for line in lines), default=0) for place in (0, 1)]
    for count, name, text in lines:
        head = f"    {count.rjust(widths[0])}  {name.ljust(widths[1])}  "
        yield from wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)) or [
            head.rstrip()
        ]
    yield ""


def _short(text: str) -> str:
    """Return what must hold, of several the first."""
    return text.split("; or ", 1)[0]


def _best(answer: Answer, count: int) -> Iterator[str]:
    rows = answer.table(count)
    objective = answer.point.objective
    yield f"the best plan of each split, {objective.words} first"
    yield from aligned(plan_rows(rows), left=0)
    if len(answer.found.splits) > count:
        more = len(answer.found.splits) - count
        yield f"  ... and {more:,} more splits: --top, --csv, --json or --output give them"
    node = rows[0].plan.given.get("gpus_per_node", np.inf)
    if any(row.plan["tp"] > node for row in rows):
        yield f"  {MARK} tensor parallelism crosses nodes of {node:g} GPUs"
    yield ""


def _front(answer: Answer) -> Iterator[str]:
    plans = answer.front(FRONT)
    if len(plans) < 2:
        return
    whole = len(answer.found.front)
    several = f", {len(plans)} of {whole}" if whole > len(plans) else ""
    objective = answer.point.objective
    both = f"{objective.quantity.replace('_', ' ')} against {objective.second.replace('_', ' ')}"
    yield f"Pareto front: {both}{several}"
    yield from aligned(plan_rows(plans), left=0)
    yield ""


def what_if_lines(effects: Sequence[Any]) -> Iterator[str]:
    """Yield what one change would do to a plan, as a table."""
    if not effects:
        return
    yield "what one change would do to it"
    rows = [["", "step time", "a token", "memory", ""]]
    for one in effects:
        can = not np.isnan(one.slower)
        rows.append(
            [
                one.change.words,
                shown("step_time", one.detail["step_time"]) if can else "-",
                f"{one.slower:+.1%}" if can else "-",
                f"{one.detail['peak_memory'] / 1e9:.1f} GB" if can else "-",
                one.note,
            ]
        )
    lines = aligned([row[:4] for row in rows])
    yield from (f"{line}  {row[4]}".rstrip() for line, row in zip(lines, rows, strict=True))
    yield ""


def _experts(answer: Answer) -> Iterator[str]:
    """Yield what is to be known of experts: from the plans' own numbers."""
    plan = answer.main[0].plan
    if not plan.routed:
        return
    yield "experts"
    yield from bullets(list(_expert_words(answer)))
    yield ""


def _expert_words(answer: Answer) -> Iterator[str]:
    best = answer.main[0]
    plan = best.plan
    names = ("ep_dispatch_forward_count", "ep_combine_forward_count", "ep_dispatch_backward_count",
             "ep_combine_backward_count", "ep_layers", "micro_batches", "dispatch_message_bytes",
             "ep_dispatch_time", "ep_communication_time", "group_nodes")  # fmt: skip
    (one,) = details([plan], names)
    held = plan["experts"] / plan["ep"]
    split = f", each split over {plan['etp']:g}" if plan["etp"] > 1.0 else ", each whole"
    yield (
        f"a GPU holds {held:g} of {plan['experts']:g} experts{split}; a token goes to "
        f"{plan['experts_per_token']:g}"
    )
    layers = one["ep_layers"] * one["micro_batches"]
    if plan["ep"] > 1.0 and layers > 0.0:
        there, back = (
            sum(one[f"ep_{what}_{way}_count"] for what in ("dispatch", "combine")) / layers
            for way in ("forward", "backward")
        )
        yield (
            f"a layer has {there:g} all-to-alls in its forward and {back:g} in its backward, of "
            f"{shown('message_bytes', one['dispatch_message_bytes'])} and "
            f"{shown('time', one['ep_dispatch_time'])} each; of a step "
            f"{shown('time', one['ep_communication_time'])}, nothing hidden"
        )
    yield from _instead(answer, best)


def _instead(answer: Answer, best: Detail) -> Iterator[str]:
    """Compare with other ways to split experts."""
    ways: tuple[tuple[str, Callable[[Execution], bool]], ...] = (
        ("without expert parallelism (ep 1)", lambda plan: plan["ep"] == 1.0),
        (
            "with tensor-parallel experts instead (ep 1, etp above 1)",
            lambda plan: plan["ep"] == 1.0 and plan["etp"] > 1.0,
        ),
        (
            "with both (ep and etp above 1)",
            lambda plan: plan["ep"] > 1.0 and plan["etp"] > 1.0,
        ),
    )
    told: set[tuple[object, ...]] = {best.plan.key}
    for words, fits in ways:
        own = [plan for plan in answer.found.splits if fits(plan)]
        if fits(best.plan) or (own and own[0].key in told):
            continue
        if not own:
            yield f"{words} nothing can run"
            continue
        told.add(own[0].key)
        (other,) = details(own[:1], ("step_time",))
        slower = other["step_time"] / best["step_time"] - 1.0
        yield f"{words} the best is {slower:+.1%}: {other.plan.name}"


def training_lines(detail: Detail, asked: Asked) -> Iterator[str]:
    """Yield days and cost of a training, or the tokens in days."""
    if asked.tokens is None and asked.days is None:
        return
    (one,) = details([detail.plan], ("tokens_per_second",))
    tokens = asked.tokens
    if tokens is None:
        assert asked.days is not None
        tokens = one["tokens_per_second"] * asked.days * 86400.0
    plan = detail.plan.changed({"training_tokens": tokens})
    (whole,) = details([plan], ("training_days", "gpu_hours", "cost", "training_energy"))
    days = shown("training_days", whole["training_days"])
    told = f"{tokens / 1e12:.4g} T tokens" if tokens >= 1e12 else f"{tokens / 1e9:.4g} B tokens"
    told += f": {days}, {shown('gpu_hours', whole['gpu_hours'])} of GPUs"
    if np.isfinite(whole["cost"]):
        told += f", {shown('cost', whole['cost'])}"
    if np.isfinite(whole["training_energy"]):
        told += f", {shown('training_energy', whole['training_energy'])}"
    yield f"{told}; nothing interrupts it"
    if not np.isfinite(whole["cost"]):
        yield "  (no price is known: --price '2.5 USD/h' gives the cost)"
    yield ""


def _other_batch(answer: Answer) -> Iterator[str]:
    other = other_batch(answer)
    if other is not None and other.faster > WORTH:
        plan = other.answer.recommended
        assert plan is not None
        yield from wrap(
            f"the batch doesn't divide among the GPUs: with {other.words} a token would take "
            f"{1.0 / (1.0 + other.faster) - 1.0:+.1%} ({plan.name})",
            WIDTH,
        )
        yield ""


def _lost(answer: Answer, nodes: int) -> Iterator[str]:
    told = "a node lost" if nodes == 1 else f"{nodes} nodes lost"
    yield f"{told}, what is best then"
    any_left = False
    for one in nodes_lost(answer, nodes):
        plan = one.answer.recommended
        assert plan is not None
        any_left = True
        line = f"{one.words}: {one.rate:,.0f} tokens a second, {one.faster:+.1%}: {plan.name}"
        yield from bullets([line])
    if not any_left:
        yield "  - nothing can run on what is left"
    yield ""


def settings_lines(settings: Sequence[Settings]) -> Iterator[str]:
    """Yield a plan in the words of frameworks."""
    yield "settings that express it"
    for one in settings:
        yield f"  {one.framework}"
        for line in _packed(one):
            yield f"    {line}"
        yield from (f"    ({missing})" for missing in one.missing)
    yield ""


def _packed(settings: Settings) -> Iterator[str]:
    """Yield settings with several on a line where they are short."""
    if settings.framework == "DeepSpeed":
        text = " ".join(line.strip() for line in settings.lines)
        yield from wrap(text, WIDTH - 4, break_on_hyphens=False)
        return
    section, row = "", ""
    for line in settings.lines:
        if line.startswith("[") or not line:
            if row:
                yield row
            row, section = "", line
            if section:
                yield section
            continue
        joined = f"{row}{'; ' if section else ' '}{line}" if row else line
        if len(joined) > WIDTH - 4 and row:
            yield row
            row = line
        else:
            row = joined
    if row:
        yield row


def assumed_lines(answer: Answer, asked: Asked, *, verbose: bool) -> Iterator[str]:
    """Yield what wasn't given, and how it was taken."""
    if asked.assumed:
        yield f"not given, so taken as: {', '.join(asked.assumed)}"
    free = [
        flag_of(name) for name in answer.found.space.choices if name not in answer.point.choices
    ]
    if free:
        yield f"searched, for nothing was said of them: {', '.join(free)}"
    plan = answer.found.space.plan
    if plan is None:
        return
    from sweeps.cli.origins import grouped_lines
    from sweeps.job import Job
    from sweeps.spec.sweep import Sweep

    job = Job(Sweep(""), answer.found.space.resolved, plan, " ", ())
    yield from grouped_lines(job, brief=not verbose)


def nothing_lines(answer: Answer, asked: Asked) -> Iterator[str]:
    """Yield the report of a question without an answer: the nearest plan, and what would help."""
    yield heading(answer)
    yield from (f"  ({line})" for line in asked.readings)
    yield from space_lines(answer)
    yield "no plan can run"
    nearest = answer.nearest
    if nearest is None:
        yield "  no split of the GPUs can be, whatever else is chosen"
    else:
        (detail,) = details([nearest.plan], ("peak_memory", "step_time"))
        yield f"nearest: {nearest.plan.name}"
        lines = list(nearest.reasons.values())
        if nearest.memory:
            lines = [memory_words(detail, answer.point.threshold)]
            need = detail["peak_memory"] / answer.point.threshold
            lines.append(f"GPUs of {need / 1e9:.1f} GB would hold it, "
                         f"{percent(answer.point.threshold, 0)} full")  # fmt: skip
        yield from bullets(lines)
    remedies = answer.remedies
    yield "what would make a plan run" if remedies else "no change that was tried makes a plan run"
    told = []
    for one in remedies:
        (detail,) = details([one.found.recommended], ("step_time",))
        time = shown("step_time", detail["step_time"])
        told.append(f"{one.words}: {detail.plan.name} ({time} a step)")
    yield from bullets(told)
