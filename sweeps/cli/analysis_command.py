"""``sweeps analysis``: a report or a table; ``sweeps page``: the same, or a file, to touch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, Unpack

import click

from overhead.completion import TENSORS
from overhead.labels import HIERARCHY, LABELS
from sweeps.asked import command_line
from sweeps.cli import flags
from sweeps.cli.from_file import from_option, reading_lines
from sweeps.cli.given import Given, texts_of
from sweeps.cli.kept import keep
from sweeps.cli.option_table import options
from sweeps.cli.options import (
    default_lines,
    file_options,
    output_options,
    show_sensitivity,
    sweep_of_options,
)
from sweeps.cli.room import first_notes
from sweeps.cli.sections import show_options, wanted_sections
from sweeps.cli.tables import as_table
from sweeps.cli.typed import flag_of, folders_of
from sweeps.cli.write import Output
from sweeps.errors import InputError, fault, needs, refuse, tell_all
from sweeps.idle import check_taken
from sweeps.job import Job
from sweeps.result import Result
from sweeps.spec.keywords import Stated
from sweeps.spec.units import counts_tokens

if TYPE_CHECKING:
    from sweeps.pages.write import Page
# Options of ``sweeps analysis``, and the sweep of training steps that they state.

Command = TypeVar("Command", bound=Callable[..., Any])

# Innermost first; Megatron-LM leaves out experts, or names them where they cut the same ranks.
RANK_ORDERS = ("tp-cp-dp-pp", "tp-cp-ep-dp-pp")
# What says all of a model, with the MLP's inner size.
SHAPES = (*TENSORS, "gated_mlp", "tied_embeddings")


def analysis_options(command: Command) -> Command:
    """Add the options that state a sweep of training steps."""
    of_plan = flags.options(*flags.OF_TRAINING)
    return from_option(of_plan(options("training")(command)))


def analysis_of_options(given: Given) -> tuple[Stated, tuple[str, ...]]:
    """Make of the command's options what a spec file would state, and say how tokens are read."""
    options = flags.given_options(given, flags.OF_TRAINING)
    batch, name = given["batch_size"], flag_of("global_batch_size")
    lines: list[str] = []
    if counts_tokens(batch):
        if options["global_batch_size"] is not None:
            wrong = f"is tokens of a step; {name} {options['global_batch_size']} stands beside"
            refuse("--batch-size", batch, wrong, "one of the two")
        options["global_batch_size"], batch, name = batch, None, "--batch-size"
    elif batch is not None:
        other = "for the global batch use --global-batch-size"
        lines.append(f"--batch-size {batch} is read as the micro-batch size; {other}")
    for quantity, unit in (("parameters", "billions"), ("memory_capacity", "GB")):
        if (text := options[quantity]) is not None:
            options[quantity] = flags.scaled(flag_of(quantity), text, unit, lines)
    readings = (*reading_lines(), *lines, *flags.in_tokens(options, name))
    faults = _batch(options, batch)
    if given["rank_order"] not in (None, *RANK_ORDERS):
        usual = f"{RANK_ORDERS[0]}, Megatron-LM's default"
        faults.append(fault("--rank-order", given["rank_order"], "isn't modelled", usual))
    tell_all([*faults, *_model(options)])
    if given["tree_algo"]:
        algorithm = flags.tree_algorithm(options["topology"], options["algorithm"], HIERARCHY)
        options["algorithm"] = algorithm
    return sweep_of_options(options, "Training steps"), readings


def _batch(options: dict[str, str | None], batch: str | None) -> list[str]:
    """Give the micro-batch under its other name, too."""
    if batch is None:
        return []
    if options["micro_batch_size"] not in (None, batch):
        given = f"{flag_of('micro_batch_size')} {options['micro_batch_size']}"
        wrong = f"{given} is the same, and another value"
        return [fault("--batch-size", batch, wrong, "one of the two")]
    options["micro_batch_size"] = batch
    return []


def _model(options: Mapping[str, object]) -> list[str]:
    """Check that there is a model, and one alone."""
    if options["model"] is not None:
        if options["parameters"] is None:
            return []
        wrong = "can't be given with --model, whose shapes give it"
        return [fault(flag_of("parameters"), options["parameters"], wrong, "one of the two")]
    inner = "ffn_size" if options["expert_ffn_size"] is None else "expert_ffn_size"
    needed = [name for name in (*SHAPES, inner) if options[name] is None]
    if options["parameters"] is not None or not needed:
        return []
    shapes = "or shapes" if len(needed) > len(SHAPES) else "or the other shapes"
    lacking = ", ".join(map(flag_of, needed))
    allowed = f"--model NAME, --parameters 70e9, {shapes}: {lacking}"
    return [needs("an analysis", "a model", allowed)]


@click.command(flags.TRAINING, cls=flags.SweepCommand)
@analysis_options
@options("analysis")
@show_options("analysis")
@options("analysis answer")
@output_options
def command(**given: Unpack[Given]) -> int:
    """Memory, communication and step time of a training configuration.

    One value for every argument prints a report; several print a table.  --timeline writes when
    what of one plan's step runs (FILE.et: Chakra traces, one a rank, for simulators); with
    --plot, a figure of it beside.
    """
    show = wanted_sections(given, "analysis")
    from sweeps.cli.analysis_job import analysis_job
    from sweeps.cli.analysis_timeline import timeline_of, write_timeline
    from sweeps.own_formulas import load_formulas

    load_formulas(given["formulas"])
    spec, readings = analysis_of_options(given)
    job = analysis_job(
        spec, command=command_line(), folders=folders_of(given), options=file_options(given)
    )
    check_taken(job, flags.typed_options(given, flags.OF_TRAINING), folders_of(given))
    if given["sensitivity"] is not None:
        if given["timeline"]:
            wrong = "can't be given with --sensitivity"
            refuse("--timeline", given["timeline"], wrong, "one of the two")
        show_sensitivity(job, given, "analysis", str(given["sensitivity"]))
        return 0
    # Where there is no timeline, nothing is written either.
    step = timeline_of(job) if given["timeline"] else None
    drawn = given["plot"] and (step is None or bool(given["output"]))
    out = Output({**given, "plot": drawn}, "analysis")
    out.evaluate(job, lambda evaluated: _lines(job, evaluated, readings, show))
    if step is not None:
        write_timeline(job, step, given)
    return 0


def _lines(job: Job, result: Result, readings: Sequence[str], show: Sequence[str]) -> Iterator[str]:
    """Yield what people read: a report of one configuration, a table of many."""
    from sweeps.cli.analysis_report import report, table_notes

    notes = first_notes(readings, "defaults")
    if result.cells == 1:
        yield from report(job, show, notes)
        return
    yield from as_table(result, training=True, notes=notes)
    yield ""
    yield from table_notes(job, result, show)


@click.command("page", cls=flags.SweepCommand)
@click.argument("file", metavar="[FILE.nc]", required=False)
@analysis_options
@options("folders", "hardware_folder")
@options("page")
def page_command(file: str | None, **given: Unpack[Given]) -> int:
    """Write one page: a file to open, to touch and to pass on.

    It needs no server and no network.  Of a stored sweep it has a control for every dimension,
    the best cell within limits that its reader sets, each number with its reasons and source.
    Of a plan (--model, --hardware, --gpus ..) it is a calculator that follows every slider.
    """
    texts = {name: text for name, text in texts_of(given, flags.OF_TRAINING).items() if text}
    if file is None:
        write_live(given)
        return 0
    if texts:
        wrong = f"a page of {file} has its own values"
        raise InputError([fault(flag_of(n), t, wrong, "one of the two") for n, t in texts.items()])
    path = Path(file)
    output = Path(given["output"] or f"{path}".removesuffix(path.suffix) + ".html")
    write_stored(path, output, given, overwrite=given["overwrite"])
    return 0


def write_live(given: Given) -> None:
    """Write the page of one plan, and say so."""
    from sweeps.pages.live import page_of

    if not any(given[name] for name in ("model", "parameters", "layers")):
        raise InputError(needs("a page", "what it is of", "FILE.nc, or --model NAME"))
    spec, readings = analysis_of_options(given)
    options = flags.given_options(given, flags.OF_TRAINING)
    names = [options["model"] or "model", options["hardware"] or LABELS["hardware"].default]
    output = Path(given["output"] or f"{'-'.join(Path(name).stem for name in names)}.html")
    _check(output, overwrite=given["overwrite"])
    page = page_of(
        spec,
        options,
        flag_of,
        default_lines,
        command=command_line(),
        folders=folders_of(given),
    )
    _check_page(spec, options, folders_of(given))
    sys.stdout.writelines(f"({line})\n" for line in readings)
    _write(page, output, overwrite=given["overwrite"])


# A split whose every dimension takes part, as a reader of a page may make one.
SPLIT = {"tp": 2, "cp": 2, "pp": 2, "dp": 2, "zero_stage": 3}


def _check_page(spec: Stated, options: Mapping[str, str | None], folders: Sequence[Path]) -> None:
    """Refuse what no plan of a page takes: neither the one given nor one that is split."""
    from sweeps.cli.analysis_job import analysis_job

    job = analysis_job(spec, folders=folders)
    experts = job.resolved.constants.get("experts", 0.0) > 0.0
    constants = {**spec["constants"], **SPLIT, **({"ep": 2} if experts else {})}
    others = {name: value for name, value in constants.items() if name != "world_size"}
    try:
        split = analysis_job({**spec, "constants": others}, folders=folders)
    except InputError:
        return  # what is given keeps it from being split: its own faults are told elsewhere
    check_taken(job, options, folders, (split,))


def _check(output: Path, *, overwrite: bool) -> None:
    from sweeps.store.publish import check_output

    if output.suffix not in (".html", ".htm"):
        refuse("--output", str(output), "is no page", "FILE.html")
    check_output(output, overwrite=overwrite)


def _write(page: Page, output: Path, *, overwrite: bool, notes: TextIO | None = None) -> None:
    from sweeps.pages.write import write_page
    from sweeps.store.publish import readable

    keep(path=output)
    written = write_page(page, output, overwrite=overwrite)
    (notes or sys.stdout).write(f"wrote {output} ({readable(written)})\n")


def write_stored(
    source: Path,
    output: Path,
    given: Given,
    *,
    overwrite: bool,
    notes: TextIO | None = None,
) -> None:
    """Write the page of a stored sweep, and say so."""
    from sweeps.cli.files import figures_of
    from sweeps.pages.pack import page_of
    from sweeps.store.netcdf import open_dataset

    pairs = [text.partition("=") for text in given.get("held", ())]
    wrong = [
        fault("--at", dim, "has no value", "--at DIMENSION=VALUE") for dim, _, v in pairs if not v
    ]
    tell_all(wrong)
    _check(output, overwrite=overwrite)
    with open_dataset(source, require_ours=False) as dataset:
        page = page_of(
            dataset,
            figures_of(dataset),
            source.name,
            at={dim: value for dim, _, value in pairs},
            quantities=given.get("quantities", ()),
        )
    _write(page, output, overwrite=overwrite, notes=notes)
