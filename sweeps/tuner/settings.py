"""What is tuned: a model, a machine, and which cases are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from overhead.labels import LABELS
from sweeps.errors import Faults, InputError, nearest, tell_all
from sweeps.spec.catalog import load_model
from sweeps.tuner.choose import GROUPS, OBJECTIVES, Choice
from sweeps.tuner.rates import PRECISIONS, Rates, read_rates
from sweeps.tuner.userbuffers import (
    ALL_GATHER,
    FACTS,
    KEYS,
    LAYERS,
    MOST_SMS,
    NEWEST,
    OLDEST,
    OPERATORS,
    SINCE,
    TP_SIZES,
    LayerOverlap,
    Version,
    collective_of,
    default_values,
    flag_group,
    grid_cases,
    missing_operators,
    read_version,
    shown_version,
    sm_counts,
    split_faults,
    tp_sizes,
)

GRIDS = ("legal", "nominal")
SEARCHES = ("bisection", "grid", "all")


@dataclass
class TPOverlapTunerConfig:
    """What is tuned."""

    model_name: str
    max_tp_size: int = 8
    max_token_len: int = 8192
    operators: Sequence[str] = ()
    output_dir: str | Path | None = None
    min_num_sm: int = 1
    max_num_sm: int = 16
    hardware: str = LABELS["hardware"].default
    precision: str = "bf16"
    grid: str = "legal"
    search: str = "bisection"
    objective: str = "e2e"
    tolerance: float = 0.2
    sm_margin: bool = False
    # Whether reduce_scatters in parts are tried; None: unless the grid is the nominal one
    pipeline: bool | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    from_traces: str | Path | None = None
    command: str | None = None
    timeout: float | None = None
    resume: bool = False
    hardware_folders: Sequence[Path] = ()
    te_version: str | None = None
    tp_size: int | None = None  # The only size that is tried, in place of all up to the largest

    def __post_init__(self) -> None:
        self.max_tp_size = self.tp_size or self.max_tp_size
        faults = Faults()
        self._check_values(faults)
        release = self.te_version
        version = NEWEST if release is None else faults.of(read_version, release)
        model = faults.of(load_model, self.model_name)
        if model is None:
            raise InputError(faults.faults)
        model.need(("layers", "hidden_size", "heads"), "tuning")
        self.version, self.model = version or NEWEST, model
        self.notes: list[str] = []
        self._check_operators(faults)
        self.skipped: dict[int, str] = {}
        self._check_sizes(faults)
        # Nothing more is said of a machine in a precision that there isn't.
        precision = self.precision if self.precision in PRECISIONS else PRECISIONS[0]
        folders = tuple(self.hardware_folders)
        machine = faults.of(read_rates, self.hardware, precision, self.rates, folders)
        if machine is not None and max(self.sizes, default=1) > machine.ranks:
            wrong = f"{self.hardware} has {machine.ranks} GPUs in a node"
            allowed = "tensor parallelism within one"
            faults.add(self._size_flag, self.max_tp_size, wrong, allowed)
        tell_all(faults.faults)
        assert machine is not None
        self.machine: Rates = machine

    def _check_values(self, faults: Faults) -> None:
        for flag, value, known in (
            ("--precision", self.precision, PRECISIONS),
            ("--grid", self.grid, GRIDS),
            ("--search", self.search, SEARCHES),
            ("--objective", self.objective, OBJECTIVES),
        ):
            if value not in known:
                faults.add(flag, value, "unknown", nearest(str(value), known))
        if self.max_tp_size not in TP_SIZES:
            wrong = "isn't a size that is tried"
            allowed = "2, 4 or 8: tensor parallelism stays in one machine"
            faults.add(self._size_flag, self.max_tp_size, wrong, allowed)
        for flag, count in (("--min-num-sm", self.min_num_sm), ("--max-num-sm", self.max_num_sm)):
            if not _whole(count) or not 1 <= count <= MOST_SMS:
                faults.add(flag, count, "isn't allowed", f"a whole number, 1 to {MOST_SMS}")
        if not faults.faults and self.min_num_sm > self.max_num_sm:
            wrong = f"is above --max-num-sm {self.max_num_sm}"
            faults.add("--min-num-sm", self.min_num_sm, wrong, "at most that")
        tokens = self.max_token_len
        if not _whole(tokens) or not 1 <= tokens <= 1 << 40:
            faults.add("--max-token-len", tokens, "isn't allowed", "a whole number")
        if not 0.0 <= self.tolerance < float("inf"):
            faults.add("--tolerance", self.tolerance, "isn't allowed", "a share from 0")
        if self.from_traces is not None and self.command is not None:
            faults.add("--command", self.command, "--from-traces is given too", "one")

    def _check_operators(self, faults: Faults) -> None:
        """Check operators; leave out those that the model lacks where none were asked for."""
        asked = list(self.operators)
        for name in asked:
            if name not in OPERATORS:
                faults.add("--operators", name, "is unknown", nearest(str(name), OPERATORS))
        for name in sorted({name for name in asked if asked.count(name) > 1}):
            faults.add("--operators", name, "is given twice", "give it once")
        lacking = missing_operators(self.model)
        for name, reason in lacking.items():
            if name in asked:
                faults.add("--operators", name, f"{self.model.name}: {reason}", "others")
            elif not asked:
                self.notes.append(f"{name} is left out: {reason}")
        shapes = self.model.shapes
        if shapes.get("experts") and shapes.get("ffn_size"):
            self.notes.append("fc1 and fc2 are those of the dense layers: experts don't overlap so")
        self.operators = tuple(asked or (name for name in OPERATORS if name not in lacking))
        if not self.operators:
            wrong = "has none of the linear layers that userbuffers overlap"
            faults.add("--model-name", self.model_name, wrong, "another model")

    def _check_sizes(self, faults: Faults) -> None:
        """Leave out the sizes that can't split the model or the tokens."""
        tokens = self.max_token_len
        if self.max_tp_size not in TP_SIZES or not _whole(tokens) or tokens < 1:
            return
        for size in self._asked_sizes:
            reasons = list(split_faults(self.model.shapes, size))
            if tokens % size:
                reasons.append(f"{tokens} tokens can't be split over {size} ranks")
            if reasons:
                self.skipped[size] = "; ".join(reasons)
                self.notes.append(f"TP={size} is left out: {self.skipped[size]}")
        if not self.sizes:
            wrong = self.skipped[min(self.skipped)]
            allowed = "another model or token length"
            faults.add(self._size_flag, self.max_tp_size, wrong, allowed)

    @property
    def _size_flag(self) -> str:
        return "--max-tp-size" if self.tp_size is None else "--tp-size"

    @property
    def _asked_sizes(self) -> tuple[int, ...]:
        return tp_sizes(self.max_tp_size) if self.tp_size is None else (self.tp_size,)

    # What the seed's interface gives of a model.

    @property
    def hidden_size(self) -> int:
        """The model's hidden size."""
        return self._shape("hidden_size")

    @property
    def ffn_hidden_size(self) -> int:
        """The inner size of its MLP."""
        return self._shape("ffn_size")

    @property
    def num_attention_heads(self) -> int:
        """Its query heads."""
        return self._shape("heads")

    @property
    def num_kv_heads(self) -> int:
        """Its key and value heads."""
        return self._shape("kv_heads")

    @property
    def head_size(self) -> int:
        """The size of a head, which needn't be the hidden size by the heads."""
        return self._shape("head_size")

    def _shape(self, name: str) -> int:
        return int(self.model.shapes[name])

    # What follows.

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tensor-parallel sizes that are tried."""
        return tuple(n for n in self._asked_sizes if n not in self.skipped)

    @property
    def attention(self) -> str:
        """The kind of attention, as formulas know it."""
        return self.model.labels.get("attention", "mha")

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of multiprocessors of the grid."""
        if self.search == "all":
            return tuple(range(self.min_num_sm, self.max_num_sm + 1))
        return sm_counts(self.min_num_sm, self.max_num_sm)

    def cases(self) -> tuple[LayerOverlap, ...]:
        """Return the grid: legal cases, or all with ``grid = "nominal"``."""
        nominal = self.grid == "nominal"
        sizes = self._asked_sizes if nominal else self.sizes
        return grid_cases(sizes, self.operators, self.counts, nominal=nominal, pipeline=self.splits)

    @property
    def splits(self) -> bool:
        """Whether reduce_scatters in parts are tried; of traces, where there are any."""
        if self.pipeline is not None:
            return self.pipeline
        known = self.from_traces is None or any(Path(self.from_traces).glob("*_pipeline_sm*"))
        return known and self.grid != "nominal"

    def record(self) -> dict[str, Any]:
        """Return it as the report has it."""
        values = {
            "model": self.model.name,
            "operators": list(self.operators),
            "set_sm_margin": self.sm_margin,
            "pipeline": self.splits,
        }
        return {
            name: values[name] if name in values else getattr(self, name)
            for name in FACTS["recorded"]
        }


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# A configuration as files: every key that Transformer Engine reads, and the flags it needs.

SWITCHES: Mapping[str, str] = FACTS["switches"]
OVERLAP, SEQUENCE = "--tp-comm-overlap", "--sequence-parallel"
SCATTERED = "--tp-comm-overlap-rs-dgrad"
SPLITS = 4  # Transformer Engine's default
CGA_SIZE = 2  # the same; more multiprocessors than it are launched in clusters of it
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
SAID: Mapping[str, str] = FACTS["said"]


@dataclass(frozen=True, slots=True)
class Companion:
    """What has to go with a configuration file."""

    flags: tuple[str, ...]  # Megatron-LM's, in order

    @property
    def overlaps(self) -> bool:
        """Whether anything overlaps."""
        return OVERLAP in self.flags

    def text(self, file: str, generation: str = "") -> str:
        """Return a shell script to be sourced, for a configuration and a generation of GPUs."""
        lines = ["# Flags of Megatron-LM and variables that go with it; source this file."]
        later = generation == "blackwell"
        lines += (
            [f"# {SAID['unordered']}"]
            if later
            else [f"# {SAID['ordered']}", f"export {CONNECTIONS}=1"]
        )
        lines.append(f"# {SAID['multicast']}")
        if not self.overlaps:
            lines += [f"# Nothing overlaps: leave {OVERLAP} out."]
            lines += [f"TP_OVERLAP_FLAGS=({' '.join(self.flags)})"]
        else:
            folder = '$(dirname "${BASH_SOURCE[0]}")'
            lines.append("TP_OVERLAP_FLAGS=(")
            for flag in self.flags:
                path = f' "{folder}/{file}"' if flag == "--tp-comm-overlap-cfg" else ""
                lines.append(f"  {flag}{path}")
            lines.append(")")
        return "\n".join(lines) + "\n"


def companion_of(
    on: Sequence[str] | frozenset[str], tp_size: int, *, scattered_dgrad: bool
) -> Companion:
    """Return the flags for what overlaps; without overlap tokens are split over ranks alike."""
    split = (SEQUENCE,) if tp_size > 1 else ()
    if not on and not scattered_dgrad:
        return Companion(split)
    off = [SWITCHES[group] for group in GROUPS if group not in on]
    flags = [OVERLAP, *split, "--tp-comm-overlap-cfg"]
    return Companion((*flags, *([SCATTERED] if scattered_dgrad else []), *off))


def layer_values(case: LayerOverlap, *, sm_margin: bool = False) -> dict[str, object]:
    """Return all values of a layer that overlaps as a case says."""
    ring = case.method == "ring_exchange"
    count = 1 if ring else case.num_sm
    scatters = collective_of(case.operator, case.phase, case.method) != ALL_GATHER
    clustered = count % CGA_SIZE == 0
    return default_values(case.layer, case.tp_size) | {
        "method": case.method,
        "is_reduce_scatter": scatters,
        "num_sm": count,
        "cga_size": CGA_SIZE if clustered else 1,
        "set_sm_margin": case.method == "pipeline" or (sm_margin and not ring),
        "num_splits": case.tp_size if ring else SPLITS,
        "aggregate": bool(case.aggregate),
        "fp8_buf": not scatters,
    }


def yaml_of(
    choice: Choice,
    *,
    sm_margin: bool = False,
    heading: Sequence[str] = (),
    version: Version = NEWEST,
) -> str:
    """Return the configuration file of a choice."""
    values = {
        layer: layer_values(choice.layers[layer].case, sm_margin=sm_margin)
        for layer in LAYERS
        if layer in choice.layers
    }
    return to_yaml(values, heading, version)


def to_yaml(
    values: Mapping[str, Mapping[str, object]],
    heading: Sequence[str] = (),
    version: Version = NEWEST,
) -> str:
    """Return layers with their values as YAML, with the keys that a release takes."""
    known = [key for key in KEYS if SINCE.get(key, version) <= version]
    oldest = max((SINCE[key] for key in known if key in SINCE), default=OLDEST)
    lines = [f"# {line}" for line in heading]
    lines.append(
        f"# For Transformer Engine from {shown_version(oldest)} on: its keys were read in releases "
        f"up to {shown_version(NEWEST)}."
    )
    for layer, entry in values.items():
        lines.append(f"{layer}:")
        for key in known:
            if key in entry:
                value = entry[key]
                lines.append(f"  {key}: {int(value) if isinstance(value, bool) else value}")
    if not values:
        lines.append("{}")
    return "\n".join(lines) + "\n"


def case_companion(case: LayerOverlap) -> Companion:
    """Return the flags with which a case's phase alone overlaps."""
    if case.is_baseline:
        return companion_of((), case.tp_size, scattered_dgrad=False)
    scattered = case.layer in {"qkv_dgrad", "fc1_dgrad"} and case.method != "bulk"
    on = () if scattered else (flag_group(case.operator, case.phase),)
    return companion_of(on, case.tp_size, scattered_dgrad=scattered)
