"""The publications that formulas cite."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import islice
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """A publication.

    Attributes
    ----------
    key : str
        The short name by which a formula names it.
    citation : str
        Authors, title, venue, year.
    locator : str
        DOI, arXiv number or repository; empty where there is none.
    """

    key: str
    citation: str
    locator: str = ""

    def at(self, where: str = "") -> str:
        """Return the citation with a place in it."""
        return ", ".join(part for part in (self.citation, where, self.locator) if part)


def _read(path: Path) -> dict[str, Source]:
    with path.open(encoding="utf-8", newline="") as rows:
        return {row[0]: Source(*row) for row in islice(csv.reader(rows), 1, None)}


# Publications by key.
SOURCES = _read(Path(__file__).with_name("sources.csv"))


def cite(key: str, citation: str, locator: str = "") -> Source:
    """Add a publication to those that formulas may cite.

    Parameters
    ----------
    key, citation, locator : str
        As in `Source`.

    Returns
    -------
    Source
        The publication.

    Raises
    ------
    ValueError
        If another publication has the key.
    """
    source = Source(key, citation, locator)
    if SOURCES.setdefault(key, source) != source:
        message = f"the source '{key}' is declared already, as '{SOURCES[key].citation}'"
        raise ValueError(message)
    return source
