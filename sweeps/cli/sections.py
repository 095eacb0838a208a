"""What a screen shows by default, and the sections that ``--show`` adds below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

import click

from sweeps.errors import InputError, fault, nearest
from sweeps.result import prose

ALL = "all"
# A section is the same in every command that has it.
SECTIONS = {
    "reasons": "why this plan, against the next layout",
    "parts": "the step time by part; rates, energy and cost",
    "memory": "peak memory by part",
    "communication": "every collective: calls, bytes, time and energy, before overlap",
    "overlap": "what overlaps with what, and why the rest is exposed",
    "pareto": "step time against memory",
    "changes": "single changes: a degree, a setting, the network",
    "rejected": "plans that cannot run, by reason",
    "launch": "settings for Megatron-LM, DeepSpeed and torchtitan",
    "formulas": "formula, source, and the numbers put in",
    "defaults": "every value that was not given, with its source",
}
# What a command has, in this order.
OF_PLAN = (
    "reasons", "parts", "memory", "pareto", "changes", "rejected", "launch", "defaults",
)  # fmt: skip
OF_ANALYSIS = ("parts", "memory", "communication", "overlap", "formulas", "defaults")


def show_option(sections: Sequence[str]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option ``--show`` of a command that has these sections."""
    words = f"Further sections of the report: {', '.join(sections)}, or all."
    return click.option(
        "--show", "show", metavar="SECTION,..", is_flag=False, flag_value="", help=words
    )


def read_show(text: str | None, sections: Sequence[str]) -> tuple[str, ...]:
    """Return the sections that are asked for, in their own order."""
    asked = [one.strip() for one in (text or "").split(",") if one.strip()]
    known = (*sections, ALL)
    faults = [
        fault("--show", name, "no such section", nearest(name, known))
        for name in asked
        if name not in known
    ]
    if faults:
        raise InputError(faults)
    return tuple(name for name in sections if name in asked or ALL in asked)


def listed(sections: Sequence[str]) -> Iterator[str]:
    """Yield what there is to show."""
    wide = max(map(len, sections))
    yield from (f"  {name.ljust(wide)}  {SECTIONS[name]}" for name in sections)


def shown_sections(
    wanted: Iterable[str], bodies: Mapping[str, Callable[[], Iterable[str]]]
) -> Iterator[str]:
    """Yield the sections that are wanted; one that is empty says so."""
    for name in wanted:
        text = "\n".join(bodies[name]()).strip("\n")
        yield from ("", text or f"{name}: none")


def more_line(wanted: Iterable[str], bodies: Iterable[str]) -> Iterator[str]:
    """Yield which further sections there are."""
    left = [name for name in bodies if name not in set(wanted)]
    if left:
        yield from wrapped(f"More: --show {','.join(left)}")


def wrapped(text: str, indent: str = "") -> Iterator[str]:
    """Yield a text as lines of prose, the first indented and the others further."""
    later = f"{indent}  "
    yield from wrap(
        text, prose(), initial_indent=indent, subsequent_indent=later, break_on_hyphens=False
    )
