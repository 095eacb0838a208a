"""A model from the ``config.json`` that Hugging Face keeps beside its weights.

Each kind of model (``model_type``) has keys of its own: ``specs/configs/kinds.toml`` says which.
A key is needed where transformers' own default would be one model's size rather than a rule.  A
kind that isn't known is read as a Llama where it has a Llama's keys and none that tell of more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from overhead.model.order import NUMBERS
from overhead.quantity import VOCABULARY
from overhead.transformer import FURTHER_SHAPES, HYBRID_SHAPES
from sweeps.errors import nearest, refuse, reject
from sweeps.spec.config_keys import Config
from sweeps.spec.config_rules import RULES
from sweeps.spec.config_towers import tower_parameters
from sweeps.spec.fields import Figure
from sweeps.spec.files import read_toml, shared_toml, shipped, text_of
from sweeps.spec.model import Model, attention_label, join_figures, shape_faults

# What a kind says that is no shape.
NO_SHAPES = ("like", "rules", "full_each", "full_first", "wrapper")
# What kinds have in common, and none is.
BASES = ("decoder", "gated_decoder", "plain_decoder", "latent_decoder")
WAY_ON = (
    "write its shapes in a TOML file (those in specs/models are examples) and give --model FILE, "
    "or give them in place of --model: --num-layers, --hidden-size, --num-heads, --ffn-size, .."
)
NAMELESS = ("config.json", "params.json")  # Files that are called after their folder
LIKE = "llama"  # As what a kind is read that isn't known
BIASES = ("qkv_biases", "attention_output_bias", "mlp_bias", "expert_bias")
SILENT: tuple[object, ...] = (None, False, 0, 1, [], {})


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """Return what each kind of model states, with what it takes from another."""
    stated = read_toml(shipped("configs") / "kinds.toml")
    whole: dict[str, dict[str, Any]] = {}
    for name, kind in stated.items():
        whole[name] = {**whole.get(kind.get("like", ""), {}), **kind}
    return whole


def _words() -> Mapping[str, list[str]]:
    """Return what names and keys say of models, by what they say."""
    words: Mapping[str, list[str]] = shared_toml(shipped("configs") / "words.toml")
    return words


def known_kinds() -> tuple[str, ...]:
    """Return the kinds that models have, sorted."""
    return tuple(sorted(set(kinds()) - {*BASES}))


def read_config(path: Path) -> Model:
    """Read a Hugging Face ``config.json``."""
    whole = _read_json(path)
    content, model_type = _text_part(whole)
    if model_type is None:
        content = _without_kind(path, content)
        model_type = content["model_type"]
    kind, assumed = _kind(path, content, model_type)
    config = Config(path, content, model_type, kind)
    for shape, stated in kind.items():
        if shape not in NO_SHAPES:
            config.read(shape, stated)
    if not config.faults:
        for rule in kind.get("rules", ()):
            RULES[rule](config)
        _join_biases(config)
    if not config.faults:
        values = {shape: figure.value for shape, figure in config.figures.items()}
        config.faults += shape_faults(values, f"{path}: ")
    config.tell()
    figures_stated = {
        name: figure for name, figure in config.figures.items() if not _silent(name, figure.value)
    }
    if assumed:
        figures_stated = {
            name: Figure(
                figure.value,
                "1",
                "assumed" if " every " in figure.source else figure.kind,
                figure.source,
            )
            for name, figure in figures_stated.items()
        }
    figures = join_figures(figures_stated)
    seeing = _seeing(whole)
    name = path.stem if path.name not in NAMELESS else path.resolve().parent.name
    return Model(
        name=name,
        title=f"{name} ({model_type})",
        summary=" ".join(part for part in (assumed, _further(content), seeing) if part),
        path=path,
        kind="specification",
        source=f"{path}",
        hugging_face=(),
        figures=figures,
        stated=frozenset(figures_stated),
        labels=attention_label(figures),
        note="; ".join(part.rstrip(".") for part in (assumed, seeing) if part),
    )


def _without_kind(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return what Meta's ``params.json`` says as a config, or refuse what has no kind."""
    base = content.get("base_model_name_or_path")
    if isinstance(base, str):
        rank = content.get("r")
        rank = f" --lora-rank {rank}" if isinstance(rank, int) and rank else ""
        way = f"give the model: --model {base}{rank}"
        refuse(f"{path}: base_model_name_or_path", base, "is an adapter's", way)
    if not {"dim", "n_layers", "n_heads"} <= content.keys():
        known = f"known: {', '.join(known_kinds())}"
        reject(f"{path}: model_type", f"is missing; {known}; or {WAY_ON}")
    if (tokens := content.get("vocab_size")) in (None, -1):
        wrong = "is its tokenizer's, which isn't here"
        refuse(f"{path}: vocab_size", tokens, wrong, "write it: 32000 of Llama 2")
    return {**content, "model_type": "params"}


def _silent(name: str, value: float) -> bool:
    """Return whether a further shape says no more than its absence."""
    further = name in FURTHER_SHAPES and name not in (*HYBRID_SHAPES, *NUMBERS)
    return further and value == VOCABULARY[name].default


def _join_biases(config: Config) -> None:
    """Say once that everything has a bias."""
    routed = config.value("experts") > 0.0
    some = not routed or config.value("ffn_size") + config.value("shared_ffn_size") > 0.0
    needed = (
        "qkv_biases",
        "attention_output_bias",
        *(("mlp_bias",) if some else ()),
        *(("expert_bias",) if routed else ()),
    )
    if all(config.value(name) for name in needed) and not config.value("linear_layers"):
        config.set("linear_bias", 1.0, "biases of attention and of the MLP")
    if config.value("linear_bias"):
        config.drop(*BIASES)


def _text_part(content: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the part that reads text, and its kind: a wrapper's tie rules over the part's own."""
    for key in _words()["texts"]:
        part = content.get(key)
        if isinstance(part, dict):
            model_type = part.get("model_type")
            known = isinstance(model_type, str) and _named(model_type) in kinds()
            tie = "tie_word_embeddings"
            own_tie = {tie: content[tie]} if tie in content else {}
            outer = content.get("model_type", model_type)
            rules = isinstance(outer, str) and kinds().get(outer, {}).get("wrapper", False)
            kind = model_type if known and not rules else outer
            return {**content, **part, **own_tie}, kind
    return content, content.get("model_type")


def _named(model_type: str) -> str:
    return model_type.removesuffix("_text")


def _kind(
    path: Path, content: Mapping[str, object], model_type: object
) -> tuple[dict[str, Any], str]:
    """Return what a kind states, and what was assumed of one that isn't known."""
    known = kinds()
    if isinstance(model_type, str):
        for name in (model_type, _named(model_type)):
            if name in known_kinds():
                return known[name], ""
    location = f"{path}: model_type"
    if model_type in _words()["two_towers"] or content.get("is_encoder_decoder") is True:
        wrong = "is a kind of model with two towers, which isn't modelled"
        refuse(location, model_type, wrong, WAY_ON)
    ordinary = {"full_attention", "sliding_attention"}
    types = content.get("layer_types")
    windows = isinstance(types, list) and all(kind in ordinary for kind in map(str, types))
    needed = [
        stated
        for stated in known[LIKE].values()
        if isinstance(stated, str) and stated.isidentifier() and stated not in kinds()
    ]
    further = sorted(
        key
        for key, value in content.items()
        if re.search("|".join(_words()["other_parts"]), str(key))
        and value not in SILENT
        and not (key == "layer_types" and windows)
    )
    lacking = [key for key in needed if content.get(key) is None]
    if not isinstance(model_type, str) or lacking or further:
        why = f", and has no {', '.join(lacking)}" if lacking else ""
        why = why or (f", and has parts that a Llama lacks ({', '.join(further[:4])})")
        wrong = f"is a kind of model that isn't known{why if isinstance(model_type, str) else ''}"
        near = nearest(str(model_type), known_kinds(), shown=6)
        refuse(location, model_type, wrong, f"{near}; or {WAY_ON}")
    assumed = (
        f"Its kind, {model_type}, isn't known: read as a Llama, with a gated MLP, two RMS norms a "
        "layer and no biases but those that it states."
    )
    stated = {"sliding_window": "sliding_window?", "rules": ["any_window"]}
    return {**known[LIKE], **stated}, assumed


def _further(content: Mapping[str, object]) -> str:
    """Say what counts of layers that predict further tokens: frameworks train none unless asked."""
    layers = content.get("num_nextn_predict_layers")
    further = f"with mtp_layers = {layers}" if isinstance(layers, int) and layers else "where given"
    return f"Layers that predict further tokens (MTP) count {further}."


def _seeing(content: Mapping[str, object]) -> str:
    """Say what counts of a part that sees images: nothing, and how much that is."""
    if not any(isinstance(value, dict) for key, value in content.items() if "vision" in str(key)):
        return ""
    count = tower_parameters(content.get("model_type"), content)
    size = "" if count is None else f", {count:,} parameters beside those of its text"
    return f"The part that sees images isn't counted{size}."


def _read_json(path: Path) -> dict[str, Any]:
    text = text_of(path, "utf-8-sig")
    try:
        content = json.loads(text)
    except ValueError as error:
        reject(path, f"is not JSON: {error}")
    except RecursionError:
        reject(path, "is not a config: nested too deeply")
    if not isinstance(content, dict):
        reject(path, "is not a config: an object with keys is expected")
    return content
