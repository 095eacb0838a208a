"""A model from the ``config.json`` that Hugging Face keeps beside its weights.

Each kind of model (``model_type``) has keys of its own.  A key is needed where transformers' own
default would be one model's size rather than a rule; what our shapes can't tell is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from overhead.model.order import MOST, numbers_of
from sweeps.errors import InputError, refuse
from sweeps.spec.machine import Figure, FigureReader
from sweeps.spec.model import Model, attention_label, join_figures, shape_faults, shape_value

_SIZES = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "vocabulary_size": "vocab_size",
}
_FAULTS_SHOWN = "is missing; every {} model has one"


class _Config(FigureReader):
    """A config.json that is being read: shapes so far, each with its key, and the faults."""

    def __init__(self, path: Path, content: Mapping[str, Any], model_type: str) -> None:
        super().__init__(path, content)
        self.model_type = model_type
        self.figures: dict[str, Figure] = {}

    def take(self, shape: str, key: str) -> None:
        """Take a shape from a key that must be there."""
        if key not in self.content:
            self.faults.append(f"{self.path}: {key}: {_FAULTS_SHOWN.format(self.model_type)}")
        else:
            self._read(shape, key, self.content[key])

    def maybe(self, shape: str, key: str) -> None:
        """Take a shape from a key that may be missing or null."""
        if self.content.get(key) is not None:
            self._read(shape, key, self.content[key])

    def none_or(self, shape: str, key: str) -> None:
        """Take a shape from a key that must be there and may be null, for none."""
        if key in self.content and self.content[key] is None:
            self.set(shape, 0.0, f"{key} = null")
        else:
            self.take(shape, key)

    def set(self, shape: str, value: float, why: str) -> None:
        """Give a shape a value for a reason."""
        self.figures[shape] = Figure(value, "1", "specification", f"{self.path}: {why}")

    def order(self, pattern: str, why: str) -> None:
        """Give the order of layers, a letter each, where it is one of ours."""
        if len(pattern) <= MOST:
            for name, value in numbers_of(pattern).items():
                self.set(name, value, why)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a key that is true or false."""
        value = self.content.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            self.fault(key, value, "is not a flag", "true or false")
        return value is True

    def refuse(self, key: str, wrong: str, allowed: str) -> None:
        """Refuse what shapes can't tell."""
        shown = json.dumps(self.content[key])
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        self.faults.append(f"{self.path}: {key} = {shown}: {wrong}; {allowed}")

    def _read(self, shape: str, key: str, given: object) -> None:
        value = self.of(shape_value, shape, given, f"{self.path}: {key}")
        if value is not None:
            self.set(shape, value, key)


def _sizes(config: _Config, *, tied: bool = False) -> None:
    """Read what all but GPT-2 call the same."""
    for shape, key in _SIZES.items():
        config.take(shape, key)
    _tied(config, default=tied)


def _tied(config: _Config, *, default: bool) -> None:
    value = config.flag("tie_word_embeddings", default=default)
    config.set("tied_embeddings", float(value), "tie_word_embeddings, or the kind's default")


def _gated(config: _Config) -> None:
    """Read a decoder with gated MLPs and RMS norms."""
    _sizes(config)
    config.set("gated_mlp", 1.0, f"every {config.model_type} model")


def _heads(config: _Config, *, sized: bool = False) -> None:
    config.take("kv_heads", "num_key_value_heads")
    (config.take if sized else config.maybe)("head_size", "head_dim")


def _experts(config: _Config, count: str, size: str) -> None:
    """Read a mixture's routed experts."""
    config.take("experts", count)
    config.take("experts_per_token", "num_experts_per_tok")
    config.take("expert_ffn_size", size)


def _linear_shapes(config: _Config, *keys: str) -> None:
    """Read the shapes of linear attention: heads of keys and values, their sizes, the kernel."""
    heads = ("linear_key_heads", "linear_value_heads", "linear_key_size", "linear_value_size")
    for shape, key in zip((*heads, "linear_kernel"), keys, strict=True):
        config.take(shape, key)


def _no_biases(config: _Config) -> None:
    if config.flag("attention_bias"):
        config.refuse("attention_bias", "isn't known with this kind of model", "false")


def _window(config: _Config) -> None:
    """Read a window that ``use_sliding_window`` switches on, in all layers, some or none."""
    layers = config.figures.get("layers")
    count = int(layers.value) if layers else 0
    if not config.flag("use_sliding_window") or config.content.get("sliding_window") is None:
        config.set("sliding_window", 0.0, "use_sliding_window or sliding_window: none")
        return
    types = config.content.get("layer_types")
    if isinstance(types, list):
        windowed = sum(kind == "sliding_attention" for kind in types)
        count = len(types)
        key = "layer_types"
    else:
        key = "max_window_layers"
        first = config.content.get(key)
        if not isinstance(first, int) or isinstance(first, bool):
            config.faults.append(
                f"{config.path}: {key}: is missing or no number; use_sliding_window needs it"
            )
            return
        windowed = max(count - first, 0)
    if windowed == 0:
        config.set("sliding_window", 0.0, f"{key}: no layer has a window")
        return
    config.maybe("sliding_window", "sliding_window")
    if windowed < count:
        config.set(
            "sliding_window_layers", float(windowed), f"{key}: so many of {count} have a window"
        )


def _llama(config: _Config) -> None:
    _gated(config)
    config.take("ffn_size", "intermediate_size")
    config.maybe("kv_heads", "num_key_value_heads")
    config.maybe("head_size", "head_dim")
    biases = [config.flag(key) for key in ("attention_bias", "mlp_bias")]
    if biases[0] != biases[1]:
        key = "attention_bias" if biases[0] else "mlp_bias"
        config.refuse(key, "gives biases to a part of the layer", "both or neither is known")
    config.set("linear_bias", float(all(biases)), "attention_bias and mlp_bias")


def _mistral(config: _Config) -> None:
    _gated(config)
    config.take("ffn_size", "intermediate_size")
    _heads(config)
    config.none_or("sliding_window", "sliding_window")


def _qwen2(config: _Config) -> None:
    _gated(config)
    config.take("ffn_size", "intermediate_size")
    _heads(config)
    config.set("qkv_biases", 1.0, "every qwen2 model")
    _window(config)


def _qwen3(config: _Config) -> None:
    _gated(config)
    config.take("ffn_size", "intermediate_size")
    _heads(config, sized=True)
    config.set("qk_norms", 1.0, "every qwen3 model")
    _no_biases(config)
    _window(config)


def _qwen3_moe(config: _Config) -> None:
    _gated(config)
    _heads(config, sized=True)
    config.set("qk_norms", 1.0, "every qwen3_moe model")
    _no_biases(config)
    _window(config)
    _experts(config, "num_experts", "moe_intermediate_size")
    config.maybe("moe_layer_frequency", "decoder_sparse_step")
    dense = config.content.get("mlp_only_layers") or []
    every = config.content.get("decoder_sparse_step") not in (None, 1)
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        config.refuse("mlp_only_layers", "are not the first layers", "only the first may be dense")
    elif dense and every:
        config.refuse(
            "mlp_only_layers", "can't be given with decoder_sparse_step", "one of both is known"
        )
    elif dense:
        config.set("dense_layers", float(len(dense)), "mlp_only_layers")
    if dense or every:
        config.take("ffn_size", "intermediate_size")


def _mixtral(config: _Config) -> None:
    _gated(config)
    _heads(config)
    config.maybe("sliding_window", "sliding_window")
    _experts(config, "num_local_experts", "intermediate_size")


def _gpt_oss(config: _Config) -> None:
    """Read a mixture with biases everywhere, and a window in some layers."""
    _gated(config)
    _heads(config, sized=True)
    if not config.flag("attention_bias"):
        config.refuse("attention_bias", "isn't known with this kind of model", "true")
    for shape in ("linear_bias", "router_bias"):
        config.set(shape, 1.0, "every gpt_oss model")
    config.take("attention_sinks", "num_attention_heads")
    _experts(config, "num_local_experts", "intermediate_size")
    config.none_or("sliding_window", "sliding_window")
    _some_windows(config)


def _some_windows(config: _Config) -> None:
    types = config.content.get("layer_types")
    if isinstance(types, list):
        count = sum(kind == "sliding_attention" for kind in types)
        if count:
            config.set("sliding_window_layers", float(count), "layer_types")
        else:
            config.set("sliding_window", 0.0, "layer_types: no layer has a window")


_MIXERS = {"mamba": "linear", "attention": "full", "moe": "moe", "mlp": "mlp",
           "M": "linear", "*": "full", "E": "moe", "-": "mlp"}  # fmt: skip
_LETTERS = {"linear": "M", "full": "*", "moe": "E"}


def _nemotron_h(config: _Config) -> None:
    """Read a hybrid whose config counts each mixer and each MLP or mixture as a layer."""
    pattern = config.content.get("layers_block_type") or config.content.get(
        "hybrid_override_pattern"
    )
    if not isinstance(pattern, str | list) or not all(kind in _MIXERS for kind in pattern):
        known = "a list of mamba, attention, moe and mlp, or their letters"
        config.faults.append(f"{config.path}: layers_block_type: is missing or not known; {known}")
        return
    kinds = [_MIXERS[kind] for kind in pattern]
    mixers = kinds.count("linear") + kinds.count("full")
    mixtures = kinds.count("moe")
    if "mlp" in kinds or not 0 < mixtures <= mixers:
        config.refuse("model_type", "has other layers", "mixers, of which most have a mixture")
        return
    config.set("layers", float(mixers), "mixers in layers_block_type, with what is behind them")
    for shape, key in _SIZES.items():
        if shape != "layers":
            config.take(shape, key)
    _tied(config, default=False)
    _heads(config, sized="head_dim" in config.content)
    config.set("gated_mlp", 0.0, "every nemotron_h model: squared ReLU")
    config.set("linear_layers", float(kinds.count("linear")), "layers_block_type")
    config.order("".join(_LETTERS[kind] for kind in kinds), "layers_block_type")
    config.set("mamba", 1.0, "every nemotron_h model")
    _linear_shapes(
        config, "n_groups", "mamba_num_heads", "ssm_state_size", "mamba_head_dim", "conv_kernel"
    )
    config.set("ffn_size", 0.0, "mixers without a mixture have nothing behind them")
    config.set("separate_moe_layers", float(mixtures), "layers_block_type")
    _experts(config, "n_routed_experts", "moe_intermediate_size")
    config.take("shared_ffn_size", "moe_shared_expert_intermediate_size")
    config.maybe("expert_latent_size", "moe_latent_size")


def _linear(config: _Config) -> None:
    """Read layers whose attention is a gated delta net."""
    _linear_shapes(
        config,
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    config.set("output_gate", 1.0, f"every {config.model_type} model")
    types, layers = config.content.get("layer_types"), config.figures.get("layers")
    if isinstance(types, list):
        count = sum(kind == "linear_attention" for kind in types)
        config.set("linear_layers", float(count), "layer_types")
        config.order("".join("L" if kind == "linear_attention" else "*" for kind in types),
                     "layer_types")  # fmt: skip
    elif layers:
        every = config.content.get("full_attention_interval", 4)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            config.refuse("full_attention_interval", "is no number of layers", "a number from 1")
            return
        linear = layers.value - layers.value // every
        why = "full_attention_interval, 4 where it isn't given"
        config.set("linear_layers", linear, why)
        places = range(1, int(layers.value) + 1)
        config.order("".join("*" if place % every == 0 else "L" for place in places), why)


def _qwen3_5(config: _Config) -> None:
    _qwen3(config)
    _linear(config)


def _qwen3_5_moe(config: _Config) -> None:
    _qwen3_moe(config)
    config.take("shared_ffn_size", "shared_expert_intermediate_size")
    _linear(config)


def _minimax_m2(config: _Config) -> None:
    """Read a mixture whose norms of queries and keys are over all heads: counted as over one."""
    _gated(config)
    _heads(config, sized=True)
    config.set("qk_norms", float(config.flag("use_qk_norm")), "use_qk_norm")
    _experts(config, "num_local_experts", "intermediate_size")
    config.maybe("shared_ffn_size", "shared_intermediate_size")
    config.set("router_bias", float(config.flag("use_routing_bias")), "use_routing_bias")


def _deepseek_v3(config: _Config) -> None:
    _gated(config)
    _no_biases(config)
    config.none_or("q_lora_rank", "q_lora_rank")
    for shape, key in {
        "kv_lora_rank": "kv_lora_rank",
        "qk_nope_head_size": "qk_nope_head_dim",
        "qk_rope_head_size": "qk_rope_head_dim",
        "v_head_size": "v_head_dim",
        "ffn_size": "intermediate_size",
        "experts": "n_routed_experts",
        "experts_per_token": "num_experts_per_tok",
        "expert_ffn_size": "moe_intermediate_size",
        "dense_layers": "first_k_dense_replace",
    }.items():
        config.take(shape, key)
    _shared(config)
    if config.content.get("n_group", 1) > 1:
        config.take("expert_groups", "n_group")
        config.take("groups_per_token", "topk_group")
    if config.content.get("moe_layer_freq", 1) != 1:
        config.refuse("moe_layer_freq", "isn't known", "1")
    balanced = config.content.get("topk_method", "noaux_tc") == "noaux_tc"
    config.set("router_bias", float(balanced), "topk_method (noaux_tc has a bias)")


# Of DeepSeek-V4's kinds of layers, tokens a key where an indexer selects, and where all are taken.
INDEXED_STRIDE, POOLED_STRIDE = 4.0, 128.0


def _indexed(config: _Config) -> None:
    """Read DeepSeek-V3's shapes with an indexer in each layer, or in some."""
    _deepseek_v3(config)
    config.take("index_heads", "index_n_heads")
    config.take("index_head_size", "index_head_dim")
    config.take("index_top_k", "index_topk")
    types = config.content.get("indexer_types")
    if isinstance(types, list):
        config.set("index_layers", float(sum(kind == "full" for kind in types)), "indexer_types")


def _deepseek_v4(config: _Config) -> None:
    """Read windows in all layers, an indexer in some, grouped projections, several residuals."""
    _gated(config)
    _no_biases(config)
    _heads(config, sized=True)
    for shape, key in {
        "q_lora_rank": "q_lora_rank",
        "experts": "n_routed_experts",
        "experts_per_token": "num_experts_per_tok",
        "expert_ffn_size": "moe_intermediate_size",
        "sliding_window": "sliding_window",
        "index_heads": "index_n_heads",
        "index_head_size": "index_head_dim",
        "index_top_k": "index_topk",
        "output_rank": "o_lora_rank",
        "output_groups": "o_groups",
        "residual_streams": "hc_mult",
    }.items():
        config.take(shape, key)
    _shared(config)
    config.set("router_bias", 1.0, "scores have a bias for each expert")
    layers = config.figures.get("layers")
    strides = config.content.get("compress_ratios")
    if not isinstance(strides, list) or not layers or len(strides) < layers.value:
        config.faults.append(f"{config.path}: compress_ratios: one for each layer is needed")
        return
    own = strides[: int(layers.value)]
    config.set("index_layers", float(own.count(INDEXED_STRIDE)), "compress_ratios")
    config.set("sliding_window_layers", layers.value - own.count(INDEXED_STRIDE), "compress_ratios")
    config.set("index_stride", INDEXED_STRIDE, "compress_ratios")
    config.set("pooled_layers", float(own.count(POOLED_STRIDE)), "compress_ratios")
    config.set("pooled_stride", POOLED_STRIDE, "compress_ratios")


def _kimi_linear(config: _Config) -> None:
    """Read latent attention in some layers, Kimi's delta attention in others, latent experts."""
    linear = config.content.get("linear_attn_config")
    if not isinstance(linear, dict):
        config.faults.append(f"{config.path}: linear_attn_config: is missing or no table")
        return
    names = {"num_experts": "n_routed_experts", "num_experts_per_token": "num_experts_per_tok",
             "num_shared_experts": "n_shared_experts"}  # fmt: skip
    config.content = {**config.content, **{f"linear_{key}": one for key, one in linear.items()},
                      **{ours: config.content[key] for key, ours in names.items()
                         if key in config.content}}  # fmt: skip
    _deepseek_v3(config)
    config.maybe("expert_latent_size", "routed_expert_hidden_size")
    layers = config.content.get("linear_kda_layers")
    config.set("linear_layers", float(len(layers)) if isinstance(layers, list) else 0.0,
               "linear_attn_config: kda_layers")  # fmt: skip
    every = config.figures.get("layers")
    if every and isinstance(layers, list):
        places = range(1, int(every.value) + 1)
        config.order("".join("L" if place in layers else "*" for place in places),
                     "linear_attn_config: kda_layers")  # fmt: skip
    _linear_shapes(
        config,
        "linear_num_heads",
        "linear_num_heads",
        "linear_head_dim",
        "linear_head_dim",
        "linear_short_conv_kernel_size",
    )
    config.set("output_gate", float(config.flag("mla_use_output_gate")), "mla_use_output_gate")


def _shared(config: _Config) -> None:
    """Read how many shared experts there are, each as wide as a routed one."""
    key, size = "n_shared_experts", config.figures.get("expert_ffn_size")
    number = config.content.get(key, ...)
    if number is None:
        config.set("shared_ffn_size", 0.0, f"{key} = null")
    elif number is ...:
        config.faults.append(f"{config.path}: {key}: {_FAULTS_SHOWN.format(config.model_type)}")
    elif isinstance(number, bool) or not isinstance(number, int) or number < 0:
        config.refuse(key, "is not a number of experts", "a whole number from 0, or null")
    elif size:
        config.set("shared_ffn_size", number * size.value, f"{key}*moe_intermediate_size")


def _gpt2(config: _Config) -> None:
    for shape, key in {
        "layers": "n_layer",
        "hidden_size": "n_embd",
        "heads": "n_head",
        "vocabulary_size": "vocab_size",
        "learned_positions": "n_positions",
    }.items():
        config.take(shape, key)
    _tied(config, default=True)
    _plain(config)
    hidden = config.figures.get("hidden_size")
    if config.content.get("n_inner") is not None:
        config.take("ffn_size", "n_inner")
    elif hidden:
        config.set("ffn_size", 4.0 * hidden.value, "n_inner: four times n_embd if not given")


def _gpt_neox(config: _Config) -> None:
    _sizes(config)
    config.take("ffn_size", "intermediate_size")
    _plain(config)
    if not config.flag("attention_bias", default=True):
        config.refuse("attention_bias", "gives biases to the MLP alone", "true")


def _plain(config: _Config) -> None:
    """Read a GPT's MLP without gate, with biases and layer norms."""
    why = f"every {config.model_type} model"
    for shape, value in {"gated_mlp": 0.0, "linear_bias": 1.0, "layer_norm": 1.0}.items():
        config.set(shape, value, why)


MODEL_TYPES: dict[str, Callable[[_Config], None]] = {
    "deepseek_v3": _deepseek_v3,
    "deepseek_v32": _indexed,
    "deepseek_v4": _deepseek_v4,
    "glm_moe_dsa": _indexed,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek_v3,
    "kimi_k25": _deepseek_v3,
    "kimi_k3": _kimi_linear,
    "llama": _llama,
    "minimax_m2": _minimax_m2,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "nemotron_h": _nemotron_h,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5_moe,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen3_5_moe,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3_moe,
}
# Of models that see images, too, the part that reads text has a table of its own.
TEXT = "text_config"


def read_config(path: Path) -> Model:
    """Read a Hugging Face ``config.json``."""
    content = _read_json(path)
    model_type = content.get("model_type")
    known = ", ".join(MODEL_TYPES)
    if "model_type" not in content:
        message = f"{path}: model_type: is missing; known: {known}"
        raise InputError(message)
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        wrong = "is a kind of model that isn't known"
        refuse(f"{path}: model_type", model_type, wrong, f"known: {known}")
    if isinstance(content.get(TEXT), dict):
        content = {**content, **content[TEXT]}
    config = _Config(path, content, model_type)
    MODEL_TYPES[model_type](config)
    if not config.faults:
        values = {shape: figure.value for shape, figure in config.figures.items()}
        config.faults += shape_faults(values, f"{path}: ")
    if config.faults:
        raise InputError(config.faults)
    figures = join_figures(config.figures)
    name = path.stem if path.name != "config.json" else path.resolve().parent.name
    return Model(
        name=name,
        title=f"{name} ({model_type})",
        summary=_further(content),
        path=path,
        kind="specification",
        source=f"{path}",
        hugging_face=(),
        figures=figures,
        own=frozenset(config.figures),
        labels=attention_label(figures),
    )


def _further(content: Mapping[str, Any]) -> str:
    """Say what counts of layers that predict further tokens: frameworks train none unless asked."""
    layers = content.get("num_nextn_predict_layers")
    further = f"with mtp_layers = {layers}" if isinstance(layers, int) and layers else "where given"
    return (
        f"Layers that predict further tokens (MTP) count {further}; parts that see images, if any, "
        "aren't counted."
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path}: can't be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        message = f"{path}: is not UTF-8 text (byte {error.start})"
    except ValueError as error:
        message = f"{path}: is not JSON: {error}"
    except RecursionError:
        message = f"{path}: is not a config: nested too deeply"
    else:
        if isinstance(content, dict):
            return content
        message = f"{path}: is not a config: an object with keys is expected"
    raise InputError(message)
