"""The vocabulary of communication: what is sent, over which links, how often in a step."""

from __future__ import annotations

from overhead.quantity import define
from overhead.source import cite


def named(name: str) -> str:
    """Return a name as LaTeX writes it upright."""
    escaped = name.replace("_", r"\_")
    return rf"\mathrm{{{escaped}}}"


cite(
    "jacobs2023",
    "S. A. Jacobs et al., DeepSpeed Ulysses: system optimizations for enabling training of extreme "
    "long sequence transformer models, 2023",
    "arXiv:2309.14509",
)
cite(
    "liu2023",
    "H. Liu, M. Zaharia and P. Abbeel, Ring attention with blockwise transformers for "
    "near-infinite context, 2023",
    "arXiv:2310.01889",
)
cite(
    "grattafiori2024",
    "A. Grattafiori et al., The Llama 3 herd of models, 2024",
    "arXiv:2407.21783",
)

# What holds where nothing is said; each is an input.
DEFAULTS: dict[str, float] = {
    "communication_bytes": 2.0,  # activations are sent in 16 bits
    "ring_return": 0.0,  # the backward's ring begins with the block held last (TransformerEngine)
    "kept_keys": 0.0,  # keys and values are gathered again in the backward
    "scatter_gather": 0.0,  # a stage's ranks all send the whole activation
    "gather_every_micro_batch": 1.0,  # ZeRO-3 gathers for each micro-batch
    "keep_gathered": 0.0,  # and again for its backward
    "intra_efficiency": 0.78,  # what long messages reach of data sheets: measured of NVLink
    "inter_efficiency": 0.85,  # assumed: the middle of what networks reach at best
    "hops": 1.0,  # neighbours in a pipeline or in a ring are neighbours on the network
}

# Bytes of one element as it is sent.
for _name, _mark, _meaning in (
    ("communication_bytes", "c", "an activation that is sent"),
    ("dispatch_bytes", "ed", "an activation on its way to an expert (FP8: 1)"),
    ("reduction_bytes", "r", "a gradient as it is reduced"),
):
    define(_name, f"b_{{{_mark}}}", "byte", f"bytes of {_meaning}", minimum=0)

# Choices of a framework.
for _name, _symbol, _meaning in (
    (
        "ring_return",
        r"\rho_c",
        "whether backward rings of context parallelism go all the way round",
    ),
    (
        "kept_keys",
        r"\kappa_c",
        "whether all_gather context parallelism keeps keys and values gathered for the backward",
    ),
    (
        "scatter_gather",
        r"\sigma_p",
        "whether tensor-parallel ranks each send their part of a stage's output, to be gathered",
    ),
    ("gather_every_micro_batch", r"\gamma_z", "whether ZeRO-3 gathers weights each micro-batch"),
    ("keep_gathered", r"\kappa_z", "whether ZeRO-3 keeps weights gathered until the backward"),
    (
        "reduce_every_micro_batch",
        r"\rho_z",
        "whether ZeRO-2 and 3 reduce gradients each micro-batch",
    ),
    ("has_backward", r"\beta_b", "whether a step has a backward"),
    (
        "sequence_whole",
        r"\bar{s}_p",
        "whether activations between tensor-parallel blocks are whole on each rank",
    ),
):
    define(_name, _symbol, "1", _meaning, minimum=0, maximum=1, integer=True)

# The network as groups see it.
for _name, _symbol, _words in (
    ("intra_efficiency", r"\eta_1", "inside a node"),
    ("inter_efficiency", r"\eta_2", "between nodes"),
):
    define(
        _name,
        _symbol,
        "1",
        f"share of a link's bandwidth {_words} that long messages reach",
        minimum=0,
        above=True,
        maximum=1,
    )
for _level, _mark, _words in (
    ("intra", "1", "inside a node"),
    ("inter", "2", "between nodes"),
    ("pod", "3", "between pods"),
):
    define(
        f"effective_{_level}_bandwidth",
        f"B'_{_mark}",
        "byte s-1",
        f"bandwidth that long messages reach over one link {_words}",
        minimum=0,
        above=True,
    )
for _axis, _mark in zip("xyz", "123", strict=True):
    define(
        f"group_n{_axis}",
        f"n'_{_mark}",
        "1",
        f"ranks along {_axis} of a mesh or torus that a group of ranks is",
        minimum=1,
        integer=True,
    )
define("group_pod_nodes", "G_p", "1", "nodes of a group in one pod", minimum=1)
define(
    "group_ranks_per_nic",
    "f_g",
    "1",
    "ranks that share a network card while all groups of a kind communicate",
    minimum=0,
    above=True,
)
define("groups", "Q", "1", "groups of a kind in the whole plan", minimum=0)

# How often a step's layers are passed.
for _name, _mark, _meaning in (
    ("backward_passes", "b", "backwards of a step through a stage"),
    ("returning_gathers", "bg", "backwards of a step, and forwards of repeated gathers"),
    (
        "returning_reductions",
        "br",
        "backwards of a step, and forwards whose reductions they repeat",
    ),
    ("returning_exchanges", "be", "backwards of a step, and forwards whose exchanges they repeat"),
    ("returning_attentions", "ba", "backwards of a step, and attention's forwards they repeat"),
    ("repeated_gathers", "g", "share of a layer's gathers that is repeated"),
    ("repeated_reductions", "r", "share of a layer's reductions that recomputation repeats"),
    (
        "repeated_exchanges",
        "e",
        "share of a layer's exchanges of tokens that recomputation repeats",
    ),
    ("repeated_attentions", "a", "share of attention's communication that recomputation repeats"),
):
    _base = "m" if "passes" in _name or _name.startswith("returning") else r"\varrho"
    define(_name, f"{_base}_{named(_mark)}", "1", _meaning, minimum=0)

# Layers of the stages that have most of them.
define("later_stage", r"i_{\ell-1}", "1", "the pipeline's last stage but one, or its only one",
       minimum=0)  # fmt: skip
for _name, _mark, _meaning in (
    ("busiest_layers", "layers", "layers of the largest stage"),
    ("busiest_moe_layers", "MoE", "mixture-of-experts layers of the stage that has most"),
    ("stage_tp_blocks", "stage,blocks", "tensor-parallel blocks of a stage: attentions and MLPs"),
    ("tp_blocks", "blocks", "tensor-parallel blocks of the stage that has most; 0 without tp"),
    ("busiest_tp_blocks", "most,blocks", "tensor-parallel blocks of the stage that has most"),
    ("all_tp_blocks", "all,blocks", "tensor-parallel blocks of all stages"),
    ("cp_layers", "cp", "layers of the largest stage with context parallelism; 0 without"),
    ("ep_layers", "ep", "most mixture-of-experts layers in a stage; 0 without expert parallelism"),
    ("etp_layers", "etp", "most mixture-of-experts layers in a stage; 0 without tp of experts"),
    ("moe_layer_blocks", "MoE,blocks", "tensor-parallel blocks of a mixture-of-experts layer"),
):
    define(_name, f"L_{{{named(_mark)}}}", "1", _meaning, minimum=0)
for _name, _stages, _mark, _meaning in (
    ("layers", ("first", "second"), "layers", "layers"),
    ("moe_layers", ("later", "last"), "MoE", "mixture-of-experts layers"),
    ("tp_blocks", ("first", "second"), "blocks", "tensor-parallel blocks"),
):
    for _stage in _stages:
        define(
            f"{_stage}_stage_{_name}",
            f"L_{{{named(f'{_stage},{_mark}')}}}",
            "1",
            f"{_meaning} of the pipeline's {_stage} stage",
            minimum=0,
        )
for _name, _mark, _meaning in (
    ("tp_share", "tp", "tensor-parallel blocks of a stage, mean by most"),
    ("layer_share", "layers", "layers of a stage, mean by most"),
    ("moe_share", "MoE", "mixture-of-experts layers of a stage, mean by most"),
    ("end_share", "end", "share of the stages that are one end of the pipeline"),
    ("ends_share", "ends", "pairs of the pipeline's ends by the pairs that its ranks could be"),
    ("dense_share", "dense", "parameters of a stage, routed experts left out, mean by most"),
):
    define(_name, f"q_{{{named(_mark)}}}", "1", _meaning, minimum=0)
