"""What the report of ``sweeps plan`` says of experts: how they are split, against other ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sweeps.bands import change_by
from sweeps.search.answer import Answer
from sweeps.search.details import Detail, details
from sweeps.search.request import Execution
from sweeps.wrapping import prose, wrap


def bullets(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines as wrapped points of a list."""
    for line in lines:
        yield from wrap(line, prose(), initial_indent="  - ", subsequent_indent="    ")


def expert_lines(answer: Answer) -> Iterator[str]:
    """Yield what is to be known of experts: from the plans' own numbers."""
    plan = answer.main[0].plan
    if not plan.routed:
        return
    yield "experts"
    yield from bullets(list(_expert_words(answer)))
    yield ""


def _expert_words(answer: Answer) -> Iterator[str]:
    best = answer.main[0]
    plan = best.plan
    experts = plan["experts"] / plan["ep"]
    split = f", each split over {plan['etp']:g}" if plan["etp"] > 1.0 else ", each whole"
    yield (
        f"a GPU holds {experts:g} of {plan['experts']:g} experts{split}; a token goes to "
        f"{plan['experts_per_token']:g}"
    )
    yield from _instead(answer, best)


def _instead(answer: Answer, best: Detail) -> Iterator[str]:
    """Compare with other ways to split experts."""
    ways: tuple[tuple[str, Callable[[Execution], bool]], ...] = (
        ("without expert parallelism (ep 1)", lambda plan: plan["ep"] == 1.0),
        (
            "with tensor-parallel experts instead (ep 1, etp above 1)",
            lambda plan: plan["ep"] == 1.0 and plan["etp"] > 1.0,
        ),
        ("with both (ep and etp above 1)", lambda plan: plan["ep"] > 1.0 and plan["etp"] > 1.0),
    )
    keys: set[tuple[object, ...]] = {best.plan.key}
    for words, fits in ways:
        splits = [plan for plan in answer.search.splits if fits(plan)]
        if fits(best.plan) or (splits and splits[0].key in keys):
            continue
        if not splits:
            yield f"{words} nothing can run"
            continue
        keys.add(splits[0].key)
        (other,) = details(splits[:1], ("step_time",))
        slower = other["step_time"] / best["step_time"] - 1.0
        yield f"{words} the best is {change_by(slower)}: {other.plan.name}"
