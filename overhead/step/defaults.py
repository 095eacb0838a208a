"""What a step takes where nothing is said, and neither the machine nor its software decides."""

from __future__ import annotations

__all__ = ["DEFAULTS"]

DEFAULTS: dict[str, float] = {
    # Matrix products: the rule where no run on the GPU has been compared.
    "matmul_efficiency": 0.8,
    "matmul_floor": 5e-6,
    "matmul_depth_time": 0.3e-9,
    "memory_efficiency": 0.85,
    # Attention.
    "attention_half_length": 512.0,
    "attention_backward_efficiency": 0.85,
    "unfused_efficiency": 0.6,
    # The host: counted in frameworks of 2022; with graphs give a host_time of 0.
    "forward_operations": 20.0,
    "backward_operations": 35.0,
    "recompute_operations": 20.0,
    "host_time": 0.0,
    # Element-wise work and loss.
    "elementwise_factor": 1.0,
    "loss_bytes": 32.0,
    # What hides.
    "tp_overlap": 0.0,
    "tp_whole_overlap": 0.0,
    "cp_overlap": 0.0,
    "ep_overlap": 0.0,
    "dp_overlap": 0.0,
    "overlap_contention": 0.08,
    # Of named mechanisms: what Transformer Engine and PyTorch take where nothing is said.
    "cut_slowdown": 0.0,  # in the rates that runs sustain
    "splits": 4.0,
    "bucket_capacity": 26214400.0,  # PyTorch's reducer.hpp: 25 MiB
    "num_sm": 16.0,
    # The step.
    "optimizer_traffic_bytes": 40.0,
    "step_overhead": 0.0,
    "idle_power_fraction": 0.15,  # assumed
    "hour": 3600.0,
    "day": 86400.0,
    # What is known of the run.
    "unknown_settings": 0.0,
    "unseen_device": 0.0,
}
