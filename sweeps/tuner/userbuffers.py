"""What Transformer Engine's userbuffers take: layers, keys, defaults, and what is legal where.

Facts of TransformerEngine main at 2.20 in development (newest release 2.18):
transformer_engine/pytorch/module/base.py (initialize_ub) and
transformer_engine/common/comm_gemm_overlap/comm_gemm_overlap.cpp.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overhead.compute.matmul import GRADIENTS, LINEAR, product_sizes
from overhead.evaluation import Evaluation
from sweeps.errors import refuse
from sweeps.spec.files import read_rows, shipped
from sweeps.spec.model import Model

# Linear layers whose weights are split by columns (an all_gather before them), and by rows.
COLUMN, ROW = ("qkv", "fc1"), ("proj", "fc2")
OPERATORS = ("fc1", "fc2", "qkv", "proj")
PHASES = ("fprop", "dgrad", "wgrad")
LAYERS = tuple(
    f"{product}_{phase}" for product in ("qkv", "proj", "fc1", "fc2") for phase in PHASES
)
METHODS = ("ring_exchange", "pipeline", "bulk", "external")
ALL_GATHER, REDUCE_SCATTER = "all_gather", "reduce_scatter"
MOST_SMS = 32
"""Userbuffers' arrays have room for so many (NVTE_MAX_SMS)."""
KERNEL_RANKS = (2, 4, 8, 16, 32)
"""Tensor-parallel sizes that userbuffers' kernels exist for."""

FACTS: Mapping[str, Any] = tomllib.loads(
    (shipped("tuner") / "facts.toml").read_text(encoding="utf-8")
)
# Keys of a layer's value, and what each is.
KEYS: Mapping[str, str] = FACTS["keys"]
Version = tuple[int, int]
OLDEST, NEWEST = (1, 6), (2, 18)
# The first releases that take a key, and a method.
SINCE: Mapping[str, Version] = {key: (first, then) for key, (first, then) in FACTS["since"].items()}
EXTERNAL_SINCE: Version = (2, 7)


def read_version(text: str) -> Version:
    """Read a release of Transformer Engine."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.\d+)*", text.strip())
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < OLDEST:
        wrong = "is older than these settings" if match else "is not a release"
        refuse("--te-version", text, wrong, "from 1.6, such as 1.13 or 2.18")
    return version


def shown_version(version: Version) -> str:
    """Return a release as it is written."""
    return ".".join(map(str, version))


# The range of stream priorities of NVIDIA's GPUs; CUDA clamps what is beyond.
HIGHEST_PRIORITY, LOWEST_PRIORITY = -5, 0


@dataclass(frozen=True, slots=True)
class Legality:
    """Whether a layer can overlap by a method."""

    level: str  # ``legal``, ``runs_as_other``, ``run_error`` or ``init_error``
    reason: str = ""  # Why; for a legal one what it needs besides, or nothing


@cache
def _legalities() -> Mapping[tuple[str, str, str], Legality]:
    rows = read_rows(shipped("tuner") / "legality.csv")
    return {
        (row["layers"], row["phase"], row["method"]): Legality(row["level"], row["reason"])
        for row in rows
    }


def legality(operator: str, phase: str, method: str) -> Legality:
    """Tell whether a layer can overlap by a method."""
    return _legalities()["columns" if operator in COLUMN else "rows", phase, method]


@cache
def _phases() -> Mapping[tuple[str, str], Mapping[str, str]]:
    rows = read_rows(shipped("tuner") / "phases.csv")
    return {(row["layers"], row["phase"]): row for row in rows}


def _of_phase(operator: str, phase: str) -> Mapping[str, str]:
    return _phases()["columns" if operator in COLUMN else "rows", phase]


def phase_collective(operator: str, phase: str) -> str:
    """Return what a linear layer communicates in a phase when nothing overlaps; or nothing."""
    return _of_phase(operator, phase)["collective"]


def collective_of(operator: str, phase: str, method: str) -> str:
    """Return what a layer communicates when it overlaps by a method."""
    if operator in COLUMN and phase == "dgrad" and method != "bulk":
        return REDUCE_SCATTER
    return phase_collective(operator, phase) or ALL_GATHER


def default_method(layer: str) -> str:
    """Return by what method a layer overlaps where nothing is configured."""
    return _of_phase(*layer.split("_"))["default_method"]


def default_values(layer: str, tp_size: int) -> dict[str, Any]:
    """Return all values of a layer that nothing is configured for."""
    method = default_method(layer)
    ring = method == "ring_exchange"
    operator, phase = layer.split("_")
    gathers = collective_of(operator, phase, method) == ALL_GATHER
    return {
        "method": method,
        "is_reduce_scatter": not gathers,
        "num_sm": 1 if ring else 16,
        "cga_size": 1 if ring else 2,
        "set_sm_margin": not ring,
        "num_splits": tp_size if ring else 4,
        "aggregate": False,
        "atomic_gemm": False,
        "use_ce": True,
        "fp8_buf": gathers,
        "comm_priority": HIGHEST_PRIORITY,
        "gemm_priority": LOWEST_PRIORITY,
        "pipeline_rs_overlap_first_gemm": False,
    }


def flag_group(operator: str, phase: str) -> str:
    """Return which of Megatron-LM's switches a layer's overlap stands under; or none."""
    return _of_phase(operator, phase)["switch"]


# The cases of a search: what overlaps where, by which method, on how many multiprocessors.

BASELINE = "baseline"
"""The method of a case in which nothing overlaps."""
TP_SIZES = (2, 4, 8)
_METHODS = {BASELINE: BASELINE, "ring": "ring_exchange", "bulk": "bulk", "pipeline": "pipeline"}
_SHORT = {long: short for short, long in _METHODS.items()}
_NAME = re.compile(
    r"tp(?P<tp>\d+)_(?P<operator>qkv|proj|fc1|fc2)_(?:(?P<phase>fprop|dgrad|wgrad)_)?"
    r"(?:(?P<none>baseline)|(?P<ring>ring)_agg(?P<aggregate>[01])"
    r"|(?P<sms>bulk|pipeline)_sm(?P<num_sm>\d+))"
)


@dataclass(frozen=True, slots=True)
class LayerOverlap:
    """One case: one phase of one linear layer overlaps, everything else runs in turn."""

    tp_size: int  # Tensor-parallel ranks
    operator: str  # The linear layer, and what of it overlaps
    phase: str
    method: str = BASELINE  # Userbuffers' method, or ``baseline``
    aggregate: int = 0  # Whether a ring multiplies two chunks at a time
    num_sm: int = 1  # Multiprocessors of the communication

    @property
    def layer(self) -> str:
        """Its key in the configuration."""
        return f"{self.operator}_{self.phase}"

    @property
    def is_baseline(self) -> bool:
        """Whether nothing overlaps."""
        return self.method == BASELINE

    @property
    def config_id(self) -> str:
        """Its name, and that of its folder."""
        end = {"ring_exchange": f"_agg{self.aggregate}", BASELINE: ""}
        tail = end.get(self.method, f"_sm{self.num_sm}")
        return f"tp{self.tp_size}_{self.layer}_{_SHORT[self.method]}{tail}"

    @property
    def run_id(self) -> str:
        """The name of what has to be run for it: one baseline does for all phases."""
        if self.is_baseline:
            return f"tp{self.tp_size}_{self.operator}_{BASELINE}"
        return self.same_as.config_id

    @property
    def legality(self) -> Legality:
        """Whether it can be, and why not."""
        if self.is_baseline:
            return Legality("legal")
        verdict = legality(self.operator, self.phase, self.method)
        if verdict.level == "legal" and self.same_as != self:
            return Legality("legal", f"aggregate is ignored here: the same as {self.run_id}")
        return verdict

    @property
    def same_as(self) -> LayerOverlap:
        """The case that it runs as: a ring's reduce_scatter knows no aggregate."""
        ring = self.method == "ring_exchange" and self.aggregate
        if ring and collective_of(self.operator, self.phase, self.method) == REDUCE_SCATTER:
            return LayerOverlap(self.tp_size, self.operator, self.phase, self.method)
        return self


def tp_sizes(most: int) -> tuple[int, ...]:
    """Return the tensor-parallel sizes of a search that goes up to a size."""
    return tuple(size for size in TP_SIZES if size <= most)


def sm_counts(least: int, most: int) -> tuple[int, ...]:
    """Return the powers of two from one number of multiprocessors to another, and both ends."""
    powers = (1 << k for k in range(MOST_SMS.bit_length()))
    return tuple(sorted({least, most, *(n for n in powers if least <= n <= most)}))


def grid_cases(
    sizes: Sequence[int],
    operators: Sequence[str],
    counts: Sequence[int],
    *,
    nominal: bool = False,
    pipeline: bool = False,
) -> tuple[LayerOverlap, ...]:
    """Return the grid of a search."""
    every = (
        case
        for size in sizes
        for operator in operators
        for phase in PHASES
        for case in _of_layer(size, operator, phase, counts, pipeline)
    )
    return tuple(case for case in every if nominal or case.legality.level == "legal")


def _of_layer(
    size: int, operator: str, phase: str, counts: Sequence[int], pipeline: bool
) -> Iterator[LayerOverlap]:
    yield LayerOverlap(size, operator, phase)
    for aggregate in (0, 1):
        yield LayerOverlap(size, operator, phase, "ring_exchange", aggregate)
    for method in ("bulk", *(("pipeline",) if pipeline else ())):
        for count in counts:
            yield LayerOverlap(size, operator, phase, method, num_sm=count)


def base_cases(operators: Sequence[str]) -> tuple[LayerOverlap, ...]:
    """Return the cases on one rank, where there is no communication: what sizes are compared to."""
    return tuple(LayerOverlap(1, operator, phase) for operator in operators for phase in PHASES)


def parse_case(name: str) -> tuple[LayerOverlap, ...]:
    """Return the case that a folder's name stands for; a baseline without phase for all three."""
    match = _NAME.fullmatch(name)
    if match is None or (match["phase"] is None and not match["none"]):
        return ()
    method = _METHODS[match["none"] or match["ring"] or match["sms"]]
    phases = (match["phase"],) if match["phase"] else PHASES
    return tuple(
        LayerOverlap(
            int(match["tp"]),
            match["operator"],
            phase,
            method,
            int(match["aggregate"] or 0),
            int(match["num_sm"] or 1),
        )
        for phase in phases
    )


# A model's linear layers: what a rank multiplies, and which sizes can split it.

Floats = NDArray[np.float64]
# Nothing where attention isn't latent.
_LATENTS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_size", "qk_rope_head_size", "v_head_size")
# Linear layers and phases as the layer's products have them.
PRODUCTS = {"qkv": "qkv", "proj": "attention_output", "fc1": "mlp_up", "fc2": "mlp_down"}
KINDS = dict(zip(PHASES, GRADIENTS, strict=True))


def products_of(
    shapes: Mapping[str, object], tp: Any, attention: str = "mha", tokens: Any = 1.0
) -> dict[tuple[str, str], dict[str, Floats]]:
    """Return rows, columns and depth of each linear layer's product in each phase, on one rank."""
    defaults = {"layers": 1.0, **dict.fromkeys(_LATENTS, 0.0)}  # Unless the shapes say otherwise
    given = {**defaults, **shapes, "tp": tp, "rank_tokens": tokens}
    evaluation = Evaluation(given, {"attention": attention})
    return {
        (operator, phase): {
            size: evaluation[name]
            for size, name in product_sizes(LINEAR[PRODUCTS[operator]], KINDS[phase]).items()
        }
        for operator in OPERATORS
        for phase in PHASES
    }


def missing_operators(model: Model) -> dict[str, str]:
    """Return linear layers that a model doesn't have as userbuffers take them, with the reason."""
    reasons: dict[str, str] = {}
    if model.labels.get("attention") == "mla":
        reasons["qkv"] = "latent attention has no one product to queries, keys and values"
    if not model.shapes.get("ffn_size"):
        reason = "all of its MLPs are routed experts, whose products don't overlap by userbuffers"
        reasons |= dict.fromkeys(("fc1", "fc2"), reason)
    return reasons


def split_faults(shapes: Mapping[str, float], tp: int) -> tuple[str, ...]:
    """Return why a model can't be split over so many ranks; nothing if it can."""
    return tuple(
        f"{name} {shapes[name]:g} can't be split over {tp} ranks"
        for name in ("heads", "kv_heads", "ffn_size")
        if shapes.get(name) and shapes[name] % tp
    )


def outputs_of(model: Model, tp: int) -> dict[str, int]:
    """Return the outputs of each linear layer's forward on one rank, and of input gradients."""
    lacking = missing_operators(model)
    every = products_of(model.shapes, float(tp), model.labels.get("attention", "mha"))
    return {
        operator + {"fprop": "", "dgrad": "_dgrad"}[phase]: int(sizes["matmul_n"])
        for (operator, phase), sizes in every.items()
        if operator not in lacking and phase != "wgrad"
    }
