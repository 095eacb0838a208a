"""Each system call of a run fails once, those of the netCDF library among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run.calls import library, preloaded

# Imported once, then a process for each failure; then the same sweep is run to its end.
RUNNER = """
import ctypes, errno, json, os, sys
from pathlib import Path
from sweeps.blocks.run import run_in_blocks
from sweeps.errors import InputError, RunError
from tests.run.sweep import SMALL_CUT, finish, names, small, whole

calls = ctypes.CDLL(sys.argv[1])
path, step, operations = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
CODES = (errno.ENOSPC, errno.EIO, errno.EROFS)
complete, wrong, died = whole(small), [], []

def run(operation, number, code):
    "Run in a process of its own; return how it ended, and how many such calls there were."
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        # What the library has to say goes nowhere, what we have to say is asked for.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        calls.calls_fail(operation.encode(), number, code)
        try:
            run_in_blocks(small(), path, SMALL_CUT)
            told = ""
        except (InputError, RunError) as error:
            told = str(error)
        except BaseException as error:
            told = f"raised {error!r}"
        os.write(write, json.dumps([told, calls.calls_seen()]).encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with open(read) as stream:
        text = stream.read()
    if status:
        died.append(f"{operation} {number}: {status}")
    return json.loads(text) if status == 0 else ["", 0]

def check(operation, number, code, told):
    "Say what is wrong with how it ended."
    where = f"{operation} {number} {errno.errorcode[code]}: "
    if told and not (told.startswith(f"output = '{path}': ") and "\\n" not in told):
        wrong.append(where + told)
    if path.exists() and path.read_bytes() != complete:
        wrong.append(where + "neither absent nor complete")
    finish(small(), path)
    if path.read_bytes() != complete:
        wrong.append(where + "another file")
    left = [name for name in names(path.parent) if name not in (path.name, f".{path.name}.lock")]
    if left:
        wrong.append(where + f"leaves {left}")
    path.unlink()

counts, silent = {}, 0
for operation in operations:
    told, total = run(operation, -1, 0)
    assert told == "", told
    path.unlink()
    counts[operation] = total
    every = step if total > 50 else 1
    for number in range(0, total, every):
        code = CODES[number // every % 3]
        told, _ = run(operation, number, code)
        silent += not told
        check(operation, number, code, told)
print(json.dumps({"counts": counts, "silent": silent, "wrong": wrong, "died": died}))
"""


# Those of the netCDF library; ours fail in Python, too (`test_failures`).
LIBRARY = ("write", "size", "reserve")
ALL = (*LIBRARY, "create", "fsync", "mkdir", "link", "rename", "unlink", "rmdir")


def failed(folder: Path, step: int, operations: tuple[str, ...]) -> None:
    """Let calls fail one after the other, of the library's many writes one in so many."""
    place = folder / "place"
    place.mkdir()
    made = library(folder)
    arguments = (str(made), str(place / "x.nc"), str(step), *operations)
    result = preloaded(made, place, RUNNER, *arguments)
    # The HDF5 library writes to standard output, too.
    record = json.loads(result.splitlines()[-1])
    assert record["wrong"] == []
    # Of the last write, in closing, the netCDF library dies: as good as killed.
    assert len(record["died"]) <= 1, record["died"]
    counts = record["counts"]
    assert min(counts.values()) > 0
    assert counts["write"] > 50
    # Little fails that nobody minds: a lock's file, or a name, that stays.
    minor = counts.get("unlink", 0) + counts.get("rmdir", 0)
    assert record["silent"] <= minor + len(record["died"])


@pytest.mark.thorough
def test_calls_that_fail(tmp_path: Path) -> None:
    failed(tmp_path, 40, LIBRARY)


@pytest.mark.slow
def test_every_call_that_fails(tmp_path: Path) -> None:
    failed(tmp_path, 1, ALL)
