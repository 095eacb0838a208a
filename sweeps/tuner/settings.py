"""What is tuned: a model, a machine, and which cases are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.errors import InputError, fault, nearest
from sweeps.spec.catalog import load_model
from sweeps.spec.model import Model
from sweeps.tuner.cases import TP_SIZES, Case, grid_cases, sm_counts, tp_sizes
from sweeps.tuner.choose import OBJECTIVES
from sweeps.tuner.models import missing_operators, split_faults
from sweeps.tuner.rates import PRECISIONS, Rates, read_rates
from sweeps.tuner.userbuffers import MOST_SMS, OPERATORS

__all__ = ["GRIDS", "SEARCHES", "TPOverlapTunerConfig"]

GRIDS = ("legal", "nominal")
SEARCHES = ("bisection", "grid", "all")
DEFAULT_HARDWARE = "dgx-h100"


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
    hardware: str = DEFAULT_HARDWARE
    precision: str = "bf16"
    grid: str = "legal"
    search: str = "bisection"
    objective: str = "e2e"
    tolerance: float = 0.2
    sm_margin: bool = False
    pipeline: bool = False
    rates: Mapping[str, float] = field(default_factory=dict)
    from_traces: str | Path | None = None
    command: str | None = None
    timeout: float | None = None
    resume: bool = False
    hardware_folders: Sequence[Path] = ()

    def __post_init__(self) -> None:
        faults = self._plain_faults()
        try:
            self.model: Model = load_model(self.model_name)
        except InputError as error:
            raise InputError([*faults, *error.faults]) from None
        self.model.need(("layers", "hidden_size", "heads"), "tuning")
        self.notes: list[str] = []
        faults += self._operator_faults()
        self.skipped: dict[int, str] = {}
        faults += self._size_faults()
        # Nothing more is said of a machine in a precision that there isn't.
        known = self.precision in PRECISIONS
        try:
            self.machine: Rates = read_rates(
                self.hardware,
                self.precision if known else PRECISIONS[0],
                self.rates,
                tuple(self.hardware_folders),
            )
            if max(self.sizes, default=1) > self.machine.ranks:
                wrong = f"{self.hardware} has {self.machine.ranks} GPUs in a node"
                allowed = "tensor parallelism within one"
                faults.append(fault("--max-tp-size", self.max_tp_size, wrong, allowed))
        except InputError as error:
            faults += error.faults
        if faults:
            raise InputError(faults)

    def _plain_faults(self) -> list[str]:
        found = []
        for flag, value, known in (
            ("--precision", self.precision, PRECISIONS),
            ("--grid", self.grid, GRIDS),
            ("--search", self.search, SEARCHES),
            ("--objective", self.objective, OBJECTIVES),
        ):
            if value not in known:
                found.append(fault(flag, value, "unknown", nearest(str(value), known)))
        if self.max_tp_size not in TP_SIZES:
            wrong = "isn't a size that is tried"
            allowed = "2, 4 or 8: tensor parallelism stays in one machine"
            found.append(fault("--max-tp-size", self.max_tp_size, wrong, allowed))
        for flag, count in (("--min-num-sm", self.min_num_sm), ("--max-num-sm", self.max_num_sm)):
            if not _whole(count) or not 1 <= count <= MOST_SMS:
                found.append(fault(flag, count, "can't be", f"a whole number, 1 to {MOST_SMS}"))
        if not found and self.min_num_sm > self.max_num_sm:
            wrong = f"is above --max-num-sm {self.max_num_sm}"
            found.append(fault("--min-num-sm", self.min_num_sm, wrong, "at most that"))
        if not _whole(self.max_token_len) or not 1 <= self.max_token_len <= 1 << 40:
            wrong = "can't be"
            found.append(fault("--max-token-len", self.max_token_len, wrong, "a whole number"))
        if not 0.0 <= self.tolerance < float("inf"):
            found.append(fault("--tolerance", self.tolerance, "can't be", "a share from 0"))
        if self.from_traces is not None and self.command is not None:
            found.append(fault("--command", self.command, "--from-traces is given too", "one"))
        return found

    def _operator_faults(self) -> list[str]:
        """Check operators; leave out those that the model lacks where none were asked for."""
        asked = list(self.operators)
        found = [
            fault("--operators", name, "there is no such one", nearest(str(name), OPERATORS))
            for name in asked
            if name not in OPERATORS
        ]
        found += [
            fault("--operators", name, "stands there twice", "give it once")
            for name in sorted({n for n in asked if asked.count(n) > 1})
        ]
        lacking = missing_operators(self.model)
        for name, reason in lacking.items():
            if name in asked:
                found.append(fault("--operators", name, f"{self.model.name}: {reason}", "others"))
            elif not asked:
                self.notes.append(f"{name} is left out: {reason}")
        shapes = self.model.shapes
        if shapes.get("experts") and shapes.get("ffn_size"):
            self.notes.append("fc1 and fc2 are those of the dense layers: experts don't overlap so")
        self.operators = tuple(asked or (name for name in OPERATORS if name not in lacking))
        if not self.operators:
            wrong = "has none of the linear layers that userbuffers overlap"
            found.append(fault("--model-name", self.model_name, wrong, "another model"))
        return found

    def _size_faults(self) -> list[str]:
        if (
            self.max_tp_size not in TP_SIZES
            or not _whole(self.max_token_len)
            or self.max_token_len < 1
        ):
            return []
        for size in tp_sizes(self.max_tp_size):
            reasons = list(split_faults(self.model.shapes, size))
            if self.max_token_len % size:
                reasons.append(f"{self.max_token_len} tokens can't be split over {size} ranks")
            if reasons:
                self.skipped[size] = "; ".join(reasons)
                self.notes.append(f"TP={size} is left out: {self.skipped[size]}")
        if self.sizes:
            return []
        wrong = self.skipped[min(self.skipped)]
        return [fault("--max-tp-size", self.max_tp_size, wrong, "another model or token length")]

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
        return tuple(n for n in tp_sizes(self.max_tp_size) if n not in self.skipped)

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

    def cases(self) -> tuple[Case, ...]:
        """Return the grid: legal cases, or all with ``grid = "nominal"``."""
        nominal = self.grid == "nominal"
        sizes = tp_sizes(self.max_tp_size) if nominal else self.sizes
        return grid_cases(
            sizes, self.operators, self.counts, nominal=nominal, pipeline=self.pipeline
        )

    def record(self) -> dict[str, Any]:
        """Return it as the report has it."""
        return {
            "model_name": self.model_name,
            "model": self.model.name,
            "hidden_size": self.hidden_size,
            "ffn_hidden_size": self.ffn_hidden_size,
            "num_attention_heads": self.num_attention_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_size": self.head_size,
            "max_tp_size": self.max_tp_size,
            "max_token_len": self.max_token_len,
            "operators": list(self.operators),
            "min_num_sm": self.min_num_sm,
            "max_num_sm": self.max_num_sm,
            "hardware": self.hardware,
            "precision": self.precision,
            "grid": self.grid,
            "search": self.search,
            "objective": self.objective,
            "set_sm_margin": self.sm_margin,
            "pipeline": self.pipeline,
        }


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
