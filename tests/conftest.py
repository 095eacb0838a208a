"""Hypothesis profiles: ``HYPOTHESIS_PROFILE=deep`` searches longer, and elsewhere each time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("deep", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
