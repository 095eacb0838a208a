"""What a check of a configuration finds, and what it is checked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["LEVELS", "Finding", "Layer", "Setting"]

Severity = Literal["error", "warning", "note"]
LEVELS = ("schema", "init", "runtime", "flags")
"""Where a fault shows: when the file is read, when communicators are made, when a layer runs, in
what the training is started with."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    level: str  # Of `LEVELS`
    # ``error``: it stops, or what is written isn't what runs. ``warning``: it runs, and is hardly
    # what is meant. ``note``: to be known
    severity: Severity
    text: str  # What, of which key, and what would be right
    line: int = 0  # Where, from 1; 0 for the file as a whole

    def shown(self, file: str) -> str:
        """Return it as one line."""
        place = f"{file}:{self.line}" if self.line else file
        return f"{place}: {self.severity} ({self.level}): {self.text}"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a configuration whose schema is right."""

    name: str  # Such as ``qkv_fprop``
    values: Mapping[str, Any]  # By key, as written
    lines: Mapping[str, int]  # By key; under the empty text the layer's own
    method: str  # Its method, that of the default where none is written

    @property
    def operator(self) -> str:
        """The linear layer."""
        return self.name.split("_")[0]

    @property
    def phase(self) -> str:
        """What of it."""
        return self.name.split("_")[1]

    def line(self, key: str = "") -> int:
        """Return where a key stands, or the layer."""
        return self.lines.get(key, self.lines[""])

    def on(self, key: str, *, default: bool = False) -> bool:
        """Return whether a flag is set."""
        return bool(self.values.get(key, default))


@dataclass(frozen=True, slots=True)
class Setting:
    """What a configuration is to run with, as far as it is known."""

    tp_size: int | None = None  # Tensor-parallel ranks
    tokens: int | None = None  # Tokens that a layer works on
    precision: str | None = None  # ``bf16``, ``fp8`` or ``mxfp8``
    # By linear layer, outputs of its forward on one rank, and under ``_dgrad`` those of its input
    # gradient; what isn't known isn't there
    outputs: Mapping[str, int] = field(default_factory=dict)
    # What Megatron-LM is started with; None where that isn't said
    flags: tuple[str, ...] | None = None
