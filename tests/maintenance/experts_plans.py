"""Published plans beside the best of our search: ``python -m tests.maintenance.experts_plans``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sweeps.cli.option_table import options
from sweeps.cli.options import result_options
from sweeps.cli.typed import Command, folders_of
from sweeps.cli.validate_command import bound_of, chosen_cases, spec_of
from sweeps.cli.write import Output
from sweeps.errors import InputError
from sweeps.result import provenance_of
from sweeps.validate.run_table import PLANS, find_runs, read_rules, read_runs, shipped_rules
from sweeps.validate.scores import skipped_lines
from sweeps.validate.training_rows import PLAN, Skipped, cases_of_runs
from tests.maintenance.experts import (
    FIT_SHARE,
    NEAR,
    NEAR_SHARE,
    choice_lines,
    choice_of,
    choice_result,
    comparisons,
    explained,
    falls_short,
)


@click.command("experts_plans", cls=Command)
@click.argument("table", default=PLANS, metavar="[TABLE.csv]")
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Only these classes.")
@click.option("--source", "sources", multiple=True, metavar="SOURCE", help="Only these sources.")
@result_options
@click.option("--rules", metavar="FILE.toml", help="Own rules, after those that are shipped.")
@click.option("--bound", metavar="SHARE", help="Loss of a plan that --strict allows.")
@click.option("--strict", is_flag=True, help="Exit code 1 beyond --bound.")
@options("folders", "hardware_folder")
@click.option("--verbose", "-v", is_flag=True, help="Every plan, every reason for leaving out.")
def command(table: str, **given: Any) -> int:
    """Lay experts' plans beside the best of our search, and tell what they lose by our model.

    TABLE is a path, or the shipped one.  With --strict the exit code is 1 where fewer than 80 % of
    the plans lose at most --bound (3 % by default) of the best plan, or fewer than 98 % fit.
    """
    bound = bound_of(given, NEAR)
    out = Output(given, "experts-plans").checked()
    folders = folders_of(given)
    rules = (*shipped_rules(), *(read_rules(Path(given["rules"])) if given["rules"] else ()))
    runs = read_runs(find_runs(table)).runs
    cases = chosen_cases(cases_of_runs(runs, rules, folders, (PLAN,)), given)
    actual_comparisons = list(comparisons(cases.cases, folders))
    experts = explained(
        [
            actual_comparison
            for actual_comparison in actual_comparisons
            if not isinstance(actual_comparison, Skipped)
        ],
        bound,
    )
    skipped = [
        *cases.skipped,
        *(
            actual_comparison
            for actual_comparison in actual_comparisons
            if isinstance(actual_comparison, Skipped)
        ),
    ]
    if not experts:
        raise InputError([f"TABLE: {line.strip()}" for line in skipped_lines(skipped)])
    attrs = provenance_of(
        title="Plans that experts published, beside the best of our search",
        spec=spec_of((table,), {**given, "kind": "all"}),
        given=given,
        references="each row's source_ref says where its recipe stands",
        inputs=[expert.fields() for expert in experts],
        command=["python", "-m", "tests.maintenance.experts_plans", *sys.argv[1:]],
    )
    lines = [*choice_lines(experts, bound, every=given["verbose"]), ""]
    lines += [f"left out, {len(skipped)} rows:"] if skipped else []
    lines += skipped_lines(skipped, every=given["verbose"])
    whole, fine = choice_of(experts, bound), not falls_short(experts, bound)
    words = (
        f"{whole.near:.0%} of {whole.recipes} plans within {bound:.0%} of our best (aim "
        f"{NEAR_SHARE:.0%}), and {whole.fit:.0%} fit the memory (aim {FIT_SHARE:.0%})"
    )
    lines += ["", f"result: {words}" + ("" if fine else "; exit status 1 with --strict")]
    out.deliver(choice_result(experts, attrs), lines)
    return int(given["strict"] and not fine)


if __name__ == "__main__":
    try:
        sys.exit(command(standalone_mode=False))
    except InputError as error:
        sys.exit("\n".join(error.faults))
