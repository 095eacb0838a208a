"""What the terminal says of long work: how far it is, and which figures it drew."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

# Seconds between lines of progress where they go to a file.
LOGGED = 30.0


class Progress:
    """A line on the terminal that says how far long work is, and how long it will take."""

    def __init__(self, words: str) -> None:
        self.words, self.start, self.last = words, time.monotonic(), 0.0
        self.shown = False
        self.before: int | None = None
        # In the log of a batch job, a line now and then.
        self.in_place = sys.stderr.isatty()
        self.pause, self.first = (0.2, 1.0) if self.in_place else (LOGGED, LOGGED)

    def __call__(self, done: int, total: int) -> None:
        """Show the state, now and then, and not for short work."""
        now = time.monotonic()
        if self.before is None:
            # What an earlier run has done took no time of this one.
            self.before, self.start = done, now
        spent = now - self.start
        if spent < self.first or (now - self.last < self.pause and done < total):
            return
        from sweeps.blocks.estimate import duration

        self.last, self.shown = now, self.in_place
        left = spent * (total - done) / max(done - self.before, 1)
        share = 100.0 * done / max(total, 1)
        rest = f", {duration(left)} left" if done > self.before else ""
        line = f"{self.words}: {share:3.0f} %{rest}"
        sys.stderr.write(f"\r{line}   " if self.in_place else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            sys.stderr.write("\r" + " " * 60 + "\r")


@contextlib.contextmanager
def progress_to(output: Path) -> Iterator[Callable[[str], Progress]]:
    """Give lines of progress, one after the other, the last of which is cleared."""
    shown: list[Progress] = []

    def begin(words: str) -> Progress:
        for line in shown:
            line.end()
        shown.append(Progress(words))
        return shown[-1]

    try:
        yield begin
    except KeyboardInterrupt:
        from sweeps.blocks.folder import Folder

        if Folder(output.resolve()).exists():
            sys.stderr.write("\nsweeps: finished blocks are kept: --resume goes on with them\n")
        raise
    finally:
        for line in shown:
            line.end()


def tell_drawn(paths: Iterable[Path], notes: TextIO) -> None:
    """Say which files a figure is in: of one in several formats in a line."""
    formats: dict[Path, list[Path]] = {}
    for path in paths:
        formats.setdefault(path.with_suffix(""), []).append(path)
    for first, *others in formats.values():
        notes.write(f"drew {' and '.join([str(first), *(other.suffix for other in others)])}\n")
