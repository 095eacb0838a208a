"""The version of the distribution: pyproject.toml is the one place that states it."""

from __future__ import annotations

UNKNOWN = "0+unknown"  # Of a checkout that isn't installed


def version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("overhead-sweeps")
    except PackageNotFoundError:
        return UNKNOWN
