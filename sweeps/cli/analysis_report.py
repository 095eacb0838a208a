"""The report of one training configuration for a person, and what is told below a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from overhead.analysis import AnalysisResult, CollectiveReport, analyze
from overhead.communication.operation import DIMENSIONS
from overhead.evaluation import Evaluation
from overhead.labels import NCCL, NO_LIBRARY
from overhead.memory.quantities import MODULES
from overhead.statements import statement
from overhead.step.bands import class_of_step
from overhead.step.parts import PARTS as STEP_PARTS
from overhead.transformer import SHAPES
from sweeps import display
from sweeps.bands import NO_ROOM, class_words, percent
from sweeps.cli.analysis_headline import (
    answer,
    band,
    clock_notes,
    fit,
    fitting_lines,
    host,
    number,
)
from sweeps.cli.analysis_job import LACKING, roots
from sweeps.cli.derivation import Derivation
from sweeps.cli.exposure import HIDING, overlap_lines
from sweeps.cli.from_file import setting_lines
from sweeps.cli.numbers import shown, size_of
from sweeps.cli.options import MATTERING, default_lines, defaults_line, price_words, unused_lines
from sweeps.cli.presets import narrower
from sweeps.cli.room import MOST_LINES, height, in_room
from sweeps.cli.sections import further_lines, more_line, shown_sections, wrapped
from sweeps.cli.tables import every_row
from sweeps.cli.typed import flag_of
from sweeps.impossible import LIMITS, impossible, too_many
from sweeps.job import Job, evaluation_of
from sweeps.result import Result
from sweeps.spec.units import plain
from sweeps.wrapping import aligned

Bodies = dict[str, Callable[[], Iterable[str]]]
WIDTH = 42
PER_LAYER = ("tp", "cp", "ep")
# What is told of a step and its run, a line each.
GROUPS = {"rates": "Rates", "failures": "Interruptions", "training": "Training", "cost": "Cost"}
# What the heading says.
IN_HEADING = ("tokens_per_second", "tokens_per_second_per_gpu", "mfu", "bubble_fraction")
# Without these a step has no time.
RATES = (
    "peak_flops", "peak_measured_matmul_flops", "matmul_efficiency", "attention_peak_flops",
    "memory_bandwidth",
)  # fmt: skip


def report(job: Job, show: Sequence[str], notes: Sequence[str] = ()) -> Iterator[str]:
    """Yield the report's lines; notes on how the command was read stand below the answer."""
    evaluation = evaluation_of(job)
    with np.errstate(all="ignore"):
        result = analyze(evaluation)
        bodies = {
            **bodies_of(job, evaluation, result),
            "formulas": lambda: explanation(evaluation, result),
            "defaults": lambda: (*setting_lines(), *default_lines(job)),
        }
        heading = [*_heading(job, evaluation, result), *_unknown_step(job, evaluation)]
        above = [heading[0], *notes, *heading[1:], *_both_parts(evaluation, result)]
        below = [*_lacking(job), *unused_lines(job), *defaults_line(job, MATTERING)]
        below += more_line(show, bodies)
        yield from above
        yield from _summary(job, evaluation, MOST_LINES - height([*above, *below]))
        yield from below
        yield from shown_sections(show, bodies)


def bodies_of(job: Job, evaluation: Evaluation, result: AnalysisResult) -> Bodies:
    """Return the sections of one configuration, which are the same in every command."""
    return {
        "parts": lambda: _step(job, evaluation),
        "memory": lambda: _memory(evaluation, result),
        "communication": lambda: _communication(evaluation, result),
        "overlap": lambda: overlap_lines(evaluation),
    }


# Parts below this fraction of the step time or of the peak memory are shown together.
SMALL = 0.01


def _both_parts(evaluation: Evaluation, result: AnalysisResult) -> Iterator[str]:
    """Yield the parts of the step time and of the peak memory next to each other."""
    time, peak = number(evaluation, "step_time"), float(result.per_gpu_memory_bytes)
    named = {name: number(evaluation, name) for name in STEP_PARTS}
    unit, scale = ("s", 1.0) if time >= 1.0 else ("ms", 1e3)
    decimals = 0 if np.isnan(time) else max(0, 3 - int(np.floor(np.log10(time * scale))))
    left = [[f"Step time ({unit})", "", ""]]
    if not np.isnan(time):
        left += [[words, f"{value * scale:,.{decimals}f}", f"{100.0 * value / time:.0f} %"]
                 for words, value in _large(named, time)]  # fmt: skip
        left.append(["total", f"{time * scale:,.{decimals}f}", ""])
    right = [[f"{'Peak memory' if result.memory_is_whole else 'Model states'} (GB)", ""]]
    if not np.isnan(peak):
        memory = _large(result.memory, peak, evaluation.labels.get("library", NCCL))
        right += [[words, f"{value / 1e9:.2f}"] for words, value in memory]
        right.append(["total", f"{peak / 1e9:.2f}"])
    both = zip_longest(left, right, fillvalue=["", "", ""])
    rows = [[*cells, *beside[:2]] for cells, beside in both]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        part, value, share, other, size = (
            text.ljust(width) if index in (0, 3) else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"  {part}  {value}  {share}    {other}  {size}".rstrip()
    yield ""


def _large(
    parts: Mapping[str, Any], whole: float, library: str = "nccl"
) -> Iterator[tuple[str, float]]:
    """Yield parts with their words, the small ones as one."""
    rest = 0.0
    for name, value in parts.items():
        if abs(float(value)) >= SMALL * whole:
            yield display.words_on(name, library), float(value)
        else:
            rest += float(value)
    if rest:
        yield "other", rest


def _summary(job: Job, evaluation: Evaluation, most: int) -> Iterator[str]:
    """Yield what is communicated before overlap, and rates, energy and cost, as far as they fit."""
    sent = []
    for dimension, part, *_ in HIDING:
        total = number(evaluation, f"{dimension}_communication_time")
        exposed = min(max(number(evaluation, part), 0.0), total)
        if total > 0.0:
            hidden = "" if np.isnan(exposed) else f" ({percent(1.0 - exposed / total)} overlapped)"
            sent.append(f"{dimension.upper()} {shown('step_time', total)}{hidden}")
    shallow = evaluation.labels.get("depth") == "unknown"
    bound = number(evaluation, "communication_upper_bound")
    if len(sent) > 1 and bound > 0.0 and not shallow:
        sent.append(f"upper bound {shown('step_time', bound)}")
    of = " of one layer per stage" if shallow else ""
    first = [*wrapped(f"Communication before overlap{of}: {', '.join(sent)}")] if sent else []
    if on_host := host(evaluation):
        timed = evaluation.labels.get("host_states", "hybrid") == "hybrid"
        untimed = "" if timed else "; offload times: compared with no run"
        first += wrapped(f"Host memory: {on_host}{untimed}")
    yield from first
    groups: dict[str, list[str]] = {}
    shown_here = set(_quantities(job)) - set(IN_HEADING)
    for group, words in GROUPS.items():
        told = []
        for name in display.rows(group, screen="report"):
            value = number(evaluation, name) if name in shown_here else np.nan
            if value > 0.0:
                told.append(f"{display.words(name).strip()} {shown(name, value)}")
        if told:
            groups[words] = told
    yield from in_room(groups, most - len(first))


def table_notes(job: Job, result: Result, show: Sequence[str]) -> Iterator[str]:
    """Yield what stands below a table of many configurations."""
    yield from _lacking(job)
    yield from _prices(job)
    yield from unused_lines(job)
    bodies: dict[str, Callable[[], Iterable[str]]] = {
        "rows": lambda: every_row(result, training=True),
        "formulas": lambda: declarations(job),
        "defaults": lambda: (*setting_lines(), *default_lines(job)),
    }
    yield from defaults_line(job, MATTERING)
    yield from further_lines(show, bodies)


# The parts of a report.


def _of_experts(evaluation: Evaluation) -> Iterator[str]:
    """Yield how experts are split; ETP, which is TP unless given, where either is above 1."""
    if evaluation["ep"] > 1.0:
        yield "ep"
    if number(evaluation, "experts") > 0.0 and max(evaluation["etp"], evaluation["tp"]) > 1.0:
        yield "etp"


def _heading(job: Job, evaluation: Evaluation, result: AnalysisResult) -> Iterator[str]:
    labels = evaluation.labels
    world = evaluation["tp"] * evaluation["cp"] * evaluation["pp"] * evaluation["dp"]
    degrees = ", ".join(
        f"{name} {plain(float(evaluation[name]), 15)}"
        for name in ("dp", "tp", "cp", "pp", *_of_experts(evaluation))
    )
    step = "forward" if labels["schedule"] == "forward_only" else "step"
    yield ", ".join(answer(evaluation, result, step)) or degrees
    yield from narrower(evaluation, job.resolved.labels["framework"], job.sweep.given)
    limited = {limit.name: number(evaluation, limit.name) for limit in LIMITS}
    limited["mfu"] = number(evaluation, "mfu")
    yield from (f"  {line}" for line in (*impossible(limited), *too_many(world)))
    yield f"  {_model(job, evaluation)} on {_some(world, 'GPU')}: {degrees}"
    if not np.isnan(rate := number(evaluation, "tokens_per_second")):
        each = number(evaluation, "tokens_per_second_per_gpu")
        yield f"  {rate:,.0f} tokens/s, {each:,.0f} per GPU"
    if result.memory_is_whole:
        yield from fitting_lines(evaluation, float(result.per_gpu_memory_bytes), job)
    batch = evaluation.value("global_batch_size", {})
    length = evaluation.value("sequence_length", {})
    tokens = "" if length is None else f" of {plain(float(length), 15)} tokens"
    several = _some(evaluation["num_micro_batches"], "micro-batch", "micro-batches")
    size = shown("micro_batch_size", number(evaluation, "micro_batch_size"))
    if batch is not None:
        yield f"  batch of {_some(batch, 'sequence')}{tokens}: {several} of {size} on a rank"
    flat = labels["topology"] != "hierarchical"
    inside = min(float(result.gpus_per_node), float(world))
    where = "" if flat else f" of {_some(result.num_nodes, 'node')} x {_some(inside, 'GPU')}"
    software = labels["framework"].partition("+")[0] if "preset" in labels else labels["framework"]
    machine = f"{labels['hardware']}, {software}, {labels['precision']}"
    own = labels["algorithm"] == NCCL and labels.get("library", NO_LIBRARY) != NO_LIBRARY
    algorithm = labels["library" if own else "algorithm"]  # A library's own choice is by its name
    yield f"  {labels['topology']} network{where}; algorithm {algorithm}; {machine}"
    yield f"  {'; '.join(_settings(evaluation, job.sweep.given))}"
    yield from (f"  ({note})" for note in _notes(job, evaluation, result, flat=flat))
    yield ""


def _some(count: Any, word: str, words: str = "") -> str:
    return f"{plain(float(count), 15)} {word if count == 1.0 else words or word + 's'}"


def _settings(evaluation: Evaluation, given: Collection[str]) -> Iterator[str]:
    """Yield what the plan has beside its degrees."""
    labels = evaluation.labels
    yield f"ZeRO stage {evaluation['zero_stage']:g}"
    if labels["sharding"] == "hybrid":
        yield f"sharded over {evaluation['hsdp_shard_size']:g} ranks"
    if evaluation["tp"] > 1.0:
        yield f"sequence parallelism {'on' if evaluation['sequence_parallel'] > 0.0 else 'off'}"
    if evaluation["cp"] > 1.0:
        groups = (
            f", rings of {evaluation['ring_ranks']:g} groups of {evaluation['ulysses_ranks']:g}"
        )
        kind = labels["context_parallel"]
        yield f"context parallelism by {kind}" + (groups if kind == "mixed" else "")
    if evaluation["pp"] > 1.0:
        chunks = evaluation["virtual_pipeline_size"]
        yield f"schedule {labels['schedule']}" + (f", {chunks:g} chunks" if chunks > 1.0 else "")
    yield f"recompute {labels['recompute']}" + _recomputed(evaluation)
    yield f"attention {labels['attention_kernel']}, {labels['mask']}"
    if "loss" in given:
        yield f"loss {labels['loss']}"


def _recomputed(evaluation: Evaluation) -> str:
    """Return of how many of each chunk's layers, or of which modules, recomputation is."""
    match evaluation.labels["recompute"]:
        case "block":
            layers, whole = evaluation["recompute_layers"], evaluation["chunk_layers"]
            few = "" if "recompute_layers" in evaluation.given else ", as few as fit"
            return f" of {layers:g} of each chunk's {whole:g} layers{few}"
        case "uniform":
            return f" by {_some(evaluation['recompute_layers'], 'layer')}"
        case "selective":
            modules = [module for module in MODULES if evaluation[f"recompute_{module}"] > 0.0]
            return f" ({', '.join(modules) or 'nothing'})"
        case _:
            return ""


def _model(job: Job, evaluation: Evaluation) -> str:
    for model in job.resolved.models:
        return model.name
    count = evaluation.value("parameters", {})
    if count is None:
        return "a model"
    size, word = (1e9, "billion") if count >= 1e9 else (1e6, "million")
    return f"{count / size:.4g} {word} parameters"


def _notes(
    job: Job, evaluation: Evaluation, result: AnalysisResult, *, flat: bool
) -> Iterator[str]:
    """Yield how the configuration is read."""
    from sweeps.launch.frameworks import schedules_of

    yield from (model.note for model in job.resolved.models if model.note)
    yield from clock_notes(job, evaluation)
    cut = evaluation["tp"] * evaluation["pp"]
    if not result.memory_is_whole:
        yield "a number of parameters without shapes: memory is limited to model states"
        if cut > 1.0:
            states = "the whole model's states" if evaluation["zero_stage"] < 1.0 else "all states"
            whole = size_of(result.per_gpu_memory_bytes * cut)
            yield f"a GPU holds 1/(tp*pp) = 1/{cut:g} of the parameters; {states}: {whole}"
    if flat and result.collective_reports:
        name = evaluation.labels["topology"]
        yield f"each group of ranks is a {name} of its own size"
    framework = job.resolved.labels.get("framework", "")
    known = schedules_of(framework.split("+", maxsplit=1)[0])
    schedule = evaluation.labels["schedule"]
    if evaluation["pp"] > 1.0 and known and schedule not in (*known, "forward_only"):
        # The time is that of software that has it.
        yield f"{framework} has no schedule {schedule}: it has {', '.join(known)}"
    layers = evaluation.value("pipeline_layers", {})
    chunks = evaluation["pp"] * evaluation["virtual_pipeline_size"]
    each = [number(evaluation, name) for name in ("embedding_layer_weight", "head_layer_weight")]
    ends = sum(each)
    if layers is not None and ends > 0.0 and evaluation["pp"] > 1.0:
        counts = " and ".join(f"{n:g}" for n in each)
        total = f"{layers + ends:g} to divide"
        yield f"{layers:g} layers; embedding and loss count as {counts} layers: {total}"
    if layers is not None and (layers + ends) % chunks > 0.0:
        yield f"{layers + ends:g} layers don't divide into {chunks:g} stages: the largest rules"
    if evaluation["pp"] > 1.0 and display.are_mixed(evaluation.given):
        yield display.kinds_of_stages(evaluation.given, float(evaluation["order_holds"]))
    groups = [name for name in ("tp", "cp", "dp", "ep") if not flat and evaluation[name] > 1.0]
    uneven = [
        group
        for group in groups
        if Evaluation(evaluation.given, {**evaluation.labels, "group": group})["uneven_placement"]
    ]
    if uneven:
        text = ", ".join(uneven)
        yield f"groups of {text} lie on nodes unevenly: timed as if no two members shared one"


def _line(words: str, text: str) -> str:
    return f"  {words:<{WIDTH}}{text}"


def _memory(evaluation: Evaluation, result: AnalysisResult) -> Iterator[str]:
    part = "memory" if result.memory_is_whole else "model states"
    stage = evaluation.value("peak_memory_stage", {}) if result.memory_is_whole else None
    stages = evaluation["pp"]
    stage_words = (
        f" (stage {stage + 1:g} of {stages:g})" if stage is not None and stages > 1.0 else ""
    )
    yield f"{part} of {'the fullest' if stages > 1.0 else 'a'} GPU{stage_words}"
    for name, value in result.memory.items():
        if value > 0.0:
            yield _line(
                display.words_on(name, evaluation.labels.get("library", NCCL)), size_of(value)
            )
    off = f", {band(evaluation, 'peak_memory')}" if result.memory_is_whole else ""
    yield _line("total", f"{size_of(result.per_gpu_memory_bytes)}{off}")
    left = number(evaluation, "memory_capacity") - float(result.per_gpu_memory_bytes)
    capacity = size_of(number(evaluation, "memory_capacity"))
    if np.isnan(left):
        yield _line("capacity", "not known")
    else:
        verdict = fit(evaluation, result)
        if verdict == NO_ROOM:
            more = f"{verdict}, {size_of(-left)} too much"
        elif not result.memory_is_whole:
            more = f"{size_of(left)} left for activations"
        else:
            more = f"{verdict}, {size_of(abs(left))} {'left' if left >= 0.0 else 'over'}"
        yield _line("capacity", f"{capacity}: {more}")
    if on_host := host(evaluation):
        yield _line("host memory", on_host)
    yield ""


def _communication(evaluation: Evaluation, result: AnalysisResult) -> Iterator[str]:
    if not result.collective_reports:
        yield "communication of a step: none, for nothing is split"
        yield ""
        return
    shallow = evaluation.labels.get("depth") == "unknown"
    parts = [name for name in PER_LAYER if name in result.collective_reports]
    of = "a step"
    if shallow and parts:
        of = f"one layer a stage for {', '.join(parts)} (layers aren't given), else of a step"
    yield f"communication of {of}, nothing hidden"
    rows: list[Sequence[str]] = [("", "messages", "a rank sends", "each takes", "time", "energy")]
    for name, reports in result.collective_reports.items():
        rows.append((f"{name}: {DIMENSIONS[name]}",))
        for operation in reports:
            rows.append((f"  {operation.title}, on {_location(evaluation, operation)}",))
            rows += _ways(operation)
        rows.append(_together("  together", reports, result.dimension_times[name]))
    total = result.total_comm_time_per_step_upper_bound_s
    if total is not None:
        every = [*chain.from_iterable(result.collective_reports.values())]
        rows.append(_together("upper bound of a step's communication", every, total))
    yield from aligned(rows, left=len(rows[0]), indent="")
    library = evaluation.labels.get("library", NO_LIBRARY)
    shares = {name: evaluation[name] for name in ("intra_efficiency", "inter_efficiency")}
    if library != NO_LIBRARY:
        environment = evaluation.labels["environment"]
        yield f"(times by the profile of {library}; environment = {environment})"
    if any(np.any(share < 1.0) for share in shares.values()):
        ends = {name: dict.fromkeys((np.min(n), np.max(n))) for name, n in shares.items()}
        efficiencies = ", ".join(
            f"{name} {' to '.join(f'{share:g}' for share in both)}" for name, both in ends.items()
        )
        yield f"(links at {efficiencies} of their bandwidth; sweeps collective takes all of it)"
    yield ""


def _location(evaluation: Evaluation, operation: CollectiveReport) -> str:
    """Return where the ranks of a group are."""
    if evaluation.labels["topology"] == "hierarchical":
        per_node = operation.ranks / operation.nodes
        return f"{_some(operation.nodes, 'node')} x {per_node:.3g}"
    ranks = _some(operation.ranks, "rank")
    if evaluation.labels["link"] != "auto" or "bandwidth" in evaluation.given:
        return ranks
    inside = operation.ranks <= operation.members_in_node
    return f"{ranks}, by the link {'in a node' if inside else 'between nodes'}"


def _ways(operation: CollectiveReport) -> Iterator[Sequence[str]]:
    for way, count, whole in (
        ("forward", operation.forward_count, operation.forward_time_s),
        ("backward", operation.backward_count, operation.backward_time_s),
    ):
        if count > 0.0:
            yield (
                f"    {way}",
                f"{count:g} x {size_of(operation.message_bytes)}",
                size_of(count * operation.volume_bytes),
                shown("time", operation.latency_s),
                shown("time", whole),
                "",
            )


def _together(words: str, reports: Sequence[CollectiveReport], time: Any) -> Sequence[str]:
    volume = sum(float(operation.total_volume_bytes) for operation in reports)
    energy = sum(float(operation.total_energy_j) for operation in reports)
    return (words, "", size_of(volume), "", shown("time", time), shown("energy", energy))


def _unknown_step(job: Job, evaluation: Evaluation) -> Iterator[str]:
    """Yield why a step has no time, where it has none."""
    time = evaluation.value("step_time", {})
    if time is None or not np.isnan(time):
        return
    moved = "stashing" in evaluation.labels or "updating" in evaluation.labels
    needed = (*RATES, "host_bandwidth") if moved else RATES
    lacking = [name for name in needed if np.isnan(number(evaluation, name))]
    machine, precision = (job.resolved.labels.get(n) for n in ("hardware", "precision"))
    other = "it" if "host_bandwidth" in lacking else "it, or another --precision"
    text = f"{machine}'s file has no {', '.join(lacking) or 'figure'} in {precision}"
    yield f"step: its time isn't known: {text}; give {other}"


def _step(job: Job, evaluation: Evaluation) -> Iterator[str]:
    whole = evaluation.value("step_time", {})
    if whole is None:
        return
    if np.isnan(whole):
        yield from _unknown_step(job, evaluation)
        return
    fits = number(evaluation, "memory_state") != 0.0
    yield "step" if fits else "step, if the GPU's memory sufficed"
    for name in STEP_PARTS:
        value = number(evaluation, name)
        if value != 0.0:
            share = f"{100.0 * value / whole:6.1f} %"
            yield _line(display.words(name), f"{shown(name, value):<12}{share}")
    yield _line("total", f"{shown('step_time', whole)}, {band(evaluation, 'step_time')}")
    settings = job.resolved.origins["unknown_settings"][0].source
    known = job.resolved.origins["uncalibrated_device"][0].source
    name = class_of_step(evaluation.__getitem__)
    said = f"four in five published runs are within that: {class_words('step_time', name)}"
    said += "" if known.endswith("compared with runs") else f"; not calibrated: {known}"
    yield f"  ({said}; {settings})"
    if number(evaluation, "host_bound") > 0.0:
        yield "  (host-bound: layers wait for their launches longer than they compute)"
    for name in _quantities(job):
        value = number(evaluation, name)
        if not np.isnan(value) and (value > 0.0 or name != "bubble_fraction"):
            yield _line(display.words(name), shown(name, value))
    yield from _prices(job)


def _quantities(job: Job) -> tuple[str, ...]:
    """Return what is told of a step and its run, of failures where anything was said of them."""
    failures = ("failures",) if "goodput" in job.sweep.quantities else ()
    return display.rows("rates", *failures, "training", "cost", screen="report")


def _lacking(job: Job) -> Iterator[str]:
    """Yield what can't be told, and what would have to be given for it."""
    for name, words in LACKING.items():
        needed = roots(job, name)
        if name == "cost" and not {"gpu_hour_price", "training_tokens"} & job.sweep.given:
            continue
        if needed:
            model = ", or --model" if set(needed) & set(SHAPES) else ""
            yield f"{words}: needs {', '.join(map(flag_of, needed))}{model}"


def _prices(job: Job) -> Iterator[str]:
    """Yield how old the catalogue's prices are that costs are of."""
    if (
        "gpu_hour_price" in job.resolved.origins
        and "cost_per_trillion_tokens" in job.sweep.quantities
    ):
        yield from filter(None, [price_words(job.resolved.machines)])


# Formulas with the numbers put in: what a report of one training configuration comes from.

DEEP = 99  # Down to named constants
OF_ONE = ("time", "sent_bytes", "energy")


def explanation(evaluation: Evaluation, result: AnalysisResult) -> Iterator[str]:
    """Yield every quantity of a report with its formula or call, the numbers and its source."""
    derivation = Derivation()
    yield "memory, with the numbers put in"
    yield from _memory_formulas(derivation, evaluation, result)
    for dimension, reports in result.collective_reports.items():
        yield f"{dimension}, with the numbers put in"
        for operation in reports:
            yield from _operation(derivation, operation, evaluation)
        yield from derivation.lines(f"{dimension}_communication_time", evaluation, 1)
    if evaluation.value("communication_upper_bound", {}) is not None:
        yield from derivation.lines("communication_upper_bound", evaluation, 0)
    if evaluation.value("step_time", {}) is not None:
        yield "step, with the numbers put in"
        rates = display.rows("rates", "training", "cost", "failures")
        for name in ("step_time", "pipeline_time", *STEP_PARTS, *rates):
            value = evaluation.value(name, {})
            if value is not None and not np.isnan(value):
                yield from derivation.lines(name, evaluation, DEEP)
    yield from derivation.where()
    yield from derivation.references()
    yield ""


def declarations(job: Job) -> Iterator[str]:
    """Yield the statement and source of every formula and algorithm that takes part, once."""
    references = (
        (statement(declaration), declaration.reference)
        for declaration in job.program.declarations()
    )
    for stated, reference in dict.fromkeys(references):
        yield from (stated, f"  source  {reference}")


def _memory_formulas(
    derivation: Derivation, evaluation: Evaluation, result: AnalysisResult
) -> Iterator[str]:
    scope = evaluation
    if result.memory_is_whole:
        known = evaluation.given | {"stage": evaluation["peak_memory_stage"]}
        labels = evaluation.labels
        if labels.get("order"):
            known["linear_attention_fraction"] = Evaluation(known, labels)["stage_linear_fraction"]
        scope = Evaluation(known, labels)
        yield from derivation.lines("peak_memory_stage", evaluation, 0)
    for name, value in result.memory.items():
        if value > 0.0:
            yield from derivation.lines(name, scope, DEEP)
    if result.memory_is_whole:
        for name in ("model_state_memory", "activation_memory", "reserved_memory", "memory"):
            yield from derivation.lines(name, scope, 0)


def _operation(
    derivation: Derivation, report: CollectiveReport, evaluation: Evaluation
) -> Iterator[str]:
    operation = report.operation
    yield from derivation.lines(operation.message, evaluation, DEEP)
    yield from derivation.collective(
        [operation.quantity(part) for part in OF_ONE], operation.title, evaluation, DEEP
    )
    for name in operation.counted_by:
        yield from derivation.lines(name, evaluation, DEEP)
