"""Settings, plans and moves of whole answers, as hypothesis draws them.

A case is a question as a user asks it: a model, a machine, labels, and plans.  All its plans, and
each with each input moved alone, are the rows of one sweep.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from overhead import VOCABULARY, Quantity
from overhead.quantity import Array
from sweeps.job import Job, prepare
from sweeps.spec.axis import Axis
from tests.tables import examples, keyed

Given = dict[str, Any]
# Models, with whether they have experts.
MODELS = keyed(
    "llama3-8b=False gpt3-175b=False mixtral-8x7b=True qwen3-30b-a3b=True deepseek-v3=True "
    "qwen3-next-80b-a3b=True nemotron-3-nano-30b-a3b=True gpt-oss-20b=True"
)
MACHINES = ("dgx-h100", "dgx-a100", "gb200-nvl72", "mi300x", "tpu-v5p", "hgx-h800")
# Schedules by the virtual stages that they need.
SCHEDULES = keyed(
    "one_f_one_b=1 interleaved=2 gpipe=1 zero_bubble_h1=1 zero_bubble_h2=1 dual_pipe=1 v_half=2 "
    "dual_pipe_v=2"
)
LABELS = examples(__file__, "labels")
FEATURES: tuple[Given, ...] = examples(__file__, "features")
# What is never a reason here that a plan isn't computed.
ROOM = {"memory_capacity": 1e15, "host_memory_capacity": 1e16}
# A change that is smaller is none.
ROUNDING = 1e-9
RUN = {"training_tokens": 1e12}


@dataclass(frozen=True)
class Case:
    """A question: what all plans have in common, and the plans."""

    fixed: tuple[tuple[str, Any], ...]
    plans: tuple[tuple[tuple[str, float], ...], ...]

    def job(self, quantities: tuple[str, ...]) -> Job:
        columns = {name: [dict(plan)[name] for plan in self.plans] for name in dict(self.plans[0])}
        table = {
            "title": "Laws",
            "quantities": list(quantities),
            "axes": {"row": columns},
            "constants": {**ROOM, **RUN, **dict(self.fixed)},
        }
        return prepare(table, command=["laws"], folders=())

    def command(self, quantity: str, row: int, name: str, values: list[float]) -> str:
        """Return what shows two answers side by side, to paste."""
        given = {**ROOM, **RUN, **dict(self.fixed), **dict(self.plans[row]), name: values}
        said = ", ".join(f"{key}={value!r}" for key, value in given.items())
        return f"sweeps.sweep({quantity!r}, {said})"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fixed: Given = {
        "model": draw(st.sampled_from(list(MODELS))),
        "hardware": draw(st.sampled_from(MACHINES)),
    }
    if fixed["hardware"] == "tpu-v5p":
        fixed["topology"] = "torus"  # Some plans fill a pod, others don't
    schedule = draw(st.sampled_from(list(SCHEDULES)))
    fixed["schedule"] = schedule
    for name in draw(st.lists(st.sampled_from(list(LABELS)), max_size=3, unique=True)):
        fixed[name] = draw(st.sampled_from(LABELS[name]))
    for more in draw(st.lists(st.sampled_from(FEATURES), max_size=1)):
        fixed |= more
    if fixed.get("recompute") == "block":
        fixed["recompute_layers"] = 1
    several = draw(
        st.lists(plans(SCHEDULES[schedule], MODELS[fixed["model"]]), min_size=1, max_size=4)
    )
    return Case(tuple(fixed.items()), tuple(tuple(plan.items()) for plan in several))


@st.composite
def plans(draw: st.DrawFn, virtual: int, routed: bool) -> Given:
    """Draw a plan, nearly always of a valid split."""
    plan = {
        "tp": draw(st.sampled_from((1, 2, 4, 8))),
        "cp": draw(st.sampled_from((1, 2, 4))),
        "pp": draw(st.sampled_from((1, 2, 4, 8) if virtual == 1 else (2, 4, 8))),
        "dp": draw(st.sampled_from((1, 2, 8, 16))),
        "zero_stage": draw(st.sampled_from((1, 0, 2, 3))),
        "micro_batch_size": draw(st.sampled_from((1, 2))),
        "sequence_length": draw(st.sampled_from((4096, 2048, 32768))),
        "sequence_parallel": 1 if routed else draw(st.sampled_from((1, 0))),
        "virtual_pipeline_size": virtual,
    }
    split = [degree for degree in (1, 2, 8) if plan["dp"] * plan["cp"] % degree == 0]
    plan["ep"] = draw(st.sampled_from(split if routed else [1]))
    many = draw(st.sampled_from((2, 4, 16)))
    plan["global_batch_size"] = plan["dp"] * plan["micro_batch_size"] * plan["pp"] * many
    return {name: float(value) for name, value in plan.items()}


def moves(quantity: Quantity, values: Array) -> list[Array]:
    """Return an input's values moved up, each in a few ways; what can't be moved stays as it is."""
    if quantity.name == "zero_stage":
        return [np.minimum(values + step, 3.0) for step in (1.0, 2.0)]
    if quantity.flag:
        return [np.ones_like(values)]
    if quantity.integer:
        return [2.0 * values]
    if quantity.maximum < np.inf:
        room = quantity.maximum - values
        return [values + room * part for part in (0.3, 0.999)]
    return [values * factor for factor in (1.3, 5.0)]


class Answers:
    """Quantities of all plans of a case, and of each with each input moved alone."""

    def __init__(self, case: Case, quantities: Iterable[str], inputs: Iterable[str]) -> None:
        job = case.job(tuple(quantities))
        known = {**job.program.grid.constants, **job.program.assumed}
        (axis,) = job.resolved.axes
        count = len(case.plans)
        base = {name: np.asarray(column, dtype=float) for name, column in axis.columns.items()}
        used = job.program.used()
        # Layers of several kinds are as many as all kinds together: alone they are no model.
        kinds = {"layers"} if known.get("linear_layers", 0.0) > 0.0 else set()
        inputs = [name for name in inputs if name not in kinds]
        for name in inputs:
            if name not in base and name in used and np.isfinite(known.get(name, np.nan)):
                base[name] = np.full(count, known[name])
        self.moved = {name: moves(VOCABULARY[name], base[name]) for name in inputs if name in base}
        blocks = [base, *({**base, n: way} for n, ways in self.moved.items() for way in ways)]
        columns = {name: np.concatenate([block[name] for block in blocks]) for name in base}
        constants = {n: value for n, value in job.resolved.constants.items() if n not in columns}
        resolved = replace(job.resolved, axes=(Axis(axis.name, columns),), constants=constants)
        whole = replace(job, resolved=resolved).compiler()
        with np.errstate(all="ignore"):
            values_by_name = whole.evaluate()
        shape = len(blocks), count
        self.base = base
        self.values = {
            n: np.broadcast_to(values_by_name[n], shape[0] * count).reshape(shape)
            for n in values_by_name
        }

    def of(self, quantity: str, name: str, where: tuple[str, ...] = ()) -> tuple[Array, Array]:
        """Return by how much the answer moves, a row a way; and where it is more than rounding.

        With two quantities in `where`, only plans count of which the first is the smaller one,
        before and after.
        """
        first = 1
        for other_name, ways in self.moved.items():
            if other_name == name:
                break
            first += len(ways)
        values = self.values[quantity]
        before, after = values[0], values[first : first + len(self.moved[name])]
        up = np.stack(self.moved[name]) > self.base[name]
        known = up & np.isfinite(before) & np.isfinite(after)
        if where:
            smaller, larger = (self.values[each] for each in where)
            holds = smaller < larger
            known &= holds[0] & holds[first : first + len(after)]
        with np.errstate(invalid="ignore"):
            large = np.maximum(abs(before), abs(after)) * ROUNDING
            return after - before, known & (abs(after - before) > large)
