"""The namespace of arrays in which kernels compute: numpy's, or that of the arrays given.

Kernels call functions of the array API standard (2024.12) as ``xp.where(..)``.  What they need
beside the standard, and what numpy allows beyond it (a plain number where the standard wants an
array), `Functions` adds to another library's namespace.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

# What isn't another library's array.
PLAIN: Any = (np.ndarray, np.generic, bool, int, float, list, tuple, type(None))
# Functions that take sizes, and those of which the first argument alone is an array.
MAKING = {"zeros", "ones", "full", "empty", "arange"}
OF_ONE = {
    "sum",
    "max",
    "min",
    "any",
    "all",
    "argsort",
    "broadcast_to",
    "reshape",
    "moveaxis",
    "cumulative_sum",
    "zeros_like",
    "ones_like",
    "take_along_axis",
    "take",
}
OF_SEVERAL = {"stack", "concat"}
# By library: its namespace that follows the standard.
NAMESPACES = {
    "jax": "jax.numpy",
    "torch": "array_api_compat.torch",
    "cupy": "array_api_compat.cupy",
}


class Functions:
    """A library's namespace, as kernels call it: numbers among its arrays are arrays, too.

    Parameters
    ----------
    module : module
        A namespace that follows the standard: ``jax.numpy``, ``array_api_strict``.
    device : object, optional
        Where arrays are made; by default where the library makes them.
    """

    newaxis, nan, inf = None, np.nan, np.inf

    def __init__(self, module: ModuleType, device: Any = None) -> None:
        self.own = module
        self.options = {} if device is None else {"device": device}
        self.float64, self.int64, self.int32 = module.float64, module.int64, module.int32
        self.bool = self.bool_ = getattr(module, "bool", None) or module.bool_

    def __getattr__(self, name: str) -> Any:
        function, found = getattr(self.own, name), None
        if name in MAKING:

            def found(*sizes: Any, **options: Any) -> Any:
                filled = sizes[-1] if name in ("arange", "full") else 0.0
                whole = isinstance(filled, int | np.integer)
                kind = {"dtype": self.int64 if whole else self.float64}
                return function(*sizes, **{**self.options, **kind, **options})

        elif name in OF_ONE:

            def found(value: Any, *others: Any, **options: Any) -> Any:
                return function(self.asarray(value), *others, **options)

        elif name in OF_SEVERAL:

            def found(values: Sequence[Any], **options: Any) -> Any:
                return function([self.asarray(value) for value in values], **options)

        else:

            def found(*values: Any, **options: Any) -> Any:
                return function(*map(self.asarray, values), **options)

        setattr(self, name, found)
        return found

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        """Return an array: of plain numbers one of float64, or of truths."""
        if isinstance(value, PLAIN):
            plain = np.asarray(value)
            if dtype is None and plain.dtype.kind in "iuf":
                plain = plain.astype(np.float64)
            value = self.own.asarray(plain, **self.options)
        if dtype is None or value.dtype == dtype:
            return value
        return self.own.astype(value, dtype)

    array = asarray

    def astype(self, value: Any, dtype: Any) -> Any:
        """Return an array of another type."""
        return self.asarray(value, dtype)

    def ndim(self, value: Any) -> int:
        """Return how many dimensions a value has."""
        return int(getattr(value, "ndim", 0))

    def shape(self, value: Any) -> tuple[int, ...]:
        """Return a value's shape."""
        return tuple(getattr(value, "shape", ()))

    broadcast_shapes = staticmethod(np.broadcast_shapes)

    def broadcast_to(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Return an array of a shape."""
        return self.own.broadcast_to(self.asarray(value), tuple(shape))

    def errstate(self, **_: Any) -> AbstractContextManager[None]:
        """Return a context: only numpy warns of what has no value."""
        return nullcontext()

    def exp2(self, value: Any) -> Any:
        """Return two to a power."""
        return self.own.pow(self.asarray(2.0), self.asarray(value))


def select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0.0) -> Any:
    """Return the choice of the first condition that holds, which the standard lacks."""
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        default = xp.where(condition, choice, default)
    return default


class _Namespaces(threading.local):
    functions: Any = np


_CURRENT = _Namespaces()


class _Namespace:
    """The functions of the arrays with which this thread computes.

    While numpy's are those of every thread, they are kept as attributes: a plan by itself looks up
    thousands.
    """

    def __init__(self) -> None:
        self._lock, self._others = threading.Lock(), 0

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            function = getattr(_CURRENT.functions, name)
            if not self._others:
                self.__dict__[name] = function
        return function

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep no function: a thread has another library's, or numpy's own are replaced."""
        with self._lock:
            self._others += 1
            for name in [name for name in self.__dict__ if not name.startswith("_")]:
                del self.__dict__[name]
        try:
            yield
        finally:
            with self._lock:
                self._others -= 1

    @contextmanager
    def of(self, functions: Any) -> Iterator[None]:
        """Let this thread compute with another library's functions."""
        with self.changing():
            before, _CURRENT.functions = _CURRENT.functions, functions
            try:
                yield
            finally:
                _CURRENT.functions = before


NAMESPACE = _Namespace()

if TYPE_CHECKING:
    xp = np
else:
    xp = NAMESPACE


def namespace_of(*values: Any) -> ModuleType | None:
    """Return the namespace of arrays that aren't numpy's; None where all are numpy's or numbers.

    Raises
    ------
    ImportError
        If torch's or cupy's arrays are given, and array-api-compat isn't installed.
    """
    for value in values:
        if not isinstance(value, PLAIN):
            library = type(value).__module__.partition(".")[0]
            if library in NAMESPACES:
                return importlib.import_module(NAMESPACES[library])
            if hasattr(value, "__array_namespace__"):
                return value.__array_namespace__()
    return None


@lru_cache(maxsize=16)
def _functions(module: ModuleType, device: Any) -> Functions:
    return Functions(module, device)


@contextmanager
def using(namespace: ModuleType | None, device: Any = None) -> Iterator[None]:
    """Let this thread's kernels compute with a namespace's arrays, in float64."""
    if namespace is None:
        yield
        return
    # JAX computes in float32 unless it is told not to.
    jax = sys.modules["jax"] if namespace.__name__ == "jax.numpy" else None
    functions = _functions(namespace, device)
    with jax.enable_x64(True) if jax else nullcontext(), NAMESPACE.of(functions):
        yield


def in_numpy(value: Any) -> Any:
    """Return an array, wherever it lies, as numpy's."""
    if isinstance(value, PLAIN):
        return np.asarray(value)
    if hasattr(value, "get"):
        return value.get()  # cupy's lies on its device
    cpu = getattr(value, "cpu", None)
    return np.asarray(cpu() if cpu else value)
