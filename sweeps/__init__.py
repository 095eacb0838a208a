"""Sweeps of what distributed training costs: grids of formulas to labelled datasets and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sweeps.registering import register

if TYPE_CHECKING:
    from sweeps.api import (
        open,
        prepare,
        read,
        reasons,
        recompute,
        run,
        sensitivity,
        sweep,
        to_dataframe,
    )
    from sweeps.errors import InputError
    from sweeps.functions import (
        analysis,
        buy,
        calibrate,
        catalog,
        collective,
        hops,
        normal,
        overlap,
        page,
        plan,
        plot,
        trace,
        tune,
    )

    __version__: str

__all__ = [
    "InputError",
    "analysis",
    "buy",
    "calibrate",
    "catalog",
    "collective",
    "hops",
    "normal",
    "open",
    "overlap",
    "page",
    "plan",
    "plot",
    "prepare",
    "read",
    "reasons",
    "recompute",
    "run",
    "sensitivity",
    "sweep",
    "to_dataframe",
    "trace",
    "tune",
]
# What is of datasets; all else answers a command.
_IN_API = (
    "open",
    "prepare",
    "read",
    "reasons",
    "recompute",
    "run",
    "sensitivity",
    "sweep",
    "to_dataframe",
)


def __dir__() -> list[str]:
    """Return what is public, loaded or not."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    """Import the interface when it is used: commands start faster without it."""
    if name == "__version__":
        from sweeps.version import version

        return version()
    if name == "InputError":
        from sweeps.errors import InputError

        return InputError
    if name in _IN_API:
        from sweeps import api

        return getattr(api, name)
    if name in __all__:
        from sweeps import functions

        return getattr(functions, name)
    from sweeps.elsewhere import python_hint

    raise AttributeError(python_hint("sweeps", name))


register()
