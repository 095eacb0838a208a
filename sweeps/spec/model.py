"""A model: its shapes with their sources, what follows from them, and what they must fulfil."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from overhead.completion import features
from overhead.evaluation import Evaluation, MissingQuantities, derive
from overhead.frozen import frozen
from overhead.model.order import KINDS, LETTERS, MOST, NUMBERS, numbers_of, pattern_of
from overhead.quantity import VOCABULARY
from overhead.transformer import FURTHER_SHAPES, HYBRID_FLAGS, HYBRID_SHAPES, SHAPES, VITAL
from sweeps.errors import fault, nearest, refuse
from sweeps.origin import Origin
from sweeps.spec.fields import ORIGINS, Figure, FigureReader, declared_keys
from sweeps.spec.files import read_rows, shipped
from sweeps.spec.units import parse_quantity

# What has no default, since a wrong guess would change every number.
# Far above any model; products of shapes stay finite.
LARGEST = 1e18
COUNTS = ("parameters", "active_parameters")
# What a publication may say of a training: of most of it, where lengths or batches grow.
TRAINED = ("sequence_length", "tokens_per_step", "training_tokens")
# Tokens of a sequence where commands ask for none and no publication says.
USUAL_LENGTH = 4096.0
# The order of a hybrid's layers, as its file states it, and what the letters mean.
PATTERN = "pattern"
# What a file's shapes may be.
FILE_SHAPES = (*SHAPES, *(name for name in FURTHER_SHAPES if name not in NUMBERS), PATTERN)
KIND_WORDS = ("linear layers", "attention layers", "separate MoE layers")
_SHAPES = read_rows(shipped("fields") / "shapes.csv")
_NEEDING = {row["name"]: row["needs"] for row in _SHAPES if row["needs"]}
# Of which a model, or a plan of it, has no more than of others.
WITHIN = {row["name"]: row["within"] for row in _SHAPES if row["within"]}
# What a shape brings with it, and why.
_LATENT = ("qk_nope_head_size", "qk_rope_head_size", "v_head_size")
_BRINGS = {
    "experts": (("experts_per_token", "expert_ffn_size"), "every model with experts has one"),
    "kv_lora_rank": (_LATENT, "every latent attention has one"),
    "index_heads": (("index_head_size", "index_top_k"), "every indexer has one"),
}
# What says how many layers have experts.
_OF_MIXTURES = (
    "layers",
    "dense_layers",
    "moe_layer_frequency",
    "experts",
    "separate_moe_layers",
    "routed_layers",
)
# Layers of which a model has no more than layers.
_SOME = (
    "sliding_window_layers",
    "index_layers",
    "pooled_layers",
    "separate_moe_layers",
    "routed_layers",
    "bare_layers",
    "linear_layers",
)


@frozen(slots=True)
class Model:
    """A model: its shapes, each with where it comes from, or its number of parameters alone."""

    # What the catalogue calls it, what people call it, and what to know of it
    name: str
    title: str
    summary: str
    path: Path | None  # Its file; None for a bare count
    kind: str  # Where its shapes come from, as of a machine's figures; a figure may have its own
    source: str
    hugging_face: tuple[str, ...]  # The names under which Hugging Face has models of these shapes
    # By quantity, in the vocabulary's order: all shapes, those that weren't stated among them; or
    # ``parameters`` alone
    figures: Mapping[str, Figure]
    stated: frozenset[str]  # The quantities that its file states; the others are defaults
    # ``attention``: ``mha`` (heads of their own, grouped or not) or ``mla`` (latent); none for a
    # bare count
    labels: Mapping[str, str]
    # How its publication says that it was trained, as far as it says: `TRAINED`
    trained: Mapping[str, Figure] = field(default_factory=dict)
    # How it was found or read, where that is more than by its name
    note: str = field(default="", compare=False)

    @property
    def shapes(self) -> dict[str, float]:
        """The values by quantity: what formulas are given."""
        return {name: figure.value for name, figure in self.figures.items()}

    @property
    def pattern(self) -> str:
        """The kinds of its layers in their order, a letter each; empty where it doesn't say it."""
        return pattern_of(self.shapes)

    def published(self, name: str) -> Origin | None:
        """Return what its publication says of its training (`TRAINED`); None where it doesn't."""
        figure = self.trained.get(name)
        return None if figure is None else figure.origin.of(self.name)

    def quantity(self, name: str, **given: float) -> float:
        """Compute a quantity of this model."""
        if name not in VOCABULARY:
            refuse("quantity", name, "is unknown", nearest(name, VOCABULARY))
        try:
            known = {**self.shapes, **given}
            return float(Evaluation(known, features(known))[name])
        except MissingQuantities as error:
            self.need(error.missing, name, given)
            raise

    def need(self, names: Iterable[str], why: str, given: Iterable[str] = ()) -> None:
        """Refuse a model that lacks something."""
        lacking = [name for name in names if name not in self.figures and name not in given]
        # What has a default goes unsaid where there is something without one.
        vital = [name for name in lacking if name in (*VITAL, "ffn_size") or name not in SHAPES]
        if lacking:
            bare = "" if "layers" in self.figures else ": it is a number of parameters alone"
            message = (
                f"{why} needs {', '.join(sorted(vital or lacking, key=[*SHAPES, *lacking].index))}"
            )
            refuse("model", self.name, f"doesn't say enough{bare}", message)


def shape_value(name: str, given: object, location: str) -> float:
    """Read one shape."""
    quantity = VOCABULARY[name]
    if quantity.flag and isinstance(given, bool):
        return float(given)
    value = parse_quantity(given, "1", field=location, bare_is_si=False)
    if name in COUNTS:
        outside, domain = not (value >= 1.0 and value.is_integer()), "a whole number, 1 or more"
    else:
        outside, domain = bool(quantity.outside(np.asarray(value))), quantity.domain()
    if outside or value > LARGEST:
        domain = domain if value <= LARGEST else f"{domain} up to {LARGEST:g}"
        domain = "true or false" if quantity.flag else domain
        meaning = quantity.meaning.removesuffix(" (0 or 1)")
        refuse(location, given, "isn't allowed", f"write {domain} ({meaning})")
    return value


def complete_shapes(values: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Return what shapes are where they aren't stated, and why."""
    added: dict[str, tuple[float, str]] = {}
    if "heads" in values:
        added["kv_heads"] = (values["heads"], "not stated: as many as heads")
        if values.get("kv_lora_rank", 0.0) > 0.0:
            size = values.get("qk_nope_head_size", 0.0) + values.get("qk_rope_head_size", 0.0)
            added["head_size"] = (size, "not stated: qk_nope_head_size + qk_rope_head_size")
        elif "hidden_size" in values:
            size = values["hidden_size"] / values["heads"]
            added["head_size"] = (size, "not stated: hidden_size/heads")
    for name in SHAPES:
        if name not in (*VITAL, *added, "kv_heads", "head_size"):
            added[name] = (float(name == "moe_layer_frequency"), "not stated: none")
    added["moe_layer_frequency"] = (1.0, "not stated: every layer after the dense ones")
    return {name: value for name, value in added.items() if name not in values}


def shape_faults(values: Mapping[str, float], location: str) -> list[str]:
    """Return what is missing from shapes or contradicts itself, a line each."""
    faults = [
        f"{location}{name}: is missing; every model has one" for name in VITAL if name not in values
    ]
    full = {name: value for name, (value, _) in complete_shapes(values).items()} | dict(values)

    def wrong(name: str, why: str, allowed: str) -> None:
        value = full[name]
        shown = int(value) if value.is_integer() else round(value, 3)
        faults.append(fault(f"{location}{name}", shown, why, allowed))

    def required(names: Iterable[str], why: str) -> None:
        for name in names:
            if full.get(name, 0.0) <= 0.0:
                problem = "is zero" if name in values else "is missing"
                faults.append(f"{location}{name}: {problem}; {why}")

    for name, needed in _NEEDING.items():
        # Queries alone come from a latent vector where the context's projection has one, too.
        alone = name == "q_lora_rank" and full.get("output_rank", 0.0) > 0.0
        if full.get(name, 0.0) > 0.0 and not (full.get(needed, 0.0) or alone):
            wrong(name, f"needs {needed}", f"give {needed}, or leave it out")
    for name, (names, why) in _BRINGS.items():
        if full.get(name, 0.0) > 0.0:
            required(names, why)
    _mixture_faults(full, wrong)
    if full.get("linear_layers", 0.0) > 0.0:
        # A linear attention that states its widths may have no convolution.
        sizes = HYBRID_SHAPES[1 : -len(HYBRID_FLAGS)]
        bare = full.get("linear_width", 0.0) > 0.0
        required(sizes[:-1] if bare else sizes, "every linear attention has one")
    if "layers" in full:
        _layer_faults(full, wrong, required)
    if "heads" in full and "hidden_size" in full:
        _head_faults(full, wrong)
    return faults


def pattern_faults(pattern: object, values: Mapping[str, float], location: str) -> list[str]:
    """Return what is wrong with the order of a model's layers, a letter each."""
    if not isinstance(pattern, str) or not set(pattern) <= set(LETTERS) or len(pattern) > MOST:
        allowed = f"at most {MOST} of the letters {' '.join(LETTERS)}"
        return [fault(f"{location}{PATTERN}", pattern, "is no order of layers", allowed)]
    linear = values.get("linear_layers", 0.0)
    counts = (linear, values.get("layers", 0.0) - linear, values.get("separate_moe_layers", 0.0))
    kinds = [LETTERS[letter] for letter in pattern]
    return [
        fault(
            f"{location}{PATTERN}",
            f"{kinds.count(kind)} {words}",
            "are others than the counts say",
            f"{count:g} of them",
        )
        for kind, count, words in zip(KINDS, counts, KIND_WORDS, strict=True)
        if kinds.count(kind) != count
    ]


def order_figures(pattern: str, kind: str, source: str) -> dict[str, Figure]:
    """Return the order of a model's layers as numbers."""
    return {name: Figure(number, "1", kind, source) for name, number in numbers_of(pattern).items()}


def _mixture_faults(full: Mapping[str, float], wrong: Any) -> None:
    if full["experts_per_token"] > full["experts"] > 0.0:
        wrong("experts_per_token", "is more than there are", f"at most {full['experts']:g}")
    for name, whole in (("groups_per_token", "expert_groups"), ("expert_groups", "experts")):
        if full.get(name, 0.0) > full.get(whole, 0.0):
            wrong(name, f"is more than {whole}", f"at most {full.get(whole, 0.0):g}")
    if full["experts"] % max(full.get("expert_groups", 0.0), 1.0):
        wrong("expert_groups", "does not divide experts", f"a divisor of {full['experts']:g}")


def _layer_faults(full: Mapping[str, float], wrong: Any, required: Any) -> None:
    for name in _SOME:
        if full.get(name, 0.0) > full["layers"]:
            wrong(name, "is more than there are", f"at most {full['layers']:g}")
    if full["dense_layers"] > full["layers"]:
        wrong("dense_layers", "is more than there are", f"at most {full['layers']:g}")
        return
    moe = float(derive("moe_layers", {name: full.get(name, 0.0) for name in _OF_MIXTURES}))
    if full["experts"] > 0.0 and moe == 0.0:
        wrong(
            "experts", "no layer has them", "fewer dense_layers, or a smaller moe_layer_frequency"
        )
    # Of a hybrid's blocks one may have no MLP.
    bare = full.get("linear_layers", 0.0) > 0.0 and "ffn_size" in full
    if moe < full["layers"] and not bare:
        required(("ffn_size",), f"{full['layers'] - moe:g} layers are dense")


def _head_faults(full: Mapping[str, float], wrong: Any) -> None:
    if full["heads"] % full["kv_heads"]:
        wrong("kv_heads", "does not divide heads", f"a divisor of {full['heads']:g}")
    if full["kv_lora_rank"] > 0.0 and full["kv_heads"] != full["heads"]:
        wrong("kv_heads", "is not heads", "latent attention has keys and values for each head")
    if not full["head_size"].is_integer():
        wrong("head_size", "is not whole as hidden_size/heads", "state head_size")


def join_figures(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """Return stated shapes and those that weren't, in the vocabulary's order."""
    values = {name: figure.value for name, figure in figures.items()}
    added = {
        name: Figure(value, "1", "assumed", why)
        for name, (value, why) in complete_shapes(values).items()
    }
    none = Figure(0.0, "1", "assumed", "not stated: none")
    given = (
        {**dict.fromkeys(HYBRID_FLAGS, none), **figures} if "linear_layers" in figures else figures
    )
    given = {"index_layers": none, **given} if "index_heads" in figures else given
    further = {name: given[name] for name in FURTHER_SHAPES if name in given}
    return {name: (figures.get(name) or added[name]) for name in SHAPES} | further


def attention_label(figures: Mapping[str, Figure]) -> dict[str, str]:
    """Return the labels that shapes have."""
    return {"attention": "mla" if figures["kv_lora_rank"].value > 0.0 else "mha"}


# A model's file: what it may hold, checked whole.
#
# A model file states shapes, or a bare count of parameters.  Unknown keys, missing shapes and
# shapes that contradict each other are all reported together, each with its place.

KEYS, TRAINING_KEYS = declared_keys("model").values()


def read_model(path: Path, content: Mapping[str, object]) -> Model:
    """Make a model of a model file's content."""
    reader = _ModelFile(path, content)
    return reader.checked(reader.model())


class _ModelFile(FigureReader):
    """A walk over a model file."""

    listed = 40

    def model(self) -> Model:
        self.unknown("", self.content, KEYS)
        name = self.name()
        kind, source = self._origin(self.content, "")
        stated = self._counts(kind, source)
        if "shapes" in self.content or not any(name in self.content for name in COUNTS):
            stated = self._shapes(kind, source)
        whole = bool(stated) and not self.faults and "parameters" not in stated
        figures = join_figures(stated) if whole else stated
        return Model(
            name=name,
            title=self.text("", self.content, "title"),
            summary=self.text("", self.content, "summary", default=""),
            path=self.path,
            kind=kind,
            source=source,
            hugging_face=self._names(),
            figures=figures,
            stated=frozenset(stated),
            labels=attention_label(figures) if whole else {},
            trained=self._trained(),
        )

    def _trained(self) -> dict[str, Figure]:
        """Read how its publication says that it was trained."""
        table = self.table("training")
        if not table:
            return {}
        self.unknown("training", table, TRAINING_KEYS)
        kind, source = self._origin(table, "training")
        figures = {
            name: self._figure(f"training.{name}", table[name], kind, source)
            for name in TRAINED
            if name in table
        }
        return {name: figure for name, figure in figures.items() if figure}

    def _counts(self, kind: str, source: str) -> dict[str, Figure]:
        stated = {name: self.content[name] for name in COUNTS if name in self.content}
        if "shapes" in self.content:
            for name, value in stated.items():
                self.fault(
                    name, value, "can't be given with shapes", "it follows from them: drop one"
                )
            return {}
        if "active_parameters" in stated and "parameters" not in stated:
            self.faults.append(f"{self.path}: parameters: is missing beside active_parameters")
        figures = {name: self._figure(name, given, kind, source) for name, given in stated.items()}
        counts = {name: figure for name, figure in figures.items() if figure}
        most = counts.get("parameters")
        active = counts.get("active_parameters")
        if most and active and active.value > most.value:
            self.fault("active_parameters", f"{active.value:g}", "is more than all", "at most all")
        return counts

    def _shapes(self, kind: str, source: str) -> dict[str, Figure]:
        table = self.content.get("shapes")
        if not isinstance(table, dict):
            wrong = "is missing" if table is None else "is not a table"
            self.faults.append(
                f"{self.path}: shapes: {wrong}; write [shapes], or parameters for a bare count"
            )
            return {}
        self.unknown("shapes", table, FILE_SHAPES)
        figures = {
            name: self._figure(f"shapes.{name}", given, kind, source)
            for name, given in table.items()
            if name in FILE_SHAPES and name != PATTERN
        }
        known = {name: figure for name, figure in figures.items() if figure}
        if len(known) == len(figures):
            values = {name: figure.value for name, figure in known.items()}
            self.faults += shape_faults(values, f"{self.path}: shapes.")
            if PATTERN in table:
                faults = pattern_faults(table[PATTERN], values, f"{self.path}: shapes.")
                self.faults += faults
                known |= {} if faults else order_figures(table[PATTERN], kind, source)
        return known

    def _figure(self, location: str, given: object, kind: str, source: str) -> Figure | None:
        """Read ``80``, or ``{ value = 80, kind = .., source = .. }`` with an origin of its own."""
        if isinstance(given, dict):
            self.unknown(location, given, ("value", "kind", "source"))
            kind, source = self._origin(given, location)
            if "value" not in given:
                self.faults.append(f"{self.path}: {location}.value: is missing")
                return None
            given, location = given["value"], f"{location}.value"
        name = location.removesuffix(".value").rpartition(".")[2]
        value = self.of(shape_value, name, given, f"{self.path}: {location}")
        return None if value is None else Figure(value, "1", kind, source)

    def _origin(self, table: Mapping[str, object], location: str) -> tuple[str, str]:
        return self.choice(location, table, "kind", ORIGINS), self.text(location, table, "source")

    def _names(self) -> tuple[str, ...]:
        given = self.content.get("hugging_face", [])
        names = [given] if isinstance(given, str) else given
        if isinstance(names, list) and all(isinstance(name, str) and name for name in names):
            return tuple(names)
        self.fault("hugging_face", given, "is not a name", 'write "owner/name", or a list of such')
        return ()
