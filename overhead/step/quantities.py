"""The vocabulary of a training step: its parts, what overlaps, rates, energy, cost, error."""

from __future__ import annotations

# What a step takes where nothing is said, and neither the machine nor its software decides.

DEFAULTS: dict[str, float] = {
    # Matrix products: the rule where no run on the GPU has been compared.
    "matmul_efficiency": 0.8,
    "matmul_floor": 5e-6,
    "matmul_depth_time": 0.3e-9,
    "fused_accumulation": 0.0,
    "odd_size_loss": 0.255,  # measured: hidden sizes of 14400 and 14336 at one plan
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
    "launch_wait": 0.0,
    # Element-wise work and loss.
    "elementwise_factor": 1.0,
    "loss_bytes": 32.0,
    # What hides.
    "tp_overlap": 0.0,
    "tp_whole_overlap": 0.0,
    "tp_gradient_overlap": 0.0,
    "cp_overlap": 0.0,
    "ep_overlap": 0.0,
    "dp_overlap": 0.0,
    "overlap_contention": 0.08,
    # deepseek-ai/profile-data @44960242, trace of training: 96 % of its communication is hidden.
    "pair_hidden_share": 0.96,
    # Of named mechanisms: what Transformer Engine and PyTorch take where nothing is said.
    "cut_slowdown": 0.0,  # in the rates that runs sustain
    "splits": 4.0,
    "forward_prefetch": 1.0,  # the next layer's weights, as FSDP fetches them
    "backward_prefetch": 1.0,  # torch.distributed.fsdp.BackwardPrefetch.BACKWARD_PRE
    "prefetched_elements": 5e7,  # DeepSpeed's stage3_prefetch_bucket_size
    "expert_chunks": 2.0,  # assumed: halves, as where two micro-batches take turns
    "expert_sms": 20.0,  # DeepEP's default, and arXiv:2412.19437, section 3.2.2
    "bucket_capacity": 26214400.0,  # PyTorch's reducer.hpp: 25 MiB
    "num_sm": 24.0,  # enough for what is scattered, and what a product spares
    # The step.
    "optimizer_traffic_bytes": 40.0,
    "host_update_bandwidth": 26e9,  # measured on H100 (`sweeps.spec.framework` says where)
    "host_update_overlap": 0.0,  # Megatron-LM's overlap_cpu_optimizer_d2h_h2d is off
    "step_overhead": 0.0,
    "idle_power_fraction": 0.15,  # assumed
    "hour": 3600.0,
    "kilowatt_hour": 3.6e6,
    "day": 86400.0,
    # What is known of the run.
    "unknown_settings": 0.0,
    "unseen_device": 0.0,
    "device_kind": 0.0,
    "software_kind": 0.0,
    "given_options": 1.0,
}
