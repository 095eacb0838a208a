"""Speed of the tuner: the legal grid for many models at once, and a whole tuning."""

from collections.abc import Callable

import numpy as np

from sweeps.spec.catalog import load_model
from sweeps.tuner.predict import predict
from sweeps.tuner.rates import read_rates
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.tuner import TPOverlapTuner
from sweeps.tuner.userbuffers import OPERATORS, grid_cases
from tests.benchmarks.conftest import best_of

Ratio = Callable[[str, float, float, str], None]


def test_the_legal_grid_for_100_models(benchmark: object, ratio: Ratio) -> None:
    shapes = load_model("llama3-8b").shapes
    factor = np.arange(1, 101, dtype=np.float64)
    many = {name: value * np.ones(100) for name, value in shapes.items()}
    many |= {name: shapes[name] * factor for name in ("hidden_size", "heads", "ffn_size")}
    cases = grid_cases((2, 4, 8), OPERATORS, (1, 2, 4, 8, 16))
    rates = read_rates("dgx-h100")

    def work() -> None:
        predictions = predict(many, 8192, cases, rates)
        assert np.broadcast_to(predictions.forward.e2e, (100, 144)).shape == (100, 144)

    (spent,) = best_of(5, work)
    ratio("legal grid of 144 for 100 models (seconds)", spent, 1.0, f"{spent * 1e3:.0f} ms")
    assert spent < 1.0
    benchmark.pedantic(work, rounds=3)  # type: ignore[attr-defined]


def test_a_tuning(benchmark: object, ratio: Ratio) -> None:
    config = TPOverlapTunerConfig("llama3-70b")

    def work() -> None:
        TPOverlapTuner(config).run(write=False)

    (spent,) = best_of(3, work)
    ratio("a tuning of one model (seconds)", spent, 1.0, f"{spent * 1e3:.0f} ms")
    benchmark.pedantic(work, rounds=2)  # type: ignore[attr-defined]
