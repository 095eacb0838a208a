"""The vocabulary of what a GPU computes: its rates, one layer's work by part, a stage's layers."""

from __future__ import annotations

import math

from overhead.quantity import define
from overhead.source import cite

RATE, BANDWIDTH = "1 s-1", "byte s-1"


def _named(name: str) -> str:
    return rf"\mathrm{{{name}}}"


# What a GPU and its software do.
for _name, _symbol, _meaning in (
    ("peak_flops", r"F_\mathrm{peak}", "dense peak rate, at the matrix products' precision"),
    ("attention_peak_flops", "F_{16}", "dense peak rate in 16 bit, of which attention makes use"),
    ("best_matmul_flops", r"F_\mathrm{best}", "rate of the best measured matrix product"),
    (
        "layer_matmul_flops",
        r"\bar{F}_\mathrm{best}",
        "rate of the best matrix product in the mean of layers, some of which stay in 16 bits",
    ),
    (
        "attention_matmul_flops",
        r"\bar{F}_\mathrm{best,a}",
        "rate of the best matrix product around attention, in the mean of layers",
    ),
    (
        "expert_matmul_flops",
        r"\bar{F}_\mathrm{best,e}",
        "rate of the best matrix product of routed experts, in the mean of layers",
    ),
    (
        "context_matmul_flops",
        r"F_\mathrm{best,o}",
        "rate of the best product of attention's context, whose first may be in 16 bits",
    ),
    (
        "output_matmul_flops",
        r"F_\mathrm{best,16}",
        "rate of the best matrix product in 16 bit (output layer, router, unfused attention)",
    ),
):
    define(_name, _symbol, RATE, _meaning, minimum=0, above=True)
define(
    "memory_bandwidth", r"B_\mathrm{mem}", BANDWIDTH, "bandwidth of a GPU's memory", minimum=0,
    above=True,
)  # fmt: skip
define("attention_speedup", r"\sigma_a", "1",
       "rate of scores and values in the precision they are computed in, by that in 16 bits",
       minimum=0, above=True)  # fmt: skip
for _name, _symbol, _meaning in (
    ("matmul_efficiency", r"\eta_m", "share of the best product's rate that a long run sustains"),
    (
        "sized_matmul_efficiency",
        r"\eta'_m",
        "share of the best product's rate that a long run sustains at this hidden size",
    ),
    (
        "grouped_matmul_efficiency",
        r"\eta_g",
        "share of the best product's rate that a long run sustains in products of groups",
    ),
    ("memory_efficiency", r"\eta_b", "share of the memory's bandwidth that a kernel reaches"),
    ("attention_efficiency", r"\eta_a", "share of the peak that the attention kernel reaches"),
    (
        "attention_backward_efficiency",
        r"\eta_{ab}",
        "rate of a fused attention's backward by its forward's",
    ),
    (
        "unfused_efficiency",
        r"\eta_u",
        "rate of an unfused attention's matrix products by that of others",
    ),
):
    # No kernel outruns the memory, nor the peak.
    _most = 1 if _name in ("memory_efficiency", "attention_efficiency") else math.inf
    define(_name, _symbol, "1", _meaning, minimum=0, maximum=_most, above=True)
define("grouped_matmul_share", r"\sigma_g", "1",
       "rate of experts' products in one kernel by that of a product by itself", minimum=0,
       maximum=1, above=True)  # fmt: skip
define(
    "odd_size_loss", r"\lambda_o", "1",
    "loss of a matrix product's rate where tiles of 128 don't fill the hidden size", minimum=0,
    maximum=0.99,
)  # fmt: skip
define("scan_rate", r"\sigma_s", "1",
       "rate at which a linear attention's kernels move bytes, by that of others", minimum=0,
       maximum=1, above=True)  # fmt: skip
define("fused_accumulation", r"\chi_\Sigma", "1",
       "whether the product of a weights' gradient adds it to those of earlier micro-batches",
       minimum=0, maximum=1, integer=True)  # fmt: skip
define("weight_gradient_bytes", r"b_{w,\Sigma}", "byte",
       "bytes that a weight's gradient moves in its product, and where it is added up",
       minimum=0)  # fmt: skip
define("matmul_floor", r"t_0", "s", "least time of a matrix product's kernel", minimum=0)
define(
    "matmul_depth_time", r"t_k", "s", "time of a matrix product by each unit of its depth",
    minimum=0,
)  # fmt: skip
define(
    "attention_half_length", r"s_{1/2}", "1",
    "keys at which an attention kernel runs at half of its rate", minimum=0,
)  # fmt: skip
define(
    "attention_slowdown", r"\phi_a", "1",
    "time of a fused attention by what its operations take at its rate of long sequences",
    minimum=0,
)  # fmt: skip
define("host_time", r"t_h", "s", "time in which the host launches one operation", minimum=0)
define(
    "launch_share", "s_h", "1",
    "share of the launches that graphs leave, of all but experts' own; 0: all are in one",
    minimum=0, maximum=1,
)  # fmt: skip
define(
    "launch_wait", "w_h", "1", "share of the launches' time for which the GPU waits in any case",
    minimum=0, maximum=1,
)  # fmt: skip
for _name, _mark, _meaning in (
    ("forward_operations", "f", "operations that the host launches in a layer's forward"),
    ("backward_operations", "b", "operations that the host launches in a layer's backward"),
    ("recompute_operations", "r", "operations that the host launches to recompute a layer"),
):
    define(_name, f"o_{_mark}", "1", _meaning, minimum=0)
define(
    "cast_launches", "o_c", "1", "operations that the host launches to cast what a product takes",
    minimum=0,
)  # fmt: skip
for _name, _symbol, _meaning in (
    ("expert_casts", "k_e", "kernels that cast what one expert's product takes, its own alone"),
    (
        "expert_cast_launches",
        "o_{ce}",
        "operations launched to cast an expert's inputs",
    ),
):
    define(_name, _symbol, "1", _meaning, minimum=0)
define(
    "elementwise_factor", r"\phi_e", "1",
    "bytes that element-wise work moves by those of fused kernels (1; eager: about 4)", minimum=0,
    above=True,
)  # fmt: skip
define("loss_bytes", r"b_\ell", "byte", "bytes that loss and its gradient move, a logit", minimum=0)

# One matrix product.
for _name, _symbol, _meaning in (
    ("matmul_rows", "m_r", "rows of a matrix product's result"),
    ("matmul_columns", "n_c", "columns of a matrix product's result"),
    ("matmul_depth", "k_d", "depth of a matrix product: what its sums run over"),
    ("matmul_groups", "g_m", "products that one grouped kernel computes"),
    # Sizes on one rank.
    ("qkv_width", "n_q", "outputs of the projections to queries, keys, values, on one rank"),
    (
        "latent_width",
        "n_l",
        "outputs of projections up from latent vectors beyond their weights by hidden, of one rank",
    ),
    (
        "up_projection_width",
        "n_u",
        "outputs of projections up from latent vectors: weights / hidden size, on one rank",
    ),
    ("attention_width", "n_o", "size of the attention's context, on one rank"),
    ("mlp_width", "n_f", "inner size of a dense MLP, on one rank"),
    ("mlp_up_width", "n_{uf}", "outputs of a dense MLP's first product, on one rank"),
    ("shared_width", "n_s", "inner size of shared experts, on one rank"),
    ("shared_up_width", "n_{us}", "outputs of the shared experts' first product, on one rank"),
    ("expert_width", "n_e", "inner size of one routed expert, on one rank"),
    ("expert_up_width", "n_{ue}", "outputs of a routed expert's first product, on one rank"),
    ("vocabulary_width", "n_V", "rows of the output layer's table, on one rank"),
    ("mtp_width", "n_p", "outputs of the projection for a further token, on one rank"),
    ("mtp_depth", "k_p", "inputs of the projection for a further token"),
    ("router_tokens", "T_r", "tokens that a rank routes"),
    ("local_experts", "E_l", "routed experts of a rank"),
    ("expert_tokens", "T_e", "tokens of a micro-batch that one expert of a rank works on"),
    ("attention_tile", "T_a", "tokens along a side of a fused attention kernel's blocks"),
    ("causal_tiled_span", "s_T", "tokens of the blocks in which one token's scores are computed"),
    ("attended_span", "s_a", "tokens against which attention computes one token's scores"),
    ("indexed_forward_flops", "F_{if}", "operations of a token's forward by an indexer's scores"),
    ("attention_length", "s_k", "keys that one call of the attention kernel goes through"),
    ("attention_forward_flops", "F_{af}", "operations of a layer's scores and values, on one rank"),
    ("attention_backward_flops", "F_{ab}", "operations of their backward, on one rank"),
    ("attention_scores", "S_a", "scores that a layer's attention holds, on one rank"),
):
    define(_name, _symbol, "1", _meaning, minimum=0)
define("matmul_time", r"t_\mathrm{mm}", "s", "time of a matrix product", minimum=0)
define(
    "grouped_matmul_time", r"t_\mathrm{gmm}", "s", "time of matrix products in one kernel",
    minimum=0,
)  # fmt: skip

PRODUCTS = (
    ("qkv", "qkv", "the product to queries, keys and values"),
    ("attention_output", "o", "the product of the attention's context"),
    ("mlp_up", "u", "the first product of a dense MLP"),
    ("mlp_down", "d", "the last product of a dense MLP"),
    ("router", "r", "the router's product"),
    ("shared_up", "su", "the first product of the shared experts"),
    ("shared_down", "sd", "the last product of the shared experts"),
    ("expert_up", "eu", "the first product of a rank's routed experts"),
    ("expert_down", "ed", "the last product of a rank's routed experts"),
    ("logits", "V", "the output layer's product"),
    ("mtp_projection", "p", "the product that joins a hidden state and the next token"),
)
for _name, _mark, _words in PRODUCTS:
    for _kind, _letter, _what in (
        ("forward", "f", _words),
        ("input_gradient", "x", f"the input's gradient of {_words}"),
        ("weight_gradient", "w", f"the weights' gradient of {_words}"),
    ):
        _symbol = rf"t_{{\mathrm{{{_mark},{_letter}}}}}"
        define(f"{_name}_{_kind}_time", _symbol, "s", f"time of {_what}", minimum=0)

# One layer and one micro-batch, on one rank.
CLASSES = (("dense", "D", "a dense layer"), ("moe", "E", "a mixture-of-experts layer"))
_OF_A_LAYER = (
    ("layer_matmul_forward", "m,f", "the forward's matrix products"),
    ("layer_input_gradient", "m,x", "the matrix products that give inputs' gradients"),
    ("layer_weight_gradient", "m,w", "the matrix products that give weights' gradients"),
    ("layer_matmul", "m", "all matrix products"),
    (
        "layer_adapter",
        "A",
        "the products of a layer's adapters, forward or of one of two gradients",
    ),
    ("layer_elementwise_forward", "e,f", "the forward's element-wise work"),
    ("layer_elementwise_backward", "e,b", "the backward's element-wise work"),
    ("layer_elementwise", "e", "all element-wise work"),
    ("layer_recompute", "r", "what is computed again for the backward"),
    ("layer_matmul_again", "m,r", "the forward's matrix products that the backward repeats"),
    ("layer_elementwise_again", "e,r", "the forward's element-wise work that is repeated"),
    ("layer_forward_gpu", "g,f", "the forward, but for the host"),
    ("layer_backward_gpu", "g,b", "the backward, but for the host"),
    ("layer_forward", "f", "the forward"),
    ("layer_backward", "b", "the backward"),
    ("layer", "L", "the layer"),
    ("layer_host", "h", "what waiting for the host adds"),
    ("layer_forward_host", "h,f", "the host's launches of the forward"),
    ("layer_backward_host", "h,b", "the host's launches of the backward"),
    ("exposed_tp_forward", "tp,f", "tensor parallelism's communication exposed in the forward"),
    ("exposed_tp_backward", "tp,b", "tensor parallelism's communication exposed in the backward"),
    ("exposed_tp", "tp", "tensor parallelism's exposed communication"),
)
for _class, _letter, _words in CLASSES:
    for _name, _mark, _what in _OF_A_LAYER:
        _symbol = rf"t_{{{_named(f'{_letter},{_mark}')}}}"
        define(f"{_class}_{_name}_time", _symbol, "s", f"time, of {_words}: {_what}", minimum=0)
    for _way in ("forward", "backward"):
        _meaning = f"operations that the host launches in the {_way} of {_words}"
        _symbol = f"o_{{{_letter}{_way[0]}}}"
        define(f"{_class}_{_way}_launches", _symbol, "1", f"{_meaning}, casts too", minimum=0)
for _name, _mark, _meaning in (
    ("attention_forward", "a,f", "attention's scores and values, forward"),
    ("attention_backward", "a,b", "attention's scores and values, backward"),
    ("attention", "a", "attention's scores and values"),
    ("exposed_cp_forward", "cp,f", "context parallelism's communication exposed in the forward"),
    ("exposed_cp_backward", "cp,b", "context parallelism's communication exposed in the backward"),
    ("layer_exposed_cp", "cp", "context parallelism's exposed communication"),
    ("exposed_ep_forward", "ep,f", "expert parallelism's communication exposed in the forward"),
    ("exposed_ep_backward", "ep,b", "expert parallelism's communication exposed in the backward"),
    ("layer_exposed_ep", "ep", "expert parallelism's exposed communication"),
):
    _symbol = rf"t_{{{_named(_mark)}}}"
    define(f"{_name}_time", _symbol, "s", f"time, of a layer: {_meaning}", minimum=0)
for _name, _mark, _meaning in (
    ("half_elementwise", "e", "element-wise work beside the MLP"),
    ("dense_elementwise", "D,e", "element-wise work of a dense layer"),
    ("moe_elementwise", "E,e", "element-wise work of a mixture-of-experts layer"),
    ("dense_cast_forward", "D,c,f", "casts of a dense layer's forward to the products' precision"),
    ("dense_cast_backward", "D,c,b", "casts of a dense layer's backward"),
    ("moe_cast_forward", "E,c,f", "casts of a mixture-of-experts layer's forward"),
    ("moe_cast_backward", "E,c,b", "casts of a mixture-of-experts layer's backward"),
    ("mixing_forward", "r,f", "kernels that mix several residuals, forward"),
    ("mixing_backward", "r,b", "kernels that mix several residuals, backward"),
    ("routing_forward", "E,r,f", "scores of a mixture's router, and its choice, forward"),
    ("routing_backward", "E,r,b", "scores of a mixture's router, and its choice, backward"),
    ("scan_forward", "s,f", "a linear attention's own kernels, forward, in the mean of layers"),
    ("scan_backward", "s,b", "a linear attention's own kernels, backward, in the mean of layers"),
):
    _symbol = rf"\beta_{{{_named(_mark)}}}"
    define(f"{_name}_bytes", _symbol, "byte", f"bytes moved: {_meaning}", minimum=0)

# Ends of the model, of one micro-batch.
for _name, _mark, _meaning in (
    ("embedding_gpu", "emb,g", "the embedding, forward and backward, but for the host"),
    ("embedding", "emb", "the embedding, forward and backward"),
    ("loss", "loss", "loss and its gradient"),
    ("mtp_elementwise", "mtp,e", "norms of a further token, and joining its inputs"),
    ("mtp", "mtp", "further tokens: projection, embedding, logits and loss, but for the host"),
    ("output_gpu", "out,g", "output layer and loss, forward and backward, but for the host"),
    ("output", "out", "output layer and loss, forward and backward"),
):
    define(f"{_name}_time", rf"t_{{{_named(_mark)}}}", "s", f"time of {_meaning}", minimum=0)

# Stages.
define(
    "middle_stage", "i_m", "1", "place of the stage that stands for those between the ends",
    minimum=0, integer=True,
)  # fmt: skip
for _place, _letter, _words in (
    ("first", "0", "the first stage"),
    ("middle", "i", "a stage between"),
    ("last", r"\ell", "the last stage"),
):
    for _name, _mark, _what in (("mlp", "m", "dense"), ("moe", "e", "with experts")):
        _meaning = f"layers of {_words}: {_what}"
        define(f"{_place}_{_name}_layers", rf"L_{{{_mark}{_letter}}}'", "1", _meaning, minimum=0)
        define(f"{_place}_even_{_name}_layers", rf"L_{{{_mark}{_letter}}}''", "1",
               f"{_meaning}, were all stages even", minimum=0)  # fmt: skip
define(
    "lacking_layers", r"\delta_L", "1", "layers that the last stage has fewer than the others",
    minimum=0,
)  # fmt: skip
for _name, _mark, _meaning in (
    ("middle_layers_forward", "i,l,f", "a stage's layers alone, forward"),
    ("middle_layers_backward", "i,l,b", "a stage's layers alone, backward"),
    ("offload_transfer", "i,o", "a micro-batch's activations to the host's memory, or back"),
    ("exposed_offload_forward", "i,o,f", "what of that a stage's forward doesn't hide"),
    ("exposed_offload_backward", "i,o,b", "what of that a stage's backward doesn't hide"),
    ("middle_forward", "i,f", "a stage's layers, forward"),
    ("middle_backward", "i,b", "a stage's layers, backward"),
):
    define(f"{_name}_time", rf"T_{{{_named(_mark)}}}", "s", f"time of {_meaning}", minimum=0)
define(
    "ends_extra_time", r"x_{\mathrm{ends}}", "s",
    "time of a micro-batch in the slower of the ends beyond that in a stage between",
)  # fmt: skip

# The publications that the formulas of a GPU's work cite.

MEASURED = cite(
    "xlamatmul",
    "OpenXLA, measured matrix products of two GPUs, shipped with JAX's CUDA plug-in 0.9.2",
    "github.com/openxla/xla",
).key
KERNELS = cite(
    "kernels2026",
    "Kernels alone on one H100 SXM and one H200 SXM, 700 W, PyTorch 2.11 with cuDNN 9.19, "
    "measured for this product, 2026",
    "specs/measured/kernels.csv",
).key
TILES = cite(
    "nvidiamatmul",
    "NVIDIA, Matrix multiplication background user's guide",
    "docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication",
).key
BLOOM = cite(
    "bloom",
    "BigScience, chronicles of the runs before BLOOM, 2022",
    "github.com/bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md",
).key
DAO_2023 = cite(
    "dao2023",
    "T. Dao, FlashAttention-2: faster attention with better parallelism and work partitioning, "
    "ICLR, 2024",
    "arXiv:2307.08691",
).key
VTRAIN = cite(
    "vtrain2024",
    "J. Bang et al., vTrain: a simulation framework for evaluating cost-effective and "
    "compute-optimal large language model training, MICRO, 2024",
    "arXiv:2312.12391",
).key
WANG = cite(
    "wang2023",
    "S. Wang et al., Overlap communication with dependent computation via decomposition in large "
    "deep learning models, ASPLOS, 2023",
    "doi:10.1145/3567955.3567959",
).key
