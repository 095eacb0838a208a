"""Transformers: from a model's shapes to its parameters and its floating-point operations."""
