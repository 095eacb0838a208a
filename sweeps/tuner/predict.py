"""Times of many cases at once for a machine, by the closed forms of `overhead.overlap`.

A case's phase overlaps by its method; the other two run in turn.  Products are computed with
about the best tile, cut and confined as the method does it.  Communication
in turn, and that of rings, goes at the link's rate; that of bulk and of pipelined parts at what its
multiprocessors reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.evaluation import Evaluation
from overhead.overlap.durations import PAIRS
from sweeps.tuner.rates import IN_STEP, SM_BANDWIDTH, TAKEN, Rates
from sweeps.tuner.times import PassTimes
from sweeps.tuner.userbuffers import (
    ALL_GATHER,
    BASELINE,
    FACTS,
    OPERATORS,
    PHASES,
    REDUCE_SCATTER,
    LayerOverlap,
    collective_of,
    phase_collective,
    products_of,
)

Floats = NDArray[np.float64]
SPLITS = 4
"""Parts of a pipelined reduce_scatter: Transformer Engine's default."""
RINGS = ("ring_exchange", "ring_exchange_aggregate", "reduce_scatter_ring")
PIPELINE = "reduce_scatter_pipeline"
# One product beside nothing; where a mechanism matters it takes this one's place.
IN_TURN = "two_durations"
ASSUMPTIONS: Sequence[str] = FACTS["assumptions"]


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predicted times of many cases: arrays whose last axis is the cases."""

    forward: PassTimes  # Of the linear layer
    backward: PassTimes


class _Problem:
    """Many cases of one or many models on one machine."""

    def __init__(
        self,
        shapes: Mapping[str, object],
        tokens: Any,
        cases: Sequence[LayerOverlap],
        rates: Rates,
        attention: str,
    ) -> None:
        self.cases, self.rates = cases, rates
        # Models stand along the leading axis, and where there is one, it is an axis of one.
        self.shapes = {name: _upright(value) for name, value in shapes.items()}
        self.tokens = _upright(tokens)
        self.tp = np.array([float(case.tp_size) for case in cases])
        self.num_sm = np.array([float(case.num_sm) for case in cases])
        self.operators = [case.operator for case in cases]
        self.products = products_of(self.shapes, self.tp, attention, self.tokens)
        models = np.broadcast_shapes(self.tokens.shape, self.shapes["hidden_size"].shape, (1, 1))[0]
        self.shape = (models, len(cases))

    def sizes(self, phase: str) -> dict[str, Floats]:
        """Return the sizes of each case's product in a phase."""
        names = np.asarray(self.operators)
        every = [self.products[operator, phase] for operator in OPERATORS]
        cases = [names == operator for operator in OPERATORS]
        return {size: np.select(cases, [sizes[size] for sizes in every]) for size in every[0]}

    def full(self, values: Any) -> Floats:
        """Return values for each model and case."""
        return np.array(np.broadcast_to(values, self.shape), dtype=np.float64)

    def collectives(self, phase: str) -> NDArray[Any]:
        """Return what each case's layer communicates in a phase in turn."""
        names = [phase_collective(operator, phase) for operator in self.operators]
        moved = [
            # A gradient scattered with its own product leaves the gathering to the next one.
            ALL_GATHER if case.phase == "dgrad" and phase == "wgrad" and _scatters(case) else name
            for case, name in zip(self.cases, names, strict=True)
        ]
        return np.array(moved)

    def evaluation(
        self, phase: str, mechanism: str = IN_TURN, where: Any = slice(None), **further: Any
    ) -> Evaluation:
        """Return the formulas' quantities of a phase, of all cases or of some."""
        rates = self.rates
        inputs: dict[str, Any] = {name: rates[name] for name in TAKEN}
        inputs |= {name: self.full(v)[:, where] for name, v in self.sizes(phase).items()}
        inputs |= {
            "port_bandwidth": rates["bandwidth"],
            "rank_tokens": self.tokens,
            "hidden_size": self.shapes["hidden_size"],
            "ranks": self.tp[where],
            "num_sm": self.num_sm[where],
            "oversubscription": 1.0,
            "linear_attention_weight_fraction": 0.0,  # Products by themselves
        }
        labels = {"compute": "tiles", "mechanism": mechanism, **FACTS["senders"].get(mechanism, {})}
        if mechanism == IN_TURN and rates.library:
            # The library's profile says which share of a link's bandwidth it reaches.
            port = {"port_bandwidth": rates.library["intra_bandwidth"]}
            inputs |= {
                **rates.library,
                **port,
                "effective_oversubscription": 1.0,
                "ranks_sharing_nic": 1.0,
            }
            return Evaluation(inputs | further, {**labels, **IN_STEP, "library": "nccl"})
        if rates.linked:
            inputs["link_bandwidth"] = rates["link_bandwidth"]
            labels |= PAIRS
        return Evaluation(inputs | further, labels)

    def message(self, names: NDArray[Any], phase: str, where: Any) -> Floats:
        """Return the bytes of collectives, one for each of some cases."""
        evaluation = self.evaluation(phase, where=where)
        gathers = self.full(evaluation["tp_gather_message_bytes"])[:, where]
        scatters = self.full(evaluation["tp_message_bytes"])[:, where]
        return np.asarray(np.where(names == ALL_GATHER, gathers, scatters))


def _upright(values: Any) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(-1, 1)


def _scatters(case: LayerOverlap) -> bool:
    """Tell whether a case's input gradient is scattered with its own product."""
    unsplit = not case.is_baseline and case.phase == "dgrad"
    return unsplit and collective_of(case.operator, "dgrad", case.method) == REDUCE_SCATTER


def predict(
    shapes: Mapping[str, object],
    tokens: Any,
    cases: Sequence[LayerOverlap],
    rates: Rates,
    *,
    sm_margin: bool = False,
    attention: str = "mha",
) -> Predicted:
    """Predict the times of cases."""
    phases = predict_phases(shapes, tokens, cases, rates, sm_margin=sm_margin, attention=attention)
    return Predicted(phases["fprop"], phases["dgrad"] + phases["wgrad"])


def predict_phases(
    shapes: Mapping[str, object],
    tokens: Any,
    cases: Sequence[LayerOverlap],
    rates: Rates,
    *,
    sm_margin: bool = False,
    attention: str = "mha",
) -> dict[str, PassTimes]:
    """Predict the times of cases phase by phase."""
    problem = _Problem(shapes, tokens, cases, rates, attention)
    passes: dict[str, PassTimes] = {}
    for phase in PHASES:
        times = _in_turn(problem, phase)
        # Hiding is all that overlap gains: userbuffers have a start, too, and no faster links.
        least = np.maximum(times["gemm"], times["comm"])
        for mechanism, where in _groups(problem, phase, sm_margin=sm_margin).items():
            part = _overlapped(problem, phase, where, mechanism)
            part["e2e"] = np.maximum(part["e2e"], least[:, where] + part.get("other", 0.0))
            part["comm"] = np.maximum(part["comm"], times["comm"][:, where])
            for name, values in part.items():
                times[name][:, where] = values
        gemm, comm, e2e, other = (times[name] for name in ("gemm", "comm", "e2e", "other"))
        passes[phase] = PassTimes(
            gemm,
            comm,
            gemm + comm + other - e2e,
            other,
            times["gemm_events"],
            times["comm_events"],
        )
    return passes


def _in_turn(problem: _Problem, phase: str) -> dict[str, Floats]:
    """Return the times of a phase where nothing overlaps."""
    evaluation = problem.evaluation(phase)
    gemm = problem.full(evaluation["unsplit_matmul_time"])
    names = problem.collectives(phase)
    gathers, scatters = names == ALL_GATHER, names == REDUCE_SCATTER
    comm = problem.full(gathers * evaluation["gather_time"] + scatters * evaluation["scatter_time"])
    none = problem.full(0.0)
    return {
        "gemm": gemm,
        "comm": comm,
        "e2e": gemm + comm,
        "other": none,
        "gemm_events": problem.full(1.0),
        "comm_events": problem.full((names != "") & (problem.tp > 1.0)),
    }


def _groups(problem: _Problem, phase: str, *, sm_margin: bool) -> dict[str, NDArray[np.intp]]:
    """Return which cases overlap in a phase, by mechanism."""
    groups: dict[str, list[int]] = {}
    for index, case in enumerate(problem.cases):
        if case.phase != phase or case.method == BASELINE:
            continue
        scatters = collective_of(case.operator, phase, case.method) == REDUCE_SCATTER
        if case.method == "ring_exchange":
            gather = "ring_exchange_aggregate" if case.aggregate else "ring_exchange"
            name = "reduce_scatter_ring" if scatters else gather
        elif case.method == "pipeline":
            name = PIPELINE
        else:
            name = "bulk_margin" if sm_margin else "bulk_shared"
        groups.setdefault(name, []).append(index)
    return {name: np.array(indices) for name, indices in groups.items()}


def _overlapped(
    problem: _Problem, phase: str, where: NDArray[np.intp], mechanism: str
) -> dict[str, Any]:
    """Return the times of cases that overlap in a phase by a mechanism."""
    names = np.full(len(where), REDUCE_SCATTER if "scatter" in mechanism else ALL_GATHER)
    names = problem.collectives(phase)[where] if mechanism.startswith("bulk") else names
    given: dict[str, Any] = {"message_bytes": problem.message(names, phase, where)}
    if mechanism not in RINGS:
        # The rate is that of multiprocessors.
        rates = {name: problem.rates[key] for name, key in SM_BANDWIDTH.items()}
        whole = problem.evaluation(phase, "bulk_shared", where)["group_bandwidth"]
        given |= {"bandwidth": whole, "sm_bandwidth": np.array([rates[name] for name in names])}
    if mechanism == PIPELINE:
        given["splits"] = float(SPLITS)
    evaluation = problem.evaluation(phase, mechanism, where, **given)
    split = "split_" * (mechanism == PIPELINE)
    times: dict[str, Any] = {
        "gemm": evaluation["slowed_matmul_time"],
        "comm": evaluation[f"{split}communication_time"],
        "e2e": evaluation["overlapped_time"],
    }
    if mechanism in RINGS:
        times["gemm_events"] = evaluation["matmul_chunks"]
        times["comm_events"] = problem.tp[where] - 1.0
    elif mechanism == PIPELINE:
        times |= dict.fromkeys(("gemm_events", "comm_events"), float(SPLITS))
    if mechanism == "reduce_scatter_ring":
        times["other"] = evaluation["partial_sum_time"]
    return times
