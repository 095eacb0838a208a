"""What a command hands on to Python beside its screen: its result, its figures, its sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sweeps.job import Job
    from sweeps.result import Result


@dataclass
class Kept:
    """What a command has computed; nothing of what it has not."""

    # What a file would hold, or what makes it
    result: Result | Job | Callable[[], Result] | None = None
    records: Result | None = None  # What rows would hold, where that is known apart
    # Figures as a spec declares them, or what gives those that suit a dataset
    figures: Sequence[Mapping[str, object]] | Callable[[Any], Any] | None = None
    draw: Callable[[Path], Iterable[Path]] | None = None  # Or what draws them beside a file
    sections: Mapping[str, Callable[[], Iterable[str]]] = field(default_factory=dict)
    listed: Callable[[], Result] | None = None  # Rows of what it lists, made when asked for
    plans: Any = None  # The search that is behind it
    path: Path | None = None  # The file that it wrote, where that is the answer

    def whole(self) -> Result | Job | None:
        """Return what a file would hold, made once."""
        if callable(self.result):
            self.result = self.result()
        return self.result


def keep(**what: Any) -> None:
    """Hand on what a command computes, where Python asked it."""
    context = click.get_current_context(silent=True)
    kept = context.find_object(Kept) if context else None
    for name, value in what.items() if kept else ():
        setattr(kept, name, value)
