"""The tuner: cases, their times from one of three sources, and what is best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice, product
from pathlib import Path

from sweeps.errors import RunError, refuse
from sweeps.tuner.choose import ALIKE, TOLERANCE, Choice, choose, recommend, scale
from sweeps.tuner.predict import predict
from sweeps.tuner.recorded import read_folder
from sweeps.tuner.report import TuningReport, write_cases, write_report
from sweeps.tuner.running import Runner
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.times import CaseTimes
from sweeps.tuner.userbuffers import COLUMN, MOST_SMS, PHASES, LayerOverlap, base_cases

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
        # By layer: bulk is legal for the gradients of column-split ones alone.
        known: dict[LayerOverlap, dict[int, CaseTimes]] = {}
        for result in results:
            if result.done and result.case.method == "bulk":
                layer = replace(result.case, num_sm=1)
                known.setdefault(layer, {})[result.case.num_sm] = result
        if config.command is None:
            # All numbers are predicted together in less time than a few one after another.
            counts = range(config.min_num_sm, config.max_num_sm + 1)
            every = [replace(layer, num_sm=count) for layer in known for count in counts]
            ready = dict(zip(every, time(every), strict=True)) if every else {}
            time = lambda cases: [ready[case] for case in cases]  # noqa: E731
        return [
            result
            for layer, by_count in known.items()
            for result in self._searched(layer, by_count, time)
        ]

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
        layers: dict[LayerOverlap, CaseTimes] = {}  # What each is now
        for operator, phase in product(config.operators, PHASES):
            method = self._method(operator, phase, scattered=choice.scattered_dgrad)
            now = choice.layers.get(f"{operator}_{phase}") or choice.baselines[operator]
            if method and (now.case.method != method or now.case.num_sm == most):
                layers[LayerOverlap(choice.tp_size, operator, phase, method)] = now
        every = [replace(layer, num_sm=count) for layer in layers for count in counts]
        more = iter(self._predicted(every) if every else ())
        for layer, now in layers.items():
            best = min(islice(more, len(counts)), key=lambda result: result.e2e)
            if best.e2e < now.e2e * (1.0 - ALIKE):
                yield (
                    f"tp{layer.tp_size}_{layer.layer}: --max-num-sm {most} binds: {layer.method} "
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


def bracket(times: Sequence[tuple[int, float]], least: int, most: int) -> tuple[int, int]:
    """Return between which numbers the best one lies, by those that are known."""
    if not times:
        return least, most
    ordered = sorted(times)
    low = min(time for _, time in ordered) * (1.0 + TOLERANCE)
    # Of links too slow for any number there is no least time: all stay possible.
    index = next((k for k, (_, time) in enumerate(ordered) if time <= low), None)
    if index is None:
        return least, most
    below = ordered[index - 1][0] if index else least
    above = ordered[index + 1][0] if index + 1 < len(ordered) else most
    return max(below, least), min(above, most)


def best_count(
    time: Callable[[int], float], least: int, most: int, tolerance: float = TOLERANCE
) -> int:
    """Find the number of multiprocessors with the least time.

    The time of a product beside a collective falls while the collective is the longer one, for it
    gets faster, and rises afterwards, for the product gets slower.  So "one more is no better" is
    false up to some number and true from there on, and that number is found by bisection.
    """
    known: dict[int, float] = {}

    def time_of(count: int) -> float:
        if count not in known:
            known[count] = time(count)
        return known[count]

    low, high = least, most
    while low < high:
        middle = (low + high) // 2
        if time_of(middle) <= time_of(middle + 1) * (1.0 + tolerance):
            high = middle
        else:
            low = middle + 1
    # With noise the search can have gone astray: what was seen and is better, is better.
    best = min(known.values(), default=time_of(low))
    return min(count for count, seconds in known.items() if seconds <= best * (1.0 + tolerance))
