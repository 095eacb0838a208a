"""What the tests of models share: published totals, and what hypothesis draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.spec.model import Model
from tests.tables import examples

__all__ = ["NEAR", "OTHERS", "TOTALS", "VISION", "WEIGHTS", "Published", "anything", "outcome"]

# Parameters, and where it is a mixture of experts those that one token meets: to the last one, as
# the weights that are published hold.
TOTALS: dict[str, tuple[int, int]] = examples(__file__, "totals")


class Published(NamedTuple):
    """A published count of parameters that ours meets nearly: in billions, and why not wholly."""

    total: float
    why: str
    active: float | None = None  # 0: as many; None where no count is published
    within: float = 0.01
    tables: int = 0  # How many of the two tables of tokens the active ones lack, which ours hold


NEAR = {name: Published(**row) for name, row in examples(__file__, "near").items()}


class Weights(NamedTuple):
    """Numbers that a model's published weights hold, by their files' heads (safetensors)."""

    count: int
    further: int = 0  # Of these layers that predict a further token
    tables: int = 0  # Second copies of tables of tokens, for such layers
    beside: int = 0  # What sees images
    within: float = 0.0
    why: str = ""


# As Hugging Face counts them on the models' pages; numbers that scale narrow weights aren't in it.
# DeepSeek-V3 stands for R1's files, Qwen3-Next for Qwen3-Coder-Next's, MiniMax-M2.5 for M2's.
VISION = 871_932_416  # Llama 4's, which both models have
WEIGHTS = {name: Weights(**row) for name, row in examples(__file__, "weights").items()}
# What has no file in the catalogue.
OTHERS = {
    "gpt2": 124_439_808,
    "pythia-6.9b": 6_857_302_016,
    # What reads text in these is the model that saw no images.
    "kimi-k2.5": TOTALS["kimi-k2"][0],
    "qwen3-vl-8b": TOTALS["qwen3-8b"][0],
    "qwen3-vl-30b-a3b": TOTALS["qwen3-30b-a3b"][0],
}


def outcome(read: Callable[[], Model]) -> tuple[str, ...]:
    """Return the faults of what is read; none where it is a model."""
    try:
        assert read().quantity("parameters") >= 1
    except InputError as error:
        return error.faults or ("a refusal without a reason",)
    return ()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
