"""How many parameters what sees images has, beside the part of a model that reads text.

``specs/configs/towers.toml`` has the sums for each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overhead.expression import evaluate, names
from sweeps.spec.files import shared_toml, shipped


def tower_parameters(model_type: object, content: Mapping[str, Any]) -> int | None:
    """Return the parameters of a config's vision tower; nothing where they aren't known."""
    towers = shared_toml(shipped("configs") / "towers.toml")
    tower = towers.get(model_type, {}) if isinstance(model_type, str) else {}
    tower = towers.get(tower.get("like"), tower)
    if "parameters" not in tower:
        return None
    vision, text = (content.get(f"{part}_config") for part in ("vision", "text"))
    tables = {
        "text_": text if isinstance(text, dict) else content,
        "whole_": content,
        "": vision if isinstance(vision, dict) else {},
    }

    def size(name: str) -> float:
        if name in tower:
            return float(evaluate(tower[name], {part: size(part) for part in names(tower[name])}))
        prefix = next(start for start in tables if name.startswith(start))
        value = tables[prefix].get(name.removeprefix(prefix), towers["defaults"].get(name))
        if name == "deepstack_visual_indexes":
            return float(len(value or ()))
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**40:
            raise LookupError(name)
        return float(value)

    try:
        parameters = int(size("parameters"))
    except LookupError:
        return None
    return parameters if parameters > 0 else None
