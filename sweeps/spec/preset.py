"""Recipe presets: what the recipes of a release set, by model, machine and precision."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Any

from overhead.frozen import frozen
from overhead.labels import LABELS
from overhead.memory.quantities import MODULES
from overhead.plan import BATCHES, DEGREES
from overhead.quantity import VOCABULARY
from sweeps.errors import nearest
from sweeps.spec.fields import FigureReader, declared_keys

PRESET_KEYS, RULE_KEYS, CONDITIONS = declared_keys("preset").values()
RECOMPUTE = "recompute"
# What says itself which bytes states have.
RECIPE, BYTES = "recipe", ("weight_bytes", "gradient_bytes", "optimizer_bytes")
# Parallel degrees and batches are a plan's.
OF_PLANS = frozenset((*DEGREES, *BATCHES, "world_size", "virtual_pipeline_size", "layers"))


@frozen(slots=True)
class Run:
    """What a preset's rules look at."""

    model: str = ""  # Its name in the catalogue; empty where shapes alone are given
    experts: bool = False
    machine: str = ""  # Its name
    generation: str = ""  # Of its GPUs
    precision: str = ""


@frozen(slots=True)
class Rule:
    """What a release sets where some conditions hold."""

    when: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # Options of the framework that are on
    without: tuple[str, ...] = ()  # Those of rules before that are off
    labels: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    # The kind of recomputation, or the modules of the selective one; None where nothing is said
    recompute: str | tuple[str, ...] | None = None

    def holds(self, run: Run) -> bool:
        """Return whether a run fulfils the conditions."""
        if "experts" in self.when and bool(self.when["experts"]) != run.experts:
            return False
        known = {
            "model": _beginnings(run.model),
            "hardware": {*run.machine.split("-"), run.generation},
            "precision": {run.precision},
        }
        return all(known[name] & {*self.when[name]} for name in known if name in self.when)


def _beginnings(model: str) -> set[str]:
    """Return the names of families that a model may be of: its words from the first on."""
    words = model.split("-")
    return {"-".join(words[:count]) for count in range(1, len(words) + 1)}


@frozen(slots=True)
class Taken:
    """What a preset sets in a run."""

    options: tuple[str, ...]
    labels: Mapping[str, str]
    numbers: Mapping[str, float]
    modules: Mapping[str, float]  # Which modules are recomputed, by quantity


@frozen(slots=True)
class Preset:
    """What the recipes of a release of a framework set; no parallel degrees."""

    name: str
    framework: str  # The framework whose release it is
    release: str
    source: str  # Where in the release's files
    rules: tuple[Rule, ...]  # Later ones win

    @property
    def words(self) -> str:
        """Where what it sets comes from."""
        return f"preset {self.name}: {self.release}; {self.source}"

    def taken(self, run: Run) -> Taken:
        """Return what it sets in a run."""
        options: dict[str, None] = {}
        labels: dict[str, str] = {}
        numbers: dict[str, float] = {}
        recompute: str | tuple[str, ...] | None = None
        for rule in self.rules:
            if not rule.holds(run):
                continue
            gone = {*rule.without, *rule.options}
            kept = dict.fromkeys(name for name in options if name not in gone)
            options = kept | dict.fromkeys(rule.options)
            labels |= rule.labels
            numbers |= rule.numbers
            recompute = recompute if rule.recompute is None else rule.recompute
        if isinstance(recompute, str):
            labels[RECOMPUTE] = recompute
        elif recompute is not None:
            labels[RECOMPUTE] = "selective" if recompute else "none"
        modules = recompute if recompute and not isinstance(recompute, str) else ()
        flags = {f"{RECOMPUTE}_{module}": float(module in modules) for module in MODULES if modules}
        return Taken(tuple(options), labels, numbers, flags)


def beside(taken: Taken, given: Collection[str]) -> Taken:
    """Return what a preset sets without what is given by hand, or follows from that."""
    again = any(name.startswith(RECOMPUTE) for name in given)
    left = {*given, *((RECOMPUTE,) if again else ()), *(BYTES if RECIPE in given else ())}
    labels = {name: value for name, value in taken.labels.items() if name not in left}
    numbers = {name: value for name, value in taken.numbers.items() if name not in left}
    return Taken(taken.options, labels, numbers, {} if again else taken.modules)


# From a framework's file.


def read_presets(
    reader: FigureReader, framework: str, options: Collection[str]
) -> dict[str, Preset]:
    """Return the presets of a framework's file, by name."""
    presets: dict[str, Preset] = {}
    for name in reader.table("presets"):
        table = reader.table("presets")[name]
        if not isinstance(table, dict):
            reader.fault("presets", name, "is not a table", f"write [presets.{name}]")
            continue
        location = f"presets.{name}"
        reader.unknown(location, table, PRESET_KEYS)
        before: tuple[Rule, ...] = ()
        if (like := reader.text(location, table, "like", default="")) in presets:
            before = presets[like].rules
        elif like:
            reader.fault(
                f"{location}.like", like, "is no preset above it", ", ".join(presets) or "none"
            )
        whole = {key: table[key] for key in ("options", "set", RECOMPUTE) if key in table}
        rules = [(location, whole), *_listed(reader, location, table)]
        presets[name] = Preset(
            name,
            framework,
            reader.text(location, table, "release"),
            reader.text(location, table, "source"),
            (*before, *(_rule(reader, where, rule, options) for where, rule in rules)),
        )
    return presets


def _listed(
    reader: FigureReader, location: str, table: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rules of a preset, each with its place."""
    given = table.get("rules", [])
    tables = isinstance(given, list) and all(isinstance(rule, dict) for rule in given)
    if not tables:
        reader.fault(
            f"{location}.rules", given, "is not a list of tables", f"write [[{location}.rules]]"
        )
        return
    for number, entry in enumerate(given, 1):
        where = f"{location}.rules, {number}"
        reader.unknown(where, entry, RULE_KEYS)
        yield where, entry


def _rule(
    reader: FigureReader, location: str, table: Mapping[str, Any], options: Collection[str]
) -> Rule:
    labels: dict[str, str] = {}
    numbers: dict[str, float] = {}
    given, when = (table.get(key, {}) for key in ("set", "when"))
    for key, value in (("set", given), ("when", when)):
        if not isinstance(value, dict):
            where = f"{location}.{key}"
            reader.fault(where, value, "is not a table", f"write {{ .. = .. }} for {key}")
            return Rule()
    for name, value in given.items():
        where = f"{location}.set.{name}"
        if name in OF_PLANS or name.startswith(RECOMPUTE) or name == "framework":
            reader.fault(where, value, "is not a preset's to set", "options, labels and quantities")
        elif name in LABELS:
            known = LABELS[name].values or (value,)
            labels[name] = reader.choice(f"{location}.set", given, name, known)
        elif name in VOCABULARY and isinstance(value, int | float):
            numbers[name] = float(value)
        else:
            near = nearest(name, (*LABELS, *VOCABULARY))
            reader.fault(where, value, "is no label or quantity", near)
    on, off = (
        reader.choices(location, table, key, tuple(options)) for key in ("options", "without")
    )
    reader.unknown(f"{location}.when", when, CONDITIONS)
    again: str | tuple[str, ...] | None = None
    if isinstance(table.get(RECOMPUTE), str):
        again = reader.choice(location, table, RECOMPUTE, LABELS[RECOMPUTE].values)
    elif RECOMPUTE in table:
        again = reader.choices(location, table, RECOMPUTE, MODULES)
    return Rule(when, on, off, labels, numbers, again)
