"""What a kind of model's ``config.json`` says by more than a key: windows, mixtures, biases.

A function a rule, called by the name that ``specs/configs/kinds.toml`` gives it after the keys of
its kind are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sweeps.spec import config_mixers
from sweeps.spec.config_keys import (
    NONE,
    Config,
    chosen_layers,
    layer_rules,
    place_mixtures,
    place_windows,
)

PERIODS = "sliding_window_pattern|_sliding_window_pattern|global_attn_every_n_layers"

# DeepSeek-V4's kinds of layers: tokens a key where an indexer selects, and where all are taken.
INDEXED_STRIDE, POOLED_STRIDE = 4.0, 128.0


# Windows.


def layer_types(config: Config) -> bool:
    """Read windows from the kinds of layers, if these are listed."""
    if config.names("layer_types") is None:
        return False
    _windows(config, layer_rules()["windows"]["layer_types"])
    return True


def _windows(config: Config, rule: Mapping[str, Any]) -> None:
    chosen = chosen_layers(config, rule)
    if chosen is not None:
        place_windows(config, len(chosen[0]), chosen[1])


def switched_window(config: Config) -> None:
    """Read a window that ``use_sliding_window`` switches on, in all layers, some or none."""
    if not config.flag("use_sliding_window") or config.content.get("sliding_window") is None:
        config.set("sliding_window", 0.0, "use_sliding_window or sliding_window: none")
        return
    config.take("sliding_window", "sliding_window")
    if layer_types(config):
        return
    first = config.content.get("max_window_layers")
    if not isinstance(first, int) or isinstance(first, bool):
        config.faults.append(
            f"{config.path}: max_window_layers: is missing or no number; use_sliding_window needs "
            "it"
        )
        return
    windowed = max(int(config.value("layers")) - first, 0)
    place_windows(config, windowed, "max_window_layers")


def any_window(config: Config) -> None:
    """Read a window of a kind that isn't known: switched on, in some layers, or in all."""
    if "use_sliding_window" in config.content:
        switched_window(config)
    elif config.value("sliding_window"):
        layer_types(config)


def periodic_window(config: Config) -> None:
    """Read a window in all layers but every few, which attend to all tokens."""
    if config.content.get("sliding_window", NONE) is None:
        config.set("sliding_window", 0.0, "sliding_window = null")
        return
    if layer_types(config):
        return
    layers, first = int(config.value("layers")), config.kind.get("full_first")
    key, every = config.find(PERIODS)
    if isinstance(every, str) and every and set(every) <= {"L", "G"}:
        whole = sum(every[layer % len(every)] == "G" for layer in range(layers))
    elif first:
        whole = -(-layers // first)
    else:
        period = config.count(PERIODS, config.kind["full_each"], least=1)
        whole = layers // period if period else 0
    place_windows(config, layers - whole, f"{key}, or the kind's own")


def chunks(config: Config) -> None:
    """Read attention within chunks in all layers but some."""
    config.take("sliding_window", "attention_chunk_size:8192")
    if config.content.get("attention_chunk_size", NONE) is None:
        config.set("sliding_window", 0.0, "attention_chunk_size = null")
        return
    config.set("chunked_attention", 1.0, "attention_chunk_size")
    if layer_types(config):
        return
    if rotated := config.places("no_rope_layers"):
        place_windows(config, sum(map(bool, rotated)), "no_rope_layers")
    else:
        _windows(config, layer_rules()["windows"]["no_rope"])


def local_attention(config: Config) -> None:
    """Read GPT-Neo's local layers."""
    types, windowed = config.content.get("attention_types"), 0
    if types is None:
        windowed = int(config.value("layers")) // 2
    elif isinstance(types, list):
        for entry in types:
            kinds, times = entry if isinstance(entry, list) and len(entry) == 2 else ((), 0)
            if isinstance(kinds, list) and isinstance(times, int) and 0 <= times <= 10**6:
                windowed += times * sum(kind == "local" for kind in kinds)
    config.take("sliding_window", "window_size:256")
    place_windows(config, min(windowed, int(config.value("layers"))), "attention_types")


# Mixtures of experts.


def mixtures(config: Config, name: str) -> None:
    """Read which layers have experts, as a rule of that name says."""
    rule = layer_rules()["mixtures"][name]
    if "dense_layers" in config.figures and name == "leading_dense":
        rule = {**rule, "first": config.value("dense_layers")}
    chosen = chosen_layers(config, rule)
    if chosen is not None:
        some = config.value("experts") >= rule.get("least_experts", 0.0)
        place_mixtures(config, chosen[0] if some else [], chosen[1])


def groups(config: Config) -> None:
    """Read groups of experts, of which a token meets some."""
    if (config.count("n_group", 1) or 0) > 1:
        config.take("expert_groups", "n_group")
        config.take("groups_per_token", "topk_group")


def balanced_router(config: Config) -> None:
    """Read whether a bias for each expert balances their load."""
    balanced = config.content.get("topk_method", "noaux_tc") == "noaux_tc"
    if config.value("experts"):
        config.set("router_bias", float(balanced), "topk_method (noaux_tc has a bias)")


# Attention.


def indexed_layers(config: Config) -> None:
    """Read which layers have an indexer of their own."""
    types = config.content.get("indexer_types")
    if isinstance(types, list):
        config.set("index_layers", float(sum(kind == "full" for kind in types)), "indexer_types")


def compressed_layers(config: Config) -> None:
    """Read DeepSeek-V4's layers: windows in all, an indexer in some."""
    layers = config.value("layers")
    strides = config.content.get("compress_ratios")
    if not isinstance(strides, list) or not layers or len(strides) < layers:
        config.faults.append(f"{config.path}: compress_ratios: one for each layer is needed")
        return
    ratios = strides[: int(layers)]
    config.set("index_layers", float(ratios.count(INDEXED_STRIDE)), "compress_ratios")
    config.set("sliding_window_layers", layers - ratios.count(INDEXED_STRIDE), "compress_ratios")
    config.set("index_stride", INDEXED_STRIDE, "compress_ratios")
    config.set("pooled_layers", float(ratios.count(POOLED_STRIDE)), "compress_ratios")
    config.set("pooled_stride", POOLED_STRIDE, "compress_ratios")


def no_biases(config: Config) -> None:
    """Refuse biases of attention that the kind doesn't have."""
    if config.flag("attention_bias"):
        config.refuse("attention_bias", "isn't known with this kind of model", "false")


def bare_attention(config: Config) -> None:
    """Read biases of a GPT-NeoX that its attention may lack."""
    if not config.flag("attention_bias", default=True):
        config.set("linear_bias", 0.0, "attention_bias")
        config.set("mlp_bias", 1.0, "every gpt_neox model")


def chatglm_heads(config: Config) -> None:
    """Read how many heads of keys there are."""
    if config.flag("multi_query_attention"):
        config.take("kv_heads", "multi_query_group_num")


def one_key(config: Config) -> None:
    """Read whether all heads share one of keys."""
    if config.flag("multi_query", default=True):
        config.set("kv_heads", 1.0, "multi_query")


def falcon(config: Config) -> None:
    """Read heads of keys and norms by the generation of Falcon."""
    if config.flag("new_decoder_architecture"):
        config.take("kv_heads", "num_kv_heads|n_head_kv?")
        single = config.count("num_ln_in_parallel_attn", 2, least=1) == 1
    else:
        one_key(config)
        single = config.flag("parallel_attn", default=True)
    if single:
        config.set("layer_norms", 1.0, "parallel_attn and num_ln_in_parallel_attn")


def stablelm(config: Config) -> None:
    """Read norms of queries and keys, one a head, and layers whose halves share a norm."""
    if config.flag("qk_layernorm"):
        config.set("qk_norms", 1.0, "qk_layernorm")
        config.set("qk_norms_over_heads", 1.0, "qk_layernorm: weights of their own for each head")
    if config.flag("use_parallel_residual"):
        config.set("layer_norms", 1.0, "use_parallel_residual")


# Sizes.


def square_output(config: Config) -> None:
    """Refuse heads that aren't the hidden size together, which the kind can't have."""
    together = config.value("head_size") * config.value("heads")
    if together != config.value("hidden_size"):
        wrong = f"heads are {together:g} together, not hidden_size"
        allowed = "give head_dim = hidden_size/num_attention_heads"
        config.faults.append(f"{config.path}: head_dim: {wrong}; {allowed}")


def both_halves(config: Config) -> None:
    """Read a size that is the sum of both halves of a gated MLP."""
    size = config.count("intermediate_size", least=2)
    if size is not None:
        config.set("ffn_size", float(size // 2), "intermediate_size: both halves of the gated MLP")


def four_times(config: Config) -> None:
    """Take four times the hidden size where a config says no size of the MLP."""
    if not config.value("ffn_size"):
        why = "the MLP's size: four times the hidden one if not given"
        config.set("ffn_size", 4.0 * config.value("hidden_size"), why)


def multiplied_ffn(config: Config) -> None:
    """Read the MLP of Meta's own files: two thirds of four times the size, scaled, rounded up."""
    multiple = config.count("multiple_of", 256, least=1)
    scale = config.find("ffn_dim_multiplier")[1]
    scale = 1.0 if scale in (None, NONE) else scale
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0.0 < scale < 100.0:
        config.refuse("ffn_dim_multiplier", "is not a factor", "a number above 0")
    elif multiple:
        size = int(scale * int(8 * config.value("hidden_size") / 3))
        config.set("ffn_size", float(multiple * -(-size // multiple)), "multiple_of and its factor")


def offset_positions(config: Config) -> None:
    """Read OPT's positions, which begin at 2, and refuse what only its smallest models have."""
    positions = config.count("max_position_embeddings", 2048, least=1)
    if positions:
        config.set("learned_positions", positions + 2.0, "max_position_embeddings + 2")
    narrow = config.find("word_embed_proj_dim")[1]
    if narrow not in (None, NONE, config.value("hidden_size")):
        config.refuse("word_embed_proj_dim", "is not the hidden size", "only that is known")
    if not config.flag("do_layer_norm_before", default=True):
        config.refuse("do_layer_norm_before", "puts norms behind the blocks", "true is known")


def adjusted_ffn(config: Config) -> None:
    """Read LFM2's MLP: two thirds of its size, rounded up, where that is asked for."""
    size, multiple = config.value("ffn_size"), config.count("block_multiple_of", 256, least=1)
    if config.flag("block_auto_adjust_ff_dim", default=True) and multiple:
        scale = config.find("block_ffn_dim_multiplier")[1]
        scale = 1.0 if scale in (None, NONE) else scale
        if not isinstance(scale, int | float) or not 0.0 < scale < 100.0:
            config.refuse("block_ffn_dim_multiplier", "is not a factor", "a number above 0")
            return
        rounded = multiple * -(-int(scale * int(2.0 * size / 3.0)) // multiple)
        config.set("ffn_size", float(rounded), "intermediate_size: two thirds, rounded up")


RULES: Mapping[str, Callable[[Config], object]] = {
    rule.__name__: rule
    for rule in (
        layer_types,
        switched_window,
        any_window,
        periodic_window,
        chunks,
        local_attention,
        groups,
        balanced_router,
        indexed_layers,
        compressed_layers,
        no_biases,
        bare_attention,
        chatglm_heads,
        one_key,
        falcon,
        stablelm,
        square_output,
        both_halves,
        four_times,
        multiplied_ffn,
        offset_positions,
        adjusted_ffn,
        *config_mixers.RULES,
    )
} | {name: partial(mixtures, name=name) for name in layer_rules()["mixtures"]}
