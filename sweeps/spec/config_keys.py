"""How shapes are read from the keys of a ``config.json``, one at a time.

A kind of model states each shape as in ``specs/configs/kinds.toml``: a number that all have, or
the key where it stands.  What takes more than a key is a rule (`sweeps.spec.config_rules`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overhead.model.order import MOST, numbers_of
from overhead.quantity import VOCABULARY
from sweeps.spec.fields import Figure, FigureReader, declared_list
from sweeps.spec.files import shared_toml, shipped
from sweeps.spec.model import shape_value

# A key with what holds where it is missing: `?` nothing, `!` it has to be there and null is none,
# `:4` that.
TERM = re.compile(r"(?P<keys>[^?!:]+)(?P<mode>[?!]?)(?::(?P<default>.+))?")
FLAGS = {"true": True, "false": False}
# A mixture's shapes, of which a model whose layers are all dense has none.
OF_MIXTURES = declared_list("mixtures")
NONE = object()


class Config(FigureReader):
    """A config.json that is being read: shapes so far, each with its key, and the faults."""

    def __init__(
        self, path: Path, content: Mapping[str, object], model_type: str, kind: Mapping[str, Any]
    ) -> None:
        super().__init__(path, content)
        self.model_type, self.kind = model_type, kind
        self.figures: dict[str, Figure] = {}

    def read(self, shape: str, stated: object) -> None:
        """Read a shape as its kind states it."""
        if not isinstance(stated, str):
            self.set(shape, float(stated), f"every {self.model_type} model")  # type: ignore[arg-type]
        elif " * " in stated:
            self._product(shape, stated)
        else:
            self.take(shape, stated)

    def take(self, shape: str, stated: str) -> None:
        """Take a shape from a key, or what holds where that is missing."""
        keys, mode, default = TERM.fullmatch(stated).groups()  # type: ignore[union-attr]
        key, value = self.find(keys)
        if value is NONE or (value is None and (mode or default)):
            if default:
                taken = FLAGS[default] if default in FLAGS else float(default)
                # A size that a class has, if a config is silent, is one model's.
                kind = "specification" if default in FLAGS else "assumed"
                self.set(shape, float(taken), f"{key}: {default} where it isn't given", kind)
            elif mode == "!" and value is None:
                self.set(shape, 0.0, f"{key} = null")
            elif mode != "?":
                self.missing(key)
        elif VOCABULARY[shape].flag:
            self.set(shape, float(self.flag(key)), key)
        else:
            self._read(shape, key, value)

    def _product(self, shape: str, stated: str) -> None:
        product, why = 1.0, []
        for term in stated.split(" * "):
            keys, _, default = TERM.fullmatch(term).groups()  # type: ignore[union-attr]
            key, value = self.find(keys)
            if value is NONE and not default:
                self.missing(key)
                return
            if value in (None, NONE):
                value = int(default or 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                self.refuse(key, "is not a number of experts, or their size", "from 0, or null")
                return
            product *= min(value, 2**62)
            why.append(key)
        self._read(shape, "*".join(why), product)

    def find(self, keys: str) -> tuple[str, Any]:
        """Return the first of some keys that is there, and its value; one for all layers once."""
        first, held = keys.partition("|")[0], NONE
        for key in keys.split("|"):
            value: Any = self.content
            for part in key.split("."):
                value = value.get(part, NONE) if isinstance(value, dict) else NONE
            if isinstance(value, list) and value and all(item == value[0] for item in value):
                value = value[0]
            if value is not NONE and (held in (NONE, None)):
                first, held = key, value
        return first, held

    def missing(self, key: str) -> None:
        """Note a key without which its kind can't be read."""
        every = f"every {self.model_type} model has one"
        self.faults.append(f"{self.path}: {key}: is missing; {every}")

    def set(self, shape: str, value: float, why: str, kind: str = "specification") -> None:
        """Give a shape a value for a reason."""
        self.figures[shape] = Figure(value, "1", kind, f"{self.path}: {why}")

    def value(self, shape: str, default: float = 0.0) -> float:
        """Return a shape that was read, or a default."""
        figure = self.figures.get(shape)
        return default if figure is None else figure.value

    def drop(self, *shapes: str) -> None:
        """Take shapes back that nothing has."""
        for shape in shapes:
            self.figures.pop(shape, None)

    def count(self, key: str, default: int | None = None, *, least: int = 0) -> int | None:
        """Return a whole number that a rule needs; note a fault where it is none."""
        key, value = self.find(key)
        if value in (None, NONE):
            value = default
        if value is None:
            self.missing(key)
        elif isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**9:
            self.refuse(key, "is not a whole number", f"one from {least}")
            return None
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a key that is true or false."""
        value = self.find(key)[1]
        value = default if value in (None, NONE) else value
        if not isinstance(value, bool):
            self.fault(key, value, "is not a flag", "true or false")
        return value is True

    def names(self, key: str) -> list[str] | None:
        """Return a list with a name for each layer; nothing where there is none."""
        value = self.content.get(key)
        layers = self.value("layers")
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(key, "is not a list of layers' kinds", "one for each layer")
        elif layers and len(value) != layers:
            self.refuse(key, f"has {len(value)} layers", f"{layers:g} as the model")
        else:
            return value
        return None

    def places(self, key: str) -> list[int] | None:
        """Return a list of layers' places; nothing where there is none."""
        value = self.content.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(
            isinstance(item, int) and not isinstance(item, bool) for item in value
        ):
            return value
        self.refuse(key, "is not a list of layers", "numbers of layers in brackets")
        return None

    def order(self, pattern: str, why: str) -> None:
        """Give the order of layers, a letter each, where it is one of ours."""
        if len(pattern) <= MOST:
            for name, value in numbers_of(pattern).items():
                self.set(name, value, why)

    def refuse(self, key: str, wrong: str, allowed: str) -> None:
        """Refuse what shapes can't tell."""
        key, value = self.find(key)
        shown = "nothing" if value is NONE else json.dumps(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        self.faults.append(f"{self.path}: {key} = {shown}: {wrong}; {allowed}")

    def _read(self, shape: str, key: str, given: object) -> None:
        value = self.of(shape_value, shape, given, f"{self.path}: {key}")
        if value is not None:
            self.set(shape, value, key)


def place_mixtures(config: Config, routed: list[int], why: str) -> None:
    """Say which layers have a mixture of experts, by their places from 0."""
    layers = int(config.value("layers"))
    dense = layers - len(routed)
    if not routed:
        config.drop(*OF_MIXTURES)
        config.set("shared_ffn_size", 0.0, f"{why}: no layer has experts")
    elif not dense:
        config.drop("ffn_size", "dense_layers")
    elif routed == list(range(dense, layers)):
        config.set("dense_layers", float(dense), why)
    elif (step := routed[0] + 1) > 1 and routed == list(range(step - 1, layers, step)):
        config.set("moe_layer_frequency", float(step), why)
    else:
        config.drop("dense_layers")
        config.set("routed_layers", float(len(routed)), why)
    if dense and not config.value("ffn_size"):
        config.take("ffn_size", "intermediate_size")


def place_windows(config: Config, windowed: int, why: str) -> None:
    """Say how many layers have the window."""
    layers, linear = config.value("layers"), config.value("linear_layers")
    if windowed == 0:
        config.set("sliding_window", 0.0, f"{why}: no layer has a window")
    elif windowed < layers - linear:
        config.set(
            "sliding_window_layers", float(windowed), f"{why}: so many of {layers:g} have a window"
        )


Chosen = tuple[list[int], str]  # Some layers, from 0, and why these


def layer_rules() -> Mapping[str, Mapping[str, Any]]:
    """Return the rules of which layers have something, by what and by name."""
    rules: Mapping[str, Mapping[str, Any]] = shared_toml(shipped("configs") / "layers.toml")
    return rules


def chosen_layers(config: Config, rule: Mapping[str, Any]) -> Chosen | None:
    """Return which layers a rule of ``layers.toml`` chooses; nothing where a key is at fault."""
    every = range(int(config.value("layers")))
    for key in rule.get("names", ()):
        if types := config.names(key):
            return [layer for layer, name in enumerate(types) if name in rule["are"]], key
    if listed := config.places(rule.get("listed", "")):
        return sorted({layer for layer in listed if layer in every}), rule["listed"]
    unlisted = config.places(rule.get("unlisted", ""))
    if unlisted is not None:
        return [layer for layer in every if layer not in unlisted], rule["unlisted"]
    if rule.get("otherwise") == "none":
        return [], rule["why"]
    but = config.places(rule.get("but", "")) or []
    first, last = _number(config, rule, "first", 0), _number(config, rule, "last", -1, least=-1)
    step = _number(config, rule, "step", 1, least=1)
    offset = _number(config, rule, "offset", (step or 1) - 1)
    if first is None or last is None or offset is None or not step:
        return None
    inside = every[first:] if last < 0 else every[first : last + 1]
    others = rule.get("others", False)
    layers = [layer for layer in inside if (layer % step == offset) != others and layer not in but]
    return layers, rule["but"] if but else rule["why"]


def _number(
    config: Config, rule: Mapping[str, Any], name: str, usual: int, *, least: int = 0
) -> int | None:
    stated = rule.get(name, usual)
    if not isinstance(stated, str):
        return int(stated)
    key, _, default = stated.partition(":")
    return config.count(key, int(default) if default else None, least=least)


def place_linear(config: Config, chosen: Chosen, letter: str = "L") -> bool:
    """Say which layers have linear attention; nothing is to be said of it where none has."""
    layers, why = chosen
    linear = [layer in layers for layer in range(int(config.value("layers")))]
    if not any(linear):
        return False
    config.set("linear_layers", float(sum(linear)), why)
    config.order("".join(letter if is_linear else "*" for is_linear in linear), why)
    return True
