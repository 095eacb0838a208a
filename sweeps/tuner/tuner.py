"""The tuner: cases, their times from one of three sources, what is best; and its results."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from sweeps.bands import change_by, percent
from sweeps.errors import InputError, RunError, refuse
from sweeps.job import prepare
from sweeps.result import Result, of_rows, provenance_of
from sweeps.spec.units import without_infinities
from sweeps.store.publish import write_whole
from sweeps.tuner.choose import ALIKE, Choice, Recommendation, Scaling, choose, recommend, scale
from sweeps.tuner.predict import ASSUMPTIONS, CaseTimes, best_count, bracket, predict
from sweeps.tuner.presets import fields_of
from sweeps.tuner.recorded import Runner, read_folder, write_case
from sweeps.tuner.settings import Companion, TPOverlapTunerConfig, companion_of, yaml_of
from sweeps.tuner.userbuffers import COLUMN, MOST_SMS, PHASES, LayerOverlap, base_cases
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


# A tuning's cases as a dataset of rows.

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


THRESHOLD = 0.5
"""Overlap from which one is effective."""
MEASURED_TOLERANCE = 0.01  # measured times that differ by less are the same

Time = Callable[[Sequence[LayerOverlap]], list[CaseTimes]]


class TPOverlapTuner:
    """Finds how tensor-parallel communication should overlap with GEMMs.

    Parameters
    ----------
    config : TPOverlapTunerConfig
        What is tuned.
    overlap_threshold : float
        Overlap from which one is recommended.
    tell : callable, optional
        Is called with a line before each case that a command runs.

    Raises
    ------
    InputError
        If the threshold isn't a share.

    Examples
    --------
    >>> config = TPOverlapTunerConfig(model_name="Qwen/Qwen3-0.6B", max_tp_size=4)
    >>> report = TPOverlapTuner(config).run(write=False)
    >>> report.scaling.optimal in (1, 2, 4)
    True
    """

    def __init__(
        self,
        config: TPOverlapTunerConfig,
        overlap_threshold: float = THRESHOLD,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if not 0.0 <= overlap_threshold <= 1.0:
            refuse("--overlap-threshold", overlap_threshold, "isn't allowed", "0 to 1")
        self.config, self.threshold, self.tell = config, overlap_threshold, tell

    def run(self, *, write: bool = True, overwrite: bool = False) -> TuningReport:
        """Tune, and write the results.

        Parameters
        ----------
        write : bool
            Whether files are written; a command's cases always are.
        overwrite : bool
            Whether a folder may hold results already.

        Returns
        -------
        TuningReport
            The results.

        Raises
        ------
        InputError
            If the folder holds results, or the traces can't be found.
        RunError
            If no case has times.
        """
        config = self.config
        writes = write or config.command is not None
        folder = self._folder(overwrite=overwrite or config.resume) if writes else None
        notes = list(config.notes)
        cases = [*config.cases(), *base_cases(config.operators)]
        if config.from_traces is not None:
            results, more = read_folder(Path(config.from_traces), cases, config)
            notes += more
            results = [self._barred(result.case) or result for result in results]
        else:
            time = self._timing(folder)
            results = time(cases)
            if config.search == "bisection":
                results += self._refined(results, time)
        report = self._report(results, notes, folder)
        if folder is not None and write:
            if config.from_traces is None and config.command is None:
                write_cases(folder, cases, config)
            write_report(report, folder)
        return report

    def _folder(self, *, overwrite: bool) -> Path:
        given = self.config.output_dir
        stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        folder = Path(given) if given else Path("outputs") / "tp_overlap_tuner" / stamp
        finished = (folder / "tuning_report.json").exists()
        if folder.exists() and not folder.is_dir():
            refuse("--output-dir", str(folder), "is not a folder", "another name")
        if finished and not overwrite:
            wrong, allowed = "holds results already", "--overwrite, or another folder"
            refuse("--output-dir", str(folder), wrong, allowed)
        return folder

    def _timing(self, folder: Path | None) -> Time:
        """Return what gives times of cases."""
        config = self.config
        if config.command is None:
            return self._predicted
        assert folder is not None
        about = {"tokens": str(config.max_token_len), "model": config.model_name}
        run = Runner(
            config.command,
            folder / "traces",
            about,
            config,
            timeout=config.timeout,
            resume=config.resume,
            tell=self.tell,
        )
        return lambda cases: [self._barred(case) or run(case) for case in cases]

    def _barred(self, case: LayerOverlap) -> CaseTimes | None:
        """Return the result of a case that can't be; None for one that can."""
        skipped = self.config.skipped.get(case.tp_size)
        if skipped:
            return CaseTimes(case, "illegal", skipped)
        legality = case.legality
        if legality.level == "legal":
            return None
        return CaseTimes(case, "illegal", f"{legality.level}: {legality.reason}")

    def _predicted(self, cases: Sequence[LayerOverlap]) -> list[CaseTimes]:
        config = self.config
        barred = {case: self._barred(case) for case in cases}
        legal = [case for case, reason in barred.items() if reason is None]
        times = predict(
            config.model.shapes,
            config.max_token_len,
            legal,
            config.machine,
            sm_margin=config.sm_margin,
            attention=config.attention,
        )
        done = {
            case: CaseTimes(
                case,
                "done",
                case.legality.reason,
                times.forward.at((0, k)),
                times.backward.at((0, k)),
            )
            for k, case in enumerate(legal)
        }
        return [barred[case] or done[case] for case in cases]

    def _refined(self, results: Sequence[CaseTimes], time: Time) -> list[CaseTimes]:
        """Search between the grid's numbers of multiprocessors; return the cases added."""
        config = self.config
        # Bulk is legal for the gradients of column-split layers alone.
        layers = [
            (size, operator, phase)
            for size in config.sizes
            for operator in config.operators
            if operator in COLUMN
            for phase in ("dgrad", "wgrad")
        ]
        added: list[CaseTimes] = []
        for size, operator, phase in layers:
            known = {
                r.case.num_sm: r
                for r in results
                if r.done
                and (r.case.tp_size, r.case.operator, r.case.phase) == (size, operator, phase)
                and r.case.method == "bulk"
            }
            if not known:
                continue
            added += self._searched(LayerOverlap(size, operator, phase, "bulk"), known, time)
        return added

    def _searched(
        self, case: LayerOverlap, known: dict[int, CaseTimes], time: Time
    ) -> list[CaseTimes]:
        config = self.config
        grid = set(known)
        noise = MEASURED_TOLERANCE if config.command else 0.0

        def time_with(count: int) -> float:
            if count not in known:
                (case_times,) = time([replace(case, num_sm=count)])
                known[count] = replace(case_times, refined=True)
            case_times = known[count]
            return case_times.e2e if case_times.done else float("inf")

        times = [(count, result.e2e) for count, result in known.items()]
        low, high = bracket(times, config.min_num_sm, config.max_num_sm)
        best = best_count(time_with, low, high, max(noise, 1e-9))
        # Of numbers that are as good the least.
        enough = min(result.e2e for result in known.values() if result.done) * (1.0 + ALIKE)
        low = config.min_num_sm
        while low < best:
            middle = (low + best) // 2
            low, best = (low, middle) if time_with(middle) <= enough else (middle + 1, best)
        return [result for count, result in known.items() if count not in grid]

    def _bound(self, choice: Choice) -> Iterator[str]:
        """Yield what more multiprocessors than the search may take would save."""
        config, most = self.config, self.config.max_num_sm
        counts = range(most + 1, MOST_SMS + 1)
        if config.from_traces is not None or config.command is not None or not counts:
            return
        for operator, phase in product(config.operators, PHASES):
            method = self._method(operator, phase, scattered=choice.scattered_dgrad)
            now = choice.layers.get(f"{operator}_{phase}") or choice.baselines[operator]
            if not method or (now.case.method == method and now.case.num_sm != most):
                continue
            case = LayerOverlap(choice.tp_size, operator, phase, method)
            more = self._predicted([replace(case, num_sm=count) for count in counts])
            best = min(more, key=lambda result: result.e2e)
            if best.e2e < now.e2e * (1.0 - ALIKE):
                yield (
                    f"tp{choice.tp_size}_{operator}_{phase}: --max-num-sm {most} binds: {method} "
                    f"with {best.case.num_sm} multiprocessors would save "
                    f"{1e6 * (now.e2e - best.e2e):,.1f} µs more"
                )

    def _method(self, operator: str, phase: str, *, scattered: bool) -> str:
        """Return the method by which a layer may take more multiprocessors; or none."""
        if operator in COLUMN and phase != "fprop" and not scattered:
            return "bulk"
        scatters = phase == ("dgrad" if operator in COLUMN else "fprop")
        return "pipeline" if scatters and self.config.splits else ""

    def _report(
        self, results: list[CaseTimes], notes: list[str], folder: Path | None
    ) -> TuningReport:
        config = self.config
        if not any(result.done and not result.case.is_baseline for result in results):
            failed = [r.reason for r in results if r.status == "failed"]
            message = f"no case with overlap has times: {failed[0] if failed else 'none was found'}"
            raise RunError(message)
        choices = [
            choose(results, size, config.operators, config.objective)
            for size in config.sizes
            if any(r.done and r.case.tp_size == size for r in results)
        ]
        return TuningReport(
            config=config,
            threshold=self.threshold,
            results=results,
            choices=choices,
            scaling=scale(_times(results, choices, config.operators), config.tolerance),
            candidates=recommend(choices, self.threshold),
            notes=[
                *notes,
                *(note for choice in choices for note in (*choice.notes, *self._bound(choice))),
            ],
            output_dir=folder,
        )


def _times(
    results: Sequence[CaseTimes], choices: Sequence[Choice], operators: Sequence[str]
) -> dict[str, dict[int, float]]:
    """Return each linear layer's time by size, with what was chosen."""
    times: dict[str, dict[int, float]] = {operator: {} for operator in operators}
    for result in results:
        if result.case.tp_size == 1 and result.case.is_baseline and result.done:
            times[result.case.operator][1] = result.e2e
    for choice in choices:
        for operator in choice.passes:
            times[operator][choice.tp_size] = choice.e2e(operator)
    return times
