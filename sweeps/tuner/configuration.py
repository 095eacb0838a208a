"""A configuration as files: every key that Transformer Engine reads, and the flags it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.tuner.cases import Case
from sweeps.tuner.choose import GROUPS, Choice
from sweeps.tuner.userbuffers import (
    ALL_GATHER,
    KEYS,
    LAYERS,
    collective_of,
    default_values,
    flag_group,
)

__all__ = [
    "SWITCHES",
    "Companion",
    "case_companion",
    "companion_of",
    "layer_values",
    "to_yaml",
    "yaml_of",
]

SWITCHES = {
    "ag": "--disable-tp-comm-overlap-ag",
    "rs": "--disable-tp-comm-overlap-rs",
    "bulk_dgrad": "--disable-tp-comm-bulk-dgrad",
    "bulk_wgrad": "--disable-tp-comm-bulk-wgrad",
}
"""Megatron-LM's flags that turn a kind of overlap off."""
SCATTERED = "--tp-comm-overlap-rs-dgrad"
SPLITS = 4  # Transformer Engine's default
CGA_SIZE = 2  # the same; more multiprocessors than it are launched in clusters of it
VARIABLES = {
    "CUDA_DEVICE_MAX_CONNECTIONS": (
        "1",
        "kernels start in the order in which they are launched; on Hopper and later with CUDA 12.3 "
        "an event does that for bulk, and more connections are fine",
    ),
}
MULTICAST = (
    "UB_SKIPMC=1 turns CUDA multicast off, for machines that lack it; it doesn't turn "
    "userbuffers on"
)


@dataclass(frozen=True, slots=True)
class Companion:
    """What has to go with a configuration file."""

    flags: tuple[str, ...]  # Megatron-LM's, in order; none where nothing overlaps

    def text(self, file: str) -> str:
        """Return a shell script to be sourced, for a configuration file of some name."""
        lines = ["# Flags of Megatron-LM and variables that go with it; source this file."]
        for name, (value, why) in VARIABLES.items():
            lines += [f"# {why}", f"export {name}={value}"]
        lines.append(f"# {MULTICAST}")
        if not self.flags:
            lines += ["# Nothing overlaps: leave --tp-comm-overlap out.", "TP_OVERLAP_FLAGS=()"]
        else:
            folder = '$(dirname "${BASH_SOURCE[0]}")'
            lines.append("TP_OVERLAP_FLAGS=(")
            for flag in self.flags:
                path = f' "{folder}/{file}"' if flag == "--tp-comm-overlap-cfg" else ""
                lines.append(f"  {flag}{path}")
            lines.append(")")
        return "\n".join(lines) + "\n"


def companion_of(on: Sequence[str] | frozenset[str], *, scattered_dgrad: bool) -> Companion:
    """Return the flags for what overlaps."""
    if not on and not scattered_dgrad:
        return Companion(())
    off = [SWITCHES[group] for group in GROUPS if group not in on]
    flags = ["--tp-comm-overlap", "--sequence-parallel", "--tp-comm-overlap-cfg"]
    return Companion((*flags, *([SCATTERED] if scattered_dgrad else []), *off))


def layer_values(case: Case, *, sm_margin: bool = False) -> dict[str, Any]:
    """Return all values of a layer that overlaps as a case says."""
    ring = case.method == "ring_exchange"
    count = 1 if ring else case.num_sm
    scatters = collective_of(case.operator, case.phase, case.method) != ALL_GATHER
    clustered = count % CGA_SIZE == 0
    return default_values(case.layer, case.tp_size) | {
        "method": case.method,
        "is_reduce_scatter": scatters,
        "num_sm": count,
        "cga_size": CGA_SIZE if clustered else 1,
        "set_sm_margin": case.method == "pipeline" or (sm_margin and not ring),
        "num_splits": case.tp_size if ring else SPLITS,
        "aggregate": bool(case.aggregate),
        "fp8_buf": not scatters,
    }


def yaml_of(choice: Choice, *, sm_margin: bool = False, heading: Sequence[str] = ()) -> str:
    """Return the configuration file of a choice."""
    values = {
        layer: layer_values(choice.layers[layer].case, sm_margin=sm_margin)
        for layer in LAYERS
        if layer in choice.layers
    }
    return to_yaml(values, heading)


def to_yaml(values: Mapping[str, Mapping[str, Any]], heading: Sequence[str] = ()) -> str:
    """Return layers with their values as YAML."""
    lines = [f"# {line}" for line in heading]
    for layer, own in values.items():
        lines.append(f"{layer}:")
        for key in KEYS:
            if key in own:
                value = own[key]
                lines.append(f"  {key}: {int(value) if isinstance(value, bool) else value}")
    if not values:
        lines.append("{}")
    return "\n".join(lines) + "\n"


def case_companion(case: Case) -> Companion:
    """Return the flags with which a case's phase alone overlaps."""
    if case.is_baseline:
        return Companion(())
    scattered = case.layer in {"qkv_dgrad", "fc1_dgrad"} and case.method != "bulk"
    on = () if scattered else (flag_group(case.operator, case.phase),)
    return companion_of(on, scattered_dgrad=scattered)
