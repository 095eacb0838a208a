"""Plans of published runs beside the best of our search, by our own model: a list, not a score.

``python -m tests.plans.published [SOURCE ..]`` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from overhead.quantity import VOCABULARY
from sweeps.errors import InputError
from sweeps.search.request import DEGREES, NUMBER_CHOICES, Execution, Point, objective_of
from sweeps.search.search import search
from sweeps.search.space import space_of
from sweeps.validate.run_table import find_runs, read_runs, shipped_rules
from sweeps.validate.training_rows import Case, cases_of_runs

# Runs whose plan somebody chose; other sources vary plans to measure them.
CHOSEN = (
    "megatron_sc21", "korthikanti", "mtnlg", "dgxc", "nemo_docs", "mbridge", "mlperf", "mcore",
    "megascale", "moe_modelzoo",
)  # fmt: skip
# What a search decides; everything else of a run is given.
DECIDED = (*DEGREES, *NUMBER_CHOICES, "micro_batches", "embedding_as_layer", "loss_as_layer")
LABELS = ("recompute", "schedule", "context_parallel")


@dataclass(frozen=True)
class Beside:
    """A published run beside the best plan for it.

    Attributes
    ----------
    case : Case
        The run.
    own : Execution or None
        Its plan; None where our model says that it can't be or doesn't fit.
    best : Execution or None
        The best plan; None where none fits.
    """

    case: Case
    own: Execution | None
    best: Execution | None

    @property
    def slower(self) -> float:
        """The step time of its plan by that of the best, less one, both predicted."""
        if self.own is None or self.best is None:
            return float("nan")
        return self.own.known["step_time"] / self.best.known["step_time"] - 1.0


def chosen_cases(sources: Sequence[str] = CHOSEN) -> list[Case]:
    """Return the runs of some sources on more than one node, each plan of a question once."""
    runs = read_runs(find_runs("training")).runs
    cases = cases_of_runs(runs, shipped_rules(), (), ("step_time",)).cases
    kept: dict[object, Case] = {}
    for case in cases:
        many = world_size(case) > case.numbers.get("gpus_per_node", 1.0)
        if case.source.startswith(tuple(sources)) and many:
            kept.setdefault((tuple(sorted(case.numbers.items())), str(case.labels)), case)
    return list(kept.values())


def world_size(case: Case) -> float:
    """Return the GPUs of a run."""
    return float(np.prod([case.numbers[name] for name in ("tp", "cp", "pp", "dp")]))


def question(case: Case) -> Point:
    """Return what a run was the answer to."""
    constants = {name: value for name, value in case.numbers.items()
                 if name in VOCABULARY and name not in DECIDED}  # fmt: skip
    constants["world_size"] = world_size(case)
    labels = {name: label for name, label in case.labels.items() if name not in LABELS}
    choices = {}
    if "context_parallel" in case.labels:
        choices["context_parallel"] = np.array([case.labels["context_parallel"]])
    return Point(constants, labels, choices, objective_of("time"), 1.0)


def answer_of(case: Case) -> Point:
    """Return the question that only a run's own plan answers."""
    point = question(case)
    several = case.numbers["virtual_stages"] > 1.0
    choices = {name: np.array([case.numbers[name]]) for name in (*DEGREES, *NUMBER_CHOICES)
               if name in case.numbers and name not in ("etp", "ep")}  # fmt: skip
    if case.numbers.get("experts", 0.0) > 0.0:
        choices |= {name: np.array([case.numbers[name]]) for name in ("ep", "etp")}
    if case.numbers["tp"] == 1.0:
        choices["sequence_parallel"] = np.array([0.0])
    schedule = "interleaved" if several else "one_f_one_b"
    choices["schedule"] = np.array([schedule])
    choices["recompute"] = np.array([case.labels["recompute"]])
    return replace(point, choices={**point.choices, **choices})


def beside(cases: Sequence[Case]) -> Iterator[Beside]:
    """Yield runs beside the best plans for them; what isn't understood is left out."""
    known: dict[str, Execution | None] = {}
    for case in cases:
        point = question(case)
        key = str((sorted(point.constants.items()), sorted(point.labels.items()), point.choices))
        try:
            if key not in known:
                # What the run did is among what is tried.
                space = space_of(point)
                again = {str(label) for label in space.choices["recompute"]}
                wider = sorted({*again, case.labels["recompute"]})
                found = search(space_of(point.with_choices(recompute=wider)))
                known[key] = found.best[0] if found.best else None
            own = search(space_of(answer_of(case)))
        except InputError:
            continue
        yield Beside(case, own.best[0] if own.best else None, known[key])


def lines(found: Sequence[Beside]) -> Iterator[str]:
    """Yield the list, and how often a published plan is near our best."""
    for one in found:
        case = one.case
        told = f"{one.slower:+7.1%}" if np.isfinite(one.slower) else "      -"
        own = one.own.name if one.own else "its plan doesn't fit, or can't be, by our model"
        best = one.best.name if one.best else "none fits"
        yield f"{told}  {case.source:16s} {case.model:16s} {world_size(case):5g} GPUs: {own}"
        yield f"         best: {best}"
    slower = np.array([one.slower for one in found])
    known = slower[np.isfinite(slower)]
    near = int(np.count_nonzero(known <= 0.1))
    yield (
        f"{near} of {len(known)} published plans are within 10 % of the best, the median is "
        f"{np.median(known):.1%} off; {len(slower) - len(known)} more don't fit by our model"
    )


if __name__ == "__main__":
    wanted = tuple(sys.argv[1:]) or CHOSEN
    for line in lines(list(beside(chosen_cases(wanted)))):
        print(line)
