"""``sweeps plan --params ..``: what the parallel strategy calculator says, from our numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.bands import change_by, percent
from sweeps.cli.given import Planned, texts_of
from sweeps.cli.plan_question import CALCULATED, Asked
from sweeps.cli.typed import flag_of
from sweeps.cli.write import Output
from sweeps.errors import InputError, refuse
from sweeps.origin import GIVEN, Origin, assumed
from sweeps.result import Field, Result, of_rows, provenance_of
from sweeps.search.calculator import (
    MENTIONED,
    SCRIPT,
    TRIED_PP,
    Calculation,
    Cluster,
    Row,
    ScriptRow,
    calculate,
    script_choice,
    script_parameters,
    script_rows,
    shapes_of,
    sizes_of,
)
from sweeps.search.details import details
from sweeps.search.request import read_request, sequences_of
from sweeps.spec.axis import numbers_of, parse_values
from sweeps.spec.units import parse_quantity, spelled_out
from sweeps.wrapping import aligned, prose, wrap

# How far a number of parameters may be from that of the sizes, unsaid.
LEAST_DIFFERENCE = 0.01
TITLES = {"tp": "TP", "pp": "PP", "dp": "DP", "ep": "EP"}
NUMBERS = {
    "parameters": "1",
    "world_size": "1",
    "memory_capacity": "byte",
    "global_batch_size": "1",
    "sequence_length": "1",
}
WHOLE = ("world_size", "global_batch_size", "sequence_length")


def calculator(asked: Asked, given: Planned) -> int:
    """Answer the calculator's question."""
    out = Output(given, "calculator").checked()
    clusters = list(_clusters(asked, given))
    lines: Iterable[str]
    if given["script"]:
        tables = [(cluster, script_rows(cluster)) for cluster in clusters]
        records = [_of_script(*table, row) for table in tables for row in table[1]]
        result = _result(records, (*FIELDS, *SCRIPT_FIELDS), asked, given)
        lines = [line for cluster, rows in tables for line in _script(cluster, rows, asked)]
        fine = all(script_choice(rows) for _, rows in tables)
    else:
        calculations = [calculate(cluster) for cluster in clusters]
        records = [record for calculation in calculations for record in _records(calculation)]
        result = _result(records, FIELDS, asked, given)
        lines = (
            _lines(calculations[0], asked)
            if len(calculations) == 1
            else _several(calculations, asked)
        )
        fine = all(calculation.recommended is not None for calculation in calculations)
    out.deliver(result, lines, FIGURES)
    return 0 if fine else 1


def planned(asked: Asked, given: Planned) -> Asked:
    """Return the calculator's question as one of whole plans, on its sizes of layers."""
    clusters = list(_clusters(asked, given))
    if len({cluster.parameters for cluster in clusters}) > 1:
        wrong = "are several models, of which plans are searched one by one"
        refuse(flag_of("parameters"), given["parameters"], wrong, "one value")
    shapes, made = shapes_of(clusters[0])
    count = clusters[0].parameters / 1e9
    notes = [
        f"planned on the calculator's sizes: {shapes['layers']:g} layers, hidden size "
        f"{shapes['hidden_size']:g}, {shapes['heads']:g} heads, FFN {shapes['ffn_size']:g}, "
        f"vocabulary {shapes['vocabulary_size']:g}"
    ]
    if clusters[0].experts:
        notes.append(_invented(shapes))
    if abs(made / clusters[0].parameters - 1.0) > LEAST_DIFFERENCE:
        notes.append(
            f"these make {made / 1e9:.4g} billion parameters, not {count:.4g}: memory "
            "and time are of the sizes"
        )
    readings = (*asked.readings, *notes)
    return replace(asked, given=_shaped(asked, shapes), calculator=False, readings=readings)


def _shaped(asked: Asked, shapes: Mapping[str, float]) -> dict[str, str]:
    """Return what is asked, with shapes in place of a number of parameters."""
    texts = {name: f"{value:.17g}" for name, value in shapes.items()}
    return texts | {name: text for name, text in asked.given.items() if name != "parameters"}


def _invented(sizes: Mapping[str, float]) -> str:
    return (
        f"invented, so that there are so many parameters: experts in every layer, "
        f"{sizes['expert_ffn_size']:g} wide, {sizes['experts_per_token']:g} for each token"
    )


def _clusters(asked: Asked, given: Planned) -> Iterator[Cluster]:
    """Yield the questions: one for every combination of values."""
    columns = []
    tokens = asked.given.get("tokens_per_step")
    for name, units in NUMBERS.items():
        text, whole = spelled_out(name, asked.given.get(name)), name in WHOLE
        if name == "global_batch_size" and tokens is not None:
            text = spelled_out("tokens_per_step", tokens)
        columns.append(
            parse_values(text, units, field=flag_of(name), integer=whole, bare_is_si=True)
        )
    threshold = parse_quantity(
        given["memory_threshold"], "1", field=flag_of("memory_threshold"), bare_is_si=True
    )
    if not 0.0 < threshold <= 1.0:
        allowed = "a share of the memory above 0, up to 1"
        refuse(flag_of("memory_threshold"), given["memory_threshold"], "is not a share", allowed)
    experts = 0.0
    if asked.experts is not None:
        experts = parse_quantity(asked.experts, "1", field="--num-experts", bare_is_si=True)
        if experts < 2.0 or not experts.is_integer():
            refuse("--num-experts", asked.experts, "isn't allowed", "a whole number, 2 or more on")
    sizes = {name: _size(name, asked.given[name]) for name in CALCULATED if name in asked.given}
    for parameters, gpus, memory, batch, length in product(*columns):
        yield replace(
            Cluster(),
            parameters=float(parameters),
            gpus=int(gpus),
            memory=float(memory),
            batch=float(batch) if tokens is None else sequences_of(float(batch), float(length)),
            length=float(length),
            experts=int(experts),
            threshold=threshold,
            sizes=sizes,
        )


def _size(name: str, text: str) -> float:
    """Return the one value of a size."""
    values = numbers_of(name, text, flag_of(name))
    if len(values) > 1:
        refuse(flag_of(name), text, "are several sizes of layers", "one value")
    return float(values[0])


def _records(calculation: Calculation) -> Iterator[dict[str, object]]:
    for row in calculation.rows:
        yield _record(calculation.cluster, row, recommended=row is calculation.recommended)


def _record(cluster: Cluster, row: Row, *, recommended: bool) -> dict[str, object]:
    return {
        "parameters": cluster.parameters,
        "world_size": cluster.gpus,
        "memory_capacity_bytes": cluster.memory,
        "global_batch_size": cluster.batch,
        "sequence_length": cluster.length,
        "strategy": row.name,
        "tp": row.tp,
        "pp": row.pp,
        "dp": row.dp,
        "ep": row.ep,
        "per_gpu_memory_bytes": row.memory,
        **{f"{name}_volume_bytes": value for name, value in row.volumes.items()},
        "bubble_fraction": row.bubble,
        "feasible": row.fits and not row.reasons,
        "recommended": recommended,
        "why": "; ".join(row.reasons),
    }


def _of_script(cluster: Cluster, rows: Sequence[ScriptRow], row: ScriptRow) -> dict[str, object]:
    """Return the record of a row of the script: recommended and feasible are its own words."""
    plain = _record(cluster, row.ours, recommended=row is script_choice(rows))
    volumes = {f"script_{name}_volume_bytes": 1e9 * volume for name, volume in row.volumes.items()}
    return {**plain, "feasible": row.fits, "script_memory_bytes": 1e9 * row.memory, **volumes}


VOLUMES = ("tp", "pp", "ep", "dp")
FIGURES = (
    {
        "kind": "bars",
        "name": "volume",
        "x": ["row"],
        "parts": [f"{name}_communication_volume" for name in VOLUMES],
        "title": "Most bytes that a GPU sends in a step, by strategy",
    },
    {
        "kind": "bars",
        "name": "memory",
        "x": ["row"],
        "parts": ["first_stage_model_state_memory"],
        "title": "Memory of weights, gradients and optimizer, by strategy",
    },
)


FIELDS = (
    Field("strategy", "strategy", "row of the calculator"),
    *(Field(name, name, VOCABULARY[name].meaning, "1", assumed(None, "the calculator's rows"))
      for name in VOLUMES),
    Field("per_gpu_memory_bytes", "first_stage_model_state_memory",
          "memory of a GPU: weights, gradients, optimizer", "byte"),
    *(Field(f"{name}_volume_bytes", f"{name}_communication_volume",
            f"most bytes that a rank sends in a step for {name}", "byte") for name in VOLUMES),
    Field("bubble_fraction", "bubble_fraction", VOCABULARY["bubble_fraction"].meaning, "1"),
    Field("feasible", "feasible", "whether the row can be and fits", "1"),
    Field("recommended", "recommended", "whether the row is the recommended one", "1"),
    Field("why", "why", "why the row can't be"),
)  # fmt: skip
SCRIPT_FIELDS = (
    Field("script_memory_bytes", "script_memory", "memory of a GPU by the script", "byte"),
    *(
        Field(
            f"script_{name}_volume_bytes",
            f"script_{name}_volume",
            f"bytes of a step for {name} by the script",
            "byte",
        )
        for name in ("tp", "pp", "dp")
    ),
)


def _result(
    records: Sequence[dict[str, object]],
    named: Sequence[Field],
    asked: Asked,
    given: Planned,
) -> Result:
    """Return the rows of all questions, with where their inputs come from."""
    fields, texts = [], texts_of(given, NUMBERS)
    for name, units in NUMBERS.items():
        origin = assumed(None) if texts[name] is None else Origin(None, GIVEN)
        record = f"{name}_bytes" if units == "byte" else name
        fields.append(Field(record, name, VOCABULARY[name].meaning, units, origin))
    fields += named
    attrs = provenance_of(
        title="Parallel strategy calculator",
        summary="Model states alone, nothing sharded; of the rows that fit fewest bytes win.",
        spec={
            "calculator": {name: asked.given[name] for name in asked.given},
            "experts": asked.experts or "none",
            "memory_threshold": given["memory_threshold"],
            **({"script": True} if given["script"] else {}),
        },
        given=given,
        references="formulas of communication and memory: sweeps list",
    )
    return of_rows(records, fields, attrs)


# For people.


def _head(asked: Asked) -> Iterator[str]:
    yield "parallel strategy calculator: model states alone, nothing sharded, fewest bytes win"
    yield from (f"  ({line})" for line in asked.readings)
    if asked.assumed:
        yield f"  Defaults: {', '.join(asked.assumed)}"


def _several(calculations: Sequence[Calculation], asked: Asked) -> Iterator[str]:
    """Yield one table of several questions: what varies, and the rows of each."""
    yield from _head(asked)
    asked_of = {
        "parameters": [
            f"{calculation.cluster.parameters / 1e9:.4g} billion" for calculation in calculations
        ],
        "GPUs": [f"{calculation.cluster.gpus:,}" for calculation in calculations],
        "memory": [_gb(calculation.cluster.memory) for calculation in calculations],
        "batch": [f"{calculation.cluster.batch:g}" for calculation in calculations],
        "tokens": [f"{calculation.cluster.length:g}" for calculation in calculations],
    }
    varied = {name: texts for name, texts in asked_of.items() if len(set(texts)) > 1}
    table: list[list[str]] = []
    for index, result in enumerate(calculations):
        head, *rows = _rows(result)
        table += [] if table else [[*varied, *head]]
        table += [[*(texts[index] for texts in varied.values()), *row] for row in rows]
    yield ""
    yield from aligned(table, left=len(varied) + 1)
    for text in dict.fromkeys(
        f"{row.name}: {reason}"
        for calculation in calculations
        for row in calculation.rows
        for reason in row.reasons
    ):
        yield f"  {text}"
    yield "  (memory: weights, gradients, optimizer; volume: bytes sent per rank in a step)"
    yield "what each leaves out: give one value"


def _lines(calculation: Calculation, asked: Asked) -> Iterator[str]:
    cluster = calculation.cluster
    yield from _recommended(calculation)
    yield ""
    yield from _head(asked)
    yield from _asked(calculation)
    yield ""
    yield from aligned(_rows(calculation))
    for row in calculation.rows:
        yield from (f"  {row.name}: {reason}" for reason in row.reasons)
    yield "  (memory: weights, gradients, optimizer; volume: bytes sent per rank in a step)"
    if cluster.experts:
        yield ""
        yield from _experts(calculation)
    yield ""
    yield from _left_out(calculation, asked)


def _asked(calculation: Calculation) -> Iterator[str]:
    cluster = calculation.cluster
    kind = f", {cluster.experts} experts in every layer" if cluster.experts else ""
    layers = f"{cluster.size('layers'):g} layers, hidden size {cluster.size('hidden_size'):g}"
    yield f"model: {cluster.parameters / 1e9:.4g} billion parameters, {layers}{kind}"
    states = calculation.states
    total = sum(states.values())
    yield (
        f"  weights {_gb(states['weight'])}, gradients {_gb(states['gradient'])}, optimizer "
        f"{_gb(states['optimizer'])}: {_gb(total)}, {total / cluster.parameters:g} B a parameter"
    )
    node = _node(cluster)
    nodes = -(-cluster.gpus // node)
    yield (
        f"machine: {cluster.gpus} GPUs in {nodes} node{'s' if nodes > 1 else ''} of {node}, "
        f"{_gb(cluster.memory)} each"
    )
    yield f"training: {cluster.batch:,.0f} sequences of {cluster.length:,.0f} tokens a step"


def _node(cluster: Cluster) -> int:
    return int(cluster.sizes.get("gpus_per_node", MENTIONED))


def _rows(calculation: Calculation) -> list[list[str]]:
    """Return the table's head and rows, as texts."""
    used = [
        name for name in ("tp", "pp", "ep", "dp") if name != "ep" or calculation.cluster.experts
    ]
    degrees = ["TP", "PP", "DP", *(["EP"] if calculation.cluster.experts else [])]
    rows = [
        [
            "strategy",
            *degrees,
            "memory/GPU",
            *(f"{TITLES[name]} volume" for name in used),
            "bubble",
            "feasible?",
        ]
    ]
    for row in calculation.rows:
        sizes = [row.tp, row.pp, row.dp, *([row.ep] if calculation.cluster.experts else [])]
        rows.append(
            [
                row.name,
                *map(str, sizes),
                _gb(row.memory),
                *(_gb(row.volumes[name]) for name in used),
                percent(row.bubble),
                _feasible(row, calculation),
            ]
        )
    return rows


def _feasible(row: Row, calculation: Calculation) -> str:
    if row.reasons:
        return "isn't allowed"
    if not row.fits:
        return "no"
    return "yes (rec)" if row is calculation.recommended else "yes"


def _recommended(calculation: Calculation) -> Iterator[str]:
    cluster, best = calculation.cluster, calculation.recommended
    limit = f"{percent(cluster.threshold)} of {_gb(cluster.memory)}"
    if best is None:
        can = [row for row in calculation.rows if not row.reasons]
        if not can:
            split = "rows whose degrees make up all GPUs"
            yield f"recommended: none, for {cluster.gpus} GPUs leave no {split}; see their reasons"
            return
        yield f"recommended: none, for no row fits into {limit}"
        least = min(can, key=lambda row: row.memory)
        need = least.memory / cluster.threshold
        yield f"  nearest: {least.name}, {_gb(least.memory)}: GPUs of {_gb(need)} would hold it"
        ranks = least.memory * least.tp * least.pp / (cluster.threshold * cluster.memory)
        yield f"  or split over TP x PP of at least {np.ceil(ranks):g}, or shard it (ZeRO)"
        return
    who = f"{cluster.parameters / 1e9:.4g} billion parameters on {cluster.gpus:,} GPUs"
    yield f"recommended: TP={best.tp}, PP={best.pp}, DP={best.dp}, for {who}"
    yield from _bullet(
        f"{_gb(best.memory)} fit into {limit}: {percent(best.memory / cluster.memory)} full"
    )
    inside = "stays in a node" if best.tp <= _node(cluster) else "crosses nodes"
    each = cluster.size("layers") / best.pp
    across = "across nodes" if best.tp * best.pp > _node(cluster) else "in a node"
    stages = f"PP={best.pp} {across}, {each:g} layers a stage, a bubble of {percent(best.bubble)}"
    yield from _bullet(f"TP={best.tp} {inside}; {stages if best.pp > 1 else 'no pipeline'}")
    others = [row for row in calculation.rows if row.fits and not row.reasons and row is not best]
    if others:
        next_best = min(others, key=lambda row: row.bytes)
        more = next_best.bytes / best.bytes - 1.0 if best.bytes else np.inf
        yield from _bullet(
            f"of the rows that fit it sends the fewest bytes, {_gb(best.bytes)} a step; "
            f"{next_best.name} sends {_gb(next_best.bytes)}, {change_by(more)}"
        )


def _experts(calculation: Calculation) -> Iterator[str]:
    """Yield how the recommended row splits the experts, or the last one."""
    cluster, row = calculation.cluster, calculation.recommended or calculation.rows[-1]
    yield "experts"
    each = f"{cluster.experts / row.ep:g} of {cluster.experts} experts"
    yield from _bullet(f"EP={row.ep}: a GPU holds {each}, each whole")
    yield from _bullet(_invented(sizes_of(cluster)))
    if row.ep == 1:
        yield from _bullet(
            f"no part of {cluster.experts} experts divides TP x DP = {row.tp * row.dp}: nothing is "
            "exchanged, and every rank has them all; a number such as 8 is split"
        )


def _left_out(calculation: Calculation, asked: Asked) -> Iterator[str]:
    """Yield where the calculator's method leads elsewhere than a model of the whole step."""
    cluster = calculation.cluster
    shapes, made = shapes_of(cluster)
    yield "what it leaves out"
    if cluster.batch >= max(TRIED_PP):
        choice = script_choice(script_rows(cluster))
        words = f"recommends {choice.name}" if choice else "finds that nothing fits"
        yield from _bullet(f"its script, whose bytes are others, {words}: see --compare-script")
    if not cluster.experts and abs(made / cluster.parameters - 1.0) > LEAST_DIFFERENCE:
        whose = "the sizes given" if set(SCRIPT) & set(cluster.sizes) else "its sizes of layers"
        yield from _bullet(
            f"{whose} make {made / 1e9:.3g} billion parameters, not "
            f"{cluster.parameters / 1e9:.4g}: memory is of the number, bytes are of the sizes"
        )
    yield from _bullet(_whole(cluster, _shaped(asked, shapes), made))


def _whole(cluster: Cluster, given: Mapping[str, str], made: float) -> str:
    """Return which plan the whole model has the shortest step with, on the calculator's sizes."""
    from sweeps.search.answer import answer

    try:
        request = read_request(given, objective="time", threshold=cluster.threshold)
        best = answer(request.first).recommended
    except InputError as error:
        return f"activations, buffers, ZeRO and time: {error.faults[0]}"
    if best is None:
        return "with activations, buffers and ZeRO no plan of its sizes can run"
    (detail,) = details([best], ("step_time", "peak_memory"))
    return (
        f"activations, buffers, ZeRO and time: of all plans of its sizes ({made / 1e9:.4g} billion "
        f"parameters) the best is {best.name}: {_gb(detail['peak_memory'])}, "
        f"{detail['step_time']:.4g} s a step on {best.labels['hardware']}; any option of plans, "
        "such as --objective time, says it whole"
    )


def _script(cluster: Cluster, rows: Sequence[ScriptRow], asked: Asked) -> Iterator[str]:
    """Yield the script's table beside our numbers, and what it recommends."""
    yield "parallel strategy calculator: its script's own rows"
    yield from (f"  ({line})" for line in asked.readings)
    if asked.assumed:
        yield f"  Defaults: {', '.join(asked.assumed)}"
    yield (
        f"model: {cluster.parameters / 1e9:.4g} billion parameters "
        f"({script_parameters(cluster) / 1e9:.1f} of its sizes)"
    )
    yield ""
    best = script_choice(rows)
    table = [
        ["TP", "PP", "DP", "Mem/GPU", "fits?", "TP", "PP", "DP", "our memory", "TP", "PP", "DP", ""]
    ]
    for row in rows:
        sent = [f"{row.volumes[name]:.2f} GB" for name in ("tp", "pp", "dp")]
        ours = [_gb(row.ours.volumes[name]) for name in ("tp", "pp", "dp")]
        table.append(
            [
                str(row.tp),
                str(row.pp),
                str(row.dp),
                f"{row.memory:.1f} GB",
                "yes" if row.fits else "no",
                *sent,
                _gb(row.ours.memory),
                *ours,
                "recommended" if row is best else "",
            ]
        )
    yield from aligned(table, left=0)
    yield ""
    if best is None:
        yield "recommended: none, for no row fits"
        return
    yield f"recommended: {best.name}"
    yield from _bullet(f"memory {best.memory:.1f} GB; {best.total:.2f} GB sent in a step")


def _gb(value: float) -> str:
    return f"{value / 1e9:,.4g} GB" if value < 1e13 else f"{value / 1e12:,.4g} TB"


def _bullet(text: str) -> Sequence[str]:
    return wrap(text, prose(), initial_indent="  - ", subsequent_indent="    ")
