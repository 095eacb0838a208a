"""How large a batch may be where nobody says: from what is usual to the largest that is defended.

A step's batch can't be as large as one likes, for beyond a critical size more of it saves no steps.
That size grows with the training's tokens rather than with the model's parameters, and mixtures of
experts are trained with larger ones than dense models.  Defended is therefore what a publication
had of a model of the same kind on no more tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from overhead.evaluation import derive
from sweeps.spec.catalog import find_spec, load_model, model_names
from sweeps.spec.files import read_toml

# A publication of so much longer a training still counts as one on no more tokens.
NEAR = 1.1


@dataclass(frozen=True)
class Published:
    """A model whose publication says with which batch it was trained."""

    model: str
    batch: float  # Tokens of a step, for most of the training
    tokens: float  # Of the whole training
    active: float  # Parameters that a token meets
    routed: bool  # Whether it has experts


@dataclass(frozen=True)
class Batches:
    """The batches that are searched, and whose they are."""

    sequences: tuple[float, ...]  # Of a step, from few to many
    length: float  # Tokens of a sequence
    usual: Published  # Whose batch the first is, or nearly
    largest: Published  # Whose batch none exceeds

    @property
    def words(self) -> str:
        """Which batches are searched, and why these."""
        first, last = (self.sequences[index] * self.length / 1e6 for index in (0, -1))
        kind = "mixtures of experts" if self.largest.routed else "dense models"
        if first == last:
            return (
                f"a batch of {first:.3g} M tokens: of published {kind} that were trained on no "
                f"more tokens {self.usual.model}, the nearest in size, had "
                f"{self.usual.batch / 1e6:.3g} M, and none had twice that"
            )
        few, many = (
            f"{published.batch / 1e6:.3g} M of {published.model}"
            for published in (self.usual, self.largest)
        )
        return (
            f"a batch of {first:.3g} to {last:.3g} M tokens, searched in doublings: from the "
            f"{few}, the nearest in size, up to the {many}, the largest published of {kind} that "
            "were trained on no more tokens"
        )


def published_batches(folders: Sequence[Path] = ()) -> tuple[Published, ...]:
    """Return the models of the catalogue whose publications say how large a batch was."""
    batches = []
    for name in model_names(folders):
        said = read_toml(find_spec("models", name, folders)).get("training", {})
        if not {"tokens_per_step", "training_tokens"} <= said.keys():
            continue
        model = load_model(name, folders)
        batch, tokens = (model.trained[key].value for key in ("tokens_per_step", "training_tokens"))
        active = model.quantity("active_parameters")
        routed = model.shapes.get("experts", 0.0) > 0.0
        batches.append(Published(name, batch, tokens, active, routed))
    return tuple(batches)


def batches_of(
    model: str, given: Mapping[str, float], tokens: float, folders: Sequence[Path] = ()
) -> Batches | None:
    """Return the batches to search for a model's training; None where no publication helps."""
    known = [
        published_batch
        for published_batch in published_batches(folders)
        if published_batch.tokens <= NEAR * tokens
    ]
    routed = given.get("experts", 0.0) > 0.0
    alike = [published for published in known if published.routed == routed] or known
    if not alike:
        return None
    active = float(derive("active_parameters", given))
    usual = min(
        alike,
        key=lambda published: (published.model != model, abs(math.log(published.active / active))),
    )
    largest = max(alike, key=lambda published: published.batch)
    length = given["sequence_length"]
    count = usual.batch / length
    if usual.model != model or not count.is_integer():
        count = _round(count)
    several = [count]
    while 2.0 * several[-1] * length <= largest.batch:
        several.append(2.0 * several[-1])
    return Batches(tuple(several), length, usual, largest)


def _round(count: float) -> float:
    """Return the nearest number of sequences that is a power of two, or one and a half times it."""
    power = 2.0 ** math.floor(math.log2(max(count, 1.0)))
    return min(
        (power, 1.5 * power, 2.0 * power), key=lambda rounded: (rounded % 1.0, abs(rounded - count))
    )
