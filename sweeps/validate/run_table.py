"""A CSV table of measured training runs: its columns, their numbers and words, faults with lines.

A cell may carry a remark in brackets, which says how sure it is: ``51200 (assumed)``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from overhead.everything import load
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.catalog import shipped

__all__ = ["NUMBERS", "TABLES", "TEXTS", "Run", "RunTable", "find_runs", "own_names", "read_runs"]

# The tables that are shipped.
TABLES = ("training", "memory")

# Columns of words.
TEXTS = (
    "row_id", "source_id", "source_ref", "kind", "model", "moe", "gpu_type", "interconnect",
    "zero_or_sharding", "sp", "recompute", "precision", "overlap", "tflops_kind",
    "derived_fields", "quantity", "unit", "fits", "linked_training_row", "confidence", "notes",
)  # fmt: skip
# Columns of numbers: the quantity that each gives, or nothing where it gives none of itself.
NUMBERS = {
    "n_params_b": "", "layers": "layers", "hidden": "hidden_size", "heads": "heads",
    "kv_heads": "kv_heads", "ffn": "ffn_size", "vocab": "vocabulary_size",
    "seq_len": "sequence_length", "global_batch": "global_batch", "micro_batch": "micro_batch",
    "grad_accum": "micro_batches", "gpus": "", "gpus_per_node": "", "tp": "tp", "pp": "pp",
    "vpp": "virtual_stages", "cp": "cp", "dp": "dp", "ep": "ep", "step_time_s": "",
    "tokens_per_s_per_gpu": "", "tflops_per_gpu": "", "mfu": "", "hfu": "", "peak_mem_gib": "",
    "value": "",
}  # fmt: skip
# What a table may say in words of its own, beside quantities by their names.
LABELS = (
    "framework", "hardware", "attention_kernel", "schedule", "context_parallel", "sharding",
    "mask", "recipe", "dispatcher", "tp_mechanism", "cp_mechanism", "dp_mechanism", "class",
)  # fmt: skip
# A cell that isn't a number but says something all the same.
WORDS = {"kv_heads": ("MLA",)}
NEEDED = ("model", "gpu_type")
MEASURED = ("step_time_s", "tokens_per_s_per_gpu", "peak_mem_gib", "value")
# What is predicted can't be given; the columns for it say their unit.
RESULTS = ("time", "step_time", "memory", "peak_memory", "allocated_memory")
# So many faults of one file are told; the same slip is often in every line.
TOLD = 20
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


def find_runs(name_or_path: str) -> Path:
    """Find a table of runs by its name or path."""
    if name_or_path.endswith(".csv") or Path(name_or_path).name != name_or_path:
        if Path(name_or_path).is_file():
            return Path(name_or_path)
        near = nearest(Path(name_or_path).stem, TABLES)
        wrong = "there is no such file"
        raise InputError(fault("TABLE", name_or_path, wrong, f"as a name: {near}"))
    for folder in (Path("specs") / "measured", shipped("measured")):
        path = folder / f"{name_or_path}.csv"
        if name_or_path and path.is_file():
            return path
    wrong = "there is no such table"
    raise InputError(fault("TABLE", name_or_path, wrong, nearest(name_or_path, TABLES)))


def read_runs(path: Path) -> RunTable:
    """Read a table of runs."""
    load()
    try:
        content = path.read_bytes()
        lines = _lines(content.decode("utf-8-sig"))
    except OSError as error:
        reason = error.strerror or "can't be read"
        raise InputError(fault("TABLE", str(path), reason, "a CSV file")) from None
    except UnicodeDecodeError as error:
        wrong = f"not UTF-8 text (byte {error.start})"
        raise InputError(fault("TABLE", str(path), wrong, "a CSV file")) from None
    except csv.Error as error:
        raise InputError(fault("TABLE", str(path), str(error), "a CSV file")) from None
    if not lines[1:]:
        wrong = "has no rows" if lines else "is empty"
        offer = "a line of headings, and rows below it"
        raise InputError(fault("TABLE", str(path), wrong, offer))
    header = [cell.strip() for cell in lines[0][1]]
    faults = _heading_faults(path, header)
    if faults:
        raise InputError(faults)
    runs = [_run(path, header, number, row, faults) for number, row in lines[1:]]
    if faults:
        more = [f"{path.name}: {len(faults) - TOLD} more faults"] if len(faults) > TOLD else []
        raise InputError([*faults[:TOLD], *more])
    return RunTable(path, hashlib.sha256(content).hexdigest(), tuple(runs))


def _lines(text: str) -> list[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(text, newline=""))
    return [
        (rows.line_num, row)
        for row in rows
        if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
    ]


def _heading_faults(path: Path, header: Sequence[str]) -> list[str]:
    where = f"{path.name}, heading"
    known = (*TEXTS, *NUMBERS, *own_names())
    faults = [
        fault(where, name, "stands there twice", "each heading once")
        for name in sorted({name for name in header if name and header.count(name) > 1})
    ]
    faults += [
        fault(where, name, "no such column", nearest(name, known))
        for name in header
        if name not in known
    ]
    faults += [
        fault(where, name, "is missing", f"a column '{name}' in every table of runs")
        for name in NEEDED
        if name not in header
    ]
    if not faults and not set(MEASURED) & set(header):
        told = ", ".join(header[:TOLD])
        faults.append(
            fault(where, told, "nothing that was measured", f"one of {', '.join(MEASURED)}")
        )
    if "value" in header and "quantity" not in header:
        faults.append(fault(where, "value", "stands without a column 'quantity'", "both"))
    return faults


def _run(
    path: Path, header: Sequence[str], number: int, row: Sequence[str], faults: list[str]
) -> Run:
    if len(row) != len(header):
        told = f"{len(row)} cells"
        faults.append(f"{path.name}, line {number}: {told}; the headings are {len(header)}")
        return Run(number, {}, {})
    texts: dict[str, str] = {}
    numbers: dict[str, float] = {}
    remarks: dict[str, str] = {}
    for name, cell in zip(header, (cell.strip() for cell in row), strict=True):
        if name in TEXTS or name in LABELS or cell in WORDS.get(name, ()):
            texts[name] = cell
        elif cell:
            value, remark = _number(cell)
            wrong = _wrong(name, value)
            if wrong:
                where = f"{path.name}, line {number}, {name}"
                faults.append(fault(where, cell, *wrong))
            numbers[name] = value
            if remark:
                remarks[name] = remark
    return Run(number, texts, numbers, remarks)


def _number(cell: str) -> tuple[float, str]:
    """Return a cell's number, NaN if it can't be read, and the remark behind it."""
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return math.nan, ""
    try:
        value = float(found["number"].replace(",", ""))
    except ValueError:
        return math.nan, ""
    return value, (found["remark"] or "").strip("()")


def _wrong(name: str, value: float) -> tuple[str, str] | None:
    """Return what is wrong with a number, and what would be right."""
    if math.isnan(value) or math.isinf(value):
        words = " or ".join(WORDS.get(name, ()))
        allowed = f"a number, or {words}" if words else "a number"
        return "can't be read", f"{allowed}; a remark may follow in brackets"
    quantity = NUMBERS.get(name, name)
    if not quantity:
        return None if value > 0.0 else ("outside of its domain", "a number above 0")
    declared = VOCABULARY[quantity]
    if declared.outside(np.array(value)):
        return "outside of its domain", declared.domain()
    return None
