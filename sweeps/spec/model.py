"""A model: its shapes with their sources, what follows from them, and what they must fulfil."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from overhead.graph import Evaluation, MissingQuantities, derive
from overhead.labels import chosen
from overhead.quantity import VOCABULARY
from overhead.transformer import FLAGS, HYBRID_FLAGS, HYBRID_SHAPES, SHAPES, VITAL
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.figures import ORIGINS, Figure, FigureReader
from sweeps.spec.units import parse_quantity

# What has no default, since a wrong guess would change every number.
# Far above any model; products of shapes stay finite.
LARGEST = 1e18
COUNTS = ("parameters", "active_parameters")
_OF_EXPERTS = ("experts_per_token", "expert_ffn_size", "shared_ffn_size", "dense_layers")
_OF_LATENTS = ("q_rank", "head_size_plain", "head_size_rope", "head_size_value")


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its shapes, each with where it comes from, or its number of parameters alone."""

    name: str  # What the catalogue calls it, what people call it, and what to know of it
    title: str  # What the catalogue calls it, what people call it, and what to know of it
    summary: str  # What the catalogue calls it, what people call it, and what to know of it
    path: Path | None  # Its file; None for a bare count
    kind: str  # Where its shapes come from, as of a machine's figures; a figure may have its own
    source: str  # Where its shapes come from, as of a machine's figures; a figure may have its own
    hugging_face: tuple[str, ...]  # The names under which Hugging Face has models of these shapes
    # By quantity, in the vocabulary's order: all shapes, those that weren't stated among them; or
    # ``parameters`` alone
    figures: Mapping[str, Figure]
    stated: frozenset[str]  # The quantities that its file states; the others are defaults
    # ``attention``: ``mha`` (heads of their own, grouped or not) or ``mla`` (latent); none for a
    # bare count
    labels: Mapping[str, str]

    @property
    def shapes(self) -> dict[str, float]:
        """The values by quantity: what formulas are given."""
        return {name: figure.value for name, figure in self.figures.items()}

    def quantity(self, name: str, **given: float) -> float:
        """Compute a quantity of this model."""
        if name not in VOCABULARY:
            raise InputError(fault("quantity", name, "is unknown", nearest(name, VOCABULARY)))
        try:
            known = {**self.shapes, **given}
            return float(Evaluation(known, chosen(known))[name])
        except MissingQuantities as error:
            self.need(error.missing, name, given)
            raise

    def need(self, names: Iterable[str], why: str, given: Iterable[str] = ()) -> None:
        """Refuse a model that lacks something."""
        lacking = [name for name in names if name not in self.figures and name not in given]
        # What has a default goes unsaid where there is something without one.
        vital = [name for name in lacking if name in (*VITAL, "ffn_size") or name not in SHAPES]
        if lacking:
            bare = "" if "layers" in self.figures else ": it is a number of parameters alone"
            message = f"{why} needs {', '.join(sorted(vital or lacking, key=_order))}"
            raise InputError(fault("model", self.name, f"doesn't say enough{bare}", message))


def _order(name: str) -> int:
    return SHAPES.index(name) if name in SHAPES else len(SHAPES)


def shape_value(name: str, given: object, place: str) -> float:
    """Read one shape."""
    if name in (*FLAGS, *HYBRID_FLAGS) and isinstance(given, bool):
        return float(given)
    value = parse_quantity(given, "1", field=place, bare_is_si=False)
    quantity = VOCABULARY[name]
    if name in COUNTS:
        outside, domain = not (value >= 1.0 and value.is_integer()), "a whole number from 1"
    else:
        outside, domain = bool(quantity.outside(np.asarray(value))), quantity.domain()
    if outside or value > LARGEST:
        domain = domain if value <= LARGEST else f"{domain} up to {LARGEST:g}"
        domain = "true or false" if name in (*FLAGS, *HYBRID_FLAGS) else domain
        raise InputError(
            fault(place, given, "isn't allowed", f"write {domain} ({quantity.meaning})")
        )
    return value


def complete_shapes(values: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Return what shapes are where they aren't stated, and why."""
    added: dict[str, tuple[float, str]] = {}
    if "heads" in values:
        added["kv_heads"] = (values["heads"], "not stated: as many as heads")
        if values.get("kv_rank", 0.0) > 0.0:
            size = values.get("head_size_plain", 0.0) + values.get("head_size_rope", 0.0)
            added["head_size"] = (size, "not stated: head_size_plain + head_size_rope")
        elif "hidden_size" in values:
            size = values["hidden_size"] / values["heads"]
            added["head_size"] = (size, "not stated: hidden_size/heads")
    for name in SHAPES:
        if name not in (*VITAL, *added, "kv_heads", "head_size"):
            added[name] = (float(name == "moe_every"), "not stated: none")
    added["moe_every"] = (1.0, "not stated: every layer after the dense ones")
    return {name: found for name, found in added.items() if name not in values}


def shape_faults(values: Mapping[str, float], place: str) -> list[str]:
    """Return what is missing from shapes or contradicts itself, a line each."""
    missing = [f"{place}{name}: is missing; every model has one" for name in VITAL]
    faults = [line for name, line in zip(VITAL, missing, strict=True) if name not in values]
    full = {name: value for name, (value, _) in complete_shapes(values).items()} | dict(values)

    def wrong(name: str, why: str, allowed: str) -> None:
        value = full[name]
        shown = int(value) if value.is_integer() else round(value, 3)
        faults.append(fault(f"{place}{name}", shown, why, allowed))

    def required(names: Iterable[str], why: str) -> None:
        for name in names:
            if full[name] <= 0.0:
                problem = "is zero" if name in values else "is missing"
                faults.append(f"{place}{name}: {problem}; {why}")

    routed = full["experts"] > 0.0
    if routed:
        required(_OF_EXPERTS[:2], "every model with experts has one")
    for name in () if routed else (*_OF_EXPERTS, "router_bias"):
        if full[name] > 0.0:
            wrong(name, "needs experts", "give experts, or leave it out")
    if full["experts_per_token"] > full["experts"] > 0.0:
        wrong("experts_per_token", "is more than there are", f"at most {full['experts']:g}")
    if full["kv_rank"] > 0.0:
        required(_OF_LATENTS[1:], "every latent attention has one")
    for name in () if full["kv_rank"] > 0.0 else _OF_LATENTS:
        if full[name] > 0.0:
            wrong(name, "needs kv_rank", "give kv_rank, or leave it out")
    if full.get("linear_layers", 0.0) > 0.0:
        full |= {name: full.get(name, 0.0) for name in HYBRID_SHAPES}
        required(HYBRID_SHAPES[1 : -len(HYBRID_FLAGS)], "every linear attention has one")
        if full["linear_layers"] > full.get("layers", LARGEST):
            wrong("linear_layers", "is more than there are", f"at most {full['layers']:g}")
    if "layers" in full:
        _layer_faults(full, wrong, required)
    if "heads" in full and "hidden_size" in full:
        _head_faults(full, wrong)
    return faults


def _layer_faults(full: Mapping[str, float], wrong: Any, required: Any) -> None:
    if full["dense_layers"] > full["layers"]:
        wrong("dense_layers", "is more than there are", f"at most {full['layers']:g}")
        return
    needed = ("layers", "dense_layers", "moe_every", "experts")
    moe = float(derive("moe_layers", {name: full[name] for name in needed}))
    if full["experts"] > 0.0 and moe == 0.0:
        wrong("experts", "no layer has them", "fewer dense_layers, or a smaller moe_every")
    # Of a hybrid's blocks one may have no MLP.
    bare = full.get("linear_layers", 0.0) > 0.0 and "ffn_size" in full
    if moe < full["layers"] and not bare:
        required(("ffn_size",), f"{full['layers'] - moe:g} layers are dense")


def _head_faults(full: Mapping[str, float], wrong: Any) -> None:
    if full["heads"] % full["kv_heads"]:
        wrong("kv_heads", "does not divide heads", f"a divisor of {full['heads']:g}")
    if full["kv_rank"] > 0.0 and full["kv_heads"] != full["heads"]:
        wrong("kv_heads", "is not heads", "latent attention has keys and values for each head")
    if not full["head_size"].is_integer():
        wrong("head_size", "is not whole as hidden_size/heads", "state head_size")


def join_figures(stated: Mapping[str, Figure]) -> dict[str, Figure]:
    """Return stated shapes and those that weren't, in the vocabulary's order."""
    values = {name: figure.value for name, figure in stated.items()}
    added = {
        name: Figure(value, "1", "assumed", why)
        for name, (value, why) in complete_shapes(values).items()
    }
    none = Figure(0.0, "1", "assumed", "not stated: none")
    given = (
        dict.fromkeys(HYBRID_FLAGS, none) | dict(stated) if "linear_layers" in stated else stated
    )
    hybrid = {name: given[name] for name in HYBRID_SHAPES if name in given}
    return {name: (stated.get(name) or added[name]) for name in SHAPES} | hybrid


def attention_label(figures: Mapping[str, Figure]) -> dict[str, str]:
    """Return the labels that shapes have."""
    return {"attention": "mla" if figures["kv_rank"].value > 0.0 else "mha"}


# A model's file: what it may hold, checked whole.
#
# A model file states shapes, or a bare count of parameters.  Unknown keys, missing shapes and
# shapes
# that contradict each other are all reported together, each with its place.

KEYS = ("name", "title", "summary", "hugging_face", "kind", "source", "shapes", *COUNTS)


def read_model(path: Path, content: Mapping[str, Any]) -> Model:
    """Make a model of a model file's content."""
    reader = _ModelFile(path, content)
    return reader.checked(reader.model())


class _ModelFile(FigureReader):
    """A walk over a model file."""

    listed = 40

    def model(self) -> Model:
        self.unknown("", self.content, KEYS)
        name = self.name()
        kind, source = self._origin(self.content, "")
        stated = self._counts(kind, source)
        if "shapes" in self.content or not any(name in self.content for name in COUNTS):
            stated = self._shapes(kind, source)
        whole = bool(stated) and not self.faults and "parameters" not in stated
        figures = join_figures(stated) if whole else stated
        return Model(
            name=name,
            title=self.text("", self.content, "title"),
            summary=self.text("", self.content, "summary", default=""),
            path=self.path,
            kind=kind,
            source=source,
            hugging_face=self._names(),
            figures=figures,
            stated=frozenset(stated),
            labels=attention_label(figures) if whole else {},
        )

    def _counts(self, kind: str, source: str) -> dict[str, Figure]:
        found = {name: self.content[name] for name in COUNTS if name in self.content}
        if "shapes" in self.content:
            for name, value in found.items():
                self.fault(
                    name, value, "can't be given with shapes", "it follows from them: drop one"
                )
            return {}
        if "active_parameters" in found and "parameters" not in found:
            self.faults.append(f"{self.path}: parameters: is missing beside active_parameters")
        figures = {name: self._figure(name, given, kind, source) for name, given in found.items()}
        counts = {name: figure for name, figure in figures.items() if figure}
        most = counts.get("parameters")
        active = counts.get("active_parameters")
        if most and active and active.value > most.value:
            self.fault("active_parameters", f"{active.value:g}", "is more than all", "at most all")
        return counts

    def _shapes(self, kind: str, source: str) -> dict[str, Figure]:
        table = self.content.get("shapes")
        if not isinstance(table, dict):
            wrong = "is missing" if table is None else "is not a table"
            self.faults.append(
                f"{self.path}: shapes: {wrong}; write [shapes], or parameters for a bare count"
            )
            return {}
        self.unknown("shapes", table, (*SHAPES, *HYBRID_SHAPES))
        figures = {
            name: self._figure(f"shapes.{name}", given, kind, source)
            for name, given in table.items()
            if name in (*SHAPES, *HYBRID_SHAPES)
        }
        stated = {name: figure for name, figure in figures.items() if figure}
        if len(stated) == len(figures):
            values = {name: figure.value for name, figure in stated.items()}
            self.faults += shape_faults(values, f"{self.path}: shapes.")
        return stated

    def _figure(self, place: str, given: object, kind: str, source: str) -> Figure | None:
        """Read ``80``, or ``{ value = 80, kind = .., source = .. }`` with an origin of its own."""
        if isinstance(given, dict):
            self.unknown(place, given, ("value", "kind", "source"))
            kind, source = self._origin(given, place)
            if "value" not in given:
                self.faults.append(f"{self.path}: {place}.value: is missing")
                return None
            given, place = given["value"], f"{place}.value"
        name = place.removeprefix("shapes.").removesuffix(".value")
        value = self.of(shape_value, name, given, f"{self.path}: {place}")
        return None if value is None else Figure(value, "1", kind, source)

    def _origin(self, table: Mapping[str, Any], place: str) -> tuple[str, str]:
        return self.choice(place, table, "kind", ORIGINS), self.text(place, table, "source")

    def _names(self) -> tuple[str, ...]:
        given = self.content.get("hugging_face", [])
        names = [given] if isinstance(given, str) else given
        if isinstance(names, list) and all(isinstance(name, str) and name for name in names):
            return tuple(names)
        self.fault("hugging_face", given, "is not a name", 'write "owner/name", or a list of such')
        return ()


# A model from the ``config.json`` that Hugging Face keeps beside its weights.
#
# Each kind of model (``model_type``) has keys of its own.  A key is needed where transformers' own
# default would be one model's size rather than a rule; what our shapes can't tell is refused.

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
    config.set("gated", 1.0, f"every {config.model_type} model")


def _heads(config: _Config, *, sized: bool = False) -> None:
    config.take("kv_heads", "num_key_value_heads")
    (config.take if sized else config.maybe)("head_size", "head_dim")


def _no_biases(config: _Config) -> None:
    if config.flag("attention_bias"):
        config.refuse("attention_bias", "isn't known with this kind of model", "false")


def _window(config: _Config) -> None:
    """Read a window that ``use_sliding_window`` switches on, in all layers or in none."""
    layers = config.figures.get("layers")
    count = int(layers.value) if layers else 0
    if not config.flag("use_sliding_window") or config.content.get("sliding_window") is None:
        config.set("window", 0.0, "use_sliding_window or sliding_window: none")
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
        config.set("window", 0.0, f"{key}: no layer has a window")
    elif windowed == count:
        config.maybe("window", "sliding_window")
    else:
        wrong = f"gives a window to {windowed} of {count} layers"
        config.refuse(key, wrong, "a window in all layers or in none is known")


def _llama(config: _Config) -> None:
    _gated(config)
    config.take("ffn_size", "intermediate_size")
    config.maybe("kv_heads", "num_key_value_heads")
    config.maybe("head_size", "head_dim")
    biases = [config.flag(key) for key in ("attention_bias", "mlp_bias")]
    if biases[0] != biases[1]:
        key = "attention_bias" if biases[0] else "mlp_bias"
        config.refuse(key, "gives biases to a part of the layer", "both or neither is known")
    config.set("biases", float(all(biases)), "attention_bias and mlp_bias")


def _mistral(config: _Config) -> None:
    _gated(config)
    config.take("ffn_size", "intermediate_size")
    _heads(config)
    config.none_or("window", "sliding_window")


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
    config.take("experts", "num_experts")
    config.take("experts_per_token", "num_experts_per_tok")
    config.take("expert_ffn_size", "moe_intermediate_size")
    config.maybe("moe_every", "decoder_sparse_step")
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
    config.maybe("window", "sliding_window")
    config.take("experts", "num_local_experts")
    config.take("experts_per_token", "num_experts_per_tok")
    config.take("expert_ffn_size", "intermediate_size")


def _linear(config: _Config) -> None:
    """Read layers whose attention is a gated delta net."""
    for shape, key in {
        "linear_key_heads": "linear_num_key_heads",
        "linear_value_heads": "linear_num_value_heads",
        "linear_key_size": "linear_key_head_dim",
        "linear_value_size": "linear_value_head_dim",
        "linear_kernel": "linear_conv_kernel_dim",
    }.items():
        config.take(shape, key)
    config.set("output_gate", 1.0, f"every {config.model_type} model")
    types, layers = config.content.get("layer_types"), config.figures.get("layers")
    if isinstance(types, list):
        count = sum(kind == "linear_attention" for kind in types)
        config.set("linear_layers", float(count), "layer_types")
    elif layers:
        every = config.content.get("full_attention_interval", 4)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            config.refuse("full_attention_interval", "is no number of layers", "a number from 1")
            return
        linear = layers.value - layers.value // every
        config.set("linear_layers", linear, "full_attention_interval, 4 where it isn't given")


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
    config.take("experts", "num_local_experts")
    config.take("experts_per_token", "num_experts_per_tok")
    config.take("expert_ffn_size", "intermediate_size")
    config.maybe("shared_ffn_size", "shared_intermediate_size")
    config.set("router_bias", float(config.flag("use_routing_bias")), "use_routing_bias")


def _deepseek_v3(config: _Config) -> None:
    _gated(config)
    _no_biases(config)
    config.none_or("q_rank", "q_lora_rank")
    for shape, key in {
        "kv_rank": "kv_lora_rank",
        "head_size_plain": "qk_nope_head_dim",
        "head_size_rope": "qk_rope_head_dim",
        "head_size_value": "v_head_dim",
        "ffn_size": "intermediate_size",
        "experts": "n_routed_experts",
        "experts_per_token": "num_experts_per_tok",
        "expert_ffn_size": "moe_intermediate_size",
        "dense_layers": "first_k_dense_replace",
    }.items():
        config.take(shape, key)
    _shared(config)
    if config.content.get("moe_layer_freq", 1) != 1:
        config.refuse("moe_layer_freq", "isn't known", "1")
    balanced = config.content.get("topk_method", "noaux_tc") == "noaux_tc"
    config.set("router_bias", float(balanced), "topk_method (noaux_tc has a bias)")


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
    for shape, value in {"gated": 0.0, "biases": 1.0, "layer_norm": 1.0}.items():
        config.set(shape, value, why)


MODEL_TYPES: dict[str, Callable[[_Config], None]] = {
    "deepseek_v3": _deepseek_v3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "kimi_k2": _deepseek_v3,
    "kimi_k25": _deepseek_v3,
    "llama": _llama,
    "minimax_m2": _minimax_m2,
    "mistral": _mistral,
    "mixtral": _mixtral,
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
        raise InputError(fault(f"{path}: model_type", model_type, wrong, f"known: {known}"))
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
        stated=frozenset(config.figures),
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
