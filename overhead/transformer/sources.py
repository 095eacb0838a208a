"""The publications that the formulas of a transformer cite, by their keys."""

from __future__ import annotations

from overhead.source import cite

__all__ = [
    "AINSLIE",
    "CHOWDHERY",
    "DEEPSEEK_V2",
    "DEEPSEEK_V3",
    "MISTRAL",
    "MIXTRAL",
    "NARAYANAN",
    "SHAZEER",
    "VASWANI",
]

VASWANI = cite(
    "vaswani2017",
    "A. Vaswani et al., Attention is all you need, NeurIPS, 2017",
    "arXiv:1706.03762",
).key
SHAZEER = cite(
    "shazeer2020",
    "N. Shazeer, GLU variants improve transformer, 2020",
    "arXiv:2002.05202",
).key
NARAYANAN = cite(
    "narayanan2021",
    "D. Narayanan et al., Efficient large-scale language model training on GPU clusters using "
    "Megatron-LM, SC, 2021",
    "arXiv:2104.04473",
).key
CHOWDHERY = cite(
    "chowdhery2022",
    "A. Chowdhery et al., PaLM: scaling language modeling with Pathways, 2022",
    "arXiv:2204.02311",
).key
AINSLIE = cite(
    "ainslie2023",
    "J. Ainslie et al., GQA: training generalized multi-query transformer models from multi-head "
    "checkpoints, EMNLP, 2023",
    "arXiv:2305.13245",
).key
MISTRAL = cite(
    "mistral2023",
    "A. Q. Jiang et al., Mistral 7B, 2023",
    "arXiv:2310.06825",
).key
MIXTRAL = cite(
    "mixtral2024",
    "A. Q. Jiang et al., Mixtral of experts, 2024",
    "arXiv:2401.04088",
).key
DEEPSEEK_V2 = cite(
    "deepseekv2",
    "DeepSeek-AI, DeepSeek-V2: a strong, economical, and efficient mixture-of-experts language "
    "model, 2024",
    "arXiv:2405.04434",
).key
DEEPSEEK_V3 = cite(
    "deepseekv3",
    "DeepSeek-AI, DeepSeek-V3 technical report, 2024",
    "arXiv:2412.19437",
).key
