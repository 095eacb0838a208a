"""What a kind of model's ``config.json`` says of layers without attention, or with more than it.

A gated delta net's sizes and Mamba-2's are stated by heads.  Other kinds have in their place how
wide the input projection is, the weights between it and the output projection, and all other
numbers; their state's FLOPs and bytes count as of the nearest of both.
"""

from __future__ import annotations

from typing import Any

from sweeps.spec.config_keys import NONE, Config, chosen_layers, layer_rules, place_linear

HEADS = (
    "linear_key_heads",
    "linear_value_heads",
    "linear_key_size",
    "linear_value_size",
    "linear_kernel",
)
MAMBA = {
    "groups": "mamba_n_groups|n_groups",
    "heads": "mamba_n_heads|mamba_num_heads|num_heads",
    "state": "mamba_d_state|ssm_state_size|state_size",
    "size": "mamba_d_head|mamba_head_dim|head_dim",
    "kernel": "mamba_d_conv|conv_kernel",
}
HEAD = 64.0  # As Mamba-2 usually has it
# The letters of Nemotron-H's blocks, and its words for them.
BLOCKS = {
    "mamba": "linear",
    "attention": "full",
    "moe": "moe",
    "mlp": "mlp",
    "M": "linear",
    "*": "full",
    "E": "moe",
    "-": "mlp",
}
LETTERS = {"linear": "M", "full": "*", "moe": "E"}


def _sizes(config: Config, *values: float, why: str) -> None:
    for shape, value in zip(HEADS, values, strict=True):
        config.set(shape, float(value), why)


def _scanned(config: Config, width: float, states: float, kernel: float, why: str) -> None:
    """Take a scan over each number of a width, which counts as Mamba-2's over heads of 64."""
    size = HEAD if width % HEAD == 0.0 else 1.0
    config.set("mamba", 1.0, f"{why}: its scan counts as Mamba-2's")
    _sizes(config, 1.0, width / size, states, size, kernel, why=why)


def _stated(config: Config, width: float, further: float, numbers: float, why: str) -> None:
    config.set("linear_width", width, why)
    config.set("linear_further_weights", further, why)
    config.set("linear_numbers", numbers, why)


def full_interval(config: Config) -> None:
    """Read a gated delta net in all layers but every few, or in those that are named."""
    chosen = chosen_layers(config, layer_rules()["linear"]["full_interval"])
    if chosen is not None and not place_linear(config, chosen):
        config.drop(*HEADS)


def kimi_layers(config: Config) -> None:
    """Read which layers have Kimi's delta attention, and its sizes."""
    settings = config.content.get("linear_attn_config")
    layers = settings.get("kda_layers") if isinstance(settings, dict) else None
    if not isinstance(layers, list):
        config.faults.append(f"{config.path}: linear_attn_config: is missing or no table")
        return
    numbers = [layer for layer in range(int(config.value("layers"))) if layer + 1 in layers]
    place_linear(config, (numbers, "linear_attn_config: kda_layers"))
    table = "linear_attn_config"
    keys = ("num_heads", "num_heads", "head_dim", "head_dim", "short_conv_kernel_size")
    for shape, key in zip(HEADS, keys, strict=True):
        config.take(shape, f"{table}.{key}")
    config.set("output_gate", float(config.flag("mla_use_output_gate")), "mla_use_output_gate")


def kimi_delta(config: Config) -> None:
    """Take what Kimi's delta attention has: its decay and gate come through narrow vectors."""
    heads, size = config.value(HEADS[1]), config.value(HEADS[3])
    inner, hidden = heads * size, config.value("hidden_size")
    numbers = 3.0 * config.value("linear_kernel") * inner + heads + inner + size
    narrow = 2.0 * (hidden * size + size * inner)
    _stated(config, 3.0 * inner + heads, narrow, numbers, "every kimi_linear model")
    config.drop("output_gate")


def lightning(config: Config) -> None:
    """Read MiniMax's lightning attention, with an output gate and a norm over all heads."""
    chosen = chosen_layers(config, layer_rules()["linear"]["lightning"])
    letters: Any = config.content.get("attn_type_list")
    listed = isinstance(letters, list) and len(letters) == config.value("layers")
    if listed and "layer_types" not in config.content:
        chosen = [layer for layer, kind in enumerate(letters) if kind == 0], "attn_type_list"
    heads = config.value("heads")
    size = config.value("head_size") or config.value("hidden_size") / max(heads, 1.0)
    if chosen is not None and place_linear(config, chosen):
        _sizes(config, heads, heads, size, size, 0.0, why="heads and head_dim")
        inner = heads * size
        _stated(config, 4.0 * inner, 0.0, inner, "every minimax model")


def mamba2_layers(config: Config) -> None:
    """Read Mamba-2 in all layers, or in those that aren't attention's."""
    chosen = chosen_layers(config, layer_rules()["linear"]["mamba2"])
    if config.value("parallel_mixers"):
        config.set("linear_layers", config.value("layers"), "every layer has both")
    elif chosen is None or not place_linear(config, chosen, "M"):
        return
    mamba2(config)


def mamba2(config: Config) -> None:
    """Read Mamba-2's sizes: by heads, and stated where it has no norm or other biases."""
    groups, state = config.count(MAMBA["groups"], 1, least=1), config.count(MAMBA["state"], 256)
    heads, kernel = config.count(MAMBA["heads"], least=1), config.count(MAMBA["kernel"], 4)
    size = config.find(MAMBA["size"])[1]
    hidden = config.value("hidden_size")
    if heads and (size in (None, NONE, "auto")):
        expand = config.count("mamba_expand|expand", 2, least=1) or 2
        size = int(expand * hidden) // heads
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 10**9:
        config.refuse(MAMBA["size"], "is not a head's size", "from 1, or auto")
        return
    if not (groups and state and heads and kernel):
        return
    config.set("mamba", 1.0, "Mamba-2")
    _sizes(config, groups, heads, state, size, kernel, why="Mamba-2's heads, groups and states")
    bias = config.flag("mamba_conv_bias|use_conv_bias", default=True)
    normed = config.flag("mamba_rms_norm", default=not config.value("parallel_mixers"))
    into = config.flag("mamba_proj_bias|use_bias")
    out = config.flag("projectors_bias") if config.value("parallel_mixers") else into
    config.set("linear_bias", 0.0, "biases are those of each part")
    if bias and normed and not into and not out:
        return
    inner = float(heads * size)
    convolved = inner + 2.0 * groups * state
    width = inner + convolved + heads
    numbers = (kernel + bias) * convolved + 3.0 * heads + normed * inner
    numbers += into * width + out * hidden
    _stated(config, width, 0.0, numbers, "Mamba-2 as its flags say")


def mamba1_layers(config: Config) -> None:
    """Read Mamba-1 in all layers, or in those that aren't attention's."""
    layers, hidden = int(config.value("layers")), config.value("hidden_size")
    chosen = [*range(layers)], "every layer"
    if "attn_layer_period" in config.content or config.model_type == "jamba":
        every = config.count("attn_layer_period", 8, least=1) or 1
        first = config.count("attn_layer_offset", 4)
        chosen = [layer for layer in chosen[0] if layer % every != first], "attn_layer_period"
    if not place_linear(config, chosen, "M"):
        return
    expand = config.count("mamba_expand|expand", 2, least=1)
    state = config.count("mamba_d_state|state_size", 16, least=1)
    kernel = config.count("mamba_d_conv|conv_kernel", 4, least=1)
    rank: object = config.find("mamba_dt_rank|time_step_rank")[1]
    if rank in (None, NONE, "auto"):
        rank = -(-int(hidden) // 16)
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= 10**9:
        config.refuse("mamba_dt_rank|time_step_rank", "is not a rank", "from 1, or auto")
        return
    if not (expand and state and kernel):
        return
    inner = expand * hidden
    bias = config.flag("mamba_conv_bias|use_conv_bias", default=True)
    projected = config.flag("mamba_proj_bias|use_bias")
    normed = config.model_type == "jamba"
    further = inner * (rank + 2.0 * state) + rank * inner
    numbers = inner * (kernel + bias) + inner + inner * state + inner
    numbers += normed * (rank + 2.0 * state) + projected * (2.0 * inner + hidden)
    _scanned(config, inner, state, kernel, "Mamba-1's width and states")
    _stated(config, 2.0 * inner, further, numbers, "Mamba-1")


def recurrent_layers(config: Config) -> None:
    """Read RecurrentGemma's layers with a gated recurrence, the others with a window."""
    kinds = config.content.get("block_types", ["recurrent", "recurrent", "attention"])
    layers, hidden = int(config.value("layers")), config.value("hidden_size")
    if not isinstance(kinds, list) or not kinds:
        config.refuse("block_types", "is not a list of layers' kinds", "recurrent and attention")
        return
    linear = [layer for layer in range(layers) if kinds[layer % len(kinds)] == "recurrent"]
    if not place_linear(config, (linear, "block_types")):
        return
    width = float(config.count("lru_width", int(hidden), least=1) or 1)
    kernel = config.count("conv1d_width", 4, least=1) or 1
    gates = 2.0 * width * width / max(config.value("heads"), 1.0)
    numbers = width * (kernel + 1.0) + 3.0 * width + 2.0 * width + hidden
    _scanned(config, width, 1.0, kernel, "lru_width")
    _stated(config, 2.0 * width, gates, numbers, "every recurrent_gemma model")


def convolved_layers(config: Config) -> None:
    """Read LFM2's layers with a short convolution between two gates."""
    hidden = config.value("hidden_size")
    chosen = chosen_layers(config, layer_rules()["linear"]["convolved"])
    if chosen is None or not place_linear(config, chosen):
        return
    kernel = config.count("conv_L_cache", 3, least=1) or 1
    bias = config.flag("conv_bias")
    _scanned(config, hidden, 1.0, kernel, "a convolution of the hidden size")
    numbers = (kernel + bias) * hidden + bias * 4.0 * hidden
    _stated(config, 3.0 * hidden, 0.0, numbers, f"every {config.model_type} model")


def nemotron_blocks(config: Config) -> None:
    """Read a hybrid whose config counts each mixer and each MLP or mixture as a layer."""
    config.drop("layers")
    given = config.content.get("layers_block_type") or config.content.get("hybrid_override_pattern")
    if not isinstance(given, str | list) or not all(
        isinstance(kind, str) and kind in BLOCKS for kind in given
    ):
        known = "a list of mamba, attention, moe and mlp, or their letters"
        config.faults.append(f"{config.path}: layers_block_type: is missing or not known; {known}")
        return
    kinds = [BLOCKS[kind] for kind in given]
    linear = kinds.count("linear")
    mixers = linear + kinds.count("full")
    mixtures, mlps = kinds.count("moe"), kinds.count("mlp")
    if not 0 < mixtures + mlps <= mixers:
        config.refuse("model_type", "has other layers", "mixers, of which most have a mixture")
        return
    config.set("layers", float(mixers), "mixers in layers_block_type, with what is behind them")
    config.set("bare_layers", float(mixers - mixtures - mlps), "mixers with nothing behind them")
    if linear:
        config.set("linear_layers", float(linear), "layers_block_type")
        letters = [LETTERS[kind] for kind in kinds if kind != "mlp" and (not mlps or kind != "moe")]
        config.order("".join(letters), "layers_block_type")
        mamba2(config)
    config.set("ffn_size", 0.0, "mixers without a mixture have nothing behind them")
    if mlps:
        config.take("ffn_size", "intermediate_size")
    if mixtures:
        shape = "routed_layers" if mlps else "separate_moe_layers"
        config.set(shape, float(mixtures), "layers_block_type")
        config.take("experts", "n_routed_experts")
        config.take("experts_per_token", "num_experts_per_tok")
        config.take("expert_ffn_size", "moe_intermediate_size")
        config.take("shared_ffn_size", "moe_shared_expert_intermediate_size:0")
        config.take("expert_latent_size", "moe_latent_size?")


def three_quarters(config: Config) -> None:
    """Take three quarters of a head for keys of a gated delta net, and twice that for values."""
    if not config.value("linear_key_size"):
        size = int(0.75 * config.value("hidden_size") / max(config.value("heads"), 1.0))
        config.set("linear_key_size", float(size), "three quarters of hidden_size/heads")
    if not config.value("linear_value_size"):
        double = 2.0 * config.value("linear_key_size")
        config.set("linear_value_size", double, "twice linear_key_head_dim")


RULES = (
    full_interval,
    kimi_layers,
    kimi_delta,
    lightning,
    mamba2_layers,
    mamba1_layers,
    recurrent_layers,
    convolved_layers,
    nemotron_blocks,
    three_quarters,
)
