from __future__ import annotations

from collections.abc import Mapping

from sweeps.launch.arguments import Override
from sweeps.launch.read import read_launches
from sweeps.launch.setting import Reading


def read_launch(path: str, overrides: Mapping[str, Override] | None = None) -> Reading:
    """Read one launch file."""
    return read_launches([path], overrides)[0]
