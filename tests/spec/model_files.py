"""What the tests of models share: published totals, and what hypothesis draws."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from sweeps.errors import InputError
from sweeps.spec.model import Model

__all__ = ["OTHERS", "TOTALS", "anything", "outcome"]

# Parameters, and where it is a mixture of experts those that one token meets.
TOTALS: dict[str, tuple[int, int]] = {
    "deepseek-v3": (671_026_419_200, 37_552_297_472),
    "gpt3-175b": (174_604_259_328, 0),
    "kimi-k2": (1_026_408_232_448, 32_861_500_928),
    "llama2-7b": (6_738_415_616, 0),
    "llama2-13b": (13_015_864_320, 0),
    "llama2-70b": (68_976_648_192, 0),
    "llama3-8b": (8_030_261_248, 0),
    "llama3-70b": (70_553_706_496, 0),
    "llama3-405b": (405_853_388_800, 0),
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248),
    "mixtral-8x22b": (140_620_634_112, 39_152_031_744),
    "qwen2.5-7b": (7_615_616_512, 0),
    "qwen2.5-32b": (32_763_876_352, 0),
    "qwen2.5-72b": (72_706_203_648, 0),
    "qwen3-0.6b": (596_049_920, 0),
    "qwen3-8b": (8_190_735_360, 0),
    "qwen3-32b": (32_762_123_264, 0),
    "qwen3-30b-a3b": (30_532_122_624, 3_353_032_704),
    "qwen3-235b-a22b": (235_093_634_560, 22_190_763_520),
}
# What has no file in the catalogue.
OTHERS = {"gpt2": 124_439_808, "mistral-7b": 7_241_732_096, "pythia-6.9b": 6_857_302_016}


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
