"""The vocabulary of a training step: its parts, what overlaps, rates, energy, cost, error."""

from __future__ import annotations

from overhead.quantity import define


def _named(name: str) -> str:
    return rf"\mathrm{{{name}}}"


def _share(name: str, symbol: str, meaning: str) -> None:
    define(name, symbol, "1", meaning, minimum=0, maximum=1)


# Overlap.
for _dimension, _words in (
    ("tp", "tensor"),
    ("cp", "context"),
    ("ep", "expert"),
    ("dp", "data"),
):
    _meaning = f"share of {_words} parallelism's communication that hides behind computing"
    _share(f"{_dimension}_overlap", rf"\omega_{{{_named(_dimension)}}}", _meaning)
_share(
    "tp_whole_overlap",
    r"\omega_{\mathrm{t}}",
    "share of tensor parallelism's all_reduces, of sequences that aren't split, that hides",
)
_share(
    "tp_gradient_overlap",
    r"\omega_{\nabla}",
    "share of the reductions of input gradients that runs beside products of weight gradients",
)
_share(
    "tp_hidden_share",
    r"\omega_{\mathrm{tp}}'",
    "share of tensor parallelism's communication that hides, with the sequence as it is split",
)
_share(
    "overlap_contention",
    r"\kappa_o",
    "time that hidden communication costs the computing it hides behind, by its own",
)

# Data parallelism.
for _name, _mark, _meaning in (
    ("layer_compute_forward", "1,f", "a layer's forward, mean of a stage's layers"),
    ("layer_compute_backward", "1,b", "a layer's backward, mean of a stage's layers"),
    ("layer_gather", "1,gat", "gathering of a layer's weights, mean of a stage's layers"),
    ("layer_reduce", "1,red", "reduction of a layer's gradients, mean of a stage's layers"),
    ("ends_gather", "ends,gat", "gathering of weights outside of layers"),
    ("ends_reduce", "ends,red", "reduction of gradients outside of layers"),
    ("exposed_forward_pass", "x,f", "what a forward exposes that gathers"),
    ("exposed_backward_pass", "x,b", "what a backward exposes that gathers and reduces"),
    ("exposed_gather_pass", "x,gat", "what a backward exposes that gathers"),
    ("exposed_reduce_pass", "x,red", "what a backward exposes that reduces"),
    ("exposed_sharded", "x", "of a step: data parallelism of stage 3 of ZeRO, exposed"),
    ("dp_window", "win", "backwards behind which gradients can be reduced"),
    ("dp_forward_window", "win,f", "forwards behind which weights can be gathered"),
    ("exposed_dp_reduce", "X,red", "of a step: reduction of gradients that nothing hides"),
    ("exposed_dp_gather", "X,gat", "of a step: gathering of weights that nothing hides"),
):
    define(f"{_name}_time", rf"d_{{{_named(_mark)}}}", "s", f"time: {_meaning}", minimum=0)
for _name, _symbol, _meaning in (
    ("middle_layers", "L_i'", "layers of a stage between"),
    ("leading_share", r"q_1", "share of what is outside of layers that nothing can hide"),
    ("dp_unhidden_share", r"q_0", "share of data parallelism's communication that nothing hides"),
    ("paired_passes", "m_2", "backwards of a step that gather weights and reduce gradients"),
    ("gather_passes", "m_g", "backwards of a step that gather weights alone"),
    ("reduce_passes", "m_r", "backwards of a step that reduce gradients alone"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)

for _name, _mark, _meaning in (
    ("forward_prefetch", "f", "layers whose weights a forward gathers ahead"),
    ("backward_prefetch", "b", "layers whose weights a backward gathers ahead"),
    ("forward_layers_ahead", "f'", "layers gathered ahead of a forward's, by the mechanism"),
    (
        "backward_layers_ahead",
        "b'",
        "layers gathered ahead of a backward's, by the mechanism",
    ),
):
    define(_name, rf"w_{{{_named(_mark)}}}", "1", _meaning, minimum=0, integer=True)

# Parts of a step, on a rank of a stage between.
for _name, _mark, _meaning in (
    ("matmul_part", "mm", "matrix products of its layers"),
    ("attention_part", "attn", "scores and values"),
    ("elementwise_part", "elem", "element-wise work"),
    ("recompute_part", "again", "what it computes again for the backward"),
    ("host_part", "host", "what waiting for the host adds"),
    ("exposed_tp", "tp", "tensor parallelism's exposed communication"),
    ("exposed_cp", "cp", "context parallelism's exposed communication"),
    ("exposed_dp", "dp", "data parallelism's exposed communication"),
    ("exposed_offload", "off", "activations on their way to the host and back, exposed"),
    ("optimizer", "opt", "the optimizer's update"),
    ("device_update", "opt,g", "the GPU's part of the optimizer's update"),
    ("host_update", "opt,h", "the host's part of it, with what it moves"),
    ("computing", "comp", "all its computing, of the ends its share"),
):
    define(f"{_name}_time", rf"S_{{{_named(_mark)}}}", "s", f"time of a step: {_meaning}",
           minimum=0)  # fmt: skip
# Less than nought where DualPipe hides more than that: no domain.
define(
    "exposed_ep_time", r"S_\mathrm{ep}", "s",
    "time of a step: expert parallelism's exposed communication",
)  # fmt: skip
define("sharding_copy_share", r"\sigma_z", "1",
       "share of the memory's bandwidth at which gathered weights are copied out of a collective's "
       "buffer and gradients into it; 0: they aren't copied", minimum=0, maximum=1)  # fmt: skip
define("sharding_copy_time", r"T_z", "s",
       "time of a step: copies of gathered weights and of gradients (stage 3 of ZeRO)",
       minimum=0)  # fmt: skip
define("step_overhead", r"S_0", "s", "time of a step that no part explains", minimum=0)
define("step_time", "S", "s", "time of a step", minimum=0, above=True)
define(
    "host_bound", r"\chi_h", "1", "whether layers wait for the host longer than they compute",
    minimum=0, maximum=1, integer=True,
)  # fmt: skip
define(
    "optimizer_traffic_bytes", r"b_\mathrm{opt}", "byte",
    "bytes that the optimizer moves, a parameter", minimum=0,
)  # fmt: skip
define("host_bandwidth", r"B_h", "byte s-1",
       "bandwidth between a GPU and its host's memory, one direction", minimum=0,
       above=True)  # fmt: skip
define("host_update_bandwidth", r"B_{hu}", "byte s-1",
       "rate at which the optimizer moves bytes of the host's memory, a GPU", minimum=0,
       above=True)  # fmt: skip
_share(
    "host_update_overlap",
    r"\omega_h",
    "share of the host's update that transfers of gradients and weights run beside",
)
_share("device_update_share", r"\varphi_d", "share of the optimizer's update that the GPU does")
for _name, _mark, _meaning in (
    ("updated_parameters", "up", "parameters that the last stage's rank updates, experts left out"),
    (
        "updated_expert_parameters",
        "up,e",
        "parameters of experts that the last stage's rank updates",
    ),
    ("owned_parameters", "own", "parameters that a rank updates: its shard"),
):
    define(_name, rf"\Psi_{{{_named(_mark)}}}", "1", _meaning, minimum=0)

# Rates.
for _name, _symbol, _meaning in (
    ("tokens_per_second", r"R_\Sigma", "tokens a second, over all GPUs"),
    ("tokens_per_second_per_gpu", "R_1", "tokens a second, a GPU"),
):
    define(_name, _symbol, "s-1", _meaning, minimum=0)
define(
    "model_flops_per_gpu", r"\Phi", "1 s-1",
    "model's FLOP/s of a GPU, masked scores counted, nothing recomputed", minimum=0,
)  # fmt: skip
for _name, _symbol, _meaning in (
    ("mfu", r"u_m", "model's FLOP/s by the peak, masked scores counted"),
    ("causal_mfu", r"u_c", "model's FLOP/s by the peak, masked scores not counted"),
    ("hfu", r"u_h", "FLOP/s by the peak, what is recomputed counted, and what kernels compute"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)
for _name, _symbol, _meaning in (
    ("recomputed_flops_per_token", "F_r", "FLOPs of one token that are computed again"),
    (
        "computed_attention_flops_per_token",
        "F_{ak}",
        "forward FLOPs of one token by scores and values that the attention kernel computes",
    ),
    ("computed_model_flops", r"F_{\Sigma k}", "FLOPs of a step that kernels compute, once"),
    ("hardware_flops", r"F_{\Sigma h}", "FLOPs of a step that kernels compute, recomputed counted"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)

# Energy and cost.
define("power", r"P_1", "W", "power of a GPU at work", minimum=0, above=True)
_share("idle_power_fraction", r"\pi_0", "power of an idle GPU by that of one at work")
for _name, _mark, _meaning in (
    ("device_energy", "gpu", "energy of a step: all GPUs"),
    ("step_energy", "step", "energy of a step: nodes, switches, moved bits, the site"),
    ("training_energy", "train", "energy of a whole training"),
):
    define(_name, rf"W_{{{_named(_mark)}}}", "J", _meaning, minimum=0)
define("training_tokens", r"T_\mathrm{train}", "1", "tokens of a whole training", minimum=0)
define(
    "training_steps", r"n_\mathrm{train}", "1", "steps of a whole training (not rounded)", minimum=0
)
define("training_time", r"\Theta", "s", "time of a whole training", minimum=0)
define("hour", r"\eta_h", "s h-1", "seconds of an hour", minimum=0, above=True)
define("day", r"\eta_d", "s d-1", "seconds of a day", minimum=0, above=True)
define("gpu_hours", r"\Theta_h", "h", "GPU-hours of a whole training", minimum=0)
define("training_days", r"\Theta_d", "d", "days of a whole training", minimum=0)
define("price", r"p_h", "USD h-1", "price of a GPU for an hour", minimum=0)
define("cost", r"\Gamma", "USD", "cost of a whole training", minimum=0)
define(
    "cost_per_trillion_tokens", r"\Gamma_{12}", "USD", "cost of training on 1e12 tokens", minimum=0
)

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
