"""What is known of a run, by which the error of its prediction is told."""

from __future__ import annotations

from collections.abc import Container

from overhead.shipped import error_bands
from overhead.step.bands import (
    MEGATRON,
    NVIDIA,
    OTHER_DEVICES,
    OTHER_SOFTWARE,
    TORCH_FSDP,
    TPU,
)
from sweeps.origin import ASSUMED, MEASURED, SPECIFICATION, Origin
from sweeps.spec.framework import BROUGHT, TEXTBOOK, figure_for
from sweeps.spec.machine import Machine, rates_of
from sweeps.spec.software import own_library

# Settings of a run that move its time most; where they aren't given, the error to expect grows.
SETTINGS = ("recompute", "attention_kernel", "precision", "framework")


def unknown_settings(given: Container[str]) -> list[str]:
    """Return which settings nobody stated; a framework brings its kernel, a preset brings it."""
    preset = frozenset({"framework"}) if "preset" in given else frozenset()
    brought = BROUGHT | preset if preset or "framework" in given else frozenset()
    return [name for name in SETTINGS if name not in given and name not in brought]


# How the source of what a joint fit found begins: its errors are of runs that were left out.
FITTED = "fitted jointly with others"


def uncalibrated_device(machine: Machine, precision: str) -> Origin:
    """Return how little a machine's rates were compared with runs, and which runs told them."""
    figure = figure_for(machine, "matmul_efficiency", precision)
    rates = f"{machine.name}'s rates in {precision}"
    if figure is None:
        return Origin(2.0, ASSUMED, f"{rates} are those of other GPUs")
    if figure.kind != MEASURED:
        return Origin(1.0, ASSUMED, f"no run was compared with {rates}")
    few = f"{rates} come from few runs, none of which was left out"
    why = f"{rates} were compared with runs" if figure.source.startswith(FITTED) else few
    return Origin(0.0, MEASURED, why)


def known_of_run(
    machine: Machine | None, framework: str, precision: str, preset: str = ""
) -> dict[str, Origin]:
    """Return of which kinds a machine and its software are, by the classes of errors."""
    name, *options = framework.removesuffix(f"+{TEXTBOOK}").split("+")
    said = (
        f"{preset} is a preset" if preset else f"{framework} has {'options' if options else 'none'}"
    )
    kind = software_kind(name)
    origins = {
        "software_kind": Origin(kind, SPECIFICATION, f"what {name} is"),
        "given_options": Origin(float(bool(options or preset)), SPECIFICATION, said),
    }
    if machine is not None:
        origins |= {
            "device_kind": Origin(device_kind(machine), SPECIFICATION, f"what {machine.name} has"),
            "uncalibrated_device": uncalibrated_device(machine, rates_of(precision)),
        }
    return origins


def software_kind(name: str) -> float:
    """Return of which kind software is."""
    known = error_bands()["frameworks"]
    if name in known["megatron"]:
        return MEGATRON
    return TORCH_FSDP if name in known["torch_fsdp"] else OTHER_SOFTWARE


def device_kind(machine: Machine) -> float:
    """Return of which kind a machine's devices are."""
    library, known = own_library(machine).value, error_bands()["libraries"]
    if library in known["nvidia"]:
        return NVIDIA
    return TPU if library in known["tpu"] else OTHER_DEVICES
