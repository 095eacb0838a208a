"""Many small cases in one test: thousands of parameters take longer than what they test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

__all__ = ["each"]

Test = Callable[..., None]


def each(name: str, values: Iterable[Any], told: Callable[[Any], object] = str) -> Any:
    """Call a test with each of these values; those that fail are told together."""
    cases = list(values)

    def decorate(test: Test) -> Test:
        @wraps(test)
        def whole(**others: Any) -> None:
            faults = []
            for value in cases:
                try:
                    test(**{name: value}, **others)
                except Exception as error:
                    error.add_note(f"{name}: {told(value)}")
                    faults.append(error)
            if faults:
                message = f"{len(faults)} of {len(cases)} cases"
                raise ExceptionGroup(message, faults)
            assert cases

        signature = inspect.signature(test)
        other_parameters = [
            parameter for key, parameter in signature.parameters.items() if key != name
        ]
        vars(whole)["__signature__"] = signature.replace(parameters=other_parameters)
        return whole

    return decorate
