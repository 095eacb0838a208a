"""A whole run's file operations, ended at every one of them: then the run is finished."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sweeps.blocks.run import run_in_blocks
from sweeps.errors import InputError, RunError
from tests.run.disk import Disk, Event, Recorder, materialise
from tests.run.sweep import SMALL_CUT, finish, names, small, whole

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names of open files are asked"
)
State = dict[str, bytes | None]
OLD = b"what was there before"


def recorded(folder: Path, *, overwrite: bool) -> list[Event]:
    """Return what a run does with files, from nothing to the file alone."""
    folder.mkdir()
    if overwrite:
        (folder / "x.nc").write_bytes(OLD)
    recorder = Recorder(folder)
    with pytest.MonkeyPatch.context() as patch:
        recorder.install(patch)
        run_in_blocks(small(), folder / "x.nc", SMALL_CUT, overwrite=overwrite)
    assert names(folder) == ["x.nc"]
    assert (folder / "x.nc").read_bytes() == whole(small)
    return recorder.events


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[Event]]:
    folder = tmp_path_factory.mktemp("logs")
    return {how: recorded(folder / str(how), overwrite=how) for how in (False, True)}


def before(overwrite: bool) -> dict[str, bytes]:
    return {"x.nc": OLD} if overwrite else {}


def prefixes(events: list[Event], disk: Disk) -> Iterator[State]:
    """Yield every state that a killed run leaves, with writes torn at several places."""
    yield disk.killed()
    for event in events:
        disk.do(event)
        if event[0] == "write":
            yield from (disk.torn(share) for share in (0.0, 0.3, 0.7, 1.0))
        yield disk.killed()


def wrong(states: Iterable[State], folder: Path, *, overwrite: bool) -> list[str]:
    """Return what is wrong with states: with what stands under the name, or with a rerun."""
    found = []
    for number, state in enumerate(states):
        place = folder / str(number)
        place.mkdir()
        materialise(state, place)
        path = place / "x.nc"
        there = path.read_bytes() if path.exists() else None
        if there not in {OLD if overwrite else None, whole(small)}:
            found.append(f"{number}: neither absent, old nor complete")
        try:
            finish(small(), path, overwrite=overwrite)
        except (InputError, RunError) as error:
            found.append(f"{number}: {error}")
            continue
        if path.read_bytes() != whole(small):
            found.append(f"{number}: another file")
        if [name for name in names(place) if name != ".x.nc.lock"] != ["x.nc"]:
            found.append(f"{number}: leaves {names(place)}")
        shutil.rmtree(place)
    return found


def distinct(states: Iterable[State]) -> list[State]:
    """Leave out states that were there before: a lock's file makes no difference."""
    seen, kept = set(), []
    for state in states:
        key = tuple(sorted((n, c) for n, c in state.items() if n != ".x.nc.lock"))
        if str(key) not in seen:
            seen.add(str(key))
            kept.append(state)
    return kept


@pytest.mark.parametrize("overwrite", [False, True])
def test_every_prefix_and_torn_write(
    tmp_path: Path, logs: dict[bool, list[Event]], overwrite: bool
) -> None:
    events = logs[overwrite]
    operations = {event[0] for event in events}
    assert operations >= {"create", "write", "fsync", "rename", "unlink", "mkdir", "rmdir"}
    states = distinct(prefixes(events, Disk(before(overwrite))))
    assert len(states) > 50
    assert wrong(states, tmp_path, overwrite=overwrite) == []


def lost(
    events: list[Event], overwrite: bool, count: int, *, syncing: bool = True, seed: int = 0
) -> list[State]:
    draw, states = random.Random(seed), []
    for _ in range(count):
        disk = Disk(before(overwrite), syncing=syncing)
        for event in events[: draw.randint(0, len(events))]:
            disk.do(event)
        states.append(disk.power_lost(draw))
    return distinct(states)


@pytest.mark.parametrize("overwrite", [False, True])
def test_power_loss(tmp_path: Path, logs: dict[bool, list[Event]], overwrite: bool) -> None:
    states = lost(logs[overwrite], overwrite, 40)
    assert len(states) > 15
    assert wrong(states, tmp_path, overwrite=overwrite) == []


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
def test_power_loss_at_length(
    tmp_path: Path, logs: dict[bool, list[Event]], overwrite: bool
) -> None:
    states = lost(logs[overwrite], overwrite, 1000, seed=1)
    assert wrong(states, tmp_path, overwrite=overwrite) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_without_syncs_the_same_power_loss_does_harm(
    tmp_path: Path, logs: dict[bool, list[Event]], overwrite: bool
) -> None:
    # The control: a test that finds nothing here would find nothing above either.
    states = lost(logs[overwrite], overwrite, 30, syncing=False)
    found = wrong(states, tmp_path, overwrite=overwrite)
    assert any("neither absent, old nor complete" in one for one in found)
