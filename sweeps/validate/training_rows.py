"""Measured runs as cases to predict: the numbers and labels that a prediction needs of each.

What a row doesn't say is assumed and listed; a row that can't be predicted is skipped, and says
why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from overhead.completion import TENSORS
from overhead.labels import LABELS as DEFAULTS
from overhead.quantity import VOCABULARY
from sweeps.errors import InputError, nearest
from sweeps.spec.axis import label_values
from sweeps.spec.catalog import (
    hardware_names,
    load_framework,
    load_hardware,
    load_model,
    model_names,
)
from sweeps.spec.framework import Framework, among_all
from sweeps.spec.known import unknown_settings
from sweeps.spec.machine import Machine, rates_of
from sweeps.spec.model import complete_shapes
from sweeps.spec.preset import Run as Subject
from sweeps.spec.resolve_preset import told
from sweeps.validate.run_table import (
    HELPERS,
    LABELS,
    NUMBERS,
    Rule,
    Run,
    RunSettings,
    Unpredictable,
    complete_batch,
    complete_plan,
    gpus_of,
    settings_of,
    shipped_rules,
    unpredictable,
)
from sweeps.validate.table import network_of

KINDS = ("step_time", "memory")
# What a table says of a plan that somebody published, whether or not its step was measured.
PLAN = "plan"
# The classes of what nobody measured: values of a publication's own formulas, or of a simulation.
FORMULAS, SIMULATED = "published formulas", "probably simulated"
# The class of runs to whose source nothing was fitted.
OUTSIDE = "sources outside the fit"
# What trained, where it isn't a dense model.
LORA, MOE = "LoRA", "MoE"
GIB = 2.0**30
ALL = "all measured"
# Columns of words of which a rule has to understand what they say.
UNDERSTOOD = ("gpu_type", "precision", "recompute", "zero_or_sharding", "sp", "quantity", "unit")
# Shapes without which nothing can be predicted.


@dataclass(frozen=True, slots=True)
class Case:
    """One measured value and what a prediction of it needs."""

    name: str  # The row, its source, and where that stands
    source: str  # The row, its source, and where that stands
    reference: str  # The row, its source, and where that stands
    model: str  # What was trained, and the class that its errors are gathered in
    group: str  # What was trained, and the class that its errors are gathered in
    kind: str  # One of `KINDS`
    quantity: str  # What is predicted
    measured: float  # In the quantity's canonical unit
    numbers: dict[str, float]  # Shapes, plan and what else is known, in canonical units
    labels: dict[str, str]  # ``hardware``, ``framework``, ``precision``, ``attention_kernel``,
    assumed: tuple[str, ...]  # Settings that the row doesn't state

    @property
    def is_measured(self) -> bool:
        """Whether somebody measured it."""
        return self.group not in {FORMULAS, SIMULATED}

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that its error counts in: its own, and those of all runs alike."""
        if not self.is_measured or self.group == OUTSIDE:
            return (self.group,)
        if self.sort == LORA:
            return (self.group,)
        known = "settings assumed" if self.assumed else "settings known"
        if self.kind == "memory":
            return (self.group, f"memory, {known}", ALL)
        if self.sort == MOE:
            return (self.group, f"MoE, {known}", ALL)
        sharded = self.numbers.get("zero_stage", 0.0) >= 3.0
        weights = ("dense, sharded weights",) if sharded else ()
        return (self.group, *weights, self.sort, f"dense, {known}", "dense, all", ALL)

    @property
    def sort(self) -> str:
        """What trained: adapters, experts, or a dense model inside a node or over several."""
        numbers = self.numbers
        if "lora_rank" in numbers:
            return LORA
        if numbers.get("experts", 0.0) > 0.0:
            return MOE
        gpus = math.prod(numbers[name] for name in ("tp", "cp", "pp", "dp"))
        several = gpus > numbers.get("gpus_per_node", 1.0)
        return "dense, several nodes" if several else "dense, one node"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that can't be predicted."""

    name: str
    source: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cases:
    """All rows of tables: those that can be predicted, and the others."""

    cases: tuple[Case, ...]
    skipped: tuple[Skipped, ...] = field(default=())


def cases_of_runs(
    runs: Iterable[Run],
    rules: Sequence[Rule] | None = None,
    folders: Sequence[Path] = (),
    kinds: Sequence[str] = KINDS,
) -> Cases:
    """Turn rows into cases."""
    known = shipped_rules() if rules is None else rules
    catalogue = _Catalogue(known, folders)
    cases: list[Case] = []
    skipped: list[Skipped] = []
    every = list(runs)
    linked = {run.texts.get("linked_training_row", "") for run in every} - {""}
    for run in every:
        for kind in _kinds(run, linked):
            if kind not in kinds:
                continue
            try:
                cases.append(catalogue.case(run, kind))
            except Unpredictable as error:
                skipped.append(Skipped(run.name, run.source, kind, str(error)))
    return Cases(tuple(cases), tuple(skipped))


def _kinds(run: Run, linked: set[str]) -> list[str]:
    """Return what a row measured: a training run's memory may stand in a table of its own."""
    if run.texts.get("kind") == PLAN:
        return [PLAN]
    if run.texts.get("quantity") or "value" in run.numbers:
        return ["memory"]
    both = "peak_mem_gib" in run.numbers and run.texts.get("row_id", "") not in linked
    return ["step_time", "memory"] if both else ["step_time"]


class _Catalogue:
    def __init__(self, rules: Sequence[Rule], folders: Sequence[Path]) -> None:
        self.rules, self.folders = rules, folders
        self.machines, self.models = hardware_names(folders), model_names(folders)
        self._machines: dict[str, Machine | None] = {}
        self._frameworks: dict[str, Framework] = {}
        self._models: dict[str, Mapping[str, float]] = {}

    def case(self, run: Run, kind: str) -> Case:
        settings = settings_of(run, self.rules)
        if settings.skip:
            unpredictable(settings.skip)
        assumed = dict(settings.assumed)
        for column in UNDERSTOOD:
            text = run.texts.get(column, "")
            if text and column not in settings.read and text not in self.machines:
                unpredictable(f"{column} '{text}': not understood")
        quantity, measured = _measured(run, kind, settings)
        preset: dict[str, float] = {}
        labels = self._labels(run, settings, assumed, preset, step=kind != "memory")
        _check_peak(run, self._machine(labels.get("hardware", "")), labels["precision"])
        numbers = self._numbers(run, settings, labels, assumed, preset, step=kind != "memory")
        stated = settings.words.get("context_parallel") or run.texts.get("context_parallel")
        if "context_parallel" in labels and not stated:
            heads = numbers.get("index_heads", 0.0)
            labels["context_parallel"] = among_all(labels["context_parallel"], heads)
        group = labels.pop("class", "") or labels.get("hardware", "not classed")
        return Case(
            run.name,
            run.source,
            run.texts.get("source_ref", ""),
            run.texts.get("model", ""),
            group,
            kind,
            quantity,
            measured,
            numbers,
            labels,
            tuple(assumed),
        )

    # Labels.

    def _labels(
        self,
        run: Run,
        settings: RunSettings,
        assumed: dict[str, None],
        preset: dict[str, float],
        *,
        step: bool,
    ) -> dict[str, str]:
        labels_of_run = {name: run.texts[name] for name in LABELS if run.texts.get(name)}
        for name, value in labels_of_run.items():
            known = label_values(name)
            if known and value not in known:
                unpredictable(f"{name} '{value}': unknown; {nearest(value, known)}")
        labels = {**settings.words, **labels_of_run}
        if run.texts.get("gpu_type") in self.machines:
            labels.setdefault("hardware", run.texts["gpu_type"])
        for name in ("model", "measure"):
            labels.pop(name, None)
        given = {n for n in labels if "assumed" not in run.texts.get(n, "")}
        self._take_preset(run, settings, labels, preset)
        if labels.get("recompute") == "unknown":
            # A row that leaves it open is taken as recomputing as few layers as fit, often none;
            # XLA's policies, which MaxText names, keep products instead, and take less memory.
            kept = labels.get("framework", "").startswith("maxtext")
            labels["recompute"] = "none" if kept else "block"
            assumed["recompute"] = None
        given |= {*labels} - {*labels_of_run, *settings.words}
        # What runs it is often read from its source, and brings its kernel.
        assumed |= dict.fromkeys(unknown_settings({*given, "attention_kernel"}))
        labels.setdefault("framework", DEFAULTS["framework"].default)
        if "preset" not in labels:
            labels["framework"] = _with(labels["framework"], settings.options)
        labels.setdefault("precision", DEFAULTS["precision"].default)
        usual = self._framework(labels["framework"]).labels
        # Virtual stages say what the schedule is, so a row that has none says it too.
        labels = {**usual, **labels}
        labels.setdefault("recompute", "none")
        self._check_machine(run, labels, step=step)
        return labels

    def _take_preset(
        self, run: Run, settings: RunSettings, labels: dict[str, str], numbers: dict[str, float]
    ) -> None:
        """Take what the preset of a row's release sets and neither the row nor a rule says."""
        if "preset" not in labels:
            return
        experts = {**self._shapes(run, settings), **settings.usual, **settings.numbers}
        machine = self._machine(labels.get("hardware", ""))
        about = Subject(
            settings.words.get("model", run.texts.get("model", "")),
            experts.get("experts", 0.0) > 0.0,
            machine.name if machine else "",
            machine.generation if machine else "",
            labels.get("precision", DEFAULTS["precision"].default),
        )
        if labels.get("recompute") == "unknown":
            del labels["recompute"]
        known = {*labels, *settings.numbers, *run.numbers}
        framework = _with(labels.get("framework", ""), settings.options)
        try:
            told_preset = told(
                labels["preset"], about, framework, known, tuple(settings.without), self.folders
            )
        except InputError as error:
            unpredictable("; ".join(error.faults))
        labels |= {**told_preset.taken.labels, "framework": told_preset.framework}
        numbers |= {**told_preset.taken.numbers, **told_preset.taken.modules}

    def _check_machine(self, run: Run, labels: dict[str, str], *, step: bool) -> None:
        if "hardware" in labels and self._machine(labels["hardware"]) is not None:
            return
        name = labels.pop("hardware", run.texts.get("gpu_type") or "not stated")
        if step:
            unpredictable(f"GPU {name}: not in the catalog")

    def _machine(self, name: str) -> Machine | None:
        if name not in self._machines:
            try:
                self._machines[name] = load_hardware(name, self.folders)
            except InputError:
                self._machines[name] = None
        return self._machines[name]

    def _framework(self, name: str) -> Framework:
        if name not in self._frameworks:
            try:
                self._frameworks[name] = load_framework(name, self.folders)
            except InputError as error:
                unpredictable("; ".join(error.faults))
        return self._frameworks[name]

    # Numbers.

    def _numbers(
        self,
        run: Run,
        settings: RunSettings,
        labels: dict[str, str],
        assumed: dict[str, None],
        preset: Mapping[str, float],
        *,
        step: bool,
    ) -> dict[str, float]:
        quantities = {name: quantity for name, quantity in NUMBERS.items() if quantity}
        stated = {quantities.get(name, name): value for name, value in run.numbers.items()}
        stated = {name: value for name, value in stated.items() if name in VOCABULARY}
        helpers = {n: value for n, value in settings.numbers.items() if n in HELPERS}
        known = {n: value for n, value in settings.numbers.items() if n not in HELPERS}
        numbers = {**settings.usual, **preset, **self._shapes(run, settings), **stated, **known}
        _complete_shapes(run, numbers, helpers, labels)
        if "layers_per_chunk" in helpers:
            chunks = numbers["layers"] / (numbers["pp"] * helpers["layers_per_chunk"])
            numbers.setdefault("virtual_pipeline_size", chunks)
        for name, remark in run.remarks.items():
            if "assumed" in remark:
                assumed[NUMBERS.get(name) or name] = None
        for name, figure in self._framework(labels["framework"]).plan.items():
            if name in numbers:
                continue
            numbers[name] = figure.value
            if name != "sequence_parallel" or numbers.get("tp", 1.0) > 1.0:
                assumed[name] = None
        complete_plan(run, numbers, assumed)
        if "micro_batches_per_chunk" in helpers:
            chunks = numbers["pp"] * numbers["virtual_pipeline_size"]
            numbers.setdefault("num_micro_batches", helpers["micro_batches_per_chunk"] * chunks)
        complete_batch(run, numbers, assumed, step=step)
        machine = self._machine(labels["hardware"]) if "hardware" in labels else None
        if machine is not None:
            numbers |= network_of(machine, run, {**helpers, **known}, gpus_of(run, numbers))
        if "loss_chunk_words" in helpers:
            chunks = numbers["vocabulary_size"] / helpers["loss_chunk_words"]
            numbers["loss_chunks"] = max(chunks, 1.0)
        return numbers

    def _shapes(self, run: Run, settings: RunSettings) -> dict[str, float]:
        """Return a model's shapes as the catalogue has them; none if it hasn't."""
        name = settings.words.get("model", "")
        if not name and run.texts.get("model") in self.models:
            name = run.texts["model"]
        if not name:
            return {}
        if name not in self._models:
            self._models[name] = load_model(name, self.folders).shapes
        return dict(self._models[name])


def _with(framework: str, options: Iterable[str]) -> str:
    """Return a framework with more of its options; without a framework these alone."""
    on = [name for name in options if name not in framework.split("+")]
    return "+".join((framework, *on))


def _complete_shapes(
    run: Run,
    numbers: dict[str, float],
    helpers: Mapping[str, float],
    labels: dict[str, str],
) -> None:
    """Fill in what follows from other shapes; with a parameter count alone, say so."""
    if "shared_experts" in helpers:
        shared = helpers["shared_experts"] * numbers.get("expert_ffn_size", 0.0)
        numbers.setdefault("shared_ffn_size", shared)
    missing = [name for name in TENSORS if name not in numbers]
    if missing and "n_params_b" in run.numbers and not set(TENSORS) & set(run.numbers):
        numbers["parameters"] = run.numbers["n_params_b"] * 1e9
        labels["shapes"] = "unknown"
        return
    if missing:
        unpredictable("shapes not stated: " + ", ".join(missing))
    if numbers.get("gated_mlp", 1.0) == 0.0:
        numbers.setdefault("ffn_size", 4.0 * numbers["hidden_size"])
    for name, (value, _) in complete_shapes(numbers).items():
        numbers.setdefault(name, value)
    if numbers["ffn_size"] == 0.0 and numbers["experts"] == 0.0:
        unpredictable("shapes not stated: ffn_size")


def _check_peak(run: Run, machine: Machine | None, precision: str) -> None:
    """Refuse a row that states more than the GPUs' peak: its time can't be right, either."""
    for name in ("mfu", "hfu"):
        share = run.numbers.get(name, 0.0)
        if share > 1.0:
            unpredictable(
                f"impossible: {name.upper()} of {share:g}, more than the GPUs' peak, which is 1"
            )
    figure = machine.figures.get(f"peak_flops_{rates_of(precision)}") if machine else None
    rate = run.numbers.get("tflops_per_gpu", 0.0)
    if figure and rate * 1e12 > figure.value:
        unpredictable(f"impossible: {rate:g} TFLOP/s a GPU, whose peak is {figure.value / 1e12:g}")


def _measured(run: Run, kind: str, settings: RunSettings) -> tuple[str, float]:
    """Return what was measured and its value in the canonical unit; NaN of a plan without any."""
    if kind != "memory":
        if kind == PLAN and "step_time_s" not in run.numbers:
            return "step_time", math.nan
        if "step_time_s" in run.numbers:
            return "step_time", run.numbers["step_time_s"]
        needed = ("tokens_per_s_per_gpu", "global_batch_size", "seq_len", "gpus")
        if any(name not in run.numbers for name in needed):
            unpredictable("no step time, and no rate to compute it from")
        rate, batch, length, gpus = (run.numbers[name] for name in needed)
        return "step_time", batch * length / (rate * gpus)
    if "value" not in run.numbers:
        if "peak_mem_gib" not in run.numbers:
            unpredictable("no value of memory")
        return "allocated_memory", run.numbers["peak_mem_gib"] * GIB
    measure = settings.words.get("measure", "")
    unit = settings.numbers.get("unit_bytes", 0.0)
    if not measure:
        unpredictable(f"quantity '{run.texts.get('quantity', '')}': not understood")
    if not unit:
        unpredictable(f"unit '{run.texts.get('unit', '')}': no unit of memory")
    return measure, run.numbers["value"] * unit
