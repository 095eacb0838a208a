"""A tuning's results: as Python objects, as JSON, as a summary for people."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.engine.describe import coordinate
from sweeps.engine.grid import Column
from sweeps.errors import InputError, RunError
from sweeps.job import prepare
from sweeps.origin import once
from sweeps.result import Result, of_columns, of_rows, provenance_of
from sweeps.tuner.benefit import BenefitStudy, benefit, fields_of, records_of
from sweeps.tuner.choose import Choice, Recommendation, Scaling
from sweeps.tuner.predict import ASSUMPTIONS, CaseTimes, records
from sweeps.tuner.recorded import write_case
from sweeps.tuner.settings import Companion, TPOverlapTunerConfig, companion_of, yaml_of
from sweeps.tuner.userbuffers import LayerOverlap

BEST_YAML = "optimal_tp_comm_overlap_cfg.yaml"


@dataclass(frozen=True)
class TuningReport:
    """What a tuning found."""

    config: TPOverlapTunerConfig  # What was tuned
    threshold: float  # Overlap from which one is effective
    results: list[CaseTimes]  # Every case with its times, or why it has none
    choices: list[Choice]  # The configuration of each tensor-parallel size
    scaling: Scaling  # Which sizes are efficient
    # Every layer that overlaps, those that aren't effective among them
    choices_told: list[Recommendation]
    notes: list[str] = field(default_factory=list)  # What is to be known
    output_dir: Path | None = None  # Where the files are

    @property
    def recommendations(self) -> list[Recommendation]:
        """Overlaps that are effective: they reach the threshold and save time."""
        return [one for one in self.choices_told if one.effective]

    @property
    def best(self) -> Choice:
        """The configuration of the optimal size; of the smallest where none is efficient."""
        sizes = {choice.tp_size: choice for choice in self.choices}
        return sizes.get(self.scaling.optimal or 0) or self.choices[0]

    @property
    def missing(self) -> list[CaseTimes]:
        """Cases that nothing was recorded of."""
        return [result for result in self.results if result.status == "missing"]

    @property
    def failed(self) -> list[CaseTimes]:
        """Cases that couldn't be run or read."""
        return [result for result in self.results if result.status == "failed"]

    def yaml(self, choice: Choice) -> str:
        """Return the configuration file of a choice."""
        config = self.config
        how = (
            "measured"
            if any(r.source == "traces" for r in self.results if r.done)
            else (f"predicted for {config.machine.name}")
        )
        heading = [
            f"Tensor-parallel overlap of {config.model_name}, TP={choice.tp_size}, "
            f"{config.max_token_len} tokens, {config.precision}; {how}.",
            "It needs the flags of the .flags.sh file beside it: a layer without a key here "
            "overlaps by default.",
        ]
        if not choice.layers:
            heading.append("No overlap pays here: leave --tp-comm-overlap out.")
        return yaml_of(choice, sm_margin=config.sm_margin, heading=heading, version=config.version)

    def companion(self, choice: Choice) -> Companion:
        """Return the flags that a choice's configuration needs."""
        return companion_of(choice.groups, choice.tp_size, scattered_dgrad=choice.scattered_dgrad)

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it: nothing in it is infinite or no number."""
        rates = self.config.machine.figures
        found: dict[str, Any] = {
            "config": self.config.record(),
            "overlap_threshold": self.threshold,
            "counts": dict(Counter(result.status for result in self.results)),
            "cases": records(self.results),
            "best_configs": {str(c.tp_size): _choice(c, self.companion(c)) for c in self.choices},
            "best_tp_size": self.best.tp_size,
            "verdict": self.verdict(),
            "recommendations": [one.record() for one in self.recommendations],
            "not_effective": [one.record() for one in self.choices_told if not one.effective],
            "tp_scaling": self.scaling.record(),
            "missing": [result.case.config_id for result in self.missing],
            "failed": {result.case.config_id: result.reason for result in self.failed},
            "notes": list(self.notes),
        }
        if self._predicted:
            found["assumptions"] = list(ASSUMPTIONS)
            found["rates"] = {name: one.record() for name, one in rates.items()}
        plain: dict[str, Any] = _finite(found)
        return plain

    @property
    def _predicted(self) -> bool:
        return any(r.done and r.source == "predicted" for r in self.results)

    def summary(self) -> str:
        """Return what people read."""
        return "\n".join(self._lines()) + "\n"

    def verdict(self) -> str:
        """Say whether to overlap, at which size, what it saves of a step, and in which layers."""
        best, model = self.best, self.config.model
        size = best.tp_size
        if not best.layers:
            return f"off at TP {size}: no overlap saves time"
        mixture = bool(model.shapes.get("experts"))
        saved = sum(
            base.e2e - best.e2e(operator)
            for operator, base in best.baselines.items()
            # How many layers of a mixture are dense isn't counted here.
            if not (mixture and operator in {"fc1", "fc2"})
        )
        each = f"{1e6 * saved:,.0f} us a layer saved"
        if self.step is not None:
            share = f"{-100.0 * saved * model.shapes['layers'] / self.step:+.1f} %"
            each = f"{share} of the step (a micro-batch forward and backward, nothing else hidden)"
        dense = ", dense layers' MLPs not counted" if mixture else ""
        count = len(best.layers)
        shown = f"{count} layer{'s'[: count > 1]}: {', '.join(best.layers)}"
        return f"on at TP {size}: {each}{dense}, with {shown}"

    @cached_property
    def step(self) -> float | None:
        """Time of a micro-batch at the best size where nothing hides; None where it isn't known."""
        config, size = self.config, self.best.tp_size
        asked = {
            "model": config.model_name, "hardware": config.hardware,
            "precision": config.precision, "world_size": size, "tp": size,
            "sequence_parallel": 1, "sequence_length": config.max_token_len, "micro_batch": 1,
            "global_batch": 1, "tp_overlap": 0,
        }  # fmt: skip
        folders = tuple(config.hardware_folders)
        try:
            job = prepare({"quantities": ["pipeline_time"], "constants": asked}, folders=folders)
        except InputError:  # such as a model without a vocabulary
            return None
        return float(job.program.evaluate()["pipeline_time"])

    def _lines(self) -> Iterator[str]:
        config = self.config
        yield self.verdict()
        how = f"predicted for {config.machine.name}" if self._predicted else "from traces"
        yield f"TP overlap of {config.model_name}: {how}, {config.precision}"
        yield (
            f"  hidden {config.hidden_size}, MLP {config.ffn_hidden_size}, heads "
            f"{config.num_attention_heads}, kv heads {config.num_kv_heads} of "
            f"{config.head_size}; {config.max_token_len} tokens"
        )
        yield f"  {self._counted()}"
        for choice in sorted(self.choices, key=lambda one: one.tp_size != self.best.tp_size):
            yield ""
            yield from self._of_choice(choice)
        yield ""
        yield from self._scaling_lines()
        yield from _listed("Not recorded", [r.case.config_id for r in self.missing])
        yield from _listed("Failed", [f"{r.case.config_id}: {r.reason}" for r in self.failed])
        doubts = [
            f"{r.case.config_id}: {r.reason}"
            for r in self.results
            if r.done and r.source == "traces" and r.reason
        ]
        yield from _listed("To be looked at", doubts)
        yield from _listed("Notes", self.notes)
        if self._predicted:
            yield from _listed("Assumed", list(ASSUMPTIONS))

    def _counted(self) -> str:
        grid = [r for r in self.results if r.case.tp_size > 1 and not r.refined]
        kinds = Counter(result.status for result in grid)
        text = ", ".join(f"{count} {status}" for status, count in kinds.items())
        base = sum(r.case.tp_size == 1 for r in self.results)
        more = sum(result.refined for result in self.results)
        return f"{len(grid)} cases ({text}), {base} on one rank, {more} added by bisection"

    def _of_choice(self, choice: Choice) -> Iterator[str]:
        gains = [
            f"{operator} {choice.baselines[operator].e2e * 1e6:,.1f} -> "
            f"{choice.e2e(operator) * 1e6:,.1f} us"
            for operator in choice.passes
        ]
        yield f"TP={choice.tp_size}: {'; '.join(gains) or 'no baseline to compare with'}"
        for one in self.choices_told:
            if one.tp_size == choice.tp_size:
                mark = "+" if one.effective else "-"
                yield f"  {mark} {str(one).partition(' ')[2]}"
        for layer, reason in choice.reasons.items():
            if layer not in choice.layers:
                yield f"  . {layer.replace('_', ' ')}: in turn: {reason}"
        companion = self.companion(choice)
        flags = " ".join(companion.flags).replace("-cfg", "-cfg FILE")
        yield f"  flags: {flags or 'none'}{'' if companion.overlaps else ' (nothing overlaps)'}"

    def _scaling_lines(self) -> Iterator[str]:
        optimal = self.scaling.optimal
        if optimal is None:
            yield "TP scaling: the times on one rank aren't known"
            return
        tolerance = f"{self.scaling.tolerance:.0%}"
        yield f"TP scaling: use TP={optimal} (a size counts while within {tolerance} of linear)"
        for operator, one in self.scaling.operators.items():
            ratios = ", ".join(f"TP={n} {r:.2f}" for n, r in one.ratios.items() if n > 1)
            yield f"  {operator}: up to TP={one.optimal} ({ratios})"


def _listed(title: str, lines: Sequence[str], most: int = 20) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines[:most])
        if len(lines) > most:
            yield f"  and {len(lines) - most} more: tuning_report.json has all"


def _choice(choice: Choice, companion: Companion) -> dict[str, Any]:
    return {
        "layers": {layer: result.case.config_id for layer, result in choice.layers.items()},
        "in_turn": {k: why for k, why in choice.reasons.items() if k not in choice.layers},
        "flags": list(companion.flags),
        "operator_e2e_time_us": {
            operator: round(choice.e2e(operator) * 1e6, 6) for operator in choice.passes
        },
        "operator_e2e_time_without_overlap_us": {
            operator: round(base.e2e * 1e6, 6) for operator, base in choice.baselines.items()
        },
    }


def _finite(value: Any) -> Any:
    """Return a value without what JSON can't hold."""
    if isinstance(value, dict):
        return {name: _finite(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(own) for own in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# A study of overlap's gain as a dataset in a file.

QUANTITIES = ("sequential_time", "overlapped_time", "overlap_speedup")


def result_of(study: BenefitStudy, inputs: Mapping[str, str], given: Mapping[str, Any]) -> Result:
    """Return a study as a dataset."""
    values = benefit(study)
    dims = study.dims
    names = [rates.name for rates in study.hardware]
    coordinates = [coordinate("hardware", ("hardware",), names)]
    for dim, own in zip(dims[1:], study.axes.values(), strict=True):
        coordinates.append(coordinate(dim, (dim,), own))
    for dim in ("sms", "bandwidth", "burst_matmul_flops", "burst_memory_bandwidth", "latency"):
        numbers = [rates[dim] for rates in study.hardware]
        origins = once(rates.figures[dim] for rates in study.hardware)
        coordinates.append(coordinate(dim, ("hardware",), numbers, origins))
    comment = "Assumes that " + "; ".join(ASSUMPTIONS) + "."
    kind = np.dtype(np.float64)
    variables = [
        Column(name, dims, kind, {**VOCABULARY[name].attrs(), "comment": comment}, values[name])
        for name in QUANTITIES
    ]
    return of_columns(
        coordinates,
        variables,
        title=study.title,
        summary=study.summary,
        spec={"tp_overlap": dict(inputs)},
        given=given,
        rows=list(records_of(study, values)),
    )


# A tuning's cases as a dataset of rows.

_FLAGS = ("tp_size", "aggregate", "num_sm")


def result_of_tuning(report: TuningReport, given: Mapping[str, Any]) -> Result:
    """Return a tuning's cases as a dataset of rows; as JSON, all of its report."""
    whole = report.record()
    rows: list[dict[str, Any]] = whole["cases"]
    attrs = provenance_of(
        title=f"Overlap of tensor parallelism in {report.config.model_name}: cases",
        spec={"tune": {name: str(one) for name, one in whole["config"].items()}},
        given=given,
        comment="; ".join(report.notes),
        inputs=whole,
    )
    return of_rows(rows, fields_of(rows, _FLAGS), attrs, whole)


# A tuning's files: report, summary, a configuration for each size with its flags.


def write_cases(folder: Path, cases: Iterable[LayerOverlap], config: TPOverlapTunerConfig) -> None:
    """Write the configuration and flags of each case: what is needed to record it."""
    try:
        for name, case in {c.run_id: c for c in cases if c.legality.level == "legal"}.items():
            write_case(folder / "traces" / name, case.same_as, config)
    except OSError as error:
        _refuse(folder, error)


def write_report(report: TuningReport, folder: Path) -> list[Path]:
    """Write a report's files."""
    texts: dict[str, str] = {}
    stem = BEST_YAML.removesuffix(".yaml")
    named = {f"{stem}_tp{choice.tp_size}": choice for choice in report.choices}
    for name, choice in {**named, stem: report.best}.items():
        texts[f"{name}.yaml"] = report.yaml(choice)
        generation = report.config.machine.generation
        texts[f"{name}.flags.sh"] = report.companion(choice).text(f"{name}.yaml", generation)
    texts["summary.txt"] = report.summary()
    # Last, for it says that all is there.
    texts["tuning_report.json"] = json.dumps(report.record(), indent=1, allow_nan=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _put(folder / name, text)
    except OSError as error:
        _refuse(folder, error)
    return [folder / name for name in texts]


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _refuse(folder: Path, error: OSError) -> None:
    message = f"{folder}: can't be written: {error.strerror or os.strerror(error.errno or 0)}"
    raise RunError(message) from error
