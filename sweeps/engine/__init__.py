"""The engine: axes to labelled datasets."""
