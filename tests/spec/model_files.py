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
    active: float | None  # 0: as many; None where no count is published
    why: str
    within: float = 0.01
    tables: int = 0  # How many of the two tables of tokens the active ones lack, which ours hold


NEAR = {
    "glm-4.5": Published(355.0, 32.0, "with the layer that predicts a further token", tables=2),
    "glm-4.5-air": Published(106.0, 12.0, "rounded", within=0.02, tables=2),
    "gpt3-5b": Published(5.0, 0, "a name, no count", within=0.02),
    "gpt3-20b": Published(20.0, 0, "a name, no count", within=0.02),
    "grok-1": Published(314.0, None, "rounded"),
    "internlm-7b": Published(7.3, 0, "rounded"),
    "internlm-20b": Published(20.0, 0, "rounded"),
    "megatron-22b": Published(22.0, 0, "rounded"),
    "moonlight-16b-a3b": Published(16.0, 3.0, "rounded", within=0.03),
    "nemotron4-15b": Published(15.7, 0, "rounded: 12.5 and 3.2 of the tables"),
    "nemotron4-340b": Published(341.0, 0, "rounded: 331.6 and 9.4 of the tables"),
    "gpt-oss-20b": Published(20.914757184, 3.61, "active ones rounded", tables=1),
    "gpt-oss-120b": Published(116.829156672, 5.13, "active ones rounded", tables=1),
    "llama4-maverick": Published(400.0, 17.0, "rounded", within=0.012),
    "minimax-m2.5": Published(230.0, 10.0, "rounded", within=0.02, tables=2),
    "qwen3-next-80b-a3b": Published(80.0, 3.0, "rounded", within=0.09, tables=2),
    "nemotron-3-nano-30b-a3b": Published(31.6, 3.6, "rounded", within=0.01),
    "nemotron-3-super-120b-a12b": Published(120.6, 12.7, "rounded"),
    "nemotron-3-ultra-550b-a55b": Published(550.0, 55.0, "rounded", tables=1),
    "deepseek-v3.2": Published(671.9, 37.5, "DeepSeek-V3 and its indexers", tables=1),
    "deepseek-v4-flash": Published(284.0, 13.0, "rounded", within=0.03, tables=1),
    "deepseek-v4-pro": Published(1600.0, 49.0, "rounded", within=0.02, tables=1),
    "kimi-k3": Published(2780.0, 104.0, "rounded", tables=1),
    "glm-5": Published(744.0, 40.0, "rounded", within=0.025, tables=1),
    "glm-5.2": Published(744.0, 40.0, "rounded, of GLM-5", tables=1),
    "qwen3.5-27b": Published(27.0, 0, "rounded"),
    "qwen3.5-35b-a3b": Published(35.0, 3.0, "rounded", within=0.02, tables=1),
    "qwen3.5-122b-a10b": Published(122.0, 10.0, "rounded", within=0.03),
    "qwen3.5-397b-a17b": Published(397.0, 17.0, "rounded", within=0.03),
    "llama4-scout": Published(109.0, 17.0, "rounded, with a vision encoder", within=0.012),
}


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
WEIGHTS = {
    "deepseek-v3": Weights(684_489_845_504, 1, 2),
    "deepseek-v3.2": Weights(685_355_329_792, 1, 2),
    "deepseek-v4-flash": Weights(
        290_944_616_402, 1, within=3e-4, why="a key is two of ours, weights of the mixing none"
    ),
    "deepseek-v4-pro": Weights(
        1_598_839_674_782, 1, within=1e-4, why="a key is two of ours, weights of the mixing none"
    ),
    "glm-4.5": Weights(358_337_791_296, 1, 2),
    "glm-4.5-air": Weights(110_468_824_832, 1, 2),
    "glm-5": Weights(753_864_139_008, 1),
    "glm-5.2": Weights(753_329_940_480, 1, within=1e-5, why="its further layer has an indexer"),
    "gpt-oss-20b": Weights(20_914_757_184, within=1e-7, why="sinks"),
    "gpt-oss-120b": Weights(116_829_156_672, within=2e-8, why="sinks"),
    "kimi-k2": Weights(1_026_408_235_864, within=4e-9, why="3,416 numbers more"),
    "llama4-maverick": Weights(401_583_781_376, beside=VISION),
    "llama4-scout": Weights(108_641_793_536, beside=VISION),
    "minimax-m2.5": Weights(228_689_764_864),
    "moonlight-16b-a3b": Weights(15_960_111_936, within=2e-7, why="1,728 numbers more"),
    "nemotron-3-nano-30b-a3b": Weights(31_577_937_344),
    "nemotron-3-super-120b-a12b": Weights(123_611_012_096, 1),
    "qwen3-next-80b-a3b": Weights(79_674_391_296),
}
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
