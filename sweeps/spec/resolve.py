"""What the user didn't say: machines' figures, shapes and defaults, each with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweeps.spec.resolve_operation import Resolved, Resolver
from sweeps.spec.sweep import Sweep


def resolve(sweep: Sweep, folders: Sequence[Path] = ()) -> Resolved:
    """Fill in what the user didn't give."""
    # Each loads what an operation alone doesn't need.
    if sweep.training:
        from sweeps.spec.resolve_training import TrainingResolver

        return TrainingResolver(sweep, folders).run()
    if sweep.overlap:
        from sweeps.spec.resolve_overlap import OverlapResolver

        return OverlapResolver(sweep, folders).run()
    return Resolver(sweep, folders).run()
