"""The best number of chunks, against all numbers."""

from __future__ import annotations

import numpy as np
import pytest

from overhead.collectives.algorithm import ALGORITHMS, MOST_CHUNKS, Algorithm
from overhead.collectives.chunks import best_chunks
from tests.overhead.shapes import Columns, defined, links, time_of

CHUNKED = [algorithm for algorithm in ALGORITHMS.values() if algorithm.chunked]
every_chunked = pytest.mark.parametrize(
    "algorithm", CHUNKED, ids=[".".join(algorithm.key) for algorithm in CHUNKED]
)
TRIED = 400


def machine(algorithm: Algorithm, numbers: np.random.Generator) -> Columns:
    """Return shapes with prices such that the best number is often below `TRIED`."""
    columns = dict(defined(algorithm))
    rows = 500
    drawn = numbers.integers(0, len(columns["ranks"]), rows)
    columns = {name: column[drawn] for name, column in columns.items()}
    columns["message_bytes"] = 10.0 ** numbers.uniform(2, 9, rows)
    for name in columns:
        if name.endswith("latency"):
            columns[name] = 10.0 ** numbers.uniform(-6, -4, rows)
        if name.endswith("bandwidth"):
            columns[name] = 10.0 ** numbers.uniform(9, 11.5, rows)
    return columns


def times(algorithm: Algorithm, columns: Columns, chunks: np.ndarray, per: str) -> np.ndarray:
    return time_of(algorithm, {**columns, "chunks": chunks}, per)


@pytest.mark.thorough_cases(every=3)
@every_chunked
@pytest.mark.parametrize("per", ["hop", "message"])
def test_no_number_of_chunks_is_better(algorithm: Algorithm, per: str) -> None:
    columns = machine(algorithm, np.random.default_rng(7))
    prices = links(algorithm.topology, columns)
    chosen = best_chunks(algorithm, columns, *zip(*prices, strict=True), latency_per=per)
    part = {"hop": "latencies", "message": "messages"}[per]
    ours = times(algorithm, columns, chosen, part)
    assert np.all(chosen == np.floor(chosen))
    assert np.all((chosen >= 1.0) & (chosen <= MOST_CHUNKS))
    for number in range(1, TRIED + 1):
        array = times(algorithm, columns, np.full_like(chosen, number), part)
        worse = ours > array * (1 + 1e-13)
        assert not np.any(worse), (number, {k: v[worse][:3] for k, v in columns.items()})
    # A number in the middle must have been the best one of some.
    several = columns["ranks"] > 3.0
    assert np.any((chosen > 2.0) & (chosen < TRIED) & several)


@every_chunked
def test_nothing_to_wait_for_takes_one_chunk(algorithm: Algorithm) -> None:
    columns = defined(algorithm)
    zero = np.zeros_like(columns["ranks"])
    chosen = best_chunks(algorithm, columns, [zero + 1e-6], [zero])
    assert np.all(chosen == 1.0)
    alone = columns["ranks"] == 1.0
    chosen = best_chunks(algorithm, columns, [zero + 1e-6], [zero + 1.0])
    assert np.all(chosen[alone] == 1.0)
    assert np.any(chosen > 1.0)


@every_chunked
def test_free_latencies_take_the_most_chunks(algorithm: Algorithm) -> None:
    columns = defined(algorithm)
    zero = np.zeros_like(columns["ranks"])
    chosen = best_chunks(algorithm, columns, [zero], [zero + 1.0])
    assert np.all((chosen == 1.0) | (chosen == MOST_CHUNKS))
    # What chunks gain nothing in takes one.
    least = np.full_like(zero, MOST_CHUNKS)
    gain = times(algorithm, {**columns, **_priced(columns)}, least, "latencies") < times(
        algorithm, {**columns, **_priced(columns)}, np.ones_like(zero), "latencies"
    ) * (1 - 1e-9)
    assert np.all(chosen[gain] == MOST_CHUNKS)
    assert np.any(gain)


def _priced(columns: Columns) -> Columns:
    prices = {"message_bytes": 1.0, "effective_oversubscription": 1.0, "pod_oversubscription": 1.0}
    for level in ("", "intra_", "inter_", "pod_"):
        prices |= {f"{level}latency": 0.0, f"{level}bandwidth": 1.0}
    return {name: np.full_like(columns["ranks"], value) for name, value in prices.items()}


def test_inputs_broadcast() -> None:
    ranks = np.arange(1.0, 9.0)[:, None, None]
    latency = np.array([1e-6, 1e-5, 0.0])[None, :, None]
    serialization_time = np.logspace(-7, 1, 5)[None, None, :]
    chain = ALGORITHMS["ring", "broadcast", "chain"]
    chosen = best_chunks(chain, {"ranks": ranks}, [latency], [serialization_time])
    assert chosen.shape == (8, 3, 5)
    for index in np.ndindex(chosen.shape):
        row, column, position = index
        array = best_chunks(
            chain,
            {"ranks": ranks[row, 0, 0]},
            [latency[0, column, 0]],
            [serialization_time[0, 0, position]],
        )
        assert array == chosen[index]


def test_a_worked_chain() -> None:
    """16 ranks: sqrt(14 wire / latency) = sqrt(14 * 100) = 37.4."""
    chain = ALGORITHMS["switch", "broadcast", "chain"]
    chosen = best_chunks(chain, {"ranks": np.array(16.0)}, [np.array(1.0)], [np.array(100.0)])
    assert chosen == 37.0


def test_refusals() -> None:
    ring = ALGORITHMS["ring", "all_reduce", "ring"]
    price = [np.array(1.0)]
    with pytest.raises(ValueError, match=r"ring\.all_reduce\.ring cuts its message into no chunks"):
        best_chunks(ring, {"ranks": np.array(4.0)}, price, price)
    chain = ALGORITHMS["ring", "broadcast", "chain"]
    with pytest.raises(ValueError, match="zip"):
        best_chunks(chain, {"ranks": np.array(4.0)}, price * 2, price * 2)
