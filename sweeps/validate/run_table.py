"""A CSV table of measured training runs: its columns, their numbers and words, faults with lines.

A cell may carry a remark in brackets, which says how sure it is: ``51200 (assumed)``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from overhead.everything import load
from overhead.memory.quantities import RECIPES
from overhead.quantity import VOCABULARY
from sweeps.errors import MOST_FAULTS, Faults, nearest, refuse, refuse_all
from sweeps.former import renamed_table
from sweeps.spec.files import is_file, read_toml, shipped

# The tables that are shipped; to the last one nothing was fitted.
TABLES = ("training", "memory", "outside-fit")
# The shipped table of plans that experts published; no row of it is a measurement of its own.
PLANS = "plans"
# Operations; to the last one nothing was fitted.
COLLECTIVES = ("nccl-collectives", "outside-collectives")
# All tables that a user may name.
SHOWN = (*TABLES, PLANS, *COLLECTIVES, "running", "context", "userbuffers")

# Columns of words.
TEXTS = (
    "row_id",
    "source_id",
    "source_ref",
    "kind",
    "model",
    "moe",
    "gpu_type",
    "interconnect",
    "zero_or_sharding",
    "sp",
    "recompute",
    "precision",
    "overlap",
    "tflops_kind",
    "tp_comm_overlap",
    "moe_a2a_overlap",
    "cuda_graphs",
    "gradient_dtype",
    "fp8_param_gather",
    "fp8_attention",
    "offload",
    "layout",
    "moment_dtype",
    "optimizer",
    "derived_fields",
    "quantity",
    "unit",
    "fits",
    "linked_training_row",
    "confidence",
    "notes",
)
# Columns of numbers: the quantity that each gives, or nothing where it gives none of itself.
NUMBERS = {
    "n_params_b": "",
    "layers": "layers",
    "hidden": "hidden_size",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "ffn": "ffn_size",
    "vocab": "vocabulary_size",
    "seq_len": "sequence_length",
    "global_batch_size": "global_batch_size",
    "micro_batch_size": "micro_batch_size",
    "grad_accum": "num_micro_batches",
    "gpus": "",
    "gpus_per_node": "",
    "tp": "tp",
    "pp": "pp",
    "vpp": "virtual_pipeline_size",
    "cp": "cp",
    "dp": "dp",
    "ep": "ep",
    "step_time_s": "",
    "tokens_per_s_per_gpu": "",
    "tflops_per_gpu": "",
    "mfu": "",
    "hfu": "",
    "peak_mem_gib": "",
    "value": "",
    "mtp_layers": "mtp_layers",
}
# What a table may say in words of its own, beside quantities by their names.
LABELS = (
    "framework",
    "preset",
    "hardware",
    "attention_kernel",
    "loss",
    "schedule",
    "context_parallel",
    "sharding",
    "mask",
    "recipe",
    "fp8_scaling",
    "dispatcher",
    "tp_mechanism",
    "cp_mechanism",
    "ep_mechanism",
    "dp_mechanism",
    "fabric",
    "class",
)
# A cell that isn't a number but says something all the same.
WORDS = {"kv_heads": ("MLA",)}
# Columns that a table of runs has to have, any of each.
NEEDED = (("model",), ("gpu_type", "hardware"))
MEASURED = ("step_time_s", "tokens_per_s_per_gpu", "peak_mem_gib", "value")
# What is predicted can't be given; the columns for it say their unit.
RESULTS = ("time", "step_time", "memory", "peak_memory", "allocated_memory", "reserved_memory")
# A cell that ends so says nothing, whatever stands before it.
_UNKNOWN = ("unknown", "(not stated)")
_NUMBER = re.compile(r"(?P<number>[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?)\s*(?P<remark>\(.*\))?")


@dataclass(frozen=True, slots=True)
class Run:
    """One row: a training run, or a plan whose memory somebody states."""

    line: int  # Where it stands in its file
    texts: Mapping[str, str]  # The columns of words; empty where nothing is said
    numbers: Mapping[str, float]  # The columns of numbers, those that say something
    # What stands in brackets behind numbers
    remarks: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its own name; its line where it has none."""
        return self.texts.get("row_id") or f"line {self.line}"

    @property
    def source(self) -> str:
        """Whose measurement it is."""
        return self.texts.get("source_id") or "not stated"


@dataclass(frozen=True, slots=True)
class RunTable:
    """A table of runs."""

    path: Path  # Its file
    digest: str  # SHA-256 of the file
    runs: tuple[Run, ...]  # Its rows


def own_names() -> tuple[str, ...]:
    """Return what else a table's columns may be called: labels, and quantities by their names."""
    return (*LABELS, *(name for name in VOCABULARY if name not in RESULTS))


def measured_folders() -> tuple[Path, Path]:
    """Return where measured tables are: the user's own, and those that are shipped."""
    return Path("specs") / "measured", shipped("measured")


def find_csv(name_or_path: str, field: str, known: Iterable[str]) -> Path:
    """Find a table by its path, or by its name among the measured ones."""
    if name_or_path.endswith(".csv") or Path(name_or_path).name != name_or_path:
        if is_file(name_or_path):
            return Path(name_or_path)
        tables = f"tables: {', '.join(SHOWN if field == 'TABLE' else known)}"
        refuse(field, name_or_path, "no such file or table", tables)
    for folder in measured_folders():
        path = folder / f"{name_or_path}.csv"
        if name_or_path and is_file(path):
            return path
    if is_file(name_or_path):
        refuse(field, name_or_path, "isn't a CSV file by its name", "one in .csv")
    near = nearest(name_or_path, SHOWN if field == "TABLE" else known)
    return refuse(field, name_or_path, "no such table", near)


def read_csv(
    path: Path, field: str, *, quantities: bool = True
) -> tuple[bytes, list[tuple[int, list[str]]]]:
    """Read a table's bytes, and its lines with their numbers: headings first, no comments.

    Former names are translated where its headings or cells name `quantities`.
    """
    try:
        content = path.read_bytes()
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        lines = [
            (rows.line_num, row)
            for row in rows
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
        ]
    except OSError as error:
        wrong, allowed = error.strerror or "can't be read", "a CSV file"
    except UnicodeDecodeError as error:
        wrong, allowed = f"not UTF-8 text (byte {error.start})", "a CSV file"
    except csv.Error as error:
        wrong, allowed = str(error), "a CSV file"
    else:
        if lines[1:] and not quantities:
            return content, lines
        if lines[1:]:
            cells = renamed_table([row for _, row in lines], path.name)
            return content, [(number, row) for (number, _), row in zip(lines, cells, strict=True)]
        wrong = "has no rows" if lines else "is empty"
        allowed = "a line of headings, and rows below it"
    return refuse(field, str(path), wrong, allowed)


def find_runs(name_or_path: str) -> Path:
    """Find a table of runs by its name or path."""
    return find_csv(name_or_path, "TABLE", (*TABLES, PLANS))


def read_runs(path: Path) -> RunTable:
    """Read a table of runs."""
    load()
    content, lines = read_csv(path, "TABLE")
    header, rows = [cell.strip() for cell in lines[0][1]], lines[1:]
    if RECIPE_MARK in header:
        header, rows = _of_recipes(header, rows)
    faults = Faults()
    _check_heading(f"{path.name}, heading", header, faults)
    faults.tell()
    runs = [_run(path, header, number, row, faults) for number, row in rows]
    refuse_all(path.name, faults.faults)
    return RunTable(path, hashlib.sha256(content).hexdigest(), tuple(runs))


# A table of published recipes has columns of its own, of which rows of runs are made: what another
# column is called here, and what its words are here.
RECIPE_MARK = "recipe_source"
_RENAMED = {
    "sequence_length": "seq_len",
    "hardware": "gpu_type",
    "vp": "vpp",
    "zero": "zero_or_sharding",
    "sequence_parallel": "sp",
    "duplicate_of": "linked_training_row",
}
_REWORDED = {
    "kind": {"measured": ""},
    "sp": {"": "yes when TP>1"},
    "recompute": {"": "unspecified (recipe)"},
    "precision": {
        "fp8_mx": "mxfp8",
        "fp8_cs": "fp8 current-scaling",
        "fp8_sc": "fp8 block-scaling",
        "fp8_ds": "fp8 delayed-scaling",
    },
    "dispatcher": {"flex": "deduplicated", "alltoall": "all_to_all"},
    "embedding_layer_weight": {"no": "0", "yes": "1"},
    "head_layer_weight": {"no": "0", "yes": "1"},
    "zero_or_sharding": {"layer-wise distributed optimizer": "distributed optimizer (layer-wise)"},
}
_TRAYS = {"GB200": "4", "GB300": "4", "VR200": "4"}


def _of_recipes(
    header: Sequence[str], lines: Sequence[tuple[int, list[str]]]
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Turn a table of recipes into one of runs."""
    names = ("source_id", "source_ref", "gpus_per_node", "cuda_graphs")
    further = "dispatcher", "embedding_layer_weight", "head_layer_weight"
    known = {*TEXTS, *NUMBERS, *further} - set(names)
    kept = {_RENAMED.get(name, name): name for name in header if _RENAMED.get(name, name) in known}
    rows = []
    for number, cells in lines:
        cells_by_name = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        texts = {
            new: _REWORDED.get(new, {}).get(cells_by_name.get(old, ""), cells_by_name.get(old, ""))
            for new, old in kept.items()
        }
        texts["source_id"] = f"mbridge_{cells_by_name.get('release') or 'main'}"
        texts["source_ref"] = cells_by_name.get("measured_source") or cells_by_name.get(
            RECIPE_MARK, ""
        )
        texts["gpus_per_node"] = _TRAYS.get(cells_by_name.get("hardware", "").split("-")[0], "8")
        graphs, scope = (
            cells_by_name.get("cuda_graph_impl", ""),
            cells_by_name.get("cuda_graph_scope", ""),
        )
        whole = "full_iteration" in (graphs, scope)
        texts["cuda_graphs"] = "whole iteration" if whole else scope.replace(";", "+") or graphs
        if graphs == "local" and not scope:
            texts["cuda_graphs"] = "transformer_engine"
        if cells_by_name.get("task") in {"sft", "lora"}:
            texts["notes"] = {"sft": "SFT", "lora": "LoRA"}[cells_by_name["task"]]
        rows.append((number, [texts[name] for name in (*kept, *names)]))
    return [*kept, *names], rows


def _check_heading(where: str, header: Sequence[str], faults: Faults) -> None:
    known = (*TEXTS, *NUMBERS, *own_names())
    for name in sorted({name for name in header if name and header.count(name) > 1}):
        faults.add(where, name, "is given twice", "each heading once")
    for name in header:
        if name not in known:
            faults.add(where, name, "no such column", nearest(name, known))
    for names in NEEDED:
        if not set(names) & set(header):
            columns = " or ".join(f"'{name}'" for name in names)
            faults.add(where, names[0], "is missing", f"a column {columns} in every table of runs")
    if not faults.faults and not set(MEASURED) & set(header):
        columns = ", ".join(header[:MOST_FAULTS])
        faults.add(where, columns, "nothing that was measured", f"one of {', '.join(MEASURED)}")
    if "value" in header and "quantity" not in header:
        faults.add(where, "value", "needs a column 'quantity'", "both")


def _run(path: Path, header: Sequence[str], number: int, row: Sequence[str], faults: Faults) -> Run:
    if len(row) != len(header):
        count = f"{len(row)} cells"
        faults.faults.append(f"{path.name}, line {number}: {count}; the headings are {len(header)}")
        return Run(number, {}, {})
    texts: dict[str, str] = {}
    numbers: dict[str, float] = {}
    remarks: dict[str, str] = {}
    for name, cell in zip(header, (cell.strip() for cell in row), strict=True):
        if name in TEXTS or name in LABELS or cell in WORDS.get(name, ()):
            texts[name] = "" if cell == "unknown" else cell
        elif cell and not cell.endswith(_UNKNOWN):
            value, remark = _number(cell)
            wrong = _wrong(name, value)
            if wrong:
                faults.add(f"{path.name}, line {number}, {name}", cell, *wrong)
            numbers[name] = value
            if remark:
                remarks[name] = remark
    return Run(number, texts, numbers, remarks)


def _number(cell: str) -> tuple[float, str]:
    """Return a cell's number, NaN if it can't be read, and the remark behind it."""
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return math.nan, ""
    try:
        value = float(match["number"].replace(",", ""))
    except ValueError:
        return math.nan, ""
    return value, (match["remark"] or "").strip("()")


def _wrong(name: str, value: float) -> tuple[str, str] | None:
    """Return what is wrong with a number, and what would be right."""
    if math.isnan(value) or math.isinf(value):
        words = " or ".join(WORDS.get(name, ()))
        allowed = f"a number, or {words}" if words else "a number"
        return "can't be read", f"{allowed}; a remark may follow in brackets"
    quantity = NUMBERS.get(name, name)
    if not quantity:
        return None if value > 0.0 else ("out of range", "must be above 0")
    declared = VOCABULARY[quantity]
    if declared.outside(np.array(value)):
        return "out of range", f"must be {declared.domain()}"
    return None


# Rules that make settings of the words of a run: which software, machine, model and plan it is.
#
# The rules stand in ``specs/measured/rules.toml``, the same for all rows that their conditions
# match; none is of one row.  A rule's ``where`` gives for columns of the table a regular expression
# each, which has to be found there; ``set`` says what then holds, and so do the expressions' named
# groups.  Later rules win over earlier ones.

# Words that settings may have beside the labels that a table may state itself.
RULES_WORDS = ("model", "precision", "recompute", "topology", "measure", "stages")
# Numbers that aren't quantities of their own: what they give is computed of them.
HELPERS = {
    "shared_experts": "shared experts of a layer, each as large as a routed one",
    "card_gigabits": "a network card's rate, in Gbit/s",
    "node_gigabits": "all of a node's network cards' rate, in Gbit/s",
    "gpu_gigabits": "a GPU's network cards' rate, in Gbit/s",
    "loss_chunk_words": "tokens of the vocabulary in a chunk of the loss",
    "unit_bytes": "bytes of the unit in which memory is stated",
    "layers_per_chunk": "layers of a stage's chunk, where its count isn't printed",
    "micro_batches_per_chunk": "micro-batches for each stage of the pipeline, virtual ones counted",
    "domains": "whether a node is as many of a larger machine's GPUs as a run fills evenly",
}
_KEYS = ("where", "set", "usual", "options", "without", "assumed", "skip", "because")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    where: Mapping[str, re.Pattern[str]]  # What has to be found in which column
    words: Mapping[str, str]  # What then holds
    numbers: Mapping[str, float]  # What then holds
    usual: Mapping[str, float]  # What holds unless the row or the catalogue says it
    options: tuple[str, ...]  # Options of the framework that then are on
    without: tuple[str, ...]  # Those that then are off, whatever its preset says
    assumed: tuple[str, ...]  # Settings that nobody stated
    skip: str  # Why such a row can't be predicted; empty where it can
    because: str  # Where that is known from


@dataclass(slots=True)
class RunSettings:
    """What the rules say of one run."""

    # What holds; the last unless the row or the catalogue says it
    words: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    options: dict[str, None] = field(default_factory=dict)  # Options of the framework, in order
    without: dict[str, None] = field(default_factory=dict)  # Those that are off
    assumed: dict[str, None] = field(default_factory=dict)  # Settings that nobody stated, in order
    skip: str = ""  # Why it can't be predicted; empty where it can
    read: set[str] = field(default_factory=set)  # Columns that a rule understood


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """Return the rules of ``specs/measured/rules.toml``."""
    return read_rules(shipped("measured") / "rules.toml")


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Read a file of rules."""
    load()
    faults = Faults()
    rules = []
    for number, entry in enumerate(read_toml(path).get("rules", []), 1):
        location = f"{path.name}, rule {number}"
        for key in entry:
            if key not in _KEYS:
                faults.add(f"{location}, {key}", "..", "no such key", nearest(key, _KEYS))
        where = _conditions(entry.get("where", {}), f"{location}, where", faults)
        words, numbers = _settings(entry.get("set", {}), f"{location}, set", faults)
        weak, usual = _settings(entry.get("usual", {}), f"{location}, usual", faults)
        for name in weak:
            faults.add(f"{location}, usual.{name}", "..", "no number", "under set")
        on, off, assumed = (tuple(entry.get(key, ())) for key in ("options", "without", "assumed"))
        skip, why = (entry.get(key, "") for key in ("skip", "because"))
        rules.append(Rule(where, words, numbers, usual, on, off, assumed, skip, why))
    return faults.checked(tuple(rules))


def _conditions(
    texts: Mapping[str, str], location: str, faults: Faults
) -> dict[str, re.Pattern[str]]:
    known = (*TEXTS, *NUMBERS, *LABELS)
    faults.check_keys(location, texts, known, "no such column")
    conditions = {}
    for column, text in texts.items():
        if column not in known:
            continue
        try:
            conditions[column] = re.compile(text, re.IGNORECASE)
        except re.error as error:
            faults.add(f"{location}.{column}", text, "no expression", str(error))
            continue
        for name in conditions[column].groupindex:
            if name not in VOCABULARY and name not in HELPERS:
                near = nearest(name, VOCABULARY)
                faults.add(f"{location}.{column}", name, "no such quantity", near)
    return conditions


def _settings(
    table: Mapping[str, Any], location: str, faults: Faults
) -> tuple[dict[str, str], dict[str, float]]:
    words: dict[str, str] = {}
    numbers: dict[str, float] = {}
    for name, value in table.items():
        if name in (*LABELS, *RULES_WORDS):
            words[name] = str(value)
            if name == "recipe" and value not in RECIPES:
                faults.add(f"{location}.{name}", value, "unknown", nearest(value, RECIPES))
        elif name in VOCABULARY or name in HELPERS:
            numbers[name] = float(value)
        else:
            near = nearest(name, (*LABELS, *RULES_WORDS, *HELPERS, *VOCABULARY))
            faults.add(f"{location}.{name}", value, "no such setting", near)
    return words, numbers


def settings_of(run: Run, rules: Iterable[Rule]) -> RunSettings:
    """Return what rules say of a run."""
    settings = RunSettings()
    stated = {NUMBERS.get(name) or name for name in run.numbers}
    numbers = {name: f"{value:.15g}" for name, value in run.numbers.items()}
    texts = defaultdict(str, {**run.texts, **numbers})  # A number as people write it
    for rule in rules:
        matches = _matches(rule, texts)
        if matches is None:
            continue
        settings.words |= rule.words
        settings.numbers |= rule.numbers
        settings.usual |= rule.usual
        for match in matches:
            groups = match.groupdict()
            settings.numbers |= {name: float(text) for name, text in groups.items() if text}
        settings.options |= dict.fromkeys(rule.options)
        settings.without |= dict.fromkeys(rule.without)
        # Usual is what a row doesn't say, so that nothing is assumed where it does.
        settings.assumed |= {
            name: None for name in rule.assumed if name not in rule.usual or name not in stated
        }
        settings.skip = settings.skip or rule.skip
        settings.read |= set(rule.where)
    return settings


def _matches(rule: Rule, texts: Mapping[str, str]) -> list[re.Match[str]] | None:
    matches = []
    for column, pattern in rule.where.items():
        match = pattern.search(texts[column])
        if match is None:
            return None
        matches.append(match)
    return matches


# The parallel plan and the batches of a measured run, with what its row leaves out.

DEGREES = ("tp", "pp", "cp", "ep")


class Unpredictable(Exception):
    """A row can't be predicted; the text says why."""


def unpredictable(reason: str) -> NoReturn:
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
        unpredictable("plan not stated: " + ", ".join(vital))
    for name in blank:
        numbers[name] = 1.0
        # Few runs split the context, or experts that they don't have.
        if name in ("tp", "pp") or (name == "ep" and routed):
            assumed[name] = None
    numbers.setdefault("virtual_pipeline_size", 1.0)
    if numbers["pp"] == 1.0:
        numbers["virtual_pipeline_size"] = 1.0
    elif "vpp" not in run.numbers:
        assumed["virtual_pipeline_size"] = None
    others = math.prod(numbers[name] for name in ("tp", "cp", "pp"))
    gpus = run.numbers.get("gpus")
    if "dp" not in numbers:
        if gpus is None:
            assumed["dp"] = None
        numbers["dp"] = max((gpus or others) / others, 1.0)
    if gpus is not None and others * numbers["dp"] != gpus:
        split = " x ".join(f"{name} {numbers[name]:g}" for name in ("tp", "cp", "pp", "dp"))
        unpredictable(f"plan {split} isn't {gpus:g} GPUs")
    numbers.setdefault("etp", 1.0 if routed else numbers["tp"])


def complete_batch(
    run: Run, numbers: dict[str, float], assumed: dict[str, None], *, step: bool
) -> None:
    """Fill in the batches; ``grad_accum`` gives way to what follows from the others."""
    count = numbers.pop("num_micro_batches", 0.0)
    batch, micro, ranks = (
        numbers.get("global_batch_size"),
        numbers.get("micro_batch_size"),
        numbers["dp"],
    )
    if step and "sequence_length" not in numbers:
        unpredictable("sequence length not stated")
    if step and batch is None and not (count and micro):
        unpredictable("global batch not stated")
    # Of states alone no more is needed.
    numbers.setdefault("sequence_length", 1.0)
    if micro is None:
        micro = 1.0
        if batch is not None and count:
            micro = max(batch / (ranks * count), 1.0)
        else:
            assumed["micro_batch_size"] = None
        numbers["micro_batch_size"] = micro
    if batch is not None and batch < ranks * micro:
        sizes = f"{batch:g} sequences for {ranks:g} data-parallel ranks"
        unpredictable(f"{sizes}: the plan isn't stated whole")
    if batch is None:
        if not count:
            # Enough for a full pipeline, which is what memory needs.
            count = 2.0 * numbers["pp"]
            if numbers["pp"] > 1.0:
                assumed["global_batch_size"] = None
        numbers["global_batch_size"] = ranks * micro * count
    numbers["num_micro_batches"] = max(
        math.ceil(numbers["global_batch_size"] / (ranks * micro)), 1.0
    )
