"""A model's linear layers: what a rank multiplies, and which sizes can split it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import overhead.compute  # noqa: F401  (declares the widths)
from overhead.evaluation import Evaluation
from sweeps.spec.model import Model
from sweeps.tuner.userbuffers import COLUMN, OPERATORS

__all__ = ["Products", "missing_operators", "outputs_of", "products_of", "split_faults", "widths"]

Floats = NDArray[np.float64]
# Nothing where attention isn't latent.
_LATENTS = ("q_rank", "kv_rank", "head_size_plain", "head_size_rope", "head_size_value")
# What one rank has of a layer's weights: the outputs of a column-split one, the inputs of another.
WIDTHS = {
    "qkv": "qkv_width",
    "proj": "attention_width",
    "fc1": "mlp_up_width",
    "fc2": "mlp_width",
}


class Products:
    """The three products of linear layers: rows, columns and depth by phase."""

    def __init__(self, tokens: Any, hidden: Any, width: Any, columns: Any) -> None:
        outputs = np.where(columns, width, hidden)
        inputs = np.where(columns, hidden, width)
        self.sizes = {
            "fprop": (tokens, outputs, inputs),
            "dgrad": (tokens, inputs, outputs),
            "wgrad": (outputs, inputs, tokens),
        }

    def of(self, phase: str) -> dict[str, Any]:
        """Return a phase's product by the names that formulas have for its sizes."""
        names = ("matmul_rows", "matmul_columns", "matmul_depth")
        return dict(zip(names, self.sizes[phase], strict=True))


def widths(shapes: Mapping[str, Any], tp: Any, attention: str = "mha") -> dict[str, Floats]:
    """Return what one rank has of each linear layer's split side."""
    plain = dict.fromkeys(_LATENTS, 0.0)
    evaluation = Evaluation({**plain, **shapes, "tp": tp}, {"attention": attention})
    return {operator: evaluation[name] for operator, name in WIDTHS.items()}


def products_of(
    shapes: Mapping[str, Any],
    tokens: Any,
    operators: Sequence[str],
    tp: NDArray[Any],
    attention: str = "mha",
) -> Products:
    """Return the products of several layers side by side."""
    every = widths(shapes, tp, attention)
    names = np.asarray(operators)
    width = np.select([names == name for name in OPERATORS], [every[name] for name in OPERATORS])
    return Products(tokens, shapes["hidden_size"], width, np.isin(names, COLUMN))


def missing_operators(model: Model) -> dict[str, str]:
    """Return linear layers that a model doesn't have as userbuffers take them, with the reason."""
    found: dict[str, str] = {}
    if model.labels.get("attention") == "mla":
        found["qkv"] = "latent attention has no one product to queries, keys and values"
    if not model.shapes.get("ffn_size"):
        reason = "all of its MLPs are routed experts, whose products don't overlap by userbuffers"
        found |= dict.fromkeys(("fc1", "fc2"), reason)
    return found


def split_faults(shapes: Mapping[str, float], tp: int) -> tuple[str, ...]:
    """Return why a model can't be split over so many ranks; nothing if it can."""
    return tuple(
        f"{name} {shapes[name]:g} can't be split over {tp} ranks"
        for name in ("heads", "kv_heads", "ffn_size")
        if shapes.get(name) and shapes[name] % tp
    )


def outputs_of(model: Model, tp: int) -> dict[str, int]:
    """Return the outputs of each linear layer's forward on one rank, and of input gradients."""
    lacking = missing_operators(model)
    every = widths(model.shapes, float(tp), model.labels.get("attention", "mha"))
    hidden = int(model.shapes["hidden_size"])
    found: dict[str, int] = {}
    for operator, width in every.items():
        if operator not in lacking:
            own = int(width)
            columns = operator in COLUMN
            found[operator] = own if columns else hidden
            found[f"{operator}_dgrad"] = hidden if columns else own
    return found
