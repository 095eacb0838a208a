"""A model's shapes from Megatron-LM's arguments.

What isn't said is as megatron/training/arguments.py and transformer_config.py have it at
NVIDIA/Megatron-LM @d98e8a64dd.
"""

from __future__ import annotations

import math
import re
from math import isnan

from overhead.model.order import numbers_of
from sweeps.errors import InputError
from sweeps.launch.arguments import Settings
from sweeps.launch.calculated import listed
from sweeps.launch.setting import Setting
from sweeps.launch.terms import MEGATRON, keys_of, terms_of
from sweeps.spec.catalog import load_model

# Tokenizers that add a token for the end to the size that is given.
ADDS_END = frozenset(("NullTokenizer", "NullMultimodalTokenizer"))
# Tokenizers that are one vocabulary's.
TOKENS = {"GPT2BPETokenizer": 50257.0, "Llama2Tokenizer": 32000.0}
# The letters of a hybrid's pattern that have a kind of ours.
LETTERS = {"M": "M", "*": "*", "E": "E", "G": "L"}


def read_model(settings: Settings, tp: float, *, padded: bool) -> None:
    """Take a model's shapes."""
    layers = _layers(settings)
    hidden = _needed(settings, "--hidden-size")
    heads = _needed(settings, "--num-attention-heads")
    _needed(settings, "--seq-length")
    _feed_forward(settings, hidden)
    _attention(settings, hidden, heads)
    _window(settings, layers)
    _vocabulary(settings, tp, padded=padded)
    _common(settings)
    if settings.text("--num-experts"):
        _mixture(settings, layers)
    if "--enable-mhc-connections" in settings:
        streams = settings.number("--mhc-num-residual-streams", default=4.0)
        settings.take(
            "residual_streams", streams, "--mhc-num-residual-streams", "--enable-mhc-connections"
        )
    further = settings.number("--mtp-num-layers", quantity="mtp_layers", default=0.0)
    if further:
        settings.take("mtp_layers", further, "--mtp-num-layers")


def _needed(settings: Settings, flag: str) -> float:
    """Take a number that has no usual one: who asks gives it where the file doesn't."""
    value = settings.take_number(keys_of(MEGATRON)[flag].quantity, flag)
    if isnan(value) and flag not in settings.by_name:
        settings.reading.asks.append(flag)
    return value


def _layers(settings: Settings) -> float:
    """Take the layers, by kind where a pattern says it; return their number."""
    flags = ("--hybrid-layer-pattern", "--hybrid-override-pattern")
    pattern = settings.text(*flags)
    if not pattern:
        layers = _needed(settings, "--num-layers")
        _linear(settings, layers)
        return layers
    settings.find("--num-layers")
    main, _, further = pattern.replace("|", "").partition("/")
    dense, mixtures = main.count("-"), main.count("E")
    known = {*LETTERS, "-"} - ({"-"} if mixtures else set())
    wrong = sorted(set(main) - known)
    mixers = float(len(main) - dense - mixtures)
    if wrong or dense + mixtures > mixers:
        setting = settings.find(*flags)
        assert setting is not None
        kinds = f"layers of the kind {', '.join(wrong)} are" if wrong else "so few mixers are"
        settings.reading.fault(
            setting,
            pattern,
            f"{kinds}n't modelled; M, G and * with E or - behind some of them are",
        )
        return math.nan
    order = "".join(LETTERS[letter] for letter in main if letter != "-")
    settings.take("layers", mixers, *flags)
    settings.take("separate_moe_layers", float(mixtures), *flags)
    settings.take("bare_layers", mixers - mixtures - dense, *flags)
    settings.take("linear_layers", float(len(re.findall("[ML]", order))), *flags)
    for name, value in numbers_of(order).items():
        settings.take(name, value, *flags)
    if further:
        settings.take("mtp_layers", 1.0, *flags)
    if not dense:
        settings.take("ffn_size", 0.0, *flags)
    settings.take("mamba", float("M" in order), *flags)
    if "M" in order:
        settings.take_declared(MEGATRON, *terms_of(MEGATRON)["numbers"]["state_space"])
        settings.take("linear_kernel", 4.0, why="a convolution of 4 tokens")
    settings.take("dense_layers", 0.0)
    return mixers


def _linear(settings: Settings, layers: float) -> None:
    """Take layers of linear attention, or of attention that selects tokens."""
    variant = settings.text("--experimental-attention-variant")
    if variant == "dsa":
        for flag in ("--dsa-indexer-n-heads", "--dsa-indexer-head-dim", "--dsa-indexer-topk"):
            _needed(settings, flag)
        every = settings.number("--dsa-indexer-topk-freq", default=1.0)
        if every > 1.0:
            settings.take("index_layers", layers / every, "--dsa-indexer-topk-freq")
    if variant != "gated_delta_net":
        return
    text = settings.text("--linear-attention-freq")
    kinds = _kinds(text, layers, first=1)
    if kinds is None:
        setting = settings.find("--linear-attention-freq")
        if setting is not None:
            settings.reading.fault(setting, text, "N or a list of 0 and 1, one a layer")
        return
    # Of every N layers the last has full attention.
    order = "".join("L" if kind else "*" for kind in kinds)
    settings.take("linear_layers", float(sum(kinds)), "--linear-attention-freq")
    settings.take("mamba", 0.0, "--linear-attention-freq")
    for name, value in numbers_of(order).items():
        settings.take(name, value, "--linear-attention-freq")
    settings.take_declared(MEGATRON, *terms_of(MEGATRON)["numbers"]["linear_attention"])


def _kinds(text: str, layers: float, first: int) -> list[int] | None:
    """Return of each layer 0 or 1, from a list or from every how-many-th is the other kind."""
    if isnan(layers):
        return None
    if text.strip().isdigit():
        every = max(int(text), 1)
        return [first if (k + 1) % every else 1 - first for k in range(int(layers))]
    kinds = listed(text)
    return kinds if kinds is not None and len(kinds) == layers and {*kinds} <= {0, 1} else None


def _feed_forward(settings: Settings, hidden: float) -> None:
    gates = ("--swiglu", "--gated-linear-unit", "--quick-geglu")
    gated = any(gate in settings for gate in gates)
    settings.take("gated_mlp", float(gated), *gates, why="an MLP without a gate")
    inner = settings.number("--ffn-hidden-size", quantity="ffn_size")
    if "ffn_size" in settings.reading.given:
        return
    if isnan(inner) and "--ffn-hidden-size" not in settings.by_name:
        inner = 64.0 * (8.0 * hidden / 3.0 // 64.0) if gated else 4.0 * hidden
        settings.take("ffn_size", inner, why=f"--ffn-hidden-size {inner:g}")
    else:
        settings.take("ffn_size", inner, "--ffn-hidden-size")


def _attention(settings: Settings, hidden: float, heads: float) -> None:
    if "--multi-latent-attention" in settings:
        settings.take_declared(
            MEGATRON,
            "--kv-lora-rank",
            "--q-lora-rank",
            *terms_of(MEGATRON)["numbers"]["latent_heads"],
        )
        settings.find("--qk-layernorm")
    else:
        groups = settings.find("--num-query-groups")
        if "--group-query-attention" in settings:
            why = "--num-query-groups 1"
            settings.take_number("kv_heads", "--num-query-groups", usual=1.0, why=why)
        else:
            settings.take("kv_heads", heads, why="as many key-value heads as heads")
            if groups is not None and groups.value != f"{heads:g}":
                settings.reading.notes.append(
                    f"warning: {groups} {groups.value} has no effect without "
                    f"--group-query-attention: {heads:g} key-value heads"
                )
        settings.take_number("head_size", "--kv-channels", usual=hidden / heads)
        settings.take_switch("qk_norms", "--qk-layernorm")
    if settings.text("--softmax-type") == "learnable":
        settings.take("attention_sinks", heads, "--softmax-type")
    settings.take_switch("output_gate", "--attention-output-gate")


def _window(settings: Settings, layers: float) -> None:
    numbers = re.findall(r"-?\d+", settings.text("--window-size"))
    if not numbers:
        return
    settings.take("sliding_window", float(numbers[0]) + 1.0, "--window-size")
    text = settings.text("--window-attn-skip-freq")
    kinds = _kinds(text, layers, first=1) if text else None
    if kinds is not None:
        settings.take("sliding_window_layers", float(sum(kinds)), "--window-attn-skip-freq")


def _vocabulary(settings: Settings, tp: float, *, padded: bool) -> None:
    reading = settings.reading
    multiple = settings.number("--make-vocab-size-divisible-by", default=128.0)
    whole = settings.number("--padded-vocab-size", quantity="vocabulary_size")
    if not isnan(whole):
        settings.take("vocabulary_size", whole, "--padded-vocab-size")
        settings.take("vocabulary_multiple", 1.0, "--padded-vocab-size")
        return
    size = settings.number("--vocab-size", quantity="vocabulary_size")
    kind = settings.find("--tokenizer-type")
    name = str(kind.value) if kind else ""
    extra = settings.number("--vocab-extra-ids", default=0.0)
    if isnan(size) and "--vocab-size" not in settings.by_name:
        size = _tokens(settings, name)
        if isnan(size):
            reading.asks.append("--vocab-size")
            return
    if isnan(size):
        return
    size += extra + (name in ADDS_END)
    if padded and multiple and "vocabulary_size" not in settings.overrides:
        size = math.ceil(size / (multiple * tp)) * multiple * tp
    settings.take("vocabulary_size", size, "--vocab-size", "--tokenizer-type")
    settings.take("vocabulary_multiple", multiple, "--make-vocab-size-divisible-by")


def _tokens(settings: Settings, kind: str) -> float:
    """Return how many tokens a tokenizer knows; NaN where that isn't known."""
    if not kind and "--merge-file" in settings.by_name:
        kind = "GPT2BPETokenizer"
    if kind in TOKENS:
        settings.reading.defaults.append(f"{TOKENS[kind]:g} tokens of {kind}")
        return TOKENS[kind]
    name = settings.text("--tokenizer-model")
    try:
        return load_model(name).shapes["vocabulary_size"] if name else math.nan
    except InputError:
        return math.nan


def _common(settings: Settings) -> None:
    """Take biases, norms, positions, dropout."""
    biases, tied = "biases in linear layers", "tied embeddings"
    settings.take_flag("linear_bias", "--disable-bias-linear", biases, off=True)
    settings.take_switch("qkv_biases", "--add-qkv-bias")
    norm = settings.text("--normalization", default="LayerNorm")
    full = norm.lower() in ("layernorm", "layernorm1p")  # Of NeMo, too
    settings.take("layer_norm", float(full), "--normalization", why="LayerNorm")
    settings.take_flag("tied_embeddings", "--untie-embeddings-and-output-weights", tied, off=True)
    turned = "--use-rotary-position-embeddings" in settings or "--no-position-embedding" in settings
    stated = settings.find("--position-embedding-type")  # "none" is a kind, too
    kind = "learned_absolute" if stated is None else str(stated.value)
    positions = settings.number("--max-position-embeddings", default=0.0)
    if kind == "learned_absolute" and not turned:
        settings.take("learned_positions", positions, "--max-position-embeddings")
    else:
        settings.take(
            "learned_positions",
            0.0,
            "--position-embedding-type",
            "--use-rotary-position-embeddings",
            "--no-position-embedding",
        )
    shares = [
        settings.number(f"--{kind}-dropout", default=0.1, whole=False)
        for kind in ("attention", "hidden")
    ]
    settings.take(
        "dropout",
        float(max(shares) > 0.0),
        "--hidden-dropout",
        "--attention-dropout",
        why="dropout 0.1",
    )


def _mixture(settings: Settings, layers: float) -> None:
    settings.take_declared(MEGATRON, "--num-experts", "--moe-router-topk")
    dense = settings.reading.given.get("ffn_size", math.nan)
    why = "experts as wide as MLPs"
    settings.take_number("expert_ffn_size", "--moe-ffn-hidden-size", usual=dense, why=why)
    shared = settings.number("--moe-shared-expert-intermediate-size", default=0.0)
    settings.take("shared_ffn_size", shared, "--moe-shared-expert-intermediate-size")
    settings.take_declared(
        MEGATRON, "--moe-router-num-groups", "--moe-router-group-topk", "--moe-latent-size"
    )
    settings.take_switch("shared_expert_gate", "--moe-shared-expert-gate")
    settings.take_flag("router_bias", "--moe-router-enable-expert-bias")
    if "dense_layers" not in settings.reading.given:
        _mixture_layers(settings, layers)
    settings.find("--moe-shared-expert-overlap")


def _mixture_layers(settings: Settings, layers: float) -> None:
    """Take which layers have experts."""
    setting: Setting | None = settings.find("--moe-layer-freq")
    text = str(setting.value) if setting else "1"
    if text.strip().isdigit():
        settings.take("moe_layer_frequency", float(text), "--moe-layer-freq")
        settings.take("dense_layers", 0.0, "--moe-layer-freq")
        return
    assert setting is not None
    kinds = listed(text)
    if kinds is None or (not isnan(layers) and len(kinds) != layers):
        settings.reading.fault(setting, text, "N or a list of 0 and 1, one a layer")
        return
    dense = kinds.index(1) if 1 in kinds else len(kinds)
    every = next(
        (
            n
            for n in range(1, len(kinds) + 1)
            if all(kind == int((k + 1) % n == 0) for k, kind in enumerate(kinds))
        ),
        0,
    )
    if all(kinds[dense:]):
        settings.take("dense_layers", float(dense), "--moe-layer-freq")
        settings.take("moe_layer_frequency", 1.0, "--moe-layer-freq")
    elif every:
        settings.take("dense_layers", 0.0, "--moe-layer-freq")
        settings.take("moe_layer_frequency", float(every), "--moe-layer-freq")
    else:
        settings.reading.fault(
            setting, text, "leading dense layers, or experts in every N-th, are modelled"
        )
