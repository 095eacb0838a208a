"""``dataset.sweeps`` is there as soon as xarray is: neither has to be imported before the other.

xarray takes a third of a second to import, which a command that answers with a line doesn't have.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

XARRAY = "xarray"


def register() -> None:
    """Register the accessor, now or when xarray is imported."""
    if XARRAY in sys.modules:
        from sweeps import accessor  # noqa: F401
    else:
        sys.meta_path.insert(0, _Watch())


class _Watch:
    """Finds no module: of xarray's loader it has the accessor registered at the end."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of xarray that others find, once; of other modules nothing."""
        if name != XARRAY:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next((candidate for candidate in specs if candidate is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def and_register(module: ModuleType) -> None:
            execute(module)
            register()

        spec.loader.exec_module = and_register  # type: ignore[method-assign]
        return spec
