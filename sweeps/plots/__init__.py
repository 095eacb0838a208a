"""Figures from a stored dataset: declared in a spec, drawn to PNG and SVG."""
