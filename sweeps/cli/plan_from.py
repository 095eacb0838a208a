"""The plan of a launch file beside the one that is recommended: how far off, and what to change."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import click

from sweeps.bands import brief, change_by, difference_words
from sweeps.cli.from_file import FromFile, found_in
from sweeps.cli.plan_question import Asked
from sweeps.cli.sections import wrapped
from sweeps.cli.typed import flag_of
from sweeps.errors import InputError
from sweeps.launch.documents import flat
from sweeps.launch.frameworks import settings_of
from sweeps.launch.read_bridge import KEYS
from sweeps.launch.read_hugging_face import FACTORY
from sweeps.launch.settings import FrameworkSettings
from sweeps.launch.terms import terms_of
from sweeps.search.answer import WHOLE, Answer, answer
from sweeps.search.details import Detail, details
from sweeps.search.request import CHOICES, Execution, read_request

# What stands in a file's format where its settings are a framework's.
WORDS = {"Megatron": "Megatron-LM", "torchtitan": "torchtitan", "DeepSpeed": "DeepSpeed"}


def file_lines(best: Answer, asked: Asked) -> Iterator[str]:
    """Yield how the plan of the launch file compares, and what to change in it."""
    from_file = found_in(click.get_current_context(silent=True))
    if from_file is None or not from_file.plan or best.recommended is None:
        return
    detail = _plan_of_file(best, asked, from_file.plan)
    files = ", ".join(
        dict.fromkeys(
            file for reading in from_file.readings for file in (reading.file, *reading.by_file)
        )
    )
    ruled = [f"{flag_of(name)} {text}" for name, text in asked.given.items() if name in CHOICES]
    own = f"its plan with {', '.join(ruled)}" if ruled else "its own plan"
    if isinstance(detail, str):
        why = f": {detail}" if detail else ""
        yield from wrapped(f"{files}: {own} can't run here{why}", "  ")
        return
    first = best.main[0]
    if detail.plan.key == first.plan.key:
        yield from wrapped(f"{files}: {own} is the recommended one", "  ")
        return
    slower = detail["step_time"] / first["step_time"] - 1.0
    text = f"{files}: {own}, {detail.plan.name}, takes {brief(detail['step_time'], 's')}"
    text += f" ({change_by(slower)}, {difference_words(slower)})"
    if not detail.fits:
        text += f" if the memory sufficed, but needs {_memory(detail)}"
    elif detail["peak_memory"] > best.point.threshold * detail.capacity:
        text += f", with {_memory(detail)}"
    yield from wrapped(text, "  ")
    changes = _changes(detail.plan, first.plan, from_file)
    if changes:
        yield from wrapped(f"to change in {files}: {changes}", "  ")


def _memory(detail: Detail) -> str:
    return f"{detail['peak_memory'] / 1e9:.1f} of {detail.capacity / 1e9:.1f} GB ({detail.fit})"


def _plan_of_file(best: Answer, asked: Asked, plan: Mapping[str, str]) -> Detail | str:
    """Return the file's plan with what is known of it, or why it can't run."""
    point = best.point
    try:
        request = read_request(
            {**asked.given, **plan},
            folders=point.folders,
            usual_length=point.constants["sequence_length"],
        )
        solution = answer(replace(point, choices=request.first.choices, threshold=1.0), keep=1)
    except InputError as error:
        return "; ".join(error.faults)
    chosen = solution.recommended
    if chosen is None:
        nearest = solution.nearest
        if nearest is None or not nearest.memory:
            return "; ".join(nearest.reasons.values()) if nearest else ""
        chosen = nearest.plan
    (detail,) = details([chosen], WHOLE, check=True)
    return detail


def _changes(file_plan: Execution, best: Execution, from_file: FromFile) -> str:
    """Return the settings that differ, in the words of the file's framework."""
    reading = from_file.readings[0]
    name = next((framework for word, framework in WORDS.items() if word in reading.format), "")
    if not name:
        return ""
    here, there = (_lines(settings_of(plan), name) for plan in (file_plan, best))
    if name == "DeepSpeed":
        stated = {setting.rpartition(".")[2] for setting in (*reading.read, *reading.no_cost)}
        switch = "gradient_checkpointing" if "Hugging Face" in reading.format else ""
        if not stated.isdisjoint(FACTORY):
            switch = "disable_gradient_checkpointing"
        here, there = (
            [*_in_arguments(lines, stated), _recomputed(plan, switch)]
            for lines, plan in ((here, file_plan), (there, best))
        )
    removed = [line for line in here if line not in there]
    added = [line for line in there if line not in here]
    flags = {line.split(" ")[0].rstrip("=") for line in added}
    gone = [line.split(" ")[0] for line in removed if line.split(" ")[0] not in flags]
    if name != "Megatron-LM":
        return ", ".join((*added, *(f"no {flag}" for flag in gone)))
    fields = reading.format.startswith("Megatron-Bridge")
    # What the file says in another way goes, too: the framework takes one of both.
    every = dict.fromkeys(line.split(" ")[0] for line in (*removed, *added))
    others = [other for flag in every for other in OTHERWISE.get(flag, ()) if other in reading.read]
    replaced = {flag for flag in every for other in OTHERWISE.get(flag, ()) if other in others}
    gone = [*(flag for flag in gone if flag not in replaced), *others]
    lines = (*added, *(f"no {flag}" for flag in gone))
    return ", ".join(_field(line, reading.read) if fields else line for line in lines)


# What Hugging Face's arguments call settings of DeepSpeed's file, which has "auto" then.
ARGUMENTS = {"train_micro_batch_size_per_gpu": "per_device_train_batch_size"}


def _in_arguments(lines: Sequence[str], stated: Collection[str]) -> Iterator[str]:
    """Yield settings of DeepSpeed's, those by the names of arguments that the files state."""
    for line in lines:
        name, _, value = line.partition(" ")
        argument = ARGUMENTS.get(name, "")
        yield f"{argument} {value}" if argument in stated else line


def _recomputed(plan: Execution, switch: str) -> str:
    """Return how a plan's recomputation is set, which isn't in DeepSpeed's file: by a switch."""
    kind = plan.labels["recompute"]
    if not switch or kind not in ("none", "full"):
        return f"recompute = {kind} (in code)"
    on = (kind == "full") != switch.startswith("disable")
    return f"{switch} = {'true' if on else 'false'}"


# Flags of Megatron-LM that say the same in another way, by that which a plan is written with.
OTHERWISE = {
    "--num-virtual-stages-per-pipeline-rank": (
        "--num-layers-per-virtual-pipeline-stage",
        "--pipeline-model-parallel-layout",
    ),
    "--pipeline-model-parallel-layout": (
        "--num-layers-per-virtual-pipeline-stage",
        "--num-virtual-stages-per-pipeline-rank",
    ),
    "--recompute-granularity": ("--recompute-activations",),
}


def _field(line: str, stated: Collection[str]) -> str:
    """Return an argument of Megatron-LM as a field of Megatron-Bridge's, named as the file does."""
    no, flag = ("no ", line[3:]) if line.startswith("no ") else ("", line)
    name, _, value = flag.partition(" ")
    plain = name.removeprefix("--").replace("-", "_")
    names = [key for key, argument in terms_of(KEYS)["renamed"].items() if argument == name]
    fields = {setting.rpartition(".")[2] for setting in stated}
    # NeMo's former names of recomputation are the last ones.
    names = [plain, *names] if plain.startswith("recompute_") else [*names, plain]
    field = next((key for key in names if key in fields), names[0])
    if no:
        return f"no {field}"
    several = f"[{', '.join(value.split())}]" if field.endswith("_modules") else value
    return f"{field}: {several or 'true'}"


def _lines(every: tuple[FrameworkSettings, ...], name: str) -> list[str]:
    lines = next(
        framework_lines.lines for framework_lines in every if framework_lines.framework == name
    )
    if name == "DeepSpeed":
        return [f"{key} = {value}" for key, value in flat(json.loads("\n".join(lines)))]
    return [line for line in lines if line and not line.startswith("[")]
