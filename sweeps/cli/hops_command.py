"""``sweeps hops``: latency and energy over typed hops, per strategy and per message."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import click
import numpy as np

from overhead.hops import SWITCHING
from overhead.labels import NCCL
from sweeps.cli.given import Given, Hops, texts_of
from sweeps.cli.option_table import flags_in, options
from sweeps.cli.options import output_options
from sweeps.cli.sections import further_lines, show_options, wanted_sections
from sweeps.cli.typed import Command, folders_of
from sweeps.cli.write import Output
from sweeps.errors import Faults, fault, refuse, tell_all
from sweeps.hop_study.study import (
    TENSOR,
    WIRINGS,
    HopStudy,
    Scenario,
    from_machine,
    levels_of,
    of_both,
    on_machine,
    too_many_ranks,
)
from sweeps.hop_study.study_file import LAYERS, combination, find_study, read_study
from sweeps.hop_study.tables import bodies_of, charts_of, report_lines, result_of
from sweeps.spec.axis import label_values, names_of, numbers_of, typed
from sweeps.spec.catalog import load_hardware, load_model

DEFAULT = "llama3-8b-hops"
# Options that are lists of numbers, and of what.
QUANTITIES = {
    "sequence_length": "sequence_length",
    "data_parallel": "ranks",
    "tensor_parallel": "ranks",
    "message_bytes": "message_bytes",
}


# Figures of machines' links by the level that they are of.
LEVELS = {
    "intra": "inside nodes",
    "gpu_nic": "from GPU to network card",
    "inter": "between nodes",
}


@click.command("hops", cls=Command)
@options("hops")
@options("hop links")
@options("hop records")
@show_options("hops")
@output_options
def command(**given: Unpack[Hops]) -> int:
    """Latency and energy over typed hops, per strategy and per message.

    Data, tensor and pipeline parallelism, alone and combined, of one layer or all, over links of
    any number of types.  Without flags: Llama-3 8B as the hop-energy notebook computes it, and
    corrected.
    """
    stem = "hops" if given["spec"] is None else f"hops-{Path(given['spec']).stem}"
    out = Output(given, stem).checked()
    if given["message_bytes"] is not None and not (given["output"] or given["plot"]):
        wrong = "are sizes of curves, which files and figures have"
        allowed = "--output FILE.nc or --plot, too"
        refuse("--M", given["message_bytes"], wrong, allowed)
    study = _study(given)
    texts = texts_of(given, (*flags_in("hops"), *flags_in("hop links")))
    asked = {name: text for name, text in texts.items() if text is not None}
    # What can't be printed isn't written either.
    result = result_of(study, asked, given, messages=bool(given["messages"]))
    lines = [] if out.programs else list(_lines(study, wanted_sections(given, "hops")))
    out.deliver(result, lines, charts_of(study))
    return 0


def run_study(path: Path, given: Given) -> int:
    """Run a study's spec as ``sweeps run`` does a sweep: dataset, report and charts."""
    study = read_study(path, folders_of(given))
    if given["dry_run"]:
        sys.stdout.write(f"{study.title}: {len(study.cases)} cases\n")
        return 0
    out = Output(given, path.stem)
    out.wanted = True  # Also where no file is named
    result = result_of(study, {"spec": path.name}, given)
    out.deliver(result, _lines(study, ()), charts_of(study))
    return 0


def _lines(study: HopStudy, show: Sequence[str]) -> Iterator[str]:
    """Yield a study's report with the sections that are asked for."""
    yield from report_lines(study)
    yield from further_lines(show, bodies_of(study))


def _study(given: Hops) -> HopStudy:
    """Return the study that is asked for: the spec's, changed by flags."""
    folders = folders_of(given)
    study = read_study(find_study(given["spec"] or DEFAULT), folders)
    faults = Faults()
    changes: dict[str, Any] = {}
    if given["model"] is not None:
        changes["model"] = faults.of(load_model, given["model"])
    if given["model"] is not None or given["hardware"] is not None:
        changes["title"] = f"{given['model'] or study.model.name} on typed hops"
        changes["summary"] = ""
    flags, texts = flags_in("hops"), texts_of(given, flags_in("hops"))
    for option, quantity in QUANTITIES.items():
        if (text := texts[option]) is None:
            continue
        values = faults.of(numbers_of, quantity, text, flags[option])
        if values is not None:
            changes[option] = tuple(map(int, values)) if quantity == "ranks" else values
    for option in ("gradient_bytes", "activation_bytes"):
        name = option if texts[option] is not None else "element_bytes"
        if (text := texts[name]) is not None:
            changes[option] = faults.of(_number, "activation_bytes", text, flags[name])
    if given["layers"] is not None:
        if given["layers"] not in LAYERS:
            faults.add("--layers", given["layers"], "is unknown", " or ".join(LAYERS))
        changes["whole"] = given["layers"] == "all"
    if given["combined"] is not None:
        changes["combined"] = faults.of(_combined, given["combined"]) or ()
    cases = faults.of(_cases, study, given, folders)
    faults.tell()
    assert cases is not None
    changed = replace(study, **changes, cases=cases)
    _check_ranks(changed, given)
    return changed


def _number(quantity: str, text: str, flag: str) -> float:
    """Read one number of a quantity."""
    values = numbers_of(quantity, text, flag)
    if len(values) > 1:
        refuse(flag, text, "has several values", "give one")
    return float(values[0])


def _combined(text: str) -> tuple[tuple[int, int], ...]:
    combinations = tuple(
        combined for part in text.split(",") if (combined := combination(part)) is not None
    )
    if len(combinations) < len(text.split(",")):
        refuse("--combined", text, "is no combination", "such as tp8-dp2,tp4-dp4")
    return combinations


def _cases(study: HopStudy, given: Given, folders: list[Path]) -> tuple[Scenario, ...]:
    """Return the study's cases, or one for each machine and switching that is given."""
    cases = study.cases
    if given["hardware"] is not None or given["model"] is not None:
        plain = [case.where for case in cases]
        names = given["hardware"].split(",") if given["hardware"] else list(dict.fromkeys(plain))
        cases = tuple(
            Scenario(
                name,
                *from_machine(load_hardware(name, folders)),
                name,
                # As fabrics pass messages on, and as 'collective' has it.
                switching="cut_through",
                algorithm=NCCL,
                machine=True,
                folders=tuple(folders),
            )
            for name in map(str.strip, names)
        )
    changed: dict[str, object] = {}
    if given["wiring"] is not None:
        (changed["wiring"],) = names_of(given["wiring"], WIRINGS, "--wiring")[:1]
        # What a case calls its links is of the wiring that it has.
        changed["link_names"] = ()
    texts = texts_of(given, flags_in("hop links"))
    links = {
        name: (flag, text)
        for name, flag in flags_in("hop links").items()
        if (text := texts[name]) is not None
    }
    if links:
        changed["given"] = {name: _number(name, text, flag) for name, (flag, text) in links.items()}
    if changed:
        flag, text = next(iter(links.values()), ("--wiring", str(given["wiring"])))
        _refuse_own_networks(cases, flag, text, "has its links in its file")
        cases = tuple(on_machine(case, **changed) for case in cases)
        _check_levels(cases, links)
    if given["tensor"] is not None:
        (tensor,) = names_of(given["tensor"], TENSOR, "--tensor")[:1]
        cases = tuple(replace(case, tensor=tensor) for case in cases)
    for field, known in (("algorithm", label_values("algorithm")), ("switching", SWITCHING)):
        if (text := texts_of(given, (field,))[field]) is None:
            continue
        ways = names_of(text, known, f"--{field}")
        if field == "algorithm":
            _refuse_own_networks(cases, "--algorithm", text, "runs one ring")
        cases = tuple(case for scenario in cases for case in _each(scenario, field, ways))
    return cases


def _each(case: Scenario, field: str, ways: Sequence[str]) -> Iterator[Scenario]:
    """Yield a case with each of several ways, which its name tells apart."""
    for way in ways:
        name = f"{case.name}, {way}" if len(ways) > 1 else case.name
        change: dict[str, Any] = {field: way}
        yield replace(case, name=name, **change)


def _refuse_own_networks(cases: Sequence[Scenario], flag: str, text: str, why: str) -> None:
    """Refuse what is a machine's of cases that are networks of their own."""
    names = [case.name for case in cases if not case.machine]
    if names:
        wrong = f"'{names[0]}' is a network of its own, which {why}"
        refuse(flag, text, wrong, "--hardware, or a study of machines")


def _check_levels(cases: Sequence[Scenario], links: Mapping[str, tuple[str, str]]) -> None:
    """Refuse a figure of links that no case has."""
    lines = []
    for name, (flag, text) in links.items():
        level = next(level for level in LEVELS if name.startswith(f"{level}_"))
        known = [load_hardware(case.where, case.folders).figures for case in cases]
        there = any(
            f"{level}_bandwidth" in constants or f"{level}_bandwidth" in links
            for constants in known
        )
        if level == "gpu_nic":
            there = there and any(case.wiring == "rails" for case in cases)
        if not there:
            wrong = f"there is no link {LEVELS[level]}"
            allowed = "a machine that has it" + (", --wiring rails" if level == "gpu_nic" else "")
            lines.append(fault(flag, text, wrong, allowed))
    tell_all(lines)


MOST_RANKS = 2**20


def _check_ranks(study: HopStudy, given: Hops) -> None:
    """Refuse more ranks, or more levels, than a network has."""
    lines: list[str] = []
    each: dict[str, list[tuple[object, int]]] = {}
    for flag, values, text in (
        ("--dp", study.data_parallel, given["data_parallel"]),
        ("--tp", study.tensor_parallel, given["tensor_parallel"]),
    ):
        numbers = np.array(values, dtype=np.float64)
        shown = [f"{n:.15g}" if text is None else typed(text, numbers, n, "1") for n in numbers]
        each[flag] = [*zip(shown, values, strict=True)]
        lines += [
            fault(flag, told, "each rank's way is looked at", f"at most {MOST_RANKS:,}")
            for told, ranks in each[flag]
            if ranks > MOST_RANKS
        ]
    both = {"--combined": of_both(study.combined)}
    lines += [fault(*wrong) for part in (each, both) for wrong in too_many_ranks(study.cases, part)]
    lines += [
        fault("pipeline", level, f"'{case.name}' has no such level", "a network with more levels")
        for case in study.cases
        for level in study.pipeline.values()
        if level >= levels_of(case.network)
    ]
    tell_all(lines)
