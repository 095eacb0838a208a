"""Sweeps of what distributed training costs: grids of formulas to labelled datasets and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.api import (
        open,
        plans,
        prepare,
        read,
        reasons,
        recompute,
        run,
        sensitivity,
        sweep,
        to_dataframe,
    )

    __version__: str

__all__ = [
    "open",
    "plans",
    "prepare",
    "read",
    "reasons",
    "recompute",
    "run",
    "sensitivity",
    "sweep",
    "to_dataframe",
]


def __dir__() -> list[str]:
    """Return what is public, loaded or not."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import the interface when it is used: commands start faster without it."""
    if name in __all__:
        from sweeps import api

        return getattr(api, name)
    if name == "__version__":
        from sweeps.version import version

        return version()
    from sweeps.elsewhere import python_hint

    raise AttributeError(python_hint("sweeps", name))
