"""The publications that the formulas of memory cite."""

from __future__ import annotations

from overhead import placement
from overhead.source import cite
from overhead.transformer import sources as transformer_sources

__all__ = ["placement", "transformer_sources"]

cite(
    "korthikanti2022",
    "V. Korthikanti et al., Reducing activation recomputation in large transformer models, 2022",
    "arXiv:2205.05198",
)
cite(
    "rajbhandari2020",
    "S. Rajbhandari, J. Rasley, O. Ruwase and Y. He, ZeRO: memory optimizations toward training "
    "trillion parameter models, SC, 2020",
    "arXiv:1910.02054",
)
cite(
    "zhao2023",
    "Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB, 2023",
    "arXiv:2304.11277",
)
cite(
    "dettmers2022",
    "T. Dettmers, M. Lewis, S. Shleifer and L. Zettlemoyer, 8-bit optimizers via block-wise "
    "quantization, ICLR, 2022",
    "arXiv:2110.02861",
)
cite(
    "micikevicius2018",
    "P. Micikevicius et al., Mixed precision training, ICLR, 2018",
    "arXiv:1710.03740",
)
cite(
    "dao2022",
    "T. Dao, D. Y. Fu, S. Ermon, A. Rudra and C. Re, FlashAttention: fast and memory-efficient "
    "exact attention with IO-awareness, NeurIPS, 2022",
    "arXiv:2205.14135",
)
cite(
    "chen2016",
    "T. Chen, B. Xu, C. Zhang and C. Guestrin, Training deep nets with sublinear memory cost, 2016",
    "arXiv:1604.06174",
)
cite(
    "transformerengine",
    "NVIDIA, Transformer Engine",
    "github.com/NVIDIA/TransformerEngine",
)
cite("torchtitan", "PyTorch, torchtitan", "github.com/pytorch/torchtitan")
