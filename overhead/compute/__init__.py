"""What a GPU computes: GEMMs, attention, element-wise work, layers, stages."""
