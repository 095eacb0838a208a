"""What a search may vary, and what it varies where nothing is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "ALIASES",
    "CHOICES",
    "DEGREES",
    "LABEL_CHOICES",
    "NUMBER_CHOICES",
    "OVERLAPS",
    "SHORT",
    "Habits",
    "divisors",
    "habits_of",
    "micro_batches",
    "virtual_stages",
]

# How the GPUs are cut; what the first three leave of them is data-parallel.
DEGREES = ("tp", "cp", "pp", "dp", "ep", "etp")
# How a split is run, as far as people choose it.
NUMBER_CHOICES = ("micro_batch", "virtual_stages", "zero_stage", "sequence_parallel")
OVERLAPS = ("tp_overlap", "cp_overlap", "ep_overlap", "dp_overlap", "hsdp_shard")
LABEL_CHOICES = ("recompute", "schedule", "context_parallel")
CHOICES = (*DEGREES, *NUMBER_CHOICES, *OVERLAPS, *LABEL_CHOICES)

# Other names by which people know quantities of a plan.
ALIASES = {
    "gpus": "world_size",
    "num_gpus": "world_size",
    "batch_size": "global_batch",
    "seq_len": "sequence_length",
    "seq_length": "sequence_length",
    "memory": "memory_capacity",
    "zero": "zero_stage",
    "v": "virtual_stages",
    "vpp": "virtual_stages",
    "mb": "micro_batch",
    "sp": "sequence_parallel",
    "cp_kind": "context_parallel",
}
SHORT = {"micro_batch": "b", "virtual_stages": "v", "zero_stage": "ZeRO", "sequence_parallel": "sp"}

# Chunks of a stage that are tried even if no divisor of the layers: stages may be uneven.
FEW_CHUNKS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Habits:
    """What a framework can do, of what a search varies."""

    zero_stages: tuple[int, ...] = (0, 1, 2, 3)  # Stages of ZeRO
    recompute: tuple[str, ...] = ("none", "full")  # What can be recomputed
    schedules: tuple[str, ...] = ("one_f_one_b", "interleaved")  # Schedules of a pipeline


# Megatron-LM's Megatron-FSDP is ZeRO 2 and 3, its distributed optimizer ZeRO 1.  torchtitan shards
# fully, or keeps what it gathered (2).  DeepSpeed's pipeline isn't interleaved.
HABITS: Mapping[str, Habits] = {
    "torchtitan": Habits((2, 3), ("none", "per_op", "full_early_stop")),
    "deepspeed": Habits(schedules=("one_f_one_b",)),
    "fms-fsdp": Habits((3,), ("none", "full_early_stop"), ("one_f_one_b",)),
    "fsdp-llmfoundry": Habits((3,), ("none", "full_early_stop"), ("one_f_one_b",)),
}


def habits_of(framework: str, attention_kernel: str) -> Habits:
    """Return what a framework can do."""
    known = HABITS.get(framework.split("+", maxsplit=1)[0], Habits())
    if attention_kernel != "unfused":
        return known
    several = (known.recompute[0], "selective", *known.recompute[1:])
    return Habits(known.zero_stages, several, known.schedules)


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, in order."""
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return tuple(sorted({*small, *(number // k for k in small)}))


def micro_batches(global_batch: float) -> tuple[int, ...]:
    """Return the micro-batches that any number of data-parallel ranks leaves possible."""
    return divisors(int(global_batch)) if float(global_batch).is_integer() else (1,)


def virtual_stages(layers: int, stages: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers of chunks into which a stage may be cut."""
    several: Sequence[int] = [count for count in stages if count > 1]
    most = layers // min(several) if several else 1
    known = {*divisors(layers), *divisors(layers + 2), *FEW_CHUNKS}
    return tuple(k for k in sorted(known) if k == 1 or k <= most)
