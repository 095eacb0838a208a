"""The GPU that a log names, and the machine of the catalogue that has it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sweeps.calibration.log import WORDS, LogTest
from sweeps.spec.machine import Machine

# What GPUs are called: NVIDIA H100 80GB HBM3, AMD Instinct MI300X, Tesla V100-SXM2-16GB.
_GPU = re.compile(r"\b(?:(?:MI|GB|GH|[A-Z])\d{2,3}[A-Z]?\b|RTX PRO 6000)", re.IGNORECASE)
# GPUs on boards with NVSwitch, which are sold as cards of PCIe, too.
_CARDS = re.compile(r"PCI-?E|\bNVL\b", re.IGNORECASE)
_SMALL = {("A100", "40GB"): "dgx-a100-40gb"}


def device_of(text: str) -> str:
    """Return the GPU that a device's name has; empty where it has none."""
    match = _GPU.search(text)
    return match[0].upper() if match else ""


def machine_of(text: str) -> str:
    """Return the machine whose GPU a device's name has; empty where the catalogue has none."""
    device = device_of(text)
    if not device or _CARDS.search(text):
        return "" if device not in ("L40S", "RTX PRO 6000") else WORDS["machines"][device]
    for (name, memory), machine in _SMALL.items():
        if name == device and memory in text.upper():
            return machine
    return WORDS["machines"].get(device, "")


def machine_named(tests: Sequence[LogTest]) -> str:
    """Return the machine whose GPUs the most tests name; empty where none names one of them."""
    machine_names = [machine_of(test.device) for test in tests]
    named = [name for name in machine_names if name]
    return max(dict.fromkeys(named), key=named.count) if named else ""


def other_device(text: str, machine: Machine) -> tuple[str, tuple[str, ...]]:
    """Return a log's GPUs where they aren't the machine's, and a note where it can't be told."""
    device = device_of(text)
    names = {name.upper() for name in _GPU.findall(f"{machine.title} {machine.name}")}
    if not device:
        return "", ()
    cards = _CARDS.search(text) and machine.scale_up_kind == "switch" and device in names
    if device in names and not cards:
        return "", ()
    if not names:
        return "", (f"its GPUs are {text}; --hardware is {machine.name}: is that the machine?",)
    return text, ()


def way_on(text: str) -> str:
    """Return what to give for a log of such GPUs."""
    name = machine_of(text)
    if name:
        return f"--hardware {name}"
    device = device_of(text) or text
    return (
        f"""--hardware FILE.toml of your own (like = "dgx-h100", title = "{device}", its figures)"""
    )
