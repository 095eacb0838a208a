"""What a GPU computes: matrix products, attention, element-wise work, layers, stages."""
