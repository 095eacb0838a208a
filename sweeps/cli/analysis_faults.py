"""Why one training configuration can't be, a line a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from overhead.breakdown import Faulty, faults
from overhead.evaluation import Evaluation
from sweeps.cli.analysis_options import flag_of
from sweeps.errors import fault

__all__ = ["plan_faults"]

DEGREES = ("dp", "tp", "cp", "pp")


def plan_faults(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line for each condition that one plan doesn't fulfil."""
    for one in faults(evaluation):
        values = {name: f"{value.reshape(-1)[0]:g}" for name, value in one.values.items()}
        match one.requirement.fault:
            case "product_of_degrees":
                yield _product(values)
            case "batch_not_divisible":
                yield _batch(values)
            case _:
                yield _told(one, values)


def _told(one: Faulty, values: Mapping[str, str]) -> str:
    # A degree of 1 isn't what is wrong.
    idle = {name for name, value in values.items() if name in ("ep", "etp", *DEGREES)
            and value == "1"}  # fmt: skip
    shown = {name: value for name, value in values.items() if name not in idle} or values
    wrong = one.requirement.fault.replace("_", " ")
    names = ", ".join(map(flag_of, shown))
    return fault(names, ", ".join(shown.values()), wrong, one.requirement.text)


def _product(values: Mapping[str, str]) -> str:
    product = 1.0
    for name in DEGREES:
        product *= float(values[name])
    told = "*".join(values[name] for name in DEGREES)
    wrong = f"is {product:g}, not the {values['world_size']} GPUs"
    return fault("*".join(DEGREES), told, wrong, "degrees that multiply to them")


def _batch(values: Mapping[str, str]) -> str:
    at_once = float(values["dp"]) * float(values["micro_batch"])
    batch = values["global_batch"]
    few = "is fewer than" if float(batch) < at_once else "isn't a multiple of"
    wrong = f"{few} the {at_once:g} sequences that dp*micro_batch compute at once"
    return fault(flag_of("global_batch"), batch, wrong, f"a multiple of {at_once:g}")
