"""What a tuning found: on screen, as a record, as a dataset, in files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sweeps.bands import change_by, percent
from sweeps.errors import InputError, RunError
from sweeps.job import prepare
from sweeps.result import Result, of_rows, provenance_of
from sweeps.spec.units import without_infinities
from sweeps.store.publish import write_whole
from sweeps.tuner.choose import Choice, Recommendation, Scaling
from sweeps.tuner.predict import ASSUMPTIONS
from sweeps.tuner.presets import fields_of
from sweeps.tuner.running import write_case
from sweeps.tuner.settings import Companion, TPOverlapTunerConfig, companion_of, yaml_of
from sweeps.tuner.times import CaseTimes
from sweeps.tuner.userbuffers import LayerOverlap
from sweeps.wrapping import aligned

NOTES = "Notes"
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
    candidates: list[Recommendation]
    notes: list[str] = field(default_factory=list)  # What is to be known
    output_dir: Path | None = None  # Where the files are

    @property
    def recommendations(self) -> list[Recommendation]:
        """Overlaps that are effective: they reach the threshold and save time."""
        return [candidate for candidate in self.candidates if candidate.effective]

    @property
    def best(self) -> Choice:
        """The configuration of the optimal size; of the smallest known where none is efficient."""
        sizes = {choice.tp_size: choice for choice in self.choices if choice.baselines}
        smallest = next(iter(sizes.values()), self.choices[0])
        return sizes.get(self.scaling.optimal or 0, smallest)

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
        content: dict[str, Any] = {
            "config": self.config.record(),
            "overlap_threshold": self.threshold,
            "counts": dict(Counter(result.status for result in self.results)),
            "cases": [result.record() for result in self.results],
            "best_configs": {str(c.tp_size): _choice(c, self.companion(c)) for c in self.choices},
            "best_tp_size": self.best.tp_size,
            "verdict": self.verdict(),
            "recommendations": [recommendation.record() for recommendation in self.recommendations],
            "not_effective": [
                candidate.record() for candidate in self.candidates if not candidate.effective
            ],
            "tp_scaling": self.scaling.record(),
            "missing": [result.case.config_id for result in self.missing],
            "failed": {result.case.config_id: result.reason for result in self.failed},
            "notes": list(self.notes),
        }
        if self._predicted:
            content["assumptions"] = list(ASSUMPTIONS)
            content["rates"] = {name: rate.record() for name, rate in rates.items()}
        plain: dict[str, Any] = without_infinities(content)
        return plain

    @property
    def _predicted(self) -> bool:
        return any(r.done and r.source == "predicted" for r in self.results)

    def summary(self) -> str:
        """Return what people read."""
        lines = [self.verdict(), *self._about(), *self.reasons(), *self._assumed()]
        return "\n".join(lines) + "\n"

    def screen(self) -> Iterator[str]:
        """Yield what a screen has: whether to overlap, the layers of the best size, the others."""
        yield self.verdict(listed=False)
        yield from self._about()
        rows = [
            candidate
            for candidate in self.candidates
            if candidate.case.tp_size == self.best.tp_size
        ]
        if rows:
            table = [["layer", "pass", "saved (µs)", "speedup", "overlap (%)", "method", "SMs"]]
            table += [row.cells() for row in rows]
            yield from aligned(table, left=2)
            yield ""
        for choice in self.choices:
            if choice.baselines:
                before = sum(base.e2e for base in choice.baselines.values())
                after = sum(choice.e2e(operator) for operator in choice.baselines)
                saved = f"saves {1e6 * (before - after):,.0f} of {1e6 * before:,.0f} µs a layer"
                yield f"TP {choice.tp_size} {saved} ({percent(1.0 - after / before)})"
        yield next(self._scaling_lines())
        yield from (f"Note: {note}" for note in self.notes)
        for title, lines in self._troubles():
            if title != NOTES:
                few = f"{', '.join(lines[:2])}{', ..' if len(lines) > 2 else ''}"
                yield f"{title}: {len(lines)} ({few})"

    def _about(self) -> Iterator[str]:
        """Yield what was tuned, and how many cases there are."""
        config = self.config
        how = f"predicted for {config.machine.name}" if self._predicted else "from traces"
        yield f"  {config.model_name}: {how}, {config.precision}, {config.max_token_len} tokens"
        yield f"  {self._counted()}"
        yield ""

    def reasons(self) -> Iterator[str]:
        """Yield each size's layers with the runner-up, the scaling, and what is to be known."""
        for choice in sorted(
            self.choices, key=lambda candidate: candidate.tp_size != self.best.tp_size
        ):
            yield from self._of_choice(choice)
            yield ""
        yield from self._scaling_lines()
        for title, lines in self._troubles():
            yield from _listed(title, lines)

    def defaults(self) -> Iterator[str]:
        """Yield what a prediction assumes, and every figure of the machine with its source."""
        yield from self._assumed()
        yield from self.config.machine.lines()

    def _assumed(self) -> Iterator[str]:
        if self._predicted:
            yield from _listed("Assumed", list(ASSUMPTIONS))

    def _troubles(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield what lacks, what failed and what is to be known, where there is any."""
        doubts = [
            f"{r.case.config_id}: {r.reason}"
            for r in self.results
            if r.done and r.source == "traces" and r.reason
        ]
        for title, lines in (
            ("Not recorded", [r.case.config_id for r in self.missing]),
            ("Failed", [f"{r.case.config_id}: {r.reason}" for r in self.failed]),
            ("To be looked at", doubts),
            (NOTES, self.notes),
        ):
            if lines:
                yield title, lines

    def verdict(self, *, listed: bool = True) -> str:
        """Say whether to overlap, at which size, what it saves of a step, and in which layers."""
        best, model = self.best, self.config.model
        size = best.tp_size
        if not best.baselines:
            return (
                f"not known: no baseline was recorded at TP {size} (tp{size}_fc1_baseline, ..), "
                "and nothing else says what overlap saves; no configuration is written"
            )
        if not best.layers:
            return f"off at TP {size}: no overlap saves time"
        mixture = bool(model.shapes.get("experts"))
        saved = sum(
            base.e2e - best.e2e(operator)
            for operator, base in best.baselines.items()
            # How many layers of a mixture are dense isn't counted here.
            if not (mixture and operator in {"fc1", "fc2"})
        )
        each = f"{1e6 * saved:,.0f} µs a layer saved"
        if self.step is not None:
            share = change_by(-saved * model.shapes["layers"] / self.step)
            each = f"{share} of the step (a micro-batch forward and backward, nothing else hidden)"
        dense = ", dense layers' MLPs not counted" if mixture else ""
        count = len(best.layers)
        shown = f"{count} layer{'s'[: count > 1]}: {', '.join(best.layers)}"
        unsure = "band not known: no published timings of these cases"
        text = f"on at TP {size}: {each}{dense} ({unsure})"
        return f"{text}, with {shown}" if listed else text

    @cached_property
    def step(self) -> float | None:
        """Time of a micro-batch at the best size where nothing hides; None where it isn't known."""
        config, size = self.config, self.best.tp_size
        asked = {
            "model": config.model_name,
            "hardware": config.hardware,
            "precision": config.precision,
            "world_size": size,
            "tp": size,
            "sequence_parallel": 1,
            "sequence_length": config.max_token_len,
            "micro_batch_size": 1,
            "global_batch_size": 1,
            "tp_overlap": 0,
        }
        folders = tuple(config.hardware_folders)
        try:
            job = prepare({"quantities": ["pipeline_time"], "constants": asked}, folders=folders)
        except InputError:  # such as a model without a vocabulary
            return None
        return float(job.program.evaluate()["pipeline_time"])

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
            f"{choice.e2e(operator) * 1e6:,.1f} µs"
            for operator in choice.passes
        ]
        yield f"TP={choice.tp_size}: {'; '.join(gains) or 'no baseline to compare with'}"
        for candidate in self.candidates:
            if candidate.case.tp_size == choice.tp_size:
                mark = "+" if candidate.effective else "-"
                yield f"  {mark} {str(candidate).partition(' ')[2]}"
        for layer, reason in choice.reasons.items():
            if layer not in choice.layers:
                yield f"  . {layer.replace('_', ' ')}: in turn: {reason}"
        if not choice.baselines:
            return
        companion = self.companion(choice)
        flags = " ".join(companion.flags).replace("-cfg", "-cfg FILE")
        yield f"  flags: {flags or 'none'}{'' if companion.overlaps else ' (nothing overlaps)'}"

    def _scaling_lines(self) -> Iterator[str]:
        optimal = self.scaling.optimal
        if optimal is None:
            yield "TP scaling: the times on one rank aren't known"
            return
        tolerance = percent(self.scaling.tolerance)
        needed = ""
        if optimal != self.best.tp_size:
            needed = f": TP={self.best.tp_size} is for models that do not fit otherwise"
        yield f"TP scaling: up to TP={optimal} sizes are within {tolerance} of linear{needed}"
        for operator, scaling in self.scaling.operators.items():
            ratios = ", ".join(f"TP={n} {r:.2f}" for n, r in scaling.ratios.items() if n > 1)
            yield f"  {operator}: up to TP={scaling.optimal} ({ratios})"


def _listed(title: str, lines: Sequence[str], most: int = 20) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines[:most])
        if len(lines) > most:
            yield f"  and {len(lines) - most} more: tuning_report.json has all"


def _choice(choice: Choice, companion: Companion) -> dict[str, object]:
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


_FLAGS = ("tp_size", "aggregate", "num_sm")


def result_of_tuning(report: TuningReport, given: Mapping[str, object]) -> Result:
    """Return a tuning's cases as a dataset of rows; as JSON, all of its report."""
    whole = report.record()
    rows: list[dict[str, Any]] = whole["cases"]
    attrs = provenance_of(
        title=f"Overlap of tensor parallelism in {report.config.model_name}: cases",
        spec={"tune": {name: str(value) for name, value in whole["config"].items()}},
        given=given,
        comment="; ".join(report.notes),
        inputs=whole,
    )
    return of_rows(rows, fields_of(rows, _FLAGS), attrs, whole)


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
    known = {
        name: candidate
        for name, candidate in {**named, stem: report.best}.items()
        if candidate.baselines
    }
    for name, choice in known.items():
        texts[f"{name}.yaml"] = report.yaml(choice)
        generation = report.config.machine.generation
        texts[f"{name}.flags.sh"] = report.companion(choice).text(f"{name}.yaml", generation)
    texts["summary.txt"] = report.summary()
    # Last, for it says that all is there.
    texts["tuning_report.json"] = json.dumps(report.record(), indent=1, allow_nan=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text.encode())
    except OSError as error:
        _refuse(folder, error)
    return [folder / name for name in texts]


def _refuse(folder: Path, error: OSError) -> None:
    message = f"{folder}: can't be written: {error.strerror or os.strerror(error.errno or 0)}"
    raise RunError(message) from error
