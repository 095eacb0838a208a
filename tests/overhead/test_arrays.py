"""Other libraries' arrays: the same numbers, in whatever namespace kernels compute."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from types import ModuleType
from typing import Any

import array_api_strict
import numpy as np
import pytest

import sweeps
from overhead import build_topology, collective
from overhead.arrays import NAMESPACES, in_numpy, namespace_of, select, using, xp
from overhead.evaluation import derive
from overhead.everything import algorithms, formulas
from overhead.labels import COLLECTIVES
from sweeps.engine.evaluate import limits_of
from sweeps.engine.program import Program
from sweeps.errors import InputError
from sweeps.job import prepare
from tests.strategies import quantities
from tests.tables import examples, keyed

TOPOLOGIES = ("ring", "switch", "tree", "hierarchical", "mesh", "torus")
MESSAGES = np.array([[1024.0], [2.0**20], [2.0**30]])


def library(name: str) -> ModuleType:
    """Return a library's namespace; a test is skipped where the library isn't installed."""
    if name == "strict":
        return array_api_strict
    module = pytest.importorskip(name, reason=f"{name} isn't installed")
    if name == "cupy" and not module.cuda.is_available():
        pytest.skip("there is no GPU here")
    return importlib.import_module(NAMESPACES[name])


def made(namespace: ModuleType, value: Any) -> Any:
    with using(namespace):
        return xp.asarray(value)


def test_a_thread_s_arrays_are_its_own_and_numpy_s_come_back() -> None:
    numpy_s = xp.sqrt
    with ThreadPoolExecutor(1) as other, using(array_api_strict):
        strict = xp.sqrt
        assert other.submit(lambda: xp.sqrt).result() is numpy_s is np.sqrt
        assert xp.sqrt is strict is not numpy_s
        with pytest.raises(ZeroDivisionError), using(array_api_strict):
            _ = 1 / 0
        assert xp.sqrt is strict
    assert xp.sqrt is np.sqrt


LIBRARIES = pytest.mark.parametrize("name", ["strict", "jax", "torch", "cupy"])


@pytest.mark.thorough_cases(every=3)
@LIBRARIES
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_collectives(topology: str, name: str) -> None:
    namespace, network = library(name), build_topology(topology, 16)
    kind = type(made(namespace, 1.0))
    compared = 0
    for operation in COLLECTIVES:
        for how in ({"software": "nccl"}, {"algorithm": "auto", "software": "none"}):
            try:
                plain = collective(operation, MESSAGES, network, **how)
            except ValueError:
                continue  # A network without such an algorithm
            cost = collective(operation, made(namespace, MESSAGES), network, **how)
            assert isinstance(cost.latency_s, kind)
            assert (cost.algorithm == plain.algorithm).all()
            for field in fields(plain):
                if field.name != "algorithm":
                    value = in_numpy(getattr(cost, field.name))
                    wanted = getattr(plain, field.name)
                    np.testing.assert_allclose(value, wanted, rtol=1e-12, err_msg=field.name)
                    compared += 1
    assert compared >= 5 * 13


# Of JAX some: each operation is compiled once for each shape.
SHARES = {"strict": 1, "torch": 1, "jax": 40, "cupy": 1}


@pytest.mark.thorough
@LIBRARIES
def test_every_formula(name: str) -> None:
    namespace, kind = library(name), type(made(library(name), 1.0))
    own = formulas()[:: SHARES[name]]
    assert len(own) * SHARES[name] > 1200
    for formula in own:
        columns = quantities(formula.inputs, np.random.default_rng(3))
        plain = formula.kernel(*columns.values())
        with using(namespace):
            actual = formula.kernel(*map(xp.asarray, columns.values()))
        assert isinstance(actual, kind), formula.name
        np.testing.assert_allclose(in_numpy(actual), plain, rtol=1e-12, err_msg=formula.name)


SWEEPS: dict[str, dict[str, Any]] = examples(__file__, "sweeps")


@pytest.mark.thorough_cases("steps", "mixture")
@pytest.mark.parametrize("case", SWEEPS)
def test_sweeps_by_the_standard(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMESPACES, "strict", "array_api_strict")
    same(case, "strict")


# Starting JAX's operations, each compiled once, takes seconds.
@pytest.mark.parametrize(
    ("case", "name"),
    [
        *((case, name) for case in SWEEPS for name in ("torch", "cupy")),
        ("a choice among algorithms", "jax"),
    ],
)
def test_sweeps_by_other_libraries(case: str, name: str) -> None:
    library(name)
    same(case, name)


def same(case: str, name: str) -> None:
    plain, dataset = sweeps.sweep(**SWEEPS[case]), sweeps.sweep(**SWEEPS[case], array=name)
    assert set(dataset.data_vars) == set(plain.data_vars)
    for variable, values in plain.data_vars.items():
        assert dataset[variable].dims == values.dims
        np.testing.assert_allclose(dataset[variable], values, rtol=1e-12, err_msg=str(variable))


def test_a_sweep_computes_with_the_arrays_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NAMESPACES, "strict", "array_api_strict")
    seen: list[type] = []
    job = prepare(
        {
            "title": "t",
            "axes": {"ranks": [4, 8]},
            "constants": keyed("topology=ring message_bytes=1e6 latency=1e-6 bandwidth=1e9"),
        }
    )
    program: Program = job.program
    program.limits = limits_of("strict")
    for case in program.cases:
        node = case.nodes["time"]
        run = node.run
        assert run is not None

        def seeing(*values: Any, run: Any = run) -> Any:
            seen.append(type(run(*values)))
            return run(*values)

        node.run = seeing
    assert program.variables  # Found by trials, on numpy's arrays
    seen.clear()
    assert np.isfinite(program.evaluate(("time",))["time"]).all()
    assert set(seen) == {type(made(array_api_strict, 1.0))}


@pytest.mark.parametrize(
    ("array", "words"), [("tensorflow", "is unknown"), ("cupy", "needs|finds no GPU")]
)
def test_a_library_that_is_not_there_is_named(array: str, words: str) -> None:
    if array == "cupy" and importlib.util.find_spec("cupy"):
        pytest.skip("cupy is installed")
    with pytest.raises(InputError, match=words):
        sweeps.sweep("time", topology="ring", ranks=8, message_bytes=1e6, array=array)


@LIBRARIES
def test_single_precision_is_made_double(name: str) -> None:
    namespace = library(name)
    single = namespace.asarray([8.0, 1e6], dtype=namespace.float32)
    cost = collective("all_reduce", single, build_topology("ring", 8), software="none")
    wanted = collective("all_reduce", [8.0, 1e6], build_topology("ring", 8), software="none")
    np.testing.assert_allclose(in_numpy(cost.latency_s), wanted.latency_s, rtol=1e-12)


def test_derived_quantities_are_of_the_arrays_given() -> None:
    given = {"tp": 2.0, "cp": 1.0, "pp": 4.0, "dp": made(array_api_strict, [8.0, 64.0])}
    array = derive("world_size", given)
    assert namespace_of(array) is array_api_strict
    assert np.array_equal(in_numpy(array), [64.0, 512.0])


def test_what_the_standard_lacks() -> None:
    values = np.array([[1.0, 5.0], [3.0, 2.0], [2.0, 7.0]])
    with using(array_api_strict):
        chosen = select([xp.asarray(values) > 4.0, xp.asarray(values) > 2.0], [1.0, 2.0], 3.0)
        assert np.array_equal(in_numpy(chosen), [[3.0, 1.0], [2.0, 3.0], [3.0, 1.0]])
        assert xp.asarray(True).dtype == array_api_strict.bool
        assert xp.asarray(1).dtype == array_api_strict.float64
    assert xp.asarray(1.0).__class__ is np.ndarray


def test_numpy_is_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), using(array_api_strict):
        raise ZeroDivisionError
    assert isinstance(xp.asarray(1.0), np.ndarray)


def test_kernels_compute_with_the_arrays_given() -> None:
    """A kernel that calls numpy by its name would turn other arrays into numpy's."""
    kernels = [
        getattr(formula, "kernel", None) or formula.cost for formula in (*formulas(), *algorithms())
    ]
    assert len(kernels) > 1000
    # `software.timing` works in the array that it is given, where that is numpy's.
    wrong = {
        kernel.__name__
        for kernel in kernels
        if "np" in getattr(getattr(kernel, "__code__", None), "co_names", ())
        and kernel.__module__ != "overhead.software.timing"
    }
    assert wrong == set()
