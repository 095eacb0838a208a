"""Datasets to files and back: whole or not at all, with CF metadata and provenance."""
