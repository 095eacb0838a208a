"""The vocabulary of memory: stages, what a rank holds, what it stores, what all of it takes."""

from __future__ import annotations

from dataclasses import dataclass

from overhead.quantity import VOCABULARY, Quantity, define
from overhead.source import SOURCES, cite


def _named(name: str) -> str:
    return rf"\mathrm{{{name}}}"


# A stage of the pipeline, and how a plan keeps it.
define("stage_layers", "L_i", "1", "layers of the stage", minimum=0)
for _name, _symbol, _meaning in (
    ("embedding_as_layer", "l_e", "layers as which the embedding counts in cutting stages"),
    ("loss_as_layer", "l_l", "layers as which the output layer counts in cutting stages"),
):
    define(_name, _symbol, "1", _meaning, minimum=0, integer=True)
define("weight_copies", "c_w", "1", "stages that a rank holds (DualPipe: 2)", minimum=1, maximum=2)
for _name, _symbol, _meaning in (
    ("ends_as_layers", "l_2", "whether the software counts both ends as layers in every case"),
    ("holds_embedding", "i_e", "whether the stage's rank holds the embedding"),
    ("holds_output", "i_o", "whether the stage's rank holds the output layer"),
    ("dropout", r"\delta", "whether dropout is applied"),
    (
        "weighted_outputs",
        "w_e",
        "whether probabilities multiply experts' outputs",
    ),
):
    define(_name, _symbol, "1", _meaning, minimum=0, maximum=1, integer=True)
for _name, _symbol, _meaning in (
    ("stage_leading_layers", "L_{di}", "first dense layers (of a mixture of experts) in the stage"),
    ("mtp_depths", "L_p'", "further tokens that a step predicts: none without a backward"),
    ("uneven_places", "L_f", "places of layers that stay free because layers don't divide evenly"),
    ("stage_added_layers", "L_{pi}'", "of them those beyond the stage's places of others"),
    ("stage_mtp_layers", "L_{pi}", "layers of the stage that predict further tokens"),
    ("stage_moe_layers", "L_{ei}", "layers of the stage whose MLP is a mixture of experts"),
    ("stage_mlp_layers", "L_{mi}", "layers of the stage whose MLP is dense"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)
define("vocabulary_multiple", "V_0", "1", "multiple of tp to which the vocabulary is padded",
       minimum=1, integer=True)  # fmt: skip
define("padded_vocabulary", "V_p", "1", "vocabulary as it is padded", minimum=1)

# Parameters of one rank.
for _name, _mark, _meaning in (
    ("rank_kv_heads", "k", "key and value heads of a rank"),
    ("rank_key_value_weights", "W_kv", "weights to keys and values, on one rank"),
    ("attention_rank_weights", "W_a", "weights of one layer's attention, on one rank"),
    ("attention_rank_biases", "b_a", "biases of one layer's attention, on one rank"),
    ("attention_rank_parameters", "attention", "parameters of one layer's attention, on one rank"),
    ("mlp_rank_parameters", "MLP", "parameters of one dense layer's MLP, on one rank"),
    ("shared_rank_parameters", "shared", "parameters of one layer's router and shared experts, "
     "on one rank"),
    ("expert_rank_parameters", "experts", "parameters of one layer's routed experts, on one rank"),
    ("mtp_rank_parameters", "MTP", "parameters that a layer which predicts a further token has "
     "beyond others, on one rank"),
    ("embedding_rank_parameters", "embedding", "parameters of embedding and positions, on one "
     "rank"),
    ("output_rank_parameters", "output", "parameters of the last norm and the output layer, on one "
     "rank"),
    ("stage_parameters", "stage", "parameters of a rank, routed experts left out"),
    ("stage_expert_parameters", "stage,e", "parameters of a rank that are routed experts"),
    ("rank_parameters", "rank", "parameters of a rank"),
    ("narrow_attention_parameters", "a,n", "parameters of one layer's attention on one rank that "
     "products take in fewer bytes, in the mean of layers"),
    ("stage_narrow_parameters", "stage,n", "parameters of a rank that products take in fewer "
     "bytes, routed experts left out"),
    ("stage_narrow_expert_parameters", "stage,ne", "routed experts' parameters of a rank that "
     "products take in fewer bytes"),
    ("layer_narrow_parameters", "layer,n", "parameters of the stage's largest layer, on one rank, "
     "that products take in fewer bytes, routed experts left out"),
    ("narrow_expert_parameters", "e,n", "parameters of one layer's routed experts on one rank that "
     "products take in fewer bytes, in the mean of layers"),
    ("mean_layer_narrow_parameters", "mean,n", "parameters of a layer on one rank that products "
     "take in fewer bytes, mean of the stage's, experts left out"),
    ("layer_rank_parameters", "layer", "parameters of the stage's largest layer, on one rank, "
     "routed experts left out"),
    ("layer_rank_expert_parameters", "layer,e", "parameters of one layer's routed experts, on one "
     "rank of a stage that has them"),
):  # fmt: skip
    _mark = _mark.replace("_", r"\_")
    define(_name, rf"\psi_{{{_named(_mark)}}}", "1", _meaning, minimum=0)

# Sharding of the model's states.
define("shards", "z_d", "1", "ranks over which ZeRO shards", minimum=1)
define("expert_shards", "z_e", "1", "ranks over which ZeRO shards experts", minimum=1)
define("bf16_layers", "L_{16}", "1", "layers of the model whose products stay in 16 bits where the "
       "others' take fewer", minimum=0)  # fmt: skip
for _name, _symbol, _meaning in (
    (
        "bf16_attention",
        "f_{16a}",
        "attention's products that stay in 16 bits where others take fewer",
    ),
    (
        "bf16_experts",
        "f_{16e}",
        "routed experts' products that stay in 16 bits where others take fewer",
    ),
    ("narrow_share", "f_n", "layers whose products aren't left in 16 bits"),
    ("attention_narrow_share", "f_{na}", "attention's products that aren't left in 16 bits"),
    ("expert_narrow_share", "f_{ne}", "routed experts' products that aren't left in 16 bits"),
):
    define(_name, _symbol, "1", f"share of {_meaning}", minimum=0, maximum=1)
define("gathered_layers", "n_g", "1", "layers whose weights ZeRO-3 holds gathered", minimum=0)
define("gathered_ends", "n_e", "1", "share of embedding and output that ZeRO-3 holds gathered",
       minimum=0, maximum=1)  # fmt: skip
define("pending_share", "n_p", "1", "share of the gradients that wait, not sharded yet (ZeRO-2, 3)",
       minimum=0, maximum=1)  # fmt: skip
for _name, _symbol, _meaning in (
    ("whole_in_pipeline", r"\omega_z", "whether a pipeline's stages keep weights gathered and "
     "gradients whole until the last micro-batch (ZeRO-2, 3)"),
    ("gather_every_micro_batch", r"\gamma_z", "whether ZeRO-3 gathers weights each micro-batch"),
    ("keep_gathered", r"\kappa_z", "whether ZeRO-3 keeps weights gathered until the backward"),
    ("reduce_every_micro_batch", r"\rho_z",
     "whether ZeRO-2 and 3 reduce gradients each micro-batch"),
):  # fmt: skip
    define(_name, _symbol, "1", _meaning, minimum=0, maximum=1, integer=True)
define("loss_chunks", "n_l", "1", "chunks over which the loss is computed", minimum=1)

# Bytes of one element.
for _name, _symbol, _meaning in (
    ("gathered_bytes", "b_{gw}", "a weight that ZeRO-3 gathered"),
    ("matmul_input_bytes", "b_m", "a stored input of a matrix product (FP8: 1)"),
    (
        "layer_input_bytes",
        r"\bar{b}_m",
        "a stored input of a layer's products, in the mean of layers",
    ),
    (
        "attention_input_bytes",
        r"\bar{b}_a",
        "a stored input of attention's products, in the mean of layers",
    ),
    (
        "expert_input_bytes",
        r"\bar{b}_e",
        "a stored input of routed experts' products, in the mean of layers",
    ),
    (
        "kept_attention_input_bytes",
        r"\bar{b}_a'",
        "an attention product's input as kept for the weight gradient",
    ),
    (
        "kept_layer_input_bytes",
        r"\bar{b}_m'",
        "another layer product's input as kept for the weight gradient",
    ),
    (
        "kept_expert_input_bytes",
        r"\bar{b}_e'",
        "a routed expert product's input as kept for the weight gradient",
    ),
    ("kept_context_bytes", r"\bar{b}_c'", "the attention context as kept for the backward pass"),
    ("wide_weight_bytes", "b_{w16}", "a weight that no product takes in fewer"),
    ("wide_gathered_bytes", "b_{gw16}", "such a weight that ZeRO-3 gathered"),
    ("weight_copy_bytes", "b_{wc}", "a weight's copies in 8 bits, which products take"),
    ("mask_bytes", r"b_\delta", "an element of a dropout mask"),
    ("single_bytes", "b_4", "a number that is kept in single precision"),
    ("placeholder_bytes", "b_0", "a placeholder for a gradient added up elsewhere (0: none)"),
    ("logit_bytes", "b_l", "a logit with its softmax and its gradient"),
):
    define(
        _name,
        _symbol,
        "byte",
        f"bytes of {_meaning}",
        minimum=0,
        above=_name == "single_bytes",
    )

# Hybrids: layers with linear attention (a gated delta net, or Mamba-2) in place of attention.
for _name, _symbol, _meaning in (
    ("linear_layers", r"L_\ell", "layers with linear attention in place of attention"),
    ("linear_key_heads", r"k_\ell", "query and key heads of a linear attention"),
    ("linear_value_heads", r"a_\ell", "value heads of a linear attention"),
    ("linear_key_size", r"d_{\ell k}", "size of a query or key head of a linear attention"),
    ("linear_value_size", r"d_{\ell v}", "size of a value head of a linear attention"),
    ("linear_kernel", r"c_\ell", "tokens that a linear attention's convolution spans"),
):
    define(_name, _symbol, "1", _meaning, minimum=0, integer=True)
define("mamba", r"\mu_\ell", "1", "whether linear layers are Mamba-2's state spaces",
       minimum=0, maximum=1, integer=True)  # fmt: skip
define("output_gate", r"\gamma_o", "1", "whether attention's context has a gate as wide as it",
       minimum=0, maximum=1, integer=True)  # fmt: skip
define("linear_share", r"\lambda_\ell", "1", "share of layers that have linear attention",
       minimum=0, maximum=1)  # fmt: skip
define("attention_layer_fraction", r"1-\lambda_\ell", "1", "attention layers / layers", minimum=0,
       maximum=1)  # fmt: skip
for _name, _symbol, _meaning in (
    ("linear_convolved_width", r"v_\ell", "queries, keys and values of a linear attention"),
    ("linear_in_width", r"n_\ell", "outputs of a linear attention's first product"),
    ("linear_out_width", r"m_\ell", "inputs of a linear attention's last product"),
    (
        "linear_adapter_width",
        r"w_\ell",
        "inputs and outputs of adapted linear attention, layer mean",
    ),
    ("linear_scan_flops", r"F_\ell", "forward FLOPs of one token by a linear attention's state"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)

# Mixtures that a config counts as layers of their own, and what a pipeline then cuts.
define(
    "separate_moe_layers",
    r"L_e'",
    "1",
    "mixtures that are pipeline layers of their own, evenly behind the mixers; 0: none",
    minimum=0,
    integer=True,
)
define("pipeline_layers", "L_{pp}", "1", "layers as a pipeline cuts them into stages",
       minimum=1)  # fmt: skip

# Windows in some layers, and routed experts that work on a latent vector.
define("windowed_layers", "L_w", "1",
       "layers in which the window holds; 0: in all, where there is one", minimum=0,
       integer=True)  # fmt: skip
define("windowed_share", r"\lambda_w", "1", "share of layers in which the window holds",
       minimum=0, maximum=1)  # fmt: skip
# Sparse attention, whose indexer selects the tokens that are attended to.
for _name, _symbol, _meaning in (
    ("index_heads", "a_i", "heads of the indexer that selects tokens; 0: attention is not sparse"),
    ("index_head_size", "d_i", "size of a head of the indexer"),
    ("index_tokens", "k_i", "tokens that the indexer selects for each token"),
    ("index_layers", "L_i", "layers with an indexer of their own; 0: all, where there is one"),
    ("index_stride", "m_i", "tokens that one key of an indexer, and what it selects, stands for"),
    ("pooled_layers", "L_c", "layers that attend to vectors of several tokens beside the window"),
    ("pooled_stride", "m_c", "tokens that such a vector stands for, all of which are attended to"),
    ("output_rank", "r_o", "rank of each group's vector between the context and hidden; 0: none"),
    ("output_groups", "g_o", "groups of heads whose contexts are projected to such a vector each"),
    ("residual_streams", "n_r", "hidden states that the residual holds (hyper-connections)"),
    (
        "attention_sinks",
        "a_0",
        "numbers that a layer's softmax adds to the scores it sums up, a head each; 0: none",
    ),
    ("expert_groups", "G_g", "groups of routed experts, of which a token chooses some; 0: none"),
    ("groups_per_token", "M_g", "groups of routed experts in which a token has its experts"),
):
    define(_name, _symbol, "1", _meaning, minimum=0, integer=True)
define("index_share", r"\lambda_i", "1", "share of layers with an indexer of their own", minimum=0,
       maximum=1)  # fmt: skip
for _name, _symbol, _meaning in (
    ("index_weights", "W_i", "weights of a layer's indexer and of pooling, in the mean of layers"),
    ("pooling_weights", "W_c", "weights that make one vector of several tokens', in the mean"),
    ("pooled_span", "s_c", "vectors of several tokens attended to beside a window, in the mean"),
    ("index_norms", r"P_{\nu i}", "parameters of a layer's indexer's norm, in the mean of layers"),
    ("index_flops", "F_i", "forward FLOPs of one token by an indexer's scores, masked ones too"),
    ("causal_index_flops", "F_{ic}", "forward FLOPs of one token by an indexer's scores"),
    ("index_backward_flops", "F_{ib}", "backward FLOPs of one token by an indexer's scores"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)
define("whole_span", "s_w", "1",
       "tokens of a sequence, or of its document, that attention stays within",
       minimum=1)  # fmt: skip
define("selected_span", "s_i", "1", "tokens that attention selects of these", minimum=1)
define("index_activations", "A_i", "byte", "bytes a token of what a layer's indexer keeps",
       minimum=0)  # fmt: skip
define("expert_latent_size", "h_l", "1",
       "size of the latent vector that routed experts work on; 0: they work on the hidden state",
       minimum=0, integer=True)  # fmt: skip
define("expert_hidden_size", "h_e", "1", "inputs and outputs of a routed expert", minimum=0)
define("router_width", "n_r", "1", "outputs of the router, and of what leads to a latent vector",
       minimum=0)  # fmt: skip

# Fine-tuning that trains adapters of low rank alone, beside frozen weights.
define("lora_rank", r"r_{\mathrm{A}}", "1",
       "rank of adapters (LoRA), which alone are trained; 0: nothing is", minimum=0,
       integer=True)  # fmt: skip
for _name, _mark, _meaning in (
    ("lora_attention", "a", "attention's linear layers have adapters"),
    ("lora_mlp", "m", "linear layers of dense MLPs and shared experts have adapters"),
):
    define(_name, rf"\iota_{{{_mark}}}", "1", f"whether {_meaning}", minimum=0, maximum=1,
           integer=True)  # fmt: skip
for _name, _mark, _meaning in (
    ("attention_adapter_width", "w,a", "inputs and outputs of a layer's adapted attention"),
    ("mlp_adapter_width", "w,m", "inputs and outputs of a dense layer's adapted MLP"),
    ("shared_adapter_width", "w,s", "inputs and outputs of a layer's adapted shared experts"),
    ("adapter_parameters", "A", "parameters of all adapters of the model"),
    ("trained_parameters", "t", "parameters of a rank that are trained, routed experts left out"),
    ("trained_expert_parameters", "t,e", "parameters of a rank's routed experts that are trained"),
):
    define(_name, rf"\psi_{{{_named(_mark)}}}", "1", _meaning, minimum=0)

# Activations of one token and one layer.
define("rank_tokens", "T", "1", "tokens of a micro-batch on a rank", minimum=0, above=True)
define("sequence_shards", "t_s", "1", "ranks that share the activations between blocks", minimum=1)
for _name, _mark, _meaning in (
    ("checkpoint_activations", "0", "a layer's input"),
    ("block_activations", "block", "norm inputs, first attention product's input and masks"),
    ("mlp_input_activations", "in", "input of a dense MLP's first product"),
    ("moe_input_activations", "MoE,in", "input of a mixture's first products"),
    ("latent_activations", "latent", "latent vectors of attention"),
    ("attention_activations", "attention", "queries, keys, values and context"),
    ("linear_activations", "linear", "linear attention, layer mean"),
    ("score_activations", "scores", "what attention keeps of its scores"),
    ("mlp_activations", "MLP", "inside of a dense MLP"),
    ("router_activations", "router", "logits and probabilities of the router"),
    ("shared_expert_activations", "shared", "inside of shared experts"),
    ("expert_activations", "experts", "inputs, inside and outputs of routed experts"),
    ("attention_block_activations", "half", "what a layer stores beside its MLP"),
    ("dense_layer_activations", "dense", "what a dense layer makes"),
    ("moe_layer_activations", "MoE", "what a mixture-of-experts layer makes"),
    ("saved_attention_activations", "half,kept",
     "what a layer keeps beside its MLP where every second matrix product is kept"),
    ("dense_module_activations", "dense,mod", "what recomputed modules of a dense layer made"),
    ("moe_module_activations", "MoE,mod", "what recomputed modules of a mixture's layer made"),
    ("kept_dense_layer_activations", "dense,kept", "what a dense layer keeps for its backward"),
    ("kept_moe_layer_activations", "MoE,kept",
     "what a mixture-of-experts layer keeps for its backward"),
):  # fmt: skip
    define(_name, f"a_{{{_named(_mark)}}}", "byte", f"bytes a token: {_meaning}", minimum=0)

# What is computed again for the backward: layers of a chunk, or modules of a layer.
MODULES = {
    "core_attn": ("a", "scores and values of attention"),
    "layernorm": ("n", "both norms before a layer's blocks"),
    "mla_up_proj": ("u", "projections up from latent vectors"),
    "mlp": ("m", "the MLP of a dense layer"),
    "moe": ("x", "router, experts and their exchange"),
    "moe_act": ("e", "the activation function of routed experts"),
    "shared_experts": ("s", "shared experts"),
}
for _name, (_mark, _meaning) in MODULES.items():
    define(f"recompute_{_name}", rf"\chi_{{{_named(_mark)}}}", "1",
           f"whether selective recomputation repeats {_meaning}", minimum=0, maximum=1,
           integer=True)  # fmt: skip
define("chunk_layers", "L_c", "1", "layers of a chunk of a stage, the largest", minimum=0)
define("recompute_layers", "L_r", "1",
       "layers of each chunk that are recomputed (block), or of a unit (uniform)",
       minimum=0, integer=True)  # fmt: skip
for _name, _symbol, _meaning in (
    ("activation_offload", r"\varphi_a", "layers whose activations wait in the host's memory"),
    ("optimizer_offload", r"\varphi_o", "parameters that the host updates, with their states"),
):
    define(_name, _symbol, "1", f"share of {_meaning}", minimum=0, maximum=1)
define("offloaded_layers", "L_o", "1",
       "layers of the model whose activations wait in the host's memory", minimum=0,
       integer=True)  # fmt: skip
define("device_optimizer_bytes", "b_{od}", "byte",
       "bytes of the optimizer's states of a parameter that stay on the GPU",
       minimum=0)  # fmt: skip
define("needed_recompute_layers", "L_{ri}", "1",
       "layers of each chunk that have to be recomputed for a stage to fit", minimum=0)  # fmt: skip
define("recomputed_share", r"\varrho_c", "1", "share of a chunk's layers that are recomputed",
       minimum=0, maximum=1)  # fmt: skip
define("stage_recomputed_share", r"\varrho_i", "1",
       "share of the stage's layers that are recomputed", minimum=0, maximum=1)  # fmt: skip
define("recompute_units", "n_r", "1", "units of layers of a chunk that keep their first input",
       minimum=0)  # fmt: skip
define("memory_share", r"\eta_M", "1",
       "share of a GPU's memory that as few recomputed layers as fit leave full",
       minimum=0, above=True, maximum=1)  # fmt: skip

# Memory of a rank, by part.
for _name, _mark, _meaning in (
    ("weight_memory", "weights", "weights"),
    ("gradient_memory", "gradients", "gradients"),
    ("optimizer_memory", "optimizer", "states of the optimizer"),
    ("model_state_memory", "states", "weights, gradients and optimizer together"),
    ("gathered_memory", "gathered", "weights that ZeRO-3 holds gathered"),
    ("pending_gradient_memory", "pending", "gradients that wait, not sharded yet"),
    ("bucket_memory", "buckets", "buckets of gradients on their way"),
    ("placeholder_memory", "placeholders", "placeholders for gradients added up elsewhere"),
    ("stored_activation_memory", "stored", "activations of layers, of all micro-batches in flight"),
    ("micro_batch_activation_memory", "kept", "activations of layers, of one micro-batch"),
    ("offloaded_activation_memory", "host", "activations of layers that the host's memory holds"),
    ("whole_activation_memory", "whole", "activations of layers if nothing is recomputed"),
    ("no_memory", "0", "none"),
    ("unrecomputed_memory", "all", "all together if nothing is recomputed"),
    ("live_activation_memory", "live", "activations of the one layer that is recomputed"),
    ("embedding_activation_memory", "embedding", "dropout mask behind the embedding"),
    ("middle_activation_memory", "kept,mid", "activations of a middle stage, of one micro-batch"),
    ("output_activation_memory", "output", "inputs of the last norm and of the output layer"),
    ("activation_memory", "activations", "all activations but logits"),
    ("logits_memory", "logits", "logits and loss"),
    ("allocated_memory", "allocated", "all that the framework allocates"),
    ("communicator_memory", "communicators", "buffers of the communicators"),
    ("exchange_memory", "exchange", "buffers of what experts are sent, outside of the allocator"),
    ("memory", "total", "all together"),
    ("first_stage_memory", "first", "all together, on the first stage"),
    ("middle_stage_memory", "middle", "all together, on the fullest of the middle stages"),
    ("last_stage_memory", "last", "all together, on the last stage"),
    ("peak_memory", "peak", "all together, on the fullest stage"),
    ("memory_capacity", "capacity", "what the GPU has"),
    ("host_optimizer_memory", "host,o", "what of the optimizer the host's memory holds, a GPU"),
    ("host_stored_memory", "host,a", "what of activations the host's memory holds, at most, a GPU"),
    ("host_memory", "host,all", "all that waits in the host's memory, a GPU"),
    ("host_memory_capacity", "host,capacity", "what the host has, a GPU"),
    ("workspace_bytes", "workspace", "workspaces of libraries"),
    ("context_bytes", "context", "the driver's context"),
    ("bucket_bytes", "bucket", "one bucket of gradients"),
    ("channel_buffer_bytes", "channel", "buffers of one channel of a communicator"),
):
    define(_name, f"M_{{{_named(_mark)}}}", "byte", f"memory: {_meaning}", minimum=0)
# A difference: no domain.
define("headroom", r"M_{\mathrm{free}}", "byte", "memory that is left on the fullest stage")
define("buckets", "n_b", "1", "buckets of gradients that exist at once", minimum=0)
define("communicators", "n_c", "1", "communicators of more than one rank", minimum=0)
define("communicator_channels", "n_{ch}", "1", "channels of a communicator", minimum=0)
define("reserve_factor", "r_m", "1", "memory that the allocator reserves by what it allocates",
       minimum=1)  # fmt: skip

# The publications that the formulas of memory cite.

cite(
    "hybridep",
    "NVIDIA, Hybrid-EP: dispatch and combine of experts' tokens, branch hybrid-ep of DeepEP, 2026",
    "github.com/deepseek-ai/DeepEP",
)

# What a total is made of.
PARTS: dict[str, Quantity] = {
    name: VOCABULARY[name]
    for name in (
        "weight_memory",
        "gradient_memory",
        "optimizer_memory",
        "gathered_memory",
        "pending_gradient_memory",
        "bucket_memory",
        "placeholder_memory",
        "stored_activation_memory",
        "live_activation_memory",
        "embedding_activation_memory",
        "output_activation_memory",
        "logits_memory",
        "workspace_bytes",
        "communicator_memory",
        "context_bytes",
    )
}

cite(
    "korthikanti2022",
    "V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022",
    "arXiv:2205.05198",
)
cite(
    "rajbhandari2020",
    "S. Rajbhandari, J. Rasley, O. Ruwase and Y. He, ZeRO: memory optimizations toward training "
    "trillion parameter models, SC, 2020",
    "arXiv:1910.02054",
)
cite(
    "zhao2023",
    "Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB, 2023",
    "arXiv:2304.11277",
)
cite(
    "dettmers2022",
    "T. Dettmers, M. Lewis, S. Shleifer and L. Zettlemoyer, 8-bit optimizers via block-wise "
    "quantization, ICLR, 2022",
    "arXiv:2110.02861",
)
cite(
    "micikevicius2018",
    "P. Micikevicius et al., Mixed precision training, ICLR, 2018",
    "arXiv:1710.03740",
)
cite(
    "dao2022",
    "T. Dao, D. Y. Fu, S. Ermon, A. Rudra and C. Re, FlashAttention: fast and memory-efficient "
    "exact attention with IO-awareness, NeurIPS, 2022",
    "arXiv:2205.14135",
)
cite(
    "chen2016",
    "T. Chen, B. Xu, C. Zhang and C. Guestrin, Training deep nets with sublinear memory cost, 2016",
    "arXiv:1604.06174",
)
cite(
    "transformerengine",
    "NVIDIA, Transformer Engine",
    "github.com/NVIDIA/TransformerEngine",
)
cite(
    "yang2025",
    "S. Yang, J. Kautz, A. Hatamizadeh, Gated delta networks: improving Mamba2 with delta rule, "
    "ICLR, 2025",
    "arXiv:2412.06464",
)
cite(
    "hu2021",
    "E. J. Hu et al., LoRA: low-rank adaptation of large language models, ICLR, 2022",
    "arXiv:2106.09685",
)
cite("torchtitan", "PyTorch, torchtitan", "github.com/pytorch/torchtitan")

# Precision recipes: bytes a parameter takes as weight, as gradient, and in the optimizer.


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes a parameter of a precision recipe."""

    name: str  # Its name
    # Bytes of a weight, of a gradient, and of the optimizer's states for one parameter, a master
    # copy of the weight among them
    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    # Bytes of a stored activation, and of a stored input of a matrix product
    activation_bytes: float
    matmul_input_bytes: float
    meaning: str  # What it is, in words
    source: str  # The key of its publication, and the place in it
    where: str = ""  # The key of its publication, and the place in it

    @property
    def reference(self) -> str:
        """The source with the place in it."""
        return SOURCES[self.source].at(self.where)

    def given(self) -> dict[str, float]:
        """Return its values by the vocabulary's names."""
        names = ("weight", "gradient", "optimizer", "activation", "matmul_input")
        return {f"{name}_bytes": getattr(self, f"{name}_bytes") for name in names}


MEGATRON = ("megatron", "user guide, distributed optimizer, table of bytes a parameter")
SIXTEEN = (2.0, 2.0)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp32_adam", 4, 4, 8, 4, 4, "single precision throughout", *MEGATRON),
        Recipe(
            "fsdp_adam", 4, 4, 8, *SIXTEEN,
            "single precision shards, gathered and computed in 16 bits", "zhao2023", "section 4.4",
        ),
        Recipe(
            "mixed_adam", 2, 2, 12, *SIXTEEN,
            "16-bit weights and gradients, single precision master and two moments",
            "rajbhandari2020", "section 3.1",
        ),
        Recipe(
            "megatron_bf16", 2, 4, 12, *SIXTEEN,
            "16-bit weights, gradients added up in single precision, master and two moments",
            *MEGATRON,
        ),
        Recipe(
            "bf16_moments", 2, 2, 8, *SIXTEEN,
            "16-bit weights and gradients, single precision master, two 16-bit moments",
            "megatron", "megatron/core/optimizer/optimizer_config.py: exp_avg_dtype,"
            " exp_avg_sq_dtype",
        ),
        Recipe(
            "muon", 2, 2, 8, *SIXTEEN,
            "16-bit weights and gradients, single precision master and one momentum",
            "megatron", "megatron/core/optimizer/muon.py; the few weights that Adam updates"
            " are counted as the others",
        ),
        Recipe(
            "megatron_fp16", 2, 2, 16, *SIXTEEN,
            "16-bit weights and gradients; master, its gradient and two moments in single",
            *MEGATRON,
        ),
        Recipe(
            "two_moments", 2, 2, 8, *SIXTEEN,
            "16-bit weights and gradients, two single precision moments, no master copy",
            "rajbhandari2020", "section 3.1, without the master copy",
        ),
        Recipe(
            "adam_8bit", 2, 2, 6, *SIXTEEN,
            "16-bit weights and gradients, single precision master, two 8-bit moments",
            "dettmers2022", "section 1.1; scales of blocks left out",
        ),
        Recipe(
            "bf16_adam_8bit", 2, 2, 2, *SIXTEEN,
            "16-bit weights and gradients, two 8-bit moments, no master copy",
            "dettmers2022", "section 1.1; scales of blocks left out",
        ),
        Recipe(
            "bf16_adam", 2, 2, 4, *SIXTEEN,
            "16-bit weights, gradients and two moments, no master copy",
            "rajbhandari2020", "section 3.1, all in 16 bits",
        ),
        Recipe(
            "sgd_momentum", 2, 2, 8, *SIXTEEN,
            "16-bit weights and gradients, single precision master and momentum",
            "micikevicius2018", "section 3.1",
        ),
        Recipe(
            "fp8_adam", 1, 2, 12, 2, 1,
            "8-bit weights, 16-bit gradients, single precision master and two moments",
            *MEGATRON,
        ),
        Recipe(
            "forward_only", 2, 0, 0, *SIXTEEN,
            "16-bit weights alone: no gradients, no optimizer", "rajbhandari2020", "section 3.1",
        ),
    )
}  # fmt: skip
