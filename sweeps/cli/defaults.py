"""What is taken where an option isn't given, in words: asked of the resolution, as commands do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isnan

from overhead.labels import LABELS
from overhead.quantity import VOCABULARY
from sweeps.bands import written
from sweeps.spec.resolve import resolve
from sweeps.spec.resolve_operation import Resolved
from sweeps.spec.sweep import read_sweep

# Questions of which the answers are compared: in a node, in several, and on a machine that differs
# in all that machines decide.
FEW, MANY, OTHER = 8, 16, "tpu-v5p"
OPERATION: Mapping[str, object] = {"message_bytes": 1e9}
STEP: Mapping[str, object] = {"model": "llama3-8b", "sequence_length": 4096}
WHOSE = {"hardware": "the machine's", "framework": "the framework's", "model": "the model's"}


def default_words(name: str, *, training: bool) -> str:
    """Return what is taken where a quantity or label isn't given; empty where nothing is."""
    usual, few, other = _answers(training=training)
    origins = usual.origins.get(name)
    values = [_shown(name, number) for number in (few, usual, other)]
    if not origins or not values[1]:
        return ""
    owners = {usual.labels[label]: words for label, words in WHOSE.items() if label in usual.labels}
    whose = owners.get(origins[0].owner, "")
    machine = usual.labels["hardware"]
    if whose == WHOSE["model"]:
        return whose
    if values[0] != values[1]:
        both = f"{machine}: {values[0]} in a node, {values[1]} over several"
        return f"{whose or 'by machine'} ({both})"
    if name == "hardware" or (not whose and values[1] == values[2]):
        return values[1]
    return f"{whose or 'by machine'} ({origins[0].owner or machine}: {values[1]})"


@cache
def _answers(*, training: bool) -> tuple[Resolved, Resolved, Resolved]:
    """Return what is taken of the usual question, of one in a node, and on another machine."""
    asked = STEP if training else OPERATION
    gpus = "world_size" if training else "ranks"
    usual, few, other = (
        {**asked, gpus: MANY},
        {**asked, gpus: FEW},
        {**asked, gpus: MANY, "hardware": OTHER},
    )
    return _taken(usual), _taken(few), _taken(other)


def _taken(constants: Mapping[str, object]) -> Resolved:
    spec = {"title": "What is taken", "constants": constants}
    return resolve(read_sweep(spec, bare_is_si=True, folders=()))


def _shown(name: str, taken: Resolved) -> str:
    """Return a value that is taken as people write it; empty where there is none."""
    if name in taken.labels:
        return taken.labels[name]
    value = taken.constants.get(name, float("nan"))
    if name in LABELS or isnan(value):
        return ""
    quantity = VOCABULARY[name]
    if quantity.integer and (quantity.minimum, quantity.maximum) == (0, 1):
        return "on" if value else "off"
    return written(name, value)
