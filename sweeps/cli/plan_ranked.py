"""What plans are ranked by, where it is neither the step's time nor its memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sweeps import display
from sweeps.bands import band_of
from sweeps.cli.numbers import shown
from sweeps.cli.plan_question import Asked
from sweeps.cli.sections import wrapped
from sweeps.search.answer import Answer
from sweeps.search.details import details
from sweeps.spec.catalog import load_hardware

# Costs have the band of the step's time, to which they are proportional; of energies none is known.
TOLD = ("cost_per_trillion_tokens", "step_energy")


def ranked_lines(answer: Answer, asked: Asked) -> Iterator[str]:
    """Yield the recommended plan's cost or energy where plans are ranked by it, and the price."""
    name, (best, *_) = answer.point.objective.quantity, answer.main
    if name not in TOLD:
        return
    (detail,) = details([best.plan], (name,))
    text = f"{display.words(name)}: {shown(name, detail[name])}"
    if name == "cost_per_trillion_tokens":
        text += f" ({band_of('step_time', best.values.get)})"
        if not {"gpu_hour_price", "capital_cost"} & {*asked.given}:
            machine = load_hardware(best.plan.labels["hardware"], answer.point.folders)
            price = machine.figures["gpu_hour_price"]
            text += f", at {price.value:g} USD/h a GPU ({price.kind}, {price.date or 'undated'}): "
            text += "--price gives today's"
    if np.isfinite(detail[name]):
        yield from wrapped(text, indent="  ")
