"""Models, machines and plans whose steps the tests compute."""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from overhead.evaluation import Evaluation
from tests.overhead.transformers import shapes
from tests.overhead.usual import STEP, usual
from tests.tables import examples, keyed

__all__ = [
    "BARE",
    "DEEPSEEK",
    "EVEN_ONLY",
    "GPT",
    "LLAMA",
    "MACHINE",
    "MIXTRAL",
    "MODELS",
    "NETWORK",
    "SILENT",
    "UNEVEN",
    "evaluation",
    "value",
]

Given = Mapping[str, ArrayLike]

GPT = {
    **shapes(
        layers=48,
        hidden_size=6144,
        heads=64,
        ffn_size=24576,
        vocabulary_size=51200,
        learned_positions=2048,
        tied_embeddings=1,
        linear_bias=1,
        layer_norm=1,
    ),
    "sequence_length": 2048,
    "dropout": 1,
}
LLAMA = {
    **shapes(
        layers=32,
        hidden_size=4096,
        heads=32,
        kv_heads=8,
        ffn_size=14336,
        gated_mlp=1,
        vocabulary_size=128000,
    ),
    "sequence_length": 4096,
}
MIXTRAL = {
    **shapes(
        layers=32,
        hidden_size=4096,
        heads=32,
        kv_heads=8,
        gated_mlp=1,
        vocabulary_size=32000,
        experts=8,
        experts_per_token=2,
        expert_ffn_size=14336,
    ),
    "sequence_length": 4096,
    "etp": 1,
}
DEEPSEEK = {
    **shapes(
        layers=61,
        hidden_size=7168,
        heads=128,
        head_size=128,
        ffn_size=18432,
        gated_mlp=1,
        vocabulary_size=129280,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_size=128,
        qk_rope_head_size=64,
        v_head_size=128,
        experts=256,
        experts_per_token=8,
        expert_ffn_size=2048,
        shared_ffn_size=2048,
        dense_layers=3,
    ),
    "sequence_length": 4096,
    "etp": 1,
}
MODELS = {"gpt": GPT, "llama": LLAMA, "mixtral": MIXTRAL, "deepseek": DEEPSEEK}

MACHINE = examples(__file__, "machine")
# A machine on which operations alone take time.
BARE = keyed(
    "matmul_min_time=0 matmul_time_per_k=0 matmul_efficiency=1 memory_bandwidth=1e300 "
    "attention_efficiency=1 attention_half_length=0 attention_backward_efficiency=1 "
    "host_launch_time=0 peak_flops=1e15 attention_peak_flops=1e15 peak_measured_matmul_flops=1e15 "
    "unfused_efficiency=1 vocabulary_multiple=1"
)
NETWORK = keyed(
    "gpus_per_node=8 nics_per_node=8 intra_bandwidth=4e11 inter_bandwidth=5e10 intra_latency=1e-6 "
    "inter_latency=3e-6 intra_energy_per_bit=1e-12 inter_energy_per_bit=4e-11 oversubscription=1 "
    "intra_nvls=0 intra_inc=0 inter_inc=0 in_network_latency_factor=1 ranks_sharing_nic=1"
)
# Communication that takes no time.
SILENT = dict.fromkeys(
    [
        f"{layer}_{way}_time"
        for layer in ("tp_layer", "tp_moe_layer")
        for way in ("forward", "backward", "gather", "recompute")
    ]
    + [
        f"{layer}_{way}_time"
        for layer in ("cp_exchange", "cp_round", "cp_scan", "ep_layer")
        for way in ("forward", "backward")
    ]
    + [f"vocabulary_{name}_time" for name in ("first", "last")]
    + [
        f"{family}_{way}_time"
        for family in ("dp_layer", "edp_layer", "dp")
        for way in ("gather", "reduce")
    ]
    + ["dp_non_layer_gather_time", "dp_non_layer_reduce_time", "p2p_time", "communication_energy"],
    0.0,
)
LABELS = keyed(
    "topology=hierarchical shape=two_levels algorithm=nccl latency_per=hop phases=sequential "
    "reduction=free link=auto recompute=none attention_kernel=flash_2 schedule=one_f_one_b "
    "context_parallel=all_to_all mask=causal sharding=full shapes=known stages=uneven"
)
EVEN_ONLY = ("zero_bubble_h1", "zero_bubble_h2", "dual_pipe")
UNEVEN = ("gpipe", "one_f_one_b", "interleaved")
DERIVED = ("etp", "dropout", "weight_copies", "kv_heads", "head_size")


def evaluation(given: Given, **labels: str) -> Evaluation:
    """Return all that follows from a model and a plan; what isn't said is one or has a default."""
    values = {**LABELS, **labels}
    if values["schedule"] in EVEN_ONLY and "stages" not in labels:
        values["stages"] = "even"
    defaults = {name: value for name, value in usual("memory").items() if name not in DERIVED}
    plain = {"num_micro_batches": 1, "zero_stage": 0, "dropout": 0, "weight_copies": 1}
    states = {"weight_bytes": 2, "gradient_bytes": 4, "optimizer_bytes": 12}
    machine = {**NETWORK, **MACHINE}
    everything = {**defaults, **usual("communication"), **STEP, **plain, **states, **machine}
    if "num_micro_batches" not in given:
        everything |= {"global_batch_size": 1}
        del everything["num_micro_batches"]
    return Evaluation({**everything, **given}, values)


def value(given: Given, quantity: str, **labels: str) -> float:
    """Return one number that follows from a model and a plan."""
    return float(evaluation(given, **labels)[quantity])
