"""The laws that ``overhead/answer_laws.csv`` states, on plans that hypothesis draws.

Every case is asked as a user asks it; each of its inputs is moved alone, and each declared
direction held.  ``HYPOTHESIS_PROFILE=deep`` draws many more, others each time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, example, given, reject, settings

from overhead import VOCABULARY
from overhead.answer_laws import AnswerLaw, answer_laws
from overhead.answer_laws import given as inputs_of_all
from overhead.law import power_of
from sweeps.errors import InputError
from tests.answers import Answers, Case, cases
from tests.tables import keyed

LAWS = answer_laws()
INPUTS = inputs_of_all()
MOST = settings.default.max_examples
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck))
PLAN = keyed(
    "tp=2.0 cp=1.0 pp=2.0 dp=8.0 ep=1.0 zero_stage=1.0 micro_batch_size=1.0 sequence_length=4096.0 "
    "sequence_parallel=1.0 virtual_pipeline_size=1.0 global_batch_size=64.0"
)


def real(plans: list[dict[str, float]], **fixed: object) -> Case:
    """Return a case of plans that differ from a usual one as said."""
    fixed = {"hardware": "dgx-h100", "schedule": "one_f_one_b", **fixed}
    return Case(tuple(fixed.items()), tuple(tuple((PLAN | plan).items()) for plan in plans))


# Adapters; mixers of both kinds; offload; experts over nodes; a power limit; chunks and MTP.
LORA = real([{}], model="llama3-8b", lora_rank=16)
HYBRID = real([{"ep": 8.0}, {"ep": 2.0, "zero_stage": 0.0}], model="qwen3-next-80b-a3b")
OFFLOAD = real([{"zero_stage": 3.0}], model="llama3-8b", offloaded_layers=2, optimizer_offload=0.5)
EXPERTS = real([{"ep": 8.0, "dp": 16.0, "global_batch_size": 128.0}], model="deepseek-v3")
LIMITED = real([{"cp": 2.0}, {"tp": 8.0, "dp": 1.0}], model="gpt3-175b", power_limit=400.0)
STAGED = real(
    [{"virtual_pipeline_size": 2.0}],
    model="llama3-8b",
    schedule="interleaved",
    staging_bandwidth=20e9,
    mtp_layers=1,
    ep_mechanism="chunked",
)
BARE = real(
    [{"sequence_parallel": 0.0, "zero_stage": 0.0, "dp": 512.0, "global_batch_size": 4096.0}],
    model="gpt3-175b",
    schedule="gpipe",
    software="none",
)
REAL = (LORA, HYBRID, OFFLOAD, EXPERTS, LIMITED, STAGED, BARE)


@lru_cache(maxsize=16)
def asked(case: Case) -> Answers:
    return Answers(case, LAWS, INPUTS)


def strays(values: Answers, law: AnswerLaw, quantity: str, name: str) -> str:
    """Return in what way an answer moves that its law excludes; empty where it holds."""
    change, moves = values.of(quantity, name, law.where)
    way = law.way(name)
    rises, falls = moves & (change > 0.0), moves & (change < 0.0)
    if way == "flat":
        return "moves" if moves.any() else ""
    if way == "free":
        return ""
    before = values.values[quantity][0]
    wrong = falls if way == "up" else rises
    if name in law.nearly:
        with np.errstate(invalid="ignore"):
            wrong = wrong & (abs(change) > law.nearly[name].most * abs(before))
        return f"strays from {way} by over {law.nearly[name].most:.0%}" if wrong.any() else ""
    if wrong.any():
        return f"does not only go {way}"
    power = power_of(law.law.moving[name])
    if power is not None:
        with np.errstate(all="ignore"):
            factor = np.stack(values.moved[name]) / values.base[name]
            unlike = abs((before + change) / (before * factor**power) - 1.0) > 1e-9
        if (unlike & np.isfinite(before) & (values.base[name] > 0.0)).any():
            return f"is not proportional to the power {power:g}"
    return ""


def told(case: Case, values: Answers, quantity: str, name: str, said: str) -> str:
    """Return what is wrong, and a command for each plan that shows it side by side."""
    change, moves = values.of(quantity, name, LAWS[quantity].where)
    lines = [f"{quantity} {said} with {name}"]
    for way, row in np.argwhere(moves)[:4]:
        at = [float(values.base[name][row]), float(values.moved[name][way][row])]
        lines.append(f"{change[way, row]:+.4g}: {case.command(quantity, row, name, at)}")
    return "\n".join(lines)


def check(case: Case) -> None:
    try:
        values = asked(case)
    except InputError:
        reject()  # no such question
    assume(np.isfinite(values.values["step_time"][0]).any())
    event(str(dict(case.fixed)["model"]))
    for quantity, law in LAWS.items():
        for name in values.moved:
            said = strays(values, law, quantity, name)
            assert not said, told(case, values, quantity, name, said)


@settings(QUIET, max_examples=max(MOST // 10, 1))
@given(case=cases())
def test_answers_have_the_laws_that_are_declared(case: Case) -> None:
    check(case)


@pytest.mark.thorough
@settings(QUIET, max_examples=4 * MOST)
@example(case=LORA)
@example(case=HYBRID)
@example(case=OFFLOAD)
@example(case=EXPERTS)
@example(case=LIMITED)
@example(case=STAGED)
@example(case=BARE)
@given(case=cases())
def test_answers_of_many_plans_have_the_laws_that_are_declared(case: Case) -> None:
    check(case)


@pytest.mark.thorough
def test_what_is_said_to_move_an_answer_does() -> None:
    """Of real cases some move each answer with each input with which it goes one way."""
    for quantity, law in LAWS.items():
        still = {*law.law.moving, *law.nearly}
        for case in REAL:
            values = asked(case)
            still -= {n for n in still & values.moved.keys() if values.of(quantity, n)[1].any()}
        assert not still, f"{quantity} never moves with {', '.join(sorted(still))}"


def test_rows_name_quantities() -> None:
    assert set(LAWS) <= set(VOCABULARY)
    assert set(INPUTS) <= set(VOCABULARY)
    assert len(LAWS) >= 30
    assert len(INPUTS) >= 60


def test_the_check_finds_a_law_that_does_not_hold() -> None:
    values = asked(real([{}], model="llama3-8b"))
    step, cost = LAWS["step_time"], LAWS["cost"]
    assert strays(values, step, "step_time", "global_batch_size") == ""
    assert strays(values, step, "tokens_per_second", "memory_bandwidth") != ""
    assert strays(values, step, "peak_memory", "global_batch_size") == ""
    assert strays(values, step, "step_time", "training_tokens") == ""
    assert strays(values, step, "cost", "training_tokens") == "moves"
    assert strays(values, cost, "cost", "gpu_hour_price") == ""
    shown = told(Case((("model", "m"),), ((("tp", 1.0),),)), values, "cost", "tp", "moves")
    assert "sweeps.sweep('cost'" in shown
