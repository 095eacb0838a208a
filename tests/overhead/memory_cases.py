"""Models and plans whose memory the tests compute."""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from overhead.memory.quantities import RECIPES
from overhead.memory.stage import Derivation
from tests.tables import keyed

GIB, MIB = 2.0**30, 2.0**20
Given = Mapping[str, ArrayLike]


def gpt(layers: float, hidden: float, heads: float, vocabulary: float = 51200) -> dict[str, float]:
    return {
        "layers": layers,
        "hidden_size": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_size": hidden / heads,
        "ffn_size": 4 * hidden,
        "vocabulary_size": vocabulary,
        "tied_embeddings": 1,
        "linear_bias": 1,
        "layer_norm": 1,
        "learned_positions": 2048,
        "sequence_length": 2048,
        "dropout": 1,
    }


LLAMA3_70B = keyed(
    "layers=80 hidden_size=8192 heads=64 kv_heads=8 head_size=128 ffn_size=28672 gated_mlp=1 "
    "vocabulary_size=128256 sequence_length=8192"
)
DEEPSEEK_V3 = keyed(
    "layers=61 hidden_size=7168 heads=128 kv_heads=128 head_size=128 ffn_size=18432 gated_mlp=1 "
    "vocabulary_size=129280 sequence_length=4096 q_lora_rank=1536 kv_lora_rank=512 "
    "qk_nope_head_size=128 qk_rope_head_size=64 v_head_size=128 experts=256 experts_per_token=8 "
    "expert_ffn_size=2048 shared_ffn_size=2048 dense_layers=3 router_bias=1 etp=1"
)
K22 = {
    "22B": gpt(48, 6144, 64),
    "175B": gpt(96, 12288, 96),
    "530B": gpt(105, 20480, 128),
    "1T": gpt(128, 25600, 160),
}
UNFUSED = {"attention_kernel": "unfused"}
MIXED = RECIPES["mixed_adam"].given()


def held(values: Given, **labels: str) -> Derivation:
    return Derivation({"stage": 0, "in_flight_micro_batches": 1, **values}, labels)
