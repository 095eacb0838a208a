"""A model: its shapes with their sources, what follows from them, and what they must fulfil."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from overhead.evaluation import MissingQuantities, derive
from overhead.quantity import VOCABULARY
from overhead.transformer import transformer_quantities
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.machine import Figure
from sweeps.spec.units import parse_quantity

FLAGS, SHAPES = transformer_quantities.FLAGS, transformer_quantities.SHAPES

__all__ = [
    "COUNTS",
    "Model",
    "attention_label",
    "bare_model",
    "complete_shapes",
    "join_figures",
    "shape_faults",
    "shape_value",
]

# What has no default, since a wrong guess would change every number.
VITAL = ("layers", "hidden_size", "heads", "vocabulary_size", "gated", "tied_embeddings")
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
            return float(derive(name, {**self.shapes, **given}))
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


def bare_model(parameters: float) -> Model:
    """Return a model of which only the number of parameters is known."""
    value = shape_value("parameters", parameters, "parameters")
    figure = Figure(value, "1", "given", "a number of parameters alone, without shapes")
    return Model(
        name=f"{value:.6g}-parameters",
        title=f"{value:,.0f} parameters",
        summary="",
        path=None,
        kind="given",
        source=figure.source,
        hugging_face=(),
        figures={"parameters": figure},
        stated=frozenset({"parameters"}),
        labels={},
    )


def shape_value(name: str, given: object, place: str) -> float:
    """Read one shape."""
    if name in FLAGS and isinstance(given, bool):
        return float(given)
    value = parse_quantity(given, "1", field=place, bare_is_si=False)
    quantity = VOCABULARY[name]
    if name in COUNTS:
        outside, domain = not (value >= 1.0 and value.is_integer()), "a whole number from 1"
    else:
        outside, domain = bool(quantity.outside(np.asarray(value))), quantity.domain()
    if outside or value > LARGEST:
        domain = domain if value <= LARGEST else f"{domain} up to {LARGEST:g}"
        domain = "true or false" if name in FLAGS else domain
        raise InputError(fault(place, given, "can't be", f"write {domain} ({quantity.meaning})"))
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
            wrong(name, "stands without experts", "give experts, or leave it out")
    if full["experts_per_token"] > full["experts"] > 0.0:
        wrong("experts_per_token", "is more than there are", f"at most {full['experts']:g}")
    if full["kv_rank"] > 0.0:
        required(_OF_LATENTS[1:], "every latent attention has one")
    for name in () if full["kv_rank"] > 0.0 else _OF_LATENTS:
        if full[name] > 0.0:
            wrong(name, "stands without kv_rank", "give kv_rank, or leave it out")
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
    if moe < full["layers"]:
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
    return {name: (stated.get(name) or added[name]) for name in SHAPES}


def attention_label(figures: Mapping[str, Figure]) -> dict[str, str]:
    """Return the labels that shapes have."""
    return {"attention": "mla" if figures["kv_rank"].value > 0.0 else "mha"}
