"""NCCL's settings in a log: which algorithms and protocols they leave to an operation.

The grammar of ``NCCL_ALGO`` and ``NCCL_PROTO`` is that of NVIDIA/nccl, src/graph/tuning.cc: lists
between semicolons, each for all functions or behind ``function:`` for one; names between commas,
upper or lower case; ``^`` before a list leaves all but it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sweeps.calibration.log import WORDS
from sweeps.spec.nccl_words import ALGORITHMS, FORMER, NO_TIMES, OF_PAT, PAT, PROTOCOLS

# Which algorithm a run's settings leave, where that is all but NVLS.
NO_NVLS = "no nvls"
ALGORITHM, PROTOCOL, NVLS = "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE"
VARIABLES = (ALGORITHM, PROTOCOL, NVLS)
_NAMES: Mapping[str, tuple[str, ...]] = {
    ALGORITHM: ALGORITHMS,
    PROTOCOL: PROTOCOLS,
}
# Those that use NCCL's protocol Simple alone.
SIMPLE_FORMS = ("nvls", "nvls_tree", "sharp")
_FORMS, _FUNCTIONS = WORDS["forms"], WORDS["functions"]
_SET = re.compile(
    rf"\b({'|'.join(VARIABLES)})(?:\s+set by environment to\s+(.*)"
    r"|\s*[=:]\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"']+))|\s+([\^\w][\w,^;:]*)\s*$)"
)
_UNSET = re.compile(rf"\bunset\s+({'|'.join(VARIABLES)})\b")


def setting_of(line: str) -> tuple[str, str] | None:
    """Return the variable that a line sets, and its value; empty where it unsets it."""
    if "NCCL_" not in line:
        return None
    if match := _UNSET.search(line):
        return match[1], ""
    if not (match := _SET.search(line)):
        return None
    value = next((group for group in match.groups()[1:] if group is not None), "")
    # What follows is a sentence's end, or a command's next word.
    value = value.strip().strip("\"'").rstrip(".").strip()
    return match[1], value.split()[0] if value else ""


def _left(variable: str, text: str, operation: str) -> tuple[frozenset[str], str]:
    """Return the names that a variable leaves to an operation, and a word that isn't one."""
    every = frozenset(_NAMES[variable])
    function, left = _FUNCTIONS.get(operation, ""), every
    for index, part in enumerate(text.lower().split(";")):
        prefix, colon, names = part.rpartition(":")
        if colon and prefix.strip() not in _FUNCTIONS.values():
            return every, prefix.strip()
        if not names.strip() or not (colon or index == 0):
            return every, part.strip() or ";"
        listed = names.strip()
        but = listed.startswith("^")
        words = [word.strip() for word in listed.lstrip("^").split(",") if word.strip()]
        for word in words:
            if word not in every and word not in FORMER:
                return every, word
        chosen = frozenset(setting for word in words for setting in FORMER.get(word, (word,)))
        if not colon or prefix.strip() == function:
            left = every - chosen if but else chosen
    return left, ""


@dataclass(frozen=True, slots=True)
class LeftBySettings:
    """What a run's settings leave to an operation."""

    # The forms that are left, `NO_NVLS`, or empty where all are; behind a semicolon the protocol
    # where one of the two that times are known of is out
    forced: str = ""
    notes: tuple[str, ...] = ()
    unknown: str = ""  # Why nothing is known of its times
    short_unknown: str = ""  # Why nothing is known of short messages' times


def left_by(settings: Mapping[str, str], operation: str) -> LeftBySettings:
    """Return what settings leave to an operation, with notes on them."""
    if operation not in _FUNCTIONS:
        return LeftBySettings()
    names, notes = {}, []
    for variable in (ALGORITHM, PROTOCOL):
        names[variable], strange = (
            _left(variable, settings.get(variable, ""), operation)
            if (settings.get(variable))
            else (frozenset(_NAMES[variable]), "")
        )
        if strange:
            notes.append(
                f"{variable}={settings[variable]} isn't understood ('{strange}'): taken as not set"
            )
    algorithms, protocols = set(names[ALGORITHM]), names[PROTOCOL]
    if settings.get(NVLS) == "0":
        algorithms -= {"nvls", "nvlstree"}
    # LL128 is priced as the other protocol of long messages.
    long = bool(protocols & {"simple", "ll128"})
    if "simple" not in protocols:
        algorithms -= {name for name in algorithms if _FORMS.get(name) in SIMPLE_FORMS}
    given = ", ".join(f"{name}={settings[name]}" for name in VARIABLES if settings.get(name))
    forms = sorted({_FORMS[name] for name in algorithms if name in _FORMS})
    if not forms:
        return _nothing_left(given, algorithms, operation, notes)
    every = sorted({*_FORMS.values()})
    word = "" if forms == every else "|".join(forms)
    if forms == [form for form in every if not form.startswith("nvls")]:
        word = NO_NVLS
    only = "" if long and "ll" in protocols else "simple" if long else "ll"
    if word or only:
        what = "without NVLS" if word == NO_NVLS else " or ".join(forms)
        with_ = f", protocol {only.upper() if only == 'll' else 'Simple'}" if only else ""
        notes.append(f"{given}: compared with {what if word else 'all algorithms'}{with_}")
    if settings.get(ALGORITHM) and PAT in algorithms and operation in OF_PAT and forms != every:
        notes.append(f"{given}: PAT may run, too, which isn't modelled")
    unknown = ""
    if only == "simple" and "ll128" in protocols:
        unknown = f"{given}: LL128 carries short messages, and {NO_TIMES}"
    if "simple" not in protocols and "ll128" in protocols:
        notes.append(f"{given}: long messages by LL128 have 120 of every 128 bytes as data")
    return LeftBySettings(f"{word};{only}" if only else word, tuple(notes), short_unknown=unknown)


def _nothing_left(
    given: str, algorithms: set[str], operation: str, notes: list[str]
) -> LeftBySettings:
    """Return what to say where no algorithm is left that times are known of."""
    if PAT in algorithms and operation in OF_PAT:
        return LeftBySettings(notes=tuple(notes), unknown=f"{given}: NCCL's PAT, and {NO_TIMES}")
    notes.append(f"{given}: leaves {operation} no algorithm, so compared with all")
    return LeftBySettings(notes=tuple(notes))
