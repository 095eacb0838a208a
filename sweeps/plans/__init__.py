"""Search of parallel plans: all of them, the best, why, and what would be better.

The package can be called: ``sweeps.plans(model="llama3-8b", ...)`` is `interface.plans`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.plans.interface import Plans

__all__: list[str] = []


class _Callable(ModuleType):
    """A package that is the function of its name, too."""

    def __call__(self, **given: Any) -> "Plans":
        """Search parallel plans: see `sweeps.plans.interface.plans`."""
        from sweeps.plans.interface import plans

        return plans(**given)


sys.modules[__name__].__class__ = _Callable
