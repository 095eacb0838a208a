"""Constants of a step's time that hold where neither a machine's nor a framework's file has one.

They are rules over many machines rather than fits of one: good to about a tenth of a step's time
on machines whose best matrix multiplication is known, worse elsewhere.
"""

from __future__ import annotations

from sweeps.spec.figures import Figure

__all__ = [
    "ATTENTION_KERNEL",
    "ATTENTION_RULE",
    "FRAMEWORK_RULE",
    "INPUT_WIDTHS",
    "MACHINE_RULE",
    "RECIPE_RULE",
    "TYPICAL_BEST",
    "UNFUSED_SHARE",
]

NEMO = "NVIDIA/dgxc-benchmarking @8f5cbb3"
VTRAIN = "VIA-Research/vTrain @f8dda8473a"
XLA = "jax-cuda12-pjrt 0.9.2, table of matrix multiplications on H100 and B200"
RUNS = f"public step times ({VTRAIN}, {NEMO} and others)"


def _figure(value: float, kind: str, source: str, units: str = "1") -> Figure:
    return Figure(value, units, kind, source)


# A machine's constants.
MACHINE_RULE: dict[str, Figure] = {
    "matmul_efficiency": _figure(
        0.8, "measured",
        "long runs sustain 0.77 to 0.93 of the best measured matrix multiplication on A100 and "
        f"H100, 0.62 to 0.70 on B200; one value for all, by {RUNS}",
    ),
    "matmul_floor": _figure(
        5e-6, "measured",
        f"{XLA}: 5.6 and 5.8 us in bf16 where the rest tends to nothing; rounded as in the fits of "
        "the rates", "s",
    ),
    "matmul_depth_time": _figure(
        3e-10, "measured", f"{XLA}: 0.31 and 0.38 ns in bf16 for each unit of k", "s"
    ),
    "memory_efficiency": _figure(
        0.85, "assumed",
        f"share of the data sheet's bandwidth that long kernels reach; {RUNS} bound it only from "
        "below",
    ),
    "intra_efficiency": _figure(
        0.78, "measured",
        "stas00/ml-engineering, network/README.md @744d01e18b: large messages reach 0.78 of "
        "NVLink's bandwidth on A100, 0.80 to 0.83 on H200 and B200, by rings",
    ),
    "inter_efficiency": _figure(
        0.85, "assumed",
        "stas00/ml-engineering, network/README.md @744d01e18b: 0.8 to 0.9 of the network's "
        "bandwidth at best; the middle",
    ),
    "step_overhead": _figure(
        1e-3, "assumed",
        "a step's bookkeeping; too little for step times to tell, and more where a fit says so",
        "s",
    ),
    "idle_power_fraction": _figure(
        0.2, "assumed",
        "P. Patel et al., Characterizing power management opportunities for LLMs in the cloud, "
        "ASPLOS, 2024, section 4: about a fifth of the limit between phases of computing; from "
        "memory, unverified",
    ),
}  # fmt: skip

# Best measured matrix multiplication by peak, where it isn't measured: the median of those that
# the catalogue has in bf16 and fp8 (0.51 on MI300X to 0.87 on A100).
TYPICAL_BEST = _figure(
    0.74, "assumed", "median of the best measured by the peak, over the catalogue's machines"
)

# A fused kernel's share of the peak of 16 bits, long sequences.
ATTENTION_RULE: dict[str, Figure] = {
    "flash_1": _figure(
        0.28, "assumed",
        "between the 0.21 and the 0.35 fitted on H100 and A100 (mosaicml/llm-foundry @8c8dd48f72)",
    ),
    "flash_2": _figure(
        0.4, "assumed",
        "arXiv:2307.08691: 0.5 to 0.73 on A100; arXiv:2407.08608, figure 5: 0.37 on H100; 0.27 "
        "fitted on H100 at 500 W (pytorch/torchtitan @b5bcd76c66)",
    ),
    "flash_3": _figure(
        0.6, "assumed", "arXiv:2407.08608, figure 5: 0.65 forward on H100, heads of 128"
    ),
    "cudnn": _figure(
        0.6, "assumed",
        "arXiv:2407.08608, figure 5: 0.60 forward on H100, heads of 128; fits on step times give "
        f"0.56 on B200 and 0.75 on H100 ({NEMO} and others)",
    ),
}  # fmt: skip
# Without a fused kernel the products are matrix multiplications, small and batched.
UNFUSED_SHARE = _figure(
    0.6, "assumed",
    f"of the sustained rate of matrix multiplications; as in the fits on {VTRAIN}, whose byte "
    "counts are the rest of unfused attention",
)  # fmt: skip

# A framework's constants.
FRAMEWORK_RULE: dict[str, Figure] = {
    "host_time": _figure(
        8e-6, "assumed",
        "an operation launched from Python; step times of current frameworks only bound it, for "
        "0.4 ms a layer changes none of them", "s",
    ),
    "elementwise_factor": _figure(1.0, "assumed", "element-wise operations fused"),
    "loss_bytes": _figure(
        40.0, "assumed",
        "bytes moved a logit by loss and its gradient in single precision, as in the fits",
        "byte",
    ),
    "logit_bytes": _figure(
        8.0, "specification",
        "bytes stored a logit: 16 bits, its softmax in single precision, 16 bits of gradient",
        "byte",
    ),
    "tp_overlap": _figure(0.0, "assumed", "nothing hides it unless the framework says so"),
    "cp_overlap": _figure(0.8, "assumed", "the share that attention hides, as in the fits"),
    "ep_overlap": _figure(0.0, "assumed", "nothing hides it unless the framework says so"),
    "dp_overlap": _figure(
        0.9, "assumed", "all but a tenth hides behind the backward pass, as in the fits"
    ),
    "overlap_contention": _figure(
        0.08, "assumed",
        "share of its own time that the shorter of two overlapped parts costs, as in the fits",
    ),
    "forward_operations": _figure(
        20.0, "measured",
        f"operations launched a layer: with the host's 42 us they are the 3.4 to 3.7 ms a layer "
        f"and micro-batch of {VTRAIN}'s small models",
    ),
    "backward_operations": _figure(
        35.0, "measured", f"operations launched a layer; as those of the forward pass, {VTRAIN}"
    ),
    "recompute_operations": _figure(
        20.0, "assumed", "those of the forward pass once more, where all is recomputed"
    ),
    "matmul_share": _figure(1.0, "assumed", "the machine's own rate"),
    "embedding_as_layer": _figure(0.0, "assumed", "not counted in cutting stages"),
    "loss_as_layer": _figure(0.0, "assumed", "not counted in cutting stages"),
    "dropout": _figure(0.0, "assumed", "none, as in current models"),
}  # fmt: skip

ATTENTION_KERNEL = "flash_2"

# Bytes a parameter by precision, where a framework has no recipe of its own: Megatron-LM's.
RECIPE_RULE: dict[str, str] = {
    "bf16": "megatron_bf16",
    "fp16": "megatron_fp16",
    "fp8": "megatron_bf16",
    "fp4": "megatron_bf16",
    "tf32": "fp32_adam",
    "fp32": "fp32_adam",
}
# Bytes of an input of a matrix product; 4 bits have a scale of 8 bits for each 16 (NVFP4).
INPUT_WIDTHS: dict[str, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp4": 0.5625,
    "tf32": 4.0,
    "fp32": 4.0,
}
