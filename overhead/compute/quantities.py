"""The vocabulary of what a GPU computes: its rates, one layer's work by part, a stage's layers."""

from __future__ import annotations

# One layer and one micro-batch, on one rank.
CLASSES = ("dense", "moe")
# The publications that the formulas of a GPU's work cite.

MEASURED = "xlamatmul"
KERNELS = "kernels2026"
TILES = "nvidiamatmul"
BLOOM = "bloom"
DAO_2023 = "dao2023"
VTRAIN = "vtrain2024"
WANG = "wang2023"
