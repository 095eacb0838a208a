"""Extremes and fronts by bounds are those of computing everything: values, places, ties, holes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from overhead import choose
from overhead.recording import RecordingError, recording
from sweeps.engine import bounds, interval, reduce
from sweeps.engine.evaluate import Limits
from sweeps.engine.reduce import feed
from sweeps.errors import InputError
from sweeps.job import Job, prepare
from tests.cli_runner import Runner
from tests.strategies import drawing
from tests.tables import examples, keyed

# Discrete choices, and continuous quantities with their ends, of a step and of an operation.
CHOSEN: dict[str, list[Any]] = examples(__file__, "chosen")
RUNS: dict[str, tuple[float, float]] = examples(__file__, "runs")
STEP = keyed(
    "model=llama3-8b hardware=dgx-h100 world_size=64 global_batch_size=128 sequence_length=4096 "
    "zero_stage=1"
)
ASKED = ("step_time", "peak_memory", "cost", "mfu", "tokens_per_second", "communication_volume")
# The second of a pair varies along no dimension along which the first doesn't.
PAIRS = examples(__file__, "pairs")
PAIRS_ALONE = [("time", "algbw"), ("algbw", "time")]
WHERE = [
    "peak_memory <= 0.7*memory_capacity",
    "step_time <= 5 s and peak_memory > 20 GB",
    "peak_memory*tp <= 150e9",
]
WHERE_ALONE = [
    "message_bytes >= 1 MB",
    "time <= 1 ms",
    "time*ranks > 1e-3 and message_bytes < 100 MB",
]
CHOSEN_ALONE: dict[str, list[Any]] = {
    "topology": ["ring", "hierarchical", "switch"],
    "ranks": [4, 8, 12, 16, 32],
    "collective": ["all_reduce", "all_gather", "all_to_all"],
    "algorithm": ["standard", "auto"],
    "software": ["none", "nccl"],
    "gpus_per_node": [4, 8],
}
RUNS_ALONE: dict[str, tuple[float, float]] = {
    "message_bytes": (1e3, 1e9),
    "intra_bandwidth": (5e10, 9e11),
    "inter_bandwidth": (5e9, 1e11),
    "inter_latency": (0.0, 5e-5),
    "intra_latency": (0.0, 5e-6),
    "oversubscription": (1.0, 4.0),
}
ALONE = {"topology": "hierarchical", "ranks": 16, "message_bytes": 1e6, "hardware": "dgx-h100"}


def drawn(rng: np.random.Generator, longest: int, count: int) -> dict[str, Any]:
    """Return a random sweep with some reductions."""
    alone = rng.random() < 0.4
    chosen, runs = (CHOSEN_ALONE, RUNS_ALONE) if alone else (CHOSEN, RUNS)
    axes: dict[str, Any] = {}
    for name in rng.permutation(sorted(chosen))[: rng.integers(1, 5)].tolist():
        own = chosen[name]
        axes[name] = [one for one in own if rng.random() < 0.7] or own[:1]
    for name in rng.permutation(sorted(runs))[: rng.integers(1, 4)].tolist():
        low, high = runs[name]
        length = int(rng.integers(2, longest))
        values = (
            np.linspace(low, high, length)
            if rng.random() < 0.7
            else np.sort(rng.uniform(low, high, length))
        )
        axes[name] = np.unique(values).tolist()
    constants = {n: v for n, v in (ALONE if alone else STEP).items() if n not in axes}
    if not alone:
        constants |= (
            {"training_tokens": 1e12, "gpu_hour_price": 3.0}
            if "gpu_hour_price" not in axes
            else {"training_tokens": 1e12}
        )
    several = [_reduction(rng, axes, number, alone=alone) for number in range(count)]
    return dict(title="drawn", quantities=[], axes=axes, constants=constants, reductions=several)


def _reduction(
    rng: np.random.Generator, axes: dict[str, Any], number: int, *, alone: bool
) -> dict[str, Any]:
    asked = ["time", "algbw", "energy"] if alone else list(ASKED)
    names = [name for name in axes if rng.random() < 0.85] or list(axes)
    if rng.random() < 0.3:
        # Along continuous axes results lie.
        names = [name for name in axes if name in (CHOSEN_ALONE if alone else CHOSEN)]
    operation = str(rng.choice(["min", "max", "top", "pareto"]))
    pairs = PAIRS_ALONE if alone else PAIRS
    quantity, against = pairs[int(rng.integers(len(pairs)))]
    quantity = quantity if operation == "pareto" else str(rng.choice(asked))
    reduction: dict[str, Any] = dict(
        quantity=quantity, operation=operation, over=names, name=f"r{number}"
    )
    if operation == "top":
        reduction["count"] = int(rng.integers(1, 12))
    if operation == "pareto":
        reduction["against"] = against
        reduction["greatest"] = [one for one in (quantity, against) if rng.random() < 0.4]
    if rng.random() < 0.4:
        reduction["where"] = str(rng.choice(WHERE_ALONE if alone else WHERE))
    return reduction


def both(job: Job) -> list[bounds.Touched]:
    """Reduce by bounds and by computing everything, and compare."""
    try:
        whole = job.reducers()
    except InputError:
        # A condition that varies along more than the quantity is refused.
        plain = tuple(reduction for reduction in job.sweep.reductions if not reduction.where)
        job = replace(job, sweep=replace(job.sweep, reductions=plain))
        whole = job.reducers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "WORTH", np.inf)
        assert feed(job.program, whole) == ()
    found = []
    for one in whole:
        other = type(one)(one.task)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bounds, "KEPT_LEAST", 2)
            touched = bounds.reduce(job.program, [other], np.inf)
        if touched is None:
            continue
        found += touched
        one_state, other_state = one.state(), other.state()
        assert one_state.keys() == other_state.keys()
        for name, values in one_state.items():
            assert np.array_equal(values, other_state[name], equal_nan=True), (one.task.name, name)
    return found


# Each sweep has eight reductions; `HYPOTHESIS_PROFILE=deep` draws 200 sweeps, others each time.
@pytest.mark.thorough
@drawing(share=0.4, least=8)
def test_random_sweeps_have_what_computing_everything_finds(rng: np.random.Generator) -> None:
    with contextlib.suppress(InputError):
        both(prepare(drawn(rng, 9, 8)))


def test_no_result_of_numbers_between_bounds_lies_beyond_those_of_the_interval() -> None:
    rng = np.random.default_rng(17)
    special = np.array([0.0, 1.0, 2.0, 3.0, 0.5, 1e-300, 1e300, np.inf, -1.0, -2.5])
    for ufunc, rule in interval.RULES.items():
        truths = ufunc in (np.invert, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
        ends = rng.choice(special, (ufunc.nin, 2, 400)) * rng.choice([1.0, rng.random()], 400)
        if truths:
            ends = rng.random(ends.shape) < 0.5
        ends.sort(axis=1)
        given = [interval.Interval(low, high) for low, high in ends]
        try:
            with np.errstate(all="ignore"):
                found = rule(*given)
        except RecordingError:
            assert ufunc is np.power  # of what may be negative
            continue
        for _ in range(24):
            share = rng.choice([0.0, 1.0, rng.random()], (ufunc.nin, 400))
            with np.errstate(all="ignore"):
                points = []
                for at, (low, high) in zip(share, ends, strict=True):
                    between = high if truths else np.clip(low + at * (high - low), low, high)
                    found_at = np.where(at < 0.5 if truths else np.isnan(between), low, between)
                    points.append(np.where(at < 1.0, found_at, high))
                values = ufunc(*points)
            none = np.isnan(values) if values.dtype.kind == "f" else np.zeros(400, dtype=bool)
            within = (found.low <= values) & (values <= found.high)
            assert np.all(within | none), ufunc
            assert not none.any() or (found.nan is not None and np.all(found.nan[none])), ufunc


Values = list[Any]
ONE = (np.negative, np.absolute, np.square, np.floor, np.ceil, np.sqrt, np.exp, np.log2)
TWO = (np.add, np.subtract, np.multiply, np.minimum, np.maximum, np.fmin, np.fmax, np.remainder)
COMPARED = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)


def number_of(rng: np.random.Generator, depth: int, count: int) -> Callable[[Values], Any]:
    """Return a random expression of so many inputs."""
    if depth == 0 or rng.random() < 0.1:
        at = int(rng.integers(count))
        return lambda values: values[at]
    kind, several = rng.random(), [number_of(rng, depth - 1, count) for _ in range(4)]
    one, two, three, four = several
    if kind < 0.2:
        alone = ONE[rng.integers(len(ONE))]
        return lambda values: alone(one(values))
    if kind < 0.5:
        pair = TWO[rng.integers(len(TWO))]
        return lambda values: pair(one(values), two(values))
    if kind < 0.6:
        # Noughts without a sign: of -0.0 below a fraction line bounds know nothing.
        return lambda values: one(values) / (two(values) + 0.0)
    if kind < 0.8:
        result = truth_of(rng, depth - 1, count)
        return lambda values: np.where(result(values), one(values), two(values))
    best = lambda values: _run(choose.best_of, one(values), two(values))  # noqa: E731
    if kind < 0.9:
        return lambda values: best(values)[0]
    return lambda values: _run(choose.select, best(values), three(values), four(values))


def truth_of(rng: np.random.Generator, depth: int, count: int) -> Callable[[Values], Any]:
    """Return a random condition."""
    kind = rng.random()
    if depth <= 0 or kind < 0.6:
        compare = COMPARED[rng.integers(len(COMPARED))]
        one, two = (number_of(rng, max(depth - 1, 0), count) for _ in range(2))
        return lambda values: compare(one(values), two(values))
    if kind < 0.75:
        missing, asked = number_of(rng, depth - 1, count), rng.choice([np.isnan, np.isfinite])
        return lambda values: asked(missing(values))
    yes, other = (truth_of(rng, depth - 1, count) for _ in range(2))
    if kind < 0.85:
        return lambda values: ~np.asarray(yes(values))
    return lambda values: yes(values) | other(values)


def reasons_of(rng: np.random.Generator, depth: int, count: int) -> Callable[[Values], Any]:
    """Return random sets of bits."""
    none, bit = np.zeros(1, dtype=np.int64), 1 << int(rng.integers(4))
    if depth == 0 or rng.random() < 0.3:
        result = truth_of(rng, 2, count)
        return lambda values: np.where(result(values), none, none + bit)
    one, two = (reasons_of(rng, depth - 1, count) for _ in range(2))
    if rng.random() < 0.4:
        return lambda values: one(values) | two(values)
    if rng.random() < 0.4:
        return lambda values: choose.all_of(one(values), two(values))
    chosen = truth_of(rng, 1, count)
    return lambda values: np.where(chosen(values), one(values), two(values))


def _run(function: Any, *values: Any) -> Any:
    """Run what bounds run, and kernels."""
    bounded = any(map(bounds.is_bounded, values))
    return (bounds.INSTEAD[function] if bounded else function)(
        *(value if isinstance(value, tuple) else np.asarray(value) for value in values)
    )


@pytest.mark.thorough
@drawing(share=4.0, least=200)
def test_random_expressions_lie_within_their_bounds(rng: np.random.Generator) -> None:
    size, count = 32, int(rng.integers(2, 5))
    special = np.array([0.0, 1.0, 2.0, 0.5, 1e-300, 1e300, np.inf, -np.inf, -1.0, -2.5, 7.0])
    ends = np.sort(
        np.where(
            rng.random((count, 2, size)) < 0.4,
            rng.choice(special, (count, 2, size)),
            rng.uniform(-2.0, 8.0, (count, 2, size)),
        ),
        axis=1,
    )
    plain = rng.random(count) < 0.4
    ends[plain, 1] = ends[plain, 0]
    ends[plain] = np.where(rng.random(size) < 0.1, np.nan, ends[plain])
    given = [e[0] if one else interval.Interval(*e) for e, one in zip(ends, plain, strict=True)]
    bits = rng.random() < 0.3
    asked = (reasons_of if bits else number_of)(rng, 2 if bits else 4, count)
    with np.errstate(all="ignore"):
        with recording():
            actual = interval.of(asked(given))
        for _ in range(8):
            share = rng.choice([0.0, 0.5, 1.0, rng.random()], (count, size))
            between = np.clip(ends[:, 0] + share * (ends[:, 1] - ends[:, 0]), *ends.swapaxes(0, 1))
            points = np.where(np.isnan(between) | (share == 1.0), ends[:, 1], between)
            value = np.asarray(
                asked([end[0] if p else v for end, p, v in zip(ends, plain, points, strict=True)])
            )
            if bits:
                assert not np.any((actual.low & ~value) | (value & ~actual.high))
                continue
            none = np.isnan(value)
            assert np.all(none | ((actual.low <= value) & (value <= actual.high)))
            assert not none.any() or np.all(np.broadcast_to(actual.nan, none.shape)[none])


@pytest.mark.thorough
def test_what_a_run_leaves_out_is_told_and_nothing_else_changes() -> None:
    axes = {
        "tp": [1, 2, 3],
        "micro_batch_size": [1, 2],
        "gpu_hour_price": np.linspace(1.0, 9.0, 40).tolist(),
        "inter_bandwidth": np.linspace(1e10, 8e10, 40).tolist(),
    }
    statement = {
        "title": "least cost",
        "quantities": [],
        "axes": axes,
        "constants": {**STEP, "training_tokens": 1e12},
        "reductions": [
            {"quantity": "cost", "operation": "top", "count": 3, "over": list(axes), "name": "c"}
        ],
    }
    job, same = prepare(statement), prepare(statement)
    with pytest.MonkeyPatch.context() as patch:
        _long(patch)
        dataset = job.dataset()
    everything = same.dataset()
    (touched,) = job.touched
    assert not same.touched
    assert (touched.total, touched.cells < 200) == (9600, True)
    assert touched.words.startswith(f"c: {touched.cells} of 9,600 cells were computed")
    assert np.isfinite(dataset["c"].values).all()
    for name in ("c", "c_gpu_hour_price", "c_inter_bandwidth", "c_tp"):
        assert np.array_equal(dataset[name].values, everything[name].values, equal_nan=True), name


def test_a_run_s_report_says_how_many_cells_were_computed_of_how_many(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spec = tmp_path / "few.toml"
    spec.write_text(
        "quantities = []\n[constants]\nranks = 16\ntopology = 'ring'\n[axes]\n"
        "message_bytes = '1MB:9MB:lin50'\nlatency = '1us:9us:lin50'\n[[reductions]]\n"
        "quantity = 'time'\noperation = 'min'\nname = 'least'\nwhere = 'time >= 300 us'\n"
        "over = ['message_bytes', 'latency']\n",
        encoding="utf-8",
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WORTH", 0.0), ("SHARE", np.inf), ("TRIAL", np.inf)):
            patch.setattr(bounds, name, value)
        line = f"run {spec} --output {tmp_path / 'few.nc'}"
        output = " ".join(Runner(capsys)(line).out.split())
    assert " of 2,500 cells were computed; bounds of " in output


def _long(patch: pytest.MonkeyPatch) -> None:
    """Have sweeps pass for long ones, so that bounds are tried."""
    tried = reduce.reduce_some
    patch.setattr(reduce, "reduce_some", lambda program, left, _: tried(program, left, 1e9))


@pytest.mark.thorough
def test_what_is_computed_to_see_how_long_it_takes_counts_once() -> None:
    axes = {
        "tp": [1, 2, 3],
        "pp": [1, 2],
        "micro_batch_size": [1, 2],
        "gpu_hour_price": [1.0, 3.0, 4.0],
        "inter_bandwidth": np.linspace(1e10, 8e10, 40).tolist(),
    }
    over = {"over": list(axes), "operation": "min"}
    statement = {
        "title": "two",
        "quantities": [],
        "axes": axes,
        "constants": {**STEP, "training_tokens": 1e12},
        "reductions": [
            {**over, "quantity": "cost", "name": "c"},
            {**over, "quantity": "step_time", "operation": "mean", "name": "s"},
        ],
    }
    job = prepare(statement)
    limits = Limits(block=24, whole=24)
    whole, reducers, parts = job.reducers(), job.reducers(), job.reducers()
    assert not feed(job.program, whole)
    # Nothing is left out, with a few steps computed before the others.
    assert not feed(job.program, parts, limits)
    with pytest.MonkeyPatch.context() as patch:
        _long(patch)
        (touched,) = feed(job.program, reducers, limits)
    assert touched.name == "c"
    for one, two, three in zip(whole, reducers, parts, strict=True):
        for name, values in one.state().items():
            assert np.array_equal(values, two.state()[name]), name
            assert np.array_equal(values, three.state()[name]), name


def test_what_bounds_can_t_leave_out_is_given_up_early() -> None:
    # Of a kept axis each point is a result of its own: all of them have to be looked at.
    job = prepare(
        {
            "title": "kept",
            "quantities": [],
            "axes": {"tp": [1, 2], "gpu_hour_price": [1.0, 2.0, 3.0]},
            "constants": {**STEP, "training_tokens": 1e12},
            "reductions": [{"quantity": "cost", "operation": "min", "over": ["tp"], "name": "c"}],
        }
    )
    assert bounds.reduce(job.program, job.reducers(), np.inf) is None
    budget = bounds.Budget(1e-9, 10)
    with pytest.raises(bounds.Abandoned):
        budget.spent(5, 10)


def test_cells_count_where_a_condition_holds_in_every_reduction() -> None:
    axes = {"tp": [1, 2, 4], "micro_batch_size": [1, 2, 4], "gpu_hour_price": [1.0, 2.0, 4.0]}
    reductions = [
        {
            "quantity": "cost",
            "operation": operation,
            "name": operation,
            "over": ["tp", "micro_batch_size"],
            "where": "peak_memory <= 40 GB and cost < 700 USD",
        }
        for operation in ("min", "max", "mean")
    ]
    statement = {
        "title": "where",
        "quantities": ["cost", "peak_memory"],
        "axes": axes,
        "constants": {**STEP, "training_tokens": 1e10},
        "reductions": reductions,
    }
    dataset = prepare(statement).dataset()
    cost, memory = xr.broadcast(dataset.cost, dataset.peak_memory)
    chosen = cost.where((memory <= 40e9) & (cost < 700.0))
    assert 0 < int(chosen.notnull().sum()) < int(cost.notnull().sum())
    for name in ("min", "max"):
        wanted = getattr(chosen, name)(("tp", "micro_batch_size"))
        assert np.array_equal(dataset[name].values, wanted.values, equal_nan=True)
    wanted = chosen.mean(("tp", "micro_batch_size")).values
    assert np.allclose(dataset["mean"].values, wanted, rtol=1e-14, equal_nan=True)
    where = "where peak_memory <= 40 GB and cost < 700 USD"
    assert dataset["min"].attrs["long_name"].endswith(where)


@pytest.mark.parametrize(("where", "why"), examples(__file__, "refused_conditions"))
def test_conditions_on_what_isn_t_there_are_refused(where: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        prepare(
            {
                "title": "where",
                "quantities": [],
                "axes": {"tp": [1, 2], "gpu_hour_price": [1.0, 2.0]},
                "constants": {**STEP, "training_tokens": 1e10},
                "reductions": [
                    {"quantity": "step_time", "operation": "min", "over": ["tp"], "where": where}
                ],
            }
        ).reducers()


def test_a_reduction_of_what_a_model_gives_is_refused() -> None:
    statement = {"title": "layers", "quantities": [], "axes": {"tp": [1, 2]}, "constants": STEP}
    for asked in (
        {"quantity": "layers", "operation": "min"},
        {"quantity": "step_time", "operation": "pareto", "against": "layers"},
    ):
        with pytest.raises(InputError, match="'layers': is given here, not computed"):
            prepare({**statement, "reductions": [{**asked, "over": ["tp"]}]})
