"""What the catalogue has (``catalog``), the site (``docs``) and the schemas (``schema``)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from overhead.labels import LABELS
from overhead.model.order import NUMBERS
from overhead.quantity import VOCABULARY
from sweeps.bands import brief, in_powers_of_two, percent
from sweeps.cli.given import Given
from sweeps.cli.kept import keep
from sweeps.cli.option_table import options
from sweeps.cli.presets import preset_text
from sweeps.cli.sections import show_options, wrapped
from sweeps.cli.typed import OTHER_FOLDERS, Command, folders_of
from sweeps.errors import InputError, fault, nearest, needs
from sweeps.own_formulas import load_formulas
from sweeps.result import (
    BOUNDED_WORDS,
    SCHEMA_VERSION,
    UPPER_BOUNDS,
    Field,
    Result,
    of_rows,
    record_name,
)
from sweeps.spec.axis import label_values
from sweeps.spec.catalog import (
    framework_names,
    hardware_names,
    load_framework,
    load_hardware,
    load_model,
    model_names,
    presets_of,
    spec_names,
)
from sweeps.spec.fields import ORIGINS, Figure
from sweeps.spec.files import is_file, read_toml
from sweeps.spec.machine import Machine
from sweeps.spec.model import PATTERN, USUAL_LENGTH, Model, shape_value
from sweeps.spec.preset import Preset
from sweeps.spec.software import Profile, load_software
from sweeps.spec.units import format_quantity
from sweeps.wrapping import aligned, fitted, room

if TYPE_CHECKING:
    from sweeps.origin import Origin
    from sweeps.spec.framework import Framework
# Of more shapes three stand a line, where the terminal has room.
MANY_SHAPES = 20
# What is told of a model's parameters, and of one token's forward pass.
COUNTS = ("parameters", "active_parameters")
PARTS = ("mixer_parameters", "mlp_parameters", "moe_parameters", "embedding_parameters")
PASS = (
    "weight_flops_per_token",
    "logits_flops_per_token",
    "attention_flops_per_token",
    "causal_attention_flops_per_token",
    "forward_flops_per_token",
    "causal_forward_flops_per_token",
)


@click.command("catalog", cls=Command)
@click.argument("names", nargs=-1)
@options("catalog")
@show_options("catalog")
def command(names: tuple[str, ...], **given: Unpack[Given]) -> int:
    """List machines, models, frameworks, presets and libraries; with NAMES, what each has.

    A model's name may be Hugging Face's, or the path of a config.json.  A framework's options
    stand behind its name: torchtitan+eager.
    """
    machines = folders_of(given)
    models, frameworks = (folders_of(given, kind) for kind in OTHER_FOLDERS)
    # Names are read when they are looked at: those of presets are in every framework's file.
    released = cache(lambda: presets_of("", frameworks))
    kinds: Kinds = {
        "machines": (
            lambda: hardware_names(machines),
            lambda name: load_hardware(name, machines),
        ),
        "models": (lambda: model_names(models), lambda name: load_model(name, models)),
        "frameworks": (
            lambda: framework_names(frameworks),
            lambda name: load_framework(name, frameworks),
        ),
        "presets": (lambda: tuple(released()), lambda name: released()[name]),
        "libraries": (lambda: spec_names("software"), load_software),
    }
    whole = bool(given["show"])
    if not names:
        sys.stdout.writelines(fitted(_titles(kinds) if whole else _names(kinds)))
        keep(listed=lambda: _listed(kinds))
        return 0
    entries = [_load(name, kinds) for name in names]
    lines = [
        line for entry in entries for line in _lines_of(entry, given["seq_length"], whole=whole)
    ]
    if not whole and not all(isinstance(spec, Model) for spec in entries):
        lines.append("More: --show sources (every value with its kind and source)")
    sys.stdout.writelines(fitted(lines))
    return 0


Entry = Machine | Model | Profile | Preset | Any  # Any: a framework, whose module is loaded late
# What gives the names of a kind, and what loads one
Kinds = Mapping[str, tuple[Callable[[], Sequence[str]], Callable[[str], Entry]]]


def _title(entry: Entry) -> str:
    return entry.release if isinstance(entry, Preset) else str(entry.title)


def _listed(kinds: Kinds) -> Result:
    """Return what there is as rows."""
    rows = [
        {"kind": kind, "name": name, "title": _title(load(name))}
        for kind, (known, load) in kinds.items()
        for name in known()
    ]
    words = {"kind": "what it is", "name": "its name", "title": "its title"}
    fields = [Field(name, name, text) for name, text in words.items()]
    return of_rows(rows, fields, {"title": "Catalogue"})


def _names(kinds: Kinds) -> Iterator[str]:
    """Yield how many entries of each kind there are, and their names."""
    yield ", ".join(f"{len(known())} {kind}" for kind, (known, _) in kinds.items())
    for kind, (known, _) in kinds.items():
        yield ""
        yield from wrapped(f"{kind}: {' '.join(known())}")
    yield ""
    yield from wrapped(
        "A model can be a Hugging Face name (meta-llama/Llama-3.1-70B) or the path of its "
        "config.json"
    )
    yield "More: sweeps catalog NAME.., --show sources (all names with titles)"


def _titles(kinds: Kinds) -> Iterator[str]:
    """Yield every entry with its title."""
    for kind, (known, load) in kinds.items():
        yield kind
        width = max(map(len, known()), default=0)
        yield from (f"  {name.ljust(width)}  {_title(load(name))}" for name in known())
        yield ""


def _load(name: str, kinds: Kinds) -> Entry:
    """Load what is called so: a file is what its keys say, a name what has it."""
    base = name.partition("+")[0]
    if base.endswith(".toml") and is_file(base):
        content = read_toml(Path(base))
        if {"figures", "labels", "recipes", "plan", "options"} & set(content):
            return load_framework(name)
        if "library" in content:
            return load_software(name)
        return load_hardware(name) if {"scale_up", "like"} & set(content) else load_model(name)
    for kind, (known, load) in kinds.items():
        if name in (names := known()) or (kind == "frameworks" and base in names):
            return load(name)
    _, load_model_of = kinds["models"]
    if name.endswith(".json") or Path(name).name != name:
        return load_model_of(name)
    with suppress(InputError):  # It may be a model's release
        return load_model_of(name)
    every = {kind: known() for kind, (known, _) in kinds.items()}
    released = every.pop("presets")
    near = nearest(name, chain.from_iterable(every.values()), shown=0)
    near = nearest(name, released, shown=0) if near.startswith("known") else near
    listed = "sweeps catalog lists all names" if near.startswith("known") else near
    raise InputError(
        fault("name", name, "no such machine, model, framework, preset or library", listed)
    )


def _lines_of(entry: Entry, seq_length: str | None, *, whole: bool) -> Iterator[str]:
    """Yield what an entry has: without sources, or `whole`."""
    if isinstance(entry, Preset):
        yield from preset_text(entry, whole=whole)
        return
    yield f"{entry.name}  {entry.title}"
    if isinstance(entry, Model):
        yield from _model_lines(entry, seq_length)
        return
    yield f"  {entry.summary}"
    if isinstance(entry, Machine):
        yield from _machine_lines(entry, whole=whole)
    elif isinstance(entry, Profile):
        yield from _library_lines(entry, whole=whole)
    else:
        yield from _framework_lines(entry, whole=whole)


def _machine_lines(machine: Machine, *, whole: bool) -> Iterator[str]:
    yield from _figure_lines(machine.figures, whole=whole)
    for level, abilities in (
        ("node", machine.in_network),
        ("fabric", machine.scale_out_in_network),
    ):
        yield f"  in-network reduction in the {level} switch: {', '.join(abilities) or 'nothing'}"


def _framework_lines(framework: Framework, *, whole: bool) -> Iterator[str]:
    yield from _figure_lines(framework.figures, whole=whole)
    yield "  defaults of a plan"
    yield from _choice_lines(framework.choices, whole=whole)
    yield from _figure_lines(framework.plan, whole=whole)
    if framework.precisions:
        yield "  bytes per parameter, by precision"
        yield from _choice_lines(framework.precisions, whole=whole)
    if framework.options:
        yield f"  options, as in {framework.path.stem}+{next(iter(framework.options))}"
        if whole:
            width = max(map(len, framework.options))
            for name, option in framework.options.items():
                yield f"  {name.ljust(width)}  {option.summary}"
        else:
            yield from wrapped(", ".join(framework.options), "  ")
    if framework.presets:
        yield f"  presets of releases, as --preset {next(iter(framework.presets))}"
        yield from wrapped(", ".join(framework.presets), "  ")


def _library_lines(profile: Profile, *, whole: bool) -> Iterator[str]:
    for location, tables in (
        ("GPUs of generation {}", profile.nodes),
        ("network {} between nodes", profile.fabrics),
        ("everywhere", {"": profile.shared}),
        ("time of the host to issue an operation, by environment", {"": profile.environment}),
    ):
        filled = {name: figures for name, figures in tables.items() if figures}
        if not whole and len(filled) > 1:
            yield f"  {location.partition(' {}')[0]}"
            yield from _column_lines(filled)
            continue
        for name, figures in filled.items():
            yield f"  {location.format(name)}"
            yield from _figure_lines(figures, whole=whole, shares=True)


def _column_lines(tables: Mapping[str, Mapping[str, Figure]]) -> Iterator[str]:
    """Yield several tables of the same figures as one: the longer side down the screen."""
    figures = list(dict.fromkeys(name for table in tables.values() for name in table))
    cells = [["", *figures]]
    cells += [
        [table, *(_brief(name, known[name]) if name in known else "-" for name in figures)]
        for table, known in tables.items()
    ]
    yield from aligned([*zip(*cells, strict=True)] if len(figures) > len(tables) else cells)


def _brief(name: str, figure: Figure) -> str:
    return brief(figure.value, figure.units, binary=in_powers_of_two(name))


def _choice_lines(choices: Mapping[str, Origin], *, whole: bool) -> Iterator[str]:
    if not whole:
        yield from _pair_lines({name: str(choice.value) for name, choice in choices.items()})
        return
    width = max(map(len, choices), default=0)
    for name, choice in choices.items():
        yield f"  {name.ljust(width)}  {choice.value:<14} {choice.kind:<14} {choice.source}"


def _pair_lines(texts: Mapping[str, str], most: int = 2) -> Iterator[str]:
    """Yield values without their sources, as many a line as the terminal has room for."""
    items = list(texts.items())
    # A space less between names and values is better than a line more for each.
    for columns, gap in ((columns, gap) for columns in range(most, 0, -1) for gap in (2, 1)):
        count = max(-(-len(items) // columns), 1)
        parts = [_padded(items[at : at + count], gap) for at in range(0, len(items), count)]
        if sum(2 + len(part[0]) for part in parts) <= room():
            break
    for line in zip_longest(*parts, fillvalue=""):
        yield f"  {'  '.join(line)}".rstrip()


def _padded(items: Sequence[tuple[str, str]], gap: int) -> list[str]:
    wide, width = (max((len(item[k]) for item in items), default=0) for k in (0, 1))
    return [f"{name.ljust(wide + gap)}{text.ljust(width)}" for name, text in items]


def _figure_lines(
    figures: Mapping[str, Figure], *, whole: bool, shares: bool = False
) -> Iterator[str]:
    if not whole:
        yield from _pair_lines({name: _brief(name, stated) for name, stated in figures.items()})
        return
    width = max(map(len, figures), default=0)
    for quantity, figure in figures.items():
        shown = format_quantity(figure.value, figure.units, binary=in_powers_of_two(quantity))
        shown += f" ±{percent(figure.uncertainty)}" * (shares and figure.uncertainty > 0.0)
        line = f"  {quantity.ljust(width)}  {shown:<14} {figure.kind:<14} {figure.origin.source}"
        yield line.rstrip()


def _model_lines(model: Model, seq_length: str | None) -> Iterator[str]:
    trained = model.published("sequence_length")
    length = USUAL_LENGTH if trained is None else float(trained.value)
    if seq_length is not None:
        length = shape_value("sequence_length", seq_length, "seq_length")
    yield from (f"  {text}" for text in (model.summary, model.note) if text)
    if model.hugging_face:
        yield f"  Hugging Face: {', '.join(model.hugging_face)}"
    yield f"  shapes: {model.kind}, {model.source}"
    # What the file's own source doesn't cover says where it comes from; absent parts go unsaid.
    figures = {
        name: figure
        for name, figure in model.figures.items()
        if (name in model.stated and name not in NUMBERS) or name in {"kv_heads", "head_size"}
    }
    plain = {n: figure for n, figure in figures.items() if figure.source == model.source}
    shapes = {name: f"{figure.value:,.0f}" for name, figure in plain.items()}
    yield from _pair_lines(shapes, most=3 if len(shapes) > MANY_SHAPES else 2)
    rest = [name for name in figures if name not in plain]
    width = max(map(len, rest), default=0)
    for name in rest:
        origin = f"   {figures[name].kind}, {figures[name].source}"
        yield f"  {name.ljust(width)}  {figures[name].value:,.0f}{origin}"
    if model.pattern:
        yield f"  {PATTERN}  {model.pattern}"
    for source in dict.fromkeys(figure.source for figure in model.trained.values()):
        yield f"  its training: {source}"
    trained_values = {name: f"{figure.value:,.0f}" for name, figure in model.trained.items()}
    yield from _pair_lines(trained_values)
    if not model.labels:
        yield "  it is a number of parameters alone: no shapes, no FLOPs"
        return
    totals = {
        "parameters: total, active per token, and by part of a layer": ((*COUNTS, *PARTS), {}),
        f"forward FLOPs of one token in a sequence of {length:,.0f}": (
            PASS,
            {"sequence_length": length},
        ),
    }
    for title, (names, given) in totals.items():
        yield f"  {title}"
        values = {name: model.quantity(name, **given) for name in names}
        shown = {name: f"{value:,.0f}" for name, value in values.items() if value > 0.0}
        yield from _pair_lines(shown)


# ``sweeps docs``: all of this as a site, and the guide.


@click.command("docs", cls=Command)
@click.argument("folder", required=False, metavar="[FOLDER]")
@options("docs")
def docs_command(
    folder: str | None, with_jobs: bool, overwrite: bool, formulas: tuple[str, ...]
) -> int:
    """Write a site to read offline: the guide, and every command, key, formula and figure.

    With --jobs the guide shows the first screen of each job; without FOLDER it is printed as
    Markdown.
    """
    from sweeps.cli import COMMANDS, commands, run
    from sweeps.site.jobs import guide, read_jobs, run_job
    from sweeps.site.reference import Site
    from sweeps.site.write import write_site

    if not folder and not with_jobs:
        raise InputError(needs("a site", "a folder", "one to make, such as 'sweeps docs site'"))
    jobs = read_jobs()
    if with_jobs:
        jobs = tuple(run_job(job, run) for job in jobs)
    if not folder:
        sys.stdout.write(guide(jobs))
        return 0
    load_formulas(formulas)
    count = write_site(Site(commands, COMMANDS, jobs), Path(folder), overwrite=overwrite)
    sys.stdout.write(f"wrote {Path(folder) / 'index.html'} and {count - 1} files beside it\n")
    return 0


# ``sweeps schema``: what files and records hold, for editors and programs.

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}
WORDS: Schema = {"type": "array", "items": TEXT}


@click.command("schema", cls=Command)
@click.argument("what", type=click.Choice(["specs", "hardware", "models", "records"]))
def schema_command(what: str) -> int:
    """Print the JSON schema of WHAT: of TOML files as their tables, or of --json's records."""
    made = {
        "specs": _spec_schema,
        "hardware": _hardware_schema,
        "models": _model_schema,
        "records": _record_schema,
    }[what]
    whole = {"$schema": DIALECT, "title": f"sweeps: {what}", **made()}
    sys.stdout.write(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return 0


def _table(
    properties: Mapping[str, object], *, required: Sequence[str] = (), more: Any = False
) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": more,
    }


def _spec_schema() -> Schema:
    from sweeps.plots.schema import KINDS
    from sweeps.spec.reduction import KEYS, REDUCTIONS
    from sweeps.spec.sweep import SETTINGS_KEYS

    single = {"type": ["string", "number", "boolean"]}
    several = {"anyOf": [single, {"type": "array", "items": single}]}
    columns: Schema = {}
    for name, quantity in VOCABULARY.items():
        unit = "" if quantity.units == "1" else f" [{quantity.units}]"
        columns[name] = {"$ref": "#/$defs/values", "description": f"{quantity.meaning}{unit}"}
    for name, label in LABELS.items():
        known = ", ".join(label_values(name))
        words = f"{label.meaning}: {known}" if known else label.meaning
        columns[name] = {"$ref": "#/$defs/values", "description": words}
    named = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/values"},
        "propertyNames": {"enum": ["every", *columns]},
    }
    keys: Schema = {key: {} for key in KEYS}
    rows = {"type": "array", "items": _table({**keys, "operation": {"enum": list(REDUCTIONS)}})}
    figures = _table({"kind": {"enum": list(KINDS)}}, required=["kind"], more=True)
    kinds: Schema = {
        "title": TEXT,
        "summary": TEXT,
        "quantities": {"anyOf": [TEXT, WORDS]},
        "axes": _table(columns, more=named),
        "constants": named,
        "reductions": rows,
        "figures": {"type": "array", "items": figures},
        "measured": {"type": "object"},
        "asserts": {"type": "array", "items": _table({"that": TEXT}, required=["that"])},
    }
    schema = _table({name: kinds[name] for name in SETTINGS_KEYS})
    return {**schema, "$defs": {"values": several}}


def _figure(units: str, words: str = "") -> Schema:
    value = {"type": ["number", "string"], "description": f"{words} [{units}]".strip()}
    parts = {
        "value": value,
        "kind": {"enum": list(ORIGINS)},
        "source": TEXT,
        "uncertainty": {"type": ["number", "string"]},
        "date": TEXT,
    }
    return _table(parts, required=["value", "kind", "source"])


def _hardware_schema() -> Schema:
    from sweeps.spec.machine import CONSTANTS, ISSUE, KEYS, TABLES

    words: Schema = {"anyOf": [TEXT, WORDS, {"type": "number"}]}
    schemas = {section: _table({}) for section in (*TABLES, "software")}
    for table, entries in TABLES.items():
        for key, entry in entries.items():
            meaning = VOCABULARY[entry.quantity].meaning if entry.quantity in VOCABULARY else ""
            schemas[table]["properties"][key] = _figure(entry.units, meaning)
    for name in (*CONSTANTS, ISSUE):
        schemas["software"]["properties"][name] = _figure(VOCABULARY[name].units)
    for table in list(schemas):
        parent, dot, key = table.partition(".")
        if dot:
            schemas[parent]["properties"][key] = schemas.pop(table)
    for table, keys in KEYS.items():
        for key in keys if table else ():
            schemas[table]["properties"].setdefault(key, words)
    return _table({**dict.fromkeys((*KEYS[""], "like"), TEXT), **schemas})


def _model_schema() -> Schema:
    from sweeps.spec.model import FILE_SHAPES, KEYS, TRAINING_KEYS

    def value(name: str) -> Schema:
        plain = {"type": ["number", "boolean", "string"], "description": VOCABULARY[name].meaning}
        return {"anyOf": [plain, _figure(VOCABULARY[name].units)]}

    shapes = _table(
        {
            file_shape: TEXT if file_shape == PATTERN else value(file_shape)
            for file_shape in FILE_SHAPES
        }
    )
    others = {
        "name": TEXT,
        "title": TEXT,
        "summary": TEXT,
        "hugging_face": WORDS,
        "source": TEXT,
        "kind": {"enum": list(ORIGINS)},
        "shapes": shapes,
    }
    others["training"] = _table(
        {
            training_key: others.get(training_key) or value(training_key)
            for training_key in TRAINING_KEYS
        }
    )
    return _table({name: others.get(name) or value(name) for name in KEYS})


def _record_schema() -> Schema:
    known: Schema = {"schema_version": {"const": SCHEMA_VERSION}}
    for name, quantity in VOCABULARY.items():
        known[record_name(name, quantity.units)] = {
            "type": ["number", "null"],
            "description": quantity.meaning,
            "unit": quantity.units,
        }
    known[UPPER_BOUNDS] = {**TEXT, "description": BOUNDED_WORDS}
    # What a command calls by another name, and labels.
    more = {"type": ["number", "string", "boolean", "null", "array", "object"]}
    record = _table(known, required=["schema_version"], more=more)
    return {"anyOf": [{"type": "array", "items": record}, record]}
