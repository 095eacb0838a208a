"""Times of many cases at once for a machine, by the closed forms of `overhead.overlap`.

A case's phase overlaps by its method; the other two run in turn.  Products are computed with
about the best tile, cut and confined as the method does it.  Communication
in turn, and that of rings, goes at the link's rate; that of bulk and of pipelined parts at what its
multiprocessors reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from overhead.evaluation import Evaluation
from overhead.labels import LABELS
from overhead.overlap.durations import PAIRS
from sweeps.bands import written
from sweeps.errors import refuse
from sweeps.origin import GIVEN, Origin, assumed
from sweeps.spec.catalog import load_framework, load_hardware
from sweeps.spec.framework import training_constants
from sweeps.spec.machine import Machine
from sweeps.spec.resolve_operation import figure_of
from sweeps.spec.software import (
    STEPS,
    TILED,
    USERBUFFERS,
    own_library,
    priced,
    userbuffers_figures,
)
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

# The figures that a prediction takes of a machine, each with where it comes from.

PRECISIONS = ("bf16", "fp8")
FRAMEWORK = LABELS["framework"].default
# What can be given in place of the files' figures.
CHANGEABLE: Mapping[str, str] = FACTS["changeable"]


@dataclass(frozen=True, slots=True)
class Rates:
    """A machine as a prediction sees it."""

    name: str  # The machine's
    generation: str  # Of its GPUs
    ranks: int  # GPUs that reach one another inside a node
    # Whether every pair of GPUs has a link of its own, so that a ring uses one of them
    linked: bool
    figures: Mapping[str, Origin]  # By quantity, in canonical units
    # What the machine's library of collectives takes of it; nothing where none is known
    library: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, quantity: str) -> float:
        return float(self.figures[quantity].value)

    def lines(self) -> Iterator[str]:
        """Yield each figure with where it comes from, as people read it."""
        yield f"\ntaken of {self.name}:\n"
        for name, figure in self.figures.items():
            shown = written(name, figure.value)
            yield f"  {name} = {shown}  [{figure.words}]\n"


def read_rates(
    hardware: str | Machine,
    precision: str = "bf16",
    given: Mapping[str, float] | None = None,
    folders: tuple[Path, ...] = (),
) -> Rates:
    """Read what a prediction takes of a machine."""
    machine = load_hardware(hardware, folders) if isinstance(hardware, str) else hardware
    constants = training_constants(machine, load_framework(FRAMEWORK), precision=precision)
    if "sms" in (given or {}):
        constants["sms"] = Origin((given or {})["sms"], GIVEN)
    tiled = userbuffers_figures(machine, precision, constants)
    figures = _of_machine(machine, constants, tiled["userbuffers_efficiency"])
    values = {**tiled, **figures}
    for name, value in (given or {}).items():
        names = [name] if name != "sm_bandwidth" else list(SM_BANDWIDTH.values())
        values |= dict.fromkeys(names, Origin(value, GIVEN))
    if machine.scale_up_kind in {"torus", "mesh"}:
        wrong = f"its devices stand in a {machine.scale_up_kind}"
        refuse("hardware", machine.name, wrong, "userbuffers need NVLink and a GPU")
    if "sms" not in values:
        wrong = "its number of streaming multiprocessors isn't known"
        refuse("hardware", machine.name, wrong, "give it: --sms")
    lacking = [name for name in TAKEN if not values[name].value > -1.0]
    if lacking:
        wrong = f"{', '.join(lacking)} in {precision} isn't known"
        refuse("hardware", machine.name, wrong, "another machine or --precision")
    ranks = int(machine.figures["gpus_per_node"].value)
    linked = machine.scale_up_kind == "fully_connected"
    library = _moved(_library(machine), figures, given or {})
    return Rates(machine.name, machine.generation, ranks, linked, values, library)


SM_BANDWIDTH = {ALL_GATHER: "gather_sm_bandwidth", REDUCE_SCATTER: "scatter_sm_bandwidth"}


# A step's labels, under which its collectives take what the machine's library takes of it.
IN_STEP: Mapping[str, str] = {
    **FACTS["in_step"],
    **{name: LABELS[name].default for name in ("latency_per", "link")},
}


def _library(machine: Machine) -> dict[str, float]:
    """Return what the library of a machine takes of it; nothing where none is known."""
    words = {"software": own_library(machine).value, "environment": IN_STEP["environment"]}
    name, constants = priced(machine, words)
    if name != IN_STEP["algorithm"]:
        return {}
    known = {figure: figure_of(machine, figure) for figure in FACTS["node"]}
    return {figure: origin.value for figure, origin in {**known, **constants}.items()}


def _moved(
    library: Mapping[str, float], figures: Mapping[str, Origin], given: Mapping[str, float]
) -> dict[str, float]:
    """Return what a library takes on links other than the machine's: its shares and costs stay."""
    values = dict(library)
    if "bandwidth" in given and library:
        values["intra_bandwidth"] *= given["bandwidth"] / figures["bandwidth"].value
    more = given.get("latency", figures["latency"].value) - figures["latency"].value
    for name, times in STEPS["intra"].items():
        if name in library and name != "sendrecv_step_latency":
            values[name] = max(library[name] + times * more, 0.0)
    return values


def _of_machine(
    machine: Machine, constants: Mapping[str, Origin], part: Origin
) -> dict[str, Origin]:
    """Return rates that long work reaches: the best by the share that is sustained."""

    def figure(name: str) -> Origin:
        return machine.figures[name].origin.of(machine.name)

    def link(name: str) -> Origin:
        best = figure(name)
        return best.derived(best.value * part.value, f"; times {part.value:g} ({part.text})")

    bandwidth = link("intra_bandwidth")
    figures = {
        "bandwidth": bandwidth,
        "latency": figure("intra_latency"),
        "launch_time": constants["matmul_min_time"],
        "activation_bytes": constants["activation_bytes"],
        "matmul_input_bytes": constants["matmul_input_bytes"],
        "communication_bytes": constants["activation_bytes"],
        "tp_gather_byte_ratio": constants["tp_gather_byte_ratio"],
        "layers": assumed(1.0, "products by themselves, none of a layer left in 16 bits"),
    }
    if "sms" in machine.figures:
        figures["sms"] = figure("sms")
    if machine.scale_up_kind == "fully_connected":
        figures["link_bandwidth"] = link("intra_link_bandwidth")
    single = figures.get("link_bandwidth", bandwidth)
    why = f"copy engines reach what rings reach; {single.text}"
    return {**figures, "copy_engine_bandwidth": assumed(single.value, why).of(machine.name)}


# The number of multiprocessors by bisection: few cases instead of all.

TOLERANCE = 1e-9
"""Times that differ by less than this share are the same: the smaller number wins."""


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


# How long a case takes: products, communication, what of both overlaps, and the whole.

Status = Literal["done", "illegal", "missing", "failed"]
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Times of a forward or a backward in seconds: numbers, or arrays of many cases."""

    gemm: Any  # While GEMMs run, and while communication does
    comm: Any
    overlap: Any  # While both do
    # Of other work within the same span, such as sums of partial results, and gaps
    other: Any = 0.0
    gemm_events: Any = 0  # How many products and transfers these are
    comm_events: Any = 0

    @property
    def e2e(self) -> Any:
        """From the first start to the last end."""
        return self.gemm + self.comm + self.other - self.overlap

    @property
    def ratio(self) -> Any:
        """Overlap by the shorter of products and communication; 0 where one is nothing."""
        return ratio_of(self.overlap, np.minimum(self.gemm, self.comm))

    def __add__(self, more: PassTimes) -> PassTimes:
        return PassTimes(
            *(getattr(self, part.name) + getattr(more, part.name) for part in fields(self))
        )

    def __sub__(self, less: PassTimes) -> PassTimes:
        return PassTimes(
            *(getattr(self, part.name) - getattr(less, part.name) for part in fields(self))
        )

    def at(self, index: Any) -> PassTimes:
        """Return the times of one of many cases."""
        return PassTimes(*(float(getattr(self, part.name)[index]) for part in fields(self)))


def ratio_of(overlap: Any, shorter: Any) -> Any:
    """Return an overlap by the shorter duration; 0 where that is nothing."""
    some = np.asarray(shorter) > 0.0
    share = np.where(some, overlap / np.where(some, shorter, 1.0), 0.0)
    # A measured overlap and its shorter duration come from one time line; only rounding is beyond.
    ratio: NDArray[np.float64] = np.minimum(share, 1.0)
    return ratio if ratio.ndim else float(ratio)


@dataclass(frozen=True, slots=True)
class CaseTimes:
    """A case with its times, or why it has none."""

    case: LayerOverlap  # The case
    status: Status  # ``done``, ``illegal``, ``missing`` (nothing was recorded), or ``failed``
    reason: str = ""  # Why it has no times, or what to know of them
    forward: PassTimes | None = None  # Its times
    backward: PassTimes | None = None
    source: str = "predicted"  # Where they come from: ``predicted`` or ``traces``
    refined: bool = False  # Whether the search over multiprocessors added it to the grid

    @property
    def done(self) -> bool:
        """Whether it has times."""
        return self.forward is not None and self.backward is not None

    @property
    def passes(self) -> tuple[PassTimes, PassTimes]:
        """Its forward and backward."""
        assert self.forward is not None
        assert self.backward is not None
        return self.forward, self.backward

    @property
    def e2e(self) -> float:
        """The linear layer's forward and backward together, in seconds."""
        forward, backward = self.passes
        return float(forward.e2e + backward.e2e)

    @property
    def layer_pass(self) -> PassTimes:
        """The pass in which the case's phase is."""
        return self.passes[self.case.phase != "fprop"]

    @property
    def total_ratio(self) -> float:
        """Overlap of both passes by their shorter durations."""
        forward, backward = self.passes
        shorter = min(forward.gemm, forward.comm) + min(backward.gemm, backward.comm)
        return float(ratio_of(forward.overlap + backward.overlap, shorter))

    def record(self) -> dict[str, Any]:
        """Return it as the report has it: times in microseconds, None where there are none."""
        case = self.case
        bulk = case.method in {"bulk", "pipeline"}
        report: dict[str, Any] = {
            "config_id": case.config_id,
            "operator": case.operator,
            "phase": case.phase,
            "tp_size": case.tp_size,
            "overlap_method": case.method,
            "aggregate": case.aggregate if case.method == "ring_exchange" else None,
            "num_sm": case.num_sm if bulk else None,
            "status": self.status,
            "reason": self.reason,
            "source": self.source if self.done else None,
            "refined": self.refined,
        }
        return report | dict(self._figures())

    def _figures(self) -> Iterator[tuple[str, Any]]:
        for name, part in (("forward", self.forward), ("backward", self.backward)):
            for what in ("gemm", "comm", "overlap", "other"):
                yield f"{name}_{what}_time_us", part and _micro(getattr(part, what))
            yield f"{name}_overlap_ratio", part and float(part.ratio)
            yield f"{name}_e2e_time_us", part and _micro(part.e2e)
        known = self.done
        yield "operator_e2e_time_us", _micro(self.e2e) if known else None
        yield "total_overlap_ratio", self.total_ratio if known else None
        for name in ("gemm", "comm"):
            events = [getattr(part, f"{name}_events") for part in self.passes] if known else None
            yield f"num_{name}_events", events and int(sum(events))


def _micro(seconds: Any) -> float:
    return round(float(seconds) * _MICRO, 6)


Floats = NDArray[np.float64]
SPLITS = 4
"""Parts of a pipelined reduce_scatter: Transformer Engine's default."""
# What formulas take of a machine.
TAKEN = (*TILED, *USERBUFFERS, *FACTS["taken"])
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
