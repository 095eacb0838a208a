"""Names that models have on Hugging Face: releases and fine-tunes of the catalogue's shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sweeps.spec.files import shared_toml, shipped

DATE = re.compile(r"\d{4}")
LEAST = 3  # Words of a name that lacks its first ones


def bare_name(name: str) -> tuple[str, ...]:
    """Return the words of a name that tell shapes: without owner, date, or how it was trained."""
    known = shared_toml(shipped("configs") / "words.toml")
    said = {*known["trained"], *known["stored"]}
    words = re.split(r"[-_ ]+", name.rpartition("/")[2].lower())
    return tuple(word for word in words if word and word not in said and not DATE.fullmatch(word))


def release_of(name: str, known: Mapping[str, Iterable[str]]) -> str | None:
    """Return the model of the catalogue that a name is a release of.

    Parameters
    ----------
    name : str
        As Hugging Face has it, with or without its owner.
    known : mapping of str to iterables of str
        The names that Hugging Face has for each model of the catalogue.

    Returns
    -------
    str or None
        The catalogue's name; nothing where none or several are meant.
    """
    lowered = name.lower()
    for release, names in known.items():
        given = [spelling.lower() for spelling in names]
        if lowered in given or (
            "/" not in name and lowered in [g.rpartition("/")[2] for g in given]
        ):
            return release
    bare = bare_name(name)
    words = {
        key: [bare_name(spelling) for spelling in (key, *names)] for key, names in known.items()
    }
    joined = "".join(bare)  # ``llama3.1-70b`` is ``Llama-3.1-70B``
    meant = {key for key, word in words.items() if joined in map("".join, word)}
    if not meant and len(bare) >= LEAST:  # What leads may be left out
        meant = {
            key
            for key, each in words.items()
            if bare in [spelling[-len(bare) :] for spelling in each]
        }
    return meant.pop() if len(meant) == 1 and bare else None
