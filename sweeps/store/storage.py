"""What a user may choose about storage: types, digits, compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeps.errors import InputError, fault
from sweeps.store.rounding import MOST_DIGITS, round_digits

__all__ = ["Storage"]


@dataclass(frozen=True, slots=True)
class Storage:
    """What a user may choose about storage."""

    compress: bool = False  # Lossless compression of the numbers
    digits: int | None = None  # Significant digits to keep; implies `compress`
    dtype: str = "f8"  # ``f8`` or ``f4``: the type that computed numbers are stored in

    def __post_init__(self) -> None:
        faults = []
        known = {"f8", "f4"}
        if self.dtype not in known:
            faults.append(fault("dtype", self.dtype, "can't hold results", "f8 or f4"))
        most = MOST_DIGITS[4 if self.dtype == "f4" else 8]
        if self.digits is not None and not 1 <= self.digits <= most:
            allowed = f"1 to {most} for {self.dtype}"
            faults.append(fault("digits", self.digits, "can't be kept", allowed))
        if faults:
            raise InputError(faults)

    @property
    def lossless(self) -> bool:
        """Whether the file holds exactly what was computed."""
        return self.digits is None and self.dtype == "f8"

    @property
    def filtered(self) -> bool:
        """Whether numbers pass through a filter."""
        return self.compress or self.digits is not None

    def numbers(self, values: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return computed numbers as they are stored."""
        if self.digits is not None and dtype.kind == "f":
            values = round_digits(values, self.digits)
        try:
            with np.errstate(over="raise", under="raise", invalid="ignore"):
                return np.ascontiguousarray(values, dtype=dtype).reshape(values.shape)
        except FloatingPointError:
            finite = np.abs(values[np.isfinite(values) & (values != 0)])
            wrong = f"{name} goes from {finite.min():.3g} to {finite.max():.3g} here"
            allowed = "f8 holds such numbers"
            raise InputError(fault("dtype", self.dtype, wrong, allowed)) from None
