"""A framework's file: constants, habits and options of the software that trains, checked whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from overhead.frozen import frozen
from overhead.labels import CHOICES, LABELS, OVERLAPS
from overhead.memory.quantities import RECIPES, Recipe
from overhead.quantity import VOCABULARY
from overhead.shipped import loss_figures, usual_table
from sweeps.errors import fault, nearest, refuse, tell_all
from sweeps.origin import ASSUMED, SPECIFICATION, UNKNOWN, Origin, assumed
from sweeps.spec.fields import (
    ORIGINS,
    Figure,
    FigureReader,
    declared_figures,
    declared_keys,
    declared_list,
)
from sweeps.spec.files import read_rows, shipped
from sweeps.spec.machine import (
    GRANULARITIES,
    KERNELS,
    PRECISIONS,
    SCALINGS,
    Machine,
    rates_of,
)
from sweeps.spec.preset import Preset, read_presets

# Constants of a step's time that hold where neither a machine's nor a framework's file has one.
#
# They are rules over many machines rather than fits of one: good to about a tenth of a step's time
# on machines whose best matrix multiplication is known, worse elsewhere.


def _rules(taker: str) -> dict[str, Figure]:
    """Return what a table of specs/training/usual.csv has, as figures."""
    return {
        name: Figure(
            taken.value,
            VOCABULARY[name].units if name in VOCABULARY else "1",
            taken.kind,
            taken.source,
        )
        for name, taken in usual_table()[taker].items()
    }


MACHINE_RULE, FRAMEWORK_RULE = _rules("machine"), _rules("framework")
# A fused kernel's share of the peak of 16 bits, long sequences.
ATTENTION_RULE = _rules("attention")
# Best measured matrix multiplication by peak, where it isn't measured: the median of those that
# the catalogue has in bf16 and fp8.  Without a fused kernel attention's products are matrix
# multiplications, small and batched.
TYPICAL_BEST, UNFUSED_SHARE = _rules("products").values()
NARROWER = "on H100, H200, B200, B300, Gaudi 3 fp8 reaches 0.96 of that share, on average"


_PRECISIONS = read_rows(shipped("training") / "precisions.csv")
# The recipe of bytes a parameter, where a framework has none of its own: Megatron-LM's.
RECIPE_RULE = {row["precision"]: row["recipe"] for row in _PRECISIONS}
INPUT_WIDTHS = {row["precision"]: float(row["input_bytes"]) for row in _PRECISIONS}


def among_all(way: str, index_heads: float) -> str:
    """Return how a model's attention crosses ranks where others' would this way.

    Attention that selects tokens selects among all: they are gathered, as no ring can be
    (NVIDIA/Megatron-LM, megatron/core/transformer/experimental_attention_variant/dsa.py).
    """
    return "all_gather" if way == "ring" and index_heads > 0.0 else way


# An option of every framework: its constants, but none of its habits.
TEXTBOOK = "textbook"
# What comes with its constants: whose kernels, and which loss, they are of.
BROUGHT = frozenset({"attention_kernel", "loss"})


@frozen(slots=True)
class Framework:
    """The software that trains: its constants, what it does by default, and its options."""

    # What the catalogue calls it (with the options that are on: ``torchtitan+eager``), what people
    # call it, and what to know of it
    name: str
    title: str
    summary: str
    path: Path  # Its file
    # By quantity: `host_launch_time`, `tp_overlap`, ..  What the file doesn't state is the rule's
    figures: Mapping[str, Figure]
    stated: frozenset[str] = frozenset()  # The quantities that the file states
    # Labels that hold if the user gives no others
    choices: Mapping[str, Origin] = field(default_factory=dict)
    # The recipe of bytes a parameter for each precision that the file states
    precisions: Mapping[str, Origin] = field(default_factory=dict)
    # What its plans usually have: ``zero_stage``, ``sequence_parallel``
    plan: Mapping[str, Figure] = field(default_factory=dict)
    # By generation of GPUs: figures that differ there
    generations: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    # By granularity of the scales of 8 bits: figures that differ there
    scalings: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    # By name: each option's own figures, choices and summary, for `with_options`
    options: Mapping[str, Framework] = field(default_factory=dict)
    # By name: what the recipes of its releases set
    presets: Mapping[str, Preset] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that hold if the user gives no others; of 8 bits `granularity_of` tells."""
        return {
            name: choice.value for name, choice in self.choices.items() if name != "fp8_scaling"
        }

    @property
    def loss(self) -> str:
        """The loss whose bytes its figures are."""
        return self.labels.get("loss", LABELS["loss"].default)

    def habit(self, name: str) -> Origin | None:
        """Return what it has of a label, or its plans of a quantity, if the user says nothing."""
        figure = self.plan.get(name)
        return self.choices.get(name) if figure is None else figure.origin

    def of_loss(self, loss: str | None) -> dict[str, Origin]:
        """Return the figures of a loss that isn't its own."""
        taken = loss_figures(loss or self.loss, self.loss)
        return {
            name: Origin(figure.value, figure.kind, f"loss {loss}: {figure.source}")
            for name, figure in taken.items()
        }

    def on(self, generation: str) -> Mapping[str, Figure]:
        """Return its figures on GPUs of a generation."""
        return {**self.figures, **self.generations.get(generation, {})}

    def with_options(self, names: Sequence[str]) -> Framework:
        """Return the framework with some of its options on, the last of them the strongest."""
        wrong = [
            fault("framework", f"{self.name}+{name}", "has no such option", near)
            for name in names
            if name not in (*self.options, TEXTBOOK)
            for near in (nearest(name, self.options) if self.options else "it has no options",)
        ]
        tell_all(wrong)
        options = self
        for name in dict.fromkeys(names):
            if name == TEXTBOOK:
                kernel = {key: choice for key, choice in options.choices.items() if key in BROUGHT}
                options = replace(options, name=f"{options.name}+{name}", choices=kernel, plan={})
                continue
            part = self.options[name]
            options = replace(
                options,
                name=f"{options.name}+{name}",
                figures={**options.figures, **part.figures},
                stated=options.stated | part.stated,
                choices={**options.choices, **part.choices},
                precisions={**options.precisions, **self._joined(options, part)},
                plan={**options.plan, **part.plan},
                generations=_merged(options.generations, part),
                scalings={**options.scalings, **part.scalings},
            )
        return options

    def _joined(self, before: Framework, part: Framework) -> dict[str, Origin]:
        """Return an option's recipes: bytes that it leaves alone stay as options before set them.

        Where no recipe has the bytes of both, the later one's are taken.
        """
        joined = {}
        for precision, choice in part.precisions.items():
            usual = self.precisions.get(precision)
            there = before.precisions.get(precision, choice)
            base = RECIPES[RECIPE_RULE[precision] if usual is None else usual.value].given()
            own = {
                name: size
                for name, size in RECIPES[choice.value].given().items()
                if size != base[name]
            }
            wanted = RECIPES[there.value].given() | own
            names = [name for name, recipe in RECIPES.items() if recipe.given() == wanted]
            if choice.value in names or there == usual or not names:
                joined[precision] = choice
            else:
                source = f"{there.source}; {choice.source}"
                joined[precision] = Origin(names[0], choice.kind, source)
        return joined

    def acting(self, before: Sequence[str], after: Sequence[str] = ()) -> tuple[str, ...]:
        """Return those of some options, and others after them, that later ones leave acting."""
        names = tuple(name for name in before if name not in after)
        said = [self.options[name].says for name in (*names, *after) if name in self.options]
        kept = (
            name
            for index, name in enumerate(names)
            if not self.options[name].says <= frozenset().union(*said[index + 1 :])
        )
        return (*kept, *after)

    @property
    def says(self) -> frozenset[tuple[str, str]]:
        """What it states, each with its kind."""
        changed = {
            name: size
            for precision, choice in self.precisions.items()
            for name, size in RECIPES[choice.value].given().items()
            if size != RECIPES[RECIPE_RULE[precision]].given()[name]
        }
        tables = {
            "figures": self.figures,
            "labels": self.choices,
            "recipes": changed,
            "plan": self.plan,
            "generations": self.generations,
        }
        return frozenset((kind, name) for kind, table in tables.items() for name in table)


def _merged(
    whole: Mapping[str, Mapping[str, Figure]], part: Framework
) -> dict[str, dict[str, Figure]]:
    """Return figures by generation with an option's, which rule over those without it."""
    names = dict.fromkeys((*whole, *part.generations))
    return {
        name: {**whole.get(name, {}), **part.figures, **part.generations.get(name, {})}
        for name in names
    }


ENTRIES = declared_figures("framework")  # What a framework's file may hold, by table
_KEYS = declared_keys("framework")
_LABELS: dict[str, tuple[str, ...]] = {
    **{name: LABELS[name].values for name in (*_KEYS["labels"], *OVERLAPS)},
    "algorithm": CHOICES,
}
_RECIPES: dict[str, tuple[str, ...]] = dict.fromkeys(PRECISIONS, tuple(RECIPES))
_TABLES = tuple(_KEYS["tables"])


def read_framework(path: Path, content: Mapping[str, object]) -> Framework:
    """Make a framework of a framework file's content."""
    reader = _FrameworkFile(path, content)
    return reader.checked(reader.framework())


class _FrameworkFile(FigureReader):
    """A walk over a framework's file."""

    def framework(self) -> Framework:
        self.unknown("", self.content, (*_KEYS[""], *_TABLES))
        summary = self.text("", self.content, "summary", default="")
        part = self._part("", self.name(), self.text("", self.content, "title"), summary)
        options = {name: self._option(name) for name in self.table("options")}
        presets = read_presets(self, part.name, options)
        figures = {**FRAMEWORK_RULE, **part.figures}
        return replace(part, figures=figures, options=options, presets=presets)

    def _option(self, name: str) -> Framework:
        location = f"options.{name}"
        table = self.table(location)
        self.unknown(location, table, ("summary", *_TABLES))
        if not name.isidentifier():
            self.fault("options", name, "can't be a name", "write letters, digits and _")
        if table and not any(key in table for key in _TABLES):
            self.faults.append(
                f"{self.path}: {location}: changes nothing; write [{location}.figures]"
            )
        return self._part(f"{location}.", name, name, self.text(location, table, "summary"))

    def _part(self, prefix: str, name: str, title: str, summary: str) -> Framework:
        """Read the tables of the framework or of one of its options."""
        entries = ENTRIES["figures"]
        figures = self.read_figures(f"{prefix}figures", entries)
        scalings = LABELS["fp8_scaling"].values
        self.unknown(f"{prefix}scalings", self.table(f"{prefix}scalings"), scalings)
        return Framework(
            name=name,
            title=title,
            summary=summary,
            path=self.path,
            figures=figures,
            stated=frozenset(figures),
            choices=self._choices(f"{prefix}labels", _LABELS),
            precisions=self._choices(f"{prefix}recipes", _RECIPES),
            plan=self.read_figures(f"{prefix}plan", ENTRIES["plan"]),
            generations={
                generation: self.read_figures(f"{prefix}generations.{generation}", entries)
                for generation in self.table(f"{prefix}generations")
            },
            scalings={
                scaling: self.read_figures(f"{prefix}scalings.{scaling}", entries)
                for scaling in scalings
                if scaling in self.table(f"{prefix}scalings")
            },
        )

    def _choices(self, location: str, known: Mapping[str, Sequence[str]]) -> dict[str, Origin]:
        table = self.table(location)
        self.unknown(location, table, known)
        choices = {}
        for key, names in known.items():
            if key not in table:
                continue
            where, given = f"{location}.{key}", table[key]
            if not isinstance(given, dict):
                form = "write { value = .., kind = .., source = .. }"
                self.fault(where, given, "has no source", form)
                continue
            self.unknown(where, given, ("value", "kind", "source"))
            choices[key] = Origin(
                self.choice(where, given, "value", names),
                self.choice(where, given, "kind", ORIGINS),
                self.text(where, given, "source"),
            )
        return choices


# The constants that a step's time takes of a machine and of the software, each with its origin.

# Constants of a machine that don't depend on the precision or on the kernel.
PLAIN = declared_list("training")
# The two 16-bit formats run on the same units: where their peaks are equal, so is what is reached.
TWINS = {"bf16": "fp16", "fp16": "bf16"}
SINGLE = ("tf32", "fp32")
# Precisions beside which some products stay in 16 bits.
SIXTEEN, NARROW = "bf16", ("fp8", "fp4")


def training_constants(
    machine: Machine,
    framework: Framework,
    *,
    precision: str = "bf16",
    attention_kernel: str | None = None,
    recipe: str | None = None,
    fp8_scaling: str | None = None,
    loss: str | None = None,
) -> dict[str, Origin]:
    """Return every constant of a machine and its software that a step's time and memory take."""
    usual = LABELS["attention_kernel"].default
    kernel = attention_kernel or framework.labels.get("attention_kernel", usual)
    wrong = [
        fault(field, name, "unknown", nearest(name, known))
        for field, name, known in (
            ("precision", precision, LABELS["precision"].values),
            ("attention_kernel", kernel, KERNELS),
            ("recipe", recipe, tuple(RECIPES)),
            ("loss", loss, LABELS["loss"].values),
        )
        if name is not None and name not in known
    ]
    tell_all(wrong)
    granularity = granularity_of(framework, precision, fp8_scaling)
    # Scales of blocks of 32 are MXFP8, whichever way that is told.
    precision = "mxfp8" if granularity == "mx" else precision
    if precision == "mxfp8" and machine.generation == "hopper":
        why = f"{machine.name} has no products of blocks with scales of their own"
        named = ("precision", precision) if fp8_scaling is None else ("fp8_scaling", fp8_scaling)
        refuse(*named, why, "fp8_current or fp8_delayed")
    scaling, precision = precision, rates_of(precision)
    constants = {name: _plain(machine, name) for name in PLAIN}
    figures = {**framework.on(machine.generation), **framework.scalings.get(granularity, {})}
    constants |= _matmul(machine, precision, figures["matmul_share"])
    constants |= _attention(machine, precision, kernel)
    constants["output_matmul_flops"] = _output(machine, precision, constants)
    constants |= _training_bytes(framework, precision, recipe)
    constants |= _scaling(machine, framework, scaling, constants)
    constants["tp_gather_byte_ratio"] = _gathered(framework, constants)
    origins = {name: figure.origin.of(framework.name) for name, figure in figures.items()}
    del origins["matmul_share"]  # Which is in the efficiency
    constants |= origins | framework.of_loss(loss)
    constants["host_launch_time"] = _times(
        origins["host_launch_time"], _plain(machine, "host_slowdown")
    )
    constants["expert_casts"] = _expert_casts(scaling)
    return constants


def granularity_of(framework: Framework, precision: str, given: str | None) -> str:
    """Return the granularity of the scales of 8 bits; empty where nothing tells it."""
    known = GRANULARITIES.get(precision, ())
    if given is None:
        chosen = framework.choices.get("fp8_scaling")
        usual = "" if chosen is None else chosen.value
        return usual if usual in known else known[0] if len(known) == 1 else ""
    if not known:
        allowed = f"beside a precision of {', '.join(GRANULARITIES)}"
        refuse("fp8_scaling", given, f"{precision} has no scales", allowed)
    # Rows are torchtitan's alone; a framework whose file says nothing has the others.
    has = framework.scalings or [name for name in known if name != "row"]
    if given not in known or given not in has:
        owner = precision if given not in known else framework.name
        allowed = " or ".join(name for name in known if name in has)
        refuse("fp8_scaling", given, f"{owner} has no such scales", allowed)
    return given


# Kernels that cast one expert's tokens: with scales of the moment the largest is set to 0, sought
# and made a scale before; with kept scales and in 4 bits one casts all experts'.
EXPERT_CASTS = {"mxfp8": 1.0, "fp8_current": 4.0, "fp8_delayed": 0.0, "fp4": 0.0}


def _expert_casts(scaling: str) -> Origin:
    kind = SPECIFICATION if scaling in EXPERT_CASTS else ASSUMED
    where = f"{TE}/csrc/extensions/cast.cpp @d0067d0da6, split_quantize"
    return Origin(EXPERT_CASTS.get(scaling, 2.0), kind, where)


def _gathered(framework: Framework, constants: Mapping[str, Origin]) -> Origin:
    """Return how much narrower than activations inputs of products are gathered."""
    share = constants["matmul_input_bytes"].value / constants["activation_bytes"].value
    if framework.name.split("+")[0] != "megatron-lm" or share >= 1.0:
        return assumed(1.0, "inputs of products are gathered as activations are sent")
    why = f"{TE}/module/base.py: a product's input is gathered as it is multiplied"
    return Origin(share, SPECIFICATION, why)


def _unknown(machine: Machine) -> Origin:
    return Origin(math.nan, UNKNOWN, owner=machine.name)


def _plain(machine: Machine, name: str) -> Origin:
    if name in machine.figures:
        return machine.figures[name].origin.of(machine.name)
    return MACHINE_RULE[name].origin if name in MACHINE_RULE else _unknown(machine)


def _times(origin: Origin, factor: Origin) -> Origin:
    """Return a figure times another, told with both sources; as it is where that is 1."""
    value, more = origin.value * factor.value, f"; times {factor.text}"
    return origin if factor.value == 1.0 else origin.derived(value, more)


def _matmul(machine: Machine, precision: str, share: Figure) -> dict[str, Origin]:
    """Return peak, best and sustained share of matrix multiplication."""
    best = _best(machine, precision)
    efficiency = _times(_efficiency(machine, precision), share.origin)
    return {
        "peak_flops": _plain(machine, f"peak_flops_{precision}"),
        "peak_measured_matmul_flops": best,
        "matmul_efficiency": efficiency if math.isfinite(best.value) else _unknown(machine),
    }


def _output(machine: Machine, precision: str, constants: Mapping[str, Origin]) -> Origin:
    """Return the rate by which products that stay in 16 bits are the sustained one of 16 bits."""
    best, efficiency = constants["peak_measured_matmul_flops"], constants["matmul_efficiency"].value
    if math.isnan(efficiency):
        return _unknown(machine)
    if precision in NARROW and "peak_flops_bf16" in machine.figures:
        best, share = _best(machine, SIXTEEN), _efficiency(machine, SIXTEEN)
        why = f" sustained in {SIXTEEN}, by the {efficiency:.3g} of {precision}"
        return best.derived(best.value * share.value / efficiency, why)
    ratio = constants["attention_peak_flops"].value / constants["peak_flops"].value
    same = ratio == 1.0 or math.isnan(ratio * best.value)
    return best if same else best.derived(best.value * ratio, ", by the peaks in 16 bits")


def figure_for(machine: Machine, quantity: str, precision: str) -> Origin | None:
    """Return a figure of a precision, or of its twin where both have the same peak."""
    figure = machine.figures.get(f"{quantity}_{precision}")
    if figure is not None:
        return figure.origin.of(machine.name)
    twin = TWINS.get(precision, precision)
    figure = machine.figures.get(f"{quantity}_{twin}")
    peaks = [machine.figures.get(f"peak_flops_{name}") for name in (precision, twin)]
    if figure is None or peaks[0] is None or peaks[1] is None or peaks[0].value != peaks[1].value:
        return None
    same = f" (of {twin}, which has the same peak)"
    return figure.origin.of(machine.name).derived(figure.value, same)


def _best(machine: Machine, precision: str) -> Origin:
    """Return the best measured matrix multiplication, or what is typical of the peak."""
    figure = figure_for(machine, "peak_measured_matmul_flops", precision)
    peak = machine.figures.get(f"peak_flops_{precision}")
    if figure is not None:
        return figure
    if peak is None:
        return _unknown(machine)
    share, source, of = TYPICAL_BEST.value, TYPICAL_BEST.source, machine.figures
    wide, most = (
        of.get(f"{name}_{SIXTEEN}") for name in ("peak_measured_matmul_flops", "peak_flops")
    )
    if precision in NARROW and wide and most and wide.value < share * most.value:
        share, source = wide.value / most.value, f"as {SIXTEEN} reaches; {NARROWER}"
    text = f"{share:.3g} of the peak, {source}"
    return Origin(peak.value * share, TYPICAL_BEST.kind, text, machine.name)


def _efficiency(machine: Machine, precision: str) -> Origin:
    """Return the share of the best matrix multiplication that long runs sustain."""
    rule = MACHINE_RULE["matmul_efficiency"]
    return figure_for(machine, "matmul_efficiency", precision) or rule.origin


def _attention(machine: Machine, precision: str, kernel: str) -> dict[str, Origin]:
    """Return the peak of attention, which is in 16 bits at least, and the kernel's share of it."""
    names = (
        (precision,)
        if precision in SINGLE
        else dict.fromkeys((precision, *TWINS) if precision in TWINS else (SIXTEEN, *TWINS))
    )
    name = next((n for n in names if f"peak_flops_{n}" in machine.figures), None)
    if name is None:
        return dict.fromkeys(("attention_peak_flops", "attention_efficiency"), _unknown(machine))
    peak = machine.figures[f"peak_flops_{name}"]
    share = machine.figures.get(f"attention_efficiency_{kernel}")
    if share is not None:
        efficiency = share.origin.of(machine.name)
    elif kernel in ATTENTION_RULE:
        efficiency = ATTENTION_RULE[kernel].origin
    else:  # without a fused kernel
        sustained = _best(machine, name).value * _efficiency(machine, name).value / peak.value
        text = f"{UNFUSED_SHARE.value:g} of the {sustained:.3g} of the peak sustained in {name}"
        source = f"{text}; {UNFUSED_SHARE.source}"
        value = UNFUSED_SHARE.value * sustained
        efficiency = Origin(value, UNFUSED_SHARE.kind, source, machine.name)
    return {
        "attention_peak_flops": peak.origin.of(machine.name),
        "attention_efficiency": efficiency,
    }


def _training_bytes(framework: Framework, precision: str, recipe: str | None) -> dict[str, Origin]:
    """Return bytes a parameter and an element, by the recipe."""
    chosen = framework.precisions.get(precision)
    name = recipe or (RECIPE_RULE[precision] if chosen is None else chosen.value)
    used: Recipe = RECIPES[name]
    source = f"recipe {name}, {used.meaning} ({used.reference})"
    if recipe is None and chosen is not None:
        source += f"; {framework.name} takes it: {chosen.source}"
    given = {quantity: float(value) for quantity, value in used.given().items()}
    constants = {name: Origin(value, SPECIFICATION, source) for name, value in given.items()}
    width = INPUT_WIDTHS[precision]
    if width < given["matmul_input_bytes"]:
        why = f"GEMMs in {precision}"
        constants["matmul_input_bytes"] = Origin(width, SPECIFICATION, why)
    gathered = min(given["weight_bytes"], given["activation_bytes"])
    why = "weights are gathered as stored, or as computed with where that is narrower"
    constants["gathered_bytes"] = assumed(gathered, why)
    return constants


TE = "NVIDIA/TransformerEngine, transformer_engine/pytorch"


def _scaling(
    machine: Machine, framework: Framework, name: str, constants: Mapping[str, Origin]
) -> dict[str, Origin]:
    """Return what a recipe of 8 bits takes beside the numbers themselves: scales and copies."""
    if name not in SCALINGS:
        return {"weight_copy_bytes": assumed(0.0, "none is counted where no recipe is named")}
    blocks, narrow = name == "mxfp8", constants["weight_bytes"].value <= 1.0
    width = 1.0 + 1.0 / 32.0 if blocks else 1.0
    if blocks or machine.generation == "hopper":
        copies, why = 2.0 * width, "and once more for products of the transposed"
    else:
        copies, why = width, "products take any layout"
    given = {}
    if blocks and narrow:
        why = "reuse_grad_buf_for_mxfp8_param_ag: weights are gathered in 16 bits, then scaled"
        given = dict.fromkeys(("weight_bytes", "gathered_bytes"), Origin(2.0, SPECIFICATION, why))
    size = given["weight_bytes"].value if given else float(narrow)
    where = f"{TE}/utils.py, is_non_tn_fp8_gemm_supported, and module/base.py, get_weight_workspace"
    words = f"{where}: kept between micro-batches, {why}"
    kept = Origin(copies - size, SPECIFICATION, words)
    if not framework.name.startswith("megatron"):
        kept = assumed(0.0, "weights are cast anew for each product")
    return given | {
        "matmul_input_bytes": Origin(width, SPECIFICATION, f"{TE}, {name}: with its scales"),
        "weight_copy_bytes": kept,
    }
