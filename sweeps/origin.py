"""Where a value comes from, as data: its kind, who says so, and in whose file of the catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from overhead.frozen import frozen

# What the user said; the maker; a measurement; nobody (a choice, a default); and what isn't known.
GIVEN, SPECIFICATION, MEASURED = "given", "specification", "measured"
ASSUMED, UNKNOWN = "assumed", "unknown"
# What an assumption says that is a default.
DEFAULT = "the default"
# So many sources of one quantity are written out.
MOST = 4


@frozen(slots=True)
class Origin:
    """One value and where it comes from."""

    value: Any  # A number in the canonical unit, or a label; None where a dataset has the value
    kind: str  # `GIVEN`, `SPECIFICATION`, `MEASURED`, `ASSUMED` or `UNKNOWN`
    source: str = ""  # Who says so, where; of an assumption, why this value
    owner: str = ""  # The machine, model or software of the catalogue whose value it is

    def of(self, owner: str) -> Origin:
        """Return the same of a machine, model or software of the catalogue."""
        return Origin(self.value, self.kind, self.source, owner)

    def derived(self, value: Any, how: str) -> Origin:
        """Return the origin of a value that follows from this one; `how` is added to the source."""
        source = f"{self.source}{how}" if self.source else how
        return Origin(value, self.kind, source, self.owner)

    @property
    def short(self) -> str:
        """The kind alone, in words."""
        return "not known" if self.kind == UNKNOWN else self.kind

    @property
    def text(self) -> str:
        """Kind and source, without the owner, in words."""
        return f"{self.short}: {self.source}" if self.source else self.short

    @property
    def words(self) -> str:
        """Kind, source and owner in words."""
        return f"{self.text} ({self.owner})" if self.owner else self.text

    def record(self) -> dict[str, Any]:
        """Return what is known of it, by name."""
        every = {
            "value": self.value,
            "kind": self.kind,
            "source": self.source,
            "owner": self.owner,
        }
        return {name: value for name, value in every.items() if value is not None and value != ""}


# Of each quantity or label that the user didn't give: one origin, or one for each value it has.
Origins = Mapping[str, tuple[Origin, ...]]


def assumed(value: Any, why: str = DEFAULT) -> Origin:
    """Return the origin of a value that nobody states."""
    return Origin(value, ASSUMED, why)


def once(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """Return origins without those that say the same of an owner again."""
    return tuple(
        {(origin.kind, origin.source, origin.owner): origin for origin in origins}.values()
    )


def words_of(origins: Sequence[Origin]) -> str:
    """Return the origins of one quantity in words."""
    if len({origin.owner for origin in origins if origin.owner}) > 1:
        texts = (
            f"{origin.owner}: {origin.text}" if origin.owner else origin.text for origin in origins
        )
        return " | ".join(dict.fromkeys(texts))
    return "; or ".join(list(dict.fromkeys(statement.words for statement in origins))[:MOST])


# In a dataset: an attribute of each coordinate, as JSON, for attributes are text or numbers.

ATTRIBUTE = "origin"


def attributes(origins: Sequence[Origin] = ()) -> dict[str, str]:
    """Return the attribute that says where a coordinate's values come from; by default, given."""
    stated = origins or (Origin(None, GIVEN),)
    return {ATTRIBUTE: _text(tuple([(each.kind, each.source, each.owner) for each in stated]))}


@lru_cache(maxsize=4096)
def _text(stated: tuple[tuple[str, str, str], ...]) -> str:
    records = [Origin(None, *said).record() for said in stated]
    return json.dumps(records[0] if len(records) == 1 else records, ensure_ascii=False)


def read(attrs: Mapping[str, object]) -> tuple[Origin, ...]:
    """Return the origins that a coordinate's attributes state; none where they state none."""
    try:
        stated = json.loads(str(attrs.get(ATTRIBUTE, "[]")))
        records = stated if isinstance(stated, list) else [stated]
        return tuple(Origin(None, **record) for record in records)
    except (ValueError, TypeError):
        return ()
