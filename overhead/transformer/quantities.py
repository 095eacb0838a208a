"""The vocabulary of a transformer: its shapes, its parameters, its floating-point operations."""

from __future__ import annotations

from overhead.labels import TENSORS
from overhead.quantity import define
from overhead.source import cite

# A model's own shapes, in the order in which people give them; a flag is 0 or 1.
_SIZES = {
    "layers": ("L", "transformer layers", 1),
    "hidden_size": ("h", "hidden size", 1),
    "heads": ("a", "query heads of a layer's attention", 1),
    "kv_heads": ("k", "key and value heads of a layer's attention", 1),
    "head_size": ("d", "size of an attention head", 1),
    "ffn_size": ("f", "inner size of a dense layer's MLP", 0),
    "vocabulary_size": ("V", "tokens in the vocabulary", 1),
    "learned_positions": (r"s_\mathrm{max}", "learned positions; 0 where there are none", 0),
    "experts": ("E", "routed experts of a mixture-of-experts layer; 0 in a dense model", 0),
    "experts_per_token": ("E_t", "routed experts that a token is sent to", 0),
    "expert_ffn_size": ("f_e", "inner size of one routed expert", 0),
    "shared_ffn_size": ("f_s", "inner size of all shared experts together", 0),
    "dense_layers": ("L_d", "first layers, which are dense in a mixture of experts", 0),
    "moe_every": (
        "m_e",
        "of how many layers one is a mixture of experts, after the first dense ones",
        1,
    ),
    "q_rank": ("r_q", "rank of the queries' latent vector; 0 where there is none", 0),
    "kv_rank": (
        r"r_{kv}",
        "rank of the latent vector of keys and values (multi-head latent attention); 0: none",
        0,
    ),
    "head_size_plain": ("d_n", "part of a latent attention's head that has no rotation", 0),
    "head_size_rope": ("d_r", "part of a latent attention's head that is rotated", 0),
    "head_size_value": ("d_v", "size of a latent attention's value head", 0),
    "window": ("w", "tokens that the attention window holds; 0 where there is none", 0),
}
_FLAGS = {
    "gated": ("g", "whether the MLP is gated (three matrices, not two)"),
    "tied_embeddings": (r"\tau", "whether the output layer shares the embedding's table"),
    "biases": (r"\beta", "whether all linear layers have a bias"),
    "qkv_biases": (r"\beta_{qkv}", "whether the projections to queries, keys, values have one"),
    "qk_norms": (r"\nu_{qk}", "whether each head's queries and keys are normalised"),
    "layer_norm": (r"\nu", "whether norms are layer norms with a bias (0: RMS norms)"),
    "router_bias": (r"\beta_r", "whether the router has a bias for each expert"),
}

for _name, (_symbol, _meaning, _least) in _SIZES.items():
    define(_name, _symbol, "1", _meaning, minimum=_least, integer=True)
for _name, (_symbol, _meaning) in _FLAGS.items():
    define(_name, _symbol, "1", _meaning, minimum=0, maximum=1, integer=True)

FLAGS: tuple[str, ...] = tuple(_FLAGS)
SHAPES: tuple[str, ...] = (*_SIZES, *_FLAGS)
# Shapes that no rule gives.
VITAL = (*TENSORS, "gated", "tied_embeddings")

# What isn't the model's own but needed with it.
define("sequence_length", "s", "1", "tokens in a sequence", minimum=1, integer=True)
define("tokens_per_step", "T_s", "1", "tokens in a step's global batch", minimum=1, integer=True)

# One layer's attention.
define("query_head_size", "d_q", "1", "size of a query or key head as scores need it", minimum=0)
define("value_head_size", r"d_{vo}", "1", "size of a value head as the context has it", minimum=0)
for _name, _symbol, _meaning in (
    ("query_down_weights", r"W_{\downarrow q}", "weights from hidden to the queries' latent"),
    ("query_weights", "W_q", "weights to the queries (from their latent vector, if any)"),
    ("key_value_down_weights", r"W_{\downarrow kv}", "weights from hidden to the latent vector"),
    ("key_value_weights", r"W_{kv}", "weights to keys and values (from the latent vector, if any)"),
    ("attention_output_weights", "W_o", "weights from the attention's context back to hidden"),
    ("attention_weights", "W_a", "weights of one layer's attention that matrix products use"),
    ("qkv_outputs", r"n_{qkv}", "outputs of the projections to queries, keys and values"),
    ("attention_bias_parameters", r"P_{\beta}", "biases of one layer's attention"),
    ("attention_norm_parameters", r"P_{\nu a}", "norms inside one layer's attention"),
    ("attention_parameters", "P_a", "parameters of one layer's attention"),
    # One layer's MLP, dense or of experts.
    ("mlp_weights", "W_m", "weights of one dense layer's MLP that matrix products use"),
    ("mlp_parameters", "P_m", "parameters of one dense layer's MLP"),
    ("expert_weights", "W_e", "weights of one routed expert that matrix products use"),
    ("expert_parameters", "P_e", "parameters of one routed expert"),
    ("shared_expert_weights", "W_s", "weights of a layer's shared experts that products use"),
    ("shared_expert_parameters", "P_s", "parameters of one layer's shared experts"),
    ("router_weights", "W_r", "weights of one layer's router"),
    ("router_parameters", "P_r", "parameters of one layer's router"),
    ("moe_parameters", r"P_\mathrm{moe}", "parameters of one layer's mixture of experts"),
    (
        "active_moe_parameters",
        r"P'_\mathrm{moe}",
        "parameters of one layer's mixture of experts that one token meets",
    ),
    ("moe_layers", r"L_\mathrm{moe}", "layers whose MLP is a mixture of experts"),
    ("dense_mlp_layers", r"L_\mathrm{mlp}", "layers whose MLP is dense"),
    # The whole.
    ("norm_parameters", r"P_\nu", "parameters of one norm over the hidden size"),
    ("dense_layer_parameters", r"P_{Ld}", "parameters of one dense layer"),
    ("moe_layer_parameters", r"P_{Le}", "parameters of one mixture-of-experts layer"),
    (
        "active_moe_layer_parameters",
        r"P'_{Le}",
        "parameters of one mixture-of-experts layer that one token meets",
    ),
    ("embedding_parameters", "P_V", "parameters of the embedding's table"),
    ("output_parameters", "P_{V'}", "parameters of the output layer that the embedding lacks"),
    ("position_parameters", "P_s", "parameters of the learned positions"),
    ("outside_parameters", "P_0", "parameters outside of the layers"),
    ("parameters", r"\Psi", "parameters of the model"),
    ("active_parameters", r"\Psi'", "parameters of the model that one token meets"),
    # Floating-point operations: a multiplication and an addition are two.
    ("active_weights", "W'", "weights in the layers whose matrix products one token goes through"),
    ("weight_flops_per_token", r"F_W", "forward FLOPs of one token by the layers' weights"),
    ("logits_flops_per_token", r"F_V", "forward FLOPs of one token by the output layer"),
    ("attention_span", r"\bar{s}", "tokens that one token's scores span, masked ones counted"),
    (
        "causal_attention_span",
        r"\bar{s}_c",
        "mean number of tokens that one token attends to, masked ones not counted",
    ),
    (
        "attention_flops_per_token",
        "F_a",
        "forward FLOPs of one token by scores and values, masked ones counted",
    ),
    (
        "causal_attention_flops_per_token",
        r"F_{ac}",
        "forward FLOPs of one token by scores and values, masked ones not counted",
    ),
    ("forward_flops_per_token", "F", "forward FLOPs of one token, masked scores counted"),
    (
        "causal_forward_flops_per_token",
        "F_c",
        "forward FLOPs of one token, masked scores not counted",
    ),
    (
        "model_flops_per_token",
        "F_3",
        "FLOPs of one token's training, masked scores counted, nothing recomputed",
    ),
    (
        "causal_model_flops_per_token",
        r"F_{3c}",
        "FLOPs of one token's training, masked scores not counted, nothing recomputed",
    ),
    ("model_flops", r"F_\Sigma", "FLOPs of a step, masked scores counted, nothing recomputed"),
    (
        "causal_model_flops",
        r"F_{\Sigma c}",
        "FLOPs of a step, masked scores not counted, nothing recomputed",
    ),
):
    define(_name, _symbol, "1", _meaning, minimum=0)

# The publications that the formulas of a transformer cite, by their keys.

VASWANI = cite(
    "vaswani2017",
    "A. Vaswani et al., Attention is all you need, NeurIPS, 2017",
    "arXiv:1706.03762",
).key
SHAZEER = cite(
    "shazeer2020",
    "N. Shazeer, GLU variants improve transformer, 2020",
    "arXiv:2002.05202",
).key
NARAYANAN = cite(
    "narayanan2021",
    "D. Narayanan et al., Efficient large-scale language model training on GPU clusters using "
    "Megatron-LM, SC, 2021",
    "arXiv:2104.04473",
).key
CHOWDHERY = cite(
    "chowdhery2022",
    "A. Chowdhery et al., PaLM: scaling language modeling with Pathways, 2022",
    "arXiv:2204.02311",
).key
AINSLIE = cite(
    "ainslie2023",
    "J. Ainslie et al., GQA: training generalized multi-query transformer models from multi-head "
    "checkpoints, EMNLP, 2023",
    "arXiv:2305.13245",
).key
MISTRAL = cite(
    "mistral2023",
    "A. Q. Jiang et al., Mistral 7B, 2023",
    "arXiv:2310.06825",
).key
MIXTRAL = cite(
    "mixtral2024",
    "A. Q. Jiang et al., Mixtral of experts, 2024",
    "arXiv:2401.04088",
).key
DEEPSEEK_V2 = cite(
    "deepseekv2",
    "DeepSeek-AI, DeepSeek-V2: a strong, economical, and efficient mixture-of-experts language "
    "model, 2024",
    "arXiv:2405.04434",
).key
DEEPSEEK_V3 = cite(
    "deepseekv3",
    "DeepSeek-AI, DeepSeek-V3 technical report, 2024",
    "arXiv:2412.19437",
).key
