"""Times of many cases at once for a machine, by the closed forms of `overhead.overlap`.

A case's phase overlaps by its method; the other two run in turn.  Products are computed in whole
waves of tiles, cut and confined as the method does it.  Communication in turn, and that of rings,
goes at the link's rate; that of bulk and of pipelined parts at what its multiprocessors reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import overhead.overlap  # declares the forms
import overhead.overlap.waves  # noqa: F401  (and those of products)
from overhead.evaluation import Evaluation
from sweeps.tuner.cases import BASELINE, Case
from sweeps.tuner.models import Products, products_of
from sweeps.tuner.rates import Rates
from sweeps.tuner.times import PassTimes
from sweeps.tuner.userbuffers import (
    ALL_GATHER,
    LAST_SPLIT_SMS,
    PHASES,
    REDUCE_SCATTER,
    collective_of,
    phase_collective,
)

__all__ = ["ASSUMPTIONS", "SPLITS", "Predicted", "predict"]

Floats = NDArray[np.float64]
SPLITS = 4
"""Parts of a pipelined reduce_scatter: Transformer Engine's default."""
WAVES = {"compute": "waves", "communication": "sms"}
ASSUMPTIONS = (
    "a case overlaps one phase of one linear layer; what else the layer does runs in turn, the "
    "input's all_gather and the gradient's reduce_scatter of a backward among it",
    "products take whole waves of 128 x 256 tiles at the rate that long runs sustain, and a start "
    "each",
    "rings move their chunks by copy engines (use_ce) and leave all multiprocessors to the product",
    "without set_sm_margin a product shares the GPU until the collective is done; kernels that "
    "fill the GPU and stay (persistent ones) behave as with it",
)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predicted times of many cases: arrays whose last axis is the cases."""

    forward: PassTimes  # Of the linear layer
    backward: PassTimes  # Of the linear layer


class _Problem:
    """Many cases of one or many models on one machine."""

    def __init__(
        self, shapes: Mapping[str, Any], tokens: Any, cases: Sequence[Case], rates: Rates,
        attention: str,
    ) -> None:  # fmt: skip
        self.cases, self.rates = cases, rates
        # Models stand along the leading axis, and where there is one, it is an axis of one.
        self.shapes = {name: _upright(value) for name, value in shapes.items()}
        self.tokens = _upright(tokens)
        self.tp = np.array([float(case.tp_size) for case in cases])
        self.num_sm = np.array([float(case.num_sm) for case in cases])
        self.operators = [case.operator for case in cases]
        self.products: Products = products_of(
            self.shapes, self.tokens, self.operators, self.tp, attention
        )
        elements = self.tokens * self.shapes["hidden_size"]
        self.message = {
            ALL_GATHER: elements * rates["gathered_bytes"],
            REDUCE_SCATTER: elements * rates["activation_bytes"],
        }
        models = np.broadcast_shapes(elements.shape, (1, 1))[0]
        self.shape = (models, len(cases))

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

    def bytes_of(self, names: NDArray[Any]) -> Any:
        """Return the bytes of collectives, one for each case."""
        gathers, scatters = names == ALL_GATHER, names == REDUCE_SCATTER
        return gathers * self.message[ALL_GATHER] + scatters * self.message[REDUCE_SCATTER]

    def given(self, phase: str, where: Any = slice(None)) -> dict[str, Any]:
        """Return what formulas take of a phase, of all cases or of some."""
        rates = self.rates
        held: dict[str, Any] = {
            name: rates[name]
            for name in (
                "best_matmul_flops", "memory_bandwidth", "launch_time", "activation_bytes",
                "tile_rows", "tile_columns", "latency", "copy_engine_bandwidth", "sms",
            )
        }  # fmt: skip
        sizes = {name: self.full(v)[:, where] for name, v in self.products.of(phase).items()}
        return held | sizes | {"ranks": self.tp[where], "num_sm": self.num_sm[where]}

    def link(self, where: Any = slice(None), *, ring: bool) -> Any:
        """Return the bandwidth of cases: of a full port, or of the links that are used."""
        rates = self.rates
        if not rates.linked:
            return rates["bandwidth"]
        if ring:
            return rates["link_bandwidth"]
        peers = np.maximum(self.tp[where] - 1.0, 1.0)
        return np.minimum(rates["bandwidth"], peers * rates["link_bandwidth"])


def _upright(values: Any) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(-1, 1)


def _scatters(case: Case) -> bool:
    """Tell whether a case's input gradient is scattered with its own product."""
    found = not case.is_baseline and case.phase == "dgrad"
    return found and collective_of(case.operator, "dgrad", case.method) == REDUCE_SCATTER


def predict(
    shapes: Mapping[str, Any],
    tokens: Any,
    cases: Sequence[Case],
    rates: Rates,
    *,
    sm_margin: bool = False,
    attention: str = "mha",
) -> Predicted:
    """Predict the times of cases."""
    problem = _Problem(shapes, tokens, cases, rates, attention)
    passes: dict[str, PassTimes] = {}
    for phase in PHASES:
        times = _in_turn(problem, phase)
        for mechanism, where in _groups(problem, phase, sm_margin=sm_margin).items():
            part = _FORMS[mechanism](problem, phase, where)
            for name, values in part.items():
                times[name][:, where] = values
        gemm, comm, e2e, other = (times[name] for name in ("gemm", "comm", "e2e", "other"))
        passes[phase] = PassTimes(
            gemm, comm, gemm + comm + other - e2e, other, times["gemm_events"],
            times["comm_events"],
        )  # fmt: skip
    return Predicted(passes["fprop"], passes["dgrad"] + passes["wgrad"])


def _in_turn(problem: _Problem, phase: str) -> dict[str, Floats]:
    """Return the times of a phase where nothing overlaps."""
    given = problem.given(phase)
    gemm = problem.full(Evaluation(given, WAVES)["whole_product_time"])
    names = problem.collectives(phase)
    some = (names != "") & (problem.tp > 1.0)
    given |= {
        "message_bytes": problem.bytes_of(names),
        "transfer_bandwidth": problem.link(ring=True),
    }
    comm = problem.full(Evaluation(given, WAVES)["communication_time"] * some)
    none = problem.full(0.0)
    return {
        "gemm": gemm, "comm": comm, "e2e": gemm + comm, "other": none,
        "gemm_events": problem.full(1.0), "comm_events": problem.full(some),
    }  # fmt: skip


def _groups(problem: _Problem, phase: str, *, sm_margin: bool) -> dict[str, NDArray[np.intp]]:
    """Return which cases overlap in a phase, by mechanism."""
    found: dict[str, list[int]] = {}
    for place, case in enumerate(problem.cases):
        if case.phase != phase or case.method == BASELINE:
            continue
        scatters = collective_of(case.operator, phase, case.method) == REDUCE_SCATTER
        if case.method == "ring_exchange":
            gather = "ring_exchange_aggregate" if case.aggregate else "ring_exchange"
            name = "reduce_scatter_ring" if scatters else gather
        elif case.method == "pipeline":
            name = "reduce_scatter_pipeline"
        else:
            name = "bulk_margin" if sm_margin else "bulk_shared"
        found.setdefault(name, []).append(place)
    return {name: np.array(places) for name, places in found.items()}


def _ring(problem: _Problem, phase: str, where: NDArray[np.intp], mechanism: str) -> dict[str, Any]:
    given = problem.given(phase, where)
    gathers = ALL_GATHER if mechanism != "reduce_scatter_ring" else REDUCE_SCATTER
    given["message_bytes"] = problem.full(problem.message[gathers])[:, where]
    held = Evaluation(given, {**WAVES, "mechanism": mechanism, "sm_law": "copy_engine"})
    ranks = problem.tp[where]
    scatters = mechanism == "reduce_scatter_ring"
    return {
        "gemm": held["compute_time"],
        "comm": held["communication_time"],
        "e2e": held["overlapped_time"],
        "other": held["partial_sum_time"] if scatters else 0.0,
        "gemm_events": held["product_chunks"],
        "comm_events": ranks - 1.0,
    }


def _by_sms(problem: _Problem, where: NDArray[np.intp], names: NDArray[Any]) -> dict[str, Any]:
    """Return what the rate of multiprocessors takes."""
    half = {
        name: problem.rates[f"half_bandwidth_sms_{name}"] for name in (ALL_GATHER, REDUCE_SCATTER)
    }
    return {
        "bandwidth": problem.link(where, ring=False),
        "half_bandwidth_sms": np.array([half[name] for name in names]),
    }


def _bulk(problem: _Problem, phase: str, where: NDArray[np.intp], mechanism: str) -> dict[str, Any]:
    names = problem.collectives(phase)[where]
    given = problem.given(phase, where) | _by_sms(problem, where, names)
    gathers = names == ALL_GATHER
    given["message_bytes"] = np.where(
        gathers,
        problem.full(problem.message[ALL_GATHER])[:, where],
        problem.full(problem.message[REDUCE_SCATTER])[:, where],
    )
    labels = {**WAVES, "mechanism": mechanism, "sm_law": "saturating"}
    held = Evaluation(given, labels)
    e2e, comm = held["overlapped_time"], held["communication_time"]
    if mechanism == "bulk_margin":
        gemm = held["carved_compute_time"]
    else:
        # Beside a longer collective the product has what that leaves it all of the time.
        slowed = held["compute_time"] * given["sms"] / held["free_sms"]
        gemm = np.minimum(e2e, slowed)
    return {"gemm": gemm, "comm": comm, "e2e": e2e}


def _pipeline(
    problem: _Problem, phase: str, where: NDArray[np.intp], mechanism: str
) -> dict[str, Any]:
    names = np.full(len(where), REDUCE_SCATTER)
    given = problem.given(phase, where) | _by_sms(problem, where, names)
    given["message_bytes"] = problem.full(problem.message[REDUCE_SCATTER])[:, where] / SPLITS
    law = {**WAVES, "sm_law": "saturating"}
    part = Evaluation(given, law)["communication_time"]
    last = Evaluation(given | {"num_sm": float(LAST_SPLIT_SMS)}, law)["communication_time"]
    given |= {
        "splits": float(SPLITS), "communication_time": SPLITS * part, "last_split_time": last,
        "num_sm": problem.num_sm[where],
    }  # fmt: skip
    held = Evaluation(given, {**WAVES, "mechanism": mechanism})
    return {
        "gemm": held["compute_time"],
        "comm": (SPLITS - 1.0) * part + last,
        "e2e": held["overlapped_time"],
        "gemm_events": float(SPLITS),
        "comm_events": float(SPLITS),
    }


def _form(function: Any, mechanism: str) -> Any:
    return lambda problem, phase, where: function(problem, phase, where, mechanism)


_FORMS = {
    "ring_exchange": _form(_ring, "ring_exchange"),
    "ring_exchange_aggregate": _form(_ring, "ring_exchange_aggregate"),
    "reduce_scatter_ring": _form(_ring, "reduce_scatter_ring"),
    "reduce_scatter_pipeline": _form(_pipeline, "reduce_scatter_pipeline"),
    "bulk_margin": _form(_bulk, "bulk_margin"),
    "bulk_shared": _form(_bulk, "bulk_shared"),
}
