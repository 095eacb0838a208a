"""What a command's options give, by name.

A command takes ``**given: Unpack[Given]``, or a class that says more, so that a name that no option
has is found before it runs: ``given.pyi`` has their types, made of the options themselves. An
option that wasn't typed gives what stands as its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Given = Hops = Planned = Measured = OfFolders = Mapping[str, Any]
Options = Mapping[str, object]  # Those of any command, where names aren't known before it runs
Folder = str


def texts_of(given: Options, names: Iterable[str]) -> dict[str, str | None]:
    """Return what some options give, as it was typed; nothing for those that weren't."""
    return {name: None if given[name] is None else str(given[name]) for name in names}
