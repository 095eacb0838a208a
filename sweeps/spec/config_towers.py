"""How many parameters what sees images has, beside the part of a model that reads text.

Each counts as Hugging Face transformers 5.24.0's class does, with what joins it to the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def tower_parameters(model_type: object, content: Mapping[str, object]) -> int | None:
    """Return the parameters of a config's vision tower; nothing where they aren't known."""
    count = TOWERS.get(str(model_type))
    if count is None:
        return None
    try:
        parameters = count(_Sizes(content))
    except LookupError:
        return None
    return parameters if parameters > 0 else None


class _Sizes:
    """The whole numbers of a tower's table, those of the text, and of the whole."""

    def __init__(self, content: Mapping[str, object]) -> None:
        vision, text = (content.get(f"{part}_config") for part in ("vision", "text"))
        self.vision: Mapping[str, Any] = vision if isinstance(vision, dict) else {}
        self.text: Mapping[str, Any] = text if isinstance(text, dict) else content
        self.whole = content

    def _read(self, table: Mapping[str, object], key: str, default: int | None) -> int:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**40:
            raise LookupError(key)
        return value

    def __call__(self, key: str, default: int | None = None) -> int:
        return self._read(self.vision, key, default)

    def merged(self, key: str, default: int) -> int:
        """Return a size of what joins a tower to the text."""
        return self._read(self.whole, key, default)

    @property
    def hidden_size(self) -> int:
        """The text's."""
        return self._read(self.text, "hidden_size", None)


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return inputs * outputs + bias * outputs


def _block(hidden: int, ffn: int) -> int:
    """A layer with biases and two layer norms."""
    attention = 4 * _linear(hidden, hidden)
    return attention + _linear(hidden, ffn) + _linear(ffn, hidden) + 4 * hidden


def _patches(of: _Sizes, hidden: int, pixels: int, *, bias: bool) -> int:
    return _linear(of("in_channels", 3) * pixels, hidden, bias=bias)


def _gemma3(of: _Sizes) -> int:
    hidden, patch = of("hidden_size"), of("patch_size")
    positions = (of("image_size") // patch) ** 2 * hidden
    blocks = of("num_hidden_layers") * _block(hidden, of("intermediate_size"))
    joined = hidden + hidden * of.hidden_size
    return blocks + _patches(of, hidden, patch**2, bias=True) + positions + 2 * hidden + joined


def _mistral3(of: _Sizes) -> int:
    hidden, ffn, text = of("hidden_size"), of("intermediate_size"), of.hidden_size
    block = 4 * hidden**2 + 3 * hidden * ffn + 2 * hidden
    merged = of.merged("spatial_merge_size", 2) ** 2 * hidden
    joined = hidden + merged * hidden + hidden * text + text**2
    patches = _patches(of, hidden, of("patch_size") ** 2, bias=False)
    return of("num_hidden_layers") * block + patches + hidden + joined


def _cells(of: _Sizes) -> int:
    return of("temporal_patch_size", 2) * of("patch_size") ** 2


def _merger(hidden: int, text: int, merge: int) -> int:
    wide = hidden * merge**2
    return _linear(wide, wide) + _linear(wide, text)


def _qwen2_vl(of: _Sizes) -> int:
    hidden = of("embed_dim")
    blocks = of("depth") * _block(hidden, hidden * of("mlp_ratio"))
    joined = 2 * hidden + _merger(hidden, of("hidden_size"), of("spatial_merge_size", 2))
    return blocks + _patches(of, hidden, _cells(of), bias=False) + joined


def _qwen2_5_vl(of: _Sizes) -> int:
    hidden, ffn = of("hidden_size"), of("intermediate_size")
    gated = 2 * _linear(hidden, ffn) + _linear(ffn, hidden)
    block = 4 * _linear(hidden, hidden) + gated + 2 * hidden
    joined = hidden + _merger(hidden, of("out_hidden_size"), of("spatial_merge_size", 2))
    return of("depth") * block + _patches(of, hidden, _cells(of), bias=False) + joined


def _qwen3_vl(of: _Sizes) -> int:
    hidden, merge = of("hidden_size"), of("spatial_merge_size", 2)
    merger = _merger(hidden, of("out_hidden_size"), merge)
    deep = len(of.vision.get("deepstack_visual_indexes") or ())
    joined = 2 * hidden + merger + deep * (2 * hidden * merge**2 + merger)
    positions = of("num_position_embeddings", 2304) * hidden
    blocks = of("depth") * _block(hidden, of("intermediate_size"))
    return blocks + _patches(of, hidden, _cells(of), bias=True) + positions + joined


def _llama4(of: _Sizes) -> int:
    hidden, patch, out = of("hidden_size"), of("patch_size"), of("vision_output_dim")
    positions = ((of("image_size") // patch) ** 2 + 2) * hidden  # With the class's vector
    blocks = of("num_hidden_layers") * _block(hidden, of("intermediate_size"))
    joined = of("intermediate_size") * out + out**2 + out * of.hidden_size
    return blocks + _patches(of, hidden, patch**2, bias=False) + positions + 4 * hidden + joined


TOWERS: dict[str, Callable[[_Sizes], int]] = {
    "gemma3": _gemma3,
    "mistral3": _mistral3,
    "llama4": _llama4,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
}
