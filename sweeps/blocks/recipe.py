"""What a process needs to compute blocks: a sweep's data, which it makes the plan of."""

from __future__ import annotations

import hashlib
import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.engine.evaluate import Limits
from sweeps.errors import RunError
from sweeps.spec.sweep import Reduction
from sweeps.store.encode import Storage
from sweeps.store.metadata import code_digest, versions

if TYPE_CHECKING:
    from sweeps.engine.grid import Field
    from sweeps.engine.plan import Plan
    from sweeps.job import Job
    from sweeps.spec.axis import Axis

# Own formulas that this process has, by file name: they join registries, and don't leave them.
_LOADED: dict[str, str] = {}


@dataclass(frozen=True)
class Recipe:
    """A sweep as data."""

    axes: tuple[Axis, ...]  # What `Plan` takes
    constants: Mapping[str, float]  # What `Plan` takes
    labels: Mapping[str, str]  # What `Plan` takes
    wanted: tuple[str, ...]  # What `Plan` takes
    fields: Mapping[str, Field]  # What `Plan` takes
    implied: Mapping[str, str]  # What `Plan` takes
    optional: bool  # What `Plan` takes
    reductions: tuple[Reduction, ...]  # Reductions
    stored: tuple[str, ...]  # The variables that are stored whole
    limits: Limits  # How much is computed at a time, and kept
    per_block: int  # Steps of a block
    owner: bytes  # Marks the blocks of this sweep, cut like this
    formulas: tuple[tuple[str, str], ...]  # Own formulas: the names of their files and the text
    code: str  # Digest of the code that has to compute it
    numpy: str  # numpy's version
    # How values are stored where blocks are parts of a Zarr store; else they are in files
    storage: Storage | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The variables to compute: those that are stored come first, in their order."""
        return tuple(dict.fromkeys((*self.stored, *(r.quantity for r in self.reductions))))

    def plan(self) -> Plan:
        """Make the plan, in a process that has nothing of it."""
        from sweeps.engine.plan import Plan

        if (code_here(), versions(["numpy"])["numpy"]) != (self.code, self.numpy):
            message = (
                "a worker runs other code or another numpy than the sweep was started with; "
                "install the same there and restart it"
            )
            raise RunError(message)
        load_own(self.formulas)
        return Plan(
            self.axes,
            self.constants,
            self.labels,
            self.wanted,
            fields=self.fields,
            implied=self.implied,
            optional=self.optional,
        )


@cache
def code_here() -> str:
    """Return the digest of this process' code: found once, for what is imported stays."""
    return code_digest()


def load_own(formulas: Sequence[tuple[str, str]]) -> None:
    """Load own formulas from their text, once in a process."""
    from sweeps.own_formulas import load_formulas

    wanted = dict(formulas)
    for name, text in wanted.items():
        if name not in _LOADED and f"formulas_{Path(name).stem}" not in sys.modules:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / name
                path.write_text(text, encoding="utf-8")
                load_formulas(path)
        _LOADED.setdefault(name, text)
    if wanted != _LOADED:
        message = "a worker has the own formulas of another sweep; restart it"
        raise RunError(message)


def recipe_of(
    job: Job,
    limits: Limits,
    per_block: int,
    formulas: Sequence[tuple[str, str]] = (),
    storage: Storage | None = None,
) -> Recipe:
    """Return a job as data."""
    plan, resolved = job.plan, job.resolved
    reduced = (name for one in job.sweep.reductions for name in one.quantities)
    wanted = dict.fromkeys((*job.sweep.quantities, *reduced))
    cut = f"{job.attrs['fingerprint']} {limits.block} {limits.whole} {per_block}"
    return Recipe(
        axes=tuple(resolved.axes),
        constants=dict(resolved.constants),
        labels=dict(resolved.labels),
        wanted=tuple(wanted),
        fields=dict(resolved.fields),
        implied=dict(resolved.implied),
        optional=plan.optional,
        reductions=tuple(job.sweep.reductions),
        stored=job.stored,
        limits=limits,
        per_block=per_block,
        owner=hashlib.sha256(cut.encode()).digest(),
        formulas=tuple(formulas),
        code=job.identity["code"],
        numpy=versions(["numpy"])["numpy"],
        storage=storage,
    )


def packed(recipe: Recipe) -> tuple[bytes, str]:
    """Return a recipe as bytes, and their digest."""
    content = pickle.dumps(recipe, protocol=5)
    return content, hashlib.sha256(content).hexdigest()


def unpacked(content: bytes, digest: str) -> Recipe:
    """Return a recipe from bytes, if they are those that were sent."""
    if hashlib.sha256(content).hexdigest() != digest:
        message = "the sweep's recipe isn't the one that was sent: another run took its folder"
        raise RunError(message)
    found: Any = pickle.loads(content)
    assert isinstance(found, Recipe)
    return found
