"""The publications that the formulas of a GPU's work cite."""

from __future__ import annotations

from overhead.memory import sources as memory_sources
from overhead.source import cite

__all__ = ["DAO_2023", "MEASURED", "VTRAIN", "WANG", "memory_sources"]

MEASURED = cite(
    "xlamatmul",
    "OpenXLA, measured matrix products of two GPUs, shipped with JAX's CUDA plug-in 0.9.2",
    "github.com/openxla/xla",
).key
DAO_2023 = cite(
    "dao2023",
    "T. Dao, FlashAttention-2: faster attention with better parallelism and work partitioning, "
    "ICLR, 2024",
    "arXiv:2307.08691",
).key
VTRAIN = cite(
    "vtrain2024",
    "J. Bang et al., vTrain: a simulation framework for evaluating cost-effective and "
    "compute-optimal large language model training, MICRO, 2024",
    "arXiv:2312.12391",
).key
WANG = cite(
    "wang2023",
    "S. Wang et al., Overlap communication with dependent computation via decomposition in large "
    "deep learning models, ASPLOS, 2023",
    "doi:10.1145/3567955.3567959",
).key
