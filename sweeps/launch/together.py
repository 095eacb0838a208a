"""Readings of several launch files as one."""

from __future__ import annotations

from collections.abc import Sequence

from overhead.quantity import VOCABULARY
from sweeps.errors import tell_all
from sweeps.launch.setting import Reading

# Of a model's shapes what a training chooses: a catalogue's model has the others itself.
CHOSEN_SHAPES = ("mtp_layers",)


def given_together(readings: Sequence[Reading]) -> dict[str, object]:
    """Return what readings give, by quantity or label; two that differ are refused."""
    faults, values = [], dict[str, object]()
    for reading in readings:
        for name, value in reading.given.items():
            first = next((other for other in readings if name in other.given), reading)
            if first.given[name] != value:
                origins = f"{first.origins[name]} and {reading.origins[name]}"
                faults.append(f"{origins}: differ, {first.given[name]} and {value}")
            values[name] = value
    tell_all(faults)
    if str(values.get("model", "")).endswith(".json"):
        shape_names = shapes()
        values = {name: value for name, value in values.items() if name not in shape_names}
    return values


def shapes() -> frozenset[str]:
    """Return what a model's own file says of it."""
    tables = VOCABULARY.tables
    names = {*tables["shapes"], *tables["features"], "vocabulary_multiple"}
    return frozenset(names - {*CHOSEN_SHAPES})


def together(readings: Sequence[Reading]) -> Reading:
    """Return readings of one run as one."""
    if len(readings) == 1:
        return readings[0]
    first, given = readings[0], given_together(readings)
    combined = Reading(
        "; ".join(reading.format for reading in readings), ", ".join(part.file for part in readings)
    )
    combined.version = first.version
    for each_reading in readings:
        for name in ("read", "no_cost", "small", "not_modelled", "unknown", "defaults", "notes"):
            getattr(combined, name).extend(getattr(each_reading, name))
        combined.origins |= {
            name: why for name, why in each_reading.origins.items() if name in given
        }
        combined.by_file |= each_reading.by_file or {each_reading.file: [*each_reading.read]}
        combined.asks += each_reading.asks
    combined.given = given
    answered = {"--model": "model", "--seq-length": "sequence_length", "--gpus": "world_size"}
    combined.asks = [flag for flag in combined.asks if answered.get(flag) not in given]
    return combined
