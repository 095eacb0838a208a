"""The constants that a step's time takes of a machine and of the software, each with its origin."""

from __future__ import annotations

import math

from overhead.memory.precision import RECIPES, Recipe
from sweeps.errors import InputError, fault, nearest
from sweeps.spec.figures import KERNELS, PRECISIONS, Figure
from sweeps.spec.framework import Framework
from sweeps.spec.machine import Machine
from sweeps.spec.training_rule import (
    ATTENTION_KERNEL,
    ATTENTION_RULE,
    INPUT_WIDTHS,
    MACHINE_RULE,
    RECIPE_RULE,
    TYPICAL_BEST,
    UNFUSED_SHARE,
)

__all__ = ["PRECISIONS", "training_constants"]

Known = tuple[float, str]

# Constants of a machine that don't depend on the precision or on the kernel.
PLAIN = (
    "memory_bandwidth",
    "memory_capacity",
    "memory_efficiency",
    "intra_efficiency",
    "inter_efficiency",
    "matmul_floor",
    "matmul_depth_time",
    "step_overhead",
    "power",
    "idle_power_fraction",
    "sms",
    "price",
)
# The two 16-bit formats run on the same units: where their peaks are equal, so is what is reached.
TWINS = {"bf16": "fp16", "fp16": "bf16"}
SINGLE = ("tf32", "fp32")


def training_constants(
    machine: Machine,
    framework: Framework,
    *,
    precision: str = "bf16",
    attention_kernel: str | None = None,
    recipe: str | None = None,
) -> dict[str, Known]:
    """Return every constant of a machine and its software that a step's time and memory take."""
    kernel = attention_kernel or framework.labels.get("attention_kernel", ATTENTION_KERNEL)
    wrong = [
        fault(field, name, "unknown", nearest(name, known))
        for field, name, known in (
            ("precision", precision, PRECISIONS),
            ("attention_kernel", kernel, KERNELS),
            ("recipe", recipe, tuple(RECIPES)),
        )
        if name is not None and name not in known
    ]
    if wrong:
        raise InputError(wrong)
    found = {name: _plain(machine, name) for name in PLAIN}
    found |= _matmul(machine, precision, framework.figures["matmul_share"])
    found |= _attention(machine, precision, kernel)
    found |= _bytes(framework, precision, recipe)
    found |= {
        name: (figure.value, figure.origin)
        for name, figure in framework.figures.items()
        if name != "matmul_share"
    }
    return found


def _unknown(machine: Machine) -> Known:
    return math.nan, f"not known ({machine.name})"


def _plain(machine: Machine, name: str) -> Known:
    figure = machine.figures.get(name) or MACHINE_RULE.get(name)
    return _unknown(machine) if figure is None else (figure.value, figure.origin)


def _matmul(machine: Machine, precision: str, share: Figure) -> dict[str, Known]:
    """Return peak, best and sustained share of matrix multiplication."""
    peak = machine.figures.get(f"peak_flops_{precision}")
    best = _best(machine, precision)
    efficiency, origin = _efficiency(machine, precision)
    if share.value != 1.0:
        efficiency, origin = efficiency * share.value, f"{origin}; times {share.origin}"
    known = math.isfinite(best[0])
    return {
        "peak_flops": _unknown(machine) if peak is None else (peak.value, peak.origin),
        "best_matmul_flops": best,
        "matmul_efficiency": (efficiency, origin) if known else _unknown(machine),
    }


def _stated(machine: Machine, quantity: str, precision: str) -> Known | None:
    """Return a figure of a precision, or of its twin where both have the same peak."""
    figure = machine.figures.get(f"{quantity}_{precision}")
    if figure is not None:
        return figure.value, figure.origin
    twin = TWINS.get(precision, precision)
    figure = machine.figures.get(f"{quantity}_{twin}")
    peaks = [machine.figures.get(f"peak_flops_{name}") for name in (precision, twin)]
    if figure is None or peaks[0] is None or peaks[1] is None or peaks[0].value != peaks[1].value:
        return None
    return figure.value, f"{figure.origin} (of {twin}, which has the same peak)"


def _best(machine: Machine, precision: str) -> Known:
    """Return the best measured matrix multiplication, or what is typical of the peak."""
    stated = _stated(machine, "best_matmul_flops", precision)
    peak = machine.figures.get(f"peak_flops_{precision}")
    if stated is not None:
        return stated
    if peak is None:
        return _unknown(machine)
    share = TYPICAL_BEST
    return peak.value * share.value, f"{share.kind}: {share.value:g} of the peak, {share.source}"


def _efficiency(machine: Machine, precision: str) -> Known:
    """Return the share of the best matrix multiplication that long runs sustain."""
    rule = MACHINE_RULE["matmul_efficiency"]
    return _stated(machine, "matmul_efficiency", precision) or (rule.value, rule.origin)


def _attention(machine: Machine, precision: str, kernel: str) -> dict[str, Known]:
    """Return the peak of attention, which is in 16 bits at least, and the kernel's share of it."""
    names = (precision,) if precision in SINGLE else dict.fromkeys((_sixteen(precision), *TWINS))
    name = next((n for n in names if f"peak_flops_{n}" in machine.figures), None)
    if name is None:
        return dict.fromkeys(("attention_peak_flops", "attention_efficiency"), _unknown(machine))
    peak = machine.figures[f"peak_flops_{name}"]
    share = machine.figures.get(f"attention_efficiency_{kernel}") or ATTENTION_RULE.get(kernel)
    if share is not None:
        efficiency = share.value, share.origin
    else:  # without a fused kernel
        sustained = _best(machine, name)[0] * _efficiency(machine, name)[0] / peak.value
        told = f"{UNFUSED_SHARE.value:g} of the {sustained:.3g} of the peak sustained in {name}"
        why = f"{UNFUSED_SHARE.kind}: {told}; {UNFUSED_SHARE.source}"
        efficiency = UNFUSED_SHARE.value * sustained, why
    return {
        "attention_peak_flops": (peak.value, peak.origin),
        "attention_efficiency": efficiency,
    }


def _sixteen(precision: str) -> str:
    return precision if precision in TWINS else "bf16"


def _bytes(framework: Framework, precision: str, recipe: str | None) -> dict[str, Known]:
    """Return bytes a parameter and an element, by the recipe."""
    chosen = framework.precisions.get(precision)
    name = recipe or (RECIPE_RULE[precision] if chosen is None else chosen.value)
    used: Recipe = RECIPES[name]
    origin = f"specification: recipe {name}, {used.meaning} ({used.reference})"
    if recipe is None and chosen is not None:
        origin += f"; {framework.name} takes it: {chosen.source}"
    given = {quantity: float(value) for quantity, value in used.given().items()}
    found = {quantity: (value, origin) for quantity, value in given.items()}
    width = INPUT_WIDTHS[precision]
    if width < given["matmul_input_bytes"]:
        found["matmul_input_bytes"] = width, f"specification: matrix products in {precision}"
    gathered = min(given["weight_bytes"], given["activation_bytes"])
    told = "assumed: weights are gathered as stored, or as computed with where that is narrower"
    found["gathered_bytes"] = gathered, told
    return found
