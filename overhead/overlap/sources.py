"""The publications that the formulas of overlap cite, by their keys."""

from __future__ import annotations

from overhead.source import cite

__all__ = ["BUCKETS", "DECOMPOSED", "DEEPSPEED", "ENGINE", "FSDP", "MEGATRON", "TILES"]

DECOMPOSED = cite(
    "wang2023",
    "S. Wang et al., Overlap communication with dependent computation via decomposition in large "
    "deep learning models, ASPLOS, 2023",
    "doi:10.1145/3567955.3567959",
).key
ENGINE = cite(
    "transformerengine",
    "NVIDIA, Transformer Engine",
    "github.com/NVIDIA/TransformerEngine",
).key
BUCKETS = cite(
    "li2020",
    "S. Li et al., PyTorch distributed: experiences on accelerating data parallel training, VLDB, "
    "2020",
    "arXiv:2006.15704",
).key
FSDP = cite(
    "zhao2023",
    "Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB, 2023",
    "arXiv:2304.11277",
).key
DEEPSPEED = cite("deepspeed", "Microsoft, DeepSpeed", "github.com/deepspeedai/DeepSpeed").key
MEGATRON = cite("megatron", "NVIDIA, Megatron-LM", "github.com/NVIDIA/Megatron-LM").key
TILES = cite(
    "nvidiamatmul",
    "NVIDIA, Matrix multiplication background user's guide",
    "docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication",
).key
