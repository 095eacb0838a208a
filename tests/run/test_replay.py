"""A whole run's file operations, ended at every one of them: then the run is finished.

They are our own operations, recorded in Python, and, where there is a C compiler, all system calls
of the process, those of the netCDF library among them.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sweeps.blocks.run import run_in_blocks
from sweeps.errors import InputError, RunError
from sweeps.job import Job, prepare
from tests.run.calls import library, preloaded
from tests.run.disk import Disk, Event, Recorder, logged, materialise
from tests.run.sweep import EPOCH, SMALL, SMALL_CUT, finish, names

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names of open files are asked"
)
State = dict[str, bytes | None]
OLD = b"what was there before"
# Of the library's many small writes, one in so many in the usual run.
THINNED = 20
# Operations at the end, about.
PUBLISHING = 16
RUNNER = """
import sys
from pathlib import Path
from sweeps.blocks.run import run_in_blocks
from tests.run.sweep import SMALL_CUT, small

run_in_blocks(small(), Path(sys.argv[1]), SMALL_CUT, overwrite=sys.argv[2] == "True")
"""


class Run:
    """What a run does with files, from nothing to the file alone."""

    def __init__(self, folder: Path, how: str, overwrite: bool) -> None:
        self.overwrite = overwrite
        self.before = {"x.nc": OLD} if overwrite else {}
        place = folder / "place"
        place.mkdir()
        for name, content in self.before.items():
            (place / name).write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:
            # All runs of it have one date.
            patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
            self.job: Job = prepare(SMALL)
            assert self.job.attrs
            self.events = self.recorded(place) if how == "recorded" else self.logged(folder, place)
        assert names(place) == ["x.nc"]
        self.result = (place / "x.nc").read_bytes()
        assert self.disk(self.events).killed() == {"x.nc": self.result}

    def recorded(self, path: Path) -> list[Event]:
        recorder = Recorder(path)
        with pytest.MonkeyPatch.context() as patch:
            recorder.install(patch)
            run_in_blocks(self.job, path / "x.nc", SMALL_CUT, overwrite=self.overwrite)
        return recorder.events

    def logged(self, folder: Path, path: Path) -> list[Event]:
        log = folder / "log"
        arguments = (str(path / "x.nc"), str(self.overwrite))
        preloaded(library(folder), path, RUNNER, *arguments, log=log)
        return logged(log)

    def disk(self, events: Iterable[Event] = (), *, syncing: bool = True) -> Disk:
        disk = Disk(self.before, syncing=syncing)
        for event in events:
            disk.do(event)
        return disk

    def prefixes(self, shares: tuple[float, ...], thinned: int = 1) -> Iterator[State]:
        """Yield every state that a killed run leaves, with writes torn at several places."""
        disk = self.disk()
        yield disk.killed()
        for number, event in enumerate(self.events):
            disk.do(event)
            is_library_s = event[0] == "write" and event[1].startswith(".x.nc.")
            if is_library_s and ".run/" not in event[1] and number % thinned:
                continue
            if event[0] == "write":
                yield from (disk.torn(event[1], share) for share in shares)
            yield disk.killed()

    def lost(self, count: int, *, syncing: bool = True, seed: int = 0) -> list[State]:
        """Return states that the power's failure may leave."""
        draw, states = random.Random(seed), []
        for _ in range(count):
            # Half of the times while the file is given its name, which is soon done.
            first = max(0, len(self.events) - PUBLISHING) if draw.random() < 0.5 else 0
            events = self.events[: draw.randint(first, len(self.events))]
            states.append(self.disk(events, syncing=syncing).power_lost(draw))
        return distinct(states)

    def wrong(self, states: Iterable[State], folder: Path) -> list[str]:
        """Return what is wrong with states: with what stands under the name, or with a rerun."""
        texts = []
        for number, state in enumerate(states):
            place = folder / str(number)
            place.mkdir()
            materialise(state, place)
            path = place / "x.nc"
            content = path.read_bytes() if path.exists() else None
            if content not in {self.before.get("x.nc"), self.result}:
                texts.append(f"{number}: neither absent, old nor complete")
            try:
                finish(self.job, path, overwrite=self.overwrite)
            except (InputError, RunError) as error:
                texts.append(f"{number}: {error}")
                continue
            if path.read_bytes() != self.result:
                texts.append(f"{number}: another file")
            if [name for name in names(place) if name != ".x.nc.lock"] != ["x.nc"]:
                texts.append(f"{number}: leaves {names(place)}")
            shutil.rmtree(place)
        return texts


RUNS = [
    pytest.param(("recorded", False), id="recorded-new"),
    pytest.param(("recorded", True), id="recorded-overwrite"),
    pytest.param(("logged", False), id="logged-new", marks=pytest.mark.slow),
    pytest.param(("logged", True), id="logged-overwrite"),
]


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("run"), *request.param)


def distinct(states: Iterable[State]) -> list[State]:
    """Leave out states that were there before: a lock's file makes no difference."""
    seen, kept = set(), []
    for state in states:
        key = hash(tuple(sorted((n, c or "") for n, c in state.items() if n != ".x.nc.lock")))
        if key not in seen:
            seen.add(key)
            kept.append(state)
    return kept


@pytest.mark.thorough
def test_every_prefix_and_torn_write(tmp_path: Path, run: Run) -> None:
    operations = {event[0] for event in run.events}
    assert operations >= {"create", "write", "fsync", "rename", "unlink", "mkdir", "rmdir"}
    states = distinct(run.prefixes((0.3, 1.0), THINNED))
    assert len(states) > 30
    assert run.wrong(states, tmp_path) == []


@pytest.mark.slow
def test_every_prefix_and_torn_write_of_the_library_too(tmp_path: Path, run: Run) -> None:
    states = distinct(run.prefixes((0.5,)))
    assert run.wrong(states, tmp_path) == []


@pytest.mark.thorough
def test_power_loss(tmp_path: Path, run: Run) -> None:
    states = run.lost(40)
    assert len(states) > 15
    assert run.wrong(states, tmp_path) == []


def test_what_is_done_stays_done(run: Run) -> None:
    # As soon as a block's file is written the next one is begun: then the power may fail.
    disk, draw, result = run.disk(), random.Random(0), set[str]()
    for operation, path, more in run.events:
        if operation == "create" and result:
            for _ in range(5):
                contents = disk.power_lost(draw)
                assert {name: contents.get(name) for name in result} == {
                    name: disk.killed()[name] for name in result
                }
        if operation == "unlink":
            # Before blocks go, the result is there to stay.
            if path.endswith("plan.json"):
                assert all(disk.power_lost(draw).get("x.nc") == run.result for _ in range(20))
            result.discard(path)
        disk.do((operation, path, more))
        if operation == "rename" and str(more).endswith(".block"):
            result.add(str(more))
    assert all(disk.power_lost(draw)["x.nc"] == run.result for _ in range(20))


@pytest.mark.slow
def test_power_loss_at_length(tmp_path: Path, run: Run) -> None:
    assert run.wrong(run.lost(300, seed=1), tmp_path) == []


@pytest.mark.thorough
def test_without_syncs_the_same_power_loss_does_harm(tmp_path: Path, run: Run) -> None:
    # The control: a test that finds nothing here would find nothing above either.
    lines = run.wrong(run.lost(30, syncing=False), tmp_path)
    assert any("neither absent, old nor complete" in line for line in lines)
