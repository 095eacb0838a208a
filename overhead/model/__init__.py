"""Layers as lists of GEMMs and of what they keep, by kind: mixers and feed-forwards."""
