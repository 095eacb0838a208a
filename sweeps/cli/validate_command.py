"""``sweeps validate``: predictions beside published measurements."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sweeps.validate.scores import Record
    from sweeps.validate.training_rows import Cases, Skipped

KINDS = {"step-time": ("step_time",), "memory": ("memory",), "all": ("step_time", "memory")}
WORDS = {"step_time": "time of a step", "memory": "memory of a GPU"}


@click.command("validate")
@click.argument("tables", nargs=-1, metavar="[TABLE.csv]...")
@click.option("--kind", type=click.Choice([*KINDS]), default="all", help="What to compare.")
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Only these classes.")
@click.option("--source", "sources", multiple=True, metavar="SOURCE", help="Only these sources.")
@click.option("--csv", "as_csv", is_flag=True, help="One record a row, as CSV.")
@click.option("--json", "as_json", is_flag=True, help="One record a row, as JSON.")
@click.option("--output", metavar="FILE", help="Write the rows: FILE.csv, or FILE.nc as netCDF.")
@click.option("--overwrite", is_flag=True, help="Replace an output that exists.")
@click.option("--plot", is_flag=True, help="Draw predicted against measured beside the output.")
@click.option("--rules", metavar="FILE.toml", help="Own rules, after those that are shipped.")
@click.option("--hardware-folder", multiple=True, metavar="FOLDER", help="Own machines.")
@click.option("--verbose", "-v", is_flag=True, help="Every reason why rows are left out.")
def command(tables: tuple[str, ...], **given: Any) -> int:
    """Lay predictions beside published measurements of training runs, and tell the errors.

    TABLE is a path, or the name of a table that is shipped: training, memory (both by default),
    nccl-collectives.
    """
    from sweeps.validate.run_table import TABLES

    if any(_is_of_collectives(table) for table in tables):
        return _collectives(tables, given)
    records, skipped = _compared(tables or TABLES, given)
    notes = sys.stderr if given["as_csv"] or given["as_json"] else sys.stdout
    if given["as_csv"] or given["as_json"]:
        sys.stdout.writelines(as_json(records) if given["as_json"] else as_csv(records))
    else:
        sys.stdout.writelines(line + "\n" for line in report(records, skipped, given["verbose"]))
    if given["output"]:
        _write(Path(given["output"]), records, overwrite=given["overwrite"])
        notes.write(f"wrote {given['output']}\n")
    if given["plot"]:
        stem = Path(given["output"] or _default_stem()).with_suffix("")
        for made in _draw(records, stem):
            notes.write(f"drew {made}\n")
    return 0


def _compared(
    tables: Sequence[str], given: Mapping[str, Any]
) -> tuple[list[Record], list[Skipped]]:
    """Read the tables, predict, and keep what is asked for."""
    from sweeps.errors import InputError, fault
    from sweeps.validate.predict import predict
    from sweeps.validate.run_table import find_runs, read_rules, read_runs, shipped_rules
    from sweeps.validate.scores import records_of
    from sweeps.validate.training_rows import cases_of_runs

    folders = [Path(folder) for folder in given["hardware_folder"]]
    runs = [run for name in tables for run in read_runs(find_runs(name)).runs]
    rules = shipped_rules()
    if given["rules"]:
        rules = (*rules, *read_rules(Path(given["rules"])))
    cases = _chosen(cases_of_runs(runs, rules, folders, KINDS[given["kind"]]), given)
    records, skipped = records_of(cases, predict(cases.cases, folders))
    if not records:
        from sweeps.validate.scores import skipped_lines

        reasons = [line.strip() for line in skipped_lines(skipped)] or ["the table has none"]
        wrong = "no row can be predicted"
        raise InputError([fault("TABLE", ", ".join(tables), wrong, one) for one in reasons])
    return records, skipped


def _chosen(cases: Cases, given: Mapping[str, Any]) -> Cases:
    """Keep the classes and sources that are asked for."""
    from sweeps.errors import InputError, fault, nearest
    from sweeps.validate.training_rows import Cases

    classes = dict.fromkeys(case.group for case in cases.cases)
    sources = dict.fromkeys(case.source for case in cases.cases)
    sources |= dict.fromkeys(one.source for one in cases.skipped)
    faults = [
        fault(flag, name, "no row has it", nearest(name, known, shown=40))
        for flag, wanted, known in (
            ("--class", given["classes"], classes),
            ("--source", given["sources"], sources),
        )
        for name in wanted
        if name not in known
    ]
    if faults:
        raise InputError(faults)
    kept = [case for case in cases.cases if case.group in (given["classes"] or classes)]
    wanted = given["sources"] or sources
    return Cases(
        tuple(case for case in kept if case.source in wanted),
        tuple(one for one in cases.skipped if one.source in wanted and not given["classes"]),
    )


def report(records: Sequence[Record], skipped: Sequence[Skipped], verbose: bool) -> Iterator[str]:
    """Yield what is told to people: errors by class and source, what was assumed and left out."""
    from collections import Counter

    from sweeps.validate.scores import score, score_lines, scores_by, skipped_lines
    from sweeps.validate.training_rows import FORMULAS

    for kind, words in WORDS.items():
        own = [record for record in records if record.case.kind == kind]
        if not own:
            continue
        for by, heading in (("class", "class"), ("source", "source")):
            yield f"{words}, predicted beside measured, by {by}:"
            scores = {key[0]: one for key, one in sorted(scores_by(own, (by,)).items())}
            measured = [record for record in own if record.case.group != FORMULAS]
            if measured and len(scores) > 1:
                scores["all measured"] = score(measured)
            yield from score_lines(heading, scores)
            yield ""
    counts = Counter(name for record in records for name in record.case.assumed)
    if counts:
        told = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
        yield f"assumed where rows don't say it (rows): {told}"
    if skipped:
        yield f"left out, {len(skipped)} rows:"
        yield from skipped_lines(skipped, every=verbose)


def as_csv(records: Sequence[Record]) -> Iterator[str]:
    """Yield records as CSV; what doesn't exist is empty."""
    for place, record in enumerate(records):
        fields = record.fields()
        if place == 0:
            yield _line(list(fields))
        yield _line([_plain(value) for value in fields.values()])


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return str(value)


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


def as_json(records: Sequence[Record]) -> Iterator[str]:
    """Yield records as a JSON array, one a line; what doesn't exist is null."""
    for place, record in enumerate(records):
        fields = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in record.fields().items()
        }
        yield ("[\n" if place == 0 else ",\n") + json.dumps(fields)
    yield "\n]\n"


# Files.


def _default_stem() -> Path:
    from sweeps.cli.write import default_folder

    return default_folder() / "validate"


def _write(path: Path, records: Sequence[Record], *, overwrite: bool) -> None:
    from sweeps.errors import InputError, RunError, fault
    from sweeps.store.publish import check_output

    if path.suffix == ".nc":
        _write_dataset(path, records, overwrite=overwrite)
        return
    if path.suffix != ".csv":
        raise InputError(fault("--output", str(path), "no such format", "FILE.csv or FILE.nc"))
    target = check_output(path, overwrite=overwrite)
    try:
        target.write_text("".join(as_csv(records)), encoding="utf-8")
    except OSError as error:
        message = f"{path}: can't be written: {error.strerror}"
        raise RunError(message) from error


def _write_dataset(path: Path, records: Sequence[Record], *, overwrite: bool) -> None:
    from sweeps.store.metadata import code_digest, fingerprint, provenance
    from sweeps.store.write import write
    from sweeps.validate.scores import layout_of_rows

    text = "".join(as_csv(records))
    sources = dict.fromkeys(record.case.source for record in records)
    attrs = provenance(
        title="Training runs: predicted and measured",
        spec_text="",
        command=["sweeps", *sys.argv[1:]],
        fingerprint=fingerprint(text, code_digest()),
        references=f"{', '.join(sources)}: each row's source_ref says where it stands",
    )
    layout, blocks = layout_of_rows(records, attrs)
    write(path, layout, blocks, overwrite=overwrite)


def _draw(records: Sequence[Record], stem: Path) -> list[Path]:
    """Draw a figure for each kind of what was measured."""
    import numpy as np

    from overhead.quantity import VOCABULARY
    from sweeps.plots.measured import Cloud, draw_predicted
    from sweeps.validate.training_rows import FORMULAS

    made = []
    for kind, words in WORDS.items():
        own = [one for one in records if one.case.kind == kind and one.case.group != FORMULAS]
        if not own:
            continue
        units = VOCABULARY[own[0].case.quantity].units
        cloud = Cloud(
            {"long_name": words, "units": units},
            [record.case.group for record in own],
            np.array([record.case.measured for record in own]),
            np.array([record.predicted for record in own]),
        )
        title = f"{words[0].upper()}{words[1:]}: predicted and measured"
        place = stem.with_name(f"{stem.name}-{kind.replace('_', '-')}")
        made += draw_predicted(cloud, place, title=title)
    return made


# Operations rather than steps: the tables that a sweep's [measured] takes.


def _is_of_collectives(name: str) -> bool:
    from sweeps.validate.table import find_table

    path = Path(name)
    if not path.is_file():
        from sweeps.errors import InputError

        try:
            path = find_table(name)
        except InputError:
            return False
    try:
        with path.open(encoding="utf-8-sig") as file:
            heading = next((line for line in file if not line.startswith("#")), "")
    except (OSError, UnicodeDecodeError):
        return False
    return "message_bytes" in heading and "collective" in heading


def _collectives(tables: Sequence[str], given: Mapping[str, Any]) -> int:
    """Tell the errors of tables of collective operations, by table and size of message."""
    from sweeps.errors import InputError, fault
    from sweeps.job import prepare
    from sweeps.validate.scores import error_lines, error_rows

    unusable = [name for name in ("output", "plot", "classes", "sources") if given[name]]
    if unusable or len(tables) > 1:
        wrong = "a table of operations alone is told, one at a time"
        allowed = "for files and figures use a spec with [measured]: 'sweeps run nccl-measured'"
        raise InputError(fault("TABLE", ", ".join(tables), wrong, allowed))
    stated = {"constants": {"algorithm": "nccl"}, "measured": {"table": tables[0]}}
    if tables[0] == "nccl-collectives":
        from sweeps.spec.catalog import find_sweep, read_toml

        stated["measured"] = read_toml(find_sweep("nccl-measured"))["measured"]
    folders = [Path(folder) for folder in given["hardware_folder"]]
    found = prepare(stated, command=["sweeps", *sys.argv[1:]], folders=folders).dataset()
    rows = error_rows(found)
    if given["as_json"]:
        sys.stdout.write(json.dumps(rows).replace("NaN", "null") + "\n")
    elif given["as_csv"]:
        sys.stdout.write(_line(list(rows[0])))
        sys.stdout.writelines(_line([_plain(value) for value in row.values()]) for row in rows)
    else:
        sys.stdout.writelines(line + "\n" for line in error_lines(rows))
    return 0
