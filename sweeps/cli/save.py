"""``--save DIR``: the files with which a plan is run, computed again, and read by programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sweeps.cli.given import Given
from sweeps.cli.option_table import options
from sweeps.cli.sections import wrapped
from sweeps.errors import refuse
from sweeps.launch.frameworks import FRAMEWORKS, launch_files
from sweeps.launch.spec import spec_of_plan
from sweeps.result import SCHEMA_VERSION, Result, json_lines
from sweeps.search.request import Execution, Point
from sweeps.store.publish import write_whole

SPEC, ANSWER = "spec.toml", "answer.json"
SAVING = "launch files: --save DIR"
NAMES = (*(framework.FILE for framework in FRAMEWORKS), SPEC, ANSWER)
save_option = options("save")


def check_folder(given: Given) -> None:
    """Refuse a folder that can't be written to, before anything is computed for it."""
    if given["save"] is None:
        return
    folder = Path(given["save"])
    if folder.exists() and not folder.is_dir():
        refuse("--save", str(folder), "is not a folder", "another name")
    if not folder.parent.is_dir():
        refuse("--save", str(folder), f"'{folder.parent}' is no folder", "make it first")
    there = [name for name in NAMES if (folder / name).exists()]
    if there and not given["overwrite"]:
        wrong = f"{', '.join(there)} exist there already"
        refuse("--save", str(folder), wrong, "--overwrite, or another folder")


def save(
    given: Given,
    plan: Execution,
    point: Point,
    heading: Sequence[str],
    result: Callable[[], Result],
) -> Iterator[str]:
    """Write the files, and yield which there are and what they don't say."""
    if given["save"] is None:
        return
    folder = Path(given["save"])
    folder.mkdir(exist_ok=True)
    records = ({"schema_version": SCHEMA_VERSION, **record} for record in result().records())
    files = launch_files(plan, tuple(heading))
    texts = {file.name: file.text for file in files}
    texts |= {SPEC: spec_of_plan(point, plan), ANSWER: "".join(json_lines(records))}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    yield from wrapped(f"wrote {', '.join(texts)} to {folder}{'/'}")
    for file in files:
        if file.missing:
            yield from wrapped(f"not in {file.name}: {'; '.join(file.missing)}", "  ")
