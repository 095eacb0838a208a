"""A prepared question gives what `sweeps.sweep` gives of each point, to the last bit."""

from __future__ import annotations

import itertools
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import sweeps
from overhead.formula import REGISTRY, formula
from overhead.quantity import VOCABULARY, define
from sweeps.errors import InputError
from sweeps.prepared import Prepared
from sweeps.site.guide import guide_pages
from sweeps.site.markdown import blocks
from sweeps.spec.axis import Axis
from sweeps.spec.watched import unwatched, watched
from tests.tables import examples

QUANTITIES = tuple(
    "step_time peak_memory mfu tokens_per_second bubble_fraction step_energy".split()
)
STEP = {"gpus": 512, "global_batch_size": 1024, "sequence_length": 8192}
H100 = {"hardware": "dgx-h100", **STEP}
SMALL = ("time", "busbw")


def same(found: Any, wanted: Any) -> bool:
    """Return whether numbers have the same bits; what doesn't exist is the same as well."""
    left, right = (np.array(array, np.float64).reshape(-1) for array in (found, wanted))
    both = np.isnan(left) & np.isnan(right)
    return bool(np.all(both | (left.view(np.int64) == right.view(np.int64))))


def swept(names: Any, given: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return a sweep, or why there is none."""
    try:
        return sweeps.sweep(list(names), **given), ()
    except InputError as error:
        return None, error.faults


def compare(given: dict[str, Any], points: list[dict[str, Any]], names: Any = QUANTITIES) -> int:
    """Compare points with sweeps of them, alone and as arrays; return how many have a value."""
    model, answers = sweeps.prepare(list(names), **given), []
    for point in points:
        wanted, faults = swept(names, {**given, **point})
        if faults:
            with pytest.raises(InputError) as told:
                model(**point)
            assert told.value.faults == faults
            continue
        # The first answer of a program is of arrays, later ones are of recorded numbers.
        first, found = model(**point), model(**point)
        for name in (*names, "status"):
            assert same(first[name], wanted[name]), (name, given, point)
            assert same(found[name], wanted[name]), (name, given, point)
        assert found.reasons == sweeps.reasons(wanted).to_numpy().reshape(-1)[0]
        answers.append((point, found))
    if answers:
        columns = {name: [point[name] for point, _ in answers] for name in points[0]}
        every = model(**columns)
        for name in (*names, "status"):
            assert same(every[name], [answer[name] for _, answer in answers]), (name, given)
    return sum(not np.isnan(answer[names[0]]) for _, answer in answers)


def points_of(number: int, seed: int, **values: list[float]) -> list[dict[str, float]]:
    """Return points with a value of each list."""
    generator = random.Random(seed)
    return [
        {name: generator.choice(value) for name, value in values.items()} for _ in range(number)
    ]


@pytest.mark.parametrize("given", examples(__file__, "collectives_have_the_same_bits"))
def test_collectives_have_the_same_bits(given: dict[str, Any]) -> None:
    points = points_of(8, 3, ranks=[1, 2, 8, 12, 64, 256], message_bytes=[0.0, 8.0, 1e6, 3e9])
    assert compare({"collective": "all_reduce", **given}, points, SMALL)


def test_a_latency_at_which_nothing_takes_time() -> None:
    given = {"topology": "ring", "software": "none", "bandwidth": 50e9, "hardware": "dgx-h100"}
    points = points_of(8, 1, ranks=[2, 4], latency=[0.0, 1e-6], message_bytes=[0.0, 1e6])
    compare(given, points, ("time", "algbw"))


CASES: list[dict[str, Any]] = examples(__file__, "cases")
PLAN: dict[str, list[float]] = dict(
    tp=[1, 2, 4, 8], pp=[1, 2, 4], cp=[1, 2], ep=[1, 8], micro_batch=[1, 2, 3]
)


@pytest.mark.thorough
@pytest.mark.parametrize("given", CASES)
def test_many_steps_have_the_same_bits(given: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compare(given, points_of(16, 6, **PLAN))


@pytest.mark.thorough
@pytest.mark.parametrize("given", [CASES[0], CASES[3], CASES[4], CASES[5]])
def test_what_the_completion_looks_at_has_the_same_bits(given: dict[str, Any]) -> None:
    # Virtual stages choose a schedule, GPUs a domain or a torus, and layers and ranks have limits.
    own = {name: value for name, value in given.items() if name not in ("gpus", "schedule")}
    further: dict[str, list[float]] = {
        "vpp": [1, 2, 4],
        "gpus": [64, 512, 1152],
        "recompute_layers": [0, 4, 30, 200],
        "lora_rank": [0, 16],
        "intra_latency": [1e-6, 2e-6],
        "tp_overlap": [0.0, 0.5],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(4):
            some = random.Random(seed).sample(sorted(further), 3)
            sizes = {**PLAN, **{name: further[name] for name in some}}
            compare(own, points_of(6, seed, **({"gpus": [512]} | sizes)))


@pytest.fixture(scope="module")
def model() -> Prepared:
    return sweeps.prepare(["step_time", "peak_memory"], model="llama3-8b", **H100)


def test_arrays_broadcast(model: Prepared) -> None:
    found = model(tp=np.array([[1], [2], [4]]), pp=[1, 2], micro_batch=1)
    assert found.step_time.shape == found.reasons.shape == (3, 2)
    grid = model.dataset(tp=[1, 2, 4], pp=[1, 2], micro_batch=1)
    assert same(found.step_time, grid.step_time.transpose("tp", "pp"))
    assert grid.step_time.attrs["units"] == "s"
    assert found["step_time"][1, 1] == model(tp=2, pp=2, micro_batch=1).step_time
    assert set(dict(found)) == {"step_time", "peak_memory", "status"}


def test_what_is_asked_for_and_given_is_there() -> None:
    found = sweeps.prepare(["time", "ranks", "bandwidth"], topology="ring", bandwidth=1e9)
    answer = found(ranks=4, message_bytes=1e6)
    assert (answer.ranks, answer.bandwidth) == (4.0, 1e9)


def test_holes_have_reasons(model: Prepared) -> None:
    found = model(tp=3, pp=1)
    assert np.isnan(found.step_time)
    assert "heads not divisible" in found.reasons
    assert model(tp=[3, 1], pp=1).reasons.tolist() == [found.reasons, ""]
    assert "status" in repr(found)
    with pytest.raises(AttributeError, match="no quantity 'mfu' was asked for"):
        _ = found.mfu


@pytest.mark.parametrize(
    ("values", "line"),
    examples(__file__, "refusals"),
)
def test_refusals(model: Prepared, values: dict[str, Any], line: str) -> None:
    model(tp=1)
    with pytest.raises(InputError) as told:
        model(**values)
    assert told.value.faults == (line,)


def test_a_number_beyond_floating_point_is_refused(model: Prepared) -> None:
    with pytest.raises(InputError, match="is too large for a 64-bit number"):
        model(tp=10**400)


def test_unknown_names_are_refused_at_once(model: Prepared) -> None:
    with pytest.raises(InputError, match=r"tensor = '..': no such quantity"):
        model(tensor=8)
    with pytest.raises(InputError, match="modl = '3': no such quantity; did you mean 'model'"):
        sweeps.prepare("step_time", modl=3)
    with pytest.raises(InputError, match="has several values"):
        sweeps.prepare("step_time", model="llama3-8b", tp=[1, 2])


@pytest.mark.thorough
def test_it_can_be_pickled_and_called_by_threads(model: Prepared) -> None:
    document = pickle.loads(pickle.dumps(model))
    plans = [(tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2)] * 8
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda plan: document(tp=plan[0], pp=plan[1]).step_time, plans))
    assert found == [model(tp=tp, pp=pp).step_time for tp, pp in plans]


def test_what_changes_nothing_is_told_once() -> None:
    found = sweeps.prepare("step_time", model="llama3-8b", **H100, gpu_hour_price=3.0)
    with pytest.warns(UserWarning, match="gpu_hour_price"):
        found(tp=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found(tp=4)


@pytest.fixture
def own() -> Iterator[None]:
    define("slow_time", "T_s", "s", "time of what is slow", minimum=0)

    def slower(time, ranks):  # type: ignore[no-untyped-def]
        """Time of what looks at its values, which no expression states."""
        return time * 2.0 if np.any(ranks > 8.0) else time + 1.0 / ranks

    formula(returns="slow_time", source="derivation", expression="time", name="own_slower")(slower)
    yield
    REGISTRY.remove(REGISTRY["own_slower"])
    del VOCABULARY._found["slow_time"]


@pytest.mark.usefixtures("own")
def test_own_formulas_are_called_as_they_are() -> None:
    given = {"topology": "ring", "bandwidth": 1e9, "latency": 1e-6}
    points = points_of(6, 2, ranks=[2, 8, 12], message_bytes=[1e3, 1e6])
    model = sweeps.prepare(["slow_time"], **given)
    for point in points:
        wanted = sweeps.sweep(["slow_time"], **given, **point)
        assert same(model(**point).slow_time, wanted.slow_time)


@pytest.mark.thorough
def test_the_example_of_the_guide_finds_the_best_plan() -> None:
    # The search of the guide's page, beside a sweep of all that it goes through.
    page = next(page for page in guide_pages() if page.name == "python")
    code = next(
        block
        for block in blocks(page.text)
        if "sweeps.prepare(" in "".join(block.lines) and block.kind == "code"
    )
    names: dict[str, Any] = {}
    exec("\n".join(code.lines), names)
    sizes = {"tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8], "cp": [1, 2, 4], "micro_batch": [1, 2, 4]}
    dataset = names["model"].dataset(**sizes)
    fits = (dataset.status == 0) & (dataset.peak_memory < 70e9)
    fastest = dataset.step_time.where(fits).min().item()
    assert names["cost"](names["best"]) == fastest
    assert "heads not divisible" in names["why"]


LOOKS: list[Callable[[Any], Any]] = [
    lambda one: one > 0.0,
    lambda one: np.any(one == 1.0),
    np.asarray,
    lambda one: one[0],
    list,
    lambda one: np.where(one > 1.0, one, 0.0),
    lambda one: one.tolist(),
    lambda one: 1.0 * one,
    lambda one: np.stack([one, one]),
    bool,
    lambda one: one.reshape((1, 1)),
]


@pytest.mark.parametrize("look", LOOKS)
def test_columns_note_that_they_are_looked_at(look: Callable[[Any], Any]) -> None:
    seen: set[str] = set()
    columns = {"tp": np.array([8.0]), "pp": np.array([4.0])}
    axis = watched(Axis("point", columns), seen)
    assert (len(axis), axis.columns["tp"].dtype.kind, axis.columns["tp"].shape) == (1, "f", (1,))
    longer = Axis("point", {**axis.columns, "cp": axis.columns["tp"]})
    (plain,), passed = unwatched([longer])
    assert passed == {"tp": "tp", "pp": "pp", "cp": "tp"}
    assert plain.columns["cp"] is columns["tp"]
    assert seen == set()
    look(axis.columns["pp"])
    assert seen == {"pp"}


# Operations of numbers, beside numpy's on arrays.

SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e300, 5e-324, 3.0, 0.1, 7.0)


def test_operations_are_those_of_arrays() -> None:
    from sweeps.engine.scalar import (
        COMPARED,
        NUMBER,
        OF_NUMBERS,
        TRUTH,
        Recorder,
        recording,
        written,
    )

    functions = [*OF_NUMBERS, *COMPARED, np.power, np.logical_and, np.logical_or]
    draws = np.exp(np.random.default_rng(1).normal(0.0, 20.0, (500, 2)))
    pairs = [*itertools.product(SPECIAL, SPECIAL), *map(tuple, draws)]
    for function in functions:
        recorder = Recorder({0: "a", 1: "b"}, {})
        one, other = recorder._known[0], recorder._known[1]
        with recording():
            actual = function(*(one, other)[: function.nin])
        kept = [recorder.tape.of(actual, actual.kind)]
        assert actual.kind in (NUMBER, TRUTH)
        evaluated = written(recorder.tape, ["a", "b"], [], ["{0}"], kept)
        with np.errstate(all="ignore"):
            for a, b in pairs:
                arrays = (np.array([a]), np.array([b]))[: function.nin]
                result = evaluated(float(a), float(b))
                assert result is not None
                assert same(result[0], function(*arrays)), (function, a, b)
