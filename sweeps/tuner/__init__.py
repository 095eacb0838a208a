"""Tensor-parallel overlap: cases, their times, the best configuration, and its files.

>>> from sweeps.tuner import TPOverlapTuner, TPOverlapTunerConfig
>>> config = TPOverlapTunerConfig(model_name="Qwen/Qwen3-0.6B", max_tp_size=2)
>>> for recommendation in TPOverlapTuner(config).run(write=False).recommendations:
...     print(recommendation)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.tuner.settings import TPOverlapTunerConfig
    from sweeps.tuner.tuner import TPOverlapTuner

__all__ = ["TPOverlapTuner", "TPOverlapTunerConfig"]

_PLACES = {"TPOverlapTuner": "tuner", "TPOverlapTunerConfig": "settings"}


def __getattr__(name: str) -> Any:
    """Import the tuner when it is asked for."""
    if name not in _PLACES:
        message = f"module 'sweeps.tuner' has no attribute '{name}'"
        raise AttributeError(message)
    return getattr(import_module(f"sweeps.tuner.{_PLACES[name]}"), name)
