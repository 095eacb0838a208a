"""A model's file: what it may hold, checked whole.

A model file states shapes, or a bare count of parameters.  Unknown keys, missing shapes and shapes
that contradict each other are all reported together, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from overhead.transformer_quantities import SHAPES
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.machine import ORIGINS, Figure
from sweeps.spec.model import (
    COUNTS,
    Model,
    attention_label,
    join_figures,
    shape_faults,
    shape_value,
)

__all__ = ["read_model"]

_KEYS = ("name", "title", "summary", "hugging_face", "kind", "source", "shapes", *COUNTS)


def read_model(path: Path, content: Mapping[str, Any]) -> Model:
    """Make a model of a model file's content."""
    reader = _Reader(path, content)
    model = reader.model()
    if reader.faults:
        raise InputError(reader.faults)
    return model


class _Reader:
    """A walk over a model file that collects its faults."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path, self.content = path, content
        self.faults: list[str] = []

    def model(self) -> Model:
        self._unknown("", self.content, _KEYS)
        name = self._text(self.content, "name", "", default=self.path.stem)
        if name != self.path.stem:
            self._fault("name", name, "is not the file's name", f"write '{self.path.stem}'")
        kind, source = self._origin(self.content, "")
        stated = self._counts(kind, source)
        if "shapes" in self.content or not any(name in self.content for name in COUNTS):
            stated = self._shapes(kind, source)
        whole = bool(stated) and not self.faults and "parameters" not in stated
        figures = join_figures(stated) if whole else stated
        return Model(
            name=name,
            title=self._text(self.content, "title", ""),
            summary=self._text(self.content, "summary", "", default=""),
            path=self.path,
            kind=kind,
            source=source,
            hugging_face=self._names(),
            figures=figures,
            stated=frozenset(stated),
            labels=attention_label(figures) if whole else {},
        )

    def _counts(self, kind: str, source: str) -> dict[str, Figure]:
        found = {name: self.content[name] for name in COUNTS if name in self.content}
        if "shapes" in self.content:
            for name, value in found.items():
                self._fault(name, value, "stands beside shapes", "it follows from them: drop one")
            return {}
        if "active_parameters" in found and "parameters" not in found:
            self.faults.append(f"{self.path}: parameters: is missing beside active_parameters")
        figures = {name: self._figure(name, given, kind, source) for name, given in found.items()}
        counts = {name: figure for name, figure in figures.items() if figure}
        most = counts.get("parameters")
        active = counts.get("active_parameters")
        if most and active and active.value > most.value:
            self._fault("active_parameters", f"{active.value:g}", "is more than all", "at most all")
        return counts

    def _shapes(self, kind: str, source: str) -> dict[str, Figure]:
        table = self.content.get("shapes")
        if not isinstance(table, dict):
            wrong = "is missing" if table is None else "is not a table"
            self.faults.append(
                f"{self.path}: shapes: {wrong}; write [shapes], or parameters for a bare count"
            )
            return {}
        self._unknown("shapes.", table, SHAPES)
        figures = {
            name: self._figure(f"shapes.{name}", given, kind, source)
            for name, given in table.items()
            if name in SHAPES
        }
        stated = {name: figure for name, figure in figures.items() if figure}
        if len(stated) == len(figures):
            values = {name: figure.value for name, figure in stated.items()}
            self.faults += shape_faults(values, f"{self.path}: shapes.")
        return stated

    def _figure(self, place: str, given: object, kind: str, source: str) -> Figure | None:
        """Read ``80``, or ``{ value = 80, kind = .., source = .. }`` with an origin of its own."""
        if isinstance(given, dict):
            self._unknown(f"{place}.", given, ("value", "kind", "source"))
            kind, source = self._origin(given, f"{place}.")
            if "value" not in given:
                self.faults.append(f"{self.path}: {place}.value: is missing")
                return None
            given, place = given["value"], f"{place}.value"
        name = place.removeprefix("shapes.").removesuffix(".value")
        try:
            return Figure(shape_value(name, given, f"{self.path}: {place}"), "1", kind, source)
        except InputError as error:
            self.faults += error.faults
            return None

    def _fault(self, place: str, value: object, wrong: str, allowed: str) -> None:
        self.faults.append(fault(f"{self.path}: {place}", value, wrong, allowed))

    def _unknown(self, place: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
        names = tuple(known)
        for key in table:
            if key not in names:
                near = nearest(key, names, shown=40)
                self.faults.append(f"{self.path}: {place}{key}: no such key; {near}")

    def _origin(self, table: Mapping[str, Any], place: str) -> tuple[str, str]:
        kind = self._text(table, "kind", place)
        if kind and kind not in ORIGINS:
            self._fault(f"{place}kind", kind, "is unknown", nearest(kind, ORIGINS))
        return kind, self._text(table, "source", place)

    def _text(
        self, table: Mapping[str, Any], key: str, place: str, default: str | None = None
    ) -> str:
        value = table.get(key, default)
        if isinstance(value, str) and (value.strip() or value == default):
            return value
        wrong = "is missing" if key not in table else "is not a text with something in it"
        self.faults.append(f"{self.path}: {place}{key}: {wrong}")
        return ""

    def _names(self) -> tuple[str, ...]:
        given = self.content.get("hugging_face", [])
        names = [given] if isinstance(given, str) else given
        if isinstance(names, list) and all(isinstance(name, str) and name for name in names):
            return tuple(names)
        self._fault("hugging_face", given, "is not a name", 'write "owner/name", or a list of such')
        return ()
